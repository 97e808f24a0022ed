//! Orders of messages in a small world: three replicas, values at any of them, one crash and a revocation.

use crate::walk::explore;
use crate::world::{Letter, World};
use isochrone_core::Span;
use isochrone_replication::Tuning as _;
use isochrone_replication::mencius::{Mutation, Order, Parameters};

fn world(mutation: Option<Mutation>) -> World<Order<Letter>> {
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    (parameters.mutation, parameters.revoke_turns) = (mutation, 2);
    let mut world = World::new(3, parameters);
    world.values = vec![Letter::new(1, 0), Letter::new(2, 0)];
    world.timers = vec![0, 2, 1];
    world.crashes = 1;
    world
}

#[test]
fn no_order_of_messages_found_decides_a_slot_twice() {
    let (states, complete) = explore(&world(None), 100_000);
    println!("{states} states, {complete} walks in which all were given something");
    assert!(states > 10_000 && complete > 0);
}

#[test]
fn the_exploration_finds_what_is_wrong() {
    for mutation in [Mutation::RevokeBlindly, Mutation::RevokeWithoutAccept, Mutation::SuggestSkipped] {
        let world = world(Some(mutation));
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore(&world, 1_000_000)));
        assert!(found.is_err(), "{} was not found", mutation.name());
    }
}
