//! Streams, without consumer groups.

use super::Understood;
use crate::redis::args::{blob, is, number, pairs};
use crate::redis::blocking::Patience;
use crate::redis::complaint::Complaint;
use crate::redis::request::Args;
use crate::redis::shape::{Plan, Shape};
use crate::redis::spec::flag::{BLOCKING, DENYOOM, FAST, MOVABLE_KEYS, READ, WRITE};
use crate::redis::spec::{Given, Group, Keys, Spec, about};
use isochrone_core::command::{
    Append, NewId, Operation, ReadFrom, StreamId, StreamRead, StreamSlice, Trim, Trimming,
};
use std::sync::Arc;

/// Trims with `~` are exact here.
const EXACT: &str = "trims with `~` exactly, as with `=`";

pub(crate) static COMMANDS: &[Spec] = &[
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
        "xdel",
        -3,
        WRITE | FAST,
        about("5.0.0", "key id [id ...]", "Deletes entries"),
        |args, _| {
            let ids = args.from(2).iter().map(|id| strict(id, 0)).collect::<Result<_, _>>()?;
            Ok(Operation::XDel { key: blob(args.at(1)), ids }.into())
        },
    ),
    Group::Stream.data("xlen", 2, READ | FAST, about("5.0.0", "key", "How many entries"), |args, _| {
        Ok(Operation::XLen { key: blob(args.at(1)) }.into())
    }),
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
    Group::Stream.data(
        "xrevrange",
        -4,
        READ,
        about("5.0.0", "key end start [COUNT count]", "Entries in a range, the latest first"),
        |args, _| range(args, 3, 2, true),
    ),
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

/// An identifier; where its second number is left out it is this one.
fn strict(text: &[u8], sequence: u64) -> Result<StreamId, Complaint> {
    let parse = |text: &[u8]| {
        let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(text).ok().filter(|_| digits).and_then(|text| text.parse::<u64>().ok())
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
                Trim::Before(edge_or_id(threshold)?)
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
    match (&mut options.trimming, limit) {
        (_, None) => {}
        (None, Some(_)) => {
            let text = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy";
            return Err(Complaint::text(text));
        }
        (Some(_), Some(_)) if !approximate => {
            let text = "ERR syntax error, LIMIT cannot be used without the special ~ option";
            return Err(Complaint::text(text));
        }
        (Some(trimming), Some(limit)) => trimming.limit = limit,
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

fn read(args: Args<'_>, _: &mut Given<'_>) -> Result<(Plan, Patience), Complaint> {
    let mut count = 0;
    let mut patience = Patience::none();
    let mut at = 1;
    let first = loop {
        let more = args.len().saturating_sub(at + 1);
        match args.at(at) {
            _ if at >= args.len() => return Err(Complaint::Syntax),
            word if is(word, "BLOCK") && more > 0 => patience = Patience::parse_millis(args.at(at + 1))?,
            word if is(word, "COUNT") && more > 0 => count = number(args.at(at + 1))?.max(0).unsigned_abs(),
            word if is(word, "STREAMS") && more > 0 => break at + 1,
            word if is(word, "GROUP") && more > 1 => {
                let text = "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.";
                return Err(Complaint::text(text));
            }
            word if is(word, "NOACK") => {
                let text = "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.";
                return Err(Complaint::text(text));
            }
            _ => return Err(Complaint::Syntax),
        }
        at += 2;
    };
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
    let resolve = patience.waits() && streams.iter().any(|(_, from)| *from == ReadFrom::Last);
    let operation = Operation::XRead { read: Arc::new(StreamRead { streams, count, resolve }) };
    Ok((Plan { operation, shape: Shape::Streams }, patience))
}
