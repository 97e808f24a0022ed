//! What was found absent where that may be several versions: the key was never written, or it was deleted, perhaps more
//! than once.
//!
//! Such a finding places its transaction nowhere until all versions but one are ruled out. A version is ruled out for a
//! transaction that is known to come before the deletion, or behind what came next at the key. What is left then may
//! rule out more, so this goes in rounds. Where everything would be ruled out in one round, one version stays: the
//! edges that it gives close a circle with what rules it out.
//!
//! A deletion by a transaction of which nobody knows whether it took effect counts among the versions, unless the
//! transaction read what another read and overwrote too. Where only such a one is left, that transaction took effect.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use super::Isolation;
use super::graph::{Graph, Reach};
use super::history::Transactions;
use super::versions::{Reading, Versions};
use crate::planted::{Mutation, planted};

/// A transaction found nothing at a key that it had not written itself.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub(super) struct Absent {
    pub(super) of: u32,
    pub(super) key: u32,
    /// Whether a predicate covered the key, or it was read by its name.
    pub(super) predicate: bool,
}

/// The same, where it may be several versions.
#[derive(Clone, Debug)]
pub(super) struct Absence {
    pub(super) found: Absent,
    /// What it may be: a deletion, or that the key had never been written.
    left: Vec<Option<u32>>,
    /// What it is not, and in which round that was seen.
    pub(super) ruled: Vec<(Option<u32>, u32)>,
    /// In which round one was left.
    settled: Option<u32>,
}

/// What a round has shown.
pub(super) enum Narrowed {
    /// Nothing more.
    Nothing,
    /// Some versions are ruled out.
    Something,
    /// These transactions of unknown outcome took effect, each with one that found absent what it deleted.
    Happened(Vec<(usize, usize)>),
}

impl Versions {
    /// Takes in what was found absent; `doubtful` are transactions that may have taken effect or not.
    pub(super) fn take_absences(
        &mut self,
        history: &Transactions,
        mut absent: Vec<Absent>,
        doubtful: &BTreeSet<u32>,
    ) {
        absent.sort_unstable();
        absent.dedup();
        let mut deletions: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (version, number) in self.versions.iter().zip(0..) {
            let may = self.effective[version.of as usize] || doubtful.contains(&version.of);
            if version.value.is_none() && version.last && may && !planted(Mutation::DeletionsForgotten) {
                deletions.entry(version.key).or_default().push(number);
            }
        }
        for list in deletions.values_mut() {
            list.sort_by_key(|version| self.number(history, *version).unwrap_or(u64::MAX));
        }
        for found in absent {
            let others = deletions.get(&found.key).into_iter().flatten();
            let others = others.filter(|version| self.versions[**version as usize].of != found.of);
            let left: Vec<Option<u32>> = std::iter::once(None).chain(others.map(|one| Some(*one))).collect();
            if left.len() == 1 {
                self.readings.push(found.as_reading(None, None));
            } else {
                self.absences.push(Absence { found, left, ruled: Vec::new(), settled: None });
            }
        }
    }

    /// Of these transactions of unknown outcome those that cannot have taken effect: what they read and wrote over,
    /// one that did read and wrote over too. Given is what each read.
    pub(super) fn overtaken(&self, read: &[(u32, u32, u32)]) -> BTreeSet<u32> {
        let wrote: FxHashSet<(u32, u32)> = self.versions.iter().map(|one| (one.of, one.key)).collect();
        let over = self.readings.iter().filter(|reading| wrote.contains(&(reading.of, reading.key)));
        let over: FxHashSet<(u32, Option<u32>)> = over.map(|reading| (reading.key, reading.seen)).collect();
        let lost = |(of, key, version): &&(u32, u32, u32)| {
            wrote.contains(&(*of, *key)) && over.contains(&(*key, Some(*version)))
        };
        read.iter().filter(lost).map(|(of, ..)| *of).collect()
    }

    /// Rules out what the graph, which has no circle, does not allow.
    pub(super) fn narrow(&mut self, history: &Transactions, graph: &Graph, promise: Isolation) -> Narrowed {
        let mut open: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, absence) in self.absences.iter().enumerate().filter(|(_, one)| one.settled.is_none()) {
            open.entry(absence.found.key).or_default().push(index);
        }
        if open.is_empty() || planted(Mutation::AbsencesNotNarrowed) {
            return Narrowed::Nothing;
        }
        let round = self.rounds.len() as u32;
        let (mut reach, mut narrowed, mut happened) = (Reach::of(graph), false, Vec::new());
        for (key, open) in open {
            let candidates: BTreeSet<Option<u32>> =
                open.iter().flat_map(|index| &self.absences[*index].left).copied().collect();
            let candidates: Vec<Option<u32>> = candidates.into_iter().collect();
            // What is ruled out for each, and whether that is for being too late.
            let mut ruled: FxHashMap<(usize, Option<u32>), bool> = FxHashMap::default();
            for some in candidates.chunks(64) {
                let (mut ended, mut begun) = (Vec::new(), Vec::new());
                for (place, candidate) in some.iter().enumerate() {
                    let ends = self.behind(key, *candidate).iter();
                    ended.extend(ends.map(|version| (self.versions[*version as usize].of, 1 << place)));
                    begun.extend(candidate.map(|version| (self.versions[version as usize].of, 1 << place)));
                }
                let (early, late) = (reach.from(&ended), reach.to(&begun));
                for index in &open {
                    let of = self.absences[*index].found.of as usize;
                    for (place, candidate) in some.iter().enumerate() {
                        if (early[of] | late[of]) & (1 << place) != 0 {
                            ruled.insert((*index, *candidate), late[of] & (1 << place) != 0);
                        }
                    }
                }
            }
            for index in open {
                let out = |candidate: Option<u32>| ruled.get(&(index, candidate)).copied();
                narrowed |= self.rule_out(history, index, out, round, &mut happened);
            }
        }
        if !happened.is_empty() {
            return Narrowed::Happened(happened);
        }
        if narrowed {
            self.rounds.push(promise);
        }
        if narrowed { Narrowed::Something } else { Narrowed::Nothing }
    }

    /// Whether that changed anything.
    fn rule_out(
        &mut self,
        history: &Transactions,
        index: usize,
        out: impl Fn(Option<u32>) -> Option<bool>,
        round: u32,
        happened: &mut Vec<(usize, usize)>,
    ) -> bool {
        let left = &self.absences[index].left;
        let (mut ruled, mut stays): (Vec<Option<u32>>, Vec<Option<u32>>) =
            left.iter().partition(|one| out(**one).is_some());
        if ruled.is_empty() {
            return false;
        }
        if stays.is_empty() {
            // The nearest: the first that came too late, if it can have been seen at all, or the last too early.
            let late = ruled.iter().position(|one| out(*one) == Some(true));
            let seen = late.filter(|at| *at == 0 || self.begun(history, index, ruled[*at]));
            stays.push(ruled.remove(seen.unwrap_or(late.unwrap_or(ruled.len()) - 1)));
        }
        let absence = &mut self.absences[index];
        absence.ruled.extend(ruled.into_iter().map(|one| (one, round)));
        absence.left = stays;
        if let [one] = absence.left[..] {
            let reader = absence.found.of as usize;
            // A deletion that nobody knows of has no place, so it is never ruled out itself.
            match one.filter(|_| !self.happened(one)) {
                Some(version) => happened.push((self.versions[version as usize].of as usize, reader)),
                None => self.settle(index, one, round),
            }
        }
        true
    }

    /// Whether this version surely was.
    fn happened(&self, candidate: Option<u32>) -> bool {
        candidate.is_none_or(|version| self.effective[self.versions[version as usize].of as usize])
    }

    /// Whether a version had begun to be when the transaction ended that may have found it.
    fn begun(&self, history: &Transactions, index: usize, candidate: Option<u32>) -> bool {
        let until = history.list[self.absences[index].found.of as usize].returned.unwrap_or(u64::MAX);
        let of = |version: u32| self.versions[version as usize].of as usize;
        candidate.is_none_or(|version| history.list[of(version)].invoked <= until)
    }

    fn settle(&mut self, index: usize, seen: Option<u32>, round: u32) {
        self.absences[index].settled = Some(round);
        let reading = self.absences[index].found.as_reading(seen, Some(index as u32));
        self.readings.push(reading);
    }

    /// Supposes that what is not known was in one way, so that a serial order may be found: which proves itself. `false`
    /// where nothing is left to be supposed.
    pub(super) fn suppose(&mut self, history: &Transactions) -> bool {
        let open = |versions: &Versions| {
            let open = versions.absences.iter().enumerate().filter(|(_, absence)| absence.settled.is_none());
            open.map(|(index, _)| index).collect::<Vec<_>>()
        };
        // First that nothing happened of which nobody knows.
        let mut supposed = false;
        for index in open(self) {
            let left = &self.absences[index].left;
            let sure: Vec<Option<u32>> = left.iter().copied().filter(|one| self.happened(*one)).collect();
            if sure.len() == left.len() || sure.is_empty() {
                continue;
            }
            supposed = true;
            self.absences[index].left = sure;
            if let [one] = self.absences[index].left[..] {
                self.settle(index, one, u32::MAX);
            }
        }
        if supposed {
            return true;
        }
        // Then that the first to have ended found the latest that it can have.
        let ended = |index: &usize| {
            history.list[self.absences[*index].found.of as usize].returned.unwrap_or(u64::MAX)
        };
        let Some(index) = open(self).into_iter().min_by_key(ended) else { return false };
        let begun = |one: &&Option<u32>| self.begun(history, index, **one);
        let left = &self.absences[index].left;
        let Some(one) = left.iter().rev().find(begun).or(left.first()).copied() else { return false };
        self.settle(index, one, u32::MAX);
        true
    }

    /// What was known before a round.
    pub(super) fn before(&self, round: u32, history: &Transactions) -> Versions {
        let mut before = self.clone();
        let settled = |index: u32| self.absences[index as usize].settled;
        before
            .readings
            .retain(|reading| reading.absence.and_then(settled).is_none_or(|settled| settled < round));
        // What more is known of readings makes no history malformed that was not.
        let _ = before.order(history);
        before
    }
}

impl Absent {
    pub(super) fn as_reading(self, seen: Option<u32>, absence: Option<u32>) -> Reading {
        Reading { of: self.of, key: self.key, seen, predicate: self.predicate, absence }
    }
}
