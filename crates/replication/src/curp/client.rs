//! The client of both variants of CURP: it asks the leader and the witnesses at the same moment, and makes of their
//! answers what `specs/curp.md` 3.2 says.
//!
//! A command has one number in all its life. While its reign is not known it is asked for without witnesses, and only
//! a safe answer counts. Under a later reign everything outstanding begins anew, with the witnesses of that one.
//! Reads go to a copy that is nearer than the leader, where the family has copies that may answer, and to the leader as
//! soon as the copy says that it does not, or says nothing ([`super::nearby`]).
//! While the master is silent, or whoever is asked knows none, and only the managers can name another, nothing is asked
//! that was not asked before: who leads is sought, by requests for nothing. So what comes to nothing then is known to have
//! had no effect.
//! Commands that no witness can keep (too large, too many keys, all keys) are asked for with a safe answer at once.

use super::decision::{Attempt, Decision};
use super::nearby::Nearby;
use super::paths::Paths;
use super::program::Program;
use super::{Bug, Distant, FastPath, Heard, Kept, Recording, Records, Verdicts, View, beside, key_hashes};
use crate::changes::{Answered, Changes};
use crate::client::{Nothing, SWEEPS, Setup, phases};
use crate::family::Tuning as _;
use crate::message::{Ask, Message, Note, Spans, Told, in_parts};
use crate::order::Reign;
use crate::request::{Change, Outcome, Refusal, Request};
use crate::stream::{Load, Said, Saying};
use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    Blob, ClientId, CommandId, Effects, Fact, Footprint as _, Identity, Instant, KeyspaceId, Malformed,
    NodeId, Path, Process, ProcessId, Series, Snapshot, Span, StateMachine, Ticket,
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
        (&self.nearby, self.watching_reads).hash(state);
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

/// Takes a command among those that are begun: whether it is clear of those before it.
fn begin<S: StateMachine>(program: &mut Program, asked: &mut Asked<S>) -> bool {
    end(program, asked);
    let keys = asked.keys.as_deref();
    let clear = program.is_clear(keys);
    program.begin(keys);
    asked.begun = true;
    clear
}

/// Takes it out again.
fn end<S: StateMachine>(program: &mut Program, asked: &mut Asked<S>) {
    if std::mem::take(&mut asked.begun) {
        program.end(asked.keys.as_deref());
    }
}

fn touches_all<S: StateMachine>(command: &S::Command) -> bool {
    let mut all = false;
    command.visit(&mut |touch| all |= matches!(touch, Touch::All(_)));
    all
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

    fn has_nothing_to_ask(&self) -> bool {
        self.fresh.is_empty() && self.again.is_empty() && self.repeats.is_empty()
    }

    /// What there is room for, in order, of what begins an attempt and of what is asked for again; the rest stays.
    fn take_fitting(&mut self) -> (Vec<u64>, Vec<u64>) {
        for numbers in [&mut self.fresh, &mut self.again] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        let mut room = self.saying.room();
        let (mut fresh, mut again) = (0, 0);
        loop {
            let heads = (self.fresh.get(fresh).copied(), self.again.get(again).copied());
            let Some(next) = heads.0.into_iter().chain(heads.1).min() else { break };
            if !room(self.outstanding.get(next).map(|asked| asked.load)) {
                break;
            }
            fresh += usize::from(heads.0 == Some(next));
            again += usize::from(heads.1 == Some(next));
        }
        (self.fresh.drain(..fresh).collect(), self.again.drain(..again).collect())
    }

    /// Begins attempts: one message to the leader, and one to each witness, with all that has gathered.
    fn send_fresh(&mut self, effects: &mut Effects<Self>) {
        if self.has_nothing_to_ask() {
            return;
        }
        let now = effects.now();
        if self.parked {
            for numbers in [&mut self.fresh, &mut self.again, &mut self.repeats] {
                numbers.clear();
            }
            return;
        }
        if self.lost {
            let was_sent = |sequence: &u64| self.outstanding.get(*sequence).is_some_and(|asked| asked.sent);
            for numbers in [&mut self.fresh, &mut self.again, &mut self.repeats] {
                numbers.retain(was_sent);
            }
            if self.has_nothing_to_ask() {
                return;
            }
        }
        let (reign, needed) = match &self.view {
            Some(view) => (Some(view.reign), view.needed),
            None => {
                self.inquire(effects);
                (None, 0)
            }
        };
        let least = needed.saturating_sub(usize::from(self.planted(Bug::OneAcceptanceLess)));
        // A deployment has at most 7 replicas.
        let quorum = self.view.as_ref().map(|view| (view.witnesses.len() as u32, least as u32));
        let records = !self.fast.always_synced
            && self.view.as_ref().is_some_and(|view| !beside(self.me.process, view.leader))
            && self.paths.records(needed, &self.fast, now);
        let mix = self.planted(Bug::MixReigns);
        let early = self.planted(Bug::BackupBeforeWitness);
        let (mut asks, mut kept) = (Vec::new(), Vec::new());
        let (mut near, mut reading, mut first, mut until) = (None, Vec::new(), Vec::new(), now);
        let (fresh, again) = self.take_fitting();
        for sequence in fresh {
            let Some(asked) = self.outstanding.get_mut(sequence) else { continue };
            asked.sent = true;
            let reads = S::reads_only(&asked.command) && !asked.touching;
            if reads && asked.near == Near::Untried && !touches_all::<S>(&asked.command) {
                let to = *near.get_or_insert_with(|| self.nearby.choose(now));
                if let Some(to) = to {
                    let patience = self.nearby.patience(to.node, &self.fast, self.setup.service.retry / 2);
                    asked.near = Near::Asked(to.node, now, now + patience);
                    until = now + patience;
                    asked.attempt = Attempt::new(reign, None, now);
                    let (keys, command) = (Vec::new(), asked.command.clone());
                    let kept = Kept { sequence, keys, command };
                    if early && asked.early.is_none() { &mut first } else { &mut reading }.push(kept);
                    continue;
                }
            }
            asked.near = Near::Over;
            let clear = !reads && begin(&mut self.program, asked);
            let recorded = quorum.filter(|_| records && asked.fits && clear);
            let mut attempt = Attempt::new(reign, recorded, now);
            if let Some((_, 1..)) = recorded
                && let Some(keys) = &asked.keys
            {
                if self.paths.wants_safe(needed) {
                    attempt.ask_safe_at_once();
                }
                kept.push(Kept { sequence, keys: keys.clone(), command: asked.command.clone() });
            }
            if mix {
                attempt.inherit(&asked.attempt);
            }
            asked.attempt = attempt;
            let (command, touching) = (asked.command.clone(), asked.touching);
            asks.push(Ask { sequence, command, touching, synced: asked.attempt.is_safe() && !reads });
        }
        asks.extend(self.ask_safe(again, &asks));
        asks.sort_unstable_by_key(|ask| ask.sequence);
        for ask in &asks {
            if let Some(asked) = self.outstanding.get_mut(ask.sequence) {
                self.saying.take(&mut asked.load);
            }
        }
        let repeats = std::mem::take(&mut self.repeats);
        let repeats = self.ask_safe(repeats, &asks);
        if let Some(witness) = near.flatten() {
            let server = self.setup.replicas.iter().find(|replica| replica.node == witness.node);
            let server = server.copied().unwrap_or(witness);
            self.send_near(witness, reading, effects);
            self.send_near(server, first, effects);
            self.watch_reads(until, effects);
        }
        let (client, below) = (self.me, self.below());
        let requests =
            |asks, said| Message::Requests { client, below, under: reign, asks, forwarded: false, said };
        if !repeats.is_empty() {
            effects.repeating(|effects| {
                in_parts(repeats, |asks| effects.send(self.target, requests(asks, self.saying.again())));
            });
        }
        if asks.is_empty() {
            return;
        }
        // Witnesses first: they have a disk to wait for before they answer, and the leader has none.
        if let Some(view) = &self.view
            && !kept.is_empty()
        {
            let reign = view.reign;
            for witness in view.witnesses.iter() {
                in_parts(kept.clone(), |kept| {
                    let message = W::records(Records { reign, client, below, kept });
                    effects.send(*witness, Message::Order { epoch: 0, message });
                });
            }
            self.watch(effects);
        }
        in_parts(asks, |asks| effects.send(self.target, requests(asks, self.saying.next())));
    }

    /// Asks for the safe answers of these, each once and not among `asks`, which is in order.
    fn ask_safe(&mut self, mut sequences: Vec<u64>, asks: &[Ask<S::Command>]) -> Vec<Ask<S::Command>> {
        sequences.sort_unstable();
        sequences.dedup();
        let fresh =
            |sequence: &u64| asks.binary_search_by_key(sequence, |ask: &Ask<_>| ask.sequence).is_err();
        let ask = |sequence: u64| {
            let asked = self.outstanding.get_mut(sequence)?;
            asked.sent = true;
            let reads = S::reads_only(&asked.command) && !asked.touching;
            let (command, touching) = (asked.command.clone(), asked.touching);
            Some(Ask { sequence, command, touching, synced: !reads })
        };
        sequences.into_iter().filter(fresh).filter_map(ask).collect()
    }

    /// Has a copy answer reads, by way of its witness.
    fn send_near(&mut self, to: ProcessId, kept: Vec<Kept<S::Command>>, effects: &mut Effects<Self>) {
        let (client, below) = (self.me, self.below());
        let Some(reign) = self.view.as_ref().map(|view| view.reign).filter(|_| !kept.is_empty()) else {
            return;
        };
        if let Some(message) = W::near(Records { reign, client, below, kept }) {
            effects.send(to, Message::Order { epoch: 0, message });
        }
    }

    fn watch_reads(&mut self, until: Instant, effects: &mut Effects<Self>) {
        if self.watching_reads.is_none_or(|watching| until < watching) {
            self.watching_reads = Some(until);
            effects.arm(Timer::Reads, until.since(effects.now()));
        }
    }

    /// The deadline of some reads at a copy may have come: the leader is asked for them.
    fn on_reads_deadline(&mut self, effects: &mut Effects<Self>) {
        self.watching_reads = None;
        let (now, retry) = (effects.now(), self.setup.service.retry);
        let (mut earliest, mut silent) = (None, None);
        for (sequence, asked) in self.outstanding.iter_mut() {
            let Near::Asked(node, _, until) = asked.near else { continue };
            if until > now {
                earliest = Some(earliest.map_or(until, |earliest: Instant| earliest.min(until)));
                continue;
            }
            (asked.near, asked.due) = (Near::Over, now + retry);
            asked.attempt = Attempt::new(asked.attempt.reign, None, now);
            silent = Some(node);
            self.again.push(sequence);
        }
        if let Some(node) = silent {
            self.nearby.missed(node, &self.fast, now);
            effects.mark(Note::Fact(Fact::Counted("curp_near_late")));
        }
        if let Some(earliest) = earliest {
            self.watch_reads(earliest, effects);
        }
    }

    /// A copy does not answer reads: the leader is asked at once.
    fn on_distant(&mut self, from: ProcessId, distant: Distant, effects: &mut Effects<Self>) {
        let (now, retry) = (effects.now(), self.setup.service.retry);
        for sequence in distant.sequences {
            let Some(asked) = self.outstanding.get_mut(sequence) else { continue };
            let Near::Asked(node, at, _) = asked.near else { continue };
            if node == from.node {
                (asked.near, asked.due, asked.early) = (Near::Over, now + retry, None);
                asked.attempt = Attempt::new(asked.attempt.reign, None, now);
                self.nearby.refused(node, now.since(at), &self.fast, now);
                effects.mark(Note::Fact(Fact::Counted("curp_near_refused")));
                self.again.push(sequence);
            }
        }
        if self.view.as_ref().is_some_and(|view| view.reign != distant.reign) {
            self.inquire(effects);
        }
    }

    /// A copy has answered a read.
    fn on_near(&mut self, from: ProcessId, sequence: u64, reply: S::Reply, effects: &mut Effects<Self>) {
        let (now, early) = (effects.now(), self.planted(Bug::BackupBeforeWitness));
        let Some(asked) = self.outstanding.get_mut(sequence) else { return };
        // Where the leader was asked since, what follows the read may have been run before this answer was made.
        let Near::Asked(_, at, _) = asked.near else { return };
        self.nearby.answered(from.node, now.since(at));
        if early && asked.early.is_none() {
            (asked.early, asked.near) = (Some(reply), Near::Untried);
            return self.fresh.push(sequence);
        }
        let reply = asked.early.take().unwrap_or(reply);
        effects.mark(Note::Fact(Fact::Counted("curp_near")));
        self.finish(sequence, Outcome::Replied(reply), Some(Path::Lease), None, effects);
    }

    /// Looks again when records have been waited for long enough.
    fn watch(&mut self, effects: &mut Effects<Self>) {
        if !std::mem::replace(&mut self.watching, true) {
            effects.arm(Timer::Records, self.patience());
        }
    }

    fn patience(&self) -> Span {
        self.paths.deadline(&self.fast, self.setup.service.retry / 2)
    }

    /// The deadline of some records may have come: what they were to make safe is asked for otherwise.
    fn on_deadline(&mut self, effects: &mut Effects<Self>) {
        self.watching = false;
        let (now, patience) = (effects.now(), self.patience());
        let Some(witnesses) = self.view.as_ref().map(|view| view.witnesses.len()) else { return };
        let mut missed = vec![false; witnesses];
        let mut earliest: Option<Instant> = None;
        for (sequence, asked) in self.outstanding.iter_mut() {
            if !asked.attempt.is_recorded() || asked.attempt.is_late() {
                continue;
            }
            let until = asked.attempt.sent + patience;
            if until > now {
                earliest = Some(earliest.map_or(until, |earliest| earliest.min(until)));
                continue;
            }
            for (witness, missed) in missed.iter_mut().enumerate() {
                *missed |= asked.attempt.awaits(witness as u32);
            }
            asked.attempt.on_deadline();
            if asked.attempt.decide() == Decision::Sync {
                self.again.push(sequence);
            }
        }
        for (witness, _) in missed.iter().enumerate().filter(|(_, missed)| **missed) {
            self.paths.missed(witness);
            effects.mark(Note::Fact(Fact::Counted("curp_records_late")));
        }
        if let Some(earliest) = earliest {
            self.watching = true;
            effects.arm(Timer::Records, earliest.since(now));
        }
    }

    /// Looks whether the answers so far are enough.
    fn decide(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let Some(asked) = self.outstanding.get_mut(sequence) else { return };
        match asked.attempt.decide() {
            Decision::Wait => {}
            Decision::Sync => self.again.push(sequence),
            Decision::Complete(reply) => {
                effects.mark(Note::Fact(Fact::Counted("curp_fast")));
                self.finish(sequence, Outcome::Replied(reply), Some(Path::Fast), None, effects);
            }
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

    fn on_replies(
        &mut self,
        from: ProcessId,
        reign: Reign,
        spans: Option<Spans>,
        answers: Vec<(u64, Told<S::Reply>)>,
        effects: &mut Effects<Self>,
    ) {
        let (now, mix) = (effects.now(), self.planted(Bug::MixReigns));
        // A copy says nothing of who leads, nor does what may be from one.
        let near = self.nearby.is_copy(from.node)
            && answers.iter().all(|(_, told)| matches!(told, Told::Near(_) | Told::Touches));
        if !near && self.view.as_ref().is_none_or(|view| view.reign <= reign) {
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
                    if asked.attempts == 0 {
                        self.nearby.led(now.since(asked.attempt.sent));
                    }
                    let reign = if mix { asked.attempt.reign.unwrap_or(reign) } else { reign };
                    asked.attempt.on_speculative(reign, reply);
                    self.decide(sequence, effects);
                }
                Told::Done(reply) => {
                    let (attempt, first) = (&asked.attempt, asked.attempts == 0);
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
                    if asked.attempts == 0 {
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
        self.heard_of(reign, Some(from).filter(|_| !near), effects);
        if !near && self.view.as_ref().is_none_or(|view| view.reign >= reign) {
            self.found();
        }
    }

    /// Somebody leads: everything outstanding is asked for, in order.
    fn found(&mut self) {
        if !std::mem::take(&mut self.lost) {
            return;
        }
        self.parked = false;
        for (sequence, asked) in self.outstanding.iter() {
            if asked.sent { &mut self.again } else { &mut self.fresh }.push(sequence);
        }
    }

    /// Nobody is known to lead.
    fn lose(&mut self) {
        // Elsewhere whoever is asked next may lead as well.
        self.lost |= W::SYNCS_ALL;
    }

    /// Asks for nothing, of whoever is to be asked: who leads says so, and nothing can come of it. Not too often.
    fn probe(&mut self, effects: &mut Effects<Self>) {
        let (now, pause) = (effects.now(), self.setup.service.retry / PROBES);
        if self.probed.is_some_and(|probed| now.since(probed) < pause) {
            return;
        }
        self.probed = Some(now);
        let (client, below) = (self.me, self.below());
        let under = self.view.as_ref().map(|view| view.reign);
        let asks = Vec::new();
        let (forwarded, said) = (false, Said::Freely);
        let question = Message::Requests { client, below, under, asks, forwarded, said };
        effects.urgently(|effects| effects.send(self.target, question));
        self.inquire(effects);
    }

    fn on_redirect(
        &mut self,
        from: ProcessId,
        reign: Reign,
        leader: Option<ProcessId>,
        sequences: &[u64],
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let known = self.view.as_ref().map(|view| view.reign);
        let later = known.is_none_or(|known| known < reign);
        if from == self.target && leader.is_some() {
            self.answered = now;
        }
        if later {
            self.heard_of(reign, leader, effects);
            if self.view.as_ref().map(|view| view.reign) != known {
                // Everything begins anew.
                return;
            }
        }
        let elsewhere = leader.filter(|leader| *leader != from && Some(reign) >= known);
        match elsewhere {
            Some(leader) => {
                self.turn_to(leader, now);
                for sequence in sequences {
                    if let Some(asked) = self.outstanding.get_mut(*sequence) {
                        asked.attempts += 1;
                        asked.due = now + self.setup.service.retry;
                        self.again.push(*sequence);
                    }
                }
            }
            // Nobody leads yet, or under a reign that is not known whole: again soon.
            None if from == self.target => {
                self.parked |= !sequences.is_empty();
                self.lose();
            }
            None => {}
        }
    }

    /// Somebody else is asked from now on: for everything that is outstanding first, in order.
    fn turn_to(&mut self, process: ProcessId, now: Instant) {
        if self.target != process {
            (self.target, self.answered) = (process, now);
            self.saying.begin();
            self.say_anew();
        }
    }

    /// In the turn that has begun.
    fn say_anew(&mut self) {
        self.again.extend(self.outstanding.iter().map(|(sequence, _)| sequence));
    }

    /// Somebody speaks of a reign. If it is later than the one known, its view is made or asked for.
    fn heard_of(&mut self, reign: Reign, leader: Option<ProcessId>, effects: &mut Effects<Self>) {
        if self.view.as_ref().is_some_and(|view| view.reign >= reign) {
            return;
        }
        match leader.and_then(|leader| W::view(&self.setup, reign, leader)) {
            Some(view) => self.adopt(view, effects),
            None => self.inquire(effects),
        }
    }

    /// Asks who leads and who the witnesses are, not too often.
    fn inquire(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        if self.sought.is_some_and(|sought| now.since(sought) < self.setup.service.retry / SWEEPS) {
            return;
        }
        if let Some((whom, message)) = W::inquiry(&self.setup) {
            self.sought = Some(now);
            for process in whom {
                let inquiry = Message::Order { epoch: 0, message: message.clone() };
                effects.urgently(|effects| effects.send(process, inquiry));
            }
        }
    }

    /// From here on commands are asked for in this view; those outstanding begin anew.
    fn adopt(&mut self, view: View, effects: &mut Effects<Self>) {
        if self.view.as_ref().is_some_and(|known| known.reign >= view.reign) {
            return;
        }
        let now = effects.now();
        self.paths = Paths::of(&view, self.view.as_ref().map(|former| (former, &self.paths)));
        if W::reads_nearby(&self.setup.parameters) {
            self.nearby = Nearby::of(&view, &self.setup.replicas, &self.nearby);
        }
        self.turn_to(view.leader, now);
        self.answered = now;
        let first = self.view.is_none();
        self.view = Some(view);
        (self.parked, self.lost) = (false, false);
        if !first {
            self.program.clear();
            self.saying.begin();
        }
        for (sequence, asked) in self.outstanding.iter_mut() {
            // They are begun again in their order.
            asked.begun &= first;
            // What was asked for under no reign in particular is answered all the same.
            if first && asked.sent && asked.attempt.reign.is_none() && asked.attempts == 0 {
                continue;
            }
            asked.due = now + self.setup.service.retry;
            if asked.near != Near::Untried {
                asked.near = Near::Over;
            }
            self.fresh.push(sequence);
        }
        effects.mark(Note::Fact(Fact::Counted("curp_views")));
        self.tell_copies(effects);
    }

    /// How many copies have what the leader says is safe, where it says so of all of them. None that count, while a
    /// later list than the one that is known may hold.
    fn tell_copies(&self, effects: &mut Effects<Self>) {
        if W::SYNCS_ALL {
            let copies = self.view.as_ref().map_or(0, |view| view.witnesses.len() as u64);
            effects.mark(Note::Fact(Fact::stands("copies", copies)));
        }
    }

    fn on_verdicts(&mut self, from: ProcessId, verdicts: Verdicts, effects: &mut Effects<Self>) {
        let now = effects.now();
        let mix = self.planted(Bug::MixReigns);
        let Some(view) = self.view.clone() else { return };
        let Some(witness) = view.witnesses.iter().position(|witness| *witness == from) else { return };
        let mut trip: Option<Span> = None;
        let later = verdicts.reign > view.reign;
        for (sequence, accepted) in verdicts.verdicts {
            if !accepted {
                effects.mark(Note::Fact(Fact::Counted("curp_rejected")));
            }
            let Some(asked) = self.outstanding.get_mut(sequence) else { continue };
            // Witnesses are counted as they stand in the view of the attempt.
            if asked.attempt.reign != Some(view.reign) {
                continue;
            }
            if verdicts.reign == view.reign {
                trip = Some(now.since(asked.attempt.sent));
            }
            let reign = if mix { view.reign } else { verdicts.reign };
            // A deployment has at most 7 replicas.
            asked.attempt.on_verdict(witness as u32, reign, accepted);
            self.decide(sequence, effects);
        }
        if let Some(trip) = trip {
            self.paths.answered(witness, trip);
        }
        if later {
            self.inquire(effects);
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
            let nothing = lost && (!asked.sent || S::reads_only(&asked.command));
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
            let replicas = &self.setup.replicas;
            let at = replicas.iter().position(|replica| *replica == self.target);
            let next = replicas[at.map_or(0, |at| (at + 1) % replicas.len())];
            self.turn_to(next, now);
            self.answered = now;
            self.inquire(effects);
            self.lose();
        }
        // An answer may wait behind others, or what was asked may be on its way still: who leads says so.
        let silent = self.view.is_some() && now.since(self.answered) >= service.retry / 2;
        if (self.lost || silent) && !self.outstanding.is_empty() {
            self.probe(effects);
        }
        let known = self.view.is_some();
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
                    self.turn_to(leader, effects.now());
                    effects.send(leader, Message::Administer { number, change });
                }
                _ => self.changes.hasten(number, effects.now(), &self.setup.service),
            },
            None => {}
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
            Message::Replies { incarnation, reign, spans, answers } if incarnation == self.me.incarnation => {
                self.on_replies(from, reign, spans, answers, effects);
            }
            Message::Redirect { incarnation, reign, leader, sequences }
                if incarnation == self.me.incarnation =>
            {
                self.on_redirect(from, reign, leader, &sequences, effects);
            }
            Message::Order { message, .. } => match W::heard(message) {
                Heard::Verdicts(verdicts) if verdicts.incarnation == self.me.incarnation => {
                    self.on_verdicts(from, verdicts, effects);
                }
                Heard::Distant(distant) if distant.incarnation == self.me.incarnation => {
                    self.on_distant(from, distant, effects);
                }
                Heard::View(view) => {
                    if view.leader == from
                        && self.view.as_ref().is_some_and(|known| known.reign == view.reign)
                    {
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
