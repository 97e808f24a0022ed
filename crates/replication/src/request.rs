//! What a host asks of a client role, and what it is told: the same for every protocol of this crate.

use isochrone_core::migration::Stretch;
use isochrone_core::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a client role is asked. Requests outstanding at once are concurrent.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub enum Request<C> {
    /// Execute this command once.
    Command(C),
    /// Change who the replicas are, or which of them leads.
    Change(Change),
    /// Move the keys of a stretch of the ring that one partition serves to another, while they are used.
    Move {
        /// Which places; those that the source does not serve stay where they are.
        stretch: Stretch,
        /// From which partition.
        from: PartitionId,
        /// To which.
        to: PartitionId,
    },
    /// Ask all partitions which keys they serve.
    Survey,
}

impl<C> From<C> for Request<C> {
    fn from(command: C) -> Request<C> {
        Request::Command(command)
    }
}

/// One step of administration. Each may be asked again: what is already so counts as done.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Adds the replica on this node, which must run already, once it has caught up. In CURP over primary-backup the
    /// managers may put a copy there again.
    Add(NodeId),
    /// Removes the replica on this node. In CURP over primary-backup it holds no copy, and none is put there.
    Remove(NodeId),
    /// Lets the replica on this node lead.
    Lead(NodeId),
    /// Lets any other replica lead.
    Resign,
}

/// What a client role answers.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Outcome<R> {
    /// The command was executed exactly once, with this reply.
    Replied(R),
    /// The change is in force.
    Changed,
    /// The keys are served where they were to go.
    Moved {
        /// Keys that were moved for this request.
        keys: u64,
        /// About how many bytes.
        bytes: u64,
        /// In how many parts, each of which was not served for a moment.
        stretches: u64,
    },
    /// What the partitions serve, ascending, each with its version. Where keys are being moved, gaps.
    Served(Vec<(Stretch, PartitionId, u64)>),
    /// It was not done and will not be.
    Refused(Refusal),
    /// It may have been done, may still be, or may never be: the time limit ran out.
    Unknown,
}

/// Why something was not done.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize, Error)]
pub enum Refusal {
    /// A bounded queue is full; asking again later may help.
    #[error("overloaded: too much is waiting already; ask again later")]
    Overloaded,
    /// Nobody was found in time who leads. It was asked of nobody, or only reads.
    #[error("NOLEADER nobody who leads was found in time; this was not executed")]
    NoLeader,
    /// Only the leader can do this, and this replica does not lead.
    #[error("this replica does not lead")]
    NotLeader,
    /// Another change is under way.
    #[error("another change of membership or leadership is under way")]
    Busy,
    /// The change names a node that has no such replica, or would leave no member, or every seat that the
    /// group may have in its life was taken once.
    #[error("the change cannot be made: no such replica, none would be left, or no seat is left")]
    Impossible,
    /// Too few replicas that live would be left for a majority, or for the copies that there must be.
    #[error(
        "too few replicas would be left: without this one most of the others must live, with curp a master and \
         `copies_min` copies; start or add others first"
    )]
    TooFew,
    /// The replica that the change needs is not heard of.
    #[error(
        "the replica that the change needs is not heard of: start its node, with a file in which the keyspace has a replica there or \
         names it among `spares`"
    )]
    Silent,
    /// The replica that is to lead holds no copy now.
    #[error(
        "the replica holds no copy at this time: it is a spare, or is being brought up to date; name another"
    )]
    NoCopy,
    /// Writes are answered before they are executed; those behind a stop would be lost.
    #[error(
        "members cannot change where writes are answered at commit: those behind the change would be lost; \
         only a keyspace that began with reply = \"execute\" can"
    )]
    RepliesAtCommit,
    /// The command touches keys of several partitions; the words are those of Redis Cluster.
    #[error("CROSSSLOT Keys in request don't hash to the same slot")]
    Apart,
    /// The command touches all keys, and they are in several partitions.
    #[error("ERR this command touches the whole keyspace, which is divided into partitions")]
    Whole,
    /// The change was given up: the replica it needs did not catch up or answer in time.
    #[error("the replica that the change needs did not catch up in time")]
    TimedOut,
    /// The keys are on their way from one partition to another, for longer than a client waits; or some of them were not served,
    /// and a command behind it may have been executed. It was not.
    #[error("TRYAGAIN the keys are being moved to another partition; ask again")]
    Moving,
    /// The keyspace is not in partitions, or its state machine cannot move keys.
    #[error("keys cannot be moved: the keyspace has one partition, or does not know how")]
    Unmovable,
    /// There is no such partition, or keys were to be moved from one to itself.
    #[error("there is no such partition, or the two are the same")]
    NoSuchPartition,
    /// Writes are answered before they are executed, and nobody could be told that a key has left meanwhile.
    #[error(
        "keys cannot move where writes are answered at commit: those on their way would be lost; \
         only those of a keyspace that began with reply = \"execute\" can"
    )]
    MovesAtCommit,
    /// There is no leader to be moved.
    #[error("no replica of this protocol leads: each places the commands that reach it")]
    Leaderless,
}
