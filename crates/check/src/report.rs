//! The verdict on a whole history.

use std::iter;
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::explain::{self, Explanation};
use crate::history::{History, Operation, Outcome};
use crate::model::{Bank, Kv, Model, ModelName, Register, Timed, Unsupported};
use crate::partition::{Component, components};
use crate::planted::{Mutation, planted};
use crate::promise::Promise;
use crate::search::{Found, Known, Orders, Unknown, search};

/// How many unknown operations may happen in the searches of likely orders.
const FEW: [usize; 8] = [0, 1, 2, 3, 4, 6, 8, usize::MAX];

/// How much work a verdict may take.
#[derive(Clone, Copy)]
pub struct Budget<'c> {
    /// Model steps over the whole history; a step takes roughly 0.1 microseconds. Default 2,000,000,000.
    pub steps: u64,
    /// Model steps for making an explanation small, beyond those of the verdict. Default 5,000,000.
    pub explanation_steps: u64,
    /// Bytes, roughly, that may be spent on remembering configurations; beyond it the search goes on and may repeat
    /// itself. Default 1 GiB.
    pub memory: usize,
    /// Time for the verdict, by `clock`. Default none.
    pub time: Option<Duration>,
    /// A clock that does not go back, from any start. Without one there is no time limit and no time in the report,
    /// and the verdict depends on nothing but the history.
    pub clock: Option<&'c dyn Fn() -> Duration>,
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Budget {
            steps: 2_000_000_000,
            explanation_steps: 5_000_000,
            memory: 1 << 30,
            time: None,
            clock: None,
        }
    }
}

impl Budget<'_> {
    /// The same for each of so many searches one after the other.
    pub(crate) fn part(&self, searches: u32) -> Self {
        Budget { time: self.time.map(|time| time / searches), ..*self }
    }

    /// Seconds since the clock stood at `started`.
    pub(crate) fn seconds(&self, started: Option<Duration>) -> Option<f64> {
        self.clock.zip(started).map(|(clock, started)| clock().saturating_sub(started).as_secs_f64())
    }
}

impl std::fmt::Debug for Budget<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Budget")
            .field("steps", &self.steps)
            .field("explanation_steps", &self.explanation_steps)
            .field("memory", &self.memory)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

/// Whether some order of the operations explains the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Some order does.
    Linearizable,
    /// No order does.
    Violation(Box<Explanation>),
    /// The budget ended before an order was found or excluded. This is no success.
    Undecided {
        /// Which limit ended it, and the cure.
        reason: String,
        /// How many components were left undecided.
        components: usize,
    },
}

impl Verdict {
    /// The word: `linearizable`, `violation` or `undecided`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Verdict::Linearizable => "linearizable",
            Verdict::Violation(_) => "violation",
            Verdict::Undecided { .. } => "undecided",
        }
    }
}

/// A verdict with what it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The verdict.
    pub verdict: Verdict,
    /// The model's name.
    pub model: &'static str,
    /// What it was held against.
    pub promise: Promise,
    /// Operations in the history.
    pub operations: usize,
    /// Those of them whose outcome is unknown.
    pub unknown: usize,
    /// Different keys touched by operations that may have taken effect.
    pub keys: usize,
    /// Components of keys that were checked each by itself.
    pub components: usize,
    /// Model steps taken.
    pub steps: u64,
    /// Seconds taken, by the budget's clock.
    pub seconds: Option<f64>,
}

impl Report {
    /// The word that reports print: what was promised, `violation` or `undecided`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match &self.verdict {
            Verdict::Linearizable => self.promise.as_str(),
            verdict => verdict.as_str(),
        }
    }

    /// The explanation, if the history is not as promised.
    #[must_use]
    pub fn explanation(&self) -> Option<&Explanation> {
        match &self.verdict {
            Verdict::Violation(explanation) => Some(explanation),
            _ => None,
        }
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        let mut map = output.serialize_map(None)?;
        map.serialize_entry("verdict", self.word())?;
        map.serialize_entry("model", self.model)?;
        map.serialize_entry("promise", self.promise.as_str())?;
        map.serialize_entry("operations", &self.operations)?;
        map.serialize_entry("unknown", &self.unknown)?;
        map.serialize_entry("keys", &self.keys)?;
        map.serialize_entry("components", &self.components)?;
        map.serialize_entry("steps", &self.steps)?;
        map.serialize_entry("seconds", &self.seconds)?;
        map.serialize_entry("explanation", &self.explanation())?;
        let reason = match &self.verdict {
            Verdict::Undecided { reason, .. } => Some(reason),
            _ => None,
        };
        map.serialize_entry("undecided", &reason)?;
        map.end()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = if self.operations == 1 { "" } else { "s" };
        write!(out, "{}: {} operation{plural}", self.word(), self.operations)?;
        if self.unknown > 0 {
            write!(out, " ({} unknown)", self.unknown)?;
        }
        let plural = if self.keys == 1 { "" } else { "s" };
        write!(out, " on {} key{plural}, model {}", self.keys, self.model)?;
        if self.promise != Promise::Linearizable {
            write!(out, ", to be {}", self.promise)?;
        }
        if let Some(seconds) = self.seconds {
            write!(out, ", {seconds:.2} s")?;
        }
        match &self.verdict {
            Verdict::Linearizable => writeln!(out),
            Verdict::Violation(explanation) => write!(out, "\n\n{explanation}"),
            Verdict::Undecided { reason, components } => {
                writeln!(out, "\n{reason}; {components} of {} components are left", self.components)
            }
        }
    }
}

/// Why a history cannot be checked at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// An operation that the model does not have.
    #[error("operation {}: {problem}", line)]
    Operation {
        /// Its place in the history, from 1: its line in the file.
        line: usize,
        /// What is wrong with it, and what would be right.
        problem: Unsupported,
    },
    /// An operation that contradicts itself.
    #[error("operation {line}: {problem}")]
    Malformed {
        /// Its place in the history, from 1: its line in the file.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// Decides whether `history` is linearizable.
///
/// Each component of keys is searched by itself. Components that are not decided quickly wait until the others are,
/// so that one hard component does not keep a violation elsewhere from being found. Then likely orders are looked at,
/// in which few of the unknown operations happened or each session's come as it sent them, and at last all.
///
/// # Errors
/// An operation that the model does not have, one without a key, or an answered one without a time.
pub fn check<M: Model>(history: &History, model: &M, budget: &Budget<'_>) -> Result<Report, CheckError> {
    let started = budget.clock.map(|clock| clock());
    let operations = &history.operations;
    well_formed(operations)?;
    let components = components(operations);
    let mut meter = Meter::new(budget, started);
    let mut violation = None;
    let mut waiting: Vec<&Component> = components.iter().collect();
    let quick = |component: &Component| 10_000 + 50 * component.operations.len() as u64;
    let likely = [(256, 250_000), (32, 4_000_000)].into_iter().flat_map(|(share, most_steps)| {
        let steps = Some((budget.steps / share).min(most_steps));
        [true, false]
            .into_iter()
            .flat_map(move |in_sessions| FEW.map(|most| (Orders { most, in_sessions }, steps)))
    });
    let rounds = iter::once((Orders::ALL, None)).chain(likely).chain([(Orders::ALL, Some(u64::MAX))]);
    'rounds: for (orders, steps) in rounds {
        for component in std::mem::take(&mut waiting) {
            meter.allow(steps.unwrap_or_else(|| quick(component)));
            match decide(operations, component, model, orders, &mut meter)? {
                Found::Order => {}
                Found::Nothing => {
                    violation = Some(component);
                    break 'rounds;
                }
                Found::OutOfBudget => waiting.push(component),
            }
            if planted(Mutation::FirstComponentOnly) {
                break 'rounds;
            }
        }
    }
    let verdict = match violation {
        Some(component) => {
            Verdict::Violation(Box::new(explain::explain(operations, component, model, budget)?))
        }
        None if waiting.is_empty() || planted(Mutation::UndecidedAccepted) => Verdict::Linearizable,
        None => Verdict::Undecided { reason: meter.reason(), components: waiting.len() },
    };
    Ok(Report {
        verdict,
        model: model.name(),
        promise: Promise::Linearizable,
        operations: operations.len(),
        unknown: operations.iter().filter(|operation| operation.outcome == Outcome::Unknown).count(),
        keys: components.iter().map(|component| component.keys.len()).sum(),
        components: components.len(),
        steps: meter.taken,
        seconds: budget.seconds(started),
    })
}

/// [`check`] with a model by its name.
///
/// # Errors
/// As [`check`].
pub fn check_named(history: &History, model: ModelName, budget: &Budget<'_>) -> Result<Report, CheckError> {
    match model {
        ModelName::Kv => check(history, &Kv, budget),
        ModelName::Register => check(history, &Register, budget),
        ModelName::Bank => check(history, &Bank::default(), budget),
    }
}

/// Searches one component.
fn decide<M: Model>(
    operations: &[Operation],
    component: &Component,
    model: &M,
    orders: Orders,
    meter: &mut Meter<'_>,
) -> Result<Found, CheckError> {
    let mut known = Vec::new();
    let mut unknown = Vec::new();
    let parsed = parse(operations, component, model)?;
    for ((index, _), Timed { op, invoked, returned }) in component.operations.iter().zip(parsed) {
        match returned {
            Some(returned) => {
                let operation = &operations[*index as usize];
                let said = (operation.client, operation.session, operation.sequence);
                known.push(Known { op, observed: operation.value.as_ref(), invoked, returned, said });
            }
            None => unknown.push(Unknown { op, invoked }),
        }
    }
    Ok(search(model, component.keys.len(), known, unknown, orders, meter))
}

/// Parses the operations of a component.
pub(crate) fn parse<M: Model>(
    operations: &[Operation],
    component: &Component,
    model: &M,
) -> Result<Vec<Timed<M::Op>>, CheckError> {
    let mut parsed = Vec::with_capacity(component.operations.len());
    for (index, slots) in &component.operations {
        let operation = &operations[*index as usize];
        let line = *index as usize + 1;
        let op = model.parse(operation, slots).map_err(|problem| CheckError::Operation { line, problem })?;
        let returned = operation.returned.filter(|_| operation.outcome == Outcome::Ok);
        parsed.push(Timed { op, invoked: operation.invoked, returned });
    }
    model.simplify(&mut parsed);
    Ok(parsed)
}

fn well_formed(operations: &[Operation]) -> Result<(), CheckError> {
    for (index, operation) in operations.iter().enumerate() {
        let problem = if operation.keys.is_empty() {
            "it has no key; every operation names the keys it touches"
        } else if operation.outcome == Outcome::Ok && operation.returned.is_none() {
            "its outcome is ok but it has no time of return; without one the outcome is unknown"
        } else if operation.returned.is_some_and(|returned| returned < operation.invoked) {
            "it returned before it was invoked; both times are of one clock that does not go back"
        } else {
            continue;
        };
        return Err(CheckError::Malformed { line: index + 1, problem });
    }
    Ok(())
}

/// Counts steps against a budget.
pub(crate) struct Meter<'c> {
    taken: u64,
    /// Where the present search must end.
    allowed: u64,
    total: u64,
    memory: usize,
    /// The clock, and the reading at which time is up.
    limit: Option<(&'c dyn Fn() -> Duration, Duration)>,
    /// At which number of steps the clock is read again.
    read_next: u64,
    late: bool,
}

/// Steps between two readings of the clock.
const CLOCK_STEPS: u64 = 1 << 14;

impl<'c> Meter<'c> {
    pub(crate) fn new(budget: &Budget<'c>, started: Option<Duration>) -> Self {
        let limit = match (budget.clock, started, budget.time) {
            (Some(clock), Some(started), Some(time)) => Some((clock, started.saturating_add(time))),
            _ => None,
        };
        Meter {
            taken: 0,
            allowed: budget.steps,
            total: budget.steps,
            memory: budget.memory,
            limit,
            read_next: CLOCK_STEPS,
            late: false,
        }
    }

    /// Lets the next search take `steps` more, within the whole.
    pub(crate) fn allow(&mut self, steps: u64) {
        self.allowed = self.taken.saturating_add(steps).min(self.total);
    }

    pub(crate) fn spend(&mut self) {
        self.taken += 1;
    }

    pub(crate) fn spend_many(&mut self, steps: u64) {
        self.taken += steps;
    }

    pub(crate) fn is_spent(&mut self) -> bool {
        if let Some((clock, end)) = self.limit
            && self.taken >= self.read_next
        {
            self.read_next = self.taken + CLOCK_STEPS;
            self.late |= clock() >= end;
        }
        self.late || self.taken >= self.allowed
    }

    /// Whether nothing is left for any search.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.late || self.taken >= self.total
    }

    /// Bytes that a search may remember.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    fn reason(&self) -> String {
        if self.late {
            "the time limit ended before a verdict; allow more time, or record shorter histories".to_owned()
        } else {
            format!(
                "{} steps were taken without a verdict; allow more, or record shorter histories",
                self.taken
            )
        }
    }
}
