//! The ways of one command, by script (T2, T3, T4, T21, T22); reads at a copy are in [`super::nearby`].

use crate::cluster::placement;
use crate::machine::{Command, Machine, Reply, key};
use isochrone_core::{Fact, Instant, NodeId, Path, ProcessId, Random, RegionId, Span, Ticket};
use isochrone_replication::curp::primary::{Family, Placement};
use isochrone_replication::{Outcome, Replicated, Request};
use isochrone_sim::{
    Action, Config, Driver, FaultKind, FaultPlan, FaultSet, FlowEvent, Next, Planned, Record, Session,
    Simulation,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What each client asks, and when.
#[derive(Default)]
struct Script {
    asks: BTreeMap<NodeId, VecDeque<(Span, Command)>>,
    invoked: BTreeMap<Ticket, Instant>,
    /// Who was answered, when it had asked, and after how long.
    waits: Vec<(NodeId, Span, Span)>,
    paths: Vec<(NodeId, Path)>,
    /// When each server handed out what is safe.
    decided: Vec<(NodeId, Instant)>,
    /// When each node sent commands, where that is listened to.
    asked: Vec<(String, Instant)>,
}

impl Driver<Replicated<Machine, Family>> for Script {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request<Command>> {
        match self.asks.get_mut(&session.client.node).and_then(VecDeque::pop_front) {
            Some((at, command)) => {
                Next::Request { at: (Instant::ZERO + at).max(now), request: Request::Command(command) }
            }
            None => Next::Done,
        }
    }

    fn invoked(&mut self, _: Session, ticket: Ticket, now: Instant) {
        self.invoked.insert(ticket, now);
    }

    fn completed(&mut self, session: Session, ticket: Ticket, outcome: Outcome<Reply>, now: Instant) {
        assert!(matches!(outcome, Outcome::Replied(_)), "{outcome:?}");
        let at = self.invoked[&ticket];
        self.waits.push((session.client.node, at.since(Instant::ZERO), now.since(at)));
    }

    fn fact(&mut self, process: ProcessId, fact: &Fact, now: Instant) {
        match fact {
            Fact::Committed { path, .. } => self.paths.push((process.node, *path)),
            Fact::Decided { .. } => self.decided.push((process.node, now)),
            _ => {}
        }
    }
}

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn set(number: u8) -> Command {
    Command::Set(key(number), "x".to_owned())
}

/// Master on node 0, one copy on node 1, all 100 ms apart; what each client asks.
fn run(
    tune: impl FnOnce(&mut Placement<Machine>),
    asks: impl IntoIterator<Item = (u16, Vec<(u64, Command)>)>,
) -> Script {
    listen(3, tune, None, asks)
}

/// The same of so many nodes, of which two may be cut off from each other since 9 s.
fn listen(
    nodes: u16,
    tune: impl FnOnce(&mut Placement<Machine>),
    cut: Option<(usize, usize)>,
    asks: impl IntoIterator<Item = (u16, Vec<(u64, Command)>)>,
) -> Script {
    let mut placement: Placement<Machine> = placement(nodes, 2, 0, ms(200));
    (placement.parameters.hot_window, placement.parameters.nearby_reads) = (0, false);
    tune(&mut placement);
    let far = |from: u16, to: u16| ms(if from == to { 0 } else { 100 });
    let delays = (0..nodes).map(|from| (0..nodes).map(|to| far(from, to)).collect()).collect();
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let mut config = Config::new(7, &names[..usize::from(nodes)], delays);
    config.faults.kinds = FaultSet::NONE;
    config.horizon = Span::from_secs(60);
    config.record = Record::Flow;
    let asks = asks.into_iter().map(|(node, asks)| {
        // One command long before: the client sees how long a safe answer takes.
        let asks = asks.into_iter().map(|(at, command)| (ms(at), command));
        (
            NodeId(node),
            std::iter::once((ms(5_000 + u64::from(node) * 1_000), set(200 + node as u8)))
                .chain(asks)
                .collect(),
        )
    });
    let mut script = Script { asks: asks.collect(), ..Script::default() };
    let mut simulation = Simulation::<Replicated<Machine, Family>>::new(config, &placement);
    let mut plan = FaultPlan::none();
    plan.faults.extend(cut.map(|(one, other)| Planned {
        at: ms(9_000),
        length: Span::from_secs(40),
        kind: FaultKind::Partition,
        action: Action::Cut { links: vec![(one, other), (other, one)], held: false },
    }));
    simulation.set_faults(plan);
    let report = simulation.run(&mut script);
    assert_eq!(report.violations, []);
    for line in simulation.flow() {
        if let FlowEvent::Message { between: (from, _), label, .. } = &line.event
            && label.starts_with("Requests")
        {
            script.asked.push((from.clone(), line.at));
        }
    }
    script
}

impl Script {
    /// How often a client sent commands between two times, milliseconds.
    fn asked(&self, node: &str, from: u64, until: u64) -> usize {
        let within = |at: &Instant| (ms(from)..ms(until)).contains(&at.since(Instant::ZERO));
        self.asked.iter().filter(|(who, at)| who.starts_with(node) && within(at)).count()
    }

    /// What a client waited that asked then.
    fn wait(&self, node: u16, at: u64) -> Span {
        let found = self.waits.iter().find(|(who, when, _)| (who.0, *when) == (node, ms(at)));
        found.unwrap_or_else(|| panic!("nothing of n{node} at {at} ms: {:?}", self.waits)).2
    }
}

/// The tests measure up to the time that a disk takes.
#[track_caller]
fn near(wait: Span, expected: u64) {
    let off = wait.as_nanos().abs_diff(ms(expected).as_nanos());
    assert!(off < 3_000_000, "{wait}, not {expected} ms");
}

fn idle(placement: &mut Placement<Machine>) {
    placement.parameters.sync_delay = Span::from_secs(30);
}

/// T1, T2: alone one round trip; behind what is not yet safe two, without being asked for.
#[test]
fn a_conflict_at_the_master_costs_one_round_more() {
    let script = run(idle, [(1, vec![(10_000, set(1))]), (2, vec![(10_300, set(1)), (12_000, set(2))])]);
    near(script.wait(1, 10_000), 200);
    near(script.wait(2, 10_300), 400);
    near(script.wait(2, 12_000), 200);
    let paths: Vec<Path> =
        script.paths.iter().filter(|(node, _)| node.0 == 2).map(|(_, path)| *path).collect();
    assert_eq!(paths[1..], [Path::Leader, Path::Fast]);
}

/// T2: who conflicts is answered when that is safe, and asks once, whether its witness refuses or is silent.
#[test]
fn who_conflicts_at_the_master_asks_once_whatever_its_witness_says() {
    for cut in [None, Some((2, 1))] {
        let asks = [(1, vec![(10_000, set(1))]), (2, vec![(10_300, set(1))])];
        let script = listen(3, idle, cut, asks);
        near(script.wait(1, 10_000), 200);
        near(script.wait(2, 10_300), 400);
        assert_eq!(script.asked("c", 10_300, 11_300), 1, "{cut:?}: {:?}", script.asked);
    }
}

/// T3: the witness holds something that the master has synced; where a sync is under way already that makes two
/// rounds, and three where it begins only when it is asked for.
#[test]
fn a_refusal_by_a_witness_costs_one_round_or_two() {
    let reader = (0, vec![(10_001, Command::Get(key(1)))]);
    // Its record comes before the collection, its command after the sync.
    let script = run(idle, [(2, vec![(9_900, set(1))]), reader, (1, vec![(10_200, set(1))])]);
    near(script.wait(0, 10_001), 200);
    near(script.wait(1, 10_200), 600);
    let soon = |placement: &mut Placement<Machine>| placement.parameters.sync_delay = Span::ZERO;
    let script = run(soon, [(2, vec![(9_900, set(1))]), (1, vec![(10_150, set(1))])]);
    near(script.wait(1, 10_150), 400);
}

/// T3: without faults nobody waits for more than three rounds, however many want the same and whenever they ask.
#[test]
fn nobody_waits_for_more_than_three_rounds() {
    let mut most = Span::ZERO;
    for seed in 0..40 {
        let mut random = Random::seeded(seed);
        let nodes = 7;
        let asks: Vec<_> = (0..nodes)
            .map(|node| {
                let mut at = 13_000;
                let asks = (0..12).map(|_| {
                    at += random.below(700);
                    (at, set(1 + random.below(2) as u8))
                });
                (node, asks.collect())
            })
            .collect();
        let delay = [Span::ZERO, ms(5), ms(150), Span::from_secs(30)][seed as usize % 4];
        let script = listen(nodes, |placement| placement.parameters.sync_delay = delay, None, asks);
        assert_eq!(script.waits.len(), 7 * 13);
        let begun = script.waits.iter().filter(|(_, at, _)| *at >= ms(13_000));
        most = begun.map(|(.., wait)| *wait).max().unwrap().max(most);
    }
    assert!(most > ms(597) && most < ms(603), "{most}");
}

/// T4: a read of what is safe takes one round trip; of what is not, two.
#[test]
fn a_read_waits_for_what_is_not_yet_safe() {
    let reads = vec![(10_250, Command::Get(key(1))), (10_800, Command::Get(key(1)))];
    let script = run(idle, [(2, vec![(9_900, set(1))]), (1, reads)]);
    near(script.wait(1, 10_250), 400);
    near(script.wait(1, 10_800), 200);
}

/// T21: what nobody waits for is safe after the delay and a round trip to the backup.
#[test]
fn an_idle_tail_is_synced_in_time() {
    for delay in [0, 5, 50, 500] {
        let tune = |placement: &mut Placement<Machine>| placement.parameters.sync_delay = ms(delay);
        // They arrive at the master 100 ms later; the last one lets the run go on until all are safe.
        let script = run(tune, [(2, vec![(9_900, set(1)), (13_900, set(2)), (20_000, set(3))])]);
        let at = script.decided.iter().filter(|(node, _)| node.0 == 0).map(|(_, at)| at.since(Instant::ZERO));
        let safe: Vec<Span> = at.filter(|at| *at > ms(9_000)).take(2).collect();
        near(safe[0], 10_000 + delay + 200);
        near(safe[1], 14_000 + delay + 200);
    }
}

/// T22, D-53: a master with `f` copies has `1 + f / batch` messages to handle for a command, which is 1.3 with three and
/// ten, and `1 + 2 f / batch` with those that let witnesses forget; none of those where a copy is a witness.
#[test]
fn few_messages_beside_the_commands() {
    for (f, batch, unified) in [(1, 50, false), (1, 50, true), (3, 10, false), (3, 10, true), (3, 50, false)]
    {
        beside_the_commands(f, batch, unified);
    }
}

fn beside_the_commands(f: u16, batch: usize, unified: bool) {
    const COUNT: u64 = 500;
    let asks = (0..COUNT).map(|number| (ms(10_000), set((number % 100) as u8))).collect();
    let nodes = f + 2;
    let mut placement: Placement<Machine> = placement(nodes, f + 1, 0, ms(2));
    (placement.parameters.hot_window, placement.parameters.batch_max) = (0, batch);
    placement.parameters.f = usize::from(f);
    idle(&mut placement);
    placement.parameters.unified = unified;
    let delays = (0..nodes).map(|_| (0..nodes).map(|_| ms(1)).collect()).collect();
    let regions = &["a", "b", "c", "d", "e"][..usize::from(nodes)];
    let mut config = Config::new(7, regions, delays);
    config.faults.kinds = FaultSet::NONE;
    config.horizon = Span::from_secs(40);
    config.record = isochrone_sim::Record::Flow;
    let mut script = Script { asks: BTreeMap::from([(NodeId(f + 1), asks)]), ..Script::default() };
    let mut simulation = Simulation::<Replicated<Machine, Family>>::new(config, &placement);
    assert_eq!(simulation.run(&mut script).violations, []);
    assert_eq!(script.waits.len() as u64, COUNT);
    let trace = simulation.trace();
    let count = |what: &str| trace.lines().filter(|line| line.contains(what)).count() as f64;
    let (syncs, collections) = (count("message: Replicate("), count("message: Collect {"));
    let (copies, batch) = (f64::from(f), batch as f64);
    let what = format!("f {f}, batch {batch}, unified {unified}: {syncs} syncs, {collections} collections");
    let holds = |messages: f64, expected: f64| {
        let found = 1.0 + messages / COUNT as f64;
        assert!((found - expected).abs() <= 0.05 * expected, "{what}: {found}, not {expected}");
    };
    holds(syncs, 1.0 + copies / batch);
    holds(syncs + collections, 1.0 + if unified { 1.0 } else { 2.0 } * copies / batch);
    // None at all would be within the twentieth of one copy and fifty.
    assert!(syncs >= 0.7 * copies * COUNT as f64 / batch, "{what}");
    assert_eq!(collections > 0.7 * copies * COUNT as f64 / batch, !unified, "{what}");
    let fast = script.paths.iter().filter(|(_, path)| *path == Path::Fast).count() as u64;
    assert!(fast + 2 >= COUNT, "{fast} of {COUNT} by the witness");
}

/// From the master's own node a safe answer is one round trip away, as a record is: nothing is recorded, and nothing is
/// to be collected.
#[test]
fn beside_the_master_nothing_is_recorded() {
    for (node, records) in [(0, false), (2, true)] {
        let asks = (0..20_u64).map(|number| (ms(10_000 + 300 * number), set(number as u8))).collect();
        let placement: Placement<Machine> = placement(3, 2, 0, ms(200));
        let delays = (0..3).map(|_| (0..3).map(|_| ms(100)).collect()).collect();
        let mut config = Config::new(7, &["a", "b", "c"], delays);
        config.faults.kinds = FaultSet::NONE;
        config.horizon = Span::from_secs(40);
        config.record = isochrone_sim::Record::Flow;
        let mut script = Script { asks: BTreeMap::from([(NodeId(node), asks)]), ..Script::default() };
        let mut simulation = Simulation::<Replicated<Machine, Family>>::new(config, &placement);
        assert_eq!(simulation.run(&mut script).violations, []);
        let trace = simulation.trace();
        let has = |what: &str| trace.lines().any(|line| line.contains(what));
        assert_eq!((has("Records {"), has("Collect {")), (records, records), "of the client on node {node}");
        // The first two find out who the master is, and how long a safe answer takes.
        script.waits.iter().skip(2).for_each(|(.., wait)| near(*wait, 200));
        let fast = script.paths.iter().filter(|(_, path)| *path == Path::Fast).count();
        assert_eq!(fast > 0, records, "{fast} by the witness");
    }
}

/// 7.2: what is always synced takes the way through the master and its copy, and nothing holds it up.
#[test]
fn what_no_witness_is_given_takes_two_round_trips() {
    let always = |placement: &mut Placement<Machine>| {
        idle(placement);
        placement.parameters.fast_path.keys_max = 0;
    };
    let script = run(always, [(1, vec![(10_000, set(1)), (12_000, set(1))]), (2, vec![(12_010, set(1))])]);
    for (node, at) in [(1, 10_000), (1, 12_000), (2, 12_010)] {
        near(script.wait(node, at), 400);
    }
    assert!(script.paths.iter().all(|(_, path)| *path != Path::Fast), "{:?}", script.paths);
}

/// D-41: the master is in the first region, as is the next node, and the two after it are in the second. Its copies are in
/// the second and the third; when one is lost, the other node of its region has its place.
#[test]
fn copies_stand_in_regions_of_their_own() {
    const REGIONS: [u16; 6] = [0, 0, 1, 1, 2, 3];
    let copies = |regions: [u16; 6]| {
        let mut placement: Placement<Machine> = placement(6, 5, 0, ms(2));
        placement.parameters.f = 2;
        placement.regions = (0..).map(NodeId).zip(regions.map(RegionId)).collect();
        let delays = (0..6).map(|_| (0..6).map(|_| ms(1)).collect()).collect();
        let mut config = Config::new(7, &["a", "b", "c", "d", "e", "f"], delays);
        config.horizon = Span::from_secs(20);
        let asks = (0..100_u64).map(|number| (ms(5_000 + 100 * number), set(number as u8))).collect();
        let mut script = Script { asks: BTreeMap::from([(NodeId(5), asks)]), ..Script::default() };
        let mut simulation = Simulation::<Replicated<Machine, Family>>::new(config, &placement);
        let lost = Action::Crash { node: 2, effects: 0, down: Span::from_secs(60) };
        let crash = Planned { at: ms(10_000), length: Span::ZERO, kind: FaultKind::Crash, action: lost };
        let kinds = FaultSet::NONE.with(FaultKind::Crash);
        simulation.set_faults(FaultPlan { kinds, faults: vec![crash] });
        assert_eq!(simulation.run(&mut script).violations, []);
        // What copies hand out, and spares do not.
        let between = |from: u64, until: u64| {
            let within = |at: &Instant| (ms(from)..ms(until)).contains(&at.since(Instant::ZERO));
            let who = script.decided.iter().filter(|(_, at)| within(at)).map(|(node, _)| node.0);
            who.filter(|node| *node != 0).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        (between(6_000, 9_900), between(14_000, 15_000))
    };
    assert_eq!(copies(REGIONS), (vec![2, 4], vec![3, 4]));
    assert_eq!(copies([0, 1, 2, 3, 4, 5]).0, [1, 2], "all are apart");
}
