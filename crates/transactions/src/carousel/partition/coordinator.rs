//! The coordinator: gathers prepare decisions, replicates sets and writes, decides, tells the client, and writes back.
//!
//! The client is told before the decision is replicated: it follows from what is (3.2). What does not follow from that,
//! an abort because a client was not heard of, or because nobody knew of the transaction, is replicated before anybody
//! is told. The outcome goes to the participants once it is *reproducible* (8.2): every participant has answered by its
//! log with the moment that was used, or the decision is in the log.

use super::{Coordinated, Partition, Seen, Turn};
use crate::carousel::Mutation;
use crate::carousel::message::{Ended, Entry, Part, Under, Verdict, Word};
use crate::request::{Reason, TxnId, Update};
use isochrone_core::{ClientId, Instant, PartitionId, ProcessId, Quorums, ReplicaId, Span};
use isochrone_store::versions::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A transaction that this leader coordinates.
#[derive(Clone, Hash, Debug)]
pub(super) struct Running {
    /// Nothing as long as only votes have come.
    parts: Arc<[Part]>,
    votes: BTreeMap<(PartitionId, ReplicaId), (Under, bool, Verdict)>,
    /// What decides, by partition, and whether votes did.
    settled: BTreeMap<PartitionId, (Verdict, bool)>,
    /// What the participants' logs say.
    logged: BTreeMap<PartitionId, Verdict>,
    /// The client waits for the outcome.
    asked: bool,
    /// What it writes has been appended.
    writing: bool,
    ended: Option<Ended>,
    /// That rests on nothing replicated, and must be before it shows.
    unilateral: bool,
    /// The participants are being told.
    written_back: bool,
    forgetting: bool,
    acknowledged: BTreeSet<PartitionId>,
    since: Instant,
    heard: Instant,
    /// When what is unanswered is asked again.
    next: Instant,
    attempts: u32,
}

impl Running {
    fn new(parts: Arc<[Part]>, now: Instant, next: Instant) -> Running {
        Running {
            parts,
            votes: BTreeMap::new(),
            settled: BTreeMap::new(),
            logged: BTreeMap::new(),
            asked: false,
            writing: false,
            ended: None,
            unilateral: false,
            written_back: false,
            forgetting: false,
            acknowledged: BTreeSet::new(),
            since: now,
            heard: now,
            next,
            attempts: 0,
        }
    }

    /// Whether every participant's log says what was used.
    fn reproducible(&self) -> bool {
        self.settled.iter().all(|(partition, (used, _))| self.logged.get(partition) == Some(used))
    }
}

impl Partition {
    fn running(&mut self, txn: TxnId, turn: &Turn<'_>) -> Option<&mut Running> {
        let (now, resend) = (turn.now(), self.knobs.resend);
        let running = &mut self.lead.as_mut()?.running;
        Some(running.entry(txn).or_insert_with(|| Running::new(Arc::default(), now, now + resend)))
    }

    /// Whether this leader has heard of a transaction from its client, or ends it.
    fn has_begun(&self, txn: TxnId) -> bool {
        let running = self.lead.as_ref().and_then(|lead| lead.running.get(&txn));
        running.is_some_and(|running| !running.parts.is_empty())
    }

    /// Whether nothing that is said of a transaction matters any more.
    fn is_decided(&self, txn: TxnId) -> bool {
        self.state.coordinated.get(&txn).map_or_else(|| self.is_past(txn), |known| known.ended.is_some())
    }

    pub(super) fn on_begin(&mut self, txn: TxnId, parts: Arc<[Part]>, turn: &mut Turn<'_>) {
        if self.is_past(txn) || self.state.coordinated.contains_key(&txn) {
            return;
        }
        let Some(running) = self.running(txn, turn) else { return };
        running.heard = turn.now();
        if running.parts.is_empty() {
            running.parts = parts.clone();
            turn.append(Entry::Begin { txn, parts });
            self.evaluate(txn, turn);
        }
    }

    pub(super) fn on_commit(
        &mut self,
        client: ProcessId,
        txn: TxnId,
        parts: Arc<[Part]>,
        updates: Arc<[Update]>,
        seen: Seen,
        turn: &mut Turn<'_>,
    ) {
        let known = self.state.coordinated.get(&txn);
        if let Some(ended) = known.and_then(|known| known.ended) {
            return turn.send_ahead(client, Word::Ended { txn, ended, fast: false });
        }
        if known.is_none() && self.is_past(txn) {
            return;
        }
        let written = known.is_some_and(|known| known.write.is_some());
        let Some(running) = self.running(txn, turn) else { return };
        if running.parts.is_empty() {
            running.parts = parts.clone();
        }
        running.asked = true;
        match running.ended {
            Some(_) if running.unilateral => {}
            Some(ended) => turn.send_ahead(client, Word::Ended { txn, ended, fast: false }),
            None if running.writing || written => {}
            None => {
                running.writing = true;
                turn.append(Entry::Write { txn, parts, updates, seen });
                self.evaluate(txn, turn);
            }
        }
    }

    /// The client gives up. After it has asked to commit it cannot any more.
    pub(super) fn on_abort(&mut self, txn: TxnId, parts: Arc<[Part]>, turn: &mut Turn<'_>) {
        let known = self.state.coordinated.get(&txn);
        if known.is_some_and(|known| known.ended.is_some() || known.write.is_some())
            || known.is_none() && self.is_past(txn)
        {
            return;
        }
        self.abort(txn, parts, Reason::Client, turn);
    }

    /// Ends a transaction that nobody has asked to commit, for a reason that is nowhere replicated.
    fn abort(&mut self, txn: TxnId, parts: Arc<[Part]>, reason: Reason, turn: &mut Turn<'_>) {
        let unreplicated = self.knobs.mutated(Mutation::AbortUnreplicated);
        let Some(running) = self.running(txn, turn) else { return };
        if running.writing || running.ended.is_some() {
            return;
        }
        if running.parts.is_empty() {
            running.parts = parts;
        }
        let ended = Ended::Aborted(reason);
        running.ended = Some(ended);
        running.unilateral = !unreplicated;
        if unreplicated {
            return self.write_back(txn, turn);
        }
        let parts = running.parts.clone();
        turn.append(Entry::Decision { txn, parts, ended });
    }

    pub(super) fn on_heartbeat(&mut self, client: ClientId, open: &[u64], turn: &Turn<'_>) {
        let Some(lead) = &mut self.lead else { return };
        for sequence in open {
            if let Some(running) = lead.running.get_mut(&TxnId { client, sequence: *sequence }) {
                running.heard = turn.now();
            }
        }
    }

    pub(super) fn on_vote(
        &mut self,
        from: ProcessId,
        txn: TxnId,
        partition: PartitionId,
        (replica, under, leads): (ReplicaId, Under, bool),
        verdict: Verdict,
        turn: &mut Turn<'_>,
    ) {
        if leads {
            self.leaders.note(from.partition, from, turn.now());
        }
        if self.is_decided(txn) {
            return;
        }
        let Some(running) = self.running(txn, turn) else { return };
        let known = running.votes.entry((partition, replica)).or_insert((under, leads, verdict.clone()));
        if (under.term, under.version) >= (known.0.term, known.0.version) {
            *known = (under, leads || (known.1 && known.0 == under), verdict);
        }
        self.evaluate(txn, turn);
    }

    pub(super) fn on_prepared(
        &mut self,
        from: ProcessId,
        txn: TxnId,
        partition: PartitionId,
        verdict: Verdict,
        turn: &mut Turn<'_>,
    ) {
        self.leaders.note(from.partition, from, turn.now());
        if self.is_decided(txn) {
            return;
        }
        let Some(running) = self.running(txn, turn) else { return };
        running.logged.insert(partition, verdict);
        if let (Some(Ended::Committed(_)), false, true) =
            (running.ended, running.written_back, running.reproducible())
        {
            return self.write_back(txn, turn);
        }
        self.evaluate(txn, turn);
    }

    /// Settles what can be, and decides if that is enough.
    fn evaluate(&mut self, txn: TxnId, turn: &mut Turn<'_>) {
        let knobs = self.knobs;
        let (unwritten, versions_ignored) =
            (knobs.mutated(Mutation::CommitUnwritten), knobs.mutated(Mutation::VersionsIgnored));
        let write = self.state.coordinated.get(&txn).and_then(|known| known.write.clone());
        let Some(running) = self.lead.as_mut().and_then(|lead| lead.running.get_mut(&txn)) else { return };
        if running.ended.is_some() || running.parts.is_empty() {
            return;
        }
        let (mut all, mut stale, mut refusal) = (true, false, None);
        let mut at = Version::NONE;
        for part in running.parts.iter() {
            let partition = part.partition;
            if !running.settled.contains_key(&partition) {
                let fast = fast(&running.votes, partition, &knobs);
                let settled = match running.logged.get(&partition) {
                    Some(verdict) => Some((verdict.clone(), false)),
                    None => fast.map(|verdict| (verdict, true)),
                };
                if let Some(settled) = settled {
                    turn.count(if settled.1 { "settled_by_votes" } else { "settled_by_log" });
                    running.settled.insert(partition, settled);
                }
            }
            let Some((verdict, _)) = running.settled.get(&partition) else {
                all = false;
                continue;
            };
            if !verdict.prepared {
                // One that rests on a decision is told at once.
                let reason = Partition::refused(verdict);
                refusal = refusal.filter(|known| *known != Reason::Presumed).or(Some(reason));
            } else if let Some((_, seen)) = &write {
                let used = seen.iter().find(|(of, _)| *of == partition).map(|(_, versions)| versions);
                stale |= !versions_ignored && used.is_some_and(|used| *used != verdict.versions);
            }
            at = at.max(verdict.at);
        }
        let ended = match refusal {
            Some(reason) if !stale || reason != Reason::Presumed => Ended::Aborted(reason),
            _ if stale => Ended::Aborted(Reason::StaleRead),
            None if all && (write.is_some() || unwritten && running.writing) => Ended::Committed(at),
            _ => return,
        };
        self.decide(txn, ended, turn);
    }

    /// What follows from replicated facts is told at once. That a participant knows nothing is none: where another
    /// replica leads by now the participant may have had the outcome from that one, and have forgotten it.
    fn decide(&mut self, txn: TxnId, ended: Ended, turn: &mut Turn<'_>) {
        let early = self.knobs.early_abort;
        let Some(running) = self.lead.as_mut().and_then(|lead| lead.running.get_mut(&txn)) else { return };
        running.ended = Some(ended);
        if ended == Ended::Aborted(Reason::Presumed) {
            running.unilateral = true;
            let parts = running.parts.clone();
            return turn.append(Entry::Decision { txn, parts, ended });
        }
        let aborted = matches!(ended, Ended::Aborted(_));
        if running.asked || early && aborted {
            let fast = running.settled.values().all(|(_, fast)| *fast);
            turn.send_ahead(txn.client.process, Word::Ended { txn, ended, fast });
        }
        let (parts, reproducible) = (running.parts.clone(), aborted || running.reproducible());
        turn.append(Entry::Decision { txn, parts, ended });
        if reproducible {
            self.write_back(txn, turn);
        }
    }

    /// Tells the participants that have not acknowledged it how it ended.
    fn write_back(&mut self, txn: TxnId, turn: &mut Turn<'_>) {
        let write = self.state.coordinated.get(&txn).and_then(|known| known.write.clone());
        let Some(running) = self.lead.as_mut().and_then(|lead| lead.running.get_mut(&txn)) else { return };
        let Some(ended) = running.ended else { return };
        running.written_back = true;
        let open: Vec<PartitionId> = running
            .parts
            .iter()
            .map(|part| part.partition)
            .filter(|partition| !running.acknowledged.contains(partition))
            .collect();
        for partition in open {
            let updates = self.updates_of(partition, ended, write.as_ref());
            turn.send_ahead(self.leader_of(partition), Word::Writeback { txn, ended, updates });
        }
    }

    fn updates_of(
        &self,
        partition: PartitionId,
        ended: Ended,
        write: Option<&(Arc<[Update]>, Seen)>,
    ) -> Vec<Update> {
        match (ended, write) {
            (Ended::Committed(_), Some((updates, _))) => {
                let here = |update: &&Update| self.map.partition(&update.key) == partition;
                updates.iter().filter(here).cloned().collect()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn apply_begin(
        &mut self,
        txn: TxnId,
        parts: &Arc<[Part]>,
        write: Option<(Arc<[Update]>, Seen)>,
        turn: Option<&mut Turn<'_>>,
    ) {
        if !self.state.coordinated.contains_key(&txn) {
            if self.is_past(txn) {
                return self.leave(txn);
            }
            let known = Coordinated { parts: parts.clone(), write: None, ended: None, forgotten: false };
            self.state.coordinated.insert(txn, known);
        }
        if let Some(known) = self.state.coordinated.get_mut(&txn)
            && known.ended.is_none()
            && known.write.is_none()
        {
            known.write = write;
        }
        if let Some(turn) = turn
            && self.lead.is_some()
        {
            self.evaluate(txn, turn);
        }
    }

    /// A transaction was over before its entry had its place.
    fn leave(&mut self, txn: TxnId) {
        if let Some(lead) = &mut self.lead {
            lead.running.remove(&txn);
        }
    }

    /// The first decision of a transaction stands (I6).
    pub(super) fn apply_decision(
        &mut self,
        txn: TxnId,
        parts: &Arc<[Part]>,
        ended: Ended,
        turn: Option<&mut Turn<'_>>,
    ) {
        if !self.state.coordinated.contains_key(&txn) && self.is_past(txn) {
            return self.leave(txn);
        }
        let known = self.state.coordinated.entry(txn).or_insert_with(|| Coordinated {
            parts: parts.clone(),
            write: None,
            ended: None,
            forgotten: false,
        });
        let ended = *known.ended.get_or_insert(ended);
        let Some(turn) = turn else { return };
        let Some(running) = self.lead.as_mut().and_then(|lead| lead.running.get_mut(&txn)) else { return };
        running.ended = Some(ended);
        if std::mem::take(&mut running.unilateral) && running.asked {
            turn.send_ahead(txn.client.process, Word::Ended { txn, ended, fast: false });
        }
        if !running.written_back {
            self.write_back(txn, turn);
        }
        self.forget_if_done(txn, turn);
    }

    pub(super) fn on_written_back(
        &mut self,
        from: ProcessId,
        txn: TxnId,
        partition: PartitionId,
        turn: &mut Turn<'_>,
    ) {
        self.leaders.note(from.partition, from, turn.now());
        if let Some(running) = self.lead.as_mut().and_then(|lead| lead.running.get_mut(&txn)) {
            running.acknowledged.insert(partition);
            self.forget_if_done(txn, turn);
        }
    }

    fn forget_if_done(&mut self, txn: TxnId, turn: &mut Turn<'_>) {
        let decided = self.state.coordinated.get(&txn).is_some_and(|known| known.ended.is_some());
        let Some(running) = self.lead.as_mut().and_then(|lead| lead.running.get_mut(&txn)) else { return };
        let acknowledged = |part: &Part| running.acknowledged.contains(&part.partition);
        // Of one that only votes have told of, the participants are not known.
        let done = !running.parts.is_empty() && running.parts.iter().all(acknowledged);
        if decided && done && !std::mem::replace(&mut running.forgetting, true) {
            turn.append(Entry::Forget { txn });
        }
    }

    pub(super) fn apply_forget(&mut self, txn: TxnId) {
        if let Some(known) = self.state.coordinated.get_mut(&txn) {
            (known.parts, known.write, known.forgotten) = (Arc::default(), None, true);
        }
        self.leave(txn);
    }

    /// A new leader goes on where the log stands (4.4).
    pub(super) fn take_over(&mut self, turn: &mut Turn<'_>) {
        let open = self.state.coordinated.iter().filter(|(_, known)| !known.forgotten);
        let open: Vec<_> = open.map(|(txn, known)| (*txn, known.parts.clone(), known.ended)).collect();
        for (txn, parts, ended) in open {
            let Some(running) = self.running(txn, turn) else { return };
            (running.parts, running.ended) = (parts, ended);
            match ended {
                Some(_) => {
                    self.write_back(txn, turn);
                    self.forget_if_done(txn, turn);
                }
                None => self.query(txn, true, turn),
            }
        }
    }

    /// Asks the participants that have not decided, as far as is known.
    fn query(&mut self, txn: TxnId, last: bool, turn: &mut Turn<'_>) {
        let Some(running) = self.lead.as_ref().and_then(|lead| lead.running.get(&txn)) else { return };
        let open = running.parts.iter().filter(|part| !running.settled.contains_key(&part.partition));
        for part in open.cloned().collect::<Vec<_>>() {
            let (to, coordinator) = (self.leader_of(part.partition), self.me);
            turn.send_ahead(to, Word::Query { txn, part, coordinator, last });
        }
    }

    /// A participant has prepared a transaction long ago.
    pub(super) fn on_status(&mut self, from: ProcessId, txn: TxnId, part: Part, turn: &mut Turn<'_>) {
        self.leaders.note(from.partition, from, turn.now());
        if let Some(known) = self.state.coordinated.get(&txn) {
            if let Some(ended) = known.ended {
                let updates = self.updates_of(part.partition, ended, known.write.as_ref());
                // Where what it wrote is forgotten, every participant has it.
                if !known.forgotten || matches!(ended, Ended::Aborted(_)) {
                    turn.send_ahead(from, Word::Writeback { txn, ended, updates });
                }
            }
            return;
        }
        if self.has_begun(txn) {
            return;
        }
        if self.is_past(txn) {
            // What was decided here is forgotten only when every participant has it, so this never was; and it will
            // not be taken up any more.
            let (ended, updates) = (Ended::Aborted(Reason::Presumed), Vec::new());
            return turn.send_ahead(from, Word::Writeback { txn, ended, updates });
        }
        // Nobody has told this group of it, and from here on nobody will be heard who does (4.7).
        self.abort(txn, [part].into(), Reason::Presumed, turn);
    }

    /// A participant wants to forget: it may what is decided in this log. What never was here is decided now, by an
    /// entry: where another replica leads by now that one may know of it, and this one gets no entry through.
    pub(super) fn on_closable(&mut self, from: ProcessId, txns: Vec<TxnId>, turn: &mut Turn<'_>) {
        if !self.leaders.note(from.partition, from, turn.now()) {
            return;
        }
        let mut closed = Vec::new();
        for txn in txns {
            match self.state.coordinated.get(&txn) {
                Some(known) if known.ended.is_some() => closed.push(txn),
                Some(_) => {}
                None if self.is_past(txn) => closed.push(txn),
                None if self.has_begun(txn) || turn.backlog() > self.knobs.waiting_max => {}
                None => {
                    let part =
                        Part { partition: from.partition, reads: Arc::default(), writes: Arc::default() };
                    self.abort(txn, [part].into(), Reason::Presumed, turn);
                }
            }
        }
        if !closed.is_empty() {
            turn.send_ahead(from, Word::Closed { txns: closed });
        }
    }

    /// Asks again what was not answered, and ends what nobody will.
    pub(super) fn look_after_running(&mut self, turn: &mut Turn<'_>) {
        let (now, knobs) = (turn.now(), self.knobs);
        let Some(lead) = &mut self.lead else { return };
        // Votes for what never began here: their coordinator is another by now.
        lead.running.retain(|_, running| {
            !running.parts.is_empty() || running.asked || now.since(running.since) < knobs.orphan * 2
        });
        let (mut silent, mut late) = (Vec::new(), Vec::new());
        for (txn, running) in &mut lead.running {
            let written =
                running.writing || self.state.coordinated.get(txn).is_some_and(|known| known.write.is_some());
            let lost = now.since(running.heard) > knobs.heartbeat * knobs.missed
                || now.since(running.since) > knobs.limit;
            if running.ended.is_none() && !written && lost && !running.parts.is_empty() {
                silent.push((*txn, running.parts.clone()));
            } else if now >= running.next {
                // Looked at once a heartbeat.
                let waited = knobs.pause(running.attempts) + knobs.heartbeat;
                running.attempts += 1;
                running.next = now + knobs.pause(running.attempts);
                late.push((*txn, running.ended.is_some(), now.since(running.since) > knobs.orphan, waited));
            }
        }
        for (txn, parts) in silent {
            self.abort(txn, parts, Reason::HeartbeatLost, turn);
        }
        for (txn, ended, old, waited) in late {
            self.turn_from_silent(txn, now, waited);
            let told = |running: &Running| running.written_back;
            let running = self.lead.as_ref().and_then(|lead| lead.running.get(&txn));
            match ended {
                true if running.is_some_and(told) => self.write_back(txn, turn),
                true => {}
                false => self.query(txn, old, turn),
            }
        }
    }

    /// Participants of a transaction that have answered nothing for so long: another replica may lead there by now.
    fn turn_from_silent(&mut self, txn: TxnId, now: Instant, waited: Span) {
        let Some(running) = self.lead.as_ref().and_then(|lead| lead.running.get(&txn)) else { return };
        let silent = |partition: &PartitionId| match running.ended {
            Some(_) => !running.acknowledged.contains(partition),
            None => !running.settled.contains_key(partition),
        };
        let partitions = running.parts.iter().map(|part| part.partition);
        for partition in partitions.filter(silent).collect::<Vec<_>>() {
            self.leaders.doubt(partition, now, waited);
        }
    }
}

/// What votes settle a partition with, without its log: equal ones of one term and of the same members, the leader's
/// among them (3.3).
fn fast(
    votes: &BTreeMap<(PartitionId, ReplicaId), (Under, bool, Verdict)>,
    partition: PartitionId,
    knobs: &crate::carousel::Parameters,
) -> Option<Verdict> {
    let (any_term, any_versions, leaderless) = (
        knobs.mutated(Mutation::TermIgnored),
        knobs.mutated(Mutation::VersionsIgnored),
        knobs.mutated(Mutation::LeaderNotRequired),
    );
    let seats = (partition, ReplicaId(0))..=(partition, ReplicaId(u8::MAX));
    let votes: Vec<_> = votes.range(seats).map(|(_, vote)| vote).collect();
    let first = votes.iter().find(|(_, leads, _)| *leads || leaderless)?;
    let alike = |(under, _, verdict): &&&(Under, bool, Verdict)| {
        let same =
            if any_versions { verdict.prepared == first.2.prepared } else { verdict.matches(&first.2) };
        same && (any_term || *under == first.0)
    };
    let enough = votes.iter().filter(alike).count() >= Quorums::supermajority(usize::from(first.0.members));
    enough.then(|| first.2.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carousel::Parameters;
    use crate::family::Tuning as _;
    use isochrone_core::Ballot;

    const P: PartitionId = PartitionId(3);

    fn under(round: u32, replicas: usize) -> Under {
        let term = Ballot { round, owner: ReplicaId(0) };
        Under { term, version: 0, members: replicas as u8 }
    }

    /// What votes settle: by seat, the round of the term, whether it leads, prepared, and the version read.
    fn settled(replicas: usize, votes: &[(u8, u32, bool, bool, u64)]) -> Option<(bool, u64)> {
        settled_with(None, replicas, votes)
    }

    fn settled_with(
        mutation: Option<Mutation>,
        replicas: usize,
        votes: &[(u8, u32, bool, bool, u64)],
    ) -> Option<(bool, u64)> {
        let vote = |(seat, round, leads, prepared, read): &(u8, u32, bool, bool, u64)| {
            let at = Version(100 + u64::from(*seat));
            let verdict = Verdict { prepared: *prepared, versions: vec![Version(*read)], at };
            let under = under(*round, replicas);
            ((P, ReplicaId(*seat)), (under, *leads, verdict))
        };
        let mut votes: BTreeMap<_, _> = votes.iter().map(vote).collect();
        // Of another partition, they count for nothing here.
        for seat in 0..7 {
            let verdict = Verdict { prepared: true, versions: vec![Version(1)], at: Version(1) };
            votes.insert((PartitionId(2), ReplicaId(seat)), (under(1, 7), seat == 0, verdict));
        }
        let knobs = Parameters { mutation, ..Parameters::for_rtt(Span::from_millis(100)) };
        fast(&votes, P, &knobs).map(|verdict| (verdict.prepared, verdict.at.0))
    }

    /// S10: the leader among them, all of one term, one decision and the same versions, `Q` of them.
    #[test]
    fn only_equal_votes_with_the_leaders_settle() {
        let all = [(0, 1, true, true, 7), (1, 1, false, true, 7), (2, 1, false, true, 7)];
        assert_eq!(settled(3, &all), Some((true, 100)), "with the leader's moment");
        assert_eq!(settled(3, &all[..2]), None, "one too few");
        assert_eq!(settled(3, &all[1..]), None, "without the leader");
        let unled = all.map(|(seat, round, _, prepared, read)| (seat, round, false, prepared, read));
        assert_eq!(settled(3, &unled), None, "nobody says that it leads");
        let mut mixed = all;
        mixed[2].1 = 2;
        assert_eq!(settled(3, &mixed), None, "another term");
        // Seeds find that one seldom.
        assert!(settled_with(Some(Mutation::TermIgnored), 3, &mixed).is_some());
        mixed = all;
        mixed[2].3 = false;
        assert_eq!(settled(3, &mixed), None, "another decision");
        mixed = all;
        mixed[2].4 = 6;
        assert_eq!(settled(3, &mixed), None, "the same decision after reading another version");
        let refused = all.map(|(seat, round, leads, _, read)| (seat, round, leads, false, read));
        assert_eq!(settled(3, &refused), Some((false, 100)), "a refusal is settled alike");
    }

    /// Votes cast among others do not count, and how many are needed follows from how many there were.
    #[test]
    fn votes_count_among_the_members_of_one_time() {
        let cast = |versions: &[u32], members| {
            let vote = |(seat, version): (usize, &u32)| {
                let verdict = Verdict { prepared: true, versions: Vec::new(), at: Version(1) };
                let under = Under { version: *version, ..under(1, members) };
                ((P, ReplicaId(seat as u8)), (under, seat == 0, verdict))
            };
            let votes = versions.iter().enumerate().map(vote).collect();
            fast(&votes, P, &Parameters::for_rtt(Span::from_millis(100))).is_some()
        };
        assert!(cast(&[1, 1, 1], 3) && cast(&[1, 1, 1], 4), "three of four meet in any three");
        assert!(!cast(&[1, 1, 0], 3) && !cast(&[1, 1, 2], 3), "another time");
        assert!(cast(&[2, 1, 2, 2], 4) && !cast(&[2, 1, 1, 1], 4));
        assert!(!cast(&[1, 1, 1], 5));
    }

    #[test]
    fn quorums_have_the_published_sizes() {
        for (replicas, needed) in [(1, 1), (3, 3), (5, 4), (7, 6)] {
            let votes = |count| (0..count).map(|seat| (seat, 1, seat == 0, true, 0)).collect::<Vec<_>>();
            assert_eq!(settled(replicas, &votes(needed)), Some((true, 100)), "{replicas}");
            assert_eq!(settled(replicas, &votes(needed - 1)), None, "{replicas}");
        }
    }
}
