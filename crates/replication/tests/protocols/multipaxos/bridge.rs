//! One link of the leader is cut, or one direction of it, and others reach both ends: by way of one of them whoever is at the
//! other end is served, until the link is there again.

use crate::cluster::placement;
use crate::driver::Loops;
use crate::machine::Machine;
use isochrone_check::{Operation, Outcome as Ended};
use isochrone_core::{Deployment, NodeId, ProcessId, Span};
use isochrone_replication::multipaxos::Placement;
use isochrone_replication::{Family, Replicated};
use isochrone_sim::{Action, Config, FaultKind, FaultPlan, Planned, Simulation};

/// When the link is cut, and for how long; the run ends as long after.
pub const CUT: Span = Span::from_secs(2);
pub const LONG: Span = Span::from_secs(10);
/// What is asked so long before the end may be unanswered then.
pub const LATE: Span = Span::from_secs(1);

/// What clients see where these directions are cut: from a node, to another.
pub fn run<F: Family>(
    config: Config,
    placement: &isochrone_replication::Placement<Machine, F>,
    links: &[(usize, usize)],
) -> Loops {
    let action = Action::Cut { links: links.to_vec(), held: false };
    let mut plan = FaultPlan::none();
    plan.faults.push(Planned { at: CUT, length: LONG, kind: FaultKind::Partition, action });
    let mut simulation = Simulation::<Replicated<Machine, F>>::new(config, placement);
    simulation.set_faults(plan);
    let mut loops = Loops::new(1, u64::MAX);
    loops.think = Span::from_millis(50);
    simulation.run_for(CUT + LONG + LONG, &mut loops);
    assert_eq!(simulation.broken(), None, "{links:?}");
    assert_eq!(loops.violation(), None, "{links:?}");
    loops
}

/// When this client has asked between these, and how long it has waited: it has its answer each time.
pub fn waits(loops: &Loops, client: ProcessId, from: Span, until: Span) -> Vec<(Span, Span)> {
    let asked = |operation: &&Operation| {
        let at = Span::from_nanos(operation.invoked);
        operation.client == client.to_u64() && from <= at && at < until
    };
    let wait = |operation: &Operation| {
        assert_eq!(operation.outcome, Ended::Ok, "{operation}");
        let returned = operation.returned.unwrap();
        (Span::from_nanos(operation.invoked), Span::from_nanos(returned - operation.invoked))
    };
    loops.history.iter().filter(asked).map(wait).collect()
}

/// Four, all 10 ms apart.
pub fn evenly() -> Config {
    let ms = Span::from_millis;
    let delays = (0..4).map(|from| (0..4).map(|to| ms(if from == to { 0 } else { 10 })).collect());
    let mut config = Config::new(1, &["A", "B", "C", "D"], delays.collect());
    (config.sync, config.sessions) = (ms(1), 1);
    config
}

/// All are 10 ms apart. One is a replica, and one has none beside it.
#[test]
fn who_does_not_reach_the_leader_or_is_not_reached_is_served_by_way_of_another() {
    let ms = Span::from_millis;
    for far in [1, 3] {
        for links in [vec![(0, far), (far, 0)], vec![(0, far)], vec![(far, 0)]] {
            let placement: Placement<Machine> = placement(4, 3, 0, ms(20));
            let loops = run(evenly(), &placement, &links);
            let client = placement.client(NodeId(far as u16));

            // One command finds out, after the first retry; from then on a read takes two round trips, and a write the leader's more.
            let during =
                waits(&loops, client, CUT.saturating_sub(ms(100)), (CUT + LONG).saturating_sub(LATE));
            let slow: Vec<_> = during.iter().filter(|(_, wait)| *wait > ms(100)).collect();
            let [(at, wait)] = &slow[..] else { panic!("{links:?}: {slow:?}") };
            assert!(
                *wait > placement.service.retry && *wait < placement.service.retry + ms(160),
                "{links:?}: {wait}"
            );
            let served: Vec<_> = during.iter().filter(|(asked, _)| asked > at).collect();
            assert!(served.len() > 50, "{links:?}: {}", served.len());
            assert!(served.iter().all(|(_, wait)| (ms(40)..=ms(65)).contains(wait)), "{links:?}: {served:?}");

            let healed = waits(&loops, client, CUT + LONG + LATE, (CUT + LONG + LONG).saturating_sub(LATE));
            assert!(healed.len() > 50, "{links:?}: {}", healed.len());
            assert!(healed.iter().all(|(_, wait)| *wait <= ms(45)), "{links:?}: {healed:?}");
        }
    }
}

/// Where the replica beside a client is the next that it turns to, it takes one retry more.
#[test]
fn each_of_five_regions_is_served_while_its_link_to_the_leader_is_cut() {
    let deployment = Deployment::five_regions();
    let mut placement = Placement::<Machine>::of(&deployment, &deployment.keyspaces()[0]).unwrap();
    placement.leader = NodeId(0);
    let nodes = || deployment.nodes().iter().map(|node| node.id);
    let names: Vec<&str> = deployment.nodes().iter().map(|node| node.name.as_str()).collect();
    for far in 1..5 {
        let delays = nodes().map(|from| nodes().map(|to| deployment.one_way(from, to)).collect()).collect();
        let mut config = Config::new(far as u64, &names, delays);
        (config.sync, config.sessions) = (Span::from_millis(3), 1);
        let loops = run(config, &placement, &[(0, far), (far, 0)]);
        let client = placement.client(NodeId(far as u16));
        let during = waits(&loops, client, CUT, (CUT + LONG).saturating_sub(LATE));
        assert!(during.len() > 8, "{far}: {during:?}");
        assert!(during.iter().all(|(_, wait)| *wait < placement.service.retry * 3), "{far}: {during:?}");
    }
}
