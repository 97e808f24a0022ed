//! Latency bounds (`specs/carousel.md` 9.1).

use crate::latency::{Alone, Does, PLACEMENT_A, ec2, unit};
use isochrone_core::Span;
use isochrone_transactions::Family;
use isochrone_transactions::carousel::{Basic, Fast};

/// Round trips in hundredths.
fn trips<F: Family>(alone: &Alone<F>, does: Does) -> u64 {
    let wait = alone.wait(does);
    (wait.as_nanos() + UNIT.as_nanos() / 200) * 100 / UNIT.as_nanos()
}

const UNIT: Span = Span::from_millis(100);

fn at_unit<F: Family>() -> Alone<F> {
    Alone::new(unit(5, UNIT), &PLACEMENT_A)
}

#[test]
fn basic_takes_two_round_trips_and_one_where_all_leaders_are_local() {
    let alone = at_unit::<Basic>();
    assert_eq!(trips(&alone, Does::update(0, &[3, 4])), 200, "L1");
    assert_eq!(trips(&alone, Does::update(0, &[0])), 100, "L2");
    assert_eq!(trips(&alone, Does::update(0, &[0, 1])), 200, "L1, one leader local");
}

#[test]
fn fast_takes_one_round_trip_with_local_replicas() {
    let alone = at_unit::<Fast>();
    assert_eq!(trips(&alone, Does::update(0, &[0])), 100, "L3, the leader is local");
    assert_eq!(trips(&alone, Does::update(0, &[3, 4])), 100, "L3, a follower is local");
    assert_eq!(trips(&alone, Does::update(0, &[1])), 200, "L4");
}

#[test]
fn reading_takes_one_round_trip_and_none_at_local_leaders() {
    for (remote, local) in [
        (trips(&at_unit::<Basic>(), Does::read(0, &[1, 2])), trips(&at_unit::<Basic>(), Does::read(0, &[0]))),
        (trips(&at_unit::<Fast>(), Does::read(0, &[1, 2])), trips(&at_unit::<Fast>(), Does::read(0, &[0]))),
    ] {
        assert_eq!((remote, local), (100, 0), "L6");
    }
}

#[test]
fn fast_without_a_follower_goes_by_the_log_without_waiting_for_a_timer() {
    let mut alone = at_unit::<Fast>();
    alone.dead = vec![2];
    assert_eq!(trips(&alone, Does::update(0, &[0])), 100, "L7: the leader is local, so is its log");
    alone.dead = vec![1];
    assert_eq!(trips(&alone, Does::update(0, &[3])), 200, "L7");
}

#[test]
fn published_distances_give_the_closed_forms() {
    // Client, partitions by the region of their leader, Basic and Fast in ms (L11).
    let rows: [(u16, &[u16], u64, u64); 11] = [
        (0, &[0, 3], 204, 102),
        (0, &[0, 1], 245, 161),
        (1, &[0, 1, 3], 344, 172),
        (3, &[2, 4], 470, 235),
        (2, &[0, 2, 4], 525, 290),
        (4, &[0], 322, 322),
        (0, &[0, 1, 2, 3, 4], 401, 175),
        (1, &[0, 1, 2, 3, 4], 377, 260),
        (2, &[0, 1, 2, 3, 4], 525, 323),
        (3, &[0, 1, 2, 3, 4], 470, 235),
        (4, &[0, 1, 2, 3, 4], 525, 322),
    ];
    for (client, partitions, basic, fast) in rows {
        let does = Does::update(client, partitions);
        let waits = [
            Alone::<Basic>::new(ec2(), &PLACEMENT_A).wait(does.clone()),
            Alone::<Fast>::new(ec2(), &PLACEMENT_A).wait(does.clone()),
        ];
        for (wait, expected) in waits.into_iter().zip([basic, fast]) {
            let expected = Span::from_millis(expected);
            let off = wait.as_nanos().abs_diff(expected.as_nanos());
            assert!(off <= 1_000_000, "{does:?}: {wait}, not {expected} (L11)");
        }
    }
}
