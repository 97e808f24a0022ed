//! What a protocol of this crate is, seen from the replica that executes what it orders.
//!
//! An [`Order`] is a process of its own kind that a replica holds by
//! [`Effects::lend`](isochrone_core::Effects::lend). The order knows ballots, slots and quorums; the replica
//! knows the state machine, who was told what, snapshots and the members. The replica proposes values, hands
//! every message, record and timer of the order to it, and after each input takes [`Step`]s out.

use crate::family::Tuning;
use crate::request::{Change, Refusal};
use isochrone_core::command::Touch;
use isochrone_core::{
    ClientId, CommandId, Effects, Instant, Process, ProcessId, ReplicaId, ReplicaSet, Span, Ticket, Wire,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A replica as a member of a group.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Its seat: never given to another process in the life of the group.
    pub replica: ReplicaId,
    /// The process.
    pub process: ProcessId,
}

/// What an order needs to start.
#[derive(Clone, Debug)]
pub struct Setup<P> {
    /// The members, by seat. A process that is not among them only listens, if it is started at all.
    pub members: Arc<[Member]>,
    /// The member that leads first, where there is a leader, sequencer or coordinator. None behind a hand-over, which puts whoever
    /// is to lead ([`Order::leader`]) before the others, and where nobody has that seat: where one leads without anybody's vote
    /// ([`Family::LEADER_FIXED`](crate::Family::LEADER_FIXED)), it is then the first member.
    pub preferred: Option<ReplicaId>,
    /// The knobs.
    pub parameters: P,
}

/// Knobs as a part of a process' state: they never change, and say nothing to a hash.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Knobs<P>(pub(crate) P);

impl<P> Hash for Knobs<P> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// What is ordered.
pub trait Ordered: Wire {
    /// Names what this touches: two values that touch nothing in common (with a write) commute.
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>));
    /// The name of the command, if this is one: the same in every copy of it.
    fn id(&self) -> Option<CommandId>;
    /// Whether it only looks at the state.
    fn reads(&self) -> bool;
    /// Whether the order ends with it: what gets a place behind it is nowhere executed.
    fn ends(&self) -> bool {
        false
    }
    /// What it says of the other commands of its client: it has the answers to all below this one.
    fn below(&self) -> u64 {
        0
    }
    /// The same, but saying this of them.
    fn with_below(self, _below: u64) -> Self {
        self
    }
    /// The same, without what it says of other commands of its client.
    fn alone(self) -> Self {
        self.with_below(0)
    }
}

/// A hash of what a place holds, for the agreement oracle: of a command its name, which is the same in every
/// copy of it.
pub(crate) fn digest<V: Ordered>(values: &[V]) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    values.len().hash(&mut hasher);
    for value in values {
        match value.id() {
            Some(id) => (id, value.reads()).hash(&mut hasher),
            None => value.hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// Where a command is to be taken.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Takes {
    /// Here: [`Order::propose`] takes values.
    Here,
    /// There.
    At(ProcessId),
    /// Nobody is known to take any now.
    Nobody,
}

/// Under which leader's term, or which master's incarnation and list of witnesses, something was said. Of two
/// reigns of a group the later is the greater.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Reign(pub u64, pub u64);

/// What an order has come to.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub enum Step<V> {
    /// These are next. In a total order every replica is given the same, in the same sequence; in a partial
    /// one, those that do not commute.
    Decided(Decided<V>),
    /// This was proposed here, is durable and has its place, and cannot lose it; it is executed later by a
    /// [`Step::Decided`]. Only where the keyspace replies at commit.
    Committed(V, Option<[Span; 4]>),
    /// A read that was proposed here may now be answered from the state as it stands; it is in no order.
    Local(V),
    /// What was proposed here and not yet decided may never be: whoever asks again is to be proposed again.
    Dropped,
    /// A read that was sent to this replica although it does not lead may now be answered from the state as it
    /// stands, of which nothing is tentative; it is in no order.
    Near(V),
    /// These have their place behind everything handed out before, and are not safe yet. Each is followed, in
    /// the same sequence, by the [`Step::Decided`] of the same values, or by a [`Step::Dropped`], which voids
    /// every tentative one that is not yet decided. While any is outstanding, no other values are decided. Only
    /// where [`Order::SPECULATES`].
    Tentative(Tentative<V>),
}

/// Values that have a place which they may still lose.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Tentative<V> {
    /// What is executed, in order.
    pub values: Arc<[V]>,
    /// Whether this replica answers the clients.
    pub answer: bool,
}

/// Values that have their place.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Decided<V> {
    /// A number of this place that is the same at every replica, for the agreement oracle.
    pub position: u64,
    /// A hash of what it holds.
    pub digest: u64,
    /// What is executed, in order; empty for a no-op.
    pub values: Arc<[V]>,
    /// Whether this replica answers the clients. Where clients ask the one that leads
    /// ([`Family::LED`](crate::Family::LED)), whoever answers is asked from then on: it must be one that takes commands.
    pub answer: bool,
    /// Where the time went, if this replica proposed it: waiting for its place, own vote, quorum, order.
    pub spans: Option<[Span; 4]>,
}

/// How the members of a group change.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Membership {
    /// By the order itself, while it runs.
    Own,
    /// The order decides a stop, and another begins behind it (`specs/README.md`, Membership). So it must be able to decide the
    /// stop without the members that are dead: who waits for all of them cannot be rid of one in this way.
    StopAndHandOver,
}

/// A protocol that gives values their place.
///
/// Beside the contract of [`Process`], an order owes its holder:
///
/// - **Replay.** Replaying its records, in order, brings every [`Step::Decided`] again that had been taken out
///   when the holder made its next record: what is learnt as decided is recorded, lazily where nothing else
///   rests on it.
/// - **Snapshot.** [`Process::snapshot`] is called when every step is taken out (but [`Order::DEFERS`]). It holds votes, promises and
///   what else restart needs, and nothing that was taken out: the holder keeps the state behind it.
/// - **Silence.** It sends nothing to clients but what its own client role understands.
/// - **Leaders.** Where one leads, it marks [`Fact::Leads`](isochrone_core::Fact::Leads) when it begins to and
///   [`Fact::Follows`](isochrone_core::Fact::Follows) when it ends: all that a node, its status and `/readyz` know of leaders are
///   these. The number of a reign is below 2^48, since above that stands the epoch, and nobody else leads under it.
/// - **Retries.** The same command may be proposed by several replicas, and twice by one. Each copy may take
///   a place; the holder executes the first.
pub trait Order:
    Process<Setup = Setup<<Self as Order>::Parameters>, Request = (), Outcome = Result<(), Refusal>>
{
    /// What is ordered.
    type Value: Ordered;
    /// The knobs.
    type Parameters: Tuning;
    /// What tells a peer's order where the state that it takes in stands: everything that was taken out so
    /// far, e.g. the next slot, or for each replica the instances executed.
    type Position: Wire;

    /// Whether every replica is given the same sequence.
    const TOTAL: bool;
    /// Whether every step rests on durable records only (own votes among them), so that what the replica makes
    /// of it may overtake records that are still under way. Else answers wait for this replica's records.
    const AHEAD: bool = false;
    /// Whether a replica that does not lead may leave steps where they are until it settles: nobody waits for
    /// them there, and what was recorded is on its way to disk by then. A snapshot in between holds what was
    /// not taken out.
    const DEFERS: bool = false;
    /// Whether it hands out values before they are safe ([`Step::Tentative`]). It is a total order then. What is
    /// told of them is told ahead of every record: it holds only under [`Order::reign`], with enough witnesses.
    const SPECULATES: bool = false;
    /// How its members change.
    const MEMBERSHIP: Membership;
    /// How many members a group may have.
    const MEMBERS_MAX: usize = ReplicaSet::SEATS as usize;

    /// Where commands are to be taken.
    fn takes(&self) -> Takes;

    /// Who is about to lead, where nobody does, as far as is known here.
    fn candidate(&self) -> Option<ProcessId> {
        None
    }

    /// Whether this replica leads, in a protocol that has a leader, sequencer or coordinator; in one without,
    /// whether it is the member with the lowest seat. Housekeeping is done by who leads.
    fn leads(&self) -> bool;

    /// Whether reads may be answered here from the state as it stands, without [`Order::propose`].
    fn may_read(&self, _now: Instant) -> bool {
        false
    }

    /// The reign that this replica is in. Requests under another one are not taken. Another begins before
    /// anything tentative is handed out behind a [`Step::Dropped`].
    fn reign(&self) -> Reign {
        Reign::default()
    }

    /// The members by what is decided, where [`Order::MEMBERSHIP`] is [`Membership::Own`] and a majority of them is what
    /// the order needs; none otherwise.
    fn members(&self) -> &[Member] {
        &[]
    }

    /// The member that leads, as far as is known here; only where one leads an epoch from its start without anybody's vote
    /// ([`Family::LEADER_FIXED`](crate::Family::LEADER_FIXED)). If it lives it leads the next epoch so.
    fn leader(&self) -> Option<ReplicaId> {
        None
    }

    /// Who knows which members are silent.
    fn monitor(&self) -> Takes {
        Takes::Here
    }

    /// The members that were not heard of lately, as far as this replica knows. It itself is none of them. Whether enough live for
    /// a stop is judged by this alone, so for an order that says nothing here any change passes that makes them too few.
    fn silent(&self, _now: Instant) -> ReplicaSet {
        ReplicaSet::EMPTY
    }

    /// Somebody waits for what is tentative: what decides it is to leave at the next [`Process::settle`], which
    /// follows.
    fn hurry(&mut self, _now: Instant) {}

    /// Whether reads are answered elsewhere too, where what is tentative here is not seen.
    fn reads_elsewhere(&self) -> bool {
        false
    }

    /// The commands of a client, by its numbers, that have a place here or may get one, and are not executed. Asked
    /// seldom, so it may look at all that is open.
    fn holds(&self, _client: ClientId) -> BTreeSet<u64> {
        BTreeSet::new()
    }

    /// Takes in a value to be ordered; it leaves at [`Process::settle`] at the latest. `bytes` is its size.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`] where a bounded queue is full; it is not taken then.
    fn propose(&mut self, value: Self::Value, bytes: usize, now: Instant) -> Result<(), Refusal>;

    /// The next step, once each. Called until there is none, after every input (see [`Order::DEFERS`]).
    fn step(&mut self, now: Instant) -> Option<Step<Self::Value>>;

    /// How much was taken out: rises with every [`Step::Decided`]; it need not be the same at two replicas. No two states of a
    /// replica have the same, whatever it has restarted from ([`first_serial`]): a peer that takes in a state knows it by that.
    fn serial(&self) -> u64;

    /// Where the state stands that follows from all steps taken out.
    fn position(&self) -> Self::Position;

    /// Whether a peer that takes in the state as it stood at this serial can go on from there by messages
    /// alone.
    fn serves(&self, serial: u64) -> bool;

    /// A peer has said that it holds nothing any more of what this replica lacks: the holder is to take in
    /// that peer's state, and then calls [`Order::install`].
    fn behind(&self) -> Option<ProcessId>;

    /// The holder has a peer's state at this position. If that is ahead of what was taken out here, this
    /// order goes on from there and says so; the holder then makes the state its own. Where the two have each
    /// something that the other lacks, it is not ahead. Own votes and promises stay. Ends [`Order::behind`].
    fn install(&mut self, position: &Self::Position) -> bool;

    /// Whether a peer takes in this replica's state, or has lately: what is delivered from now on is kept for it
    /// beyond the usual bounds, up to 256 MiB. Else under load what follows a large state would be gone before
    /// the state has come, and the peer would begin again, for ever.
    fn hold(&mut self, held: bool);

    /// The state did not come: forget [`Order::behind`], and ask again when it is found out again.
    fn give_up(&mut self);

    /// Changes who leads ([`Change::Lead`], [`Change::Resign`]), and who the members are where
    /// [`Order::MEMBERSHIP`] is [`Membership::Own`]. The answer completes the ticket.
    fn change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>);
}

/// Where a replica begins to count what it takes out ([`Order::serial`]) whose snapshots do not say how much that was: in
/// each of its lives elsewhere, until it has taken out 2^32 in one, or has had 2^12 of them.
pub(crate) fn first_serial(incarnation: u32) -> u64 {
    u64::from(incarnation % (1 << 12)) << 32
}
