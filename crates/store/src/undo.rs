//! The way back from one command: what it may change, as it was before.
//!
//! A command changes nothing but the keys that it names, so their entries are enough, and an entry costs a reference
//! count or two to keep. Of what changes the whole keyspace all is kept, which costs no more; what looks at all keys
//! changes none.

use crate::Store;
use crate::absences;
use crate::bytes::{Bytes, PIECE};
use crate::lists::FEW;
use crate::sorted::positions;
use crate::streams::bound;
use crate::value::{Entry, Value};
use isochrone_core::command::{Access, Chord, Condition, GroupChange, Operation, Touch};
use isochrone_core::{Blob, Stamp};
use std::fmt;
use std::hash::{Hash, Hasher};

/// What one command may change, as it was.
#[derive(Clone)]
pub struct Before {
    kept: Kept,
    /// About how many bytes are kept by it alone once the command has been executed.
    weight: usize,
    /// How many keys had expired.
    expired: u64,
}

#[derive(Clone, Hash)]
enum Kept {
    /// Of each key, what was there: the first, which most commands have alone, and the others.
    Keys(Option<Held>, Vec<Held>),
    /// Everything.
    All(Store),
}

/// A key and its entry, or what was kept in mind of its absence: then the last says so.
type Held = (Blob, Option<Entry>, bool);

/// What an edit of something that is shared copy on write copies of it, about: a piece or a leaf, and the way there.
const PATH: usize = 4 * PIECE;
/// What an element of a collection takes, at the least.
const ELEMENT: usize = 64;

fn several(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// About how many bytes an operation may leave of what a key holds to nobody but who keeps it, beside [`spine`].
fn left(operation: &Operation, entry: &Entry, access: Access, stamp: Stamp) -> usize {
    // What is expired is deleted before anything is done, also where it is only looked at.
    let expires = entry.deadline <= stamp;
    let all = expires || access == Access::Write || may_leave_all(operation, stamp);
    match &entry.value {
        _ if !expires && !access.writes() => 0,
        Value::Integer(_) => 0,
        Value::String(Bytes::Pieces(_)) if !expires && edits(operation) => PATH,
        Value::String(bytes) => bytes.len(),
        // What is pending stands there twice, and may be more than there are entries.
        Value::Stream(stream) if all => {
            let pending: usize = stream.groups.iter().map(|group| group.pending()).sum();
            (stream.len() + 2 * pending) * ELEMENT
        }
        value if all => value.len() * ELEMENT,
        value => elements(operation, value) * ELEMENT,
    }
}

/// What a change of a collection copies of its order, about: a reference to each block.
fn spine(operation: &Operation, value: &Value, access: Access) -> usize {
    // A deadline lies beside the value.
    let redates = matches!(operation, Operation::ExpireAt { .. } | Operation::Persist { .. });
    let ordered = match value {
        _ if redates || !access.writes() => 0,
        Value::List(_) | Value::Sorted(_) => value.len(),
        Value::Stream(stream) => {
            let group = changed_group(operation);
            value.len() + group.map_or(0, |(group, _)| 2 * stream.groups.pending(group))
        }
        _ => 0,
    };
    ordered / 64 * 16
}

/// Whether an operation edits a string in its place.
fn edits(operation: &Operation) -> bool {
    use Operation::*;
    matches!(
        operation,
        Append { .. } | AppendWithin { .. } | SetRange { .. } | SetBit { .. } | BitField { .. }
    )
}

/// Whether an operation that looks at what it changes may leave all of it, whatever it is.
fn may_leave_all(operation: &Operation, stamp: Stamp) -> bool {
    use Operation::*;
    match operation {
        Del { .. } | Sweep { .. } | Rename { .. } | Copy { .. } | Restore { .. } => true,
        // With GET it is refused where there is no string.
        Set { condition, get, .. } => *condition != Condition::IfAbsent && !get,
        ExpireAt { at, .. } => *at <= stamp,
        CountUntil { anew, .. } => *anew,
        LRem { count, .. } => *count == 0 || several(count.unsigned_abs()) > FEW,
        ChordStep { chord } => match &**chord {
            Chord::Part { expires, group_expires, .. } => {
                [expires, group_expires].into_iter().flatten().any(|at| *at <= stamp)
            }
            Chord::Extend { .. } => false,
            Chord::Finish { .. } => true,
        },
        _ => false,
    }
}

/// How many elements of a collection an operation may take out or write again, where those are not all.
fn elements(operation: &Operation, value: &Value) -> usize {
    use Operation::*;
    let len = value.len();
    let taken = match (operation, value) {
        (Pop { count, .. } | SPop { count, .. } | ZPop { count, .. }, _) => count.map_or(1, several),
        (LMPop { count, .. } | ZMPop { count, .. }, _) => several(*count),
        (LRem { count, .. }, _) => several(count.unsigned_abs()),
        (LTrim { start, stop, .. }, _) => len - positions(*start, *stop, len).len(),
        (HDel { fields, .. }, _) => fields.len(),
        (SRem { members, .. } | ZRem { members, .. }, _) => members.len(),
        (ZRemRange { range, .. }, Value::Sorted(set)) => set.select(range).len(),
        (XDel { ids, .. }, _) => ids.len(),
        (XTrim { trimming, .. }, Value::Stream(stream)) => stream.excess(**trimming),
        (XAdd { append, .. }, Value::Stream(stream)) => {
            append.trimming.map_or(0, |trimming| 1 + stream.excess(trimming))
        }
        _ => 0,
    };
    let pending = match (value, changed_group(operation)) {
        (Value::Stream(stream), Some((group, count))) => 2 * count.min(stream.groups.pending(group)),
        _ => 0,
    };
    taken.min(len) + pending
}

/// The group of a stream that an operation changes, and how much of what is pending there it may take out or write again.
fn changed_group(operation: &Operation) -> Option<(&Blob, usize)> {
    use GroupChange::*;
    match operation {
        Operation::XReadGroup { read } => {
            let again = read.streams.iter().any(|(_, after)| after.is_some());
            Some((&read.group, if again { bound(read.count) } else { 0 }))
        }
        Operation::XGroup { change, .. } => match &**change {
            Destroy { group } | DeleteConsumer { group, .. } => Some((group, usize::MAX)),
            Acknowledge { group, ids } | Claim { group, ids, .. } => Some((group, ids.len())),
            ClaimFrom { group, count, .. } => Some((group, several(*count))),
            SetId { group, .. } | CreateConsumer { group, .. } => Some((group, 0)),
            Create { .. } | Remember { .. } => None,
        },
        _ => None,
    }
}

impl Before {
    pub(crate) fn of(store: &Store, operation: &Operation, stamp: Stamp) -> Before {
        let kept = Kept::Keys(None, Vec::new());
        let mut before = Before { kept, weight: 0, expired: store.expired };
        before.keep(store, operation, stamp, &mut None);
        before
    }

    /// `copied`: of which key a part of the transaction has copied the order.
    fn keep<'a>(
        &mut self,
        store: &Store,
        operation: &'a Operation,
        stamp: Stamp,
        copied: &mut Option<&'a Blob>,
    ) {
        if let Operation::Transaction { watched, operations } = operation {
            watched.iter().for_each(|(key, _)| {
                self.keep_key(store, key, |entry| left(operation, entry, Access::Read, stamp));
            });
            return operations.iter().for_each(|operation| self.keep(store, operation, stamp, copied));
        }
        operation.visit(&mut |touch| match touch {
            // Also what is only read: it may be about to expire.
            Touch::Key(key, access) => self.keep_key(store, key, |entry| {
                let (left, spine) =
                    (left(operation, entry, access, stamp), spine(operation, &entry.value, access));
                if spine == 0 || *copied == Some(key) {
                    return left;
                }
                *copied = Some(key);
                left.saturating_add(spine)
            }),
            Touch::All(Access::Read) => {}
            Touch::All(access) => {
                if access == Access::Write {
                    self.weight = self.weight.saturating_add(store.len() * ELEMENT);
                }
                self.kept = Kept::All(store.clone());
            }
        });
    }

    fn keep_key(&mut self, store: &Store, key: &Blob, weigh: impl FnOnce(&Entry) -> usize) {
        let Kept::Keys(first, others) = &mut self.kept else { return };
        let entry = store.keys.get(key);
        let absence = if entry.is_none() { store.absence(key) } else { None };
        self.weight = self.weight.saturating_add(entry.map_or(0, weigh));
        let held = (key.clone(), entry.or(absence).cloned(), absence.is_some());
        if first.is_none() {
            *first = Some(held);
        } else {
            others.push(held);
        }
    }

    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    pub(crate) fn revert(self, store: &mut Store) {
        store.expired = self.expired;
        match self.kept {
            Kept::All(before) => *store = before,
            // A key that is named twice was the same both times.
            Kept::Keys(first, others) => {
                let held = first.into_iter().chain(others);
                held.for_each(|(key, entry, absent)| store.put_back(&key, entry, absent));
            }
        }
    }
}

impl Store {
    /// Makes a key what it was: this entry, or absent with what was kept in mind of that.
    fn put_back(&mut self, key: &Blob, entry: Option<Entry>, absent: bool) {
        let (entry, absence) = if absent { (None, entry) } else { (entry, None) };
        let state = |entry: &Entry| (entry.version, entry.deadline);
        // Equal versions mean equal contents.
        if self.keys.get(key).map(state) != entry.as_ref().map(state) {
            self.replace(key, entry);
        }
        if self.absence(key).map(state) != absence.as_ref().map(state) {
            absences::set(&mut self.absences, key, absence);
        }
    }
}

impl Hash for Before {
    /// Without how many keys had expired, which is no part of the state.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kept.hash(state);
        self.weight.hash(state);
    }
}

impl fmt::Debug for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kept {
            Kept::Keys(first, others) => {
                let version = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.version);
                let keys = first.iter().chain(others).map(|(key, entry, _)| (key, version(entry)));
                f.debug_map().entries(keys).finish()
            }
            Kept::All(store) => fmt::Debug::fmt(store, f),
        }
    }
}
