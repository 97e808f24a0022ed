//! Plain values among entries: what a host's own transactions read and write, so that commands understand them.

use isochrone_core::command::{Command, Condition, Expiry, Operation, Refusal, Response};
use isochrone_core::{Blob, Malformed, Stamp, StateMachine as _};
use isochrone_store::Store;
use thiserror::Error;

/// Why an entry has no plain value.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum NoValue {
    /// It is a collection.
    #[error("the key holds a collection; only commands read that")]
    Collection,
    /// It is no entry at all.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// The entry of a key that is set to this value, as `SET` at this time would.
pub fn encode(key: &Blob, value: Blob, stamp: Stamp) -> Blob {
    let mut store = Store::default();
    let (condition, expiry, get) = (Condition::Always, Expiry::Clear, false);
    store.apply(&Command::new(stamp, Operation::Set { key: key.clone(), value, condition, expiry, get }));
    store.entry(key).unwrap_or_default()
}

/// The value of a key that holds this entry, as `GET` would have it. Its deadline is not looked at: what is over when a
/// transaction begins is deleted before ([`Ask::Transaction`](super::Ask::Transaction)), and no clock decides it again.
///
/// # Errors
/// It is no string.
pub fn decode(key: &Blob, entry: &[u8]) -> Result<Option<Blob>, NoValue> {
    let mut store = Store::default();
    store.enter(key, entry)?;
    match store.apply(&Command::new(Stamp::ZERO, Operation::Get { key: key.clone() })) {
        Response::Bulk(value) => Ok(Some(value)),
        Response::Error(Refusal::WrongType) => Err(NoValue::Collection),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::command::Side;

    #[test]
    fn a_plain_value_is_a_string_of_commands() {
        let (key, stamp) = (Blob::from("a"), Stamp::from_nanos(5));
        let entry = encode(&key, "v".into(), stamp);
        assert_eq!(decode(&key, &entry), Ok(Some("v".into())));
        assert_ne!(entry, encode(&key, "v".into(), Stamp::from_nanos(6)), "whoever watches it sees a change");
        let mut store = Store::default();
        store.enter(&key, &entry).unwrap();
        let at = Stamp::from_nanos(100);
        let condition = isochrone_core::command::ExpiryCondition::Always;
        store.apply(&Command::new(stamp, Operation::ExpireAt { key: key.clone(), at, condition }));
        let dated = store.entry(&key).unwrap();
        assert_eq!(decode(&key, &dated), Ok(Some("v".into())), "there until a command deletes it");
        let (values, side) = (["x".into()].into(), Side::Left);
        store.apply(&Command::new(
            at,
            Operation::Push { key: key.clone(), values, side, only_if_exists: false },
        ));
        assert_eq!(decode(&key, &store.entry(&key).unwrap()), Err(NoValue::Collection));
        assert!(matches!(decode(&key, b"plain"), Err(NoValue::Malformed(_))));
    }
}
