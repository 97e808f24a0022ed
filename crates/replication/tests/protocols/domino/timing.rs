//! How long commands take when clocks, delays and knobs are what a test says (`specs/domino.md` 8, L2 to L9).

use super::lab::{Done, Plan, mean};
use crate::machine::Machine;
use crate::talk::set;
use isochrone_core::{NodeId, Path, Random, RegionId, Span};
use isochrone_replication::domino::{Estimate, Extra, Learners, Placement, Way};
use isochrone_replication::service::Reply;
use isochrone_sim::Jitter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MS: fn(u64) -> Span = Span::from_millis;

/// Replies at commit, with this much added to stamps.
fn at_commit(extra: u64) -> impl Fn(&mut Placement<Machine>) {
    move |placement| {
        placement.service.reply = Reply::Commit;
        placement.parameters.reply = Reply::Commit;
        placement.parameters.extra = Extra::Fixed(MS(extra));
    }
}

/// Fast requests that are answered when they are executed.
fn executed(extra: u64, learners: Learners) -> impl Fn(&mut Placement<Machine>) {
    move |placement| {
        let parameters = &mut placement.parameters;
        (parameters.extra, parameters.learners) = (Extra::Fixed(MS(extra)), learners);
        parameters.way = Way::Fast;
    }
}

fn all_fast(done: &[Done]) -> bool {
    done.iter().all(|done| done.path == Path::Fast)
}

/// L2, L4: an extra delay costs nothing until the commit, and each millisecond of it one until the execution.
#[test]
fn an_extra_delay_is_waited_for_by_the_execution_and_not_by_the_commit() {
    let mut waits = Vec::new();
    for extra in [0, 2, 16, 36] {
        let mut lab = Plan::even(3, 15).open(at_commit(extra));
        lab.pass(MS(1_500));
        let done = lab.series(3, 20, MS(13), &set("x"));
        assert!(done.len() == 20 && all_fast(&done), "{done:?}");
        assert!(done.iter().all(|done| done.total == MS(30)), "one round trip: {done:?}");
        let mut lab = Plan::even(3, 15).open(executed(extra, Learners::All));
        lab.pass(MS(1_500));
        waits.push(mean(&lab.series(3, 40, MS(13), &set("x"))));
    }
    println!("executed after {waits:?}");
    for (later, by) in [(2, 14), (3, 34)] {
        let more = waits[later].saturating_sub(waits[1]);
        assert!(more.as_nanos().abs_diff(MS(by).as_nanos()) < 1_500_000, "{more} and not {by} ms");
    }
    assert!(waits[1].saturating_sub(waits[0]) <= MS(2) + Span::from_micros(500), "there is no slack below");
}

/// L3: with one late replica of three a request is slow, within the bound; with one of five it stays fast.
#[test]
fn one_late_replica_makes_a_request_slow_among_three_and_not_among_five() {
    for replicas in [3, 5] {
        let plan = Plan::even(replicas, 15);
        let (rtt, nodes) = (plan.rtt_max(), usize::from(replicas));
        let late = Arc::new(AtomicU64::new(0));
        let extra = late.clone();
        // What goes from the client to the last replica is late once it is told to be.
        let hook = move |from: usize, to: usize, _: u64, _: &mut Random| {
            let more = if (from, to) == (nodes, nodes - 1) { extra.load(Ordering::Relaxed) } else { 0 };
            MS(15 + more)
        };
        let mut lab = Plan { hook: Some(Box::new(hook)), ..plan }.open(|placement| {
            at_commit(0)(placement);
            placement.parameters.way = Way::Fast;
        });
        lab.pass(MS(1_500));
        late.store(5, Ordering::Relaxed);
        lab.ask(nodes, set("x"));
        let done = lab.await_done();
        let bound = rtt * 5 / 2 + MS(10);
        if replicas == 3 {
            assert!(done.path == Path::Slow && done.total <= bound, "{done:?}, bound {bound}");
        } else {
            assert!(done.path == Path::Fast && done.total == rtt, "{done:?}");
        }
    }
}

/// The bounds of 6.5 on the execution of a request that is on time, at the client: the first replica that
/// executes it answers. One-way delays in milliseconds, the client last.
fn bound(delays: &[Vec<u64>], extra: u64, learners: Learners) -> Span {
    let replicas = delays.len() - 1;
    let client = replicas;
    // Three of three: the farthest.
    let all = |way: &dyn Fn(usize) -> u64| (0..replicas).map(way).max().unwrap_or(0);
    let stamp = all(&|r| delays[client][r]) + extra;
    let (heartbeat, coordinator) = (10, 0);
    let at = |x: usize| {
        let (votes, noops) = match learners {
            Learners::All => {
                (all(&|r| delays[client][r] + delays[r][x]), stamp + all(&|r| delays[r][x]) + heartbeat)
            }
            Learners::Sole => (
                all(&|r| delays[client][r] + delays[r][coordinator]) + delays[coordinator][x],
                stamp + all(&|r| delays[r][coordinator]) + delays[coordinator][x] + 2 * heartbeat,
            ),
        };
        let lanes = stamp + all(&|l| delays[l][x]) + heartbeat;
        votes.max(noops).max(lanes) + delays[x][client]
    };
    MS((0..replicas).map(at).min().unwrap_or(0))
}

/// L5: executions come within their bounds, and no later where all replicas learn.
#[test]
fn executions_come_within_their_bounds_and_no_later_where_all_learn() {
    for seed in 0..8 {
        let mut random = Random::seeded(seed);
        let mut row = |at: usize| (0..4).map(|to| if to == at { 0 } else { random.between(5, 60) }).collect();
        let delays: Vec<Vec<u64>> = (0..4).map(&mut row).collect();
        let mut means = Vec::new();
        for learners in [Learners::All, Learners::Sole] {
            let mut lab = Plan::new(delays.clone(), 3).open(executed(8, learners));
            lab.pass(MS(1_500));
            let done = lab.series(3, 30, MS(13), &set("x"));
            let bound = bound(&delays, 8, learners) + Span::from_micros(1);
            let over: Vec<_> = done.iter().filter(|done| done.total > bound).collect();
            assert!(done.len() == 30 && over.is_empty(), "{delays:?} {learners:?} {bound}: {over:?}");
            means.push(mean(&done));
        }
        assert!(means[0] <= means[1], "{means:?}");
    }
}

/// Figures 4.13: the delays change twice, and what a client waits a second later.
fn timeline(rtts: [[[u64; 4]; 4]; 3], expected: [u64; 3]) {
    let phase = Arc::new(AtomicU64::new(0));
    let at = phase.clone();
    let half = move |from: usize, to: usize, _: u64, _: &mut Random| {
        MS(rtts[at.load(Ordering::Relaxed) as usize][from][to]) / 2
    };
    let plan = Plan::new(vec![vec![35; 4]; 4], 3);
    let mut lab = Plan { hook: Some(Box::new(half)), ..plan }.open(at_commit(0));
    for (number, expected) in expected.into_iter().enumerate() {
        phase.store(number as u64, Ordering::Relaxed);
        // A window, two probes and a round trip; at first leaders, too, have to measure before they say anything.
        lab.pass(MS(1_000 + 20 + 70) * if number == 0 { 2 } else { 1 });
        for done in lab.series(3, 10, MS(37), &set("x")) {
            assert_eq!(done.total, MS(expected), "phase {number}");
        }
    }
}

/// L6: E10 and E11. The client is the last node, R the first, M and N the others.
#[test]
fn a_client_follows_the_faster_way_as_delays_change() {
    let ten = |far: u64| [[0, 30, 30, far], [30, 0, 30, 30], [30, 30, 0, 30], [far, 30, 30, 0]];
    timeline([ten(30), ten(50), ten(70)], [30, 50, 60]);
    let eleven = |r: u64, mn: u64| [[0, r, r, 30], [r, 0, mn, 70], [r, mn, 0, 30], [30, 70, 30, 0]];
    timeline([eleven(30, 30), eleven(60, 30), eleven(60, 60)], [60, 60, 70]);
}

/// L7: a clock that is off by half a second, anywhere and either way, changes neither latency nor ways.
#[test]
fn a_constant_skew_of_any_clock_costs_nothing() {
    for node in 0..4 {
        for nanos in [-500_000_000, 500_000_000] {
            let mut lab = Plan::even(3, 15).open(at_commit(0));
            lab.cluster.step_wall_clock(NodeId(node), nanos);
            // A clock that was stepped back under way is first waited for: an eighth of the time.
            lab.pass(MS(6_000));
            let done = lab.series(3, 30, MS(13), &set("x"));
            assert!(done.len() == 30 && all_fast(&done), "{node} {nanos}: {done:?}");
            assert!(done.iter().all(|done| done.total == MS(30)), "{node} {nanos}: {done:?}");
        }
    }
}

/// L8: a clock that is stepped makes requests slow for about a window, and no longer.
#[test]
fn a_clock_that_is_stepped_costs_the_fast_way_for_a_window() {
    let mut slowed = 0;
    for (node, nanos) in [(1, 100_000_000), (1, -100_000_000), (3, 100_000_000), (3, -100_000_000)] {
        let mut lab = Plan::even(3, 15).open(|placement| {
            at_commit(0)(placement);
            placement.parameters.way = Way::Fast;
        });
        lab.pass(MS(2_000));
        lab.cluster.step_wall_clock(NodeId(node), nanos);
        let window = lab.series(3, 100, MS(10), &set("x"));
        slowed += window.iter().filter(|done| done.path != Path::Fast).count();
        let after = lab.series(3, 50, MS(10), &set("x"));
        assert!(window.len() == 100 && after.len() == 50 && all_fast(&after), "{node} {nanos}: {after:?}");
    }
    assert!(slowed > 0, "a step shows");
}

/// A client whose region has another one lets that one measure, whose clock is half a second off: it sends no probes, its
/// requests are as fast, and when the other dies it measures for itself.
#[test]
fn one_client_measures_for_its_region_while_it_lives() {
    let mut delays = vec![vec![15; 5]; 5];
    (delays[3][4], delays[4][3]) = (1, 1);
    let sent = Arc::new(AtomicU64::new(0));
    let (count, ways) = (sent.clone(), delays.clone());
    let hook = move |from: usize, to: usize, _: u64, _: &mut Random| {
        if from == 4 && to < 3 {
            count.fetch_add(1, Ordering::Relaxed);
        }
        MS(ways[from][to])
    };
    for nanos in [-500_000_000, 0, 500_000_000] {
        let hook: Option<isochrone_sim::DelayHook> = Some(Box::new(hook.clone()));
        let mut lab = Plan { hook, ..Plan::new(delays.clone(), 3) }.open(|placement| {
            at_commit(0)(placement);
            placement.regions.insert(NodeId(4), RegionId(3));
        });
        lab.cluster.step_wall_clock(NodeId(3), nanos);
        lab.pass(MS(3_000));
        let before = sent.load(Ordering::Relaxed);
        lab.pass(MS(1_000));
        assert_eq!(sent.load(Ordering::Relaxed), before, "{nanos}: it probes though another one does");
        let done = lab.series(4, 30, MS(13), &set("x"));
        assert!(done.len() == 30 && all_fast(&done), "{nanos}: {done:?}");
        assert!(done.iter().all(|done| done.total == MS(30)), "{nanos}: {done:?}");
        lab.cluster.crash(NodeId(3));
        // Until it is silent, and enough was measured here.
        lab.pass(MS(1_000));
        let done = lab.series(4, 30, MS(13), &set("x"));
        assert!(done.len() == 30 && all_fast(&done), "{nanos}, alone: {done:?}");
        lab.cluster.restart(NodeId(3));
        lab.pass(MS(1_000));
        let before = sent.load(Ordering::Relaxed);
        lab.pass(MS(1_000));
        assert_eq!(sent.load(Ordering::Relaxed), before, "{nanos}: it goes on though the other is back");
    }
}

/// Half-RTT estimation, for comparison, is late wherever the way there takes longer than the way back.
#[test]
fn half_a_round_trip_is_a_bad_guess_where_directions_differ() {
    for (estimate, fast) in [(Estimate::OneWay, true), (Estimate::HalfRoundTrip, false)] {
        let delays = vec![vec![0, 5, 5, 10], vec![5, 0, 5, 10], vec![5, 5, 0, 10], vec![40, 40, 40, 0]];
        let mut lab = Plan::new(delays, 3).open(|placement| {
            at_commit(0)(placement);
            (placement.parameters.way, placement.parameters.estimate) = (Way::Fast, estimate);
        });
        lab.pass(MS(1_500));
        let done = lab.series(3, 20, MS(13), &set("x"));
        assert!(done.len() == 20 && done.iter().all(|done| (done.path == Path::Fast) == fast), "{done:?}");
    }
}

/// L9: a percentile of 95 makes one request in twenty late at the farthest replica, and 8 ms more next to none
/// where one late request in a hundred is more than 6.24 ms late.
#[test]
fn one_request_in_twenty_is_late_with_jitter_and_next_to_none_with_extra_delay() {
    let late = |extra: u64| {
        let delays = vec![vec![0, 5, 40, 5], vec![5, 0, 40, 5], vec![40, 40, 0, 40], vec![5, 5, 40, 0]];
        // Of an exponential delay one in a hundred is 4.6 times the mean above any percentile of it.
        let jitter = Jitter::Exponential(Span::from_micros(1_355));
        let mut lab = Plan { jitter, ..Plan::new(delays, 3) }.open(|placement| {
            at_commit(extra)(placement);
            placement.parameters.way = Way::Fast;
        });
        lab.pass(MS(1_500));
        let done = lab.series(3, 1_500, MS(7), &set("x"));
        assert_eq!(done.len(), 1_500);
        done.iter().filter(|done| done.path != Path::Fast).count()
    };
    let (none, some) = (late(0), late(8));
    println!("{none} and {some} of 1,500 are late");
    assert!((35..=130).contains(&none) && some <= 5, "{none} and {some} of 1,500");
}
