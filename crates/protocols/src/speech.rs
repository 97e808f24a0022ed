//! How a protocol of `replication` is spoken with, by trials and by nodes.

use isochrone_core::command::{Command, Response};
use isochrone_core::migration::Stretch;
use isochrone_core::{NodeId, PartitionId, Random};
use isochrone_node::gateway::{self, Durability};
use isochrone_node::protocols::{Administration, Extent, Registration};
use isochrone_replication::order::Order;
use isochrone_replication::{
    Change, Family, OrderOf, Outcome, Placement, Refusal, Replicated, Request, Tuning as _, partitions,
};
use isochrone_sim::Admin;
use isochrone_store::Store;
use isochrone_workload::simulated::Answer;
use isochrone_workload::trial::Bridge;
use std::any::Any;

/// Why nobody knows the outcome of a command; whoever tells a client says what that means.
pub(crate) const UNKNOWN: &str = "no answer in time; whoever was asked may have gone";

/// By trials.
pub(crate) fn bridge<F: Family>() -> Bridge<Replicated<Store, F>> {
    Bridge {
        placement: Placement::of,
        request: Request::Command,
        answer: |outcome| match outcome {
            Outcome::Replied(response) => Answer::Replied(response),
            Outcome::Changed | Outcome::Moved { .. } | Outcome::Served(_) => {
                Answer::Refused("a change is no command".to_owned())
            }
            Outcome::Refused(refusal) => Answer::Refused(refusal.to_string()),
            Outcome::Unknown => Answer::Unknown,
        },
        roles: &["replica", "client"],
        spare: Placement::add_spare,
        shrinks: F::SYNCS_ALL,
        membership: orders::<F>,
        moves: moves::<F>,
        plant: |placement, name| {
            placement.bug = partitions::Bug::named(name);
            if placement.bug.is_some() || placement.parameters.plant(name) {
                return Ok(());
            }
            let moving = partitions::Bug::ALL.map(partitions::Bug::name);
            Err(F::Parameters::bugs().into_iter().chain(moving).collect())
        },
    }
}

/// By nodes.
pub(crate) fn registration<F: Family>() -> Registration<Replicated<Store, F>> {
    Registration {
        placement: Placement::of,
        request: Request::Command,
        transaction: None,
        durability: match (<OrderOf<F, Store> as Order>::SPECULATES, F::SYNCS_ALL) {
            (false, _) => Durability::Most,
            (true, false) => Durability::MostSoon,
            (true, true) => Durability::AllSoon,
        },
        led: F::LED,
        outcome,
        administer: request,
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
    // Who is a member by now is not known here: who is none is refused.
    let member = nodes[random.below(nodes.len() as u64) as usize];
    let change = match (random.below(6), placement.spares.first()) {
        (0 | 1, Some(&spare)) => Change::Add(spare),
        (3, _) => Change::Add(member),
        // A group of one or two would take the meaning from all later faults.
        (2, _) if placement.replicas.len() > 3 || random.chance(0.5) => Change::Remove(member),
        (4, _) => Change::Resign,
        _ => Change::Lead(member),
    };
    nodes
        .into_iter()
        .map(|node| Admin::Request { process: placement.replica(partition, node), request: Box::new(change) })
        .collect()
}

/// Keys that are moved, drawn: any client may be told so, at any time, and several at once.
fn moves<F: Family>(placement: &Placement<Store, F>, random: &mut Random) -> Vec<Admin> {
    if placement.partitions < 2 {
        return Vec::new();
    }
    let partitions = u64::from(placement.partitions);
    let from = random.below(partitions);
    let to = (from + 1 + random.below(partitions - 1)) % partitions;
    let [first, second] = [random.below(u64::MAX), random.below(u64::MAX)];
    let stretch = match random.chance(0.3) {
        true => Stretch::ALL,
        false => Stretch { first: first.min(second), last: first.max(second) },
    };
    let [from, to] = [from, to].map(|partition| PartitionId(partition as u16));
    let (node, _) = &placement.clients[random.below(placement.clients.len() as u64) as usize];
    let request: Request<Command> = Request::Move { stretch, from, to };
    vec![Admin::Request { process: placement.client(*node), request: Box::new(request) }]
}

/// What a client role of `replication` answers, for gateways.
fn outcome(outcome: Outcome<Response>) -> gateway::Outcome {
    match outcome {
        Outcome::Replied(response) => gateway::Outcome::Done(response),
        Outcome::Refused(refusal) => gateway::Outcome::Refused(refusal.to_string()),
        // A change is never the answer to a command; nobody can say then what became of it.
        Outcome::Moved { keys, bytes, stretches } => gateway::Outcome::Ordered(format!(
            "{{\"keys\": {keys}, \"bytes\": {bytes}, \"parts\": {stretches}}}"
        )),
        Outcome::Served(served) => gateway::Outcome::Ordered(ranges(&served)),
        Outcome::Changed | Outcome::Unknown => gateway::Outcome::Unknown(UNKNOWN.to_owned()),
    }
}

/// Which partition serves which places, as JSON: the places in hexadecimal.
fn ranges(served: &[(Stretch, PartitionId, u64)]) -> String {
    let line = |(stretch, partition, version): &(Stretch, PartitionId, u64)| {
        let Stretch { first, last } = stretch;
        let partition = partition.0;
        format!(
            "  {{\"first\": \"{first:016x}\", \"last\": \"{last:016x}\", \"partition\": {partition}, \
             \"version\": {version}}}"
        )
    };
    format!("[\n{}\n]", served.iter().map(line).collect::<Vec<_>>().join(",\n"))
}

/// The request that does this: of a replica, or of a client. Keys are divided by their hashes here.
fn request(what: &Administration) -> Option<Box<dyn Any + Send>> {
    let change = match what {
        Administration::MoveLeader(node) => Change::Lead(*node),
        Administration::StepDown => Change::Resign,
        Administration::AddReplica(node) => Change::Add(*node),
        Administration::RemoveReplica(node) => Change::Remove(*node),
        Administration::MoveRange { extent, from, to } => {
            let stretch = match extent {
                Extent::All => Stretch::ALL,
                Extent::Ring(stretch) => *stretch,
                Extent::Keys { .. } => return None,
            };
            let (from, to) = (*from, *to);
            return Some(Box::new(Request::<Command>::Move { stretch, from, to }));
        }
        Administration::Ranges => return Some(Box::new(Request::<Command>::Survey)),
        Administration::Retire => return None,
    };
    Some(Box::new(change))
}

/// What a replica of `replication` answers to a change.
pub(crate) fn administered(outcome: Box<dyn Any + Send>) -> Result<String, String> {
    match outcome.downcast::<Result<(), Refusal>>().map(|outcome| *outcome) {
        Ok(Ok(())) => Ok("done".to_owned()),
        Ok(Err(refusal)) => Err(refusal.to_string()),
        Err(_) => Err("the replica has answered something else".to_owned()),
    }
}
