//! A family for tests: each partition is one server without replicas, which locks what it is asked for at once or not
//! at all. It survives nothing.

use isochrone_core::deployment::ParameterReader;
use isochrone_core::{
    Blob, ClientId, CommandId, Effects, Fact, Guarantee, Identity, Malformed, Mark, PartitionId, Process,
    ProcessId, Snapshot, Span, Ticket,
};
use isochrone_store::versions::Version;
use isochrone_transactions::commands::{Carries, Forward};
use isochrone_transactions::request::MoveRefusal;
use isochrone_transactions::{
    Bounds, Client as ClientSetup, Map, Outcome, Read, Reason, Request, Server as ServerSetup,
};
use isochrone_transactions::{Tuning, TxnId, Update};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Copy, Clone, Debug)]
pub struct Family;

impl isochrone_transactions::Family for Family {
    const NAME: &'static str = "locks";
    type Message = Message;
    type Parameters = Parameters;
    type Server = Server;
    type Client = Client;

    fn guarantees(_: &Parameters) -> (Guarantee, Guarantee) {
        (Guarantee::StrictlySerializable, Guarantee::StrictlySerializable)
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    no_locks: bool,
}

impl Tuning for Parameters {
    fn for_rtt(_: Span) -> Parameters {
        Parameters { no_locks: false }
    }
    fn read_from(&mut self, _: &mut ParameterReader<'_>) {}
    fn bounds(&self) -> Bounds {
        Bounds { keys: usize::MAX, bytes: usize::MAX }
    }

    fn bound(&mut self, _: Bounds) {}

    fn bugs() -> Vec<&'static str> {
        vec!["no_locks"]
    }
    fn plant(&mut self, bug: &str) -> bool {
        self.no_locks = bug == "no_locks";
        self.no_locks
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    Lock { txn: TxnId, reads: Vec<Blob>, writes: Vec<Blob> },
    Locked { txn: TxnId, partition: PartitionId, reads: Option<Vec<Read>>, newest: u64 },
    End { txn: TxnId, at: Version, updates: Vec<Update> },
    Ended { txn: TxnId, partition: PartitionId },
    Forward(Forward),
}

impl Carries for Message {
    fn carry(forward: Forward) -> Message {
        Message::Forward(forward)
    }

    fn carried(self) -> Result<Forward, Message> {
        if let Message::Forward(forward) = self { Ok(forward) } else { Err(self) }
    }
}

#[derive(Clone, Debug)]
pub struct Note;

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        None
    }
}

#[derive(Clone, Hash)]
pub struct Server {
    partition: PartitionId,
    parameters: Parameters,
    values: BTreeMap<Blob, (Version, Option<Blob>)>,
    /// Who holds a key, and whether to write it.
    locks: BTreeMap<(Blob, TxnId), bool>,
    newest: u64,
}

impl Server {
    fn free(&self, key: &Blob, txn: TxnId, write: bool) -> bool {
        self.parameters.no_locks
            || self.locks.iter().all(|((held, by), writes)| held != key || *by == txn || !(write || *writes))
    }
}

impl Process for Server {
    type Setup = ServerSetup<Parameters>;
    type Message = Message;
    type Record = ();
    type Request = ();
    type Outcome = ();
    type Timer = ();
    type Mark = Note;

    fn open(_: Identity, setup: &ServerSetup<Parameters>) -> Server {
        let (partition, parameters) = (setup.partition, setup.parameters);
        Server { partition, parameters, values: BTreeMap::new(), locks: BTreeMap::new(), newest: 0 }
    }
    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Ok(())
    }
    fn replay(&mut self, (): ()) {}
    fn start(&mut self, _: &mut Effects<Server>) {}
    fn receive(&mut self, from: ProcessId, message: Message, effects: &mut Effects<Server>) {
        let partition = self.partition;
        match message {
            Message::Lock { txn, reads, writes } => {
                let free = reads.iter().all(|key| self.free(key, txn, false))
                    && writes.iter().all(|key| self.free(key, txn, true));
                let reads = free.then(|| {
                    self.locks.extend(reads.iter().map(|key| ((key.clone(), txn), false)));
                    self.locks.extend(writes.iter().map(|key| ((key.clone(), txn), true)));
                    let read = |key: &Blob| {
                        let (version, value) = self.values.get(key).cloned().unwrap_or_default();
                        Read { key: key.clone(), value, version }
                    };
                    reads.iter().map(read).collect()
                });
                effects.send(from, Message::Locked { txn, partition, reads, newest: self.newest });
            }
            Message::End { txn, at, updates } => {
                self.locks.retain(|(_, by), _| *by != txn);
                for Update { key, value } in updates {
                    self.values.insert(key, (at, value));
                }
                self.newest = self.newest.max(at.0);
                effects.send(from, Message::Ended { txn, partition });
            }
            Message::Locked { .. } | Message::Ended { .. } | Message::Forward(_) => {}
        }
    }
    fn request(&mut self, _: Ticket, (): (), _: &mut Effects<Server>) {}
    fn expire(&mut self, (): (), _: &mut Effects<Server>) {}
    fn snapshot(&self) -> Option<Snapshot> {
        None
    }
}

#[derive(Clone, Hash)]
struct Open {
    ticket: Ticket,
    wanted: Vec<Blob>,
    writes: bool,
    /// Partitions that have not answered.
    waits: Vec<PartitionId>,
    parts: Vec<PartitionId>,
    reads: BTreeMap<Blob, Read>,
    refused: bool,
    newest: u64,
    end: Option<Told>,
}

/// What is told at the end.
#[derive(Clone, Hash)]
enum Told {
    Committed(Version),
    Aborted(Reason),
}

#[derive(Clone, Hash)]
pub struct Client {
    me: ClientId,
    map: Map,
    count: u64,
    open: BTreeMap<TxnId, Open>,
}

impl Client {
    /// Ends it everywhere; what is told is told when all have answered.
    fn end(&mut self, txn: TxnId, end: Told, updates: &[Update], effects: &mut Effects<Client>) {
        let open = self.open.get_mut(&txn).expect("it is open");
        let at = match &end {
            Told::Committed(at) => *at,
            Told::Aborted(_) => Version::NONE,
        };
        open.end = Some(end);
        open.waits = open.parts.clone();
        for part in &open.parts {
            let updates =
                updates.iter().filter(|update| self.map.partition(&update.key) == *part).cloned().collect();
            effects.send(self.map.group(*part).leader(), Message::End { txn, at, updates });
        }
    }
}

impl Process for Client {
    type Setup = ClientSetup<Parameters>;
    type Message = Message;
    type Record = ();
    type Request = Request;
    type Outcome = Outcome;
    type Timer = ();
    type Mark = Note;

    fn open(identity: Identity, setup: &ClientSetup<Parameters>) -> Client {
        let me = ClientId { process: identity.process, incarnation: identity.incarnation };
        Client { me, map: setup.map.clone(), count: 0, open: BTreeMap::new() }
    }
    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Ok(())
    }
    fn replay(&mut self, (): ()) {}
    fn start(&mut self, _: &mut Effects<Client>) {}
    fn receive(&mut self, _: ProcessId, message: Message, effects: &mut Effects<Client>) {
        match message {
            Message::Locked { txn, partition, reads, newest } => {
                let Some(open) = self.open.get_mut(&txn) else { return };
                open.waits.retain(|part| *part != partition);
                open.newest = open.newest.max(newest);
                match reads {
                    Some(reads) => open.reads.extend(reads.into_iter().map(|read| (read.key.clone(), read))),
                    None => open.refused = true,
                }
                if !open.waits.is_empty() {
                    return;
                }
                if open.refused {
                    return self.end(txn, Told::Aborted(Reason::Conflict), &[], effects);
                }
                let reads: Vec<Read> = open.wanted.iter().map(|key| open.reads[key].clone()).collect();
                if open.writes {
                    effects.complete(open.ticket, Outcome::Begun { txn, reads });
                } else {
                    effects.complete(open.ticket, Outcome::Snapshot { reads, at: Version(open.newest) });
                    // Nobody waits for the locks to go.
                    open.ticket = Ticket(u64::MAX);
                    self.end(txn, Told::Aborted(Reason::Client), &[], effects);
                }
            }
            Message::Ended { txn, partition } => {
                let Some(open) = self.open.get_mut(&txn) else { return };
                open.waits.retain(|part| *part != partition);
                if open.waits.is_empty() && open.end.is_some() {
                    let open = self.open.remove(&txn).expect("it was just there");
                    match open.end {
                        _ if open.ticket == Ticket(u64::MAX) => {}
                        Some(Told::Committed(at)) => effects.complete(open.ticket, Outcome::Committed { at }),
                        Some(Told::Aborted(why)) => effects.complete(open.ticket, Outcome::Aborted(why)),
                        None => {}
                    }
                }
            }
            Message::Lock { .. } | Message::End { .. } | Message::Forward(_) => {}
        }
    }
    fn request(&mut self, ticket: Ticket, request: Request, effects: &mut Effects<Client>) {
        match request {
            Request::Begin { reads, writes } => {
                self.count += 1;
                let txn = CommandId { client: self.me, sequence: self.count };
                let mut parts: Vec<PartitionId> =
                    reads.iter().chain(&writes).map(|key| self.map.partition(key)).collect();
                parts.sort();
                parts.dedup();
                for part in &parts {
                    let of = |keys: &[Blob]| {
                        keys.iter().filter(|key| self.map.partition(key) == *part).cloned().collect()
                    };
                    let message = Message::Lock { txn, reads: of(&reads), writes: of(&writes) };
                    effects.send(self.map.group(*part).leader(), message);
                }
                let open = Open {
                    ticket,
                    writes: !writes.is_empty(),
                    wanted: reads,
                    waits: parts.clone(),
                    parts,
                    reads: BTreeMap::new(),
                    refused: false,
                    newest: 0,
                    end: None,
                };
                self.open.insert(txn, open);
            }
            Request::Commit { txn, updates } => {
                let open = self.open.get_mut(&txn).expect("it has begun");
                open.ticket = ticket;
                // Above all that its partitions have seen; what others write at the same time is elsewhere.
                let node = u64::from(self.me.process.node.0);
                let at = Version(((open.newest >> 8) + 1) << 8 | node);
                self.end(txn, Told::Committed(at), &updates, effects);
            }
            Request::Move { .. } | Request::Survey | Request::List { .. } => {
                effects.complete_ahead(ticket, MoveRefusal::Undivided.into());
            }
            Request::Abort { txn } => {
                self.open.get_mut(&txn).expect("it has begun").ticket = ticket;
                self.end(txn, Told::Aborted(Reason::Client), &[], effects);
            }
        }
    }
    fn expire(&mut self, (): (), _: &mut Effects<Client>) {}
    fn snapshot(&self) -> Option<Snapshot> {
        None
    }
}
