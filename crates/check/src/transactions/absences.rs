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
    /// What it may be, as places in the key's list of [`Versions::candidates`]; `None` where nothing is ruled out yet.
    left: Option<Vec<u32>>,
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
        let mut candidates: FxHashMap<u32, Vec<Option<u32>>> = FxHashMap::default();
        for (version, number) in self.versions.iter().zip(0..) {
            let may = self.effective[version.of as usize] || doubtful.contains(&version.of);
            if version.value.is_none() && version.last && may && !planted(Mutation::DeletionsForgotten) {
                candidates.entry(version.key).or_insert_with(|| vec![None]).push(Some(number));
            }
        }
        for list in candidates.values_mut() {
            list.sort_by_key(|version| self.row(history, *version).unwrap_or(u64::MAX));
        }
        self.candidates = candidates;
        for found in absent {
            let absence = Absence { found, left: None, settled: None };
            if self.left(&absence).len() == 1 {
                self.readings.push(found.as_reading(None, None));
            } else {
                self.absences.push(absence);
            }
        }
    }

    /// Where a version that a key may be absent by stands in the row of its versions, if the store says so.
    fn row(&self, history: &Transactions, version: Option<u32>) -> Option<u64> {
        version.map_or(Some(0), |version| self.number(history, version))
    }

    /// What an absence may be, as places in the key's list. Its own deletion it is not.
    fn left(&self, absence: &Absence) -> Vec<u32> {
        let Absent { of, key, .. } = absence.found;
        let Some(list) = self.candidates.get(&key) else { return vec![0] };
        let own =
            |version: &Option<u32>| version.is_some_and(|version| self.versions[version as usize].of == of);
        let all =
            || list.iter().zip(0..).filter(|(version, _)| !own(version)).map(|(_, place)| place).collect();
        absence.left.clone().unwrap_or_else(all)
    }

    /// What one is that was narrowed down to one, and in which round.
    fn settled(&self, absence: &Absence) -> Option<(u32, u32)> {
        Some((*absence.left.as_ref()?.first()?, absence.settled?))
    }

    /// In which round it was narrowed down to one, and the versions that this ruled out; where they stand in a row, the
    /// nearest on each side, which take the others with them.
    pub(super) fn ruled_out(
        &self,
        history: &Transactions,
        absence: &Absence,
    ) -> Option<(u32, Vec<Option<u32>>)> {
        let (one, round) = self.settled(absence)?;
        let list = self.candidates.get(&absence.found.key)?;
        let all = self.left(&Absence { left: None, ..absence.clone() });
        let place = all.iter().position(|place| *place == one)?;
        let others: Vec<u32> = match list.iter().all(|version| self.row(history, *version).is_some()) {
            true => place
                .checked_sub(1)
                .into_iter()
                .chain([place + 1])
                .filter_map(|at| all.get(at))
                .copied()
                .collect(),
            false => all.into_iter().filter(|place| *place != one).collect(),
        };
        Some((round, others.into_iter().map(|place| list[place as usize]).collect()))
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
            let candidates = self.candidates[&key].clone();
            let asked: BTreeSet<u32> = open
                .iter()
                .flat_map(|index| self.left(&self.absences[*index]))
                .map(|place| place / 64)
                .collect();
            // Which candidates come too early for each of those open, and which too late: 64 at a time, a bit each.
            let mut ruled: Vec<Vec<(u64, u64)>> = vec![Vec::new(); open.len()];
            for (some, number) in candidates.chunks(64).zip(0..) {
                if !asked.contains(&number) {
                    ruled.iter_mut().for_each(|ruled| ruled.push((0, 0)));
                    continue;
                }
                let (mut ended, mut begun) = (Vec::new(), Vec::new());
                for (place, candidate) in some.iter().enumerate() {
                    let ends = self.behind(key, *candidate).iter();
                    ended.extend(ends.map(|version| (self.versions[*version as usize].of, 1 << place)));
                    begun.extend(candidate.map(|version| (self.versions[version as usize].of, 1 << place)));
                }
                let (early, late) = (reach.from(&ended), reach.to(&begun));
                for (index, ruled) in open.iter().zip(&mut ruled) {
                    let of = self.absences[*index].found.of as usize;
                    ruled.push((early[of], late[of]));
                }
            }
            for (index, ruled) in open.into_iter().zip(ruled) {
                narrowed |= self.rule_out(history, index, &ruled, round, &mut happened);
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
        ruled: &[(u64, u64)],
        round: u32,
        happened: &mut Vec<(usize, usize)>,
    ) -> bool {
        let of = |place: u32| (ruled[place as usize / 64], 1u64 << (place % 64));
        let late = |place: u32| of(place).0.1 & of(place).1 != 0;
        let out = |place: &u32| late(*place) || of(*place).0.0 & of(*place).1 != 0;
        let (out, mut stays): (Vec<u32>, Vec<u32>) =
            self.left(&self.absences[index]).into_iter().partition(out);
        if out.is_empty() {
            return false;
        }
        if stays.is_empty() {
            // The nearest: the first that came too late, if it can have been seen at all, or the last too early.
            let first = out.iter().position(|place| late(*place)).unwrap_or(out.len());
            let seen = out.get(first).is_some_and(|place| self.begun(history, index, *place));
            stays.push(out[if seen { first } else { first.saturating_sub(1) }]);
        }
        if let [place] = stays[..] {
            let reader = self.absences[index].found.of as usize;
            let candidate = self.candidate(index, place);
            // A deletion that nobody knows of has no place, so it is never ruled out itself.
            match candidate.filter(|_| !self.happened(candidate)) {
                Some(version) => happened.push((self.versions[version as usize].of as usize, reader)),
                None => self.settle(index, place, round),
            }
        }
        self.absences[index].left = Some(stays);
        true
    }

    fn candidate(&self, index: usize, place: u32) -> Option<u32> {
        // A place is one of this list.
        self.candidates[&self.absences[index].found.key][place as usize]
    }

    /// Whether this version surely was.
    fn happened(&self, candidate: Option<u32>) -> bool {
        candidate.is_none_or(|version| self.effective[self.versions[version as usize].of as usize])
    }

    /// Whether a version had begun to be when the transaction ended that may have found it.
    fn begun(&self, history: &Transactions, index: usize, place: u32) -> bool {
        let until = history.list[self.absences[index].found.of as usize].returned.unwrap_or(u64::MAX);
        let of = |version: u32| self.versions[version as usize].of as usize;
        self.candidate(index, place).is_none_or(|version| history.list[of(version)].invoked <= until)
    }

    fn settle(&mut self, index: usize, place: u32, round: u32) {
        let seen = self.candidate(index, place);
        let absence = &mut self.absences[index];
        (absence.left, absence.settled) = (Some(vec![place]), Some(round));
        let reading = absence.found.as_reading(seen, Some(index as u32));
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
            let left = self.left(&self.absences[index]);
            let sure: Vec<u32> =
                left.iter().copied().filter(|place| self.happened(self.candidate(index, *place))).collect();
            if sure.len() == left.len() || sure.is_empty() {
                continue;
            }
            supposed = true;
            match sure[..] {
                [place] => self.settle(index, place, u32::MAX),
                _ => self.absences[index].left = Some(sure),
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
        let left = self.left(&self.absences[index]);
        let begun = left.iter().rev().find(|place| self.begun(history, index, **place));
        let Some(place) = begun.or(left.first()).copied() else { return false };
        self.settle(index, place, u32::MAX);
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
