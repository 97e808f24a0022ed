//! Keys as such: existence, expiry, listing, renaming.

use crate::Store;
use crate::key::Key;
use crate::trie::{Entry as Listed, Trie};
use crate::turn::{Mark, Turn};
use crate::value::Entry;
use isochrone_core::command::{ExpiryCondition, Kind, PRESENT, Refusal, Response, Share, TtlUnit};
use isochrone_core::glob::Glob;
use isochrone_core::{Blob, Random, Stamp};
use std::collections::BTreeMap;

/// Each of these keys once, in the order in which they are first named: a command of a few bytes a key may name one
/// key a million times, and is to look at what it holds no more often than it must.
pub(crate) fn distinct<'k>(keys: impl IntoIterator<Item = &'k Blob>) -> Vec<&'k Blob> {
    counted(keys).into_iter().map(|(key, _)| key).collect()
}

/// The same, and how often each is named.
pub(crate) fn counted<'k>(keys: impl IntoIterator<Item = &'k Blob>) -> Vec<(&'k Blob, usize)> {
    let mut places = BTreeMap::new();
    let mut found: Vec<(&Blob, usize)> = Vec::new();
    for key in keys {
        let place = *places.entry(key).or_insert(found.len());
        match found.get_mut(place) {
            Some((_, times)) => *times += 1,
            None => found.push((key, 1)),
        }
    }
    found
}

impl Store {
    pub(crate) fn exists(&self, keys: &[Blob]) -> Response {
        Response::count(keys.iter().filter(|key| self.keys.contains(key)).count())
    }

    pub(crate) fn kind(&self, key: &[u8]) -> Response {
        Response::Kind(self.keys.get(key).map_or(Kind::None, |entry| entry.value.kind()))
    }

    pub(crate) fn ttl(&self, key: &[u8], stamp: Stamp, unit: TtlUnit, absolute: bool) -> Response {
        let Some(entry) = self.keys.get(key) else { return Response::Integer(-2) };
        if entry.deadline == Stamp::MAX {
            return Response::Integer(-1);
        }
        // Both rounded down to milliseconds, as Redis keeps them.
        let from = if absolute { 0 } else { stamp.as_millis() };
        let millis = entry.deadline.as_millis().saturating_sub(from) as i64;
        Response::Integer(match unit {
            TtlUnit::Millis => millis,
            TtlUnit::Seconds => (millis + 500) / 1000,
        })
    }

    pub(crate) fn version(&self, key: &[u8]) -> u64 {
        self.keys.get(key).map_or(0, |entry| entry.version)
    }

    /// Whether the watched keys are as a transaction of this stamp takes them to be.
    pub(crate) fn are_unchanged(&self, watched: &[(Blob, u64)], stamp: Stamp) -> bool {
        watched.iter().all(|(key, version)| match (*version, self.version(key)) {
            (PRESENT, found) => found != 0,
            (number @ 1.., 0) => self.is_absent_since(key, number, stamp),
            (version, found) => version == found,
        })
    }

    /// How many keys there are whose time is not over.
    pub(crate) fn alive(&self, stamp: Stamp) -> usize {
        self.keys.len() - self.deadlines.through(stamp)
    }

    pub(crate) fn list(&self, pattern: &[u8], stamp: Stamp, within: impl Fn(&Key) -> bool) -> Response {
        let glob = Glob::new(pattern);
        let alive = self.keys.iter().filter(|entry| !entry.value.is_over(stamp));
        let matching = alive.filter(|entry| glob.matches(entry.key) && within(entry.key));
        Response::Array(matching.map(|entry| Response::Bulk(entry.key.blob())).collect())
    }

    pub(crate) fn random_key(&self, seed: u64, stamp: Stamp) -> Response {
        if self.alive(stamp) == 0 {
            return Response::Nil;
        }
        // Where hardly any is alive, a draw seldom finds one: then the first from the last draw on, and around.
        const DRAWS: usize = 64;
        let (mut random, mut at) = (Random::seeded(seed), 0);
        for _ in 0..DRAWS {
            at = random.below(self.keys.len() as u64) as usize;
            if let Some((key, entry)) = self.keys.nth(at)
                && !entry.is_over(stamp)
            {
                return Response::Bulk(key.blob());
            }
        }
        let mut around = self.keys.iter_at(at).chain(self.keys.iter().take(at));
        let found = around.find(|entry| !entry.value.is_over(stamp));
        found.map_or(Response::Nil, |entry| Response::Bulk(entry.key.blob()))
    }

    /// A page of those keys alive that are `within`, where so many partitions share them.
    #[expect(clippy::too_many_arguments, reason = "what SCAN names, and whose keys")]
    pub(crate) fn scan(
        &self,
        partitions: u16,
        cursor: u64,
        count: u64,
        pattern: Option<&Blob>,
        kind: Option<Kind>,
        stamp: Stamp,
        within: impl Fn(&Key) -> bool,
    ) -> Response {
        let (mut items, shift) = (Vec::new(), cursor_shift(partitions));
        let within = |entry: &Listed<'_, Entry>| !entry.value.is_over(stamp) && within(entry.key);
        let cursor = page(&self.keys, cursor, shift, count, pattern, within, |entry| {
            if kind.is_none_or(|kind| entry.value.value.kind() == kind) {
                items.push(entry.key.blob());
            }
        });
        Response::Scan { cursor, items }
    }
}

/// One page of a collection, if there is one, as the answer to a scan; `list` adds what stands for an entry.
pub(crate) fn scanned<'a, V>(
    trie: Option<&'a Trie<V>>,
    cursor: u64,
    count: u64,
    pattern: Option<&Blob>,
    mut list: impl FnMut(Listed<'a, V>, &mut Vec<Blob>),
) -> Response {
    let mut items = Vec::new();
    let list = |entry: Listed<'a, V>| list(entry, &mut items);
    let cursor = trie.map_or(0, |trie| page(trie, cursor, cursor_shift(1), count, pattern, |_| true, list));
    Response::Scan { cursor, items }
}

/// How many low bits of a hash the cursor of one of so many partitions leaves out.
pub(crate) fn cursor_shift(partitions: u16) -> u32 {
    64 - Share::cursor_bits(partitions)
}

/// So many entries are looked at for each one that is asked for: a page takes a bounded time however few there are.
const LOOKS: u64 = 10;

/// Gives one page of a trie to `found`: the entries whose hashes begin at the cursor, `count` of those that are `within`
/// but never a part of those that share a cursor, then those that match. The next cursor, 0 at the end.
///
/// A cursor is a hash without its `shift` low bits, so entries that stay are listed exactly once whatever comes and goes,
/// and a cursor made by one replica is good on another.
fn page<'a, V>(
    trie: &'a Trie<V>,
    cursor: u64,
    shift: u32,
    count: u64,
    pattern: Option<&Blob>,
    within: impl Fn(&Listed<'a, V>) -> bool,
    mut found: impl FnMut(Listed<'a, V>),
) -> u64 {
    // Beyond the last hash lies nothing: cursors that were never given list nothing.
    if cursor >> (64 - shift) != 0 {
        return 0;
    }
    let glob = pattern.map(|pattern| Glob::new(pattern));
    let (count, mut last, mut seen) = (count.max(1), cursor, 0);
    for (looked, entry) in trie.iter_at(trie.index_of(cursor << shift)).enumerate() {
        let place = entry.hash >> shift;
        if place != last && (seen >= count || looked as u64 / LOOKS >= count) {
            return place;
        }
        last = place;
        if !within(&entry) {
            continue;
        }
        seen += 1;
        if glob.as_ref().is_none_or(|glob| glob.matches(entry.key)) {
            found(entry);
        }
    }
    0
}

impl Turn<'_> {
    pub(crate) fn del(&mut self, keys: &[Blob]) -> Response {
        Response::count(keys.iter().filter(|key| self.delete(key).is_some()).count())
    }

    pub(crate) fn expireat(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        at: Stamp,
        condition: ExpiryCondition,
    ) -> Response {
        let Some(entry) = self.store().keys.get(key) else { return Response::Integer(0) };
        // No deadline is later than any.
        let held = entry.deadline;
        let wanted = match condition {
            ExpiryCondition::Always => true,
            ExpiryCondition::IfNone => held == Stamp::MAX,
            ExpiryCondition::IfSome => held != Stamp::MAX,
            ExpiryCondition::IfLater => at > held,
            ExpiryCondition::IfEarlier => at < held,
            ExpiryCondition::IfSomeEarlier => held != Stamp::MAX && at < held,
        };
        if wanted {
            self.redate(mark, key, at);
        }
        Response::yes(wanted)
    }

    pub(crate) fn persist(&mut self, mark: &mut Mark<'_>, key: &Blob) -> Response {
        let dated = self.store().keys.get(key).is_some_and(|entry| entry.deadline != Stamp::MAX);
        if dated {
            self.redate(mark, key, Stamp::MAX);
        }
        Response::yes(dated)
    }

    /// Gives a key that exists another deadline; one that the stamp has reached deletes it.
    pub(crate) fn redate(&mut self, mark: &mut Mark<'_>, key: &Blob, deadline: Stamp) {
        let stamp = self.stamp;
        self.slot(key, |slot, books| {
            if deadline <= stamp && deadline != Stamp::MAX {
                books.remove(slot);
            } else if let Some(entry) = slot.get_mut()
                && entry.deadline != deadline
            {
                books.set_deadline(entry, deadline);
                books.touch(entry, mark);
            }
        });
    }

    pub(crate) fn flush(&mut self) -> Response {
        self.clear();
        Response::Ok
    }

    pub(crate) fn sweep(&mut self, keys: &[Blob]) -> Response {
        keys.iter().for_each(|key| self.forget_absence(key));
        Response::count(keys.iter().filter(|key| self.expire(key)).count())
    }

    pub(crate) fn rename(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        target: &Blob,
        only_if_absent: bool,
    ) -> Result<Response, Refusal> {
        if !self.store().keys.contains(key) {
            return Err(Refusal::NoSuchKey);
        }
        if only_if_absent && self.store().keys.contains(target) {
            return Ok(Response::Integer(0));
        }
        if key != target
            && let Some(entry) = self.delete(key)
        {
            self.put(&mut mark.salted(entry.version), target, entry.value, entry.deadline);
        }
        Ok(if only_if_absent { Response::Integer(1) } else { Response::Ok })
    }

    pub(crate) fn copy(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        target: &Blob,
        replace: bool,
    ) -> Result<Response, Refusal> {
        if key == target {
            return Err(Refusal::SameObject);
        }
        let Some(entry) = self.store().keys.get(key).cloned() else { return Ok(Response::Integer(0)) };
        if !replace && self.store().keys.contains(target) {
            return Ok(Response::Integer(0));
        }
        self.put(&mut mark.salted(entry.version), target, entry.value, entry.deadline);
        Ok(Response::Integer(1))
    }
}
