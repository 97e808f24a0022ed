//! Closed loops of reads and writes on a few keys, their history, and changes of the members.

use crate::machine::{Command, Machine, Reply, key};
use isochrone_check::{Budget, History, ModelName, Operation, Outcome as Ended, Value, Verdict};
use isochrone_core::{Fact, Instant, NodeId, ProcessId, Random, Span, Ticket};
use isochrone_replication::{Change, Family, Outcome, Refusal, Replicated, Request};
use isochrone_sim::{Admin, Driver, Next, Session};
use std::collections::BTreeMap;
use std::sync::Arc;

pub struct Loops {
    /// Operations of each session.
    pub rounds: u64,
    /// Of a hundred operations, how many read.
    pub reads: u64,
    pub keys: u64,
    /// Whether all writes set, half the sessions only read and the others only write.
    pub sets: bool,
    /// Whether half the writes touch two keys or have an effect only under a condition.
    pub mixed: bool,
    /// Whether nothing is kept for the checker.
    pub quiet: bool,
    /// The longest pause between operations.
    pub think: Span,
    pub random: Random,
    /// Replica processes of members and spares, for changes of the members.
    pub replicas: Vec<ProcessId>,
    pub members: Vec<NodeId>,
    /// Who is to lead, if that is the only change wanted.
    pub heir: Option<NodeId>,
    pub history: Vec<Operation>,
    pub counted: BTreeMap<&'static str, u64>,
    pub latencies: Vec<(ProcessId, Span)>,
    unknown: BTreeMap<u32, u32>,
    open: BTreeMap<Ticket, usize>,
    asked: BTreeMap<u32, (u64, Option<Command>)>,
}

impl Loops {
    pub fn new(seed: u64, rounds: u64) -> Loops {
        Loops {
            rounds,
            reads: 40,
            keys: 8,
            sets: false,
            mixed: false,
            quiet: false,
            think: Span::from_millis(200),
            random: Random::seeded(seed ^ 0x6472_6976),
            replicas: Vec::new(),
            members: Vec::new(),
            heir: None,
            history: Vec::new(),
            counted: BTreeMap::new(),
            latencies: Vec::new(),
            unknown: BTreeMap::new(),
            open: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// The verdict on what the clients saw; `None` if it is linearizable.
    pub fn violation(&self) -> Option<String> {
        let history = History::new(self.history.clone());
        let report = isochrone_check::check_named(
            &history,
            ModelName::Kv,
            &Budget { steps: 50_000_000, ..Budget::default() },
        );
        match report.map(|report| report.verdict) {
            Ok(Verdict::Linearizable) => None,
            Ok(verdict) => Some(format!("{verdict:?}")),
            Err(error) => Some(error.to_string()),
        }
    }
}

impl<F: Family> Driver<Replicated<Machine, F>> for Loops {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request<Command>> {
        let chosen = key(self.random.below(self.keys) as u8);
        let (mut reads, writes) = (self.random.below(100) < self.reads, self.random.chance(0.3));
        if self.sets {
            // A writer cut off waits; a reader must not have to.
            reads = session.number.is_multiple_of(2);
        }
        let think = Span::from_nanos(self.random.below(self.think.as_nanos() + 1));
        let (count, asked) = self.asked.entry(session.number).or_default();
        // Whoever heard nothing twice stops: each such write doubles the work of the checker.
        if *count >= self.rounds || self.unknown.get(&session.number).is_some_and(|times| *times > 1) {
            return Next::Done;
        }
        *count += 1;
        let text = format!("{}.{count} ", session.number);
        let mixed = self.mixed && !reads && self.random.chance(0.5);
        let command = match (reads, writes) {
            _ if mixed => match self.random.below(4) {
                0 | 1 => {
                    // Neighbours, so that a history falls into small parts.
                    let other = key((chosen[0] ^ 1) % self.keys as u8);
                    Command::Copy(chosen, other)
                }
                2 => Command::Claim(chosen, text),
                _ => Command::Delete(chosen),
            },
            (true, _) => Command::Get(chosen),
            (false, writes) if writes || self.sets => Command::Set(chosen, text),
            (false, _) => Command::Append(chosen, text),
        };
        *asked = Some(command.clone());
        Next::Request { at: now + think, request: Request::Command(command) }
    }

    fn invoked(&mut self, session: Session, ticket: Ticket, now: Instant) {
        if self.quiet {
            return;
        }
        let Some((count, Some(command))) = self.asked.get(&session.number).cloned() else { return };
        let (keys, op, args) = match command {
            Command::Get(key) => (vec![key], "get", vec![]),
            Command::Set(key, text) => (vec![key], "set", vec![text]),
            Command::Append(key, text) => (vec![key], "append", vec![text]),
            Command::Copy(from, to) => (vec![from, to], "copy", vec!["replace".to_owned()]),
            Command::Claim(key, text) => (vec![key], "setnx", vec![text]),
            Command::Delete(key) => (vec![key], "del", vec![]),
        };
        self.open.insert(ticket, self.history.len());
        self.history.push(Operation {
            client: session.client.to_u64(),
            session: u64::from(session.number),
            sequence: count,
            keys: keys.iter().map(|key| Arc::from(format!("k{}", key[0]))).collect(),
            op: Arc::from(op),
            args,
            stamp: None,
            invoked: now.as_nanos(),
            returned: None,
            outcome: Ended::Unknown,
            value: None,
        });
    }

    fn completed(&mut self, session: Session, ticket: Ticket, outcome: Outcome<Reply>, now: Instant) {
        let Some(index) = self.open.remove(&ticket) else { return };
        let operation = &mut self.history[index];
        match outcome {
            Outcome::Replied(reply) => {
                operation.outcome = Ended::Ok;
                operation.returned = Some(now.as_nanos());
                operation.value = Some(match reply {
                    Reply::Text(None) => Value::Nil,
                    Reply::Text(Some(text)) => Value::Text(text),
                    Reply::Ok => Value::Text("OK".to_owned()),
                    Reply::Length(length) => Value::Integer(length as i64),
                    Reply::Did(did) => Value::Integer(i64::from(did)),
                });
                let invoked = Instant::from_nanos(operation.invoked);
                self.latencies.push((session.client, now.since(invoked)));
            }
            Outcome::Refused(refusal) => {
                operation.outcome = Ended::Failed;
                if refusal == Refusal::NoLeader {
                    // What more is lost than may be, nobody answers; nobody is asked for ever either.
                    *self.unknown.entry(session.number).or_default() += 1;
                }
            }
            Outcome::Unknown => *self.unknown.entry(session.number).or_default() += 1,
            Outcome::Changed | Outcome::Moved { .. } | Outcome::Served(_) => {}
        }
    }

    fn fact(&mut self, _: ProcessId, fact: &Fact, _: Instant) {
        if let Fact::Counted(name) = fact {
            *self.counted.entry(name).or_default() += 1;
        }
    }

    fn admin(&mut self, _: Instant, random: &mut Random) -> Vec<Admin> {
        if self.replicas.is_empty() {
            return Vec::new();
        }
        if let Some(heir) = self.heir {
            let change = Change::Lead(heir);
            return vec![Admin::Request { process: self.replicas[0], request: Box::new(change) }];
        }
        let mut any = || self.replicas[random.below(self.replicas.len() as u64) as usize];
        let (process, node) = (any(), any().node);
        // The group has its first size or one more, so that it bears as many faults as at first.
        let more = self.members.len() < self.replicas.len();
        let change = match random.below(4) {
            0 => Change::Lead(node),
            1 => {
                // Only who leads has something to give up.
                let resign = |process: &ProcessId| Admin::Request {
                    process: *process,
                    request: Box::new(Change::Resign),
                };
                return self.replicas.iter().map(resign).collect();
            }
            _ if more => {
                let new: Vec<NodeId> = self
                    .replicas
                    .iter()
                    .map(|r| r.node)
                    .filter(|node| !self.members.contains(node))
                    .collect();
                let node = new[random.below(new.len() as u64) as usize];
                self.members.push(node);
                Change::Add(node)
            }
            _ => {
                let at = random.below(self.members.len() as u64) as usize;
                Change::Remove(self.members.remove(at))
            }
        };
        vec![Admin::Request { process, request: Box::new(change) }]
    }
}
