//! Consumer groups of streams. All times are the stamps of commands, in milliseconds.
//!
//! What is pending in a group stands in the order of identifiers, once with all that is known of it and once, as an
//! identifier, with its consumer: acknowledging it costs a search in both.

mod told;

use crate::Store;
use crate::sequence::{Place, Sequence};
use crate::streams::{Fields, Stream, bound, entry};
use crate::turn::{Changed, Mark, TOLD, Turn};
use isochrone_core::Blob;
use isochrone_core::command::{
    Claim, GroupChange, GroupRead, Pending, REPLY_MAX, ReadFrom, Refusal, Response, StreamHead, StreamId,
    StreamPart,
};
use std::sync::Arc;

/// The groups of a stream, in the order of their names.
#[derive(Clone, Default, PartialEq, Hash)]
pub(crate) struct Groups(Sequence<Arc<Group>>);

/// A group.
#[derive(Clone, PartialEq, Hash)]
pub(crate) struct Group {
    name: Blob,
    /// The last entry that was delivered.
    last: StreamId,
    /// How many entries were, where that is known.
    read: Option<u64>,
    /// What was delivered and is not acknowledged, in order.
    pending: Sequence<(StreamId, Held)>,
    /// In the order of their names.
    consumers: Sequence<Arc<Consumer>>,
}

/// How an entry was delivered that is not acknowledged: to whom, when, and how often.
#[derive(Clone, PartialEq, Hash)]
pub(crate) struct Held {
    consumer: Blob,
    delivered: u64,
    count: u64,
}

#[derive(Clone, PartialEq, Hash)]
struct Consumer {
    name: Blob,
    /// When it last asked for something.
    seen: u64,
    pending: Sequence<StreamId>,
}

/// Puts an element where it belongs, most often behind all.
fn enter<T: Clone>(sequence: &mut Sequence<T>, value: T, before: impl Fn(&T) -> bool) {
    match sequence.len().checked_sub(1).and_then(|last| sequence.get(last)) {
        Some(last) if !before(last) => sequence.insert(sequence.seek(before), value),
        _ => sequence.push_back(value),
    }
}

impl Groups {
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.0.iter()
    }

    fn seek(&self, name: &[u8]) -> (Place, Option<&Group>) {
        let place = self.0.seek(|group| group.name[..] < *name);
        (place, self.0.at(place).filter(|group| group.name[..] == *name).map(|group| &**group))
    }

    fn get(&self, name: &[u8]) -> Option<&Group> {
        self.seek(name).1
    }

    /// How much is pending in this one.
    pub fn pending(&self, name: &[u8]) -> usize {
        self.get(name).map_or(0, Group::pending)
    }

    /// Changes a group, if it is there.
    fn edit<R>(&mut self, name: &[u8], edit: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let (place, group) = self.seek(name);
        group?;
        Some(self.0.edit(place, |group| edit(Arc::make_mut(group))))
    }

    /// Adds a group behind all; false where it does not belong there.
    pub fn push(&mut self, group: Group) -> bool {
        let fits = self.0.iter().next_back().is_none_or(|last| last.name < group.name);
        self.0.push_back(Arc::new(group));
        fits
    }

    /// Adds something to the last group; false where there is none, or it cannot be added.
    pub fn last(&mut self, add: impl FnOnce(&mut Group) -> bool) -> bool {
        let Some(last) = self.0.len().checked_sub(1) else { return false };
        let place = self.0.place(last);
        self.0.edit(place, |group| add(Arc::make_mut(group)))
    }

    /// Their parts from this one on.
    pub fn parts_at(&self, mut from: usize) -> impl Iterator<Item = StreamPart> {
        let mut first = 0;
        for group in self.0.iter() {
            if from < group.parts() {
                break;
            }
            from -= group.parts();
            first += 1;
        }
        let groups = self.0.range(first..self.0.len()).enumerate();
        groups.flat_map(move |(at, group)| group.parts_at(if at == 0 { from } else { 0 }))
    }
}

impl Group {
    pub fn new(name: Blob, last: StreamId, read: Option<u64>) -> Group {
        Group { name, last, read, pending: Sequence::default(), consumers: Sequence::default() }
    }

    fn parts(&self) -> usize {
        1 + self.consumers.len() + self.pending.len()
    }

    fn parts_at(&self, from: usize) -> impl Iterator<Item = StreamPart> {
        let head = (from == 0).then(|| StreamPart::Group(self.name.clone(), self.last, self.read));
        let from = from.saturating_sub(1);
        let consumers = self.consumers.range(from..self.consumers.len());
        let consumers = consumers.map(|consumer| StreamPart::Consumer(consumer.name.clone(), consumer.seen));
        let from = from.saturating_sub(self.consumers.len());
        let pending = self.pending.range(from..self.pending.len());
        let pending = pending.map(|(id, held)| {
            let consumer = self.consumers.index(self.seek(&held.consumer).0) as u64;
            StreamPart::Pending(*id, Pending { consumer, delivered: held.delivered, count: held.count })
        });
        head.into_iter().chain(consumers).chain(pending)
    }

    /// Adds a consumer behind all; false where it does not belong there.
    pub fn push_consumer(&mut self, name: Blob, seen: u64) -> bool {
        let fits = self.consumers.iter().next_back().is_none_or(|last| last.name < name);
        self.consumers.push_back(Arc::new(Consumer { name, seen, pending: Sequence::default() }));
        fits && self.pending.len() == 0
    }

    /// Adds a pending entry behind all; false where it does not belong there.
    pub fn push_pending(&mut self, id: StreamId, pending: Pending) -> bool {
        let fits = self.pending.iter().next_back().is_none_or(|(last, _)| *last < id);
        let consumer = usize::try_from(pending.consumer).ok().and_then(|at| self.consumers.get(at));
        let Some(name) = consumer.filter(|_| fits).map(|consumer| consumer.name.clone()) else {
            return false;
        };
        self.assign(id, &name, pending.delivered, pending.count);
        true
    }

    /// What is kept of each consumer: its name, and how many entries are pending for it.
    pub fn consumers(&self) -> impl Iterator<Item = (&Blob, usize)> {
        self.consumers.iter().map(|consumer| (&consumer.name, consumer.pending.len()))
    }

    pub fn name(&self) -> &Blob {
        &self.name
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    fn seek(&self, name: &[u8]) -> (Place, Option<&Consumer>) {
        let place = self.consumers.seek(|consumer| consumer.name[..] < *name);
        let found = self.consumers.at(place).filter(|consumer| consumer.name[..] == *name);
        (place, found.map(|consumer| &**consumer))
    }

    fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.seek(name).1
    }

    fn edit<R>(&mut self, name: &[u8], edit: impl FnOnce(&mut Consumer) -> R) -> Option<R> {
        let (place, consumer) = self.seek(name);
        consumer?;
        Some(self.consumers.edit(place, |consumer| edit(Arc::make_mut(consumer))))
    }

    /// A consumer has asked for something at this time. Whether it is new.
    fn meet(&mut self, name: &Blob, now: u64) -> bool {
        if self.edit(name, |consumer| consumer.seen = now).is_some() {
            return false;
        }
        let consumer = Consumer { name: name.clone(), seen: now, pending: Sequence::default() };
        enter(&mut self.consumers, Arc::new(consumer), |held| held.name < *name);
        true
    }

    fn place(&self, id: StreamId) -> Place {
        self.pending.seek(|(held, _)| *held < id)
    }

    fn delivered(&self, id: StreamId) -> Option<&Held> {
        self.pending.at(self.place(id)).filter(|(held, _)| *held == id).map(|(_, pending)| pending)
    }

    /// An entry is pending for this consumer, which is there, and for no other.
    fn assign(&mut self, id: StreamId, consumer: &Blob, delivered: u64, count: u64) {
        let place = self.place(id);
        let former =
            self.pending.at(place).filter(|(held, _)| *held == id).map(|(_, held)| held.consumer.clone());
        match former {
            Some(former) if former == *consumer => {
                return self
                    .pending
                    .edit(place, |(_, held)| (held.delivered, held.count) = (delivered, count));
            }
            Some(former) => self.take_back(id, &former),
            None => {}
        }
        // The name is kept once.
        let name = self.edit(consumer, |consumer| {
            enter(&mut consumer.pending, id, |held| *held < id);
            consumer.name.clone()
        });
        let pending = Held { consumer: name.unwrap_or_else(|| consumer.clone()), delivered, count };
        match self.pending.at(place) {
            Some((held, _)) if *held == id => self.pending.edit(place, |(_, held)| *held = pending),
            _ => enter(&mut self.pending, (id, pending), |(held, _)| *held < id),
        }
    }

    /// An entry is no longer pending for this consumer.
    fn take_back(&mut self, id: StreamId, consumer: &[u8]) {
        self.edit(consumer, |consumer| {
            let place = consumer.pending.seek(|held| *held < id);
            if consumer.pending.at(place) == Some(&id) {
                consumer.pending.remove(place);
            }
        });
    }

    /// An entry is no longer pending. Whether it was.
    fn forget(&mut self, id: StreamId) -> bool {
        let place = self.place(id);
        if self.pending.at(place).is_none_or(|(held, _)| *held != id) {
            return false;
        }
        let (_, pending) = self.pending.remove(place);
        self.take_back(id, &pending.consumer);
        true
    }

    /// Removes a consumer with what is pending for it. How much that was.
    fn dismiss(&mut self, name: &[u8]) -> Option<usize> {
        let (place, consumer) = self.seek(name);
        let pending = consumer?.pending.clone();
        self.consumers.remove(place);
        for id in pending.iter() {
            self.pending.remove(self.place(*id));
        }
        Some(pending.len())
    }

    /// An entry behind the last is delivered.
    fn advance(&mut self, id: StreamId, head: StreamHead, ends: Ends) {
        self.read = match self.read {
            Some(read) if !gaps(head, ends, id) => Some(read.wrapping_add(1)),
            _ if head.added > 0 => head.added_up_to(id, ends.len, ends.first),
            read => read,
        };
        self.last = id;
    }
}

/// How many entries a stream has, and the identifier of the first.
#[derive(Copy, Clone)]
struct Ends {
    len: u64,
    first: StreamId,
}

impl Ends {
    fn of(stream: &Stream) -> Ends {
        let [first, _] = stream.ends();
        Ends { len: stream.len() as u64, first: first.map_or(StreamId::MIN, |(id, _)| *id) }
    }
}

/// Whether an entry at or behind this identifier may have been deleted, as far as is known.
fn gaps(head: StreamHead, ends: Ends, from: StreamId) -> bool {
    ends.len > 0 && head.deleted != StreamId::MIN && ends.first <= head.deleted && from <= head.deleted
}

fn id_text(id: StreamId) -> Response {
    Response::bulk(id.to_string().as_bytes())
}

/// How long ago that was.
fn since(then: u64, now: u64) -> u64 {
    now.saturating_sub(then)
}

impl Stream {
    /// How far a group is behind, where that can be told.
    fn lag(&self, group: &Group) -> Option<u64> {
        let (head, ends) = (self.head(), Ends::of(self));
        let read = match group.read {
            _ if head.added == 0 => 0,
            Some(read) if !gaps(head, ends, group.last) => read,
            _ => head.added_up_to(group.last, ends.len, ends.first)?,
        };
        Some(head.added.wrapping_sub(read))
    }

    /// Whether there is something that a group has not delivered.
    fn is_ahead_of(&self, group: &Group) -> bool {
        self.ends()[1].is_some_and(|(id, _)| *id > group.last)
    }

    /// About how many bytes tell of what [`Stream::deliver`] would deliver.
    fn would_deliver(&self, group: &Group, read: &GroupRead, after: Option<StreamId>) -> usize {
        let count = bound(read.count);
        let Some(after) = after else {
            return self.iter_at(self.up_to(group.last)).take(count).map(told_bytes).sum();
        };
        let Some(consumer) = group.consumer(&read.consumer) else { return 0 };
        let from = consumer.pending.index(consumer.pending.seek(|held| *held <= after));
        let pending = consumer.pending.range(from..consumer.pending.len()).take(count);
        pending.map(|id| self.shown_bytes(*id, false)).sum()
    }

    /// The same of what [`Stream::shown`] shows.
    fn shown_bytes(&self, id: StreamId, just_id: bool) -> usize {
        self.find(id).filter(|_| !just_id).map_or(ID_BYTES, told_bytes)
    }

    /// Entries for a consumer that is there; `None` where there is nothing new.
    fn deliver(&mut self, read: &GroupRead, after: Option<StreamId>, now: u64) -> Option<Vec<Response>> {
        let count = bound(read.count);
        let (head, ends) = (self.head(), Ends::of(self));
        let group = self.groups.get(&read.group)?;
        let Some(after) = after else {
            let from = self.up_to(group.last);
            let found: Vec<_> = self.iter_at(from).take(count).cloned().collect();
            if found.is_empty() {
                return None;
            }
            self.groups.edit(&read.group, |group| {
                for (id, _) in &found {
                    group.advance(*id, head, ends);
                    if !read.forget {
                        group.assign(*id, &read.consumer, now, 1);
                    }
                }
            });
            return Some(found.iter().map(entry).collect());
        };
        let consumer = group.consumer(&read.consumer)?;
        let from = consumer.pending.index(consumer.pending.seek(|held| *held <= after));
        let ids: Vec<StreamId> =
            consumer.pending.range(from..consumer.pending.len()).take(count).copied().collect();
        let entries = ids.iter().map(|id| match self.find(*id) {
            Some(found) => (*id, Some(entry(found))),
            None => (*id, None),
        });
        let entries: Vec<_> = entries.collect();
        self.groups.edit(&read.group, |group| {
            for (id, _) in entries.iter().filter(|(_, entry)| entry.is_some()) {
                let count = group.delivered(*id).map_or(0, |pending| pending.count);
                group.assign(*id, &read.consumer, now, count.wrapping_add(1));
            }
        });
        let gone = |id| Response::Array(vec![id_text(id), Response::NilArray]);
        Some(entries.into_iter().map(|(id, entry)| entry.unwrap_or_else(|| gone(id))).collect())
    }

    /// Gives an entry to a consumer, which is made if need be.
    fn give(&mut self, name: &[u8], id: StreamId, consumer: &Blob, now: u64, claim: &Claim) -> Given {
        let there = self.find(id).is_some();
        let given = self.groups.edit(name, |group| {
            let held = group.delivered(id).cloned();
            if !there {
                return if group.forget(id) { Given::Gone } else { Given::Nothing };
            }
            let count = match held {
                None if !claim.force => return Given::Nothing,
                Some(held) if since(held.delivered, now) < claim.idle => return Given::Nothing,
                Some(held) => held.count,
                None => 1,
            };
            group.meet(consumer, now);
            let delivered = claim.delivered.filter(|delivered| *delivered <= now).unwrap_or(now);
            let count = claim.count.unwrap_or(count.wrapping_add(u64::from(!claim.just_id)));
            group.assign(id, consumer, delivered, count);
            Given::Yes
        });
        given.unwrap_or(Given::Nothing)
    }

    fn shown(&self, id: StreamId, just_id: bool) -> Response {
        match self.find(id) {
            Some(found) if !just_id => entry(found),
            _ => id_text(id),
        }
    }
}

/// A name of an entry, as it is told, with what is around it.
const ID_BYTES: usize = 48;

/// About how many bytes tell of an entry.
fn told_bytes((_, fields): &(StreamId, Fields)) -> usize {
    let fields = fields.iter().map(|(field, value)| field.len() + value.len() + 16);
    ID_BYTES + fields.sum::<usize>()
}

/// What has become of an entry that a consumer was to be given.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Given {
    Yes,
    Nothing,
    /// It was deleted from the stream, and is no longer pending.
    Gone,
}

const NO_GROUP: Refusal = Refusal::NoGroup(0);

impl Store {
    fn group(&self, key: &[u8], name: &[u8]) -> Result<(&Stream, &Group), Refusal> {
        let stream = self.view::<Stream>(key)?.ok_or(NO_GROUP)?;
        Ok((stream, stream.groups.get(name).ok_or(NO_GROUP)?))
    }

    /// Whether a read would find something, or has lost its group.
    pub(crate) fn xreadgroup_peek(&self, read: &GroupRead) -> Result<Response, Refusal> {
        let due = read.streams.iter().any(|(key, _)| match self.group(key, &read.group) {
            Ok((stream, group)) => stream.is_ahead_of(group),
            Err(_) => true,
        });
        Ok(Response::yes(due))
    }
}

impl Turn<'_> {
    pub(crate) fn xreadgroup(&mut self, mark: &mut Mark<'_>, read: &GroupRead) -> Result<Response, Refusal> {
        for (at, (key, _)) in read.streams.iter().enumerate() {
            self.store().group(key, &read.group).map_err(|refusal| match refusal {
                // No command has 2^32 keys.
                Refusal::NoGroup(_) => Refusal::NoGroup(at as u32),
                refusal => refusal,
            })?;
        }
        // Who could not be told of them is given none. The key of what is told alone is not counted.
        let alone = read.streams.len() == 1 && self.left() == REPLY_MAX;
        let mut bytes = 0_usize;
        for (key, after) in &read.streams {
            let (stream, group) = self.store().group(key, &read.group)?;
            let entries = stream.would_deliver(group, read, *after);
            let named = !alone && (entries > 0 || after.is_some());
            bytes = bytes.saturating_add(entries + if named { key.len() + ID_BYTES } else { 0 });
        }
        if bytes > self.left() {
            return Err(Refusal::ReplyTooLong);
        }
        let now = self.stamp.as_millis();
        let mut found = Vec::new();
        for (key, after) in &read.streams {
            // Where nothing is new, nothing has happened: the consumer is not even made.
            let (stream, group) = self.store().group(key, &read.group)?;
            if after.is_none() && !stream.is_ahead_of(group) {
                continue;
            }
            let entries = self.update_held(mark, key, |stream: &mut Stream| {
                stream.groups.edit(&read.group, |group| group.meet(&read.consumer, now));
                (stream.deliver(read, *after, now), Changed::Yes)
            })?;
            if let Some(entries) = entries.flatten() {
                found.push((Response::Bulk(key.clone()), Response::Array(entries)));
            }
        }
        Ok(if found.is_empty() { Response::NilArray } else { Response::Pairs(found) })
    }

    pub(crate) fn xgroup(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        change: &GroupChange,
    ) -> Result<Response, Refusal> {
        let now = self.stamp.as_millis();
        let held = self.store().view::<Stream>(key)?;
        match change {
            GroupChange::Create { group, from, read, make } => {
                match held {
                    None if !make => return Err(Refusal::NoStream),
                    Some(stream) if stream.groups.get(group).is_some() => return Err(Refusal::GroupExists),
                    _ => {}
                }
                self.update(mark, key, |stream: &mut Stream| {
                    let group = Group::new(group.clone(), resolved(stream, *from), *read);
                    let name = group.name.clone();
                    enter(&mut stream.groups.0, Arc::new(group), |held| held.name < name);
                    (Response::Ok, Changed::Yes)
                })
            }
            GroupChange::SetId { group, from, read } => self.edit_group(mark, key, group, |stream, group| {
                let last = resolved(stream, *from);
                stream.groups.edit(group, |group| (group.last, group.read) = (last, *read));
                (Response::Ok, Changed::Yes)
            }),
            GroupChange::Destroy { group } => {
                let Some(stream) = held else { return Err(Refusal::NoStream) };
                if stream.groups.get(group).is_none() {
                    return Ok(Response::Integer(0));
                }
                self.edit_group(mark, key, group, |stream, group| {
                    let (place, _) = stream.groups.seek(group);
                    stream.groups.0.remove(place);
                    (Response::Integer(1), Changed::Yes)
                })
            }
            GroupChange::CreateConsumer { group, consumer } => {
                self.edit_group(mark, key, group, |stream, group| {
                    let known =
                        stream.groups.get(group).is_some_and(|group| group.consumer(consumer).is_some());
                    if !known {
                        stream.groups.edit(group, |group| group.meet(consumer, now));
                    }
                    (Response::yes(!known), Changed::from(!known))
                })
            }
            GroupChange::DeleteConsumer { group, consumer } => {
                self.edit_group(mark, key, group, |stream, group| {
                    let pending = stream.groups.edit(group, |group| group.dismiss(consumer)).flatten();
                    (Response::count(pending.unwrap_or(0)), Changed::from(pending.is_some()))
                })
            }
            GroupChange::Acknowledge { group, ids } => {
                if held.and_then(|stream| stream.groups.get(group)).is_none() {
                    return Ok(Response::Integer(0));
                }
                self.edit_group(mark, key, group, |stream, group| {
                    let forget = |group: &mut Group| ids.iter().filter(|id| group.forget(**id)).count();
                    let count = stream.groups.edit(group, forget).unwrap_or(0);
                    (Response::count(count), Changed::from(count > 0))
                })
            }
            GroupChange::Claim { group, consumer, ids, claim } => {
                let (stream, _) = self.store().group(key, group)?;
                let mut left = self.left();
                for id in ids {
                    let Some(rest) = left.checked_sub(stream.shown_bytes(*id, claim.just_id)) else {
                        return Err(Refusal::ReplyTooLong);
                    };
                    left = rest;
                }
                self.edit_group(mark, key, group, |stream, group| {
                    if let Some(last) = claim.last {
                        stream.groups.edit(group, |group| group.last = group.last.max(last));
                    }
                    let mut changed = claim.last.is_some();
                    let mut given = Vec::new();
                    for id in ids {
                        let outcome = stream.give(group, *id, consumer, now, claim);
                        changed |= outcome != Given::Nothing;
                        if outcome == Given::Yes {
                            given.push(stream.shown(*id, claim.just_id));
                        }
                    }
                    (Response::Array(given), Changed::from(changed))
                })
            }
            GroupChange::ClaimFrom { group, consumer, start, count, idle, just_id } => {
                self.store().group(key, group)?;
                let claim = Claim { idle: *idle, just_id: *just_id, ..Claim::default() };
                // What is told beside them is taken off.
                let (bytes, alone) = (self.left().saturating_sub(TOLD), self.left() == REPLY_MAX);
                self.edit_group(mark, key, group, |stream, group| {
                    let most = (*count, bytes, alone);
                    let (given, gone, next) = stream.claim_from(group, *start, most, consumer, now, &claim);
                    let changed = !given.is_empty() || !gone.is_empty();
                    let gone = gone.into_iter().map(id_text).collect();
                    let parts = vec![id_text(next), Response::Array(given), Response::Array(gone)];
                    (Response::Array(parts), Changed::from(changed))
                })
            }
            GroupChange::Remember { last, added, deleted } => {
                let stream = held.ok_or(Refusal::NoSuchKey)?;
                if stream.ends()[1].is_some_and(|(top, _)| last < top) {
                    return Err(Refusal::StreamIdBelowTop);
                }
                if added.is_some_and(|added| added < stream.len() as u64) {
                    return Err(Refusal::StreamAddedBelowLength);
                }
                let set = self.update_held(mark, key, |stream: &mut Stream| {
                    let head = stream.head_mut();
                    head.last = *last;
                    head.added = added.unwrap_or(head.added);
                    head.deleted = deleted.filter(|id| *id != StreamId::MIN).unwrap_or(head.deleted);
                    (Response::Ok, Changed::Yes)
                })?;
                Ok(set.unwrap_or(Response::Nil))
            }
        }
    }

    /// Changes something of a group, which must be there.
    fn edit_group(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        group: &Blob,
        edit: impl FnOnce(&mut Stream, &Blob) -> (Response, Changed),
    ) -> Result<Response, Refusal> {
        let stream = self.store().view::<Stream>(key)?.ok_or(Refusal::NoStream)?;
        stream.groups.get(group).ok_or(NO_GROUP)?;
        let response = self.update_held(mark, key, |stream: &mut Stream| edit(stream, group))?;
        Ok(response.unwrap_or(Response::Nil))
    }
}

/// Behind which entry a group begins.
fn resolved(stream: &Stream, from: ReadFrom) -> StreamId {
    match from {
        ReadFrom::After(id) => id,
        ReadFrom::Last => stream.last(),
    }
}

/// So many pending entries are looked at for each one that is wanted.
const LOOKS: u64 = 10;

impl Stream {
    /// What a consumer was given of the pending entries from this one on, which of them were deleted, and where to go on.
    /// Told are so many, in so many bytes, but for the first where nothing else is told.
    fn claim_from(
        &mut self,
        name: &[u8],
        start: StreamId,
        (count, mut bytes, alone): (u64, usize, bool),
        consumer: &Blob,
        now: u64,
        claim: &Claim,
    ) -> (Vec<Response>, Vec<StreamId>, StreamId) {
        let (mut given, mut gone) = (Vec::new(), Vec::new());
        let mut next = Some(start);
        let (mut left, mut looks) = (count, count.saturating_mul(LOOKS));
        let ahead = |stream: &Stream, from: StreamId| {
            let group = stream.groups.get(name)?;
            group.pending.at(group.place(from)).map(|(id, _)| *id)
        };
        while let Some(id) = next.and_then(|from| ahead(self, from)) {
            let rest = bytes.checked_sub(self.shown_bytes(id, claim.just_id));
            // One alone always can be told.
            let full = rest.is_none() && !(alone && given.is_empty() && gone.is_empty());
            if left == 0 || looks == 0 || full {
                return (given, gone, id);
            }
            bytes = rest.unwrap_or(0);
            looks -= 1;
            let outcome = self.give(name, id, consumer, now, claim);
            left -= u64::from(outcome != Given::Nothing);
            match outcome {
                Given::Nothing => {}
                Given::Yes => given.push(self.shown(id, claim.just_id)),
                Given::Gone => gone.push(id),
            }
            next = id.next();
        }
        (given, gone, StreamId::MIN)
    }
}
