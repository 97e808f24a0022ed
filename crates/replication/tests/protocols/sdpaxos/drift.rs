//! A steady clock that is slower than leases allow for: reads may be stale then, and the tests notice
//! (`specs/sdpaxos.md` 8, S6).

use super::tune;
use crate::cluster::{Case, Ran};
use crate::machine::Machine;
use isochrone_core::{Random, Span};
use isochrone_replication::Placement;
use isochrone_replication::sdpaxos::Family;
use isochrone_sim::{Action, FaultKind, FaultSet, Planned};

fn with_leases(placement: &mut Placement<Machine, Family>, random: &mut Random) {
    tune(placement, random);
    placement.parameters.lease = true;
    // A slow clock beats slowly; it is not to lose the sequencer by that.
    placement.parameters.straggler = false;
    placement.parameters.lease_length = Span::from_secs(1);
}

/// The first sequencer's clock is off by so much, and it is cut off from the others twice.
fn run(seed: u64, parts_per_million: i64) -> Option<String> {
    let case = Case { hot: true, rounds: 400, ..Case::new(3, FaultSet::NONE, with_leases) };
    let (mut cluster, mut loops) = case.cluster(seed);
    // A write that waits keeps reads of its key waiting; there are enough others.
    loops.keys = 60;
    let mut plan = cluster.faults().clone();
    let mut add = |at, length, kind, action| plan.faults.push(Planned { at, length, kind, action });
    add(Span::ZERO, Span::ZERO, FaultKind::Drift, Action::Drift { node: 0, parts_per_million });
    for at in [1_000, 4_500] {
        let links = [(0, 1), (1, 0), (0, 2), (2, 0), (0, 3), (3, 0)].to_vec();
        let action = Action::Cut { links, held: false };
        add(Span::from_millis(at), Span::from_millis(3_300), FaultKind::Partition, action);
    }
    cluster.set_faults(plan.clone());
    let report = cluster.run(&mut loops);
    Ran { report, loops, plan }.broken()
}

#[test]
fn a_clock_that_is_slower_than_leases_allow_for_breaks_reads_and_is_noticed() {
    // The bound is 1 %.
    for seed in 0..20 {
        assert_eq!(run(seed, -9_900), None, "seed {seed}: within the bound");
    }
    let found = (0..20).find_map(|seed| run(seed, -400_000));
    let text = found.expect("a clock at three fifths of its rate shows");
    assert!(text.contains("Violation"), "{text}");
}
