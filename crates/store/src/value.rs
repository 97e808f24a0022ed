//! What a key holds.

use crate::bytes::Bytes;
use crate::number;
use crate::sequence::Sequence;
use crate::sorted::SortedSet;
use crate::streams::Stream;
use crate::trie::Trie;
use isochrone_core::command::{Kind, Refusal};
use isochrone_core::{Blob, Stamp};
use std::sync::Arc;

/// A key's value with what belongs to it.
#[derive(Clone, PartialEq, Hash)]
pub(crate) struct Entry {
    pub value: Value,
    /// When the key expires; [`Stamp::MAX`]: never.
    pub deadline: Stamp,
    /// Odd and replaced by every change: equal versions mean equal contents. See [`crate::Store::digest`].
    pub version: u64,
}

impl Entry {
    /// Whether the key's time is over at this stamp.
    pub fn is_over(&self, stamp: Stamp) -> bool {
        self.deadline <= stamp && self.deadline != Stamp::MAX
    }
}

/// A value: 24 bytes, cheap to clone, shared copy on write.
#[derive(Clone, PartialEq, Hash)]
pub(crate) enum Value {
    /// Bytes.
    String(Bytes),
    /// A string that is a counter: a sum allocates nothing.
    Integer(i64),
    Hash(Hashes),
    Set(Members),
    List(Arc<List>),
    Sorted(Arc<SortedSet>),
    Stream(Arc<Stream>),
}

pub(crate) type Hashes = Trie<Blob>;
pub(crate) type Members = Trie<()>;
pub(crate) type List = Sequence<Blob>;

impl Value {
    /// Its type.
    pub fn kind(&self) -> Kind {
        match self {
            Value::String(_) | Value::Integer(_) => Kind::String,
            Value::Hash(_) => Kind::Hash,
            Value::Set(_) => Kind::Set,
            Value::List(_) => Kind::List,
            Value::Sorted(_) => Kind::SortedSet,
            Value::Stream(_) => Kind::Stream,
        }
    }

    /// Its bytes, if it is a string, as they lie.
    pub fn string(&self) -> Result<Bytes, Refusal> {
        match self {
            Value::String(bytes) => Ok(bytes.clone()),
            Value::Integer(number) => Ok(Bytes::Whole(number::text(*number))),
            _ => Err(Refusal::WrongType),
        }
    }

    /// Its bytes, if it is a string. Of a long one that has been edited it is a copy.
    pub fn bytes(&self) -> Result<Blob, Refusal> {
        self.string().map(|bytes| bytes.blob())
    }

    /// How many elements it holds; of a string none.
    pub fn len(&self) -> usize {
        match self {
            Value::String(_) | Value::Integer(_) => 0,
            Value::Hash(held) => held.len(),
            Value::Set(held) => held.len(),
            Value::List(held) => held.len(),
            Value::Sorted(held) => held.len(),
            Value::Stream(held) => held.len(),
        }
    }
}

/// A collection that a [`Value`] can be.
pub(crate) trait Collection: Default {
    /// The collection in a value, if it is of this kind.
    fn view(value: &Value) -> Option<&Self>;
    /// The same, to be changed.
    fn open(value: &mut Value) -> Option<&mut Self>;
    /// The collection as a value.
    fn wrap(self) -> Value;
    /// Whether it holds nothing; a value never does, unless it is a stream, which outlives its entries and groups.
    fn is_empty(&self) -> bool;
}

macro_rules! collection {
    ($kind:ty, $variant:ident, $value:ident: $view:expr, $open:expr, $wrap:expr) => {
        impl Collection for $kind {
            fn view(value: &Value) -> Option<&Self> {
                if let Value::$variant($value) = value { Some($view) } else { None }
            }
            fn open(value: &mut Value) -> Option<&mut Self> {
                if let Value::$variant($value) = value { Some($open) } else { None }
            }
            fn wrap(self) -> Value {
                let $value = self;
                Value::$variant($wrap)
            }
            fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }
    };
}

collection!(Hashes, Hash, held: held, held, held);
collection!(Members, Set, held: held, held, held);
collection!(List, List, held: held, Arc::make_mut(held), Arc::new(held));
collection!(SortedSet, Sorted, held: held, Arc::make_mut(held), Arc::new(held));

impl Collection for Stream {
    fn view(value: &Value) -> Option<&Self> {
        if let Value::Stream(held) = value { Some(held) } else { None }
    }
    fn open(value: &mut Value) -> Option<&mut Self> {
        if let Value::Stream(held) = value { Some(Arc::make_mut(held)) } else { None }
    }
    fn wrap(self) -> Value {
        Value::Stream(Arc::new(self))
    }
    fn is_empty(&self) -> bool {
        false
    }
}
