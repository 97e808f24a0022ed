//! The command line: one definition per flag, from which parser, help, completions and manual derive.

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use isochrone_core::Span;
use isochrone_core::deployment::{Address, parse_span};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Geo-replicated data with strong consistency, at the latency the speed of light allows.
#[derive(Parser, Debug)]
#[command(
    name = "isochrone",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Examples:\n  isochrone up\n  redis-cli -p 7001 SET city Lisbon\n  isochrone status\n  isochrone sim --seed 7 --faults all\n  isochrone help sim\n\nExit status: 0 it was done, and what was to hold holds; 1 it failed, or something does not hold; 2 what was asked for\ncannot be meant (a flag, a name, a file), or its result cannot be written; 3 undecided within the limit (check, sim).\n\nEnvironment:\n  NO_COLOR                 no colours, where it is not empty\n  RUST_LOG                 what node, redis and up log, e.g. debug or isochrone_node=debug,warn\n  ISOCHRONE_LOG_FORMAT     how they log: text, or json\n  ISOCHRONE_AUTH           user:password, where a verb asks a node that wants one\n  ISOCHRONE_ADMIN_TOKEN    what orders must show: for node and redis, and the verbs that give them\n  ISOCHRONE_PASSWORD_HASH  the hash of the password that clients of redis must know"
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Run a whole cluster in this process, with the delays of its regions emulated
    Up(Up),
    /// Run one node of a deployment
    Node(Node),
    /// Serve Redis clients from one data directory: one node, one process, nothing to configure
    Redis(Redis),
    /// Show how a running cluster stands: who leads, who answers, what clients wait for
    Status(Status),
    /// Let a node lead a keyspace: nothing is lost, and commands wait for some round trips
    MoveLeader(crate::orders::arguments::MoveLeader),
    /// Take a node in as a replica of a keyspace, or let one go
    Replica(crate::orders::arguments::Replica),
    /// Show which partition serves which keys, and move keys from one to another
    Range(crate::orders::arguments::Range),
    /// Stop a node in order
    Stop(crate::orders::arguments::Stop),
    /// Look at the machine of a node, before that is started or beside it: disk, clock, limits, addresses, round trips
    Doctor(Doctor),
    /// Show the network that `up` emulates between its regions; cut regions off, and heal them
    Net(crate::net::arguments::Net),
    /// Say which node may be stopped next, so that all are upgraded or started anew one by one while every keyspace is served
    Upgrade(crate::upgrade::arguments::Upgrade),
    /// Save a whole keyspace of a running cluster into a file, put it back, and look into such a file
    Backup(crate::backup::arguments::Backup),
    /// See whether the audit log of a node is what was written: no line changed, moved or removed
    Audit(crate::audit::Audit),
    /// Predict each region's commit latency for every protocol and leader, and the floor
    Plan(Plan),
    /// Simulate a deployment in virtual time, with faults, and check what its clients saw
    Sim(Sim),
    /// Load a Redis endpoint or a deployment, and measure
    Bench(Bench),
    /// Check a recorded history
    Check(Check),
    /// Run a published evaluation again, and show published and measured figures side by side
    Reproduce(Reproduce),
    /// Learn from sparse data with many threads, bit for bit what one thread would have learnt
    Learn(crate::learn::arguments::Learn),
    /// Make the certificates of a cluster: an authority, and each node's pairs for peers and for clients
    Cert(Cert),
    /// Hash a password for the [security] section of a deployment; reads it from standard input
    Password(Password),
    /// Print the manual page of a verb, or write all pages into a directory
    Man(Man),
    /// Print the completions of a shell
    Completions(Completions),
}

/// How figures are printed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object, stable, for programs.
    Json,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone up\n  isochrone up deployments/three-regions.toml\n  redis-cli -p 7001 SET city Lisbon"
)]
pub struct Up {
    /// The deployment [default: five regions of EC2, built in]
    pub file: Option<PathBuf>,
    /// Another protocol than the file says, for the keyspace of Redis' database 0, or the first where that is none
    #[arg(long, value_name = "NAME")]
    pub protocol: Option<String>,
    /// Plain lines instead of the live table, for pipes
    #[arg(long)]
    pub plain: bool,
    /// Stop after this long, e.g. 30s
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    pub period: Option<Span>,
    /// Redis port of the first region, the others follow, and HTTP of each node from a thousand above on, where those are free;
    /// 0 lets the system choose
    #[arg(long, default_value_t = 7001, value_name = "PORT")]
    pub port: u16,
    /// Keep the data here, for the next time [default: a temporary directory, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// How figures are printed; json means --plain
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  isochrone node cluster.toml --name va1 --data /var/lib/isochrone")]
pub struct Node {
    /// The deployment
    pub file: PathBuf,
    /// Which of its nodes this is
    #[arg(long)]
    pub name: String,
    /// Where the journal and the snapshots live; made where it does not exist
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Refuse to start without data: for every start but a node's first. A replica that has lost its disk has
    /// forgotten its promises, and must not come back as if it were new
    #[arg(long)]
    pub expect_data: bool,
    /// Serve beyond loopback without TLS. Anyone on the way can read and change everything
    #[arg(long)]
    pub insecure: bool,
    /// How the line that says that it is ready is printed, and what it logs
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  isochrone redis --dir /var/lib/isochrone\n  redis-cli SET city Lisbon\n\nThe directory holds the data and deployment.toml, the deployment that is run: edited, the same directory is run\nby `isochrone node DIR/deployment.toml --name redis --data DIR`."
)]
pub struct Redis {
    /// Where the data lives; made where it does not exist
    #[arg(long, value_name = "DIR", alias = "data")]
    pub dir: PathBuf,
    /// The port of Redis clients [default: 6379, or as at the last start]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// The address they reach; beyond loopback only with a password [default: 127.0.0.1, or as at the last start]
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,
    /// How many databases clients can SELECT, from 0 on, 64 at most; beyond them the answer is "ERR DB index is out of
    /// range". Never fewer than before [default: 1, or as at the last start]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub databases: Option<u8>,
    /// Clients must log in with the password of this hash, made by `isochrone password`
    #[arg(long, value_name = "HASH", env = "ISOCHRONE_PASSWORD_HASH", hide_env_values = true)]
    pub password_hash: Option<String>,
    /// Serve TLS with this certificate, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Serve beyond loopback without TLS. Anyone on the way can read and change everything
    #[arg(long)]
    pub insecure: bool,
    /// How the line that says that it is ready is printed, and what it logs
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone status cluster.toml\n  isochrone status --http 10.0.0.1:9000 --http 10.0.1.1:9000\n\nWithout either, the cluster that `isochrone up` runs on this machine. Figures are of the last ten seconds; the\nbound is the round trip to the nearest majority as measured.\n\nExit status: 0 every node that is a member of a\nkeyspace answers, and all that answer are ready; 1 not."
)]
pub struct Status {
    /// The deployment: each node is asked where its `http` is; what differs from the file is told
    pub file: Option<PathBuf>,
    /// Where a node's `http` is; may be given several times
    #[arg(long, value_name = "HOST:PORT", value_parser = Address::parse, conflicts_with = "file")]
    pub http: Vec<Address>,
    /// How figures are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  isochrone doctor cluster.toml --name va1 --data /var/lib/isochrone/va1\n\nRun it on the machine of the node, as the node's user. It changes nothing; it writes, syncs and removes a file of 256 KiB\nin the directory, and connects five times to each peer. It takes seconds, at most 15.\n\nExit status: 0 nothing has failed, whatever is warned of; 1 something has, and the node would not start, or not for long;\n2 the command or the file is wrong."
)]
pub struct Doctor {
    /// The deployment
    pub file: PathBuf,
    /// Which of its nodes this machine is for
    #[arg(long)]
    pub name: String,
    /// Where the node's data lives or will live [default: neither the directory nor its disk is looked at]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The node is started with --insecure: plain text beyond loopback is meant
    #[arg(long)]
    pub insecure: bool,
    /// How the checks are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone plan deployments/five-regions.toml\n  isochrone plan deployments/five-regions.toml --weights 'US East=70,Euro=30' --svg plan.svg\n  isochrone plan --live\n  isochrone plan cluster.toml --live --http 10.0.0.1:9000 --http 10.0.1.1:9000\n  isochrone plan --ask --out cluster.toml\n\nWith --live nodes are asked where the file's `http` are, or where --http says; without either, and where none of the\nfile's answers, on the ports of `isochrone up`. --ask asks on standard error and reads answers from standard input, a line\neach, an empty one for what stands in brackets. Beside the deployment it writes the csv of round trips that it names: in the\nfolder of --out, or in this one."
)]
pub struct Plan {
    /// The deployment [default: five regions of EC2, built in, which `isochrone up` runs]
    pub file: Option<PathBuf>,
    /// Over the round trips that the nodes of the running cluster measure now; and what their clients wait for beside it
    #[arg(long)]
    pub live: bool,
    /// Where a node's `http` is, for --live; may be given several times
    #[arg(long, value_name = "HOST:PORT", value_parser = Address::parse, requires = "live")]
    pub http: Vec<Address>,
    /// Ask five questions, and write the deployment that follows from the answers
    #[arg(long, conflicts_with_all = ["file", "live", "keyspace", "weights", "conflict", "svg", "format"])]
    pub ask: bool,
    /// Where --ask writes it, a file that is not there yet [default: standard output]
    #[arg(long, value_name = "FILE", requires = "ask")]
    pub out: Option<PathBuf>,
    /// Which of its keyspaces [default: the first]
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
    /// Clients of each region, in proportion; a region not named has none [default: `clients` of the file's regions]
    #[arg(long, value_name = "REGION=N,...", value_delimiter = ',')]
    pub weights: Vec<String>,
    /// Share of commands that interfere with another under way, percent: what EPaxos and CURP pay for, and less than the
    /// share that goes to one hot key (`sim --conflict`)
    #[arg(long, value_name = "PCT", default_value_t = 0.0)]
    pub conflict: f64,
    /// Draw the latency of each region under the best leader of each protocol
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// How figures are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone sim --seed 7 --faults all\n  isochrone sim deployments/three-regions.toml --seeds 1000 --faults all\n  isochrone sim deployments/three-regions.toml --seed 7 --faults all --trace\n\nWorkloads of commands: ycsb-a to ycsb-f, set, get, incr, check; of transactions: retwis, ycsbt, smallbank, bank, ledger,\ntxn-check."
)]
pub struct Sim {
    /// The deployment [default: five regions of EC2, built in, which `isochrone up` runs]
    pub file: Option<PathBuf>,
    /// Which of its keyspaces [default: the first]
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
    /// Another protocol than the file says
    #[arg(long, value_name = "NAME")]
    pub protocol: Option<String>,
    /// The region whose replica leads at first
    #[arg(long, value_name = "REGION")]
    pub leader: Option<String>,
    /// What clients do [default: ycsb-a without faults, check with them; of transactions retwis and txn-check]
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,
    /// How many records the workload has, in the place of its own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub records: Option<u64>,
    /// Of transactions, how steeply the popularity of records falls: the exponent of Zipf's law, above 0 and below 1
    #[arg(long, value_name = "EXPONENT")]
    pub zipf: Option<f64>,
    /// Try transactions again that were aborted, after a pause
    #[arg(long)]
    pub retry: bool,
    /// Sessions in all, spread over the nodes, or in each region named [default: one a node, two with faults]
    #[arg(long, value_name = "N | REGION=N,...")]
    pub clients: Option<String>,
    /// A parameter of the protocol, in the place of what the file says; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Nodes of this region handle everything so many times slower (with --cpu); may be given several times
    #[arg(long, value_name = "REGION=FACTOR", requires = "cpu")]
    pub straggler: Vec<String>,
    /// Share of requests that go to one hot key, percent
    #[arg(long, value_name = "PCT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub conflict: Option<u8>,
    /// Requests a second in all, as an open loop; transactions, as long as sessions keep up [default: closed loop]
    #[arg(long, value_name = "R")]
    pub rate: Option<f64>,
    /// Virtual time of the run, e.g. 30s
    #[arg(long, value_name = "TIME", value_parser = length)]
    pub duration: Option<Span>,
    /// One run, of this seed
    #[arg(long, value_name = "S", conflicts_with = "seeds")]
    pub seed: Option<u64>,
    /// This many runs, of the seeds from 0 or from --from on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=u32::MAX as u64))]
    pub seeds: Option<u64>,
    /// The first seed of --seeds
    #[arg(long, value_name = "S", default_value_t = 0, requires = "seeds", conflicts_with = "seed", value_parser = clap::value_parser!(u64).range(..1 << 63))]
    pub from: u64,
    /// none, all, or a list: crash,partition,loss,reorder,clock,disk,...
    #[arg(long, value_name = "KINDS", default_value = "none")]
    pub faults: String,
    /// Threads for --seeds [default: the machine's cores]
    #[arg(long, value_name = "T", requires = "seeds", conflicts_with = "seed", value_parser = crate::learn::arguments::threads)]
    pub threads: Option<NonZeroUsize>,
    /// Delays jitter by up to this share of the longest, percent [default: the file's without faults, drawn with them]
    #[arg(long, value_name = "PCT")]
    pub jitter: Option<f64>,
    /// Time of one disk sync, e.g. 500us [default: none without faults, drawn with them]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub sync: Option<Span>,
    /// Model the processor: cores, cost a message and a byte as measured from the runtime
    #[arg(long)]
    pub cpu: bool,
    /// Print which messages crossed the network, how many and how large, for each request or transaction
    #[arg(long, conflicts_with_all = ["trace", "trace_svg"])]
    pub messages: bool,
    /// Print the flow of messages
    #[arg(long, conflicts_with = "seeds")]
    pub trace: bool,
    /// Draw the flow of messages as a space-time diagram
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    pub trace_svg: Option<PathBuf>,
    /// Write what the clients saw, as JSON Lines
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    pub history: Option<PathBuf>,
    /// Of a keyspace in partitions, move keys between them so often in each run, at random
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub moves: u32,
    /// Divide the keyspace into so many partitions, in the place of what the file says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub partitions: Option<u16>,
    /// Plant a bug on purpose, to see that it is reported; the answer to a name that is none lists those of the protocol
    #[arg(long, value_name = "BUG")]
    pub plant: Option<String>,
    /// How figures are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone bench --endpoint 127.0.0.1:7001 --workload ycsb-b --clients 50\n  isochrone bench cluster.toml --rate 1000 --duration 30s\n  isochrone bench cluster.toml --workload retwis --clients 100 --history history.jsonl\n\nWorkloads of commands: ycsb-a to ycsb-f, set, get, incr, check. Transactions (retwis, ycsbt, smallbank, bank,\nledger, txn-check) go through gRPC: there --endpoint is where a node's `grpc` listens, a client has one connection and one transaction under way, and what is aborted is counted and not tried again."
)]
#[command(group = ArgGroup::new("target").args(["file", "endpoint"]).required(true))]
pub struct Bench {
    /// A deployment whose nodes are running: clients are spread over its regions, and begin in the keyspace of Redis'
    /// database 0
    pub file: Option<PathBuf>,
    /// A Redis endpoint, ours or any other; for transactions a gRPC endpoint; may be given several times
    #[arg(long, value_name = "HOST:PORT")]
    pub endpoint: Vec<String>,
    /// The keyspace of transactions [default: the file's only one, or main]
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
    /// What clients do (below)
    #[arg(long, value_name = "NAME", default_value = "ycsb-a")]
    pub workload: String,
    /// Connections in all
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub clients: u32,
    /// Requests under way on each connection of a closed loop
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub pipeline: u32,
    /// Requests a second in all, as an open loop; of transactions at most so many [default: closed loop]
    #[arg(long, value_name = "R")]
    pub rate: Option<f64>,
    /// Share of requests that go to one hot key, percent
    #[arg(long, value_name = "PCT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub conflict: Option<u8>,
    /// How long, e.g. 10s
    #[arg(long, value_name = "TIME", value_parser = length, default_value = "10s")]
    pub duration: Span,
    /// Records that exist before the run [default: the workload's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub records: Option<u64>,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES")]
    pub value_size: Option<usize>,
    /// The seed of what clients ask
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Write what the clients saw, as JSON Lines for `isochrone check`
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// user:password, where the endpoint asks for one
    #[arg(long, value_name = "USER:PASSWORD", env = "ISOCHRONE_AUTH", hide_env_values = true)]
    pub auth: Option<String>,
    /// Reconnect and go on when a connection breaks; requests then under way count as unknown
    #[arg(long)]
    pub reconnect: bool,
    /// How figures are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone check history.jsonl\n  isochrone check history.jsonl --promise sequenced\n  isochrone check history.jsonl --model transactions --isolation serializable\n\nExit status: 0 it holds, 1 it does not, 3 undecided within the limit."
)]
pub struct Check {
    /// The history, JSON Lines (docs/histories.md); - for standard input
    pub history: PathBuf,
    /// What the operations mean: kv, register, bank; or transactions, whose lines are of another form
    #[arg(long, value_name = "NAME", default_value = "kv")]
    pub model: String,
    /// What the keyspace promises of its commands: linearizable (default), linearizable-by-key, sequenced, serializable
    #[arg(long, value_name = "NAME")]
    pub promise: Option<String>,
    /// What transactions are held against: serializable, strict-updates, strictly-serializable (default)
    #[arg(long, value_name = "NAME")]
    pub isolation: Option<String>,
    /// Give up after this long, e.g. 60s
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "60s")]
    pub limit: Span,
    /// How the verdict is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone reproduce list\n  isochrone reproduce self-check --format json\n  isochrone reproduce domino --only 'fig49a-*'\n\nExit status: 0 every figure that was measured is as published, or a note says why not; 1 one is off, and no note says why.\nSome evaluations take many minutes; --only leaves out what it does not name."
)]
pub struct Reproduce {
    /// Which evaluation; `list` names them
    pub name: String,
    /// Only these rows, and with --svg these drawings; `*` at the end of one stands for any ending
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Draw the distributions of the published plots into this folder
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// How figures are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone cert cluster.toml --out certs\n  isochrone cert cluster.toml --out certs --host va1=va1.example.com --host va1=redis.example.com\n\nWhat a node shows to clients is good for the hosts of its addresses in the file, its name, localhost and loopback, and for\nthose of --host. Name these again whenever certificates are renewed."
)]
pub struct Cert {
    /// The deployment: two pairs for each of its nodes, for peers and for clients
    pub file: PathBuf,
    /// Where the files go; an authority that is there already is used again
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Days until the certificates end; those of a new authority are ten times as many
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
    /// Another host by which clients reach this node, as often as there are: a DNS name (*.example.com stands for all below),
    /// also that of a load balancer before it, or an IP address
    #[arg(long = "host", value_name = "NAME=HOST")]
    pub hosts: Vec<String>,
    /// How it is told which files were made
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone password\n  head -c 18 /dev/urandom | base64 | tee secret | isochrone password\n\nAt a terminal it asks for the password and does not show it; else it is the first line of standard input."
)]
pub struct Password {
    /// How the hash is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone man learn train > isochrone-learn-train.1\n  isochrone man --out /usr/local/share/man/man1"
)]
pub struct Man {
    /// The verb, e.g. learn train [default: the page of the program, which names them all]
    #[arg(conflicts_with = "out")]
    pub verb: Vec<String>,
    /// Write all pages here: isochrone.1, isochrone-up.1, isochrone-learn-train.1, ...; made where it does not exist
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  isochrone completions bash > /etc/bash_completion.d/isochrone")]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Parses a time with its unit: 250us, 1.5ms, 30s, 5m.
pub(crate) fn span(text: &str) -> Result<Span, String> {
    let wrong = || format!("`{text}` is no time; a number and its unit would be, e.g. 250us, 1.5ms, 30s, 5m");
    // On the command line a time is one word; files also take a space before the unit.
    if text.contains(char::is_whitespace) {
        return Err(wrong());
    }
    parse_span(text).map_err(|_| wrong())
}

/// Parses how long something is to take: a time above 0.
fn length(text: &str) -> Result<Span, String> {
    match span(text)? {
        Span::ZERO => Err("in no time nothing happens; a time above 0 would be right, e.g. 10s".to_owned()),
        length => Ok(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_run_takes_some_time() {
        assert_eq!(length("1ms"), Ok(Span::from_millis(1)));
        for nothing in ["0s", "0.0ms"] {
            let error = length(nothing).expect_err(nothing);
            assert!(error.contains("above 0"), "{error}");
        }
    }

    #[test]
    fn times_need_a_number_and_a_unit() {
        assert_eq!(span("250us"), Ok(Span::from_micros(250)));
        assert_eq!(span("1.5ms"), Ok(Span::from_micros(1500)));
        assert_eq!(span("2m"), Ok(Span::from_secs(120)));
        for wrong in ["", "5", "s", "5 s", "5x", "1.2.3s", "-1s"] {
            let error = span(wrong).expect_err(wrong);
            assert!(error.contains("250us"), "{error}");
        }
    }
}
