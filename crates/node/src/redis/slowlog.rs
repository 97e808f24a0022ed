//! SLOWLOG: which commands took long of late, at this node.
//!
//! The time of a command is that from its request to its answer, so it has what the protocol waited for: another region,
//! a leader that was elected. Commands that wait for what others do (BLPOP and its kin, WAIT) are not among them, nor those
//! that ask nothing of a keyspace. What MULTI queued is told as one EXEC.

use super::complaint::Complaint;
use super::connection::State;
use super::reply::Reply;
use super::request::{Args, integer};
use crate::gateway::Context;
use isochrone_core::{Span, Stamp};
use std::collections::VecDeque;

/// So many strings of a command are kept, and so many bytes of each, as in Redis.
const WORDS: usize = 32;
/// See [`WORDS`].
const WORD_BYTES: usize = 128;
/// Longer than this the log never is, whatever is asked for: at most some 18 MB.
pub(super) const LENGTH_MAX: i64 = 4096;

/// Writes as much of a command as is kept: how many strings it has; and the first of them, the length of each before its
/// first bytes.
pub(super) fn note(args: Args<'_>, to: &mut Vec<u8>) {
    // A request has neither more nor longer ones.
    to.extend_from_slice(&(args.len() as u32).to_le_bytes());
    for word in args.iter().take(WORDS) {
        to.extend_from_slice(&(word.len() as u32).to_le_bytes());
        to.extend_from_slice(&word[..word.len().min(WORD_BYTES)]);
    }
}

/// What was noted as a list; where there was more, it says so.
fn tell(noted: &[u8], reply: &mut Reply<'_>) {
    let Some((count, mut rest)) = number(noted) else { return };
    reply.array(count.min(WORDS));
    for at in 0..count.min(WORDS) {
        let Some((length, behind)) = number(rest) else { return };
        let (word, behind) = behind.split_at(length.min(WORD_BYTES));
        rest = behind;
        if at == WORDS - 1 && count > WORDS {
            reply.text(format_args!("... ({} more arguments)", count - WORDS + 1));
        } else if length > WORD_BYTES {
            let more = format!("... ({} more bytes)", length - WORD_BYTES);
            reply.bulk(&[word, more.as_bytes()].concat());
        } else {
            reply.bulk(word);
        }
    }
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, behind) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number) as usize, behind))
}

#[derive(Debug)]
struct Entry {
    id: i64,
    at: Stamp,
    micros: i64,
    noted: Box<[u8]>,
    client: String,
    name: String,
}

/// See the module. The latest is the first.
#[derive(Debug)]
pub struct Slowlog {
    entries: VecDeque<Entry>,
    next: i64,
    /// Commands that took so many microseconds or longer are kept; none where it is negative.
    pub(super) slower_than: i64,
    /// How many are kept.
    pub(super) length: usize,
}

impl Default for Slowlog {
    fn default() -> Slowlog {
        Slowlog { entries: VecDeque::new(), next: 0, slower_than: 10_000, length: 128 }
    }
}

impl Slowlog {
    /// Whether anything is kept.
    pub(super) fn listens(&self) -> bool {
        self.slower_than >= 0 && self.length > 0
    }

    /// Whether a command that took so long is slow.
    pub(super) fn is_slow(&self, took: Span) -> bool {
        u64::try_from(self.slower_than).is_ok_and(|micros| took.as_nanos() / 1_000 >= micros)
    }

    /// Keeps a slow command, of which this was noted.
    pub(super) fn keep(&mut self, noted: &[u8], took: Span, at: Stamp, client: String, name: String) {
        let (id, micros) = (self.next, i64::try_from(took.as_nanos() / 1_000).unwrap_or(i64::MAX));
        self.next += 1;
        self.entries.push_front(Entry { id, at, micros, noted: noted.into(), client, name });
        self.entries.truncate(self.length);
    }

    pub(super) fn resize(&mut self, length: usize) {
        self.length = length;
        self.entries.truncate(length);
    }
}

/// `SLOWLOG GET [count]`
pub(crate) fn get(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Complaint> {
    let count = match args.len() {
        2 => 10,
        3 => match integer(args.at(2)) {
            Some(-1) => usize::MAX,
            Some(count @ 0..) => usize::try_from(count).unwrap_or(usize::MAX),
            _ => return Err(Complaint::text("ERR count should be greater than or equal to -1")),
        },
        _ => {
            return Err(Complaint::text(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try SLOWLOG HELP.",
                String::from_utf8_lossy(args.at(1))
            )));
        }
    };
    let entries = context.hub.slowlog.entries.iter().take(count);
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        reply.integer(entry.id);
        reply.integer((entry.at.as_nanos() / 1_000_000_000) as i64);
        reply.integer(entry.micros);
        tell(&entry.noted, reply);
        reply.bulk(entry.client.as_bytes());
        reply.bulk(entry.name.as_bytes());
    }
    Ok(())
}

/// `SLOWLOG LEN`
pub(crate) fn len(
    _: &mut State,
    _: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Complaint> {
    reply.count(context.hub.slowlog.entries.len());
    Ok(())
}

/// `SLOWLOG RESET`
pub(crate) fn reset(
    _: &mut State,
    _: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Complaint> {
    context.hub.slowlog.entries.clear();
    reply.ok();
    Ok(())
}
