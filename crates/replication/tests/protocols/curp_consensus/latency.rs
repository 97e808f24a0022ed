//! Without load, a command takes exactly the longer of the ways to the leader and to a superquorum of witnesses and
//! back, or the way through the leader and its majority where that is shorter. A client's first command is asked for
//! without witnesses, since it does not know the term, and after two more it knows which way is shorter.

use crate::latency::{Measured, groups, matrices};
use isochrone_core::{Matrix, NodeId, Path, RegionId, Span};
use isochrone_plan::{Client, Group, curp_consensus};
use isochrone_replication::curp::consensus::Family;

/// T1.
#[test]
fn every_region_waits_what_the_closed_form_says_for_every_leader_on_every_matrix() {
    for (_, matrix) in matrices() {
        let mut groups = groups(&matrix);
        groups.push(matrix.regions().take(1).collect());
        for replicas in groups {
            for leader in &replicas {
                let measured =
                    Measured::<Family> { leader: *leader, warm: 3, ..Measured::new(&matrix, &replicas) };
                measured
                    .equals(|client| curp_consensus::commit(&matrix, Client::At(client), *leader, &replicas));
            }
        }
    }
}

/// T47.
#[test]
fn without_a_superquorum_the_leader_and_its_majority_decide() {
    for (name, matrix) in matrices() {
        for replicas in groups(&matrix) {
            // One more than the fast path bears, and a majority lives.
            let n = replicas.len();
            let failed: Vec<usize> = (n - (n - 1) / 2..n).collect();
            let dead = failed.iter().map(|seat| NodeId(replicas[*seat].0)).collect();
            let group = Group::from(&replicas).without(&failed);
            let measured = Measured::<Family> { dead, warm: 3, ..Measured::new(&matrix, &replicas) };
            let form = |client| curp_consensus::commit(&matrix, Client::At(client), replicas[0], group);
            assert_eq!(
                curp_consensus::fast(&matrix, Client::At(replicas[0]), replicas[0], group),
                None,
                "{name}"
            );
            measured.equals(form);
        }
    }
}

/// T4.
#[test]
fn a_read_under_a_lease_takes_the_way_to_the_leader_and_back() {
    let ms = Span::from_millis;
    let matrix = Matrix::from_fn(&["A", "B", "C"], |from, to| ms(if from == to { 0 } else { 20 }));
    let replicas: Vec<RegionId> = matrix.regions().collect();
    let measured = Measured::<Family> { reads: true, ..Measured::new(&matrix, &replicas) };
    let (waits, paths) = measured.waits();
    for (node, wait) in waits {
        assert_eq!(wait, ms(if node == NodeId(0) { 0 } else { 40 }), "at {node}");
    }
    assert_eq!(paths.into_iter().collect::<Vec<_>>(), [Path::Lease]);
}
