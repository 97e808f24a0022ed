//! Hashes.

use super::Understood;
use crate::redis::args::{blob, blobs, exact, is, number, pairs, scan_options};
use crate::redis::complaint::Complaint;
use crate::redis::request::Args;
use crate::redis::shape::{Plan, Shape};
use crate::redis::spec::flag::{DENYOOM, FAST, READ, WRITE};
use crate::redis::spec::{Given, Group, Spec, about};
use isochrone_core::command::Operation;

pub(crate) static COMMANDS: &[Spec] = &[
    Group::Hash.data(
        "hdel",
        -3,
        WRITE | FAST,
        about("2.0.0", "key field [field ...]", "Deletes fields"),
        |args, _| Ok(Operation::HDel { key: blob(args.at(1)), fields: blobs(args, 2) }.into()),
    ),
    Group::Hash.data(
        "hexists",
        3,
        READ | FAST,
        about("2.0.0", "key field", "Whether a field exists"),
        |args, _| Ok(Operation::HExists { key: blob(args.at(1)), field: blob(args.at(2)) }.into()),
    ),
    Group::Hash.data(
        "hget",
        3,
        READ | FAST,
        about("2.0.0", "key field", "The value of a field"),
        |args, _| Ok(Operation::HGet { key: blob(args.at(1)), field: blob(args.at(2)) }.into()),
    ),
    Group::Hash.data("hgetall", 2, READ, about("2.0.0", "key", "All fields and values"), |args, _| {
        Ok(Operation::HGetAll { key: blob(args.at(1)) }.into())
    }),
    Group::Hash.data(
        "hincrby",
        4,
        WRITE | DENYOOM | FAST,
        about("2.0.0", "key field increment", "Adds to the integer in a field"),
        |args, _| {
            let by = number(args.at(3))?;
            Ok(Operation::HIncrBy { key: blob(args.at(1)), field: blob(args.at(2)), by }.into())
        },
    ),
    Group::Hash
        .data(
            "hincrbyfloat",
            4,
            WRITE | DENYOOM | FAST,
            about("2.6.0", "key field increment", "Adds to the number in a field"),
            |args, _| {
                let by = exact(args.at(3)).ok_or(Complaint::NotFloat)?;
                if by.get().is_infinite() {
                    return Err(Complaint::text("ERR value is NaN or Infinity"));
                }
                Ok(Operation::HIncrByFloat { key: blob(args.at(1)), field: blob(args.at(2)), by }.into())
            },
        )
        .differs("adds decimals, not in 80-bit floating point (\"Sums\" above)"),
    Group::Hash.data("hkeys", 2, READ, about("2.0.0", "key", "All fields"), |args, _| {
        Ok(Operation::HKeys { key: blob(args.at(1)) }.into())
    }),
    Group::Hash.data("hlen", 2, READ | FAST, about("2.0.0", "key", "How many fields"), |args, _| {
        Ok(Operation::HLen { key: blob(args.at(1)) }.into())
    }),
    Group::Hash.data(
        "hmget",
        -3,
        READ | FAST,
        about("2.0.0", "key field [field ...]", "The values of fields"),
        |args, _| Ok(Operation::HMGet { key: blob(args.at(1)), fields: blobs(args, 2) }.into()),
    ),
    Group::Hash.data(
        "hmset",
        -4,
        WRITE | DENYOOM | FAST,
        about("2.0.0", "key field value [field value ...]", "Sets fields; HSET of old"),
        |args, _| {
            let operation = set(args, "hmset")?;
            Ok(Plan { operation, shape: Shape::Ok })
        },
    ),
    Group::Hash.data(
        "hrandfield",
        -2,
        READ,
        about("6.2.0", "key [count [WITHVALUES]]", "Some fields, at random"),
        rand_field,
    ),
    Group::Hash.data(
        "hscan",
        -3,
        READ,
        about("2.8.0", "key cursor [MATCH pattern] [COUNT count]", "A page of fields and values"),
        |args, _| {
            let options = scan_options(args, 2, false)?;
            let (cursor, count, pattern) = (options.cursor, options.count, options.pattern);
            Ok(Operation::HScan { key: blob(args.at(1)), cursor, count, pattern }.into())
        },
    ),
    Group::Hash.data(
        "hset",
        -4,
        WRITE | DENYOOM | FAST,
        about("2.0.0", "key field value [field value ...]", "Sets fields"),
        |args, _| set(args, "hset").map(Plan::from),
    ),
    Group::Hash.data(
        "hsetnx",
        4,
        WRITE | DENYOOM | FAST,
        about("2.0.0", "key field value", "Sets a field if it does not exist"),
        |args, _| {
            let (key, field, value) = (blob(args.at(1)), blob(args.at(2)), blob(args.at(3)));
            Ok(Operation::HSetNx { key, field, value }.into())
        },
    ),
    Group::Hash.data(
        "hstrlen",
        3,
        READ | FAST,
        about("3.2.0", "key field", "The length of a value"),
        |args, _| Ok(Operation::HStrLen { key: blob(args.at(1)), field: blob(args.at(2)) }.into()),
    ),
    Group::Hash.data("hvals", 2, READ, about("2.0.0", "key", "All values"), |args, _| {
        Ok(Operation::HVals { key: blob(args.at(1)) }.into())
    }),
];

fn set(args: Args<'_>, command: &'static str) -> Result<Operation, Complaint> {
    if !args.len().is_multiple_of(2) {
        return Err(Complaint::Arity(command));
    }
    Ok(Operation::HSet { key: blob(args.at(1)), pairs: pairs(args, 2) })
}

fn rand_field(args: Args<'_>, given: &mut Given<'_>) -> Understood {
    let count = if args.len() > 2 { Some(random_count(args.at(2))?) } else { None };
    let with_values = match args.len() {
        2 | 3 => false,
        4 if is(args.at(3), "WITHVALUES") => true,
        _ => return Err(Complaint::Syntax),
    };
    let count = checked_count(count, with_values)?;
    Ok(Operation::HRandField { key: blob(args.at(1)), count, seed: given.seed(), with_values }.into())
}

/// How many to choose at random.
pub(crate) fn random_count(text: &[u8]) -> Result<i64, Complaint> {
    let count = number(text)?;
    if count == i64::MIN { Err(not_between(-i64::MAX)) } else { Ok(count) }
}

/// So many, each alone or in a pair; with repetition where negative, then no more than a reply may hold.
pub(crate) fn checked_count(count: Option<i64>, pairs: bool) -> Result<Option<i64>, Complaint> {
    const REPEATED_MAX: i64 = 1 << 20;
    match count {
        Some(count) if pairs && !(-(i64::MAX / 2)..=i64::MAX / 2).contains(&count) => {
            Err(Complaint::text("ERR value is out of range"))
        }
        Some(count) if count < -REPEATED_MAX => Err(not_between(-REPEATED_MAX)),
        count => Ok(count),
    }
}

fn not_between(least: i64) -> Complaint {
    let most = i64::MAX;
    Complaint::text(format!("ERR value is out of range, value must between {least} and {most}"))
}
