//! MULTI, EXEC, DISCARD, WATCH.
//!
//! Commands between MULTI and EXEC are kept as they came and understood at EXEC, by whose stamp their
//! expiries count; an error in one of them is its reply, and the others are executed, as in Redis. EXEC
//! becomes one [`Operation::Transaction`], which carries the versions that WATCH was told. What the node itself
//! does of it (PUBLISH, CONFIG SET) is done when that has been executed.
//!
//! A key that is not there has version 0, also where it has come and is gone again. So where there is such a key, WATCH asks once
//! more, for a number that stands for this absence ([`Operation::Watch`]); that is a write. Keyspaces of transactions have
//! no such numbers. There, so that EXEC does not go by what was read of such a key meanwhile, commands that touch it ask for its
//! version as well ([`Watches::probe`]).

use super::blocking::Blocked;
use super::complaint::Complaint;
use super::connection::{Sink, State, Step, WORK_MAX};
use super::login;
use super::pubsub;
use super::reply::Reply;
use super::request::{Args, Kept};
use super::scripts::Scripts;
use super::shape::{self, Item, Shape};
use super::spec::{Action, Local, Spec, flag};
use crate::gateway::{Context, Outcome};
use isochrone_core::command::{Operation, REPLY_MAX, Refusal, Response, Touch};
use isochrone_core::{Blob, KeyspaceId, wire};
use std::collections::BTreeSet;
use std::slice;

/// MULTI takes no more than this.
fn too_large(context: &Context<'_>) -> Complaint {
    let (commands, bytes) = (context.limits.elements, context.limits.command_bytes);
    Complaint::text(format!(
        "ERR the transaction is too large: it takes {commands} commands and {bytes} bytes at most, with the keys watched"
    ))
}

/// What MULTI has queued.
#[derive(Default)]
pub(crate) struct Queue {
    specs: Vec<&'static Spec>,
    kept: Kept,
    /// About how many steps it takes what the node itself does of it.
    steps: usize,
    spoiled: bool,
}

impl Queue {
    /// How many commands there are.
    pub(crate) fn len(&self) -> usize {
        self.specs.len()
    }

    /// Whether one of them may make data grow.
    pub(crate) fn grows(&self, scripts: &Scripts) -> bool {
        self.specs.iter().enumerate().any(|(at, spec)| scripts.grows(spec, self.kept.at(at)))
    }

    /// Makes EXEC refuse: a command could not be queued.
    pub(crate) fn spoil(&mut self) {
        self.spoiled = true;
    }
}

/// The keys that must not change before EXEC.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Replaced whenever all keys are let go, so that late answers are recognised.
    generation: u64,
    keyspace: KeyspaceId,
    /// With their versions; nothing in the places of a WATCH that has watched nothing.
    keys: Vec<Option<(Blob, u64)>>,
    /// Bytes of the keys, which EXEC carries beside what is queued.
    bytes: usize,
    /// Requests for versions under way.
    pending: usize,
    /// Those that were not there, where absences have no numbers.
    absent: BTreeSet<Blob>,
    /// A key was there that had not been, or a version could not be learned: EXEC must not go through.
    broken: bool,
}

/// Bytes of memory, about, of the versions that a command asks for at most; in a frame they take less. A transaction that
/// watches more absent keys than that, and asks for all of them in one command, does not go through.
const PROBED_MAX: usize = 4 << 20;

/// The longest key whose absence is kept in mind, bytes.
const ABSENT_MAX: usize = 4 << 10;

/// A command that asks for versions as well.
#[derive(Debug)]
pub(crate) struct Probe {
    generation: u64,
    /// Of how many keys, behind the command, and whether also before it.
    count: usize,
    twice: bool,
    /// Whether the command is a transaction by itself.
    whole: bool,
    /// Whether that goes by the absence of one of them, so that one was there where it is not executed.
    doubts: bool,
}

/// A request for the versions of some watched keys.
#[derive(Debug)]
pub(crate) struct Watch {
    generation: u64,
    first: usize,
    count: usize,
}

impl Watches {
    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether versions are under way.
    pub(crate) fn pending(&self) -> bool {
        self.pending > 0
    }

    /// Lets all keys go.
    pub(crate) fn clear(&mut self) {
        *self = Watches { generation: self.generation + 1, ..Watches::default() };
    }

    /// Versions have come. Where a key is absent, and its absence may be kept in mind for this user, all of these keys are to be asked
    /// for again with this, in this keyspace.
    pub(crate) fn asks_again(
        &self,
        watch: &Watch,
        outcome: &Outcome,
        user: &str,
        context: &mut Context<'_>,
    ) -> Option<(KeyspaceId, Operation)> {
        let view = context.keyspaces.iter().find(|view| view.id == self.keyspace)?;
        if watch.generation != self.generation || view.transactional {
            return None;
        }
        const ABSENT: Response = Response::Integer(0);
        let absent = match outcome {
            Outcome::Done(Response::Array(versions)) => versions.contains(&ABSENT),
            Outcome::Done(version) => *version == ABSENT,
            _ => false,
        };
        let places = self.keys.get(watch.first..watch.first + watch.count).filter(|_| absent)?;
        let keys = places.iter().flatten();
        // What is kept in mind of an absence is written, and outlasts this connection: for whoever may write its key, and of keys
        // that are short.
        let may = |key: &Blob| key.len() <= ABSENT_MAX && context.hub.users.may(user, "set", key);
        if !keys.clone().all(|(key, _)| may(key)) {
            return None;
        }
        let random = &mut *context.random;
        let asked = keys.map(|(key, _)| Operation::Watch { key: key.clone(), seed: random.below(u64::MAX) });
        Some((self.keyspace, together(asked.collect())))
    }

    /// The last versions have come.
    pub(crate) fn learn(&mut self, watch: &Watch, outcome: &Outcome) {
        if watch.generation != self.generation {
            return;
        }
        self.pending -= 1;
        let places = &mut self.keys[watch.first..watch.first + watch.count];
        match outcome {
            Outcome::Done(Response::Integer(version)) if places.len() == 1 => {
                places.iter_mut().flatten().for_each(|place| place.1 = *version as u64);
            }
            Outcome::Done(Response::Array(versions)) if versions.len() == places.len() => {
                for (place, version) in places.iter_mut().flatten().zip(versions) {
                    match version {
                        Response::Integer(version) => place.1 = *version as u64,
                        _ => self.broken = true,
                    }
                }
            }
            // As in Redis, such a WATCH has watched nothing; whoever gets the connection next must not pay for it.
            Outcome::Refused(text) if text.starts_with("CROSSSLOT") => {
                let apart = places.iter_mut().filter_map(Option::take);
                self.bytes -= apart.map(|(key, _)| key.len()).sum::<usize>();
                // Places before those of another WATCH stay: its answer goes by their count.
                let left = self.keys.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
                self.keys.truncate(left);
            }
            _ => self.broken = true,
        }
        let places = self.keys.get(watch.first..watch.first + watch.count).unwrap_or_default();
        let absent = places.iter().flatten().filter(|(_, version)| *version == 0);
        self.absent.extend(absent.map(|(key, _)| key.clone()));
    }

    /// Has a command ask for the versions of those keys that it touches and that were not there: behind it, so that what it
    /// reads has all the room of an answer, and where it may change something, before it too.
    pub(crate) fn probe(&mut self, keyspace: KeyspaceId, operation: &mut Operation) -> Option<Box<Probe>> {
        if self.absent.is_empty() || self.broken || self.keyspace != keyspace {
            return None;
        }
        let mut keys = BTreeSet::new();
        operation.visit(&mut |touch| {
            if let Touch::Key(key, _) = touch
                && self.absent.contains(key)
            {
                keys.insert(key.clone());
            }
        });
        if keys.is_empty() {
            return None;
        }
        if keys.iter().map(|key| key.len() + size_of::<Operation>()).sum::<usize>() > PROBED_MAX {
            self.broken = true;
            return None;
        }
        let (count, twice) = (keys.len(), !operation.is_read());
        let whole = matches!(operation, Operation::Transaction { .. });
        let (watched, own) = match &*operation {
            Operation::Transaction { watched, operations } => (watched.clone(), &operations[..]),
            alone => ([].into(), slice::from_ref(alone)),
        };
        let doubts = watched.iter().any(|(key, version)| *version == 0 && keys.contains(key));
        let versions = || keys.iter().map(|key| Operation::Version { key: key.clone() });
        let before = versions().take(if twice { count } else { 0 });
        let operations = before.chain(own.iter().cloned()).chain(versions()).collect();
        *operation = Operation::Transaction { watched, operations };
        Some(Box::new(Probe { generation: self.generation, count, twice, whole, doubts }))
    }

    /// Learns from the answer to such a command; what is left is that to the command itself.
    pub(crate) fn probed(&mut self, probe: &Probe, outcome: Outcome) -> Outcome {
        let Probe { count, twice, whole, doubts, .. } = *probe;
        let before = if twice { count } else { 0 };
        let (there, outcome) = match outcome {
            Outcome::Done(Response::Array(mut parts))
                if parts.len() >= before + count + usize::from(!whole) =>
            {
                let after = parts.split_off(parts.len() - count);
                let mut own = parts.split_off(before);
                let there = parts.iter().chain(&after).any(|version| *version != Response::Integer(0));
                let response = if whole { Response::Array(own) } else { own.swap_remove(0) };
                (there, Outcome::Done(response))
            }
            // It was not executed.
            outcome @ Outcome::Done(Response::NilArray) => (doubts, outcome),
            outcome @ Outcome::Refused(_) => (false, outcome),
            outcome => (true, outcome),
        };
        self.broken |= there && probe.generation == self.generation;
        outcome
    }

    /// A command that waited has ended so: with what was given to a key, which was not there if it was watched as absent.
    pub(crate) fn waited(&mut self, blocked: &Blocked, outcome: &Outcome) {
        self.broken |= blocked.met(outcome, self.keyspace, &self.absent);
    }
}

/// `MULTI`
pub(crate) fn multi(state: &mut State, context: &mut Context<'_>, sink: &mut Sink<'_>) {
    if state.queue.is_some() {
        return state.complain(&Complaint::text("ERR MULTI calls can not be nested"), context, sink.out);
    }
    state.queue = Some(Queue::default());
    state.reply(sink.out, |reply| reply.ok());
}

/// `DISCARD`
pub(crate) fn discard(state: &mut State, context: &mut Context<'_>, sink: &mut Sink<'_>) {
    if state.queue.take().is_none() {
        return state.complain(&Complaint::text("ERR DISCARD without MULTI"), context, sink.out);
    }
    state.watches.clear();
    state.reply(sink.out, |reply| reply.ok());
}

/// `WATCH key ...`
pub(crate) fn watch(state: &mut State, args: Args<'_>, context: &mut Context<'_>, sink: &mut Sink<'_>) {
    if state.queue.is_some() {
        let text = "ERR WATCH inside MULTI is not allowed";
        return state.complain(&Complaint::text(text), context, sink.out);
    }
    let Some(keyspace) = context.keyspaces.get(state.keyspace).map(|keyspace| keyspace.id) else {
        return state.complain(&Complaint::text("ERR this node serves no keyspace"), context, sink.out);
    };
    let watches = &mut state.watches;
    if !watches.keys.is_empty() && watches.keyspace != keyspace {
        let text = "ERR keys of another keyspace are being watched; a transaction stays in one keyspace";
        return state.complain(&Complaint::text(text), context, sink.out);
    }
    let bytes = watches.bytes + args.from(1).iter().map(<[u8]>::len).sum::<usize>();
    if watches.keys.len() + args.len() > context.limits.elements || bytes > context.limits.command_bytes {
        *context.counters.limited.entry("command").or_default() += 1;
        let text = "ERR too many keys are being watched";
        return state.complain(&Complaint::text(text), context, sink.out);
    }
    (watches.keyspace, watches.bytes) = (keyspace, bytes);
    let first = watches.keys.len();
    watches.keys.extend(args.from(1).iter().map(|key| Some((Blob::new(key), 0))));
    watches.pending += 1;
    let count = watches.keys.len() - first;
    let ticket = Watch { generation: watches.generation, first, count };
    let keys = watches.keys[first..].iter().flatten();
    let versions = keys.map(|(key, _)| Operation::Version { key: key.clone() });
    let operation = together(versions.collect());
    state.ask_for(operation, Shape::Watch(ticket), context, sink);
}

/// One operation as it is, several as a transaction.
fn together(mut operations: Vec<Operation>) -> Operation {
    match operations.len() {
        1 => operations.swap_remove(0),
        _ => Operation::Transaction { watched: [].into(), operations: operations.into() },
    }
}

/// Steps that what a node itself does of a transaction takes at most: all of it is done at once.
const STEPS_MAX: usize = 100 * WORK_MAX;

/// Any other command after MULTI.
pub(crate) fn enqueue(
    state: &mut State,
    spec: &'static Spec,
    args: Args<'_>,
    context: &mut Context<'_>,
    sink: &mut Sink<'_>,
) {
    let steps = State::steps(spec, args, context);
    let Some(queue) = &mut state.queue else { return };
    let complaint = if spec.is(flag::NO_MULTI) {
        Some(Complaint::text("ERR Command not allowed inside a transaction"))
    } else if spec.name == "select" && login::leaves(state.keyspace, args, context) {
        let text = "ERR SELECT of another keyspace inside MULTI; a transaction stays in one keyspace";
        Some(Complaint::text(text))
    } else if queue.kept.len() >= context.limits.elements
        || state.watches.bytes + queue.kept.bytes() + args.bytes() > context.limits.command_bytes
    {
        *context.counters.limited.entry("command").or_default() += 1;
        Some(too_large(context))
    } else if queue.steps.saturating_add(steps) > STEPS_MAX {
        *context.counters.limited.entry("command").or_default() += 1;
        let text = "ERR the transaction is too large: too much of it is done by this node itself, as PUBLISH and COMMAND are";
        Some(Complaint::text(text))
    } else {
        None
    };
    if let Some(complaint) = complaint {
        return state.reject(&complaint, context, sink.out);
    }
    // After an error the rest is answered like any other, and not kept.
    if !queue.spoiled {
        queue.specs.push(spec);
        queue.steps += steps;
        queue.kept.push(args, secret(spec));
    }
    state.reply(sink.out, |reply| reply.simple("QUEUED"));
}

/// Whether what is said with this command may hold a password.
fn secret(spec: &Spec) -> bool {
    spec.name == "acl|setuser"
}

/// `EXEC`
pub(crate) fn exec(state: &mut State, context: &mut Context<'_>, sink: &mut Sink<'_>) -> Step {
    let Some(queue) = &state.queue else {
        state.complain(&Complaint::text("ERR EXEC without MULTI"), context, sink.out);
        return Step::Taken;
    };
    if queue.spoiled {
        state.queue = None;
        state.watches.clear();
        let text = "EXECABORT Transaction discarded because of previous errors.";
        state.complain(&Complaint::text(text), context, sink.out);
        return Step::Taken;
    }
    // The versions go into the transaction, so they must be there.
    if state.watches.pending() {
        return Step::Stalled;
    }
    // What is under way may yet tell that a key was there.
    if state.pipeline.waiting() > 0 && !state.watches.absent.is_empty() {
        return Step::Stalled;
    }
    // Nor is anything published ahead of what was written before.
    if state.pipeline.ordered() > 0
        && queue.specs.iter().all(|spec| matches!(spec.action, Action::Local(_)))
        && queue.specs.iter().any(|spec| pubsub::publishes(spec.name))
    {
        return Step::Stalled;
    }
    let queue = state.queue.take().unwrap_or_default();
    let watches = std::mem::take(&mut state.watches);
    state.watches.generation = watches.generation + 1;
    if watches.broken {
        state.reply(sink.out, |reply| reply.null_array());
        return Step::Taken;
    }
    let selected = context.keyspaces.get(state.keyspace).map(|keyspace| keyspace.id);
    if !watches.keys.is_empty() && selected != Some(watches.keyspace) {
        let text = "EXECABORT the watched keys are in another keyspace; a transaction stays in one keyspace";
        state.complain(&Complaint::text(text), context, sink.out);
        return Step::Taken;
    }
    let mut operations = Vec::new();
    let mut items = Vec::with_capacity(queue.specs.len());
    let mut encoded = 0;
    for (index, spec) in queue.specs.iter().enumerate() {
        let known = operations.len();
        items.push(understand(state, spec, queue.kept.at(index), context, &mut operations));
        // What is unpacked, or encoded at greater length than it was sent, goes to other nodes so.
        encoded += operations[known..].iter().map(wire::encoded_size).sum::<usize>();
        if encoded > context.limits.command_bytes {
            *context.counters.limited.entry("command").or_default() += 1;
            let complaint = abort(state, &too_large(context));
            state.complain(&complaint, context, sink.out);
            return Step::Taken;
        }
    }
    sink.bytes = encoded.max(sink.bytes + queue.kept.bytes());
    if operations.is_empty() && watches.keys.is_empty() {
        carry_out(&mut items, state, context);
        state.reply(sink.out, |reply| {
            reply.array(items.len());
            for item in &items {
                if let Item::Done(bytes) = item {
                    reply.raw(bytes);
                }
            }
        });
    } else {
        let watched = watches.keys.into_iter().flatten().collect();
        let operation = Operation::Transaction { watched, operations: operations.into() };
        let more = items.iter().any(|item| matches!(item, Item::Local(..)));
        let asked = state.ask_for(operation, Shape::Exec(items.into()), context, sink);
        state.finishing = asked.filter(|_| more).map(|(id, _)| id);
    }
    Step::Taken
}

/// EXEC cannot be carried out, for this reason: the transaction is over.
pub(crate) fn abort(state: &mut State, why: &Complaint) -> Complaint {
    state.queue = None;
    state.watches.clear();
    let why = why.to_string();
    let why = why.strip_prefix("ERR ").unwrap_or(&why);
    Complaint::text(format!("EXECABORT Transaction discarded because of: {why}"))
}

/// Does what the node itself does of a transaction that was executed.
pub(crate) fn carry_out(items: &mut [Item], state: &mut State, context: &mut Context<'_>) {
    state.executing = Some(items.len());
    let mut left = REPLY_MAX;
    for item in items {
        if let Item::Local(answer, kept) = item {
            let answer = if left > 0 { *answer } else { too_long };
            let bytes = answer_now(answer, state, kept.at(0), context);
            left = left.saturating_sub(bytes.len());
            *item = Item::Done(bytes);
        }
    }
    state.executing = None;
}

/// In the place of a reply for which there is no room.
fn too_long(_: &mut State, _: Args<'_>, _: &mut Context<'_>, _: &mut Reply<'_>) -> Result<(), Complaint> {
    Err(Complaint::text(Refusal::ReplyTooLong.to_string()))
}

/// The reply of what the node itself does.
fn answer_now(answer: Local, state: &mut State, args: Args<'_>, context: &mut Context<'_>) -> Vec<u8> {
    let (mut bytes, version) = (Vec::new(), state.version);
    let done = answer(state, args, context, &mut Reply::new(&mut bytes, version));
    super::audit::answered_words(args, done.as_ref().err(), context);
    if let Err(complaint) = done {
        bytes.clear();
        Reply::new(&mut bytes, version).error(complaint);
    }
    bytes
}

/// One command of a transaction: an operation, or a reply at once.
fn understand(
    state: &mut State,
    spec: &Spec,
    args: Args<'_>,
    context: &mut Context<'_>,
    operations: &mut Vec<Operation>,
) -> Item {
    let mut bytes = Vec::new();
    // Rules may have changed since it was queued.
    if let Err(denied) = super::acl::permit(&state.user, spec, args, true, context) {
        Reply::new(&mut bytes, state.version).error(denied.at_exec());
        return Item::Done(bytes);
    }
    super::monitor::tell(state, spec, args, context);
    let result = match spec.action {
        Action::Data(_) | Action::Blocking(_) => {
            let mut given = super::connection::given(state.keyspace, context);
            let plan = match spec.action {
                Action::Data(parse) => parse(args, &mut given),
                // Nothing waits within a transaction.
                Action::Blocking(parse) => parse(args, &mut given).map(|(plan, _)| plan),
                _ => Err(Complaint::Syntax),
            };
            let permitted = |plan| super::acl::permit_calls(&state.user, spec, args, context).map(|()| plan);
            match plan.and_then(permitted) {
                Ok(plan) if plan.stands_alone() => {
                    Err(Complaint::text("ERR this script is not carried out within MULTI"))
                }
                Ok(plan) => {
                    super::audit::asked(spec, context);
                    operations.push(plan.operation);
                    return Item::Asked(plan.shape);
                }
                Err(complaint) => Err(complaint),
            }
        }
        Action::Local(_) if spec.name == "monitor" => {
            Err(Complaint::text("ERR MONITOR isn't allowed for DENY BLOCKING client"))
        }
        Action::Durable(parse) => parse(args).map(|demand| {
            let answer = Outcome::Done(demand.answer_at_once(state, context));
            shape::write(Shape::Plain, answer, &mut Reply::new(&mut bytes, state.version));
        }),
        // EVALSHA behind it in the transaction goes by it, and is understood before anything is asked.
        Action::Local(answer) if spec.name.starts_with("script|") => {
            return Item::Done(answer_now(answer, state, args, context));
        }
        // What the node itself does is done when the transaction has been executed, and only then.
        Action::Local(answer) => {
            let mut kept = Kept::default();
            kept.push(args, secret(spec));
            return Item::Local(answer, kept);
        }
        // Neither is ever queued.
        Action::Control(_) | Action::Container(_) => Err(Complaint::Syntax),
    };
    if let Err(complaint) = result {
        bytes.clear();
        Reply::new(&mut bytes, state.version).error(complaint);
    }
    Item::Done(bytes)
}
