//! Keys whatever they hold.

use super::Understood;
use crate::redis::args::{Time, blob, blobs, is, number, scan_options};
use crate::redis::catalog;
use crate::redis::complaint::Complaint;
use crate::redis::request::Args;
use crate::redis::shape::{Plan, Shape};
use crate::redis::spec::flag::{DANGEROUS, DENYOOM, FAST, LOADING, READ, STALE, WRITE};
use crate::redis::spec::{ALL, Action, Given, Group, Keys, ONE, Parse, Spec, TWO};
use isochrone_core::command::{ExpiryCondition, Kind, Operation, TtlUnit};

#[allow(clippy::too_many_arguments)]
const fn row(
    name: &'static str,
    arity: i32,
    flags: u16,
    keys: Keys,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
    parse: Parse,
) -> Spec {
    Spec::data(Group::Generic, name, arity, flags, keys, since, syntax, summary, parse)
}

pub(crate) static COMMANDS: &[Spec] = &[
    row(
        "copy",
        -3,
        WRITE | DENYOOM,
        TWO,
        "6.2.0",
        "source destination [REPLACE]",
        "Copies a value to another key",
        copy,
    )
    .differs("without DB: a copy stays in its keyspace"),
    row("del", -2, WRITE, ALL, "1.0.0", "key [key ...]", "Deletes keys", |args, _| {
        Ok(Operation::Del { keys: blobs(args, 1) }.into())
    }),
    row("exists", -2, READ | FAST, ALL, "1.0.0", "key [key ...]", "How many of the keys exist", |args, _| {
        Ok(Operation::Exists { keys: blobs(args, 1) }.into())
    }),
    row(
        "expire",
        -3,
        WRITE | FAST,
        ONE,
        "1.0.0",
        "key seconds [NX|XX|GT|LT]",
        "Sets when a key expires",
        |args, given| expire(args, given, Time::Seconds, "expire"),
    ),
    row(
        "expireat",
        -3,
        WRITE | FAST,
        ONE,
        "1.2.0",
        "key unix-time-seconds [NX|XX|GT|LT]",
        "Sets when a key expires",
        |args, given| expire(args, given, Time::AtSeconds, "expireat"),
    ),
    row("expiretime", 2, READ | FAST, ONE, "7.0.0", "key", "When a key expires, in seconds", |args, _| {
        ttl(args, TtlUnit::Seconds, true)
    }),
    row("keys", 2, READ | DANGEROUS, Keys::None, "1.0.0", "pattern", "All keys that match", |args, _| {
        Ok(Operation::Keys { pattern: blob(args.at(1)) }.into())
    }),
    Spec::here(
        Group::Generic,
        "object",
        -2,
        0,
        "2.2.3",
        "",
        "About the form of values",
        Action::Container(OBJECT),
    ),
    row("persist", 2, WRITE | FAST, ONE, "2.2.0", "key", "Takes the expiry away", |args, _| {
        Ok(Operation::Persist { key: blob(args.at(1)) }.into())
    }),
    row(
        "pexpire",
        -3,
        WRITE | FAST,
        ONE,
        "2.6.0",
        "key milliseconds [NX|XX|GT|LT]",
        "Sets when a key expires",
        |args, given| expire(args, given, Time::Millis, "pexpire"),
    ),
    row(
        "pexpireat",
        -3,
        WRITE | FAST,
        ONE,
        "2.6.0",
        "key unix-time-milliseconds [NX|XX|GT|LT]",
        "Sets when a key expires",
        |args, given| expire(args, given, Time::AtMillis, "pexpireat"),
    ),
    row(
        "pexpiretime",
        2,
        READ | FAST,
        ONE,
        "7.0.0",
        "key",
        "When a key expires, in milliseconds",
        |args, _| ttl(args, TtlUnit::Millis, true),
    ),
    row("pttl", 2, READ | FAST, ONE, "2.6.0", "key", "The milliseconds left to a key", |args, _| {
        ttl(args, TtlUnit::Millis, false)
    }),
    row("randomkey", 1, READ, Keys::None, "1.0.0", "", "Some key", |_, given| {
        Ok(Operation::RandomKey { seed: given.seed() }.into())
    }),
    row("rename", 3, WRITE, TWO, "1.0.0", "key newkey", "Gives a value another key", |args, _| {
        rename(args, false)
    }),
    row(
        "renamenx",
        3,
        WRITE | FAST,
        TWO,
        "1.0.0",
        "key newkey",
        "Gives a value another key if that does not exist",
        |args, _| rename(args, true),
    ),
    row(
        "scan",
        -2,
        READ,
        Keys::None,
        "2.8.0",
        "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        "A page of all keys",
        scan,
    ),
    row("touch", -2, READ | FAST, ALL, "3.2.1", "key [key ...]", "How many of the keys exist", |args, _| {
        Ok(Operation::Touch { keys: blobs(args, 1) }.into())
    })
    .differs("nothing remembers when a key was used"),
    row("ttl", 2, READ | FAST, ONE, "1.0.0", "key", "The seconds left to a key", |args, _| {
        ttl(args, TtlUnit::Seconds, false)
    }),
    row("type", 2, READ | FAST, ONE, "1.0.0", "key", "The type of a value", |args, _| {
        Ok(Operation::Type { key: blob(args.at(1)) }.into())
    }),
    row("unlink", -2, WRITE | FAST, ALL, "4.0.0", "key [key ...]", "Deletes keys", |args, _| {
        Ok(Operation::Del { keys: blobs(args, 1) }.into())
    }),
];

/// The key behind a subcommand.
const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

static OBJECT: &[Spec] = &[
    row("object|encoding", 3, READ, SECOND, "2.2.3", "key", "The form in which a value is kept", |args, _| {
        Ok(Operation::Encoding { key: blob(args.at(2)) }.into())
    })
    .differs("the name that Redis' default settings lead to for such contents; nothing here is kept that way"),
    row("object|freq", 3, READ, SECOND, "4.0.0", "key", "How often a key is used", |_, _| {
        Err(Complaint::text(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ))
    })
    .differs("answers with the error for it: nothing is evicted, so nothing is counted"),
    Spec::here(
        Group::Generic,
        "object|help",
        2,
        LOADING | STALE,
        "6.2.0",
        "",
        "This help",
        Action::Local(catalog::help),
    ),
    row("object|idletime", 3, READ, SECOND, "2.2.3", "key", "The seconds since a key was used", |args, _| {
        Ok(if_any(args, 0))
    })
    .differs("0 for any key: nothing remembers when a key was used"),
    row("object|refcount", 3, READ, SECOND, "2.2.3", "key", "How often a value is shared", |args, _| {
        Ok(if_any(args, 1))
    })
    .differs("1 for any key"),
];

fn if_any(args: Args<'_>, number: i64) -> Plan {
    Plan { operation: Operation::Exists { keys: [blob(args.at(2))].into() }, shape: Shape::IfAny(number) }
}

fn copy(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let mut replace = false;
    let mut at = 3;
    while at < args.len() {
        if is(args.at(at), "REPLACE") {
            replace = true;
        } else if is(args.at(at), "DB") && at + 1 < args.len() {
            return Err(Complaint::text("ERR a copy stays in its keyspace: DB is not supported"));
        } else {
            return Err(Complaint::Syntax);
        }
        at += 1;
    }
    Ok(Operation::Copy { key: blob(args.at(1)), target: blob(args.at(2)), replace }.into())
}

fn expire(args: Args<'_>, given: &mut Given<'_>, time: Time, command: &'static str) -> Understood {
    let (mut none, mut some, mut later, mut earlier) = (false, false, false, false);
    for option in args.from(3).iter() {
        match () {
            () if is(option, "NX") => none = true,
            () if is(option, "XX") => some = true,
            () if is(option, "GT") => later = true,
            () if is(option, "LT") => earlier = true,
            () => {
                let option = String::from_utf8_lossy(option).into_owned();
                return Err(Complaint::text(format!("ERR Unsupported option {option}")));
            }
        }
    }
    let condition = match (none, some, later, earlier) {
        (false, false, false, false) => ExpiryCondition::Always,
        (true, false, false, false) => ExpiryCondition::IfNone,
        (false, true, false, false) => ExpiryCondition::IfSome,
        // A key without a deadline lives for ever, so that nothing is later: XX adds nothing to GT.
        (false, _, true, false) => ExpiryCondition::IfLater,
        (false, false, false, true) => ExpiryCondition::IfEarlier,
        (true, ..) => {
            return Err(Complaint::text(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        (false, _, true, true) => {
            return Err(Complaint::text("ERR GT and LT options at the same time are not compatible"));
        }
        (false, true, false, true) => ExpiryCondition::IfSomeEarlier,
    };
    let at = time.deadline(number(args.at(2))?, given.stamp).ok_or(Complaint::Expire(command))?;
    Ok(Operation::ExpireAt { key: blob(args.at(1)), at, condition }.into())
}

fn ttl(args: Args<'_>, unit: TtlUnit, absolute: bool) -> Understood {
    Ok(Operation::Ttl { key: blob(args.at(1)), unit, absolute }.into())
}

fn rename(args: Args<'_>, only_if_absent: bool) -> Understood {
    Ok(Operation::Rename { key: blob(args.at(1)), target: blob(args.at(2)), only_if_absent }.into())
}

fn scan(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let options = scan_options(args, 1, true)?;
    let kind = match &options.kind {
        None => None,
        Some(name) => Some(kind(name)?),
    };
    let (cursor, count, pattern) = (options.cursor, options.count, options.pattern);
    Ok(Operation::Scan { cursor, count, pattern, kind }.into())
}

fn kind(name: &[u8]) -> Result<Kind, Complaint> {
    [Kind::String, Kind::List, Kind::Set, Kind::SortedSet, Kind::Hash]
        .into_iter()
        .find(|kind| kind.name().as_bytes() == name)
        .ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Complaint::text(format!("ERR unknown type name '{name}'; use string, list, set, zset or hash"))
        })
}
