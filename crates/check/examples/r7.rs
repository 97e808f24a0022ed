//! Measures the linearizability check at the size of `trust.md` R7: a million operations on ten thousand keys.
//!
//! ```sh
//! cargo run --release -p isochrone-check --example r7 [OPERATIONS [KEYS [CLIENTS [UNKNOWN_PERCENT]]]]
//! ```
//!
//! The history is a mix of `get`, `set`, `incr`, `rpush`, `lpop` and `lrange`, made by running the operations in order
//! of a random point between invocation and return; it is written to memory as JSON Lines and read back first. Prints
//! seconds and the greatest resident memory.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isochrone_check::{Budget, History, ModelName, Operation, Outcome, Value, check_named};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers = std::env::args().skip(1).map(|text| text.parse::<u64>()).collect::<Result<Vec<_>, _>>()?;
    let number = |place: usize, otherwise: u64| numbers.get(place).copied().unwrap_or(otherwise);
    let (operations, keys) = (number(0, 1_000_000), number(1, 10_000));
    let (clients, unknown) = (number(2, 100), number(3, 1));

    let mut file = Vec::new();
    history(operations, keys, clients, unknown).write(&mut file)?;
    let megabytes = file.len() / 1_000_000;
    println!("{operations} operations, {keys} keys, {clients} clients, {unknown} % unknown, {megabytes} MB");

    let started = Instant::now();
    let history = History::read("memory", file.as_slice())?;
    drop(file);
    println!("read     {:6.2} s", started.elapsed().as_secs_f64());
    let clock = || started.elapsed();
    let budget = Budget { time: Some(Duration::from_secs(300)), clock: Some(&clock), ..Budget::default() };
    let report = check_named(&history, ModelName::Kv, &budget)?;
    println!("check    {:6.2} s  {} steps", report.seconds.unwrap_or_default(), report.steps);
    println!("verdict  {}", report.verdict.as_str());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(peak) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
        println!("memory   {}", peak.trim());
    }
    Ok(())
}

/// What a key holds.
#[derive(Default)]
struct Held {
    text: Option<String>,
    number: i64,
    list: VecDeque<String>,
}

fn history(count: u64, keys: u64, clients: u64, unknown: u64) -> History {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let mut below = |bound: u64| random.next_u64() % bound;
    let mut free = vec![0_u64; clients as usize];
    let names: Vec<Arc<str>> = (0..keys).map(|key| Arc::from(format!("user{key:08}"))).collect();
    let mut drafts = Vec::with_capacity(count as usize);
    for number in 0..count {
        let client = below(clients);
        let invoked = free[client as usize] + below(100_000);
        let returned = invoked + 1 + below(20_000_000);
        free[client as usize] = returned + 1;
        let key = below(keys);
        let (op, args) = match (key % 3, below(4)) {
            (0, 0 | 1) | (1, 0) => ("get", vec![]),
            (0, _) => ("set", vec![format!("value-{number}")]),
            (1, _) => ("incr", vec![]),
            (_, 0) => ("lrange", vec!["0".to_owned(), "-1".to_owned()]),
            (_, 1) => ("lpop", vec![]),
            _ => ("rpush", vec![format!("t{number}")]),
        };
        let lost = below(100) < unknown;
        let point = if lost && below(2) == 0 { u64::MAX } else { invoked + below(returned - invoked) };
        let operation = Operation {
            client,
            session: 0,
            sequence: number,
            keys: vec![Arc::clone(&names[key as usize])],
            op: Arc::from(op),
            args,
            stamp: None,
            invoked,
            returned: (!lost).then_some(returned),
            outcome: if lost { Outcome::Unknown } else { Outcome::Ok },
            value: None,
        };
        drafts.push((point, key, operation));
    }
    drafts.sort_by_key(|(point, ..)| *point);
    let mut held: Vec<Held> = (0..keys).map(|_| Held::default()).collect();
    for (point, key, operation) in &mut drafts {
        if *point < u64::MAX {
            let answer = run(&mut held[*key as usize], operation, *key % 3 == 1);
            operation.value = (operation.outcome == Outcome::Ok).then_some(answer);
        }
    }
    drafts.into_iter().map(|(_, _, operation)| operation).collect()
}

fn run(held: &mut Held, operation: &Operation, counts: bool) -> Value {
    let text = |text: String| Value::Text(text);
    match (&*operation.op, operation.args.as_slice()) {
        ("get", _) if counts && held.number > 0 => text(held.number.to_string()),
        ("get", _) => held.text.clone().map_or(Value::Nil, text),
        ("set", [value]) => {
            held.text = Some(value.clone());
            text("OK".to_owned())
        }
        ("incr", _) => {
            held.number += 1;
            Value::Integer(held.number)
        }
        ("rpush", [value]) => {
            held.list.push_back(value.clone());
            Value::Integer(held.list.len() as i64)
        }
        ("lpop", _) => held.list.pop_front().map_or(Value::Nil, text),
        _ => Value::List(held.list.iter().cloned().map(Value::Text).collect()),
    }
}
