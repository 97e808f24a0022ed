//! The participant: conflict checks, reads, prepare decisions, outcomes, and reads at a moment.

use super::{Closed, Lead, Partition, Phase, Turn, plus, version};
use crate::carousel::Mutation;
use crate::carousel::message::{Ended, Entry, Part, Under, Verdict, Vote, Word};
use crate::directory::located::is_entry;
use crate::map::Split;
use crate::request::{Read, Reason, TxnId, Update};
use isochrone_core::{Blob, ClientId, Instant, ProcessId, Span};
use isochrone_store::versions::Version;
use std::sync::Arc;

/// Ended transactions that are asked about in one message, or dropped by one entry.
const CLOSABLE_MAX: usize = 8_192;
/// Those that are asked about, or dropped, in one sweep: more than end in the time between two.
const CLEANED_MAX: usize = 16 * CLOSABLE_MAX;

impl Partition {
    /// Gives a message to who leads: to this replica where it is ready, later where it is about to be, and else back.
    pub(super) fn on_leader_word(&mut self, from: ProcessId, word: Word, turn: &mut Turn<'_>) {
        let Some(lead) = &mut self.lead else {
            let (partition, leader) = (self.me.partition, turn.leader());
            return turn.send_ahead(from, Word::NotLeader { partition, leader });
        };
        if !matches!(lead.phase, Phase::Serving) {
            if lead.waiting.len() < self.knobs.waiting_max {
                lead.waiting.push((from, word));
            }
            return;
        }
        match word {
            Word::Prepare { txn, below, age, coordinator, part, vote, .. } => {
                self.hear(txn.client, below, turn);
                self.prepare(from, (txn, age), coordinator, part, vote, turn);
            }
            Word::Begin { txn, below, parts } => {
                self.hear(txn.client, below, turn);
                self.on_begin(txn, parts, turn);
            }
            Word::Commit { txn, below, parts, updates, seen } => {
                self.hear(txn.client, below, turn);
                self.on_commit(from, txn, parts, updates, seen, turn);
            }
            Word::Abort { txn, below, parts } => {
                self.hear(txn.client, below, turn);
                self.on_abort(txn, parts, turn);
            }
            Word::Heartbeat { client, below, open } => {
                self.hear(client, below, turn);
                self.on_heartbeat(client, &open, turn);
            }
            Word::Writeback { txn, ended, updates } => self.on_writeback(from, txn, ended, updates, turn),
            Word::Query { txn, part, coordinator, last } => self.on_query(txn, part, coordinator, last, turn),
            Word::Status { txn, part } => self.on_status(from, txn, part, turn),
            Word::Closable { txns } => self.on_closable(from, txns, turn),
            Word::ReadAt { txn, below, at, keys } => {
                self.hear(txn.client, below, turn);
                self.on_read_at(from, txn, at, &keys, turn);
            }
            _ => {}
        }
    }

    fn hear(&mut self, client: ClientId, below: u64, turn: &Turn<'_>) {
        if let Some(lead) = &mut self.lead {
            let heard = lead.clients.entry(client).or_insert((0, turn.now()));
            *heard = (heard.0.max(below), turn.now());
        }
    }

    fn read(&self, keys: &[Blob]) -> Vec<Read> {
        let read = |key: &Blob| {
            let (version, value) = self.state.store.latest(key);
            Read { key: key.clone(), value: value.cloned(), version }
        };
        keys.iter().map(read).collect()
    }

    /// The next moment for a transaction: above all that was committed here or served to readers (5.4). `None` where
    /// that is above what may be given; a higher ceiling is on its way then.
    fn next_moment(&mut self, turn: &mut Turn<'_>) -> Option<Version> {
        let (ceiling, ahead) = (self.state.ceiling, self.knobs.ceiling);
        let lead = self.lead.as_mut()?;
        let last = lead.clock.max(self.state.clock);
        let next = version(turn.stamp()).max(Version(last.0 + 1));
        if next > ceiling {
            if next > lead.ceiling {
                lead.ceiling = plus(next, ahead);
                turn.append(Entry::Ceiling { to: lead.ceiling });
            }
            return None;
        }
        lead.clock = next;
        Some(next)
    }

    /// A client asks to read and to prepare. Every replica votes in the fast variant; who leads decides.
    pub(super) fn on_prepare(&mut self, from: ProcessId, word: Word, turn: &mut Turn<'_>) {
        if self.lead.is_some() {
            return self.on_leader_word(from, word, turn);
        }
        let Word::Prepare { txn, coordinator, part, read, vote, .. } = word else { return };
        if !vote {
            let (partition, leader) = (self.me.partition, turn.leader());
            return turn.send_ahead(from, Word::NotLeader { partition, leader });
        }
        if self.is_past(txn) || turn.seat().is_none() {
            return;
        }
        if read {
            let (partition, reads) = (self.me.partition, self.read(&part.reads));
            turn.send_ahead(from, Word::Values { txn, partition, leads: false, reads });
        }
        // What the log has decided is for the leader to tell.
        if self.state.pending.contains_key(&txn) || self.state.closed.contains_key(&txn) {
            return;
        }
        self.cast(txn, coordinator, part, None, turn);
    }

    /// Votes, or says again how it voted.
    fn cast(
        &mut self,
        txn: TxnId,
        coordinator: ProcessId,
        part: Part,
        decided: Option<Verdict>,
        turn: &mut Turn<'_>,
    ) {
        let again = self.knobs.mutated(Mutation::VoteAgain);
        if let Some(known) = self.votes.get(&txn).filter(|_| !again) {
            let known = known.clone();
            return self.send_vote(&known, turn);
        }
        // A candidate does not know yet whether it must decide (4.5).
        let term = turn.term();
        let Some(seat) = turn.seat() else { return };
        if !turn.leads() && term.owner == seat {
            return;
        }
        let verdict = decided.unwrap_or_else(|| Verdict {
            prepared: !self.claims.conflict(txn, &part),
            versions: part.reads.iter().map(|key| self.state.store.valued(key)).collect(),
            at: version(turn.stamp()),
        });
        let vote = Vote { txn, part, coordinator, term, verdict };
        if vote.verdict.prepared {
            self.claims.add(txn, &vote.part);
        }
        turn.record(vote.clone());
        self.send_vote(&vote, turn);
        self.votes.insert(txn, vote);
        self.sweep_soon(turn);
    }

    /// Behind its record (I12).
    fn send_vote(&self, vote: &Vote, turn: &mut Turn<'_>) {
        let Vote { txn, coordinator, term, verdict, .. } = vote.clone();
        let leads = turn.leads() && turn.term() == term;
        // Members to come are asked about votes of this term one day, who know nothing of them: what settles a partition
        // lies in the log before the change that brings them.
        if leads && turn.changes() && !self.knobs.mutated(Mutation::ChangeIgnored) {
            return;
        }
        let Some(replica) = turn.seat() else { return };
        let (partition, configuration) = (self.me.partition, turn.configuration());
        // There are at most 128.
        let (version, members) = (configuration.version(), configuration.members().len() as u8);
        let under = Under { term, version, members };
        turn.send(coordinator, Word::Vote { txn, partition, replica, under, leads, verdict });
    }

    /// The leader reads and decides, in one step (5.2).
    fn prepare(
        &mut self,
        from: ProcessId,
        (txn, age): (TxnId, Span),
        coordinator: ProcessId,
        part: Part,
        vote: bool,
        turn: &mut Turn<'_>,
    ) {
        if self.is_past(txn) || self.is_leaving(txn) {
            return;
        }
        if let Some((verdict, applied)) = self.decision(txn) {
            self.tell_values(from, txn, &part, turn);
            if applied {
                self.tell_decision(coordinator, txn, verdict, turn);
            } else if vote {
                // What is on its way to the log, which may be a refusal that somebody else has asked for (I3).
                self.cast(txn, coordinator, part, verdict, turn);
            }
            return;
        }
        if turn.backlog() > self.knobs.waiting_max {
            // Its client asks again.
            return turn.count("overloaded");
        }
        let Some(at) = self.next_moment(turn) else {
            if let Some(lead) = self.lead.as_mut().filter(|lead| lead.waiting.len() < self.knobs.waiting_max)
            {
                let (below, read) = (0, true);
                lead.waiting.push((from, Word::Prepare { txn, below, age, coordinator, part, read, vote }));
            }
            return;
        };
        self.tell_values(from, txn, &part, turn);
        let conflict = self.claims.conflict(txn, &part);
        let yields = self.yields(conflict, &part, turn.now());
        let younger = self.is_younger(txn, age, &part, turn.now());
        let verdict = Verdict {
            prepared: !conflict && !yields && !younger,
            versions: part.reads.iter().map(|key| self.state.store.valued(key)).collect(),
            at,
        };
        if !verdict.prepared {
            turn.count("conflicts");
        }
        if vote {
            self.cast(txn, coordinator, part.clone(), Some(verdict.clone()), turn);
        }
        self.append_decision(Vote { txn, part, coordinator, term: turn.term(), verdict }, turn);
    }

    /// Whether a transaction is to wait for another that changes the directory's entry ([`super::Yields`]).
    fn yields(&mut self, conflict: bool, part: &Part, now: Instant) -> bool {
        if self.map.split != Split::Named {
            return false;
        }
        let Some(lead) = &mut self.lead else { return false };
        if part.writes.iter().any(|key| is_entry(key)) {
            if conflict {
                // Long enough for whoever is to change it to try again.
                lead.yields.ask(now, self.knobs.resend * 2);
            }
            return false;
        }
        lead.yields.hold(now) && part.reads.iter().any(|key| is_entry(key))
    }

    /// Whether somebody older goes before a transaction, which goes before the younger itself where it comes again
    /// ([`super::precedence`]).
    fn is_younger(&mut self, txn: TxnId, age: Span, part: &Part, now: Instant) -> bool {
        let (began, apart, hold) = (now - age, self.knobs.apart, self.knobs.hold());
        let Some(lead) = &mut self.lead else { return false };
        if age > self.knobs.patience() {
            lead.precedence.comes(txn, part, began, now, (apart, hold));
        }
        lead.precedence.refuses(part, began, now, apart)
    }

    /// Puts a prepare decision into the log.
    pub(super) fn append_decision(&mut self, vote: Vote, turn: &mut Turn<'_>) {
        if vote.verdict.prepared {
            self.claims.add(vote.txn, &vote.part);
        }
        turn.append(Entry::Prepare(vote.clone()));
        if let Some(lead) = &mut self.lead {
            lead.appended.insert(vote.txn, vote);
        }
    }

    /// What was decided of a transaction, and whether that is in the log for good. `None` where it is unknown.
    fn decision(&self, txn: TxnId) -> Option<(Option<Verdict>, bool)> {
        if let Some(vote) = self.state.pending.get(&txn) {
            return Some((Some(vote.verdict.clone()), true));
        }
        if let Some(closed) = self.state.closed.get(&txn) {
            return Some((closed.verdict.clone(), true));
        }
        let vote = self.lead.as_ref()?.appended.get(&txn)?;
        Some((Some(vote.verdict.clone()), false))
    }

    fn tell_values(&self, client: ProcessId, txn: TxnId, part: &Part, turn: &mut Turn<'_>) {
        let (partition, reads) = (self.me.partition, self.read(&part.reads));
        // Ahead: what was applied is decided.
        turn.send_ahead(client, Word::Values { txn, partition, leads: true, reads });
    }

    fn tell_decision(
        &self,
        coordinator: ProcessId,
        txn: TxnId,
        verdict: Option<Verdict>,
        turn: &mut Turn<'_>,
    ) {
        let partition = self.me.partition;
        let refused = Verdict { prepared: false, versions: Vec::new(), at: Version::NONE };
        let verdict = verdict.unwrap_or(refused);
        turn.send_ahead(coordinator, Word::Prepared { txn, partition, verdict });
    }

    /// The first decision of a transaction stands (I2).
    pub(super) fn apply_prepare(&mut self, vote: &Vote, turn: Option<&mut Turn<'_>>) {
        let txn = vote.txn;
        let appended = self.lead.as_mut().and_then(|lead| lead.appended.remove(&txn));
        let known = self.state.pending.contains_key(&txn) || self.state.closed.contains_key(&txn);
        if !known && !self.is_past(txn) {
            if vote.verdict.prepared {
                self.claims.add(txn, &vote.part);
                self.state.pending.insert(txn, vote.clone());
            } else {
                let (verdict, coordinator) = (Some(vote.verdict.clone()), vote.coordinator);
                self.state.closed.insert(txn, Closed { verdict, ended: None, coordinator });
            }
        }
        self.drop_vote(txn);
        self.release(txn, &vote.part);
        if let Some(turn) = turn
            && self.lead.is_some()
            && let Some((verdict, true)) = self.decision(txn)
        {
            let coordinator = appended.map_or(vote.coordinator, |vote| vote.coordinator);
            self.tell_decision(coordinator, txn, verdict, turn);
        }
    }

    /// The coordinator tells how it ended.
    fn on_writeback(
        &mut self,
        from: ProcessId,
        txn: TxnId,
        ended: Ended,
        updates: Vec<Update>,
        turn: &mut Turn<'_>,
    ) {
        self.leaders.note(from.partition, from, turn.now());
        let partition = self.me.partition;
        let over = self.state.closed.get(&txn).is_some_and(|closed| closed.ended.is_some());
        if over || self.is_past(txn) && !self.state.pending.contains_key(&txn) {
            return turn.send_ahead(from, Word::WrittenBack { txn, partition });
        }
        let Some(lead) = &mut self.lead else { return };
        let prepared = self.state.pending.contains_key(&txn) || lead.appended.contains_key(&txn);
        // A commit rests on a decision that is here or on its way here; it will be asked again.
        let commits = matches!(ended, Ended::Committed(_));
        if commits && !prepared || !lead.ending.insert(txn) {
            return;
        }
        if self.knobs.mutated(Mutation::ReleaseEarly)
            && let Some(vote) = self.state.pending.get(&txn)
        {
            self.claims.remove(txn, &vote.part);
        }
        // Behind the decision, if that is still on its way: what a leader appends survives it as a prefix (I13).
        turn.append(Entry::Outcome { txn, ended, updates, coordinator: from });
    }

    pub(super) fn apply_outcome(
        &mut self,
        txn: TxnId,
        ended: Ended,
        updates: &[Update],
        coordinator: ProcessId,
        turn: Option<&mut Turn<'_>>,
    ) {
        if let Some(lead) = &mut self.lead {
            lead.ending.remove(&txn);
            lead.asked.remove(&txn);
        }
        let pending = self.state.pending.remove(&txn);
        if let Ended::Committed(at) = ended {
            // Also of a transaction that only read here (5.4).
            self.state.clock = self.state.clock.max(at);
            if pending.is_some() {
                for update in updates {
                    self.state.store.put(&update.key, at, update.value.clone());
                }
            }
        }
        let past = self.is_past(txn);
        match &pending {
            Some(vote) => {
                let verdict = Some(vote.verdict.clone());
                self.state.closed.insert(txn, Closed { verdict, ended: Some(ended), coordinator });
            }
            None => match self.state.closed.get_mut(&txn) {
                Some(closed) if closed.ended.is_none() => closed.ended = Some(ended),
                Some(_) => {}
                None if past => {}
                None => {
                    self.state.closed.insert(txn, Closed { verdict: None, ended: Some(ended), coordinator });
                }
            },
        }
        self.drop_vote(txn);
        if let Some(vote) = &pending {
            self.release(txn, &vote.part);
        }
        if let Some(turn) = turn
            && let Some(lead) = &mut self.lead
        {
            let again = matches!(ended, Ended::Aborted(Reason::Conflict | Reason::StaleRead));
            if let Some(vote) = pending.filter(|_| !again) {
                lead.precedence.ends(txn, &vote.part);
            }
            let partition = self.me.partition;
            turn.send_ahead(coordinator, Word::WrittenBack { txn, partition });
        }
    }

    /// A coordinator asks what was decided; with `last`, what is unknown is refused for good (4.7).
    fn on_query(&mut self, txn: TxnId, part: Part, coordinator: ProcessId, last: bool, turn: &mut Turn<'_>) {
        match self.decision(txn) {
            Some((verdict, true)) => self.tell_decision(coordinator, txn, verdict, turn),
            // It is told when it is applied.
            Some((_, false)) => {
                if let Some(vote) = self.lead.as_mut().and_then(|lead| lead.appended.get_mut(&txn)) {
                    vote.coordinator = coordinator;
                }
            }
            // Nobody who may still commit it asks for what is over.
            None if self.is_past(txn) => self.tell_decision(coordinator, txn, None, turn),
            None if self.is_leaving(txn) => {}
            None if last => {
                let versions = Vec::new();
                let verdict = Verdict { prepared: false, versions, at: Version::NONE };
                self.append_decision(Vote { txn, part, coordinator, term: turn.term(), verdict }, turn);
            }
            None => {}
        }
    }

    /// A vote that the log does not decide: its leader may know nothing of the transaction.
    pub(super) fn ask_for_orphans(&mut self, turn: &mut Turn<'_>) {
        let (now, orphan) = (turn.now(), self.knobs.orphan);
        let past: Vec<TxnId> = self.votes.keys().copied().filter(|txn| self.is_past(*txn)).collect();
        for txn in past {
            self.drop_vote(txn);
        }
        let Some(leader) = turn.leader() else { return };
        let mut orphans = Vec::new();
        for (txn, vote) in &self.votes {
            let since = self.aged.entry(*txn).or_insert(now);
            if now.since(*since) >= orphan {
                *since = now;
                orphans.push(vote.clone());
            }
        }
        for Vote { txn, part, coordinator, .. } in orphans {
            turn.send_ahead(leader, Word::Query { txn, part, coordinator, last: true });
        }
    }

    /// A prepared transaction whose end nobody tells: its coordinator is asked (4.7).
    pub(super) fn ask_for_ends(&mut self, turn: &mut Turn<'_>) {
        let (now, orphan) = (turn.now(), self.knobs.orphan);
        let Some(lead) = &mut self.lead else { return };
        let mut late = Vec::new();
        for (txn, vote) in &self.state.pending {
            let since = lead.asked.entry(*txn).or_insert(now);
            if now.since(*since) >= orphan {
                *since = now;
                late.push((*txn, vote.part.clone(), vote.coordinator.partition));
            }
        }
        for (txn, part, coordinator) in late {
            turn.send_ahead(self.leader_of(coordinator), Word::Status { txn, part });
            self.leaders.doubt(coordinator, now, orphan + self.knobs.heartbeat);
        }
    }

    /// Asks about what is over whether it may be forgotten, now and then, and drops what only this group remembers.
    pub(super) fn clean_up(&mut self, turn: &mut Turn<'_>) {
        let (now, idle) = (turn.now(), self.knobs.idle);
        let Some(lead) = self.lead.as_mut().filter(|lead| matches!(lead.phase, Phase::Serving)) else {
            return;
        };
        lead.precedence.forget(now);
        lead.sweeps += 1;
        if !lead.sweeps.is_multiple_of(2) {
            return;
        }
        let mut over = |txn: &TxnId| {
            let (below, heard) = lead.clients.entry(txn.client).or_insert((0, now));
            txn.sequence < *below || now.since(*heard) >= idle
        };
        let mut ask: std::collections::BTreeMap<_, Vec<TxnId>> = std::collections::BTreeMap::new();
        for (txn, closed) in self.state.closed.iter().filter(|(txn, _)| over(txn)) {
            let txns = ask.entry(closed.coordinator.partition).or_default();
            if txns.len() < CLEANED_MAX {
                txns.push(*txn);
            }
        }
        let finished = self.state.coordinated.iter().filter(|(txn, known)| known.forgotten && over(txn));
        let coordinated: Vec<TxnId> = finished.map(|(txn, _)| *txn).take(CLEANED_MAX).collect();
        for coordinated in coordinated.chunks(CLOSABLE_MAX) {
            self.drop_all(Vec::new(), coordinated.to_vec(), turn);
        }
        for (partition, txns) in ask {
            for txns in txns.chunks(CLOSABLE_MAX) {
                turn.send_ahead(self.leader_of(partition), Word::Closable { txns: txns.to_vec() });
            }
        }
    }

    /// What only the log of its coordinator still decides may go.
    pub(super) fn on_closed(&mut self, txns: Vec<TxnId>, turn: &mut Turn<'_>) {
        let Some(lead) = &self.lead else { return };
        let over = |txn: &TxnId| {
            lead.clients.get(&txn.client).is_some_and(|(below, heard)| {
                txn.sequence < *below || turn.now().since(*heard) >= self.knobs.idle
            })
        };
        let known = |txn: &TxnId| self.state.closed.contains_key(txn) && over(txn);
        let participated: Vec<TxnId> = txns.into_iter().filter(known).collect();
        if !participated.is_empty() {
            self.drop_all(participated, Vec::new(), turn);
        }
    }

    fn drop_all(&mut self, participated: Vec<TxnId>, coordinated: Vec<TxnId>, turn: &mut Turn<'_>) {
        if let Some(lead) = &mut self.lead {
            for txn in participated.iter().chain(&coordinated) {
                let floor = lead.floors.entry(txn.client).or_default();
                *floor = (*floor).max(txn.sequence + 1);
            }
        }
        turn.append(Entry::Drop { participated, coordinated });
    }

    pub(super) fn apply_drop(&mut self, participated: &[TxnId], coordinated: &[TxnId]) {
        for txn in participated {
            self.state.closed.remove(txn);
        }
        for txn in coordinated {
            self.state.coordinated.remove(txn);
        }
        participated.iter().chain(coordinated).for_each(|txn| self.state.pass(*txn));
    }

    /// A read-only transaction asks what was there at a moment (3.6).
    fn on_read_at(
        &mut self,
        from: ProcessId,
        txn: TxnId,
        at: Version,
        keys: &Arc<[Blob]>,
        turn: &mut Turn<'_>,
    ) {
        let partition = self.me.partition;
        let blind = self.knobs.mutated(Mutation::ReadPastPending);
        let Some(lead) = &mut self.lead else { return };
        let latest = version(turn.stamp()).max(lead.clock).max(self.state.clock);
        // Any writer that is prepared: also one that was given a later moment may be given an earlier one (5.4).
        let claimed = !blind && keys.iter().any(|key| self.claims.written(key));
        let served = !claimed && at <= latest && at <= self.state.ceiling;
        let store = &self.state.store;
        let read = |key: &Blob| {
            let (version, value) = store.below(key, at)?;
            Some(Read { key: key.clone(), value: value.cloned(), version })
        };
        let reads = if served { keys.iter().map(read).collect::<Option<Vec<_>>>() } else { None };
        if reads.is_some() {
            lead.clock = lead.clock.max(at);
        }
        turn.send_ahead(from, Word::ReadIs { txn, partition, at, reads });
    }

    /// Keeps the ceiling ahead of the clock, so that nobody waits for it.
    pub(super) fn raise_ceiling(&mut self, turn: &mut Turn<'_>) {
        let ahead = self.knobs.ceiling;
        let wanted = plus(version(turn.stamp()), ahead);
        if let Some(lead) = self.lead.as_mut().filter(|lead| matches!(lead.phase, Phase::Serving))
            && lead.ceiling < wanted
        {
            lead.ceiling = wanted;
            turn.append(Entry::Ceiling { to: wanted });
        }
    }

    pub(super) fn apply_ceiling(&mut self, to: Version, turn: Option<&mut Turn<'_>>) {
        self.state.ceiling = self.state.ceiling.max(to);
        let kept = self.knobs.keep.as_nanos() + self.knobs.ceiling.as_nanos();
        self.state.store.trim(Version(self.state.ceiling.0.saturating_sub(kept)));
        if let Some(turn) = turn {
            self.serve_waiting(turn);
        }
    }

    /// What came before this leader was ready, or before it might give a moment.
    pub(super) fn serve_waiting(&mut self, turn: &mut Turn<'_>) {
        let serving = |lead: &&mut Lead| matches!(lead.phase, Phase::Serving);
        let Some(lead) = self.lead.as_mut().filter(serving) else { return };
        for (from, word) in std::mem::take(&mut lead.waiting) {
            self.on_leader_word(from, word, turn);
        }
    }

    /// Why a transaction that a participant refused has failed.
    pub(super) fn refused(verdict: &Verdict) -> Reason {
        if verdict.at == Version::NONE { Reason::Presumed } else { Reason::Conflict }
    }
}
