//! A serial order, held against every answer.

use super::history::{Access, Transactions};
use super::versions::Versions;
use crate::planted::{Mutation, planted};

/// Whether every transaction that took effect, run one after another in this order, reads what it read.
///
/// This is the definition of serializability and shares nothing with the search for circles, so that each is a check
/// of the other.
pub(super) fn explains(order: &[u32], history: &Transactions, versions: &Versions) -> bool {
    let expected = versions.effective.iter().filter(|effective| **effective).count();
    let order: Vec<u32> = order.iter().copied().filter(|index| versions.effective[*index as usize]).collect();
    if order.len() != expected {
        return false;
    }
    // The versions of each transaction, in its own order.
    let mut own: Vec<Vec<u32>> = vec![Vec::new(); history.list.len()];
    for (version, number) in versions.versions.iter().zip(0..) {
        own[version.of as usize].push(number);
    }
    let mut readings: Vec<Vec<(u32, Option<u32>)>> = vec![Vec::new(); history.list.len()];
    for reading in &versions.readings {
        readings[reading.of as usize].push((reading.key, reading.seen));
    }
    if !planted(Mutation::AbsencesNotReplayed) {
        for absence in &versions.absences {
            readings[absence.found.of as usize].push((absence.found.key, None));
        }
    }
    // Of a list, how many elements of the longest that was read are there; what is behind them nobody has seen.
    let mut last: Vec<Option<u32>> = vec![None; versions.keys.len()];
    let mut lengths = vec![0usize; versions.keys.len()];
    for index in order {
        let absent = |version: Option<u32>| {
            version.is_none_or(|version| versions.versions[version as usize].value.is_none())
        };
        let fits = |(key, seen): &(u32, Option<u32>)| {
            let found = last[*key as usize];
            found == *seen || absent(found) && absent(*seen)
        };
        if !readings[index as usize].iter().all(fits) {
            return false;
        }
        let mut mine = own[index as usize].iter();
        for access in &history.list[index as usize].accesses {
            if access.reads() {
                continue;
            }
            let Some(version) = mine.next() else { return false };
            let key = versions.versions[*version as usize].key as usize;
            last[key] = Some(*version);
            if matches!(access, Access::Append(..)) {
                let longest = &versions.keys[key].longest;
                if lengths[key] < longest.len() && longest[lengths[key]] != *version {
                    return false;
                }
                lengths[key] += 1;
            }
        }
    }
    true
}
