//! WAIT and WAITAOF: how many copies have what was written before.
//!
//! Where what a client is told is on the disks of most replicas by then, that is known at once. Where it may be with
//! witnesses alone (`specs/curp.md` 7.3), the connection first waits for the answers to all that it asked before, and then
//! has the keyspace answer something that touches all its keys: that has an answer only once everything before it is in
//! the logs of all copies, also what other connections wrote. What is then answered is how many copies those are. If the
//! time is over before that, nothing is known of any copy, and the answer says none.

use super::complaint::Complaint;
use super::connection::{Sink, State, Step};
use super::request::{Args, integer};
use super::shape::Shape;
use crate::gateway::{Context, Durability, KeyspaceView, Outcome};
use isochrone_core::command::{Operation, Response};
use isochrone_core::{Instant, Span};

/// What is asked.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Demand {
    /// Whether of disks, the own one besides.
    disks: bool,
    /// For how long; zero is for ever.
    time: Span,
}

/// Understands a request.
pub(crate) type Parse = fn(Args<'_>) -> Result<Demand, Complaint>;

/// A demand that waits for an answer.
#[derive(Debug)]
pub(crate) struct Syncing {
    /// Its place in the order of replies.
    id: u64,
    demand: Demand,
    /// The keyspace, as a place in [`Context::keyspaces`].
    keyspace: usize,
    until: Option<Instant>,
}

/// `WAIT numreplicas timeout`
pub(crate) fn wait(args: Args<'_>) -> Result<Demand, Complaint> {
    integer(args.at(1)).ok_or(Complaint::NotInteger)?;
    Ok(Demand { disks: false, time: time(args.at(2))? })
}

/// `WAITAOF numlocal numreplicas timeout`
pub(crate) fn wait_aof(args: Args<'_>) -> Result<Demand, Complaint> {
    for at in [1, 2] {
        match integer(args.at(at)) {
            Some(0..) if at == 2 => {}
            Some(0 | 1) => {}
            _ => return Err(Complaint::text("ERR value is out of range, must be positive")),
        }
    }
    Ok(Demand { disks: true, time: time(args.at(3))? })
}

fn time(text: &[u8]) -> Result<Span, Complaint> {
    let millis = integer(text).ok_or(Complaint::text("ERR timeout is not an integer or out of range"))?;
    let millis = u64::try_from(millis).map_err(|_| Complaint::text("ERR timeout is negative"))?;
    // Thirty years are as good as for ever.
    Ok(Span::from_millis(millis.min(1_000_000_000_000)))
}

impl Demand {
    /// What is known of a keyspace, when all that was written is `synced`.
    pub(crate) fn answer(
        self,
        keyspace: Option<&KeyspaceView>,
        synced: bool,
        context: &Context<'_>,
    ) -> Response {
        let copies = keyspace.filter(|_| synced).map_or(0, |keyspace| i64::from(keyspace.copies));
        if !self.disks {
            return Response::Integer(copies);
        }
        let durable = i64::from(synced && !context.node.unsafe_fsync_off);
        Response::Array(vec![Response::Integer(durable), Response::Integer(copies * durable)])
    }

    /// The answer in a transaction, where nothing waits.
    pub(crate) fn answer_at_once(self, state: &State, context: &Context<'_>) -> Response {
        let keyspace = context.keyspaces.get(state.keyspace);
        let known = keyspace.is_none_or(|keyspace| keyspace.durability == Durability::Most);
        self.answer(keyspace, known, context)
    }
}

/// Takes up a demand.
pub(crate) fn begin(
    state: &mut State,
    demand: Demand,
    context: &mut Context<'_>,
    sink: &mut Sink<'_>,
) -> Step {
    let keyspace = context.keyspaces.get(state.keyspace).map(|keyspace| keyspace.durability);
    let Some(Durability::MostSoon | Durability::AllSoon) = keyspace else {
        let answer = demand.answer_at_once(state, context);
        state.reply(sink.out, |reply| super::shape::write(Shape::Plain, Outcome::Done(answer), reply));
        return Step::Taken;
    };
    if state.pipeline.waiting() > 0 {
        // What was asked before may be lost and asked again, and then be behind what is asked now.
        return Step::Stalled;
    }
    if let Some((id, _)) = state.ask_for(Operation::DbSize, Shape::Plain, context, sink) {
        context.hub.wait_for_copies(state.number);
        let until = (demand.time > Span::ZERO).then(|| context.now + demand.time);
        state.syncing = Some(Box::new(Syncing { id, demand, keyspace: state.keyspace, until }));
    }
    Step::Taken
}

impl Syncing {
    /// Its place in the order of replies.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The keyspace has answered.
    pub(crate) fn heard(&self, outcome: Outcome, context: &Context<'_>) -> Outcome {
        match outcome {
            Outcome::Done(response) if !response.is_error() => self.end(true, context),
            outcome => outcome,
        }
    }

    /// Whether its time is over.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// How it ends.
    pub(crate) fn end(&self, synced: bool, context: &Context<'_>) -> Outcome {
        Outcome::Done(self.demand.answer(context.keyspaces.get(self.keyspace), synced, context))
    }
}
