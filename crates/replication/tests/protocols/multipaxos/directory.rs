//! The directory over Multi-Paxos: clients route by their caches and change partitions by
//! compare-and-set, all at once, under all faults.

use crate::cluster::placement;
use isochrone_core::{
    Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Random, RegionId, Span, StateMachine, Ticket,
    key_hash,
};
use isochrone_replication::directory::{
    Command, Directory, KEYSPACE, Keyspace, Node, Partition, Protocol, Refusal, Reply, Route, Routes, Version,
};
use isochrone_replication::multipaxos::Placement;
use isochrone_replication::{Change, Outcome, Request};
use isochrone_sim::{Admin, Config, Driver, FaultPlan, FaultSet, Jitter, Next, Session, Simulation};
use std::collections::{BTreeMap, BTreeSet};

const K: KeyspaceId = KeyspaceId(1);
const PARTITIONS: u64 = 3;
/// Many, so that hardly two changes want the same members.
const NODES: u16 = 1_000;
const ROUNDS: u32 = 30;

/// A directory of many nodes and one keyspace of three partitions, at version 1.
fn directory() -> Directory {
    let mut directory = Directory::default();
    for id in 0..NODES {
        let node = Node { name: format!("n{id}"), region: RegionId(0), address: String::new() };
        directory.apply(&Command::ChangeNode { node: NodeId(id), at: Version(0), to: Some(node) });
    }
    let to = Keyspace { name: "main".to_owned(), protocol: "multipaxos".to_owned() };
    let partitions = (0..PARTITIONS).map(|id| Partition { first: id << 62, members: vec![NodeId(0)] });
    let reply = directory.apply(&Command::Create { keyspace: K, to, partitions: partitions.collect() });
    assert_eq!(reply, Reply::Changed(Version(1)));
    directory
}

/// A request under way, and the greatest version of each partition that anybody knew when it began.
struct Open {
    command: Command,
    known: BTreeMap<PartitionId, Version>,
}

/// Clients that each route a key by what they were told, ask where they were told nothing, and change the
/// partition that they are led to.
struct Rivals {
    random: Random,
    replicas: Vec<ProcessId>,
    caches: BTreeMap<u32, Routes>,
    asked: BTreeMap<u32, (u32, Option<Command>)>,
    open: BTreeMap<Ticket, Open>,
    known: BTreeMap<PartitionId, Version>,
    /// The members at each version, by whoever was told first.
    members: BTreeMap<(PartitionId, Version), Vec<NodeId>>,
    acknowledged: BTreeSet<(PartitionId, Version)>,
    /// Members wanted by changes of which nobody heard, by the version they would have made.
    unheard: BTreeMap<(PartitionId, Version), Vec<Vec<NodeId>>>,
    outdated: u32,
}

impl Rivals {
    fn new(seed: u64, replicas: Vec<ProcessId>) -> Rivals {
        let first = |id| ((PartitionId(id as u16), Version(1)), vec![NodeId(0)]);
        Rivals {
            random: Random::seeded(seed ^ 0x6469_7265),
            replicas,
            caches: BTreeMap::new(),
            asked: BTreeMap::new(),
            open: BTreeMap::new(),
            known: (0..PARTITIONS).map(|id| (PartitionId(id as u16), Version(1))).collect(),
            members: (0..PARTITIONS).map(first).collect(),
            acknowledged: BTreeSet::new(),
            unheard: BTreeMap::new(),
            outdated: 0,
        }
    }

    /// Somebody was told of this version: nothing that ended before may have been later.
    fn told(&mut self, open: &Open, partition: PartitionId, version: Version) {
        assert!(
            version >= open.known[&partition],
            "{partition} fell back to {version:?}: {:?}",
            open.command
        );
        let known = self.known.entry(partition).or_default();
        *known = version.max(*known);
    }

    /// At one version a partition has the same members, whoever asks.
    fn stands(&mut self, partition: PartitionId, version: Version, members: &[NodeId]) {
        let known = self.members.entry((partition, version)).or_insert_with(|| members.to_vec());
        assert_eq!(known, members, "{partition} at {version:?}");
    }

    fn unheard(&mut self, open: Option<Open>) {
        if let Some(Command::Change { partition, at, to: Some(to), .. }) = open.map(|open| open.command) {
            self.unheard.entry((partition, at.next())).or_default().push(to.members);
        }
    }

    /// Every version up to the last was made by exactly one change that asked for it.
    fn account(mut self) -> (usize, u32) {
        for open in std::mem::take(&mut self.open).into_values() {
            self.unheard(Some(open));
        }
        for (partition, last) in &self.known {
            for version in (2..=last.0).map(Version) {
                let key = (*partition, version);
                let unheard = self.unheard.get(&key).map(Vec::as_slice).unwrap_or_default();
                let known = self.members.get(&key);
                let by_unheard = known.map_or(!unheard.is_empty(), |members| unheard.contains(members));
                assert!(self.acknowledged.contains(&key) || by_unheard, "nobody made {key:?}");
            }
        }
        (self.acknowledged.len(), self.outdated)
    }
}

impl Driver<Protocol> for Rivals {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request<Command>> {
        let key = format!("key{}", self.random.below(20));
        let place = key_hash(K, key.as_bytes());
        let cache = self.caches.entry(session.number).or_default();
        let command = match cache.route(K, key.as_bytes()) {
            None => Command::Route { keyspace: K, place },
            Some(route) if self.random.chance(0.3) => {
                Command::Members { keyspace: K, partition: route.partition }
            }
            Some(route) => {
                let members =
                    BTreeSet::from([(); 3].map(|()| NodeId(self.random.below(NODES.into()) as u16)));
                let to = Partition { first: route.first, members: members.into_iter().collect() };
                Command::Change { keyspace: K, partition: route.partition, at: route.version, to: Some(to) }
            }
        };
        let (count, asked) = self.asked.entry(session.number).or_default();
        if *count == ROUNDS {
            return Next::Done;
        }
        *count += 1;
        *asked = Some(command.clone());
        let at = now + Span::from_nanos(self.random.below(300_000_000));
        Next::Request { at, request: Request::Command(command) }
    }

    fn invoked(&mut self, session: Session, ticket: Ticket, _: Instant) {
        let Some((_, Some(command))) = self.asked.get(&session.number).cloned() else { return };
        self.open.insert(ticket, Open { command, known: self.known.clone() });
    }

    fn completed(&mut self, session: Session, ticket: Ticket, outcome: Outcome<Reply>, _: Instant) {
        let Some(open) = self.open.remove(&ticket) else { return };
        let reply = match outcome {
            Outcome::Replied(reply) => reply,
            Outcome::Refused(_) => return,
            Outcome::Unknown | Outcome::Changed | Outcome::Moved { .. } | Outcome::Served(_) => {
                return self.unheard(Some(open));
            }
        };
        match (&open.command, &reply) {
            (Command::Change { partition, at, to: Some(to), .. }, Reply::Changed(version)) => {
                assert_eq!(*version, at.next(), "versions rise by one");
                assert!(self.acknowledged.insert((*partition, *version)), "{version:?} was made twice");
                assert!(*version > open.known[partition], "{version:?} was known before it was made");
                self.told(&open, *partition, *version);
                self.stands(*partition, *version, &to.members);
            }
            (Command::Change { partition, at, .. }, Reply::Refused(Refusal::Outdated(version))) => {
                assert!(version > at, "refused at {at:?} for {version:?}");
                self.outdated += 1;
                self.told(&open, *partition, *version);
            }
            (_, Reply::Route(Route { partition, version, first, last, members, .. })) => {
                match &open.command {
                    Command::Route { place, .. } => assert!((*first..=*last).contains(place)),
                    command => assert_eq!(*command, Command::Members { keyspace: K, partition: *partition }),
                }
                self.told(&open, *partition, *version);
                self.stands(*partition, *version, members);
            }
            other => panic!("{other:?}"),
        }
        let cache = self.caches.entry(session.number).or_default();
        cache.learn(&reply);
        if let Command::Change { partition, at, .. } = open.command {
            cache.forget(K, partition, at);
        }
    }

    fn lost(&mut self, _: Session, ticket: Ticket, _: Instant) {
        let open = self.open.remove(&ticket);
        self.unheard(open);
    }

    fn admin(&mut self, _: Instant, random: &mut Random) -> Vec<Admin> {
        let mut any = || self.replicas[random.below(self.replicas.len() as u64) as usize];
        let (process, heir) = (any(), any().node);
        vec![Admin::Request { process, request: Box::new(Change::Lead(heir)) }]
    }
}

/// Changes acknowledged and refused as outdated over these seeds.
fn hold(replicas: u16, seeds: std::ops::Range<u64>, machine: &Directory) -> (usize, u32) {
    let (mut changed, mut outdated) = (0, 0);
    for seed in seeds {
        let mut random = Random::seeded(seed ^ 0x706c_6163);
        let nodes = replicas + 1;
        let far = [500_000, 5_000_000, 40_000_000][random.below(3) as usize];
        let mut delay = || Span::from_nanos(random.between(far / 2, far));
        let delays = (0..nodes).map(|_| (0..nodes).map(|_| delay()).collect()).collect();
        let rtt = Span::from_nanos(far * 2);
        let mut placement: Placement<Directory> = placement(nodes, replicas, 0, rtt);
        placement.parameters.lease = random.chance(0.7);
        placement.parameters.keep_slots = [2, 16, 8_192][random.below(3) as usize];
        (placement.keyspace, placement.machine) = (KEYSPACE, machine.clone());
        let names: Vec<String> = (0..nodes).map(|node| format!("r{node}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut config = Config::new(seed, &names, delays);
        config.sync = Span::from_micros(random.between(50, 3_000));
        config.jitter = Jitter::Uniform(Span::from_nanos(random.below(far)));
        config.sessions = 2;
        config.horizon = Span::from_secs(8);
        config.snapshot_every = [20, 20_000][random.below(2) as usize];
        let mut simulation = Simulation::<Protocol>::new(config, &placement);
        let shape = simulation.shape(usize::from(replicas - 1) / 2);
        simulation.set_faults(FaultPlan::draw(seed, FaultSet::ALL, &shape));
        let members =
            placement.replicas.iter().map(|node| placement.replica(PartitionId(0), *node)).collect();
        let mut rivals = Rivals::new(seed, members);
        let report = simulation.run(&mut rivals);
        assert_eq!(report.violations, [], "seed {seed}");
        let (won, lost) = rivals.account();
        changed += won;
        outdated += lost;
    }
    (changed, outdated)
}

#[test]
fn of_changes_made_from_one_version_one_wins() {
    let machine = directory();
    for (replicas, seeds) in [(3, 0..40), (5, 1_000..1_020)] {
        let runs = seeds.end - seeds.start;
        let (changed, outdated) = hold(replicas, seeds, &machine);
        println!("{replicas} replicas: {changed} changes, {outdated} refused");
        assert!(changed as u64 > runs * 10 && u64::from(outdated) > runs * 3, "{changed}, {outdated}");
    }
}
