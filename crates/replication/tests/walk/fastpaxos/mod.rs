//! Orders of messages in a small world: three replicas, commands that reach them in any order, or only some
//! of them, one crash and a change of the coordinator.

mod table;

use crate::walk::explore;
use crate::world::{Letter, World};
use isochrone_core::Span;
use isochrone_replication::Tuning as _;
use isochrone_replication::fastpaxos::{Mutation, Order, Parameters};

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
