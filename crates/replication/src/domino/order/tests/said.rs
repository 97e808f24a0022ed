//! What replicas have said and written down, in all their lives, and what must be so of it (`specs/domino.md` 4.7).

use super::*;

/// Of one replica.
#[derive(Clone, Default)]
pub(super) struct Said {
    /// The highest clock announced in the fast lane, and in its own.
    clock: u64,
    skip: u64,
    /// Fast votes that clients were told of: by epoch and stamp.
    votes: BTreeMap<(u32, u64), u64>,
    /// Proposals in its own lane.
    proposals: BTreeMap<u64, u64>,
    /// The epoch it is in by its journal, and the fast votes there.
    epoch: u32,
    written: BTreeMap<(u32, u64), u64>,
    /// By epoch: where it begins, and how far the clock was announced in it. What is empty in between is voted no-op.
    passed: BTreeMap<u32, (u64, u64)>,
    /// Positions that were not empty when the clock passed them, though they have no fast vote.
    taken: BTreeSet<(u32, u64)>,
    /// What each peer was told in order.
    channels: BTreeMap<ProcessId, Channel>,
}

/// What was said to one peer in a session.
#[derive(Clone, Default)]
struct Channel {
    session: Option<u64>,
    /// The number of the next message.
    next: u64,
    /// The clocks announced in it.
    clock: u64,
    skip: u64,
    /// The proposals told in it.
    proposals: BTreeSet<u64>,
}

impl Said {
    /// A record is on its way to the disk, ahead of all that follows.
    pub(super) fn wrote(&mut self, record: &Record<Word>) {
        match record {
            Record::Voted { values } => {
                self.written.extend(values.iter().map(|(at, word)| ((self.epoch, *at), word.0)));
            }
            Record::Promised { epoch, .. } => self.epoch = *epoch,
            Record::Opened(opening) => {
                self.epoch = opening.round.epoch;
                self.passed.insert(self.epoch, (opening.high, 0));
                self.took(&opening.round);
            }
            Record::Recovered(round) => self.took(round),
            _ => {}
        }
    }

    fn took(&mut self, round: &Round<Word>) {
        let passed = self.passed.get(&round.epoch).map_or(0, |(_, clock)| *clock);
        let ahead = round.values.iter().map(|(at, _)| *at).filter(|at| *at >= passed);
        self.taken.extend(ahead.map(|at| (round.epoch, at)));
    }

    /// Whether it has voted for a no-op at a position in an epoch.
    fn left_empty(&self, epoch: u32, at: u64) -> bool {
        let (from, clock) = self.passed.get(&epoch).copied().unwrap_or_default();
        let voted = self.written.contains_key(&(epoch, at)) || self.taken.contains(&(epoch, at));
        (from..clock).contains(&at) && !voted
    }

    /// A replica never votes below a clock that it announced, nor twice at one stamp in an epoch (I2, I3), nor tells a
    /// client, who counts these votes for a commit, of one that is not written down (I7); the owner of a lane proposes
    /// one value for a position, at rising stamps, and never below what it has skipped (I6).
    pub(super) fn hear(&mut self, to: ProcessId, message: &Message<Word>) {
        match message {
            Message::Voted { epoch, votes, .. } => {
                for (at, word) in votes {
                    let known = self.votes.insert((*epoch, *at), *word);
                    assert!(known.is_none_or(|known| known == *word), "I2: votes twice at {at}");
                    assert!(known.is_some() || *at >= self.clock, "I3: votes at {at}, below {}", self.clock);
                    assert_eq!(
                        self.written.get(&(*epoch, *at)),
                        Some(word),
                        "I7: told and not written, at {at}"
                    );
                }
            }
            Message::Flow { items: Some(numbered), .. } => {
                let channel = self.channels.entry(to).or_default();
                if channel.session != Some(numbered.session) {
                    *channel = Channel { session: Some(numbered.session), ..Channel::default() };
                }
                if numbered.number < channel.next {
                    // Once more, what may have been lost.
                    return;
                }
                channel.next = numbered.number + 1;
                numbered.item.iter().for_each(|item| channel.say(item));
                numbered.item.iter().for_each(|item| self.announce(item));
            }
            _ => {}
        }
    }

    fn announce(&mut self, item: &Item<Word>) {
        match item {
            Item::Tick { clock, skip } => {
                self.clock = self.clock.max(clock.unwrap_or(0));
                if let Some(clock) = clock {
                    let (_, passed) = self.passed.entry(self.epoch).or_default();
                    *passed = (*clock).max(*passed);
                }
                self.skip = self.skip.max(*skip);
            }
            Item::Accept { values } => {
                for (at, value) in values.iter().filter_map(|(at, value)| Some((at, value.as_ref()?))) {
                    let last = self.proposals.last_key_value().map_or(0, |(at, _)| *at);
                    let known = self.proposals.insert(*at, value.0);
                    assert!(known.is_none_or(|known| known == value.0), "I6: proposes twice at {at}");
                    assert!(known.is_some() || (*at > last && *at >= self.skip), "I6: proposes at {at}");
                }
            }
            _ => {}
        }
    }
}

impl Channel {
    /// A clock goes forward (I4) and follows every vote and every proposal below it (I5), in each session.
    fn say(&mut self, item: &Item<Word>) {
        match item {
            // Votes of another epoch are told anew, and so is what they cover.
            Item::Cover { .. } => self.clock = 0,
            Item::Vote { votes } => {
                let behind = votes.iter().find(|(at, _)| *at < self.clock);
                assert!(behind.is_none(), "I5: {behind:?} is told behind the clock, {}", self.clock);
            }
            Item::Accept { values } => {
                for (at, _) in values {
                    let again = !self.proposals.insert(*at);
                    assert!(
                        again || *at >= self.skip,
                        "I5: {at} is proposed behind the clock, {}",
                        self.skip
                    );
                }
            }
            Item::Tick { clock, skip } => {
                let clock = clock.unwrap_or(self.clock);
                assert!(clock >= self.clock && *skip >= self.skip, "I4: back to {clock} and {skip}");
                (self.clock, self.skip) = (clock, *skip);
            }
            _ => {}
        }
    }
}

/// What a fast quorum has chosen, a command or, where some voted for one, a no-op, is what every round of that epoch, or
/// of a later one, proposes for its position (I8).
pub(super) fn nothing_chosen_is_proposed_as_something_else<'a>(
    said: &[Said],
    need: usize,
    rounds: impl Iterator<Item = &'a Round<Word>>,
) {
    let mut votes: BTreeMap<(u32, u64), BTreeMap<u64, usize>> = BTreeMap::new();
    for (position, word) in said.iter().flat_map(|said| &said.written) {
        *votes.entry(*position).or_default().entry(*word).or_default() += 1;
    }
    let mut chosen = Vec::new();
    for ((epoch, at), words) in votes {
        let word = words.into_iter().find(|(_, count)| *count >= need).map(|(word, _)| Some(Word(word)));
        let empty = said.iter().filter(|said| said.left_empty(epoch, at)).count();
        chosen.extend(word.or((empty >= need).then_some(None)).map(|value| (epoch, at, value)));
    }
    for round in rounds {
        for (epoch, at, value) in chosen.iter().filter(|(epoch, ..)| *epoch <= round.epoch) {
            let single = round.values.iter().find(|(stamp, _)| stamp == at).map(|(_, value)| value);
            let kept = single.map_or(value.is_none() || !proposes(round, *at), |single| single == value);
            assert!(kept, "I8: {value:?} is chosen at {at} in epoch {epoch}, and not in {}", round.epoch);
        }
    }
}
