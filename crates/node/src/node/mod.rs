//! A node: built from a deployment, run on its own threads, held by a [`NodeHandle`].

mod handle;
mod layout;
mod recovery;
mod sockets;
mod thread;

pub use handle::{NodeHandle, Orders};
pub(crate) use layout::differences;
pub use layout::{Agreed, keyspaces};
pub use recovery::process_incarnation;
pub use sockets::{Sockets, bound};

use handle::ORDERS;
use recovery::{Recovered, Recovery};
use thread::ShardThread;

use crate::audit;
use crate::certificates::{Files, Watch};
use crate::clock::Clock;
use crate::gateway::{Durability, Gateway, KeyspaceView, Login, NodeView};
use crate::grpc;
use crate::http;
use crate::journal::{DataDirectory, Expect, JournalError};
use crate::limits::{self, Limits, open_files};
use crate::memory::Memory;
use crate::metrics::{KeyspaceMetrics, NodeMetrics};
use crate::network;
use crate::poller::Poller;
use crate::protocols::{Placement, Protocols};
use crate::reactor::calls::Line;
use crate::reactor::window::Window;
use crate::reactor::{
    Board, Calls, ClientListener, Clients, Kind, Origins, Peers, Reactor, Reporter, Served, Verifier, token,
};
use crate::redis::acl::Users;
use crate::resolver::Resolver;
use crate::security::SecurityError;
use crate::shard::{SNAPSHOT_BYTES, Shard};
use crate::snapshots::SnapshotError;
use crate::transport::emulation::Emulation;
use crate::transport::frame::{Hello, MAGIC, VERSION};
use crate::transport::link::{Link, PING, Target};
use crate::transport::stream::Acceptor;
use isochrone_core::deployment::{ConfigErrors, Deployment};
use isochrone_core::{Instant, Lasting, NodeId, ProcessId, Random, Span, Stamp};
use rand_core::RngCore;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use thiserror::Error;

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
    /// Its sockets, bound already; those of clients need not be listened at.
    pub sockets: Sockets,
    /// Where the other nodes are reached, where not as the deployment says.
    pub peers: BTreeMap<NodeId, SocketAddr>,
    /// The delays to emulate, if any.
    pub emulation: Option<Emulation>,
    /// What HTTP clients must show to change anything: `Authorization: Bearer <token>`. Nothing can be changed
    /// over HTTP without.
    pub admin_token: Option<String>,
    /// Who answers what is asked about the network, where the host emulates one and takes orders about it from whoever is on
    /// this machine; nodes that run for real have none.
    pub network: Option<SyncSender<network::Order>>,
    /// Bytes of records, at least, after which a process is asked for a snapshot.
    pub snapshot_bytes: u64,
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
    /// The data directory is one of another cluster.
    #[error(
        "{}: this data directory belongs to another cluster than {expected:?}, the one of the deployment file. Name this \
         node's own directory; a new one only where it has never run. Clusters are known by their names: where `cluster` has \
         changed in the file, put it back.", path.display()
    )]
    OtherCluster {
        /// The file that says so.
        path: PathBuf,
        /// The cluster of the deployment file.
        expected: String,
    },
    /// The data directory is another node's.
    #[error(
        "{}: this data directory belongs to another node: found {found}, expected {expected}. Two nodes must never share a \
         directory: name this node's own with --data. Nodes are known by their places in the deployment file: where these have \
         changed, put them back, and what is new at the end.", path.display()
    )]
    OtherNode {
        /// The file that says so.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// The node that was to be started.
        expected: String,
    },
    /// The snapshots in it.
    #[error(transparent)]
    Snapshots(#[from] SnapshotError),
    /// The data is of other keyspaces than the deployment has, or what says so cannot be read.
    #[error("{path}: {cause}")]
    Layout {
        /// The file that says which.
        path: PathBuf,
        /// What does not fit.
        cause: String,
    },
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
    /// The audit log.
    #[error("{}: {cause}", path.display())]
    Audit {
        /// Where it is to be.
        path: PathBuf,
        /// Why it cannot be written there.
        cause: String,
    },
    /// The wall clock shows a time that neither HTTP nor certificates can express.
    #[error(
        "this machine's clock stands before 1970: set it, or have NTP do so (chrony, systemd-timesyncd), and start the node again"
    )]
    Clock,
    /// The system is out of something.
    #[error("cannot start: {0}")]
    Io(#[from] std::io::Error),
}

/// Starts nodes.
pub struct Node;

impl Node {
    /// Starts a node: opens its data, brings its processes back, and serves. `gateway` makes the sessions
    /// of its clients. Until it serves, clients are refused, and HTTP tells only that the node lives and is not ready.
    ///
    /// # Errors
    /// Anything [`StartError`] names; nothing is left running then.
    pub fn start(
        mut config: NodeConfig,
        protocols: &Protocols,
        gateway: Box<dyn Gateway>,
    ) -> Result<NodeHandle, StartError> {
        let deployment = Arc::clone(&config.deployment);
        let me = deployment.node(config.node).clone();
        let poller = Poller::new(me.idle_poll)?;
        let waker = poller.waker();
        let clock = Clock::start();
        if clock.stamp() == Stamp::ZERO {
            return Err(StartError::Clock);
        }
        let mut limits = Limits::from(deployment.limits());
        let ways = usize::from(!config.sockets.redis.is_empty()) + usize::from(config.sockets.grpc.is_some());
        limits.heed_files(open_files(), ways);
        let transactional: Vec<_> = protocols.transactional().collect();
        limits.heed_tries(deployment.keyspaces(), &transactional);
        let region = deployment.region(me.region).name.clone();
        let http_address = config.sockets.http.as_ref().map(TcpListener::local_addr).transpose()?;
        let grpc_address = config.sockets.grpc.as_ref().map(TcpListener::local_addr).transpose()?;
        let redis_addresses: Vec<_> =
            config.sockets.redis.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;

        let mut keyspaces = Keyspaces::default();
        for keyspace in deployment.keyspaces() {
            keyspaces.add(&deployment, keyspace, &me, &region, protocols)?;
        }
        let security = deployment.security();
        let files = files(&deployment, &me);
        let marks = files.marks();
        // Before there is data: a first start that is refused for them leaves none.
        let loaded = files.load()?;
        let users = users(&deployment, &me)?;
        let audit = deployment.security().audit.as_ref().map(|files| files.of(&me));
        let opened = audit.as_deref().map(open_audit).transpose()?;
        let http = config.sockets.http.take().map(http::start).transpose()?;
        let ended = Arc::new(OnceLock::new());
        let recovery = Recovery {
            data: config.data.clone(),
            node: config.node,
            expect: config.expect,
            deployment: Arc::clone(&deployment),
            placements: std::mem::take(&mut keyspaces.placements),
            lasting: keyspaces.lasting.clone(),
            waker: Arc::clone(&waker),
        };
        let (thread, recovered) = ShardThread::start(&me.name, recovery, Arc::clone(&ended))?;
        let Recovered { journal, snapshots, incarnation, births } = recovered;
        let journal_metrics = journal.metrics();
        let metrics = Arc::new(NodeMetrics {
            keyspaces: keyspaces.served.iter().map(|served| Arc::clone(&served.metrics)).collect(),
            journal: Arc::clone(&journal_metrics),
            snapshots: snapshots.metrics(),
            memory: Arc::new(Memory::new(limits::data_memory(deployment.limits(), limits::memory()))),
            ..NodeMetrics::default()
        });
        let board = Arc::new(Board::new(Arc::clone(&metrics)));

        let start = |opened: audit::Opened| opened.start(&me.name, Arc::clone(&metrics.audit));
        let started = opened.map(start).transpose().map_err(|cause| {
            let path = audit.clone().unwrap_or_default();
            StartError::Audit { path, cause: format!("cannot be written: {cause}") }
        })?;
        let (audit, keeper) = started.unzip();

        let mut random = system_random()?;
        metrics.certificates.set(loaded.expiries);
        let certificates = match (&files.peer, &files.client) {
            (None, None) => None,
            _ => Some(Watch::start(files, marks, loaded.expiries, Arc::clone(&waker))?),
        };
        let peer_tls = loaded.peer;
        let grpc_tls = loaded.client.as_ref().map(|tls| Arc::new(Mutex::new(Arc::clone(tls))));
        let client_acceptor = loaded.client.map_or(Acceptor::Plain, Acceptor::Tls);
        if security.insecure {
            tracing::warn!("INSECURE: plain text beyond loopback was allowed in the deployment file");
        }
        // Also without users of the deployment: ACL SETUSER may make some, and wrong passwords must cost time.
        let verifier = Verifier::start(security.users.clone(), limits.login_checks, Arc::clone(&waker))?;

        let written = journal.next_position().0 - 1;
        let mut shard = Shard::new(config.node, Box::new(journal), written);
        shard.snapshot_every(config.snapshot_bytes);
        shard.set_time(clock.now(), clock.stamp());

        let life = births.own().clone();
        let agreed = layout::agreed(&deployment, &keyspaces.lasting, config.node);
        let hello = |to| Hello {
            magic: MAGIC,
            version: VERSION,
            cluster_id: deployment.cluster_id(),
            cluster: deployment.cluster().to_owned(),
            from: config.node,
            to,
            life: life.clone(),
            keyspaces: Arc::clone(&agreed),
        };
        let mut listener = match config.sockets.peer.take() {
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
            births,
        );
        peers.name.clone_from(&me.name);
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

        config.sockets.listen()?;
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
        let farthest =
            deployment.nodes().iter().map(|node| deployment.matrix().rtt(me.region, node.region)).max();
        let farthest = farthest.unwrap_or(Span::ZERO);
        let window = |keyspace: &KeyspaceView| Window::new(farthest, keyspace.transactional);
        let windows = keyspaces.views.iter().map(window).collect();
        let view = NodeView {
            version: env!("CARGO_PKG_VERSION"),
            cluster: deployment.cluster().to_owned(),
            node: me.name.clone(),
            region,
            port: redis_addresses.first().map_or(0, SocketAddr::port),
            process_id: std::process::id(),
            run_id: (0..5).map(|_| format!("{:08x}", random.next_u32())).collect(),
            unsafe_fsync_off: !deployment.fsync(),
            memory: Arc::clone(&metrics.memory),
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
            users,
            random.fork(),
        );
        clients.hub.audit.clone_from(&audit);
        clients.hub.set_notifies(deployment.notify_keyspace_events());
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

        let (orders, control) = sync_channel(ORDERS);
        let (line, calls) = Line::new(Arc::clone(&waker));
        let calls = Calls::new(calls, random.next_u64(), keyspaces.time_limits, transactional);
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
            calls,
            grpc_tls: grpc_tls.clone(),
            killed: Arc::clone(&killed),
            snapshots: Some(snapshots),
            certificates,
            origins: Origins::new(windows),
            scratch: Reactor::scratch(),
            next_tick: Instant::ZERO,
            stopping: None,
            gives_way: None,
        };
        let thread = thread.run(reactor);
        let mut handle = NodeHandle {
            name: me.name,
            board,
            orders,
            waker,
            killed,
            ended,
            thread,
            http: None,
            http_address,
            grpc: None,
            grpc_address,
            audit: keeper,
            redis_addresses,
        };
        if let Some(socket) = config.sockets.grpc {
            let key = crate::security::draw_key()?;
            let names = deployment.keyspaces().iter().map(|keyspace| keyspace.name.clone());
            let (board, keyspaces) = (Arc::clone(&handle.board), names.collect());
            let (limits, audit) = (limits.clone(), audit.clone());
            let state = grpc::State { line, limits, metrics, board, keyspaces, tls: grpc_tls, key, audit };
            handle.grpc = Some(grpc::start(socket, state)?);
        }
        if let Some(http) = &http {
            let names = deployment.keyspaces().iter().map(|keyspace| (keyspace.name.clone(), keyspace.id));
            let nodes = deployment.nodes().iter().map(|node| (node.name.clone(), node.id));
            http.serve(http::State {
                board: Arc::clone(&handle.board),
                orders: handle.orders(),
                limits,
                keyspaces: names.collect(),
                nodes: nodes.collect(),
                admin_token: config.admin_token,
                audit,
                network: config.network,
            });
        }
        handle.http = http;
        if let Some(audit) = &mut handle.audit {
            audit.serves();
        }
        Ok(handle)
    }
}

/// What keeps a node from starting on this data directory, which exists, and under this deployment, as far as that can be told
/// without reading all of its journal; else whether it has run there before. Nothing is changed.
///
/// # Errors
/// As of [`Node::start`].
pub fn examine(
    data: &Path,
    deployment: &Deployment,
    node: NodeId,
    protocols: &Protocols,
) -> Result<bool, StartError> {
    let used = recovery::is_used(data, deployment, node)?;
    let me = deployment.node(node);
    let region = &deployment.region(me.region).name;
    let mut keyspaces = Keyspaces::default();
    for keyspace in deployment.keyspaces() {
        keyspaces.add(deployment, keyspace, me, region, protocols)?;
    }
    let open = DataDirectory::is_locked(data)?;
    recovery::check(data, deployment, node, &keyspaces.lasting, used, open)?;
    Ok(used)
}

/// What keeps a node that does not run from writing its audit log; else where that is, if it is to have one. None is made.
///
/// # Errors
/// As of [`Node::start`].
pub fn audit_log(deployment: &Deployment, node: NodeId) -> Result<Option<PathBuf>, StartError> {
    let Some(files) = &deployment.security().audit else { return Ok(None) };
    let path = files.of(deployment.node(node));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let may = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    // Opening it would make it, but where the folder lets this user make nothing.
    if path.exists() || rustix::fs::access(folder, may).is_err() {
        open_audit(&path)?;
    }
    Ok(Some(path))
}

fn open_audit(path: &Path) -> Result<audit::Opened, StartError> {
    audit::open(path).map_err(|cause| StartError::Audit { path: path.to_owned(), cause })
}

/// What [`credentials`] tells of certificates, in seconds since 1970.
pub struct Validity {
    /// From when on all of them are good; zero where there are none.
    pub begins: u64,
    /// When each runs out, by its name.
    pub ends: Vec<(&'static str, u64)>,
}

/// Reads what a node reads at its start beside the deployment file and its data: certificates, keys, users. From when on and until
/// when the certificates are good.
///
/// # Errors
/// What keeps the node from starting.
pub fn credentials(deployment: &Deployment, node: NodeId) -> Result<Validity, StartError> {
    let me = deployment.node(node);
    let loaded = files(deployment, me).load()?;
    users(deployment, me)?;
    Ok(Validity { begins: loaded.begins, ends: loaded.expiries.named().collect() })
}

/// The certificates and keys of a node.
fn files(deployment: &Deployment, me: &isochrone_core::deployment::Node) -> Files {
    let security = deployment.security();
    Files {
        peer: security.peer.as_ref().map(|files| files.of(me)),
        client: security.client.as_ref().map(|files| files.of(me)),
        name: crate::security::peer_name(me.id, deployment.cluster_id()),
    }
}

/// Those who may log in at this node.
fn users(deployment: &Deployment, me: &isochrone_core::deployment::Node) -> Result<Users, StartError> {
    let security = deployment.security();
    let file = security.acl.as_ref().map(|files| files.of(me));
    let path = file.clone().unwrap_or_default();
    let unfit = |cause: String| SecurityError::Unfit { path: path.clone(), cause };
    let names = security.users.iter().map(|user| user.name.clone());
    let users = Users::of(names, file).map_err(|error| unfit(format!("no good ACL file: {error}")))?;
    let beyond = |address: &Option<isochrone_core::deployment::Address>| {
        address.as_ref().is_some_and(|address| !address.is_loopback())
    };
    if (beyond(&me.redis) || beyond(&me.grpc)) && users.login() == Login::Open && !security.insecure {
        let cause = "the default user has no password, and clients beyond loopback reach this node; add a line \
                     `user default off`, or set insecure = true";
        return Err(unfit(cause.to_owned()).into());
    }
    Ok(users)
}

/// How long a transaction may be open where the deployment says nothing: no protocol's own default is longer.
const TIME_LIMIT: Span = Span::from_secs(30);

/// After how long a silence a master is given up, at least and where the deployment says nothing: longer than the default
/// for any distance on Earth. It takes about as long again until another one serves.
const SILENCE: Span = Span::from_secs(2);

/// What a node serves, gathered keyspace by keyspace.
#[derive(Default)]
struct Keyspaces {
    views: Vec<KeyspaceView>,
    hosts: Vec<Option<ProcessId>>,
    served: Vec<Served>,
    placements: Vec<Placement>,
    /// What outlives their processes.
    lasting: Vec<Lasting>,
    /// How long a transaction may be open.
    time_limits: Vec<Span>,
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
        let named = |id: &NodeId| deployment.node(*id).name.clone();
        let replicas: Vec<String> = keyspace.replicas.iter().map(named).collect();
        // Placing has found them well-formed.
        let spares = keyspace.parameters.read().text("spares", "");
        let spares = spares.split(',').filter_map(|name| deployment.node_named(name.trim()));
        let spares = spares.map(|node| node.id).collect();
        // Placing has looked the name up.
        let protocol = protocols.name(&keyspace.protocol).unwrap_or_default();
        let (index, count) = (u32::from(keyspace.index), keyspace.replicas.len() as u32);
        let view = KeyspaceView::new(keyspace.id, &keyspace.name, index, protocol, count);
        self.views.push(KeyspaceView {
            transactional: protocols.transactional().any(|other| other == protocol),
            guarantee: placed.guarantee,
            durability: placed.durability,
            copies: match placed.durability {
                Durability::Most | Durability::MostSoon => view.copies,
                // Until it is told how many there are.
                Durability::AllSoon => 0,
            },
            ..view
        });
        let masterless = (placed.durability == Durability::AllSoon).then(|| {
            let silence = keyspace.parameters.read().span("silence", SILENCE, Span::ZERO, Span::MAX);
            PING + silence.max(SILENCE) * 2
        });
        self.hosts.push(placed.seats.iter().find(|seat| seat.client).map(|seat| seat.id));
        self.served.push(Served {
            id: keyspace.id,
            protocol,
            led: placed.led,
            metrics: Arc::new(KeyspaceMetrics::new(&keyspace.name, protocol, region, replicas)),
            nodes: keyspace.replicas.clone(),
            placement: keyspace.placement.clone(),
            spares,
            partitions: keyspace.partitions,
            servers: placed.seats.iter().filter(|seat| !seat.client).map(|seat| seat.id).collect(),
            masterless,
        });
        // Protocols without transactions have no such parameter, and none of theirs is open.
        let time_limit = keyspace.parameters.read().span("time_limit", TIME_LIMIT, Span::ZERO, Span::MAX);
        self.time_limits.push(time_limit);
        self.placements.extend(placed.seats);
        self.lasting.push(placed.lasting);
        Ok(())
    }
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
