//! Epochs: how one order ends and the next begins.

use super::Replica;
use crate::family::REPLICA;
use crate::message::{Entry, Message, Note, Record, Successors, Timer};
use crate::order::{self, Member, Membership, Order, Takes};
use crate::request::{Change, Refusal};
use crate::service::Reply;
use isochrone_core::{Effects, Fact, Instant, ProcessId, ReplicaId, StateMachine, Ticket, Wrap};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How the order's effects look inside the replica's.
pub(super) struct Inner {
    pub(super) epoch: u32,
}

impl<S: StateMachine, O: Order<Value = Entry<S::Command>>> Wrap<Replica<S, O>, O> for Inner {
    fn message(&self, message: O::Message) -> Message<S::Command, S::Reply, O::Message> {
        Message::Order { epoch: self.epoch, message }
    }
    fn record(&self, record: O::Record) -> Record<O::Record> {
        Record::Order { epoch: self.epoch, record }
    }
    fn timer(&self, timer: O::Timer) -> Timer<O::Timer> {
        Timer::Order(self.epoch, timer)
    }
    fn mark(&self, mark: O::Mark) -> Note<O::Mark> {
        Note::Order(self.epoch, mark)
    }
}

/// Who asked for a change of the members.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub(super) enum Asker {
    /// The host.
    Host(Ticket),
    /// A client or replica, under its number.
    Peer(ProcessId, u64),
}

/// A change of the members that was asked for here.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub(super) struct Stopping {
    pub(super) asker: Asker,
    members: Arc<[Member]>,
    /// When it was last proposed.
    at: Instant,
    /// Once these are the members: who of them has said so. Who has asked is told when they are a majority, so that no
    /// minority that fails then is all that knows of the change.
    joined: Option<BTreeSet<ProcessId>>,
}

/// Whoever is to become a member is asked first whether it is there: in a group that counts on it and cannot have it, a majority may be
/// one too few.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub(super) struct Call {
    pub(super) asker: Asker,
    change: Change,
    newcomer: ProcessId,
    until: Instant,
}

impl<S: StateMachine, O: Order<Value = Entry<S::Command>>> Replica<S, O> {
    /// Whether this process takes part in the order as it is now.
    pub(super) fn is_active(&self) -> bool {
        O::MEMBERSHIP == Membership::Own || self.seat().is_some()
    }

    fn seat(&self) -> Option<ReplicaId> {
        let me = self.identity.process;
        self.members.iter().find(|member| member.process == me).map(|member| member.replica)
    }

    /// Whether this change is made by a stop.
    pub(super) fn stops(&self, change: Change) -> bool {
        O::MEMBERSHIP == Membership::StopAndHandOver && matches!(change, Change::Add(_) | Change::Remove(_))
    }

    /// Proposes the stop that makes this change, or where it is made already, waits until enough know.
    pub(super) fn stop(&mut self, asker: Asker, change: Change, effects: &mut Effects<Self>) {
        self.stop_if(asker, change, None, effects);
    }

    /// The same, where `there` has said that it is there.
    fn stop_if(
        &mut self,
        asker: Asker,
        change: Change,
        there: Option<ProcessId>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let proposed = |members: &[Member]| {
            self.stopping.as_ref().is_some_and(|stopping| same(&stopping.members, members))
        };
        let refusal = match self.members_after(change) {
            Err(refusal) => refusal,
            Ok(_) if !self.is_active() => Refusal::NotLeader,
            Ok(members) if members.len() == self.members.len() => {
                return self.await_members(asker, effects);
            }
            Ok(_) if self.service.reply == Reply::Commit => Refusal::RepliesAtCommit,
            Ok(_) if self.takes() != Takes::Here => Refusal::NotLeader,
            Ok(members) if self.is_stopping_for_another(asker, Some(&members), now) => Refusal::Busy,
            // What was proposed before cannot be taken back.
            Ok(members) if proposed(&members) => return self.propose_stop(asker, members, effects),
            Ok(_) if self.order.monitor() != Takes::Here => Refusal::NotLeader,
            Ok(members) if !self.majority_lives(&members, now) => Refusal::TooFew,
            Ok(members) => match members.last().map(|member| member.process) {
                Some(newcomer) if matches!(change, Change::Add(_)) && there != Some(newcomer) => {
                    return self.call(asker, change, newcomer, effects);
                }
                _ => return self.propose_stop(asker, members, effects),
            },
        };
        self.tell(asker, Err(refusal), effects);
    }

    /// Asked again, it is proposed again: of several stops the first is the one.
    fn propose_stop(&mut self, asker: Asker, members: Arc<[Member]>, effects: &mut Effects<Self>) {
        let now = effects.now();
        let members = self.led(&members, now);
        let entry = Entry::HandOver { members: members.clone() };
        match self.order.propose(entry, 64, now) {
            Ok(()) => {
                self.replace(Stopping { asker, members, at: now, joined: None }, effects);
                self.take_steps(effects);
            }
            Err(refusal) => self.tell(asker, Err(refusal), effects),
        }
    }

    /// Asks whether somebody is there.
    fn call(&mut self, asker: Asker, change: Change, newcomer: ProcessId, effects: &mut Effects<Self>) {
        match &self.call {
            Some(call) if call.asker == asker => {}
            Some(_) => self.tell(asker, Err(Refusal::Busy), effects),
            None => {
                let until = effects.now() + self.service.retry * 4;
                self.call = Some(Call { asker, change, newcomer, until });
                self.call_again(effects);
            }
        }
    }

    /// The timer of calls: whoever has not answered is asked again, or given up.
    pub(super) fn call_again(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        if let Some(call) = self.call.take_if(|call| call.until <= now) {
            return self.tell(call.asker, Err(Refusal::Silent), effects);
        }
        if let Some(call) = &self.call {
            // Of the first epoch, in which everybody has been.
            effects.send_ahead(call.newcomer, Message::Join { epoch: 0 });
            effects.arm(Timer::Call, self.service.resend);
        }
    }

    /// Whether of these members, who are members now, enough live to go on without the others.
    pub(super) fn majority_lives(&self, members: &[Member], now: Instant) -> bool {
        let (me, silent) = (self.identity.process, self.order.silent(now));
        let gone = |member: &&Member| member.process != me && silent.contains(member.replica);
        let lives = |member: &&Member| {
            let seat = self.members.iter().find(|known| known.process == member.process);
            seat.is_none_or(|known| !gone(&known))
        };
        members.iter().filter(lives).count() > members.len() / 2
    }

    /// Whether a stop is under way that somebody else has asked for, to make other members than these. For as long as an answer may
    /// take: then it was lost with whoever was to give it its place, and another may be made.
    fn is_stopping_for_another(&self, asker: Asker, members: Option<&[Member]>, now: Instant) -> bool {
        self.stopping.as_ref().is_some_and(|stopping| {
            let lost = now.since(stopping.at) >= self.service.limit;
            stopping.joined.is_none()
                && stopping.asker != asker
                && members.is_none_or(|members| !same(&stopping.members, members))
                && !lost
        })
    }

    /// Who waited for the members of this epoch makes way: it asks again, if it still wants to know.
    fn replace(&mut self, stopping: Stopping, effects: &mut Effects<Self>) {
        let asker = stopping.asker;
        if let Some(last) = self.stopping.replace(stopping).filter(|last| last.asker != asker) {
            self.tell(last.asker, Err(Refusal::Busy), effects);
        }
    }

    /// The members are as they were asked to be.
    fn await_members(&mut self, asker: Asker, effects: &mut Effects<Self>) {
        let now = effects.now();
        if self.is_stopping_for_another(asker, None, now) {
            return self.tell(asker, Err(Refusal::Busy), effects);
        }
        let joined = Some(self.seat().map(|_| self.identity.process).into_iter().collect());
        self.replace(Stopping { asker, members: self.members.clone(), at: now, joined }, effects);
        self.ask_members(effects);
    }

    /// Tells who waits that a majority of the members are in this epoch, or asks those that have not said so.
    pub(super) fn ask_members(&mut self, effects: &mut Effects<Self>) {
        let epoch = self.epoch;
        let Some(Stopping { asker, members, joined: Some(joined), .. }) = &self.stopping else { return };
        if joined.len() > members.len() / 2 {
            let asker = *asker;
            self.stopping = None;
            effects.disarm(Timer::Join);
            return self.tell(asker, Ok(()), effects);
        }
        let absent = members.iter().map(|member| member.process).filter(|member| !joined.contains(member));
        absent.for_each(|member| Self::send_executed(member, Message::Join { epoch }, effects));
        effects.arm(Timer::Join, self.service.resend);
    }

    /// A member of this epoch is asked whether it is in it.
    pub(super) fn on_join(&mut self, from: ProcessId, epoch: u32, effects: &mut Effects<Self>) {
        if epoch > self.epoch {
            // It says so when it is asked again.
            return self.on_ended(from, epoch, effects);
        }
        effects.send(from, Message::Joined { epoch: self.epoch });
    }

    pub(super) fn on_joined(&mut self, from: ProcessId, epoch: u32, effects: &mut Effects<Self>) {
        if let Some(call) = self.call.take_if(|call| call.newcomer == from) {
            effects.disarm(Timer::Call);
            self.stop_if(call.asker, call.change, Some(from), effects);
        }
        if epoch > self.epoch {
            return self.on_ended(from, epoch, effects);
        }
        if let Some(Stopping { members, joined: Some(joined), .. }) = &mut self.stopping
            && epoch == self.epoch
            && members.iter().any(|member| member.process == from)
            && joined.insert(from)
        {
            self.ask_members(effects);
        }
    }

    fn tell(&mut self, asker: Asker, result: Result<(), Refusal>, effects: &mut Effects<Self>) {
        match asker {
            Asker::Host(ticket) => effects.complete(ticket, result),
            Asker::Peer(from, number) => {
                let leader = match self.order.monitor() {
                    Takes::At(monitor) => Some(monitor),
                    Takes::Here | Takes::Nobody => self.elsewhere(),
                };
                effects.send(from, Message::Administered { number, result, leader });
            }
        }
    }

    /// The members with this change made. Seats are numbered anew in every epoch, since votes of one mean
    /// nothing in another.
    fn members_after(&self, change: Change) -> Result<Arc<[Member]>, Refusal> {
        let mut processes: Vec<ProcessId> = self.members.iter().map(|member| member.process).collect();
        match change {
            Change::Add(node) if !processes.iter().any(|process| process.node == node) => {
                processes.push(ProcessId { node, ..self.identity.process });
            }
            Change::Remove(node) => processes.retain(|process| process.node != node),
            Change::Add(_) | Change::Lead(_) | Change::Resign => {}
        }
        if processes.len() != self.members.len() && !(1..=O::MEMBERS_MAX).contains(&processes.len()) {
            return Err(Refusal::Impossible);
        }
        Ok(seated(&processes))
    }

    /// These members with whoever is to lead them first before the others: who leads now, if it lives and stays. Files may differ
    /// in whom they name, and none knows who has died.
    fn led(&self, members: &[Member], now: Instant) -> Arc<[Member]> {
        let Some(leader) = self.order.leader() else { return members.into() };
        let silent = self.order.silent(now);
        let known = |member: &Member| self.members.iter().find(|known| known.process == member.process);
        let lives = |member: &Member| {
            member.process == self.identity.process
                || known(member).is_some_and(|known| !silent.contains(known.replica))
        };
        let leads = |member: &Member| known(member).is_some_and(|known| known.replica == leader);
        let mut processes: Vec<ProcessId> = members.iter().map(|member| member.process).collect();
        let first = members.iter().position(|member| leads(member) && lives(member));
        if let Some(first) = first.or_else(|| members.iter().position(lives)) {
            processes[..=first].rotate_right(1);
        }
        seated(&processes)
    }

    /// Opens the order of an epoch. Who was executing stands at its beginning; who takes in a peer's state
    /// goes on from there.
    pub(super) fn begin_epoch(&mut self, epoch: u32, successors: Successors) {
        let Successors { members, first_leads } = successors;
        (self.epoch, self.members, self.first_leads) = (epoch, members, first_leads);
        self.order = O::open(self.identity, &self.inner_setup());
        self.loan = Default::default();
        self.once.abandon();
        self.speculation.forget();
        self.later = None;
    }

    /// What an order of this epoch starts with: behind a hand-over nobody is preferred, as the first member is the one that leads.
    pub(super) fn inner_setup(&self) -> order::Setup<O::Parameters> {
        order::Setup {
            members: self.members.clone(),
            preferred: self
                .preferred
                .filter(|seat| usize::from(seat.0) < self.members.len() && !self.first_leads),
            parameters: self.knobs.0,
        }
    }

    /// What a new epoch brings once this replica runs: its order starts, and who asked for it waits for its members.
    pub(super) fn epoch_begun(&mut self, effects: &mut Effects<Self>) {
        effects.mark(Note::Fact(Fact::Counted("membership_changes")));
        // Whoever led the last order leads it no more.
        effects.mark(Note::Fact(Fact::Follows));
        // What was asked of the last order it does not answer any more.
        if let Some(done) = self.administration.take() {
            let (from, number) = done.asker;
            let (result, leader) = (Err(Refusal::NotLeader), self.elsewhere());
            effects.send(from, Message::Administered { number, result, leader });
        }
        // What was learnt of the last order keeps its place before this.
        effects.record(Record::Joined { epoch: self.epoch });
        if let Some(Stopping { asker, members, joined, .. }) = self.stopping.take() {
            match joined {
                None if same(&members, &self.members) => self.await_members(asker, effects),
                // Another stop has come first.
                None => self.tell(asker, Err(Refusal::Busy), effects),
                // A majority of those members have ended their order, and so were in it.
                Some(_) => self.tell(asker, Ok(()), effects),
            }
        }
        if self.is_active() {
            self.with_order(effects, |order, inner| order.start(inner));
        }
    }

    pub(super) fn on_order(
        &mut self,
        from: ProcessId,
        epoch: u32,
        message: O::Message,
        effects: &mut Effects<Self>,
    ) {
        match epoch.cmp(&self.epoch) {
            std::cmp::Ordering::Equal if self.is_active() => {
                self.with_order(effects, |order, inner| order.receive(from, message, inner));
            }
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => self.on_ended(from, epoch, effects),
            std::cmp::Ordering::Less => {
                let (epoch, members) = (self.epoch, self.members.clone());
                Self::send_executed(from, Message::Ended { epoch, members }, effects);
            }
        }
    }

    /// A peer is in a later epoch: its state is needed to go on.
    pub(super) fn on_ended(&mut self, from: ProcessId, epoch: u32, effects: &mut Effects<Self>) {
        // A client that takes part in the order may know a later epoch, but has no state to give.
        if epoch > self.epoch && from.role == REPLICA {
            self.later = Some(from);
            self.pull_if_behind(effects);
        }
    }
}

/// Members of these processes, by seat.
fn seated(processes: &[ProcessId]) -> Arc<[Member]> {
    // There are at most `MEMBERS_MAX`, 127.
    let member =
        |(at, process): (usize, &ProcessId)| Member { replica: ReplicaId(at as u8), process: *process };
    processes.iter().enumerate().map(member).collect()
}

/// Whether these are the same processes, in whatever seats.
fn same(members: &[Member], others: &[Member]) -> bool {
    let sits = |member: &Member| others.iter().any(|other| other.process == member.process);
    members.len() == others.len() && members.iter().all(sits)
}
