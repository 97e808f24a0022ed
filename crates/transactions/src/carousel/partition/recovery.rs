//! The beginning of a leader's term: in the fast variant a coordinator may have settled this partition by votes, and
//! told its client so, before the last leader had replicated anything. A new leader comes to the same decision (4.5).
//!
//! 1. Its first entry has its place: everything of earlier terms that will ever be decided lies before it.
//! 2. It takes exactly `f + 1` lists (a majority) of votes from replicas that have promised its term, its own among them. None of
//!    them votes in an earlier term any more.
//! 3. A transaction with equal votes (decision, versions, term) in a majority of the lists may have been settled:
//!    `Q` votes of `2f + 1` leave at least `ceil(f/2) + 1` in any `f + 1` lists. So may a refusal.
//! 4. What conflicts with a prepared transaction of the log, or has read what is no longer the latest, was never
//!    settled: the last leader would have voted otherwise.
//! 5. It replicates the decisions that are left, and a barrier: votes of earlier terms are void behind it.

use super::{Claims, Lead, Partition, Phase, Precedence, Turn, Yields};
use crate::carousel::Mutation;
use crate::carousel::message::{Entry, Verdict, Vote, Word};
use crate::request::TxnId;
use isochrone_core::{Ballot, ProcessId, Quorums, ReplicaId};
use isochrone_store::versions::Version;
use std::collections::{BTreeMap, BTreeSet};

impl Partition {
    pub(super) fn begin_reign(&mut self, turn: &mut Turn<'_>) {
        let term = turn.term();
        self.lead = Some(Lead {
            term,
            phase: Phase::Opening,
            waiting: Vec::new(),
            appended: BTreeMap::new(),
            ending: BTreeSet::new(),
            running: BTreeMap::new(),
            clock: Version::NONE,
            ceiling: Version::NONE,
            clients: BTreeMap::new(),
            floors: BTreeMap::new(),
            asked: BTreeMap::new(),
            yields: Yields::new(),
            precedence: Precedence::default(),
            sweeps: 0,
        });
        turn.append(Entry::Open { term });
        self.sweep_soon(turn);
    }

    pub(super) fn end_reign(&mut self) {
        let Some(lead) = self.lead.take() else { return };
        for (txn, vote) in lead.appended {
            self.release(txn, &vote.part);
        }
        if self.knobs.mutated(Mutation::VotesLost) {
            for (txn, vote) in std::mem::take(&mut self.votes) {
                self.release(txn, &vote.part);
            }
        }
    }

    /// Everything of earlier terms is applied.
    pub(super) fn opened(&mut self, term: Ballot, turn: &mut Turn<'_>) {
        let cpc = self.knobs.cpc;
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.term == term) else { return };
        if !cpc {
            // Nothing was settled that is not in the log.
            lead.phase = Phase::Adopting;
            return turn.append(Entry::Barrier { term });
        }
        let own = self.votes_before(term);
        if let Some(seat) = turn.seat() {
            self.gather(seat, own, turn);
        }
        self.recall(turn);
    }

    fn votes_before(&self, term: Ballot) -> Vec<Vote> {
        self.votes.values().filter(|vote| vote.term < term).cloned().collect()
    }

    /// Asks the replicas that have not answered for their votes.
    pub(super) fn recall(&mut self, turn: &mut Turn<'_>) {
        let Some(Lead { term, phase: Phase::Recalling(lists), .. }) = &self.lead else { return };
        let members = turn.configuration().members().to_vec();
        for member in members {
            if !lists.contains_key(&member.replica) {
                turn.send_ahead(member.process, Word::Recall { term: *term });
            }
        }
    }

    pub(super) fn on_recall(&mut self, from: ProcessId, term: Ballot, turn: &mut Turn<'_>) {
        // Who has not promised that term yet may still vote in an earlier one; it will be asked again.
        if turn.term() == term {
            let votes = self.votes_before(term);
            turn.send(from, Word::Votes { term, votes });
        }
    }

    pub(super) fn on_votes(&mut self, from: ProcessId, term: Ballot, votes: Vec<Vote>, turn: &mut Turn<'_>) {
        let current = self.lead.as_ref().is_some_and(|lead| lead.term == term);
        if let Some(seat) = turn.configuration().seat(from).filter(|_| current) {
            self.gather(seat, votes, turn);
        }
    }

    fn gather(&mut self, from: ReplicaId, votes: Vec<Vote>, turn: &mut Turn<'_>) {
        let enough = turn.configuration().majority();
        let Some(lead) = &mut self.lead else { return };
        if matches!(lead.phase, Phase::Opening) {
            lead.phase = Phase::Recalling(BTreeMap::new());
        }
        let Phase::Recalling(lists) = &mut lead.phase else { return };
        lists.insert(from, votes);
        if lists.len() < enough {
            return;
        }
        let lists = std::mem::take(lists);
        lead.phase = Phase::Adopting;
        let term = lead.term;
        if !self.knobs.mutated(Mutation::AdoptNone) {
            self.adopt(lists, enough, turn);
        }
        turn.append(Entry::Barrier { term });
    }

    fn adopt(&mut self, lists: BTreeMap<ReplicaId, Vec<Vote>>, lists_read: usize, turn: &mut Turn<'_>) {
        // What `Q` equal votes of all replicas leave in so many lists.
        let need = Quorums::recovery(turn.configuration().members().len(), lists_read);
        let mut alike: BTreeMap<TxnId, Vec<(Vote, usize)>> = BTreeMap::new();
        for vote in lists.into_values().flatten() {
            let decided = self.state.pending.contains_key(&vote.txn)
                || self.state.closed.contains_key(&vote.txn)
                || self.is_past(vote.txn);
            if decided {
                continue;
            }
            let groups = alike.entry(vote.txn).or_default();
            let same = |(known, _): &&mut (Vote, usize)| {
                known.term == vote.term && known.verdict.matches(&vote.verdict)
            };
            match groups.iter_mut().find(same) {
                Some((known, count)) => {
                    *count += 1;
                    known.verdict.at = known.verdict.at.max(vote.verdict.at);
                }
                None => groups.push((vote, 1)),
            }
        }
        let candidates = alike
            .into_values()
            .filter_map(|groups| groups.into_iter().find(|(_, count)| *count >= need).map(|(vote, _)| vote));
        let everything = self.knobs.mutated(Mutation::AdoptAll);
        let mut pending = Claims::default();
        self.state.pending.iter().for_each(|(txn, vote)| pending.add(*txn, &vote.part));
        let mut floor = self.state.clock.max(self.state.ceiling);
        for vote in candidates.collect::<Vec<_>>() {
            if vote.verdict.prepared && !everything && self.contradicted(&vote, &pending) {
                continue;
            }
            // Above everything that the last leader may have given or served (5.4).
            floor = Version(floor.max(vote.verdict.at).0 + 1);
            let verdict = Verdict { at: floor, ..vote.verdict };
            turn.count("votes_adopted");
            self.append_decision(Vote { verdict, ..vote }, turn);
        }
        if let Some(lead) = &mut self.lead {
            lead.clock = lead.clock.max(floor);
        }
    }

    /// Whether the log shows that the last leader cannot have voted so. It may have seen a deletion that an entry has trimmed
    /// since which it had appended already: that a key has no value is all that counts, as in votes.
    fn contradicted(&self, vote: &Vote, pending: &Claims) -> bool {
        let latest = vote.part.reads.iter().map(|key| self.state.store.valued(key));
        pending.conflict(vote.txn, &vote.part) || !latest.eq(vote.verdict.versions.iter().copied())
    }

    /// Votes of earlier terms are void; the leader of this term serves.
    pub(super) fn apply_barrier(&mut self, term: Ballot, turn: Option<&mut Turn<'_>>) {
        self.state.barrier = self.state.barrier.max(term);
        let floor = Version(self.state.ceiling.0 + 1);
        self.state.clock = self.state.clock.max(floor);
        let void: Vec<TxnId> =
            self.votes.iter().filter(|(_, vote)| vote.term < term).map(|(txn, _)| *txn).collect();
        for txn in void {
            self.drop_vote(txn);
        }
        let Some(turn) = turn else { return };
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.term == term) else { return };
        lead.phase = Phase::Serving;
        turn.count("reigns");
        self.raise_ceiling(turn);
        for (txn, vote) in &self.state.pending {
            let (partition, verdict) = (self.me.partition, vote.verdict.clone());
            turn.send_ahead(vote.coordinator, Word::Prepared { txn: *txn, partition, verdict });
        }
        self.take_over(turn);
        self.serve_waiting(turn);
    }
}
