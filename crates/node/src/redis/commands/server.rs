//! Commands that the gateway answers or obeys itself: the connection, the server, transactions.

use super::Understood;
use crate::redis::acl;
use crate::redis::args::{blob, is, number};
use crate::redis::blocking;
use crate::redis::catalog;
use crate::redis::clients;
use crate::redis::complaint::Complaint;
use crate::redis::config;
use crate::redis::connection::Control;
use crate::redis::durability;
use crate::redis::info;
use crate::redis::latency;
use crate::redis::login;
use crate::redis::monitor;
use crate::redis::pubsub;
use crate::redis::request::Args;
use crate::redis::scripts;
use crate::redis::slowlog;
use crate::redis::spec::flag::{
    ADMIN, ALLOW_BUSY, DANGEROUS, FAST, LOADING, MOVABLE_KEYS, NO_AUTH, NO_MULTI, NOSCRIPT, PUBSUB, READ,
    SKIP_SLOWLOG, STALE, WRITE,
};
use crate::redis::spec::{ALL, Action, Given, Group, Keys, Spec, about};
use isochrone_core::command::Operation;

/// Answered whatever state the node is in.
const ALWAYS: u16 = NOSCRIPT | LOADING | STALE;
const GREETING: u16 = ALWAYS | FAST | NO_AUTH | ALLOW_BUSY;
const FLOW: u16 = ALWAYS | FAST | ALLOW_BUSY;

pub(crate) static CONNECTION: &[Spec] = &[
    Group::Connection
        .control("auth", -2, GREETING, about("1.0.0", "[username] password", "Logs in"), Control::Auth)
        .differs("`username:keyspace` also selects that keyspace, by name or index; not within MULTI"),
    Group::Connection.here(
        "client",
        -2,
        0,
        about("2.4.0", "", "About client connections"),
        Action::Container(CLIENT),
    ),
    Group::Connection.local(
        "echo",
        2,
        LOADING | STALE | FAST,
        about("1.0.0", "message", "The message"),
        info::echo,
    ),
    Group::Connection
        .control(
            "hello",
            -1,
            GREETING,
            about(
                "6.0.0",
                "[protover [AUTH username password] [SETNAME clientname]]",
                "Agrees on a version of the protocol",
            ),
            Control::Hello,
        )
        .differs("the username as for AUTH; not within MULTI"),
    Group::Connection.local(
        "ping",
        -1,
        FAST,
        about("1.0.0", "[message]", "Whether anybody is there"),
        info::ping,
    ),
    Group::Connection.control(
        "quit",
        -1,
        GREETING,
        about("1.0.0", "", "Closes the connection"),
        Control::Quit,
    ),
    Group::Connection.control(
        "reset",
        1,
        GREETING,
        about("6.2.0", "", "Makes the connection as if just accepted"),
        Control::Reset,
    ),
    Group::Connection
        .local(
            "select",
            2,
            LOADING | STALE | FAST,
            about("1.0.0", "index", "Selects a keyspace"),
            login::select_index,
        )
        .differs(
            "an index is a keyspace of the deployment file, each with its own protocol; within MULTI only \
             the one that is selected",
        ),
];

static CLIENT: &[Spec] = &[
    Group::Connection.local(
        "client|getname",
        2,
        ALWAYS,
        about("2.6.9", "", "The name of this connection"),
        clients::get_name,
    ),
    Group::Connection
        .local(
            "client|getredir",
            2,
            ALWAYS,
            about("6.0.0", "", "Where invalidations go"),
            clients::get_redirection,
        )
        .differs("always -1: there is no client-side caching"),
    Group::Connection.local(
        "client|help",
        2,
        LOADING | STALE,
        about("5.0.0", "", "This help"),
        catalog::help,
    ),
    Group::Connection.local(
        "client|id",
        2,
        ALWAYS,
        about("5.0.0", "", "The number of this connection"),
        clients::id,
    ),
    Group::Connection
        .local("client|info", 2, ALWAYS, about("6.2.0", "", "This connection"), clients::info)
        .differs("fields about buffers are zero"),
    Group::Connection
        .local(
            "client|kill",
            -3,
            ALWAYS | ADMIN,
            about(
                "2.4.0",
                "ip:port|[ID client-id] [ADDR ip:port] [LADDR ip:port] [USER username] [TYPE normal|pubsub] \
         [MAXAGE seconds] [SKIPME YES|NO]",
                "Closes connections",
            ),
            clients::kill,
        )
        .differs("connections of the same shard"),
    Group::Connection
        .local(
            "client|list",
            -2,
            ALWAYS | ADMIN,
            about("2.4.0", "[TYPE normal|pubsub] [ID client-id [client-id ...]]", "All connections"),
            clients::list,
        )
        .differs(
            "connections of the same shard; fields about buffers are zero; `watch`, `tot-net-in` and `tot-net-out` of later versions; no flag `d`, since it is looked at `EXEC` whether a watched key \
             has changed",
        ),
    Group::Connection
        .local(
            "client|no-evict",
            3,
            ALWAYS | ADMIN,
            about("7.0.0", "ON|OFF", "Keeps this connection when memory is short"),
            clients::switch,
        )
        .differs("without effect: connections are never evicted"),
    Group::Connection
        .local(
            "client|no-touch",
            3,
            ALWAYS,
            about("7.2.0", "ON|OFF", "Leaves the times of last use alone"),
            clients::switch,
        )
        .differs("without effect: there are none"),
    Group::Connection.local(
        "client|reply",
        3,
        ALWAYS,
        about("3.2.0", "ON|OFF|SKIP", "Holds replies back"),
        clients::reply_mode,
    ),
    Group::Connection.local(
        "client|setinfo",
        4,
        ALWAYS,
        about("7.2.0", "LIB-NAME libname|LIB-VER libver", "Says which library this is"),
        clients::set_info,
    ),
    Group::Connection.local(
        "client|setname",
        3,
        ALWAYS,
        about("2.6.9", "connection-name", "Names this connection"),
        clients::set_name,
    ),
    Group::Connection
        .local(
            "client|unblock",
            -3,
            ALWAYS | ADMIN,
            about("5.0.0", "client-id [TIMEOUT|ERROR]", "Ends the wait of a connection"),
            blocking::unblock,
        )
        .differs("connections of the same shard"),
];

/// Users are configuration, not data.
const OF_NODE: &str = "at this node only";
const OF_NODE_RULES: &str = "at this node only; there are neither selectors nor first arguments (`+select|0`); rules about commands that \
     are absent here are kept without effect";

static ACL: &[Spec] = &[
    Group::Server
        .local(
            "acl|cat",
            -2,
            ALWAYS,
            about("6.0.0", "[category]", "The categories of commands, or the commands of one"),
            acl::categories,
        )
        .differs("the commands that are here"),
    Group::Server
        .local(
            "acl|deluser",
            -3,
            ALWAYS | ADMIN,
            about("6.0.0", "username [username ...]", "Deletes users, and ends their connections"),
            acl::delete_user,
        )
        .differs(OF_NODE),
    Group::Server.local(
        "acl|dryrun",
        -4,
        ALWAYS | ADMIN,
        about("7.0.0", "username command [arg [arg ...]]", "Whether a user could execute a command"),
        acl::dry_run,
    ),
    Group::Server.local(
        "acl|genpass",
        -2,
        ALWAYS,
        about("6.0.0", "[bits]", "A random password"),
        acl::generate,
    ),
    Group::Server
        .local(
            "acl|getuser",
            3,
            ALWAYS | ADMIN,
            about("6.0.0", "username", "The rules of a user"),
            acl::get_user,
        )
        .differs("users of the deployment file show no password; there are no selectors"),
    Group::Server.local("acl|help", 2, LOADING | STALE, about("6.0.0", "", "This help"), catalog::help),
    Group::Server
        .local(
            "acl|list",
            2,
            ALWAYS | ADMIN,
            about("6.0.0", "", "All users as lines of an ACL file"),
            acl::list,
        )
        .differs("users of the deployment file show no password"),
    Group::Server
        .local(
            "acl|load",
            2,
            ALWAYS | ADMIN,
            about("6.0.0", "", "Reads the users from the ACL file"),
            acl::load,
        )
        .differs("the file is `aclfile` of `[security]`; users of the deployment file stay"),
    Group::Server.local(
        "acl|log",
        -2,
        ALWAYS | ADMIN,
        about("6.0.0", "[count|RESET]", "What was denied of late"),
        acl::log,
    ),
    Group::Server
        .local(
            "acl|save",
            2,
            ALWAYS | ADMIN,
            about("6.0.0", "", "Writes the users to the ACL file"),
            acl::save,
        )
        .differs("the file is `aclfile` of `[security]`; Argon2id hashes stay in the deployment file"),
    Group::Server
        .local(
            "acl|setuser",
            -3,
            ALWAYS | ADMIN,
            about("6.0.0", "username [rule [rule ...]]", "Makes or changes a user"),
            acl::set_user,
        )
        .differs(OF_NODE_RULES),
    Group::Server.local(
        "acl|users",
        2,
        ALWAYS | ADMIN,
        about("6.0.0", "", "The names of all users"),
        acl::users,
    ),
    Group::Server.local(
        "acl|whoami",
        2,
        ALWAYS,
        about("6.0.0", "", "The user of this connection"),
        acl::who_am_i,
    ),
];

pub(crate) static SERVER: &[Spec] = &[
    Group::Server.here("acl", -2, 0, about("6.0.0", "", "About users"), Action::Container(ACL)),
    Group::Server.here("command", -1, LOADING | STALE, about("2.8.13", "", "About commands"), Action::Container(COMMAND)),
    Group::Server.here("config", -2, 0, about("2.0.0", "", "About settings"), Action::Container(CONFIG)),
    Group::Server.data("dbsize", 1, READ | FAST, about("1.0.0", "", "How many keys there are"), |_, _| {
        Ok(Operation::DbSize.into())
    }).with_keys(Keys::None),
    Group::Server.data("flushall", -1, WRITE | DANGEROUS, about("1.0.0", "[ASYNC|SYNC]", "Deletes all keys"), flush).with_keys(Keys::None)
    .differs("deletes the keys of the selected keyspace only, as FLUSHDB does"),
    Group::Server.data("flushdb", -1, WRITE | DANGEROUS, about("1.0.0", "[ASYNC|SYNC]", "Deletes the keys of the selected keyspace"), flush).with_keys(Keys::None),
    Group::Server.local("info", -1, LOADING | STALE | DANGEROUS, about("1.0.0", "[section [section ...]]", "About this node"), info::info)
    .differs("fewer fields, and a section `isochrone`: durability, and for each keyspace protocol, guarantee and leader; the \
             time of a command is that from its request to its answer; keys are those of the replicas at this node, and `avg_ttl` is 0"),
    Group::Server.here("latency", -2, 0, about("2.8.13", "", "About how long commands take"), Action::Container(LATENCY)),
    Group::Server.local("lolwut", -1, READ | FAST, about("5.0.0", "[VERSION version]", "A picture"), info::lolwut)
        .differs("another picture"),
    Group::Server.here("memory", -2, 0, about("4.0.0", "", "About memory"), Action::Container(MEMORY)),
    Group::Server.local("monitor", 1, ADMIN | NOSCRIPT | LOADING | STALE, about("1.0.0", "", "Tells of every command that this node is asked"), monitor::begin)
    .differs("of the Redis clients of this node; what is queued is told at `EXEC`, also where a watched key has changed; what a script \
             does is not told apart"),
    Group::Server.local("role", 1, NOSCRIPT | LOADING | STALE | FAST | DANGEROUS, about("2.8.12", "", "What this node is to its replicas"), info::role)
    .differs("always a master without replicas: every node takes reads and writes"),
    Group::Server.here("slowlog", -2, 0, about("2.2.12", "", "About slow commands"), Action::Container(SLOWLOG)),
    Group::Server.local("time", 1, LOADING | STALE | FAST, about("2.6.0", "", "The wall clock of this node"), info::time),
    Group::Server.here("wait", 3, NOSCRIPT, about("3.0.0", "numreplicas timeout", "How many replicas have the writes of this connection"), Action::Durable(durability::wait))
    .differs(SYNCED),
    Group::Server.here("waitaof", 4, NOSCRIPT, about("7.2.0", "numlocal numreplicas timeout", "How many disks have the writes of this connection"), Action::Durable(durability::wait_aof))
    .differs(SYNCED),
];

const SYNCED: &str = "what was answered is on the disks of a majority, so the answer comes at once: the majority less one, \
                      whatever number is asked for; with `curp` it comes once everything that was written before \
                      is on the disks of all copies, and says how many those are, or 0 once the time is over";

static COMMAND: &[Spec] = &[
    Group::Server.local(
        "command|count",
        2,
        LOADING | STALE,
        about("2.8.13", "", "How many commands there are"),
        catalog::count,
    ),
    Group::Server.local(
        "command|docs",
        -2,
        LOADING | STALE,
        about("7.0.0", "[command-name [command-name ...]]", "Documentation of commands"),
        catalog::docs,
    ),
    Group::Server.local(
        "command|getkeys",
        -4,
        LOADING | STALE,
        about("2.8.13", "command [arg [arg ...]]", "The keys of a command"),
        catalog::get_keys,
    ),
    Group::Server.local("command|help", 2, LOADING | STALE, about("5.0.0", "", "This help"), catalog::help),
    Group::Server
        .local(
            "command|info",
            -2,
            LOADING | STALE,
            about("2.8.13", "[command-name [command-name ...]]", "Properties of commands"),
            catalog::info,
        )
        .differs(
            "no tips; of keys only whether they are read (`RO`) or perhaps written (`RW`), in one specification also where \
             Redis tells the first apart from the others",
        ),
    Group::Server.local(
        "command|list",
        -2,
        LOADING | STALE,
        about("7.0.0", "[FILTERBY ACLCAT category|PATTERN pattern|MODULE module-name]", "Names of commands"),
        catalog::list,
    ),
];

static CONFIG: &[Spec] = &[
    Group::Server
        .local(
            "config|get",
            -3,
            ALWAYS | ADMIN,
            about("2.0.0", "parameter [parameter ...]", "Settings"),
            config::get,
        )
        .differs("the settings that clients ask for, as they are here, and `elements` of `[limits]`"),
    Group::Server.local("config|help", 2, LOADING | STALE, about("5.0.0", "", "This help"), catalog::help),
    Group::Server
        .local(
            "config|set",
            -4,
            ALWAYS | ADMIN,
            about("2.0.0", "parameter value [parameter value ...]", "Changes settings"),
            config::set,
        )
        .differs(
            "accepted only where it changes nothing, since the deployment file decides; and for `slowlog-log-slower-than`, \
             `slowlog-max-len` (up to 4096), `notify-keyspace-events` and `maxmemory`, at this node until it stops",
        ),
];

const SLOW: &str = "the time of a command is that from its request to its answer, with what its protocol waits for; commands that \
                    wait for others, and those that ask nothing of a keyspace, are not among them; EXEC is one; of this node";

static SLOWLOG: &[Spec] = &[
    Group::Server
        .local(
            "slowlog|get",
            -2,
            ADMIN | LOADING | STALE,
            about("2.2.12", "[count]", "The latest slow commands"),
            slowlog::get,
        )
        .differs(SLOW),
    Group::Server.local("slowlog|help", 2, LOADING | STALE, about("6.2.0", "", "This help"), catalog::help),
    Group::Server.local(
        "slowlog|len",
        2,
        ADMIN | LOADING | STALE,
        about("2.2.12", "", "How many slow commands are kept"),
        slowlog::len,
    ),
    Group::Server.local(
        "slowlog|reset",
        2,
        ADMIN | LOADING | STALE,
        about("2.2.12", "", "Forgets the slow commands"),
        slowlog::reset,
    ),
];

const LATENCIES: u16 = ADMIN | NOSCRIPT | LOADING | STALE;

const EVENTS: &str = "there are no events: `latency-monitor-threshold` is 0 and stays so";

static LATENCY: &[Spec] = &[
    Group::Server.local("latency|doctor", 2, LATENCIES, about("2.8.13", "", "Advice in words"), latency::doctor)
        .differs("it only says where times are told"),
    Group::Server.local("latency|graph", 3, LATENCIES, about("2.8.13", "event", "The times of an event, drawn"), latency::graph)
        .differs(EVENTS),
    Group::Server.local("latency|help", 2, LOADING | STALE, about("2.8.13", "", "This help"), catalog::help),
    Group::Server.local("latency|histogram", -2, LATENCIES, about("7.0.0", "[command [command ...]]", "How many commands took how long"), latency::histogram)
        .differs("the time of a command is that from its request to its answer, with what it waited for others, 69 s where it was \
                 longer; commands that ask nothing of a keyspace are not among them, but for WAIT"),
    Group::Server.local("latency|history", 3, LATENCIES, about("2.8.13", "event", "The times of an event"), latency::nothing)
        .differs(EVENTS),
    Group::Server.local("latency|latest", 2, LATENCIES, about("2.8.13", "", "The latest times of all events"), latency::nothing)
        .differs(EVENTS),
    Group::Server.local("latency|reset", -2, LATENCIES, about("2.8.13", "[event [event ...]]", "Forgets the times of events"), latency::reset)
        .differs(EVENTS),
];

static MEMORY: &[Spec] = &[
    Group::Server.local("memory|help", 2, LOADING | STALE, about("4.0.0", "", "This help"), catalog::help),
    Group::Server
        .data(
            "memory|usage",
            -3,
            READ,
            about("4.0.0", "key [SAMPLES count]", "About how much memory a key takes"),
            weight,
        )
        .with_keys(Keys::Range { first: 2, last: 2, step: 1 })
        .differs("what a key takes here, reckoned from lengths, at one replica"),
];

pub(crate) static CLUSTER: &[Spec] = &[
    Group::Cluster.here(
        "cluster",
        -2,
        0,
        about("3.0.0", "", "About Redis Cluster, which this is not"),
        Action::Container(CLUSTER_CHILDREN),
    ),
    Group::Cluster
        .local(
            "readonly",
            1,
            LOADING | STALE | FAST,
            about("3.0.0", "", "Allows reads from a replica"),
            info::agree,
        )
        .differs("without effect: every node takes reads and writes"),
    Group::Cluster
        .local("readwrite", 1, LOADING | STALE | FAST, about("3.0.0", "", "Takes READONLY back"), info::agree)
        .differs("without effect: every node takes reads and writes"),
];

static CLUSTER_CHILDREN: &[Spec] = &[
    Group::Cluster.local("cluster|help", 2, LOADING | STALE, about("5.0.0", "", "This help"), catalog::help),
    Group::Cluster
        .local("cluster|info", 2, STALE, about("3.0.0", "", "The state of the cluster"), info::cluster_info)
        .differs("says `cluster_enabled:0`, where a Redis without a cluster refuses it"),
];

pub(crate) static TRANSACTIONS: &[Spec] = &[
    Group::Transactions.control(
        "discard",
        1,
        FLOW,
        about("2.0.0", "", "Forgets what MULTI queued"),
        Control::Discard,
    ),
    Group::Transactions
        .control(
            "exec",
            1,
            ALWAYS | SKIP_SLOWLOG,
            about("1.2.0", "", "Executes what MULTI queued, as one"),
            Control::Exec,
        )
        .differs("a transaction stays in the keyspace that was selected"),
    Group::Transactions.control(
        "multi",
        1,
        FLOW,
        about("1.2.0", "", "Queues the commands that follow"),
        Control::Multi,
    ),
    Group::Transactions.local("unwatch", 1, FLOW, about("2.2.0", "", "Lets watched keys go"), info::unwatch),
    Group::Transactions
        .control(
            "watch",
            -2,
            FLOW,
            about("2.2.0", "key [key ...]", "Makes EXEC do nothing if one of these keys changes before"),
            Control::Watch,
        )
        .with_keys(ALL),
];

/// Subscribing is not queued by MULTI: EXEC has one reply, a subscription one for each name.
const SUBSCRIBES: u16 = PUBSUB | NOSCRIPT | LOADING | STALE | NO_MULTI;

pub(crate) static PUBLISHING: &[Spec] = &[
    Group::PubSub
        .local(
            "psubscribe",
            -2,
            SUBSCRIBES,
            about("2.0.0", "pattern [pattern ...]", "Subscribes to the channels that match"),
            pubsub::psubscribe,
        )
        .differs(NOT_IN_MULTI),
    Group::PubSub
        .local(
            "publish",
            3,
            PUBSUB | LOADING | STALE | FAST,
            about("2.0.0", "channel message", "Tells a message to whoever has subscribed"),
            pubsub::publish,
        )
        .differs(PUBLISHES),
    Group::PubSub.here(
        "pubsub",
        -2,
        0,
        about("2.8.0", "", "About subscriptions"),
        Action::Container(PUBSUB_CHILDREN),
    ),
    Group::PubSub
        .local(
            "punsubscribe",
            -1,
            SUBSCRIBES,
            about("2.0.0", "[pattern [pattern ...]]", "Ends subscriptions to patterns"),
            pubsub::punsubscribe,
        )
        .differs(NOT_IN_MULTI),
    Group::PubSub
        .local(
            "spublish",
            3,
            PUBSUB | LOADING | STALE | FAST,
            about("7.0.0", "shardchannel message", "Tells a message to subscribers of a shard channel"),
            pubsub::spublish,
        )
        .with_keys(Keys::ShardChannels { last: 1 })
        .differs(PUBLISHES),
    Group::PubSub
        .local(
            "ssubscribe",
            -2,
            SUBSCRIBES,
            about("7.0.0", "shardchannel [shardchannel ...]", "Subscribes to shard channels"),
            pubsub::ssubscribe,
        )
        .with_keys(Keys::ShardChannels { last: -1 })
        .differs(NOT_IN_MULTI),
    Group::PubSub
        .local(
            "subscribe",
            -2,
            SUBSCRIBES,
            about("2.0.0", "channel [channel ...]", "Subscribes to channels"),
            pubsub::subscribe,
        )
        .differs(NOT_IN_MULTI),
    Group::PubSub
        .local(
            "sunsubscribe",
            -1,
            SUBSCRIBES,
            about("7.0.0", "[shardchannel [shardchannel ...]]", "Ends subscriptions to shard channels"),
            pubsub::sunsubscribe,
        )
        .with_keys(Keys::ShardChannels { last: -1 })
        .differs(NOT_IN_MULTI),
    Group::PubSub
        .local(
            "unsubscribe",
            -1,
            SUBSCRIBES,
            about("2.0.0", "[channel [channel ...]]", "Ends subscriptions to channels"),
            pubsub::unsubscribe,
        )
        .differs(NOT_IN_MULTI),
];

const PUBLISHES: &str = "reaches subscribers at every node, at most once; the answer counts those at this node; \
                         within MULTI it is published only when the transaction was executed";
const NOT_IN_MULTI: &str = "not within MULTI";
const TOLD: &str = "of all nodes: of others what they have told last, each of 10,000 names of 1 MiB at most";

static PUBSUB_CHILDREN: &[Spec] = &[
    Group::PubSub
        .local(
            "pubsub|channels",
            -2,
            PUBSUB | LOADING | STALE,
            about("2.8.0", "[pattern]", "The channels that somebody has subscribed to"),
            pubsub::channels,
        )
        .differs(TOLD),
    Group::PubSub.local("pubsub|help", 2, LOADING | STALE, about("6.2.0", "", "This help"), catalog::help),
    Group::PubSub
        .local(
            "pubsub|numpat",
            2,
            PUBSUB | LOADING | STALE,
            about("2.8.0", "", "How many patterns somebody has subscribed to"),
            pubsub::numpat,
        )
        .differs(TOLD),
    Group::PubSub
        .local(
            "pubsub|numsub",
            -2,
            PUBSUB | LOADING | STALE,
            about("2.8.0", "[channel [channel ...]]", "How many have subscribed to channels"),
            pubsub::numsub,
        )
        .differs(TOLD),
    Group::PubSub
        .local(
            "pubsub|shardchannels",
            -2,
            PUBSUB | LOADING | STALE,
            about("7.0.0", "[pattern]", "The shard channels that somebody has subscribed to"),
            pubsub::shard_channels,
        )
        .differs(TOLD),
    Group::PubSub
        .local(
            "pubsub|shardnumsub",
            -2,
            PUBSUB | LOADING | STALE,
            about("7.0.0", "[shardchannel [shardchannel ...]]", "How many have subscribed to shard channels"),
            pubsub::shard_numsub,
        )
        .differs(TOLD),
];

pub(crate) static SCRIPTING: &[Spec] = &[
    Group::Scripting
        .data(
            "eval",
            -3,
            NOSCRIPT | STALE | MOVABLE_KEYS,
            about("2.6.0", "script numkeys [key [key ...]] [arg [arg ...]]", "Executes a script"),
            scripts::eval,
        )
        .with_keys(SCRIPT_KEYS)
        .differs(LOCKS_ONLY),
    Group::Scripting
        .data(
            "evalsha",
            -3,
            NOSCRIPT | STALE | MOVABLE_KEYS,
            about("2.6.0", "sha1 numkeys [key [key ...]] [arg [arg ...]]", "Executes a script by its digest"),
            scripts::evalsha,
        )
        .with_keys(SCRIPT_KEYS)
        .differs(LOCKS_ONLY),
    Group::Scripting.here("script", -2, 0, about("2.6.0", "", "About scripts"), Action::Container(SCRIPT)),
];

static SCRIPT: &[Spec] = &[
    Group::Scripting.local(
        "script|exists",
        -3,
        NOSCRIPT,
        about("2.6.0", "sha1 [sha1 ...]", "Whether scripts are known"),
        scripts::exists,
    ),
    Group::Scripting
        .local(
            "script|flush",
            -2,
            NOSCRIPT,
            about("2.6.0", "[ASYNC|SYNC]", "Forgets scripts"),
            scripts::flush,
        )
        .differs("those that are known by themselves stay known"),
    Group::Scripting.local("script|help", 2, LOADING | STALE, about("5.0.0", "", "This help"), catalog::help),
    Group::Scripting
        .local("script|kill", 2, NOSCRIPT | ALLOW_BUSY, about("2.6.0", "", "Stops a script"), scripts::kill)
        .differs("there is never one to stop"),
    Group::Scripting
        .local(
            "script|load",
            3,
            NOSCRIPT | STALE,
            about("2.6.0", "script", "Makes a script known"),
            scripts::load,
        )
        .differs(LOCKS_ONLY),
];

const SCRIPT_KEYS: Keys = Keys::Counted { at: 2, target: false };
const LOCKS_ONLY: &str = "there is no interpreter, by design: scripts of well-known libraries are known and executed as operations, any other is refused";

fn flush(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    match args.len() {
        1 => {}
        2 if is(args.at(1), "ASYNC") || is(args.at(1), "SYNC") => {}
        _ => return Err(Complaint::Syntax),
    }
    Ok(Operation::Flush.into())
}

/// How many elements are looked at where nobody says how many.
const SAMPLES: u64 = 5;

fn weight(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let mut samples = SAMPLES;
    for at in (3..args.len()).step_by(2) {
        if !is(args.at(at), "SAMPLES") || at + 1 == args.len() {
            return Err(Complaint::Syntax);
        }
        samples = u64::try_from(number(args.at(at + 1))?).map_err(|_| Complaint::Syntax)?;
    }
    Ok(Operation::Weight { key: blob(args.at(2)), samples }.into())
}
