//! What looks at all keys finds each that is there all the time, whatever else happens.

use super::{deployment, placed};
use isochrone_core::command::{Command, Condition, Expiry, Kind, Operation, Response, Side};
use isochrone_core::{
    Blob, Deployment, Instant, NodeId, PartitionId, ProcessId, Random, Span, Stamp, Ticket,
};
use isochrone_replication::Change;
use isochrone_sim::{
    Action, Admin, Config, Driver, FaultKind, FaultPlan, FaultSet, Next, Planned, Session, Simulation,
    ViolationKind,
};
use isochrone_transactions::commands::{Answer, Ask, Served};
use isochrone_transactions::{Family, Placement, Request, carousel, tapir, twopc};
use isochrone_workload::transactions::{draw_change, draw_move};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
struct Answers(BTreeMap<Ticket, Answer>);

impl<F: Family> Driver<Served<F>> for Answers {
    fn next(&mut self, _: Session, _: Instant) -> Next<Ask> {
        Next::Done
    }
    fn completed(&mut self, _: Session, _: Ticket, _: Answer, _: Instant) {}
    fn answered(&mut self, _: ProcessId, ticket: Ticket, answer: Answer, _: bool) {
        self.0.insert(ticket, answer);
    }
    fn admin(&mut self, _: Instant, _: &mut Random) -> Vec<Admin> {
        Vec::new()
    }
}

pub(super) struct Cluster<F: Family> {
    pub(super) simulation: Simulation<Served<F>>,
    placement: Placement<F>,
    answers: Answers,
    tickets: u64,
}

/// Four regions, three partitions, or one.
pub(super) fn stands<F: Family>(seed: u64, partitions: usize) -> (Config, Placement<F>) {
    stands_in(&deployment(F::NAME, ""), seed, partitions)
}

fn stands_in<F: Family>(deployment: &Deployment, seed: u64, partitions: usize) -> (Config, Placement<F>) {
    let mut placement = Placement::<F>::of(deployment, &deployment.keyspaces()[0]).unwrap();
    placement.map.groups = placement.map.groups.iter().take(partitions).cloned().collect();
    let placement = placement.movable();
    let delay = |from, to| deployment.one_way(from, to);
    let nodes: Vec<NodeId> = deployment.nodes().iter().map(|node| node.id).collect();
    let delays = nodes.iter().map(|from| nodes.iter().map(|to| delay(*from, *to)).collect()).collect();
    let names: Vec<&str> = deployment.nodes().iter().map(|node| node.name.as_str()).collect();
    let mut config = Config::new(seed, &names, delays);
    config.roles = &["server", "client"];
    (config, placement)
}

pub(super) fn cluster<F: Family>(partitions: usize) -> Cluster<F> {
    tuned(partitions, |_| {})
}

fn tuned<F: Family>(partitions: usize, tune: fn(&mut F::Parameters)) -> Cluster<F> {
    let (config, mut placement) = stands::<F>(5, partitions);
    tune(&mut placement.parameters);
    booted(config, placement)
}

fn booted<F: Family>(mut config: Config, placement: Placement<F>) -> Cluster<F> {
    config.sessions = 0;
    config.horizon = Span::from_secs(3_600);
    let mut simulation = Simulation::new(config, &placement);
    let plan = FaultPlan::draw(5, FaultSet::NONE, &simulation.shape(1));
    simulation.set_faults(plan);
    simulation.boot();
    let mut cluster = Cluster { simulation, placement, answers: Answers::default(), tickets: 0 };
    cluster.pass(Span::from_secs(10));
    cluster
}

impl<F: Family> Cluster<F> {
    pub(super) fn pass(&mut self, span: Span) {
        self.simulation.run_for(span, &mut self.answers);
        assert_eq!(self.simulation.broken(), None);
    }

    pub(super) fn ask(&mut self, node: u16, ask: Ask) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.simulation.request(self.placement.client(NodeId(node)), ticket, ask);
        ticket
    }

    pub(super) fn wait(&mut self, ticket: Ticket) -> Answer {
        let until = self.simulation.now() + Span::from_secs(60);
        while !self.answers.0.contains_key(&ticket) {
            assert!(self.simulation.now() < until, "{}: no answer within a minute", F::NAME);
            self.pass(Span::from_millis(1));
        }
        self.answers.0.remove(&ticket).unwrap()
    }

    pub(super) fn run(&mut self, node: u16, operation: Operation) -> Response {
        let stamp = Stamp::from_nanos(1_700_000_000_000_000_000 + self.simulation.now().as_nanos());
        let ticket = self.ask(node, Ask::Command(Command::new(stamp, operation)));
        match self.wait(ticket) {
            Answer::Replied(response) => response,
            other => panic!("{}: {other:?}", F::NAME),
        }
    }

    fn set(&mut self, node: u16, key: &str) {
        let (key, value, condition) = (key.into(), "v".into(), Condition::Always);
        let expiry = Expiry::Clear;
        let set = Operation::Set { key, value, condition, expiry, get: false };
        assert_eq!(self.run(node, set), Response::Ok);
    }

    /// One page: its keys, and the next cursor.
    fn page(
        &mut self,
        cursor: u64,
        count: u64,
        pattern: Option<&str>,
        kind: Option<Kind>,
    ) -> (Vec<Blob>, u64) {
        let pattern = pattern.map(Blob::from);
        match self.run(2, Operation::Scan { cursor, count, pattern, kind }) {
            Response::Scan { cursor, items } => {
                assert!(cursor < 1 << 53, "a double does not hold {cursor}");
                (items, cursor)
            }
            other => panic!("{other:?}"),
        }
    }

    fn scan(&mut self, count: u64, pattern: Option<&str>, kind: Option<Kind>) -> Vec<Blob> {
        let (mut found, mut cursor) = self.page(0, count, pattern, kind);
        while cursor != 0 {
            let (items, next) = self.page(cursor, count, pattern, kind);
            found.extend(items);
            cursor = next;
        }
        found.sort();
        found
    }
}

fn keys(count: usize) -> Vec<Blob> {
    (0..count).map(|number| Blob::from(format!("key:{number:04}"))).collect()
}

fn finds_all<F: Family>(partitions: usize) {
    let mut cluster = cluster::<F>(partitions);
    assert_eq!(
        (cluster.run(1, Operation::DbSize), cluster.scan(10, None, None)),
        (Response::Integer(0), vec![])
    );
    let all = keys(200);
    for (number, key) in all.iter().enumerate() {
        cluster.set((number % 4) as u16, std::str::from_utf8(key).unwrap());
    }
    // What is acknowledged is found at once, elsewhere.
    assert_eq!(cluster.run(2, Operation::DbSize), Response::Integer(200), "{}", F::NAME);
    assert_eq!(cluster.scan(7, None, None), all, "{}: each once", F::NAME);
    assert_eq!(cluster.scan(10_000, Some("key:00[0-4]*"), None), all[..50]);
    let (values, side) = (["x".into()].into(), Side::Left);
    cluster.run(0, Operation::Push { key: "list".into(), values, side, only_if_exists: false });
    assert_eq!(cluster.scan(50, None, Some(Kind::List)), ["list".into()]);
    cluster.run(0, Operation::Del { keys: ["list".into(), all[3].clone()].into() });
    let Response::Array(listed) = cluster.run(3, Operation::Keys { pattern: "*".into() }) else { panic!() };
    let mut listed: Vec<Blob> = listed
        .into_iter()
        .map(|key| match key {
            Response::Bulk(key) => key,
            other => panic!("{other:?}"),
        })
        .collect();
    listed.sort();
    let left: Vec<Blob> = all.iter().filter(|key| **key != all[3]).cloned().collect();
    assert_eq!(listed, left);
    // A key whose time is over is not there, deleted or not.
    let now = 1_700_000_000_000_000_000 + cluster.simulation.now().as_nanos();
    let (key, value) = (Blob::from("short"), Blob::from("v"));
    let expiry = Expiry::At(Stamp::from_nanos(now + 5_000_000_000));
    cluster.run(0, Operation::Set { key, value, condition: Condition::Always, expiry, get: false });
    assert_eq!(cluster.run(1, Operation::DbSize), Response::Integer(200));
    cluster.pass(Span::from_secs(6));
    assert_eq!(
        (cluster.run(1, Operation::DbSize), cluster.scan(64, None, None)),
        (Response::Integer(199), left)
    );
}

/// What is there is told at random, and `FLUSHDB` leaves nothing.
fn empties<F: Family>(partitions: usize) {
    let mut cluster = cluster::<F>(partitions);
    assert_eq!(cluster.run(1, Operation::RandomKey { seed: 7 }), Response::Nil, "{}", F::NAME);
    assert_eq!(cluster.run(1, Operation::Flush), Response::Ok, "{}: nothing", F::NAME);
    let all = keys(200);
    let random = |cluster: &mut Cluster<F>, seed| match cluster.run(3, Operation::RandomKey { seed }) {
        Response::Bulk(key) => key,
        other => panic!("{}: {other:?}", F::NAME),
    };
    cluster.set(2, "key:0000");
    (0..8).for_each(|seed| assert_eq!(random(&mut cluster, seed), all[0], "{}: the only one", F::NAME));
    for (number, key) in all.iter().enumerate() {
        cluster.set((number % 4) as u16, std::str::from_utf8(key).unwrap());
    }
    let told: BTreeSet<Blob> = (0..60).map(|seed| random(&mut cluster, seed)).collect();
    assert!(told.len() > 30 && told.iter().all(|key| all.contains(key)), "{}: {told:?}", F::NAME);
    assert_eq!(cluster.run(3, Operation::Flush), Response::Ok, "{}", F::NAME);
    assert_eq!(
        (cluster.run(1, Operation::DbSize), cluster.run(2, Operation::RandomKey { seed: 3 })),
        (Response::Integer(0), Response::Nil),
        "{}",
        F::NAME
    );
    cluster.set(0, "new");
    assert_eq!(cluster.scan(10, None, None), ["new".into()]);
}

#[test]
fn emptying_leaves_nothing() {
    for partitions in [1, 3] {
        empties::<twopc::Family>(partitions);
        empties::<carousel::Basic>(partitions);
        empties::<carousel::Fast>(partitions);
        empties::<tapir::Family>(partitions);
    }
}

/// A transaction may have fewer keys than are deleted together.
#[test]
fn emptying_takes_no_more_keys_than_a_transaction_may_have() {
    let mut cluster = tuned::<twopc::Family>(1, |knobs| knobs.keys_max = 3);
    for key in keys(20) {
        cluster.set(1, std::str::from_utf8(&key).unwrap());
    }
    assert_eq!(cluster.run(1, Operation::Flush), Response::Ok);
    assert_eq!(cluster.run(2, Operation::DbSize), Response::Integer(0));
}

/// In one pipeline.
fn comes_behind_what_was_asked_before<F: Family>() {
    let mut cluster = cluster::<F>(3);
    let stamp = Stamp::from_nanos(1_700_000_000_000_000_000);
    for key in keys(50) {
        let (value, condition, expiry) = ("v".into(), Condition::Always, Expiry::Clear);
        let set = Operation::Set { key, value, condition, expiry, get: false };
        cluster.ask(1, Ask::Command(Command::new(stamp, set)));
    }
    let command = Command { in_order: true, ..Command::new(stamp, Operation::DbSize) };
    let ticket = cluster.ask(1, Ask::Command(command));
    assert_eq!(cluster.wait(ticket), Answer::Replied(Response::Integer(50)), "{}", F::NAME);
    for key in keys(60) {
        let (value, condition, expiry) = ("v".into(), Condition::Always, Expiry::Clear);
        let set = Operation::Set { key, value, condition, expiry, get: false };
        cluster.ask(1, Ask::Command(Command::new(stamp, set)));
    }
    let ticket = cluster.ask(1, Ask::Command(Command::new(stamp, Operation::Flush)));
    assert_eq!(cluster.wait(ticket), Answer::Replied(Response::Ok), "{}", F::NAME);
    assert_eq!(cluster.run(1, Operation::DbSize), Response::Integer(0), "{}", F::NAME);
}

#[test]
fn scans_find_every_key_once() {
    for partitions in [1, 3] {
        finds_all::<twopc::Family>(partitions);
        finds_all::<carousel::Basic>(partitions);
        finds_all::<carousel::Fast>(partitions);
        finds_all::<tapir::Family>(partitions);
    }
    comes_behind_what_was_asked_before::<twopc::Family>();
    comes_behind_what_was_asked_before::<carousel::Fast>();
    comes_behind_what_was_asked_before::<tapir::Family>();
}

/// Keys move there and back while they are listed, and the leader of a partition hands over and is cut off.
fn misses_nothing<F: Family>() {
    let mut cluster = cluster::<F>(3);
    let all = keys(60);
    for key in &all {
        cluster.set(1, std::str::from_utf8(key).unwrap());
    }
    let (mut cursor, mut found, mut pages) = (0, Vec::new(), 0);
    loop {
        let (items, next) = cluster.page(cursor, 5, None, None);
        found.extend(items);
        (cursor, pages) = (next, pages + 1);
        if cursor == 0 {
            break;
        }
        if [2, 9].contains(&pages) {
            // From what was not listed yet to what was, and back.
            let (from, to) =
                if pages == 2 { (PartitionId(2), PartitionId(0)) } else { (PartitionId(0), PartitionId(2)) };
            let moved = cluster.ask(3, Ask::Transaction(Request::Move { reach: None, from, to }));
            cluster.wait(moved);
        }
        if pages == 5 && F::LED {
            let members = cluster.placement.map.groups[0].members.clone();
            for member in members.iter() {
                cluster.simulation.administer(member.process, Ticket(0), Box::new(Change::Lead(NodeId(2))));
            }
            cluster.pass(Span::from_secs(1));
            cluster.simulation.crash(NodeId(0));
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found, all, "{}", F::NAME);
    assert_eq!(cluster.run(3, Operation::DbSize), Response::Integer(60));
}

/// Of five replicas a majority is enough to say what is there now.
#[test]
fn tapir_lists_while_two_of_five_replicas_are_down() {
    let regions = ["US West", "US East", "Euro", "Asia", "Australia"];
    let nodes = "[[\"n0\", \"n1\", \"n2\", \"n3\", \"n4\"]]";
    let (config, placement) = stands_in(&placed("tapir", &regions, nodes, ""), 5, 1);
    let mut cluster = booted::<tapir::Family>(config, placement);
    for key in ["a", "b", "c"] {
        cluster.set(2, key);
    }
    for node in [0, 4] {
        cluster.simulation.crash(NodeId(node));
    }
    cluster.set(2, "d");
    assert_eq!(cluster.run(2, Operation::DbSize), Response::Integer(4));
}

/// A leader that has a successor of which it does not hear goes on to lead, and whoever asks hears from both.
fn is_not_told_by_who_is_deposed<F: Family>(patient: fn(&mut F::Parameters)) {
    let mut cluster = tuned::<F>(1, patient);
    cluster.set(3, "before");
    assert_eq!(cluster.run(3, Operation::DbSize), Response::Integer(1));
    cluster.pass(Span::from_secs(1));
    let leader = cluster.placement.map.groups[0].leader();
    cluster.simulation.administer(leader, Ticket(0), Box::new(Change::Lead(NodeId(1))));
    cluster.pass(Span::from_millis(45));
    for other in [1, 2] {
        cluster.simulation.connect(NodeId(0), NodeId(other), false);
    }
    // Who asks for it does not reach the old one; who looks reaches that first.
    cluster.set(1, "after");
    assert_eq!(cluster.run(3, Operation::DbSize), Response::Integer(2), "{}", F::NAME);
}

#[test]
fn scans_are_not_told_by_who_leads_no_more() {
    is_not_told_by_who_is_deposed::<twopc::Family>(|knobs| knobs.log.election = Span::from_secs(60));
    is_not_told_by_who_is_deposed::<carousel::Basic>(|knobs| knobs.log.election = Span::from_secs(60));
    is_not_told_by_who_is_deposed::<carousel::Fast>(|knobs| knobs.log.election = Span::from_secs(60));
}

/// What one writer asked about one of its keys.
struct Asked {
    begun: Instant,
    /// When it was answered that it is done; nothing while, or where, nobody knows.
    ended: Option<Instant>,
    sets: bool,
}

/// Writers with keys of their own, and others who look at all keys, by turns in four ways, and delete them all.
struct Watchers {
    random: Random,
    until: Instant,
    sessions: BTreeMap<u32, Watcher>,
    keys: BTreeMap<Blob, Vec<Asked>>,
    /// Of all keys; none that nobody knows the end of.
    flushes: Vec<Asked>,
    orders: Orders,
    looks: u64,
    wrong: Vec<String>,
}

/// Draws what is ordered.
type Orders = Box<dyn FnMut(&mut Random) -> Vec<Admin>>;

#[derive(Default)]
struct Watcher {
    /// What it waits for, since when.
    asked: Option<(Operation, Instant)>,
    /// Since when it looks, and what it has found.
    since: Option<Instant>,
    found: BTreeSet<Blob>,
    cursor: u64,
    turn: u64,
}

impl Watchers {
    /// Whether a key was there all the time, or never; nothing where that is not sure.
    fn there(asked: &[Asked], flushes: &[Asked], from: Instant, to: Instant) -> Option<bool> {
        let mut asked: Vec<&Asked> = asked.iter().chain(flushes).collect();
        asked.sort_by_key(|asked| asked.begun);
        let (mut state, mut until) = (Some(false), Instant::ZERO);
        for Asked { begun, ended, sets } in asked.into_iter().filter(|asked| asked.begun < to) {
            let ended = ended.filter(|ended| *ended < from)?;
            // Of two at once nobody knows which was the last.
            if *begun > until || state == Some(*sets) {
                state = Some(*sets)
            } else {
                state = None
            }
            until = until.max(ended);
        }
        state
    }

    fn judge(&mut self, what: &str, since: Instant, now: Instant, found: &BTreeSet<Blob>) {
        self.looks += 1;
        for (key, asked) in &self.keys {
            let there = Watchers::there(asked, &self.flushes, since, now);
            if there.is_some_and(|there| there != found.contains(key)) {
                self.wrong.push(format!("{what} from {since} to {now}: {key:?}, there {there:?}"));
            }
        }
    }

    fn count(&mut self, since: Instant, now: Instant, found: i64) {
        self.looks += 1;
        let states = self.keys.values().map(|asked| Watchers::there(asked, &self.flushes, since, now));
        let (mut least, mut most) = (0, 0);
        for state in states {
            least += i64::from(state == Some(true));
            most += i64::from(state != Some(false));
        }
        if !(least..=most).contains(&found) {
            self.wrong.push(format!("DBSIZE {found} from {since} to {now}, where {least} to {most} are"));
        }
    }
}

impl<F: Family> Driver<Served<F>> for Watchers {
    fn next(&mut self, session: Session, now: Instant) -> Next<Ask> {
        let watcher = self.sessions.entry(session.number).or_default();
        if now >= self.until && watcher.since.is_none() {
            return Next::Done;
        }
        let number = session.number;
        let operation = if number.is_multiple_of(2) {
            // Of a key whose last change may take effect at any time nobody knows anything any more.
            let slot = self.random.below(8);
            let mut lives = (0..).map(|life| Blob::from(format!("{number}:{slot}.{life}")));
            let known = |asked: &Vec<Asked>| asked.iter().all(|asked| asked.ended.is_some());
            let Some(key) = lives.find(|key| self.keys.get(key).is_none_or(known)) else { return Next::Done };
            let known = self.keys.entry(key.clone()).or_default();
            let sets = self.random.chance(0.6);
            known.push(Asked { begun: now, ended: None, sets });
            let (value, condition, expiry) = ("v".into(), Condition::Always, Expiry::Clear);
            match sets {
                true => Operation::Set { key, value, condition, expiry, get: false },
                false => Operation::Del { keys: [key].into() },
            }
        } else {
            if watcher.turn == 0 {
                watcher.turn = self.random.below(7);
            }
            if watcher.since.is_none() {
                (watcher.since, watcher.cursor, watcher.turn) = (Some(now), 0, watcher.turn + 1);
                watcher.found.clear();
            }
            match watcher.turn % 7 {
                0 | 6 => Operation::DbSize,
                1 => Operation::Keys { pattern: "*".into() },
                2 | 4 => Operation::RandomKey { seed: self.random.below(u64::MAX) },
                5 => {
                    self.flushes.push(Asked { begun: now, ended: None, sets: false });
                    Operation::Flush
                }
                _ => Operation::Scan { cursor: watcher.cursor, count: 4, pattern: None, kind: None },
            }
        };
        watcher.asked = Some((operation.clone(), now));
        let stamp = Stamp::from_nanos(1_700_000_000_000_000_000 + now.as_nanos());
        Next::Request {
            at: now + Span::from_millis(5),
            request: Ask::Command(Command::new(stamp, operation)),
        }
    }

    fn completed(&mut self, session: Session, _: Ticket, answer: Answer, now: Instant) {
        let Some(watcher) = self.sessions.get_mut(&session.number) else { return };
        let Some((operation, begun)) = watcher.asked.take() else { return };
        match (operation, answer) {
            (Operation::Set { key, .. }, answer) => self.end(&key, begun, now, &answer),
            (Operation::Del { keys }, answer) => self.end(&keys[0], begun, now, &answer),
            (Operation::Scan { .. }, Answer::Replied(Response::Scan { cursor, items })) => {
                watcher.found.extend(items);
                watcher.cursor = cursor;
                if cursor == 0
                    && let Some(since) = watcher.since.take()
                {
                    let found = std::mem::take(&mut watcher.found);
                    self.judge("SCAN", since, now, &found);
                }
            }
            (Operation::Keys { .. }, Answer::Replied(Response::Array(keys))) => {
                let bulk = |key| if let Response::Bulk(key) = key { Some(key) } else { None };
                let found: BTreeSet<Blob> = keys.into_iter().filter_map(bulk).collect();
                if let Some(since) = watcher.since.take() {
                    self.judge("KEYS", since, now, &found);
                }
            }
            (Operation::DbSize, Answer::Replied(Response::Integer(found))) => {
                if let Some(since) = watcher.since.take() {
                    self.count(since, now, found);
                }
            }
            (Operation::RandomKey { .. }, Answer::Replied(Response::Nil)) => {
                if let Some(since) = watcher.since.take() {
                    self.judge("RANDOMKEY", since, now, &BTreeSet::new());
                }
            }
            (Operation::RandomKey { .. }, Answer::Replied(Response::Bulk(key))) => {
                if let Some(since) = watcher.since.take() {
                    self.looks += 1;
                    let asked = self.keys.get(&key).map(Vec::as_slice).unwrap_or_default();
                    if Watchers::there(asked, &self.flushes, since, now) == Some(false) {
                        self.wrong.push(format!("RANDOMKEY from {since} to {now}: {key:?} is not there"));
                    }
                }
            }
            (Operation::Flush, answer) => {
                watcher.since = None;
                self.emptied(begun, now, &answer);
            }
            (_, Answer::Refused(_)) => watcher.since = None,
            (operation, answer) => panic!("{operation:?}: {answer:?}"),
        }
    }

    fn lost(&mut self, session: Session, _: Ticket, now: Instant) {
        let Some(watcher) = self.sessions.get_mut(&session.number) else { return };
        watcher.since = None;
        if let Some((Operation::Flush, begun)) = watcher.asked.take() {
            self.emptied(begun, now, &Answer::Unknown);
        }
    }

    fn admin(&mut self, _: Instant, random: &mut Random) -> Vec<Admin> {
        (self.orders)(random)
    }
}

impl Watchers {
    fn emptied(&mut self, begun: Instant, now: Instant, answer: &Answer) {
        let Some(place) = self.flushes.iter().position(|asked| asked.begun == begun) else { return };
        match answer {
            Answer::Replied(_) => self.flushes[place].ended = Some(now),
            Answer::Refused(_) => drop(self.flushes.remove(place)),
            // It may take effect at any time, but for what is written from now on under other names.
            _ => {
                self.flushes.remove(place);
                self.keys
                    .values_mut()
                    .for_each(|asked| asked.push(Asked { begun, ended: None, sets: false }));
            }
        }
    }

    fn end(&mut self, key: &Blob, begun: Instant, now: Instant, answer: &Answer) {
        let Some(asked) = self.keys.get_mut(key) else { return };
        match answer {
            Answer::Replied(_) => asked
                .iter_mut()
                .filter(|asked| asked.begun == begun)
                .for_each(|asked| asked.ended = Some(now)),
            Answer::Refused(_) => asked.retain(|asked| asked.begun != begun),
            _ => {}
        }
    }
}

/// Seeds; `ISOCHRONE_SEEDS` says how many, `ISOCHRONE_SEED` which one.
fn holds<F: Family>(count: u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = match (number("ISOCHRONE_SEED"), number("ISOCHRONE_SEEDS")) {
        (Some(seed), _) => (seed, 1),
        (None, many) => (0, many.unwrap_or(count)),
    };
    let (mut looks, mut wrong) = (0, Vec::new());
    for seed in first..first + count {
        let mut random = Random::seeded(seed ^ 0x7363_616e);
        let (mut config, mut placement) = stands::<F>(seed, if random.chance(0.8) { 3 } else { 1 });
        config.sessions = 2;
        config.horizon = Span::from_secs(8);
        if F::LED {
            (0..4).for_each(|node| placement.add_spare(NodeId(node)));
        }
        let mut simulation = Simulation::<Served<F>>::new(config, &placement);
        let mut plan = FaultPlan::draw(seed, FaultSet::ALL, &simulation.shape(1));
        for _ in 0..6 {
            let at = Span::from_millis(random.below(7_500));
            let (kind, action) = (FaultKind::Membership, Action::Membership);
            plan.faults.push(Planned { at, length: Span::ZERO, kind, action });
        }
        plan.faults.sort_by_key(|fault| fault.at);
        simulation.set_faults(plan);
        let orders = Box::new(move |random: &mut Random| match random.chance(0.5) {
            true => draw_change(&placement, random),
            false => draw_move(&placement, random, Ask::Transaction),
        });
        let (sessions, keys) = (BTreeMap::new(), BTreeMap::new());
        let until = Instant::ZERO + Span::from_secs(12);
        let (flushes, wrong_here) = (Vec::new(), Vec::new());
        let mut watchers =
            Watchers { random, until, sessions, keys, flushes, orders, looks: 0, wrong: wrong_here };
        let report = simulation.run(&mut watchers);
        let stuck = |violation: &&isochrone_sim::Violation| violation.kind != ViolationKind::Stuck;
        wrong.extend(report.violations.iter().filter(stuck).map(ToString::to_string));
        wrong.extend(watchers.wrong.into_iter().map(|text| format!("seed {seed}: {text}")));
        looks += watchers.looks;
    }
    println!("{}: {count} seeds, {looks} looks at all keys", F::NAME);
    assert!(looks > count, "{}: {looks} looks", F::NAME);
    assert!(
        wrong.is_empty(),
        "{}: {} wrong:\n{}",
        F::NAME,
        wrong.len(),
        wrong[..wrong.len().min(8)].join("\n")
    );
}

#[test]
fn scans_hold_under_all_faults() {
    holds::<twopc::Family>(30);
    holds::<carousel::Basic>(30);
    holds::<carousel::Fast>(30);
    holds::<tapir::Family>(30);
}

#[test]
fn scans_miss_nothing_while_keys_move_and_leaders_fail() {
    misses_nothing::<twopc::Family>();
    misses_nothing::<carousel::Basic>();
    misses_nothing::<carousel::Fast>();
    misses_nothing::<tapir::Family>();
}
