//! Who gives its state to a replica that lacks something: when it may leave, and what becomes of the other where it dies.

use crate::machine::{Command, Machine, Reply, key};
use crate::talk::{A, B, C, D, Talk, set};
use isochrone_core::{
    Effect, Effects, Haste, Identity, Instant, KeyspaceId, Lane, NodeId, Outbox, PartitionId, Process,
    ProcessId, Random, ReplicaId, Span, Stamp, StateMachine,
};
use isochrone_replication::message::{Ask, Message, Record};
use isochrone_replication::order::Member;
use isochrone_replication::service::Service;
use isochrone_replication::stream::Said;
use isochrone_replication::{
    CLIENT, Change, Family, MessageOf, OrderOf, Outcome, REPLICA, Replica, Tuning as _, epaxos, mencius,
    multipaxos, replica,
};
use isochrone_sim::FlowEvent;

type Executor = Replica<Machine, OrderOf<epaxos::Family, Machine>>;

fn process(node: u16) -> ProcessId {
    let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
    ProcessId { node: NodeId(node), keyspace, partition, role: REPLICA, instance: 0 }
}

/// One input, and what comes of it.
fn act(
    at: &mut Executor,
    node: u16,
    input: impl FnOnce(&mut Executor, &mut Effects<Executor>),
) -> Vec<Effect<Executor>> {
    let mut outbox = Outbox::new(process(node), Random::seeded(1));
    let effects = outbox.input(Instant::from_nanos(1), Stamp::ZERO);
    input(at, effects);
    at.settle(effects);
    outbox.drain().collect()
}

/// What of that is said to a node.
fn said(effects: Vec<Effect<Executor>>, node: u16) -> Vec<MessageOf<epaxos::Family, Command, Reply>> {
    let said = effects.into_iter().filter_map(|effect| match effect {
        Effect::Send { to, message, .. } if to == process(node) => Some(message),
        _ => None,
    });
    said.collect()
}

/// Nobody else knows of a fast commit, and a leader that has lost its record of it gives the instance up: a peer that had
/// taken in what came of it would differ from all others for ever.
#[test]
fn a_state_leaves_behind_the_record_of_what_it_holds() {
    let rtt = Span::from_millis(1);
    let mut parameters = epaxos::Parameters::for_rtt(rtt);
    parameters.delegate = false;
    let member = |node| Member { replica: ReplicaId(node as u8), process: process(node) };
    let setup = replica::Setup {
        members: (0..3).map(member).collect(),
        preferred: None,
        service: Service::for_rtt(rtt),
        parameters,
        machine: Machine::default(),
    };
    let open = |node| Executor::open(Identity { process: process(node), incarnation: 1 }, &setup);
    let [mut leader, mut other] = [0, 1].map(open);
    act(&mut leader, 0, |leader, effects| leader.start(effects));
    act(&mut other, 1, |other, effects| other.start(effects));
    let client = Identity { process: ProcessId { role: CLIENT, ..process(0) }, incarnation: 1 };
    let command = Command::Set(key(1), "x".to_owned());
    let requests = Message::Requests {
        client: client.into(),
        below: 1,
        under: None,
        asks: vec![Ask { sequence: 1, command, touching: false, synced: false }],
        forwarded: false,
        said: Said::Freely,
    };
    let asked = act(&mut leader, 0, |leader, effects| leader.receive(client.process, requests, effects));
    let mut answers = Vec::new();
    for message in said(asked, 1) {
        let answer = act(&mut other, 1, |other, effects| other.receive(process(0), message, effects));
        answers.extend(said(answer, 0));
    }
    let mut made = Vec::new();
    for message in answers {
        made.extend(act(&mut leader, 0, |leader, effects| leader.receive(process(1), message, effects)));
    }
    let executed = leader.machine().read(&Command::Get(key(1)));
    assert_eq!(executed, Some(Reply::Text(Some("x".to_owned()))), "{made:?}");
    let want = Message::Want { position: None, index: 0, again: false };
    made.extend(act(&mut leader, 0, |leader, effects| leader.receive(process(2), want, effects)));
    let committed = made.iter().position(|effect| {
        let Effect::Record { record: Record::Order { record, .. }, haste } = effect else { return false };
        matches!(record, epaxos::Record::Committed(_)) && *haste == Haste::Now
    });
    let given = made.iter().position(|effect| {
        matches!(effect, Effect::Send { message: Message::Chunk { .. }, lane: Lane::Held, .. })
    });
    assert!(committed.is_some() && committed < given, "{made:?}");
}

/// Lets time pass until the third replica asks the first for its state, which dies before it hears of it.
fn first_dies_when_it_is_asked<F: Family>(talk: &mut Talk<F>) {
    let asked = |event: &FlowEvent| match event {
        FlowEvent::Message { between: (from, _), label, .. } => {
            from.starts_with('C') && label.starts_with("Want")
        }
        _ => false,
    };
    let until = talk.cluster.now() + Span::from_secs(3);
    while !talk.cluster.flow().iter().any(|line| asked(&line.event)) {
        assert!(talk.cluster.now() < until, "{}: it asks nobody", F::NAME);
        talk.pass(1);
    }
    talk.cluster.crash(A);
}

/// Cuts the third replica off from these, or connects it.
fn connect<F: Family>(talk: &mut Talk<F>, others: &[NodeId], connected: bool) {
    others.iter().for_each(|other| talk.cluster.connect(C, *other, connected));
}

/// What has been answered so far.
fn replied<F: Family>(talk: &Talk<F>) -> usize {
    assert_eq!(talk.cluster.broken(), None, "{}", F::NAME);
    talk.answers.0.iter().filter(|outcome| matches!(outcome, Outcome::Replied(_))).count()
}

/// The next leader needs the vote of the one that lacks what was decided, which takes none so far ahead of that.
#[test]
fn a_leader_that_dies_while_it_is_to_give_its_state_is_asked_no_more() {
    let mut talk = Talk::<multipaxos::Family>::new(0, |placement| {
        (placement.parameters.keep_slots, placement.parameters.window) = (4, 4);
    });
    talk.pass(100);
    connect(&mut talk, &[A, B], false);
    for _ in 0..20 {
        talk.ask(A, set("x"));
        talk.pass(30);
    }
    connect(&mut talk, &[A, B], true);
    first_dies_when_it_is_asked(&mut talk);
    assert_eq!(replied(&talk), 20);
    talk.ask(B, set("y"));
    talk.pass(3_000);
    assert_eq!(replied(&talk), 21, "{:?}", talk.answers.0.last());
}

/// Of four members two and the one that was left behind are to go on without the first.
#[test]
fn a_member_of_a_later_epoch_that_dies_while_it_is_to_give_its_state_is_asked_no_more() {
    let mut talk = Talk::<mencius::Family>::new(1, |_| {});
    talk.pass(100).ask(A, set("x"));
    talk.pass(100);
    connect(&mut talk, &[A, B, D], false);
    talk.change(Change::Add(D));
    talk.pass(3_000);
    assert_eq!(talk.answers.0.last(), Some(&Outcome::Changed));
    connect(&mut talk, &[A], true);
    first_dies_when_it_is_asked(&mut talk);
    connect(&mut talk, &[B, D], true);
    assert_eq!(replied(&talk), 1);
    talk.ask(B, set("y"));
    talk.pass(3_000);
    assert_eq!(replied(&talk), 2, "{:?}", talk.answers.0.last());
}
