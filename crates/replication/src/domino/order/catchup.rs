//! Who lacks what others know to be decided asks for it.

use super::super::message::{Item, Place};
use super::Order;
use super::links::Answer;
use crate::order::Ordered;
use isochrone_core::{Effects, Instant, ReplicaId, wire};
use std::collections::BTreeMap;

/// Heartbeats from one report to the next.
pub(super) const REPORT_EVERY: u64 = 8;
/// Commands in one answer at most, and their bytes: whoever asks is as long in hearing more as a message takes.
const ANSWER_MAX: usize = 8_192;
const ANSWER_BYTES: usize = 2 << 20;
/// Everything.
pub(super) const ALL: (usize, usize) = (usize::MAX, usize::MAX);

/// What others have reached in each lane and this replica had not when it was told: the stamp, since when,
/// and who said so.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Goals(BTreeMap<u8, (u64, Instant, usize)>);

impl<V: Ordered> Order<V> {
    pub(super) fn report(&self) -> Item<V> {
        Item::Report { epoch: self.acceptor.epoch, open: self.acceptor.open, frontiers: self.frontiers() }
    }

    pub(super) fn on_report(
        &mut self,
        from: usize,
        epoch: u32,
        open: bool,
        frontiers: &[u64],
        effects: &mut Effects<Self>,
    ) {
        self.seen = self.seen.max(epoch);
        if from != self.me {
            self.reported.insert(ReplicaId(from as u8));
        }
        self.on_stale_epoch(from, epoch, open, effects.now());
        let coordinates = self.coordinator(self.acceptor.epoch) == from;
        for (lane, frontier) in frontiers.iter().enumerate().take(self.tracks.len()) {
            if *frontier > self.tracks[lane].frontier() {
                let goal = self.goals.0.entry(lane as u8).or_insert((*frontier, effects.now(), from));
                // With what it lacks, the coordinator tells what follows from there on.
                if lane == 0 && coordinates {
                    (goal.0, goal.2) = (*frontier, from);
                }
            }
        }
        self.reign_again(effects);
    }

    /// By the clock: goals that were not reached by themselves are asked for.
    pub(super) fn chase(&mut self, now: Instant) {
        let (tracks, resend) = (&self.tracks, self.knobs.0.resend);
        self.goals.0.retain(|lane, (goal, ..)| tracks[usize::from(*lane)].frontier() < *goal);
        let mut givers: Vec<(usize, Instant)> = Vec::new();
        for (_, since, giver) in self.goals.0.values_mut() {
            if now.since(*since) >= resend {
                givers.push((*giver, std::mem::replace(since, now)));
            }
        }
        givers.sort_unstable();
        givers.dedup_by_key(|(giver, _)| *giver);
        for (giver, before) in givers {
            if self.suspected(giver) {
                self.goals.0.retain(|_, (.., known)| *known != giver);
                continue;
            }
            let frontiers = self.frontiers();
            self.say_again(giver, Item::Fetch { frontiers }, before);
        }
    }

    pub(super) fn on_fetch(&mut self, from: usize, frontiers: &[u64], now: Instant) {
        if !self.answers(from, Answer::Learned, false, now) {
            return;
        }
        for (lane, first) in frontiers.iter().enumerate().take(self.tracks.len()) {
            let frontier = self.tracks[lane].frontier();
            if *first >= frontier {
                continue;
            }
            match self.decided_between(lane as u8, *first, frontier, (ANSWER_MAX, ANSWER_BYTES)) {
                Some((values, until)) => {
                    let (number, first) = (lane as u8, *first);
                    self.say(from, Item::Learned { lane: number, from: first, until, values });
                    // It follows no coordinator's word, or that has come to a stop.
                    if lane == 0 && until == frontier {
                        self.lead(from);
                    }
                }
                None => return self.say(from, Item::Trimmed),
            }
        }
    }

    pub(super) fn on_learned(&mut self, lane: u8, first: u64, until: u64, values: Vec<(u64, V)>) {
        let Some(track) = self.tracks.get_mut(usize::from(lane)) else { return };
        // Who learns from this coordinator alone is told of all commands below what it says is settled.
        let tells = lane == 0 && self.knobs.0.learners == super::Learners::Sole;
        for (at, value) in values {
            if let (true, Some(reign)) = (tells && !track.is_decided(at), &mut self.reign) {
                reign.announce(at, &value);
            }
            track.decide(at, Some(value));
        }
        track.decide_noops(first, until);
        if let Some((goal, since, _)) = self.goals.0.get_mut(&lane)
            && *goal > until
        {
            // There is more: it is asked for at once.
            *since = Instant::ZERO;
        }
    }

    /// Whether this replica is known to lack what others have decided in the fast lane.
    pub(super) fn lags(&self) -> bool {
        self.behind.is_some() || self.goals.0.contains_key(&0)
    }

    /// Whether it is others than the coordinator who have it.
    pub(super) fn lags_behind_others(&self) -> bool {
        let coordinator = self.coordinator(self.acceptor.epoch);
        self.behind.is_some() || self.goals.0.get(&0).is_some_and(|(.., giver)| *giver != coordinator)
    }

    pub(super) fn on_trimmed(&mut self, from: usize) {
        self.behind = Some(self.members[from].process);
    }

    /// The commands of a lane from `first` on, all below `until` being decided; at most so many and so many bytes, and up to
    /// where they are all. Nothing where some are no longer held.
    pub(super) fn decided_between(
        &self,
        lane: u8,
        first: u64,
        until: u64,
        (most, most_bytes): (usize, usize),
    ) -> Option<(Vec<(u64, V)>, u64)> {
        if first >= until {
            return Some((Vec::new(), first));
        }
        let executed = self.kept.from(Place { at: first, lane })?;
        let executed = executed
            .filter(|(place, _)| place.lane == lane && (first..until).contains(&place.at))
            .map(|(place, value)| (place.at, value));
        let waiting = self.tracks[usize::from(lane)].commands.range(first..until);
        let (mut values, mut bytes): (Vec<(u64, V)>, usize) = (Vec::new(), 0);
        for (at, value) in executed.chain(waiting.map(|(at, value)| (*at, value))) {
            if most_bytes < usize::MAX {
                bytes += wire::encoded_size(value);
            }
            if values.len() == most || (bytes > most_bytes && !values.is_empty()) {
                let until = values.last().map_or(first, |(at, _)| at + 1);
                return Some((values, until));
            }
            values.push((at, value.clone()));
        }
        Some((values, until))
    }
}
