//! Whatever bytes a disk gives back, decoding a journal ends in entries or in an error.
#![no_main]

use isochrone_node::journal::format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, Vec<u8>)| {
    let (salt, bytes) = input;
    let mut rest = &bytes[..];
    while let Ok((_, length)) = format::decode_entry(rest) {
        assert!(length > 0 && length <= rest.len());
        rest = &rest[length..];
    }
    if let Ok((_, body, length)) = format::decode_frame(&bytes, salt) {
        assert!(body.len() <= length && length <= bytes.len());
    }
});
