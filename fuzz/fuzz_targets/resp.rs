//! Any bytes from a client, before and after login: replies or an error, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| isochrone_node::redis::fuzz_resp(bytes));
