//! Copies by hand: a node that is *retired* holds no copy any more, as soon as there are enough others, and none is put
//! there until it is admitted again. The master is asked, and passes it on to the manager that leads, which has the
//! others agree; what follows from that is the managers' business, as when a node is lost (3.12), but that the retired
//! node goes on until another stands in its place. A master that is retired hands over first.

use super::message::{Message, Note};
use super::order::Order;
use super::registry::Registry;
use crate::order::Ordered;
use crate::request::Refusal;
use isochrone_core::{Effects, Instant, NodeId, Span, Ticket};

/// How long a copy may take to come into its place, or to go. What was agreed on stays so after that.
const WISH_MAX: Span = Span::from_secs(10);

/// Whether a node may hold a copy.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub(super) struct Wish {
    ticket: Ticket,
    node: NodeId,
    leaves: bool,
    until: Instant,
}

impl Wish {
    /// Whether it is so. A node that may hold a copy is given one when there is need of it.
    fn is_met(&self, registry: &Registry) -> bool {
        let named = registry.committed.iter().chain(&registry.next).any(|now| now.names(self.node));
        registry.is_retired(self.node) == self.leaves && !(self.leaves && named)
    }
}

impl<V: Ordered> Order<V> {
    pub(super) fn begin_wish(
        &mut self,
        ticket: Ticket,
        node: NodeId,
        leaves: bool,
        effects: &mut Effects<Self>,
    ) {
        let wish = Wish { ticket, node, leaves, until: effects.now() + WISH_MAX };
        let refusal = if !self.lead.as_ref().is_some_and(|lead| lead.serves()) {
            Refusal::NotLeader
        } else if !self.servers.contains(&node) {
            Refusal::Impossible
        } else if wish.is_met(&self.registry) {
            return effects.complete_ahead(ticket, Ok(()));
        } else if self.wish.is_some() {
            Refusal::Busy
        } else {
            self.wish = Some(wish);
            effects.mark(Note::Counted(if leaves { "nodes_retired" } else { "nodes_admitted" }));
            return self.pursue_wish(effects);
        };
        effects.complete_ahead(ticket, Err(refusal));
    }

    /// Asks the manager that was heard of last, until it is so. Whoever asked is told, also when this server has meanwhile
    /// ceased to be the master.
    pub(super) fn pursue_wish(&mut self, effects: &mut Effects<Self>) {
        let Some(wish) = self.wish else { return };
        let over = if wish.is_met(&self.registry) {
            Ok(())
        } else if wish.until <= effects.now() {
            Err(Refusal::TimedOut)
        } else {
            let Wish { node, leaves, .. } = wish;
            if let Some(manager) = self.manager.filter(|_| self.registry.is_retired(node) != leaves) {
                // Ahead: it rests on nothing here.
                effects.send_ahead(manager, Message::Wish { node, leaves });
            }
            return;
        };
        self.wish = None;
        effects.complete_ahead(wish.ticket, over);
    }

    /// The manager says that it cannot be so.
    pub(super) fn on_denied(
        &mut self,
        node: NodeId,
        leaves: bool,
        refusal: Refusal,
        effects: &mut Effects<Self>,
    ) {
        let same = |wish: &mut Wish| (wish.node, wish.leaves) == (node, leaves);
        if let Some(wish) = self.wish.take_if(same) {
            effects.complete_ahead(wish.ticket, Err(refusal));
        }
    }

    /// The manager knows who could be the master in the place of this one, which is retired.
    pub(super) fn retire(&mut self, heir: NodeId, effects: &mut Effects<Self>) {
        let me = self.me();
        let busy = !self.registry.is_retired(me) || self.handing.is_some();
        let able = |heir: &NodeId| {
            let lead = self.lead.as_ref().filter(|lead| lead.serves() && !lead.changes_list());
            lead.is_some_and(|lead| lead.targets.contains_key(heir))
        };
        if !busy && able(&heir) {
            self.hand_to(heir, None, effects);
        }
    }
}
