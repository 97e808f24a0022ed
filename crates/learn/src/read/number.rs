//! Numbers in text, fast where they are short.

/// Powers of ten that f64 holds exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// The number that `line` has at `at`, and where it ends: the nearest f64 to what is written, finite or not. Nothing
/// where there is none.
#[inline]
pub(super) fn number(line: &[u8], at: usize) -> Option<(f64, usize)> {
    let negative = line.get(at) == Some(&b'-');
    let from = at + usize::from(negative || line.get(at) == Some(&b'+'));
    let (mut mantissa, mut end) = (0_u64, from);
    while let Some(digit) = digit(line, end) {
        mantissa = mantissa.wrapping_mul(10).wrapping_add(digit);
        end += 1;
    }
    let mut digits = end - from;
    let mut decimals = 0;
    if line.get(end) == Some(&b'.') {
        end += 1;
        let point = end;
        while let Some(digit) = digit(line, end) {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(digit);
            end += 1;
        }
        decimals = end - point;
        digits += decimals;
    }
    // Both numbers are exact then, so that their quotient is rounded once, and correctly (Clinger).
    let over = line.get(end).is_some_and(|byte| !ends(*byte));
    if over || digits == 0 || digits > 19 || mantissa >= 1 << 53 || decimals > 22 {
        return slow(line, at);
    }
    let size = mantissa as f64 / TENS[decimals];
    Some((if negative { -size } else { size }, end))
}

#[inline(always)]
fn digit(line: &[u8], at: usize) -> Option<u64> {
    let digit = line.get(at)?.wrapping_sub(b'0');
    (digit < 10).then_some(u64::from(digit))
}

/// Whether a number ends before this byte.
#[inline(always)]
fn ends(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'#' | b':' | b'|' | b',')
}

#[cold]
fn slow(line: &[u8], at: usize) -> Option<(f64, usize)> {
    let length = line[at..].iter().position(|byte| ends(*byte)).unwrap_or(line.len() - at);
    let text = std::str::from_utf8(&line[at..at + length]).ok()?;
    Some((text.parse().ok()?, at + length))
}

/// The whole number at `at`, if it fits, and where its digits end.
#[inline(always)]
pub(super) fn index(line: &[u8], at: usize) -> Option<(u32, usize)> {
    let (mut value, mut end) = (0_u64, at);
    while let Some(digit) = digit(line, end) {
        value = value * 10 + digit;
        if value > u64::from(u32::MAX) {
            return None;
        }
        end += 1;
    }
    (end > at).then_some((value as u32, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Option<f64> {
        number(text.as_bytes(), 0).filter(|(_, end)| *end == text.len()).map(|(value, _)| value)
    }

    proptest! {
        #[test]
        fn every_double_is_read_back(bits: u64) {
            let value = f64::from_bits(bits);
            for text in [format!("{value}"), format!("{value:e}"), format!("{value:.6}")] {
                let wanted = text.parse::<f64>().ok();
                prop_assert_eq!(read(&text).map(f64::to_bits), wanted.map(f64::to_bits), "{}", text);
            }
        }

        #[test]
        fn short_decimals_are_the_nearest(mantissa in 0_u64..=u64::MAX, decimals in 0_usize..25) {
            let mut text = format!("{mantissa:030}");
            text.insert(30 - decimals.min(29), '.');
            let short = text.trim_start_matches('0');
            for text in [&text[..], short] {
                prop_assert_eq!(read(text), text.parse::<f64>().ok(), "{}", text);
            }
        }
    }

    #[test]
    fn what_is_a_number_and_what_is_not() {
        for (text, value) in
            [("1", 1.0), ("+1", 1.0), ("-1", -1.0), ("5.", 5.0), (".5", 0.5), ("-0.25e2", -25.0)]
        {
            assert_eq!(read(text), Some(value), "{text}");
        }
        assert!(read("-0").is_some_and(|zero| zero.is_sign_negative()));
        for text in ["", "-", ".", "x", "1x", "0x10", "1e", "--1", "1.2.3"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(number(b"1:0.5 7", 2), Some((0.5, 5)));
        assert_eq!(index(b"4294967295:", 0), Some((u32::MAX, 10)));
        assert_eq!(index(b"4294967296:", 0), None);
        assert_eq!(index(b":", 0), None);
    }
}
