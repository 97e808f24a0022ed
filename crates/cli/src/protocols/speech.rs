//! How a protocol of `replication` is spoken with, by trials and by nodes.

use isochrone_core::command::Response;
use isochrone_core::{NodeId, PartitionId, Random};
use isochrone_node::gateway;
use isochrone_node::protocols::{Administration, Registration};
use isochrone_replication::{Change, Family, Outcome, Placement, Refusal, Replicated, Request, Tuning as _};
use isochrone_sim::Admin;
use isochrone_store::Store;
use isochrone_workload::simulated::Answer;
use isochrone_workload::trial::Bridge;
use std::any::Any;

/// By trials.
pub(super) fn bridge<F: Family>() -> Bridge<Replicated<Store, F>> {
    Bridge {
        placement: Placement::of,
        request: Request::Command,
        answer: |outcome| match outcome {
            Outcome::Replied(response) => Answer::Replied(response),
            Outcome::Changed => Answer::Refused("a change is no command".to_owned()),
            Outcome::Refused(refusal) => Answer::Refused(refusal.to_string()),
            Outcome::Unknown => Answer::Unknown,
        },
        roles: &["replica", "client"],
        spare: |placement, node| placement.spares.push(node),
        membership: orders::<F>,
        plant: |placement, name| match placement.parameters.plant(name) {
            true => Ok(()),
            false => Err(F::Parameters::bugs()),
        },
    }
}

/// By nodes.
pub(super) fn registration<F: Family>() -> Registration<Replicated<Store, F>> {
    Registration {
        placement: Placement::of,
        request: Request::Command,
        outcome,
        administer: |what| Some(Box::new(change(what))),
        administered,
    }
}

/// One change of one partition, drawn; every replica is asked, and the one that leads makes it.
fn orders<F: Family>(placement: &Placement<Store, F>, random: &mut Random) -> Vec<Admin> {
    let nodes: Vec<NodeId> = placement.replicas.iter().chain(&placement.spares).copied().collect();
    let partition = match placement.partitions {
        1 => PartitionId(0),
        // At most 1,024.
        partitions => PartitionId(random.below(u64::from(partitions)) as u16),
    };
    let member = nodes[random.below(placement.replicas.len() as u64) as usize];
    let change = match (random.below(4), placement.spares.first()) {
        (0 | 1, Some(&spare)) => Change::Add(spare),
        // A group of one or two would take the meaning from all later faults.
        (2, _) if placement.replicas.len() > 3 || random.chance(0.5) => Change::Remove(member),
        _ => Change::Lead(member),
    };
    nodes
        .into_iter()
        .map(|node| Admin::Request { process: placement.replica(partition, node), request: Box::new(change) })
        .collect()
}

/// What a client role of `replication` answers, for gateways.
fn outcome(outcome: Outcome<Response>) -> gateway::Outcome {
    match outcome {
        Outcome::Replied(response) => gateway::Outcome::Done(response),
        Outcome::Refused(refusal) => gateway::Outcome::Refused(refusal.to_string()),
        // A change is never the answer to a command; nobody can say then what became of it.
        Outcome::Changed | Outcome::Unknown => {
            gateway::Outcome::Unknown("no answer in time; the command may or may not take effect".to_owned())
        }
    }
}

fn change(what: &Administration) -> Change {
    match what {
        Administration::MoveLeader(node) => Change::Lead(*node),
        Administration::StepDown => Change::Resign,
        Administration::AddReplica(node) => Change::Add(*node),
        Administration::RemoveReplica(node) => Change::Remove(*node),
    }
}

/// What a replica of `replication` answers to a change.
fn administered(outcome: Box<dyn Any + Send>) -> Result<String, String> {
    match outcome.downcast::<Result<(), Refusal>>().map(|outcome| *outcome) {
        Ok(Ok(())) => Ok("done".to_owned()),
        Ok(Err(refusal)) => Err(refusal.to_string()),
        Err(_) => Err("the replica has answered something else".to_owned()),
    }
}
