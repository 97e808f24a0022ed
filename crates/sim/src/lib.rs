//! Isochrone's `sim` crate.
