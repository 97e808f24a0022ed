//! What the connections of a node tell each other, and the nodes of a cluster: messages of publish and
//! subscribe, and that a key has something to pop.
//!
//! Nothing here is replicated or kept: news are told at most once, and whoever is away misses them. A
//! connection that waits for a key therefore also looks again on its own ([`RETRY`]); a message that was
//! missed is gone, as in Redis.
//!
//! To other nodes ([`News`]): every message that is published; that somebody here waits for a key, once a
//! second for as long as it does; that a key for which somebody elsewhere waits was given something; how many
//! subscriptions names have here, when that changes and again every ten seconds; likewise which events of keys are wanted here, that is,
//! where there are subscriptions that may be for them, those of this node's `notify-keyspace-events`; and events that are
//! wanted elsewhere.

use crate::audit::Audit;
use crate::events::Event;
use crate::gateway::Outcome;
use crate::redis::acl::Users;
use crate::redis::{Scripts, Slowlog};
use isochrone_core::command::{Kind, Operation};
use isochrone_core::glob::{Glob, PATTERN_MAX};
use isochrone_core::notify::Flags;
use isochrone_core::{Blob, Instant, KeyspaceId, NodeId, Span};
use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How often a connection that waits for a key looks for itself, and other nodes are reminded that it waits.
pub const RETRY: Span = Span::from_secs(1);

/// How long another node is believed to wait for a key that it said it waits for.
const BELIEVED: Span = Span::from_secs(3);

/// Keys that other nodes wait for, and their bytes, at most; beyond that their clients find out by looking.
const REMOTE_MAX: usize = 100_000;
const REMOTE_BYTES: usize = 16 << 20;

/// Keys that one connection waits for and other nodes hear of, at most.
const ANNOUNCED_MAX: usize = 1000;

/// And how long such a key may be, bytes: who waits for a longer one finds out by looking.
const ANNOUNCED_BYTES: usize = 4 << 10;

/// Messages that wait to be handed over, at most; beyond that nothing is published. Nor is what is for more subscriptions.
const MAIL_MAX: usize = 1 << 20;
/// Different patterns on a node, and their bytes, at most: what anybody publishes is tried on each.
const PATTERNS_MAX: usize = 1 << 16;
const PATTERN_BYTES_MAX: usize = 2 << 20;
/// What is told in one round of the loop at most, so that heartbeats do not wait behind it.
const MAIL_PER_ROUND: usize = 20_000;

/// Bytes of what is told at once to those who monitor, at most; beyond that they are closed.
pub(crate) const SEEN_MAX: usize = 64 << 20;

/// What other nodes have told may take so many bytes until it is heard; what is beyond that is lost, as on a link that breaks.
const TOLD_MAX: usize = 16 << 20;
/// Of those that wait for a key, so many are looked at for one that has waited longer than who has seen that something is there.
const AHEAD_MAX: usize = 256;
/// About how many steps of hearing it there are in a round: a few milliseconds.
const HEARD_STEPS: usize = 200_000;
/// Bytes of news to other nodes that wait to be sent, at most; beyond that they are lost.
const NEWS_MAX: usize = 16 << 20;

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
const COUNTS_BELIEVED: Span = Span::from_secs(30);

/// What one node tells all others. The order of the variants is the wire format.
#[derive(Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub enum News {
    /// A message for whoever has subscribed.
    Published {
        /// Where it was published.
        channel: Blob,
        /// What.
        payload: Blob,
    },
    /// Somebody on the telling node waits for one of these keys.
    Waiting {
        /// Of this keyspace.
        keyspace: KeyspaceId,
        /// The keys.
        keys: Vec<Blob>,
    },
    /// A key was given so many elements.
    Filled {
        /// Of this keyspace.
        keyspace: KeyspaceId,
        /// The key.
        key: Blob,
        /// How many elements, roughly.
        count: u32,
    },
    /// A message for whoever has subscribed to a shard channel.
    ShardPublished {
        /// Where it was published.
        channel: Blob,
        /// What.
        payload: Blob,
    },
    /// How many subscriptions names have on the telling node: none where the last has ended.
    Subscribed {
        /// The names.
        counts: Vec<(Topic, Blob, u32)>,
    },
    /// Something has happened to a key.
    Happened {
        /// The number that SELECT takes for its keyspace.
        index: u32,
        /// What.
        event: Event,
        /// The key.
        key: Blob,
    },
    /// Which events the telling node wants to be told.
    Wants {
        /// Their classes; none where nobody there has subscribed to any.
        classes: Flags,
    },
}

impl News {
    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        size_of::<News>()
            + match self {
                News::Published { channel, payload } | News::ShardPublished { channel, payload } => {
                    channel.len() + payload.len()
                }
                News::Waiting { keys, .. } => keys.iter().map(|key| size_of::<Blob>() + key.len()).sum(),
                News::Filled { key, .. } | News::Happened { key, .. } => key.len(),
                News::Wants { .. } => 0,
                News::Subscribed { counts } => {
                    counts.iter().map(|(_, name, _)| size_of::<(Topic, Blob, u32)>() + name.len()).sum()
                }
            }
    }
}

/// What was heard of a node: news that it tells, or none where it is gone or has come anew, and what it has said of its
/// subscriptions holds no longer.
pub type Heard = (NodeId, Option<News>);

/// About how much memory it takes.
fn heard_bytes((_, news): &Heard) -> usize {
    news.as_ref().map_or(size_of::<News>(), News::bytes)
}

/// What one connection is told.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Notice {
    /// A message of a channel, by a pattern where that is how it was subscribed to.
    Message {
        /// Whether it is a shard channel.
        shard: bool,
        /// The pattern that fits the channel.
        pattern: Option<Blob>,
        /// The channel.
        channel: Blob,
        /// The message.
        payload: Blob,
    },
    /// Lines about what this node was asked; none where they were more than is kept.
    Seen(Option<Blob>),
    /// A key that it waits for was given something.
    Filled,
    /// Something that was taken, by it or by one behind it, is for it ([`Hub::take_given`]); or what it has taken was for
    /// another.
    Settled,
    /// It is to wait no longer ([`Hub::unblocked`]).
    Unblock,
    /// It has done so much in one round that it goes on in this one.
    GoOn,
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

/// See the module.
#[derive(Debug, Default)]
pub struct Hub {
    channels: BTreeMap<Blob, BTreeSet<u64>>,
    patterns: BTreeMap<Blob, Pattern>,
    pattern_bytes: usize,
    shards: BTreeMap<Blob, BTreeSet<u64>>,
    /// What other nodes are told of all these.
    telling: Telling,
    /// What they have told of theirs.
    elsewhere: BTreeMap<NodeId, Elsewhere>,
    /// `notify-keyspace-events` of this node.
    notifies: Flags,
    /// How many subscriptions here may be for events of keys.
    listeners: usize,
    /// The classes of events that somebody wants, here or, as far as they have told, at other nodes.
    wanted: Flags,
    /// Those that others were last told are wanted here.
    wants_told: Flags,
    /// They are to be told again.
    wants_anew: bool,
    /// How many events were lost here since that was last asked.
    lost: u64,
    members: BTreeMap<u64, Member>,
    /// The connections that wait for a key, the one that has waited longest first.
    waiting: BTreeMap<(KeyspaceId, Blob), VecDeque<u64>>,
    /// When each keyspace has last carried out what a client of this node has asked.
    heard: BTreeMap<KeyspaceId, Instant>,
    /// What connections have taken of a key while one that has waited longer may yet come with something of its own.
    taken: BTreeMap<(KeyspaceId, Blob), Vec<Taken>>,
    /// The keys that other nodes wait for, and until when that is believed.
    remote: BTreeMap<(KeyspaceId, Blob), Instant>,
    /// The bytes of these keys.
    remote_bytes: usize,
    /// When it is looked again what is not believed any more of what they have said.
    remote_look: Instant,
    /// Who is to be told what, in order; without a notice, the next of the messages that lie with the connection.
    mail: VecDeque<(u64, Option<Notice>)>,
    /// Who gets the message that is just published, and by which pattern: kept for its memory.
    receivers: Vec<(u64, Option<Blob>)>,
    /// The scripts that this node was sent.
    pub scripts: Scripts,
    /// The commands that took long.
    pub slowlog: Slowlog,
    /// The users of this node.
    pub users: Users,
    /// Where it is kept what they administer and are denied, where that is kept.
    pub(crate) audit: Option<Audit>,
    news: Vec<News>,
    news_bytes: usize,
    /// What other nodes have told, and nobody here has heard yet.
    told: VecDeque<Heard>,
    told_bytes: usize,
    /// The connections that are told what this node is asked.
    monitors: BTreeSet<u64>,
    /// What they are to be told, lines.
    seen: Vec<u8>,
    /// The connections that are to be closed before this round is over.
    killed: BTreeSet<u64>,
}

/// A pattern that somebody has subscribed to, read once.
#[derive(Debug)]
struct Pattern {
    glob: Glob,
    connections: BTreeSet<u64>,
}

/// A name that is subscribed to, and as what.
type Name = (Topic, Blob);

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

    fn has_some(&self) -> bool {
        !self.changed.is_empty() || !self.repeats.is_empty()
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
    /// Which events are wanted there, and when that was told.
    wants: (Flags, Instant),
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
    fn tick(&mut self, now: Instant) {
        self.names.retain(|_, (_, told)| now < *told + COUNTS_BELIEVED);
        self.bytes = self.names.keys().map(|(_, name)| name.len()).sum();
        let (wants, told) = &mut self.wants;
        if now >= *told + COUNTS_BELIEVED {
            *wants = Flags::NONE;
        }
    }
}

/// What a connection has subscribed to as one topic.
#[derive(Debug, Default)]
struct Names {
    names: BTreeSet<Blob>,
    /// The bytes of these.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Member {
    channels: Names,
    patterns: Names,
    shards: Names,
    waits: BTreeMap<(KeyspaceId, Blob), Told>,
    /// How it takes what comes; none where it takes nothing away.
    manner: Option<Arc<Manner>>,
    standing: Standing,
    /// It waits for copies.
    syncs: bool,
    /// CLIENT UNBLOCK has ended this wait: with an error, or as a time-out does.
    unblocked: Option<bool>,
    /// The messages on their way to it: whatever else is on its way, all of these can be taken at once.
    messages: VecDeque<Notice>,
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
    Given(Box<((KeyspaceId, Blob), Outcome)>),
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

impl Member {
    fn names(&self, topic: Topic) -> &Names {
        match topic {
            Topic::Channel => &self.channels,
            Topic::Pattern => &self.patterns,
            Topic::Shard => &self.shards,
        }
    }

    fn names_mut(&mut self, topic: Topic) -> &mut Names {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
            Topic::Shard => &mut self.shards,
        }
    }

    fn is_idle(&self) -> bool {
        Topic::ALL.into_iter().all(|topic| self.names(topic).names.is_empty())
            && self.waits.is_empty()
            && !self.syncs
    }

    fn waits(&self) -> bool {
        self.syncs || !self.waits.is_empty()
    }

    /// None where they were all taken meanwhile.
    fn next_message(&mut self) -> Option<Notice> {
        let message = self.messages.pop_front();
        shrink(&mut self.messages);
        message
    }
}

/// What was long once does not keep the memory for that.
fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.len() < queue.capacity() / 8 {
        queue.shrink_to(2 * queue.len());
    }
}

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
    const ALL: [Topic; 3] = [Topic::Channel, Topic::Pattern, Topic::Shard];
}

impl Hub {
    /// Subscribes a connection.
    pub fn subscribe(&mut self, connection: u64, topic: Topic, name: &Blob) {
        let own = self.members.entry(connection).or_default().names_mut(topic);
        if own.names.insert(name.clone()) {
            own.bytes += name.len();
        }
        let connections = match topic {
            Topic::Channel => self.channels.entry(name.clone()).or_default(),
            Topic::Shard => self.shards.entry(name.clone()).or_default(),
            Topic::Pattern => {
                let pattern = self.patterns.entry(name.clone()).or_insert_with(|| {
                    self.pattern_bytes += name.len();
                    Pattern { glob: Glob::new(name), connections: BTreeSet::new() }
                });
                &mut pattern.connections
            }
        };
        if connections.insert(connection) {
            self.telling.note((topic, name.clone()), true);
            if may_be_for_events(topic, name) {
                self.listeners += 1;
                self.weigh_wants();
            }
        }
    }

    /// Takes a connection out of those that a name has; a name without any goes.
    fn strike(&mut self, topic: Topic, name: &Blob, connection: u64) {
        let connections = match topic {
            Topic::Channel => self.channels.get_mut(name),
            Topic::Pattern => self.patterns.get_mut(name).map(|pattern| &mut pattern.connections),
            Topic::Shard => self.shards.get_mut(name),
        };
        let Some(connections) = connections else { return };
        if !connections.remove(&connection) {
            return;
        }
        let any = !connections.is_empty();
        self.telling.note((topic, name.clone()), any);
        if may_be_for_events(topic, name) {
            self.listeners -= 1;
            self.weigh_wants();
        }
        if any {
            return;
        }
        match topic {
            Topic::Channel => drop(self.channels.remove(name)),
            Topic::Shard => drop(self.shards.remove(name)),
            Topic::Pattern => {
                self.patterns.remove(name);
                self.pattern_bytes -= name.len();
            }
        }
    }

    /// Whether there is room on this node for these patterns too.
    pub fn has_room_for(&self, patterns: &[Blob]) -> bool {
        let fresh = patterns.iter().filter(|pattern| !self.patterns.contains_key(*pattern));
        let (count, bytes) = fresh.fold((0, 0), |(count, bytes), pattern| (count + 1, bytes + pattern.len()));
        count == 0
            || self.patterns.len() + count <= PATTERNS_MAX && self.pattern_bytes + bytes <= PATTERN_BYTES_MAX
    }

    /// About how many steps it takes to find out who gets what is published on a channel.
    pub fn steps_to_publish(&self, channel: &[u8]) -> usize {
        // What is looked for in long names is so 64 places at a time.
        self.patterns.len() + self.pattern_bytes.saturating_mul(channel.len()) / 64
    }

    /// How many messages and other notices wait to be handed over.
    pub fn mail(&self) -> usize {
        self.mail.len()
    }

    /// Ends a subscription, if there is one.
    pub fn unsubscribe(&mut self, connection: u64, topic: Topic, name: &Blob) {
        let Some(member) = self.members.get_mut(&connection) else { return };
        let own = member.names_mut(topic);
        if own.names.remove(name) {
            own.bytes -= name.len();
        }
        self.strike(topic, name, connection);
        self.forget_idle(connection);
    }

    /// Bytes of all names that a connection has subscribed to as this topic.
    pub fn bytes(&self, connection: u64, topic: Topic) -> usize {
        self.members.get(&connection).map_or(0, |member| member.names(topic).bytes)
    }

    /// What a connection has subscribed to.
    pub fn subscriptions(&self, connection: u64, topic: Topic) -> Vec<Blob> {
        let names = self.members.get(&connection).map(|member| &member.names(topic).names);
        names.map(|names| names.iter().cloned().collect()).unwrap_or_default()
    }

    /// How many channels, patterns and shard channels a connection has subscribed to.
    pub fn counts(&self, connection: u64) -> [usize; 3] {
        let member = self.members.get(&connection);
        Topic::ALL.map(|topic| member.map_or(0, |member| member.names(topic).names.len()))
    }

    /// How many names somebody here has subscribed to.
    pub fn names_here(&self, topic: Topic) -> usize {
        match topic {
            Topic::Channel => self.channels.len(),
            Topic::Pattern => self.patterns.len(),
            Topic::Shard => self.shards.len(),
        }
    }

    /// The names that somebody has subscribed to, here or, as far as they have told, at other nodes.
    pub fn names(&self, topic: Topic) -> BTreeSet<&Blob> {
        let there = self.elsewhere.values().flat_map(|told| told.names.keys());
        let mut names: BTreeSet<&Blob> = there.filter(|(of, _)| *of == topic).map(|(_, name)| name).collect();
        match topic {
            Topic::Channel => names.extend(self.channels.keys()),
            Topic::Pattern => names.extend(self.patterns.keys()),
            Topic::Shard => names.extend(self.shards.keys()),
        }
        names
    }

    /// About how many steps it takes to find these.
    pub fn steps_to_name(&self, topic: Topic) -> usize {
        self.names_here(topic) + self.elsewhere.values().map(|told| told.names.len()).sum::<usize>()
    }

    /// How many connections have subscribed to this name, here and, as far as they have told, at other nodes.
    pub fn subscribers(&self, topic: Topic, name: &[u8]) -> usize {
        let place = (topic, Blob::new(name));
        let there = self.elsewhere.values().filter_map(|told| told.names.get(&place));
        self.subscribers_here(topic, name) + there.map(|(count, _)| *count as usize).sum::<usize>()
    }

    fn subscribers_here(&self, topic: Topic, name: &[u8]) -> usize {
        let connections = match topic {
            Topic::Channel => self.channels.get(name),
            Topic::Pattern => self.patterns.get(name).map(|pattern| &pattern.connections),
            Topic::Shard => self.shards.get(name),
        };
        connections.map_or(0, BTreeSet::len)
    }

    /// Tells the other nodes how many subscriptions names have here: what has changed, and now and then all of it. To be called in
    /// each round, and at [`Hub::counts_due`].
    pub fn tell_counts(&mut self, now: Instant) {
        let wants = self.wants_here();
        let telling = &mut self.telling;
        if now >= telling.again {
            telling.again = now + COUNTS_AGAIN;
            telling.anew = true;
            self.wants_anew = wants.with(self.wants_told) != Flags::NONE;
        }
        // Before the names: whoever has heard of a subscription knows what it is for.
        if now >= self.wants_due() {
            (self.wants_told, self.wants_anew) = (wants, false);
            self.tell(News::Wants { classes: wants });
        }
        let telling = &mut self.telling;
        // A round is ended before the next one begins: however often a link is made, each name has its turn.
        if telling.anew && telling.repeats.is_empty() {
            telling.anew = false;
            telling.repeats = telling.names.difference(&telling.changed).cloned().collect();
        }
        if now < self.names_due() {
            return;
        }
        self.telling.next = now + COUNTS_PACE;
        let (mut counts, mut bytes) = (Vec::new(), 0);
        while bytes < COUNTS_BYTES
            && let Some(name) = self.telling.take()
        {
            let count = self.subscribers_here(name.0, &name.1);
            if count == 0 {
                self.telling.end(&name);
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
        self.names_due().min(self.wants_due())
    }

    fn names_due(&self) -> Instant {
        if self.telling.has_some() { self.telling.next } else { Instant::MAX }
    }

    /// More is wanted from now on: whoever has subscribed may do at once what it waits for. That less is wanted is told with the next
    /// round of names, since the next subscriber may come as soon as the last one has left.
    fn wants_due(&self) -> Instant {
        let more = self.wants_here().without(self.wants_told) != Flags::NONE;
        if self.wants_anew || more { Instant::ZERO } else { Instant::MAX }
    }

    /// `notify-keyspace-events` of this node.
    pub fn notifies(&self) -> Flags {
        self.notifies
    }

    /// Sets that.
    pub fn set_notifies(&mut self, flags: Flags) {
        self.notifies = flags;
        self.weigh_wants();
    }

    /// The classes of events of keys that somebody wants, at any node: others need not be made.
    pub fn wanted(&self) -> Flags {
        self.wanted
    }

    /// The classes that are told here.
    fn wants_here(&self) -> Flags {
        if self.listeners > 0 { self.notifies.told() } else { Flags::NONE }
    }

    fn weigh_wants(&mut self) {
        let there = self.elsewhere.values().map(|told| told.wants.0);
        self.wanted = there.fold(self.wants_here(), Flags::with);
    }

    /// Something has happened to a key of the keyspace with this number: told to whoever wants it, here with the next round.
    pub fn happened(&mut self, index: u32, event: Event, key: &Blob) {
        // No channel has a longer name.
        if key.len() > PATTERN_MAX {
            return;
        }
        let news = || News::Happened { index, event, key: key.clone() };
        if self.elsewhere.values().any(|told| told.wants.0.has(event.class())) {
            self.tell(news());
        }
        if self.wants_here().has(event.class()) {
            // What a round hears is bounded, whoever has made it; of an event it does not matter who.
            self.lost += self.take_in([(NodeId(0), Some(news()))]);
        }
    }

    /// Another node is reached that has not heard what was told before: all of it is told again.
    pub fn tell_counts_again(&mut self) {
        self.telling.again = Instant::ZERO;
    }

    /// Publishes a message here and on the other nodes. How many subscriptions here get it; `None` where
    /// too many messages are on their way already, or would be.
    pub fn publish(&mut self, channel: Blob, payload: Blob) -> Option<usize> {
        let receivers = self.receivers(false, &channel)?;
        let count = receivers.len();
        self.tell(News::Published { channel: channel.clone(), payload: payload.clone() });
        self.deliver(receivers, false, &channel, &payload);
        Some(count)
    }

    /// The same on a shard channel.
    pub fn publish_to_shard(&mut self, channel: Blob, payload: Blob) -> Option<usize> {
        let receivers = self.receivers(true, &channel)?;
        let count = receivers.len();
        self.tell(News::ShardPublished { channel: channel.clone(), payload: payload.clone() });
        self.deliver(receivers, true, &channel, &payload);
        Some(count)
    }

    /// The subscriptions that get a message of this channel.
    fn receivers(&mut self, shard: bool, channel: &Blob) -> Option<Vec<(u64, Option<Blob>)>> {
        if self.mail.len() >= MAIL_MAX {
            return None;
        }
        let subscribed = if shard { self.shards.get(channel) } else { self.channels.get(channel) };
        let patterns = (!shard).then_some(&self.patterns).into_iter().flatten();
        let fits: Vec<(&Blob, &Pattern)> =
            patterns.filter(|(_, pattern)| pattern.glob.matches(channel)).collect();
        // Looked at before anything is copied: what is refused costs no more than to be found.
        let by_pattern: usize = fits.iter().map(|(_, pattern)| pattern.connections.len()).sum();
        if subscribed.map_or(0, BTreeSet::len) + by_pattern > MAIL_MAX {
            return None;
        }
        let mut receivers = std::mem::take(&mut self.receivers);
        receivers.extend(subscribed.into_iter().flatten().map(|connection| (*connection, None)));
        for (name, Pattern { connections, .. }) in fits {
            receivers.extend(connections.iter().map(|connection| (*connection, Some(name.clone()))));
        }
        Some(receivers)
    }

    fn deliver(
        &mut self,
        mut receivers: Vec<(u64, Option<Blob>)>,
        shard: bool,
        channel: &Blob,
        payload: &Blob,
    ) {
        for (connection, pattern) in receivers.drain(..) {
            let Some(member) = self.members.get_mut(&connection) else { continue };
            let (channel, payload) = (channel.clone(), payload.clone());
            member.messages.push_back(Notice::Message { shard, pattern, channel, payload });
            self.mail.push_back((connection, None));
        }
        self.receivers = receivers;
    }

    /// The messages that are on their way to a connection, which are not on their way any more.
    pub fn take_messages(&mut self, connection: u64) -> VecDeque<Notice> {
        let member = self.members.get_mut(&connection);
        member.map(|member| std::mem::take(&mut member.messages)).unwrap_or_default()
    }

    /// A keyspace has carried out what a client of this node has asked.
    pub fn hear_from(&mut self, keyspace: KeyspaceId, now: Instant) {
        self.heard.insert(keyspace, now);
    }

    /// Whether it has within the last second, so that what is asked now is likely to be answered soon.
    pub fn hears(&self, keyspace: KeyspaceId, now: Instant) -> bool {
        self.heard.get(&keyspace).is_some_and(|heard| now < *heard + RETRY)
    }

    /// A connection waits for one of these keys from now on.
    pub fn wait(&mut self, connection: u64, keyspace: KeyspaceId, keys: &[Blob]) {
        let member = self.members.entry(connection).or_default();
        for key in keys {
            let place = (keyspace, key.clone());
            if let Entry::Vacant(entry) = member.waits.entry(place) {
                self.waiting.entry(entry.key().clone()).or_default().push_back(connection);
                entry.insert(Told::default());
            }
        }
    }

    /// A connection waits for copies from now on, and for no key.
    pub fn wait_for_copies(&mut self, connection: u64) {
        self.members.entry(connection).or_default().syncs = true;
    }

    /// A connection that waits takes what comes in this manner, and tries to at once.
    pub fn takes(&mut self, connection: u64, manner: Manner) {
        if let Some(member) = self.members.get_mut(&connection) {
            (member.manner, member.standing) = (Some(Arc::new(manner)), Standing::Tries);
        }
    }

    /// It tries again.
    pub fn tries(&mut self, connection: u64) {
        if let Some(member) = self.members.get_mut(&connection) {
            member.standing = Standing::Tries;
        }
    }

    /// It waits no longer. What it was told of and has not taken, or was given and has not fetched, is for those behind it.
    pub fn unwait(&mut self, connection: u64) {
        let Some(member) = self.members.get_mut(&connection) else { return };
        (member.syncs, member.unblocked) = (false, None);
        let (manner, standing) = (member.manner.take(), std::mem::take(&mut member.standing));
        let waits = std::mem::take(&mut member.waits);
        if let (Some(manner), Standing::Given(given)) = (manner, standing) {
            let (place, outcome) = *given;
            self.taken_in(place, manner).outcomes.push_front(outcome);
        }
        let unsettled = waits.keys().filter(|place| self.taken.contains_key(*place)).cloned().collect();
        for (place, told) in waits {
            let Some(queue) = self.waiting.get_mut(&place) else { continue };
            let at = queue.iter().position(|other| *other == connection);
            at.and_then(|at| queue.remove(at));
            if queue.is_empty() {
                self.waiting.remove(&place);
            } else if told.since + told.before > 0 {
                self.wake(&place, at.unwrap_or(0), told.since + told.before);
            }
        }
        self.settle(unsettled);
        self.forget_idle(connection);
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
        let member = self.members.get_mut(&connection);
        if let Some(told) = member.and_then(|member| member.waits.get_mut(&(keyspace, key.clone()))) {
            told.before = told.before.saturating_sub(1);
        }
    }

    /// It has seen that a key that it waits for has something: whether it may try to take that. Where at each of its keys one has
    /// waited longer and takes from it in another manner, those are told instead, unless one has been told already and leaves it.
    pub fn sees(&mut self, connection: u64) -> bool {
        let Some(member) = self.members.get(&connection) else { return true };
        let Some(manner) = &member.manner else { return true };
        let mut others: BTreeMap<u64, Vec<(KeyspaceId, Blob)>> = BTreeMap::new();
        for place in member.waits.keys() {
            let mut queue = self.waiting.get(place).into_iter().flatten().take(AHEAD_MAX);
            let first = queue.find_map(|other| {
                let member = self.members.get(other)?;
                let waits = member.unblocked.is_none() && !matches!(member.standing, Standing::Given(_));
                let first = member.manner.as_ref().filter(|first| waits && first.from == manner.from)?;
                let told = member.waits.get(place)?;
                Some((*other, first, told.since + told.before > 0))
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
            let Some(member) = self.members.get_mut(&other) else { continue };
            for place in places {
                // Where it cannot take it, those behind it are told.
                if let Some(told) = member.waits.get_mut(&place) {
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
        let manner = self.members.get(&connection).and_then(|member| member.manner.clone());
        let Some(manner) = manner else { return Some(outcome) };
        let place = (keyspace, key.clone());
        let queue = self.waiting.get(&place).into_iter().flatten();
        let waits_as_well = |other: &u64| {
            let other = self.members.get(other).and_then(|member| member.manner.as_ref());
            other == Some(&manner)
        };
        let first = !queue.take_while(|other| **other != connection).any(waits_as_well);
        if first && !self.taken.contains_key(&place) {
            return Some(outcome);
        }
        let taken = self.taken_in(place.clone(), manner);
        taken.outcomes.push_back(outcome);
        taken.takers.push(connection);
        if let Some(member) = self.members.get_mut(&connection) {
            member.standing = Standing::Took;
        }
        self.settle(vec![place]);
        None
    }

    fn taken_in(&mut self, place: (KeyspaceId, Blob), manner: Arc<Manner>) -> &mut Taken {
        let all = self.taken.entry(place).or_default();
        let at = all.iter().position(|taken| taken.manner == manner).unwrap_or(all.len());
        if at == all.len() {
            all.push(Taken { manner, outcomes: VecDeque::new(), takers: Vec::new() });
        }
        &mut all[at]
    }

    /// It has taken nothing, and goes on waiting.
    pub fn took_nothing(&mut self, connection: u64) {
        let Some(member) = self.members.get_mut(&connection) else { return };
        member.standing = Standing::Idle;
        let unsettled =
            member.waits.keys().filter(|place| self.taken.contains_key(*place)).cloned().collect();
        self.settle(unsettled);
    }

    /// Whether what it has taken may yet be for it or for another.
    pub fn has_taken(&self, connection: u64) -> bool {
        self.members.get(&connection).is_some_and(|member| matches!(member.standing, Standing::Took))
    }

    /// Whether something that was taken is for it, or may be.
    pub fn is_owed(&self, connection: u64) -> bool {
        self.members.get(&connection).is_some_and(|member| member.standing.is_owed())
    }

    /// Whether it was given something.
    pub fn is_given(&self, connection: u64) -> bool {
        self.members.get(&connection).is_some_and(|member| matches!(member.standing, Standing::Given(_)))
    }

    /// The connections that were given something.
    pub fn given(&self) -> Vec<u64> {
        let given = self.members.iter().filter(|(_, member)| matches!(member.standing, Standing::Given(_)));
        given.map(|(connection, _)| *connection).collect()
    }

    /// Whether something that was taken has not reached who gets it.
    pub fn owes(&self) -> bool {
        !self.taken.is_empty() || self.members.values().any(|member| member.standing.is_owed())
    }

    /// No attempt is waited for any more: what was taken is for those that wait and do not try, or have taken something.
    pub fn settle_all(&mut self) {
        for member in self.members.values_mut() {
            if matches!(member.standing, Standing::Tries) {
                // It may have taken something of its own that is not known here.
                (member.standing, member.unblocked) = (Standing::Idle, Some(false));
            }
        }
        let places = self.taken.keys().cloned().collect();
        self.settle(places);
    }

    /// What it was given: from now on it is its own.
    pub fn take_given(&mut self, connection: u64) -> Option<Outcome> {
        let member = self.members.get_mut(&connection)?;
        match std::mem::take(&mut member.standing) {
            Standing::Given(given) => {
                let (_, outcome) = *given;
                Some(outcome)
            }
            standing => {
                member.standing = standing;
                None
            }
        }
    }

    /// Gives what was taken of these keys to those who wait for it, the one that has waited longest first, until it is the turn of
    /// one that may yet come with something of its own: who ended before would lose that. Who has taken something and is left with
    /// nothing goes on waiting.
    fn settle(&mut self, mut places: Vec<(KeyspaceId, Blob)>) {
        while let Some(place) = places.pop() {
            for mut taken in self.taken.remove(&place).unwrap_or_default() {
                let mut held = false;
                for connection in self.waiting.get(&place).into_iter().flatten() {
                    if taken.outcomes.is_empty() {
                        break;
                    }
                    let Some(member) = self.members.get_mut(connection) else { continue };
                    if member.manner.as_ref() != Some(&taken.manner) {
                        continue;
                    }
                    match member.standing {
                        Standing::Given(_) => continue,
                        // It was said that nothing is for this one any more.
                        Standing::Idle if member.unblocked.is_some() => continue,
                        Standing::Idle => {}
                        Standing::Took if taken.takers.contains(connection) => {}
                        Standing::Tries | Standing::Took => {
                            held = true;
                            break;
                        }
                    }
                    if let Some(outcome) = taken.outcomes.pop_front() {
                        member.standing = Standing::Given(Box::new((place.clone(), outcome)));
                        taken.takers.retain(|taker| taker != connection);
                        self.mail.push_back((*connection, Some(Notice::Settled)));
                    }
                }
                if held {
                    self.taken.entry(place.clone()).or_default().push(taken);
                    continue;
                }
                for taker in taken.takers {
                    let Some(member) = self.members.get_mut(&taker) else { continue };
                    if matches!(member.standing, Standing::Took) {
                        member.standing = Standing::Idle;
                        self.mail.push_back((taker, Some(Notice::Settled)));
                        // At its other keys, others may have waited for this.
                        let others = member.waits.keys().filter(|other| self.taken.contains_key(*other));
                        places.extend(others.cloned());
                    }
                }
            }
        }
    }

    /// What it has found is not what it waits for, and it goes on waiting; for those behind it, it may be.
    pub fn passes(&mut self, connection: u64) {
        let Some(member) = self.members.get_mut(&connection) else { return };
        let passed: Vec<_> = member
            .waits
            .iter_mut()
            .map(|(place, told)| (place.clone(), std::mem::take(&mut told.before)))
            .filter(|(_, count)| *count > 0)
            .collect();
        for (place, count) in passed {
            let queue = self.waiting.get(&place);
            let at = queue.and_then(|queue| queue.iter().position(|other| *other == connection));
            if let Some(at) = at {
                self.wake(&place, at + 1, count);
            }
        }
    }

    fn told(&mut self, connection: u64) -> impl Iterator<Item = &mut Told> {
        self.members.get_mut(&connection).into_iter().flat_map(|member| member.waits.values_mut())
    }

    /// Whether a connection waits for a key, or for copies.
    pub fn waits(&self, connection: u64) -> bool {
        self.members.get(&connection).is_some_and(Member::waits)
    }

    /// Whether it has taken or was given an element of a key that it waits for, or was told of some and has not said what became
    /// of them.
    pub fn is_told(&self, connection: u64) -> bool {
        let mut told = self.members.get(&connection).into_iter().flat_map(|member| member.waits.values());
        self.is_owed(connection) || told.any(|told| told.since + told.before > 0)
    }

    /// How many connections wait for a key, or for copies.
    pub fn waiters(&self) -> usize {
        self.members.values().filter(|member| member.waits()).count()
    }

    /// Tells the other nodes that somebody here waits for these keys.
    pub fn announce(&mut self, keyspace: KeyspaceId, keys: &[Blob]) {
        let short = keys.iter().filter(|key| key.len() <= ANNOUNCED_BYTES);
        let keys: Vec<Blob> = short.take(ANNOUNCED_MAX).cloned().collect();
        if !keys.is_empty() {
            self.tell(News::Waiting { keyspace, keys });
        }
    }

    /// Forgets what other nodes have said and is not believed any more; to be called now and then.
    pub fn tick(&mut self, now: Instant) {
        if now >= self.remote_look && !(self.remote.is_empty() && self.elsewhere.is_empty()) {
            self.remote_look = now + BELIEVED;
            self.remote.retain(|_, until| *until > now);
            self.remote_bytes = self.remote.keys().map(|(_, key)| key.len()).sum();
            self.elsewhere.values_mut().for_each(|told| told.tick(now));
            self.weigh_wants();
        }
    }

    /// A key was given so many elements by a command of this node: those who wait for it are told, the one
    /// that has waited longest first, as many as there are elements.
    pub fn filled(&mut self, keyspace: KeyspaceId, key: &Blob, count: usize, now: Instant) {
        let place = (keyspace, key.clone());
        self.wake(&place, 0, count);
        if self.remote.get(&place).is_some_and(|until| *until > now) {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            self.tell(News::Filled { keyspace, key: key.clone(), count });
        }
    }

    /// Tells those from place `from` of the queue on, as many as `count`: first who has not been told of anything yet. Where
    /// all have, some of them once more, since they may have looked before this was there.
    fn wake(&mut self, place: &(KeyspaceId, Blob), from: usize, count: usize) {
        let mut left = count;
        let mut busy = Vec::new();
        for connection in self.waiting.get(place).into_iter().flatten().skip(from) {
            if left == 0 {
                return;
            }
            let member = self.members.get_mut(connection);
            let Some(told) = member.and_then(|member| member.waits.get_mut(place)) else { continue };
            if told.since + told.before > 0 {
                busy.push(*connection);
                continue;
            }
            told.since = 1;
            left -= 1;
            self.mail.push_back((*connection, Some(Notice::Filled)));
        }
        for connection in busy.into_iter().take(left) {
            let member = self.members.get_mut(&connection);
            let Some(told) = member.and_then(|member| member.waits.get_mut(place)) else { continue };
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
        let waits = |member: &&mut Member| member.waits() && member.unblocked.is_none();
        let Some(member) = self.members.get_mut(&connection).filter(waits) else { return false };
        member.unblocked = Some(error);
        self.mail.push_back((connection, Some(Notice::Unblock)));
        true
    }

    /// The client of a connection that waits is gone: nothing that others take is for it.
    pub fn hang_up(&mut self, connection: u64) {
        if let Some(member) = self.members.get_mut(&connection) {
            member.unblocked = member.unblocked.or(Some(false));
        }
    }

    /// A connection has done enough for this round, and goes on in the next.
    pub fn put_off(&mut self, connection: u64) {
        self.mail.push_back((connection, Some(Notice::GoOn)));
    }

    /// Whether what it waits for was ended so, and how: not what it waited for when the notice of that was sent.
    pub fn unblocked(&self, connection: u64) -> Option<bool> {
        self.members.get(&connection)?.unblocked
    }

    /// A connection is told from now on what this node is asked; whether that is new.
    pub fn monitor(&mut self, connection: u64) -> bool {
        // What was asked before is not for it.
        self.tell_monitors();
        self.monitors.insert(connection)
    }

    /// Whether any connection is told what this node is asked.
    pub fn is_monitored(&self) -> bool {
        !self.monitors.is_empty()
    }

    /// Whether this one is.
    pub fn monitors(&self, connection: u64) -> bool {
        self.monitors.contains(&connection)
    }

    /// What this node is asked, for those who monitor it: `write` adds a line.
    pub fn show(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.seen.len() <= SEEN_MAX {
            write(&mut self.seen);
        }
    }

    fn tell_monitors(&mut self) {
        if self.seen.is_empty() {
            return;
        }
        let seen = std::mem::take(&mut self.seen);
        let lines = (seen.len() <= SEEN_MAX).then(|| Blob::from(seen));
        let seen = |connection: &u64| (*connection, Some(Notice::Seen(lines.clone())));
        self.mail.extend(self.monitors.iter().map(seen));
    }

    /// Ends a connection: from now on it is asked nothing, and told nothing. The shard closes it at the end of its round.
    pub fn kill(&mut self, connection: u64) {
        self.leave(connection);
        self.killed.insert(connection);
    }

    /// Whether it has ended so.
    pub fn is_killed(&self, connection: u64) -> bool {
        self.killed.contains(&connection)
    }

    /// The connections to be closed.
    pub fn take_killed(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.killed)
    }

    /// A connection has ended, or is as new.
    pub fn leave(&mut self, connection: u64) {
        self.unwait(connection);
        self.monitors.remove(&connection);
        let Some(member) = self.members.remove(&connection) else { return };
        for topic in Topic::ALL {
            member.names(topic).names.iter().for_each(|name| self.strike(topic, name, connection));
        }
    }

    /// Other nodes have told something, which is heard in the rounds to come. How much of it there was no room for.
    pub fn take_in(&mut self, heard: impl IntoIterator<Item = Heard>) -> u64 {
        let mut lost = 0;
        for heard in heard {
            let bytes = heard_bytes(&heard);
            // They are seldom, short, and not told again soon.
            let kept = matches!(heard, (_, None | Some(News::Wants { .. })));
            if !kept && self.told_bytes + bytes > TOLD_MAX && !self.told.is_empty() {
                lost += 1;
                continue;
            }
            self.told_bytes += bytes;
            self.told.push_back(heard);
        }
        lost
    }

    /// Hears what others have told, as much as one round has time for and can hand over. How much of it was lost, since it
    /// was for more subscriptions than can be told.
    pub fn hear(&mut self, now: Instant) -> u64 {
        self.tick(now);
        let (mut steps, mut lost, before) = (0, std::mem::take(&mut self.lost), self.mail.len());
        // Whatever is published here meanwhile, others are heard too.
        while steps < HEARD_STEPS
            && self.mail.len() < (before + MAIL_PER_ROUND / 2).min(MAIL_MAX / 2)
            && let Some(heard) = self.told.pop_front()
        {
            self.told_bytes -= heard_bytes(&heard);
            let (from, news) = heard;
            let (taken, heard) = match news {
                Some(news) => self.hear_one(from, news, now),
                None => {
                    let steps = self.elsewhere.remove(&from).map_or(1, |told| 1 + told.names.len());
                    self.weigh_wants();
                    (steps, true)
                }
            };
            steps += taken;
            lost += u64::from(!heard);
        }
        lost
    }

    /// About how many steps it has taken, and whether it was for no more than can be told.
    fn hear_one(&mut self, from: NodeId, news: News, now: Instant) -> (usize, bool) {
        match news {
            News::Published { channel, payload } => {
                let steps = 1 + self.steps_to_publish(&channel);
                let Some(receivers) = self.receivers(false, &channel) else { return (steps, false) };
                let told = receivers.len();
                self.deliver(receivers, false, &channel, &payload);
                (steps + told, true)
            }
            News::ShardPublished { channel, payload } => {
                let Some(receivers) = self.receivers(true, &channel) else { return (1, false) };
                let told = receivers.len();
                self.deliver(receivers, true, &channel, &payload);
                (1 + told, true)
            }
            News::Subscribed { counts } => {
                let steps = 1 + counts.len();
                let told = self.elsewhere.entry(from).or_default();
                for (topic, name, count) in counts {
                    told.hear((topic, name), count, now);
                }
                (steps, true)
            }
            News::Waiting { keyspace, keys } => {
                let steps = 1 + keys.len();
                for key in keys.into_iter().filter(|key| key.len() <= ANNOUNCED_BYTES) {
                    let bytes = key.len();
                    let full = self.remote.len() >= REMOTE_MAX || self.remote_bytes + bytes > REMOTE_BYTES;
                    match self.remote.entry((keyspace, key)) {
                        Entry::Occupied(mut until) => *until.get_mut() = now + BELIEVED,
                        Entry::Vacant(place) if !full => {
                            place.insert(now + BELIEVED);
                            self.remote_bytes += bytes;
                        }
                        Entry::Vacant(_) => {}
                    }
                }
                (steps, true)
            }
            News::Filled { keyspace, key, count } => {
                let place = (keyspace, key);
                let steps = 1 + self.waiting.get(&place).map_or(0, VecDeque::len);
                self.wake(&place, 0, count as usize);
                (steps, true)
            }
            News::Happened { index, event, key } => self.hear_event(index, event, &key),
            News::Wants { classes } => {
                self.elsewhere.entry(from).or_default().wants = (classes, now);
                self.weigh_wants();
                (1, true)
            }
        }
    }

    fn hear_event(&mut self, index: u32, event: Event, key: &Blob) -> (usize, bool) {
        let (mut steps, mut told) = (1, true);
        if !self.wants_here().has(event.class()) {
            return (steps, told);
        }
        let name = Blob::from(event.name());
        for (flag, kind, of, payload) in
            [(Flags::BY_KEY, "keyspace", key, &name), (Flags::BY_EVENT, "keyevent", &name, key)]
        {
            if !self.notifies.has(flag) {
                continue;
            }
            let channel = Blob::from([format!("__{kind}@{index}__:").as_bytes(), &of[..]].concat());
            steps += self.steps_to_publish(&channel);
            match self.receivers(false, &channel) {
                Some(receivers) => {
                    steps += receivers.len();
                    self.deliver(receivers, false, &channel, payload);
                }
                None => told = false,
            }
        }
        (steps, told)
    }

    /// What connections are to be told, in order; what a round has no time for stays.
    pub fn take_mail(&mut self) -> VecDeque<(u64, Notice)> {
        self.tell_monitors();
        let members = &mut self.members;
        let told = |(connection, notice): (u64, Option<Notice>)| {
            let notice = notice.or_else(|| members.get_mut(&connection)?.next_message())?;
            Some((connection, notice))
        };
        let mail = self.mail.drain(..self.mail.len().min(MAIL_PER_ROUND)).filter_map(told).collect();
        shrink(&mut self.mail);
        mail
    }

    /// Whether a connection is to be told something.
    pub fn has_mail(&self) -> bool {
        !self.mail.is_empty() || !self.seen.is_empty() || !self.told.is_empty()
    }

    /// What the other nodes are to be told.
    pub fn take_news(&mut self) -> Vec<News> {
        self.news_bytes = 0;
        std::mem::take(&mut self.news)
    }

    fn tell(&mut self, news: News) {
        let bytes = news.bytes();
        // One that is larger goes alone.
        let asks = matches!(news, News::Wants { .. });
        if asks || self.news.is_empty() || self.news_bytes + bytes <= NEWS_MAX {
            self.news_bytes += bytes;
            self.news.push(news);
        }
    }

    fn forget_idle(&mut self, connection: u64) {
        if self.members.get(&connection).is_some_and(Member::is_idle) {
            self.members.remove(&connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::command::{Response, Side};

    const SPACE: KeyspaceId = KeyspaceId(1);
    const OTHER: NodeId = NodeId(1);

    fn mail(hub: &mut Hub) -> String {
        let mut text = String::new();
        for (connection, notice) in hub.take_mail() {
            text.push_str(&format!("{connection} {notice:?}; "));
        }
        text
    }

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

    /// Has another node hear what this one tells of its subscriptions, and gives how many news that were.
    fn tell_counts(from: &mut Hub, to: &mut Hub, now: Instant) -> usize {
        from.tell_counts(now);
        let news = from.take_news();
        let told = news.len();
        for news in news {
            to.hear_one(OTHER, news, now);
        }
        told
    }

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
        assert_eq!((there.telling.names.len(), there.telling.bytes), (0, 0));
        assert_eq!(here.elsewhere[&OTHER].bytes, 0);
    }

    #[test]
    fn events_go_where_they_are_wanted() {
        let (mut here, mut there) = (Hub::default(), Hub::default());
        let at = |millis| Instant::ZERO + Span::from_millis(millis);
        there.set_notifies(Flags::parse(b"Ex").unwrap());
        assert_eq!(there.wanted(), Flags::NONE, "nobody listens");
        there.subscribe(1, Topic::Pattern, &"__keyevent@*__:expired".into());
        assert_eq!(there.wanted(), Flags::EXPIRED);
        assert_eq!(tell_counts(&mut there, &mut here, at(0)), 2, "what is wanted, and a name");
        assert_eq!(here.wanted(), Flags::EXPIRED);
        let key = Blob::from("k");
        here.happened(3, Event::Set, &key);
        here.happened(3, Event::Expired, &key);
        here.happened(3, Event::Expired, &vec![b'k'; PATTERN_MAX + 1].into());
        let news = here.take_news();
        assert_eq!(news, [News::Happened { index: 3, event: Event::Expired, key: key.clone() }]);
        assert_eq!(here.hear(at(0)), 0);
        assert_eq!(mail(&mut here), "", "nobody here");
        there.take_in(news.into_iter().map(|news| (OTHER, Some(news))));
        there.happened(0, Event::Expired, &key);
        assert_eq!(there.hear(at(0)), 0);
        let message = |index| {
            format!(
                "1 Message {{ shard: false, pattern: Some(\"__keyevent@*__:expired\"), channel: \
                 \"__keyevent@{index}__:expired\", payload: \"k\" }}; "
            )
        };
        assert_eq!(mail(&mut there), message(3) + &message(0));
        assert!(there.take_news().is_empty(), "here nobody listens");
        // Whatever another wants, what is delivered is what this node is to tell.
        there.set_notifies(Flags::parse(b"KA").unwrap());
        there.happened(0, Event::Expired, &key);
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
        assert_eq!((known(&here), here.elsewhere[&OTHER].bytes), (0, 0));
        // Its node is gone.
        there.subscribe(1, Topic::Channel, &name);
        assert_eq!((tell_counts(&mut there, &mut here, at(50)), known(&here)), (1, 1));
        here.take_in([(OTHER, None)]);
        here.hear(at(51));
        assert_eq!((known(&here), here.told_bytes), (0, 0));
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
        assert!(there.telling.untold.is_empty());
        // The bytes of the names are bounded as well, and what is believed of others.
        let mut there = Hub::default();
        for number in 0..COUNTED_BYTES / 4_096 + 9 {
            there.subscribe(1, Topic::Channel, &Blob::from(format!("{number:04096}").into_bytes()));
        }
        assert_eq!((there.telling.bytes, there.telling.untold.len()), (COUNTED_BYTES, 9));
        let counts = (0..3 * COUNTED_MAX).map(|number| (Topic::Shard, name(number), 1)).collect();
        here.hear_one(OTHER, News::Subscribed { counts }, now);
        assert_eq!(here.elsewhere[&OTHER].names.len(), 2 * COUNTED_MAX);
    }

    #[test]
    fn what_others_publish_is_heard_as_rounds_have_time_for_it() {
        let mut hub = Hub::default();
        let patterns = 1_000;
        for number in 0..patterns {
            hub.subscribe(1, Topic::Pattern, &format!("{number}*").into());
        }
        let message = || (OTHER, Some(News::Published { channel: "x".into(), payload: "m".into() }));
        let told = 3 * HEARD_STEPS / patterns;
        assert_eq!(hub.take_in(std::iter::repeat_with(message).take(told)), 0);
        let mut rounds = 0;
        while hub.has_mail() {
            let before = hub.told.len();
            hub.hear(Instant::ZERO);
            assert!((before - hub.told.len()) * patterns <= HEARD_STEPS + 2 * patterns);
            rounds += 1;
        }
        assert!(rounds >= 3, "{rounds}");
        assert_eq!(hub.told_bytes, 0);
        // Nor is more kept than there is room for; what is larger than that goes alone.
        let payload = Blob::new(&vec![b'm'; TOLD_MAX]);
        let large = || (OTHER, Some(News::Published { channel: "x".into(), payload: payload.clone() }));
        assert_eq!(hub.take_in([large(), message(), large()]), 2);
        hub.hear(Instant::ZERO);
        assert_eq!(hub.take_in([message(), large(), message()]), 1);
    }

    #[test]
    fn what_others_publish_is_heard_no_faster_than_it_is_handed_over() {
        let (connections, messages) = (2_000, 200);
        let mut hub = Hub::default();
        for number in 0..connections {
            hub.subscribe(number as u64, Topic::Pattern, &"*".into());
        }
        let message = || (OTHER, Some(News::Published { channel: "x".into(), payload: "m".into() }));
        assert_eq!(hub.take_in(std::iter::repeat_with(message).take(messages)), 0);
        let mut told = 0;
        while hub.has_mail() {
            assert_eq!(hub.hear(Instant::ZERO), 0);
            assert!(hub.mail() < MAIL_PER_ROUND + connections, "{}", hub.mail());
            told += hub.take_mail().len();
        }
        assert_eq!(told, connections * messages);
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
        assert_eq!((hub.names_here(Topic::Pattern), hub.pattern_bytes), (0, 0));
    }

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
        assert!(hub.taken.is_empty());
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
        assert!(hub.taken.is_empty() && hub.members.is_empty());
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
        assert!(hub.taken.is_empty());
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
        assert_eq!((here.remote.len(), here.remote_bytes), (0, 0), "nobody waits any more");
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
                (here.remote.len(), here.remote_bytes),
                (REMOTE_BYTES / ANNOUNCED_BYTES, REMOTE_BYTES)
            );
        }
    }
}
