//! Courses of events, step by step: clocks that differ, clients that die, votes that cannot be told.

use isochrone_check::transactions::{
    Access, Isolation, Transaction, TransactionReport, Transactions, check_transactions,
};
use isochrone_check::{Budget, Outcome as Ended, Value};
use isochrone_core::{Blob, Fact, Instant, KeyspaceId, NodeId, ProcessId, Span, Ticket};
use isochrone_sim::{Config, Driver, Next, NodeConfig, Session, Simulation};
use isochrone_transactions::tapir::{Family, Order, Parameters, Standing};
use isochrone_transactions::{
    Distances, Outcome, Placement, Reason, Request, Split, Transactional, Tuning as _, TxnId, Update,
};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

type Tapir = Transactional<Family>;

#[derive(Default)]
struct Heard {
    answers: BTreeMap<Ticket, Outcome>,
    standings: BTreeMap<ProcessId, Standing>,
    counted: BTreeMap<&'static str, u64>,
}

impl Driver<Tapir> for Heard {
    fn next(&mut self, _: Session, _: Instant) -> Next<Request> {
        Next::Done
    }
    fn completed(&mut self, _: Session, _: Ticket, _: Outcome, _: Instant) {}
    fn answered(&mut self, _: ProcessId, ticket: Ticket, outcome: Outcome, _: bool) {
        assert!(self.answers.insert(ticket, outcome).is_none(), "{ticket} was answered twice");
    }
    fn fact(&mut self, _: ProcessId, fact: &Fact, _: Instant) {
        if let Fact::Counted(what) = fact {
            *self.counted.entry(what).or_default() += 1;
        }
    }
    fn administered(&mut self, process: ProcessId, _: Ticket, outcome: Box<dyn Any + Send>) {
        self.standings.insert(process, *outcome.downcast::<Standing>().unwrap());
    }
}

/// Some nodes, each with a client; partitions on some of them, split by the first letter of a key: `a`, `b`, ...
struct Stage {
    simulation: Simulation<Tapir>,
    placement: Placement<Family>,
    heard: Heard,
    tickets: u64,
}

/// One way between any two nodes, unless said otherwise.
const WAY: Span = Span::from_millis(5);

impl Stage {
    fn new(nodes: u16, groups: &[&[u16]], slow: &[(u16, u16, Span)]) -> Stage {
        Stage::tuned(nodes, groups, slow, |_| {})
    }

    fn tuned(
        nodes: u16,
        groups: &[&[u16]],
        slow: &[(u16, u16, Span)],
        tune: impl FnOnce(&mut Parameters),
    ) -> Stage {
        let names: Vec<String> = (0..nodes).map(|node| format!("n{node}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let delay = |from: u16, to: u16| {
            let slow = slow.iter().find(|(a, b, _)| (*a, *b) == (from, to));
            slow.map_or(WAY, |(_, _, way)| *way)
        };
        let delays = (0..nodes).map(|from| (0..nodes).map(|to| delay(from, to)).collect()).collect();
        let mut config = Config::new(1, &names, delays);
        config.sessions = 0;
        config.nodes = names.iter().enumerate().map(|(at, name)| NodeConfig::new(name, at)).collect();
        let clients = (0..nodes).map(|client| {
            let rtt = (0..nodes).map(|node| delay(client, node) + delay(node, client)).collect();
            let local = (0..nodes).map(|node| node == client).collect();
            (NodeId(client), Distances { rtt, local })
        });
        let groups: Vec<Vec<NodeId>> =
            groups.iter().map(|group| group.iter().map(|node| NodeId(*node)).collect()).collect();
        let bounds: Vec<Blob> = (1..groups.len()).map(|at| Blob::from(vec![b'a' + at as u8])).collect();
        let split = if bounds.is_empty() { Split::Hash } else { Split::Ranges(bounds.into()) };
        let mut parameters = Parameters::for_rtt(Span::from_millis(10));
        tune(&mut parameters);
        let placement = Placement::new(KeyspaceId(1), split, &groups, clients.collect(), parameters);
        let mut simulation = Simulation::new(config, &placement);
        simulation.boot();
        Stage { simulation, placement, heard: Heard::default(), tickets: 0 }
    }

    fn pass(&mut self, millis: u64) {
        self.simulation.run_for(Span::from_millis(millis), &mut self.heard);
        assert_eq!(self.simulation.broken(), None);
    }

    fn ask(&mut self, node: u16, request: Request) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.simulation.request(self.placement.client(NodeId(node)), ticket, request);
        ticket
    }

    /// Begins at a node, and is told what it reads.
    fn begin(&mut self, node: u16, reads: &[&str], writes: &[&str]) -> (TxnId, Vec<Option<Blob>>) {
        let keys = |keys: &[&str]| keys.iter().map(|key| Blob::from(*key)).collect();
        let ticket = self.ask(node, Request::Begin { reads: keys(reads), writes: keys(writes) });
        self.pass(15);
        match self.heard.answers.get(&ticket) {
            Some(Outcome::Begun { txn, reads }) => {
                (*txn, reads.iter().map(|read| read.value.clone()).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self, node: u16, txn: TxnId, writes: &[&str], value: &str) -> Ticket {
        let update = |key: &&str| Update { key: Blob::from(*key), value: Some(Blob::from(value)) };
        self.ask(node, Request::Commit { txn, updates: writes.iter().map(update).collect() })
    }

    fn outcome(&self, ticket: Ticket) -> Option<&Outcome> {
        self.heard.answers.get(&ticket)
    }

    /// Cuts or mends what a node says to others and hears from them.
    fn connect(&mut self, node: u16, others: &[u16], connected: bool) {
        for other in others {
            self.simulation.connect(NodeId(node), NodeId(*other), connected);
        }
    }

    /// What all keys hold, as a client at this node reads them in one transaction.
    fn read(&mut self, node: u16, keys: &[&str]) -> Vec<Option<Blob>> {
        for _ in 0..5 {
            let reads = keys.iter().map(|key| Blob::from(*key)).collect();
            let ticket = self.ask(node, Request::Begin { reads, writes: Vec::new() });
            self.pass(3_000);
            match self.outcome(ticket) {
                Some(Outcome::Snapshot { reads, .. }) => {
                    return reads.iter().map(|read| read.value.clone()).collect();
                }
                Some(Outcome::Aborted(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        panic!("five reads were aborted");
    }

    /// Lets time pass until this holds.
    fn until(&mut self, what: &str, holds: impl Fn(&Stage) -> bool) {
        let limit = self.simulation.now() + Span::from_secs(120);
        while !holds(self) {
            assert!(self.simulation.now() < limit, "not within two minutes: {what}");
            self.pass(1);
        }
    }

    /// Lets time pass until there is an answer.
    fn wait(&mut self, ticket: Ticket) -> Outcome {
        self.until("an answer", |stage| stage.outcome(ticket).is_some());
        self.heard.answers[&ticket].clone()
    }

    /// Begins at a node what reads and writes these, however long that takes.
    fn begun(&mut self, node: u16, keys: &[&str]) -> TxnId {
        let keys = || keys.iter().map(|key| Blob::from(*key)).collect();
        let ticket = self.ask(node, Request::Begin { reads: keys(), writes: keys() });
        match self.wait(ticket) {
            Outcome::Begun { txn, .. } => txn,
            other => panic!("{other:?}"),
        }
    }

    /// Writes a key, which must succeed; how long its commit took.
    fn write(&mut self, node: u16, key: &str, value: &str) -> Span {
        let txn = self.begun(node, &[key]);
        let asked = self.simulation.now();
        let ticket = self.commit(node, txn, &[key], value);
        let outcome = self.wait(ticket);
        assert!(committed(&outcome), "{outcome:?}");
        self.simulation.now().since(asked)
    }

    /// Writes a key until replicas that are [`forgetful`] have forgotten what was before, of which some know nothing.
    fn forget(&mut self, node: u16, key: &str) {
        for _ in 0..60 {
            self.write(node, key, "v");
        }
        // Each has told the others, and heard that they know.
        self.pass(6_000);
        assert!(self.counted("records_forgotten") > 0);
    }

    /// How often that was counted.
    fn counted(&self, what: &str) -> u64 {
        self.heard.counted.get(what).copied().unwrap_or(0)
    }

    /// Lets everything arrive that is on its way, and what comes of that. While time passes, an answer is handed over with the
    /// next event, of which there may be none.
    fn arrive(&mut self) {
        self.simulation.quiesce(&mut self.heard);
        assert_eq!(self.simulation.broken(), None);
    }

    /// How the replicas that live stand.
    fn standings(&mut self) -> BTreeMap<ProcessId, Standing> {
        self.heard.standings.clear();
        for group in self.placement.map.groups.iter() {
            for member in group.members.iter() {
                self.simulation.administer(member.process, Ticket(1), Box::new(Order::Inspect));
            }
        }
        self.arrive();
        std::mem::take(&mut self.heard.standings)
    }

    /// Lets time pass until nothing is under way at any replica that lives.
    fn quiet(&mut self) {
        for _ in 0..240 {
            let standings = self.standings();
            assert!(!standings.is_empty(), "nobody answers");
            if standings.values().all(|standing| standing.open == 0 && standing.view.1) {
                return;
            }
            self.pass(500);
        }
        panic!("not within two minutes: {:?}", self.standings());
    }

    /// Nothing is under way at any replica that lives.
    fn assert_quiet(&mut self) {
        for (server, standing) in self.standings() {
            assert_eq!(standing.open, 0, "{server}: {standing:?}");
        }
    }
}

/// Replicas soon forget what has ended and one of them does not know, and clients soon leave it to them to tell it that.
fn forgetful(tuned: &mut Parameters) {
    (tuned.open, tuned.keep_records, tuned.fast_path) = (8, 16, Span::from_millis(20));
}

fn committed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Committed { .. })
}

/// What a transaction did, for the checker, with its time in milliseconds.
fn line(session: u64, accesses: Vec<Access>, outcome: &Outcome, times: (u64, u64)) -> Transaction {
    let Outcome::Committed { at } = outcome else { panic!("{outcome:?}") };
    Transaction {
        client: session,
        session,
        sequence: 1,
        accesses,
        version: Some(at.0),
        invoked: times.0,
        returned: Some(times.1),
        outcome: Ended::Ok,
    }
}

fn check(history: &Transactions, isolation: Isolation) -> TransactionReport {
    check_transactions(history, isolation, &Budget::default()).unwrap()
}

/// Timestamp inversion: T1 has ended before T2 begins, and a slow T3 comes before T1, since it has read what T1
/// overwrote, and behind T2, which it overwrites. The order of timestamps is T2, T3, T1.
fn inversion(skewed: bool) -> (Stage, Vec<Ticket>) {
    let slow: Vec<(u16, u16, Span)> = (3..6).map(|to| (6, to, Span::from_secs(1))).collect();
    let mut stage = Stage::new(9, &[&[0, 1, 2], &[3, 4, 5]], &slow);
    if skewed {
        stage.simulation.step_wall_clock(NodeId(7), 1_000_000_000);
        stage.simulation.step_wall_clock(NodeId(8), -1_000_000_000);
    }
    let (third, read) = stage.begin(6, &["a"], &["b"]);
    assert_eq!(read, [None]);
    let third = stage.commit(6, third, &["b"], "third");
    stage.pass(100);
    let (first, _) = stage.begin(7, &["a"], &["a"]);
    let first = stage.commit(7, first, &["a"], "first");
    stage.pass(100);
    assert!(matches!(stage.outcome(first), Some(Outcome::Committed { .. })), "{:?}", stage.outcome(first));
    let (second, _) = stage.begin(8, &["b"], &["b"]);
    let second = stage.commit(8, second, &["b"], "second");
    stage.pass(100);
    assert_eq!(stage.outcome(third), None, "still on its way to the second partition");
    stage.pass(4_000);
    (stage, vec![first, second, third])
}

#[test]
fn skewed_clocks_make_it_serializable_and_not_strict() {
    let (stage, tickets) = inversion(true);
    let outcome = |at: usize| stage.outcome(tickets[at]).unwrap();
    let write = |key: &str, value: &str| Access::Write(Arc::from(key), Arc::from(value));
    let read = |key: &str| Access::Read(Arc::from(key), Some(Value::Nil));
    let history: Transactions = [
        line(1, vec![read("a"), write("a", "first")], outcome(0), (115, 230)),
        line(2, vec![read("b"), write("b", "second")], outcome(1), (231, 345)),
        line(3, vec![read("a"), write("b", "third")], outcome(2), (0, 4_345)),
    ]
    .into_iter()
    .collect();
    assert_eq!(check(&history, Isolation::Serializable).violation(), None);
    let strict = check(&history, Isolation::StrictlySerializable);
    let violation = strict.violation().expect("it is not strict");
    assert_eq!(violation.phenomenon.as_str(), "G-single-realtime", "{}", violation.text);
}

#[test]
fn right_clocks_abort_the_inverted_transaction() {
    let (stage, tickets) = inversion(false);
    assert!(matches!(stage.outcome(tickets[1]), Some(Outcome::Committed { .. })));
    assert_eq!(stage.outcome(tickets[2]), Some(&Outcome::Aborted(Reason::StaleRead)));
}

/// All replicas have voted and the client is dead: what may have committed has.
#[test]
fn what_all_have_prepared_commits_without_its_client() {
    let mut stage = Stage::new(5, &[&[0, 1, 2], &[1, 2, 3]], &[]);
    let (txn, _) = stage.begin(4, &["a", "b"], &["a", "b"]);
    stage.commit(4, txn, &["a", "b"], "x");
    stage.pass(7);
    stage.simulation.crash(NodeId(4));
    stage.pass(15_000);
    stage.assert_quiet();
    assert!(stage.heard.counted["takeovers"] > 0);
    assert_eq!(stage.read(0, &["a", "b"]), [Some(Blob::from("x")), Some(Blob::from("x"))]);
}

/// One partition has not heard of it: it is aborted everywhere, and keys are free again.
#[test]
fn what_some_have_not_prepared_aborts_without_its_client() {
    let mut stage = Stage::new(7, &[&[0, 1, 2], &[3, 4, 5]], &[]);
    let (txn, _) = stage.begin(6, &["a", "b"], &["a", "b"]);
    stage.connect(6, &[3, 4, 5], false);
    stage.commit(6, txn, &["a", "b"], "x");
    stage.pass(7);
    stage.simulation.crash(NodeId(6));
    stage.pass(20_000);
    stage.assert_quiet();
    assert_eq!(stage.read(0, &["a", "b"]), [None, None]);
    let (txn, _) = stage.begin(0, &["a", "b"], &["a", "b"]);
    let ticket = stage.commit(0, txn, &["a", "b"], "y");
    stage.pass(2_000);
    assert!(matches!(stage.outcome(ticket), Some(Outcome::Committed { .. })), "{:?}", stage.outcome(ticket));
}

/// A living client whose transaction was taken over is told how it ended, and says nothing else.
#[test]
fn a_client_that_was_cut_off_is_told_how_it_ended() {
    let mut stage = Stage::new(7, &[&[0, 1, 2], &[3, 4, 5]], &[]);
    let (txn, _) = stage.begin(6, &["a", "b"], &["a", "b"]);
    stage.connect(6, &[3, 4, 5], false);
    let ticket = stage.commit(6, txn, &["a", "b"], "x");
    stage.pass(12_000);
    assert_eq!(stage.outcome(ticket), Some(&Outcome::Aborted(Reason::Presumed)));
    stage.connect(6, &[3, 4, 5], true);
    stage.pass(15_000);
    stage.assert_quiet();
    assert_eq!(stage.read(0, &["a", "b"]), [None, None]);
}

/// Of five replicas two have voted, and another transaction has committed in the place of the first, at the others, by a clock
/// that may be far ahead. Two fail: the rest tell that the first was not decided.
#[test]
fn what_two_of_five_have_voted_for_is_aborted_by_any_three() {
    for ahead in [0, 206_000_000_000] {
        let mut stage = Stage::new(7, &[&[0, 1, 2, 3, 4]], &[]);
        stage.simulation.step_wall_clock(NodeId(6), ahead);
        let (txn, _) = stage.begin(5, &["a"], &["a"]);
        stage.connect(5, &[2, 3, 4], false);
        stage.commit(5, txn, &["a"], "x");
        stage.pass(7);
        stage.simulation.crash(NodeId(5));
        // The other one is told to the others only.
        stage.connect(6, &[0, 1], false);
        let txn = stage.begun(6, &["a"]);
        let ticket = stage.commit(6, txn, &["a"], "y");
        let outcome = stage.wait(ticket);
        assert!(committed(&outcome), "{ahead} ns ahead: {outcome:?}");
        stage.pass(20);
        stage.simulation.crash(NodeId(3));
        stage.simulation.crash(NodeId(4));
        stage.quiet();
        assert_eq!(stage.counted("view_changes"), 0);
        assert_eq!(stage.read(0, &["a"]), [Some(Blob::from("y"))], "{ahead} ns ahead");
    }
}

/// Two of five replicas are back and have missed a commit that the others have forgotten; both vote for what overwrites it by an
/// old version. Its client dies, and with two of the others all that is left are they and one that has refused it.
#[test]
fn what_two_that_missed_a_commit_have_voted_for_does_not_undo_it() {
    // Who is nearest to the last client has missed it.
    let farther = [(6, 0, Span::from_millis(6))];
    let mut stage = Stage::tuned(7, &[&[0, 1, 2, 3, 4]], &farther, forgetful);
    for node in [1, 4] {
        stage.simulation.crash(NodeId(node));
    }
    stage.write(5, "a", "first");
    stage.forget(5, "b");
    for node in [1, 4] {
        stage.simulation.restart(NodeId(node));
    }
    stage.pass(5_000);
    let (txn, read) = stage.begin(6, &["a"], &["a"]);
    assert_eq!(read, [None]);
    stage.commit(6, txn, &["a"], "second");
    stage.pass(8);
    for node in [6, 2, 3] {
        stage.simulation.crash(NodeId(node));
    }
    stage.quiet();
    assert_eq!(stage.read(0, &["a"]), [Some(Blob::from("first"))]);
}

/// Two partitions on five nodes; the client has counted the votes of all and told its host, and nobody else. Whichever two
/// fail, takeovers come to the same end, and none needs a change of view.
#[test]
fn what_was_told_by_fast_quorums_stays_whoever_fails() {
    for (one, other) in (0..5_u16).flat_map(|one| (0..one).map(move |other| (one, other))) {
        let what = format!("{one} and {other} fail");
        let mut stage = Stage::new(6, &[&[0, 1, 2, 3, 4], &[4, 3, 2, 1, 0]], &[]);
        let txn = stage.begun(5, &["a", "b"]);
        let ticket = stage.commit(5, txn, &["a", "b"], "x");
        let outcome = stage.wait(ticket);
        assert!(committed(&outcome) && stage.counted("slow_paths") == 0, "{what}: {outcome:?}");
        // Nothing that it has said since arrives.
        stage.simulation.crash(NodeId(5));
        stage.connect(5, &[0, 1, 2, 3, 4], false);
        [one, other].iter().for_each(|node| stage.simulation.crash(NodeId(*node)));
        stage.quiet();
        assert_eq!(stage.counted("view_changes"), 0, "{what}");
        let lives = (0..5).find(|node| *node != one && *node != other).unwrap();
        let value = Some(Blob::from("x"));
        assert_eq!(stage.read(lives, &["a", "b"]), [value.clone(), value], "{what}");
    }
}

/// Three of five have accepted a transaction that the other partition refuses, and some hear that it was aborted, and release
/// what it holds. Another one that it is in the way of is voted for by who does not hold it; then its client fails, and two
/// replicas, and the view changes. Whoever has heard and whoever fails, it ends as its client was told.
#[test]
fn an_abort_that_few_have_heard_of_undoes_no_commit() {
    /// Whom the second client reaches.
    const ASKED: [u16; 4] = [0, 1, 3, 4];
    for heard in 0..1_u32 << ASKED.len() {
        for dead in [[3, 4], [0, 1], [0, 3], [1, 4]] {
            let hears = |at: usize| heard & 1 << at != 0;
            let what = format!("{heard:04b} have heard, {dead:?} fail");
            // The other partition answers when this one has made do with a majority.
            let slow = [(6, 5, Span::from_millis(700))];
            let mut stage = Stage::new(8, &[&[0, 1, 2, 3, 4], &[5]], &slow);
            let aborted = stage.begun(6, &["a", "b"]);
            let txn = stage.begun(7, &["b"]);
            let ticket = stage.commit(7, txn, &["b"], "z");
            let outcome = stage.wait(ticket);
            assert!(committed(&outcome), "{what}: {outcome:?}");
            stage.connect(6, &[0, 1], false);
            let aborted = stage.commit(6, aborted, &["a", "b"], "y");
            stage.until("a majority's votes are accepted", |stage| stage.counted("slow_paths") > 0);
            // They are accepted, and that is told.
            stage.pass(11);
            assert_eq!(stage.outcome(aborted), None, "{what}");
            stage.connect(6, &[2], false);
            for (at, node) in ASKED.into_iter().enumerate() {
                // The first two are cut off, the last two are not.
                if hears(at) != (node > 2) {
                    stage.connect(6, &[node], hears(at));
                }
            }
            assert_eq!(stage.wait(aborted), Outcome::Aborted(Reason::StaleRead), "{what}");
            // It arrives.
            stage.pass(6);
            stage.simulation.crash(NodeId(6));
            stage.connect(7, &[2], false);
            let txn = stage.begun(7, &["a"]);
            let ticket = stage.commit(7, txn, &["a"], "x");
            let outcome = stage.wait(ticket);
            let released = hears(2) || hears(3);
            assert_eq!(committed(&outcome), released, "{what}: {outcome:?}");
            // Nothing that it has said since arrives.
            stage.simulation.crash(NodeId(7));
            stage.connect(7, &ASKED, false);
            dead.iter().for_each(|node| stage.simulation.crash(NodeId(*node)));
            let lives = (0..5).find(|node| !dead.contains(node)).unwrap();
            let server = stage.placement.map.groups[0].members[usize::from(lives)].process;
            stage.simulation.administer(server, Ticket(1), Box::new(Order::ChangeView));
            stage.quiet();
            let value = committed(&outcome).then(|| Blob::from("x"));
            assert_eq!(stage.read(lives, &["a"]), [value], "{what}: {outcome:?}");
        }
    }
}

/// Of five replicas three live, and the client is dead that would say that a majority knows of the abort: they tell each other.
#[test]
fn what_five_replicas_have_aborted_is_released_without_its_client() {
    let mut stage = Stage::new(8, &[&[0, 1, 2, 3, 4], &[5]], &[]);
    let txn = stage.begun(6, &["a", "b"]);
    stage.connect(6, &[5], false);
    stage.commit(6, txn, &["a", "b"], "x");
    stage.arrive();
    let prepared = stage.standings().values().filter(|standing| standing.open == 1).count();
    assert_eq!(prepared, 5, "by all of one partition");
    [3, 4, 6].iter().for_each(|node| stage.simulation.crash(NodeId(*node)));
    stage.quiet();
    let txn = stage.begun(7, &["a", "b"]);
    let ticket = stage.commit(7, txn, &["a", "b"], "y");
    let outcome = stage.wait(ticket);
    assert!(committed(&outcome), "it is held: {outcome:?}");
    let value = Some(Blob::from("y"));
    assert_eq!(stage.read(0, &["a", "b"]), [value.clone(), value]);
}

/// A transaction of two partitions was voted for by all of the one; of the other one has voted, one has and is gone for good, and
/// one never heard of it, and has forgotten others that are later by a clock that was ahead. It ends, and its keys are free.
#[test]
fn what_one_voted_for_and_one_never_heard_of_is_ended() {
    let mut stage = Stage::tuned(8, &[&[0, 1, 2], &[3, 4, 5]], &[], forgetful);
    stage.simulation.step_wall_clock(NodeId(7), 3_600_000_000_000);
    stage.simulation.crash(NodeId(4));
    stage.forget(7, "bb");
    stage.simulation.restart(NodeId(4));
    stage.pass(5_000);
    stage.connect(6, &[5], false);
    let txn = stage.begun(6, &["a", "b"]);
    stage.commit(6, txn, &["a", "b"], "x");
    stage.pass(8);
    stage.simulation.crash(NodeId(6));
    stage.simulation.crash(NodeId(4));
    stage.quiet();
    assert_eq!(stage.read(0, &["a", "b"]), [None, None]);
    let txn = stage.begun(0, &["a", "b"]);
    let ticket = stage.commit(0, txn, &["a", "b"], "y");
    let outcome = stage.wait(ticket);
    assert!(committed(&outcome), "{outcome:?}");
}

/// The votes for a transaction do not reach its client, and the replicas commit it. While the client may ask they remember that.
#[test]
fn what_a_client_may_still_ask_for_is_not_forgotten() {
    let mut stage = Stage::tuned(5, &[&[0, 1, 2]], &[], forgetful);
    stage.simulation.crash(NodeId(2));
    let txn = stage.begun(3, &["a"]);
    let ticket = stage.commit(3, txn, &["a"], "x");
    stage.pass(8);
    stage.connect(3, &[0, 1], false);
    stage.until("it is taken over", |stage| stage.counted("takeovers") > 0);
    stage.pass(1_000);
    stage.forget(4, "b");
    assert_eq!(stage.outcome(ticket), None);
    stage.connect(3, &[0, 1], true);
    let outcome = stage.wait(ticket);
    assert!(committed(&outcome), "{outcome:?}");
}

/// A replica is back and has missed a commit that the others have forgotten. Its client reads there what is old, is refused, and
/// reads elsewhere when it tries again.
#[test]
fn what_a_returned_replica_has_missed_is_read_elsewhere() {
    let mut stage = Stage::tuned(4, &[&[0, 1, 2]], &[], forgetful);
    stage.simulation.crash(NodeId(0));
    stage.write(3, "a", "new");
    stage.forget(3, "b");
    stage.simulation.restart(NodeId(0));
    stage.pass(5_000);
    let (txn, read) = stage.begin(0, &["a"], &["a"]);
    assert_eq!(read, [None], "it has heard of it");
    let ticket = stage.commit(0, txn, &["a"], "lost");
    assert_eq!(stage.wait(ticket), Outcome::Aborted(Reason::StaleRead));
    stage.pass(100);
    let (txn, read) = stage.begin(0, &["a"], &["a"]);
    assert_eq!(read, [Some(Blob::from("new"))]);
    let ticket = stage.commit(0, txn, &["a"], "newest");
    let outcome = stage.wait(ticket);
    assert!(committed(&outcome), "{outcome:?}");
    assert_eq!(stage.read(0, &["a"]), [Some(Blob::from("newest"))]);
}

/// While a replica is known to be silent its client makes do with a majority at once; when it is heard of, it waits for all.
#[test]
fn a_silent_replica_is_waited_for_once() {
    let mut stage = Stage::new(4, &[&[0, 1, 2]], &[]);
    stage.simulation.crash(NodeId(2));
    let took: Vec<bool> = (0..3).map(|_| stage.write(3, "a", "v") >= Span::from_millis(500)).collect();
    assert_eq!(took, [true, false, false]);
    stage.simulation.restart(NodeId(2));
    // It is told what it has missed, and answers.
    stage.pass(10_000);
    let slow = stage.counted("slow_paths");
    assert!(stage.write(3, "a", "v") < Span::from_millis(50));
    assert_eq!(stage.counted("slow_paths"), slow, "all have voted");
}

/// One of three replicas is away for good: what only it does not know the end of is none that is open, is not kept for it
/// without bound, and is forgotten once it is back.
#[test]
fn what_only_a_dead_replica_has_not_heard_of_does_not_pile_up() {
    let mut stage = Stage::tuned(4, &[&[0, 1, 2]], &[], forgetful);
    stage.simulation.crash(NodeId(2));
    for number in 0..2_000 {
        let txn = stage.begun(3, &["a"]);
        let ticket = stage.commit(3, txn, &["a"], "v");
        let outcome = stage.wait(ticket);
        assert!(committed(&outcome), "{number}: {outcome:?}");
        if number % 100 == 99 {
            // Each hears that the other knows when it has told it, a few seconds later.
            let standings = stage.standings();
            let many = |standing: &Standing| standing.open > 2 || standing.ended > 300;
            assert!(!standings.values().any(many), "{number}: {standings:?}");
        }
    }
    stage.pass(10_000);
    let standings = stage.standings();
    assert!(standings.len() == 2 && standings.values().all(|standing| standing.ended <= 16), "{standings:?}");
    stage.simulation.restart(NodeId(2));
    let known = |standings: &BTreeMap<ProcessId, Standing>| {
        standings.len() == 3 && standings.values().all(|standing| standing.open + standing.ended == 0)
    };
    let back = (0..600).any(|_| {
        stage.pass(500);
        known(&stage.standings())
    });
    let standings = stage.standings();
    assert!(back, "{standings:?}");
    let digests: Vec<u64> = standings.values().map(|standing| standing.digest).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{standings:?}");
}

/// A client begins nothing at a partition before a majority there knows how its last transaction ended.
#[test]
fn a_client_blocks_itself() {
    for (blocking, begun) in [(true, false), (false, true)] {
        let mut stage = Stage::tuned(4, &[&[0, 1, 2]], &[], |tuned| tuned.self_blocking = blocking);
        let (txn, _) = stage.begin(3, &["a"], &["a"]);
        let ticket = stage.commit(3, txn, &["a"], "x");
        stage.pass(10);
        assert!(matches!(stage.outcome(ticket), Some(Outcome::Committed { .. })));
        let next =
            stage.ask(3, Request::Begin { reads: vec![Blob::from("a")], writes: vec![Blob::from("a")] });
        stage.pass(11);
        assert_eq!(stage.outcome(next).is_some(), begun, "self_blocking {blocking}");
        stage.pass(11);
        assert!(stage.outcome(next).is_some(), "a round trip later");
    }
}

/// A client that counts one vote less tells its host what the replicas cannot know.
#[test]
fn a_smaller_fast_quorum_loses_what_was_told() {
    for bug in [false, true] {
        let mut stage = Stage::tuned(4, &[&[0, 1, 2]], &[], |tuned| {
            assert!(!bug || tuned.plant("fast-quorum-too-small"));
        });
        let (txn, _) = stage.begin(3, &["a"], &["a"]);
        stage.connect(3, &[2], false);
        let ticket = stage.commit(3, txn, &["a"], "x");
        stage.pass(10);
        let told = matches!(stage.outcome(ticket), Some(Outcome::Committed { .. }));
        stage.simulation.crash(NodeId(3));
        stage.connect(3, &[0, 1], false);
        stage.simulation.crash(NodeId(1));
        stage.pass(20_000);
        stage.assert_quiet();
        let lost = stage.read(0, &["a"]) == [None];
        assert_eq!((told, lost), (bug, true));
    }
}
