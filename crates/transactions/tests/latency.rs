//! What a transaction waits when nothing else is under way, in true time.

use isochrone_core::topology::Cells;
use isochrone_core::{Blob, Instant, KeyspaceId, Matrix, NodeId, RegionId, Span, Ticket};
use isochrone_sim::{
    Action, Config, Driver, FaultKind, FaultPlan, FaultSet, Next, Planned, Session, Simulation,
};
use isochrone_transactions::{Distances, Family, Outcome, Placement, Request, Split, Transactional, Update};
use std::collections::BTreeMap;

/// The five regions of the evaluation, nothing inside a region.
pub fn ec2() -> Matrix {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference/rtt/carousel-ec2.csv");
    let text = std::fs::read_to_string(file).unwrap();
    Matrix::parse(&text, "carousel-ec2.csv", Cells::RoundTrip, Span::ZERO).unwrap()
}

/// As many regions, all of them one round trip of this length apart.
pub fn unit(regions: usize, rtt: Span) -> Matrix {
    apart(regions, |_, _| rtt)
}

/// As many regions, each two of them a round trip of this length apart, which is the same from both.
pub fn apart(regions: usize, rtt: impl Fn(usize, usize) -> Span) -> Matrix {
    let names: Vec<String> = (0..regions).map(|region| format!("r{region}")).collect();
    let mut text = format!("region,{}\n", names.join(","));
    for (row, name) in names.iter().enumerate() {
        let cell = |column| match row == column {
            true => "0".to_owned(),
            false => rtt(row, column).as_millis_f64().to_string(),
        };
        text += &format!("{name},{}\n", (0..regions).map(cell).collect::<Vec<_>>().join(","));
    }
    Matrix::parse(&text, "unit", Cells::RoundTrip, Span::ZERO).unwrap()
}

/// The placement PL-A of `specs/carousel.md` 7.3: by partition its leader, then its followers.
pub const PLACEMENT_A: [[u16; 3]; 5] = [[0, 1, 2], [1, 3, 4], [2, 3, 4], [3, 0, 1], [4, 0, 2]];

/// A key of a partition.
pub fn key(partition: u16) -> Blob {
    Blob::from(format!("{partition}:key"))
}

/// A cluster with a node in each region, and what one client does in it, one transaction after the other.
pub struct Alone<F: Family> {
    pub matrix: Matrix,
    pub groups: Vec<Vec<u16>>,
    pub tune: fn(&mut F::Parameters),
    /// Nodes with a replica, of each partition that has none there, that waits to be added.
    pub spares: Vec<u16>,
    /// Nodes that are down when the client begins.
    pub dead: Vec<u16>,
    /// What a line carries, bytes a second.
    pub bandwidth: Option<u64>,
    /// Whether keys can move between partitions.
    pub movable: bool,
}

/// What one transaction does: reads and writes a key of each partition, or only reads.
#[derive(Clone, Debug)]
pub struct Does {
    pub client: u16,
    pub partitions: Vec<u16>,
    pub writes: bool,
}

impl Does {
    pub fn update(client: u16, partitions: &[u16]) -> Does {
        Does { client, partitions: partitions.to_vec(), writes: true }
    }
    pub fn read(client: u16, partitions: &[u16]) -> Does {
        Does { client, partitions: partitions.to_vec(), writes: false }
    }
}

impl<F: Family> Alone<F> {
    pub fn new(matrix: Matrix, groups: &[[u16; 3]]) -> Alone<F> {
        let groups = groups.iter().map(|group| group.to_vec()).collect();
        let (spares, dead) = (Vec::new(), Vec::new());
        Alone { matrix, groups, tune: |_| {}, spares, dead, bandwidth: None, movable: false }
    }

    pub fn placement(&self) -> Placement<F> {
        let regions = self.matrix.len() as u16;
        let far = |from: u16, to: u16| {
            let (from, to) = (RegionId(from), RegionId(to));
            self.matrix.one_way(from, to) + self.matrix.one_way(to, from)
        };
        let all = || 0..regions;
        let rtt_max = all().flat_map(|from| all().map(move |to| far(from, to))).max().unwrap();
        let clients = all().map(|client| {
            let rtt = all().map(|node| far(client, node)).collect();
            (NodeId(client), Distances { rtt, local: all().map(|node| node == client).collect() })
        });
        let bounds: Vec<Blob> = (1..self.groups.len()).map(|at| Blob::from(format!("{at}"))).collect();
        let split = if bounds.is_empty() { Split::Hash } else { Split::Ranges(bounds.into()) };
        let groups: Vec<Vec<NodeId>> =
            self.groups.iter().map(|group| group.iter().map(|node| NodeId(*node)).collect()).collect();
        let mut parameters = F::defaults(rtt_max);
        (self.tune)(&mut parameters);
        let mut placement = Placement::new(KeyspaceId(1), split, &groups, clients.collect(), parameters);
        self.spares.iter().for_each(|node| placement.add_spare(NodeId(*node)));
        if self.movable { placement.movable() } else { placement }
    }

    pub fn simulation(&self) -> Simulation<Transactional<F>> {
        let names: Vec<&str> = self.matrix.names().collect();
        let count = self.matrix.len() as u16;
        let delay = |from, to| self.matrix.one_way(RegionId(from), RegionId(to));
        let delays = (0..count).map(|from| (0..count).map(|to| delay(from, to)).collect()).collect();
        let mut config = Config::new(7, &names, delays);
        (config.sync, config.bandwidth) = (Span::ZERO, self.bandwidth);
        config.horizon = Span::from_secs(3_600);
        if std::env::var_os("ISOCHRONE_TRACE").is_some() {
            config.record = isochrone_sim::Record::Flow;
        }
        let mut simulation = Simulation::new(config, &self.placement());
        let crash = |node: &u16| Planned {
            at: Span::from_secs(5),
            length: Span::ZERO,
            kind: FaultKind::Crash,
            action: Action::Crash { node: usize::from(*node), effects: 0, down: Span::from_secs(100_000) },
        };
        let mut plan = FaultPlan::draw(7, FaultSet::NONE, &simulation.shape(1));
        plan.faults = self.dead.iter().map(crash).collect();
        simulation.set_faults(plan);
        simulation
    }

    /// What each of these waits, from its beginning to its end, and how it ended.
    pub fn waits(&self, does: &[Does]) -> Vec<(Span, Outcome)> {
        let mut driver = InTurn { does: does.to_vec(), ..InTurn::default() };
        let mut simulation = self.simulation();
        let report = simulation.run(&mut driver);
        if std::env::var_os("ISOCHRONE_TRACE").is_some() {
            eprintln!("{}", simulation.trace());
        }
        assert_eq!(report.violations, [], "{}: {report:?}", F::NAME);
        assert_eq!(driver.ended.len(), does.len(), "{}: {:?}", F::NAME, driver.ended);
        driver.ended.into_values().collect()
    }

    /// The wait of one transaction, which must commit.
    pub fn wait(&self, does: Does) -> Span {
        let (wait, outcome) = self.waits(&[does]).remove(0);
        assert!(
            matches!(outcome, Outcome::Committed { .. } | Outcome::Snapshot { .. }),
            "{}: {outcome:?}",
            F::NAME
        );
        wait
    }
}

#[derive(Default)]
struct InTurn {
    does: Vec<Does>,
    begun: BTreeMap<usize, Instant>,
    next: BTreeMap<u32, Request>,
    current: Option<usize>,
    ended: BTreeMap<usize, (Span, Outcome)>,
}

/// When the first begins: there is a leader everywhere by then.
const FIRST: Span = Span::from_secs(20);
const APART: Span = Span::from_secs(5);

impl<F: Family> Driver<Transactional<F>> for InTurn {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request> {
        if let Some(request) = self.next.remove(&session.number) {
            return Next::Request { at: now, request };
        }
        let mine = |does: &Does| does.client == session.client.node.0;
        let open = |at: &usize| !self.begun.contains_key(at) && mine(&self.does[*at]);
        let Some(at) = (0..self.does.len()).find(open) else { return Next::Done };
        let does = &self.does[at];
        let keys: Vec<Blob> = does.partitions.iter().map(|partition| key(*partition)).collect();
        let writes = if does.writes { keys.clone() } else { Vec::new() };
        let begins = Instant::ZERO + FIRST + APART * at as u64;
        self.begun.insert(at, begins);
        self.current = None;
        Next::Request { at: begins, request: Request::Begin { reads: keys, writes } }
    }

    fn completed(&mut self, session: Session, _: Ticket, outcome: Outcome, now: Instant) {
        let at = *self
            .begun
            .keys()
            .filter(|at| !self.ended.contains_key(at))
            .find(|at| self.does[**at].client == session.client.node.0)
            .unwrap();
        if let Outcome::Begun { txn, reads } = &outcome {
            let update = |read: &isochrone_transactions::Read| Update {
                key: read.key.clone(),
                value: Some(Blob::from(format!("v{at}"))),
            };
            let updates = reads.iter().map(update).collect();
            self.next.insert(session.number, Request::Commit { txn: *txn, updates });
        } else {
            self.ended.insert(at, (now.since(self.begun[&at]), outcome));
        }
    }
}
