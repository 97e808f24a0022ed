//! Commands on keys that several nodes change, executed at one of them.
//!
//! Transactions of different clients that meet at a key abort each other, and who is nearest to its leader wins again and
//! again. So once that has happened to a key, clients forward what they are asked about it to one of them, the key's home,
//! where it gets into line with the home's own and goes with as much as has gathered.
//!
//! **Once at most.** Messages may be lost, doubled and overtaken, and a home may restart and know of nothing. Each batch that
//! is forwarded has a number, and is meant for one incarnation of the home, which the home has told before. That one executes
//! what it has not seen, keeps its answer until that is not waited for any more, and never executes what it has once declined.
//! Whoever hears from another incarnation, or of none any more, does not know what has become of it. Answers are to one
//! incarnation of who asked, too: numbers begin anew with each.
//!
//! **Who stops.** A client that retires says that no incarnation of its lives. It declines what it has not begun, and what comes
//! from then on, so that is executed elsewhere at once; what it has begun it ends and answers. It stays for as long as something
//! of that may be on its way. What is lost with a node that just dies nobody knows, if it may have begun there.
//!
//! **Nobody waits in a circle for long.** A batch that is away holds its keys here. What would have to wait for it at this node is
//! declined, and what others wait for here does not leave. What goes round over further keys, of which neither knows, is declined
//! once it has waited for a quarter of its time.

use super::super::keys::{self, Keys};
use super::super::{Answer, Carries, Transacts};
use super::{Batch, Commands, Stage, Whose};
use crate::map::Map;
use isochrone_core::command::{Command, Response};
use isochrone_core::{Blob, Effects, Fact, Instant, NodeId, ProcessId, Span, Ticket, wire};
use isochrone_replication::partitions::Noted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What clients say to each other. A number is that of whoever forwards, in answers too, and `to` is whose incarnation they are for.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Forward {
    /// Execute these in order. Said again until there is an answer.
    Execute {
        /// Under which number.
        number: u64,
        /// The incarnation of who asks.
        from: u32,
        /// That of who is to execute it; 0 where it is not known.
        to: u32,
        /// How long it may take.
        left: Span,
        /// Which.
        commands: Vec<Command>,
    },
    /// You meant another incarnation of mine than this one, which has executed nothing of it. Also said unasked: of 0, by one
    /// that retires.
    Lives {
        /// This; 0 where none is to be meant any more.
        incarnation: u32,
    },
    /// They are under way.
    Taken {
        /// For whom.
        to: u32,
        /// Which.
        number: u64,
    },
    /// They have had no effect, and never will.
    Declined {
        /// For whom.
        to: u32,
        /// Which.
        number: u64,
    },
    /// They have ended, these and those that other messages tell.
    Answered {
        /// For whom.
        to: u32,
        /// Which.
        number: u64,
        /// The place of the first of these among them.
        first: usize,
        /// How, each.
        ends: Vec<End>,
        /// Whether they waited for others.
        queued: bool,
    },
    /// What has a lower number is not waited for any more.
    Settled {
        /// By which incarnation.
        from: u32,
        /// Than which.
        below: u64,
    },
    /// These keys are contended for: forward what changes them, also where nobody is in your way.
    Contended {
        /// Which.
        keys: Vec<Blob>,
    },
}

/// How a command has ended that was forwarded.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum End {
    /// It took effect, with this reply.
    Replied(Response),
    /// It took no effect, in the words of the refusal.
    Refused(String),
    /// Nobody knows.
    Unknown,
}

/// What a client knows of contended keys, and of what was forwarded.
#[derive(Clone, Hash, Debug)]
pub(super) struct Forwards {
    /// Ours.
    incarnation: u32,
    pub map: Map,
    /// The nodes of all clients.
    nodes: Arc<[NodeId]>,
    /// Keys that are contended for, until when that is believed.
    hot: BTreeMap<Blob, Instant>,
    /// Nodes that have not answered, until when they are not asked.
    silent: BTreeMap<NodeId, Instant>,
    /// The newest incarnations that have answered, and when they last did; 0 of who has retired.
    lives: BTreeMap<NodeId, (u32, Instant)>,
    /// Our batches that are away, by the number under which they are.
    away: BTreeMap<u64, u64>,
    /// Of those that are answered in parts, what has come so far.
    parts: BTreeMap<u64, BTreeMap<usize, End>>,
    /// Those of others that are executed here, or are not known to be settled.
    guests: BTreeMap<GuestId, Guest>,
    /// Those who forward, by process.
    peers: BTreeMap<ProcessId, Peer>,
    /// See [`Forwards::cools`].
    cooling: Option<Span>,
    /// Keys that wait a little behind what was done to them.
    cooled: BTreeMap<u64, Keys>,
    /// Set once nothing more is executed for others.
    retiring: Option<Retiring>,
}

/// The end of what is executed for others.
#[derive(Clone, Copy, Hash, Debug)]
struct Retiring {
    /// Who is told.
    ticket: Ticket,
    /// Under which number it is looked at.
    number: u64,
    /// Whether something was under way when it was looked at last.
    busy: bool,
}

/// Who has forwarded it, and its number.
pub(super) type GuestId = (ProcessId, u64);

/// One that another client has forwarded.
#[derive(Clone, Hash, Debug)]
struct Guest {
    commands: Vec<u64>,
    /// In their order, once there is one of each.
    ends: BTreeMap<usize, End>,
    queued: bool,
}

impl Guest {
    fn has_ended(&self) -> bool {
        self.ends.len() == self.commands.len()
    }
}

/// Who forwards.
#[derive(Clone, Copy, Default, Hash, Debug)]
struct Peer {
    incarnation: u32,
    /// What has a lower number, and is no guest, is never executed.
    below: u64,
}

/// A batch that is away.
#[derive(Clone, Copy, Hash, Debug)]
pub(super) struct Away {
    number: u64,
    home: NodeId,
    /// Which incarnation of the home may have it.
    sent: Option<u32>,
    /// How often nothing was heard in time.
    missed: u8,
    heard: bool,
    /// When it is asked for again.
    due: Instant,
}

/// A batch of more keys is not forwarded.
const KEYS_MAX: usize = 64;
/// Keys that are believed to be contended for; others are found out about anew.
const HOT_MAX: usize = 1_024;
/// Batches of others that are known at a time; who comes then is declined.
const GUESTS_MAX: usize = 4_096;
/// Bytes of commands that go as one, and of what tells their ends: links are long, and frames have a bound.
pub(in crate::commands) const BYTES_MAX: usize = 4 << 20;
/// How often nothing is heard of a home until it is given up.
const MISSED_MAX: u8 = 3;
/// For how many times the patience nobody is asked who was not heard of, or has retired.
const SILENT: u64 = 32;

impl Forwards {
    pub(super) fn new(incarnation: u32, map: Map, nodes: Arc<[NodeId]>) -> Forwards {
        Forwards {
            incarnation,
            map,
            nodes,
            hot: BTreeMap::new(),
            silent: BTreeMap::new(),
            lives: BTreeMap::new(),
            away: BTreeMap::new(),
            parts: BTreeMap::new(),
            guests: BTreeMap::new(),
            peers: BTreeMap::new(),
            cooling: None,
            cooled: BTreeMap::new(),
            retiring: None,
        }
    }

    /// Believes it of these keys for so long; those of which it was hardly believed any more.
    fn heat<'a>(&mut self, keys: impl Iterator<Item = &'a Blob>, now: Instant, patience: Span) -> Vec<Blob> {
        keys.filter(|key| self.heat_one(key, now, patience)).cloned().collect()
    }

    fn heat_one(&mut self, key: &Blob, now: Instant, patience: Span) -> bool {
        let until = now + patience * 4;
        if let Some(known) = self.hot.get_mut(key) {
            let fades = known.since(now.min(*known)) < patience * 2;
            *known = until;
            return fades;
        }
        if self.hot.len() >= HOT_MAX {
            self.hot.retain(|_, until| *until > now);
        }
        if self.hot.len() < HOT_MAX {
            self.hot.insert(key.clone(), until);
        }
        true
    }

    /// For how long nobody touches keys behind what has changed them, during which that comes to all who are read and locked.
    /// It is found by trying, from half of the way there and back: longer where something was in the way of who came then.
    fn cools(&mut self, aborted: bool, rtt_max: Span) -> Span {
        let cooling = self.cooling.get_or_insert(rtt_max / 2);
        *cooling = if aborted { *cooling + *cooling / 2 } else { *cooling * 15 / 16 };
        *cooling = (*cooling).clamp(rtt_max / 32, rtt_max * 2);
        *cooling
    }

    /// Who executes what changes these keys, where some are contended for: the first replica of the first of them that is not
    /// known to be silent. All clients go by the same order.
    fn home(&self, keys: &Keys, now: Instant) -> Option<NodeId> {
        let first = keys.keys().next().filter(|_| keys.len() <= KEYS_MAX)?;
        if !keys.keys().any(|key| self.hot.get(key).is_some_and(|until| *until > now)) {
            return None;
        }
        let group = self.map.group(self.map.partition(first));
        let speaks = |node: &NodeId| self.silent.get(node).is_none_or(|until| *until <= now);
        group.members.iter().map(|member| member.process.node).find(speaks)
    }

    /// Whether something of others has not ended.
    fn is_busy(&self) -> bool {
        self.guests.values().any(|guest| !guest.has_ended())
    }

    /// Whether keys are held of which nobody asks anything.
    pub(super) fn cools_something(&self) -> bool {
        !self.cooled.is_empty()
    }
}

impl<C: Transacts> Commands<C>
where
    C::Message: Carries,
{
    /// Says something that rests on no record.
    fn say(&self, node: NodeId, forward: Forward, effects: &mut Effects<Self>) {
        let to = ProcessId { node, ..effects.me() };
        effects.urgently(|effects| effects.send_ahead(to, C::Message::carry(forward)));
    }

    /// Others were in the way of a batch, or are before it: its keys are contended for.
    pub(super) fn heat(&mut self, number: u64, effects: &mut Effects<Self>) {
        let (now, patience, me) = (effects.now(), self.knobs.patience, effects.me().node);
        let Some(batch) = self.batches.get(&number).filter(|batch| batch.keys.len() <= KEYS_MAX) else {
            return;
        };
        let fading = self.forwards.heat(batch.keys.keys(), now, patience);
        if self.forwards.home(&batch.keys, now) == Some(me) {
            self.announce(&fading, &[me], effects);
        }
    }

    /// Tells the others of keys that are contended for: who is never in anybody's way does not hear of it otherwise.
    fn announce(&self, keys: &[Blob], told: &[NodeId], effects: &mut Effects<Self>) {
        if !keys.is_empty() {
            for node in self.forwards.nodes.iter().filter(|node| !told.contains(node)) {
                self.say(*node, Forward::Contended { keys: keys.to_vec() }, effects);
            }
        }
    }

    /// Whether a batch that is to begin leaves for its home, or is there.
    pub(super) fn leaves(&mut self, number: u64, effects: &mut Effects<Self>) -> bool {
        let now = effects.now();
        let Some(batch) = self.batches.get_mut(&number) else { return false };
        if let Stage::Away(away) = batch.stage {
            if away.due <= now {
                self.hears_nothing(number, away, effects);
            }
            return true;
        }
        // What only reads may be in nobody's way.
        let reads = batch.tries == 0 && batch.keys.values().all(|used| !used.writes);
        if std::mem::take(&mut batch.stays) || reads {
            return false;
        }
        let home = self.forwards.home(&batch.keys, now).filter(|home| *home != effects.me().node);
        let Some(home) = home else { return false };
        self.gather(number);
        let since = self.batches.get(&number).map_or(now, |batch| batch.since);
        if self.is_shared(number) || self.bytes(number) > BYTES_MAX || self.left(since, now) == Span::ZERO {
            return false;
        }
        let away = Away { number: self.number(), home, sent: None, missed: 0, heard: false, due: now };
        self.forwards.away.insert(away.number, number);
        self.send_away(number, away, effects);
        true
    }

    /// Those of a batch's commands.
    fn bytes(&self, number: u64) -> usize {
        let run = self.batches.get(&number).into_iter().flat_map(|batch| &batch.run);
        run.filter_map(|command| self.asked.get(command))
            .map(|asked| wire::encoded_size(&asked.command))
            .sum()
    }

    /// Whether others have forwarded what needs keys of this batch: it waits for them, or is a part of it.
    fn is_shared(&self, number: u64) -> bool {
        let Some(batch) = self.batches.get(&number) else { return false };
        let commands = self.forwards.guests.values().flat_map(|guest| &guest.commands);
        let mut asked = commands.filter_map(|command| self.asked.get(command));
        asked.any(|asked| asked.keys.keys().any(|key| batch.held.contains_key(key)))
    }

    /// Whether one of these is held here by what is away.
    fn are_away(&self, keys: &Keys) -> bool {
        let mut away = self.forwards.away.values().filter_map(|number| self.batches.get(number));
        away.any(|batch| keys.keys().any(|key| batch.held.contains_key(key)))
    }

    /// How long what is forwarded may take that was asked for then. What is told is to be here in time too.
    fn left(&self, since: Instant, now: Instant) -> Span {
        let ways = self.knobs.rtt_max.min(self.knobs.limit / 4);
        self.knobs.limit.saturating_sub(now.since(since) + ways)
    }

    fn send_away(&mut self, number: u64, away: Away, effects: &mut Effects<Self>) {
        let (now, again) = (effects.now(), away.sent.is_some());
        // One that was not heard of for long may have restarted: what is meant for the one before would be lost.
        let lives = self.forwards.lives.get(&away.home);
        let lives = lives.filter(|(known, heard)| *known > 0 && now.since(*heard) < self.knobs.patience);
        let sent = away.sent.or_else(|| lives.map(|(incarnation, _)| *incarnation));
        let due = now + self.knobs.patience;
        let from = self.forwards.incarnation;
        let Some(batch) = self.batches.get_mut(&number) else { return };
        batch.stage = Stage::Away(Away { sent, heard: false, due, ..away });
        self.pausing.insert((due, number));
        let since = batch.since;
        let left = self.left(since, now);
        let Some(batch) = self.batches.get(&number) else { return };
        let run = batch.run.iter().filter_map(|command| self.asked.get(command));
        let commands = run.map(|asked| asked.command.clone()).collect();
        let to = ProcessId { node: away.home, ..effects.me() };
        let execute = Forward::Execute { number: away.number, from, to: sent.unwrap_or(0), left, commands };
        effects.repeating_if(again, |effects| effects.send_ahead(to, C::Message::carry(execute)));
    }

    /// Nothing has ended of what is away: it is asked for again, or not waited for any more.
    fn hears_nothing(&mut self, number: u64, away: Away, effects: &mut Effects<Self>) {
        let missed = if away.heard { 0 } else { away.missed + 1 };
        // Who has not even told its incarnation has nothing of it.
        if missed < if away.sent.is_some() { MISSED_MAX } else { 1 } {
            return self.send_away(number, Away { missed, ..away }, effects);
        }
        self.forwards.silent.insert(away.home, effects.now() + self.knobs.patience * SILENT);
        self.come_back(away, away.sent.is_some(), effects);
    }

    /// What was away is to be executed here; where it may have been executed there, nobody knows its end. That holds for what
    /// reads too, which may have deleted a key whose time was over.
    fn come_back(&mut self, away: Away, lost: bool, effects: &mut Effects<Self>) {
        let Some(number) = self.arrive(away, effects) else { return };
        if lost {
            return self.fail(number, &Answer::Unknown, effects);
        }
        if let Some(batch) = self.batches.get_mut(&number) {
            batch.stays = true;
            self.go.push_back(number);
        }
    }

    /// What was away is so no more: the batch.
    fn arrive(&mut self, away: Away, effects: &mut Effects<Self>) -> Option<u64> {
        let number = self.forwards.away.remove(&away.number)?;
        self.forwards.parts.remove(&away.number);
        self.pausing.remove(&(away.due, number));
        self.batches.get_mut(&number)?.stage = Stage::Waits;
        let below = self.forwards.away.keys().next().copied().unwrap_or(self.next + 1);
        self.say(away.home, Forward::Settled { from: self.forwards.incarnation, below }, effects);
        Some(number)
    }

    /// The home of something that is away has answered, this incarnation: the batch.
    fn answers(&mut self, home: NodeId, (to, number): (u32, u64), now: Instant) -> Option<(u64, Away)> {
        let number = Some(number).filter(|_| to == self.forwards.incarnation)?;
        let batch = *self.forwards.away.get(&number)?;
        let Stage::Away(away) = &mut self.batches.get_mut(&batch)?.stage else { return None };
        let sent = away.sent.filter(|_| away.home == home)?;
        away.heard = true;
        let away = *away;
        if let Some((incarnation, heard)) = self.forwards.lives.get_mut(&home) {
            *heard = if sent == *incarnation { now } else { *heard };
        }
        Some((batch, away))
    }

    pub(super) fn on_forward(&mut self, from: ProcessId, forward: Forward, effects: &mut Effects<Self>) {
        let now = effects.now();
        // Who has retired answers what it has taken, and is asked nothing for that.
        let retired = self.forwards.lives.get(&from.node).is_some_and(|(incarnation, _)| *incarnation == 0);
        if !retired || matches!(forward, Forward::Contended { .. }) {
            self.forwards.silent.remove(&from.node);
        }
        match forward {
            Forward::Execute { number, from: incarnation, to, left, commands } => {
                if self.greets(from, incarnation) {
                    if to == self.forwards.incarnation {
                        self.on_execute((from, number), left, commands, effects);
                    } else {
                        self.say_lives(from.node, effects);
                    }
                }
            }
            Forward::Settled { from: incarnation, below } => {
                if self.greets(from, incarnation) {
                    self.settled(from, below);
                }
            }
            Forward::Lives { incarnation } => self.on_lives(from.node, incarnation, effects),
            Forward::Taken { to, number } => {
                if let Some((batch, _)) = self.answers(from.node, (to, number), now) {
                    self.heat(batch, effects);
                }
            }
            Forward::Declined { to, number } => {
                if let Some((_, away)) = self.answers(from.node, (to, number), now) {
                    self.come_back(away, false, effects);
                }
            }
            Forward::Answered { to, number, first, ends, queued } => {
                let Some((batch, away)) = self.answers(from.node, (to, number), now) else { return };
                let wanted = self.batches.get(&batch).map_or(0, |batch| batch.run.len());
                let parts = self.forwards.parts.entry(number).or_default();
                parts.extend((first..wanted).zip(ends));
                if parts.len() < wanted {
                    return;
                }
                let ends = std::mem::take(parts);
                if queued {
                    self.heat(batch, effects);
                }
                if self.arrive(away, effects).is_some() {
                    self.told(batch, ends, effects);
                }
            }
            Forward::Contended { keys } => {
                self.forwards.heat(keys.iter().take(KEYS_MAX), now, self.knobs.patience);
            }
        }
    }

    /// The commands of a batch have ended so elsewhere.
    fn told(&mut self, number: u64, ends: BTreeMap<usize, End>, effects: &mut Effects<Self>) {
        let Some(batch) = self.batches.get_mut(&number) else { return };
        for (command, end) in std::mem::take(&mut batch.run).into_iter().zip(ends.into_values()) {
            let answer = match end {
                End::Replied(reply) => Answer::Replied(reply),
                End::Refused(text) => Answer::Refused(super::Refusal::Elsewhere(text)),
                End::Unknown => Answer::Unknown,
            };
            self.answer(command, answer, effects);
        }
        self.go_on(number, effects);
    }

    /// A home has another incarnation than was believed, or one at all.
    fn on_lives(&mut self, home: NodeId, incarnation: u32, effects: &mut Effects<Self>) {
        let now = effects.now();
        let (known, heard) = self.forwards.lives.entry(home).or_insert((incarnation, now));
        let retires = incarnation == 0;
        if *known > incarnation && !retires {
            return;
        }
        (*known, *heard) = (incarnation, now);
        if retires {
            self.forwards.silent.insert(home, now + self.knobs.patience * SILENT);
        } else {
            self.forwards.silent.remove(&home);
        }
        let batches = self.forwards.away.values();
        let there = batches.filter_map(|number| match self.batches.get(number)?.stage {
            Stage::Away(away) if away.home == home => Some((*number, away)),
            _ => None,
        });
        for (number, away) in there.collect::<Vec<_>>() {
            match away.sent {
                None if retires => self.come_back(away, false, effects),
                None => {
                    self.pausing.remove(&(away.due, number));
                    self.send_away(number, away, effects);
                }
                Some(sent) if sent < incarnation => self.come_back(away, true, effects),
                Some(_) => {}
            }
        }
    }

    /// Hears from an incarnation of who forwards: whether it is the newest. What another has forwarded nobody waits for.
    fn greets(&mut self, from: ProcessId, incarnation: u32) -> bool {
        let peer = self.forwards.peers.entry(from).or_default();
        if peer.incarnation < incarnation {
            *peer = Peer { incarnation, below: 0 };
            self.forwards.silent.remove(&from.node);
            self.drop_guests(from, u64::MAX);
        }
        self.forwards.peers.get(&from).is_some_and(|peer| peer.incarnation == incarnation)
    }

    fn settled(&mut self, from: ProcessId, below: u64) {
        if let Some(peer) = self.forwards.peers.get_mut(&from) {
            peer.below = peer.below.max(below);
        }
        self.drop_guests(from, below);
    }

    /// Forgets guests of lower numbers; what has not begun of them does not.
    fn drop_guests(&mut self, from: ProcessId, below: u64) {
        let left = self.forwards.guests.range((from, 0)..(from, below)).map(|(id, _)| *id);
        for id in left.collect::<Vec<_>>() {
            let guest = self.forwards.guests.remove(&id);
            for command in guest.map_or(Vec::new(), |guest| guest.commands) {
                self.leave_alone(command);
            }
        }
    }

    /// Executes what another client has forwarded.
    fn on_execute(&mut self, id: GuestId, left: Span, commands: Vec<Command>, effects: &mut Effects<Self>) {
        let (now, Some(peer)) = (effects.now(), self.forwards.peers.get(&id.0)) else { return };
        let (from, number) = (id.0.node, id.1);
        if let Some(guest) = self.forwards.guests.get(&id) {
            if guest.has_ended() {
                return self.send_answer(id, effects);
            }
            let to = peer.incarnation;
            return self.say(from, Forward::Taken { to, number }, effects);
        }
        if self.forwards.retiring.is_some() {
            self.decline(id, effects);
            // It may not have heard of it.
            return self.say_lives(from, effects);
        }
        let mut all = Keys::default();
        let named = commands.iter().try_for_each(|command| keys::add(&mut all, &command.operation));
        let full = self.forwards.guests.len() >= GUESTS_MAX
            || self.asked.len() + commands.len() > self.knobs.open_max;
        if number < peer.below || full || named.is_err() || all.is_empty() || self.are_away(&all) {
            return self.decline(id, effects);
        }
        let fading = self.forwards.heat(all.keys(), now, self.knobs.patience);
        self.announce(&fading, &[from, effects.me().node], effects);
        let spent = self.knobs.limit.saturating_sub(left).as_nanos();
        let since = Instant::from_nanos(now.as_nanos().saturating_sub(spent));
        let mut guest = Guest { commands: Vec::new(), ends: BTreeMap::new(), queued: false };
        for (place, command) in commands.into_iter().enumerate() {
            effects.mark(Noted::Fact(Fact::Counted("executed_for_others")));
            let mut touched = Keys::default();
            // It was looked at above.
            let _ = keys::add(&mut touched, &command.operation);
            let number = self.line_up(Whose::Guest(id, place), command, touched, since);
            guest.queued |= place == 0 && self.asked.get(&number).is_some_and(|asked| asked.missing > 0);
            guest.commands.push(number);
        }
        if guest.queued {
            // Until it does not wait any longer.
            self.pausing.insert((now + self.knobs.limit / 4, guest.commands[0]));
        }
        self.forwards.guests.insert(id, guest);
    }

    /// Tells which incarnation executes what is forwarded.
    fn say_lives(&self, node: NodeId, effects: &mut Effects<Self>) {
        let incarnation = if self.forwards.retiring.is_some() { 0 } else { self.forwards.incarnation };
        self.say(node, Forward::Lives { incarnation }, effects);
    }

    /// Executes nothing more for others. What of theirs has not begun goes back to them; the ticket is answered once the rest has
    /// ended and what was on its way here has been declined.
    pub(super) fn retire(&mut self, ticket: Ticket, effects: &mut Effects<Self>) {
        let (now, me) = (effects.now(), effects.me().node);
        if self.forwards.retiring.is_some() {
            return effects.complete(ticket, Answer::Replied(Response::Ok));
        }
        let number = self.number();
        self.forwards.retiring = Some(Retiring { ticket, number, busy: true });
        // Its own go where those of the others do.
        self.forwards.silent.insert(me, Instant::MAX);
        for node in self.forwards.nodes.iter().filter(|node| **node != me) {
            self.say_lives(*node, effects);
        }
        let guests: Vec<GuestId> = self.forwards.guests.keys().copied().collect();
        guests.into_iter().for_each(|id| self.waited_here(id, effects));
        if self.forwards.peers.is_empty() {
            // Who has never forwarded anything asks first which incarnation lives.
            self.go.push_back(number);
        } else {
            self.pausing.insert((now + self.knobs.patience, number));
        }
    }

    /// Whether this was to look whether all has ended that is executed for others.
    pub(super) fn retires(&mut self, number: u64, effects: &mut Effects<Self>) -> bool {
        let retiring = self.forwards.retiring.filter(|retiring| retiring.number == number);
        let Some(retiring) = retiring else { return false };
        let busy = self.forwards.is_busy();
        // Who was answered last is waited for once, until it says so.
        if busy || (retiring.busy && !self.forwards.guests.is_empty()) {
            self.forwards.retiring = Some(Retiring { busy, ..retiring });
            self.pausing.insert((effects.now() + self.knobs.patience, number));
        } else {
            effects.complete(retiring.ticket, Answer::Replied(Response::Ok));
        }
        true
    }

    /// What another client has forwarded is not to be executed here, nor what it has forwarded before and has not come yet.
    fn decline(&mut self, id: GuestId, effects: &mut Effects<Self>) {
        let Some(peer) = self.forwards.peers.get_mut(&id.0) else { return };
        peer.below = peer.below.max(id.1.saturating_add(1));
        let to = peer.incarnation;
        self.say(id.0.node, Forward::Declined { to, number: id.1 }, effects);
    }

    /// A guest has waited for long: where nothing of it has begun, it may go elsewhere.
    pub(super) fn waited_here(&mut self, id: GuestId, effects: &mut Effects<Self>) {
        let Some(guest) = self.forwards.guests.get(&id) else { return };
        let waits = |command| self.asked.get(command).is_some_and(|asked| !asked.taken);
        if guest.commands.iter().all(waits) {
            let guest = self.forwards.guests.remove(&id);
            guest.into_iter().flat_map(|guest| guest.commands).for_each(|command| self.leave_alone(command));
            self.decline(id, effects);
        }
    }

    /// A command of a guest has ended.
    pub(super) fn ended(&mut self, id: GuestId, place: usize, answer: Answer, effects: &mut Effects<Self>) {
        let Some(guest) = self.forwards.guests.get_mut(&id) else { return };
        let end = match answer {
            Answer::Replied(reply) => End::Replied(reply),
            Answer::Refused(refusal) => End::Refused(refusal.to_string()),
            Answer::Unknown | Answer::Transaction(_) => End::Unknown,
        };
        guest.ends.insert(place, end);
        if guest.has_ended() {
            self.send_answer(id, effects);
        }
    }

    /// What it tells rests on the records of the transaction.
    fn send_answer(&self, id: GuestId, effects: &mut Effects<Self>) {
        let Some(Guest { ends, queued, .. }) = self.forwards.guests.get(&id) else { return };
        let Some(to) = self.forwards.peers.get(&id.0).map(|peer| peer.incarnation) else { return };
        let (number, queued) = (id.1, *queued);
        let (mut first, mut part, mut bytes) = (0, Vec::new(), 0);
        let mut send = |first, ends| {
            let answered = Forward::Answered { to, number, first, ends, queued };
            effects.send(id.0, C::Message::carry(answered));
        };
        for (place, end) in ends.values().enumerate() {
            let size = wire::encoded_size(end);
            if bytes + size > BYTES_MAX && !part.is_empty() {
                send(first, std::mem::take(&mut part));
                (first, bytes) = (place, 0);
            }
            bytes += size;
            part.push(end.clone());
        }
        send(first, part);
    }

    /// A batch is over: others may have its keys, at once or soon.
    pub(super) fn let_go(&mut self, number: u64, batch: Batch, effects: &mut Effects<Self>) {
        let (now, me, rtt_max) = (effects.now(), effects.me().node, self.knobs.rtt_max);
        let writes = batch.held.values().any(|used| used.writes);
        let pause = match self.forwards.home(&batch.held, now).filter(|_| writes) {
            Some(home) if home == me => self.forwards.cools(batch.tries > 0, rtt_max),
            // Who was answered and asks on goes along with what waits, instead of behind that.
            Some(_) => rtt_max / 32,
            None => return self.leave(&batch.held),
        };
        self.pausing.insert((now + pause, number));
        self.forwards.cooled.insert(number, batch.held);
    }

    /// Whether this was of keys that have cooled, which others may have now.
    pub(super) fn cooled(&mut self, number: u64) -> bool {
        let cooled = self.forwards.cooled.remove(&number);
        cooled.iter().for_each(|keys| self.leave(keys));
        cooled.is_some()
    }
}
