//! What is answered at its commit is executed, whatever has its place before it.

use crate::machine::{Command, Machine, Reply, key};
use isochrone_core::{
    Effect, Effects, Identity, Instant, KeyspaceId, NodeId, Outbox, PartitionId, Process, ProcessId, Random,
    ReplicaId, Role, Span, Stamp, StateMachine, Ticket,
};
use isochrone_replication::epaxos::{Family, Message as Order, Parameters};
use isochrone_replication::message::{Message, Timer};
use isochrone_replication::order::Member;
use isochrone_replication::service::{Reply as Replies, Service};
use isochrone_replication::{
    AskingClient, MessageOf, OrderOf, Outcome, Replica, Request, Tuning as _, client, replica,
};
use std::sync::Arc;

type Said = MessageOf<Family, Command, Reply>;
/// Who says what to whom.
type Sent = (usize, usize, Said);
type Executor = Replica<Machine, OrderOf<Family, Machine>>;

const CLIENT: usize = 5;

fn process(node: usize) -> ProcessId {
    let (keyspace, partition, role) = (KeyspaceId(1), PartitionId(0), Role(u8::from(node == CLIENT)));
    ProcessId { node: NodeId(node as u16), keyspace, partition, role, instance: 0 }
}

/// One input, what is said because of it, and what the host is told.
fn act<P: Process<Message = Said>>(
    at: &mut P,
    node: usize,
    now: Instant,
    input: impl FnOnce(&mut P, &mut Effects<P>),
) -> (Vec<Sent>, Vec<P::Outcome>) {
    let mut outbox = Outbox::new(process(node), Random::seeded(1));
    let effects = outbox.input(now, Stamp::ZERO);
    input(at, effects);
    at.settle(effects);
    let (mut said, mut told) = (Vec::new(), Vec::new());
    for effect in outbox.drain() {
        match effect {
            Effect::Send { to, message, .. } => said.push((node, usize::from(to.node.0), message)),
            Effect::Complete { outcome, .. } => told.push(outcome),
            _ => {}
        }
    }
    (said, told)
}

fn open_client(incarnation: u32, setup: &client::Setup<Parameters>) -> AskingClient<Family, Machine> {
    AskingClient::<Family, Machine>::open(Identity { process: process(CLIENT), incarnation }, setup)
}

/// Five replicas and a client that asks the second. Nothing arrives between replicas but what a case lets arrive.
struct Group {
    replicas: Vec<Executor>,
    client: AskingClient<Family, Machine>,
    asking: client::Setup<Parameters>,
    network: Vec<Sent>,
    answers: Vec<Outcome<Reply>>,
    now: Instant,
}

impl Group {
    fn new() -> Group {
        let rtt = Span::from_millis(1);
        let (mut parameters, mut service) = (Parameters::for_rtt(rtt), Service::for_rtt(rtt));
        (parameters.reply, service.reply) = (Replies::Commit, Replies::Commit);
        let member = |node| Member { replica: ReplicaId(node as u8), process: process(node) };
        let members: Arc<[Member]> = (0..CLIENT).map(member).collect();
        let open = |node| {
            let (members, machine) = (members.clone(), Machine::default());
            let setup = replica::Setup { members, preferred: None, service, parameters, machine };
            Replica::open(Identity { process: process(node), incarnation: 1 }, &setup)
        };
        let replicas = (0..CLIENT).map(open).collect();
        let asked = Arc::from([process(1)]);
        let (leader, proxy) = (None, None);
        let setup = client::Setup { replicas: asked, members, leader, proxy, service, parameters };
        let client = open_client(1, &setup);
        let (network, answers, now) = (Vec::new(), Vec::new(), Instant::from_nanos(1));
        let mut group = Group { replicas, client, asking: setup, network, answers, now };
        (0..CLIENT).for_each(|node| group.input(node, |replica, effects| replica.start(effects)));
        group
    }

    fn input(&mut self, node: usize, input: impl FnOnce(&mut Executor, &mut Effects<Executor>)) {
        let (said, _) = act(&mut self.replicas[node], node, self.now, input);
        self.say(said);
    }

    /// Between the client and its replica everything arrives at once.
    fn say(&mut self, said: Vec<Sent>) {
        for (from, to, message) in said {
            if to == CLIENT {
                let (said, told) = act(&mut self.client, CLIENT, self.now, |client, effects| {
                    client.receive(process(from), message, effects);
                });
                self.answers.extend(told);
                self.say(said);
            } else if from == CLIENT {
                self.input(to, |replica, effects| replica.receive(process(from), message, effects));
            } else if !matches!(&message, Message::Order { message: Order::Heartbeat { .. }, .. }) {
                self.network.push((from, to, message));
            }
        }
    }

    fn set(&mut self, number: u8) {
        let command = Request::Command(Command::Set(key(number), "x".to_owned()));
        let (said, _) = act(&mut self.client, CLIENT, self.now, |client, effects| {
            client.request(Ticket(u64::from(number)), command, effects);
        });
        self.say(said);
    }

    /// What is on its way between these arrives.
    fn deliver(&mut self, from: usize, to: usize) {
        let between = |sent: &mut Sent| (sent.0, sent.1) == (from, to);
        for (from, to, message) in self.network.extract_if(.., between).collect::<Vec<_>>() {
            self.input(to, |replica, effects| replica.receive(process(from), message, effects));
        }
    }

    /// They are asked, and answer.
    fn ask(&mut self, from: usize, others: [usize; 2]) {
        others.into_iter().for_each(|to| self.deliver(from, to));
        others.into_iter().for_each(|to| self.deliver(to, from));
    }

    fn deliver_all(&mut self) {
        while let Some((from, to, _)) = self.network.first() {
            self.deliver(*from, *to);
        }
    }
}

/// The first replica proposes a barrier, of which only the third knows at first. A second write, which conflicts with it
/// there, is committed behind it; a third, of the same client, meets it nowhere. Then the barrier is told to the fifth, which
/// knows the third write and not the second: the order is third write, barrier, second write. The third may be of the
/// client's next `life`.
fn behind_a_barrier(life: u32) -> Group {
    let mut group = Group::new();
    group.set(1);
    group.deliver_all();
    group.input(0, |replica, effects| replica.expire(Timer::Sessions, effects));
    group.now = group.now + Service::for_rtt(Span::ZERO).session_idle;
    group.input(0, |replica, effects| replica.expire(Timer::Sessions, effects));
    group.deliver(0, 2);
    group.deliver(2, 0);
    group.set(2);
    group.ask(1, [2, 3]);
    group.ask(1, [2, 3]);
    assert_eq!(group.answers.len(), 2, "answered at its commit, on the slow path");
    let late: Vec<_> = group.network.extract_if(.., |sent| (sent.0, sent.1) == (1, 4)).collect();
    if life > 1 {
        group.client = open_client(life, &group.asking);
    }
    group.set(3);
    group.ask(1, [3, 4]);
    assert_eq!(group.answers.len(), 3, "on the fast path");
    group.deliver(0, 4);
    group.deliver(4, 0);
    group.ask(0, [2, 4]);
    group.network.extend(late);
    group.deliver_all();
    assert_eq!(group.answers, vec![Outcome::Replied(Reply::Ok); 3]);
    for (node, replica) in group.replicas.iter().enumerate() {
        for number in 1..=3 {
            let read = replica.machine().read(&Command::Get(key(number)));
            assert_eq!(
                read,
                Some(Reply::Text(Some("x".to_owned()))),
                "life {life}, write {number} at {node}"
            );
        }
    }
    group
}

#[test]
fn a_write_that_was_answered_is_executed_behind_a_barrier_that_knows_of_later_ones() {
    let mut group = behind_a_barrier(1);
    // Executed, all three: nothing is outstanding, so that those before the next may be forgotten.
    group.set(4);
    let next = group.network.iter().find_map(|(_, _, message)| match message {
        Message::Order { message: Order::PreAccept { batch, .. }, .. } => batch.first(),
        _ => None,
    });
    assert!(
        matches!(next, Some(isochrone_replication::message::Entry::Command { below: 4, .. })),
        "{next:?}"
    );
}

#[test]
fn so_is_one_whose_client_has_begun_its_next_life() {
    behind_a_barrier(2);
}
