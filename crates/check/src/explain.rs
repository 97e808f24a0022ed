//! A violation made small: the operations that conflict, and why.
//!
//! Every step of the reduction keeps a *consequence* of the history, so that what remains is a true explanation: if
//! no order explains the remaining operations, none explains the history. Three steps are such:
//!
//! - stopping the clock at some moment: what had not returned by then becomes unknown, what had not been invoked goes;
//! - dropping a known operation that changes no state;
//! - weakening a known operation that may change the state to an unknown one: it may take effect at any time after
//!   its invocation, or not at all.

use std::fmt;

use serde::Serialize;

use crate::history::{Operation, Outcome, Value};
use crate::model::Model;
use crate::partition::Component;
use crate::planted::{Mutation, planted};
use crate::report::{Budget, CheckError, Meter, parse};
use crate::search::{Found, Known, Orders, Unknown, search};
use crate::timeline;

/// Why no order explains a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The keys of the component in which the conflict lies (at most 16 are named).
    pub keys: Vec<String>,
    /// The operations that conflict, by time of invocation.
    pub operations: Vec<ExplainedOperation>,
    /// How many further operations of the component may have taken effect or not, at any time after their invocation,
    /// without resolving the conflict.
    pub others: usize,
    /// One sentence: what cannot be.
    pub reason: String,
    /// The same for people: the sentence, the operations with their times, and a timeline.
    pub text: String,
}

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// One operation of an [`Explanation`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedOperation {
    /// Its place in the history, from 1: its line in the file.
    pub line: usize,
    /// Its client.
    pub client: u64,
    /// Its session.
    pub session: u64,
    /// Its place in the session.
    pub sequence: u64,
    /// Name, keys and arguments.
    pub operation: String,
    /// The answer, if one was recorded.
    pub value: Option<Value>,
    /// When it was invoked, in nanoseconds.
    pub invoked: u64,
    /// When it returned, in nanoseconds; none if its outcome is unknown.
    pub returned: Option<u64>,
    /// Whether it is part of the conflict. If not, it is shown because it may have made what was seen; whether it
    /// took effect or not does not help.
    pub conflicts: bool,
}

/// What the reduction has made of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// As recorded: it must be explained.
    Known,
    /// It may happen after its invocation, or not.
    Unknown,
    /// Left out.
    Gone,
}

/// Explains why `component`, which was found to have no order, has none.
///
/// # Errors
/// As `check`; not if the component was parsed before.
pub(crate) fn explain<M: Model>(
    operations: &[Operation],
    component: &Component,
    model: &M,
    budget: &Budget<'_>,
) -> Result<Explanation, CheckError> {
    let mut reduction = Reduction::new(operations, component, model, budget)?;
    let last = reduction.cut();
    reduction.weaken(last);
    let core = reduction.with_role(Role::Known);
    let context = reduction.context(&core);
    let index = |place: &usize| component.operations[*place].0;
    Ok(timeline::describe(&timeline::Conflict {
        operations,
        component,
        core: core.iter().map(index).collect(),
        others: reduction.with_role(Role::Unknown).len() - context.len(),
        context: context.iter().map(index).collect(),
        last: last.as_ref().map(index),
    }))
}

/// How many operations are shown that do not conflict but show where an answer came from.
const CONTEXT_MAX: usize = 4;

struct Reduction<'a, 'c, M: Model> {
    operations: &'a [Operation],
    component: &'a Component,
    model: &'a M,
    ops: Vec<M::Op>,
    roles: Vec<Role>,
    meter: Meter<'c>,
}

impl<'a, 'c, M: Model> Reduction<'a, 'c, M> {
    fn new(
        operations: &'a [Operation],
        component: &'a Component,
        model: &'a M,
        budget: &Budget<'c>,
    ) -> Result<Self, CheckError> {
        let ops = parse(operations, component, model)?.into_iter().map(|timed| timed.op).collect();
        let budget = Budget { steps: budget.explanation_steps, time: None, ..*budget };
        let mut reduction = Reduction {
            operations,
            component,
            model,
            ops,
            roles: Vec::new(),
            meter: Meter::new(&budget, None),
        };
        reduction.roles = (0..reduction.ops.len()).map(|place| reduction.role_at(place, u64::MAX)).collect();
        Ok(reduction)
    }

    fn operation(&self, place: usize) -> &'a Operation {
        &self.operations[self.component.operations[place].0 as usize]
    }

    fn with_role(&self, role: Role) -> Vec<usize> {
        (0..self.roles.len()).filter(|place| self.roles[*place] == role).collect()
    }

    /// Whether an operation changes no state, given what it answered.
    fn reads(&self, place: usize) -> bool {
        self.model.reads(&self.ops[place], self.operation(place).value.as_ref())
    }

    /// What an operation was if the history had ended at `time`.
    fn role_at(&self, place: usize, time: u64) -> Role {
        let operation = self.operation(place);
        let returned = operation.returned.filter(|_| operation.outcome == Outcome::Ok);
        match returned {
            _ if operation.invoked > time => Role::Gone,
            Some(returned) if returned <= time => Role::Known,
            // What it would answer is not known yet; a pure reader has nothing else.
            _ if self.model.reads(&self.ops[place], None) => Role::Gone,
            _ => Role::Unknown,
        }
    }

    /// Whether `roles` surely has no order.
    fn violates(&mut self, roles: &[Role], steps: u64) -> bool {
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for (place, role) in roles.iter().enumerate() {
            let operation = self.operation(place);
            let op = || self.ops[place].clone();
            match (role, operation.returned) {
                (Role::Known, Some(returned)) => known.push(Known {
                    op: op(),
                    observed: operation.value.as_ref(),
                    invoked: operation.invoked,
                    returned,
                    said: (operation.client, operation.session, operation.sequence),
                }),
                (Role::Known | Role::Unknown, _) => {
                    unknown.push(Unknown { op: op(), invoked: operation.invoked })
                }
                (Role::Gone, _) => {}
            }
        }
        // Building the problem costs as well, even if the search ends at once.
        self.meter.spend_many(roles.len() as u64 / 8);
        self.meter.allow(steps);
        search(self.model, self.component.keys.len(), known, unknown, Orders::ALL, &mut self.meter)
            == Found::Nothing
    }

    /// Stops the clock at the first answer that cannot be explained; says which operation it was.
    fn cut(&mut self) -> Option<usize> {
        let mut by_return = self.with_role(Role::Known);
        by_return.sort_by_key(|place| self.operation(*place).returned);
        let roles_at = |this: &Self, place: usize| -> Vec<Role> {
            let time = this.operation(place).returned.unwrap_or(u64::MAX);
            (0..this.ops.len()).map(|place| this.role_at(place, time)).collect()
        };
        // If a history has no order, a longer one has none either, so halving finds the first moment.
        let (mut lower, mut upper) = (0, by_return.len().checked_sub(1)?);
        while lower < upper && !self.meter.is_exhausted() {
            let middle = lower + (upper - lower) / 2;
            let roles = roles_at(self, by_return[middle]);
            if self.violates(&roles, u64::MAX) {
                upper = middle;
            } else {
                lower = middle + 1;
            }
        }
        // If the budget ended in between, `upper` is still known to violate.
        self.roles = roles_at(self, by_return[upper]);
        Some(by_return[upper])
    }

    /// Weakens as many operations as can be, the one that returned last excepted.
    fn weaken(&mut self, last: Option<usize>) {
        let mut core = self.with_role(Role::Known);
        core.sort_by_key(|place| self.operation(*place).returned);
        core.retain(|place| Some(*place) != last);
        // Writes explain more than reads: try without any reads first.
        let (reads, writes): (Vec<usize>, Vec<usize>) = core.iter().partition(|place| self.reads(**place));
        if !reads.is_empty() && self.try_weaken(&reads) {
            core = writes;
        }
        // A conflict is mostly among the latest operations: look for a short end that has it.
        let mut kept = 4;
        while kept < core.len() && !self.meter.is_exhausted() {
            let early = core.len() - kept;
            if self.try_weaken(&core[..early]) {
                core.drain(..early);
                break;
            }
            kept *= 4;
        }
        // Then drop halves, quarters, ... and at last single operations, as long as that helps; reads first.
        core.sort_by_key(|place| !self.reads(*place));
        let mut size = core.len().div_ceil(2).max(1);
        loop {
            let mut start = 0;
            let mut changed = false;
            while start < core.len() && !self.meter.is_exhausted() {
                let end = (start + size).min(core.len());
                if self.try_weaken(&core[start..end]) {
                    core.drain(start..end);
                    changed = true;
                } else {
                    start = end;
                }
            }
            if self.meter.is_exhausted() || size == 1 && !changed {
                return;
            }
            size = if size > 1 { size.div_ceil(2) } else { 1 };
        }
    }

    /// Operations that need not have happened, but tell where the answers of `core` may come from.
    fn context(&self, core: &[usize]) -> Vec<usize> {
        let mut words = Vec::new();
        for place in core {
            self.operation(*place).value.iter().for_each(|value| collect_words(value, &mut words));
        }
        let mut may = self.with_role(Role::Unknown);
        may.sort_by_key(|place| std::cmp::Reverse(self.operation(*place).invoked));
        let named = |place: &&usize| self.operation(**place).args.iter().any(|word| words.contains(word));
        let context: Vec<usize> = may.iter().filter(named).copied().take(CONTEXT_MAX).collect();
        if context.is_empty() && core.len() == 1 {
            may.truncate(CONTEXT_MAX);
            return may;
        }
        context
    }

    /// Weakens `places` if what is left still has no order.
    fn try_weaken(&mut self, places: &[usize]) -> bool {
        const STEPS: u64 = 50_000;
        let mut roles = self.roles.clone();
        for place in places {
            let gone = self.reads(*place) || planted(Mutation::ShrinkDropsWrites);
            roles[*place] = if gone { Role::Gone } else { Role::Unknown };
        }
        let violates = self.violates(&roles, STEPS);
        if violates {
            self.roles = roles;
        }
        violates
    }
}

/// The strings and numbers of an answer.
fn collect_words(value: &Value, words: &mut Vec<String>) {
    match value {
        Value::Text(text) => words.push(text.clone()),
        Value::Integer(number) => words.push(number.to_string()),
        Value::List(values) => values.iter().for_each(|value| collect_words(value, words)),
        Value::Nil | Value::Error(_) => {}
    }
}
