//! SDPaxos without load: the command leader replicates while the sequencer orders.
//!
//! Source: `specs/sdpaxos.md` 3.4 (writes) and 3.8 (reads).

use isochrone_core::deployment::Keyspace;
use isochrone_core::{Matrix, RegionId, Span};

use crate::{Client, Group};

/// When a write of this client is ready: it is replicated, and its place is known and safe. Where slots need helpers, at seven
/// replicas and at even numbers, it may be ready sooner: where a sign of life that happens to be under way tells what a helper
/// has accepted on a shorter way, or brings the slot to one that was not asked.
///
/// # Panics
/// If no live replica stands in the sequencer's region.
pub fn commit<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    sequencer: RegionId,
    replicas: impl Into<Group<'a>>,
) -> Span {
    Tuned { thrifty: true }.commit(matrix, client.into(), sequencer, replicas.into())
}

/// What the parameters of a keyspace say of how long its clients wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuned {
    /// Whether those alone are asked to accept a slot that seem nearest.
    thrifty: bool,
}

impl Tuned {
    /// Of a keyspace of `sdpaxos` what it says, which the protocol refuses where it is wrong; of any other what `sdpaxos` has
    /// by default.
    pub(crate) fn of(keyspace: &Keyspace) -> Tuned {
        if keyspace.protocol != "sdpaxos" {
            return Tuned { thrifty: true };
        }
        Tuned { thrifty: keyspace.parameters.read().boolean("thrifty", true) }
    }

    /// As [`commit`].
    pub(crate) fn commit(
        self,
        matrix: &Matrix,
        client: Client,
        sequencer: RegionId,
        group: Group<'_>,
    ) -> Span {
        let way = |from, to| group.way(matrix, from, to);
        let asked = |sequencer, leader| {
            let mut others = beside(group, sequencer, leader);
            if self.thrifty {
                // As the sequencer reckons: it knows round trips, to each and from each to the owner, and not the ways.
                let micros = |a, b| (group.trip(matrix, a, b).as_nanos() / 1_000).max(1);
                others.sort_by_key(|seat| micros(sequencer, *seat) + micros(*seat, leader));
                others.truncate(helpers(group));
            }
            others
        };
        ready(matrix, client, sequencer, group, &way, &asked)
    }
}

/// The soonest that [`commit`] may be: where every replica accepted every slot as soon as it could, and all told it on the
/// shortest ways, `relayed` between the seats ([`Group::relayed`]).
///
/// # Panics
/// If no live replica stands in the sequencer's region.
pub(crate) fn soonest(
    matrix: &Matrix,
    relayed: &[Vec<Span>],
    client: Client,
    sequencer: RegionId,
    group: Group<'_>,
) -> Span {
    let way = |from: usize, to: usize| relayed[from][to];
    ready(matrix, client, sequencer, group, &way, &|sequencer, leader| beside(group, sequencer, leader))
}

/// How many replicas must accept a slot beside the sequencer and its owner.
pub(crate) fn helpers(group: Group<'_>) -> usize {
    match group.len() {
        // Up to three they are a majority, at five recovery infers.
        1..=3 | 5 => 0,
        _ => group.majority() - 2,
    }
}

/// Those that may.
fn beside(group: Group<'_>, sequencer: usize, leader: usize) -> Vec<usize> {
    group.live().filter(|seat| *seat != sequencer && *seat != leader).collect()
}

/// When a write is ready where news of slots takes these ways, and these are asked for their acceptance.
fn ready(
    matrix: &Matrix,
    client: Client,
    sequencer: RegionId,
    group: Group<'_>,
    way: &dyn Fn(usize, usize) -> Span,
    asked: &dyn Fn(usize, usize) -> Vec<usize>,
) -> Span {
    let (sequencer, leader) = (group.seat_in(sequencer), group.nearest(matrix, client));
    let there = group.reach(matrix, client, leader);
    let replicated = group.phase2(matrix, leader);
    if leader == sequencer {
        return there + replicated;
    }
    // The command leader hears of its slot, and of who has accepted it from each.
    let mut told = way(sequencer, leader);
    if let Some(last) = helpers(group).checked_sub(1) {
        let accepted = |seat: &usize| way(sequencer, *seat) + way(*seat, leader);
        let mut accepted: Vec<Span> = asked(sequencer, leader).iter().map(accepted).collect();
        accepted.sort_unstable();
        told = told.max(accepted.get(last).copied().unwrap_or_default());
    }
    there + replicated.max(group.way(matrix, leader, sequencer) + told)
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

    /// Seven regions 100 ms apart, one way, but for what is said.
    fn seven(by: impl Fn(usize, usize) -> Option<u64>) -> (Matrix, Vec<RegionId>) {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let way = |from: RegionId, to: RegionId| {
            Span::from_millis(by(usize::from(from.0), usize::from(to.0)).unwrap_or(100))
        };
        let matrix = Matrix::from_fn(&names, way);
        let all = matrix.regions().collect();
        (matrix, all)
    }

    /// The sequencer asks whom it takes for near by round trips, though others would tell sooner.
    #[test]
    fn helpers_are_chosen_by_round_trips_and_tell_on_their_ways() {
        // The round trip to C and D is 60 ms from A and from B, all of it on the way that the news takes; that to E and F 70, and
        // 10 of it.
        let (matrix, all) = seven(|from, to| match (from, to) {
            (0, 2 | 3) | (2 | 3, 1) => Some(60),
            (2 | 3, 0) | (1, 2 | 3) => Some(0),
            (0, 4 | 5) | (4 | 5, 1) => Some(10),
            (4 | 5, 0) | (1, 4 | 5) => Some(60),
            _ => None,
        });
        let group = Group::from(&all);
        let at = |thrifty: bool| {
            Tuned { thrifty }.commit(&matrix, Client::At(all[1]), all[0], group).as_nanos() / 1_000_000
        };
        // The request takes 100 ms, and the slot itself another 100; from C and D the news takes 120.
        assert_eq!([true, false].map(at), [220, 200]);
        assert_eq!(commit(&matrix, Client::At(all[1]), all[0], &all), Span::from_millis(220));
        // Signs of life might bring all of it from A by E and F to B.
        let least = soonest(&matrix, &group.relayed(&matrix), Client::At(all[1]), all[0], group);
        assert_eq!(least, Span::from_millis(120));
        // Of a file that says nothing of it, and that is of another protocol, it is as by default.
        let deployment =
            |protocol: &str| isochrone_core::Deployment::of_matrix(matrix.clone(), protocol, &all);
        let main = isochrone_core::KeyspaceId(1);
        assert_eq!(Tuned::of(deployment("epaxos").keyspace(main)), Tuned { thrifty: true });
        let settings = [("thrifty".to_owned(), "false".to_owned())];
        let told = deployment("sdpaxos").with_parameters(main, &settings).unwrap();
        assert_eq!(Tuned::of(told.keyspace(main)), Tuned { thrifty: false });
    }

    #[test]
    fn where_no_detour_is_shorter_it_is_exact_and_else_at_most() {
        let both = |(matrix, all): (Matrix, Vec<RegionId>)| {
            let (group, client) = (Group::from(&all), Client::At(all[1]));
            let least = soonest(&matrix, &group.relayed(&matrix), client, all[0], group);
            [least, commit(&matrix, client, all[0], group)].map(|wait| wait.as_nanos() / 1_000_000)
        };
        assert_eq!(both(seven(|_, _| None)), [300, 300]);
        // From C and D it is shorter to B by way of A: the sequencer hears of them and tells.
        let broken = seven(|from, to| match (from.min(to), from.max(to)) {
            (0, 2 | 3) | (1, 4..) => Some(10),
            (1, 2 | 3) => Some(170),
            (0, 4..) => Some(180),
            _ => None,
        });
        assert_eq!(both(broken), [220, 280]);
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
