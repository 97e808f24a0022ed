//! Votes, commits, and getting what is missing.

use super::super::Mutation;
use super::super::message::{Attributes, Committed, Content, InstanceId, Message, Phase, Record};
use super::recovery::{Drive, Stage};
use super::{Order, replica};
use crate::order::{Ordered, Step};
use crate::service::Reply;
use isochrone_core::{Ballot, Effects, Instant, ProcessId, ReplicaSet, Urgency};
use std::collections::BTreeMap;

/// Bytes of commands in one answer, unless a single batch is larger.
const ANSWER_BYTES: usize = 1 << 20;
/// Bytes of a commit that does not say the commands, at most: its attributes are as many numbers as there are seats.
const KNOWN_BYTES: usize = 100;

impl<V: Ordered> Order<V> {
    /// Whether a message about this instance is to be looked at further: not where it is committed, which is
    /// the answer to everything, nor where it cannot be held. `holds` says whether the sender has its commands.
    pub(super) fn admit(
        &mut self,
        from: usize,
        id: InstanceId,
        holds: bool,
        effects: &mut Effects<Self>,
    ) -> bool {
        if id.leader() >= self.count() || id.number == 0 {
            return false;
        }
        let to = self.process_of(from);
        if self.is_committed(id) {
            self.tell_commits(to, &[id], holds, effects);
            return false;
        }
        if self.open_instance(id).is_some() {
            return true;
        }
        if self.is_executed(id) {
            effects.urgently(|effects| effects.send(to, Message::Trimmed { id }));
        } else {
            self.hear_of(id.leader(), id.number);
        }
        false
    }

    /// Says what was chosen for these, which are committed here. What takes no room comes first: whoever has the commands needs no
    /// more. Then larger ones, or that they are gone, unless the receiver `holds` them: only where nothing waits on its way, since
    /// that may be what it lacks.
    fn tell_commits(&self, to: ProcessId, ids: &[InstanceId], holds: bool, effects: &mut Effects<Self>) {
        let (mut brief, mut full, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        let (mut small, mut bytes) = (0, 0);
        for id in ids {
            let Some(instance) = self.instance(*id) else { continue };
            let (id, attributes, content) = (*id, instance.attributes, instance.content());
            let size = if instance.noop { 0 } else { self.bytes_of(id) as usize };
            let room = Urgency::SMALL / 2 - small;
            if let Some(content) = &content
                && size + KNOWN_BYTES <= room
            {
                small += size + KNOWN_BYTES;
                brief.push(Committed { id, content: content.clone(), attributes });
                continue;
            }
            if KNOWN_BYTES <= room {
                small += KNOWN_BYTES;
                brief.push(Committed { id, content: Content::Known, attributes });
            }
            match content {
                _ if holds => {}
                Some(content) if bytes < ANSWER_BYTES => {
                    bytes += size;
                    full.push(Committed { id, content, attributes });
                }
                Some(_) => {}
                None => gone.push(id),
            }
        }
        // Not ahead: what is committed is chosen, whatever this replica forgets, unless its record alone says so; and then the
        // record may still be on its way.
        if !brief.is_empty() {
            effects.urgently(|effects| effects.send(to, Message::Commit { list: brief }));
        }
        effects.repeating(|effects| {
            gone.into_iter().for_each(|id| effects.send(to, Message::Trimmed { id }));
            if !full.is_empty() {
                effects.send(to, Message::Commit { list: full });
            }
        });
    }

    /// Votes in a ballot of this replica, durably before it leaves.
    pub(super) fn vote(
        &mut self,
        id: InstanceId,
        ballot: Ballot,
        content: Content<V>,
        attributes: Attributes,
        effects: &mut Effects<Self>,
    ) {
        self.cast(id, ballot, &content, attributes);
        effects.record(Record::Accepted { id, ballot, content, attributes });
    }

    /// The state behind a vote; false where its content is not known.
    pub(super) fn cast(
        &mut self,
        id: InstanceId,
        ballot: Ballot,
        content: &Content<V>,
        attributes: Attributes,
    ) -> bool {
        if let Content::Batch(batch) = content {
            self.learn_batch(id, batch);
        }
        let Some(instance) = self.open_instance(id) else { return false };
        if instance.is_committed() || *content == Content::Known && instance.batch.is_none() {
            return false;
        }
        instance.phase = Phase::Accepted;
        instance.promised = ballot.max(instance.promised);
        instance.accepted = ballot;
        instance.noop = *content == Content::NoOp;
        instance.attributes = attributes;
        self.index_instance(id);
        true
    }

    /// Asks all for their votes on what this replica has just voted for. `holders` were sent the commands.
    pub(super) fn propose_vote(
        &mut self,
        id: InstanceId,
        ballot: Ballot,
        holders: ReplicaSet,
        effects: &mut Effects<Self>,
    ) {
        let voters = ReplicaSet::from_iter([replica(self.me)]);
        let due = effects.now() + self.parameters.resend;
        self.postpone(id, due);
        let mut to: Vec<usize> = self.nearest();
        if self.parameters.thrifty && ballot == Ballot::ZERO {
            to.truncate(self.majority() - 1);
        }
        let told = holders.iter().chain(to.iter().map(|seat| replica(*seat))).collect();
        self.drives.insert(id, Drive { ballot, tries: 0, stage: Stage::Accept { voters, holders: told } });
        self.send_accept(id, &to, holders, effects);
        self.count_votes(id, effects);
    }

    /// Asks these for their votes: `holders` without the commands, so that it may overtake what waits.
    pub(super) fn send_accept(
        &self,
        id: InstanceId,
        to: &[usize],
        holders: ReplicaSet,
        effects: &mut Effects<Self>,
    ) {
        let Some(Drive { ballot, stage: Stage::Accept { .. }, .. }) = self.drives.get(&id) else { return };
        let Some(instance) = self.instance(id) else { return };
        let Some(content) = instance.content() else { return };
        for seat in to {
            let brief = holders.contains(replica(*seat)) || content == Content::NoOp;
            let known = brief && content != Content::NoOp;
            let content = if known { Content::Known } else { content.clone() };
            let message = Message::Accept { id, ballot: *ballot, content, attributes: instance.attributes };
            effects.urgently_if(brief, |effects| effects.send(self.process_of(*seat), message));
        }
    }

    pub(super) fn on_accept(
        &mut self,
        from: usize,
        id: InstanceId,
        ballot: Ballot,
        content: Content<V>,
        attributes: Attributes,
        effects: &mut Effects<Self>,
    ) {
        if !self.admit(from, id, content != Content::NoOp, effects) {
            return;
        }
        self.hear_of(id.leader(), id.number);
        let Some(instance) = self.instance(id) else { return };
        if ballot < instance.promised {
            let promised = instance.promised;
            let rejected = Message::Rejected { id, promised };
            return effects.urgently(|effects| effects.send_ahead(self.process_of(from), rejected));
        }
        let voted = instance.phase == Phase::Accepted && instance.accepted == ballot;
        if self.drives.get(&id).is_some_and(|drive| drive.ballot < ballot) {
            self.drives.remove(&id);
        }
        if !voted {
            if !self.cast(id, ballot, &content, attributes) {
                // The commands that the sender thinks are here are not; it says them when it asks again.
                return;
            }
            effects.record(Record::Accepted { id, ballot, content, attributes });
        }
        let due = effects.now() + self.parameters.resend;
        self.postpone(id, due);
        let accepted = Message::Accepted { id, ballot };
        effects.urgently(|effects| effects.send(self.process_of(from), accepted));
    }

    pub(super) fn on_accepted(
        &mut self,
        from: usize,
        id: InstanceId,
        ballot: Ballot,
        effects: &mut Effects<Self>,
    ) {
        if let Some(drive) = self.drives.get_mut(&id)
            && drive.ballot == ballot
            && let Stage::Accept { voters, .. } = &mut drive.stage
        {
            voters.insert(replica(from));
            self.count_votes(id, effects);
        }
    }

    /// Commits what a majority has voted for. The own vote was durable before the others were asked.
    fn count_votes(&mut self, id: InstanceId, effects: &mut Effects<Self>) {
        let Some(Drive { stage: Stage::Accept { voters, .. }, .. }) = self.drives.get(&id) else { return };
        if voters.len() < self.majority() {
            return;
        }
        let Some(instance) = self.instance(id) else { return };
        let (noop, attributes) = (instance.noop, instance.attributes);
        // Alone, this replica has nobody else's record to rest on.
        let alone = self.count() == 1;
        self.commit(id, noop, attributes, alone, effects);
    }

    /// It is chosen, says this replica: to be told to all. A commit that rests on nothing but this replica's
    /// knowledge of the answers (`record`) leaves behind its record, since a recovery that hears this
    /// replica deny it gives the instance up.
    pub(super) fn commit(
        &mut self,
        id: InstanceId,
        noop: bool,
        attributes: Attributes,
        record: bool,
        effects: &mut Effects<Self>,
    ) {
        let holders = match self.drives.get(&id).map(|drive| &drive.stage) {
            Some(Stage::PreAccept { asked, .. }) => *asked,
            Some(Stage::Accept { holders, .. }) => *holders,
            _ => ReplicaSet::EMPTY,
        };
        let content = if noop { Content::NoOp } else { Content::Known };
        let committed = Committed { id, content, attributes };
        if record && !self.mutated(Mutation::CommitBeforeDurable) {
            effects.record(Record::Committed(committed.clone()));
        } else {
            effects.record_lazily(Record::Committed(committed.clone()));
        }
        self.commits.push((committed, holders));
        self.become_committed(id, noop, attributes, effects);
    }

    /// The state behind a commit, and whoever waited for it.
    fn become_committed(
        &mut self,
        id: InstanceId,
        noop: bool,
        attributes: Attributes,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        self.drives.remove(&id);
        self.set_committed(id, noop, attributes);
        if id.leader() == self.me
            && let Some(flight) = self.flights.get_mut(&id.number)
            && flight.committed.is_none()
        {
            flight.committed = Some(now);
            let (first, queued, proposed) = (flight.first, flight.queued, flight.proposed);
            let batch = self.instance(id).and_then(|instance| instance.batch.clone());
            if let Some(batch) = batch {
                if noop {
                    // Given up by a recovery: its values take another instance.
                    self.notes.push("given_up");
                    self.flights.remove(&id.number);
                    let bytes = self.bytes_of(id);
                    self.queue.retry(first, batch, bytes, queued);
                } else if self.parameters.reply == Reply::Commit {
                    let spans =
                        [proposed.since(queued), Default::default(), now.since(proposed), Default::default()];
                    for value in batch.iter() {
                        self.ready.push_back(Step::Committed(value.clone(), Some(spans)));
                    }
                }
            }
        }
        self.wake_recoveries(id, effects);
    }

    /// As far as a replay needs it.
    pub(super) fn set_committed(&mut self, id: InstanceId, noop: bool, attributes: Attributes) {
        self.pending.remove(&id);
        self.waiting.remove(&id);
        self.hear_of(id.leader(), id.number);
        if self.behind.is_some_and(|(_, lacked)| lacked == id) {
            self.behind = None;
        }
        let executed = self.is_executed(id);
        let Some(instance) = self.open_instance(id) else { return };
        if instance.is_committed() {
            return;
        }
        let indexed = instance.indexed;
        instance.phase = Phase::Committed;
        instance.noop = noop;
        instance.attributes = attributes;
        for (seat, dep) in attributes.deps.into_iter().enumerate() {
            self.hear_of(seat, dep);
        }
        if attributes.seq > indexed || indexed == 0 {
            self.index_instance(id);
        }
        let again = self.unlean(id, noop);
        if !executed {
            self.link(id);
            // Given up, it may be known here by its number alone; whoever waits to know what it holds, knows.
            self.relink(id);
        }
        for leaning in again {
            if !self.is_executed(leaning) {
                self.link(leaning);
            }
        }
    }

    /// Tells all what this replica has found to be chosen, in one message to each.
    pub(super) fn send_commits(&mut self, effects: &mut Effects<Self>) {
        if self.commits.is_empty() {
            return;
        }
        let commits = std::mem::take(&mut self.commits);
        for seat in self.peers() {
            let said = |(committed, holders): &(Committed<V>, ReplicaSet)| {
                let mut committed = committed.clone();
                let known = committed.content == Content::NoOp || holders.contains(replica(seat));
                if !known && let Some(content) = self.instance(committed.id).and_then(|held| held.content()) {
                    committed.content = content;
                }
                committed
            };
            let list = commits.iter().map(said).collect();
            effects.send(self.process_of(seat), Message::Commit { list });
        }
    }

    pub(super) fn on_commit(&mut self, list: Vec<Committed<V>>, effects: &mut Effects<Self>) {
        for committed in list {
            let Committed { id, content, attributes } = committed;
            if id.leader() >= self.count() || id.number == 0 || self.is_committed(id) {
                continue;
            }
            if let Content::Batch(batch) = &content {
                self.learn_batch(id, batch);
            }
            let Some(instance) = self.open_instance(id) else {
                self.hear_of(id.leader(), id.number);
                continue;
            };
            if content == Content::Known && instance.batch.is_none() {
                // Who recovers it asks for the commands in its own time.
                if !self.drives.contains_key(&id) {
                    let due = effects.now() + self.parameters.repair;
                    self.need(id, due);
                }
                continue;
            }
            let noop = content == Content::NoOp;
            effects.record_lazily(Record::Committed(Committed { id, content, attributes }));
            self.become_committed(id, noop, attributes, effects);
        }
    }

    pub(super) fn on_fetch(&mut self, from: usize, ids: Vec<InstanceId>, effects: &mut Effects<Self>) {
        let (mut committed, mut driven) = (Vec::new(), Vec::new());
        let to = self.process_of(from);
        for id in ids {
            if id.leader() >= self.count() {
                continue;
            }
            if self.is_committed(id) {
                committed.push(id);
                driven.push(id);
            } else if self.is_executed(id) {
                // Whoever lacks this lacks it for good.
                effects.urgently(|effects| effects.send(to, Message::Trimmed { id }));
            } else if self.drives.contains_key(&id) {
                driven.push(id);
            }
        }
        self.tell_commits(to, &committed, false, effects);
        // Behind that: one that lacks the commands, which may be long on their way, would ask for them again at once.
        if !driven.is_empty() {
            effects.urgently(|effects| effects.send(to, Message::Driven { ids: driven }));
        }
    }

    /// Somebody sees to these, who has only to send what takes long on its way.
    pub(super) fn on_driven(&mut self, ids: Vec<InstanceId>, now: Instant) {
        for id in ids {
            if !self.drives.contains_key(&id)
                && let Some(pending) = self.pending.get_mut(&id)
            {
                (pending.tries, pending.staggered) = (0, false);
                pending.due = now + self.parameters.resend;
            }
        }
    }

    pub(super) fn on_trimmed(&mut self, from: ProcessId, id: InstanceId, effects: &mut Effects<Self>) {
        if id.leader() < self.count() && !self.is_executed(id) && !self.is_committed(id) {
            self.behind = Some((from, id));
            if !self.paused {
                self.paused = true;
                effects.record_lazily(Record::Paused);
            }
        }
    }

    /// Asks for what was chosen, each of those who may know.
    pub(super) fn send_fetches(
        &self,
        fetches: BTreeMap<usize, Vec<InstanceId>>,
        effects: &mut Effects<Self>,
    ) {
        for (seat, ids) in fetches {
            effects.urgently(|effects| effects.send_ahead(self.process_of(seat), Message::Fetch { ids }));
        }
    }
}
