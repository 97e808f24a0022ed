//! Who has touched what: what a command touches, and an index from keys to those who touched them.

use crate::command::{Access, Touch};
use crate::{Conflict, Few, KeyspaceId, Table, key_hash};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a command, or a batch of them, touches: each key once, by its hash, and the strongest access to it.
///
/// Hashes stand for keys: two keys of one hash conflict although they need not, at every replica alike, which
/// costs an order that nobody asked for once in 2^64 pairs, and saves the keys.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct TouchSet {
    /// Ascending by hash, each once: whether the key is read, and whether it is written.
    keys: Vec<(u64, Touched)>,
    /// What is done to every key.
    all: Touched,
}

#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default, Serialize, Deserialize)]
struct Touched {
    reads: bool,
    writes: bool,
}

impl Touched {
    fn of(access: Access) -> Touched {
        Touched { reads: access.reads(), writes: access.writes() }
    }

    fn or(self, other: Touched) -> Touched {
        Touched { reads: self.reads | other.reads, writes: self.writes | other.writes }
    }

    fn any(self) -> bool {
        self.reads || self.writes
    }

    /// Whether whatever conflicts with `other` conflicts with this.
    fn covers(self, other: Touched) -> bool {
        self.writes || self.reads && !other.writes || !other.any()
    }

    /// Why `later` may not go before this; the strongest reason.
    fn conflict(self, later: Touched) -> Option<Conflict> {
        if self.writes && later.writes {
            Some(Conflict::WriteWrite)
        } else if self.writes && later.reads {
            Some(Conflict::WriteRead)
        } else if self.reads && later.writes {
            Some(Conflict::ReadWrite)
        } else {
            None
        }
    }
}

/// Of two reasons the stronger: both write, before the later reads, before the later writes.
fn strongest(a: Option<Conflict>, b: Option<Conflict>) -> Option<Conflict> {
    let strength = |conflict: &Option<Conflict>| match conflict {
        None => 0,
        Some(Conflict::ReadWrite) => 1,
        Some(Conflict::WriteRead) => 2,
        Some(Conflict::WriteWrite) => 3,
    };
    if strength(&a) >= strength(&b) { a } else { b }
}

impl TouchSet {
    /// Takes in one touch. [`TouchSet::seal`] must follow the last.
    pub fn touch(&mut self, touch: Touch<'_>) {
        match touch {
            Touch::Key(key, access) => {
                self.keys.push((key_hash(KeyspaceId(0), key), Touched::of(access)));
            }
            Touch::All(access) => self.all = self.all.or(Touched::of(access)),
        }
    }

    /// Brings the keys into order, each once.
    pub fn seal(&mut self) {
        self.keys.sort_unstable_by_key(|(key, _)| *key);
        self.keys.dedup_by(|(key, touched), (kept, sum)| {
            let same = key == kept;
            if same {
                *sum = sum.or(*touched);
            }
            same
        });
    }

    /// What `visit` names.
    pub fn of(visit: impl FnOnce(&mut dyn FnMut(Touch<'_>))) -> TouchSet {
        let mut touches = TouchSet::default();
        visit(&mut |touch| touches.touch(touch));
        touches.seal();
        touches
    }

    /// Touches everything, and writes it: a barrier.
    pub fn everything() -> TouchSet {
        TouchSet { keys: Vec::new(), all: Touched { reads: true, writes: true } }
    }

    /// Whether nothing is touched.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.all.any()
    }

    /// How many keys are named.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// What is left of this without the touches that `other` stands for: whatever conflicts with this and not
    /// with what is left conflicts with `other`.
    #[must_use]
    pub fn without(&self, other: &TouchSet) -> TouchSet {
        let mut from = 0;
        let uncovered = |(key, ours): &&(u64, Touched)| {
            if other.all.covers(*ours) {
                return false;
            }
            // Both ascend, so the search begins where the last one ended.
            match other.keys[from..].binary_search_by_key(key, |(key, _)| *key) {
                Ok(at) => {
                    from += at;
                    !other.keys[from].1.covers(*ours)
                }
                Err(at) => {
                    from += at;
                    true
                }
            }
        };
        let keys = self.keys.iter().filter(uncovered).copied().collect();
        let all = if other.all.covers(self.all) { Touched::default() } else { self.all };
        TouchSet { keys, all }
    }

    /// All accesses together.
    fn sum(&self) -> Touched {
        self.keys.iter().fold(self.all, |sum, (_, touched)| sum.or(*touched))
    }

    /// Why `later` may not be executed before this; `None` where the two commute.
    pub fn conflict(&self, later: &TouchSet) -> Option<Conflict> {
        let mut found = strongest(self.all.conflict(later.sum()), self.sum().conflict(later.all));
        let (few, many, turned) = if self.keys.len() <= later.keys.len() {
            (&self.keys, &later.keys, false)
        } else {
            (&later.keys, &self.keys, true)
        };
        let mut from = 0;
        for (key, ours) in few {
            // Both ascend, so the search begins where the last one ended.
            let Ok(at) = many[from..].binary_search_by_key(key, |(key, _)| *key) else { continue };
            from += at;
            let theirs = many[from].1;
            let (earlier, later) = if turned { (theirs, *ours) } else { (*ours, theirs) };
            found = strongest(found, earlier.conflict(later));
        }
        found
    }
}

/// What an index holds for each command: its name, or as much of it as is needed.
pub trait Entry: Copy + Ord {
    /// Whether this entry, newly added with at least as strong an access, makes `older` needless; and whether
    /// taking this one out takes out `older`. For plain names that is equality; for places in a log, "not
    /// below"; for instances of several logs, "of the same log, and not below".
    fn covers(&self, older: &Self) -> bool {
        self == older
    }

    /// This entry when it stands for `other`, which it covers, as well.
    #[must_use]
    fn join(self, _other: Self) -> Self {
        self
    }
}

/// Who has touched one key, or anything at all.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Last<I> {
    /// Those who read it.
    pub reads: Few<I>,
    /// Those who wrote it, reading or not.
    pub writes: Few<I>,
}

impl<I> Default for Last<I> {
    fn default() -> Last<I> {
        Last { reads: Few::default(), writes: Few::default() }
    }
}

impl<I: Entry> Last<I> {
    fn add(&mut self, mut i: I, touched: Touched) {
        if !touched.any() {
            return;
        }
        // Whoever conflicts with a reader conflicts with a writer, never the other way round.
        let strong = if touched.writes { None } else { Some(&mut self.reads) };
        let holders = strong.into_iter().chain([&mut self.writes]);
        for held in holders.flat_map(Few::as_mut_slice) {
            if held.covers(&i) {
                *held = held.join(i);
                return;
            }
        }
        let mut replace = |held: &mut Few<I>| {
            held.retain(|older| {
                let covered = i.covers(older);
                if covered {
                    i = i.join(*older);
                }
                !covered
            });
        };
        replace(&mut self.reads);
        if touched.writes {
            replace(&mut self.writes);
            self.writes.push(i);
        } else {
            self.reads.push(i);
        }
    }

    fn remove(&mut self, i: I) {
        self.reads.retain(|held| !i.covers(held));
        self.writes.retain(|held| !i.covers(held));
    }

    fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    fn against(&self, touched: Touched, out: &mut impl FnMut(I, Conflict)) {
        if touched.writes {
            self.reads.as_slice().iter().for_each(|i| out(*i, Conflict::ReadWrite));
            self.writes.as_slice().iter().for_each(|i| out(*i, Conflict::WriteWrite));
        } else if touched.reads {
            self.writes.as_slice().iter().for_each(|i| out(*i, Conflict::WriteRead));
        }
    }
}

/// From keys to those who touched them. How much it remembers is up to [`Entry::covers`]: every command by
/// name, or of each log the newest only. What is added costs a look-up a key; what touches everything is kept
/// once, and a summary of all keys answers a question about everything.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct ConflictIndex<I> {
    keys: Table<u64, Last<I>>,
    /// Who touched every key.
    all: Last<I>,
    /// Who touched anything.
    any: Last<I>,
}

impl<I> Default for ConflictIndex<I> {
    fn default() -> ConflictIndex<I> {
        ConflictIndex { keys: Table::default(), all: Last::default(), any: Last::default() }
    }
}

impl<I: Entry> ConflictIndex<I> {
    /// Notes that `i` touches this.
    pub fn add(&mut self, i: I, touches: &TouchSet) {
        for (key, touched) in &touches.keys {
            self.keys.or_insert_with(*key, Last::default).add(i, *touched);
        }
        if touches.all.any() {
            self.all.add(i, touches.all);
        }
        if !touches.is_empty() {
            self.any.add(i, touches.sum());
        }
    }

    /// Forgets `i`, and all that it covers, where it touched this.
    pub fn remove(&mut self, i: I, touches: &TouchSet) {
        for (key, _) in &touches.keys {
            self.keys.retain_one(*key, |last| {
                last.remove(i);
                !last.is_empty()
            });
        }
        self.all.remove(i);
        self.any.remove(i);
    }

    /// Names to `out` everyone that does not commute with this, and why; one who does not for several keys
    /// may be named several times.
    pub fn visit(&self, touches: &TouchSet, mut out: impl FnMut(I, Conflict)) {
        for (key, touched) in &touches.keys {
            if let Some(last) = self.keys.get(key) {
                last.against(*touched, &mut out);
            }
        }
        if touches.all.any() {
            self.any.against(touches.all, &mut out);
        }
        self.all.against(touches.sum(), &mut out);
    }

    /// Everyone that does not commute with this, ascending, each once, with the strongest reason.
    pub fn against(&self, touches: &TouchSet) -> impl Iterator<Item = (I, Conflict)> + use<I> {
        let mut found = BTreeMap::new();
        self.visit(touches, |i, conflict| {
            let known = found.entry(i).or_insert(None);
            *known = strongest(*known, Some(conflict));
        });
        found.into_iter().filter_map(|(i, conflict)| Some((i, conflict?)))
    }

    /// Who has touched this key; those who touched every key are in [`ConflictIndex::all`].
    pub fn last(&self, key: &[u8]) -> Option<&Last<I>> {
        self.keys.get(&key_hash(KeyspaceId(0), key))
    }

    /// Who has touched every key.
    pub fn all(&self) -> &Last<I> {
        &self.all
    }

    /// How many keys have been touched by anyone that is remembered.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nobody is remembered.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.any.is_empty()
    }
}

impl Entry for u32 {}
impl Entry for crate::CommandId {}

/// Of places in one log the newest is remembered.
impl Entry for crate::Slot {
    fn covers(&self, older: &Self) -> bool {
        self >= older
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Condition, Expiry, conflict};
    use crate::{Blob, Operation, Slot};
    use proptest::prelude::*;

    fn operation(kind: u8, a: u8, b: u8) -> Operation {
        let key = |number: u8| Blob::from(format!("k{number}"));
        match kind % 6 {
            0 => Operation::Get { key: key(a) },
            1 => Operation::Set {
                key: key(a),
                value: Blob::from("v"),
                condition: Condition::Always,
                expiry: Expiry::Clear,
                get: false,
            },
            2 => Operation::Del { keys: vec![key(a), key(b)].into() },
            3 => Operation::MGet { keys: vec![key(a), key(b)].into() },
            4 => Operation::DbSize,
            _ => Operation::Flush,
        }
    }

    fn touches(operation: &Operation) -> TouchSet {
        TouchSet::of(|visit| operation.visit(visit))
    }

    #[test]
    fn of_a_log_the_newest_is_remembered() {
        let mut index = ConflictIndex::default();
        let (read, write) = (touches(&operation(0, 1, 0)), touches(&operation(1, 1, 0)));
        index.add(Slot(1), &write);
        index.add(Slot(2), &read);
        index.add(Slot(3), &read);
        assert_eq!(index.against(&read).collect::<Vec<_>>(), [(Slot(1), Conflict::WriteRead)]);
        assert_eq!(
            index.against(&write).collect::<Vec<_>>(),
            [(Slot(1), Conflict::WriteWrite), (Slot(3), Conflict::ReadWrite)]
        );
        index.add(Slot(4), &write);
        let last = index.last(b"k1").unwrap();
        assert_eq!((last.reads.as_slice(), last.writes.as_slice()), (&[][..], &[Slot(4)][..]));
        index.add(Slot(2), &write);
        assert_eq!(index.last(b"k1").unwrap().writes.as_slice(), [Slot(4)], "late ones change nothing");
        index.remove(Slot(4), &write);
        assert!(index.is_empty());
    }

    proptest! {
        /// Against all pairs compared one by one.
        #[test]
        fn it_finds_exactly_those_that_do_not_commute(
            kinds in proptest::collection::vec((0u8..6, 0u8..4, 0u8..4), 1..20),
            gone in proptest::collection::vec(0usize..20, 0..5),
        ) {
            let operations: Vec<_> = kinds.iter().map(|(kind, a, b)| operation(*kind, *a, *b)).collect();
            let mut index = ConflictIndex::default();
            for (number, operation) in operations.iter().enumerate() {
                index.add(number as u32, &touches(operation));
            }
            for number in gone.iter().filter(|number| **number < operations.len()) {
                index.remove(*number as u32, &touches(&operations[*number]));
            }
            for later in &operations {
                for earlier in &operations {
                    prop_assert_eq!(touches(earlier).conflict(&touches(later)), conflict(earlier, later));
                    let left = touches(earlier).without(&touches(later));
                    for third in operations.iter().map(touches) {
                        let one = touches(earlier).conflict(&third).is_some();
                        let other = touches(later).conflict(&third).is_some();
                        prop_assert!(!one || other || left.conflict(&third).is_some());
                        prop_assert!(one || left.conflict(&third).is_none());
                    }
                }
                let expected: Vec<_> = (0..operations.len())
                    .filter(|number| !gone.contains(number))
                    .filter(|number| conflict(&operations[*number], later).is_some())
                    .map(|number| number as u32)
                    .collect();
                let found: Vec<_> = index.against(&touches(later)).map(|(number, _)| number).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
