//! Leading a command: batches, pre-acceptance, and the choice between the fast path and the slow one.

use super::super::message::{Attributes, Content, InstanceId, Message, Phase, Record, Role, SEATS, Touching};
use super::super::{Mutation, Parameters};
use super::recovery::{Drive, Stage};
use super::{Order, REACH, replica, touches_of};
use crate::order::Ordered;
use crate::request::Refusal;
use isochrone_core::{Ballot, Effects, Instant, ReplicaSet, TouchSet};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Values that wait for an instance.
#[derive(Clone, Hash, Debug)]
pub(super) struct Queue<V> {
    values: VecDeque<(V, u32)>,
    bytes: usize,
    /// Since when the first of them waits.
    since: Instant,
    /// Batches that have lost their instances, by the numbers of their first: no more than the window holds, since nothing new
    /// is proposed before them.
    given_up: BTreeMap<u64, Batch<V>>,
}

/// Values that share an instance.
#[derive(Clone, Hash, Debug)]
struct Batch<V> {
    values: Arc<[V]>,
    bytes: u32,
    /// Since when the first of them waits.
    queued: Instant,
    /// The number of the first instance that they had, if they had any: what is given up keeps its place by that.
    first: Option<u64>,
}

impl<V> Default for Queue<V> {
    fn default() -> Queue<V> {
        Queue { values: VecDeque::new(), bytes: 0, since: Instant::ZERO, given_up: BTreeMap::new() }
    }
}

impl<V: Ordered> Queue<V> {
    pub(super) fn push(
        &mut self,
        value: V,
        bytes: usize,
        now: Instant,
        parameters: &Parameters,
    ) -> Result<(), Refusal> {
        if self.values.len() >= parameters.queue_commands
            || self.bytes + bytes > parameters.queue_bytes.max(bytes)
        {
            return Err(Refusal::Overloaded);
        }
        if self.values.is_empty() {
            self.since = now;
        }
        self.bytes += bytes;
        self.values.push_back((value, u32::try_from(bytes).unwrap_or(u32::MAX)));
        Ok(())
    }

    /// Puts a batch back that has lost its instance: it was taken in and is not refused now.
    pub(super) fn retry(&mut self, first: u64, values: Arc<[V]>, bytes: u32, queued: Instant) {
        self.given_up.insert(first, Batch { values, bytes, queued, first: Some(first) });
    }

    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.given_up.is_empty()
    }

    /// The next batch. What was proposed before comes first, in the order of that.
    fn take(&mut self, now: Instant, parameters: &Parameters) -> Option<Batch<V>> {
        if let Some((_, batch)) = self.given_up.pop_first() {
            return Some(batch);
        }
        let mut bytes = 0usize;
        let fits = |(count, (_, size)): &(usize, &(V, u32))| {
            bytes += *size as usize;
            *count == 0 || (*count < parameters.batch_commands && bytes <= parameters.batch_bytes)
        };
        let count = self.values.iter().enumerate().take_while(fits).count();
        if count == 0 {
            return None;
        }
        let size = self.values.iter().take(count).map(|(_, size)| *size as usize).sum::<usize>();
        self.bytes -= size;
        let values = self.values.drain(..count).map(|(value, _)| value).collect();
        let bytes = u32::try_from(size).unwrap_or(u32::MAX);
        Some(Batch { values, bytes, queued: std::mem::replace(&mut self.since, now), first: None })
    }
}

/// An own instance between its proposal and its execution: where its time goes.
#[derive(Clone, Hash, Debug)]
pub(super) struct Flight {
    /// The number of the first instance that its values had: its own, unless they were given up before.
    pub(super) first: u64,
    pub(super) queued: Instant,
    pub(super) proposed: Instant,
    pub(super) committed: Option<Instant>,
}

impl<V: Ordered> Order<V> {
    /// Gives waiting values their instances, one for each batch, as far as the window allows.
    pub(super) fn flush(&mut self, effects: &mut Effects<Self>) {
        let full = self.flights.len() as u64 >= self.parameters.window;
        if full || self.queue.is_empty() || self.recovers_own() {
            return;
        }
        // What is not executed counts, not only what is not committed: components grow while new instances
        // join them, and close when none do.
        while (self.flights.len() as u64) < self.parameters.window {
            let Some(batch) = self.queue.take(effects.now(), &self.parameters) else { break };
            self.lead(batch, effects);
        }
    }

    /// Whether this replica recovers an instance of its own that it has proposed in this life, mostly to give it up. What it
    /// proposed meanwhile would overtake what that holds, also where one client has sent both. It ends when a majority has
    /// answered twice, which anything new would have to wait for as well.
    fn recovers_own(&self) -> bool {
        let own = InstanceId::at(self.me, 0)..=InstanceId::at(self.me, u64::MAX);
        let recovers = |(id, drive): (&InstanceId, &Drive<V>)| {
            drive.ballot > Ballot::ZERO && self.flights.contains_key(&id.number)
        };
        self.drives.range(own).any(recovers)
    }

    /// What is known here to interfere with this, and what every command must follow: all that is gone. What all have executed
    /// its leader's attributes hold where that had executed as much, given here, when it proposed this. What is gone beyond
    /// that is named: others, who do not know yet that all have executed it, would tell a recovery that it passed this by.
    pub(super) fn interference(
        &self,
        touches: &TouchSet,
        own: InstanceId,
        leads: bool,
        executed: &[u64; SEATS],
    ) -> Attributes {
        let mut found = Attributes::default();
        self.index.visit(touches, |Touching { id, seq }| {
            if id == own {
                return;
            }
            let dep = &mut found.deps[id.leader()];
            *dep = id.number.max(*dep);
            // Whatever is executed anywhere before this command is pre-accepted there shares no component
            // with it, so its number need not be topped. The leader tops it all the same: its acceptors may
            // not have executed it yet, and their answers should equal its own.
            if leads || !self.is_executed(id) {
                found.seq = found.seq.max(seq + 1);
            }
        });
        for (seat, space) in self.spaces.iter().enumerate() {
            let gone = space.base() - 1;
            if leads {
                // All members have executed these, so that they cost nothing; and an acceptor that still has
                // them in its index adds nothing by them.
                found.deps[seat] = found.deps[seat].max(self.settled[seat]);
            }
            if gone > self.settled[seat].min(executed[seat]) {
                found.deps[seat] = found.deps[seat].max(gone);
            }
        }
        if leads {
            found.seq = found.seq.max(1);
        }
        if let Some((_, last)) = self.lost
            && (own.leader() != self.me || own.number > last)
        {
            found.deps[self.me] = found.deps[self.me].max(last);
        }
        found
    }

    fn lead(&mut self, batch: Batch<V>, effects: &mut Effects<Self>) {
        let Batch { values: batch, bytes, queued, first } = batch;
        let (id, now) = (InstanceId::at(self.me, self.next), effects.now());
        let behind = self.reserve(id.number, effects);
        self.next += 1;
        let touches = touches_of(&batch);
        let attributes = self.interference(&touches, id, true, &self.settled);
        self.hear_of(self.me, id.number);
        let first = first.unwrap_or(id.number);
        self.flights.insert(id.number, Flight { first, queued, proposed: now, committed: None });
        let Some(instance) = self.open_instance(id) else { return };
        instance.phase = Phase::PreAccepted;
        instance.bytes = bytes;
        instance.touches = Some(Arc::new(touches));
        instance.initial = Some(attributes);
        instance.attributes = attributes;
        self.learn_batch(id, &batch);
        self.postpone(id, now + self.parameters.resend);
        effects.record_lazily(Record::PreAccepted {
            id,
            batch: batch.clone(),
            initial: attributes,
            attributes,
            delegate: false,
        });
        let near = self.nearest();
        let delegate = self.delegates().then(|| near.first().copied()).flatten();
        let asked = if self.parameters.thrifty { self.fast() - 1 } else { near.len() };
        let asked: ReplicaSet = near.into_iter().take(asked).map(replica).collect();
        let (answers, executed) = (vec![(self.me, attributes)], self.executed_prefixes());
        let stage = Stage::PreAccept { answers, delegate, asked, behind, executed };
        self.drives.insert(id, Drive { ballot: Ballot::ZERO, tries: 0, stage });
        self.send_pre_accept(id, asked, effects);
        self.choose_path(id, effects);
    }

    /// Whether the `PreAccept` of this number has to wait for a record, and the end of the numbers that are then
    /// known to be reserved durably. A leader that forgets an instance must know at least that it may have let it
    /// out: it could use the number again, and pre-accept another command as if this were not there.
    fn reserve(&mut self, number: u64, effects: &mut Effects<Self>) -> Option<u64> {
        let renewed = self.numbers.renew(number, self.parameters.ahead);
        if let Some(end) = renewed {
            effects.record(Record::Reserved { upto: end - 1 });
        }
        (renewed.is_some() || !self.numbers.covers(number + 1)).then_some(self.numbers.end())
    }

    /// Whether one acceptor settles the attributes by itself: at three replicas, where it and the leader are
    /// a quorum.
    fn delegates(&self) -> bool {
        self.parameters.delegate && self.count() == 3
    }

    /// Whether a member is so far behind with the instances of this replica that it may have no room for the next one; it
    /// would not answer.
    pub(super) fn lags(&self, seat: usize) -> bool {
        self.next > self.reported[seat][self.me] + REACH / 2
    }

    /// The peers, the nearest first; before the last come those that lag, and last those that are not heard.
    pub(super) fn nearest(&self) -> Vec<usize> {
        let mut near: Vec<usize> = self.peers().collect();
        let (me, count) = (self.me, self.count());
        near.sort_by_key(|seat| {
            let trip = self.trips.get(*seat).and_then(|trip| trip.known());
            (self.suspects(*seat), self.lags(*seat), trip.is_none(), trip, (*seat + count - me) % count)
        });
        near
    }

    pub(super) fn send_pre_accept(&self, id: InstanceId, to: ReplicaSet, effects: &mut Effects<Self>) {
        let Some(Drive { stage: Stage::PreAccept { delegate, behind, executed, .. }, .. }) =
            self.drives.get(&id)
        else {
            return;
        };
        let Some(instance) = self.instance(id) else { return };
        let (Some(batch), Some(attributes)) = (&instance.batch, instance.initial) else { return };
        for seat in to.iter().map(|seat| usize::from(seat.0)) {
            let role = match *delegate {
                None => Role::Acceptor,
                Some(delegate) if delegate == seat => Role::Delegate,
                Some(_) => Role::Listener,
            };
            let (batch, bytes) = (batch.clone(), instance.bytes);
            let executed = *executed;
            let message = Message::PreAccept { id, batch, bytes, attributes, executed, role };
            match behind {
                Some(_) => effects.send(self.process_of(seat), message),
                None => effects.send_ahead(self.process_of(seat), message),
            }
        }
    }

    pub(super) fn on_pre_accept(
        &mut self,
        from: usize,
        id: InstanceId,
        (batch, bytes): (Arc<[V]>, u32),
        (proposed, executed): (Attributes, [u64; SEATS]),
        role: Role,
        effects: &mut Effects<Self>,
    ) {
        let delegate = role == Role::Delegate;
        if from != id.leader() || !self.admit(from, id, true, effects) {
            return;
        }
        self.hear_of(from, id.number);
        let Some(instance) = self.instance(id) else { return };
        if instance.promised > Ballot::ZERO {
            let promised = instance.promised;
            let rejected = Message::Rejected { id, promised };
            return effects.urgently(|effects| effects.send_ahead(self.process_of(from), rejected));
        }
        if instance.phase == Phase::Initial {
            let touches = touches_of(&batch);
            let attributes = match role {
                // It says nothing of them; what it held as proposed, a recovery would count as a vote.
                Role::Listener => Attributes::default(),
                Role::Acceptor | Role::Delegate => {
                    let mut attributes = proposed;
                    attributes.merge(&self.interference(&touches, id, false, &executed));
                    attributes
                }
            };
            let due = effects.now() + self.parameters.resend;
            let Some(instance) = self.instance_mut(id) else { return };
            instance.phase = if delegate { Phase::Accepted } else { Phase::PreAccepted };
            instance.bytes = bytes;
            instance.touches = Some(Arc::new(touches));
            instance.initial = Some(proposed);
            instance.attributes = attributes;
            match role {
                // Whoever comes after this meets it at the leader or at the delegate, until all know that it is
                // committed.
                Role::Listener => self.hold_batch(id, &batch),
                Role::Acceptor | Role::Delegate => self.learn_batch(id, &batch),
            }
            self.postpone(id, due);
            if self.mutated(Mutation::AcknowledgeBeforeDurable) {
                let answer = Message::PreAccepted { id, attributes, delegate };
                effects.send_ahead(self.process_of(from), answer);
            }
            let record = Record::PreAccepted { id, batch, initial: proposed, attributes, delegate };
            match role {
                // Nobody is told, so nothing rests on it.
                Role::Listener => effects.record_lazily(record),
                Role::Acceptor | Role::Delegate => effects.record(record),
            }
        }
        if role == Role::Listener {
            return;
        }
        // What was only listened to holds nobody up, so nothing is said of it. (No leader asks for more later, but
        // by a recovery.)
        let Some(instance) = self.instance(id).filter(|instance| instance.indexed > 0) else { return };
        // What was said before is said again: its record lies before this message.
        let delegate = instance.phase == Phase::Accepted;
        let attributes = instance.attributes;
        let answer = Message::PreAccepted { id, attributes, delegate };
        effects.urgently(|effects| effects.send(self.process_of(from), answer));
    }

    pub(super) fn on_pre_accepted(
        &mut self,
        from: usize,
        id: InstanceId,
        attributes: Attributes,
        voted: bool,
        effects: &mut Effects<Self>,
    ) {
        let Some(Drive { stage: Stage::PreAccept { answers, delegate, behind, .. }, .. }) =
            self.drives.get_mut(&id)
        else {
            return;
        };
        if let Some(end) = *behind {
            // What is answered has left, so the record that it waited for is durable.
            self.numbers.grant(end);
        }
        if *delegate == Some(from) {
            if voted {
                // It has voted for these in the first ballot, and nobody else may propose there. The leader's
                // own vote is the record of the commit, which leaves behind it.
                self.notes.push("committed_by_delegate");
                return self.commit(id, false, attributes, true, effects);
            }
            return;
        }
        if !answers.iter().any(|(seat, _)| *seat == from) {
            answers.push((from, attributes));
            self.choose_path(id, effects);
        }
    }

    /// Commits fast where enough have answered as was proposed, and goes the slow way once that cannot be
    /// or the fast quorum has answered otherwise.
    pub(super) fn choose_path(&mut self, id: InstanceId, effects: &mut Effects<Self>) {
        let (fast, majority) = (self.fast(), self.majority());
        let Some(Drive { tries, stage: Stage::PreAccept { answers, delegate: None, asked, .. }, .. }) =
            self.drives.get(&id)
        else {
            return;
        };
        let Some(initial) = self.instance(id).and_then(|instance| instance.initial) else { return };
        let equal = answers.iter().filter(|(_, attributes)| *attributes == initial).count();
        if equal >= fast {
            self.notes.push("fast_path");
            return self.commit(id, false, initial, true, effects);
        }
        let answered: ReplicaSet = answers.iter().map(|(seat, _)| replica(*seat)).collect();
        let open = asked.without(answered).without(self.suspects).len();
        let hopeless = equal + open < fast || answers.len() >= fast || *tries > 0;
        if answers.len() < majority || !hopeless {
            return;
        }
        let mut attributes = initial;
        if !self.mutated(Mutation::DependenciesNotMerged) {
            answers.iter().for_each(|(_, theirs)| attributes.merge(theirs));
        }
        self.notes.push("slow_path");
        let holders = *asked;
        self.vote(id, Ballot::ZERO, Content::Known, attributes, effects);
        self.propose_vote(id, Ballot::ZERO, holders, effects);
    }

    /// Of each seat, how far its instances are pending or committed, at least.
    pub(super) fn watch(&mut self, now: Instant) {
        for seat in 0..self.count().min(SEATS) {
            let upto = self.known[seat].min(self.spaces[seat].executed() + REACH / 16);
            let from = self.watched[seat].max(self.spaces[seat].executed()) + 1;
            if upto < from {
                continue;
            }
            self.watched[seat] = upto;
            let due = now + self.parameters.resend;
            for number in from..=upto {
                let id = InstanceId::at(seat, number);
                if !self.is_committed(id) && !self.pending.contains_key(&id) {
                    self.need(id, due);
                }
            }
        }
    }
}
