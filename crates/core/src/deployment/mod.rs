//! A deployment is one file: regions, nodes, the network between them, keyspaces and what protects them.
//!
//! The same TOML drives `plan`, `sim`, `up`, `node` and `bench`. It is parsed, not validated: text becomes drafts with
//! the line of every value, drafts become a [`Deployment`], and a [`Deployment`] cannot be wrong. All mistakes of a file, up to a
//! hundred, are reported together, each with its line, what is wrong and what would be right. `docs/deployment.md` describes
//! every key.

mod draft;
mod error;
mod keyspace;
mod limits;
mod options;
mod parameters;
mod parse;
mod placement;
mod security;
#[cfg(test)]
mod tests;
mod values;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::id::{KeyspaceId, NodeId, PartitionId, RegionId};
use crate::notify::Flags;
use crate::time::Span;
use crate::topology::Matrix;

pub(crate) use error::Mistakes;
pub(crate) use values::{NumberError, scaled};

pub use error::{ConfigError, ConfigErrors};
pub use limits::{LIMITS, Limit, LimitRule, Limits, Unit};
pub use parameters::{CURP_COPIES, CURP_COPIES_MAX, ParameterReader, Parameters};
pub use security::PasswordHash;
pub use values::{Address, parse_bytes, parse_span};

/// What the program that reads a deployment knows: the protocols it can run.
#[derive(Clone, Debug, Default)]
pub struct Known {
    protocols: Vec<&'static str>,
    placing: Vec<&'static str>,
    insecure: bool,
}

impl Known {
    /// Protocols by name; their parameters are read later, by whoever starts them.
    pub fn names(names: &[&'static str]) -> Self {
        Self { protocols: names.to_vec(), ..Self::default() }
    }

    /// Protocols by name whose partitions stand each on nodes of its own: those of transactions.
    #[must_use]
    pub fn placing(mut self, names: &[&'static str]) -> Self {
        self.protocols.extend(names);
        self.placing.extend(names);
        self
    }

    /// Whether the partitions of a protocol stand each on nodes of its own.
    fn places(&self, protocol: &str) -> bool {
        self.placing.contains(&protocol)
    }

    /// Somebody has said on the command line that plain text beyond loopback is meant, as `insecure = true` in the file
    /// would.
    #[must_use]
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }
}

/// A region: a place with its own row in the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its position in the file, from 0; also its row in [`Deployment::matrix`].
    pub id: RegionId,
    /// Its name, as in the matrix file.
    pub name: String,
    /// How many clients it has in proportion to the other regions: what means over the regions weigh it by.
    pub clients: u32,
}

/// A machine that runs `isochrone node`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its position in the file, from 0.
    pub id: NodeId,
    /// Its name: ASCII letters, digits, `-`, `_`, `.`; it names data directories and metrics.
    pub name: String,
    /// Where it stands.
    pub region: RegionId,
    /// Where peers reach it (`listen`); `sim` and `up` need none.
    pub peer: Option<Address>,
    /// Where Redis clients reach it.
    pub redis: Option<Address>,
    /// Where gRPC clients reach it.
    pub grpc: Option<Address>,
    /// Where metrics, health and administration are served.
    pub http: Option<Address>,
    /// For how long its loop looks for news again and again before it sleeps, at most; zero is never.
    pub idle_poll: Span,
}

/// A keyspace: data under one protocol with one set of replicas.
#[derive(Clone, Debug)]
pub struct Keyspace {
    /// Its position in the file, from 1.
    pub id: KeyspaceId,
    /// Its name: ASCII letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// The number that `SELECT` takes.
    pub index: u16,
    /// The name of its protocol.
    pub protocol: String,
    /// The nodes that hold it, each once: 1, 3, 5 or 7, or, where partitions are placed, all that hold any of them.
    pub replicas: Vec<NodeId>,
    /// The number of replicas, where the file gives no more than that: the first nodes, or so many a partition.
    pub replication: Option<u8>,
    /// The nodes of each partition, 1, 3, 5 or 7, its first leader first; empty where all partitions are on all
    /// replicas.
    pub placement: Vec<Vec<NodeId>>,
    /// The replica that should lead; none where the protocol may choose.
    pub leader: Option<NodeId>,
    /// How many partitions it has, at least 1.
    pub partitions: u16,
    /// How many whole regions may be lost without losing the majority, where that was demanded.
    pub survive: Option<u8>,
    /// A Redis port of its own on every node.
    pub redis_port: Option<u16>,
    /// What its protocol may be told.
    pub parameters: Parameters,
    /// Its line in the file, for messages; 0 where there is none.
    pub line: u32,
}

/// Who leads a partition first: the replicas take turns, beginning with the leader of the first.
pub fn leader_in_turn(replicas: &[NodeId], first: NodeId, partition: PartitionId) -> NodeId {
    let at = replicas.iter().position(|node| *node == first).unwrap_or(0);
    replicas.get((at + usize::from(partition.0)) % replicas.len().max(1)).copied().unwrap_or(first)
}

impl Keyspace {
    /// Replicas whose crash the keyspace survives: a minority, of the smallest partition where they differ.
    pub fn crashes_max(&self) -> usize {
        let fewest = self.placement.iter().map(Vec::len).min().unwrap_or(self.replicas.len());
        (fewest - 1) / 2
    }

    /// The nodes of each partition, its first leader first: where none is placed, every replica has all partitions, and
    /// they take turns to lead.
    pub fn groups(&self) -> Vec<Vec<NodeId>> {
        if !self.placement.is_empty() {
            return self.placement.clone();
        }
        let first = self.leader.or(self.replicas.first().copied());
        let turn = |partition| {
            let leader = first.map(|first| leader_in_turn(&self.replicas, first, partition));
            let at = self.replicas.iter().position(|node| Some(*node) == leader).unwrap_or(0);
            let (before, behind) = self.replicas.split_at(at);
            behind.iter().chain(before).copied().collect()
        };
        self.partition_ids().map(turn).collect()
    }

    /// Every partition, in order.
    pub fn partition_ids(&self) -> impl ExactSizeIterator<Item = PartitionId> + use<> {
        (0..self.partitions).map(PartitionId)
    }
}

/// What is emulated or assumed of the network besides its delays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The most that a message is delayed beyond the mean one-way delay; the extra is drawn evenly from zero to this.
    pub jitter: Span,
    /// How many of a million messages are lost.
    pub loss_per_million: u32,
    /// Whether round trips were given; if not, every pair of regions is `lan_rtt` apart, which is good only for a
    /// live cluster that measures its own.
    pub given: bool,
}

/// The files that prove a node to its peers, PEM. `{node}` in a path is replaced by the node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The authority that signs the certificates of all nodes.
    pub ca: PathBuf,
    /// This node's certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The files that prove a node to its clients, PEM. `{node}` in a path is replaced by the node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The certificate shown to clients.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A file that each node has. `{node}` in the path is replaced by the node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFile(PathBuf);

impl NodeFile {
    /// The file of one node.
    pub fn of(&self, node: &Node) -> PathBuf {
        of_node(&self.0, node)
    }
}

/// Somebody who may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name given to `AUTH`.
    pub name: String,
    /// The hash of the password.
    pub password: PasswordHash,
}

/// How nodes and clients prove themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Plain text was allowed beyond loopback; whoever starts a node then says so loudly.
    pub insecure: bool,
    /// Mutual TLS between nodes.
    pub peer: Option<PeerIdentity>,
    /// TLS for clients.
    pub client: Option<ServerIdentity>,
    /// Users; where there are any, clients must log in.
    pub users: Vec<User>,
    /// More users, and what each may do, in the format of Redis' ACL files.
    pub acl: Option<NodeFile>,
    /// Where it is kept who has logged in, administered, or been denied something.
    pub audit: Option<NodeFile>,
}

impl PeerIdentity {
    /// The files of one node.
    pub fn of(&self, node: &Node) -> Self {
        let Self { ca, cert, key } = self;
        Self { ca: of_node(ca, node), cert: of_node(cert, node), key: of_node(key, node) }
    }
}

impl ServerIdentity {
    /// The files of one node.
    pub fn of(&self, node: &Node) -> Self {
        Self { cert: of_node(&self.cert, node), key: of_node(&self.key, node) }
    }
}

fn of_node(path: &Path, node: &Node) -> PathBuf {
    // Paths come from TOML, which is UTF-8, below a base directory that may not be; such a one has no placeholder.
    path.to_str().map_or_else(|| path.to_owned(), |path| PathBuf::from(path.replace("{node}", &node.name)))
}

/// A whole deployment, every name resolved and every quorum possible.
#[derive(Clone, Debug)]
pub struct Deployment {
    file: Arc<str>,
    cluster: String,
    regions: Vec<Region>,
    nodes: Vec<Node>,
    keyspaces: Vec<Keyspace>,
    network: Network,
    lan_rtt: Span,
    matrix: Matrix,
    security: Security,
    fsync: bool,
    notifies: Flags,
    limits: Limits,
}

impl Deployment {
    /// Reads a file, and the matrix that it names.
    ///
    /// # Errors
    /// Every mistake in the two files, or that one cannot be read.
    pub fn load(path: &Path, known: &Known) -> Result<Self, ConfigErrors> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let right = "give the path of a deployment file; deployments/ has ready-made ones";
            ConfigErrors::one(file.as_str(), 0, format!("cannot read it: {error}"), right)
        })?;
        Self::parse(&text, &file, path.parent().unwrap_or(Path::new("")), known)
    }

    /// Reads the text of a file; `file` is how messages name it, paths in it are relative to `base`.
    ///
    /// # Errors
    /// Every mistake in the text and in the matrix that it names.
    pub fn parse(text: &str, file: &str, base: &Path, known: &Known) -> Result<Self, ConfigErrors> {
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
        Self::parse_with(text, file, base, known, &read)
    }

    /// The same, with the matrix fetched by `read` instead of from disk: for fuzzing, and for texts that are compiled in.
    ///
    /// # Errors
    /// Every mistake in the text and in the matrix that it names.
    pub fn parse_with(
        text: &str,
        file: &str,
        base: &Path,
        known: &Known,
        read: &dyn Fn(&Path) -> Result<String, String>,
    ) -> Result<Self, ConfigErrors> {
        parse::deployment(text, file, base, known, read)
    }

    /// The deployment that `isochrone up` runs when none is named: five regions with the delays of `carousel-ec2`, one
    /// replica in each, Multi-Paxos.
    pub fn five_regions() -> Self {
        const TEXT: &str = include_str!("../../../../deployments/five-regions.toml");
        const MATRIX: &str = include_str!("../../../../reference/rtt/carousel-ec2.csv");
        let known = Known::names(&["multipaxos"]);
        let read = |_: &Path| Ok(MATRIX.to_owned());
        match Self::parse_with(TEXT, "five-regions.toml", Path::new(""), &known, &read) {
            Ok(deployment) => deployment,
            // Both texts are compiled in, and a test parses them.
            Err(errors) => unreachable!("the built-in deployment is good: {errors}"),
        }
    }

    /// A deployment without a file: one node in each region of a matrix, named as the region in small letters, and one
    /// keyspace `main` on the nodes of the given regions.
    ///
    /// # Panics
    /// If the number of replicas is not 1, 3, 5 or 7, or a region comes twice or is not in the matrix.
    pub fn of_matrix(matrix: Matrix, protocol: &str, replicas: &[RegionId]) -> Self {
        assert!(parse::REPLICATIONS.contains(&replicas.len()), "{} replicas", replicas.len());
        assert!(
            replicas.iter().all(|region| usize::from(region.0) < matrix.len()),
            "a replica outside the matrix"
        );
        let distinct: std::collections::BTreeSet<_> = replicas.iter().collect();
        assert!(distinct.len() == replicas.len(), "a replica comes twice");
        let regions: Vec<Region> =
            matrix.regions().map(|id| Region { id, name: matrix.name(id).to_owned(), clients: 1 }).collect();
        let nodes = regions.iter().map(|region| Node {
            id: NodeId(region.id.0),
            name: region.name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-"),
            region: region.id,
            peer: None,
            redis: None,
            grpc: None,
            http: None,
            idle_poll: Span::ZERO,
        });
        let keyspace = Keyspace {
            id: KeyspaceId(1),
            name: "main".to_owned(),
            index: 0,
            protocol: protocol.to_owned(),
            replicas: replicas.iter().map(|region| NodeId(region.0)).collect(),
            replication: None,
            placement: Vec::new(),
            leader: None,
            partitions: 1,
            survive: None,
            redis_port: None,
            parameters: Parameters::none(),
            line: 0,
        };
        Self {
            file: Arc::from("deployment"),
            cluster: parse::CLUSTER.to_owned(),
            nodes: nodes.collect(),
            regions,
            keyspaces: vec![keyspace],
            network: Network { jitter: Span::ZERO, loss_per_million: 0, given: true },
            lan_rtt: parse::LAN_RTT,
            matrix,
            security: Security::default(),
            fsync: true,
            notifies: Flags::NONE,
            limits: Limits::default(),
        }
    }

    /// How messages name the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The identity of the cluster, for handshakes and data directories: a hash of its name, the same in every version.
    pub fn cluster_id(&self) -> u64 {
        // FNV-1a, 64 bits.
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        self.cluster.bytes().fold(0xcbf2_9ce4_8422_2325, fold)
    }

    /// The regions; the position is the [`RegionId`]. Each has at least one node.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The nodes; the position is the [`NodeId`].
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The keyspaces, at least one; the position is the [`KeyspaceId`] less one.
    pub fn keyspaces(&self) -> &[Keyspace] {
        &self.keyspaces
    }

    /// A region.
    ///
    /// # Panics
    /// If the deployment has no such region.
    pub fn region(&self, id: RegionId) -> &Region {
        &self.regions[usize::from(id.0)]
    }

    /// A node.
    ///
    /// # Panics
    /// If the deployment has no such node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[usize::from(id.0)]
    }

    /// The node of this name.
    pub fn node_named(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The region of this name.
    pub fn region_named(&self, name: &str) -> Option<&Region> {
        self.regions.iter().find(|region| region.name == name)
    }

    /// The keyspace of this name.
    pub fn keyspace_named(&self, name: &str) -> Option<&Keyspace> {
        self.keyspaces.iter().find(|keyspace| keyspace.name == name)
    }

    /// The nodes of a region, in file order.
    pub fn nodes_in(&self, region: RegionId) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.region == region)
    }

    /// Delays between the regions, in the deployment's order. See [`Network::given`].
    pub fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// Delays between the regions, for those who cannot do without measured ones (`plan`, `sim`).
    ///
    /// # Errors
    /// If the file gives none and there is more than one region.
    pub fn given_matrix(&self) -> Result<&Matrix, ConfigErrors> {
        if self.network.given || self.regions.len() == 1 {
            return Ok(&self.matrix);
        }
        let wrong = "[network] gives no round trips between the regions, which this command needs";
        Err(ConfigErrors::one(self.file.clone(), 0, wrong, "add rtt = \"matrix.csv\" under [network]"))
    }

    /// Mean one-way delay from node to node: zero to itself, the matrix' diagonal within a region.
    ///
    /// # Panics
    /// If the deployment has no such node.
    pub fn one_way(&self, from: NodeId, to: NodeId) -> Span {
        if from == to {
            return Span::ZERO;
        }
        self.matrix.one_way(self.node(from).region, self.node(to).region)
    }

    /// The round trip within a region whose cell in the matrix is empty.
    pub fn lan_rtt(&self) -> Span {
        self.lan_rtt
    }

    /// Jitter and loss.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Certificates and users.
    pub fn security(&self) -> &Security {
        &self.security
    }

    /// Whether the journal is synced to disk before anything is acknowledged. If not, a crash of a majority loses
    /// acknowledged writes, and whoever starts a node must print UNSAFE.
    pub fn fsync(&self) -> bool {
        self.fsync
    }

    /// Which events of keys a node tells those who subscribe there, until a client sets it otherwise.
    pub fn notify_keyspace_events(&self) -> Flags {
        self.notifies
    }

    /// The named limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The keyspace to work on: the named one, or the first.
    ///
    /// # Errors
    /// If there is none of that name; the message is that of a command line option.
    pub fn choose_keyspace(&self, name: Option<&str>) -> Result<KeyspaceId, ConfigErrors> {
        let Some(name) = name else { return Ok(self.keyspaces[0].id) };
        self.keyspace_named(name).map(|keyspace| keyspace.id).ok_or_else(|| {
            let right = values::suggest(name, self.keyspaces.iter().map(|keyspace| keyspace.name.as_str()));
            ConfigErrors::one("--keyspace", 0, format!("{} has no keyspace {name:?}", self.file), right)
        })
    }

    /// The keyspace in which Redis clients begin: the one of index 0, or the first where none has that.
    pub fn redis_keyspace(&self) -> KeyspaceId {
        let first = &self.keyspaces[0];
        self.keyspaces.iter().find(|keyspace| keyspace.index == 0).unwrap_or(first).id
    }

    /// A keyspace.
    ///
    /// # Panics
    /// If the deployment has no such keyspace.
    pub fn keyspace(&self, id: KeyspaceId) -> &Keyspace {
        &self.keyspaces[usize::from(id.0) - 1]
    }

    /// The same deployment for one machine, where nothing has to be found, encrypted or accounted for: without addresses,
    /// ports, certificates and audit logs. Users stay.
    #[must_use]
    pub fn on_one_machine(mut self) -> Self {
        for node in &mut self.nodes {
            (node.peer, node.redis, node.grpc, node.http) = (None, None, None, None);
        }
        for keyspace in &mut self.keyspaces {
            keyspace.redis_port = None;
        }
        self.security =
            Security { users: self.security.users, acl: self.security.acl, ..Security::default() };
        self
    }
}
