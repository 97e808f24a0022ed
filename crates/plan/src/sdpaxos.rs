//! SDPaxos without load: the command leader replicates while the sequencer orders.
//!
//! Source: `specs/sdpaxos.md` 3.4 (writes) and 3.8 (reads).

use isochrone_core::{Matrix, RegionId, Span};

use crate::{Client, Group};

/// When a write of this client is ready: it is replicated, and its place is known and safe.
///
/// # Panics
/// If no live replica stands in the sequencer's region.
pub fn commit<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    sequencer: RegionId,
    replicas: impl Into<Group<'a>>,
) -> Span {
    let (group, client) = (replicas.into(), client.into());
    let (sequencer, leader) = (group.seat_in(sequencer), group.nearest(matrix, client));
    let there = group.reach(matrix, client, leader);
    let replicated = group.phase2(matrix, leader);
    if leader == sequencer {
        return there + replicated;
    }
    let ordered = match group.len() {
        // The sequencer and the command leader are enough: up to three they are a majority, at five recovery infers.
        1..=3 | 5 => group.trip(matrix, leader, sequencer),
        // The command leader hears of its slot, and of a majority of acceptors of it, by way of each.
        _ => {
            let accepted = |seat| group.way(matrix, sequencer, seat) + group.way(matrix, seat, leader);
            let slot = group.smallest(group.majority(), accepted);
            let told = group.way(matrix, sequencer, leader);
            group.way(matrix, leader, sequencer) + slot.unwrap_or_default().max(told)
        }
    };
    there + replicated.max(ordered)
}

/// A read that asks the sequencer, of an object without a pending update; the sequencer answers its own at once.
///
/// # Panics
/// If no live replica stands in the sequencer's region.
pub fn read<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    sequencer: RegionId,
    replicas: impl Into<Group<'a>>,
) -> Span {
    let (group, client) = (replicas.into(), client.into());
    let (sequencer, leader) = (group.seat_in(sequencer), group.nearest(matrix, client));
    group.reach(matrix, client, leader) + group.trip(matrix, leader, sequencer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{commits, sdpaxos};

    #[test]
    fn ready_and_read_are_the_table_of_the_specification() {
        // specs/sdpaxos.md 6.3.
        let (matrix, at) = sdpaxos();
        let table = |sequencer: usize, count: usize| {
            commits(&at(count), |client| commit(&matrix, client, at(5)[sequencer], &at(count)))
        };
        assert_eq!(table(0, 3), [20, 20, 52]);
        assert_eq!(table(0, 5), [52, 68, 68, 139, 146]);
        assert_eq!(table(1, 5), [52, 68, 68, 125, 146]);
        let reads = commits(&at(5), |client| read(&matrix, client, at(5)[0], &at(5)));
        assert_eq!(reads, [0, 20, 52, 139, 146]);
    }

    #[test]
    fn equal_distances_take_one_round_trip_up_to_five_and_half_more_at_seven() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let matrix = Matrix::from_fn(&names, |_, _| Span::from_millis(50));
        let all: Vec<RegionId> = matrix.regions().collect();
        for count in [3, 5, 7] {
            let table =
                commits(&all[..count], |client| commit(&matrix, client, all[0], &all[..count].to_vec()));
            let other = if count == 7 { 150 } else { 100 };
            assert_eq!(table[0], 100);
            assert!(table[1..].iter().all(|commit| *commit == other), "{table:?}");
        }
    }

    /// Others tell of the sequencer's answer sooner than it does, which is still what gives the place.
    #[test]
    fn the_sequencer_itself_is_waited_for_at_seven() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let way = |from, to| if (from, to) == (RegionId(0), RegionId(1)) { 200 } else { 50 };
        let matrix = Matrix::from_fn(&names, |from, to| Span::from_millis(way(from, to)));
        let all: Vec<RegionId> = matrix.regions().collect();
        assert_eq!(commits(&all[1..2], |client| commit(&matrix, client, all[0], &all)), [250]);
    }

    #[test]
    fn a_dead_replica_is_replaced_by_the_next_nearest() {
        let (matrix, at) = sdpaxos();
        let replicas = at(5);
        // Without OH: CA waits for IRE, OR for IRE, IRE for CA, SEL for CA.
        let group = Group::from(&replicas).without(&[2]);
        let live = [replicas[0], replicas[1], replicas[3], replicas[4]];
        assert_eq!(
            commits(&live, |client| commit(&matrix, client, replicas[1], group)),
            [139, 125, 139, 146]
        );
    }
}
