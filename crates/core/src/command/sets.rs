//! Which keys an operation touches, and when two operations do not commute.

use super::{BitStep, Condition, Expiry, Operation};
use crate::Blob;
use crate::migration::Step;

/// What is done to a key. An operation that looks at what it overwrites is of both kinds.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Access {
    /// Only looked at.
    Read,
    /// Overwritten blindly: neither the answer nor what is written depends on what was there.
    Write,
    /// Looked at and changed.
    Update,
}

impl Access {
    /// Whether the state or the answer depends on what is there.
    pub fn reads(self) -> bool {
        self != Access::Write
    }

    /// Whether something may be changed.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

/// One thing that an operation touches.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Touch<'a> {
    /// A key.
    Key(&'a Blob, Access),
    /// Every key, also those that do not exist yet.
    All(Access),
}

impl Operation {
    /// Names what this operation touches, in the order of its arguments, repetitions included. It allocates
    /// nothing.
    ///
    /// A read that finds its key expired deletes it, and is still a read here: of two reads either may do
    /// so with the same outcome, and against a write it conflicts in any case.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        use Access::{Read, Update, Write};
        use Operation::*;
        let mut all =
            |keys: &'a [Blob], access| keys.iter().for_each(|key| visit(self::Touch::Key(key, access)));
        match self {
            Get { key }
            | StrLen { key }
            | GetRange { key, .. }
            | Type { key }
            | Ttl { key, .. }
            | Version { key }
            | HGet { key, .. }
            | HMGet { key, .. }
            | HGetAll { key }
            | HKeys { key }
            | HVals { key }
            | HLen { key }
            | HExists { key, .. }
            | HStrLen { key, .. }
            | HRandField { key, .. }
            | HScan { key, .. }
            | LLen { key }
            | LRange { key, .. }
            | LIndex { key, .. }
            | LPos { key, .. }
            | SMembers { key }
            | SIsMember { key, .. }
            | SMIsMember { key, .. }
            | SCard { key }
            | SRandMember { key, .. }
            | SScan { key, .. }
            | ZScore { key, .. }
            | ZMScore { key, .. }
            | ZCard { key }
            | ZCount { key, .. }
            | ZRange { key, .. }
            | ZRank { key, .. }
            | ZRandMember { key, .. }
            | ZScan { key, .. }
            | GetBit { key, .. }
            | BitCount { key, .. }
            | BitPos { key, .. }
            | Encoding { key }
            | XLen { key }
            | XRange { key, .. }
            | Dump { key }
            | Weight { key, .. }
            | XInfo { key, .. }
            | GeoSearch { key, .. }
            | Sort { key, .. } => visit(self::Touch::Key(key, Read)),

            MGet { keys }
            | Exists { keys }
            | Touch { keys }
            | SCombine { keys, .. }
            | SInterCard { keys, .. }
            | ZInterCard { keys, .. }
            | PfCount { keys }
            | Expired { keys } => all(keys, Read),

            Set { key, condition, expiry, get, .. } => {
                let blind = *condition == Condition::Always && *expiry != Expiry::Keep && !get;
                visit(self::Touch::Key(key, if blind { Write } else { Update }));
            }
            MSet { pairs, only_if_absent } => {
                let access = if *only_if_absent { Update } else { Write };
                pairs.iter().for_each(|(key, _)| visit(self::Touch::Key(key, access)));
            }

            GetDel { key }
            | GetEx { key, .. }
            | Append { key, .. }
            | AppendWithin { key, .. }
            | SetRange { key, .. }
            | IncrBy { key, .. }
            | CountUntil { key, .. }
            | IncrByFloat { key, .. }
            | ExpireAt { key, .. }
            | Persist { key }
            | HSet { key, .. }
            | HSetNx { key, .. }
            | HDel { key, .. }
            | HIncrBy { key, .. }
            | HIncrByFloat { key, .. }
            | Push { key, .. }
            | Pop { key, .. }
            | LSet { key, .. }
            | LTrim { key, .. }
            | LRem { key, .. }
            | LInsert { key, .. }
            | SAdd { key, .. }
            | SRem { key, .. }
            | SPop { key, .. }
            | ZAdd { key, .. }
            | ZIncrBy { key, .. }
            | ZRem { key, .. }
            | ZPop { key, .. }
            | ZRemRange { key, .. }
            | SetBit { key, .. }
            | DelIf { key, .. }
            | ExpireIf { key, .. }
            | XAdd { key, .. }
            | XDel { key, .. }
            | XTrim { key, .. }
            | Restore { key, .. }
            | XGroup { key, .. }
            | PfAdd { key, .. }
            | Watch { key, .. } => visit(self::Touch::Key(key, Update)),

            Del { keys } | Sweep { keys } | LMPop { keys, .. } | ZMPop { keys, .. } => all(keys, Update),

            Rename { key, target, .. } => {
                visit(self::Touch::Key(key, Update));
                visit(self::Touch::Key(target, Update));
            }
            Copy { key, target, .. } => {
                visit(self::Touch::Key(key, Read));
                visit(self::Touch::Key(target, Update));
            }
            LMove { source, target, .. } | SMove { source, target, .. } => {
                visit(self::Touch::Key(source, Update));
                visit(self::Touch::Key(target, Update));
            }
            SCombineStore { target, keys, .. } => {
                visit(self::Touch::Key(target, Write));
                keys.iter().for_each(|key| visit(self::Touch::Key(key, Read)));
            }
            BitOp { target, keys, .. } => {
                visit(self::Touch::Key(target, Write));
                keys.iter().for_each(|key| visit(self::Touch::Key(key, Read)));
            }
            PfMerge { target, keys } => {
                visit(self::Touch::Key(target, Update));
                keys.iter().for_each(|key| visit(self::Touch::Key(key, Read)));
            }
            BitField { key, steps } => {
                let reads = steps.iter().all(|step| matches!(step, BitStep::Get(_)));
                visit(self::Touch::Key(key, if reads { Read } else { Update }));
            }
            ZRangeStore { target, source, .. }
            | GeoSearchStore { target, source, .. }
            | SortStore { target, source, .. } => {
                visit(self::Touch::Key(target, Write));
                visit(self::Touch::Key(source, Read));
            }
            ZCombine { inputs, .. } => {
                inputs.inputs.iter().for_each(|(key, _)| visit(self::Touch::Key(key, Read)));
            }
            ZCombineStore { target, inputs } => {
                visit(self::Touch::Key(target, Write));
                inputs.inputs.iter().for_each(|(key, _)| visit(self::Touch::Key(key, Read)));
            }

            ChordStep { chord } => chord.keys().for_each(|key| visit(self::Touch::Key(key, Update))),
            XRead { read } => {
                read.streams.iter().for_each(|(key, _)| visit(self::Touch::Key(key, Read)));
            }

            XReadGroup { read } => {
                let access = if read.peek { Read } else { Update };
                read.streams.iter().for_each(|(key, _)| visit(self::Touch::Key(key, access)));
            }

            Scan { .. } | Keys { .. } | DbSize | RandomKey { .. } => visit(self::Touch::All(Read)),
            Flush => visit(self::Touch::All(Write)),
            Share { share } => share.operation.visit(visit),
            // A barrier: what the source answered before it is its last word, for all keys.
            Move { step } => match **step {
                Step::Fetch { .. } | Step::Survey { .. } => visit(self::Touch::All(Read)),
                Step::Release { .. } | Step::Install { .. } => visit(self::Touch::All(Update)),
            },

            Transaction { watched, operations } => {
                watched.iter().for_each(|(key, _)| visit(self::Touch::Key(key, Read)));
                operations.iter().for_each(|operation| operation.visit(visit));
            }
        }
    }

    /// The read set and the write set.
    pub fn sets(&self) -> Sets {
        let mut sets = Sets::default();
        self.visit(&mut |touch| match touch {
            Touch::Key(key, access) => {
                if access.reads() {
                    sets.reads.push(key);
                }
                if access.writes() {
                    sets.writes.push(key);
                }
            }
            Touch::All(access) => {
                if access.reads() {
                    sets.reads = KeySet::All;
                }
                if access.writes() {
                    sets.writes = KeySet::All;
                }
            }
        });
        sets.reads.sort();
        sets.writes.sort();
        sets
    }

    /// Whether this operation changes nothing (but for deleting what has expired).
    pub fn is_read(&self) -> bool {
        let mut reads = true;
        self.visit(&mut |touch| {
            let (Touch::Key(_, access) | Touch::All(access)) = touch;
            reads &= !access.writes();
        });
        reads
    }
}

/// A set of keys.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub enum KeySet {
    /// These, ascending and each once.
    Keys(Vec<Blob>),
    /// All keys, also those that do not exist yet.
    All,
}

impl Default for KeySet {
    fn default() -> KeySet {
        KeySet::Keys(Vec::new())
    }
}

impl KeySet {
    /// Whether there is no key in it.
    pub fn is_empty(&self) -> bool {
        matches!(self, KeySet::Keys(keys) if keys.is_empty())
    }

    /// Whether this key is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            KeySet::Keys(keys) => keys.binary_search_by(|held| held[..].cmp(key)).is_ok(),
            KeySet::All => true,
        }
    }

    /// Whether some key is in both.
    pub fn intersects(&self, other: &KeySet) -> bool {
        match (self, other) {
            (KeySet::All, other) | (other, KeySet::All) => !other.is_empty(),
            (KeySet::Keys(a), KeySet::Keys(b)) => {
                let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
                few.iter().any(|key| many.binary_search(key).is_ok())
            }
        }
    }

    fn push(&mut self, key: &Blob) {
        if let KeySet::Keys(keys) = self {
            keys.push(key.clone());
        }
    }

    fn sort(&mut self) {
        if let KeySet::Keys(keys) = self {
            keys.sort_unstable();
            keys.dedup();
        }
    }
}

/// The read set and the write set of an operation.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Default)]
pub struct Sets {
    /// What the answer or the outcome depends on.
    pub reads: KeySet,
    /// What may be changed.
    pub writes: KeySet,
}

/// How a later operation depends on an earlier one.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Conflict {
    /// The later reads what the earlier wrote.
    WriteRead,
    /// The later writes what the earlier read.
    ReadWrite,
    /// Both write one key.
    WriteWrite,
}

impl Sets {
    /// Why these two do not commute: `None` where they do. Of several reasons the strongest is named, a
    /// common written key before a read one.
    pub fn conflict(&self, later: &Sets) -> Option<Conflict> {
        if self.writes.intersects(&later.writes) {
            Some(Conflict::WriteWrite)
        } else if self.writes.intersects(&later.reads) {
            Some(Conflict::WriteRead)
        } else if self.reads.intersects(&later.writes) {
            Some(Conflict::ReadWrite)
        } else {
            None
        }
    }
}

/// Why `later` may not be executed before `earlier`: `None` where they commute.
pub fn conflict(earlier: &Operation, later: &Operation) -> Option<Conflict> {
    earlier.sets().conflict(&later.sets())
}
