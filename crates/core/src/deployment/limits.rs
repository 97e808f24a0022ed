//! The named limits of a node: name, unit, default, range and reason, in one table.

use super::draft::{Refusal, Section, as_bytes, as_integer, as_span, integer_of};
use super::error::Mistakes;
use super::values::{show_bytes, show_span};
use crate::time::Span;

macro_rules! limits {
    ($($(#[$doc:meta])* $limit:ident = $name:literal, $unit:ident, $default:expr, $least:expr, $most:expr;)*) => {
        /// What a node bounds. Values are bytes, nanoseconds or counts, by their [`Unit`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Limit {
            $($(#[$doc])* $limit,)*
        }

        /// Every limit there is.
        pub const LIMITS: &[LimitRule] = &[
            $(LimitRule {
                limit: Limit::$limit,
                name: $name,
                unit: Unit::$unit,
                default: $default,
                least: $least,
                most: $most,
            },)*
        ];
    };
}

/// What must have room in a frame between nodes beside the longest argument of a command.
const BESIDE_BULK: u64 = 64 * MIB;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// What `memory` may be, beside 0.
const MEMORY: std::ops::RangeInclusive<u64> = 16 * MIB..=16 * 1024 * GIB;

limits! {
    /// Bytes a client may send before it has logged in: enough for HELLO, AUTH and their names.
    LoginInput = "login_input", Bytes, 16 * KIB, KIB, MIB;
    /// Bytes that may wait to be sent to a client that has not logged in.
    LoginOutput = "login_output", Bytes, 16 * KIB, KIB, MIB;
    /// How long a client may take to log in.
    LoginTime = "login_time", Time, 10 * SECOND, SECOND, 600 * SECOND;
    /// Commands a client may send before it has logged in.
    LoginCommands = "login_commands", Count, 3, 1, 100;
    /// Connections of clients to one node.
    Clients = "clients", Count, 10_000, 1, 1_000_000;
    /// The longest single argument of a command.
    Bulk = "bulk", Bytes, 64 * MIB, KIB, 512 * MIB;
    /// Arguments of one command.
    Elements = "elements", Count, 1_000_000, 16, 16_000_000;
    /// Bytes that may wait to be sent to one client before nothing more is read from it.
    Output = "output", Bytes, 64 * MIB, 64 * KIB, 4 * GIB;
    /// Commands of one connection that may be on their way at once; more are read when an answer has left.
    Pipeline = "pipeline", Count, 1_024, 1, 1_000_000;
    /// Commands a node carries at once for all its clients; more are refused.
    InFlight = "in_flight", Count, 65_536, 1, 16_000_000;
    /// Bytes that may wait for one peer; what comes then is dropped, as a network might.
    PeerQueue = "peer_queue", Bytes, 64 * MIB, 64 * KIB, 4 * GIB;
    /// The longest frame between nodes; it holds a batch of commands. At least 64 MiB above `bulk`, and that much by itself.
    PeerFrame = "peer_frame", Bytes, 128 * MIB, 128 * MIB, GIB;
    /// Bytes of the journal that may wait to be synced; the node then stops reading from clients.
    JournalQueue = "journal_queue", Bytes, 256 * MIB, MIB, 4 * GIB;
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, written `"64MiB"`.
    Bytes,
    /// Nanoseconds, written `"10s"`.
    Time,
    /// A plain number.
    Count,
}

impl Unit {
    /// A value of this unit as it is written in a deployment file, without quotes.
    pub fn show(self, value: u64) -> String {
        match self {
            Self::Bytes => show_bytes(value),
            Self::Time => show_span(Span::from_nanos(value)),
            Self::Count => value.to_string(),
        }
    }
}

/// The rule of one limit.
#[derive(Clone, Copy, Debug)]
pub struct LimitRule {
    /// Which limit.
    pub limit: Limit,
    /// Its key under `[limits]`, and its label in metrics.
    pub name: &'static str,
    /// What its values count.
    pub unit: Unit,
    /// Its value when nothing is said.
    pub default: u64,
    /// The least value allowed.
    pub least: u64,
    /// The greatest value allowed.
    pub most: u64,
}

/// A value for every limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `values[limit as usize]`; the order of [`LIMITS`] is that of the enum.
    values: Vec<u64>,
    memory: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { values: LIMITS.iter().map(|rule| rule.default).collect(), memory: None }
    }
}

impl Limits {
    /// The value of a limit that counts or measures bytes.
    ///
    /// # Panics
    /// If the limit is a time: ask [`Limits::span`].
    pub fn get(&self, limit: Limit) -> u64 {
        assert!(LIMITS[limit as usize].unit != Unit::Time, "{limit:?} is a time");
        self.values[limit as usize]
    }

    /// The value of a limit of time.
    ///
    /// # Panics
    /// If the limit is none: ask [`Limits::get`].
    pub fn span(&self, limit: Limit) -> Span {
        assert!(LIMITS[limit as usize].unit == Unit::Time, "{limit:?} is not a time");
        Span::from_nanos(self.values[limit as usize])
    }

    /// Bytes of memory above which a process takes nothing more that makes data grow; 0 where it is to have no such limit, nothing
    /// where the file does not say. The default is a share of what the process may have, so it is none of [`LIMITS`].
    pub fn memory(&self) -> Option<u64> {
        self.memory
    }

    pub(super) fn parse(section: Option<Section<'_>>, mistakes: &mut Mistakes) -> Self {
        let mut limits = Self::default();
        let Some(mut section) = section else { return limits };
        let mut frame = None;
        for rule in LIMITS {
            let found = section.read(rule.name, mistakes, |value| {
                let amount = match rule.unit {
                    Unit::Bytes => as_bytes(value.as_str())?,
                    Unit::Time => as_span(value.as_str())?.as_nanos(),
                    Unit::Count => return as_integer(integer_of(value), rule.least, rule.most),
                };
                if (rule.least..=rule.most).contains(&amount) {
                    return Ok(amount);
                }
                let (least, most) = (rule.unit.show(rule.least), rule.unit.show(rule.most));
                Err(Refusal::new("is out of range", format!("use {least:?} to {most:?}")))
            });
            if let Some(found) = found {
                limits.values[rule.limit as usize] = found.value;
                if rule.limit == Limit::PeerFrame {
                    frame = Some(found);
                }
            }
        }
        let memory = section.read("memory", mistakes, |value| {
            let right = || {
                let [least, most] = [MEMORY.start(), MEMORY.end()].map(|bound| Unit::Bytes.show(*bound));
                format!("use {least:?} to {most:?}, or 0 for none")
            };
            match value.as_str() {
                None if integer_of(value) == Some(0) => Ok(0),
                None => Err(Refusal::new("is not a size", right())),
                text => match as_bytes(text)? {
                    bytes if bytes == 0 || MEMORY.contains(&bytes) => Ok(bytes),
                    _ => Err(Refusal::new("is out of range", right())),
                },
            }
        });
        limits.memory = memory.map(|memory| memory.value);
        // A new leader may be told the longest command together with a whole window of others.
        let least = limits.get(Limit::Bulk) + BESIDE_BULK;
        match frame {
            Some(frame) if frame.value < least => {
                let (is, least) = (Unit::Bytes.show(frame.value), Unit::Bytes.show(least));
                let wrong = format!("peer_frame = {is:?} has no room for bulk, and 64MiB beside it");
                section.refuse(mistakes, frame.line, wrong, format!("use {least:?} or more"));
            }
            Some(_) => {}
            None => {
                let frame = &mut limits.values[Limit::PeerFrame as usize];
                *frame = least.max(*frame);
            }
        }
        section.finish(mistakes);
        limits
    }
}
