//! Executing what has its place and may still lose it (`specs/curp.md` 3.5, 3.9, 3.17).
//!
//! The state machine runs ahead: it has executed the values that are decided, and behind them the tentative ones.
//! The reply of each is kept. A client is told it at once if its command commutes with everything tentative
//! before it (Rule 2, I2); else when it is decided. Nothing is executed then: the exactly-once table, which only
//! ever holds what is decided, takes in the kept reply. A command that is asked for again waits for that in any
//! case (D-12): a copy that was withheld must not be told as if it had commuted.
//!
//! **Undo** (D-34). With each tentative command is kept what it may change, as it was before. What is dropped is taken
//! back, latest first. Snapshots and views are made of decided state: of a copy, which costs nothing until it is
//! changed, with everything tentative taken back.
//!
//! **Barriers.** The end of a session or of the order changes which commands are executed at all. Nothing behind
//! one is executed before it is decided. Nor is what would be executed while what is kept weighs [`KEPT_MAX`]: a few bytes
//! may change a value of many, again and again.

use super::Replica;
use crate::curp::Bug;
use crate::curp::unsynced::Unsynced;
use crate::family::Tuning as _;
use crate::message::{Entry, Note, Told};
use crate::order::{Order, Ordered as _, Tentative};
use crate::stream::Hearing;
use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    ClientId, CommandId, Effects, Fact, Footprint as _, Instant, OnceTable, ProcessId, Seen, Series,
    StateMachine, Waiters,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::Arc;

/// A value where it came in.
type Place<S> = (Arc<[Entry<<S as StateMachine>::Command>]>, usize);

/// What is tentative here, and how it is undone.
#[derive(Clone, Hash)]
pub(super) struct Speculation<S: StateMachine> {
    /// Tentative values, in order. Those executed come first.
    pending: VecDeque<Pending<S>>,
    /// How many of them were run.
    ran: usize,
    /// How many of those changed the machine: commands that were executed.
    executed: usize,
    /// What the ways back of those weigh.
    kept: usize,
    /// Positions, counted from 1: the last one decided.
    decided: u64,
    unsynced: Unsynced,
    /// What the executed ones among them do to the exactly-once table.
    sessions: BTreeMap<ProcessId, Session>,
    /// Commands whose clients wait for the decision.
    waiting: BTreeSet<CommandId>,
    /// Reads whose answers rest on a tentative position.
    parked: Waiters<u64, (ClientId, u64, Told<S::Reply>)>,
    /// Whether the order was told to hurry since it last settled.
    pub(super) hurried: bool,
}

#[derive(Clone, Hash)]
struct Pending<S: StateMachine> {
    place: Place<S>,
    /// Whether this replica answers.
    answer: bool,
    ran: Option<Ran<S::Reply>>,
    /// What it may have changed, if it was executed.
    before: Option<S::Before>,
    /// Whether the client has a speculative answer.
    told: bool,
}

/// Nothing is executed before it is decided while the ways back from what was weigh so many bytes.
const KEPT_MAX: usize = 64 << 20;

/// What came of a value that was executed before it was decided.
#[derive(Clone, Hash, Debug)]
pub(super) enum Ran<R> {
    /// A command was executed.
    Executed(R),
    /// A read was answered so.
    Looked(Told<R>),
    /// A command had been executed already, or is too old.
    Passed,
}

/// A client's part in what is tentative.
#[derive(Clone, Hash)]
struct Session {
    incarnation: u32,
    below: u64,
    ran: Series<()>,
    /// Values of this process among the tentative ones.
    values: usize,
}

/// A value that has become decided.
pub(super) struct Settled<R> {
    /// What came of it, if it was executed.
    pub(super) ran: Option<Ran<R>>,
    /// Whether its client has a speculative answer, and has not asked for more.
    pub(super) told: bool,
}

impl<S: StateMachine> Default for Speculation<S> {
    fn default() -> Speculation<S> {
        Speculation {
            pending: VecDeque::new(),
            ran: 0,
            executed: 0,
            kept: 0,
            decided: 0,
            unsynced: Unsynced::default(),
            sessions: BTreeMap::new(),
            waiting: BTreeSet::new(),
            parked: Waiters::default(),
            hurried: false,
        }
    }
}

impl<S: StateMachine> Speculation<S> {
    /// Whether anything is tentative.
    pub(super) fn is_tentative(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether anything tentative is not executed before it is decided.
    pub(super) fn holds_back(&self) -> bool {
        self.ran < self.pending.len()
    }

    /// Whether the machine holds anything that is not decided.
    fn ahead(&self) -> bool {
        self.executed > 0
    }

    /// Whether the `last` of what is tentative, where they were told, commute with the `before` that are tentative before
    /// each of them.
    pub(super) fn told_apart(&self, last: usize, before: usize) -> bool {
        let keys = |at: usize| {
            let Pending { place: (values, at), .. } = &self.pending[at];
            let mut keys = Vec::new();
            let mut all = false;
            values[*at].visit(&mut |touch| match touch {
                Touch::Key(key, access) => keys.push((key.clone(), access)),
                Touch::All(_) => all = true,
            });
            (all, keys)
        };
        (self.ran.saturating_sub(last)..self.ran).filter(|at| self.pending[*at].told).all(|at| {
            let (_, own) = keys(at);
            let executed = |at: &usize| matches!(self.pending[*at].ran, Some(Ran::Executed(_)));
            (at.saturating_sub(before)..at).filter(executed).all(|earlier| {
                let (all, others) = keys(earlier);
                let meets = |(key, access): &(_, Access)| {
                    own.iter().any(|(own, how)| own == key && (access.writes() || how.writes()))
                };
                !all && !others.iter().any(meets)
            })
        })
    }

    /// Takes everything tentative back from a machine.
    fn revert(&self, machine: &mut S) {
        let executed = self.pending.iter().take(self.ran).rev();
        executed.filter_map(|pending| pending.before.clone()).for_each(|before| machine.revert(before));
    }

    /// The command is the next tentative one to be executed: whether it is executed at all.
    fn admit(&mut self, id: CommandId, below: u64, once: &OnceTable<S::Reply>) -> bool {
        let incarnation = id.client.incarnation;
        let fresh = || Session { incarnation, below: 0, ran: Series::default(), values: 0 };
        let session = self.sessions.entry(id.client.process).or_insert_with(fresh);
        session.values += 1;
        if session.incarnation < incarnation {
            *session = Session { values: session.values, ..fresh() };
        } else if session.incarnation > incarnation {
            return false;
        }
        session.below = session.below.max(below);
        if id.sequence < session.below || session.ran.get(id.sequence).is_some() {
            return false;
        }
        matches!(once.look(id), Seen::Fresh | Seen::Running)
    }

    /// Takes the next value out, which is decided now. None where nothing is tentative.
    pub(super) fn settle(&mut self, entry: &Entry<S::Command>) -> Option<Settled<S::Reply>> {
        let pending = self.pending.pop_front()?;
        let (values, at) = &pending.place;
        let (held, asked) = (&values[*at], entry.id());
        assert!(held == entry, "{entry:?} is decided where {held:?} was tentative");
        self.decided += 1;
        if pending.ran.is_some() {
            self.ran -= 1;
        }
        self.unsynced.sync(self.decided);
        if let Some(id) = asked
            && pending.ran.is_some()
            && let Some(session) = self.sessions.get_mut(&id.client.process)
        {
            session.values -= 1;
            if session.values == 0 {
                self.sessions.remove(&id.client.process);
            }
        }
        if matches!(pending.ran, Some(Ran::Executed(_))) {
            self.executed -= 1;
        }
        self.kept -= pending.before.as_ref().map_or(0, S::kept);
        let waits = asked.is_some_and(|id| self.waits_no_more(id));
        Some(Settled { ran: pending.ran, told: pending.told && !waits })
    }

    /// Forgets that somebody waits for a command; whether somebody did.
    pub(super) fn waits_no_more(&mut self, id: CommandId) -> bool {
        !self.waiting.is_empty() && self.waiting.remove(&id)
    }

    /// Something was executed that was not tentative: nothing tentative is executed now.
    pub(super) fn passed_by(&self) {
        debug_assert!(!self.ahead(), "decided values are executed behind tentative ones");
    }

    /// Everything tentative is void, or a state was taken in that knows nothing of it.
    pub(super) fn forget(&mut self) {
        *self = Speculation::default();
    }
}

impl<S: StateMachine, O: Order<Value = Entry<S::Command>>> Replica<S, O> {
    /// Takes in tentative values and executes them.
    pub(super) fn speculate(
        &mut self,
        tentative: &Tentative<Entry<S::Command>>,
        effects: Option<&mut Effects<Self>>,
    ) {
        let Tentative { values, answer } = tentative;
        let pending = (0..values.len()).map(|at| Pending {
            place: (values.clone(), at),
            answer: *answer && effects.is_some(),
            ran: None,
            before: None,
            told: false,
        });
        self.speculation.pending.extend(pending);
        self.prepare(values);
        self.run_ahead(effects);
    }

    /// Executes tentative values up to the next barrier.
    pub(super) fn run_ahead(&mut self, mut effects: Option<&mut Effects<Self>>) {
        while let Some(pending) = self.speculation.pending.get(self.speculation.ran) {
            let (place, answer) = (pending.place.clone(), pending.answer);
            let full = self.speculation.kept >= KEPT_MAX;
            let run = match &place.0[place.1] {
                Entry::Expire { .. } | Entry::Stop { .. } | Entry::HandOver { .. } => None,
                _ if full => None,
                entry @ Entry::Read { id, below, command } => {
                    let _ = self.speculation.admit(*id, *below, &self.once);
                    if self.order.reads_elsewhere() {
                        let position = self.speculation.decided + self.speculation.ran as u64 + 1;
                        let keyspace = self.identity.process.keyspace;
                        self.speculation.unsynced.mark(position, keyspace, |visit| entry.visit(visit));
                    }
                    let told = self.machine.read(command).map_or(Told::Touches, Told::Looked);
                    Some((Ran::Looked(told), false))
                }
                entry @ Entry::Command { id, below, command } => {
                    Some(self.run_command(entry, *id, *below, command, answer))
                }
            };
            let Some((ran, told)) = run else {
                // What is behind waits for the decision, and somebody may wait for that.
                if let Some(effects) = effects {
                    self.hurry(effects.now());
                }
                return;
            };
            if answer
                && !told
                && let Some(effects) = effects.as_deref_mut()
            {
                if matches!(ran, Ran::Executed(_)) {
                    effects.mark(Note::Fact(Fact::Counted("speculation_conflicts")));
                }
                self.hurry(effects.now());
            }
            let pending = &mut self.speculation.pending[self.speculation.ran];
            (pending.ran, pending.told) = (Some(ran), told);
            self.speculation.ran += 1;
        }
    }

    /// Executes one tentative command; whether its client was told.
    fn run_command(
        &mut self,
        entry: &Entry<S::Command>,
        id: CommandId,
        below: u64,
        command: &S::Command,
        answer: bool,
    ) -> (Ran<S::Reply>, bool) {
        if !self.speculation.admit(id, below, &self.once) {
            return (Ran::Passed, false);
        }
        if let Some(session) = self.speculation.sessions.get_mut(&id.client.process) {
            session.ran.insert(id.sequence, ());
        }
        let keyspace = self.identity.process.keyspace;
        let forgets = self.planted(Bug::ForgetReadKeys);
        let touches = |visit: &mut dyn FnMut(Touch<'_>)| match forgets {
            true => command.visit(&mut |touch| match touch {
                Touch::Key(_, Access::Read) => {}
                touch => visit(touch),
            }),
            false => entry.visit(&mut |touch| visit(touch)),
        };
        let position = self.speculation.decided + self.speculation.ran as u64 + 1;
        let apart = self.speculation.unsynced.mark(position, keyspace, touches);
        let before = self.machine.before(command);
        let reply = self.machine.apply(command);
        self.speculation.executed += 1;
        self.speculation.kept += S::kept(&before);
        self.speculation.pending[self.speculation.ran].before = Some(before);
        let tell = answer && (apart || self.planted(Bug::SpeculateOnConflict));
        if tell {
            self.answer(id.client, None, id.sequence, Told::Speculative(reply.clone()));
        }
        (Ran::Executed(reply), tell)
    }

    /// Everything tentative may never be decided: undoes it.
    pub(super) fn undo(&mut self, effects: Option<&mut Effects<Self>>) {
        self.once.abandon();
        // What was heard and has no place yet is to be said again, and before what comes behind it.
        self.hearing = Hearing::default();
        if self.speculation.ahead() {
            if !self.planted(Bug::KeepTentative) {
                self.speculation.revert(&mut self.machine);
            }
            if let Some(effects) = effects {
                effects.mark(Note::Fact(Fact::Counted("speculation_undone")));
            }
        }
        self.speculation.forget();
    }

    /// The state that everything decided leads to.
    pub(super) fn decided_machine(&self) -> Cow<'_, S> {
        if !self.speculation.ahead() {
            return Cow::Borrowed(&self.machine);
        }
        let mut machine = self.machine.clone();
        self.speculation.revert(&mut machine);
        Cow::Owned(machine)
    }

    /// Reads now for a client, and tells what it finds as soon as that is safe.
    pub(super) fn read_now(
        &mut self,
        id: CommandId,
        command: &S::Command,
        now: Instant,
    ) -> Option<Told<S::Reply>> {
        let told = self.machine.read(command).map_or(Told::Touches, Told::Read);
        let keyspace = self.identity.process.keyspace;
        // A read that would let a key expire claims nothing: it is asked for again, and has its place then.
        if O::SPECULATES
            && told != Told::Touches
            && !self.planted(Bug::ReadTentative)
            && let Some(position) = self.speculation.unsynced.conflict(keyspace, |visit| command.visit(visit))
        {
            // The value is that of the last write, and safe when that is; writes that come in until then come behind this read.
            // One of another key of its is not to be over before that: who reads elsewhere would see neither.
            if self.order.reads_elsewhere() && !self.planted(Bug::ForgetReadKeys) {
                self.speculation.unsynced.read(position, keyspace, |visit| command.visit(visit));
            }
            self.speculation.parked.park(position, (id.client, id.sequence, told));
            self.hurry(now);
            return None;
        }
        Some(told)
    }

    /// Somebody waits for a command that is on its way here.
    pub(super) fn await_decision(&mut self, id: CommandId, now: Instant) -> Option<Told<S::Reply>> {
        if !O::SPECULATES {
            return None;
        }
        if self.planted(Bug::SpeculateOnDuplicate) {
            let known = self.speculation.pending.iter().find_map(|pending| match &pending.ran {
                Some(Ran::Executed(reply)) if pending.place.0[pending.place.1].id() == Some(id) => {
                    Some(reply)
                }
                _ => None,
            });
            return known.map(|reply| Told::Speculative(reply.clone()));
        }
        self.speculation.waiting.insert(id);
        self.hurry(now);
        None
    }

    /// Tells of reads whose values are safe now, and goes on behind a barrier.
    pub(super) fn decided_behind(&mut self, mut effects: Option<&mut Effects<Self>>) {
        if !O::SPECULATES {
            return;
        }
        if !self.speculation.parked.is_empty() {
            let due: Vec<_> = self.speculation.parked.release(self.speculation.decided).collect();
            for (client, sequence, told) in due {
                self.answer(client, None, sequence, told);
            }
        }
        self.run_ahead(effects.take());
    }

    fn hurry(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.speculation.hurried, true) {
            self.order.hurry(now);
        }
    }

    /// By a planted bug, what a command is told that would change nothing: it has no place in the log then, and no
    /// record that it is over.
    pub(super) fn forgotten_failure(&self, command: &S::Command) -> Option<S::Reply> {
        let keyspace = self.identity.process.keyspace;
        if !self.planted(Bug::ForgetFailures)
            || self.speculation.unsynced.conflict(keyspace, |visit| command.visit(visit)).is_some()
        {
            return None;
        }
        let digest = |machine: &S| rustc_hash::FxBuildHasher.hash_one(machine);
        let mut machine = self.machine.clone();
        let reply = machine.apply(command);
        (digest(&machine) == digest(&self.machine)).then_some(reply)
    }

    /// Rule 2, I2: no command whose client has a speculative answer meets anything that is tentative before it. Looked up by
    /// the keys themselves, of the `last` of what is tentative, among the `before` that are before each.
    pub(super) fn assert_told_apart(&self, last: usize, before: usize) {
        // What these bugs do is to be seen by who asks.
        if !self.planted(Bug::SpeculateOnConflict) && !self.planted(Bug::ForgetReadKeys) {
            assert!(
                self.speculation.told_apart(last, before),
                "I2: a speculative answer rests on what is tentative"
            );
        }
    }

    pub(super) fn planted(&self, bug: Bug) -> bool {
        cfg!(feature = "mutations") && self.knobs.0.shared_bug() == Some(bug)
    }
}
