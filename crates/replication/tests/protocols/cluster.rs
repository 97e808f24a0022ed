//! Clusters as the tests want them.

use crate::driver::Loops;
use crate::machine::Machine;
use isochrone_core::{KeyspaceId, NodeId, PartitionId, Random, RegionId, Span};
use isochrone_replication::service::Service;
use isochrone_replication::{Family, Placement, Replicated, Tuning as _};
use isochrone_sim::{
    Action, Config, FaultKind, FaultPlan, FaultSet, Jitter, Planned, Record, Report, Simulation,
};

pub type Cluster<F> = Simulation<Replicated<Machine, F>>;

/// One node in each of `nodes` regions, all at most this far apart and back, `replicas` members and `spares`.
pub fn placement<S: Default, F: Family>(
    nodes: u16,
    replicas: u16,
    spares: u16,
    rtt: Span,
) -> Placement<S, F> {
    let all = |from: u16, to: u16| (from..to).map(NodeId).collect::<Vec<_>>();
    let near = |node: u16| {
        let mut near = all(0, replicas);
        near.sort_by_key(|replica| replica.0 != node);
        near
    };
    Placement {
        keyspace: KeyspaceId(1),
        replicas: all(0, replicas),
        spares: all(replicas, replicas + spares),
        clients: (0..nodes).map(|node| (NodeId(node), near(node))).collect(),
        regions: (0..nodes).map(|node| (NodeId(node), RegionId(node))).collect(),
        partitions: 1,
        leader: NodeId(0),
        service: Service::for_rtt(rtt),
        parameters: F::Parameters::for_rtt(rtt),
        machine: S::default(),
        bug: None,
    }
}

/// What a run with faults came to.
pub struct Ran {
    pub report: Report,
    pub loops: Loops,
    pub plan: FaultPlan,
}

impl Ran {
    /// What broke, if anything: an oracle, or the history.
    pub fn broken(&self) -> Option<String> {
        match self.report.violations.first() {
            Some(violation) => Some(violation.to_string()),
            None => self.loops.violation().map(|text| format!("seed {}: {text}", self.report.seed)),
        }
    }
}

/// How a fuzzed run differs from the rest.
#[derive(Clone)]
pub struct Case<F: Family> {
    pub replicas: u16,
    pub faults: FaultSet,
    /// Draws the knobs.
    pub tune: fn(&mut Placement<Machine, F>, &mut Random),
    /// The bug that is planted.
    pub bug: Option<&'static str>,
    /// The first seed that is tried for it: near one that shows it, where that takes many.
    pub first: u64,
    pub rounds: u64,
    /// Crashes in addition to those drawn, each short.
    pub crashes: u64,
    /// Nodes cut off for one or two seconds, in addition to what is drawn.
    pub isolated: u64,
    /// The first leader's disk is slow, and it crashes among the first two replicas, then comes back among
    /// the first and the last: nothing but its journal can keep it from using its ballot again.
    pub relapse: bool,
    /// The first leader is told to hand over, and is cut off when it has.
    pub usurped: bool,
    /// The first leader does not hear the last replicas, as many as may fail, several times, for a while.
    pub deaf: bool,
    /// Each replica in turn is not heard by the other replicas for a while; a client beside none of them hears it.
    pub mute: bool,
    /// Few keys and little thought: what is stale shows.
    pub hot: bool,
    /// Commands on two keys, and such as have an effect only under a condition.
    pub mixed: bool,
}

impl<F: Family> Case<F> {
    pub fn new(
        replicas: u16,
        faults: FaultSet,
        tune: fn(&mut Placement<Machine, F>, &mut Random),
    ) -> Case<F> {
        Case {
            replicas,
            faults,
            tune,
            bug: None,
            first: 0,
            rounds: 40,
            crashes: 0,
            isolated: 0,
            relapse: false,
            usurped: false,
            deaf: false,
            mute: false,
            hot: false,
            mixed: false,
        }
    }

    /// Everything of a run is drawn from its seed: sizes, distances, disks, knobs, faults.
    pub fn run(&self, seed: u64) -> Ran {
        let (mut cluster, mut loops) = self.cluster(seed);
        let report = cluster.run(&mut loops);
        if std::env::var_os("ISOCHRONE_TRACE").is_some() {
            eprintln!("{}", cluster.trace());
        }
        let plan = cluster.faults().clone();
        Ran { report, loops, plan }
    }

    pub fn cluster(&self, seed: u64) -> (Cluster<F>, Loops) {
        let mut random = Random::seeded(seed ^ 0x636c_7573);
        let nodes = self.replicas + 1;
        // From one machine room to the other side of the world, unevenly.
        let far = [50_000, 500_000, 5_000_000, 40_000_000, 100_000_000]
            [random.below(if self.hot { 3 } else { 5 }) as usize];
        let mut delay = || Span::from_nanos(random.between(far / 2, far));
        let delays: Vec<Vec<Span>> = (0..nodes).map(|_| (0..nodes).map(|_| delay()).collect()).collect();
        let rtt = Span::from_nanos(far * 2);
        let mut placement: Placement<Machine, F> = placement(nodes, self.replicas, 1, rtt);
        let service = &mut placement.service;
        service.forward = random.chance(0.7);
        service.session_idle = Span::from_secs([2, 600][random.below(2) as usize]);
        service.limit = Span::from_secs([3, 20, 20, 20][random.below(4) as usize]);
        if self.usurped {
            // Clients look elsewhere before the old lease has run out.
            service.retry = Span::from_millis(60);
        }
        (self.tune)(&mut placement, &mut random);
        if let Some(bug) = self.bug {
            assert!(placement.parameters.plant(bug), "{} has no bug {bug}", F::NAME);
        }
        let regions: Vec<String> = (0..nodes).map(|node| format!("r{node}")).collect();
        let regions: Vec<&str> = regions.iter().map(String::as_str).collect();
        let mut config = Config::new(seed, &regions, delays);
        config.sync = Span::from_micros(random.between(50, 3_000));
        if self.relapse {
            config.sync = Span::from_millis(600);
        }
        config.jitter = Jitter::Uniform(Span::from_nanos(random.below(far)));
        config.sessions = if self.hot { 2 } else { 1 + random.below(2) as u32 };
        config.horizon = Span::from_secs(8);
        if std::env::var_os("ISOCHRONE_TRACE").is_some() {
            config.record = Record::Flow;
        }
        config.budget = 3_000_000;
        config.snapshot_every = [20, 200, 20_000][random.below(3) as usize];
        let mut cluster = Simulation::new(config, &placement);
        let tolerated = usize::from(self.replicas - 1) / 2;
        let mut plan = FaultPlan::draw(seed, self.faults, &cluster.shape(tolerated));
        if plan.kinds.contains(FaultKind::Membership) {
            // How many may be lost for good depends on how many there are, which now changes.
            let lost = |fault: &Planned| matches!(fault.kind, FaultKind::BitRot | FaultKind::DiskLost);
            plan.faults.retain(|fault| !lost(fault));
        }
        for _ in 0..self.crashes {
            let action = Action::Crash {
                node: random.below(u64::from(self.replicas)) as usize,
                effects: random.below(30),
                down: Span::from_millis(random.between(5, 100)),
            };
            let at = Span::from_millis(random.below(7_500));
            plan.faults.push(Planned { at, length: Span::ZERO, kind: FaultKind::Crash, action });
        }
        for _ in 0..self.isolated {
            let node = random.below(u64::from(self.replicas)) as usize;
            let others = (0..usize::from(nodes)).filter(|other| *other != node);
            let links = others.flat_map(|other| [(node, other), (other, node)]).collect();
            let (at, length) = (random.below(7_000), random.between(500, 2_000));
            let (at, length) = (Span::from_millis(at), Span::from_millis(length));
            let action = Action::Cut { links, held: random.chance(0.5) };
            plan.faults.push(Planned { at, length, kind: FaultKind::Partition, action });
        }
        if self.relapse {
            let last = usize::from(self.replicas) - 1;
            let cut = |node: usize| {
                let others = (0..usize::from(nodes)).filter(move |other| *other != node);
                let links = others.flat_map(|other| [(node, other), (other, node)]).collect();
                Action::Cut { links, held: false }
            };
            let crash = Span::from_millis(random.between(60, 300));
            let mut add = |at, length, kind, action| plan.faults.push(Planned { at, length, kind, action });
            for node in 1..usize::from(nodes) {
                let fast = Action::DiskSlow { node, sync: Span::from_millis(1) };
                add(Span::ZERO, Span::ZERO, FaultKind::DiskSlow, fast);
            }
            let apart = Span::from_millis(random.between(10, 60));
            add(apart, crash.saturating_sub(apart), FaultKind::Partition, cut(last));
            let down = Span::from_millis(20);
            add(crash, Span::ZERO, FaultKind::Crash, Action::Crash { node: 0, effects: 0, down });
            let fast = Action::DiskSlow { node: 0, sync: Span::from_millis(1) };
            add(crash + down / 2, Span::ZERO, FaultKind::DiskSlow, fast);
            add(crash, Span::from_secs(5), FaultKind::Partition, cut(1));
        }
        if self.usurped {
            let order = Span::from_millis(random.between(1_000, 3_000));
            let cut = order + Span::from_micros(random.below(12_000));
            let links = vec![(0, 1), (1, 0), (0, 2), (2, 0)];
            let mut add = |at, length, kind, action| plan.faults.push(Planned { at, length, kind, action });
            add(order, Span::ZERO, FaultKind::Membership, Action::Membership);
            let length = Span::from_secs(2);
            add(cut, length, FaultKind::Partition, Action::Cut { links, held: false });
        }
        if self.deaf {
            let silent = usize::from(self.replicas) - tolerated..usize::from(self.replicas);
            for turn in 0..3 {
                let at = Span::from_millis(turn * 2_500 + random.below(500));
                let length = Span::from_millis(random.between(1_200, 1_900));
                let links = silent.clone().map(|node| (node, 0)).collect();
                let action = Action::Cut { links, held: random.chance(0.5) };
                plan.faults.push(Planned { at, length, kind: FaultKind::Partition, action });
            }
        }
        if self.mute {
            let replicas = usize::from(self.replicas);
            for turn in 0..4 {
                let node = turn as usize % replicas;
                let at = Span::from_millis(turn * 1_900 + random.below(400));
                let length = Span::from_millis(random.between(300, 1_400));
                let links = (0..replicas).filter(|other| *other != node).map(|other| (node, other)).collect();
                let action = Action::Cut { links, held: false };
                plan.faults.push(Planned { at, length, kind: FaultKind::Partition, action });
            }
        }
        plan.faults.sort_by_key(|fault| fault.at);
        cluster.set_faults(plan);
        let mut loops = Loops::new(seed, self.rounds);
        loops.think = Span::from_millis(if self.hot { 40 } else { 400 });
        // Where answers outlive their leaders, they tell what was there before.
        loops.sets = self.hot && !self.mute;
        loops.mixed = self.mixed;
        loops.heir = self.usurped.then_some(NodeId(1));
        // Pairs of keys are checked together: with more of them that takes less.
        loops.keys = if !self.hot {
            8
        } else if self.mixed {
            4
        } else {
            2
        };
        // Of the first partition, where there are several.
        loops.replicas = (0..nodes).map(|node| placement.replica(PartitionId(0), NodeId(node))).collect();
        loops.members = placement.replicas.clone();
        (cluster, loops)
    }
}
