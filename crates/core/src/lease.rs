//! Leases over the steady clock, whose only assumption is a checked bound on its rate.

use crate::{Instant, ReplicaId, Span};

/// How long a lease lasts and how far a clock's rate may be off. With drift `d` (parts per million) a
/// holder stops `2 d` early and a granter counts the full length, so that the holder is first to stop
/// even where its clock is slow by `d` and the granter's fast by `d`: `(1 - 2d) / (1 - d) < 1 / (1 + d)`.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct LeaseTerms {
    length: Span,
    drift_ppm: u64,
}

/// Beside the relative margin, for clocks that tick coarsely.
const TICK: Span = Span::from_millis(1);

impl LeaseTerms {
    /// Leases of this length where no clock's rate is off by more than `drift_ppm` millionths.
    pub fn new(length: Span, drift_ppm: u64) -> LeaseTerms {
        LeaseTerms { length, drift_ppm }
    }

    /// The length as the granter counts it.
    pub fn length(self) -> Span {
        self.length
    }

    /// The same, where the granter says that it is bound for no longer than `told`: its file may say otherwise than the
    /// holder's, above all while nodes are given another one by one.
    pub fn at_most(self, told: Span) -> LeaseTerms {
        LeaseTerms { length: self.length.min(told), ..self }
    }

    /// Until when a holder may rely on a lease for which it asked at `asked`, by the holder's clock.
    pub fn held_until(self, asked: Instant) -> Instant {
        let margin = self.share(self.length) * 2 + TICK;
        asked + self.length.saturating_sub(margin)
    }

    /// Until when a granter is bound that was asked at `received`, by the granter's clock.
    pub fn bound_until(self, received: Instant) -> Instant {
        received + self.length
    }

    /// How long a third party must wait, by its own clock, when a granter said that it is bound for
    /// `left` more: longer by the drift of both clocks.
    pub fn wait_out(self, left: Span) -> Span {
        if left == Span::ZERO { left } else { left + self.share(left) * 2 + TICK }
    }

    fn share(self, span: Span) -> Span {
        Span::from_nanos(span.as_nanos() / 1_000_000 * self.drift_ppm + self.drift_ppm)
    }
}

/// A holder's side: what each granter has granted.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Default)]
pub struct Lease {
    grants: Vec<(ReplicaId, Instant)>,
}

impl Lease {
    /// `from` has granted until then, by the holder's own clock.
    pub fn granted(&mut self, from: ReplicaId, until: Instant) {
        match self.grants.iter_mut().find(|(replica, _)| *replica == from) {
            Some((_, known)) => *known = until.max(*known),
            None => self.grants.push((from, until)),
        }
    }

    /// Whether at least `quorum` of those grants hold that `counts` accepts.
    pub fn held(&self, now: Instant, quorum: usize, counts: impl Fn(ReplicaId) -> bool) -> bool {
        self.grants.iter().filter(|(from, until)| now < *until && counts(*from)).count() >= quorum
    }

    /// Whether nobody's grant holds any more.
    pub fn free(&self, now: Instant) -> bool {
        self.grants.iter().all(|(_, until)| *until <= now)
    }

    /// Gives everything back.
    pub fn release(&mut self) {
        self.grants.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The true time at which a clock of this rate (parts per million of true time) shows `span`.
    fn true_time(span: u64, rate_ppm: u64) -> u64 {
        (u128::from(span) * 1_000_000 / u128::from(rate_ppm)) as u64
    }

    #[test]
    fn a_holder_stops_before_anyone_else_begins() {
        for drift in [0, 100, 10_000] {
            let terms = LeaseTerms::new(Span::from_millis(500), drift);
            let rates = [1_000_000 - drift, 1_000_000, 1_000_000 + drift];
            for holder in rates {
                for granter in rates {
                    for waiter in rates {
                        for told in [0, 100_000_000, 499_000_000, 500_000_000] {
                            // The holder's file may say otherwise than the granter's.
                            let longer = LeaseTerms::new(Span::from_secs(2), drift).at_most(terms.length());
                            assert_eq!(longer.held_until(Instant::ZERO), terms.held_until(Instant::ZERO));
                            let ends = true_time(terms.held_until(Instant::ZERO).as_nanos(), holder);
                            let left = terms.bound_until(Instant::ZERO).since(Instant::from_nanos(told));
                            let waited = true_time(terms.wait_out(left).as_nanos(), waiter);
                            let begins = true_time(told, granter) + waited;
                            assert!(ends <= begins, "{drift} {holder} {granter} {waiter} {told}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn it_is_held_while_a_quorum_grants() {
        let at = Instant::from_nanos;
        let mut lease = Lease::default();
        lease.granted(ReplicaId(0), at(10));
        lease.granted(ReplicaId(1), at(20));
        lease.granted(ReplicaId(1), at(15));
        assert!(lease.held(at(9), 2, |_| true));
        assert!(!lease.held(at(9), 2, |replica| replica != ReplicaId(1)), "only members count");
        assert!(!lease.held(at(10), 2, |_| true));
        assert!(lease.held(at(19), 1, |_| true) && !lease.free(at(19)));
        assert!(lease.free(at(20)));
        lease.release();
        assert!(lease.free(at(0)) && !lease.held(at(0), 1, |_| true));
    }
}
