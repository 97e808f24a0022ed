//! What a client role was asked to change and is not answered yet: it is asked again, and given up in time. An answer says
//! the number alone, so no number is used in two lives of a process: one asked for before a restart may be answered after it.

use crate::client::SWEEPS;
use crate::request::{Change, Outcome, Refusal};
use crate::service::Service;
use isochrone_core::{Instant, Series, Ticket};

/// Changes under way, by their numbers.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Changes {
    open: Series<Changing>,
    life: u32,
}

/// The numbers of a life begin behind this, and none of them is of another. The highest bit stays free.
pub(crate) fn numbers_of(life: u32) -> u64 {
    u64::from(life & (u32::MAX >> 1)) << 32
}

#[derive(Clone, Hash, Debug)]
struct Changing {
    ticket: Ticket,
    change: Change,
    at: Instant,
    /// When it is asked for again.
    due: Instant,
}

/// What an answer comes to.
#[derive(Clone, Eq, PartialEq, Debug)]
pub(crate) enum Answered<R> {
    /// The host is told so.
    Over(Ticket, Outcome<R>),
    /// This change is not the business of whoever was asked.
    Elsewhere(Change),
}

impl Changes {
    /// Those of a process in this life.
    pub(crate) fn of(life: u32) -> Changes {
        Changes { open: Series::default(), life }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// A change is asked for, as the so-manieth thing in this life; under which number.
    pub(crate) fn begin(
        &mut self,
        sequence: u64,
        ticket: Ticket,
        change: Change,
        now: Instant,
        service: &Service,
    ) -> u64 {
        let number = numbers_of(self.life) + sequence;
        self.open.insert(number, Changing { ticket, change, at: now, due: now + service.retry });
        number
    }

    /// A replica has answered; nothing if the change is over already.
    pub(crate) fn answered<R>(&mut self, number: u64, result: Result<(), Refusal>) -> Option<Answered<R>> {
        if result == Err(Refusal::NotLeader) {
            return Some(Answered::Elsewhere(self.open.get(number)?.change));
        }
        let Changing { ticket, .. } = self.open.remove(number)?;
        Some(Answered::Over(ticket, result.map_or_else(Outcome::Refused, |()| Outcome::Changed)))
    }

    /// Nobody is known to be the one to ask: it is asked for again soon.
    pub(crate) fn hasten(&mut self, number: u64, now: Instant, service: &Service) {
        if let Some(changing) = self.open.get_mut(number) {
            changing.due = now + service.retry / SWEEPS;
        }
    }

    /// Gives up what is too old: whose outcomes are unknown.
    pub(crate) fn expire(&mut self, now: Instant, service: &Service) -> Vec<Ticket> {
        let old = self.open.iter().filter(|(_, changing)| now.since(changing.at) >= service.limit);
        let old: Vec<u64> = old.map(|(number, _)| number).collect();
        old.into_iter().filter_map(|number| Some(self.open.remove(number)?.ticket)).collect()
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.open.iter().any(|(_, changing)| changing.due <= now)
    }

    /// What is to be asked for again now.
    pub(crate) fn due(&mut self, now: Instant, service: &Service) -> Vec<(u64, Change)> {
        let due = self.open.iter_mut().filter(|(_, changing)| changing.due <= now);
        due.map(|(number, changing)| {
            changing.due = now + service.retry;
            (number, changing.change)
        })
        .collect()
    }

    /// The host has lost interest.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        let found = self.open.iter().find(|(_, changing)| changing.ticket == ticket);
        if let Some(number) = found.map(|(number, _)| number) {
            self.open.remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::{NodeId, Span};

    #[test]
    fn a_change_is_asked_again_until_it_is_answered_or_too_old() {
        let service = Service::for_rtt(Span::from_millis(100));
        let at = |time: Span| Instant::ZERO + time;
        let (lead, resign) = (Change::Lead(NodeId(2)), Change::Resign);
        let mut changes = Changes::of(1);
        let first = changes.begin(3, Ticket(1), lead, at(Span::ZERO), &service);
        changes.begin(7, Ticket(2), resign, at(service.retry / 2), &service);
        let next_life = Changes::of(2).begin(3, Ticket(1), lead, at(Span::ZERO), &service);
        assert_ne!(first, next_life, "what is answered to one life is no answer to another");
        assert!(!changes.is_due(at(service.retry / 2)));
        assert_eq!(changes.due(at(service.retry), &service), [(first, lead)]);
        assert_eq!(changes.due(at(service.retry), &service), [], "due again only later");
        assert_eq!(changes.answered::<()>(first, Err(Refusal::NotLeader)), Some(Answered::Elsewhere(lead)));
        changes.hasten(first, at(service.retry), &service);
        assert!(changes.is_due(at(service.retry + service.retry / SWEEPS)));
        let over = |ticket, outcome| Some(Answered::<()>::Over(ticket, outcome));
        assert_eq!(changes.answered(first, Ok(())), over(Ticket(1), Outcome::Changed));
        assert_eq!(changes.answered::<()>(first, Ok(())), None, "answered twice");
        assert_eq!(changes.expire(at(service.limit), &service), []);
        assert_eq!(changes.expire(at(service.limit + service.retry), &service), [Ticket(2)]);
        assert!(changes.is_empty());
        let last = changes.begin(8, Ticket(3), resign, at(Span::ZERO), &service);
        changes.cancel(Ticket(3));
        assert_eq!(changes.answered::<()>(last, Err(Refusal::Busy)), None, "nobody waits for it");
    }
}
