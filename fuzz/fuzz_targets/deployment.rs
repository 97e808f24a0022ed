//! Any text is a deployment or a list of mistakes, never a panic; so is any matrix.
#![no_main]

use isochrone_core::deployment::{Deployment, Known};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|input: (String, String)| {
    let (text, matrix) = input;
    let known = Known::names(&["multipaxos"]);
    let read = |_: &Path| Ok(matrix.clone());
    match Deployment::parse_with(&text, "fuzz.toml", Path::new(""), &known, &read) {
        Ok(deployment) => assert!(!deployment.nodes().is_empty()),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
});
