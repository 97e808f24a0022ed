//! Absences that are watched.

use super::*;
use isochrone_core::Export;

fn watch_at(store: &mut Store, millis: u64, key: &str, seed: u64) -> u64 {
    let Response::Integer(number) = store.run_at(millis, Operation::Watch { key: b(key), seed }) else {
        panic!()
    };
    number as u64
}

/// Whether a transaction that goes by this is executed.
fn passes_at(store: &mut Store, millis: u64, key: &str, number: u64) -> bool {
    let (watched, operations) = ([(b(key), number)].into(), [set("copy", "1")].into());
    match store.run_at(millis, Operation::Transaction { watched, operations }) {
        Response::NilArray => false,
        answer => {
            assert_eq!(answer, Response::Array(vec![Response::Ok]));
            true
        }
    }
}

const MINUTES: u64 = 60_000;

#[test]
fn a_key_that_came_and_went_was_not_absent() {
    let del = |key: &str| Operation::Del { keys: names(key) };
    let pop = || Operation::Pop { key: b("k"), side: Side::Left, count: None };
    let ways: [&[(u64, Operation)]; 6] = [
        &[(1, set("k", "v")), (1, del("k"))],
        &[(1, set_until("k", "v", 5)), (10, get("k"))],
        &[(1, set_until("k", "v", 5)), (10, Operation::Sweep { keys: names("k") })],
        &[(1, push("k", "v")), (1, pop())],
        &[(1, set("k", "v")), (1, Operation::Rename { key: b("k"), target: b("l"), only_if_absent: false })],
        &[
            (1, set("l", "v")),
            (1, Operation::Copy { key: b("l"), target: b("k"), replace: true }),
            (1, Operation::Flush),
        ],
    ];
    for way in ways {
        let mut store = Store::default();
        let number = watch_at(&mut store, 1, "k", 1);
        assert!(number > 0 && number.is_multiple_of(2) && number <= i64::MAX as u64);
        assert!(passes_at(&mut store, 1, "k", number));
        assert_eq!(store.run(Operation::Version { key: b("k") }), Response::Integer(0));
        for (millis, operation) in way {
            assert!(!store.run_at(*millis, operation.clone()).is_error());
        }
        assert_eq!(store.run_at(10, Operation::Exists { keys: names("k") }), Response::Integer(0), "{way:?}");
        assert!(!passes_at(&mut store, 10, "k", number), "{way:?}");
        let another = watch_at(&mut store, 10, "k", 2);
        assert!(another != number && passes_at(&mut store, 10, "k", another), "{way:?}");
        // What was written before absences had numbers goes by no more than that.
        assert!(passes_at(&mut store, 10, "k", 0), "{way:?}");
    }
}

#[test]
fn an_absence_has_one_number_for_all_who_ask_and_each_a_number_of_its_own() {
    let mut store = Store::default();
    let (one, other) = (watch_at(&mut store, 1, "k", 1), watch_at(&mut store, 1, "l", 1));
    assert_eq!((watch_at(&mut store, 2, "k", 2), watch_at(&mut store, 3, "l", 3)), (one, other));
    assert!(one != other && !passes_at(&mut store, 3, "k", other));
    // It concerns that key alone.
    store.run(set("l", "v"));
    store.run(Operation::Del { keys: names("l m") });
    assert!(passes_at(&mut store, 3, "k", one) && !passes_at(&mut store, 3, "l", other));
    // Of a key that is there it is the version.
    store.run(set("k", "v"));
    let version = watch_at(&mut store, 3, "k", 4);
    assert_eq!(store.run(Operation::Version { key: b("k") }), Response::Integer(version as i64));
    assert!(passes_at(&mut store, 3, "k", version) && !passes_at(&mut store, 3, "k", one));
    assert!(!passes_at(&mut store, 3, "k", version ^ 1), "no number of an absence");
    assert_eq!((store.len(), store.deadline()), (2, None));
}

#[test]
fn an_absence_is_kept_in_mind_for_minutes_and_then_swept() {
    let mut store = Store::default();
    let (k, l) = (watch_at(&mut store, 1, "k", 1), watch_at(&mut store, 1, "l", 1));
    assert_eq!(watch_at(&mut store, 2 * MINUTES, "k", 2), k, "asked for again");
    let over = 1 + 5 * MINUTES;
    assert!(passes_at(&mut store, over - 1, "l", l) && !passes_at(&mut store, over, "l", l));
    assert!(passes_at(&mut store, over - 1, "l", l), "nothing is deleted by who comes too late");
    let sweep = |store: &mut Store, millis| {
        let keys = store.overdue(at(millis), 9);
        assert_eq!(
            store.run_at(millis, Operation::Sweep { keys: keys.clone().into() }),
            Response::Integer(0)
        );
        keys
    };
    assert_eq!(sweep(&mut store, over), [b("l")]);
    assert!(!passes_at(&mut store, 1, "l", l) && passes_at(&mut store, over, "k", k));
    let again = watch_at(&mut store, over, "l", 1);
    assert!(again != l, "another number for the next");
    assert_eq!(sweep(&mut store, 7 * MINUTES), [b("k")]);
    assert_eq!(sweep(&mut store, 20 * MINUTES), [b("l")]);
    store.run(Operation::Del { keys: names("copy") });
    assert!(store == Store::default(), "nothing is left");
}

#[test]
fn absences_go_with_the_state() {
    let mut store = one_of_each();
    let before = store.clone();
    for key in 0..3_000 {
        watch_at(&mut store, key, &format!("{}{key}", "absent".repeat(40)), key);
    }
    let number = watch_at(&mut store, 9, "k", 1);
    assert!(store != before && store.digest() == before.digest());
    let view = store.export();
    let mut copy = Store::default();
    let chunks: Vec<Blob> = (0..).map_while(|index| view.chunk(index)).collect();
    chunks.iter().for_each(|chunk| copy.absorb(chunk).unwrap());
    assert!(chunks.len() > 2, "{}", chunks.len());
    assert!(store.export().into_chunks().eq(chunks));
    assert!(copy == store && copy.overdue(at(6 * MINUTES), 4_000) == store.overdue(at(6 * MINUTES), 4_000));
    assert!(passes_at(&mut copy, 10, "k", number));
    // What a state of before says nothing of was not watched.
    let mut old = Store::default();
    before.export().into_chunks().for_each(|chunk| old.absorb(&chunk).unwrap());
    assert!(!passes_at(&mut old, 10, "k", number));
}
