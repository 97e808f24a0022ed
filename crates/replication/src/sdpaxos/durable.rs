//! What a restart begins with: the own snapshot, then the records behind it.

use super::Mutation;
use super::assignment::{Assignment, Image, Rank};
use super::message::{Entry, Value};
use super::order::Order;
use super::space::Cell;
use crate::chunks::fill;
use crate::order::{Ordered, Step};
use isochrone_core::{Ballot, Blob, Instant, Malformed, Slot, Snapshot, wire};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The first chunk.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Frame {
    view: Ballot,
    prior: Ballot,
    installed: Ballot,
    active: bool,
    begin: u64,
    floor_view: Ballot,
    executed: u64,
    counts: Vec<u64>,
    log: Image,
    reserved: u64,
    promised: Vec<Ballot>,
}

/// Votes: owner, number, ballot, value, and whether that is decided.
type Votes<V> = Vec<(Rank, u64, Ballot, Value<V>, bool)>;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
enum Chunk<V: Ordered> {
    Frame(Box<Frame>),
    Votes(Votes<V>),
}

impl<V: Ordered> Order<V> {
    /// Promises, votes and logs; what was executed is the holder's to keep.
    pub(super) fn image(&self) -> Snapshot {
        let frame = Frame {
            view: self.view,
            prior: self.prior,
            installed: self.installed,
            active: self.active,
            begin: self.begin,
            floor_view: self.floor_view,
            executed: self.executed,
            counts: self.counts.clone(),
            log: self.log.image(self.log.end()),
            reserved: self.numbers.end(),
            promised: self.spaces.iter().map(|space| space.promised).collect(),
        };
        let vote = |(owner, slot, cell): (usize, Slot, &Cell<V>)| {
            (owner as Rank, slot.0, cell.ballot, cell.value.clone(), cell.decided)
        };
        let mut votes: VecDeque<_> = self
            .spaces
            .iter()
            .enumerate()
            .flat_map(|(owner, space)| space.log.range(Slot(0)).map(move |(slot, cell)| (owner, slot, cell)))
            .map(vote)
            .collect();
        let mut first = Some(Chunk::<V>::Frame(Box::new(frame)));
        Box::new(std::iter::from_fn(move || {
            if let Some(frame) = first.take() {
                return Some(Blob::from(wire::encode(&frame)));
            }
            let chunk = fill(&mut votes, &mut 0);
            (!chunk.is_empty()).then(|| Blob::from(wire::encode(&Chunk::Votes(chunk))))
        }))
    }

    pub(super) fn restore_chunk(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let chunk: Chunk<V> = wire::decode(chunk)
            .map_err(|error| Malformed { what: "SDPaxos snapshot chunk", cause: error.to_string() })?;
        match chunk {
            Chunk::Frame(frame) => {
                let count = self.count();
                if frame.counts.len() != count || frame.promised.len() != count {
                    let cause = format!("it is of {} members, not {count}", frame.counts.len());
                    return Err(Malformed { what: "SDPaxos snapshot chunk", cause });
                }
                (self.view, self.prior, self.installed) = (frame.view, frame.prior, frame.installed);
                (self.active, self.begin, self.floor_view) = (frame.active, frame.begin, frame.floor_view);
                (self.executed, self.counts) = (frame.executed, frame.counts);
                self.executed_recorded = self.executed;
                self.log = Assignment::from_image(&frame.log);
                self.reserve_again(frame.reserved);
                for (rank, promised) in frame.promised.into_iter().enumerate() {
                    let count = self.counts[rank];
                    self.spaces[rank].promised = promised;
                    self.spaces[rank].log.reset(Slot(count + 1));
                }
                self.sequencer = None;
                self.rank_own();
            }
            Chunk::Votes(votes) => {
                for (owner, index, ballot, value, decided) in votes {
                    if let Some(space) = self.spaces.get_mut(usize::from(owner)) {
                        space.log.insert(Slot(index), Cell { ballot, value, decided });
                    }
                }
            }
        }
        Ok(())
    }

    fn reserve_again(&mut self, numbers: u64) {
        self.numbers.raise(numbers);
        if !self.mutated(Mutation::ReuseIndex) {
            self.next = self.next.max(numbers);
        }
    }

    pub(super) fn replay_entry(&mut self, entry: Entry<V>) {
        self.sequencer = None;
        match entry {
            Entry::Executed(upto) => {
                while self.executed < upto {
                    let Some(decided) = self.execute_next(true, Instant::ZERO) else { break };
                    self.steps.push_back(Step::Decided(decided));
                }
            }
            Entry::Reserved(numbers) => self.reserve_again(numbers),
            Entry::Promised(owner, ballot) => {
                if let Some(space) = self.spaces.get_mut(usize::from(owner)) {
                    space.promised = space.promised.max(ballot);
                }
            }
            Entry::Accepted(owner, ballot, first, values) => {
                self.vote_again(owner, ballot, first, values, true)
            }
            Entry::Decided(owner, ballot, first, values) => {
                self.vote_again(owner, ballot, first, values, false)
            }
            Entry::Ordered(first, runs) => {
                let mut slot = first;
                for (owner, count) in runs {
                    for _ in 0..count {
                        self.log.set(slot, owner);
                        slot += 1;
                    }
                }
                while self.log.advance().is_some() {}
                self.rank_own();
            }
            Entry::Placed(slot, owner) => {
                self.log.set(slot, owner);
                while self.log.advance().is_some() {}
                self.rank_own();
            }
            Entry::Learned(first, slots) => {
                self.learn(first, slots);
                while !self.learned.is_empty() {
                    let Some(decided) = self.execute_next(true, Instant::ZERO) else { break };
                    self.steps.push_back(Step::Decided(decided));
                }
            }
            Entry::Voted(view) => {
                if !self.mutated(Mutation::ForgetVote) {
                    self.prior = self.view;
                    self.view = self.view.max(view);
                }
            }
            Entry::Installed(view, begin, log) => self.adopt(view, begin, &log),
            Entry::Active => self.active = true,
        }
    }

    fn vote_again(&mut self, owner: Rank, ballot: Ballot, first: u64, values: Vec<Value<V>>, votes: bool) {
        let own = owner == self.me;
        let Some(space) = self.spaces.get_mut(usize::from(owner)) else { return };
        if votes {
            space.promised = space.promised.max(ballot);
        }
        let base = space.log.base().0;
        for (index, value) in (first..).zip(values).filter(|(index, _)| *index >= base) {
            let decided = !votes;
            let known = space.log.get(Slot(index)).is_some_and(|cell| cell.decided && votes);
            if !known {
                space.log.insert(Slot(index), Cell { ballot, value, decided });
            }
        }
        if own {
            self.next = self.next.max(space.highest() + 1);
        }
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Chunk<u8>>("sdpaxos");
}
