//! Lists: elements by position.

use crate::sorted::positions;
use crate::turn::{Changed, Mark, Turn, fits, fits_behind};
use crate::value::List;
use crate::{Store, hash};
use isochrone_core::Blob;
use isochrone_core::command::{Refusal, Response, Side};

/// So many equal elements are removed where they stand.
pub(crate) const FEW: usize = 8;

/// The position that an index means, counted from the end where negative.
fn position(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(len as i64)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

fn take(list: &mut List, side: Side) -> Option<Blob> {
    match side {
        Side::Left => list.pop_front(),
        Side::Right => list.pop_back(),
    }
}

fn put(list: &mut List, side: Side, value: Blob) {
    match side {
        Side::Left => list.push_front(value),
        Side::Right => list.push_back(value),
    }
}

/// Up to `count` elements from one end, or none where they, and the key where it is told, are more than what is `left` of
/// the answer.
fn take_several(
    list: &mut List,
    side: Side,
    count: u64,
    left: usize,
    key: Option<&Blob>,
) -> (Result<Vec<Response>, Refusal>, Changed) {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(list.len());
    let fit = match side {
        Side::Left => fits_behind(key, left, list.iter().take(count).map(|value| value.len())),
        Side::Right => fits_behind(key, left, list.iter().rev().take(count).map(|value| value.len())),
    };
    if let Err(refusal) = fit {
        return (Err(refusal), Changed::No);
    }
    let taken: Vec<_> = (0..count).filter_map(|_| take(list, side)).map(Response::Bulk).collect();
    let changed = Changed::from(!taken.is_empty());
    (Ok(taken), changed)
}

impl Store {
    pub(crate) fn llen(&self, key: &[u8]) -> Result<Response, Refusal> {
        Ok(Response::count(self.view::<List>(key)?.map_or(0, |list| list.len())))
    }

    pub(crate) fn lrange(&self, key: &[u8], start: i64, stop: i64) -> Result<Response, Refusal> {
        let Some(list) = self.view::<List>(key)? else { return Ok(Response::Array(Vec::new())) };
        let range = list.range(positions(start, stop, list.len()));
        Ok(Response::Array(range.map(|value| Response::Bulk(value.clone())).collect()))
    }

    pub(crate) fn lindex(&self, key: &[u8], index: i64) -> Result<Response, Refusal> {
        let element = self.view::<List>(key)?.and_then(|list| list.get(position(index, list.len())?));
        Ok(element.map_or(Response::Nil, |value| Response::Bulk(value.clone())))
    }

    pub(crate) fn lpos(
        &self,
        key: &[u8],
        element: &[u8],
        rank: i64,
        count: Option<u32>,
        length: u32,
    ) -> Result<Response, Refusal> {
        let none = || if count.is_some() { Response::Array(Vec::new()) } else { Response::Nil };
        let Some(list) = self.view::<List>(key)? else { return Ok(none()) };
        let length = if length == 0 { usize::MAX } else { length as usize };
        let wanted = match count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count as usize,
        };
        let skipped = usize::try_from(rank.unsigned_abs().saturating_sub(1)).unwrap_or(usize::MAX);
        let matching = |(_, value): &(usize, &Blob)| value[..] == *element;
        let found: Vec<usize> = if rank < 0 {
            let backwards = list.iter().rev().enumerate().take(length).filter(matching);
            backwards.skip(skipped).take(wanted).map(|(index, _)| list.len() - 1 - index).collect()
        } else {
            let forwards = list.iter().enumerate().take(length).filter(matching);
            forwards.skip(skipped).take(wanted).map(|(index, _)| index).collect()
        };
        Ok(match (count, found.first()) {
            (Some(_), _) => Response::Array(found.into_iter().map(Response::count).collect()),
            (None, Some(index)) => Response::count(*index),
            (None, None) => Response::Nil,
        })
    }
}

impl Turn<'_> {
    pub(crate) fn push(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        values: &[Blob],
        side: Side,
        only_if_exists: bool,
    ) -> Result<Response, Refusal> {
        if only_if_exists && self.store().view::<List>(key)?.is_none() {
            return Ok(Response::Integer(0));
        }
        let len = self.update(mark, key, |list: &mut List| {
            values.iter().for_each(|value| put(list, side, value.clone()));
            (list.len(), Changed::Yes)
        })?;
        Ok(Response::count(len))
    }

    pub(crate) fn pop(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        side: Side,
        count: Option<u64>,
    ) -> Result<Response, Refusal> {
        let (wanted, left) = (count.unwrap_or(1), self.left());
        let taken =
            self.update_held(mark, key, |list: &mut List| take_several(list, side, wanted, left, None))?;
        let taken = taken.transpose()?;
        Ok(match count {
            None => taken.and_then(|taken| taken.into_iter().next()).unwrap_or(Response::Nil),
            Some(_) => taken.map_or(Response::NilArray, Response::Array),
        })
    }

    pub(crate) fn lmpop(
        &mut self,
        mark: &mut Mark<'_>,
        keys: &[Blob],
        side: Side,
        count: u64,
    ) -> Result<Response, Refusal> {
        for key in keys {
            let left = self.left();
            let taken = self
                .update_held(mark, key, |list: &mut List| take_several(list, side, count, left, Some(key)))?;
            if let Some(taken) = taken.transpose()? {
                return Ok(Response::Array(vec![Response::Bulk(key.clone()), Response::Array(taken)]));
            }
        }
        Ok(Response::NilArray)
    }

    pub(crate) fn lset(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        index: i64,
        value: &Blob,
    ) -> Result<Response, Refusal> {
        let Some(list) = self.store().view::<List>(key)? else { return Err(Refusal::NoSuchKey) };
        let index = position(index, list.len()).ok_or(Refusal::IndexOutOfRange)?;
        self.update(mark, key, |list: &mut List| (list.set(index, value.clone()), Changed::Yes))?;
        Ok(Response::Ok)
    }

    pub(crate) fn ltrim(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        start: i64,
        stop: i64,
    ) -> Result<Response, Refusal> {
        self.update_held(mark, key, |list: &mut List| {
            let before = list.len();
            list.keep(positions(start, stop, before));
            ((), Changed::from(list.len() != before))
        })?;
        Ok(Response::Ok)
    }

    pub(crate) fn lrem(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        count: i64,
        value: &Blob,
    ) -> Result<Response, Refusal> {
        let limit =
            if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
        let removed = self.update_held(mark, key, |list: &mut List| {
            let matching = |(_, held): &(usize, &Blob)| *held == value;
            let mut found: Vec<usize> = if count < 0 {
                let len = list.len();
                let backwards = list.iter().rev().enumerate().filter(matching);
                backwards.take(limit).map(|(index, _)| len - 1 - index).collect()
            } else {
                list.iter().enumerate().filter(matching).take(limit).map(|(index, _)| index).collect()
            };
            found.sort_unstable();
            // A few are removed where they stand; many by writing the list anew.
            if found.len() <= FEW {
                found.iter().rev().for_each(|index| drop(list.remove_at(*index)));
            } else {
                let mut gone = found.iter().copied().peekable();
                let kept = list.iter().enumerate().filter(|(index, _)| gone.next_if_eq(index).is_none());
                *list = kept.map(|(_, value)| value.clone()).collect();
            }
            (found.len(), Changed::from(!found.is_empty()))
        })?;
        Ok(Response::count(removed.unwrap_or(0)))
    }

    pub(crate) fn linsert(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        before: bool,
        pivot: &Blob,
        value: &Blob,
    ) -> Result<Response, Refusal> {
        let Some(list) = self.store().view::<List>(key)? else { return Ok(Response::Integer(0)) };
        let Some(index) = list.iter().position(|held| held == pivot) else {
            return Ok(Response::Integer(-1));
        };
        let len = self.update(mark, key, |list: &mut List| {
            list.insert_at(if before { index } else { index + 1 }, value.clone());
            (list.len(), Changed::Yes)
        })?;
        Ok(Response::count(len))
    }

    pub(crate) fn lmove(
        &mut self,
        mark: &mut Mark<'_>,
        source: &Blob,
        target: &Blob,
        from: Side,
        to: Side,
    ) -> Result<Response, Refusal> {
        let Some(list) = self.store().view::<List>(source)? else { return Ok(Response::Nil) };
        let end = match from {
            Side::Left => list.iter().next(),
            Side::Right => list.iter().next_back(),
        };
        let length = end.map_or(0, |value| value.len());
        self.store().view::<List>(target)?;
        fits(self.left(), [length].into_iter())?;
        if source == target {
            let moved = self.update(mark, source, |list: &mut List| {
                let moved = take(list, from);
                if let Some(moved) = &moved {
                    put(list, to, moved.clone());
                }
                (moved, Changed::Yes)
            })?;
            return Ok(moved.map_or(Response::Nil, Response::Bulk));
        }
        let moved = self.update(mark, source, |list: &mut List| (take(list, from), Changed::Yes))?;
        let Some(moved) = moved else { return Ok(Response::Nil) };
        // What arrives is not in the command, so it is in the version.
        let mut mark = mark.salted(hash::digest(&moved));
        self.update(&mut mark, target, |list: &mut List| (put(list, to, moved.clone()), Changed::Yes))?;
        Ok(Response::Bulk(moved))
    }
}
