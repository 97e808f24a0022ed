//! Commands about all keys: `SCAN`, `KEYS`, `DBSIZE`, `RANDOMKEY`, `FLUSHDB`. They are no transactions and see no moment: the
//! partitions are asked page by page which keys they have as of then, each what was acknowledged before. `FLUSHDB` deletes
//! what a page tells in transactions that read nothing: what was acknowledged before it is gone then, and of what is written
//! meanwhile some may be.
//!
//! A key that is there all the time is found whatever else happens, but for those that move to another partition. So what
//! the directory says is read before and behind: where it has changed, the walk begins anew, and while keys are on their way
//! it waits. The cursor of a scan says under which state of the directory it began; one that comes with another begins
//! anew too, and meets some keys twice.

use super::{Answer, Refusal};
use crate::directory::{Known, Route, located};
use crate::listing::{AsOf, PAGE, Query, holds};
use crate::request::{self, Outcome, Read, Reason, Request, TxnId, Update};
use isochrone_core::command::{Command, Kind, Operation, Response};
use isochrone_core::glob::Glob;
use isochrone_core::{Blob, Instant, PartitionId, Random, Span};
use isochrone_store::versions::Versions;
use std::hash::{Hash, Hasher};

/// One such command.
#[derive(Clone, Hash, Debug)]
pub(super) struct Whole {
    command: Command,
    partitions: u16,
    /// Since when it has its time: from the start, or from where it last came further.
    pub(super) since: Instant,
    /// The ticket under which the client inside was asked last; its answer is waited for.
    pub(super) inner: Option<u64>,
    /// For how long.
    pub(super) due: Instant,
    stage: Stage,
    /// The state of the directory under which it goes on.
    epoch: Option<u16>,
    /// All of that, where it was read.
    read: Option<u64>,
    /// Where the next page begins.
    at: Spot,
    /// How many entries a page looks at.
    most: u32,
    found: Vec<Blob>,
    /// How many more, of which nobody wants the names.
    counted: usize,
    /// Of what is listed, what must be read to know whether it is there; or what is to be deleted.
    open: Vec<Blob>,
    /// So many of them, from the end, are in the transaction under way.
    chunk: usize,
    /// Whether it began anywhere, so that what is before that is still to be looked at.
    midway: bool,
    /// Whether some keys have been deleted, or may be.
    deleted: bool,
    /// How often in a row its transactions were aborted, and why at last.
    aborted: Option<(u32, Reason)>,
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
    /// Keys are to be deleted.
    Delete,
    /// This transaction deletes them.
    Commit(TxnId),
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
    End(Answer),
}

/// Entries that a page looks at where one key is enough: so many that it is hardly the gap before it that chooses a key.
const FEW: u64 = 32;
/// What clients keep fits a double.
const CURSOR_BITS: u32 = 53;
const EPOCH_BITS: u32 = 16;
/// Keys that are read or deleted together, at first: twice as many after each transaction that has succeeded, half as many
/// after one that has not.
const CHUNK: usize = 64;

impl Whole {
    /// The walk that a command asks for; nothing where it is another one. The keyspace has so many partitions.
    pub(super) fn of(command: &Command, partitions: u16, since: Instant) -> Option<Whole> {
        let (epoch, at, most) = match &command.operation {
            Operation::Scan { cursor: 0, count, .. } => (None, Spot::default(), *count),
            Operation::Scan { cursor, count, .. } => {
                let (epoch, at) = parse(*cursor, partitions);
                (Some(epoch), at, *count)
            }
            Operation::Keys { .. } | Operation::DbSize | Operation::Flush => {
                (None, Spot::default(), u64::from(PAGE))
            }
            Operation::RandomKey { seed } => (None, anywhere(*seed, partitions), FEW),
            _ => return None,
        };
        let walk = Whole {
            command: command.clone(),
            partitions,
            since,
            inner: None,
            due: since,
            stage: if partitions > 1 && epoch.is_none() { Stage::Before } else { Stage::List },
            epoch,
            read: None,
            at,
            most: most.clamp(1, u64::from(PAGE)) as u32,
            found: Vec::new(),
            counted: 0,
            open: Vec::new(),
            chunk: CHUNK,
            midway: matches!(command.operation, Operation::RandomKey { .. }),
            deleted: false,
            aborted: None,
            next: None,
            moving: false,
        };
        Some(walk)
    }

    /// Whether it waits for all that came before it, whatever the command says: what was asked before is to be deleted.
    pub(super) fn waits(&self) -> bool {
        self.command.in_order || self.deletes()
    }

    fn deletes(&self) -> bool {
        matches!(self.command.operation, Operation::Flush)
    }

    /// What is asked now.
    pub(super) fn ask(&mut self) -> Then {
        if self.at.partition >= self.partitions {
            // Nobody was given such a cursor.
            return Then::End(self.reply(0));
        }
        let (kind, stamp) = (self.kind(), self.command.stamp);
        Then::Ask(match self.stage {
            Stage::Before | Stage::After => Request::Survey,
            Stage::List => {
                let as_of = AsOf::Now { kind, stamp, located: false };
                let query = Query { from: self.at.place, most: self.most, as_of };
                Request::List { partition: PartitionId(self.at.partition), query }
            }
            Stage::Read => Request::Begin { reads: self.chunk().to_vec(), writes: Vec::new() },
            Stage::Delete => Request::Begin { reads: Vec::new(), writes: self.chunk().to_vec() },
            Stage::Commit(txn) => {
                let delete = |key: &Blob| Update { key: key.clone(), value: None };
                let updates = self.chunk().iter().map(delete).collect();
                Request::Commit { txn, updates }
            }
        })
    }

    /// The client inside has answered.
    pub(super) fn answered(&mut self, outcome: Outcome, now: Instant) -> Then {
        match (self.stage, outcome) {
            (Stage::Before | Stage::After, Outcome::Served(known)) => self.surveyed(&known),
            (Stage::List, Outcome::Listed { keys, open, next }) => {
                self.since = now;
                self.listed(keys, open, next)
            }
            (Stage::Read, Outcome::Snapshot { reads, .. }) => {
                self.since = now;
                self.read(&reads)
            }
            (Stage::Delete, Outcome::Begun { txn, .. }) => {
                self.stage = Stage::Commit(txn);
                self.ask()
            }
            (Stage::Commit(_), Outcome::Committed { .. }) => {
                self.deleted = true;
                self.since = now;
                self.done()
            }
            // It may delete at any time what is written from now on.
            (Stage::Commit(_), Outcome::Unknown) => Then::End(Answer::Unknown),
            (Stage::Read | Stage::Delete | Stage::Commit(_), outcome) => self.in_the_way(&outcome),
            // Others were in the way, or nobody could say.
            _ => Then::Pause,
        }
    }

    /// How it ends where it is given up.
    pub(super) fn late(&self, limit: Span) -> Answer {
        if self.deleted || matches!(self.stage, Stage::Commit(_)) {
            return Answer::Unknown;
        }
        Answer::Refused(match self.aborted {
            _ if self.moving => Refusal::Moving(limit),
            Some((tries, reason)) if reason != Reason::Unavailable => {
                Refusal::Contended { tries, limit, reason }
            }
            _ => Refusal::Unreached(limit),
        })
    }

    /// The keys of the transaction under way, or of the next.
    fn chunk(&self) -> &[Blob] {
        &self.open[self.open.len().saturating_sub(self.chunk)..]
    }

    /// The transaction under way has had no effect.
    fn in_the_way(&mut self, outcome: &Outcome) -> Then {
        if let Stage::Commit(_) = self.stage {
            self.stage = Stage::Delete;
        }
        let few = self.chunk == 1;
        self.chunk = (self.chunk.min(self.open.len()) / 2).max(1);
        match outcome {
            Outcome::Refused(request::Refusal::TooLarge { .. }) if !few => return self.ask(),
            Outcome::Aborted(reason) => {
                let before = self.aborted.map_or(0, |(tries, _)| tries);
                self.aborted = Some((before.saturating_add(1), *reason));
            }
            _ => {}
        }
        Then::Pause
    }

    /// The transaction under way has done what it was for.
    fn done(&mut self) -> Then {
        self.open.truncate(self.open.len().saturating_sub(self.chunk));
        self.chunk = (self.chunk * 2).min(PAGE as usize);
        self.aborted = None;
        self.go_on()
    }

    fn surveyed(&mut self, known: &[Known]) -> Then {
        self.moving = known.iter().any(|known| matches!(known.route, Route::Moving { .. }));
        if self.moving {
            return Then::Pause;
        }
        let read = digest(known);
        let epoch = epoch(read);
        let same = match self.read.replace(read) {
            Some(before) => before == read,
            // It goes on from a cursor, which has no room for more.
            None => self.epoch == Some(epoch),
        };
        self.epoch = Some(epoch);
        match self.stage {
            Stage::After if same => return self.end(),
            Stage::After if matches!(self.command.operation, Operation::Scan { cursor: 1.., .. }) => {
                self.found.clear();
                return Then::End(self.reply(cursor(epoch, Spot::default(), self.partitions)));
            }
            Stage::After => self.at = Spot::default(),
            _ => {}
        }
        // The first page, or all again.
        self.stage = Stage::List;
        self.found.clear();
        self.counted = 0;
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
        let keys = keys.into_iter().filter(matches);
        self.open = open.into_iter().filter(matches).collect();
        if self.deletes() {
            self.open.extend(keys)
        } else {
            self.find(keys)
        }
        self.go_on()
    }

    fn find(&mut self, keys: impl Iterator<Item = Blob>) {
        match self.command.operation {
            Operation::DbSize => self.counted += keys.count(),
            _ => self.found.extend(keys),
        }
    }

    fn read(&mut self, reads: &[Read]) -> Then {
        let (kind, stamp) = (self.kind(), self.command.stamp);
        let there =
            reads.iter().filter(|read| read.value.as_ref().is_some_and(|value| holds(value, kind, stamp)));
        self.find(there.map(|read| read.key.clone()));
        self.done()
    }

    fn go_on(&mut self) -> Then {
        self.stage = if self.deletes() { Stage::Delete } else { Stage::Read };
        if !self.found.is_empty() && matches!(self.command.operation, Operation::RandomKey { .. }) {
            return self.end();
        }
        if self.open.is_empty() {
            match self.next.filter(|next| !self.ends(*next)) {
                Some(next) => (self.at, self.stage) = (next, Stage::List),
                None if std::mem::take(&mut self.midway) => {
                    (self.at, self.stage) = (Spot::default(), Stage::List)
                }
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
        let Some(next) = self.next.filter(|next| self.ends(*next)) else { return Then::End(self.reply(0)) };
        let (at, shift) = (PartitionId(self.at.partition), shift(self.partitions));
        if next.partition == at.0 {
            let place = |key: &Blob| match self.partitions {
                1 => Versions::place(key),
                _ => Versions::place(&located::key(at, key)),
            };
            self.found.retain(|key| place(key) >> shift < next.place >> shift);
        }
        Then::End(self.reply(cursor(self.epoch.unwrap_or_default(), next, self.partitions)))
    }

    fn reply(&mut self, cursor: u64) -> Answer {
        let mut items = std::mem::take(&mut self.found);
        Answer::Replied(match self.command.operation {
            Operation::DbSize => Response::count(self.counted),
            Operation::Keys { .. } => Response::Array(items.into_iter().map(Response::Bulk).collect()),
            Operation::Flush => Response::Ok,
            Operation::RandomKey { .. } if items.is_empty() => Response::Nil,
            Operation::RandomKey { seed } => {
                Response::Bulk(items.swap_remove((seed % items.len() as u64) as usize))
            }
            _ => Response::Scan { cursor, items },
        })
    }
}

/// Where a walk begins that may begin anywhere.
fn anywhere(seed: u64, partitions: u16) -> Spot {
    let mut random = Random::seeded(seed);
    Spot { partition: random.below(partitions.into()) as u16, place: random.below(u64::MAX) }
}

/// What the directory says, in short.
fn digest(known: &[Known]) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    known.hash(&mut hasher);
    hasher.finish()
}

/// The same for a cursor; never 0.
fn epoch(digest: u64) -> u16 {
    (digest % u64::from(u16::MAX)) as u16 + 1
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
