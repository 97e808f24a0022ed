//! Who lives, how far away everyone is, and whom that makes the nearest quorum (`specs/sdpaxos.md` 3.4, 4.1).

use super::assignment::Rank;
use super::message::{Beat, Entry, Message};
use super::order::{Order, Pending};
use super::{Mutation, Parameters};
use crate::order::Ordered;
use isochrone_core::{Ballot, Effects, Instant, Looks, ProcessId, ReplicaId, ReplicaSet, RoundTrip, Span};

/// What is known of the members, by rank.
#[derive(Clone, Hash, Debug)]
pub(super) struct Contact {
    /// When each was last heard of.
    heard: Vec<Instant>,
    /// The beats.
    looks: Looks,
    /// The round trip to each.
    pub(super) trips: Vec<RoundTrip>,
    /// What each says of its own.
    others: Vec<Vec<u32>>,
    /// Life and clock of the last sign of life, and when it came.
    beats: Vec<Option<(u32, Instant, Instant)>>,
    /// How far each has executed.
    pub(super) executed: Vec<u64>,
    /// How far each would still have after a crash.
    pub(super) durable: Vec<u64>,
}

impl Contact {
    pub(super) fn new(members: usize) -> Contact {
        Contact {
            heard: vec![Instant::ZERO; members],
            looks: Looks::default(),
            trips: vec![RoundTrip::default(); members],
            others: vec![Vec::new(); members],
            beats: vec![None; members],
            executed: vec![0; members],
            durable: vec![0; members],
        }
    }

    /// The round trip to a member, microseconds; 0 where unknown.
    fn micros(&self, rank: Rank) -> u32 {
        let micros = |trip: Span| (trip.as_nanos() / 1_000).clamp(1, 1 << 30) as u32;
        self.trips[usize::from(rank)].known().map_or(0, micros)
    }

    /// Nobody is suspected before it had time to speak.
    pub(super) fn begin(&mut self, now: Instant) {
        self.heard.fill(now);
    }

    pub(super) fn heard(&mut self, rank: Rank, now: Instant) {
        let last = &mut self.heard[usize::from(rank)];
        *last = now.max(*last);
    }

    /// Those that were silent for `patience`; a replica never suspects itself, which it does not hear.
    pub(super) fn suspects(&self, patience: Span, now: Instant) -> ReplicaSet {
        let silent = |last: &&Instant| now.since(**last) >= patience;
        let all = self.heard.iter().enumerate().filter(|(_, last)| silent(last));
        all.map(|(rank, _)| ReplicaId(rank as u8)).collect()
    }

    /// The members that with `me` are a majority and near: all, where thrift is off or distances unknown.
    pub(super) fn quorum(
        &self,
        me: Rank,
        majority: usize,
        head: Rank,
        parameters: &Parameters,
        now: Instant,
    ) -> ReplicaSet {
        let suspects = self.suspects(parameters.election, now);
        let others = (0..self.heard.len() as Rank).filter(|rank| *rank != me);
        let mut live: Vec<(u32, bool, Rank)> = others
            .clone()
            .filter(|rank| !suspects.contains(ReplicaId(*rank)))
            .map(|rank| (self.micros(rank), rank != head, rank))
            .collect();
        if !parameters.thrifty || live.len() < majority - 1 || live.iter().any(|(trip, _, _)| *trip == 0) {
            return others.map(ReplicaId).collect();
        }
        live.sort_unstable();
        live.into_iter().take(majority - 1).map(|(_, _, rank)| ReplicaId(rank)).collect()
    }

    /// The `count` members by way of which a slot gets from the sequencer to its owner soonest, beside both.
    pub(super) fn helpers(
        &self,
        me: Rank,
        owner: Rank,
        count: usize,
        parameters: &Parameters,
        now: Instant,
    ) -> ReplicaSet {
        if count == 0 {
            return ReplicaSet::EMPTY;
        }
        let suspects = self.suspects(parameters.election, now);
        let others = (0..self.heard.len() as Rank).filter(|rank| *rank != me && *rank != owner);
        let way = |rank: Rank| {
            let there = self.micros(rank);
            let on = self.others[usize::from(rank)].get(usize::from(owner)).copied().unwrap_or(0);
            if there == 0 || on == 0 { None } else { Some((there + on, rank)) }
        };
        let live = others.clone().filter(|rank| !suspects.contains(ReplicaId(*rank)));
        let mut ways: Vec<(u32, Rank)> = live.clone().filter_map(way).collect();
        if !parameters.thrifty || ways.len() < count || ways.len() < live.count() {
            return others.map(ReplicaId).collect();
        }
        ways.sort_unstable();
        ways.into_iter().take(count).map(|(_, rank)| ReplicaId(rank)).collect()
    }

    /// Nothing is behind this slot that somebody else has executed.
    pub(super) fn furthest(&self) -> u64 {
        self.executed.iter().copied().max().unwrap_or(0)
    }

    /// Every member has executed the slots up to here.
    pub(super) fn least(&self) -> u64 {
        self.executed.iter().copied().min().unwrap_or(0)
    }
}

impl<V: Ordered> Order<V> {
    /// The beginning of a life: timers, and how long this replica may not vote.
    pub(super) fn begin_life(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        (self.started, self.since, self.head_heard) = (now, now, now);
        self.contact.begin(now);
        self.contact.executed[usize::from(self.me)] = self.executed;
        self.executed_recorded = self.executed;
        self.contact.durable[usize::from(self.me)] = self.executed;
        (self.executed_durable, self.stuck) = (self.executed, (self.executed, 0));
        self.numbers.begin();
        self.seen = self.seen.max(self.view);
        if self.view == self.installed {
            // What is in the journal is durable.
            self.contiguous[usize::from(self.me)] = self.log.contiguous();
            self.joined.insert(ReplicaId(self.me));
            if self.head() == self.me {
                self.sequencer = Some(self.fresh_sequencer(now));
                if self.active {
                    effects.mark(super::message::Note::Leads(self.installed));
                }
            }
            self.order_on(effects);
        }
        self.patience = self.draw_patience(effects);
        effects.arm(super::message::Timer::Watch, self.patience);
        self.beat(effects);
    }

    /// The timer of signs of life.
    pub(super) fn beat(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let Parameters { heartbeat, election, .. } = *self.parameters();
        effects.arm(super::message::Timer::Beat, heartbeat);
        let still = self.contact.looks.look(heartbeat, election, now);
        if self.log.contiguous() > self.pending_contiguous() && self.view == self.installed {
            // Learned by the way and written down lazily: behind a record it counts.
            self.write(Entry::Executed(self.executed));
            self.then(Pending::Contiguous(self.installed, self.log.contiguous()));
        } else if self.executed > self.executed_durable.max(self.pending_executed()) {
            self.write(Entry::Executed(self.executed));
            self.then(Pending::Executed(self.executed));
        }
        self.contact.executed[usize::from(self.me)] = self.executed;
        if self.normal() {
            self.resend_accepts(now);
            self.recover(now);
            if self.sequencer.is_some() {
                self.resend_order(now);
            }
            self.resend_reads(now);
            self.look_for_straggler(effects);
            self.trim_log();
        }
        self.repair(effects);
        self.pursue_task(effects);
        self.assert_view(effects);
        let election = self.parameters().election;
        self.losses.forget(election, now);
        // Whoever stood still has read nothing meanwhile, and is in time perhaps: the next beat tells.
        let suspects = self.contact.suspects(self.silence(), now - still);
        let live = self.peers().filter(|rank| !suspects.contains(ReplicaId(*rank))).count();
        if self.sequencer.is_some() && live + 1 < self.majority {
            // Deaf or cut off: whoever hears it should look for another.
            return effects.mark(super::message::Note::Counted("leaders_cut_off"));
        }
        for rank in self.peers() {
            let beat = self.sign(rank, now);
            effects
                .urgently(|effects| effects.send_ahead(self.process_of(rank), Message::Beat(Box::new(beat))));
        }
    }

    fn pending_executed(&self) -> u64 {
        let executed = self.pending.iter().filter_map(|(_, pending)| match pending {
            Pending::Executed(upto) => Some(*upto),
            _ => None,
        });
        executed.max().unwrap_or(0)
    }

    fn sign(&self, rank: Rank, now: Instant) -> Beat {
        let last = self.contact.beats[usize::from(rank)];
        // The lease is told with the sign of life that it was given for, and with no later one, which may have been given none.
        let granted = last.is_some_and(|(life, _, came)| {
            self.grant == Some(((self.installed, life), self.parameters().lease_terms().bound_until(came)))
        });
        let grants = granted
            && rank == self.head()
            && self.view == self.installed
            && self.straggler.shunned != Some(self.installed);
        Beat {
            view: self.view,
            installed: self.installed,
            active: self.active,
            contiguous: self.contiguous[usize::from(self.me)],
            ordered: self.ordered,
            executed: self.executed,
            durable: self.executed_durable,
            sent: (self.incarnation, now),
            echo: last.map(|(life, sent, came)| (life, sent, now.since(came))),
            granted: if grants { self.parameters().lease_terms().length() } else { Span::ZERO },
            trips: (0..self.count() as Rank).map(|rank| self.contact.micros(rank)).collect(),
        }
    }

    pub(super) fn on_beat(&mut self, from: ProcessId, rank: Rank, beat: &Beat, effects: &mut Effects<Self>) {
        let (now, at) = (effects.now(), usize::from(rank));
        if self.contact.beats[at].is_some_and(|(life, ..)| beat.sent.0 < life) {
            // Late, of a former life: a lease granted to that one would take the place of what the present one holds.
            return;
        }
        self.contact.beats[at] = Some((beat.sent.0, beat.sent.1, now));
        self.contact.executed[at] = self.contact.executed[at].max(beat.executed);
        self.contact.durable[at] = self.contact.durable[at].max(beat.durable);
        self.contact.others[at].clone_from(&beat.trips);
        if let Some((life, sent, held)) = beat.echo
            && life == self.incarnation
            && sent <= now
        {
            self.contact.trips[at].least(now.since(sent).saturating_sub(held));
            if beat.installed == self.installed {
                self.leased(rank, sent, beat.granted);
            }
        }
        self.seen = self.seen.max(beat.view);
        if beat.installed > self.installed {
            // It knows the log of a later view.
            if beat.installed >= self.view {
                effects.urgently(|effects| {
                    effects.send_ahead(from, Message::FetchView { installed: self.installed })
                });
            }
            return;
        }
        if beat.installed < self.installed || self.view != self.installed {
            if beat.installed < self.installed && beat.view <= self.installed && self.sequencer.is_some() {
                self.send_view(from, effects);
            }
            return;
        }
        if beat.active {
            self.activate(effects);
        } else if self.sequencer.is_some() && !self.joined.contains(ReplicaId(rank)) {
            self.send_view(from, effects);
        }
        self.hear_contiguous(rank, beat.contiguous);
        self.ordered = self.ordered.max(beat.ordered);
        self.order_on(effects);
        if rank == self.head() && beat.view == beat.installed {
            self.head_heard = now;
            self.grant_lease(beat.sent.0, effects);
        }
    }

    /// The sequencer lives: it may answer reads for a while.
    fn grant_lease(&mut self, life: u32, effects: &mut Effects<Self>) {
        let view = self.installed;
        if self.parameters().lease && self.straggler.shunned != Some(view) {
            let until = self.parameters().lease_terms().bound_until(effects.now());
            self.grant = Some(((view, life), until));
        }
    }

    fn leased(&mut self, from: Rank, sent: Instant, bound: Span) {
        let terms = self.parameters().lease_terms().at_most(bound);
        if let Some(sequencer) = &mut self.sequencer
            && sequencer.retired.is_none()
        {
            sequencer.lease.granted(ReplicaId(from), terms.held_until(sent));
        }
    }

    /// Whether this sequencer may name slots for reads.
    pub(super) fn holds_lease(&self, now: Instant) -> bool {
        if !self.parameters().lease || !self.sequences() {
            return false;
        }
        let Some(sequencer) = self.sequencer.as_ref().filter(|sequencer| sequencer.retired.is_none()) else {
            return false;
        };
        // The own grant needs no clock: it ends when this replica votes for another view.
        self.mutated(Mutation::ReadAfterLease) || sequencer.lease.held(now, self.majority - 1, |_| true)
    }

    /// Until when this replica has promised to vote for nobody but the sequencer who has not `released` it.
    pub(super) fn bound_until(&self, released: Option<(Ballot, u32)>, now: Instant) -> Option<Instant> {
        if !self.parameters().lease {
            return None;
        }
        // Of the voters of the installed view one at least had not, or no longer, granted any earlier
        // sequencer a lease: what this replica granted those alone is none.
        let binds = |to: &(Ballot, u32)| to.0 >= self.installed && Some(*to) != released;
        let granted = self.grant.filter(|(to, _)| binds(to)).map(|(_, until)| until);
        // What a former life has granted, and to whom, is forgotten: a whole lease is waited out.
        let forgotten =
            (self.incarnation > 1).then(|| self.parameters().lease_terms().bound_until(self.started));
        granted.max(forgotten).filter(|until| *until > now)
    }
}
