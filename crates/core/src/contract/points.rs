//! The twelve points, a test each.

use super::{Act, ContractHost, Holder, Log, Probe, ProbeSetup, Seen, process};
use crate::{Effects, Identity, NodeId, Outbox, Process, ProcessId, Random, Span, Ticket};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Runs every point.
///
/// # Panics
/// Where the host breaks a point: the text says which.
pub fn run_all(host: &mut impl ContractHost) {
    point_1_lanes(host);
    point_1_own_messages_and_order(host);
    point_2_two_clocks(host);
    point_3_snapshots(host);
    point_4_composition(host);
    point_5_tickets(host);
    point_6_identity(host);
    point_7_back_pressure(host);
    point_8_timers(host);
    point_9_model_checking(host);
    point_10_crashes(host);
    point_10_only_the_own_snapshot_trims(host);
    point_11_elasticity(host);
    point_12_urgency(host);
}

/// Two probes on nodes 0 and 1 of a fresh cluster.
fn pair(host: &mut impl ContractHost) -> (Log, ProcessId, ProcessId) {
    let log = Log::default();
    host.reset(2, &log);
    let (a, b) = (process(0, 0), process(1, 0));
    host.start::<Probe>(a, ProbeSetup::new(&log));
    host.start::<Probe>(b, ProbeSetup::new(&log));
    host.quiesce();
    (log, a, b)
}

fn send(to: ProcessId, label: u32) -> Act {
    Act::Send(to, label, Vec::new())
}

fn send_ahead(to: ProcessId, label: u32) -> Act {
    Act::SendAhead(to, label, Vec::new())
}

/// Held effects wait for the records before them, the others for nothing; a lazy record holds nothing, and one that
/// is to be durable soon becomes so by itself.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_1_lanes(host: &mut impl ContractHost) {
    let (log, a, b) = pair(host);
    let (held, ahead) = (Ticket(1), Ticket(2));
    host.freeze_disk(NodeId(0));
    host.request(
        a,
        held,
        vec![
            send(b, 1),
            Act::RecordLazily(90),
            send(b, 2),
            Act::Record(91),
            send(b, 3),
            send_ahead(b, 4),
            Act::Emit(held, 5),
            Act::Mark(6),
            Act::CompleteAhead(ahead, 7),
            Act::Complete(held, 8),
        ],
    );
    host.quiesce();
    let mut early = log.received(b);
    early.sort_unstable();
    assert_eq!(early, [1, 2, 4], "point 1: what waits for no record leaves, the rest does not");
    assert_eq!(log.answers(a, ahead), [(7, true)], "point 1: complete_ahead waits for nothing");
    assert_eq!(log.answers(a, held), [], "point 1: emit and complete wait for the record before them");
    assert_eq!(log.marks(a), [] as [u32; 0], "point 1: marks wait for the record before them");
    host.thaw_disk(NodeId(0));
    host.quiesce();
    assert!(log.received(b).contains(&3), "point 1: a held send leaves once its record is durable");
    assert_eq!(log.answers(a, held), [(5, false), (8, true)], "point 1: held answers leave, in order");
    assert_eq!(log.marks(a), [6], "point 1: held marks leave");
    host.freeze_disk(NodeId(0));
    host.request(a, Ticket(3), vec![Act::RecordSoon(92), send(b, 9), send_ahead(b, 10)]);
    host.quiesce();
    assert!(!log.received(b).contains(&9), "point 1: a held send waits for a record that is in no haste");
    assert!(log.received(b).contains(&10), "point 1: send_ahead does not");
    host.thaw_disk(NodeId(0));
    host.run_for(Span::from_millis(100));
    assert!(log.received(b).contains(&9), "point 1: a record that is in no haste becomes durable by itself");
}

/// A message to oneself arrives once, in order, behind the records before it; held effects keep their
/// order; and an effect made after a durable record waits for nothing more.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_1_own_messages_and_order(host: &mut impl ContractHost) {
    let (log, a, b) = pair(host);
    host.freeze_disk(NodeId(0));
    let order = vec![send(a, 1), Act::Record(90), send(a, 2), send(b, 20), send(a, 3), send(b, 21)];
    host.request(a, Ticket(1), order);
    host.quiesce();
    assert_eq!(log.received(a), [1], "point 1: an own message waits for the records before it");
    host.thaw_disk(NodeId(0));
    host.quiesce();
    assert_eq!(log.received(a), [1, 2, 3], "point 1: own messages arrive once and in order");
    assert_eq!(log.received(b), [20, 21], "point 1: held sends to one peer keep their order");
    let script = vec![send(a, 4), Act::AtSettle(vec![send(b, 22)])];
    host.request(a, Ticket(2), script);
    host.quiesce();
    assert_eq!(log.received(a), [1, 2, 3, 4]);
    assert_eq!(log.received(b), [20, 21, 22], "settle comes after the input, and its effects leave");
}

/// The wall clock may step back, the steady one never does and keeps its rate.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_2_two_clocks(host: &mut impl ContractHost) {
    let (log, a, _) = pair(host);
    host.request(a, Ticket(1), vec![Act::Clock]);
    host.quiesce();
    host.run_for(Span::from_millis(20));
    host.request(a, Ticket(2), vec![Act::Clock]);
    host.quiesce();
    host.step_wall_clock(NodeId(0), -3_600_000_000_000);
    host.request(a, Ticket(3), vec![Act::Clock]);
    host.quiesce();
    let clocks = log.pick(a, |seen| match seen {
        Seen::Clock { now, stamp } => Some((*now, *stamp)),
        _ => None,
    });
    let [first, second, third] = clocks[..] else {
        panic!("point 2: three requests must show three clocks, not {clocks:?}");
    };
    assert!(second.0.since(first.0) >= Span::from_millis(19), "point 2: the steady clock keeps its rate");
    assert!(third.0 >= second.0, "point 2: the steady clock never goes back");
    assert!(third.1 < second.1, "point 2: the wall clock may be stepped back");
}

/// A durable snapshot stands for the records before it, and only the later ones are replayed.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_3_snapshots(host: &mut impl ContractHost) {
    let (log, a, _) = pair(host);
    host.request(a, Ticket(1), vec![Act::Record(1), Act::Record(2), Act::RecordLazily(3), Act::Record(4)]);
    host.quiesce();
    host.snapshot(a);
    host.request(a, Ticket(2), vec![Act::Record(5), Act::Record(6), Act::Complete(Ticket(2), 0)]);
    host.quiesce();
    assert_eq!(log.answers(a, Ticket(2)), [(0, true)], "a snapshot holds nothing up");
    host.crash(NodeId(0));
    host.restart(NodeId(0));
    host.quiesce();
    let restored: Vec<u32> = log
        .pick(a, |seen| match seen {
            Seen::Restored { records } => Some(records.clone()),
            _ => None,
        })
        .concat();
    assert_eq!(restored, [1, 2, 3, 4], "point 3: every chunk of the newest snapshot, in order");
    assert_eq!(replayed(&log, a), [5, 6], "point 3: the records since, in order, and no others");
    assert_life(&log, a, "point 3");
    host.snapshot(a);
    host.crash(NodeId(0));
    host.restart(NodeId(0));
    host.quiesce();
    assert_eq!(replayed(&log, a), [] as [u32; 0], "point 3: a newer snapshot replaces the older one");
}

/// A held process' effects are its holder's, wrapped, in order; its answers come back as values.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_4_composition(host: &mut impl ContractHost) {
    let log = Log::default();
    host.reset(2, &log);
    let (a, b) = (process(0, 0), process(1, 0));
    host.start::<Holder>(a, ProbeSetup::new(&log));
    host.start::<Holder>(b, ProbeSetup::new(&log));
    host.quiesce();
    host.freeze_disk(NodeId(0));
    let ticket = Ticket(1);
    let script = vec![
        Act::Arm(3, Span::from_millis(5), vec![send(b, 2)]),
        Act::SendAhead(b, 1, vec![]),
        Act::Record(1),
        Act::CompleteAhead(ticket, 7),
        Act::Mark(4),
    ];
    host.request(a, ticket, script);
    host.quiesce();
    assert_eq!(log.received(b), [1], "point 4: an inner send is the holder's");
    assert_eq!(log.answers(a, ticket), [], "point 4: the holder's answer waits for inner records");
    host.thaw_disk(NodeId(0));
    host.run_for(Span::from_millis(10));
    assert_eq!(log.answers(a, ticket), [(7 + Holder::SHIFT, true)], "point 4: inner answers are values");
    assert_eq!(log.marks(a), [4], "point 4: inner marks are the holder's");
    assert_eq!(log.expired(a), [3], "point 4: inner timers are the holder's");
    assert_eq!(log.received(b), [1, 2]);
    host.crash(NodeId(0));
    host.restart(NodeId(0));
    host.quiesce();
    assert_eq!(replayed(&log, a), [1, 7 + Holder::SHIFT], "point 4: both write one journal, in order");
}

/// A ticket takes any number of answers and one last; a cancel reaches the process.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_5_tickets(host: &mut impl ContractHost) {
    let (log, a, _) = pair(host);
    let (many, other) = (Ticket(1), Ticket(2));
    host.request(a, many, vec![Act::Emit(many, 1), Act::Record(9), Act::Emit(many, 2)]);
    host.request(a, other, vec![]);
    host.quiesce();
    host.cancel(a, other);
    host.request(a, Ticket(3), vec![Act::Emit(many, 3), Act::Complete(many, 4)]);
    host.quiesce();
    let answers = [(1, false), (2, false), (3, false), (4, true)];
    assert_eq!(log.answers(a, many), answers, "point 5: any number of emits and one complete, in order");
    let cancelled = log.pick(a, |seen| match seen {
        Seen::Cancelled { ticket } => Some(*ticket),
        _ => None,
    });
    assert_eq!(cancelled, [other], "point 5: a cancel reaches the process");
    assert_eq!(log.answers(a, other), [], "point 5: a cancelled ticket stays silent");
}

/// Every start has a higher incarnation, however short the life before.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_6_identity(host: &mut impl ContractHost) {
    let (log, a, b) = pair(host);
    for _ in 0..3 {
        host.crash(NodeId(0));
        host.restart(NodeId(0));
    }
    host.quiesce();
    let lives = log.incarnations(a);
    assert_eq!(lives.len(), 4, "point 6: four starts");
    assert!(lives[0] >= 1 && lives.is_sorted_by(|x, y| x < y), "point 6: incarnations rise: {lives:?}");
    assert_eq!(log.incarnations(b).len(), 1, "a crash elsewhere starts nothing here");
}

/// A send never blocks and never fails, whoever cannot be reached.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_7_back_pressure(host: &mut impl ContractHost) {
    const FLOOD: u32 = 50_000;
    let (log, a, b) = pair(host);
    host.connect(NodeId(0), NodeId(1), false);
    let mut script: Vec<Act> = (0..FLOOD).map(|label| send(b, label)).collect();
    script.push(send(process(1, 77), 1));
    script.push(Act::Complete(Ticket(1), 1));
    host.request(a, Ticket(1), script);
    host.quiesce();
    assert_eq!(log.answers(a, Ticket(1)), [(1, true)], "point 7: a flood to nowhere blocks nothing");
    host.connect(NodeId(0), NodeId(1), true);
    host.run_for(Span::from_millis(50));
    for attempt in 0..200u32 {
        // Reconnecting takes a host a moment, and until then it may drop.
        host.request(a, Ticket(10 + u64::from(attempt)), vec![send(b, FLOOD + attempt)]);
        host.run_for(Span::from_millis(50));
        if log.received(b).last().is_some_and(|label| *label >= FLOOD) {
            break;
        }
    }
    let received = log.received(b);
    assert!(received.last().is_some_and(|label| *label >= FLOOD), "point 7: the link comes back");
    let first_life: Vec<u32> = received.iter().copied().filter(|label| *label < FLOOD).collect();
    assert!(first_life.is_sorted(), "point 7: what a full queue keeps, it keeps in order");
}

/// Timers are keyed by value: arming replaces, disarming stops, each fires once an arming.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_8_timers(host: &mut impl ContractHost) {
    let (log, a, _) = pair(host);
    let arm = |timer, millis| Act::Arm(timer, Span::from_millis(millis), vec![]);
    let script = vec![
        arm(1, 10),
        arm(2, 20),
        arm(3, 5),
        Act::Disarm(3),
        arm(4, 5),
        arm(4, 30),
        arm(5, 60_000),
        arm(5, 40),
    ];
    host.request(a, Ticket(1), script);
    host.quiesce();
    host.run_for(Span::from_millis(100));
    assert_eq!(log.expired(a), [1, 2, 4, 5], "point 8: in order of their last arming, once each");
    host.request(a, Ticket(2), vec![arm(1, 1), Act::Disarm(2)]);
    host.run_for(Span::from_millis(30));
    assert_eq!(log.expired(a), [1, 2, 4, 5, 1], "point 8: a timer that fired may be armed again");
    host.request(a, Ticket(3), vec![arm(1, 20), arm(2, 20)]);
    host.crash(NodeId(0));
    host.restart(NodeId(0));
    host.run_for(Span::from_millis(60));
    assert_eq!(log.expired(a).len(), 5, "point 8: no timer outlives its process");
}

/// Equal states give equal hashes: a process that is cloned, or built by the same inputs in another
/// place, is the same.
///
/// # Panics
/// Where the point is broken.
pub fn point_9_model_checking(host: &mut impl ContractHost) {
    let (log, ..) = pair(host);
    let build = |inputs: &[u32]| {
        let me = process(0, 0);
        let mut probe = Probe::open(Identity { process: me, incarnation: 1 }, &ProbeSetup::new(&log));
        let mut outbox = Outbox::<Probe>::new(me, Random::seeded(u64::from(inputs[0])));
        for input in inputs {
            let effects: &mut Effects<Probe> = outbox.input(Default::default(), Default::default());
            probe.request(Ticket(1), vec![Act::Record(*input)], effects);
            drop(outbox.drain());
        }
        probe
    };
    let fingerprint = |probe: &Probe| {
        let mut hasher = DefaultHasher::new();
        probe.hash(&mut hasher);
        hasher.finish()
    };
    let (one, same, other) = (build(&[1, 2]), build(&[1, 2]), build(&[1, 3]));
    assert_eq!(fingerprint(&one), fingerprint(&same), "point 9: equal states, equal hashes");
    assert_eq!(fingerprint(&one), fingerprint(&one.clone()), "point 9: a clone is the same");
    assert_ne!(fingerprint(&one), fingerprint(&other), "point 9: other states, other hashes");
}

/// A node crashes whole; messages between its processes wait for durability; what was not durable is not
/// replayed beyond a prefix.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_10_crashes(host: &mut impl ContractHost) {
    let (log, a, b) = pair(host);
    let beside = process(0, 1);
    host.start::<Probe>(beside, ProbeSetup::new(&log));
    host.request(a, Ticket(1), vec![Act::Record(1), send(beside, 1)]);
    host.quiesce();
    assert_eq!(log.received(beside), [1], "processes of one node talk");
    host.freeze_disk(NodeId(0));
    host.request(a, Ticket(2), vec![Act::Record(2), send(beside, 2), send(b, 3), Act::Record(3)]);
    host.quiesce();
    assert_eq!(log.received(beside), [1], "point 10: a message inside a node waits for durability too");
    host.crash(NodeId(0));
    host.thaw_disk(NodeId(0));
    host.restart(NodeId(0));
    host.quiesce();
    assert_eq!(log.received(b), [] as [u32; 0], "point 10: what was held when the node crashed is lost");
    assert_eq!(log.received(beside), [1], "point 10: inside the node too");
    assert_eq!(log.incarnations(beside).len(), 2, "point 10: a node crashes whole");
    let replayed = replayed(&log, a);
    assert!([1, 2, 3].starts_with(&replayed) && !replayed.is_empty(), "point 10: a prefix: {replayed:?}");
    assert_life(&log, a, "point 10");
}

/// The snapshot of one process leaves the records of the others of its node alone.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_10_only_the_own_snapshot_trims(host: &mut impl ContractHost) {
    let (log, a, _) = pair(host);
    let beside = process(0, 1);
    host.start::<Probe>(beside, ProbeSetup::new(&log));
    for label in 1..=3 {
        let ticket = |number| Ticket(u64::from(label) * 10 + number);
        host.request(a, ticket(0), vec![Act::Record(label)]);
        host.request(beside, ticket(1), vec![Act::Record(label + 10)]);
    }
    host.quiesce();
    host.snapshot(a);
    host.crash(NodeId(0));
    host.restart(NodeId(0));
    host.quiesce();
    assert_eq!(replayed(&log, a), [] as [u32; 0], "its own records are in the snapshot");
    assert_eq!(replayed(&log, beside), [11, 12, 13], "point 10: those of its neighbour stay");
}

/// Processes come and go at run time.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_11_elasticity(host: &mut impl ContractHost) {
    let (log, a, b) = pair(host);
    let late = process(1, 1);
    host.request(a, Ticket(1), vec![send(late, 1)]);
    host.quiesce();
    let mut setup = ProbeSetup::new(&log);
    setup.at_start = vec![Act::Record(7), send(a, 2)];
    host.start::<Probe>(late, setup.clone());
    host.quiesce();
    assert_eq!(log.received(a), [2], "point 11: a process started at run time acts");
    host.request(a, Ticket(2), vec![send(late, 3)]);
    host.quiesce();
    assert_eq!(log.received(late), [3], "point 11: and is reached; what came before it is lost");
    host.stop(late);
    host.request(a, Ticket(3), vec![send(late, 4), send(b, 5)]);
    host.quiesce();
    assert_eq!(log.received(late), [3], "point 11: a stopped process gets no input");
    assert_eq!(log.received(b), [5], "point 11: its neighbours go on");
    host.start::<Probe>(late, setup);
    host.quiesce();
    assert_eq!(replayed(&log, late), [7], "point 11: started again, it has its journal");
    let lives = log.incarnations(late);
    assert!(lives.len() == 2 && lives[0] < lives[1], "point 11: and a higher incarnation: {lives:?}");
}

/// On a line on which nothing waits every message arrives once, and in order, whatever its urgency; and a held one waits for the
/// records before it though it is urgent. What a full line does is its host's to test, which alone can fill one.
///
/// # Panics
/// Where the host breaks the point.
pub fn point_12_urgency(host: &mut impl ContractHost) {
    let (log, a, b) = pair(host);
    host.freeze_disk(NodeId(0));
    let script = vec![
        Act::Urgently(vec![send(b, 1)]),
        send(b, 2),
        Act::Repeating(vec![send(b, 3), Act::Urgently(vec![send(b, 4)])]),
        Act::Record(90),
        Act::Urgently(vec![send(b, 5), send_ahead(b, 6)]),
    ];
    host.request(a, Ticket(1), script);
    host.quiesce();
    let mut early = log.received(b);
    early.sort_unstable();
    assert_eq!(early, [1, 2, 3, 4, 6], "point 12: urgent or repeated, once each, held behind records");
    host.thaw_disk(NodeId(0));
    host.quiesce();
    let late: Vec<u32> = log.received(b).into_iter().filter(|label| *label != 6).collect();
    assert_eq!(late, [1, 2, 3, 4, 5], "point 12: in order where nothing waits");
}

/// What a process was replayed in its newest life.
fn replayed(log: &Log, process: ProcessId) -> Vec<u32> {
    let seen = log.of(process);
    let newest = seen.iter().rposition(|seen| matches!(seen, Seen::Opened { .. })).unwrap_or(0);
    let records = seen[newest..].iter().filter_map(|seen| match seen {
        Seen::Replayed { record } => Some(*record),
        _ => None,
    });
    records.collect()
}

/// Each life is `open`, `restore`s, `replay`s, `start`, and only then anything else.
fn assert_life(log: &Log, process: ProcessId, point: &str) {
    let mut stage = 0;
    for seen in log.of(process) {
        let next = match seen {
            Seen::Opened { .. } => {
                stage = 0;
                0
            }
            Seen::Restored { .. } => 1,
            Seen::Replayed { .. } => 2,
            Seen::Started => 3,
            _ => 4,
        };
        assert!(next >= stage, "{point}: {seen:?} of {process} comes too late in its life");
        assert!(next < 4 || stage >= 3, "{point}: {seen:?} of {process} comes before its start");
        stage = next;
    }
}
