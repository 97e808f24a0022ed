//! Random histories that are linearizable because they were made by running the operations one after another.

use std::sync::Arc;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::{History, Operation, Outcome, Value};

/// How a random history looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) operations: usize,
    pub(super) clients: u64,
    pub(super) keys: u64,
    /// Percent of operations with an unknown outcome.
    pub(super) unknown: u64,
}

/// A history of strings, counters and lists; every write to a string has a value of its own.
pub(super) fn linearizable(seed: u64, shape: Shape) -> History {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut below = |bound: u64| random.next_u64() % bound;
    let mut free = vec![0; shape.clients as usize];
    let mut drafts: Vec<(u64, Operation)> = Vec::new();
    for number in 0..shape.operations {
        let client = below(shape.clients);
        let invoked = free[client as usize] + below(20);
        let returned = invoked + below(60);
        free[client as usize] = returned + 1;
        let key = below(shape.keys);
        // The kind of a key follows from its number, so that no operation meets a wrong type.
        let number = number.to_string();
        let (op, args) = match (key % 3, below(4)) {
            (0, 0 | 1) => ("get", vec![]),
            (0, _) => ("set", vec![number]),
            (1, 0) => ("get", vec![]),
            (1, _) => ("incr", vec![]),
            (_, 0) => ("lrange", vec!["0".to_owned(), "-1".to_owned()]),
            (_, 1) => ("lpop", vec![]),
            _ => ("rpush", vec![number]),
        };
        let lost = below(100) < shape.unknown;
        let point = match (lost, below(3)) {
            (true, 0) => u64::MAX,
            (true, 1) => invoked + below(200),
            _ => invoked + below(returned - invoked + 1),
        };
        drafts.push((
            point,
            Operation {
                client,
                session: 0,
                sequence: drafts.len() as u64,
                keys: vec![Arc::from(format!("k{key}"))],
                op: Arc::from(op),
                args,
                stamp: None,
                invoked,
                returned: (!lost).then_some(returned),
                outcome: if lost { Outcome::Unknown } else { Outcome::Ok },
                value: None,
            },
        ));
    }
    answer(&mut drafts, shape.keys);
    drafts.into_iter().map(|(_, operation)| operation).collect()
}

/// Runs the operations in order of their points; this small store is the tests' own.
fn answer(drafts: &mut [(u64, Operation)], keys: u64) {
    let mut order: Vec<usize> = (0..drafts.len()).collect();
    order.sort_by_key(|place| drafts[*place].0);
    let mut strings: Vec<Option<String>> = vec![None; keys as usize];
    let mut lists: Vec<Vec<String>> = vec![Vec::new(); keys as usize];
    for place in order {
        let (point, operation) = &mut drafts[place];
        if *point == u64::MAX {
            continue;
        }
        let key: usize = operation.keys[0][1..].parse().unwrap();
        let (string, list) = (&mut strings[key], &mut lists[key]);
        let value = match (&*operation.op, operation.args.as_slice()) {
            ("get", _) => string.clone().map_or(Value::Nil, Value::Text),
            ("set", [value]) => {
                *string = Some(value.clone());
                Value::Text("OK".to_owned())
            }
            ("incr", _) => {
                let sum = string.as_ref().map_or(0, |held| held.parse::<i64>().unwrap()) + 1;
                *string = Some(sum.to_string());
                Value::Integer(sum)
            }
            ("rpush", [value]) => {
                list.push(value.clone());
                Value::Integer(list.len() as i64)
            }
            ("lpop", _) if list.is_empty() => Value::Nil,
            ("lpop", _) => Value::Text(list.remove(0)),
            _ => Value::List(list.iter().cloned().map(Value::Text).collect()),
        };
        if operation.outcome == Outcome::Ok {
            operation.value = Some(value);
        }
    }
}
