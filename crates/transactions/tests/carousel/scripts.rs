//! What happens to one transaction, step by step (`specs/carousel.md` 9.2, 9.3).

use crate::latency::{Alone, PLACEMENT_A, key, unit};
use crate::script::Play;
use isochrone_core::{Blob, NodeId, Span};
use isochrone_sim::{Action, FaultKind, Planned};
use isochrone_transactions::carousel::{Basic, Fast, Parameters};
use isochrone_transactions::{Family, Outcome, Reason, Refusal, Request, Tuning as _, Update};
use std::slice::from_ref;

const RTT: Span = Span::from_millis(20);

fn play<F: Family>() -> Play<F> {
    Play::new(&Alone::new(unit(6, RTT), &PLACEMENT_A))
}

fn committed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Committed { .. })
}

/// Every test for both variants.
macro_rules! both {
    ($($name:ident => $test:ident,)+) => {
        $(#[test]
        fn $name() {
            $test::<Basic>();
            $test::<Fast>();
        })+
    };
}

both! {
    write_skew_is_refused => write_skew,
    blind_writers_do_not_mix => blind_writers,
    readers_share => readers,
    who_comes_again_goes_before_the_younger_for_a_while => precedence,
    what_is_declared_and_not_written_stays => subset,
    a_pending_writer_is_in_the_way_of_readers_at_a_moment => moments,
    a_client_that_dies_before_it_commits_leaves_nothing => dead_client,
    a_client_that_dies_after_it_asked_to_commit_is_not_needed => dead_committer,
    a_commit_survives_its_coordinator => dead_coordinator,
    what_may_not_be_asked_is_refused_with_the_reason => refusals,
    thousands_are_forgotten_at_once => many,
}

/// S3.
fn write_skew<F: Family>() {
    let mut play = play::<F>();
    let keys = [key(1), key(2)];
    let (first, _) = play.begin(3, &keys, from_ref(&keys[0]));
    let (second, _) = play.begin(4, &keys, from_ref(&keys[1]));
    let first = play.commit(3, first, &[(&keys[0], "a")]);
    let second = play.commit(4, second, &[(&keys[1], "b")]);
    let both = [play.wait(first), play.wait(second)];
    assert!(!both.iter().all(committed), "{both:?}");
}

/// S4.
fn blind_writers<F: Family>() {
    let mut play = play::<F>();
    let keys = [key(1), key(2)];
    for round in 0..5 {
        let (first, _) = play.begin(3, &[], &keys);
        let (second, _) = play.begin(4, &[], &keys);
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let first = play.commit(3, first, &[(&keys[0], a.as_str()), (&keys[1], a.as_str())]);
        let second = play.commit(4, second, &[(&keys[0], b.as_str()), (&keys[1], b.as_str())]);
        play.wait(first);
        play.wait(second);
        let values = play.values(0, &keys);
        assert_eq!(values[0], values[1]);
    }
}

/// S7.
fn readers<F: Family>() {
    let mut play = play::<F>();
    let shared = key(1);
    let own = |region: u16| Blob::from(format!("{region}:own"));
    let begun: Vec<_> = (0..5)
        .map(|region| (region, play.begin(region, from_ref(&shared), from_ref(&own(region))).0))
        .collect();
    let tickets: Vec<_> =
        begun.iter().map(|(region, txn)| play.commit(*region, *txn, &[(&own(*region), "x")])).collect();
    for ticket in tickets {
        let outcome = play.wait(ticket);
        assert!(committed(&outcome), "{outcome:?}");
    }
}

/// A reader was in the way of a writer for some round trips: the next one is refused, and the writer, that comes again, is not. Then all go on,
/// also where the writer does not come.
fn precedence<F: Family>() {
    let mut play = play::<F>();
    let (read, own) = (Blob::from("1:read"), Blob::from("1:own"));
    let write = |play: &mut Play<F>| {
        let (txn, _) = play.begin(4, &[], from_ref(&read));
        let ticket = play.commit(4, txn, &[(&read, "v")]);
        play.wait(ticket)
    };
    let look = |play: &mut Play<F>| {
        let (txn, reads) = play.begin(5, from_ref(&read), from_ref(&own));
        let ticket = play.commit(5, txn, &[(&own, "x")]);
        (play.wait(ticket), reads[0].value.clone())
    };
    let refuse = |play: &mut Play<F>| {
        let (first, _) = play.begin(3, from_ref(&read), from_ref(&own));
        for _ in 0..3 {
            assert_eq!(write(play), Outcome::Aborted(Reason::Conflict));
            play.run(RTT * 2);
        }
        let first = play.commit(3, first, &[(&own, "x")]);
        assert!(committed(&play.wait(first)));
        play.run(RTT * 3);
        assert_eq!(look(play).0, Outcome::Aborted(Reason::Conflict));
    };
    refuse(&mut play);
    assert!(committed(&write(&mut play)));
    play.run(RTT * 4);
    let (outcome, value) = look(&mut play);
    assert!(committed(&outcome), "{outcome:?}");
    assert_eq!(value, Some("v".into()));
    play.run(RTT * 4);
    refuse(&mut play);
    play.run(RTT * 20);
    let (outcome, _) = look(&mut play);
    assert!(committed(&outcome), "{outcome:?}");
}

/// S6.
fn subset<F: Family>() {
    let mut play = play::<F>();
    let keys = [key(1), key(2)];
    let (txn, _) = play.begin(0, &keys, &keys);
    let ticket = play.commit(0, txn, &[(&keys[0], "one")]);
    assert!(committed(&play.wait(ticket)));
    assert_eq!(play.values(5, &keys), [Some("one".to_owned()), None]);
    let (txn, _) = play.begin(0, &keys, &keys);
    let ticket = play.ask(0, Request::Abort { txn });
    assert_eq!(play.wait(ticket), Outcome::Aborted(Reason::Client));
    play.run(RTT * 4);
    let (txn, _) = play.begin(4, &keys, &keys);
    let ticket = play.commit(4, txn, &[(&keys[1], "two")]);
    assert!(committed(&play.wait(ticket)), "nothing is pending");
    assert_eq!(play.values(5, &keys), ["one", "two"].map(|text| Some(text.to_owned())));
}

/// S8: a read at a moment is refused while a writer is prepared, takes the long way, and sees all of it or nothing.
fn moments<F: Family>() {
    let mut play = play::<F>();
    let keys = [key(1), key(2)];
    let (txn, _) = play.begin(3, &[], &keys);
    let commit = play.commit(3, txn, &[(&keys[0], "x"), (&keys[1], "x")]);
    let reads: Vec<_> = (0..20)
        .map(|_| {
            play.run(Span::from_millis(2));
            play.ask(4, Request::Begin { reads: keys.to_vec(), writes: Vec::new() })
        })
        .collect();
    assert!(committed(&play.wait(commit)));
    let mut seen = 0;
    for ticket in reads {
        if let Outcome::Snapshot { reads, .. } = play.wait(ticket) {
            assert_eq!(reads[0].value, reads[1].value);
            seen += 1;
        }
    }
    assert!(seen > 0);
}

/// F1: nobody hears of it any more, and its keys are free within `h + 1` heartbeats.
fn dead_client<F: Family>() {
    let mut play = play::<F>();
    let keys = [key(1), key(2)];
    play.begin(5, &keys, &keys);
    play.cluster.kill(play.client(5));
    play.run(Span::from_millis(500 * 7) + RTT * 4);
    let (txn, _) = play.begin(4, &keys, &keys);
    let ticket = play.commit(4, txn, &[(&keys[0], "v")]);
    assert!(committed(&play.wait(ticket)));
}

/// F1.
fn dead_committer<F: Family>() {
    let mut play = play::<F>();
    let keys = [key(1), key(2)];
    let (txn, _) = play.begin(5, &keys, &keys);
    play.commit(5, txn, &[(&keys[0], "a"), (&keys[1], "b")]);
    play.run(RTT);
    play.cluster.kill(play.client(5));
    play.run(Span::from_secs(3));
    assert_eq!(play.values(0, &keys), ["a", "b"].map(|text| Some(text.to_owned())));
}

/// F4: told, then the coordinator's node dies before the decision is replicated; it led a participant too.
fn dead_coordinator<F: Family>() {
    let mut play = play::<F>();
    let keys = [key(1), key(2)];
    let (txn, _) = play.begin(5, &keys, &keys);
    let ticket = play.commit(5, txn, &[(&keys[0], "a"), (&keys[1], "b")]);
    assert!(committed(&play.wait(ticket)));
    // A client that stands alone is coordinated by the participant with the lowest number.
    play.cluster.crash(NodeId(1));
    play.run(Span::from_secs(4));
    assert_eq!(play.values(0, &keys), ["a", "b"].map(|text| Some(text.to_owned())));
    play.cluster.restart(NodeId(1));
    play.run(Span::from_secs(2));
    assert_eq!(play.values(3, &keys), ["a", "b"].map(|text| Some(text.to_owned())));
}

fn refusals<F: Family>() {
    let mut play = play::<F>();
    let keys = [key(1), key(2)];
    let mut refused = |request: Request| {
        let ticket = play.ask(0, request);
        match play.wait(ticket) {
            Outcome::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    };
    let begin =
        |reads: &[Blob], writes: &[Blob]| Request::Begin { reads: reads.to_vec(), writes: writes.to_vec() };
    assert_eq!(refused(begin(&[], &[])), Refusal::Empty);
    assert_eq!(refused(begin(&[keys[0].clone(), keys[0].clone()], &[])), Refusal::Twice(keys[0].clone()));
    let many: Vec<Blob> = (0..10_001).map(|number| Blob::from(format!("0:{number}"))).collect();
    assert_eq!(refused(begin(&many, &[])), Refusal::TooLarge { what: "keys", found: 10_001, most: 10_000 });
    let (txn, _) = play.begin(0, &[], from_ref(&keys[0]));
    let update = |key: &Blob| vec![Update { key: key.clone(), value: None }];
    let ticket = play.ask(0, Request::Commit { txn, updates: update(&keys[1]) });
    assert_eq!(play.wait(ticket), Outcome::Refused(Refusal::Undeclared(keys[1].clone())));
    let ticket = play.ask(0, Request::Commit { txn, updates: update(&keys[0]) });
    assert!(committed(&play.wait(ticket)), "what was refused left it open");
    let ticket = play.ask(0, Request::Abort { txn });
    assert_eq!(play.wait(ticket), Outcome::Refused(Refusal::NotOpen(txn)));
}

/// S5: what a follower served was not the latest any more.
#[test]
fn a_stale_read_at_a_follower_never_commits() {
    let mut alone = Alone::<Fast>::new(unit(6, RTT), &PLACEMENT_A);
    alone.tune = |parameters: &mut Parameters| parameters.early_abort = true;
    let mut play = Play::new(&alone);
    let x = key(1);
    let mut stale = 0;
    for round in 0..30 {
        let (writer, _) = play.begin(1, from_ref(&x), from_ref(&x));
        let write = play.commit(1, writer, &[(&x, "new")]);
        // The leader applies the outcome before its follower does.
        play.run(RTT + Span::from_millis(round));
        let (reader, reads) = play.begin(3, from_ref(&x), from_ref(&x));
        let version = reads[0].version;
        let read = play.commit(3, reader, &[(&x, "newer")]);
        play.wait(write);
        match play.wait(read) {
            Outcome::Aborted(Reason::StaleRead) => stale += 1,
            Outcome::Committed { at } => assert!(at > version),
            Outcome::Aborted(_) => {}
            other => panic!("{other:?}"),
        }
        play.run(RTT * 5);
    }
    assert!(stale > 0, "no follower was ever behind");
}

/// F2: a client is cut off and taken for dead; its coordinator has told the participants and dies; then the client asks
/// the successor to commit.
fn silent_and_back(bug: bool) -> (Outcome, Vec<Option<String>>) {
    let mut alone = Alone::<Basic>::new(unit(6, RTT), &PLACEMENT_A);
    if bug {
        alone.tune = |parameters: &mut Parameters| assert!(parameters.plant("abort-unreplicated"));
    }
    // A client that stands alone is coordinated by the participant with the lowest number.
    let links = vec![(5, 1), (1, 5)];
    let (at, length) = (Span::from_millis(10_100), Span::from_millis(4_500));
    let action = Action::Cut { links, held: false };
    let faults = vec![Planned { at, length, kind: FaultKind::Partition, action }];
    let mut play = Play::with_faults(&alone, faults);
    let keys = [key(1), key(2)];
    let (txn, _) = play.begin(5, &keys, &keys);
    play.run(Span::from_millis(4_300));
    play.cluster.crash(NodeId(1));
    let ticket = play.commit(5, txn, &[(&keys[0], "a"), (&keys[1], "b")]);
    let told = play.wait(ticket);
    play.run(Span::from_secs(5));
    (told, play.values(4, &keys))
}

#[test]
fn who_was_taken_for_dead_cannot_commit_any_more() {
    let (told, values) = silent_and_back(false);
    assert_eq!((told, values), (Outcome::Aborted(Reason::HeartbeatLost), vec![None, None]));
    // Where that is not replicated before it shows, the successor knows nothing of it.
    let (told, values) = silent_and_back(true);
    assert!(committed(&told) && values.iter().any(Option::is_none), "{told:?} {values:?}");
}

/// The leader of a coordinating group has a successor of which it does not hear. It goes on: that it does not know a
/// transaction, or that a participant does not, is no decision, and nobody is told so.
#[test]
fn a_coordinator_that_has_a_successor_decides_nothing_by_what_it_does_not_know() {
    // The coordinators are in regions 0 to 2, the other participant's leader in 3, clients in 4 to 6.
    let mut alone = Alone::<Basic>::new(unit(7, RTT), &[[0, 1, 2], [3, 4, 5]]);
    alone.tune = |parameters| parameters.log.election = Span::from_secs(60);
    let mut play = Play::new(&alone);
    let keys = [key(0), key(1)];
    play.depose(0, 2);
    play.connect(&[(0, 3), (0, 4)], false);
    let (txn, _) = play.begin(4, &keys, &keys);
    let ticket = play.commit(4, txn, &[(&keys[0], "a"), (&keys[1], "b")]);
    assert!(committed(&play.wait(ticket)), "by the successor");
    play.run(RTT * 10);
    // The participant asks whether it may forget that one, whoever it believes to lead: the last to tell it of an end.
    play.connect(&[(0, 3)], true);
    play.connect(&[(1, 3), (2, 3)], false);
    let split = play.cluster.now();
    let (open, _) = play.begin(4, &keys[1..], &keys[1..]);
    let refused = play.ask(5, Request::Begin { reads: keys.to_vec(), writes: keys.to_vec() });
    play.run(Span::from_secs(4));
    let said = play.conversation(split);
    assert!(said.contains("r0.role0 -> r3.role0.p1 Writeback"), "a refusal is told at once: {said}");
    assert!(said.contains("r3.role0.p1 -> r0.role0 Closable"), "{said}");
    assert!(!said.contains("r0.role0 -> r3.role0.p1 Closed"), "it knows nothing of that: {said}");
    let ticket = play.commit(4, open, &[(&keys[1], "c")]);
    assert!(committed(&play.wait(ticket)));
    // A client does not reach the participant, which refuses its transaction for good when it is asked.
    play.connect(&[(3, 6)], false);
    play.run(Span::from_secs(1));
    let split = play.cluster.now();
    let unknown = play.ask(6, Request::Begin { reads: Vec::new(), writes: keys.to_vec() });
    assert!(matches!(play.wait(unknown), Outcome::Begun { .. }));
    play.run(Span::from_secs(6));
    let said = play.conversation(split);
    assert!(said.contains("r3.role0.p1 -> r0.role0 Prepared"), "{said}");
    assert!(!said.contains("r0.role0 -> r3.role0.p1 Writeback"), "it may have ended otherwise: {said}");
    play.connect(&[(0, 1), (0, 2), (0, 4), (1, 3), (2, 3), (3, 6)], true);
    play.run(Span::from_secs(10));
    assert!(play.answer(refused).is_some());
    assert_eq!(play.values(5, &keys), ["a", "c"].map(|text| Some(text.to_owned())));
}

/// However fast transactions come, what they were does not pile up.
fn many<F: Family>() {
    let last = play::<F>().forgetting(10_000, "Drop");
    assert!(last < Span::from_millis(1_200), "{last}");
}

/// Where the versions that votes tell are compared with a log that has trimmed a deletion since, a commit of the fast path that
/// was acknowledged is lost with the leader. When exactly the deletion goes depends on the leader's beat: all moments are tried.
#[test]
fn a_fast_commit_that_has_read_a_deletion_survives_that_it_is_trimmed() {
    let mut recovered = 0;
    for late in 0..150 {
        let mut alone = Alone::<Fast>::new(unit(6, RTT), &PLACEMENT_A);
        alone.tune = |parameters: &mut Parameters| parameters.keep = Span::from_secs(2);
        let mut play = Play::new(&alone);
        let [gone, other] = ["0:gone", "0:other"].map(Blob::from);
        let (txn, _) = play.begin(3, &[], from_ref(&gone));
        let ticket = play.commit(3, txn, &[(&gone, "v")]);
        assert!(committed(&play.wait(ticket)));
        play.run(RTT * 4);
        let (txn, _) = play.begin(3, &[], from_ref(&gone));
        let updates = vec![Update { key: gone.clone(), value: None }];
        let ticket = play.ask(3, Request::Commit { txn, updates });
        assert!(committed(&play.wait(ticket)));
        play.run(Span::from_millis(1_900 + late * 4));
        // All vote on it, while what the leader sends to its followers of it is lost.
        let (reads, writes) = (vec![gone.clone()], vec![other.clone()]);
        let ticket = play.ask(3, Request::Begin { reads, writes });
        play.run(Span::from_millis(9));
        play.connect(&[(0, 1), (0, 2)], false);
        let Outcome::Begun { txn, .. } = play.wait(ticket) else { panic!("it is begun") };
        let ticket = play.commit(3, txn, &[(&other, "kept")]);
        play.run(RTT * 3);
        let fast = play.answer(ticket).is_some_and(committed);
        play.cluster.crash(NodeId(0));
        play.run(Span::from_secs(6));
        assert!(committed(&play.wait(ticket)) || !fast);
        if fast {
            recovered += 1;
            assert_eq!(play.values(4, from_ref(&other)), [Some("kept".to_owned())], "late by {late}");
        }
    }
    assert!(recovered > 100, "{recovered}");
}
