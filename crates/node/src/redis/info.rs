//! INFO, TIME, LOLWUT and other questions about the node.

use super::args::{is, number};
use super::complaint::Complaint;
use super::connection::State;
use super::login::REDIS_VERSION;
use super::reply::{Reply, Version};
use super::request::Args;
use crate::gateway::{Context, KeyspaceView};
use crate::hub::Topic;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

type Answer = Result<(), Complaint>;

/// Writes the fields of one section.
type Section = fn(&mut String, &Context<'_>);

const SECTIONS: [(&str, Section); 12] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    (COMMAND_STATS, command_stats),
    ("Errorstats", error_stats),
    ("Cluster", cluster),
    ("Keyspace", keys),
    ("Isochrone", isochrone),
];

/// Not among those that are shown unasked.
const COMMAND_STATS: &str = "Commandstats";

/// `INFO [section ...]`
pub(crate) fn info(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let asks = |name: &str| args.from(1).iter().any(|asked| asked.eq_ignore_ascii_case(name.as_bytes()));
    let everything = asks("all") || asks("everything");
    let default = everything || args.len() == 1 || asks("default");
    let mut text = String::new();
    for (name, write) in SECTIONS {
        if asks(name) || if name == COMMAND_STATS { everything } else { default } {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            field_line(&mut text, format_args!("# {name}"));
            write(&mut text, context);
        }
    }
    reply.verbatim(&text);
    Ok(())
}

fn field_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(line);
    text.push_str("\r\n");
}

macro_rules! fields {
    ($text:expr, $($name:literal: $value:expr),+ $(,)?) => {
        $(field_line($text, format_args!(concat!($name, ":{}"), $value));)+
    };
}

fn server(text: &mut String, context: &Context<'_>) {
    let node = context.node;
    fields!(text,
        "redis_version": REDIS_VERSION,
        "redis_mode": "standalone",
        "isochrone_version": node.version,
        "os": std::env::consts::OS,
        "arch_bits": usize::BITS,
        "process_id": node.process_id,
        "run_id": node.run_id,
        "tcp_port": node.port,
        "server_time_usec": context.stamp.as_nanos() / 1_000,
        "uptime_in_seconds": node.uptime_seconds,
        "uptime_in_days": node.uptime_seconds / 86_400,
    );
}

fn clients(text: &mut String, context: &Context<'_>) {
    fields!(text,
        "connected_clients": context.clients.len(),
        "maxclients": context.limits.clients,
        "blocked_clients": context.hub.waiters(),
    );
}

/// As people read it: three digits and a letter.
fn human(bytes: u64) -> String {
    let (mut scaled, mut letters) = (bytes as f64, "BKMGT".chars());
    let mut letter = letters.next();
    while scaled >= 1024.0 {
        let Some(next) = letters.next() else { break };
        (scaled, letter) = (scaled / 1024.0, Some(next));
    }
    let letter = letter.unwrap_or('B');
    if letter == 'B' { format!("{bytes}B") } else { format!("{scaled:.2}{letter}") }
}

fn peak_percent(now: u64, peak: u64) -> String {
    format!("{:.2}%", now as f64 / peak.max(1) as f64 * 100.0)
}

fn memory(text: &mut String, context: &Context<'_>) {
    let memory = &context.node.memory;
    let used = match memory.used() {
        0 => context.node.memory_bytes,
        known => known,
    };
    fields!(text,
        "used_memory": used,
        "used_memory_human": human(used),
        "used_memory_rss": context.node.memory_bytes,
        "used_memory_rss_human": human(context.node.memory_bytes),
        "used_memory_peak": context.node.memory_peak_bytes,
        "used_memory_peak_human": human(context.node.memory_peak_bytes),
        "used_memory_peak_perc": peak_percent(context.node.memory_bytes, context.node.memory_peak_bytes),
        "maxmemory": memory.limit(),
        "maxmemory_human": human(memory.limit()),
        "maxmemory_policy": "noeviction",
    );
}

fn persistence(text: &mut String, context: &Context<'_>) {
    let node = context.node;
    fields!(text,
        "loading": 0,
        "async_loading": 0,
        "aof_enabled": 1,
        "aof_last_write_status": "ok",
        "aof_current_size": node.journal_bytes,
        "journal_sync_usec": node.sync_micros,
        "fsync": fsync(context),
    );
}

fn fsync(context: &Context<'_>) -> &'static str {
    if context.node.unsafe_fsync_off {
        "UNSAFE (fsync=off: a crash may lose acknowledged writes)"
    } else {
        "always"
    }
}

fn stats(text: &mut String, context: &Context<'_>) {
    let counters = &context.counters;
    fields!(text,
        "total_connections_received": counters.connections,
        "total_commands_processed": counters.commands.values().sum::<u64>(),
        "instantaneous_ops_per_sec": context.node.commands_per_second,
        "total_net_input_bytes": counters.traffic.0,
        "total_net_output_bytes": counters.traffic.1,
        "rejected_connections": counters.limited.get("clients").copied().unwrap_or(0),
        "total_error_replies": counters.errors.values().sum::<u64>(),
        "malformed_inputs": counters.malformed,
        "expired_keys": context.keyspaces.iter().map(|keyspace| keyspace.expired).sum::<u64>(),
        "evicted_keys": 0,
        "keyspace_hits": counters.lookups.0,
        "keyspace_misses": counters.lookups.1,
        "limits_reached": counters.limited.values().sum::<u64>(),
        "acl_access_denied_auth": counters.login_failures,
        "pubsub_channels": context.hub.names_here(Topic::Channel),
        "pubsub_patterns": context.hub.names_here(Topic::Pattern),
        "pubsubshard_channels": context.hub.names_here(Topic::Shard),
    );
}

fn replication(text: &mut String, context: &Context<'_>) {
    // Every node takes writes, so that every node is a master to its clients.
    fields!(text,
        "role": "master",
        "connected_slaves": 0,
        "master_replid": context.node.run_id,
        "master_repl_offset": 0,
    );
}

fn cpu(text: &mut String, context: &Context<'_>) {
    let (user, system) = context.node.processor_seconds;
    fields!(text,
        "used_cpu_sys": format_args!("{system:.6}"),
        "used_cpu_user": format_args!("{user:.6}"),
    );
}

fn command_stats(text: &mut String, context: &Context<'_>) {
    let counters = &context.counters;
    let names: BTreeSet<_> = counters.commands.keys().chain(counters.rejected.keys()).collect();
    for name in names {
        let count = |counted: &BTreeMap<&'static str, u64>| counted.get(name).copied().unwrap_or(0);
        let (calls, rejected) = (count(&counters.commands), count(&counters.rejected));
        let failed = count(&counters.failed);
        let time = counters.times.get(name).map(|times| times.sum).unwrap_or_default();
        let micros = time.as_nanos() / 1_000;
        let each = micros as f64 / calls.max(1) as f64;
        field_line(
            text,
            format_args!(
                "cmdstat_{name}:calls={calls},usec={micros},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}"
            ),
        );
    }
}

/// What the replicas here hold, in the words of Redis; nothing is said of what holds nothing.
fn keys(text: &mut String, context: &Context<'_>) {
    for keyspace in context.keyspaces {
        if let Some((keys @ 1.., expires)) = keyspace.keys {
            let index = keyspace.index;
            field_line(text, format_args!("db{index}:keys={keys},expires={expires},avg_ttl=0"));
        }
    }
}

fn error_stats(text: &mut String, context: &Context<'_>) {
    for (code, count) in &context.counters.errors {
        field_line(text, format_args!("errorstat_{code}:count={count}"));
    }
}

fn cluster(text: &mut String, _: &Context<'_>) {
    fields!(text, "cluster_enabled": 0);
}

fn isochrone(text: &mut String, context: &Context<'_>) {
    let node = context.node;
    let (connected, total) = node.peers_connected;
    fields!(text,
        "cluster": node.cluster,
        "node": node.node,
        "region": node.region,
        "peers_connected": connected,
        "peers_total": total,
        "durability": if node.unsafe_fsync_off { "UNSAFE" } else { "quorum-fsync" },
        "keyspaces": context.keyspaces.len(),
    );
    for keyspace in context.keyspaces {
        field_line(text, format_args!("keyspace{}:{}", keyspace.index, Described(keyspace)));
    }
}

/// A keyspace in one line.
struct Described<'a>(&'a KeyspaceView);

impl std::fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keyspace = self.0;
        write!(
            f,
            "name={},protocol={},guarantee={},replicas={},leader={},leads={}",
            keyspace.name,
            keyspace.protocol,
            keyspace.guarantee,
            keyspace.replicas,
            keyspace.leader.as_deref().unwrap_or("unknown"),
            u8::from(keyspace.leads)
        )?;
        if keyspace.leaders.len() < 2 {
            return Ok(());
        }
        write!(f, ",partitions={}", keyspace.leaders.len())?;
        for (at, leader) in keyspace.leaders.iter().enumerate() {
            let before = if at == 0 { ",leaders=" } else { ";" };
            write!(f, "{before}{}", leader.as_deref().unwrap_or("unknown"))?;
        }
        Ok(())
    }
}

/// `CLUSTER INFO`
pub(crate) fn cluster_info(_: &mut State, _: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    reply.verbatim(
        "cluster_enabled:0\r\ncluster_state:ok\r\ncluster_slots_assigned:0\r\ncluster_slots_ok:0\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:0\r\n\
         cluster_current_epoch:0\r\ncluster_my_epoch:0\r\n",
    );
    Ok(())
}

/// `PING [message]`
pub(crate) fn ping(state: &mut State, args: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    match args.len() {
        // Among messages of RESP2 it looks like one.
        1 | 2 if state.subscribed > 0 && state.version == Version::Two => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(if args.len() == 2 { args.at(1) } else { b"" });
        }
        1 => reply.simple("PONG"),
        2 => reply.bulk(args.at(1)),
        _ => return Err(Complaint::Arity("ping")),
    }
    Ok(())
}

/// `ECHO message`
pub(crate) fn echo(_: &mut State, args: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    reply.bulk(args.at(1));
    Ok(())
}

/// READONLY and READWRITE: every node serves both already.
pub(crate) fn agree(_: &mut State, _: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    reply.ok();
    Ok(())
}

/// `TIME`: seconds since 1970 and microseconds.
pub(crate) fn time(_: &mut State, _: Args<'_>, context: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    let micros = context.stamp.as_nanos() / 1_000;
    reply.array(2);
    reply.text(micros / 1_000_000);
    reply.text(micros % 1_000_000);
    Ok(())
}

/// `ROLE`: clients look for a master that takes writes; every node is one.
pub(crate) fn role(_: &mut State, _: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
    Ok(())
}

/// `LOLWUT`: a picture, as by custom. Lines of equal travel time around a place.
pub(crate) fn lolwut(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    // Whichever version is asked for, there is this picture.
    if args.len() > 2 && is(args.at(1), "VERSION") {
        number(args.at(2))?;
    }
    const WIDTH: i32 = 64;
    const HEIGHT: i32 = 20;
    let centre = (context.random.between(16, 48) as i32, context.random.between(6, 14) as i32);
    let mut text = String::new();
    for row in 0..HEIGHT {
        for column in 0..WIDTH {
            // A character is about twice as high as wide.
            let (across, down) = (column - centre.0, 2 * (row - centre.1));
            let distance = f64::from(across * across + down * down).sqrt();
            text.push(if distance < 1.0 {
                'o'
            } else if (distance % 6.0) < 1.0 {
                '.'
            } else {
                ' '
            });
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\nIsochrones. Isochrone {}, Redis ver. {REDIS_VERSION}", context.node.version);
    reply.verbatim(&text);
    Ok(())
}

/// UNWATCH
pub(crate) fn unwatch(state: &mut State, _: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    state.watches.clear();
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::KeyspaceId;

    #[test]
    fn the_leader_of_every_partition_is_named() {
        let mut keyspace = KeyspaceView {
            leader: Some("Oregon".to_owned()),
            leaders: vec![Some("Oregon".to_owned())],
            leads: true,
            ..KeyspaceView::new(KeyspaceId(1), "main", 0, "multipaxos", 3)
        };
        let line = "name=main,protocol=multipaxos,guarantee=linearizable,replicas=3,leader=Oregon,leads=1";
        assert_eq!(Described(&keyspace).to_string(), line);
        keyspace.leaders.extend([None, Some("Ohio".to_owned())]);
        let all = format!("{line},partitions=3,leaders=Oregon;unknown;Ohio");
        assert_eq!(Described(&keyspace).to_string(), all);
    }
}
