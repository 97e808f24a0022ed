//! Commands that look at all keys: `SCAN`, `KEYS`, `DBSIZE`. They are no transactions and see no moment: the partitions are
//! asked page by page which keys they have as of then, each what was acknowledged before.
//!
//! A key that is there all the time is found whatever else happens, but for those that move to another partition. So what
//! the directory says is read before and behind: where it has changed, the walk begins anew, and while keys are on their way
//! it waits. The cursor of a scan says under which state of the directory it began; one that comes with another begins
//! anew too, and meets some keys twice.

use super::Refusal;
use crate::directory::{Known, Route, located};
use crate::listing::{AsOf, PAGE, Query, holds};
use crate::request::{Outcome, Read, Request};
use isochrone_core::command::{Command, Kind, Operation, Response};
use isochrone_core::glob::Glob;
use isochrone_core::{Blob, Instant, PartitionId, Span};
use isochrone_store::versions::Versions;
use std::hash::{Hash, Hasher};

/// One such command.
#[derive(Clone, Hash, Debug)]
pub(super) struct Whole {
    command: Command,
    partitions: u16,
    pub(super) since: Instant,
    /// The ticket under which the client inside was asked last; its answer is waited for.
    pub(super) inner: Option<u64>,
    stage: Stage,
    /// The state of the directory under which it goes on.
    epoch: Option<u16>,
    /// Where the next page begins.
    at: Spot,
    /// How many entries a page looks at.
    most: u32,
    found: Vec<Blob>,
    /// Of what is listed, what must be read to know whether it is there.
    open: Vec<Blob>,
    /// Where it goes on behind that; nothing behind the last.
    next: Option<Spot>,
    /// Keys are on their way.
    moving: bool,
}

#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
enum Stage {
    /// The directory is read, before the first page.
    Before,
    /// A page is listed.
    List,
    /// Keys that transactions under way may have written are read.
    Read,
    /// The directory is read, behind the last page.
    After,
}

/// A place in the order in which keys are listed.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
struct Spot {
    partition: u16,
    place: u64,
}

/// What is to be done next.
pub(super) enum Then {
    /// The client inside is asked.
    Ask(Request),
    /// The same is asked again after a pause.
    Pause,
    /// It is over.
    Reply(Response),
}

/// What clients keep fits a double.
const CURSOR_BITS: u32 = 53;
const EPOCH_BITS: u32 = 16;
/// Keys that are read together.
const READ: usize = 64;

impl Whole {
    /// The walk that a command asks for; nothing where it is another one. The keyspace has so many partitions.
    pub(super) fn of(command: &Command, partitions: u16, since: Instant) -> Option<Whole> {
        let (epoch, at, most) = match &command.operation {
            Operation::Scan { cursor: 0, count, .. } => (None, Spot::default(), *count),
            Operation::Scan { cursor, count, .. } => {
                let (epoch, at) = parse(*cursor, partitions);
                (Some(epoch), at, *count)
            }
            Operation::Keys { .. } | Operation::DbSize => (None, Spot::default(), u64::from(PAGE)),
            _ => return None,
        };
        let most = most.clamp(1, u64::from(PAGE)) as u32;
        let (command, open) = (command.clone(), Vec::new());
        let stage = if partitions > 1 && epoch.is_none() { Stage::Before } else { Stage::List };
        let (found, next, inner, moving) = (Vec::new(), None, None, false);
        Some(Whole { command, partitions, since, inner, stage, epoch, at, most, found, open, next, moving })
    }

    /// What is asked now.
    pub(super) fn ask(&mut self) -> Then {
        if self.at.partition >= self.partitions {
            // Nobody was given such a cursor.
            return Then::Reply(self.reply(0));
        }
        let (kind, stamp) = (self.kind(), self.command.stamp);
        Then::Ask(match self.stage {
            Stage::Before | Stage::After => Request::Survey,
            Stage::List => {
                let as_of = AsOf::Now { kind, stamp, located: false };
                let query = Query { from: self.at.place, most: self.most, as_of };
                Request::List { partition: PartitionId(self.at.partition), query }
            }
            Stage::Read => {
                let reads = self.open[self.open.len().saturating_sub(READ)..].to_vec();
                Request::Begin { reads, writes: Vec::new() }
            }
        })
    }

    /// The client inside has answered.
    pub(super) fn answered(&mut self, outcome: Outcome) -> Then {
        match (self.stage, outcome) {
            (Stage::Before | Stage::After, Outcome::Served(known)) => self.surveyed(&known),
            (Stage::List, Outcome::Listed { keys, open, next }) => self.listed(keys, open, next),
            (Stage::Read, Outcome::Snapshot { reads, .. }) => self.read(&reads),
            // Others were in the way, or nobody could say.
            _ => Then::Pause,
        }
    }

    /// Why it is given up.
    pub(super) fn late(&self, limit: Span) -> Refusal {
        if self.moving { Refusal::Moving(limit) } else { Refusal::Unreached(limit) }
    }

    fn surveyed(&mut self, known: &[Known]) -> Then {
        self.moving = known.iter().any(|known| matches!(known.route, Route::Moving { .. }));
        if self.moving {
            return Then::Pause;
        }
        let epoch = epoch(known);
        let same = self.epoch.replace(epoch) == Some(epoch);
        match self.stage {
            Stage::After if same => return self.end(),
            Stage::After if matches!(self.command.operation, Operation::Scan { cursor: 1.., .. }) => {
                self.found.clear();
                return Then::Reply(self.reply(cursor(epoch, Spot::default(), self.partitions)));
            }
            _ => {}
        }
        // The first page, or all again.
        (self.at, self.stage) = (Spot::default(), Stage::List);
        self.found.clear();
        self.ask()
    }

    fn listed(&mut self, keys: Vec<Blob>, open: Vec<Blob>, next: Option<u64>) -> Then {
        let here = self.at.partition;
        self.next = match next {
            Some(place) => Some(Spot { partition: here, place }),
            None if here + 1 < self.partitions => Some(Spot { partition: here + 1, place: 0 }),
            None => None,
        };
        let glob = match &self.command.operation {
            Operation::Scan { pattern, .. } => pattern.as_ref().map(|pattern| Glob::new(pattern)),
            Operation::Keys { pattern } => Some(Glob::new(pattern)),
            _ => None,
        };
        let matches = |key: &Blob| glob.as_ref().is_none_or(|glob| glob.matches(key));
        self.found.extend(keys.into_iter().filter(matches));
        self.open = open.into_iter().filter(matches).collect();
        self.go_on()
    }

    fn read(&mut self, reads: &[Read]) -> Then {
        let (kind, stamp) = (self.kind(), self.command.stamp);
        let there =
            reads.iter().filter(|read| read.value.as_ref().is_some_and(|value| holds(value, kind, stamp)));
        self.found.extend(there.map(|read| read.key.clone()));
        self.open.truncate(self.open.len().saturating_sub(READ));
        self.go_on()
    }

    fn go_on(&mut self) -> Then {
        self.stage = Stage::Read;
        if self.open.is_empty() {
            match self.next.filter(|next| !self.ends(*next)) {
                Some(next) => (self.at, self.stage) = (next, Stage::List),
                None if self.partitions > 1 => self.stage = Stage::After,
                None => return self.end(),
            }
        }
        self.ask()
    }

    /// Whether a page ends there: of a scan where a cursor can tell the place from where the page began.
    fn ends(&self, next: Spot) -> bool {
        let shift = shift(self.partitions);
        let told = |spot: Spot| (spot.partition, spot.place >> shift);
        matches!(self.command.operation, Operation::Scan { .. }) && told(next) != told(self.at)
    }

    fn kind(&self) -> Option<Kind> {
        match self.command.operation {
            Operation::Scan { kind, .. } => kind,
            _ => None,
        }
    }

    /// What was found, with the cursor behind it. What the cursor leaves before it is for the next page.
    fn end(&mut self) -> Then {
        let Some(next) = self.next.filter(|next| self.ends(*next)) else { return Then::Reply(self.reply(0)) };
        let (at, shift) = (PartitionId(self.at.partition), shift(self.partitions));
        if next.partition == at.0 {
            let place = |key: &Blob| match self.partitions {
                1 => Versions::place(key),
                _ => Versions::place(&located::key(at, key)),
            };
            self.found.retain(|key| place(key) >> shift < next.place >> shift);
        }
        Then::Reply(self.reply(cursor(self.epoch.unwrap_or_default(), next, self.partitions)))
    }

    fn reply(&mut self, cursor: u64) -> Response {
        let items = std::mem::take(&mut self.found);
        match self.command.operation {
            Operation::DbSize => Response::count(items.len()),
            Operation::Keys { .. } => Response::Array(items.into_iter().map(Response::Bulk).collect()),
            _ => Response::Scan { cursor, items },
        }
    }
}

/// What the directory says, in short; never 0.
fn epoch(known: &[Known]) -> u16 {
    let mut hasher = rustc_hash::FxHasher::default();
    known.hash(&mut hasher);
    (hasher.finish() % u64::from(u16::MAX)) as u16 + 1
}

/// Bits of a cursor that name a partition.
fn partition_bits(partitions: u16) -> u32 {
    u32::from(partitions).next_power_of_two().ilog2()
}

/// How many low bits of a place a cursor leaves out. One partition has no directory.
fn shift(partitions: u16) -> u32 {
    let others = if partitions > 1 { EPOCH_BITS + partition_bits(partitions) } else { 0 };
    64 - (CURSOR_BITS - others)
}

fn cursor(epoch: u16, spot: Spot, partitions: u16) -> u64 {
    let shift = shift(partitions);
    let high = u64::from(epoch) << partition_bits(partitions) | u64::from(spot.partition);
    high.checked_shl(64 - shift).unwrap_or(0) | spot.place >> shift
}

fn parse(cursor: u64, partitions: u16) -> (u16, Spot) {
    let shift = shift(partitions);
    let high = cursor >> (64 - shift);
    let (bits, place) = (partition_bits(partitions), cursor << shift);
    // What was never given may name any partition, or none.
    let partition = (high & ((1 << bits) - 1)) as u16;
    ((high >> bits) as u16, Spot { partition, place })
}
