//! Transaction protocols in the simulator: latency without load, scripted faults, seeds.

mod carousel;
mod latency;
mod tapir;
mod twopc;
