//! The replicas of a keyspace, some of them perhaps crashed, and the distances between them and to a client.

use isochrone_core::{FastQuorums, Matrix, Quorums, RegionId, Span};

use crate::client::Client;

/// The replicas of a keyspace by region, each known by its seat, the position in the list. Quorums count all of them;
/// only the live ones answer.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    replicas: &'a [RegionId],
    failed: &'a [usize],
    quorums: FastQuorums,
}

impl<'a> From<&'a [RegionId]> for Group<'a> {
    fn from(replicas: &'a [RegionId]) -> Self {
        assert!(!replicas.is_empty(), "a keyspace has at least one replica");
        Self { replicas, failed: &[], quorums: FastQuorums::of(replicas.len()) }
    }
}

impl<'a> From<&'a Vec<RegionId>> for Group<'a> {
    fn from(replicas: &'a Vec<RegionId>) -> Self {
        replicas.as_slice().into()
    }
}

impl<'a, const N: usize> From<&'a [RegionId; N]> for Group<'a> {
    fn from(replicas: &'a [RegionId; N]) -> Self {
        replicas.as_slice().into()
    }
}

impl<'a> Group<'a> {
    /// The same group after the replicas on these seats have crashed and everybody has noticed.
    ///
    /// # Panics
    /// If no majority is left: nothing is decided then, so there is no latency.
    #[must_use]
    pub fn without(self, failed: &'a [usize]) -> Self {
        let group = Self { failed, ..self };
        assert!(group.live().count() >= group.majority(), "without {failed:?} there is no majority");
        group
    }

    /// The same group with fast and classic quorums of other sizes, where the protocol has such.
    #[must_use]
    pub fn with(self, quorums: FastQuorums) -> Self {
        Self { quorums, ..self }
    }

    /// How many replicas there are, crashed ones included.
    pub(crate) fn len(self) -> usize {
        self.replicas.len()
    }

    pub(crate) fn majority(self) -> usize {
        Quorums::majority(self.len())
    }

    pub(crate) fn fast(self) -> usize {
        self.quorums.fast()
    }

    /// The seats of those that answer.
    pub(crate) fn live(self) -> impl Iterator<Item = usize> + Clone + use<'a> {
        let failed = self.failed;
        (0..self.replicas.len()).filter(move |seat| !failed.contains(seat))
    }

    pub(crate) fn region(self, seat: usize) -> RegionId {
        self.replicas[seat]
    }

    /// The first live replica of a region.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn seat_in(self, region: RegionId) -> usize {
        match self.live().find(|seat| self.replicas[*seat] == region) {
            Some(seat) => seat,
            None => panic!("no live replica stands in {region}"),
        }
    }

    /// One way between two replicas; nothing from one to itself.
    pub(crate) fn way(self, matrix: &Matrix, from: usize, to: usize) -> Span {
        if from == to { Span::ZERO } else { matrix.one_way(self.replicas[from], self.replicas[to]) }
    }

    /// Round trip between two replicas.
    pub(crate) fn trip(self, matrix: &Matrix, a: usize, b: usize) -> Span {
        self.way(matrix, a, b) + self.way(matrix, b, a)
    }

    /// Whether the client is on the node of this replica.
    fn hosts(self, client: Client, seat: usize) -> bool {
        match client {
            Client::At(home) => self.replicas.iter().position(|region| *region == home) == Some(seat),
            Client::In(_) => false,
        }
    }

    /// One way from the client to a replica.
    pub(crate) fn way_there(self, matrix: &Matrix, client: Client, seat: usize) -> Span {
        if self.hosts(client, seat) {
            return Span::ZERO;
        }
        matrix.one_way(client.region(), self.replicas[seat])
    }

    /// One way from a replica to the client.
    pub(crate) fn way_back(self, matrix: &Matrix, client: Client, seat: usize) -> Span {
        if self.hosts(client, seat) {
            return Span::ZERO;
        }
        matrix.one_way(self.replicas[seat], client.region())
    }

    /// Round trip between the client and a replica.
    pub(crate) fn reach(self, matrix: &Matrix, client: Client, seat: usize) -> Span {
        self.way_there(matrix, client, seat) + self.way_back(matrix, client, seat)
    }

    /// The live replica that a client hands its commands to where any will do: the nearest, the first of equals.
    pub(crate) fn nearest(self, matrix: &Matrix, client: Client) -> usize {
        match self.live().min_by_key(|seat| self.reach(matrix, client, *seat)) {
            Some(seat) => seat,
            None => unreachable!("a group has a live majority"),
        }
    }

    /// The shortest ways between all seats, by way of live ones where that is shorter.
    pub(crate) fn relayed(self, matrix: &Matrix) -> Vec<Vec<Span>> {
        let seats = 0..self.len();
        let row = |from| seats.clone().map(|to| self.way(matrix, from, to)).collect();
        let mut ways: Vec<Vec<Span>> = seats.clone().map(row).collect();
        for via in self.live() {
            for from in seats.clone() {
                for to in seats.clone() {
                    ways[from][to] = ways[from][to].min(ways[from][via] + ways[via][to]);
                }
            }
        }
        ways
    }

    /// Round trips from a replica to the live ones, its own (nothing) among them, shortest first.
    pub(crate) fn trips(self, matrix: &Matrix, seat: usize) -> Vec<Span> {
        let mut trips: Vec<Span> = self.live().map(|other| self.trip(matrix, seat, other)).collect();
        trips.sort_unstable();
        trips
    }

    /// A replica's round trip to the nearest that, with itself, are a majority.
    pub(crate) fn phase2(self, matrix: &Matrix, seat: usize) -> Span {
        self.trips(matrix, seat)[self.majority() - 1]
    }

    /// The `count`-th smallest of a value over the live replicas; none where fewer are live.
    pub(crate) fn smallest(self, count: usize, value: impl Fn(usize) -> Span) -> Option<Span> {
        let mut values: Vec<Span> = self.live().map(value).collect();
        values.sort_unstable();
        values.get(count - 1).copied()
    }
}
