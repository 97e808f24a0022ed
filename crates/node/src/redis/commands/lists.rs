//! Lists.

use super::Understood;
use crate::redis::args::{blob, blobs, counted_keys, is, number, positive};
use crate::redis::blocking::Patience;
use crate::redis::complaint::Complaint;
use crate::redis::request::{Args, integer};
use crate::redis::shape::{Plan, Shape};
use crate::redis::spec::flag::{BLOCKING, DENYOOM, FAST, MOVABLE_KEYS, NOSCRIPT, READ, WRITE};
use crate::redis::spec::{Given, Group, Keys, Spec, TWO, about};
use isochrone_core::command::{Operation, Side};

pub(crate) static COMMANDS: &[Spec] = &[
    Group::List
        .blocking(
            "blmove",
            6,
            DENYOOM | WRITE | BLOCKING | NOSCRIPT,
            about(
                "6.2.0",
                "source destination LEFT|RIGHT LEFT|RIGHT timeout",
                "Moves an element between lists, and waits for one",
            ),
            |args, _| {
                let (from, to) = (side(args.at(3))?, side(args.at(4))?);
                let patience = Patience::parse(args.at(5))?;
                let (source, target) = (blob(args.at(1)), blob(args.at(2)));
                Ok((Operation::LMove { source, target, from, to }.into(), patience))
            },
        )
        .with_keys(TWO),
    Group::List
        .blocking(
            "blmpop",
            -5,
            MOVABLE_KEYS | WRITE | BLOCKING,
            about(
                "7.0.0",
                "timeout numkeys key [key ...] LEFT|RIGHT [COUNT count]",
                "Pops from the first list that has elements, and waits for one",
            ),
            |args, _| {
                let patience = Patience::parse(args.at(1))?;
                let (keys, behind) = counted_keys(args, 2, "ERR numkeys should be greater than 0")?;
                if behind == args.len() {
                    return Err(Complaint::Syntax);
                }
                let side = side(args.at(behind))?;
                let count = pop_count(args, behind + 1)?;
                Ok((Operation::LMPop { keys: keys.into(), side, count }.into(), patience))
            },
        )
        .with_keys(Keys::Counted { at: 2, target: false }),
    Group::List
        .blocking(
            "blpop",
            -3,
            NOSCRIPT | WRITE | BLOCKING,
            about("2.0.0", "key [key ...] timeout", "Pops from the head, and waits for an element"),
            |args, _| pop_one(args, Side::Left),
        )
        .with_keys(BUT_LAST),
    Group::List
        .blocking(
            "brpop",
            -3,
            NOSCRIPT | WRITE | BLOCKING,
            about("2.0.0", "key [key ...] timeout", "Pops from the tail, and waits for an element"),
            |args, _| pop_one(args, Side::Right),
        )
        .with_keys(BUT_LAST),
    Group::List
        .blocking(
            "brpoplpush",
            4,
            DENYOOM | NOSCRIPT | WRITE | BLOCKING,
            about(
                "2.2.0",
                "source destination timeout",
                "Moves the last element to another list, and waits for one",
            ),
            |args, _| {
                let patience = Patience::parse(args.at(3))?;
                let (source, target) = (blob(args.at(1)), blob(args.at(2)));
                let operation = Operation::LMove { source, target, from: Side::Right, to: Side::Left };
                Ok((operation.into(), patience))
            },
        )
        .with_keys(TWO),
    Group::List.data("lindex", 3, READ, about("1.0.0", "key index", "One element"), |args, _| {
        Ok(Operation::LIndex { key: blob(args.at(1)), index: number(args.at(2))? }.into())
    }),
    Group::List.data(
        "linsert",
        5,
        WRITE | DENYOOM,
        about("2.2.0", "key BEFORE|AFTER pivot element", "Inserts beside an element"),
        |args, _| {
            let before = is(args.at(2), "BEFORE");
            if !before && !is(args.at(2), "AFTER") {
                return Err(Complaint::Syntax);
            }
            let (key, pivot, value) = (blob(args.at(1)), blob(args.at(3)), blob(args.at(4)));
            Ok(Operation::LInsert { key, before, pivot, value }.into())
        },
    ),
    Group::List.data("llen", 2, READ | FAST, about("1.0.0", "key", "How many elements"), |args, _| {
        Ok(Operation::LLen { key: blob(args.at(1)) }.into())
    }),
    Group::List
        .data(
            "lmove",
            5,
            WRITE | DENYOOM,
            about("6.2.0", "source destination LEFT|RIGHT LEFT|RIGHT", "Moves an element between lists"),
            |args, _| {
                let (from, to) = (side(args.at(3))?, side(args.at(4))?);
                Ok(Operation::LMove { source: blob(args.at(1)), target: blob(args.at(2)), from, to }.into())
            },
        )
        .with_keys(TWO),
    Group::List
        .data(
            "lmpop",
            -4,
            WRITE | MOVABLE_KEYS,
            about(
                "7.0.0",
                "numkeys key [key ...] LEFT|RIGHT [COUNT count]",
                "Pops from the first list that has elements",
            ),
            |args, _| {
                let (keys, behind) = counted_keys(args, 1, "ERR numkeys should be greater than 0")?;
                let side = side(args.at(behind))?;
                let count = pop_count(args, behind + 1)?;
                Ok(Operation::LMPop { keys: keys.into(), side, count }.into())
            },
        )
        .with_keys(Keys::Counted { at: 1, target: false }),
    Group::List.data(
        "lpop",
        -2,
        WRITE | FAST,
        about("1.0.0", "key [count]", "Pops from the head"),
        |args, _| pop(args, Side::Left, "lpop"),
    ),
    Group::List.data(
        "lpos",
        -3,
        READ,
        about("6.0.6", "key element [RANK rank] [COUNT num-matches] [MAXLEN len]", "Where an element is"),
        position,
    ),
    Group::List.data(
        "lpush",
        -3,
        WRITE | DENYOOM | FAST,
        about("1.0.0", "key element [element ...]", "Pushes at the head"),
        |args, _| push(args, Side::Left, false),
    ),
    Group::List.data(
        "lpushx",
        -3,
        WRITE | DENYOOM | FAST,
        about("2.2.0", "key element [element ...]", "Pushes at the head of a list that exists"),
        |args, _| push(args, Side::Left, true),
    ),
    Group::List.data(
        "lrange",
        4,
        READ,
        about("1.0.0", "key start stop", "A range of elements"),
        |args, _| {
            let (start, stop) = (number(args.at(2))?, number(args.at(3))?);
            Ok(Operation::LRange { key: blob(args.at(1)), start, stop }.into())
        },
    ),
    Group::List.data(
        "lrem",
        4,
        WRITE,
        about("1.0.0", "key count element", "Removes equal elements"),
        |args, _| {
            let count = number(args.at(2))?;
            Ok(Operation::LRem { key: blob(args.at(1)), count, value: blob(args.at(3)) }.into())
        },
    ),
    Group::List.data(
        "lset",
        4,
        WRITE | DENYOOM,
        about("1.0.0", "key index element", "Replaces one element"),
        |args, _| {
            let index = number(args.at(2))?;
            Ok(Operation::LSet { key: blob(args.at(1)), index, value: blob(args.at(3)) }.into())
        },
    ),
    Group::List.data(
        "ltrim",
        4,
        WRITE,
        about("1.0.0", "key start stop", "Keeps a range of elements"),
        |args, _| {
            let (start, stop) = (number(args.at(2))?, number(args.at(3))?);
            Ok(Operation::LTrim { key: blob(args.at(1)), start, stop }.into())
        },
    ),
    Group::List.data(
        "rpop",
        -2,
        WRITE | FAST,
        about("1.0.0", "key [count]", "Pops from the tail"),
        |args, _| pop(args, Side::Right, "rpop"),
    ),
    Group::List
        .data(
            "rpoplpush",
            3,
            WRITE | DENYOOM,
            about("1.2.0", "source destination", "Moves the last element to another list"),
            |args, _| {
                let (from, to) = (Side::Right, Side::Left);
                Ok(Operation::LMove { source: blob(args.at(1)), target: blob(args.at(2)), from, to }.into())
            },
        )
        .with_keys(TWO),
    Group::List.data(
        "rpush",
        -3,
        WRITE | DENYOOM | FAST,
        about("1.0.0", "key element [element ...]", "Pushes at the tail"),
        |args, _| push(args, Side::Right, false),
    ),
    Group::List.data(
        "rpushx",
        -3,
        WRITE | DENYOOM | FAST,
        about("2.2.0", "key element [element ...]", "Pushes at the tail of a list that exists"),
        |args, _| push(args, Side::Right, true),
    ),
];

/// All strings but the last are keys.
pub(crate) const BUT_LAST: Keys = Keys::Range { first: 1, last: -2, step: 1 };

fn pop_one(args: Args<'_>, side: Side) -> Result<(Plan, Patience), Complaint> {
    let last = args.len() - 1;
    let patience = Patience::parse(args.at(last))?;
    let keys = (1..last).map(|place| blob(args.at(place))).collect();
    let operation = Operation::LMPop { keys, side, count: 1 };
    Ok((Plan { operation, shape: Shape::Popped }, patience))
}

fn side(arg: &[u8]) -> Result<Side, Complaint> {
    match () {
        () if is(arg, "LEFT") => Ok(Side::Left),
        () if is(arg, "RIGHT") => Ok(Side::Right),
        () => Err(Complaint::Syntax),
    }
}

fn push(args: Args<'_>, side: Side, only_if_exists: bool) -> Understood {
    Ok(Operation::Push { key: blob(args.at(1)), values: blobs(args, 2), side, only_if_exists }.into())
}

fn pop(args: Args<'_>, side: Side, command: &'static str) -> Understood {
    let count = match args.len() {
        2 => None,
        3 => Some(not_negative(args.at(2))?),
        _ => return Err(Complaint::Arity(command)),
    };
    Ok(Operation::Pop { key: blob(args.at(1)), side, count }.into())
}

/// A count that must not be negative, with Redis' text for one that is, or is none.
pub(crate) fn not_negative(text: &[u8]) -> Result<u64, Complaint> {
    let count = integer(text).and_then(|count| u64::try_from(count).ok());
    count.ok_or(Complaint::text("ERR value is out of range, must be positive"))
}

/// `[COUNT count]` at the end of LMPOP and ZMPOP.
pub(crate) fn pop_count(args: Args<'_>, at: usize) -> Result<u64, Complaint> {
    match args.len() - at {
        0 => Ok(1),
        2 if is(args.at(at), "COUNT") => positive(args.at(at + 1), "ERR count should be greater than 0"),
        _ => Err(Complaint::Syntax),
    }
}

fn position(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let (mut rank, mut count, mut length) = (1, None, 0);
    let mut at = 3;
    while at < args.len() {
        if at + 1 == args.len() {
            return Err(Complaint::Syntax);
        }
        let (option, value) = (args.at(at), args.at(at + 1));
        if is(option, "RANK") {
            rank = number(value)?;
            if rank == 0 {
                return Err(Complaint::text(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                     or use negative to start from the end of the list",
                ));
            }
            if rank == i64::MIN {
                return Err(Complaint::text("ERR value is out of range"));
            }
        } else if is(option, "COUNT") {
            count = Some(bounded(value, "ERR COUNT can't be negative")?);
        } else if is(option, "MAXLEN") {
            length = bounded(value, "ERR MAXLEN can't be negative")?;
        } else {
            return Err(Complaint::Syntax);
        }
        at += 2;
    }
    Ok(Operation::LPos { key: blob(args.at(1)), element: blob(args.at(2)), rank, count, length }.into())
}

/// A count; one beyond 32 bits means as much as the largest, since no list is longer.
fn bounded(text: &[u8], error: &'static str) -> Result<u32, Complaint> {
    let count = crate::redis::args::natural(text, error)?;
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}
