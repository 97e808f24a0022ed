//! Explanations are true, small and readable.

use crate::tests::script::history;
use crate::{Budget, Explanation, History, ModelName, Verdict, check_named};

fn explain(script: &str) -> Explanation {
    explain_with(&history(script), ModelName::Kv).unwrap()
}

fn explain_with(history: &History, model: ModelName) -> Option<Explanation> {
    match check_named(history, model, &Budget::default()).unwrap().verdict {
        Verdict::Violation(explanation) => Some(*explanation),
        _ => None,
    }
}

/// What an explanation shows is what the history forces: the acknowledged writes that make it a violation are there.
pub(super) fn sound() -> Result<(), String> {
    let history = history(
        "
        1 0..10 set x 1 -> OK
        1 20..30 set x 2 -> OK
        2 40..50 incr x -> 3
        3 60..70 get x -> 2",
    );
    let explanation = explain_with(&history, ModelName::Kv).ok_or("no violation")?;
    let shown: Vec<&str> = explanation.operations.iter().map(|shown| shown.operation.as_str()).collect();
    if shown != ["incr x", "get x"] && shown != ["set x 2", "incr x", "get x"] {
        return Err(format!("{shown:?} do not conflict"));
    }
    Ok(())
}

#[test]
fn explanations_keep_what_conflicts() {
    assert_eq!(sound(), Ok(()));
}

fn shows(script: &str, expected: expect_test::Expect) {
    expected.assert_eq(&explain(script).text);
}

#[test]
fn a_stale_read_names_the_write_that_came_between() {
    shows(
        "
        1 0..1000 set x 3 -> OK
        2 1500..2900 set x 4 -> OK
        1 0..500 set y 1 -> OK
        4 1000..1400 get x -> 3
        2 3000..3100 get x -> 4
        3 5000..6200 get x -> 3",
        expect_test::expect![[r#"
            get x (client 3) returned 3, but set x 4 (client 2) had returned 2.100 ms before it was invoked; no order of these 3 operations explains it

              line   client   operation   answer   invoked   returned
                 1        1   set x 3     "OK"       0.000      1.000
                 2        2   set x 4     "OK"       1.500      2.900
                 6        3   get x       3          5.000      6.200
              times in ms after 0 ns

              1 set x 3  |--------|
              2 set x 4                |------------|
              3 get x                                                   |-----------|
        "#]],
    );
}

#[test]
fn a_value_of_nobody() {
    shows(
        "
        1 0..1000 set x 3 -> OK
        3 5000..6200 get x -> 9",
        expect_test::expect![[r#"
            get x (client 3) returned 9, which no operation ever wrote

              line   client   operation   answer   invoked   returned
                ~1        1   set x 3     "OK"       0.000      1.000
                 2        3   get x       9          5.000      6.200
              times in ms after 0 ns
              what is marked ~, whether done or not, does not help

              1 set x 3  |--------|
              3 get x                                                   |-----------|
        "#]],
    );
}

#[test]
fn a_value_from_the_future() {
    shows(
        "
        1 0..1000 set x 3 -> OK
        3 2000..3000 get x -> 9
        2 4200..5000 set x 9 -> OK",
        expect_test::expect![[r#"
            get x (client 3) returned 9, which was first written by set x 9 (client 2), invoked 1.200 ms after that

              line   client   operation   answer   invoked   returned
                ~1        1   set x 3     "OK"       0.000      1.000
                 2        3   get x       9          2.000      3.000
                 3        2   set x 9     "OK"       4.200      5.000
              times in ms after 0 ns
              what is marked ~, whether done or not, does not help

              1 set x 3  |----------|
              3 get x                           |-----------|
              2 set x 9                                                   |---------|
        "#]],
    );
}

#[test]
fn a_lost_increment() {
    shows(
        "
        1 0..1000 incr x -> 1
        2 500..1500 incr x -> 2
        3 700..1600 get x -> 1
        4 2000..3000 incr x -> 2
        5 800.. incr y
        2 4000..5000 get x -> 3",
        expect_test::expect![[r#"
            incr x (client 4) returned 2, but incr x (client 2) had returned 0.500 ms before it was invoked; no order of these 2 operations explains it

              line   client   operation   answer   invoked   returned
                 2        2   incr x      2          0.000      1.000
                 4        4   incr x      2          1.500      2.500
              times in ms after 500000 ns
              1 other operation on these keys, whether done or not, does not help

              2 incr x  |----------------------|
              4 incr x                                     |-----------------------|
        "#]],
    );
}

#[test]
fn a_torn_write_of_two_keys() {
    shows(
        "
        1 0..1000 mset x+y 1 1 -> OK
        2 1500.. mset x+y 2 2
        3 2000..2500 get x -> 2
        4 3000..3200 mget x+y -> [2 1]",
        expect_test::expect![[r#"
            mget x y (client 4) returned [2 1]; no order of these 3 operations explains it

              line   client   operation      answer    invoked   returned
                ~1        1   mset x y 1 1   "OK"        0.000      1.000
                ~2        2   mset x y 2 2   unknown     1.500          -
                 4        4   mget x y       [2 1]       3.000      3.200
              times in ms after 0 ns
              what is marked ~, whether done or not, does not help

              1 mset x y 1 1  |-----------------|
              2 mset x y 2 2                             |--------------------------------?
              4 mget x y                                                             |---|
        "#]],
    );
}
