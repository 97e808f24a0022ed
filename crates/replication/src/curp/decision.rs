//! What a client makes of the answers to one command (`specs/curp.md` 3.2).
//!
//! Answers count together only if they were made under one reign (D-7): an attempt is one reign's, and asking again
//! under the same one goes on with it.

use crate::order::Reign;
use isochrone_core::Instant;

/// One command under one reign.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub(crate) struct Attempt<R> {
    /// The reign; none where it is not known, and nothing but a safe answer will do.
    pub(crate) reign: Option<Reign>,
    /// When it was sent.
    pub(crate) sent: Instant,
    /// Witnesses that have accepted it, as bits.
    accepted: u64,
    /// Those that have refused it.
    refused: u64,
    /// How many there are that were asked, and how many must accept; none were asked where this is none.
    witnesses: Option<(u32, u32)>,
    /// The other witnesses are not waited for.
    late: bool,
    /// A safe answer has been asked for.
    safe: bool,
    /// It was asked for together with the command.
    at_once: bool,
    reply: Option<R>,
}

/// What is to be done now.
#[derive(Clone, Eq, PartialEq, Debug)]
pub(crate) enum Decision<R> {
    /// Nothing; more answers may come.
    Wait,
    /// Ask for a safe answer.
    Sync,
    /// The command is executed, durable and has its place.
    Complete(R),
}

impl<R> Attempt<R> {
    /// An attempt under a reign: with how many witnesses that were asked to keep it, and how many of them must;
    /// none where only a safe answer will do, which is asked for at once.
    pub(crate) fn new(reign: Option<Reign>, witnesses: Option<(u32, u32)>, sent: Instant) -> Attempt<R> {
        let witnesses = witnesses.filter(|_| reign.is_some());
        let safe = witnesses.is_none();
        let (accepted, refused, late, at_once) = (0, 0, false, safe);
        Attempt { reign, sent, accepted, refused, witnesses, late, safe, at_once, reply: None }
    }

    /// Whether witnesses were asked.
    pub(crate) fn is_recorded(&self) -> bool {
        self.witnesses.is_some()
    }

    /// Whether a safe answer is asked for.
    pub(crate) fn is_safe(&self) -> bool {
        self.safe
    }

    /// A safe answer is asked for as well.
    pub(crate) fn ask_safe(&mut self) {
        self.safe = true;
    }

    /// The same, together with the command.
    pub(crate) fn ask_safe_at_once(&mut self) {
        (self.safe, self.at_once) = (true, true);
    }

    /// Whether that was so.
    pub(crate) fn was_safe_at_once(&self) -> bool {
        self.at_once
    }

    /// Whether its witnesses have had their time.
    pub(crate) fn is_late(&self) -> bool {
        self.late
    }

    /// Whether an answer may still come that decides, from this witness.
    pub(crate) fn awaits(&self, witness: u32) -> bool {
        let (accepted, refused) = (self.accepted >> witness & 1, self.refused >> witness & 1);
        accepted == 0 && refused == 0 && self.witnesses.is_some_and(|(witnesses, _)| witness < witnesses)
    }

    /// A witness answers; `reign` is the one of its answer.
    pub(crate) fn on_verdict(&mut self, witness: u32, reign: Reign, accepted: bool) {
        match accepted {
            // What was refused under whatever reign only costs time.
            false => self.refused |= 1 << witness,
            true if Some(reign) == self.reign => self.accepted |= 1 << witness,
            true => {}
        }
    }

    /// The leader has executed it before it is safe, under this reign.
    pub(crate) fn on_speculative(&mut self, reign: Reign, reply: R) {
        if Some(reign) == self.reign && self.witnesses.is_some() {
            self.reply = Some(reply);
        }
    }

    /// The witnesses have had their time.
    pub(crate) fn on_deadline(&mut self) {
        self.late = true;
    }

    /// For the planted bug that counts what was accepted under another reign.
    pub(crate) fn inherit(&mut self, former: &Attempt<R>) {
        self.accepted |= former.accepted;
    }

    /// What follows from all that was answered. After [`Decision::Complete`] the attempt is over.
    pub(crate) fn decide(&mut self) -> Decision<R> {
        let Some((witnesses, needed)) = self.witnesses else { return Decision::Wait };
        if self.reply.is_none() {
            // Without a result nothing helps; a safe answer comes with one.
            return Decision::Wait;
        }
        if self.accepted.count_ones() >= needed
            && let Some(reply) = self.reply.take()
        {
            return Decision::Complete(reply);
        }
        let lost = (self.refused & !self.accepted).count_ones() + needed > witnesses;
        if (lost || self.late) && !std::mem::replace(&mut self.safe, true) {
            return Decision::Sync;
        }
        Decision::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can happen in an attempt.
    #[derive(Copy, Clone, Eq, PartialEq, Debug)]
    enum Event {
        Speculative(Reign),
        Verdict(u32, Reign, bool),
        Deadline,
    }

    const NOW: Reign = Reign(3, 1);

    /// Runs one order of events; the first decision but to wait, after each event.
    fn run(witnesses: u32, needed: u32, events: &[Event]) -> Vec<Decision<char>> {
        let mut attempt = Attempt::new(Some(NOW), Some((witnesses, needed)), Instant::ZERO);
        let mut decisions = Vec::new();
        for event in events {
            match *event {
                Event::Speculative(reign) => attempt.on_speculative(reign, 'r'),
                Event::Verdict(witness, reign, accepted) => attempt.on_verdict(witness, reign, accepted),
                Event::Deadline => attempt.on_deadline(),
            }
            let decision = attempt.decide();
            let over = matches!(decision, Decision::Complete(_));
            decisions.push(decision);
            if over {
                break;
            }
        }
        decisions
    }

    fn permutations(events: &mut Vec<Event>, from: usize, visit: &mut dyn FnMut(&[Event])) {
        // Prefixes too: what does not come is not waited for.
        visit(&events[..from]);
        for at in from..events.len() {
            events.swap(from, at);
            permutations(events, from + 1, visit);
            events.swap(from, at);
        }
    }

    /// The table of 3.2, in all orders of all answers.
    #[test]
    fn every_order_of_answers() {
        let verdicts = [(NOW, true), (NOW, false), (Reign(3, 0), true), (Reign(4, 0), false)];
        let mut cases = 0;
        for (witnesses, needed) in [(1, 1), (2, 2), (3, 3), (3, 2), (4, 3)] {
            for mut number in 0..verdicts.len().pow(witnesses) {
                let mut events = Vec::new();
                for witness in 0..witnesses {
                    let (reign, accepted) = verdicts[number % verdicts.len()];
                    number /= verdicts.len();
                    events.push(Event::Verdict(witness, reign, accepted));
                }
                events.extend([Event::Speculative(NOW), Event::Deadline]);
                permutations(&mut events, 0, &mut |events| {
                    cases += 1;
                    let has = |event: &Event| events.contains(event);
                    let count = |wanted: bool| {
                        events
                            .iter()
                            .filter(|event| match event {
                                Event::Verdict(_, reign, accepted) => {
                                    *accepted == wanted && (!wanted || *reign == NOW)
                                }
                                _ => false,
                            })
                            .count() as u32
                    };
                    let decisions = run(witnesses, needed, events);
                    let reply = has(&Event::Speculative(NOW));
                    let complete = reply && count(true) >= needed;
                    let completed = decisions.contains(&Decision::Complete('r'));
                    assert_eq!(completed, complete, "{witnesses} {needed} {events:?}: {decisions:?}");
                    let syncs = decisions.iter().filter(|decision| **decision == Decision::Sync).count();
                    assert!(syncs <= 1, "{events:?}");
                    let lost = count(false) + needed > witnesses;
                    if !complete {
                        let sync = reply && (lost || has(&Event::Deadline));
                        assert_eq!(syncs == 1, sync, "{witnesses} {needed} {events:?}: {decisions:?}");
                    }
                });
            }
        }
        assert!(cases > 100_000, "{cases}");
    }

    #[test]
    fn the_result_of_another_reign_is_none() {
        let accepted = [Event::Verdict(0, NOW, true), Event::Speculative(Reign(2, 0)), Event::Deadline];
        assert_eq!(run(1, 1, &accepted), [Decision::Wait, Decision::Wait, Decision::Wait]);
    }

    #[test]
    fn what_is_not_recorded_is_never_complete_by_itself() {
        for witnesses in [None, Some((1, 1))] {
            let reign = Some(NOW).filter(|_| witnesses.is_none());
            let mut attempt = Attempt::new(reign, witnesses, Instant::ZERO);
            assert!(attempt.is_safe());
            attempt.on_speculative(NOW, 'r');
            attempt.on_verdict(0, NOW, true);
            attempt.on_deadline();
            assert_eq!(attempt.decide(), Decision::Wait);
        }
        // Without copies there are no witnesses, and nothing to wait for.
        assert_eq!(run(0, 0, &[Event::Speculative(NOW)]), [Decision::Complete('r')]);
    }

    /// D-10: a witness that has refused a copy of what it keeps, as one that was late, has accepted it all the same.
    #[test]
    fn an_acceptance_counts_for_more_than_a_refusal() {
        let events = [Event::Verdict(0, NOW, false), Event::Verdict(0, NOW, true), Event::Speculative(NOW)];
        assert_eq!(run(1, 1, &events).last(), Some(&Decision::Complete('r')));
    }
}
