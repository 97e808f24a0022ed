//! The `isochrone` command.
fn main() {}
