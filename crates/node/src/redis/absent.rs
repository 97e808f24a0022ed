//! The commands of Redis 7.2 that are not here, and why: for the page. To a client they are unknown, but for those of Redis
//! Cluster: it is told, as by a Redis that is none, that this is none.

use super::complaint::Complaint;
use super::spec::Group;

/// A command that is not here.
pub(crate) struct Absent {
    /// Lower case; a subcommand is `container|name`.
    pub(crate) name: &'static str,
    /// The chapter it would belong to.
    pub(crate) group: Group,
    /// Why.
    pub(crate) why: &'static str,
}

/// What is said of a subcommand that is not in the table.
pub(crate) fn subcommand(command: &str, name: &[u8]) -> Complaint {
    let of_cluster = |absent: &&Absent| {
        let leaf = absent.name.strip_prefix(command).and_then(|rest| rest.strip_prefix('|'));
        absent.group == Group::Cluster && leaf.is_some_and(|leaf| leaf.as_bytes().eq_ignore_ascii_case(name))
    };
    match ABSENT.iter().find(of_cluster) {
        // Clients of a cluster look for this text.
        Some(_) => Complaint::text("ERR This instance has cluster support disabled"),
        // Some clients wait for its answer before all else, and show no more than that.
        None if command == "client" && name.eq_ignore_ascii_case(b"tracking") => {
            Complaint::text(format!("{} ({CACHING})", Complaint::unknown_subcommand(command, name)))
        }
        None => Complaint::unknown_subcommand(command, name),
    }
}

const fn row(group: Group, name: &'static str, why: &'static str) -> Absent {
    Absent { name, group, why }
}

const CLUSTER: &str = "there is no Redis Cluster: every node takes every key";
const CACHING: &str = "there is no client-side caching";
const PAUSE: &str = "one node cannot hold the others still";
const MODULES: &str = "never: no code is loaded";
const REPLICATION: &str = "never: Redis' own replication";
const SNAPSHOTS: &str = "snapshots are taken by themselves";
const TWO_KEYSPACES: &str = "keyspaces have different protocols: no command spans two";
const INTERPRETER: &str = "there is no interpreter, by design";
const READ_ONLY_SCRIPTS: &str = "no known script only reads";
const BUILDERS: &str = "never: a tool of those who build Redis";
const NOT_YET: &str = "not yet";

/// By chapter, then name.
pub(crate) static ABSENT: &[Absent] = &[
    row(Group::Connection, "client|caching", CACHING),
    row(Group::Connection, "client|pause", PAUSE),
    row(Group::Connection, "client|tracking", CACHING),
    row(Group::Connection, "client|trackinginfo", CACHING),
    row(Group::Connection, "client|unpause", PAUSE),
    row(Group::Server, "bgrewriteaof", "the journal is trimmed by itself"),
    row(Group::Server, "bgsave", SNAPSHOTS),
    row(Group::Server, "command|getkeysandflags", "not yet; COMMAND GETKEYS tells the keys"),
    row(Group::Server, "config|resetstat", "counters are for the metrics, which want them to grow"),
    row(Group::Server, "config|rewrite", "the deployment file is not written by a node"),
    row(Group::Server, "debug", BUILDERS),
    row(Group::Server, "failover", "leaders are moved with the command line"),
    row(Group::Server, "lastsave", SNAPSHOTS),
    row(Group::Server, "memory|doctor", NOT_YET),
    row(Group::Server, "memory|malloc-stats", NOT_YET),
    row(Group::Server, "memory|purge", NOT_YET),
    row(Group::Server, "memory|stats", NOT_YET),
    row(Group::Server, "module|help", MODULES),
    row(Group::Server, "module|list", MODULES),
    row(Group::Server, "module|load", MODULES),
    row(Group::Server, "module|loadex", MODULES),
    row(Group::Server, "module|unload", MODULES),
    row(Group::Server, "psync", REPLICATION),
    row(Group::Server, "replconf", REPLICATION),
    row(Group::Server, "replicaof", REPLICATION),
    row(Group::Server, "restore-asking", REPLICATION),
    row(Group::Server, "save", SNAPSHOTS),
    row(Group::Server, "shutdown", "a client does not stop a node"),
    row(Group::Server, "slaveof", REPLICATION),
    row(Group::Server, "swapdb", TWO_KEYSPACES),
    row(Group::Server, "sync", REPLICATION),
    row(Group::Cluster, "asking", CLUSTER),
    row(Group::Cluster, "cluster|addslots", CLUSTER),
    row(Group::Cluster, "cluster|addslotsrange", CLUSTER),
    row(Group::Cluster, "cluster|bumpepoch", CLUSTER),
    row(Group::Cluster, "cluster|count-failure-reports", CLUSTER),
    row(Group::Cluster, "cluster|countkeysinslot", CLUSTER),
    row(Group::Cluster, "cluster|delslots", CLUSTER),
    row(Group::Cluster, "cluster|delslotsrange", CLUSTER),
    row(Group::Cluster, "cluster|failover", CLUSTER),
    row(Group::Cluster, "cluster|flushslots", CLUSTER),
    row(Group::Cluster, "cluster|forget", CLUSTER),
    row(Group::Cluster, "cluster|getkeysinslot", CLUSTER),
    row(Group::Cluster, "cluster|keyslot", CLUSTER),
    row(Group::Cluster, "cluster|links", CLUSTER),
    row(Group::Cluster, "cluster|meet", CLUSTER),
    row(Group::Cluster, "cluster|myid", CLUSTER),
    row(Group::Cluster, "cluster|myshardid", CLUSTER),
    row(Group::Cluster, "cluster|nodes", CLUSTER),
    row(Group::Cluster, "cluster|replicas", CLUSTER),
    row(Group::Cluster, "cluster|replicate", CLUSTER),
    row(Group::Cluster, "cluster|reset", CLUSTER),
    row(Group::Cluster, "cluster|saveconfig", CLUSTER),
    row(Group::Cluster, "cluster|set-config-epoch", CLUSTER),
    row(Group::Cluster, "cluster|setslot", CLUSTER),
    row(Group::Cluster, "cluster|shards", CLUSTER),
    row(Group::Cluster, "cluster|slaves", CLUSTER),
    row(Group::Cluster, "cluster|slots", CLUSTER),
    row(Group::Scripting, "eval_ro", READ_ONLY_SCRIPTS),
    row(Group::Scripting, "evalsha_ro", READ_ONLY_SCRIPTS),
    row(Group::Scripting, "fcall", INTERPRETER),
    row(Group::Scripting, "fcall_ro", INTERPRETER),
    row(Group::Scripting, "function|delete", INTERPRETER),
    row(Group::Scripting, "function|dump", INTERPRETER),
    row(Group::Scripting, "function|flush", INTERPRETER),
    row(Group::Scripting, "function|help", INTERPRETER),
    row(Group::Scripting, "function|kill", INTERPRETER),
    row(Group::Scripting, "function|list", INTERPRETER),
    row(Group::Scripting, "function|load", INTERPRETER),
    row(Group::Scripting, "function|restore", INTERPRETER),
    row(Group::Scripting, "function|stats", INTERPRETER),
    row(Group::Scripting, "script|debug", INTERPRETER),
    row(Group::Generic, "migrate", NOT_YET),
    row(Group::Generic, "move", TWO_KEYSPACES),
    row(Group::String, "lcs", "seldom used, and its time is the product of two lengths"),
    row(Group::HyperLogLog, "pfdebug", BUILDERS),
    row(Group::HyperLogLog, "pfselftest", BUILDERS),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracking_is_unknown_and_why_is_told() {
        let told = |name: &[u8]| subcommand("client", name).to_string();
        let unknown = "ERR unknown subcommand 'TRACKING'. Try CLIENT HELP.";
        assert_eq!(told(b"TRACKING"), format!("{unknown} (there is no client-side caching)"));
        assert_eq!(told(b"PAUSE"), "ERR unknown subcommand 'PAUSE'. Try CLIENT HELP.");
    }
}
