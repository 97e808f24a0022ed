//! How a protocol of `transactions` is spoken with in commands, by trials and by nodes.

use crate::speech;
use isochrone_core::{Blob, Stamp};
use isochrone_node::gateway::{self, Abort, Step, Unfit};
use isochrone_node::protocols::{Administration, Extent, Registration};
use isochrone_replication::Change;
use isochrone_transactions::commands::{Answer, Ask, Served, values};
use isochrone_transactions::directory::{Known, Place, Reach, Route};
use isochrone_transactions::request::{Moved, Outcome, Read, Reason, Refusal, Request, Update};
use isochrone_transactions::{Family, Placement};
use isochrone_workload::simulated;
use isochrone_workload::transactions::{draw_change, draw_move};
use isochrone_workload::trial::Bridge;
use std::any::Any;

/// By trials.
pub(crate) fn bridge<F: Family>() -> Bridge<Served<F>> {
    Bridge {
        placement: |deployment, keyspace| Ok(Placement::of(deployment, keyspace)?.movable()),
        request: Ask::Command,
        answer: |answer| match answer {
            Answer::Replied(response) => simulated::Answer::Replied(response),
            Answer::Refused(refusal) => simulated::Answer::Refused(refusal.to_string()),
            Answer::Unknown => simulated::Answer::Unknown,
            Answer::Transaction(_) => simulated::Answer::Refused("a transaction is no command".to_owned()),
        },
        roles: &["server", "client"],
        shrinks: false,
        spare: |placement, node| {
            if F::LED {
                placement.add_spare(node);
            }
        },
        membership: draw_change,
        moves: |placement, random| draw_move(placement, random, Ask::Transaction),
        plant: Placement::plant,
    }
}

/// By nodes.
pub(crate) fn registration<F: Family>() -> Registration<Served<F>> {
    Registration {
        placement: |deployment, keyspace| Ok(Placement::of(deployment, keyspace)?.movable()),
        durability: gateway::Durability::Most,
        led: F::LED,
        request: Ask::Command,
        transaction: Some(|transaction, stamp| Ask::Transaction(request(transaction, stamp))),
        outcome: |answer| match answer {
            Answer::Replied(response) => gateway::Outcome::Done(response),
            Answer::Refused(refusal) => gateway::Outcome::Refused(refusal.to_string()),
            Answer::Unknown => gateway::Outcome::Unknown(speech::UNKNOWN.to_owned()),
            Answer::Transaction(Outcome::Refused(Refusal::Directory(refusal))) => {
                gateway::Outcome::Refused(refusal.to_string())
            }
            Answer::Transaction(Outcome::Moved(Moved { keys, bytes })) => {
                gateway::Outcome::Ordered(format!("{{\"keys\": {keys}, \"bytes\": {bytes}}}"))
            }
            Answer::Transaction(Outcome::Served(known)) => gateway::Outcome::Ordered(ranges(&known)),
            Answer::Transaction(outcome) => gateway::Outcome::Transaction(Box::new(step(outcome))),
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
fn step(outcome: Outcome) -> Step {
    let plain = |reads: Vec<Read>| {
        let read = |Read { key, value, version }: Read| {
            let value = value.map_or(Ok(None), |entry| values::decode(&key, &entry));
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
                // No transaction asks for what these refuse.
                Refusal::Directory(_) => Unfit::Wrong,
            };
            Step::Refused(unfit, refusal.to_string())
        }
        // The others answer no transaction; nobody can say then what became of it.
        Outcome::Unknown | Outcome::Moved(_) | Outcome::Served(_) | Outcome::Listed { .. } => Step::Unknown,
    }
}

/// Which partition holds which keys, as JSON: places in hexadecimal, or keys.
fn ranges(known: &[Known]) -> String {
    let place = |place: &Place| match place {
        Place::Ring(place) => format!("\"{place:016x}\""),
        Place::Key(key) => serde_json::Value::from(String::from_utf8_lossy(key)).to_string(),
    };
    let line = |Known { reach, version, route }: &Known| {
        let (first, last) = (
            place(&reach.first),
            match &reach.end {
                Some(Place::Ring(end)) => place(&Place::Ring(end - 1)),
                Some(key) => place(key),
                None if matches!(reach.first, Place::Ring(_)) => place(&Place::Ring(u64::MAX)),
                None => "null".to_owned(),
            },
        );
        let names = match reach.first {
            Place::Ring(_) => ["first", "last"],
            Place::Key(_) => ["first_key", "end_key"],
        };
        let at = match route {
            Route::At(at) => format!("\"partition\": {}", at.0),
            Route::Moving { from, to } => format!("\"partition\": {}, \"moving_to\": {}", from.0, to.0),
        };
        format!("  {{\"{}\": {first}, \"{}\": {last}, {at}, \"version\": {version}}}", names[0], names[1])
    };
    format!("[\n{}\n]", known.iter().map(line).collect::<Vec<_>>().join(",\n"))
}

/// Where partitions have leaders.
fn administer<F: Family>(what: &Administration) -> Option<Box<dyn Any + Send>> {
    let change = match what {
        Administration::MoveLeader(node) => Change::Lead(*node),
        Administration::StepDown => Change::Resign,
        Administration::MoveRange { extent, from, to } => {
            let reach = match extent {
                Extent::All => None,
                Extent::Ring(stretch) => Some(Reach::ring(*stretch)),
                Extent::Keys { first, end } => Some(Reach::keys(first.clone(), end.clone())),
            };
            let (from, to) = (*from, *to);
            return Some(Box::new(Ask::Transaction(Request::Move { reach, from, to })));
        }
        Administration::Ranges => return Some(Box::new(Ask::Transaction(Request::Survey))),
        Administration::Retire => return Some(Box::new(Ask::Retire)),
        Administration::AddReplica(node) => Change::Add(*node),
        Administration::RemoveReplica(node) => Change::Remove(*node),
    };
    F::LED.then(|| Box::new(change) as Box<dyn Any + Send>)
}
