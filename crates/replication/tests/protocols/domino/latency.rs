//! Without load each client waits for the faster of its two ways.

use crate::latency::{Measured, groups, matrices};
use isochrone_core::{Matrix, NodeId, RegionId, Span};
use isochrone_plan::{Client, Group, domino};
use isochrone_replication::domino::{Extra, Family, Placement};
use isochrone_replication::service::Reply;

/// Replies at commit, and as few probes as predictions need.
pub fn at_commit(placement: &mut Placement<crate::machine::Machine>) {
    placement.service.reply = Reply::Commit;
    placement.parameters.reply = Reply::Commit;
    placement.parameters.heartbeat = Span::from_millis(100);
    placement.parameters.probe = Span::from_millis(90);
}

fn measure(matrix: &Matrix, replicas: &[RegionId], dead: &[NodeId]) {
    let ranks: Vec<usize> =
        (0..replicas.len()).filter(|rank| dead.contains(&NodeId(replicas[*rank].0))).collect();
    let group = Group::from(replicas).without(&ranks);
    let measured =
        Measured::<Family> { dead: dead.to_vec(), tune: at_commit, ..Measured::new(matrix, replicas) };
    measured.equals(|region| domino::commit(matrix, Client::At(region), group));
}

#[test]
fn every_region_waits_what_the_closed_form_says_on_every_matrix() {
    for (name, matrix) in matrices() {
        for replicas in groups(&matrix) {
            println!("{name} {}", replicas.len());
            measure(&matrix, &replicas, &[]);
        }
    }
}

#[test]
fn the_dead_are_not_waited_for_on_any_matrix() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            measure(&matrix, &replicas, &[NodeId(replicas[1].0)]);
            if replicas.len() > 3 {
                measure(&matrix, &replicas, &[NodeId(replicas[0].0), NodeId(replicas[3].0)]);
            }
        }
    }
}

/// Replies at execution, and no more probes than predictions need.
fn at_execution(placement: &mut Placement<crate::machine::Machine>) {
    placement.parameters.probe = Span::from_millis(90);
}

/// What `plan` shows for `reply = "execute"` is a bound: what is waited for last is mostly a clock that has passed a stamp,
/// and clocks are announced every heartbeat. So a result is there at the bound, or less than a heartbeat before.
#[test]
fn a_result_is_there_less_than_a_heartbeat_before_its_bound_on_every_matrix() {
    let (extra, heartbeat) = (domino::EXTRA_DELAY, domino::HEARTBEAT);
    for (name, matrix) in matrices() {
        for replicas in groups(&matrix) {
            let measured = Measured::<Family> { tune: at_execution, ..Measured::new(&matrix, &replicas) };
            let parameters = measured.placement().parameters;
            assert_eq!((parameters.extra, parameters.heartbeat), (Extra::Fixed(extra), heartbeat));
            let (waits, _) = measured.waits();
            assert_eq!(waits.len(), 3 * matrix.len());
            for (node, wait) in waits {
                let client = Client::At(RegionId(node.0));
                let most = domino::execute(&matrix, client, &replicas, extra, heartbeat);
                let least = domino::execute(&matrix, client, &replicas, extra, Span::ZERO);
                let error = Span::from_micros(100);
                assert!(
                    wait <= most + error && wait + error >= least,
                    "{name}, {} replicas: {node} waits {wait}, not {least} to {most}",
                    replicas.len()
                );
            }
        }
    }
}
