//! Any bytes as a payload of RESTORE, as they are and with the right checksum: taken or refused, and what is taken is
//! dumped as it was.
#![no_main]

use isochrone_node::redis::fuzz_payload;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzz_payload(bytes));
