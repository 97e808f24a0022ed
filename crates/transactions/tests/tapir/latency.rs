//! Latency bounds (`specs/carousel.md` 9.1).

use crate::latency::{Alone, Does, PLACEMENT_A, ec2, unit};
use isochrone_core::Span;
use isochrone_transactions::tapir::Family;

const UNIT: Span = Span::from_millis(100);

fn at_unit() -> Alone<Family> {
    Alone::new(unit(5, UNIT), &PLACEMENT_A)
}

#[test]
fn local_replicas_take_one_round_trip_and_others_two() {
    let alone = at_unit();
    assert_eq!(alone.wait(Does::update(0, &[0])), UNIT, "L8, LRT");
    assert_eq!(alone.wait(Does::update(0, &[0, 3, 4])), UNIT, "L8, LRT of three partitions");
    assert_eq!(alone.wait(Does::update(0, &[1])), UNIT * 2, "L8, RPT");
    assert_eq!(alone.wait(Does::update(0, &[0, 1])), UNIT * 2, "L8, RPT with a local partition");
}

#[test]
fn reading_takes_as_long_as_writing() {
    let alone = at_unit();
    assert_eq!(alone.wait(Does::read(0, &[0])), UNIT);
    assert_eq!(alone.wait(Does::read(0, &[1, 2])), UNIT * 2);
}

#[test]
fn without_a_replica_the_slow_path_takes_a_round_trip_more_and_the_timer() {
    let mut alone = at_unit();
    alone.dead = vec![3];
    // The timer runs from the prepare; the votes of the others are there before it is over.
    let timer = Span::from_millis(500);
    assert_eq!(alone.wait(Does::update(0, &[1])), UNIT + timer + UNIT, "L8, RPT slow");
    assert_eq!(alone.wait(Does::update(0, &[3])), timer + UNIT, "LRT slow");
}

#[test]
fn published_distances_give_the_closed_forms() {
    // Client, partitions by the region of their leader, ms (L11).
    let rows: [(u16, &[u16], u64); 11] = [
        (0, &[0, 3], 166),
        (0, &[0, 1], 239),
        (1, &[0, 1, 3], 205),
        (3, &[2, 4], 337),
        (2, &[0, 2, 4], 290),
        (4, &[0], 451),
        (0, &[0, 1, 2, 3, 4], 268),
        (1, &[0, 1, 2, 3, 4], 293),
        (2, &[0, 1, 2, 3, 4], 378),
        (3, &[0, 1, 2, 3, 4], 337),
        (4, &[0, 1, 2, 3, 4], 451),
    ];
    for (client, partitions, expected) in rows {
        let does = Does::update(client, partitions);
        let wait = Alone::<Family>::new(ec2(), &PLACEMENT_A).wait(does.clone());
        assert_eq!(wait, Span::from_millis(expected), "{does:?} (L11)");
    }
}
