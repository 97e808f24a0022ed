//! A hash map that never shows its order.

use rustc_hash::{FxBuildHasher, FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// A map for look-ups alone: it cannot be iterated, so that nothing can depend on where its hashes put things.
/// Two that hold the same are equal and hash alike, however they came by it.
///
/// For what lies on the way of every command: in an ordered map, finding the place in the order and shifting the
/// neighbours would be most of the cost.
#[derive(Clone, Debug)]
pub struct Table<K, V>(FxHashMap<K, V>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table(FxHashMap::with_hasher(FxBuildHasher))
    }
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// Whether the key has a value.
    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// The value of a key, made where there was none.
    pub fn or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.0.entry(key).or_insert_with(make)
    }

    /// Sets the value of a key and gives the former one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// Removes a key and gives its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// Removes what does not pass. In which order that is asked is nobody's business.
    pub fn retain(&mut self, keep: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain(keep);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Hash + Eq, V: PartialEq> PartialEq for Table<K, V> {
    fn eq(&self, other: &Table<K, V>) -> bool {
        self.0 == other.0
    }
}

impl<K: Hash + Eq, V: Eq> Eq for Table<K, V> {}

impl<K: Hash, V: Hash> Hash for Table<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_unordered(self.0.iter(), state);
    }
}

/// Hashes entries whose order says nothing: a sum has none.
pub(crate) fn hash_unordered<T: Hash, H: Hasher>(entries: impl ExactSizeIterator<Item = T>, state: &mut H) {
    let count = entries.len();
    let sum = entries.fold(0u64, |sum, entry| {
        let mut hasher = FxHasher::default();
        entry.hash(&mut hasher);
        sum.wrapping_add(hasher.finish())
    });
    (count, sum).hash(state);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(table: &Table<u64, u64>) -> u64 {
        let mut hasher = FxHasher::default();
        table.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn how_it_was_filled_does_not_show() {
        let (mut up, mut down) = (Table::default(), Table::default());
        for key in 0..1_000 {
            up.insert(key, key * 7);
        }
        for key in (0..2_000).rev() {
            down.insert(key, key * 7);
        }
        assert_ne!(hash(&up), hash(&down));
        (1_000..2_000).for_each(|key| assert_eq!(down.remove(&key), Some(key * 7)));
        assert_eq!((up.len(), &up, hash(&up)), (1_000, &down, hash(&down)));
        down.insert(3, 4);
        assert_ne!((&up, hash(&up)), (&down, hash(&down)));
        down.retain(|key, _| *key == 3);
        assert_eq!((down.len(), down.get(&3)), (1, Some(&4)));
    }
}
