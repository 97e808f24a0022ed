//! Publish and subscribe: at most once, to whoever is connected anywhere in the cluster.

use super::complaint::Complaint;
use super::connection::State;
use super::reply::{Reply, Version};
use super::request::Args;
use crate::gateway::Context;
use crate::hub::{Notice, Topic};
use isochrone_core::Blob;
use isochrone_core::glob::{Glob, PATTERN_MAX};

type Answer = Result<(), Complaint>;

/// `SUBSCRIBE channel ...`
pub(crate) fn subscribe(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    add(state, args, context, reply, Topic::Channel)
}

/// `PSUBSCRIBE pattern ...`
pub(crate) fn psubscribe(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    add(state, args, context, reply, Topic::Pattern)
}

/// `SSUBSCRIBE shardchannel ...`
pub(crate) fn ssubscribe(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    add(state, args, context, reply, Topic::Shard)
}

/// `UNSUBSCRIBE [channel ...]`
pub(crate) fn unsubscribe(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    remove(state, args, context, reply, Topic::Channel);
    Ok(())
}

/// `PUNSUBSCRIBE [pattern ...]`
pub(crate) fn punsubscribe(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    remove(state, args, context, reply, Topic::Pattern);
    Ok(())
}

/// `SUNSUBSCRIBE [shardchannel ...]`
pub(crate) fn sunsubscribe(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    remove(state, args, context, reply, Topic::Shard);
    Ok(())
}

/// Bytes of all patterns of a connection, and how many there may be: each message of anybody is tried on every one.
const PATTERN_BYTES_MAX: usize = 256 << 10;
const PATTERNS_MAX: usize = 8_192;
/// Bytes of all names of channels of a connection.
const CHANNEL_BYTES_MAX: usize = 64 << 20;

fn add(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
    topic: Topic,
) -> Answer {
    if state.subscribed + args.len() > context.limits.elements {
        return Err(Complaint::text("ERR too many subscriptions of one connection"));
    }
    // All or none: a part of the confirmations with an error behind them nobody understands.
    let names = args.from(1).iter().map(|name| match topic {
        Topic::Channel | Topic::Shard => channel(name),
        Topic::Pattern => super::args::pattern(name).map(Blob::new),
    });
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let bytes = names.iter().map(|name| name.len()).sum::<usize>() + context.hub.bytes(state.number, topic);
    let most = match topic {
        Topic::Channel | Topic::Shard => CHANNEL_BYTES_MAX,
        Topic::Pattern => PATTERN_BYTES_MAX,
    };
    let [_, patterns, _] = context.hub.counts(state.number);
    let patterns = if topic == Topic::Pattern { names.len() + patterns } else { 0 };
    if bytes > most || patterns > PATTERNS_MAX {
        return Err(Complaint::text("ERR too many subscriptions of one connection"));
    }
    if topic == Topic::Pattern && !context.hub.has_room_for(&names) {
        return Err(Complaint::text("ERR too many patterns are subscribed to on this node"));
    }
    tell_own(state, context, reply);
    for name in names {
        context.hub.subscribe(state.number, topic, &name);
        let word = word(topic, ["subscribe", "psubscribe", "ssubscribe"]);
        confirm(word, Some(&name), count(topic, state, context), reply);
    }
    Ok(())
}

fn remove(state: &mut State, args: Args<'_>, context: &mut Context<'_>, reply: &mut Reply<'_>, topic: Topic) {
    tell_own(state, context, reply);
    let names = match args.len() {
        1 => context.hub.subscriptions(state.number, topic),
        _ => args.from(1).iter().map(Blob::new).collect(),
    };
    let word = word(topic, ["unsubscribe", "punsubscribe", "sunsubscribe"]);
    if names.is_empty() {
        confirm(word, None, count(topic, state, context), reply);
    }
    for name in names {
        context.hub.unsubscribe(state.number, topic, &name);
        confirm(word, Some(&name), count(topic, state, context), reply);
    }
}

/// Before a subscription begins or ends: what was published until then comes before that.
pub(crate) fn tell_own(state: &mut State, context: &mut Context<'_>, reply: &mut Reply<'_>) {
    let messages = context.hub.take_messages(state.number);
    state.work += messages.len();
    let before = reply.length();
    for message in &messages {
        if state.is_behind(reply.length() - before) {
            return state.fall_behind(context);
        }
        write(message, reply);
    }
}

/// How many subscriptions a connection has left, as a confirmation tells it: shard channels are counted apart from the others.
fn count(topic: Topic, state: &mut State, context: &Context<'_>) -> usize {
    let [channels, patterns, shards] = context.hub.counts(state.number);
    state.subscribed = channels + patterns + shards;
    match topic {
        Topic::Channel | Topic::Pattern => channels + patterns,
        Topic::Shard => shards,
    }
}

fn word(topic: Topic, [channel, pattern, shard]: [&'static str; 3]) -> &'static str {
    match topic {
        Topic::Channel => channel,
        Topic::Pattern => pattern,
        Topic::Shard => shard,
    }
}

/// Whether what this command answers are such confirmations.
pub(crate) fn confirms(name: &str) -> bool {
    matches!(
        name,
        "subscribe" | "psubscribe" | "ssubscribe" | "unsubscribe" | "punsubscribe" | "sunsubscribe"
    )
}

/// Whether this command tells others something.
pub(crate) fn publishes(name: &str) -> bool {
    matches!(name, "publish" | "spublish")
}

fn confirm(word: &str, name: Option<&Blob>, count: usize, reply: &mut Reply<'_>) {
    reply.push(3);
    reply.bulk(word.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.count(count);
}

/// The name of a channel, no longer than a node is willing to try on every pattern.
fn channel(name: &[u8]) -> Result<Blob, Complaint> {
    match name.len() {
        0..=PATTERN_MAX => Ok(Blob::new(name)),
        _ => Err(Complaint::text(format!("ERR the name of the channel is longer than {PATTERN_MAX} bytes"))),
    }
}

/// Why a message was not published.
const FULL: &str = "OVERLOADED too many messages are on their way; try again shortly";

/// `PUBLISH channel message`
pub(crate) fn publish(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let count = context.hub.publish(channel(args.at(1))?, Blob::new(args.at(2)));
    published(count, state, reply)
}

/// `SPUBLISH shardchannel message`
pub(crate) fn spublish(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    let count = context.hub.publish_to_shard(channel(args.at(1))?, Blob::new(args.at(2)));
    published(count, state, reply)
}

fn published(count: Option<usize>, state: &mut State, reply: &mut Reply<'_>) -> Answer {
    let count = count.ok_or(Complaint::text(FULL))?;
    state.work += count;
    reply.count(count);
    Ok(())
}

/// `PUBSUB CHANNELS [pattern]`
pub(crate) fn channels(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    list(Topic::Channel, args, context, reply)
}

/// `PUBSUB SHARDCHANNELS [pattern]`
pub(crate) fn shard_channels(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    list(Topic::Shard, args, context, reply)
}

fn list(topic: Topic, args: Args<'_>, context: &Context<'_>, reply: &mut Reply<'_>) -> Answer {
    let pattern = match args.len() {
        2 => None,
        3 => Some(Glob::new(super::args::pattern(args.at(2))?)),
        _ => {
            return Err(Complaint::text(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try PUBSUB HELP.",
                String::from_utf8_lossy(args.at(1))
            )));
        }
    };
    let names = context.hub.names(topic).into_iter();
    let found: Vec<&Blob> =
        names.filter(|name| pattern.as_ref().is_none_or(|pattern| pattern.matches(name))).collect();
    reply.array(found.len());
    found.into_iter().for_each(|name| reply.bulk(name));
    Ok(())
}

/// `PUBSUB NUMSUB [channel ...]`
pub(crate) fn numsub(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    number(Topic::Channel, args, context, reply);
    Ok(())
}

/// `PUBSUB SHARDNUMSUB [shardchannel ...]`
pub(crate) fn shard_numsub(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    number(Topic::Shard, args, context, reply);
    Ok(())
}

fn number(topic: Topic, args: Args<'_>, context: &Context<'_>, reply: &mut Reply<'_>) {
    reply.array(2 * (args.len() - 2));
    for channel in args.from(2).iter() {
        reply.bulk(channel);
        reply.count(context.hub.subscribers(topic, channel));
    }
}

/// `PUBSUB NUMPAT`
pub(crate) fn numpat(_: &mut State, _: Args<'_>, context: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    reply.count(context.hub.names(Topic::Pattern).len());
    Ok(())
}

/// What RESP2 allows while there are subscriptions: replies and messages look alike there.
pub(crate) fn allowed(state: &State, name: &str) -> Answer {
    let fine = state.version == Version::Three
        || state.subscribed == 0
        || confirms(name)
        || matches!(name, "ping" | "quit" | "reset");
    match fine {
        true => Ok(()),
        false => Err(Complaint::text(format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
             allowed in this context"
        ))),
    }
}

/// Writes a message.
pub(crate) fn write(notice: &Notice, reply: &mut Reply<'_>) {
    let Notice::Message { shard, pattern, channel, payload } = notice else { return };
    match pattern {
        None => {
            reply.push(3);
            reply.bulk(if *shard { &b"smessage"[..] } else { b"message" });
        }
        Some(pattern) => {
            reply.push(4);
            reply.bulk(b"pmessage");
            reply.bulk(pattern);
        }
    }
    reply.bulk(channel);
    reply.bulk(payload);
}
