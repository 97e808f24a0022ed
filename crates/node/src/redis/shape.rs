//! From outcomes to replies.

use super::payload;
use super::places::Places;
use super::reply::{Reply, Version};
use super::request::Kept;
use super::spec::Local;
use super::steps::Script;
use super::transaction::Watch;
use crate::gateway::Outcome;
use isochrone_core::Blob;
use isochrone_core::command::{Operation, Refusal, Response};

/// What a request asks of its keyspace, and how the answer is laid out.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) operation: Operation,
    pub(crate) shape: Shape,
}

impl Plan {
    /// Whether its operation is only the first step of what is to be done.
    pub(crate) fn has_steps(&self) -> bool {
        matches!(self.shape, Shape::Steps(_))
    }

    /// Whether it can be no part of a transaction.
    pub(crate) fn stands_alone(&self) -> bool {
        self.has_steps() || matches!(self.shape, Shape::Once(_))
    }
}

impl From<Operation> for Plan {
    fn from(operation: Operation) -> Plan {
        Plan { operation, shape: Shape::Plain }
    }
}

/// How the answer to a request is laid out.
#[derive(Debug)]
pub(crate) enum Shape {
    /// As its type says.
    Plain,
    /// 1 for `Ok`, 0 for nothing (SETNX).
    Yes,
    /// `OK` whatever was counted (HMSET).
    Ok,
    /// This number, or this error, if there is anything, else nothing (OBJECT REFCOUNT, OBJECT FREQ).
    IfAny(Result<i64, &'static str>),
    /// A key with one element that was popped from it, flat (BLPOP, BZPOPMIN).
    Popped,
    /// This number whatever was found.
    Number(i64),
    /// Nothing whatever was found, unless a part of it was refused.
    Nothing,
    /// Whether a key existed, and whether it was deleted: 1 for yes, -1 where there was none.
    Released,
    /// Whether a lock was set, 1, or its deadline moved, 2, or neither, 0.
    Acquired,
    /// This number if a transaction was carried out, else 0, unless a part of it was refused.
    Once(i64),
    /// What the parts of a transaction tell, unless one was refused.
    Parts,
    /// The same of the first part.
    First,
    /// The sum of the numbers that they tell.
    Sum,
    /// The first of the steps of this script.
    Steps(Box<Script>),
    /// Pairs stay pairs in RESP2 too (ZMPOP).
    Nested,
    /// Streams with their entries: RESP2 an array of two each, RESP3 a map.
    Streams,
    /// What a group of streams has to say, entries laid out as [`Shape::Streams`]; where there is none, an error that names
    /// it.
    Grouped(Box<Grouped>),
    /// Scores as points on the earth, or what a search of them has found.
    Places(Places),
    /// The answer to a password check, written elsewhere.
    Login,
    /// The versions of watched keys: `OK`.
    Watch(Watch),
    /// The answers of a transaction, among those that were known before.
    Exec(Box<[Item]>),
}

/// Which group was asked, of which streams, and what is said where a stream does not have it.
#[derive(Debug)]
pub(crate) struct Grouped {
    pub(crate) keys: Box<[Blob]>,
    pub(crate) group: Blob,
    pub(crate) absent: fn(&Blob, &Blob) -> String,
}

/// One reply of a transaction.
#[derive(Debug)]
pub(crate) enum Item {
    /// From the answer of the keyspace.
    Asked(Shape),
    /// Written already.
    Done(Vec<u8>),
    /// What the node itself does and answers once the transaction has been executed, and the request.
    Local(Local, Kept),
}

/// The client role of a keyspace in partitions follows keys that have moved; it says so itself where it cannot.
const MOVED: &str = "ERR the key is in another partition and was not asked for there; this is a bug";

/// Writes the reply to an outcome.
pub(crate) fn write(shape: Shape, outcome: Outcome, reply: &mut Reply<'_>) {
    match outcome {
        Outcome::Done(response) => lay_out(shape, &response, reply),
        // Not executed, and never will be: the client may try again.
        Outcome::Refused(text) if has_code(&text) => reply.error(text),
        Outcome::Refused(text) => reply.error(format_args!("TRYAGAIN {text}")),
        // Nobody knows: the client must not take it for a failure.
        Outcome::Unknown(text) => {
            reply.error(format_args!(
                "UNKNOWN the outcome is not known, the command may yet take effect: {text}"
            ));
        }
        Outcome::Verified { .. } | Outcome::Ordered(_) | Outcome::Transaction(_) => {
            reply.error("ERR what is no command was answered as one; this is a bug")
        }
    }
}

/// Whether a text begins with an error code of its own.
fn has_code(text: &str) -> bool {
    let word = text.split(' ').next().unwrap_or_default();
    word.len() >= 3 && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

fn error_in(parts: &[Response]) -> Option<&Response> {
    parts.iter().find(|part| part.is_error())
}

fn lay_out(shape: Shape, response: &Response, reply: &mut Reply<'_>) {
    match (shape, response) {
        (Shape::Grouped(asked), Response::Error(refusal @ Refusal::NoGroup(at))) => {
            match asked.keys.get(*at as usize) {
                Some(key) => reply.error((asked.absent)(key, &asked.group)),
                None => reply.error(refusal),
            }
        }
        (_, Response::Error(refusal)) => reply.error(refusal),
        (_, Response::Move(_) | Response::Share(_)) => reply.error(MOVED),
        (Shape::Yes, Response::Ok) => reply.integer(1),
        (Shape::Yes, Response::Nil) => reply.integer(0),
        (Shape::Ok | Shape::Watch(_), _) => reply.ok(),
        (Shape::IfAny(_), Response::Integer(0)) => reply.null(),
        (Shape::IfAny(Ok(number)), _) => reply.integer(number),
        (Shape::IfAny(Err(text)), _) => reply.error(text),
        (Shape::Popped, Response::Array(parts)) => popped(parts, reply),
        (Shape::Number(number), _) => reply.integer(number),
        (Shape::Nothing, Response::Array(parts)) => match error_in(parts) {
            Some(refused) => plain(refused, false, reply),
            None => reply.null(),
        },
        (Shape::Released, Response::Array(parts)) => reply.integer(match parts[..] {
            [Response::Integer(0), _] => -1,
            [_, Response::Integer(deleted)] => deleted,
            _ => 0,
        }),
        (
            Shape::Acquired | Shape::Once(_) | Shape::Parts | Shape::First | Shape::Sum,
            Response::Array(parts),
        ) if let Some(refused) = error_in(parts) => plain(refused, false, reply),
        (Shape::First, Response::Array(parts)) => {
            plain(parts.first().unwrap_or(&Response::Nil), false, reply);
        }
        (Shape::Sum, Response::Array(parts)) => {
            let number = |part: &Response| if let Response::Integer(number) = part { *number } else { 0 };
            reply.integer(parts.iter().map(number).sum::<i64>());
        }
        (Shape::Acquired, Response::Array(parts)) => reply.integer(match parts[..] {
            [Response::Ok, _] => 1,
            [_, Response::Integer(moved)] => 2 * moved,
            _ => 0,
        }),
        (Shape::Once(number), response) => {
            reply.integer(if *response == Response::NilArray { 0 } else { number });
        }
        (Shape::Streams | Shape::Grouped(_), Response::Pairs(streams)) => {
            let version = reply.version();
            match version {
                Version::Two => reply.array(streams.len()),
                Version::Three => reply.map(streams.len()),
            }
            for (key, entries) in streams {
                if version == Version::Two {
                    reply.array(2);
                }
                plain(key, false, reply);
                plain(entries, false, reply);
            }
        }
        // What `$` meant, which nobody waits for any more.
        (Shape::Streams, _) => reply.null_array(),
        (Shape::Nested, response) => plain(response, true, reply),
        (Shape::Places(places), Response::Array(parts)) => places.lay_out(parts, reply),
        (Shape::Exec(items), Response::Array(responses)) => {
            reply.array(items.len());
            let mut responses = responses.iter();
            for item in items {
                match item {
                    Item::Done(bytes) => reply.raw(&bytes),
                    // Done before this is laid out.
                    Item::Local(..) => reply.null(),
                    Item::Asked(shape) => match responses.next() {
                        Some(response) => lay_out(shape, response, reply),
                        // The keyspace answers each operation; a client waits for each item.
                        None => {
                            reply.error("ERR the transaction has fewer answers than commands; this is a bug")
                        }
                    },
                }
            }
        }
        (_, response) => plain(response, false, reply),
    }
}

/// The key, and behind it the element or the member and its score.
fn popped(parts: &[Response], reply: &mut Reply<'_>) {
    let [key, Response::Array(elements)] = parts else {
        return reply.error("ERR a pop answered with something else than a key and elements; this is a bug");
    };
    let flat: Vec<&Response> = elements
        .iter()
        .flat_map(|element| match element {
            Response::Array(pair) => pair.iter().collect(),
            element => vec![element],
        })
        .collect();
    reply.array(1 + flat.len());
    plain(key, false, reply);
    flat.into_iter().for_each(|part| plain(part, false, reply));
}

fn plain(response: &Response, nested: bool, reply: &mut Reply<'_>) {
    let all = |responses: &[Response], reply: &mut Reply<'_>| {
        responses.iter().for_each(|response| plain(response, nested, reply));
    };
    match response {
        Response::Ok => reply.ok(),
        Response::Nil => reply.null(),
        Response::NilArray => reply.null_array(),
        Response::Integer(value) => reply.integer(*value),
        Response::Bulk(bytes) => reply.bulk(bytes),
        Response::Double(score) => reply.double(*score),
        Response::Kind(kind) => reply.simple(kind.name()),
        Response::Array(responses) => {
            reply.array(responses.len());
            all(responses, reply);
        }
        Response::Set(responses) => {
            reply.set(responses.len());
            all(responses, reply);
        }
        Response::Pairs(pairs) => {
            let flat = !nested && reply.version() == Version::Two;
            reply.array(if flat { pairs.len() * 2 } else { pairs.len() });
            for (left, right) in pairs {
                if !flat {
                    reply.array(2);
                }
                plain(left, nested, reply);
                plain(right, nested, reply);
            }
        }
        Response::Map(pairs) => {
            reply.map(pairs.len());
            for (left, right) in pairs {
                plain(left, nested, reply);
                plain(right, nested, reply);
            }
        }
        Response::Scan { cursor, items } => {
            reply.array(2);
            reply.text(cursor);
            reply.array(items.len());
            items.iter().for_each(|item| reply.bulk(item));
        }
        Response::Content(content) => reply.bulk(&payload::dump(content)),
        Response::Error(refusal) => reply.error(refusal),
        Response::Move(_) | Response::Share(_) => reply.error(MOVED),
    }
}
