//! Arguments into values.

use super::complaint::Complaint;
use super::request::{Args, integer};
use super::spec::Given;
use isochrone_core::command::{Expiry, Keys, Pairs, Score};
use isochrone_core::glob::PATTERN_MAX;
use isochrone_core::{Blob, Stamp};

/// A key, member, field or value.
pub(crate) fn blob(bytes: &[u8]) -> Blob {
    Blob::new(bytes)
}

/// All strings from `first` on.
pub(crate) fn blobs(args: Args<'_>, first: usize) -> Keys {
    args.from(first).iter().map(Blob::new).collect()
}

/// All strings from `first` on, two by two. The caller has checked that there is an even number.
pub(crate) fn pairs(args: Args<'_>, first: usize) -> Pairs {
    let count = args.len().saturating_sub(first) / 2;
    (0..count).map(|pair| (blob(args.at(first + 2 * pair)), blob(args.at(first + 2 * pair + 1)))).collect()
}

/// An integer of 64 bits.
pub(crate) fn number(text: &[u8]) -> Result<i64, Complaint> {
    integer(text).ok_or(Complaint::NotInteger)
}

/// An integer that is zero or more, else this error.
pub(crate) fn natural(text: &[u8], error: &'static str) -> Result<u64, Complaint> {
    let number = integer(text).and_then(|number| u64::try_from(number).ok());
    number.ok_or(Complaint::text(error))
}

/// An integer above zero, else this error.
pub(crate) fn positive(text: &[u8], error: &'static str) -> Result<u64, Complaint> {
    natural(text, error).and_then(|number| match number {
        0 => Err(Complaint::text(error)),
        number => Ok(number),
    })
}

/// A number with a fraction that Redis reads more exactly than a double: too small for one is 0.
pub(crate) fn exact(text: &[u8]) -> Option<Score> {
    Score::read(text).filter(|score| score.get().is_finite() || Score::names_infinity(text))
}

/// A number with a fraction.
pub(crate) fn float(text: &[u8]) -> Result<Score, Complaint> {
    Score::read_meant(text).ok_or(Complaint::NotFloat)
}

/// The bound of a range of scores, which Redis reads more generously: blanks before it, what ends at a zero byte, nothing at
/// all, which is 0, and what is too large or too small for a double.
pub(crate) fn loose_score(text: &[u8]) -> Option<Score> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(Score::ZERO);
    }
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    Score::read(&text[text.iter().position(|byte| !blank(byte))?..])
}

/// Whether an argument is this word, in any case. `word` is in capitals.
pub(crate) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// How an expiry is written.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Time {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Millis,
    /// Seconds since 1970.
    AtSeconds,
    /// Milliseconds since 1970.
    AtMillis,
}

impl Time {
    /// The option of this name.
    pub(crate) fn option(arg: &[u8]) -> Option<Time> {
        [("EX", Time::Seconds), ("PX", Time::Millis), ("EXAT", Time::AtSeconds), ("PXAT", Time::AtMillis)]
            .into_iter()
            .find(|(word, _)| is(arg, word))
            .map(|(_, time)| time)
    }

    /// The deadline this many units from now or from 1970; zero where it lies before 1970, and the last one that there is, in
    /// the year 2554, beyond that. `None` for what is no 64-bit number of milliseconds, in which Redis counts.
    pub(crate) fn deadline(self, units: i64, stamp: Stamp) -> Option<Stamp> {
        let millis = match self {
            Time::Seconds | Time::AtSeconds => units.checked_mul(1000)?,
            Time::Millis | Time::AtMillis => units,
        };
        let from = match self {
            // Whoever asks is told milliseconds, so no deadline lies between two.
            Time::Seconds | Time::Millis => stamp.as_nanos() / 1_000_000 * 1_000_000,
            Time::AtSeconds | Time::AtMillis => 0,
        };
        // A stamp's milliseconds are far from the end of 64 bits.
        millis.checked_add((from / 1_000_000) as i64)?;
        let nanos = (i128::from(from) + i128::from(millis) * 1_000_000).max(0);
        // The very last stamp is that of keys without a deadline.
        Some(Stamp::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).min(u64::MAX - 1)))
    }
}

/// An expiry that must lie ahead: of SET, SETEX, GETEX.
pub(crate) fn expiry(
    time: Time,
    text: &[u8],
    given: &Given<'_>,
    command: &'static str,
) -> Result<Expiry, Complaint> {
    let units = number(text)?;
    if units <= 0 {
        return Err(Complaint::Expire(command));
    }
    time.deadline(units, given.stamp).map(Expiry::At).ok_or(Complaint::Expire(command))
}

/// How many keys follow, and the keys: of commands like ZUNION. `at` is the place of the number. Also the
/// place behind the keys.
pub(crate) fn counted_keys(
    args: Args<'_>,
    at: usize,
    error: &'static str,
) -> Result<(Vec<Blob>, usize), Complaint> {
    let count = positive(args.at(at), error)?;
    let behind = usize::try_from(count).ok().and_then(|count| count.checked_add(at + 1));
    match behind.filter(|behind| *behind <= args.len()) {
        Some(behind) => Ok(((at + 1..behind).map(|place| blob(args.at(place))).collect(), behind)),
        None => Err(Complaint::Syntax),
    }
}

/// A pattern, no longer than a node is willing to try on every key.
pub(crate) fn pattern(text: &[u8]) -> Result<&[u8], Complaint> {
    match text.len() {
        0..=PATTERN_MAX => Ok(text),
        _ => Err(Complaint::text(format!("ERR the pattern is longer than {PATTERN_MAX} bytes"))),
    }
}

/// An unsigned number of 64 bits: digits, also such as 007.
pub(crate) fn unsigned(digits: &[u8]) -> Option<u64> {
    let digits = Some(digits).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Options of SCAN and its kin.
#[derive(Debug)]
pub(crate) struct ScanOptions {
    pub(crate) cursor: u64,
    pub(crate) count: u64,
    pub(crate) pattern: Option<Blob>,
    pub(crate) kind: Option<Vec<u8>>,
}

/// `cursor [MATCH pattern] [COUNT count]`, the cursor at place `at`; where `typed` also `[TYPE type]`.
pub(crate) fn scan_options(args: Args<'_>, at: usize, typed: bool) -> Result<ScanOptions, Complaint> {
    // As in Redis, a cursor is any unsigned number, and one that is negative is what it is modulo 2^64.
    let cursor = match args.at(at) {
        [b'-', digits @ ..] => unsigned(digits).map(u64::wrapping_neg),
        digits => unsigned(digits.strip_prefix(b"+").unwrap_or(digits)),
    };
    let cursor = cursor.ok_or(Complaint::text("ERR invalid cursor"))?;
    let mut options = ScanOptions { cursor, count: 10, pattern: None, kind: None };
    let mut at = at + 1;
    while at < args.len() {
        if at + 1 == args.len() {
            return Err(Complaint::Syntax);
        }
        let value = args.at(at + 1);
        if is(args.at(at), "MATCH") {
            // A pattern that fits everything costs nothing that way.
            let value = pattern(value)?;
            options.pattern = (value != b"*").then(|| blob(value));
        } else if is(args.at(at), "COUNT") {
            let count = number(value)?;
            if count < 1 {
                return Err(Complaint::Syntax);
            }
            options.count = count.unsigned_abs();
        } else if typed && is(args.at(at), "TYPE") {
            options.kind = Some(value.to_ascii_lowercase());
        } else {
            return Err(Complaint::Syntax);
        }
        at += 2;
    }
    Ok(options)
}
