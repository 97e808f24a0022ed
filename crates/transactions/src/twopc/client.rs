//! The client role: it reads under locks at the leaders of the participants, keeps what is written, and asks a
//! coordinator to commit.

use super::message::{Ending, Entry, Message, Part};
use super::parameters::{Coordinator, Parameters};
use super::server::{BACKOFF_MAX, SWEEPS};
use crate::family::{self, Tuning as _};
use crate::group::{self, Note};
use crate::leaders::{Leaders, PROBE};
use crate::listing::Listings;
use crate::map::{Distances, Map};
use crate::request::{MoveRefusal, Outcome, Read, Reason, Refusal, Request, TxnId, Update};
use crate::said::say;
use isochrone_core::{
    Blob, ClientId, CommandId, Effects, Fact, Identity, Instant, Malformed, PartitionId, Path, Phase,
    Process, ProcessId, Snapshot, Span, Stamp, Ticket,
};
use std::collections::{BTreeMap, BTreeSet};

/// A client of layered two-phase commit.
#[derive(Clone, Hash, Debug)]
pub struct Client {
    me: ClientId,
    map: Map,
    distances: Distances,
    parameters: Parameters,
    leaders: Leaders,
    /// The number of the next transaction.
    next: u64,
    open: BTreeMap<u64, Open>,
    tickets: BTreeMap<Ticket, u64>,
    sweeping: bool,
    beating: bool,
    listings: Listings,
}

/// A transaction that has not ended.
#[derive(Clone, Hash, Debug)]
struct Open {
    start: Stamp,
    begun: Instant,
    /// Who waits; none while it is the host's turn, or once it has lost interest.
    ticket: Option<Ticket>,
    /// As they were asked for.
    reads: Vec<Blob>,
    writes: BTreeSet<Blob>,
    /// What is read where.
    keys: BTreeMap<PartitionId, Vec<Blob>>,
    /// What has been read.
    values: BTreeMap<PartitionId, Vec<Read>>,
    coordinator: PartitionId,
    stage: Stage,
    due: Instant,
    attempts: u32,
    redirects: u32,
}

#[derive(Clone, Hash, Debug)]
enum Stage {
    /// Not all has been read.
    Reading,
    /// It is the host's turn.
    Ready,
    /// As that, but it has lost a lock.
    Wounded,
    /// The coordinator was asked; to abort it, once it is withdrawn.
    Committing { parts: Vec<Part>, since: Instant, withdrawn: bool },
}

/// What a client waits for.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// What is due is asked again; what is too old is given up.
    Sweep,
    /// Participants are told what is open.
    Beat,
}

/// Times that a question is asked elsewhere at once because its receiver does not lead.
const REDIRECTS_MAX: u32 = 3;

impl Client {
    fn name(&self, sequence: u64) -> TxnId {
        TxnId { client: self.me, sequence }
    }

    /// The first transaction that has not ended.
    fn below(&self) -> u64 {
        self.open.first_key_value().map_or(self.next, |(sequence, _)| *sequence)
    }

    fn begin(&mut self, ticket: Ticket, reads: Vec<Blob>, writes: Vec<Blob>, effects: &mut Effects<Self>) {
        let refusal = match self.parameters.bounds().check_sets(&reads, &writes) {
            Ok(()) if self.open.len() < self.parameters.open_max => None,
            Ok(()) => Some(Refusal::Overloaded(self.open.len())),
            Err(refusal) => Some(refusal),
        };
        if let Some(refusal) = refusal {
            return effects.complete_ahead(ticket, Outcome::Refused(refusal));
        }
        let sequence = self.next;
        self.next += 1;
        let mut keys: BTreeMap<PartitionId, Vec<Blob>> = BTreeMap::new();
        for key in &reads {
            keys.entry(self.map.partition(key)).or_default().push(key.clone());
        }
        let participants: BTreeSet<PartitionId> =
            reads.iter().chain(&writes).map(|key| self.map.partition(key)).collect();
        let now = effects.now();
        let open = Open {
            start: effects.stamp(),
            begun: now,
            ticket: Some(ticket),
            reads,
            writes: writes.into_iter().collect(),
            keys,
            values: BTreeMap::new(),
            coordinator: self.coordinator(&participants),
            stage: Stage::Reading,
            due: now + self.parameters.retry,
            attempts: 0,
            redirects: 0,
        };
        let partitions: Vec<PartitionId> = open.keys.keys().copied().collect();
        self.open.insert(sequence, open);
        self.tickets.insert(ticket, sequence);
        partitions.into_iter().for_each(|partition| self.ask_to_read(sequence, partition, effects));
        self.go_on(sequence, effects);
        self.keep_time(effects);
    }

    /// The group that coordinates a transaction: a participant that is led in this region, or else any that is, or
    /// else the one that is led nearest; of several the first (`specs/carousel.md` 2.2). Groups that perhaps nobody leads are
    /// passed over; where that is so of all, it is the first participant, as where coordinators are remote.
    fn coordinator(&self, participants: &BTreeSet<PartitionId>) -> PartitionId {
        if self.parameters.coordinator == Coordinator::Remote {
            return participants.first().copied().unwrap_or_default();
        }
        // There are at most 1,024 partitions, and one at least.
        let all = || (0..self.leaders.len() as u16).map(PartitionId);
        let leader = |partition| self.leaders.of(partition);
        let led = |partition: &PartitionId| !self.leaders.doubted(*partition);
        let local = |partition: &PartitionId| led(partition) && self.distances.local(leader(*partition).node);
        let near = participants.iter().copied().find(local).or_else(|| all().find(local));
        let nearest = || all().filter(led).min_by_key(|partition| self.distances.to(leader(*partition)));
        near.or_else(nearest).or_else(|| participants.first().copied()).unwrap_or_default()
    }

    fn ask_to_read(&mut self, sequence: u64, partition: PartitionId, effects: &mut Effects<Self>) {
        let Some(open) = self.open.get(&sequence) else { return };
        let Some(keys) = open.keys.get(&partition) else { return };
        let (txn, start, keys) = (self.name(sequence), open.start, keys.clone());
        for to in self.leaders.ask(partition, open.attempts > 0) {
            let keys = keys.clone();
            say(to, group::Message::Own(Message::Read { txn, start, keys }), effects);
        }
    }

    fn ask_to_commit(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let Some(open) = self.open.get(&sequence) else { return };
        let Stage::Committing { parts, withdrawn, .. } = &open.stage else { return };
        let (txn, start, below, parts) = (self.name(sequence), open.start, self.below(), parts.clone());
        let coordinator = open.coordinator;
        if *withdrawn {
            let participants: Vec<PartitionId> = parts.iter().map(|part| part.partition).collect();
            for to in self.leaders.ask(coordinator, open.attempts > 0) {
                let participants = participants.clone();
                say(to, group::Message::Own(Message::Withdraw { txn, below, participants }), effects);
            }
            return;
        }
        // Once; a coordinator that lacks votes asks for them itself.
        let asked = self.parameters.coordinator == Coordinator::Remote && open.attempts == 0;
        for part in parts.iter().filter(|_| asked) {
            let (to, part) = (self.leaders.of(part.partition), part.clone());
            say(to, group::Message::Own(Message::Prepare { txn, start, below, coordinator, part }), effects);
        }
        for to in self.leaders.ask(coordinator, open.attempts > 0) {
            let parts = parts.clone();
            say(to, group::Message::Own(Message::Commit { txn, start, below, parts, asked }), effects);
        }
    }

    /// If all has been read, it is the host's turn; what only reads commits by itself.
    fn go_on(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let txn = self.name(sequence);
        let Some(open) = self.open.get_mut(&sequence) else { return };
        if !matches!(open.stage, Stage::Reading) || open.values.len() < open.keys.len() {
            return;
        }
        open.stage = Stage::Ready;
        if open.writes.is_empty() {
            return self.commit(sequence, Vec::new(), effects);
        }
        let reads = open.in_order();
        if let Some(ticket) = open.ticket.take() {
            self.tickets.remove(&ticket);
            effects.complete(ticket, Outcome::Begun { txn, reads });
        }
    }

    /// Asks for a commit.
    fn commit(&mut self, sequence: u64, updates: Vec<Update>, effects: &mut Effects<Self>) {
        let now = effects.now();
        let Some(open) = self.open.get_mut(&sequence) else { return };
        let mut parts: BTreeMap<PartitionId, Part> = BTreeMap::new();
        let part = |partition| Part { partition, reads: Vec::new(), writes: Vec::new() };
        for (partition, values) in &open.values {
            let reads = values.iter().map(|read| (read.key.clone(), read.version)).collect();
            parts.entry(*partition).or_insert_with(|| part(*partition)).reads = reads;
        }
        for update in updates {
            let partition = self.map.partition(&update.key);
            parts.entry(partition).or_insert_with(|| part(partition)).writes.push(update);
        }
        let parts = parts.into_values().collect();
        open.stage = Stage::Committing { parts, since: now, withdrawn: false };
        (open.due, open.attempts, open.redirects) = (now + self.parameters.retry, 0, 0);
        self.ask_to_commit(sequence, effects);
        self.keep_time(effects);
    }

    fn on_commit_request(
        &mut self,
        ticket: Ticket,
        txn: TxnId,
        updates: Vec<Update>,
        effects: &mut Effects<Self>,
    ) {
        let open = self.open.get(&txn.sequence).filter(|_| txn.client == self.me);
        let refusal = match open {
            Some(open) if matches!(open.stage, Stage::Ready | Stage::Wounded) => {
                self.parameters.bounds().check_updates(&updates, &open.writes).err()
            }
            _ => Some(Refusal::NotOpen(txn)),
        };
        if let Some(refusal) = refusal {
            return effects.complete_ahead(ticket, Outcome::Refused(refusal));
        }
        let Some(open) = self.open.get_mut(&txn.sequence) else { return };
        open.ticket = Some(ticket);
        self.tickets.insert(ticket, txn.sequence);
        if matches!(open.stage, Stage::Wounded) {
            return self.give_up(txn.sequence, Outcome::Aborted(Reason::Conflict), effects);
        }
        self.commit(txn.sequence, updates, effects);
    }

    fn on_abort_request(&mut self, ticket: Ticket, txn: TxnId, effects: &mut Effects<Self>) {
        let open = self.open.get_mut(&txn.sequence).filter(|_| txn.client == self.me);
        let refused = Outcome::Refused(Refusal::NotOpen(txn));
        let Some(open) = open else { return effects.complete_ahead(ticket, refused) };
        match open.stage {
            Stage::Ready | Stage::Wounded => {}
            Stage::Reading => return effects.complete_ahead(ticket, refused),
            // The coordinator says how it ends.
            Stage::Committing { .. } => {
                self.withdraw(txn.sequence, effects);
                return effects.complete_ahead(ticket, refused);
            }
        }
        open.ticket = Some(ticket);
        self.tickets.insert(ticket, txn.sequence);
        self.give_up(txn.sequence, Outcome::Aborted(Reason::Client), effects);
    }

    /// Asks the coordinator to abort what is to commit, if it is undecided.
    fn withdraw(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let due = effects.now() + self.parameters.retry;
        let Some(open) = self.open.get_mut(&sequence) else { return };
        let Stage::Committing { withdrawn, .. } = &mut open.stage else { return };
        if std::mem::replace(withdrawn, true) {
            return;
        }
        (open.due, open.attempts, open.redirects) = (due, 0, 0);
        self.ask_to_commit(sequence, effects);
    }

    /// Ends a transaction whose commit nobody was asked for: it has no effect, and its locks go.
    fn give_up(&mut self, sequence: u64, outcome: Outcome, effects: &mut Effects<Self>) {
        self.release(sequence, effects);
        self.end(sequence, outcome, effects);
    }

    fn release(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let txn = self.name(sequence);
        let Some(open) = self.open.get(&sequence) else { return };
        for partition in open.keys.keys() {
            say(self.leaders.of(*partition), group::Message::Own(Message::Release { txn }), effects);
        }
    }

    fn end(&mut self, sequence: u64, outcome: Outcome, effects: &mut Effects<Self>) {
        let Some(open) = self.open.remove(&sequence) else { return };
        if let Outcome::Aborted(reason) = &outcome {
            effects.mark(Note::Fact(Fact::Counted(reason.name())));
        }
        if matches!(outcome, Outcome::Committed { .. } | Outcome::Snapshot { .. }) {
            let (id, total) = (self.name(sequence), effects.now().since(open.begun));
            let phases = [Span::ZERO; Phase::ALL.len()];
            effects.mark(Note::Fact(Fact::Committed { id, path: Path::Leader, total, phases }));
        }
        if let Some(ticket) = open.ticket {
            self.tickets.remove(&ticket);
            effects.complete(ticket, outcome);
        }
    }

    fn on_values(
        &mut self,
        from: ProcessId,
        txn: TxnId,
        partition: PartitionId,
        reads: Vec<Read>,
        effects: &mut Effects<Self>,
    ) {
        self.leaders.note(partition, from, effects.now());
        let Some(open) = self.open.get_mut(&txn.sequence) else { return };
        let asked = open.keys.get(&partition);
        let whole = asked.is_some_and(|keys| keys.iter().eq(reads.iter().map(|read| &read.key)));
        if matches!(open.stage, Stage::Reading) && whole {
            // Of several answers the first: all keys of a partition are of one moment.
            open.values.entry(partition).or_insert(reads);
            self.go_on(txn.sequence, effects);
        }
    }

    fn on_wounded(&mut self, txn: TxnId, effects: &mut Effects<Self>) {
        let Some(open) = self.open.get_mut(&txn.sequence) else { return };
        match open.stage {
            Stage::Reading => self.give_up(txn.sequence, Outcome::Aborted(Reason::Conflict), effects),
            Stage::Ready => {
                // It will not commit: the locks it has left are of no use.
                open.stage = Stage::Wounded;
                self.release(txn.sequence, effects);
            }
            // The coordinator says how it ends.
            Stage::Wounded | Stage::Committing { .. } => {}
        }
    }

    fn on_ended(&mut self, from: ProcessId, txn: TxnId, ending: Ending, effects: &mut Effects<Self>) {
        let Some(open) = self.open.get(&txn.sequence) else { return };
        if !matches!(open.stage, Stage::Committing { .. }) {
            return;
        }
        self.leaders.note(open.coordinator, from, effects.now());
        let outcome = match ending {
            Ok(at) if open.writes.is_empty() => Outcome::Snapshot { reads: open.in_order(), at },
            Ok(at) => Outcome::Committed { at },
            Err(reason) => Outcome::Aborted(reason),
        };
        self.end(txn.sequence, outcome, effects);
    }

    fn on_not_leader(
        &mut self,
        from: ProcessId,
        txn: TxnId,
        partition: PartitionId,
        leader: Option<ProcessId>,
        effects: &mut Effects<Self>,
    ) {
        if leader.is_none() && from == self.leaders.of(partition) {
            // It is cut off, or an election is under way.
            self.leaders.suspect(partition, effects.now(), Span::ZERO);
        }
        let news = leader.filter(|leader| *leader != self.leaders.of(partition));
        if !news.is_some_and(|leader| self.leaders.told(partition, leader, effects.now())) {
            return;
        }
        let Some(open) = self.open.get_mut(&txn.sequence) else { return };
        open.redirects += 1;
        if open.redirects > REDIRECTS_MAX {
            return;
        }
        match &open.stage {
            Stage::Reading if !open.values.contains_key(&partition) => {
                open.attempts = 0;
                self.ask_to_read(txn.sequence, partition, effects);
            }
            Stage::Committing { .. } if open.coordinator == partition => {
                open.attempts = 0;
                self.ask_to_commit(txn.sequence, effects);
            }
            _ => {}
        }
    }

    fn keep_time(&mut self, effects: &mut Effects<Self>) {
        if self.open.is_empty() {
            return;
        }
        if !self.sweeping {
            self.sweeping = true;
            effects.arm(Timer::Sweep, self.parameters.retry / SWEEPS);
        }
        if !self.beating {
            self.beating = true;
            effects.arm(Timer::Beat, self.parameters.heartbeat);
        }
    }

    fn sweep(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let (limit, retry) = (self.parameters.time_limit, self.parameters.retry);
        let times = |attempts| 1_u64.checked_shl(attempts).unwrap_or(BACKOFF_MAX).min(BACKOFF_MAX);
        let pause = |attempts| retry * times(attempts);
        let (mut late, mut due) = (Vec::new(), Vec::new());
        for (sequence, open) in &mut self.open {
            let since = match &open.stage {
                Stage::Committing { since, .. } => *since,
                _ => open.begun,
            };
            if now.since(since) > limit {
                late.push(*sequence);
            } else if open.due <= now && !matches!(open.stage, Stage::Ready | Stage::Wounded) {
                // Looked at once a sweep.
                let waited = pause(open.attempts) + retry / SWEEPS;
                open.attempts += 1;
                open.redirects = 0;
                open.due = now + pause(open.attempts);
                due.push((*sequence, waited));
            }
        }
        for sequence in late {
            let committing = |open: &Open| matches!(open.stage, Stage::Committing { .. });
            if self.open.get(&sequence).is_some_and(committing) {
                self.end(sequence, Outcome::Unknown, effects);
            } else {
                self.give_up(sequence, Outcome::Unknown, effects);
            }
        }
        for (sequence, waited) in due {
            let Some(open) = self.open.get(&sequence) else { continue };
            let reads = matches!(open.stage, Stage::Reading);
            let silent: Vec<PartitionId> = match reads {
                true => open.keys.keys().filter(|at| !open.values.contains_key(at)).copied().collect(),
                false => vec![open.coordinator],
            };
            for partition in silent {
                // One that waits for locks says nothing and leads: others are asked beside it, and not instead.
                self.leaders.suspect(partition, now, waited);
                if reads {
                    self.ask_to_read(sequence, partition, effects);
                }
            }
            self.ask_to_commit(sequence, effects);
        }
    }

    /// Tells participants which transactions are open, so that these keep their locks.
    fn beat(&mut self, effects: &mut Effects<Self>) {
        let mut alive: BTreeMap<PartitionId, Vec<TxnId>> = BTreeMap::new();
        for (sequence, open) in &self.open {
            if matches!(open.stage, Stage::Reading | Stage::Ready) {
                let txn = self.name(*sequence);
                open.keys.keys().for_each(|partition| alive.entry(*partition).or_default().push(txn));
            }
        }
        for (partition, txns) in alive {
            let to = self.leaders.of(partition);
            say(to, group::Message::Own(Message::Alive { txns }), effects);
        }
        // Else the choice does not depend on who is in doubt.
        if self.parameters.coordinator == Coordinator::Local {
            self.leaders.probe(self.me, effects);
        }
    }
}

impl Open {
    /// What was read, in the order it was asked for.
    fn in_order(&self) -> Vec<Read> {
        Read::in_order(&self.reads, self.values.values().flatten())
    }
}

impl Process for Client {
    type Setup = family::Client<Parameters>;
    type Message = group::Message<Entry, Message>;
    type Record = ();
    type Request = Request;
    type Outcome = Outcome;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Self::Setup) -> Client {
        Client {
            me: ClientId::from(identity),
            map: setup.map.clone(),
            distances: setup.distances.clone(),
            parameters: setup.parameters,
            leaders: Leaders::new(&setup.map),
            next: 1,
            open: BTreeMap::new(),
            tickets: BTreeMap::new(),
            sweeping: false,
            beating: false,
            listings: Listings::default(),
        }
    }

    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Ok(())
    }

    fn replay(&mut self, (): ()) {}

    fn start(&mut self, _: &mut Effects<Self>) {}

    fn receive(&mut self, from: ProcessId, message: Self::Message, effects: &mut Effects<Self>) {
        let message = match message {
            group::Message::Own(message) => message,
            group::Message::Listed { ask, page } if ask.client == self.me => {
                if ask.sequence == PROBE {
                    self.leaders.note(from.partition, from, effects.now());
                }
                return self.listings.heard(from, ask, page, effects);
            }
            group::Message::Members { version, members, leads } => {
                return self.leaders.heard(from, version, &members, leads, effects);
            }
            _ => return,
        };
        if !message.names_partitions_below(self.leaders.len()) {
            return;
        }
        match message {
            Message::Values { txn, .. } | Message::Wounded { txn } | Message::Ended { txn, .. }
                if txn.client != self.me => {}
            Message::Values { txn, partition, reads } => self.on_values(from, txn, partition, reads, effects),
            Message::Wounded { txn } => self.on_wounded(txn, effects),
            Message::Ended { txn, ending } => self.on_ended(from, txn, ending, effects),
            Message::NotLeader { txn, partition, leader } if txn.client == self.me => {
                self.on_not_leader(from, txn, partition, leader, effects);
            }
            // For servers.
            _ => {}
        }
    }

    fn request(&mut self, ticket: Ticket, request: Request, effects: &mut Effects<Self>) {
        match request {
            Request::Begin { reads, writes } => self.begin(ticket, reads, writes, effects),
            Request::Commit { txn, updates } => self.on_commit_request(ticket, txn, updates, effects),
            Request::Abort { txn } => self.on_abort_request(ticket, txn, effects),
            Request::List { partition, query } => {
                let ask = CommandId { client: self.me, sequence: ticket.0 };
                group::list(&mut self.listings, &self.map, ask, partition, &query, effects);
            }
            Request::Move { .. } | Request::Survey => {
                effects.complete_ahead(ticket, MoveRefusal::Undivided.into());
            }
        }
    }

    fn cancel(&mut self, ticket: Ticket, effects: &mut Effects<Self>) {
        self.listings.cancel(ticket);
        let Some(sequence) = self.tickets.remove(&ticket) else { return };
        let Some(open) = self.open.get_mut(&sequence) else { return };
        open.ticket = None;
        match open.stage {
            Stage::Reading => self.give_up(sequence, Outcome::Aborted(Reason::Client), effects),
            // Else it might take effect long after its host has gone on.
            Stage::Committing { .. } => self.withdraw(sequence, effects),
            Stage::Ready | Stage::Wounded => {}
        }
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Sweep => {
                self.sweeping = false;
                effects.repeating(|effects| self.sweep(effects));
            }
            Timer::Beat => {
                self.beating = false;
                self.beat(effects);
            }
        }
        self.keep_time(effects);
    }

    fn snapshot(&self) -> Option<Snapshot> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{Group, Split};
    use isochrone_core::{Effect, KeyspaceId, NodeId, Outbox, Random, ReplicaId, Role};
    use isochrone_replication::order::Member;

    /// Of a keyspace with one partition.
    fn client(coordinator: Coordinator) -> (Client, Outbox<Client>) {
        let process = |node, role: Role| {
            let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
            ProcessId { node: NodeId(node), keyspace, partition, role, instance: 0 }
        };
        let member = |seat: u8| {
            let process = process(seat.into(), crate::SERVER);
            Member { replica: ReplicaId(seat), process }
        };
        let groups = [Group { members: (0..3).map(member).collect(), spares: [].into() }].into();
        let map = Map { keyspace: KeyspaceId(1), split: Split::Hash, groups };
        let distances = Distances { rtt: [].into(), local: [].into() };
        let parameters = Parameters { coordinator, ..Parameters::for_rtt(Span::from_millis(10)) };
        let identity = Identity { process: process(0, crate::CLIENT), incarnation: 1 };
        let client = Client::open(identity, &family::Client { map, distances, parameters });
        (client, Outbox::new(identity.process, Random::seeded(1)))
    }

    #[test]
    fn what_is_cancelled_while_it_commits_is_withdrawn_once() {
        let (mut client, mut outbox) = client(Coordinator::Remote);
        let mut withdrawn = |input: &mut dyn FnMut(&mut Effects<Client>)| {
            input(outbox.input(Instant::ZERO, Stamp::ZERO));
            let withdraws = |effect: &Effect<Client>| {
                matches!(effect, Effect::Send { message: group::Message::Own(Message::Withdraw { .. }), .. })
            };
            outbox.drain().filter(withdraws).count()
        };
        let txn = client.name(1);
        for (ticket, request) in [
            (Ticket(1), Request::Begin { reads: Vec::new(), writes: vec!["a".into()] }),
            (Ticket(2), Request::Commit { txn, updates: Vec::new() }),
        ] {
            assert_eq!(withdrawn(&mut |effects| client.request(ticket, request.clone(), effects)), 0);
        }
        assert_eq!(withdrawn(&mut |effects| client.cancel(Ticket(2), effects)), 1);
        let abort = Request::Abort { txn };
        assert_eq!(withdrawn(&mut |effects| client.request(Ticket(3), abort.clone(), effects)), 0);
    }

    #[test]
    fn whether_anybody_leads_is_asked_where_coordinators_are_chosen_by_that() {
        for (coordinator, asked) in [(Coordinator::Local, 3), (Coordinator::Remote, 0)] {
            let (mut client, mut outbox) = client(coordinator);
            let now = Instant::ZERO + Span::from_secs(1);
            client.leaders.suspect(PartitionId(0), now, Span::ZERO);
            client.expire(Timer::Beat, outbox.input(now, Stamp::ZERO));
            assert_eq!(outbox.drain().count(), asked, "{coordinator:?}");
        }
    }
}
