//! Keyspaces in partitions: each a group of its own, under one client.

use crate::cluster::{Case, placement};
use crate::machine::Machine;
use crate::safety::hold;
use isochrone_core::{NodeId, PartitionId, Random, Span};
use isochrone_replication::{Family, Placement, domino, epaxos, fastpaxos, mencius, multipaxos, sdpaxos};
use isochrone_sim::FaultSet;
use std::collections::BTreeSet;

fn in_three<F: Family>(placement: &mut Placement<Machine, F>, _: &mut Random) {
    placement.partitions = 3;
}

fn holds<F: Family>(seeds: u64) {
    let (_, counted) = hold(&Case::<F>::new(3, FaultSet::ALL, in_three), 0, seeds);
    println!("{} {counted:?}", F::NAME);
}

#[test]
fn every_protocol_holds_in_partitions_under_all_faults() {
    holds::<multipaxos::Family>(20);
    holds::<mencius::Family>(10);
    holds::<fastpaxos::Family>(10);
    holds::<epaxos::Family>(10);
    holds::<sdpaxos::Family>(20);
    holds::<domino::Family>(10);
}

#[test]
fn the_first_to_lead_is_another_one_in_each() {
    let mut placement = placement::<Machine, sdpaxos::Family>(5, 3, 0, Span::from_millis(100));
    (placement.partitions, placement.leader) = (4, NodeId(1));
    let leaders: Vec<u16> = placement.partitions().map(|partition| placement.leader(partition).0).collect();
    assert_eq!(leaders, [1, 2, 0, 1]);
    let members = placement.partitions().flat_map(|partition| placement.members(partition).to_vec());
    let processes: BTreeSet<_> = members.map(|member| member.process).collect();
    assert_eq!(processes.len(), 12, "a process for each replica of each");
    assert!(processes.contains(&placement.replica(PartitionId(3), NodeId(2))));
}
