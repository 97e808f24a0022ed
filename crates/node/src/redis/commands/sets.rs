//! Sets.

use super::Understood;
use super::hashes::{checked_count, random_count};
use super::lists::not_negative;
use crate::redis::args::{blob, blobs, counted_keys, is, natural, scan_options};
use crate::redis::complaint::Complaint;
use crate::redis::request::Args;
use crate::redis::spec::flag::{DENYOOM, FAST, MOVABLE_KEYS, READ, WRITE};
use crate::redis::spec::{ALL, Given, Group, Keys, Spec, TWO, about};
use isochrone_core::command::{Combine, Operation};

const KEYS: &str = "key [key ...]";
const STORE: &str = "destination key [key ...]";

pub(crate) static COMMANDS: &[Spec] = &[
    Group::Set.data(
        "sadd",
        -3,
        WRITE | DENYOOM | FAST,
        about("1.0.0", "key member [member ...]", "Adds members"),
        |args, _| Ok(Operation::SAdd { key: blob(args.at(1)), members: blobs(args, 2) }.into()),
    ),
    Group::Set.data("scard", 2, READ | FAST, about("1.0.0", "key", "How many members"), |args, _| {
        Ok(Operation::SCard { key: blob(args.at(1)) }.into())
    }),
    Group::Set
        .data("sdiff", -2, READ, about("1.0.0", KEYS, "Members of the first set alone"), |args, _| {
            combine(args, Combine::Difference)
        })
        .with_keys(ALL),
    Group::Set
        .data("sdiffstore", -3, WRITE | DENYOOM, about("1.0.0", STORE, "Stores a difference"), |args, _| {
            store(args, Combine::Difference)
        })
        .with_keys(ALL),
    Group::Set
        .data("sinter", -2, READ, about("1.0.0", KEYS, "Members of all sets"), |args, _| {
            combine(args, Combine::Intersection)
        })
        .with_keys(ALL),
    Group::Set
        .data(
            "sintercard",
            -3,
            READ | MOVABLE_KEYS,
            about("7.0.0", "numkeys key [key ...] [LIMIT limit]", "How many members all sets have"),
            |args, _| {
                let (keys, limit) = inter_card(args, TOO_FEW, Complaint::text(TOO_MANY))?;
                Ok(Operation::SInterCard { keys: keys.into(), limit }.into())
            },
        )
        .with_keys(Keys::Counted { at: 1, target: false }),
    Group::Set
        .data(
            "sinterstore",
            -3,
            WRITE | DENYOOM,
            about("1.0.0", STORE, "Stores an intersection"),
            |args, _| store(args, Combine::Intersection),
        )
        .with_keys(ALL),
    Group::Set.data(
        "sismember",
        3,
        READ | FAST,
        about("1.0.0", "key member", "Whether it is a member"),
        |args, _| Ok(Operation::SIsMember { key: blob(args.at(1)), member: blob(args.at(2)) }.into()),
    ),
    Group::Set.data("smembers", 2, READ, about("1.0.0", "key", "All members"), |args, _| {
        Ok(Operation::SMembers { key: blob(args.at(1)) }.into())
    }),
    Group::Set.data(
        "smismember",
        -3,
        READ | FAST,
        about("6.2.0", "key member [member ...]", "Whether they are members"),
        |args, _| Ok(Operation::SMIsMember { key: blob(args.at(1)), members: blobs(args, 2) }.into()),
    ),
    Group::Set
        .data(
            "smove",
            4,
            WRITE | FAST,
            about("1.0.0", "source destination member", "Moves a member to another set"),
            |args, _| {
                let (source, target) = (blob(args.at(1)), blob(args.at(2)));
                Ok(Operation::SMove { source, target, member: blob(args.at(3)) }.into())
            },
        )
        .with_keys(TWO),
    Group::Set.data(
        "spop",
        -2,
        WRITE | FAST,
        about("1.0.0", "key [count]", "Removes some members, at random"),
        |args, given| {
            let count = match args.len() {
                2 => None,
                3 => Some(not_negative(args.at(2))?),
                _ => return Err(Complaint::Syntax),
            };
            Ok(Operation::SPop { key: blob(args.at(1)), count, seed: given.seed() }.into())
        },
    ),
    Group::Set.data(
        "srandmember",
        -2,
        READ,
        about("1.0.0", "key [count]", "Some members, at random"),
        random_member,
    ),
    Group::Set.data(
        "srem",
        -3,
        WRITE | FAST,
        about("1.0.0", "key member [member ...]", "Removes members"),
        |args, _| Ok(Operation::SRem { key: blob(args.at(1)), members: blobs(args, 2) }.into()),
    ),
    Group::Set.data(
        "sscan",
        -3,
        READ,
        about("2.8.0", "key cursor [MATCH pattern] [COUNT count]", "A page of members"),
        |args, _| {
            let options = scan_options(args, 2, false)?;
            let (cursor, count, pattern) = (options.cursor, options.count, options.pattern);
            Ok(Operation::SScan { key: blob(args.at(1)), cursor, count, pattern }.into())
        },
    ),
    Group::Set
        .data("sunion", -2, READ, about("1.0.0", KEYS, "Members of any set"), |args, _| {
            combine(args, Combine::Union)
        })
        .with_keys(ALL),
    Group::Set
        .data("sunionstore", -3, WRITE | DENYOOM, about("1.0.0", STORE, "Stores a union"), |args, _| {
            store(args, Combine::Union)
        })
        .with_keys(ALL),
];

fn combine(args: Args<'_>, combine: Combine) -> Understood {
    Ok(Operation::SCombine { combine, keys: blobs(args, 1) }.into())
}

fn store(args: Args<'_>, combine: Combine) -> Understood {
    Ok(Operation::SCombineStore { combine, target: blob(args.at(1)), keys: blobs(args, 2) }.into())
}

/// What SINTERCARD says of a wrong number of keys.
const TOO_FEW: &str = "ERR numkeys should be greater than 0";
/// See [`TOO_FEW`].
const TOO_MANY: &str = "ERR Number of keys can't be greater than number of args";

/// `numkeys key ... [LIMIT limit]` of SINTERCARD and ZINTERCARD.
pub(crate) fn inter_card(
    args: Args<'_>,
    too_few: &'static str,
    too_many: Complaint,
) -> Result<(Vec<isochrone_core::Blob>, u64), Complaint> {
    let (keys, behind) = match counted_keys(args, 1, too_few) {
        Err(Complaint::Syntax) => return Err(too_many),
        other => other?,
    };
    let mut limit = 0;
    for at in (behind..args.len()).step_by(2) {
        if !is(args.at(at), "LIMIT") || at + 1 == args.len() {
            return Err(Complaint::Syntax);
        }
        limit = natural(args.at(at + 1), "ERR LIMIT can't be negative")?;
    }
    Ok((keys, limit))
}

fn random_member(args: Args<'_>, given: &mut Given<'_>) -> Understood {
    let count = match args.len() {
        2 => None,
        3 => Some(random_count(args.at(2))?),
        _ => return Err(Complaint::Syntax),
    };
    let count = checked_count(count, false)?;
    Ok(Operation::SRandMember { key: blob(args.at(1)), count, seed: given.seed() }.into())
}
