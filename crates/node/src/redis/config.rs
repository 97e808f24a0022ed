//! CONFIG: what clients ask about a server, answered as it is here. Nothing is set this way but how much SLOWLOG keeps;
//! for all else the deployment file is the one place.

use super::complaint::Complaint;
use super::connection::State;
use super::reply::Reply;
use super::request::{Args, integer};
use super::slowlog::LENGTH_MAX;
use crate::gateway::Context;
use crate::reactor::KEEP_ALIVE;
use isochrone_core::glob;

/// From how many microseconds on a command is slow.
const SLOWER_THAN: &str = "slowlog-log-slower-than";
/// How many slow commands are kept.
const SLOWLOG_LENGTH: &str = "slowlog-max-len";

/// The parameters for which the deployment file has a key, of the node or of `[limits]`.
const IN_FILE: [&str; 6] =
    ["appendfsync", "client-query-buffer-limit", "databases", "maxclients", "port", "proto-max-bulk-len"];

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
        ("hll-sparse-max-bytes", text("3000")),
        // Zero: no events are watched for.
        ("latency-monitor-threshold", text("0")),
        ("latency-tracking", text("yes")),
        ("maxclients", context.limits.clients.to_string()),
        // Zero: no limit; keys are never evicted.
        ("maxmemory", text("0")),
        ("maxmemory-policy", text("noeviction")),
        ("notify-keyspace-events", text("")),
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
    let patterns: Vec<Vec<u8>> = args.from(2).iter().map(|pattern| pattern.to_ascii_lowercase()).collect();
    let mut found = parameters(context);
    found.retain(|(name, _)| patterns.iter().any(|pattern| glob::fits(pattern, name.as_bytes())));
    reply.map(found.len());
    for (name, value) in found {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

/// `CONFIG SET name value ...`: all or nothing. Taken where it changes nothing, or what SLOWLOG keeps.
pub(crate) fn set(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Complaint> {
    if !args.len().is_multiple_of(2) {
        return Err(Complaint::Arity("config|set"));
    }
    let known = parameters(context);
    let (mut slower_than, mut length) = (None, None);
    for at in (2..args.len()).step_by(2) {
        let name = String::from_utf8_lossy(args.at(at)).to_ascii_lowercase();
        let Some((_, value)) = known.iter().find(|(known, _)| *known == name) else {
            return Err(Complaint::text(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            )));
        };
        let set = args.at(at + 1);
        match name.as_str() {
            SLOWER_THAN => slower_than = Some(within(&name, set, -1, i64::MAX)?),
            SLOWLOG_LENGTH => length = Some(within(&name, set, 0, LENGTH_MAX)?),
            _ if value.as_bytes() == set => {}
            _ => {
                let why = match IN_FILE.contains(&name.as_str()) {
                    true => "the deployment file decides",
                    false => "nothing sets it, the deployment file neither",
                };
                return Err(Complaint::text(format!(
                    "ERR CONFIG SET failed (possibly related to argument '{name}') - can't set immutable config: \
                     it is '{value}' here; {why}"
                )));
            }
        }
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

/// A number within these bounds.
fn within(name: &str, text: &[u8], least: i64, most: i64) -> Result<i64, Complaint> {
    let wrong = |why: String| {
        Complaint::text(format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - argument {why}"
        ))
    };
    let number = integer(text).ok_or_else(|| wrong("couldn't be parsed into an integer".to_owned()))?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(wrong(format!("must be between {least} and {most} inclusive")))
    }
}
