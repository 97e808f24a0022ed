//! Commands over a store of transactions that answers when it is told to.

use super::process::forwarding::{BYTES_MAX, End};
use super::*;
use crate::around::Timer;
use crate::map::{Group, Split};
use crate::request::{Read, TxnId, Update};
use isochrone_core::command::{Condition, Expiry, Operation, Side};
use isochrone_core::{
    ClientId, CommandId, Effect, Effects, Fact, Identity, Instant, KeyspaceId, Malformed, Mark, NodeId,
    Outbox, PartitionId, ProcessId, Random, ReplicaId, Role, Snapshot, Stamp, StateMachine as _, Ticket,
};
use isochrone_replication::order::Member;
use isochrone_store::Store;
use isochrone_store::versions::Version;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

/// Commits what has read the latest, one step at each message.
#[derive(Clone)]
struct Plain {
    values: BTreeMap<Blob, (Version, Option<Blob>)>,
    open: BTreeMap<u64, Vec<Read>>,
    waiting: Vec<(Ticket, Request)>,
    count: u64,
    begun: u64,
    bytes_max: usize,
    /// How transactions end instead, the next first.
    ends: VecDeque<Outcome>,
    cancelled: Vec<Ticket>,
}

#[derive(Clone, Debug)]
struct Silent;

impl Mark for Silent {
    fn fact(&self) -> Option<Fact> {
        None
    }
}

impl Hash for Plain {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.values, &self.open, self.count, self.begun).hash(state);
    }
}

impl Plain {
    fn id(&self, sequence: u64) -> TxnId {
        CommandId { client: ClientId::from(identity()), sequence }
    }

    fn read(&self, keys: &[Blob]) -> Vec<Read> {
        let read = |key: &Blob| {
            let (version, value) = self.values.get(key).cloned().unwrap_or((Version::NONE, None));
            Read { key: key.clone(), value, version }
        };
        keys.iter().map(read).collect()
    }

    fn put(&mut self, update: Update) {
        self.count += 1;
        self.values.insert(update.key, (Version(self.count), update.value));
    }

    fn serve(&mut self, request: Request) -> Outcome {
        match request {
            Request::Begin { reads, writes } => {
                self.begun += 1;
                let reads = self.read(&reads);
                if writes.is_empty() {
                    return Outcome::Snapshot { reads, at: Version(self.count) };
                }
                let txn = self.id(self.begun);
                self.open.insert(self.begun, reads.clone());
                Outcome::Begun { txn, reads }
            }
            Request::Commit { txn, updates } => {
                let reads = self.open.remove(&txn.sequence).expect("it is open");
                let size = |update: &Update| update.value.as_ref().map_or(0, |value| value.len());
                let found = updates.iter().map(size).sum();
                if found > self.bytes_max {
                    self.open.insert(txn.sequence, reads);
                    let refusal = request::Refusal::TooLarge { what: "bytes", found, most: self.bytes_max };
                    return Outcome::Refused(refusal);
                }
                if let Some(end) = self.ends.pop_front() {
                    return end;
                }
                let keys: Vec<Blob> = reads.iter().map(|read| read.key.clone()).collect();
                if self.read(&keys) != reads {
                    return Outcome::Aborted(Reason::StaleRead);
                }
                updates.into_iter().for_each(|update| self.put(update));
                Outcome::Committed { at: Version(self.count) }
            }
            Request::List { .. } => {
                let there = self.values.iter().filter(|(_, (_, value))| value.is_some());
                let keys = there.map(|(key, _)| key.clone()).collect();
                Outcome::Listed { keys, open: Vec::new(), next: None }
            }
            Request::Move { .. } | Request::Survey => request::MoveRefusal::Undivided.into(),
            Request::Abort { txn } => match self.open.remove(&txn.sequence) {
                Some(_) => Outcome::Aborted(Reason::Client),
                None => Outcome::Refused(request::Refusal::NotOpen(txn)),
            },
        }
    }
}

impl Process for Plain {
    type Setup = ();
    type Message = Heard;
    type Record = ();
    type Request = Request;
    type Outcome = Outcome;
    type Timer = ();
    type Mark = Silent;

    fn open(_: Identity, (): &()) -> Plain {
        let (values, open, waiting) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let (ends, cancelled) = (VecDeque::new(), Vec::new());
        Plain { values, open, waiting, count: 0, begun: 0, bytes_max: 1_000, ends, cancelled }
    }

    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Ok(())
    }

    fn replay(&mut self, (): ()) {}

    fn start(&mut self, _: &mut Effects<Self>) {}

    /// One step; with a key, somebody else deletes that first.
    fn receive(&mut self, _: ProcessId, message: Heard, effects: &mut Effects<Self>) {
        if let Heard::Step(Some(key)) = message {
            self.put(Update { key, value: None });
        }
        for (ticket, request) in std::mem::take(&mut self.waiting) {
            let outcome = self.serve(request);
            effects.complete(ticket, outcome);
        }
    }

    fn request(&mut self, ticket: Ticket, request: Request, _: &mut Effects<Self>) {
        self.waiting.push((ticket, request));
    }

    fn cancel(&mut self, ticket: Ticket, _: &mut Effects<Self>) {
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
        self.cancelled.push(ticket);
    }

    fn expire(&mut self, (): (), _: &mut Effects<Self>) {}

    fn snapshot(&self) -> Option<Snapshot> {
        None
    }
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
enum Heard {
    Step(Option<Blob>),
    Forward(Forward),
}

impl Carries for Heard {
    fn carry(forward: Forward) -> Heard {
        Heard::Forward(forward)
    }

    fn carried(self) -> Result<Forward, Heard> {
        if let Heard::Forward(forward) = self { Ok(forward) } else { Err(self) }
    }
}

fn map(node: u16) -> Map {
    let process = ProcessId { role: Role(0), node: NodeId(node), ..identity().process };
    let members = [Member { replica: ReplicaId(0), process }].into();
    let groups = [Group { members, spares: [].into() }].into();
    Map { keyspace: KeyspaceId(1), split: Split::Hash, groups }
}

fn identity() -> Identity {
    let process = ProcessId {
        node: NodeId(0),
        keyspace: KeyspaceId(1),
        partition: PartitionId(0),
        role: Role(1),
        instance: 0,
    };
    Identity { process, incarnation: 1 }
}

struct Host {
    commands: Commands<Plain>,
    outbox: Outbox<Commands<Plain>>,
    now: Instant,
    stamp: Stamp,
    tickets: u64,
    armed: Option<Instant>,
    answers: BTreeMap<u64, Answer>,
    counted: Vec<&'static str>,
    said: Vec<Forward>,
}

impl Host {
    fn new() -> Host {
        Host::with_home(0)
    }

    /// Where that node has all replicas.
    fn with_home(home: u16) -> Host {
        Host::among(home, &[NodeId(0)])
    }

    /// The same, where these nodes have clients.
    fn among(home: u16, nodes: &[NodeId]) -> Host {
        let parameters =
            Parameters { limit: Span::from_secs(1), ..Parameters::for_rtt(Span::from_millis(10)) };
        Host::tuned(home, nodes, parameters)
    }

    fn tuned(home: u16, nodes: &[NodeId], parameters: Parameters) -> Host {
        Host {
            commands: Commands::open(
                identity(),
                &Setup { client: (), parameters, map: map(home), nodes: nodes.into() },
            ),
            outbox: Outbox::new(identity().process, Random::seeded(1)),
            now: Instant::ZERO,
            stamp: Stamp::from_nanos(1_000_000_000),
            tickets: 0,
            armed: None,
            answers: BTreeMap::new(),
            counted: Vec::new(),
            said: Vec::new(),
        }
    }

    /// From node 1.
    fn hears(&mut self, forward: Forward) {
        let from = ProcessId { node: NodeId(1), ..identity().process };
        self.input(|commands, effects| commands.receive(from, Heard::Forward(forward), effects));
        self.input(Commands::settle);
    }

    /// Node 1 forwards these to this one's first incarnation.
    fn is_forwarded(&mut self, from: u32, number: u64, operations: &[Operation]) {
        let commands =
            operations.iter().map(|operation| Command::new(self.stamp, operation.clone())).collect();
        self.hears(Forward::Execute { number, from, to: 1, left: Span::from_secs(1), commands });
    }

    /// What was said since the last look.
    fn says(&mut self) -> Vec<Forward> {
        std::mem::take(&mut self.said)
    }

    /// Has met others at this key, whose home is node 1; what it has forwarded there waits under this number.
    fn forwards(&mut self, key: &str) -> (u64, u64) {
        let ticket = self.ask(incr(key));
        self.step(None);
        self.step(Some(key));
        let said = self.says();
        let [Forward::Execute { number, from: 1, to: 0, .. }] = said[..] else { panic!("{said:?}") };
        self.hears(Forward::Lives { incarnation: 7 });
        let said = self.says();
        assert!(matches!(said[..], [Forward::Execute { to: 7, .. }]), "{said:?}");
        (ticket, number)
    }

    /// Keys that were let go are free.
    fn soon(&mut self) {
        self.now = self.now + Span::from_millis(1);
        self.input(|commands, effects| commands.expire(Timer::Again, effects));
        self.input(Commands::settle);
    }

    /// So long nothing is heard.
    fn waits(&mut self, patience: u64) {
        self.now = self.now + self.commands.patience() * patience;
        self.armed = None;
        self.input(|commands, effects| commands.expire(Timer::Again, effects));
        self.input(Commands::settle);
    }

    fn input(&mut self, input: impl FnOnce(&mut Commands<Plain>, &mut Effects<Commands<Plain>>)) {
        input(&mut self.commands, self.outbox.input(self.now, self.stamp));
        for effect in self.outbox.drain() {
            match effect {
                Effect::Complete { ticket, outcome, .. } => {
                    assert!(self.answers.insert(ticket.0, outcome).is_none(), "{ticket} is answered twice");
                }
                Effect::Arm { timer: Timer::Again, after } => self.armed = Some(self.now + after),
                Effect::Mark(mark) => {
                    if let Some(Fact::Counted(name)) = mark.fact() {
                        self.counted.push(name);
                    }
                }
                Effect::Send { message: Heard::Forward(forward), .. } => self.said.push(forward),
                other => panic!("{other:?}"),
            }
        }
        self.commands.check();
    }

    fn ask(&mut self, operation: Operation) -> u64 {
        self.tickets += 1;
        let (ticket, command) = (Ticket(self.tickets), Command::new(self.stamp, operation));
        self.input(|commands, effects| commands.request(ticket, Ask::Command(command), effects));
        self.tickets
    }

    /// Executes nothing more for others.
    fn retire(&mut self) -> u64 {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.input(|commands, effects| commands.request(ticket, Ask::Retire, effects));
        self.input(Commands::settle);
        self.tickets
    }

    /// Everything that waits goes a step further; before, somebody else deletes a key.
    fn step(&mut self, deleted: Option<&str>) {
        self.input(Commands::settle);
        let deleted = deleted.map(Blob::from);
        self.input(|commands, effects| commands.receive(identity().process, Heard::Step(deleted), effects));
        self.input(Commands::settle);
        if let Some(due) = self.armed.take_if(|due| *due <= self.now) {
            assert!(due <= self.now);
            self.input(|commands, effects| commands.expire(Timer::Again, effects));
        }
        self.now = self.now + Span::from_millis(10);
    }

    fn run(&mut self, operation: Operation) -> Answer {
        let ticket = self.ask(operation);
        self.told(ticket)
    }

    fn told(&mut self, ticket: u64) -> Answer {
        for _ in 0..1_000 {
            if let Some(answer) = self.answers.remove(&ticket) {
                return answer;
            }
            self.step(None);
        }
        panic!("{ticket} is not answered");
    }

    /// A request of the host's own.
    fn transact(&mut self, request: Request) -> u64 {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.input(|commands, effects| commands.request(ticket, Ask::Transaction(request), effects));
        self.tickets
    }

    fn outcome(&mut self, ticket: u64) -> Outcome {
        match self.told(ticket) {
            Answer::Transaction(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn begun(&self) -> u64 {
        self.commands.client().begun
    }

    fn held(&self, key: &str) -> Option<Blob> {
        self.commands.client().values.get(key.as_bytes()).and_then(|(_, value)| value.clone())
    }
}

fn get(key: &str) -> Operation {
    Operation::Get { key: key.into() }
}

fn set(key: &str, value: &str) -> Operation {
    let (key, value) = (key.into(), value.into());
    Operation::Set { key, value, condition: Condition::Always, expiry: Expiry::Clear, get: false }
}

fn set_until(key: &str, at: Stamp) -> Operation {
    let (key, value, expiry) = (key.into(), "v".into(), Expiry::At(at));
    Operation::Set { key, value, condition: Condition::Always, expiry, get: false }
}

fn incr(key: &str) -> Operation {
    Operation::IncrBy { key: key.into(), by: 1 }
}

fn replied(response: Response) -> Answer {
    Answer::Replied(response)
}

fn refused(answer: Answer) -> String {
    match answer {
        Answer::Refused(refusal) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn replies_are_those_of_a_store() {
    let (mut host, mut twin, mut random) = (Host::new(), Store::default(), Random::seeded(7));
    for number in 0..2_000_u64 {
        let mut key = || Blob::from(["a", "b", "c", "d"][random.below(4) as usize]);
        let (one, other) = (key(), key());
        let operation = match random.below(12) {
            0 => set(std::str::from_utf8(&one).unwrap(), &number.to_string()),
            1 => Operation::Push {
                key: one,
                values: ["x".into(), number.to_string().as_str().into()].into(),
                side: Side::Left,
                only_if_exists: false,
            },
            2 => Operation::Pop { key: one, side: Side::Right, count: None },
            3 => {
                Operation::SAdd { key: one, members: ["m".into(), number.to_string().as_str().into()].into() }
            }
            4 => Operation::Del { keys: [one].into() },
            5 => Operation::Rename { key: one, target: other, only_if_absent: number % 2 == 0 },
            6 => Operation::MGet { keys: [one, other].into() },
            7 => Operation::IncrBy { key: one, by: 3 },
            8 => Operation::ExpireAt {
                key: one,
                at: host.stamp + Span::from_millis(random.below(400)),
                condition: isochrone_core::command::ExpiryCondition::Always,
            },
            9 => Operation::MSet {
                pairs: [(one, "1".into()), (other, "2".into())].into(),
                only_if_absent: number % 3 == 0,
            },
            10 => Operation::Transaction {
                watched: [(one.clone(), if number % 2 == 0 { 7 } else { 0 })].into(),
                operations: [
                    Operation::Get { key: other.clone() },
                    Operation::Append { key: other, value: "+".into() },
                ]
                .into(),
            },
            _ => Operation::Type { key: one },
        };
        // Clocks of gateways differ: stamps go back as well.
        host.stamp = Stamp::from_nanos(1_000_000_000 + number * 20_000_000 - random.below(50) * 1_000_000);
        let expected = twin.apply(&Command::new(host.stamp, operation.clone()));
        assert_eq!(host.run(operation.clone()), replied(expected), "{operation:?} at {}", host.stamp);
    }
    let keys = ["a", "b", "c", "d"];
    let held = |key: &&str| {
        host.commands.client().values.get(key.as_bytes()).is_some_and(|(_, value)| value.is_some())
    };
    assert_eq!(keys.iter().filter(|key| held(key)).count(), twin.len());
}

#[test]
fn a_pipeline_on_one_key_costs_two_transactions_and_keeps_its_order() {
    let mut host = Host::new();
    let first = host.ask(incr("a"));
    host.input(Commands::settle);
    let tickets: Vec<u64> = (0..100).map(|_| host.ask(incr("a"))).collect();
    let read = host.ask(get("a"));
    let beside = host.ask(incr("b"));
    assert_eq!(host.told(first), replied(Response::Integer(1)));
    for (at, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(host.told(ticket), replied(Response::Integer(at as i64 + 2)));
    }
    assert_eq!(host.told(read), replied(Response::bulk(b"101")));
    assert_eq!(host.told(beside), replied(Response::Integer(1)));
    assert_eq!(host.begun(), 3);
}

#[test]
fn what_is_aborted_is_executed_again_on_what_is_there_then() {
    let mut host = Host::new();
    host.run(set("a", "5"));
    let ticket = host.ask(incr("a"));
    host.step(None);
    // It has read 5, and somebody deletes the key.
    host.step(Some("a"));
    assert_eq!(host.told(ticket), replied(Response::Integer(1)));
    assert_eq!(host.counted, ["aborted_stale_read"]);
    // For ever, the command gives up.
    let ticket = host.ask(incr("a"));
    while !host.answers.contains_key(&ticket) {
        host.step(Some("a"));
    }
    let Answer::Refused(refusal) = host.told(ticket) else { panic!() };
    let text = refusal.to_string();
    assert!(text.starts_with("TRYAGAIN aborted ") && text.contains("stale_read"), "{text}");
    assert_eq!(host.run(get("a")), replied(Response::Nil));
}

#[test]
fn exec_answers_nil_where_a_watched_key_has_changed() {
    let mut host = Host::new();
    host.run(set("a", "1"));
    let Answer::Replied(Response::Integer(version)) = host.run(Operation::Version { key: "a".into() }) else {
        panic!()
    };
    let exec = || Operation::Transaction {
        watched: [("a".into(), version as u64)].into(),
        operations: [set("b", "2"), incr("c")].into(),
    };
    let replies = vec![Response::Ok, Response::Integer(1)];
    assert_eq!(host.run(exec()), replied(Response::Array(replies)));
    // While it is under way, the watched key changes.
    let ticket = host.ask(exec());
    host.step(None);
    host.step(Some("a"));
    assert_eq!(host.told(ticket), replied(Response::NilArray));
    host.run(set("b", "3"));
    assert_eq!(host.run(exec()), replied(Response::NilArray));
    assert_eq!(host.run(get("b")), replied(Response::bulk(b"3")), "what was to be written unread was not");
    assert_eq!(host.run(get("c")), replied(Response::bulk(b"1")));
}

#[test]
fn a_read_that_finds_a_key_expired_deletes_it() {
    let mut host = Host::new();
    let at = host.stamp + Span::from_secs(1);
    host.run(set_until("a", at));
    host.stamp = at;
    assert_eq!(host.run(get("a")), replied(Response::Nil));
    // A gateway whose clock is behind does not see it again.
    host.stamp = Stamp::from_nanos(at.as_nanos() - 1);
    assert_eq!(host.run(get("a")), replied(Response::Nil));
}

#[test]
fn a_transaction_of_the_hosts_own_that_finds_a_key_expired_deletes_it() {
    for writes in [Vec::new(), vec![Blob::from("c")]] {
        let mut host = Host::new();
        let at = host.stamp + Span::from_secs(1);
        host.run(set_until("a", at));
        host.run(set("b", "v"));
        host.stamp = at;
        let (reads, open) = (vec!["a".into(), "b".into()], writes.len());
        let ticket = host.transact(Request::Begin { reads, writes });
        let (txn, reads) = match host.outcome(ticket) {
            Outcome::Begun { txn, reads } => (Some(txn), reads),
            Outcome::Snapshot { reads, .. } => (None, reads),
            other => panic!("{other:?}"),
        };
        let there: Vec<bool> = reads.iter().map(|read| read.value.is_some()).collect();
        assert_eq!(there, [false, true]);
        // A gateway whose clock is behind does not see it again.
        host.stamp = Stamp::from_nanos(at.as_nanos() - 1);
        assert_eq!(host.run(get("a")), replied(Response::Nil));
        assert_eq!(host.commands.client().open.len(), open, "what had found it is given up");
        let Some(txn) = txn else { continue };
        host.run(set("a", "again"));
        let ticket = host.transact(Request::Commit { txn, updates: Vec::new() });
        assert_eq!(host.outcome(ticket), Outcome::Aborted(Reason::StaleRead));
    }
}

#[test]
fn a_transaction_that_is_cancelled_while_a_key_is_deleted_for_it_does_not_begin() {
    let mut host = Host::new();
    let at = host.stamp + Span::from_secs(1);
    host.run(set_until("a", at));
    host.stamp = at;
    let begun = host.begun();
    let ticket = host.transact(Request::Begin { reads: vec!["a".into()], writes: vec!["b".into()] });
    host.step(None);
    host.input(|commands, effects| commands.cancel(Ticket(ticket), effects));
    (0..9).for_each(|_| host.step(None));
    assert!(host.answers.is_empty() && host.commands.client().open.is_empty());
    assert_eq!((host.begun() - begun, host.held("a")), (2, None), "its own, and the one that deletes");
}

#[test]
fn a_transaction_that_finds_keys_expired_for_ever_is_aborted() {
    for always in [false, true] {
        let mut host = Host::new();
        let at = host.stamp + Span::from_secs(1);
        host.run(set_until("a", at));
        let over = host.held("a");
        host.stamp = at;
        let (begun, since) = (host.begun(), host.now);
        let ticket = host.transact(Request::Begin { reads: vec!["a".into()], writes: Vec::new() });
        while !host.answers.contains_key(&ticket) {
            host.step(None);
            // Somebody whose clock is behind sets it: once it is deleted, or all the time and so before that.
            if always || host.held("a").is_none() {
                host.commands.client_mut().put(Update { key: "a".into(), value: over.clone() });
            }
        }
        assert_eq!(host.outcome(ticket), Outcome::Aborted(Reason::StaleRead));
        assert!(always || host.begun() - begun == 15, "8 times, and 7 that delete");
        assert!(always || host.counted == ["aborted_stale_read"], "{:?}", host.counted);
        let limit = host.commands.limit() + Span::from_millis(100);
        assert!(host.now.since(since) <= limit, "{}", host.now.since(since));
    }
}

#[test]
fn a_transaction_is_told_why_nothing_was_deleted_for_it() {
    let overdue = |open_max: usize| {
        let parameters = Parameters { open_max, ..Parameters::for_rtt(Span::from_millis(10)) };
        let mut host = Host::tuned(0, &[NodeId(0)], parameters);
        let at = host.stamp + Span::from_secs(1);
        host.run(set_until("a", at));
        host.stamp = at;
        let ticket = host.transact(Request::Begin { reads: vec!["a".into()], writes: Vec::new() });
        (host, ticket)
    };
    let (mut host, ticket) = overdue(1);
    let waits = host.ask(incr("b"));
    assert_eq!(host.outcome(ticket), Outcome::Refused(request::Refusal::Overloaded(1)));
    assert_eq!(host.told(waits), replied(Response::Integer(1)));
    let (mut host, ticket) = overdue(2);
    let refusal = request::Refusal::TooLarge { what: "bytes", found: 2, most: 1 };
    host.commands.client_mut().ends.push_back(Outcome::Refused(refusal.clone()));
    assert_eq!(host.outcome(ticket), Outcome::Refused(refusal));
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let mut host = Host::new();
    for operation in [Operation::Flush, Operation::RandomKey { seed: 1 }] {
        let name = operation.name();
        let operations = [operation].into();
        let text = refused(host.run(Operation::Transaction { watched: [].into(), operations }));
        assert!(text.starts_with(&format!("ERR '{name}' is about the whole keyspace")), "{text}");
    }
    let long = "x".repeat(900);
    // Those behind the first go together, are too large together, and are good one by one.
    host.ask(set("a", "1"));
    host.input(Commands::settle);
    let append = || Operation::Append { key: "a".into(), value: long.as_str().into() };
    let (first, second, third) = (host.ask(append()), host.ask(append()), host.ask(get("a")));
    assert_eq!(host.told(first), replied(Response::Integer(901)));
    let text = refused(host.told(second));
    assert!(
        text.starts_with("ERR the transaction has ") && text.ends_with("and the limit `txn_bytes` is 1000"),
        "{text}"
    );
    assert_eq!(host.told(third), replied(Response::bulk(format!("1{long}").as_bytes())));
    // Somebody has written plain bytes.
    host.commands.client_mut().put(Update { key: "raw".into(), value: Some("bytes".into()) });
    let text = refused(host.run(incr("raw")));
    assert!(text.starts_with("WRONGTYPE key "), "{text}");
    host.step(None);
    assert!(host.commands.client().open.is_empty());
}

#[test]
fn emptying_ends_as_its_transactions_do() {
    let mut host = Host::new();
    let filled = |host: &mut Host, ends: Vec<Outcome>| {
        (0..100).for_each(|key| drop(host.run(set(&format!("k{key}"), "v"))));
        host.commands.client_mut().ends = ends.into();
        host.run(Operation::Flush)
    };
    let left = |host: &mut Host| host.run(Operation::DbSize);
    let aborted = || Outcome::Aborted(Reason::Conflict);
    let before = host.begun();
    assert_eq!(filled(&mut host, vec![]), replied(Response::Ok));
    assert_eq!(host.begun() - before, 102, "64 keys together, and then up to 128");
    assert_eq!(left(&mut host), replied(Response::Integer(0)));
    // Where others are in the way it is tried again, with fewer keys at a time.
    let before = host.begun();
    assert_eq!(filled(&mut host, vec![aborted(), aborted()]), replied(Response::Ok));
    assert_eq!(host.begun() - before, 105, "64, 32, 16, 32, 64");
    assert_eq!(left(&mut host), replied(Response::Integer(0)));
    // What nobody knows the end of may delete later what is written now.
    assert_eq!(filled(&mut host, vec![Outcome::Unknown]), Answer::Unknown);
    assert_eq!(left(&mut host), replied(Response::Integer(100)));
    // Given up: with no effect, or with some.
    let late = filled(&mut host, (0..200).map(|_| aborted()).collect());
    let Answer::Refused(refusal) = late else { panic!("{late:?}") };
    let text = refusal.to_string();
    assert!(text.starts_with("TRYAGAIN aborted ") && text.contains("conflict"), "{text}");
    assert_eq!(left(&mut host), replied(Response::Integer(100)));
    let some = Outcome::Committed { at: Version(1_000_000) };
    let late = filled(&mut host, [some].into_iter().chain((0..200).map(|_| aborted())).collect());
    assert_eq!(late, Answer::Unknown);
    host.commands.client_mut().ends.clear();
    assert_eq!(host.run(Operation::Flush), replied(Response::Ok));
    assert!(host.commands.client().open.is_empty());
}

#[test]
fn an_answer_that_comes_when_it_is_not_waited_for_any_more_is_one_answer() {
    let mut host = Host::new();
    host.run(set("a", "1"));
    let begun = host.begun();
    let ticket = host.ask(Operation::Flush);
    host.input(Commands::settle);
    // Which keys there are is heard of when it is asked again.
    host.now = host.now + host.commands.patience();
    host.input(|commands, effects| commands.expire(Timer::Again, effects));
    host.input(|commands, effects| commands.receive(identity().process, Heard::Step(None), effects));
    assert_eq!(host.told(ticket), replied(Response::Ok));
    assert_eq!(host.begun(), begun + 1);
}

/// To the first incarnation, in one part.
fn answered(number: u64, ends: Vec<End>, queued: bool) -> Forward {
    Forward::Answered { to: 1, number, first: 0, ends, queued }
}

#[test]
fn what_others_contend_for_is_executed_at_its_home() {
    let mut host = Host::with_home(1);
    let (ticket, number) = host.forwards("a");
    let begun = host.begun();
    // What comes meanwhile goes behind it, together, to the same incarnation.
    let behind = [host.ask(incr("a")), host.ask(get("a"))];
    let ends = vec![End::Replied(Response::Integer(7))];
    host.hears(answered(number, ends, true));
    assert_eq!(host.told(ticket), replied(Response::Integer(7)));
    host.soon();
    let said = host.says();
    let [Forward::Settled { from: 1, below }, Forward::Execute { number, to: 7, commands, .. }] = &said[..]
    else {
        panic!("{said:?}")
    };
    assert!(below <= number && commands.len() == 2, "{said:?}");
    let number = *number;
    let ends = vec![End::Replied(Response::Integer(9)), End::Refused("TRYAGAIN later".to_owned())];
    host.hears(answered(number, ends.clone(), true));
    host.hears(answered(number, ends, true));
    assert_eq!(host.told(behind[0]), replied(Response::Integer(9)));
    let Answer::Refused(refusal) = host.told(behind[1]) else { panic!() };
    assert_eq!(refusal.to_string(), "TRYAGAIN later");
    assert_eq!(host.begun(), begun);
    // Nobody contends for it any more.
    host.waits(5);
    assert_eq!(host.run(incr("a")), replied(Response::Integer(1)));
    assert_eq!(host.begun(), begun + 1);
}

#[test]
fn what_comes_back_when_it_is_not_waited_for_any_more_begins_once() {
    let mut host = Host::with_home(1);
    let (ticket, number) = host.forwards("a");
    let begun = host.begun();
    // Both are heard of before anything is done.
    host.now = host.now + host.commands.patience();
    host.input(|commands, effects| commands.expire(Timer::Again, effects));
    host.hears(Forward::Declined { to: 1, number });
    assert_eq!(host.told(ticket), replied(Response::Integer(1)));
    (0..3).for_each(|_| host.step(None));
    assert_eq!(host.begun(), begun + 1);
    assert_eq!(host.run(get("a")), replied(Response::bulk(b"1")), "and not twice");
}

#[test]
fn nobody_knows_what_a_home_has_done_that_has_restarted_or_is_silent() {
    for restarts in [true, false] {
        let mut host = Host::with_home(1);
        let (ticket, _) = host.forwards("a");
        if !restarts {
            for _ in 0..2 {
                host.waits(1);
                assert!(matches!(host.says()[..], [Forward::Execute { to: 7, .. }]));
            }
        }
        let read = host.ask(get("a"));
        if restarts {
            host.hears(Forward::Lives { incarnation: 6 });
            assert!(host.answers.is_empty(), "that was before");
            host.hears(Forward::Lives { incarnation: 8 });
        } else {
            host.waits(1);
        }
        assert_eq!(host.told(ticket), Answer::Unknown, "restarts: {restarts}");
        // What was behind it has not left.
        assert_eq!(host.told(read), replied(Response::Nil));
    }
    // What reads may have deleted a key whose time was over (a seed found that it was asked for again).
    let mut host = Host::with_home(1);
    let (ticket, number) = host.forwards("a");
    let behind = [host.ask(incr("a")), host.ask(get("a"))];
    let ends = vec![End::Replied(Response::Integer(1))];
    host.hears(answered(number, ends, true));
    assert_eq!(host.told(ticket), replied(Response::Integer(1)));
    host.soon();
    host.hears(Forward::Lives { incarnation: 8 });
    assert_eq!(behind.map(|ticket| host.told(ticket)), [Answer::Unknown, Answer::Unknown]);
    // Who has not told its incarnation has nothing.
    let mut host = Host::with_home(1);
    let ticket = host.ask(incr("a"));
    host.step(None);
    host.step(Some("a"));
    assert!(matches!(host.says()[..], [Forward::Execute { to: 0, .. }]));
    host.waits(1);
    assert_eq!(host.told(ticket), replied(Response::Integer(1)));
}

#[test]
fn what_is_forwarded_is_executed_once() {
    let mut host = Host::new();
    let answered = |to, number, counts: &[i64]| {
        let ends = counts.iter().map(|count| End::Replied(Response::Integer(*count))).collect();
        Forward::Answered { to, number, first: 0, ends, queued: false }
    };
    // It was meant for a life before this one.
    let commands = vec![Command::new(host.stamp, incr("a"))];
    host.hears(Forward::Execute { number: 4, from: 3, to: 9, left: Span::from_secs(1), commands });
    assert_eq!(host.says(), [Forward::Lives { incarnation: 1 }]);
    host.is_forwarded(3, 4, &[incr("a")]);
    host.is_forwarded(3, 4, &[incr("a")]);
    assert_eq!(host.says(), [Forward::Taken { to: 3, number: 4 }]);
    (0..3).for_each(|_| host.step(None));
    assert_eq!(host.says(), [answered(3, 4, &[1])]);
    host.is_forwarded(3, 4, &[incr("a")]);
    assert_eq!(host.says(), [answered(3, 4, &[1])], "it is told again");
    assert_eq!(host.counted, ["executed_for_others"]);
    // Once it is settled it is forgotten, and not done again.
    host.hears(Forward::Settled { from: 3, below: 5 });
    host.is_forwarded(3, 4, &[incr("a")]);
    assert_eq!(host.says(), [Forward::Declined { to: 3, number: 4 }]);
    // Nor is what a former life has forwarded; what a later one has is something else.
    host.is_forwarded(2, 6, &[incr("a")]);
    assert_eq!(host.says(), []);
    host.is_forwarded(4, 4, &[incr("a"), incr("b")]);
    (0..10).for_each(|_| host.step(None));
    assert_eq!(host.says(), [answered(4, 4, &[2, 1])]);
}

#[test]
fn answers_to_a_former_life_are_none() {
    let mut host = Host::with_home(1);
    let ticket = host.ask(incr("a"));
    host.step(None);
    host.step(Some("a"));
    let said = host.says();
    let [Forward::Execute { number, to: 0, .. }] = said[..] else { panic!("{said:?}") };
    let old = || vec![End::Replied(Response::Integer(41))];
    let former = |number| Forward::Answered { to: 0, number, first: 0, ends: old(), queued: false };
    host.hears(former(number));
    // Nor is one to what nobody was allowed to execute.
    host.hears(answered(number, old(), false));
    host.hears(Forward::Lives { incarnation: 7 });
    host.hears(former(number));
    host.hears(Forward::Declined { to: 0, number });
    assert!(host.answers.is_empty() && host.begun() == 1);
    host.hears(answered(number, vec![End::Replied(Response::Integer(5))], false));
    assert_eq!(host.told(ticket), replied(Response::Integer(5)));
}

#[test]
fn what_is_large_is_answered_in_parts_or_not_forwarded() {
    let long = |digit: &str| digit.repeat(BYTES_MAX * 2 / 3);
    let mut host = Host::new();
    host.commands.client_mut().bytes_max = usize::MAX;
    host.is_forwarded(3, 4, &[set("a", &long("1")), get("a"), get("a"), get("b")]);
    (0..9).for_each(|_| host.step(None));
    let said = host.says();
    let parts = |said: &[Forward]| -> Vec<_> {
        let part = |forward: &Forward| match forward {
            Forward::Answered { to: 3, number: 4, first, ends, .. } => (*first, ends.len()),
            other => panic!("{other:?}"),
        };
        said.iter().map(part).collect()
    };
    assert_eq!(parts(&said), [(0, 2), (2, 2)]);
    // Who has asked puts them together, in whatever order they come, and however often.
    let mut host = Host::with_home(1);
    let (ticket, number) = host.forwards("a");
    let behind = [set("a", "2"), get("a"), get("a")].map(|operation| host.ask(operation));
    host.hears(answered(number, vec![End::Unknown], false));
    assert_eq!(host.told(ticket), Answer::Unknown);
    host.soon();
    let said = host.says();
    let Some(Forward::Execute { number, commands, .. }) = said.last() else { panic!("{said:?}") };
    assert_eq!(commands.len(), 3);
    let part = |first, numbers: &[i64]| {
        let ends = numbers.iter().map(|number| End::Replied(Response::Integer(*number))).collect();
        Forward::Answered { to: 1, number: *number, first, ends, queued: false }
    };
    for part in [part(1, &[1, 2]), part(1, &[1, 2]), part(9, &[7]), part(1, &[1])] {
        host.hears(part);
        assert!(host.answers.is_empty());
    }
    host.hears(part(0, &[0]));
    assert_eq!(behind.map(|ticket| host.told(ticket)), [0, 1, 2].map(|n| replied(Response::Integer(n))));
    // What is longer than that does not leave, nor does it go with others.
    host.commands.client_mut().bytes_max = usize::MAX;
    host.soon();
    host.says();
    let tickets =
        [set("a", &long("11")), set("a", &long("2")), set("a", &long("3"))].map(|one| host.ask(one));
    assert_eq!(host.told(tickets[0]), replied(Response::Ok));
    host.soon();
    let said = host.says();
    let [Forward::Execute { commands, .. }] = &said[..] else { panic!("{} are said", said.len()) };
    assert_eq!(commands.len(), 1);
}

#[test]
fn what_was_never_begun_is_not_unknown() {
    let mut host = Host::new();
    let limit = host.commands.limit();
    // Its partition does not answer, and others wait for it in line.
    let first = host.ask(incr("a"));
    host.input(Commands::settle);
    host.now = host.now + limit / 2;
    let second = host.ask(incr("a"));
    let late = |host: &mut Host| {
        host.now = host.now + limit / 2;
        host.input(|commands, effects| commands.expire(Timer::Again, effects));
        host.input(Commands::settle);
    };
    late(&mut host);
    let text = refused(host.answers.remove(&first).unwrap());
    assert!(text.starts_with("TRYAGAIN no answer within "), "{text}");
    assert_eq!(host.commands.client().cancelled.len(), 1, "nobody is to wait for its transaction");
    // The other has begun, and is late itself.
    let third = host.ask(incr("a"));
    late(&mut host);
    late(&mut host);
    let text = refused(host.answers.remove(&second).unwrap());
    assert!(text.starts_with("TRYAGAIN "), "{text}");
    let text = refused(host.answers.remove(&third).unwrap());
    assert!(text.starts_with("TRYAGAIN "), "{text}");
    // One that commits is awaited; what waits for it has waited.
    let first = host.ask(set("a", "1"));
    host.step(None);
    let second = host.ask(incr("a"));
    late(&mut host);
    late(&mut host);
    let text = refused(host.answers.remove(&second).unwrap());
    assert!(text.starts_with("TRYAGAIN it has waited for "), "{text}");
    assert_eq!(host.told(first), replied(Response::Ok));
}

/// However long pauses may be.
#[test]
fn what_is_aborted_is_tried_again_until_its_time_is_over_and_no_longer() {
    let (limit, defaults) = (Span::from_secs(1), Parameters::for_rtt(Span::from_millis(10)));
    let pause = limit * 4;
    let retry = Retry { pause, pause_max: pause, ..defaults.retry };
    let mut host = Host::tuned(0, &[NodeId(0)], Parameters { limit, retry, ..defaults });
    let ticket = host.ask(incr("a"));
    while !host.answers.contains_key(&ticket) {
        host.step(Some("a"));
    }
    assert!(host.now <= Instant::ZERO + limit + Span::from_millis(50), "{:?}", host.now);
    let text = refused(host.told(ticket));
    assert!(text.starts_with("TRYAGAIN aborted 2 times within 1s, "), "{text}");
}

/// What others have forwarded goes with what has come here later.
#[test]
fn each_command_of_a_transaction_has_its_own_time() {
    let mut host = Host::new();
    let limit = host.commands.limit();
    host.now = host.now + limit * 10;
    let begun = host.now;
    // They wait for it, in a line.
    let first = host.ask(incr("a"));
    host.input(Commands::settle);
    let own = host.ask(incr("a"));
    let commands = vec![Command::new(host.stamp, incr("a"))];
    let left = limit * 4 / 5;
    host.hears(Forward::Execute { number: 4, from: 3, to: 1, left, commands });
    let behind = [host.ask(incr("a")), host.ask(incr("a"))];
    assert_eq!(host.told(first), replied(Response::Integer(1)));
    // Somebody else is always first.
    let mut ended = None;
    while ended.is_none() {
        host.step(Some("a"));
        ended = host.says().into_iter().find_map(|forward| match forward {
            Forward::Answered { number: 4, ends, .. } => Some(ends),
            _ => None,
        });
    }
    assert!(matches!(&ended.unwrap()[..], [End::Refused(_)]));
    assert!(host.now.since(begun) < limit * 9 / 10, "{} is gone", host.now.since(begun));
    assert!(host.answers.is_empty(), "the others have time left");
    let begun = host.begun();
    for (at, ticket) in [own, behind[0], behind[1]].into_iter().enumerate() {
        assert_eq!(host.told(ticket), replied(Response::Integer(at as i64 + 1)));
    }
    assert_eq!(host.begun(), begun + 1, "they go on together");
}

#[test]
fn what_is_much_older_goes_by_itself() {
    let mut host = Host::new();
    let limit = host.commands.limit();
    host.now = host.now + limit * 10;
    let first = host.ask(incr("a"));
    host.input(Commands::settle);
    let own = host.ask(incr("a"));
    let commands = vec![Command::new(host.stamp, incr("a"))];
    host.hears(Forward::Execute { number: 4, from: 3, to: 1, left: limit / 2, commands });
    assert_eq!(host.told(first), replied(Response::Integer(1)));
    assert_eq!(host.told(own), replied(Response::Integer(2)));
    (0..10).for_each(|_| host.step(None));
    let ends = vec![End::Replied(Response::Integer(3))];
    let answered = Forward::Answered { to: 3, number: 4, first: 0, ends, queued: true };
    assert_eq!((host.says(), host.begun()), (vec![answered], 3));
}

/// It would be executed at its home when its time is over.
#[test]
fn what_has_no_time_for_the_way_does_not_leave() {
    let mut host = Host::with_home(1);
    let (ticket, number) = host.forwards("a");
    let limit = host.commands.limit();
    let late = host.ask(incr("a"));
    host.now = host.now + limit - Span::from_millis(5);
    host.hears(answered(number, vec![End::Replied(Response::Integer(7))], true));
    assert_eq!(host.told(ticket), replied(Response::Integer(7)));
    host.says();
    host.soon();
    assert_eq!(host.says(), []);
    assert_eq!(host.told(late), replied(Response::Integer(1)));
}

#[test]
fn a_commit_that_waits_for_too_long_is_to_be_aborted() {
    let mut host = Host::new();
    let limit = host.commands.limit();
    let waits = |host: &mut Host| {
        host.now = host.now + limit;
        host.input(|commands, effects| commands.expire(Timer::Again, effects));
        host.input(Commands::settle);
        let waiting = host.commands.client().waiting.iter();
        waiting.map(|(_, request)| matches!(request, Request::Abort { .. })).collect::<Vec<_>>()
    };
    let ticket = host.ask(set("a", "1"));
    host.step(None);
    assert_eq!(waits(&mut host), [false, true]);
    // It was too late for that.
    assert_eq!(host.told(ticket), replied(Response::Ok));
    // A transaction of the host's own.
    let begin = host.transact(Request::Begin { reads: Vec::new(), writes: vec!["b".into()] });
    let Outcome::Begun { txn, .. } = host.outcome(begin) else { panic!("it has begun") };
    let commit = host.transact(Request::Commit { txn, updates: Vec::new() });
    assert_eq!(waits(&mut host), [false, true]);
    assert!(matches!(host.outcome(commit), Outcome::Committed { .. }));
}

#[test]
fn a_refusal_says_what_is_right_of_its_reason() {
    let text = |reason| {
        let limit = Span::from_secs(10);
        Refusal::Contended { tries: 3, limit, reason }.to_string()
    };
    assert!(text(Reason::Conflict).ends_with("at last for conflict; others change the same keys"));
    assert!(text(Reason::Presumed).ends_with("at last for presumed"));
}

#[test]
fn what_was_declined_stays_declined() {
    let mut host = Host::new();
    host.is_forwarded(1, 5, &[Operation::Flush]);
    host.is_forwarded(1, 5, &[incr("a")]);
    host.is_forwarded(1, 4, &[incr("a")]);
    let declined = |number| Forward::Declined { to: 1, number };
    assert_eq!(host.says(), [declined(5), declined(5), declined(4)]);
    // It has waited too long behind what is under way here.
    host.ask(incr("a"));
    host.input(Commands::settle);
    host.is_forwarded(1, 6, &[incr("a")]);
    host.now = host.now + Span::from_millis(300);
    host.input(|commands, effects| commands.expire(Timer::Again, effects));
    host.input(Commands::settle);
    host.is_forwarded(1, 6, &[incr("a")]);
    assert_eq!(host.says(), [declined(6), declined(6)]);
    (0..20).for_each(|_| host.step(None));
    assert_eq!(host.run(get("a")), replied(Response::bulk(b"1")));
}

#[test]
fn who_retires_ends_what_has_begun_and_hands_back_the_rest() {
    let mut host = Host::among(0, &[NodeId(0), NodeId(1)]);
    host.is_forwarded(3, 4, &[incr("a")]);
    host.is_forwarded(3, 5, &[incr("a")]);
    assert_eq!(host.says(), []);
    let ticket = host.retire();
    let retires = || Forward::Lives { incarnation: 0 };
    let declined = |number| Forward::Declined { to: 3, number };
    assert_eq!(host.says(), [retires(), declined(5)]);
    // Nor is anything taken that comes now, or that asks who lives.
    host.is_forwarded(3, 6, &[incr("b")]);
    assert_eq!(host.says(), [declined(6), retires()]);
    let commands = vec![Command::new(host.stamp, incr("b"))];
    host.hears(Forward::Execute { number: 7, from: 3, to: 0, left: Span::from_secs(1), commands });
    assert_eq!(host.says(), [retires()]);
    host.is_forwarded(3, 4, &[incr("a")]);
    assert_eq!(host.says(), [Forward::Taken { to: 3, number: 4 }]);
    (0..3).for_each(|_| host.step(None));
    let ends = vec![End::Replied(Response::Integer(1))];
    assert_eq!(host.says(), [Forward::Answered { to: 3, number: 4, first: 0, ends, queued: false }]);
    // It stays until that is heard of, if anybody hears it.
    for _ in 0..2 {
        assert!(host.answers.is_empty());
        host.waits(1);
    }
    assert_eq!(host.told(ticket), replied(Response::Ok));
    // Its own are executed all the same.
    assert_eq!(host.run(incr("a")), replied(Response::Integer(2)));
    // Who has executed nothing for anybody has nothing to wait for.
    let mut host = Host::among(0, &[NodeId(0), NodeId(1)]);
    let ticket = host.retire();
    assert_eq!(host.answers.remove(&ticket), Some(replied(Response::Ok)));
}

#[test]
fn nothing_new_is_forwarded_to_who_retires() {
    let retires = || Forward::Lives { incarnation: 0 };
    let forwards =
        |host: &mut Host| host.says().iter().any(|forward| matches!(forward, Forward::Execute { .. }));
    // What it has taken it answers, or declines.
    for declines in [true, false] {
        let mut host = Host::with_home(1);
        let (ticket, number) = host.forwards("a");
        let behind = host.ask(incr("a"));
        host.hears(retires());
        assert!(host.answers.is_empty(), "it may have begun");
        if declines {
            host.hears(Forward::Declined { to: 1, number });
        } else {
            host.hears(answered(number, vec![End::Replied(Response::Integer(8))], true));
        }
        let first = if declines { 1 } else { 8 };
        assert_eq!(host.told(ticket), replied(Response::Integer(first)));
        let second = if declines { 2 } else { 1 };
        assert_eq!(host.told(behind), replied(Response::Integer(second)), "executed here");
        assert!(!forwards(&mut host), "declines: {declines}");
    }
    // What only asked who lives is at none.
    let mut host = Host::with_home(1);
    let ticket = host.ask(incr("a"));
    host.step(None);
    host.step(Some("a"));
    assert!(matches!(host.says()[..], [Forward::Execute { to: 0, .. }]));
    host.hears(retires());
    assert_eq!(host.told(ticket), replied(Response::Integer(1)));
    assert!(!forwards(&mut host));
    // It is back.
    host.hears(Forward::Lives { incarnation: 8 });
    host.ask(incr("a"));
    host.soon();
    assert!(matches!(host.says()[..], [Forward::Execute { to: 8, .. }]));
}

#[test]
fn nobody_waits_in_a_circle_of_homes() {
    let mut host = Host::with_home(1);
    let (ticket, number) = host.forwards("a");
    // Here it would wait for what is away.
    host.is_forwarded(1, 5, &[incr("a")]);
    assert_eq!(host.says(), [Forward::Declined { to: 1, number: 5 }]);
    let ends = vec![End::Replied(Response::Integer(1))];
    host.hears(answered(number, ends, true));
    assert_eq!(host.told(ticket), replied(Response::Integer(1)));
    host.soon();
    host.says();
    // What others wait for does not leave.
    let pairs = [("a".into(), "1".into()), ("c".into(), "2".into())].into();
    let ticket = host.ask(Operation::MSet { pairs, only_if_absent: false });
    host.is_forwarded(1, 6, &[incr("c")]);
    assert_eq!(host.says(), []);
    assert_eq!(host.told(ticket), replied(Response::Ok));
    (0..3).for_each(|_| host.step(None));
    let ends = vec![End::Replied(Response::Integer(3))];
    assert_eq!(host.says(), [answered(6, ends, true)]);
}

#[test]
fn what_is_cancelled_is_not_executed_unless_it_has_begun() {
    let mut host = Host::new();
    let first = host.ask(incr("a"));
    host.input(Commands::settle);
    let second = host.ask(incr("a"));
    let third = host.ask(incr("a"));
    for ticket in [first, second] {
        host.input(|commands, effects| commands.cancel(Ticket(ticket), effects));
    }
    assert_eq!(host.told(third), replied(Response::Integer(2)));
    assert!(host.answers.is_empty());
}

#[test]
fn a_host_has_transactions_of_its_own() {
    let mut host = Host::new();
    let ask = |host: &mut Host, request| {
        let ticket = host.transact(request);
        host.outcome(ticket)
    };
    let keys = || vec![Blob::from("n")];
    let Outcome::Begun { txn, .. } = ask(&mut host, Request::Begin { reads: keys(), writes: keys() }) else {
        panic!()
    };
    let update = Update { key: "n".into(), value: Some("plain".into()) };
    let committed = ask(&mut host, Request::Commit { txn, updates: vec![update] });
    assert!(matches!(committed, Outcome::Committed { .. }), "{committed:?}");
    let Outcome::Snapshot { reads, .. } =
        ask(&mut host, Request::Begin { reads: keys(), writes: Vec::new() })
    else {
        panic!()
    };
    assert_eq!(reads[0].value, Some(Blob::from("plain")));
}
