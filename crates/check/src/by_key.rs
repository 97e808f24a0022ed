//! Linearizability of each key by itself, where that of the whole is not promised.
//!
//! A history of operations on several keys may be linearizable on each of them and not as a whole: two writes of
//! different keys, one after the other, and between them in the other order one of both. So what touches several keys is
//! taken apart: writes and reads of several keys are one of each key. Of a copy the source was read, and nothing is known of
//! the answer; what its target was given nobody says, so a key's history is looked at up to the first copy onto it: what is
//! linearizable is so up to every moment.

use rustc_hash::FxHashMap;
use std::sync::Arc;

use crate::history::{History, Operation, Outcome, Value};
use crate::model::Kv;
use crate::report::{Budget, CheckError, Report, Verdict, check};
use crate::timeline;

/// Decides whether the operations on each key are linearizable by themselves, by the model [`Kv`]. Where the whole is,
/// each key is.
///
/// # Errors
/// Those of [`check`].
pub fn check_by_key(history: &History, budget: &Budget<'_>) -> Result<Report, CheckError> {
    let budget = &budget.part(2);
    let whole = check(history, &Kv, budget)?;
    // What nobody can say of the whole may be plain of each key.
    if let Verdict::Linearizable = whole.verdict {
        return Ok(whole);
    }
    let (lines, parts) = taken_apart(history);
    let mut report = check(&parts, &Kv, budget)?;
    (report.operations, report.unknown) = (whole.operations, whole.unknown);
    if let Verdict::Violation(explanation) = &mut report.verdict {
        explanation.operations.iter_mut().for_each(|operation| operation.line = lines[operation.line - 1]);
        explanation.text = timeline::text(&explanation.operations, &explanation.reason, explanation.others);
    }
    Ok(report)
}

/// The parts, and the line in the history of what each is of.
fn taken_apart(history: &History) -> (Vec<usize>, History) {
    let several = |operation: &&Operation| operation.keys.len() > 1 && operation.outcome != Outcome::Failed;
    // From when on nobody knows what a key holds.
    let mut ends: FxHashMap<Arc<str>, u64> = FxHashMap::default();
    for operation in history.operations.iter().filter(several) {
        let unchanged = operation.value == Some(Value::Integer(0));
        let unsaid = match &*operation.op {
            "mset" | "mget" => &[],
            "copy" if unchanged => &[],
            "copy" => &operation.keys[operation.keys.len() - 1..],
            _ => &operation.keys[..],
        };
        for key in unsaid {
            let end = ends.entry(Arc::clone(key)).or_insert(operation.invoked);
            *end = operation.invoked.min(*end);
        }
    }
    let before = |part: Operation| {
        let Some(end) = ends.get(&part.keys[0]) else { return Some(part) };
        match part.returned {
            _ if part.invoked >= *end => None,
            Some(returned) if returned < *end => Some(part),
            _ if part.outcome == Outcome::Failed => None,
            // Not over then.
            _ => Some(Operation { outcome: Outcome::Unknown, returned: None, value: None, ..part }),
        }
    };
    let all = history.operations.iter().enumerate();
    let each = all.flat_map(|(index, whole)| parts(whole).into_iter().map(move |part| (index + 1, part)));
    let (lines, left) = each.filter_map(|(line, part)| Some((line, before(part)?))).unzip();
    (lines, History::new(left))
}

/// One operation of each key. A copy, and whatever else is not known, has read it, which deletes what has expired.
fn parts(operation: &Operation) -> Vec<Operation> {
    if operation.keys.len() < 2 {
        return vec![operation.clone()];
    }
    let part = |(place, key): (usize, &Arc<str>)| {
        let (op, args, value) = match (&*operation.op, &operation.value) {
            ("mset", value) => ("set", operation.args.get(place).cloned(), value.clone()),
            ("mget", Some(Value::List(values))) => ("get", None, values.get(place).cloned()),
            _ => ("get", None, None),
        };
        Operation {
            keys: vec![Arc::clone(key)],
            op: op.into(),
            args: args.into_iter().collect(),
            value,
            ..operation.clone()
        }
    };
    operation.keys.iter().enumerate().map(part).collect()
}
