//! Command instances: each member's own log, replicated by whoever leads it (`specs/sdpaxos.md` 3.2).

use super::assignment::Rank;
use super::message::{Entry, Objects, Part, Value};
use super::order::{Order, Pending};
use crate::order::{Ordered, Step};
use crate::request::Refusal;
use crate::service::Reply;
use isochrone_core::{Ballot, Instant, ReplicaId, ReplicaSet, Slot, SlotLog, Span, wire};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Instances sent again in one turn at most.
const RESEND: usize = 64;

/// What is accepted in an instance.
#[derive(Clone, Hash, Debug)]
pub(super) struct Cell<V: Ordered> {
    pub(super) ballot: Ballot,
    pub(super) value: Value<V>,
    /// Whether that is known to be decided.
    pub(super) decided: bool,
}

/// A proposal that has no majority yet.
#[derive(Clone, Hash, Debug)]
pub(super) struct Flight {
    pub(super) voters: ReplicaSet,
    /// Who was sent the value.
    pub(super) sent: ReplicaSet,
    pub(super) at: Instant,
}

/// This replica proposes in the instances of a member.
#[derive(Clone, Hash, Debug)]
pub(super) struct Lead {
    pub(super) ballot: Ballot,
    pub(super) flights: BTreeMap<u64, Flight>,
    /// When slots were last asked for that no proposal waits for.
    pub(super) asked: Instant,
}

/// This replica gathers promises for the instances of a member.
#[derive(Clone, Hash, Debug)]
pub(super) struct Taking<V: Ordered> {
    pub(super) ballot: Ballot,
    pub(super) from: u64,
    pub(super) promised: ReplicaSet,
    /// The highest accepted, and whether decided, by number.
    pub(super) found: BTreeMap<u64, (Ballot, Value<V>, bool)>,
    /// Somebody has executed so many.
    pub(super) executed: u64,
    /// The owner has so many slots, as far as anybody said.
    pub(super) slots: u64,
    pub(super) at: Instant,
}

/// The instances of one member.
#[derive(Clone, Hash, Debug)]
pub(super) struct Space<V: Ordered> {
    pub(super) promised: Ballot,
    /// By number, from the first that is not executed here.
    pub(super) log: SlotLog<Cell<V>>,
    pub(super) lead: Option<Lead>,
    pub(super) taking: Option<Taking<V>>,
    /// When this replica last tried to take them over.
    pub(super) tried: Instant,
}

impl<V: Ordered> Space<V> {
    /// The instances of `owner` before the first; its ballot of round 0 is promised to it from the beginning.
    pub(super) fn new(owner: Rank, leads: bool) -> Space<V> {
        let ballot = Ballot { round: 0, owner: ReplicaId(owner) };
        Space {
            promised: ballot,
            log: SlotLog::starting_at(Slot(1)),
            lead: leads.then(|| Lead { ballot, flights: BTreeMap::new(), asked: Instant::ZERO }),
            taking: None,
            tried: Instant::ZERO,
        }
    }

    /// Whoever proposes here does so no more if it is below this ballot.
    pub(super) fn depose(&mut self, ballot: Ballot) {
        self.lead.take_if(|lead| lead.ballot < ballot);
        self.taking.take_if(|taking| taking.ballot < ballot);
    }

    /// The highest number accepted here.
    pub(super) fn highest(&self) -> u64 {
        self.log.end().0 - 1
    }
}

/// An instance decided by this proposer and not announced yet.
#[derive(Clone, Hash, Debug)]
pub(super) struct Announcement<V: Ordered> {
    pub(super) owner: Rank,
    pub(super) index: u64,
    pub(super) ballot: Ballot,
    /// Who was sent the value.
    pub(super) sent: ReplicaSet,
    pub(super) value: Value<V>,
}

/// An own command instance on its way.
#[derive(Clone, Hash, Debug)]
pub(super) struct Proposal<V: Ordered> {
    pub(super) values: Arc<[V]>,
    pub(super) queued: Instant,
    pub(super) proposed: Instant,
    pub(super) own: Option<Instant>,
    pub(super) quorum: Option<Instant>,
    /// When its slot was last asked for.
    pub(super) asked: Instant,
    pub(super) ready: bool,
}

impl<V: Ordered> Proposal<V> {
    /// Waiting for its place, own vote, quorum, order.
    pub(super) fn spans(&self, now: Instant) -> Option<[Span; 4]> {
        let quorum = self.quorum?;
        let own = self.own.unwrap_or(quorum).min(quorum);
        Some([
            self.proposed.since(self.queued),
            own.since(self.proposed),
            quorum.since(own),
            now.since(quorum),
        ])
    }
}

impl<V: Ordered> Order<V> {
    pub(super) fn enqueue(&mut self, value: V, bytes: usize, now: Instant) -> Result<(), Refusal> {
        let full = self.queue.len() >= self.parameters().queue_commands
            || self.queue_bytes + bytes > self.parameters().queue_bytes.max(bytes);
        if full {
            return Err(Refusal::Overloaded);
        }
        self.queue_bytes += bytes;
        self.queue.push_back((value, u32::try_from(bytes).unwrap_or(u32::MAX), now));
        Ok(())
    }

    /// What others have left out of its instance waits again, before all else and in its order.
    fn requeue(&mut self) {
        while let Some((_, proposal)) = self.left_out.pop_last() {
            for value in proposal.values.iter().rev() {
                let bytes = wire::encoded_size(value);
                self.queue_bytes += bytes;
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                self.queue.push_front((value.clone(), bytes, proposal.queued));
            }
        }
    }

    /// Gives waiting values their instances, as far as the window allows.
    pub(super) fn launch(&mut self, now: Instant) {
        let me = usize::from(self.me);
        self.requeue();
        if !self.normal() || self.queue.is_empty() {
            return;
        }
        let Some(ballot) = self.spaces[me].lead.as_ref().map(|lead| lead.ballot) else {
            return self.take_back(now);
        };
        self.reserve();
        let first = self.next;
        let room = (self.counts[me] + 1 + self.parameters().window).saturating_sub(first);
        let mut values = Vec::new();
        while !self.queue.is_empty() && (values.len() as u64) < room && self.next < self.numbers.end() {
            let (count, bytes, queued) = self.next_batch(now);
            let batch: Arc<[V]> = self.queue.drain(..count).map(|(value, _, _)| value).collect();
            self.queue_bytes -= bytes;
            values.push(Value::Batch(batch.clone()));
            let proposal = Proposal {
                values: batch,
                queued,
                proposed: now,
                own: None,
                quorum: None,
                asked: now,
                ready: false,
            };
            self.proposals.insert(self.next, proposal);
            self.next += 1;
        }
        if !values.is_empty() {
            self.straggler.required(values.len() as u32);
            let ahead = self.numbers.covers(self.next);
            self.propose_run(self.me, ballot, first, values, ahead, now);
        }
    }

    /// How many of the queue share the next instance, their bytes, and since when the first has waited.
    fn next_batch(&self, now: Instant) -> (usize, usize, Instant) {
        let parameters = self.parameters();
        let most = if parameters.batch { parameters.batch_commands } else { 1 };
        let (mut count, mut bytes) = (0, 0usize);
        for (_, size, _) in self.queue.iter().take(most) {
            if count > 0 && bytes + *size as usize > parameters.batch_bytes {
                break;
            }
            count += 1;
            bytes += *size as usize;
        }
        (count, bytes, self.queue.front().map_or(now, |(_, _, since)| *since))
    }

    /// Accepts consecutive instances here as their proposer, and asks a quorum to.
    pub(super) fn propose_run(
        &mut self,
        owner: Rank,
        ballot: Ballot,
        first: u64,
        values: Vec<Value<V>>,
        ahead: bool,
        now: Instant,
    ) {
        let last = first + values.len() as u64 - 1;
        let targets = self.contact.quorum(self.me, self.majority, self.head(), self.parameters(), now);
        let space = &mut self.spaces[usize::from(owner)];
        for (index, value) in (first..).zip(&values) {
            space.log.insert(Slot(index), Cell { ballot, value: value.clone(), decided: false });
            if let Some(lead) = &mut space.lead {
                let flight = Flight { voters: ReplicaSet::EMPTY, sent: targets, at: now };
                lead.flights.insert(index, flight);
            }
        }
        self.write(Entry::Accepted(owner, ballot, first, values.clone()));
        self.then(Pending::Accepted(owner, ballot, first, last));
        let own = owner == self.me;
        let objects = if own { self.objects(&values) } else { Objects::All };
        for target in targets.iter() {
            let part = Part::Accept { owner, ballot, first, values: values.clone() };
            let out = self.out(target.0);
            if ahead { out.ahead.push(part) } else { out.held.push(part) }
        }
        if !own {
            return;
        }
        if self.head() == self.me {
            self.assign(owner, first, last, &objects, false, now);
        } else if !targets.contains(ReplicaId(self.head())) {
            let request = Part::Request { owner, first, index: last, objects };
            let head = self.head();
            let out = self.out(head);
            if ahead { out.ahead.push(request) } else { out.held.push(request) }
        }
    }

    /// C-ACCEPT.
    pub(super) fn on_accept(
        &mut self,
        from: Rank,
        owner: Rank,
        ballot: Ballot,
        first: u64,
        mut values: Vec<Value<V>>,
        now: Instant,
    ) {
        if usize::from(owner) >= self.count() || values.is_empty() {
            return;
        }
        let window = self.parameters().window * 4;
        let space = &mut self.spaces[usize::from(owner)];
        if ballot < space.promised {
            let promised = space.promised;
            return self.out(from).held.push(Part::Refused { owner, promised });
        }
        // A bound on what a fault can make this replica hold: for what lies behind it, it has to catch up first.
        let base = space.log.base().0;
        let room = (base + window).saturating_sub(first);
        values.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        let Some(more) = (values.len() as u64).checked_sub(1) else { return };
        let last = first + more;
        space.promised = ballot;
        space.depose(ballot);
        let objects = if self.sequences() { self.objects(&values) } else { Objects::All };
        let space = &mut self.spaces[usize::from(owner)];
        let mut news = Vec::<(u64, Vec<Value<V>>)>::new();
        for (index, value) in (first..).zip(values).filter(|(index, _)| *index >= base) {
            let known = space.log.get(Slot(index));
            if known.is_none_or(|cell| !cell.decided && cell.ballot != ballot) {
                space.log.insert(Slot(index), Cell { ballot, value: value.clone(), decided: false });
                match news.last_mut() {
                    Some((least, run)) if *least + run.len() as u64 == index => run.push(value),
                    _ => news.push((index, vec![value])),
                }
            }
        }
        // None that was left alone is among them: it may be decided, which is in no record, and a replay would take this
        // ballot's value for it.
        for (least, run) in news {
            self.write(Entry::Accepted(owner, ballot, least, run));
        }
        self.out(from).held.push(Part::Accepted { owner, ballot, first, last });
        if from == owner {
            self.assign(owner, first, last, &objects, true, now);
        }
    }

    /// C-ACKs, also the own one once it is durable.
    pub(super) fn count_accepted(
        &mut self,
        voter: Rank,
        owner: Rank,
        ballot: Ballot,
        first: u64,
        last: u64,
        now: Instant,
    ) {
        let (majority, own) = (self.majority, owner == self.me && voter == self.me);
        let Some(space) = self.spaces.get_mut(usize::from(owner)).filter(|_| first <= last) else { return };
        let Some(lead) = space.lead.as_mut().filter(|lead| lead.ballot == ballot) else { return };
        let mut reached = Vec::new();
        for (index, flight) in lead.flights.range_mut(first..=last) {
            flight.voters.insert(ReplicaId(voter));
            if flight.voters.len() >= majority {
                reached.push((*index, flight.sent));
            }
        }
        for (index, _) in &reached {
            lead.flights.remove(index);
        }
        if own {
            for (_, proposal) in self.proposals.range_mut(first..=last) {
                proposal.own.get_or_insert(now);
            }
        }
        for (index, sent) in reached {
            if let Some(cell) = self.spaces[usize::from(owner)].log.get(Slot(index)) {
                let value = cell.value.clone();
                self.announce.push(Announcement { owner, index, ballot, sent, value });
            }
            self.decide(owner, index, now);
        }
    }

    /// The cell of this instance is decided.
    fn decide(&mut self, owner: Rank, index: u64, now: Instant) {
        let Some(cell) = self.spaces[usize::from(owner)].log.get_mut(Slot(index)) else { return };
        cell.decided = true;
        if owner != self.me {
            return;
        }
        let value = cell.value.clone();
        self.own_decided(index, &value, now);
    }

    /// An own instance is decided: with the own values, or they must have another.
    pub(super) fn own_decided(&mut self, index: u64, value: &Value<V>, now: Instant) {
        if let Some(lead) = &mut self.spaces[usize::from(self.me)].lead {
            lead.flights.remove(&index);
        }
        let Some(proposal) = self.proposals.get_mut(&index) else { return };
        if !matches!(value, Value::Batch(values) if *values == proposal.values) {
            // Somebody recovered this instance without them.
            self.left_out.extend(self.proposals.remove(&index).map(|proposal| (index, proposal)));
            return;
        }
        proposal.quorum.get_or_insert(now);
        self.ready(index, now);
    }

    /// Says so if this own instance is ready: decided, and its slot safe.
    pub(super) fn ready(&mut self, index: u64, now: Instant) {
        let placed = self.own_slots.get(&index).is_some_and(|slot| *slot <= self.own_ordered);
        if !placed || !self.normal() {
            return;
        }
        if let Some(proposal) = self.proposals.get_mut(&index)
            && proposal.quorum.is_some()
            && !proposal.ready
        {
            proposal.ready = true;
            if self.knobs.0.reply != Reply::Commit {
                return;
            }
            let spans = proposal.spans(now);
            let values = proposal.values.clone();
            self.steps.extend(values.iter().map(|value| Step::Committed(value.clone(), spans)));
        }
    }

    /// C-COMMIT of what was accepted here in this ballot or, then with the same value, a later one.
    pub(super) fn on_commit(&mut self, owner: Rank, ballot: Ballot, first: u64, last: u64, now: Instant) {
        let Some(space) = self.spaces.get_mut(usize::from(owner)) else { return };
        let (first, last) = (first.max(space.log.base().0), last.min(space.highest()));
        for index in first..=last {
            let space = &mut self.spaces[usize::from(owner)];
            if space.log.get(Slot(index)).is_some_and(|cell| cell.ballot >= ballot && !cell.decided) {
                self.decide(owner, index, now);
            }
        }
    }

    /// C-COMMIT with the values.
    pub(super) fn on_decided(
        &mut self,
        owner: Rank,
        ballot: Ballot,
        first: u64,
        values: Vec<Value<V>>,
        now: Instant,
    ) {
        let Some(space) = self.spaces.get_mut(usize::from(owner)) else { return };
        let base = space.log.base().0;
        if first + values.len() as u64 > base + self.knobs.0.window * 4 {
            return;
        }
        let mut decided = Vec::new();
        let mut news = false;
        for (index, value) in (first..).zip(&values).filter(|(index, _)| *index >= base) {
            match space.log.get_mut(Slot(index)) {
                Some(cell) if cell.decided => continue,
                // Whoever accepted something else in a higher ballot would contradict the decision, so what was accepted
                // here is older and binds nobody any more. Where it is the same its ballot rises too: a commit that
                // names an older one holds for whatever else was accepted since.
                Some(cell) => {
                    news |= cell.value != *value;
                    (cell.ballot, cell.value) = (cell.ballot.max(ballot), value.clone());
                }
                None => {
                    let cell = Cell { ballot, value: value.clone(), decided: false };
                    space.log.insert(Slot(index), cell);
                    news = true;
                }
            }
            decided.push(index);
        }
        if news {
            self.note(Entry::Decided(owner, ballot, first, values));
        }
        for index in decided {
            self.decide(owner, index, now);
        }
    }

    /// Tells everyone what was decided here in this turn, and which own slots are committed.
    pub(super) fn announce_commits(&mut self) {
        let announce = std::mem::take(&mut self.announce);
        let slots = std::mem::take(&mut self.announce_slots);
        if !self.normal() {
            return;
        }
        for rank in self.peers() {
            let mut at = 0;
            while at < announce.len() {
                let Announcement { owner, index: first, ballot, .. } = announce[at];
                let has = |entry: &Announcement<V>| entry.sent.contains(ReplicaId(rank));
                let knows = has(&announce[at]);
                let mut end = at + 1;
                while end < announce.len() {
                    let next = &announce[end];
                    let follows = (next.owner, next.ballot) == (owner, ballot)
                        && next.index == first + (end - at) as u64;
                    if !follows || has(next) != knows {
                        break;
                    }
                    end += 1;
                }
                let last = first + (end - at) as u64 - 1;
                let part = match knows {
                    true => Part::Commit { owner, ballot, first, last },
                    false => {
                        let values = announce[at..end].iter().map(|entry| entry.value.clone()).collect();
                        Part::Decided { owner, ballot, first, values }
                    }
                };
                self.out(rank).ahead.push(part);
                at = end;
            }
            if !slots.is_empty() {
                let owner = self.me;
                let mut runs = Vec::<(u64, u32)>::new();
                for slot in &slots {
                    match runs.last_mut() {
                        Some((first, count)) if *first + u64::from(*count) == *slot => *count += 1,
                        _ => runs.push((*slot, 1)),
                    }
                }
                self.out(rank).ahead.push(Part::Ordered { owner, slots: runs });
            }
        }
    }

    /// Asks more replicas for acceptances that are late, and the sequencer for slots that are.
    pub(super) fn resend_accepts(&mut self, now: Instant) {
        let patience = self.parameters().resend;
        let peers: ReplicaSet = self.peers().map(ReplicaId).collect();
        let window = RESEND;
        let mut late: Vec<(Rank, Ballot, u64, Value<V>, ReplicaSet)> = Vec::new();
        for (owner, space) in self.spaces.iter_mut().enumerate() {
            let Some(lead) = &mut space.lead else { continue };
            for (index, flight) in &mut lead.flights {
                if late.len() >= window {
                    break;
                }
                let Some(cell) = space.log.get(Slot(*index)) else { continue };
                if now.since(flight.at) >= patience {
                    flight.at = now;
                    flight.sent = peers;
                    let missing = peers.without(flight.voters);
                    late.push((owner as Rank, lead.ballot, *index, cell.value.clone(), missing));
                }
            }
        }
        for (owner, ballot, first, value, missing) in late {
            for rank in missing.iter() {
                let values = vec![value.clone()];
                // Behind the record of it: it may not have been durable when it was sent first.
                self.out(rank.0).again.push(Part::Accept { owner, ballot, first, values });
            }
        }
        self.request_slots(now, patience);
    }

    /// Asks for the slots of own instances that have none after this long.
    pub(super) fn request_slots(&mut self, now: Instant, patience: Span) {
        let have = self.log.count(self.me);
        let last = self.next - 1;
        let lead = self.spaces[usize::from(self.me)].lead.as_mut().filter(|_| have < last);
        let (first, asked) = match (self.proposals.range_mut(have + 1..).next(), lead) {
            (Some((first, proposal)), _) => (*first, &mut proposal.asked),
            // What was taken back holds nothing that waits here, and stands before what will.
            (None, Some(lead)) => (last, &mut lead.asked),
            (None, None) => return,
        };
        if now.since(*asked) < patience {
            return;
        }
        *asked = now;
        self.request(self.me, first.min(last), last, now);
    }

    /// C-REQUEST without naming objects.
    pub(super) fn request(&mut self, owner: Rank, first: u64, index: u64, now: Instant) {
        if self.head() == self.me {
            return self.assign(owner, first, index, &Objects::All, true, now);
        }
        let head = self.head();
        // Behind the record that reserves these numbers.
        self.out(head).held.push(Part::Request { owner, first, index, objects: Objects::All });
    }
}
