//! What witnesses hold that nobody needs any more (T37, T38), and clients that are over (T32).

use super::actor::{Count, Wired, process};
use super::script::Play;
use super::world::request;
use isochrone_core::{NodeId, Span};
use isochrone_replication::curp::primary::Message as Spoken;
use isochrone_replication::curp::witness::Shape;
use isochrone_replication::message::Message;
use isochrone_replication::{CLIENT, REPLICA};

fn is_request(message: &Wired) -> bool {
    matches!(message, Message::Requests { .. })
}

fn is_record(message: &Wired) -> bool {
    matches!(message, Message::Order { message: Spoken::Records { .. }, .. })
}

fn is_acked(message: &Wired) -> bool {
    matches!(message, Message::Order { message: Spoken::Acked { .. }, .. })
}

fn is_collected(message: &Wired) -> bool {
    matches!(message, Message::Order { message: Spoken::Collected { .. }, .. })
}

fn play(clients: usize) -> Play {
    Play::new(3, 1, vec![vec![]; clients], None, |parameters, _| parameters.sync_delay = Span::ZERO)
}

/// A client dies: of what it sent only this arrives, the rest never or too late.
fn orphaned(executed: bool) -> Play {
    let mut play = play(2);
    play.begin(0, Count::add(7));
    play.attempt(0, true, Span::from_millis(40));
    let late: Vec<_> = play.net.extract_if(.., |(.., message)| is_record(message)).collect();
    assert_eq!(late.len(), 1);
    play.idle.insert(0);
    if executed {
        play.pass(Span::from_millis(100));
        assert_eq!(play.witnesses[1].process.holds(1), Some(0), "it is collected already");
    } else {
        let lost = play.net.extract_if(.., |(.., message)| is_request(message)).count();
        assert_eq!(lost, 1);
    }
    play.net.extend(late);
    play.until("an orphan", |play| play.witnesses[1].process.holds(1) == Some(1));
    play
}

/// T37: four writes take the long way, the fourth makes it known, and two collections later it is gone; executed
/// once, whether it had been or not.
#[test]
fn an_orphan_stands_in_the_way_of_four_writes() {
    for executed in [false, true] {
        let mut play = orphaned(executed);
        let mut ways = Vec::new();
        for number in 1..=8 {
            play.plans[1].push_back(Count::add(7));
            play.until("a write", Play::is_done);
            ways.push(play.clients[1].last.unwrap().1);
            let before = play.count("collections");
            play.pass(Span::from_millis(60));
            let rounds = play.count("collections") - before;
            assert!(rounds <= 2, "{rounds} collections behind write {number}");
        }
        assert_eq!(ways, [false, false, false, false, true, true, true, true]);
        assert_eq!(play.count("requests_suspected"), 1);
        play.ends_well().unwrap();
    }
}

/// 3.8: its key is only read, and only what others write goes on. Reads at the copy make it known as writes would, and are
/// answered there again once it is gone.
#[test]
fn an_orphan_is_found_by_who_only_reads_its_key() {
    for unified in [false, true] {
        let mut play = Play::new(3, 1, vec![vec![]; 2], None, |parameters, _| {
            (parameters.sync_delay, parameters.nearby_reads) = (Span::ZERO, true);
            parameters.unified = unified;
        });
        play.begin(0, Count::add(7));
        play.attempt(0, true, Span::from_millis(40));
        assert_eq!(play.net.extract_if(.., |(.., message)| is_request(message)).count(), 1);
        play.idle.insert(0);
        play.until("an orphan", |play| play.holds(1, 1) == Some(1));
        let mut near = Vec::new();
        for key in 1..=5 {
            play.plans[1].push_back(Count::add(key));
            play.until("a write", Play::is_done);
            play.pass(Span::from_millis(60));
            let before = play.near;
            play.near_at = Some(0);
            play.plans[1].push_back(Count::read(7));
            play.until("a read", Play::is_done);
            near.push(play.near > before);
        }
        assert_eq!(near, [false, false, false, true, true], "unified: {unified}");
        assert_eq!((play.count("requests_suspected"), play.holds(1, 1)), (1, Some(0)));
        play.ends_well().unwrap();
    }
}

/// 3.8: a witness suspects what it is told to forget as soon as a copy that is farther has it, or is about to be told to.
#[test]
fn what_is_to_be_forgotten_all_the_same_is_not_run_again() {
    type Loses = fn(&Wired) -> bool;
    let cases: [(Loses, bool, bool); 3] =
        [(is_acked, false, true), (is_acked, true, true), (is_collected, false, false)];
    for (loses, unified, open) in cases {
        let mut play = Play::new(3, 1, vec![vec![]], None, |parameters, _| {
            (parameters.sync_delay, parameters.unified) = (Span::ZERO, unified);
        });
        play.loses = loses;
        play.plans[0].extend([Count::add(1), Count::add(7)]);
        play.until("writes", Play::is_done);
        play.pass(Span::from_millis(20));
        let (full, end) = play.servers[0].process.order().extent();
        assert_eq!(full < end, open, "{full} of {end}");
        let suspects = vec![request(&play.clients[0], 7).1];
        let message = Spoken::Collected { master: 1, round: 0, suspects };
        let (witness, master) = (play.witness(NodeId(1)), process(0, REPLICA));
        play.deliver(witness, master, Message::Order { epoch: 0, message });
        let (_, after) = play.servers[0].process.order().extent();
        assert_eq!(after, end, "unified: {unified}, open: {open}");
        play.loses = |_| false;
        play.ends_well().unwrap();
    }
}

/// T38: what is to be forgotten is never heard of; then it is.
#[test]
fn lost_collections_cost_room_and_no_more() {
    let lost: [fn(&Wired) -> bool; 2] =
        [|message| matches!(message, Message::Order { message: Spoken::Collect { .. }, .. }), is_collected];
    for (loses, most_fast) in lost.into_iter().zip([60, 200]) {
        let mut play = Play::new(3, 1, vec![vec![]], None, |parameters, _| {
            parameters.sync_delay = Span::ZERO;
            parameters.witness = Shape { slots: 16, ways: 4, ..Shape::default() };
        });
        play.loses = loses;
        let mut most = 0;
        for number in 0..200_u64 {
            play.plans[0].push_back(Count::add((number % 100) as u8));
            play.until("a write", Play::is_done);
            most = most.max(play.witnesses[1].process.holds(1).unwrap());
        }
        assert!(most > 8 && most <= 16, "{most} of 16 slots");
        assert!(play.fast < most_fast, "{} by a full witness", play.fast);
        play.loses = |_| false;
        play.pass(Span::from_millis(300));
        assert_eq!(play.witnesses[1].process.holds(1), Some(0));
        let fast = play.fast;
        play.plans[0].extend((0..50).map(Count::add));
        play.until("writes", Play::is_done);
        assert_eq!(play.fast - fast, 50);
        play.ends_well().unwrap();
    }
}

/// T32: a client completes some and falls silent; its session ends while the master crashes, somewhere; copies of
/// what it recorded come late.
fn expired(bug: Option<&str>) -> Result<usize, String> {
    let plans = vec![vec![Count::add(1), Count::add(2), Count::add(1)], vec![Count::add(3); 120]];
    let mut before = Play::new(3, 1, plans, bug, |parameters, service| {
        parameters.sync_delay = Span::from_millis(20);
        service.session_idle = Span::from_millis(60);
    });
    let (mut late, mut runs, mut injected) = (Vec::new(), 0, None);
    for turn in 0.. {
        let own = before.clients[0].id.process;
        let records = before.net.iter().filter(|(from, _, message)| *from == own && is_record(message));
        let fresh: Vec<_> = records.filter(|sent| !late.contains(*sent)).cloned().collect();
        late.extend(fresh);
        if injected.is_none()
            && before.count("expiries") > 0
            && before.witnesses[1].process.holds(1) == Some(0)
        {
            injected = Some(turn);
            before.net.extend(late.clone());
        }
        if before.is_done() || injected.is_some_and(|at| turn > at + 60) {
            break;
        }
        if turn % 5 == 0 || injected.is_some() {
            runs += 1;
            let mut play = before.clone();
            play.lose([0], [0]);
            play.lead(1, [2]);
            // Only what is asked for so far.
            play.plans[1].truncate(2);
            play.ends_well().map_err(|text| format!("turn {turn}, late ones at {injected:?}: {text}"))?;
        }
        before.turn();
    }
    assert!(injected.is_some() && late.len() == 3, "{injected:?}, {} records", late.len());
    Ok(runs)
}

#[test]
fn a_session_may_end_while_the_master_crashes() {
    let runs = expired(None).unwrap();
    assert!(runs > 60, "{runs}");
    let text = expired(Some("execute-forgotten")).unwrap_err();
    assert!(!text.contains("Stuck"), "{text}");
}

/// T4: a read of what is safe, under leases, asks nobody else.
#[test]
fn a_clean_read_asks_neither_witness_nor_backup() {
    let mut play = play(1);
    play.plans[0].push_back(Count::add(1));
    play.until("a write", Play::is_done);
    play.pass(Span::from_millis(100));
    let beats: fn(&Wired) -> bool = |message| {
        matches!(
            message,
            Message::Order {
                message: Spoken::Beat { .. }
                    | Spoken::Heard { .. }
                    | Spoken::Ping { .. }
                    | Spoken::Pong { .. },
                ..
            }
        )
    };
    play.begin(0, Count::read(1));
    play.attempt(0, true, Span::from_millis(40));
    let mut said = Vec::new();
    while play.clients[0].asked.is_some() {
        said.extend(play.net.iter().filter(|(.., message)| !beats(message)).map(|(_, to, _)| to.role));
        play.net.retain(|(.., message)| !beats(message));
        play.turn();
    }
    said.dedup();
    assert_eq!(said, [REPLICA, CLIENT]);
}
