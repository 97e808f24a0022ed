//! An explanation in words and as a drawing.

use std::fmt::Write;

use crate::explain::{ExplainedOperation, Explanation};
use crate::history::{Operation, Value};
use crate::partition::Component;

/// Columns of the drawing between its first and last time.
const WIDTH: usize = 60;
/// Keys that are named, operations that are drawn; more would not be read.
const KEYS_SHOWN: usize = 16;
const OPERATIONS_SHOWN: usize = 40;
/// Characters of an operation or an answer in the table.
const LABEL_MAX: usize = 48;

/// What a reduction found; operations are indices into `operations`.
pub(crate) struct Conflict<'a> {
    pub(crate) operations: &'a [Operation],
    pub(crate) component: &'a Component,
    /// Those that no order explains.
    pub(crate) core: Vec<u32>,
    /// Those that are shown besides.
    pub(crate) context: Vec<u32>,
    /// The one whose answer could not be explained any more.
    pub(crate) last: Option<u32>,
    /// How many more there are that may happen or not.
    pub(crate) others: usize,
}

/// Describes a conflict.
pub(crate) fn describe(conflict: &Conflict<'_>) -> Explanation {
    let mut shown: Vec<(u32, bool)> = conflict.core.iter().map(|index| (*index, true)).collect();
    shown.extend(conflict.context.iter().map(|index| (*index, false)));
    let (reason, first) = reason(conflict);
    if let Some(first) = first
        && shown.iter().all(|(index, _)| *index != first)
    {
        shown.push((first, true));
    }
    shown.sort_by_key(|(index, _)| (conflict.operations[*index as usize].invoked, *index));
    let operations: Vec<ExplainedOperation> =
        shown.iter().map(|(index, conflicts)| explained(conflict.operations, *index, *conflicts)).collect();
    let keys = conflict.component.keys.iter().take(KEYS_SHOWN).map(|key| key.to_string()).collect();
    let text = text(&operations, &reason, conflict.others);
    Explanation { keys, operations, others: conflict.others, reason, text }
}

fn explained(operations: &[Operation], index: u32, conflicts: bool) -> ExplainedOperation {
    let operation = &operations[index as usize];
    ExplainedOperation {
        line: index as usize + 1,
        client: operation.client,
        session: operation.session,
        sequence: operation.sequence,
        operation: operation.to_string(),
        value: operation.value.clone(),
        invoked: operation.invoked,
        returned: operation.returned,
        conflicts,
    }
}

/// The sentence, and an operation that it names and that should be shown.
fn reason(conflict: &Conflict<'_>) -> (String, Option<u32>) {
    let operations = conflict.operations;
    let Some(last) = conflict.last else {
        return ("no order of these operations explains their answers".to_owned(), None);
    };
    let read = &operations[last as usize];
    let answer =
        read.value.as_ref().map_or_else(|| "an answer".to_owned(), |value| short(&value.to_string()));
    let told = format!("{} (client {}) returned {answer}", short(&read.to_string()), read.client);
    let conclusion = match conflict.core.len() + conflict.context.len() {
        0 | 1 => "no other operation explains it".to_owned(),
        count => format!("no order of these {count} operations explains it"),
    };
    let plain =
        || older(conflict, read, &told, &conclusion).unwrap_or_else(|| format!("{told}; {conclusion}"));
    let (Some(value), "get" | "read") = (&read.value, &*read.op) else {
        return (plain(), None);
    };
    let mut first: Option<u32> = None;
    for (index, _) in &conflict.component.operations {
        let operation = &operations[*index as usize];
        match writes(operation, read, value) {
            Writes::This
                if first.is_none_or(|first| operation.invoked < operations[first as usize].invoked) =>
            {
                first = Some(*index);
            }
            Writes::Maybe => return (plain(), None),
            _ => {}
        }
    }
    // Answered, or it would not have been the last known operation.
    let returned = read.returned.unwrap_or(read.invoked);
    match first {
        None if *value != Value::Nil => (format!("{told}, which no operation ever wrote"), None),
        Some(first) if operations[first as usize].invoked > returned => {
            let writer = &operations[first as usize];
            let gap = milliseconds(writer.invoked - returned);
            let name = short(&writer.to_string());
            let reason = format!(
                "{told}, which was first written by {name} (client {}), invoked {gap} ms after that",
                writer.client
            );
            (reason, Some(first))
        }
        _ => (plain(), None),
    }
}

/// The sentence that names the latest write which had returned before the read was invoked.
fn older(conflict: &Conflict<'_>, read: &Operation, told: &str, conclusion: &str) -> Option<String> {
    let value = read.value.as_ref()?;
    let core = conflict.core.iter().map(|index| &conflict.operations[*index as usize]);
    let over = core.filter(|operation| {
        let before = operation.returned.is_some_and(|returned| returned < read.invoked);
        before && matches!(writes(operation, read, value), Writes::Other | Writes::Maybe)
    });
    let latest = over.max_by_key(|operation| operation.returned)?;
    let gap = read.invoked - latest.returned?;
    Some(format!(
        "{told}, but {} (client {}) had returned {} ms before it was invoked; {conclusion}",
        short(&latest.to_string()),
        latest.client,
        milliseconds(gap),
    ))
}

/// What an operation leaves in the key that `read` read.
enum Writes {
    /// The value that was read.
    This,
    /// Another value.
    Other,
    /// It depends on the state.
    Maybe,
    Nothing,
}

fn writes(operation: &Operation, read: &Operation, value: &Value) -> Writes {
    if !operation.keys.contains(&read.keys[0]) {
        return Writes::Nothing;
    }
    let written = match (&*operation.op, operation.args.as_slice()) {
        ("set" | "write" | "setnx" | "getset", [first, ..]) | ("cas", [_, first]) => Some(first),
        ("del" | "unlink" | "getdel", _) => None,
        ("mset", values) => {
            let place = operation.keys.iter().rposition(|key| *key == read.keys[0]);
            place.and_then(|place| values.get(place))
        }
        ("get" | "read" | "mget" | "exists" | "strlen" | "getrange" | "type" | "expiretime", _) => {
            return Writes::Nothing;
        }
        _ => return Writes::Maybe,
    };
    let same = written.is_some_and(|written| match value {
        Value::Text(text) => text == written,
        Value::Integer(number) => written.parse() == Ok(*number),
        _ => false,
    });
    if same { Writes::This } else { Writes::Other }
}

/// The explanation for people: the sentence, the operations with their times, and a drawing.
pub(crate) fn text(explained: &[ExplainedOperation], reason: &str, others: usize) -> String {
    let mut out = format!("{reason}\n\n");
    let start = explained.iter().map(|operation| operation.invoked).min().unwrap_or(0);
    let end = explained.iter().map(|operation| operation.returned.unwrap_or(operation.invoked)).max();
    let span = (end.unwrap_or(start) - start).max(1);
    let first = explained.len().saturating_sub(OPERATIONS_SHOWN);
    let rows: Vec<[String; 6]> = explained[first..]
        .iter()
        .map(|operation| {
            let answer = match (&operation.value, operation.returned) {
                (_, None) => "unknown".to_owned(),
                (None, Some(_)) => "-".to_owned(),
                (Some(value), Some(_)) => value.to_string(),
            };
            [
                format!("{}{}", if operation.conflicts { "" } else { "~" }, operation.line),
                operation.client.to_string(),
                short(&operation.operation),
                short(&answer),
                milliseconds(operation.invoked - start),
                operation.returned.map_or_else(|| "-".to_owned(), |returned| milliseconds(returned - start)),
            ]
        })
        .collect();
    let head = ["line", "client", "operation", "answer", "invoked", "returned"];
    let mut widths = head.map(|word| word.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; 6], out: &mut String| {
        let mut row = String::new();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count().min(width));
            let left = matches!(column, 2 | 3);
            row += if column == 0 { "  " } else { "   " };
            row += &if left { format!("{cell}{pad}") } else { format!("{pad}{cell}") };
        }
        out.push_str(row.trim_end());
        out.push('\n');
    };
    if first > 0 {
        out += &format!("  the last {OPERATIONS_SHOWN} of {} operations that conflict:\n", explained.len());
    }
    line(head, &mut out);
    for row in &rows {
        line(row.each_ref().map(String::as_str), &mut out);
    }
    // Writing to a string cannot fail.
    _ = writeln!(out, "  times in ms after {start} ns");
    let marked = explained.iter().any(|operation| !operation.conflicts);
    let which = match (marked, others) {
        (false, 0) => None,
        (false, 1) => Some("1 other operation on these keys".to_owned()),
        (false, _) => Some(format!("{others} other operations on these keys")),
        (true, 0) => Some("what is marked ~".to_owned()),
        (true, _) => Some(format!("what is marked ~, and {others} more on these keys")),
    };
    if let Some(which) = which {
        let verb = if others > 1 || marked && others > 0 { "do" } else { "does" };
        _ = writeln!(out, "  {which}, whether done or not, {verb} not help");
    }
    out.push('\n');
    let label = explained[first..].iter().map(|operation| tag(operation).chars().count()).max().unwrap_or(0);
    for operation in &explained[first..] {
        let column = |time: u64| ((time - start) as u128 * (WIDTH as u128 - 1) / u128::from(span)) as usize;
        let from = column(operation.invoked);
        let bar = match operation.returned {
            Some(returned) if column(returned) == from => "|".to_owned(),
            Some(returned) => format!("|{}|", "-".repeat(column(returned) - from - 1)),
            None => format!("|{}?", "-".repeat((WIDTH - 1).saturating_sub(from))),
        };
        let tag = tag(operation);
        let pad = " ".repeat(label - tag.chars().count());
        _ = writeln!(out, "  {tag}{pad}  {}{bar}", " ".repeat(from));
    }
    out
}

fn tag(operation: &ExplainedOperation) -> String {
    let text: String = operation.operation.chars().take(24).collect();
    format!("{} {text}", operation.client)
}

/// Nanoseconds as milliseconds with three decimals.
fn milliseconds(nanoseconds: u64) -> String {
    let micros = nanoseconds / 1000;
    format!("{}.{:03}", micros / 1000, micros % 1000)
}

fn short(text: &str) -> String {
    if text.chars().count() <= LABEL_MAX {
        return text.to_owned();
    }
    let start: String = text.chars().take(LABEL_MAX - 3).collect();
    format!("{start}...")
}
