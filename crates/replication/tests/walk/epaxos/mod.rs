//! Orders of messages, timers and crashes in a small world.

mod recovery;

use crate::walk::explore;
use crate::world::{Letter, World};
use isochrone_core::Span;
use isochrone_replication::Tuning as _;
use isochrone_replication::epaxos::{Mutation, Order, Parameters};

fn world(replicas: usize, mutation: Option<Mutation>, delegate: bool) -> World<Order<Letter>> {
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    (parameters.mutation, parameters.delegate) = (mutation, delegate);
    let mut world = World::new(replicas, parameters);
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
