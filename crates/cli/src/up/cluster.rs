//! The cluster itself: every node of a deployment in this process, on loopback, with the wide area emulated
//! between them. Nodes can be killed and started again, regions cut off and healed while it runs.

mod network;

use super::plain::Door;
use super::view::{RegionView, Role, State, View};
use crate::output::say;
use crate::{Usage, node, protocols};
use anyhow::Context;
use isochrone_core::{Deployment, KeyspaceId, NodeId, RegionId};
use isochrone_node::figures::{Reading, Readings};
use isochrone_node::journal::Expect;
use isochrone_node::network::{Order, WAITING};
use isochrone_node::node::{DEFAULT_SNAPSHOT_BYTES, Node, NodeConfig, NodeHandle, Sockets};
use isochrone_node::protocols::{Administration, Protocols};
use isochrone_node::reactor::Control;
use isochrone_node::redis::RedisGateway;
use isochrone_node::transport::emulation::{Delay, Emulation};
use isochrone_plan::Client;
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

/// A running cluster. Dropped, its nodes stop in order.
pub(crate) struct Cluster {
    deployment: Arc<Deployment>,
    keyspace: KeyspaceId,
    guarantee: String,
    protocols: Protocols,
    /// Whether nothing is served without a leader.
    led: bool,
    data: PathBuf,
    emulation: Emulation,
    peers: BTreeMap<NodeId, SocketAddr>,
    seats: Vec<Seat>,
    places: Vec<Place>,
    start: Instant,
    /// What came of orders that take time.
    notes: (Sender<String>, Receiver<String>),
    /// What is asked over HTTP about the network.
    orders: (SyncSender<Order>, Receiver<Order>),
}

/// A node, running or not.
struct Seat {
    node: NodeId,
    peer: SocketAddr,
    redis: Option<SocketAddr>,
    grpc: SocketAddr,
    http: SocketAddr,
    handle: Option<NodeHandle>,
    failed: bool,
    /// While it does not run: its ports, kept from other programs.
    kept: Vec<Socket>,
}

/// A region.
struct Place {
    region: RegionId,
    /// Its nodes; clients connect to the first.
    nodes: Vec<NodeId>,
    replicas: usize,
    floor_ms: f64,
    cut: bool,
    /// Whether it has served since its nodes were started.
    served: bool,
    /// What earlier lives of its nodes had counted.
    past: Reading,
    readings: Readings,
}

/// The latest reign of each partition in which somebody believes to lead it.
type Reigns = BTreeMap<u16, u64>;

/// What the replicas of a region do, by the reigns of all regions. `led` is whether nothing is served without a leader.
fn role(reigns: &[Reigns], of: usize, led: bool) -> Role {
    let latest = |partition: &u16| reigns.iter().filter_map(|reigns| reigns.get(partition)).max();
    match &reigns[of] {
        own if own.iter().any(|(partition, reign)| latest(partition) == Some(reign)) => Role::Leader,
        own if !own.is_empty() => Role::Deposed,
        _ if reigns.iter().all(Reigns::is_empty) && !led => Role::Replica,
        _ => Role::Follower,
    }
}

impl Cluster {
    /// Binds every port and starts every node. Redis ports count from `port`; 0 lets the system choose. Figures are
    /// those of the last `window`.
    ///
    /// # Errors
    /// A port in use, a data directory that is not this cluster's, parameters that the protocol refuses.
    pub(crate) fn start(
        deployment: Deployment,
        port: u16,
        data: PathBuf,
        window: Duration,
    ) -> anyhow::Result<Cluster> {
        let deployment = Arc::new(deployment.on_one_machine());
        let protocols = protocols::served();
        let keyspace = deployment.redis_keyspace();
        let guarantee = protocols.place(&deployment, deployment.keyspace(keyspace), NodeId(0))?.guarantee;
        let emulation = Emulation::new(deployment.nodes().len(), |from, to| Delay {
            one_way: deployment.one_way(from, to),
            jitter: if from == to { isochrone_core::Span::ZERO } else { deployment.network().jitter },
            loss: f64::from(deployment.network().loss_per_million) / 1e6,
            cut: false,
        });
        let places: Vec<_> = deployment
            .regions()
            .iter()
            .map(|region| Place::of(&deployment, keyspace, region.id, window))
            .collect();
        let mut seats = Vec::new();
        let mut sockets = Vec::new();
        for node in deployment.nodes() {
            let place = &places[usize::from(node.region.0)];
            let redis =
                if place.nodes[0] == node.id { Some(redis_socket(&deployment, place, port)?) } else { None };
            let (peer, grpc, http) = (any_socket()?, any_socket()?, http_socket(node.id, port)?);
            seats.push(Seat {
                node: node.id,
                peer: peer.local_addr()?,
                redis: redis.as_ref().map(TcpListener::local_addr).transpose()?,
                grpc: grpc.local_addr()?,
                http: http.local_addr()?,
                handle: None,
                failed: false,
                kept: Vec::new(),
            });
            let redis = redis.into_iter().collect();
            sockets.push(Sockets { peer: Some(peer), redis, grpc: Some(grpc), http: Some(http) });
        }
        let mut cluster = Cluster {
            keyspace,
            led: protocols::of(&deployment, keyspace).is_some_and(|entry| entry.led),
            guarantee: guarantee.to_string(),
            protocols,
            data,
            emulation,
            peers: seats.iter().map(|seat| (seat.node, seat.peer)).collect(),
            seats,
            places,
            start: Instant::now(),
            notes: channel(),
            orders: sync_channel(WAITING),
            deployment,
        };
        for (index, sockets) in sockets.into_iter().enumerate() {
            cluster.seats[index].handle = Some(cluster.run(index, sockets)?);
        }
        Ok(cluster)
    }

    /// How many regions there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Where each region is reached.
    pub(crate) fn doors(&self) -> Vec<Door> {
        let door = |place: &Place| {
            let seat = &self.seats[usize::from(place.nodes[0].0)];
            Some(Door {
                region: self.name(place).to_owned(),
                node: self.deployment.node(seat.node).name.clone(),
                redis: seat.redis?,
                grpc: seat.grpc,
                http: seat.http,
            })
        };
        self.places.iter().filter_map(door).collect()
    }

    /// Takes a reading of every counter and says how the cluster stands. Nodes that have ended by themselves are
    /// noted.
    pub(crate) fn look(&mut self) -> View {
        self.bury();
        let now = Instant::now();
        let reigns: Vec<_> = self.places.iter().map(|place| self.reigns(place)).collect();
        let mut regions = Vec::with_capacity(self.places.len());
        for index in 0..self.places.len() {
            let mut counts = self.places[index].past.clone();
            for metrics in self.metrics(&self.places[index]) {
                counts.add(metrics);
            }
            let state = self.state(index);
            self.places[index].served |= state == State::Up;
            let role = match self.places[index].replicas {
                0 => Role::Client,
                _ => role(&reigns, index, self.led),
            };
            let applied =
                self.metrics(&self.places[index]).map(|metrics| metrics.applied.load(Relaxed)).max();
            let place = &mut self.places[index];
            place.readings.add(now, counts);
            regions.push(RegionView {
                region: self.deployment.region(place.region).name.clone(),
                port: self.seats[usize::from(place.nodes[0].0)].redis.map_or(0, |redis| redis.port()),
                state,
                role,
                applied: applied.unwrap_or(0),
                figures: place.readings.recent(),
                floor_ms: place.floor_ms,
            });
        }
        self.view(regions)
    }

    /// The same with the figures of the whole run.
    pub(crate) fn look_back(&mut self) -> View {
        let mut view = self.look();
        for (row, place) in view.regions.iter_mut().zip(&self.places) {
            row.figures = place.readings.whole();
        }
        view
    }

    /// Whether every region serves that is not cut off.
    pub(crate) fn ready(&mut self) -> bool {
        self.bury();
        (0..self.places.len()).all(|index| matches!(self.state(index), State::Up | State::Cut))
    }

    /// What became of earlier orders, and of nodes that ended by themselves.
    pub(crate) fn note(&self) -> Option<String> {
        self.notes.1.try_recv().ok()
    }

    /// Whether no node runs any more though nobody has stopped them.
    pub(crate) fn lost(&self) -> bool {
        self.seats.iter().all(|seat| seat.failed)
    }

    /// Whether a node has ended by itself, and was not started again.
    pub(crate) fn failed(&self) -> bool {
        self.seats.iter().any(|seat| seat.failed)
    }

    /// Ends the nodes of a region as SIGKILL would.
    pub(crate) fn kill(&mut self, index: usize) -> String {
        let name = self.name(&self.places[index]).to_owned();
        let mut any = false;
        for node in self.places[index].nodes.clone() {
            any |= self.seats[usize::from(node.0)].handle.is_some();
            self.collect(index, node);
            if let Some(handle) = self.seats[usize::from(node.0)].handle.take() {
                // How it had failed before does not matter to somebody who wanted it dead.
                let _ = handle.kill();
                self.seats[usize::from(node.0)].keep();
            }
        }
        if any {
            format!("{name}: killed, as by SIGKILL; r starts it again")
        } else {
            format!("{name} is down already")
        }
    }

    /// Starts the nodes of a region that do not run, on the same ports and data.
    pub(crate) fn restart(&mut self, index: usize) -> String {
        let name = self.name(&self.places[index]).to_owned();
        let down: Vec<_> = self.places[index]
            .nodes
            .iter()
            .map(|node| usize::from(node.0))
            .filter(|&seat| self.seats[seat].handle.is_none())
            .collect();
        if down.is_empty() {
            return format!("{name} is up already; k kills it");
        }
        for seat in down {
            let started = self.seats[seat].bind().and_then(|sockets| self.run(seat, sockets));
            match started {
                Ok(handle) => {
                    self.seats[seat].handle = Some(handle);
                    self.seats[seat].failed = false;
                }
                Err(error) => {
                    self.seats[seat].keep();
                    return format!("{name} does not start: {error:#}");
                }
            }
        }
        self.places[index].served = false;
        format!("{name}: started again, from its journal")
    }

    /// Cuts a region off from all others, or heals it.
    pub(crate) fn partition(&mut self, index: usize) -> String {
        let cut = !self.places[index].cut;
        self.set_cut(&[index], cut);
        let name = self.name(&self.places[index]);
        if cut {
            format!("{name}: cut off, no message comes in or out; p heals it")
        } else {
            format!("{name}: healed")
        }
    }

    /// Asks that the replica of a region leads; what comes of it is noted later.
    pub(crate) fn lead(&mut self, index: usize) -> String {
        let place = &self.places[index];
        let name = self.name(place).to_owned();
        let keyspace = self.deployment.keyspace(self.keyspace);
        let Some(target) = place.nodes.iter().copied().find(|node| keyspace.replicas.contains(node)) else {
            return format!("{name} has no replica of {}, so it cannot lead", keyspace.name);
        };
        if place.cut {
            return format!("{name} is cut off; p heals it");
        }
        // A replica that does not lead passes the order on to the one that does.
        let Some(orders) = self.seats[usize::from(target.0)].handle.as_ref().map(NodeHandle::orders) else {
            return format!("{name} is down; r starts it");
        };
        let (keyspace, notes, answer) = (self.keyspace, self.notes.0.clone(), name.clone());
        std::thread::spawn(move || {
            let what = Administration::MoveLeader(target);
            let order = |respond| Control::Administer(keyspace, None, what, respond);
            let text = match orders.ask(order) {
                Ok(done) => format!("{answer}: {done}"),
                Err(why) => format!("{answer} does not lead: {why}"),
            };
            // Nobody reads notes once the cluster has ended.
            let _ = notes.send(text);
        });
        format!("{name}: asked to lead")
    }

    /// Stops every node in order and waits; whether all of them ended as they should, and none has before.
    pub(crate) fn stop(mut self) -> bool {
        let mut well = !self.failed();
        for seat in &self.seats {
            if let Some(handle) = &seat.handle {
                // All hear it before the first is waited for: a majority must not be missed by the last.
                let _ = handle.orders().send(Control::StopWithAll);
            }
        }
        for seat in &mut self.seats {
            if let Some(handle) = seat.handle.take()
                && let Err(error) = handle.stop()
            {
                say(format_args!("isochrone: {}: {error}", self.deployment.node(seat.node).name));
                well = false;
            }
        }
        well
    }

    fn name(&self, place: &Place) -> &str {
        &self.deployment.region(place.region).name
    }

    fn view(&self, regions: Vec<RegionView>) -> View {
        let keyspace = self.deployment.keyspace(self.keyspace);
        View {
            cluster: self.deployment.cluster().to_owned(),
            keyspace: keyspace.name.clone(),
            protocol: keyspace.protocol.clone(),
            guarantee: self.guarantee.clone(),
            fsync: self.deployment.fsync(),
            elapsed: self.start.elapsed(),
            regions,
        }
    }

    fn run(&self, seat: usize, sockets: Sockets) -> anyhow::Result<NodeHandle> {
        let node = self.seats[seat].node;
        let name = &self.deployment.node(node).name;
        let config = NodeConfig {
            deployment: Arc::clone(&self.deployment),
            node,
            data: self.data.join(name),
            expect: Expect::Anything,
            sockets,
            peers: self.peers.clone(),
            emulation: Some(self.emulation.clone()),
            admin_token: crate::node::admin_token(),
            network: Some(self.orders.0.clone()),
            snapshot_bytes: DEFAULT_SNAPSHOT_BYTES,
        };
        Node::start(config, &self.protocols, Box::new(RedisGateway))
            .map_err(node::start)
            .with_context(|| format!("node {name}"))
    }

    /// Handles of a place's running nodes.
    fn running(&self, place: &Place) -> impl Iterator<Item = &NodeHandle> {
        place.nodes.iter().filter_map(|node| self.seats[usize::from(node.0)].handle.as_ref())
    }

    fn metrics(&self, place: &Place) -> impl Iterator<Item = &isochrone_node::metrics::KeyspaceMetrics> {
        let index = usize::from(self.keyspace.0) - 1;
        self.running(place)
            .filter_map(move |handle| handle.board().metrics.keyspaces.get(index))
            .map(AsRef::as_ref)
    }

    /// In which reigns replicas of this region believe to lead.
    fn reigns(&self, place: &Place) -> Reigns {
        let mut reigns = Reigns::new();
        for handle in self.running(place) {
            let status = handle.status();
            let own = status.processes.iter().filter(|process| process.keyspace == self.keyspace.0);
            for (partition, reign) in own.filter_map(|process| Some((process.partition, process.leads?))) {
                let latest = reigns.entry(partition).or_insert(reign);
                *latest = reign.max(*latest);
            }
        }
        reigns
    }

    fn state(&self, index: usize) -> State {
        let place = &self.places[index];
        if place.nodes.iter().any(|node| self.seats[usize::from(node.0)].failed) {
            return State::Failed;
        }
        if self.running(place).count() < place.nodes.len() {
            return State::Down;
        }
        if place.cut {
            return State::Cut;
        }
        let keyspace = usize::from(self.keyspace.0) - 1;
        let serves = self.running(place).all(|handle| {
            let status = handle.status();
            let keyspace = status.keyspaces.get(keyspace);
            keyspace.is_some_and(|keyspace| keyspace.ready && (!self.led || keyspace.leader.is_some()))
        });
        match (serves, place.served) {
            (true, _) => State::Up,
            (false, true) => State::Stalled,
            (false, false) => State::Starting,
        }
    }

    /// Keeps what a node has counted, for its life is about to end.
    fn collect(&mut self, index: usize, node: NodeId) {
        let keyspace = usize::from(self.keyspace.0) - 1;
        let Some(handle) = &self.seats[usize::from(node.0)].handle else { return };
        if let Some(metrics) = handle.board().metrics.keyspaces.get(keyspace) {
            self.places[index].past.add(metrics);
        }
    }

    /// Takes note of nodes that have ended by themselves.
    fn bury(&mut self) {
        for index in 0..self.places.len() {
            for node in self.places[index].nodes.clone() {
                let seat = usize::from(node.0);
                if self.seats[seat].handle.as_ref().is_none_or(NodeHandle::running) {
                    continue;
                }
                self.collect(index, node);
                let Some(handle) = self.seats[seat].handle.take() else { continue };
                let why = match handle.wait() {
                    Ok(()) => "it has stopped".to_owned(),
                    Err(error) => error.to_string(),
                };
                self.seats[seat].failed = true;
                self.seats[seat].keep();
                // The receiver lives in this very struct.
                let _ = self.notes.0.send(format!("{}: {why}", self.deployment.node(node).name));
            }
        }
    }
}

impl Seat {
    /// Keeps the ports of a node that does not run. Nobody is heard on them, as if there were nobody; but a system gives
    /// none of them to an outgoing connection, which would hold it for as long as it lasts.
    fn keep(&mut self) {
        let addresses = [self.peer, self.grpc, self.http].into_iter().chain(self.redis);
        // One that has been taken already is said where it is needed.
        self.kept = addresses.filter_map(|address| bound(address).ok()).collect();
    }

    /// Its ports once more, for a node that starts again.
    fn bind(&mut self) -> anyhow::Result<Sockets> {
        self.kept.clear();
        let bind = |address: SocketAddr| {
            TcpListener::bind(address).with_context(|| format!("{address} was taken by another program"))
        };
        let sockets = Sockets {
            peer: Some(bind(self.peer)?),
            redis: self.redis.map(bind).transpose()?.into_iter().collect(),
            grpc: Some(bind(self.grpc)?),
            http: Some(bind(self.http)?),
        };
        Ok(sockets)
    }
}

impl Place {
    fn of(deployment: &Deployment, keyspace: KeyspaceId, region: RegionId, window: Duration) -> Place {
        let keyspace = deployment.keyspace(keyspace);
        let replicas = isochrone_plan::servers(deployment, keyspace);
        let here = replicas.iter().filter(|replica| **replica == region).count();
        let nodes: Vec<_> = deployment.nodes_in(region).map(|node| node.id).collect();
        let client = if here > 0 { Client::At(region) } else { Client::In(region) };
        Place {
            region,
            nodes,
            replicas: here,
            floor_ms: isochrone_plan::floor(deployment.matrix(), client, &replicas).as_millis_f64(),
            cut: false,
            served: false,
            past: Reading::default(),
            readings: Readings::over(window),
        }
    }
}

/// A socket at an address on which nobody listens.
fn bound(address: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // Connections of who listened there before may still be ending.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn any_socket() -> anyhow::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")
}

/// A thousand above the Redis ports, where `isochrone status` looks, if nobody else is there.
fn http_socket(node: NodeId, first: u16) -> anyhow::Result<TcpListener> {
    let port = first.checked_add(1_000).and_then(|first| first.checked_add(node.0)).filter(|_| first > 0);
    let bound = port.and_then(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    bound.map_or_else(any_socket, Ok)
}

fn redis_socket(deployment: &Deployment, place: &Place, first: u16) -> anyhow::Result<TcpListener> {
    let region = &deployment.region(place.region).name;
    let regions = deployment.regions().len();
    let port = match first {
        0 => 0,
        first => first.checked_add(place.region.0).ok_or_else(|| {
            let most = usize::from(u16::MAX) + 1 - regions;
            Usage(format!("--port {first}: {regions} regions need as many ports; use at most --port {most}"))
        })?,
    };
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
        let cause = match error.kind() {
            ErrorKind::AddrInUse => "in use by another program".to_owned(),
            _ => error.to_string(),
        };
        Usage(format!(
            "127.0.0.1:{port}, the Redis port of {region}: {cause}\n  \
             choose other ports, e.g. --port {}, or let the system choose: --port 0",
            if first < 50_000 { first + 100 } else { 7101 }
        ))
        .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_has_a_leader_of_its_own() {
        let regions: [&[(u16, u64)]; 4] = [&[(0, 0), (1, 7)], &[(1, 9)], &[(2, 1), (0, 2)], &[]];
        let reigns = regions.map(|reigns| reigns.iter().copied().collect::<Reigns>());
        let roles = |reigns: &[Reigns], led| -> Vec<Role> {
            (0..reigns.len()).map(|region| role(reigns, region, led)).collect()
        };
        let expected = [Role::Deposed, Role::Leader, Role::Leader, Role::Follower];
        assert_eq!(roles(&reigns, true), expected);
        assert_eq!(roles(&reigns, false), expected);
        // One that leads a partition in an early reign leads it, whatever goes on in others.
        let reigns = [Reigns::from([(0, 1)]), Reigns::from([(1, 5)])];
        assert_eq!(roles(&reigns, true), [Role::Leader; 2]);
        let nobody = [Reigns::new()];
        assert_eq!(
            (roles(&nobody, true), roles(&nobody, false)),
            (vec![Role::Follower], vec![Role::Replica])
        );
    }

    #[test]
    fn a_node_that_ends_by_itself_is_told_and_is_a_failure_until_it_is_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let deployment = super::super::tests::near(folder.path(), "2pc");
        let mut cluster =
            Cluster::start(deployment, 0, folder.path().join("data"), Duration::from_secs(1)).unwrap();
        let end = |cluster: &mut Cluster| {
            cluster.seats[1].handle.as_ref().unwrap().orders().send(Control::Stop).unwrap();
            let start = Instant::now();
            while !cluster.failed() {
                // Who looks takes note of nodes that have ended.
                cluster.look();
                assert!(start.elapsed() < Duration::from_secs(60), "it has not ended");
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(cluster.note().as_deref(), Some("south: it has stopped"));
        };
        assert!(!cluster.failed());
        end(&mut cluster);
        assert!(!cluster.ready() && !cluster.lost());
        assert_eq!(cluster.restart(1), "South: started again, from its journal");
        assert!(!cluster.failed());
        end(&mut cluster);
        assert!(!cluster.stop());
    }
}
