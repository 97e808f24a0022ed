//! What a restart begins with: records and the order's own snapshot.

use super::super::Mutation;
use super::super::message::{Place, Record, Turn};
use super::Order;
use super::acceptor::Vote;
use crate::order::Ordered;
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{Ballot, Blob, IntervalMap, Malformed, wire};
use serde::{Deserialize, Serialize};

/// A piece of an order's own snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "V: isochrone_core::Wire")]
enum Piece<V> {
    Head(Box<Head>),
    Votes(Vec<(u64, Turn, Option<V>, Option<V>)>),
    Lane(u8, Vec<(u64, Ballot, Option<V>)>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Head {
    reserve: u64,
    epoch: u32,
    open: bool,
    from: u64,
    noops: IntervalMap<u64, Turn>,
    lanes: Vec<(Ballot, u64, IntervalMap<u64, Ballot>)>,
    done: Place,
    serial: u64,
}

impl<V: Ordered> Order<V> {
    pub(super) fn image(&self) -> Vec<Blob> {
        let acceptor = &self.acceptor;
        let lanes = self.lanes.iter().map(|lane| (lane.ballot, lane.sealed, lane.noops.clone()));
        let head = Head {
            reserve: self.clock.reserved(),
            epoch: acceptor.epoch,
            open: acceptor.open,
            from: acceptor.from,
            noops: acceptor.noops.clone(),
            lanes: lanes.collect(),
            done: self.done,
            serial: self.serial,
        };
        let mut pieces = vec![Piece::Head(Box::new(head))];
        let votes = acceptor.votes.iter();
        let votes = votes.map(|(at, vote)| (*at, vote.turn, vote.value.clone(), vote.fast.clone()));
        pieces.extend(bounded(votes.collect()).into_iter().map(Piece::Votes));
        for (seat, lane) in self.lanes.iter().enumerate() {
            let votes = lane.votes.iter().map(|(at, (ballot, value))| (*at, *ballot, value.clone()));
            // Seats are below 128.
            pieces.extend(bounded(votes.collect()).into_iter().map(|votes| Piece::Lane(seat as u8, votes)));
        }
        pieces.iter().map(|piece: &Piece<V>| Blob::from(wire::encode(piece))).collect()
    }

    pub(super) fn restore_piece(&mut self, chunk: &Blob) -> Result<(), Malformed> {
        let malformed = |cause: String| Malformed { what: "snapshot chunk of Domino", cause };
        let piece: Piece<V> = wire::decode(chunk).map_err(|error| malformed(error.to_string()))?;
        match piece {
            Piece::Head(head) => {
                if head.lanes.len() != self.lanes.len() {
                    return Err(malformed(format!("{} lanes, not {}", head.lanes.len(), self.lanes.len())));
                }
                self.recover_reserve(head.reserve);
                let acceptor = &mut self.acceptor;
                (acceptor.epoch, acceptor.open, acceptor.from) = (head.epoch, head.open, head.from);
                acceptor.noops = head.noops;
                for (lane, (ballot, sealed, noops)) in self.lanes.iter_mut().zip(head.lanes) {
                    (lane.ballot, lane.sealed, lane.noops) = (ballot, sealed, noops);
                }
                self.jump(head.done);
                self.serial = self.serial.max(head.serial + 1);
            }
            Piece::Votes(votes) => {
                for (at, turn, value, fast) in votes {
                    self.acceptor.votes.insert(at, Vote { turn, value, fast });
                }
            }
            Piece::Lane(seat, votes) => {
                let lane = self.lanes.get_mut(usize::from(seat));
                let lane = lane.ok_or_else(|| malformed(format!("no lane {seat}")))?;
                lane.votes.extend(votes.into_iter().map(|(at, ballot, value)| (at, (ballot, value))));
            }
        }
        Ok(())
    }

    pub(super) fn replay_record(&mut self, record: Record<V>) {
        match record {
            Record::Reserve { until } => self.recover_reserve(until),
            Record::Voted { values } => {
                for (at, value) in values {
                    self.acceptor.vote(at, value);
                }
            }
            Record::Accepted { lane, values } => {
                if let Some(lane) = self.lanes.get_mut(usize::from(lane)) {
                    let vote = |(at, value)| (at, (Ballot::ZERO, Some(value)));
                    lane.votes.extend(values.into_iter().map(vote));
                }
            }
            Record::Promised { epoch, clock } => self.acceptor.promise(epoch, clock),
            Record::Opened(opening) => self.acceptor.open(&opening),
            Record::Recovered(round) => self.acceptor.vote_round(&round),
            Record::Revoked { lane, ballot, sealed } => {
                if let Some(lane) = self.lanes.get_mut(usize::from(lane)) {
                    lane.promise(ballot, sealed);
                }
            }
            Record::Sealed(seal) => {
                if let Some(lane) = self.lanes.get_mut(usize::from(seal.lane)) {
                    lane.seal(seal.ballot, seal.from, seal.until, &seal.values);
                }
            }
            Record::Executed { values, until } => self.replay_executed(values, until),
        }
    }

    fn replay_executed(&mut self, values: Vec<(Place, Option<V>)>, until: Place) {
        if until <= self.done {
            return;
        }
        for (place, value) in values {
            let Some(value) = value.or_else(|| self.vote_at(place).cloned()) else {
                // A value left out was this replica's vote, and that lies before in the journal.
                unreachable!("{place:?} was executed, and its value is not in the journal");
            };
            self.execute(place, value, false, None);
        }
        self.done = until;
        for (lane, track) in self.tracks.iter_mut().enumerate() {
            track.jump(until.at + u64::from(lane < usize::from(until.lane)));
        }
        self.trim();
    }

    /// Everything that an earlier life announced lies below this. With the bug planted that is forgotten.
    fn recover_reserve(&mut self, until: u64) {
        if !self.parameters().mutated(Mutation::ReserveNotJournalled) {
            self.clock.recovered(until);
        }
    }
}

/// Votes in runs of about the size of a chunk.
fn bounded<T: Serialize>(votes: Vec<T>) -> Vec<Vec<T>> {
    let (mut runs, mut size) = (Vec::new(), 0);
    for vote in votes {
        let bytes = wire::encoded_size(&vote);
        if runs.is_empty() || size + bytes > CHUNK_MAX {
            runs.push(Vec::new());
            size = 0;
        }
        size += bytes;
        if let Some(run) = runs.last_mut() {
            run.push(vote);
        }
    }
    runs
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Piece<u8>>("domino");
}
