//! Commands as transactions: how a keyspace of a transaction protocol is served to clients that speak in commands.
//!
//! **What a command becomes.** One transaction. The keys that it names are read, and declared for writing where it may
//! change them; under a key the protocol's store holds the encoded entry of that key (`Store::entry`): value, deadline and version. What was read goes into an empty store, the command is
//! executed there by the code that serves every other protocol, so that replies are the same, and the keys that it has
//! changed are written. `MULTI` and `EXEC` are one command and so one transaction, across partitions and regions;
//! `WATCH` compares the versions of entries, which are read in the transaction that depends on them. Commands about the
//! whole keyspace name no keys and are no transactions (`whole.rs`); within `MULTI` they are refused.
//!
//! **Guarantee.** That of the protocol: commands that write are what its transactions that write are, commands that
//! only read are its read-only transactions. Where the protocol has read-only transactions that may miss the latest, they
//! are not taken unless the keyspace says so ([`Family::served`]). A read that finds a key expired by its stamp deletes it, as everywhere, and
//! then is a transaction that writes. What a transaction of the host's own finds expired by the stamp with which it was asked
//! for, a command deletes, and then it begins anew.
//!
//! **Again.** A transaction that was aborted took no effect, so the command is executed anew, after the pauses of
//! [`Retry`], until its time is up. A commit that waits for others until then is to be aborted, where the protocol still can.
//! What nobody knows the end of is not tried again.
//!
//! **Order** (`command.in_order`). Commands that share a key, one of them to change it, are executed in the order in
//! which they came, whoever asked; so those of one connection are. While a transaction is under way, those behind it
//! gather, and those that need no other keys go together as the next one: a pipeline of increments of one key costs two
//! transactions, and clients of one gateway do not abort each other. What gateways abort each other for, one of them executes
//! for all (`process/forwarding.rs`).

mod keys;
mod lines;
mod process;
mod scratch;
#[cfg(test)]
mod tests;
pub mod values;
mod whole;

pub use process::Commands;
pub use process::forwarding::Forward;

use crate::directory::Directed;
use crate::family::Family;
use crate::map::Map;
use crate::placement::Placement;
use crate::request::{self, Outcome, Reason, Request};
use crate::retry::Retry;
use isochrone_core::command::{Command, Response};
use isochrone_core::deployment::ParameterReader;
use isochrone_core::{Assemble, Blob, Guarantee, Lasting, NodeId, Process, Protocol, Span};
use std::marker::PhantomData;
use std::sync::Arc;
use thiserror::Error;

/// What a host asks of a client that takes commands too.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Execute this command, as one transaction.
    Command(Command),
    /// A transaction of the host's own. Its values are entries of keys where commands are to understand them
    /// ([`values`]), and none that it reads was over when it was asked to begin. Also what is asked of the
    /// [`directory`](crate::directory).
    Transaction(Request),
    /// Execute nothing more for clients of other nodes: this one is about to stop. What it has not begun goes back to them. Answered
    /// with OK once nothing is under way for them.
    Retire,
}

/// What it is told.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Answer {
    /// The command took effect exactly once, with this reply.
    Replied(Response),
    /// It took no effect and never will.
    Refused(Refusal),
    /// Nobody could say in time; it may or may not take effect.
    Unknown,
    /// How the host's own transaction goes on, or what the directory says.
    Transaction(Outcome),
}

/// Why a command took no effect. The texts begin with the code that clients of Redis know, if there is one.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum Refusal {
    /// It is about all keys, and a transaction names its keys.
    #[error(
        "ERR '{0}' is about the whole keyspace, and a transaction here names its keys; ask for it outside of MULTI, or use \
         a keyspace of another protocol"
    )]
    Whole(&'static str),
    /// Keys are on their way between partitions, for longer than it has.
    #[error(
        "TRYAGAIN keys are being moved between partitions for longer than {0}; ask again, a move that was given up goes on \
         by itself"
    )]
    Moving(Span),
    /// It was aborted each time until its time was up.
    #[error("TRYAGAIN aborted {tries} times within {limit}, at last for {reason}{}", others(.reason))]
    Contended {
        /// How often.
        tries: u32,
        /// The time it had.
        limit: Span,
        /// Why it was aborted at last.
        reason: Reason,
    },
    /// A partition was not to be reached until its time was up, or others held the same keys there.
    #[error(
        "TRYAGAIN no answer within {0}: others hold the same keys, or a partition is cut off or has no majority"
    )]
    Unreached(Span),
    /// Others on the same keys were before it until its time was up.
    #[error("TRYAGAIN it has waited for {0} behind others on the same keys")]
    Waited(Span),
    /// The transaction was not taken up.
    #[error("{}{}", code(.0), .0)]
    Transaction(request::Refusal),
    /// A key holds something that no command has written.
    #[error("WRONGTYPE key {0:?} holds a value that no command has written; read it as a transaction")]
    Foreign(Blob),
    /// Another node was to execute it, and says this.
    #[error("{0}")]
    Elsewhere(String),
    /// Too much waits here.
    #[error("TRYAGAIN {0} commands wait at this node already; ask again later")]
    Overloaded(usize),
}

/// What others do, where a transaction was aborted for that.
fn others(reason: &Reason) -> &'static str {
    if matches!(reason, Reason::Conflict | Reason::StaleRead) { "; others change the same keys" } else { "" }
}

/// Whether asking again may help.
fn code(refusal: &request::Refusal) -> &'static str {
    if matches!(refusal, request::Refusal::Overloaded(_)) { "TRYAGAIN " } else { "ERR " }
}

/// How commands are tuned.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Parameters {
    /// When a transaction that was aborted is tried again.
    pub retry: Retry,
    /// How long a command is tried at all.
    pub limit: Span,
    /// Commands that one client process may have open; more are refused.
    pub open_max: usize,
    /// Commands that may go as one transaction.
    pub gather_max: usize,
    /// How long an answer is waited for before the question is asked again.
    pub patience: Span,
    /// The longest way there and back.
    pub rtt_max: Span,
}

impl Parameters {
    /// The defaults where everybody is at most this far apart.
    pub fn for_rtt(rtt_max: Span) -> Parameters {
        Parameters {
            retry: Retry { tries: u32::MAX, ..Retry::for_rtt(rtt_max) },
            limit: Span::from_secs(10),
            open_max: 65_536,
            gather_max: 256,
            patience: rtt_max * 2 + Span::from_millis(400),
            rtt_max,
        }
    }

    /// Reads over these defaults; the caller finishes the reader.
    pub fn read_from(&mut self, reader: &mut ParameterReader<'_>) {
        let (least, most) = (Span::from_millis(1), Span::from_secs(3_600));
        self.limit = reader.span("command_limit", self.limit, least, most);
        self.open_max = reader.integer("commands_open", self.open_max as u64, 1, 1 << 24) as usize;
        self.gather_max = reader.integer("commands_gathered", self.gather_max as u64, 1, 1 << 16) as usize;
    }
}

/// What a client that takes commands needs to start.
#[derive(Clone, Debug)]
pub struct Setup<P> {
    /// Of the client of transactions inside.
    pub client: P,
    /// How commands are tuned.
    pub parameters: Parameters,
    /// The partitions.
    pub map: Map,
    /// The nodes of all clients.
    pub nodes: Arc<[NodeId]>,
}

/// The family `F` as nodes serve it: its servers, and clients that take commands beside transactions.
pub struct Served<F>(PhantomData<F>);

impl<F: Family> Protocol for Served<F> {
    const NAME: &'static str = F::NAME;
    type Message = F::Message;
    type Request = Ask;
    type Outcome = Answer;
    type Placement = Placement<F>;

    /// The weaker of the two: what holds for all.
    fn guarantee(placement: &Placement<F>) -> Guarantee {
        let (updates, reads) = F::guarantees(&served::<F>(placement));
        updates.max(reads)
    }

    fn lasting(placement: &Placement<F>) -> Lasting {
        placement.lasting()
    }

    fn place(placement: &Placement<F>, host: &mut impl Assemble<Self>) {
        let parameters = served::<F>(placement);
        placement.servers(parameters, |process, setup| host.server::<F::Server>(process, setup));
        let nodes: Arc<[NodeId]> = placement.clients.iter().map(|(node, _)| *node).collect();
        placement.clients(parameters, |process, client| {
            let (map, nodes) = (placement.map.clone(), nodes.clone());
            let setup = Setup { client, parameters: placement.commands, map, nodes };
            host.client::<Commands<Directed<F::Client>>>(process, setup);
        });
    }
}

/// The knobs of the family as clients of commands expect them.
fn served<F: Family>(placement: &Placement<F>) -> F::Parameters {
    let mut parameters = placement.parameters;
    F::served(&mut parameters);
    parameters
}

/// The name under which an abort is counted.
pub(crate) fn counted(reason: Reason) -> &'static str {
    match reason {
        Reason::Conflict => "aborted_conflict",
        Reason::StaleRead => "aborted_stale_read",
        Reason::Client => "aborted_client_abort",
        Reason::HeartbeatLost => "aborted_heartbeat_lost",
        Reason::Presumed => "aborted_presumed",
        Reason::Unavailable => "aborted_unavailable",
        Reason::OutOfTime => "aborted_out_of_time",
    }
}

/// A process that answers transactions.
pub trait Transacts: Process<Request = Request, Outcome = Outcome> {}

impl<C: Process<Request = Request, Outcome = Outcome>> Transacts for C {}

/// Messages of a protocol, which carry those that clients say to each other.
pub trait Carries: Sized {
    /// This one.
    fn carry(forward: Forward) -> Self;

    /// What it carries.
    ///
    /// # Errors
    /// Itself, where it is one of the protocol.
    fn carried(self) -> Result<Forward, Self>;
}
