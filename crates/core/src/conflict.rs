//! Who has touched what: what a command touches, and an index from keys to those who touched them.

use crate::command::{Access, Touch};
use crate::table::hash_unordered;
use crate::{Conflict, Few};
use hashbrown::{HashTable, hash_table};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};
use xxhash_rust::xxh3::xxh3_64;

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
                // Not `key_hash`, which tells where a key lies and so never changes: it goes byte by byte.
                self.keys.push((xxh3_64(key), Touched::of(access)));
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

    /// What `visit` names: about so many touches.
    pub fn of(expected: usize, visit: impl FnOnce(&mut dyn FnMut(Touch<'_>))) -> TouchSet {
        let mut touches = TouchSet { keys: Vec::with_capacity(expected), all: Touched::default() };
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
pub trait Entry: Copy {
    /// Whether this entry, newly added with at least as strong an access, makes `older` needless. For plain
    /// names that is equality; for places in a log, "not below"; for instances of several logs, "of the same
    /// log, and not below".
    fn covers(&self, older: &Self) -> bool;

    /// This entry when it stands for `other`, which it covers, as well.
    #[must_use]
    fn join(self, _other: Self) -> Self {
        self
    }
}

/// Who has touched one key, or anything at all, and whether by writing.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
struct Last<I>(Few<(I, bool)>);

impl<I> Default for Last<I> {
    fn default() -> Last<I> {
        Last(Few::default())
    }
}

impl<I: Entry> Last<I> {
    fn add(&mut self, mut i: I, touched: Touched) {
        if !touched.any() {
            return;
        }
        let writes = touched.writes;
        // Whoever conflicts with a reader conflicts with a writer, never the other way round.
        for (held, wrote) in self.0.as_mut_slice() {
            if (*wrote || !writes) && held.covers(&i) {
                *held = held.join(i);
                return;
            }
        }
        let mut covered = |(older, wrote): &(I, bool)| {
            let covers = (writes || !wrote) && i.covers(older);
            if covers {
                i = i.join(*older);
            }
            covers
        };
        match self.0.as_mut_slice() {
            // Mostly there is one, and it is replaced.
            [one] if covered(one) => *one = (i, writes),
            _ => {
                self.0.retain(|older| !covered(older));
                self.0.push((i, writes));
            }
        }
    }

    fn against(&self, touched: Touched, out: &mut impl FnMut(I)) {
        against(self.0.as_slice(), touched, out);
    }
}

fn against<I: Copy>(held: &[(I, bool)], touched: Touched, out: &mut impl FnMut(I)) {
    for (i, wrote) in held {
        if touched.writes || touched.reads && *wrote {
            out(*i);
        }
    }
}

/// No list of a key's own.
const ALONE: u32 = u32::MAX;

/// A key and who touched it: one, or those of a list.
///
/// Plain numbers throughout, which are written from registers to their place: built elsewhere and moved there in
/// one piece, an entry would have to wait until all that was written before it, at random places, is in the cache.
#[derive(Copy, Clone, Debug)]
struct Held<I> {
    key: u64,
    one: (I, bool),
    list: u32,
}

impl<I: Entry> Held<I> {
    /// Adds one who writes, or reads, this key; whether there was room for it.
    fn add(&mut self, i: I, writes: bool) -> bool {
        let (held, wrote) = self.one;
        // Whoever conflicts with a reader conflicts with a writer, never the other way round.
        if (wrote || !writes) && held.covers(&i) {
            self.one.0 = held.join(i);
        } else if (writes || !wrote) && i.covers(&held) {
            self.one = (i.join(held), writes);
        } else {
            return false;
        }
        true
    }
}

/// From keys to those who touched them. How much it remembers is up to [`Entry::covers`]: every command by
/// name, or of each log the newest only. What is added costs a look-up a key; what touches everything is kept
/// once, and a summary of all keys answers a question about everything.
///
/// Nobody is taken out: that would be one more look-up a key, in memory that nothing else needs by then. Whoever
/// has no use for most of it any more [clears](ConflictIndex::clear) it and adds the rest again.
#[derive(Clone, Debug)]
pub struct ConflictIndex<I> {
    /// Keys as they came in, each once. A new key, as most are, is written behind the last one: what is looked
    /// up at random is four bytes a key, of which many more lie near the processor.
    keys: Vec<Held<I>>,
    /// Where each is.
    places: HashTable<u32>,
    /// Who touched a key, where one does not stand for all.
    lists: Vec<Last<I>>,
    /// Who touched every key.
    all: Last<I>,
    /// Who touched anything.
    any: Last<I>,
}

impl<I> Default for ConflictIndex<I> {
    fn default() -> ConflictIndex<I> {
        ConflictIndex {
            keys: Vec::new(),
            places: HashTable::new(),
            lists: Vec::new(),
            all: Last::default(),
            any: Last::default(),
        }
    }
}

impl<I: Hash> Hash for ConflictIndex<I> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_unordered(self.keys.iter().map(|held| (held.key, self.of(held))), state);
        (&self.all, &self.any).hash(state);
    }
}

impl<I> ConflictIndex<I> {
    /// Who touched this key.
    fn of<'a>(&'a self, held: &'a Held<I>) -> &'a [(I, bool)] {
        match held.list {
            ALONE => std::slice::from_ref(&held.one),
            list => self.lists[list as usize].0.as_slice(),
        }
    }
}

impl<I: Entry> ConflictIndex<I> {
    /// Notes that `i` touches this.
    pub fn add(&mut self, i: I, touches: &TouchSet) {
        let ConflictIndex { keys, places, lists, .. } = self;
        for (key, touched) in &touches.keys {
            if !touched.any() {
                continue;
            }
            let (key, writes) = (*key, touched.writes);
            // Keys are hashes, and their own.
            let found = places.entry(key, |at| keys[*at as usize].key == key, |at| keys[*at as usize].key);
            match found {
                hash_table::Entry::Occupied(at) => {
                    let held = &mut keys[*at.get() as usize];
                    if held.list != ALONE {
                        lists[held.list as usize].add(i, *touched);
                    } else if !held.add(i, writes) {
                        // Fewer than keys.
                        held.list = lists.len() as u32;
                        let mut list = Last(Few::one(held.one));
                        list.add(i, *touched);
                        lists.push(list);
                    }
                }
                hash_table::Entry::Vacant(free) => {
                    // 2^32 keys would take more than 128 GiB.
                    free.insert(keys.len() as u32);
                    keys.push(Held { key, one: (i, writes), list: ALONE });
                }
            }
        }
        self.all.add(i, touches.all);
        self.any.add(i, touches.sum());
    }

    /// Forgets everyone.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.places.clear();
        self.lists.clear();
        (self.all, self.any) = (Last::default(), Last::default());
    }

    /// Names to `out` everyone that does not commute with this; one who does not for several keys may be named
    /// several times.
    pub fn visit(&self, touches: &TouchSet, mut out: impl FnMut(I)) {
        for (key, touched) in &touches.keys {
            if let Some(at) = self.places.find(*key, |at| self.keys[*at as usize].key == *key) {
                against(self.of(&self.keys[*at as usize]), *touched, &mut out);
            }
        }
        self.any.against(touches.all, &mut out);
        self.all.against(touches.sum(), &mut out);
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
        TouchSet::of(1, |visit| operation.visit(visit))
    }

    /// A command by its name.
    impl Entry for u32 {
        fn covers(&self, older: &Self) -> bool {
            self == older
        }
    }

    /// Of places in one log the newest is remembered.
    impl Entry for Slot {
        fn covers(&self, older: &Self) -> bool {
            self >= older
        }
    }

    fn against<I: Entry + Ord>(index: &ConflictIndex<I>, touches: &TouchSet) -> Vec<I> {
        let mut found = Vec::new();
        index.visit(touches, |i| found.push(i));
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn of_a_log_the_newest_is_remembered() {
        let mut index = ConflictIndex::default();
        let (read, write) = (touches(&operation(0, 1, 0)), touches(&operation(1, 1, 0)));
        index.add(Slot(1), &write);
        index.add(Slot(2), &read);
        index.add(Slot(3), &read);
        assert_eq!(against(&index, &read), [Slot(1)]);
        assert_eq!(against(&index, &write), [Slot(1), Slot(3)]);
        index.add(Slot(4), &write);
        assert_eq!((against(&index, &read), against(&index, &write)), (vec![Slot(4)], vec![Slot(4)]));
        index.add(Slot(2), &write);
        assert_eq!(against(&index, &write), [Slot(4)], "late ones change nothing");
        index.clear();
        assert_eq!(against(&index, &write), []);
    }

    proptest! {
        /// Against all pairs compared one by one.
        #[test]
        fn it_finds_exactly_those_that_do_not_commute(
            kinds in proptest::collection::vec((0u8..6, 0u8..4, 0u8..4), 1..20),
            gone in 0usize..20,
        ) {
            let operations: Vec<_> = kinds.iter().map(|(kind, a, b)| operation(*kind, *a, *b)).collect();
            let mut index = ConflictIndex::default();
            for (number, operation) in operations.iter().enumerate() {
                if number == gone {
                    index.clear();
                }
                index.add(number as u32, &touches(operation));
            }
            let gone = if gone < operations.len() { gone } else { 0 };
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
                let expected: Vec<_> = (gone..operations.len())
                    .filter(|number| conflict(&operations[*number], later).is_some())
                    .map(|number| number as u32)
                    .collect();
                prop_assert_eq!(against(&index, &touches(later)), expected);
            }
        }
    }
}
