//! Isochrone's `workload` crate.
