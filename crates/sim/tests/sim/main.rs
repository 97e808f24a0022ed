//! The simulator is held to its own promises: the contract, determinism, faults that really happen,
//! oracles that see, drawings that are what happened.

mod contract;
mod determinism;
mod drawings;
mod faults;
mod oracles;
mod seeds;
mod toy;
mod world;
