//! Reads at a copy that is nearer than the leader ([`crate::curp::nearby`] chooses it).

use super::{Client, Near, Timer};
use crate::curp::decision::Attempt;
use crate::curp::{Bug, Distant, Kept, Recording, Records};
use crate::message::{Message, Note};
use crate::request::Outcome;
use isochrone_core::{Effects, Fact, Instant, Path, ProcessId, StateMachine};

impl<S: StateMachine, W: Recording<S::Command>> Client<S, W> {
    /// Has a copy answer reads, by way of its witness.
    pub(super) fn send_near(
        &mut self,
        to: ProcessId,
        kept: Vec<Kept<S::Command>>,
        effects: &mut Effects<Self>,
    ) {
        let (client, below) = (self.me, self.below());
        let Some(reign) = self.view.as_ref().map(|view| view.reign).filter(|_| !kept.is_empty()) else {
            return;
        };
        if let Some(message) = W::near(Records { reign, client, below, kept }) {
            effects.send(to, Message::Order { epoch: 0, message });
        }
    }

    pub(super) fn watch_reads(&mut self, until: Instant, effects: &mut Effects<Self>) {
        if self.watching_reads.is_none_or(|watching| until < watching) {
            self.watching_reads = Some(until);
            effects.arm(Timer::Reads, until.since(effects.now()));
        }
    }

    /// The deadline of some reads at a copy may have come: the leader is asked for them.
    pub(super) fn on_reads_deadline(&mut self, effects: &mut Effects<Self>) {
        self.watching_reads = None;
        let (now, retry) = (effects.now(), self.setup.service.retry);
        let (mut earliest, mut silent) = (None, None);
        for (sequence, asked) in self.outstanding.iter_mut() {
            let Near::Asked(node, _, until) = asked.near else { continue };
            if until > now {
                earliest = Some(earliest.map_or(until, |earliest: Instant| earliest.min(until)));
                continue;
            }
            (asked.near, asked.due) = (Near::Over, now + retry);
            asked.attempt = Attempt::new(asked.attempt.reign, None, now);
            silent = Some(node);
            self.again.push(sequence);
        }
        if let Some(node) = silent {
            self.nearby.missed(node, &self.fast, now);
            effects.mark(Note::Fact(Fact::Counted("curp_near_late")));
        }
        if let Some(earliest) = earliest {
            self.watch_reads(earliest, effects);
        }
    }

    /// A copy does not answer reads: the leader is asked at once.
    pub(super) fn on_distant(&mut self, from: ProcessId, distant: Distant, effects: &mut Effects<Self>) {
        let (now, retry) = (effects.now(), self.setup.service.retry);
        for sequence in distant.sequences {
            let Some(asked) = self.outstanding.get_mut(sequence) else { continue };
            let Near::Asked(node, at, _) = asked.near else { continue };
            if node == from.node {
                (asked.near, asked.due, asked.early) = (Near::Over, now + retry, None);
                asked.attempt = Attempt::new(asked.attempt.reign, None, now);
                self.nearby.refused(node, now.since(at), &self.fast, now);
                effects.mark(Note::Fact(Fact::Counted("curp_near_refused")));
                self.again.push(sequence);
            }
        }
        if self.view.as_ref().is_some_and(|view| view.reign != distant.reign) {
            self.inquire(effects);
        }
    }

    /// A copy has answered a read.
    pub(super) fn on_near(
        &mut self,
        from: ProcessId,
        sequence: u64,
        reply: S::Reply,
        effects: &mut Effects<Self>,
    ) {
        let (now, early) = (effects.now(), self.planted(Bug::BackupBeforeWitness));
        let Some(asked) = self.outstanding.get_mut(sequence) else { return };
        // Where the leader was asked since, what follows the read may have been run before this answer was made.
        let Near::Asked(_, at, _) = asked.near else { return };
        self.nearby.answered(from.node, now.since(at));
        if early && asked.early.is_none() {
            (asked.early, asked.near) = (Some(reply), Near::Untried);
            return self.fresh.push(sequence);
        }
        let reply = asked.early.take().unwrap_or(reply);
        effects.mark(Note::Fact(Fact::Counted("curp_near")));
        self.finish(sequence, Outcome::Replied(reply), Some(Path::Lease), None, effects);
    }
}
