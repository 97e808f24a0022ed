//! Lines that carry less than is sent: what waits on them makes nobody believe that others are dead, and what is asked for
//! again does not come before what is new.

use crate::cluster::{Cluster, placement};
use crate::machine::{Command, Machine, Reply, key};
use crate::talk::{A, B, C, Talk, set};
use isochrone_core::{Instant, NodeId, Span, Ticket};
use isochrone_replication::{
    Family, Outcome, Placement, Replicated, Request, curp, domino, epaxos, fastpaxos, mencius, multipaxos,
    sdpaxos,
};
use isochrone_sim::{Config, Driver, Next, Session, Simulation};
use std::collections::BTreeMap;

/// Closed loops that write large values.
struct Large {
    bytes: usize,
    each: u64,
    until: Instant,
    asked: Vec<u64>,
    done: u64,
    failed: u64,
    last: Instant,
    slowest: Span,
    since: BTreeMap<Ticket, Instant>,
}

impl<F: Family> Driver<Replicated<Machine, F>> for Large {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request<Command>> {
        let number = session.number as usize;
        if self.asked.len() <= number {
            self.asked.resize(number + 1, 0);
        }
        if now >= self.until || self.asked[number] >= self.each {
            return Next::Done;
        }
        self.asked[number] += 1;
        let command = Command::Set(key(number as u8), "x".repeat(self.bytes));
        // Not before somebody leads.
        let at = now.max(Instant::ZERO + Span::from_secs(1));
        Next::Request { at, request: Request::Command(command) }
    }

    fn invoked(&mut self, _: Session, ticket: Ticket, now: Instant) {
        self.since.insert(ticket, now);
    }

    fn completed(&mut self, _: Session, ticket: Ticket, outcome: Outcome<Reply>, now: Instant) {
        match outcome {
            Outcome::Replied(_) => {
                self.done += 1;
                self.last = now;
            }
            _ => self.failed += 1,
        }
        if let Some(since) = self.since.remove(&ticket) {
            self.slowest = self.slowest.max(now.since(since));
        }
    }
}

/// Three regions 20 ms apart, lines of `bandwidth` bytes a second, clients at the second only.
fn run<F: Family>(
    bandwidth: u64,
    sessions: u32,
    bytes: usize,
    each: u64,
    tune: fn(&mut Placement<Machine, F>),
) -> Large {
    let way = |from: usize, to: usize| if from == to { Span::ZERO } else { Span::from_millis(10) };
    let delays = (0..3).map(|from| (0..3).map(|to| way(from, to)).collect()).collect();
    let mut config = Config::new(1, &["A", "B", "C"], delays);
    (config.sync, config.sessions) = (Span::from_millis(1), 0);
    config.nodes[1].sessions = Some(sessions);
    config.bandwidth = Some(bandwidth);
    config.horizon = Span::from_secs(40);
    let mut placement: Placement<Machine, F> = placement(3, 3, 0, Span::from_millis(20));
    tune(&mut placement);
    let mut large = Large {
        bytes,
        each,
        until: Instant::ZERO + Span::from_secs(12),
        asked: Vec::new(),
        done: 0,
        failed: 0,
        last: Instant::ZERO,
        slowest: Span::ZERO,
        since: BTreeMap::new(),
    };
    let mut cluster: Cluster<F> = Simulation::new(config, &placement);
    let report = cluster.run(&mut large);
    assert_eq!(report.violations, [], "{}", F::NAME);
    println!(
        "{:<16} {} done, {} failed, slowest {}, {} messages",
        F::NAME,
        large.done,
        large.failed,
        large.slowest,
        report.messages
    );
    large
}

/// A value that takes 1.2 s to leave a node, three times as long as silence is borne. It leaves twice in all, or three times
/// where who is asked is not who leads.
fn carries_a_large_value<F: Family>(tune: fn(&mut Placement<Machine, F>)) {
    let one = run::<F>(500_000, 1, 600_000, 1, tune);
    assert_eq!((one.done, one.failed), (1, 0), "{}", F::NAME);
    assert!(one.slowest < Span::from_secs(6), "{}: {}", F::NAME, one.slowest);
}

/// Thirty values of 20 KB under way, which is 1.2 s of what the leader's line carries, with two copies of each to send.
fn carries_a_load<F: Family>(tune: fn(&mut Placement<Machine, F>)) {
    let load = run::<F>(1_000_000, 30, 20_000, u64::MAX, tune);
    assert_eq!(load.failed, 0, "{}", F::NAME);
    // 25 a second could be.
    assert!(load.done > 150, "{}: {}", F::NAME, load.done);
}

/// Clients want twice as much under way as the queue towards the leader holds: what is lost of it is missed, and what is said behind
/// that is void. The line goes on carrying what counts.
fn goes_on_where_a_queue_overflows<F: Family>() {
    let load = run::<F>(1_000_000, 200, 20_000, u64::MAX, |_| {});
    let late = Instant::ZERO + Span::from_secs(11);
    assert!(load.last > late && load.done > 200, "{}: {} until {}", F::NAME, load.done, load.last);
}

/// Four values, one after another, each on its way for longer than half the time for which a client tries: what is carried of them is
/// what every replica needs, once, and not that of another replica which would be asked instead. A value is asked for while the last
/// copy of the one before leaves, and both are less than a queue holds.
fn carries_values_once<F: Family>() {
    let (bytes, bandwidth) = (400_000, 500_000);
    let four = run::<F>(bandwidth, 1, bytes, 4, |placement| {
        placement.service.limit = Span::from_secs(3);
    });
    assert_eq!((four.done, four.failed), (4, 0), "{}", F::NAME);
    let needed = Span::from_millis(4 * 2 * bytes as u64 * 1_000 / bandwidth);
    let end = Instant::ZERO + Span::from_secs(1) + needed;
    assert!(four.last < end + Span::from_millis(500), "{}: {} and not {end}", F::NAME, four.last);
}

/// The first replica holds a large value that nobody has decided, as does the third, from whom the second must be told of it in order to
/// go on, and dies. What is told takes 1.9 s, as long as silence is borne several times over. Somebody `at` another node or its own asked
/// for that value.
fn goes_on_without_who_held_a_large_value<F: Family>(at: NodeId) {
    let mut talk = Talk::<F>::over(Some(500_000), 0, |_| {});
    talk.pass(1_000);
    talk.cluster.freeze_disk(A);
    talk.cluster.connect(A, B, false);
    talk.ask(at, Command::Set(key(2), "x".repeat(950_000)));
    // One copy behind the other leaves the node where it was asked for.
    talk.pass(4_000);
    talk.cluster.crash(A);
    talk.ask(B, set("y"));
    talk.pass(12_000);
    assert_eq!(talk.cluster.broken(), None);
    let done = talk.answers.0.iter().filter(|outcome| matches!(outcome, Outcome::Replied(_))).count();
    assert_eq!(done, if at == A { 1 } else { 2 }, "{}: {:?}", F::NAME, talk.answers.0);
}

fn carries<F: Family>(tune: fn(&mut Placement<Machine, F>)) {
    carries_a_large_value::<F>(tune);
    carries_a_load::<F>(tune);
}

#[test]
fn multipaxos_lives_with_slow_lines() {
    carries::<multipaxos::Family>(|_| {});
    goes_on_where_a_queue_overflows::<multipaxos::Family>();
    goes_on_without_who_held_a_large_value::<multipaxos::Family>(A);
}

#[test]
fn mencius_lives_with_slow_lines() {
    carries::<mencius::Family>(|_| {});
    goes_on_without_who_held_a_large_value::<mencius::Family>(A);
}

#[test]
fn fastpaxos_lives_with_slow_lines() {
    carries::<fastpaxos::Family>(|_| {});
    goes_on_without_who_held_a_large_value::<fastpaxos::Family>(C);
}

#[test]
fn epaxos_lives_with_slow_lines() {
    carries::<epaxos::Family>(|_| {});
    carries_values_once::<epaxos::Family>();
}

#[test]
fn sdpaxos_lives_with_slow_lines() {
    carries::<sdpaxos::Family>(|_| {});
}

#[test]
fn domino_lives_with_slow_lines() {
    carries::<domino::Family>(|_| {});
}

#[test]
fn curp_lives_with_slow_lines() {
    carries::<curp::primary::Family>(|_| {});
    goes_on_where_a_queue_overflows::<curp::primary::Family>();
}

#[test]
fn curp_consensus_lives_with_slow_lines() {
    carries::<curp::consensus::Family>(|_| {});
    goes_on_where_a_queue_overflows::<curp::consensus::Family>();
}
