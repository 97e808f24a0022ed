//! Properties over random histories.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::model::{Model, Step};
use crate::report::Meter;
use crate::search::{Found, Known, Orders, Unknown, search_orders};
use crate::tests::random::{Shape, linearizable};
use crate::{Budget, History, Kv, Operation, Outcome, Register, Value, Verdict, check, once, zones};

fn shapes() -> impl Strategy<Value = (u64, Shape)> {
    (any::<u64>(), 1_usize..250, 1_u64..12, 1_u64..8, prop_oneof![Just(0_u64), 0_u64..15]).prop_map(
        |(seed, operations, clients, keys, unknown)| (seed, Shape { operations, clients, keys, unknown }),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn what_was_run_in_order_is_linearizable((seed, shape) in shapes()) {
        let history = linearizable(seed, shape);
        let report = check(&history, &Kv, &Budget::default()).unwrap();
        prop_assert_eq!(report.verdict.as_str(), "linearizable");
        prop_assert_eq!(once(&history).violations, vec![]);
    }

    #[test]
    fn an_impossible_answer_is_a_violation_and_is_named((seed, shape) in shapes(), place in any::<prop::sample::Index>()) {
        let mut history = linearizable(seed, shape);
        let answered: Vec<usize> = (0..history.operations.len())
            .filter(|place| history.operations[*place].outcome == Outcome::Ok)
            .collect();
        prop_assume!(!answered.is_empty());
        let place = answered[place.index(answered.len())];
        history.operations[place].value = Some(Value::Text("never written".to_owned()));
        let budget = Budget { explanation_steps: 200_000, ..Budget::default() };
        let report = check(&history, &Kv, &budget).unwrap();
        let explanation = report.explanation().expect("a violation");
        prop_assert!(explanation.operations.iter().any(|shown| shown.line == place + 1 && shown.conflicts));
    }

    /// Whatever happens to everything else, the operations of an explanation have no order.
    #[test]
    fn an_explanation_is_a_violation_by_itself((seed, shape) in shapes(), swap in any::<(prop::sample::Index, prop::sample::Index)>()) {
        let mut history = linearizable(seed, shape);
        let (a, b) = (swap.0.index(shape.operations), swap.1.index(shape.operations));
        prop_assume!(history.operations[a].outcome == Outcome::Ok && history.operations[b].outcome == Outcome::Ok);
        let value = history.operations[a].value.clone();
        history.operations[a].value = std::mem::replace(&mut history.operations[b].value, value);
        let budget = Budget { explanation_steps: 200_000, ..Budget::default() };
        let report = check(&history, &Kv, &budget).unwrap();
        if let Some(explanation) = report.explanation() {
            let shown = |place: usize| explanation.operations.iter().any(|shown| shown.conflicts && shown.line == place + 1);
            let mut place = 0;
            history.operations.retain_mut(|operation| {
                place += 1;
                if shown(place - 1) {
                    return true;
                }
                let op = Kv.parse(operation, &[0]).unwrap();
                let changed_nothing = operation.outcome == Outcome::Ok && Kv.reads(&op, operation.value.as_ref());
                operation.outcome = Outcome::Unknown;
                operation.returned = None;
                operation.value = None;
                !changed_nothing
            });
            let again = check(&history, &Kv, &Budget::default()).unwrap();
            prop_assert_eq!(again.verdict.as_str(), "violation");
        }
    }

    #[test]
    fn a_history_is_read_as_it_was_written((seed, shape) in shapes()) {
        let history = linearizable(seed, shape);
        let mut file = Vec::new();
        history.write(&mut file).unwrap();
        prop_assert_eq!(History::read("history.jsonl", file.as_slice()).unwrap(), history);
    }
}

/// An operation of client 0, of unknown outcome where `end` is 0.
fn drawn_operation(
    (op, keys, args, value): (&str, Vec<&str>, Vec<String>, Value),
    invoked: u64,
    length: u64,
    end: u8,
) -> Operation {
    let unknown = end == 0;
    Operation {
        client: 0,
        session: 0,
        sequence: 0,
        keys: keys.into_iter().map(Arc::from).collect(),
        op: Arc::from(op),
        args,
        stamp: None,
        invoked,
        returned: (!unknown).then_some(invoked + length),
        outcome: if unknown { Outcome::Unknown } else { Outcome::Ok },
        value: (!unknown).then_some(value),
    }
}

/// A small operation on one register or counter, drawn so that it shrinks well.
fn small_operations() -> impl Strategy<Value = Vec<Operation>> {
    let one = (0_u8..7, 0_u8..3, 0_u8..3, 0_u64..12, 0_u64..8, 0_u8..6);
    prop::collection::vec(one, 1..7).prop_map(|drawn| {
        let operations = drawn.into_iter().enumerate().map(|(place, (verb, a, b, invoked, length, end))| {
            let (op, args, value): (_, Vec<String>, _) = match verb {
                0 | 1 => ("get", vec![], if a == 0 { Value::Nil } else { Value::Text(a.to_string()) }),
                2 | 3 => ("set", vec![a.to_string()], Value::Text("OK".to_owned())),
                4 => ("cas", vec![a.to_string(), b.to_string()], Value::Integer(1)),
                5 => ("cas", vec![a.to_string(), b.to_string()], Value::Integer(0)),
                _ => ("set", vec![b.to_string()], Value::Text("OK".to_owned())),
            };
            let said = (op, vec!["x"], args, value);
            Operation { client: place as u64, ..drawn_operation(said, invoked, length, end) }
        });
        operations.collect()
    })
}

/// A small operation on two keys, between which texts are copied.
fn operations_on_two_keys() -> impl Strategy<Value = Vec<Operation>> {
    let one = (0_u8..12, 0_u8..2, 0_u8..3, 0_u64..12, 0_u64..8, 0_u8..6);
    prop::collection::vec(one, 1..8).prop_map(|drawn| {
        let operations =
            drawn.into_iter().enumerate().map(|(place, (verb, key, text, invoked, length, end))| {
                let (this, other) = if key == 0 { ("x", "y") } else { ("y", "x") };
                let text_of = |text: u8| if text == 0 { Value::Nil } else { Value::Text(text.to_string()) };
                let done = || Value::Text("OK".to_owned());
                let said: (_, Vec<&str>, Vec<String>, _) = match verb {
                    0..3 => ("get", vec![this], vec![], text_of(text)),
                    3..5 => ("set", vec![this], vec![text.to_string()], done()),
                    5 => ("set", vec![this], vec![text.to_string(), "nx".to_owned()], done()),
                    6 => ("set", vec![this], vec![text.to_string(), "nx".to_owned()], Value::Nil),
                    7 => ("copy", vec![this, other], vec!["replace".to_owned()], Value::Integer(1)),
                    8 => ("copy", vec![this, other], vec![], Value::Integer(i64::from(text.min(1)))),
                    9 => ("mset", vec!["x", "y"], vec![text.to_string(), "1".to_owned()], done()),
                    10 => ("mget", vec!["x", "y"], vec![], Value::List(vec![text_of(text), text_of(key)])),
                    _ => ("del", vec![this], vec![], Value::Integer(i64::from(text.min(1)))),
                };
                let said = drawn_operation(said, invoked, length, end);
                Operation { client: u64::from(end % 3), sequence: place as u64, ..said }
            });
        // So that all are of one component, and none is left out.
        let all = ("exists", vec!["x", "y"], vec![], Value::Nil);
        let joined = Operation { client: 9, value: None, ..drawn_operation(all, 0, 100, 1) };
        [joined].into_iter().chain(operations).collect()
    })
}

/// The dumb twin: tries every order of every subset that holds all known operations.
fn has_order<M: Model>(model: &M, operations: &[Operation], left: &mut Vec<usize>, state: &M::State) -> bool {
    if left.iter().all(|place| operations[*place].outcome == Outcome::Unknown) {
        return true;
    }
    for position in 0..left.len() {
        let operation = &operations[left[position]];
        let waits =
            left.iter().any(|place| operations[*place].returned.is_some_and(|end| end < operation.invoked));
        if waits {
            continue;
        }
        let slots: Vec<u32> = operation.keys.iter().map(|key| u32::from(&**key == "y")).collect();
        let op = model.parse(operation, &slots).unwrap();
        let next = match model.step(state, &op, operation.value.as_ref()) {
            Step::Illegal => continue,
            Step::Same => state.clone(),
            Step::Next(next) => next,
        };
        let place = left.remove(position);
        let found = has_order(model, operations, left, &next);
        left.insert(position, place);
        if found {
            return true;
        }
    }
    false
}

fn agrees<M: Model>(model: &M, keys: usize, operations: &[Operation]) -> Result<(), TestCaseError> {
    let mut all = (0..operations.len()).collect();
    let expected = has_order(model, operations, &mut all, &model.initial(keys));
    let report = check(&History::new(operations.to_vec()), model, &Budget::default()).unwrap();
    let verdict = match &report.verdict {
        Verdict::Linearizable => true,
        Verdict::Violation(_) => false,
        Verdict::Undecided { reason, .. } => return Err(TestCaseError::fail(reason.clone())),
    };
    prop_assert_eq!(verdict, expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn the_search_agrees_with_trying_every_order(operations in small_operations()) {
        agrees(&Kv, 1, &operations)?;
        agrees(&Register, 1, &operations)?;
    }

    #[test]
    fn the_search_over_two_keys_agrees_with_trying_every_order(operations in operations_on_two_keys()) {
        agrees(&Kv, 2, &operations)?;
    }
}

/// Reads and writes of one register in which every value is written once, some of them wrong.
fn register_operations() -> impl Strategy<Value = Vec<Operation>> {
    let one = (any::<bool>(), 0_usize..12, 0_u64..40, 0_u64..25, 0_u8..6);
    prop::collection::vec(one, 1..20).prop_map(|drawn| {
        let operations = drawn.iter().enumerate().map(|(place, (reads, of, invoked, length, end))| {
            let value = match drawn.get(*of) {
                Some((false, ..)) => Value::Text(of.to_string()),
                _ => Value::Nil,
            };
            let unknown = *end == 0;
            let (op, args, value) = match reads {
                true => ("read", vec![], value),
                false => ("write", vec![place.to_string()], Value::Text("OK".to_owned())),
            };
            Operation {
                client: place as u64,
                session: 0,
                sequence: 0,
                keys: vec![Arc::from("x")],
                op: Arc::from(op),
                args,
                stamp: None,
                invoked: *invoked,
                returned: (!unknown).then_some(invoked + length),
                outcome: if unknown { Outcome::Unknown } else { Outcome::Ok },
                value: (!unknown).then_some(value),
            }
        });
        operations.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, rng_seed: RngSeed::Fixed(2), ..ProptestConfig::default() })]

    #[test]
    fn zones_agree_with_the_search(operations in register_operations()) {
        let build = || {
            let (mut known, mut unknown) = (Vec::new(), Vec::new());
            for operation in &operations {
                let (op, invoked) = (Register.parse(operation, &[0]).unwrap(), operation.invoked);
                match operation.returned {
                    Some(returned) => known.push(Known {
 op, observed: operation.value.as_ref(), invoked, returned, said: (0, 0, 0) }),
                    None => unknown.push(Unknown { op, invoked }),
                }
            }
            (known, unknown)
        };
        let (known, unknown) = build();
        let zones = zones::decide(&Register, &known, &unknown);
        let mut meter = Meter::new(&Budget::default(), None);
        prop_assert_eq!(zones, Some(search_orders(&Register, 1, known, unknown, Orders::ALL, &mut meter)));
    }
}

/// A register under load is decided in time that grows with its length, not with its orders.
#[test]
fn one_long_key_is_decided_in_few_steps() {
    let shape = Shape { operations: 20_000, clients: 8, keys: 1, unknown: 0 };
    let report = check(&linearizable(7, shape), &Kv, &Budget::default()).unwrap();
    assert_eq!(report.verdict, Verdict::Linearizable);
    assert!(report.steps < 40 * 20_000, "{} steps", report.steps);
}

/// The conflict in a long history is found and small.
#[test]
fn a_stale_read_in_a_long_history_is_explained_by_few_operations() {
    for keys in [1, 3] {
        let mut history = linearizable(5, Shape { operations: 20_000, clients: 20, keys, unknown: 2 });
        let read = |operation: &Operation| {
            &*operation.op == "get" && &*operation.keys[0] == "k0" && operation.outcome == Outcome::Ok
        };
        let reads: Vec<usize> = (0..20_000).filter(|place| read(&history.operations[*place])).collect();
        let (early, late) = (reads[reads.len() / 4], reads[reads.len() / 2]);
        history.operations[late].value = history.operations[early].value.clone();
        let report = check(&history, &Kv, &Budget::default()).unwrap();
        let explanation = report.explanation().expect("a stale read");
        assert!(explanation.operations.len() <= 4, "{explanation}");
        assert!(explanation.operations.iter().any(|shown| shown.line == late + 1), "{explanation}");
    }
}

/// Unknown operations stay possible for ever; many of them must not make the search explode.
#[test]
fn many_unknown_operations_are_decided() {
    for unknown in [5, 10, 20] {
        let shape = Shape { operations: 3000, clients: 10, keys: 6, unknown };
        let report = check(&linearizable(unknown, shape), &Kv, &Budget::default()).unwrap();
        assert_eq!(report.verdict, Verdict::Linearizable, "{unknown} %");
        assert!(report.steps < 1_000_000, "{unknown} %: {} steps", report.steps);
    }
}

/// Where a server hangs, all that was sent meanwhile returns at once.
#[test]
fn long_pipelines_that_return_at_once_are_decided() {
    let mut history = linearizable(3, Shape { operations: 3000, clients: 6, keys: 3, unknown: 0 });
    for operation in &mut history.operations {
        let hang = 6000 + 1000 * (operation.client % 2);
        operation.returned = operation.returned.map(|returned| returned.next_multiple_of(hang));
    }
    let report = check(&history, &Kv, &Budget { steps: 20_000_000, ..Budget::default() }).unwrap();
    assert_eq!(report.verdict, Verdict::Linearizable);
}

/// An order against the session, or with more unknown operations than are looked at, is found or left open, not denied.
#[test]
fn what_is_not_looked_at_is_left_open() {
    let op = |line: &str| Kv.parse(&super::script::history(line).operations[0], &[0]).unwrap();
    let seen = Value::Text("a".to_owned());
    let known = |line: &str, said, invoked, observed| Known {
        op: op(line),
        observed,
        invoked,
        returned: invoked + 10,
        said,
    };
    let found = |known, unknown, orders| {
        search_orders(&Kv, 1, known, unknown, orders, &mut Meter::new(&Budget::default(), None))
    };
    let pipelined = || {
        vec![
            known("1 0..1 set x a", (1, 1, 1), 0, None),
            known("1 0..1 set x b", (1, 1, 2), 0, None),
            known("2 0..1 get x", (2, 1, 1), 20, Some(&seen)),
        ]
    };
    let in_sessions = Orders { in_sessions: true, ..Orders::ALL };
    assert_eq!(found(pipelined(), vec![], in_sessions), Found::OutOfBudget);
    assert_eq!(found(pipelined(), vec![], Orders::ALL), Found::Order);
    let unknown = || vec![Unknown { op: op("3 0.. set x a"), invoked: 0 }];
    let read = || vec![known("2 0..1 get x", (2, 1, 1), 20, Some(&seen))];
    assert_eq!(found(read(), unknown(), Orders { most: 0, ..Orders::ALL }), Found::OutOfBudget);
    assert_eq!(found(read(), unknown(), Orders { most: 1, ..Orders::ALL }), Found::Order);
}

#[test]
fn the_verdict_does_not_depend_on_the_order_of_lines() {
    let shape = Shape { operations: 300, clients: 6, keys: 3, unknown: 10 };
    let mut history = linearizable(11, shape);
    history.operations.reverse();
    let report = check(&history, &Kv, &Budget::default()).unwrap();
    assert_eq!(report.verdict, Verdict::Linearizable);
}
