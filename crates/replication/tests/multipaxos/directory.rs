//! The directory over Multi-Paxos: everyone changes one partition at once, under faults; of those who
//! start from one version exactly one may win.

use isochrone_core::deployment::Deployment;
use isochrone_core::{Instant, KeyspaceId, NodeId, PartitionId, Span, Ticket};
use isochrone_replication::directory::{self, Command, Partition, Protocol, Refusal, Reply, Version};
use isochrone_replication::{Outcome, Request};
use isochrone_sim::{Config, Driver, FaultPlan, Next, Session, Simulation};
use std::collections::BTreeMap;

#[derive(Default)]
struct Rivals {
    /// The version each session believes in, and how often it has asked.
    believes: BTreeMap<u32, (Version, u64)>,
    won: BTreeMap<Version, u32>,
}

impl Driver<Protocol> for Rivals {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request<Command>> {
        let (at, asked) = self.believes.entry(session.number).or_default();
        if *asked == 40 {
            return Next::Done;
        }
        *asked += 1;
        let to = Some(Partition { first: 1 << 40, members: vec![NodeId(session.client.node.0)] });
        let request = Command::Change { keyspace: KeyspaceId(1), partition: PartitionId(1), at: *at, to };
        Next::Request { at: now + Span::from_millis(100), request: Request::Command(request) }
    }

    fn completed(&mut self, session: Session, _: Ticket, outcome: Outcome<Reply>, _: Instant) {
        let Some((believes, _)) = self.believes.get_mut(&session.number) else { return };
        match outcome {
            Outcome::Replied(Reply::Changed(version)) => {
                assert_eq!(self.won.insert(version, session.number), None, "{version:?} was won twice");
                *believes = version;
            }
            Outcome::Replied(Reply::Refused(Refusal::Outdated(version))) => *believes = version,
            Outcome::Unknown => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn of_rival_changes_one_wins() {
    let deployment = Deployment::five_regions();
    let placement = directory::placement(&deployment).unwrap();
    for seed in 0..20 {
        let nodes = || deployment.nodes().iter().map(|node| node.id);
        let delays = nodes().map(|from| nodes().map(|to| deployment.one_way(from, to)).collect()).collect();
        let names: Vec<&str> = deployment.nodes().iter().map(|node| node.name.as_str()).collect();
        let mut config = Config::new(seed, &names, delays);
        config.sync = Span::from_millis(1);
        let mut simulation = Simulation::<Protocol>::new(config, &placement);
        let faults = "crash,partition,loss,snapshot".parse().unwrap();
        simulation.set_faults(FaultPlan::draw(seed, faults, &simulation.shape(2)));
        let mut rivals = Rivals::default();
        let report = simulation.run(&mut rivals);
        assert_eq!(report.violations, []);
        assert!(rivals.won.len() > 10, "only {} changes were made", rivals.won.len());
    }
}
