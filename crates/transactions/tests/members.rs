//! Replicas of a partition are replaced by others.

use crate::latency::{Alone, key, unit};
use crate::script::Play;
use isochrone_core::{NodeId, Span};
use isochrone_replication::Change;
use isochrone_transactions::carousel::{Basic, Fast, Parameters};
use isochrone_transactions::{Family, Outcome, Tuning as _, twopc};
use std::slice::from_ref;

const RTT: Span = Span::from_millis(20);
/// Enough for an election and a change.
const SOME: Span = Span::from_secs(3);

/// Writes a value and reads it elsewhere; a transaction that is in the way of what a failed leader had left is tried again.
fn serves<F: Family>(play: &mut Play<F>, client: u16, text: &str) {
    let keys = [key(0), key(1)];
    let committed = (0..10).any(|_| {
        let (txn, _) = play.begin(client, &keys, &keys);
        let ticket = play.commit(client, txn, &[(&keys[0], text), (&keys[1], text)]);
        let done = matches!(play.wait(ticket), Outcome::Committed { .. });
        done || {
            play.run(Span::from_millis(500));
            false
        }
    });
    assert!(committed, "{}: {text:?} is not written", F::NAME);
    let values = [text, text].map(|text| Some(text.to_owned()));
    assert_eq!(play.values(6, &keys), values, "{}", F::NAME);
}

/// One after the other the replicas of a partition fail for good, and one that waited takes the place of each. In the end
/// none is left of those that the file names, and a client that begins then knows only that.
fn every_replica_is_replaced<F: Family>() {
    let alone = Alone::<F>::new(unit(10, RTT), &[[0, 1, 2], [7, 8, 9]]);
    let mut play = Play::new(&Alone { spares: vec![3, 4, 5], ..alone });
    serves(&mut play, 6, "before");
    for (lost, spare) in [(1, 3), (0, 4), (2, 5)] {
        play.cluster.crash(NodeId(lost));
        play.run(SOME);
        play.change(0, Change::Add(NodeId(spare)));
        play.run(SOME);
        play.change(0, Change::Remove(NodeId(lost)));
        play.run(SOME);
        serves(&mut play, 6, &format!("without {lost}"));
    }
    for node in [6, 7] {
        play.cluster.crash(NodeId(node));
        play.cluster.restart(NodeId(node));
    }
    play.run(SOME);
    serves(&mut play, 6, "after");
}

#[test]
fn replicas_are_replaced_until_none_of_the_first_is_left() {
    every_replica_is_replaced::<twopc::Family>();
    every_replica_is_replaced::<Basic>();
    every_replica_is_replaced::<Fast>();
}

/// Of four members one is removed while a transaction is settled by the votes of it, of another and of the leader, which then
/// fails: of the three that are left, one alone remembers a vote.
fn settled_while_members_change(bug: Option<&'static str>) -> (Option<Outcome>, Option<String>) {
    let mut alone = Alone::<Fast>::new(unit(8, RTT), &[[5, 6, 7], [1, 2, 3]]);
    if bug.is_some() {
        alone.tune = |parameters: &mut Parameters| assert!(parameters.plant("change-ignored"));
    }
    let mut play = Play::new(&Alone { spares: vec![4], ..alone });
    play.change(1, Change::Add(NodeId(4)));
    play.run(SOME);
    serves(&mut play, 5, "before");
    play.run(SOME);
    // The vote of the newcomer comes late.
    play.connect(&[(4, 5)], false);
    let (txn, _) = play.begin(5, &[], from_ref(&key(1)));
    let ticket = play.commit(5, txn, &[(&key(1), "settled")]);
    play.run(Span::from_millis(2));
    play.change(1, Change::Remove(NodeId(2)));
    play.run(Span::from_millis(20));
    play.cluster.crash(NodeId(1));
    let told = play.answer(ticket).cloned();
    play.connect(&[(4, 5)], true);
    play.run(SOME * 2);
    (told, play.values(6, &[key(1)]).remove(0))
}

#[test]
fn what_votes_have_settled_is_not_lost_to_a_change_of_members() {
    let (told, value) = settled_while_members_change(None);
    assert!(told.is_none() || value.as_deref() == Some("settled"), "{told:?}: {value:?}");
    let (told, value) = settled_while_members_change(Some("change-ignored"));
    assert!(matches!(told, Some(Outcome::Committed { .. })) && value.as_deref() == Some("before"));
}

/// A follower is dead for good while hundreds commit: nothing of them stays open for it, and another takes its place.
#[test]
fn nothing_stays_open_for_a_follower_that_is_dead() {
    let alone = Alone::<twopc::Family>::new(unit(8, RTT), &[[0, 1, 2], [3, 4, 5]]);
    let mut play = Play::new(&Alone { spares: vec![7], ..alone });
    play.cluster.crash(NodeId(5));
    play.run(SOME);
    play.forgetting(500, "Forget");
    play.run(Span::from_secs(40));
    assert_eq!(play.said(Span::from_secs(30)), 0, "somebody waits for something");
    for change in [Change::Add(NodeId(7)), Change::Remove(NodeId(5))] {
        play.change(1, change);
        play.run(SOME);
    }
    // The one that is new is needed for a majority, and there is none if the dead one still counts.
    play.cluster.crash(NodeId(4));
    play.run(SOME);
    serves(&mut play, 6, "after");
}
