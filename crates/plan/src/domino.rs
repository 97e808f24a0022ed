//! Domino without load and with exact predictions: each client takes the faster of two lanes.
//!
//! Source: `specs/domino.md` 3.7, 3.8 and 6.5.

use isochrone_core::{Matrix, RegionId, Span};

use crate::{Client, Group};

/// What is added to the stamp of a fast request where its result is waited for, by default.
pub const EXTRA_DELAY: Span = Span::from_millis(8);

/// How often replicas announce their clocks, by default.
pub const HEARTBEAT: Span = Span::from_millis(10);

/// The lane a client takes, and what it waits there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Domino's Fast Paxos: straight to a supermajority.
    Fast(Span),
    /// Domino's Mencius, through the replica of this region.
    Leader(RegionId, Span),
}

impl Choice {
    /// From call to the news that the command has its place.
    pub fn commit(self) -> Span {
        match self {
            Self::Fast(commit) | Self::Leader(_, commit) => commit,
        }
    }
}

/// What this client does: the lower of [`fast`] and [`leader`]; ties go to the leader.
pub fn choose<'a>(matrix: &Matrix, client: impl Into<Client>, replicas: impl Into<Group<'a>>) -> Choice {
    let (group, client) = (replicas.into(), client.into());
    let (region, led) = leader(matrix, client, group);
    match fast(matrix, client, group) {
        Some(fast) if fast < led => Choice::Fast(fast),
        _ => Choice::Leader(region, led),
    }
}

/// The lower of the two lanes.
pub fn commit<'a>(matrix: &Matrix, client: impl Into<Client>, replicas: impl Into<Group<'a>>) -> Span {
    choose(matrix, client, replicas).commit()
}

/// The round trip to a fast quorum, a supermajority unless the group has another; none while too few replicas live.
pub fn fast<'a>(matrix: &Matrix, client: impl Into<Client>, replicas: impl Into<Group<'a>>) -> Option<Span> {
    let (group, client) = (replicas.into(), client.into());
    group.smallest(group.fast(), |seat| group.reach(matrix, client, seat))
}

/// The best leader and the way through it: to it and back, and its majority round trip. The first of equals.
pub fn leader<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    replicas: impl Into<Group<'a>>,
) -> (RegionId, Span) {
    let (group, client) = (replicas.into(), client.into());
    let through = |seat| group.reach(matrix, client, seat) + group.phase2(matrix, seat);
    match group.live().map(|seat| (through(seat), seat)).min() {
        Some((commit, seat)) => (group.region(seat), commit),
        None => unreachable!("a group has a live majority"),
    }
}

/// An upper bound on the time to the result of a command, where every replica learns for itself (`reply = "execute"`).
///
/// `extra` is added to the stamp of a fast request, `heartbeat` is how often clocks are announced. A command runs when its
/// stamp lies behind every lane: a replica waits for the announcements of a fast quorum and of all lanes. The result of a
/// fast request comes from whoever has it first, that of a led one from its leader. An announcement comes a heartbeat
/// late at most, so the result is there no more than a heartbeat before.
pub fn execute<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    replicas: impl Into<Group<'a>>,
    extra: Span,
    heartbeat: Span,
) -> Span {
    let (group, client) = (replicas.into(), client.into());
    // Announcements of as many replicas as live, at most a fast quorum of them, settle the empty positions.
    let quorum = group.fast().min(group.live().count());
    let nth = |value: &dyn Fn(usize) -> Span| group.smallest(quorum, value).unwrap_or_default();
    // The stamp, and when the command is known to be chosen at replica `at`, both from the client's call.
    let choice = choose(matrix, client, group);
    let stamp = match choice {
        Choice::Fast(_) => nth(&|seat| group.way_there(matrix, client, seat)) + extra,
        Choice::Leader(region, _) => {
            let seat = group.seat_in(region);
            group.way_there(matrix, client, seat) + group.phase2(matrix, seat)
        }
    };
    let chosen = |at: usize| match choice {
        Choice::Fast(_) => nth(&|seat| group.way_there(matrix, client, seat) + group.way(matrix, seat, at)),
        Choice::Leader(region, _) => {
            let seat = group.seat_in(region);
            stamp + group.way(matrix, seat, at)
        }
    };
    let executed = |at: usize| {
        let positions = stamp + nth(&|seat| group.way(matrix, seat, at)) + heartbeat;
        let lanes = group.live().map(|seat| group.way(matrix, seat, at)).max().unwrap_or_default();
        chosen(at).max(positions).max(stamp + lanes + heartbeat) + group.way_back(matrix, client, at)
    };
    match choice {
        Choice::Fast(_) => group.live().map(executed).min().unwrap_or_default(),
        Choice::Leader(region, _) => executed(group.seat_in(region)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{domino_globe, domino_na};
    use crate::{fastpaxos, mencius, multipaxos};
    use isochrone_core::FastQuorums;

    /// Client, commit latency in milliseconds, and the leader where the slower lane is taken.
    type Row = (&'static str, u64, Option<&'static str>);

    fn check(matrix: &Matrix, replicas: &[RegionId], table: &[Row]) {
        for (name, expected, expected_leader) in table {
            let choice = choose(matrix, matrix.region(name).unwrap(), replicas);
            let through = match choice {
                Choice::Fast(_) => None,
                Choice::Leader(region, _) => Some(matrix.name(region)),
            };
            assert_eq!(
                (choice.commit(), through),
                (Span::from_millis(*expected), *expected_leader),
                "{name}"
            );
        }
    }

    #[test]
    fn north_america_at_three_is_e3() {
        let (matrix, replicas) = domino_na(&["WA", "VA", "QC"]);
        let table = [
            ("VA", 38, Some("VA")),
            ("TX", 51, None),
            ("CA", 67, None),
            ("IA", 36, None),
            ("WA", 67, Some("WA")),
            ("WY", 46, None),
            ("IL", 43, None),
            ("QC", 38, Some("QC")),
            ("TRT", 49, Some("QC")),
        ];
        check(&matrix, &replicas, &table);
        // The other columns of specs/domino.md 6.5; from WY the way through QC is as long.
        let through =
            [("TX", "VA", 65), ("CA", "WA", 90), ("IA", "VA", 69), ("WY", "VA", 84), ("IL", "QC", 61)];
        for (client, by, expected) in through {
            let (region, commit) = leader(&matrix, matrix.region(client).unwrap(), &replicas);
            assert_eq!((matrix.name(region), commit), (by, Span::from_millis(expected)), "{client}");
        }
        let wa = matrix.region("WA").unwrap();
        let led = crate::oracle::commits(&matrix.regions().collect::<Vec<_>>(), |client| {
            multipaxos::commit(&matrix, client, wa, &replicas)
        });
        assert_eq!(led, [134, 109, 90, 103, 67, 88, 110, 135, 124]);
    }

    #[test]
    fn north_america_at_five_is_e4() {
        let (matrix, replicas) = domino_na(&["WA", "VA", "QC", "CA", "TX"]);
        let table = [
            ("VA", 38, Some("VA")),
            ("TX", 33, Some("TX")),
            ("CA", 33, Some("CA")),
            ("WA", 42, Some("WA")),
            ("QC", 51, Some("QC")),
            ("IA", 36, None),
            ("WY", 46, None),
            ("IL", 43, None),
            ("TRT", 57, None),
        ];
        check(&matrix, &replicas, &table);
    }

    #[test]
    fn the_globe_is_e5() {
        let (matrix, replicas) = domino_globe(&["WA", "PR", "NSW"]);
        let table = [
            ("WA", 136, Some("WA")),
            ("PR", 136, Some("PR")),
            ("NSW", 175, Some("NSW")),
            ("VA", 196, None),
            ("SG", 163, None),
            ("HK", 185, None),
        ];
        check(&matrix, &replicas, &table);
        for (client, expected) in [("VA", 203), ("SG", 262), ("HK", 277)] {
            let (_, commit) = leader(&matrix, matrix.region(client).unwrap(), &replicas);
            assert_eq!(commit, Span::from_millis(expected), "{client}");
        }
    }

    #[test]
    fn with_one_of_three_down_everybody_takes_a_leader() {
        let (matrix, replicas) = domino_na(&["WA", "VA", "QC"]);
        let group = Group::from(&replicas).without(&[0]);
        assert!(matrix.regions().all(|client| fast(&matrix, client, group).is_none()));
        assert_eq!(commit(&matrix, matrix.region("IA").unwrap(), group), Span::from_millis(31 + 38));
    }

    #[test]
    fn a_smaller_fast_quorum_is_nearer_and_leaders_are_as_far_as_they_were() {
        let (matrix, replicas) = domino_na(&["WA", "VA", "QC", "CA", "TX"]);
        let three = FastQuorums::sized(5, Some(3), None).unwrap();
        let (four, three) = (Group::from(&replicas), Group::from(&replicas).with(three));
        let at = |name: &str| matrix.region(name).unwrap();
        let il = at("IL");
        let mut trips: Vec<Span> = replicas.iter().map(|at| matrix.one_way(il, *at) * 2).collect();
        trips.sort_unstable();
        assert_eq!((fast(&matrix, il, four), fast(&matrix, il, three)), (Some(trips[3]), Some(trips[2])));
        for client in matrix.regions() {
            assert!(commit(&matrix, client, three) <= commit(&matrix, client, four));
            assert_eq!(leader(&matrix, client, three), leader(&matrix, client, four));
        }
    }

    #[test]
    fn the_geometry_study_counts_as_the_source_does() {
        // specs/domino.md 6.2: all choices of three replica sites and one client site out of six.
        let (matrix, _) = domino_globe(&[]);
        let all: Vec<RegionId> = matrix.regions().collect();
        let (mut cases, mut beats_mencius, mut beats_leaders) = (0, 0, 0);
        for a in 0..6 {
            for b in a + 1..6 {
                for c in b + 1..6 {
                    let replicas = [all[a], all[b], all[c]];
                    for client in &all {
                        cases += 1;
                        let leader = replicas[0];
                        let straight = fastpaxos::commit(&matrix, *client, leader, &replicas);
                        if straight < mencius::busy(&matrix, *client, &replicas) {
                            beats_mencius += 1;
                        }
                        let led = |leader: &&RegionId| {
                            straight < multipaxos::commit(&matrix, *client, **leader, &replicas)
                        };
                        beats_leaders += replicas.iter().filter(led).count();
                    }
                }
            }
        }
        assert_eq!((cases, beats_mencius, beats_leaders), (120, 41, 247));
    }

    #[test]
    fn results_come_after_commits_and_grow_with_the_extra_delay() {
        let (matrix, replicas) = domino_globe(&["WA", "PR", "NSW"]);
        let heartbeat = Span::from_millis(10);
        for client in matrix.regions() {
            let at = |extra| execute(&matrix, client, &replicas, Span::from_millis(extra), heartbeat);
            assert!(at(0) >= commit(&matrix, client, &replicas));
            assert!(at(36) >= at(8));
        }
    }
}
