//! Carousel: transactions over partitions that commit in two wide-area round trips at most, and in one where every
//! partition has a replica near the client and votes agree (Yan 2021, chapter 3; `specs/carousel.md`).
//!
//! **Guarantee.** Transactions that write are strictly serializable, those that only read serializable: at the moment
//! that their client's clock says, all of them at once; strictly with `read_only = "latest"`, by the way of the others.
//!
//! Reading, preparing and replicating overlap, because a client names its keys at the start (2FI, 1.3). *Basic*: the
//! leader of each participant partition reads, checks for conflicts and replicates its decision, while the client
//! computes and its coordinator, a leader in the client's region, replicates first the key sets and then the writes.
//! *Fast*: every replica votes on its own, and `Q` equal votes with the leader's among them settle a partition without
//! waiting for its log, which is written in parallel; and a follower in the client's region serves reads, which the
//! coordinator compares with what the leader read.
//!
//! | message | from → to | says |
//! |---|---|---|
//! | `Prepare` | client → leader of a participant; in Fast all its replicas | read, and prepare |
//! | `Values` | replica → client | what was read |
//! | `Begin` | client → coordinator | the sets, by partition |
//! | `Vote` | replica → coordinator (Fast) | its own decision, durable |
//! | `Prepared` | leader → coordinator | the partition's decision, replicated |
//! | `Commit`, `Abort` | client → coordinator | the writes and the versions used; or give up |
//! | `Ended` | coordinator → client | committed as a version, or aborted and why |
//! | `Heartbeat` | client → coordinator | these are open |
//! | `Writeback`, `WrittenBack` | coordinator ↔ leader | the outcome; replicated |
//! | `Query`, `Status` | coordinator ↔ leader | what was decided? how did it end? |
//! | `Closable`, `Closed` | leader ↔ coordinator | may this be forgotten? |
//! | `ReadAt`, `ReadIs` | client ↔ leader | what was there at a moment (read-only) |
//! | `Recall`, `Votes` | new leader ↔ replicas (Fast) | which votes of earlier terms do you hold? |
//! | `NotLeader` | replica → anybody | who leads |
//!
//! With `f` failures tolerated in a group of `n = 2f + 1`: log majority `f + 1`; votes that settle `Q = ceil(3f/2) + 1`,
//! which leaves the fast path alive with `floor(f/2)` replicas down; lists that a new leader reads `f + 1`, equal votes
//! among them that it must adopt `floor((f + 1)/2) + 1`.
//!
//! # Where this differs from the source
//! - The prototype had no fault tolerance. All of section 4 is here, with the repairs that the specification marks:
//!   votes never change and are durable before they are sent, beside the log and not in it; refusals are recovered like
//!   preparations; an abort that rests on nothing replicated is replicated before it shows.
//! - What a participant remembers of an ended transaction goes when its coordinator's log has the decision and the
//!   client the outcome, never earlier: a coordinator that lost its leader may still have to ask.
//! - Votes travel to a new leader when it asks for them, not with the promise: who has promised a term votes in no
//!   earlier one, so its list cannot change in between. It costs a failover one round trip.
//! - What is refused has no precedence in the source when it comes again, and may be refused for ever: for readers who never cease
//!   and share a key that it writes, or for writers of whom one is nearly always at one of the many keys that it reads. Here each
//!   try says how old the first one is, and a leader refuses the younger for who is older and has come again (`partition/precedence.rs`).
//! - Replicas are added and removed. Votes count together where they were cast among the same members, and who leads
//!   casts none from the order to change them until that is decided: what was settled before lies in the log before
//!   the change. A change waits until a new leader serves, and a new leader for a change that it has inherited.

mod client;
mod message;
mod mutation;
mod parameters;
mod partition;

pub use client::Client;
pub use message::{Ended, Message, Part, Word};
pub use mutation::Mutation;
pub use parameters::{Parameters, Reads};
pub use partition::Partition;

use crate::family;
use crate::group::Server;
use isochrone_core::{Guarantee, Span};

/// Leaders decide.
#[derive(Copy, Clone, Debug)]
pub struct Basic;

/// Replicas vote, and the nearest serve reads.
#[derive(Copy, Clone, Debug)]
pub struct Fast;

fn guarantees(parameters: &Parameters) -> (Guarantee, Guarantee) {
    let reads = match parameters.latest {
        Some(true) => Guarantee::StrictlySerializable,
        _ => Guarantee::Serializable,
    };
    (Guarantee::StrictlySerializable, reads)
}

impl family::Family for Basic {
    const NAME: &'static str = "carousel-basic";
    type Message = Message;
    type Parameters = Parameters;
    type Server = Server<Partition>;
    type Client = Client;

    fn served(parameters: &mut Parameters) {
        parameters.latest.get_or_insert(true);
    }

    fn guarantees(parameters: &Parameters) -> (Guarantee, Guarantee) {
        guarantees(parameters)
    }
}

impl family::Family for Fast {
    const NAME: &'static str = "carousel-fast";
    type Message = Message;
    type Parameters = Parameters;
    type Server = Server<Partition>;
    type Client = Client;

    fn defaults(rtt_max: Span) -> Parameters {
        Parameters::fast(rtt_max)
    }

    fn served(parameters: &mut Parameters) {
        parameters.latest.get_or_insert(true);
    }

    fn guarantees(parameters: &Parameters) -> (Guarantee, Guarantee) {
        guarantees(parameters)
    }
}
