//! The protocols this program can run, a line each.

use isochrone_core::command::Response;
use isochrone_core::deployment::Known;
use isochrone_node::gateway;
use isochrone_node::protocols::{Administration, Protocols, Registration};
use isochrone_replication::multipaxos::{self, MultiPaxos};
use isochrone_replication::{Change, Outcome, Refusal, Request};
use isochrone_store::Store;
use std::any::Any;

/// What a deployment file may name.
pub(crate) fn known() -> Known {
    Known::names(&["multipaxos"])
}

/// How nodes run them.
pub(crate) fn served() -> Protocols {
    let mut protocols = Protocols::default();
    protocols.register::<MultiPaxos<Store>>(Registration {
        placement: multipaxos::Placement::of,
        request: Request::Command,
        outcome,
        administer: |what| Some(Box::new(change(what))),
        administered,
    });
    protocols
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
