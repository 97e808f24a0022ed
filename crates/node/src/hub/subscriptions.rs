//! Who has subscribed to what on this node, and gets what is published.

use super::{Hub, MAIL_MAX, News, Notice, shrink};
use isochrone_core::Blob;
use isochrone_core::glob::Glob;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Different patterns on a node, and their bytes, at most: what anybody publishes is tried on each.
const PATTERNS_MAX: usize = 1 << 16;
const PATTERN_BYTES_MAX: usize = 2 << 20;

/// What a name that is subscribed to stands for. The order of the variants is the wire format.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug, Serialize, Deserialize)]
pub enum Topic {
    /// A channel.
    Channel,
    /// The channels that fit a pattern.
    Pattern,
    /// A shard channel: of these there are names of their own, and no patterns.
    Shard,
}

impl Topic {
    pub(super) const ALL: [Topic; 3] = [Topic::Channel, Topic::Pattern, Topic::Shard];
}

/// What connections have subscribed to. What there is of each topic stands at its number.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// The names that are subscribed to, and the connections that each has; none has no connection.
    names: [BTreeMap<Blob, BTreeSet<u64>>; 3],
    /// The patterns among them, read once.
    globs: BTreeMap<Blob, Glob>,
    /// The bytes of the patterns.
    pattern_bytes: usize,
    /// Those that have subscribed to something.
    subscribers: BTreeMap<u64, Subscriber>,
}

#[derive(Debug, Default)]
struct Subscriber {
    topics: [Names; 3],
    /// The messages on their way to it: whatever else is on its way, all of these can be taken at once.
    messages: VecDeque<Notice>,
}

/// What a connection has subscribed to as one topic.
#[derive(Debug, Default)]
struct Names {
    names: BTreeSet<Blob>,
    /// The bytes of these.
    bytes: usize,
}

impl Subscriptions {
    /// The names that somebody here has subscribed to.
    pub(super) fn names(&self, topic: Topic) -> impl ExactSizeIterator<Item = &Blob> {
        self.names[topic as usize].keys()
    }

    /// How many connections have subscribed to this one here.
    pub(super) fn count(&self, topic: Topic, name: &[u8]) -> usize {
        self.names[topic as usize].get(name).map_or(0, BTreeSet::len)
    }

    /// The next of the messages on their way to a connection; none where they were all taken meanwhile.
    pub(super) fn next_message(&mut self, connection: u64) -> Option<Notice> {
        let subscriber = self.subscribers.get_mut(&connection)?;
        let message = subscriber.messages.pop_front();
        shrink(&mut subscriber.messages);
        message
    }

    fn own(&self, connection: u64, topic: Topic) -> Option<&Names> {
        Some(&self.subscribers.get(&connection)?.topics[topic as usize])
    }
}

impl Hub {
    /// Subscribes a connection.
    pub fn subscribe(&mut self, connection: u64, topic: Topic, name: &Blob) {
        let Subscriptions { names, globs, pattern_bytes, subscribers } = &mut self.subscriptions;
        let own = &mut subscribers.entry(connection).or_default().topics[topic as usize];
        if !own.names.insert(name.clone()) {
            return;
        }
        own.bytes += name.len();
        let connections = names[topic as usize].entry(name.clone()).or_default();
        if topic == Topic::Pattern && connections.is_empty() {
            globs.insert(name.clone(), Glob::new(name));
            *pattern_bytes += name.len();
        }
        connections.insert(connection);
        self.counts.note((topic, name.clone()), true);
        self.note_listener(topic, name, true);
    }

    /// Ends a subscription, if there is one.
    pub fn unsubscribe(&mut self, connection: u64, topic: Topic, name: &Blob) {
        let Some(subscriber) = self.subscriptions.subscribers.get_mut(&connection) else { return };
        let own = &mut subscriber.topics[topic as usize];
        if !own.names.remove(name) {
            return;
        }
        own.bytes -= name.len();
        if subscriber.topics.iter().all(|topic| topic.names.is_empty()) {
            self.subscriptions.subscribers.remove(&connection);
        }
        self.strike(topic, name, connection);
    }

    /// Ends all that a connection has; what is on its way to it is lost.
    pub(super) fn unsubscribe_all(&mut self, connection: u64) {
        let Some(subscriber) = self.subscriptions.subscribers.remove(&connection) else { return };
        for (topic, own) in Topic::ALL.into_iter().zip(subscriber.topics) {
            own.names.iter().for_each(|name| self.strike(topic, name, connection));
        }
    }

    /// Takes a connection out of those that a name has; a name without any goes.
    fn strike(&mut self, topic: Topic, name: &Blob, connection: u64) {
        let Subscriptions { names, globs, pattern_bytes, .. } = &mut self.subscriptions;
        let names = &mut names[topic as usize];
        let Some(connections) = names.get_mut(name) else { return };
        connections.remove(&connection);
        let any = !connections.is_empty();
        if !any {
            names.remove(name);
            if topic == Topic::Pattern {
                globs.remove(name);
                *pattern_bytes -= name.len();
            }
        }
        self.counts.note((topic, name.clone()), any);
        self.note_listener(topic, name, false);
    }

    /// Whether there is room on this node for these patterns too.
    pub fn has_room_for(&self, patterns: &[Blob]) -> bool {
        let Subscriptions { globs, pattern_bytes, .. } = &self.subscriptions;
        let fresh = patterns.iter().filter(|pattern| !globs.contains_key(*pattern));
        let (count, bytes) = fresh.fold((0, 0), |(count, bytes), pattern| (count + 1, bytes + pattern.len()));
        count == 0 || globs.len() + count <= PATTERNS_MAX && pattern_bytes + bytes <= PATTERN_BYTES_MAX
    }

    /// Bytes of all names that a connection has subscribed to as this topic.
    pub fn bytes(&self, connection: u64, topic: Topic) -> usize {
        self.subscriptions.own(connection, topic).map_or(0, |own| own.bytes)
    }

    /// What a connection has subscribed to.
    pub fn subscriptions(&self, connection: u64, topic: Topic) -> Vec<Blob> {
        let own = self.subscriptions.own(connection, topic);
        own.map(|own| own.names.iter().cloned().collect()).unwrap_or_default()
    }

    /// How many channels, patterns and shard channels a connection has subscribed to.
    pub fn counts(&self, connection: u64) -> [usize; 3] {
        Topic::ALL.map(|topic| self.subscriptions.own(connection, topic).map_or(0, |own| own.names.len()))
    }

    /// How many names somebody here has subscribed to.
    pub fn names_here(&self, topic: Topic) -> usize {
        self.subscriptions.names(topic).len()
    }

    /// About how many steps it takes to find out who gets what is published on a channel.
    pub fn steps_to_publish(&self, channel: &[u8]) -> usize {
        let Subscriptions { globs, pattern_bytes, .. } = &self.subscriptions;
        // What is looked for in long names is so 64 places at a time.
        globs.len() + pattern_bytes.saturating_mul(channel.len()) / 64
    }

    /// Publishes a message here and on the other nodes. How many subscriptions here get it; `None` where
    /// too many messages are on their way already, or would be.
    pub fn publish(&mut self, channel: Blob, payload: Blob) -> Option<usize> {
        let count = self.deliver(false, &channel, &payload)?;
        self.tell(News::Published { channel, payload });
        Some(count)
    }

    /// The same on a shard channel.
    pub fn publish_to_shard(&mut self, channel: Blob, payload: Blob) -> Option<usize> {
        let count = self.deliver(true, &channel, &payload)?;
        self.tell(News::ShardPublished { channel, payload });
        Some(count)
    }

    /// Sends a message to the subscriptions here that are for this channel. How many those are; `None` as in [`Hub::publish`].
    pub(super) fn deliver(&mut self, shard: bool, channel: &Blob, payload: &Blob) -> Option<usize> {
        if self.mail.len() >= MAIL_MAX {
            return None;
        }
        let Subscriptions { names, globs, subscribers, .. } = &mut self.subscriptions;
        let topic = if shard { Topic::Shard } else { Topic::Channel };
        let direct = names[topic as usize].get(channel);
        let patterns = &names[Topic::Pattern as usize];
        let fits: Vec<(&Blob, &BTreeSet<u64>)> = (!shard)
            .then_some(&*globs)
            .into_iter()
            .flatten()
            .filter(|(_, glob)| glob.matches(channel))
            .filter_map(|(name, _)| patterns.get_key_value(name))
            .collect();
        // Looked at before anything is copied: what is refused costs no more than to be found.
        let by_pattern: usize = fits.iter().map(|(_, connections)| connections.len()).sum();
        let count = direct.map_or(0, BTreeSet::len) + by_pattern;
        if count > MAIL_MAX {
            return None;
        }
        let direct = direct.into_iter().map(|connections| (None, connections));
        for (pattern, connections) in direct.chain(fits.into_iter().map(|(name, fit)| (Some(name), fit))) {
            for connection in connections {
                let Some(subscriber) = subscribers.get_mut(connection) else { continue };
                let (pattern, channel, payload) = (pattern.cloned(), channel.clone(), payload.clone());
                subscriber.messages.push_back(Notice::Message { shard, pattern, channel, payload });
                self.mail.push_back((*connection, None));
            }
        }
        Some(count)
    }

    /// The messages that are on their way to a connection, which are not on their way any more.
    pub fn take_messages(&mut self, connection: u64) -> VecDeque<Notice> {
        let subscriber = self.subscriptions.subscribers.get_mut(&connection);
        subscriber.map(|subscriber| std::mem::take(&mut subscriber.messages)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::MAIL_PER_ROUND;
    use crate::hub::news::NEWS_MAX;
    use crate::hub::tests::{OTHER, mail};
    use isochrone_core::Instant;

    #[test]
    fn a_message_reaches_each_subscription_here_and_every_other_node() {
        let (mut here, mut there) = (Hub::default(), Hub::default());
        here.subscribe(1, Topic::Channel, &"news".into());
        here.subscribe(1, Topic::Pattern, &"n*".into());
        here.subscribe(2, Topic::Pattern, &"x*".into());
        there.subscribe(9, Topic::Channel, &"news".into());
        assert_eq!(here.publish("news".into(), "hi".into()), Some(2));
        assert_eq!(
            mail(&mut here),
            "1 Message { shard: false, pattern: None, channel: \"news\", payload: \"hi\" }; \
             1 Message { shard: false, pattern: Some(\"n*\"), channel: \"news\", payload: \"hi\" }; "
        );
        for news in here.take_news() {
            there.hear_one(OTHER, news, Instant::ZERO);
        }
        assert_eq!(
            mail(&mut there),
            "9 Message { shard: false, pattern: None, channel: \"news\", payload: \"hi\" }; "
        );
        assert!(there.take_news().is_empty(), "what was heard is not told again");
        here.leave(1);
        assert_eq!((here.publish("news".into(), "hi".into()), here.names_here(Topic::Pattern)), (Some(0), 1));
    }

    #[test]
    fn shard_channels_have_names_of_their_own() {
        let (mut here, mut there) = (Hub::default(), Hub::default());
        for (connection, topic, name) in
            [(1, Topic::Shard, "a"), (2, Topic::Channel, "a"), (3, Topic::Pattern, "*")]
        {
            here.subscribe(connection, topic, &name.into());
            there.subscribe(connection + 6, topic, &name.into());
        }
        assert_eq!(here.publish_to_shard("a".into(), "m".into()), Some(1));
        assert_eq!(
            mail(&mut here),
            "1 Message { shard: true, pattern: None, channel: \"a\", payload: \"m\" }; "
        );
        for news in here.take_news() {
            there.hear_one(OTHER, news, Instant::ZERO);
        }
        assert_eq!(
            mail(&mut there),
            "7 Message { shard: true, pattern: None, channel: \"a\", payload: \"m\" }; "
        );
        assert_eq!((here.counts(1), here.bytes(1, Topic::Shard)), ([0, 0, 1], 1));
        here.leave(1);
        assert_eq!(here.publish_to_shard("a".into(), "m".into()), Some(0));
        assert_eq!(here.publish("a".into(), "m".into()), Some(2));
    }

    #[test]
    fn no_more_is_published_than_can_be_handed_over() {
        let mut hub = Hub::default();
        hub.subscribe(1, Topic::Channel, &"c".into());
        let published = (0..MAIL_MAX + 9).filter(|_| hub.publish("c".into(), "m".into()).is_some()).count();
        assert_eq!(published, MAIL_MAX);
        assert_eq!(hub.take_mail().len(), MAIL_PER_ROUND);
        let rest =
            std::iter::repeat_with(|| hub.take_mail().len()).take_while(|count| *count > 0).sum::<usize>();
        assert_eq!(rest, MAIL_MAX - MAIL_PER_ROUND);
        assert_eq!(hub.publish("c".into(), "m".into()), Some(1));
        let bytes: usize = hub.take_news().len() * size_of::<News>();
        assert!(bytes <= NEWS_MAX + size_of::<News>());
        // What is larger than that goes alone.
        let large = Blob::new(&vec![b'm'; NEWS_MAX]);
        for message in [large.clone(), large, "m".into()] {
            hub.publish("c".into(), message);
        }
        assert_eq!(hub.take_news().len(), 1);
    }

    #[test]
    fn what_is_published_is_tried_on_so_many_patterns_and_told_to_so_many() {
        let mut hub = Hub::default();
        let stars = |count: usize| Blob::from(vec![b'*'; count]);
        for pattern in 1..=1_025 {
            (0..1_024).for_each(|connection| hub.subscribe(connection, Topic::Pattern, &stars(pattern)));
        }
        assert_eq!(hub.publish("c".into(), "m".into()), None, "too many");
        assert!(!hub.has_mail() && hub.take_news().is_empty(), "nobody is told");
        hub.take_in([(OTHER, Some(News::Published { channel: "c".into(), payload: "m".into() }))]);
        assert_eq!((hub.hear(Instant::ZERO), hub.has_mail()), (1, false), "nor of what others publish");
        (0..1_024).for_each(|connection| hub.unsubscribe(connection, Topic::Pattern, &stars(1)));
        assert_eq!(hub.publish("c".into(), "m".into()), Some(MAIL_MAX));
        let bytes: usize = (2..=1_025).sum();
        let left = PATTERN_BYTES_MAX - bytes;
        let large = |bytes| vec![Blob::from(vec![b'x'; bytes])];
        assert!(hub.has_room_for(&large(left)) && !hub.has_room_for(&large(left + 1)));
        assert!(hub.has_room_for(&vec![stars(7); 1 << 20]), "these are there");
        assert!(!hub.has_room_for(
            &(0..=PATTERNS_MAX).map(|n| n.to_string().into_bytes().into()).collect::<Vec<_>>()
        ));
        (0..1_024).for_each(|connection| hub.leave(connection));
        assert_eq!((hub.names_here(Topic::Pattern), hub.subscriptions.pattern_bytes), (0, 0));
    }
}
