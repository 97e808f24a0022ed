//! SORT: the elements of lists, sets and sorted sets, sorted.

use super::Understood;
use crate::redis::args::{blob, is, number};
use crate::redis::complaint::Complaint;
use crate::redis::request::Args;
use crate::redis::spec::flag::{DANGEROUS, DENYOOM, MOVABLE_KEYS, READ, WRITE};
use crate::redis::spec::{Group, Keys, Spec, about};
use isochrone_core::Blob;
use isochrone_core::command::{Got, Limit, Operation, Sort, SortBy};
use std::sync::Arc;

/// The most that may be given of each element, since an answer is as long as a collection times that.
const GETS_MAX: usize = 16;

const DIFFERS: &str = "patterns with `*` in `BY` and `GET` are refused as by Redis Cluster; at most 16 `GET`; `ALPHA` compares bytes; \
                       a set `BY nosort` comes in another order";

pub(crate) static COMMANDS: &[Spec] = &[
    Group::Generic
        .data(
            "sort",
            -2,
            WRITE | DENYOOM | MOVABLE_KEYS | DANGEROUS,
            about(
                "1.0.0",
                "key [BY nosort] [LIMIT offset count] [GET #] [ASC|DESC] [ALPHA] [STORE destination]",
                "Sorts a list, a set or a sorted set, and perhaps stores it as a list",
            ),
            |args, _| understood(args, true),
        )
        .with_keys(Keys::Stored { from: 2, words: &["STORE"] })
        .differs(DIFFERS),
    Group::Generic
        .data(
            "sort_ro",
            -2,
            READ | MOVABLE_KEYS | DANGEROUS,
            about(
                "7.0.0",
                "key [BY nosort] [LIMIT offset count] [GET #] [ASC|DESC] [ALPHA]",
                "Sorts a list, a set or a sorted set",
            ),
            |args, _| understood(args, false),
        )
        .differs(DIFFERS),
];

fn understood(args: Args<'_>, stored: bool) -> Understood {
    let mut sort = Sort { by: SortBy::Number, descending: false, limit: None, gets: Vec::new() };
    let (mut target, mut unsorted): (Option<Blob>, bool) = (None, false);
    let mut at = 2;
    while at < args.len() {
        let option = args.at(at);
        let left = args.len() - at - 1;
        match () {
            () if is(option, "ASC") => sort.descending = false,
            () if is(option, "DESC") => sort.descending = true,
            () if is(option, "ALPHA") => sort.by = SortBy::Bytes,
            () if is(option, "LIMIT") && left >= 2 => {
                let (offset, count) = (number(args.at(at + 1))?, number(args.at(at + 2))?);
                sort.limit = Some(Limit { offset, count });
                at += 2;
            }
            () if stored && is(option, "STORE") && left >= 1 => {
                target = Some(blob(args.at(at + 1)));
                at += 1;
            }
            () if is(option, "BY") && left >= 1 => {
                // Which keys it would name follows from what is sorted, so nobody could tell beforehand.
                if args.at(at + 1).contains(&b'*') {
                    return Err(Complaint::text("ERR BY option of SORT denied in Cluster mode."));
                }
                unsorted = true;
                at += 1;
            }
            () if is(option, "GET") && left >= 1 => {
                sort.gets.push(match args.at(at + 1) {
                    b"#" => Got::Element,
                    pattern if pattern.contains(&b'*') => {
                        return Err(Complaint::text("ERR GET option of SORT denied in Cluster mode."));
                    }
                    _ => Got::Nothing,
                });
                if sort.gets.len() > GETS_MAX {
                    return Err(Complaint::text(format!("ERR at most {GETS_MAX} GET options of SORT")));
                }
                at += 1;
            }
            () => return Err(Complaint::Syntax),
        }
        at += 1;
    }
    if unsorted {
        sort.by = SortBy::Nothing;
    }
    let (key, sort) = (blob(args.at(1)), Arc::new(sort));
    Ok(match target {
        Some(target) => Operation::SortStore { target, source: key, sort },
        None => Operation::Sort { key, sort },
    }
    .into())
}
