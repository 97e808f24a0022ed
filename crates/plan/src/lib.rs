//! Isochrone's `plan` crate.
