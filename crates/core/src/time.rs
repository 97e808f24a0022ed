//! Time as integers of nanoseconds with the meaning in the type: [`Instant`] never goes back,
//! [`Stamp`] is a wall clock and may, [`Span`] is a length.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// A length of time, nanoseconds.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Serialize, Deserialize)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than anything.
    pub const MAX: Span = Span(u64::MAX);

    /// A span of this many nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Span {
        Span(nanos)
    }

    /// A span of this many microseconds.
    pub const fn from_micros(micros: u64) -> Span {
        Span(micros * 1_000)
    }

    /// A span of this many milliseconds.
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis * 1_000_000)
    }

    /// A span of this many seconds.
    pub const fn from_secs(seconds: u64) -> Span {
        Span(seconds * 1_000_000_000)
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Milliseconds, for people.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds, for metrics.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// This span less another, or zero where the other is longer.
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, factor: u64) -> Span {
        Span(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for Span {
    type Output = Span;
    fn div(self, divisor: u64) -> Span {
        Span(self.0 / divisor)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            nanos if nanos < 1_000 => write!(f, "{nanos}ns"),
            nanos if nanos < 1_000_000 => write!(f, "{}us", trim(nanos as f64 / 1e3)),
            nanos if nanos < 1_000_000_000 => write!(f, "{}ms", trim(nanos as f64 / 1e6)),
            nanos => write!(f, "{}s", trim(nanos as f64 / 1e9)),
        }
    }
}

/// Three decimals at most, none that say nothing.
fn trim(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! point {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Serialize, Deserialize)]
        pub struct $name(u64);

        impl $name {
            /// The clock's zero.
            pub const ZERO: $name = $name(0);
            /// Later than anything.
            pub const MAX: $name = $name(u64::MAX);

            /// The point this many nanoseconds after the clock's zero.
            pub const fn from_nanos(nanos: u64) -> $name {
                $name(nanos)
            }

            /// Nanoseconds since the clock's zero.
            pub const fn as_nanos(self) -> u64 {
                self.0
            }

            /// Milliseconds since the clock's zero, rounded down.
            pub const fn as_millis(self) -> u64 {
                self.0 / 1_000_000
            }

            /// How long after `earlier` this is; zero where it is not after it.
            pub const fn since(self, earlier: $name) -> Span {
                Span(self.0.saturating_sub(earlier.0))
            }
        }

        impl Add<Span> for $name {
            type Output = $name;
            fn add(self, span: Span) -> $name {
                $name(self.0.saturating_add(span.0))
            }
        }

        impl Sub<Span> for $name {
            type Output = $name;
            fn sub(self, span: Span) -> $name {
                $name(self.0.saturating_sub(span.0))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:.3}ms", self.0 as f64 / 1e6)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

point!(
    /// A reading of the steady clock: it never goes back, its rate is within `drift_max` of true
    /// time, and it means nothing after a restart or on another node. Timers and leases use it.
    Instant
);
point!(
    /// A reading of the wall clock, nanoseconds since 1970: it may be wrong, jump or stand still.
    /// Expiry deadlines and order stamps use it; safety never rests on it.
    Stamp
);
