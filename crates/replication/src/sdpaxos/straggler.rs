//! A sequencer that is slow and not dead (`specs/sdpaxos.md` 4.6).

use super::assignment::Rank;
use super::message::Message;
use super::order::Order;
use crate::order::Ordered;
use isochrone_core::{Ballot, Effects, Instant, ProcessId, ReplicaId, ReplicaSet, Span};

/// Slots needed in a window for it to say anything.
const NEEDED: u32 = 10;
/// Slow windows in a row that make a straggler.
const WINDOWS: u32 = 3;
/// How often the rest between two replacements is doubled at most.
const DOUBLINGS: u32 = 4;

/// What a replica has seen of the sequencer's speed.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Straggler {
    since: Instant,
    required: u32,
    /// How many own slots were known when the last window ended, whoever told them.
    known: u64,
    /// Slow windows in a row.
    slow: u32,
    /// Whether the last window that said anything said fast.
    fast: bool,
    /// The view whose sequencer gets no lease any more, and since when.
    pub(super) shunned: Option<Ballot>,
    shunned_at: Instant,
    asking: Option<(Ballot, ReplicaSet)>,
    /// Replacements that this replica has asked for or agreed to, and when the last was.
    changes: u32,
    last: Option<Instant>,
}

impl Straggler {
    pub(super) fn required(&mut self, slots: u32) {
        self.required = self.required.saturating_add(slots);
    }

    /// Another view takes the place of this one: whoever thought its sequencer slow counts a replacement, two soon after
    /// each other as one, and what was seen of that sequencer says nothing about the next.
    pub(super) fn succeeded(&mut self, view: Ballot, rest: Span, now: Instant) {
        if self.shunned == Some(view) {
            let another = self.last.is_none_or(|last| now.since(last) >= rest);
            self.changes = self.changes.saturating_add(u32::from(another));
            self.last = Some(now);
        }
        (self.shunned, self.asking) = (None, None);
        (self.slow, self.fast) = (0, false);
    }

    /// Whether the last replacement is long enough ago, the longer the more there were. The majority that agreed to that
    /// one and one that is to agree to another have a member in common, so the rest is one for the whole group.
    fn rested(&self, rest: Span, now: Instant) -> bool {
        let doubled = rest * (1 << self.changes.saturating_sub(1).min(DOUBLINGS));
        self.last.is_none_or(|last| now.since(last) >= doubled)
    }
}

impl<V: Ordered> Order<V> {
    /// Ends a window when it is time.
    pub(super) fn look_for_straggler(&mut self, effects: &mut Effects<Self>) {
        let (now, parameters) = (effects.now(), *self.parameters());
        if !parameters.straggler || now.since(self.straggler.since) < parameters.straggler_window {
            return;
        }
        let known = self.log.count(self.me);
        let straggler = &mut self.straggler;
        // A beat that comes late makes one window longer, and not those behind it.
        let over = now.since(straggler.since).as_nanos() % parameters.straggler_window.as_nanos();
        straggler.since = now - Span::from_nanos(over);
        if now.since(straggler.shunned_at) >= parameters.campaign * 2 {
            // Nobody has taken its place.
            straggler.shunned = None;
        }
        // What was not received yet is required still.
        let received = u32::try_from(known.saturating_sub(straggler.known)).unwrap_or(u32::MAX);
        let required = straggler.required;
        (straggler.required, straggler.known) = (required.saturating_sub(received), known);
        if required < NEEDED {
            (straggler.slow, straggler.fast) = (0, false);
            return;
        }
        let slow = received.saturating_mul(2) < required;
        straggler.slow = if slow { straggler.slow + 1 } else { 0 };
        straggler.fast = !slow;
        let rested = straggler.rested(parameters.straggler_rest, now);
        if straggler.slow + 1 < WINDOWS || !rested || self.head() == self.me {
            return;
        }
        // A window ahead the question is a warning: whoever agrees grants no more leases, so that none is left to be
        // waited out when the last window ends.
        let view = self.installed;
        if self.straggler.slow >= WINDOWS {
            self.straggler.asking = Some((view, ReplicaSet::from_iter([ReplicaId(self.me)])));
        }
        (self.straggler.shunned, self.straggler.shunned_at) = (Some(view), now);
        for rank in self.peers().filter(|rank| *rank != view.owner.0) {
            effects
                .urgently(|effects| effects.send_ahead(self.process_of(rank), Message::SlowQuery { view }));
        }
    }

    pub(super) fn on_slow_query(&mut self, from: ProcessId, view: Ballot, effects: &mut Effects<Self>) {
        if view != self.installed || !self.normal() {
            return;
        }
        // Who needs no slots knows nothing to the contrary.
        let rested = self.straggler.rested(self.parameters().straggler_rest, effects.now());
        let agreed = !self.straggler.fast && self.parameters().straggler && rested;
        if agreed {
            (self.straggler.shunned, self.straggler.shunned_at) = (Some(view), effects.now());
        }
        effects.urgently(|effects| effects.send_ahead(from, Message::SlowReply { view, agreed }));
    }

    pub(super) fn on_slow_reply(
        &mut self,
        rank: Rank,
        view: Ballot,
        agreed: bool,
        effects: &mut Effects<Self>,
    ) {
        let majority = self.majority;
        let Some((asked, who)) = self.straggler.asking.as_mut().filter(|(asked, _)| *asked == view) else {
            return;
        };
        if !agreed {
            // It is this replica's own way to the sequencer that is slow.
            if self.straggler.shunned == Some(*asked) {
                self.straggler.shunned = None;
            }
            self.straggler.asking = None;
            return;
        }
        who.insert(ReplicaId(rank));
        if who.len() >= majority && view == self.installed && self.normal() {
            self.straggler.asking = None;
            effects.mark(super::message::Note::Counted("stragglers_replaced"));
            self.elect(None, effects);
        }
    }
}
