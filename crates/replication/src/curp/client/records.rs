//! What witnesses say of records, or do not say in time.

use super::{Client, Timer};
use crate::curp::decision::Decision;
use crate::curp::{Bug, Recording, Verdicts};
use crate::message::Note;
use crate::request::Outcome;
use isochrone_core::{Effects, Fact, Instant, Path, ProcessId, Span, StateMachine};

impl<S: StateMachine, W: Recording<S::Command>> Client<S, W> {
    /// Looks again when records have been waited for long enough.
    pub(super) fn watch(&mut self, effects: &mut Effects<Self>) {
        if !std::mem::replace(&mut self.watching, true) {
            effects.arm(Timer::Records, self.patience());
        }
    }

    pub(super) fn patience(&self) -> Span {
        self.paths.deadline(&self.fast, self.setup.service.retry / 2)
    }

    /// The deadline of some records may have come: what they were to make safe is asked for otherwise.
    pub(super) fn on_deadline(&mut self, effects: &mut Effects<Self>) {
        self.watching = false;
        let (now, patience) = (effects.now(), self.patience());
        let Some(witnesses) = self.view.as_ref().map(|view| view.witnesses.len()) else { return };
        let mut missed = vec![false; witnesses];
        let mut earliest: Option<Instant> = None;
        for (sequence, asked) in self.outstanding.iter_mut() {
            if !asked.attempt.is_recorded() || asked.attempt.is_late() {
                continue;
            }
            let until = asked.attempt.sent + patience;
            if until > now {
                earliest = Some(earliest.map_or(until, |earliest| earliest.min(until)));
                continue;
            }
            for (witness, missed) in missed.iter_mut().enumerate() {
                *missed |= asked.attempt.awaits(witness as u32);
            }
            asked.attempt.on_deadline();
            if asked.attempt.decide() == Decision::Sync {
                self.again.push(sequence);
            }
        }
        for (witness, _) in missed.iter().enumerate().filter(|(_, missed)| **missed) {
            self.paths.missed(witness);
            effects.mark(Note::Fact(Fact::Counted("curp_records_late")));
        }
        if let Some(earliest) = earliest {
            self.watching = true;
            effects.arm(Timer::Records, earliest.since(now));
        }
    }

    /// Looks whether the answers so far are enough.
    pub(super) fn decide(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let Some(asked) = self.outstanding.get_mut(sequence) else { return };
        match asked.attempt.decide() {
            Decision::Wait => {}
            Decision::Sync => self.again.push(sequence),
            Decision::Complete(reply) => {
                effects.mark(Note::Fact(Fact::Counted("curp_fast")));
                self.finish(sequence, Outcome::Replied(reply), Some(Path::Fast), None, effects);
            }
        }
    }

    pub(super) fn on_verdicts(&mut self, from: ProcessId, verdicts: Verdicts, effects: &mut Effects<Self>) {
        let now = effects.now();
        let mix = self.planted(Bug::MixReigns);
        let Some(view) = self.view.clone() else { return };
        let Some(witness) = view.witnesses.iter().position(|witness| *witness == from) else { return };
        let mut trip: Option<Span> = None;
        let later = verdicts.reign > view.reign;
        for (sequence, accepted) in verdicts.verdicts {
            if !accepted {
                effects.mark(Note::Fact(Fact::Counted("curp_rejected")));
            }
            let Some(asked) = self.outstanding.get_mut(sequence) else { continue };
            // Witnesses are counted as they stand in the view of the attempt.
            if asked.attempt.reign != Some(view.reign) {
                continue;
            }
            if verdicts.reign == view.reign {
                trip = Some(now.since(asked.attempt.sent));
            }
            let reign = if mix { view.reign } else { verdicts.reign };
            // A deployment has at most 7 replicas.
            asked.attempt.on_verdict(witness as u32, reign, accepted);
            self.decide(sequence, effects);
        }
        if let Some(trip) = trip {
            self.paths.answered(witness, trip);
        }
        if later {
            self.inquire(effects);
        }
    }
}
