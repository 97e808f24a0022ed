//! How many keys of clients a replica holds, how many of them have a deadline, and of which it is over.
//!
//! The latest committed versions are counted as they are written, so nobody walks through the keys. A key whose deadline
//! has passed counts until a command deletes it, which the host asks for where nobody touches the key.

use crate::directory::located;
use crate::map::{Map, Split};
use isochrone_core::{Blob, Effects, Fact, Process, Stamp};
use isochrone_store::entry::deadline;
use isochrone_store::versions::{Count, Kind, Versions};

/// The store of a replica, before anything is written.
pub(crate) fn versions(map: &Map) -> Versions {
    Versions::counting(match map.split {
        Split::Named => in_directory,
        Split::Hash | Split::Ranges(_) => plain,
    })
}

fn plain(_: &[u8], value: &[u8]) -> Kind {
    deadline(value).map_or(Kind::Lasting, Kind::Expiring)
}

/// Where a directory says which partition has a key, its own entries are among the keys.
fn in_directory(key: &[u8], value: &[u8]) -> Kind {
    if located::is_entry(key) { Kind::Apart } else { plain(key, located::bare(value)) }
}

/// Keys of clients that are past their deadline at this stamp, the earliest first.
pub(crate) fn overdue(store: &Versions, split: &Split, stamp: Stamp, most: usize) -> Vec<Blob> {
    let keys = store.overdue(stamp).take(most);
    match split {
        Split::Named => keys.filter_map(located::plain).collect(),
        Split::Hash | Split::Ranges(_) => keys.map(Blob::from).collect(),
    }
}

/// What was last told of the keys of one replica.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Census {
    told: Option<Count>,
}

impl Census {
    /// Tells how many keys there are, where that has changed.
    pub(crate) fn tell<P: Process>(
        &mut self,
        count: Count,
        note: impl Fn(Fact) -> P::Mark,
        effects: &mut Effects<P>,
    ) {
        if self.told.replace(count) != Some(count) {
            effects.mark(note(Fact::stands("keys", count.keys as u64)));
            effects.mark(note(Fact::stands("keys_with_deadline", count.expiring as u64)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::values::encode;
    use isochrone_core::command::{Command, ExpiryCondition, Operation};
    use isochrone_core::{PartitionId, StateMachine as _};
    use isochrone_store::Store;
    use isochrone_store::versions::Version;

    /// A key without a deadline and one with it, plain and as a directory stores them, moved ones too.
    #[test]
    fn keys_are_counted_however_they_are_stored() {
        let (lasting, mut store) = (encode(&"a".into(), "v".into(), Stamp::from_nanos(5)), Store::default());
        store.enter(&"a".into(), &lasting).unwrap();
        let (key, at) = ("a".into(), Stamp::from_nanos(100));
        let condition = ExpiryCondition::Always;
        store.apply(&Command::new(Stamp::from_nanos(6), Operation::ExpireAt { key, at, condition }));
        let expiring = store.entry(b"a").unwrap();
        assert_eq!((plain(b"a", &lasting), plain(b"a", &expiring)), (Kind::Lasting, Kind::Expiring(at)));
        assert_eq!(plain(b"a", b"what no command has written"), Kind::Lasting);
        let mut keys = Versions::counting(plain);
        keys.put(&"a".into(), Version(1), Some(expiring.clone()));
        keys.put(&"b".into(), Version(1), Some(lasting.clone()));
        let due = |keys: &Versions, split, nanos| overdue(keys, split, Stamp::from_nanos(nanos), 9);
        assert_eq!([99, 100].map(|at| due(&keys, &Split::Hash, at)), [vec![], vec!["a".into()]]);

        let key = located::key(PartitionId(3), b"a");
        let moved = |value: &Blob| located::moved(&located::value(value), Version(7));
        let mut keys = Versions::counting(in_directory);
        keys.put(&key, Version(8), Some(moved(&expiring)));
        assert_eq!([99, 100].map(|at| due(&keys, &Split::Named, at)), [vec![], vec!["a".into()]]);
        for (value, kind) in [(lasting, Kind::Lasting), (expiring, Kind::Expiring(at))] {
            assert_eq!(in_directory(&key, &located::value(&value)), kind);
            assert_eq!(in_directory(&key, &moved(&value)), kind);
        }
        assert_eq!(in_directory(&located::entry(PartitionId(3)), b"routes"), Kind::Apart);
    }
}
