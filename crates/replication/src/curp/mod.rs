//! CURP: a command is durable without an order, at the same moment as it is ordered and executed, so that its
//! client has its answer after one round trip (`specs/curp.md`; Park and Ousterhout, NSDI 2019).
//!
//! The client asks the leader (or master) and, at the same moment, the *witnesses* to keep its command. The leader
//! executes at once and answers before its log is replicated ([`crate::order::Step::Tentative`]); a witness
//! accepts what commutes with all that it keeps. With enough acceptances under the reign of the answer, the
//! command can be neither lost nor reordered: the client has its answer. Otherwise the leader answers once more
//! when its log is replicated; a client on its own node asks for that answer alone, which is as near there (7.2).
//!
//! What the two variants share is here: how a client speaks with witnesses ([`Recording`]), what it makes of the
//! answers, and, in the replica, which tentative commands commute; and the store of a [`witness`].

pub mod client;
pub mod consensus;
#[cfg(test)]
mod conversation;
mod decision;
mod nearby;
mod paths;
pub mod primary;
mod program;
mod recent;
pub(crate) mod unsynced;
pub mod witness;

pub use client::Client;

use crate::client::Setup;
use crate::order::Reign;
use isochrone_core::command::Touch;
use isochrone_core::{ClientId, KeyspaceId, ProcessId, Span, Wire, key_hash};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::sync::Arc;

/// Whether a client is on its leader's node. There a safe answer is one round trip away too, as a witness is, and for half
/// the work: it asks for that alone, and records nothing (7.2).
pub(crate) fn beside(client: ProcessId, leader: ProcessId) -> bool {
    client.node == leader.node
}

/// Commands that a client asks a witness to keep.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Records<C> {
    /// The reign in which the client asked the leader, at the same moment.
    pub reign: Reign,
    /// Whose they are.
    pub client: ClientId,
    /// The client has the answers to all its commands below this one.
    pub below: u64,
    /// The commands.
    pub kept: Vec<Kept<C>>,
}

/// One command, for a witness.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Kept<C> {
    /// The client's number for it.
    pub sequence: u64,
    /// The hashes of all keys that it reads or writes, each once, sorted.
    pub keys: Vec<u64>,
    /// What is executed when it is replayed.
    pub command: C,
}

/// What a witness says of [`Records`].
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Verdicts {
    /// The client's incarnation that asked.
    pub incarnation: u32,
    /// The reign that the records were accepted under; where they were refused for their reign, the witness'.
    pub reign: Reign,
    /// Sequence numbers, and whether each is kept durably.
    pub verdicts: Vec<(u64, bool)>,
}

/// Whom a client has to do with under a reign.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct View {
    /// The reign. The rest follows from it.
    pub reign: Reign,
    /// Who executes.
    pub leader: ProcessId,
    /// Who keeps records.
    pub witnesses: Arc<[ProcessId]>,
    /// How many of them must accept.
    pub needed: usize,
}

/// Reads that a copy does not answer: the leader is to be asked.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Distant {
    /// The client's incarnation that asked.
    pub incarnation: u32,
    /// The reign that the copy is in.
    pub reign: Reign,
    /// The reads.
    pub sequences: Vec<u64>,
}

/// What a client hears by way of the order's messages.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Heard {
    /// A witness answers.
    Verdicts(Verdicts),
    /// A copy does not answer.
    Distant(Distant),
    /// Somebody knows of a view.
    View(View),
    /// It is not for clients.
    Nothing,
}

/// Bytes of a witness' slot that hold the name of a command at most.
const NAME_BYTES: usize = 48;

/// The knobs of the fast path at the client.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct FastPath {
    /// Commands that are larger, bytes, are not recorded: witnesses have no slot for them.
    pub slot_bytes: usize,
    /// Nothing is recorded: every command is answered once it is safe, at once if the leader is asked (7.2).
    pub always_synced: bool,
    /// Commands with more keys are not recorded.
    pub keys_max: usize,
    /// A record's answer is waited for at least so long; else twice the witness' smoothed round trip (D-5).
    pub record_floor: Span,
    /// After so many records in a row whose answers were late or lacking, nothing is recorded for a while.
    pub misses: u32,
    /// How long that is.
    pub pause: Span,
}

impl FastPath {
    /// The defaults for replicas and clients that are at most this far apart.
    pub fn for_rtt(rtt_max: Span) -> FastPath {
        FastPath {
            slot_bytes: 2_048,
            always_synced: isochrone_plan::curp::ALWAYS_SYNCED,
            keys_max: 8,
            record_floor: Span::from_millis(10),
            misses: 3,
            pause: rtt_max * 4 + Span::from_secs(1),
        }
    }
}

/// How the clients of a family speak with its witnesses. All of it travels in the messages of the order, between
/// the client and whichever process of the family keeps records or knows of views.
pub trait Recording<C: Wire>: Copy + Debug + Send + Sync + 'static {
    /// What the order speaks.
    type Message: Wire;
    /// The knobs of the order.
    type Parameters: crate::Tuning;

    /// Whether a safe answer rests on every witness' node, and not on most.
    const SYNCS_ALL: bool = false;

    /// The knobs of the fast path.
    fn fast_path(parameters: &Self::Parameters) -> FastPath;

    /// Asks a witness to keep commands.
    fn records(records: Records<C>) -> Self::Message;

    /// Whether clients read at a copy that is nearer than the leader, where that is safe.
    fn reads_nearby(_parameters: &Self::Parameters) -> bool {
        false
    }

    /// Asks the witness of a copy to have these reads answered there, if nothing that it keeps stands in the way.
    fn near(_reads: Records<C>) -> Option<Self::Message> {
        None
    }

    /// What a client makes of a message.
    fn heard(message: Self::Message) -> Heard;

    /// What a client knows of a reign that a replica told it, where everything follows from who leads in it. None
    /// where somebody has to be asked ([`Recording::inquiry`]).
    fn view(setup: &Setup<Self::Parameters>, reign: Reign, leader: ProcessId) -> Option<View>;

    /// Whom to ask for the view as it is now, and how; each may answer with [`Heard::View`].
    fn inquiry(_setup: &Setup<Self::Parameters>) -> Option<(Vec<ProcessId>, Self::Message)> {
        None
    }
}

/// Bugs that can be planted in what the families share; a family names those that it plants.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Bug {
    /// The leader answers speculatively whatever else is tentative (Rule 2, I2).
    SpeculateOnConflict,
    /// Reads are answered from values that are not safe (I5).
    ReadTentative,
    /// A command asked for again is told its speculative answer (D-12).
    SpeculateOnDuplicate,
    /// A leader that has lost its place keeps what it executed speculatively (D-34).
    KeepTentative,
    /// The client counts acceptances of other reigns (D-7).
    MixReigns,
    /// The client is content with one acceptance less than needed (I1).
    OneAcceptanceLess,
    /// Keys that a command only reads are not recorded and conflict with nothing (D-11).
    ForgetReadKeys,
    /// What fails is answered without a place in the log, and nothing remembers it (D-51).
    ForgetFailures,
    /// What was acknowledged, or whose client's session is over, is executed when it comes again (3.11).
    ExecuteForgotten,
    /// The client reads at a backup first and asks its witness afterwards (D-20).
    BackupBeforeWitness,
}

impl Bug {
    /// The one of this name on the command line; a family's own bugs have other names.
    pub(crate) fn named(name: &str) -> Option<Bug> {
        Some(match name {
            "speculate-on-conflict" => Bug::SpeculateOnConflict,
            "read-tentative" => Bug::ReadTentative,
            "speculate-on-duplicate" => Bug::SpeculateOnDuplicate,
            "keep-tentative" => Bug::KeepTentative,
            "mix-reigns" => Bug::MixReigns,
            "one-acceptance-less" => Bug::OneAcceptanceLess,
            "forget-read-keys" => Bug::ForgetReadKeys,
            "forget-failures" => Bug::ForgetFailures,
            "execute-forgotten" => Bug::ExecuteForgotten,
            "backup-before-witness" => Bug::BackupBeforeWitness,
            _ => return None,
        })
    }
}

/// The hashes of all keys that are visited, each once, ascending; none where everything is touched.
pub(crate) fn key_hashes(
    keyspace: KeyspaceId,
    visit: impl FnOnce(&mut dyn FnMut(Touch<'_>)),
) -> Option<Vec<u64>> {
    let (mut hashes, mut all) = (Vec::new(), false);
    visit(&mut |touch| match touch {
        Touch::Key(key, _) => hashes.push(key_hash(keyspace, key)),
        Touch::All(_) => all = true,
    });
    hashes.sort_unstable();
    hashes.dedup();
    (!all).then_some(hashes)
}
