//! Another master by hand: nothing is replayed, nothing is lost, whoever crashes meanwhile (3.17's planned change).

use super::actor::{Count, Wired};
use super::script::{Play, nodes};
use isochrone_core::{Instant, NodeId, Slot, Span};
use isochrone_replication::Refusal;
use isochrone_replication::curp::primary::Message as Spoken;
use isochrone_replication::curp::primary::registry::Command as Decree;
use isochrone_replication::message::Message;

const FOREVER: Instant = Instant::from_nanos(u64::MAX);

fn play(f: u16, bug: Option<&str>) -> Play {
    let (add, read) = (Count::add, Count::read);
    let plans = vec![
        vec![add(1), add(2), add(1), read(2), add(3)],
        vec![add(3), read(1), add(2), add(4)],
        vec![add(5), add(1), add(5)],
    ];
    Play::new(2 * f + 1, f, plans, bug, |parameters, _| parameters.sync_delay = Span::from_millis(20))
}

/// Whether a server says that it serves nobody any more.
fn gives_word(message: &Wired) -> bool {
    matches!(message, Message::Order { message: Spoken::Pong { report, .. }, .. } if report.heir.is_some())
}

fn leads(play: &Play, node: u16) -> bool {
    play.registry.next.is_none()
        && play.registry.committed.as_ref().is_some_and(|now| now.master == NodeId(node))
}

#[test]
fn a_master_hands_over_and_nothing_is_replayed() {
    for start in (0..90).step_by(3) {
        let mut play = play(2, None);
        (0..start).for_each(|_| play.turn());
        play.hand_over(0, 2);
        let (asked, old) = (play.now, play.registry.committed.clone().unwrap().reign);
        play.until("the heir", |play| leads(play, 2));
        let took = play.now.since(asked);
        assert!(took < Span::from_millis(120), "{took}: no lease is waited for");
        assert!(play.registry.committed.as_ref().unwrap().reign > old);
        play.ends_well().unwrap();
        // Those that came while nobody took them may be kept by witnesses; what was answered is with the copies.
        assert_eq!((play.count("handovers_begun"), play.count("masters_begun")), (1, 2), "begun at {start}");
        // And back.
        play.hand_over(2, 0);
        play.until("the first", |play| leads(play, 0));
        play.plans[0].push_back(Count::add(1));
        play.ends_well().unwrap();
    }
    // Quiet, there is nothing to replay.
    let mut play = play(1, None);
    play.ends_well().unwrap();
    play.hand_over(0, 1);
    play.until("the heir", |play| leads(play, 1));
    assert_eq!(play.count("requests_replayed"), 0);
}

#[test]
fn whoever_crashes_in_a_change_by_hand_is_replaced() {
    for lost in [0, 1, 2] {
        let mut before = play(2, None);
        (0..25).for_each(|_| before.turn());
        before.hand_over(0, 1);
        let mut runs = 0;
        for turn in 0..150 {
            if before.is_done() && leads(&before, 1) {
                break;
            }
            runs += 1;
            let mut play = before.clone();
            play.lose([lost], [lost]);
            let now_is = play.registry.next.clone().or(play.registry.committed.clone()).unwrap();
            if now_is.names(NodeId(lost)) {
                // As the managers would, in time.
                play.pass(Span::from_millis(100));
                let now_is = play.registry.next.clone().or(play.registry.committed.clone()).unwrap();
                if now_is.master == NodeId(lost) || play.registry.recovers() {
                    play.recover(2);
                } else if now_is.names(NodeId(lost)) {
                    let copies: Vec<u16> =
                        (1..5).filter(|n| *n != lost && *n != now_is.master.0).take(2).collect();
                    play.replace(copies);
                }
            }
            play.ends_well().unwrap_or_else(|text| panic!("{lost} is lost at turn {turn}: {text}"));
            before.turn();
        }
        assert!(runs > 30, "{runs}");
    }
}

/// The heir is gone before the managers act: the master goes on under another list.
#[test]
fn a_master_that_gave_its_word_goes_on_only_under_another_list() {
    let mut play = play(1, None);
    play.ends_well().unwrap();
    play.lose([1], [1]);
    play.hand_over(0, 1);
    // Everything is with its copies already: the word is given, and nobody hears of it but the managers.
    let version = play.registry.version;
    play.loses = gives_word;
    play.plans[0].push_back(Count::add(1));
    let answered = play.answered();
    play.pass(Span::from_millis(300));
    assert_eq!(play.answered(), answered, "it serves nobody");
    assert_eq!(play.registry.version, version);
    play.loses = |_| false;
    play.replace([2]);
    play.ends_well().unwrap();
    assert!(leads(&play, 0));
}

/// A spare that nothing of the log comes to is to be a copy. The master goes on meanwhile, whether it was told to hand over
/// when it heard of that or is told to then.
#[test]
fn who_is_told_to_hand_over_waits_for_no_copy_that_joins() {
    for told in [true, false] {
        let plans = vec![vec![Count::add(1), Count::add(2)]];
        let mut play =
            Play::new(3, 1, plans, None, |parameters, _| parameters.sync_delay = Span::from_millis(20));
        play.ends_well().unwrap();
        play.curbed.insert(NodeId(2), Slot::ZERO);
        // The managers agree on the list before they hear of the word.
        play.loses = gives_word;
        if told {
            play.hand_over(0, 1);
            play.pass(Span::from_millis(20));
        }
        play.replace([1, 2]);
        play.pass(Span::from_millis(20));
        if !told {
            play.hand_over(0, 1);
        }
        play.pass(Span::from_millis(200));
        assert_eq!(play.administered, [Err(Refusal::Busy)], "told before: {told}");
        let answered = play.answered();
        play.plans[0].push_back(Count::add(1));
        play.pass(Span::from_millis(200));
        assert_eq!(play.answered(), answered + 1, "told before: {told}");
        play.curbed.clear();
        play.loses = |_| false;
        play.until("the list", |play| play.registry.next.is_none());
        play.ends_well().unwrap();
        assert!(leads(&play, 0));
    }
}

/// No lease of the old master is waited for: it must not read once it has given its word.
fn read_behind_a_word(bug: Option<&str>) -> Result<(), String> {
    let mut play =
        Play::new(3, 1, vec![vec![Count::add(1)], vec![], vec![Count::read(1)]], bug, |parameters, _| {
            parameters.sync_delay = Span::ZERO;
        });
    play.comes(Play::is_done)?;
    play.pass(Span::from_millis(100));
    play.loses = gives_word;
    play.hand_over(0, 1);
    play.pass(Span::from_millis(20));
    // It hears of nothing from here on; and another takes its place among the copies.
    play.deaf = Some((NodeId(0), FOREVER));
    let (version, master) = (play.registry.version, NodeId(1));
    assert!(play.agree(&Decree::HandOver { version, master, copies: nodes([2]) }));
    play.comes(|play| play.registry.next.is_none())?;
    play.plans[1].push_back(Count::add(1));
    play.idle.insert(2);
    play.comes(Play::is_done)?;
    play.idle.clear();
    play.stubborn.insert(2);
    play.plans[2] = vec![Count::read(1); 3].into();
    play.comes(Play::is_done).map(drop)
}

#[test]
fn a_master_that_gave_its_word_reads_no_more() {
    read_behind_a_word(None).unwrap();
    assert!(read_behind_a_word(Some("serve-after-yield")).unwrap_err().contains("counts 1"));
}

/// Two messages that are lost in the next test: the word, which the test passes on, and that the old reign is over, which
/// the witness of a node that is cut off does not hear.
fn is_cut(message: &Wired) -> bool {
    gives_word(message) || matches!(message, Message::Order { message: Spoken::End { .. }, .. })
}

/// `nearby_reads` is switched off node by node, first at the heir. A copy that clients read at hears of nothing from the
/// moment on when the master is told to hand over.
fn read_at_a_copy_behind_a_word(bug: Option<&str>) -> Result<(), String> {
    let mut play =
        Play::new(4, 2, vec![vec![Count::add(1)], vec![], vec![Count::read(1)]], bug, |parameters, _| {
            (parameters.sync_delay, parameters.nearby_reads) = (Span::ZERO, true);
            parameters.lease_length = Span::from_secs(1);
        });
    play.servers[1].setup.parameters.nearby_reads = false;
    play.restart_server(1);
    play.pass(Span::from_secs(2));
    play.comes(Play::is_done)?;
    play.near_at = Some(1);
    play.plans[2].push_back(Count::read(1));
    play.comes(Play::is_done)?;
    assert_eq!(play.near, 1, "the second copy reads");
    play.deaf = Some((NodeId(2), FOREVER));
    play.hand_over(0, 1);
    play.comes(|play| play.net.iter().any(|(.., message)| gives_word(message)))?;
    play.net.retain(|(.., message)| !gives_word(message));
    play.loses = is_cut;
    let (version, master) = (play.registry.version, NodeId(1));
    assert!(play.agree(&Decree::HandOver { version, master, copies: nodes([3]) }));
    play.comes(|play| play.registry.next.is_none())?;
    play.plans[1].push_back(Count::add(1));
    play.comes(Play::is_done)?;
    // It goes by what it knew.
    play.stubborn.insert(2);
    play.near_at = Some(1);
    play.plans[2].push_back(Count::read(1));
    play.comes(|play| play.near_at.is_none())?;
    play.stubborn.clear();
    play.comes(Play::is_done).map(drop)
}

#[test]
fn a_master_gives_its_word_when_no_copy_reads_any_more() {
    read_at_a_copy_behind_a_word(None).unwrap();
    assert!(read_at_a_copy_behind_a_word(Some("drop-readers-at-once")).unwrap_err().contains("counts 1"));
}
