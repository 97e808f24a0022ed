//! CURP on strong-leader consensus: the leader answers before its log is replicated, and what the log may lose the
//! members' witnesses bring back.
//!
//! **What it is.** Multi-Paxos in its prefix form, beside each replica a [`witness`](super::witness). A client sends
//! a command to the leader and to every member's witness at once. The leader appends it, executes it and answers if it
//! commutes with all that is not decided; the client has its answer when a superquorum of witnesses has accepted it
//! in the term of the answer, or when the leader says that it is decided, whichever is first.
//! Source: Park and Ousterhout, NSDI '19, B.2; `specs/curp.md` 3.17.
//!
//! **What it promises.** Linearizable, with each client command executed exactly once.
//!
//! **What it assumes.** As Multi-Paxos: crash faults of a minority, fair-lossy links; with leases on, a bound on the
//! rate of the steady clock.
//!
//! **What it costs.** A client waits the longer of its round trips to the leader and to the farthest of a superquorum;
//! or, if that is sooner, for the leader and its majority. A conflict with what is not decided costs the latter.
//! Reads as in Multi-Paxos, under a lease, if no command that is not decided writes their keys; else they wait for it.
//! A command is written down twice at each replica, by the witness and by the log.
//!
//! **What survives.** Anything but the loss of a majority's journals. With fewer live replicas than a superquorum
//! there is no fast path. A leader's failure costs an election, and two round trips more: one to hear what the
//! witnesses hold, one to decide what of it is replayed.
//!
//! **Who stands where.** One replica with its witness on each node listed, one client on every node.
//!
//! | message | from | to | in |
//! |---|---|---|---|
//! | `Requests`, `Replies`, `Redirect` | client, leader | leader, client | commands |
//! | `Records`, `Verdicts` | client, witness | witness, client | the fast path |
//! | `Log` | as in `multipaxos` | | the order, elections, repair, members |
//! | `Freeze`, `Frozen` | new leader, witness | witness, new leader | recovery |
//! | `Suspects` | witness | leader | what is in the way and nobody has proposed |
//! | `Inquire`, `Members` | client, leader | leader, client | after a change of the members |
//!
//! | replicas | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//! |---|---|---|---|---|---|---|---|
//! | the log needs | 1 | 2 | 2 | 3 | 3 | 4 | 4 |
//! | a fast answer needs | 1 | 2 | 3 | 3 | 4 | 5 | 6 |
//! | replayed is what so many of a bare majority hold | 1 | 2 | 2 | 2 | 2 | 3 | 3 |
//!
//! ```text
//!  client          leader        follower      follower
//!    |  Requests     |               |             |
//!    |-------------->|  Log(Accept)  |             |
//!    |  Records      |-------------->|             |
//!    |-------------->|---------------------------->|
//!    |------------------------------>|             |
//!    |-------------------------------------------->|
//!    |  Speculative  |               |             |     executed, not decided
//!    |<--------------|               |             |
//!    |  Verdicts     |               |             |     each behind its record
//!    |<--------------|               |             |
//!    |<------------------------------|             |
//!    |<--------------------------------------------|     superquorum: the client has its answer
//!    |               |  Log(Accepted)|             |
//!    |               |<--------------|             |     decided; the witnesses forget it with the commit index
//! ```
//!
//! # Why nothing is lost or out of order
//! - **Term fence.** A record names the term in which the leader was asked. A witness takes it only while its replica
//!   has promised just that ballot; the client counts only acceptances of the term in which the leader answered. A
//!   new leader asks the witnesses what they hold, and each answers behind its durable promise of the new ballot
//!   (D-32). So what was completed in an old term was accepted before the new leader heard of it.
//! - **Threshold.** A completed command is held by all but n - S witnesses, so of M that have answered by at least
//!   M + S - n; one that conflicts with it by fewer, since a witness holds one of the two (D-31). What the threshold
//!   lets through commutes pairwise, so it is replayed in any order.
//! - **Prefix.** A log that a new leader adopts is a beginning of an earlier leader's. What the earlier one answered
//!   speculatively commuted with all that was not decided, and what it appended behind it, the new leader does not
//!   have without it. This is why the form with gaps is refused: a later command of the same client, whose arrival
//!   says that the client has the answer to the earlier one, would void it.
//! - **Before anything is served** what was adopted is decided and executed, and so is what is replayed and a no-op
//!   (D-33): no read and no speculative answer comes from a state that lacks a completed command.
//! - **Collection.** A witness forgets a command when the log has it at or below the commit index (D-36), whose
//!   majority every later leader meets. A record says how far this was done when it was made, so that a journal
//!   brings back what was held, no more and no less (D-2).
//! - **Members** change by the log. Nothing is proposed behind a change until it is decided, and then another reign
//!   begins, under which other witnesses count: what was answered before it is in the log before it. So a leader takes
//!   none before it serves, since what it has not replayed yet is in no log, and only a superquorum of the old members
//!   need hold it. One that it adopts is of a leader that served, or adopted it in turn, and lies behind all of that.
//!
//! # What differs from the source
//! - A record whose command was decided lately is accepted without being held (as D-30): no orphan.
//! - The leader's own witness counts like any other, by its own answer (D-35).
//! - Garbage is suspected after three rounds of a fixed length (`witness_round`) instead of three collections; here
//!   nobody sends any. A full set counts as being in the way.
//! - No nearby reads (D-37).

mod message;
mod mutation;
mod order;
mod parameters;
mod recovery;
#[cfg(test)]
mod tests;

pub use message::{Message, Note, Record, Timer};
pub use mutation::Mutation;
pub use order::Order;
pub use parameters::Parameters;

use super::witness::KEYS_MAX;
use super::{FastPath, Heard, NAME_BYTES, Recording, Records, View};
use crate::client::Setup;
use crate::message::Entry;
use crate::order::{Ordered, Reign};
use isochrone_core::{CommandId, ProcessId, Quorums, StateMachine, Wire};
use std::sync::Arc;

/// The consensus variant of CURP.
#[derive(Copy, Clone, Debug)]
pub struct Family;

/// Where the consensus variant stands.
pub type Placement<S> = crate::Placement<S, Family>;

impl crate::Family for Family {
    const NAME: &'static str = "curp-consensus";
    const LED: bool = true;
    const COMMITS: bool = false;
    type Parameters = Parameters;
    type Order<V: Ordered> = Order<V>;
    type Client<S: StateMachine> = super::Client<S, Witnesses>;
}

/// How clients speak with the members' witnesses.
#[derive(Copy, Clone, Debug)]
pub struct Witnesses;

impl<C: Wire> Recording<C> for Witnesses
where
    Entry<C>: Ordered,
{
    type Message = Message<Entry<C>>;
    type Parameters = Parameters;

    fn fast_path(parameters: &Parameters) -> FastPath {
        // A witness holds a command with its name.
        let slot_bytes = parameters.witness.slot_bytes.saturating_sub(NAME_BYTES);
        FastPath { slot_bytes, keys_max: KEYS_MAX, ..parameters.fast }
    }

    /// The replicas find the keys themselves, and what the client says of its answers stays out (D-48).
    fn records(records: Records<C>) -> Message<Entry<C>> {
        let Records { reign, client, kept, .. } = records;
        let value = |kept: super::Kept<C>| Entry::Command {
            id: CommandId { client, sequence: kept.sequence },
            below: 0,
            command: kept.command,
        };
        let values = kept.into_iter().map(value).collect();
        Message::Records { reign, incarnation: client.incarnation, values }
    }

    fn heard(message: Message<Entry<C>>) -> Heard {
        match message {
            Message::Verdicts(verdicts) => Heard::Verdicts(verdicts),
            Message::Members { reign, leader, witnesses, needed } => {
                Heard::View(View { reign, leader, witnesses, needed: needed.into() })
            }
            _ => Heard::Nothing,
        }
    }

    fn view(setup: &Setup<Parameters>, reign: Reign, leader: ProcessId) -> Option<View> {
        let Reign(_, 0) = reign else { return None };
        let witnesses: Arc<[ProcessId]> = setup.members.iter().map(|member| member.process).collect();
        let needed = setup.parameters.superquorum(witnesses.len());
        Some(View { reign, leader, witnesses, needed })
    }

    fn inquiry(setup: &Setup<Parameters>) -> Option<(Vec<ProcessId>, Message<Entry<C>>)> {
        // Only one that leads answers, and it may stand on any node with a replica.
        Some((setup.replicas.to_vec(), Message::Inquire))
    }
}

impl Parameters {
    /// How many of `n` witnesses must accept for a fast answer.
    pub(crate) fn superquorum(&self, n: usize) -> usize {
        match self.mutated(Mutation::SuperquorumTooSmall) {
            true => Quorums::majority(n),
            false => Quorums::supermajority(n),
        }
    }
}
