//! The voters' part: taking what an owner suggests, and giving up the own slots before it.

use super::Mutation;
use super::lane::State;
use super::message::{Message, Rank, Record, Run, Turn, Value};
use super::order::Order;
use crate::order::Ordered;
use isochrone_core::{Ballot, Effects};
use std::ops::Range;
use std::sync::Arc;

impl<V: Ordered> Order<V> {
    pub(super) fn on_suggest(
        &mut self,
        owner: usize,
        turn: Turn,
        values: Arc<[Value<V>]>,
        skipped: Turn,
        decided: Range<Turn>,
        effects: &mut Effects<Self>,
    ) {
        self.on_skip(owner, skipped..turn, effects.now());
        let turns = turn..turn + values.len() as u64;
        let last = self.deal.slot(owner, turns.end.max(1) - 1);
        self.seen = self.seen.max(last.next());
        let lane = &self.lanes[owner];
        let new = |turn| turn >= lane.promised_below() && turn >= lane.base() && lane.get(turn).is_none();
        if turns.clone().all(new) {
            self.vote(owner, turn, values, effects);
        } else {
            for (turn, value) in turns.clone().zip(values.iter()) {
                self.vote_or_tell(owner, turn, value, effects);
            }
        }
        for (at, turn) in turns.enumerate() {
            let voted = matches!(self.lanes[owner].get(turn), Some(State::Voted(Ballot::ZERO, _)));
            if voted {
                self.gather_vote(owner, turn, if at == 0 { skipped } else { turn }, effects);
            }
        }
        self.confirm(owner, decided);
    }

    /// Votes for what the owner suggests from this turn on, and gives up the own turns before it.
    fn vote(&mut self, owner: usize, turn: Turn, values: Arc<[Value<V>]>, effects: &mut Effects<Self>) {
        let turns = turn..turn + values.len() as u64;
        for (turn, value) in turns.clone().zip(values.iter()) {
            self.lanes[owner].vote(turn..turn + 1, Ballot::ZERO, value);
        }
        let lane = owner as Rank;
        if self.parameters.mutated(Mutation::AcknowledgeBeforeDurable) {
            let (ballot, turns, skipped) = (Ballot::ZERO, turns.clone(), self.next..self.next);
            let vote = Message::Accepted { lane, ballot, turns, skipped };
            effects.send_ahead(self.members[owner].process, vote);
        }
        effects.record(Record::Voted { lane, turn, values });
        if turns.start < turns.end {
            self.give_up(self.deal.turn(self.me, self.deal.slot(owner, turns.end - 1)));
        }
    }

    /// Votes for one suggestion, or says what keeps this replica from it. A vote given before is given again:
    /// its record lies before this message.
    fn vote_or_tell(&mut self, owner: usize, turn: Turn, value: &Value<V>, effects: &mut Effects<Self>) {
        let lane = &self.lanes[owner];
        match lane.get(turn) {
            _ if turn < lane.base() => {}
            Some(State::Decided(known)) => {
                // Of what it lacks the votes for, the owner is told the end.
                let run = Run { lane: owner as Rank, turns: turn..turn + 1, value: known.clone() };
                let (runs, executed) = (Arc::from([run]), self.decided());
                let learned = Message::Learned { runs, executed };
                effects.repeating(|effects| effects.send(self.members[owner].process, learned));
            }
            Some(State::Voted(Ballot::ZERO, _)) => {}
            _ if lane.promise(turn) > Ballot::ZERO => self.reject(owner, owner, effects),
            _ => self.vote(owner, turn, Arc::from([value.clone()]), effects),
        }
    }

    /// Adds a vote to those that leave in `settle`. The owner's turns from `skipped` to `turn` are skipped.
    fn gather_vote(&mut self, owner: usize, turn: Turn, skipped: Turn, effects: &mut Effects<Self>) {
        match &mut self.votes[owner] {
            Some(turns) if turns.contains(&turn) => {}
            Some(turns) if (skipped..=turn).contains(&turns.end) => turns.end = turn + 1,
            _ => {
                self.send_votes(owner, effects);
                self.votes[owner] = Some(turn..turn + 1);
            }
        }
    }

    pub(super) fn send_votes(&mut self, owner: usize, effects: &mut Effects<Self>) {
        if let Some(turns) = self.votes[owner].take() {
            let skipped = self.skip_from..self.next;
            let vote = Message::Accepted { lane: owner as Rank, ballot: Ballot::ZERO, turns, skipped };
            effects.urgently(|effects| effects.send(self.members[owner].process, vote));
        }
    }
}
