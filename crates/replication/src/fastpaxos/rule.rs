//! What votes oblige a coordinator to: pure functions over what was voted at one index.
//!
//! Source: `specs/domino.md` 2.2, 3.5, 4.4. All sizes come from [`Quorums`].

use isochrone_core::Quorums;

/// What a coordinator may propose at an index.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Pick<N> {
    /// This may have been chosen, by enough equal fast votes: nothing else.
    Forced(N),
    /// Nothing can have been chosen. These were voted for: most votes first, then the smallest.
    Free(Vec<N>),
}

/// Each value with the number of its votes: most votes first, then the smallest. `None` is a replica that
/// has no vote here and will cast none.
fn counts<N: Ord + Copy>(votes: impl Iterator<Item = Option<N>>) -> Vec<(N, usize)> {
    let mut counts: Vec<(N, usize)> = Vec::new();
    for name in votes.flatten() {
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    counts.sort_by(|(a, most), (b, count)| count.cmp(most).then(a.cmp(b)));
    counts
}

/// How many equal votes oblige, when `collected` of `n` replicas have told.
pub fn threshold(n: usize, collected: usize) -> usize {
    Quorums::recovery(n, collected)
}

/// What may be proposed when these replicas, a majority at least, have told what they voted in the highest
/// ballot, and `threshold` equal votes oblige (`specs/domino.md` 3.5).
pub fn pick<N: Ord + Copy>(threshold: usize, votes: impl Iterator<Item = Option<N>>) -> Pick<N> {
    let counts = counts(votes);
    match counts.first() {
        Some((name, count)) if *count >= threshold => Pick::Forced(*name),
        _ => Pick::Free(counts.into_iter().map(|(name, _)| name).collect()),
    }
}

/// How the votes of an open index stand.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Standing<N> {
    /// A fast quorum has voted for it.
    Chosen(N),
    /// No value can get a fast quorum any more.
    Hopeless,
    /// What is not known yet may complete a fast quorum.
    Open,
}

/// How the votes of `n` replicas stand as far as they are known, when `fast` equal ones choose.
pub fn standing<N: Ord + Copy>(
    n: usize,
    fast: usize,
    votes: impl Iterator<Item = Option<N>> + Clone,
) -> Standing<N> {
    let unknown = n - votes.clone().count().min(n);
    match counts(votes).first() {
        Some((name, count)) if *count >= fast => Standing::Chosen(*name),
        Some((_, count)) if count + unknown < fast => Standing::Hopeless,
        None if unknown < fast => Standing::Hopeless,
        _ => Standing::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way in which `n` replicas may each have voted for one of two values, or not at all.
    fn patterns(n: usize, values: u32) -> impl Iterator<Item = Vec<Option<u32>>> {
        let base = values + 1;
        (0..base.pow(n as u32)).map(move |mut code| {
            let digit = |_| {
                let digit = code % base;
                code /= base;
                digit.checked_sub(1)
            };
            (0..n).map(digit).collect()
        })
    }

    #[test]
    fn fast_quorums_intersect_as_they_must() {
        for n in [3, 5, 7] {
            let (fast, majority) = (Quorums::supermajority(n), Quorums::majority(n));
            assert!(2 * fast + majority > 2 * n, "n = {n}");
            assert!(2 * (fast - 1) + majority <= 2 * n, "a fast quorum of {n} could be smaller");
            // Every pair of fast quorums and every majority, by members.
            let sets = |size: usize| (0u32..1 << n).filter(move |set| set.count_ones() as usize == size);
            for a in sets(fast) {
                for b in sets(fast) {
                    assert!(sets(majority).all(|m| a & b & m != 0), "n = {n}: {a:b} {b:b}");
                }
            }
        }
    }

    /// `specs/domino.md` S7: whoever answers, a value chosen fast, or one that may still come to be, is
    /// picked; and nothing else obliges.
    #[test]
    fn the_rule_never_contradicts_a_fast_choice() {
        for n in [3, 5, 7] {
            let (fast, majority) = (Quorums::supermajority(n), Quorums::majority(n));
            let mut forced = 0;
            for votes in patterns(n, if n == 7 { 2 } else { 3 }) {
                let all = |value| votes.iter().filter(|vote| **vote == Some(value)).count();
                let chosen = (0..3).find(|value| all(*value) >= fast);
                for asked in (0u32..1 << n).filter(|asked| asked.count_ones() as usize >= majority) {
                    let answers = || (0..n).filter(|seat| asked & (1 << seat) != 0).map(|seat| votes[seat]);
                    let collected = asked.count_ones() as usize;
                    let seen = |value| answers().filter(|vote| *vote == Some(value)).count();
                    // Those not asked may all have voted for it.
                    let possible = |value: &u32| seen(*value) + n - collected >= fast;
                    match pick(threshold(n, collected), answers()) {
                        Pick::Forced(value) => {
                            forced += 1;
                            assert!(chosen.is_none_or(|chosen| chosen == value), "{votes:?} {asked:b}");
                            assert!(possible(&value), "{votes:?} {asked:b}: {value} obliges for nothing");
                            let other = (0..3).filter(possible).count();
                            assert_eq!(other, 1, "{votes:?} {asked:b}: two may have been chosen");
                        }
                        Pick::Free(names) => {
                            assert_eq!(chosen, None, "{votes:?} {asked:b}");
                            assert_eq!((0..3).find(possible), None, "{votes:?} {asked:b}");
                            assert!(names.windows(2).all(|pair| {
                                (seen(pair[1]), pair[0]) < (seen(pair[0]), pair[1])
                                    || seen(pair[0]) > seen(pair[1])
                            }));
                            assert_eq!(names.len(), (0..3).filter(|value| seen(*value) > 0).count());
                        }
                    }
                }
            }
            assert!(forced > 0);
        }
    }

    #[test]
    fn a_standing_is_final_exactly_when_nothing_unknown_can_change_it() {
        for n in [3, 5] {
            let fast = Quorums::supermajority(n);
            for votes in patterns(n, 2) {
                for known in 0u32..1 << n {
                    let told = (0..n).filter(|seat| known & (1 << seat) != 0).map(|seat| votes[seat]);
                    let unknown = n - known.count_ones() as usize;
                    let seen = |value: u32| told.clone().filter(|vote| *vote == Some(value)).count();
                    let expected = match (0..2).find(|value| seen(*value) >= fast) {
                        Some(value) => Standing::Chosen(value),
                        None if (0..3).all(|value| seen(value) + unknown < fast) => Standing::Hopeless,
                        None => Standing::Open,
                    };
                    assert_eq!(standing(n, fast, told.clone()), expected, "{votes:?} {known:b}");
                }
            }
        }
    }

    #[test]
    fn the_example_of_the_source() {
        // Figure 4.6: two accept, one is late, n = 3: nothing is forced, the request is picked.
        let votes = [Some('r'), Some('r'), None];
        assert_eq!(threshold(3, 3), 3);
        assert_eq!(pick(threshold(3, 3), votes.iter().copied()), Pick::Free(vec!['r']));
        // One of the three is down: the other two may be two of three equal votes.
        assert_eq!(pick(threshold(3, 2), votes[..2].iter().copied()), Pick::Forced('r'));
    }
}
