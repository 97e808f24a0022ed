//! Isochrone's `node` crate.
