//! Histories of transactions: each phenomenon planted by hand, and random ones against every serial order there is.

use std::sync::Arc;

use expect_test::expect;
use proptest::prelude::*;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::transactions::{
    Access, Isolation, Transaction, TransactionVerdict, Transactions, check_transactions,
};
use crate::{Budget, CheckError, Outcome, Value};

/// A transaction a line: `CLIENT FROM..TO [#VERSION] ACCESS, ACCESS [-> aborted]`, where an access is `read x nil`,
/// `read x 1`, `read x [1 2]`, `write x 1` or `append x 1`; without `TO` its outcome is unknown.
fn script(text: &str) -> Transactions {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.zip(0..).map(|(line, sequence)| transaction(line, sequence)).collect()
}

fn transaction(line: &str, sequence: u64) -> Transaction {
    let (line, aborted) = line.strip_suffix(" -> aborted").map_or((line, false), |line| (line, true));
    let (client, rest) = line.split_once(' ').unwrap();
    let (times, rest) = rest.split_once(' ').unwrap();
    let (version, rest) = match rest.strip_prefix('#') {
        Some(rest) => rest.split_once(' ').map(|(version, rest)| (version.parse().ok(), rest)).unwrap(),
        None => (None, rest),
    };
    let (from, to) = times.split_once("..").unwrap();
    let returned: Option<u64> = to.parse().ok();
    let outcome = match (returned, aborted) {
        (None, _) => Outcome::Unknown,
        (_, true) => Outcome::Failed,
        _ => Outcome::Ok,
    };
    let accesses = rest.split(", ").map(|access| {
        let (verb, rest) = access.split_once(' ').unwrap();
        let (key, value) = rest.split_once(' ').unwrap();
        let key = Arc::from(key);
        match verb {
            "write" => Access::Write(key, Arc::from(value)),
            "append" => Access::Append(key, Arc::from(value)),
            _ => Access::Read(key, Some(read(value))),
        }
    });
    Transaction {
        client: client.parse().unwrap(),
        session: 1,
        sequence,
        accesses: accesses.collect(),
        version,
        invoked: from.parse().unwrap(),
        returned,
        outcome,
    }
}

fn read(value: &str) -> Value {
    match value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(list) => Value::List(list.split_whitespace().map(|one| Value::Text(one.to_owned())).collect()),
        None if value == "nil" => Value::Nil,
        None => Value::Text(value.to_owned()),
    }
}

/// What the checker says: the isolation if it holds, the phenomenon, or `undecided`.
fn verdict(history: &Transactions, isolation: Isolation) -> Result<&'static str, CheckError> {
    let report = check_transactions(history, isolation, &Budget::default())?;
    Ok(report.violation().map_or(report.word(), |violation| violation.phenomenon.as_str()))
}

/// Name, what is said where the promise is serializable, strict-updates and strictly-serializable, and the history.
const CASES: &[(&str, [&str; 3], &str)] = &[
    (
        "nothing wrong",
        ["", "", ""],
        "
        1 0..10 write x 1, write y 1
        2 20..30 read x 1, write x 2
        3 40..50 read x 2, read y 1",
    ),
    (
        "dirty write: versions cross",
        ["G0", "G0", "G0"],
        "
        2 0..100 append a 1, append b 1
        3 0..100 append b 2, append a 2
        4 200..210 read a [1 2], read b [2 1]",
    ),
    (
        "a read of what was aborted",
        ["G1a", "G1a", "G1a"],
        "
        1 0..10 write x 1 -> aborted
        2 20..30 read x 1",
    ),
    (
        "a list with an aborted element inside",
        ["G1a", "G1a", "G1a"],
        "
        1 0..10 append x 1 -> aborted
        2 0..10 append x 2
        3 20..30 read x [1 2]",
    ),
    (
        "a read in the middle",
        ["G1b", "G1b", "G1b"],
        "
        1 0..10 write x 1, write x 2
        2 0..30 read x 1",
    ),
    (
        "a list in the middle of a transaction",
        ["G1b", "G1b", "G1b"],
        "
        1 0..10 append x 1, append x 2
        2 0..30 read x [1]",
    ),
    (
        "one's own middle is one's own",
        ["", "", ""],
        "
        1 0..10 write x 1, read x 1, write x 2, read x 2
        2 20..30 append l 1, read l [1], append l 2, read l [1 2]
        3 40..50 read x 2, read l [1 2]",
    ),
    (
        "each reads what the other wrote",
        ["G1c", "G1c", "G1c"],
        "
        1 0..100 write x 1, read y 2
        2 0..100 write y 2, read x 1",
    ),
    (
        "read skew",
        ["G-single", "G-single", "G-single"],
        "
        1 0..10 write x 1, write y 1
        2 0..100 read x 1, read y 2
        3 20..30 read x 1, write x 2, read y 1, write y 2",
    ),
    (
        "lost update",
        ["G-single", "G-single", "G-single"],
        "
        1 0..10 #1 write x 1
        2 20..90 #2 read x 1, write x 2
        3 20..90 #3 read x 1, write x 3
        4 95..99 read x 3",
    ),
    (
        "lost update without versions",
        ["G2-item", "G2-item", "G2-item"],
        "
        1 0..10 write x 1
        2 20..90 read x 1, write x 2
        3 20..90 read x 1, write x 3",
    ),
    (
        "write skew",
        ["G2-item", "G2-item", "G2-item"],
        "
        1 0..10 write x 1, write y 1
        2 20..90 read x 1, read y 1, write x 2
        3 20..90 read x 1, read y 1, write y 3
        4 100..110 read x 2, read y 3",
    ),
    (
        "write skew at the end of lists that nobody reads again",
        ["G2-item", "G2-item", "G2-item"],
        "
        2 20..90 read x [], append y 1
        3 20..90 read y [], append x 1",
    ),
    (
        "write skew at the end of lists, behind what was read",
        ["G2-item", "G2-item", "G2-item"],
        "
        1 0..10 append x 0, append y 0
        2 20..90 read x [0], append y 1
        3 20..90 read y [0], append x 1",
    ),
    (
        "a read that is behind",
        ["", "", "G-single-realtime"],
        "
        1 0..10 write x 1
        2 20..30 read x 1, write x 2
        3 40..50 read x 1",
    ),
    (
        "a transaction that updates and is behind",
        ["", "G-single-realtime", "G-single-realtime"],
        "
        1 0..10 write x 1
        2 20..30 read x 1, write x 2
        3 40..50 read x 1, write y 1",
    ),
    (
        "timestamps turned over: three transactions, two keys",
        ["", "G-single-realtime", "G-single-realtime"],
        "
        1 0..10 #20 write a 1
        2 20..30 #10 write b 1
        3 0..40 #15 read a nil, read b 1, write c 1",
    ),
    (
        "overwritten before it was written",
        ["", "G0-realtime", "G0-realtime"],
        "
        1 0..10 #2 write x 1
        2 20..30 #1 write x 2
        3 40..50 read x 1",
    ),
    (
        "seen before it began",
        ["", "G1c-realtime", "G1c-realtime"],
        "
        1 0..10 read x 1, write y 1
        2 20..30 write x 1",
    ),
    (
        "two reads of nothing, and one ended before another began",
        ["", "G2-item-realtime", "G2-item-realtime"],
        "
        1 0..10 write b 1
        2 20..30 read a nil, write c 1
        3 0..90 read b nil, write a 1",
    ),
    (
        "meeting in one instant is being concurrent",
        ["", "", ""],
        "
        1 0..10 write x 1
        2 10..20 read x nil",
    ),
    (
        "what is unknown may have no effect",
        ["", "", ""],
        "
        1 0.. write x 1, write y 1
        2 20..30 read x nil, read y nil",
    ),
    (
        "what is unknown and seen has all its effect",
        ["G-single", "G-single", "G-single"],
        "
        1 0.. write x 1, write y 1
        2 20..30 read x 1, read y nil",
    ),
    (
        "what is unknown may take effect late",
        ["", "", ""],
        "
        1 0.. append x 1
        2 20..30 read x []
        2 400..500 read x [1]",
    ),
    (
        "unknown and seen by one that is unknown and seen",
        ["G-single", "G-single", "G-single"],
        "
        1 0.. write x 1, write y 1
        2 0.. read x 1, write z 1
        3 20..30 read z 1, read y nil",
    ),
    (
        "what nobody wrote",
        ["unwritten-read", "unwritten-read", "unwritten-read"],
        "
        1 0..10 read x 7",
    ),
    (
        "own writes forgotten",
        ["internal", "internal", "internal"],
        "
        1 0..10 write x 1
        2 20..30 write x 2, read x 1",
    ),
    (
        "own appends forgotten",
        ["internal", "internal", "internal"],
        "
        1 0..10 append x 1
        2 20..30 append x 2, read x [1]",
    ),
    (
        "lists that disagree",
        ["incompatible-order", "incompatible-order", "incompatible-order"],
        "
        1 0..90 append x 1
        2 0..90 append x 2
        3 20..30 read x [1 2]
        4 20..30 read x [2 1]",
    ),
    (
        "the same read twice, and something between",
        ["G-single", "G-single", "G-single"],
        "
        1 0..10 write x 1
        2 0..90 read x nil, read x 1",
    ),
    (
        "blind writes in an order that somebody saw",
        ["", "", ""],
        "
        1 0..10 write x 1
        2 20..30 write x 2
        3 40..50 read x 2",
    ),
    (
        "blind writes whose order is not known",
        ["undecided", "undecided", "undecided"],
        "
        1 0..90 write x 1, write y 1
        2 0..91 write x 2, write y 2
        3 100..110 read x 1
        3 120..130 read y 2",
    ),
    (
        "the same with versions",
        ["G-single", "G-single", "G-single"],
        "
        1 0..90 #1 write x 1, write y 1
        2 0..91 #2 write x 2, write y 2
        3 0..130 #3 read x 1, read y 2, write z 1",
    ),
];

pub(super) fn verdicts() -> Result<(), String> {
    for (name, expected, text) in CASES {
        let history = script(text);
        for (isolation, expected) in Isolation::ALL.into_iter().zip(expected) {
            let expected = if expected.is_empty() { isolation.as_str() } else { expected };
            let found = verdict(&history, isolation).map_err(|error| format!("{name}: {error}"))?;
            if found != expected {
                return Err(format!("{name}, {isolation}: {found}, not {expected}"));
            }
        }
    }
    for seed in 0..400 {
        agrees(seed)?;
    }
    Ok(())
}

#[test]
fn every_phenomenon_is_named() {
    assert_eq!(verdicts(), Ok(()));
}

/// A small random history over two keys, in which the store may do anything.
fn random(seed: u64) -> Transactions {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut below = |bound: u64| random.next_u64() % bound;
    let lists = below(2) == 0;
    let mut stored: [Vec<String>; 2] = Default::default();
    let mut history = Vec::new();
    for number in 0..3 + below(3) {
        let mut accesses = Vec::new();
        for step in 0..1 + below(3) {
            let key = below(2) as usize;
            let name: Arc<str> = Arc::from(["x", "y"][key]);
            // Now and then the past is read.
            let back = if below(4) == 0 { below(3) as usize } else { 0 };
            let shown = &stored[key][..stored[key].len().saturating_sub(back)];
            if below(2) == 0 {
                let value = format!("{number}.{step}");
                stored[key].push(value.clone());
                let value = Arc::from(value);
                accesses.push(if lists { Access::Append(name, value) } else { Access::Write(name, value) });
            } else {
                let text = |value: &String| Value::Text(value.clone());
                let seen = if lists {
                    Value::List(shown.iter().map(text).collect())
                } else {
                    shown.last().map_or(Value::Nil, text)
                };
                accesses.push(Access::Read(name, Some(seen)));
            }
        }
        let invoked = below(40);
        let unknown = below(6) == 0;
        history.push(Transaction {
            client: number,
            session: 0,
            sequence: 0,
            accesses,
            version: None,
            invoked,
            returned: (!unknown).then(|| invoked + below(30)),
            outcome: if unknown { Outcome::Unknown } else { Outcome::Ok },
        });
    }
    Transactions { list: history }
}

/// Whether some order of some of the transactions, all that committed among them, explains every read: by trying all.
fn explained(history: &Transactions, isolation: Isolation) -> bool {
    fn fits(one: &Transaction, state: &mut [Vec<String>; 2]) -> bool {
        one.accesses.iter().all(|access| {
            let slot = &mut state[usize::from(&**access.key() == "y")];
            match access {
                Access::Write(_, value) => *slot = vec![value.to_string()],
                Access::Append(_, value) => slot.push(value.to_string()),
                Access::Read(_, None) => {}
                Access::Read(_, Some(Value::List(list))) => {
                    let found: Vec<Value> = slot.iter().cloned().map(Value::Text).collect();
                    return found == *list;
                }
                Access::Read(_, Some(value)) => {
                    return slot.last().cloned().map_or(Value::Nil, Value::Text) == *value;
                }
            }
            true
        })
    }

    fn search(left: &[&Transaction], state: &[Vec<String>; 2], isolation: Isolation) -> bool {
        if left.iter().all(|one| one.outcome == Outcome::Unknown) {
            return true;
        }
        left.iter().enumerate().any(|(place, next)| {
            let timed = |one: &Transaction| match isolation {
                Isolation::Serializable => false,
                Isolation::StrictUpdates => one.updates(),
                Isolation::StrictlySerializable => true,
            };
            let late = left.iter().any(|other| {
                timed(next) && timed(other) && other.returned.is_some_and(|returned| returned < next.invoked)
            });
            let mut state = state.clone();
            if late || !fits(next, &mut state) {
                return false;
            }
            let mut left = left.to_vec();
            left.remove(place);
            search(&left, &state, isolation)
        })
    }

    search(&history.list.iter().collect::<Vec<_>>(), &Default::default(), isolation)
}

/// The checker says what trying all orders says, or that it does not know.
fn agrees(seed: u64) -> Result<(), String> {
    let history = random(seed);
    for isolation in Isolation::ALL {
        let found = verdict(&history, isolation).map_err(|error| error.to_string())?;
        let explained = explained(&history, isolation);
        let fits = match found {
            "undecided" => true,
            held if held == isolation.as_str() => explained,
            _ => !explained,
        };
        if !fits {
            return Err(format!("seed {seed}, {isolation}: {found}, but an order exists: {explained}"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 5_000 } else { 50_000 }))]

    #[test]
    fn verdicts_are_those_of_trying_all_orders(seed: u64) {
        prop_assert_eq!(agrees(seed), Ok(()));
    }
}

#[test]
fn lists_are_always_decided() {
    let undecided = (0..2_000).filter(|seed| {
        let history = random(*seed);
        let lists = history
            .list
            .iter()
            .flat_map(|one| &one.accesses)
            .any(|access| matches!(access, Access::Append(..)));
        lists && verdict(&history, Isolation::StrictlySerializable) == Ok("undecided")
    });
    assert_eq!(undecided.count(), 0);
}

#[test]
fn a_circle_is_told_so_that_it_can_be_followed() {
    let history = script(
        "
        1 0..1000000 write x 1, write y 1
        2 2000000..9000000 read x 1, read y 1, write x 2
        3 2500000..8000000 read x 1, read y 1, write y 3
        4 9500000.. write q 1
        5 9600000..9700000 write r 1 -> aborted",
    );
    let report = check_transactions(&history, Isolation::StrictlySerializable, &Budget::default()).unwrap();
    expect![[r#"
        violation: 5 transactions (1 aborted, 1 unknown), to be strictly-serializable

        G2-item: a circle with several reads of what was overwritten

          line 2 comes before line 3, for it read y "1", behind which line 3 wrote "3" (rw)
          line 3 comes before line 2, for it read x "1", behind which line 2 wrote "2" (rw)

          line   client   transaction                           invoked   returned
             2        2   read x "1", read y "1", write x "2"     0.000      7.000
             3        3   read x "1", read y "1", write y "3"     0.500      6.000
          times in ms after 2000000 ns
    "#]]
    .assert_eq(&report.to_string());
    let json = serde_json::to_string(&report).unwrap();
    expect![[r#"{"verdict":"violation","isolation":"strictly-serializable","transactions":5,"aborted":1,"unknown":1,"seconds":null,"violation":{"phenomenon":"G2-item","lines":[2,3],"relations":[{"before":2,"after":3,"kind":"rw","because":"read y \"1\", behind which line 3 wrote \"3\""},{"before":3,"after":2,"kind":"rw","because":"read x \"1\", behind which line 2 wrote \"2\""}],"reason":"each comes before the next: line 2, line 3, line 2","text":"G2-item: a circle with several reads of what was overwritten\n\n  line 2 comes before line 3, for it read y \"1\", behind which line 3 wrote \"3\" (rw)\n  line 3 comes before line 2, for it read x \"1\", behind which line 2 wrote \"2\" (rw)\n\n  line   client   transaction                           invoked   returned\n     2        2   read x \"1\", read y \"1\", write x \"2\"     0.000      7.000\n     3        3   read x \"1\", read y \"1\", write y \"3\"     0.500      6.000\n  times in ms after 2000000 ns\n"},"undecided":null}"#]].assert_eq(&json);
}

#[test]
fn a_circle_is_as_short_as_it_can_be() {
    // A ring of ten that each read what the next overwrote, and a pair that do the same.
    let mut history: Vec<Transaction> = (0..10)
        .map(|place| {
            transaction(&format!("{place} 0..100 read k{place} nil, write k{} 1", (place + 1) % 10), place)
        })
        .collect();
    history.push(transaction("20 0..100 read a nil, write b 1", 20));
    history.push(transaction("21 0..100 read b nil, write a 1", 21));
    let history = Transactions { list: history };
    let report = check_transactions(&history, Isolation::Serializable, &Budget::default()).unwrap();
    assert_eq!(report.violation().unwrap().lines.len(), 2);
}

#[test]
fn what_does_not_say_what_it_means_is_refused() {
    let error = |text: &str| verdict(&script(text), Isolation::Serializable).unwrap_err().to_string();
    let twice = error("1 0..10 write x 1\n2 20..30 write x 1");
    expect!["operation 2: it writes a value that was written to the same key before; every write needs a value of its own, or nobody can tell what was read"].assert_eq(&twice);
    let mixed = error("1 0..10 write x 1\n2 20..30 append x 2");
    expect!["operation 2: one of its keys holds a value here and a list elsewhere; a key is written or appended to, not both"].assert_eq(&mixed);
    let version = error("1 0..10 #4 write x 1\n2 20..30 #4 write x 2");
    expect!["operation 2: another transaction wrote one of its keys with the same `version`; versions of a key differ"].assert_eq(&version);
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let mut history = script(
        "
        1 0..10 #12 write x 1, append l 2, read l [2], read y nil
        2 20.. read x 1",
    );
    history.list[1].accesses.push(Access::Read(Arc::from("z"), None));
    let mut file = Vec::new();
    history.write(&mut file).unwrap();
    assert_eq!(Transactions::read("h", &*file).unwrap(), history);
    expect![[r#"
        {"client":1,"session":1,"sequence":0,"transaction":[["write","x","1"],["append","l","2"],["read","l",["2"]],["read","y",null]],"version":12,"invoked":0,"returned":10,"outcome":"ok"}
        {"client":2,"session":1,"sequence":1,"transaction":[["read","x","1"],["read","z"]],"invoked":20,"returned":null,"outcome":"unknown"}
    "#]].assert_eq(&String::from_utf8(file).unwrap());
}

#[test]
fn bad_lines_are_told_what_would_be_right() {
    let good = r#"{"client":1,"session":1,"sequence":0,"transaction":[["write","x","1"]],"invoked":0,"returned":10,"outcome":"ok"}"#;
    let with = |access: &str| good.replace(r#"["write","x","1"]"#, access);
    let lines = [
        with(r#"["write","x"]"#),
        with(r#"["take","x"]"#),
        with(r#"["read"]"#),
        with(r#"["read","x",1,2]"#),
        with(r#"["read","x",{"error":"ERR"}]"#),
        with(r#"["read","x",[null]]"#),
        with(r#"["append","x",null]"#),
        good.replace("10", "null"),
        good.replace(r#""invoked":0"#, r#""invoked":11"#),
    ];
    let told: Vec<String> = lines
        .iter()
        .map(|line| Transactions::read("h.jsonl", line.as_bytes()).unwrap_err().to_string())
        .map(|text| text.lines().next().unwrap_or_default().to_owned())
        .collect();
    expect![[r#"
        h.jsonl:1:1: a write without a value
        h.jsonl:1:1: an access that is no read, write or append
        h.jsonl:1:60: invalid length 1, expected an access reads ["read","x"], ["read","x",VALUE], ["write","x","1"] or ["append","x","1"]
        h.jsonl:1:68: invalid length 4, expected an access reads ["read","x"], ["read","x",VALUE], ["write","x","1"] or ["append","x","1"]
        h.jsonl:1:1: a read of an error
        h.jsonl:1:1: a list of other than strings and integers
        h.jsonl:1:1: a written value that is no string
        h.jsonl:1:1: outcome "ok" without `returned`
        h.jsonl:1:1: `returned` is before `invoked`"#]].assert_eq(&told.join("\n"));
}

#[test]
fn an_empty_history_holds() {
    let report =
        check_transactions(&Transactions::default(), Isolation::default(), &Budget::default()).unwrap();
    assert_eq!(report.verdict, TransactionVerdict::Held);
}
