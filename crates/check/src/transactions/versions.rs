//! Who wrote what, who read it, and in which order the versions of each key stood, as far as the history tells.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::history::{Access, Transactions, text};
use super::{Anomaly, Phenomenon};
use crate::history::{Outcome, Value};
use crate::planted::{Mutation, planted};
use crate::report::CheckError;

/// A version of a key: what one write left there.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// The transaction, by its index in the history.
    pub(super) of: u32,
    pub(super) key: u32,
    pub(super) value: Arc<str>,
    /// Whether the transaction wrote nothing else to the key behind it: only such a version is anybody's to see.
    pub(super) last: bool,
}

/// What a transaction found at a key that it had not written itself.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Reading {
    pub(super) of: u32,
    pub(super) key: u32,
    /// The version; of a list the last element. `None`: nothing was there.
    pub(super) seen: Option<u32>,
}

/// What is known of one key.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: Arc<str>,
    /// Whether it holds a list.
    list: bool,
    /// Of a list, the longest that was read: its elements in order.
    pub(super) longest: Vec<u32>,
    /// Versions written by transactions that took effect, in the order of the history.
    written: Vec<u32>,
}

/// See the module's page.
pub(super) struct Versions {
    pub(super) keys: Vec<Key>,
    pub(super) versions: Vec<Version>,
    pub(super) readings: Vec<Reading>,
    /// Which transactions took effect, surely: committed, or what they wrote was seen.
    pub(super) effective: Vec<bool>,
    /// The version before, where there is one, and one that surely comes behind it, with nothing between them that
    /// anybody has seen.
    pub(super) follows: Vec<(Option<u32>, u32)>,
    /// Versions that come behind a key's first state, with nothing known to be before them, by key.
    pub(super) firsts: Vec<Vec<u32>>,
}

impl Versions {
    /// Reads a history. The inner error is an anomaly that needs no cycle.
    ///
    /// # Errors
    /// A history that does not say what its answers mean.
    pub(super) fn of(history: &Transactions) -> Result<Result<Versions, Box<Anomaly>>, CheckError> {
        let mut draft = Draft::default();
        draft.take_writes(history)?;
        let outcome = draft.find_effective(history).and_then(|()| draft.take_readings(history));
        if let Err(anomaly) = outcome {
            return Ok(Err(Box::new(anomaly)));
        }
        let mut versions = draft.done;
        versions.order(history)?;
        Ok(Ok(versions))
    }

    /// Puts the versions of each key in order, as far as that is known.
    fn order(&mut self, history: &Transactions) -> Result<(), CheckError> {
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
                // What nobody has seen stands behind the longest list, in no order that matters.
                let seen: std::collections::BTreeSet<u32> = key.longest.iter().copied().collect();
                if !planted(Mutation::UnseenAppendsIgnored) {
                    key.written
                        .iter()
                        .filter(|version| !seen.contains(version))
                        .for_each(|version| link(earlier, *version));
                }
                continue;
            }
            let number = |version: u32| history.list[self.versions[version as usize].of as usize].version;
            let mut numbered: Vec<(u64, u32)> =
                key.written.iter().filter_map(|version| Some((number(*version)?, *version))).collect();
            numbered.sort_unstable();
            let mut earlier: Option<(u64, u32)> = None;
            for (number, version) in numbered {
                if earlier.is_some_and(|(other, _)| other == number) {
                    return Err(CheckError::Malformed {
                        line: self.versions[version as usize].of as usize + 1,
                        problem: "another transaction wrote one of its keys with the same `version`; versions of a key differ",
                    });
                }
                link(earlier.map(|(_, version)| version), version);
                earlier = Some((number, version));
            }
            for version in &key.written {
                let of = self.versions[*version as usize].of;
                if let Some(seen) = read.get(&(of, self.versions[*version as usize].key))
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
        (self.follows, self.firsts) = (follows, firsts);
        Ok(())
    }
}

#[derive(Default)]
struct Draft {
    done: Versions,
    names: FxHashMap<Arc<str>, u32>,
    /// By key, the versions that values are; looked up only.
    wrote: Vec<FxHashMap<Arc<str>, u32>>,
}

impl Default for Versions {
    fn default() -> Versions {
        let (keys, versions, readings, effective) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Versions { keys, versions, readings, effective, follows: Vec::new(), firsts: Vec::new() }
    }
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
                let key = self.key(access.key());
                kinds.resize(self.done.keys.len(), None);
                self.wrote.resize_with(self.done.keys.len(), FxHashMap::default);
                let (value, list) = match access {
                    Access::Read(_, Some(Value::List(_))) => (None, true),
                    Access::Read(_, Some(Value::Text(_) | Value::Integer(_))) => (None, false),
                    Access::Read(..) => continue,
                    Access::Write(_, value) => (Some(value), false),
                    Access::Append(_, value) => (Some(value), true),
                };
                if *kinds[key as usize].get_or_insert(list) != list {
                    return Err(malformed(
                        "one of its keys holds a value here and a list elsewhere; a key is written or appended to, not both",
                    ));
                }
                self.done.keys[key as usize].list = list;
                let Some(value) = value else { continue };
                let version = self.done.versions.len() as u32;
                if self.wrote[key as usize].insert(Arc::clone(value), version).is_some() {
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
                self.done.versions.push(Version {
                    of: index as u32,
                    key,
                    value: Arc::clone(value),
                    last: true,
                });
            }
        }
        Ok(())
    }

    /// The version that a value is.
    fn find(&self, key: u32, value: &Value) -> Option<u32> {
        self.wrote[key as usize].get(&*text(value)?).copied()
    }

    /// Everything that a transaction saw of others and itself; `None` for what nobody wrote.
    fn seen<'a>(&'a self, access: &'a Access) -> impl Iterator<Item = Option<u32>> + 'a {
        let (list, one): (&[Value], Option<&Value>) = match access {
            Access::Read(_, Some(Value::List(list))) => (list, None),
            Access::Read(_, Some(value @ (Value::Text(_) | Value::Integer(_)))) => (&[], Some(value)),
            _ => (&[], None),
        };
        let key = self.names.get(access.key()).copied();
        list.iter().chain(one).map(move |value| key.and_then(|key| self.find(key, value)))
    }

    fn find_effective(&mut self, history: &Transactions) -> Result<(), Anomaly> {
        let committed = |outcome| outcome == Outcome::Ok;
        let mut effective: Vec<bool> = history.list.iter().map(|one| committed(one.outcome)).collect();
        let mut waiting: Vec<usize> = (0..effective.len()).filter(|index| effective[*index]).collect();
        while let Some(reader) = waiting.pop() {
            for access in &history.list[reader].accesses {
                for version in self.seen(access) {
                    let Some(version) = version else {
                        return Err(Anomaly::local(
                            Phenomenon::NobodyWrote,
                            &[reader],
                            format!("line {} has \"{access}\", which nobody wrote", reader + 1),
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
                                "line {} has \"{access}\", but line {}, which wrote {:?} there, was aborted",
                                reader + 1,
                                writer + 1,
                                self.done.versions[version as usize].value
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
        for (index, transaction) in history.list.iter().enumerate() {
            if !self.done.effective[index] {
                continue;
            }
            // What it has written itself so far, by key.
            let mut own: Vec<(u32, Vec<u32>)> = Vec::new();
            for access in &transaction.accesses {
                let key = self.key(access.key());
                match access {
                    Access::Read(_, None) => {}
                    Access::Read(_, Some(_)) => {
                        let mine =
                            own.iter().find(|(other, _)| *other == key).map_or(&[][..], |(_, mine)| mine);
                        self.take_reading(index, access, key, mine)?;
                    }
                    Access::Write(_, value) | Access::Append(_, value) => {
                        let Some(version) = self.wrote[key as usize].get(value).copied() else {
                            continue;
                        };
                        match own.iter_mut().find(|(other, _)| *other == key) {
                            Some((_, mine)) => mine.push(version),
                            None => own.push((key, vec![version])),
                        }
                    }
                }
            }
        }
        let mut readings = std::mem::take(&mut self.done.readings);
        readings.sort_unstable_by_key(|reading| (reading.of, reading.key, reading.seen));
        readings.dedup();
        self.done.readings = readings;
        Ok(())
    }

    /// Takes in one read of a transaction that has itself written `mine` to the key before.
    fn take_reading(&mut self, index: usize, access: &Access, key: u32, mine: &[u32]) -> Result<(), Anomaly> {
        let line = index + 1;
        let of = index as u32;
        let internal = |saw: &str| {
            let text = format!("line {line} has \"{access}\", {saw}");
            Anomaly::local(Phenomenon::Internal, &[index], text)
        };
        let found: Vec<u32> = self.seen(access).flatten().collect();
        if !self.done.keys[key as usize].list {
            if let Some(own) = mine.last() {
                let missed = found.first() != Some(own) && !planted(Mutation::OwnWritesForgotten);
                return if missed { Err(internal("but had written something else itself")) } else { Ok(()) };
            }
            let seen = found.first().copied();
            self.done.readings.push(Reading { of, key, seen });
            return seen.map_or(Ok(()), |seen| self.not_between(index, access, seen));
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
            let name = |version: u32| &self.done.versions[version as usize].value;
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
        self.done.readings.push(Reading { of, key, seen });
        seen.map_or(Ok(()), |seen| self.not_between(index, access, seen))
    }

    /// A version that its transaction has overwritten itself is nobody else's to see.
    fn not_between(&self, reader: usize, access: &Access, seen: u32) -> Result<(), Anomaly> {
        let version = &self.done.versions[seen as usize];
        if version.last || planted(Mutation::IntermediateReadAccepted) {
            return Ok(());
        }
        let (writer, line) = (version.of as usize, reader + 1);
        let text = format!(
            "line {line} has \"{access}\", but {:?} is not the last that line {} wrote there",
            version.value,
            writer + 1
        );
        Err(Anomaly::local(Phenomenon::G1b, &[writer, reader], text))
    }
}
