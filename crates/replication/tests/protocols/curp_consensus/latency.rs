//! Without load, a command takes exactly the longer of the ways to the leader and to a superquorum of witnesses and
//! back, or the way through the leader and its majority where that is shorter. A client's first command is asked for
//! without witnesses, since it does not know the term, and after two more it knows which way is shorter.

use crate::latency::{Measured, groups, matrices};
use crate::machine::{Command, Machine, Reply, key};
use isochrone_core::{Fact, Instant, Matrix, NodeId, Path, ProcessId, RegionId, Span, Ticket};
use isochrone_plan::{Client, Group, curp_consensus};
use isochrone_replication::curp::consensus::Family;
use isochrone_replication::{Change, Outcome, Replicated, Request};
use isochrone_sim::{Config, Driver, Next, Session, Simulation};

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

/// Who moves the leader, where it is moved, and who asks.
const OPERATOR: u16 = 0;
const HEIR: u16 = 1;
const ASKER: u16 = 3;

/// How many commands are looked at under each leader.
const EACH: usize = 30;

/// One client asks without a pause, at once and again while the leader is moved, so that under each leader its first
/// command has been asked for before.
#[derive(Default)]
struct Moving {
    moved: bool,
    led: Option<Instant>,
    count: u8,
    asked: Instant,
    /// What it waited under the first leader, and for what it asked once the heir led.
    waits: [Vec<Span>; 2],
}

impl Driver<Replicated<Machine, Family>> for Moving {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request<Command>> {
        let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
        match session.client.node.0 {
            OPERATOR if !std::mem::replace(&mut self.moved, true) => {
                Next::Request { at: at(20), request: Request::Change(Change::Lead(NodeId(HEIR))) }
            }
            ASKER if now < at(60) && self.waits[1].len() < EACH => {
                // Another key each time: the far witness keeps the last ones for a while.
                self.count = self.count.wrapping_add(1);
                let command = Command::Set(key(self.count), "x".to_owned());
                let pauses = self.waits[0].len() == EACH;
                let at = if pauses { now.max(at(19)) } else { now };
                Next::Request { at, request: Request::Command(command) }
            }
            _ => Next::Done,
        }
    }

    fn invoked(&mut self, session: Session, _: Ticket, now: Instant) {
        if session.client.node.0 == ASKER {
            self.asked = now;
        }
    }

    fn completed(&mut self, session: Session, _: Ticket, outcome: Outcome<Reply>, now: Instant) {
        if session.client.node.0 == OPERATOR {
            assert_eq!(outcome, Outcome::Changed);
            return;
        }
        assert!(matches!(outcome, Outcome::Replied(_)), "{outcome:?}");
        let wait = now.since(self.asked);
        match self.led {
            Some(led) if led <= self.asked => self.waits[1].push(wait),
            None if self.waits[0].len() < EACH => self.waits[0].push(wait),
            _ => {}
        }
    }

    fn fact(&mut self, process: ProcessId, fact: &Fact, now: Instant) {
        if process.node.0 == HEIR && matches!(fact, Fact::Leads { .. }) {
            self.led.get_or_insert(now);
        }
    }
}

/// 7.2: what the first command under a leader took says nothing where it was asked for again, and a later one soon does.
#[test]
fn the_nearer_way_is_soon_known_under_another_leader() {
    // Two replicas near the client and each other, the third far from all; ways there, microseconds.
    let ways = [
        [0, 2_000, 100_000, 1_000],
        [2_000, 0, 100_000, 2_500],
        [100_000, 100_000, 0, 100_000],
        [1_000, 2_500, 100_000, 0],
    ];
    let way = |from: usize, to: usize| Span::from_micros(ways[from][to]);
    let names = ["A", "B", "C", "D"];
    let matrix = Matrix::from_fn(&names, |from, to| way(usize::from(from.0), usize::from(to.0)));
    let replicas: Vec<RegionId> = matrix.regions().take(3).collect();
    let placement = Measured::<Family>::new(&matrix, &replicas).placement();
    let delays = (0..4).map(|from| (0..4).map(|to| way(from, to)).collect()).collect();
    let config = Config::new(7, &names, delays);
    let mut simulation = Simulation::<Replicated<Machine, Family>>::new(config, &placement);
    let mut moving = Moving::default();
    let report = simulation.run(&mut moving);
    assert_eq!(report.violations, [], "{report:?}");
    for (leader, waits) in [OPERATOR, HEIR].into_iter().zip(moving.waits) {
        let form = curp_consensus::commit(&matrix, Client::At(RegionId(ASKER)), RegionId(leader), &replicas);
        assert_eq!(waits.len(), EACH);
        for wait in &waits[8..] {
            let off = wait.as_nanos().abs_diff(form.as_nanos());
            assert!(off <= 100_000, "leader {leader}: {wait}, not {form}: {waits:?}");
        }
    }
}
