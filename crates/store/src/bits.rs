//! Bitmaps: strings as bits, bit 0 the highest of the first byte.

use crate::bytes::{Bytes, LONG_MIN};
use crate::keys::counted;
use crate::turn::{Mark, Turn};
use crate::value::Value;
use crate::{STRING_MAX, Store, hash};
use isochrone_core::command::{BitCombine, BitNumber, BitOverflow, BitRange, BitStep, Refusal, Response};
use isochrone_core::{Blob, Stamp};
use std::borrow::Cow;

impl Store {
    /// The bytes under a key: none where there is no key.
    pub(crate) fn bytes(&self, key: &[u8]) -> Result<Option<Blob>, Refusal> {
        self.keys.get(key).map(|entry| entry.value.bytes()).transpose()
    }

    /// The same as they lie.
    fn string(&self, key: &[u8]) -> Result<Option<Bytes>, Refusal> {
        self.keys.get(key).map(|entry| entry.value.string()).transpose()
    }

    pub(crate) fn getbit(&self, key: &[u8], offset: u64) -> Result<Response, Refusal> {
        let bytes = self.string(key)?.unwrap_or_default();
        Ok(Response::yes(bit_of(&bytes, offset)))
    }

    pub(crate) fn bitcount(&self, key: &[u8], range: Option<BitRange>) -> Result<Response, Refusal> {
        let bytes = self.string(key)?.unwrap_or_default();
        let whole = BitRange { start: 0, end: -1, bits: false };
        let range = range.unwrap_or(whole);
        // To BITPOS such a range, beyond the beginning, is the first byte or bit; to BITCOUNT it is none.
        let backwards = range.start < 0 && range.end < 0 && range.start > range.end;
        let Some((first, behind)) = bounds(bytes.len(), range).filter(|_| !backwards) else {
            return Ok(Response::Integer(0));
        };
        let (bytes, _, first, behind) = window(&bytes, first, behind);
        // Whole bytes, and the bits beside them.
        let (from, to) = (first.div_ceil(8).min(behind / 8), behind / 8);
        let ones = |bits: std::ops::Range<u64>| bits.filter(|at| bit(&bytes, *at)).count();
        let inner = bytes[from as usize..to as usize].iter().map(|byte| byte.count_ones() as usize);
        let (low, high) = (first..(from * 8).max(first).min(behind), (to * 8).max(first)..behind);
        Ok(Response::count(ones(low) + inner.sum::<usize>() + ones(high)))
    }

    pub(crate) fn bitpos(
        &self,
        key: &[u8],
        on: bool,
        range: BitRange,
        open: bool,
    ) -> Result<Response, Refusal> {
        const NONE: Response = Response::Integer(-1);
        let Some(bytes) = self.string(key)? else {
            // No key is a string of zeros.
            return Ok(if on { NONE } else { Response::Integer(0) });
        };
        let Some((first, behind)) = bounds(bytes.len(), range) else { return Ok(NONE) };
        let (bytes, start, first, behind) = window(&bytes, first, behind);
        let dull = if on { 0 } else { u8::MAX };
        let mut at = first;
        while at < behind {
            if at.is_multiple_of(8) && bytes[(at / 8) as usize] == dull {
                at += 8;
                continue;
            }
            if bit(&bytes, at) == on {
                return Ok(Response::Integer((start + at) as i64));
            }
            at += 1;
        }
        let padded = !on && open;
        Ok(if padded { Response::Integer((start + behind) as i64) } else { NONE })
    }

    /// A `BITFIELD` that changes nothing.
    pub(crate) fn bitfield_read(&self, key: &[u8], steps: &[BitStep]) -> Result<Response, Refusal> {
        let mut bytes = self.string(key)?.unwrap_or_default();
        Ok(Response::Array(steps.iter().map(|step| take_from(&mut bytes, *step)).collect()))
    }
}

impl Turn<'_> {
    pub(crate) fn setbit(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        offset: u64,
        on: bool,
    ) -> Result<Response, Refusal> {
        self.replace_string(mark, key, |held| {
            let fresh = held.is_none();
            let mut held = held.unwrap_or_default();
            let former = bit_of(&held, offset);
            let length = padded(held.len(), offset.saturating_add(1))?;
            if !fresh && former == on && length == held.len() {
                return Ok((None, Response::yes(former)));
            }
            let at = (offset / 8) as usize;
            let mut byte = [held.byte(at)];
            put(&mut byte, offset % 8, on);
            held.write(at, &byte);
            Ok((Some(held), Response::yes(former)))
        })
    }

    pub(crate) fn bitop(
        &mut self,
        mark: &mut Mark<'_>,
        combine: BitCombine,
        target: &Blob,
        keys: &[Blob],
    ) -> Result<Response, Refusal> {
        let sources = counted(keys).into_iter();
        let sources = sources.map(|(key, times)| Ok((self.store().bytes(key)?.unwrap_or_default(), times)));
        let mut sources: Vec<(Blob, usize)> = sources.collect::<Result<_, Refusal>>()?;
        let lengths = || sources.iter().map(|(source, _)| source.len());
        let (length, common) = (lengths().max().unwrap_or(0), lengths().min().unwrap_or(0));
        if length == 0 {
            self.delete(target);
            return Ok(Response::Integer(0));
        }
        if combine == BitCombine::Xor {
            // What stands there twice is as if it stood there never.
            sources.retain(|(_, times)| times % 2 == 1);
        }
        let mut bytes = sources.first().map(|(first, _)| first.to_vec()).unwrap_or_default();
        // Zeros beyond the end of any of them, and for the others beyond that of all.
        bytes.resize(if combine == BitCombine::And { common } else { length }, 0);
        for (source, _) in sources.iter().skip(1) {
            let both = bytes.iter_mut().zip(source.iter());
            match combine {
                BitCombine::And => both.for_each(|(byte, other)| *byte &= other),
                BitCombine::Or => both.for_each(|(byte, other)| *byte |= other),
                BitCombine::Xor => both.for_each(|(byte, other)| *byte ^= other),
                BitCombine::Not => {}
            }
        }
        bytes.resize(length, 0);
        if combine == BitCombine::Not {
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
        }
        // What the sources held is not in the command, so it is in the version.
        let salt = hash::digest(&bytes);
        self.put(&mut mark.salted(salt), target, Value::String(Blob::from(bytes).into()), Stamp::MAX);
        Ok(Response::count(length))
    }

    pub(crate) fn bitfield(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        steps: &[BitStep],
    ) -> Result<Response, Refusal> {
        self.replace_string(mark, key, |held| {
            let fresh = held.is_none();
            let held = held.unwrap_or_default();
            let ends = steps.iter().map(|step| match step {
                BitStep::Get(_) => 0,
                BitStep::Set(number, ..) | BitStep::IncrBy(number, ..) => {
                    number.offset.saturating_add(u64::from(number.width))
                }
            });
            let length = padded(held.len(), ends.max().unwrap_or(0))?;
            if length < LONG_MIN {
                let mut bytes = held.blob().to_vec();
                bytes.resize(length, 0);
                let answers = steps.iter().map(|step| take(&mut bytes, *step)).collect();
                let changed = fresh || bytes[..] != held.read(0..length)[..];
                return Ok((changed.then(|| Blob::from(bytes).into()), Response::Array(answers)));
            }
            let mut bytes = held.clone();
            bytes.pad(length);
            let answers = steps.iter().map(|step| take_from(&mut bytes, *step)).collect();
            let changed = fresh
                || length > held.len()
                || steps.iter().any(|step| around(&bytes, *step) != around(&held, *step));
            Ok((changed.then_some(bytes), Response::Array(answers)))
        })
    }
}

/// The length of a string that holds so many bits, or as many as it has.
fn padded(held: usize, bits: u64) -> Result<usize, Refusal> {
    let length = bits.div_ceil(8);
    if length > STRING_MAX as u64 {
        return Err(Refusal::StringTooLong);
    }
    Ok(held.max(length as usize))
}

/// A bit; zero beyond the end.
fn bit(bytes: &[u8], at: u64) -> bool {
    bytes.get((at / 8) as usize).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1)
}

/// The same of a string as it lies.
fn bit_of(bytes: &Bytes, at: u64) -> bool {
    bit(&[bytes.byte((at / 8) as usize)], at % 8)
}

/// The bytes that hold these bits, at which bit they begin, and the bits counted from there.
fn window(bytes: &Bytes, first: u64, behind: u64) -> (Cow<'_, [u8]>, u64, u64, u64) {
    let start = first / 8;
    let bytes = bytes.read(start as usize..behind.div_ceil(8) as usize);
    (bytes, start * 8, first - start * 8, behind - start * 8)
}

/// Sets a bit, which must be there.
fn put(bytes: &mut [u8], at: u64, on: bool) {
    let mask = 1 << (7 - at % 8);
    let byte = &mut bytes[(at / 8) as usize];
    if on { *byte |= mask } else { *byte &= !mask }
}

/// The first bit of a range and the one behind it; `None` where there is none.
fn bounds(bytes: usize, range: BitRange) -> Option<(u64, u64)> {
    let BitRange { start, end, bits } = range;
    let length = bytes as i64 * if bits { 8 } else { 1 };
    let clamp = |position: i64| if position < 0 { length.saturating_add(position).max(0) } else { position };
    let (start, end) = (clamp(start), clamp(end).min(length - 1));
    if start > end {
        return None;
    }
    let unit = if bits { 1 } else { 8 };
    Some((start as u64 * unit, (end as u64 + 1) * unit))
}

/// One step of `BITFIELD`: its answer. A string that is changed is long enough.
fn take(bytes: &mut [u8], step: BitStep) -> Response {
    let (number, overflow, wanted, answers_old) = match step {
        BitStep::Get(number) => return Response::Integer(value(bytes, number) as i64),
        // An unsigned number takes the bits of a negative value as they are.
        BitStep::Set(number, new, overflow) if number.signed => (number, overflow, i128::from(new), true),
        BitStep::Set(number, new, overflow) => (number, overflow, i128::from(new as u64), true),
        BitStep::IncrBy(number, by, overflow) => {
            (number, overflow, value(bytes, number) + i128::from(by), false)
        }
    };
    let former = value(bytes, number);
    let (least, most) = match number.signed {
        true => (-(1i128 << (number.width - 1)), (1i128 << (number.width - 1)) - 1),
        false => (0, (1i128 << number.width) - 1),
    };
    let kept = match overflow {
        _ if (least..=most).contains(&wanted) => wanted,
        BitOverflow::Fail => return Response::Nil,
        BitOverflow::Saturate => wanted.clamp(least, most),
        BitOverflow::Wrap => wanted,
    };
    for place in 0..u64::from(number.width) {
        let on = kept >> (u64::from(number.width) - 1 - place) & 1 == 1;
        put(bytes, number.offset + place, on);
    }
    Response::Integer(if answers_old { former } else { value(bytes, number) } as i64)
}

/// The number of a step.
fn number(step: &mut BitStep) -> &mut BitNumber {
    match step {
        BitStep::Get(number) | BitStep::Set(number, ..) | BitStep::IncrBy(number, ..) => number,
    }
}

/// As many bytes as can hold a number of 64 bits at any place: those that hold that of a step, zeros beyond the end.
fn around(bytes: &Bytes, mut step: BitStep) -> [u8; 9] {
    let first = (number(&mut step).offset / 8) as usize;
    let mut around = [0; 9];
    let held = bytes.read(first..first + around.len());
    around[..held.len()].copy_from_slice(&held);
    around
}

/// The same as [`take`] of a string as it lies.
fn take_from(bytes: &mut Bytes, mut step: BitStep) -> Response {
    let former = around(bytes, step);
    let number = number(&mut step);
    let first = (number.offset / 8) as usize;
    number.offset %= 8;
    let mut edited = former;
    let answer = take(&mut edited, step);
    if edited != former {
        let held = bytes.len() - first;
        bytes.write(first, &edited[..held.min(9)]);
    }
    answer
}

/// The number at a place, zeros beyond the end.
fn value(bytes: &[u8], number: BitNumber) -> i128 {
    let mut value = 0i128;
    for place in 0..u64::from(number.width) {
        value = value << 1 | i128::from(bit(bytes, number.offset.saturating_add(place)));
    }
    let negative = number.signed && value >> (number.width - 1) & 1 == 1;
    if negative { value - (1 << number.width) } else { value }
}
