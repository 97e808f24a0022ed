//! What a node has begun for all, or for others, and what becomes of it when the node goes.

use isochrone_core::command::{Command, Condition, Expiry, Operation, Response};
use isochrone_core::{Fact, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Span, Stamp, Ticket};
use isochrone_replication::Change;
use isochrone_sim::{Config, Driver, FaultPlan, FaultSet, Next, Session, Simulation};
use isochrone_transactions::commands::{Answer, Ask, Served};
use isochrone_transactions::directory::Route;
use isochrone_transactions::{Distances, Family, Outcome, Placement, Request, Split, carousel, tapir, twopc};
use std::collections::BTreeMap;

const NODES: u16 = 4;
const ONE_WAY: Span = Span::from_millis(5);

/// What was answered to the test, what was counted, and how the increments of sessions end.
#[derive(Default)]
struct Seen {
    answers: BTreeMap<Ticket, Answer>,
    counted: BTreeMap<&'static str, u64>,
    until: Instant,
    replied: u64,
    unknown: Vec<ProcessId>,
}

impl<F: Family> Driver<Served<F>> for Seen {
    fn next(&mut self, _: Session, now: Instant) -> Next<Ask> {
        if now >= self.until {
            return Next::Done;
        }
        let operation = Operation::IncrBy { key: "total".into(), by: 1 };
        Next::Request { at: now, request: Ask::Command(Command::new(stamp(now), operation)) }
    }

    fn completed(&mut self, session: Session, _: Ticket, answer: Answer, _: Instant) {
        match answer {
            Answer::Replied(_) => self.replied += 1,
            Answer::Unknown => self.unknown.push(session.client),
            _ => {}
        }
    }

    fn answered(&mut self, _: ProcessId, ticket: Ticket, answer: Answer, _: bool) {
        self.answers.insert(ticket, answer);
    }

    fn fact(&mut self, _: ProcessId, fact: &Fact, _: Instant) {
        if let Fact::Counted(name) = fact {
            *self.counted.entry(*name).or_default() += 1;
        }
    }
}

fn stamp(now: Instant) -> Stamp {
    Stamp::from_nanos(1_700_000_000_000_000_000 + now.as_nanos())
}

struct Cluster<F: Family> {
    simulation: Simulation<Served<F>>,
    placement: Placement<F>,
    seen: Seen,
    tickets: u64,
}

impl<F: Family> Cluster<F> {
    /// Four nodes near each other, partitions of three replicas, and so many sessions on each node until then.
    fn new(partitions: u16, sessions: u32, until: Span) -> Cluster<F> {
        let place = |number: u16| NodeId(number % NODES);
        let group = |partition: u16| (0..3).map(|seat| place(partition + seat)).collect();
        let groups: Vec<Vec<NodeId>> = (0..partitions).map(group).collect();
        let delay = |from: u16, to: u16| if from == to { Span::ZERO } else { ONE_WAY };
        let clients = (0..NODES).map(|client| {
            let rtt = (0..NODES).map(|node| delay(client, node) * 2).collect();
            let local = (0..NODES).map(|node| node == client).collect();
            (NodeId(client), Distances { rtt, local })
        });
        let placement = Placement::<F>::new(
            KeyspaceId(1),
            Split::Hash,
            &groups,
            clients.collect(),
            F::defaults(ONE_WAY * 2),
        )
        .movable();
        let delays = (0..NODES).map(|from| (0..NODES).map(|to| delay(from, to)).collect()).collect();
        let mut config = Config::new(5, &["r0", "r1", "r2", "r3"], delays);
        config.roles = &["server", "client"];
        config.sessions = sessions;
        config.horizon = Span::from_secs(3_600);
        let mut simulation = Simulation::<Served<F>>::new(config, &placement);
        let plan = FaultPlan::draw(5, FaultSet::NONE, &simulation.shape(1));
        simulation.set_faults(plan);
        simulation.boot();
        let seen = Seen { until: Instant::ZERO + until, ..Seen::default() };
        let mut cluster = Cluster { simulation, placement, seen, tickets: 0 };
        cluster.pass(Span::from_secs(10));
        cluster
    }

    fn pass(&mut self, span: Span) {
        self.simulation.run_for(span, &mut self.seen);
        assert_eq!(self.simulation.broken(), None);
    }

    fn counted(&self, name: &str) -> u64 {
        self.seen.counted.get(name).copied().unwrap_or_default()
    }

    fn ask(&mut self, node: u16, ask: Ask) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.simulation.request(self.placement.client(NodeId(node)), ticket, ask);
        ticket
    }

    fn command(&mut self, node: u16, operation: Operation) -> Ticket {
        let command = Command::new(stamp(self.simulation.now()), operation);
        self.ask(node, Ask::Command(command))
    }

    fn wait(&mut self, ticket: Ticket) -> Answer {
        let until = self.simulation.now() + Span::from_secs(60);
        while !self.seen.answers.contains_key(&ticket) {
            assert!(self.simulation.now() < until, "{}: no answer within a minute", F::NAME);
            self.pass(Span::from_millis(1));
        }
        self.seen.answers.remove(&ticket).unwrap()
    }

    /// Whether keys are on their way by what this node reads.
    fn moves(&mut self, node: u16) -> bool {
        let ticket = self.ask(node, Ask::Transaction(Request::Survey));
        match self.wait(ticket) {
            Answer::Transaction(Outcome::Served(known)) => {
                known.iter().any(|known| matches!(known.route, Route::Moving { .. }))
            }
            other => panic!("{}: {other:?}", F::NAME),
        }
    }
}

/// The node that moves keys dies half way; those that learn of it end the move.
fn is_ended_by_others<F: Family>() {
    let all = 600;
    let mut cluster = Cluster::<F>::new(3, 0, Span::ZERO);
    let tickets: Vec<Ticket> = (0..all)
        .map(|number| {
            let (key, value) = (format!("key:{number:04}").into_bytes().into(), "v".into());
            let (condition, expiry) = (Condition::Always, Expiry::Clear);
            cluster.command(number % 3, Operation::Set { key, value, condition, expiry, get: false })
        })
        .collect();
    for ticket in tickets {
        assert_eq!(cluster.wait(ticket), Answer::Replied(Response::Ok), "{}", F::NAME);
    }
    let order = Request::Move { reach: None, from: PartitionId(2), to: PartitionId(1) };
    cluster.ask(3, Ask::Transaction(order));
    let until = cluster.simulation.now() + Span::from_secs(60);
    while cluster.counted("keys_carried") == 0 {
        assert!(cluster.simulation.now() < until, "{}: nothing is carried over", F::NAME);
        cluster.pass(Span::from_millis(1));
    }
    cluster.simulation.crash(NodeId(3));
    assert!(cluster.moves(0), "{}: it was over", F::NAME);
    // Who looks at all keys waits for that, for its time or until it is over.
    for _ in 0..4 {
        let looks = [0, 1, 2].map(|node| cluster.command(node, Operation::DbSize));
        let found = looks.map(|ticket| cluster.wait(ticket));
        let whole = Answer::Replied(Response::Integer(i64::from(all)));
        let right = |answer: &Answer| *answer == whole || matches!(answer, Answer::Refused(_));
        assert!(found.iter().all(right), "{}: {found:?}", F::NAME);
        if found.iter().all(|answer| *answer == whole) {
            break;
        }
        cluster.pass(Span::from_secs(1));
    }
    assert!(!cluster.moves(1), "{}: nobody has ended it", F::NAME);
    assert!(cluster.counted("moves_taken_up") > 0, "{}", F::NAME);
    // It is over for all, and nobody begins anew.
    cluster.pass(Span::from_secs(30));
    let (taken_up, ended) = (cluster.counted("moves_taken_up"), cluster.counted("moves_ended"));
    cluster.pass(Span::from_secs(100));
    assert_eq!((cluster.counted("moves_taken_up"), cluster.counted("moves_ended")), (taken_up, ended));
}

#[test]
fn a_move_whose_driver_has_died_is_ended_by_others() {
    is_ended_by_others::<twopc::Family>();
    is_ended_by_others::<carousel::Basic>();
    is_ended_by_others::<carousel::Fast>();
    is_ended_by_others::<tapir::Family>();
}

/// The first node executes for the others what all change, and then goes, in order.
fn nobody_is_left_in_doubt<F: Family>() {
    let mut cluster = Cluster::<F>::new(1, 3, Span::from_secs(40));
    if F::LED {
        // Who leads hands over before it goes.
        let members = cluster.placement.map.groups[0].members.clone();
        for member in members.iter() {
            let change = Box::new(Change::Lead(NodeId(1)));
            cluster.simulation.administer(member.process, Ticket(0), change);
        }
    }
    cluster.pass(Span::from_secs(5));
    assert!(cluster.counted("executed_for_others") > 0, "{}", F::NAME);
    let before = cluster.seen.unknown.len();
    let asked = cluster.simulation.now();
    let retired = cluster.ask(0, Ask::Retire);
    assert_eq!(cluster.wait(retired), Answer::Replied(Response::Ok));
    let took = cluster.simulation.now().since(asked);
    assert!(took < Span::from_secs(5), "{}: {took}", F::NAME);
    let gone = cluster.placement.client(NodeId(0));
    cluster.simulation.crash(NodeId(0));
    let replied = cluster.seen.replied;
    cluster.pass(Span::from_secs(10));
    let unknown = cluster.seen.unknown[before..].iter().filter(|client| **client != gone).count();
    assert_eq!(unknown, 0, "{}: of what it executed for others", F::NAME);
    assert!(cluster.seen.replied > replied + 20, "{}: the others go on", F::NAME);
}

#[test]
fn who_executes_for_others_and_stops_in_order_leaves_nobody_in_doubt() {
    nobody_is_left_in_doubt::<twopc::Family>();
    nobody_is_left_in_doubt::<carousel::Basic>();
    nobody_is_left_in_doubt::<carousel::Fast>();
    nobody_is_left_in_doubt::<tapir::Family>();
}
