//! A node crashes between any two effects while a transaction runs (`specs/carousel.md` 9.3: crash points are
//! enumerated). What its client was told holds, all of it took effect or nothing, and nothing stays behind.

use crate::latency::{Alone, PLACEMENT_A, key, unit};
use crate::script::Play;
use isochrone_core::{NodeId, Span};
use isochrone_transactions::carousel::{Basic, Fast};
use isochrone_transactions::{Family, Outcome, Request, tapir, twopc};

const RTT: Span = Span::from_millis(20);

/// The node of this number crashes after so many effects; whether that came to pass before all was over.
fn crash<F: Family>(node: u16, effects: u64, before_commit: bool) -> bool {
    // Led at regions 1 and 2. The client stands where no replica is, so that nobody crashes with it.
    let (mut play, keys, client) =
        (Play::<F>::new(&Alone::new(unit(6, RTT), &PLACEMENT_A)), [key(1), key(2)], 5);
    let begin = Request::Begin { reads: keys.to_vec(), writes: keys.to_vec() };
    let ticket = play.ask(client, begin);
    if before_commit {
        play.cluster.crash_after(NodeId(node), effects);
    }
    let begun = play.wait(ticket);
    let mut told = None;
    if let Outcome::Begun { txn, .. } = begun {
        if !before_commit {
            play.cluster.crash_after(NodeId(node), effects);
        }
        let ticket = play.commit(client, txn, &[(&keys[0], "one"), (&keys[1], "two")]);
        told = Some(play.wait(ticket));
    }
    // What is written back is on its way for two round trips.
    play.run(RTT * 3);
    let crashed = !play.cluster.is_up(NodeId(node));
    play.cluster.crash_after(NodeId(node), u64::MAX - 1);
    play.run(Span::from_secs(1));
    if crashed {
        play.cluster.restart(NodeId(node));
    }
    play.run(Span::from_secs(4));
    let what = format!("{}: node {node} crashes after {effects} effects, told {told:?}", F::NAME);
    let values = play.values(4, &keys);
    let all = [Some("one".to_owned()), Some("two".to_owned())];
    match told {
        Some(Outcome::Committed { .. }) => assert_eq!(values, all, "{what}"),
        Some(Outcome::Unknown) => assert!(values == all || values == [None, None], "{what}: {values:?}"),
        _ => assert_eq!(values, [None, None], "{what}"),
    }
    // Nothing is left that would be in the way of another.
    let again = |play: &mut Play<F>| {
        let (txn, _) = play.begin(4, &keys, &keys);
        let ticket = play.commit(4, txn, &[(&keys[0], "three"), (&keys[1], "four")]);
        matches!(play.wait(ticket), Outcome::Committed { .. })
    };
    assert!((0..5).any(|_| again(&mut play)), "{what}: nothing commits after it");
    assert_eq!(play.values(0, &keys), ["three", "four"].map(|text| Some(text.to_owned())), "{what}");
    crashed
}

/// Every point until the node no longer reaches it; every so many of them, unless `ISOCHRONE_SEEDS` asks for all.
fn everywhere<F: Family>(nodes: &[u16]) {
    let stride = if std::env::var_os("ISOCHRONE_SEEDS").is_some() { 1 } else { 7 };
    for node in nodes {
        for before_commit in [true, false] {
            let mut reached = 0;
            for effects in (0..400).step_by(stride) {
                if !crash::<F>(*node, effects, before_commit) {
                    break;
                }
                reached += 1;
            }
            println!("{}: node {node}: {reached} points", F::NAME);
            assert!(reached > 0, "{}: node {node} has not crashed", F::NAME);
        }
    }
}

/// The coordinator, which leads a participant too; the leader of the other; a follower of both.
const NODES: [u16; 3] = [1, 2, 4];

#[test]
fn carousel_basic_survives_a_crash_at_any_point() {
    everywhere::<Basic>(&NODES);
}

#[test]
fn carousel_fast_survives_a_crash_at_any_point() {
    everywhere::<Fast>(&NODES);
}

#[test]
fn two_phase_commit_survives_a_crash_at_any_point() {
    everywhere::<twopc::Family>(&NODES);
}

#[test]
fn tapir_survives_a_crash_at_any_point() {
    everywhere::<tapir::Family>(&NODES);
}
