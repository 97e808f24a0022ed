//! What clients do: closed and open loops of YCSB and of mixes made to be checked, and what came of it:
//! latencies per region and kind, and recorded histories.
//!
//! A [`Workload`] is data; a [`Session`] draws its requests from it and a seed, so the same seed asks
//! for the same things in the simulator and against a live cluster.

#![forbid(unsafe_code)]

pub mod keys;
pub mod latency;
pub mod operations;
pub mod pace;
pub mod simulated;
pub mod transactions;
pub mod trial;
pub mod workload;

pub use keys::Chooser;
pub use latency::{Quantiles, Recorder, Window};
pub use operations::{described, value, words};
pub use pace::Pace;
pub use workload::{Kind, Request, Session, UnknownWorkload, Workload};
