//! Streams and their consumer groups.

use super::Understood;
use super::sorted_sets::repeated;
use crate::redis::args::{blob, is, number, pairs, positive, unsigned};
use crate::redis::blocking::Patience;
use crate::redis::catalog;
use crate::redis::complaint::Complaint;
use crate::redis::request::Args;
use crate::redis::shape::{Grouped, Plan, Shape};
use crate::redis::spec::flag::{BLOCKING, DENYOOM, FAST, LOADING, MOVABLE_KEYS, READ, STALE, WRITE};
use crate::redis::spec::{Action, Given, Group, Keys, Spec, about};
use isochrone_core::Blob;
use isochrone_core::command::{
    Append, Claim, GroupChange, GroupRead, NewId, Operation, ReadFrom, StreamId, StreamLook, StreamRead,
    StreamSlice, Trim, Trimming,
};
use std::sync::Arc;

/// When there is a consumer.
const MADE: &str = "a consumer is made when it is first given something, as in Redis 7.0";

/// Trims with `~` are exact here.
const EXACT: &str = "trims with `~` exactly, as with `=`";

pub(crate) static COMMANDS: &[Spec] = &[
    Group::Stream.data(
        "xack",
        -4,
        WRITE | FAST,
        about("5.0.0", "key group id [id ...]", "Entries that a group has dealt with"),
        |args, _| {
            let ids = args.from(3).iter().map(|id| strict(id, 0)).collect::<Result<_, _>>()?;
            Ok(change(args, 1, GroupChange::Acknowledge { group: blob(args.at(2)), ids }, PLAIN))
        },
    ),
    Group::Stream
        .data(
            "xadd",
            -5,
            WRITE | DENYOOM | FAST,
            about(
                "5.0.0",
                "key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT count]] *|id field value [field value ...]",
                "Adds an entry to a stream",
            ),
            add,
        )
        .differs("`*` takes its time from the node that took the command in; trims with `~` exactly, as with `=`"),
    Group::Stream.data(
        "xautoclaim",
        -6,
        WRITE | FAST,
        about(
            "6.2.0",
            "key group consumer min-idle-time start [COUNT count] [JUSTID]",
            "Gives a consumer what others have not dealt with for a time",
        ),
        claim_from,
    )
    .differs(MADE),
    Group::Stream.data(
        "xclaim",
        -6,
        WRITE | FAST,
        about(
            "5.0.0",
            "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] \
             [FORCE] [JUSTID] [LASTID lastid]",
            "Gives a consumer entries that are pending",
        ),
        claim,
    )
    .differs(MADE),
    Group::Stream.data(
        "xdel",
        -3,
        WRITE | FAST,
        about("5.0.0", "key id [id ...]", "Deletes entries"),
        |args, _| {
            let ids = args.from(2).iter().map(|id| strict(id, 0)).collect::<Result<_, _>>()?;
            Ok(Operation::XDel { key: blob(args.at(1)), ids }.into())
        },
    ),
    Group::Stream.here(
        "xgroup",
        -2,
        0,
        about("5.0.0", "", "Consumer groups and their consumers"),
        Action::Container(XGROUP),
    ),
    Group::Stream.here("xinfo", -2, 0, about("5.0.0", "", "About streams"), Action::Container(XINFO)),
    Group::Stream.data("xlen", 2, READ | FAST, about("5.0.0", "key", "How many entries"), |args, _| {
        Ok(Operation::XLen { key: blob(args.at(1)) }.into())
    }),
    Group::Stream.data(
        "xpending",
        -3,
        READ,
        about(
            "5.0.0",
            "key group [[IDLE min-idle-time] start end count [consumer]]",
            "What a group was given and has not dealt with",
        ),
        pending,
    ),
    Group::Stream.data(
        "xrange",
        -4,
        READ,
        about("5.0.0", "key start end [COUNT count]", "Entries in a range"),
        |args, _| range(args, 2, 3, false),
    ),
    Group::Stream
        .blocking(
            "xread",
            -4,
            READ | BLOCKING | MOVABLE_KEYS,
            about(
                "5.0.0",
                "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
                "Entries of streams behind the last that is known, perhaps waiting for some",
            ),
            read,
        )
        .with_keys(Keys::Streams)
        .differs("a time-out may come 100 ms late"),
    Group::Stream
        .blocking(
            "xreadgroup",
            -7,
            WRITE | BLOCKING | MOVABLE_KEYS,
            about(
                "5.0.0",
                "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]",
                "Entries of streams for a consumer of a group, perhaps waiting for some",
            ),
            read_group,
        )
        .with_keys(Keys::Streams)
        .differs(
            "a consumer is made when it is first given something, as in Redis 7.0; a time-out may come 100 ms late, or end in `UNKNOWN` up to `time_limit` late where a node has just been cut off; who waits \
             while the group goes is told `NOGROUP` as who finds none, a second late where the stream was deleted; who waits is given what `XGROUP SETID` makes new, in Redis only what is added",
        ),
    Group::Stream.data(
        "xrevrange",
        -4,
        READ,
        about("5.0.0", "key end start [COUNT count]", "Entries in a range, the latest first"),
        |args, _| range(args, 3, 2, true),
    ),
    Group::Stream
        .data(
            "xsetid",
            -3,
            WRITE | DENYOOM | FAST,
            about(
                "5.0.0",
                "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
                "What a stream remembers of its entries",
            ),
            set_last,
        )
        .differs("as in Redis 7.0: an ID below the greatest deleted one is taken"),
    Group::Stream
        .data(
            "xtrim",
            -4,
            WRITE,
            about("5.0.0", "key MAXLEN|MINID [=|~] threshold [LIMIT count]", "Removes the oldest entries"),
            |args, _| {
                let (options, at) = options(args, false)?;
                if at < args.len() {
                    return Err(Complaint::Syntax);
                }
                let trimming = options.trimming.ok_or(Complaint::text(
                    "ERR syntax error, XTRIM must be called with a trimming strategy",
                ))?;
                Ok(Operation::XTrim { key: blob(args.at(1)), trimming: Arc::new(trimming) }.into())
            },
        )
        .differs(EXACT),
];

/// The key of a subcommand.
const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

/// What is said of no group.
const PLAIN: fn(&Blob, &Blob) -> String =
    |key, group| format!("NOGROUP No such consumer group '{}' for key name '{}'", shown(group), shown(key));

/// What is said of no group where entries of it are asked for.
const PENDING: fn(&Blob, &Blob) -> String =
    |key, group| format!("NOGROUP No such key '{}' or consumer group '{}'", shown(key), shown(group));

/// The same, of a read.
const READING: fn(&Blob, &Blob) -> String = |key, group| {
    format!(
        "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
        shown(key),
        shown(group)
    )
};

fn shown(name: &Blob) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(name)
}

static XGROUP: &[Spec] = &[
    Group::Stream
        .data(
            "xgroup|create",
            -5,
            WRITE | DENYOOM,
            about("5.0.0", "key group id|$ [MKSTREAM] [ENTRIESREAD entries-read]", "Makes a group"),
            |args, _| {
                let (make, read) = group_options(args)?;
                let from = beginning(args.at(4), true)?;
                Ok(change(args, 2, GroupChange::Create { group: blob(args.at(3)), from, read, make }, PLAIN))
            },
        )
        .with_keys(SECOND),
    Group::Stream
        .data(
            "xgroup|createconsumer",
            5,
            WRITE | DENYOOM,
            about("6.2.0", "key group consumer", "Makes a consumer"),
            |args, _| {
                let (group, consumer) = (blob(args.at(3)), blob(args.at(4)));
                Ok(change(args, 2, GroupChange::CreateConsumer { group, consumer }, PLAIN))
            },
        )
        .with_keys(SECOND),
    Group::Stream
        .data(
            "xgroup|delconsumer",
            5,
            WRITE,
            about("5.0.0", "key group consumer", "Removes a consumer with what is pending for it"),
            |args, _| {
                let (group, consumer) = (blob(args.at(3)), blob(args.at(4)));
                Ok(change(args, 2, GroupChange::DeleteConsumer { group, consumer }, PLAIN))
            },
        )
        .with_keys(SECOND),
    Group::Stream
        .data("xgroup|destroy", 4, WRITE, about("5.0.0", "key group", "Removes a group"), |args, _| {
            Ok(change(args, 2, GroupChange::Destroy { group: blob(args.at(3)) }, PLAIN))
        })
        .with_keys(SECOND),
    Group::Stream.local("xgroup|help", 2, LOADING | STALE, about("5.0.0", "", "Help"), catalog::help),
    Group::Stream
        .data(
            "xgroup|setid",
            -5,
            WRITE,
            about("5.0.0", "key group id|$ [ENTRIESREAD entries-read]", "Behind which entry a group goes on"),
            |args, _| {
                let (_, read) = group_options(args)?;
                let from = beginning(args.at(4), false)?;
                Ok(change(args, 2, GroupChange::SetId { group: blob(args.at(3)), from, read }, PLAIN))
            },
        )
        .with_keys(SECOND),
];

static XINFO: &[Spec] = &[
    Group::Stream
        .data(
            "xinfo|consumers",
            4,
            READ,
            about("5.0.0", "key group", "The consumers of a group"),
            |args, _| {
                let group = blob(args.at(3));
                Ok(look(args, 2, StreamLook::Consumers { group: group.clone() }, group, PLAIN))
            },
        )
        .with_keys(SECOND)
        .differs("as in Redis 7.0: `inactive` is not told"),
    Group::Stream
        .data("xinfo|groups", 3, READ, about("5.0.0", "key", "The groups of a stream"), |args, _| {
            let look = Arc::new(StreamLook::Groups);
            Ok(Operation::XInfo { key: blob(args.at(2)), look }.into())
        })
        .with_keys(SECOND),
    Group::Stream.local("xinfo|help", 2, LOADING | STALE, about("5.0.0", "", "Help"), catalog::help),
    Group::Stream
        .data(
            "xinfo|stream",
            -3,
            READ,
            about("5.0.0", "key [FULL [COUNT count]]", "What a stream is"),
            |args, _| {
                let look = match args.len() {
                    3 => StreamLook::Stream,
                    4 if is(args.at(3), "FULL") => StreamLook::Full { count: 10 },
                    6 if is(args.at(3), "FULL") && is(args.at(4), "COUNT") => {
                        StreamLook::Full { count: u64::try_from(number(args.at(5))?).unwrap_or(10) }
                    }
                    _ => return Err(misspelt(args, "XINFO")),
                };
                Ok(Operation::XInfo { key: blob(args.at(2)), look: Arc::new(look) }.into())
            },
        )
        .with_keys(SECOND)
        .differs("there is no radix tree, and so its size is an estimate; FULL as in Redis 7.0: `active-time` is not told"),
];

fn misspelt(args: Args<'_>, container: &str) -> Complaint {
    let name = String::from_utf8_lossy(args.at(1));
    Complaint::text(format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."
    ))
}

/// A change of the stream at this place.
fn change(args: Args<'_>, at: usize, change: GroupChange, absent: fn(&Blob, &Blob) -> String) -> Plan {
    let (key, group) = (blob(args.at(at)), blob(args.at(at + 1)));
    let grouped = Grouped { keys: [key.clone()].into(), group, absent };
    Plan {
        operation: Operation::XGroup { key, change: Arc::new(change) },
        shape: Shape::Grouped(grouped.into()),
    }
}

/// A look at a group of the stream at this place.
fn look(
    args: Args<'_>,
    at: usize,
    look: StreamLook,
    group: Blob,
    absent: fn(&Blob, &Blob) -> String,
) -> Plan {
    let key = blob(args.at(at));
    let grouped = Grouped { keys: [key.clone()].into(), group, absent };
    Plan { operation: Operation::XInfo { key, look: Arc::new(look) }, shape: Shape::Grouped(grouped.into()) }
}

/// What stands behind the identifier of XGROUP CREATE and SETID.
fn group_options(args: Args<'_>) -> Result<(bool, Option<u64>), Complaint> {
    let (mut make, mut read) = (false, None);
    let creates = is(args.at(1), "CREATE");
    let mut at = 5;
    while at < args.len() {
        if creates && is(args.at(at), "MKSTREAM") {
            make = true;
            at += 1;
        } else if is(args.at(at), "ENTRIESREAD") && at + 1 < args.len() {
            let given = number(args.at(at + 1))?;
            read = u64::try_from(given).ok();
            if read.is_none() && given != -1 {
                return Err(Complaint::text("ERR value for ENTRIESREAD must be positive or -1"));
            }
            at += 2;
        } else {
            return Err(misspelt(args, "XGROUP"));
        }
    }
    Ok((make, read))
}

/// Behind which entry a group begins.
fn beginning(text: &[u8], exact: bool) -> Result<ReadFrom, Complaint> {
    match text {
        b"$" => Ok(ReadFrom::Last),
        text if exact => strict(text, 0).map(ReadFrom::After),
        text => edge_or_id(text).map(ReadFrom::After),
    }
}

fn pending(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let group = blob(args.at(2));
    if args.len() == 3 {
        return Ok(look(args, 1, StreamLook::Pending { group: group.clone() }, group, PENDING));
    }
    if !(6..=9).contains(&args.len()) {
        return Err(Complaint::Syntax);
    }
    let (mut first, mut idle) = (3, 0);
    if is(args.at(3), "IDLE") {
        idle = number(args.at(4))?.max(0).unsigned_abs();
        first = 5;
        if args.len() < 8 {
            return Err(Complaint::Syntax);
        }
    }
    let count = number(args.at(first + 2))?.max(0).unsigned_abs();
    let (start, end) = (edge(args.at(first), true)?, edge(args.at(first + 1), false)?);
    let consumer = (first + 3 < args.len()).then(|| blob(args.at(first + 3)));
    let range = StreamLook::PendingRange { group: group.clone(), start, end, count, idle, consumer };
    Ok(look(args, 1, range, group, PENDING))
}

/// How long an entry must have been pending.
fn idle(text: &[u8], error: &'static str) -> Result<u64, Complaint> {
    Ok(integer(text, error)?.max(0).unsigned_abs())
}

fn integer(text: &[u8], error: &'static str) -> Result<i64, Complaint> {
    number(text).map_err(|_| Complaint::text(error))
}

fn claim(args: Args<'_>, given: &mut Given<'_>) -> Understood {
    let now = given.stamp.as_millis();
    let mut claim = Claim {
        idle: idle(args.at(4), "ERR Invalid min-idle-time argument for XCLAIM")?,
        ..Claim::default()
    };
    let ids: Vec<StreamId> = args.from(5).iter().map_while(|id| strict(id, 0).ok()).collect();
    let mut at = 5 + ids.len();
    while at < args.len() {
        let word = args.at(at);
        let value = (at + 1 < args.len()).then(|| args.at(at + 1));
        match value {
            _ if is(word, "FORCE") => claim.force = true,
            _ if is(word, "JUSTID") => claim.just_id = true,
            Some(value) if is(word, "IDLE") => {
                let idle = integer(value, "ERR Invalid IDLE option argument for XCLAIM")?;
                claim.delivered = u64::try_from((now as i64).saturating_sub(idle)).ok();
                at += 1;
            }
            Some(value) if is(word, "TIME") => {
                let time = integer(value, "ERR Invalid TIME option argument for XCLAIM")?;
                claim.delivered = u64::try_from(time).ok();
                at += 1;
            }
            Some(value) if is(word, "RETRYCOUNT") => {
                let count = integer(value, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                claim.count = u64::try_from(count).ok();
                at += 1;
            }
            Some(value) if is(word, "LASTID") => {
                claim.last = Some(strict(value, 0)?);
                at += 1;
            }
            _ => {
                let word = String::from_utf8_lossy(word);
                return Err(Complaint::text(format!("ERR Unrecognized XCLAIM option '{word}'")));
            }
        }
        at += 1;
    }
    let (group, consumer) = (blob(args.at(2)), blob(args.at(3)));
    Ok(change(args, 1, GroupChange::Claim { group, consumer, ids, claim }, PENDING))
}

fn claim_from(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let idle = idle(args.at(4), "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let start = edge(args.at(5), true)?;
    let (mut count, mut just_id) = (100, false);
    let mut at = 6;
    while at < args.len() {
        if is(args.at(at), "COUNT") && at + 1 < args.len() {
            // As many as Redis could count the attempts for.
            const MOST: u64 = i64::MAX as u64 / 16;
            let error = "ERR COUNT must be > 0";
            count = positive(args.at(at + 1), error)?;
            if count > MOST {
                return Err(Complaint::text(error));
            }
            at += 1;
        } else if is(args.at(at), "JUSTID") {
            just_id = true;
        } else {
            return Err(Complaint::Syntax);
        }
        at += 1;
    }
    let (group, consumer) = (blob(args.at(2)), blob(args.at(3)));
    Ok(change(args, 1, GroupChange::ClaimFrom { group, consumer, start, count, idle, just_id }, PENDING))
}

fn set_last(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let last = strict(args.at(2), 0)?;
    let (mut added, mut deleted) = (None, None);
    let mut at = 3;
    while at < args.len() {
        if at + 1 == args.len() {
            return Err(Complaint::Syntax);
        }
        let value = args.at(at + 1);
        if is(args.at(at), "ENTRIESADDED") {
            let text = "ERR entries_added must be positive";
            added = Some(u64::try_from(number(value)?).map_err(|_| Complaint::text(text))?);
        } else if is(args.at(at), "MAXDELETEDID") {
            let id = strict(value, 0)?;
            if last < id {
                let text = "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id";
                return Err(Complaint::text(text));
            }
            deleted = Some(id);
        } else {
            return Err(Complaint::Syntax);
        }
        at += 2;
    }
    let change = Arc::new(GroupChange::Remember { last, added, deleted });
    Ok(Operation::XGroup { key: blob(args.at(1)), change }.into())
}

/// An identifier; where its second number is left out it is this one.
fn strict(text: &[u8], sequence: u64) -> Result<StreamId, Complaint> {
    // As `strtoull` reads them.
    let parse = |text: &[u8]| {
        let blanks = text.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
        let text = &text[blanks..];
        unsigned(text.strip_prefix(b"+").unwrap_or(text))
    };
    let id = match text.iter().position(|byte| *byte == b'-') {
        None => parse(text).map(|millis| StreamId { millis, sequence }),
        Some(dash) => parse(&text[..dash])
            .zip(parse(&text[dash + 1..]))
            .map(|(millis, sequence)| StreamId { millis, sequence }),
    };
    id.ok_or(Complaint::text("ERR Invalid stream ID specified as stream command argument"))
}

/// An end of a range.
fn edge(text: &[u8], start: bool) -> Result<StreamId, Complaint> {
    let missing = if start { 0 } else { u64::MAX };
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        [b'(', exclusive @ ..] if !exclusive.is_empty() => {
            let id = strict(exclusive, missing)?;
            let (inner, error) = match start {
                true => (id.next(), "ERR invalid start ID for the interval"),
                false => (id.previous(), "ERR invalid end ID for the interval"),
            };
            inner.ok_or(Complaint::text(error))
        }
        text => strict(text, missing),
    }
}

fn range(args: Args<'_>, start: usize, end: usize, reverse: bool) -> Understood {
    let (start, end) = (edge(args.at(start), true)?, edge(args.at(end), false)?);
    let mut count = None;
    let mut at = 4;
    while at < args.len() {
        if !is(args.at(at), "COUNT") || at + 1 == args.len() {
            return Err(Complaint::Syntax);
        }
        count = Some(number(args.at(at + 1))?.max(0).unsigned_abs());
        at += 2;
    }
    let slice = StreamSlice { start, end, reverse, count };
    Ok(Operation::XRange { key: blob(args.at(1)), slice: Arc::new(slice) }.into())
}

#[derive(Default)]
struct Options {
    only_if_exists: bool,
    trimming: Option<Trimming>,
    /// Where none was given, it is `*`, or there is none at all.
    id: Option<NewId>,
}

/// Options of XADD, up to and with the identifier, and of XTRIM; and the place behind them.
fn options(args: Args<'_>, adds: bool) -> Result<(Options, usize), Complaint> {
    let mut options = Options::default();
    let (mut approximate, mut limit) = (false, None);
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        let word = args.at(at);
        let by_length = is(word, "MAXLEN");
        if adds && word == b"*" {
            options.id = Some(NewId::Next);
            at += 1;
            break;
        } else if (by_length || is(word, "MINID")) && more > 0 {
            if options.trimming.is_some() {
                let text = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
                return Err(Complaint::text(text));
            }
            approximate = more >= 2 && args.at(at + 1) == b"~";
            at += usize::from(approximate || more >= 2 && args.at(at + 1) == b"=");
            let threshold = args.at(at + 1);
            let trim = if by_length {
                let text = "ERR The MAXLEN argument must be >= 0.";
                let length = u64::try_from(number(threshold)?).map_err(|_| Complaint::text(text))?;
                Trim::Length(length)
            } else {
                Trim::Before(strict(threshold, 0)?)
            };
            options.trimming = Some(Trimming { trim, limit: 0 });
            at += 2;
        } else if is(word, "LIMIT") && more > 0 {
            let text = "ERR The LIMIT argument must be >= 0.";
            let given = u64::try_from(number(args.at(at + 1))?).map_err(|_| Complaint::text(text))?;
            limit = Some(given);
            at += 2;
        } else if adds && is(word, "NOMKSTREAM") {
            options.only_if_exists = true;
            at += 1;
        } else if adds {
            options.id = Some(match word.strip_suffix(b"-*") {
                Some(millis) if !millis.contains(&b'-') => NewId::Within(strict(millis, 0)?.millis),
                _ => NewId::This(strict(word, 0)?),
            });
            at += 1;
            break;
        } else {
            return Err(Complaint::Syntax);
        }
    }
    // A limit of 0 is none.
    let why = match (&mut options.trimming, limit) {
        (_, None) => None,
        (None, Some(0)) if !adds => Some("XTRIM must be called with a trimming strategy"),
        (None, Some(1..)) => Some("LIMIT cannot be used without specifying a trimming strategy"),
        (Some(trimming), Some(limit)) if approximate => {
            trimming.limit = limit;
            None
        }
        (_, Some(_)) => Some("LIMIT cannot be used without the special ~ option"),
    };
    if let Some(why) = why {
        return Err(Complaint::text(format!("ERR syntax error, {why}")));
    }
    Ok((options, at))
}

fn edge_or_id(text: &[u8]) -> Result<StreamId, Complaint> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        text => strict(text, 0),
    }
}

fn add(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let (options, first) = options(args, true)?;
    let fields = args.len() - first;
    let Some(id) = options.id.filter(|_| fields >= 2 && fields.is_multiple_of(2)) else {
        return Err(Complaint::Arity("xadd"));
    };
    if id == NewId::This(StreamId::MIN) {
        return Err(Complaint::text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let Options { only_if_exists, trimming, .. } = options;
    let append = Append { id, fields: pairs(args, first).to_vec(), only_if_exists, trimming };
    Ok(Operation::XAdd { key: blob(args.at(1)), append: Arc::new(append) }.into())
}

/// What stands in front of the streams that are read.
struct Reading {
    patience: Patience,
    count: u64,
    /// A group, and who reads for it.
    named: Option<(Blob, Blob)>,
    forget: bool,
    /// Where the first key stands.
    first: usize,
}

/// Reads options up to the keys; those of groups where `grouped`.
fn reading(args: Args<'_>, grouped: bool) -> Result<Reading, Complaint> {
    let mut reading = Reading { patience: Patience::none(), count: 0, named: None, forget: false, first: 0 };
    let only = |option: &str| {
        Complaint::text(format!(
            "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
        ))
    };
    let mut at = 1;
    while at < args.len() {
        let more = args.len() - (at + 1);
        let word = args.at(at);
        at += match word {
            word if is(word, "BLOCK") && more > 0 => {
                reading.patience = Patience::parse_millis(args.at(at + 1))?;
                2
            }
            word if is(word, "COUNT") && more > 0 => {
                reading.count = number(args.at(at + 1))?.max(0).unsigned_abs();
                2
            }
            word if is(word, "STREAMS") && more > 0 => {
                reading.first = at + 1;
                return Ok(reading);
            }
            word if is(word, "GROUP") && more > 1 => {
                reading.named = Some((blob(args.at(at + 1)), blob(args.at(at + 2))));
                if grouped { 3 } else { return Err(only("GROUP")) }
            }
            word if is(word, "NOACK") => {
                reading.forget = true;
                if grouped { 1 } else { return Err(only("NOACK")) }
            }
            _ => return Err(Complaint::Syntax),
        };
    }
    Err(Complaint::Syntax)
}

fn read(args: Args<'_>, _: &mut Given<'_>) -> Result<(Plan, Patience), Complaint> {
    let Reading { patience, count, first, .. } = reading(args, false)?;
    let words = args.len() - first;
    if !words.is_multiple_of(2) {
        let text =
            "ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified.";
        return Err(Complaint::text(text));
    }
    let streams = (0..words / 2).map(|stream| {
        let from = match args.at(first + words / 2 + stream) {
            b"$" => ReadFrom::Last,
            b">" => {
                let text = "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
                            <consumer> option.";
                return Err(Complaint::text(text));
            }
            id => ReadFrom::After(strict(id, 0)?),
        };
        Ok((blob(args.at(first + stream)), from))
    });
    let streams: Vec<_> = streams.collect::<Result<_, _>>()?;
    repeated(streams.iter().map(|(key, _)| key))?;
    let resolve = patience.waits() && streams.iter().any(|(_, from)| *from == ReadFrom::Last);
    let operation = Operation::XRead { read: Arc::new(StreamRead { streams, count, resolve }) };
    Ok((Plan { operation, shape: Shape::Streams }, patience))
}

fn read_group(args: Args<'_>, _: &mut Given<'_>) -> Result<(Plan, Patience), Complaint> {
    let Reading { patience, count, named, forget, first } = reading(args, true)?;
    let words = args.len() - first;
    if !words.is_multiple_of(2) {
        let text = "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.";
        return Err(Complaint::text(text));
    }
    let Some((group, consumer)) = named else {
        return Err(Complaint::text("ERR Missing GROUP option for XREADGROUP"));
    };
    let streams = (0..words / 2).map(|stream| {
        let after = match args.at(first + words / 2 + stream) {
            b"$" => {
                let text = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of \
                            this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID \
                            would just return an empty result set.";
                return Err(Complaint::text(text));
            }
            b">" => None,
            id => Some(strict(id, 0)?),
        };
        Ok((blob(args.at(first + stream)), after))
    });
    let streams: Vec<_> = streams.collect::<Result<_, _>>()?;
    repeated(streams.iter().map(|(key, _)| key))?;
    let keys = streams.iter().map(|(key, _)| key.clone()).collect();
    let grouped = Grouped { keys, group: group.clone(), absent: READING };
    let read = GroupRead { streams, group, consumer, count, forget, peek: false };
    let operation = Operation::XReadGroup { read: Arc::new(read) };
    Ok((Plan { operation, shape: Shape::Grouped(grouped.into()) }, patience))
}
