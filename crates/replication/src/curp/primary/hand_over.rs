//! A change of the master by hand: the old one brings everything to its copies and gives its word that it serves
//! nobody any more; the managers do the rest (as 3.17's planned change).

use super::message::Note;
use super::order::{Handing, Order};
use super::registry::Configuration;
use crate::order::Ordered;
use crate::request::{Change, Refusal};
use isochrone_core::{Effects, Instant, NodeId, Span, Ticket};

/// How long a master may take to bring everything to its copies; it takes no commands meanwhile.
const HANDING_MAX: Span = Span::from_secs(5);

impl Handing {
    /// When one that begins now is given up.
    pub(super) fn limit(now: Instant) -> Instant {
        now + HANDING_MAX
    }
}

impl<V: Ordered> Order<V> {
    pub(super) fn begin_handing(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        let now = effects.now();
        match self.heir_of(change) {
            Ok(None) => effects.complete_ahead(ticket, Ok(())),
            Err(refusal) => effects.complete_ahead(ticket, Err(refusal)),
            Ok(Some(heir)) => self.hand_to(heir, Handing::limit(now), Some(ticket), effects),
        }
    }

    pub(super) fn hand_to(
        &mut self,
        heir: NodeId,
        until: Instant,
        ticket: Option<Ticket>,
        effects: &mut Effects<Self>,
    ) {
        self.append_queued(effects.now());
        let Some(lead) = &mut self.lead else { return };
        let epoch = lead.epoch;
        lead.hurried = true;
        self.handing = Some(Handing { ticket, heir, epoch, until, yielded: false });
        effects.mark(Note::Counted("handovers_begun"));
    }

    /// Who is to be the master; none if it is so already.
    fn heir_of(&self, change: Change) -> Result<Option<NodeId>, Refusal> {
        let Some(lead) = self.lead.as_ref().filter(|lead| lead.serves()) else {
            return Err(Refusal::NotLeader);
        };
        if lead.next.is_some() || self.handing.is_some() {
            return Err(Refusal::Busy);
        }
        match change {
            Change::Lead(node) if node == self.me() => Ok(None),
            Change::Lead(node) if lead.targets.contains_key(&node) && !self.registry.is_retired(node) => {
                Ok(Some(node))
            }
            Change::Lead(node) if self.servers.contains(&node) => Err(Refusal::NoCopy),
            Change::Resign => {
                // Whom it has heard of last.
                let key = |node: &NodeId| !self.registry.is_retired(*node);
                let latest = lead.targets.iter().max_by_key(|(node, target)| (key(node), target.heard));
                latest.map(|(node, _)| Some(*node)).ok_or(Refusal::Impossible)
            }
            Change::Lead(_) | Change::Add(_) | Change::Remove(_) => Err(Refusal::Impossible),
        }
    }

    /// Gives the word, once everything is with all copies.
    pub(super) fn pursue_handing(&mut self, effects: &mut Effects<Self>) {
        let done = self.queue.is_empty() && self.book.full() == self.book.end();
        let epoch = self.lead.as_ref().map(|lead| lead.epoch);
        let Some(handing) = self.handing.as_mut().filter(|handing| Some(handing.epoch) == epoch) else {
            return;
        };
        if done && !handing.yielded {
            handing.yielded = true;
            self.report(effects);
        }
    }

    /// What takes too long is not done, unless the word is given.
    pub(super) fn give_up_handing(&mut self, effects: &mut Effects<Self>) {
        let now: Instant = effects.now();
        let given_up = self.handing.take_if(|handing| !handing.yielded && handing.until <= now);
        if let Some(ticket) = given_up.and_then(|handing| handing.ticket) {
            effects.complete(ticket, Err(Refusal::TimedOut));
        }
    }

    /// Nothing comes of it: this server goes on otherwise, whatever it has said before.
    pub(super) fn drop_handing(&mut self, effects: &mut Effects<Self>) {
        if let Some(ticket) = self.handing.take().and_then(|handing| handing.ticket) {
            effects.complete(ticket, Err(Refusal::Busy));
        }
    }

    /// Another master counts: that is what was wanted, or has to be asked of that one.
    pub(super) fn end_handing(&mut self, committed: &Configuration, effects: &mut Effects<Self>) {
        if let Some(handing) = self.handing.take_if(|handing| handing.epoch < committed.reign.0) {
            let wanted = handing.heir == committed.master;
            if let Some(ticket) = handing.ticket {
                effects.complete_ahead(ticket, if wanted { Ok(()) } else { Err(Refusal::NotLeader) });
            }
        }
    }
}
