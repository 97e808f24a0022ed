//! Isochrone's `store` crate.
