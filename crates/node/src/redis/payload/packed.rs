//! Small collections in one piece of bytes: listpacks, ziplists before 7.0, and sets of integers.
//!
//! All are read from the front, once, and must be what they say they are to the last byte.

use super::{Fault, Read};
use isochrone_core::Blob;

/// An element.
#[derive(Copy, Clone, Debug)]
pub(super) enum Packed<'a> {
    Bytes(&'a [u8]),
    Number(i64),
}

impl Packed<'_> {
    /// How many bytes it has as a string, at most.
    pub(super) fn len(self) -> usize {
        match self {
            Packed::Bytes(bytes) => bytes.len(),
            Packed::Number(number) => number.checked_ilog10().unwrap_or(20) as usize + 1,
        }
    }

    pub(super) fn blob(self) -> Blob {
        match self {
            Packed::Bytes(bytes) => Blob::new(bytes),
            Packed::Number(number) => Blob::from(number.to_string()),
        }
    }

    pub(super) fn number(self) -> Read<i64> {
        match self {
            Packed::Bytes(bytes) => crate::redis::request::integer(bytes).ok_or(Fault::Format),
            Packed::Number(number) => Ok(number),
        }
    }
}

/// The number in these bytes, lowest first.
fn little(bytes: &[u8]) -> i64 {
    let high = bytes.last().map_or(0, |byte| i64::from(*byte as i8));
    bytes.iter().rev().skip(1).fold(high, |number, byte| number << 8 | i64::from(*byte))
}

/// Takes so many bytes from the front.
pub(super) fn take<'a>(rest: &mut &'a [u8], count: usize) -> Read<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(count).ok_or(Fault::Format)?;
    *rest = behind;
    Ok(taken)
}

/// The same, of a number that is known beforehand.
pub(super) fn array<const N: usize>(rest: &mut &[u8]) -> Read<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk().ok_or(Fault::Format)?;
    *rest = behind;
    Ok(*taken)
}

fn byte(rest: &mut &[u8]) -> Read<u8> {
    array(rest).map(|[byte]| byte)
}

/// The end of both packs.
const END: u8 = 0xff;
/// How many elements there are where their number does not fit.
const MANY: usize = 0xffff;

/// What goes on, element by element, over the inside of a pack.
pub(super) struct Pack<'a> {
    rest: &'a [u8],
    next: fn(&mut Pack<'a>) -> Read<Packed<'a>>,
    /// How many elements are still to come, where that is said.
    left: Option<usize>,
    /// How long the last entry of a ziplist was.
    before: usize,
}

pub(super) fn listpack(bytes: &[u8]) -> Read<Pack<'_>> {
    Pack::open(bytes, 0, Pack::listed)
}

pub(super) fn ziplist(bytes: &[u8]) -> Read<Pack<'_>> {
    Pack::open(bytes, 4, Pack::zipped)
}

impl<'a> Pack<'a> {
    /// Length, in a ziplist the place of the last entry (so many bytes), number of elements, elements, end.
    fn open(bytes: &'a [u8], between: usize, next: fn(&mut Pack<'a>) -> Read<Packed<'a>>) -> Read<Pack<'a>> {
        let mut rest = bytes;
        let long = u32::from_le_bytes(array(&mut rest)?) as usize;
        take(&mut rest, between)?;
        let count = usize::from(u16::from_le_bytes(array(&mut rest)?));
        let (Some((&END, rest)), true) = (rest.split_last(), long == bytes.len()) else {
            return Err(Fault::Format);
        };
        Ok(Pack { rest, next, left: (count != MANY).then_some(count), before: 0 })
    }

    /// The next element; `None` behind the last.
    pub(super) fn next(&mut self) -> Read<Option<Packed<'a>>> {
        if let Some(left) = &mut self.left {
            if (*left == 0) != self.rest.is_empty() {
                return Err(Fault::Format);
            }
            *left = left.saturating_sub(1);
        }
        if self.rest.is_empty() { Ok(None) } else { (self.next)(self).map(Some) }
    }

    /// The next element, which must be there.
    pub(super) fn one(&mut self) -> Read<Packed<'a>> {
        self.next()?.ok_or(Fault::Format)
    }

    /// The next element, a number.
    pub(super) fn number(&mut self) -> Read<i64> {
        self.one()?.number()
    }

    fn listed(&mut self) -> Read<Packed<'a>> {
        let before = self.rest.len();
        let rest = &mut self.rest;
        let head = byte(rest)?;
        let low = usize::from(head);
        let element = match head {
            0x00..=0x7f => Packed::Number(i64::from(head)),
            0x80..=0xbf => Packed::Bytes(take(rest, low & 0x3f)?),
            0xc0..=0xdf => {
                // 13 bits, of which the highest is the sign.
                let number = ((low & 0x1f) << 8 | usize::from(byte(rest)?)) as i64;
                Packed::Number(if number < 1 << 12 { number } else { number - (1 << 13) })
            }
            0xe0..=0xef => {
                let length = (low & 0x0f) << 8 | usize::from(byte(rest)?);
                Packed::Bytes(take(rest, length)?)
            }
            0xf0 => {
                let length = u32::from_le_bytes(array(rest)?);
                Packed::Bytes(take(rest, length as usize)?)
            }
            0xf1 => Packed::Number(little(take(rest, 2)?)),
            0xf2 => Packed::Number(little(take(rest, 3)?)),
            0xf3 => Packed::Number(little(take(rest, 4)?)),
            0xf4 => Packed::Number(little(take(rest, 8)?)),
            0xf5..=0xff => return Err(Fault::Format),
        };
        // Behind each, for who reads backwards, how long it is.
        let (length, digits) = backwards(before - rest.len());
        if take(rest, digits)? != &length[..digits] {
            return Err(Fault::Format);
        }
        Ok(element)
    }

    fn zipped(&mut self) -> Read<Packed<'a>> {
        let before = self.rest.len();
        let rest = &mut self.rest;
        let last = match byte(rest)? {
            0xfe => u32::from_le_bytes(array(rest)?) as usize,
            END => return Err(Fault::Format),
            short => usize::from(short),
        };
        if last != self.before {
            return Err(Fault::Format);
        }
        let head = byte(rest)?;
        let low = usize::from(head & 0x3f);
        let element = match head {
            0x00..=0x3f => Packed::Bytes(take(rest, low)?),
            0x40..=0x7f => {
                let length = low << 8 | usize::from(byte(rest)?);
                Packed::Bytes(take(rest, length)?)
            }
            0x80 => {
                let length = u32::from_be_bytes(array(rest)?);
                Packed::Bytes(take(rest, length as usize)?)
            }
            0xc0 => Packed::Number(little(take(rest, 2)?)),
            0xd0 => Packed::Number(little(take(rest, 4)?)),
            0xe0 => Packed::Number(little(take(rest, 8)?)),
            0xf0 => Packed::Number(little(take(rest, 3)?)),
            0xfe => Packed::Number(little(take(rest, 1)?)),
            0xf1..=0xfd => Packed::Number(i64::from(head & 0x0f) - 1),
            _ => return Err(Fault::Format),
        };
        self.before = before - self.rest.len();
        Ok(element)
    }
}

/// A length as it stands behind an entry of a listpack, seven bits a byte, and how many bytes that is.
pub(super) fn backwards(length: usize) -> ([u8; 5], usize) {
    let digits = match length {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let mut bytes = [0; 5];
    for (at, byte) in bytes[..digits].iter_mut().enumerate() {
        let low = (length >> (7 * (digits - 1 - at)) & 0x7f) as u8;
        *byte = if at == 0 { low } else { low | 0x80 };
    }
    (bytes, digits)
}

/// The numbers of a set of integers: how many bytes each has, how many there are, and they themselves.
pub(super) fn intset(bytes: &[u8]) -> Read<impl Iterator<Item = i64>> {
    let mut rest = bytes;
    let (width, count) = (u32::from_le_bytes(array(&mut rest)?), u32::from_le_bytes(array(&mut rest)?));
    let whole = u64::from(count) * u64::from(width) == rest.len() as u64;
    if !matches!(width, 2 | 4 | 8) || !whole {
        return Err(Fault::Format);
    }
    Ok(rest.chunks_exact(width as usize).map(little))
}
