//! Files: what is read, and what a bad one is told.

use std::cell::Cell;
use std::time::Duration;

use expect_test::expect;

use crate::tests::script::history;
use crate::{Budget, History, ModelName, Outcome, Value, Verdict, check_named};

const LINE: &str = r#"{"client":3,"session":1,"sequence":17,"key":"x","op":"SET","args":["1"],"invoked":10,"returned":20,"outcome":"ok","value":"OK"}"#;

fn error(line: &str) -> String {
    let text = format!("{LINE}\n\n{line}\n");
    History::read("history.jsonl", text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_line_is_an_operation() {
    let history = History::read("history.jsonl", LINE.as_bytes()).unwrap();
    let operation = &history.operations[0];
    assert_eq!((&*operation.op, &*operation.keys[0], operation.returned), ("set", "x", Some(20)));
    assert_eq!(operation.value, Some(Value::Text("OK".to_owned())));
}

#[test]
fn null_is_an_answer_and_absence_is_none() {
    let with = |value: &str| {
        let line = LINE.replace(r#","value":"OK""#, value);
        History::read("h", line.as_bytes()).unwrap().operations[0].value.clone()
    };
    assert_eq!(with(r#","value":null"#), Some(Value::Nil));
    assert_eq!(with(""), None);
    let list = r#","value":[1,"a",null,{"error":"ERR no"}]"#;
    let expected = [Value::Integer(1), Value::Text("a".into()), Value::Nil, Value::Error("ERR no".into())];
    assert_eq!(with(list), Some(Value::List(expected.to_vec())));
}

#[test]
fn an_unknown_operation_never_returns() {
    let line = LINE.replace(r#""outcome":"ok""#, r#""outcome":"unknown""#);
    let operation = History::read("h", line.as_bytes()).unwrap().operations.remove(0);
    assert_eq!((operation.outcome, operation.returned, operation.value), (Outcome::Unknown, None, None));
}

#[test]
fn bad_lines_are_told_what_would_be_right() {
    let lines = [
        LINE.replace("17", "\"seventeen\""),
        LINE.replace(r#""key":"x","#, ""),
        LINE.replace(r#""key":"x""#, r#""key":"x","keys":["x"]"#),
        LINE.replace(r#""key":"x""#, r#""key":"x","kee":1"#),
        LINE.replace(r#""returned":20"#, r#""returned":null"#),
        LINE.replace(r#""returned":20"#, r#""returned":9"#),
        LINE.replace(r#""ok""#, r#""fine""#),
        LINE.replace(r#""value":"OK""#, r#""value":1.5"#),
        "GET / HTTP/1.1".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        LINE[..40].to_owned(),
    ];
    let mut messages = String::new();
    for line in &lines {
        messages += &match error(line).split_once("a line reads") {
            Some((message, _)) => format!("{message}(the form of a line)\n"),
            None => error(line) + "\n",
        };
    }
    expect![[r#"
        history.jsonl:3:46: invalid type: string "seventeen", expected u64
          (the form of a line)
        history.jsonl:3:1: no key
          give `"key":"x"`, or `"keys":["x","y"]` with at least one
        history.jsonl:3:1: both `key` and `keys`
          give `key` for one, `keys` for several
        history.jsonl:3:53: unknown field `kee`, expected one of `client`, `session`, `sequence`, `key`, `keys`, `op`, `args`, `stamp`, `invoked`, `returned`, `outcome`, `value`
          (the form of a line)
        history.jsonl:3:1: outcome "ok" without `returned`
          give the time of the answer in ns
        history.jsonl:3:1: `returned` is before `invoked`
          both are nanoseconds of one clock that does not go back
        history.jsonl:3:115: unknown variant `fine`, expected one of `ok`, `failed`, `unknown`
          (the form of a line)
        history.jsonl:3:125: invalid type: floating point `1.5`, expected null, an integer, a string, an array of these, or {"error": "..."}
          (the form of a line)
        history.jsonl:3:1: no JSON object
          (the form of a line)
        history.jsonl:3:1: no JSON object
          (the form of a line)
        history.jsonl:3:1: no JSON object
          (the form of a line)
        history.jsonl:3:1: control character (\u0000-\u001F) found while parsing a string
          (the form of a line)
    "#]].assert_eq(&messages);
}

#[test]
fn what_is_no_plain_text_is_named() {
    let message = |begin: &[u8]| {
        let file = [begin, LINE.as_bytes()].concat();
        History::read("h", &*file).unwrap_err().to_string()
    };
    let messages =
        [&b"\x1f\x8b\x08"[..], b"\x28\xb5\x2f\xfd", b"BZh9", b"\xfd7zXZ\0", b"\xef\xbb\xbf", b"\xff\xfe"]
            .map(message);
    expect![[r#"
        h:1:1: compressed with gzip
          give it unpacked
        h:1:1: compressed with zstd
          give it unpacked
        h:1:1: compressed with bzip2
          give it unpacked
        h:1:1: compressed with xz
          give it unpacked
        h:1:1: a byte order mark
          save it as UTF-8 without a byte order mark
        h:1:1: text in UTF-16
          save it as UTF-8 without a byte order mark"#]]
    .assert_eq(&messages.join("\n"));
}

#[test]
fn an_operation_that_the_model_does_not_have_is_named() {
    let message =
        |model, script| check_named(&history(script), model, &Budget::default()).unwrap_err().to_string();
    let messages = [
        message(ModelName::Kv, "1 0..10 get x -> nil\n1 20..30 flush x"),
        message(ModelName::Kv, "1 0..10 get x+y -> nil"),
        message(ModelName::Kv, "1 0..10 set x 1 nx xx -> OK"),
        message(ModelName::Register, "1 0..10 incr x -> 1"),
        message(ModelName::Bank, "1 0..10 transfer a+b -4 -> 1"),
        "cards".parse::<ModelName>().unwrap_err().to_string(),
    ];
    expect![[r#"
        operation 2: flush x: no operation of the kv model, or not with these arguments
          docs/histories.md lists the operations of each model with their arguments
        operation 1: get x y: touches several keys, or has the wrong number of arguments
          docs/histories.md lists the operations of each model with their arguments
        operation 1: set x 1 nx xx: no operation of the kv model, or not with these arguments
          docs/histories.md lists the operations of each model with their arguments
        operation 1: incr x: no operation of the register model
          a register has read, write VALUE and cas OLD NEW; for Redis commands use --model kv
        operation 1: transfer a b -4: no amount
          an amount is an integer from 0
        no model is named "cards"
          the models are kv, register, bank; and transactions, for histories of those"#]]
    .assert_eq(&messages.join("\n"));
}

#[test]
fn a_report_is_one_json_object() {
    let script = "1 0..10 set x 1 -> OK\n2 20.. set x 2\n3 30..40 get x -> nil";
    let report = check_named(&history(script), ModelName::Kv, &Budget::default()).unwrap();
    let mut json = serde_json::to_value(&report).unwrap();
    json["explanation"]["text"] = serde_json::Value::Null;
    expect![[r#"
        {
          "components": 1,
          "explanation": {
            "keys": [
              "x"
            ],
            "operations": [
              {
                "client": 1,
                "conflicts": true,
                "invoked": 0,
                "line": 1,
                "operation": "set x 1",
                "returned": 10000,
                "sequence": 1,
                "session": 1,
                "value": "OK"
              },
              {
                "client": 3,
                "conflicts": true,
                "invoked": 30000,
                "line": 3,
                "operation": "get x",
                "returned": 40000,
                "sequence": 3,
                "session": 1,
                "value": null
              }
            ],
            "others": 1,
            "reason": "get x (client 3) returned nil, but set x 1 (client 1) had returned 0.020 ms before it was invoked; no order of these 2 operations explains it",
            "text": null
          },
          "keys": 1,
          "model": "kv",
          "operations": 3,
          "promise": "linearizable",
          "seconds": null,
          "steps": 2,
          "undecided": null,
          "unknown": 1,
          "verdict": "violation"
        }"#]].assert_eq(&serde_json::to_string_pretty(&json).unwrap());
    expect![[r#"
        violation: 3 operations (1 unknown) on 1 key, model kv

        get x (client 3) returned nil, but set x 1 (client 1) had returned 0.020 ms before it was invoked; no order of these 2 operations explains it

          line   client   operation   answer   invoked   returned
             1        1   set x 1     "OK"       0.000      0.010
             3        3   get x       nil        0.030      0.040
          times in ms after 0 ns
          1 other operation on these keys, whether done or not, does not help

          1 set x 1  |-------------|
          3 get x                                                |--------------|
    "#]].assert_eq(&report.to_string());
}

#[test]
fn a_clock_limits_the_time() {
    // Each reading is a second later than the one before.
    let reading = Cell::new(0);
    let clock = || {
        reading.set(reading.get() + 1);
        Duration::from_secs(reading.get())
    };
    let budget = Budget { time: Some(Duration::from_secs(2)), clock: Some(&clock), ..Budget::default() };
    // Concurrent writes of different words whose joint length says nothing: every order must be tried.
    let mut script = String::new();
    for client in 0..16 {
        script += &format!("{client} 0..100 append x w{}\n", 10 + client);
    }
    script += "99 200..300 get x -> never";
    let report = check_named(&history(&script), ModelName::Kv, &budget).unwrap();
    assert!(matches!(report.verdict, Verdict::Undecided { .. }), "{report}");
    assert!(report.to_string().contains("the time limit ended"), "{report}");
    assert!(report.seconds >= Some(2.0));
}

/// The example of the documentation, and what it says is printed.
#[test]
fn the_documented_example_is_true() {
    let page = include_str!("../../../../docs/histories.md");
    let block = |kind: &str| {
        let (_, rest) = page.split_once(&format!("```{kind}\n")).unwrap();
        rest.split_once("```").unwrap().0
    };
    let history = History::read("docs/histories.md", block("json").as_bytes()).unwrap();
    let report = check_named(&history, ModelName::Kv, &Budget::default()).unwrap();
    // Only the program measures how long it takes.
    assert_eq!(report.to_string(), block("text").replace(", 0.00 s", ""));
}
