//! Which events of keys are wanted, here and at other nodes; whom they are told, and on which channels.

use super::counts::COUNTS_BELIEVED;
use super::{Hub, News, Topic};
use crate::events::Event;
use isochrone_core::glob::PATTERN_MAX;
use isochrone_core::notify::Flags;
use isochrone_core::{Blob, Instant, KeyspaceId, NodeId};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The number that SELECT takes at this node for each keyspace: other nodes' files may say others.
    numbers: BTreeMap<KeyspaceId, u32>,
    /// `notify-keyspace-events` of this node.
    notifies: Flags,
    /// How many subscriptions here may be for events of keys.
    listeners: usize,
    /// Which events are wanted at other nodes, and when that was told.
    elsewhere: BTreeMap<NodeId, (Flags, Instant)>,
    /// The classes of events that somebody wants, here or, as far as they have told, at other nodes.
    wanted: Flags,
    /// Those that others were last told are wanted here.
    wants_told: Flags,
    /// They are to be told again.
    wants_anew: bool,
}

/// Whether what is subscribed to so may be a channel of events of keys.
fn may_be_for_events(topic: Topic, name: &[u8]) -> bool {
    const CHANNELS: [&[u8]; 2] = [b"__keyspace@", b"__keyevent@"];
    match topic {
        Topic::Channel => CHANNELS.iter().any(|channels| name.starts_with(channels)),
        Topic::Pattern => {
            // What it begins with whatever fits it.
            let length = name.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(name.len());
            let known = &name[..length];
            CHANNELS.iter().any(|channels| channels.starts_with(known) || known.starts_with(channels))
        }
        Topic::Shard => false,
    }
}

impl Hub {
    /// Sets which number SELECT takes for each keyspace: by that, events of it are called.
    pub fn set_numbers(&mut self, numbers: impl IntoIterator<Item = (KeyspaceId, u32)>) {
        self.events.numbers = numbers.into_iter().collect();
    }

    /// `notify-keyspace-events` of this node.
    pub fn notifies(&self) -> Flags {
        self.events.notifies
    }

    /// Sets that.
    pub fn set_notifies(&mut self, flags: Flags) {
        self.events.notifies = flags;
        self.weigh_wants();
    }

    /// The classes of events of keys that somebody wants, at any node: others need not be made.
    pub fn wanted(&self) -> Flags {
        self.events.wanted
    }

    /// The classes that are told here.
    fn wants_here(&self) -> Flags {
        if self.events.listeners > 0 { self.events.notifies.told() } else { Flags::NONE }
    }

    fn weigh_wants(&mut self) {
        let there = self.events.elsewhere.values().map(|(wants, _)| *wants);
        self.events.wanted = there.fold(self.wants_here(), Flags::with);
    }

    /// A connection has subscribed to this, or does no longer.
    pub(super) fn note_listener(&mut self, topic: Topic, name: &[u8], comes: bool) {
        if may_be_for_events(topic, name) {
            let listeners = &mut self.events.listeners;
            *listeners = if comes { *listeners + 1 } else { *listeners - 1 };
            self.weigh_wants();
        }
    }

    /// What is wanted here is told once more, where anything is or was.
    pub(super) fn tell_wants_again(&mut self) {
        self.events.wants_anew = self.wants_here().with(self.events.wants_told) != Flags::NONE;
    }

    /// Tells the other nodes what is wanted here, where that is due.
    pub(super) fn tell_wants(&mut self, now: Instant) {
        if now >= self.wants_due() {
            let wants = self.wants_here();
            (self.events.wants_told, self.events.wants_anew) = (wants, false);
            self.tell(News::Wants { classes: wants });
        }
    }

    /// More is wanted from now on: whoever has subscribed may do at once what it waits for. That less is wanted is told with the next
    /// round of names, since the next subscriber may come as soon as the last one has left.
    pub(super) fn wants_due(&self) -> Instant {
        let more = self.wants_here().without(self.events.wants_told) != Flags::NONE;
        if self.events.wants_anew || more { Instant::ZERO } else { Instant::MAX }
    }

    /// Another node has told what is wanted there.
    pub(super) fn hear_wants(&mut self, from: NodeId, classes: Flags, now: Instant) {
        self.events.elsewhere.insert(from, (classes, now));
        self.weigh_wants();
    }

    /// What another node has told holds no longer.
    pub(super) fn forget_wants_of(&mut self, from: NodeId) {
        self.events.elsewhere.remove(&from);
        self.weigh_wants();
    }

    /// Forgets what is not believed any more of what others have told.
    pub(super) fn forget_old_wants(&mut self, now: Instant) {
        self.events.elsewhere.retain(|_, (_, told)| now < *told + COUNTS_BELIEVED);
        self.weigh_wants();
    }

    /// Whether another node has told that it wants such events.
    pub(super) fn is_wanted_at(&self, node: NodeId, event: Event) -> bool {
        self.events.elsewhere.get(&node).is_some_and(|(wants, _)| wants.has(event.class()))
    }

    /// Something has happened to a key of this keyspace: told to whoever wants it, here with the next round.
    pub fn happened(&mut self, keyspace: KeyspaceId, event: Event, key: &Blob) {
        // No channel has a longer name.
        if key.len() > PATTERN_MAX {
            return;
        }
        let news = || News::Happened { keyspace, event, key: key.clone() };
        if self.events.elsewhere.values().any(|(wants, _)| wants.has(event.class())) {
            self.tell(news());
        }
        if self.wants_here().has(event.class()) {
            self.hear_own(news());
        }
    }

    /// An event was told. About how many steps that has taken, and whether all got it who want it.
    pub(super) fn hear_event(&mut self, keyspace: KeyspaceId, event: Event, key: &Blob) -> (usize, bool) {
        let (mut steps, mut told) = (1, true);
        let number = self.events.numbers.get(&keyspace).copied();
        let Some(number) = number.filter(|_| self.wants_here().has(event.class())) else {
            return (steps, told);
        };
        let name = Blob::from(event.name());
        for (flag, kind, of, payload) in
            [(Flags::BY_KEY, "keyspace", key, &name), (Flags::BY_EVENT, "keyevent", &name, key)]
        {
            if !self.events.notifies.has(flag) {
                continue;
            }
            let channel = Blob::from([format!("__{kind}@{number}__:").as_bytes(), &of[..]].concat());
            let receivers = self.deliver(false, &channel, payload);
            steps += self.steps_to_publish(&channel) + receivers.unwrap_or(0);
            told &= receivers.is_some();
        }
        (steps, told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::tests::{OTHER, mail, tell_counts};
    use isochrone_core::Span;

    #[test]
    fn events_go_where_they_are_wanted() {
        let (mut here, mut there) = (Hub::default(), Hub::default());
        let at = |millis| Instant::ZERO + Span::from_millis(millis);
        let (main, other) = (KeyspaceId(1), KeyspaceId(2));
        here.set_numbers([(main, 0), (other, 1)]);
        there.set_numbers([(main, 0), (other, 3)]);
        there.set_notifies(Flags::parse(b"Ex").unwrap());
        assert_eq!(there.wanted(), Flags::NONE, "nobody listens");
        there.subscribe(1, Topic::Pattern, &"__keyevent@*__:expired".into());
        assert_eq!(there.wanted(), Flags::EXPIRED);
        assert_eq!(tell_counts(&mut there, &mut here, at(0)), 2, "what is wanted, and a name");
        assert_eq!(here.wanted(), Flags::EXPIRED);
        let key = Blob::from("k");
        here.happened(other, Event::Set, &key);
        here.happened(other, Event::Expired, &key);
        here.happened(other, Event::Expired, &vec![b'k'; PATTERN_MAX + 1].into());
        let news = here.take_news();
        assert_eq!(news, [News::Happened { keyspace: other, event: Event::Expired, key: key.clone() }]);
        assert_eq!([0, 1, 2].map(|node| here.concerns(NodeId(node), &news[0])), [false, true, false]);
        assert!(here.concerns(NodeId(2), &News::Wants { classes: Flags::NONE }));
        assert_eq!(here.hear(at(0)), 0);
        assert_eq!(mail(&mut here), "", "nobody here");
        there.take_in(news.into_iter().map(|news| (OTHER, Some(news))));
        there.happened(main, Event::Expired, &key);
        there.happened(KeyspaceId(3), Event::Expired, &key);
        assert_eq!(there.hear(at(0)), 0);
        let message = |number| {
            format!(
                "1 Message {{ shard: false, pattern: Some(\"__keyevent@*__:expired\"), channel: \
                 \"__keyevent@{number}__:expired\", payload: \"k\" }}; "
            )
        };
        assert_eq!(
            mail(&mut there),
            message(3) + &message(0),
            "by the numbers of this node, and of no keyspace without"
        );
        assert!(there.take_news().is_empty(), "here nobody listens");
        // Whatever another wants, what is delivered is what this node is to tell.
        there.set_notifies(Flags::parse(b"KA").unwrap());
        there.happened(main, Event::Expired, &key);
        there.hear(at(0));
        assert_eq!(mail(&mut there), "", "that is another channel");
        assert_eq!(there.counts_due(), at(0), "at once");
        assert_eq!(tell_counts(&mut there, &mut here, at(50)), 1);
        assert!(here.wanted().has(Flags::STRING));
        there.leave(1);
        assert_eq!(there.wanted(), Flags::NONE);
        tell_counts(&mut there, &mut here, at(9_999));
        assert!(here.wanted().has(Flags::STRING), "for whoever comes next");
        tell_counts(&mut there, &mut here, at(10_000));
        assert_eq!(here.wanted(), Flags::NONE);
    }

    #[test]
    fn what_another_node_wants_is_forgotten_with_it() {
        let (mut here, mut there) = (Hub::default(), Hub::default());
        let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
        there.set_notifies(Flags::parse(b"Kg").unwrap());
        there.subscribe(1, Topic::Channel, &"__keyspace@0__:k".into());
        tell_counts(&mut there, &mut here, at(0));
        assert_eq!(tell_counts(&mut there, &mut here, at(9)), 0);
        assert_eq!(tell_counts(&mut there, &mut here, at(10)), 2, "again");
        here.tick(at(39));
        assert_eq!(here.wanted(), Flags::GENERIC);
        here.tick(at(42));
        assert_eq!(here.wanted(), Flags::NONE, "not believed any more");
        tell_counts(&mut there, &mut here, at(42));
        assert_eq!(here.wanted(), Flags::GENERIC);
        here.take_in([(OTHER, None)]);
        here.hear(at(42));
        assert_eq!(here.wanted(), Flags::NONE, "it is gone");
    }

    #[test]
    fn events_are_made_for_names_that_may_be_their_channels() {
        let may = |topic, name: &str| may_be_for_events(topic, name.as_bytes());
        for name in ["__keyspace@0__:a", "__keyevent@0__:set"] {
            assert!(may(Topic::Channel, name) && may(Topic::Pattern, name) && !may(Topic::Shard, name));
        }
        for pattern in ["*", "__key*__:*", "_?keyevent*", "__key[es]*", "\\__keyspace*"] {
            assert!(may(Topic::Pattern, pattern) && !may(Topic::Channel, pattern), "{pattern}");
        }
        assert!(may(Topic::Pattern, "__keyevent@*__:expired"));
        for name in ["news", "news*", "__keys", "a__keyspace@0__:a", ""] {
            assert!(!may(Topic::Channel, name), "{name}");
        }
        for pattern in ["news*", "__keyed*", "a*"] {
            assert!(!may(Topic::Pattern, pattern), "{pattern}");
        }
    }
}
