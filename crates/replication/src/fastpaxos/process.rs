//! The order as a process, and as its holder sees it: routing.

use super::message::{Message, NO_SEAT, Note, Record, Timer};
use super::order::{Order, Pending, Role, digest};
use super::{Mutation, Parameters};
use crate::election::Watch;
use crate::order::{Decided, Membership, Order as Orders, Ordered, Setup, Step, Takes};
use crate::request::{Change, Refusal};
use isochrone_core::{
    Ballot, Blob, Effects, Identity, Instant, Malformed, Process, ProcessId, Promise, ReplicaId, ReplicaSet,
    Slot, SlotLog, Snapshot, Span, Ticket, wire,
};
use std::collections::{BTreeMap, VecDeque};

impl<V: Ordered> Process for Order<V> {
    type Setup = Setup<Parameters>;
    type Message = Message<V>;
    type Record = Record<V>;
    type Request = ();
    type Outcome = Result<(), Refusal>;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Self::Setup) -> Order<V> {
        let members = setup.members.clone();
        let me = members.iter().find(|member| member.process == identity.process);
        // The first reign is open to fast votes from the start, at everyone: nothing came before it.
        let owner = setup.preferred.or(members.first().map(|member| member.replica)).unwrap_or(NO_SEAT);
        let first = Ballot { round: 1, owner };
        let mut promise = Promise::default();
        promise.admit(first);
        Order {
            me: me.map_or(NO_SEAT, |member| member.replica),
            process: identity.process,
            incarnation: identity.incarnation,
            members,
            parameters: setup.parameters,
            promise,
            opened: first,
            closed: false,
            next: Slot::ZERO,
            cells: SlotLog::default(),
            decided: Slot::ZERO,
            delivered: Slot::ZERO,
            kept: VecDeque::new(),
            kept_bytes: 0,
            serving: false,
            fresh: Vec::new(),
            pending: BTreeMap::new(),
            pending_bytes: 0,
            queue: VecDeque::new(),
            nameless: Vec::new(),
            submitting: false,
            role: Role::Follower,
            seen: first,
            watch: Watch::new(setup.parameters.suspect),
            task: None,
            known: Slot::ZERO,
            teller: None,
            repairing: false,
            behind: None,
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.restore_image(&chunk)
    }

    fn replay(&mut self, record: Record<V>) {
        self.replay_record(record);
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        self.watch.heard = effects.now();
        self.seen = self.seen.max(self.promise.ballot());
        self.watch.leader = Some(self.promise.ballot());
        self.draw_patience(effects);
        if self.promise.ballot().owner != self.me {
            effects.arm(Timer::Watch, self.watch.patience);
        } else if self.incarnation == 1 || self.parameters.mutated(Mutation::ReignOn) {
            self.begin(effects);
        } else {
            // What it proposed in this reign before its restart it may not know any more.
            self.campaign(None, effects);
        }
        self.note(effects);
    }

    fn receive(&mut self, from: ProcessId, message: Message<V>, effects: &mut Effects<Self>) {
        self.dispatch(from, message, effects);
        self.note(effects);
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Self>) {
        effects.complete_ahead(ticket, Ok(()));
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Watch => self.watch(effects),
            Timer::Campaign => self.press(effects),
            Timer::Heartbeat => self.beat(effects),
            Timer::Repair => self.repair(effects),
            Timer::Submit => self.submit_late(effects),
            Timer::Change => self.end_task(Err(Refusal::TimedOut), effects),
        }
        self.note(effects);
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        self.submit_nameless(effects);
        self.cast(effects);
        self.drive(effects);
        self.note(effects);
    }

    fn snapshot(&self) -> Option<Snapshot> {
        Some(self.own_snapshot())
    }

    fn check(&self) {
        assert!(self.delivered <= self.decided, "{} delivered beyond {}", self.delivered, self.decided);
        assert!(self.fresh.is_empty(), "decided and not recorded");
        if self.parameters.mutation.is_some() {
            return;
        }
        assert!(self.cells.base() <= self.delivered, "an undelivered index was trimmed");
        assert!(self.next >= self.decided, "about to vote at {} below {}", self.next, self.decided);
        assert!(self.opened <= self.promise.ballot(), "took part in a reign without a promise");
        assert!(self.seen >= self.promise.ballot(), "a promise unheard of");
        if let Role::Coordinator(reign) = &self.role {
            assert!(reign.ballot == self.promise.ballot(), "a coordinator has promised another reign");
            assert!(reign.ballot.owner == self.me, "coordinates in another's reign");
        }
    }
}

impl<V: Ordered> Orders for Order<V> {
    type Value = V;
    type Parameters = Parameters;
    type Position = Slot;

    const TOTAL: bool = true;
    const AHEAD: bool = true;
    const MEMBERSHIP: Membership = Membership::StopAndHandOver;

    fn takes(&self) -> Takes {
        Takes::Here
    }

    fn leads(&self) -> bool {
        matches!(self.role, Role::Coordinator(_))
    }

    fn leader(&self) -> Option<ReplicaId> {
        if self.leads() { Some(self.me) } else { self.watch.leader.map(|leader| leader.owner) }
    }

    /// Only who coordinates hears of the others.
    fn monitor(&self) -> Takes {
        match (self.leads(), self.watch.leader) {
            (true, _) => Takes::Here,
            (false, Some(leader)) => self.process_of(leader.owner).map_or(Takes::Nobody, Takes::At),
            (false, None) => Takes::Nobody,
        }
    }

    fn silent(&self, now: Instant) -> ReplicaSet {
        match &self.role {
            Role::Coordinator(reign) => reign.silent(now),
            Role::Follower | Role::Poll { .. } | Role::Candidate(_) => ReplicaSet::EMPTY,
        }
    }

    fn propose(&mut self, value: V, bytes: usize, now: Instant) -> Result<(), Refusal> {
        let Some(id) = value.id() else {
            self.nameless.push(value);
            return Ok(());
        };
        if self.pending.contains_key(&id) {
            return Ok(());
        }
        if self.pending.len() >= self.parameters.queue_commands
            || self.pending_bytes + bytes > self.parameters.queue_bytes.max(bytes)
        {
            return Err(Refusal::Overloaded);
        }
        let digest = digest(&value);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.pending_bytes += bytes as usize;
        self.pending.insert(id, Pending { value, digest, bytes, since: now, slot: None });
        self.queue.push_back(id);
        Ok(())
    }

    fn step(&mut self, now: Instant) -> Option<Step<V>> {
        if self.delivered >= self.decided {
            return None;
        }
        let slot = self.delivered;
        let cell = self.cells.get_mut(slot)?;
        let values = cell.outcome.clone()?;
        // Nobody needs the vote for a decided index any more.
        cell.vote = None;
        let answer = cell.learned;
        let spans = cell.recovered.map(|[voted, sent, quorum]| {
            [sent.since(voted), Span::ZERO, quorum.since(sent), now.since(quorum)]
        });
        self.delivered = slot.next();
        let size = values.iter().map(wire::encoded_size).sum::<usize>() + 64;
        self.keep(u32::try_from(size).unwrap_or(u32::MAX));
        let digest = digest(&values[..]);
        Some(Step::Decided(Decided { position: slot.0, digest, values, answer, spans }))
    }

    fn serial(&self) -> u64 {
        self.delivered.0
    }

    fn position(&self) -> Slot {
        self.delivered
    }

    fn serves(&self, serial: u64) -> bool {
        Slot(serial) >= self.cells.base()
    }

    fn behind(&self) -> Option<ProcessId> {
        self.behind
    }

    fn install(&mut self, position: &Slot) -> bool {
        self.behind = None;
        if *position <= self.delivered {
            return false;
        }
        self.cells.trim(*position);
        self.kept.clear();
        self.kept_bytes = 0;
        self.delivered = *position;
        self.decided = self.decided.max(*position);
        self.advance();
        if let Role::Coordinator(reign) = &mut self.role {
            reign.drop_below(*position);
        }
        true
    }

    fn hold(&mut self, held: bool) {
        self.serving = held;
    }

    fn give_up(&mut self) {
        self.behind = None;
    }

    fn change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        self.hand_over(ticket, change, effects);
    }
}

impl<V: Ordered> Order<V> {
    fn dispatch(&mut self, from: ProcessId, message: Message<V>, effects: &mut Effects<Self>) {
        match message {
            Message::Votes { reign, first, names } => self.on_votes(from, reign, first, &names, effects),
            Message::Ask { reign, from: first, upto } => self.on_ask(from, reign, first, upto, effects),
            Message::Report { reign, from: first, upto, votes, decided } => {
                self.on_report(from, reign, (first, upto), votes, decided, effects);
            }
            Message::Submit { values } => self.on_submit(values, effects),
            Message::Accept { reign, entries, decided } => {
                self.on_accept(from, reign, &entries, decided, effects);
            }
            Message::Accepted { reign, slots } => self.on_accepted(from, reign, &slots, effects),
            Message::Commit { entries, decided } => self.on_commit(from, entries, decided, effects),
            Message::Heartbeat { reign, decided } => self.on_heartbeat(from, reign, decided, effects),
            Message::Heard { reign, opened, next, decided } => {
                self.on_heard(from, reign, opened, next, decided, effects);
            }
            Message::Poll { reign, decided } => self.on_poll(from, reign, decided, effects),
            Message::Polled { reign, granted, promised, decided } => {
                self.on_polled(from, reign, granted, promised, decided, effects);
            }
            Message::Prepare { reign, from: first } => self.on_prepare(from, reign, first, effects),
            Message::Promised { reign, report } => self.on_promised(from, reign, *report, effects),
            Message::Promising { reign } => self.on_promising(from, reign, effects.now()),
            Message::Open { reign, floor, closed, entries, decided } => {
                let entries = (floor, closed, &*entries);
                self.on_open(from, reign, entries, decided, effects);
            }
            Message::Rejected { promised, decided } => self.on_rejected(from, promised, decided, effects),
            // What it lacks may be on its way.
            Message::Fetch { from: first } => {
                effects.repeating(|effects| self.on_fetch(from, first, effects));
            }
            Message::Learned { from: first, values, decided } => {
                self.on_learned(from, first, &values, decided, effects);
            }
            Message::Trimmed { decided } => self.on_trimmed(from, decided),
            Message::Handover => self.on_handover(effects),
            // For clients, and what a client asks of an order that has ended.
            Message::Cast { .. } | Message::Placed { .. } | Message::Hello => {}
        }
    }
}
