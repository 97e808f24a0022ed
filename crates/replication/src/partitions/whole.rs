//! What all partitions are asked: each for its share of a command on all keys, or which keys it serves. The answers are
//! put together.

use super::Divided;
use crate::request::{Outcome, Refusal, Request};
use isochrone_core::migration::{Step, Told};
use isochrone_core::{Effects, PartitionId, Process, StateMachine, Ticket};
use std::collections::BTreeMap;

/// What all partitions are asked and have not answered.
#[derive(Clone, Hash)]
pub(super) struct Whole<X, R> {
    wish: Wish<X>,
    /// Shares that are not answered, by their numbers.
    open: BTreeMap<u64, PartitionId>,
    found: BTreeMap<PartitionId, R>,
}

#[derive(Clone, Hash)]
enum Wish<X> {
    /// A command on all keys.
    Command(X),
    /// Where all keys are.
    Survey,
}

impl<S, C> Divided<S, C>
where
    S: StateMachine,
    C: Process<Request = Request<S::Command>, Outcome = Outcome<S::Reply>>,
{
    /// All partitions.
    pub(super) fn all(&self) -> impl Iterator<Item = PartitionId> + use<S, C> {
        // A deployment has at most 1,024 partitions.
        (0..self.parts.len() as u16).map(PartitionId)
    }

    /// Asks each partition for its share.
    pub(super) fn ask_all(&mut self, ticket: Ticket, command: S::Command, effects: &mut Effects<Self>) {
        let of = self.parts.len() as u16;
        let share = |at| S::share(&command, at, of).map(|share| (at, share));
        let shares: Vec<_> = self.all().filter_map(share).collect();
        if shares.is_empty() {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::Whole));
        }
        self.spread(ticket, Wish::Command(command), shares, effects);
    }

    /// Asks all partitions what they serve.
    pub(super) fn survey(&mut self, ticket: Ticket, effects: &mut Effects<Self>) {
        let stamp = effects.stamp();
        let step = |at| S::step(Step::Survey { ring: self.routes.ring(at) }, stamp).map(|step| (at, step));
        match self.all().map(step).collect() {
            Some(shares) => self.spread(ticket, Wish::Survey, shares, effects),
            None => effects.complete_ahead(ticket, Outcome::Refused(Refusal::Unmovable)),
        }
    }

    fn spread(
        &mut self,
        ticket: Ticket,
        wish: Wish<S::Command>,
        shares: Vec<(PartitionId, S::Command)>,
        effects: &mut Effects<Self>,
    ) {
        if self.wholes.len() >= self.service.outstanding {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::Overloaded));
        }
        let numbered: Vec<_> = (self.next..).zip(shares).collect();
        self.next += numbered.len() as u64;
        let open: BTreeMap<_, _> = numbered.iter().map(|(number, (at, _))| (*number, *at)).collect();
        self.shares.extend(open.keys().map(|number| (*number, ticket)));
        self.wholes.insert(ticket, Whole { wish, open, found: BTreeMap::new() });
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
                let Some(Whole { wish, found, .. }) = self.wholes.remove(&ticket) else { return };
                let outcome = match wish {
                    Wish::Survey => served::<S>(&found),
                    Wish::Command(command) => {
                        let of = self.parts.len() as u16;
                        S::gather(&command, of, found.into_iter().collect()).map(Outcome::Replied)
                    }
                };
                effects.complete(ticket, outcome.unwrap_or(Outcome::Unknown));
            }
            outcome => {
                let survey = matches!(whole.wish, Wish::Survey);
                self.give_up(ticket, effects);
                effects.complete(ticket, if survey { Outcome::Unknown } else { outcome });
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

/// Where all keys are, in the order of the ring; nothing where a partition did not tell.
fn served<S: StateMachine>(found: &BTreeMap<PartitionId, S::Reply>) -> Option<Outcome<S::Reply>> {
    let mut all = Vec::new();
    for (at, reply) in found {
        let Some(Told::Served(served)) = S::told(reply) else { return None };
        all.extend(served.iter().map(|(stretch, version)| (*stretch, *at, *version)));
    }
    all.sort();
    Some(Outcome::Served(all))
}
