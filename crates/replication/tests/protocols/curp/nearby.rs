//! Reads at a copy, by script (T5, T41 to T44).

use crate::cluster::placement;
use crate::machine::{Command, Machine, Reply, key};
use isochrone_core::{Fact, Instant, NodeId, ProcessId, Span, Ticket};
use isochrone_replication::curp::primary::{Family, Placement};
use isochrone_replication::{Outcome, Replicated, Request, Tuning as _};
use isochrone_sim::{
    Action, Config, Driver, FaultKind, FaultPlan, FaultSet, Next, Planned, Record, Session, Simulation,
};
use std::collections::{BTreeMap, VecDeque};

/// One command and its answer.
#[derive(Clone, Debug)]
struct Done {
    node: NodeId,
    command: Command,
    invoked: Instant,
    completed: Instant,
    outcome: Outcome<Reply>,
}

/// Each client asks one thing after the other, none before its time.
#[derive(Default)]
struct Script {
    asks: BTreeMap<NodeId, VecDeque<(Span, Command)>>,
    asked: BTreeMap<NodeId, (Command, Instant)>,
    done: Vec<Done>,
    counted: BTreeMap<&'static str, u64>,
}

impl Driver<Replicated<Machine, Family>> for Script {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request<Command>> {
        let node = session.client.node;
        match self.asks.get_mut(&node).and_then(VecDeque::pop_front) {
            Some((at, command)) => {
                self.asked.insert(node, (command.clone(), now));
                Next::Request { at: (Instant::ZERO + at).max(now), request: Request::Command(command) }
            }
            None => Next::Done,
        }
    }

    fn invoked(&mut self, session: Session, _: Ticket, now: Instant) {
        if let Some((_, at)) = self.asked.get_mut(&session.client.node) {
            *at = now;
        }
    }

    fn completed(&mut self, session: Session, _: Ticket, outcome: Outcome<Reply>, now: Instant) {
        let node = session.client.node;
        let (command, invoked) = self.asked[&node].clone();
        self.done.push(Done { node, command, invoked, completed: now, outcome });
    }

    fn fact(&mut self, _: ProcessId, fact: &Fact, now: Instant) {
        // What happens before is the way of clients to their first view.
        if let Fact::Counted(name) = fact
            && now >= Instant::ZERO + ms(9_000)
        {
            *self.counted.entry(name).or_default() += 1;
        }
    }
}

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn set(number: u8, text: &str) -> Command {
    Command::Set(key(number), text.to_owned())
}

fn get(number: u8) -> Command {
    Command::Get(key(number))
}

/// From when to when, milliseconds, and which directions.
type Cut = (u64, u64, Vec<(usize, usize)>);

/// Where the nodes stand, who cuts whom off when, and what each client asks.
struct Play {
    /// One-way delays, milliseconds; the first nodes are replicas.
    delays: Vec<Vec<u64>>,
    replicas: u16,
    cuts: Vec<Cut>,
    bug: Option<&'static str>,
    record: Record,
}

impl Play {
    /// Master on node 0, one copy on node 1, all 100 ms apart.
    fn new() -> Play {
        let far = |from: u64, to: u64| if from == to { 0 } else { 100 };
        let delays = (0..3).map(|from| (0..3).map(|to| far(from, to)).collect()).collect();
        Play { delays, replicas: 2, cuts: Vec::new(), bug: None, record: Record::Nothing }
    }

    fn run(
        self,
        tune: impl FnOnce(&mut Placement<Machine>),
        asks: impl IntoIterator<Item = (u16, Vec<(u64, Command)>)>,
    ) -> (Script, String) {
        let nodes = self.delays.len() as u16;
        let far = self.delays.iter().flatten().max().copied().unwrap_or(0);
        let mut placement: Placement<Machine> = placement(nodes, self.replicas, 0, ms(2 * far));
        for (node, nearest) in &mut placement.clients {
            let delays = &self.delays[usize::from(node.0)];
            nearest.sort_by_key(|replica| delays[usize::from(replica.0)]);
        }
        (placement.parameters.hot_window, placement.parameters.nearby_reads) = (0, true);
        placement.parameters.lease_length = placement.parameters.lease_length * 2;
        tune(&mut placement);
        if let Some(bug) = self.bug {
            assert!(placement.parameters.plant(bug), "no bug {bug}");
        }
        let delays = self.delays.iter().map(|row| row.iter().map(|delay| ms(*delay)).collect()).collect();
        let names: Vec<String> = (0..nodes).map(|node| format!("r{node}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut config = Config::new(7, &names, delays);
        config.faults.kinds = FaultSet::NONE;
        config.horizon = Span::from_secs(60);
        config.record = self.record;
        let asks = asks.into_iter().map(|(node, asks)| {
            // One command long before: the client knows the view, and how long a safe answer takes.
            let first = (ms(5_000 + u64::from(node) * 1_000), set(200 + node as u8, "x"));
            let asks = asks.into_iter().map(|(at, command)| (ms(at), command));
            (NodeId(node), std::iter::once(first).chain(asks).collect())
        });
        let mut script = Script { asks: asks.collect(), ..Script::default() };
        let mut simulation = Simulation::<Replicated<Machine, Family>>::new(config, &placement);
        let mut plan = FaultPlan::none();
        plan.faults.extend(self.cuts.into_iter().map(|(at, until, links)| Planned {
            at: ms(at),
            length: ms(until - at),
            kind: FaultKind::Partition,
            action: Action::Cut { links, held: false },
        }));
        simulation.set_faults(plan);
        let report = simulation.run(&mut script);
        assert_eq!(report.violations, []);
        (script, simulation.trace())
    }
}

impl Script {
    /// What a client waited for and heard that asked then.
    fn wait(&self, node: u16, at: u64) -> (u64, Option<&str>) {
        let asked = |done: &&Done| done.node.0 == node && done.invoked == Instant::ZERO + ms(at);
        let found = self.done.iter().find(asked);
        let found = found.unwrap_or_else(|| panic!("nothing of n{node} at {at} ms: {:?}", self.done));
        (found.completed.since(found.invoked).as_nanos() / 1_000_000, found.text())
    }

    fn count(&self, name: &str) -> u64 {
        self.counted.get(name).copied().unwrap_or(0)
    }
}

impl Done {
    fn text(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Replied(Reply::Text(text)) => text.as_deref(),
            _ => None,
        }
    }
}

/// Nothing is replicated before somebody waits for it.
fn idle(placement: &mut Placement<Machine>) {
    placement.parameters.sync_delay = Span::from_secs(30);
}

/// T5, T41. Client 2 writes; it is complete at 10 100 ms, when master and witness have it. That of node 0 has it made
/// safe at the master at 10 201 ms, and the witness forgets it at 10 301 ms.
#[test]
fn the_three_cases_of_figure_4_cost_what_they_must() {
    let writes = |at: u64| vec![(9_000, set(1, "old")), (at, set(1, "new"))];
    // What was written before is safe.
    let forces = |again: bool| {
        let second = again.then_some((10_001, get(1)));
        (0, std::iter::once((9_300, get(1))).chain(second).collect())
    };
    let reads = |at: u64| vec![(9_900, get(2)), (at, get(1))];
    for (at, forced, wait, text) in [
        // Nothing stands in the way: no way at all.
        (9_950, true, 0, "old"),
        // With the witness, and with the master when the read comes there; not yet safe: two rounds.
        (10_050, false, 400, "new"),
        // In the backup's log as well: the witness still has it. Safe by the time that the master is asked.
        (10_150, true, 200, "new"),
        (10_250, true, 200, "new"),
        // Only in the backup.
        (10_450, true, 0, "new"),
    ] {
        let at = if forced { at } else { at + 10 };
        let asks = [(2, writes(9_900)), (1, reads(at))];
        let (script, _) = Play::new().run(idle, asks.into_iter().chain([forces(forced)]));
        assert_eq!(script.wait(1, at), (wait, Some(text)), "at {at}");
        assert_eq!(script.count("near_refused_conflict"), u64::from(wait > 0), "{:?}", script.counted);
        assert_eq!(script.wait(1, 9_900), (0, None));
    }
}

/// T5: a read that commutes sends nothing over the wide area, and its answer is there at once.
#[test]
fn a_read_that_commutes_stays_where_it_is() {
    let play = Play { record: Record::Flow, ..Play::new() };
    let reads = (0..50).map(|number| (9_900 + number * 10, get((number % 5) as u8))).collect();
    let (script, trace) = play.run(|_| {}, [(1, reads)]);
    let waits = script.done.iter().skip(1).map(|done| done.completed.since(done.invoked));
    assert!(waits.eq([Span::ZERO; 50]), "{:?}", script.done);
    let count = |what: &str| trace.lines().filter(|line| line.contains(what)).count();
    assert!(count("Get(") > 0, "reads are in the trace");
    let asked = trace.lines().filter(|line| line.contains("Requests {") && line.contains("Get("));
    assert_eq!(asked.collect::<Vec<_>>(), [] as [&str; 0], "the master is asked for no read");
    assert_eq!((script.count("near_reads"), script.count("curp_near")), (50, 50));
}

/// D-21: what the witness has forgotten and the backup does not know to be safe is not passed over.
#[test]
fn what_is_not_known_to_be_safe_is_read_at_the_master() {
    for bug in [None, Some("near-unsynced")] {
        let tune = |placement: &mut Placement<Machine>| {
            idle(placement);
            // The backup hears by no beat that it is safe; and keeps its lease.
            (placement.parameters.heartbeat, placement.parameters.silence) = (ms(400), ms(3_000));
            placement.parameters.lease_length = Span::from_secs(10);
        };
        let reads = (0..60).map(|number| (10_310 + number * 10, get(1))).collect();
        let asks = [
            (2, vec![(9_000, set(1, "old")), (9_900, set(1, "new"))]),
            (0, vec![(9_300, get(1)), (10_001, get(1))]),
            (1, reads),
        ];
        let (script, _) = Play { bug, ..Play::new() }.run(tune, asks);
        let old = script.done.iter().filter(|done| done.node.0 == 1 && done.text() == Some("old")).count();
        assert_eq!(old > 0, bug.is_some(), "{:?}", script.done);
        assert!(bug.is_some() || script.count("near_refused_unsynced") > 0, "{:?}", script.counted);
    }
}

/// T42: asked in the wrong order, backup and witness each say the truth, and what comes of it is stale.
#[test]
fn the_backup_first_and_then_the_witness_is_stale() {
    for (bug, text) in [(None, "new"), (Some("backup-before-witness"), "old")] {
        // The copy is next to the master, the reader far from both and nearer to the copy.
        let delays = vec![vec![0, 10, 300], vec![10, 0, 100], vec![300, 100, 0]];
        let play = Play { delays, bug, ..Play::new() };
        let tune = |placement: &mut Placement<Machine>| placement.parameters.sync_delay = ms(150);
        let asks = [
            // Beside the witness: from the master's own node nothing would be recorded.
            (1, vec![(9_000, set(1, "old")), (10_000, set(1, "new"))]),
            (2, vec![(9_400, get(2)), (10_030, get(1))]),
        ];
        let (script, _) = play.run(tune, asks);
        assert_eq!(script.wait(1, 10_000).0, 20, "complete before it is asked for");
        assert_eq!(script.wait(2, 10_030).1, Some(text), "{bug:?}: {:?}", script.done);
    }
}

/// Somebody reads a value older than one that was complete or read before it asked; how often.
fn stale(script: &Script) -> usize {
    let version = |done: &Done| match &done.command {
        Command::Set(_, text) => {
            text.parse::<u64>().ok().filter(|_| matches!(done.outcome, Outcome::Replied(_)))
        }
        _ => done.text().and_then(|text| text.parse().ok()),
    };
    let known: Vec<(Instant, u64)> =
        script.done.iter().filter_map(|done| Some((done.completed, version(done)?))).collect();
    let reads =
        script.done.iter().filter(|done| matches!(&done.command, Command::Get(name) if *name == key(1)));
    let read = |done: &&Done| {
        let floor = known.iter().filter(|(at, _)| *at < done.invoked).map(|(_, version)| *version).max();
        matches!(done.outcome, Outcome::Replied(_)) && version(done) < floor
    };
    reads.filter(read).count()
}

/// T43: the region of a copy is cut off from all others; who reads there reaches it all the same. It is replaced, and
/// from the first write of the new configuration on nobody reads what was before.
#[test]
fn who_is_cut_off_with_a_removed_copy_reads_nothing_stale() {
    for bug in [None, Some("near-without-lease"), Some("drop-readers-at-once")] {
        let far = |from: u64, to: u64| if from == to { 0 } else { 10 };
        let delays = (0..4).map(|from| (0..4).map(|to| far(from, to)).collect()).collect();
        let cut = |node: usize| {
            (0..4).filter(move |other| *other != node).flat_map(move |at| [(node, at), (at, node)])
        };
        let cuts = vec![(10_150, 14_000, cut(1).collect())];
        let play = Play { delays, replicas: 4, cuts, bug, ..Play::new() };
        let tune = |placement: &mut Placement<Machine>| {
            placement.parameters.f = 1;
            // A list changes long before a lease is over.
            placement.parameters.silence = ms(300);
            placement.parameters.lease_length = Span::from_secs(2);
        };
        let writes = (1..40).map(|number| (9_000 + number * 250, set(1, &number.to_string()))).collect();
        let reads = (0..500).map(|number| (9_000 + number * 10, get(1))).collect();
        let (script, _) = play.run(tune, [(0, writes), (1, reads)]);
        let within = |done: &&Done| {
            let at = done.completed.since(Instant::ZERO);
            done.node.0 == 0 && at > ms(10_500) && at < ms(14_000)
        };
        let written = script.done.iter().filter(within).count();
        assert!(
            written > 4,
            "{bug:?}: the new configuration completes {written} writes: {:?}",
            script.counted
        );
        assert!(script.count("near_reads") > 50, "{:?}", script.counted);
        assert_eq!(stale(&script) > 0, bug.is_some(), "{bug:?}: {} stale", stale(&script));
        assert!(bug.is_some() || script.count("near_refused_lease") > 0, "{:?}", script.counted);
    }
}

/// T44: readers in two regions, each beside a copy, never see what is new and then, one of them, what was before.
#[test]
fn two_readers_in_two_regions_never_go_back() {
    for (delay, batch_max) in [(0, 1), (1, 50), (30, 50), (30, 4)] {
        // One copy is much farther from the master than the other.
        let delays = vec![vec![0, 20, 90], vec![20, 0, 60], vec![90, 60, 0]];
        let play = Play { delays, replicas: 3, ..Play::new() };
        let tune = |placement: &mut Placement<Machine>| {
            (placement.parameters.sync_delay, placement.parameters.batch_max) = (ms(delay), batch_max);
        };
        let writes = (1..40).map(|number| (9_000 + number * 700, set(1, &number.to_string()))).collect();
        let reads = |from: u64| (0..3_000).map(|number| (9_000 + from + number * 9, get(1))).collect();
        let (script, _) = play.run(tune, [(0, writes), (1, reads(0)), (2, reads(4))]);
        assert_eq!(stale(&script), 0, "{:?}", script.counted);
        let (near, refused) = (script.count("curp_near"), script.count("curp_near_refused"));
        assert!(near > 500 && refused > 40, "{near} at copies, {refused} not: {:?}", script.counted);
    }
}
