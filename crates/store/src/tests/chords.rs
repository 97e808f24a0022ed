use super::*;
use isochrone_core::command::{Chord, REPLY_MAX};
use std::sync::Arc;

fn part(member: &str, score: Option<f64>) -> Operation {
    Operation::ChordStep {
        chord: Arc::new(Chord::Part {
            results: b("j"),
            difference: b("t"),
            size: b("s"),
            recorded: b("d"),
            group: b("g"),
            claim: b("c"),
            member: b(member),
            value: b(&format!("result of {member}")),
            score: score.map(super::score),
            expires: Some(at(1000)),
            group_expires: None,
            claimed_until: at(500),
            token: b(&format!("token of {member}")),
        }),
    }
}

fn extend(token: &str, until: u64) -> Operation {
    let chord = Chord::Extend { claim: b("c"), size: b("s"), token: b(token), until: at(until) };
    Operation::ChordStep { chord: Arc::new(chord) }
}

fn finish(token: &str) -> Operation {
    let keys = ["j", "t", "s", "d"].map(b).to_vec();
    let chord = Chord::Finish { claim: b("c"), keys, token: b(token), done_until: Some(at(2000)) };
    Operation::ChordStep { chord: Arc::new(chord) }
}

fn told(ready: i64, claimed: i64) -> Response {
    Response::Array(vec![Response::Integer(ready), bulk("1"), bulk("2"), Response::Integer(claimed)])
}

#[test]
fn the_callback_of_a_chord_is_claimed_once_by_the_last() {
    for ordered in [true, false] {
        let mut store = Store::default();
        let place = |place| ordered.then_some(place);
        let absent =
            Response::Array(vec![Response::Integer(1), Response::Nil, Response::Nil, Response::Integer(0)]);
        assert_eq!(store.run(part("a:0", place(0.0))), absent);
        store.run(set("t", "1"));
        store.run(set("s", "2"));
        assert_eq!(store.run(part("b:1", place(1.0))), told(2, 0));
        // The same task again, which is recorded once.
        assert_eq!(store.run(part("b:1", place(1.0))), told(2, 0));
        assert_eq!(store.run(part("c:2", place(2.0))), told(3, 1));
        assert_eq!(store.run(part("c:2", place(2.0))), told(3, 0), "it is claimed");
        assert_eq!(store.run(extend("another", 600)), Response::Integer(0));
        assert_eq!(store.run(extend("token of c:2", 600)), Response::Integer(1));
        // The claim expires, and another takes it up while the chord is not done.
        assert_eq!(store.run_at(600, extend("another", 900)), Response::Integer(1));
        assert_eq!(store.run_at(600, finish("token of c:2")), Response::Integer(0));
        assert_eq!(store.run_at(600, finish("another")), Response::Integer(1));
        assert_eq!(
            store.run_at(601, Operation::DbSize),
            Response::Integer(1),
            "only the word that it is done"
        );
        let late = [-1, 0, 0, 0].map(Response::Integer).to_vec();
        assert_eq!(store.run_at(602, part("c:2", place(2.0))), Response::Array(late));
        assert_eq!(store.run_at(603, extend("third", 900)), Response::Integer(0));
    }
}

#[test]
fn a_chord_whose_keys_hold_something_else_is_refused_and_nothing_is_changed() {
    for key in ["j", "t", "s", "d", "c"] {
        let mut store = Store::default();
        store.run(Operation::HSet { key: b(key), pairs: pairs("f 1") });
        assert_eq!(store.run(part("a:0", Some(0.0))), WRONG_TYPE, "{key}");
        assert_eq!(store.run(Operation::DbSize), Response::Integer(1), "{key}");
    }
}

#[test]
fn what_a_chord_is_to_tell_is_counted_before_anything_is_changed() {
    let mut store = Store::default();
    store.run(set("fill", &"x".repeat(REPLY_MAX - 500)));
    store.run(set("t", "1"));
    store.run(set("s", &"2".repeat(1_000)));
    let operations = [get("fill"), part("a:0", Some(0.0))].into();
    let before = store.digest();
    let answer = store.run(Operation::Transaction { watched: [].into(), operations });
    let Response::Array(parts) = answer else { panic!() };
    assert_eq!((&parts[1], store.digest()), (&Refusal::ReplyTooLong.into(), before));
    assert!(matches!(store.run(part("a:0", Some(0.0))), Response::Array(_)));
}
