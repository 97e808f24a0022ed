//! Places: members found by where their scores say they are.

use super::*;
use isochrone_core::command::Operation::{GeoSearch, GeoSearchStore};
use isochrone_core::geo::{Area, Center, Order, Point, Search, Unit};
use std::sync::Arc;

/// A grid of places a tenth of a degree apart, named by their degrees.
fn grid() -> Store {
    let mut store = Store::default();
    let members: Vec<(Score, Blob)> = (-20..20)
        .flat_map(|east| (-20..20).map(move |north| (f64::from(east) / 10.0, f64::from(north) / 10.0)))
        .map(|(longitude, latitude)| {
            let place = Point::new(longitude, latitude).unwrap();
            (place.score(), Blob::from(format!("{longitude},{latitude}")))
        })
        .collect();
    store.run(Operation::ZAdd { key: b("grid"), flags: Default::default(), members: members.into() });
    store
}

fn around(longitude: f64, latitude: f64, radius: f64, order: Order) -> Search {
    Search {
        center: Center::Point { longitude: score(longitude), latitude: score(latitude) },
        area: Area::Circle { radius: score(radius) },
        unit: Unit::Kilometers,
        order,
        count: None,
        any: false,
    }
}

fn find(store: &mut Store, search: Search) -> Vec<String> {
    let operation = GeoSearch { key: b("grid"), search: Arc::new(search), detailed: false };
    let Response::Array(found) = store.run(operation) else { panic!("no array") };
    found
        .into_iter()
        .map(|member| match member {
            Response::Bulk(member) => String::from_utf8(member.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn what_lies_within_is_found_near_or_far_first() {
    let mut store = grid();
    let near = find(&mut store, around(0.0, 0.0, 12.0, Order::Near));
    assert_eq!(near[0], "0,0");
    assert_eq!(near.len(), 5);
    let mut far = find(&mut store, around(0.0, 0.0, 12.0, Order::Far));
    assert_eq!(far.pop().unwrap(), "0,0");
    let mut walked = find(&mut store, around(0.0, 0.0, 12.0, Order::Walked));
    walked.sort();
    let mut sorted = near.clone();
    sorted.sort();
    assert_eq!(walked, sorted);
    // All of them are within a thousand kilometres.
    assert_eq!(find(&mut store, around(0.0, 0.0, 1000.0, Order::Walked)).len(), 1600);
    let some = Search { count: Some(7), ..around(0.0, 0.0, 1000.0, Order::Near) };
    assert_eq!(find(&mut store, some.clone())[..5], near[..]);
    // Any seven are the first that the walk meets, in the order that is asked for.
    let any = find(&mut store, Search { any: true, ..some });
    let mut met = find(&mut store, around(0.0, 0.0, 1000.0, Order::Walked));
    met.truncate(7);
    assert!(any.len() == 7 && any.iter().all(|member| met.contains(member)));
}

#[test]
fn around_a_member_of_a_set_that_is_there() {
    let mut store = grid();
    let center = Center::Member(b("1,1"));
    let search = Search { center, ..around(0.0, 0.0, 1.0, Order::Near) };
    assert_eq!(find(&mut store, search.clone()), ["1,1"]);
    let missing = Search { center: Center::Member(b("nobody")), ..search };
    let ask = |key: &str| GeoSearch { key: b(key), search: Arc::new(missing.clone()), detailed: true };
    assert_eq!(store.run(ask("grid")), Response::Error(Refusal::NoCenter));
    assert_eq!(store.run(ask("nothing")), Response::Array(vec![]));
    store.run(push("list", "a"));
    assert_eq!(store.run(ask("list")), WRONG_TYPE);
}

#[test]
fn what_is_found_is_stored_in_place_of_what_was_there() {
    let mut store = grid();
    let keep = |target: &str, search: Search, distances| GeoSearchStore {
        target: b(target),
        source: b("grid"),
        search: Arc::new(search),
        distances,
    };
    store.run(push("found", "a"));
    let near = around(0.0, 0.0, 12.0, Order::Walked);
    assert_eq!(store.run(keep("found", near.clone(), true)), Response::Integer(5));
    let first = Operation::ZScore { key: b("found"), member: b("0.1,0") };
    let Response::Double(distance) = store.run(first) else { panic!("it was not stored") };
    assert!((11.0..11.2).contains(&distance.get()), "{distance}");
    // What was stored may be what was searched, and follows from it.
    let mut other = grid();
    other.run(Operation::ZRem { key: b("grid"), members: names("1.9,1.9") });
    for store in [&mut store, &mut other] {
        assert_eq!(store.run(keep("grid", near.clone(), false)), Response::Integer(5));
    }
    let everything = Operation::ZRange {
        key: b("grid"),
        slice: Arc::new(isochrone_core::command::Slice {
            selection: index(0, -1),
            reverse: false,
            limit: None,
        }),
        with_scores: true,
    };
    assert_eq!(store.run(everything.clone()), other.run(everything));
    let missing = Search { center: Center::Member(b("nobody")), ..near.clone() };
    assert_eq!(store.run(keep("found", missing, true)), Response::Error(Refusal::NoCenter));
    assert_eq!(store.run(Operation::ZCard { key: b("found") }), Response::Integer(5));
    // Nothing found leaves nothing.
    assert_eq!(store.run(keep("found", around(90.0, 80.0, 1.0, Order::Near), true)), Response::Integer(0));
    assert_eq!(store.run(Operation::Exists { keys: names("found") }), Response::Integer(0));
}
