//! Multi-Paxos in the simulator: exact latency, conversations, faults, planted bugs.

mod cluster;
mod driver;
mod latency;
mod machine;
mod mutations;
mod safety;
