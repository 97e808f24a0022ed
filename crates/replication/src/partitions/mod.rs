//! A keyspace in partitions. Each is a group of its own over the same nodes, the first to lead another one in
//! each, so that the work of leading is spread; for SDPaxos this is the division of the sequencer
//! (`specs/sdpaxos.md` 4.7). A key belongs to one partition, and what touches keys of one partition only is
//! served there; no order is kept across partitions.
//!
//! **Keys move** between partitions while they are used (`specs/curp.md` 3.15): [`isochrone_core::migration`] has the
//! steps, the store executes them, [`moving`] drives them from here. Ownership is replicated state of the two
//! partitions and changes by commands in their logs, so no order and no leader knows of it.
//!
//! **Exactly once** (D-23, D-25, D-29, T33, T39). The exactly-once table stays with the log of its partition, and no
//! record of it moves:
//!
//! - A command has its place in the log of the source before the release of its keys, or behind it. Before it, it is
//!   executed there, and its answer is found there for as long as its client may ask. Behind it, its recorded answer
//!   is that its keys are elsewhere, for ever: a copy that comes later, or that a recovering master finds with a
//!   witness, is answered the same from the table, or, being new to it, is refused by the store and changes nothing.
//! - Only that definite answer makes this client ask again, elsewhere, as a new command of another log. Without an
//!   answer it asks again where it did, under the same number, and at last gives up: nobody knows then.
//! - Should keys come back, what their source once refused stays refused. A release and an install touch all keys, so
//!   that nothing before them commutes with anything behind them: with CURP no answer that rests on either is given
//!   before it is synced, and records of before it replay before it or not at all.
//!
//! **Order.** Of two commands of one connection that have a place in common, the second is not executed before the first,
//! as without moves:
//!
//! - While the first waits here for a move, or is on its way to where its places are no longer, or with other versions of
//!   them than are known now, the second waits here behind it. So if both are on their way, they go to one partition, in
//!   their order, and say the same version of the place; and what is asked anew is asked in its order.
//! - Each says the sum of the versions of its places ([`Versions`]), and is executed only if they are served, in no later
//!   ones. What a client knows of a place a partition has executed before, so none serves it in an earlier one.
//!   Was the place not served when the first came, or in a later version than it said, nor is it when the second comes
//!   behind it in the same log, for versions only rise: that is refused as well, though the place may be back by then.
//! - A command of several places may be refused for one while another, which is all that the second has in common with it,
//!   is served as it was: then the second is executed. So it is asked anew only if it was told of all its places at once,
//!   or nothing that has a place in common with it was sent behind it; else it has come to nothing for good.
//!
//! Commands about all keys keep this order only where their client waits for them.

mod bugs;
mod moving;
mod routes;
mod whole;

pub use bugs::Bug;

use crate::client::SWEEPS;
use crate::request::{Outcome, Refusal, Request};
use crate::service::{Reply, Service};
use isochrone_core::command::Touch;
use isochrone_core::migration::{Ring, Stretch, Told, Versions};
use isochrone_core::{
    Blob, Effects, Fact, Footprint as _, Identity, Instant, Loan, Malformed, Mark, PartitionId, Process,
    ProcessId, Series, Snapshot, Span, StateMachine, Ticket, Wrap,
};
use moving::{Drive, Then};
use routes::Routes;
use std::collections::{BTreeMap, BTreeSet};
use whole::Whole;

/// What the client role of a keyspace in partitions needs to start.
#[derive(Clone)]
pub(crate) struct Setup<P> {
    /// Of the client of each partition.
    pub(crate) parts: Vec<P>,
    pub(crate) service: Service,
    pub(crate) bug: Option<Bug>,
}

/// The client role of a keyspace in partitions: one client for each, and the knowledge which of them a command
/// is for.
#[derive(Clone, Hash)]
pub(crate) struct Divided<S: StateMachine, C: Process> {
    service: Service,
    bug: Option<Bug>,
    routes: Routes,
    parts: Vec<Part<C>>,
    /// Partitions that had an input since the last [`Process::settle`].
    touched: Vec<PartitionId>,
    /// The number of the next command or step, which is its ticket at the client of its partition.
    next: u64,
    asked: Series<Asked<S::Command>>,
    /// By the host's ticket.
    tickets: Series<u64>,
    /// Commands that are to be sent, and not before when.
    held: BTreeMap<u64, Instant>,
    /// Commands on their way to a partition that their keys have left.
    strays: BTreeSet<u64>,
    /// The places of both, and how many of them are there: what touches these waits.
    blocked: BTreeMap<u64, u32>,
    /// Commands of several places that are on their way.
    several: BTreeMap<u64, Several>,
    /// Whether what is held may go on.
    stirred: bool,
    /// When it was last asked where keys are, or told.
    looked: Option<Instant>,
    /// What moves, by the partition it leaves.
    drives: BTreeMap<PartitionId, Drive>,
    /// Steps that are open, and whose.
    steps: BTreeMap<u64, PartitionId>,
    /// What all partitions are asked and have not answered, by the host's ticket; and its shares, by number.
    wholes: BTreeMap<Ticket, Whole<S::Command, S::Reply>>,
    shares: BTreeMap<u64, Ticket>,
}

#[derive(Clone, Hash)]
struct Part<C: Process> {
    client: C,
    loan: Loan<C>,
    touched: bool,
}

/// A command of several places, on its way.
#[derive(Clone, Hash)]
struct Several {
    at: PartitionId,
    places: BTreeSet<u64>,
    /// Something was sent behind it that has a place in common with it.
    followed: bool,
}

/// A command that is not answered.
#[derive(Clone, Hash)]
struct Asked<X> {
    ticket: Ticket,
    command: X,
    since: Instant,
    /// Where it is on its way to, and what it says there; nothing while it is held.
    sent: Option<Route>,
    waits: Waits,
}

/// Where a command goes, and what it says there.
#[derive(Copy, Clone, Eq, PartialEq, Hash)]
struct Route {
    /// The partition that serves its places.
    at: PartitionId,
    /// In which versions those are known.
    versions: Versions,
    /// Whether they are more than one.
    several: bool,
}

/// Since when the end of a move is waited for, and how often it was looked for; nothing where none is.
type Waits = Option<(Instant, u32)>;

/// The timers of a client of all partitions.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer<T> {
    /// One of the client of a partition.
    Of(PartitionId, T),
    /// What is held, or a move, may go on.
    Again,
}

/// The notes of a client that stands on others.
#[derive(Clone, Debug)]
pub enum Noted<M> {
    /// Of one it stands on, which is a partition's.
    Of(PartitionId, M),
    /// Its own.
    Fact(Fact),
}

impl<M: Mark> Mark for Noted<M> {
    fn fact(&self) -> Option<Fact> {
        match self {
            Noted::Of(partition, mark) => Some(match mark.fact()? {
                // The one inside may speak for several itself; or it is the only one, and has no number.
                Fact::Stands { what, partition: inner, value } => {
                    Fact::Stands { what, partition: inner.max(*partition), value }
                }
                fact => fact,
            }),
            Noted::Fact(fact) => Some(fact.clone()),
        }
    }
}

/// Steps in a row that come to nothing until a move is left to others.
const FAILURES_MAX: u32 = 4;

/// How the clients of the partitions are told apart.
struct Inner(PartitionId);

impl<S, C> Wrap<Divided<S, C>, C> for Inner
where
    S: StateMachine,
    C: Process<Request = Request<S::Command>, Outcome = Outcome<S::Reply>>,
{
    fn message(&self, message: C::Message) -> C::Message {
        message
    }

    fn record(&self, record: C::Record) -> (PartitionId, C::Record) {
        (self.0, record)
    }

    fn timer(&self, timer: C::Timer) -> Timer<C::Timer> {
        Timer::Of(self.0, timer)
    }

    fn mark(&self, mark: C::Mark) -> Noted<C::Mark> {
        Noted::Of(self.0, mark)
    }
}

impl<S, C> Divided<S, C>
where
    S: StateMachine,
    C: Process<Request = Request<S::Command>, Outcome = Outcome<S::Reply>>,
{
    /// Where a command goes, and what it says there.
    fn route(&self, command: &S::Command) -> Result<Route, Refusal> {
        let to = |at| Route { at, versions: Versions::FIRST, several: false };
        let mut found: Result<Option<(u64, Route)>, Refusal> = Ok(None);
        command.visit(&mut |touch| {
            found = match (touch, found) {
                (_, Err(refusal)) => Err(refusal),
                (Touch::All(_), _) => Err(Refusal::Whole),
                (Touch::Key(key, _), Ok(before)) => {
                    let place = self.routes.place(key);
                    let (at, version) = self.routes.known(place);
                    let (first, mut route) = before.unwrap_or_else(|| (place, to(at)));
                    route.versions = route.versions.and(version);
                    route.several |= place != first;
                    if route.at == at { Ok(Some((first, route))) } else { Err(Refusal::Apart) }
                }
            };
        });
        found.map(|found| found.map_or_else(|| to(PartitionId(0)), |(_, route)| route))
    }

    /// The places that a command touches, each once.
    fn places(&self, command: &S::Command) -> BTreeSet<u64> {
        let mut places = BTreeSet::new();
        command.visit(&mut |touch| {
            if let Touch::Key(key, _) = touch {
                places.insert(self.routes.place(key));
            }
        });
        places
    }

    /// Gives the client of a partition an input.
    fn with(
        &mut self,
        partition: PartitionId,
        effects: &mut Effects<Self>,
        input: impl FnOnce(&mut C, &mut Effects<C>),
    ) {
        let Some(part) = self.parts.get_mut(usize::from(partition.0)) else { return };
        let client = &mut part.client;
        let answers = effects.lend(&mut part.loan, &Inner(partition), |inner| input(client, inner));
        if !std::mem::replace(&mut part.touched, true) {
            self.touched.push(partition);
        }
        for (ticket, outcome) in answers {
            self.answered(ticket.0, outcome, effects);
        }
    }

    /// A command or step is answered.
    fn answered(&mut self, number: u64, outcome: Outcome<S::Reply>, effects: &mut Effects<Self>) {
        if let Some(from) = self.steps.remove(&number) {
            return self.on_step(from, outcome, effects);
        }
        if let Some(ticket) = self.shares.remove(&number) {
            return self.on_share(number, ticket, outcome, effects);
        }
        if let Outcome::Replied(reply) = &outcome
            && let Some(told @ (Told::Elsewhere { .. } | Told::Served(_))) = S::told(reply)
        {
            effects.mark(Noted::Fact(Fact::Counted("commands_redirected")));
            return self.redirect(number, told, effects);
        }
        self.finish(number, outcome, effects);
    }

    /// A command was not executed for what it was told, and is asked anew where nothing behind it can have been executed.
    fn redirect(&mut self, number: u64, told: &Told, effects: &mut Effects<Self>) {
        let now = effects.now();
        let Some(Asked { command, sent: Some(route), .. }) = self.asked.get(number) else { return };
        let (Route { at, several, .. }, places) = (*route, self.places(command));
        let (there, all) = match told {
            Told::Elsewhere { stretch, to, version, there } => {
                if *there {
                    self.learn(*stretch, *to, *version, now);
                }
                (*there, places.iter().all(|place| stretch.contains(*place)))
            }
            Told::Served(served) => {
                for (stretch, version) in served {
                    self.learn(*stretch, at, *version, now);
                }
                (true, !several)
            }
            _ => return,
        };
        let followed = self.several.get(&number).is_some_and(|several| several.followed);
        if !all && followed {
            return self.finish(number, Outcome::Refused(Refusal::Moving), effects);
        }
        self.hold(number, there, now);
    }

    /// Answers the host.
    fn finish(&mut self, number: u64, outcome: Outcome<S::Reply>, effects: &mut Effects<Self>) {
        self.unblock(number);
        self.several.remove(&number);
        let Some(asked) = self.asked.remove(number) else { return };
        self.tickets.remove(asked.ticket.0);
        effects.complete(asked.ticket, outcome);
    }

    /// A command was not executed for where its keys are, and is to be sent anew: at once where they are served, else
    /// when the move may be over.
    fn hold(&mut self, number: u64, there: bool, now: Instant) {
        self.unblock(number);
        let Some(asked) = self.asked.get_mut(number) else { return };
        let Some(Route { at: from, .. }) = asked.sent.take() else { return };
        self.several.remove(&number);
        let waits = asked.waits;
        let (waits, due) = if there { (None, now) } else { self.wait(waits, from, now) };
        if let Some(asked) = self.asked.get_mut(number) {
            asked.waits = waits;
        }
        self.block(number);
        self.held.insert(number, due);
        self.stirred = true;
    }

    /// Waits, after so much of it, for the end of a move from there. When to look again.
    fn wait(&mut self, waits: Waits, from: PartitionId, now: Instant) -> (Waits, Instant) {
        let (since, times) = waits.unwrap_or((now, 0));
        if now.since(since) >= self.service.retry * 2 {
            // Whoever moves it takes long, or is no more.
            self.drive(from, now);
        }
        let pause = self.service.retry / (SWEEPS * 4) * (1_u64 << times.min(4));
        (Some((since, times + 1)), now + pause)
    }

    /// What touches the same keys waits.
    fn block(&mut self, number: u64) {
        let Some(asked) = self.asked.get(number) else { return };
        for place in self.places(&asked.command) {
            *self.blocked.entry(place).or_default() += 1;
        }
    }

    /// The command is answered, or on its way where its keys are.
    fn unblock(&mut self, number: u64) {
        if !self.strays.remove(&number) && self.held.remove(&number).is_none() {
            return;
        }
        self.stirred = true;
        let Some(asked) = self.asked.get(number) else { return };
        for place in self.places(&asked.command) {
            if let Some(count) = self.blocked.get_mut(&place) {
                *count -= 1;
                if *count == 0 {
                    self.blocked.remove(&place);
                }
            }
        }
    }

    /// Takes in where keys are: what is on its way to where they were, or says other versions of them, is waited for.
    fn learn(&mut self, stretch: Stretch, to: PartitionId, version: u64, now: Instant) {
        if !self.routes.learn(stretch, to, version) {
            return;
        }
        let astray =
            |asked: &Asked<S::Command>| asked.sent.is_some_and(|sent| self.route(&asked.command) != Ok(sent));
        let strays = self.asked.iter().filter(|(_, asked)| astray(asked)).map(|(number, _)| number);
        for number in strays.collect::<Vec<_>>() {
            if Bug::ReissueInDoubt.acts(self.bug) {
                self.reissue(number, now);
            } else if self.strays.insert(number) {
                self.block(number);
            }
        }
        self.stirred = true;
    }

    /// The planted bug: whatever comes of a command where it is on its way to, it is asked for anew.
    fn reissue(&mut self, number: u64, now: Instant) {
        let Some(asked) = self.asked.remove(number) else { return };
        let again = self.next;
        self.next += 1;
        self.tickets.insert(asked.ticket.0, again);
        self.asked.insert(again, Asked { sent: None, ..asked });
        self.block(again);
        self.held.insert(again, now);
    }

    fn ask(&mut self, ticket: Ticket, command: S::Command, effects: &mut Effects<Self>) {
        let route = match self.route(&command) {
            Ok(route) => Some(route),
            Err(Refusal::Whole) => return self.ask_all(ticket, command, effects),
            Err(Refusal::Apart) if self.looks(effects) => None,
            Err(refusal) => return effects.complete_ahead(ticket, Outcome::Refused(refusal)),
        };
        if self.held.len() >= self.service.outstanding {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::Overloaded));
        }
        let (now, number) = (effects.now(), self.next);
        self.next += 1;
        let waits = !self.blocked.is_empty()
            && self.places(&command).iter().any(|place| self.blocked.contains_key(place));
        let asked = Asked { ticket, command, since: now, sent: None, waits: None };
        self.asked.insert(number, asked);
        self.tickets.insert(ticket.0, number);
        match route {
            Some(route) if !waits => self.send(number, route, effects),
            _ => {
                self.block(number);
                self.held.insert(number, now);
                self.stirred = true;
            }
        }
    }

    fn send(&mut self, number: u64, route: Route, effects: &mut Effects<Self>) {
        let Route { at, versions, .. } = route;
        let Some(asked) = self.asked.get_mut(number) else { return };
        asked.sent = Some(route);
        let command = asked.command.clone();
        self.follow(number, route, &command);
        // Nothing moves where writes are answered before they are executed, and no refusal would be heard.
        let command = match self.service.reply {
            Reply::Execute => S::knowing(command, versions),
            Reply::Commit => command,
        };
        let request = Request::Command(command);
        self.with(at, effects, |client, effects| client.request(Ticket(number), request, effects));
    }

    /// A command takes this way, behind those of several places that go there.
    fn follow(&mut self, number: u64, Route { at, several, .. }: Route, command: &S::Command) {
        if self.several.is_empty() && !several {
            return;
        }
        let places = self.places(command);
        for before in self.several.range_mut(..number).map(|(_, before)| before) {
            before.followed |= before.at == at && !before.places.is_disjoint(&places);
        }
        if several {
            self.several.insert(number, Several { at, places, followed: false });
        }
    }

    /// Sends what may go on, in order: nothing before what was asked earlier of the same keys.
    fn resend(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let mut stuck: BTreeSet<u64> = BTreeSet::new();
        for number in &self.strays {
            if let Some(asked) = self.asked.get(*number) {
                stuck.extend(self.places(&asked.command));
            }
        }
        let held: Vec<_> = self.held.iter().map(|(number, due)| (*number, *due)).collect();
        for (number, due) in held {
            let Some(asked) = self.asked.get(number) else { continue };
            if now.since(asked.since) >= self.service.patience() {
                // It was refused, or never sent: nothing has come of it.
                self.finish(number, Outcome::Refused(Refusal::Moving), effects);
                continue;
            }
            let places = self.places(&asked.command);
            if due > now || places.iter().any(|place| stuck.contains(place)) {
                stuck.extend(places);
                continue;
            }
            match self.route(&asked.command) {
                Ok(route) => {
                    self.unblock(number);
                    self.send(number, route, effects);
                }
                Err(Refusal::Apart) if self.looks(effects) => stuck.extend(places),
                Err(refusal) => self.finish(number, Outcome::Refused(refusal), effects),
            }
        }
        // What was sent and refused at once is held again, and looked at when that is due.
        self.stirred = false;
    }

    /// Sees to it that the move under way from a partition is ended.
    fn drive(&mut self, from: PartitionId, now: Instant) {
        self.drives.entry(from).or_insert_with(|| Drive::new(from, now));
        self.stirred = true;
    }

    /// Takes the next steps of all moves that may go on.
    fn move_on(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let due = self.drives.iter().filter(|(_, drive)| drive.open.is_none() && drive.due <= now);
        for from in due.map(|(from, _)| *from).collect::<Vec<_>>() {
            let number = self.next;
            let Some(drive) = self.drives.get_mut(&from) else { continue };
            let (at, step) = drive.step(self.routes.ring(from));
            let Some(command) = S::step(step, effects.stamp()) else {
                self.end_drive(from, Outcome::Refused(Refusal::Unmovable), effects);
                continue;
            };
            drive.open = Some(number);
            self.next += 1;
            self.steps.insert(number, from);
            let request = Request::Command(command);
            self.with(at, effects, |client, effects| client.request(Ticket(number), request, effects));
        }
    }

    fn on_step(&mut self, from: PartitionId, outcome: Outcome<S::Reply>, effects: &mut Effects<Self>) {
        let (now, pause) = (effects.now(), self.service.retry / SWEEPS);
        let Some(drive) = self.drives.get_mut(&from) else { return };
        (drive.open, drive.due) = (None, now);
        self.stirred = true;
        let bug = self.bug;
        let then = match &outcome {
            Outcome::Replied(reply) => match S::told(reply) {
                Some(told) => {
                    let (then, arrived) = drive.told(told, bug);
                    if let Some(of) = arrived {
                        effects.mark(Noted::Fact(Fact::Counted("ranges_moved")));
                        self.learn(of.stretch, of.to, of.version, now);
                    }
                    then
                }
                None => Then::Impossible,
            },
            // It may have been done; to ask again does no harm, and tells.
            Outcome::Unknown | Outcome::Refused(_) => Then::Again,
            _ => Then::Impossible,
        };
        let Some(drive) = self.drives.get_mut(&from) else { return };
        match then {
            Then::Goes => {}
            Then::After(target) => {
                drive.due = now + pause;
                self.drive(target, now);
            }
            Then::Again => {
                drive.restart();
                drive.failures += 1;
                drive.due = now + pause;
                if drive.failures >= FAILURES_MAX {
                    self.end_drive(from, Outcome::Unknown, effects);
                }
            }
            Then::Over => {
                let moving::Moved { keys, bytes, stretches } = drive.moved;
                self.end_drive(from, Outcome::Moved { keys, bytes, stretches }, effects);
            }
            Then::Impossible => self.end_drive(from, Outcome::Refused(Refusal::Unmovable), effects),
        }
    }

    fn end_drive(&mut self, from: PartitionId, outcome: Outcome<S::Reply>, effects: &mut Effects<Self>) {
        if let Some(Drive { ticket: Some(ticket), .. }) = self.drives.remove(&from) {
            effects.complete(ticket, outcome);
        }
    }

    /// Begins to move keys.
    fn begin(
        &mut self,
        ticket: Ticket,
        stretch: Stretch,
        [from, to]: [PartitionId; 2],
        effects: &mut Effects<Self>,
    ) {
        let parts = self.parts.len();
        let known = |partition: PartitionId| usize::from(partition.0) < parts;
        let refusal = if self.service.reply == Reply::Commit {
            Some(Refusal::MovesAtCommit)
        } else if from == to || !known(from) || !known(to) || stretch.first > stretch.last {
            Some(Refusal::NoSuchPartition)
        } else if self.drives.get(&from).is_some_and(|drive| drive.wish.is_some() || drive.ticket.is_some()) {
            Some(Refusal::Busy)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return effects.complete_ahead(ticket, Outcome::Refused(refusal));
        }
        self.drive(from, effects.now());
        if let Some(drive) = self.drives.get_mut(&from) {
            (drive.wish, drive.ticket) = (Some(([stretch].into(), to)), Some(ticket));
        }
    }

    /// When something that waits here may go on.
    fn due(&self, now: Instant) -> Option<Instant> {
        // What waits for others is looked at when they are answered, and given up in time.
        let held = self.held.values().map(|due| if *due > now { *due } else { now + self.service.retry });
        let drives = self.drives.values().filter(|drive| drive.open.is_none()).map(|drive| drive.due);
        held.chain(drives).chain(self.wholes.values().filter_map(Whole::due)).min()
    }
}

impl<S, C> Process for Divided<S, C>
where
    S: StateMachine,
    C: Process<Request = Request<S::Command>, Outcome = Outcome<S::Reply>>,
{
    type Setup = Setup<C::Setup>;
    type Message = C::Message;
    type Record = (PartitionId, C::Record);
    type Request = Request<S::Command>;
    type Outcome = Outcome<S::Reply>;
    type Timer = Timer<C::Timer>;
    type Mark = Noted<C::Mark>;

    fn open(identity: Identity, setup: &Self::Setup) -> Self {
        let part = |setup| Part { client: C::open(identity, setup), loan: Loan::default(), touched: false };
        let (keyspace, at) = (identity.process.keyspace, PartitionId(0));
        // A deployment has at most 1,024 partitions.
        let ring = Ring { keyspace, partitions: setup.parts.len() as u16, at };
        Divided {
            service: setup.service,
            bug: setup.bug,
            routes: Routes::new(ring),
            parts: setup.parts.iter().map(part).collect(),
            touched: Vec::new(),
            next: 1,
            asked: Series::default(),
            tickets: Series::default(),
            held: BTreeMap::new(),
            strays: BTreeSet::new(),
            blocked: BTreeMap::new(),
            several: BTreeMap::new(),
            stirred: false,
            looked: None,
            drives: BTreeMap::new(),
            steps: BTreeMap::new(),
            wholes: BTreeMap::new(),
            shares: BTreeMap::new(),
        }
    }

    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Err(Malformed { what: "client snapshot", cause: "a client keeps nothing".to_owned() })
    }

    fn replay(&mut self, (partition, record): Self::Record) {
        if let Some(part) = self.parts.get_mut(usize::from(partition.0)) {
            part.client.replay(record);
        }
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        for partition in self.all() {
            self.with(partition, effects, C::start);
        }
    }

    fn receive(&mut self, from: ProcessId, message: Self::Message, effects: &mut Effects<Self>) {
        self.with(from.partition, effects, |client, effects| client.receive(from, message, effects));
    }

    fn request(&mut self, ticket: Ticket, request: Request<S::Command>, effects: &mut Effects<Self>) {
        match request {
            Request::Command(command) => self.ask(ticket, command, effects),
            Request::Move { stretch, from, to } => self.begin(ticket, stretch, [from, to], effects),
            Request::Survey => self.survey(ticket, effects),
            // Each partition has its own members: its replicas are asked, not a client of all.
            Request::Change(_) => effects.complete_ahead(ticket, Outcome::Refused(Refusal::Apart)),
        }
    }

    fn cancel(&mut self, ticket: Ticket, effects: &mut Effects<Self>) {
        for drive in self.drives.values_mut().filter(|drive| drive.ticket == Some(ticket)) {
            // What is under way is ended all the same; nothing more of the wish begins.
            (drive.wish, drive.ticket) = (None, None);
        }
        self.give_up(ticket, effects);
        let Some(number) = self.tickets.remove(ticket.0) else { return };
        self.unblock(number);
        self.several.remove(&number);
        if let Some(Asked { sent: Some(Route { at, .. }), .. }) = self.asked.remove(number) {
            self.with(at, effects, |client, effects| client.cancel(Ticket(number), effects));
        }
    }

    fn expire(&mut self, timer: Self::Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Of(partition, timer) => {
                self.with(partition, effects, |client, effects| client.expire(timer, effects));
            }
            Timer::Again => self.stirred = true,
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        let mut watch = false;
        while self.stirred || !self.touched.is_empty() {
            if self.stirred {
                watch = true;
                self.resend(effects);
                self.ask_again(effects);
                self.move_on(effects);
            }
            let mut touched = std::mem::take(&mut self.touched);
            for partition in touched.drain(..) {
                self.with(partition, effects, C::settle);
                self.parts[usize::from(partition.0)].touched = false;
            }
            if self.touched.is_empty() {
                self.touched = touched;
            }
        }
        let now = effects.now();
        if let Some(due) = self.due(now).filter(|_| watch) {
            let after = if due > now { due.since(now) } else { Span::ZERO };
            effects.arm(Timer::Again, after.max(Span::from_micros(100)));
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        None
    }

    fn check(&self) {
        self.parts.iter().for_each(|part| part.client.check());
        assert!(
            self.blocked.is_empty() == (self.held.is_empty() && self.strays.is_empty()),
            "places are blocked by nothing, or nothing by what waits"
        );
    }
}

#[cfg(test)]
mod tests;
