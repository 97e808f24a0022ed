//! What a keyspace promises of its commands, and whether a history keeps it.
//!
//! Each promise is decided as linearizability of a history that differs from what was seen in what the promise leaves
//! open: operations are taken apart by key, or some of their times are others.

use std::fmt;
use std::str::FromStr;

use crate::by_key::check_by_key;
use crate::history::{History, Operation};
use crate::model::{Kv, Unsupported};
use crate::report::{Budget, CheckError, Report, Verdict, check};

/// What a keyspace promises of its commands.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub enum Promise {
    /// Each command takes effect at one point between its call and its answer.
    #[default]
    Linearizable,
    /// The commands of each key do, seen by themselves.
    LinearizableByKey,
    /// A command that was answered has its place in one order; its result may come later.
    Sequenced,
    /// Some order of all commands explains the answers, whenever each was asked for.
    Serializable,
}

impl Promise {
    /// All of them, in the order of the documentation.
    pub const ALL: [Promise; 4] =
        [Promise::Linearizable, Promise::LinearizableByKey, Promise::Sequenced, Promise::Serializable];

    /// The name on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Promise::Linearizable => "linearizable",
            Promise::LinearizableByKey => "linearizable-by-key",
            Promise::Sequenced => "sequenced",
            Promise::Serializable => "serializable",
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl FromStr for Promise {
    type Err = Unsupported;

    fn from_str(text: &str) -> Result<Self, Unsupported> {
        Promise::ALL.into_iter().find(|promise| promise.as_str() == text).ok_or_else(|| Unsupported {
            problem: format!("no promise is named {text:?}"),
            cure: "there are linearizable, linearizable-by-key, sequenced and serializable".to_owned(),
        })
    }
}

/// Decides whether a history is what was promised, by the model [`Kv`].
///
/// Of what is sequenced, everything that was answered with its place has its result by `executed`, in nanoseconds of the
/// run; `u64::MAX` where nobody knows when.
///
/// # Errors
/// Those of [`check`].
pub fn check_promised(
    history: &History,
    promise: Promise,
    executed: u64,
    budget: &Budget<'_>,
) -> Result<Report, CheckError> {
    let started = budget.clock.map(|clock| clock());
    let report = match promise {
        Promise::Linearizable => check(history, &Kv, budget)?,
        Promise::LinearizableByKey => check_by_key(history, budget)?,
        Promise::Sequenced => check_sequenced(history, executed, budget)?,
        Promise::Serializable => check(&timeless(history), &Kv, budget)?,
    };
    Ok(Report { promise, seconds: budget.seconds(started), ..report })
}

/// Whether a history is what a sequenced keyspace promises: a write has a place behind what had been executed when it was
/// asked for, and has its result by `executed`.
///
/// Where that leaves too many orders open, an order is looked for in which writes had their results sooner: one that is
/// linearizable is allowed as well, and so is each in between.
fn check_sequenced(history: &History, executed: u64, budget: &Budget<'_>) -> Result<Report, CheckError> {
    /// Nanoseconds after the answers.
    const SOONER: [u64; 2] = [0, 200_000_000];
    let budget = &budget.part(1 + SOONER.len() as u32);
    let whole = check(&executed_by(history, u64::MAX, executed), &Kv, budget)?;
    if let Verdict::Undecided { .. } = whole.verdict {
        for soon in SOONER {
            let sooner = check(&executed_by(history, soon, executed), &Kv, budget)?;
            if let Verdict::Linearizable = sooner.verdict {
                return Ok(sooner);
            }
        }
    }
    Ok(whole)
}

/// What was answered with its place, as it would have been with its result: so long afterwards, and at the latest when
/// everything had one. Behind the end of the history one time is as good as another.
fn executed_by(history: &History, soon: u64, executed: u64) -> History {
    let times = history.operations.iter().map(|operation| operation.returned.unwrap_or(operation.invoked));
    let executed = executed.min(times.max().unwrap_or(0).saturating_add(1));
    let mut history = history.clone();
    for operation in history.operations.iter_mut().filter(|operation| is_blind(operation)) {
        let later = |returned: u64| returned.max(returned.saturating_add(soon).min(executed));
        operation.returned = operation.returned.map(later);
    }
    history
}

/// Whether its answer depends on nothing that was there before, so that it may come before the result.
fn is_blind(operation: &Operation) -> bool {
    let depends = |word: &String| {
        ["nx", "xx", "get", "keepttl"].into_iter().any(|option| word.eq_ignore_ascii_case(option))
    };
    match &*operation.op {
        "mset" => true,
        // The first word is the value.
        "set" => !operation.args.iter().skip(1).any(depends),
        _ => false,
    }
}

/// The same history as of operations that were all under way at once.
fn timeless(history: &History) -> History {
    let last = history.operations.iter().filter_map(|operation| operation.returned).max();
    let at_once = |operation: &Operation| Operation {
        invoked: 0,
        returned: operation.returned.and(last),
        ..operation.clone()
    };
    history.operations.iter().map(at_once).collect()
}
