//! SDPaxos: everyone replicates its own commands, one orders them, and the two overlap.
//!
//! **What it is.** Consensus on "what is the next command" is split in two families of Paxos instances. In
//! *command instances* (C) every replica makes the commands of its own clients durable, in a log of its own. In
//! *order instances* (O) one replica, the *sequencer*, says whose turn each slot of the global log is: slot j holds
//! the i-th command of R where O(j) = R for the i-th time. Only ranks are ordered, so one node carries that load.
//! Source: Zhao, Zhang, Yang, Wu, Dai, *SDPaxos: Building Efficient Semi-Decentralized Geo-replicated State
//! Machines*, SoCC 2018, as restated with its gaps closed in `specs/sdpaxos.md` 1-4 and 7.
//!
//! **What it promises.** Linearizable, with each client command executed exactly once.
//!
//! **What it assumes.** Crash faults of a minority, fair-lossy links. With leases on, a bound on the rate of
//! the steady clock (`drift_max_ppm`); with leases off, no clock at all.
//!
//! **What it costs.** A command at replica r is *ready*, and may be answered with `reply = "commit"`, after
//! `max(m(r), rtt(r, S))` at up to five replicas, where m is the round trip to the nearest majority and S the
//! sequencer; at seven, or with an even number, the slot takes half a round trip more. A read costs
//! `rtt(r, S)` and two messages, at the sequencer nothing.
//!
//! **What survives.** Anything but the loss of a majority's journals. A sequencer's failure costs an election
//! timeout and three one-way delays of polls and votes, at five replicas a round trip more.
//!
//! **Who stands where.** One replica on each node listed, one client on every node.
//!
//! All that one replica has to say to another in one turn is one `Turn` of several parts.
//!
//! | message, part | from | to | in |
//! |---|---|---|---|
//! | `Accept`, `Accepted`, `Refused` | command leader, acceptor | acceptor, command leader | C, phase 2 |
//! | `Request` | command leader | sequencer | a slot, where `Accept` does not go there |
//! | `Commit`, `Decided` | command leader | all | C, commit |
//! | `Prepare`, `Promised` | recoverer, or the owner come back | all | C, phase 1 |
//! | `Order`, `Gap` | sequencer, acceptor | owner of the slot, lazily all; sequencer | O, phase 2 |
//! | `Turn`'s head | all | all | O, acceptance and commit of all slots up to one |
//! | `Ordered` | owner of slots | all | O, commit |
//! | `Read`, `ReadAt` | reader, sequencer | sequencer, reader | reads |
//! | `Beat` | all | all | life, distance, leases, execution |
//! | `Poll`, `Polled` | one who hears no sequencer, all | all, it | pre-vote |
//! | `ViewRequest`, `Vote` | candidate, voter | all, candidate | votes with what was accepted |
//! | `NewView`, `Installed` | new sequencer, all | all, it | the rebuilt order |
//! | `Stale`, `FetchView` | anyone | one in an old view, one in a new view | views |
//! | `Fetch`, `Learned`, `Trimmed` | one who lacks, anyone | anyone, one who lacks | repair |
//! | `SlowQuery`, `SlowReply` | anyone | anyone | a sequencer that is slow |
//! | `Yield`, `Handover` | anyone, sequencer | sequencer, heir | change of the sequencer |
//! | `Durable` | a replica | itself | its records are durable |
//!
//! | replicas | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//! |---|---|---|---|---|---|---|---|
//! | C, votes, phase 1 of both | 1 | 2 | 2 | 3 | 3 | 4 | 4 |
//! | O, the sequencer's own slots | 1 | 2 | 2 | 3 | 3 | 4 | 4 |
//! | O, slots of others, sequencer and owner among them | - | 2 | 2 | 3 | **2** | 4 | 4 |
//!
//! ```text
//!  client    command leader     sequencer       acceptor
//!    | command     |                |               |
//!    |------------>|  Accept, Request               |     numbers are reserved, so ahead of the record
//!    |             |--------------->|               |
//!    |             |------------------------------->|
//!    |             |  Order (Accepted)              |     behind the sequencer's record
//!    |             |<---------------|   Accepted    |
//!    |             |<-------------------------------|
//!    |   answer    |  own acceptances durable: ready|
//!    |<------------|  Commit, Ordered to all        |
//! ```
//!
//! **Why two are enough at five.** A slot that its owner and the sequencer hold may be unknown to the three who
//! are left when both fail. But whatever slot those three do not know was *the missing owner's*: the
//! sequencer's own slots need a majority, everyone else votes. How many of its slots can matter is bounded by
//! the commands that a voter accepted. See `rebuild`.
//!
//! **Exactly once** is the replica's: a command may be proposed anew by another replica and then takes two
//! places; the first is executed.
//!
//! **Numbers of slots** are one per command instance; what the paper calls batching of order instances is a run of
//! slots in one message and record, so that the inference at five stays sound. Division of the sequencer's work
//! by keys is that of the keyspace: `partitions`, each with its own sequencer.

mod assignment;
mod contact;
mod durable;
mod execute;
mod message;
mod mutation;
mod order;
mod ordering;
mod parameters;
mod reads;
mod rebuild;
mod recover;
mod space;
mod straggler;
#[cfg(test)]
mod tests;
mod view;

pub use assignment::{Image, NOBODY, Rank, Run};
pub use message::{Beat, Entry, Head, Message, Note, Objects, Part, Record, Timer, Value};
pub use mutation::Mutation;
pub use order::Order;
pub use parameters::Parameters;
pub use rebuild::Report;

use crate::family::AskingClient;
use crate::order::{Membership, Ordered, Step, Takes};
use crate::request::{Change, Refusal};
use crate::service::Service;
use isochrone_core::{
    Ballot, Effects, Guarantee, Instant, ProcessId, ReplicaId, ReplicaSet, StateMachine, Ticket,
};
use serde::{Deserialize, Serialize};

/// SDPaxos as a family of the frame.
#[derive(Copy, Clone, Debug)]
pub struct Family;

impl crate::Family for Family {
    const NAME: &'static str = "sdpaxos";
    const LED: bool = false;
    const COMMITS: bool = true;
    const LEADER_FIXED: bool = true;
    type Parameters = Parameters;
    type Order<V: Ordered> = Order<V>;
    type Client<S: StateMachine> = AskingClient<Family, S>;

    /// Also where blind commands are answered when they are ready: their slot is committed with all before it, and
    /// whoever asks later is given a later one.
    fn guarantee(_: &Parameters, _: &Service) -> Guarantee {
        Guarantee::Linearizable
    }
}

/// Where a state stands: behind which slot, and whose the slots before it are.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Position {
    /// The view installed where it comes from.
    pub view: Ballot,
    /// Every slot up to here is executed.
    pub executed: u64,
    /// Their owners, as far back as anybody may need them.
    pub log: Image,
}

impl<V: Ordered> crate::order::Order for Order<V> {
    type Value = V;
    type Parameters = Parameters;
    type Position = Position;

    const TOTAL: bool = true;
    const AHEAD: bool = true;
    const MEMBERSHIP: Membership = Membership::StopAndHandOver;

    fn takes(&self) -> Takes {
        match self.is_member() {
            true => Takes::Here,
            false => self.members.first().map_or(Takes::Nobody, |member| Takes::At(member.process)),
        }
    }

    fn leads(&self) -> bool {
        self.sequences()
    }

    fn leader(&self) -> Option<ReplicaId> {
        Some(self.view.owner)
    }

    /// At a sequencer with a lease that has executed all it has assigned, every read is local.
    fn may_read(&self, now: Instant) -> bool {
        self.executed == self.log.end() && self.installed >= self.floor_view && self.holds_lease(now)
    }

    fn silent(&self, now: Instant) -> ReplicaSet {
        self.contact.suspects(self.parameters().election, now)
    }

    fn propose(&mut self, value: V, bytes: usize, now: Instant) -> Result<(), Refusal> {
        if !self.is_member() {
            return Err(Refusal::NotLeader);
        }
        if self.parameters().lease && value.reads() {
            return self.begin_read(value, bytes);
        }
        self.enqueue(value, bytes, now)
    }

    fn step(&mut self, _: Instant) -> Option<Step<V>> {
        self.next_step()
    }

    fn serial(&self) -> u64 {
        self.executed
    }

    fn position(&self) -> Position {
        let executed = self.executed;
        Position { view: self.installed, executed, log: self.log.image(executed) }
    }

    fn serves(&self, serial: u64) -> bool {
        serial >= self.kept_from()
    }

    fn behind(&self) -> Option<ProcessId> {
        self.behind
    }

    fn install(&mut self, position: &Position) -> bool {
        self.install_position(position)
    }

    fn hold(&mut self, held: bool) {
        self.serving = held;
    }

    fn give_up(&mut self) {
        self.behind = None;
    }

    fn change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        self.begin_change(ticket, change, effects);
        self.finish(effects);
    }
}
