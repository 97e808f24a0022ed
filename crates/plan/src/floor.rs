//! The lower bound: no protocol answers a linearizable replicated write sooner.

use isochrone_core::{Matrix, Quorums, RegionId, Span};

use crate::client::Client;

/// A lower bound on the time from a client's call to its answer, for a linearizable write to `replicas`.
///
/// `replicas` gives the region of each of the n = 2f+1 replicas, of which any f may crash. Argument: suppose the client
/// is told "done" while word of the write has come back to it, on whatever path, from f replicas at most. Then those
/// may crash, everything sent to the others may be late, and nobody who is left knows of the write: it was acknowledged
/// and is gone. So a message has travelled from the client to f+1 replicas and back, and the bound is the round
/// trip to the (f+1)-th nearest.
///
/// The way to a replica may lead through other regions where that is shorter than the direct one: a leader passes
/// messages on, so a bound over direct round trips ([`nearest_majority`]) would not be one. Processing, queues and
/// disks take no time here. Reads may be faster: a lease holder answers by itself.
///
/// # Panics
/// If there is no replica, or the client is [`Client::At`] a region that has none.
pub fn floor(matrix: &Matrix, client: impl Into<Client>, replicas: &[RegionId]) -> Span {
    nearest_majority(&matrix.relayed(), client, replicas)
}

/// The direct round trip from a client to its (f+1)-th nearest replica: what a protocol needs in which a client talks to
/// a majority itself. Where the matrix keeps the triangle inequality, it is the [`floor`].
///
/// # Panics
/// As [`floor`].
pub fn nearest_majority(matrix: &Matrix, client: impl Into<Client>, replicas: &[RegionId]) -> Span {
    assert!(!replicas.is_empty(), "a keyspace has at least one replica");
    client.into().round_trips(matrix, replicas)[Quorums::majority(replicas.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{curp_consensus, domino, epaxos, fastpaxos, mencius, multipaxos, sdpaxos};
    use isochrone_core::topology::Cells;
    use proptest::prelude::*;

    fn carousel() -> Matrix {
        let text = include_str!("../../../reference/rtt/carousel-ec2.csv");
        Matrix::parse(text, "carousel-ec2.csv", Cells::RoundTrip, Span::ZERO).unwrap()
    }

    fn millis(spans: impl Iterator<Item = Span>) -> Vec<u64> {
        spans.map(|span| span.as_nanos() / 1_000_000).collect()
    }

    #[test]
    fn floors_of_carousel_are_those_computed_by_hand() {
        let matrix = carousel();
        let all: Vec<RegionId> = matrix.regions().collect();
        // Third nearest of five, itself first. Euro: itself, US East 88, then US West: 166 directly, 73 + 88 relayed.
        let floors = millis(matrix.regions().map(|region| floor(&matrix, region, &all)));
        assert_eq!(floors, [102, 88, 161, 115, 161]);
        let direct = millis(matrix.regions().map(|region| nearest_majority(&matrix, region, &all)));
        assert_eq!(direct, [102, 88, 166, 115, 161]);
        // Second nearest of US West, US East, Euro. Asia: 102, then 172 directly against 102 + 73.
        let floors = millis(matrix.regions().map(|region| floor(&matrix, region, &all[..3])));
        assert_eq!(floors, [73, 73, 88, 172, 205]);
        // One replica: there and back.
        let floors = millis(matrix.regions().map(|region| floor(&matrix, region, &all[..1])));
        assert_eq!(floors, [0, 73, 161, 102, 161]);
    }

    #[test]
    fn a_client_at_a_replica_is_spared_the_way_to_it() {
        let text = include_str!("../../../reference/rtt/sdpaxos-ec2.csv");
        let matrix = Matrix::parse(text, "sdpaxos-ec2.csv", Cells::RoundTrip, Span::ZERO).unwrap();
        let (ca, or) = (RegionId(0), RegionId(1));
        assert_eq!(floor(&matrix, ca, &[ca]), Span::from_micros(1_160));
        assert_eq!(floor(&matrix, Client::At(ca), &[ca]), Span::ZERO);
        // Two of three replicas stand in CA: the second is the diagonal away.
        assert_eq!(floor(&matrix, Client::At(ca), &[ca, ca, or]), Span::from_micros(1_160));
        assert_eq!(floor(&matrix, Client::At(or), &[ca, ca, or]), Span::from_millis(20));
    }

    #[test]
    #[should_panic(expected = "no replica stands in")]
    fn a_client_is_not_at_a_replica_that_is_elsewhere() {
        floor(&carousel(), Client::At(RegionId(3)), &[RegionId(0)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// On any matrix, triangle inequality or not, no protocol is below the floor.
        #[test]
        fn nobody_beats_the_floor(ways in prop::collection::vec(0_u64..500, 49), f in 0_usize..4) {
            let names = ["a", "b", "c", "d", "e", "f", "g"];
            let matrix = Matrix::from_fn(&names, |from, to| {
                Span::from_millis(ways[usize::from(from.0) * 7 + usize::from(to.0)])
            });
            let replicas: Vec<RegionId> = matrix.regions().take(2 * f + 1).collect();
            for client in matrix.regions() {
                let floor = floor(&matrix, client, &replicas);
                for leader in &replicas {
                    prop_assert!(floor <= multipaxos::commit(&matrix, client, *leader, &replicas));
                    prop_assert!(floor <= fastpaxos::commit(&matrix, client, *leader, &replicas));
                    prop_assert!(floor <= curp_consensus::commit(&matrix, client, *leader, &replicas));
                    prop_assert!(floor <= sdpaxos::commit(&matrix, client, *leader, &replicas));
                }
                let busy = mencius::busy(&matrix, client, &replicas);
                let fast = epaxos::fast(&matrix, client, &replicas);
                let either = domino::commit(&matrix, client, &replicas);
                prop_assert!(floor <= busy && busy <= mencius::idle(&matrix, client, &replicas));
                prop_assert!(floor <= fast && fast <= epaxos::slow(&matrix, client, &replicas));
                prop_assert!(floor <= either);
            }
        }
    }

    #[test]
    fn direct_round_trips_are_no_lower_bound() {
        // A to C takes 100 ms, but a leader in B passes it on in 20.
        let text = "region,A,B,C\nA,0,10,100\nB,10,0,10\nC,100,10,0\n";
        let matrix = Matrix::parse(text, "m.csv", Cells::RoundTrip, Span::ZERO).unwrap();
        let [a, b, c] = [0, 1, 2].map(RegionId);
        let replicas = [b, c, c];
        let commit = multipaxos::commit(&matrix, a, b, &replicas);
        assert_eq!(commit, Span::from_millis(20));
        assert!(nearest_majority(&matrix, a, &replicas) > commit);
        assert_eq!(floor(&matrix, a, &replicas), commit);
    }
}
