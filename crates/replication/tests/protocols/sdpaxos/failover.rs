//! How long clients of the others wait when a member dies, in round trips: F8 and F9 of `specs/sdpaxos.md` 8.

use crate::latency::Measured;
use isochrone_core::{Instant, Matrix, NodeId, RegionId, Span};
use isochrone_replication::sdpaxos::Family;
use isochrone_replication::service::Reply;

const RTT: Span = Span::from_millis(100);

/// A group of `count` members, all a round trip apart, whose clients are answered at commit or at execution.
fn group(count: usize, reply: Reply) -> Measured<Family> {
    let names: Vec<String> = (0..count).map(|at| format!("r{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let matrix = Matrix::from_fn(&names, |from, to| if from == to { Span::ZERO } else { RTT / 2 });
    let replicas: Vec<RegionId> = matrix.regions().collect();
    let mut measured = Measured::<Family>::new(&matrix, &replicas);
    measured.tune = match reply {
        Reply::Execute => |_| {},
        Reply::Commit => |placement| {
            placement.service.reply = Reply::Commit;
            placement.parameters.reply = Reply::Commit;
        },
    };
    measured
}

/// For how long a client beside another is answered nothing, at most, when one dies while all write all the time: at any
/// time between two heartbeats.
fn longest_silence(mut group: Measured<Family>, dead: u16) -> Span {
    let mut longest = Span::ZERO;
    for phase in 0..8 {
        group.dead = vec![NodeId(dead)];
        group.crash = Span::from_millis(10_500) + group.placement().parameters.heartbeat / 8 * phase;
        let mut answers: Vec<(NodeId, Instant)> = Vec::new();
        for (node, asked, wait) in group.together(200, Span::from_millis(10), true) {
            answers.push((node, asked + wait));
        }
        answers.sort_unstable();
        let pairs = answers.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        longest = pairs.map(|pair| pair[1].1.since(pair[0].1)).fold(longest, Span::max);
    }
    longest
}

/// The silence that makes a suspect, which is as long as a lease, and the turn of whoever comes next, a quarter of it. In
/// half round trips: the poll (2), the votes (2), the notice (1), at five that a majority has the log, and that it is
/// active (2); and a command's own round trip (2). What the dead said last comes as late as what it answered last.
#[test]
fn f9_a_dead_sequencer_is_followed_when_its_lease_is_over_and_some_round_trips_later() {
    for (count, halves) in [(3, 7), (5, 9)] {
        let group = group(count, Reply::Commit);
        let parameters = group.placement().parameters;
        assert!(parameters.lease_length <= parameters.election);
        let bound = parameters.election + parameters.election / 4 + RTT / 2 * halves;
        let longest = longest_silence(group, 0);
        println!("{count}: {longest}, at most {bound}");
        assert!(longest <= bound, "{count}: {longest}, not {bound}");
        assert!(longest >= parameters.election, "{count}: {longest}, before its lease was over");
    }
}

/// The silence that makes a suspect, and the beat that sees it; then the two round trips of recovery, and half of one
/// until its news are there.
#[test]
fn f8_a_dead_command_leader_blocks_the_log_for_its_detection_and_two_round_trips() {
    for count in [3, 5] {
        let group = group(count, Reply::Execute);
        let parameters = group.placement().parameters;
        let bound = parameters.election + parameters.heartbeat + RTT / 2 * 5;
        let longest = longest_silence(group, 1);
        println!("{count}: {longest}, at most {bound}");
        assert!(longest <= bound, "{count}: {longest}, not {bound}");
        assert!(longest >= parameters.election, "{count}: {longest}, before anybody could know");
    }
}
