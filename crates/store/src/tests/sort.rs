//! Lists, sets and sorted sets, sorted.

use super::*;
use isochrone_core::command::{Got, Limit, Sort, SortBy};
use std::sync::Arc;

fn sort(by: SortBy) -> Sort {
    Sort { by, descending: false, limit: None, gets: Vec::new() }
}

fn sorting(key: &str, sort: Sort) -> Operation {
    Operation::Sort { key: b(key), sort: Arc::new(sort) }
}

fn storing(target: &str, source: &str, sort: Sort) -> Operation {
    Operation::SortStore { target: b(target), source: b(source), sort: Arc::new(sort) }
}

#[test]
fn numbers_are_read_as_by_strtod_and_equal_ones_stand_by_their_bytes() {
    let mut store = Store::default();
    let values = ["3", "-0", "1e1", "0", " 7", "", "inf", "-inf", "+2", "1\0x", "0x8", "0e-999"];
    store.run(Operation::Push {
        key: b("l"),
        values: values.iter().copied().map(Blob::from).collect(),
        side: Side::Right,
        only_if_exists: false,
    });
    let sorted = ["-inf", "", "-0", "0", "0e-999", "1\0x", "+2", "3", " 7", "0x8", "1e1", "inf"];
    let expected = Response::Array(sorted.iter().copied().map(bulk).collect());
    assert_eq!(store.run(sorting("l", sort(SortBy::Number))), expected);
    for no_number in ["a", "nan", "1e999", "1e-400", "-0x1p-2000", "1 ", " ", ".", "0x"] {
        store.run(Operation::Del { keys: names("one") });
        store.run(Operation::Push {
            key: b("one"),
            values: [b(no_number)].into(),
            side: Side::Left,
            only_if_exists: false,
        });
        let answer = store.run(sorting("one", sort(SortBy::Number)));
        assert_eq!(answer, Response::Error(Refusal::NotSortable), "{no_number:?}");
    }
}

#[test]
fn pages_of_every_collection() {
    let mut store = Store::default();
    store.run(push("list", "c a d b"));
    store.run(Operation::SAdd { key: b("set"), members: names("c a d b") });
    store.run(Operation::ZAdd {
        key: b("zset"),
        flags: Default::default(),
        members: scored("1 c 2 a 3 d 4 b"),
    });
    let page = |offset, count| Some(Limit { offset, count });
    for key in ["list", "set", "zset"] {
        let by = |limit, descending| Sort { limit, descending, ..sort(SortBy::Bytes) };
        for (limit, descending, expected) in [
            (None, false, "a b c d"),
            (None, true, "d c b a"),
            (page(1, 2), false, "b c"),
            (page(1, -1), true, "c b a"),
            (page(-5, 1), false, "a"),
            (page(4, 1), false, ""),
            (page(3, i64::MAX), false, "d"),
            (page(i64::MAX, i64::MAX), false, ""),
        ] {
            assert_eq!(store.run(sorting(key, by(limit, descending))), array(expected), "{key} {limit:?}");
        }
    }
    let unsorted = |limit, descending| Sort { limit, descending, ..sort(SortBy::Nothing) };
    assert_eq!(store.run(sorting("list", unsorted(page(1, 2), false))), array("a d"));
    assert_eq!(store.run(sorting("list", unsorted(page(0, 2), true))), array("b d"));
    assert_eq!(store.run(sorting("zset", unsorted(page(0, 2), false))), array("c a"));
    assert_eq!(store.run(sorting("zset", unsorted(page(0, 2), true))), array("b d"));
    assert_eq!(sorted(store.run(sorting("set", unsorted(None, false)))), array("a b c d"));
    assert_eq!(store.run(sorting("nothing", sort(SortBy::Number))), array(""));
}

#[test]
fn what_is_sorted_is_stored_as_a_list() {
    let mut store = one_of_each();
    for key in ["string", "hash"] {
        assert_eq!(store.run(sorting(key, sort(SortBy::Bytes))), WRONG_TYPE);
        assert_eq!(store.run(storing("list", key, sort(SortBy::Bytes))), WRONG_TYPE);
    }
    store.run(Operation::SAdd { key: b("set"), members: names("c b") });
    // A set that is stored gets an order.
    assert_eq!(store.run(storing("string", "set", sort(SortBy::Nothing))), Response::Integer(3));
    assert_eq!(store.run(lrange("string")), array("a b c"));
    let gets = vec![Got::Element, Got::Nothing];
    let twice = Sort { gets, descending: true, ..sort(SortBy::Bytes) };
    assert_eq!(store.run(storing("set", "set", twice)), Response::Integer(6));
    let expected = ["c", "", "b", "", "a", ""].map(bulk).into();
    assert_eq!(store.run(lrange("set")), Response::Array(expected));
    // Nothing sorted leaves nothing.
    assert_eq!(store.run(storing("set", "nothing", sort(SortBy::Number))), Response::Integer(0));
    assert_eq!(store.run(Operation::Exists { keys: names("set") }), Response::Integer(0));
}
