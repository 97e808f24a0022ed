//! A leader as the coordinator of transactions: prepares, votes, decisions, outcomes.
//!
//! A coordinator that loses its leadership forgets what it had not decided. Its successor knows decisions only: a
//! participant that is prepared asks it, and what it does not know it aborts, by an entry of its log like any decision.

use super::Mutation;
use super::message::{Ending, Entry, Message, Part};
use super::server::{Due, Replica, Turn};
use crate::request::{Reason, TxnId};
use isochrone_core::{Instant, PartitionId, ProcessId, Stamp};
use isochrone_store::versions::Version;
use std::collections::{BTreeMap, BTreeSet};

/// A transaction that is not decided.
#[derive(Clone, Hash, Debug)]
pub(super) struct Driving {
    start: Stamp,
    below: u64,
    parts: BTreeMap<PartitionId, Part>,
    /// Who is prepared, and the version that allows.
    votes: BTreeMap<PartitionId, Version>,
    /// What was appended, and who is to be told of it.
    ending: Option<(Ending, Vec<PartitionId>)>,
    since: Instant,
    due: Due,
}

/// Votes that were here before their transaction: where clients ask the participants themselves, one on the way may vote before the
/// client's commit comes.
#[derive(Clone, Hash, Debug)]
pub(super) struct Ahead {
    votes: BTreeMap<PartitionId, Ending>,
    since: Instant,
}

/// A decision that some have not acknowledged.
#[derive(Clone, Hash, Debug)]
pub(super) struct Telling {
    left: BTreeSet<PartitionId>,
    due: Due,
}

/// How many transactions a leader drives at once; clients of more ask again.
const DRIVING_MAX: usize = 65_536;
/// For how many more transactions a leader keeps votes; others are asked for again.
const AHEAD_MAX: usize = 4_096;
/// How many are forgotten by one entry.
const FORGET_MAX: usize = 1_024;
/// Times that a message is sent to another at once because its receiver does not lead.
const REDIRECTS_MAX: u32 = 3;

impl Replica {
    pub(super) fn on_commit(
        &mut self,
        txn: TxnId,
        start: Stamp,
        below: u64,
        parts: Vec<Part>,
        asked: bool,
        turn: &mut Turn<'_>,
    ) {
        if let Some(ending) = self.state.known(txn) {
            return turn.send_ahead(txn.client.process, Message::Ended { txn, ending });
        }
        let full = self.driving.len() >= DRIVING_MAX;
        if full || self.state.is_past(txn) || self.driving.contains_key(&txn) {
            return;
        }
        let parts: BTreeMap<PartitionId, Part> =
            parts.into_iter().map(|part| (part.partition, part)).collect();
        let (since, due, nothing) = (turn.now(), self.due(turn), parts.is_empty());
        let driving = Driving { start, below, parts, votes: BTreeMap::new(), ending: None, since, due };
        self.driving.insert(txn, driving);
        if nothing {
            return self.decide_at(txn, turn);
        }
        for (partition, vote) in self.ahead.remove(&txn).map(|ahead| ahead.votes).unwrap_or_default() {
            self.count_vote(txn, partition, vote, turn);
        }
        let undecided = self.driving.get(&txn).is_some_and(|driving| driving.ending.is_none());
        if undecided && !asked {
            self.ask_to_prepare(txn, turn);
        }
    }

    /// A client waits no longer for what is undecided: it is aborted. What is not known here was not asked for yet, or by a
    /// coordinator that is gone; what still comes of it meets this decision, or this one an earlier.
    pub(super) fn on_withdraw(
        &mut self,
        txn: TxnId,
        below: u64,
        participants: Vec<PartitionId>,
        turn: &mut Turn<'_>,
    ) {
        if let Some(ending) = self.state.known(txn) {
            return turn.send_ahead(txn.client.process, Message::Ended { txn, ending });
        }
        let ending = Err(Reason::Unavailable);
        let undecided = self.driving.get(&txn).is_none_or(|driving| driving.ending.is_none());
        if undecided && self.parameters.mutated(Mutation::WithdrawWithoutDecision) {
            return turn.send_ahead(txn.client.process, Message::Ended { txn, ending });
        }
        if self.driving.contains_key(&txn) {
            if undecided {
                self.decide(txn, ending, turn);
            }
        } else if !self.state.is_past(txn) {
            self.decide_unknown(txn, below, ending, participants, turn);
        }
    }

    /// Decides the end of a transaction that is not known here, unless too much is driven; whoever needs it asks again.
    fn decide_unknown(
        &mut self,
        txn: TxnId,
        below: u64,
        ending: Ending,
        participants: Vec<PartitionId>,
        turn: &mut Turn<'_>,
    ) {
        if self.driving.len() >= DRIVING_MAX {
            return;
        }
        let (since, due, parts, votes) = (turn.now(), self.due(turn), BTreeMap::new(), BTreeMap::new());
        let ending = Some((ending, participants));
        let driving = Driving { start: Stamp::ZERO, below, parts, votes, ending, since, due };
        self.driving.insert(txn, driving);
        self.append_decision(txn, turn);
    }

    pub(super) fn on_vote(
        &mut self,
        from: ProcessId,
        txn: TxnId,
        partition: PartitionId,
        vote: Ending,
        turn: &mut Turn<'_>,
    ) {
        self.leaders.note(partition, from, turn.now());
        if self.driving.contains_key(&txn) {
            return self.count_vote(txn, partition, vote, turn);
        }
        let over = self.state.known(txn).is_some() || self.state.is_past(txn);
        if !over && (self.ahead.len() < AHEAD_MAX || self.ahead.contains_key(&txn)) {
            let ahead = Ahead { votes: BTreeMap::new(), since: turn.now() };
            self.ahead.entry(txn).or_insert(ahead).votes.insert(partition, vote);
        }
    }

    fn count_vote(&mut self, txn: TxnId, partition: PartitionId, vote: Ending, turn: &mut Turn<'_>) {
        let Some(driving) = self.driving.get_mut(&txn) else { return };
        if driving.ending.is_some() || !driving.parts.contains_key(&partition) {
            return;
        }
        match vote {
            Ok(at) => {
                driving.votes.insert(partition, at);
                if driving.votes.len() == driving.parts.len() {
                    self.decide_at(txn, turn);
                }
            }
            Err(reason) => self.decide(txn, Err(reason), turn),
        }
    }

    pub(super) fn on_status(
        &mut self,
        from: ProcessId,
        txn: TxnId,
        partition: PartitionId,
        wound: bool,
        turn: &mut Turn<'_>,
    ) {
        self.leaders.note(partition, from, turn.now());
        if let Some(driving) = self.driving.get(&txn) {
            if wound && driving.ending.is_none() {
                turn.count("wounded_transactions");
                self.decide(txn, Err(Reason::Conflict), turn);
            }
            return;
        }
        if let Some(ending) = self.state.ending(txn) {
            let coordinator = self.partition;
            return turn.send_ahead(from, Message::Outcome { txn, coordinator, ending });
        }
        // Its coordinator is gone, or it was never begun: nobody will have heard that it commits.
        turn.count("presumed_aborts");
        let ending = match self.parameters.mutated(Mutation::PresumeCommit) {
            true => Ok(self.issue(turn)),
            false => Err(Reason::Presumed),
        };
        self.decide_unknown(txn, 0, ending, vec![partition], turn);
    }

    pub(super) fn on_acknowledged(
        &mut self,
        from: ProcessId,
        txn: TxnId,
        partition: PartitionId,
        turn: &Turn<'_>,
    ) {
        self.leaders.note(partition, from, turn.now());
        let Some(telling) = self.telling.get_mut(&txn) else { return };
        telling.left.remove(&partition);
        if telling.left.is_empty() {
            self.telling.remove(&txn);
            self.acknowledged.insert(txn);
        }
    }

    /// Whoever was asked does not lead: what this transaction has to say to that partition is said to who does.
    pub(super) fn on_not_leader(
        &mut self,
        txn: TxnId,
        partition: PartitionId,
        leader: Option<ProcessId>,
        turn: &mut Turn<'_>,
    ) {
        let news = leader.filter(|leader| *leader != self.leaders.of(partition));
        if !news.is_some_and(|leader| self.leaders.told(partition, leader, turn.now())) {
            return;
        }
        let to = self.leaders.of(partition);
        if let Some(driving) = self.driving.get_mut(&txn)
            && driving.ending.is_none()
            && !driving.votes.contains_key(&partition)
            && let Some(part) = driving.parts.get(&partition)
        {
            if redirect(&mut driving.due) {
                let (start, below, coordinator) = (driving.start, driving.below, self.partition);
                let part = part.clone();
                turn.send_ahead(to, Message::Prepare { txn, start, below, coordinator, part });
            }
        } else if let Some(telling) = self.telling.get_mut(&txn)
            && telling.left.contains(&partition)
            && let Some(decided) = self.state.decided.get(&txn)
        {
            if redirect(&mut telling.due) {
                let (coordinator, ending) = (self.partition, decided.ending);
                turn.send_ahead(to, Message::Outcome { txn, coordinator, ending });
            }
        } else if let Some(due) = self.unresolved.get_mut(&txn)
            && self.state.prepared.get(&txn).is_some_and(|prepared| prepared.coordinator == partition)
            && redirect(due)
        {
            self.query(txn, 0, turn);
        }
    }

    /// A decision has its place.
    pub(super) fn decided(&mut self, txn: TxnId, turn: &mut Turn<'_>) {
        self.driving.remove(&txn);
        let Some(ending) = self.state.known(txn) else { return };
        turn.count(if ending.is_ok() { "commits_decided" } else { "aborts_decided" });
        turn.send_ahead(txn.client.process, Message::Ended { txn, ending });
        self.tell(txn, turn);
    }

    /// Tells the participants of a decision, if any has not acknowledged it.
    pub(super) fn tell(&mut self, txn: TxnId, turn: &mut Turn<'_>) {
        let Some(decided) = self.state.decided.get(&txn) else { return };
        if self.telling.contains_key(&txn) || self.acknowledged.contains(&txn) {
            return;
        }
        let left: BTreeSet<PartitionId> = decided.participants.iter().copied().collect();
        let (coordinator, ending) = (self.partition, decided.ending);
        if left.is_empty() {
            self.acknowledged.insert(txn);
            return;
        }
        for partition in &left {
            let to = self.leaders.of(*partition);
            turn.send_ahead(to, Message::Outcome { txn, coordinator, ending });
        }
        self.telling.insert(txn, Telling { left, due: self.due(turn) });
    }

    /// What was asked or told for long without an answer is asked or told again.
    pub(super) fn sweep_coordinator(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now();
        let kept = self.parameters.retry;
        self.ahead.retain(|_, ahead| now.since(ahead.since) < kept);
        let due: Vec<TxnId> =
            self.driving.iter().filter(|(_, driving)| driving.due.at <= now).map(|(txn, _)| *txn).collect();
        for txn in due {
            let Some(driving) = self.driving.get(&txn) else { continue };
            let (decided, since) = (driving.ending.is_some(), driving.since);
            let due = self.later(driving.due, turn);
            if let Some(driving) = self.driving.get_mut(&txn) {
                driving.due = due;
            }
            if decided {
                self.append_decision(txn, turn);
            } else if now.since(since) > self.parameters.time_limit {
                self.decide(txn, Err(Reason::Presumed), turn);
            } else {
                self.ask_to_prepare(txn, turn);
            }
        }
        let due: Vec<TxnId> =
            self.telling.iter().filter(|(_, telling)| telling.due.at <= now).map(|(txn, _)| *txn).collect();
        for txn in due {
            let Some(telling) = self.telling.get(&txn) else { continue };
            let due = self.later(telling.due, turn);
            if let Some(decided) = self.state.decided.get(&txn) {
                let (coordinator, ending) = (self.partition, decided.ending);
                for partition in &telling.left {
                    for to in self.leaders.ask(*partition, due.attempts > 0) {
                        turn.send_ahead(to, Message::Outcome { txn, coordinator, ending });
                    }
                }
            }
            if let Some(telling) = self.telling.get_mut(&txn) {
                telling.due = due;
            }
        }
        if !self.acknowledged.is_empty() && self.forget_due <= now {
            self.forget_due = now + self.parameters.retry;
            let mut txns = self.acknowledged.iter().copied().peekable();
            while txns.peek().is_some() {
                turn.append(Entry::Forget { txns: txns.by_ref().take(FORGET_MAX).collect() });
            }
        }
    }

    /// Asks those to prepare that have not voted.
    fn ask_to_prepare(&mut self, txn: TxnId, turn: &mut Turn<'_>) {
        let Some(driving) = self.driving.get(&txn) else { return };
        let (start, below, coordinator) = (driving.start, driving.below, self.partition);
        for (partition, part) in &driving.parts {
            if !driving.votes.contains_key(partition) {
                for to in self.leaders.ask(*partition, driving.due.attempts > 0) {
                    let part = part.clone();
                    turn.send_ahead(to, Message::Prepare { txn, start, below, coordinator, part });
                }
            }
        }
    }

    /// All are prepared: it commits, at a version that all allow.
    fn decide_at(&mut self, txn: TxnId, turn: &mut Turn<'_>) {
        let Some(driving) = self.driving.get(&txn) else { return };
        let at = driving.votes.values().max().copied();
        let at = at.unwrap_or_else(|| self.issue(turn));
        self.decide(txn, Ok(at), turn);
    }

    fn decide(&mut self, txn: TxnId, ending: Ending, turn: &mut Turn<'_>) {
        let Some(driving) = self.driving.get_mut(&txn) else { return };
        driving.ending = Some((ending, driving.parts.keys().copied().collect()));
        if self.parameters.mutated(Mutation::DecisionBeforeReplication) {
            turn.send_ahead(txn.client.process, Message::Ended { txn, ending });
        }
        self.append_decision(txn, turn);
    }

    fn append_decision(&mut self, txn: TxnId, turn: &mut Turn<'_>) {
        let Some(driving) = self.driving.get(&txn) else { return };
        let Some((ending, participants)) = driving.ending.clone() else { return };
        turn.append(Entry::Decision { txn, below: driving.below, ending, participants });
    }
}

/// Whether something may be sent elsewhere at once; else it waits for its timer, lest two who know no better send it to
/// and fro.
fn redirect(due: &mut Due) -> bool {
    due.redirects += 1;
    due.redirects <= REDIRECTS_MAX
}
