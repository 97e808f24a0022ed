//! Isochrone's `core` crate.
