//! TAPIR: replicas that agree on no order, and clients that commit transactions themselves by their votes.
//!
//! **What it is.** Inconsistent replication (IR) below, optimistic concurrency control with timestamps above. A client
//! reads from the nearest replica of each partition, gives the transaction a timestamp by its own clock, and asks every
//! replica of every participant whether it may commit. Each votes by what it knows. Equal votes of a fast quorum settle
//! a partition in one round trip; else the client decides what the votes come to and a majority confirms that. The
//! client is the coordinator. Source: Zhang et al., *Building Consistent Transactions with Inconsistent Replication*
//! (SOSP 2015, TOCS 2018), as the measured baseline of `specs/carousel.md` 6.1, and the timers of its public code.
//!
//! **What it promises.** Serializable, in the order of timestamps; read-only transactions too, which take the same way.
//! Not strictly: timestamps come from clocks, and a transaction that began after another had ended may be ordered before
//! it (timestamp inversion), if a third one is under way meanwhile.
//!
//! **What it assumes.** Crash faults of a minority of each partition's replicas, fair-lossy links. Clocks matter for how
//! many transactions abort, never for safety.
//!
//! **What it costs.** The farthest of the nearest replicas that are read, then the farthest of the nearest fast quorum of
//! any participant: one round trip where there are local replicas, else two. Without a fast quorum of equal votes, one
//! more to a majority; with too few votes, the wait for the timer `fast_path` besides. The commit rate falls fast with
//! load, since replicas see transactions in different orders.
//!
//! **What survives.** Anything but the loss of a majority's journals. The fast path needs `Q` live replicas.
//!
//! **Who stands where.** One replica of a partition on each node of its group, one client on every node. With
//! `self_blocking` a handle of a client begins nothing at a partition before a majority there knows how its last
//! transaction ended; a client process has as many handles as it ever had transactions open at once.
//!
//! | message | from | to | in |
//! |---|---|---|---|
//! | `Read`, `Values` | client, replica | replica, client | reads, unlogged |
//! | `Prepare`, `Voted` | client, replica | all replicas, client | PROPOSE of Prepare; a vote, durable |
//! | `Finalize`, `Confirmed` | coordinator, replica | replicas, coordinator | FINALIZE, CONFIRM |
//! | `Decide`, `Noted` | client, replica | replicas, client | PROPOSE of Commit or Abort |
//! | `Settle` | client, replica | replicas | FINALIZE of it: it is executed |
//! | `Cleared` | client | replicas | every replica knows; forget it |
//! | `Told` | replica | client | it has ended already, like this |
//! | `Inquire`, `Promised`, `Outbid`, `Forgotten` | replica | replicas of all participants | a takeover |
//! | `Spread`, `Has` | replica | replicas of all participants | how it ended, for who may not know |
//! | `Ask`, `Gone` | replica | replica | what it did here; ended everywhere, forgotten |
//! | `ChangeView`, `Records`, `StartView`, `Fetch` | replica | replicas of its partition | a change of view |
//!
//! | replicas n = 2f + 1 | 1 | 3 | 5 | 7 |
//! |---|---|---|---|---|
//! | majority f + 1: slow path, takeover, view | 1 | 2 | 3 | 4 |
//! | fast quorum Q = f + ceil(f/2) + 1 | 1 | 3 | 4 | 6 |
//! | equal votes among a majority's that may have been Q: ceil(f/2) + 1 | 1 | 2 | 2 | 3 |
//!
//! ```text
//!  client         nearest      others
//!    |   Read        |           |
//!    |-------------->|           |      one of each partition, at the same time
//!    |   Values      |           |
//!    |<--------------|           |
//!    |   Prepare     |           |
//!    |-------------->|---------->|      all replicas of each partition
//!    |   Voted       | record    | record
//!    |<--------------|           |
//!    |<--------------------------|      Q equal votes everywhere: committed, or aborted
//!    |   Decide      |           |
//!    |-------------->|---------->|      the host has its answer already
//!    |   Noted       | record    | record
//!    |<--------------|-----------|
//!    |   Settle      |           |
//!    |-------------->|---------->|      a majority knows: executed
//! ```
//!
//! # Safety
//!
//! *A decree.* For each try of a transaction (name, attempt, timestamp) and each participant partition, IR decides one
//! value: OK, or not. A transaction has committed if some try of it is OK at all its participants; it has aborted if
//! its last try is not OK at one. Nobody tells a host or a replica anything else, so whoever comes to know the decrees
//! comes to the same end. A client begins another try only when the last one was decided not OK somewhere.
//!
//! *One partition, one view: Fast Paxos.* Votes are a fast round: a replica votes once for each try, durably before it
//! tells. `Finalize` is a classic round under a ballot: the client's is the lowest, and whoever takes a transaction over
//! takes one above all it has heard of, from promises of a majority of every participant. A promise also ends voting: a
//! replica that promised votes in no later try. The choice after promises: what was accepted under the highest ballot;
//! else OK if `ceil(f/2) + 1` of `f + 1` votes (of `k` votes, all but `floor(f/2)`) are OK, since a client may have
//! counted `Q`; else not OK, which then nobody can have contradicted. The client itself needs no promises: it alone
//! counts the fast round, and once it has sent FINALIZE it counts no more.
//!
//! *Which try.* One that a takeover has settled on, by the highest such ballot, else the latest that any promise shows.
//! A later try cannot have been decided OK: each decree needs a majority, which meets that of the promises.
//!
//! *Serializability.* A decree OK has been checked ([`occ::check`]) by a majority, each of which holds the transaction
//! among its prepared ones from its check until its end is known and executed: even where it accepts meanwhile, under
//! somebody's ballot, that it be not OK, since a later ballot may not hear of that. Two transactions decided OK were hence checked by a
//! common replica, the second beside the first or what it wrote. The check lets no two pass where one reads a version
//! that the other overwrites below the reader's timestamp; so every transaction has read what the order of timestamps
//! says. That the majority has checked is what the client's rule (`f + 1` votes OK) gives; `Q` votes are more. In a
//! takeover, votes that may have been `Q` may be fewer than `f + 1` where `f > 1` and more than `f/2` replicas are
//! silent: then this partition is asked to change its view first ([`takeover::Said::Perhaps`]).
//!
//! *Views.* All that is said of decrees names the view, votes and confirmations of different views never add up, and who
//! has joined a later view says nothing in an earlier one. Ballots do not begin anew with a view: who takes a transaction
//! over before it hears how the view began may propose in it, and remembers that it has used that ballot even where the
//! view knows nothing of the transaction. The leader of a new view takes the records of a majority; those that were normal
//! in the latest view count. What was accepted stands; what may have been decided by votes (set d) stands if a majority
//! has checked it, or if it has its place in the order of timestamps among all else that stands ([`occ::fits`]; two that
//! have not cannot both have had `Q` votes, for a common replica would have refused one); the rest (set u) was not
//! decided, and is refused. All of a view begin with this record, which counts as checked by each of them, and with what
//! ended before. What the leader knows to have ended is in nobody's way. Any that has let go of an abort knows that a
//! majority has written it down, so that some record tells the leader; with fewer than four replicas, where nothing is in
//! doubt ([`view::doubts`]), it lets go at once.
//!
//! *The end.* A replica forgets a transaction when all replicas of all its participants have written down how it ended.
//! Until then it tells those that may not know, and so replicas that were away catch up. More than `keep_records` of
//! them are forgotten earlier, if a majority of each participant knows; whoever then asks lets go of it, and aborts nothing
//! by himself.
//!
//! *Liveness.* A transaction that is prepared for longer than `terminate_after` is taken over, by the replicas in turn,
//! again after a random and growing pause; any that has a majority of every participant ends it. A client may live and
//! only be slow: it is then told the end. No heartbeat is needed, and an idle keyspace is silent.
//!
//! # Where this differs from the source
//! - Takeovers stand in the place of the published backup coordinators, which are a replicated service of their own.
//! - The published merge runs the check on all of d again. That refuses what was decided where another transaction, later
//!   in timestamps, has committed meanwhile; here only what is in doubt is looked at, and by its place alone.
//! - A client's timestamp is above the versions that it read.
//! - Equal timestamps are in each other's way. A write that comes behind a later one of its key is passed over.
//! - After an abstention of a majority the transaction aborts, as published; the public code tries again.
//!
//! **Absent.** Replicas are not replaced while a keyspace lives. A replica that was away for longer than `keep_records`
//! transactions stays without what it missed until it is overwritten: it serves reads that are then refused. With five
//! replicas or more it must not have been away for so long: as the leader of a new view it judges by its own data what is
//! in doubt of d, and may find a place for what has none beside a commit that it missed. The records of a change of view travel in one message. Deleted keys are
//! remembered for ever.

mod client;
mod closing;
mod coordinator;
mod endings;
mod entry;
mod handles;
mod image;
pub mod message;
mod mutation;
pub mod occ;
mod parameters;
pub mod round;
mod server;
mod state;
pub mod takeover;
mod timestamps;
mod transaction;
pub mod view;

pub use client::Client;
pub use message::{Message, Note, Record};
pub use mutation::Mutation;
pub use parameters::Parameters;
pub use server::{Order, Server, Standing};

use isochrone_core::Guarantee;

/// TAPIR.
#[derive(Copy, Clone, Debug)]
pub struct Family;

impl crate::Family for Family {
    const NAME: &'static str = "tapir";
    const LED: bool = false;
    type Message = Message;
    type Parameters = Parameters;
    type Server = Server;
    type Client = Client;

    fn guarantees(_: &Parameters) -> (Guarantee, Guarantee) {
        (Guarantee::Serializable, Guarantee::Serializable)
    }
}
