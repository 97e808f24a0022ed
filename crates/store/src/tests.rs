//! What commands do, group by group, beside a dumb twin and through transfers.

mod absences;
mod chords;
mod collections;
mod expiry;
mod groups;
mod hyperloglog;
mod places;
mod ranges;
mod scans;
mod sort;
mod streams;
mod strings;
mod transfer;
mod twin;
mod versions;

use crate::Store;
use isochrone_core::command::{
    Condition, Expiry, Keys, Operation, Pairs, Refusal, Response, Score, Scored, Selection, Side,
};
use isochrone_core::{Blob, Command, Span, Stamp, StateMachine};

/// A wall-clock reading, milliseconds.
fn at(millis: u64) -> Stamp {
    Stamp::ZERO + Span::from_millis(millis)
}

fn command(millis: u64, operation: Operation) -> Command {
    Command::new(at(millis), operation)
}

fn b(text: &str) -> Blob {
    Blob::from(text)
}

/// Several names, divided by blanks.
fn names(text: &str) -> Keys {
    text.split_whitespace().map(Blob::from).collect()
}

/// Names and values by turns, divided by blanks.
fn pairs(text: &str) -> Pairs {
    let names: Vec<_> = text.split_whitespace().map(Blob::from).collect();
    names.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// Scores and members by turns, divided by blanks.
fn scored(text: &str) -> Scored {
    let pairs = pairs(text);
    pairs.iter().map(|(score, member)| (Score::parse(score).unwrap(), member.clone())).collect()
}

fn score(value: f64) -> Score {
    Score::new(value).unwrap()
}

fn bulk(text: &str) -> Response {
    Response::Bulk(b(text))
}

/// An array of bulk strings, divided by blanks.
fn array(text: &str) -> Response {
    Response::Array(text.split_whitespace().map(bulk).collect())
}

/// The items of an answer without promised order, in order.
fn sorted(response: Response) -> Response {
    let key = |response: &Response| format!("{response:?}");
    match response {
        Response::Set(mut items) | Response::Array(mut items) => {
            items.sort_by_key(key);
            Response::Array(items)
        }
        Response::Map(mut pairs) => {
            pairs.sort_by_key(|(field, _)| key(field));
            Response::Map(pairs)
        }
        other => other,
    }
}

impl Store {
    /// Executes one operation long before any deadline.
    fn run(&mut self, operation: Operation) -> Response {
        self.run_at(1, operation)
    }

    /// Executes one operation, and checks what holds for all: a reading operation answered from the state
    /// gives what the log gives, and leaves no trace.
    fn run_at(&mut self, millis: u64, operation: Operation) -> Response {
        let command = command(millis, operation);
        let read = self.read(&command);
        let before = self.digest();
        let expired = self.touches_expired(&command.operation, command.stamp);
        let answer = self.apply(&command);
        if let Some(read) = read {
            assert!(Store::reads_only(&command), "{command:?}");
            assert_eq!((read, self.digest()), (answer.clone(), before), "{command:?}");
        }
        if answer.is_error() && !expired {
            assert_eq!(self.digest(), before, "{command:?} was refused and changed something");
        }
        answer
    }
}

/// A store in which each type has a key named after it.
fn one_of_each() -> Store {
    let mut store = Store::default();
    store.run(set("string", "text"));
    store.run(Operation::HSet { key: b("hash"), pairs: pairs("f 1") });
    store.run(push("list", "a"));
    store.run(Operation::SAdd { key: b("set"), members: names("a") });
    store.run(Operation::ZAdd { key: b("zset"), flags: Default::default(), members: scored("1 a") });
    store
}

fn set(key: &str, value: &str) -> Operation {
    Operation::Set {
        key: b(key),
        value: b(value),
        condition: Condition::Always,
        expiry: Expiry::Clear,
        get: false,
    }
}

fn set_until(key: &str, value: &str, millis: u64) -> Operation {
    Operation::Set {
        key: b(key),
        value: b(value),
        condition: Condition::Always,
        expiry: Expiry::At(at(millis)),
        get: false,
    }
}

fn get(key: &str) -> Operation {
    Operation::Get { key: b(key) }
}

fn push(key: &str, values: &str) -> Operation {
    Operation::Push { key: b(key), values: names(values), side: Side::Right, only_if_exists: false }
}

fn lrange(key: &str) -> Operation {
    Operation::LRange { key: b(key), start: 0, stop: -1 }
}

fn index(start: i64, stop: i64) -> Selection {
    Selection::Index { start, stop }
}

const WRONG_TYPE: Response = Response::Error(Refusal::WrongType);
