//! The replicated state machine of a keyspace: typed values under keys, executed by
//! [`Command`](isochrone_core::Command)s.
//!
//! **What it guarantees.** Equal commands in equal order give equal states, replies and digests on every
//! replica. Nothing depends on a clock, on memory addresses or on the order of a hash table: keys and
//! members are listed in the order of a fixed hash, random choices come from seeds in the commands. Commands
//! that have no written key in common may be executed in either order. Replies are those of Redis.
//!
//! **Expiry** (`specs/curp.md` 7.3). A key whose deadline lies at or before the stamp of a command that
//! touches it is deleted by that command, before anything else. Nothing else expires a key: no clock of a
//! replica, no highest stamp seen. [`StateMachine::read`] declines to answer where a key would have to be deleted;
//! such a read goes through the log.
//!
//! A command about all keys names none, and so expires none: the time of millions may be over at once, and every replica
//! would stand still meanwhile. It counts and lists what is alive at its stamp. A command with an earlier stamp that is executed
//! later, of a node whose clock is behind or one that was longer on its way, may still find what it has left out.
//!
//! **Views.** [`Store::export`] costs one reference count, because all containers are shared copy on write
//! (`trie`, `sequence`); what is changed behind a view is copied path by path.
//!
//! Cost of the common commands, one core, a million keys: see `benches/store.rs`.

#![forbid(unsafe_code)]

mod absences;
mod bits;
mod bytes;
mod chords;
mod deadlines;
mod dump;
mod encoding;
pub mod entry;
mod export;
mod groups;
mod hash;
mod hashes;
mod hyperloglog;
mod key;
mod keys;
mod lists;
mod locks;
mod number;
mod places;
mod random;
mod ranges;
mod sequence;
mod sets;
mod sort;
mod sorted;
mod sorted_sets;
mod streams;
mod strings;
mod trie;
mod turn;
mod undo;
mod value;
pub mod versions;
mod weight;
mod whole;

#[cfg(test)]
mod tests;

pub use export::View;
pub use undo::Before;

use deadlines::Deadlines;
use isochrone_core::command::{Operation, REPLY_MAX, Refusal, Response, Touch};
use isochrone_core::machine::Keys;
use isochrone_core::migration::{Ring, Step, Stretch, Told, Versions};
use isochrone_core::{Blob, Command, Malformed, Stamp, StateMachine};
use ranges::{Index, Ranges};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use trie::Trie;
use turn::Turn;
use value::{Collection, Entry, Value};

/// The state of one partition of a keyspace. See the crate.
#[derive(Clone, Default)]
pub struct Store {
    keys: Trie<Entry>,
    /// The keys that have a deadline.
    deadlines: Deadlines,
    /// The sum of the versions of all keys.
    digest: u64,
    /// What was moved from here to another partition, or from there; nothing where nothing ever was.
    ranges: Option<Arc<Ranges>>,
    /// The keys of a stretch that is being moved from here, so that its parts are found. It follows from the keys.
    index: Option<Index>,
    /// How many keys were deleted because their time was over.
    expired: u64,
    /// What is kept in mind of keys that are absent, as entries; nothing where that is nothing.
    absences: Option<Arc<Store>>,
}

/// With fewer keys than this everything is near in any case.
const PREPARE_MIN: usize = 4096;

/// A string may not grow beyond this, bytes; the default of `proto-max-bulk-len`.
pub const STRING_MAX: usize = 512 * 1024 * 1024;

impl Store {
    /// How many keys there are, expired ones that nothing has touched included.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// A number that replicas that serve equal keys agree on, and others practically never: the sum of the keys'
    /// versions, each a hash of the commands that changed the key since it was made, with their stamps.
    /// It is kept up to date, so asking for it costs nothing; commands that do not conflict may be
    /// executed in any order. What moves have under way is not in it, nor what is kept in mind of absent keys.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The earliest deadline of any key.
    pub fn deadline(&self) -> Option<Stamp> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The collection under a key.
    fn view<C: Collection>(&self, key: &[u8]) -> Result<Option<&C>, Refusal> {
        match self.keys.get(key) {
            Some(entry) => Ok(Some(C::view(&entry.value).ok_or(Refusal::WrongType)?)),
            None => Ok(None),
        }
    }

    /// Whether this operation names a key that its stamp expires.
    fn touches_expired(&self, operation: &Operation, stamp: Stamp) -> bool {
        if self.deadline().is_none_or(|deadline| deadline > stamp)
            || matches!(operation, Operation::Move { .. })
        {
            return false;
        }
        let mut expired = false;
        operation.visit(&mut |touch| {
            if let Touch::Key(key, _) = touch {
                expired |= self.keys.get(key).is_some_and(|entry| entry.is_over(stamp));
            }
        });
        expired
    }

    /// Answers an operation that changes nothing; `None` for all others. No key that it names is expired.
    fn answer(&self, operation: &Operation, stamp: Stamp) -> Option<Response> {
        let answer = self.try_answer(operation, stamp)?;
        // Of a transaction, each part is.
        let parts = matches!(operation, Operation::Transaction { .. });
        let whole = |answer: &Response| parts || answer.bytes() <= REPLY_MAX;
        Some(
            answer
                .and_then(|answer| if whole(&answer) { Ok(answer) } else { Err(Refusal::ReplyTooLong) })
                .unwrap_or_else(Response::Error),
        )
    }

    fn try_answer(&self, operation: &Operation, stamp: Stamp) -> Option<Result<Response, Refusal>> {
        use Operation::*;
        Some(match operation {
            Get { key } => self.get(key),
            MGet { keys } => Ok(self.mget(keys)),
            StrLen { key } => self.strlen(key),
            GetRange { key, start, end } => self.getrange(key, *start, *end),

            Exists { keys } | Touch { keys } => Ok(self.exists(keys)),
            Type { key } => Ok(self.kind(key)),
            Ttl { key, unit, absolute } => Ok(self.ttl(key, stamp, *unit, *absolute)),
            Scan { cursor, count, pattern, kind } => {
                Ok(self.scan(1, *cursor, *count, pattern.as_ref(), *kind, stamp, |_| true))
            }
            Share { share } => return self.answer_share(share, stamp).map(Ok),
            Keys { pattern } => Ok(self.list(pattern, stamp, |_| true)),
            DbSize => Ok(Response::count(self.alive(stamp))),
            RandomKey { seed } => Ok(self.random_key(*seed, stamp)),
            Version { key } => Ok(Response::Integer(self.version(key) as i64)),

            HGet { key, field } => self.hget(key, field),
            HMGet { key, fields } => self.hmget(key, fields),
            HGetAll { key } => self.hgetall(key),
            HKeys { key } => self.hkeys(key),
            HVals { key } => self.hvals(key),
            HLen { key } => self.hlen(key),
            HExists { key, field } => self.hexists(key, field),
            HStrLen { key, field } => self.hstrlen(key, field),
            HRandField { key, count, seed, with_values } => self.hrandfield(key, *count, *seed, *with_values),
            HScan { key, cursor, count, pattern } => self.hscan(key, *cursor, *count, pattern.as_ref()),

            LLen { key } => self.llen(key),
            LRange { key, start, stop } => self.lrange(key, *start, *stop),
            LIndex { key, index } => self.lindex(key, *index),
            LPos { key, element, rank, count, length } => self.lpos(key, element, *rank, *count, *length),

            SMembers { key } => self.smembers(key),
            SIsMember { key, member } => self.sismember(key, member),
            SMIsMember { key, members } => self.smismember(key, members),
            SCard { key } => self.scard(key),
            SRandMember { key, count, seed } => self.srandmember(key, *count, *seed),
            SCombine { combine, keys } => self.scombine(*combine, keys),
            SInterCard { keys, limit } => self.sintercard(keys, *limit),
            SScan { key, cursor, count, pattern } => self.sscan(key, *cursor, *count, pattern.as_ref()),

            ZScore { key, member } => self.zscore(key, member),
            ZMScore { key, members } => self.zmscore(key, members),
            ZCard { key } => self.zcard(key),
            ZCount { key, range } => self.zcount(key, range),
            ZRange { key, slice, with_scores } => self.zrange(key, slice, *with_scores),
            ZRank { key, member, reverse, with_score } => self.zrank(key, member, *reverse, *with_score),
            ZCombine { inputs, with_scores } => self.zcombine(inputs, *with_scores),
            ZInterCard { keys, limit } => self.zintercard(keys, *limit),
            ZRandMember { key, count, seed, with_scores } => {
                self.zrandmember(key, *count, *seed, *with_scores)
            }
            ZScan { key, cursor, count, pattern } => self.zscan(key, *cursor, *count, pattern.as_ref()),

            GetBit { key, offset } => self.getbit(key, *offset),
            BitCount { key, range } => self.bitcount(key, *range),
            BitPos { key, on, range, open } => self.bitpos(key, *on, *range, *open),
            BitField { key, steps } if operation.is_read() => self.bitfield_read(key, steps),
            Encoding { key } => Ok(self.encoding(key)),
            Dump { key } => Ok(self.dump(key)),
            Weight { key, samples } => Ok(self.weight(key, *samples)),

            XLen { key } => self.xlen(key),
            XRange { key, slice } => self.xrange(key, slice),
            XRead { read } => self.xread(read),
            XReadGroup { read } if read.peek => self.xreadgroup_peek(read),
            XInfo { key, look } => self.xinfo(key, look, stamp),
            Sort { key, sort } => self.sort(key, sort),
            GeoSearch { key, search, detailed } => self.geosearch(key, search, *detailed),
            PfCount { keys } => self.pfcount(keys),
            // Where a key is over, the answer is that of [`Turn`].
            Expired { keys } => Ok(Response::Array(vec![Response::Integer(0); keys.len()])),
            Move { step } => Ok(Response::Move(Box::new(self.look(step)?))),

            Transaction { watched, operations } if operation.is_read() => {
                if !self.are_unchanged(watched, stamp) {
                    return Some(Ok(Response::NilArray));
                }
                let mut left = REPLY_MAX;
                let answers = operations.iter().map(|operation| match operation {
                    operation if !may_be_inside(operation) => Refusal::NestedTransaction.into(),
                    // A transaction that reads holds nothing but operations that read.
                    operation => {
                        let answer = self.answer(operation, stamp).unwrap_or(Response::Nil);
                        turn::within(&mut left, answer)
                    }
                });
                Ok(Response::Array(answers.collect()))
            }
            _ => return None,
        })
    }
}

/// Whether an operation may stand within a transaction: all but transactions that may not take place, or hold
/// others, and what is for one of several partitions. Those that always take place are scripts.
pub(crate) fn may_be_inside(operation: &Operation) -> bool {
    match operation {
        Operation::Transaction { watched, operations } => {
            watched.is_empty()
                && !operations.iter().any(|inner| matches!(inner, Operation::Transaction { .. }))
        }
        Operation::Move { .. } | Operation::Share { .. } => false,
        _ => true,
    }
}

impl StateMachine for Store {
    type Command = Command;
    type Reply = Response;
    type View = View;
    type Before = Before;

    fn keys(&self) -> Option<Keys> {
        let (held, expiring) = (self.keys.len(), self.deadlines.len());
        Some(Keys { held, expiring, expired: self.expired })
    }

    fn overdue(&self, stamp: Stamp, most: usize) -> Vec<Blob> {
        let absences = self.absences.iter().flat_map(|absences| absences.deadlines.due(stamp));
        self.deadlines.due(stamp).chain(absences).take(most).map(|(_, key)| key.blob()).collect()
    }

    fn apply(&mut self, command: &Command) -> Response {
        Turn::new(self, command.stamp).run(command)
    }

    fn before(&self, command: &Command) -> Before {
        Before::of(self, &command.operation, command.stamp)
    }

    fn kept(before: &Before) -> usize {
        before.weight()
    }

    fn revert(&mut self, before: Before) {
        before.revert(self);
    }

    fn prepare<'a>(&self, commands: impl Iterator<Item = &'a Command>) {
        if self.keys.len() < PREPARE_MIN {
            return;
        }
        let mut keys = Vec::new();
        for command in commands {
            command.operation.visit(&mut |touch| {
                if let Touch::Key(key, _) = touch {
                    keys.push(&key[..]);
                }
            });
        }
        self.keys.prepare(keys.into_iter(), |entry| match &entry.value {
            Value::String(bytes) => {
                usize::from(bytes.whole().and_then(|bytes| bytes.first()).copied().unwrap_or(0))
            }
            _ => 0,
        });
    }

    fn reads_only(command: &Command) -> bool {
        !command.in_order && command.operation.is_read()
    }

    fn follows(command: &Command) -> bool {
        command.in_order && !command.operation.is_read()
    }

    fn read(&self, command: &Command) -> Option<Response> {
        if let Some(elsewhere) = self.elsewhere(command) {
            return Some(elsewhere);
        }
        if self.touches_expired(&command.operation, command.stamp) {
            return None;
        }
        self.answer(&command.operation, command.stamp)
    }

    fn blind(command: &Command) -> Option<Response> {
        use isochrone_core::command::{Condition, Expiry, Operation};
        match &command.operation {
            Operation::Set { condition: Condition::Always, expiry, get: false, .. } => {
                (*expiry != Expiry::Keep).then_some(Response::Ok)
            }
            Operation::MSet { only_if_absent: false, .. } => Some(Response::Ok),
            _ => None,
        }
    }

    fn share(command: &Command, ring: Ring, served: &[Stretch]) -> Option<Command> {
        whole::share(command, ring, served)
    }

    fn missing(reply: &Response) -> &[Told] {
        match reply {
            Response::Share(shared) => &shared.missing,
            _ => &[],
        }
    }

    fn gather(command: &Command, of: u16, replies: Vec<Response>) -> Option<Response> {
        whole::gather(command, of, replies)
    }

    fn step(step: Step, stamp: Stamp) -> Option<Command> {
        Some(Command::new(stamp, Operation::Move { step: Arc::new(step) }))
    }

    fn knowing(command: Command, versions: Versions) -> Command {
        Command { known: Some(versions), ..command }
    }

    fn told(reply: &Response) -> Option<&Told> {
        match reply {
            Response::Move(told) => Some(told),
            _ => None,
        }
    }

    fn export(&self) -> View {
        View::new(self)
    }

    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        export::absorb(self, chunk)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({} keys, digest {:016x})", self.keys.len(), self.digest)
    }
}

impl Hash for Store {
    /// All that later replies can depend on, in the order of the keys' hashes.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.keys.hash(state);
        if let Some(ranges) = &self.ranges {
            ranges.hash(state);
        }
        if let Some(absences) = &self.absences {
            absences.hash(state);
        }
    }
}

impl PartialEq for Store {
    fn eq(&self, other: &Store) -> bool {
        self.keys == other.keys && self.ranges == other.ranges && self.absences == other.absences
    }
}
