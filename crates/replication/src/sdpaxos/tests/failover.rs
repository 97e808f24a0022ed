//! A sequencer or a command leader dies: F7 to F10 of `specs/sdpaxos.md` 8.

use super::*;
use crate::sdpaxos::{Head, Image, Value};
use std::sync::Arc;

/// R1 is about to follow R0, which died or is not heard for a while, and dies at every step; with it, where R0 comes
/// back, R2, which may have installed the log of its view already.
fn new_sequencer_dies(with_leader: bool) {
    // What of the new view gets out: nothing, a request, the votes, the log to one, everything but the beats.
    let steps: [Filter; 4] = [
        |from, _, message| from != 1 || !matches!(message, Message::ViewRequest { .. }),
        |_, to, message| to != 1 || !matches!(message, Message::Vote { .. }),
        |from, to, message| to == 2 || from != 1 || !matches!(message, Message::NewView { .. }),
        |from, _, message| from != 1 || !matches!(message, Message::Turn { .. } | Message::Beat(_)),
    ];
    for (step, passes) in steps.into_iter().enumerate() {
        let mut group = Group::new(5, None);
        for node in 0..5 {
            group.propose(node, node as u8);
        }
        group.crash(&[0]);
        group.passes = passes;
        group.act(1, |order, effects| {
            order.grant = None;
            order.elect(None, effects);
        });
        (0..5).for_each(|node| group.orders[node].grant = None);
        group.deliver();
        let installed = group.orders[2].installed.owner == ReplicaId(1);
        assert_eq!(installed, step >= 2, "step {step}");
        let ready = group.ready[2].clone();
        group.crash(&[1]);
        if with_leader {
            group.crash(&[2]);
            group.down[0] = false;
        }
        group.passes = all;
        group.pass_millis(5_000);
        group.propose(3, 30);
        group.propose(4, 40);
        group.pass_millis(1_000);
        group.agree(7);
        assert!(ready.iter().all(|name| group.executed[3].contains(name)), "step {step}: answered and lost");
        group.restart(1);
        group.restart(if with_leader { 2 } else { 0 });
        group.pass_millis(3_000);
        group.propose(0, 50);
        group.pass_millis(1_000);
        group.agree(8);
        assert!(group.sequencer().is_some(), "step {step}");
    }
}

#[test]
fn f7_a_new_sequencer_dies_at_every_step() {
    new_sequencer_dies(false);
}

#[test]
fn f7_a_new_sequencer_dies_at_every_step_and_a_leader_with_it() {
    new_sequencer_dies(true);
}

#[test]
fn f8_a_command_leader_dies_at_every_step() {
    let steps: [Filter; 3] = [
        |from, to, _| from != 1 || to == 2,
        |from, to, message| from != 1 || to == 0 || !matches!(message, Message::Turn { .. }),
        |from, _, message| from != 1 || !tells(message),
    ];
    for (step, passes) in steps.into_iter().enumerate() {
        let mut group = Group::new(3, None);
        group.propose(2, 9);
        group.passes = passes;
        group.propose(1, 1);
        let answered = !group.ready[1].is_empty();
        group.crash(&[1]);
        group.passes = all;
        group.propose(2, 2);
        group.propose(0, 3);
        // Detection: the silence that makes a suspect, seen by the next beat. The two round trips of recovery behind it
        // take no time here.
        let parameters = group.setup.parameters;
        group.pass(parameters.election + parameters.heartbeat);
        for node in [0, 2] {
            // What was accepted without a slot may be given one behind them.
            let mut others = group.executed[node].clone();
            others.retain(|name| *name != 1);
            assert_eq!(others, [9, 2, 3], "step {step}");
            assert!(!answered || group.executed[node].contains(&1), "step {step}: answered and lost");
        }
        group.restart(1);
        group.pass_millis(2_000);
        group.propose(1, 4);
        group.pass_millis(500);
        group.agree(group.executed[0].len());
        assert!(group.executed[1].contains(&4), "step {step}");
    }
}

/// R0's command is decided, which only R2 has heard, and R0 crashes before that is written down. It takes its instances back
/// from R2, who has executed this one and so leaves it out; then R2 dies, before it has told what was in it.
#[test]
fn an_own_instance_that_only_the_dead_have_executed_is_proposed_again() {
    let mut group = Group::new(3, None);
    group.propose(0, 1);
    group.pass_millis(500);
    group.agree(1);
    group.passes = |_, to, _| to != 1;
    group.propose(0, 2);
    assert_eq!(group.executed[2], [1, 2]);
    group.crash(&[0]);
    // Of what was executed the record is made lazily.
    group.records[0].pop();
    group.executed[0].pop();
    group.restart(0);
    assert_eq!(group.executed[0], [1]);
    let lead = group.orders[0].spaces[0].lead.as_ref().expect("the instances are taken back");
    assert!(!lead.flights.contains_key(&2), "it was left out");
    group.crash(&[2]);
    group.passes = all;
    group.pass_millis(5_000);
    group.propose(1, 3);
    group.pass_millis(1_000);
    group.agree(3);
}

/// The sequencer stands still and speaks again in time, just before R1's or R2's patience ends. It has read nothing yet of what
/// they said meanwhile.
#[test]
fn a_sequencer_that_stood_still_speaks_before_it_has_listened() {
    let mut group = Group::new(3, None);
    group.pass_millis(500);
    let heartbeat = group.setup.parameters.heartbeat;
    let patience = group.orders[1].patience.min(group.orders[2].patience);
    let beat = group.timers[&(0, Timer::Beat)];
    let back = beat + patience.saturating_sub(heartbeat + Span::from_micros(1));
    group.timers.insert((0, Timer::Beat), back);
    group.keeps = true;
    group.passes = |_, to, _| to != 0;
    group.pass(back.since(group.now));
    (group.keeps, group.passes) = (false, all);
    let kept = std::mem::take(&mut group.kept);
    group.network.extend(kept);
    group.deliver();
    group.propose(1, 1);
    group.pass_millis(2_000);
    assert_eq!((group.sequencer(), group.orders[1].view), (Some(0), view(1, 0)));
    group.agree(1);
}

/// Where messages take no time, what passes is the silence that makes a suspect, which is as long as a lease, and the turn
/// of whoever comes next behind the dead, a quarter of it: in the place of the heartbeat of `specs/sdpaxos.md` 8, F9.
#[test]
fn f9_a_dead_sequencer_is_followed_as_soon_as_its_lease_is_over() {
    for count in [3, 5] {
        for phase in 0..10 {
            let mut group = Group::new(count, None);
            group.propose(1, 1);
            let parameters = group.setup.parameters;
            // It dies at any time between two heartbeats.
            group.pass(Span::from_millis(300) + parameters.heartbeat / 10 * phase);
            group.crash(&[0]);
            assert!(parameters.lease_length <= parameters.election);
            let (died, bound) = (group.now, parameters.election + parameters.election / 4);
            group.propose(1, 2);
            while group.ready[1].len() < 2 {
                assert!(group.pass_one(died + bound), "{count}, {phase}: not within {bound}");
            }
        }
    }
}

#[test]
fn f10_progress_needs_a_majority_and_nothing_is_lost_without() {
    let mut group = Group::new(5, None);
    group.propose(0, 1);
    group.crash(&[3, 4]);
    group.pass_millis(2_000);
    group.propose(1, 2);
    group.pass_millis(500);
    assert_eq!(group.ready[1], [2]);
    group.crash(&[0]);
    group.propose(1, 3);
    group.pass_millis(5_000);
    assert_eq!(group.ready[1], [2], "three of five are gone");
    group.restart(4);
    group.pass_millis(5_000);
    assert_eq!(group.ready[1], [2, 3]);
    group.restart(0);
    group.restart(3);
    group.pass_millis(5_000);
    group.agree(3);
}

/// R1 follows R0 once or, `again`, R0 follows it in turn; R2 hears nothing of either and takes in the state of whoever
/// leads. Then the log with which R1's view began arrives at R2, and everything passes.
fn old_log_after_newer_state(again: bool) -> Group {
    let mut group = Group::new(3, None);
    group.propose(0, 1);
    group.passes = |_, to, _| to != 2;
    group.keeps = true;
    let elect = |group: &mut Group, node: usize| {
        (0..3).for_each(|node| group.orders[node].grant = None);
        group.act(node, |order, effects| order.elect(None, effects));
        group.deliver();
    };
    elect(&mut group, 1);
    let first = group.orders[1].installed;
    assert_eq!(first.owner, ReplicaId(1));
    group.pass_millis(100);
    let leader = if again { 0 } else { 1 };
    if again {
        elect(&mut group, 0);
        group.pass_millis(100);
    }
    for name in 2..5 {
        group.propose(leader, name);
    }
    group.pass_millis(100);
    assert_eq!((group.sequencer(), group.executed[leader].len()), (Some(leader), 4));
    let position = group.orders[leader].position();
    group.act(2, |order, _| assert!(order.install(&position)));
    group.executed[2] = group.executed[leader].clone();
    assert!(group.orders[2].installed < first);
    let begins = |(_, _, message): &(usize, usize, Said)| matches!(message, Message::NewView { view, .. } if *view == first);
    let at = group.kept.iter().position(begins).expect("the log of the first view was sent to R2");
    let (from, to, log) = group.kept.swap_remove(at);
    (group.passes, group.keeps) = (all, false);
    group.act(to, |order, effects| order.receive(process(from), log, effects));
    assert_eq!(group.orders[2].installed < first, again);
    assert_eq!(group.orders[2].log.contiguous(), group.orders[2].executed);
    group.deliver();
    group
}

/// What a peer's state holds of a view is more than the log with which the view began.
#[test]
fn the_first_log_of_a_view_takes_back_nothing_of_a_state_of_that_view() {
    let mut group = old_log_after_newer_state(false);
    assert_eq!(group.owners(2)[..4], group.owners(1)[..4]);
    group.propose(2, 9);
    group.pass_millis(1_000);
    group.agree(5);
}

/// The log of a view that a state has left behind is not installed any more.
#[test]
fn the_log_of_a_view_before_that_of_the_state_is_not_installed() {
    let mut group = old_log_after_newer_state(true);
    group.pass_millis(5_000);
    group.propose(2, 9);
    group.pass_millis(1_000);
    group.agree(5);
}

/// Something of the instances of R0, or what is executed.
fn concerns_r0(message: &Said) -> bool {
    let of = |part: &Part<Letter>| match part {
        Part::Accept { owner, .. }
        | Part::Accepted { owner, .. }
        | Part::Refused { owner, .. }
        | Part::Commit { owner, .. }
        | Part::Decided { owner, .. }
        | Part::Prepare { owner, .. }
        | Part::Promised { owner, .. } => *owner == 0,
        _ => false,
    };
    matches!(message, Message::Learned { .. }) || parts(message).iter().any(of)
}

/// Of what was kept, the last such part arrives, for the first time or again; the answers are kept too.
fn arrives(group: &mut Group, from: usize, to: usize, what: fn(&Part<Letter>) -> bool) {
    let is = |kept: &&(usize, usize, Said)| {
        (kept.0, kept.1) == (from, to) && concerns_r0(&kept.2) && parts(&kept.2).iter().any(what)
    };
    let (_, _, message) = group.kept.iter().rev().find(is).cloned().expect("it was sent");
    group.act(to, |order, effects| order.receive(process(from), message, effects));
    group.deliver();
}

/// R1 prepares in R0's instances and is refused for R2's sake; then it answers R2 as one who has promised, and dies. R0,
/// which comes back, has a ballot below that.
#[test]
fn what_was_answered_as_promised_outlives_a_crash() {
    let accept: fn(&Part<Letter>) -> bool = |part| matches!(part, Part::Accept { .. });
    let accepted: fn(&Part<Letter>) -> bool = |part| matches!(part, Part::Accepted { .. });
    let prepare: fn(&Part<Letter>) -> bool = |part| matches!(part, Part::Prepare { .. });
    let promised: fn(&Part<Letter>) -> bool = |part| matches!(part, Part::Promised { .. });
    let refused: fn(&Part<Letter>) -> bool = |part| matches!(part, Part::Refused { .. });
    let mut group = Group::new(3, None);
    group.propose(0, 9);
    group.pass_millis(500);
    group.keeps = true;
    group.passes = |_, _, message| !concerns_r0(message);
    group.propose(0, 5);
    group.pass_millis(100);
    assert_eq!(group.owners(2), [0, 0], "R0 has a slot whose command nobody else knows");
    let now = group.now;
    group.act(1, |order, _| order.prepare(0, now));
    group.deliver();
    arrives(&mut group, 1, 2, prepare);
    group.act(2, |order, _| order.prepare(0, now));
    group.deliver();
    arrives(&mut group, 1, 2, prepare);
    arrives(&mut group, 2, 1, refused);
    arrives(&mut group, 2, 1, prepare);
    // The last answer to a question of R2.
    group.kept.retain(|(from, to, message)| {
        (*from, *to) != (1, 2) || parts(message).iter().any(|part| matches!(part, Part::Promised { .. }))
    });
    arrives(&mut group, 1, 2, promised);
    group.crash(&[1]);
    group.restart(1);
    arrives(&mut group, 0, 1, accept);
    arrives(&mut group, 1, 0, refused);
    arrives(&mut group, 0, 1, prepare);
    arrives(&mut group, 1, 0, promised);
    arrives(&mut group, 0, 1, accept);
    arrives(&mut group, 1, 0, accepted);
    assert_eq!(group.ready[0], [9, 5], "answered");
    arrives(&mut group, 2, 1, accept);
    let answers: Vec<_> = group.kept.iter().filter(|(from, to, _)| (*from, *to) == (1, 2)).cloned().collect();
    (group.passes, group.keeps) = (all, false);
    group.network.extend(answers);
    group.deliver();
    group.pass_millis(2_000);
    group.agree(2);
}

fn batch(name: u8) -> Value<Letter> {
    Value::Batch(Arc::from([write(name)]))
}

/// This comes to a member in a turn of another's, in the view that it has installed.
fn turn(group: &mut Group, from: usize, to: usize, parts: Vec<Part<Letter>>) {
    let head = Head { view: group.orders[to].installed, contiguous: 0, ordered: 0 };
    group.act(to, |order, effects| order.receive(process(from), Message::Turn { head, parts }, effects));
}

/// R0's commands are decided in its second ballot. R4 has them from the first, and hears of the decisions one by one; in
/// between comes what R1, whose ballot is dead, proposed in their place.
#[test]
fn what_a_dead_ballot_proposed_is_not_executed_at_a_restart() {
    let mut group = Group::new(5, None);
    group.passes = |_, _, _| false;
    let (owner, first, values) = (0, 1, (1..=3).map(batch).collect());
    let placed = Part::Ordered { owner, slots: vec![(1, 3)] };
    turn(&mut group, 0, 4, vec![placed, Part::Accept { owner, ballot: view(0, 0), first, values }]);
    let decided = |index: u8| {
        let (ballot, first, values) = (view(2, 0), u64::from(index), vec![batch(index)]);
        vec![Part::Decided { owner, ballot, first, values }]
    };
    turn(&mut group, 0, 4, decided(2));
    let values = vec![Value::NoOp; 3];
    turn(&mut group, 1, 4, vec![Part::Accept { owner, ballot: view(1, 1), first, values }]);
    turn(&mut group, 0, 4, decided(1));
    assert_eq!(group.executed[4], [1, 2]);
    group.crash(&[4]);
    group.restart(4);
    assert_eq!(group.executed[4], [1, 2]);
}

/// R3 takes R0's instances over and is heard by R1 alone; then R2 does, has R0's command from R0, and decides it. R0, which
/// has accepted it in no other ballot than its own, says in the next view that it is decided.
#[test]
fn a_commit_names_a_ballot_from_which_on_nothing_else_is_accepted() {
    let mut group = Group::new(5, None);
    group.passes = |_, _, _| false;
    group.propose(0, 7);
    let (owner, first) = (0, 1);
    let values = vec![Value::NoOp];
    turn(&mut group, 3, 1, vec![Part::Accept { owner, ballot: view(1, 3), first, values }]);
    let values = vec![batch(7)];
    turn(&mut group, 2, 0, vec![Part::Decided { owner, ballot: view(2, 2), first, values }]);
    assert_eq!(group.executed[0], [] as [u8; 0], "its slot is not known to be committed");
    let log = Arc::new(Image { low: 0, counts: vec![0; 5], runs: vec![(0, 1)] });
    for node in [0, 1] {
        let begins = Message::NewView { view: view(2, 4), active: true, begin: 1, log: log.clone() };
        group.act(node, |order, effects| order.receive(process(4), begins, effects));
    }
    assert_eq!(group.executed[0], [7]);
    group.passes = |from, to, _| (from, to) == (0, 1);
    group.deliver();
    assert_eq!(group.orders[1].executed, 0, "what R1 has accepted is not what was decided");
}

/// R4 does not know yet that its view is active when it is told what was executed in it, and then gets the log of the view as
/// far as that is still kept.
#[test]
fn what_is_learned_in_a_view_that_is_not_active_is_not_executed_by_a_replay_alone() {
    let mut group = Group::new(5, None);
    group.passes = |_, _, _| false;
    let view = view(2, 1);
    let tell = |group: &mut Group, message: Said| {
        group.act(4, |order, effects| order.receive(process(1), message, effects));
    };
    let begins = |low: u64| -> Said {
        let log = Arc::new(Image { low, counts: vec![low, 0, 0, 0, 0], runs: Vec::new() });
        Message::NewView { view, active: false, begin: 0, log }
    };
    let learned = Message::Learned { view, first: 1, slots: vec![(0, batch(1)), (0, batch(2))], executed: 2 };
    tell(&mut group, begins(0));
    tell(&mut group, learned.clone());
    tell(&mut group, begins(1));
    group.crash(&[4]);
    group.restart(4);
    assert_eq!(group.executed[4], [] as [u8; 0]);
    turn(&mut group, 1, 4, Vec::new());
    tell(&mut group, learned);
    assert_eq!(group.executed[4], [1, 2], "it is active");
}

/// Whoever leads is busy for a while with what the last one left; it is heard again as soon as another leads.
#[test]
fn sequencers_that_fall_silent_one_after_another_are_borne_longer_each_time() {
    for count in [3, 5] {
        let mut group = Group::new(count, None);
        group.pass_millis(500);
        let election = group.setup.parameters.election;
        let mut waited = Vec::new();
        for _ in 0..10 {
            let (head, silent) = (group.sequencer().expect("somebody leads"), group.now);
            group.crash(&[head]);
            group.pass_until_led(group.orders[head].view);
            waited.push(group.now.since(silent));
            group.down[head] = false;
            group.pass_millis(300);
        }
        assert!(waited[0] < election * 2 && waited[9] > election * 4, "{count}: {waited:?}");
    }
}

/// A voter that is asked again and again for its vote knows that the candidate lives.
#[test]
fn whoever_is_asked_again_for_its_vote_rivals_nobody() {
    let mut group = Group::new(3, None);
    group.pass_millis(500);
    group.crash(&[0]);
    // Neither gives up before the silence that is borne is over.
    (1..3).for_each(|node| group.orders[node].failures = 3);
    group.passes = |_, _, message| !matches!(message, Message::Vote { .. });
    while group.orders[2].view == view(1, 0) || group.orders[1].view == view(1, 0) {
        assert!(group.pass_one(group.now + Span::from_secs(1)), "somebody asks for votes");
    }
    let voted = group.orders[1].view;
    group.pass(group.setup.parameters.election * 5);
    assert_eq!((group.orders[1].view, group.orders[2].view), (voted, voted));
}
