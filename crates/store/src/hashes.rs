//! Hashes: fields with values.

use crate::key::Key;
use crate::keys::scanned;
use crate::turn::{Changed, Mark, Turn};
use crate::value::Hashes;
use crate::{Store, number, random};
use isochrone_core::Blob;
use isochrone_core::command::{Refusal, Response, Score};

fn found(value: Option<&Blob>) -> Response {
    value.map_or(Response::Nil, |value| Response::Bulk(value.clone()))
}

impl Store {
    pub(crate) fn hget(&self, key: &[u8], field: &[u8]) -> Result<Response, Refusal> {
        Ok(found(self.view::<Hashes>(key)?.and_then(|hash| hash.get(field))))
    }

    pub(crate) fn hmget(&self, key: &[u8], fields: &[Blob]) -> Result<Response, Refusal> {
        let hash = self.view::<Hashes>(key)?;
        Ok(Response::Array(fields.iter().map(|field| found(hash.and_then(|hash| hash.get(field)))).collect()))
    }

    pub(crate) fn hgetall(&self, key: &[u8]) -> Result<Response, Refusal> {
        let entries = self.view::<Hashes>(key)?.into_iter().flat_map(|hash| hash.iter());
        let pairs =
            entries.map(|entry| (Response::Bulk(entry.key.blob()), Response::Bulk(entry.value.clone())));
        Ok(Response::Map(pairs.collect()))
    }

    pub(crate) fn hkeys(&self, key: &[u8]) -> Result<Response, Refusal> {
        let entries = self.view::<Hashes>(key)?.into_iter().flat_map(|hash| hash.iter());
        Ok(Response::Array(entries.map(|entry| Response::Bulk(entry.key.blob())).collect()))
    }

    pub(crate) fn hvals(&self, key: &[u8]) -> Result<Response, Refusal> {
        let entries = self.view::<Hashes>(key)?.into_iter().flat_map(|hash| hash.iter());
        Ok(Response::Array(entries.map(|entry| Response::Bulk(entry.value.clone())).collect()))
    }

    pub(crate) fn hlen(&self, key: &[u8]) -> Result<Response, Refusal> {
        Ok(Response::count(self.view::<Hashes>(key)?.map_or(0, |hash| hash.len())))
    }

    pub(crate) fn hexists(&self, key: &[u8], field: &[u8]) -> Result<Response, Refusal> {
        Ok(Response::yes(self.view::<Hashes>(key)?.is_some_and(|hash| hash.contains(field))))
    }

    pub(crate) fn hstrlen(&self, key: &[u8], field: &[u8]) -> Result<Response, Refusal> {
        let value = self.view::<Hashes>(key)?.and_then(|hash| hash.get(field));
        Ok(Response::count(value.map_or(0, |value| value.len())))
    }

    pub(crate) fn hrandfield(
        &self,
        key: &[u8],
        count: Option<i64>,
        seed: u64,
        with_values: bool,
    ) -> Result<Response, Refusal> {
        let hash = self.view::<Hashes>(key)?;
        let bulk = |field: &Key| Response::Bulk(field.blob());
        let len = hash.map_or(0, |hash| hash.len());
        let nth = |at| hash.and_then(|hash| hash.nth(at));
        Ok(random::answer(
            seed,
            len,
            count,
            nth,
            |(field, _)| bulk(field),
            |chosen| match with_values && len > 0 {
                true => Response::Pairs(
                    chosen
                        .iter()
                        .map(|(field, value)| (bulk(field), Response::Bulk((*value).clone())))
                        .collect(),
                ),
                false => Response::Array(chosen.iter().map(|(field, _)| bulk(field)).collect()),
            },
        ))
    }

    pub(crate) fn hscan(
        &self,
        key: &[u8],
        cursor: u64,
        count: u64,
        pattern: Option<&Blob>,
    ) -> Result<Response, Refusal> {
        Ok(scanned(self.view::<Hashes>(key)?, cursor, count, pattern, |entry, items| {
            items.extend([entry.key.blob(), entry.value.clone()]);
        }))
    }
}

impl Turn<'_> {
    pub(crate) fn hset(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        pairs: &[(Blob, Blob)],
    ) -> Result<Response, Refusal> {
        let fresh = self.update(mark, key, |hash: &mut Hashes| {
            let fresh =
                pairs.iter().filter(|(field, value)| hash.insert(field, value.clone()).is_none()).count();
            (fresh, Changed::Yes)
        })?;
        Ok(Response::count(fresh))
    }

    pub(crate) fn hsetnx(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        field: &Blob,
        value: &Blob,
    ) -> Result<Response, Refusal> {
        if self.store().view::<Hashes>(key)?.is_some_and(|hash| hash.contains(field)) {
            return Ok(Response::Integer(0));
        }
        self.update(mark, key, |hash: &mut Hashes| (hash.insert(field, value.clone()), Changed::Yes))?;
        Ok(Response::Integer(1))
    }

    pub(crate) fn hdel(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        fields: &[Blob],
    ) -> Result<Response, Refusal> {
        let removed = self.update_held(mark, key, |hash: &mut Hashes| {
            let removed = fields.iter().filter(|field| hash.remove(field).is_some()).count();
            (removed, Changed::from(removed > 0))
        })?;
        Ok(Response::count(removed.unwrap_or(0)))
    }

    pub(crate) fn hincrby(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        field: &Blob,
        by: i64,
    ) -> Result<Response, Refusal> {
        let held = match self.store().view::<Hashes>(key)?.and_then(|hash| hash.get(field)) {
            Some(value) => number::integer(value).ok_or(Refusal::HashNotInteger)?,
            None => 0,
        };
        let sum = held.checked_add(by).ok_or(Refusal::Overflow)?;
        self.update(mark, key, |hash: &mut Hashes| (hash.insert(field, number::text(sum)), Changed::Yes))?;
        Ok(Response::Integer(sum))
    }

    pub(crate) fn hincrbyfloat(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        field: &Blob,
        by: Score,
    ) -> Result<Response, Refusal> {
        let held = self.store().view::<Hashes>(key)?.and_then(|hash| hash.get(field));
        let sum = number::add_float(held.map(|value| &value[..]), by, Refusal::HashNotFloat)?;
        self.update(mark, key, |hash: &mut Hashes| (hash.insert(field, sum.clone()), Changed::Yes))?;
        Ok(Response::Bulk(sum))
    }
}
