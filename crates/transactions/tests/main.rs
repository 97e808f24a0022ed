//! Transaction protocols in the simulator: latency without load, scripted faults, seeds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_types, clippy::disallowed_methods)]

mod carousel;
mod cluster;
mod commands;
mod crashes;
mod isolation;
mod latency;
mod members;
mod moves;
mod resumed;
mod script;
mod slow_lines;
mod tapir;
mod twopc;
mod walk;
