//! The owner of a lane: it gives commands stamps, and counts the votes for them (`specs/domino.md` 3.6).

use super::super::Mutation;
use super::super::message::{Item, Record};
use super::super::parameters::Parameters;
use super::Order;
use crate::order::Ordered;
use crate::service::Reply;
use isochrone_core::{Ballot, Count, Effects, Instant, ReplicaId, Span, Tally, wire};
use std::collections::{BTreeMap, VecDeque};

/// What this replica proposes in its lane.
#[derive(Clone, Hash, Debug)]
pub(super) struct Owner<V: Ordered> {
    queue: VecDeque<Queued<V>>,
    flights: BTreeMap<u64, Flight<V>>,
    bytes: usize,
    /// The last stamp given.
    last: u64,
    /// Everything below that was not proposed is a no-op: it was announced.
    skip: u64,
    /// Up to where others refuse what it proposes: a revoker has been there.
    closed: u64,
    /// Where the lane's frontier stands, and since when.
    stands: (u64, Instant),
    /// Positions that were committed in this turn.
    committed: Vec<u64>,
}

#[derive(Clone, Hash, Debug)]
struct Queued<V> {
    value: V,
    bytes: usize,
    /// Its stamp lies above this one.
    above: u64,
    /// Whether another replica has passed it on. It goes no further: clocks that are not known well may seem
    /// far behind to everyone.
    forwarded: bool,
    since: Instant,
}

#[derive(Clone, Hash, Debug)]
struct Flight<V> {
    value: V,
    bytes: usize,
    tally: Tally,
    /// When it was queued, proposed, voted for here, and voted for by a majority.
    queued: Instant,
    proposed: Instant,
    own: Option<Instant>,
    quorum: Option<Instant>,
    sent: Instant,
}

impl<V: Ordered> Default for Owner<V> {
    fn default() -> Owner<V> {
        Owner {
            queue: VecDeque::new(),
            flights: BTreeMap::new(),
            bytes: 0,
            last: 0,
            skip: 0,
            closed: 0,
            stands: (0, Instant::ZERO),
            committed: Vec::new(),
        }
    }
}

impl<V: Ordered> Owner<V> {
    /// How many commands are not executed yet.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.flights.len()
    }

    /// These commands.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        let queued = self.queue.iter().map(|queued| &queued.value);
        queued.chain(self.flights.values().map(|flight| &flight.value))
    }

    /// How large they are.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all that is under way has stamps that were given.
    pub(super) fn is_within(&self) -> bool {
        self.flights.last_key_value().is_none_or(|(at, _)| *at <= self.last)
    }

    /// What was announced.
    pub(super) fn skip(&self) -> u64 {
        self.skip
    }

    /// The last stamp that was given.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Stamps below lie in the past.
    pub(super) fn pass(&mut self, skip: u64) {
        self.skip = self.skip.max(skip);
    }

    /// Up to where others refuse what it proposes.
    pub(super) fn closed(&self) -> u64 {
        self.closed
    }

    /// For how long the lane's frontier has stood here, counted anew where that is no wonder.
    pub(super) fn stands(&mut self, frontier: u64, now: Instant, no_wonder: bool) -> Span {
        if no_wonder || frontier != self.stands.0 {
            self.stands = (frontier, now);
        }
        now.since(self.stands.1)
    }

    /// A position of the lane is executed: where its time went, if it was proposed in this life.
    pub(super) fn land(&mut self, at: u64, now: Instant) -> Option<[Span; 4]> {
        let flight = self.flights.remove(&at)?;
        self.bytes -= flight.bytes;
        let quorum = flight.quorum?;
        let own = flight.own.unwrap_or(quorum).min(quorum);
        let spans = [
            flight.proposed.since(flight.queued),
            own.since(flight.proposed),
            quorum.since(own),
            now.since(quorum),
        ];
        Some(spans)
    }
}

/// Proposals that are sent again in one heartbeat at most.
const RESEND_MAX: usize = 64;

impl<V: Ordered> Order<V> {
    pub(super) fn on_propose_led(&mut self, above: u64, values: Vec<V>, effects: &mut Effects<Self>) {
        for value in values {
            if self.is_full(wire::encoded_size(&value)) {
                // The client asks again later.
                return;
            }
            self.enqueue(value, above, effects.now());
        }
    }

    /// Whether there is no room for another value of so many bytes.
    pub(super) fn is_full(&self, bytes: usize) -> bool {
        let Parameters { queue_commands, queue_bytes, .. } = *self.parameters();
        self.owner.len() >= queue_commands || self.owner.bytes() + bytes > queue_bytes.max(bytes)
    }

    /// Queues a value for a stamp above `above`.
    pub(super) fn enqueue(&mut self, value: V, above: u64, now: Instant) {
        let bytes = wire::encoded_size(&value);
        self.owner.bytes += bytes;
        self.owner.queue.push_back(Queued { value, bytes, above, forwarded: false, since: now });
    }

    /// Queues what another replica passes on.
    pub(super) fn on_forward(&mut self, values: Vec<(u64, V)>, now: Instant) {
        for (above, value) in values {
            if self.is_full(wire::encoded_size(&value)) {
                return;
            }
            self.enqueue(value, above, now);
            if let Some(queued) = self.owner.queue.back_mut() {
                queued.forwarded = true;
            }
        }
    }

    /// Gives what is queued its stamps: when replication should be complete, behind everything announced,
    /// given or sealed.
    pub(super) fn assign(&mut self, effects: &mut Effects<Self>) {
        if self.owner.queue.is_empty() || !self.clock.is_set() {
            return;
        }
        let now = effects.now();
        let clock = self.now(effects);
        self.forward_queue(now);
        if self.owner.queue.is_empty() {
            return;
        }
        let due = clock + self.replication(now).map_or(0, Span::as_nanos);
        let in_sealed = self.parameters().mutated(Mutation::ProposeInSealed);
        let sealed = if in_sealed { 0 } else { self.lanes[self.me].sealed };
        // What lies before the frontier is decided: a revoker may have closed it while this owner was away.
        let sealed = if in_sealed { 0 } else { sealed.max(self.tracks[self.me + 1].frontier()) };
        let majority = self.majority();
        let horizon = self.horizon(clock, now);
        let mut values = Vec::with_capacity(self.owner.queue.len());
        while let Some(queued) = self.owner.queue.pop_front() {
            let owner = &mut self.owner;
            // Behind a stamp of a wrong clock, which nobody votes for and its client has yet to learn of: there it would
            // hold up whoever comes next. The client asks again, behind what it knows by then. What is committed lies nearer.
            if queued.above > horizon {
                owner.bytes -= queued.bytes;
                continue;
            }
            let at = due.max(owner.last + 1).max(owner.skip).max(queued.above + 1).max(sealed);
            assert!(
                at > owner.last && at >= owner.skip,
                "I6: a proposal at {at}, which was given or skipped"
            );
            owner.last = at;
            let Queued { value, bytes, since, .. } = queued;
            let flight = Flight {
                value: value.clone(),
                bytes,
                tally: Tally::new(majority),
                queued: since,
                proposed: now,
                own: None,
                quorum: None,
                sent: now,
            };
            owner.flights.insert(at, flight);
            let lane = &mut self.lanes[self.me];
            let before = lane.votes.insert(at, (Ballot::ZERO, Some(value.clone())));
            assert!(
                in_sealed || (before.is_none() && at >= lane.sealed),
                "I6: a proposal at {at}, which is taken"
            );
            lane.heard.insert(at, Some(value.clone()));
            values.push((at, value));
        }
        let stamps = values.iter().map(|(at, _)| *at).collect();
        let most = self.parameters().batch_commands;
        for batch in values.chunks(most) {
            let values = batch.iter().map(|(at, value)| (*at, Some(value.clone()))).collect();
            self.tell_others(&Item::Accept { values });
        }
        self.say(self.me, Item::Accepted { stamps });
        self.write(Record::Accepted { lane: self.me as u8, values });
    }

    /// A replica whose clock is far ahead of the others', or whose lane has given a stamp far ahead, would make
    /// execution wait until their clocks have come so far: another one proposes instead.
    fn forward_queue(&mut self, now: Instant) {
        let most = self.parameters().lag_max * 2;
        let far_clock = self.clock.ahead(now) > most;
        let late = self.clock.last() + most.as_nanos();
        let far = far_clock || self.owner.last > late;
        let mut others = (1..self.n()).map(|after| (self.me + after) % self.n());
        let Some(to) = others.find(|seat| !self.suspected(*seat)) else { return };
        if !far {
            return;
        }
        let queue = std::mem::take(&mut self.owner.queue);
        let (stays, goes): (VecDeque<_>, VecDeque<_>) = queue.into_iter().partition(|queued| {
            // What must lie that far ahead would do the same to another lane.
            queued.forwarded || !far_clock && queued.above > late
        });
        self.owner.queue = stays;
        self.owner.bytes -= goes.iter().map(|queued| queued.bytes).sum::<usize>();
        let values: Vec<_> = goes.into_iter().map(|queued| (queued.above, queued.value)).collect();
        if !values.is_empty() {
            self.say(to, Item::Forward { values });
        }
    }

    pub(super) fn on_accepted(&mut self, from: usize, stamps: &[u64], effects: &mut Effects<Self>) {
        let now = effects.now();
        for at in stamps {
            let Some(flight) = self.owner.flights.get_mut(at) else { continue };
            if from == self.me {
                flight.own = Some(now);
            }
            if flight.tally.add(ReplicaId(from as u8)) != Count::Reached {
                continue;
            }
            flight.quorum = Some(now);
            let value = flight.value.clone();
            self.tell_place(&value, *at);
            // A revoker can only have decided the same.
            self.lanes[self.me].heard.remove(at);
            self.tracks[self.me + 1].decide(*at, Some(value));
            self.owner.committed.push(*at);
        }
    }

    /// Tells a value's client where it has its place, behind which it asks what it asks next. Where commands are answered
    /// when they are executed, that has its place behind them whatever it says.
    fn tell_place(&mut self, value: &V, at: u64) {
        if self.parameters().reply == Reply::Commit
            && let Some(id) = value.id()
        {
            self.told.entry(id.client).or_default().committed.push((id.sequence, at));
        }
    }

    /// What was committed in this turn, for the others.
    pub(super) fn flush_commits(&mut self) {
        let stamps = std::mem::take(&mut self.owner.committed);
        if !stamps.is_empty() {
            self.tell_others(&Item::Commit { stamps });
        }
    }

    /// The lane is sealed up to here: this owner proposes behind it.
    pub(super) fn on_refused(&mut self, sealed: u64) {
        if !self.parameters().mutated(Mutation::ProposeInSealed) {
            self.owner.pass(sealed);
            self.owner.closed = self.owner.closed.max(sealed);
        }
    }

    /// Positions of the own lane whose fate is known: a command that did not get its place is proposed again.
    pub(super) fn collect_flights(&mut self, now: Instant) {
        if self.parameters().mutated(Mutation::ProposeInSealed) {
            return;
        }
        let track = &self.tracks[self.me + 1];
        let fated: Vec<u64> = self
            .owner
            .flights
            .iter()
            .take_while(|(at, _)| **at < track.frontier())
            .filter(|(_, flight)| flight.quorum.is_none())
            .map(|(at, _)| *at)
            .collect();
        for at in fated {
            let own = self.tracks[self.me + 1].commands.get(&at);
            if let Some(flight) = self.owner.flights.get_mut(&at)
                && own == Some(&flight.value)
            {
                flight.quorum = Some(now);
                let value = flight.value.clone();
                self.tell_place(&value, at);
                continue;
            }
            let Some(flight) = self.owner.flights.remove(&at) else { continue };
            self.owner.bytes -= flight.bytes;
            // It may have been decided and executed already; a copy does no harm then.
            self.enqueue(flight.value, at, now);
        }
    }

    /// The state before the lane's frontier was taken from a peer: what was proposed there is in it or lost.
    pub(super) fn drop_landed(&mut self) {
        let frontier = self.tracks[self.me + 1].frontier();
        let owner = &mut self.owner;
        let landed = |at: &u64, flight: &Flight<V>| *at < frontier && flight.quorum.is_some();
        let gone: Vec<u64> =
            owner.flights.iter().filter(|(at, flight)| landed(at, flight)).map(|(at, _)| *at).collect();
        for at in gone {
            if let Some(flight) = owner.flights.remove(&at) {
                owner.bytes -= flight.bytes;
            }
        }
    }

    /// Asks again for votes that should have come.
    pub(super) fn resend_proposals(&mut self, now: Instant) {
        let resend = self.parameters().resend;
        let mut again: Vec<(usize, u64, V, Instant)> = Vec::new();
        for (at, flight) in self.owner.flights.iter_mut().take(RESEND_MAX) {
            if flight.quorum.is_some() || now.since(flight.sent) < resend {
                continue;
            }
            let before = std::mem::replace(&mut flight.sent, now);
            for seat in 0..self.members.len() {
                if seat != self.me && !flight.tally.voters().contains(ReplicaId(seat as u8)) {
                    again.push((seat, *at, flight.value.clone(), before));
                }
            }
        }
        for (seat, at, value, before) in again {
            self.say_again(seat, Item::Accept { values: vec![(at, Some(value))] }, before);
        }
    }

    /// After a restart: nothing is given a stamp that an earlier life may have skipped, and what it proposed
    /// is proposed again, unchanged.
    pub(super) fn resume_lane(&mut self, now: Instant) {
        let majority = self.majority();
        self.owner.skip = self.clock.reserved();
        // A proposal's record lies before the reserve that covers it, so a torn journal may end between them.
        let proposed = self.lanes[self.me].votes.last_key_value().map_or(0, |(at, _)| *at);
        self.owner.last = self.clock.reserved().max(proposed);
        let frontier = self.tracks[self.me + 1].frontier();
        for (at, (ballot, value)) in self.lanes[self.me].votes.range(frontier..) {
            let Some(value) = value else { continue };
            if *ballot != Ballot::ZERO {
                continue;
            }
            let flight = Flight {
                value: value.clone(),
                bytes: wire::encoded_size(value),
                tally: Tally::new(majority),
                queued: now,
                proposed: now,
                own: None,
                quorum: None,
                sent: now,
            };
            self.owner.bytes += flight.bytes;
            self.owner.flights.insert(*at, flight);
        }
        for (lane, track) in self.lanes.iter_mut().zip(&self.tracks[1..]) {
            let proposed = lane.votes.range(track.frontier()..);
            let heard: Vec<_> = proposed
                .map(|(at, (ballot, value))| (*at, value.clone().filter(|_| *ballot == Ballot::ZERO)))
                .collect();
            lane.heard.extend(heard);
        }
    }
}
