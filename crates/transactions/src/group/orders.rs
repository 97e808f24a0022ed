//! Orders about who leads and who the members are that another replica was given, and asks its leader to carry out.

use isochrone_core::{ProcessId, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// So many are under way at most, each way.
const MOST: usize = 64;
/// The leader's own tickets for them, far behind those that a host draws.
const FIRST: u64 = 1 << 63;

/// Who asked, and under what name of that life of its own.
type Asked = (ProcessId, (u32, Ticket));

/// Whose order has ended: the host's, or that of another replica, where it is still known which.
pub(super) enum Ended {
    Own,
    Foreign(Option<Asked>),
}

#[derive(Clone, Hash, Default, Debug)]
pub(super) struct Orders {
    /// Of others, at the leader.
    drawn: u64,
    begun: BTreeMap<Ticket, Asked>,
    /// Of this replica's host, at the leader's.
    waiting: BTreeSet<Ticket>,
}

impl Orders {
    /// The ticket under which an order of another replica is carried out.
    pub(super) fn begun(&mut self, asker: ProcessId, order: (u32, Ticket)) -> Ticket {
        if self.begun.len() >= MOST {
            // Who asked is told by its host in the end that nobody has answered.
            self.begun.pop_first();
        }
        self.drawn += 1;
        let ticket = Ticket(FIRST | self.drawn);
        self.begun.insert(ticket, (asker, order));
        ticket
    }

    /// Whose order has ended.
    pub(super) fn ended(&mut self, ticket: Ticket) -> Ended {
        if ticket.0 < FIRST { Ended::Own } else { Ended::Foreign(self.begun.remove(&ticket)) }
    }

    /// An order of the host goes to the leader. The one that is given up for it, where there are too many.
    pub(super) fn passed_on(&mut self, ticket: Ticket) -> Option<Ticket> {
        self.waiting.insert(ticket);
        if self.waiting.len() > MOST { self.waiting.pop_first() } else { None }
    }

    /// The host waits no longer.
    pub(super) fn given_up(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// Whether the host still waits for the answer that has come.
    pub(super) fn answered(&mut self, ticket: Ticket) -> bool {
        self.waiting.remove(&ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_is_answered_to_whom_it_belongs_and_only_so_many_are_remembered() {
        let mut orders = Orders::default();
        let asker = ProcessId::from_u64(7);
        assert!(matches!(orders.ended(Ticket(1)), Ended::Own));
        let tickets: Vec<_> = (0..=MOST as u64).map(|n| orders.begun(asker, (1, Ticket(n)))).collect();
        assert!(matches!(orders.ended(tickets[0]), Ended::Foreign(None)), "the oldest is forgotten");
        assert!(matches!(orders.ended(tickets[1]), Ended::Foreign(Some((_, (1, Ticket(1)))))));
        assert!(matches!(orders.ended(tickets[1]), Ended::Foreign(None)), "once");
        let given_up: Vec<_> = (0..=MOST as u64).filter_map(|n| orders.passed_on(Ticket(n))).collect();
        assert_eq!(given_up, [Ticket(0)]);
        assert!(!orders.answered(Ticket(0)) && orders.answered(Ticket(1)) && !orders.answered(Ticket(1)));
        orders.given_up(Ticket(2));
        assert!(!orders.answered(Ticket(2)));
    }
}
