//! A node: built from a deployment, run on its own threads, held by a [`NodeHandle`].

use crate::clock::Clock;
use crate::gateway::{Gateway, KeyspaceView, NodeView};
use crate::hosted::Hosted;
use crate::http;
use crate::journal::{DataDirectory, Expect, Fsync, JournalError, JournalOptions, JournalThread, StreamId};
use crate::limits::Limits;
use crate::metrics::{KeyspaceMetrics, NodeMetrics};
use crate::poller::Poller;
use crate::protocols::{Administration, Placement, Protocols};
use crate::reactor::{
    Board, ClientListener, Clients, Control, Failure, Kind, Origins, Peers, Reactor, Reporter, Responder,
    Served, Status, Verifier, token,
};
use crate::resolver::Resolver;
use crate::security::{self, SecurityError};
use crate::shard::{SNAPSHOT_BYTES, Shard};
use crate::snapshots::{SnapshotError, SnapshotThread, Start};
use crate::transport::emulation::Emulation;
use crate::transport::frame::{Hello, MAGIC, VERSION};
use crate::transport::link::{Link, Target};
use crate::transport::stream::Acceptor;
use isochrone_core::deployment::{ConfigErrors, Deployment};
use isochrone_core::{Blob, Identity, Instant, KeyspaceId, NodeId, ProcessId, Random};
use mio::Waker;
use rand_core::RngCore;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use thiserror::Error;

/// Orders that may wait for the loop.
const ORDERS: usize = 64;

/// What a node is started with.
pub struct NodeConfig {
    /// The whole deployment.
    pub deployment: Arc<Deployment>,
    /// Which of its nodes this is.
    pub node: NodeId,
    /// Where its data lies.
    pub data: PathBuf,
    /// Whether there must be data already: a node that has run before must not start empty (`trust.md` R13).
    pub expect: Expect,
    /// Its sockets, bound already.
    pub sockets: Sockets,
    /// Where the other nodes are reached, where not as the deployment says.
    pub peers: BTreeMap<NodeId, SocketAddr>,
    /// The delays to emulate, if any.
    pub emulation: Option<Emulation>,
    /// What HTTP clients must show to change anything: `Authorization: Bearer <token>`. Nothing can be changed
    /// over HTTP without.
    pub admin_token: Option<String>,
    /// Bytes of records after which a process is asked for a snapshot.
    pub snapshot_bytes: u64,
}

/// The sockets of a node, bound before it starts so that whoever binds port 0 learns the port.
#[derive(Default)]
pub struct Sockets {
    /// For peers.
    pub peer: Option<TcpListener>,
    /// For clients.
    pub redis: Vec<TcpListener>,
    /// For metrics, health and administration.
    pub http: Option<TcpListener>,
}

/// Why a node cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The deployment asks for what cannot be.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The data directory.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The snapshots in it.
    #[error(transparent)]
    Snapshots(#[from] SnapshotError),
    /// Certificates and keys.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// A process refuses what it once wrote.
    #[error(
        "{process} cannot be brought back: {cause}; the data directory was written by another version, or is damaged"
    )]
    Recovery {
        /// The process.
        process: ProcessId,
        /// What it said.
        cause: String,
    },
    /// A socket cannot be bound.
    #[error("cannot listen on {address} for {what}: {cause}")]
    Bind {
        /// The address.
        address: String,
        /// What it is for.
        what: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The system is out of something.
    #[error("cannot start: {0}")]
    Io(#[from] std::io::Error),
}

impl Sockets {
    /// Binds what the deployment says of a node.
    ///
    /// # Errors
    /// An address is in use or not this machine's.
    pub fn bind(deployment: &Deployment, node: NodeId) -> Result<Sockets, StartError> {
        let node = deployment.node(node);
        let bind = |address: &Option<isochrone_core::deployment::Address>, what| match address {
            None => Ok(None),
            Some(address) => TcpListener::bind((address.host(), address.port()))
                .map(Some)
                .map_err(|cause| StartError::Bind { address: address.to_string(), what, cause }),
        };
        let mut redis: Vec<_> = bind(&node.redis, "Redis clients")?.into_iter().collect();
        if let Some(address) = &node.redis {
            for keyspace in deployment.keyspaces() {
                if let Some(port) = keyspace.redis_port {
                    let cause = |cause| {
                        let address = format!("{}:{port}", address.host());
                        StartError::Bind { address, what: "Redis clients of one keyspace", cause }
                    };
                    redis.push(TcpListener::bind((address.host(), port)).map_err(cause)?);
                }
            }
        }
        Ok(Sockets { peer: bind(&node.peer, "peers")?, redis, http: bind(&node.http, "HTTP")? })
    }
}

/// Starts nodes.
pub struct Node;

impl Node {
    /// Starts a node: opens its data, brings its processes back, and serves. `gateway` makes the sessions
    /// of its clients.
    ///
    /// # Errors
    /// Anything [`StartError`] names; nothing is left running then.
    pub fn start(
        config: NodeConfig,
        protocols: &Protocols,
        gateway: Box<dyn Gateway>,
    ) -> Result<NodeHandle, StartError> {
        let poller = Poller::new()?;
        let waker = poller.waker();
        let clock = Clock::start();
        let deployment = Arc::clone(&config.deployment);
        let me = deployment.node(config.node).clone();
        let limits = Limits::from(deployment.limits());
        let region = deployment.region(me.region).name.clone();
        let http_address = config.sockets.http.as_ref().map(TcpListener::local_addr).transpose()?;
        let redis_addresses: Vec<_> =
            config.sockets.redis.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;

        let mut keyspaces = Keyspaces::default();
        for keyspace in deployment.keyspaces() {
            keyspaces.add(&deployment, keyspace, &me, &region, protocols)?;
        }
        let Recovered { journal, snapshots, processes, incarnation } =
            recover(&config, &deployment, &keyspaces.placements, &waker)?;
        let journal_metrics = journal.metrics();
        let metrics = Arc::new(NodeMetrics {
            keyspaces: keyspaces.served.iter().map(|served| Arc::clone(&served.metrics)).collect(),
            journal: Arc::clone(&journal_metrics),
            ..NodeMetrics::default()
        });
        let board = Arc::new(Board::new(Arc::clone(&metrics)));

        let mut random = system_random()?;
        let security = deployment.security();
        let peer_tls = match &security.peer {
            None => None,
            Some(files) => {
                let files = files.of(&me);
                Some(security::peer_tls(&files.ca, &files.cert, &files.key)?)
            }
        };
        let client_acceptor = match &security.client {
            None => Acceptor::Plain,
            Some(files) => {
                let files = files.of(&me);
                Acceptor::Tls(security::client_tls(&files.cert, &files.key)?)
            }
        };
        if security.insecure {
            tracing::warn!("INSECURE: plain text beyond loopback was allowed in the deployment file");
        }
        let verifier = match security.users.as_slice() {
            [] => None,
            users => Some(Verifier::start(users.to_vec(), limits.login_checks, Arc::clone(&waker))?),
        };

        let written = journal.next_position().0 - 1;
        let mut shard = Shard::new(config.node, Box::new(journal), written);
        shard.snapshot_every(config.snapshot_bytes);
        shard.set_time(clock.now(), clock.stamp());

        let hello = |to| Hello {
            magic: MAGIC,
            version: VERSION,
            cluster_id: deployment.cluster_id(),
            cluster: deployment.cluster().to_owned(),
            from: config.node,
            to,
            incarnation,
        };
        let mut listener = match config.sockets.peer {
            None => None,
            Some(socket) => Some(non_blocking(socket)?),
        };
        if let Some(listener) = &mut listener {
            poller.registry().register(listener, token(Kind::PeerListener, 0), mio::Interest::READABLE)?;
        }
        let acceptor =
            peer_tls.as_ref().map_or(Acceptor::Plain, |tls| Acceptor::Tls(Arc::clone(&tls.server)));
        let emulation = config.emulation.clone();
        let mut peers = Peers::new(
            hello(config.node),
            listener,
            acceptor,
            emulation,
            Arc::clone(&metrics),
            limits.clone(),
        );
        for peer in deployment.nodes().iter().filter(|peer| peer.id != config.node) {
            let address = match (config.peers.get(&peer.id), &peer.peer) {
                (Some(address), _) => Target::Address(*address),
                (None, Some(address)) => Target::new(address.host(), address.port()),
                (None, None) => continue,
            };
            let client = peer_tls.as_ref().map(|tls| Arc::clone(&tls.client));
            let (name, at) = (peer.name.clone(), token(Kind::Link, usize::from(peer.id.0)));
            let link = Link::new(peer.id, name, address, at, hello(peer.id), client, random.fork());
            if peers.resolver.is_none() && matches!(link.address, Target::Name { .. }) {
                peers.resolver = Some(Resolver::start(Arc::clone(&waker))?);
            }
            peers.links.insert(peer.id, link);
            shard.io().outgoing.add(peer.id, limits.peer_queue_bytes, limits.frame_bytes, random.fork());
        }

        let mut listeners = Vec::new();
        for socket in config.sockets.redis {
            let address = socket.local_addr()?;
            // A port of a keyspace's own begins there; every other in the keyspace that clients find as 0.
            let own =
                deployment.keyspaces().iter().find(|keyspace| keyspace.redis_port == Some(address.port()));
            listeners.push(ClientListener {
                index: own.map_or(0, |keyspace| u32::from(keyspace.index)),
                socket: non_blocking(socket)?,
                address,
                acceptor: client_acceptor.clone(),
            });
        }
        let view = NodeView {
            version: env!("CARGO_PKG_VERSION"),
            cluster: deployment.cluster().to_owned(),
            node: me.name.clone(),
            region,
            port: redis_addresses.first().map_or(0, SocketAddr::port),
            process_id: std::process::id(),
            run_id: (0..5).map(|_| format!("{:08x}", random.next_u32())).collect(),
            unsafe_fsync_off: !deployment.fsync(),
            ..NodeView::default()
        };
        let mut clients = Clients::new(
            listeners,
            gateway,
            limits.clone(),
            keyspaces.views,
            keyspaces.hosts,
            view,
            verifier,
            random.fork(),
        );
        clients.listen(poller.registry())?;

        let names =
            deployment.nodes().iter().map(|n| (n.name.clone(), deployment.region(n.region).name.clone()));
        let reporter = Reporter::new(
            Arc::clone(&board),
            clock,
            config.node,
            incarnation,
            journal_metrics,
            names.collect(),
            keyspaces.served,
        );
        for process in processes {
            shard.start(process);
        }

        let (orders, control) = sync_channel(ORDERS);
        let killed = Arc::new(AtomicBool::new(false));
        let reactor = Reactor {
            clock,
            poller,
            shard,
            peers,
            clients,
            reporter,
            protocols: protocols.clone(),
            control,
            killed: Arc::clone(&killed),
            snapshots: Some(snapshots),
            origins: Origins::default(),
            scratch: Reactor::scratch(),
            next_tick: Instant::ZERO,
            stopping: None,
        };
        let ended = Arc::new(OnceLock::new());
        let outcome = Arc::clone(&ended);
        let thread = std::thread::Builder::new().name(format!("shard-{}", me.name)).spawn(move || {
            let result = reactor.run();
            if let Err(error) = &result {
                tracing::error!(%error, "the node has stopped");
            }
            let _ = outcome.set(());
            result
        })?;
        let mut handle = NodeHandle {
            name: me.name,
            board,
            orders,
            waker,
            killed,
            ended,
            thread: Some(thread),
            http: None,
            http_address,
            redis_addresses,
        };
        if let Some(socket) = config.sockets.http {
            let names = deployment.keyspaces().iter().map(|keyspace| (keyspace.name.clone(), keyspace.id));
            let nodes = deployment.nodes().iter().map(|node| (node.name.clone(), node.id));
            handle.http = Some(http::Server::start(
                socket,
                http::State {
                    board: Arc::clone(&handle.board),
                    orders: handle.orders(),
                    limits,
                    keyspaces: names.collect(),
                    nodes: nodes.collect(),
                    admin_token: config.admin_token,
                },
            )?);
        }
        Ok(handle)
    }
}

/// A running node. Dropped, the node stops in order.
pub struct NodeHandle {
    name: String,
    board: Arc<Board>,
    orders: SyncSender<Control>,
    waker: Arc<Waker>,
    killed: Arc<AtomicBool>,
    ended: Arc<OnceLock<()>>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
    http: Option<http::Server>,
    http_address: Option<SocketAddr>,
    redis_addresses: Vec<SocketAddr>,
}

/// Sends orders to a running node from any thread.
#[derive(Clone)]
pub struct Orders {
    orders: SyncSender<Control>,
    waker: Arc<Waker>,
}

impl Orders {
    /// Sends an order; never blocks.
    ///
    /// # Errors
    /// The node has ended, or too many orders wait.
    pub fn send(&self, order: Control) -> Result<(), String> {
        self.orders.try_send(order).map_err(|error| match error {
            TrySendError::Full(_) => format!("{ORDERS} orders wait already; try again"),
            TrySendError::Disconnected(_) => "the node has stopped".to_owned(),
        })?;
        self.waker.wake().map_err(|error| error.to_string())
    }

    /// Sends an order and waits for its answer.
    ///
    /// # Errors
    /// What the answer says, or that there is none.
    pub fn ask(&self, order: impl FnOnce(Responder) -> Control) -> Result<String, String> {
        let (answer, answered) = channel();
        let respond: Responder = Box::new(move |outcome| drop(answer.send(outcome)));
        self.send(order(respond))?;
        answered
            .recv_timeout(std::time::Duration::from_secs(10))
            .unwrap_or_else(|_| Err("no answer within 10 s".to_owned()))
    }
}

impl NodeHandle {
    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its metrics and status.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// How it stood a moment ago.
    pub fn status(&self) -> Arc<Status> {
        self.board.status()
    }

    /// Where its Redis clients connect, in the order of the sockets it was given.
    pub fn redis_addresses(&self) -> &[SocketAddr] {
        &self.redis_addresses
    }

    /// Where it serves HTTP.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// A way to send it orders.
    pub fn orders(&self) -> Orders {
        Orders { orders: self.orders.clone(), waker: Arc::clone(&self.waker) }
    }

    /// Asks its replica of a keyspace for something.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn administer(&self, keyspace: KeyspaceId, what: Administration) -> Result<String, String> {
        self.orders().ask(|respond| Control::Administer(keyspace, what, respond))
    }

    /// Whether it still runs: false once it has failed or was stopped.
    pub fn running(&self) -> bool {
        self.ended.get().is_none() && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops it in order and waits: no new clients, leadership to others, commands under way answered,
    /// everything flushed.
    ///
    /// # Errors
    /// Why it failed, now or earlier.
    pub fn stop(mut self) -> Result<(), Failure> {
        // An error says that it has ended already.
        let _ = self.orders().send(Control::Stop);
        self.join()
    }

    /// Ends it as SIGKILL would, and waits: nothing is flushed, what is not durable is lost.
    ///
    /// # Errors
    /// Why it had failed before.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.killed.store(true, Ordering::Release);
        let _ = self.waker.wake();
        self.join()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// Why it failed.
    pub fn wait(mut self) -> Result<(), Failure> {
        self.join()
    }

    fn join(&mut self) -> Result<(), Failure> {
        self.http = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            // The panic was printed when it happened.
            Some(Err(_)) => Err(Failure::Io(std::io::Error::other("the node's thread panicked"))),
            None => Ok(()),
        }
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.orders().send(Control::Stop);
            let _ = self.join();
        }
    }
}

/// What a node serves, gathered keyspace by keyspace.
#[derive(Default)]
struct Keyspaces {
    views: Vec<KeyspaceView>,
    hosts: Vec<Option<ProcessId>>,
    served: Vec<Served>,
    placements: Vec<Placement>,
}

impl Keyspaces {
    fn add(
        &mut self,
        deployment: &Deployment,
        keyspace: &isochrone_core::deployment::Keyspace,
        me: &isochrone_core::deployment::Node,
        region: &str,
        protocols: &Protocols,
    ) -> Result<(), StartError> {
        let placed = protocols.place(deployment, keyspace, me.id)?;
        // Placing has looked the name up.
        let protocol = protocols.name(&keyspace.protocol).unwrap_or_default();
        self.views.push(KeyspaceView {
            id: keyspace.id,
            name: keyspace.name.clone(),
            index: u32::from(keyspace.index),
            protocol,
            guarantee: placed.guarantee,
            replicas: keyspace.replicas.len() as u32,
            leader: None,
            leads: false,
        });
        self.hosts.push(placed.seats.iter().find(|seat| seat.client).map(|seat| seat.id));
        self.served.push(Served {
            id: keyspace.id,
            protocol,
            metrics: Arc::new(KeyspaceMetrics::new(&keyspace.name, protocol, region)),
            nodes: keyspace.replicas.clone(),
            servers: placed.seats.iter().filter(|seat| !seat.client).map(|seat| seat.id).collect(),
        });
        self.placements.extend(placed.seats);
        Ok(())
    }
}

struct Recovered {
    journal: JournalThread,
    snapshots: SnapshotThread,
    processes: Vec<Box<dyn Hosted>>,
    incarnation: u32,
}

/// Opens the data directory and brings every process back: snapshot, then records.
fn recover(
    config: &NodeConfig,
    deployment: &Deployment,
    placements: &[Placement],
    waker: &Arc<Waker>,
) -> Result<Recovered, StartError> {
    let directory = DataDirectory::open(&config.data, deployment.cluster_id(), config.node.0, config.expect)?;
    let mut options = JournalOptions::new(deployment.cluster_id(), config.node.0);
    options.fsync = if deployment.fsync() { Fsync::On } else { Fsync::Off };
    let mut start = Start::open(directory, options)?;
    let incarnation = start.incarnation();
    let mut random = system_random()?;
    let mut processes: BTreeMap<StreamId, Box<dyn Hosted>> = BTreeMap::new();
    for placement in placements {
        let identity = Identity { process: placement.id, incarnation: process_incarnation(incarnation, 0) };
        let mut process = (placement.open)(identity, random.fork());
        let stream = StreamId(placement.id.to_u64());
        if let Some(found) = start.snapshot(stream)? {
            for chunk in found.chunks {
                let chunk: Blob = chunk?;
                process.restore(chunk).map_err(|error| StartError::Recovery {
                    process: placement.id,
                    cause: error.to_string(),
                })?;
            }
        }
        processes.insert(stream, process);
    }
    let (mut failed, mut orphans) = (None, 0u64);
    start.replay(|stream, record| match processes.get_mut(&stream) {
        Some(process) => {
            if let Err(error) = process.replay(record) {
                failed.get_or_insert((process.identity().process, error.to_string()));
            }
        }
        None => orphans += 1,
    })?;
    if let Some((process, cause)) = failed {
        return Err(StartError::Recovery { process, cause });
    }
    if orphans > 0 {
        tracing::info!(
            records = orphans,
            "records of processes that the deployment no longer places here are kept"
        );
    }
    tracing::info!(incarnation, processes = processes.len(), data = %config.data.display(), "recovered");
    let wake = |waker: &Arc<Waker>| -> Box<dyn Fn() + Send> {
        let waker = Arc::clone(waker);
        // A poll that is gone needs no waking.
        Box::new(move || drop(waker.wake()))
    };
    let (journal, store) = start.finish();
    let journal = JournalThread::start(journal, wake(waker))?;
    let snapshots = SnapshotThread::start(store, journal.mark(), wake(waker))?;
    Ok(Recovered { journal, snapshots, processes: processes.into_values().collect(), incarnation })
}

/// The incarnation of a process: the node's, which is durable, and how often the process was started in
/// this life of the node (at most 255 times after the first). It rises at every start of either, and is 1 in
/// the first life of a node, where a process has no promises of an earlier one to fear.
pub fn process_incarnation(node: u32, start: u8) -> u32 {
    (node.saturating_sub(1) << 8 | u32::from(start)) + 1
}

/// Randomness that differs at every start.
fn system_random() -> Result<Random, std::io::Error> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(Random::seeded(u64::from_le_bytes(seed)))
}

fn non_blocking(socket: TcpListener) -> std::io::Result<mio::net::TcpListener> {
    socket.set_nonblocking(true)?;
    Ok(mio::net::TcpListener::from_std(socket))
}

/// The default of [`NodeConfig::snapshot_bytes`].
pub const DEFAULT_SNAPSHOT_BYTES: u64 = SNAPSHOT_BYTES;
