//! The interface between a shard and the client connections it serves.
//!
//! A [`Session`] is a sans-IO state machine for one client connection: the shard reads bytes and feeds
//! them in, the session parses them, asks for work ([`Request`]) and writes replies. It never blocks,
//! has no socket and no clock of its own; what it may know stands in [`Context`]. The Redis gateway
//! implements it; another protocol would too.
//!
//! The shard's side of the bargain, in the order of a connection's life:
//!
//! 1. [`Gateway::accept`] makes the session. Where the limit of clients is reached, the shard calls
//!    [`Gateway::refuse`] for the last words instead and closes.
//! 2. Bytes that arrive go to [`Session::receive`] at once and whole, while [`Session::wants_input`]
//!    holds; otherwise the shard stops reading the socket, so that the peer feels it.
//! 3. Every [`Request`] gets exactly one [`Session::answer`], in any order, unless the connection ends
//!    first. Then the shard cancels what is under way at the processes.
//!    What connections tell each other ([`Context::hub`]) goes to [`Session::notify`].
//! 4. [`Session::tick`] is called at least every 100 ms.
//! 5. After each of these calls the shard sends what is in `out`, as soon as the socket takes it; what
//!    the socket has not taken is counted in [`Context::unsent`].
//! 6. Once [`Session::closing`] holds, the shard flushes `out` and closes.

use crate::hub::{Hub, Notice};
use crate::limits::Limits;
use crate::memory::Memory;
use isochrone_core::command::{Command, Response};
use isochrone_core::{Blob, CommandId, Guarantee, Instant, KeyspaceId, Random, Span, Stamp};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Makes the sessions of one kind of client listener. Shared by nothing: each shard has its own.
pub trait Gateway: Send {
    /// The session of a connection that was just accepted. `context.clients` already lists it.
    fn accept(&mut self, context: &mut Context<'_>) -> Box<dyn Session>;

    /// The last words to a client that finds the house full, e.g. `-ERR max number of clients reached`.
    fn refuse(&mut self, out: &mut Vec<u8>);
}

/// One client connection, without its socket.
pub trait Session: Send {
    /// Takes in bytes in the order they came. Replies go to the end of `out`, work to `requests`.
    /// What is incomplete is kept inside.
    fn receive(
        &mut self,
        bytes: &[u8],
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
        requests: &mut Vec<Request>,
    );

    /// The answer to the request of this number. Numbers are the session's own; the answer to one that
    /// it no longer waits for is to be ignored.
    fn answer(
        &mut self,
        id: u64,
        outcome: Outcome,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
        requests: &mut Vec<Request>,
    );

    /// Another connection, here or at another node, has told this one something.
    fn notify(
        &mut self,
        notice: Notice,
        context: &mut Context<'_>,
        out: &mut Vec<u8>,
        requests: &mut Vec<Request>,
    );

    /// Time has passed: login and idle deadlines are looked at here.
    fn tick(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>, requests: &mut Vec<Request>);

    /// Whether more input is welcome: false while too much is under way or unsent.
    fn wants_input(&self) -> bool;

    /// The other end has closed while no input was welcome. Who only waits for what others may do waits no longer, and takes
    /// up nothing more: true. False where what was asked is to be answered all the same.
    fn hang_up(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> bool;

    /// Whether the connection is to be closed once `out` is flushed (QUIT, a protocol error).
    fn closing(&self) -> bool;

    /// Bytes, about, of answers that have come and are not in `out` yet: they wait for others, or for what is unsent to become
    /// less, upon which the shard calls [`Session::tick`]. Not counted is what the keyspace still has in memory as well, as far as that
    /// was known at the last call. More than 0 while there is any such answer.
    fn holds(&self) -> usize {
        0
    }

    /// Bytes of memory for requests that have come and are not whole yet.
    fn half_read(&self) -> usize {
        0
    }
}

/// What a session asks of the shard.
#[derive(Debug)]
pub struct Request {
    /// The session's number for it; unique while it is unanswered.
    pub id: u64,
    /// What is wanted.
    pub ask: Ask,
}

/// The kinds of work a session can ask for.
pub enum Ask {
    /// A command on a keyspace, through that keyspace's protocol.
    Execute {
        /// The keyspace, from [`Context::keyspaces`].
        keyspace: KeyspaceId,
        /// The command. It carries [`Context::stamp`] of the input that asked for it.
        command: Command,
    },
    /// Is this the password of this user? Hashing takes tens of milliseconds, so it runs beside the
    /// loop, one after the other. Answered by [`Outcome::Verified`], however many ask.
    Verify {
        /// The user; `default` where the client named none.
        user: String,
        /// The password in clear. Overwritten after use.
        password: Secret,
    },
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ask::Execute { keyspace, command } => write!(f, "execute {keyspace} {command:?}"),
            Ask::Verify { user, .. } => write!(f, "verify {user}"),
        }
    }
}

/// Bytes that no log, error or dump may show; overwritten with zeros when dropped.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes the bytes over.
    pub fn new(bytes: Vec<u8>) -> Secret {
        Secret(bytes)
    }

    /// The bytes in clear.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        use zeroize::Zeroize;
        self.0.zeroize();
    }
}

/// How a request ended.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Outcome {
    /// The command was executed; this is its response (which may itself be an error, e.g. wrong type).
    Done(Response),
    /// It was not executed and never will be. The text says why and what would help.
    Refused(String),
    /// Nobody knows: it may have been executed, be executed later, or never (time-out, lost leader).
    Unknown(String),
    /// An order to the process itself was carried out, and this is what came of it. No command is answered so.
    Ordered(String),
    /// How a transaction goes on. No command is answered so.
    Transaction(Box<Step>),
    /// The answer to [`Ask::Verify`]. The delay after repeated failures lies in the shard already.
    Verified {
        /// Whether user and password fit.
        accepted: bool,
    },
}

/// What a client asks that speaks in transactions: one round of reads, then one round of writes, of keys that are known
/// when it begins. Values are plain ones, those of GET and SET.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Transaction {
    /// Begins and reads; without anything to write it is the whole transaction.
    Begin {
        /// Each once.
        reads: Vec<Blob>,
        /// What may be written, each once.
        writes: Vec<Blob>,
    },
    /// Writes and commits.
    Commit {
        /// Which.
        txn: CommandId,
        /// Keys and what they are to hold; nothing deletes.
        updates: Vec<(Blob, Option<Blob>)>,
    },
    /// Gives up.
    Abort {
        /// Which.
        txn: CommandId,
    },
}

/// How a transaction goes on.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Step {
    /// It is open.
    Begun {
        /// Its name.
        txn: CommandId,
        /// What was read, in the order asked for.
        reads: Vec<Read>,
    },
    /// One that only reads, complete.
    Snapshot {
        /// What was read, in the order asked for.
        reads: Vec<Read>,
        /// Everything up to this version.
        at: u64,
    },
    /// It took effect, at this version.
    Committed(u64),
    /// It took no effect.
    Aborted(Abort),
    /// It was not taken up: no effect.
    Refused(Unfit, String),
    /// Nobody knows.
    Unknown,
}

/// A key and what it held.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Read {
    /// The key.
    pub key: Blob,
    /// Its value, if it had one; or why it has no plain one.
    pub value: Result<Option<Blob>, String>,
    /// Which version of it; 0 where it was never written.
    pub version: u64,
}

/// Why a transaction took no effect.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Abort {
    /// Another on the same keys was under way.
    Conflict,
    /// What it had read was not the latest.
    StaleRead,
    /// Its client gave it up.
    Client,
    /// Its client was not heard of for too long.
    HeartbeatLost,
    /// A participant does not know it.
    Presumed,
    /// A partition could not be reached in time.
    Unavailable,
    /// It asked for a moment that a partition cannot serve.
    OutOfTime,
}

/// In which way a transaction, or a step of it, is not fit.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Unfit {
    /// It is not open.
    NotOpen,
    /// It makes no sense.
    Wrong,
    /// It is larger than may be.
    TooLarge,
    /// Too many are open.
    Overloaded,
}

/// What a session may know and touch during one call.
pub struct Context<'a> {
    /// The steady clock.
    pub now: Instant,
    /// The wall clock, for the stamps of commands and for TIME.
    pub stamp: Stamp,
    /// The number of this connection: its key in `clients`, and what CLIENT ID answers.
    pub connection: u64,
    /// Bytes of earlier `out` that the socket has not taken yet.
    pub unsent: usize,
    /// Seeded per node; not for secrets.
    pub random: &'a mut Random,
    /// Every limit with its name.
    pub limits: &'a Limits,
    /// What INFO tells.
    pub node: &'a NodeView,
    /// The keyspaces that clients may SELECT, in file order.
    pub keyspaces: &'a [KeyspaceView],
    /// Whether clients must log in before anything else.
    pub login: Login,
    /// Every connection of this shard by number: CLIENT LIST, CLIENT SETNAME. [`Hub::kill`] ends one.
    pub clients: &'a mut BTreeMap<u64, ClientView>,
    /// What the gateway counts.
    pub counters: &'a mut Counters,
    /// What connections tell each other.
    pub hub: &'a mut Hub,
}

/// Whether clients must log in.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Login {
    /// No users are configured, which is allowed on loopback only; AUTH is answered as Redis does then.
    Open,
    /// [`Ask::Verify`] must have been accepted before any other command.
    Required,
}

/// Facts about the node, refreshed by the shard at least once a second.
#[derive(Clone, Debug, Default)]
pub struct NodeView {
    /// The version of this program.
    pub version: &'static str,
    /// The cluster's name.
    pub cluster: String,
    /// This node's name in the deployment file.
    pub node: String,
    /// Its region's name.
    pub region: String,
    /// The port this listener is bound to.
    pub port: u16,
    /// The operating system's number of this process.
    pub process_id: u32,
    /// Random per start, 40 hexadecimal digits, as Redis has it.
    pub run_id: String,
    /// Seconds since the node started.
    pub uptime_seconds: u64,
    /// True where acknowledged writes may be lost on a crash: `fsync = "off"`. INFO must show UNSAFE.
    pub unsafe_fsync_off: bool,
    /// Resident memory, bytes; 0 where the system does not tell.
    pub memory_bytes: u64,
    /// The most that it was, bytes.
    pub memory_peak_bytes: u64,
    /// What of the memory that it has asked for the node may use; CONFIG SET changes it.
    pub memory: Arc<Memory>,
    /// Processor time used so far, in user and in kernel mode, in seconds; zero where the system does not tell.
    pub processor_seconds: (f64, f64),
    /// Commands taken in within the last second.
    pub commands_per_second: u64,
    /// Bytes in the journal.
    pub journal_bytes: u64,
    /// Mean of the journal's syncs in the last second that had any, microseconds.
    pub sync_micros: u64,
    /// Peers with a live link, and how many there are in all.
    pub peers_connected: (u32, u32),
}

/// A keyspace as clients see it.
#[derive(Clone, Debug)]
pub struct KeyspaceView {
    /// Which.
    pub id: KeyspaceId,
    /// Its name in the deployment file.
    pub name: String,
    /// Its SELECT number.
    pub index: u32,
    /// The name of its protocol.
    pub protocol: &'static str,
    /// Whether a command there is a transaction.
    pub transactional: bool,
    /// What it promises.
    pub guarantee: Guarantee,
    /// How many replicas each of its partitions has.
    pub replicas: u32,
    /// Where what clients were told is.
    pub durability: Durability,
    /// How many others than the one that executes it have what is safe.
    pub copies: u32,
    /// How many keys the replicas here have, and how many of them have a deadline; none where no replica is here.
    pub keys: Option<(u64, u64)>,
    /// How many keys the replicas here have deleted since they started because their time was over.
    pub expired: u64,
    /// The region of its leader, where it has one that this node has heard of.
    pub leader: Option<String>,
    /// The regions of the leaders of its partitions, in their order.
    pub leaders: Vec<Option<String>>,
    /// Whether a process of this node leads it, or a partition of it.
    pub leads: bool,
    /// The nodes that have no memory for more of it: commands that may make data grow are refused.
    pub full: Vec<Full>,
}

impl KeyspaceView {
    /// One as its deployment file has it, of which no more is known: linearizable, and safe on the disks of most of so many
    /// replicas.
    pub fn new(
        id: KeyspaceId,
        name: &str,
        index: u32,
        protocol: &'static str,
        replicas: u32,
    ) -> KeyspaceView {
        KeyspaceView {
            id,
            name: name.to_owned(),
            index,
            protocol,
            transactional: false,
            guarantee: Guarantee::Linearizable,
            replicas,
            durability: Durability::Most,
            copies: replicas / 2,
            keys: None,
            expired: 0,
            leader: None,
            leaders: Vec::new(),
            leads: false,
            full: Vec::new(),
        }
    }
}

/// A node that uses more memory than it may.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Full {
    /// Its name.
    pub node: String,
    /// Bytes that it may use.
    pub limit: u64,
}

/// Where a write is that a client was told of.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Durability {
    /// On the disks of most replicas.
    Most,
    /// On enough disks to be found by whoever leads next; in the logs of most replicas soon, and before a command that
    /// touches all keys is answered.
    MostSoon,
    /// The same, in the logs of all copies.
    AllSoon,
}

/// One connection of this shard.
#[derive(Clone, Debug)]
pub struct ClientView {
    /// Where it comes from.
    pub address: SocketAddr,
    /// Where it came in.
    pub local: SocketAddr,
    /// When it was accepted.
    pub since: Instant,
    /// When bytes last came from it.
    pub active: Instant,
    /// CLIENT SETNAME.
    pub name: String,
    /// CLIENT SETINFO LIB-NAME and LIB-VER.
    pub library: (String, String),
    /// The user it is logged in as.
    pub user: String,
    /// The keyspace it has selected, by index.
    pub index: u32,
    /// RESP version.
    pub protocol: u8,
    /// The last command's name.
    pub last_command: &'static str,
    /// How many commands MULTI has queued, where there is one, and how many keys are watched.
    pub transaction: (Option<usize>, usize),
    /// Whether its command has found nothing and waits.
    pub waits: bool,
    /// CLIENT NO-EVICT.
    pub no_evict: bool,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// Bytes received and sent.
    pub traffic: (u64, u64),
}

/// How long commands of one name took.
#[derive(Copy, Clone, Debug, Default)]
pub struct Times {
    /// Together.
    pub sum: Span,
    /// How many took as long as [`Times::most`] says of their place, and longer than that of the place before; the last
    /// ones perhaps longer.
    pub counts: [u64; Times::PLACES],
}

impl Times {
    /// Up to more than a minute.
    pub const PLACES: usize = 27;
    /// What is shorter is counted at the first place, nanoseconds.
    const FIRST: u64 = 1032;

    /// The longest time that is counted at a place, as histograms of Redis have it: doubled from place to place.
    pub const fn most(place: usize) -> Span {
        Span::from_nanos((Times::FIRST << place) - 1)
    }

    /// Counts a command.
    pub fn add(&mut self, took: Span) {
        self.sum += took;
        let place = (u64::BITS - (took.as_nanos() / Times::FIRST).leading_zeros()) as usize;
        self.counts[place.min(Times::PLACES - 1)] += 1;
    }
}

/// What gateways count; shown as `isochrone_gateway_*_total`.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Commands taken in, by name as in the command table (a bounded set).
    pub commands: BTreeMap<&'static str, u64>,
    /// Those that were not carried out, for what they lack or may not do, by name.
    pub rejected: BTreeMap<&'static str, u64>,
    /// Those of `commands` that ended with an error, by name.
    pub failed: BTreeMap<&'static str, u64>,
    /// How long those took together that were asked of keyspaces, from the request to the answer.
    pub times: BTreeMap<&'static str, Times>,
    /// Commands answered with an error, by its first word (a bounded set: `ERR`, `WRONGTYPE`, ...).
    pub errors: BTreeMap<&'static str, u64>,
    /// Keys that were asked for and found, and those that were not, as far as answers say.
    pub lookups: (u64, u64),
    /// Input that was not the protocol; each ended its connection.
    pub malformed: u64,
    /// Connections ended because a limit was passed, by the limit's name.
    pub limited: BTreeMap<&'static str, u64>,
    /// Logins refused.
    pub login_failures: u64,
    /// Passwords hashed.
    pub login_checks: u64,
    /// Passwords that wait for that now.
    pub logins_waiting: u64,
    /// Connections accepted since the start.
    pub connections: u64,
    /// Bytes that came from clients, and that went to them.
    pub traffic: (u64, u64),
    /// When the log was last told of a client that was cut off.
    told: Option<Instant>,
}

impl Counters {
    /// Counts under this limit that a connection is cut off which does not read its replies, or is owed more than is kept;
    /// says so in the log, once a second at most.
    pub(crate) fn fell_behind(
        &mut self,
        limit: &'static str,
        connection: u64,
        client: Option<&ClientView>,
        unsent: usize,
        now: Instant,
    ) {
        *self.limited.entry(limit).or_default() += 1;
        if self.told.is_some_and(|told| now < told + Span::from_secs(1)) {
            return;
        }
        self.told = Some(now);
        let address = client.map(|client| client.address.to_string()).unwrap_or_default();
        tracing::warn!(
            client = connection,
            address,
            unsent,
            "a client is cut off: it does not read its replies, or they are larger than `output` of [limits] allows"
        );
    }
}
