//! Orders of messages in a small world: three replicas, commands that reach them in any order, or only some
//! of them, one crash and a change of the coordinator.

mod table;

use crate::model::{exhaust, finds};
use crate::walk::explore;
use crate::world::{Letter, World};
use isochrone_core::Span;
use isochrone_replication::Tuning as _;
use isochrone_replication::fastpaxos::{Message, Mutation, Order, Parameters};
use isochrone_replication::order::Order as _;

fn world(mutation: Option<Mutation>) -> World<Order<Letter>> {
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    parameters.mutation = mutation;
    let mut world = World::new(3, parameters);
    // A client sends each to all; any replica may get any of the copies, first or last.
    world.values = [1, 2, 1, 2, 1, 2].map(|number| Letter::new(number, 0)).to_vec();
    world.timers = vec![1, 2, 1];
    world.crashes = 1;
    world
}

#[test]
fn no_order_of_messages_found_decides_an_index_twice() {
    let (states, complete) = explore(&world(None), 100_000);
    println!("{states} states, {complete} walks in which all were given something");
    assert!(states > 10_000 && complete > 0);
}

#[test]
fn the_exploration_finds_what_is_wrong() {
    for mutation in [Mutation::FastQuorumTooSmall, Mutation::AdoptAny] {
        let world = world(Some(mutation));
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore(&world, 1_000_000)));
        assert!(found.is_err(), "{} was not found", mutation.name());
    }
}

/// Which copies of commands clients have sent to which replica; the first coordinates. Another may once look whether it is
/// silent. Heartbeats are lost: what they tell comes when all else is over.
fn small(copies: [&[u8]; 3], mutation: Option<Mutation>) -> World<Order<Letter>> {
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    parameters.mutation = mutation;
    let mut world = World::new(3, parameters);
    world.deliver();
    (world.one_clock, world.timers) = (true, vec![0, 1, 0]);
    world.loses = |message| matches!(message, Message::Heartbeat { .. } | Message::Heard { .. });
    world.keep_order();
    let letters = |numbers: &&[u8]| numbers.iter().map(|number| Letter::new(*number, 0)).collect();
    world.copies = copies.iter().map(letters).collect();
    world.letters = world.copies.concat();
    world
}

/// Another coordinates, and two replicas have executed something.
fn moved(world: &World<Order<Letter>>) -> bool {
    world.order(1).leads() && world.given().iter().filter(|given| **given > 0).count() > 1
}

fn reigns_again(world: &World<Order<Letter>>) -> bool {
    world.crashes == 0 && world.order(0).leads() && world.given().iter().all(|given| *given > 0)
}

/// One command that reaches all.
const ONE: [&[u8]; 3] = [&[1], &[1], &[1]];
/// Two that collide.
const TWO: [&[u8]; 3] = [&[1], &[2], &[2]];

#[test]
fn every_order_of_a_coordinators_end_and_its_succession_holds() {
    assert!(exhaust("fastpaxos, gone, a collision", small(TWO, None).gone(), moved) > 10_000);
}

#[test]
#[ignore = "twenty seconds; docs/testing.md has the command"]
fn every_order_of_the_end_of_a_coordinator_who_is_taken_for_failed_before_holds() {
    let early = World { patient: false, ..small(ONE, None).gone() };
    assert!(exhaust("fastpaxos, gone", early, moved) > 100_000);
}

#[test]
fn every_order_of_a_restart_holds() {
    assert!(exhaust("fastpaxos, restarted", small(ONE, None).restarted(), reigns_again) > 10_000);
    assert!(exhaust("fastpaxos, restarted", small(TWO, None).restarted(), reigns_again) > 10_000);
}

#[test]
fn every_order_of_the_succession_of_one_who_lives_holds() {
    assert!(exhaust("fastpaxos, suspected", small(ONE, None).suspected(), moved) > 100_000);
}

#[test]
fn the_same_search_finds_what_is_wrong() {
    let too_small = small(TWO, Some(Mutation::FastQuorumTooSmall)).restarted();
    finds("fast-quorum-too-small", too_small);
    finds("adopt-any", small(TWO, Some(Mutation::AdoptAny)).gone());
}
