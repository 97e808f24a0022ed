//! The owner's part: suggesting, counting votes, telling of commits and skips.

use super::Mutation;
use super::lane::State;
use super::message::{Message, Rank, Record, Timer, Turn, Value};
use super::order::{Order, RESERVE};
use crate::order::{Ordered, Step};
use isochrone_core::{Ballot, Effects, Instant, ReplicaSet, Slot, Span, wire};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Values that wait for a turn.
#[derive(Clone, Hash, Debug)]
pub(super) struct Queue<V> {
    pub(super) values: VecDeque<(V, u32)>,
    pub(super) bytes: usize,
    /// Since when the first of them waits.
    since: Instant,
}

impl<V> Default for Queue<V> {
    fn default() -> Queue<V> {
        Queue { values: VecDeque::new(), bytes: 0, since: Instant::ZERO }
    }
}

impl<V> Queue<V> {
    pub(super) fn push(&mut self, value: V, bytes: usize, now: Instant) {
        if self.values.is_empty() {
            self.since = now;
        }
        self.bytes += bytes;
        self.values.push_back((value, u32::try_from(bytes).unwrap_or(u32::MAX)));
    }
}

/// An own turn between its suggestion and its delivery.
#[derive(Clone, Hash, Debug)]
pub(super) struct Flight<V> {
    pub(super) turn: Turn,
    pub(super) values: Arc<[V]>,
    voters: ReplicaSet,
    /// Votes counted, repetitions and all: for the planted bug that believes in them.
    cast: u32,
    bytes: usize,
    sent: Instant,
    queued: Instant,
    proposed: Instant,
    own: Option<Instant>,
    /// Since when it is decided.
    pub(super) quorum: Option<Instant>,
    /// Whether it was answered before its execution.
    pub(super) answered: bool,
}

/// Turns whose votes are asked for again in one heartbeat.
const RESEND_TURNS: usize = 64;

impl<V: Ordered> Order<V> {
    /// What was gathered goes: batches, commits, votes, and skips that have waited long enough.
    pub(super) fn flush(&mut self, effects: &mut Effects<Self>) {
        self.suggest(effects);
        if self.commit_due {
            self.commit_due = false;
            let decided = self.claim();
            // Ahead: it rests on durable votes of a quorum.
            for (_, peer) in self.peers() {
                let commit = Message::Commit { decided: decided.clone() };
                effects.urgently(|effects| effects.send_ahead(peer, commit));
            }
        }
        for lane in 0..self.votes.len() {
            self.send_votes(lane, effects);
        }
        let waiting = self.next - self.told;
        if waiting > self.parameters.skip_limit {
            self.tell_skips(effects);
        } else if waiting > 0 && !self.skipping && self.members.len() > 1 {
            self.skipping = true;
            effects.arm(Timer::Skip, self.parameters.skip_delay);
        } else if self.next > self.durable + RESERVE / 2 {
            // Behind the records that moved `next`: when it arrives they are durable.
            let skipped = self.next..self.next;
            effects.send(self.process, Message::Skip { skipped });
        }
    }

    fn has_room(&self) -> bool {
        self.flying < self.parameters.window && self.flying_bytes < self.parameters.window_bytes
    }

    /// Own turns that are decided, as they were suggested or skipped.
    fn claim(&self) -> Range<Turn> {
        let end = self.lanes[self.me].frontier();
        self.claim_from.min(end)..end
    }

    /// Phase 2 for the next own turns, in the ballot that nobody else may use: a turn for each batch, as far
    /// as the window allows, and one message. It leaves ahead of its own record where a restart would take
    /// the turns for used; the own votes go behind the record.
    fn suggest(&mut self, effects: &mut Effects<Self>) {
        let (me, now) = (self.me, effects.now());
        let mut turn = self.next;
        if self.parameters.mutated(Mutation::SuggestSkipped) && self.skip_from < turn {
            turn -= 1;
        }
        let mut values = Vec::new();
        while !self.queue.values.is_empty() && self.has_room() {
            let flight = self.next_flight(turn + values.len() as u64, now);
            let value = Value::Batch(flight.values.clone());
            self.lanes[me].vote(flight.turn..flight.turn + 1, Ballot::ZERO, &value);
            self.flying += 1;
            self.flying_bytes += flight.bytes;
            self.flights.push_back(flight);
            values.push(value);
        }
        if values.is_empty() {
            return;
        }
        let turns = turn..turn + values.len() as u64;
        let values: Arc<[Value<V>]> = Arc::from(values);
        let skipped = self.skip_from.min(turn);
        self.next = self.next.max(turns.end);
        (self.skip_from, self.told) = (self.next, self.next);
        self.seen = self.seen.max(self.deal.slot(me, turns.end - 1).next());
        self.commit_due = false;
        let decided = self.claim();
        effects.record(Record::Voted { lane: me as Rank, turn, values: values.clone() });
        let ahead = turns.end <= self.durable + RESERVE;
        for (_, peer) in self.peers() {
            let (values, decided) = (values.clone(), decided.clone());
            let message = Message::Suggest { turn, values, skipped, decided };
            match ahead {
                true => effects.send_ahead(peer, message),
                false => effects.send(peer, message),
            }
        }
        let (lane, ballot, skipped) = (me as Rank, Ballot::ZERO, self.next..self.next);
        effects.send(self.process, Message::Accepted { lane, ballot, turns, skipped });
    }

    /// Takes a batch out of the queue.
    fn next_flight(&mut self, turn: Turn, now: Instant) -> Flight<V> {
        let mut bytes = 0usize;
        let fits = |(count, (_, size)): &(usize, &(V, u32))| {
            bytes += *size as usize;
            *count == 0 || (*count < self.parameters.batch_commands && bytes <= self.parameters.batch_bytes)
        };
        let count = self.queue.values.iter().enumerate().take_while(fits).count();
        let bytes: usize = self.queue.values.iter().take(count).map(|(_, size)| *size as usize).sum();
        let values: Arc<[V]> = self.queue.values.drain(..count).map(|(value, _)| value).collect();
        self.queue.bytes -= bytes;
        let queued = std::mem::replace(&mut self.queue.since, now);
        Flight {
            turn,
            values,
            voters: ReplicaSet::EMPTY,
            cast: 0,
            bytes,
            sent: now,
            queued,
            proposed: now,
            own: None,
            quorum: None,
            answered: false,
        }
    }

    pub(super) fn on_accepted(
        &mut self,
        voter: usize,
        lane: usize,
        ballot: Ballot,
        turns: Range<Turn>,
        skipped: Range<Turn>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        self.on_skip(voter, skipped, now);
        if ballot > Ballot::ZERO {
            return self.count_revocation(voter, lane, ballot, effects);
        }
        if lane != self.me {
            return;
        }
        let (seat, majority) = (self.members[voter].replica, self.members.len() / 2 + 1);
        let double = self.parameters.mutated(Mutation::CountDuplicateVote);
        let first = self.flights.partition_point(|flight| flight.turn < turns.start);
        for index in first..self.flights.len() {
            let flight = &mut self.flights[index];
            if flight.turn >= turns.end {
                break;
            }
            flight.voters.insert(seat);
            flight.cast += 1;
            if voter == self.me {
                flight.own = Some(now);
            }
            let enough = flight.voters.len() >= majority || (double && flight.cast as usize >= majority);
            if flight.quorum.is_none() && enough {
                let (turn, value) = (flight.turn, Value::Batch(flight.values.clone()));
                self.lanes[lane].decide(turn..turn + 1, &value);
                self.commit_due = true;
                self.land_flight(index, now);
            }
        }
    }

    /// Notes that a flight is decided.
    fn land_flight(&mut self, index: usize, now: Instant) {
        let flight = &mut self.flights[index];
        if flight.quorum.is_none() {
            flight.quorum = Some(now);
            self.flying -= 1;
            self.flying_bytes -= flight.bytes;
        }
    }

    /// Something was decided in these own turns: as suggested, or not; then it is suggested again.
    pub(super) fn land_flights(&mut self, turns: Range<Turn>, now: Instant) {
        let mut index = self.flights.partition_point(|flight| flight.turn < turns.start);
        let mut lost: Vec<Arc<[V]>> = Vec::new();
        while index < self.flights.len() && self.flights[index].turn < turns.end {
            let flight = &self.flights[index];
            match self.lanes[self.me].get(flight.turn) {
                Some(State::Decided(Value::NoOp)) => {
                    if !self.parameters.mutated(Mutation::ClaimRevoked) {
                        self.claim_from = self.claim_from.max(flight.turn + 1);
                    }
                    self.land_flight(index, now);
                    lost.extend(self.flights.remove(index).map(|flight| flight.values));
                }
                Some(State::Decided(Value::Batch(_))) => {
                    self.land_flight(index, now);
                    self.commit_due = true;
                    index += 1;
                }
                _ => index += 1,
            }
        }
        if self.queue.values.is_empty() {
            self.queue.since = now;
        }
        for values in lost.into_iter().rev() {
            self.counted.push("suggested_again");
            for value in values.iter().rev() {
                let bytes = wire::encoded_size(value);
                self.queue.bytes += bytes;
                self.queue.values.push_front((value.clone(), u32::try_from(bytes).unwrap_or(u32::MAX)));
            }
        }
    }

    /// A delivered own turn is no longer in the air: where its time went.
    pub(super) fn take_flight(&mut self, turn: Turn, now: Instant) -> Option<[Span; 4]> {
        while self.flights.front().is_some_and(|flight| flight.turn < turn) {
            self.forget_flight();
        }
        let flight = self.flights.front().filter(|flight| flight.turn == turn)?;
        let spans = flight.spans(now);
        self.forget_flight();
        Some(spans)
    }

    fn forget_flight(&mut self) {
        if let Some(flight) = self.flights.pop_front()
            && flight.quorum.is_none()
        {
            self.flying -= 1;
            self.flying_bytes -= flight.bytes;
        }
    }

    /// A peer's state has come that knows more: what became of own suggestions before it is not known.
    pub(super) fn drop_flights(&mut self, position: Slot) {
        let behind = self.deal.turn(self.me, position);
        let mut dropped = false;
        while self.flights.front().is_some_and(|flight| flight.turn < behind) {
            self.forget_flight();
            dropped = true;
        }
        if dropped {
            self.steps.push_back(Step::Dropped);
        }
    }

    /// A member skips these turns of its own: decided, since only it might have put something there.
    pub(super) fn on_skip(&mut self, owner: usize, turns: Range<Turn>, now: Instant) {
        if owner == self.me {
            self.now_durable(turns.end);
        } else {
            self.decide(owner, turns, &Value::NoOp, now);
        }
    }

    /// A member's own turns are decided, as it suggested or skipped them.
    pub(super) fn confirm(&mut self, owner: usize, turns: Range<Turn>) {
        if owner != self.me && turns.start < turns.end {
            self.claimed[owner] = self.claimed[owner].max(turns.end);
            self.lanes[owner].confirm(turns);
        }
    }

    /// Tells all what is skipped, behind the records it follows from; itself too, to learn that they are
    /// durable.
    pub(super) fn tell_skips(&mut self, effects: &mut Effects<Self>) {
        self.told = self.next;
        for member in self.members.iter() {
            let skip = Message::Skip { skipped: self.skip_from..self.next };
            effects.urgently(|effects| effects.send(member.process, skip));
        }
    }

    /// The timer of heartbeats.
    pub(super) fn beat(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        self.look_who_is_lowest(now);
        let (seen, executed, decided) = (self.seen, self.decided(), self.claim());
        let announced = self.next.min(self.durable + RESERVE).max(self.skip_from);
        let skipped = self.skip_from.min(announced)..announced;
        self.told = self.told.max(announced);
        // Ahead: of the skips it tells those that no restart can undo.
        for (rank, peer) in self.peers() {
            let (skipped, decided) = (skipped.clone(), decided.clone());
            let barred = self.lanes[rank].barred;
            let beat = Message::Beat { skipped, decided, seen, executed, barred };
            effects.urgently(|effects| effects.send_ahead(peer, beat));
        }
        effects.repeating(|effects| self.resend(effects));
        self.tend_revocations(effects);
        self.look_for_gaps(effects);
        effects.arm(Timer::Beat, self.parameters.heartbeat);
    }

    /// Asks again for votes that should have come.
    fn resend(&mut self, effects: &mut Effects<Self>) {
        let (now, me, patience) = (effects.now(), self.me, self.round());
        let decided = self.claim();
        let members = self.members.clone();
        let late = |flight: &&mut Flight<V>| flight.quorum.is_none() && now.since(flight.sent) >= patience;
        for flight in self.flights.iter_mut().filter(late).take(RESEND_TURNS) {
            flight.sent = now;
            for (rank, member) in members.iter().enumerate() {
                if rank != me && !flight.voters.contains(member.replica) {
                    let (turn, decided) = (flight.turn, decided.clone());
                    let values = Arc::from([Value::Batch(flight.values.clone())]);
                    // Behind the own record, which has long been made.
                    effects.send(member.process, Message::Suggest { turn, values, skipped: turn, decided });
                }
            }
        }
    }

    pub(super) fn on_beat(
        &mut self,
        sender: usize,
        seen: Slot,
        executed: Slot,
        barred: Turn,
        effects: &mut Effects<Self>,
    ) {
        self.reports.report(self.members[sender].replica, executed);
        self.seen = self.seen.max(seen);
        // What is before a slot that others have filled must not wait for a message that was lost; and
        // nobody would take what is suggested in turns that were revoked.
        let next = self.deal.turn(self.me, seen).max(barred);
        self.advance(next, effects);
        self.contest(barred, effects.now());
    }

    /// Gives up the own turns before `next`, in a record of its own.
    pub(super) fn advance(&mut self, next: Turn, effects: &mut Effects<Self>) {
        if next > self.next {
            self.give_up(next);
            effects.record(Record::Advanced { next });
        }
    }
}

impl<V> Flight<V> {
    pub(super) fn spans(&self, now: Instant) -> [Span; 4] {
        let quorum = self.quorum.unwrap_or(now);
        let own = self.own.unwrap_or(quorum).min(quorum);
        [self.proposed.since(self.queued), own.since(self.proposed), quorum.since(own), now.since(quorum)]
    }
}
