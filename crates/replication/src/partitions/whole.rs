//! What all partitions are asked: each for its share of a command on all keys, or which keys it serves. The answers are
//! put together.
//!
//! A share is about what a partition is thought to serve. The partition says of which places it does not serve any more what
//! it was asked about ([`StateMachine::missing`]), and whoever does is asked for another share: at once, or when the move
//! that is under way may be over. So every place is answered for once.

use super::{Divided, Noted, Waits};
use crate::request::{Outcome, Refusal, Request};
use crate::service::Reply;
use isochrone_core::migration::{Step, Stretch, Told};
use isochrone_core::{Effects, Fact, Instant, PartitionId, Process, StateMachine, Ticket};
use std::collections::BTreeMap;

/// What all partitions are asked and have not answered.
#[derive(Clone, Hash)]
pub(super) struct Whole<X, R> {
    wish: Wish<X>,
    since: Instant,
    /// Shares that are not answered, by their numbers.
    open: BTreeMap<u64, PartitionId>,
    /// Answers, by whose they are and their numbers.
    found: BTreeMap<(PartitionId, u64), R>,
    /// Places that are missing from what was answered.
    missing: Vec<Stretch>,
    /// When somebody is to be asked about those.
    due: Instant,
    waits: Waits,
}

#[derive(Clone, Hash)]
enum Wish<X> {
    /// A command on all keys.
    Command(X),
    /// Where all keys are.
    Survey,
    /// The same, for this client itself.
    Look,
}

/// Under what a look stands among what hosts ask, whose tickets count from low numbers.
const LOOK: Ticket = Ticket(u64::MAX);

impl<X, R> Whole<X, R> {
    /// When something is to be asked again, if anything is.
    pub fn due(&self) -> Option<Instant> {
        (!self.missing.is_empty()).then_some(self.due)
    }
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
        let shares = self.divide(&command, &[Stretch::ALL]);
        if shares.is_empty() {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::Whole));
        }
        self.begin_whole(ticket, Wish::Command(command), shares, effects);
    }

    /// Asks all partitions what they serve.
    pub(super) fn survey(&mut self, ticket: Ticket, effects: &mut Effects<Self>) {
        match self.surveys(effects) {
            Some(shares) => self.begin_whole(ticket, Wish::Survey, shares, effects),
            None => effects.complete_ahead(ticket, Outcome::Refused(Refusal::Unmovable)),
        }
    }

    /// Whether keys that seem to lie apart may lie together: a client learns where keys have gone from who no longer serves
    /// them, and is asked of nothing while it believes them apart. So it looks, unless it did a moment ago.
    pub(super) fn looks(&mut self, effects: &mut Effects<Self>) -> bool {
        let now = effects.now();
        if let Some(since) = self.looked {
            let open = self.wholes.contains_key(&LOOK);
            let patience = if open { self.service.retry * 2 } else { self.service.retry };
            if now.since(since) < patience || open {
                return open && now.since(since) < patience;
            }
        }
        if self.service.reply == Reply::Commit || self.wholes.len() >= self.service.outstanding {
            return false;
        }
        let Some(shares) = self.surveys(effects) else { return false };
        self.looked = Some(now);
        self.begin_whole(LOOK, Wish::Look, shares, effects);
        true
    }

    fn surveys(&self, effects: &Effects<Self>) -> Option<Vec<(PartitionId, S::Command)>> {
        let stamp = effects.stamp();
        let step = |at| Some((at, S::step(Step::Survey { ring: self.routes.ring(at) }, stamp)?));
        self.all().map(step).collect()
    }

    fn on_looked(&mut self, found: &BTreeMap<(PartitionId, u64), S::Reply>, effects: &mut Effects<Self>) {
        let now = effects.now();
        for (stretch, at, version) in served::<S>(found).unwrap_or_default() {
            // What never moved is where the ring has it.
            if version > 0 {
                self.learn(stretch, at, version, now);
            }
        }
        (self.looked, self.stirred) = (Some(now), true);
    }

    /// The shares of all partitions in what a command has to do with these places.
    fn divide(&self, command: &S::Command, places: &[Stretch]) -> Vec<(PartitionId, S::Command)> {
        let served = self.routes.served(places);
        let share = |at| {
            let served = served.get(&at).map_or(&[][..], Vec::as_slice);
            Some((at, S::share(command, self.routes.ring(at), served)?))
        };
        self.all().filter_map(share).collect()
    }

    fn begin_whole(
        &mut self,
        ticket: Ticket,
        wish: Wish<S::Command>,
        shares: Vec<(PartitionId, S::Command)>,
        effects: &mut Effects<Self>,
    ) {
        if self.wholes.len() >= self.service.outstanding {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::Overloaded));
        }
        let (now, open, found) = (effects.now(), BTreeMap::new(), BTreeMap::new());
        let whole = Whole { wish, since: now, open, found, missing: Vec::new(), due: now, waits: None };
        self.wholes.insert(ticket, whole);
        self.spread(ticket, shares, effects);
    }

    fn spread(
        &mut self,
        ticket: Ticket,
        shares: Vec<(PartitionId, S::Command)>,
        effects: &mut Effects<Self>,
    ) {
        let Some(whole) = self.wholes.get_mut(&ticket) else { return };
        let numbered: Vec<_> = (self.next..).zip(shares).collect();
        self.next += numbered.len() as u64;
        whole.open.extend(numbered.iter().map(|(number, (at, _))| (*number, *at)));
        self.shares.extend(numbered.iter().map(|(number, _)| (*number, ticket)));
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
                let missing = S::missing(&reply).to_vec();
                whole.found.insert((at, number), reply);
                if !missing.is_empty() {
                    return self.on_missing(ticket, at, &missing, effects);
                }
                if !whole.open.is_empty() || !whole.missing.is_empty() {
                    return;
                }
                let Some(Whole { wish, found, .. }) = self.wholes.remove(&ticket) else { return };
                let outcome = match wish {
                    Wish::Look => return self.on_looked(&found, effects),
                    Wish::Survey => served::<S>(&found).map(Outcome::Served),
                    Wish::Command(command) => {
                        let of = self.parts.len() as u16;
                        S::gather(&command, of, found.into_values().collect()).map(Outcome::Replied)
                    }
                };
                effects.complete(ticket, outcome.unwrap_or(Outcome::Unknown));
            }
            outcome => self.fail(ticket, outcome, effects),
        }
    }

    /// A share came to this, or is not to be had: so does the whole, unless others may have done what is refused here.
    fn fail(&mut self, ticket: Ticket, outcome: Outcome<S::Reply>, effects: &mut Effects<Self>) {
        let Some(whole) = self.wholes.get(&ticket) else { return };
        let alone = whole.open.is_empty() && whole.found.is_empty();
        let told = match &whole.wish {
            Wish::Command(command) if alone || S::reads_only(command) => Some(outcome),
            Wish::Command(_) | Wish::Survey => Some(Outcome::Unknown),
            Wish::Look => None,
        };
        self.give_up(ticket, effects);
        match told {
            Some(told) => effects.complete(ticket, told),
            // What waits for it goes by what is known.
            None => self.stirred = true,
        }
    }

    /// A partition does not serve all it was asked about: whoever does is asked at once, or when a move may be over.
    fn on_missing(
        &mut self,
        ticket: Ticket,
        from: PartitionId,
        missing: &[Told],
        effects: &mut Effects<Self>,
    ) {
        effects.mark(Noted::Fact(Fact::Counted("commands_redirected")));
        let (now, mut places, mut under_way) = (effects.now(), Vec::new(), false);
        for told in missing {
            let Told::Elsewhere { stretch, to, version, there } = told else { continue };
            if *there {
                self.learn(*stretch, *to, *version, now);
            }
            under_way |= !there;
            places.push(*stretch);
        }
        let waits = self.wholes.get(&ticket).and_then(|whole| whole.waits);
        let (waits, due) = if under_way { self.wait(waits, from, now) } else { (None, now) };
        if let Some(whole) = self.wholes.get_mut(&ticket) {
            whole.missing.extend(places);
            (whole.waits, whole.due) = (waits, due.max(whole.due));
        }
        self.stirred = true;
    }

    /// Asks for what is missing, where it may be served by now.
    pub(super) fn ask_again(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let due = self.wholes.iter().filter(|(_, whole)| whole.due().is_some_and(|due| due <= now));
        for ticket in due.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            let Some(whole) = self.wholes.get_mut(&ticket) else { continue };
            if now.since(whole.since) >= self.service.patience() {
                self.fail(ticket, Outcome::Refused(Refusal::Moving), effects);
                continue;
            }
            let mut places = std::mem::take(&mut whole.missing);
            places.sort();
            // A survey is about all that is served, and nothing of it is missing.
            let Wish::Command(command) = whole.wish.clone() else { continue };
            let shares = self.divide(&command, &places);
            self.spread(ticket, shares, effects);
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
fn served<S: StateMachine>(
    found: &BTreeMap<(PartitionId, u64), S::Reply>,
) -> Option<Vec<(Stretch, PartitionId, u64)>> {
    let mut all = Vec::new();
    for ((at, _), reply) in found {
        let Some(Told::Served(served)) = S::told(reply) else { return None };
        all.extend(served.iter().map(|(stretch, version)| (*stretch, *at, *version)));
    }
    all.sort();
    Some(all)
}
