//! How a protocol of `transactions` is spoken with in commands, by trials and by nodes.

use super::speech;
use isochrone_core::{Blob, Random, Stamp};
use isochrone_node::gateway::{self, Abort, Step, Unfit};
use isochrone_node::protocols::{Administration, Registration};
use isochrone_replication::Change;
use isochrone_sim::Admin;
use isochrone_transactions::commands::{Answer, Ask, Served, values};
use isochrone_transactions::request::{Outcome, Read, Reason, Refusal, Request, Update};
use isochrone_transactions::{Family, Placement, Tuning as _};
use isochrone_workload::simulated;
use isochrone_workload::trial::Bridge;
use std::any::Any;

/// By trials.
pub(super) fn bridge<F: Family>() -> Bridge<Served<F>> {
    Bridge {
        placement: Placement::of,
        request: Ask::Command,
        answer: |answer| match answer {
            Answer::Replied(response) => simulated::Answer::Replied(response),
            Answer::Refused(refusal) => simulated::Answer::Refused(refusal.to_string()),
            Answer::Unknown => simulated::Answer::Unknown,
            Answer::Transaction(_) => simulated::Answer::Refused("a transaction is no command".to_owned()),
        },
        roles: &["server", "client"],
        // Who replicates a partition is fixed for the life of a keyspace; who leads it is not.
        spare: |_, _| {},
        membership: hand_over::<F>,
        moves: |_, _| Vec::new(),
        plant: |placement, name| match placement.parameters.plant(name) {
            true => Ok(()),
            false => Err(F::Parameters::bugs()),
        },
    }
}

/// By nodes.
pub(super) fn registration<F: Family>() -> Registration<Served<F>> {
    Registration {
        placement: Placement::of,
        request: Ask::Command,
        transaction: Some(|transaction, stamp| Ask::Transaction(request(transaction, stamp))),
        outcome: |answer, stamp| match answer {
            Answer::Replied(response) => gateway::Outcome::Done(response),
            Answer::Refused(refusal) => gateway::Outcome::Refused(refusal.to_string()),
            Answer::Unknown => gateway::Outcome::Unknown(speech::UNKNOWN.to_owned()),
            Answer::Transaction(outcome) => gateway::Outcome::Transaction(Box::new(step(outcome, stamp))),
        },
        administer: administer::<F>,
        administered: speech::administered,
    }
}

/// A transaction of a gateway's client, whose values become entries as commands understand them.
fn request(transaction: gateway::Transaction, stamp: Stamp) -> Request {
    match transaction {
        gateway::Transaction::Begin { reads, writes } => Request::Begin { reads, writes },
        gateway::Transaction::Commit { txn, updates } => {
            let entry = |(key, value): (Blob, Option<Blob>)| {
                let value = value.map(|value| values::encode(&key, value, stamp));
                Update { key, value }
            };
            Request::Commit { txn, updates: updates.into_iter().map(entry).collect() }
        }
        gateway::Transaction::Abort { txn } => Request::Abort { txn },
    }
}

/// How it goes on, for that client.
fn step(outcome: Outcome, stamp: Stamp) -> Step {
    let plain = |reads: Vec<Read>| {
        let read = |Read { key, value, version }: Read| {
            let value = value.map_or(Ok(None), |entry| values::decode(&key, &entry, stamp));
            gateway::Read { value: value.map_err(|error| error.to_string()), key, version: version.0 }
        };
        reads.into_iter().map(read).collect()
    };
    match outcome {
        Outcome::Begun { txn, reads } => Step::Begun { txn, reads: plain(reads) },
        Outcome::Snapshot { reads, at } => Step::Snapshot { reads: plain(reads), at: at.0 },
        Outcome::Committed { at } => Step::Committed(at.0),
        Outcome::Aborted(reason) => Step::Aborted(match reason {
            Reason::Conflict => Abort::Conflict,
            Reason::StaleRead => Abort::StaleRead,
            Reason::Client => Abort::Client,
            Reason::HeartbeatLost => Abort::HeartbeatLost,
            Reason::Presumed => Abort::Presumed,
            Reason::Unavailable => Abort::Unavailable,
            Reason::OutOfTime => Abort::OutOfTime,
        }),
        Outcome::Refused(refusal) => {
            let unfit = match refusal {
                Refusal::NotOpen(_) => Unfit::NotOpen,
                Refusal::Undeclared(_) | Refusal::Twice(_) | Refusal::Empty => Unfit::Wrong,
                Refusal::TooLarge { .. } => Unfit::TooLarge,
                Refusal::Overloaded(_) => Unfit::Overloaded,
            };
            Step::Refused(unfit, refusal.to_string())
        }
        Outcome::Unknown => Step::Unknown,
    }
}

/// A replica of some partition is told that another, or it, is to lead.
fn hand_over<F: Family>(placement: &Placement<F>, random: &mut Random) -> Vec<Admin> {
    if !F::LED {
        return Vec::new();
    }
    let groups = &placement.map.groups;
    let group = &groups[random.below(groups.len() as u64) as usize];
    let next = group.members[random.below(group.members.len() as u64) as usize].process.node;
    let change = if random.chance(0.5) { Change::Resign } else { Change::Lead(next) };
    let order = |process| Admin::Request { process, request: Box::new(change) };
    group.members.iter().map(|member| order(member.process)).collect()
}

/// Leaders can be moved; nothing else of a keyspace of transactions changes while it runs.
fn administer<F: Family>(what: &Administration) -> Option<Box<dyn Any + Send>> {
    let change = match what {
        Administration::MoveLeader(node) => Change::Lead(*node),
        Administration::StepDown => Change::Resign,
        _ => return None,
    };
    F::LED.then(|| Box::new(change) as Box<dyn Any + Send>)
}
