//! What is lost in a crash, and on a link: votes, clocks and reserves at every step, and messages of which the
//! client has seen more than the coordinator (`specs/domino.md` 8, S12 and S14).

use super::*;

fn world(learners: Learners) -> World {
    let mut world = World::new(3, |parameters| {
        parameters.heartbeat = Span::from_millis(20);
        parameters.reserve = Span::from_millis(50);
        parameters.learners = learners;
    });
    world.pass(1_000);
    world
}

/// Requests both ways while a replica stops after so many effects; false where it has not come to that.
fn crash_after(node: usize, effects: usize, learners: Learners) -> bool {
    let mut world = world(learners);
    world.fuse = Some((node, effects));
    let at = world.wall() + 50 * MS;
    world.propose(at, 1);
    world.lead(node, 2);
    world.deliver();
    world.pass(20);
    world.propose_to([node, 1], at + 1, 3);
    world.lead(1, 4);
    world.deliver();
    world.pass(80);
    let stopped = world.down == Some(node);
    // It comes back with a wall clock that is behind all that it has announced.
    world.wrong = -500;
    world.restart_one(node);
    world.pass(200);
    // A stamp that its former life may have closed.
    world.propose_to([node], at + 2, 5);
    world.pass(4_000);
    world.agrees(&[1, 4]);
    stopped
}

#[test]
fn a_crash_between_any_two_effects_takes_back_nothing_that_was_said() {
    for (node, learners) in [(0, Learners::All), (0, Learners::Sole), (2, Learners::All)] {
        let stops = (0..).take_while(|effects| crash_after(node, *effects, learners)).count();
        assert!(stops > 40, "{stops} steps");
    }
}

/// The published flaw (`flaws.md`, stray votes): each replica votes and crashes before the next one votes, so
/// a client counts a supermajority of which nobody is left. How many replicas have executed the request.
fn stray_votes(durable: bool) -> usize {
    let mut world = world(Learners::All);
    let at = world.wall() + 200 * MS;
    for node in [1, 2, 0] {
        world.propose_to([node], at, 7);
        if !durable {
            // Without waiting for the disk, a power loss leaves nothing of it.
            world.records[node].clear();
        }
        world.network.clear();
        world.reopen(node);
        world.act(node, |order, effects| order.start(effects));
    }
    assert_eq!(world.voted, [(1, 7), (2, 7), (0, 7)], "its client was told of all");
    world.pass(5_000);
    world.executed.iter().filter(|executed| executed.contains(&7)).count()
}

#[test]
fn votes_that_were_counted_are_lost_only_where_they_were_not_durable() {
    assert_eq!(stray_votes(true), 3);
    assert_eq!(stray_votes(false), 0, "what fsync = \"off\" risks");
}

/// All replicas have voted for a request and its client knows it; the coordinator lacks a vote, and then
/// something happens. The request keeps its place.
fn unheard(learners: Learners, then: impl FnOnce(&mut World)) {
    let mut world = world(learners);
    let at = world.wall() + 50 * MS;
    world.lost = vec![(2, 0)];
    world.propose(at, 7);
    assert_eq!(world.voted, [(0, 7), (1, 7), (2, 7)], "its client was told of all");
    then(&mut world);
    world.pass(5_000);
    assert_eq!(world.places.get(&world.position(at, 0)), Some(&7), "it is where its client knows it to be");
    assert!(world.executed.iter().any(|executed| executed == &[7]));
}

#[test]
fn no_clock_overtakes_a_vote_that_was_lost_on_its_way() {
    for learners in [Learners::All, Learners::Sole] {
        // The connection is made anew.
        unheard(learners, |world| {
            world.pass(200);
            world.lost.clear();
        });
        // It was away for so long that its session is given up.
        unheard(learners, |world| {
            world.pass(3_000);
            world.lost.clear();
        });
        // The voter restarts.
        unheard(learners, |world| {
            world.lost.clear();
            world.restart_one(2);
        });
        // The coordinator restarts.
        unheard(learners, |world| {
            world.lost.clear();
            world.restart_one(0);
        });
        // Both do.
        unheard(learners, |world| {
            world.pass(40);
            world.lost.clear();
            world.restart();
        });
        // The voter is gone for good.
        unheard(learners, |world| world.cut = Some(2));
        // The coordinator is.
        unheard(learners, |world| world.cut = Some(0));
    }
}

/// A turn is that of one whose clock is so far behind.
fn late(world: &mut World, ms: u64, turn: impl FnOnce(&mut World)) {
    world.time -= ms;
    turn(world);
    world.time += ms;
}

/// The fifth of five is behind: in one turn it votes for a request and promises an epoch that never opens, and restarts.
/// The others have chosen a no-op there, and two of them know it. Then one coordinates that hears two no-ops and the vote.
#[test]
fn a_vote_is_one_of_the_epoch_that_it_was_given_in_after_a_restart() {
    let mut world = World::new(5, |_| {});
    world.pass(1_000);
    let at = world.wall() + 5 * MS;
    world.down = Some(4);
    world.lost = (0..5).flat_map(|from| [(from, 2), (from, 3)]).filter(|(from, to)| from != to).collect();
    world.pass(60);
    let passed: Vec<bool> = world.orders.iter().map(|order| order.frontiers()[0] > at).collect();
    assert_eq!(passed, [true, true, false, false, false]);
    world.lost.clear();
    world.down = None;
    world.sever([0, 1, 4], 0..5);
    late(&mut world, 60, |world| {
        world.act(4, |order, effects| {
            let request = Message::Propose { values: vec![(at, Word(7))] };
            order.receive(process(9), request, effects);
            order.handle(1, Item::Prepare { epoch: 1, from: 0 }, effects);
        });
    });
    assert_eq!((world.orders[4].epoch(), &world.voted[..]), ((1, false), &[(4, 7)][..]));
    world.restart_one(4);
    world.lost.clear();
    world.coordinates_without([0, 1], 2, 2);
    world.agrees(&[7]);
    assert_eq!(world.places.get(&world.position(at, 0)), None, "the request has another place");
}

/// The third of three is behind: in one turn it votes for a request and for a round of no-ops over it, by which these are
/// decided, and restarts. Then the second coordinates, which has not heard of the round.
#[test]
fn a_vote_lies_under_the_round_that_came_after_it_after_a_restart() {
    let mut world = World::new(3, |_| {});
    world.pass(1_000);
    world.down = Some(2);
    world.pass(600);
    assert!(world.orders[0].suspected(2), "two of three: the coordinator goes on by rounds");
    let at = world.wall() + 5 * MS;
    world.lost = vec![(0, 1)];
    world.pass(60);
    let rounds = world.records[0].iter().filter_map(|record| match record {
        Record::Recovered(round) if world.orders[0].frontiers()[0] <= round.ranges[0].1 => {
            Some(round.clone())
        }
        _ => None,
    });
    let rounds: Vec<_> = rounds.collect();
    assert!(rounds.iter().any(|round| proposes(round, at)), "one of them passes the stamp");
    world.down = None;
    late(&mut world, 660, |world| {
        world.act(2, |order, effects| {
            let request = Message::Propose { values: vec![(at, Word(7))] };
            order.receive(process(9), request, effects);
            rounds.into_iter().for_each(|round| order.handle(0, Item::Recover(round), effects));
        });
    });
    world.carry(&[(2, 0)]);
    assert!(world.orders[0].frontiers()[0] > at, "decided");
    world.restart_one(2);
    world.coordinates_without([0], 1, 1);
    world.agrees(&[]);
    assert_eq!((world.voted.len(), &world.executed[0]), (1, &vec![]), "the no-op stays");
}

/// A proposal of the fifth comes late to two, in one turn with the revoker's question and block, by which it is decided; they
/// restart. Then one revokes that hears of nobody else who has voted for the block.
#[test]
fn a_vote_lies_under_the_block_that_came_after_it_after_a_restart() {
    let mut world = World::new(5, |_| {});
    world.pass(1_000);
    let (until, now) = (world.wall() + 800 * MS, Instant::from_nanos(world.time * MS));
    world.lead(4, 7);
    world.carry(&[(4, 4), (4, 0)]);
    world.act(1, |order, _| order.revoke(4, until, now));
    for ways in [&[(1, 1)][..], &[(1, 0), (1, 4)], &[(0, 1), (4, 1)], &[(1, 1)]] {
        world.carry(ways);
    }
    for node in [2, 3] {
        world.at_once(node, None, &[4, 1]);
    }
    world.carry(&[(2, 1), (3, 1)]);
    let at = world.orders[1].tracks[5].commands.first_key_value().map(|(at, _)| *at);
    let at = at.expect("the second has decided the proposal");
    world.network.clear();
    world.sever([1, 4], 0..5);
    world.restart_one(2);
    world.restart_one(3);
    let now = Instant::from_nanos(world.time * MS);
    world.act(2, |order, _| order.revoke(4, until, now));
    while world.orders[2].frontiers()[5] <= at {
        assert!(world.time < 10_000, "the third revokes");
        world.pass(10);
    }
    world.lost.clear();
    world.pass(5_000);
    world.agrees(&[7]);
    assert_eq!(world.places.get(&world.position(at, 5)), Some(&7), "where it was decided");
}
