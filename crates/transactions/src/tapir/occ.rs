//! Optimistic concurrency control at one replica: what is prepared, what was read, and the check against both.

use super::message::{Part, Vote};
use crate::request::{TxnId, Update};
use isochrone_core::{Blob, Malformed};
use isochrone_store::versions::{Version, Versions};
use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher as _};

/// Reads that are remembered by key, in each of two generations; older ones are remembered together.
const GENERATION: usize = 1 << 18;

/// The transactions that are prepared, by key.
#[derive(Clone, Hash, Debug, Default)]
pub struct Prepared {
    reads: BTreeMap<Blob, Vec<(Version, TxnId)>>,
    writes: BTreeMap<Blob, Vec<(Version, TxnId)>>,
}

impl Prepared {
    /// Takes one in.
    pub fn insert(&mut self, txn: TxnId, at: Version, part: &Part) {
        for (key, _) in &part.reads {
            self.reads.entry(key.clone()).or_default().push((at, txn));
        }
        self.insert_writes(txn, at, part);
    }

    /// Counts one as writing its keys at another timestamp besides.
    pub fn insert_writes(&mut self, txn: TxnId, at: Version, part: &Part) {
        for update in &part.writes {
            self.writes.entry(update.key.clone()).or_default().push((at, txn));
        }
    }

    /// Takes one out.
    pub fn remove(&mut self, txn: TxnId, part: &Part) {
        let keys = part.reads.iter().map(|(key, _)| key);
        keys.for_each(|key| forget(&mut self.reads, key, txn));
        part.writes.iter().for_each(|update| forget(&mut self.writes, &update.key, txn));
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    /// The keys that they may write.
    pub fn written(&self) -> impl Iterator<Item = &Blob> {
        self.writes.keys()
    }

    /// Another transaction that is prepared to write this key, the latest.
    fn writer(&self, key: &Blob, txn: TxnId, counts: impl Fn(Version) -> bool) -> Option<Version> {
        latest(self.writes.get(key)?, txn, counts)
    }

    fn reader(&self, key: &Blob, txn: TxnId, counts: impl Fn(Version) -> bool) -> Option<Version> {
        latest(self.reads.get(key)?, txn, counts)
    }
}

fn latest(held: &[(Version, TxnId)], txn: TxnId, counts: impl Fn(Version) -> bool) -> Option<Version> {
    let others = held.iter().filter(|(at, other)| *other != txn && counts(*at));
    others.map(|(at, _)| *at).max()
}

fn forget(keys: &mut BTreeMap<Blob, Vec<(Version, TxnId)>>, key: &Blob, txn: TxnId) {
    if let Some(held) = keys.get_mut(key) {
        held.retain(|(_, other)| *other != txn);
        if held.is_empty() {
            keys.remove(key);
        }
    }
}

/// When keys were last read by transactions that committed. What is not remembered of a key counts as read at `floor`:
/// that refuses more than need be, and never less.
#[derive(Clone, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Reads {
    recent: BTreeMap<Blob, Version>,
    older: BTreeMap<Blob, Version>,
    floor: Version,
}

impl Reads {
    /// A committed transaction has read this key at this timestamp.
    pub fn note(&mut self, key: &Blob, at: Version) {
        if self.recent.len() >= GENERATION && !self.recent.contains_key(key) {
            let gone = std::mem::replace(&mut self.older, std::mem::take(&mut self.recent));
            self.floor = gone.into_values().fold(self.floor, Version::max);
        }
        let last = self.recent.entry(key.clone()).or_default();
        *last = at.max(*last);
    }

    /// When it was last read.
    pub fn last(&self, key: &Blob) -> Version {
        let of = |keys: &BTreeMap<Blob, Version>| keys.get(key).copied().unwrap_or(self.floor);
        of(&self.recent).max(of(&self.older))
    }

    /// All of them, and the floor, for a snapshot.
    pub fn list(&self) -> (Vec<(Blob, Version)>, Version) {
        let all = self.older.iter().chain(&self.recent);
        (all.map(|(key, at)| (key.clone(), *at)).collect(), self.floor)
    }

    /// Nothing that is not remembered was read behind this.
    pub fn raise(&mut self, floor: Version) {
        self.floor = self.floor.max(floor);
    }
}

/// Committed data: the latest versions, and when they were read.
///
/// Keys that were deleted are kept with the version that deletes them: without it, a write that comes late would take
/// the place of its deletion.
#[derive(Clone, Hash, Debug, Default)]
pub struct Data {
    store: Versions,
    deleted: BTreeMap<Blob, Version>,
    reads: Reads,
}

impl Data {
    /// Of a store in which nothing is written yet.
    pub fn new(store: Versions) -> Data {
        Data { store, ..Data::default() }
    }

    /// The latest version of a key and its value.
    pub fn latest(&self, key: &Blob) -> (Version, Option<&Blob>) {
        let (version, value) = self.store.latest(key);
        match self.deleted.get(key) {
            Some(deleted) if *deleted >= version => (*deleted, None),
            _ => (version, value),
        }
    }

    /// Takes in what a transaction did. A write that is older than what a key has is passed over: whoever might have
    /// read it has been refused, so nobody can tell.
    pub fn apply(&mut self, part: &Part, at: Version) {
        for (key, _) in &part.reads {
            self.reads.note(key, at);
        }
        for update in &part.writes {
            if self.latest(&update.key).0 >= at {
                continue;
            }
            match update.value {
                Some(_) => self.deleted.remove(&update.key),
                None => self.deleted.insert(update.key.clone(), at),
            };
            self.store.put(&update.key, at, update.value.clone());
        }
        // Nobody asks for what is superseded.
        self.store.trim(at);
    }

    /// A number that equal latest versions agree on: it takes a look at each key.
    pub fn digest(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.store.iter().for_each(|latest| latest.hash(&mut hasher));
        hasher.finish()
    }

    /// The versions, for a snapshot.
    pub fn store(&self) -> &Versions {
        &self.store
    }

    /// All but the versions, for a snapshot.
    pub fn margin(&self) -> Margin {
        let (reads, floor) = self.reads.list();
        let deleted = self.deleted.iter().map(|(key, at)| (key.clone(), *at)).collect();
        Margin { deleted, unused: Default::default(), reads, floor }
    }

    /// Takes in a part of what was beside the versions.
    pub fn absorb(&mut self, margin: Margin) {
        self.deleted.extend(margin.deleted);
        self.reads.raise(margin.floor);
        for (key, at) in &margin.reads {
            self.reads.note(key, *at);
        }
    }

    /// Takes in a chunk of versions.
    ///
    /// # Errors
    /// Bytes that are no such chunk.
    pub fn absorb_store(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        self.store.absorb(chunk)
    }
}

/// What is known beside the versions of keys, or a part of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Margin {
    /// Deleted keys.
    pub deleted: Vec<(Blob, Version)>,
    /// Empty: snapshots of earlier versions have something in this place.
    pub unused: (Vec<(Version, Blob)>, Version),
    /// When keys were read.
    pub reads: Vec<(Blob, Version)>,
    /// When all others were, at the latest.
    pub floor: Version,
}

/// How a check is made.
#[derive(Copy, Clone, Debug)]
pub struct Rules {
    /// Whether any prepared write of a key stands in the way of its readers, not only an earlier one; and a later one in
    /// that of its writers.
    pub strict: bool,
    /// The planted bug: what is prepared is not looked at.
    pub blind: bool,
    /// The planted bug: what was read is not compared.
    pub stale: bool,
}

/// Whether a transaction may commit at a timestamp, as far as one replica knows (`occ_check`).
///
/// Equal timestamps count as in each other's way, so that nothing rests on their being unique.
pub fn check(data: &Data, prepared: &Prepared, txn: TxnId, part: &Part, at: Version, rules: Rules) -> Vote {
    for (key, seen) in &part.reads {
        if *seen < data.latest(key).0 && !rules.stale {
            return Vote::Abort;
        }
        if !rules.blind && prepared.writer(key, txn, |other| rules.strict || other <= at).is_some() {
            return Vote::Abstain;
        }
    }
    for Update { key, .. } in &part.writes {
        let committed = data.latest(key).0.max(data.reads.last(key));
        if at <= committed {
            return Vote::Retry(committed);
        }
        if rules.blind {
            continue;
        }
        if let Some(other) = prepared.writer(key, txn, |other| other == at || (rules.strict && other >= at)) {
            return Vote::Retry(other);
        }
        if prepared.reader(key, txn, |other| other >= at).is_some() {
            return Vote::Abstain;
        }
    }
    Vote::Ok
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::{ClientId, ProcessId, wire};

    const STRICT: Rules = Rules { strict: true, blind: false, stale: false };
    const LOOSE: Rules = Rules { strict: false, ..STRICT };

    fn txn(sequence: u64) -> TxnId {
        TxnId { client: ClientId { process: ProcessId::from_u64(1), incarnation: 1 }, sequence }
    }

    fn part(reads: &[(&str, u64)], writes: &[&str]) -> Part {
        let reads = reads.iter().map(|(key, version)| (Blob::from(*key), Version(*version)));
        let write = |key: &&str| Update { key: Blob::from(*key), value: Some(Blob::from("v")) };
        Part { reads: reads.collect(), writes: writes.iter().map(write).collect() }
    }

    /// `x` was written at 10 and read at 20; transaction 1 is prepared to read `r`, transaction 2 to write `w`, both
    /// at 50.
    fn state() -> (Data, Prepared) {
        let (mut data, mut prepared) = (Data::default(), Prepared::default());
        data.apply(&part(&[], &["x"]), Version(10));
        data.apply(&part(&[("x", 10)], &[]), Version(20));
        prepared.insert(txn(1), Version(50), &part(&[("r", 0)], &[]));
        prepared.insert(txn(2), Version(50), &part(&[], &["w"]));
        (data, prepared)
    }

    #[test]
    fn every_rule_is_the_published_one() {
        let (data, prepared) = state();
        let ask = |of: &Part, at: u64, rules: Rules| check(&data, &prepared, txn(9), of, Version(at), rules);
        let read = |key: &str, seen: u64| part(&[(key, seen)], &[]);
        let write = |key: &str| part(&[], &[key]);
        assert_eq!(ask(&read("x", 10), 30, STRICT), Vote::Ok);
        assert_eq!(ask(&read("x", 0), 30, STRICT), Vote::Abort);
        assert_eq!(ask(&read("w", 0), 30, STRICT), Vote::Abstain, "any prepared write");
        assert_eq!(ask(&read("w", 0), 30, LOOSE), Vote::Ok, "a later one does not count");
        assert_eq!(ask(&read("w", 0), 60, LOOSE), Vote::Abstain);
        assert_eq!(ask(&write("x"), 5, STRICT), Vote::Retry(Version(20)));
        assert_eq!(ask(&write("x"), 15, STRICT), Vote::Retry(Version(20)), "read at 20");
        assert_eq!(ask(&write("x"), 21, STRICT), Vote::Ok);
        assert_eq!(ask(&write("w"), 40, STRICT), Vote::Retry(Version(50)));
        assert_eq!(ask(&write("w"), 40, LOOSE), Vote::Ok);
        assert_eq!(ask(&write("w"), 60, STRICT), Vote::Ok);
        assert_eq!(ask(&write("r"), 40, STRICT), Vote::Abstain);
        assert_eq!(ask(&write("r"), 60, STRICT), Vote::Ok);
        assert_eq!(ask(&read("r", 0), 40, STRICT), Vote::Ok, "reads do not stand in each other's way");
        let own = check(&data, &prepared, txn(2), &write("w"), Version(50), STRICT);
        assert_eq!(own, Vote::Ok, "a transaction does not stand in its own way");
    }

    #[test]
    fn equal_timestamps_stand_in_each_others_way() {
        let (data, prepared) = state();
        let ask = |of: &Part, at: u64| check(&data, &prepared, txn(9), of, Version(at), LOOSE);
        assert_eq!(ask(&part(&[], &["x"]), 20), Vote::Retry(Version(20)));
        assert_eq!(ask(&part(&[], &["r"]), 50), Vote::Abstain);
        assert_eq!(ask(&part(&[("w", 0)], &[]), 50), Vote::Abstain);
        assert_eq!(ask(&part(&[], &["w"]), 50), Vote::Retry(Version(50)));
    }

    #[test]
    fn what_comes_late_is_passed_over_and_a_deletion_stays() {
        let mut data = Data::default();
        data.apply(&part(&[], &["x"]), Version(10));
        data.apply(&part(&[], &["x"]), Version(5));
        assert_eq!(data.latest(&Blob::from("x")).0, Version(10));
        let gone = Part { reads: vec![], writes: vec![Update { key: Blob::from("x"), value: None }] };
        data.apply(&gone, Version(20));
        for at in 21..200 {
            data.apply(&part(&[], &["y"]), Version(at));
        }
        assert_eq!(data.latest(&Blob::from("x")), (Version(20), None));
        data.apply(&part(&[], &["x"]), Version(15));
        assert_eq!(data.latest(&Blob::from("x")), (Version(20), None));
        data.apply(&part(&[], &["x"]), Version(300));
        assert_eq!(data.latest(&Blob::from("x")).0, Version(300));
    }

    #[test]
    fn snapshots_of_earlier_versions_are_read() {
        let (key, at) = (Blob::from("x"), Version(7));
        let late = vec![(at, key.clone())];
        let former = (vec![(key.clone(), at)], late, Version(9), vec![(key.clone(), Version(8))], Version(3));
        let margin: Margin = wire::decode(&wire::encode(&former)).unwrap();
        assert_eq!((margin.deleted, margin.floor), (vec![(key.clone(), at)], Version(3)));
        assert_eq!(margin.reads, [(key, Version(8))]);
    }

    #[test]
    fn old_reads_are_remembered_together() {
        let mut reads = Reads::default();
        for number in 0..=2 * GENERATION as u64 {
            reads.note(&Blob::from(number.to_le_bytes().to_vec()), Version(number + 1));
        }
        let last = |number: u64| reads.last(&Blob::from(number.to_le_bytes().to_vec()));
        assert_eq!(last(0), Version(GENERATION as u64), "forgotten, and counted as the latest forgotten");
        assert_eq!(last(GENERATION as u64), Version(GENERATION as u64 + 1));
        assert_eq!(last(1 << 40), Version(GENERATION as u64), "one that was never read");
    }
}
