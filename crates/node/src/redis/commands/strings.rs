//! Strings and counters.

use super::Understood;
use crate::redis::args::{Time, blob, blobs, exact, expiry, is, number, pairs};
use crate::redis::complaint::Complaint;
use crate::redis::request::Args;
use crate::redis::shape::{Plan, Shape};
use crate::redis::spec::flag::{DENYOOM, FAST, READ, WRITE};
use crate::redis::spec::{ALL, Given, Group, Keys, Spec, about};
use isochrone_core::command::{Condition, Expiry, Operation};

/// Every second string is a key.
const PAIRS: Keys = Keys::Range { first: 1, last: -1, step: 2 };

pub(crate) static COMMANDS: &[Spec] = &[
    Group::String.data(
        "append",
        3,
        WRITE | DENYOOM | FAST,
        about("2.0.0", "key value", "Appends to a string"),
        |args, given| {
            let (key, value) = (blob(args.at(1)), blob(args.at(2)));
            Ok(Operation::AppendWithin { key, value, most: given.bulk_max as u64 }.into())
        },
    ),
    Group::String.data(
        "decr",
        2,
        WRITE | DENYOOM | FAST,
        about("1.0.0", "key", "Subtracts one from an integer"),
        |args, _| Ok(Operation::IncrBy { key: blob(args.at(1)), by: -1 }.into()),
    ),
    Group::String.data(
        "decrby",
        3,
        WRITE | DENYOOM | FAST,
        about("1.0.0", "key decrement", "Subtracts from an integer"),
        |args, _| {
            let by = number(args.at(2))?.checked_neg();
            let by = by.ok_or(Complaint::text("ERR decrement would overflow"))?;
            Ok(Operation::IncrBy { key: blob(args.at(1)), by }.into())
        },
    ),
    Group::String.data("get", 2, READ | FAST, about("1.0.0", "key", "The string"), |args, _| {
        Ok(Operation::Get { key: blob(args.at(1)) }.into())
    }),
    Group::String.data(
        "getdel",
        2,
        WRITE | FAST,
        about("6.2.0", "key", "The string, which is deleted"),
        |args, _| Ok(Operation::GetDel { key: blob(args.at(1)) }.into()),
    ),
    Group::String.data(
        "getex",
        -2,
        WRITE | FAST,
        about(
            "6.2.0",
            "key [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|PERSIST]",
            "The string, whose expiry is changed",
        ),
        get_ex,
    ),
    Group::String.data("getrange", 4, READ, about("2.4.0", "key start end", "A part of a string"), get_range),
    Group::String.data(
        "getset",
        3,
        WRITE | DENYOOM | FAST,
        about("1.0.0", "key value", "The string, which is replaced"),
        |args, _| {
            let (condition, expiry) = (Condition::Always, Expiry::Clear);
            let (key, value) = (blob(args.at(1)), blob(args.at(2)));
            Ok(Operation::Set { key, value, condition, expiry, get: true }.into())
        },
    ),
    Group::String.data(
        "incr",
        2,
        WRITE | DENYOOM | FAST,
        about("1.0.0", "key", "Adds one to an integer"),
        |args, _| Ok(Operation::IncrBy { key: blob(args.at(1)), by: 1 }.into()),
    ),
    Group::String.data(
        "incrby",
        3,
        WRITE | DENYOOM | FAST,
        about("1.0.0", "key increment", "Adds to an integer"),
        |args, _| Ok(Operation::IncrBy { key: blob(args.at(1)), by: number(args.at(2))? }.into()),
    ),
    Group::String
        .data(
            "incrbyfloat",
            3,
            WRITE | DENYOOM | FAST,
            about("2.6.0", "key increment", "Adds to a number"),
            |args, _| {
                Ok(Operation::IncrByFloat {
                    key: blob(args.at(1)),
                    by: exact(args.at(2)).ok_or(Complaint::NotFloat)?,
                }
                .into())
            },
        )
        .differs("adds decimals, not in 80-bit floating point (\"Sums\" above)"),
    Group::String
        .data("mget", -2, READ | FAST, about("1.0.0", "key [key ...]", "Several strings"), |args, _| {
            Ok(Operation::MGet { keys: blobs(args, 1) }.into())
        })
        .with_keys(ALL),
    Group::String
        .data(
            "mset",
            -3,
            WRITE | DENYOOM,
            about("1.0.1", "key value [key value ...]", "Sets several strings"),
            |args, _| several(args, "mset", false),
        )
        .with_keys(PAIRS),
    Group::String
        .data(
            "msetnx",
            -3,
            WRITE | DENYOOM,
            about("1.0.1", "key value [key value ...]", "Sets several strings if none of the keys exists"),
            |args, _| several(args, "msetnx", true),
        )
        .with_keys(PAIRS),
    Group::String.data(
        "psetex",
        4,
        WRITE | DENYOOM,
        about("2.6.0", "key milliseconds value", "Sets a string that expires"),
        |args, given| set_ex(args, given, Time::Millis, "psetex"),
    ),
    Group::String.data(
        "set",
        -3,
        WRITE | DENYOOM,
        about(
            "1.0.0",
            "key value [NX|XX] [GET] [EX seconds|PX milliseconds|EXAT unix-time-seconds|\
         PXAT unix-time-milliseconds|KEEPTTL]",
            "Sets a string",
        ),
        set,
    ),
    Group::String.data(
        "setex",
        4,
        WRITE | DENYOOM,
        about("2.0.0", "key seconds value", "Sets a string that expires"),
        |args, given| set_ex(args, given, Time::Seconds, "setex"),
    ),
    Group::String.data(
        "setnx",
        3,
        WRITE | DENYOOM | FAST,
        about("1.0.0", "key value", "Sets a string if the key does not exist"),
        |args, _| {
            let (condition, expiry) = (Condition::IfAbsent, Expiry::Clear);
            let (key, value) = (blob(args.at(1)), blob(args.at(2)));
            let operation = Operation::Set { key, value, condition, expiry, get: false };
            Ok(Plan { operation, shape: Shape::Yes })
        },
    ),
    Group::String.data(
        "setrange",
        4,
        WRITE | DENYOOM,
        about("2.2.0", "key offset value", "Overwrites a part of a string"),
        set_range,
    ),
    Group::String.data(
        "strlen",
        2,
        READ | FAST,
        about("2.2.0", "key", "The length of a string"),
        |args, _| Ok(Operation::StrLen { key: blob(args.at(1)) }.into()),
    ),
    Group::String.data(
        "substr",
        4,
        READ,
        about("1.0.0", "key start end", "A part of a string; GETRANGE of old"),
        get_range,
    ),
];

fn set(args: Args<'_>, given: &mut Given<'_>) -> Understood {
    let mut condition = Condition::Always;
    let mut expires = Expiry::Clear;
    let mut time = None;
    let mut get = false;
    let mut at = 3;
    while at < args.len() {
        let option = args.at(at);
        if is(option, "NX") && condition != Condition::IfPresent {
            condition = Condition::IfAbsent;
        } else if is(option, "XX") && condition != Condition::IfAbsent {
            condition = Condition::IfPresent;
        } else if is(option, "GET") {
            get = true;
        } else if is(option, "KEEPTTL") && time.is_none() {
            expires = Expiry::Keep;
        } else if expires == Expiry::Keep || !timed(args, &mut at, &mut time) {
            return Err(Complaint::Syntax);
        }
        at += 1;
    }
    if let Some((unit, at)) = time {
        expires = expiry(unit, args.at(at), given, "set")?;
    }
    let (key, value) = (blob(args.at(1)), blob(args.at(2)));
    Ok(Operation::Set { key, value, condition, expiry: expires, get }.into())
}

/// Takes up `EX seconds` or its kin at this place, unless a time was given in another way. Of several the last counts, as in
/// Redis.
fn timed(args: Args<'_>, at: &mut usize, time: &mut Option<(Time, usize)>) -> bool {
    let Some(unit) = Time::option(args.at(*at)) else { return false };
    if time.is_some_and(|(other, _)| other != unit) {
        return false;
    }
    *at += 1;
    *time = Some((unit, *at));
    *at < args.len()
}

fn set_ex(args: Args<'_>, given: &mut Given<'_>, time: Time, command: &'static str) -> Understood {
    let expiry = expiry(time, args.at(2), given, command)?;
    let (key, value) = (blob(args.at(1)), blob(args.at(3)));
    Ok(Operation::Set { key, value, condition: Condition::Always, expiry, get: false }.into())
}

fn get_ex(args: Args<'_>, given: &mut Given<'_>) -> Understood {
    let key = blob(args.at(1));
    let (mut at, mut time, mut persist) = (2, None, false);
    while at < args.len() {
        if is(args.at(at), "PERSIST") && time.is_none() {
            persist = true;
        } else if persist || !timed(args, &mut at, &mut time) {
            return Err(Complaint::Syntax);
        }
        at += 1;
    }
    let expiry = match time {
        Some((unit, at)) => expiry(unit, args.at(at), given, "getex")?,
        None if persist => Expiry::Clear,
        // Without options it is a GET.
        None => return Ok(Operation::Get { key }.into()),
    };
    Ok(Operation::GetEx { key, expiry }.into())
}

fn get_range(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let (start, end) = (number(args.at(2))?, number(args.at(3))?);
    Ok(Operation::GetRange { key: blob(args.at(1)), start, end }.into())
}

fn set_range(args: Args<'_>, given: &mut Given<'_>) -> Understood {
    let offset = u64::try_from(number(args.at(2))?);
    let offset = offset.map_err(|_| Complaint::text("ERR offset is out of range"))?;
    let value = args.at(3);
    // Otherwise a few bytes could make every replica allocate as much as it has.
    if offset.saturating_add(value.len() as u64) > given.bulk_max as u64 && !value.is_empty() {
        return Err(Complaint::text("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    Ok(Operation::SetRange { key: blob(args.at(1)), offset, value: blob(value) }.into())
}

fn several(args: Args<'_>, command: &'static str, only_if_absent: bool) -> Understood {
    if args.len().is_multiple_of(2) {
        return Err(Complaint::Arity(command));
    }
    Ok(Operation::MSet { pairs: pairs(args, 1), only_if_absent }.into())
}
