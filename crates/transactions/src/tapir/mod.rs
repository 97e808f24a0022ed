//! TAPIR: replicas that agree on no order, and clients that commit transactions themselves by their votes.
//!
//! **What it is.** Inconsistent replication (IR) below, optimistic concurrency control with timestamps above. A client
//! reads from the nearest replica of each partition, gives the transaction a timestamp by its own clock, and asks every
//! replica of every participant whether it may commit. Each votes by what it knows. Equal votes of all of them settle
//! a partition in one round trip; else the client decides what the votes come to and a majority confirms that. The
//! client is the coordinator. Source: Zhang et al., *Building Consistent Transactions with Inconsistent Replication*
//! (SOSP 2015, TOCS 2018), as the measured baseline of `specs/carousel.md` 6.1, and the timers of its public code.
//!
//! **What it promises.** Serializable, in the order of timestamps; read-only transactions too, which take the same way.
//! Not strictly: timestamps come from clocks, and a transaction that began after another had ended may be ordered before
//! it (timestamp inversion), if a third one is under way meanwhile.
//!
//! **What it assumes.** Crash faults of a minority of each partition's replicas, fair-lossy links. Clocks matter for how
//! many transactions abort, never for safety, and not for whether a partition goes on.
//!
//! **What it costs.** The farthest of the nearest replicas that are read, then the farthest replica of any participant: one
//! round trip where there are local replicas, else two. Without equal votes of all, one more to a majority; where some do
//! not vote, the wait for the timer `fast_path` besides, once: until a silent replica is heard of, its client makes do with
//! a majority. The commit rate falls fast with load, since replicas see transactions in different orders.
//!
//! **What survives.** Anything but the loss of a majority's journals. The fast path needs all replicas.
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
//! | `Inquire`, `Promised`, `Outbid` | replica | replicas of all participants | a takeover |
//! | `Spread`, `Has` | replica | replicas of all participants | how it ended, for who may not know |
//! | `Ask`, `Gone` | replica | replica | what it did here; ended everywhere, forgotten |
//! | `ChangeView`, `Records`, `StartView`, `Fetch` | replica | replicas of its partition | a change of view |
//!
//! | replicas n = 2f + 1 | 1 | 3 | 5 | 7 |
//! |---|---|---|---|---|
//! | majority f + 1: slow path, takeover, view | 1 | 2 | 3 | 4 |
//! | fast quorum: all | 1 | 3 | 5 | 7 |
//! | votes that differ, of which no more are waited for: f + ceil(f/2) + 1 | 1 | 3 | 4 | 6 |
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
//!    |<--------------------------|      equal votes of all everywhere: committed, or aborted
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
//! else OK if a majority has voted OK, for all may have and a client may have counted that; else not OK, which then nobody
//! can have contradicted. The client itself needs no promises: it alone counts the fast round, and once it has sent
//! FINALIZE it counts no more. Since a fast quorum is all replicas, every majority tells what may have been one.
//!
//! *Which try.* One that a takeover has settled on, by the highest such ballot, else the latest that any promise shows.
//! A later try cannot have been decided OK: each decree needs a majority, which meets that of the promises.
//!
//! *Serializability.* A decree OK has been checked ([`occ::check`]) by a majority, each of which holds the transaction
//! among its prepared ones from its check until its end is known and executed: even where it accepts meanwhile, under
//! somebody's ballot, that it be not OK, since a later ballot may not hear of that. Two transactions decided OK were hence checked by a
//! common replica, the second beside the first or what it wrote. The check lets no two pass where one reads a version
//! that the other overwrites below the reader's timestamp; so every transaction has read what the order of timestamps
//! says. That the majority has checked is what the client's rule (`f + 1` votes OK) gives, and what a takeover asks for.
//!
//! *Views.* All that is said of decrees names the view, votes and confirmations of different views never add up, and who
//! has joined a later view says nothing in an earlier one. Ballots do not begin anew with a view: who takes a transaction
//! over before it hears how the view began may propose in it, and remembers that it has used that ballot even where the
//! view knows nothing of the transaction. The leader of a new view takes the records of a majority; those that were normal
//! in the latest view count. What was accepted stands; what all who were heard have voted for alike, and all replicas so
//! may have (set d), stands too; the rest (set u) was not decided, and is refused. All of a view begin with this record, which
//! counts as checked by each of them, and with what ended before. A takeover needs no change of view, so a view changes where
//! somebody orders it, which tests do; one that was left half way goes on after a restart.
//!
//! *The end.* A replica forgets a transaction when all replicas of all its participants have written down how it ended.
//! Until then it tells those that may not know, and so replicas that were away catch up. More than `keep_records` of
//! them are forgotten earlier, if a majority of each participant knows and its client asks no more; whoever then asks one
//! that knows the name lets go of it. What has committed is held from when that is written down until it is executed: so
//! whoever lets go of a commit belongs to a minority, and the others refuse what is read there.
//!
//! *Who may have forgotten.* Of what it has forgotten a replica keeps the names, the latest 65,536 of each client, besides those that
//! it may still propose, and of 32 lives of its process. Of one that is older, and of which it holds nothing of its own, it cannot say that it never voted for it,
//! accepted it, or knew its end. It then takes nothing from its client, and what it promises is not *sure*: it may help to
//! abort, and not to commit. It accepts no OK, and what it holds, nothing or a refusal, may stand for a promise or a refusal
//! under a higher ballot. So of the promises of a participant counts
//! - not OK, where a majority is not sure;
//! - else what the sure ones say, where they are a majority;
//! - else what all say, if that is not OK. If it is, the takeover waits for others.
//!
//! If nobody has forgotten the transaction, that is a part of what the choice after promises allows: each time some majority is
//! looked at, whose answers are true. If somebody has forgotten that it was aborted, to abort it is right, and nobody
//! commits it: for that a majority of sure replicas of each participant is needed, twice, and these have forgotten nothing. If
//! somebody has forgotten that it was committed, a majority of each participant had written that down. To abort it then
//! makes some of the others let go, which they may; who has the commit written down keeps it, and the client is past asking.
//!
//! One acceptance of OK, one replica that is not sure and one that is gone for good wait for the last.
//!
//! *Liveness.* A transaction that is prepared for longer than `terminate_after` is taken over, by the replicas in turn,
//! again after a random and growing pause; any that has a majority of every participant ends it. A client may live and
//! only be slow: it is then told the end. No heartbeat is needed, and an idle keyspace is silent.
//!
//! # Where this differs from the source
//! - Takeovers stand in the place of the published backup coordinators, which are a replicated service of their own.
//! - The published fast quorum is `f + ceil(f/2) + 1`, which is all of three. Of five it is four, of which a majority may show
//!   two: that may have been decided or not, and a check by data that missed a commit would let it undo that.
//! - The published merge runs the check on all of d again. That refuses what was decided where another transaction, later
//!   in timestamps, has committed meanwhile.
//! - A client that knows a replica to be silent does not wait for a fast quorum.
//! - A client's timestamp is above the versions that it read.
//! - Equal timestamps are in each other's way. A write that comes behind a later one of its key is passed over.
//! - After an abstention of a majority the transaction aborts, as published; the public code tries again.
//!
//! **Absent.** Replicas are not replaced while a keyspace lives. A replica that was away for longer than `keep_records`
//! transactions stays without what it missed until it is overwritten: others refuse what is read there, and a client that
//! was refused reads at one of them for a while. The records of a change of view travel in one message. Deleted keys are
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
