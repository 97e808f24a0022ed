//! A peer may send anything: frames are parsed or refused, within the limit of their size.
#![no_main]

use isochrone_node::transport::frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((_, length))) = frame::parse(rest, 1 << 20) {
        assert!(length > 0 && length <= rest.len());
        rest = &rest[length..];
    }
});
