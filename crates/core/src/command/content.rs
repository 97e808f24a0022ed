//! What a key holds, whole: how a value leaves a keyspace, and how it comes into one.

use super::{Score, StreamId};
use crate::{Blob, Stamp};
use serde::{Deserialize, Serialize};

/// A value of any type, in whatever form it is kept.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Content {
    /// Bytes.
    String(Blob),
    /// A string that is a counter.
    Integer(i64),
    /// Fields, each once, with their values.
    Hash(Vec<(Blob, Blob)>),
    /// Members, each once.
    Set(Vec<Blob>),
    /// Elements in order.
    List(Vec<Blob>),
    /// Members, each once, with their scores.
    Sorted(Vec<(Score, Blob)>),
    /// The highest identifier ever given, and entries in order.
    Stream(StreamId, Vec<Dated>),
}

/// An entry of a stream.
pub type Dated = (StreamId, Vec<(Blob, Blob)>);

/// A value that a key is given whole.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Restore {
    /// The value.
    pub content: Content,
    /// When the key expires, if ever.
    pub deadline: Option<Stamp>,
    /// Whatever was there.
    pub replace: bool,
}
