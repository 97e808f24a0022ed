//! Mencius: the slots are dealt out among the replicas in turn, and each proposes in its own.
//!
//! **What it is.** Slot s belongs to the member of rank `s mod N`. The owner *suggests* values in its slots
//! to all; a majority of votes decides. Whoever sees a suggestion gives up its own unused slots before it:
//! it *skips* them. A skip is decided without a quorum, since in the owner's slot only the owner may put
//! anything but what it put there or nothing. A silent owner's slots are *revoked*, a window at a time, by
//! the next member that lives, with the two phases of Paxos. Everyone executes the slots in order.
//! Source: Mao, Junqueira, Marzullo, *Mencius* (OSDI '08), as restated in `specs/sdpaxos.md` 5.2;
//! revocation in the manner of `specs/domino.md` 4.5.
//!
//! **What it promises.** Linearizable, with each client command executed exactly once; so it is where blind
//! commands are answered before their execution (`reply = "commit"`).
//!
//! **What it assumes.** Crash faults of a minority, fair-lossy links. No clock.
//!
//! **What it costs.** A client beside the replica at r waits `max over live x of rtt(r, x)` where nobody else
//! asks anything, for their skips; the round trip to a majority where all are equally busy; and up to a
//! one-way delay more where an earlier slot of another is not decided yet. It runs at the pace of the slowest
//! replica, and skipping does not cure that.
//!
//! **What survives.** Anything but the loss of a majority's journals. A failure costs everyone the patience
//! after which the silent are suspected, and two round trips.
//!
//! **Who stands where.** One replica on each node listed; clients ask the nearest.
//!
//! | message | from | to | in |
//! |---|---|---|---|
//! | `Suggest` | owner | all | phase 2 in own slots; tells of commits and skips before it |
//! | `Accepted` | voter | owner or revoker | phase 2; tells of the voter's skips |
//! | `Commit` | owner | all | own slots that are decided |
//! | `Skip` | owner | all, itself | skips that found no message to ride on |
//! | `Beat` | anyone | all | life, skips, commits, how far the log goes and is known |
//! | `Prepare`, `Promised` | revoker, anyone | anyone, revoker | phase 1 for a window of one owner's slots |
//! | `Accept` | revoker | all | phase 2 for it |
//! | `Rejected` | anyone | owner or revoker | an old ballot, or a revocation of one who lives |
//! | `Fetch`, `Learned`, `Trimmed` | one who lacks, anyone | anyone, one who lacks | repair; the end of a revocation |
//!
//! | replicas | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//! |---|---|---|---|---|---|---|---|
//! | both phases need | 1 | 2 | 2 | 3 | 3 | 4 | 4 |
//! | skips are waited for from all that live | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//!
//! ```text
//!  client           owner          member         member
//!    |  Requests     |               |              |
//!    |-------------->|  Suggest      |              |     ahead of the owner's own record
//!    |               |-------------->|              |
//!    |               |----------------------------->|
//!    |               | own vote      |              |     to itself, behind its record
//!    |               |  Accepted     |              |     behind the record; with the member's skips
//!    |               |<--------------|              |     majority: decided, but slots before it are open
//!    |               |  Accepted     |              |
//!    |    Replies    |<-----------------------------|     everyone's skips: executed, answered
//!    |<--------------|  Commit       |              |
//!    |               |-------------->|              |
//!    |               |----------------------------->|
//! ```
//!
//! # Why it agrees
//! - In ballot zero only the owner proposes in a slot, one value ever, or promises never to: a skip. Higher
//!   ballots are Paxos: a revoker asks a majority first, proposes what the highest ballot accepted, and a
//!   no-op where nothing was. So where the owner skipped, nothing but a no-op can be decided.
//! - Votes and promises are durable before anyone hears of them. So is a skip, or nearly: `Suggest`, `Beat`
//!   and what is executed may rest on turns up to `RESERVE` beyond what the journal holds, because a
//!   restarted owner takes so many turns behind those in its journal for used, asks a majority what is in
//!   them, like a revoker, and goes on behind them. What goes further waits for the journal.
//! - The journal is a prefix of what was written: a turn that it passes over was skipped.
//! - The owner's word that its turns are decided (`decided` in its messages) covers turns that were decided
//!   as it suggested or skipped them in this life; it is taken for values accepted in ballot zero only.
//!
//! # Liveness
//! A member that hears an owner does not promise its turns to a revoker. Heartbeats tell how far the log goes,
//! so that an owner who was not reached by a suggestion skips nevertheless, and how far a window was revoked,
//! so that an owner who returns suggests behind it. What an owner suggested and a revoker replaced by no-ops
//! is suggested again. If a revoker dies over its work, the owner takes its turns back in the same way.
//!
//! **Membership** changes by stop and hand-over.

mod contact;
mod early;
mod journal;
mod lane;
mod message;
mod mutation;
mod order;
mod parameters;
mod process;
mod propose;
mod repair;
mod revoke;
#[cfg(test)]
mod tests;
mod vote;

pub use message::{Held, Message, Note, Rank, Record, Run, Timer, Turn, Value};
pub use mutation::Mutation;
pub use order::Order;
pub use parameters::Parameters;

use crate::family::{AskingClient, Replicated};
use crate::order::Ordered;
use crate::service::Service;
use isochrone_core::{Guarantee, StateMachine};

/// Mencius.
#[derive(Copy, Clone, Debug)]
pub struct Family;

/// Mencius over the state machine `S`.
pub type Mencius<S> = Replicated<S, Family>;
/// Where Mencius stands.
pub type Placement<S> = crate::Placement<S, Family>;

impl crate::Family for Family {
    const NAME: &'static str = "mencius";
    const LED: bool = false;
    const COMMITS: bool = true;
    type Parameters = Parameters;
    type Order<V: Ordered> = Order<V>;
    type Client<S: StateMachine> = AskingClient<Family, S>;

    /// Also where blind commands are answered early: whoever asks later is given a later slot.
    fn guarantee(_: &Parameters, _: &Service) -> Guarantee {
        Guarantee::Linearizable
    }
}
