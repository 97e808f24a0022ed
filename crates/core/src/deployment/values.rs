//! The small languages inside a value: durations, sizes, decimal numbers, addresses, and near misses of a name.

use std::fmt;

use crate::time::Span;

/// Where a socket listens or is reached: a host name or IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// An address of this machine, for clusters that run on one.
    pub fn loopback(port: u16) -> Self {
        Self { host: "127.0.0.1".to_owned(), port }
    }

    /// Reads `host:port`, `1.2.3.4:port` or `[v6]:port`.
    ///
    /// # Errors
    /// A sentence about what is wrong: no port, port 0, an empty or impossible host.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (host, port) = text.rsplit_once(':').ok_or("has no port")?;
        let host = match host.strip_prefix('[') {
            Some(inner) => {
                let inner = inner.strip_suffix(']').ok_or("has a bracket that does not close")?;
                inner.parse::<std::net::Ipv6Addr>().map_err(|_| "is not an IPv6 address in brackets")?;
                inner
            }
            None => host,
        };
        if host.is_empty() {
            return Err("has no host".to_owned());
        }
        let bare_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
        if !bare_v6 && !host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')) {
            return Err("has a host with characters that no host name has".to_owned());
        }
        if bare_v6 && !text.starts_with('[') {
            return Err("has an IPv6 address without brackets".to_owned());
        }
        let port = port.parse::<u16>().map_err(|_| "has a port that is not a number from 1 to 65535")?;
        if port == 0 {
            return Err("has port 0, which other nodes and clients could not find".to_owned());
        }
        Ok(Self { host: host.to_owned(), port })
    }

    /// Host name or IP address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port, never 0.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether only this machine can reach it, so that nothing has to be encrypted.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Why a decimal number was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberError {
    Malformed,
    Negative,
    /// More decimals than the unit below can hold.
    TooFine,
    TooLarge,
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "is not a number in plain decimals",
            Self::Negative => "is negative",
            Self::TooFine => "has more decimals than can be kept exactly",
            Self::TooLarge => "is too large",
        })
    }
}

/// A decimal number times `unit`, exactly: `scaled("4.4", 1_000_000)` is 4,400,000.
///
/// Floating point would round; a delay that is read twice must be the same nanosecond everywhere.
pub(crate) fn scaled(text: &str, unit: u64) -> Result<u64, NumberError> {
    let digits = match text.strip_prefix('-') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
            return Err(NumberError::Negative);
        }
        _ => text,
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return Err(NumberError::Malformed);
    }
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    if whole.len() > 20 {
        return Err(NumberError::TooLarge);
    }
    if fraction.len() > 15 {
        return Err(NumberError::TooFine);
    }
    let number = |s: &str| s.bytes().fold(0_u128, |sum, b| sum * 10 + u128::from(b - b'0'));
    let below_one = number(fraction) * u128::from(unit);
    // At most 15 decimals, so this power fits.
    let divisor = 10_u128.pow(fraction.len() as u32);
    if !below_one.is_multiple_of(divisor) {
        return Err(NumberError::TooFine);
    }
    let total = number(whole) * u128::from(unit) + below_one / divisor;
    u64::try_from(total).map_err(|_| NumberError::TooLarge)
}

const SPAN_UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

const SIZE_UNITS: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// A duration with its unit: `30s`, `1.5ms`, `250us`.
pub fn parse_span(text: &str) -> Result<Span, String> {
    with_unit(text, &SPAN_UNITS, "ns, us, ms, s, m or h").map(Span::from_nanos)
}

/// A size in bytes with its unit: `64MiB`, `512B`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    with_unit(text, &SIZE_UNITS, "B, KiB, MiB or GiB")
}

fn with_unit(text: &str, units: &[(&str, u64)], names: &str) -> Result<u64, String> {
    let end = text.find(|c: char| c.is_alphabetic()).ok_or_else(|| format!("has no unit ({names})"))?;
    let (number, unit) = text.split_at(end);
    let (_, factor) = units
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| format!("has the unit {unit:?}, which is none of {names}"))?;
    scaled(number.trim_end(), *factor).map_err(|error| error.to_string())
}

/// A duration as a person would write it, in the largest unit that keeps it whole or short.
pub(crate) fn show_span(span: Span) -> String {
    let nanos = span.as_nanos();
    for (unit, factor) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if nanos >= factor && nanos.is_multiple_of(factor) {
            return format!("{}{unit}", nanos / factor);
        }
    }
    format!("{nanos}ns")
}

/// A size as a person would write it.
pub(crate) fn show_bytes(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

/// The candidate that `name` was probably meant to be, if one is near enough.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let tolerance = (name.chars().count() / 3).max(1);
    let wanted = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (distance(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(far, _)| *far <= tolerance)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove, replace or swap with a neighbour to make one word the other.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// `"a", "b" or "c"`, for messages that list what would be right.
pub(crate) fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("{name:?}")).collect();
    match quoted.split_last() {
        None => "nothing".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

/// A hint at the name that was probably meant, or else the whole choice.
pub(crate) fn suggest<'a>(name: &str, choice: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(name, choice.clone()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("use {}", one_of(choice)),
    }
}
