//! What servers, witnesses, managers and clients of the primary-backup form tell each other, write down and wait for.

use super::registry::{self, Registry};
use super::stores;
use crate::curp::{Distant, Verdicts, View};
use crate::message as common;
use crate::multipaxos::log;
use crate::order::Reign;
use crate::request::Refusal;
use isochrone_core::{CommandId, Fact, Instant, Mark, NodeId, PartitionId, Slot, Span, Wire};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What the managers' own group speaks.
pub type RegistryMessage =
    common::Message<registry::Command, registry::Reply, log::Message<common::Entry<registry::Command>>>;

/// One place of the log: what the master took in during one turn.
pub type Batch<V> = Arc<[V]>;

/// A request, and the hashes of all keys that it reads or writes.
pub type Kept<V> = (Vec<u64>, V);

/// The messages. In the table of [`super`] each stands with its sender and receiver.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Message<V: Wire> {
    /// Keep these requests.
    Records {
        /// The master and the list of witnesses that the client goes by.
        reign: Reign,
        /// The requests, each under the hashes of all keys that it reads or writes.
        requests: Vec<Kept<V>>,
    },
    /// Which of them are kept, durably.
    Verdicts(Verdicts),
    /// Who is the master, and where are its witnesses?
    Locate,
    /// These, as far as the sender knows, or have been; none where there were none yet.
    Located(Option<View>),
    /// The manager that leads tells what is so, and asks how the receiver is.
    Ping {
        /// What the managers have agreed on.
        registry: Registry,
        /// Who is to be the master instead of the receiver, which is retired and still is it.
        heir: Option<NodeId>,
    },
    /// How the sender is.
    Pong {
        /// The version of the registry that it goes by.
        version: u64,
        /// What it does.
        report: Report,
    },
    /// Among managers.
    Registry(Box<RegistryMessage>),
    /// The master lives; the receiver follows it, or says what it needs to.
    Beat(Beat),
    /// The answer to a beat: a lease, if leases are on.
    Heard {
        /// The epoch of the beat.
        epoch: u64,
        /// When the beat was sent.
        sent: Instant,
        /// How long the sender is bound by its lease from that on; not at all without leases.
        bound: Span,
        /// The version of the list that the sender goes by when it reads for clients.
        list: u64,
        /// The sender's incarnation.
        life: u32,
        /// When this was sent, by the sender's steady clock; echoed.
        at: Instant,
    },
    /// A run of the log.
    Replicate(Run<V>),
    /// Everything before it is here, durably.
    Acked {
        /// The master's number.
        epoch: u64,
        /// The first place that is not.
        upto: Slot,
    },
    /// Send what is from there on.
    Want {
        /// The master's number.
        epoch: u64,
        /// The first place that is wanted.
        from: Slot,
        /// Where the sender's log ends, unless that is this master's: it needs all up to there at once.
        ends: Option<Slot>,
    },
    /// The receiver was given up: there is a later master.
    Fenced {
        /// Its number.
        epoch: u64,
    },
    /// What was wanted is gone: take in the state.
    Trimmed {
        /// The master's number.
        epoch: u64,
    },
    /// To itself: its own records so far are durable.
    Own {
        /// The master's number.
        epoch: u64,
        /// Everything before it is.
        upto: Slot,
    },
    /// Be a witness of this master.
    Start {
        /// The master and the version of its list.
        reign: Reign,
    },
    /// The sender is.
    Started {
        /// The master and the version of its list.
        reign: Reign,
    },
    /// These requests are on all backups: forget them.
    Collect {
        /// The master's number.
        master: u64,
        /// The count of such messages.
        round: u64,
        /// Hashes of keys and names.
        pairs: Vec<(u64, CommandId)>,
    },
    /// They are forgotten.
    Collected {
        /// The master's number.
        master: u64,
        /// The count of the question.
        round: u64,
        /// What stands in the way of others for long, and may be garbage.
        suspects: Vec<V>,
    },
    /// This master was given up: keep nothing more for it, and tell what there is.
    Freeze {
        /// The number of the master that was given up.
        master: u64,
        /// The number of the one to come.
        epoch: u64,
    },
    /// What there is, from now on for ever.
    Contents {
        /// The number of the master that was given up.
        master: u64,
        /// The number of the one to come.
        epoch: u64,
        /// The requests; none if the sender is no witness of that master, or has lost what it held (D-2).
        values: Option<Vec<V>>,
    },
    /// Masters before this one are over: what was kept for them may go.
    End {
        /// The number of the one that counts.
        before: u64,
    },
    /// Answer these reads of one client here, if nothing stands in the way: the client to the witness of a copy,
    /// and the witness to the server of the same node.
    Near {
        /// The master and the list that the client goes by.
        reign: Reign,
        /// The reads.
        reads: Vec<V>,
    },
    /// Something does: the master is to be asked.
    Distant(Distant),
    /// An operator says that this node is to hold a copy no more, or may again: the master to the manager that leads.
    Wish {
        /// Which node.
        node: NodeId,
        /// Whether it is retired; else it is admitted.
        leaves: bool,
    },
    /// The manager says why that cannot be.
    Denied {
        /// Which node.
        node: NodeId,
        /// Whether it was to be retired.
        leaves: bool,
        /// Why not.
        refusal: Refusal,
    },
    /// These were named, and are not here.
    Missing {
        /// The master's number.
        epoch: u64,
        /// Their places in the log, and their names.
        lacking: Vec<(Slot, CommandId)>,
    },
    /// These are they.
    Supplied {
        /// The master's number.
        epoch: u64,
        /// As they are in the log.
        values: Vec<V>,
    },
}

/// A lease to read at a copy.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The copy's incarnation.
    pub life: u32,
    /// A moment of the copy's steady clock, which the master had from it.
    pub at: Instant,
    /// How long after that, as the master counts.
    pub left: Span,
}

/// What a master says when it says that it lives.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Beat {
    /// The master's number.
    pub epoch: u64,
    /// Everything before it is on all backups.
    pub full: Slot,
    /// What the receiver is known to have.
    pub acked: Slot,
    /// When it was sent, by the master's steady clock; echoed.
    pub sent: Instant,
    /// The version of the master's list: under an earlier one the receiver reads for nobody any more.
    pub list: u64,
    /// Until when it may read for clients under that version, if it may.
    pub reads: Option<Grant>,
}

/// A run of the log, as a master sends it.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Run<V: Wire> {
    /// The master's number.
    pub epoch: u64,
    /// The first place.
    pub at: Slot,
    /// What is there and behind it, but for what is only named.
    pub batches: Vec<Batch<V>>,
    /// The rest, by place; only in the unified form.
    pub names: Vec<Name>,
    /// Everything before it is on all backups.
    pub full: Slot,
    /// Whether it is all that the master has from there on: the receiver's log becomes this one.
    pub adopts: bool,
    /// Whether somebody waits for everything up to its end to be safe.
    pub urgent: bool,
}

impl<V: Wire> Run<V> {
    /// Behind the last place.
    pub(super) fn end(&self) -> Slot {
        self.at.plus(self.batches.len() as u64)
    }
}

/// A command of a run that the receiver is thought to hold.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Name {
    /// In which batch of the run it is, and the how manieth of that batch.
    pub place: (u32, u32),
    /// The hash of one of its keys.
    pub hash: u64,
    /// Its name.
    pub id: CommandId,
    /// Its client has the answers to all its commands below this one, as far as the master knew.
    pub below: u64,
}

/// What a server is doing.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its part.
    pub part: Part,
    /// Copies that its master has not heard of for long.
    pub silent: Vec<NodeId>,
    /// Who is to be the master instead: it serves nobody any more, and all that it has is with its copies.
    pub heir: Option<NodeId>,
}

/// A server's part.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Part {
    /// It is no master, and becomes none by itself.
    Follows,
    /// It is to be the master of this reign, or to go on in it, and is not ready.
    Prepares(Reign),
    /// It is ready for this reign.
    Ready(Reign),
}

/// What a server's order writes down.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Record<V: Wire> {
    /// No earlier master from now on.
    Promised {
        /// The number of the one.
        epoch: u64,
    },
    /// More of the log.
    Appended {
        /// The first place.
        at: Slot,
        /// What is there and behind it.
        batches: Vec<Batch<V>>,
        /// Everything before it is known to be on all backups.
        full: Slot,
    },
    /// The log is this from there on, and that master's.
    Adopted {
        /// The master's number.
        epoch: u64,
        /// The first place.
        at: Slot,
        /// What is there and behind it.
        batches: Vec<Batch<V>>,
    },
    /// Everything before it is known to be on all backups.
    Full {
        /// The place.
        full: Slot,
    },
    /// As the witness of its node, in the unified form.
    Witness(stores::Record<V>),
}

/// What a server's order waits for.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// A master speaks, and asks again for what is late.
    Beat,
    /// What is not yet sent to the backups has waited long enough.
    Sync,
}

/// The notes of a server's order.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Note {
    /// It is the master of this number from now on.
    Leads(u64),
    /// It no longer is.
    Follows,
    /// Something worth counting.
    Counted(&'static str),
    /// So many more of something.
    Added(&'static str, usize),
    /// So much there is of something now.
    Stands(&'static str, u64),
    /// Of this partition these nodes hold the master and its copies, by the list that counts.
    Members(PartitionId, Arc<[NodeId]>),
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        Some(match self {
            Note::Leads(epoch) => Fact::Leads { reign: *epoch },
            Note::Follows => Fact::Follows,
            Note::Counted(name) => Fact::Counted(name),
            Note::Added(name, more) => Fact::Added(name, *more as u64),
            Note::Stands(name, value) => Fact::stands(name, *value),
            Note::Members(partition, nodes) => {
                Fact::Members { partition: *partition, version: 0, nodes: nodes.clone() }
            }
        })
    }
}
