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
