//! What crosses a wire or reaches a disk.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::hash::Hash;
use thiserror::Error;

/// The format of what nodes keep: of the segments of journals and of snapshots, and of the records and states in them, which do
/// not say their own shape. Whoever reads less refuses them whole, before anything in them is decoded. It is raised with every
/// change of that shape, to which [`crate::shape`] holds it.
pub const RECORDED: u32 = 2;

/// A message or record: encoded with `postcard`, comparable and hashable so that a trace has a
/// fingerprint and a model checker can tell states apart.
pub trait Wire: Serialize + DeserializeOwned + Clone + Debug + Eq + Hash + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Clone + Debug + Eq + Hash + Send + Sync + 'static> Wire for T {}

/// Bytes that are not what they were taken for.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
#[error("{length} bytes are no {kind}: {cause}")]
pub struct DecodeError {
    /// The type that was expected.
    pub kind: &'static str,
    /// How many bytes there were.
    pub length: usize,
    /// What was wrong with them.
    pub cause: postcard::Error,
}

/// Appends the encoding of `value` to `out`.
#[expect(clippy::expect_used, reason = "growing a vector cannot fail to encode a Wire type")]
pub fn encode_into<T: Serialize>(value: &T, out: &mut Vec<u8>) {
    // `to_extend` takes the buffer by value and gives it back: no copy.
    *out = postcard::to_extend(value, std::mem::take(out)).expect("encoding into a vector");
}

/// The encoding of `value`.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    encode_into(value, &mut out);
    out
}

/// The value that `bytes` encode, whole: bytes left over are an error.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let error = |cause| DecodeError { kind: std::any::type_name::<T>(), length: bytes.len(), cause };
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(error(postcard::Error::DeserializeBadEncoding)),
        Err(cause) => Err(error(cause)),
    }
}

/// The value that the beginning of `bytes` encodes, and the bytes behind it.
///
/// # Errors
/// Bytes that are no such value.
pub fn decode_prefix<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), DecodeError> {
    postcard::take_from_bytes(bytes).map_err(|cause| DecodeError {
        kind: std::any::type_name::<T>(),
        length: bytes.len(),
        cause,
    })
}

/// How many bytes `value` takes on the wire, without making them.
#[expect(clippy::expect_used, reason = "every Wire type can be encoded, so it has a size")]
pub fn encoded_size<T: Serialize>(value: &T) -> usize {
    postcard::experimental::serialized_size(value).expect("a Wire type has a size")
}
