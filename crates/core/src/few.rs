//! Mostly one.

use std::hash::{Hash, Hasher};

/// A list that is mostly empty or has one member, which lies in place: no memory is asked for until there
/// are two.
#[derive(Clone, Debug)]
pub struct Few<T>(Held<T>);

#[derive(Clone, Debug)]
enum Held<T> {
    None,
    One(T),
    // Two words, so that a list takes no more room than its one member.
    Many(Box<[T]>),
}

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few(Held::None)
    }
}

impl<T> Few<T> {
    /// This one.
    pub fn one(t: T) -> Few<T> {
        Few(Held::One(t))
    }

    /// The members, in the order they came in.
    pub fn as_slice(&self) -> &[T] {
        match &self.0 {
            Held::None => &[],
            Held::One(one) => std::slice::from_ref(one),
            Held::Many(many) => many,
        }
    }

    /// The same, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        match &mut self.0 {
            Held::None => &mut [],
            Held::One(one) => std::slice::from_mut(one),
            Held::Many(many) => many,
        }
    }

    /// Adds one behind the others.
    pub fn push(&mut self, t: T) {
        self.0 = match std::mem::replace(&mut self.0, Held::None) {
            Held::None => Held::One(t),
            Held::One(one) => Held::Many(Box::new([one, t])),
            Held::Many(many) => Held::Many(many.into_iter().chain([t]).collect()),
        };
    }

    /// Keeps those that `keep` says.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        match &mut self.0 {
            Held::None => {}
            Held::One(one) => {
                if !keep(one) {
                    self.0 = Held::None;
                }
            }
            Held::Many(many) => {
                let mut kept = std::mem::take(many).into_vec();
                kept.retain(keep);
                *many = kept.into_boxed_slice();
            }
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}

impl<T: PartialEq> PartialEq for Few<T> {
    fn eq(&self, other: &Few<T>) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Eq> Eq for Few<T> {}

impl<T: Hash> Hash for Few<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_list() {
        let mut few = Few::default();
        let mut list = Vec::new();
        for number in 0..4 {
            assert_eq!((few.as_slice(), few.is_empty()), (&list[..], list.is_empty()));
            few.push(number);
            list.push(number);
        }
        few.as_mut_slice()[2] = 7;
        few.retain(|number| *number == 7);
        let mut one = Few::default();
        one.push(7);
        assert_eq!((few.as_slice(), &few), (&[7][..], &one));
        few.retain(|_| false);
        assert_eq!(few, Few::default());
    }
}
