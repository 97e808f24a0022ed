//! What becomes of one position: two requests for it, requests that are late or reach a few only, copies
//! (`specs/domino.md` 8, S8 to S11).

use super::super::super::message::Reject;
use super::*;

fn world(replicas: usize, learners: Learners) -> World {
    let mut world = World::new(replicas, |parameters| {
        parameters.heartbeat = Span::from_millis(20);
        parameters.learners = learners;
    });
    world.pass(1_000);
    world
}

#[test]
fn of_two_requests_for_one_stamp_one_gets_it_and_the_other_a_place_in_a_lane() {
    for (replicas, learners) in
        [(3, Learners::All), (3, Learners::Sole), (5, Learners::All), (5, Learners::Sole)]
    {
        for pattern in 0..1u32 << replicas {
            let mut world = world(replicas, learners);
            let at = world.wall() + 30 * MS;
            for node in 0..replicas {
                let (first, second) = if pattern & 1 << node == 0 { (1, 2) } else { (2, 1) };
                world.propose_to([node], at, first);
                world.propose_to([node], at, second);
            }
            world.deliver();
            world.pass(1_000);
            let (twos, need) = (pattern.count_ones() as usize, Quorums::supermajority(replicas));
            match twos {
                // Every replica has refused the other one: its client sees to it.
                0 => world.agrees(&[1]),
                twos if twos == replicas => world.agrees(&[2]),
                _ => world.agrees(&[1, 2]),
            }
            let voted_for = 2 - usize::from(twos == 0 || twos == replicas);
            assert_eq!(world.executed[0].len(), voted_for, "each once");
            let winner = world.places.get(&world.position(at, 0)).copied();
            // Whoever was first at a supermajority has the place.
            let forced = [(replicas - twos, 1), (twos, 2)].into_iter().find(|(votes, _)| *votes >= need);
            assert!(winner.is_some() && forced.is_none_or(|(_, word)| winner == Some(word)), "{pattern:b}");
        }
    }
}

#[test]
fn a_request_that_is_late_everywhere_leaves_a_noop_and_goes_through_a_leader_once() {
    let mut world = world(3, Learners::All);
    let at = world.wall() - 100 * MS;
    assert!(world.orders[0].frontiers()[0] > at, "the no-op is decided");
    world.propose(at, 1);
    for order in &world.orders {
        let clock = order.clock.last();
        assert_eq!(order.judge_request(at, &Word(1), clock, u64::MAX), Err(Reject::Late));
    }
    world.lead(1, 1);
    world.deliver();
    world.pass(1_000);
    world.agrees(&[1]);
    assert_eq!((world.executed[0].len(), world.voted.len()), (1, 0));
    assert_eq!(world.places.get(&world.position(at, 0)), None);
}

#[test]
fn a_request_whose_client_died_after_reaching_some_is_executed_once_or_never_and_nothing_waits_for_it() {
    for (replicas, learners) in
        [(3, Learners::All), (3, Learners::Sole), (5, Learners::All), (5, Learners::Sole)]
    {
        for reached in 1..1usize << replicas {
            let mut world = world(replicas, learners);
            let at = world.wall() + 30 * MS;
            world.propose_to((0..replicas).filter(|node| reached & 1 << node != 0), at, 1);
            world.deliver();
            world.pass(1_500);
            world.agrees(&[]);
            let holds = world.places.contains_key(&world.position(at, 0));
            if holds || reached & 1 != 0 {
                assert_eq!(world.executed[0], [1], "{reached:b} of {replicas}: the coordinator sees to it");
            } else {
                assert_eq!(world.executed[0], [], "{reached:b} of {replicas}: the coordinator never had it");
            }
            let votes = reached.count_ones() as usize;
            let noop = replicas - votes >= Quorums::supermajority(replicas);
            assert_eq!(holds, !noop, "a no-op where a supermajority has passed it");
        }
    }
}

#[test]
fn copies_of_a_request_change_nothing_that_is_decided() {
    for learners in [Learners::All, Learners::Sole] {
        let mut world = world(3, learners);
        let (held, noop) = (world.wall() + 30 * MS, world.wall() + 31 * MS);
        world.propose(held, 1);
        world.pass(40);
        for after in [0, 20, 100, 2_000] {
            world.pass(after);
            let (places, told) = (world.places.clone(), world.voted.len());
            for (at, word) in [(held, 1), (held, 2), (noop, 3)] {
                world.propose(at, word);
            }
            world.pass(500);
            world.agrees(&[1]);
            assert_eq!((&world.places, &world.executed[0]), (&places, &vec![1]));
            let told = &world.voted[told..];
            assert!(told.iter().all(|(_, word)| *word == 1), "only a repeat is told the same again");
        }
    }
}

/// A vote comes behind a round of no-ops that is in flight: the ballot keeps its value there.
#[test]
fn a_vote_behind_a_round_of_noops_is_too_late_in_that_ballot() {
    let mut world = world(3, Learners::All);
    world.lost = vec![(2, 0)];
    world.pass(2_000);
    assert!(world.orders[0].suspected(2), "two of three: the coordinator goes on by rounds");
    let at = world.wall() + 30 * MS;
    world.propose_to([2], at, 7);
    // Its round reaches nobody; then the vote does.
    world.lost.push((0, 1));
    world.pass(60);
    world.propose_to([0], at, 7);
    world.lost = vec![(0, 1)];
    world.pass(400);
    world.lost.clear();
    world.pass(4_000);
    world.agrees(&[7]);
    assert_eq!(world.places.get(&world.position(at, 0)), None, "it has another place");
}

/// Each clock that comes looks at what it has newly passed: if it looked at all that is open for each that is, this would
/// take minutes.
#[test]
fn clocks_that_pass_many_open_positions_settle_what_lies_between() {
    const OPEN: u64 = 100_000;
    let mut world = world(3, Learners::All);
    let base = world.wall() + MS;
    world.time += 3;
    world.act(2, |order, effects| order.expire(Timer::Beat, effects));
    world.act(2, |order, effects| {
        let id = |word| Word(word).id().unwrap();
        order.on_vote(1, (0..OPEN).map(|word| (base + 2 * word, id(word))).collect(), effects);
        let decided = order.tracks[0].ahead();
        for step in 1..=100 {
            for seat in 0..3 {
                order.on_tick(seat, Some(base + 2 * OPEN * step / 100), 0, effects);
            }
        }
        assert_eq!(order.tracks[0].ahead(), decided + OPEN as usize, "what lies between holds no-ops");
        assert!(
            (0..OPEN).all(|word| !order.tracks[0].is_decided(base + 2 * word)),
            "nothing else is decided"
        );
    });
}

/// Three of five vote for a request, the coordinator is late, and the fifth is gone: as soon as that is suspected, its vote is
/// not waited for.
#[test]
fn a_position_does_not_wait_for_one_that_is_gone() {
    let mut world = world(5, Learners::All);
    let at = world.wall() + 30 * MS;
    world.cut = Some(4);
    world.propose_to([1, 2, 3], at, 7);
    goes_on(world, &[0, 1, 2, 3], at);
}

/// Without another coordinator, when it is known who is gone.
fn goes_on(mut world: World, lives: &[usize], at: u64) {
    world.deliver();
    world.pass(world.setup.parameters.suspect.as_nanos() / MS + 300);
    for node in lives {
        assert!(world.orders[*node].frontiers()[0] > at, "{node} stands");
        assert_eq!(world.orders[*node].epoch(), (0, true));
    }
}

/// The coordinator lacks a command, and the first of those who have it is gone, or the only one.
#[test]
fn a_command_that_is_lacking_is_asked_of_whoever_lives_and_is_not_waited_for_otherwise() {
    for voters in [vec![1, 2], vec![1]] {
        let mut world = world(3, Learners::All);
        let at = world.wall() + 30 * MS;
        world.propose_to(voters, at, 7);
        world.deliver();
        world.cut = Some(1);
        goes_on(world, &[0, 2], at);
    }
}

#[test]
fn what_is_too_far_ahead_is_not_kept() {
    let mut world = world(3, Learners::All);
    let held: Vec<Held> = world.orders.iter().map(Order::held).collect();
    let at = world.wall() + 3_600_000 * MS;
    world.propose(at, 7);
    assert_eq!(world.orders.iter().map(Order::held).collect::<Vec<_>>(), held);
}

/// Of a round whose end was lost with a session nobody is told again.
#[test]
fn rounds_that_never_end_are_forgotten() {
    let mut world = world(3, Learners::All);
    let at = world.orders[1].frontiers()[0] - 1_000;
    world.act(1, |order, _| {
        for number in 1..=1_000 {
            let ranges = vec![(at + number - 1, at + number)];
            order.on_recover(0, Round { epoch: 0, number, values: Vec::new(), ranges }.into());
        }
    });
    world.pass(100);
    assert!(world.orders[1].rounds.len() <= 256, "{}", world.orders[1].rounds.len());
}
