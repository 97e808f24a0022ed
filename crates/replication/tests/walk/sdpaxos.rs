//! Orders of messages in a small world: three replicas, values at any of them, one crash and a view change.

use crate::model::{exhaust, finds};
use crate::walk::explore;
use crate::world::{Letter, World};
use isochrone_core::Span;
use isochrone_replication::Tuning as _;
use isochrone_replication::order::Order as _;
use isochrone_replication::sdpaxos::{Message, Mutation, Order, Parameters};

fn world(mutation: Option<Mutation>) -> World<Order<Letter>> {
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    (parameters.mutation, parameters.lease) = (mutation, false);
    let mut world = World::new(3, parameters);
    world.values = vec![Letter::new(1, 0), Letter::new(2, 0)];
    world.timers = vec![1, 3, 1];
    world.crashes = 1;
    world
}

#[test]
fn no_order_of_messages_found_decides_a_slot_twice() {
    let (states, complete) = explore(&world(None), 100_000);
    println!("{states} states, {complete} walks in which all were given something");
    assert!(states > 10_000 && complete > 0);
}

/// Commands of these leaders; the first replica is the sequencer. Another may once look whether it is silent. Signs of life
/// are lost: what they tell comes when all else is over.
fn small(numbers: &[u8], leaders: &[usize], mutation: Option<Mutation>) -> World<Order<Letter>> {
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    (parameters.mutation, parameters.lease) = (mutation, false);
    let mut world = World::new(3, parameters);
    world.deliver();
    (world.one_clock, world.timers) = (true, vec![0, 0, 1]);
    world.loses = |message| matches!(message, Message::Beat { .. });
    world.keep_order();
    world.asks(numbers, leaders);
    world
}

/// Another is the sequencer, and two replicas have executed something.
fn moved(world: &World<Order<Letter>>) -> bool {
    world.order(2).leads() && world.given().iter().filter(|given| **given > 0).count() > 1
}

#[test]
fn every_order_of_a_sequencers_end_and_its_succession_holds() {
    assert!(exhaust("sdpaxos, gone", small(&[1, 2], &[0, 1], None).gone(), moved) > 100_000);
}

#[test]
fn every_order_of_a_restart_holds() {
    let restarted =
        |world: &World<Order<Letter>>| world.crashes == 0 && world.given().iter().all(|given| *given > 0);
    assert!(exhaust("sdpaxos, restarted", small(&[1, 2], &[0], None).restarted(), restarted) > 1_000);
}

#[test]
fn every_order_of_the_succession_of_one_who_lives_holds() {
    assert!(exhaust("sdpaxos, suspected", small(&[1], &[1], None).suspected(), moved) > 50_000);
}

#[test]
fn the_same_search_finds_what_is_wrong() {
    // The slot that is one too many waits for a command for ever.
    finds("count-duplicate-request", small(&[1, 2], &[0, 1], Some(Mutation::CountDuplicateRequest)).gone());
}
