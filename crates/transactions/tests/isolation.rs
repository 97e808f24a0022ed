//! A group without a majority stalls the transactions that touch it, and no others (`specs/carousel.md` 9.3, F15).

use crate::latency::{Alone, PLACEMENT_A, apart, unit};
use crate::script::Play;
use isochrone_core::{Blob, NodeId, Span, Ticket};
use isochrone_replication::Change;
use isochrone_transactions::carousel::{Basic, Fast};
use isochrone_transactions::{Family, Outcome, twopc};
use std::slice::from_ref;

/// Writes a key, and waits for a second.
fn write<F: Family>(play: &mut Play<F>, client: u16, key: &Blob) -> Ticket {
    let (txn, _) = play.begin(client, &[], from_ref(key));
    let ticket = play.commit(client, txn, &[(key, "v")]);
    play.run(Span::from_secs(1));
    ticket
}

fn commits<F: Family>(play: &mut Play<F>, client: u16, key: &Blob) {
    let ticket = write(play, client, key);
    let answer = play.answer(ticket);
    assert!(matches!(answer, Some(Outcome::Committed { .. })), "{}: {client}, {key:?}: {answer:?}", F::NAME);
}

/// Two nodes fail, and a group has no majority: the one of this number, first led at the node of the same number, which the
/// client would have coordinate. It writes to a group that is whole, and so does the other client.
fn stalls_no_others<F: Family>(stalled: u16, dead: [u16; 2], client: u16, whole: u16, other: u16) {
    let mut play = Play::<F>::new(&Alone::new(unit(6, Span::from_millis(20)), &PLACEMENT_A));
    dead.iter().for_each(|node| play.cluster.crash(NodeId(*node)));
    play.run(Span::from_secs(5));
    let keys: Vec<Blob> = (0..12).map(|number| Blob::from(format!("{whole}:{number}"))).collect();
    let lost = write(&mut play, client, &keys[0]);
    keys[1..10].iter().for_each(|key| commits(&mut play, client, key));
    keys[1..10].iter().for_each(|key| commits(&mut play, other, key));
    // From here on nobody waits for the group.
    assert_eq!(play.wait(lost), Outcome::Unknown, "{}", F::NAME);
    commits(&mut play, client, &keys[10]);
    dead.iter().for_each(|node| play.cluster.restart(NodeId(*node)));
    play.run(Span::from_secs(10));
    play.change(stalled, Change::Lead(NodeId(stalled)));
    play.run(Span::from_secs(2));
    // What was left of the one that was lost has ended.
    commits(&mut play, other, &keys[0]);
    // The group is found to be back, and coordinates again.
    commits(&mut play, client, &keys[11]);
    let since = play.cluster.now();
    commits(&mut play, client, &keys[1]);
    let coordinator = match stalled {
        0 => "r0.role0".to_owned(),
        _ => format!("r{stalled}.role0.p{stalled}"),
    };
    let said = play.conversation(since);
    assert!(said.contains(&format!(" -> {coordinator} Commit")), "{}: {said}", F::NAME);
}

/// The leader beside the client is left, and says that it leads no more.
#[test]
fn transactions_that_do_not_touch_a_group_without_a_majority_go_on() {
    stalls_no_others::<Basic>(1, [3, 4], 1, 0, 0);
    stalls_no_others::<Fast>(1, [3, 4], 1, 0, 0);
    stalls_no_others::<twopc::Family>(1, [3, 4], 1, 0, 0);
}

/// No leader is near the client, and the first of those at one distance is gone and says nothing.
#[test]
fn a_coordinator_that_says_nothing_is_passed_over() {
    stalls_no_others::<twopc::Family>(0, [0, 1], 5, 2, 2);
}

/// Only the line is cut between a client and the leader nearest to it, which it would have coordinate. The others of that
/// group say that this one leads, which is true and no help.
fn reaches_others<F: Family>() {
    let millis = |a: usize, b: usize| if (a.min(b), a.max(b)) == (1, 5) { 2 } else { 20 };
    let matrix = apart(6, |a, b| Span::from_millis(millis(a, b)));
    let mut play = Play::<F>::new(&Alone::new(matrix, &PLACEMENT_A));
    play.connect(&[(1, 5)], false);
    let keys: Vec<Blob> = (0..20).map(|number| Blob::from(format!("2:{number}"))).collect();
    let lost = write(&mut play, 5, &keys[0]);
    keys[1..].iter().for_each(|key| commits(&mut play, 5, key));
    let answer = play.answer(lost);
    assert!(!matches!(answer, Some(Outcome::Committed { .. })), "{}: it was reached", F::NAME);
}

#[test]
fn a_coordinator_that_only_this_client_does_not_reach_is_passed_over() {
    reaches_others::<Basic>();
    reaches_others::<Fast>();
    reaches_others::<twopc::Family>();
}
