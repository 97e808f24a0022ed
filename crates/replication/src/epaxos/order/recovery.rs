//! Finishing an instance whose command leader may be gone. The argument stands in [`crate::epaxos`].

use super::super::Mutation;
use super::super::message::{Attributes, Content, InstanceId, Message, Phase, Record, Report, SEATS};
use super::{Order, replica, touches_of};
use crate::order::Ordered;
use isochrone_core::{Ballot, Effects, ReplicaSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A ballot of this replica under way for one instance.
#[derive(Clone, Hash, Debug)]
pub(super) struct Drive<V: Ordered> {
    pub(super) ballot: Ballot,
    /// How often answers were asked for again.
    pub(super) tries: u32,
    pub(super) stage: Stage<V>,
}

/// How far it has come.
#[derive(Clone, Hash, Debug)]
pub(super) enum Stage<V: Ordered> {
    /// The leader gathers what others know.
    PreAccept {
        /// What they say, the leader first.
        answers: Vec<(usize, Attributes)>,
        /// Who settles the attributes alone, if anybody.
        delegate: Option<usize>,
        /// Who was sent the commands.
        asked: ReplicaSet,
        /// Whether it leaves behind records, and the end of the numbers that they reserve.
        behind: Option<u64>,
        /// What it had executed when it proposed.
        executed: [u64; SEATS],
    },
    /// A recoverer gathers promises.
    Gather { reports: BTreeMap<usize, Report<V>> },
    /// It asks those who promised what rules the fast path out.
    Validate(Validation<V>),
    /// It waits for instances that may.
    Wait(Validation<V>),
    /// It gathers votes.
    Accept {
        voters: ReplicaSet,
        /// Who was sent the commands.
        holders: ReplicaSet,
    },
}

/// What a recovery that may have to follow a fast commit is asking about.
#[derive(Clone, Hash, Debug)]
pub(super) struct Validation<V> {
    batch: Arc<[V]>,
    attributes: Attributes,
    /// Those who promised.
    quorum: ReplicaSet,
    /// How many of them have pre-accepted as was proposed.
    votes: usize,
    answered: ReplicaSet,
    /// What may rule it out, and whether it is committed.
    conflicts: BTreeMap<InstanceId, bool>,
}

impl<V: Ordered> Order<V> {
    /// Begins a ballot of this replica above all it has met.
    pub(super) fn recover(&mut self, id: InstanceId, effects: &mut Effects<Self>) {
        let me = replica(self.me);
        let Some(instance) = self.open_instance(id) else { return };
        if instance.is_committed() {
            return;
        }
        let before = instance.promised;
        let ballot = before.next(me);
        instance.promised = ballot;
        effects.record(Record::Promised { id, ballot });
        self.notes.push("recoveries");
        let reports = BTreeMap::from([(self.me, self.report(id, before))]);
        self.drives.insert(id, Drive { ballot, tries: 0, stage: Stage::Gather { reports } });
        self.postpone(id, effects.now() + self.parameters.stagger + self.parameters.repair);
        for seat in self.peers() {
            let recover = Message::Recover { id, ballot };
            effects.urgently(|effects| effects.send(self.process_of(seat), recover));
        }
        self.weigh_reports(id, false, effects);
    }

    /// What this replica tells a recoverer; `before` is what it had promised until then.
    fn report(&self, id: InstanceId, before: Ballot) -> Report<V> {
        let Some(instance) = self.instance(id) else {
            return Report {
                phase: Phase::Initial,
                accepted: Ballot::ZERO,
                content: None,
                attributes: Attributes::default(),
                initial: None,
            };
        };
        let single = self.mutated(Mutation::SingleBallot) && instance.phase == Phase::Accepted;
        Report {
            phase: instance.phase,
            accepted: if single { before } else { instance.accepted },
            content: if instance.phase == Phase::Initial { None } else { instance.content() },
            attributes: instance.attributes,
            initial: instance.initial,
        }
    }

    pub(super) fn on_recover(
        &mut self,
        from: usize,
        id: InstanceId,
        ballot: Ballot,
        effects: &mut Effects<Self>,
    ) {
        if !self.admit(from, id, false, effects) {
            return;
        }
        self.hear_of(id.leader(), id.number);
        let to = self.process_of(from);
        let Some(instance) = self.instance_mut(id) else { return };
        let before = instance.promised;
        if ballot < before {
            let rejected = Message::Rejected { id, promised: before };
            return effects.urgently(|effects| effects.send_ahead(to, rejected));
        }
        if ballot > before {
            instance.promised = ballot;
            effects.record(Record::Promised { id, ballot });
            self.drives.remove(&id);
        }
        // Another is at work: this replica's turn comes later.
        self.postpone(id, effects.now() + self.parameters.resend * 2);
        let report = Box::new(self.report(id, before));
        let large = report.content.is_some() && self.is_large(id);
        let recovered = Message::Recovered { id, ballot, report };
        match large {
            // The first answer to a ballot repeats nothing.
            true => effects.repeating_if(ballot == before, |effects| effects.send(to, recovered)),
            false => effects.urgently(|effects| effects.send(to, recovered)),
        }
    }

    pub(super) fn on_recovered(
        &mut self,
        from: usize,
        id: InstanceId,
        ballot: Ballot,
        report: Report<V>,
        effects: &mut Effects<Self>,
    ) {
        let Some(drive) = self.drives.get_mut(&id) else { return };
        if drive.ballot != ballot {
            return;
        }
        if let Stage::Gather { reports } = &mut drive.stage {
            reports.entry(from).or_insert(report);
            self.weigh_reports(id, false, effects);
        }
    }

    /// Goes on when a quorum has promised: at once when nobody else is heard of, else when the others have had
    /// their time (`late`). The more have promised, the less stays open.
    pub(super) fn weigh_reports(&mut self, id: InstanceId, late: bool, effects: &mut Effects<Self>) {
        let Some(Drive { ballot, stage: Stage::Gather { reports }, .. }) = self.drives.get(&id) else {
            return;
        };
        let ballot = *ballot;
        let quorum: ReplicaSet = reports.keys().map(|seat| replica(*seat)).collect();
        if quorum.len() < self.majority() {
            return;
        }
        // A vote settles it, whoever else might answer; of several the one in the highest ballot.
        let votes = reports.values().filter(|report| report.phase >= Phase::Accepted);
        if let Some(report) = votes.max_by_key(|report| report.accepted) {
            let (content, attributes) = (report.content.clone().unwrap_or(Content::Known), report.attributes);
            return self.adopt(id, ballot, content, attributes, effects);
        }
        if self.mutated(Mutation::PublishedRecovery) {
            return self.recover_as_published(id, effects);
        }
        // The leader promised before it had committed, and commits no more: it would say so else. A command
        // that is given up here is proposed again by its leader, in another instance.
        if quorum.contains(replica(id.leader())) {
            return self.adopt(id, ballot, Content::NoOp, Attributes::default(), effects);
        }
        let missing = self.peers().filter(|seat| !quorum.contains(replica(*seat)));
        if !late && missing.into_iter().any(|seat| !self.suspects(seat)) {
            return;
        }
        let Some(Drive { stage: Stage::Gather { reports }, .. }) = self.drives.get(&id) else { return };
        let unchanged = |report: &&Report<V>| {
            report.phase == Phase::PreAccepted && report.initial == Some(report.attributes)
        };
        let as_proposed: Vec<&Report<V>> = reports.values().filter(unchanged).collect();
        let votes = as_proposed.len();
        let proposal = as_proposed.first().and_then(|report| match &report.content {
            Some(Content::Batch(batch)) => Some((batch.clone(), report.attributes)),
            _ => None,
        });
        match proposal {
            // Of a fast quorum at most `spared` are missing among those who promised.
            Some((batch, attributes)) if votes + self.spared() >= quorum.len() => {
                if self.mutated(Mutation::NoValidation) {
                    return self.adopt(id, ballot, Content::Batch(batch), attributes, effects);
                }
                self.notes.push("validations");
                let (answered, conflicts) = (ReplicaSet::EMPTY, BTreeMap::new());
                let validation = Validation { batch, attributes, quorum, votes, answered, conflicts };
                self.validate(id, ballot, validation, effects);
            }
            _ => self.adopt(id, ballot, Content::NoOp, Attributes::default(), effects),
        }
    }

    /// The rule first published, for the larger fast quorum.
    fn recover_as_published(&mut self, id: InstanceId, effects: &mut Effects<Self>) {
        let Some(Drive { ballot, stage: Stage::Gather { reports }, .. }) = self.drives.get(&id) else {
            return;
        };
        let ballot = *ballot;
        let held: Vec<(usize, Report<V>)> = reports
            .iter()
            .filter(|(_, report)| report.phase == Phase::PreAccepted)
            .map(|(seat, report)| (*seat, report.clone()))
            .collect();
        let Some((_, first)) = held.first() else {
            return self.adopt(id, ballot, Content::NoOp, Attributes::default(), effects);
        };
        let leader = held.iter().any(|(seat, _)| *seat == id.leader());
        let content = first.content.clone().unwrap_or(Content::Known);
        let equal = |attributes: Attributes| held.iter().filter(|(_, r)| r.attributes == attributes).count();
        let enough = held.iter().find(|(_, report)| equal(report.attributes) + 1 >= self.majority());
        let attributes = match enough {
            Some((_, report)) if !leader => report.attributes,
            _ => {
                let mut union = first.attributes;
                held.iter().for_each(|(_, report)| union.merge(&report.attributes));
                // Phase 1 again, without the fast path.
                if let Some(Content::Batch(batch)) = &first.content {
                    union.merge(&self.interference(&touches_of(batch), id, false, &self.settled));
                }
                union
            }
        };
        self.adopt(id, ballot, content, attributes, effects);
    }

    /// Votes for this in the recoverer's ballot and asks all to.
    fn adopt(
        &mut self,
        id: InstanceId,
        ballot: Ballot,
        content: Content<V>,
        attributes: Attributes,
        effects: &mut Effects<Self>,
    ) {
        if content == Content::NoOp {
            self.notes.push("recovered_noop");
        }
        // Who has reported the commands or was asked about them has them in its journal.
        let holders = match self.drives.get(&id).map(|drive| &drive.stage) {
            Some(Stage::Gather { reports }) => {
                let held =
                    reports.iter().filter(|(_, report)| matches!(report.content, Some(Content::Batch(_))));
                held.map(|(seat, _)| replica(*seat)).collect()
            }
            Some(Stage::Validate(validation) | Stage::Wait(validation)) => validation.quorum,
            _ => ReplicaSet::EMPTY,
        };
        self.vote(id, ballot, content, attributes, effects);
        self.propose_vote(id, ballot, holders, effects);
    }

    /// Asks those who promised, this replica first.
    fn validate(
        &mut self,
        id: InstanceId,
        ballot: Ballot,
        validation: Validation<V>,
        effects: &mut Effects<Self>,
    ) {
        let (batch, attributes, quorum) =
            (validation.batch.clone(), validation.attributes, validation.quorum);
        self.drives.insert(id, Drive { ballot, tries: 0, stage: Stage::Validate(validation) });
        self.postpone(id, effects.now() + self.parameters.resend);
        self.note_proposal(id, &batch, attributes);
        effects.record(Record::Validated { id, batch: batch.clone(), initial: attributes });
        for seat in self.peers().filter(|seat| quorum.contains(replica(*seat))) {
            let batch = batch.clone();
            effects.send(self.process_of(seat), Message::Validate { id, ballot, batch, attributes });
        }
        self.take_own_validation(id, &attributes, effects);
    }

    pub(super) fn take_own_validation(
        &mut self,
        id: InstanceId,
        attributes: &Attributes,
        effects: &mut Effects<Self>,
    ) {
        if let Some(conflicts) = self.conflicts(id, attributes) {
            self.take_validation(self.me, id, conflicts, effects);
        }
    }

    /// From now on this replica knows the command, so that no interfering one passes it by unseen.
    pub(super) fn note_proposal(&mut self, id: InstanceId, batch: &Arc<[V]>, proposed: Attributes) {
        if let Some(instance) = self.open_instance(id) {
            instance.initial = Some(proposed);
        }
        self.learn_batch(id, batch);
    }

    /// The interfering instances of which neither comes before the other, as far as this replica knows: what
    /// is committed against what was proposed for this one, and proposals against it. `None` where it has
    /// forgotten instances that some members have not executed, or lost own ones. (Those that all have executed
    /// come before this one everywhere.)
    fn conflicts(&self, id: InstanceId, proposed: &Attributes) -> Option<Vec<(InstanceId, bool)>> {
        let touches = self.instance(id)?.touches.clone()?;
        if self.lost.is_some_and(|(_, last)| proposed.deps[self.me] < last) {
            return None;
        }
        let mut found = Vec::new();
        for (seat, space) in self.spaces.iter().enumerate() {
            let first = proposed.deps[seat] + 1;
            if first < space.base() && space.base() - 1 > self.settled[seat] {
                return None;
            }
            for (number, held) in space.from(first) {
                let other = InstanceId::at(seat, number);
                let Some(theirs) = &held.touches else { continue };
                if other == id || theirs.conflict(&touches).is_none() {
                    continue;
                }
                if held.is_committed() {
                    if !held.noop && !held.attributes.covers(id) {
                        found.push((other, true));
                    }
                } else if held.initial.is_some_and(|initial| !initial.covers(id)) {
                    found.push((other, false));
                }
            }
        }
        Some(found)
    }

    pub(super) fn on_validate(
        &mut self,
        from: usize,
        id: InstanceId,
        ballot: Ballot,
        batch: Arc<[V]>,
        attributes: Attributes,
        effects: &mut Effects<Self>,
    ) {
        if !self.admit(from, id, true, effects) {
            return;
        }
        let to = self.process_of(from);
        let Some(instance) = self.instance(id) else { return };
        if instance.promised != ballot {
            let promised = instance.promised;
            if promised > ballot {
                effects.urgently(|effects| effects.send_ahead(to, Message::Rejected { id, promised }));
            }
            return;
        }
        self.note_proposal(id, &batch, attributes);
        effects.record(Record::Validated { id, batch, initial: attributes });
        self.postpone(id, effects.now() + self.parameters.resend * 2);
        match self.conflicts(id, &attributes) {
            Some(conflicts) => {
                let validated = Message::Validated { id, ballot, conflicts };
                effects.urgently(|effects| effects.send(to, validated));
            }
            None => self.notes.push("validations_impossible"),
        }
    }

    pub(super) fn on_validated(
        &mut self,
        from: usize,
        id: InstanceId,
        ballot: Ballot,
        conflicts: Vec<(InstanceId, bool)>,
        effects: &mut Effects<Self>,
    ) {
        if self.drives.get(&id).is_some_and(|drive| drive.ballot == ballot) {
            self.take_validation(from, id, conflicts, effects);
        }
    }

    fn take_validation(
        &mut self,
        from: usize,
        id: InstanceId,
        conflicts: Vec<(InstanceId, bool)>,
        effects: &mut Effects<Self>,
    ) {
        let (spared, count) = (self.spared(), self.count());
        let anywhere = self.mutated(Mutation::ValidateAnywhere);
        let Some(Drive { ballot, stage: Stage::Validate(validation), .. }) = self.drives.get_mut(&id) else {
            return;
        };
        let ballot = *ballot;
        validation.answered.insert(replica(from));
        for (other, committed) in conflicts.into_iter().filter(|(other, _)| other.leader() < count) {
            *validation.conflicts.entry(other).or_insert(false) |= committed;
        }
        if validation.answered.len() < validation.quorum.len() && !anywhere {
            return;
        }
        let validation = validation.clone();
        if validation.conflicts.is_empty() {
            let batch = Content::Batch(validation.batch);
            return self.adopt(id, ballot, batch, validation.attributes, effects);
        }
        // With no vote to spare, everyone who has not promised must have pre-accepted it as it was proposed:
        // also the leader of the other command, before it began that one, which would then come behind this.
        let tight = validation.votes + spared == validation.quorum.len();
        let apart = |other: &InstanceId| !validation.quorum.contains(replica(other.leader()));
        let ruled_out = validation.conflicts.values().any(|committed| *committed)
            || tight && validation.conflicts.keys().any(apart);
        if ruled_out {
            return self.adopt(id, ballot, Content::NoOp, Attributes::default(), effects);
        }
        self.notes.push("recoveries_wait");
        let (others, votes) =
            (validation.conflicts.keys().copied().collect::<Vec<_>>(), validation.votes as u8);
        self.drives.insert(id, Drive { ballot, tries: 0, stage: Stage::Wait(validation) });
        let due = effects.now() + self.parameters.repair;
        for other in others {
            self.need(other, due);
        }
        self.postpone(id, effects.now() + self.parameters.resend);
        self.tell_waiting(id, votes, effects);
        self.weigh_conflicts(id, effects);
    }

    pub(super) fn tell_waiting(&self, id: InstanceId, votes: u8, effects: &mut Effects<Self>) {
        for seat in self.peers() {
            effects.urgently(|effects| effects.send(self.process_of(seat), Message::Waiting { id, votes }));
        }
    }

    pub(super) fn on_waiting(&mut self, id: InstanceId, votes: u8, effects: &mut Effects<Self>) {
        if id.leader() < self.count() && !self.is_committed(id) && !self.is_executed(id) {
            let known = self.waiting.entry(id).or_insert(0);
            *known = votes.max(*known);
            self.wake_recoveries(id, effects);
        }
    }

    /// Something has become known of this instance: recoveries that wait for it look again.
    pub(super) fn wake_recoveries(&mut self, id: InstanceId, effects: &mut Effects<Self>) {
        let waits =
            |drive: &Drive<V>| matches!(&drive.stage, Stage::Wait(v) if v.conflicts.contains_key(&id));
        let waiting: Vec<InstanceId> =
            self.drives.iter().filter(|(_, drive)| waits(drive)).map(|(waiting, _)| *waiting).collect();
        for waiting in waiting {
            self.weigh_conflicts(waiting, effects);
        }
    }

    /// Whether what a recovery waits for has come out for it or against it.
    pub(super) fn weigh_conflicts(&mut self, id: InstanceId, effects: &mut Effects<Self>) {
        let Some(Drive { ballot, stage: Stage::Wait(validation), .. }) = self.drives.get(&id) else { return };
        let ballot = *ballot;
        let mut open = false;
        let mut ruled_out = false;
        for other in validation.conflicts.keys() {
            match self.instance(*other) {
                Some(held) if held.is_committed() => ruled_out |= !held.noop && !held.attributes.covers(id),
                _ => {
                    open = true;
                    // That many and its leader have pre-accepted the other without this one: not enough are
                    // left for a fast quorum of this one.
                    let votes = self.waiting.get(other).map_or(0, |votes| usize::from(*votes));
                    ruled_out |= votes + self.spared() > self.majority();
                }
            }
        }
        if ruled_out {
            self.adopt(id, ballot, Content::NoOp, Attributes::default(), effects);
        } else if !open {
            let (batch, attributes) = (validation.batch.clone(), validation.attributes);
            self.adopt(id, ballot, Content::Batch(batch), attributes, effects);
        }
    }

    pub(super) fn on_rejected(&mut self, id: InstanceId, promised: Ballot, effects: &mut Effects<Self>) {
        if self.drives.get(&id).is_none_or(|drive| drive.ballot >= promised) {
            return;
        }
        // Another has a higher ballot. If that comes to nothing, this replica tries above it, some time later.
        self.drives.remove(&id);
        if let Some(instance) = self.instance_mut(id) {
            instance.promised = promised.max(instance.promised);
            effects.record(Record::Promised { id, ballot: promised });
        }
        let stagger = self.parameters.stagger.as_nanos().max(1);
        let apart = isochrone_core::Span::from_nanos(effects.random().below(stagger * 4));
        self.postpone(id, effects.now() + self.parameters.resend + apart);
    }
}

impl<V: Ordered> Stage<V> {
    /// Of a validation, who has not answered.
    pub(super) fn unanswered(&self) -> ReplicaSet {
        match self {
            Stage::Validate(validation) => validation.quorum.without(validation.answered),
            _ => ReplicaSet::EMPTY,
        }
    }

    /// What a validation says when it asks again.
    pub(super) fn question(&self) -> Option<(Arc<[V]>, Attributes)> {
        match self {
            Stage::Validate(validation) => Some((validation.batch.clone(), validation.attributes)),
            _ => None,
        }
    }

    /// What a recovery waits for, and its own votes.
    pub(super) fn awaited(&self) -> Option<(Vec<InstanceId>, u8)> {
        match self {
            Stage::Wait(validation) => {
                Some((validation.conflicts.keys().copied().collect(), validation.votes as u8))
            }
            _ => None,
        }
    }
}
