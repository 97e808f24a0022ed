//! The operations of the `kv` model, parsed.

use std::rc::Rc;

use super::super::{Unsupported, unsupported};
use crate::history::{Operation, Value};

type Bytes = Rc<[u8]>;

/// What an operation does to its keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Command {
    /// One key.
    Single(Single),
    /// MGET.
    MultiGet,
    /// MSET, a value for each key.
    MultiSet(Vec<Bytes>),
    /// EXISTS, any number of keys.
    Exists,
    /// DEL, any number of keys.
    Delete,
    /// COPY from the first key to the second, which may be overwritten or not.
    Copy { replace: bool },
}

/// When SET writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

/// Which end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    Left,
    Right,
}

/// A score of a sorted set, compared by bits; never NaN, and zero is always positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Score(u64);

impl Score {
    pub(super) fn new(score: f64) -> Option<Score> {
        (!score.is_nan()).then(|| Score(if score == 0.0 { 0 } else { score.to_bits() }))
    }

    pub(super) fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// What an operation does to one key. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Single {
    Get,
    Strlen,
    GetRange(i64, i64),
    Type,
    ExpireTime,
    Llen,
    Lrange(i64, i64),
    Scard,
    Smembers,
    Sismember(Bytes),
    Hget(Bytes),
    Hgetall,
    Hlen,
    Hexists(Bytes),
    Zscore(Bytes),
    Zcard,
    Zrange(i64, i64),
    Set { value: Bytes, condition: Condition, get: bool, deadline: Option<u64>, keep: bool },
    SetIfAbsent(Bytes),
    Append(Bytes),
    SetRange(usize, Bytes),
    Add(i64),
    GetDelete,
    Cas(Bytes, Bytes),
    Push(End, Vec<Bytes>),
    Pop(End, Option<usize>),
    Sadd(Vec<Bytes>),
    Srem(Vec<Bytes>),
    Hset(Vec<(Bytes, Bytes)>),
    Hdel(Vec<Bytes>),
    HashAdd(Bytes, i64),
    Zadd(Vec<(Score, Bytes)>),
    ScoreAdd(Score, Bytes),
    Zrem(Vec<Bytes>),
    ExpireAt(u64),
    Persist,
}

impl Single {
    /// Whether it never changes anything.
    pub(super) fn reads(&self) -> bool {
        use Single::*;
        matches!(
            self,
            Get | Strlen
                | GetRange(..)
                | Type
                | ExpireTime
                | Llen
                | Lrange(..)
                | Scard
                | Smembers
                | Sismember(_)
                | Hget(_)
                | Hgetall
                | Hlen
                | Hexists(_)
                | Zscore(_)
                | Zcard
                | Zrange(..)
        )
    }

    /// Whether it is a SET without options.
    pub(super) fn is_plain(&self) -> bool {
        matches!(
            self,
            Single::Set { condition: Condition::Always, get: false, deadline: None, keep: false, .. }
        )
    }

    /// Whether this answer says that it changed nothing on a key that had not expired.
    pub(super) fn idles(&self, observed: Option<&Value>) -> bool {
        use Single::*;
        match (self, observed) {
            (_, Some(Value::Error(_))) => true,
            (Set { get: false, .. } | GetDelete | Pop(..), Some(Value::Nil)) => true,
            (
                SetIfAbsent(_) | Cas(..) | Srem(_) | Sadd(_) | Hdel(_) | Zrem(_) | ExpireAt(_) | Persist,
                seen,
            ) => seen == Some(&Value::Integer(0)),
            _ => false,
        }
    }
}

/// Parses an operation; the arguments are what follows the keys.
pub(super) fn parse(operation: &Operation) -> Result<Command, Unsupported> {
    let args: Vec<&str> = operation.args.iter().map(String::as_str).collect();
    let single = operation.keys.len() == 1;
    let command = match (&*operation.op, args.as_slice()) {
        ("mget", []) => Command::MultiGet,
        ("exists", []) => Command::Exists,
        ("del" | "unlink", []) => Command::Delete,
        ("copy", []) if is_pair(operation) => Command::Copy { replace: false },
        ("copy", ["replace"]) if is_pair(operation) => Command::Copy { replace: true },
        ("mset", values) if values.len() == operation.keys.len() => Command::MultiSet(all(values)),
        (name, args) if single => match parse_single(name, args) {
            Some(command) => Command::Single(command),
            None => {
                return Err(unsupported(
                    operation,
                    "no operation of the kv model, or not with these arguments",
                    CURE,
                ));
            }
        },
        _ => {
            return Err(unsupported(
                operation,
                "touches several keys, or has the wrong number of arguments",
                CURE,
            ));
        }
    };
    Ok(command)
}

/// Whether it touches two keys, one after the other.
fn is_pair(operation: &Operation) -> bool {
    matches!(operation.keys.as_slice(), [from, to] if from != to)
}

/// The longest string that SETRANGE may make, in bytes: Redis' own limit.
const STRING_MAX: usize = 512 << 20;

const CURE: &str = "docs/histories.md lists the operations of each model with their arguments";

fn parse_single(name: &str, args: &[&str]) -> Option<Single> {
    use Single::*;
    let command = match (name, args) {
        ("get", []) => Get,
        ("strlen", []) => Strlen,
        ("getrange", [from, to]) => GetRange(integer(from)?, integer(to)?),
        ("type", []) => Type,
        ("expiretime", []) => ExpireTime,
        ("llen", []) => Llen,
        ("lrange", [from, to]) => Lrange(integer(from)?, integer(to)?),
        ("scard", []) => Scard,
        ("smembers", []) => Smembers,
        ("sismember", [member]) => Sismember(bytes(member)),
        ("hget", [field]) => Hget(bytes(field)),
        ("hgetall", []) => Hgetall,
        ("hlen", []) => Hlen,
        ("hexists", [field]) => Hexists(bytes(field)),
        ("zscore", [member]) => Zscore(bytes(member)),
        ("zcard", []) => Zcard,
        ("zrange", [from, to]) => Zrange(integer(from)?, integer(to)?),
        ("set", [value, options @ ..]) => parse_set(value, options)?,
        ("setnx", [value]) => SetIfAbsent(bytes(value)),
        ("getset", [value]) => {
            Set { value: bytes(value), condition: Condition::Always, get: true, deadline: None, keep: false }
        }
        ("append", [value]) => Append(bytes(value)),
        ("setrange", [offset, value]) => {
            SetRange(offset.parse().ok().filter(|offset| *offset <= STRING_MAX)?, bytes(value))
        }
        ("incr", []) => Add(1),
        ("decr", []) => Add(-1),
        ("incrby", [delta]) => Add(integer(delta)?),
        ("decrby", [delta]) => Add(integer(delta)?.checked_neg()?),
        ("getdel", []) => GetDelete,
        ("cas", [old, new]) => Cas(bytes(old), bytes(new)),
        ("lpush", values @ [_, ..]) => Push(End::Left, all(values)),
        ("rpush", values @ [_, ..]) => Push(End::Right, all(values)),
        ("lpop", []) => Pop(End::Left, None),
        ("rpop", []) => Pop(End::Right, None),
        ("lpop", [count]) => Pop(End::Left, Some(count.parse().ok()?)),
        ("rpop", [count]) => Pop(End::Right, Some(count.parse().ok()?)),
        ("sadd", members @ [_, ..]) => Sadd(all(members)),
        ("srem", members @ [_, ..]) => Srem(all(members)),
        ("hset", pairs @ [_, _, ..]) if pairs.len().is_multiple_of(2) => {
            Hset(pairs.chunks_exact(2).map(|pair| (bytes(pair[0]), bytes(pair[1]))).collect())
        }
        ("hdel", fields @ [_, ..]) => Hdel(all(fields)),
        ("hincrby", [field, delta]) => HashAdd(bytes(field), integer(delta)?),
        ("zadd", pairs @ [_, _, ..]) if pairs.len().is_multiple_of(2) => {
            let pairs = pairs.chunks_exact(2).map(|pair| Some((score(pair[0])?, bytes(pair[1]))));
            Zadd(pairs.collect::<Option<_>>()?)
        }
        ("zincrby", [delta, member]) => ScoreAdd(score(delta)?, bytes(member)),
        ("zrem", members @ [_, ..]) => Zrem(all(members)),
        ("expireat", [deadline]) => ExpireAt(deadline.parse().ok()?),
        ("persist", []) => Persist,
        _ => return None,
    };
    Some(command)
}

fn parse_set(value: &str, options: &[&str]) -> Option<Single> {
    let (mut condition, mut get, mut deadline, mut keep) = (Condition::Always, false, None, false);
    let mut rest = options;
    while let [option, more @ ..] = rest {
        rest = more;
        match option.to_ascii_lowercase().as_str() {
            "nx" if condition == Condition::Always => condition = Condition::IfAbsent,
            "xx" if condition == Condition::Always => condition = Condition::IfPresent,
            "get" => get = true,
            "keepttl" => keep = true,
            "at" => {
                let [time, more @ ..] = rest else { return None };
                deadline = Some(time.parse().ok()?);
                rest = more;
            }
            _ => return None,
        }
    }
    if keep && deadline.is_some() {
        return None;
    }
    Some(Single::Set { value: bytes(value), condition, get, deadline, keep })
}

fn bytes(text: &str) -> Bytes {
    Rc::from(text.as_bytes())
}

fn all(texts: &[&str]) -> Vec<Bytes> {
    texts.iter().map(|text| bytes(text)).collect()
}

fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn score(text: &str) -> Option<Score> {
    Score::new(text.parse().ok()?)
}
