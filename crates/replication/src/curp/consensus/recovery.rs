//! What a new leader replays: commands that may have been completed and are in nobody's log.

use isochrone_core::{CommandId, ProcessId, Quorums, Wire};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::order::Ordered;

/// What witnesses have told a new leader.
#[derive(Clone, Hash, Debug)]
pub(super) struct Reports<V: Wire> {
    /// Each witness once.
    told: Vec<(ProcessId, Arc<[V]>)>,
}

impl<V: Ordered> Reports<V> {
    pub(super) fn new() -> Reports<V> {
        Reports { told: Vec::new() }
    }

    /// The first word of a witness stands: what it accepts later, it accepts in the new term.
    pub(super) fn add(&mut self, witness: ProcessId, contents: Arc<[V]>) {
        if !self.contains(witness) {
            self.told.push((witness, contents));
        }
    }

    pub(super) fn contains(&self, witness: ProcessId) -> bool {
        self.told.iter().any(|(known, _)| *known == witness)
    }

    /// How many of these have answered.
    pub(super) fn of(&self, members: &[ProcessId]) -> usize {
        self.told.iter().filter(|(witness, _)| members.contains(witness)).count()
    }

    /// What at least `need` of these hold, by name.
    pub(super) fn held_by(&self, members: &[ProcessId], need: usize) -> Vec<V> {
        let mut counts = BTreeMap::<CommandId, (usize, &V)>::new();
        let asked = self.told.iter().filter(|(witness, _)| members.contains(witness));
        for value in asked.flat_map(|(_, contents)| contents.iter()) {
            if let Some(id) = value.id() {
                counts.entry(id).or_insert((0, value)).0 += 1;
            }
        }
        counts.into_values().filter(|(count, _)| *count >= need).map(|(_, value)| value.clone()).collect()
    }
}

/// How many of `told` witnesses among `n` must hold a command for it to be replayed: as many as one that was
/// completed is held by at least (D-31).
pub(super) fn threshold(n: usize, told: usize) -> usize {
    Quorums::recovery(n, told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Entry;
    use isochrone_core::command::{Command, Operation};
    use isochrone_core::{Blob, Identity, Stamp};

    fn value(sequence: u64) -> Entry<Command> {
        let process = ProcessId::from_u64(9);
        let id = CommandId { client: Identity { process, incarnation: 1 }.into(), sequence };
        Entry::Command {
            id,
            below: 0,
            command: Command::new(Stamp::ZERO, Operation::Get { key: Blob::from("k") }),
        }
    }

    fn witness(number: u64) -> ProcessId {
        ProcessId::from_u64(number)
    }

    fn told(contents: &[&[u64]]) -> Reports<Entry<Command>> {
        let mut reports = Reports::new();
        for (number, held) in contents.iter().enumerate() {
            reports.add(witness(number as u64), held.iter().map(|sequence| value(*sequence)).collect());
        }
        reports
    }

    #[test]
    fn what_enough_hold_is_replayed_once() {
        let members: Vec<_> = (0..3).map(witness).collect();
        let reports = told(&[&[1, 2], &[2, 3], &[2, 1]]);
        assert_eq!(reports.held_by(&members, 2), [value(1), value(2)]);
        assert_eq!(reports.held_by(&members, 3), [value(2)]);
        assert_eq!(reports.held_by(&members[..2], 2), [value(2)], "a stranger's word does not count");
        assert_eq!((reports.of(&members), reports.of(&members[1..])), (3, 2));
    }

    #[test]
    fn the_first_word_of_a_witness_stands() {
        let mut reports = told(&[&[1]]);
        reports.add(witness(0), Arc::from([value(2)]));
        assert_eq!(reports.held_by(&[witness(0)], 1), [value(1)]);
    }

    /// T46, D-31: for f = 1 to 7 and every number of witnesses that may be heard, however the copies of a completed
    /// command and of one that conflicts with it lie, the first is replayed and the second is not; with the
    /// threshold one higher the first may be lost. No two that conflict ever reach it both.
    #[test]
    fn of_two_that_conflict_the_completed_one_is_replayed() {
        for f in 1..=7usize {
            let n = 2 * f + 1;
            let fast = Quorums::supermajority(n);
            for heard in f + 1..=n {
                let need = threshold(n, heard);
                assert_eq!(need, heard - f / 2, "{heard} of {n}");
                // Of `held` copies, those that are heard of lie between these.
                let least = |held: usize| (held + heard).saturating_sub(n);
                let most = |held: usize| held.min(heard);
                for held in fast..=n {
                    assert!(least(held) >= need, "{held} of {n}, {heard} heard");
                    assert!(most(n - held) < need, "what conflicts with {held} of {n}, {heard} heard");
                }
                assert!(least(fast) < need + 1, "a higher threshold would do");
                // No two sets of one witness each conflict and both reach it.
                assert!(2 * need > heard);
            }
        }
    }
}
