//! Bitmaps.

use super::Understood;
use crate::redis::args::{blob, blobs, is, number};
use crate::redis::complaint::Complaint;
use crate::redis::request::{Args, integer};
use crate::redis::spec::flag::{DENYOOM, FAST, READ, WRITE};
use crate::redis::spec::{Given, Group, Keys, Spec, about};
use isochrone_core::command::{BitCombine, BitNumber, BitOverflow, BitRange, BitStep, Operation};

pub(crate) static COMMANDS: &[Spec] = &[
    Group::Bitmap.data(
        "bitcount",
        -2,
        READ,
        about("2.6.0", "key [start end [BYTE|BIT]]", "How many bits are 1"),
        |args, _| {
            let range = match args.len() {
                2 => None,
                4 | 5 => Some(BitRange {
                    start: number(args.at(2))?,
                    end: number(args.at(3))?,
                    bits: unit(args, 4)?,
                }),
                _ => return Err(Complaint::Syntax),
            };
            Ok(Operation::BitCount { key: blob(args.at(1)), range }.into())
        },
    ),
    Group::Bitmap.data(
        "bitfield",
        -2,
        WRITE | DENYOOM,
        about(
            "3.2.0",
            "key [GET encoding offset|[OVERFLOW WRAP|SAT|FAIL] SET encoding offset value|\
         INCRBY encoding offset increment ...]",
            "Reads and changes numbers of any width",
        ),
        |args, given| bitfield(args, given, false),
    ),
    Group::Bitmap.data(
        "bitfield_ro",
        -2,
        READ | FAST,
        about("6.0.0", "key [GET encoding offset [GET encoding offset ...]]", "Reads numbers of any width"),
        |args, given| bitfield(args, given, true),
    ),
    Group::Bitmap
        .data(
            "bitop",
            -4,
            WRITE | DENYOOM,
            about("2.6.0", "AND|OR|XOR|NOT destkey key [key ...]", "Combines strings bit by bit"),
            bitop,
        )
        .with_keys(Keys::Range { first: 2, last: -1, step: 1 }),
    Group::Bitmap.data(
        "bitpos",
        -3,
        READ,
        about("2.8.7", "key bit [start [end [BYTE|BIT]]]", "The first bit like this one"),
        bitpos,
    ),
    Group::Bitmap.data("getbit", 3, READ | FAST, about("2.2.0", "key offset", "One bit"), |args, given| {
        let offset = offset(args.at(2), None, readable(given))?;
        Ok(Operation::GetBit { key: blob(args.at(1)), offset }.into())
    }),
    Group::Bitmap.data(
        "setbit",
        4,
        WRITE | DENYOOM,
        about("2.2.0", "key offset value", "Sets one bit"),
        |args, given| {
            let offset = offset(args.at(2), None, given.bulk_max)?;
            let on = match integer(args.at(3)) {
                Some(0) => false,
                Some(1) => true,
                _ => return Err(Complaint::text("ERR bit is not an integer or out of range")),
            };
            Ok(Operation::SetBit { key: blob(args.at(1)), offset, on }.into())
        },
    ),
];

/// `BYTE|BIT` at this place, if there is anything: whether positions count bits.
fn unit(args: Args<'_>, at: usize) -> Result<bool, Complaint> {
    match () {
        () if args.len() <= at => Ok(false),
        () if is(args.at(at), "BIT") => Ok(true),
        () if is(args.at(at), "BYTE") => Ok(false),
        () => Err(Complaint::Syntax),
    }
}

/// How long a string may be of which a bit is read, bytes: no shorter than Redis lets one be as a rule, since beyond its end
/// there are zeros.
fn readable(given: &Given<'_>) -> usize {
    given.bulk_max.max(512 << 20)
}

/// The position of a bit: no further than a string of so many bytes has bits. With a width also `#n`, the place of
/// the n-th number of that width.
fn offset(text: &[u8], width: Option<u8>, longest: usize) -> Result<u64, Complaint> {
    let (text, unit) = match (text, width) {
        ([b'#', rest @ ..], Some(width)) => (rest, u64::from(width)),
        _ => (text, 1),
    };
    integer(text)
        .and_then(|place| u64::try_from(place).ok()?.checked_mul(unit))
        .filter(|place| place >> 3 < longest as u64)
        .ok_or(Complaint::text("ERR bit offset is not an integer or out of range"))
}

fn bitpos(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let on = match number(args.at(2))? {
        0 => false,
        1 => true,
        _ => return Err(Complaint::text("ERR The bit argument must be 1 or 0.")),
    };
    if args.len() > 6 {
        return Err(Complaint::Syntax);
    }
    let start = if args.len() > 3 { number(args.at(3))? } else { 0 };
    let end = if args.len() > 4 { number(args.at(4))? } else { -1 };
    let range = BitRange { start, end, bits: unit(args, 5)? };
    Ok(Operation::BitPos { key: blob(args.at(1)), on, range, open: args.len() < 5 }.into())
}

fn bitop(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let combine = match () {
        () if is(args.at(1), "AND") => BitCombine::And,
        () if is(args.at(1), "OR") => BitCombine::Or,
        () if is(args.at(1), "XOR") => BitCombine::Xor,
        () if is(args.at(1), "NOT") => BitCombine::Not,
        () => return Err(Complaint::Syntax),
    };
    if combine == BitCombine::Not && args.len() != 4 {
        return Err(Complaint::text("ERR BITOP NOT must be called with a single source key."));
    }
    Ok(Operation::BitOp { combine, target: blob(args.at(2)), keys: blobs(args, 3) }.into())
}

fn bitfield(args: Args<'_>, given: &mut Given<'_>, read_only: bool) -> Understood {
    let mut steps = Vec::new();
    let mut overflow = BitOverflow::Wrap;
    let mut at = 2;
    while at < args.len() {
        let (word, left) = (args.at(at), args.len() - at - 1);
        if is(word, "OVERFLOW") && left >= 1 {
            overflow = match () {
                () if is(args.at(at + 1), "WRAP") => BitOverflow::Wrap,
                () if is(args.at(at + 1), "SAT") => BitOverflow::Saturate,
                () if is(args.at(at + 1), "FAIL") => BitOverflow::Fail,
                () => return Err(Complaint::text("ERR Invalid OVERFLOW type specified")),
            };
            at += 2;
            continue;
        }
        let is_get = is(word, "GET") && left >= 2;
        let is_set = is(word, "SET") && left >= 3;
        let is_add = is(word, "INCRBY") && left >= 3;
        if !(is_get || is_set || is_add) {
            return Err(Complaint::Syntax);
        }
        let (signed, width) = encoding(args.at(at + 1))?;
        let longest = if is_get { readable(given) } else { given.bulk_max };
        let number = BitNumber { offset: offset(args.at(at + 2), Some(width), longest)?, width, signed };
        if is_get {
            steps.push(BitStep::Get(number));
            at += 3;
            continue;
        }
        if read_only {
            return Err(Complaint::text("ERR BITFIELD_RO only supports the GET subcommand"));
        }
        let value = self::number(args.at(at + 3))?;
        steps.push(if is_set {
            BitStep::Set(number, value, overflow)
        } else {
            BitStep::IncrBy(number, value, overflow)
        });
        at += 4;
    }
    Ok(Operation::BitField { key: blob(args.at(1)), steps: steps.into() }.into())
}

/// A type like `i16` or `u8`: whether it is signed, and its width.
fn encoding(text: &[u8]) -> Result<(bool, u8), Complaint> {
    let (signed, most) = match text.first() {
        Some(b'i') => (true, 64),
        Some(b'u') => (false, 63),
        _ => (false, 0),
    };
    text.get(1..)
        .and_then(integer)
        .filter(|width| (1..=most).contains(width))
        .map(|width| (signed, width as u8))
        .ok_or(Complaint::text(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ))
}
