//! Replies to commands.

use bytes::Bytes;
use isochrone_proto::v1::value::Kind;
use isochrone_proto::v1::{Pair, Value};

/// The reply to a command, as RESP3 has it.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// Nothing.
    Null,
    /// A status, such as `OK`.
    Status(String),
    /// The command was refused for what a key holds; the first word is the code.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A number with a fraction.
    Double(f64),
    /// A string.
    Bytes(Bytes),
    /// Several, in order.
    List(Vec<Reply>),
    /// Several, each once.
    Set(Vec<Reply>),
    /// Pairs.
    Map(Vec<(Reply, Reply)>),
}

impl Reply {
    pub(crate) fn of(value: Value) -> Reply {
        let all = |values: Vec<Value>| values.into_iter().map(Reply::of).collect();
        let one = |value: Option<Value>| value.map_or(Reply::Null, Reply::of);
        match value.kind {
            None | Some(Kind::Null(_)) => Reply::Null,
            Some(Kind::Status(text)) => Reply::Status(text),
            Some(Kind::Error(text)) => Reply::Error(text),
            Some(Kind::Integer(value)) => Reply::Integer(value),
            Some(Kind::Double(value)) => Reply::Double(value),
            Some(Kind::Bytes(bytes)) => Reply::Bytes(bytes),
            Some(Kind::List(list)) => Reply::List(all(list.values)),
            Some(Kind::Set(set)) => Reply::Set(all(set.values)),
            Some(Kind::Map(map)) => {
                let pair = |Pair { key, value }| (one(key), one(value));
                Reply::Map(map.pairs.into_iter().map(pair).collect())
            }
        }
    }
}
