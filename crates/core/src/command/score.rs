//! Floating-point numbers that can be ordered, hashed and replicated.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use thiserror::Error;

/// A double that is a number: the score of a member, or a floating-point amount. Negative zero is taken
/// for zero, so that order, equality and hash agree; infinities are allowed.
#[derive(Copy, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Score(f64);

/// The one value a [`Score`] cannot hold.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Error)]
#[error("a score cannot be NaN")]
pub struct NotANumber;

impl Score {
    /// Zero.
    pub const ZERO: Score = Score(0.0);
    /// Below every finite score.
    pub const MIN: Score = Score(f64::NEG_INFINITY);
    /// Above every finite score.
    pub const MAX: Score = Score(f64::INFINITY);

    /// This number, or `None` for NaN.
    pub fn new(value: f64) -> Option<Score> {
        // Adding zero turns negative zero into zero and changes nothing else.
        (!value.is_nan()).then_some(Score(value + 0.0))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Reads a number as Redis does: decimal or exponential, `inf`, `+inf`, `-inf` and `infinity` in any
    /// case; no blanks, no NaN.
    pub fn parse(text: &[u8]) -> Option<Score> {
        let text = std::str::from_utf8(text).ok()?;
        // What `f64::from_str` takes beside numbers, infinities and NaN: nothing.
        Score::new(text.parse().ok()?)
    }

    /// The same, also in hexadecimal (`0x1.8p3`), as C reads numbers.
    pub fn read(text: &[u8]) -> Option<Score> {
        let (negative, digits) = match text {
            [sign @ (b'+' | b'-'), digits @ ..] => (*sign == b'-', digits),
            digits => (false, digits),
        };
        match digits {
            [b'0', b'x' | b'X', digits @ ..] => {
                let number = hexadecimal(digits)?;
                Score::new(if negative { -number } else { number })
            }
            _ => Score::parse(text),
        }
    }

    /// The same where infinity is meant, and so is zero: a number that is too large or too small for a double is none, as in
    /// Redis.
    pub fn read_meant(text: &[u8]) -> Option<Score> {
        let zero = || {
            let hexadecimal = text.iter().any(|byte| matches!(byte, b'x' | b'X'));
            let power: &[u8] = if hexadecimal { b"pP" } else { b"eE" };
            let end = text.iter().position(|byte| power.contains(byte)).unwrap_or(text.len());
            !text[..end].iter().any(|byte| byte.is_ascii_hexdigit() && *byte != b'0')
        };
        Score::read(text).filter(|score| match score.get() {
            0.0 => zero(),
            number => number.is_finite() || Score::names_infinity(text),
        })
    }

    /// Whether what was read as infinity says so, and is no number that is too large.
    pub fn names_infinity(text: &[u8]) -> bool {
        text.iter().any(|byte| byte.eq_ignore_ascii_case(&b'i'))
    }
}

/// What follows `0x`: digits with or without a point, and maybe a power of two.
fn hexadecimal(text: &[u8]) -> Option<f64> {
    let (digits, power) = match text.iter().position(|byte| matches!(byte, b'p' | b'P')) {
        None => (text, 0),
        Some(at) => (&text[..at], power(&text[at + 1..])?),
    };
    let (mut number, mut shift, mut behind, mut any) = (0u64, 0i64, false, false);
    for byte in digits {
        if *byte == b'.' && !behind {
            behind = true;
            continue;
        }
        let digit = u64::from(char::from(*byte).to_digit(16)?);
        any = true;
        if number >> 60 == 0 {
            number = number << 4 | digit;
            shift -= 4 * i64::from(behind);
        } else {
            // Beyond what a double keeps: only whether there is anything decides how it is rounded.
            number |= u64::from(digit != 0);
            shift += 4 * i64::from(!behind);
        }
    }
    // In steps that a double has. What is tiny is rounded in one of them, and then only goes on to zero.
    let mut left = (power + shift).clamp(-2_400, 2_400) as i32;
    let mut result = number as f64;
    while left != 0 {
        let step = left.clamp(-1_000, 1_000);
        result *= 2f64.powi(step);
        left -= step;
    }
    any.then_some(result)
}

/// A power of two in decimal; one of more digits than matter is as good as the largest.
fn power(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [sign @ (b'+' | b'-'), digits @ ..] => (*sign == b'-', digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut sum = 0i64;
    for byte in digits {
        sum = (sum * 10 + i64::from(char::from(*byte).to_digit(10)?)).min(1 << 40);
    }
    Some(if negative { -sum } else { sum })
}

impl Eq for Score {}

impl Ord for Score {
    fn cmp(&self, other: &Score) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Score) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Score {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl TryFrom<f64> for Score {
    type Error = NotANumber;
    fn try_from(value: f64) -> Result<Score, NotANumber> {
        Score::new(value).ok_or(NotANumber)
    }
}

impl From<Score> for f64 {
    fn from(score: Score) -> f64 {
        score.0
    }
}

/// A number as Redis writes it for people: with 17 decimals at most, and none that say nothing.
pub fn plain(value: f64) -> String {
    let text = format!("{value:.17}");
    // With 17 decimals there is a point.
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

impl fmt::Display for Score {
    /// The shortest text that reads back as the same number (at most 17 significant digits), in the form
    /// that Redis 7.2 and later give: `3`, `3.2`, `1e+20`, `1.5e-9`, `inf`, `-inf`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const EXACT_INTEGER: f64 = (i64::MAX / 2) as f64;
        if self.0.is_infinite() {
            return f.write_str(if self.0 > 0.0 { "inf" } else { "-inf" });
        }
        if self.0 == self.0.trunc() && self.0.abs() <= EXACT_INTEGER {
            return write!(f, "{}", self.0 as i64);
        }
        // `{:e}` gives the shortest digits: d.ddde-7. They are laid out anew below.
        let text = format!("{:e}", self.0.abs());
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let shift = exponent - (digits.len() as i32 - 1);
        if self.0 < 0.0 {
            f.write_str("-")?;
        }
        if shift >= 0 && exponent < digits.len() as i32 + 7 {
            return write!(f, "{digits}{}", "0".repeat(shift as usize));
        }
        if shift < 0 && (shift > -7 || exponent.abs() < 4) {
            return if exponent >= 0 {
                let (whole, fraction) = digits.split_at(exponent as usize + 1);
                write!(f, "{whole}.{fraction}")
            } else {
                write!(f, "0.{}{digits}", "0".repeat((-exponent - 1) as usize))
            };
        }
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(f, "{first}{point}{rest}e{sign}{}", exponent.abs())
    }
}

impl fmt::Debug for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
