//! The lanes of Mencius as every replica sees them: votes for an owner's proposals, and what follows from what
//! it says (`specs/domino.md` 3.6).

use super::super::Mutation;
use super::super::message::Item;
use super::Order;
use crate::order::Ordered;
use isochrone_core::{Ballot, Instant, IntervalMap};
use std::collections::BTreeMap;

/// One replica's lane.
#[derive(Clone, Hash, Debug)]
pub(super) struct Lane<V> {
    /// The ballot promised for everything below `sealed`; ballot 0 is the owner's.
    pub(super) ballot: Ballot,
    /// The highest ballot that this replica was outbid by as a revoker. It is not promised: nothing is written of it.
    pub(super) outbid: Ballot,
    /// Outbid, it begins no other revocation before.
    pub(super) rests: Instant,
    /// At ballot 0 it votes only from here on.
    pub(super) sealed: u64,
    /// Votes for single positions. One that a revoker's no-op lies over stays as such: something was proposed
    /// there.
    pub(super) votes: BTreeMap<u64, (Ballot, Option<V>)>,
    /// Ranges voted no-op for revokers.
    pub(super) noops: IntervalMap<u64, Ballot>,
    /// The owner's proposals that are not known to be decided.
    pub(super) heard: BTreeMap<u64, Option<V>>,
    /// Up to where what the owner said was taken in; nothing before its first word in this session.
    swept: Option<u64>,
}

impl<V> Default for Lane<V> {
    fn default() -> Lane<V> {
        Lane {
            ballot: Ballot::ZERO,
            outbid: Ballot::ZERO,
            rests: Instant::ZERO,
            sealed: 0,
            votes: BTreeMap::new(),
            noops: IntervalMap::default(),
            heard: BTreeMap::new(),
            swept: None,
        }
    }
}

impl<V: Clone> Lane<V> {
    /// Promises a revoker.
    pub(super) fn promise(&mut self, ballot: Ballot, until: u64) {
        self.ballot = self.ballot.max(ballot);
        self.sealed = self.sealed.max(until);
    }

    /// Votes for a revoker's block.
    pub(super) fn seal(&mut self, ballot: Ballot, from: u64, until: u64, values: &[(u64, V)]) {
        self.promise(ballot, until);
        for (_, vote) in self.votes.range_mut(from..until.max(from)) {
            *vote = (ballot, None);
        }
        for (at, value) in values {
            self.votes.insert(*at, (ballot, Some(value.clone())));
        }
        self.noops.set(from..until, ballot);
    }

    /// Forgets what lies below.
    pub(super) fn trim(&mut self, below: u64) {
        while self.votes.first_key_value().is_some_and(|(at, _)| *at < below) {
            self.votes.pop_first();
        }
        self.noops.trim(below);
    }
}

impl<V: Ordered> Order<V> {
    pub(super) fn on_own(&mut self, from: usize, base: u64) {
        self.lanes[from].swept = Some(base);
    }

    /// Proposals of the owner of a lane, perhaps not for the first time.
    pub(super) fn on_accept(&mut self, from: usize, values: Vec<(u64, Option<V>)>) {
        let sealed_too = self.parameters().mutated(Mutation::ProposeInSealed);
        let (mut stamps, mut refused) = (Vec::new(), false);
        for (at, value) in values {
            if self.tracks[from + 1].is_decided(at) && !sealed_too {
                continue;
            }
            let lane = &mut self.lanes[from];
            let heard = lane.heard.entry(at).or_default();
            if heard.is_none() {
                heard.clone_from(&value);
            }
            let Some(value) = value else { continue };
            match lane.votes.get(&at) {
                Some((Ballot::ZERO, _)) => stamps.push(at),
                _ if at < lane.sealed && !sealed_too => refused = true,
                Some(_) if !sealed_too => refused = true,
                _ => {
                    lane.votes.insert(at, (Ballot::ZERO, Some(value.clone())));
                    self.accepted.entry(from as u8).or_default().push((at, value));
                    stamps.push(at);
                }
            }
        }
        if !stamps.is_empty() {
            self.say(from, Item::Accepted { stamps });
        }
        if refused {
            let sealed = self.lanes[from].sealed;
            self.say(from, Item::Refused { sealed });
        }
    }

    /// The owner says that its clock has come here: what it has not proposed below is a no-op, whatever the
    /// ballot, since a revoker proposes what it finds or a no-op.
    pub(super) fn skip_lane(&mut self, from: usize, until: u64) {
        let lane = &mut self.lanes[from];
        let Some(swept) = lane.swept.filter(|swept| *swept < until) else { return };
        lane.swept = Some(until);
        let mut at = swept;
        for open in lane.heard.range(swept..until).map(|(open, _)| *open) {
            self.tracks[from + 1].decide_noops(at, open);
            at = open + 1;
        }
        self.tracks[from + 1].decide_noops(at, until);
    }

    pub(super) fn on_commit(&mut self, from: usize, stamps: &[u64]) {
        for at in stamps {
            if let Some(Some(value)) = self.lanes[from].heard.get(at).cloned() {
                self.tracks[from + 1].decide(*at, Some(value));
                self.lanes[from].heard.remove(at);
            }
        }
    }

    /// Proposals whose fate is known need not be remembered.
    pub(super) fn forget_heard(&mut self) {
        for (lane, track) in self.lanes.iter_mut().zip(&self.tracks[1..]) {
            while lane.heard.first_key_value().is_some_and(|(at, _)| *at < track.frontier()) {
                lane.heard.pop_first();
            }
        }
    }
}
