//! What crashes cost, and what they do not take: a commit that a client has seen, and more time than failover
//! needs (`specs/domino.md` 8, S3, F2, F3).

use super::lab::{Lab, Plan};
use crate::machine::{Command, Reply, key};
use crate::talk::set;
use isochrone_core::{NodeId, Path, Span};
use isochrone_replication::Outcome;
use isochrone_replication::domino::Way;
use isochrone_replication::service::Reply as At;

const MS: fn(u64) -> Span = Span::from_millis;

/// S3: whoever of `f` replicas crashes when a client has seen its commit, the command is executed.
#[test]
fn a_commit_that_a_client_has_seen_survives_every_crash_of_as_many_as_may_fail() {
    for replicas in [3u16, 5, 7] {
        let f = u32::from(replicas / 2);
        for crashed in (0u32..1 << replicas).filter(|crashed| crashed.count_ones() == f) {
            let mut lab = Plan::even(replicas, 15).open(|placement| {
                placement.service.reply = At::Commit;
                placement.parameters.reply = At::Commit;
                let parameters = &mut placement.parameters;
                parameters.way = Way::Fast;
                (parameters.heartbeat, parameters.probe) = (MS(50), MS(50));
            });
            lab.pass(MS(1_500));
            lab.ask(usize::from(replicas), set("x"));
            assert_eq!(lab.await_done().path, Path::Fast);
            let gone = (0..replicas).filter(|node| crashed & 1 << node != 0);
            gone.for_each(|node| lab.cluster.crash(NodeId(node)));
            lab.pass(MS(2_500));
            lab.ask(usize::from(replicas), Command::Get(key(1)));
            lab.pass(MS(1_500));
            let read = Outcome::Replied(Reply::Text(Some("x".to_owned())));
            assert_eq!(lab.heard.answers.last(), Some(&read), "{crashed:b} of {replicas}");
        }
    }
}

/// The longest time between two executions after a replica has crashed, and what it may be.
fn stall(replicas: u16, way: u64, crashed: u16) -> (Span, Span) {
    let plan = Plan::even(replicas, way);
    let rtt = plan.rtt_max();
    let mut suspect = Span::ZERO;
    let mut lab: Lab = plan.open(|placement| suspect = placement.parameters.suspect);
    lab.pass(MS(1_500));
    let node = usize::from(replicas);
    let ask = |lab: &mut Lab, count: usize| {
        for _ in 0..count {
            lab.ask(node, set("x"));
            lab.pass(MS(5));
        }
    };
    ask(&mut lab, 40);
    lab.cluster.crash(NodeId(crashed));
    let from = lab.cluster.now();
    ask(&mut lab, 400);
    lab.pass(MS(2_000));
    let mut finished: Vec<_> = lab.heard.done.iter().map(|done| done.at).filter(|at| *at >= from).collect();
    finished.insert(0, from);
    let longest = finished.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap_or(Span::ZERO);
    assert!(finished.len() > 400, "{} of 440 were executed", lab.heard.done.len());
    let heartbeat = MS(10);
    (longest, suspect + rtt * 5 / 2 + heartbeat)
}

/// F2, F3: the coordinator, or the leader of a lane, crashes; execution goes on within the patience, two and a
/// half round trips and a heartbeat.
#[test]
fn execution_goes_on_soon_after_a_coordinator_or_a_leader_has_crashed() {
    for (replicas, way) in [(3, 5), (3, 50), (5, 20)] {
        for crashed in [0, 1, 2] {
            let (longest, bound) = stall(replicas, way, crashed);
            println!("{replicas} replicas {way} ms apart, {crashed} crashes: {longest} of {bound}");
            assert!(
                longest <= bound,
                "{replicas} replicas {way} ms apart, {crashed}: {longest}, not {bound}"
            );
        }
    }
}

/// Eight values of a megabyte are open when the coordinator is gone, on lines that carry four a second: a promise takes two
/// seconds and so does the opening, and a coordinator that gets nowhere is borne for one and a half.
#[test]
fn an_epoch_that_begins_slowly_because_much_is_open_is_not_followed_by_another() {
    let mut plan = Plan::even(3, 10);
    plan.slow = vec![(1, 4_010_000), (2, 4_010_000)];
    let mut lab = plan.open(|placement| {
        placement.parameters.way = Way::Fast;
        // What clients ask again would wait on the same lines.
        (placement.service.retry, placement.service.limit) = (MS(60_000), MS(120_000));
    });
    lab.pass(MS(1_500));
    lab.cluster.crash(NodeId(0));
    let from = lab.cluster.now();
    for _ in 0..8 {
        lab.ask(3, set(&"x".repeat(1_000_000)));
        lab.pass(MS(1));
    }
    lab.pass(MS(30_000));
    let last = lab.heard.done.last().map(|done| done.at.since(from));
    println!("{} done, the last after {last:?}", lab.heard.done.len());
    assert_eq!((lab.heard.done.len(), lab.heard.counted.get("campaigns")), (8, Some(&1)));
}
