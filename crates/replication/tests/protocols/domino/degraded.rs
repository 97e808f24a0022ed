//! With fewer replicas, cut off, or with a wrong clock (`specs/domino.md` 8, F1, F5 to F8).

use super::lab::{Done, Lab, Plan};
use crate::machine::{Command, Reply, key};
use crate::talk::set;
use isochrone_core::{NodeId, Path, Random, Span};
use isochrone_replication::Outcome;
use isochrone_replication::domino::{Extra, Learners, Way};
use isochrone_replication::service::Reply as At;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MS: fn(u64) -> Span = Span::from_millis;

/// A cluster that replies at commit, with predictions made.
fn lab(replicas: u16, way: Way) -> Lab {
    let mut lab = Plan::even(replicas, 15).open(|placement| {
        placement.service.reply = At::Commit;
        placement.parameters.reply = At::Commit;
        let parameters = &mut placement.parameters;
        (parameters.way, parameters.extra) = (way, Extra::Fixed(Span::ZERO));
    });
    lab.pass(MS(1_500));
    lab
}

/// F1: as many as may fail have, and both ways go on; who cannot have a supermajority goes through a leader as
/// soon as a probe has timed out.
#[test]
fn both_ways_go_on_without_as_many_as_may_fail() {
    for (replicas, gone, fast) in [(3, 1, false), (5, 1, true), (5, 2, false), (7, 1, true), (7, 2, false)] {
        for way in [Way::Fast, Way::Led] {
            let mut lab = lab(replicas, way);
            (0..gone).for_each(|node| lab.cluster.crash(NodeId(node)));
            // A probe's patience, which is that for replicas too; where the fast way is left, a new coordinator
            // has to open it.
            lab.pass(MS(510 + if fast { 200 } else { 0 }));
            let done = lab.series(usize::from(replicas), 20, MS(13), &set("x"));
            let expected = if fast && way == Way::Fast { Path::Fast } else { Path::Leader };
            let all = done.iter().all(|done| done.path == expected);
            assert!(done.len() == 20 && all, "{replicas} less {gone}, {way:?}: {done:?}");
            let wait = if expected == Path::Fast { MS(30) } else { MS(60) };
            assert!(done.iter().all(|done| done.total == wait), "{replicas} less {gone}, {way:?}: {done:?}");
            // What was committed is executed, so the frontier goes on.
            lab.ask(usize::from(replicas), Command::Get(key(1)));
            lab.pass(MS(1_000));
            let read = Outcome::Replied(Reply::Text(Some("x".to_owned())));
            assert_eq!(lab.heard.answers.last(), Some(&read), "{replicas} less {gone}, {way:?}");
        }
    }
}

/// F5: an owner whose messages are late is taken for failed and its lane is closed; when they come in time again it
/// goes back to its lane, and nothing is lost.
#[test]
fn an_owner_that_was_suspected_wrongly_goes_back_to_its_lane() {
    let late = Arc::new(AtomicU64::new(0));
    let spike = late.clone();
    let hook = move |from: usize, _: usize, _: u64, _: &mut Random| {
        MS(15 + if from == 1 { spike.load(Ordering::Relaxed) } else { 0 })
    };
    let mut revoke = Span::ZERO;
    let mut lab = Plan { hook: Some(Box::new(hook)), ..Plan::even(3, 15) }.open(|placement| {
        placement.service.reply = At::Commit;
        placement.parameters.reply = At::Commit;
        placement.parameters.extra = Extra::Fixed(Span::ZERO);
        revoke = placement.parameters.revoke;
    });
    lab.pass(MS(1_500));
    let own = |lab: &mut Lab| {
        let done = lab.series(1, 10, MS(13), &set("own"));
        assert_eq!(done.len(), 10);
        done.iter().all(|done| done.path == Path::Leader && done.total == MS(30))
    };
    assert!(own(&mut lab), "beside its replica a client uses that one's lane");
    late.store(1_500, Ordering::Relaxed);
    let meanwhile = lab.series(3, 100, MS(20), &set("others"));
    late.store(0, Ordering::Relaxed);
    // What was late comes, and the block that was closed passes.
    lab.pass(MS(1_500) + revoke + MS(1_000));
    assert!(lab.heard.counted.contains_key("lanes_revoked"), "{:?}", lab.heard.counted);
    assert!(own(&mut lab), "it is back in its lane");
    assert!(meanwhile.len() >= 90, "the others went on: {}", meanwhile.len());
    assert_eq!(lab.heard.answers.len(), 120, "and all are answered");
    for node in 0..3 {
        lab.ask(node, Command::Get(key(1)));
        lab.pass(MS(500));
        let read = Outcome::Replied(Reply::Text(Some("own".to_owned())));
        assert_eq!(lab.heard.answers.last(), Some(&read), "at node {node}");
    }
}

/// F8: where probes have no answers in time nothing is predicted, so every command goes through a leader; and none waits
/// longer for it.
#[test]
fn without_answers_to_probes_commands_go_through_leaders() {
    let mut lab = Plan::even(3, 15).open(|placement| {
        placement.service.reply = At::Commit;
        placement.parameters.reply = At::Commit;
        // Shorter than any way: whatever comes is too old.
        placement.parameters.probe_timeout = MS(1);
    });
    lab.pass(MS(1_500));
    let done = lab.series(3, 50, MS(13), &set("x"));
    let led = done.iter().all(|done| done.path == Path::Leader && done.total == MS(60));
    assert!(done.len() == 50 && led, "{done:?}");
    lab.ask(3, Command::Get(key(1)));
    lab.pass(MS(500));
    let read = Outcome::Replied(Reply::Text(Some("x".to_owned())));
    assert_eq!(lab.heard.answers.last(), Some(&read), "and are executed");
}

/// F6: a minority decides nothing, and has all when it is back.
#[test]
fn a_minority_decides_nothing_and_catches_up() {
    for learners in [Learners::All, Learners::Sole] {
        let mut lab = Plan::even(3, 15).open(|placement| {
            placement.service.reply = At::Commit;
            placement.parameters.reply = At::Commit;
            placement.parameters.learners = learners;
        });
        lab.pass(MS(1_500));
        // The coordinator, and the client beside it.
        for other in [1, 2, 3] {
            lab.cluster.connect(NodeId(0), NodeId(other), false);
        }
        lab.ask(0, set("minority"));
        lab.pass(MS(3_000));
        assert_eq!(lab.heard.answers, [], "no majority, no answer");
        lab.ask(3, set("majority"));
        assert_eq!(lab.await_done().path, Path::Leader);
        for other in [1, 2, 3] {
            lab.cluster.connect(NodeId(0), NodeId(other), true);
        }
        lab.pass(MS(5_000));
        assert_eq!(lab.heard.answers.len(), 2, "it is answered when it is back");
        for node in [0, 3] {
            lab.ask(node, Command::Get(key(1)));
            lab.pass(MS(1_000));
            let read = Outcome::Replied(Reply::Text(Some("minority".to_owned())));
            assert_eq!(lab.heard.answers.last(), Some(&read), "the later one, at node {node}");
        }
    }
}

/// The longest wait of all that is done.
fn slowest(done: &[Done]) -> Option<Span> {
    done.iter().map(|done| done.total).max()
}

/// F7: a clock that is five seconds off, either way, delays no execution by more than the bound on its lag, a
/// slow round and a heartbeat.
#[test]
fn a_wrong_clock_delays_executions_by_its_bound_at_most() {
    for nanos in [-5_000_000_000, 5_000_000_000] {
        for node in [0, 1] {
            let mut bound = Span::ZERO;
            let mut lab = Plan::even(3, 15).open(|placement| bound = placement.parameters.lag_max);
            lab.pass(MS(1_500));
            let usual = slowest(&lab.series(3, 10, MS(13), &set("x"))).expect("all are done");
            lab.cluster.step_wall_clock(NodeId(node), nanos);
            // Long enough for a clock that gives an eighth of its time back to fall behind as far as it may.
            let done = lab.series(3, 150, MS(100), &set("x"));
            let longest = slowest(&done).unwrap_or(Span::ZERO);
            println!("node {node} by {nanos} ns: {longest}, usually {usual}");
            let bound = usual + bound + MS(30) * 2 + MS(10);
            assert!(done.len() == 150 && longest <= bound, "node {node} by {nanos} ns: {longest} of {bound}");
        }
    }
}

/// A replica whose clock is behind, within the bound on its lag or beyond, costs the commands of the others a way more, and not
/// what it is behind.
#[test]
fn a_clock_that_is_behind_is_not_waited_for() {
    for nanos in [-100_000_000, -900_000_000, -5_000_000_000] {
        for node in [0, 1] {
            let mut lab = Plan::even(3, 15).open(|_| {});
            lab.pass(MS(1_500));
            let usual = slowest(&lab.series(3, 10, MS(13), &set("x"))).expect("all are done");
            lab.cluster.step_wall_clock(NodeId(node), nanos);
            let done = lab.series(3, 150, MS(100), &set("x"));
            let longest = slowest(&done).unwrap_or(Span::ZERO);
            assert!(
                done.len() == 150 && longest <= usual + MS(40),
                "node {node} by {nanos} ns: {longest} for {usual}"
            );
        }
    }
}

/// The smallest schedule of seeds 62,000,041 of `clock` and 70,000,203 (five regions): beside a replica whose clock is minutes
/// ahead nothing takes longer than before, though its lane is the nearest. It was `lag_max` ahead of the others, and whatever
/// it placed waited for them as long.
#[test]
fn a_clock_that_is_minutes_ahead_holds_up_nothing_beside_it() {
    let mut lab = Plan::even(3, 15).open(|_| {});
    lab.pass(MS(1_500));
    let usual = slowest(&lab.series(0, 10, MS(13), &set("x"))).expect("all are done");
    lab.cluster.step_wall_clock(NodeId(0), 99_000_000_000);
    // What it measured before the step is forgotten.
    lab.pass(MS(5_000));
    let done = lab.series(0, 50, MS(50), &set("x"));
    let longest = slowest(&done).unwrap_or(Span::ZERO);
    assert!(done.len() == 50 && longest <= usual + MS(30), "{longest} for {usual}");
}

/// The smallest schedule of seed 8 (three regions, `clock_jump`): a client's clock jumps minutes ahead and soon back. Its
/// stamps are refused by all, and nothing that it asks then or later is placed behind them.
#[test]
fn stamps_that_all_have_refused_hold_up_nothing() {
    const JUMP: i64 = 1_000_000_000_000;
    for asked in [1, 20] {
        let mut lab = lab(3, Way::Fast);
        for step in [JUMP, -JUMP] {
            lab.cluster.step_wall_clock(NodeId(3), step);
            for _ in 0..asked {
                lab.ask(3, set("x"));
                lab.pass(MS(10));
            }
        }
        lab.pass(MS(5_000));
        assert_eq!(lab.heard.answers.len(), 2 * asked, "what was refused is placed elsewhere");
        for node in [3, 0] {
            lab.ask(node, Command::Get(key(1)));
            lab.pass(MS(1_000));
        }
        assert_eq!(lab.heard.answers.len(), 2 * asked + 2, "and nothing waits behind it");
    }
}
