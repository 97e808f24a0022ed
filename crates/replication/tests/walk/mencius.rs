//! Orders of messages in a small world: three replicas, values at any of them, one crash and a revocation.

use crate::model::{exhaust, finds};
use crate::walk::explore;
use crate::world::{Letter, World};
use isochrone_core::Span;
use isochrone_replication::Tuning as _;
use isochrone_replication::mencius::{Message, Mutation, Order, Parameters, Record};

/// Who is silent for an hour is suspected; a beat an hour behind the last is not so late that its replica stood still.
const HOUR: Span = Span::from_secs(1);

fn hourly(mutation: Option<Mutation>) -> World<Order<Letter>> {
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    (parameters.mutation, parameters.revoke_turns) = (mutation, 2);
    (parameters.patience, parameters.heartbeat) = (HOUR, Span::from_millis(600));
    World::with_hour(3, parameters, HOUR)
}

fn world(mutation: Option<Mutation>) -> World<Order<Letter>> {
    let mut world = hourly(mutation);
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

/// Commands of these owners. The heir of the first owner may once look who is silent. Heartbeats are lost: what they tell
/// comes when all else is over.
fn small(owners: &[usize], mutation: Option<Mutation>) -> World<Order<Letter>> {
    let mut world = hourly(mutation);
    world.deliver();
    (world.one_clock, world.timers) = (true, vec![0, 1, 0]);
    world.loses = |message| matches!(message, Message::Beat { .. });
    world.keep_order();
    world.asks(&[1, 2][..owners.len()], owners);
    world
}

/// The first owner's turns were revoked, and two replicas have executed something.
fn revoked(world: &World<Order<Letter>>) -> bool {
    let adopted =
        |record: &Record<Letter>| matches!(record, Record::Adopted { ballot, .. } if ballot.owner.0 == 1);
    world.records(2).iter().any(adopted) && world.given().iter().filter(|given| **given > 0).count() > 1
}

/// The first owner has come back, and has settled what it may have suggested before.
fn reclaimed(world: &World<Order<Letter>>) -> bool {
    let adopted =
        |record: &Record<Letter>| matches!(record, Record::Adopted { ballot, .. } if ballot.owner.0 == 0);
    world.crashes == 0 && world.records(2).iter().any(adopted) && world.given().iter().all(|given| *given > 0)
}

#[test]
fn every_order_of_an_owners_end_and_its_revocation_holds() {
    assert!(exhaust("mencius, gone", small(&[0, 1], None).gone(), revoked) > 100_000);
}

#[test]
fn every_order_of_a_restart_holds() {
    assert!(exhaust("mencius, restarted", small(&[0, 1], None).restarted(), reclaimed) > 100_000);
}

#[test]
fn every_order_of_the_revocation_of_one_who_lives_holds() {
    assert!(exhaust("mencius, suspected", small(&[0], None).suspected(), revoked) > 100_000);
}

#[test]
fn the_same_search_finds_what_is_wrong() {
    for mutation in [Mutation::RevokeBlindly, Mutation::ReuseTurns, Mutation::SuggestSkipped] {
        finds(mutation.name(), small(&[0, 1], Some(mutation)).gone());
    }
}
