//! How many processes a fast decision needs.
//!
//! A protocol tolerates `f` crashes, and is fast (decides in two message delays) while no more than `e` of them have
//! happened. The sizes differ by what is asked: consensus as an object, where only those who propose must decide, or as
//! a task, where every process must.

/// Fewest processes that solve consensus as an object: `max(2e + f - 1, 2f + 1)`.
///
/// Source: PODC '25, arXiv 2505.03627. State machine replication needs no more: only the proposer's client waits.
///
/// # Panics
/// If `e` is greater than `f`: nobody is fast under more crashes than it survives.
pub fn processes_min(f: usize, e: usize) -> usize {
    assert!(e <= f, "fast under {e} crashes but tolerant of {f}");
    (2 * e + f).saturating_sub(1).max(2 * f + 1)
}

/// Under how many crashes `n` processes that tolerate `f` can be fast at most (as an object), if they can tolerate `f` at
/// all.
pub fn fast_crashes_max(n: usize, f: usize) -> Option<usize> {
    (0..=f).rev().find(|e| processes_min(f, *e) <= n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::{FastQuorums, Quorums};

    /// Fewest processes where everyone must decide fast, as Fast Paxos has it.
    fn processes_min_of_task(f: usize, e: usize) -> usize {
        (2 * e + f + 1).max(2 * f + 1)
    }

    /// EPaxos is an object: only the command leader must decide fast. Its quorums are as small as the bound allows.
    #[test]
    fn the_fast_quorums_of_epaxos_reach_the_bound_of_the_object() {
        for n in 1..=9 {
            let f = Quorums::faults(n);
            for e in 0..=f {
                let fast = n - Quorums::epaxos_fast(n) >= e;
                assert_eq!(fast, processes_min(f, e) <= n, "n = {n}, f = {f}, e = {e}");
            }
            assert_eq!(fast_crashes_max(n, f), Some(n - Quorums::epaxos_fast(n)), "n = {n}");
        }
    }

    /// In Fast Paxos, Domino, CURP and Carousel anybody who learns of a fast quorum decides: theirs are those of the task,
    /// of whatever sizes a keyspace may have.
    #[test]
    fn the_other_fast_quorums_reach_the_bound_of_the_task_and_no_more() {
        for n in 1..=9 {
            for fast in n / 2 + 1..=n {
                for classic in n / 2 + 1..=n {
                    let (f, e) = (n - classic, n - fast);
                    if e > f {
                        // Then fast ballots survive more than the protocol does, which the bound says nothing of.
                        continue;
                    }
                    let allowed = FastQuorums::sized(n, Some(fast), Some(classic)).is_ok();
                    assert_eq!(allowed, processes_min_of_task(f, e) <= n, "n = {n}, f = {f}, e = {e}");
                }
            }
            let f = Quorums::faults(n);
            let most = (0..=f).rev().find(|e| processes_min_of_task(f, *e) <= n);
            assert_eq!(most, Some(n - Quorums::supermajority(n)), "n = {n}");
        }
    }

    #[test]
    fn sizes_of_the_object_are_those_of_the_formula() {
        // f, e, processes: worked out by hand.
        let table = [
            (0, 0, 1),
            (1, 0, 3),
            (1, 1, 3),
            (2, 0, 5),
            (2, 1, 5),
            (2, 2, 5),
            (3, 0, 7),
            (3, 2, 7),
            (3, 3, 8),
            (4, 2, 9),
            (4, 3, 9),
            (4, 4, 11),
        ];
        for (f, e, processes) in table {
            assert_eq!(processes_min(f, e), processes, "f = {f}, e = {e}");
        }
    }

    #[test]
    fn the_object_needs_at_most_two_fewer_than_the_task() {
        for f in 0..=4 {
            for e in 0..=f {
                let saved = processes_min_of_task(f, e) - processes_min(f, e);
                assert!(saved <= 2, "f = {f}, e = {e}");
                assert!(processes_min(f, e) > 2 * f);
            }
        }
        assert_eq!(processes_min_of_task(1, 1), 4);
        assert_eq!(processes_min_of_task(2, 2), 7);
    }

    #[test]
    fn three_and_five_can_be_fast_under_all_their_crashes_and_seven_cannot() {
        assert_eq!(fast_crashes_max(3, 1), Some(1));
        assert_eq!(fast_crashes_max(5, 2), Some(2));
        assert_eq!(fast_crashes_max(7, 3), Some(2));
        assert_eq!(fast_crashes_max(2, 1), None);
    }
}
