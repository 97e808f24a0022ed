//! Which operations may be noticed to delete what has expired for them.

use super::super::Timed;
use super::Op;
use super::command::{Command, Single};
use crate::planted::{Mutation, planted};

/// Clears `purges` where nobody can tell whether the operation deleted an expired key.
///
/// That an operation with stamp `s` deleted a key with deadline `d <= s` is noticed only by a later operation that
/// would have seen the key alive: one with a stamp below `d`. Clocks are mostly near each other, so mostly there is
/// none, and a read then changes nothing that counts.
pub(super) fn simplify(operations: &mut [Timed<Op>]) {
    let mut deadlines: Vec<u64> = operations.iter().filter_map(|operation| deadline(&operation.op)).collect();
    deadlines.sort_unstable();
    if deadlines.is_empty() || planted(Mutation::ExpiredKept) {
        for operation in operations {
            operation.op.purges = false;
            // Equal but for their stamps, operations are now alike.
            operation.op.stamp = operation.op.stamp.filter(|_| !deadlines.is_empty());
        }
        return;
    }
    // By time of return, latest first, with the lowest stamp so far; without a stamp an operation sees everything.
    let mut returns: Vec<(u64, u64)> = operations
        .iter()
        .map(|operation| (operation.returned.unwrap_or(u64::MAX), operation.op.stamp.unwrap_or(0)))
        .collect();
    returns.sort_unstable_by_key(|(returned, _)| std::cmp::Reverse(*returned));
    let mut lowest = u64::MAX;
    for (_, stamp) in &mut returns {
        lowest = lowest.min(*stamp);
        *stamp = lowest;
    }
    for operation in operations {
        let Some(stamp) = operation.op.stamp else { continue };
        // Whatever had returned before it was invoked does not come later. It counts itself, which changes nothing.
        let later = returns.partition_point(|(returned, _)| *returned >= operation.invoked);
        let lowest = later.checked_sub(1).map_or(u64::MAX, |last| returns[last].1);
        let next = deadlines.partition_point(|deadline| *deadline <= lowest);
        operation.op.purges = deadlines.get(next).is_some_and(|deadline| *deadline <= stamp);
    }
}

/// The deadline that an operation may set.
fn deadline(op: &Op) -> Option<u64> {
    match &op.command {
        Command::Single(Single::Set { deadline, .. }) => *deadline,
        Command::Single(Single::ExpireAt(deadline)) => Some(*deadline),
        _ => None,
    }
}
