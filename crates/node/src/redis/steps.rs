//! Scripts that take several operations, one after the other: which is next follows from the answers so far.

use super::blocking::Heard;
use super::complaint::Complaint;
use super::connection::{self, Sink, State};
use super::emptying::Emptying;
use super::looking::Looking;
use super::shape::Shape;
use crate::gateway::{Ask, Context, Outcome, Request};
use isochrone_core::KeyspaceId;
use isochrone_core::command::{Command, Operation};

/// A script that takes several operations.
#[derive(Debug)]
pub(crate) enum Script {
    Emptying(Emptying),
    Looking(Looking),
}

/// What comes after an answer.
pub(crate) enum Next {
    Asks(Operation),
    Ends(Outcome),
}

/// A script that is under way.
#[derive(Debug)]
pub(crate) struct Steps {
    /// Its place in the order of replies.
    id: u64,
    keyspace: KeyspaceId,
    script: Box<Script>,
}

/// Takes the script up: nothing more of this connection is, before it has ended.
pub(crate) fn begin(
    state: &mut State,
    operation: Operation,
    script: Box<Script>,
    context: &mut Context<'_>,
    sink: &mut Sink<'_>,
) {
    let apart = context.keyspaces.get(state.keyspace).is_some_and(|keyspace| keyspace.leaders.len() > 1);
    if apart && matches!(*script, Script::Emptying(_)) {
        let text = "CROSSSLOT the keys of the jobs may be in other partitions than their queue";
        return state.complain(&Complaint::text(text), context, sink.out);
    }
    let Some((id, keyspace)) = state.ask_for(operation, Shape::Plain, context, sink) else { return };
    state.steps = Some(Steps { id, keyspace, script });
}

impl Steps {
    /// Its place in the order of replies.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The answer to a step.
    pub(crate) fn heard(
        &mut self,
        outcome: Outcome,
        (user, selected): (&str, usize),
        context: &mut Context<'_>,
        requests: &mut Vec<Request>,
    ) -> Heard {
        let response = match outcome {
            Outcome::Done(response) if !response.is_error() => response,
            // That is said where nothing was done.
            Outcome::Refused(text) if self.has_done_something() => {
                return Heard::Ends(Outcome::Unknown(text));
            }
            outcome => return Heard::Ends(outcome),
        };
        let next = match &mut *self.script {
            Script::Emptying(emptying) => {
                emptying.heard(response, &|key| context.hub.users.may(user, "del", key))
            }
            Script::Looking(looking) => looking.heard(response, &mut connection::given(selected, context)),
        };
        match next {
            Next::Asks(operation) => {
                let command = Command { in_order: true, ..Command::new(context.stamp, operation) };
                let ask = Ask::Execute { keyspace: self.keyspace, command };
                requests.push(Request { id: self.id, ask });
                Heard::Waits
            }
            Next::Ends(outcome) => Heard::Ends(outcome),
        }
    }

    fn has_done_something(&self) -> bool {
        match &*self.script {
            Script::Emptying(emptying) => emptying.has_popped(),
            // It looks, and does all that it does in its last step.
            Script::Looking(_) => false,
        }
    }
}
