//! Coordinating: deciding what a fast quorum chose, recovering what collided, placing what lost.

use super::message::{Message, Name, Note, Outcome, Timer, Values};
use super::order::{Order, Role, digest};
use super::rule::{self, Pick, Standing};
use super::waiting::Waiting;
use super::{Learners, Mutation};
use crate::message::PART;
use crate::order::Ordered;
use isochrone_core::{
    Ballot, ClientId, CommandId, Count, Effects, Instant, ProcessId, ReplicaId, ReplicaSet, Slot, Suspicion,
    Tally, wire,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One coordinator's time.
#[derive(Clone, Hash, Debug)]
pub(super) struct Reign<V: Ordered> {
    pub(super) ballot: Ballot,
    /// Below it there are no fast votes of this reign.
    pub(super) floor: Slot,
    /// No fast votes are cast in it at all.
    pub(super) closed: bool,
    /// Behind every index that anyone is known to have voted at, or was asked not to.
    pub(super) top: Slot,
    /// What is proposed in the classic ballot and not decided.
    flights: BTreeMap<Slot, Flight<V>>,
    /// The commands of these.
    placed: BTreeSet<CommandId>,
    /// Commands that others have told of and that wait for no vote here.
    pub(super) found: BTreeMap<Name, V>,
    waiting: Waiting<V>,
    /// The index that waiting commands are to have.
    sealed: Option<Slot>,
    /// Flights that leave in this turn.
    proposed: Vec<Slot>,
    commits: Vec<Commit<V>>,
    /// Clients to be told that their commands have their place, though it is not their turn.
    certain: BTreeMap<ClientId, Vec<u64>>,
    contact: Suspicion,
    suspects: ReplicaSet,
    /// The members that live and cannot vote at what is open: they lack what the reign began with, or what is decided up to
    /// there, which may be a whole state. Nobody waits for their votes.
    lagging: ReplicaSet,
}

/// A proposal between its sending and its decision.
#[derive(Clone, Hash, Debug)]
struct Flight<V> {
    values: Values<V>,
    acks: Tally,
    sent: Instant,
}

/// A decision that others are told of in this turn.
#[derive(Clone, Hash, Debug)]
struct Commit<V> {
    slot: Slot,
    values: Values<V>,
    /// Who has voted for just that, or was asked to before.
    voters: ReplicaSet,
}

/// Indices looked at in one heartbeat.
const LOOK_SLOTS: usize = 1_024;
/// Indices behind a lost one in which its command is looked for.
const NEAR_SLOTS: usize = 256;
/// Proposals sent again in one heartbeat.
const RESEND_SLOTS: usize = 64;

impl<V: Ordered> Reign<V> {
    pub(super) fn new(ballot: Ballot, floor: Slot, closed: bool, contact: Suspicion) -> Reign<V> {
        Reign {
            ballot,
            floor,
            closed,
            top: floor,
            flights: BTreeMap::new(),
            placed: BTreeSet::new(),
            found: BTreeMap::new(),
            waiting: Waiting::new(),
            sealed: None,
            proposed: Vec::new(),
            commits: Vec::new(),
            certain: BTreeMap::new(),
            contact,
            suspects: ReplicaSet::EMPTY,
            lagging: ReplicaSet::EMPTY,
        }
    }

    /// The members that were not heard of lately.
    pub(super) fn silent(&self, now: Instant) -> ReplicaSet {
        self.contact.suspects(now)
    }

    /// Puts a proposal into the air.
    pub(super) fn fly(&mut self, slot: Slot, values: Values<V>, majority: usize, now: Instant) {
        self.placed.extend(values.iter().filter_map(V::id));
        self.top = self.top.max(slot.next());
        self.flights.insert(slot, Flight { values, acks: Tally::new(majority), sent: now });
    }

    /// An index is decided: what it holds needs no other place.
    pub(super) fn land(&mut self, slot: Slot, values: &[V]) {
        if let Some(flight) = self.flights.remove(&slot) {
            for id in flight.values.iter().filter_map(V::id) {
                self.placed.remove(&id);
            }
        }
        for value in values {
            let Some(id) = value.id() else { continue };
            // Whatever copy of it was told of.
            let copies = Name { id, digest: 0 }..=Name { id, digest: u64::MAX };
            while let Some(name) = self.found.range(copies.clone()).next().map(|(name, _)| *name) {
                self.found.remove(&name);
            }
            self.waiting.decide(id);
        }
    }

    /// The state of a peer was taken in: these indices are no longer of concern.
    pub(super) fn drop_below(&mut self, position: Slot) {
        self.top = self.top.max(position);
        while let Some(slot) = self.flights.first_key_value().map(|(slot, _)| *slot)
            && slot < position
        {
            self.land(slot, &[]);
        }
    }

    /// Whether a command needs no other place: it has one, or is about to.
    pub(super) fn waits(&self, id: CommandId) -> bool {
        self.placed.contains(&id) || self.waiting.has(id)
    }
}

impl<V: Ordered> Order<V> {
    /// Begins the first reign, which is open everywhere.
    pub(super) fn begin(&mut self, effects: &mut Effects<Self>) {
        let ballot = self.promise.ballot();
        let reign = Reign::new(ballot, Slot::ZERO, self.closed, self.contact(effects.now()));
        self.role = Role::Coordinator(Box::new(reign));
        effects.mark(Note::Leads(ballot));
        self.beat(effects);
    }

    pub(super) fn contact(&self, now: Instant) -> Suspicion {
        let others = self.members.iter().map(|member| member.replica).filter(|seat| *seat != self.me);
        Suspicion::watching(others, self.parameters.suspect, now)
    }

    pub(super) fn contacted(&mut self, replica: ReplicaId, now: Instant) {
        if let Role::Coordinator(reign) = &mut self.role
            && replica != self.me
        {
            reign.contact.heard(replica, now);
            reign.suspects.remove(replica);
        }
    }

    /// Somebody has told of a command.
    pub(super) fn find(&mut self, name: Name, value: V) {
        let known = self.pending.get(&name.id).is_some_and(|pending| pending.digest == name.digest);
        if let Role::Coordinator(reign) = &mut self.role
            && !known
        {
            reign.found.insert(name, value);
        }
    }

    /// Looks whether an index can be decided, or has to be recovered.
    pub(super) fn evaluate(&mut self, slot: Slot, effects: &mut Effects<Self>) {
        let (n, fast, majority) = (self.members.len(), self.fast_quorum(), self.majority());
        let Role::Coordinator(reign) = &self.role else { return };
        if slot < reign.floor || reign.closed || reign.flights.contains_key(&slot) || self.is_decided(slot) {
            return;
        }
        let Some(cell) = self.cells.get(slot) else { return };
        // Less than a majority decides nothing, one way or the other.
        if cell.reign != reign.ballot || cell.heard.len() < majority {
            return;
        }
        let told = cell.heard.iter().map(|(_, name)| *name);
        let known: ReplicaSet = cell.heard.iter().map(|(seat, _)| *seat).collect();
        let told_or_out = |seat: ReplicaId| {
            known.contains(seat) || reign.suspects.contains(seat) || reign.lagging.contains(seat)
        };
        match rule::standing(n, fast, told) {
            Standing::Chosen(name) => match self.body(slot, name) {
                Some(value) => self.conclude(slot, Arc::from([value]), false, effects.now()),
                None => self.ask_body(slot, name, effects),
            },
            Standing::Hopeless => self.recover(slot, effects),
            Standing::Open if self.members.iter().all(|member| told_or_out(member.replica)) => {
                self.recover(slot, effects);
            }
            Standing::Open => {}
        }
    }

    /// Coordinated recovery, `specs/domino.md` 3.5: what was told of the fast ballot is phase 1 of the
    /// classic one. Where nothing obliges, the index takes all commands that collided there.
    fn recover(&mut self, slot: Slot, effects: &mut Effects<Self>) {
        let Some(cell) = self.cells.get(slot) else { return };
        let mut threshold = rule::threshold(self.members.len(), cell.heard.len());
        if self.parameters.mutated(Mutation::ThresholdOffByOne) {
            threshold += 1;
        }
        match rule::pick(threshold, cell.heard.iter().map(|(_, name)| *name)) {
            Pick::Forced(name) => match self.body(slot, name) {
                Some(value) => self.fly(slot, Arc::from([value]), effects),
                None => self.ask_body(slot, name, effects),
            },
            Pick::Free(names) => {
                let Role::Coordinator(reign) = &self.role else { return };
                let free = names.into_iter().filter(|name| !reign.placed.contains(&name.id));
                let free: Vec<Name> = free.collect();
                let winner = free.iter().find_map(|name| self.body(slot, *name));
                if winner.is_none()
                    && let Some(name) = free.first()
                    && self.ask_body_of_living(slot, *name, effects)
                {
                    // Never nothing if there is a command.
                    return;
                }
                // What collided here and stands nowhere else needs no index of its own.
                let mut values = Vec::from_iter(winner);
                for name in free {
                    if values.first().and_then(V::id) != Some(name.id)
                        && !self.stands_elsewhere(name.id, slot)
                        && let Some(value) = self.body(slot, name)
                    {
                        values.push(value);
                    }
                }
                let Role::Coordinator(reign) = &mut self.role else { return };
                // Only an index that nothing was chosen behind takes what waits: an answered command may
                // have been chosen at any other.
                let mut bytes: usize = values.iter().map(wire::encoded_size).sum();
                let first = values.len();
                while reign.sealed == Some(slot)
                    && values.len() < self.parameters.batch_commands
                    && bytes < PART
                    && let Some(waiting) = reign.waiting.pop()
                {
                    if waiting.id().is_none()
                        || values[..first].iter().all(|value| value.id() != waiting.id())
                    {
                        bytes += wire::encoded_size(&waiting);
                        values.push(waiting);
                    }
                }
                effects.mark(Note::Counted("indices_recovered"));
                self.fly(slot, Arc::from(values), effects);
            }
        }
    }

    fn fly(&mut self, slot: Slot, values: Values<V>, effects: &mut Effects<Self>) {
        let majority = self.majority();
        if let Role::Coordinator(reign) = &mut self.role {
            for id in values.iter().filter_map(V::id) {
                reign.waiting.remove(id);
            }
            reign.fly(slot, values, majority, effects.now());
            reign.proposed.push(slot);
        }
    }

    /// Asks one who voted for a command that is not known here what it says.
    fn ask_body(&mut self, slot: Slot, name: Name, effects: &mut Effects<Self>) {
        self.ask_body_of_living(slot, name, effects);
    }

    /// As [`Order::ask_body`]; false where everybody who voted for it is suspected.
    fn ask_body_of_living(&mut self, slot: Slot, name: Name, effects: &mut Effects<Self>) -> bool {
        let Role::Coordinator(reign) = &self.role else { return false };
        let Some(cell) = self.cells.get(slot) else { return false };
        let told = |seat: &&(ReplicaId, Option<Name>)| seat.1 == Some(name);
        let voter = cell.heard.iter().filter(told).map(|(seat, _)| *seat);
        let mut living = voter.filter(|seat| !reign.suspects.contains(*seat) && *seat != self.me);
        let Some(voter) = living.next().and_then(|seat| self.process_of(seat)) else { return false };
        let ask = Message::Ask { reign: reign.ballot, from: slot, upto: slot.next() };
        effects.urgently(|effects| effects.send_ahead(voter, ask));
        true
    }

    /// An index is decided by this coordinator.
    fn conclude(&mut self, slot: Slot, values: Values<V>, classic: bool, now: Instant) {
        let sent = match &self.role {
            Role::Coordinator(reign) => reign.flights.get(&slot).map(|flight| flight.sent),
            _ => None,
        };
        let Some(cell) = self.cells.get_mut(slot) else { return };
        let heard = std::mem::take(&mut cell.heard);
        cell.recovered = sent.filter(|_| classic).map(|sent| [cell.since.min(sent), sent, now]);
        let name = match &values[..] {
            [value] => value.id().map(|id| Name { id, digest: digest(value) }),
            _ => None,
        };
        if !self.decide(slot, values.clone(), true, now) {
            return;
        }
        let early = slot >= self.decided && self.parameters.cast && classic;
        let tell = classic || self.parameters.learners == Learners::Sole;
        if let Role::Coordinator(reign) = &mut self.role {
            if early && !reign.closed {
                for id in values.iter().filter_map(V::id) {
                    reign.certain.entry(id.client).or_default().push(id.sequence);
                }
            }
            if tell {
                let agrees = |told: &&(ReplicaId, Option<Name>)| name.is_some() && told.1 == name;
                let voters = match classic {
                    // It was proposed to everyone.
                    true => self.members.iter().map(|member| member.replica).collect(),
                    false => heard.iter().filter(agrees).map(|(seat, _)| *seat).collect(),
                };
                reign.commits.push(Commit { slot, values, voters });
            }
        }
        for (_, told) in heard {
            if let Some(told) = told.filter(|told| Some(*told) != name) {
                self.lost(told, slot);
            }
        }
    }

    /// A command did not get this index: unless it stands elsewhere or was decided, it is given another.
    pub(super) fn lost(&mut self, name: Name, slot: Slot) {
        let Role::Coordinator(reign) = &self.role else { return };
        if reign.waits(name.id) {
            return;
        }
        let pending = self.pending.get(&name.id).map(|pending| &pending.value);
        let Some(value) = pending.or_else(|| reign.found.get(&name)).cloned() else { return };
        if !self.stands_elsewhere(name.id, slot)
            && let Role::Coordinator(reign) = &mut self.role
        {
            reign.waiting.push(value);
        }
    }

    /// Whether somebody has voted for a command at an open index other than this.
    fn stands_elsewhere(&self, id: CommandId, slot: Slot) -> bool {
        let Role::Coordinator(reign) = &self.role else { return false };
        let near = self.decided.until(reign.top).take(NEAR_SLOTS).filter(|other| *other != slot);
        near.filter_map(|other| self.cells.get(other)).any(|cell| {
            cell.outcome.is_none()
                && cell.heard.iter().any(|(_, told)| told.is_some_and(|told| told.id == id))
        })
    }

    /// Commands that have waited for a place at some replica for long, and those without a name.
    pub(super) fn on_submit(&mut self, values: Vec<V>, effects: &mut Effects<Self>) {
        for value in values {
            let Role::Coordinator(reign) = &self.role else { return };
            if value.ends() {
                // No fast vote may get a place behind the end: a reign without fast votes ends the order.
                if !reign.closed {
                    self.campaign(Some(value), effects);
                }
                return;
            }
            let Some(id) = value.id() else {
                if let Role::Coordinator(reign) = &mut self.role {
                    reign.waiting.push(value);
                }
                continue;
            };
            if !reign.waits(id) {
                self.lost_anywhere(id, value);
            }
        }
    }

    fn lost_anywhere(&mut self, id: CommandId, value: V) {
        let name = Name { id, digest: digest(&value) };
        self.find(name, value);
        // No index is left out: it may stand in any.
        self.lost(name, Slot(u64::MAX));
    }

    pub(super) fn on_accepted(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        slots: &[Slot],
        effects: &mut Effects<Self>,
    ) {
        let Some(voter) = self.seat(from) else { return };
        let now = effects.now();
        self.contacted(voter, now);
        for slot in slots {
            let Role::Coordinator(reign) = &mut self.role else { return };
            if reign.ballot != ballot {
                return;
            }
            let Some(flight) = reign.flights.get_mut(slot) else { continue };
            if flight.acks.add(voter) == Count::Reached {
                let values = flight.values.clone();
                self.conclude(*slot, values, true, now);
            }
        }
    }

    pub(super) fn on_heard(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        opened: bool,
        next: Slot,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        let Some(voter) = self.seat(from) else { return };
        self.contacted(voter, effects.now());
        self.watch.answered(ballot, effects.now());
        let beyond = self.is_beyond(next);
        // Votes are cast within a window behind what the voter knows to be decided.
        let lags = !opened || self.decided.since(decided) > self.parameters.window;
        let Role::Coordinator(reign) = &mut self.role else { return };
        if reign.ballot != ballot {
            return;
        }
        if lags {
            reign.lagging.insert(voter);
        } else {
            reign.lagging.remove(voter);
        }
        if opened && !beyond {
            reign.top = reign.top.max(next);
        }
        if !opened {
            // It may be on its way.
            effects.repeating(|effects| self.send_open(from, effects));
        }
        self.hear_decided(decided, from, effects);
    }

    /// Tells somebody what this reign began with, as far as it is not decided.
    pub(super) fn send_open(&self, to: ProcessId, effects: &mut Effects<Self>) {
        let Role::Coordinator(reign) = &self.role else { return };
        let (ballot, floor, closed, decided) = (reign.ballot, reign.floor, reign.closed, self.decided);
        let open = reign.flights.range(..floor).map(|(slot, flight)| (*slot, flight.values.clone()));
        let entries = open.collect();
        effects.send_ahead(to, Message::Open { reign: ballot, floor, closed, entries, decided });
    }

    /// What was gathered in this turn leaves. Proposals go ahead of the own vote's record.
    pub(super) fn drive(&mut self, effects: &mut Effects<Self>) {
        self.seal(effects);
        let decided = self.decided;
        let Role::Coordinator(reign) = &mut self.role else { return };
        let ballot = reign.ballot;
        let certain = std::mem::take(&mut reign.certain);
        let commits = std::mem::take(&mut reign.commits);
        let proposed = std::mem::take(&mut reign.proposed);
        let flying = |slot| Some((slot, reign.flights.get(&slot)?.values.clone()));
        let entries: Arc<[(Slot, Values<V>)]> = proposed.into_iter().filter_map(flying).collect();
        if !commits.is_empty() {
            for member in self.members.iter().filter(|member| member.replica != self.me) {
                let outcome = |commit: &Commit<V>| match commit.voters.contains(member.replica) {
                    true => (commit.slot, Outcome::Yours(digest(&commit.values[..]))),
                    false => (commit.slot, Outcome::Values(commit.values.clone())),
                };
                let entries = commits.iter().map(outcome).collect();
                // Ahead: decided is decided.
                effects.send_ahead(member.process, Message::Commit { entries, decided });
            }
        }
        for (client, sequences) in certain {
            let incarnation = client.incarnation;
            let placed = Message::Placed { incarnation, sequences };
            effects.urgently(|effects| effects.send_ahead(client.process, placed));
        }
        if !entries.is_empty() {
            for peer in self.peers() {
                let entries = entries.clone();
                effects.send_ahead(peer, Message::Accept { reign: ballot, entries, decided });
            }
            self.accept(self.process, ballot, &entries, effects);
        }
    }

    /// Waiting commands need an index where no fast votes can get in the way: replicas are asked to cast none
    /// at the next one. What they then tell is as good as votes.
    fn seal(&mut self, effects: &mut Effects<Self>) {
        let (now, next) = (effects.now(), self.next);
        let Role::Coordinator(reign) = &self.role else { return };
        let pending = |slot: Slot| !self.is_decided(slot) && !reign.flights.contains_key(&slot);
        if reign.waiting.is_empty() || reign.closed || reign.sealed.is_some_and(pending) {
            return;
        }
        let slot = reign.top.max(next);
        let (ballot, upto) = (reign.ballot, slot.next());
        if self.is_beyond(slot) {
            return;
        }
        self.cell(slot, now);
        if let Role::Coordinator(reign) = &mut self.role {
            (reign.sealed, reign.top) = (Some(slot), upto);
        }
        for peer in self.peers() {
            let ask = Message::Ask { reign: ballot, from: slot, upto };
            effects.urgently(|effects| effects.send_ahead(peer, ask));
        }
        effects.mark(Note::Counted("indices_sealed"));
        self.skip_to(upto, false, effects);
    }

    /// The timer of heartbeats.
    pub(super) fn beat(&mut self, effects: &mut Effects<Self>) {
        let (now, decided, majority) = (effects.now(), self.decided, self.majority());
        if self.watch.forget(now) {
            self.draw_patience(effects);
        }
        let Role::Coordinator(reign) = &mut self.role else { return };
        reign.contact.look(self.parameters.heartbeat, now);
        reign.suspects = reign.contact.suspects(now);
        let ballot = reign.ballot;
        if reign.waiting.is_empty() && reign.top <= decided {
            // What others told of has its place, or was told of again under another digest.
            reign.found.clear();
        }
        // As long as the others bear; votes are waited for no longer than ever.
        let silent = reign.contact.silent_for(self.watch.silence(), now);
        if self.members.len() - silent.len() < majority {
            // Deaf or cut off: others will coordinate.
            effects.mark(Note::Counted("coordinators_cut_off"));
            self.step_down(effects);
            return self.watch.cut_off(ballot);
        }
        for peer in self.peers() {
            effects
                .urgently(|effects| effects.send_ahead(peer, Message::Heartbeat { reign: ballot, decided }));
        }
        effects.repeating(|effects| self.resend(effects));
        self.look(effects);
        effects.arm(Timer::Heartbeat, self.parameters.heartbeat);
    }

    /// Asks again for classic votes that should have come.
    fn resend(&mut self, effects: &mut Effects<Self>) {
        let (now, decided, patience) = (effects.now(), self.decided, self.parameters.resend);
        let Role::Coordinator(reign) = &mut self.role else { return };
        let mut lacking = BTreeMap::<ReplicaId, Vec<(Slot, Values<V>)>>::new();
        let late = reign.flights.iter_mut().filter(|(_, flight)| now.since(flight.sent) >= patience);
        for (slot, flight) in late.take(RESEND_SLOTS) {
            flight.sent = now;
            for member in self.members.iter().filter(|m| m.replica != self.me) {
                if !flight.acks.voters().contains(member.replica) {
                    lacking.entry(member.replica).or_default().push((*slot, flight.values.clone()));
                }
            }
        }
        let ballot = reign.ballot;
        for (seat, entries) in lacking {
            if let Some(peer) = self.process_of(seat) {
                let entries = Arc::from(entries);
                effects.send_ahead(peer, Message::Accept { reign: ballot, entries, decided });
            }
        }
    }

    /// Looks at what is open: who is suspected may have changed, and votes may be late.
    fn look(&mut self, effects: &mut Effects<Self>) {
        let (now, late) = (effects.now(), self.parameters.late);
        let Role::Coordinator(reign) = &self.role else { return };
        if reign.closed {
            return;
        }
        let (ballot, first, top) = (reign.ballot, self.decided.max(reign.floor), reign.top);
        let mut asked = BTreeMap::<ReplicaId, (Slot, Slot)>::new();
        for slot in first.until(top).take(LOOK_SLOTS) {
            if self.is_decided(slot) {
                continue;
            }
            let Some(cell) = self.cell(slot, now) else { continue };
            let is_late = now.since(cell.since) >= late;
            if is_late {
                cell.since = now;
            }
            if cell.reign < ballot {
                // Nobody has told anything of it in this reign.
                (cell.reign, cell.heard) = (ballot, Vec::new());
            }
            self.evaluate(slot, effects);
            let Role::Coordinator(reign) = &self.role else { return };
            if !is_late || self.is_decided(slot) || reign.flights.contains_key(&slot) {
                continue;
            }
            let Some(cell) = self.cells.get(slot) else { continue };
            for member in self.members.iter() {
                let told = cell.heard.iter().any(|(seat, _)| *seat == member.replica);
                if !told && !reign.suspects.contains(member.replica) {
                    let range = asked.entry(member.replica).or_insert((slot, slot));
                    range.1 = slot.next();
                }
            }
        }
        for (seat, (from, upto)) in asked {
            if let Some(process) = self.process_of(seat) {
                let ask = Message::Ask { reign: ballot, from, upto };
                effects.urgently(|effects| effects.send_ahead(process, ask));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastpaxos::order::opened::opened;
    use isochrone_core::{Effect, Process, Stamp};

    #[test]
    fn a_coordinator_that_stood_still_asks_before_it_takes_itself_for_cut_off() {
        let (mut order, mut outbox) = opened(0);
        let parameters = order.parameters;
        let mut now = Instant::from_nanos(1);
        order.start(outbox.input(now, Stamp::ZERO));
        drop(outbox.drain());
        now = now + parameters.suspect * 5;
        let asked = now;
        // Nobody answers.
        let mut beats = 0;
        while matches!(order.role, Role::Coordinator(_)) && beats < 200 {
            order.expire(Timer::Heartbeat, outbox.input(now, Stamp::ZERO));
            beats += outbox
                .drain()
                .filter(|effect| matches!(effect, Effect::Send { message: Message::Heartbeat { .. }, .. }))
                .count();
            now = now + parameters.heartbeat;
        }
        let waited = now.since(asked);
        assert!(beats > 0, "it has asked nobody");
        assert!(
            waited >= parameters.suspect && waited <= parameters.suspect + parameters.heartbeat,
            "{waited}"
        );
    }
}
