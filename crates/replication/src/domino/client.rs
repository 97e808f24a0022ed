//! The client: it measures the replicas, chooses for each command a stamp or a leader, counts fast votes, and
//! asks again what stays without an answer.
//!
//! One such process serves all connections of a node's gateway, and the one on a region's first node is the measuring
//! proxy of the region (`specs/domino.md` 2.3): probes cost the same however many clients there are.
//!
//! Whatever stays without an answer is asked for by name first: a replica that has executed it answers from the
//! exactly-once table. Only what is not known there is sent again.
//!
//! A command is finished here when a replica has executed it, or, where the keyspace replies at commit and the
//! command is a blind write, when it cannot lose its place any more. It is asked for again until it was
//! executed in both cases, since replicas forget what this client no longer waits for.

use super::message::{Message as OrderMessage, Reject};
use super::predict::{Choice, IDLE_FACTOR, Predictor};
use super::{Family, Mutation, Parameters};
use crate::changes::{Answered, Changes};
use crate::client::{Nothing, SWEEPS, Setup, phases};
use crate::family::MessageOf;
use crate::message::{Entry, Message, Note, Spans, Told, in_parts};
use crate::order::{Knobs, Member};
use crate::request::{Change, Outcome, Refusal, Request};
use crate::service::{Reply, Service};
use isochrone_core::{
    Blob, ClientId, CommandId, Effects, Fact, Identity, Instant, Malformed, Path, Phase, Process, ProcessId,
    ReplicaId, ReplicaSet, Series, Snapshot, Span, Stamp, StateMachine, Ticket,
};
use std::collections::BTreeMap;
use std::sync::Arc;

type Spoken<S> = MessageOf<Family, <S as StateMachine>::Command, <S as StateMachine>::Reply>;

/// A client of Domino over the state machine `S`. See the module.
#[derive(Clone, Hash, Debug)]
pub struct Client<S: StateMachine> {
    me: ClientId,
    service: Service,
    knobs: Knobs<Parameters>,
    /// How often the members were changed by stop and hand-over, as far as was heard.
    epoch: u32,
    members: Arc<[Member]>,
    /// The replicas, nearest first, as they were placed.
    nearest: Arc<[ProcessId]>,
    predictor: Predictor,
    /// Who measures for this one, where it is another client of the region.
    proxy: Option<ProcessId>,
    next: u64,
    /// The highest stamp at which anything is known to be committed.
    placed: u64,
    /// The highest stamp that was sent and still counts, and for which command.
    stamped: Option<(u64, u64)>,
    outstanding: Series<Asked<S::Command>>,
    /// By the ticket's number.
    tickets: Series<u64>,
    fresh: Vec<u64>,
    changes: Changes,
    /// The replica that is asked for changes.
    target: usize,
    sweeping: bool,
    asked: Instant,
    replies: std::marker::PhantomData<S>,
}

/// A command that was asked and is not known to be executed.
#[derive(Clone, Hash, Debug)]
struct Asked<C> {
    /// None once the host was answered or has lost interest.
    ticket: Option<Ticket>,
    command: C,
    at: Instant,
    due: Instant,
    attempts: u32,
    /// Whether, since it was sent, a replica was asked what became of it.
    asked_after: bool,
    /// How often the leader that was asked for it has said that it is under way.
    waited: u32,
    /// Whether it is a read that must be executed with its effect.
    touching: bool,
    /// Whether the host was told that it has its place: then it must be executed.
    committed: bool,
    way: Way,
}

/// The way a command was sent last.
#[derive(Clone, Hash, Debug)]
enum Way {
    /// Not yet.
    Unsent,
    /// To all, with this stamp; who voted for it in which epoch, and who did not.
    Fast { stamp: u64, votes: BTreeMap<u32, ReplicaSet>, rejected: ReplicaSet, judged: Option<bool> },
    /// Through the replica on this seat.
    Led(usize),
    /// So many have refused it that nobody can choose it any more, or only by recovery: it goes through the
    /// best leader at once.
    Refused,
}

impl Way {
    fn leader(&self) -> Option<usize> {
        if let Way::Led(seat) = self { Some(*seat) } else { None }
    }
}

impl<C> Asked<C> {
    /// The stamp with which it was sent to all, as long as nobody looks for another place: not once so many have refused
    /// it, or a leader is asked.
    fn stamp(&self) -> Option<u64> {
        match self.way {
            Way::Fast { stamp, .. } if self.attempts == 0 => Some(stamp),
            _ => None,
        }
    }

    /// Whether it is time to ask what became of it. Sending it again would give it a second place, which every replica
    /// records. That comes next, where it is unknown, nobody answers, or it goes on waiting: another leader's lane may
    /// be sooner than the place it waits for. Reads are remembered by nobody, and small.
    fn is_asked_after<S: StateMachine<Command = C>>(&self) -> bool {
        let sent = matches!(self.way, Way::Fast { .. } | Way::Led(_));
        let reads = S::reads_only(&self.command) && !self.touching;
        sent && !reads && !self.asked_after
    }

    /// It is to be sent again.
    fn again(&mut self, now: Instant, retry: Span) {
        self.attempts += 1;
        self.due = now + retry * u64::from(self.attempts.min(4));
    }
}

/// The timers of a client.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// What is due is asked for again; what is too old is given up.
    Sweep,
    /// The replicas are probed.
    Probe,
}

/// A client that was not asked anything for this long probes more rarely.
const IDLE: Span = Span::from_secs(30);
/// How often a leader that has proposed a command is believed that this takes long.
const WAITS: u32 = 8;
/// Stamps of one node end in its number, so that two nodes never choose the same.
const SHARDS: u64 = 1_000;

impl<S: StateMachine> Client<S> {
    /// What it has measured.
    pub fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    fn seat_of(&self, process: ProcessId) -> Option<usize> {
        self.members.iter().position(|member| member.process == process)
    }

    /// The first command that is not finished: the replicas may forget those before it.
    fn below(&self) -> u64 {
        self.outstanding.first().map_or(self.next, |(sequence, _)| sequence)
    }

    /// What is sent next lies behind this: behind what is committed, of which the host may know, and, so that commands
    /// that are under way together keep their order, behind the stamps of those that may get them.
    fn above(&mut self, now: Instant, wall: Stamp) -> u64 {
        if let Some((stamp, sequence)) = self.stamped {
            // One by a clock that was wrong then is refused: whoever kept behind it would be too, and so on.
            let horizon = self.predictor.horizon(now, wall);
            if stamp > horizon || self.outstanding.get(sequence).and_then(Asked::stamp).is_none() {
                let stamps = self.outstanding.iter();
                let stamps = stamps.filter_map(|(sequence, asked)| Some((asked.stamp()?, sequence)));
                self.stamped = stamps.filter(|(stamp, _)| *stamp <= horizon).max();
            }
        }
        self.stamped.map_or(0, |(stamp, _)| stamp).max(self.placed)
    }

    fn say(&self, seat: usize, message: OrderMessage<Entry<S::Command>>, effects: &mut Effects<Self>) {
        if let Some(member) = self.members.get(seat) {
            effects.send(member.process, Message::Order { epoch: self.epoch, message });
        }
    }

    fn ask(&mut self, ticket: Ticket, command: S::Command, effects: &mut Effects<Self>) {
        if self.outstanding.len() >= self.service.outstanding {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::Overloaded));
        }
        let now = effects.now();
        self.asked = now;
        let sequence = self.next;
        self.next += 1;
        let asked = Asked {
            ticket: Some(ticket),
            command,
            at: now,
            due: now + self.service.retry,
            attempts: 0,
            asked_after: false,
            waited: 0,
            touching: false,
            committed: false,
            way: Way::Unsent,
        };
        self.outstanding.insert(sequence, asked);
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

    /// The member that is nearest by measurement, else as placed; after failures each in turn.
    fn fallback(&self, attempts: u32, now: Instant) -> usize {
        let answering = (0..self.members.len()).filter(|seat| self.predictor.answers(*seat, now)).count();
        let placed = self.nearest.iter().filter_map(|process| self.seat_of(*process));
        let mut seats: Vec<usize> = placed.collect();
        seats.extend(
            (0..self.members.len()).filter(|seat| !self.nearest.contains(&self.members[*seat].process)),
        );
        if answering > 0 {
            seats.retain(|seat| self.predictor.answers(*seat, now));
        }
        seats.get(attempts as usize % seats.len().max(1)).copied().unwrap_or(0)
    }

    /// Sends what is new, or due again, one message a replica.
    fn send_fresh(&mut self, effects: &mut Effects<Self>) {
        if self.fresh.is_empty() {
            return;
        }
        let now = effects.now();
        let below = self.below();
        let fallback = self.fallback(0, now);
        let choice = self.predictor.choose(now, effects.stamp(), fallback);
        let mut fast: Vec<(u64, Entry<S::Command>)> = Vec::new();
        let mut led: BTreeMap<usize, Vec<Entry<S::Command>>> = BTreeMap::new();
        let mut repeats: BTreeMap<usize, Vec<Entry<S::Command>>> = BTreeMap::new();
        let above = self.above(now, effects.stamp());
        let mut last = above;
        let best = self.predictor.leader(now).map_or(fallback, |(_, seat)| seat);
        for sequence in std::mem::take(&mut self.fresh) {
            let Some(attempts) = self.outstanding.get(sequence).map(|asked| asked.attempts) else {
                continue;
            };
            let again = self.fallback(attempts, now);
            let shard = u64::from(self.me.process.node.0) % SHARDS;
            let Some(asked) = self.outstanding.get_mut(sequence) else { continue };
            asked.asked_after = false;
            let (id, command) = (CommandId { client: self.me, sequence }, asked.command.clone());
            let entry = match S::reads_only(&command) && !asked.touching {
                true => Entry::Read { id, below, command },
                false => Entry::Command { id, below, command },
            };
            match choice {
                // A copy goes through a leader: whatever became of the first, it is executed once.
                Choice::Fast(stamp) if asked.attempts == 0 => {
                    // The next stamp that ends in this node's number.
                    let least = stamp.max(last + 1);
                    let ahead = (shard + SHARDS - least % SHARDS) % SHARDS;
                    let stamp = least + ahead;
                    (last, self.stamped) = (stamp, Some((stamp, sequence)));
                    let (votes, rejected) = (BTreeMap::new(), ReplicaSet::EMPTY);
                    asked.way = Way::Fast { stamp, votes, rejected, judged: None };
                    fast.push((stamp, entry));
                }
                Choice::Led(seat) if asked.attempts == 0 => {
                    asked.way = Way::Led(seat);
                    led.entry(seat).or_default().push(entry);
                }
                _ => {
                    let seat = if matches!(asked.way, Way::Refused) { best } else { again };
                    // Whether that one was asked for it before.
                    let repeated = match asked.way {
                        Way::Unsent | Way::Refused => false,
                        Way::Fast { .. } => true,
                        Way::Led(leader) => leader == seat,
                    };
                    asked.way = Way::Led(seat);
                    if repeated { &mut repeats } else { &mut led }.entry(seat).or_default().push(entry);
                }
            }
        }
        if !fast.is_empty() {
            in_parts(fast, |values| {
                for seat in 0..self.members.len() {
                    self.say(seat, OrderMessage::Propose { values: values.clone() }, effects);
                }
            });
        }
        for (seat, values) in led {
            in_parts(values, |values| {
                self.say(seat, OrderMessage::ProposeLed { above, values }, effects);
            });
        }
        for (seat, values) in repeats {
            in_parts(values, |values| {
                let message = OrderMessage::ProposeLed { above, values };
                effects.repeating(|effects| self.say(seat, message, effects));
            });
        }
    }

    fn on_voted(&mut self, from: usize, epoch: u32, votes: &[(u64, u64)], effects: &mut Effects<Self>) {
        let need = self.knobs.0.quorums(self.members.len()).fast();
        let epoch = if self.knobs.0.mutated(Mutation::EpochsTogether) { 0 } else { epoch };
        for (at, sequence) in votes {
            let Some(asked) = self.outstanding.get_mut(*sequence) else { continue };
            let Way::Fast { stamp, votes, judged, .. } = &mut asked.way else { continue };
            if stamp != at {
                continue;
            }
            let voters = votes.entry(epoch).or_default();
            voters.insert(ReplicaId(from as u8));
            if voters.len() >= need && *judged != Some(true) {
                if judged.is_none() {
                    self.predictor.outcome(true, effects.now());
                }
                *judged = Some(true);
                self.commit(*sequence, *at, Path::Fast, effects);
            }
        }
    }

    fn on_rejected(&mut self, from: usize, votes: &[(u64, u64, Reject)], effects: &mut Effects<Self>) {
        let (n, now) = (self.members.len(), effects.now());
        let need = self.knobs.0.quorums(n).fast();
        for (at, sequence, reject) in votes {
            let Some(asked) = self.outstanding.get_mut(*sequence) else { continue };
            let Way::Fast { stamp, rejected, judged, .. } = &mut asked.way else { continue };
            if stamp != at {
                continue;
            }
            rejected.insert(ReplicaId(from as u8));
            let count = rejected.len();
            if count > n - need && judged.is_none() {
                *judged = Some(false);
                self.predictor.outcome(false, now);
                let name = match reject {
                    Reject::Late => "fast_late",
                    Reject::Occupied => "fast_occupied",
                    Reject::Closed => "fast_closed",
                };
                effects.mark(Note::Fact(Fact::Counted(name)));
            }
            if count >= need {
                asked.attempts += 1;
                asked.due = now + self.service.retry;
                self.fresh.push(*sequence);
                asked.way = Way::Refused;
            }
        }
    }

    /// A command cannot lose its place any more.
    fn commit(&mut self, sequence: u64, at: u64, path: Path, effects: &mut Effects<Self>) {
        self.placed = self.placed.max(at);
        if self.service.reply != Reply::Commit {
            return;
        }
        let Some(asked) = self.outstanding.get_mut(sequence) else { return };
        let Some(reply) = S::blind(&asked.command) else { return };
        let Some(ticket) = asked.ticket.take() else { return };
        asked.committed = true;
        let total = effects.now().since(asked.at);
        self.tickets.remove(ticket.0);
        effects.complete(ticket, Outcome::Replied(reply));
        let id = CommandId { client: self.me, sequence };
        let phases = [Span::ZERO; Phase::ALL.len()];
        effects.mark(Note::Fact(Fact::Committed { id, path, total, phases }));
    }

    fn on_committed(&mut self, places: &[(u64, u64)], effects: &mut Effects<Self>) {
        for (sequence, at) in places {
            let path = match self.outstanding.get(*sequence).map(|asked| &asked.way) {
                Some(Way::Fast { stamp, .. }) if stamp == at => Path::Slow,
                _ => Path::Leader,
            };
            self.commit(*sequence, *at, path, effects);
        }
    }

    fn on_replies(
        &mut self,
        spans: Option<Spans>,
        answers: Vec<(u64, Told<S::Reply>)>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        for (sequence, told) in answers {
            let Some(asked) = self.outstanding.get_mut(sequence) else { continue };
            let outcome = match told {
                // The same read is on its way with its effect, and is answered with that.
                Told::Read(_) | Told::Looked(_) if asked.touching => continue,
                Told::Done(reply) | Told::Read(reply) | Told::Looked(reply) => Outcome::Replied(reply),
                Told::Forgotten => Outcome::Unknown,
                // Nothing is speculative here, and of a place its stamp is told.
                Told::Speculative(_) | Told::Near(_) | Told::Placed(_) => continue,
                Told::Touches => {
                    if !std::mem::replace(&mut asked.touching, true) {
                        (asked.due, asked.way) = (now + self.service.retry, Way::Unsent);
                        self.fresh.push(sequence);
                    }
                    continue;
                }
                Told::Overloaded => {
                    // Not a refusal to the host: a copy of the command may be on its way elsewhere.
                    asked.attempts += 1;
                    asked.due = now + self.service.retry;
                    continue;
                }
            };
            let known = matches!(outcome, Outcome::Replied(_));
            let Some(asked) = self.outstanding.remove(sequence) else { continue };
            let Some(ticket) = asked.ticket else { continue };
            self.tickets.remove(ticket.0);
            effects.complete(ticket, outcome);
            if !known {
                continue;
            }
            let path = match &asked.way {
                Way::Fast { judged: Some(true), .. } => Path::Fast,
                Way::Fast { .. } => Path::Slow,
                Way::Led(_) | Way::Unsent | Way::Refused => Path::Leader,
            };
            let total = now.since(asked.at);
            let id = CommandId { client: self.me, sequence };
            let phases = phases(total, spans.filter(|_| path == Path::Leader && asked.attempts == 0));
            effects.mark(Note::Fact(Fact::Committed { id, path, total, phases }));
        }
    }

    /// The members have changed.
    fn on_ended(&mut self, epoch: u32, members: Arc<[Member]>, effects: &mut Effects<Self>) {
        if epoch <= self.epoch {
            return;
        }
        (self.epoch, self.members) = (epoch, members);
        self.predictor.follow(self.members.iter().map(|member| member.process));
        self.target = 0;
        // All places of this order lie behind those of the former, whose clock may have been ahead.
        (self.stamped, self.placed) = (None, 0);
        // What the old order had not executed is lost with it.
        let now = effects.now();
        for (sequence, asked) in self.outstanding.iter_mut() {
            asked.attempts += 1;
            (asked.due, asked.way) = (now + self.service.retry, Way::Unsent);
            self.fresh.push(sequence);
        }
    }

    /// Asks again for what is due, and gives up what is too old.
    fn sweep(&mut self, effects: &mut Effects<Self>) {
        self.sweeping = false;
        let now = effects.now();
        let limit = self.service.limit;
        let old = |asked: &Asked<S::Command>| now.since(asked.at) >= limit && !asked.committed;
        let over: Vec<u64> =
            self.outstanding.iter().filter(|(_, asked)| old(asked)).map(|(sequence, _)| sequence).collect();
        for sequence in over {
            if let Some(Asked { ticket: Some(ticket), .. }) = self.outstanding.remove(sequence) {
                self.tickets.remove(ticket.0);
                effects.complete(ticket, Outcome::Unknown);
            }
        }
        let mut queries = Vec::new();
        for (sequence, asked) in self.outstanding.iter_mut().filter(|(_, asked)| asked.due <= now) {
            if asked.is_asked_after::<S>() {
                asked.asked_after = true;
                asked.due = now + self.service.retry;
                queries.push((sequence, asked.attempts, asked.way.leader()));
            } else {
                if asked.asked_after {
                    effects.mark(Note::Fact(Fact::Counted("sent_again")));
                }
                asked.again(now, self.service.retry);
                self.fresh.push(sequence);
            }
        }
        self.ask_after(queries, effects);
        self.look_for_members(effects);
        for ticket in self.changes.expire(now, &self.service) {
            effects.complete(ticket, Outcome::Unknown);
        }
        let due = self.changes.due(now, &self.service);
        if !due.is_empty() {
            self.target = (self.target + 1) % self.members.len().max(1);
        }
        for (number, change) in due {
            self.send_change(number, change, effects);
        }
        if !self.outstanding.is_empty() || !self.changes.is_empty() {
            self.sweep_soon(effects);
        }
    }

    /// Where no member answers, they may be others by now: who is in a later epoch says who they are.
    fn look_for_members(&self, effects: &mut Effects<Self>) {
        let (sent, at, epoch) = (effects.stamp(), effects.now(), self.epoch);
        if (0..self.members.len()).any(|seat| self.predictor.answers(seat, at)) {
            return;
        }
        for placed in self.nearest.iter().filter(|placed| self.seat_of(**placed).is_none()) {
            let probe = Message::Order { epoch, message: OrderMessage::Probe { sent, at } };
            effects.urgently(|effects| effects.send(*placed, probe));
        }
    }

    /// Asks what became of commands that were sent: the leader that was asked, if it answers at all, or else the nearest
    /// replica that does.
    fn ask_after(&self, queries: Vec<(u64, u32, Option<usize>)>, effects: &mut Effects<Self>) {
        let now = effects.now();
        let mut asked: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (sequence, attempts, leader) in queries {
            let leader = leader.filter(|leader| self.predictor.answers(*leader, now));
            let seat = leader.unwrap_or_else(|| self.fallback(attempts, now));
            asked.entry(seat).or_default().push(sequence);
            effects.mark(Note::Fact(Fact::Counted("status_asked")));
        }
        for (seat, sequences) in asked {
            if let Some(member) = self.members.get(seat) {
                effects.send(member.process, Message::Status { client: self.me, sequences });
            }
        }
    }

    /// A replica has proposed some commands, which may be large and take long on their way to the others.
    fn on_waiting(&mut self, from: ProcessId, waiting: &[u64], now: Instant) {
        let seat = self.seat_of(from);
        for sequence in waiting {
            if let Some(asked) = self.outstanding.get_mut(*sequence)
                && asked.way.leader().is_some_and(|leader| Some(leader) == seat)
                && asked.waited < WAITS
                && std::mem::take(&mut asked.asked_after)
            {
                asked.waited += 1;
                asked.due = now + self.service.retry * u64::from(asked.waited.min(4));
            }
        }
    }

    /// A replica knows nothing of some commands: they are sent again.
    fn on_unknown(&mut self, unknown: &[u64], effects: &mut Effects<Self>) {
        let now = effects.now();
        for sequence in unknown {
            if let Some(asked) = self.outstanding.get_mut(*sequence)
                && std::mem::take(&mut asked.asked_after)
            {
                effects.mark(Note::Fact(Fact::Counted("sent_again")));
                asked.again(now, self.service.retry);
                self.fresh.push(*sequence);
            }
        }
    }

    fn probe(&mut self, effects: &mut Effects<Self>) {
        let (sent, at) = (effects.stamp(), effects.now());
        let told = self.predictor.is_told(at);
        if let Some(proxy) = self.proxy {
            let message = OrderMessage::Measure { sent, at };
            let measure = Message::Order { epoch: self.epoch, message };
            effects.urgently(|effects| effects.send(proxy, measure));
        }
        // Whoever has a proxy measures for itself while that is silent.
        for seat in (0..self.members.len()).filter(|_| !told) {
            // Not urgent: a proposal would take as long.
            self.say(seat, OrderMessage::Probe { sent, at }, effects);
        }
        let idle = at.since(self.asked) >= IDLE && self.outstanding.is_empty();
        let Parameters { probe, window, samples, .. } = self.knobs.0;
        // Predictions stay good: the window holds enough samples all the same.
        let rare = (probe * IDLE_FACTOR).min(window / (samples as u64 + 2)).max(probe);
        effects.arm(Timer::Probe, if idle { rare } else { probe });
    }

    fn administer(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        // Numbers of changes are drawn from those of commands, which need not be dense at the replicas.
        let number = self.changes.begin(self.next, ticket, change, effects.now(), &self.service);
        self.next += 1;
        self.send_change(number, change, effects);
        self.sweep_soon(effects);
    }

    fn send_change(&self, number: u64, change: Change, effects: &mut Effects<Self>) {
        if let Some(member) = self.members.get(self.target) {
            effects.send(member.process, Message::Administer { number, change });
        }
    }

    fn on_administered(
        &mut self,
        from: ProcessId,
        number: u64,
        result: Result<(), Refusal>,
        leader: Option<ProcessId>,
        effects: &mut Effects<Self>,
    ) {
        match self.changes.answered(number, result) {
            Some(Answered::Over(ticket, outcome)) => effects.complete(ticket, outcome),
            Some(Answered::Elsewhere(change)) => match leader {
                Some(leader) if leader != from => {
                    effects.send(leader, Message::Administer { number, change });
                }
                _ => self.changes.hasten(number, effects.now(), &self.service),
            },
            None => {}
        }
    }
}

impl<S: StateMachine> Process for Client<S> {
    type Setup = Setup<Parameters>;
    type Message = Spoken<S>;
    type Record = ();
    type Request = Request<S::Command>;
    type Outcome = Outcome<S::Reply>;
    type Timer = Timer;
    type Mark = Note<Nothing>;

    fn open(identity: Identity, setup: &Setup<Parameters>) -> Self {
        assert!(!setup.members.is_empty(), "a client needs replicas");
        let processes = setup.members.iter().map(|member| member.process);
        Client {
            me: identity.into(),
            service: setup.service,
            knobs: Knobs(setup.parameters),
            epoch: 0,
            members: setup.members.clone(),
            nearest: setup.replicas.clone(),
            predictor: Predictor::new(setup.parameters, processes),
            proxy: setup.proxy,
            next: 1,
            placed: 0,
            stamped: None,
            outstanding: Series::default(),
            tickets: Series::default(),
            fresh: Vec::new(),
            changes: Changes::of(identity.incarnation),
            target: 0,
            sweeping: false,
            asked: Instant::ZERO,
            replies: std::marker::PhantomData,
        }
    }

    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Err(Malformed { what: "client snapshot", cause: "a client keeps nothing".to_owned() })
    }

    fn replay(&mut self, (): ()) {}

    fn start(&mut self, effects: &mut Effects<Self>) {
        self.asked = effects.now();
        self.probe(effects);
    }

    fn receive(&mut self, from: ProcessId, message: Spoken<S>, effects: &mut Effects<Self>) {
        let me = self.me.incarnation;
        match message {
            Message::Order { epoch, message: OrderMessage::Measure { sent, at } } if epoch == self.epoch => {
                // Somebody else's clients wait for what is measured here.
                self.asked = effects.now();
                let (received, distances) = (effects.stamp(), self.predictor.distances(effects.now()));
                let message = OrderMessage::Measured { sent, at, received, distances };
                let measured = Message::Order { epoch, message };
                effects.urgently(|effects| effects.send_ahead(from, measured));
            }
            Message::Order { epoch, message: OrderMessage::Measured { sent, at, received, distances } }
                if epoch == self.epoch && Some(from) == self.proxy =>
            {
                let now = effects.now();
                if at <= now && now.since(at) < self.knobs.0.probe_timeout {
                    self.predictor.told(now, sent, received, now.since(at), distances);
                }
            }
            Message::Order { epoch, message } if epoch == self.epoch => {
                let Some(seat) = self.seat_of(from) else { return };
                match message {
                    OrderMessage::Probed { sent, at, received, latency } => {
                        // An answer to a former life has another steady clock.
                        let now = effects.now();
                        if at <= now && now.since(at) < self.knobs.0.probe_timeout {
                            self.predictor.probed(from, now, sent, received, now.since(at), latency);
                        }
                    }
                    OrderMessage::Voted { incarnation, epoch, votes } if incarnation == me => {
                        self.on_voted(seat, epoch, &votes, effects);
                    }
                    OrderMessage::Rejected { incarnation, votes } if incarnation == me => {
                        self.on_rejected(seat, &votes, effects);
                    }
                    OrderMessage::Committed { incarnation, places } if incarnation == me => {
                        self.on_committed(&places, effects);
                    }
                    // For replicas, or for a former life.
                    _ => {}
                }
            }
            Message::Order { .. } => {}
            Message::Ended { epoch, members } => self.on_ended(epoch, members, effects),
            Message::Replies { incarnation, spans, answers, .. } if incarnation == me => {
                self.on_replies(spans, answers, effects);
            }
            // Those that wait are answered when they are executed.
            Message::Standing { incarnation, waiting, unknown } if incarnation == me => {
                self.on_waiting(from, &waiting, effects.now());
                self.on_unknown(&unknown, effects);
            }
            Message::Administered { number, result, leader } => {
                self.on_administered(from, number, result, leader, effects);
            }
            _ => {}
        }
    }

    fn request(&mut self, ticket: Ticket, request: Request<S::Command>, effects: &mut Effects<Self>) {
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
            self.outstanding.remove(sequence);
        }
        self.changes.cancel(ticket);
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Sweep => self.sweep(effects),
            Timer::Probe => self.probe(effects),
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
    use crate::family::Tuning;
    use isochrone_core::command::Touch;
    use isochrone_core::{Effect, Export, Footprint, NodeId, Outbox, Random};
    use serde::{Deserialize, Serialize};

    #[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
    struct Blind;
    #[derive(Clone, Hash, Debug)]
    struct Machine;

    impl Footprint for Blind {
        fn visit<'a>(&'a self, _: &mut dyn FnMut(Touch<'a>)) {}
    }
    impl Export for Machine {
        fn chunk(&self, _: u64) -> Option<Blob> {
            None
        }
    }
    impl StateMachine for Machine {
        type Command = Blind;
        type Reply = u8;
        type View = Machine;
        type Before = Self;
        fn apply(&mut self, _: &Blind) -> u8 {
            1
        }

        fn before(&self, _: &Self::Command) -> Self {
            self.clone()
        }

        fn revert(&mut self, before: Self) {
            *self = before;
        }
        fn reads_only(_: &Blind) -> bool {
            false
        }
        fn read(&self, _: &Blind) -> Option<u8> {
            None
        }
        fn blind(_: &Blind) -> Option<u8> {
            Some(1)
        }
        fn export(&self) -> Machine {
            Machine
        }
        fn absorb(&mut self, _: &[u8]) -> Result<(), Malformed> {
            Ok(())
        }
    }

    fn process(node: u16) -> ProcessId {
        ProcessId { node: NodeId(node), ..ProcessId::from_u64(0) }
    }

    /// Whether a client that is told of these votes, by seat and epoch, takes its command for committed.
    fn commits(votes: &[(u16, u32)], mutation: Option<Mutation>) -> bool {
        let ms = Span::from_millis;
        let mut parameters = Parameters::for_rtt(ms(100));
        (parameters.way, parameters.mutation) = (super::super::Way::Fast, mutation);
        let mut service = Service::for_rtt(ms(100));
        service.reply = Reply::Commit;
        let members = (0..3).map(|node| Member { replica: ReplicaId(node as u8), process: process(node) });
        let replicas: Arc<[ProcessId]> = (0..3).map(process).collect();
        let setup =
            Setup { replicas, members: members.collect(), leader: None, proxy: None, service, parameters };
        let mut client = Client::<Machine>::open(Identity { process: process(9), incarnation: 1 }, &setup);
        let mut outbox = Outbox::new(process(9), Random::seeded(1));
        let wall = |at: u64| Stamp::from_nanos(1_000_000_000_000 + at * 1_000_000);
        let order = |message| Message::Order { epoch: 0, message };
        let mut completed = false;
        let mut stamp = None;
        for k in 0..20 {
            for node in 0..3 {
                let effects = outbox.input(Instant::ZERO + ms(k * 10), wall(k * 10));
                let (sent, at) = (wall(k * 10), effects.now());
                let probed = OrderMessage::Probed { sent, at, received: sent, latency: Some(ms(50)) };
                client.receive(process(node), order(probed), effects);
                outbox.drain().for_each(drop);
            }
        }
        let effects = outbox.input(Instant::ZERO + ms(300), wall(300));
        client.request(Ticket(1), Request::Command(Blind), effects);
        client.settle(effects);
        for effect in outbox.drain() {
            if let Effect::Send {
                message: Message::Order { message: OrderMessage::Propose { values }, .. },
                ..
            } = effect
            {
                stamp = values.first().map(|(at, _)| *at);
            }
        }
        let at = stamp.expect("it goes the fast way");
        for (node, epoch) in votes {
            let effects = outbox.input(Instant::ZERO + ms(400), wall(400));
            let votes = vec![(at, 1)];
            let voted = OrderMessage::Voted { incarnation: 1, epoch: *epoch, votes };
            client.receive(process(*node), order(voted), effects);
            completed |= outbox.drain().any(|effect| matches!(effect, Effect::Complete { .. }));
        }
        completed
    }

    #[test]
    fn votes_of_different_epochs_do_not_add_up() {
        assert!(commits(&[(0, 0), (1, 0), (2, 0)], None));
        assert!(!commits(&[(0, 0), (1, 0), (1, 0)], None), "each replica counts once");
        assert!(!commits(&[(0, 0), (1, 1), (2, 1)], None));
        assert!(commits(&[(0, 0), (1, 1), (2, 1)], Some(Mutation::EpochsTogether)), "the bug shows");
    }
}
