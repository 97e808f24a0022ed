//! rq's script that empties a queue, and deletes what its jobs have: keys that it does not declare, since their names are in the
//! queue.
//!
//! An operation says beforehand which keys it touches, so this is done in steps: some jobs are popped, and then what they have
//! is deleted; so long as there are some, but no more than there were. Where this node ends between two steps, jobs that were
//! popped keep what they have.

use super::blocking::Heard;
use super::complaint::Complaint;
use super::connection::{Sink, State};
use super::shape::{Plan, Shape};
use crate::gateway::{Ask, Context, Outcome, Request};
use isochrone_core::command::{Command, Operation, Response, Side};
use isochrone_core::{Blob, KeyspaceId};

/// So many jobs are popped at a time.
const STEP: u64 = 1_000;

/// What comes before and behind the name of a job in the keys that it has.
pub(crate) type Belongings = &'static [(&'static str, &'static str)];

/// A queue that is being emptied.
#[derive(Debug)]
pub(crate) struct Emptying {
    /// Its place in the order of replies.
    id: u64,
    keyspace: KeyspaceId,
    queue: Blob,
    belongings: Belongings,
    popped: u64,
    /// How many there were at first, once that is known.
    most: Option<u64>,
    /// Whether it is deletion that is under way.
    deletes: bool,
}

/// The first step for this queue.
pub(crate) fn plan(queue: Blob, belongings: Belongings) -> Plan {
    Plan { operation: pop(&queue, STEP), shape: Shape::Emptied(queue, belongings) }
}

/// How many jobs there are, and some of them, which are there no longer.
fn pop(queue: &Blob, count: u64) -> Operation {
    let operations = [
        Operation::LLen { key: queue.clone() },
        Operation::Pop { key: queue.clone(), side: Side::Left, count: Some(count) },
    ];
    Operation::Transaction { watched: [].into(), operations: operations.into() }
}

/// Takes the script up: nothing more of this connection is, before it has ended.
pub(crate) fn begin(
    state: &mut State,
    operation: Operation,
    (queue, belongings): (Blob, Belongings),
    context: &mut Context<'_>,
    sink: &mut Sink<'_>,
) {
    if context.keyspaces.get(state.keyspace).is_some_and(|keyspace| keyspace.leaders.len() > 1) {
        let text = "CROSSSLOT the keys of the jobs may be in other partitions than their queue";
        return state.complain(&Complaint::text(text), context, sink.out);
    }
    let Some((id, keyspace)) = state.ask_for(operation, Shape::Plain, context, sink) else { return };
    state.emptying =
        Some(Box::new(Emptying { id, keyspace, queue, belongings, popped: 0, most: None, deletes: false }));
}

impl Emptying {
    /// Its place in the order of replies.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The answer to a step.
    pub(crate) fn heard(
        &mut self,
        outcome: Outcome,
        user: &str,
        context: &mut Context<'_>,
        requests: &mut Vec<Request>,
    ) -> Heard {
        let response = match outcome {
            Outcome::Done(response) => response,
            // That is said where nothing was done.
            Outcome::Refused(text) if self.popped > 0 => return Heard::Ends(Outcome::Unknown(text)),
            outcome => return Heard::Ends(outcome),
        };
        if response.is_error() {
            return Heard::Ends(Outcome::Done(response));
        }
        if self.deletes {
            self.deletes = false;
            let left = self.most.unwrap_or_default().saturating_sub(self.popped);
            if left > 0 {
                return self.ask(pop(&self.queue, left.min(STEP)), context, requests);
            }
            return self.end();
        }
        let Response::Array(mut parts) = response else { return self.end() };
        let jobs = match (parts.pop(), parts.pop()) {
            (Some(jobs), Some(Response::Integer(length))) if !jobs.is_error() => {
                self.most.get_or_insert(u64::try_from(length).unwrap_or_default());
                jobs
            }
            (Some(refused), _) => return Heard::Ends(Outcome::Done(refused)),
            (None, _) => return self.end(),
        };
        let Response::Array(jobs) = jobs else { return self.end() };
        self.popped += jobs.len() as u64;
        let keys: Vec<Blob> = jobs.iter().filter_map(bytes).flat_map(|job| self.keys(job)).collect();
        if keys.iter().any(|key| !context.hub.users.may(user, "del", key)) {
            return Heard::Ends(Outcome::Refused("NOPERM No permissions to access a key".to_owned()));
        }
        if keys.is_empty() {
            return self.end();
        }
        self.deletes = true;
        self.ask(Operation::Del { keys: keys.into() }, context, requests)
    }

    fn end(&self) -> Heard {
        Heard::Ends(Outcome::Done(Response::Integer(self.popped as i64)))
    }

    fn keys(&self, job: &[u8]) -> impl Iterator<Item = Blob> {
        self.belongings
            .iter()
            .map(move |(before, behind)| Blob::from([before.as_bytes(), job, behind.as_bytes()].concat()))
    }

    fn ask(&self, operation: Operation, context: &Context<'_>, requests: &mut Vec<Request>) -> Heard {
        let command = Command { stamp: context.stamp, operation, in_order: true };
        requests.push(Request { id: self.id, ask: Ask::Execute { keyspace: self.keyspace, command } });
        Heard::Waits
    }
}

fn bytes(job: &Response) -> Option<&[u8]> {
    match job {
        Response::Bulk(job) => Some(job),
        _ => None,
    }
}
