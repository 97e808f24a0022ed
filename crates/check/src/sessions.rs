//! Exactly-once, the order within a session, and what a session must see of itself.
//!
//! Linearizability does not say that an acknowledged push happened once: pushed twice, then read, is a legal order
//! only of a history in which it was pushed twice, and that shows. But it does not say it where nobody reads the
//! length, it says nothing about the order of one session's pipelined operations, and it is dear where it is not
//! needed. The checks here are linear in the history and point at the token that went wrong.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::history::{History, Operation, Outcome, Value};
use crate::planted::{Mutation, planted};

/// What is wrong with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionViolationKind {
    /// An operation took effect more than once.
    Repeated,
    /// An acknowledged operation had no effect.
    Lost,
    /// A failed operation had an effect.
    FailedYetDone,
    /// Something was found that nobody asked for.
    Invented,
    /// A session's operations took effect in another order than the session's.
    OutOfOrder,
    /// A session did not see its own earlier write.
    OwnWriteMissed,
    /// A session saw an older value after a newer one.
    WentBack,
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionViolation {
    /// What is wrong.
    pub kind: SessionViolationKind,
    /// The key.
    pub key: String,
    /// The lines of the operations that show it, from 1.
    pub lines: Vec<usize>,
    /// A sentence.
    pub reason: String,
}

impl fmt::Display for SessionViolation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "key {:?}: {} (lines {:?})", self.key, self.reason, self.lines)
    }
}

/// What a session check looked at and found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionReport {
    /// Operations whose effect could be told from the history; none checked is no success.
    pub checked: usize,
    /// What was wrong, by key.
    pub violations: Vec<SessionViolation>,
}

impl SessionReport {
    /// Whether nothing was wrong.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    fn blame(&mut self, kind: SessionViolationKind, key: &str, lines: &[usize], reason: String) {
        let lines = lines.iter().map(|index| index + 1).collect();
        self.violations.push(SessionViolation { kind, key: key.to_owned(), lines, reason });
    }
}

/// Checks that acknowledged operations took effect exactly once, unknown ones at most once and failed ones never, and
/// that the operations of a session took effect in its order.
///
/// It looks at keys used in one of two ways, and at no others:
/// - *lists of tokens*: only `rpush` and `lpush` of tokens that are pushed once each, `lpop`, `rpop`, `lrange 0 -1` and
///   `llen`; the order of a session is seen where all is pushed at one end;
/// - *counters*: only `incr` and `incrby` with positive amounts, and `get`.
#[must_use]
pub fn once(history: &History) -> SessionReport {
    let mut report = SessionReport::default();
    for (key, indices) in by_key(history) {
        let operations: Vec<(usize, &Operation)> =
            indices.iter().map(|index| (*index, &history.operations[*index])).collect();
        if operations.iter().all(|(_, operation)| is_token_list(operation)) {
            check_tokens(&key, &operations, &mut report);
        } else if operations.iter().all(|(_, operation)| amount(operation).is_some() || is_get(operation)) {
            check_counter(&key, &operations, &mut report);
        }
    }
    report
}

/// Checks that each session reads its own writes and never goes back to an older value.
///
/// It looks at keys that see only `get` (`read`) and plain `set` (`write`) of values that are written once each: there
/// the value read names the write. A write is older than another if it returned before the other was invoked, or if
/// it came earlier in the same session.
#[must_use]
pub fn check_sessions(history: &History) -> SessionReport {
    let mut report = SessionReport::default();
    for (key, indices) in by_key(history) {
        let operations: Vec<(usize, &Operation)> =
            indices.iter().map(|index| (*index, &history.operations[*index])).collect();
        check_register(&key, &operations, &mut report);
    }
    report
}

/// Client and session.
type SessionKey = (u64, u64);

/// Operations of single keys, by key; a key that some operation touches together with others is left out.
fn by_key(history: &History) -> BTreeMap<Arc<str>, Vec<usize>> {
    let mut keys: BTreeMap<Arc<str>, Vec<usize>> = BTreeMap::new();
    let mut shared: BTreeSet<Arc<str>> = BTreeSet::new();
    for (index, operation) in history.operations.iter().enumerate() {
        match operation.keys.as_slice() {
            [key] => keys.entry(Arc::clone(key)).or_default().push(index),
            several => shared.extend(several.iter().cloned()),
        }
    }
    keys.retain(|key, _| !shared.contains(key));
    keys
}

fn is_token_list(operation: &Operation) -> bool {
    match (&*operation.op, operation.args.as_slice()) {
        ("rpush" | "lpush", [_, ..]) | ("lpop" | "rpop" | "llen", []) => true,
        ("lrange", [from, to]) => from == "0" && to == "-1",
        _ => false,
    }
}

fn is_get(operation: &Operation) -> bool {
    &*operation.op == "get" && operation.args.is_empty()
}

/// By how much an operation raises a counter.
fn amount(operation: &Operation) -> Option<i64> {
    match (&*operation.op, operation.args.as_slice()) {
        ("incr", []) => Some(1),
        ("incrby", [amount]) => amount.parse().ok().filter(|amount| *amount > 0),
        _ => None,
    }
}

fn check_tokens(key: &str, operations: &[(usize, &Operation)], report: &mut SessionReport) {
    let mut pushes: BTreeMap<&str, (usize, &Operation, usize)> = BTreeMap::new();
    let (mut left, mut right) = (false, false);
    for (index, operation) in operations {
        if matches!(&*operation.op, "rpush" | "lpush") {
            left |= &*operation.op == "lpush";
            right |= &*operation.op == "rpush";
            for (place, token) in operation.args.iter().enumerate() {
                if pushes.insert(token, (*index, operation, place)).is_some() {
                    // Not a list of tokens: what is found cannot be told apart.
                    return;
                }
            }
        }
    }
    let ordered = !(left && right);
    report.checked += pushes.len();
    let pops = operations.iter().filter(|(_, operation)| matches!(&*operation.op, "lpop" | "rpop"));
    let mut popped: BTreeMap<Cow<'_, str>, (usize, &Operation)> = BTreeMap::new();
    // Whether some pop may have taken nobody knows what.
    let mut unaccounted = false;
    for (index, operation) in pops {
        let answer = match operation.outcome {
            Outcome::Ok => operation.value.as_ref(),
            Outcome::Unknown => None,
            Outcome::Failed => continue,
        };
        unaccounted |= answer.is_none();
        let Some(token) = answer.and_then(token_of) else { continue };
        check_token(key, &token, *index, &pushes, report);
        if let Some((earlier, _)) = popped.insert(token.clone(), (*index, operation))
            && !planted(Mutation::DuplicateAccepted)
        {
            let reason = format!("{token:?} was taken from the list twice");
            report.blame(SessionViolationKind::Repeated, key, &[earlier, *index], reason);
        }
    }
    for (index, operation) in operations.iter().filter(|(_, operation)| &*operation.op == "lrange") {
        let (Outcome::Ok, Some(Value::List(values))) = (operation.outcome, &operation.value) else {
            continue;
        };
        let found: Vec<Cow<'_, str>> = values.iter().filter_map(token_of).collect();
        let mut tokens: Vec<&str> = found.iter().map(|token| &**token).collect();
        if left {
            tokens.reverse();
        }
        check_list(key, *index, operation, (&tokens, ordered), &pushes, report);
        let present: BTreeSet<&str> = tokens.into_iter().collect();
        for (token, (pushed, push, _)) in &pushes {
            let acknowledged = push.outcome == Outcome::Ok
                && push.returned.is_some_and(|returned| returned < operation.invoked);
            let taken = popped.contains_key(*token);
            let there = present.contains(token);
            if acknowledged && !there && !taken && !unaccounted && !planted(Mutation::LossAccepted) {
                let reason =
                    format!("the push of {token:?} was acknowledged, but the list read later lacks it");
                report.blame(SessionViolationKind::Lost, key, &[*pushed, *index], reason);
            }
            if let Some((taker, pop)) = popped.get(*token)
                && there
                && pop.returned < Some(operation.invoked)
                && !planted(Mutation::DuplicateAccepted)
            {
                let reason =
                    format!("{token:?} was taken from the list, but the list read later has it again");
                report.blame(SessionViolationKind::Repeated, key, &[*taker, *index], reason);
            }
        }
    }
}

/// The token that an answer shows. Programs differ in whether they show one that is a number as a number or as text.
fn token_of(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Text(token) => Some(Cow::Borrowed(token)),
        Value::Integer(number) => Some(Cow::Owned(number.to_string())),
        Value::Nil | Value::List(_) | Value::Error(_) => None,
    }
}

/// Checks that a token found was pushed, and did not fail.
fn check_token(
    key: &str,
    token: &str,
    found: usize,
    pushes: &BTreeMap<&str, (usize, &Operation, usize)>,
    report: &mut SessionReport,
) {
    match pushes.get(token) {
        None => {
            let reason = format!("{token:?} was found in the list, but nobody pushed it");
            report.blame(SessionViolationKind::Invented, key, &[found], reason);
        }
        Some((pushed, push, _))
            if push.outcome == Outcome::Failed && !planted(Mutation::FailedTokenAccepted) =>
        {
            let reason = format!("the push of {token:?} failed, but the list has it");
            report.blame(SessionViolationKind::FailedYetDone, key, &[*pushed, found], reason);
        }
        Some(_) => {}
    }
}

/// Checks one reading of a list, oldest push first where it is ordered.
fn check_list(
    key: &str,
    index: usize,
    read: &Operation,
    (tokens, ordered): (&[&str], bool),
    pushes: &BTreeMap<&str, (usize, &Operation, usize)>,
    report: &mut SessionReport,
) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut last: BTreeMap<SessionKey, (u64, usize, usize)> = BTreeMap::new();
    for token in tokens {
        check_token(key, token, index, pushes, report);
        let Some((pushed, push, place)) = pushes.get(token) else { continue };
        if !seen.insert(token) {
            if !planted(Mutation::DuplicateAccepted) {
                let reason = format!("{token:?} was pushed once, but the list has it twice");
                report.blame(SessionViolationKind::Repeated, key, &[*pushed, index], reason);
            }
            continue;
        }
        if read.returned.is_some_and(|returned| push.invoked > returned) {
            let reason = format!("{token:?} was found in the list before it was pushed");
            report.blame(SessionViolationKind::Invented, key, &[*pushed, index], reason);
        }
        // What was given up on may happen late.
        if push.outcome != Outcome::Ok || !ordered {
            continue;
        }
        let now = (push.sequence, *place, *pushed);
        let earlier = last.insert((push.client, push.session), now);
        if let Some((sequence, part, other)) = earlier
            && (sequence, part) > (push.sequence, *place)
            && !planted(Mutation::SessionOrderIgnored)
        {
            let reason = format!(
                "client {} session {} pushed {token:?} as operation {} before operation {sequence}, but it is behind that in the list",
                push.client, push.session, push.sequence
            );
            report.blame(SessionViolationKind::OutOfOrder, key, &[*pushed, other, index], reason);
        }
    }
}

fn check_counter(key: &str, operations: &[(usize, &Operation)], report: &mut SessionReport) {
    let asked = Asked::new(operations);
    let mut answers: BTreeMap<i64, usize> = BTreeMap::new();
    let mut sessions: BTreeMap<SessionKey, Vec<(u64, i64, usize)>> = BTreeMap::new();
    for (index, operation) in operations {
        let value = match &operation.value {
            Some(Value::Text(text)) => text.parse().ok(),
            Some(Value::Integer(number)) => Some(*number),
            Some(Value::Nil) => Some(0),
            _ => None,
        };
        let (Outcome::Ok, Some(value)) = (operation.outcome, value) else { continue };
        report.checked += 1;
        let own = amount(operation);
        asked.check(key, *index, operation, value, own.unwrap_or(0), report);
        if own.is_none() {
            continue;
        }
        if let Some(other) = answers.insert(value, *index)
            && !planted(Mutation::DuplicateAccepted)
        {
            let reason = format!("two increments returned {value}, so one of them was lost");
            report.blame(SessionViolationKind::Lost, key, &[other, *index], reason);
        }
        sessions.entry((operation.client, operation.session)).or_default().push((
            operation.sequence,
            value,
            *index,
        ));
    }
    for ((client, session), mut answers) in sessions {
        answers.sort_unstable();
        for pair in answers.windows(2) {
            if pair[0].1 > pair[1].1 && !planted(Mutation::SessionOrderIgnored) {
                let reason = format!(
                    "client {client} session {session} incremented as operation {} and then {}, but they returned {} and {}",
                    pair[0].0, pair[1].0, pair[0].1, pair[1].1
                );
                report.blame(SessionViolationKind::OutOfOrder, key, &[pair[0].2, pair[1].2], reason);
            }
        }
    }
}

/// What was added to a counter, summed over time. Times are in nanoseconds.
struct Asked {
    /// Times of answers, with the sum acknowledged by then.
    acknowledged: Vec<(u64, i64)>,
    /// Times of invocations of what may have happened, with the sum asked for by then.
    invoked: Vec<(u64, i64)>,
}

impl Asked {
    fn new(operations: &[(usize, &Operation)]) -> Asked {
        let mut asked = Asked { acknowledged: Vec::new(), invoked: Vec::new() };
        for (_, operation) in operations {
            let Some(amount) = amount(operation) else { continue };
            if let (Outcome::Ok, Some(returned)) = (operation.outcome, operation.returned) {
                asked.acknowledged.push((returned, amount));
            }
            if operation.outcome != Outcome::Failed || planted(Mutation::FailedTokenAccepted) {
                asked.invoked.push((operation.invoked, amount));
            }
        }
        for series in [&mut asked.acknowledged, &mut asked.invoked] {
            series.sort_unstable();
            let mut sum = 0_i64;
            for (_, amount) in series {
                sum = sum.saturating_add(*amount);
                *amount = sum;
            }
        }
        asked
    }

    /// Checks that a counter seen as `value` by an operation, which itself added `own`, holds all that was
    /// acknowledged before and no more than was asked for.
    fn check(
        &self,
        key: &str,
        index: usize,
        seen: &Operation,
        value: i64,
        own: i64,
        report: &mut SessionReport,
    ) {
        let sum = |series: &[(u64, i64)], count: usize| count.checked_sub(1).map_or(0, |last| series[last].1);
        let before = self.acknowledged.partition_point(|(returned, _)| *returned < seen.invoked);
        let lower = sum(&self.acknowledged, before).saturating_add(own);
        let returned = seen.returned.unwrap_or(u64::MAX);
        // The operation's own amount is among these.
        let upper = sum(&self.invoked, self.invoked.partition_point(|(invoked, _)| *invoked <= returned));
        if value < lower && !planted(Mutation::LossAccepted) {
            let reason = format!("the counter was {value}, but {lower} had been acknowledged by then");
            report.blame(SessionViolationKind::Lost, key, &[index], reason);
        }
        if value > upper {
            let reason = format!("the counter was {value}, but at most {upper} had been asked for by then");
            report.blame(SessionViolationKind::Repeated, key, &[index], reason);
        }
    }
}

fn check_register<'a>(key: &str, operations: &[(usize, &'a Operation)], report: &mut SessionReport) {
    let mut writers: BTreeMap<&str, (usize, &Operation)> = BTreeMap::new();
    for (index, operation) in operations {
        match (&*operation.op, operation.args.as_slice()) {
            ("get" | "read", []) => {}
            ("set" | "write", [value]) => {
                if writers.insert(value, (*index, operation)).is_some() {
                    return;
                }
            }
            _ => return,
        }
    }
    let mut sessions: BTreeMap<SessionKey, Vec<(usize, &Operation)>> = BTreeMap::new();
    for (index, operation) in operations {
        sessions.entry((operation.client, operation.session)).or_default().push((*index, operation));
    }
    for ((client, session), mut own) in sessions {
        own.sort_by_key(|(_, operation)| operation.sequence);
        // What this session wrote or read so far, of which none is surely older than another: its writer, who showed it,
        // and whether the session wrote it.
        let mut newest: Vec<(&Operation, usize, bool)> = Vec::new();
        let learn = |newest: &mut Vec<(&'a Operation, usize, bool)>, writer: &'a Operation, index, wrote| {
            newest.retain(|(known, ..)| !is_older(Some(known), writer));
            if !newest.iter().any(|(known, ..)| std::ptr::eq(*known, writer)) {
                newest.push((writer, index, wrote));
            }
        };
        for (index, operation) in own {
            if operation.outcome != Outcome::Ok {
                continue;
            }
            if !operation.args.is_empty() {
                learn(&mut newest, operation, index, true);
                continue;
            }
            let Some(value) = &operation.value else { continue };
            let text = match value {
                Value::Text(text) => text.clone(),
                Value::Integer(number) => number.to_string(),
                Value::Nil => String::new(),
                _ => continue,
            };
            report.checked += 1;
            let writer = writers.get(text.as_str()).copied().filter(|_| *value != Value::Nil);
            if writer.is_none() && *value != Value::Nil {
                let reason = format!("{value} was read, but nobody wrote it");
                report.blame(SessionViolationKind::Invented, key, &[index], reason);
                continue;
            }
            let behind = newest.iter().find(|(expected, _, wrote)| {
                is_older(writer.map(|(_, writer)| writer), expected)
                    && !(*wrote && planted(Mutation::OwnWriteMissed))
            });
            if let Some((expected, shown, wrote)) = behind {
                let (kind, did) = match *wrote {
                    true => (SessionViolationKind::OwnWriteMissed, "written"),
                    false => (SessionViolationKind::WentBack, "read"),
                };
                let reason = format!(
                    "client {client} session {session} read {value} as operation {} after it had {did} the newer {:?}",
                    operation.sequence, expected.args[0]
                );
                report.blame(kind, key, &[*shown, index], reason);
            }
            if let Some((_, writer)) = writer {
                learn(&mut newest, writer, index, false);
            }
        }
    }
}

/// Whether what `writer` wrote (`None`: nothing yet) is surely older than what `other` wrote.
fn is_older(writer: Option<&Operation>, other: &Operation) -> bool {
    let Some(writer) = writer else { return true };
    let same = (writer.client, writer.session) == (other.client, other.session);
    same && writer.outcome == Outcome::Ok && writer.sequence < other.sequence
        || writer.returned.is_some_and(|returned| returned < other.invoked)
}
