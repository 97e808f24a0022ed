//! Masters that were given up and go on (T28), clients that go by what is no longer so (T35), records that were made
//! before a list changed (T40).

use super::actor::{Count, Wired, process};
use super::script::Play;
use super::world::parameters;
use isochrone_core::{Instant, NodeId, Process as _, Span};
use isochrone_replication::REPLICA;
use isochrone_replication::curp::primary::{MANAGER, Message as Spoken, WITNESS};
use isochrone_replication::message::Message;
use isochrone_replication::order::Reign;

const FOREVER: Instant = Instant::from_nanos(u64::MAX);

/// The old master hears of nothing any more; a client goes on reading there, others find the new one. How many reads
/// the old one answered meanwhile.
fn deposed(bug: Option<&str>, drift: [i64; 3]) -> Result<usize, String> {
    let plans = vec![vec![Count::add(1)], vec![], vec![Count::read(1)]];
    let mut play = Play::drifting(3, 1, plans, bug, drift.to_vec(), |parameters, _| {
        parameters.sync_delay = Span::ZERO;
        parameters.drift_ppm = 50_000;
    });
    play.comes(Play::is_done)?;
    play.pass(Span::from_millis(200));
    play.stubborn.insert(2);
    play.plans[2] = std::iter::repeat_n(Count::read(1), 4_000).collect();
    play.deaf = Some((NodeId(0), FOREVER));
    play.lead(1, [2]);
    let before = play.answered();
    play.comes(|play| play.registry.next.is_none())?;
    play.plans[1] = vec![Count::add(1), Count::add(1), Count::read(1)].into();
    play.comes(|play| play.plans[1].is_empty() && play.clients[1].asked.is_none())?;
    play.pass(Span::from_millis(300));
    match play.broken.take() {
        Some(text) => Err(text),
        None => Ok(play.answered() - before - 3),
    }
}

/// T28, D-14: while a lease of the old master may hold, the new one serves nobody; then the old one reads no more.
#[test]
fn a_zombie_reads_while_its_lease_holds_and_not_a_moment_longer() {
    for drift in [[0, 0, 0], [-50_000, 50_000, 0], [50_000, -50_000, 0]] {
        let reads = deposed(None, drift).unwrap();
        assert!(reads > 20, "{reads} reads under the old lease");
    }
    for bug in ["ignore-leases", "read-after-lease"] {
        let text = deposed(Some(bug), [0; 3]).unwrap_err();
        assert!(text.contains("counts 1"), "{bug}: {text}");
    }
    // The leases rest on the bound.
    assert!(deposed(None, [-400_000, 400_000, 0]).unwrap_err().contains("counts 1"));
}

/// T28: what a zombie executes is completed by no witness that the recovery has heard.
fn written_at_a_zombie(bug: Option<&str>) -> Result<(), String> {
    let mut play = Play::new(3, 1, vec![vec![Count::add(1)], vec![]], bug, |parameters, _| {
        parameters.sync_delay = Span::ZERO;
    });
    play.comes(Play::is_done)?;
    play.pass(Span::from_millis(100));
    play.deaf = Some((NodeId(0), FOREVER));
    play.stubborn.insert(0);
    play.lead(1, [2]);
    // Its witness has told what it holds: nothing.
    play.pass(Span::from_millis(30));
    play.plans[0] = vec![Count::add(1)].into();
    play.plans[1] = vec![Count::add(2)].into();
    play.comes(|play| play.plans[1].is_empty() && play.clients[1].asked.is_none())?;
    if play.clients[0].asked.is_none() {
        return Err("a zombie's answer was complete".to_owned());
    }
    play.stubborn.clear();
    play.ends_well()
}

#[test]
fn nothing_completes_at_a_zombie_once_its_witness_is_frozen() {
    written_at_a_zombie(None).unwrap();
    written_at_a_zombie(Some("accept-after-recovery")).unwrap_err();
}

/// T35: the old witness lives and knows of nothing; the master refuses who counts on it.
#[test]
fn who_goes_by_an_old_list_completes_nothing_by_it() {
    let mut play = Play::new(3, 1, vec![vec![Count::add(1)]], None, |parameters, _| {
        parameters.sync_delay = Span::from_millis(20);
    });
    play.until("an answer", Play::is_done);
    let old = play.clients[0].view.clone().unwrap();
    play.replace([2]);
    play.until("the new list", |play| play.registry.next.is_none());
    play.pass(Span::from_millis(80));
    play.stubborn.insert(0);
    play.plans[0] = vec![Count::add(1)].into();
    assert_eq!(play.clients[0].view.as_ref().unwrap().0, old.0, "it goes by the old list");
    play.until("an answer", Play::is_done);
    let new = play.clients[0].view.clone().unwrap();
    assert!(new.0 > old.0 && new.2[..] == [NodeId(2)], "{new:?}");
    assert_eq!(play.clients[0].last, Some((2, true)), "by the new witness");
    // Which is enough.
    play.lose([0, 1], [0, 1]);
    play.recover(1);
    play.ends_well().unwrap();
}

/// T40: the record comes before the list changes, the command behind that.
#[test]
fn a_record_under_an_old_list_is_worth_nothing_under_the_new_one() {
    for (copies, crash) in [([1], false), ([1], true), ([2], false), ([2], true)] {
        let mut play = Play::new(3, 1, vec![vec![]], None, |parameters, _| {
            parameters.sync_delay = Span::from_millis(20);
        });
        play.begin(0, Count::add(1));
        play.attempt(0, true, Span::from_millis(40));
        let late = play.net.iter().position(|(.., message)| matches!(message, Message::Requests { .. }));
        let late = play.net.remove(late.unwrap());
        play.idle.insert(0);
        play.until("a record", |play| play.witnesses[1].process.holds(1) == Some(1));
        play.replace(copies);
        play.until("the new list", |play| play.registry.next.is_none());
        play.net.push(late);
        play.pass(Span::from_millis(10));
        assert_eq!((play.answered(), play.fast), (0, 0), "an old record counts");
        if crash {
            play.lose([0], [0]);
            play.recover(1);
        }
        play.idle.clear();
        play.ends_well().unwrap();
        assert_eq!(play.clients[0].last.unwrap().0, 1);
    }
}

/// Copies speak when they are spoken to, and a master that stood still has asked none of them: the managers, who ask it first,
/// would give it up for copies that live.
#[test]
fn a_master_that_stood_still_calls_no_copy_silent_before_it_has_asked() {
    let mut play = Play::new(3, 2, vec![vec![Count::add(1)]], None, |_, _| {});
    play.ends_well().unwrap();
    let silence = parameters(2).silence;
    // What it says to the managers now; nothing else arrives.
    let told = |play: &mut Play| {
        play.net.clear();
        play.ping(0);
        while !play.net.is_empty() {
            let (from, to, message) = play.net.remove(0);
            if from.role == MANAGER || to.role == MANAGER {
                play.deliver(from, to, message);
            }
        }
        std::mem::replace(&mut play.silent, vec![NodeId(9)])
    };
    assert_eq!(told(&mut play), []);
    play.now = play.now + silence * 2;
    assert_eq!(told(&mut play), [], "its beat is late");
    let clock = play.clock(0);
    while let Some(timer) = play.servers[0].due(clock) {
        play.serve(0, |process, effects| process.expire(timer, effects));
    }
    assert_eq!(told(&mut play), [], "nobody can have answered yet");
    play.lose([1, 2], [1, 2]);
    play.pass(silence);
    assert_eq!(told(&mut play), [1, 2].map(NodeId), "they are gone");
}

/// The managers give a master up for its only copy, which is dead by then or dies before it has told anybody; the master
/// lives, so they have it go on with another copy. What its client was told stays, and what the dead one began comes to
/// nothing, also when it comes back.
#[test]
fn a_master_that_was_given_up_for_a_copy_that_is_dead_goes_on() {
    let mut runs = 0;
    for (unified, delay, comes_back) in [false, true]
        .into_iter()
        .flat_map(|unified| [(unified, 0, false), (unified, 20, false), (unified, 20, true)])
    {
        let plans =
            || vec![(1..8).map(Count::add).collect(), vec![Count::add(1), Count::add(2), Count::add(1)]];
        let mut before = Play::new(3, 1, plans(), None, |parameters, _| {
            (parameters.unified, parameters.sync_delay) = (unified, Span::from_millis(delay));
        });
        for turn in 0.. {
            if before.is_done() {
                break;
            }
            let mut play = before.clone();
            play.lose([1], [1]);
            play.lead(1, [0, 2]);
            (0..turn % 8).for_each(|_| play.turn());
            let given_up = play.registry.clone();
            assert!(given_up.recovers());
            play.replace([2]);
            play.until("it goes on", |play| play.registry.next.is_none());
            let now = play.registry.committed.clone().unwrap();
            assert_eq!((now.master, now.reign), (NodeId(0), Reign(3, 1)));
            if comes_back {
                play.gone.clear();
                play.restart_server(1);
            }
            play.ends_well()
                .unwrap_or_else(|text| panic!("unified {unified}, {delay} ms, turn {turn}: {text}"));
            runs += 1;
            // The next number is another one than that which came to nothing.
            play.lead(2, [1]);
            play.gone.extend([process(0, REPLICA), process(0, WITNESS)]);
            play.gone.remove(&process(1, REPLICA));
            play.gone.remove(&process(1, WITNESS));
            play.plans[0].push_back(Count::add(3));
            play.ends_well()
                .unwrap_or_else(|text| panic!("unified {unified}, {delay} ms, turn {turn}: {text}"));
            assert_eq!(play.registry.committed.as_ref().unwrap().reign, Reign(4, 1));
            before.turn();
        }
    }
    assert!(runs > 200, "{runs}");
}

/// The number of the master that this is of, if it is something that copies are sent or speaks of one, and whether it has
/// something of the log.
fn led(message: &Wired) -> Option<(u64, bool)> {
    let Message::Order { message, .. } = message else { return None };
    match message {
        Spoken::Beat(beat) => Some((beat.epoch, false)),
        Spoken::Fenced { epoch } => Some((*epoch, false)),
        Spoken::Replicate(run) => Some((run.epoch, !run.batches.is_empty())),
        _ => None,
    }
}

fn is_record(message: &Wired) -> bool {
    matches!(message, Message::Order { message: Spoken::Records { .. }, .. })
}

/// The managers give a master up for its copy, and that one up as well before its word has reached its own copy; the
/// master goes on with that. The candidate lives, and knows of nothing: when its word comes at last, what the master has
/// completed meanwhile stays.
#[test]
fn a_candidate_that_was_given_up_takes_nothing_from_the_copies_of_a_master_that_goes_on() {
    for unified in [false, true] {
        let mut play = Play::new(3, 1, vec![vec![Count::add(1); 3]], None, |parameters, _| {
            (parameters.unified, parameters.sync_delay) = (unified, Span::from_secs(2));
        });
        play.until("answers", Play::is_done);
        play.pass(Span::from_millis(100));
        play.lead(1, [2]);
        play.loses = |message| matches!(led(message), Some((2, _)));
        play.pass(Span::from_millis(60));
        assert_eq!(play.count("recoveries_begun"), 2, "it has begun");
        play.deaf = Some((NodeId(1), FOREVER));
        play.replace([2]);
        play.until("the master goes on", |play| play.registry.next.is_none());
        assert_eq!(play.registry.committed.as_ref().unwrap().master, NodeId(0));
        play.pass(Span::from_millis(100));
        // The copy has what follows in its log, and is not told that it is safe.
        play.loses = |message| matches!(led(message), Some((2, _) | (_, false))) || is_record(message);
        play.plans[0] = vec![Count::add(1)].into();
        play.until("an answer", Play::is_done);
        play.deaf = None;
        play.loses = |message| !matches!(led(message), None | Some((2, _)));
        play.pass(Span::from_millis(100));
        play.loses = |_| false;
        play.lose([0], [0]);
        play.recover(1);
        play.ends_well().unwrap_or_else(|text| panic!("unified {unified}: {text}"));
    }
}

/// A master that has forgotten what it had, in a crash, does not go on by itself, though it is told to.
#[test]
fn a_master_that_was_restarted_does_not_go_on() {
    let mut play = Play::new(3, 1, vec![vec![Count::add(1); 3]], None, |_, _| {});
    play.until("answers", Play::is_done);
    play.lead(1, [2]);
    play.lose([1], [1]);
    play.restart_server(0);
    play.replace([2]);
    play.pass(Span::from_secs(1));
    assert!(play.registry.next.is_some(), "{:?}", play.registry);
    play.gone.clear();
    play.lead(1, [2]);
    play.plans[0] = vec![Count::add(1)].into();
    play.ends_well().unwrap();
}
