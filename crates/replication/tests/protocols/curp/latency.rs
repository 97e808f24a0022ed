//! Without load, a write takes the way to the master and the farthest witness, or through the master and its farthest
//! backup, whichever is shorter (T1); a read takes the way to the master (T4), or to the nearest copy (T5).

use crate::latency::{Measured, groups, matrices};
use crate::machine::Machine;
use isochrone_core::{Matrix, NodeId, Path, RegionId, Span};
use isochrone_plan::Client;
use isochrone_replication::curp::primary::{Family, Placement};

#[test]
fn every_region_waits_what_the_closed_form_says_on_every_matrix() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            let f = replicas.len().min(3) - 1;
            let measured = Measured::<Family> { warm: 2, ..Measured::new(&matrix, &replicas) };
            measured.equals(|client| {
                isochrone_plan::curp::commit(&matrix, Client::At(client), replicas[0], &replicas, f)
            });
        }
    }
}

#[test]
fn and_where_servers_are_witnesses() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            let f = replicas.len().min(3) - 1;
            let tune: fn(&mut Placement<Machine>) = |placement| placement.parameters.unified = true;
            let measured = Measured::<Family> { warm: 2, tune, ..Measured::new(&matrix, &replicas) };
            measured.equals(|client| {
                isochrone_plan::curp::commit(&matrix, Client::At(client), replicas[0], &replicas, f)
            });
        }
    }
}

#[test]
fn with_one_copy_and_any_master_too() {
    let (_, matrix) = matrices().into_iter().find(|(_, matrix)| matrix.len() >= 3).unwrap();
    let replicas: Vec<RegionId> = matrix.regions().take(3).collect();
    for master in &replicas {
        let measured = Measured::<Family> {
            leader: *master,
            warm: 2,
            tune: |placement| placement.parameters.f = 1,
            ..Measured::new(&matrix, &replicas)
        };
        measured.equals(|client| {
            isochrone_plan::curp::commit(&matrix, Client::At(client), *master, &replicas, 1)
        });
    }
}

#[test]
fn a_read_under_leases_takes_the_way_to_the_master_and_back() {
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

/// T5, the way to the nearest copy, where that is nearer than the master.
#[test]
fn a_read_takes_the_way_to_the_nearest_of_master_and_copies() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            let f = replicas.len().min(3) - 1;
            let tune: fn(&mut Placement<Machine>) = |placement| {
                placement.parameters.nearby_reads = true;
                placement.parameters.lease_length = placement.parameters.lease_length * 2;
            };
            let measured = Measured::<Family> { reads: true, tune, ..Measured::new(&matrix, &replicas) };
            measured.equals(|client| {
                isochrone_plan::curp::nearby_read(&matrix, Client::At(client), replicas[0], &replicas, f)
            });
        }
    }
}
