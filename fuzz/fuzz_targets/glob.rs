//! Any pattern against any text: both ways of reading it say the same, which is what matching by going back says, where
//! that ends.
#![no_main]

use isochrone_core::glob::{Glob, PATTERN_MAX, fits};
use libfuzzer_sys::fuzz_target;

/// As Redis does it, by going back; nothing once it has taken so many steps.
fn dumb(pattern: &[u8], text: &[u8], steps: &mut u32) -> Option<bool> {
    *steps = steps.checked_sub(1)?;
    let Some((first, rest)) = pattern.split_first() else { return Some(text.is_empty()) };
    match (first, text.split_first()) {
        (b'*', None) => dumb(rest, text, steps),
        (b'*', Some((_, tail))) => Some(dumb(rest, text, steps)? || dumb(pattern, tail, steps)?),
        (_, None) => Some(false),
        (b'?', Some((_, tail))) => dumb(rest, tail, steps),
        (byte, Some((found, tail))) => Some(byte == found && dumb(rest, tail, steps)?),
    }
}

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (pattern, text) = input;
    if pattern.len() > PATTERN_MAX {
        return;
    }
    let found = fits(&pattern, &text);
    assert_eq!(Glob::new(&pattern).matches(&text), found);
    // Classes and escapes are compared by the two ways alone.
    if !pattern.iter().any(|byte| b"[\\".contains(byte))
        && let Some(expected) = dumb(&pattern, &text, &mut 10_000)
    {
        assert_eq!(found, expected);
    }
});
