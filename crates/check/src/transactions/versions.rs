//! Who wrote what, who read it, and in which order the versions of each key stood, as far as the history tells.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::absences::{Absence, Absent};
use super::history::{Access, Transactions, text};
use super::{Anomaly, Isolation, Phenomenon};
use crate::history::{Outcome, Value};
use crate::planted::{Mutation, planted};
use crate::report::CheckError;

/// A version of a key: what one write left there.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// The transaction, by its index in the history.
    pub(super) of: u32,
    pub(super) key: u32,
    /// Nothing: it deleted the key.
    pub(super) value: Option<Arc<str>>,
    /// Whether the transaction wrote nothing else to the key behind it: only such a version is anybody's to see.
    pub(super) last: bool,
}

impl Version {
    /// What was written; nothing for a deletion.
    pub(super) fn value(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }
}

/// What a transaction found at a key that it had not written itself.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Reading {
    pub(super) of: u32,
    pub(super) key: u32,
    /// The version, which may be a deletion; of a list the last element. `None`: the key had never been written.
    pub(super) seen: Option<u32>,
    /// Whether a predicate covered the key and nothing was found.
    pub(super) predicate: bool,
    /// Where it could be several absences: which of [`Versions::absences`] was narrowed down to it.
    pub(super) absence: Option<u32>,
}

/// What is known of one key.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: Arc<str>,
    /// Whether it holds a list.
    pub(super) list: bool,
    /// Of a list, the longest that was read: its elements in order.
    pub(super) longest: Vec<u32>,
    /// Versions written by transactions that took effect, in the order of the history.
    pub(super) written: Vec<u32>,
}

/// See the module's page.
#[derive(Clone, Default)]
pub(super) struct Versions {
    pub(super) keys: Vec<Key>,
    pub(super) versions: Vec<Version>,
    pub(super) readings: Vec<Reading>,
    /// What transactions found absent where that may be several versions.
    pub(super) absences: Vec<Absence>,
    /// By key, what one of these may be, in the order of the row where that is known: deletions, or that it had never
    /// been written.
    pub(super) candidates: FxHashMap<u32, Vec<Option<u32>>>,
    /// Under which promise each round of narrowing was done; see [`Versions::before`].
    pub(super) rounds: Vec<Isolation>,
    /// Which transactions took effect, surely: committed, or what they wrote was seen.
    pub(super) effective: Vec<bool>,
    /// The version before, where there is one, and one that surely comes behind it, with nothing between them that
    /// anybody has seen.
    pub(super) follows: Vec<(Option<u32>, u32)>,
    /// Versions that come behind a key's first state, with nothing known to be before them, by key.
    firsts: Vec<Vec<u32>>,
    /// By version, those that `follows` has behind it.
    next: Vec<Vec<u32>>,
}

impl Versions {
    /// Reads a history, of which these transactions of unknown outcome took effect, as others do whose writes were
    /// read. The inner error is an anomaly that needs no cycle.
    ///
    /// # Errors
    /// A history that does not say what its answers mean.
    pub(super) fn of(
        history: &Transactions,
        happened: &[usize],
    ) -> Result<Result<Versions, Box<Anomaly>>, CheckError> {
        let mut draft = Draft::default();
        draft.take_writes(history)?;
        draft.refuse_scans_of_lists(history)?;
        let outcome = draft.find_effective(history, happened).and_then(|()| draft.take_readings(history));
        if let Err(anomaly) = outcome {
            return Ok(Err(Box::new(anomaly)));
        }
        let mut versions = draft.done;
        versions.order(history)?;
        Ok(Ok(versions))
    }

    /// Where the store says that a version stands among those of its key.
    pub(super) fn number(&self, history: &Transactions, version: u32) -> Option<u64> {
        history.list[self.versions[version as usize].of as usize].version
    }

    /// What is known to come behind a version, or behind a key that was never written.
    pub(super) fn behind(&self, key: u32, seen: Option<u32>) -> &[u32] {
        match seen {
            Some(seen) => &self.next[seen as usize],
            None => &self.firsts[key as usize],
        }
    }

    /// Puts the versions of each key in order, as far as that is known: again, when more is known of what was read.
    pub(super) fn order(&mut self, history: &Transactions) -> Result<(), CheckError> {
        let mut before = vec![false; self.versions.len()];
        let mut follows = Vec::new();
        // A transaction that read a version and wrote the next one: nothing came between.
        let mut read: FxHashMap<(u32, u32), Option<u32>> = FxHashMap::default();
        for reading in &self.readings {
            read.insert((reading.of, reading.key), reading.seen);
        }
        for key in &self.keys {
            let mut link = |earlier: Option<u32>, later: u32| {
                before[later as usize] = true;
                follows.push((earlier, later));
            };
            if key.list {
                let mut earlier = None;
                for element in &key.longest {
                    link(earlier, *element);
                    earlier = Some(*element);
                }
                // What nobody has seen stands behind the longest list, in no order that matters but for what the store says.
                let seen: BTreeSet<u32> = key.longest.iter().copied().collect();
                if !planted(Mutation::UnseenAppendsIgnored) {
                    key.written
                        .iter()
                        .filter(|version| !seen.contains(version))
                        .for_each(|version| link(earlier, *version));
                }
                if planted(Mutation::AppendNumbersIgnored) {
                    continue;
                }
            }
            let number = |version: u32| self.number(history, version);
            let mut numbered: Vec<(u64, u32)> =
                key.written.iter().filter_map(|version| Some((number(*version)?, *version))).collect();
            numbered.sort_unstable();
            let of = |version: u32| self.versions[version as usize].of;
            let mut earlier: Option<(u64, u32)> = None;
            for (number, version) in numbered {
                // A transaction may append several elements, which stand in its own order.
                if earlier.is_some_and(|(other, before)| other == number && of(before) != of(version)) {
                    return Err(CheckError::Malformed {
                        line: of(version) as usize + 1,
                        problem: "another transaction wrote one of its keys with the same `version`; versions of a key differ",
                    });
                }
                let before = earlier.map(|(_, version)| version);
                // The first of a list has its place by what was read.
                if before.is_some() || !key.list {
                    link(before, version);
                }
                earlier = Some((number, version));
            }
            if key.list {
                continue;
            }
            for version in &key.written {
                if let Some(seen) = read.get(&(of(*version), self.versions[*version as usize].key))
                    && !planted(Mutation::UpdatesUnordered)
                {
                    link(*seen, *version);
                }
            }
        }
        let mut firsts = vec![Vec::new(); self.keys.len()];
        for (place, key) in self.keys.iter().enumerate() {
            firsts[place].extend(key.written.iter().filter(|version| !before[**version as usize]));
        }
        for (earlier, later) in &follows {
            if earlier.is_none() {
                firsts[self.versions[*later as usize].key as usize].push(*later);
            }
        }
        let mut next = vec![Vec::new(); self.versions.len()];
        for (earlier, later) in &follows {
            if let Some(earlier) = earlier {
                next[*earlier as usize].push(*later);
            }
        }
        (self.follows, self.firsts, self.next) = (follows, firsts, next);
        Ok(())
    }
}

#[derive(Default)]
struct Draft {
    done: Versions,
    names: FxHashMap<Arc<str>, u32>,
    /// The same by name, in order.
    sorted: Vec<(Arc<str>, u32)>,
    /// By key, the versions that values are; looked up only.
    wrote: Vec<FxHashMap<Arc<str>, u32>>,
}

impl Draft {
    fn key(&mut self, name: &Arc<str>) -> u32 {
        let keys = &mut self.done.keys;
        *self.names.entry(Arc::clone(name)).or_insert_with(|| {
            keys.push(Key { name: Arc::clone(name), list: false, longest: Vec::new(), written: Vec::new() });
            // A history of more keys than that does not fit into memory.
            (keys.len() - 1) as u32
        })
    }

    fn take_writes(&mut self, history: &Transactions) -> Result<(), CheckError> {
        let mut kinds: Vec<Option<bool>> = Vec::new();
        for (index, transaction) in history.list.iter().enumerate() {
            let malformed = |problem| CheckError::Malformed { line: index + 1, problem };
            if transaction.outcome == Outcome::Ok && transaction.returned.is_none() {
                return Err(malformed(
                    "its outcome is ok but it has no time of return; without one the outcome is unknown",
                ));
            }
            let mut own: Vec<(u32, u32)> = Vec::new();
            for access in &transaction.accesses {
                if let Access::Scan(_, found) = access {
                    found.keys().for_each(|key| {
                        self.key(key);
                    });
                    continue;
                }
                let key = self.key(access.key());
                kinds.resize(self.done.keys.len(), None);
                self.wrote.resize_with(self.done.keys.len(), FxHashMap::default);
                let (value, list) = match access {
                    Access::Read(_, Some(Value::List(_))) => (None, true),
                    Access::Read(_, Some(Value::Text(_) | Value::Integer(_))) => (None, false),
                    Access::Read(..) | Access::Scan(..) => continue,
                    Access::Write(_, value) => (Some(Some(value)), false),
                    Access::Append(_, value) => (Some(Some(value)), true),
                    Access::Delete(_) => (Some(None), false),
                };
                if *kinds[key as usize].get_or_insert(list) != list {
                    return Err(malformed(
                        "one of its keys holds a value here and a list elsewhere; a key is written or appended to, not both",
                    ));
                }
                self.done.keys[key as usize].list = list;
                let Some(value) = value else { continue };
                let version = self.done.versions.len() as u32;
                let twice =
                    value.and_then(|value| self.wrote[key as usize].insert(Arc::clone(value), version));
                if twice.is_some() {
                    return Err(malformed(
                        "it writes a value that was written to the same key before; every write needs a value of its own, \
                         or nobody can tell what was read",
                    ));
                }
                if let Some((_, earlier)) = own.iter_mut().find(|(other, _)| *other == key) {
                    self.done.versions[*earlier as usize].last = false;
                    *earlier = version;
                } else {
                    own.push((key, version));
                }
                self.done.versions.push(Version { of: index as u32, key, value: value.cloned(), last: true });
            }
        }
        self.wrote.resize_with(self.done.keys.len(), FxHashMap::default);
        self.sorted = self.names.iter().map(|(name, key)| (Arc::clone(name), *key)).collect();
        self.sorted.sort_unstable();
        Ok(())
    }

    /// The keys of the history that begin so.
    fn covered(&self, prefix: &str) -> impl Iterator<Item = (&Arc<str>, u32)> {
        let from = self.sorted.partition_point(|(name, _)| **name < *prefix);
        let covered = self.sorted[from..].iter().map(|(name, key)| (name, *key));
        covered.take_while(move |(name, _)| name.starts_with(prefix))
    }

    fn refuse_scans_of_lists(&self, history: &Transactions) -> Result<(), CheckError> {
        for (index, transaction) in history.list.iter().enumerate() {
            for access in &transaction.accesses {
                let Access::Scan(prefix, _) = access else { continue };
                if self.covered(prefix).any(|(_, key)| self.done.keys[key as usize].list) {
                    return Err(CheckError::Malformed {
                        line: index + 1,
                        problem: "its scan covers a key that holds a list; scans are over keys that hold values",
                    });
                }
            }
        }
        Ok(())
    }

    /// The version that a value is.
    fn find(&self, key: u32, value: &Value) -> Option<u32> {
        self.wrote[key as usize].get(&*text(value)?).copied()
    }

    /// Everything that an access saw of others and of its own transaction: key, value, and the version; `None` for what
    /// nobody wrote.
    fn seen<'a>(
        &'a self,
        access: &'a Access,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Value, Option<u32>)> {
        access.found().map(|(name, value)| {
            let key = self.names.get(name).copied();
            (name, value, key.and_then(|key| self.find(key, value)))
        })
    }

    /// Which transactions took effect: those that committed, those that are known to, and whose writes they saw.
    fn find_effective(&mut self, history: &Transactions, happened: &[usize]) -> Result<(), Anomaly> {
        let committed = |outcome| outcome == Outcome::Ok;
        let mut effective: Vec<bool> = history.list.iter().map(|one| committed(one.outcome)).collect();
        happened.iter().for_each(|index| effective[*index] = true);
        let mut waiting: Vec<usize> = (0..effective.len()).filter(|index| effective[*index]).collect();
        while let Some(reader) = waiting.pop() {
            for access in &history.list[reader].accesses {
                for (key, value, version) in self.seen(access) {
                    let Some(version) = version else {
                        return Err(Anomaly::local(
                            Phenomenon::NobodyWrote,
                            &[reader],
                            format!(
                                "line {} has \"{}\", which nobody wrote",
                                reader + 1,
                                told(access, key, value)
                            ),
                        ));
                    };
                    let writer = self.done.versions[version as usize].of as usize;
                    if history.list[writer].outcome == Outcome::Failed
                        && !planted(Mutation::AbortedReadAccepted)
                    {
                        return Err(Anomaly::local(
                            Phenomenon::G1a,
                            &[writer, reader],
                            format!(
                                "line {} has \"{}\", but line {}, which wrote {:?} there, was aborted",
                                reader + 1,
                                told(access, key, value),
                                writer + 1,
                                self.done.versions[version as usize].value()
                            ),
                        ));
                    }
                    if history.list[writer].outcome == Outcome::Unknown
                        && !effective[writer]
                        && !planted(Mutation::SeenUnknownIgnored)
                    {
                        effective[writer] = true;
                        waiting.push(writer);
                    }
                }
            }
        }
        for (version, number) in self.done.versions.iter().zip(0..) {
            if effective[version.of as usize] && (version.last || self.done.keys[version.key as usize].list) {
                self.done.keys[version.key as usize].written.push(number);
            }
        }
        self.done.effective = effective;
        Ok(())
    }

    fn take_readings(&mut self, history: &Transactions) -> Result<(), Anomaly> {
        let mut absent = Vec::new();
        // Versions are numbered as the history has their writes.
        let mut version = 0;
        for (index, transaction) in history.list.iter().enumerate() {
            // What it has written itself so far, by key.
            let mut own: Vec<(u32, Vec<u32>)> = Vec::new();
            for access in &transaction.accesses {
                if !access.reads() {
                    let key = self.done.versions[version as usize].key;
                    match own.iter_mut().find(|(other, _)| *other == key) {
                        Some((_, mine)) => mine.push(version),
                        None => own.push((key, vec![version])),
                    }
                    version += 1;
                } else if self.done.effective[index] {
                    self.take_access(index, access, &own, &mut absent)?;
                }
            }
        }
        let doubtful = self.doubtful(history);
        self.done.take_absences(history, absent, &doubtful);
        let mut readings = std::mem::take(&mut self.done.readings);
        readings.sort_unstable_by_key(|reading| (reading.of, reading.key, reading.seen, reading.predicate));
        readings.dedup();
        self.done.readings = readings;
        Ok(())
    }

    /// Transactions of which nobody knows whether they took effect.
    fn doubtful(&self, history: &Transactions) -> BTreeSet<u32> {
        let unknown =
            |index: &usize| history.list[*index].outcome == Outcome::Unknown && !self.done.effective[*index];
        let unknown: Vec<usize> = (0..history.list.len()).filter(unknown).collect();
        let mut read = Vec::new();
        for index in &unknown {
            for (key, _, version) in history.list[*index].accesses.iter().flat_map(|access| self.seen(access))
            {
                let key = self.names.get(key).copied();
                read.extend(key.zip(version).map(|(key, version)| (*index as u32, key, version)));
            }
        }
        let overtaken = self.done.overtaken(&read);
        let doubtful = unknown.into_iter().map(|index| index as u32);
        match planted(Mutation::DoubtfulForgotten) {
            true => BTreeSet::new(),
            false => doubtful.filter(|index| !overtaken.contains(index)).collect(),
        }
    }

    /// Takes in what one access read; what it found absent goes to `absent`.
    fn take_access(
        &mut self,
        index: usize,
        access: &Access,
        own: &[(u32, Vec<u32>)],
        absent: &mut Vec<Absent>,
    ) -> Result<(), Anomaly> {
        let mine = |key: u32| own.iter().find(|(other, _)| *other == key).map_or(&[][..], |(_, mine)| mine);
        match access {
            Access::Read(name, Some(value)) => {
                let key = self.key(name);
                if self.done.keys[key as usize].list {
                    return self.take_list(index, access, key, mine(key));
                }
                let seen = self.find(key, value);
                self.take_value(index, (access, name, value), key, seen, mine(key), absent)
            }
            Access::Scan(prefix, found) if !planted(Mutation::ScansIgnored) => {
                let covered: Vec<(Arc<str>, u32)> =
                    self.covered(prefix).map(|(name, key)| (Arc::clone(name), key)).collect();
                for (name, key) in covered {
                    let value = found.get(&name).unwrap_or(&Value::Nil);
                    let seen = self.find(key, value);
                    self.take_value(index, (access, &name, value), key, seen, mine(key), absent)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Takes in what a transaction found at one key that holds a value, having itself written `mine` there before.
    fn take_value(
        &mut self,
        index: usize,
        (access, name, value): (&Access, &Arc<str>, &Value),
        key: u32,
        seen: Option<u32>,
        mine: &[u32],
        absent: &mut Vec<Absent>,
    ) -> Result<(), Anomaly> {
        let of = index as u32;
        if let Some(own) = mine.last() {
            let expected = self.done.versions[*own as usize].value.is_some().then_some(*own);
            if seen == expected || planted(Mutation::OwnWritesForgotten) {
                return Ok(());
            }
            let text = format!(
                "line {} has \"{}\", but had written something else itself",
                index + 1,
                told(access, name, value)
            );
            return Err(Anomaly::local(Phenomenon::Internal, &[index], text));
        }
        match seen {
            Some(version) => {
                self.done.readings.push(Reading { of, key, seen, predicate: false, absence: None });
                self.not_between(index, &told(access, name, value), version)
            }
            None => {
                absent.push(Absent { of, key, predicate: matches!(access, Access::Scan(..)) });
                Ok(())
            }
        }
    }

    /// Takes in one read of a list by a transaction that has itself appended `mine` to it before.
    fn take_list(&mut self, index: usize, access: &Access, key: u32, mine: &[u32]) -> Result<(), Anomaly> {
        let line = index + 1;
        let of = index as u32;
        let internal = |saw: &str| {
            let text = format!("line {line} has \"{access}\", {saw}");
            Anomaly::local(Phenomenon::Internal, &[index], text)
        };
        let found: Vec<u32> = self.seen(access).filter_map(|(_, _, version)| version).collect();
        let mut sorted = found.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let value = self.done.versions[twice[0] as usize].value();
            let text =
                format!("line {line} has {value:?} twice in {}, which was appended once", access.key());
            return Err(Anomaly::local(Phenomenon::Incompatible, &[index], text));
        }
        let Some(before) = found.len().checked_sub(mine.len()).filter(|before| found[*before..] == *mine)
        else {
            return Err(internal("which does not end with what it had appended itself"));
        };
        let (before, seen) = (&found[..before], found[..before].last().copied());
        let longest = &self.done.keys[key as usize].longest;
        let shared = before.len().min(longest.len());
        if before[..shared] != longest[..shared] && !planted(Mutation::ListsMayDisagree) {
            let place = before.iter().zip(longest).take_while(|(a, b)| a == b).count();
            let name = |version: u32| self.done.versions[version as usize].value();
            return Err(Anomaly::local(
                Phenomenon::Incompatible,
                &[index],
                format!(
                    "line {line} has {:?} as element {} of {}, where another line has {:?}; a list that is only appended to \
                     has one order",
                    name(before[place]),
                    place + 1,
                    access.key(),
                    name(longest[place])
                ),
            ));
        }
        if before.len() > longest.len() {
            self.done.keys[key as usize].longest = before.to_vec();
        }
        self.done.readings.push(Reading { of, key, seen, predicate: false, absence: None });
        seen.map_or(Ok(()), |seen| self.not_between(index, &access.to_string(), seen))
    }

    /// A version that its transaction has overwritten itself is nobody else's to see.
    fn not_between(&self, reader: usize, access: &str, seen: u32) -> Result<(), Anomaly> {
        let version = &self.done.versions[seen as usize];
        if version.last || planted(Mutation::IntermediateReadAccepted) {
            return Ok(());
        }
        let (writer, line) = (version.of as usize, reader + 1);
        let text = format!(
            "line {line} has \"{access}\", but {:?} is not the last that line {} wrote there",
            version.value(),
            writer + 1
        );
        Err(Anomaly::local(Phenomenon::G1b, &[writer, reader], text))
    }
}

/// What an access has of one key.
fn told(access: &Access, key: &str, value: &Value) -> String {
    match access {
        Access::Scan(prefix, _) if *value == Value::Nil => format!("scan {prefix}* without {key}"),
        Access::Scan(prefix, _) => format!("scan {prefix}* with {key} {value}"),
        _ => access.to_string(),
    }
}
