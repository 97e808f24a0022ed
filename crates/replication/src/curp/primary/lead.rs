//! A master: what it knows of its copies, when something counts as safe, and how its list of copies changes.
//!
//! Something is safe when *all* copies have it durably (3.6), those of the list that counts and, while one is to
//! follow it, those of that as well: whichever of the two a recovery starts from, it is there. A new list is ready
//! once its witnesses know its version and its backups have everything that was executed before the master took the
//! version on (3.12); what was asked under the old version is refused from then on.
//!
//! A copy that is new in a list may lack the whole state, and from the moment the master takes the list on every write
//! waits for it. So it follows the log first, and counts for nothing: the list is taken on when what lacks takes no
//! longer than a silence. Where a copy that counts is silent there is nothing to wait for. No master hands over meanwhile:
//! nobody would act on its word.

use super::book::Book;
use super::collect::Collector;
use super::message::{Batch, Beat, Message, Note, Record, Run, Timer};
use super::near::Reader;
use super::order::Order;
use super::registry::Configuration;
use super::unified::{Outline, outline};
use super::{Mutation, Parameters};
use crate::curp::key_hashes;
use crate::order::{Ordered, Reign};
use isochrone_core::{CommandId, Effects, Instant, Looks, NodeId, ProcessId, Slot, Span, Wire};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How far a master has come.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub(super) enum Phase {
    /// It needs what a witness of the old master holds.
    Fetching,
    /// It brings its copies to where it is.
    Syncing,
    /// It takes commands.
    Serving,
}

/// A copy, as its master knows it.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub(super) struct Target {
    /// Its log is this master's.
    pub(super) follows: bool,
    /// The next place to be sent.
    pub(super) next: Slot,
    /// Everything before it was sent once, by name or whole.
    shown: Slot,
    /// Everything before it is there, durably.
    pub(super) acked: Slot,
    /// When that last moved, or it was last sent something again.
    pub(super) moved: Instant,
    /// What it was last sent whole, and when.
    adopting: Option<(Slot, Instant)>,
    /// When its server was last heard of.
    pub(super) heard: Instant,
    /// Until when its lease holds.
    pub(super) lease: Instant,
    /// What it was granted, to read for clients.
    pub(super) reader: Reader,
    /// Whether its witness knows the master and the version of the list.
    pub(super) started: bool,
    /// Since when that is wanted.
    starting: Instant,
}

impl Target {
    fn new(now: Instant) -> Target {
        Target {
            follows: false,
            next: Slot::ZERO,
            shown: Slot::ZERO,
            acked: Slot::ZERO,
            moved: now,
            adopting: None,
            heard: now,
            lease: Instant::ZERO,
            reader: Reader::default(),
            started: false,
            starting: now,
        }
    }
}

/// A list that is to follow the one that counts, not taken on while those that are new in it lack much.
#[derive(Clone, Hash, Debug)]
pub(super) struct Joining {
    list: Configuration,
    /// Those that are new.
    targets: BTreeMap<NodeId, Target>,
    /// They all follow, and are to be here next; and since when.
    goal: Option<(Slot, Instant)>,
}

impl Joining {
    /// Whether all follow closely: they have come to where the log ended when they began to, and were quick about it,
    /// or do so once more.
    fn is_close(&mut self, end: Slot, now: Instant, silence: Span) -> bool {
        if !self.targets.values().all(|target| target.follows) {
            return false;
        }
        let (goal, since) = *self.goal.get_or_insert((end, now));
        let there = self.targets.values().all(|target| target.acked >= goal);
        let slow = now.since(since) > silence;
        if there && slow {
            self.goal = Some((end, now));
        }
        there && !slow
    }
}

/// What a master knows.
#[derive(Clone, Hash, Debug)]
pub(super) struct Lead<V> {
    /// Its number.
    pub(super) epoch: u64,
    /// The number under which it has become the master, or is to: an earlier one where it goes on under this.
    pub(super) since: u64,
    /// The version of its list.
    pub(super) list: u64,
    pub(super) phase: Phase,
    /// The list that is to count next, if it is not the one that does.
    pub(super) next: Option<Configuration>,
    /// Whether the reign is ready to count, or counts.
    pub(super) ready: bool,
    /// What it recovers from.
    pub(super) crashed: Option<Configuration>,
    /// How often the old witnesses were asked, and when last.
    pub(super) asked: usize,
    pub(super) asked_at: Instant,
    /// The copies of the list that counts, and of the next.
    pub(super) targets: BTreeMap<NodeId, Target>,
    joining: Option<Box<Joining>>,
    /// What was in the log before its list was taken on.
    confirmed: Slot,
    /// Its own promise is durable.
    fenced: bool,
    /// Everything before it is durable here.
    durable: Slot,
    /// Everything before it is on its way to this disk.
    recorded: Slot,
    /// Everything before it was handed out before it was safe, or is final.
    tentative: Slot,
    /// Everything before it was sent; before this other place, as something that somebody waits for.
    sent: Slot,
    urged: Slot,
    /// Values behind that, and since when the first waits.
    unsent: usize,
    unsent_since: Instant,
    pub(super) hurried: bool,
    /// The timer runs; it has expired.
    armed: bool,
    due: bool,
    /// What the copies were told to be safe.
    told: Slot,
    /// Where the log ended when a beat found something that was not safe, which is not safe yet, and when that was.
    lagging: Option<(Slot, Instant)>,
    /// Keys of the last commands.
    recent: VecDeque<u64>,
    /// No lease of an earlier master holds from then on.
    waits: Instant,
    /// The beats: copies and witnesses speak when they are spoken to.
    looks: Looks,
    pub(super) collectors: BTreeMap<NodeId, Collector>,
    /// Suspects that were run again and are not yet safe.
    pub(super) suspected: BTreeSet<CommandId>,
    pub(super) suspects: Vec<V>,
}

/// Time between two answers to a copy that lacks something in between.
const REWIND: Span = Span::from_millis(20);
/// Bytes of one message to a copy that follows, about.
const MESSAGE_BYTES: usize = 1 << 20;

impl<V: Wire> Lead<V> {
    pub(super) fn reign(&self) -> Reign {
        Reign(self.epoch, self.list)
    }

    pub(super) fn serves(&self) -> bool {
        self.phase == Phase::Serving
    }

    /// Whether another list is taken on, or copies are joining for one.
    pub(super) fn changes_list(&self) -> bool {
        self.next.is_some() || self.joining.is_some()
    }

    /// Whether reads may be answered here: no other master can serve before every copy's grant is over (D-14).
    pub(super) fn may_read(&self, now: Instant, parameters: &Parameters) -> bool {
        let held = |target: &Target| now < target.lease || parameters.mutated(Mutation::ReadAfterLease);
        parameters.lease && self.targets.values().all(held)
    }

    /// When the last lease is over that copies may have to read, and those of earlier masters.
    pub(super) fn reads_over(&self) -> Instant {
        self.targets.values().map(|target| target.reader.until()).max().unwrap_or(self.waits).max(self.waits)
    }

    /// Copies that were not heard of for long, or, where they are wanted, whose witnesses were not.
    pub(super) fn silent(&self, now: Instant, silence: Span) -> impl Iterator<Item = NodeId> + '_ {
        let now = self.looks.until(now);
        let lost = move |target: &Target| now.since(target.heard) >= silence;
        let late = move |target: &Target| !target.started && now.since(target.starting) >= silence * 2;
        let deaf = move |node: NodeId, target: &Target| self.wants_witness(node) && late(target);
        let counted = self.targets.iter().filter(move |(node, target)| lost(target) || deaf(**node, target));
        let joining = self.joining.iter().flat_map(|joining| &joining.targets);
        counted.chain(joining.filter(move |(_, target)| lost(target))).map(|(node, _)| *node)
    }

    /// Whether the witness of this node is to know the list that is to count next.
    fn wants_witness(&self, node: NodeId) -> bool {
        self.next.as_ref().is_some_and(|next| next.copies.contains(&node))
    }

    /// Copies that count and were not heard of for long. Nothing becomes safe meanwhile, and no lease is held.
    fn lost(&self, now: Instant, silence: Span) -> impl Iterator<Item = NodeId> + '_ {
        let lost = move |target: &Target| now.since(target.heard) >= silence;
        self.targets.iter().filter(move |(_, target)| lost(target)).map(|(node, _)| *node)
    }

    /// All that are sent the log, those that are joining last, and whether they count.
    fn followers(&mut self) -> impl Iterator<Item = (&NodeId, &mut Target, bool)> {
        let joining = self.joining.iter_mut().flat_map(|joining| &mut joining.targets);
        let counted = self.targets.iter_mut().map(|(node, target)| (node, target, true));
        counted.chain(joining.map(|(node, target)| (node, target, false)))
    }

    /// The next batch that is to be executed before it is safe.
    pub(super) fn next_tentative(&mut self, delivered: Slot, book: &Book<V>) -> Option<Batch<V>> {
        if !self.serves() || delivered < book.full().min(self.tentative) {
            return None;
        }
        // While nothing was tentative, it was delivered all the same.
        self.tentative = self.tentative.max(delivered);
        let values = book.get(self.tentative)?.clone();
        self.tentative = self.tentative.next();
        Some(values)
    }

    pub(super) fn check(&self, book: &Book<V>) {
        assert!(self.sent <= book.end() && self.recorded <= book.end());
        for (node, target) in &self.targets {
            assert!(target.acked <= book.end(), "{node} has more than there is");
            let safe = !self.serves() || !self.ready || self.next.is_some() || target.acked >= book.full();
            assert!(safe, "{node} lacks something that counts as safe");
        }
    }
}

impl<V: Ordered> Order<V> {
    /// Whether nothing is safe but what is durable here: a list without copies counts, or is to count next, and under that
    /// clients take the word of this master alone. So nothing is told before it is safe, either.
    pub(super) fn is_alone(&self) -> bool {
        let Some(lead) = &self.lead else { return false };
        let counts = self.registry.committed.as_ref();
        let lists = counts.into_iter().chain(&lead.next);
        lead.targets.is_empty()
            || lists.into_iter().any(|list| list.master == self.me() && list.copies.is_empty())
    }

    /// Becomes the master of a reign that is to come, from what is in this log. Who is the master goes on so, unless it
    /// has forgotten what it had: then another is.
    pub(super) fn recover(&mut self, next: Configuration, effects: &mut Effects<Self>) {
        let (now, epoch, me) = (effects.now(), next.reign.0, self.me());
        let committed = self.registry.committed.clone().filter(|committed| !committed.copies.is_empty());
        let goes_on = committed.as_ref().filter(|committed| committed.master == me);
        let former =
            self.lead.as_ref().filter(|lead| goes_on.is_some_and(|now_is| now_is.reign.0 == lead.since));
        if goes_on.is_some() && former.is_none() {
            return;
        }
        let since = former.map_or(epoch, |lead| lead.since);
        // Until then its own copies may read for clients.
        let reads = former.map_or(now, |lead| lead.reads_over());
        let crashed = committed.clone().filter(|_| goes_on.is_none());
        self.step_down(effects);
        self.drop_handing(effects);
        // From here on no earlier master gets anything past this server, and what is in its log now is all that it
        // ever confirmed (D-27).
        self.promise(epoch, effects);
        self.adopted = epoch;
        let end = self.book.end();
        effects.record_lazily(Record::Adopted { epoch, at: end, batches: Vec::new() });
        effects.send(self.process, Message::Own { epoch, upto: end });
        let fetches = crashed.is_some() && !self.parameters().mutated(Mutation::ServeWithoutWitness);
        // Who gives its word has seen to it that no copy reads for clients any more, either.
        let held = committed.is_some() && !self.registry.yielded();
        let waits = match held && !self.parameters().mutated(Mutation::IgnoreLeases) {
            true => self.granted.max(reads),
            false => now,
        };
        self.lead = Some(Box::new(Lead {
            epoch,
            since,
            list: next.reign.1,
            phase: if fetches { Phase::Fetching } else { Phase::Syncing },
            targets: next.copies.iter().map(|node| (*node, Target::new(now))).collect(),
            next: Some(next),
            joining: None,
            ready: false,
            crashed,
            asked: 0,
            asked_at: now,
            confirmed: end,
            fenced: false,
            durable: Slot::ZERO,
            recorded: end,
            tentative: end,
            sent: end,
            urged: Slot::ZERO,
            unsent: 0,
            unsent_since: now,
            hurried: false,
            armed: false,
            due: false,
            told: Slot::ZERO,
            lagging: None,
            recent: VecDeque::new(),
            waits,
            looks: Looks::default(),
            collectors: BTreeMap::new(),
            suspected: BTreeSet::new(),
            suspects: Vec::new(),
        }));
        effects.mark(Note::Counted("recoveries_begun"));
        self.ask_witness(effects);
        self.beat(effects);
    }

    /// Another list is to follow the one that counts: it is taken on once those that are new in it follow closely.
    pub(super) fn change_list(&mut self, next: Configuration, effects: &mut Effects<Self>) {
        let (now, me, silence) = (effects.now(), self.me(), self.parameters().silence);
        let early = self.parameters().mutated(Mutation::ReadyBeforeSync);
        let Some(lead) = &mut self.lead else { return };
        if !lead.serves() || lead.epoch != next.reign.0 || next.reign.1 <= lead.list {
            return;
        }
        if lead.joining.as_ref().is_some_and(|joining| joining.list == next) {
            return self.check_joined(effects);
        }
        let mut known = lead.joining.take().map(|joining| joining.targets).unwrap_or_default();
        let lost = lead.silent(now, silence).next().is_some();
        let fresh = next.copies.iter().filter(|node| **node != me && !lead.targets.contains_key(node));
        let targets: BTreeMap<NodeId, Target> =
            fresh.map(|node| (*node, known.remove(node).unwrap_or_else(|| Target::new(now)))).collect();
        if targets.is_empty() || lost || early {
            return self.take_on(next, targets, effects);
        }
        lead.joining = Some(Box::new(Joining { list: next, targets, goal: None }));
        // A word that was given is void since the managers agreed on this list.
        self.drop_handing(effects);
        self.speak(effects);
    }

    /// Nothing is to follow the list that counts.
    pub(super) fn keep_list(&mut self) {
        if let Some(lead) = &mut self.lead {
            lead.joining = None;
        }
    }

    /// Takes on the list of those that are joining once they follow closely, or nothing is gained by waiting.
    fn check_joined(&mut self, effects: &mut Effects<Self>) {
        let (now, end, silence) = (effects.now(), self.book.end(), self.parameters().silence);
        let Some(lead) = &mut self.lead else { return };
        let lost = lead.silent(now, silence).any(|node| lead.targets.contains_key(&node));
        let ready = |joining: &mut Box<Joining>| joining.is_close(end, now, silence) || lost;
        if let Some(joining) = lead.joining.take_if(ready) {
            let Joining { list, targets, .. } = *joining;
            self.take_on(list, targets, effects);
        }
    }

    /// From here on this list is the master's, though it does not yet count; those that are new in it follow so far.
    fn take_on(
        &mut self,
        next: Configuration,
        mut joined: BTreeMap<NodeId, Target>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        self.append_queued(now);
        let (end, me) = (self.book.end(), self.me());
        let Some(lead) = &mut self.lead else { return };
        (lead.list, lead.ready, lead.confirmed, lead.hurried) = (next.reign.1, false, end, true);
        let counts = self.registry.committed.as_ref().map(|committed| committed.copies.clone());
        let counts = counts.unwrap_or_default();
        lead.targets.retain(|node, _| counts.contains(node) || next.copies.contains(node));
        for node in next.copies.iter().filter(|node| **node != me) {
            let fresh = || joined.remove(node).unwrap_or_else(|| Target::new(now));
            let target = lead.targets.entry(*node).or_insert_with(fresh);
            (target.started, target.starting) = (false, now);
        }
        lead.next = Some(next);
        let epoch = lead.epoch;
        self.drop_handing(effects);
        effects.mark(Note::Counted("lists_begun"));
        if self.is_alone() {
            // What was written down when copies were what counts is to be durable here, too.
            self.write_down(effects);
            effects.record(Record::Full { full: self.book.full() });
            effects.send(self.process, Message::Own { epoch, upto: end });
        }
        self.start_witnesses(effects);
        self.speak(effects);
        self.check_ready(effects);
    }

    /// The reign counts, say the managers.
    pub(super) fn on_committed(&mut self, committed: &Configuration, effects: &mut Effects<Self>) {
        let end = self.book.end();
        let Some(lead) = &mut self.lead else { return };
        if lead.reign() != committed.reign || lead.next.is_none() {
            return;
        }
        (lead.next, lead.since) = (None, lead.epoch);
        lead.targets.retain(|node, _| committed.copies.contains(node));
        lead.collectors.retain(|node, _| committed.copies.contains(node));
        if lead.serves() {
            effects.mark(Note::Counted("membership_changes"));
        } else {
            (lead.phase, lead.crashed) = (Phase::Serving, None);
            (lead.tentative, lead.sent) = (end, end);
            let epoch = lead.epoch;
            effects.mark(Note::Leads(epoch));
            effects.mark(Note::Counted("masters_begun"));
            for node in self.servers.iter().filter(|_| !self.parameters().unified) {
                effects.send(self.witness(*node), Message::End { before: epoch });
            }
        }
        self.advance_full();
    }

    fn start_witnesses(&mut self, effects: &mut Effects<Self>) {
        let Some(lead) = &self.lead else { return };
        let reign = lead.reign();
        let wanted = |(node, target): &(&NodeId, &Target)| !target.started && lead.wants_witness(**node);
        for (node, _) in lead.targets.iter().filter(wanted) {
            effects.send(self.witness(*node), Message::Start { reign });
        }
    }

    pub(super) fn on_started(&mut self, from: ProcessId, reign: Reign, effects: &mut Effects<Self>) {
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.reign() == reign) else { return };
        if let Some(target) = lead.targets.get_mut(&from.node) {
            target.started = true;
        }
        self.check_ready(effects);
    }

    /// Whether the reign that is to come may count.
    pub(super) fn check_ready(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let end = self.book.end();
        let early = self.parameters().mutated(Mutation::ReadyBeforeSync);
        let Some(lead) = &mut self.lead else { return };
        let Some(next) = lead.next.as_ref().filter(|_| !lead.ready) else { return };
        let upto = match lead.phase {
            Phase::Fetching => return,
            Phase::Syncing => end,
            Phase::Serving => lead.confirmed,
        };
        let has = |target: &Target| early || target.follows && target.acked >= upto;
        let mut copies = next.copies.iter().map(|node| lead.targets.get(node));
        let at_once = self.knobs.0.mutated(Mutation::DropReadersAtOnce);
        let mut dropped = lead.targets.iter().filter(|(node, _)| !next.copies.contains(node));
        let reads = !at_once && dropped.any(|(_, target)| target.reader.may_read(now));
        let synced = copies.all(|target| target.is_some_and(|target| target.started && has(target)));
        let lacks = next.copies.is_empty() && lead.durable < upto;
        if synced && !lacks && !reads && lead.fenced && now >= lead.waits {
            lead.ready = true;
            self.report(effects);
        }
    }

    /// The timer of a master: it says that it lives, and asks again for what is late.
    pub(super) fn beat(&mut self, effects: &mut Effects<Self>) {
        let (now, patience) = (effects.now(), self.parameters().resend);
        let (heartbeat, silence) = (self.parameters().heartbeat, self.parameters().silence);
        let Some(lead) = &mut self.lead else { return };
        let still = lead.looks.look(heartbeat, silence, now);
        for (_, target, _) in lead.followers() {
            target.heard = (target.heard + still).min(now);
            target.starting = (target.starting + still).min(now);
            if target.follows && target.acked < target.next && now.since(target.moved) >= patience {
                (target.next, target.moved) = (target.acked, now);
            }
        }
        self.speak(effects);
        self.start_witnesses(effects);
        self.collect_again(now);
        self.check_joined(effects);
        self.give_up_handing(effects);
        self.pursue_wish(effects);
        self.tell(effects);
        let Some(lead) = &self.lead else { return };
        if lead.phase == Phase::Fetching && now.since(lead.asked_at) >= patience {
            self.ask_witness(effects);
        }
        self.check_ready(effects);
        effects.arm(Timer::Beat, self.parameters().heartbeat);
    }

    /// What metrics show of it.
    fn tell(&mut self, effects: &mut Effects<Self>) {
        let (now, open, full, end) = (effects.now(), self.book.open(), self.book.full(), self.book.end());
        let silence = self.parameters().silence;
        let Some(lead) = &mut self.lead else { return };
        // What is open at one beat after the other may be something else each time.
        lead.lagging = lead.lagging.filter(|(slot, _)| full < *slot);
        if open > 0 {
            lead.lagging.get_or_insert((end, now));
        }
        let age = lead.lagging.map_or(Span::ZERO, |(_, since)| now.since(since));
        for (what, value) in [
            ("unsynced_commands", open as u64),
            ("unsynced_age_milliseconds", age.as_millis_f64() as u64),
            ("reign", lead.epoch),
            ("list_version", lead.list),
            ("copies_silent", lead.lost(now, silence).count() as u64),
        ] {
            effects.mark(Note::Stands(what, value));
        }
    }

    fn speak(&mut self, effects: &mut Effects<Self>) {
        let (sent, full, me) = (effects.now(), self.book.full(), self.process);
        let (base, hands_over) = (self.book.base(), self.hands_over().is_some());
        let Some(lead) = &mut self.lead else { return };
        let until = lead.reads_until(sent, hands_over, &self.knobs.0);
        let (epoch, list) = (lead.epoch, lead.list);
        for (node, target, counts) in lead.followers() {
            let acked = target.acked;
            let reads = until.filter(|_| counts).and_then(|until| target.reader.grant(list, until));
            let to = ProcessId { node: *node, ..me };
            // Held behind the own promise: a number that is forgotten might be used again.
            let beat = Message::Beat(Beat { epoch, full, acked, sent, list, reads });
            effects.urgently(|effects| effects.send(to, beat));
            if target.follows && acked < base {
                // It has this master's log from an earlier list, and does not ask for what it lacks.
                effects.send(to, Message::Trimmed { epoch });
            }
        }
    }

    pub(super) fn target(&mut self, from: ProcessId, epoch: u64, now: Instant) -> Option<&mut Target> {
        let lead = self.lead.as_mut().filter(|lead| lead.epoch == epoch)?;
        let (_, target, _) = lead.followers().find(|(node, ..)| **node == from.node)?;
        target.heard = now;
        Some(target)
    }

    pub(super) fn on_heard(
        &mut self,
        from: ProcessId,
        epoch: u64,
        (sent, bound): (Instant, Span),
        list: u64,
        stamp: (u32, Instant),
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let until = self.parameters().lease_terms().at_most(bound).held_until(sent);
        let reads = self.parameters().reads_nearby();
        if let Some(target) = self.target(from, epoch, now) {
            target.lease = target.lease.max(until);
            if reads && target.reader.heard(list, stamp, now) {
                self.check_ready(effects);
            }
        }
    }

    pub(super) fn on_want(
        &mut self,
        from: ProcessId,
        epoch: u64,
        place: Slot,
        ends: Option<Slot>,
        effects: &mut Effects<Self>,
    ) {
        let (now, patience) = (effects.now(), self.parameters().resend);
        let (base, end, full) = (self.book.base(), self.book.end(), self.book.full());
        let counts =
            self.registry.committed.as_ref().is_some_and(|now_is| now_is.copies.contains(&from.node));
        let owes =
            counts && self.parameters().unified && self.lead.as_ref().is_some_and(|lead| !lead.serves());
        let Some(target) = self.target(from, epoch, now) else { return };
        if place < base {
            return effects.send(from, Message::Trimmed { epoch });
        }
        let Some(ends) = ends else {
            target.follows = true;
            if place < target.next && now.since(target.moved) >= REWIND {
                (target.next, target.moved) = (place.max(target.acked), now);
            }
            return;
        };
        let again = |(known, at): (Slot, Instant)| known == place && now.since(at) < patience;
        if target.adopting.is_some_and(again) || place > end {
            return;
        }
        // Told the same already: that may be on its way.
        let repeats = target.adopting.is_some_and(|(known, _)| known == place);
        target.adopting = Some((place, now));
        // In one message as far as its own log goes: less would be less than what it may have confirmed to an earlier
        // master. What is behind that follows. In the unified form what it gives up may lie anywhere in this log, behind
        // what was replayed by another that began to lead; and its store has it no more.
        let mut batches = self.book.run(place, MESSAGE_BYTES);
        let least = if owes { end } else { ends.min(end) }.since(place) as usize;
        if batches.len() < least {
            batches = self.book.run(place, usize::MAX);
            batches.truncate(least);
        }
        let next = place.plus(batches.len() as u64);
        if let Some(target) = self.target(from, epoch, now) {
            target.next = next;
        }
        let names = Vec::new();
        let run = Run { epoch, at: place, batches, names, full, adopts: true, urgent: true };
        effects.repeating_if(repeats, |effects| effects.send(from, Message::Replicate(run)));
    }

    pub(super) fn on_acked(&mut self, from: ProcessId, epoch: u64, upto: Slot, effects: &mut Effects<Self>) {
        let now = effects.now();
        if let Some(target) = self.target(from, epoch, now) {
            target.follows = true;
            if upto > target.acked {
                (target.acked, target.moved) = (upto, now);
                target.next = target.next.max(upto);
            }
            self.advance_full();
            self.check_joined(effects);
            self.check_ready(effects);
        }
    }

    pub(super) fn on_own(&mut self, epoch: u64, upto: Slot, effects: &mut Effects<Self>) {
        if let Some(lead) = self.lead.as_mut().filter(|lead| lead.epoch == epoch) {
            (lead.fenced, lead.durable) = (true, lead.durable.max(upto));
            self.advance_full();
            self.check_ready(effects);
        }
    }

    /// What all copies have is safe.
    fn advance_full(&mut self) {
        let (one, alone) = (self.parameters().mutated(Mutation::SyncOnOne), self.is_alone());
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.serves()) else { return };
        let acked = lead.targets.values().map(|target| target.acked).chain(alone.then_some(lead.durable));
        let full = if one { acked.max() } else { acked.min() }.unwrap_or(lead.durable);
        if full > self.book.full() {
            for slot in self.book.advance(full).collect::<Vec<_>>() {
                self.collect_place(slot);
            }
        }
    }

    /// What was taken in since the last time becomes one place of the log.
    pub(super) fn append_queued(&mut self, now: Instant) {
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.serves()) else { return };
        self.queue.extend(lead.suspects.drain(..));
        if self.queue.is_empty() {
            return;
        }
        self.queue_bytes = 0;
        let values: Batch<V> = self.queue.drain(..).collect();
        if lead.unsent == 0 {
            lead.unsent_since = now;
        }
        lead.unsent += values.len();
        let window = self.knobs.0.hot_window;
        if window > 0 {
            for value in values.iter() {
                let hashes = key_hashes(self.process.keyspace, |see| value.visit(see)).unwrap_or_default();
                lead.hurried |= hashes.iter().any(|hash| lead.recent.contains(hash));
                lead.recent.extend(hashes);
                // At once: it is looked through for every key.
                let over = lead.recent.len().saturating_sub(window);
                lead.recent.drain(..over);
            }
        }
        let slot = self.book.end();
        self.book.append(values);
        if self.parameters().mutated(Mutation::CollectEarly) {
            self.collect_place(slot);
        }
    }

    /// The timer of what is not yet sent.
    pub(super) fn sync_due(&mut self) {
        if let Some(lead) = &mut self.lead {
            (lead.armed, lead.due) = (false, true);
        }
    }

    /// Writes down what has come into the log of this master.
    pub(super) fn write_down(&mut self, effects: &mut Effects<Self>) {
        let alone = self.is_alone();
        let Some(lead) = &mut self.lead else { return };
        let (at, end, full) = (lead.recorded, self.book.end(), self.book.full());
        if at == end {
            return;
        }
        lead.recorded = end;
        let record = Record::Appended { at, batches: self.book.run(at, usize::MAX), full };
        if alone {
            effects.record(record);
            effects.send(self.process, Message::Own { epoch: lead.epoch, upto: end });
        } else {
            // The copies are what counts: a master that crashes never goes on by itself.
            effects.record_lazily(record);
        }
    }

    /// Sends what is to leave now: the log to the copies (D-16, D-17), collections to the witnesses.
    pub(super) fn send_out(&mut self, effects: &mut Effects<Self>) {
        self.write_down(effects);
        let Some(lead) = &mut self.lead else { return };
        let (now, end, full, epoch) = (effects.now(), self.book.end(), self.book.full(), lead.epoch);
        let keyspace = self.process.keyspace;
        let parameters = self.knobs.0;
        let waited = lead.unsent > 0 && now.since(lead.unsent_since) >= parameters.sync_delay;
        let due = std::mem::take(&mut lead.due) || waited;
        let urgent = std::mem::take(&mut lead.hurried) || !lead.serves();
        if urgent || due || lead.unsent >= parameters.batch_max {
            if lead.unsent > 0 {
                effects.mark(Note::Counted("syncs"));
                effects.mark(Note::Added("sync_commands", lead.unsent));
            }
            (lead.sent, lead.unsent) = (end, 0);
        }
        // Once for the same: who has not said that it has it may have let it wait for company.
        let urges = urgent && lead.urged < end && full < end;
        if urges {
            lead.urged = end;
        }
        let news = due && lead.told < full || urges;
        // What is waited for was most likely refused, or never recorded; nor was it on the copies of another list.
        let by_name = parameters.unified && !urgent && lead.next.is_none();
        let sent = lead.sent;
        let mut outlined = BTreeMap::<Slot, Outline<V>>::new();
        let mut spoke = false;
        for (node, target, counts) in lead.followers() {
            if !target.follows {
                continue;
            }
            let to = ProcessId { node: *node, ..self.process };
            let mut silent = true;
            while target.next < sent && target.next >= self.book.base() {
                let batches = self.book.run(target.next, MESSAGE_BYTES);
                if batches.is_empty() {
                    break;
                }
                let at = target.next;
                if target.acked == at {
                    target.moved = now;
                }
                target.next = at.plus(batches.len() as u64);
                let named = by_name && counts && at >= target.shown;
                let (batches, names) = match named {
                    true => outlined.entry(at).or_insert_with(|| outline(keyspace, batches)).clone(),
                    false => (batches, Vec::new()),
                };
                if !names.is_empty() {
                    effects.mark(Note::Counted("runs_named"));
                }
                let repeats = at < target.shown;
                target.shown = target.shown.max(target.next);
                let run = Run { epoch, at, batches, names, full, adopts: false, urgent };
                effects.repeating_if(repeats, |effects| effects.send(to, Message::Replicate(run)));
                (silent, spoke) = (false, true);
            }
            if silent && news {
                let at = target.next;
                let (batches, names) = (Vec::new(), Vec::new());
                let run = Run { epoch, at, batches, names, full, adopts: false, urgent: urges };
                effects.send(to, Message::Replicate(run));
                spoke = true;
            }
        }
        if spoke || due {
            // Who does not follow yet is told with all the rest.
            lead.told = full;
        }
        if !lead.armed && (lead.unsent > 0 || lead.told < full) {
            lead.armed = true;
            let waited = if lead.unsent > 0 { now.since(lead.unsent_since) } else { Span::ZERO };
            effects.arm(Timer::Sync, parameters.sync_delay.saturating_sub(waited));
        }
        self.send_collections(effects);
    }

    /// The copies of the list that counts, and of the one that is to.
    pub fn copies(&self) -> Arc<[NodeId]> {
        self.lead.iter().flat_map(|lead| lead.targets.keys().copied()).collect()
    }
}
