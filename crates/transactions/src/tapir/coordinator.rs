//! The client as the coordinator of its transactions: it asks, counts, decides, and tells.

use super::Mutation;
use super::client::{Client, Timer};
use super::closing::{Closing, TELLS};
use super::message::{Ballot, Message, Name, Note, Part, Verdict, Vote};
use super::parameters::Parameters;
use super::round::{Next, Round, Stage};
use super::transaction::{Preparing, State, Transaction};
use crate::request::{Outcome, Reason};
use crate::said::say_ahead;
use isochrone_core::{Effects, Fact, Instant, PartitionId, Path, Phase, ProcessId, Span};
use isochrone_store::versions::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Ended transactions in one message.
const CLEARED_AT_ONCE: usize = 256;

impl Client {
    pub(super) fn prepare(
        &mut self,
        sequence: u64,
        attempt: u32,
        at: Version,
        parts: BTreeMap<PartitionId, Arc<Part>>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let fewer = usize::from(self.parameters.mutated(Mutation::FastQuorumTooSmall));
        let round = |(partition, part): (&PartitionId, &Arc<Part>)| {
            let replicas = self.replicas(*partition);
            let away = replicas.iter().filter(|replica| self.silent.contains(replica)).count();
            (*partition, Round::new(part.clone(), replicas.len(), self.view(*partition), away, fewer))
        };
        let preparing = Preparing {
            attempt,
            at,
            participants: parts.keys().copied().collect(),
            rounds: parts.iter().map(round).collect(),
            fast_until: Some(now + self.parameters.fast_path),
            resend: now + self.parameters.resend,
            again: now + self.parameters.prepare,
        };
        let Some(transaction) = self.open.get_mut(&sequence) else { return };
        transaction.state = State::Preparing(preparing);
        for partition in parts.into_keys() {
            self.propose(sequence, partition, |_| true, effects);
        }
    }

    /// Sends PROPOSE to some replicas of a partition.
    fn propose(
        &mut self,
        sequence: u64,
        partition: PartitionId,
        whom: impl Fn(ProcessId) -> bool,
        effects: &mut Effects<Self>,
    ) {
        let (txn, below, done, view) = (self.id(sequence), self.below(), self.done(), self.view(partition));
        let mut cleared = self.cleared.remove(&partition).unwrap_or_default();
        if cleared.len() > CLEARED_AT_ONCE {
            self.cleared.insert(partition, cleared.split_off(CLEARED_AT_ONCE));
        }
        let Some(Transaction { state: State::Preparing(preparing), .. }) = self.open.get(&sequence) else {
            return;
        };
        let Some(round) = preparing.rounds.get(&partition) else { return };
        let Preparing { attempt, at, ref participants, .. } = *preparing;
        for replica in self.replicas(partition).iter().copied().filter(|replica| whom(*replica)) {
            let name = Name { txn, participants: participants.clone(), attempt, at };
            let (part, cleared) = (round.part.clone(), cleared.clone());
            say_ahead(replica, Message::Prepare { name, part, view, below, done, cleared }, effects);
        }
    }

    /// Sends FINALIZE to some replicas of a partition.
    fn finalize(
        &self,
        sequence: u64,
        partition: PartitionId,
        vote: Vote,
        whom: Option<&BTreeSet<ProcessId>>,
        effects: &mut Effects<Self>,
    ) {
        let Some(Transaction { state: State::Preparing(preparing), .. }) = self.open.get(&sequence) else {
            return;
        };
        let Some(round) = preparing.rounds.get(&partition) else { return };
        let Preparing { attempt, at, ref participants, .. } = *preparing;
        for replica in self.replicas(partition) {
            if whom.is_some_and(|whom| !whom.contains(replica)) {
                continue;
            }
            let name = Name { txn: self.id(sequence), participants: participants.clone(), attempt, at };
            // What it does there only to those who may not have heard.
            let part = whom.map(|_| round.part.clone());
            let (ballot, view) = (Ballot::CLIENT, round.view());
            say_ahead(*replica, Message::Finalize { name, ballot, view, vote, part }, effects);
        }
    }

    /// Does what the count of a round asks for.
    fn follow(&mut self, sequence: u64, partition: PartitionId, next: Next, effects: &mut Effects<Self>) {
        match next {
            Next::Nothing => {}
            Next::Ask => self.propose(sequence, partition, |_| true, effects),
            Next::Finalize(vote) => {
                effects.mark(Note(Fact::Counted("slow_paths")));
                self.finalize(sequence, partition, vote, None, effects);
            }
            Next::Done(vote, fast) => {
                if fast {
                    self.finalize(sequence, partition, vote, None, effects);
                }
                self.weigh(sequence, effects);
            }
        }
    }

    pub(super) fn on_voted(
        &mut self,
        from: ProcessId,
        (sequence, attempt): (u64, u32),
        (view, vote, finalized): (u64, Vote, bool),
        effects: &mut Effects<Self>,
    ) {
        let known = self.views.entry(from.partition).or_default();
        *known = (*known).max(view);
        let Some(round) = self.round(sequence, attempt, from.partition) else { return };
        let next = round.voted(from, view, vote, finalized);
        self.follow(sequence, from.partition, next, effects);
        self.rearm(sequence, effects);
    }

    pub(super) fn on_confirmed(
        &mut self,
        from: ProcessId,
        (sequence, attempt): (u64, u32),
        view: u64,
        effects: &mut Effects<Self>,
    ) {
        let Some(round) = self.round(sequence, attempt, from.partition) else { return };
        let next = round.confirmed(from, view);
        self.follow(sequence, from.partition, next, effects);
        self.rearm(sequence, effects);
    }

    fn round(&mut self, sequence: u64, attempt: u32, partition: PartitionId) -> Option<&mut Round> {
        match &mut self.open.get_mut(&sequence)?.state {
            State::Preparing(preparing) if preparing.attempt == attempt => {
                preparing.rounds.get_mut(&partition)
            }
            _ => None,
        }
    }

    /// Ends the transaction, or tries another timestamp, as the partitions' results have it. What decides has been
    /// settled at its partition, so whoever takes the transaction over comes to the same end.
    fn weigh(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let Some(Transaction { state: State::Preparing(preparing), .. }) = self.open.get(&sequence) else {
            return;
        };
        let results: Vec<Option<Vote>> = preparing.rounds.values().map(Round::result).collect();
        let (attempt, at) = (preparing.attempt, preparing.at);
        let proposed = results.iter().filter_map(|vote| match vote {
            Some(Vote::Retry(at)) => Some(*at),
            _ => None,
        });
        let proposed = proposed.max();
        if let Some(above) = proposed {
            // Also for later transactions: a clock that was far ahead for a moment would else refuse this client until
            // its own has come so far.
            self.timestamps.pass(above);
        }
        let reason = match () {
            () if results.contains(&Some(Vote::Abort)) => Some(Reason::StaleRead),
            () if results.contains(&Some(Vote::Abstain)) => Some(Reason::Conflict),
            () => None,
        };
        if let Some(reason) = reason {
            if reason == Reason::StaleRead {
                self.read_elsewhere(sequence, effects.now());
            }
            return self.end(sequence, Verdict::Abort, reason, effects);
        }
        if results.contains(&None) {
            return;
        }
        if proposed.is_none() {
            return self.end(sequence, Verdict::Commit(at), Reason::Conflict, effects);
        }
        if attempt + 1 >= self.parameters.tries {
            return self.end(sequence, Verdict::Abort, Reason::Conflict, effects);
        }
        effects.mark(Note(Fact::Counted("retries")));
        let parts = preparing.rounds.iter().map(|(at, round)| (*at, round.part.clone())).collect();
        let at = self.timestamps.next(effects.stamp(), at);
        self.prepare(sequence, attempt + 1, at, parts, effects);
    }

    /// Where the replica that is asked first has voted for what others have refused as stale, it has missed what they have: for
    /// a while the nearest of them is asked first, so that whoever tries again reads what is new.
    fn read_elsewhere(&mut self, sequence: u64, now: Instant) {
        let Some(Transaction { state: State::Preparing(preparing), .. }) = self.open.get(&sequence) else {
            return;
        };
        let until = now + self.parameters.terminate_after;
        for (partition, round) in &preparing.rounds {
            let near = &self.near[usize::from(partition.0)];
            let vote = |turn: usize| near.get(turn).and_then(|replica| round.vote(*replica));
            // Those behind it first: what it was asked for instead of may have missed something else.
            let first = self.first(*partition, now);
            let mut others = (1..near.len()).map(|step| (first + step) % near.len());
            if let Some(turn) = others.find(|turn| vote(*turn) == Some(Vote::Abort))
                && vote(first) == Some(Vote::Ok)
            {
                self.elsewhere.insert(*partition, (turn, until));
            }
        }
    }

    /// The transaction has a verdict: the host is told, and then the replicas are.
    fn end(&mut self, sequence: u64, verdict: Verdict, reason: Reason, effects: &mut Effects<Self>) {
        let now = effects.now();
        let Some(transaction) = self.open.get(&sequence) else { return };
        let State::Preparing(preparing) = &transaction.state else { return };
        let outcome = match verdict {
            Verdict::Commit(at) if transaction.writes.is_empty() => {
                Outcome::Snapshot { reads: transaction.answer(), at }
            }
            Verdict::Commit(at) => Outcome::Committed { at },
            Verdict::Abort => Outcome::Aborted(reason),
        };
        if let Verdict::Commit(_) = verdict {
            let mut rounds = preparing.rounds.values();
            let fast = rounds.all(|round| matches!(round.stage(), Stage::Done { fast: true, .. }));
            let path = if fast && preparing.attempt == 0 { Path::Fast } else { Path::Slow };
            let (total, phases) = (now.since(transaction.asked), [Span::ZERO; Phase::ALL.len()]);
            effects.mark(Note(Fact::Committed { id: self.id(sequence), path, total, phases }));
        }
        let participants = preparing.participants.clone();
        let closing = Closing {
            verdict,
            open: participants.iter().copied().collect(),
            parts: preparing.rounds.iter().map(|(at, round)| (*at, round.part.clone())).collect(),
            participants,
            noted: BTreeSet::new(),
            due: now + self.parameters.resend,
            tries: 0,
        };
        self.answer(sequence, outcome, effects);
        self.close(sequence);
        self.closing.insert(sequence, closing);
        self.tell_end(sequence, effects);
        self.rearm(sequence, effects);
        if self.closing.len() > self.parameters.open
            && let Some(oldest) = self.settled.first().copied()
        {
            self.leave(oldest, effects);
        }
    }

    /// From here on only the replicas tell each other how a transaction ended.
    fn leave(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        if self.closing.remove(&sequence).is_some() {
            self.settled.remove(&sequence);
            self.left = Some(self.left.map_or(sequence, |first| first.min(sequence)));
            self.rearm(sequence, effects);
        }
    }

    /// Tells the replicas that do not know how a transaction ended.
    fn tell_end(&self, sequence: u64, effects: &mut Effects<Self>) {
        let Some(closing) = self.closing.get(&sequence) else { return };
        for replica in closing.lacking(&self.map) {
            let ended = closing.ended(self.id(sequence), replica.partition);
            say_ahead(replica, Message::Decide { ended }, effects);
        }
    }

    pub(super) fn on_noted(&mut self, from: ProcessId, sequence: u64, effects: &mut Effects<Self>) {
        let txn = self.id(sequence);
        let Some(closing) = self.closing.get_mut(&sequence) else { return };
        let known_before = !closing.open.contains(&from.partition);
        if closing.note(&self.map, from) {
            if closing.open.is_empty() {
                self.settled.insert(sequence);
            }
            for replica in self.replicas(from.partition) {
                say_ahead(*replica, Message::Settle { txn }, effects);
            }
        } else if known_before {
            say_ahead(from, Message::Settle { txn }, effects);
        }
        let closed = self.closing.get(&sequence).is_some_and(|closing| closing.lacking(&self.map).is_empty());
        if closed && let Some(closing) = self.closing.remove(&sequence) {
            self.settled.remove(&sequence);
            for partition in closing.participants.iter() {
                self.cleared.entry(*partition).or_default().push(sequence);
            }
            if !std::mem::replace(&mut self.clearing, true) {
                effects.arm(Timer::Clear, self.parameters.resend);
            }
            self.rearm(sequence, effects);
        }
        self.wake(effects);
    }

    /// Begins what waited and need not any more.
    fn wake(&mut self, effects: &mut Effects<Self>) {
        for sequence in std::mem::take(&mut self.waiting) {
            if !self.try_begin(sequence, effects) {
                self.waiting.push_back(sequence);
            }
        }
    }

    /// Somebody else has ended the transaction.
    pub(super) fn on_told(&mut self, sequence: u64, verdict: Verdict, effects: &mut Effects<Self>) {
        let now = effects.now();
        // Behind its limit replicas may have forgotten the end, and agreed on another one.
        let asks = |open: &Transaction| matches!(open.state, State::Preparing(_)) && now < open.limit;
        if self.open.get(&sequence).is_some_and(asks) {
            self.end(sequence, verdict, Reason::Presumed, effects);
        }
    }

    /// Something is due about a transaction.
    pub(super) fn due(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let now = effects.now();
        self.armed.remove(&sequence);
        if self.closing.contains_key(&sequence) {
            self.close_again(sequence, now, effects);
        } else if self.open.get(&sequence).is_some_and(|transaction| transaction.limit <= now) {
            self.give_up(sequence, effects);
        } else if let Some(transaction) = self.open.get(&sequence) {
            match transaction.state {
                State::Waiting | State::Open => {}
                State::Reading(_) => self.ask_reads(sequence, Some(now), effects),
                State::Preparing(_) => self.prepare_again(sequence, now, effects),
            }
        }
        self.rearm(sequence, effects);
    }

    fn give_up(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        self.answer(sequence, Outcome::Unknown, effects);
        let given_up = self.close(sequence);
        if given_up.is_some_and(|transaction| matches!(transaction.state, State::Preparing(_))) {
            // The replicas end it.
            self.left = Some(self.left.map_or(sequence, |first| first.min(sequence)));
        }
        self.waiting.retain(|waiting| *waiting != sequence);
    }

    fn close_again(&mut self, sequence: u64, now: Instant, effects: &mut Effects<Self>) {
        let resend = self.parameters.resend;
        let Some(closing) = self.closing.get_mut(&sequence) else { return };
        if closing.due > now {
            return;
        }
        closing.tries += 1;
        closing.due = now + resend * (1 << closing.tries.min(TELLS));
        if closing.tries < TELLS {
            return self.tell_end(sequence, effects);
        }
        self.leave(sequence, effects);
        self.wake(effects);
    }

    fn prepare_again(&mut self, sequence: u64, now: Instant, effects: &mut Effects<Self>) {
        let Parameters { resend, prepare, .. } = self.parameters;
        let Some(Transaction { state: State::Preparing(preparing), .. }) = self.open.get_mut(&sequence)
        else {
            return;
        };
        let mut late = Vec::new();
        if preparing.fast_until.is_some_and(|until| until <= now) {
            preparing.fast_until = None;
            for (partition, round) in &mut preparing.rounds {
                if *round.stage() == Stage::Voting {
                    let near = self.near[usize::from(partition.0)].iter().copied();
                    self.silent.extend(near.filter(|replica| round.lacks(*replica)));
                }
                late.push((*partition, round.late()));
            }
        }
        let (all, some) = (preparing.again <= now, preparing.resend <= now);
        if all {
            preparing.again = now + prepare;
        }
        if some {
            preparing.resend = now + resend;
        }
        let attempt = preparing.attempt;
        let rounds: Vec<(PartitionId, Stage)> =
            preparing.rounds.iter().map(|(partition, round)| (*partition, round.stage().clone())).collect();
        for (partition, stage) in rounds {
            let lacking = self.lacking(sequence, partition);
            match stage {
                // Also those who are done with it: somebody may have taken the transaction over, and they know.
                _ if all => self.propose(sequence, partition, |_| true, effects),
                Stage::Voting if some => {
                    self.propose(sequence, partition, |replica| lacking.contains(&replica), effects);
                }
                _ => {}
            }
            if let Stage::Slow { vote, .. } = stage
                && (some || all)
            {
                self.finalize(sequence, partition, vote, Some(&lacking), effects);
            }
        }
        for (partition, next) in late {
            // One of them may have ended the try.
            if self.round(sequence, attempt, partition).is_some() {
                self.follow(sequence, partition, next, effects);
            }
        }
    }

    /// The replicas of a partition that have not answered what was asked last.
    fn lacking(&self, sequence: u64, partition: PartitionId) -> BTreeSet<ProcessId> {
        let Some(Transaction { state: State::Preparing(preparing), .. }) = self.open.get(&sequence) else {
            return BTreeSet::new();
        };
        let Some(round) = preparing.rounds.get(&partition) else { return BTreeSet::new() };
        self.replicas(partition).iter().copied().filter(|replica| round.lacks(*replica)).collect()
    }

    /// Tells replicas what has ended everywhere and no other message has told them.
    pub(super) fn clear(&mut self, effects: &mut Effects<Self>) {
        let done = self.done();
        let mut more = false;
        for (partition, sequences) in &mut self.cleared {
            let rest = sequences.split_off(sequences.len().min(CLEARED_AT_ONCE));
            let told = std::mem::replace(sequences, rest);
            for replica in &self.near[usize::from(partition.0)] {
                let message = Message::Cleared { client: self.me, done, sequences: told.clone() };
                say_ahead(*replica, message, effects);
            }
            more |= !sequences.is_empty();
        }
        self.cleared.retain(|_, sequences| !sequences.is_empty());
        self.clearing = more;
        if more {
            effects.arm(Timer::Clear, self.parameters.resend);
        }
    }
}
