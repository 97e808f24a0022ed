//! Voting: for what clients ask in the fast ballot, for what the coordinator proposes in the classic one.

use super::message::{Message, Name, Note, Record, Timer, Values};
use super::order::{Order, Role};
use super::{Learners, Mutation};
use crate::order::Ordered;
use isochrone_core::{Admit, Ballot, ClientId, Effects, ProcessId, Slot};
use std::collections::BTreeMap;
use std::sync::Arc;

impl<V: Ordered> Order<V> {
    /// Votes for what waits, at the next indices.
    pub(super) fn cast(&mut self, effects: &mut Effects<Self>) {
        if self.pending.is_empty() {
            return self.queue.clear();
        }
        self.submit_soon(effects);
        if !self.is_open() || self.queue.is_empty() {
            return;
        }
        let (reign, first, now) = (self.opened, self.next, effects.now());
        let (mut names, mut values) = (Vec::new(), Vec::new());
        let mut told = BTreeMap::<ClientId, Vec<(u64, Slot, u64)>>::new();
        while self.next.since(self.decided) < self.parameters.window {
            let Some(id) = self.queue.pop_front() else { break };
            let slot = self.next;
            let Some(pending) = self.pending.get_mut(&id).filter(|pending| pending.slot.is_none()) else {
                continue;
            };
            pending.slot = Some(slot);
            let (value, digest) = (pending.value.clone(), pending.digest);
            names.push(Name { id, digest });
            values.push(value.clone());
            if self.parameters.cast {
                told.entry(id.client).or_default().push((id.sequence, slot, digest));
            }
            self.set_vote(slot, reign, false, Arc::from([value]), now);
            self.next = slot.next();
        }
        if names.is_empty() {
            return;
        }
        let voted = Record::Voted { reign, first, values };
        let votes = Message::Votes { reign, first, names: Arc::from(names) };
        let early = self.parameters.mutated(Mutation::VoteBeforeDurable);
        if !early {
            effects.record(voted.clone());
        }
        let mut send = |to, message| {
            effects.urgently(|effects| match early {
                true => effects.send_ahead(to, message),
                false => effects.send(to, message),
            });
        };
        for member in self.members.iter() {
            if self.parameters.learners == Learners::All || member.replica == reign.owner {
                send(member.process, votes.clone());
            }
        }
        // A group has at most 7 members.
        let members = self.members.len() as u8;
        for (client, votes) in told {
            let incarnation = client.incarnation;
            send(client.process, Message::Cast { incarnation, reign, members, votes });
        }
        if early {
            effects.record_lazily(voted);
        }
    }

    /// No fast vote is cast below `upto` from now on. The coordinator is told where it waits for one.
    /// `durable` says that a record made before says as much.
    pub(super) fn skip_to(&mut self, upto: Slot, durable: bool, effects: &mut Effects<Self>) {
        let from = self.next;
        if upto <= from {
            return;
        }
        let open = |slot: &Slot| !self.is_decided(*slot);
        let Some(from) = from.until(upto).find(open) else {
            self.next = upto;
            return;
        };
        self.next = upto;
        if !durable {
            effects.record(Record::Skipped { next: upto });
        }
        if self.is_open()
            && let Some(coordinator) = self.process_of(self.opened.owner)
        {
            effects.mark(Note::Counted("indices_skipped"));
            let (reign, votes, decided) = (self.opened, Vec::new(), self.decided);
            let report = Message::Report { reign, from, upto, votes, decided };
            effects.urgently(|effects| effects.send(coordinator, report));
        }
    }

    pub(super) fn on_ask(
        &mut self,
        from: ProcessId,
        reign: Ballot,
        first: Slot,
        upto: Slot,
        effects: &mut Effects<Self>,
    ) {
        if reign < self.promise.ballot() {
            let (promised, decided) = (self.promise.ballot(), self.decided);
            let rejected = Message::Rejected { promised, decided };
            return effects.urgently(|effects| effects.send_ahead(from, rejected));
        }
        if reign != self.opened || !self.is_open() || self.is_beyond(upto) {
            return;
        }
        // Where none is cast any more is told from there on, or those votes were waited for until they are late.
        let first = first.min(self.next);
        if upto > self.next {
            self.next = upto;
            effects.record(Record::Skipped { next: upto });
        }
        // Of what is decided here the votes are forgotten; it is told as decided.
        let (first, decided) = (first.max(self.decided), self.decided);
        let together = self.parameters.mutated(Mutation::CountReignsTogether);
        let vote = |slot| {
            let vote = self.cells.get(slot)?.vote.as_ref()?;
            let counts = !vote.classic && (vote.reign == reign || together);
            counts.then(|| Some((slot, vote.values.first()?.clone()))).flatten()
        };
        let votes: Vec<_> = first.until(upto).filter_map(vote).collect();
        let small = votes.is_empty();
        let report = Message::Report { reign, from: first, upto, votes, decided };
        // Held: every vote was recorded before. Values may be on their way, where they were asked for before.
        match small {
            true => effects.urgently(|effects| effects.send(from, report)),
            false => effects.repeating(|effects| effects.send(from, report)),
        }
    }

    pub(super) fn on_accept(
        &mut self,
        from: ProcessId,
        reign: Ballot,
        entries: &[(Slot, Values<V>)],
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        if !self.admit(from, reign, effects) {
            return;
        }
        self.accept(from, reign, entries, effects);
        self.hear_decided(decided, from, effects);
    }

    /// Votes in the classic ballot and says so. For a decided index there is nothing left to vote for, and
    /// nothing can depend on the vote: every later ballot has the decided value.
    pub(super) fn accept(
        &mut self,
        from: ProcessId,
        reign: Ballot,
        entries: &[(Slot, Values<V>)],
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let (mut slots, mut new) = (Vec::new(), Vec::new());
        let mut next = self.next;
        for (slot, values) in entries {
            if self.is_beyond(*slot) {
                continue;
            }
            slots.push(*slot);
            let voted = |vote: &super::message::Vote<V>| vote.reign == reign && vote.classic;
            let known = self.cells.get(*slot).and_then(|cell| cell.vote.as_ref()).is_some_and(voted);
            if known || self.is_decided(*slot) {
                continue;
            }
            self.set_vote(*slot, reign, true, values.clone(), now);
            next = next.max(slot.next());
            new.push((*slot, values.clone()));
        }
        if !new.is_empty() {
            effects.record(Record::Accepted { reign, entries: new });
        }
        self.skip_to(next, true, effects);
        if !slots.is_empty() {
            effects.urgently(|effects| effects.send(from, Message::Accepted { reign, slots }));
        }
    }

    pub(super) fn on_open(
        &mut self,
        from: ProcessId,
        reign: Ballot,
        (floor, closed, entries): (Slot, bool, &[(Slot, Values<V>)]),
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        if !self.admit(from, reign, effects) {
            return;
        }
        if self.opened != reign {
            // Who lags far behind must catch up before it votes.
            if self.is_beyond(floor) {
                return self.hear_decided(decided, from, effects);
            }
            self.enter(reign, floor, closed, entries, effects);
        }
        if !entries.is_empty() {
            self.accept(from, reign, entries, effects);
        }
        self.hear_decided(decided, from, effects);
    }

    /// Takes in what a reign begins with.
    pub(super) fn enter(
        &mut self,
        reign: Ballot,
        floor: Slot,
        closed: bool,
        entries: &[(Slot, Values<V>)],
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        (self.opened, self.closed) = (reign, closed);
        let mut new = Vec::new();
        for (slot, values) in entries {
            if !self.is_decided(*slot) {
                self.set_vote(*slot, reign, true, values.clone(), now);
                new.push((*slot, values.clone()));
            }
        }
        self.next = self.next.max(floor);
        effects.record(Record::Opened { reign, floor, closed, entries: new });
    }

    pub(super) fn on_heartbeat(
        &mut self,
        from: ProcessId,
        reign: Ballot,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        if !self.admit(from, reign, effects) {
            return;
        }
        let (opened, next) = (self.opened == reign, self.next);
        // Ahead: what is said of votes and decisions here is a hint where to look.
        let heard = Message::Heard { reign, opened, next, decided: self.decided };
        effects.urgently(|effects| effects.send_ahead(from, heard));
        self.hear_decided(decided, from, effects);
    }

    /// Takes part in a coordinator's reign, if that is not too old, and follows it. Records the promise where
    /// it rises.
    pub(super) fn admit(&mut self, from: ProcessId, reign: Ballot, effects: &mut Effects<Self>) -> bool {
        self.seen = self.seen.max(reign);
        self.watch.lives(reign, effects.now());
        match self.promise.admit(reign) {
            Admit::Stale => {
                let (promised, decided) = (self.promise.ballot(), self.decided);
                let rejected = Message::Rejected { promised, decided };
                effects.urgently(|effects| effects.send_ahead(from, rejected));
                return false;
            }
            Admit::Fresh => effects.record(Record::Promised { reign }),
            Admit::Same => {}
        }
        if reign.owner == self.me {
            return true;
        }
        self.watch.heard = effects.now();
        if self.watch.leader != Some(reign) || !matches!(self.role, Role::Follower) {
            self.step_down(effects);
            self.watch.leader = Some(reign);
            self.watch.failures = 0;
            self.draw_patience(effects);
            self.task_done(reign.owner, effects);
        }
        true
    }

    /// Commands that have waited here for long are to be submitted.
    pub(super) fn submit_soon(&mut self, effects: &mut Effects<Self>) {
        if !self.submitting {
            self.submitting = true;
            effects.arm(Timer::Submit, self.parameters.resend);
        }
    }

    /// The timer of submissions. What has no place after this long has collided, or its votes were lost, or
    /// it reached too few replicas: the coordinator is to give it one.
    pub(super) fn submit_late(&mut self, effects: &mut Effects<Self>) {
        self.submitting = false;
        if self.pending.is_empty() {
            return;
        }
        self.submit_soon(effects);
        let (now, patience) = (effects.now(), self.parameters.resend);
        let late = self.pending.values_mut().filter(|pending| now.since(pending.since) >= patience);
        let mut values = Vec::new();
        for pending in late.take(self.parameters.batch_commands) {
            pending.since = now;
            values.push(pending.value.clone());
        }
        effects.repeating(|effects| self.submit(values, effects));
    }

    pub(super) fn submit_nameless(&mut self, effects: &mut Effects<Self>) {
        let values = std::mem::take(&mut self.nameless);
        self.submit(values, effects);
    }

    fn submit(&mut self, values: Vec<V>, effects: &mut Effects<Self>) {
        if values.is_empty() {
            return;
        }
        match self.coordinator_process() {
            Some(coordinator) if coordinator == self.process => self.on_submit(values, effects),
            // Ahead: a command rests on nothing.
            Some(coordinator) => effects.send_ahead(coordinator, Message::Submit { values }),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastpaxos::order::opened::{opened, process};
    use isochrone_core::{Effect, Instant, Process, Stamp};

    #[test]
    fn who_is_asked_for_what_lies_ahead_tells_of_all_before_it_where_it_casts_no_vote_any_more() {
        let (mut order, mut outbox) = opened(1);
        let mut told = |from, upto| {
            let ask = Message::Ask { reign: order.reign(), from: Slot(from), upto: Slot(upto) };
            order.receive(process(0), ask, outbox.input(Instant::from_nanos(1), Stamp::ZERO));
            outbox.drain().find_map(|effect| match effect {
                Effect::Send { message: Message::Report { from, upto, .. }, .. } => Some((from.0, upto.0)),
                _ => None,
            })
        };
        assert_eq!(told(7, 8), Some((0, 8)));
        assert_eq!(told(3, 5), Some((3, 5)), "it has told of the others");
        assert_eq!(told(8, 9), Some((8, 9)));
    }
}
