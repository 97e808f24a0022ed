//! Advisory locks on keys that commands of several nodes contend for.
//!
//! Transactions of different clients that meet at a key abort each other, and who is nearest to its leader wins again and
//! again. So once that has happened to a key, clients take turns: each asks one of them, the key's home, and executes what it
//! has gathered when it is told that it is its turn. The home lines them up like commands of its own.
//!
//! **A lock is advice.** The transaction that follows is what it would have been without, so that a home that is gone, is
//! not agreed on or forgets costs time and nothing else: a lock ends after a while, and who hears nothing goes on without.

use super::super::keys::{Keys, Use};
use super::super::{Carries, Transacts};
use super::{Batch, Commands, Stage};
use crate::map::Map;
use isochrone_core::{Blob, Effects, Fact, Instant, NodeId, ProcessId, Span};
use isochrone_replication::partitions::Noted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What clients say to each other about locks. A number is that of who asks, in its answer too.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Advisory {
    /// May it be my turn at these keys? Also asked again as long as it is not.
    Request {
        /// Under which number.
        number: u64,
        /// Which keys, and whether they may be changed.
        keys: Vec<(Blob, bool)>,
    },
    /// Others are before you.
    Queued {
        /// In answer to which.
        number: u64,
    },
    /// It is your turn.
    Granted {
        /// In answer to which.
        number: u64,
    },
    /// My turn is over, or I want none any more.
    Release {
        /// Which.
        number: u64,
        /// Whether something was in the way of its transaction.
        aborted: bool,
    },
    /// These keys are contended for: take turns, also where nobody is in your way.
    Contended {
        /// Which.
        keys: Vec<Blob>,
    },
}

/// What a client knows of locks.
#[derive(Clone, Hash, Debug)]
pub(super) struct Advisories {
    pub map: Map,
    /// The nodes of all clients.
    pub nodes: Arc<[NodeId]>,
    /// Keys that are contended for, until when that is believed.
    hot: BTreeMap<Blob, Instant>,
    /// Nodes that have not answered, until when they are not asked.
    silent: BTreeMap<NodeId, Instant>,
    /// Those of others that are lined up here, by our number.
    pub guests: BTreeMap<u64, Guest>,
    /// The same by who asked, and its number.
    known: BTreeMap<(ProcessId, u64), u64>,
    /// See [`Advisories::cools`].
    cooling: Option<Span>,
}

/// One of another client that is lined up here.
#[derive(Clone, Hash, Debug)]
pub(super) struct Guest {
    of: (ProcessId, u64),
    keys: Keys,
    /// How many of its keys it still waits for.
    pub missing: usize,
    /// Whether it has been told that it is its turn.
    granted: bool,
    /// When its client last asked.
    heard: Instant,
}

/// A transaction of more keys takes no locks.
const KEYS_MAX: usize = 64;
/// Keys that are believed to be contended for; others are found out about anew.
const HOT_MAX: usize = 1_024;
/// Requests that are lined up at a time; who comes then goes ahead without.
const GUESTS_MAX: usize = 4_096;

impl Advisories {
    pub(super) fn new(map: Map, nodes: Arc<[NodeId]>) -> Advisories {
        let (hot, silent) = (BTreeMap::new(), BTreeMap::new());
        Advisories { map, nodes, hot, silent, guests: BTreeMap::new(), known: BTreeMap::new(), cooling: None }
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

    /// Whether one of these is contended for.
    fn are_hot(&self, keys: &Keys, now: Instant) -> bool {
        keys.keys().any(|key| self.hot.get(key).is_some_and(|until| *until > now))
    }

    /// For how long nobody else has a turn after one, during which what it did comes to all who are read and locked. It is
    /// found by trying, from half of the way there and back: longer where something was in the way of who came then.
    fn cools(&mut self, aborted: bool, rtt_max: Span) -> Span {
        let cooling = self.cooling.get_or_insert(rtt_max / 2);
        *cooling = if aborted { *cooling + *cooling / 2 } else { *cooling * 15 / 16 };
        *cooling = (*cooling).clamp(rtt_max / 8, rtt_max * 2);
        *cooling
    }

    /// Whom to ask for a lock on these keys, where some are contended for: the first replica of the first of them that is not
    /// known to be silent. All clients go by the same order.
    fn home(&self, keys: &Keys, now: Instant) -> Option<NodeId> {
        let first = keys.keys().next().filter(|_| keys.len() <= KEYS_MAX)?;
        if !self.are_hot(keys, now) {
            return None;
        }
        let group = self.map.group(self.map.partition(first));
        let speaks = |node: &NodeId| self.silent.get(node).is_none_or(|until| *until <= now);
        group.members.iter().map(|member| member.process.node).find(speaks)
    }
}

impl<C: Transacts> Commands<C>
where
    C::Message: Carries,
{
    fn say(&self, node: NodeId, advisory: Advisory, effects: &mut Effects<Self>) {
        let to = ProcessId { node, ..effects.me() };
        effects.urgently(|effects| effects.send_ahead(to, C::Message::carry(advisory)));
    }

    /// Others were in the way of a batch, or are before it: its keys are contended for.
    pub(super) fn heat(&mut self, number: u64, effects: &mut Effects<Self>) {
        let (now, patience, me) = (effects.now(), self.knobs.patience, effects.me().node);
        let Some(batch) = self.batches.get(&number).filter(|batch| batch.keys.len() <= KEYS_MAX) else {
            return;
        };
        let fading = self.advisories.heat(batch.keys.keys(), now, patience);
        if self.advisories.home(&batch.keys, now) == Some(me) {
            self.announce(&fading, &[me], effects);
        }
    }

    /// Tells the others of keys that are contended for: who is never in anybody's way does not hear of it otherwise.
    fn announce(&self, keys: &[Blob], told: &[NodeId], effects: &mut Effects<Self>) {
        if !keys.is_empty() {
            for node in self.advisories.nodes.iter().filter(|node| !told.contains(node)) {
                self.say(*node, Advisory::Contended { keys: keys.to_vec() }, effects);
            }
        }
    }

    /// Whether a batch is to take turns with others, and it is not its turn yet: then it asks.
    pub(super) fn queues(&mut self, number: u64, effects: &mut Effects<Self>) -> bool {
        let (now, patience) = (effects.now(), self.knobs.patience);
        let Some(batch) = self.batches.get(&number) else { return false };
        let home = match batch.stage {
            // Who has heard that others are before it asks on.
            Stage::Queues { since, heard: true } if now.since(since) < self.knobs.limit / 2 => batch.lock,
            Stage::Queues { heard, .. } => {
                if let Some(home) = batch.lock.filter(|_| !heard) {
                    self.advisories.silent.insert(home, now + patience * 32);
                }
                return false;
            }
            // What only reads may be in nobody's way.
            Stage::Waits if batch.lock.is_some() => None,
            Stage::Waits if batch.tries == 0 && batch.keys.values().all(|used| !used.writes) => None,
            Stage::Waits => self.advisories.home(&batch.keys, now),
            _ => return false,
        };
        let Some(home) = home.filter(|home| *home != effects.me().node) else { return false };
        let Some(batch) = self.batches.get_mut(&number) else { return false };
        let since = if let Stage::Queues { since, .. } = batch.stage { since } else { now };
        (batch.stage, batch.lock) = (Stage::Queues { since, heard: false }, Some(home));
        let keys = batch.keys.iter().map(|(key, used)| (key.clone(), used.writes)).collect();
        self.pausing.insert((now + patience, number));
        self.say(home, Advisory::Request { number, keys }, effects);
        true
    }

    pub(super) fn on_advisory(&mut self, from: ProcessId, advisory: Advisory, effects: &mut Effects<Self>) {
        let (now, patience) = (effects.now(), self.knobs.patience);
        self.advisories.silent.remove(&from.node);
        match advisory {
            Advisory::Request { number, keys } => self.on_request((from, number), keys, effects),
            Advisory::Release { number, aborted } => {
                if let Some(guest) = self.advisories.known.get(&(from, number)).copied() {
                    self.over(guest, aborted, now);
                }
            }
            Advisory::Queued { number } => {
                self.heat(number, effects);
                if let Some(Batch { stage: Stage::Queues { heard, .. }, .. }) = self.batches.get_mut(&number)
                {
                    *heard = true;
                }
            }
            Advisory::Granted { number } => match self.batches.get_mut(&number) {
                Some(batch) if matches!(batch.stage, Stage::Queues { .. }) => {
                    (batch.stage, batch.tries_alone) = (Stage::Waits, batch.tries);
                    self.pausing.retain(|(_, other)| *other != number);
                    self.go.push_back(number);
                }
                Some(_) => {}
                None => self.say(from.node, Advisory::Release { number, aborted: false }, effects),
            },
            Advisory::Contended { keys } => {
                self.advisories.heat(keys.iter().take(KEYS_MAX), now, patience);
            }
        }
    }

    fn on_request(&mut self, of: (ProcessId, u64), keys: Vec<(Blob, bool)>, effects: &mut Effects<Self>) {
        let (now, patience) = (effects.now(), self.knobs.patience);
        if let Some(guest) =
            self.advisories.known.get(&of).and_then(|guest| self.advisories.guests.get_mut(guest))
        {
            guest.heard = now;
            let number = of.1;
            let answer =
                if guest.granted { Advisory::Granted { number } } else { Advisory::Queued { number } };
            return self.say(of.0.node, answer, effects);
        }
        if keys.len() > KEYS_MAX || self.advisories.guests.len() >= GUESTS_MAX {
            return self.say(of.0.node, Advisory::Granted { number: of.1 }, effects);
        }
        let used = |(key, writes): (Blob, bool)| (key, Use { reads: true, writes });
        let keys: Keys = keys.into_iter().map(used).collect();
        let number = self.number();
        let missing = self.lines.join(number, &keys);
        self.advisories.known.insert(of, number);
        let fading = self.advisories.heat(keys.keys(), now, patience);
        self.advisories.guests.insert(number, Guest { of, keys, missing, granted: false, heard: now });
        if missing == 0 {
            self.grant(number, effects);
        } else {
            self.say(of.0.node, Advisory::Queued { number: of.1 }, effects);
        }
        self.announce(&fading, &[of.0.node, effects.me().node], effects);
    }

    /// It is the turn of a guest, who has all its keys; nothing where there is no such guest.
    pub(super) fn grant(&mut self, number: u64, effects: &mut Effects<Self>) {
        let (now, patience) = (effects.now(), self.knobs.patience);
        let Some(guest) = self.advisories.guests.get_mut(&number) else { return };
        let (node, theirs) = (guest.of.0.node, guest.of.1);
        if now.since(guest.heard) > patience * 3 {
            // It is gone.
            return self.evict(number);
        }
        guest.granted = true;
        effects.mark(Noted::Fact(Fact::Counted("advisory_locks")));
        self.pausing.insert((now + patience * 4, number));
        self.say(node, Advisory::Granted { number: theirs }, effects);
    }

    /// A guest's turn is over.
    fn over(&mut self, number: u64, aborted: bool, now: Instant) {
        let Some(guest) = self.advisories.guests.get(&number) else { return };
        // What only reads leaves nothing behind.
        if !guest.granted || guest.keys.values().all(|used| !used.writes) {
            return self.evict(number);
        }
        self.pausing.retain(|(_, other)| *other != number);
        self.pausing.insert((now + self.advisories.cools(aborted, self.knobs.rtt_max), number));
    }

    /// A batch is over, and with it the lock that it has, or that others wait for.
    pub(super) fn let_go(&mut self, number: u64, batch: Batch, effects: &mut Effects<Self>) {
        let (now, me) = (effects.now(), effects.me());
        let aborted = batch.tries > batch.tries_alone;
        if let Some(home) = batch.lock {
            self.say(home, Advisory::Release { number, aborted }, effects);
        } else if batch.held.len() <= KEYS_MAX && self.advisories.are_hot(&batch.held, now) {
            // As a guest of our own.
            let guest = Guest { of: (me, number), keys: batch.held, missing: 0, granted: true, heard: now };
            self.advisories.guests.insert(number, guest);
            return self.over(number, aborted, now);
        }
        let mut got = Vec::new();
        self.lines.leave(&batch.held, |command| got.push(command));
        self.got(got);
    }

    /// A guest's turn is over, or it wants none any more.
    pub(super) fn evict(&mut self, number: u64) {
        let Some(guest) = self.advisories.guests.remove(&number) else { return };
        self.advisories.known.remove(&guest.of);
        if guest.granted {
            self.pausing.retain(|(_, other)| *other != number);
        }
        let mut got = Vec::new();
        self.lines.give_up(number, &guest.keys, |command| got.push(command));
        self.got(got);
    }
}
