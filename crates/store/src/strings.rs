//! Strings and counters.

use crate::bytes::Bytes;
use crate::number;
use crate::turn::{Mark, Turn, fits};
use crate::value::Value;
use crate::{STRING_MAX, Store};
use isochrone_core::command::{Condition, Expiry, Refusal, Response, Score};
use isochrone_core::{Blob, Stamp};

impl Store {
    pub(crate) fn get(&self, key: &[u8]) -> Result<Response, Refusal> {
        match self.keys.get(key) {
            Some(entry) => Ok(Response::Bulk(entry.value.bytes()?)),
            None => Ok(Response::Nil),
        }
    }

    pub(crate) fn mget(&self, keys: &[Blob]) -> Response {
        Response::Array(keys.iter().map(|key| self.get(key).unwrap_or(Response::Nil)).collect())
    }

    pub(crate) fn strlen(&self, key: &[u8]) -> Result<Response, Refusal> {
        match self.keys.get(key) {
            Some(entry) => Ok(Response::count(entry.value.string()?.len())),
            None => Ok(Response::Integer(0)),
        }
    }

    pub(crate) fn getrange(&self, key: &[u8], start: i64, end: i64) -> Result<Response, Refusal> {
        let Some(entry) = self.keys.get(key) else { return Ok(Response::bulk(b"")) };
        let bytes = entry.value.string()?;
        let len = bytes.len() as i64;
        // Unlike the positions of lists, an end before the first byte means the first byte.
        let clamp =
            |position: i64| if position < 0 { (len.saturating_add(position)).max(0) } else { position };
        if start < 0 && end < 0 && start > end {
            return Ok(Response::bulk(b""));
        }
        let (start, end) = (clamp(start), clamp(end).min(len - 1));
        if start > end {
            return Ok(Response::bulk(b""));
        }
        Ok(Response::bulk(&bytes.read(start as usize..end as usize + 1)))
    }
}

impl Turn<'_> {
    pub(crate) fn set(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        value: &Blob,
        condition: Condition,
        expiry: Expiry,
        get: bool,
    ) -> Result<Response, Refusal> {
        let (stamp, left) = (self.stamp, self.left());
        self.slot(key, |slot, books| {
            let held = slot.get_mut();
            let former = match (&held, get) {
                (Some(entry), true) => Some(Response::Bulk(entry.value.bytes()?)),
                (None, true) => Some(Response::Nil),
                (_, false) => None,
            };
            let wanted = match condition {
                Condition::Always => true,
                Condition::IfAbsent => held.is_none(),
                Condition::IfPresent => held.is_some(),
            };
            if !wanted {
                return Ok(former.unwrap_or(Response::Nil));
            }
            if let Some(Response::Bulk(former)) = &former {
                fits(left, [former.len()].into_iter())?;
            }
            let deadline = match expiry {
                Expiry::Clear => Stamp::MAX,
                Expiry::Keep => held.map_or(Stamp::MAX, |entry| entry.deadline),
                Expiry::At(deadline) => deadline,
            };
            books.put(slot, mark, Value::String(value.clone().into()), deadline, stamp);
            Ok(former.unwrap_or(Response::Ok))
        })
    }

    pub(crate) fn mset(
        &mut self,
        mark: &mut Mark<'_>,
        pairs: &[(Blob, Blob)],
        only_if_absent: bool,
    ) -> Response {
        if only_if_absent && pairs.iter().any(|(key, _)| self.store().keys.contains(key)) {
            return Response::Integer(0);
        }
        for (key, value) in pairs {
            self.put(mark, key, Value::String(value.clone().into()), Stamp::MAX);
        }
        if only_if_absent { Response::Integer(1) } else { Response::Ok }
    }

    pub(crate) fn getdel(&mut self, key: &Blob) -> Result<Response, Refusal> {
        let answer = self.store().get(key)?;
        if let Response::Bulk(value) = &answer {
            fits(self.left(), [value.len()].into_iter())?;
        }
        self.delete(key);
        Ok(answer)
    }

    pub(crate) fn getex(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        expiry: Expiry,
    ) -> Result<Response, Refusal> {
        let answer = self.store().get(key)?;
        if let Response::Bulk(value) = &answer {
            fits(self.left(), [value.len()].into_iter())?;
        }
        match expiry {
            Expiry::Keep => {}
            Expiry::Clear => self.redate(mark, key, Stamp::MAX),
            Expiry::At(deadline) => self.redate(mark, key, deadline),
        }
        Ok(answer)
    }

    pub(crate) fn append(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        value: &Blob,
        most: u64,
    ) -> Result<Response, Refusal> {
        self.edit_string(mark, key, |held| {
            let Some(mut held) = held else { return Ok((Some(value.clone().into()), value.len())) };
            let len = held.len() + value.len();
            if len as u64 > most.min(STRING_MAX as u64) {
                return Err(Refusal::StringTooLong);
            }
            if !value.is_empty() {
                held.write(held.len(), value);
            }
            Ok((Some(held), len))
        })
    }

    pub(crate) fn setrange(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        offset: u64,
        value: &Blob,
    ) -> Result<Response, Refusal> {
        self.edit_string(mark, key, |held| {
            let mut held = held.unwrap_or_default();
            if value.is_empty() {
                return Ok((None, held.len()));
            }
            let end = offset.saturating_add(value.len() as u64);
            if end > STRING_MAX as u64 {
                return Err(Refusal::StringTooLong);
            }
            held.write(offset as usize, value);
            let len = held.len();
            Ok((Some(held), len))
        })
    }

    pub(crate) fn incrby(&mut self, mark: &mut Mark<'_>, key: &Blob, by: i64) -> Result<Response, Refusal> {
        self.slot(key, |slot, books| {
            let Some(entry) = slot.get_mut() else {
                books.put(slot, mark, Value::Integer(by), Stamp::MAX, Stamp::ZERO);
                return Ok(Response::Integer(by));
            };
            let held = match &entry.value {
                Value::Integer(number) => *number,
                Value::String(bytes) => {
                    bytes.whole().and_then(|bytes| number::integer(bytes)).ok_or(Refusal::NotInteger)?
                }
                _ => return Err(Refusal::WrongType),
            };
            let sum = held.checked_add(by).ok_or(Refusal::Overflow)?;
            entry.value = Value::Integer(sum);
            books.touch(entry, mark);
            Ok(Response::Integer(sum))
        })
    }

    pub(crate) fn count_until(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        by: i64,
        until: Stamp,
        anew: bool,
    ) -> Result<Response, Refusal> {
        let held = self.store().keys.get(key).map_or(Stamp::MAX, |entry| entry.deadline);
        // What has less than a millisecond left is over by PTTL.
        let begins = held == Stamp::MAX || anew && held.as_millis() <= self.stamp.as_millis();
        let sum = if begins && anew {
            self.put(mark, key, Value::Integer(by), until);
            Response::Integer(by)
        } else {
            let sum = self.incrby(mark, key, by)?;
            if begins {
                self.redate(mark, key, until);
            }
            sum
        };
        let deadline = if begins { until } else { held };
        let left = deadline.as_millis().saturating_sub(self.stamp.as_millis());
        Ok(Response::Array(vec![sum, Response::Integer(left as i64)]))
    }

    pub(crate) fn incrbyfloat(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        by: Score,
    ) -> Result<Response, Refusal> {
        self.slot(key, |slot, books| {
            let Some(entry) = slot.get_mut() else {
                let sum = number::add_float(None, by, Refusal::NotFloat)?;
                books.put(slot, mark, Value::String(sum.clone().into()), Stamp::MAX, Stamp::ZERO);
                return Ok(Response::Bulk(sum));
            };
            let sum = number::add_float(Some(&entry.value.bytes()?), by, Refusal::NotFloat)?;
            entry.value = Value::String(sum.clone().into());
            books.touch(entry, mark);
            Ok(Response::Bulk(sum))
        })
    }

    fn edit_string(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        edit: impl FnOnce(Option<Bytes>) -> Result<(Option<Bytes>, usize), Refusal>,
    ) -> Result<Response, Refusal> {
        self.replace_string(mark, key, edit).map(Response::count)
    }

    /// Replaces a string by what `edit` makes of it, unless that is `None`; gives what it tells beside.
    pub(crate) fn replace_string<R>(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        edit: impl FnOnce(Option<Bytes>) -> Result<(Option<Bytes>, R), Refusal>,
    ) -> Result<R, Refusal> {
        self.slot(key, |slot, books| {
            let held = match slot.get_mut() {
                Some(entry) => Some(entry.value.string()?),
                None => None,
            };
            let (value, told) = edit(held)?;
            match (value, slot.get_mut()) {
                (None, _) => {}
                (Some(value), Some(entry)) => {
                    entry.value = Value::String(value);
                    books.touch(entry, mark);
                }
                (Some(value), None) => books.put(slot, mark, Value::String(value), Stamp::MAX, Stamp::ZERO),
            }
            Ok(told)
        })
    }
}
