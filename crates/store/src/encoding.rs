//! `OBJECT ENCODING`: the names that Redis gives to its forms of values. There is one form of each type
//! here; tools and tests ask for the name, so they are told the one that Redis' default settings give
//! to a value of these contents that was made in one go.

use crate::Store;
use crate::number;
use crate::value::Value;
use isochrone_core::command::Response;

/// Strings up to this length lie in one piece with their header.
const EMBEDDED_MAX: usize = 44;
/// Collections with more elements, or with a longer one, are no longer packed.
const PACKED_FIELDS: usize = 512;
pub(crate) const PACKED_MEMBERS: usize = 128;
const PACKED_BYTES: usize = 64;
/// The most members of a set of integers.
const INTEGERS: usize = 512;

impl Store {
    pub(crate) fn encoding(&self, key: &[u8]) -> Response {
        let Some(entry) = self.keys.get(key) else { return Response::Nil };
        let short = |bytes: &[u8]| bytes.len() <= PACKED_BYTES;
        let name = match &entry.value {
            Value::Integer(_) => "int",
            Value::String(bytes) if bytes.whole().is_some_and(|bytes| number::integer(bytes).is_some()) => {
                "int"
            }
            Value::String(bytes) if bytes.len() <= EMBEDDED_MAX => "embstr",
            Value::String(_) => "raw",
            Value::Hash(hash)
                if hash.len() <= PACKED_FIELDS
                    && hash.iter().all(|entry| short(entry.key) && short(entry.value)) =>
            {
                "listpack"
            }
            Value::Set(set)
                if set.len() <= INTEGERS && set.iter().all(|entry| number::integer(entry.key).is_some()) =>
            {
                "intset"
            }
            Value::Hash(_) | Value::Set(_) => "hashtable",
            Value::List(_) => "quicklist",
            Value::Sorted(set)
                if set.len() <= PACKED_MEMBERS && set.by_hash().iter().all(|entry| short(entry.key)) =>
            {
                "listpack"
            }
            Value::Sorted(_) => "skiplist",
            Value::Stream(_) => "stream",
        };
        Response::bulk(name.as_bytes())
    }
}
