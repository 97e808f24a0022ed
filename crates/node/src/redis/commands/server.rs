//! Commands that the gateway answers or obeys itself: the connection, the server, transactions.

use super::Understood;
use crate::redis::args::is;
use crate::redis::blocking;
use crate::redis::catalog;
use crate::redis::clients;
use crate::redis::complaint::Complaint;
use crate::redis::config;
use crate::redis::connection::Control;
use crate::redis::info;
use crate::redis::login;
use crate::redis::pubsub;
use crate::redis::request::Args;
use crate::redis::scripts;
use crate::redis::spec::flag::{
    ADMIN, ALLOW_BUSY, DANGEROUS, FAST, LOADING, MOVABLE_KEYS, NO_AUTH, NO_MULTI, NOSCRIPT, PUBSUB, READ,
    SKIP_SLOWLOG, STALE, WRITE,
};
use crate::redis::spec::{ALL, Action, Given, Group, Keys, Local, Spec};
use isochrone_core::command::Operation;

/// Answered whatever state the node is in.
const ALWAYS: u16 = NOSCRIPT | LOADING | STALE;
const GREETING: u16 = ALWAYS | FAST | NO_AUTH | ALLOW_BUSY;
const FLOW: u16 = ALWAYS | FAST | ALLOW_BUSY;

#[allow(clippy::too_many_arguments)] // A row of a table: the columns are its fields.
const fn control(
    group: Group,
    name: &'static str,
    arity: i32,
    flags: u16,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
    control: Control,
) -> Spec {
    Spec::here(group, name, arity, flags, since, syntax, summary, Action::Control(control))
}

#[allow(clippy::too_many_arguments)]
const fn local(
    group: Group,
    name: &'static str,
    arity: i32,
    flags: u16,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
    local: Local,
) -> Spec {
    Spec::here(group, name, arity, flags, since, syntax, summary, Action::Local(local))
}

pub(crate) static CONNECTION: &[Spec] = &[
    control(
        Group::Connection,
        "auth",
        -2,
        GREETING,
        "1.0.0",
        "[username] password",
        "Logs in",
        Control::Auth,
    )
    .differs("`username:keyspace` also selects that keyspace, by name or index"),
    Spec::here(
        Group::Connection,
        "client",
        -2,
        0,
        "2.4.0",
        "",
        "About client connections",
        Action::Container(CLIENT),
    ),
    local(
        Group::Connection,
        "echo",
        2,
        LOADING | STALE | FAST,
        "1.0.0",
        "message",
        "The message",
        info::echo,
    ),
    control(
        Group::Connection,
        "hello",
        -1,
        GREETING,
        "6.0.0",
        "[protover [AUTH username password] [SETNAME clientname]]",
        "Agrees on a version of the protocol",
        Control::Hello,
    )
    .differs("the username as for AUTH"),
    local(Group::Connection, "ping", -1, FAST, "1.0.0", "[message]", "Whether anybody is there", info::ping),
    control(Group::Connection, "quit", -1, GREETING, "1.0.0", "", "Closes the connection", Control::Quit),
    control(
        Group::Connection,
        "reset",
        1,
        GREETING,
        "6.2.0",
        "",
        "Makes the connection as if just accepted",
        Control::Reset,
    ),
    local(
        Group::Connection,
        "select",
        2,
        LOADING | STALE | FAST,
        "1.0.0",
        "index",
        "Selects a keyspace",
        login::select_index,
    )
    .differs("an index is a keyspace of the deployment file, each with its own protocol; not within MULTI"),
];

static CLIENT: &[Spec] = &[
    local(
        Group::Connection,
        "client|getname",
        2,
        ALWAYS,
        "2.6.9",
        "",
        "The name of this connection",
        clients::get_name,
    ),
    local(
        Group::Connection,
        "client|getredir",
        2,
        ALWAYS,
        "6.0.0",
        "",
        "Where invalidations go",
        clients::get_redirection,
    )
    .differs("always -1: there is no client-side caching"),
    local(Group::Connection, "client|help", 2, LOADING | STALE, "5.0.0", "", "This help", catalog::help),
    local(
        Group::Connection,
        "client|id",
        2,
        ALWAYS,
        "5.0.0",
        "",
        "The number of this connection",
        clients::id,
    ),
    local(Group::Connection, "client|info", 2, ALWAYS, "6.2.0", "", "This connection", clients::info)
        .differs("fields about buffers are zero"),
    local(
        Group::Connection,
        "client|kill",
        -3,
        ALWAYS | ADMIN,
        "2.4.0",
        "ip:port|[ID client-id] [ADDR ip:port] [LADDR ip:port] [USER username] [TYPE normal] \
         [MAXAGE seconds] [SKIPME YES|NO]",
        "Closes connections",
        clients::kill,
    )
    .differs("connections of the same shard"),
    local(
        Group::Connection,
        "client|list",
        -2,
        ALWAYS | ADMIN,
        "2.4.0",
        "[TYPE normal] [ID client-id [client-id ...]]",
        "All connections",
        clients::list,
    )
    .differs("connections of the same shard; fields about buffers are zero"),
    local(
        Group::Connection,
        "client|no-evict",
        3,
        ALWAYS | ADMIN,
        "7.0.0",
        "ON|OFF",
        "Keeps this connection when memory is short",
        clients::switch,
    )
    .differs("without effect: connections are never evicted"),
    local(
        Group::Connection,
        "client|no-touch",
        3,
        ALWAYS,
        "7.2.0",
        "ON|OFF",
        "Leaves the times of last use alone",
        clients::switch,
    )
    .differs("without effect: there are none"),
    local(
        Group::Connection,
        "client|reply",
        3,
        ALWAYS,
        "3.2.0",
        "ON|OFF|SKIP",
        "Holds replies back",
        clients::reply_mode,
    ),
    local(
        Group::Connection,
        "client|setinfo",
        4,
        ALWAYS,
        "7.2.0",
        "LIB-NAME libname|LIB-VER libver",
        "Says which library this is",
        clients::set_info,
    ),
    local(
        Group::Connection,
        "client|setname",
        3,
        ALWAYS,
        "2.6.9",
        "connection-name",
        "Names this connection",
        clients::set_name,
    ),
    local(
        Group::Connection,
        "client|unblock",
        -3,
        ALWAYS | ADMIN,
        "5.0.0",
        "client-id [TIMEOUT|ERROR]",
        "Ends the wait of a connection",
        blocking::unblock,
    )
    .differs("connections of the same shard"),
];

static ACL: &[Spec] = &[
    local(
        Group::Server,
        "acl|cat",
        -2,
        ALWAYS,
        "6.0.0",
        "[category]",
        "The categories of commands, or the commands of one",
        catalog::acl_categories,
    ),
    local(Group::Server, "acl|help", 2, LOADING | STALE, "6.0.0", "", "This help", catalog::help),
    local(
        Group::Server,
        "acl|whoami",
        2,
        ALWAYS,
        "6.0.0",
        "",
        "The user of this connection",
        clients::who_am_i,
    ),
];

pub(crate) static SERVER: &[Spec] = &[
    Spec::here(Group::Server, "acl", -2, 0, "6.0.0", "", "About users", Action::Container(ACL)),
    Spec::here(
        Group::Server,
        "command",
        -1,
        LOADING | STALE,
        "2.8.13",
        "",
        "About commands",
        Action::Container(COMMAND),
    ),
    Spec::here(Group::Server, "config", -2, 0, "2.0.0", "", "About settings", Action::Container(CONFIG)),
    Spec::data(Group::Server, "dbsize", 1, READ | FAST, Keys::None, "1.0.0", "", "How many keys there are", |_, _| {
        Ok(Operation::DbSize.into())
    }),
    Spec::data(
        Group::Server,
        "flushall",
        -1,
        WRITE | DANGEROUS,
        Keys::None,
        "1.0.0",
        "[ASYNC|SYNC]",
        "Deletes all keys",
        flush,
    )
    .differs("deletes the keys of the selected keyspace only, as FLUSHDB does"),
    Spec::data(
        Group::Server,
        "flushdb",
        -1,
        WRITE | DANGEROUS,
        Keys::None,
        "1.0.0",
        "[ASYNC|SYNC]",
        "Deletes the keys of the selected keyspace",
        flush,
    ),
    local(
        Group::Server,
        "info",
        -1,
        LOADING | STALE | DANGEROUS,
        "1.0.0",
        "[section [section ...]]",
        "About this node",
        info::info,
    )
    .differs("fewer fields, and a section `isochrone`: durability, and for each keyspace protocol, guarantee and leader"),
    local(Group::Server, "lolwut", -1, READ | FAST, "5.0.0", "[VERSION version]", "A picture", info::lolwut)
        .differs("another picture"),
    local(
        Group::Server,
        "role",
        1,
        NOSCRIPT | LOADING | STALE | FAST | ADMIN,
        "2.8.12",
        "",
        "What this node is to its replicas",
        info::role,
    )
    .differs("always a master without replicas: every node takes reads and writes"),
    local(Group::Server, "time", 1, LOADING | STALE | FAST, "2.6.0", "", "The wall clock of this node", info::time),
    local(
        Group::Server,
        "wait",
        3,
        NOSCRIPT,
        "3.0.0",
        "numreplicas timeout",
        "How many replicas have the writes of this connection",
        info::wait,
    )
    .differs("at once: a write that was answered is on the disks of a majority"),
    local(
        Group::Server,
        "waitaof",
        4,
        NOSCRIPT,
        "7.2.0",
        "numlocal numreplicas timeout",
        "How many disks have the writes of this connection",
        info::wait_aof,
    )
    .differs("at once: a write that was answered is on the disks of a majority"),
];

static COMMAND: &[Spec] = &[
    local(
        Group::Server,
        "command|count",
        2,
        LOADING | STALE,
        "2.8.13",
        "",
        "How many commands there are",
        catalog::count,
    ),
    local(
        Group::Server,
        "command|docs",
        -2,
        LOADING | STALE,
        "7.0.0",
        "[command-name [command-name ...]]",
        "Documentation of commands",
        catalog::docs,
    ),
    local(
        Group::Server,
        "command|getkeys",
        -4,
        LOADING | STALE,
        "2.8.13",
        "command [arg [arg ...]]",
        "The keys of a command",
        catalog::get_keys,
    ),
    local(Group::Server, "command|help", 2, LOADING | STALE, "5.0.0", "", "This help", catalog::help),
    local(
        Group::Server,
        "command|info",
        -2,
        LOADING | STALE,
        "2.8.13",
        "[command-name [command-name ...]]",
        "Properties of commands",
        catalog::info,
    ),
    local(
        Group::Server,
        "command|list",
        -2,
        LOADING | STALE,
        "7.0.0",
        "[FILTERBY ACLCAT category|PATTERN pattern|MODULE module-name]",
        "Names of commands",
        catalog::list,
    ),
];

static CONFIG: &[Spec] = &[
    local(
        Group::Server,
        "config|get",
        -3,
        ALWAYS | ADMIN,
        "2.0.0",
        "parameter [parameter ...]",
        "Settings",
        config::get,
    )
    .differs("the settings that clients ask for, as they are here"),
    local(Group::Server, "config|help", 2, LOADING | STALE, "5.0.0", "", "This help", catalog::help),
    local(
        Group::Server,
        "config|set",
        -4,
        ALWAYS | ADMIN,
        "2.0.0",
        "parameter value [parameter value ...]",
        "Changes settings",
        config::set,
    )
    .differs("accepted only where it changes nothing: the deployment file decides"),
];

pub(crate) static CLUSTER: &[Spec] = &[
    Spec::here(
        Group::Cluster,
        "cluster",
        -2,
        0,
        "3.0.0",
        "",
        "About Redis Cluster, which this is not",
        Action::Container(CLUSTER_CHILDREN),
    ),
    local(
        Group::Cluster,
        "readonly",
        1,
        LOADING | STALE | FAST,
        "3.0.0",
        "",
        "Allows reads from a replica",
        info::agree,
    )
    .differs("without effect: every node takes reads and writes"),
    local(
        Group::Cluster,
        "readwrite",
        1,
        LOADING | STALE | FAST,
        "3.0.0",
        "",
        "Takes READONLY back",
        info::agree,
    )
    .differs("without effect: every node takes reads and writes"),
];

static CLUSTER_CHILDREN: &[Spec] = &[
    local(Group::Cluster, "cluster|help", 2, LOADING | STALE, "5.0.0", "", "This help", catalog::help),
    local(
        Group::Cluster,
        "cluster|info",
        2,
        STALE,
        "3.0.0",
        "",
        "The state of the cluster",
        info::cluster_info,
    )
    .differs("`cluster_enabled:0`"),
];

pub(crate) static TRANSACTIONS: &[Spec] = &[
    control(
        Group::Transactions,
        "discard",
        1,
        FLOW,
        "2.0.0",
        "",
        "Forgets what MULTI queued",
        Control::Discard,
    ),
    control(
        Group::Transactions,
        "exec",
        1,
        ALWAYS | SKIP_SLOWLOG,
        "1.2.0",
        "",
        "Executes what MULTI queued, as one",
        Control::Exec,
    )
    .differs("a transaction stays in the keyspace that was selected"),
    control(
        Group::Transactions,
        "multi",
        1,
        FLOW,
        "1.2.0",
        "",
        "Queues the commands that follow",
        Control::Multi,
    ),
    local(Group::Transactions, "unwatch", 1, FLOW, "2.2.0", "", "Lets watched keys go", info::unwatch),
    control(
        Group::Transactions,
        "watch",
        -2,
        FLOW,
        "2.2.0",
        "key [key ...]",
        "Makes EXEC do nothing if one of these keys changes before",
        Control::Watch,
    )
    .with_keys(ALL),
];

/// Subscribing is not queued by MULTI: EXEC has one reply, a subscription one for each name.
const SUBSCRIBES: u16 = PUBSUB | NOSCRIPT | LOADING | STALE | NO_MULTI;

pub(crate) static PUBLISHING: &[Spec] = &[
    local(
        Group::PubSub,
        "psubscribe",
        -2,
        SUBSCRIBES,
        "2.0.0",
        "pattern [pattern ...]",
        "Subscribes to the channels that match",
        pubsub::psubscribe,
    )
    .differs(NOT_IN_MULTI),
    local(
        Group::PubSub,
        "publish",
        3,
        PUBSUB | LOADING | STALE | FAST,
        "2.0.0",
        "channel message",
        "Tells a message to whoever has subscribed",
        pubsub::publish,
    )
    .differs(
        "reaches subscribers at every node, at most once; the answer counts those at this node; \
         within MULTI it is published only when the transaction was executed",
    ),
    Spec::here(
        Group::PubSub,
        "pubsub",
        -2,
        0,
        "2.8.0",
        "",
        "About subscriptions",
        Action::Container(PUBSUB_CHILDREN),
    ),
    local(
        Group::PubSub,
        "punsubscribe",
        -1,
        SUBSCRIBES,
        "2.0.0",
        "[pattern [pattern ...]]",
        "Ends subscriptions to patterns",
        pubsub::punsubscribe,
    )
    .differs(NOT_IN_MULTI),
    local(
        Group::PubSub,
        "subscribe",
        -2,
        SUBSCRIBES,
        "2.0.0",
        "channel [channel ...]",
        "Subscribes to channels",
        pubsub::subscribe,
    )
    .differs(NOT_IN_MULTI),
    local(
        Group::PubSub,
        "unsubscribe",
        -1,
        SUBSCRIBES,
        "2.0.0",
        "[channel [channel ...]]",
        "Ends subscriptions to channels",
        pubsub::unsubscribe,
    )
    .differs(NOT_IN_MULTI),
];

const NOT_IN_MULTI: &str = "not within MULTI";
const THIS_NODE: &str = "of this node's connections";

static PUBSUB_CHILDREN: &[Spec] = &[
    local(
        Group::PubSub,
        "pubsub|channels",
        -2,
        PUBSUB | LOADING | STALE,
        "2.8.0",
        "[pattern]",
        "The channels that somebody has subscribed to",
        pubsub::channels,
    )
    .differs(THIS_NODE),
    local(Group::PubSub, "pubsub|help", 2, LOADING | STALE, "6.2.0", "", "This help", catalog::help),
    local(
        Group::PubSub,
        "pubsub|numpat",
        2,
        PUBSUB | LOADING | STALE,
        "2.8.0",
        "",
        "How many patterns somebody has subscribed to",
        pubsub::numpat,
    )
    .differs(THIS_NODE),
    local(
        Group::PubSub,
        "pubsub|numsub",
        -2,
        PUBSUB | LOADING | STALE,
        "2.8.0",
        "[channel [channel ...]]",
        "How many have subscribed to channels",
        pubsub::numsub,
    )
    .differs(THIS_NODE),
];

pub(crate) static SCRIPTING: &[Spec] = &[
    Spec::data(
        Group::Scripting,
        "eval",
        -3,
        NOSCRIPT | STALE | MOVABLE_KEYS,
        SCRIPT_KEYS,
        "2.6.0",
        "script numkeys [key [key ...]] [arg [arg ...]]",
        "Executes a script",
        scripts::eval,
    )
    .differs(LOCKS_ONLY),
    Spec::data(
        Group::Scripting,
        "evalsha",
        -3,
        NOSCRIPT | STALE | MOVABLE_KEYS,
        SCRIPT_KEYS,
        "2.6.0",
        "sha1 numkeys [key [key ...]] [arg [arg ...]]",
        "Executes a script by its digest",
        scripts::evalsha,
    )
    .differs(LOCKS_ONLY),
    Spec::here(Group::Scripting, "script", -2, 0, "2.6.0", "", "About scripts", Action::Container(SCRIPT)),
];

static SCRIPT: &[Spec] = &[
    local(
        Group::Scripting,
        "script|exists",
        -3,
        NOSCRIPT,
        "2.6.0",
        "sha1 [sha1 ...]",
        "Whether scripts are known",
        scripts::exists,
    ),
    local(
        Group::Scripting,
        "script|flush",
        -2,
        NOSCRIPT,
        "2.6.0",
        "[ASYNC|SYNC]",
        "Forgets scripts",
        scripts::flush,
    )
    .differs("those that are known by themselves stay known"),
    local(Group::Scripting, "script|help", 2, LOADING | STALE, "5.0.0", "", "This help", catalog::help),
    local(
        Group::Scripting,
        "script|kill",
        2,
        NOSCRIPT | ALLOW_BUSY,
        "2.6.0",
        "",
        "Stops a script",
        scripts::kill,
    )
    .differs("there is never one to stop"),
    local(
        Group::Scripting,
        "script|load",
        3,
        NOSCRIPT | STALE,
        "2.6.0",
        "script",
        "Makes a script known",
        scripts::load,
    )
    .differs(LOCKS_ONLY),
];

const SCRIPT_KEYS: Keys = Keys::Counted { at: 2, target: false };
const LOCKS_ONLY: &str = "there is no interpreter, by design: the lock scripts of redis-py (release, extend, \
                          reacquire), Redlock (release, extend), redsync (release) and those of kombu for bindings (whose sweep deletes nothing) are known and executed as \
                          operations, any other is refused";

fn flush(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    match args.len() {
        1 => {}
        2 if is(args.at(1), "ASYNC") || is(args.at(1), "SYNC") => {}
        _ => return Err(Complaint::Syntax),
    }
    Ok(Operation::Flush.into())
}
