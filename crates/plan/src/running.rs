//! What clients of a keyspace that runs should wait: with the members and the leaders that it has now.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use isochrone_core::deployment::{ConfigErrors, Keyspace};
use isochrone_core::{Matrix, RegionId, ReplicaSet, Span};

use crate::advice::quorums;
use crate::forecast::{Row, rows};
use crate::transactions::writes;
use crate::{Client, Demand, Reply};

/// How a partition stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The region of each replica.
    pub replicas: Vec<RegionId>,
    /// The region of the one that leads; none where nobody does.
    pub leader: Option<RegionId>,
}

/// What clients of a region should wait.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// From call to answer.
    pub wait: Span,
    /// Whether that is a bound: it takes so long `at least`, or `at most`; none where it takes exactly so long.
    pub bound: Option<&'static str>,
}

/// The median latency of a write without load, by region of the client, where keys lie in all partitions alike. A client
/// stands at the replica of its region, as one of a node's gateway does, and its writes interfere with nobody's.
///
/// Of a keyspace of transactions it is the write of one key that reads none, as `SET` is; of several partitions that first asks
/// the partition whether it has the key. `None` where that is not known:
/// no partition, none of its replicas, or no leader where the protocol has one.
///
/// # Errors
/// Domino quorums that the keyspace cannot have.
pub fn expected(
    matrix: &Matrix,
    keyspace: &Keyspace,
    partitions: &[Standing],
) -> Result<Option<Vec<Expected>>, ConfigErrors> {
    let sizes = 1..=usize::from(ReplicaSet::SEATS);
    if partitions.is_empty() || partitions.iter().any(|standing| !sizes.contains(&standing.replicas.len())) {
        return Ok(None);
    }
    let exactly = |waits: Vec<Vec<Span>>| -> Vec<Vec<Expected>> {
        let exact = |wait: Span| Expected { wait, bound: None };
        waits.into_iter().map(|waits| waits.into_iter().map(exact).collect()).collect()
    };
    let waits = match writes(matrix, keyspace, &led_first(partitions)).map(exactly) {
        // Nobody leads a partition of TAPIR.
        Some(waits) if keyspace.protocol == "tapir" => waits,
        Some(waits) if partitions.iter().all(|standing| standing.leader.is_some()) => waits,
        Some(_) => return Ok(None),
        None => match commits(matrix, keyspace, partitions)? {
            Some(waits) => waits,
            None => return Ok(None),
        },
    };
    let median = |region: RegionId| {
        let mut waits: Vec<Expected> =
            waits.iter().filter_map(|waits| waits.get(usize::from(region.0))).copied().collect();
        waits.sort_unstable_by_key(|expected| expected.wait);
        let wait = waits.get(waits.len().saturating_sub(1) / 2)?.wait;
        // Also one that lies elsewhere among them might move the median.
        Some(Expected { wait, bound: waits.iter().find_map(|expected| expected.bound) })
    };
    Ok(matrix.regions().map(median).collect())
}

fn led_first(partitions: &[Standing]) -> Vec<Vec<RegionId>> {
    let group = |standing: &Standing| {
        let mut group = standing.replicas.clone();
        let at = group.iter().position(|region| Some(*region) == standing.leader);
        group.swap(0, at.unwrap_or(0));
        group
    };
    partitions.iter().map(group).collect()
}

/// Of a protocol of commands: for each partition, by region of the client.
fn commits(
    matrix: &Matrix,
    keyspace: &Keyspace,
    partitions: &[Standing],
) -> Result<Option<Vec<Vec<Expected>>>, ConfigErrors> {
    let demand = Demand { clients: vec![1; matrix.len()], conflict: 0.0 };
    let reply = Reply::of(keyspace);
    let mut known: BTreeMap<&[RegionId], Vec<Row>> = BTreeMap::new();
    let mut waits = Vec::with_capacity(partitions.len());
    for Standing { replicas, leader } in partitions {
        let rows = match known.entry(replicas) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let at = |region| Client::of(region, replicas);
                let quorums = quorums(keyspace, replicas.len())?;
                place.insert(rows(matrix, replicas, quorums, keyspace, &demand, &at))
            }
        };
        // Of several cases the first is the one without interference, and of Mencius that without load.
        let row = rows.iter().find(|row| {
            row.protocol == keyspace.protocol
                && (row.leader.is_none() || row.leader == *leader)
                && row.holds_alone(reply)
        });
        let Some(row) = row else { return Ok(None) };
        let expected = |(at, wait): (usize, &Span)| Expected { wait: *wait, bound: row.bound_at(at) };
        waits.push(row.commits.iter().enumerate().map(expected).collect());
    }
    Ok(Some(waits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partitions::tests::{PL_A, ec2};
    use isochrone_core::deployment::Known;
    use isochrone_core::{Deployment, KeyspaceId};

    const MAIN: KeyspaceId = KeyspaceId(1);

    fn waits(protocol: &'static str, matrix: &Matrix, partitions: &[Standing]) -> Option<Vec<u64>> {
        let known =
            Known::names(&["multipaxos", "mencius", "domino"]).placing(&["carousel-fast", "2pc", "tapir"]);
        let deployment = Deployment::five_regions().with_protocol(MAIN, protocol, &known).unwrap();
        let found = expected(matrix, deployment.keyspace(MAIN), partitions).unwrap();
        found.map(|waits| waits.into_iter().map(|expected| expected.wait.as_nanos() / 1_000_000).collect())
    }

    fn all(leader: Option<u16>) -> Standing {
        Standing { replicas: (0..5).map(RegionId).collect(), leader: leader.map(RegionId) }
    }

    #[test]
    fn a_leader_elsewhere_makes_other_waits() {
        let matrix = ec2();
        assert_eq!(waits("multipaxos", &matrix, &[all(Some(1))]), Some(vec![161, 88, 176, 260, 293]));
        assert_eq!(waits("multipaxos", &matrix, &[all(Some(0))]), Some(vec![102, 175, 268, 204, 263]));
        assert_eq!(waits("multipaxos", &matrix, &[all(None)]), None);
        assert_eq!(waits("multipaxos", &matrix, &[]), None);
        // Those of Asia and Australia have been removed: the leader in US West waits for US East.
        let fewer = Standing { replicas: [0, 1, 2].map(RegionId).to_vec(), leader: Some(RegionId(0)) };
        assert_eq!(waits("multipaxos", &matrix, &[fewer]), Some(vec![73, 146, 239, 175, 234]));
        assert_eq!(waits("mencius", &matrix, &[all(None)]), Some(vec![166, 205, 290, 235, 290]));
        assert_eq!(waits("domino", &matrix, &[all(None)]), Some(vec![195, 200, 321, 242, 316]));
    }

    #[test]
    fn a_wait_that_is_a_bound_says_so() {
        let known = Known::names(&["multipaxos", "mencius"]);
        let bounds = |protocol: &'static str, partitions: &[Standing]| {
            let deployment = Deployment::five_regions().with_protocol(MAIN, protocol, &known).unwrap();
            let found = expected(&ec2(), deployment.keyspace(MAIN), partitions).unwrap().unwrap();
            found.into_iter().map(|expected| expected.bound).collect::<Vec<_>>()
        };
        let two = Standing { replicas: [0, 1].map(RegionId).to_vec(), leader: None };
        assert_eq!(bounds("multipaxos", &[all(Some(0))]), [None; 5]);
        assert_eq!(bounds("mencius", &[all(None)]), [Some("at most"); 5]);
        // With two replicas the majority is all of them. Of the partitions' median it is one where it is of any.
        assert_eq!(bounds("mencius", std::slice::from_ref(&two))[..2], [None; 2]);
        assert_eq!(bounds("mencius", &[two, all(None)])[..2], [Some("at most"); 2]);
    }

    #[test]
    fn fast_paxos_waits_for_what_it_answers() {
        let matrix = ec2();
        let known = Known::names(&["fastpaxos"]);
        let waits = |reply: &str, leader: u16| {
            let settings = [("reply".to_owned(), reply.to_owned())];
            let five = Deployment::five_regions().with_protocol(MAIN, "fastpaxos", &known).unwrap();
            let five = five.with_parameters(MAIN, &settings).unwrap();
            let replicas = [0, 1, 2].map(RegionId).to_vec();
            let standing = Standing { replicas, leader: Some(RegionId(leader)) };
            let found = expected(&matrix, five.keyspace(MAIN), &[standing]).unwrap().unwrap();
            found.into_iter().map(|expected| expected.wait.as_nanos() / 100_000).collect::<Vec<_>>()
        };
        assert_eq!(waits("execute", 0), [1_635, 880, 1_635, 2_475, 2_915]);
        assert_eq!(waits("commit", 0), [1_660, 880, 1_660, 2_350, 2_900]);
        // It tells sooner than the votes of US West and Euro reach each other.
        assert_eq!(waits("commit", 1), [1_635, 880, 1_635, 2_350, 2_900]);
    }

    #[test]
    fn of_partitions_it_is_the_median() {
        let partitions = [all(Some(1)), all(Some(0)), all(Some(3))];
        // Of leaders in US East, US West and Asia: 161, 102, 217; 88, 175, 287; ...
        assert_eq!(waits("multipaxos", &ec2(), &partitions), Some(vec![161, 175, 268, 204, 263]));
    }

    /// As measured of `SET` with `isochrone up`: 104, 178, 272, 207, 266 of `carousel-fast`, 208, 281, 374, 309, 370 of `2pc`.
    #[test]
    fn a_transaction_that_writes_reads_nothing() {
        let matrix = ec2();
        assert_eq!(waits("carousel-fast", &matrix, &[all(Some(0))]), Some(vec![102, 175, 268, 204, 263]));
        assert_eq!(waits("2pc", &matrix, &[all(Some(0))]), Some(vec![204, 277, 370, 306, 365]));
        assert_eq!(waits("2pc", &matrix, &[all(None)]), None);
        assert_eq!(waits("tapir", &matrix, &[all(None)]), Some(vec![166, 205, 290, 235, 290]));
        let placed: Vec<_> = PL_A()
            .into_iter()
            .map(|replicas| Standing { leader: replicas.first().copied(), replicas })
            .collect();
        assert!(waits("carousel-fast", &matrix, &placed).is_some_and(|waits| waits.len() == 5));
    }

    /// As measured of `SET` from Euro with `isochrone up`: 355 ms where US East leads, 520 where US West does.
    #[test]
    fn where_keys_may_move_a_write_asks_first_where_its_key_is() {
        let two = waits("2pc", &ec2(), &[all(Some(1)), all(Some(0))]).unwrap();
        // At US East, and from Euro with 88 ms to it: twice its majority, and for Euro twice the way.
        assert_eq!([two[1], two[2]], [88 + 88, 88 + (88 + 88) + 88]);
        assert_eq!(waits("2pc", &ec2(), &[all(Some(1))]).unwrap()[2], 88 + 88 + 88);
    }

    #[test]
    fn a_client_stands_at_its_replica() {
        let text = include_str!("../../../reference/rtt/one-room.csv");
        let matrix = Matrix::parse(
            text,
            "one-room.csv",
            isochrone_core::topology::Cells::RoundTrip,
            Span::from_millis(9),
        )
        .unwrap();
        let replicas: Vec<RegionId> = matrix.regions().collect();
        let standing = Standing { leader: Some(RegionId(0)), replicas };
        let deployment = Deployment::of_matrix(matrix.clone(), "multipaxos", &standing.replicas);
        let found = expected(&matrix, deployment.keyspace(MAIN), &[standing]).unwrap().unwrap();
        assert_eq!(
            found,
            [200, 400, 400].map(|wait| Expected { wait: Span::from_micros(wait), bound: None })
        );
    }
}
