//! Replies at commit: each session has a key of its own, and reads what it last wrote or something later.

use super::tune;
use crate::cluster::Case;
use crate::machine::{Command, Machine, Reply, key};
use isochrone_core::{Instant, ProcessId, Random, Span, Ticket};
use isochrone_replication::domino::{Family, Placement};
use isochrone_replication::service::Reply as At;
use isochrone_replication::{Outcome, Replicated, Request};
use isochrone_sim::{Driver, FaultSet, Next, Session};
use std::collections::BTreeMap;

/// What each session wrote, and what it saw that cannot be.
pub struct Own {
    rounds: u64,
    random: Random,
    sessions: BTreeMap<u32, Seen>,
    asked: BTreeMap<Ticket, Option<u64>>,
    next: BTreeMap<u32, Option<u64>>,
    pub wrong: Vec<String>,
}

#[derive(Default)]
struct Seen {
    count: u64,
    /// The last write that was acknowledged.
    acknowledged: u64,
}

impl Own {
    fn new(seed: u64) -> Own {
        Own {
            rounds: 15,
            random: Random::seeded(seed ^ 0x6f77_6e21),
            sessions: BTreeMap::new(),
            asked: BTreeMap::new(),
            next: BTreeMap::new(),
            wrong: Vec::new(),
        }
    }
}

impl Driver<Replicated<Machine, Family>> for Own {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request<Command>> {
        let seen = self.sessions.entry(session.number).or_default();
        seen.count += 1;
        if seen.count > self.rounds {
            return Next::Done;
        }
        let key = key(session.number as u8);
        let writes = !seen.count.is_multiple_of(3);
        self.next.insert(session.number, writes.then_some(seen.count));
        let command = if writes { Command::Set(key, seen.count.to_string()) } else { Command::Get(key) };
        // Mostly at once, so that a later command may overtake an earlier one if it can.
        let think = if self.random.chance(0.3) { self.random.below(300_000_000) } else { 0 };
        Next::Request { at: now + Span::from_nanos(think), request: Request::Command(command) }
    }

    fn invoked(&mut self, session: Session, ticket: Ticket, _: Instant) {
        self.asked.insert(ticket, self.next.get(&session.number).copied().flatten());
    }

    fn completed(&mut self, session: Session, ticket: Ticket, outcome: Outcome<Reply>, now: Instant) {
        let Some(asked) = self.asked.remove(&ticket) else { return };
        let Some(seen) = self.sessions.get_mut(&session.number) else { return };
        match (asked, outcome) {
            (Some(write), Outcome::Replied(Reply::Ok)) => seen.acknowledged = write,
            (None, Outcome::Replied(Reply::Text(text))) => {
                let value = text.and_then(|text| text.parse().ok()).unwrap_or(0);
                if value < seen.acknowledged {
                    let (number, last) = (session.number, seen.acknowledged);
                    self.wrong.push(format!("{now}: session {number} reads {value} behind {last}"));
                }
            }
            _ => {}
        }
    }

    fn fact(&mut self, _: ProcessId, _: &isochrone_core::Fact, _: Instant) {}
}

/// As for the others, with replies at commit.
pub fn tune_commit(placement: &mut Placement<Machine>, random: &mut Random) {
    tune(placement, random);
    placement.service.reply = At::Commit;
    placement.parameters.reply = At::Commit;
    // Sessions whose commands time out say nothing about order.
    placement.service.limit = Span::from_secs(20);
}

/// What broke: an oracle, or what a session saw.
pub fn broken(case: &Case<Family>, seed: u64) -> Option<String> {
    let (mut cluster, _) = case.cluster(seed);
    let mut own = Own::new(seed);
    let report = cluster.run(&mut own);
    if std::env::var_os("ISOCHRONE_TRACE").is_some() {
        eprintln!("{}", cluster.trace());
    }
    let violation = report.violations.first().map(ToString::to_string);
    violation.or_else(|| own.wrong.first().map(|text| format!("seed {seed}: {text}")))
}

#[test]
fn a_session_reads_its_writes_whatever_way_they_took() {
    // Whole nodes stay up: a client that crashes comes back as another, which knows of no earlier write.
    let set: FaultSet = "pause,partition,loss,reorder,clock,disk_slow,snapshot".parse().unwrap();
    for (replicas, seeds) in [(3, 30), (5, 10)] {
        let case = Case::new(replicas, set, tune_commit);
        let one = std::env::var("ISOCHRONE_SEED").ok().and_then(|text| text.parse::<u64>().ok());
        let seeds = one.map_or(0..seeds, |seed| seed..seed + 1);
        let wrong: Vec<String> = seeds.filter_map(|seed| broken(&case, seed)).collect();
        assert_eq!(wrong, [] as [&str; 0]);
    }
}
