//! What is told of streams and their groups: `XINFO`, `XPENDING`.

use super::{Ends, Group, Held, NO_GROUP, id_text, since};
use crate::Store;
use crate::sequence::Sequence;
use crate::streams::{Stream, bound, entry};
use isochrone_core::Stamp;
use isochrone_core::command::{Refusal, Response, StreamHead, StreamId, StreamLook};

impl Store {
    pub(crate) fn xinfo(&self, key: &[u8], look: &StreamLook, stamp: Stamp) -> Result<Response, Refusal> {
        let now = stamp.as_millis();
        let stream = || self.view::<Stream>(key)?.ok_or(Refusal::NoSuchKey);
        match look {
            StreamLook::Pending { group } => Ok(summary(self.group(key, group)?.1)),
            StreamLook::PendingRange { group, start, end, count, idle, consumer } => {
                let (_, group) = self.group(key, group)?;
                let from = |sequence: &Sequence<StreamId>| sequence.index(sequence.seek(|held| held < start));
                let row = |(id, pending): &(StreamId, Held)| {
                    let (idle, count) = (since(pending.delivered, now), pending.count);
                    Response::Array(vec![
                        id_text(*id),
                        Response::Bulk(pending.consumer.clone()),
                        number(idle),
                        number(count),
                    ])
                };
                let count = usize::try_from(*count).unwrap_or(usize::MAX);
                let due = |pending: &Held| since(pending.delivered, now) >= *idle;
                let rows: Vec<_> = match consumer {
                    None => {
                        let from = group.pending.index(group.place(*start));
                        let all = group.pending.range(from..group.pending.len());
                        let range = all.take_while(|(id, _)| id <= end);
                        range.filter(|(_, pending)| due(pending)).take(count).map(row).collect()
                    }
                    Some(name) => {
                        let Some(consumer) = group.consumer(name) else {
                            return Ok(Response::Array(Vec::new()));
                        };
                        let ids = consumer.pending.range(from(&consumer.pending)..consumer.pending.len());
                        let range = ids.take_while(|id| *id <= end);
                        let found = range.filter_map(|id| group.pending.at(group.place(*id)));
                        found.filter(|(_, pending)| due(pending)).take(count).map(row).collect()
                    }
                };
                Ok(Response::Array(rows))
            }
            StreamLook::Stream => Ok(about(stream()?, None)),
            StreamLook::Full { count } => Ok(about(stream()?, Some(bound(*count)))),
            StreamLook::Groups => {
                let stream = stream()?;
                let groups = stream.groups.iter().map(|group| {
                    Response::Map(vec![
                        named("name", Response::Bulk(group.name.clone())),
                        named("consumers", Response::count(group.consumers.len())),
                        named("pending", Response::count(group.pending.len())),
                        named("last-delivered-id", id_text(group.last)),
                        named("entries-read", or_nil(group.read.map(number))),
                        named("lag", or_nil(stream.lag(group).map(number))),
                    ])
                });
                Ok(Response::Array(groups.collect()))
            }
            StreamLook::Consumers { group } => {
                let group = stream()?.groups.get(group).ok_or(NO_GROUP)?;
                let consumers = group.consumers.iter().map(|consumer| {
                    Response::Map(vec![
                        named("name", Response::Bulk(consumer.name.clone())),
                        named("pending", Response::count(consumer.pending.len())),
                        named("idle", number(since(consumer.seen, now))),
                    ])
                });
                Ok(Response::Array(consumers.collect()))
            }
        }
    }
}

fn number(number: u64) -> Response {
    // As Redis does, which keeps it in a signed number.
    Response::Integer(number as i64)
}

fn named(name: &str, value: Response) -> (Response, Response) {
    (Response::bulk(name.as_bytes()), value)
}

fn or_nil(response: Option<Response>) -> Response {
    response.unwrap_or(Response::Nil)
}

fn summary(group: &Group) -> Response {
    let ends = [group.pending.iter().next(), group.pending.iter().next_back()];
    let [Some((first, _)), Some((last, _))] = ends else {
        return Response::Array(vec![Response::Integer(0), Response::Nil, Response::Nil, Response::NilArray]);
    };
    let consumers = group.consumers().filter(|(_, pending)| *pending > 0);
    let consumers = consumers.map(|(name, pending)| {
        Response::Array(vec![Response::Bulk(name.clone()), Response::bulk(pending.to_string().as_bytes())])
    });
    Response::Array(vec![
        Response::count(group.pending.len()),
        id_text(*first),
        id_text(*last),
        Response::Array(consumers.collect()),
    ])
}

/// Entries that Redis keeps in one node, for those who ask how many nodes there are.
const NODE_ENTRIES: usize = 100;

/// What a stream is; in full with so many entries of it and of what is pending.
fn about(stream: &Stream, full: Option<usize>) -> Response {
    let StreamHead { last, added, deleted } = stream.head();
    let nodes = stream.len().div_ceil(NODE_ENTRIES);
    let mut told = vec![
        named("length", Response::count(stream.len())),
        named("radix-tree-keys", Response::count(nodes)),
        named("radix-tree-nodes", Response::count(nodes + 1)),
        named("last-generated-id", id_text(last)),
        named("max-deleted-entry-id", id_text(deleted)),
        named("entries-added", number(added)),
        named("recorded-first-entry-id", id_text(Ends::of(stream).first)),
    ];
    match full {
        None => {
            told.push(named("groups", Response::count(stream.groups.len())));
            let ends = stream.ends().map(|end| or_nil(end.map(entry)));
            told.extend(
                ["first-entry", "last-entry"].into_iter().zip(ends).map(|(name, end)| named(name, end)),
            );
        }
        Some(count) => {
            told.push(named("entries", Response::Array(stream.iter_at(0).take(count).map(entry).collect())));
            let groups = stream.groups.iter().map(|group| in_full(stream, group, count));
            told.push(named("groups", Response::Array(groups.collect())));
        }
    }
    Response::Map(told)
}

fn in_full(stream: &Stream, group: &Group, count: usize) -> Response {
    let pending = group.pending.iter().take(count).map(|(id, pending)| {
        let name = Response::Bulk(pending.consumer.clone());
        Response::Array(vec![id_text(*id), name, number(pending.delivered), number(pending.count)])
    });
    let consumers = group.consumers.iter().map(|consumer| {
        let ids = consumer.pending.iter().take(count);
        let pending = ids.filter_map(|id| group.pending.at(group.place(*id))).map(|(id, pending)| {
            Response::Array(vec![id_text(*id), number(pending.delivered), number(pending.count)])
        });
        Response::Map(vec![
            named("name", Response::Bulk(consumer.name.clone())),
            named("seen-time", number(consumer.seen)),
            named("pel-count", Response::count(consumer.pending.len())),
            named("pending", Response::Array(pending.collect())),
        ])
    });
    Response::Map(vec![
        named("name", Response::Bulk(group.name.clone())),
        named("last-delivered-id", id_text(group.last)),
        named("entries-read", or_nil(group.read.map(number))),
        named("lag", or_nil(stream.lag(group).map(number))),
        named("pel-count", Response::count(group.pending.len())),
        named("pending", Response::Array(pending.collect())),
        named("consumers", Response::Array(consumers.collect())),
    ])
}
