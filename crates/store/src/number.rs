//! Numbers in strings, as Redis reads and writes them.

use isochrone_core::Blob;
use isochrone_core::command::{Refusal, Score};

/// Reads a 64-bit decimal integer in its one canonical form: no plus, no blanks, no leading zeros.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut sum = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // Counted down, because the negative range is one larger.
        sum = sum.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(sum) } else { sum.checked_neg() }
}

/// The decimal text of an integer, in the one allocation of the result.
pub(crate) fn text(number: i64) -> Blob {
    let mut buffer = [0; 20];
    let mut at = buffer.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    Blob::new(&buffer[at..])
}

/// The sum of a number in text (`None`: zero) and an amount, as text.
///
/// Redis adds in 80 bits, so that 0.1 and 0.2 make 0.3, and keeps 17 decimals. Here numbers of at most 19 digits before the
/// point are added as decimals of 17 places, so that a small amount leaves all digits of the other one; larger ones in 64
/// bits.
///
/// # Errors
/// `refusal` where the text is no number; a sum that is not finite.
pub(crate) fn add_float(text: Option<&[u8]>, by: Score, refusal: Refusal) -> Result<Blob, Refusal> {
    let held = match text {
        Some(text) => Score::read(text).ok_or(refusal)?,
        None => Score::ZERO,
    };
    let sum = held.get() + by.get();
    if !sum.is_finite() {
        return Err(Refusal::NanOrInfinity);
    }
    // What is written with an exponent or in hexadecimal is the decimal of the double that it names.
    let written = text.and_then(|text| fixed(std::str::from_utf8(text).ok()?));
    let decimals = (|| {
        let held = written.or_else(|| fixed(&held.get().to_string()))?;
        held.checked_add(fixed(&by.get().to_string())?)
    })();
    Ok(Blob::from(decimals.map_or_else(|| sum.to_string(), unfixed)))
}

const DECIMALS: usize = 17;
const ONE: i128 = 10i128.pow(DECIMALS as u32);

/// A decimal number without exponent, times 10^17 and rounded; `None` where it is written otherwise or too large.
fn fixed(text: &str) -> Option<i128> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() > 19 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let (kept, rest) = fraction.split_at(fraction.len().min(DECIMALS));
    let up = rest.bytes().next().is_some_and(|digit| digit >= b'5');
    let fraction: i128 = format!("{kept:0<DECIMALS$}").parse().ok()?;
    let sum = whole * ONE + fraction + i128::from(up);
    Some(if negative { -sum } else { sum })
}

fn unfixed(number: i128) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let number = number.unsigned_abs();
    let (whole, fraction) = (number / ONE.unsigned_abs(), number % ONE.unsigned_abs());
    let fraction = format!("{fraction:0DECIMALS$}");
    match fraction.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_canonical_integers_are_integers() {
        for bad in
            ["", "-", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808", "-9223372036854775809"]
        {
            assert_eq!(integer(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(integer(b"99999999999999999999"), None);
    }

    #[test]
    fn floats_add_as_decimals() {
        let add = |text: &str, by: f64| {
            let by = Score::new(by).unwrap();
            add_float(Some(text.as_bytes()), by, Refusal::NotFloat)
                .map(|sum| String::from_utf8(sum.to_vec()).unwrap())
        };
        assert_eq!(add("0.1", 0.2).unwrap(), "0.3");
        assert_eq!(add("10.50", 0.1).unwrap(), "10.6");
        assert_eq!(add("10.6", -5.0).unwrap(), "5.6");
        assert_eq!(add("5.0e3", 2.0e2).unwrap(), "5200");
        assert_eq!(add("3", -3.0).unwrap(), "0");
        assert_eq!(add("-0.5", 0.25).unwrap(), "-0.25");
        assert_eq!(add("1e30", 1.0).unwrap(), "1000000000000000000000000000000");
        assert_eq!(add("-0X1.8p1", 0.5).unwrap(), "-2.5");
        assert_eq!(add("123456789012345678", 0.1).unwrap(), "123456789012345678.1");
        assert_eq!(add("1e17", 0.5).unwrap(), "100000000000000000.5");
        assert_eq!(add("1e-18", 3e-17).unwrap(), "0.00000000000000003");
        // What was added before stays, however little is added then.
        assert_eq!(add("1.00000000000000001", 1e-18).unwrap(), "1.00000000000000001");
        assert_eq!(add("1.00000000000000001", -6e-18).unwrap(), "1");
        assert_eq!(add("-0.123456789012345675", 0.0).unwrap(), "-0.12345678901234568");
        assert_eq!(add("0.999999999999999999", 0.0).unwrap(), "1");
        assert_eq!(add("1e19", 0.5).unwrap(), "10000000000000000000");
        assert_eq!(add("1e400", 1.0), Err(Refusal::NanOrInfinity));
        assert_eq!(add("abc", 1.0), Err(Refusal::NotFloat));
        assert_eq!(add("0x", 1.0), Err(Refusal::NotFloat));
        assert_eq!(add("1e308", 1.7e308), Err(Refusal::NanOrInfinity));
        assert_eq!(add("1", f64::INFINITY), Err(Refusal::NanOrInfinity));
    }

    proptest! {
        #[test]
        fn integers_survive_their_text(number: i64) {
            prop_assert_eq!(text(number), Blob::from(number.to_string()));
            prop_assert_eq!(integer(&text(number)), Some(number));
        }
    }
}
