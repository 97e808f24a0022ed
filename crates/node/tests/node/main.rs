//! The node's tests: the contract suite over bare shards, and whole nodes over loopback.

mod contract;
mod live;
mod toy;
