//! A witness beside its log, told what to hear and started again.

use super::{Message, Order, Parameters, Record};
use crate::Tuning as _;
use crate::curp::witness::Shape;
use crate::message::Entry;
use crate::multipaxos::log::{self, Value};
use crate::order::{Member, Order as _, Setup};
use isochrone_core::command::{Command, Operation};
use isochrone_core::{
    Ballot, Blob, CommandId, Effect, Identity, Instant, NodeId, Outbox, Process as _, ProcessId, Random,
    ReplicaId, Slot, Span, Stamp,
};
use std::sync::Arc;

type Follower = Order<Entry<Command>>;

fn process(node: u16) -> ProcessId {
    ProcessId { node: NodeId(node), ..ProcessId::from_u64(0) }
}

/// A command of the one client, on a key of its own.
fn command(sequence: u64) -> Entry<Command> {
    let id = CommandId { client: Identity { process: process(9), incarnation: 1 }.into(), sequence };
    let key = Blob::from(sequence.to_string());
    Entry::Command { id, below: 0, command: Command::new(Stamp::ZERO, Operation::Get { key }) }
}

/// The replica on node 1 of three, whose witness is one set of two.
fn open(incarnation: u32) -> Follower {
    let member = |node: u16| Member { replica: ReplicaId(node as u8), process: process(node) };
    let mut parameters = Parameters::for_rtt(Span::from_millis(1));
    parameters.witness = Shape { slots: 2, ways: 2, ..Shape::default() };
    let setup = Setup { members: (0..3).map(member).collect(), preferred: None, parameters };
    Order::open(Identity { process: process(1), incarnation }, &setup)
}

/// The numbers of what its witness holds.
fn held(order: &Follower) -> Vec<u64> {
    order.witness().contents().into_keys().map(|id| id.sequence).collect()
}

struct Lab {
    order: Follower,
    outbox: Outbox<Follower>,
    records: Vec<Record<Entry<Command>>>,
}

impl Lab {
    fn new() -> Lab {
        Lab { order: open(1), outbox: Outbox::new(process(1), Random::seeded(1)), records: Vec::new() }
    }

    fn hear(&mut self, message: Message<Entry<Command>>) {
        self.order.receive(process(0), message, self.outbox.input(Instant::ZERO, Stamp::ZERO));
        self.order.check();
        while self.order.step(Instant::ZERO).is_some() {}
        let records = self.outbox.drain().filter_map(|effect| match effect {
            Effect::Record { record, .. } => Some(record),
            _ => None,
        });
        self.records.extend(records);
    }

    /// A client asks for these to be kept.
    fn keep(&mut self, sequences: [u64; 2]) {
        let (reign, values) = (self.order.reign(), sequences.map(command).to_vec());
        self.hear(Message::Records { reign, incarnation: 1, values });
        assert_eq!(held(&self.order), sequences);
    }
}

/// A heartbeat told what the witness was cleared of, and no record says so. A peer's state, which had no more, trims the log of
/// it at a restart.
#[test]
fn a_replay_that_takes_in_more_of_a_state_clears_the_witness_all_the_same() {
    let (mut lab, ballot) = (Lab::new(), Ballot { round: 1, owner: ReplicaId(0) });
    let (from, decided) = (Slot(0), Slot(0));
    let values: Arc<[Value<_>]> = [1, 2].map(|sequence| Value::Batch(Arc::from([command(sequence)]))).into();
    lab.hear(Message::Log(log::Message::Adopt { ballot, from, values, decided }));
    lab.keep([1, 2]);
    let sent = Instant::ZERO;
    lab.hear(Message::Log(log::Message::Heartbeat { ballot, decided: Slot(2), sent }));
    assert_eq!(held(&lab.order), [] as [u64; 0]);
    let position = (Slot(2), lab.order.log().configuration().clone());
    assert!(!lab.order.install(&position), "it has as much");
    let at = lab.records.len();
    lab.keep([3, 4]);

    let mut order = open(2);
    for (number, record) in lab.records.into_iter().enumerate() {
        if number == at {
            assert!(order.install(&position), "it has less");
        }
        order.replay(record);
        while order.step(Instant::ZERO).is_some() {}
    }
    assert_eq!(held(&order), [3, 4]);
}
