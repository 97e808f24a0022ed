//! The client role of protocols whose clients ask a replica: it numbers commands, finds the leader or the
//! nearest replica that answers, asks again, and gives up in time.
//!
//! A command that is answered at its commit stays outstanding, without a ticket, until a replica says that it was executed:
//! else a later one, which may be executed first, would tell the replicas that this one's answer is known, and it would be
//! passed over as an old one.

use crate::changes::{Answered, Changes};
use crate::family::Tuning;
use crate::message::{Ask, Message, Note, Requests, Spans, Told, in_parts};
use crate::order::Member;
use crate::request::{Change, Outcome, Refusal, Request};
use crate::service::Service;
use crate::stream::{Load, Said, Saying};
use crate::target::{Step, Target};
use isochrone_core::{
    Blob, ClientId, CommandId, Effects, Fact, Identity, Instant, Malformed, Mark, Path, Phase, Process,
    ProcessId, Series, Snapshot, Span, Ticket, Wire, wire,
};
use std::marker::PhantomData;
use std::sync::Arc;

/// What a client needs to start.
#[derive(Clone, Debug)]
pub struct Setup<P> {
    /// The replicas, nearest first.
    pub replicas: Arc<[ProcessId]>,
    /// The first members, by seat.
    pub members: Arc<[Member]>,
    /// Who leads, where one does; else the nearest replica is asked.
    pub leader: Option<ProcessId>,
    /// The client that measures for this one too, where a node of the same region has it and clients measure.
    pub proxy: Option<ProcessId>,
    /// The knobs of sessions.
    pub service: Service,
    /// The knobs of the order, for clients that take part in it.
    pub parameters: P,
}

/// What is spoken and not held.
type Spoken<R, M, P> = fn() -> (R, M, P);

/// A client with commands `C` and replies `R` of an order that speaks `M`.
#[derive(Clone, Hash, Debug)]
pub struct Client<C, R, M, P> {
    me: ClientId,
    service: Service,
    target: Target,
    /// The number of the next command.
    next: u64,
    outstanding: Series<Asked<C>>,
    /// By the ticket's number.
    tickets: Series<u64>,
    /// Numbers to be sent to the target in `settle`, or as soon as there is room for them.
    fresh: Vec<u64>,
    /// Those that it was sent before, and has not answered.
    repeats: Vec<u64>,
    saying: Saying,
    changes: Changes,
    sweeping: bool,
    /// Nobody is known to lead: everything outstanding is asked for again, in order, by the next sweep, and what is new
    /// waits for that, lest it overtake.
    parked: bool,
    spoken: PhantomData<Spoken<R, M, P>>,
}

/// Something that was asked and is not known to be executed.
#[derive(Clone, Hash, Debug)]
struct Asked<T> {
    /// None once the host has lost interest, or has its answer.
    ticket: Option<Ticket>,
    /// It has its place, and its host has the answer.
    placed: bool,
    what: T,
    load: Load,
    at: Instant,
    /// When it is asked for again.
    due: Instant,
    attempts: u32,
    /// Whether it is a read that must go through the log with its effect.
    touching: bool,
}

/// The one timer of a client: it sweeps over everything outstanding.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// What is due is asked for again; what is too old is given up.
    Sweep,
}

/// A client's order notes nothing.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Nothing {}

impl Mark for Nothing {
    fn fact(&self) -> Option<Fact> {
        match *self {}
    }
}

/// Sweeps in one retry interval.
pub(crate) const SWEEPS: u64 = 16;

impl<C: Wire, R: Wire, M: Wire, P: Tuning> Client<C, R, M, P> {
    /// The first command that is not known to be executed: the replicas may forget those before it.
    fn below(&self) -> u64 {
        self.outstanding.first().map_or(self.next, |(sequence, _)| sequence)
    }

    fn ask(&mut self, ticket: Ticket, command: C, effects: &mut Effects<Self>) {
        if self.outstanding.len() >= self.service.outstanding {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::Overloaded));
        }
        let now = effects.now();
        if self.target.ask(self.outstanding.len(), self.tickets.len(), now) {
            self.begin_turn();
        }
        let sequence = self.next;
        self.next += 1;
        let due = now + self.service.retry;
        self.outstanding.insert(
            sequence,
            Asked {
                ticket: Some(ticket),
                placed: false,
                load: Load::of(&command),
                what: command,
                at: now,
                due,
                attempts: 0,
                touching: false,
            },
        );
        self.tickets.insert(ticket.0, sequence);
        self.fresh.push(sequence);
        self.sweep_soon(effects);
    }

    fn sweep_soon(&mut self, effects: &mut Effects<Self>) {
        if !self.sweeping {
            self.sweeping = true;
            effects.arm(Timer::Sweep, self.service.retry / SWEEPS);
        }
    }

    fn send_fresh(&mut self, effects: &mut Effects<Self>) {
        if self.parked {
            self.repeats.clear();
            return self.fresh.clear();
        }
        let (mut repeats, mut fresh) = (std::mem::take(&mut self.repeats), std::mem::take(&mut self.fresh));
        effects.repeating(|effects| self.send_asks(&mut repeats, |saying| saying.again(), effects));
        self.send_asks(&mut fresh, Saying::next, effects);
        (self.repeats, self.fresh) = (repeats, fresh);
    }

    /// Asks the target for these, as far as there is room, and keeps the others.
    fn send_asks(
        &mut self,
        sequences: &mut Vec<u64>,
        mut said: impl FnMut(&mut Saying) -> Said,
        effects: &mut Effects<Self>,
    ) {
        if sequences.is_empty() {
            return;
        }
        // What one connection has sent without waiting is to be run in that order.
        sequences.sort_unstable();
        sequences.dedup();
        let (outstanding, saying) = (&mut self.outstanding, &mut self.saying);
        let load =
            |sequence: &u64| outstanding.get(*sequence).filter(|asked| !asked.placed).map(|asked| asked.load);
        let mut room = saying.room();
        let fit = sequences.iter().take_while(|sequence| room(load(sequence))).count();
        let ask = |sequence: u64| {
            let asked = outstanding.get_mut(sequence).filter(|asked| !asked.placed)?;
            saying.take(&mut asked.load);
            Some(Ask { sequence, command: asked.what.clone(), touching: asked.touching, synced: false })
        };
        let asks: Vec<_> = sequences.drain(..fit).filter_map(ask).collect();
        if !asks.is_empty() {
            let (client, below, unheard) = (self.me, self.below(), self.target.unheard(effects.now()));
            in_parts(asks, |asks| {
                let (under, forwarded, said) = (None, false, said(&mut self.saying));
                let unheard = unheard.clone();
                let requests = Requests { client, below, under, asks, forwarded, said, unheard };
                effects.send(self.target.process(), requests.into());
            });
        }
    }

    /// It is outstanding no more.
    fn remove(&mut self, sequence: u64) -> Option<Asked<C>> {
        let asked = self.outstanding.remove(sequence)?;
        if !asked.placed {
            self.saying.answered(asked.load);
        }
        Some(asked)
    }

    fn finish(
        &mut self,
        sequence: u64,
        outcome: Outcome<R>,
        effects: &mut Effects<Self>,
    ) -> Option<Asked<C>> {
        let asked = self.remove(sequence)?;
        if let Some(ticket) = asked.ticket {
            self.tickets.remove(ticket.0);
            effects.complete(ticket, outcome);
        }
        Some(asked)
    }

    /// The host has its answer, and the command is still outstanding.
    fn place(&mut self, sequence: u64, reply: R, spans: Option<Spans>, effects: &mut Effects<Self>) {
        let Some(asked) = self.outstanding.get_mut(sequence) else { return };
        if std::mem::replace(&mut asked.placed, true) {
            return;
        }
        self.saying.answered(asked.load);
        if let Some(ticket) = asked.ticket.take() {
            self.tickets.remove(ticket.0);
            effects.complete(ticket, Outcome::Replied(reply));
        }
        let (at, first) = (asked.at, asked.attempts == 0);
        self.mark_committed(sequence, Path::Leader, at, spans.filter(|_| first), effects);
    }

    fn mark_committed(
        &self,
        sequence: u64,
        path: Path,
        at: Instant,
        spans: Option<Spans>,
        effects: &mut Effects<Self>,
    ) {
        let total = effects.now().since(at);
        let id = CommandId { client: self.me, sequence };
        effects.mark(Note::Fact(Fact::Committed { id, path, total, phases: phases(total, spans) }));
    }

    fn on_replies(
        &mut self,
        from: ProcessId,
        by_way: bool,
        spans: Option<Spans>,
        answers: Vec<(u64, Told<R>)>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let turns = match by_way {
            true => self.target.hear_by_way(from, now),
            false => self.target.hear_taker(from, self.saying.is_much(), now),
        };
        if turns {
            self.begin_turn();
        }
        let waiting = self.outstanding.len() + self.tickets.len();
        for (sequence, told) in answers {
            let (outcome, path) = match told {
                // The same read is on its way with its effect, and is answered with that.
                Told::Read(_) | Told::Looked(_)
                    if self.outstanding.get(sequence).is_some_and(|asked| asked.touching) =>
                {
                    continue;
                }
                Told::Done(reply) | Told::Looked(reply) => (Outcome::Replied(reply), Some(Path::Leader)),
                Told::Read(reply) => (Outcome::Replied(reply), Some(Path::Lease)),
                Told::Placed(reply) => {
                    self.place(sequence, reply, spans, effects);
                    continue;
                }
                Told::Forgotten => (Outcome::Unknown, None),
                // This client has no witnesses; the safe answer follows when it asks again.
                Told::Speculative(_) | Told::Near(_) => continue,
                Told::Touches => {
                    if let Some(asked) = self.outstanding.get_mut(sequence)
                        && !std::mem::replace(&mut asked.touching, true)
                    {
                        asked.due = now + self.service.retry;
                        self.fresh.push(sequence);
                    }
                    continue;
                }
                Told::Overloaded => {
                    // Not a refusal to the host: a copy of the command may be on its way elsewhere.
                    if let Some(asked) = self.outstanding.get_mut(sequence) {
                        asked.attempts += 1;
                        asked.due = now + self.service.retry;
                        if from == self.target.process() && !asked.placed {
                            self.saying.refused(&mut asked.load);
                        }
                    }
                    continue;
                }
            };
            let Some(asked) = self.finish(sequence, outcome, effects) else { continue };
            if let Some(path) = path.filter(|_| !asked.placed) {
                let spans = spans.filter(|_| path == Path::Leader && asked.attempts == 0);
                self.mark_committed(sequence, path, asked.at, spans, effects);
            }
        }
        if self.outstanding.len() + self.tickets.len() < waiting {
            self.target.get_on(from, now);
        }
    }

    /// A replica says something, or hands it on (`by_way`).
    fn hear(
        &mut self,
        from: ProcessId,
        by_way: bool,
        message: Message<C, R, M>,
        effects: &mut Effects<Self>,
    ) {
        match message {
            Message::Replies { incarnation, spans, answers, .. } if incarnation == self.me.incarnation => {
                self.on_replies(from, by_way, spans, answers, effects);
            }
            Message::Redirect { incarnation, leader, sequences, .. }
                if incarnation == self.me.incarnation =>
            {
                self.on_redirect(from, by_way, leader, &sequences, effects);
            }
            Message::Missed { incarnation, turn }
                if incarnation == self.me.incarnation && self.saying.is_in(turn) =>
            {
                self.saying.missed();
                self.say_anew();
            }
            Message::Administered { number, result, leader } => {
                self.on_administered(from, number, result, leader, effects);
            }
            // Answers to a former life, and what is for replicas.
            _ => {}
        }
    }

    fn on_redirect(
        &mut self,
        from: ProcessId,
        by_way: bool,
        leader: Option<ProcessId>,
        sequences: &[u64],
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let is_asked = from == self.target.process();
        match leader {
            // One that has led says, by way of who leads now, that this one does.
            Some(leader) if by_way && leader == from => match is_asked {
                true => self.begin_turn(),
                false => self.turn_to(leader, now),
            },
            // One that has led says so unasked: no news where it is not asked any more.
            Some(_)
                if sequences.is_empty()
                    && !is_asked
                    && !self.target.asks_around(self.saying.is_much(), now) => {}
            Some(leader) if leader != from => {
                self.turn_to(leader, now);
                for sequence in sequences {
                    if let Some(asked) = self.outstanding.get_mut(*sequence) {
                        asked.attempts += 1;
                        asked.due = now + self.service.retry;
                        self.fresh.push(*sequence);
                    }
                }
            }
            // Nobody leads yet: ask again soon, someone else if this one stays without a leader.
            _ if self.target.is_led() => self.parked |= is_asked && !sequences.is_empty(),
            _ => {
                for sequence in sequences {
                    if let Some(asked) = self.outstanding.get_mut(*sequence) {
                        asked.attempts += 1;
                        asked.due = now + self.service.retry / SWEEPS;
                        if is_asked && !asked.placed {
                            self.saying.refused(&mut asked.load);
                        }
                    }
                }
            }
        }
    }

    /// Asks again for what is due, of another replica if the target has been silent, and gives up what is
    /// too old.
    fn sweep(&mut self, effects: &mut Effects<Self>) {
        self.sweeping = false;
        let now = effects.now();
        let limit = self.service.limit;
        let old = |at: Instant| now.since(at) >= limit;
        let over: Vec<u64> = self
            .outstanding
            .iter()
            .take_while(|(_, asked)| old(asked.at))
            .filter(|(_, asked)| !asked.placed)
            .map(|(sequence, _)| sequence)
            .collect();
        for sequence in over {
            // Its number is below all that are outstanding from now on, so a late copy is not executed.
            self.finish(sequence, Outcome::Unknown, effects);
        }
        for ticket in self.changes.expire(now, &self.service) {
            effects.complete(ticket, Outcome::Unknown);
        }
        let parked = std::mem::take(&mut self.parked);
        // One that only says that nobody leads may be no member any more, and never learn who does.
        let due =
            parked || self.outstanding.iter().any(|(_, asked)| asked.due <= now) || self.changes.is_due(now);
        let target = self.target.process();
        let oldest = self.outstanding.first().map(|(_, asked)| asked.at);
        match self.target.step(due, self.saying.is_much(), oldest, now) {
            Step::Stay => {}
            Step::Question => self.question(target, effects),
            Step::AskAround => {
                self.target.replicas().iter().for_each(|replica| self.question(*replica, effects));
            }
            Step::TurnAway => {
                if self.target.turn_away(now) {
                    self.begin_turn();
                }
            }
        }
        for replica in self.target.try_unheard(now) {
            self.question(replica, effects);
        }
        if parked {
            self.saying.begin();
        }
        let renewed = parked || self.target.process() != target;
        let mut placed = Vec::new();
        for (sequence, asked) in self.outstanding.iter_mut() {
            if asked.due <= now || parked {
                asked.attempts += 1;
                asked.due = now + self.service.retry * u64::from(asked.attempts.min(4));
                match asked.placed {
                    true => placed.push(sequence),
                    false if renewed || !self.saying.has_said(asked.load) => self.fresh.push(sequence),
                    false => self.repeats.push(sequence),
                }
            }
        }
        if !placed.is_empty() {
            // They are executed wherever they were asked for, and need not be said again.
            let status = Message::Status { client: self.me, sequences: placed };
            effects.urgently(|effects| effects.send(self.target.process(), status));
        }
        for (number, change) in self.changes.due(now, &self.service) {
            effects.send(self.target.process(), Message::Administer { number, change });
        }
        if !self.outstanding.is_empty() || !self.changes.is_empty() {
            self.sweep_soon(effects);
        }
    }

    /// Its answer may wait behind others, or what it was asked may be on its way still: who takes commands says so.
    fn question(&self, replica: ProcessId, effects: &mut Effects<Self>) {
        let (client, below, asks) = (self.me, self.below(), Vec::new());
        let (under, forwarded, said, unheard) =
            (None, false, Said::Freely, self.target.unheard(effects.now()));
        let question = Requests { client, below, under, asks, forwarded, said, unheard };
        effects.urgently(|effects| effects.send(replica, question.into()));
    }

    /// Another is asked from now on, unless it is already.
    fn turn_to(&mut self, process: ProcessId, now: Instant) {
        if self.target.turn_to(process, now) {
            self.begin_turn();
        }
    }

    /// Everything that is outstanding is said first to who is asked from now on, in order.
    fn begin_turn(&mut self) {
        self.saying.begin();
        self.say_anew();
    }

    /// In the turn that has begun.
    fn say_anew(&mut self) {
        self.repeats.clear();
        self.fresh.extend(self.outstanding.iter().map(|(sequence, _)| sequence));
    }

    fn administer(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        // Numbers of changes are drawn from those of commands, which need not be dense at the replicas.
        let number = self.changes.begin(self.next, ticket, change, effects.now(), &self.service);
        self.next += 1;
        effects.send(self.target.process(), Message::Administer { number, change });
        self.sweep_soon(effects);
    }

    fn on_administered(
        &mut self,
        from: ProcessId,
        number: u64,
        result: Result<(), Refusal>,
        leader: Option<ProcessId>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        match self.changes.answered(number, result) {
            Some(Answered::Over(ticket, outcome)) => {
                if matches!(outcome, Outcome::Changed) {
                    self.target.hear(from, now);
                }
                effects.complete(ticket, outcome);
            }
            Some(Answered::Elsewhere(change)) => match leader {
                Some(leader) if leader != from => {
                    self.turn_to(leader, now);
                    effects.send(leader, Message::Administer { number, change });
                }
                _ => self.changes.hasten(number, now, &self.service),
            },
            None => {}
        }
    }
}

/// The parts of `total`: what the leader measured, and half of the rest for each way.
pub(crate) fn phases(total: Span, spans: Option<Spans>) -> [Span; Phase::ALL.len()] {
    let mut phases = [Span::ZERO; Phase::ALL.len()];
    let Some([queue, journal, quorum, order, execute]) =
        spans.map(|spans| spans.map(|micros| Span::from_micros(u64::from(micros))))
    else {
        return phases;
    };
    let measured = queue + journal + quorum + order + execute;
    if measured <= total {
        let ways = total.saturating_sub(measured);
        let there = ways / 2;
        phases = [queue + there, journal, quorum, order, execute, ways.saturating_sub(there)];
    }
    phases
}

impl<C: Wire, R: Wire, M: Wire, P: Tuning> Process for Client<C, R, M, P> {
    type Setup = Setup<P>;
    type Message = Message<C, R, M>;
    type Record = ();
    type Request = Request<C>;
    type Outcome = Outcome<R>;
    type Timer = Timer;
    type Mark = Note<Nothing>;

    fn open(identity: Identity, setup: &Setup<P>) -> Self {
        assert!(!setup.replicas.is_empty(), "a client needs replicas");
        Client {
            me: identity.into(),
            service: setup.service,
            target: Target::new(setup.replicas.clone(), setup.leader, setup.service),
            next: 1,
            outstanding: Series::default(),
            tickets: Series::default(),
            fresh: Vec::new(),
            repeats: Vec::new(),
            saying: Saying::default(),
            changes: Changes::of(identity.incarnation),
            sweeping: false,
            parked: false,
            spoken: PhantomData,
        }
    }

    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Err(Malformed { what: "client snapshot", cause: "a client keeps nothing".to_owned() })
    }

    fn replay(&mut self, (): ()) {}

    fn start(&mut self, _: &mut Effects<Self>) {}

    fn receive(&mut self, from: ProcessId, message: Message<C, R, M>, effects: &mut Effects<Self>) {
        match message {
            Message::Pass { to, message } => {
                // What cannot be read is of no replica of this version.
                if to == self.me.process
                    && let Ok(message) = wire::decode(&message)
                {
                    self.hear(from, true, message, effects);
                }
            }
            message => self.hear(from, false, message, effects),
        }
    }

    fn request(&mut self, ticket: Ticket, request: Request<C>, effects: &mut Effects<Self>) {
        match request {
            Request::Command(command) => self.ask(ticket, command, effects),
            Request::Change(change) => self.administer(ticket, change, effects),
            Request::Move { .. } | Request::Survey => {
                effects.complete_ahead(ticket, Outcome::Refused(Refusal::Unmovable));
            }
        }
    }

    fn cancel(&mut self, ticket: Ticket, _: &mut Effects<Self>) {
        if let Some(sequence) = self.tickets.remove(ticket.0) {
            self.remove(sequence);
        }
        self.changes.cancel(ticket);
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Sweep => self.sweep(effects),
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        self.send_fresh(effects);
    }

    fn snapshot(&self) -> Option<Snapshot> {
        None
    }

    fn check(&self) {
        assert!(self.outstanding.len() <= self.service.outstanding, "more outstanding than allowed");
        assert!(self.tickets.len() <= self.outstanding.len(), "a ticket without a command");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::numbers_of;
    use crate::multipaxos;
    use crate::order::Reign;
    use isochrone_core::{Effect, NodeId, Outbox, Random, Stamp, Urgency};

    type Asking = Client<u64, u64, u64, multipaxos::Parameters>;

    const RTT: Span = Span::from_millis(1);

    fn process(node: u16) -> ProcessId {
        ProcessId { node: NodeId(node), ..ProcessId::from_u64(0) }
    }

    /// The client on node 0 of the replicas on these, of which one may lead.
    fn client_of(replicas: &[u16], leader: Option<u16>) -> Asking {
        open_client(replicas, leader)
    }

    fn open_client<C: Wire>(
        replicas: &[u16],
        leader: Option<u16>,
    ) -> Client<C, u64, u64, multipaxos::Parameters> {
        let setup = Setup {
            replicas: replicas.iter().map(|node| process(*node)).collect(),
            members: Arc::from([]),
            leader: leader.map(process),
            proxy: None,
            service: Service::for_rtt(RTT),
            parameters: multipaxos::Parameters::for_rtt(RTT),
        };
        Client::open(Identity { process: process(0), incarnation: 1 }, &setup)
    }

    /// A read was asked for twice: one replica read a value, another one found that the read has an effect (seed
    /// 9694 of three regions, EPaxos). With the first answer the effect would come behind the read.
    #[test]
    fn a_read_whose_effect_is_asked_for_is_answered_with_that() {
        let mut client = client_of(&[1, 2], None);
        let mut outbox = Outbox::new(process(0), Random::seeded(1));
        let effects = outbox.input(Instant::ZERO, Stamp::ZERO);
        client.request(Ticket(1), Request::Command(7), effects);
        for (node, told) in [(1, Told::Touches), (2, Told::Looked(5)), (2, Told::Read(5)), (1, Told::Done(6))]
        {
            let answers = vec![(1, told)];
            client.receive(
                process(node),
                Message::Replies { incarnation: 1, reign: Reign::default(), spans: None, answers },
                effects,
            );
        }
        let answers = outbox.drain().filter_map(|effect| match effect {
            Effect::Complete { outcome, .. } => Some(outcome),
            _ => None,
        });
        assert_eq!(answers.collect::<Vec<_>>(), [Outcome::Replied(6)]);
    }

    /// What has its place is asked after and not said again, and no later command passes it by before it is executed.
    #[test]
    fn what_is_answered_at_its_commit_is_outstanding_until_it_is_executed() {
        type Said = Message<u64, u64, u64>;
        let service = Service::for_rtt(RTT);
        let mut client = client_of(&[1], None);
        let mut outbox = Outbox::new(process(0), Random::seeded(1));
        let mut now = Instant::ZERO;
        let mut act = |now: Instant, input: &mut dyn FnMut(&mut Asking, &mut Effects<Asking>)| {
            let effects = outbox.input(now, Stamp::ZERO);
            input(&mut client, effects);
            client.settle(effects);
            client.check();
            let (mut said, mut told) = (Vec::new(), Vec::new());
            for effect in outbox.drain() {
                match effect {
                    Effect::Send { message, .. } => said.push(message),
                    Effect::Complete { outcome, .. } => told.push(outcome),
                    _ => {}
                }
            }
            (said, told)
        };
        let tell = |sequence: u64, told: Told<u64>| Said::Replies {
            incarnation: 1,
            reign: Reign::default(),
            spans: None,
            answers: vec![(sequence, told)],
        };
        let below = |said: &[Said]| match said {
            [Said::Requests { below, asks, .. }] if asks.len() == 1 => *below,
            said => panic!("{said:?}"),
        };
        let ask = |ticket: u64| {
            move |client: &mut Asking, effects: &mut Effects<Asking>| {
                client.request(Ticket(ticket), Request::Command(7), effects);
            }
        };
        assert_eq!(below(&act(now, &mut ask(1)).0), 1);
        for outcomes in [vec![Outcome::Replied(5)], vec![]] {
            let (_, told) = act(now, &mut |client, effects| {
                client.receive(process(1), tell(1, Told::Placed(5)), effects);
            });
            assert_eq!(told, outcomes, "answered, once");
        }
        assert_eq!(below(&act(now, &mut ask(2)).0), 1);
        now = now + service.limit;
        let (said, told) = act(now, &mut |client, effects| client.expire(Timer::Sweep, effects));
        assert_eq!(told, [Outcome::Unknown], "the second is given up");
        let status = Said::Status {
            client: Identity { process: process(0), incarnation: 1 }.into(),
            sequences: vec![1],
        };
        assert_eq!(said, [status]);
        let (_, told) =
            act(now, &mut |client, effects| client.receive(process(1), tell(1, Told::Done(5)), effects));
        assert_eq!(told, []);
        assert_eq!(below(&act(now, &mut ask(3)).0), 3);
    }

    /// One that has led says so unasked, and may do so late.
    #[test]
    fn who_is_not_asked_any_more_turns_nobody_away() {
        let mut client = client_of(&[1, 2, 3], Some(1));
        let mut outbox = Outbox::new(process(0), Random::seeded(1));
        let mut asked = |input: &mut dyn FnMut(&mut Asking, &mut Effects<Asking>)| {
            let effects = outbox.input(Instant::ZERO, Stamp::ZERO);
            input(&mut client, effects);
            client.settle(effects);
            let asked = outbox.drain().filter_map(|effect| match effect {
                Effect::Send { to, message: Message::Requests { asks, .. }, .. } => {
                    Some((to.node.0, asks.len()))
                }
                _ => None,
            });
            asked.collect::<Vec<_>>()
        };
        assert_eq!(asked(&mut |client, effects| client.ask(Ticket(1), 7, effects)), [(1, 1)]);
        for (from, leader, expected) in [(1, 2, vec![(2, 1)]), (1, 3, vec![]), (2, 3, vec![(3, 1)])] {
            let redirect = || Message::Redirect {
                incarnation: 1,
                reign: Reign::default(),
                leader: Some(process(leader)),
                sequences: Vec::new(),
            };
            let said = asked(&mut |client, effects| client.receive(process(from), redirect(), effects));
            assert_eq!(said, expected, "{from} of {leader}");
        }
    }

    type Large = Client<Vec<u8>, u64, u64, multipaxos::Parameters>;

    /// A client of three replicas that has a command of so many bytes.
    struct Waiting {
        client: Large,
        outbox: Outbox<Large>,
        now: Instant,
    }

    impl Waiting {
        fn new(leader: Option<u16>, bytes: usize) -> Waiting {
            let outbox = Outbox::new(process(0), Random::seeded(1));
            let client = open_client(&[1, 2, 3], leader);
            let mut waiting = Waiting { client, outbox, now: Instant::from_nanos(1) };
            let request = Request::Command(vec![7; bytes]);
            waiting.act(|client, effects| client.request(Ticket(1), request, effects));
            waiting
        }

        /// Who is asked because of this, and for how many commands. Repeats are left out, as where what they repeat is on its way.
        fn act(&mut self, input: impl FnOnce(&mut Large, &mut Effects<Large>)) -> Vec<(u16, usize)> {
            let effects = self.outbox.input(self.now, Stamp::ZERO);
            input(&mut self.client, effects);
            self.client.settle(effects);
            self.client.check();
            let asked = self.outbox.drain().filter_map(|effect| match effect {
                Effect::Send { urgency: Urgency::Repeat, .. } => None,
                Effect::Send { to, message: Message::Requests { asks, .. }, .. } => {
                    Some((to.node.0, asks.len()))
                }
                Effect::Send { to, message: Message::Around(said), .. } => Some((to.node.0, said.asks.len())),
                _ => None,
            });
            asked.collect()
        }

        /// This one says that it takes commands.
        fn hear(&mut self, from: u16) -> Vec<(u16, usize)> {
            self.hear_of(from, Vec::new())
        }

        /// It answers these commands.
        fn hear_of(&mut self, from: u16, answers: Vec<(u64, Told<u64>)>) -> Vec<(u16, usize)> {
            let (incarnation, reign) = (1, Reign::default());
            let replies = Message::Replies { incarnation, reign, spans: None, answers };
            self.act(|client, effects| client.receive(process(from), replies, effects))
        }

        /// It answers these commands by way of this one.
        fn hear_by_way(&mut self, from: u16, answers: Vec<(u64, Told<u64>)>) -> Vec<(u16, usize)> {
            let (incarnation, reign) = (1, Reign::default());
            let replies = Message::<Vec<u8>, u64, u64>::Replies { incarnation, reign, spans: None, answers };
            let (_, pass) = replies.for_client(process(0), Some(process(from)));
            self.act(|client, effects| client.receive(process(from), pass, effects))
        }

        /// Who is asked for how many commands in so many sweeps, where these answer when they are asked whether they take any.
        fn sweep(&mut self, sweeps: u64, answer: &[u16]) -> Vec<(u16, usize)> {
            let mut all = Vec::new();
            for _ in 0..sweeps {
                self.now = self.now + self.client.service.retry / SWEEPS;
                let asked = self.act(|client, effects| client.expire(Timer::Sweep, effects));
                for from in answer {
                    if asked.contains(&(*from, 0)) {
                        all.extend(self.hear(*from));
                    }
                }
                all.extend(asked);
            }
            all
        }
    }

    /// Over a line that is full a question takes longer than a client waits. Nothing large is said twice for that: all are
    /// asked first, and those who take no commands ask the one who does.
    #[test]
    fn who_was_told_much_and_is_silent_is_not_turned_away_from_before_another_answers() {
        for leader in [Some(1), None] {
            let mut waiting = Waiting::new(leader, 1 << 20);
            let asked = waiting.sweep(6 * SWEEPS, &[]);
            assert!(asked.iter().all(|(_, commands)| *commands == 0), "{asked:?}");
            assert!((1..=3).all(|replica| asked.contains(&(replica, 0))), "{asked:?}");
            assert_eq!(waiting.hear(1), [], "it lives");
            waiting.sweep(2 * SWEEPS, &[]);
            assert_eq!(waiting.hear(3), [(3, 1)], "it is turned to");
        }
        let mut little = Waiting::new(None, 100);
        assert!(little.sweep(6 * SWEEPS, &[]).contains(&(2, 1)), "what is small is said at once");
    }

    /// By way of another it is served, and it stays with that one until the leader answers what it was itself asked.
    #[test]
    fn a_leader_that_is_not_heard_is_asked_by_way_of_another_until_it_is_heard_again() {
        let mut waiting = Waiting::new(Some(1), 100);
        assert!(waiting.sweep(SWEEPS, &[]).contains(&(2, 1)), "the first is silent");
        assert_eq!(waiting.hear_by_way(2, vec![(1, Told::Done(5))]), []);
        for ticket in 2..5 {
            let request = Request::Command(vec![7; 100]);
            let effects = waiting.outbox.input(waiting.now, Stamp::ZERO);
            waiting.client.request(Ticket(ticket), request, effects);
            waiting.client.settle(effects);
            let said: Vec<_> = waiting.outbox.drain().collect();
            let around = said.iter().any(|effect| match effect {
                Effect::Send { to, message: Message::Around(said), .. } => {
                    *to == process(2) && !said.forwarded && said.unheard == [process(1)]
                }
                _ => false,
            });
            assert!(around, "{said:?}");
            assert_eq!(waiting.hear_by_way(3, Vec::new()), [], "nor is a third turned to");
            assert_eq!(waiting.hear_by_way(2, vec![(ticket, Told::Done(5))]), []);
            assert!(waiting.client.outstanding.is_empty(), "it is served");
        }
        waiting.act(|client, effects| client.request(Ticket(5), Request::Command(vec![7; 100]), effects));
        let mut tried = Vec::new();
        for _ in 0..4 {
            tried.extend(waiting.sweep(SWEEPS / 2, &[]));
            tried.extend(waiting.hear_by_way(2, Vec::new()));
        }
        assert!(tried.iter().all(|(_, commands)| *commands == 0), "{tried:?}");
        assert_eq!(tried.iter().filter(|asked| **asked == (1, 0)).count(), 2, "once in a while: {tried:?}");
        assert_eq!(waiting.hear(1), [(1, 1)], "all is said to it again");
        assert_eq!(waiting.client.target.unheard(waiting.now), []);
        assert_eq!(waiting.hear_by_way(2, Vec::new()), [], "and what comes late changes nothing");
    }

    /// One that has led says so by way of the next, which the client asks already: what it had was not passed on.
    #[test]
    fn who_hands_on_that_it_leads_itself_is_told_all_again() {
        let mut waiting = Waiting::new(Some(1), 100);
        assert!(waiting.sweep(SWEEPS, &[]).contains(&(2, 1)), "the first is silent");
        let (incarnation, reign, sequences) = (1, Reign::default(), Vec::new());
        let leader = Some(process(2));
        let redirect = Message::<Vec<u8>, u64, u64>::Redirect { incarnation, reign, leader, sequences };
        let (_, pass) = redirect.for_client(process(0), Some(process(2)));
        assert_eq!(waiting.act(|client, effects| client.receive(process(2), pass, effects)), [(2, 1)]);
    }

    /// What is handed on is for another, of a former life, or cannot be read.
    #[test]
    fn what_is_handed_on_and_not_for_this_client_is_passed_over() {
        let mut waiting = Waiting::new(Some(1), 100);
        let replies = |incarnation| Message::<Vec<u8>, u64, u64>::Replies {
            incarnation,
            reign: Reign::default(),
            spans: None,
            answers: vec![(1, Told::Done(5))],
        };
        let pass = |to, message: Vec<u8>| Message::Pass { to, message: Blob::from(message) };
        let nested = pass(process(0), wire::encode(&replies(1)));
        for message in [
            pass(process(7), wire::encode(&replies(1))),
            pass(process(0), wire::encode(&replies(2))),
            pass(process(0), wire::encode(&nested)),
            pass(process(0), vec![255; 9]),
            pass(process(0), Vec::new()),
        ] {
            waiting.act(|client, effects| client.receive(process(2), message, effects));
            assert_eq!(waiting.client.outstanding.len(), 1, "it was answered");
        }
        waiting.act(|client, effects| client.receive(process(2), nested, effects));
        assert!(waiting.client.outstanding.is_empty());
    }

    /// Nothing large is said to another before it has handed something on, and not as long as the leader may only be slow.
    #[test]
    fn who_was_told_much_and_is_not_heard_is_left_for_who_hands_on_what_it_says() {
        let mut waiting = Waiting::new(Some(1), 1 << 20);
        waiting.sweep(SWEEPS * 3 / 2, &[]);
        assert_eq!(waiting.hear_by_way(3, Vec::new()), []);
        waiting.sweep(SWEEPS, &[]);
        assert_eq!(waiting.hear_by_way(3, Vec::new()), [(3, 1)]);
        assert_eq!(waiting.client.target.unheard(waiting.now), [process(1)]);
    }

    /// Where nobody leads, who takes long to carry what it was told lives as well, but not without end.
    #[test]
    fn who_was_told_much_and_answers_is_asked_on_until_it_has_long_got_on_with_nothing() {
        let Service { limit, retry, .. } = Service::for_rtt(RTT);
        let sweeps = |time: Span| SWEEPS * (time.as_nanos() / retry.as_nanos());
        let only_home = |asked: &[(u16, usize)]| asked.iter().all(|asked| *asked == (1, 0));
        let mut waiting = Waiting::new(None, 1 << 20);
        let asked = waiting.sweep(sweeps(limit * 3 / 4), &[1, 2, 3]);
        assert!(!asked.is_empty() && only_home(&asked), "{asked:?}");
        let asked = waiting.sweep(SWEEPS, &[1, 2, 3]);
        assert!(asked.contains(&(2, 1)) && !asked.contains(&(3, 1)), "another may get on: {asked:?}");

        let mut waiting = Waiting::new(None, 1 << 20);
        waiting.sweep(sweeps(limit * 3 / 4), &[1, 2, 3]);
        let request = Request::Command(vec![7; 1 << 20]);
        assert_eq!(waiting.act(|client, effects| client.request(Ticket(2), request, effects)), [(1, 1)]);
        waiting.hear_of(1, vec![(1, Told::Done(5))]);
        let asked = waiting.sweep(sweeps(limit / 2), &[1, 2, 3]);
        assert!(only_home(&asked), "it gets on: {asked:?}");
    }

    #[test]
    fn a_change_that_one_answers_who_was_left_says_nothing_of_who_is_asked() {
        let mut waiting = Waiting::new(None, 100);
        waiting.act(|client, effects| client.request(Ticket(2), Request::Change(Change::Resign), effects));
        assert!(waiting.sweep(SWEEPS, &[]).contains(&(2, 1)), "the first is silent");
        waiting.sweep(SWEEPS - 1, &[]);
        let (number, result, leader) = (numbers_of(1) + 2, Ok(()), None);
        let administered = Message::Administered { number, result, leader };
        waiting.act(|client, effects| client.receive(process(1), administered, effects));
        assert!(waiting.sweep(1, &[]).contains(&(3, 1)), "and so is the second");
    }

    #[test]
    fn two_that_get_on_with_nothing_leave_time_for_a_third() {
        let Service { limit, retry, .. } = Service::for_rtt(RTT);
        let sweeps = SWEEPS * (limit.as_nanos() / retry.as_nanos() - 1);
        let asked = Waiting::new(None, 100).sweep(sweeps, &[1, 2, 3]);
        let told: Vec<_> = asked.into_iter().filter(|(_, commands)| *commands > 0).collect();
        assert_eq!(told, [(2, 1), (3, 1)], "each is given time");
    }

    /// Nothing of it is on its way, so that it waits behind nothing.
    #[test]
    fn what_was_refused_is_asked_for_again_as_if_for_the_first_time() {
        let mut waiting = Waiting::new(None, 1 << 20);
        assert_eq!(waiting.hear_of(1, vec![(1, Told::Overloaded)]), []);
        assert!(waiting.sweep(SWEEPS + 1, &[1]).contains(&(1, 1)), "there may be room");
        let (incarnation, reign, leader, sequences) = (1, Reign::default(), None, vec![1]);
        let redirect = Message::Redirect { incarnation, reign, leader, sequences };
        assert_eq!(waiting.act(|client, effects| client.receive(process(1), redirect, effects)), []);
        assert!(waiting.sweep(2, &[1]).contains(&(1, 1)), "it may take commands");
    }

    #[test]
    fn phases_sum_to_the_whole() {
        let total = Span::from_micros(161_503);
        for spans in [[1, 300, 87_700, 12, 3], [0, 0, 0, 0, 0], [0, 0, 161_503, 0, 0]] {
            let phases = phases(total, Some(spans));
            let sum: u64 = phases.iter().map(|phase| phase.as_nanos()).sum();
            assert_eq!(sum, total.as_nanos(), "{spans:?}");
        }
        // A sample of another command, longer than this one's whole life, says nothing about it.
        assert_eq!(phases(total, Some([0, 0, 161_504, 0, 0])), [Span::ZERO; Phase::ALL.len()]);
    }
}
