//! A group without a majority stalls the transactions that touch it, and no others (`specs/carousel.md` 9.3, F15).

use crate::latency::{Alone, PLACEMENT_A, apart, key, unit};
use crate::script::Play;
use isochrone_core::{Blob, NodeId, PartitionId, Span, Ticket};
use isochrone_replication::Change;
use isochrone_transactions::carousel::{Basic, Fast};
use isochrone_transactions::{Family, Outcome, Refusal, Request, carousel, tapir, twopc};
use std::slice::from_ref;

/// Writes a key, and waits for a second.
fn write<F: Family>(play: &mut Play<F>, client: u16, key: &Blob) -> Ticket {
    let (txn, _) = play.begin(client, &[], from_ref(key));
    let ticket = play.commit(client, txn, &[(key, "v")]);
    play.run(Span::from_secs(1));
    ticket
}

fn commits<F: Family>(play: &mut Play<F>, client: u16, key: &Blob) {
    let ticket = write(play, client, key);
    let answer = play.answer(ticket);
    assert!(matches!(answer, Some(Outcome::Committed { .. })), "{}: {client}, {key:?}: {answer:?}", F::NAME);
}

/// Two nodes fail, and a group has no majority: the one of this number, first led at the node of the same number, which the
/// client would have coordinate. It writes to a group that is whole, and so does the other client.
fn stalls_no_others<F: Family>(stalled: u16, dead: [u16; 2], client: u16, whole: u16, other: u16) {
    let mut play = Play::<F>::new(&Alone::new(unit(6, Span::from_millis(20)), &PLACEMENT_A));
    dead.iter().for_each(|node| play.cluster.crash(NodeId(*node)));
    play.run(Span::from_secs(5));
    let keys: Vec<Blob> = (0..12).map(|number| Blob::from(format!("{whole}:{number}"))).collect();
    let lost = write(&mut play, client, &keys[0]);
    keys[1..10].iter().for_each(|key| commits(&mut play, client, key));
    keys[1..10].iter().for_each(|key| commits(&mut play, other, key));
    // From here on nobody waits for the group.
    assert_eq!(play.wait(lost), Outcome::Unknown, "{}", F::NAME);
    commits(&mut play, client, &keys[10]);
    dead.iter().for_each(|node| play.cluster.restart(NodeId(*node)));
    play.run(Span::from_secs(10));
    play.change(stalled, Change::Lead(NodeId(stalled)));
    play.run(Span::from_secs(2));
    // What was left of the one that was lost has ended.
    commits(&mut play, other, &keys[0]);
    // The group is found to be back, and coordinates again.
    commits(&mut play, client, &keys[11]);
    let since = play.cluster.now();
    commits(&mut play, client, &keys[1]);
    let coordinator = match stalled {
        0 => "r0.role0".to_owned(),
        _ => format!("r{stalled}.role0.p{stalled}"),
    };
    let said = play.conversation(since);
    assert!(said.contains(&format!(" -> {coordinator} Commit")), "{}: {said}", F::NAME);
}

/// The leader beside the client is left, and says that it leads no more.
#[test]
fn transactions_that_do_not_touch_a_group_without_a_majority_go_on() {
    stalls_no_others::<Basic>(1, [3, 4], 1, 0, 0);
    stalls_no_others::<Fast>(1, [3, 4], 1, 0, 0);
    stalls_no_others::<twopc::Family>(1, [3, 4], 1, 0, 0);
}

/// No leader is near the client, and the first of those at one distance is gone and says nothing.
#[test]
fn a_coordinator_that_says_nothing_is_passed_over() {
    stalls_no_others::<twopc::Family>(0, [0, 1], 5, 2, 2);
}

/// Only the line is cut between a client and the leader nearest to it, which it would have coordinate. The others of that
/// group say that this one leads, which is true and no help.
fn reaches_others<F: Family>() {
    let millis = |a: usize, b: usize| if (a.min(b), a.max(b)) == (1, 5) { 2 } else { 20 };
    let matrix = apart(6, |a, b| Span::from_millis(millis(a, b)));
    let mut play = Play::<F>::new(&Alone::new(matrix, &PLACEMENT_A));
    play.connect(&[(1, 5)], false);
    let keys: Vec<Blob> = (0..20).map(|number| Blob::from(format!("2:{number}"))).collect();
    let lost = write(&mut play, 5, &keys[0]);
    keys[1..].iter().for_each(|key| commits(&mut play, 5, key));
    let answer = play.answer(lost);
    assert!(!matches!(answer, Some(Outcome::Committed { .. })), "{}: it was reached", F::NAME);
}

#[test]
fn a_coordinator_that_only_this_client_does_not_reach_is_passed_over() {
    reaches_others::<Basic>();
    reaches_others::<Fast>();
    reaches_others::<twopc::Family>();
}

/// Three groups on nine nodes; nobody but the first client is beside the leader of the first. It has asked for a commit of a key
/// of each of the two others, so long ago; then two nodes fail.
struct Doubt<F: Family> {
    play: Play<F>,
    keys: [Blob; 2],
    ticket: Ticket,
    dead: [u16; 2],
    what: String,
}

impl<F: Family> Doubt<F> {
    fn new(
        (tune, movable): (fn(&mut F::Parameters), bool),
        (late, kill, dead): (u64, bool, [u16; 2]),
    ) -> Doubt<F> {
        let alone = Alone::<F>::new(unit(9, Span::from_millis(20)), &[[0, 1, 2], [3, 4, 5], [6, 7, 8]]);
        let mut play = Play::new(&Alone { tune, movable, ..alone });
        commits(&mut play, 3, &Blob::from("1:before"));
        let keys = [key(1), key(2)];
        let (txn, _) = play.begin(0, &keys, &keys);
        let ticket = play.commit(0, txn, &[(&keys[0], "a"), (&keys[1], "a")]);
        play.run(Span::from_millis(late));
        if kill {
            play.cluster.kill(play.client(0));
        }
        dead.iter().for_each(|node| play.cluster.crash(NodeId(*node)));
        let what = format!("{}: {dead:?} fail {late} ms behind the question", F::NAME);
        Doubt { play, keys, ticket, dead, what }
    }

    fn back(&mut self) {
        self.dead.iter().for_each(|node| self.play.cluster.restart(NodeId(*node)));
    }

    /// It has one end, which is what its client was told if it was told any, and nothing is left of it. Whether it has committed.
    fn has_one_end(&mut self, told: Option<&Outcome>) -> bool {
        let Doubt { play, keys, what, .. } = self;
        let keys: &[Blob; 2] = keys;
        let values = play.values(3, keys);
        let both = |text: &str| [Some(text.to_owned()), Some(text.to_owned())];
        let (all, nothing) = (values == both("a"), values == [None, None]);
        let right = match told {
            Some(Outcome::Committed { .. }) => all,
            Some(Outcome::Aborted(_)) => nothing,
            Some(Outcome::Unknown) | None => all || nothing,
            Some(_) => false,
        };
        assert!(right, "{what}: {told:?}, and there is {values:?}");
        // While keys move, the directory's entries are written too, which is a conflict for some round trips.
        let mut outcome = None;
        for _ in 0..5 {
            let (txn, _) = play.begin(6, keys, keys);
            let ticket = play.commit(6, txn, &[(&keys[0], "b"), (&keys[1], "b")]);
            outcome = Some(play.wait(ticket));
            if matches!(outcome, Some(Outcome::Committed { .. })) {
                break;
            }
            play.run(Span::from_secs(1));
        }
        assert!(matches!(outcome, Some(Outcome::Committed { .. })), "{what}: it is in the way: {outcome:?}");
        play.run(Span::from_secs(10));
        assert_eq!(play.values(3, keys), both("b"), "{what}: it has ended twice");
        assert_eq!(play.values(6, &[Blob::from("1:before")]), [Some("v".to_owned())], "{what}");
        all
    }
}

/// The group that coordinates loses its majority at some moment of a commit: nobody else waits, and once it is back, what
/// it had left open has one end.
fn ends_once<F: Family>(tune: fn(&mut F::Parameters)) {
    let (mut committed, mut unknown) = (0, 0);
    for late in [0, 12, 25, 45, 65, 90] {
        let mut doubt = Doubt::<F>::new((tune, false), (late, false, [1, 2]));
        let Doubt { play, ticket, .. } = &mut doubt;
        play.run(Span::from_secs(5));
        // By this one its client learns that nobody coordinates there, at the latest.
        write(play, 0, &Blob::from("1:first"));
        for client in [0, 3, 6] {
            for partition in [1, 2] {
                commits(play, client, &Blob::from(format!("{partition}:{client}")));
            }
        }
        let told = play.wait(*ticket);
        doubt.back();
        doubt.play.run(Span::from_secs(15));
        doubt.has_one_end(Some(&told));
        committed += usize::from(matches!(told, Outcome::Committed { .. }));
        unknown += usize::from(told == Outcome::Unknown);
    }
    assert!(committed > 0 && unknown > 0, "{}: {committed} committed, {unknown} unknown", F::NAME);
}

/// Shorter than by default, so that nobody waits for long for what has no end.
const LIMIT: Span = Span::from_secs(8);

fn soon(parameters: &mut carousel::Parameters) {
    parameters.limit = LIMIT;
}

#[test]
fn carousel_basic_ends_once_what_a_lost_coordinator_left() {
    ends_once::<Basic>(soon);
}

#[test]
fn carousel_fast_ends_once_what_a_lost_coordinator_left() {
    ends_once::<Fast>(soon);
}

#[test]
fn two_phase_commit_ends_once_what_a_lost_coordinator_left() {
    ends_once::<twopc::Family>(|parameters| parameters.time_limit = LIMIT);
}

/// The keys of a partition move while a transaction on one of them is in doubt. Its coordinator is a group without a majority;
/// or it is its client, which is dead, while its other partition has no majority. How often it committed, of how often.
fn ends_once_while_keys_move<F: Family>(
    tune: fn(&mut F::Parameters),
    moments: &[u64],
    (kill, dead, to): (bool, [u16; 2], u16),
) -> (usize, usize) {
    let mut committed = 0;
    for late in moments {
        let mut doubt = Doubt::<F>::new((tune, true), (*late, kill, dead));
        doubt.play.run(Span::from_secs(1));
        let move_keys = || Request::Move { reach: None, from: PartitionId(1), to: PartitionId(to) };
        let mut moving = doubt.play.ask(3, move_keys());
        doubt.play.run(Span::from_secs(6));
        doubt.back();
        let moved = (0..10).any(|_| match doubt.play.wait(moving) {
            Outcome::Moved(_) => true,
            Outcome::Refused(Refusal::Directory(_)) => {
                moving = doubt.play.ask(3, move_keys());
                false
            }
            other => panic!("{}: {other:?}", doubt.what),
        });
        assert!(moved, "{}: it is never over", doubt.what);
        doubt.play.run(Span::from_secs(10));
        let told = doubt.play.answer(doubt.ticket).cloned();
        assert!(kill || told.is_some(), "{}: no answer", doubt.what);
        committed += usize::from(doubt.has_one_end(told.as_ref()));
    }
    (committed, moments.len())
}

#[test]
fn keys_move_beside_what_a_lost_coordinator_left() {
    let lost = (false, [1, 2], 2);
    ends_once_while_keys_move::<Basic>(soon, &[0, 25], lost);
    ends_once_while_keys_move::<Fast>(soon, &[0, 25], lost);
    ends_once_while_keys_move::<twopc::Family>(|parameters| parameters.time_limit = LIMIT, &[0, 55], lost);
}

/// Of the other partition one replica has voted, or all have.
#[test]
fn keys_move_beside_what_a_dead_client_of_tapir_left() {
    let ended = ends_once_while_keys_move::<tapir::Family>(|_| {}, &[5, 15], (true, [7, 8], 0));
    assert_eq!(ended, (1, 2));
}
