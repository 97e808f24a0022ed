//! Which keys a command touches, and how.

use isochrone_core::Blob;
use isochrone_core::command::{Operation, Touch};
use std::collections::BTreeMap;

/// What is done to a key.
#[derive(Copy, Clone, Default, Eq, PartialEq, Hash, Debug)]
pub(super) struct Use {
    /// The reply or what is written depends on what was there.
    pub reads: bool,
    /// It may be changed.
    pub writes: bool,
}

/// The keys of a command, or of several, each once.
pub(super) type Keys = BTreeMap<Blob, Use>;

/// Adds the keys of an operation.
///
/// # Errors
/// The name of a part of it that is about all keys.
pub(super) fn add(keys: &mut Keys, operation: &Operation) -> Result<(), &'static str> {
    if let Operation::Transaction { watched, operations } = operation {
        for (key, _) in watched.iter() {
            keys.entry(key.clone()).or_default().reads = true;
        }
        return operations.iter().try_for_each(|operation| add(keys, operation));
    }
    let mut whole = Ok(());
    // Only these are sure to take effect: others that write blindly are refused where an operand has the wrong type,
    // and then leave what was there.
    let surely = matches!(operation, Operation::Set { .. } | Operation::MSet { .. });
    operation.visit(&mut |touch| match touch {
        Touch::Key(key, access) => {
            let held = keys.entry(key.clone()).or_default();
            held.reads |= access.reads() || !surely;
            held.writes |= access.writes();
        }
        Touch::All(_) => whole = Err(operation.name()),
    });
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::command::{Condition, Expiry};

    fn set(key: &str, condition: Condition) -> Operation {
        let (key, value) = (key.into(), "v".into());
        Operation::Set { key, value, condition, expiry: Expiry::Clear, get: false }
    }

    #[test]
    fn only_what_surely_takes_effect_is_written_unread() {
        let of = |operation: &Operation| {
            let mut keys = Keys::default();
            add(&mut keys, operation).map(|()| keys)
        };
        let blind = Use { reads: false, writes: true };
        let both = Use { reads: true, writes: true };
        assert_eq!(of(&set("a", Condition::Always)).unwrap()[&b"a"[..]], blind);
        assert_eq!(of(&set("a", Condition::IfAbsent)).unwrap()[&b"a"[..]], both);
        let rename = Operation::Copy { key: "a".into(), target: "b".into(), replace: true };
        let keys = of(&rename).unwrap();
        assert_eq!((keys[&b"a"[..]], keys[&b"b"[..]]), (Use { reads: true, writes: false }, both));
        let watched = [(Blob::from("a"), 7)].into();
        let operations = [set("a", Condition::Always), set("b", Condition::Always)].into();
        let keys = of(&Operation::Transaction { watched, operations }).unwrap();
        assert_eq!((keys[&b"a"[..]], keys[&b"b"[..]]), (both, blind));
        let operations = [set("a", Condition::Always), Operation::Flush].into();
        assert_eq!(of(&Operation::Transaction { watched: [].into(), operations }), Err("flushdb"));
    }
}
