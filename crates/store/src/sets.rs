//! Sets: distinct members.

use crate::key::Key;
use crate::keys::{distinct, scanned};
use crate::turn::{Changed, Mark, Turn, fits};
use crate::value::{Collection, Members};
use crate::{Store, hash, random};
use isochrone_core::command::{Combine, Refusal, Response};
use isochrone_core::{Blob, Random, Stamp};

fn listed(set: &Members) -> Vec<Response> {
    set.iter().map(|entry| Response::Bulk(entry.key.blob())).collect()
}

impl Store {
    pub(crate) fn smembers(&self, key: &[u8]) -> Result<Response, Refusal> {
        Ok(Response::Set(self.view::<Members>(key)?.map_or_else(Vec::new, listed)))
    }

    pub(crate) fn sismember(&self, key: &[u8], member: &[u8]) -> Result<Response, Refusal> {
        Ok(Response::yes(self.view::<Members>(key)?.is_some_and(|set| set.contains(member))))
    }

    pub(crate) fn smismember(&self, key: &[u8], members: &[Blob]) -> Result<Response, Refusal> {
        let set = self.view::<Members>(key)?;
        let held = |member: &Blob| Response::yes(set.is_some_and(|set| set.contains(member)));
        Ok(Response::Array(members.iter().map(held).collect()))
    }

    pub(crate) fn scard(&self, key: &[u8]) -> Result<Response, Refusal> {
        Ok(Response::count(self.view::<Members>(key)?.map_or(0, |set| set.len())))
    }

    pub(crate) fn srandmember(&self, key: &[u8], count: Option<i64>, seed: u64) -> Result<Response, Refusal> {
        let set = self.view::<Members>(key)?;
        let nth = |at| set?.nth(at).map(|(member, ())| Response::Bulk(member.blob()));
        let len = set.map_or(0, |set| set.len());
        Ok(random::answer(seed, len, count, nth, |member| member, Response::Array))
    }

    pub(crate) fn scombine(&self, combine: Combine, keys: &[Blob]) -> Result<Response, Refusal> {
        Ok(Response::Set(listed(&self.combined(combine, keys)?)))
    }

    pub(crate) fn sintercard(&self, keys: &[Blob], limit: u64) -> Result<Response, Refusal> {
        let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        Ok(Response::count(self.intersection(keys)?.take(limit).count()))
    }

    pub(crate) fn sscan(
        &self,
        key: &[u8],
        cursor: u64,
        count: u64,
        pattern: Option<&Blob>,
    ) -> Result<Response, Refusal> {
        let set = self.view::<Members>(key)?;
        Ok(scanned(set, cursor, count, pattern, |entry, items| items.push(entry.key.blob())))
    }

    /// The sets under these keys, each once. All are looked at, so that a wrong type is refused wherever it stands.
    fn sets(&self, keys: &[Blob]) -> Result<Vec<Option<&Members>>, Refusal> {
        distinct(keys).into_iter().map(|key| self.view::<Members>(key)).collect()
    }

    fn intersection(&self, keys: &[Blob]) -> Result<impl Iterator<Item = &Key>, Refusal> {
        let sets: Option<Vec<&Members>> = self.sets(keys)?.into_iter().collect();
        let sets = sets.unwrap_or_default();
        // The smallest leads: the others are only asked.
        let smallest = sets.iter().min_by_key(|set| set.len()).copied();
        let members = smallest.into_iter().flat_map(|set| set.iter()).map(|entry| entry.key);
        Ok(members.filter(move |member| sets.iter().all(|set| set.contains(member))))
    }

    fn combined(&self, combine: Combine, keys: &[Blob]) -> Result<Members, Refusal> {
        let mut result = Members::default();
        match combine {
            Combine::Intersection => {
                for member in self.intersection(keys)? {
                    result.insert(member, ());
                }
            }
            Combine::Union => {
                let sets = self.sets(keys)?;
                // A clone shares all of the first.
                result = sets.first().copied().flatten().cloned().unwrap_or_default();
                for set in sets.iter().skip(1).flatten() {
                    for entry in set.iter() {
                        result.insert(entry.key, ());
                    }
                }
            }
            Combine::Difference => {
                let (first, others) = keys.split_at(keys.len().min(1));
                let (first, others) = (self.sets(first)?, self.sets(others)?);
                let Some(first) = first.into_iter().flatten().next() else { return Ok(result) };
                let others: Vec<&Members> = others.into_iter().flatten().collect();
                // Whichever is less to look at: all others for each member of the first, or the first for each of theirs.
                if first.len().saturating_mul(others.len()) <= others.iter().map(|set| set.len()).sum() {
                    for entry in first.iter() {
                        if !others.iter().any(|set| set.contains(entry.key)) {
                            result.insert(entry.key, ());
                        }
                    }
                } else {
                    result = first.clone();
                    for entry in others.iter().flat_map(|set| set.iter()) {
                        result.remove(entry.key);
                    }
                }
            }
        }
        Ok(result)
    }
}

impl Turn<'_> {
    pub(crate) fn sadd(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        members: &[Blob],
    ) -> Result<Response, Refusal> {
        let fresh = self.update(mark, key, |set: &mut Members| {
            let fresh = members.iter().filter(|member| set.insert(*member, ()).is_none()).count();
            (fresh, Changed::from(fresh > 0))
        })?;
        Ok(Response::count(fresh))
    }

    pub(crate) fn srem(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        members: &[Blob],
    ) -> Result<Response, Refusal> {
        let removed = self.update_held(mark, key, |set: &mut Members| {
            let removed = members.iter().filter(|member| set.remove(member).is_some()).count();
            (removed, Changed::from(removed > 0))
        })?;
        Ok(Response::count(removed.unwrap_or(0)))
    }

    pub(crate) fn spop(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        count: Option<u64>,
        seed: u64,
    ) -> Result<Response, Refusal> {
        let left = self.left();
        let popped = self.update_held(mark, key, |set: &mut Members| {
            let chosen = random::different(&mut Random::seeded(seed), set.len(), count.unwrap_or(1));
            let popped: Vec<Blob> =
                chosen.into_iter().filter_map(|at| set.nth(at)).map(|(member, ())| member.blob()).collect();
            if let Err(refusal) = fits(left, popped.iter().map(|member| member.len())) {
                return (Err(refusal), Changed::No);
            }
            for member in &popped {
                set.remove(member);
            }
            let changed = Changed::from(!popped.is_empty());
            (Ok(popped), changed)
        })?;
        let mut popped = popped.transpose()?.unwrap_or_default().into_iter().map(Response::Bulk);
        Ok(match count {
            None => popped.next().unwrap_or(Response::Nil),
            Some(_) => Response::Set(popped.collect()),
        })
    }

    pub(crate) fn smove(
        &mut self,
        mark: &mut Mark<'_>,
        source: &Blob,
        target: &Blob,
        member: &Blob,
    ) -> Result<Response, Refusal> {
        let Some(set) = self.store().view::<Members>(source)? else { return Ok(Response::Integer(0)) };
        let held = set.contains(member);
        self.store().view::<Members>(target)?;
        if held && source != target {
            self.update(mark, source, |set: &mut Members| (set.remove(member), Changed::Yes))?;
            self.update(mark, target, |set: &mut Members| {
                let fresh = set.insert(member, ()).is_none();
                ((), Changed::from(fresh))
            })?;
        }
        Ok(Response::yes(held))
    }

    pub(crate) fn scombinestore(
        &mut self,
        mark: &mut Mark<'_>,
        combine: Combine,
        target: &Blob,
        keys: &[Blob],
    ) -> Result<Response, Refusal> {
        let result = self.store().combined(combine, keys)?;
        let len = result.len();
        self.store_result(mark, target, result, keys.iter());
        Ok(Response::count(len))
    }

    /// Puts a collection made from other keys under a key; an empty one deletes what is there.
    pub(crate) fn store_result<'k, C: Collection>(
        &mut self,
        mark: &mut Mark<'_>,
        target: &Blob,
        result: C,
        sources: impl Iterator<Item = &'k Blob>,
    ) {
        if result.is_empty() {
            self.delete(target);
            return;
        }
        // What the sources held is not in the command, so their versions are in the new one.
        let salt = sources.fold(0, |salt, key| hash::mix(salt, self.store().version(key)));
        self.put(&mut mark.salted(salt), target, result.wrap(), Stamp::MAX);
    }
}
