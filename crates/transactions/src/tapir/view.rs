//! Changes of view: the leader of the new view makes one record of those of a majority, and all begin with that.

use super::message::{Ballot, Ended, Held, Message, Name, Record, Vote};
use super::server::{DOUBLINGS, Server, Timer};
use super::takeover::counting;
use crate::request::TxnId;
use crate::said::say;
use isochrone_core::{Effects, ProcessId, Quorums};
use std::collections::BTreeMap;

/// Times that the leader of a new view is asked before the next one is.
const PATIENCE: u32 = 3;

/// A change of view under way.
#[derive(Clone, Hash, Debug, Default)]
pub struct Change {
    /// The leader's: what replicas have sent, with the last view in which each was normal.
    collected: BTreeMap<ProcessId, (u64, Vec<Held>)>,
    /// Times that the timer has run out.
    waited: u32,
}

/// One record from those of a majority (`specs/carousel.md` 6.1, View change).
///
/// Of each transaction: what was accepted under the highest ballot stands. Else the votes of replicas that were in the
/// last normal view are looked at. A result that all who were heard have voted for (the set d) all replicas may have voted
/// for, and a majority has; it stands. All else (the set u) was not decided, and is refused: whoever leads the view may
/// have been away for longer than the others remember, so its data commits nothing.
pub fn merge(records: &BTreeMap<ProcessId, (u64, Vec<Held>)>) -> Vec<Held> {
    let latest = records.values().map(|(normal, _)| *normal).max();
    let mut known: BTreeMap<TxnId, Vec<&Held>> = BTreeMap::new();
    for (_, held) in records.values().filter(|(normal, _)| Some(*normal) == latest) {
        for held in held {
            known.entry(held.name.txn).or_default().push(held);
        }
    }
    let mut merged = Vec::new();
    for (txn, all) in known {
        let Some((attempt, at)) = counting(all.iter().copied()) else { continue };
        let part = all.iter().find_map(|held| held.part.clone());
        let promised = all.iter().map(|held| held.promised).max().unwrap_or(Ballot::CLIENT);
        let here: Vec<&Held> = all.iter().copied().filter(|held| held.name.attempt == attempt).collect();
        let accepted = here.iter().filter_map(|held| Some((held.accepted?, held.vote?)));
        let accepted = accepted.max_by_key(|(ballot, _)| *ballot);
        let vote = here.first().and_then(|held| held.vote);
        let equal = here.len() == records.len() && here.iter().all(|held| held.vote == vote);
        let voted = (Ballot::CLIENT, vote.filter(|_| equal).unwrap_or(Vote::Abstain));
        let (ballot, vote) = accepted.unwrap_or(voted);
        // A transaction takes part in the same partitions in all its tries.
        let Some(participants) = all.first().map(|held| held.name.participants.clone()) else { continue };
        let name = Name { txn, participants, attempt, at };
        merged.push(Held { name, part, vote: Some(vote), accepted: Some(ballot), promised });
    }
    merged
}

impl Server {
    /// Who leads a view.
    fn leader(&self, view: u64) -> ProcessId {
        let members = &self.map.group(self.partition).members;
        // A group has at most 128 members, at least one.
        members[(view % members.len() as u64) as usize].process
    }

    /// Begins to change to a view, and asks the others to.
    pub(super) fn change_view(&mut self, view: u64, effects: &mut Effects<Self>) {
        if view <= self.state.view {
            return;
        }
        for peer in self.peers().filter(|peer| *peer != self.me) {
            say(peer, Message::ChangeView { view }, effects);
        }
        self.join(view, effects);
    }

    /// Leaves the present view for another: from here on nothing is voted for in any before that.
    fn join(&mut self, view: u64, effects: &mut Effects<Self>) {
        Self::count("view_changes", effects);
        self.log(Record::Changing { view }, effects);
        self.changing = Change::default();
        self.send_records(effects);
        effects.arm(Timer::View, self.parameters.resend);
    }

    /// After a restart in the middle of a change.
    pub(super) fn resume_change(&mut self, effects: &mut Effects<Self>) {
        self.send_records(effects);
        effects.arm(Timer::View, self.parameters.resend);
    }

    fn send_records(&self, effects: &mut Effects<Self>) {
        let leader = self.leader(self.state.view);
        let entries = || self.state.entries.values();
        let held = entries().filter(|entry| entry.verdict.is_none()).map(|entry| entry.held());
        let ended = entries().filter(|entry| leader == self.me || !entry.noted.contains(&leader));
        let ended = ended.filter_map(|entry| entry.ended(true));
        let (view, normal) = (self.state.view, self.state.normal);
        let message = Message::Records { view, normal, held: held.collect(), ended: ended.collect() };
        say(leader, message, effects);
    }

    /// Somebody wants to change to a view.
    pub(super) fn asked_to_change(&mut self, from: ProcessId, view: u64, effects: &mut Effects<Self>) {
        if view > self.state.view {
            self.join(view, effects);
        } else if self.state.is_normal() && from.partition == self.partition {
            self.send_start(from, effects);
        }
    }

    /// The leader of a new view hears of a replica.
    pub(super) fn on_records(
        &mut self,
        from: ProcessId,
        view: u64,
        (normal, held, ended): (u64, Vec<Held>, Vec<Ended>),
        effects: &mut Effects<Self>,
    ) {
        if view > self.state.view {
            self.join(view, effects);
        }
        if view < self.state.view || self.state.normal >= view {
            match self.state.is_normal() {
                true => self.send_start(from, effects),
                false => say(from, Message::ChangeView { view: self.state.view }, effects),
            }
            return;
        }
        if self.leader(view) != self.me {
            return;
        }
        for ended in ended {
            let (txn, whole) = (ended.txn, ended.whole());
            self.note(ended, effects);
            if let Some(entry) = self.state.entries.get_mut(&txn).filter(|_| whole) {
                entry.noted.insert(from);
            }
            self.settled(txn, effects);
        }
        self.changing.collected.insert(from, (normal, held));
        let replicas = self.map.group(self.partition).members.len();
        let collected = &self.changing.collected;
        if collected.len() < Quorums::majority(replicas) || !collected.contains_key(&self.me) {
            return;
        }
        for (_, held) in self.changing.collected.values_mut() {
            held.retain(|held| !self.state.has_ended(held.name.txn));
        }
        let held = merge(&self.changing.collected);
        self.install(view, held, Vec::new(), effects);
        for peer in self.peers().filter(|peer| *peer != self.me) {
            self.send_start(peer, effects);
        }
    }

    /// Tells a replica how the present view began.
    fn send_start(&self, to: ProcessId, effects: &mut Effects<Self>) {
        let entries = || self.state.entries.values();
        let held = entries().filter(|entry| entry.merged && entry.verdict.is_none());
        let held = held.map(|entry| entry.held()).collect();
        let ended = entries().filter(|entry| !entry.noted.contains(&to));
        let ended = ended.filter_map(|entry| entry.ended(true)).collect();
        say(to, Message::StartView { view: self.state.normal, held, ended }, effects);
    }

    pub(super) fn on_start_view(
        &mut self,
        from: ProcessId,
        view: u64,
        held: Vec<Held>,
        ended: Vec<Ended>,
        effects: &mut Effects<Self>,
    ) {
        if view < self.state.view || view <= self.state.normal {
            return;
        }
        let whole = ended.iter().filter(|ended| ended.whole());
        let txns: Vec<TxnId> = whole.map(|ended| ended.txn).collect();
        self.install(view, held, ended, effects);
        for txn in txns {
            if let Some(entry) = self.state.entries.get_mut(&txn) {
                entry.noted.insert(from);
            }
        }
    }

    fn install(&mut self, view: u64, held: Vec<Held>, ended: Vec<Ended>, effects: &mut Effects<Self>) {
        let txns: Vec<TxnId> =
            held.iter().map(|held| held.name.txn).chain(ended.iter().map(|ended| ended.txn)).collect();
        self.log(Record::Installed { view, held, ended }, effects);
        self.changing = Change::default();
        effects.disarm(Timer::View);
        let gone = |txn: &TxnId| !self.state.entries.contains_key(txn);
        let over: Vec<TxnId> = self.takeovers.keys().copied().filter(gone).collect();
        over.iter().for_each(|txn| drop(self.takeovers.remove(txn)));
        txns.into_iter().for_each(|txn| self.touch(txn, effects));
    }

    /// The timer of a change has run out.
    pub(super) fn changing_too_long(&mut self, effects: &mut Effects<Self>) {
        if self.state.is_normal() {
            return;
        }
        self.changing.waited += 1;
        if self.changing.waited.is_multiple_of(PATIENCE) {
            let waited = self.changing.waited;
            self.change_view(self.state.view + 1, effects);
            self.changing.waited = waited;
        } else {
            self.send_records(effects);
            for peer in self.peers().filter(|peer| *peer != self.me) {
                say(peer, Message::ChangeView { view: self.state.view }, effects);
            }
        }
        let pause = self.pause((self.changing.waited / PATIENCE).min(DOUBLINGS), effects);
        effects.arm(Timer::View, pause);
    }

    /// This replica has heard of a later view: it asks one replica how that began, and the others in turn for as long as it
    /// hears nothing.
    pub(super) fn fetch(&mut self, view: u64, effects: &mut Effects<Self>) {
        let now = effects.now();
        if now < self.fetch_due {
            return;
        }
        self.fetch_due = now + self.parameters.resend;
        let peers = self.peers().count() as u64;
        let turn = |turn: u64| self.leader(view.wrapping_add(turn));
        let others = (0..peers).map(|step| self.fetches + step).find(|at| turn(*at) != self.me);
        if let Some(at) = others {
            say(turn(at), Message::Fetch { view }, effects);
            self.fetches = at + 1;
        }
    }

    pub(super) fn fetched(&mut self, from: ProcessId, view: u64, effects: &mut Effects<Self>) {
        if self.state.is_normal() && self.state.normal >= view {
            self.send_start(from, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::{ClientId, PartitionId};
    use isochrone_store::versions::Version;
    use std::sync::Arc;

    /// That a replica has voted for this transaction.
    fn txn(sequence: u64) -> Held {
        let client = ClientId { process: ProcessId::from_u64(1), incarnation: 1 };
        let participants = Arc::from([PartitionId(0)]);
        let name = Name { txn: TxnId { client, sequence }, participants, attempt: 0, at: Version(10) };
        let (part, vote) = (Some(Arc::default()), Some(Vote::Ok));
        Held { name, part, vote, accepted: None, promised: Ballot::CLIENT }
    }

    /// What is agreed on where replicas hold these, each with the last view in which it was normal.
    fn merged(records: &[(u64, &[&Held])]) -> BTreeMap<u64, Vote> {
        let held = |held: &[&Held]| held.iter().map(|held| (*held).clone()).collect::<Vec<_>>();
        let records = records.iter().enumerate();
        let records = records.map(|(at, (normal, of))| (ProcessId::from_u64(at as u64), (*normal, held(of))));
        let vote = |held: &Held| (held.name.txn.sequence, held.vote.unwrap());
        merge(&records.collect()).iter().map(vote).collect()
    }

    #[test]
    fn what_all_may_have_voted_for_stands() {
        let one = txn(1);
        assert_eq!(merged(&[(0, &[&one]), (0, &[&one])])[&1], Vote::Ok);
        let refused = Held { vote: Some(Vote::Abort), ..one.clone() };
        assert_eq!(merged(&[(0, &[&refused]), (0, &[&refused])])[&1], Vote::Abort);
        // One vote of two: it was not decided, whatever the leader of the view knows of its keys.
        assert_eq!(merged(&[(0, &[&one]), (0, &[&refused])])[&1], Vote::Abstain);
        assert_eq!(merged(&[(0, &[&one]), (0, &[&one]), (0, &[])])[&1], Vote::Abstain, "nor two of three");
    }

    #[test]
    fn an_acceptance_counts_more_than_votes_and_old_views_do_not_count() {
        let vote = txn(1);
        let refused = Held { vote: Some(Vote::Abort), accepted: Some(Ballot::CLIENT), ..vote.clone() };
        assert_eq!(merged(&[(0, &[&vote]), (0, &[&refused])])[&1], Vote::Abort);
        let merged = merged(&[(1, &[&refused]), (0, &[&vote, &txn(2)])]);
        assert_eq!(merged.len(), 1, "what only an old view knows was not decided: {merged:?}");
    }
}
