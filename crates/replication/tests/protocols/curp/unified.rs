//! The unified form (3.16), step by step: T34, what a copy lacks, what comes late, what nobody needs.

use super::actor::{Count, Wired, process};
use super::script::Play;
use isochrone_core::{Instant, NodeId, Span};
use isochrone_replication::REPLICA;
use isochrone_replication::curp::primary::Message as Spoken;
use isochrone_replication::message::Message;

const FOREVER: Instant = Instant::from_nanos(u64::MAX);

fn play(f: u16, clients: usize, bug: Option<&str>) -> Play {
    Play::new(2 * f + 1, f, vec![vec![]; clients], bug, |parameters, _| {
        (parameters.unified, parameters.sync_delay) = (true, Span::ZERO);
    })
}

fn is_request(message: &Wired) -> bool {
    matches!(message, Message::Requests { .. })
}

fn is_record(message: &Wired) -> bool {
    matches!(message, Message::Order { message: Spoken::Records { .. }, .. })
}

const COMMANDS: u8 = 4;

/// Commands that their witnesses made complete; of these the two copies have moved so many to their logs.
fn moved(progress: [u64; 2], bug: Option<&str>) -> Play {
    let mut play = play(2, 1, bug);
    let (_, end) = play.servers[0].process.order().extent();
    play.curbed = (1..).map(NodeId).zip(progress.map(|progress| end.plus(progress))).collect();
    play.plans[0] = (1..=COMMANDS).map(Count::add).collect();
    play.until("answers", Play::is_done);
    play.pass(Span::from_millis(20));
    assert_eq!(play.fast, u64::from(COMMANDS));
    for (node, progress) in (1..).zip(progress) {
        let held = u64::from(COMMANDS) - progress;
        assert_eq!(play.holds(node, 1), Some(held as usize), "of node {node}");
        assert_eq!(play.servers[node].process.order().extent().1, end.plus(progress));
    }
    play
}

fn pairs() -> impl Iterator<Item = [u64; 2]> {
    let all = u64::from(COMMANDS);
    (0..=all).flat_map(move |one| (0..=all).map(move |other| [one, other]))
}

/// T34: whatever each of two copies has moved, either of them alone has everything.
#[test]
fn of_two_that_have_moved_differently_either_is_enough() {
    for (progress, survivor) in pairs().flat_map(|progress| [(progress, 1), (progress, 2)]) {
        let mut play = moved(progress, None);
        play.lose([0, 3 - survivor], []);
        play.curbed.clear();
        play.lead(survivor, [3, 4]);
        let ended = play.ends_well();
        assert_eq!(ended, Ok(()), "{progress:?} moved, {survivor} survives");
    }
}

/// T34: the log of one node with the witness of another misses what the first has yet to move and the second has moved.
#[test]
fn the_log_of_one_with_the_witness_of_another_is_not() {
    for progress in pairs() {
        let mut play = moved(progress, Some("mix-nodes"));
        play.lose([0], []);
        play.curbed.clear();
        play.lead(2, [3, 4]);
        let ended = play.ends_well();
        assert_eq!(ended.is_err(), progress[0] > progress[1], "{progress:?} moved: {ended:?}");
        if let Err(text) = ended {
            assert!(text.contains("counts 0 of"), "{progress:?}: {text}");
        }
    }
}

/// T34, with two that recover and fail: what a copy gave up for the first of them it gets back from the second at once,
/// though it lies far behind in that one's log and is in no store any more.
#[test]
fn what_was_given_up_for_one_that_failed_comes_whole_from_the_next() {
    let mut play = play(3, 5, None);
    let (_, end) = play.servers[0].process.order().extent();
    play.curbed.insert(NodeId(3), end.next());
    // No witness keeps as much, and not all copies have it.
    for client in 0..4 {
        play.begin(client, Count::Add(vec![10 + client as u8; 600_000].into()));
        play.attempt(client, true, Span::from_millis(500));
        play.pass(Span::from_millis(5));
    }
    play.plans[4].push_back(Count::add(1));
    play.until("an answer", |play| play.plans[4].is_empty() && play.clients[4].asked.is_none());
    assert_eq!(play.fast, 1);
    play.pass(Span::from_millis(20));
    let ends = |play: &Play| [1, 2, 3].map(|node: usize| play.servers[node].process.order().extent().1);
    assert_eq!(ends(&play), [end.plus(5), end.plus(5), end.next()]);
    play.lose([0], []);
    play.deaf = Some((NodeId(1), FOREVER));
    play.curbed.clear();
    play.lead(3, [1, 2]);
    play.until("the log of the first", |play| ends(play)[1] == end.plus(2));
    play.lose([3], []);
    play.forget_sent();
    play.deaf = None;
    play.lead(1, [2, 4]);
    for turn in 0..60 {
        let mut play = play.clone();
        (0..turn).for_each(|_| play.turn());
        play.lose([1], []);
        play.forget_sent();
        play.lead(2, [4, 5]);
        play.ends_well().unwrap_or_else(|text| panic!("the second fails after {turn}: {text}"));
    }
}

/// What is recorded is only named, and needs no collection; what is not is asked for, and sent whole.
#[test]
fn what_a_copy_does_not_hold_it_asks_for() {
    let mut play = play(2, 2, None);
    play.plans[0] = (0..20).map(Count::add).collect();
    play.until("answers", Play::is_done);
    play.pass(Span::from_millis(40));
    assert_eq!((play.fast, play.named, play.count("runs_lacking")), (20, 2 * 20, 0));
    assert_eq!((play.count("collections"), play.holds(1, 1), play.holds(2, 1)), (0, Some(0), Some(0)));
    play.loses = is_record;
    play.begin(1, Count::add(100));
    play.attempt(1, true, Span::from_millis(500));
    let (_, end) = play.servers[0].process.order().extent();
    play.pass(Span::from_millis(20));
    assert_eq!((play.named, play.count("runs_lacking")), (2 * 20 + 2, 2));
    for node in 0..3 {
        assert_eq!(play.servers[node].process.order().extent(), (end.next(), end.next()), "at {node}");
    }
    play.loses = |_| false;
    play.ends_well().unwrap();

    // Another one comes behind a run that waits, and waits with it; it is taken in with that.
    play.loses = |message| {
        is_record(message) || matches!(message, Message::Order { message: Spoken::Supplied { .. }, .. })
    };
    for (index, key) in [(0, 101), (1, 102)] {
        play.begin(index, Count::add(key));
        play.attempt(index, true, Span::from_millis(500));
        play.pass(Span::from_millis(5));
    }
    let before = play.count("runs_lacking");
    assert_eq!(play.servers[1].process.order().extent().1, end.next(), "it cannot go on");
    // After a while everything is sent whole.
    play.pass(Span::from_millis(200));
    assert_eq!(play.servers[1].process.order().extent().1, end.plus(3));
    assert_eq!(play.count("runs_lacking"), before, "nothing is named twice");
    play.loses = |_| false;
    play.ends_well().unwrap();
    assert_eq!(play.holds(1, 1), Some(0));
}

#[test]
fn a_request_that_is_dropped_where_it_is_not_held_is_missed() {
    let mut play = play(1, 1, Some("drop-missing"));
    play.loses = is_record;
    play.plans[0] = vec![Count::add(1)].into();
    let text = play.ends_well().unwrap_err();
    assert!(text.contains("is decided twice"), "{text}");
}

/// D-30: a record that comes when its request is in the log is accepted, and not kept.
fn late(bug: Option<&str>) -> Play {
    let mut play = play(1, 2, bug);
    play.begin(0, Count::add(7));
    play.attempt(0, true, Span::from_millis(40));
    let late: Vec<_> = play.net.extract_if(.., |(.., message)| is_record(message)).collect();
    assert_eq!(late.len(), 1);
    play.idle.insert(0);
    play.pass(Span::from_millis(100));
    assert_eq!((play.answered(), play.count("runs_lacking")), (0, 1));
    play.net.extend(late);
    play.until("an answer", |play| play.answered() == 1);
    assert_eq!(play.clients[0].last, Some((1, true)), "by its witness");
    play
}

#[test]
fn a_late_record_is_accepted_and_not_kept() {
    assert_eq!(late(None).holds(1, 1), Some(0));
    assert_eq!(late(Some("store-again")).holds(1, 1), Some(1));
    // Also if the copy has lost power since.
    let mut play = late(None);
    let late = Spoken::Records {
        reign: play.clients[0].view.clone().unwrap().0,
        requests: vec![super::world::request(&play.clients[0], 7)],
    };
    play.restart_server(1);
    let client = play.clients[0].id.process;
    play.net.push((client, process(1, REPLICA), Message::Order { epoch: 0, message: late }));
    play.pass(Span::from_millis(20));
    assert_eq!(play.holds(1, 1), Some(0));
    play.ends_well().unwrap();
}

/// T37: a record whose command never comes stands in the way of four writes.
#[test]
fn an_orphan_stands_in_the_way_of_four_writes() {
    let mut play = play(1, 2, None);
    play.begin(0, Count::add(7));
    play.attempt(0, true, Span::from_millis(40));
    assert_eq!(play.net.extract_if(.., |(.., message)| is_request(message)).count(), 1);
    play.idle.insert(0);
    play.until("an orphan", |play| play.holds(1, 1) == Some(1));
    let mut ways = Vec::new();
    for _ in 1..=8 {
        play.plans[1].push_back(Count::add(7));
        play.until("a write", Play::is_done);
        ways.push(play.clients[1].last.unwrap().1);
        play.pass(Span::from_millis(60));
    }
    assert_eq!(ways, [false, false, false, false, true, true, true, true]);
    assert_eq!((play.count("requests_suspected"), play.holds(1, 1)), (1, Some(0)));
    play.ends_well().unwrap();
}

/// Handed over by hand there and back: each time from the new master's own node.
#[test]
fn a_master_hands_over_to_a_witness() {
    for start in (0..60).step_by(3) {
        let mut play = play(2, 3, None);
        play.plans = [1, 2, 3].map(|key| vec![Count::add(key), Count::add(4), Count::read(1)].into()).into();
        (0..start).for_each(|_| play.turn());
        for (old, heir) in [(0, 2), (2, 0)] {
            play.hand_over(old, heir);
            play.until("the heir", |play| {
                let now = play.registry.committed.as_ref();
                play.registry.next.is_none() && now.is_some_and(|now| now.master == NodeId(heir))
            });
            play.plans[0].push_back(Count::add(1));
            play.ends_well().unwrap();
        }
    }
}

/// The knob is changed under a keyspace that has been in use, either way: who recovers has not what it needs, and nobody
/// leads. Changed back, nothing is lost.
#[test]
fn a_form_is_for_life() {
    for first in [false, true] {
        let mut play = Play::new(3, 1, vec![vec![]], None, |parameters, _| {
            (parameters.unified, parameters.sync_delay) = (first, Span::from_secs(60));
        });
        play.plans[0] = (1..=COMMANDS).map(Count::add).collect();
        play.until("answers", Play::is_done);
        assert_eq!(play.fast, u64::from(COMMANDS));
        let change = |play: &mut Play, unified: bool| {
            play.unified = unified;
            for at in 0..3 {
                play.servers[at].setup.parameters.unified = unified;
                play.flush(at);
                play.restart_server(at);
            }
            play.lead(1, [2]);
        };
        change(&mut play, !first);
        let reign = play.registry.committed.clone().unwrap().reign;
        play.pass(Span::from_secs(3));
        assert_eq!(play.registry.committed.as_ref().unwrap().reign, reign, "unified first: {first}");
        assert!(play.count("witnesses_without_contents") > 0);
        change(&mut play, first);
        play.ends_well().unwrap();
    }
}
