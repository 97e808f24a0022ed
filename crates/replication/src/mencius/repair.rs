//! How a replica that lacks something gets it: what is decided from anyone who knows, and when that goes
//! no longer back far enough, somebody's state.

use super::message::{Message, Record, Run, Timer};
use super::order::Order;
use crate::order::Ordered;
use isochrone_core::{Effects, ProcessId, Slot, wire};
use std::sync::Arc;

/// Bytes of values in one answer, unless a single window is larger.
const ANSWER_BYTES: usize = 1 << 20;
/// Turns that are looked through at once.
const WINDOW_TURNS: u64 = 64;
/// Such windows in one answer.
const ANSWER_WINDOWS: usize = 256;

impl<V: Ordered> Order<V> {
    /// Whether somebody knows to be decided what is not known here.
    fn lacks(&self) -> bool {
        let mut claims = self.lanes.iter().zip(&self.claimed);
        self.reports.kth(1) > self.decided() || claims.any(|(lane, claimed)| lane.frontier() < *claimed)
    }

    /// Begins to watch whether what is missing comes by itself.
    pub(super) fn look_for_gaps(&mut self, effects: &mut Effects<Self>) {
        if !self.repairing && self.lacks() {
            self.repairing = true;
            (self.stuck_at, self.attempts) = (self.decided(), 0);
            effects.arm(Timer::Repair, self.parameters.repair);
        }
    }

    /// The timer of repair: what is still missing is asked for, of one after the other.
    pub(super) fn repair(&mut self, effects: &mut Effects<Self>) {
        self.repairing = false;
        if !self.lacks() {
            return;
        }
        self.repairing = true;
        let decided = self.decided();
        if decided > self.stuck_at {
            (self.stuck_at, self.attempts) = (decided, 0);
            return effects.arm(Timer::Repair, self.parameters.repair);
        }
        // First the one whose slot is missing, then whoever is furthest, then any.
        let now = effects.now();
        let owner = self.deal.owner(decided);
        let peers: Vec<(usize, ProcessId)> = self.peers().collect();
        let furthest = peers.iter().max_by_key(|(rank, _)| self.reports.of(self.members[*rank].replica));
        let target = match self.attempts % 3 {
            0 if owner != self.me && !self.is_silent(owner, now) => Some(self.members[owner].process),
            0 | 1 => furthest.map(|(_, peer)| *peer),
            _ => peers.get(effects.random().below(peers.len().max(1) as u64) as usize).map(|(_, peer)| *peer),
        };
        self.attempts += 1;
        if let Some(peer) = target {
            effects.urgently(|effects| effects.send_ahead(peer, Message::Fetch { from: decided }));
        }
        effects.arm(Timer::Repair, self.parameters.resend);
    }

    /// Held: what this replica skips may not show before it is durable.
    pub(super) fn on_fetch(&mut self, from: ProcessId, first: Slot, effects: &mut Effects<Self>) {
        let executed = self.decided();
        if first < self.base {
            return effects.urgently(|effects| effects.send(from, Message::Trimmed { executed }));
        }
        let last = self.lanes.iter().map(|lane| lane.end()).max().unwrap_or(0);
        let (mut runs, mut bytes) = (Vec::new(), 0);
        let mut at = first.0 / self.deal.members;
        for _ in 0..ANSWER_WINDOWS {
            if at >= last || bytes >= ANSWER_BYTES {
                break;
            }
            let window = at..at + WINDOW_TURNS;
            for (lane, held) in self.lanes.iter().enumerate() {
                for run in held.decided(lane, window.clone()) {
                    bytes += wire::encoded_size(&run.value);
                    join(&mut runs, run);
                }
            }
            at = window.end;
        }
        if !runs.is_empty() {
            effects.send(from, Message::Learned { runs: Arc::from(runs), executed });
        }
    }

    pub(super) fn on_learned(
        &mut self,
        sender: usize,
        runs: Arc<[Run<V>]>,
        executed: Slot,
        effects: &mut Effects<Self>,
    ) {
        self.reports.report(self.members[sender].replica, executed);
        let before = self.decided();
        self.learn(&runs, effects);
        let decided = self.decided();
        if decided > before {
            self.behind = None;
            if decided < executed && self.repairing {
                let fetch = Message::Fetch { from: decided };
                effects.urgently(|effects| effects.send_ahead(self.members[sender].process, fetch));
            }
        }
    }

    /// Takes values for decided, and writes down those that no vote in the journal tells.
    pub(super) fn learn(&mut self, runs: &Arc<[Run<V>]>, effects: &mut Effects<Self>) {
        let now = effects.now();
        let mut new = false;
        for run in runs.iter() {
            let lane = usize::from(run.lane);
            if lane < self.lanes.len() {
                new |= self.decide(lane, run.turns.clone(), &run.value, now);
            }
        }
        if new {
            effects.record_lazily(Record::Learned { runs: runs.clone() });
            // Own turns that a revoker has emptied are never used.
            self.advance(self.lanes[self.me].end(), effects);
        }
    }

    pub(super) fn on_trimmed(&mut self, sender: usize, executed: Slot) {
        self.reports.report(self.members[sender].replica, executed);
        if executed > self.decided() {
            self.behind = Some(self.members[sender].process);
        }
    }
}

/// Adds a run behind those of its owner that it continues.
fn join<V: Ordered>(runs: &mut Vec<Run<V>>, run: Run<V>) {
    let last = runs.iter_mut().rev().find(|known| known.lane == run.lane);
    match last {
        Some(last) if last.turns.end == run.turns.start && last.value == run.value => {
            last.turns.end = run.turns.end;
        }
        _ => runs.push(run),
    }
}
