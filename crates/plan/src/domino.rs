//! Domino without load and with exact predictions: each client takes the faster of two lanes.
//!
//! Source: `specs/domino.md` 3.7, 3.8 and 6.5.

use isochrone_core::deployment::{Keyspace, ParameterReader};
use isochrone_core::{Matrix, RegionId, Span};

use crate::told::reader_of;
use crate::{Client, Group, Learners, Reply};

/// What is added to the stamp of a fast request where its result is waited for, by default: above the largest misprediction that
/// the source measured, 6.24 ms.
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

/// Which way a client's commands take.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Way {
    /// Whichever is predicted to be faster.
    Auto,
    /// Fast Paxos while a supermajority answers.
    Fast,
    /// Mencius.
    Led,
}

/// What is added to the stamp of a fast request, so that fewer arrive late.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Extra {
    /// Always this much.
    Fixed(Span),
    /// As much as the rate of fast commits asks for.
    Auto,
}

impl Extra {
    /// What it is where no request comes late.
    fn at_rest(self) -> Span {
        match self {
            Extra::Fixed(extra) => extra,
            Extra::Auto => Span::ZERO,
        }
    }
}

/// The parameters on which it depends how long clients wait, beside the quorums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Which way commands take.
    pub way: Way,
    /// What is added to the stamp of a fast request.
    pub extra: Extra,
    /// How often replicas announce their clocks.
    pub heartbeat: Span,
    /// Who learns of fast decisions.
    pub learners: Learners,
}

impl Tuned {
    /// By default where a keyspace answers so: at commit nobody waits for the execution, and commits come as soon without any
    /// delay.
    pub fn usual(reply: Reply) -> Tuned {
        let extra = match reply {
            Reply::Execute => EXTRA_DELAY,
            Reply::Commit => Span::ZERO,
        };
        Tuned {
            way: Way::Auto,
            extra: Extra::Fixed(extra),
            heartbeat: HEARTBEAT,
            learners: Learners::usual(reply),
        }
    }

    /// Reads them where a keyspace answers so; the caller finishes the reader.
    pub fn read(reader: &mut ParameterReader<'_>, reply: Reply) -> Tuned {
        let usual = Tuned::usual(reply);
        let ways = [("auto", Way::Auto), ("fast", Way::Fast), ("led", Way::Led)];
        Tuned {
            way: reader.choice("way", usual.way, &ways),
            extra: match reader.text("extra_delay", "").as_str() {
                "" => usual.extra,
                "auto" => Extra::Auto,
                _ => {
                    let fixed = usual.extra.at_rest();
                    Extra::Fixed(reader.span("extra_delay", fixed, Span::ZERO, Span::from_secs(10)))
                }
            },
            heartbeat: reader.span("heartbeat", usual.heartbeat, Span::from_millis(1), Span::from_secs(1)),
            learners: Learners::read(reader, reply),
        }
    }

    /// Of a keyspace of `domino` what it says, which the protocol refuses where it is wrong; of any other what `domino` has
    /// by default where it answers so.
    pub(crate) fn of(keyspace: &Keyspace, reply: Reply) -> Tuned {
        let usual = Tuned::usual(reply);
        let Some(mut reader) = reader_of(keyspace, "domino") else { return usual };
        match Tuned::read(&mut reader, reply) {
            // It grows while requests come late, of which there are none here: no more than by default.
            told @ Tuned { extra: Extra::Auto, .. } => Tuned { extra: usual.extra, ..told },
            told => told,
        }
    }

    /// As [`choose`].
    pub(crate) fn choose(self, matrix: &Matrix, client: Client, group: Group<'_>) -> Choice {
        let (region, led) = leader(matrix, client, group);
        let straight = fast(matrix, client, group).is_some_and(|fast| match self.way {
            Way::Auto => fast < led,
            Way::Fast => true,
            Way::Led => false,
        });
        if !straight {
            return Choice::Leader(region, led);
        }
        let voted = |seat| group.reach(matrix, client, seat);
        Choice::Fast(self.of_voters(matrix, client, group, voted))
    }

    /// The stamp of a fast request, from the client's call: when a fast quorum of those that live should have it.
    fn stamp(self, matrix: &Matrix, client: Client, group: Group<'_>) -> Span {
        let there = |seat| group.way_there(matrix, client, seat);
        group.smallest(announcing(group), there).unwrap_or_default() + self.extra.at_rest()
    }

    /// A value over those that vote for a fast request, of which a fast quorum has no higher one: who has it behind its
    /// stamp does not vote. Where ways there and back differ, that may be one who is near there and back.
    fn of_voters(
        self,
        matrix: &Matrix,
        client: Client,
        group: Group<'_>,
        value: impl Fn(usize) -> Span,
    ) -> Span {
        let stamp = self.stamp(matrix, client, group);
        let votes = |seat: &usize| group.way_there(matrix, client, *seat) <= stamp;
        let mut values: Vec<Span> = group.live().filter(votes).map(value).collect();
        values.sort_unstable();
        values.get(announcing(group) - 1).copied().unwrap_or_default()
    }

    /// From call to the news that the command has its place, and whether that is the most that it takes, and not exactly so
    /// long: where the triangle inequality does not hold, the result of a fast request may come before its votes, and of that
    /// a bound is known ([`Tuned::execute`]).
    ///
    /// # Panics
    /// As [`Tuned::execute`].
    pub(crate) fn commit(
        self,
        matrix: &Matrix,
        client: Client,
        group: Group<'_>,
        coordinator: RegionId,
    ) -> (Span, bool) {
        let choice = self.choose(matrix, client, group);
        let Choice::Fast(voted) = choice else { return (choice.commit(), false) };
        let soonest = Tuned { heartbeat: Span::ZERO, ..self }.execute(matrix, client, group, coordinator);
        if soonest >= voted {
            return (voted, false);
        }
        (voted.min(self.execute(matrix, client, group, coordinator)), true)
    }

    /// As [`execute`]; where not all learn for themselves, the replica in the region `coordinator` does.
    ///
    /// # Panics
    /// If no live replica stands there, and not all learn.
    pub(crate) fn execute(
        self,
        matrix: &Matrix,
        client: Client,
        group: Group<'_>,
        coordinator: RegionId,
    ) -> Span {
        let sole = (self.learners == Learners::Sole).then(|| group.seat_in(coordinator));
        self.executed(matrix, client, group, sole)
    }

    fn executed(self, matrix: &Matrix, client: Client, group: Group<'_>, sole: Option<usize>) -> Span {
        // The stamp, and when the command is known to be chosen at replica `at`, both from the client's call.
        let choice = self.choose(matrix, client, group);
        let stamp = match choice {
            Choice::Fast(_) => self.stamp(matrix, client, group),
            Choice::Leader(region, _) => {
                let seat = group.seat_in(region);
                group.way_there(matrix, client, seat) + group.phase2(matrix, seat)
            }
        };
        let voted = |at: usize| {
            let vote = |seat| group.way_there(matrix, client, seat) + group.way(matrix, seat, at);
            self.of_voters(matrix, client, group, vote)
        };
        let chosen = |at: usize| match (choice, sole) {
            (Choice::Fast(_), None) => voted(at),
            (Choice::Fast(_), Some(learner)) => voted(learner) + group.way(matrix, learner, at),
            (Choice::Leader(region, _), _) => stamp + group.way(matrix, group.seat_in(region), at),
        };
        // Announcements of as many replicas as live, at most a fast quorum of them, settle the empty positions.
        let announced = |at: usize| {
            let way = |seat| group.way(matrix, seat, at);
            stamp + group.smallest(announcing(group), way).unwrap_or_default() + self.heartbeat
        };
        let positions = |at: usize| match sole {
            // It tells with its next heartbeat.
            Some(learner) if learner != at => {
                announced(learner) + self.heartbeat + group.way(matrix, learner, at)
            }
            _ => announced(at),
        };
        let result = |at: usize| {
            let lanes = group.live().map(|seat| group.way(matrix, seat, at)).max().unwrap_or_default();
            let lanes = stamp + lanes + self.heartbeat;
            chosen(at).max(positions(at)).max(lanes) + group.way_back(matrix, client, at)
        };
        match choice {
            Choice::Fast(_) => group.live().map(result).min().unwrap_or_default(),
            Choice::Leader(region, _) => result(group.seat_in(region)),
        }
    }
}

/// As many replicas as a fast quorum has, or as live where that is fewer.
fn announcing(group: Group<'_>) -> usize {
    group.fast().min(group.live().count())
}

/// What this client does: the lane of the lower of [`fast`] and [`leader`]; ties go to the leader. In the fast one it waits for
/// those of a fast quorum that have its request by the stamp.
pub fn choose<'a>(matrix: &Matrix, client: impl Into<Client>, replicas: impl Into<Group<'a>>) -> Choice {
    Tuned::usual(Reply::Commit).choose(matrix, client.into(), replicas.into())
}

/// What it waits in its lane.
pub fn commit<'a>(matrix: &Matrix, client: impl Into<Client>, replicas: impl Into<Group<'a>>) -> Span {
    choose(matrix, client, replicas).commit()
}

/// The round trip to the nearest fast quorum, by which a client judges the fast lane: a supermajority unless the group has
/// another; none while too few replicas live.
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
    let tuned = Tuned { extra: Extra::Fixed(extra), heartbeat, ..Tuned::usual(Reply::Execute) };
    tuned.executed(matrix, client.into(), replicas.into(), None)
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
    fn who_is_near_there_and_back_votes_late_where_the_way_there_is_long() {
        // One way, ms: from the client, and back to it.
        let (there, back) = ([60, 47, 79, 47, 55], [68, 60, 23, 68, 81]);
        let names = ["A", "B", "C", "D", "E", "client"];
        let matrix = Matrix::from_fn(&names, |from, to| {
            let at = |region: RegionId| usize::from(region.0);
            Span::from_millis(match (at(from), at(to)) {
                (5, 5) => 0,
                (5, to) => there[to],
                (from, 5) => back[from],
                (from, to) if from == to => 0,
                _ => 100,
            })
        });
        let replicas: Vec<RegionId> = matrix.regions().take(5).collect();
        let client = matrix.region("client").unwrap();
        // A fast quorum is as near as A, by way of C. It has the request after 60 ms without C, so E is waited for.
        assert_eq!(fast(&matrix, client, &replicas), Some(Span::from_millis(60 + 68)));
        assert_eq!(choose(&matrix, client, &replicas), Choice::Fast(Span::from_millis(55 + 81)));
        // With 19 ms more C has it in time.
        let tuned =
            |extra| Tuned { extra: Extra::Fixed(Span::from_millis(extra)), ..Tuned::usual(Reply::Execute) };
        let choice = |extra| tuned(extra).choose(&matrix, Client::In(client), Group::from(&replicas));
        assert_eq!(choice(18), Choice::Fast(Span::from_millis(136)));
        assert_eq!(choice(19), Choice::Fast(Span::from_millis(128)));
    }

    /// Measured with `isochrone sim`: 110 ms where D coordinates, 156 where A or C does.
    #[test]
    fn a_coordinator_that_executes_before_the_votes_are_there_answers() {
        let cells = [[0, 197, 69, 103], [27, 0, 48, 75], [131, 264, 0, 112], [210, 20, 240, 0]];
        // Half of a cell is a way.
        let way = |from: RegionId, to: RegionId| {
            Span::from_micros(cells[usize::from(from.0)][usize::from(to.0)] * 500)
        };
        let matrix = Matrix::from_fn(&["A", "B", "C", "D"], way);
        let [a, b, c, d] = [0, 1, 2, 3].map(RegionId);
        let replicas = [d, c, a];
        let tuned = Tuned::usual(Reply::Commit);
        let commit = |coordinator| {
            let (commit, most) = tuned.commit(&matrix, Client::In(b), Group::from(&replicas), coordinator);
            (commit.as_nanos() / 100_000, most)
        };
        // At D the last vote is there after 80 ms, and a clock beyond the stamp after 37.5 + 56 and a heartbeat; 10 to B.
        assert_eq!([a, c, d].map(commit), [(1_560, false), (1_560, false), (1_135, true)]);
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
