//! How a protocol of `transactions` is spoken with in commands, by trials and by nodes.

use super::speech;
use isochrone_core::Random;
use isochrone_node::gateway;
use isochrone_node::protocols::{Administration, Registration};
use isochrone_replication::Change;
use isochrone_sim::Admin;
use isochrone_transactions::commands::{Answer, Ask, Served};
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
        outcome: |answer| match answer {
            Answer::Replied(response) => gateway::Outcome::Done(response),
            Answer::Refused(refusal) => gateway::Outcome::Refused(refusal.to_string()),
            // A transaction is never the answer to a command; nobody can say then what became of it.
            Answer::Unknown | Answer::Transaction(_) => gateway::Outcome::Unknown(speech::UNKNOWN.to_owned()),
        },
        administer: administer::<F>,
        administered: speech::administered,
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
