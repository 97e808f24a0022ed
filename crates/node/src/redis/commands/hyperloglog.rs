//! HyperLogLogs.

use crate::redis::args::{blob, blobs};
use crate::redis::spec::flag::{DENYOOM, FAST, READ, WRITE};
use crate::redis::spec::{ALL, Group, Spec, about};
use isochrone_core::command::Operation;

pub(crate) static COMMANDS: &[Spec] = &[
    Group::HyperLogLog.data(
        "pfadd",
        -2,
        WRITE | DENYOOM | FAST,
        about("2.8.9", "key [element [element ...]]", "Adds elements, to be counted"),
        |args, _| Ok(Operation::PfAdd { key: blob(args.at(1)), elements: blobs(args, 2) }.into()),
    ),
    Group::HyperLogLog
        .data(
            "pfcount",
            -2,
            READ,
            about("2.8.9", "key [key ...]", "About how many different elements were added, to any of these"),
            |args, _| Ok(Operation::PfCount { keys: blobs(args, 1) }.into()),
        )
        .with_keys(ALL)
        .differs("it writes no count into the value, where Redis keeps it until the value is changed, and so changes no watched key"),
    Group::HyperLogLog
        .data(
            "pfmerge",
            -2,
            WRITE | DENYOOM,
            about("2.8.9", "destkey [sourcekey [sourcekey ...]]", "Adds what was added to others"),
            |args, _| Ok(Operation::PfMerge { target: blob(args.at(1)), keys: blobs(args, 2) }.into()),
        )
        .with_keys(ALL),
];
