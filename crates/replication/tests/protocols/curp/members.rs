//! Nodes that are retired and admitted by hand: what is retired holds no copy and never leads, whatever fails
//! meanwhile, and can be switched off.

use super::actor::Count;
use super::script::Play;
use super::tune;
use crate::cluster::Case;
use crate::driver::Loops;
use crate::machine::{Command, Machine, Reply};
use isochrone_core::{Fact, Instant, NodeId, ProcessId, Random, Span, Ticket};
use isochrone_replication::curp::primary::registry::Command as Decree;
use isochrone_replication::curp::primary::{Family, MANAGER, Placement, WITNESS};
use isochrone_replication::{Change, Outcome, REPLICA, Refusal, Replicated, Request};
use isochrone_sim::{Action, Admin, Driver, FaultKind, FaultSet, Next, Planned, Session};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Clients that read and write, and one that is the operator.
struct Operated {
    loops: Loops,
    /// What the operator asks for, one after the other.
    plan: VecDeque<Change>,
    asked: Option<Change>,
    outcomes: Vec<(Change, Outcome<Reply>)>,
    /// Who is retired for certain.
    out: BTreeSet<NodeId>,
    /// Who is switched off when the fault of the plan says so, if it is out.
    lost: Option<NodeId>,
    /// Who is lost at a later one, once the managers have another in the place of the one that is out.
    lost_later: Option<NodeId>,
    /// How much had been asked for then.
    lost_at: Option<u64>,
    stopped: bool,
    led: Option<String>,
    /// Where the master and its copies are, as each server told last.
    told: BTreeMap<NodeId, Arc<[NodeId]>>,
}

type Protocol = Replicated<Machine, Family>;

impl Operated {
    fn new(loops: Loops, plan: impl IntoIterator<Item = Change>) -> Operated {
        let (plan, outcomes, out) = (plan.into_iter().collect(), Vec::new(), BTreeSet::new());
        let (lost, lost_later) = (None, None);
        Operated {
            loops,
            plan,
            asked: None,
            outcomes,
            out,
            lost,
            lost_later,
            lost_at: None,
            stopped: false,
            led: None,
            told: BTreeMap::new(),
        }
    }

    fn loops(&mut self) -> &mut dyn Driver<Protocol> {
        &mut self.loops
    }

    fn is_operator(session: Session) -> bool {
        session.number == 0
    }
}

impl Driver<Protocol> for Operated {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request<Command>> {
        if !Self::is_operator(session) {
            return self.loops().next(session, now);
        }
        let Some(change) = self.plan.pop_front() else { return Next::Done };
        self.asked = Some(change);
        if let Change::Add(node) = change {
            self.out.remove(&node);
        }
        let at = now + Span::from_millis(self.loops.random.below(400));
        Next::Request { at, request: Request::Change(change) }
    }

    fn invoked(&mut self, session: Session, ticket: Ticket, now: Instant) {
        if !Self::is_operator(session) {
            self.loops().invoked(session, ticket, now);
        }
    }

    fn completed(&mut self, session: Session, ticket: Ticket, outcome: Outcome<Reply>, now: Instant) {
        if !Self::is_operator(session) {
            return self.loops().completed(session, ticket, outcome, now);
        }
        let Some(change) = self.asked.take() else { return };
        match (change, &outcome) {
            (Change::Remove(node), Outcome::Changed) => drop(self.out.insert(node)),
            // Node 0 has led, and may be lost now.
            (Change::Lead(_), Outcome::Changed) => drop(self.out.insert(NodeId(0))),
            _ => {}
        }
        self.outcomes.push((change, outcome));
    }

    fn fact(&mut self, process: ProcessId, fact: &Fact, now: Instant) {
        if let Fact::Members { nodes, .. } = fact {
            self.told.insert(process.node, nodes.clone());
        }
        let leads = matches!(fact, Fact::Leads { .. }) && process.role == REPLICA;
        if leads && self.out.contains(&process.node) {
            self.led = Some(format!("{process} leads at {now}, and is retired: {:?}", self.outcomes));
        }
        self.loops().fact(process, fact, now);
    }

    fn admin(&mut self, _: Instant, _: &mut Random) -> Vec<Admin> {
        let counted = |what| self.loops.counted.contains_key(what);
        let replaced = counted("managers_removed") && counted("managers_added");
        let lost = match self.lost_later.take_if(|_| self.stopped && replaced) {
            None => self.lost.filter(|node| self.out.contains(node)),
            later => {
                self.lost_at = Some(self.loops.history.len() as u64);
                later
            }
        };
        let Some(node) = lost else { return Vec::new() };
        self.stopped = true;
        let stops = [REPLICA, WITNESS, MANAGER].into_iter().map(|role| {
            let process = ProcessId { node, role, ..self.loops.replicas[0] };
            Admin::Stop(process)
        });
        stops.collect()
    }
}

/// How often somebody is switched off, if it is time.
const FAULTS: u64 = 10;

/// The nodes of a case: three of the file's replicas and a spare.
const NODES: u16 = 4;

/// Each node in turn leaves and comes back.
fn in_turn(random: &mut Random) -> Vec<Change> {
    let mut left: Vec<u16> = (0..NODES).collect();
    let mut plan = Vec::new();
    while !left.is_empty() {
        let node = NodeId(left.remove(random.below(left.len() as u64) as usize));
        plan.extend([Change::Remove(node), Change::Add(node)]);
    }
    plan
}

fn run(case: &Case<Family>, seed: u64, plan: Vec<Change>, lost: Option<NodeId>) -> (Operated, u64) {
    run_losing(case, seed, plan, lost, None)
}

fn run_losing(
    case: &Case<Family>,
    seed: u64,
    plan: Vec<Change>,
    lost: Option<NodeId>,
    lost_later: Option<NodeId>,
) -> (Operated, u64) {
    let (mut cluster, loops) = case.cluster(seed);
    let mut operated = Operated::new(loops, plan);
    operated.lost_later = lost_later;
    if let Some(node) = lost {
        operated.lost = Some(node);
        let mut plan = cluster.faults().clone();
        for at in (2..2 + FAULTS).map(|tenths| Span::from_millis(tenths * 500)) {
            let (kind, action) = (FaultKind::Membership, Action::Membership);
            plan.faults.push(Planned { at, length: Span::ZERO, kind, action });
        }
        cluster.set_faults(plan);
    }
    let report = cluster.run(&mut operated);
    let broken = report.violations.first().map(ToString::to_string).or_else(|| operated.loops.violation());
    let broken = broken.or_else(|| operated.led.take());
    if let Some(text) = broken {
        panic!("seed {seed}: {text}\n{:?}\n{}", operated.outcomes, cluster.faults());
    }
    (operated, report.operations)
}

/// How often each change came to what, and what was counted.
fn tally(seeds: std::ops::Range<u64>, case: &Case<Family>) -> BTreeMap<String, u64> {
    let mut tally = BTreeMap::new();
    for seed in seeds {
        let plan = in_turn(&mut Random::seeded(seed));
        let (operated, _) = run(case, seed, plan, None);
        for (change, outcome) in operated.outcomes {
            let what = match change {
                Change::Add(_) => "add",
                _ => "remove",
            };
            *tally.entry(format!("{what}: {outcome:?}")).or_default() += 1;
        }
        for (name, count) in operated.loops.counted {
            *tally.entry(name.to_owned()).or_default() += count;
        }
    }
    println!("{tally:?}");
    tally
}

fn case(faults: &str) -> Case<Family> {
    // The names are those of the simulator.
    let faults = faults.parse::<FaultSet>().unwrap();
    Case { hot: true, rounds: 200, ..Case::new(NODES - 1, faults, tune) }
}

#[test]
fn every_node_leaves_and_comes_back_while_clients_write() {
    let seeds = 30;
    let tally = tally(0..seeds, &case("none"));
    // Without faults there are always enough others.
    assert_eq!(tally["remove: Changed"], seeds * u64::from(NODES), "{tally:?}");
    assert_eq!(tally["add: Changed"], seeds * u64::from(NODES), "{tally:?}");
    assert!(tally["handovers_begun"] >= seeds, "the master left too: {tally:?}");
}

#[test]
fn what_is_retired_stays_away_whatever_fails() {
    let seeds = 100;
    let tally = tally(1_000..1_000 + seeds, &Case { faults: FaultSet::ALL, ..case("none") });
    assert!(tally["remove: Changed"] > seeds * u64::from(NODES) / 2, "{tally:?}");
}

/// The first master is retired, and then all of its node is switched off for ever: nobody waits for it.
#[test]
fn a_retired_node_can_be_switched_off() {
    let mut stopped = 0;
    for seed in 0..30 {
        for node in [0, 1] {
            let node = NodeId(node);
            let case = Case { rounds: 60, ..case("none") };
            let (operated, operations) = run(&case, seed, vec![Change::Remove(node)], Some(node));
            assert!(operations > 100, "seed {seed}: {operations}");
            stopped += u64::from(operated.stopped);
        }
    }
    assert!(stopped > 50, "{stopped}");
}

/// Also who holds no copy, and who does no longer: who may be switched off is seen at every node.
#[test]
fn every_server_tells_where_the_master_and_its_copies_are_now() {
    for seed in 0..5 {
        for gone in [0, 1].map(NodeId) {
            let (operated, _) = run(&case("none"), seed, vec![Change::Remove(gone)], None);
            assert_eq!(operated.outcomes, [(Change::Remove(gone), Outcome::Changed)], "seed {seed}");
            let tellers: Vec<u16> = operated.told.keys().map(|node| node.0).collect();
            assert_eq!(tellers, (0..NODES).collect::<Vec<_>>(), "seed {seed}");
            let told: BTreeSet<_> = operated.told.values().collect();
            let all_agree = told.len() == 1 && !told.iter().any(|nodes| nodes.contains(&gone));
            assert!(all_agree, "seed {seed}: {gone:?} has left, and {told:?} is told");
        }
    }
}

/// Of three managers one has left with its node, and that of the spare has come: another may be lost.
#[test]
fn the_manager_of_a_retired_node_leaves_and_another_takes_its_place() {
    let tune = |placement: &mut Placement<Machine>, random: &mut Random| {
        tune(placement, random);
        placement.parameters.f = 1;
    };
    let mut losses = 0;
    for seed in 0..40 {
        for (gone, lost) in [(2, 1), (1, 0), (0, 1)] {
            let case = Case { rounds: 60, ..Case::new(NODES - 1, "none".parse().unwrap(), tune) };
            let plan = vec![Change::Remove(NodeId(gone))];
            let (operated, operations) =
                run_losing(&case, seed, plan, Some(NodeId(gone)), Some(NodeId(lost)));
            let Some(before) = operated.lost_at else { continue };
            losses += 1;
            assert!(
                operations > before + 30,
                "seed {seed}: {gone} has left, {lost} is lost after {before} of {operations} operations"
            );
        }
    }
    assert!(losses > 60, "{losses} times somebody was lost");
}

/// Two of three nodes are removed, and both managers leave: one node is left, and needs nobody.
#[test]
fn of_three_nodes_one_is_left_and_needs_no_other() {
    let tune = |placement: &mut Placement<Machine>, random: &mut Random| {
        tune(placement, random);
        (placement.parameters.f, placement.parameters.copies_min) = (1, 0);
        placement.spares.clear();
    };
    for seed in 0..20 {
        let case = Case { rounds: 60, ..Case::new(3, "none".parse().unwrap(), tune) };
        let plan = [2, 1].map(|node| Change::Remove(NodeId(node)));
        let (operated, _) = run(&case, seed, plan.to_vec(), None);
        let outcomes: Vec<_> = operated.outcomes.iter().map(|(_, outcome)| outcome).collect();
        assert_eq!(outcomes, [&Outcome::Changed; 2], "seed {seed}");
        let removed = operated.loops.counted.get("managers_removed");
        assert_eq!(removed, Some(&2), "seed {seed}: {:?}", operated.loops.counted);
    }
}

/// The only copy is lost, and with it the manager that led. The next one has heard of nobody yet: it must not give the
/// master up for the one that is dead, which nobody could be the master instead of.
#[test]
fn a_master_goes_on_when_its_only_copy_dies_with_the_manager_that_leads() {
    let tune = |placement: &mut Placement<Machine>, random: &mut Random| {
        tune(placement, random);
        placement.parameters.f = 1;
        // To be replaced takes a master longer than the shortest of patience where round trips take 200 ms.
        placement.service.limit = Span::from_secs(20);
    };
    for seed in 0..20 {
        let case = Case { rounds: 60, ..Case::new(3, "none".parse().unwrap(), tune) };
        let plan = vec![Change::Lead(NodeId(1))];
        let (operated, operations) = run(&case, seed, plan, Some(NodeId(0)));
        assert!(operated.stopped, "seed {seed}: {:?}", operated.outcomes);
        assert_eq!(operated.outcomes, [(Change::Lead(NodeId(1)), Outcome::Changed)], "seed {seed}");
        assert!(operations > 100, "seed {seed}: {operations}");
        assert_eq!(
            operated.loops.counted.get("recoveries_begun"),
            Some(&2),
            "seed {seed}: {:?}",
            operated.loops.counted
        );
    }
}

/// Of four nodes two may go, since a master needs one copy; then another only if one comes back.
#[test]
fn what_would_leave_too_few_is_refused() {
    let case = case("none");
    let (remove, add) = (|node: u16| Change::Remove(NodeId(node)), |node: u16| Change::Add(NodeId(node)));
    let (done, few) = (Outcome::Changed, Outcome::Refused(Refusal::TooFew));
    let unknown = Outcome::Refused(Refusal::Impossible);
    let steps = [
        (remove(9), &unknown),
        (remove(0), &done),
        (remove(0), &done),
        (remove(1), &done),
        (remove(2), &few),
        (remove(3), &few),
        (add(0), &done),
        (remove(3), &done),
        (add(9), &unknown),
        (remove(2), &few),
    ];
    for seed in 0..10 {
        let (operated, _) = run(&case, seed, steps.iter().map(|(change, _)| *change).collect(), None);
        for ((change, outcome), (_, expected)) in operated.outcomes.iter().zip(&steps) {
            assert_eq!(outcome, *expected, "seed {seed}: {change:?} of {:?}", operated.outcomes);
        }
        assert_eq!(operated.outcomes.len(), steps.len());
    }
}

fn counting(count: u16) -> Play {
    let add = Count::add;
    let plans = vec![vec![add(1), add(2), add(1), add(3)], vec![add(3), add(2), add(1), add(4)]];
    Play::new(count, 2, plans, None, |parameters, _| parameters.sync_delay = Span::from_millis(20))
}

fn master(play: &Play) -> NodeId {
    play.registry.committed.as_ref().unwrap().master
}

/// Step by step, the managers being the test: the word is passed on until it is agreed; the master hands over without
/// being told to; whoever asked is told when it is a copy no more, though it is no master by then.
#[test]
fn a_retired_master_hands_over_and_says_that_it_is_done() {
    let mut play = counting(4);
    (0..20).for_each(|_| play.turn());
    play.change(0, Change::Remove(NodeId(0)));
    play.until("another master", |play| play.registry.next.is_none() && master(play) != NodeId(0));
    let now = play.registry.committed.clone().unwrap();
    assert!(!now.names(NodeId(0)) && play.registry.is_retired(NodeId(0)), "{now:?}");
    play.until("the answer", |play| !play.administered.is_empty());
    assert_eq!(play.administered, [Ok(())]);
    play.ends_well().unwrap();
    assert_eq!((play.count("handovers_begun"), play.count("requests_replayed")), (1, 0));
    // Asked again it is so already; and the other way it is told as soon as it is agreed.
    let to = now.master.0;
    play.change(to, Change::Remove(NodeId(0)));
    play.change(to, Change::Add(NodeId(7)));
    play.until("the answers", |play| play.administered.len() == 3);
    assert_eq!(play.administered[1..], [Ok(()), Err(Refusal::Impossible)]);
    play.change(to, Change::Add(NodeId(0)));
    play.until("the answer", |play| play.administered.len() == 4);
    assert_eq!(play.administered[3], Ok(()));
    assert!(!play.registry.is_retired(NodeId(0)));
}

/// The master is lost, and the only copy that lives is retired: it leads, or what it alone has would be lost; and then
/// hands over, as soon as it can.
#[test]
fn a_retired_copy_that_is_the_last_one_goes_on_until_it_is_not() {
    let mut play = counting(4);
    play.ends_well().unwrap();
    let version = play.registry.version;
    assert!(play.agree(&Decree::Retire { version, node: NodeId(1) }));
    play.lose([0, 2], [0, 2]);
    play.lead(1, [3]);
    play.until("the last one", |play| play.registry.next.is_none() && master(play) == NodeId(1));
    play.plans[0].push_back(Count::add(5));
    play.until("the spare", |play| play.registry.next.is_none() && master(play) == NodeId(3));
    assert_eq!(play.registry.committed.as_ref().unwrap().copies.len(), 0);
    play.ends_well().unwrap();
}

#[test]
fn a_wish_that_nobody_grants_is_given_up() {
    let mut play = counting(3);
    play.ends_well().unwrap();
    play.loses = |message| {
        use isochrone_replication::curp::primary::Message as Spoken;
        use isochrone_replication::message::Message;
        matches!(message, Message::Order { message: Spoken::Wish { .. }, .. })
    };
    play.change(0, Change::Remove(NodeId(2)));
    play.change(0, Change::Remove(NodeId(1)));
    play.pass(Span::from_millis(9_000));
    assert_eq!(play.administered, [Err(Refusal::Busy)], "one at a time");
    play.pass(Span::from_millis(1_500));
    assert_eq!(play.administered[1..], [Err(Refusal::TimedOut)]);
    assert!(!play.registry.is_retired(NodeId(2)));
}

/// A copy that was taken out comes back under the same master, and its list counts: one that lacks more than its master
/// keeps takes in the state, and one that followed while the log was empty is sent what came since (seed 40,001,088).
#[test]
fn a_copy_that_comes_back_to_the_same_master_takes_in_what_it_missed() {
    for (before, meanwhile) in [(1, 20), (0, 1)] {
        let plans = vec![(0..before).map(Count::add).collect()];
        let mut play = Play::new(3, 1, plans, None, |parameters, _| {
            (parameters.sync_delay, parameters.keep_slots) = (Span::ZERO, 2);
        });
        play.ends_well().unwrap();
        play.replace([2]);
        play.until("the other list", |play| play.registry.next.is_none());
        // The master has heard of that, and tells the one that was taken out nothing more.
        play.ends_well().unwrap();
        play.plans[0].extend((0..meanwhile).map(Count::add));
        play.ends_well().unwrap();
        play.replace([1]);
        play.until("the list", |play| play.registry.next.is_none());
        play.ends_well().unwrap();
        assert_eq!(play.registry.committed.as_ref().unwrap().reign.0, 1, "the same master");
    }
}

/// A witness that was to know a list in whose place another was begun, without it, need not: its copy is not given up for
/// that, or there might be too few for any list.
#[test]
fn a_copy_is_silent_by_its_witness_only_where_that_is_wanted() {
    let silence = Span::from_millis(200);
    let mut play = Play::new(4, 2, vec![vec![]], None, |parameters, _| parameters.silence = silence);
    play.loses = |message| {
        use isochrone_replication::curp::primary::Message as Spoken;
        use isochrone_replication::message::Message;
        matches!(message, Message::Order { message: Spoken::Started { .. }, .. })
    };
    play.replace([1, 3]);
    play.until("the list is taken on", |play| play.servers[0].process.order().copies().len() == 3);
    play.replace([2, 3]);
    play.pass(silence * 3);
    assert_eq!(play.silent, [NodeId(2), NodeId(3)]);
    play.loses = |_| false;
    play.until("the list", |play| play.registry.next.is_none());
    play.ends_well().unwrap();
}
