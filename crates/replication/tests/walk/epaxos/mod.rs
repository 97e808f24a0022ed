//! Orders of messages, timers and crashes in a small world.

mod recovery;

use crate::model::{exhaust, finds};
use crate::walk::explore;
use crate::world::{Letter, World};
use isochrone_core::Span;
use isochrone_replication::Tuning as _;
use isochrone_replication::epaxos::{Message, Mutation, Order, Parameters, Record};

/// Who is silent for an hour is suspected; a beat an hour behind the last is not so late that its replica stood still.
fn hourly(replicas: usize, tune: impl FnOnce(&mut Parameters)) -> World<Order<Letter>> {
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    tune(&mut parameters);
    parameters.heartbeat = parameters.patience * 3 / 5;
    World::with_hour(replicas, parameters, parameters.patience)
}

fn world(replicas: usize, mutation: Option<Mutation>, delegate: bool) -> World<Order<Letter>> {
    let mut world = hourly(replicas, |parameters| {
        (parameters.mutation, parameters.delegate) = (mutation, delegate);
    });
    world.values = vec![Letter::new(1, 0), Letter::new(2, 0)];
    world.timers = vec![3; replicas];
    world
}

#[test]
fn no_order_of_messages_found_breaks_the_order_of_execution() {
    for delegate in [false, true] {
        let mut world = world(3, None, delegate);
        world.crashes = 1;
        let (states, complete) = explore(&world, 200_000);
        println!("delegate {delegate}: {states} states, {complete} complete");
        assert!(states > 10_000 && complete > 100);
    }
}

/// The first replica's command, or another's as well, which interferes. The second may once suspect everybody, and recover
/// what it knows to be open. Heartbeats are lost: what they tell comes when all else is over.
fn small(leaders: &[usize], thrifty: bool, mutation: Option<Mutation>) -> World<Order<Letter>> {
    let mut world = hourly(3, |parameters| {
        (parameters.mutation, parameters.delegate, parameters.thrifty) = (mutation, false, thrifty);
    });
    world.deliver();
    (world.one_clock, world.together, world.timers) = (true, true, vec![0, 1, 0]);
    world.loses = |message| matches!(message, Message::Heartbeat { .. } | Message::Heard { .. });
    world.asks(&[1, 2][..leaders.len()], leaders);
    world
}

/// Links keep order.
fn in_order(mut world: World<Order<Letter>>) -> World<Order<Letter>> {
    world.keep_order();
    world
}

fn recovered(world: &World<Order<Letter>>) -> bool {
    let recovers = |record: &Record<Letter>| matches!(record, Record::Promised { .. });
    world.records(1).iter().any(recovers) && world.given().iter().filter(|given| **given > 0).count() > 1
}

fn all_given(world: &World<Order<Letter>>) -> bool {
    world.crashes == 0 && world.given().iter().all(|given| *given == 2)
}

#[test]
fn every_order_of_a_leaders_end_and_the_recovery_of_its_command_holds() {
    let world = in_order(small(&[0, 2], true, None)).gone();
    assert!(exhaust("epaxos, gone, thrifty", world, recovered) > 5_000);
}

#[test]
#[ignore = "half a minute; docs/testing.md has the command"]
fn every_order_of_a_leaders_end_holds_where_all_are_asked() {
    let world = in_order(small(&[0, 2], false, None)).gone();
    assert!(exhaust("epaxos, gone", world, recovered) > 5_000);
}

#[test]
fn every_order_of_a_restart_holds() {
    for thrifty in [false, true] {
        let world = in_order(small(&[0, 2], thrifty, None)).restarted();
        let states = exhaust(&format!("epaxos, restarted, thrifty {thrifty}"), world, all_given);
        assert!(states > 1_000);
    }
}

#[test]
fn every_order_of_the_recovery_from_one_who_lives_holds() {
    for thrifty in [false, true] {
        let world = small(&[0], thrifty, None).suspected();
        let states = exhaust(&format!("epaxos, suspected, thrifty {thrifty}"), world, recovered);
        assert!(states > 1_000);
    }
    let world = in_order(small(&[0, 2], true, None)).suspected();
    assert!(exhaust("epaxos, suspected, two commands, thrifty", world, recovered) > 10_000);
}

#[test]
fn the_same_search_finds_what_is_wrong() {
    let published = small(&[0, 2], false, Some(Mutation::PublishedRecovery));
    finds("published-recovery", in_order(published).gone());
}
