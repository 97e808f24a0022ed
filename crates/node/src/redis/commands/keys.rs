//! Keys whatever they hold.

use super::Understood;
use crate::redis::args::{Time, blob, blobs, is, number, pattern, scan_options};
use crate::redis::catalog;
use crate::redis::complaint::Complaint;
use crate::redis::payload::{self, Allowance};
use crate::redis::request::Args;
use crate::redis::shape::{Plan, Shape};
use crate::redis::spec::flag::{DANGEROUS, DENYOOM, FAST, LOADING, READ, STALE, WRITE};
use crate::redis::spec::{ALL, Action, Given, Group, Keys, Spec, TWO, about};
use isochrone_core::command::{ExpiryCondition, Kind, Operation, Restore, TtlUnit};
use isochrone_core::{Blob, Stamp};
use std::sync::Arc;

pub(crate) static COMMANDS: &[Spec] = &[
    Group::Generic
        .data(
            "copy",
            -3,
            WRITE | DENYOOM,
            about("6.2.0", "source destination [DB destination-db] [REPLACE]", "Copies a value to another key"),
            copy,
        )
        .with_keys(TWO)
        .differs("a copy stays in its keyspace: DB may only be the one that is selected"),
    Group::Generic
        .data("del", -2, WRITE, about("1.0.0", "key [key ...]", "Deletes keys"), |args, _| {
            Ok(Operation::Del { keys: blobs(args, 1) }.into())
        })
        .with_keys(ALL),
    Group::Generic
        .data(
            "dump",
            2,
            READ,
            about("2.6.0", "key", "A value as bytes that RESTORE takes"),
            |args, _| Ok(Operation::Dump { key: blob(args.at(1)) }.into()),
        )
        .differs("in the plainest form of each type, which Redis reads since 5.0"),
    Group::Generic
        .data(
            "exists",
            -2,
            READ | FAST,
            about("1.0.0", "key [key ...]", "How many of the keys exist"),
            |args, _| Ok(Operation::Exists { keys: blobs(args, 1) }.into()),
        )
        .with_keys(ALL),
    Group::Generic.data(
        "expire",
        -3,
        WRITE | FAST,
        about("1.0.0", "key seconds [NX|XX|GT|LT]", "Sets when a key expires"),
        |args, given| expire(args, given, Time::Seconds, "expire"),
    ),
    Group::Generic.data(
        "expireat",
        -3,
        WRITE | FAST,
        about("1.2.0", "key unix-time-seconds [NX|XX|GT|LT]", "Sets when a key expires"),
        |args, given| expire(args, given, Time::AtSeconds, "expireat"),
    ),
    Group::Generic.data(
        "expiretime",
        2,
        READ | FAST,
        about("7.0.0", "key", "When a key expires, in seconds"),
        |args, _| ttl(args, TtlUnit::Seconds, true),
    ),
    Group::Generic
        .data("keys", 2, READ | DANGEROUS, about("1.0.0", "pattern", "All keys that match"), |args, _| {
            Ok(Operation::Keys { pattern: blob(pattern(args.at(1))?) }.into())
        })
        .with_keys(Keys::None),
    Group::Generic.here(
        "object",
        -2,
        0,
        about("2.2.3", "", "About the form of values"),
        Action::Container(OBJECT),
    ),
    Group::Generic.data(
        "persist",
        2,
        WRITE | FAST,
        about("2.2.0", "key", "Takes the expiry away"),
        |args, _| Ok(Operation::Persist { key: blob(args.at(1)) }.into()),
    ),
    Group::Generic.data(
        "pexpire",
        -3,
        WRITE | FAST,
        about("2.6.0", "key milliseconds [NX|XX|GT|LT]", "Sets when a key expires"),
        |args, given| expire(args, given, Time::Millis, "pexpire"),
    ),
    Group::Generic.data(
        "pexpireat",
        -3,
        WRITE | FAST,
        about("2.6.0", "key unix-time-milliseconds [NX|XX|GT|LT]", "Sets when a key expires"),
        |args, given| expire(args, given, Time::AtMillis, "pexpireat"),
    ),
    Group::Generic.data(
        "pexpiretime",
        2,
        READ | FAST,
        about("7.0.0", "key", "When a key expires, in milliseconds"),
        |args, _| ttl(args, TtlUnit::Millis, true),
    ),
    Group::Generic.data(
        "pttl",
        2,
        READ | FAST,
        about("2.6.0", "key", "The milliseconds left to a key"),
        |args, _| ttl(args, TtlUnit::Millis, false),
    ),
    Group::Generic
        .data("randomkey", 1, READ, about("1.0.0", "", "Some key"), |_, given| {
            Ok(Operation::RandomKey { seed: given.seed() }.into())
        })
        .with_keys(Keys::None),
    Group::Generic
        .data("rename", 3, WRITE, about("1.0.0", "key newkey", "Gives a value another key"), |args, _| {
            rename(args, false)
        })
        .with_keys(TWO),
    Group::Generic
        .data(
            "renamenx",
            3,
            WRITE | FAST,
            about("1.0.0", "key newkey", "Gives a value another key if that does not exist"),
            |args, _| rename(args, true),
        )
        .with_keys(TWO),
    Group::Generic
        .data(
            "restore",
            -4,
            WRITE | DENYOOM | DANGEROUS,
            about(
                "2.6.0",
                "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
                "Gives a key the value that DUMP has told",
            ),
            restore,
        )
        .differs(
            "takes what Redis 2.6 to 7.2 have dumped, and later ones in forms of 7.2; no values of modules; IDLETIME and FREQ are without effect",
        ),
    Group::Generic
        .data(
            "scan",
            -2,
            READ,
            about("2.8.0", "cursor [MATCH pattern] [COUNT count] [TYPE type]", "A page of all keys"),
            scan,
        )
        .with_keys(Keys::None),
    Group::Generic
        .data(
            "touch",
            -2,
            READ | FAST,
            about("3.2.1", "key [key ...]", "How many of the keys exist"),
            |args, _| Ok(Operation::Touch { keys: blobs(args, 1) }.into()),
        )
        .with_keys(ALL)
        .differs("nothing remembers when a key was used"),
    Group::Generic.data(
        "ttl",
        2,
        READ | FAST,
        about("1.0.0", "key", "The seconds left to a key"),
        |args, _| ttl(args, TtlUnit::Seconds, false),
    ),
    Group::Generic.data("type", 2, READ | FAST, about("1.0.0", "key", "The type of a value"), |args, _| {
        Ok(Operation::Type { key: blob(args.at(1)) }.into())
    }),
    Group::Generic
        .data("unlink", -2, WRITE | FAST, about("4.0.0", "key [key ...]", "Deletes keys"), |args, _| {
            Ok(Operation::Del { keys: blobs(args, 1) }.into())
        })
        .with_keys(ALL),
];

/// The key behind a subcommand.
const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

static OBJECT: &[Spec] = &[
    Group::Generic
        .data(
            "object|encoding",
            3,
            READ,
            about("2.2.3", "key", "The form in which a value is kept"),
            |args, _| Ok(Operation::Encoding { key: blob(args.at(2)) }.into()),
        )
        .with_keys(SECOND)
        .differs(
            "the name that the default settings of Redis 7.0 lead to for such contents; nothing here is kept that way",
        ),
    Group::Generic
        .data("object|freq", 3, READ, about("4.0.0", "key", "How often a key is used"), |args, _| {
            Ok(if_any(args, Err(NOT_COUNTED)))
        })
        .with_keys(SECOND)
        .differs("answers with the error for it: nothing is evicted, so nothing is counted"),
    Group::Generic.here(
        "object|help",
        2,
        LOADING | STALE,
        about("6.2.0", "", "This help"),
        Action::Local(catalog::help),
    ),
    Group::Generic
        .data(
            "object|idletime",
            3,
            READ,
            about("2.2.3", "key", "The seconds since a key was used"),
            |args, _| Ok(if_any(args, Ok(0))),
        )
        .with_keys(SECOND)
        .differs("0 for any key: nothing remembers when a key was used"),
    Group::Generic
        .data("object|refcount", 3, READ, about("2.2.3", "key", "How often a value is shared"), |args, _| {
            Ok(if_any(args, Ok(1)))
        })
        .with_keys(SECOND)
        .differs("1 for any key"),
];

/// What Redis says where its policy of eviction does not count uses.
const NOT_COUNTED: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
                           switching between policies at runtime LRU and LFU data will take some time to adjust.";

fn if_any(args: Args<'_>, answer: Result<i64, &'static str>) -> Plan {
    Plan { operation: Operation::Exists { keys: [blob(args.at(2))].into() }, shape: Shape::IfAny(answer) }
}

fn copy(args: Args<'_>, given: &mut Given<'_>) -> Understood {
    let (mut replace, mut elsewhere) = (false, false);
    let mut at = 3;
    while at < args.len() {
        if is(args.at(at), "REPLACE") {
            replace = true;
        } else if is(args.at(at), "DB") && at + 1 < args.len() {
            elsewhere = given.selected != Some(number(args.at(at + 1))?);
            at += 1;
        } else {
            return Err(Complaint::Syntax);
        }
        at += 1;
    }
    if elsewhere {
        return Err(Complaint::text("ERR a copy stays in its keyspace: DB must be the one that is selected"));
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

fn restore(args: Args<'_>, given: &mut Given<'_>) -> Understood {
    let (mut replace, mut absolute) = (false, false);
    // One or the other is given, as in Redis, and neither is kept.
    let (mut idle, mut used) = (false, false);
    let mut at = 4;
    while at < args.len() {
        let (option, more) = (args.at(at), at + 1 < args.len());
        if is(option, "REPLACE") {
            replace = true;
        } else if is(option, "ABSTTL") {
            absolute = true;
        } else if is(option, "IDLETIME") && more && !used {
            at += 1;
            idle = true;
            if number(args.at(at))? < 0 {
                return Err(Complaint::text("ERR Invalid IDLETIME value, must be >= 0"));
            }
        } else if is(option, "FREQ") && more && !idle {
            at += 1;
            used = true;
            if !(0..=255).contains(&number(args.at(at))?) {
                return Err(Complaint::text("ERR Invalid FREQ value, must be >= 0 and <= 255"));
            }
        } else {
            return Err(Complaint::Syntax);
        }
        at += 1;
    }
    let ttl = number(args.at(2))?;
    let deadline = match ttl {
        0 => None,
        1.. => {
            let time = if absolute { Time::AtMillis } else { Time::Millis };
            // Beyond the end of 64 bits lies the last deadline as well.
            Some(time.deadline(ttl, given.stamp).unwrap_or(Stamp::from_nanos(u64::MAX - 1)))
        }
        _ => return Err(Complaint::text("ERR Invalid TTL value, must be >= 0")),
    };
    let allowance = Allowance { bytes: given.bulk_max, elements: given.elements_max };
    let content =
        payload::restore(args.at(3), allowance).map_err(|fault| Complaint::text(fault.to_string()))?;
    let restore = Restore { content, deadline, replace };
    Ok(Operation::Restore { key: blob(args.at(1)), restore: Arc::new(restore) }.into())
}

fn scan(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let options = scan_options(args, 1, true)?;
    let kind = options.kind.as_ref().map(|name| kind(name));
    let (cursor, count) = (options.cursor, options.count);
    // No key is of a type that there is not: pages as ever, and nothing in them.
    let pattern = if kind == Some(None) { Some(Blob::new(NO_KEY)) } else { options.pattern };
    let kind = kind.flatten();
    Ok(Operation::Scan { cursor, count, pattern, kind }.into())
}

/// A pattern that fits nothing: one byte, which is none.
const NO_KEY: &[u8] = b"[^\0-\xff]";

fn kind(name: &[u8]) -> Option<Kind> {
    [Kind::String, Kind::List, Kind::Set, Kind::SortedSet, Kind::Hash, Kind::Stream]
        .into_iter()
        .find(|kind| kind.name().as_bytes().eq_ignore_ascii_case(name))
}
