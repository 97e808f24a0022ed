//! Layered two-phase commit over replicated groups: locks, then commit, then consensus, one after the other.
//!
//! **What it is.** The baseline that layered databases are (`specs/carousel.md` 6.2, in the manner of Spanner): reads
//! take locks at the leaders of their partitions, writes stay with the client until it commits, and then a coordinator,
//! itself a replicated group, runs two-phase commit among the leaders. Each step waits for the one before it.
//!
//! **What it promises.** All transactions, those that only read included, are strictly serializable. What only reads
//! takes the same path with nothing to write: its locks are seen to hold by an entry of each log, so that no leader
//! that was deposed can answer it from the past.
//!
//! **What it assumes.** Crash faults of a minority of each group, fair-lossy links, no clock. Wall clocks say who is
//! older and give versions their distance; if they are wrong, locks go to others.
//!
//! **What it costs.** With the coordinator's leader beside the client: the farthest read, the farthest prepare with its
//! replication, the decision's replication: four round trips where all are equally far. With `coordinator = "remote"` a
//! half more: the first participant coordinates, and the client asks all participants itself.
//!
//! **What survives.** Locks of what is not prepared are lost with a leader; what was read is locked again and compared
//! with the latest version when it prepares. What is prepared or decided is in the logs.
//!
//! | message | from | to | in |
//! |---|---|---|---|
//! | `Read`, `Values`, `Wounded` | client, participant | participant, client | read phase |
//! | `Alive`, `Release` | client | participant | read phase: locks stay, locks go |
//! | `Commit`, `Ended` | client, coordinator | coordinator, client | commit |
//! | `Withdraw` | client | coordinator | a commit that has waited for too long |
//! | `Prepare`, `Vote` | coordinator (or client), participant | participant, coordinator | two-phase commit, first phase |
//! | `Outcome`, `Acknowledged` | coordinator, participant | participant, coordinator | second phase |
//! | `StatusQuery` | participant | coordinator | what is prepared for long |
//! | `NotLeader` | replica | whoever asked it | leadership |
//!
//! | replicas of a group | 1 | 3 | 5 | 7 |
//! |---|---|---|---|---|
//! | an entry needs | 1 | 2 | 3 | 4 |
//!
//! ```text
//!  client+coordinator   participant 1   participant 2   their followers
//!    |  Read                |               |                |
//!    |--------------------->|-------------->|                |   read locks
//!    |  Values              |               |                |
//!    |<---------------------|<--------------|                |   1 round trip
//!    |  Prepare             |               |                |
//!    |--------------------->|-------------->|  write locks; are the reads the latest?
//!    |                      |-- log entry -----------------> |
//!    |                      |<------------------------------ |   2
//!    |  Vote                |               |                |
//!    |<---------------------|<--------------|                |   3
//!    |-- decision, to the coordinator's followers -------->  |
//!    |<----------------------------------------------------- |   4: the client is told
//!    |  Outcome             |               |                |
//!    |--------------------->|-------------->|  log entry; applied, locks go
//! ```
//!
//! # Locks
//! Shared for reads, exclusive for writes, held until the outcome is applied. *Wound-wait* by (start, name): an older
//! transaction takes the locks of younger ones that are not prepared, and waits for all others. One that is prepared
//! here and keeps an older one waiting may itself wait elsewhere for that one: after a while its participant tells its
//! coordinator, which aborts it if it is undecided. So every ring of waits is broken. An older one that idles is waited for
//! until its locks go, or until the client withdraws its commit: then the coordinator aborts that, if it is undecided.
//!
//! # Presumed abort
//! The coordinator logs decisions only. It tells nobody of an outcome before its entry has its place, aborts included:
//! a late copy of the same request at a successor then meets the decision. A participant that is prepared and hears
//! nothing asks; a coordinator that knows nothing of the transaction decides to abort it, by an entry too. Decisions
//! are kept until all participants have acknowledged and the client has said that it knows.
//!
//! # Versions
//! `prepare_ts` is above all that its partition has given or applied, and a commit's version is the largest
//! `prepare_ts` of its participants (`specs/carousel.md` 5.4): conflicting transactions prepare one after the other, so
//! the versions of a key rise.

mod client;
mod coordinator;
mod message;
mod mutation;
mod parameters;
mod participant;
mod server;
mod state;

pub use client::Client;
pub use message::{Ending, Entry, Message, Part};
pub use mutation::Mutation;
pub use parameters::{Coordinator, Parameters};
pub use server::Replica;

use crate::group;
use isochrone_core::Guarantee;

/// Layered two-phase commit.
#[derive(Copy, Clone, Debug)]
pub struct Family;

impl crate::Family for Family {
    const NAME: &'static str = "2pc";
    type Message = group::Message<Entry, Message>;
    type Parameters = Parameters;
    type Server = group::Server<Replica>;
    type Client = Client;

    fn guarantees(_: &Parameters) -> (Guarantee, Guarantee) {
        (Guarantee::StrictlySerializable, Guarantee::StrictlySerializable)
    }
}
