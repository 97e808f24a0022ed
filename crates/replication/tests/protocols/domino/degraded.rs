//! With fewer replicas, cut off, or with a wrong clock (`specs/domino.md` 8, F1, F6, F7).

use super::lab::{Lab, Plan};
use crate::machine::{Command, Reply, key};
use crate::talk::set;
use isochrone_core::{NodeId, Path, Span};
use isochrone_replication::Outcome;
use isochrone_replication::domino::{Extra, Learners, Way};
use isochrone_replication::service::Reply as At;

const MS: fn(u64) -> Span = Span::from_millis;

/// A cluster that replies at commit, with predictions made.
fn lab(replicas: u16, way: Way) -> Lab {
    let mut lab = Plan::even(replicas, 15).open(|placement| {
        placement.service.reply = At::Commit;
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

/// F6: a minority decides nothing, and has all when it is back.
#[test]
fn a_minority_decides_nothing_and_catches_up() {
    for learners in [Learners::All, Learners::Sole] {
        let mut lab = Plan::even(3, 15).open(|placement| {
            placement.service.reply = At::Commit;
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

/// F7: a clock that is five seconds off, either way, delays no execution by more than the bound on its lag, a
/// slow round and a heartbeat.
#[test]
fn a_wrong_clock_delays_executions_by_its_bound_at_most() {
    for nanos in [-5_000_000_000, 5_000_000_000] {
        for node in [0, 1] {
            let mut bound = Span::ZERO;
            let mut lab = Plan::even(3, 15).open(|placement| bound = placement.parameters.lag_max);
            lab.pass(MS(1_500));
            let usual = lab.series(3, 10, MS(13), &set("x"));
            let usual = usual.iter().map(|done| done.total).max().expect("all are done");
            lab.cluster.step_wall_clock(NodeId(node), nanos);
            // Long enough for a clock that gives an eighth of its time back to fall behind as far as it may.
            let done = lab.series(3, 150, MS(100), &set("x"));
            let longest = done.iter().map(|done| done.total).max().unwrap_or(Span::ZERO);
            println!("node {node} by {nanos} ns: {longest}, usually {usual}");
            let bound = usual + bound + MS(30) * 2 + MS(10);
            assert!(done.len() == 150 && longest <= bound, "node {node} by {nanos} ns: {longest} of {bound}");
        }
    }
}
