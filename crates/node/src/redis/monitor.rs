//! MONITOR: what the clients of this node ask, as it is taken up.
//!
//! As in Redis, what administers is not told, nor what is refused for what it is (no such command, a wrong number of
//! arguments, no right to it); passwords are blotted out. Whoever does not keep up is closed.

use super::complaint::Complaint;
use super::connection::State;
use super::reply::Reply;
use super::request::Args;
use super::spec::{Spec, flag};
use crate::gateway::Context;
use crate::hub::SEEN_MAX;
use std::io::Write as _;

/// `MONITOR`: the second one has no answer.
pub(crate) fn begin(
    state: &mut State,
    _: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Complaint> {
    if context.hub.monitor(state.number) {
        reply.ok();
    }
    Ok(())
}

/// Whether a connection may ask this: to Redis those who monitor are replicas of a kind, which ask nothing of keys.
pub(crate) fn allowed(state: &State, spec: &Spec, context: &Context<'_>) -> Result<(), Complaint> {
    let of_keys = spec.is(flag::READ)
        || spec.is(flag::WRITE)
        || matches!(spec.name, "publish" | "spublish" | "eval" | "evalsha");
    if of_keys && context.hub.monitors(state.number) {
        return Err(Complaint::text("ERR Replica can't interact with the keyspace"));
    }
    Ok(())
}

/// Tells those who monitor of a command.
pub(crate) fn tell(state: &State, spec: &Spec, args: Args<'_>, context: &mut Context<'_>) {
    if !context.hub.is_monitored() || spec.is(flag::ADMIN) {
        return;
    }
    let Some(client) = context.clients.get(&state.number) else { return };
    let (index, address, micros) = (client.index, client.address, context.stamp.as_nanos() / 1_000);
    context.hub.show(|seen| {
        // Writing to a vector cannot fail.
        let _ = write!(seen, "+{}.{:06} [{index} {address}]", micros / 1_000_000, micros % 1_000_000);
        let mut secret = 0;
        for (at, word) in args.iter().enumerate() {
            seen.push(b' ');
            if secret > 0 {
                secret -= 1;
                seen.extend_from_slice(b"\"(redacted)\"");
                continue;
            }
            match spec.name {
                "auth" => secret = usize::MAX,
                "hello" if at > 0 && word.eq_ignore_ascii_case(b"auth") => secret = 2,
                _ => {}
            }
            quote(word, seen);
        }
        seen.extend_from_slice(b"\r\n");
    });
}

/// Writes a string as Redis quotes it; only a part of it where no more is kept.
fn quote(word: &[u8], to: &mut Vec<u8>) {
    to.push(b'"');
    for part in word.chunks(4096) {
        if to.len() > SEEN_MAX {
            return;
        }
        for byte in part {
            match byte {
                b'\\' | b'"' => to.extend([b'\\', *byte]),
                b'\n' => to.extend(b"\\n"),
                b'\r' => to.extend(b"\\r"),
                b'\t' => to.extend(b"\\t"),
                0x07 => to.extend(b"\\a"),
                0x08 => to.extend(b"\\b"),
                b' '..=b'~' => to.push(*byte),
                // Writing to a vector cannot fail.
                _ => drop(write!(to, "\\x{byte:02x}")),
            }
        }
    }
    to.push(b'"');
}
