//! rq's script that empties a queue, and deletes what its jobs have: keys that it does not declare, since their names are in the
//! queue.
//!
//! An operation says beforehand which keys it touches, so this is done in steps: some jobs are popped, and then what they have
//! is deleted; so long as there are some, but no more than there were. Where this node ends between two steps, jobs that were
//! popped keep what they have.

use super::shape::{Plan, Shape};
use super::steps::{Next, Script};
use crate::gateway::Outcome;
use isochrone_core::Blob;
use isochrone_core::command::{Operation, Response, Side};

/// So many jobs are popped at a time.
const STEP: u64 = 1_000;

/// What comes before and behind the name of a job in the keys that it has.
pub(crate) type Belongings = &'static [(&'static str, &'static str)];

/// A queue that is being emptied.
#[derive(Debug)]
pub(crate) struct Emptying {
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
    let operation = pop(&queue, STEP);
    let emptying = Emptying { queue, belongings, popped: 0, most: None, deletes: false };
    Plan { operation, shape: Shape::Steps(Box::new(Script::Emptying(emptying))) }
}

/// How many jobs there are, and some of them, which are there no longer.
fn pop(queue: &Blob, count: u64) -> Operation {
    let operations = [
        Operation::LLen { key: queue.clone() },
        Operation::Pop { key: queue.clone(), side: Side::Left, count: Some(count) },
    ];
    Operation::Transaction { watched: [].into(), operations: operations.into() }
}

impl Emptying {
    /// Whether something has been done that stays.
    pub(crate) fn has_popped(&self) -> bool {
        self.popped > 0
    }

    /// The answer to a step; who asks may delete the keys of which `may` says so.
    pub(crate) fn heard(&mut self, response: Response, may: &dyn Fn(&Blob) -> bool) -> Next {
        if self.deletes {
            self.deletes = false;
            let left = self.most.unwrap_or_default().saturating_sub(self.popped);
            return if left > 0 { Next::Asks(pop(&self.queue, left.min(STEP))) } else { self.end() };
        }
        let Response::Array(mut parts) = response else { return self.end() };
        let jobs = match (parts.pop(), parts.pop()) {
            (Some(jobs), Some(Response::Integer(length))) if !jobs.is_error() => {
                self.most.get_or_insert(u64::try_from(length).unwrap_or_default());
                jobs
            }
            (Some(refused), _) => return Next::Ends(Outcome::Done(refused)),
            (None, _) => return self.end(),
        };
        let Response::Array(jobs) = jobs else { return self.end() };
        self.popped += jobs.len() as u64;
        let keys: Vec<Blob> = jobs.iter().filter_map(bytes).flat_map(|job| self.keys(job)).collect();
        if !keys.iter().all(may) {
            return Next::Ends(Outcome::Refused("NOPERM No permissions to access a key".to_owned()));
        }
        if keys.is_empty() {
            return self.end();
        }
        self.deletes = true;
        Next::Asks(Operation::Del { keys: keys.into() })
    }

    fn end(&self) -> Next {
        Next::Ends(Outcome::Done(Response::Integer(self.popped as i64)))
    }

    fn keys(&self, job: &[u8]) -> impl Iterator<Item = Blob> {
        self.belongings
            .iter()
            .map(move |(before, behind)| Blob::from([before.as_bytes(), job, behind.as_bytes()].concat()))
    }
}

fn bytes(job: &Response) -> Option<&[u8]> {
    match job {
        Response::Bulk(job) => Some(job),
        _ => None,
    }
}
