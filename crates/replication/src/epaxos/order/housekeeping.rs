//! What a replica does when nothing happens: it says that it lives, asks for what is late, finishes what
//! others have left, and forgets what all have executed.

use super::super::message::{InstanceId, Message, Record, SEATS, Timer};
use super::instances::ids;
use super::recovery::{Drive, Stage};
use super::{Instance, Order, SWEEP, replica};
use crate::order::Ordered;
use isochrone_core::{Ballot, Effects, Instant, ReplicaSet};
use std::collections::BTreeMap;

/// Instances looked at in one tick.
const TICK_MAX: usize = 512;
/// Ballots of this replica under way at once, its own instances not counted.
const RECOVERIES_MAX: usize = 256;
/// Questions to others until a recovery is begun, though nobody is suspected.
const TRIES_MAX: u32 = 3;
/// Questions to one that is heard, to which large values may be on their way, until it is given up.
const PATIENT_TRIES: u32 = 64;
/// The same to a delegate. What is given up is said once more, behind all that waits, and was on its way in vain: where that takes
/// longer than it is borne, nothing ever arrives in time.
const DELEGATE_TRIES: u32 = 512;
/// What is large may be long on its way: it is said again after a resend time, twice that, and so on, doubled this often at most.
const DOUBLINGS: u32 = 3;
/// The end of what is forgotten before all have executed it is a multiple of this, so that most replicas stand
/// at the same one and agree on attributes.
const FORGET: u64 = 1_024;

impl<V: Ordered> Order<V> {
    /// The timer of heartbeats.
    pub(super) fn beat(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let executed = self.executed_prefixes();
        if executed != self.reported[self.me] {
            // What is told as executed lets others forget it: it must be durable, lazy records and all.
            self.reported[self.me] = executed;
            effects.record(Record::Reported);
            self.settle_trims();
        }
        let last = self.next - 1;
        for seat in self.peers() {
            let beat = Message::Heartbeat { last, executed, sent: now };
            effects.urgently(|effects| effects.send(self.process_of(seat), beat));
        }
        effects.arm(Timer::Heartbeat, self.parameters.heartbeat);
        self.suspicion.look(self.parameters.heartbeat, now);
        let suspects = self.suspicion.suspects(now);
        if suspects != self.suspects {
            let fresh = suspects.without(self.suspects);
            self.suspects = suspects;
            if !fresh.is_empty() {
                self.on_suspects(fresh, effects);
            }
        }
    }

    pub(super) fn executed_prefixes(&self) -> [u64; SEATS] {
        let mut executed = [0; SEATS];
        for (prefix, space) in executed.iter_mut().zip(&self.spaces) {
            *prefix = space.executed();
        }
        executed
    }

    /// These are silent: their instances are looked at, and own ones that wait for them.
    fn on_suspects(&mut self, fresh: ReplicaSet, effects: &mut Effects<Self>) {
        let now = effects.now();
        for (id, pending) in &mut self.pending {
            let recovers = self.drives.get(id).is_some_and(|drive| drive.ballot > Ballot::ZERO);
            if fresh.contains(replica(id.leader())) || recovers {
                pending.due = now.min(pending.due);
            }
        }
        let own: Vec<InstanceId> = self.drives.keys().copied().collect();
        for id in own {
            self.choose_path(id, effects);
            self.weigh_reports(id, false, effects);
            if let Some(Drive { stage: Stage::PreAccept { delegate: Some(delegate), .. }, .. }) =
                self.drives.get(&id)
                && fresh.contains(replica(*delegate))
            {
                // It may have settled the attributes, so the first ballot is no longer to be had.
                self.recover(id, effects);
            }
        }
    }

    pub(super) fn on_heartbeat(
        &mut self,
        from: usize,
        last: u64,
        executed: [u64; SEATS],
        sent: Instant,
        effects: &mut Effects<Self>,
    ) {
        self.note_alive(from, effects.now());
        // Ahead: it rests on nothing.
        effects.urgently(|effects| effects.send_ahead(self.process_of(from), Message::Heard { sent }));
        self.hear_of(from, last);
        for (seat, prefix) in executed.into_iter().enumerate().take(self.count()) {
            self.hear_of(seat, prefix);
            let known = &mut self.reported[from][seat];
            *known = prefix.max(*known);
        }
        self.settle_trims();
    }

    pub(super) fn on_heard(&mut self, from: usize, sent: Instant, effects: &mut Effects<Self>) {
        let now = effects.now();
        self.note_alive(from, now);
        self.trips[from].least(now.since(sent));
        self.answered[from] = now;
    }

    fn note_alive(&mut self, from: usize, now: Instant) {
        self.suspicion.heard(replica(from), now);
        self.suspects.remove(replica(from));
    }

    /// The timer of what is late.
    pub(super) fn tick(&mut self, effects: &mut Effects<Self>) {
        self.ticking = false;
        let now = effects.now();
        let due = self.pending.iter().filter(|(_, pending)| pending.due <= now);
        let due: Vec<InstanceId> = due.map(|(id, _)| *id).take(TICK_MAX).collect();
        let mut fetches = BTreeMap::<usize, Vec<InstanceId>>::new();
        for id in due {
            if self.is_resolved(id) || self.is_executed(id) && !self.is_awaited(id) {
                self.pending.remove(&id);
            } else if self.drives.contains_key(&id) {
                effects.repeating(|effects| self.nudge(id, &mut fetches, effects));
            } else {
                self.pursue(id, &mut fetches, effects);
            }
        }
        self.send_fetches(fetches, effects);
    }

    /// Whether a recovery waits for what was chosen for this one.
    fn is_awaited(&self, id: InstanceId) -> bool {
        self.drives
            .values()
            .any(|drive| drive.stage.awaited().is_some_and(|(others, _)| others.contains(&id)))
    }

    /// Somebody else's instance, or one of a former life, is late: its driver is asked, then others, and in
    /// the end this replica drives it.
    fn pursue(
        &mut self,
        id: InstanceId,
        fetches: &mut BTreeMap<usize, Vec<InstanceId>>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let promised = self.instance(id).map_or(Ballot::ZERO, |instance| instance.promised);
        let owner = if promised.round == 0 { id.leader() } else { usize::from(promised.owner.0) };
        let (me, count) = (self.me, self.count());
        let abandoned = owner == me || self.suspects(owner);
        let recovering = self.drives.values().filter(|drive| drive.ballot.round > 0).count();
        let stagger = self.parameters.stagger;
        let resend = self.parameters.resend;
        let Some(pending) = self.pending.get_mut(&id) else { return };
        pending.tries += 1;
        if (abandoned || pending.tries > TRIES_MAX) && recovering < RECOVERIES_MAX {
            if !pending.staggered && owner != me {
                // By turns behind its leader, so that few try at once.
                pending.staggered = true;
                let rank = (me + count - id.leader() - 1) % count;
                let turn = stagger * rank as u64;
                pending.due = now + turn;
                if turn > isochrone_core::Span::ZERO {
                    return;
                }
            }
            pending.staggered = false;
            return self.recover(id, effects);
        }
        pending.due = now + resend;
        let turn = pending.tries as usize;
        let target = if turn == 1 { owner } else { (owner + turn) % count };
        let target = if target == me { (me + 1) % count } else { target };
        if target != me {
            fetches.entry(target).or_default().push(id);
        }
    }

    /// A ballot of this replica is late: what was asked is asked again, then in a higher ballot.
    fn nudge(
        &mut self,
        id: InstanceId,
        fetches: &mut BTreeMap<usize, Vec<InstanceId>>,
        effects: &mut Effects<Self>,
    ) {
        let (now, large) = (effects.now(), self.is_large(id));
        let Some(drive) = self.drives.get(&id) else { return };
        let tries = drive.tries + 1;
        // One that hears from this replica may have large values on their way to it. One that lags may have no room.
        let is_deaf = |seat: usize| {
            let heard = self.answered.get(seat).is_some_and(|at| now.since(*at) < self.parameters.patience);
            self.lags(seat) || !heard
        };
        let deaf = match &drive.stage {
            Stage::PreAccept { delegate: Some(delegate), .. } => is_deaf(*delegate),
            _ => false,
        };
        let gone = drive.stage.unanswered().iter().any(|seat| self.suspects.contains(seat));
        // Nobody waits longer for those who are not told the commands, or do not take them.
        let tells = match &drive.stage {
            Stage::PreAccept { .. } | Stage::Validate(_) | Stage::Accept { .. } => !deaf && !gone,
            Stage::Gather { .. } | Stage::Wait(_) => false,
        };
        let wait = if large && tells { 1_u64 << tries.min(DOUBLINGS) } else { 1 };
        self.postpone(id, now + self.parameters.resend * wait);
        let all: ReplicaSet = self.peers().map(replica).collect();
        let Some(drive) = self.drives.get_mut(&id) else { return };
        drive.tries = tries;
        let ballot = drive.ballot;
        match &mut drive.stage {
            Stage::PreAccept { delegate: Some(delegate), .. } => {
                let asked = ReplicaSet::from_iter([replica(*delegate)]);
                if tries > if deaf { 1 } else { DELEGATE_TRIES } {
                    self.recover(id, effects);
                } else {
                    // Nobody waits for the others: who lacks it asks for it once it is committed.
                    self.send_pre_accept(id, asked, effects);
                }
            }
            Stage::PreAccept { answers, asked, .. } => {
                let answered: ReplicaSet = answers.iter().map(|(seat, _)| replica(*seat)).collect();
                *asked = all;
                self.choose_path(id, effects);
                self.send_pre_accept(id, all.without(answered), effects);
            }
            Stage::Gather { reports } => {
                let answered: ReplicaSet = reports.keys().map(|seat| replica(*seat)).collect();
                self.weigh_reports(id, true, effects);
                if matches!(self.drives.get(&id), Some(Drive { stage: Stage::Gather { .. }, .. })) {
                    for seat in all.without(answered).iter() {
                        let to = self.process_of(usize::from(seat.0));
                        effects.urgently(|effects| effects.send(to, Message::Recover { id, ballot }));
                    }
                }
            }
            stage @ Stage::Validate(_) => {
                let (missing, question) = (stage.unanswered(), stage.question());
                if tries > if gone { 1 } else { PATIENT_TRIES } {
                    // Someone who promised is gone: others must. In a higher ballot what is on its way to those that are not
                    // would be in vain.
                    return self.recover(id, effects);
                }
                if let Some((batch, attributes)) = question {
                    for seat in missing.iter().map(|seat| usize::from(seat.0)).filter(|seat| *seat != self.me)
                    {
                        let batch = batch.clone();
                        let validate = Message::Validate { id, ballot, batch, attributes };
                        effects.send(self.process_of(seat), validate);
                    }
                    if missing.contains(replica(self.me)) {
                        self.take_own_validation(id, &attributes, effects);
                    }
                }
            }
            stage @ Stage::Wait(_) => {
                if tries > TRIES_MAX {
                    return self.recover(id, effects);
                }
                if let Some((others, votes)) = stage.awaited() {
                    self.tell_waiting(id, votes, effects);
                    for other in others {
                        if self.is_committed(other) {
                            continue;
                        }
                        self.need(other, effects.now());
                        for seat in self.peers() {
                            fetches.entry(seat).or_default().push(other);
                        }
                    }
                    self.weigh_conflicts(id, effects);
                }
            }
            Stage::Accept { voters, holders } => {
                let told = std::mem::replace(holders, all);
                let to: Vec<usize> = all.without(*voters).iter().map(|seat| usize::from(seat.0)).collect();
                if large {
                    // Whoever has the commands by now need not be told them.
                    self.send_accept(id, &to, told, effects);
                }
                if !large || tries > 1 {
                    // Whoever had not the commands has them from now on.
                    self.send_accept(id, &to, ReplicaSet::EMPTY, effects);
                }
            }
        }
    }

    /// Forgets what every member has executed, and what is beyond the bound.
    pub(super) fn settle_trims(&mut self) {
        let own = self.executed_prefixes();
        for seat in 0..self.count() {
            let others = self.reported.iter().enumerate().filter(|(member, _)| *member != self.me);
            let least = others.map(|(_, executed)| executed[seat]).min().unwrap_or(own[seat]);
            // Of this replica too what it has told, which is durable.
            let least = least.min(self.reported[self.me][seat]);
            if least > self.settled[seat] {
                self.settled[seat] = least;
                self.forget(seat, least);
            }
            self.count_touched(seat, own[seat]);
            // The next one that is held takes room for all from the base on, also for those that only a peer's state had in it.
            let space = &self.spaces[seat];
            let held = space.end().max(own[seat] + 1) - space.base();
            let keep = self.parameters.keep_attributes;
            if held > keep || self.touched[seat].1 > self.parameters.keep_keys {
                let upto = own[seat].saturating_sub(held.min(keep) / 2) / FORGET * FORGET;
                if upto >= self.spaces[seat].base() {
                    self.forget(seat, upto);
                }
            }
        }
        if self.stale > self.stale_max {
            self.sweep();
        }
    }

    /// Counts what the instances of a seat touch that have come to be executed, up to this number.
    fn count_touched(&mut self, seat: usize, executed: u64) {
        let (counted, mut keys) = self.touched[seat];
        let fresh = self.spaces[seat].from(counted + 1).take_while(|(number, _)| *number <= executed);
        keys += fresh.map(|(_, instance)| instance.keys() as u64).sum::<u64>();
        self.touched[seat] = (executed, keys);
    }

    /// Leaves in the conflict index what is still held, and nothing else. What is trimmed does no harm there: it
    /// is settled, so every command follows it anyhow, or gone, which is the same.
    fn sweep(&mut self) {
        self.index.clear();
        let mut held = 0;
        for seat in 0..self.count() {
            for id in ids(seat, self.spaces[seat].base(), self.spaces[seat].end()) {
                self.index_instance(id);
                held += self.instance(id).map_or(0, Instance::keys);
            }
        }
        // So that a key costs half an addition more at most, and what is held a third of the index at least.
        (self.stale, self.stale_max) = (0, 2 * held + SWEEP);
    }

    /// Forgets the instances of a seat up to this number, all executed here.
    pub(super) fn forget(&mut self, seat: usize, upto: u64) {
        let space = &self.spaces[seat];
        for id in ids(seat, space.base(), upto.min(space.end() - 1)) {
            let Some(keys) = self.instance(id).map(Instance::keys) else { continue };
            self.stale += keys;
            let (counted, touched) = &mut self.touched[seat];
            if id.number <= *counted {
                // Of one that a peer's state has settled it may have been learned since what it touched.
                *touched = touched.saturating_sub(keys as u64);
            }
            self.pending.remove(&id);
            self.drives.remove(&id);
            self.waiting.remove(&id);
        }
        self.spaces[seat].trim(upto);
        if upto > self.settled[seat] {
            // Whoever has not executed these cannot have them from here.
            self.trimmed = self.serial;
        }
    }
}
