//! Histories written as text, one operation a line, for tests that people read.
//!
//! `CLIENT INVOKED..RETURNED NAME KEY[+KEY] [ARGUMENTS] [@STAMP] [-> ANSWER]`, times in microseconds. `INVOKED..` alone
//! is an unknown outcome and `INVOKED..!` a failed one. An answer is `nil`, an integer, `error:CODE`, a list in
//! brackets, or else a string. The sequence of an operation is its line.

use std::sync::Arc;

use crate::{History, Operation, Outcome, Value};

pub(super) fn history(script: &str) -> History {
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.enumerate().map(|(line, text)| operation(line as u64 + 1, text)).collect()
}

fn operation(sequence: u64, text: &str) -> Operation {
    let (call, answer) = match text.split_once(" -> ") {
        Some((call, answer)) => (call, Some(value(answer))),
        None => (text, None),
    };
    let mut words = call.split_whitespace();
    let mut word = || words.next().unwrap_or_else(|| panic!("too few words: {text}"));
    let client = word().parse().unwrap();
    let (invoked, end) = word().split_once("..").unwrap();
    let op = word().into();
    let keys = word().split('+').map(Arc::from).collect();
    let time = |text: &str| text.parse::<u64>().unwrap() * 1000;
    let (returned, outcome) = match end {
        "" => (None, Outcome::Unknown),
        "!" => (None, Outcome::Failed),
        end => (Some(time(end)), Outcome::Ok),
    };
    let (mut args, mut stamp) = (Vec::new(), None);
    for word in words {
        match word.strip_prefix('@') {
            Some(text) => stamp = Some(text.parse().unwrap()),
            None => args.push(word.to_owned()),
        }
    }
    let invoked = time(invoked);
    Operation {
        client,
        session: 1,
        sequence,
        keys,
        op,
        args,
        stamp,
        invoked,
        returned,
        outcome,
        value: answer,
    }
}

fn value(text: &str) -> Value {
    let text = text.trim();
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').unwrap();
        return Value::List(inner.split_whitespace().map(value).collect());
    }
    match (text, text.parse(), text.strip_prefix("error:")) {
        ("nil", ..) => Value::Nil,
        (_, Ok(number), _) => Value::Integer(number),
        (_, _, Some(code)) => Value::Error(format!("{code} something went wrong")),
        _ => Value::Text(text.to_owned()),
    }
}
