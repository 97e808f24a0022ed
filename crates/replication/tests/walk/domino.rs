//! Orders of messages in small worlds: three replicas whose clocks are set, copies of a client's requests that
//! reach them early, late or never, and what may then fail. Disks are slow: a crash loses what was not waited
//! for. Beside agreement, nobody may lose a place that a client was told of.

use crate::model::{exhaust, finds};
use crate::walk::explore_and_look;
use crate::world::{Disks, Letter, World};
use isochrone_core::{Quorums, Span};
use isochrone_replication::Tuning as _;
use isochrone_replication::domino::{Item, Learners, Message, Mutation, Order, Parameters, Place};
use isochrone_replication::order::Order as _;
use isochrone_replication::service::Reply;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type Small = World<Order<Letter>>;

const CLIENT: usize = 9;
const MS: u64 = 1_000_000;
/// Time passes in steps of this length; who is silent for two of them is taken for failed.
const STEP: u64 = 300;

fn parameters() -> Parameters {
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    parameters.suspect = Span::from_millis(STEP * 2);
    parameters.resend = Span::from_millis(STEP);
    parameters.reserve = Span::from_millis(STEP / 3);
    parameters.revoke = Span::from_millis(STEP * 2);
    parameters.margin = Span::from_millis(50);
    parameters.reply = Reply::Commit;
    parameters
}

/// A world in which everybody knows everybody's clock, and nothing is on its way.
fn world(tune: impl FnOnce(&mut Parameters)) -> Small {
    world_of(3, tune)
}

fn world_of(replicas: usize, tune: impl FnOnce(&mut Parameters)) -> Small {
    let mut parameters = parameters();
    tune(&mut parameters);
    let mut world = World::with_hour(replicas, parameters, Span::from_millis(STEP));
    world.keep = |message| matches!(message, Message::Voted { .. } | Message::Committed { .. });
    world.watch = keeps_its_word;
    world.deliver();
    world.settle(4);
    world.disks = Disks::Slow;
    world
}

impl Request for Small {}

/// What clients send.
trait Request {
    fn fast(world: &mut Small, to: impl IntoIterator<Item = usize>, ahead: u64, number: u8) {
        let at = world.wall(0) + ahead * MS;
        for to in to {
            world.send(to, CLIENT, Message::Propose { values: vec![(at, Letter::new(number, 0))] });
        }
    }

    fn led(world: &mut Small, to: usize, number: u8) {
        let values = vec![Letter::new(number, 0)];
        world.send(to, CLIENT, Message::ProposeLed { above: 0, values });
    }

    /// A replica is told to coordinate the fast lane.
    fn campaign(world: &mut Small, seat: usize) {
        let items: Arc<[Item<Letter>]> = Arc::from([Item::Campaign]);
        world.send(seat, seat, Message::Own { items });
    }
}

fn position(world: &Small, place: Place) -> u64 {
    place.at * (world.replicas() as u64 + 1) + u64::from(place.lane)
}

/// A place that a client was told of, by a supermajority's votes of one epoch or by a leader, is not lost:
/// whoever has executed all before it and itself has executed the command there.
fn keeps_its_word(world: &Small) {
    let done = world.orders().map(|order| order.position()).max().unwrap_or_default();
    let holds = |place: Place, number: u64| world.at(position(world, place)) == u8::try_from(number).ok();
    let mut votes: BTreeMap<(u32, u64, u64), BTreeSet<usize>> = BTreeMap::new();
    for (from, message) in &world.told {
        match message {
            Message::Voted { epoch, votes: cast, .. } => {
                for (at, number) in cast {
                    votes.entry((*epoch, *at, *number)).or_default().insert(*from);
                }
            }
            Message::Committed { places, .. } => {
                for (number, at) in places {
                    let lanes = [0, *from as u8 + 1].map(|lane| Place { at: *at, lane });
                    let past = lanes.iter().all(|place| *place < done);
                    assert!(
                        !past || lanes.iter().any(|place| holds(*place, *number)),
                        "{number} was committed at {at} and is not there"
                    );
                }
            }
            _ => {}
        }
    }
    for ((epoch, at, number), voters) in votes {
        let place = Place { at, lane: 0 };
        if voters.len() >= Quorums::supermajority(world.replicas()) && place < done {
            assert!(
                holds(place, number),
                "a supermajority has voted for {number} at {at} in epoch {epoch}, and it is not there"
            );
        }
    }
}

/// What walks have shown.
#[derive(Default, Debug)]
struct Seen {
    walks: usize,
    /// A later epoch was open somewhere.
    failovers: usize,
    /// A lane was closed ahead of every clock.
    revocations: usize,
    /// Everybody has executed something.
    complete: usize,
    /// A client was told of a place.
    told: usize,
}

fn walk(world: &Small, bound: usize) -> (usize, Seen) {
    let mut seen = Seen::default();
    let states = explore_and_look(world, bound, |world| {
        let orders: Vec<_> = world.orders().collect();
        let latest = (0..orders.len()).map(|node| world.wall(node)).max().unwrap_or(0);
        let ahead = |order: &&Order<Letter>| order.frontiers()[1..].iter().any(|at| *at > latest + STEP * MS);
        seen.walks += 1;
        seen.failovers += usize::from(orders.iter().any(|order| order.epoch() > (0, true)));
        seen.revocations += usize::from(orders.iter().any(ahead));
        seen.complete += usize::from(world.given().iter().all(|count| *count > 0));
        seen.told += usize::from(!world.told.is_empty());
    });
    println!("{states} states, {seen:?}");
    (states, seen)
}

/// Two requests for one stamp, one of which reaches two replicas only, and two through leaders; time passes
/// everywhere, the coordinator least.
fn failover(mutation: Option<Mutation>, learners: Learners) -> Small {
    let mut world = world(|parameters| {
        (parameters.mutation, parameters.learners) = (mutation, learners);
    });
    Small::fast(&mut world, 0..3, STEP / 2, 1);
    Small::fast(&mut world, 1..3, STEP / 2, 2);
    // Behind all that an epoch begins with.
    Small::fast(&mut world, 0..3, STEP * 4, 3);
    world.timers = vec![1, 4, 3];
    world
}

/// Five replicas, of which one alone gets a request in time and the others pass its stamp; the coordinator is
/// silent. Four no-ops are a choice, of which three replicas may show two.
fn five(mutation: Option<Mutation>) -> Small {
    let mut world = world_of(5, |parameters| parameters.mutation = mutation);
    Small::fast(&mut world, [4], STEP / 2, 1);
    world.timers = vec![1, 4, 2, 2, 1];
    world
}

/// Two replicas are told to coordinate, while requests are on the way.
fn contenders(mutation: Option<Mutation>) -> Small {
    let mut world = world(|parameters| parameters.mutation = mutation);
    Small::fast(&mut world, 0..3, STEP / 2, 1);
    Small::fast(&mut world, 0..3, STEP, 2);
    Small::campaign(&mut world, 1);
    Small::campaign(&mut world, 2);
    world.timers = vec![1, 1, 1];
    world
}

/// The owner of a lane proposes, and is silent for the others, which close its lane; it lives all the same.
fn revocation(mutation: Option<Mutation>) -> Small {
    let mut world = world(|parameters| parameters.mutation = mutation);
    Small::led(&mut world, 2, 1);
    Small::led(&mut world, 2, 2);
    Small::led(&mut world, 1, 3);
    world.timers = vec![4, 4, 1];
    world
}

/// The same, and a replica crashes once, the owner among them, and comes back with part of its last records.
fn restart(mutation: Option<Mutation>) -> Small {
    let mut world = revocation(mutation);
    Small::fast(&mut world, 0..3, STEP / 2, 4);
    world.crashes = 1;
    world
}

/// Little is kept for others, links hold little, clocks are followed closely, messages are lost and two
/// replicas crash.
fn harsh() -> Small {
    let mut world = world(|parameters| {
        (parameters.keep_commands, parameters.link_messages) = (1, 2);
        parameters.lag_max = Span::from_millis(STEP / 3);
    });
    Small::fast(&mut world, 0..3, STEP / 2, 1);
    Small::fast(&mut world, 1..3, STEP / 2, 2);
    Small::fast(&mut world, [0, 2], STEP * 4, 3);
    Small::led(&mut world, 2, 4);
    Small::led(&mut world, 1, 5);
    world.timers = vec![2, 5, 3];
    (world.crashes, world.losses) = (2, 3);
    world
}

#[test]
fn no_order_of_messages_found_breaks_a_failover_of_the_coordinator() {
    for learners in [Learners::All, Learners::Sole] {
        let (states, seen) = walk(&failover(None, learners), 12_000);
        assert!(states >= 10_000 && seen.failovers > 0 && seen.complete > 0 && seen.told > 0);
    }
    let (states, seen) = walk(&five(None), 12_000);
    assert!(states >= 10_000 && seen.failovers > 0 && seen.told > 0);
    let (states, seen) = walk(&contenders(None), 12_000);
    assert!(states >= 10_000 && seen.failovers > 0 && seen.told > 0);
}

#[test]
fn no_order_of_messages_found_breaks_a_revocation() {
    let (states, seen) = walk(&revocation(None), 20_000);
    assert!(states >= 10_000 && seen.revocations > 0 && seen.complete > 0 && seen.told > 0);
}

#[test]
fn no_order_of_messages_found_breaks_a_restart_that_has_lost_what_was_not_durable() {
    let (states, seen) = walk(&restart(None), 20_000);
    assert!(states >= 10_000 && seen.revocations > 0 && seen.failovers > 0 && seen.told > 0);
}

/// Commands that everyone takes for too early in its own clock go no further than to one other replica.
#[test]
fn no_order_of_messages_found_sets_off_a_storm() {
    let (states, seen) = walk(&harsh(), 40_000);
    assert!(states >= 10_000 && seen.revocations > 0 && seen.failovers > 0 && seen.complete > 0);
}

#[test]
fn the_exploration_finds_what_is_wrong() {
    let worlds = [
        (Mutation::ExecuteEarly, revocation(Some(Mutation::ExecuteEarly))),
        (Mutation::ClockBeforeVote, failover(Some(Mutation::ClockBeforeVote), Learners::All)),
        (Mutation::ProposeInSealed, revocation(Some(Mutation::ProposeInSealed))),
        (Mutation::HighThreshold, five(Some(Mutation::HighThreshold))),
        (Mutation::ProposeTwice, failover(Some(Mutation::ProposeTwice), Learners::All)),
        (Mutation::VoteBeforeDurable, restart(Some(Mutation::VoteBeforeDurable))),
    ];
    for (mutation, world) in worlds {
        let found = catch_unwind(AssertUnwindSafe(|| walk(&world, 200_000)));
        assert!(found.is_err(), "{} was not found", mutation.name());
    }
}

/// A small world that is seen whole. Nobody's timer fires: whoever is to coordinate in the place of the first replica is
/// told so. One replica's clock is every one's.
fn small(mutation: Option<Mutation>, learners: Learners) -> Small {
    let mut parameters = parameters();
    (parameters.mutation, parameters.learners) = (mutation, learners);
    let mut world = World::with_hour(3, parameters, Span::from_millis(STEP));
    world.keep = |message| matches!(message, Message::Voted { .. } | Message::Committed { .. });
    (world.watch, world.one_clock) = (keeps_its_word, true);
    world.deliver();
    world.settle(2);
    world.timers.fill(0);
    world.letters = vec![Letter::new(1, 0)];
    world
}

/// A request for all is on its way while others are told to coordinate.
fn contested(heirs: &[usize], learners: Learners, mutation: Option<Mutation>) -> Small {
    let mut world = small(mutation, learners);
    Small::fast(&mut world, 0..3, STEP / 2, 1);
    heirs.iter().for_each(|heir| Small::campaign(&mut world, *heir));
    world
}

/// A request for the lane of the first replica.
fn led(mutation: Option<Mutation>) -> Small {
    let mut world = small(mutation, Learners::Sole);
    Small::led(&mut world, 0, 1);
    world
}

/// Another epoch is open, and a client was told of a vote or a commit.
fn moved(world: &Small) -> bool {
    !world.told.is_empty() && world.orders().any(|order| order.epoch() > (0, true))
}

#[test]
fn every_order_of_a_coordinators_end_and_its_succession_holds() {
    let two = contested(&[1, 2], Learners::Sole, None).gone();
    assert!(exhaust("domino, gone, two heirs", two, moved) > 10_000);
    let one = contested(&[1], Learners::All, None).gone();
    assert!(exhaust("domino, gone, all learn", one, moved) > 1_000);
}

/// Who was restarted opens another epoch.
#[test]
fn every_order_of_a_restart_holds() {
    assert!(exhaust("domino, restarted, led", led(None).restarted(), moved) > 10_000);
}

#[test]
#[ignore = "half a minute; docs/testing.md has the command"]
fn every_order_of_a_restart_beside_a_fast_request_holds() {
    let fast = contested(&[], Learners::Sole, None).restarted();
    assert!(exhaust("domino, restarted", fast, moved) > 100_000);
}

#[test]
fn every_order_of_the_succession_of_one_who_lives_holds() {
    let two = contested(&[1, 2], Learners::Sole, None).suspected();
    assert!(exhaust("domino, suspected, two heirs", two, moved) > 10_000);
    let one = contested(&[1], Learners::All, None).suspected();
    assert!(exhaust("domino, suspected, all learn", one, moved) > 1_000);
}

#[test]
fn the_same_search_finds_what_is_wrong() {
    let early = Some(Mutation::VoteBeforeDurable);
    finds("vote-before-durable", contested(&[1, 2], Learners::Sole, early).gone());
}
