//! HyperLogLogs: how many different elements there were, about, from a few bytes (Flajolet and others 2007).
//!
//! **Format**, that of Redis, since a HyperLogLog is a string that clients may read, write and carry elsewhere: the word
//! `HYLL`, a byte for the encoding, three of no meaning, the count in 8 bytes, little-endian, whose highest bit says that
//! it is out of date; then 16384 registers of 6 bits each, dense ([`HyperLogLog::at`]) or in runs ([`sparse`]). A change
//! makes the count out of date. No read writes it, as Redis does: replicas would have to agree on it.
//!
//! Registers are integers and go up only. The count alone is reckoned in floating point, in operations that IEEE 754
//! rounds in one way; were it otherwise somewhere, an answer would differ and no state.

mod count;
mod sparse;

use crate::keys::distinct;
use crate::turn::{Mark, Turn};
use crate::{Store, hash};
use isochrone_core::Blob;
use isochrone_core::command::{Refusal, Response};
use std::borrow::Cow;

/// How many registers there are.
const REGISTERS: usize = 1 << 14;
/// How many bytes stand before the registers.
const HEADER: usize = 16;
const MAGIC: &[u8] = b"HYLL";
/// The place of the encoding.
const ENCODING: usize = 4;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// The count.
const COUNT: std::ops::Range<usize> = 8..HEADER;
/// In the last byte of the count: it is out of date.
const STALE: u8 = 0x80;
/// The length of a dense one, bytes.
const DENSE_LENGTH: usize = HEADER + REGISTERS * 6 / 8;

impl Store {
    pub(crate) fn pfcount(&self, keys: &[Blob]) -> Result<Response, Refusal> {
        let mut histogram = [0; 64];
        if let [key] = keys {
            let Some(bytes) = self.bytes(key)? else { return Ok(Response::Integer(0)) };
            let held = HyperLogLog::read(&bytes)?;
            if let Some(count) = held.count() {
                return Ok(Response::Integer(count));
            }
            held.visit(|_, length, value| histogram[usize::from(value)] += length as u32)?;
        } else {
            let mut union = vec![0; REGISTERS];
            for key in distinct(keys) {
                if let Some(bytes) = self.bytes(key)? {
                    HyperLogLog::read(&bytes)?.add_to(&mut union)?;
                }
            }
            union.iter().for_each(|value| histogram[usize::from(*value)] += 1);
        }
        Ok(Response::Integer(count::estimate(&histogram)))
    }
}

impl Turn<'_> {
    pub(crate) fn pfadd(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        elements: &[Blob],
    ) -> Result<Response, Refusal> {
        self.replace_string(mark, key, |held| {
            let mut changed = held.is_none();
            let held = held.map(|held| held.blob());
            let mut held = HyperLogLog::of(held.as_deref())?;
            for element in elements {
                let (register, rank) = count::place(element);
                changed |= held.raise(register, rank)?;
            }
            Ok((changed.then(|| held.changed().into()), Response::yes(changed)))
        })
    }

    pub(crate) fn pfmerge(
        &mut self,
        mark: &mut Mark<'_>,
        target: &Blob,
        keys: &[Blob],
    ) -> Result<Response, Refusal> {
        let (mut union, mut dense) = (vec![0; REGISTERS], false);
        for key in distinct(std::iter::once(target).chain(keys)) {
            if let Some(bytes) = self.store().bytes(key)? {
                let held = HyperLogLog::read(&bytes)?;
                held.add_to(&mut union)?;
                dense |= held.is_dense();
            }
        }
        // What the sources held is not in the command, so it is in the version.
        let salt = hash::digest(&(&union, dense));
        self.replace_string(&mut mark.salted(salt), target, |held| {
            let held = held.map(|held| held.blob());
            let mut held = HyperLogLog::of(held.as_deref())?;
            if dense {
                held.widen()?;
            }
            for (register, value) in union.iter().enumerate().filter(|(_, value)| **value > 0) {
                held.raise(register, *value)?;
            }
            Ok((Some(held.changed().into()), Response::Ok))
        })
    }
}

/// A string that is one, as its header says.
struct HyperLogLog<'a> {
    /// Copied when first changed.
    bytes: Cow<'a, [u8]>,
    /// Where a sparse one was changed last.
    near: sparse::Place,
}

impl<'a> HyperLogLog<'a> {
    fn new(bytes: Cow<'a, [u8]>) -> HyperLogLog<'a> {
        HyperLogLog { bytes, near: sparse::Place::FIRST }
    }

    /// That of a key: an empty one where nothing is there.
    fn of(bytes: Option<&'a [u8]>) -> Result<HyperLogLog<'a>, Refusal> {
        let Some(bytes) = bytes else {
            let mut fresh = [0; HEADER].to_vec();
            fresh[..MAGIC.len()].copy_from_slice(MAGIC);
            fresh[ENCODING] = SPARSE;
            fresh.extend_from_slice(&sparse::EMPTY);
            return Ok(HyperLogLog::new(Cow::Owned(fresh)));
        };
        HyperLogLog::read(bytes)
    }

    fn read(bytes: &'a [u8]) -> Result<HyperLogLog<'a>, Refusal> {
        let valid = bytes.len() >= HEADER
            && bytes.starts_with(MAGIC)
            && match bytes[ENCODING] {
                DENSE => bytes.len() == DENSE_LENGTH,
                encoding => encoding == SPARSE,
            };
        if !valid {
            return Err(Refusal::NotHyperLogLog);
        }
        Ok(HyperLogLog::new(Cow::Borrowed(bytes)))
    }

    fn is_dense(&self) -> bool {
        self.bytes[ENCODING] == DENSE
    }

    /// The count that it has of itself, if that is up to date.
    fn count(&self) -> Option<i64> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.bytes[COUNT]);
        i64::try_from(u64::from_le_bytes(bytes)).ok()
    }

    /// Names all registers in order, by runs: the first one's number, how many there are, what each of them holds.
    fn visit(&self, mut visit: impl FnMut(usize, usize, u8)) -> Result<(), Refusal> {
        if !self.is_dense() {
            return sparse::visit(&self.bytes, visit);
        }
        for register in 0..REGISTERS {
            let (place, shift) = HyperLogLog::at(register);
            let group =
                u32::from_le_bytes([self.bytes[place], self.bytes[place + 1], self.bytes[place + 2], 0]);
            visit(register, 1, (group >> shift & 63) as u8);
        }
        Ok(())
    }

    /// Raises these registers to its own.
    fn add_to(&self, union: &mut [u8]) -> Result<(), Refusal> {
        self.visit(|first, length, value| {
            // The run of an empty one is as long as all registers.
            if value > 0 {
                union[first..first + length].iter_mut().for_each(|held| *held = value.max(*held));
            }
        })
    }

    /// Where a register of a dense one is: four share three bytes, little-endian, the first one lowest. The first byte of
    /// the group, and the lowest bit in it.
    fn at(register: usize) -> (usize, usize) {
        (HEADER + register / 4 * 3, register % 4 * 6)
    }

    /// Raises a register to at least this rank; whether that changed it.
    fn raise(&mut self, register: usize, rank: u8) -> Result<bool, Refusal> {
        if !self.is_dense() {
            if let Some(changed) = sparse::raise(&mut self.bytes, &mut self.near, register, rank)? {
                return Ok(changed);
            }
            self.widen()?;
        }
        let (place, shift) = HyperLogLog::at(register);
        let group = u32::from_le_bytes([self.bytes[place], self.bytes[place + 1], self.bytes[place + 2], 0]);
        if (group >> shift & 63) as u8 >= rank {
            return Ok(false);
        }
        let group = group & !(63 << shift) | u32::from(rank) << shift;
        self.bytes.to_mut()[place..place + 3].copy_from_slice(&group.to_le_bytes()[..3]);
        Ok(true)
    }

    /// Makes it dense.
    fn widen(&mut self) -> Result<(), Refusal> {
        if self.is_dense() {
            return Ok(());
        }
        let mut dense = vec![0; DENSE_LENGTH];
        dense[..HEADER].copy_from_slice(&self.bytes[..HEADER]);
        dense[ENCODING] = DENSE;
        let mut wide = HyperLogLog::new(Cow::Owned(dense));
        let mut held = Ok(());
        sparse::visit(&self.bytes, |first, length, value| {
            for register in first..first + length {
                held = held.and_then(|()| wide.raise(register, value).map(drop));
            }
        })?;
        held?;
        self.bytes = wide.bytes;
        Ok(())
    }

    /// Its bytes after a change.
    fn changed(self) -> Blob {
        let mut bytes = self.bytes.into_owned();
        bytes[HEADER - 1] |= STALE;
        Blob::from(bytes)
    }
}
