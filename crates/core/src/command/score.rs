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

impl fmt::Display for Score {
    /// The shortest text that reads back as the same number (at most 17 significant digits), in the form
    /// that Redis 7.2 and later give: `3`, `3.2`, `1e+20`, `1.5e-9`, `inf`, `-inf`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const EXACT_INTEGER: f64 = (1u64 << 52) as f64;
        if self.0.is_infinite() {
            return f.write_str(if self.0 > 0.0 { "inf" } else { "-inf" });
        }
        if self.0 == self.0.trunc() && self.0.abs() < EXACT_INTEGER {
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
