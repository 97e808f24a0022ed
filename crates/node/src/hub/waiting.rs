//! Who waits for keys, is told that they were given something, and gets what another has taken of them; and the keys that other
//! nodes wait for.

use super::{Hub, News, Notice};
use crate::gateway::Outcome;
use isochrone_core::command::{Kind, Operation};
use isochrone_core::{Blob, Instant, KeyspaceId, Span};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How often a connection that waits for a key looks for itself, and other nodes are reminded that it waits.
pub const RETRY: Span = Span::from_secs(1);

/// How long another node is believed to wait for a key that it said it waits for.
pub(super) const BELIEVED: Span = Span::from_secs(3);

/// Keys that other nodes wait for, and their bytes, at most; beyond that their clients find out by looking.
const REMOTE_MAX: usize = 100_000;
const REMOTE_BYTES: usize = 16 << 20;

/// Keys that one connection waits for and other nodes hear of, at most.
const ANNOUNCED_MAX: usize = 1000;

/// And how long such a key may be, bytes: who waits for a longer one finds out by looking.
const ANNOUNCED_BYTES: usize = 4 << 10;

/// Of those that wait for a key, so many are looked at for one that has waited longer than who has seen that something is there.
const AHEAD_MAX: usize = 256;

/// A key of a keyspace.
type Place = (KeyspaceId, Blob);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    waiters: BTreeMap<u64, Waiter>,
    /// The connections that wait for a key, the one that has waited longest first.
    queues: BTreeMap<Place, VecDeque<u64>>,
    /// When each keyspace has last carried out what a client of this node has asked.
    heard: BTreeMap<KeyspaceId, Instant>,
    /// What connections have taken of a key while one that has waited longer may yet come with something of its own.
    taken: BTreeMap<Place, Vec<Taken>>,
    /// The keys that other nodes wait for, and until when that is believed.
    remote: BTreeMap<Place, Instant>,
    /// The bytes of these keys.
    remote_bytes: usize,
}

/// A connection that waits.
#[derive(Debug, Default)]
struct Waiter {
    /// For these keys.
    keys: BTreeMap<Place, Told>,
    /// How it takes what comes; none where it takes nothing away.
    manner: Option<Arc<Manner>>,
    standing: Standing,
    /// It waits for copies.
    syncs: bool,
    /// CLIENT UNBLOCK has ended this wait: with an error, or as a time-out does.
    unblocked: Option<bool>,
}

impl Waiter {
    fn waits(&self) -> bool {
        self.syncs || !self.keys.is_empty()
    }
}

/// How a connection takes what comes for a key that it waits for.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Manner {
    /// From what: values of a type, for streams those that are new to a group.
    pub from: (Kind, Option<Blob>),
    /// The command, without its keys where it takes the same from each: what one of several with the same has taken is as good for
    /// the others.
    pub how: Operation,
}

/// What becomes of it that a connection tries to take something.
#[derive(Default, Debug)]
enum Standing {
    /// It does not try.
    #[default]
    Idle,
    /// An attempt is under way.
    Tries,
    /// It has taken something, which may be for one that has waited longer.
    Took,
    /// This of this key is for it, and it has not fetched it.
    Given(Box<(Place, Outcome)>),
}

impl Standing {
    /// Whether it has taken something or was given it.
    fn is_owed(&self) -> bool {
        matches!(self, Standing::Took | Standing::Given(_))
    }
}

/// What was taken of one key in one manner, in the order in which the answers came.
#[derive(Debug)]
struct Taken {
    manner: Arc<Manner>,
    outcomes: VecDeque<Outcome>,
    /// Who has, and was given nothing yet.
    takers: Vec<u64>,
}

/// How many elements a connection was told of at a key that it waits for, and has not said what became of them: who is told
/// of one and does not take it must not keep it from those behind.
#[derive(Copy, Clone, Default, Debug)]
struct Told {
    /// Since it last began to look.
    since: usize,
    /// Before that.
    before: usize,
}

impl Told {
    fn count(self) -> usize {
        self.since + self.before
    }
}

impl Hub {
    /// A keyspace has carried out what a client of this node has asked.
    pub fn hear_from(&mut self, keyspace: KeyspaceId, now: Instant) {
        self.waiting.heard.insert(keyspace, now);
    }

    /// Whether it has within the last second, so that what is asked now is likely to be answered soon.
    pub fn hears(&self, keyspace: KeyspaceId, now: Instant) -> bool {
        self.waiting.heard.get(&keyspace).is_some_and(|heard| now < *heard + RETRY)
    }

    /// A connection waits for one of these keys from now on.
    pub fn wait(&mut self, connection: u64, keyspace: KeyspaceId, keys: &[Blob]) {
        let waiter = self.waiting.waiters.entry(connection).or_default();
        for key in keys {
            let place = (keyspace, key.clone());
            if let Entry::Vacant(entry) = waiter.keys.entry(place) {
                self.waiting.queues.entry(entry.key().clone()).or_default().push_back(connection);
                entry.insert(Told::default());
            }
        }
    }

    /// A connection waits for copies from now on, and for no key.
    pub fn wait_for_copies(&mut self, connection: u64) {
        self.waiting.waiters.entry(connection).or_default().syncs = true;
    }

    /// A connection that waits takes what comes in this manner, and tries to at once.
    pub fn takes(&mut self, connection: u64, manner: Manner) {
        if let Some(waiter) = self.waiting.waiters.get_mut(&connection) {
            (waiter.manner, waiter.standing) = (Some(Arc::new(manner)), Standing::Tries);
        }
    }

    /// It tries again.
    pub fn tries(&mut self, connection: u64) {
        if let Some(waiter) = self.waiting.waiters.get_mut(&connection) {
            waiter.standing = Standing::Tries;
        }
    }

    /// It waits no longer. What it was told of and has not taken, or was given and has not fetched, is for those behind it.
    pub fn unwait(&mut self, connection: u64) {
        let Some(waiter) = self.waiting.waiters.remove(&connection) else { return };
        if let (Some(manner), Standing::Given(given)) = (waiter.manner, waiter.standing) {
            let (place, outcome) = *given;
            self.taken_in(place, manner).outcomes.push_front(outcome);
        }
        let taken = &self.waiting.taken;
        let unsettled = waiter.keys.keys().filter(|place| taken.contains_key(*place)).cloned().collect();
        for (place, told) in waiter.keys {
            let Some(queue) = self.waiting.queues.get_mut(&place) else { continue };
            let at = queue.iter().position(|other| *other == connection);
            at.and_then(|at| queue.remove(at));
            if queue.is_empty() {
                self.waiting.queues.remove(&place);
            } else if told.count() > 0 {
                self.wake(&place, at.unwrap_or(0), told.count());
            }
        }
        self.settle(unsettled);
    }

    /// A connection that waits looks whether there is something.
    pub fn looks(&mut self, connection: u64) {
        for told in self.told(connection) {
            *told = Told { since: 0, before: told.before + told.since };
        }
    }

    /// It has found nothing: what it was told of before it looked, others have taken.
    pub fn found_nothing(&mut self, connection: u64) {
        self.told(connection).for_each(|told| told.before = 0);
    }

    /// It has taken an element of this key.
    pub fn took(&mut self, connection: u64, keyspace: KeyspaceId, key: &Blob) {
        let waiter = self.waiting.waiters.get_mut(&connection);
        if let Some(told) = waiter.and_then(|waiter| waiter.keys.get_mut(&(keyspace, key.clone()))) {
            told.before = told.before.saturating_sub(1);
        }
    }

    /// It has seen that a key that it waits for has something: whether it may try to take that. Where at each of its keys one has
    /// waited longer and takes from it in another manner, those are told instead, unless one has been told already and leaves it.
    pub fn sees(&mut self, connection: u64) -> bool {
        let Some(waiter) = self.waiting.waiters.get(&connection) else { return true };
        let Some(manner) = &waiter.manner else { return true };
        let mut others: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
        for place in waiter.keys.keys() {
            let mut queue = self.waiting.queues.get(place).into_iter().flatten().take(AHEAD_MAX);
            let first = queue.find_map(|other| {
                let waiter = self.waiting.waiters.get(other)?;
                let waits = waiter.unblocked.is_none() && !matches!(waiter.standing, Standing::Given(_));
                let first = waiter.manner.as_ref().filter(|first| waits && first.from == manner.from)?;
                let told = waiter.keys.get(place)?;
                Some((*other, first, told.count() > 0))
            });
            match first {
                Some((other, first, false)) if first != manner => {
                    others.entry(other).or_default().push(place.clone());
                }
                _ => return true,
            }
        }
        let tries = others.is_empty();
        for (other, places) in others {
            let Some(waiter) = self.waiting.waiters.get_mut(&other) else { continue };
            for place in places {
                // Where it cannot take it, those behind it are told.
                if let Some(told) = waiter.keys.get_mut(&place) {
                    told.since = 1;
                }
            }
            self.mail.push_back((other, Some(Notice::Filled)));
        }
        tries
    }

    /// It has taken something of this key. That is what it gets where nobody who has waited longer takes from it in the same
    /// manner; otherwise it waits until that is settled ([`Notice::Settled`]).
    pub fn share(
        &mut self,
        connection: u64,
        keyspace: KeyspaceId,
        key: &Blob,
        outcome: Outcome,
    ) -> Option<Outcome> {
        let manner = self.waiting.waiters.get(&connection).and_then(|waiter| waiter.manner.clone());
        let Some(manner) = manner else { return Some(outcome) };
        let place = (keyspace, key.clone());
        let queue = self.waiting.queues.get(&place).into_iter().flatten();
        let waits_as_well = |other: &u64| {
            let other = self.waiting.waiters.get(other).and_then(|waiter| waiter.manner.as_ref());
            other == Some(&manner)
        };
        let first = !queue.take_while(|other| **other != connection).any(waits_as_well);
        if first && !self.waiting.taken.contains_key(&place) {
            return Some(outcome);
        }
        let taken = self.taken_in(place.clone(), manner);
        taken.outcomes.push_back(outcome);
        taken.takers.push(connection);
        if let Some(waiter) = self.waiting.waiters.get_mut(&connection) {
            waiter.standing = Standing::Took;
        }
        self.settle(vec![place]);
        None
    }

    fn taken_in(&mut self, place: Place, manner: Arc<Manner>) -> &mut Taken {
        let all = self.waiting.taken.entry(place).or_default();
        let at = all.iter().position(|taken| taken.manner == manner).unwrap_or(all.len());
        if at == all.len() {
            all.push(Taken { manner, outcomes: VecDeque::new(), takers: Vec::new() });
        }
        &mut all[at]
    }

    /// It has taken nothing, and goes on waiting.
    pub fn took_nothing(&mut self, connection: u64) {
        let Some(waiter) = self.waiting.waiters.get_mut(&connection) else { return };
        waiter.standing = Standing::Idle;
        let unsettled =
            waiter.keys.keys().filter(|place| self.waiting.taken.contains_key(*place)).cloned().collect();
        self.settle(unsettled);
    }

    /// Whether what it has taken may yet be for it or for another.
    pub fn has_taken(&self, connection: u64) -> bool {
        self.waiting.waiters.get(&connection).is_some_and(|waiter| matches!(waiter.standing, Standing::Took))
    }

    /// Whether something that was taken is for it, or may be.
    pub fn is_owed(&self, connection: u64) -> bool {
        self.waiting.waiters.get(&connection).is_some_and(|waiter| waiter.standing.is_owed())
    }

    /// Whether it was given something.
    pub fn is_given(&self, connection: u64) -> bool {
        self.waiting
            .waiters
            .get(&connection)
            .is_some_and(|waiter| matches!(waiter.standing, Standing::Given(_)))
    }

    /// The connections that were given something.
    pub fn given(&self) -> Vec<u64> {
        let given =
            self.waiting.waiters.iter().filter(|(_, waiter)| matches!(waiter.standing, Standing::Given(_)));
        given.map(|(connection, _)| *connection).collect()
    }

    /// Whether something that was taken has not reached who gets it.
    pub fn owes(&self) -> bool {
        !self.waiting.taken.is_empty()
            || self.waiting.waiters.values().any(|waiter| waiter.standing.is_owed())
    }

    /// No attempt is waited for any more: what was taken is for those that wait and do not try, or have taken something.
    pub fn settle_all(&mut self) {
        for waiter in self.waiting.waiters.values_mut() {
            if matches!(waiter.standing, Standing::Tries) {
                // It may have taken something of its own that is not known here.
                (waiter.standing, waiter.unblocked) = (Standing::Idle, Some(false));
            }
        }
        let places = self.waiting.taken.keys().cloned().collect();
        self.settle(places);
    }

    /// What it was given: from now on it is its own.
    pub fn take_given(&mut self, connection: u64) -> Option<Outcome> {
        let waiter = self.waiting.waiters.get_mut(&connection)?;
        match std::mem::take(&mut waiter.standing) {
            Standing::Given(given) => {
                let (_, outcome) = *given;
                Some(outcome)
            }
            standing => {
                waiter.standing = standing;
                None
            }
        }
    }

    /// Gives what was taken of these keys to those who wait for it, the one that has waited longest first, until it is the turn of
    /// one that may yet come with something of its own: who ended before would lose that. Who has taken something and is left with
    /// nothing goes on waiting.
    fn settle(&mut self, mut places: Vec<Place>) {
        while let Some(place) = places.pop() {
            for mut taken in self.waiting.taken.remove(&place).unwrap_or_default() {
                let mut held = false;
                for connection in self.waiting.queues.get(&place).into_iter().flatten() {
                    if taken.outcomes.is_empty() {
                        break;
                    }
                    let Some(waiter) = self.waiting.waiters.get_mut(connection) else { continue };
                    if waiter.manner.as_ref() != Some(&taken.manner) {
                        continue;
                    }
                    match waiter.standing {
                        Standing::Given(_) => continue,
                        // It was said that nothing is for this one any more.
                        Standing::Idle if waiter.unblocked.is_some() => continue,
                        Standing::Idle => {}
                        Standing::Took if taken.takers.contains(connection) => {}
                        Standing::Tries | Standing::Took => {
                            held = true;
                            break;
                        }
                    }
                    if let Some(outcome) = taken.outcomes.pop_front() {
                        waiter.standing = Standing::Given(Box::new((place.clone(), outcome)));
                        taken.takers.retain(|taker| taker != connection);
                        self.mail.push_back((*connection, Some(Notice::Settled)));
                    }
                }
                if held {
                    self.waiting.taken.entry(place.clone()).or_default().push(taken);
                    continue;
                }
                for taker in taken.takers {
                    let Some(waiter) = self.waiting.waiters.get_mut(&taker) else { continue };
                    if matches!(waiter.standing, Standing::Took) {
                        waiter.standing = Standing::Idle;
                        self.mail.push_back((taker, Some(Notice::Settled)));
                        // At its other keys, others may have waited for this.
                        let others =
                            waiter.keys.keys().filter(|other| self.waiting.taken.contains_key(*other));
                        places.extend(others.cloned());
                    }
                }
            }
        }
    }

    /// What it has found is not what it waits for, and it goes on waiting; for those behind it, it may be.
    pub fn passes(&mut self, connection: u64) {
        let Some(waiter) = self.waiting.waiters.get_mut(&connection) else { return };
        let passed: Vec<_> = waiter
            .keys
            .iter_mut()
            .map(|(place, told)| (place.clone(), std::mem::take(&mut told.before)))
            .filter(|(_, count)| *count > 0)
            .collect();
        for (place, count) in passed {
            let queue = self.waiting.queues.get(&place);
            let at = queue.and_then(|queue| queue.iter().position(|other| *other == connection));
            if let Some(at) = at {
                self.wake(&place, at + 1, count);
            }
        }
    }

    fn told(&mut self, connection: u64) -> impl Iterator<Item = &mut Told> {
        self.waiting.waiters.get_mut(&connection).into_iter().flat_map(|waiter| waiter.keys.values_mut())
    }

    /// Whether a connection waits for a key, or for copies.
    pub fn waits(&self, connection: u64) -> bool {
        self.waiting.waiters.get(&connection).is_some_and(Waiter::waits)
    }

    /// Whether it has taken or was given an element of a key that it waits for, or was told of some and has not said what became
    /// of them.
    pub fn is_told(&self, connection: u64) -> bool {
        let mut told =
            self.waiting.waiters.get(&connection).into_iter().flat_map(|waiter| waiter.keys.values());
        self.is_owed(connection) || told.any(|told| told.count() > 0)
    }

    /// How many connections wait for a key, or for copies.
    pub fn waiters(&self) -> usize {
        self.waiting.waiters.values().filter(|waiter| waiter.waits()).count()
    }

    /// Tells the other nodes that somebody here waits for these keys.
    pub fn announce(&mut self, keyspace: KeyspaceId, keys: &[Blob]) {
        let short = keys.iter().filter(|key| key.len() <= ANNOUNCED_BYTES);
        let keys: Vec<Blob> = short.take(ANNOUNCED_MAX).cloned().collect();
        if !keys.is_empty() {
            self.tell(News::Waiting { keyspace, keys });
        }
    }

    /// A key was given so many elements by a command of this node: those who wait for it are told, the one
    /// that has waited longest first, as many as there are elements.
    pub fn filled(&mut self, keyspace: KeyspaceId, key: &Blob, count: usize, now: Instant) {
        let place = (keyspace, key.clone());
        self.wake(&place, 0, count);
        if self.waiting.remote.get(&place).is_some_and(|until| *until > now) {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            self.tell(News::Filled { keyspace, key: key.clone(), count });
        }
    }

    /// Tells those from place `from` of the queue on, as many as `count`: first who has not been told of anything yet. Where
    /// all have, some of them once more, since they may have looked before this was there.
    fn wake(&mut self, place: &Place, from: usize, count: usize) {
        let mut left = count;
        let mut busy = Vec::new();
        for connection in self.waiting.queues.get(place).into_iter().flatten().skip(from) {
            if left == 0 {
                return;
            }
            let waiter = self.waiting.waiters.get_mut(connection);
            let Some(told) = waiter.and_then(|waiter| waiter.keys.get_mut(place)) else { continue };
            if told.count() > 0 {
                busy.push(*connection);
                continue;
            }
            told.since = 1;
            left -= 1;
            self.mail.push_back((*connection, Some(Notice::Filled)));
        }
        for connection in busy.into_iter().take(left) {
            let waiter = self.waiting.waiters.get_mut(&connection);
            let Some(told) = waiter.and_then(|waiter| waiter.keys.get_mut(place)) else { continue };
            told.since += 1;
            // Otherwise it has not looked since it was last told, and will.
            if told.since == 1 {
                self.mail.push_back((connection, Some(Notice::Filled)));
            }
        }
    }

    /// CLIENT UNBLOCK: a connection is to wait no longer, and hears so with an error or as by a time-out. Whether that is
    /// new to one that waits.
    pub fn unblock(&mut self, connection: u64, error: bool) -> bool {
        let waits = |waiter: &&mut Waiter| waiter.waits() && waiter.unblocked.is_none();
        let Some(waiter) = self.waiting.waiters.get_mut(&connection).filter(waits) else { return false };
        waiter.unblocked = Some(error);
        self.mail.push_back((connection, Some(Notice::Unblock)));
        true
    }

    /// The client of a connection that waits is gone: nothing that others take is for it.
    pub fn hang_up(&mut self, connection: u64) {
        if let Some(waiter) = self.waiting.waiters.get_mut(&connection) {
            waiter.unblocked = waiter.unblocked.or(Some(false));
        }
    }

    /// Whether what it waits for was ended so, and how: not what it waited for when the notice of that was sent.
    pub fn unblocked(&self, connection: u64) -> Option<bool> {
        self.waiting.waiters.get(&connection)?.unblocked
    }

    /// Another node has told that somebody waits there for these keys. About how many steps that has taken.
    pub(super) fn hear_waiting(&mut self, keyspace: KeyspaceId, keys: Vec<Blob>, now: Instant) -> usize {
        let Waiting { remote, remote_bytes, .. } = &mut self.waiting;
        let steps = 1 + keys.len();
        for key in keys.into_iter().filter(|key| key.len() <= ANNOUNCED_BYTES) {
            let bytes = key.len();
            let full = remote.len() >= REMOTE_MAX || *remote_bytes + bytes > REMOTE_BYTES;
            match remote.entry((keyspace, key)) {
                Entry::Occupied(mut until) => *until.get_mut() = now + BELIEVED,
                Entry::Vacant(place) if !full => {
                    place.insert(now + BELIEVED);
                    *remote_bytes += bytes;
                }
                Entry::Vacant(_) => {}
            }
        }
        steps
    }

    /// Another node has told that a key was given so many elements. About how many steps that has taken.
    pub(super) fn hear_filled(&mut self, keyspace: KeyspaceId, key: Blob, count: u32) -> usize {
        let place = (keyspace, key);
        let steps = 1 + self.waiting.queues.get(&place).map_or(0, VecDeque::len);
        self.wake(&place, 0, count as usize);
        steps
    }

    /// Forgets what is not believed any more of what other nodes wait for.
    pub(super) fn forget_old_keys(&mut self, now: Instant) {
        let Waiting { remote, remote_bytes, .. } = &mut self.waiting;
        remote.retain(|_, until| *until > now);
        *remote_bytes = remote.keys().map(|(_, key)| key.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::tests::{OTHER, SPACE, mail};
    use isochrone_core::command::{Response, Side};

    #[test]
    fn whoever_has_waited_longest_is_told_first() {
        let mut hub = Hub::default();
        for connection in [3, 1, 2] {
            hub.wait(connection, SPACE, &["a".into(), "b".into(), "a".into()]);
        }
        hub.filled(SPACE, &"a".into(), 2, Instant::ZERO);
        assert_eq!(mail(&mut hub), "3 Filled; 1 Filled; ");
        hub.unwait(3);
        assert!(!hub.waits(3) && hub.waits(1));
        assert_eq!(mail(&mut hub), "2 Filled; ", "3 has taken nothing");
        hub.filled(SPACE, &"b".into(), 1, Instant::ZERO);
        hub.filled(KeyspaceId(2), &"b".into(), 9, Instant::ZERO);
        assert_eq!(mail(&mut hub), "1 Filled; ");
        assert!(hub.take_news().is_empty(), "nobody elsewhere waits");
    }

    /// Each keeps what it was told of from nobody behind it, and nobody is told of what was taken.
    #[test]
    fn of_each_element_somebody_is_told_who_takes_it() {
        let mut hub = Hub::default();
        let key = "a".into();
        (1..=4).for_each(|connection| hub.wait(connection, SPACE, &["a".into()]));
        // Elements that come one by one, before anybody has looked, are for one after the other.
        hub.filled(SPACE, &key, 1, Instant::ZERO);
        hub.filled(SPACE, &key, 1, Instant::ZERO);
        assert_eq!(mail(&mut hub), "1 Filled; 2 Filled; ");
        hub.looks(1);
        hub.took(1, SPACE, &key);
        hub.unwait(1);
        assert_eq!(mail(&mut hub), "", "it took what it was told of");
        // Another type than 2 waits for: 3 may want it, and only those behind 3 after that.
        hub.looks(2);
        hub.passes(2);
        hub.looks(3);
        hub.passes(3);
        assert_eq!(mail(&mut hub), "3 Filled; 4 Filled; ");
        // Whoever has been told of everything looks again: it may have looked before.
        hub.looks(4);
        hub.filled(SPACE, &key, 4, Instant::ZERO);
        assert_eq!(mail(&mut hub), "2 Filled; 3 Filled; 4 Filled; ");
        // But not once more for each.
        (0..9).for_each(|_| hub.filled(SPACE, &key, usize::MAX, Instant::ZERO));
        assert_eq!(mail(&mut hub), "");
        hub.found_nothing(4);
        hub.looks(4);
        hub.found_nothing(4);
        hub.filled(SPACE, &key, 1, Instant::ZERO);
        assert_eq!(mail(&mut hub), "4 Filled; ");
    }

    fn pops(side: Side) -> Manner {
        Manner { from: (Kind::List, None), how: Operation::LMPop { keys: [].into(), side, count: 1 } }
    }

    /// Connections that wait for these keys, and whose first attempts are under way.
    fn trying(connections: &[(u64, &str)]) -> Hub {
        let mut hub = Hub::default();
        for (connection, keys) in connections {
            let keys: Vec<Blob> = keys.split(' ').map(Blob::from).collect();
            hub.wait(*connection, SPACE, &keys);
            hub.takes(*connection, pops(Side::Left));
        }
        hub
    }

    fn element(text: &str) -> Outcome {
        Outcome::Done(Response::bulk(text.as_bytes()))
    }

    /// What they were given, who wait no longer then.
    fn given(hub: &mut Hub, connections: std::ops::RangeInclusive<u64>) -> String {
        let mut text = String::new();
        for connection in connections {
            if let Some(Outcome::Done(Response::Bulk(element))) = hub.take_given(connection) {
                hub.unwait(connection);
                text.push_str(&format!("{connection} {}; ", String::from_utf8_lossy(&element)));
            }
        }
        text
    }

    #[test]
    fn what_one_has_taken_is_for_whoever_has_waited_longest() {
        let mut hub = trying(&[(1, "a"), (2, "a"), (3, "a")]);
        let key = Blob::from("a");
        (1..=3).for_each(|connection| hub.took_nothing(connection));
        hub.tries(3);
        assert_eq!(hub.share(3, SPACE, &key, element("x")), None);
        assert_eq!(mail(&mut hub), "1 Settled; 3 Settled; ");
        assert!(hub.is_told(1) && !hub.has_taken(3), "3 goes on waiting");
        assert_eq!(given(&mut hub, 1..=3), "1 x; ");
        // The later one is answered first, and the earlier one may yet have found nothing, or what came then.
        (2..=3).for_each(|connection| hub.tries(connection));
        assert_eq!(hub.share(3, SPACE, &key, element("y")), None);
        assert_eq!(mail(&mut hub), "");
        assert_eq!(hub.share(2, SPACE, &key, element("z")), None);
        assert_eq!(mail(&mut hub), "2 Settled; 3 Settled; ");
        assert_eq!(given(&mut hub, 1..=3), "2 y; 3 z; ");
        assert!(hub.waiting.taken.is_empty());
        let mut alone = trying(&[(4, "a")]);
        assert_eq!(alone.share(4, SPACE, &key, element("x")), Some(element("x")));
    }

    #[test]
    fn who_ends_keeps_nothing_from_those_behind_it() {
        let mut hub = trying(&[(1, "a"), (2, "a"), (3, "a")]);
        let key = Blob::from("a");
        hub.took_nothing(3);
        assert_eq!(hub.share(2, SPACE, &key, element("x")), None);
        hub.leave(2);
        assert_eq!(mail(&mut hub), "", "1 may yet come with something");
        hub.took_nothing(1);
        assert_eq!(mail(&mut hub), "1 Settled; ");
        hub.leave(1);
        assert_eq!(given(&mut hub, 1..=3), "3 x; ");
        assert!(hub.waiting.taken.is_empty() && hub.waiting.waiters.is_empty());
        // One whose attempt has ended without an answer holds up nobody, either.
        let mut hub = trying(&[(1, "a"), (2, "a")]);
        assert_eq!(hub.share(2, SPACE, &key, element("x")), None);
        hub.unwait(1);
        assert_eq!(given(&mut hub, 1..=2), "2 x; ");
    }

    #[test]
    fn who_waits_for_several_keys_has_its_turn_at_each() {
        let (a, b) = (Blob::from("a"), Blob::from("b"));
        let mut hub = trying(&[(1, "a b"), (2, "b")]);
        assert_eq!(hub.share(2, SPACE, &b, element("x")), None);
        assert_eq!(hub.share(1, SPACE, &a, element("y")), Some(element("y")));
        hub.unwait(1);
        assert_eq!(given(&mut hub, 1..=2), "2 x; ");
        // Whether 2 keeps what it has is not known before 1 is answered, and so neither whether it wants what 3 has.
        let mut hub = trying(&[(1, "a"), (2, "a b"), (3, "b")]);
        assert_eq!(hub.share(2, SPACE, &a, element("x")), None);
        assert_eq!(hub.share(3, SPACE, &b, element("y")), None);
        assert_eq!(mail(&mut hub), "");
        hub.took_nothing(1);
        assert_eq!(mail(&mut hub), "1 Settled; 2 Settled; 2 Settled; 3 Settled; ");
        assert_eq!(given(&mut hub, 1..=3), "1 x; 2 y; ");
        assert!(hub.waiting.taken.is_empty());
    }

    #[test]
    fn who_waits_for_something_else_or_no_longer_holds_up_nobody() {
        let key = Blob::from("a");
        let mut hub = trying(&[(1, "a"), (2, "a")]);
        hub.took_nothing(1);
        assert!(hub.unblock(1, false));
        assert_eq!(hub.share(2, SPACE, &key, element("x")), None);
        assert_eq!(mail(&mut hub), "1 Unblock; 2 Settled; ");
        assert_eq!(given(&mut hub, 1..=2), "2 x; ");
        let mut hub = trying(&[(1, "a"), (2, "a"), (3, "a"), (4, "a b")]);
        let least = Operation::ZMPop { keys: [].into(), end: isochrone_core::command::End::Least, count: 1 };
        hub.takes(1, Manner { from: (Kind::SortedSet, None), how: least });
        hub.takes(2, pops(Side::Right));
        assert_eq!(hub.share(3, SPACE, &key, element("x")), Some(element("x")));
        // What takes from the other end cannot be given what 3 has; but where 3 sees that something is there, 2 is told.
        (1..=4).for_each(|connection| hub.took_nothing(connection));
        assert!(!hub.sees(3));
        assert_eq!(mail(&mut hub), "2 Filled; ");
        assert!(hub.sees(1) && hub.sees(2) && hub.sees(4), "each is the first, at one of its keys");
        assert_eq!(mail(&mut hub), "");
    }

    #[test]
    fn who_is_told_by_another_that_looks_keeps_nothing_from_it() {
        let mut hub = trying(&[(1, "a"), (2, "a")]);
        hub.takes(1, pops(Side::Right));
        (1..=2).for_each(|connection| hub.took_nothing(connection));
        assert!(!hub.sees(2));
        assert_eq!(mail(&mut hub), "1 Filled; ");
        assert!(hub.sees(2), "1 has been told, and has not taken it");
        assert_eq!(mail(&mut hub), "");
        hub.looks(1);
        hub.passes(1);
        assert_eq!(mail(&mut hub), "2 Filled; ");
        hub.looks(2);
        assert!(!hub.sees(2));
        hub.unwait(1);
        assert_eq!(mail(&mut hub), "1 Filled; 2 Filled; ");
        // Nor is everybody looked at who waits for values of another type.
        let mut hub = trying(&[]);
        let key = [Blob::from("a")];
        let least = Operation::ZMPop { keys: [].into(), end: isochrone_core::command::End::Least, count: 1 };
        for connection in 0..AHEAD_MAX as u64 {
            hub.wait(connection, SPACE, &key);
            hub.takes(connection, Manner { from: (Kind::SortedSet, None), how: least.clone() });
        }
        for (connection, side) in [(1_000, Side::Left), (1_001, Side::Right)] {
            hub.wait(connection, SPACE, &key);
            hub.takes(connection, pops(side));
        }
        assert!(hub.sees(1_001));
        hub.unwait(0);
        assert!(!hub.sees(1_001));
    }

    #[test]
    fn who_is_gone_is_given_nothing_that_another_has_taken() {
        let mut hub = trying(&[(1, "a"), (2, "a")]);
        assert_eq!(hub.share(2, SPACE, &"a".into(), element("x")), None);
        hub.hang_up(1);
        hub.took_nothing(1);
        assert_eq!(given(&mut hub, 1..=2), "2 x; ");
    }

    #[test]
    fn at_the_end_what_was_taken_reaches_somebody() {
        let mut hub = trying(&[(1, "a"), (2, "a b"), (3, "b")]);
        assert!(!hub.owes());
        assert_eq!(hub.share(2, SPACE, &"a".into(), element("x")), None);
        assert_eq!(hub.share(3, SPACE, &"b".into(), element("y")), None);
        assert!(hub.owes() && hub.is_told(2), "2 is about to end");
        hub.settle_all();
        let mut text = String::new();
        while hub.owes() {
            for connection in hub.given() {
                text.push_str(&given(&mut hub, connection..=connection));
            }
        }
        assert_eq!(text, "2 x; 3 y; ");
        assert!(!hub.is_told(1), "its own attempt may have taken something");
    }

    #[test]
    fn a_node_that_waits_is_told_for_as_long_as_it_is_believed_to() {
        let (mut here, mut there) = (Hub::default(), Hub::default());
        there.wait(9, SPACE, &["a".into()]);
        there.announce(SPACE, &["a".into()]);
        for news in there.take_news() {
            here.hear_one(OTHER, news, Instant::ZERO);
        }
        here.filled(SPACE, &"a".into(), 1, Instant::ZERO + Span::from_secs(2));
        for news in here.take_news() {
            there.hear_one(OTHER, news, Instant::ZERO);
        }
        assert_eq!(mail(&mut there), "9 Filled; ");
        here.filled(SPACE, &"a".into(), 1, Instant::ZERO + Span::from_secs(4));
        assert!(here.take_news().is_empty());
        here.tick(Instant::ZERO + Span::from_secs(4));
        assert_eq!((here.waiting.remote.len(), here.waiting.remote_bytes), (0, 0), "nobody waits any more");
    }

    #[test]
    fn what_others_wait_for_takes_no_more_memory_than_it_may() {
        let (mut here, mut there) = (Hub::default(), Hub::default());
        there.announce(SPACE, &[vec![b'k'; ANNOUNCED_BYTES + 1].into()]);
        assert!(there.take_news().is_empty(), "who waits for a long key looks for itself");
        let keys = (0..2 * REMOTE_BYTES / ANNOUNCED_BYTES).map(|n| format!("{n:04096}").into_bytes().into());
        let keys = keys.chain([vec![b'k'; ANNOUNCED_BYTES + 1].into()]).collect::<Vec<Blob>>();
        for _ in 0..2 {
            here.hear_one(OTHER, News::Waiting { keyspace: SPACE, keys: keys.clone() }, Instant::ZERO);
            assert_eq!(
                (here.waiting.remote.len(), here.waiting.remote_bytes),
                (REMOTE_BYTES / ANNOUNCED_BYTES, REMOTE_BYTES)
            );
        }
    }
}
