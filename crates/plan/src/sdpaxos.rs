//! SDPaxos without load: the command leader replicates while the sequencer orders.
//!
//! Source: `specs/sdpaxos.md` 3.4 (writes) and 3.8 (reads).

use isochrone_core::deployment::{Keyspace, ParameterReader};
use isochrone_core::{Matrix, RegionId, Span};

use crate::told::reader_of;
use crate::{Client, Group};

/// When a write of this client is ready: it is replicated, and its place is known and safe. Where a detour is shorter than the way
/// from the sequencer it may be ready sooner, if others ask something too: who asks for what it has missed may be told of its own
/// slot by who has it already. Where slots need helpers, at seven replicas and at even numbers, a sign of life that happens to be
/// under way may also tell what a helper has accepted on a shorter way, or bring the slot to one that was not asked.
///
/// # Panics
/// If no live replica stands in the sequencer's region.
pub fn commit<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    sequencer: RegionId,
    replicas: impl Into<Group<'a>>,
) -> Span {
    Tuned::default().commit(matrix, client.into(), sequencer, replicas.into())
}

/// The parameters on which it depends how long clients wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Whether those alone are asked to accept something that seem nearest.
    pub thrifty: bool,
}

impl Default for Tuned {
    fn default() -> Self {
        Self { thrifty: true }
    }
}

impl Tuned {
    /// Reads them; the caller finishes the reader.
    pub fn read(reader: &mut ParameterReader<'_>) -> Tuned {
        Tuned { thrifty: reader.boolean("thrifty", Tuned::default().thrifty) }
    }

    /// Of a keyspace of `sdpaxos` what it says, which the protocol refuses where it is wrong; of any other what `sdpaxos` has
    /// by default.
    pub(crate) fn of(keyspace: &Keyspace) -> Tuned {
        reader_of(keyspace, "sdpaxos").map_or_else(Tuned::default, |mut reader| Tuned::read(&mut reader))
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
        ready(matrix, client, sequencer, group, &|sequencer, leader| {
            let mut asked = beside(group, sequencer, leader);
            if self.thrifty {
                // As the sequencer reckons: it knows round trips, to each and from each to the owner, and not the ways.
                let micros = |a, b| (group.trip(matrix, a, b).as_nanos() / 1_000).max(1);
                asked.sort_by_key(|seat| micros(sequencer, *seat) + micros(*seat, leader));
                asked.truncate(helpers(group));
            }
            way(sequencer, leader).max(accepted(group, sequencer, leader, &asked, &way))
        })
    }
}

/// The soonest that [`commit`] may be: where every replica accepted every slot as soon as it could, and all told it on the
/// shortest ways, `relayed` between the seats ([`Group::relayed`]). A slot is named by the sequencer; or, when somebody asks for
/// what he has missed, by who knows that it is committed, since most have said that they have accepted it.
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
    let way = |from, to| group.way(matrix, from, to);
    let detour = |from: usize, to: usize| relayed[from][to];
    ready(matrix, client, sequencer, group, &|sequencer, leader| {
        let others = beside(group, sequencer, leader);
        let mut named = way(sequencer, leader);
        if detour(sequencer, leader) < named {
            for other in &others {
                let voters = others.iter().chain([&sequencer]);
                let mut heard: Vec<Span> =
                    voters.map(|seat| way(sequencer, *seat) + way(*seat, *other)).collect();
                heard.sort_unstable();
                if let Some(committed) = heard.get(group.majority() - 1) {
                    named = named.min(*committed + detour(*other, leader));
                }
            }
        }
        named.max(accepted(group, sequencer, leader, &others, &detour))
    })
}

/// How many replicas must accept a slot beside the sequencer and its owner.
fn helpers(group: Group<'_>) -> usize {
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

/// From when the sequencer names a slot until its owner, `leader`, has heard from enough of those who are asked that they have
/// accepted it, where news takes these ways.
fn accepted(
    group: Group<'_>,
    sequencer: usize,
    leader: usize,
    asked: &[usize],
    way: &dyn Fn(usize, usize) -> Span,
) -> Span {
    let Some(last) = helpers(group).checked_sub(1) else { return Span::ZERO };
    let mut heard: Vec<Span> = asked.iter().map(|seat| way(sequencer, *seat) + way(*seat, leader)).collect();
    heard.sort_unstable();
    heard.get(last).copied().unwrap_or_default()
}

/// When a write is ready whose slot is safe at its owner so long after the sequencer has named it; told the seats of both.
fn ready(
    matrix: &Matrix,
    client: Client,
    sequencer: RegionId,
    group: Group<'_>,
    safe: &dyn Fn(usize, usize) -> Span,
) -> Span {
    let (sequencer, leader) = (group.seat_in(sequencer), group.nearest(matrix, client));
    let there = group.reach(matrix, client, leader);
    let replicated = group.phase2(matrix, leader);
    if leader == sequencer {
        return there + replicated;
    }
    there + replicated.max(group.way(matrix, leader, sequencer) + safe(sequencer, leader))
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
        // Signs of life might bring from A by E and F, on 20 ms, that they have accepted it; the slot itself comes straight.
        let least = soonest(&matrix, &group.relayed(&matrix), Client::At(all[1]), all[0], group);
        assert_eq!(least, Span::from_millis(200));
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

    /// With `isochrone sim`, replicas in R2, R1, R0, R2 and R1 and a client in each region, those in R2 wait 335 to 379 ms, 374.6 in
    /// the mean; alone they wait 379.
    #[test]
    fn at_five_who_has_the_slot_by_a_detour_may_tell_its_owner() {
        let ways = [[0, 17, 259], [189, 0, 39], [120, 128, 0]];
        let way =
            |from: RegionId, to: RegionId| Span::from_millis(ways[usize::from(from.0)][usize::from(to.0)]);
        let matrix = Matrix::from_fn(&["R0", "R1", "R2"], way);
        let [r0, r1, r2] = [0, 1, 2].map(RegionId);
        let both = |replicas: &[RegionId], sequencer: RegionId| {
            let group = Group::from(replicas);
            let relayed = group.relayed(&matrix);
            [r0, r1, r2].map(|client| {
                let client = Client::In(client);
                let least = soonest(&matrix, &relayed, client, sequencer, group);
                [least, commit(&matrix, client, sequencer, group)].map(|wait| wait.as_nanos() / 1_000_000)
            })
        };
        let five = [r2, r1, r0, r2, r1];
        // The way there is 120 ms, and by way of both in R1, a majority with the sequencer, 56 back; 259 straight.
        assert_eq!(both(&five, r0), [[206, 206], [206, 206], [176, 379]]);
        assert_eq!(both(&five, r1), [[206, 206], [167, 167], [167, 167]]);
        assert_eq!(both(&five, r2), [[379, 379], [167, 167], [167, 167]]);
        // Of three, one is a majority with the sequencer.
        assert_eq!(both(&[r0, r1, r2], r0)[2], [176, 379]);
        // Of five, one alone in R1 is none: the others are as far from the sequencer as the owner.
        assert_eq!(both(&[r0, r1, r2, r2, r2], r0)[2], [379, 379]);
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
