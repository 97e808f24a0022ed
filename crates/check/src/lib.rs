//! Isochrone's `check` crate.
