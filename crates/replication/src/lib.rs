//! Isochrone's `replication` crate.
