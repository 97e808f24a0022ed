//! One command that changes the state: what the files of the types share.

use crate::Store;
use crate::absences;
use crate::deadlines::Deadlines;
use crate::hash;
use crate::key::Name;
use crate::ranges::Index;
use crate::trie::Slot;
use crate::value::{Collection, Entry, Value};
use isochrone_core::command::{Operation, REPLY_MAX, Refusal, Response, Touch};
use isochrone_core::{Blob, Command, Stamp, wire};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The execution of one command. Every change of a key goes through [`Books`], so that versions, digest and
/// deadlines follow.
pub(crate) struct Turn<'a> {
    store: &'a mut Store,
    pub stamp: Stamp,
    /// Bytes that are left of what an answer may have.
    left: usize,
    /// The keys that it has deleted because their time was over, before anything else.
    purged: Vec<Blob>,
}

/// What one operation adds to the version of a key that it changes, made when first needed: a hash of the
/// operation and its stamp.
pub(crate) struct Mark<'a> {
    operation: &'a Operation,
    stamp: Stamp,
    made: Option<u64>,
}

impl<'a> Mark<'a> {
    fn new(operation: &'a Operation, stamp: Stamp) -> Mark<'a> {
        Mark { operation, stamp, made: None }
    }

    /// A mark that depends on something beside the operation: another key's value that went into this one.
    pub fn salted(&mut self, salt: u64) -> Mark<'a> {
        Mark { operation: self.operation, stamp: self.stamp, made: Some(hash::mix(self.get(), salt)) }
    }

    /// What stands for the absence of a key: odd, and then even, above 0 and below 2^63.
    pub fn absence(&mut self) -> u64 {
        self.next(0) | 2
    }

    fn get(&mut self) -> u64 {
        *self.made.get_or_insert_with(|| hash::digest(&(self.operation, self.stamp)))
    }

    /// The version behind one: odd, so never 0, and below 2^63, so that it fits a reply.
    fn next(&mut self, version: u64) -> u64 {
        hash::mix(version, self.get()) >> 1 | 1
    }
}

/// Whether a change has taken place.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) enum Changed {
    Yes,
    No,
}

impl From<bool> for Changed {
    fn from(changed: bool) -> Changed {
        if changed { Changed::Yes } else { Changed::No }
    }
}

/// Refuses to take these elements out, before any is, where so much is left of the answer: whoever asks could not be given
/// them. One alone always can.
pub(crate) fn fits(left: usize, lengths: impl Iterator<Item = usize>) -> Result<(), Refusal> {
    fits_behind(None, left, lengths)
}

/// The same of elements that are told behind the key that they are taken from.
pub(crate) fn fits_behind(
    key: Option<&Blob>,
    left: usize,
    lengths: impl Iterator<Item = usize>,
) -> Result<(), Refusal> {
    let (mut count, mut bytes) = (0_usize, key.map_or(0, |key| key.len() + ELEMENT));
    for length in lengths {
        (count, bytes) = (count + 1, bytes.saturating_add(length + ELEMENT));
        if bytes > left && (count > 1 || left < REPLY_MAX) {
            return Err(Refusal::ReplyTooLong);
        }
    }
    Ok(())
}

/// The answer of a part of an operation, where it fits into what is left of the whole one, of which it is taken off. One alone
/// always does.
pub(crate) fn within(left: &mut usize, answer: Response) -> Response {
    match left.checked_sub(wire::encoded_size(&answer)) {
        Some(rest) => *left = rest,
        None if *left < REPLY_MAX => return Refusal::ReplyTooLong.into(),
        None => *left = 0,
    }
    answer
}

/// What an answer takes at most that is no element: a number, or a word.
pub(crate) const TOLD: usize = 64;

/// What the sum of two doubles takes at most in an answer: some 300 digits, and 17 decimals.
const SUM: usize = 400;

/// What an element takes in an answer beside its bytes, at most: a score, and lengths.
const ELEMENT: usize = 24;

/// What the answer to an operation takes at most, but for what the operation finds and looks at the room for itself.
fn told(operation: &Operation) -> usize {
    match operation {
        Operation::IncrByFloat { .. } | Operation::HIncrByFloat { .. } => SUM,
        Operation::BitField { steps, .. } => TOLD.saturating_add(steps.len().saturating_mul(ELEMENT)),
        Operation::Transaction { operations, .. } => {
            operations.iter().map(told).fold(TOLD, usize::saturating_add)
        }
        _ => TOLD,
    }
}

impl<'a> Turn<'a> {
    pub fn new(store: &'a mut Store, stamp: Stamp) -> Turn<'a> {
        Turn { store, stamp, left: REPLY_MAX, purged: Vec::new() }
    }

    /// What is left of the answer.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Deletes what the stamp expires among the keys that the command names, then executes it.
    pub fn run(&mut self, command: &Command) -> Response {
        let operation = &command.operation;
        if let Some(elsewhere) = self.store.elsewhere(command) {
            return elsewhere;
        }
        // A sweep counts what it deletes.
        if !matches!(operation, Operation::Sweep { .. }) && self.store.touches_expired(operation, self.stamp)
        {
            self.purge(operation);
        }
        self.execute(operation)
    }

    /// The state, to be looked at.
    pub fn store(&self) -> &Store {
        self.store
    }

    /// Executes an operation that is a part of another.
    pub fn run_inner(&mut self, operation: &Operation) -> Response {
        self.execute(operation)
    }

    fn execute(&mut self, operation: &Operation) -> Response {
        if let Operation::Transaction { watched, operations } = operation
            && (!operation.is_read() || !self.purged.is_empty())
        {
            if !self.store.are_unchanged(watched, self.stamp) {
                return Response::NilArray;
            }
            let answers = operations.iter().map(|operation| match operation {
                operation if !crate::may_be_inside(operation) => Refusal::NestedTransaction.into(),
                // Nobody could be told what it has done; of the first alone always.
                _ if self.left < told(operation).min(REPLY_MAX) => Refusal::ReplyTooLong.into(),
                operation => {
                    let left = self.left;
                    if left < REPLY_MAX && matches!(operation, Operation::Transaction { .. }) {
                        // What is told around its answers, which it takes off itself.
                        self.left -= ELEMENT;
                    }
                    let answer = self.execute(operation);
                    self.left = left;
                    within(&mut self.left, answer)
                }
            });
            return Response::Array(answers.collect());
        }
        if let Operation::Expired { keys } = operation {
            let purged: BTreeSet<&Blob> = self.purged.iter().collect();
            return Response::Array(keys.iter().map(|key| Response::yes(purged.contains(key))).collect());
        }
        if let Some(answer) = self.store.answer(operation, self.stamp) {
            return answer;
        }
        let mut mark = Mark::new(operation, self.stamp);
        self.change(operation, &mut mark).unwrap_or_else(Response::Error)
    }

    fn change(&mut self, operation: &Operation, mark: &mut Mark<'_>) -> Result<Response, Refusal> {
        use Operation::*;
        match operation {
            Set { key, value, condition, expiry, get } => {
                self.set(mark, key, value, *condition, *expiry, *get)
            }
            MSet { pairs, only_if_absent } => Ok(self.mset(mark, pairs, *only_if_absent)),
            GetDel { key } => self.getdel(key),
            GetEx { key, expiry } => self.getex(mark, key, *expiry),
            Append { key, value } => self.append(mark, key, value, u64::MAX),
            AppendWithin { key, value, most } => self.append(mark, key, value, *most),
            SetRange { key, offset, value } => self.setrange(mark, key, *offset, value),
            IncrBy { key, by } => self.incrby(mark, key, *by),
            CountUntil { key, by, until, anew } => self.count_until(mark, key, *by, *until, *anew),
            IncrByFloat { key, by } => self.incrbyfloat(mark, key, *by),

            Del { keys } => Ok(self.del(keys)),
            ExpireAt { key, at, condition } => Ok(self.expireat(mark, key, *at, *condition)),
            Persist { key } => Ok(self.persist(mark, key)),
            Flush => Ok(self.flush()),
            Share { share } => Ok(self.run_share(share)),
            Rename { key, target, only_if_absent } => self.rename(mark, key, target, *only_if_absent),
            Copy { key, target, replace } => self.copy(mark, key, target, *replace),
            Sweep { keys } => Ok(self.sweep(keys)),
            Restore { key, restore } => self.restore(mark, key, restore),

            HSet { key, pairs } => self.hset(mark, key, pairs),
            HSetNx { key, field, value } => self.hsetnx(mark, key, field, value),
            HDel { key, fields } => self.hdel(mark, key, fields),
            HIncrBy { key, field, by } => self.hincrby(mark, key, field, *by),
            HIncrByFloat { key, field, by } => self.hincrbyfloat(mark, key, field, *by),

            Push { key, values, side, only_if_exists } => {
                self.push(mark, key, values, *side, *only_if_exists)
            }
            Pop { key, side, count } => self.pop(mark, key, *side, *count),
            LMPop { keys, side, count } => self.lmpop(mark, keys, *side, *count),
            LSet { key, index, value } => self.lset(mark, key, *index, value),
            LTrim { key, start, stop } => self.ltrim(mark, key, *start, *stop),
            LRem { key, count, value } => self.lrem(mark, key, *count, value),
            LInsert { key, before, pivot, value } => self.linsert(mark, key, *before, pivot, value),
            LMove { source, target, from, to } => self.lmove(mark, source, target, *from, *to),

            SAdd { key, members } => self.sadd(mark, key, members),
            SRem { key, members } => self.srem(mark, key, members),
            SPop { key, count, seed } => self.spop(mark, key, *count, *seed),
            SMove { source, target, member } => self.smove(mark, source, target, member),
            SCombineStore { combine, target, keys } => self.scombinestore(mark, *combine, target, keys),

            ZAdd { key, flags, members } => self.zadd(mark, key, *flags, members),
            ZIncrBy { key, member, by, flags } => self.zincrby(mark, key, member, *by, *flags),
            ZRem { key, members } => self.zrem(mark, key, members),
            ZRangeStore { target, source, slice } => self.zrangestore(mark, target, source, slice),
            ZPop { key, end, count } => self.zpop(mark, key, *end, *count),
            ZMPop { keys, end, count } => self.zmpop(mark, keys, *end, *count),
            ZRemRange { key, range } => self.zremrange(mark, key, range),
            ZCombineStore { target, inputs } => self.zcombinestore(mark, target, inputs),

            SetBit { key, offset, on } => self.setbit(mark, key, *offset, *on),
            BitOp { combine, target, keys } => self.bitop(mark, *combine, target, keys),
            BitField { key, steps } => self.bitfield(mark, key, steps),
            DelIf { key, value } => self.del_if(key, value),
            ExpireIf { key, value, deadline } => self.expire_if(mark, key, value, *deadline),

            XAdd { key, append } => self.xadd(mark, key, append),
            XDel { key, ids } => self.xdel(mark, key, ids),
            ChordStep { chord } => self.chord(chord),
            XTrim { key, trimming } => self.xtrim(mark, key, **trimming),

            XGroup { key, change } => self.xgroup(mark, key, change),
            XReadGroup { read } => self.xreadgroup(mark, read),
            SortStore { target, source, sort } => self.sortstore(mark, target, source, sort),
            GeoSearchStore { target, source, search, distances } => {
                self.geosearchstore(mark, target, source, search, *distances)
            }

            PfAdd { key, elements } => self.pfadd(mark, key, elements),
            PfMerge { target, keys } => self.pfmerge(mark, target, keys),

            Move { step } => Ok(Response::Move(Box::new(self.step(step)))),
            Watch { key, .. } => Ok(self.watch(mark, key)),

            // Whatever only reads has been answered, and transactions are taken apart above.
            _ => unreachable!("{} changes nothing", operation.name()),
        }
    }

    fn purge(&mut self, operation: &Operation) {
        operation.visit(&mut |touch| {
            if let Touch::Key(key, _) = touch
                && self.expire(key)
            {
                self.purged.push(key.clone());
            }
        });
    }

    /// Deletes this key if the stamp expires it; whether it did.
    pub fn expire(&mut self, key: &Blob) -> bool {
        let due = self.store.keys.get(key).is_some_and(|entry| entry.is_over(self.stamp));
        let expired = due && self.delete(key).is_some();
        self.store.expired += u64::from(expired);
        expired
    }

    /// Deletes everything that is served here.
    pub fn clear(&mut self) {
        let ranges = self.store.ranges.take();
        let index = self.store.index.take().map(|index| index.emptied());
        let expired = self.store.expired;
        *self.store = Store { ranges, index, expired, ..Store::default() };
    }

    /// The state, to be changed by moves.
    pub fn store_mut(&mut self) -> &mut Store {
        self.store
    }

    /// Deletes a key and gives what it held.
    pub fn delete(&mut self, key: &Blob) -> Option<Entry> {
        if !self.store.keys.contains(key) {
            return None;
        }
        self.slot(key, |slot, books| books.remove(slot))
    }

    /// Looks a key up for a change, in one descent.
    pub fn slot<R>(&mut self, key: &Blob, edit: impl FnOnce(&mut Slot<'_, Entry>, &mut Books<'_>) -> R) -> R {
        self.store.slot(key, edit)
    }

    /// Gives a key this value, whatever was there; a deadline that the stamp has reached deletes it.
    pub fn put(&mut self, mark: &mut Mark<'_>, key: &Blob, value: Value, deadline: Stamp) {
        let stamp = self.stamp;
        self.slot(key, |slot, books| books.put(slot, mark, value, deadline, stamp));
    }

    /// Changes the collection under a key, which is made if there is none and goes when it is empty.
    pub fn update<C: Collection, R>(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        edit: impl FnOnce(&mut C) -> (R, Changed),
    ) -> Result<R, Refusal> {
        self.slot(key, |slot, books| {
            let Some(entry) = slot.get_mut() else {
                let mut fresh = C::default();
                let (result, _) = edit(&mut fresh);
                if !fresh.is_empty() {
                    books.put(slot, mark, fresh.wrap(), Stamp::MAX, Stamp::ZERO);
                }
                return Ok(result);
            };
            let collection = C::open(&mut entry.value).ok_or(Refusal::WrongType)?;
            let (result, changed) = edit(collection);
            if collection.is_empty() {
                books.remove(slot);
            } else if changed == Changed::Yes {
                books.touch(entry, mark);
            }
            Ok(result)
        })
    }

    /// The same where a key without value stays so: `None`.
    pub fn update_held<C: Collection, R>(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        edit: impl FnOnce(&mut C) -> (R, Changed),
    ) -> Result<Option<R>, Refusal> {
        // Looked up first: a path that a view shares is not copied in vain.
        if self.store.view::<C>(key)?.is_none() {
            return Ok(None);
        }
        self.update(mark, key, edit).map(Some)
    }
}

impl Store {
    /// Looks a key up for a change, in one descent.
    fn slot<R>(&mut self, key: &Blob, edit: impl FnOnce(&mut Slot<'_, Entry>, &mut Books<'_>) -> R) -> R {
        let Store { keys, deadlines, digest, index, absences, .. } = self;
        let index = index.as_mut();
        keys.with(key, |slot| edit(slot, &mut Books { key, deadlines, digest, index, absences }))
    }

    /// Makes a key what it is or was elsewhere: this entry with its version, or nothing.
    pub(crate) fn replace(&mut self, key: &Blob, entry: Option<Entry>) {
        self.slot(key, |slot, books| {
            books.remove(slot);
            if let Some(entry) = entry {
                books.enter(slot, entry);
            }
        });
    }
}

/// What must follow a change of a key: its version, the digest, the deadlines, the index of a move, and that it is no longer absent.
pub(crate) struct Books<'a> {
    key: &'a Blob,
    deadlines: &'a mut Deadlines,
    digest: &'a mut u64,
    index: Option<&'a mut Index>,
    absences: &'a mut Option<Arc<Store>>,
}

impl Books<'_> {
    /// Notes that the value of an entry has been changed.
    pub fn touch(&mut self, entry: &mut Entry, mark: &mut Mark<'_>) {
        let version = mark.next(entry.version);
        *self.digest = self.digest.wrapping_sub(entry.version).wrapping_add(version);
        entry.version = version;
    }

    /// Fills a slot with a value, unless its deadline has been reached by `stamp`: then it is emptied.
    pub fn put(
        &mut self,
        slot: &mut Slot<'_, Entry>,
        mark: &mut Mark<'_>,
        value: Value,
        deadline: Stamp,
        stamp: Stamp,
    ) {
        if deadline <= stamp && deadline != Stamp::MAX {
            self.remove(slot);
            return;
        }
        match slot.get_mut() {
            Some(entry) => {
                entry.value = value;
                self.set_deadline(entry, deadline);
                self.touch(entry, mark);
            }
            None => {
                let version = mark.next(slot.hash());
                self.enter(slot, Entry { value, deadline, version });
            }
        }
    }

    /// Fills an empty slot with an entry as it is.
    fn enter(&mut self, slot: &mut Slot<'_, Entry>, entry: Entry) {
        *self.digest = self.digest.wrapping_add(entry.version);
        if entry.deadline != Stamp::MAX {
            self.deadlines.insert(entry.deadline, self.key);
        }
        if let Some(index) = &mut self.index {
            index.insert(self.key);
        }
        absences::set(self.absences, self.key, None);
        slot.insert(self.key.to_key(), entry);
    }

    /// Changes a deadline; the caller touches the entry.
    pub fn set_deadline(&mut self, entry: &mut Entry, deadline: Stamp) {
        if entry.deadline == deadline {
            return;
        }
        if entry.deadline != Stamp::MAX {
            self.deadlines.remove(entry.deadline, self.key);
        }
        if deadline != Stamp::MAX {
            self.deadlines.insert(deadline, self.key);
        }
        entry.deadline = deadline;
    }

    /// Empties a slot and gives what it held.
    pub fn remove(&mut self, slot: &mut Slot<'_, Entry>) -> Option<Entry> {
        let (key, entry) = slot.remove()?;
        *self.digest = self.digest.wrapping_sub(entry.version);
        if entry.deadline != Stamp::MAX {
            self.deadlines.remove(entry.deadline, &key);
        }
        if let Some(index) = &mut self.index {
            index.remove(&key);
        }
        Some(entry)
    }
}
