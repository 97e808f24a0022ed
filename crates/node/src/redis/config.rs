//! CONFIG: what clients ask about a server, answered as it is here. Nothing is set this way but how much SLOWLOG keeps, which events
//! of keys are told to those who subscribe here, and how much memory this node may use; for all else the deployment file is the one
//! place.

use super::complaint::Complaint;
use super::connection::State;
use super::reply::Reply;
use super::request::{Args, integer};
use super::slowlog::LENGTH_MAX;
use crate::gateway::Context;
use crate::reactor::KEEP_ALIVE;
use isochrone_core::glob;
use isochrone_core::notify::Flags;
use std::collections::BTreeMap;

/// From how many microseconds on a command is slow.
const SLOWER_THAN: &str = "slowlog-log-slower-than";
/// How many slow commands are kept.
const SLOWLOG_LENGTH: &str = "slowlog-max-len";
/// How many bytes of memory this node may use.
const MAX_MEMORY: &str = "maxmemory";
/// Which events of keys are told.
const NOTIFIES: &str = "notify-keyspace-events";
/// How many strings a command may have: Redis has no such parameter. `isochrone backup restore` goes by it.
const ELEMENTS: &str = "elements";

/// The parameters for which the deployment file has a key, of the node or of `[limits]`.
const IN_FILE: [&str; 7] = [
    "appendfsync",
    "client-query-buffer-limit",
    "databases",
    ELEMENTS,
    "maxclients",
    "port",
    "proto-max-bulk-len",
];

/// The parameters that exist, in order, with their values here.
fn parameters(context: &Context<'_>) -> Vec<(&'static str, String)> {
    let fsync = if context.node.unsafe_fsync_off { "no" } else { "always" };
    let text = |text: &str| text.to_owned();
    vec![
        // The journal is what an append-only file is; there is no other way to save.
        ("appendfsync", text(fsync)),
        ("appendonly", text("yes")),
        ("client-query-buffer-limit", context.limits.command_bytes.to_string()),
        ("cluster-enabled", text("no")),
        ("databases", context.keyspaces.iter().map(|k| k.index + 1).max().unwrap_or(0).to_string()),
        (ELEMENTS, context.limits.elements.to_string()),
        ("hll-sparse-max-bytes", text("3000")),
        // Zero: no events are watched for.
        ("latency-monitor-threshold", text("0")),
        ("latency-tracking", text("yes")),
        ("maxclients", context.limits.clients.to_string()),
        // Zero: no limit.
        (MAX_MEMORY, context.node.memory.limit().to_string()),
        ("maxmemory-policy", text("noeviction")),
        (NOTIFIES, context.hub.notifies().to_string()),
        ("port", context.node.port.to_string()),
        ("proto-max-bulk-len", context.limits.bulk_bytes.to_string()),
        ("save", text("")),
        (SLOWER_THAN, context.hub.slowlog.slower_than.to_string()),
        (SLOWLOG_LENGTH, context.hub.slowlog.length.to_string()),
        ("tcp-keepalive", (KEEP_ALIVE.as_nanos() / 1_000_000_000).to_string()),
        // Zero: idle connections are kept.
        ("timeout", text("0")),
    ]
}

/// `CONFIG GET pattern ...`
pub(crate) fn get(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Complaint> {
    // Under the name that it is asked for by: who asks for MAXMEMORY looks for that in the answer.
    let mut found: BTreeMap<&str, (&[u8], &str)> = BTreeMap::new();
    let known = parameters(context);
    for pattern in args.from(2).iter() {
        let pattern = super::args::pattern(pattern)?;
        let literal = !pattern.iter().any(|byte| b"[*?".contains(byte));
        let lower = pattern.to_ascii_lowercase();
        for (name, value) in &known {
            let bytes = name.as_bytes();
            if if literal { lower == bytes } else { glob::fits(&lower, bytes) } {
                found.entry(name).or_insert((if literal { pattern } else { bytes }, value));
            }
        }
    }
    reply.map(found.len());
    for (name, value) in found.into_values() {
        reply.bulk(name);
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

/// `CONFIG SET name value ...`: all or nothing. Taken where it changes nothing, or what SLOWLOG keeps, which events are told, or how
/// much memory may be used.
pub(crate) fn set(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Complaint> {
    if !args.len().is_multiple_of(2) {
        return Err(Complaint::Syntax);
    }
    let known = parameters(context);
    let mut wanted: BTreeMap<&str, (&str, &[u8])> = BTreeMap::new();
    for at in (2..args.len()).step_by(2) {
        let given = String::from_utf8_lossy(args.at(at));
        let Some((name, value)) = known.iter().find(|(known, _)| given.eq_ignore_ascii_case(known)) else {
            let text = format!("ERR Unknown option or number of arguments for CONFIG SET - '{given}'");
            return Err(Complaint::text(text));
        };
        if wanted.insert(name, (value, args.at(at + 1))).is_some() {
            return Err(failed(&given, "duplicate parameter"));
        }
    }
    let (mut slower_than, mut length, mut notifies, mut memory) = (None, None, None, None);
    for (name, (value, set)) in wanted {
        match name {
            SLOWER_THAN => slower_than = Some(within(name, set, -1, i64::MAX)?),
            SLOWLOG_LENGTH => length = Some(within(name, set, 0, LENGTH_MAX)?),
            MAX_MEMORY => memory = Some(bytes(name, set)?),
            NOTIFIES => {
                let wrong = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
                notifies = Some(Flags::parse(set).ok_or_else(|| failed(name, wrong))?);
            }
            _ if value.as_bytes() == set => {}
            _ => {
                let why = match IN_FILE.contains(&name) {
                    true => "the deployment file decides",
                    false => "nothing sets it, the deployment file neither",
                };
                let text = format!("can't set immutable config: it is '{value}' here; {why}");
                return Err(failed(name, &text));
            }
        }
    }
    if let Some(flags) = notifies {
        context.hub.set_notifies(flags);
    }
    if let Some(bytes) = memory {
        context.node.memory.set_limit(bytes);
    }
    let slowlog = &mut context.hub.slowlog;
    slowlog.slower_than = slower_than.unwrap_or(slowlog.slower_than);
    if let Some(length) = length {
        // Between 0 and a few thousand.
        slowlog.resize(length as usize);
    }
    reply.ok();
    Ok(())
}

/// Why nothing was set.
fn failed(name: &str, why: &str) -> Complaint {
    Complaint::text(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

/// A number of bytes, with a unit of Redis' or without: `100mb` is 1,024 times `100kb`, and `100m` 1,000 times `100k`.
fn bytes(name: &str, text: &[u8]) -> Result<u64, Complaint> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| {
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" => 1_000,
            "kb" => 1 << 10,
            "m" => 1_000_000,
            "mb" => 1 << 20,
            "g" => 1_000_000_000,
            "gb" => 1 << 30,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(unit)
    });
    parsed.ok_or_else(|| failed(name, "argument must be a memory value"))
}

/// A number within these bounds.
fn within(name: &str, text: &[u8], least: i64, most: i64) -> Result<i64, Complaint> {
    let number = integer(text).ok_or_else(|| failed(name, "argument couldn't be parsed into an integer"))?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(failed(name, &format!("argument must be between {least} and {most} inclusive")))
    }
}
