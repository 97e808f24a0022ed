//! The slots of one owner, as one replica holds them: votes, what is decided, what was promised.

use super::message::{Held, Rank, Run, Turn, Value};
use isochrone_core::{Ballot, IntervalMap, Slot, Wire};
use std::ops::Range;

/// How the slots are dealt out among `members` owners.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub(super) struct Deal {
    pub(super) members: u64,
}

impl Deal {
    /// The slot of a turn.
    pub(super) fn slot(self, lane: usize, turn: Turn) -> Slot {
        Slot(turn * self.members + lane as u64)
    }

    /// The first turn of an owner whose slot is at or behind `at`: how many of its slots lie before.
    pub(super) fn turn(self, lane: usize, at: Slot) -> Turn {
        (at.0 + self.members - 1).saturating_sub(lane as u64) / self.members
    }

    /// Whose slot this is.
    pub(super) fn owner(self, slot: Slot) -> usize {
        (slot.0 % self.members) as usize
    }
}

/// What is held in a turn.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub(super) enum State<V: Wire> {
    /// Accepted in this ballot.
    Voted(Ballot, Value<V>),
    /// Decided.
    Decided(Value<V>),
}

/// The slots of one owner.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub(super) struct Lane<V: Wire> {
    /// From the first turn that is not trimmed on; everything before it is decided and taken out.
    held: IntervalMap<Turn, State<V>>,
    base: Turn,
    /// The first turn that is not known to be decided.
    frontier: Turn,
    /// No ballot below this one is taken part in, in turns before `barred`.
    pub(super) promised: Ballot,
    pub(super) barred: Turn,
    /// The highest ballot heard of.
    pub(super) heard: Ballot,
}

impl<V: Wire> Default for Lane<V> {
    fn default() -> Lane<V> {
        let ballot = Ballot::ZERO;
        Lane {
            held: IntervalMap::default(),
            base: 0,
            frontier: 0,
            promised: ballot,
            barred: 0,
            heard: ballot,
        }
    }
}

impl<V: Wire> Lane<V> {
    /// The first turn that is not trimmed.
    pub(super) fn base(&self) -> Turn {
        self.base
    }

    /// The first turn that is not known to be decided.
    pub(super) fn frontier(&self) -> Turn {
        self.frontier
    }

    /// How many runs are held.
    pub(super) fn runs(&self) -> usize {
        self.held.len()
    }

    /// Behind the last turn that anything is held in.
    pub(super) fn end(&self) -> Turn {
        self.held.end().unwrap_or(self.base).max(self.base)
    }

    /// What is held in a turn; nothing where it is trimmed.
    pub(super) fn get(&self, turn: Turn) -> Option<&State<V>> {
        self.held.get(turn)
    }

    /// What is held in these turns, in order.
    pub(super) fn range(&self, turns: Range<Turn>) -> impl Iterator<Item = (Range<Turn>, &State<V>)> {
        self.held.runs(turns.start.max(self.base)..turns.end)
    }

    /// The first of these turns in which nothing is held.
    pub(super) fn gap(&self, turns: Range<Turn>) -> Option<Turn> {
        self.held.gaps(turns.start.max(self.frontier)..turns.end).next().map(|gap| gap.start)
    }

    /// The ballot promised in a turn.
    pub(super) fn promise(&self, turn: Turn) -> Ballot {
        if turn < self.barred { self.promised } else { Ballot::ZERO }
    }

    /// Below this turn suggestions may be refused.
    pub(super) fn promised_below(&self) -> Turn {
        if self.promised > Ballot::ZERO { self.barred } else { 0 }
    }

    /// Raises the promise; turns already under it come under the higher one too. Whether it rose.
    pub(super) fn admit(&mut self, ballot: Ballot, barred: Turn) -> bool {
        self.heard = self.heard.max(ballot);
        let rises = ballot > self.promised || (ballot == self.promised && barred > self.barred);
        if rises {
            self.promised = ballot;
            self.barred = self.barred.max(barred);
        }
        rises
    }

    /// Accepts a value wherever nothing is decided.
    pub(super) fn vote(&mut self, turns: Range<Turn>, ballot: Ballot, value: &Value<V>) {
        let open = self.open(turns);
        for part in open {
            self.held.set(part, State::Voted(ballot, value.clone()));
        }
    }

    /// Takes a value for decided wherever nothing was; whether anything was new.
    pub(super) fn decide(&mut self, turns: Range<Turn>, value: &Value<V>) -> bool {
        let open = self.open(turns);
        let new = !open.is_empty();
        for part in open {
            self.held.set(part, State::Decided(value.clone()));
        }
        self.advance();
        new
    }

    /// The parts of these turns that are not decided.
    pub(super) fn open(&self, turns: Range<Turn>) -> Vec<Range<Turn>> {
        let (mut at, end) = (turns.start.max(self.frontier), turns.end);
        let mut open = Vec::new();
        if at >= end {
            return open;
        }
        for (run, state) in self.held.runs(at..end) {
            if matches!(state, State::Decided(_)) {
                if at < run.start {
                    open.push(at..run.start);
                }
                at = run.end;
            }
        }
        if at < end {
            open.push(at..end);
        }
        open
    }

    /// The owner's word that these turns are decided as it suggested them: so are those whose suggestion is
    /// held.
    pub(super) fn confirm(&mut self, turns: Range<Turn>) {
        let turns = turns.start.max(self.frontier)..turns.end;
        if turns.start >= turns.end {
            return;
        }
        let suggested = |state: &State<V>| match state {
            State::Voted(ballot, value) if *ballot == Ballot::ZERO => Some(value.clone()),
            State::Voted(..) | State::Decided(_) => None,
        };
        let held = self.held.runs(turns);
        let known: Vec<_> = held.filter_map(|(run, state)| Some((run, suggested(state)?))).collect();
        for (run, value) in known {
            self.held.set(run, State::Decided(value));
        }
        self.advance();
    }

    /// Everything before this turn is decided: what is voted for is, and where nothing is held it is a no-op.
    pub(super) fn close(&mut self, end: Turn) {
        let start = self.frontier;
        if start >= end {
            return;
        }
        let voted = |state: &State<V>| match state {
            State::Voted(_, value) => Some(value.clone()),
            State::Decided(_) => None,
        };
        let known: Vec<_> =
            self.held.runs(start..end).filter_map(|(run, state)| Some((run, voted(state)?))).collect();
        for (run, value) in known {
            self.held.set(run, State::Decided(value));
        }
        let gaps: Vec<_> = self.held.gaps(start..end).collect();
        for gap in gaps {
            self.held.set(gap, State::Decided(Value::NoOp));
        }
        self.advance();
    }

    fn advance(&mut self) {
        while let Some((run, State::Decided(_))) = self.held.run(self.frontier) {
            self.frontier = run.end;
        }
    }

    /// The first turn from `from` on, below the frontier, that has a batch.
    pub(super) fn next_batch(&self, from: Turn) -> Option<(Turn, &Value<V>)> {
        self.held.runs(from..self.frontier).find_map(|(run, state)| match state {
            State::Decided(value @ Value::Batch(_)) => Some((run.start, value)),
            _ => None,
        })
    }

    /// Everything that is held in these turns, for a revoker.
    pub(super) fn report(&self, turns: Range<Turn>) -> Vec<Held<V>> {
        let held = |(turns, state): (Range<Turn>, &State<V>)| match state {
            State::Voted(ballot, value) => Held { turns, ballot: Some(*ballot), value: value.clone() },
            State::Decided(value) => Held { turns, ballot: None, value: value.clone() },
        };
        self.range(turns).map(held).collect()
    }

    /// What is decided in these turns.
    pub(super) fn decided(&self, lane: usize, turns: Range<Turn>) -> impl Iterator<Item = Run<V>> {
        self.range(turns).filter_map(move |(turns, state)| match state {
            State::Decided(value) => Some(Run { lane: lane as Rank, turns, value: value.clone() }),
            State::Voted(..) => None,
        })
    }

    /// Forgets the turns before this one: they are decided and taken out.
    pub(super) fn trim(&mut self, upto: Turn) {
        if upto > self.base {
            self.held.trim(upto);
            self.base = upto;
            self.frontier = self.frontier.max(upto);
            self.advance();
        }
    }
}
