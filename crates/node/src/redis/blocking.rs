//! Commands that wait for something to pop: BLPOP and its kin.
//!
//! Such a command is first asked like its kin that does not wait. Where nothing was there, the connection
//! takes up nothing more, and asks again when a key is said to have been given something ([`crate::hub`]).
//! Since news may be lost and keys be filled where nobody notices (by a restore, a rename on a node that has
//! not heard of us), it also looks once a second whether a key exists. Every attempt is an ordinary command
//! of the keyspace's protocol: what it pops is popped once. It cannot be taken back: one that is not answered, because
//! the node is cut off, may be executed when its client has long given up. So where the keyspace has not answered this
//! node for a second ([`Hub::hears`]), a command that would take something begins with a look, which may end in time. Of
//! several keys one may hold another type meanwhile: an attempt that has met it asks what each of them holds, and tries
//! those that are of the type it waits for.
//!
//! Of every element that came somebody is told who looks: where that one takes another, or cannot take it, those behind it
//! are ([`Hub::unwait`], [`Hub::passes`]).
//!
//! Attempts of several connections for one key are under way at once, and which of them finds what is there, nobody knows before
//! the answers come. So what one has taken is for the one that has waited longest for the same ([`Hub::share`]).

use super::acl;
use super::connection::State;
use super::reply::Reply;
use super::report::Report;
use super::request::{Args, Kept};
use super::spec::Spec;
use super::{complaint::Complaint, shape::Plan};
use crate::gateway::{Ask, Context, Outcome, Request};
use crate::hub::{Hub, Manner, RETRY};
use isochrone_core::command::{
    Chord, Command, GroupChange, GroupRead, Kind, Operation, ReadFrom, Refusal, Response, Score, StreamId,
    StreamRead,
};
use isochrone_core::notify::Flags;
use isochrone_core::{Blob, Instant, KeyspaceId, Span};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long a command may wait.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Patience {
    /// Zero: for ever. `None`: not at all.
    time: Option<Span>,
}

impl Patience {
    /// It does not wait.
    pub(crate) fn none() -> Patience {
        Patience { time: None }
    }

    /// Whether it waits.
    pub(crate) fn waits(self) -> bool {
        self.time.is_some()
    }

    /// A time in whole milliseconds.
    pub(crate) fn parse_millis(text: &[u8]) -> Result<Patience, Complaint> {
        let millis = super::request::integer(text)
            .ok_or(Complaint::text("ERR timeout is not an integer or out of range"))?;
        let millis = u64::try_from(millis).map_err(|_| Complaint::text("ERR timeout is negative"))?;
        Ok(Patience { time: Some(Span::from_millis(millis.min(1_000_000_000_000))) })
    }

    /// A time in seconds, with a fraction.
    pub(crate) fn parse(text: &[u8]) -> Result<Patience, Complaint> {
        // What is beyond a double is a number to Redis, and out of range.
        let seconds = Score::read(text).map(|score| score.get());
        let seconds = seconds.ok_or(Complaint::text("ERR timeout is not a float or out of range"))?;
        let millis = (seconds * 1000.0).ceil();
        if millis > i64::MAX as f64 {
            return Err(Complaint::text("ERR timeout is out of range"));
        }
        if millis < 0.0 {
            return Err(Complaint::text("ERR timeout is negative"));
        }
        // Thirty years are as good as for ever.
        Ok(Patience { time: Some(Span::from_millis(millis.min(1e12) as u64)) })
    }
}

/// A command that waits.
pub(crate) struct Blocked {
    /// Its place in the order of replies.
    id: u64,
    /// Whose command it is.
    connection: u64,
    user: String,
    spec: &'static Spec,
    request: Kept,
    keyspace: KeyspaceId,
    operation: Operation,
    keys: Box<[Blob]>,
    until: Option<Instant>,
    retry: Instant,
    step: Step,
    /// What is under way is asked to say what it does; a first attempt, where no look came before it, is as any other command.
    report: Option<Box<Report>>,
    /// A key was given something while an attempt was under way.
    again: bool,
    /// CLIENT UNBLOCK came while an attempt was under way: with an error or without.
    unblocked: Option<bool>,
    /// The first look or attempt has failed.
    waits: bool,
}

/// What is under way.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum Step {
    Nothing,
    /// Whether a key exists.
    Look,
    /// The command itself.
    Attempt,
    /// An attempt has met a key of another type: what each of them holds.
    Kinds,
    /// The command for those keys that are of the type it waits for.
    Narrowed,
    /// Nothing: it has taken something, and those that have waited longer may yet have to get that.
    Took,
}

impl Step {
    /// Whether it may have taken an element, so that what becomes of that is to be waited for.
    fn attempts(self) -> bool {
        matches!(self, Step::Attempt | Step::Narrowed | Step::Took)
    }
}

/// What an answer means to a command that waits.
pub(crate) enum Heard {
    /// It goes on waiting.
    Waits,
    /// It ends with this.
    Ends(Outcome),
}

/// Takes up a command that may wait.
pub(crate) fn begin(
    state: &mut State,
    (spec, args): (&'static Spec, Args<'_>),
    plan: Plan,
    patience: Patience,
    context: &mut Context<'_>,
    sink: &mut super::connection::Sink<'_>,
) {
    let Some(time) = patience.time else {
        state.ask(plan, context, sink);
        return;
    };
    let mut keys = Vec::new();
    plan.operation.visit(&mut |touch| {
        if let isochrone_core::command::Touch::Key(key, _) = touch {
            keys.push(key.clone());
        }
    });
    // What an element is moved to is not waited for.
    if let Operation::LMove { source, .. } = &plan.operation {
        keys = vec![source.clone()];
    }
    let operation = plan.operation.clone();
    let mut request = Kept::default();
    request.push(args, false);
    // How long it waits is no fault of anybody.
    sink.said = None;
    let Some((id, keyspace)) = state.ask(plan, context, sink) else { return };
    context.hub.wait(state.number, keyspace, &keys);
    let manner = manner(&operation);
    // A look may overtake what this connection has asked before, and does not say whether a watched key was there.
    let alone = state.pipeline.waiting() == 1 && state.watches.len() == 0;
    let looks = manner.is_some() && alone && !context.hub.hears(keyspace, context.now);
    if let Some(manner) = manner {
        context.hub.takes(state.number, manner);
    }
    let mut blocked = Box::new(Blocked {
        id,
        connection: state.number,
        user: state.user.clone(),
        spec,
        request,
        keyspace,
        operation,
        keys: keys.into(),
        until: (time > Span::ZERO).then(|| context.now + time),
        retry: context.now + RETRY,
        step: Step::Attempt,
        report: None,
        again: false,
        unblocked: None,
        waits: false,
    });
    if looks {
        // In the place of what was asked just now.
        sink.requests.pop();
        state.pipeline.take_asked(id);
        context.hub.took_nothing(state.number);
        blocked.ask(Step::Look, context, sink.requests);
    }
    state.blocked = Some(blocked);
}

/// How this command takes what it waits for; none where it leaves it there.
fn manner(operation: &Operation) -> Option<Manner> {
    let mut how = operation.clone();
    let from = match &mut how {
        Operation::LMPop { keys, .. } => {
            *keys = [].into();
            (Kind::List, None)
        }
        Operation::ZMPop { keys, .. } => {
            *keys = [].into();
            (Kind::SortedSet, None)
        }
        Operation::LMove { .. } => (Kind::List, None),
        Operation::XReadGroup { read } => (Kind::Stream, Some(read.group.clone())),
        _ => return None,
    };
    Some(Manner { from, how })
}

/// An answer has come for the command that waits.
pub(crate) fn heard(
    blocked: &mut Blocked,
    outcome: Outcome,
    context: &mut Context<'_>,
    requests: &mut Vec<Request>,
) -> Heard {
    let step = std::mem::replace(&mut blocked.step, Step::Nothing);
    let (outcome, whole) = blocked.unwrapped(step, outcome);
    let outcome = if step == Step::Kinds { outcome } else { blocked.resolved(outcome) };
    let other = matches!(&outcome, Outcome::Done(Response::Error(Refusal::WrongType)));
    let refused = matches!(&outcome, Outcome::Refused(_));
    // Keys that have moved apart since do not come together by waiting.
    let apart = matches!(&outcome, Outcome::Refused(text) if text.starts_with("CROSSSLOT"));
    let empty = match (&outcome, step) {
        _ if apart => false,
        // Who reads for a group is told that its stream is something else, as that its group is gone.
        _ if other && matches!(blocked.operation, Operation::XReadGroup { .. }) => false,
        (Outcome::Done(Response::Integer(0)), Step::Look) => true,
        (Outcome::Done(Response::Integer(_)), Step::Look) => {
            if context.hub.sees(blocked.connection) {
                return blocked.attempt(context, requests).map_or(Heard::Waits, Heard::Ends);
            }
            true
        }
        (Outcome::Done(Response::Array(kinds)), Step::Kinds) => match blocked.narrowed(kinds) {
            Some(operation) => {
                blocked.send(Step::Narrowed, operation, context, requests);
                return Heard::Waits;
            }
            None => true,
        },
        // Who does not wait yet is refused at once, as where it begins with an attempt.
        (Outcome::Refused(_), Step::Look) if !blocked.waits => false,
        // A look that failed is one that saw nothing.
        (_, Step::Look | Step::Kinds) => true,
        (Outcome::Done(Response::Nil | Response::NilArray), _) => true,
        _ if other && blocked.waits && blocked.keys.len() > 1 => {
            context.hub.took_nothing(blocked.connection);
            if let Some(end) = blocked.given(context) {
                return Heard::Ends(end);
            }
            blocked.ask(Step::Kinds, context, requests);
            return Heard::Waits;
        }
        // Whoever waits already goes on where a key now holds another type, or the keyspace is away; but not where what it
        // would move has nowhere to go.
        _ if other => blocked.waits && !whole,
        (Outcome::Refused(_), _) => blocked.waits,
        _ => false,
    };
    let (hub, connection) = (&mut *context.hub, blocked.connection);
    if !empty {
        let Some(key) = blocked.taken(&outcome).cloned() else { return Heard::Ends(outcome) };
        hub.took(connection, blocked.keyspace, &key);
        let Some(outcome) = hub.share(connection, blocked.keyspace, &key, outcome) else {
            blocked.step = Step::Took;
            return Heard::Waits;
        };
        return Heard::Ends(outcome);
    }
    match step {
        Step::Attempt if other || refused => hub.passes(connection),
        Step::Attempt => hub.found_nothing(connection),
        // Of the keys that it has left out others may want what is there.
        Step::Kinds | Step::Narrowed => hub.passes(connection),
        Step::Look | Step::Nothing | Step::Took => {}
    }
    if step.attempts() {
        hub.took_nothing(connection);
    }
    let end = blocked.given(context).or_else(|| blocked.goes_on(context, requests));
    end.map_or(Heard::Waits, Heard::Ends)
}

impl Blocked {
    /// Whether it has found nothing at first: until then it is asked like any other command.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Whoever waits moves an element together with a look at what it comes from: whether that is a list.
    fn unwrapped(&self, step: Step, outcome: Outcome) -> (Outcome, bool) {
        match (&self.operation, outcome) {
            (Operation::LMove { .. }, Outcome::Done(Response::Array(mut parts))) if parts.len() == 2 => {
                if step == Step::Look {
                    // Of the target it is enough that it was reached.
                    return (Outcome::Done(parts.swap_remove(0)), false);
                }
                let whole = parts[0] == Response::Kind(Kind::List);
                (Outcome::Done(parts.swap_remove(1)), whole)
            }
            (_, outcome) => (outcome, false),
        }
    }

    /// The key of which this outcome gives an element.
    fn taken(&self, outcome: &Outcome) -> Option<&Blob> {
        let Outcome::Done(response) = outcome else { return None };
        match (response, &self.keys[..]) {
            (Response::Error(_), _) => None,
            (_, [key]) => Some(key),
            (Response::Array(parts), keys) => match parts.first() {
                Some(Response::Bulk(first)) => keys.iter().find(|key| *key == first),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it ends so because one of these keys of this keyspace was there, or may have put something there.
    pub(crate) fn met(&self, outcome: &Outcome, keyspace: KeyspaceId, keys: &BTreeSet<Blob>) -> bool {
        if keys.is_empty() || keyspace != self.keyspace {
            return false;
        }
        match outcome {
            Outcome::Refused(_) | Outcome::Done(Response::Nil | Response::NilArray) => false,
            // What its first attempt has met was asked with it.
            Outcome::Done(Response::Error(_)) if !self.waits => false,
            Outcome::Done(Response::Pairs(streams)) => {
                streams.iter().any(|(key, _)| matches!(key, Response::Bulk(key) if keys.contains(key)))
            }
            outcome => match self.taken(outcome) {
                Some(key) if self.keys.len() > 1 => keys.contains(key),
                _ => {
                    let mut any = false;
                    self.operation.visit(&mut |touch| {
                        if let isochrone_core::command::Touch::Key(key, _) = touch {
                            any |= keys.contains(key);
                        }
                    });
                    any
                }
            },
        }
    }

    /// The command for those of its keys that are of the type it waits for, given what each holds; none where none is.
    fn narrowed(&self, kinds: &[Response]) -> Option<Operation> {
        let mut operation = self.operation.clone();
        let wanted = match &operation {
            Operation::LMPop { .. } => Kind::List,
            Operation::ZMPop { .. } => Kind::SortedSet,
            Operation::XRead { .. } => Kind::Stream,
            _ => return None,
        };
        let mut fits = kinds.iter().map(|kind| *kind == Response::Kind(wanted));
        if !fits.clone().any(|fits| fits) {
            return None;
        }
        // Its keys are in the order in which it names them.
        match &mut operation {
            Operation::LMPop { keys, .. } | Operation::ZMPop { keys, .. } => {
                *keys = keys.iter().filter(|_| fits.next() == Some(true)).cloned().collect();
            }
            Operation::XRead { read } => {
                Arc::make_mut(read).streams.retain(|_| fits.next() == Some(true));
            }
            _ => return None,
        }
        Some(operation)
    }

    /// A read of streams that found nothing has been told what `$` meant: that is where it goes on.
    fn resolved(&mut self, outcome: Outcome) -> Outcome {
        let (Operation::XRead { read }, Outcome::Done(Response::Array(ids))) = (&self.operation, &outcome)
        else {
            return outcome;
        };
        let number = |response: &Response| match response {
            Response::Bulk(bytes) => bytes[..].try_into().map_or(0, u64::from_be_bytes),
            _ => 0,
        };
        let mut read = StreamRead::clone(read);
        read.resolve = false;
        for ((_, from), id) in read.streams.iter_mut().zip(ids.chunks(2)) {
            if let [millis, sequence] = id {
                *from = ReadFrom::After(StreamId { millis: number(millis), sequence: number(sequence) });
            }
        }
        self.operation = Operation::XRead { read: Arc::new(read) };
        Outcome::Done(Response::NilArray)
    }

    /// Its place in the order of replies.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// A key was given something. How it ends, where it does.
    pub(crate) fn filled(
        &mut self,
        context: &mut Context<'_>,
        requests: &mut Vec<Request>,
    ) -> Option<Outcome> {
        match self.step {
            Step::Nothing => self.attempt(context, requests),
            Step::Look | Step::Attempt | Step::Kinds | Step::Narrowed | Step::Took => {
                self.again = true;
                None
            }
        }
    }

    /// What it has taken may be settled. How it ends, where that was for another and it does not go on.
    pub(crate) fn settled(
        &mut self,
        context: &mut Context<'_>,
        requests: &mut Vec<Request>,
    ) -> Option<Outcome> {
        if self.step != Step::Took || context.hub.has_taken(self.connection) {
            return None;
        }
        self.step = Step::Nothing;
        self.goes_on(context, requests)
    }

    /// How it ends with what it was given, if it was, unless its user may not take that any more.
    pub(crate) fn given(&self, context: &mut Context<'_>) -> Option<Outcome> {
        if !context.hub.is_given(self.connection) {
            return None;
        }
        // Who has taken something itself might do so then.
        let denied = if self.step == Step::Took { None } else { self.denied(context) };
        denied.or_else(|| context.hub.take_given(self.connection))
    }

    /// It has nothing, and nothing is under way: it goes on waiting. How it ends, where it does not.
    fn goes_on(&mut self, context: &mut Context<'_>, requests: &mut Vec<Request>) -> Option<Outcome> {
        if let Some(end) = self.end(context.now) {
            return Some(end);
        }
        if !self.waits {
            self.waits = true;
            context.hub.announce(self.keyspace, &self.keys);
        }
        if std::mem::take(&mut self.again) { self.attempt(context, requests) } else { None }
    }

    /// How it ends where its user may not ask for it any more.
    fn denied(&self, context: &mut Context<'_>) -> Option<Outcome> {
        let denied = acl::permit(&self.user, self.spec, self.request.at(0), false, context).err()?;
        Some(Outcome::Refused(denied.complaint(&self.user, self.spec).to_string()))
    }

    /// Asks again, unless its user may not any more: how it ends then.
    fn attempt(&mut self, context: &mut Context<'_>, requests: &mut Vec<Request>) -> Option<Outcome> {
        let denied = self.denied(context);
        if denied.is_none() {
            self.ask(Step::Attempt, context, requests);
        }
        denied
    }

    /// CLIENT UNBLOCK. How it ends, unless it does when it is known what becomes of an attempt.
    pub(crate) fn unblock(&mut self, error: bool, now: Instant) -> Option<Outcome> {
        self.unblocked = Some(error);
        if self.step.attempts() && !self.operation.is_read() { None } else { self.end(now) }
    }

    /// Time has passed. How it ends, where it does.
    pub(crate) fn tick(&mut self, context: &mut Context<'_>, requests: &mut Vec<Request>) -> Option<Outcome> {
        if self.step.attempts() {
            // What only reads leaves everything where it is, whenever it is executed.
            return if self.operation.is_read() { self.end(context.now) } else { None };
        }
        if let Some(end) = self.end(context.now) {
            return Some(end);
        }
        if self.step == Step::Nothing && self.retry <= context.now {
            self.retry = context.now + RETRY;
            context.hub.announce(self.keyspace, &self.keys);
            self.ask(Step::Look, context, requests);
        }
        None
    }

    /// How it ends if nothing is there to pop: not at all, while there is time.
    fn end(&self, now: Instant) -> Option<Outcome> {
        match self.unblocked {
            Some(true) => return Some(unblocked()),
            Some(false) => {}
            None if self.until.is_some_and(|until| until <= now) => {}
            None => return None,
        }
        Some(Outcome::Done(Response::NilArray))
    }

    fn ask(&mut self, step: Step, context: &mut Context<'_>, requests: &mut Vec<Request>) {
        if step == Step::Attempt {
            self.again = false;
            context.hub.looks(self.connection);
        }
        let operation = match step {
            // Whoever reads for a group changes something where it only tries.
            Step::Look => match &self.operation {
                Operation::XReadGroup { read } => {
                    Operation::XReadGroup { read: GroupRead { peek: true, ..GroupRead::clone(read) }.into() }
                }
                // Where it would be moved to must be reached together with it.
                Operation::LMove { source, target, .. } => Operation::Transaction {
                    watched: [].into(),
                    operations: [source, target]
                        .map(|key| Operation::Exists { keys: [key.clone()].into() })
                        .into(),
                },
                _ => Operation::Exists { keys: self.keys.iter().cloned().collect() },
            },
            Step::Kinds => Operation::Transaction {
                watched: [].into(),
                operations: self.keys.iter().map(|key| Operation::Type { key: key.clone() }).collect(),
            },
            _ => match &self.operation {
                Operation::LMove { source, .. } => Operation::Transaction {
                    watched: [].into(),
                    operations: [Operation::Type { key: source.clone() }, self.operation.clone()].into(),
                },
                operation => operation.clone(),
            },
        };
        self.send(step, operation, context, requests);
    }

    fn send(
        &mut self,
        step: Step,
        mut operation: Operation,
        context: &mut Context<'_>,
        requests: &mut Vec<Request>,
    ) {
        self.step = step;
        if step.attempts() {
            context.hub.tries(self.connection);
        }
        // A look is none of the client's.
        let wanted = context.hub.wanted().without(Flags::MISS);
        self.report = Report::of(self.keyspace, &mut operation, wanted);
        let command = Command::new(context.stamp, operation);
        requests.push(Request { id: self.id, ask: Ask::Execute { keyspace: self.keyspace, command } });
    }

    /// What was asked with what was under way, for which an outcome has come.
    pub(crate) fn take_report(&mut self) -> Option<Box<Report>> {
        self.report.take()
    }
}

/// How a command ends that somebody else has ended, with an error.
pub(crate) fn unblocked() -> Outcome {
    Outcome::Refused("UNBLOCKED client unblocked via CLIENT UNBLOCK".to_owned())
}

/// What a command may give keys to pop: told to whoever waits once the command was executed.
#[derive(Debug, Default)]
pub(crate) enum Fills {
    /// Nothing.
    #[default]
    Nothing,
    /// One key so many elements.
    One(KeyspaceId, Blob, usize),
    /// These keys so many elements each.
    Many(KeyspaceId, Vec<(Blob, usize)>),
}

impl Fills {
    /// What this operation may give.
    pub(crate) fn of(keyspace: KeyspaceId, operation: &Operation) -> Fills {
        match operation {
            Operation::Transaction { .. } => {
                let mut keys = Vec::new();
                gather(operation, &mut keys);
                if keys.is_empty() { Fills::Nothing } else { Fills::Many(keyspace, keys) }
            }
            operation => match filled(operation) {
                Some((key, count)) => Fills::One(keyspace, key.clone(), count),
                None => Fills::Nothing,
            },
        }
    }

    /// Tells whoever waits.
    pub(crate) fn tell(&self, hub: &mut Hub, now: Instant) {
        match self {
            Fills::Nothing => {}
            Fills::One(keyspace, key, count) => hub.filled(*keyspace, key, *count, now),
            Fills::Many(keyspace, keys) => {
                keys.iter().for_each(|(key, count)| hub.filled(*keyspace, key, *count, now));
            }
        }
    }
}

/// What all of a transaction may give: what a known script does may be one within it.
fn gather(operation: &Operation, keys: &mut Vec<(Blob, usize)>) {
    match operation {
        Operation::Transaction { operations, .. } => {
            operations.iter().for_each(|operation| gather(operation, keys));
        }
        operation => keys.extend(filled(operation).map(|(key, count)| (key.clone(), count))),
    }
}

fn filled(operation: &Operation) -> Option<(&Blob, usize)> {
    match operation {
        Operation::Push { key, values, .. } => Some((key, values.len())),
        Operation::LInsert { key, .. } => Some((key, 1)),
        Operation::ZAdd { key, members, .. } => Some((key, members.len())),
        Operation::ZIncrBy { key, .. } => Some((key, 1)),
        Operation::LMove { target, .. } => Some((target, 1)),
        Operation::XGroup { key, change } => match **change {
            // Whoever waits there is told that nothing will come; or something is new again.
            GroupChange::Destroy { .. } | GroupChange::SetId { .. } => Some((key, usize::MAX)),
            _ => None,
        },
        Operation::ChordStep { chord } => match &**chord {
            Chord::Part { results, .. } => Some((results, 1)),
            _ => None,
        },
        // However much there is, everybody may have some.
        Operation::XAdd { key: target, .. }
        | Operation::Rename { target, .. }
        | Operation::Copy { target, .. }
        | Operation::ZRangeStore { target, .. }
        | Operation::ZCombineStore { target, .. }
        | Operation::GeoSearchStore { target, .. }
        | Operation::SortStore { target, .. }
        | Operation::Restore { key: target, .. } => Some((target, usize::MAX)),
        _ => None,
    }
}

/// `CLIENT UNBLOCK client-id [TIMEOUT|ERROR]`
pub(crate) fn unblock(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Complaint> {
    let error = match args.len() {
        3 => false,
        4 if super::args::is(args.at(3), "TIMEOUT") => false,
        4 if super::args::is(args.at(3), "ERROR") => true,
        4 => {
            let text = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
            return Err(Complaint::text(text));
        }
        _ => return Err(Complaint::Arity("client|unblock")),
    };
    let number = super::args::number(args.at(2))?;
    let number = u64::try_from(number).ok().filter(|number| context.hub.unblock(*number, error));
    // Who was told of an element is about to end with it; but it may be of another type, or gone.
    let ends = number.is_some_and(|number| !context.hub.is_told(number));
    reply.integer(i64::from(ends));
    Ok(())
}
