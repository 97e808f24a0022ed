//! What this node tells the others, and what they have told and is heard round by round.

use super::waiting::BELIEVED;
use super::{Hub, MAIL_MAX, MAIL_PER_ROUND, Topic};
use crate::events::Event;
use isochrone_core::notify::Flags;
use isochrone_core::{Blob, Instant, KeyspaceId, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What other nodes have told may take so many bytes until it is heard; what is beyond that is lost, as on a link that breaks.
const TOLD_MAX: usize = 16 << 20;
/// About how many steps of hearing it there are in a round: a few milliseconds.
const HEARD_STEPS: usize = 200_000;
/// Bytes of news to other nodes that wait to be sent, at most; beyond that they are lost.
pub(super) const NEWS_MAX: usize = 16 << 20;

/// What one node tells the others ([`Hub::concerns`]). The order of the variants is the wire format.
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
        /// Of this keyspace.
        keyspace: KeyspaceId,
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

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// What other nodes are to be told.
    news: Vec<News>,
    news_bytes: usize,
    /// What they have told, and nobody here has heard yet.
    told: VecDeque<Heard>,
    told_bytes: usize,
    /// How much that happened here was lost since that was last asked.
    lost: u64,
    /// When it is looked again what is not believed any more of what they have said.
    look: Instant,
}

impl Hub {
    /// Forgets what other nodes have said and is not believed any more; to be called now and then.
    pub fn tick(&mut self, now: Instant) {
        if now >= self.exchange.look {
            self.exchange.look = now + BELIEVED;
            self.forget_old_keys(now);
            self.forget_old_counts(now);
            self.forget_old_wants(now);
        }
    }

    /// Other nodes have told something, which is heard in the rounds to come. How much of it there was no room for.
    pub fn take_in(&mut self, heard: impl IntoIterator<Item = Heard>) -> u64 {
        let mut lost = 0;
        for heard in heard {
            let bytes = heard_bytes(&heard);
            // They are seldom, short, and not told again soon.
            let kept = matches!(heard, (_, None | Some(News::Wants { .. })));
            if !kept && self.exchange.told_bytes + bytes > TOLD_MAX && !self.exchange.told.is_empty() {
                lost += 1;
                continue;
            }
            self.exchange.told_bytes += bytes;
            self.exchange.told.push_back(heard);
        }
        lost
    }

    /// Something that happened here is heard in the rounds to come like what others tell: what a round hears is bounded,
    /// whoever has told it.
    pub(super) fn hear_own(&mut self, news: News) {
        // Of what is told so it does not matter by whom.
        self.exchange.lost += self.take_in([(NodeId(0), Some(news))]);
    }

    /// Hears what others have told, as much as one round has time for and can hand over. How much of it was lost, since it
    /// was for more subscriptions than can be told.
    pub fn hear(&mut self, now: Instant) -> u64 {
        self.tick(now);
        let (mut steps, mut lost, before) = (0, std::mem::take(&mut self.exchange.lost), self.mail.len());
        // Whatever is published here meanwhile, others are heard too.
        while steps < HEARD_STEPS
            && self.mail.len() < (before + MAIL_PER_ROUND / 2).min(MAIL_MAX / 2)
            && let Some(heard) = self.exchange.told.pop_front()
        {
            self.exchange.told_bytes -= heard_bytes(&heard);
            let (from, news) = heard;
            let (taken, heard) = match news {
                Some(news) => self.hear_one(from, news, now),
                None => {
                    self.forget_wants_of(from);
                    (self.forget_counts_of(from), true)
                }
            };
            steps += taken;
            lost += u64::from(!heard);
        }
        lost
    }

    /// About how many steps it has taken, and whether it was for no more than can be told.
    pub(super) fn hear_one(&mut self, from: NodeId, news: News, now: Instant) -> (usize, bool) {
        match news {
            News::Published { channel, payload } => {
                let receivers = self.deliver(false, &channel, &payload);
                (1 + self.steps_to_publish(&channel) + receivers.unwrap_or(0), receivers.is_some())
            }
            News::ShardPublished { channel, payload } => {
                let receivers = self.deliver(true, &channel, &payload);
                (1 + receivers.unwrap_or(0), receivers.is_some())
            }
            News::Subscribed { counts } => (self.hear_counts(from, counts, now), true),
            News::Waiting { keyspace, keys } => (self.hear_waiting(keyspace, keys, now), true),
            News::Filled { keyspace, key, count } => (self.hear_filled(keyspace, key, count), true),
            News::Happened { keyspace, event, key } => self.hear_event(keyspace, event, &key),
            News::Wants { classes } => {
                self.hear_wants(from, classes, now);
                (1, true)
            }
        }
    }

    /// Whether others have told something that is not heard yet.
    pub(super) fn has_told(&self) -> bool {
        !self.exchange.told.is_empty()
    }

    /// What the other nodes are to be told.
    pub fn take_news(&mut self) -> Vec<News> {
        self.exchange.news_bytes = 0;
        std::mem::take(&mut self.exchange.news)
    }

    /// Whether another node is to be told this.
    pub fn concerns(&self, node: NodeId, news: &News) -> bool {
        match news {
            News::Happened { event, .. } => self.is_wanted_at(node, *event),
            _ => true,
        }
    }

    /// Has the other nodes told this, as far as it concerns them.
    pub(super) fn tell(&mut self, news: News) {
        let Exchange { news: waiting, news_bytes, .. } = &mut self.exchange;
        let bytes = news.bytes();
        // One that is larger goes alone.
        let asks = matches!(news, News::Wants { .. });
        if asks || waiting.is_empty() || *news_bytes + bytes <= NEWS_MAX {
            *news_bytes += bytes;
            waiting.push(news);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::tests::OTHER;

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
        assert_eq!(hub.take_in([(OTHER, None)]), 0);
        let mut rounds = 0;
        while hub.has_mail() {
            let before = hub.exchange.told.len();
            hub.hear(Instant::ZERO);
            assert!((before - hub.exchange.told.len()) * patterns <= HEARD_STEPS + 2 * patterns);
            rounds += 1;
        }
        assert!(rounds >= 3, "{rounds}");
        assert_eq!(hub.exchange.told_bytes, 0);
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
}
