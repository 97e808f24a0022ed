//! Replies at commit: what a client was told before it was executed is executed, whatever fails.

use super::tune;
use crate::cluster::{Case, Cluster};
use crate::driver::Loops;
use crate::machine::{Command, Machine, Reply, key};
use isochrone_core::{Fact, Instant, Path, ProcessId, Random, Span, Ticket};
use isochrone_replication::fastpaxos::{Family, Learners, Placement};
use isochrone_replication::service::Reply as When;
use isochrone_replication::{Outcome, Replicated, Request};
use isochrone_sim::{Admin, Driver, FaultSet, Next, Session};
use std::collections::BTreeMap;

/// Each session sets keys that nobody else sets, one after the other, and long after all faults reads them.
struct Writers {
    admin: Loops,
    random: Random,
    /// For each session how many keys it has asked to be set, and whether it was told so.
    written: BTreeMap<u32, Vec<bool>>,
    reading: BTreeMap<u32, usize>,
    open: BTreeMap<Ticket, usize>,
    missing: Vec<String>,
    checked: usize,
    fast: usize,
    healed: Option<Instant>,
}

const KEYS: usize = 20;

impl Driver<Replicated<Machine, Family>> for Writers {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request<Command>> {
        let written = self.written.entry(session.number).or_default();
        let name = |at: usize| key((session.number as usize * KEYS + at) as u8);
        let end = Instant::ZERO + Span::from_secs(9);
        if written.len() < KEYS && now < end {
            let at = now + Span::from_millis(self.random.below(500));
            let command = Command::Set(name(written.len()), "x".to_owned());
            written.push(false);
            return Next::Request { at, request: Request::Command(command) };
        }
        let reading = self.reading.entry(session.number).or_default();
        while *reading < written.len() && !written[*reading] {
            *reading += 1;
        }
        if *reading >= written.len() {
            return Next::Done;
        }
        *reading += 1;
        let late = Instant::ZERO + Span::from_secs(25);
        Next::Request { at: now.max(late), request: Request::Command(Command::Get(name(*reading - 1))) }
    }

    fn invoked(&mut self, session: Session, ticket: Ticket, _: Instant) {
        let reads = self.reading.contains_key(&session.number);
        let at = if reads { usize::MAX } else { self.written[&session.number].len() - 1 };
        self.open.insert(ticket, at);
    }

    fn completed(&mut self, session: Session, ticket: Ticket, outcome: Outcome<Reply>, now: Instant) {
        match (self.open.remove(&ticket), outcome) {
            (Some(usize::MAX), Outcome::Replied(Reply::Text(text))) => {
                self.checked += 1;
                if text.is_none() {
                    let at = self.reading[&session.number] - 1;
                    self.missing.push(format!("{now}: session {} lost key {at}", session.number));
                }
            }
            (Some(at), Outcome::Replied(_)) if at != usize::MAX => {
                self.written.get_mut(&session.number).unwrap()[at] = true;
            }
            _ => {}
        }
    }

    fn fact(&mut self, _: ProcessId, fact: &Fact, _: Instant) {
        self.fast += usize::from(matches!(fact, Fact::Committed { path: Path::Fast, .. }));
    }

    fn healed(&mut self, now: Instant) {
        self.healed = Some(now);
    }

    fn admin(&mut self, now: Instant, random: &mut Random) -> Vec<Admin> {
        Driver::<Replicated<Machine, Family>>::admin(&mut self.admin, now, random)
    }
}

fn at_commit(placement: &mut Placement<Machine>, random: &mut Random) {
    tune(placement, random);
    placement.service.reply = When::Commit;
    placement.parameters.cast = true;
    placement.parameters.learners = [Learners::Sole, Learners::All][random.below(2) as usize];
}

fn hold(replicas: u16, first: u64, count: u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = match (number("ISOCHRONE_SEED"), number("ISOCHRONE_SEEDS")) {
        (Some(seed), _) => (seed, 1),
        (None, many) => (first, many.unwrap_or(count)),
    };
    let (mut checked, mut fast) = (0, 0);
    for seed in first..first + count {
        let case = Case { crashes: 4, ..Case::<Family>::new(replicas, FaultSet::ALL, at_commit) };
        let (mut cluster, admin): (Cluster<Family>, Loops) = case.cluster(seed);
        let mut writers = Writers {
            admin,
            random: Random::seeded(seed),
            written: BTreeMap::new(),
            reading: BTreeMap::new(),
            open: BTreeMap::new(),
            missing: Vec::new(),
            checked: 0,
            fast: 0,
            healed: None,
        };
        let report = cluster.run(&mut writers);
        if std::env::var_os("ISOCHRONE_TRACE").is_some() {
            eprintln!("{}", cluster.trace());
        }
        assert_eq!(report.violations, [], "seed {seed}");
        assert_eq!(writers.missing, [] as [String; 0], "seed {seed}");
        checked += writers.checked;
        fast += writers.fast;
    }
    println!("{checked} keys were read again, {fast} commands took the fast path");
    assert!(checked > count as usize && fast > 0);
}

#[test]
fn what_was_told_at_commit_is_executed() {
    hold(3, 0, 60);
    hold(5, 1_000, 40);
}
