//! A change of the master by hand: the old one brings everything to its copies and gives its word that it serves
//! nobody any more, and that none of its copies reads for clients under what it granted; the managers do the rest (as
//! 3.17's planned change).

use super::Mutation;
use super::message::Note;
use super::order::{Handing, Order};
use super::registry::Configuration;
use crate::order::Ordered;
use crate::request::{Change, Refusal};
use isochrone_core::{Effects, Instant, NodeId, Span, Ticket};

/// How long a master may take to bring everything to its copies, beside what leases of those that read may last; it takes
/// no commands meanwhile.
const HANDING_MAX: Span = Span::from_secs(5);

impl<V: Ordered> Order<V> {
    pub(super) fn begin_handing(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        match self.heir_of(change) {
            Ok(None) => effects.complete_ahead(ticket, Ok(())),
            Err(refusal) => effects.complete_ahead(ticket, Err(refusal)),
            Ok(Some(heir)) => self.hand_to(heir, Some(ticket), effects),
        }
    }

    pub(super) fn hand_to(&mut self, heir: NodeId, ticket: Option<Ticket>, effects: &mut Effects<Self>) {
        let now = effects.now();
        self.append_queued(now);
        let Some(lead) = &mut self.lead else { return };
        let (epoch, until) = (lead.epoch, now.max(lead.reads_over()) + HANDING_MAX);
        lead.hurried = true;
        self.handing = Some(Handing { ticket, heir, epoch, until, yielded: false });
        effects.mark(Note::Counted("handovers_begun"));
    }

    /// Who is to be the master; none if it is so already.
    fn heir_of(&self, change: Change) -> Result<Option<NodeId>, Refusal> {
        let Some(lead) = self.lead.as_ref().filter(|lead| lead.serves()) else {
            return Err(Refusal::NotLeader);
        };
        // While copies are joining nobody would act on its word, and it would take nothing in for as long.
        if lead.changes_list() || self.handing.is_some() {
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

    /// Gives the word, once everything is with all copies and none of them reads for clients: who comes next may know
    /// nothing of such reads. Asked whenever this server settles, so at every beat.
    pub(super) fn pursue_handing(&mut self, effects: &mut Effects<Self>) {
        let Some(lead) = &self.lead else { return };
        let at_once = self.parameters().mutated(Mutation::DropReadersAtOnce);
        let reads = !at_once && effects.now() < lead.reads_over();
        let done = self.queue.is_empty() && self.book.full() == self.book.end() && !reads;
        let epoch = lead.epoch;
        let Some(handing) = self.handing.as_mut().filter(|handing| handing.epoch == epoch) else {
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
