//! Members in the order of their scores.

use crate::key::{Key, Name};
use crate::sequence::Sequence;
use crate::trie::Trie;
use isochrone_core::command::{LexBound, Score, ScoreBound, Selection};
use std::hash::{Hash, Hasher};
use std::ops::Range;

/// A sorted set: each member's score, and all of them in the order of scores, then members.
#[derive(Clone, Default)]
pub(crate) struct SortedSet {
    scores: Trie<Score>,
    order: Sequence<(Score, Key)>,
}

impl SortedSet {
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The score of a member.
    pub fn score(&self, member: &[u8]) -> Option<Score> {
        self.scores.get(member).copied()
    }

    /// The members with their scores in the order of their hashes, for scans.
    pub fn by_hash(&self) -> &Trie<Score> {
        &self.scores
    }

    /// The members in order.
    pub fn order(&self) -> &Sequence<(Score, Key)> {
        &self.order
    }

    /// Gives a member this score and tells the former one.
    pub fn set(&mut self, member: &impl Name, score: Score) -> Option<Score> {
        let former = self.scores.insert(member, score);
        match former {
            Some(former) if former == score => return Some(former),
            Some(former) => self.forget(member, former),
            None => {}
        }
        let place = self.order.seek(|(held, name)| (*held, &name[..]) < (score, member));
        self.order.insert(place, (score, member.to_key()));
        former
    }

    /// Removes a member and tells its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<Score> {
        let score = self.scores.remove(member)?;
        self.forget(member, score);
        Some(score)
    }

    /// Removes the members at these positions.
    pub fn remove_range(&mut self, range: Range<usize>) -> Vec<(Score, Key)> {
        let removed: Vec<_> = self.order.range(range.clone()).cloned().collect();
        for (_, member) in &removed {
            self.scores.remove(member);
        }
        self.order.cut(range);
        removed
    }

    /// How many members stand in front of this one.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, Score)> {
        let score = self.score(member)?;
        let place = self.order.seek(|(held, name)| (*held, &name[..]) < (score, member));
        Some((self.order.index(place), score))
    }

    /// The positions that a selection means.
    pub fn select(&self, selection: &Selection) -> Range<usize> {
        match selection {
            Selection::Index { start, stop } => positions(*start, *stop, self.len()),
            Selection::Score { min, max } => {
                let start = self.index(|score, _| below(score, min, true));
                let end = self.index(|score, _| below(score, max, false));
                start..end.max(start)
            }
            Selection::Lex { min, max } => {
                let (start, end) = if self.has_one_score() {
                    let start = self.index(|_, member| before(member, min, true));
                    (start, self.index(|_, member| before(member, max, false)))
                } else {
                    self.walk(min, max)
                };
                start..end.max(start)
            }
        }
    }

    fn has_one_score(&self) -> bool {
        let last = self.len().checked_sub(1).and_then(|last| self.order.get(last));
        self.order.get(0).map(|(score, _)| score) == last.map(|(score, _)| score)
    }

    /// Where members of several scores are asked for by their names, by which they have no order then: from the first that is
    /// not before the range up to the first from there on that is behind it, as Redis answers for small sets. What a search
    /// would find depends on how the members lie in memory, which replicas need not have in common.
    fn walk(&self, min: &LexBound, max: &LexBound) -> (usize, usize) {
        let is_behind = |member: &[u8]| !before(member, max, false);
        let mut members = self.order.iter().map(|(_, member)| &member[..]).enumerate();
        let ends = self.order.get(0).zip(self.len().checked_sub(1).and_then(|last| self.order.get(last)));
        if ends.is_none_or(|((_, first), (_, last))| is_behind(first) || before(last, min, true)) {
            return (0, 0);
        }
        match members.find(|(_, member)| !before(member, min, true)) {
            Some((start, member)) if !is_behind(member) => {
                (start, members.find(|(_, member)| is_behind(member)).map_or(self.len(), |(end, _)| end))
            }
            _ => (0, 0),
        }
    }

    fn index(&self, before: impl Fn(Score, &[u8]) -> bool) -> usize {
        self.order.index(self.order.seek(|(score, member)| before(*score, member)))
    }

    fn forget(&mut self, member: &[u8], score: Score) {
        let place = self.order.seek(|(held, name)| (*held, &name[..]) < (score, member));
        let (_, removed) = self.order.remove(place);
        debug_assert!(removed[..] == *member, "{removed:?} stood where {} belongs", member.escape_ascii());
    }
}

/// Whether a score lies in front of a range that begins (`lower`) or ends at this bound.
fn below(score: Score, bound: &ScoreBound, lower: bool) -> bool {
    if bound.exclusive == lower { score <= bound.score } else { score < bound.score }
}

/// The same for members.
fn before(member: &[u8], bound: &LexBound, lower: bool) -> bool {
    match bound {
        LexBound::First => false,
        LexBound::Last => true,
        LexBound::Inclusive(edge) => {
            if lower {
                member < &edge[..]
            } else {
                member <= &edge[..]
            }
        }
        LexBound::Exclusive(edge) => {
            if lower {
                member <= &edge[..]
            } else {
                member < &edge[..]
            }
        }
    }
}

/// The positions from `start` to `stop`, both included and counted from the end where negative.
pub(crate) fn positions(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len = len as i64;
    let start = if start < 0 { (len.saturating_add(start)).max(0) } else { start };
    let stop = if stop < 0 { len.saturating_add(stop) } else { stop.min(len - 1) };
    if start > stop || start >= len { 0..0 } else { start as usize..stop as usize + 1 }
}

impl<N: Name> FromIterator<(Score, N)> for SortedSet {
    fn from_iter<I: IntoIterator<Item = (Score, N)>>(members: I) -> SortedSet {
        let mut set = SortedSet::default();
        for (score, member) in members {
            set.set(&member, score);
        }
        set
    }
}

impl PartialEq for SortedSet {
    fn eq(&self, other: &SortedSet) -> bool {
        self.order == other.order
    }
}

impl Hash for SortedSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.order.hash(state);
    }
}
