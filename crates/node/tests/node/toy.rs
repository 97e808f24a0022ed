//! A protocol just large enough to need all of a node: node 0 counts, a majority must have the count on
//! disk before the client hears it.

use isochrone_core::command::{Command, Response};
use isochrone_core::deployment::{ConfigErrors, Deployment, Keyspace};
use isochrone_core::{
    Assemble, Blob, Effects, Fact, Guarantee, Identity, KeyspaceId, Malformed, Mark, NodeId, PartitionId,
    Process, ProcessId, Protocol, Role, Snapshot, Ticket,
};
use isochrone_node::gateway::{Ask, Context, Gateway, Outcome, Request, Session};
use isochrone_node::protocols::{Administration, Registration};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeMap;
use std::thread::{self, ThreadId};

pub struct Toy;

#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Message {
    Count { ticket: u64 },
    Copy { count: u64 },
    Copied { count: u64 },
    Counted { ticket: u64, count: u64 },
}

#[derive(Clone, Debug)]
pub enum Note {
    Leads,
    Snapshotted,
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        Some(match self {
            Note::Leads => Fact::Leads { reign: 1 },
            Note::Snapshotted => Fact::Counted("restored"),
        })
    }
}

#[derive(Clone)]
pub struct Placement {
    keyspace: KeyspaceId,
    nodes: u16,
}

fn name(keyspace: KeyspaceId, node: u16, role: u8) -> ProcessId {
    ProcessId { node: NodeId(node), keyspace, partition: PartitionId(0), role: Role(role), instance: 0 }
}

impl Protocol for Toy {
    const NAME: &'static str = "toy";
    type Message = Message;
    type Request = Command;
    type Outcome = Response;
    type Placement = Placement;

    fn guarantee(_: &Placement) -> Guarantee {
        Guarantee::Linearizable
    }

    fn place(placement: &Placement, host: &mut impl Assemble<Toy>) {
        for node in 0..placement.nodes {
            host.server::<Counter>(name(placement.keyspace, node, 0), placement.clone());
            host.client::<Asker>(name(placement.keyspace, node, 1), placement.clone());
        }
    }
}

pub fn registration() -> Registration<Toy> {
    Registration {
        transaction: None,
        durability: isochrone_node::gateway::Durability::Most,
        led: true,
        placement: |deployment: &Deployment, keyspace: &Keyspace| -> Result<Placement, ConfigErrors> {
            Ok(Placement { keyspace: keyspace.id, nodes: deployment.nodes().len() as u16 })
        },
        request: |command| command,
        outcome: Outcome::Done,
        administer: |what| match what {
            Administration::MoveLeader(_) => Some(Box::new(())),
            _ => None,
        },
        administered: |_: Box<dyn Any + Send>| Ok("node 0 counts for ever".to_owned()),
    }
}

/// The server.
#[derive(Clone, Hash)]
pub struct Counter {
    me: ProcessId,
    nodes: u16,
    count: u64,
    restored: bool,
    waiting: BTreeMap<u64, (ProcessId, u64, u16)>,
    /// The thread that has opened it, and so has read what it holds.
    opened_by: ThreadId,
}

impl Process for Counter {
    type Setup = Placement;
    type Message = Message;
    type Record = u64;
    type Request = ();
    type Outcome = ();
    type Timer = ();
    type Mark = Note;

    fn open(identity: Identity, setup: &Placement) -> Counter {
        let me = identity.process;
        let opened_by = thread::current().id();
        Counter { me, nodes: setup.nodes, count: 0, restored: false, waiting: BTreeMap::new(), opened_by }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        let bytes = (*chunk).try_into().map_err(|_| Malformed { what: "count", cause: "length".into() })?;
        self.count = u64::from_le_bytes(bytes);
        self.restored = true;
        Ok(())
    }

    fn replay(&mut self, record: u64) {
        self.count = self.count.max(record);
    }

    fn start(&mut self, effects: &mut Effects<Counter>) {
        if self.me.node == NodeId(0) {
            effects.mark(Note::Leads);
        }
        if self.restored {
            effects.mark(Note::Snapshotted);
        }
    }

    fn receive(&mut self, from: ProcessId, message: Message, effects: &mut Effects<Counter>) {
        // Its memory would be another thread's, and of no use to this one once it is freed.
        assert_eq!(thread::current().id(), self.opened_by, "brought back by a thread that does not run it");
        match message {
            Message::Count { ticket } => {
                self.count += 1;
                let count = self.count;
                self.waiting.insert(count, (from, ticket, 0));
                for node in (0..self.nodes).filter(|node| *node != self.me.node.0) {
                    effects.send_ahead(name(self.me.keyspace, node, 0), Message::Copy { count });
                }
                effects.record(count);
                effects.send(self.me, Message::Copied { count });
            }
            Message::Copy { count } => {
                self.count = self.count.max(count);
                effects.record(count);
                effects.send(from, Message::Copied { count });
            }
            Message::Copied { count } => {
                let Some(entry) = self.waiting.get_mut(&count) else { return };
                entry.2 += 1;
                if entry.2 > self.nodes / 2 {
                    let (client, ticket, _) = self.waiting.remove(&count).unwrap();
                    effects.send(client, Message::Counted { ticket, count });
                }
            }
            Message::Counted { .. } => {}
        }
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Counter>) {
        effects.complete(ticket, ());
    }

    fn expire(&mut self, (): (), _: &mut Effects<Counter>) {}

    fn snapshot(&self) -> Option<Snapshot> {
        Some(Box::new(std::iter::once(Blob::new(&self.count.to_le_bytes()))))
    }
}

/// The client half.
#[derive(Clone, Hash)]
pub struct Asker {
    keyspace: KeyspaceId,
}

impl Process for Asker {
    type Setup = Placement;
    type Message = Message;
    type Record = u64;
    type Request = Command;
    type Outcome = Response;
    type Timer = ();
    type Mark = Note;

    fn open(_: Identity, setup: &Placement) -> Asker {
        Asker { keyspace: setup.keyspace }
    }

    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Ok(())
    }

    fn replay(&mut self, _: u64) {}

    fn start(&mut self, _: &mut Effects<Asker>) {}

    fn receive(&mut self, _: ProcessId, message: Message, effects: &mut Effects<Asker>) {
        if let Message::Counted { ticket, count } = message {
            effects.complete(Ticket(ticket), Response::Integer(count as i64));
        }
    }

    fn request(&mut self, ticket: Ticket, _: Command, effects: &mut Effects<Asker>) {
        effects.send(name(self.keyspace, 0, 0), Message::Count { ticket: ticket.0 });
    }

    fn expire(&mut self, (): (), _: &mut Effects<Asker>) {}

    fn snapshot(&self) -> Option<Snapshot> {
        None
    }
}

/// A gateway whose every line is one more count.
pub struct Lines;

impl Gateway for Lines {
    fn accept(&mut self, _: &mut Context<'_>) -> Box<dyn Session> {
        Box::new(Line { rest: Vec::new(), asked: 0, closing: false })
    }

    fn refuse(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"full\n");
    }
}

struct Line {
    rest: Vec<u8>,
    asked: u64,
    closing: bool,
}

impl Session for Line {
    fn receive(
        &mut self,
        bytes: &[u8],
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
        requests: &mut Vec<Request>,
    ) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            match &line[..end] {
                b"quit" => self.closing = true,
                b"who" => out.extend_from_slice(format!("{}\n", context.node.node).as_bytes()),
                _ => {
                    self.asked += 1;
                    let operation = isochrone_core::command::Operation::IncrBy { key: "count".into(), by: 1 };
                    let command = Command::new(context.stamp, operation);
                    let ask = Ask::Execute { keyspace: context.keyspaces[0].id, command };
                    requests.push(Request { id: self.asked, ask });
                }
            }
        }
    }

    fn notify(
        &mut self,
        _: isochrone_node::hub::Notice,
        _: &mut Context<'_>,
        _: &mut Vec<u8>,
        _: &mut Vec<Request>,
    ) {
    }

    fn answer(
        &mut self,
        _: u64,
        outcome: Outcome,
        _: &mut Context<'_>,
        out: &mut Vec<u8>,
        _: &mut Vec<Request>,
    ) {
        match outcome {
            Outcome::Done(Response::Integer(count)) => out.extend_from_slice(format!("{count}\n").as_bytes()),
            other => out.extend_from_slice(format!("{other:?}\n").as_bytes()),
        }
    }

    fn tick(&mut self, _: &mut Context<'_>, _: &mut Vec<u8>, _: &mut Vec<Request>) {}

    fn wants_input(&self) -> bool {
        !self.closing
    }

    fn hang_up(&mut self, _: &mut Context<'_>, _: &mut Vec<u8>) -> bool {
        false
    }

    fn closing(&self) -> bool {
        self.closing
    }
}
