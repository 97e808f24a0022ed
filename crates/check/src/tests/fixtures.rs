//! The same verdicts as Porcupine on 10,000 random histories (`fixtures/porcupine/README.md`).

use std::sync::{Arc, OnceLock};

use crate::{Budget, History, ModelName, Operation, Outcome, Value, check_named};

struct Fixture {
    linearizable: bool,
    model: ModelName,
    history: History,
}

fn fixtures() -> &'static [Fixture] {
    static FIXTURES: OnceLock<Vec<Fixture>> = OnceLock::new();
    FIXTURES.get_or_init(|| {
        let text = include_str!("../../fixtures/porcupine.txt");
        text.lines().filter(|line| !line.starts_with('#')).map(fixture).collect()
    })
}

fn fixture(line: &str) -> Fixture {
    let mut parts = line.splitn(3, ' ');
    let mut part = || parts.next().unwrap();
    let linearizable = part() == "ok";
    let model = part().parse().unwrap();
    let operations = part().split(';').enumerate();
    let history = operations.map(|(place, text)| operation(place as u64, text)).collect();
    Fixture { linearizable, model, history }
}

fn operation(sequence: u64, text: &str) -> Operation {
    let parts: Vec<&str> = text.split(',').collect();
    let [client, op, keys, args, stamp, invoked, returned, answer] = parts[..] else { panic!("{text}") };
    let (returned, outcome) = match returned {
        "?" => (None, Outcome::Unknown),
        "!" => (None, Outcome::Failed),
        time => (Some(time.parse().unwrap()), Outcome::Ok),
    };
    Operation {
        client: client.parse().unwrap(),
        session: 0,
        sequence,
        keys: keys.split('+').map(Arc::from).collect(),
        op: Arc::from(op),
        args: if args.is_empty() { Vec::new() } else { args.split('+').map(str::to_owned).collect() },
        stamp: (!stamp.is_empty()).then(|| stamp.parse().unwrap()),
        invoked: invoked.parse().unwrap(),
        returned,
        outcome,
        value: (outcome == Outcome::Ok).then(|| value(answer)),
    }
}

fn value(text: &str) -> Value {
    let rest = &text[1..];
    match text.as_bytes()[0] {
        b'n' => Value::Nil,
        b'i' => Value::Integer(rest.parse().unwrap()),
        b's' => Value::Text(rest.to_owned()),
        b'e' => Value::Error(format!("{rest} as Redis says it")),
        b'l' if rest.is_empty() => Value::List(Vec::new()),
        b'l' => Value::List(rest.split('+').map(value).collect()),
        _ => panic!("{text}"),
    }
}

/// The first history on which the verdicts differ.
pub(super) fn differences() -> Result<(), String> {
    let budget = Budget { steps: 2_000_000, explanation_steps: 0, ..Budget::default() };
    for (number, fixture) in fixtures().iter().enumerate() {
        let verdict = match check_named(&fixture.history, fixture.model, &budget) {
            Ok(report) => report.verdict,
            Err(error) => return Err(format!("history {number}: {error}")),
        };
        let expected = if fixture.linearizable { "linearizable" } else { "violation" };
        if verdict.as_str() != expected {
            return Err(format!("history {number}: {} here, {expected} by Porcupine", verdict.as_str()));
        }
    }
    Ok(())
}

#[test]
fn verdicts_equal_porcupines_on_ten_thousand_histories() {
    assert_eq!(fixtures().len(), 10_000);
    let wrong = fixtures().iter().filter(|fixture| !fixture.linearizable).count();
    assert!((2_000..8_000).contains(&wrong), "{wrong} of 10,000 are wrong: too one-sided to show anything");
    let unknown =
        |fixture: &&Fixture| fixture.history.operations.iter().any(|o| o.outcome == Outcome::Unknown);
    assert!(fixtures().iter().filter(unknown).count() > 2_000);
    assert_eq!(differences(), Ok(()));
}
