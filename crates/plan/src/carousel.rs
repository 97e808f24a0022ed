//! Carousel without load: reading, preparing and replicating beside each other.
//!
//! Source: `specs/carousel.md` 3.4; processing and sync at no cost, nothing else under way.

use isochrone_core::deployment::ParameterReader;
use isochrone_core::{Matrix, RegionId, Span};

use crate::Partitions;
use crate::partitions::{Footprint, way};

/// The basic variant: from the client's call to its answer.
///
/// Reads go to the leaders of the partitions; while they and what follows are under way, every leader has its prepare
/// accepted by a majority.
pub fn basic(matrix: &Matrix, client: RegionId, partitions: Partitions<'_>, of: Footprint<'_>) -> Span {
    let leads = |partition: &usize| partitions.leader(*partition);
    let read = of.reads.iter().map(|partition| matrix_trip(matrix, client, leads(partition))).max();
    commit(matrix, client, partitions, of, read.unwrap_or_default(), |partition, coordinator| {
        partitions.prepared(matrix, client, partition, coordinator)
    })
}

/// Where a client reads what its region's leaders do not hold.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Reads {
    /// From leaders only.
    Leader,
    /// Also from a follower in the client's region (`specs/carousel.md` 5.3).
    Local,
    /// Also from the nearest replica, if none is in its region (8.13).
    Nearest,
}

/// The parameters on which it depends how long clients wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Whether replicas vote on their own, beside the log.
    pub votes: bool,
    /// Who serves reads then.
    pub reads: Reads,
    /// Whether read-only transactions see the latest, by the way of those that write; none where nothing is said, which is the
    /// latest in keyspaces that are served.
    pub latest: Option<bool>,
}

impl Tuned {
    /// The defaults of the basic variant.
    pub const BASIC: Tuned = Tuned { votes: false, reads: Reads::Leader, latest: None };
    /// Those of the fast one.
    pub const FAST: Tuned = Tuned { votes: true, reads: Reads::Nearest, latest: None };

    /// Reads them over these; the caller finishes the reader, and refuses followers that read and do not vote.
    pub fn read(self, reader: &mut ParameterReader<'_>) -> Tuned {
        let votes = reader.boolean("fast_path", self.votes);
        let choices = [("leader", Reads::Leader), ("local", Reads::Local), ("nearest", Reads::Nearest)];
        let usual = if votes { self.reads } else { Reads::Leader };
        let moments = [("moment", Some(false)), ("latest", Some(true))];
        Tuned {
            votes,
            reads: reader.choice("reads", usual, &choices),
            latest: reader.choice("read_only", self.latest, &moments),
        }
    }
}

/// The fast variant, where every replica votes, all alike, and the nearest replica is read.
pub fn fast(matrix: &Matrix, client: RegionId, partitions: Partitions<'_>, of: Footprint<'_>) -> Span {
    voted(matrix, client, partitions, of, Reads::Nearest)
}

/// The same where reads are served by these.
pub(crate) fn voted(
    matrix: &Matrix,
    client: RegionId,
    partitions: Partitions<'_>,
    of: Footprint<'_>,
    reads: Reads,
) -> Span {
    let read = of.reads.iter().map(|partition| match reads {
        Reads::Local if partitions.replicas(*partition).contains(&client) => Span::ZERO,
        Reads::Leader | Reads::Local => matrix_trip(matrix, client, partitions.leader(*partition)),
        Reads::Nearest => partitions.nearest(matrix, client, *partition),
    });
    let read = read.max();
    commit(matrix, client, partitions, of, read.unwrap_or_default(), |partition, coordinator| {
        let voted = |replica: &RegionId| way(matrix, client, *replica) + way(matrix, *replica, coordinator);
        let mut votes: Vec<Span> = partitions.replicas(partition).iter().map(voted).collect();
        // Without the leader's own there is no fast quorum.
        let leader = voted(&partitions.leader(partition));
        votes.sort_unstable();
        let fast = votes[partitions.fast(partition) - 1].max(leader);
        fast.min(partitions.prepared(matrix, client, partition, coordinator))
    })
}

/// Both variants, of a transaction that only reads: the leaders answer for one moment.
pub fn read_only(matrix: &Matrix, client: RegionId, partitions: Partitions<'_>, of: Footprint<'_>) -> Span {
    let leads = |partition: &usize| partitions.leader(*partition);
    let read = of.participants.iter().map(|partition| matrix_trip(matrix, client, leads(partition)));
    read.max().unwrap_or_default()
}

/// The answer leaves the coordinator when the writes are replicated there and every participant's result has come.
fn commit(
    matrix: &Matrix,
    client: RegionId,
    partitions: Partitions<'_>,
    of: Footprint<'_>,
    read: Span,
    prepared: impl Fn(usize, RegionId) -> Span,
) -> Span {
    let coordinating = partitions.coordinator(matrix, client, of.participants);
    let coordinator = partitions.leader(coordinating);
    let written = read + way(matrix, client, coordinator) + partitions.replicated(matrix, coordinating);
    let prepared = of.participants.iter().map(|partition| prepared(*partition, coordinator)).max();
    written.max(prepared.unwrap_or_default()) + way(matrix, coordinator, client)
}

fn matrix_trip(matrix: &Matrix, a: RegionId, b: RegionId) -> Span {
    way(matrix, a, b) + way(matrix, b, a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partitions::tests::{PL_A, ec2, unit};

    /// specs/carousel.md 9.1, L11: client, the leaders of the partitions, and Basic, Fast, TAPIR.
    const L11: &[(u16, &[usize], [u64; 3])] = &[
        (0, &[0, 3], [204, 102, 166]),
        (0, &[0, 1], [245, 161, 239]),
        (1, &[0, 1, 3], [344, 172, 205]),
        (3, &[2, 4], [470, 235, 337]),
        (2, &[0, 2, 4], [525, 290, 290]),
        (4, &[0], [322, 322, 451]),
        (0, &[0, 1, 2, 3, 4], [401, 175, 268]),
        (1, &[0, 1, 2, 3, 4], [377, 260, 293]),
        (2, &[0, 1, 2, 3, 4], [525, 323, 378]),
        (3, &[0, 1, 2, 3, 4], [470, 235, 337]),
        (4, &[0, 1, 2, 3, 4], [525, 322, 451]),
    ];

    #[test]
    fn transactions_take_what_the_specification_computed() {
        let (matrix, groups) = (ec2(), PL_A());
        for (client, parts, expected) in L11 {
            let (client, of) = (RegionId(*client), Footprint { reads: parts, participants: parts });
            let partitions = Partitions::new(&groups);
            let found = [basic, fast, crate::tapir::commit].map(|form| form(&matrix, client, partitions, of));
            assert_eq!(found, expected.map(Span::from_millis), "{client} on {parts:?}");
        }
    }

    #[test]
    fn round_trips_are_those_of_the_bounds() {
        // 9.1, L1 to L7, a round trip between regions taken as one: at 0 everything is led, 1 has replicas, 3 has none.
        let here = vec![vec![RegionId(0), RegionId(1), RegionId(2)]; 2];
        let elsewhere: Vec<Vec<RegionId>> =
            [[0, 1, 2], [3, 1, 2]].map(|group| group.map(RegionId).to_vec()).into();
        let form = |form: fn(&Matrix, RegionId, Partitions<'_>, Footprint<'_>) -> Span,
                    client,
                    groups: &[Vec<_>]| {
            let parts: &[usize] = &[0, 1];
            let of = Footprint { reads: parts, participants: parts };
            form(&unit(4), RegionId(client), Partitions::new(groups), of).as_nanos() as f64 / 1e6
        };
        assert_eq!(form(basic, 0, &here), 1.0, "L2");
        assert_eq!(form(basic, 0, &elsewhere), 2.0, "L1");
        assert_eq!(form(fast, 0, &here), 1.0, "L3");
        assert_eq!(form(fast, 0, &elsewhere), 2.0, "L4: no replica of the second partition");
        assert_eq!(form(read_only, 0, &here), 0.0, "L6");
        assert_eq!(form(read_only, 0, &elsewhere), 1.0, "L6");
        assert_eq!(form(crate::tapir::commit, 0, &here), 1.0, "L8");
        assert_eq!(form(crate::tapir::commit, 0, &elsewhere), 2.0, "L8");
        assert_eq!(form(crate::twopc::commit, 0, &elsewhere), 4.0, "L9");
    }

    #[test]
    fn reads_are_as_near_as_who_serves_them() {
        // What is read from Euro is written there, which a follower accepts 235 ms later.
        let (matrix, groups) = (ec2(), PL_A());
        let take = |part: usize, reads| {
            let parts: &[usize] = &[part];
            let of = Footprint { reads: parts, participants: &[2] };
            voted(&matrix, RegionId(2), Partitions::new(&groups), of, reads).as_nanos() / 1_000_000
        };
        let all = |part| [Reads::Leader, Reads::Local, Reads::Nearest].map(|reads| take(part, reads));
        assert_eq!(all(1), [88 + 235, 88 + 235, 88 + 235], "the leader is the nearest");
        assert_eq!(all(0), [166 + 235, 235, 235], "a follower is in Euro");
        assert_eq!(all(3), [235 + 235, 235 + 235, 88 + 235], "one is nearer than the leader");
    }

    #[test]
    fn a_blind_write_waits_for_no_read() {
        let (matrix, groups) = (ec2(), PL_A());
        let of = Footprint { reads: &[], participants: &[2] };
        let found = basic(&matrix, RegionId(0), Partitions::new(&groups), of);
        assert_eq!(found, Span::from_millis(166 + 235));
    }
}
