//! The client of both variants of CURP: it asks the leader and the witnesses at the same moment, and makes of their
//! answers what `specs/curp.md` 3.2 says.
//!
//! A command has one number in all its life. While its reign is not known it is asked for without witnesses, and only
//! a safe answer counts. Under a later reign everything outstanding begins anew, with the witnesses of that one.
//! Reads go to a copy that is nearer than the leader, where the family has copies that may answer, and to the leader as
//! soon as the copy says that it does not, or says nothing ([`near`]).
//! While the master is silent, or whoever is asked knows none, and only the managers can name another, nothing is asked
//! that was not asked before: who leads is sought, by requests for nothing. So what comes to nothing then is known to have
//! had no effect.
//! Commands that no witness can keep (too large, too many keys, all keys) are asked for with a safe answer at once.
//! So are all while somebody is *unheard*: who was turned away from may lead, and not reach this client, and another hands on
//! what it says ([`Message::Pass`]). They are asked for under no reign in particular, since views may not come that way.

mod lead;
mod near;
mod records;
mod send;

use super::decision::Attempt;
use super::nearby::Nearby;
use super::paths::Paths;
use super::program::Program;
use super::{Bug, FastPath, Heard, Recording, View, key_hashes};
use crate::changes::{Answered, Changes};
use crate::client::{Nothing, SWEEPS, Setup, phases};
use crate::family::Tuning as _;
use crate::message::{Message, Note, Spans, Told};
use crate::order::Reign;
use crate::request::{Change, Outcome, Refusal, Request};
use crate::stream::{Load, Saying};
use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    Blob, ClientId, CommandId, Effects, Fact, Footprint as _, Identity, Instant, KeyspaceId, Malformed,
    NodeId, Path, Process, ProcessId, Series, Snapshot, StateMachine, Ticket, wire,
};
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

/// A client of CURP over the state machine `S`, whose witnesses understand `W`.
#[derive(Debug)]
pub struct Client<S: StateMachine, W: Recording<S::Command>> {
    me: ClientId,
    setup: Arc<Setup<W::Parameters>>,
    fast: FastPath,
    bug: Option<Bug>,
    /// The latest reign that is known whole.
    view: Option<View>,
    paths: Paths,
    program: Program,
    nearby: Nearby,
    /// When somebody was last asked for the view.
    sought: Option<Instant>,
    /// Who is asked.
    target: ProcessId,
    /// When the target last answered anything, or was first asked.
    answered: Instant,
    /// Those that were turned away from since the leader was heard itself.
    unheard: Vec<ProcessId>,
    /// When these are asked next whether they lead.
    trial: Instant,
    /// The number of the next command.
    next: u64,
    outstanding: Series<Asked<S>>,
    /// By the ticket's number.
    tickets: Series<u64>,
    /// Numbers that begin an attempt in `settle`, or as soon as there is room for them.
    fresh: Vec<u64>,
    /// Numbers whose safe answers are asked for then, where the target was not asked for them.
    again: Vec<u64>,
    /// The same, where it was, and has not answered.
    repeats: Vec<u64>,
    saying: Saying,
    changes: Changes,
    sweeping: bool,
    /// Whether the deadline of records is watched.
    watching: bool,
    /// Nobody is known to lead: everything outstanding is asked for again, in order, by the next sweep, and what is new
    /// waits for that, lest it overtake.
    parked: bool,
    /// No master is found since it was last asked for something: what was asked of nobody waits until one is.
    lost: bool,
    /// When one was last sought by a request for nothing.
    probed: Option<Instant>,
    /// When the deadline of reads at a copy is looked at.
    watching_reads: Option<Instant>,
    spoken: PhantomData<fn() -> W>,
}

/// A command that is not answered.
#[derive(Debug)]
struct Asked<S: StateMachine> {
    ticket: Ticket,
    command: S::Command,
    load: Load,
    /// The hashes of its keys; none where it touches all keys.
    keys: Option<Vec<u64>>,
    /// Whether a witness can keep it.
    fits: bool,
    /// Whether its keys are among those of [`Program`].
    begun: bool,
    /// Whether it is a read that must go through the log with its effect.
    touching: bool,
    at: Instant,
    /// When it is asked for again.
    due: Instant,
    attempts: u32,
    /// Whether anybody was asked for it.
    sent: bool,
    attempt: Attempt<S::Reply>,
    near: Near,
    /// What a planted bug has read before it asked the witness.
    early: Option<S::Reply>,
}

/// How far a read has come at a copy.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
enum Near {
    /// No copy was asked.
    Untried,
    /// This node's was, then, and is waited for until then.
    Asked(NodeId, Instant, Instant),
    /// The leader is asked.
    Over,
}

/// Requests for nothing in one retry interval, at most.
const PROBES: u64 = 4;

/// The timers of a client.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// What is due is asked for again; what is too old is given up.
    Sweep,
    /// Records may have been waited for long enough.
    Records,
    /// So may reads at a copy.
    Reads,
}

impl<S: StateMachine> Clone for Asked<S> {
    fn clone(&self) -> Asked<S> {
        let Asked { command, keys, attempt, early, .. } = self;
        let (command, keys, attempt, early) = (command.clone(), keys.clone(), attempt.clone(), early.clone());
        Asked { command, keys, attempt, early, ..*self }
    }
}

impl<S: StateMachine> Hash for Asked<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.ticket, &self.command, self.touching, self.at, self.due, self.attempts, self.sent).hash(state);
        (self.load, &self.attempt, self.near, &self.early).hash(state);
    }
}

impl<S: StateMachine, W: Recording<S::Command>> Clone for Client<S, W> {
    fn clone(&self) -> Client<S, W> {
        Client {
            setup: self.setup.clone(),
            view: self.view.clone(),
            paths: self.paths.clone(),
            program: self.program.clone(),
            nearby: self.nearby.clone(),
            unheard: self.unheard.clone(),
            outstanding: self.outstanding.clone(),
            tickets: self.tickets.clone(),
            fresh: self.fresh.clone(),
            again: self.again.clone(),
            repeats: self.repeats.clone(),
            changes: self.changes.clone(),
            ..*self
        }
    }
}

impl<S: StateMachine, W: Recording<S::Command>> Hash for Client<S, W> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.nearby, self.watching_reads, &self.unheard, self.trial).hash(state);
        (self.me, &self.view, &self.paths, self.sought, self.target, self.answered).hash(state);
        (self.next, &self.outstanding, &self.fresh, &self.again, &self.repeats).hash(state);
        (self.saying, &self.changes, self.sweeping, self.watching, self.parked, self.lost, self.probed)
            .hash(state);
    }
}

/// The hashes of all keys of a command, none where it touches all; and whether a witness can keep it.
fn keys_of<S: StateMachine>(
    command: &S::Command,
    load: Load,
    keyspace: KeyspaceId,
    fast: &FastPath,
    forget_reads: bool,
) -> (Option<Vec<u64>>, bool) {
    let keys = key_hashes(keyspace, |see| {
        command.visit(&mut |touch| match touch {
            Touch::Key(_, Access::Read) if forget_reads => {}
            touch => see(touch),
        });
    });
    let few = keys.as_ref().is_some_and(|keys| (1..=fast.keys_max).contains(&keys.len()));
    // What follows a read that is under way would be seen by it, were it run before.
    let fits = few && !S::follows(command) && load.size() <= fast.slot_bytes;
    (keys, fits)
}

/// Takes it out again.
fn end<S: StateMachine>(program: &mut Program, asked: &mut Asked<S>) {
    if std::mem::take(&mut asked.begun) {
        program.end(asked.keys.as_deref());
    }
}

impl<S: StateMachine, W: Recording<S::Command>> Client<S, W> {
    /// The first command that is not finished: the replicas may forget those before it.
    fn below(&self) -> u64 {
        self.outstanding.first().map_or(self.next, |(sequence, _)| sequence)
    }

    fn planted(&self, bug: Bug) -> bool {
        cfg!(feature = "mutations") && self.bug == Some(bug)
    }

    fn ask(&mut self, ticket: Ticket, command: S::Command, effects: &mut Effects<Self>) {
        if self.outstanding.len() >= self.setup.service.outstanding {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::Overloaded));
        }
        let now = effects.now();
        if self.outstanding.is_empty() {
            self.answered = now;
        }
        if S::follows(&command) {
            // It must not be seen by the reads before it: they go to the leader, ahead of it.
            for (sequence, asked) in self.outstanding.iter_mut() {
                if matches!(asked.near, Near::Untried | Near::Asked(..)) && S::reads_only(&asked.command) {
                    (asked.near, asked.due) = (Near::Over, now + self.setup.service.retry);
                    self.again.push(sequence);
                }
            }
        }
        let sequence = self.next;
        self.next += 1;
        let load = Load::of(&command);
        let (keys, fits) = if S::reads_only(&command) { (None, false) } else { self.keys(&command, load) };
        let asked = Asked {
            ticket,
            load,
            keys,
            fits,
            begun: false,
            command,
            touching: false,
            at: now,
            due: now + self.setup.service.retry,
            attempts: 0,
            sent: false,
            attempt: Attempt::new(None, None, now),
            near: Near::Untried,
            early: None,
        };
        self.outstanding.insert(sequence, asked);
        self.tickets.insert(ticket.0, sequence);
        self.fresh.push(sequence);
        self.sweep_soon(effects);
    }

    fn keys(&self, command: &S::Command, load: Load) -> (Option<Vec<u64>>, bool) {
        let keyspace = self.me.process.keyspace;
        keys_of::<S>(command, load, keyspace, &self.fast, self.planted(Bug::ForgetReadKeys))
    }

    fn sweep_soon(&mut self, effects: &mut Effects<Self>) {
        if !self.sweeping {
            self.sweeping = true;
            effects.arm(Timer::Sweep, self.setup.service.retry / SWEEPS);
        }
    }

    /// It is outstanding no more.
    fn remove(&mut self, sequence: u64) -> Option<Asked<S>> {
        let mut asked = self.outstanding.remove(sequence)?;
        end(&mut self.program, &mut asked);
        self.saying.answered(asked.load);
        Some(asked)
    }

    fn finish(
        &mut self,
        sequence: u64,
        outcome: Outcome<S::Reply>,
        path: Option<Path>,
        spans: Option<Spans>,
        effects: &mut Effects<Self>,
    ) {
        let Some(asked) = self.remove(sequence) else { return };
        self.tickets.remove(asked.ticket.0);
        effects.complete(asked.ticket, outcome);
        if let Some(path) = path {
            let total = effects.now().since(asked.at);
            let id = CommandId { client: self.me, sequence };
            let measured = path != Path::Fast && path != Path::Lease && asked.attempts == 0;
            let phases = phases(total, spans.filter(|_| measured));
            effects.mark(Note::Fact(Fact::Committed { id, path, total, phases }));
        }
    }

    /// The leader's answers, or a copy's; or what another one hands on of the leader's (`by_way`).
    fn on_replies(
        &mut self,
        from: ProcessId,
        by_way: bool,
        reign: Reign,
        spans: Option<Spans>,
        answers: Vec<(u64, Told<S::Reply>)>,
        effects: &mut Effects<Self>,
    ) {
        let (now, mix) = (effects.now(), self.planted(Bug::MixReigns));
        // A copy says nothing of who leads, nor does what may be from one.
        let near = !by_way
            && self.nearby.is_copy(from.node)
            && answers.iter().all(|(_, told)| matches!(told, Told::Near(_) | Told::Touches));
        if !near && !by_way && self.view.as_ref().is_none_or(|view| view.reign <= reign) {
            self.unheard.clear();
            self.turn_to(from, now);
        }
        if !near && W::SYNCS_ALL && self.view.as_ref().is_some_and(|view| view.reign < reign) {
            // What is answered from here on may rest on fewer.
            effects.mark(Note::Fact(Fact::stands("copies", 0)));
        }
        if self.target == from {
            self.answered = now;
        }
        for (sequence, told) in answers {
            let Some(asked) = self.outstanding.get_mut(sequence) else { continue };
            match told {
                Told::Near(reply) => self.on_near(from, sequence, reply, effects),
                Told::Speculative(reply) => {
                    // What goes round by another says nothing of the way to the leader.
                    if asked.attempts == 0 && !by_way {
                        self.nearby.led(now.since(asked.attempt.sent));
                    }
                    let reign = if mix { asked.attempt.reign.unwrap_or(reign) } else { reign };
                    asked.attempt.on_speculative(reign, reply);
                    self.decide(sequence, effects);
                }
                Told::Done(reply) => {
                    let (attempt, first) = (&asked.attempt, asked.attempts == 0 && !by_way);
                    if first && attempt.reign.is_some() && attempt.was_safe_at_once() {
                        self.paths.safe(now.since(attempt.sent));
                    }
                    let count = match (attempt.is_recorded(), attempt.is_safe()) {
                        (_, true) => "curp_sync",
                        (true, false) => "curp_conflict",
                        (false, false) => "curp_slow",
                    };
                    effects.mark(Note::Fact(Fact::Counted(count)));
                    self.finish(sequence, Outcome::Replied(reply), Some(Path::Leader), spans, effects);
                }
                // The same read is on its way with its effect, and is answered with that.
                Told::Read(_) | Told::Looked(_) if asked.touching => {}
                Told::Read(reply) => {
                    // What goes round by another says nothing of the way to the leader.
                    if asked.attempts == 0 && !by_way {
                        self.nearby.led(now.since(asked.attempt.sent));
                    }
                    self.finish(sequence, Outcome::Replied(reply), Some(Path::Lease), None, effects);
                }
                Told::Looked(reply) => {
                    self.finish(sequence, Outcome::Replied(reply), Some(Path::Leader), spans, effects);
                }
                Told::Forgotten => self.finish(sequence, Outcome::Unknown, None, None, effects),
                Told::Touches => {
                    // From here on it is a change like any other, and recorded like one.
                    if !std::mem::replace(&mut asked.touching, true) {
                        asked.near = Near::Over;
                        asked.due = now + self.setup.service.retry;
                        let (command, load) = (asked.command.clone(), asked.load);
                        let (keys, fits) = self.keys(&command, load);
                        if let Some(asked) = self.outstanding.get_mut(sequence) {
                            (asked.keys, asked.fits) = (keys, fits);
                        }
                        self.fresh.push(sequence);
                    }
                }
                // Nothing is answered at its commit here.
                Told::Placed(_) => {}
                Told::Overloaded => {
                    // Not a refusal to the host: a witness may keep the command.
                    asked.attempts += 1;
                    asked.due = now + self.setup.service.retry;
                }
            }
        }
        self.heard_of(reign, Some(from).filter(|_| !near && !by_way), effects);
        if !near && self.view.as_ref().is_none_or(|view| view.reign >= reign) {
            self.found();
        }
    }

    /// Asks again for what is due, of another replica if the target has been silent, and gives up what is
    /// too old.
    fn sweep(&mut self, effects: &mut Effects<Self>) {
        self.sweeping = false;
        let now = effects.now();
        let service = self.setup.service;
        let (soon, lost) = (service.limit / 2, self.lost);
        let old = self.outstanding.iter().take_while(|(_, asked)| now.since(asked.at) >= soon);
        let over = old.filter_map(|(sequence, asked)| {
            // Whoever is told that nothing came of it can ask again, and need not wait as long.
            let reads = S::reads_only(&asked.command) && !asked.touching;
            let nothing = lost && (!asked.sent || reads);
            let outcome = if nothing { Outcome::Refused(Refusal::NoLeader) } else { Outcome::Unknown };
            (nothing || now.since(asked.at) >= service.limit).then_some((sequence, outcome))
        });
        for (sequence, outcome) in over.collect::<Vec<_>>() {
            // Its number is below all that are outstanding from now on, so a late copy is not executed.
            self.finish(sequence, outcome, None, None, effects);
        }
        for ticket in self.changes.expire(now, &service) {
            effects.complete(ticket, Outcome::Unknown);
        }
        let parked = std::mem::take(&mut self.parked);
        // One that only says that nobody leads may be no member, and never learn who does.
        let due =
            parked || self.outstanding.iter().any(|(_, asked)| asked.due <= now) || self.changes.is_due(now);
        if due && now.since(self.answered) >= service.retry {
            self.turn_away(now);
            self.inquire(effects);
            self.lose();
        }
        // An answer may wait behind others, or what was asked may be on its way still: who leads says so.
        let silent = self.view.is_some() && now.since(self.answered) >= service.retry / 2;
        if (self.lost || silent) && !self.outstanding.is_empty() {
            self.probe(effects);
        }
        self.try_unheard(effects);
        let known = self.under().is_some();
        if parked {
            self.saying.begin();
        }
        for (sequence, asked) in self.outstanding.iter_mut() {
            if asked.due <= now || parked {
                if self.lost && !asked.sent {
                    continue;
                }
                asked.attempts += 1;
                // A copy was asked, or whoever said that nobody leads: who leads has nothing of it.
                let unasked = parked || asked.near != Near::Over || !self.saying.has_said(asked.load);
                asked.near = Near::Over;
                asked.due = now + service.retry * u64::from(asked.attempts.min(4));
                // Under the same reign the attempt goes on, and a safe answer is asked for.
                match known && asked.attempt.reign.is_none() {
                    true => self.fresh.push(sequence),
                    false => {
                        asked.attempt.ask_safe();
                        if unasked { &mut self.again } else { &mut self.repeats }.push(sequence);
                    }
                }
            }
        }
        for (number, change) in self.changes.due(now, &service) {
            effects.send(self.target, Message::Administer { number, change });
        }
        if !self.outstanding.is_empty() || !self.changes.is_empty() {
            self.sweep_soon(effects);
        }
    }

    fn administer(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        // Numbers of changes are drawn from those of commands, which need not be dense at the replicas.
        let number = self.changes.begin(self.next, ticket, change, effects.now(), &self.setup.service);
        self.next += 1;
        effects.send(self.target, Message::Administer { number, change });
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
        match self.changes.answered(number, result) {
            Some(Answered::Over(ticket, outcome)) => effects.complete(ticket, outcome),
            Some(Answered::Elsewhere(change)) => match leader {
                Some(leader) if leader != from => {
                    self.follow(leader, effects.now());
                    effects.send(leader, Message::Administer { number, change });
                }
                _ => self.changes.hasten(number, effects.now(), &self.setup.service),
            },
            None => {}
        }
    }

    /// Somebody says something, or hands it on (`by_way`).
    fn hear(
        &mut self,
        from: ProcessId,
        by_way: bool,
        message: Message<S::Command, S::Reply, W::Message>,
        effects: &mut Effects<Self>,
    ) {
        match message {
            Message::Replies { incarnation, reign, spans, answers } if incarnation == self.me.incarnation => {
                self.on_replies(from, by_way, reign, spans, answers, effects);
            }
            Message::Redirect { incarnation, reign, leader, sequences }
                if incarnation == self.me.incarnation =>
            {
                self.on_redirect(from, reign, leader, &sequences, effects);
            }
            // Nobody hands these on: whose word they are is known by whom it comes from.
            Message::Order { message, .. } if !by_way => match W::heard(message) {
                Heard::Verdicts(verdicts) if verdicts.incarnation == self.me.incarnation => {
                    self.on_verdicts(from, verdicts, effects);
                }
                Heard::Distant(distant) if distant.incarnation == self.me.incarnation => {
                    self.on_distant(from, distant, effects);
                }
                Heard::View(view) => {
                    if view.leader == from
                        && self.view.as_ref().is_some_and(|known| known.reign <= view.reign)
                    {
                        self.unheard.clear();
                        self.turn_to(from, effects.now());
                    }
                    self.adopt(view, effects);
                }
                Heard::Verdicts(_) | Heard::Distant(_) | Heard::Nothing => {}
            },
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
}

impl<S: StateMachine, W: Recording<S::Command>> Process for Client<S, W> {
    type Setup = Setup<W::Parameters>;
    type Message = Message<S::Command, S::Reply, W::Message>;
    type Record = ();
    type Request = Request<S::Command>;
    type Outcome = Outcome<S::Reply>;
    type Timer = Timer;
    type Mark = Note<Nothing>;

    fn open(identity: Identity, setup: &Self::Setup) -> Self {
        assert!(!setup.replicas.is_empty(), "a client needs replicas");
        Client {
            me: identity.into(),
            fast: W::fast_path(&setup.parameters),
            bug: setup.parameters.shared_bug(),
            view: None,
            paths: Paths::default(),
            program: Program::default(),
            nearby: Nearby::default(),
            sought: None,
            target: setup.leader.unwrap_or(setup.replicas[0]),
            answered: Instant::ZERO,
            unheard: Vec::new(),
            trial: Instant::ZERO,
            next: 1,
            outstanding: Series::default(),
            tickets: Series::default(),
            fresh: Vec::new(),
            again: Vec::new(),
            repeats: Vec::new(),
            saying: Saying::default(),
            changes: Changes::of(identity.incarnation),
            sweeping: false,
            watching: false,
            parked: false,
            lost: false,
            probed: None,
            watching_reads: None,
            spoken: PhantomData,
            setup: Arc::new(setup.clone()),
        }
    }

    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Err(Malformed { what: "client snapshot", cause: "a client keeps nothing".to_owned() })
    }

    fn replay(&mut self, (): ()) {}

    fn start(&mut self, effects: &mut Effects<Self>) {
        self.inquire(effects);
    }

    fn receive(&mut self, from: ProcessId, message: Self::Message, effects: &mut Effects<Self>) {
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
            self.remove(sequence);
        }
        self.changes.cancel(ticket);
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Sweep => self.sweep(effects),
            Timer::Records => self.on_deadline(effects),
            Timer::Reads => self.on_reads_deadline(effects),
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        self.send_fresh(effects);
    }

    fn snapshot(&self) -> Option<Snapshot> {
        None
    }

    fn check(&self) {
        assert!(self.outstanding.len() <= self.setup.service.outstanding, "more outstanding than allowed");
        assert!(self.tickets.len() <= self.outstanding.len(), "a ticket without a command");
    }
}
