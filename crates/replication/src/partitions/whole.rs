//! Commands on all keys: each partition is asked for its share, and the answers are put together.

use super::Divided;
use crate::request::{Outcome, Refusal, Request};
use isochrone_core::{Effects, PartitionId, Process, StateMachine, Ticket};
use std::collections::BTreeMap;

/// A command on all keys that is not answered.
#[derive(Clone, Hash)]
pub(super) struct Whole<X, R> {
    command: X,
    /// Shares that are not answered, by their numbers.
    open: BTreeMap<u64, PartitionId>,
    found: BTreeMap<PartitionId, R>,
}

impl<S, C> Divided<S, C>
where
    S: StateMachine,
    C: Process<Request = Request<S::Command>, Outcome = Outcome<S::Reply>>,
{
    /// Asks each partition for its share.
    pub(super) fn ask_all(&mut self, ticket: Ticket, command: S::Command, effects: &mut Effects<Self>) {
        if self.wholes.len() >= self.service.outstanding {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::Overloaded));
        }
        // A deployment has at most 1,024 partitions.
        let of = self.parts.len() as u16;
        let share = |at| S::share(&command, at, of).map(|share| (at, share));
        let shares: Vec<_> = (0..of).map(PartitionId).filter_map(share).collect();
        if shares.is_empty() {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::Whole));
        }
        let numbered: Vec<_> = (self.next..).zip(shares).collect();
        self.next += numbered.len() as u64;
        let open: BTreeMap<_, _> = numbered.iter().map(|(number, (at, _))| (*number, *at)).collect();
        self.shares.extend(open.keys().map(|number| (*number, ticket)));
        self.wholes.insert(ticket, Whole { command, open, found: BTreeMap::new() });
        for (number, (at, share)) in numbered {
            let request = Request::Command(share);
            self.with(at, effects, |client, effects| client.request(Ticket(number), request, effects));
        }
    }

    /// A share is answered; the last one answers the whole, and so does any that is no reply.
    pub(super) fn on_share(
        &mut self,
        number: u64,
        ticket: Ticket,
        outcome: Outcome<S::Reply>,
        effects: &mut Effects<Self>,
    ) {
        let Some(whole) = self.wholes.get_mut(&ticket) else { return };
        let Some(at) = whole.open.remove(&number) else { return };
        match outcome {
            Outcome::Replied(reply) => {
                whole.found.insert(at, reply);
                if !whole.open.is_empty() {
                    return;
                }
                let Some(whole) = self.wholes.remove(&ticket) else { return };
                let of = self.parts.len() as u16;
                let reply = S::gather(&whole.command, of, whole.found.into_iter().collect());
                effects.complete(ticket, reply.map_or(Outcome::Unknown, Outcome::Replied));
            }
            outcome => {
                self.give_up(ticket, effects);
                effects.complete(ticket, outcome);
            }
        }
    }

    /// Nobody waits for the rest any more.
    pub(super) fn give_up(&mut self, ticket: Ticket, effects: &mut Effects<Self>) {
        let Some(whole) = self.wholes.remove(&ticket) else { return };
        for (number, at) in whole.open {
            self.shares.remove(&number);
            self.with(at, effects, |client, effects| client.cancel(Ticket(number), effects));
        }
    }
}
