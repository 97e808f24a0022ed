//! A new coordinator is obliged to the highest ballot of those that it hears of (`specs/domino.md` 4.4, I8).

use super::*;

/// The first replica alone votes for a request. It is not heard, so the second opens an epoch without it, in which the
/// third votes for a no-op there and does not hear that this is decided. Then the third coordinates, with the first,
/// which still has its vote, while the second is away.
fn a_vote_of_an_old_epoch_comes_back(mutation: Option<Mutation>) -> World {
    let mut world = World::new(3, |parameters| parameters.mutation = mutation);
    world.pass(1_000);
    let at = world.wall() + 5 * MS;
    world.cut = Some(0);
    world.propose_to([0], at, 7);
    world.act(1, |order, effects| order.campaign(effects));
    while world.orders[2].epoch() != (1, true) {
        assert!(world.deliver_one(), "the second coordinates");
    }
    world.lost = vec![(1, 2)];
    world.deliver();
    assert!(world.orders[1].frontiers()[0] > at, "it has decided a no-op there");
    assert!(world.orders[2].frontiers()[0] <= at, "and the third has not heard of it");
    (world.cut, world.lost) = (Some(1), Vec::new());
    world.act(2, |order, effects| order.campaign(effects));
    // What was lost is sent again by the beats.
    while world.orders[0].epoch() != (2, true) {
        assert!(world.time < 10_000, "the third coordinates");
        world.pass(10);
    }
    world.cut = None;
    world.pass(5_000);
    world
}

/// One of five votes for a request whose stamp passes at the others: their no-ops are chosen, and nobody hears of it.
/// Then one coordinates that hears two no-ops and the vote.
#[test]
fn a_new_coordinator_keeps_the_noop_that_was_chosen_though_it_hears_of_a_request() {
    let mut world = World::new(5, |_| {});
    world.pass(1_000);
    let at = world.wall() + 5 * MS;
    world.lost =
        (0..5).flat_map(|from| (0..5).filter(move |to| *to != from).map(move |to| (from, to))).collect();
    world.propose_to([4], at, 7);
    world.deliver();
    world.pass(60);
    assert!(world.orders.iter().all(|order| order.frontiers()[0] <= at), "nobody knows");
    (world.cut, world.lost) = (Some(0), vec![(3, 1)]);
    world.act(1, |order, effects| order.campaign(effects));
    while world.orders[1].epoch() != (1, true) {
        assert!(world.time < 10_000, "the second coordinates");
        world.pass(10);
    }
    (world.cut, world.lost) = (None, Vec::new());
    world.pass(5_000);
    world.agrees(&[7]);
    assert_eq!(world.places.get(&world.position(at, 0)), None, "the request has another place");
}

#[test]
fn a_new_coordinator_takes_the_value_of_the_highest_ballot() {
    let world = a_vote_of_an_old_epoch_comes_back(None);
    world.agrees(&[7]);
    let wrong = a_vote_of_an_old_epoch_comes_back(Some(Mutation::AdoptAny));
    let places = [&wrong.executed[0], &wrong.executed[1], &wrong.executed[2]];
    assert!(places[1] != places[2], "the second has a no-op where the others have the request: {places:?}");
}

/// A request far ahead reaches the fourth in epoch 0 and the fifth in epoch 1, which begins before its stamp and without
/// their votes. The clock of the fourth passes the stamp, so the first hears of four no-ops. Then one coordinates that
/// hears of one of these, the vote of the fifth, and the fourth, which has both a vote and the no-op of a later epoch.
#[test]
fn a_vote_of_an_earlier_epoch_hides_no_noop_of_a_later_one() {
    let mut world = World::new(5, |_| {});
    world.pass(1_000);
    let at = world.wall() + 300 * MS;
    world.sever([3, 4], 0..5);
    world.propose_to([3], at, 7);
    world.act(1, |order, effects| order.campaign(effects));
    world.deliver();
    world.lost.clear();
    while world.wall() + 20 * MS < at {
        world.pass(10);
    }
    assert!(world.orders.iter().all(|order| order.epoch() == (1, true)), "before its stamp");
    world.lost =
        (0..5).flat_map(|from| (1..5).filter(move |to| *to != from).map(move |to| (from, to))).collect();
    world.propose_to([4], at, 7);
    world.pass(60);
    let passed: Vec<bool> = world.orders.iter().map(|order| order.frontiers()[0] > at).collect();
    assert_eq!(passed, [true, false, false, false, false], "the first has decided a no-op, and nobody knows");
    world.lost.clear();
    world.coordinates_without([0, 1], 2, 2);
    world.agrees(&[7]);
    assert_eq!(world.places.get(&world.position(at, 0)), None, "the request has another place");
}

/// In one turn, with a new session or without, one votes for a request and hears that an epoch has opened.
#[test]
fn what_was_voted_for_before_an_epoch_opened_is_told_as_no_vote_of_it() {
    for fresh in [false, true] {
        let mut world = World::new(3, |_| {});
        world.pass(1_000);
        let at = world.wall() + 500 * MS;
        world.act(1, |order, effects| order.campaign(effects));
        world.carry(&[(0, 0), (0, 1), (1, 0), (1, 1)]);
        assert_eq!(world.orders[0].epoch(), (1, true));
        if fresh {
            world.orders[2].links.iter_mut().for_each(Link::begin);
        }
        world.at_once(2, Some((at, 7)), &[1]);
        assert_eq!((world.orders[2].epoch(), &world.voted[..]), ((1, true), &[(2, 7)][..]));
        world.carry(&[(2, 0)]);
        let known = world.orders[0].learner.known(at);
        assert!(known.values.iter().all(|(value, _)| value.is_none()), "{known:?}");
    }
}

/// One of five opens an epoch while it does not know its clock, having heard one other alone since it restarted, and restarts
/// again: what others have decided by that, and it has not heard of, lies below what it promises then.
#[test]
fn a_promise_lies_behind_the_beginning_of_the_epoch_before() {
    let mut world = World::new(5, |_| {});
    world.pass(1_000);
    let ahead = world.wall() + 5_000 * MS;
    world.act(1, |order, _| order.clock.raise(ahead));
    world.sever([3, 4], 0..5);
    world.lost.extend([(0, 2), (2, 0)]);
    world.restart_one(0);
    world.pass(50);
    world.act(1, |order, effects| order.campaign(effects));
    while world.orders[0].epoch() != (1, true) {
        assert!(world.deliver_one(), "the second coordinates");
    }
    assert!(!world.orders[0].clock.is_set());
    world.lost.push((1, 0));
    world.deliver();
    assert!(world.orders[1].frontiers()[0] > ahead, "no-ops are decided up to there");
    assert!(world.orders[0].frontiers()[0] < ahead, "and the first has not heard of it");
    world.lost.clear();
    world.sever([1, 2], 0..5);
    world.restart_one(0);
    world.act(3, |order, effects| order.campaign(effects));
    while world.orders[3].epoch() != (3, true) {
        assert!(world.time < 10_000, "the fourth coordinates");
        world.pass(10);
    }
    let high = |node: usize| {
        let mut openings = world.records[node].iter().rev().filter_map(|record| match record {
            Record::Opened(opening) => Some(opening.high),
            _ => None,
        });
        openings.next().unwrap()
    };
    assert!(high(3) >= high(1), "{} {}", high(3), high(1));
}

/// What others do not keep any more it takes from a snapshot, which none of these worlds has: it stays behind.
#[test]
fn who_lags_deposes_nobody() {
    let lagging = |down: usize, keeps: usize| {
        let mut world = World::new(3, |parameters| parameters.keep_commands = keeps);
        world.pass(1_000);
        world.cut = Some(down);
        world.pass(3_000);
        for word in 1..=20 {
            world.lead(1, word);
            world.deliver();
            world.pass(10);
        }
        world
    };
    let stands = |world: &mut World, lives: [usize; 2], epoch: u32| {
        let suspect = world.setup.parameters.suspect.as_nanos();
        for _ in 0..100 {
            world.pass(100);
            for node in lives {
                assert_eq!(world.orders[node].epoch(), (epoch, true), "at {}", world.time);
                assert!(world.orders[node].frontiers()[0] + suspect > world.wall(), "at {}", world.time);
            }
        }
    };
    let mut world = lagging(2, 4);
    world.cut = None;
    stands(&mut world, [0, 1], 0);
    // The one that coordinated comes back, and is told all that it lacks, or has to take a snapshot.
    for keeps in [4, 1_000] {
        let mut world = lagging(0, keeps);
        world.cut = None;
        world.restart_one(0);
        stands(&mut world, [1, 2], 1);
    }
}

/// One that was deposed speaks again before it knows: the others go on to hear of decisions from the one in its place, and
/// so does it.
#[test]
fn who_does_not_learn_for_itself_follows_the_coordinator_of_its_epoch() {
    let mut world = World::new(3, |parameters| parameters.learners = Learners::Sole);
    world.pass(1_000);
    world.cut = Some(0);
    let suspect = world.setup.parameters.suspect.as_nanos() / MS;
    while world.orders[1].epoch() != (1, true) {
        assert!(world.time < 1_000 + 3 * suspect, "the second coordinates");
        world.pass(10);
    }
    world.cut = None;
    world.pass(5_000);
    let led = |node: usize| world.orders[node].led.map(|(seat, _)| seat);
    assert_eq!([led(0), led(2)], [Some(1), Some(1)]);
    let heartbeat = world.setup.parameters.heartbeat.as_nanos();
    for order in &world.orders {
        assert!(order.frontiers()[0] + 5 * heartbeat > world.wall(), "by a few heartbeats");
    }
}

/// One has promised a later epoch to another that is gone: whoever campaigns for an earlier one is told so by what it reports.
#[test]
fn who_campaigns_in_an_epoch_that_is_past_does_so_in_another() {
    let mut world = World::new(3, |_| {});
    world.pass(1_000);
    world.act(1, |order, effects| order.campaign(effects));
    world.network.clear();
    world.act(0, |order, effects| (0..3).for_each(|_| order.campaign(effects)));
    world.carry(&[(0, 2)]);
    world.network.clear();
    world.cut = Some(0);
    let suspect = world.setup.parameters.suspect.as_nanos() / MS;
    world.pass(2 * suspect);
    let epochs = [world.orders[1].epoch(), world.orders[2].epoch()];
    assert!(epochs[0].1 && epochs[0] == epochs[1], "{epochs:?}");
}
