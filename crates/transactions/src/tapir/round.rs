//! One consensus operation Prepare at one partition, as its client counts it (`specs/carousel.md` 6.1).

use super::message::{Part, Vote};
use isochrone_core::{ProcessId, Quorums};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What replicas say about one try of a transaction at one partition.
#[derive(Clone, Hash, Debug)]
pub struct Round {
    /// What the transaction does there.
    pub part: Arc<Part>,
    /// How many replicas the partition has.
    replicas: usize,
    /// How many of them are silent.
    away: usize,
    /// How many equal votes decide at once.
    fast: usize,
    /// The view that what follows is of.
    view: u64,
    votes: BTreeMap<ProcessId, (Vote, bool)>,
    /// Whether a majority is enough by now.
    late: bool,
    stage: Stage,
}

/// How far it has come.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub enum Stage {
    /// Votes come in.
    Voting,
    /// The client has decided what their votes come to, and a majority has to confirm that.
    Slow {
        /// The result.
        vote: Vote,
        /// Who has confirmed it.
        confirmed: BTreeSet<ProcessId>,
    },
    /// It has a result.
    Done {
        /// The result.
        vote: Vote,
        /// Whether by a fast quorum of equal votes.
        fast: bool,
    },
}

/// What the client is to do next.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Next {
    /// Wait.
    Nothing,
    /// Ask all again: there is a new view.
    Ask,
    /// Send FINALIZE with this result and wait for a majority.
    Finalize(Vote),
    /// It has this result; if it came by equal votes, tell all.
    Done(Vote, bool),
}

impl Round {
    /// Nothing was heard yet, and so many replicas are `away`: nobody waits for their votes.
    /// `fewer` votes than a fast quorum, which is all replicas, decide: 0, or a planted bug.
    pub fn new(part: Arc<Part>, replicas: usize, view: u64, away: usize, fewer: usize) -> Round {
        let fast = replicas - fewer;
        Round { part, replicas, away, fast, view, votes: BTreeMap::new(), late: false, stage: Stage::Voting }
    }

    /// How far it has come.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// The view of the partition.
    pub fn view(&self) -> u64 {
        self.view
    }

    /// The result, if it has one.
    pub fn result(&self) -> Option<Vote> {
        match self.stage {
            Stage::Done { vote, .. } => Some(vote),
            _ => None,
        }
    }

    /// What this replica has voted.
    pub fn vote(&self, replica: ProcessId) -> Option<Vote> {
        self.votes.get(&replica).map(|(vote, _)| *vote)
    }

    /// Whether this replica is still to answer what was asked last.
    pub fn lacks(&self, replica: ProcessId) -> bool {
        match &self.stage {
            Stage::Voting => !self.votes.contains_key(&replica),
            Stage::Slow { confirmed, .. } => !confirmed.contains(&replica),
            Stage::Done { .. } => false,
        }
    }

    /// What was heard of an earlier view counts no more. Whether this is a later one.
    fn enter(&mut self, view: u64) -> bool {
        if view <= self.view || matches!(self.stage, Stage::Done { .. }) {
            return false;
        }
        self.view = view;
        self.votes.clear();
        self.stage = Stage::Voting;
        true
    }

    /// A replica has voted.
    pub fn voted(&mut self, from: ProcessId, view: u64, vote: Vote, finalized: bool) -> Next {
        let entered = self.enter(view);
        if view < self.view || self.stage != Stage::Voting {
            return Next::Nothing;
        }
        self.votes.insert(from, (vote, finalized));
        match self.count() {
            Next::Nothing if entered => Next::Ask,
            next => next,
        }
    }

    /// The timer of the fast path has run out.
    pub fn late(&mut self) -> Next {
        self.late = true;
        if self.stage == Stage::Voting { self.count() } else { Next::Nothing }
    }

    fn count(&mut self) -> Next {
        if let Some((vote, _)) = self.votes.values().find(|(_, finalized)| *finalized) {
            return self.settle(*vote);
        }
        for (vote, _) in self.votes.values() {
            if self.votes.values().filter(|(other, _)| other == vote).count() >= self.fast {
                let vote = *vote;
                self.stage = Stage::Done { vote, fast: true };
                return Next::Done(vote, true);
            }
        }
        let mut votes = self.votes.values().map(|(vote, _)| *vote);
        let first = votes.next();
        let differ = votes.any(|vote| Some(vote) != first);
        // As soon as two differ there is no fast quorum to wait for.
        let majority = Quorums::majority(self.replicas);
        let enough = match (self.late, differ) {
            (true, _) => majority,
            (false, true) => {
                Quorums::supermajority(self.replicas).min(self.replicas - self.away).max(majority)
            }
            (false, false) if self.away > 0 => majority,
            (false, false) => self.replicas,
        };
        if self.votes.len() < enough {
            return Next::Nothing;
        }
        let vote = decide(self.votes.values().map(|(vote, _)| *vote), majority);
        self.settle(vote)
    }

    fn settle(&mut self, vote: Vote) -> Next {
        self.stage = Stage::Slow { vote, confirmed: BTreeSet::new() };
        Next::Finalize(vote)
    }

    /// A replica has accepted the result.
    pub fn confirmed(&mut self, from: ProcessId, view: u64) -> Next {
        let Stage::Slow { vote, confirmed } = &mut self.stage else { return Next::Nothing };
        if view != self.view {
            return Next::Nothing;
        }
        confirmed.insert(from);
        let vote = *vote;
        if confirmed.len() < Quorums::majority(self.replicas) {
            return Next::Nothing;
        }
        self.stage = Stage::Done { vote, fast: false };
        Next::Done(vote, false)
    }
}

/// What votes that differ come to. Whether a transaction was refused for what it had read or for others that are
/// prepared is kept apart, as the client is told; both end it.
pub fn decide(votes: impl Iterator<Item = Vote> + Clone, majority: usize) -> Vote {
    let count = |wanted: Vote| votes.clone().filter(|vote| *vote == wanted).count();
    let retry = votes.clone().filter_map(|vote| match vote {
        Vote::Retry(at) => Some(at),
        _ => None,
    });
    if count(Vote::Abort) > 0 {
        Vote::Abort
    } else if count(Vote::Ok) >= majority {
        Vote::Ok
    } else if count(Vote::Abstain) >= majority {
        Vote::Abstain
    } else if let Some(at) = retry.max() {
        Vote::Retry(at)
    } else {
        Vote::Abstain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_store::versions::Version;

    const RETRY: fn(u64) -> Vote = |at| Vote::Retry(Version(at));

    fn replica(seat: u64) -> ProcessId {
        ProcessId::from_u64(seat << 48)
    }

    fn round(replicas: usize) -> Round {
        Round::new(Arc::default(), replicas, 0, 0, 0)
    }

    #[test]
    fn votes_come_to_what_was_published() {
        let cases = [
            (vec![Vote::Ok, Vote::Ok, Vote::Abort], Vote::Abort),
            (vec![Vote::Ok, Vote::Ok, RETRY(9)], Vote::Ok),
            (vec![Vote::Ok, Vote::Abstain, Vote::Abstain], Vote::Abstain),
            (vec![Vote::Ok, Vote::Abstain, RETRY(9)], RETRY(9)),
            (vec![RETRY(7), RETRY(9), Vote::Ok], RETRY(9)),
            (vec![Vote::Ok, Vote::Abstain], Vote::Abstain),
        ];
        for (votes, result) in cases {
            assert_eq!(decide(votes.iter().copied(), 2), result, "{votes:?}");
        }
    }

    #[test]
    fn a_fast_quorum_of_equal_votes_is_a_result() {
        for (replicas, fast) in [(1, 1), (3, 3), (5, 5), (7, 7)] {
            let mut round = round(replicas);
            for seat in 1..fast {
                assert_eq!(round.voted(replica(seat), 0, Vote::Ok, false), Next::Nothing);
                assert_eq!(
                    round.voted(replica(seat), 0, Vote::Ok, false),
                    Next::Nothing,
                    "a voter counts once"
                );
            }
            assert_eq!(round.voted(replica(fast), 0, Vote::Ok, false), Next::Done(Vote::Ok, true));
        }
    }

    #[test]
    fn without_one_a_majority_confirms_what_the_votes_come_to() {
        let mut round = round(3);
        round.voted(replica(0), 0, Vote::Ok, false);
        round.voted(replica(1), 0, Vote::Ok, false);
        assert_eq!(round.voted(replica(2), 0, Vote::Abstain, false), Next::Finalize(Vote::Ok));
        assert_eq!(round.confirmed(replica(2), 0), Next::Nothing);
        assert_eq!(round.confirmed(replica(2), 0), Next::Nothing);
        assert_eq!(round.confirmed(replica(0), 0), Next::Done(Vote::Ok, false));
        let mut round = self::round(5);
        for seat in 0..3 {
            assert_eq!(round.voted(replica(seat), 0, Vote::Ok, false), Next::Nothing);
        }
        let fourth = round.voted(replica(3), 0, Vote::Abstain, false);
        assert_eq!(fourth, Next::Finalize(Vote::Ok), "the fifth makes no fast quorum");
    }

    #[test]
    fn late_a_majority_of_votes_is_enough() {
        let mut round = round(3);
        round.voted(replica(0), 0, Vote::Ok, false);
        assert_eq!(round.late(), Next::Nothing);
        assert_eq!(round.voted(replica(1), 0, Vote::Ok, false), Next::Finalize(Vote::Ok));
    }

    #[test]
    fn nobody_waits_for_who_is_away_and_where_votes_differ_for_all_others() {
        let away = || Round::new(Arc::default(), 5, 0, 1, 0);
        let mut round = away();
        for seat in 0..2 {
            assert_eq!(round.voted(replica(seat), 0, Vote::Ok, false), Next::Nothing);
        }
        assert_eq!(round.voted(replica(2), 0, Vote::Ok, false), Next::Finalize(Vote::Ok));
        let mut round = away();
        for (seat, vote) in [(0, Vote::Ok), (1, Vote::Abstain), (2, Vote::Ok)] {
            assert_eq!(round.voted(replica(seat), 0, vote, false), Next::Nothing);
        }
        assert_eq!(round.voted(replica(3), 0, Vote::Ok, false), Next::Finalize(Vote::Ok));
    }

    #[test]
    fn what_was_agreed_on_is_taken_over() {
        let mut round = round(3);
        round.voted(replica(0), 0, Vote::Ok, false);
        assert_eq!(round.voted(replica(1), 0, Vote::Abort, true), Next::Finalize(Vote::Abort));
    }

    #[test]
    fn votes_of_different_views_do_not_add_up() {
        let mut round = round(3);
        round.voted(replica(0), 0, Vote::Ok, false);
        round.voted(replica(1), 0, Vote::Ok, false);
        assert_eq!(round.voted(replica(2), 1, Vote::Ok, false), Next::Ask);
        assert_eq!(round.voted(replica(0), 0, Vote::Ok, false), Next::Nothing, "of the old view");
        round.voted(replica(0), 1, Vote::Ok, false);
        assert_eq!(round.voted(replica(1), 1, Vote::Ok, false), Next::Done(Vote::Ok, true));
    }
}
