//! How many subscriptions names have, here and at other nodes: what this node tells of its own, and what others have told.

use super::{Hub, News, Topic};
use isochrone_core::{Blob, Instant, NodeId, Span};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Names of which a node tells others how many subscriptions they have, and the bytes of these names, at most.
const COUNTED_MAX: usize = 10_000;
const COUNTED_BYTES: usize = 1 << 20;
/// How often that is told at most, and about how many bytes then: with the longest name, no more than leave in one piece.
const COUNTS_PACE: Span = Span::from_millis(50);
const COUNTS_BYTES: usize = 11 << 10;
/// What one takes beside its name.
const COUNT_BYTES: usize = 8;
/// How often all of it is told again, since news may be lost, and how long it is believed.
const COUNTS_AGAIN: Span = Span::from_secs(10);
pub(super) const COUNTS_BELIEVED: Span = Span::from_secs(30);

/// A name that is subscribed to, and as what.
pub(super) type Name = (Topic, Blob);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// What other nodes are told.
    telling: Telling,
    /// What they have told of theirs.
    elsewhere: BTreeMap<NodeId, Elsewhere>,
}

impl Counts {
    /// A name here has more or fewer subscriptions than before, and `any` or none.
    pub(super) fn note(&mut self, name: Name, any: bool) {
        self.telling.note(name, any);
    }
}

/// What this node tells others of its subscriptions.
#[derive(Debug, Default)]
struct Telling {
    /// The names that are told of, each until it was told that it has no subscription any more.
    names: BTreeSet<Name>,
    /// The bytes of these.
    bytes: usize,
    /// The names that there is no room for.
    untold: BTreeSet<Name>,
    /// Those that are told of and have more or fewer subscriptions than was told.
    changed: BTreeSet<Name>,
    /// The same, as they have changed, and some that have been told since.
    turns: VecDeque<Name>,
    /// Those that are told once more.
    repeats: VecDeque<Name>,
    /// All are told once more when these are.
    anew: bool,
    /// Whether the last that was told was one of these.
    repeated: bool,
    /// Before then nothing is told.
    next: Instant,
    /// When all is told again.
    again: Instant,
}

impl Telling {
    /// A name has more or fewer subscriptions than before, and `any` or none.
    fn note(&mut self, name: Name, any: bool) {
        if !self.names.contains(&name) {
            if !any {
                self.untold.remove(&name);
                return;
            }
            if !self.has_room_for(&name) {
                self.untold.insert(name);
                return;
            }
            self.take_up(name.clone());
        }
        self.change(name);
    }

    fn change(&mut self, name: Name) {
        if self.changed.insert(name.clone()) {
            self.turns.push_back(name);
        }
    }

    fn has_room_for(&self, (_, name): &Name) -> bool {
        self.names.len() < COUNTED_MAX && self.bytes + name.len() <= COUNTED_BYTES
    }

    fn take_up(&mut self, name: Name) {
        self.bytes += name.1.len();
        self.names.insert(name);
    }

    /// It is told that this name has no subscription any more: there is room for others.
    fn end(&mut self, name: &Name) {
        if self.names.remove(name) {
            self.bytes -= name.1.len();
        }
        while self.untold.first().is_some_and(|first| self.has_room_for(first))
            && let Some(first) = self.untold.pop_first()
        {
            self.take_up(first.clone());
            self.change(first);
        }
    }

    /// When the next names are to be told.
    fn due(&self) -> Instant {
        let has_some = !self.changed.is_empty() || !self.repeats.is_empty();
        if has_some { self.next } else { Instant::MAX }
    }

    /// What is to be told next: by turns what has changed and what is told once more, so that neither waits for the other to end.
    fn take(&mut self) -> Option<Name> {
        self.repeated = !self.repeated;
        if self.repeated {
            self.repeat().or_else(|| self.news())
        } else {
            self.news().or_else(|| self.repeat())
        }
    }

    fn news(&mut self) -> Option<Name> {
        let changed = &mut self.changed;
        std::iter::from_fn(|| self.turns.pop_front()).find(|name| changed.remove(name))
    }

    fn repeat(&mut self) -> Option<Name> {
        let names = &self.names;
        let name = std::iter::from_fn(|| self.repeats.pop_front()).find(|name| names.contains(name))?;
        // It is told as it is now.
        self.changed.remove(&name);
        Some(name)
    }
}

/// What another node has told of its subscriptions.
#[derive(Debug, Default)]
struct Elsewhere {
    /// How many a name has, and when that was told.
    names: BTreeMap<Name, (u32, Instant)>,
    /// The bytes of these names.
    bytes: usize,
}

impl Elsewhere {
    fn hear(&mut self, name: Name, count: u32, now: Instant) {
        let bytes = name.1.len();
        // Beside those that it tells of there may be as many whose end was lost on the way.
        let full = self.names.len() >= 2 * COUNTED_MAX || self.bytes + bytes > 2 * COUNTED_BYTES;
        match self.names.entry(name) {
            Entry::Occupied(known) if count == 0 => {
                known.remove();
                self.bytes -= bytes;
            }
            Entry::Occupied(mut known) => *known.get_mut() = (count, now),
            Entry::Vacant(place) if count > 0 && !full => {
                place.insert((count, now));
                self.bytes += bytes;
            }
            Entry::Vacant(_) => {}
        }
    }

    /// Forgets what is not believed any more.
    fn forget_old(&mut self, now: Instant) {
        self.names.retain(|_, (_, told)| now < *told + COUNTS_BELIEVED);
        self.bytes = self.names.keys().map(|(_, name)| name.len()).sum();
    }
}

impl Hub {
    /// The names that somebody has subscribed to, here or, as far as they have told, at other nodes.
    pub fn names(&self, topic: Topic) -> BTreeSet<&Blob> {
        let there = self.counts.elsewhere.values().flat_map(|told| told.names.keys());
        let there = there.filter(|(of, _)| *of == topic).map(|(_, name)| name);
        there.chain(self.subscriptions.names(topic)).collect()
    }

    /// About how many steps it takes to find these.
    pub fn steps_to_name(&self, topic: Topic) -> usize {
        self.names_here(topic) + self.counts.elsewhere.values().map(|told| told.names.len()).sum::<usize>()
    }

    /// How many connections have subscribed to this name, here and, as far as they have told, at other nodes.
    pub fn subscribers(&self, topic: Topic, name: &[u8]) -> usize {
        let place = (topic, Blob::new(name));
        let there = self.counts.elsewhere.values().filter_map(|told| told.names.get(&place));
        self.subscriptions.count(topic, name) + there.map(|(count, _)| *count as usize).sum::<usize>()
    }

    /// Tells the other nodes how many subscriptions names have here: what has changed, and now and then all of it. To be called in
    /// each round, and at [`Hub::counts_due`].
    pub fn tell_counts(&mut self, now: Instant) {
        if now >= self.counts.telling.again {
            self.counts.telling.again = now + COUNTS_AGAIN;
            self.counts.telling.anew = true;
            self.tell_wants_again();
        }
        // Before the names: whoever has heard of a subscription knows what it is for.
        self.tell_wants(now);
        let telling = &mut self.counts.telling;
        // A round is ended before the next one begins: however often a link is made, each name has its turn.
        if telling.anew && telling.repeats.is_empty() {
            telling.anew = false;
            telling.repeats = telling.names.difference(&telling.changed).cloned().collect();
        }
        if now < telling.due() {
            return;
        }
        telling.next = now + COUNTS_PACE;
        let (mut counts, mut bytes) = (Vec::new(), 0);
        while bytes < COUNTS_BYTES
            && let Some(name) = telling.take()
        {
            let count = self.subscriptions.count(name.0, &name.1);
            if count == 0 {
                telling.end(&name);
            }
            bytes += COUNT_BYTES + name.1.len();
            counts.push((name.0, name.1, u32::try_from(count).unwrap_or(u32::MAX)));
        }
        if !counts.is_empty() {
            self.tell(News::Subscribed { counts });
        }
    }

    /// When there is something of that to tell.
    pub fn counts_due(&self) -> Instant {
        self.counts.telling.due().min(self.wants_due())
    }

    /// Another node is reached that has not heard what was told before: all of it is told again.
    pub fn tell_counts_again(&mut self) {
        self.counts.telling.again = Instant::ZERO;
    }

    /// Another node has told how many subscriptions names have there. About how many steps that has taken.
    pub(super) fn hear_counts(
        &mut self,
        from: NodeId,
        counts: Vec<(Topic, Blob, u32)>,
        now: Instant,
    ) -> usize {
        let steps = 1 + counts.len();
        let told = self.counts.elsewhere.entry(from).or_default();
        for (topic, name, count) in counts {
            told.hear((topic, name), count, now);
        }
        steps
    }

    /// What another node has told holds no longer. About how many steps that has taken.
    pub(super) fn forget_counts_of(&mut self, from: NodeId) -> usize {
        self.counts.elsewhere.remove(&from).map_or(1, |told| 1 + told.names.len())
    }

    /// Forgets what is not believed any more of what others have told.
    pub(super) fn forget_old_counts(&mut self, now: Instant) {
        self.counts.elsewhere.values_mut().for_each(|told| told.forget_old(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::tests::{OTHER, tell_counts};

    #[test]
    fn subscriptions_count_at_every_node() {
        let (mut here, mut there) = (Hub::default(), Hub::default());
        let at = |millis| Instant::ZERO + Span::from_millis(millis);
        here.subscribe(1, Topic::Channel, &"news".into());
        for (connection, topic, name) in [
            (1, Topic::Channel, "news"),
            (2, Topic::Channel, "news"),
            (2, Topic::Shard, "news"),
            (2, Topic::Pattern, "n*"),
        ] {
            there.subscribe(connection, topic, &name.into());
        }
        let counts =
            |hub: &Hub| Topic::ALL.map(|topic| (hub.names(topic).len(), hub.subscribers(topic, b"news")));
        assert_eq!(there.counts_due(), Instant::ZERO, "at once");
        assert_eq!(tell_counts(&mut there, &mut here, at(9_000)), 1);
        assert_eq!(counts(&here), [(1, 3), (1, 0), (1, 1)]);
        assert_eq!(counts(&there), [(1, 2), (1, 0), (1, 1)], "it was told nothing");
        // What changes soon after that is told together.
        there.unsubscribe(1, Topic::Channel, &"news".into());
        assert_eq!(tell_counts(&mut there, &mut here, at(9_049)), 0);
        there.leave(2);
        assert_eq!(there.counts_due(), at(9_050));
        assert_eq!(tell_counts(&mut there, &mut here, at(9_050)), 1);
        assert_eq!(counts(&here), [(1, 1), (0, 0), (0, 0)]);
        assert_eq!(there.counts_due(), Instant::MAX);
        assert_eq!((there.counts.telling.names.len(), there.counts.telling.bytes), (0, 0));
        assert_eq!(here.counts.elsewhere[&OTHER].bytes, 0);
    }

    #[test]
    fn counts_are_told_again_and_forgotten_with_their_node() {
        let (mut here, mut there) = (Hub::default(), Hub::default());
        let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
        let name = Blob::from("a");
        let known = |hub: &Hub| hub.subscribers(Topic::Channel, b"a");
        there.subscribe(1, Topic::Channel, &name);
        there.tell_counts(at(1));
        assert_eq!(there.take_news().len(), 1, "which are lost");
        assert_eq!(tell_counts(&mut there, &mut here, at(10)), 0);
        assert_eq!((tell_counts(&mut there, &mut here, at(11)), known(&here)), (1, 1));
        there.tell_counts_again();
        assert_eq!(tell_counts(&mut there, &mut here, at(12)), 1, "to who was not there");
        // Its end is lost.
        there.leave(1);
        there.tell_counts(at(13));
        assert_eq!(there.take_news().len(), 1);
        here.tick(at(41));
        assert_eq!(known(&here), 1);
        here.tick(at(44));
        assert_eq!((known(&here), here.counts.elsewhere[&OTHER].bytes), (0, 0));
        // Its node is gone.
        there.subscribe(1, Topic::Channel, &name);
        assert_eq!((tell_counts(&mut there, &mut here, at(50)), known(&here)), (1, 1));
        here.take_in([(OTHER, None)]);
        here.hear(at(51));
        assert_eq!(known(&here), 0);
    }

    #[test]
    fn counts_are_told_of_so_many_names_and_of_so_many_at_a_time() {
        let (mut here, mut there) = (Hub::default(), Hub::default());
        let name = |number: usize| Blob::from(format!("{number:05}").into_bytes());
        for number in 0..COUNTED_MAX + 2 {
            there.subscribe(1, Topic::Channel, &name(number));
        }
        let mut now = Instant::ZERO;
        while there.counts_due() < Instant::MAX {
            now = now.max(there.counts_due());
            there.tell_counts(now);
            for news in there.take_news() {
                let mut bytes = Vec::new();
                crate::transport::frame::news(&mut bytes, &news);
                assert!(bytes.len() <= isochrone_core::Urgency::SMALL, "{}", bytes.len());
                here.hear_one(OTHER, news, now);
            }
        }
        assert_eq!(here.names(Topic::Channel).len(), COUNTED_MAX);
        assert_eq!(here.subscribers(Topic::Channel, &name(COUNTED_MAX)), 0, "it was too late");
        // Until there is room.
        there.unsubscribe(1, Topic::Channel, &name(0));
        tell_counts(&mut there, &mut here, now + Span::from_secs(1));
        assert_eq!(here.names(Topic::Channel).len(), COUNTED_MAX);
        assert_eq!(here.subscribers(Topic::Channel, &name(COUNTED_MAX)), 1);
        there.leave(1);
        assert!(there.counts.telling.untold.is_empty());
        // The bytes of the names are bounded as well, and what is believed of others.
        let mut there = Hub::default();
        for number in 0..COUNTED_BYTES / 4_096 + 9 {
            there.subscribe(1, Topic::Channel, &Blob::from(format!("{number:04096}").into_bytes()));
        }
        assert_eq!((there.counts.telling.bytes, there.counts.telling.untold.len()), (COUNTED_BYTES, 9));
        let counts = (0..3 * COUNTED_MAX).map(|number| (Topic::Shard, name(number), 1)).collect();
        here.hear_one(OTHER, News::Subscribed { counts }, now);
        assert_eq!(here.counts.elsewhere[&OTHER].names.len(), 2 * COUNTED_MAX);
    }
}
