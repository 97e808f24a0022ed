//! Things that wait until a rising mark has passed a point.

use std::collections::BTreeMap;

/// What waits, by the point it waits for; among equals, first come first served.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Waiters<P, T> {
    parked: BTreeMap<P, Vec<T>>,
}

impl<P, T> Default for Waiters<P, T> {
    fn default() -> Waiters<P, T> {
        Waiters { parked: BTreeMap::new() }
    }
}

impl<P: Ord, T> Waiters<P, T> {
    /// Waits until the mark has reached `at`.
    pub fn park(&mut self, at: P, t: T) {
        self.parked.entry(at).or_default().push(t);
    }

    /// Takes out all whose point is at or below the mark, in order.
    pub fn release(&mut self, upto: P) -> impl Iterator<Item = T> {
        let mut due = Vec::new();
        while let Some(first) = self.parked.first_entry() {
            if *first.key() > upto {
                break;
            }
            due.push(first.remove());
        }
        due.into_iter().flatten()
    }

    /// The nearest point that anything waits for.
    pub fn first(&self) -> Option<&P> {
        self.parked.first_key_value().map(|(point, _)| point)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// Takes out everything, in order: the mark will not be reached.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        std::mem::take(&mut self.parked).into_values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_leave_in_the_order_of_their_points() {
        let mut waiters = Waiters::default();
        for (at, name) in [(5, 'c'), (2, 'a'), (9, 'e'), (5, 'd'), (2, 'b')] {
            waiters.park(at, name);
        }
        assert_eq!(waiters.first(), Some(&2));
        assert_eq!(waiters.release(1).count(), 0);
        assert_eq!(waiters.release(5).collect::<String>(), "abcd");
        assert_eq!(waiters.first(), Some(&9));
        assert_eq!(waiters.drain().collect::<String>(), "e");
        assert!(waiters.is_empty());
    }
}
