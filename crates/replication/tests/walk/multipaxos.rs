//! Orders of messages in a small world: three replicas, two commands, one crash and an election, in both forms.

use crate::model::{exhaust, finds};
use crate::walk::explore;
use crate::world::{Disks, Letter, World};
use isochrone_core::Span;
use isochrone_replication::Tuning as _;
use isochrone_replication::multipaxos::log::{Log, Message};
use isochrone_replication::multipaxos::{Form, Mutation, Parameters};

/// The first replica leads. Another may once look whether it is silent, at any time. Heartbeats are lost: what they tell
/// comes when all else is over.
fn small(form: Form, mutation: Option<Mutation>) -> World<Log<Letter>> {
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    (parameters.form, parameters.mutation, parameters.lease) = (form, mutation, false);
    let mut world = World::<Log<Letter>>::new(3, parameters);
    world.deliver();
    assert!(world.order(0).leads());
    world.one_clock = true;
    world.loses = |message| matches!(message, Message::Heartbeat { .. } | Message::Heard { .. });
    world.keep_order();
    world.asks(&[1, 2], &[0, 1]);
    let timers = vec![0, 1, 0];
    World { timers, ..world.restarted() }
}

/// Another leads, and two replicas have executed something.
fn elected(world: &World<Log<Letter>>) -> bool {
    world.order(1).leads() && world.given().iter().filter(|given| **given > 0).count() > 1
}

#[test]
fn every_order_of_a_leaders_crash_and_an_election_holds() {
    for form in [Form::Slots, Form::Prefix] {
        assert!(exhaust(&format!("multipaxos, {form:?}"), small(form, None), elected) > 100_000);
    }
}

#[test]
fn the_same_search_finds_what_is_wrong() {
    finds("apply-gap", small(Form::Slots, Some(Mutation::ApplyGap)));
}

/// What is too large to be seen whole: any replica crashes, two others may be elected.
fn large(form: Form, mutation: Option<Mutation>) -> World<Log<Letter>> {
    let mut world = small(form, mutation);
    (world.disks, world.mortals) = (Disks::Instant, vec![0, 1, 2]);
    (world.proposers, world.timers) = (vec![0, 1, 2], vec![0, 1, 1]);
    world
}

#[test]
fn no_order_of_messages_found_decides_a_slot_twice() {
    for form in [Form::Slots, Form::Prefix] {
        let (states, complete) = explore(&large(form, None), 200_000);
        println!("{form:?}: {states} states, {complete} walks in which all were given something");
        assert!(states > 10_000 && complete > 0);
    }
}

#[test]
fn the_exploration_finds_what_is_wrong() {
    for mutation in [Mutation::AdoptAny, Mutation::ForgetPromise] {
        let world = large(Form::Slots, Some(mutation));
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore(&world, 2_000_000)));
        assert!(found.is_err(), "{} was not found", mutation.name());
    }
}
