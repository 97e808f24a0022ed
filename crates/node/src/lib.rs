//! Isochrone's `node` crate.

pub mod journal;
