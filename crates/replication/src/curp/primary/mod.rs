//! CURP over primary-backup: a master orders and executes, its backups keep the log, witnesses keep what the backups
//! do not have yet.
//!
//! **What it is.** `specs/curp.md` 3.1 to 3.14, and 3.16. A client asks the master and, at the same moment, every witness. The
//! master executes at once and answers before anything is replicated, if the command commutes with all that is not
//! yet safe; a witness accepts what commutes with all that it keeps. With the answer and all acceptances the client is
//! done. The master replicates its log to all backups in batches, and then has the witnesses forget.
//!
//! **What it promises.** Linearizable, with each client command executed exactly once.
//!
//! **What it assumes.** Crash faults, fair-lossy links. With `f` copies, `f` of the master and the copies may be lost
//! for good at once; the managers replace what is lost, as long as most of them live. With leases on, a bound on the
//! rate of the steady clock (`drift_max_ppm`).
//!
//! **What it costs.** A write waits for the slower of `rtt(client, master)` and the farthest `rtt(client, witness)`;
//! one that conflicts, `rtt(client, master)` and the farthest `rtt(master, backup)`; a read under the leases of all
//! backups `rtt(client, master)`; one at a copy with a lease, next to which nothing conflicts with it, `rtt(client, copy)`.
//!
//! **Who stands where.** On each node listed a server, which is the master, a backup or a spare; a witness; and a
//! manager. A client on every node. Backup and witness of a copy share a node (D-41), so one list says where both are. No two
//! copies, nor the master and a copy, are in one region as long as there are regions enough for that.
//! In the unified form the server is the witness of its node itself, and there is no other.
//!
//! | message | from | to | in |
//! |---|---|---|---|
//! | `Requests`, `Replies`, `Redirect` | client, server | server, client | commands |
//! | `Records`, `Verdicts` | client, witness | witness, client | commands |
//! | `Near` | client, witness | witness, server of its node | reads at a copy |
//! | `Distant`, `Replies` | witness, server | client | not here; the answer |
//! | `Locate`, `Located` | client, server | server, client | who is the master, where are its witnesses |
//! | `Replicate`, `Acked`, `Want` | master, backup | backup, master | the log |
//! | `Beat`, `Heard` | master, backup | backup, master | fencing, leases, repair |
//! | `Fenced`, `Trimmed` | server | server | a later master; what is wanted is gone |
//! | `Start`, `Started` | master | witness | a new master or list |
//! | `Collect`, `Collected` | master, witness | witness, master | garbage, suspects |
//! | `Freeze`, `Contents`, `End` | new master, witness | witness, new master | recovery |
//! | `Ping`, `Pong` | manager, server | server, manager | what is agreed, how far the server is |
//! | `Wish`, `Denied` | master, manager | manager, master | a node retired or admitted by hand |
//! | `Registry` | manager | manager | Multi-Paxos of the [`Registry`] |
//! | `Missing`, `Supplied` | backup, master | master, backup | unified: what was named and is not there |
//! | `Want`, `Chunk`, `Gone` of the replica | one far behind, master | master, one far behind | state transfer |
//!
//! ```text
//!  client            master         witness, backup   witness, backup
//!    |   Requests      |                 |                 |
//!    |---------------->|  executes       |                 |
//!    |   Records       |                 |                 |
//!    |---------------------------------->| durable         |
//!    |---------------------------------------------------->| durable
//!    |   Replies       |                 |                 |
//!    |<----------------|   Verdicts      |                 |
//!    |<----------------------------------|                 |
//!    |<----------------------------------------------------|     all accepted: the client is done
//!    |                 |   Replicate     |                 |     within the sync delay, or at once if it conflicts
//!    |                 |---------------->| durable         |
//!    |                 |---------------------------------->| durable
//!    |                 |   Acked         |                 |
//!    |                 |<----------------|                 |
//!    |   (Replies)     |<----------------------------------|     on all: safe; whoever waits is answered
//!    |<----------------|   Collect       |                 |
//!    |                 |---------------------------------->|
//! ```
//!
//! **Recovery.** The managers name a copy of the list that counts. It promises the new number, durably, after which no
//! sync of the old master can end any more, so its log has all that ever was safe (D-27); asks one witness of the old
//! list, which accepts nothing from then on; appends what that holds and the log does not, without acknowledgements
//! (D-48); brings all its new copies there, each in one message as far as its own log went, so that none ever has less
//! than it confirmed; starts their witnesses; waits out the lease that it granted to the old master itself; and says
//! that it is ready. Only when the managers have agreed that it counts, it serves. So its copies are those of the old
//! list, and the old master if that lives, as long as they are `copies_min`: a spare joins under a master that serves.
//! A server that comes back as master, backup or spare follows, takes back what it executed too early, and is taken
//! into the list again.
//!
//! **Lists.** A new list, of which every server of the group may be part, has a version. Those that are new in it follow
//! the log first, for a large state takes its time, and then the master takes the list on,
//! refuses what was asked under the old one from then on, starts the witnesses, and is ready when all backups of the
//! new list have what was executed before that; then the managers make it count, and only then clients are told of it
//! (D-49). In between something is safe when it is on the backups of both.
//!
//! **Growing.** Spares of the deployment file are servers like the others: the managers take copies from them, also for
//! a master that was alone before. The managers themselves are, at first, those of the file's replicas, which are the
//! same for ever; the one that leads adds those of the spares to its group, in pairs, once they have what it has. So one
//! server alone becomes one of three by naming two spares, and no two that know nothing can agree without it.
//!
//! **Reads at a copy.** A client that is nearer to a copy than to the master asks the copy's witness to have its reads
//! answered there. What conflicts with nothing that the witness keeps, and with nothing in the log beside it that is not
//! known to be safe, is answered from what is decided; the rest by the master. Copies need a lease for that, which the
//! master passes on from its own (see `near.rs`). `nearby_reads` switches it on.
//!
//! **What goes ahead of the journal.** The master's own records are lazy: one that restarts never goes on by itself,
//! whatever it has. A backup's acknowledgement and a witness' acceptance wait for their records. Where nobody waits for
//! a run of the log to be safe, its record waits for company: the next acceptance takes it to the disk as well.
//!
//! **By hand.** A master that is told to hand over takes nothing more, brings all that it has to its copies, and says
//! that it serves nobody any more; the managers then begin a recovery to the copy that was named. There is nothing to
//! be replayed, and no lease to be waited for: those of copies that clients read at are over before it says so. A
//! master never takes back what it said, but by another list, which the managers begin where no copy can take over.
//! Where a deployment prefers a master, that is the first one; later it is the master again only by hand.
//!
//! A node can be *retired*: a copy there gives way to one on a spare, or to none where there are still `copies_min`; a
//! master there hands over first, and is a copy until the spare has everything; and nothing is put there until the node
//! is admitted again. What is left must live: a master and `copies_min` copies. Should more fail later, a retired node
//! that still holds a copy goes on, but none is taken. The managers agree on it, so it outlives all of them. The
//! manager of such a node leaves their group, as soon as another is there in its place, or the number is even, or one
//! more such manager can leave with it; until then it votes. Its server follows as any spare's.
//!
//! **Unified.** With the knob `unified` the server of a copy keeps what clients record (see `unified.rs`): `Records`,
//! `Near` and `Start` go there, `Verdicts`, `Distant` and `Started` come from there. A run has the names of what the
//! copies hold, which they move from their stores to their logs; what one lacks it asks for. So nothing is collected:
//! suspects come with an unasked `Collected`, and there is neither `Collect` nor `Freeze`, `Contents` or `End`, since who
//! recovers takes log and store of its own node, a later promise freezes a store, and the managers' word that a later
//! master counts ends it. What is waited for is sent whole, so nobody waits longer than in the usual form. All else is as
//! it was. A keyspace has one form for life: under the other one nobody has what a recovery needs, and nobody leads.
//!
//! **Elsewhere.** Keys move between groups (3.15) by commands in both logs: [`crate::partitions`].
//!
//! **Left out.** The nodes of a group are those of the file and never fewer: which of them hold copies changes. In the
//! unified form a backup writes down what it moves once more, whole, instead of its name.

mod book;
mod collect;
mod follow;
mod hand_over;
mod lead;
mod manager;
mod members;
mod message;
mod mutation;
mod near;
mod order;
mod parameters;
pub mod registry;
mod stores;
mod unified;
mod witness_server;

pub use manager::{Manager, Setup as ManagerSetup};
pub use message::{Grant, Message, Name, Part, Record, Report, Run, Timer};
pub use mutation::Mutation;
pub use order::Order;
pub use parameters::Parameters;
pub use registry::{Configuration, Registry};
pub use witness_server::WitnessServer;

use crate::client;
use crate::curp::{self, FastPath, Heard, Kept, NAME_BYTES, Recording, Records, View};
use crate::family::{OrderOf, Replicated};
use crate::message::Entry;
use crate::order::{Ordered, Reign};
use isochrone_core::{Assemble, CommandId, NodeId, PartitionId, ProcessId, Role, StateMachine, Wire};
use std::sync::Arc;

/// The role of witnesses.
pub const WITNESS: Role = Role(2);
/// The role of configuration managers.
pub const MANAGER: Role = Role(3);

/// CURP over primary-backup.
#[derive(Copy, Clone, Debug)]
pub struct Family;

/// Where it stands.
pub type Placement<S> = crate::Placement<S, Family>;

impl crate::Family for Family {
    const NAME: &'static str = "curp";
    const LED: bool = true;
    const COMMITS: bool = false;
    const SPARES_SERVE: bool = true;
    const SYNCS_ALL: bool = true;
    type Parameters = Parameters;
    type Order<V: Ordered> = Order<V>;
    type Client<S: StateMachine> = curp::client::Client<S, Speaks>;

    fn place_further<S: StateMachine>(
        placement: &Placement<S>,
        partition: PartitionId,
        host: &mut impl Assemble<Replicated<S, Family>>,
    ) {
        let nodes: Arc<[NodeId]> = placement.servers().collect();
        let regions = Arc::new(placement.regions.clone());
        for node in nodes.iter() {
            let replica = placement.replica(partition, *node);
            if !placement.parameters.unified {
                let witness = ProcessId { role: WITNESS, ..replica };
                host.server::<WitnessServer<S::Command, S::Reply>>(witness, placement.parameters);
            }
            let setup = ManagerSetup {
                nodes: nodes.clone(),
                founders: placement.replicas.as_slice().into(),
                regions: regions.clone(),
                preferred: Some(placement.leader(partition)),
                service: placement.service,
                parameters: placement.parameters,
            };
            let manager = ProcessId { role: MANAGER, ..replica };
            host.server::<Manager<S::Command, S::Reply>>(manager, setup);
        }
    }
}

/// How its clients speak with witnesses.
#[derive(Copy, Clone, Debug)]
pub struct Speaks;

impl<C: Wire> Recording<C> for Speaks {
    type Message = Message<Entry<C>>;
    type Parameters = Parameters;

    const SYNCS_ALL: bool = <Family as crate::Family>::SYNCS_ALL;

    fn fast_path(parameters: &Parameters) -> FastPath {
        // A witness holds a command with its name.
        let slot_bytes = parameters.witness.slot_bytes.saturating_sub(NAME_BYTES);
        FastPath { slot_bytes, ..parameters.fast_path }
    }

    fn records(records: Records<C>) -> Message<Entry<C>> {
        let Records { reign, client, below, kept } = records;
        let request = |Kept { sequence, keys, command }| {
            (keys, Entry::Command { id: CommandId { client, sequence }, below, command })
        };
        Message::Records { reign, requests: kept.into_iter().map(request).collect() }
    }

    fn heard(message: Message<Entry<C>>) -> Heard {
        match message {
            Message::Verdicts(verdicts) => Heard::Verdicts(verdicts),
            Message::Located(Some(view)) => Heard::View(view),
            Message::Distant(distant) => Heard::Distant(distant),
            _ => Heard::Nothing,
        }
    }

    fn reads_nearby(parameters: &Parameters) -> bool {
        parameters.reads_nearby()
    }

    fn near(reads: Records<C>) -> Option<Message<Entry<C>>> {
        let Records { reign, client, below, kept } = reads;
        let read = |Kept { sequence, command, .. }| Entry::Read {
            id: CommandId { client, sequence },
            below,
            command,
        };
        Some(Message::Near { reign, reads: kept.into_iter().map(read).collect() })
    }

    /// Only what the managers have agreed on counts, so servers are asked.
    fn view(_: &client::Setup<Parameters>, _: Reign, _: ProcessId) -> Option<View> {
        None
    }

    fn inquiry(setup: &client::Setup<Parameters>) -> Option<(Vec<ProcessId>, Message<Entry<C>>)> {
        Some((setup.replicas.to_vec(), Message::Locate))
    }
}

/// What servers of a state machine are.
pub type Server<S> = crate::Replica<S, OrderOf<Family, S>>;
