//! Changes of view: the leader of the new view makes one record of those of a majority, and all begin with that.

use super::message::{Ballot, Ended, Held, Message, Name, Part, Record, Vote};
use super::occ::{self, Data, Prepared};
use super::server::{DOUBLINGS, Server, Timer};
use super::takeover::counting;
use crate::request::TxnId;
use crate::said::say;
use isochrone_core::{Effects, ProcessId, Quorums};
use std::collections::BTreeMap;
use std::sync::Arc;

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

/// Whether the leader of a new view may have to judge by what else stands whether something was decided ([`merge`]): where
/// of those heard fewer than a majority voted for it, and a fast quorum may have. So it is with four replicas or more.
///
/// What else stands is then also what one replica holds although it was aborted, unless the leader hears of that. So an
/// abort releases nothing there before a majority knows of it. With fewer replicas nothing is in doubt, and it need not wait.
pub const fn doubts(replicas: usize) -> bool {
    let majority = Quorums::majority(replicas);
    Quorums::recovery(replicas, majority) < majority
}

/// One record from those of a majority (`specs/carousel.md` 6.1, View change).
///
/// Of each transaction: what was accepted under the highest ballot stands. Else the votes of replicas that were in the
/// last normal view are counted. A result that so many have voted for that a fast quorum may have (the set d) stands, if
/// a majority has checked it or it fits what else stands. All else (the set u) was not decided, and is refused: whoever
/// leads the view may have been away for longer than the others remember, so its data alone must commit nothing. `None`
/// where it cannot be told whether something of d fits, since that is too long ago: more records are needed then.
pub fn merge(
    records: &BTreeMap<ProcessId, (u64, Vec<Held>)>,
    replicas: usize,
    data: &Data,
) -> Option<Vec<Held>> {
    let latest = records.values().map(|(normal, _)| *normal).max()?;
    let mut known: BTreeMap<TxnId, Vec<&Held>> = BTreeMap::new();
    for (_, held) in records.values().filter(|(normal, _)| *normal == latest) {
        for held in held {
            known.entry(held.name.txn).or_default().push(held);
        }
    }
    let (majority, most) = (Quorums::majority(replicas), Quorums::recovery(replicas, records.len()));
    let (mut merged, mut doubtful) = (Vec::new(), Vec::new());
    for (txn, all) in known {
        let Some((attempt, at)) = counting(all.iter().copied()) else { continue };
        let part = all.iter().find_map(|held| held.part.clone());
        let promised = all.iter().map(|held| held.promised).max().unwrap_or(Ballot::CLIENT);
        let here: Vec<&Held> = all.iter().copied().filter(|held| held.name.attempt == attempt).collect();
        let accepted = here.iter().filter_map(|held| Some((held.accepted?, held.vote?)));
        let accepted = accepted.max_by_key(|(ballot, _)| *ballot);
        let mut votes: BTreeMap<Vote, usize> = BTreeMap::new();
        for vote in here.iter().filter_map(|held| held.vote) {
            *votes.entry(vote).or_default() += 1;
        }
        let most = votes.into_iter().filter(|(_, count)| *count >= most).max_by_key(|(_, count)| *count);
        // A transaction takes part in the same partitions in all its tries.
        let Some(participants) = all.first().map(|held| held.name.participants.clone()) else { continue };
        let name = Name { txn, participants, attempt, at };
        let held = |vote, accepted| Held { name, part, vote, accepted: Some(accepted), promised };
        match (accepted, most) {
            (Some((ballot, vote)), _) => merged.push(held(Some(vote), ballot)),
            (None, Some((Vote::Ok, count))) if count < majority => {
                doubtful.push(held(Some(Vote::Ok), Ballot::CLIENT));
            }
            (None, Some((vote, _))) => merged.push(held(Some(vote), Ballot::CLIENT)),
            (None, None) => merged.push(held(Some(Vote::Abstain), Ballot::CLIENT)),
        }
    }
    let mut prepared = Prepared::default();
    let ok = |held: &Held| held.part.clone().filter(|_| held.vote == Some(Vote::Ok));
    for held in &merged {
        if let Some(part) = ok(held) {
            prepared.insert(held.name.txn, held.name.at, &part);
        }
    }
    // In the order of their timestamps, in which none of them is in the way of a later one.
    let order = |held: &Held| (held.name.at, held.name.txn);
    doubtful.sort_by_key(order);
    for mut held in doubtful {
        let fits = match &held.part {
            Some(part) => occ::fits(data, &prepared, held.name.txn, part, held.name.at)?,
            None => false,
        };
        held.vote = Some(if fits { Vote::Ok } else { Vote::Abort });
        if let Some(part) = ok(&held) {
            prepared.insert(held.name.txn, held.name.at, &part);
        }
        merged.push(held);
    }
    Some(merged)
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
            self.settle_one(txn, effects);
        }
        self.changing.collected.insert(from, (normal, held));
        let replicas = self.map.group(self.partition).members.len();
        let collected = &self.changing.collected;
        if collected.len() < Quorums::majority(replicas) || !collected.contains_key(&self.me) {
            return;
        }
        let known = collected.values().flat_map(|(_, held)| held);
        let parts: Vec<(TxnId, Arc<Part>)> =
            known.filter_map(|held| Some((held.name.txn, held.part.clone()?))).collect();
        self.catch_up(parts, effects);
        // What has ended is in the data or nowhere, and in the way of nothing that is in doubt.
        for (_, held) in self.changing.collected.values_mut() {
            held.retain(|held| !self.state.has_ended(held.name.txn));
        }
        let Some(held) = merge(&self.changing.collected, replicas, &self.state.data) else { return };
        self.install(view, held, Vec::new(), effects);
        for peer in self.peers().filter(|peer| *peer != self.me) {
            self.send_start(peer, effects);
        }
    }

    /// Executes everything whose end is known, with what others know of it.
    fn catch_up(&mut self, parts: Vec<(TxnId, Arc<Part>)>, effects: &mut Effects<Self>) {
        for (txn, part) in parts {
            let hollow = self.state.entries.get(&txn).filter(|entry| entry.part.is_none());
            if let Some(mut ended) = hollow.and_then(|entry| entry.ended(true)) {
                ended.part = Some(part);
                self.note(ended, effects);
            }
        }
        let txns: Vec<TxnId> = self.state.entries.keys().copied().collect();
        txns.into_iter().for_each(|txn| self.settle_one(txn, effects));
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
    use crate::request::Update;
    use isochrone_core::{Blob, ClientId, PartitionId};
    use isochrone_store::versions::Version;

    const NEVER: u64 = 0;

    /// Transaction `number` at this timestamp, which reads and writes these keys, all of them never written.
    fn txn(number: u64, at: u64, reads: &[&str], writes: &[&str]) -> Held {
        let client = ClientId { process: ProcessId::from_u64(1), incarnation: 1 };
        let participants = Arc::from([PartitionId(0)]);
        let name =
            Name { txn: TxnId { client, sequence: number }, participants, attempt: 0, at: Version(at) };
        let reads = reads.iter().map(|key| (Blob::from(*key), Version(NEVER))).collect();
        let write = |key: &&str| Update { key: Blob::from(*key), value: Some(Blob::from("v")) };
        let part = Part { reads, writes: writes.iter().map(write).collect() };
        let part = Some(Arc::new(part));
        Held { name, part, vote: Some(Vote::Ok), accepted: None, promised: Ballot::CLIENT }
    }

    /// What is agreed on where these replicas hold these, all in the same view before.
    fn merged(replicas: usize, data: &Data, records: &[&[&Held]]) -> BTreeMap<u64, Vote> {
        let of = |held: &[&Held]| (0, held.iter().map(|held| (*held).clone()).collect::<Vec<_>>());
        let records = records.iter().enumerate();
        let records = records.map(|(at, held)| (ProcessId::from_u64(at as u64), of(held))).collect();
        let merged = merge(&records, replicas, data).unwrap();
        let vote = |held: &Held| (held.name.txn.sequence, held.vote.unwrap());
        merged.iter().map(vote).collect()
    }

    #[test]
    fn what_a_fast_quorum_may_have_voted_for_stands() {
        let one = txn(1, 10, &["x"], &["x"]);
        assert_eq!(merged(3, &Data::default(), &[&[&one], &[&one]])[&1], Vote::Ok);
        let refused = Held { vote: Some(Vote::Abstain), ..one.clone() };
        assert_eq!(merged(3, &Data::default(), &[&[&refused], &[&refused]])[&1], Vote::Abstain);
        // One vote of two: it was not decided, whatever the leader of the view knows of its keys.
        assert_eq!(merged(3, &Data::default(), &[&[&one], &[&refused]])[&1], Vote::Abstain);
    }

    /// Of three that were read, two voted for one and one for the other: only the first can have had its votes.
    #[test]
    fn two_that_exclude_each_other_do_not_both_stand() {
        let (one, other) = (txn(1, 10, &["x"], &["x"]), txn(2, 20, &["x"], &["x"]));
        let votes = merged(5, &Data::default(), &[&[&one], &[&one], &[&other]]);
        assert_eq!(votes[&1], Vote::Ok);
        assert_ne!(votes[&2], Vote::Ok);
    }

    /// A reader was voted for, and a later writer of its key has committed meanwhile: both have their places.
    #[test]
    fn a_later_commit_does_not_undo_what_was_decided_before() {
        let reader = txn(1, 10, &["x"], &["y"]);
        let mut data = Data::default();
        data.apply(&txn(2, 20, &[], &["x"]).part.unwrap(), Version(20));
        assert_eq!(merged(3, &data, &[&[&reader], &[&reader]])[&1], Vote::Ok, "checked by a majority");
        assert_eq!(merged(5, &data, &[&[&reader], &[&reader], &[]])[&1], Vote::Ok, "it fits");
        data.apply(&txn(3, 5, &[], &["x"]).part.unwrap(), Version(5));
        assert_eq!(
            merged(5, &data, &[&[&reader], &[&reader], &[]])[&1],
            Vote::Abort,
            "one in between, though late"
        );
    }

    #[test]
    fn an_acceptance_counts_more_than_votes_and_old_views_do_not_count() {
        let vote = txn(1, 10, &["x"], &["x"]);
        let refused = Held { vote: Some(Vote::Abort), accepted: Some(Ballot::CLIENT), ..vote.clone() };
        assert_eq!(merged(3, &Data::default(), &[&[&vote], &[&refused]])[&1], Vote::Abort);
        let records = [(1, vec![refused]), (0, vec![vote.clone(), txn(2, 20, &["z"], &["z"])])];
        let records = records.into_iter().enumerate();
        let records = records.map(|(at, held)| (ProcessId::from_u64(at as u64), held)).collect();
        let merged = merge(&records, 3, &Data::default()).unwrap();
        assert_eq!(merged.len(), 1, "what only an old view knows was not decided: {merged:?}");
    }
}
