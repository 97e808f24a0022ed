//! The replicated state of a group: what the entries of its log make of it, as participant and as coordinator.

use super::message::Ending;
use crate::request::{Reason, TxnId, Update};
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{Blob, Export, Malformed, PartitionId, ProcessId, Span, Stamp, wire};
use isochrone_store::versions::{self, Version, Versions};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The replicated state. See the module.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct State {
    pub versions: Versions,
    /// No version that was ever given here is above it.
    pub clock: u64,
    /// Prepared here and not ended.
    pub prepared: BTreeMap<TxnId, Prepared>,
    /// Ended here, kept until their clients have heard of it: so that a late request prepares none again.
    done: BTreeSet<TxnId>,
    /// Coordinated here and ended, and not all participants have acknowledged it.
    pub decided: BTreeMap<TxnId, Decided>,
    /// All have: kept until its client has heard of it.
    acknowledged: BTreeMap<TxnId, Ending>,
    /// For each client process, its latest life and the first of its transactions whose outcome it lacks.
    floors: BTreeMap<ProcessId, (u32, u64)>,
}

/// A transaction that is prepared: it reads what it read until it ends, and nobody else writes it.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub(super) struct Prepared {
    pub start: Stamp,
    pub coordinator: PartitionId,
    pub at: Version,
    pub reads: Arc<[Blob]>,
    pub writes: Arc<[Update]>,
}

/// A transaction that has ended, at its coordinator.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub(super) struct Decided {
    pub ending: Ending,
    pub participants: Vec<PartitionId>,
}

/// A piece of the state beside the versions, as it is exported.
#[derive(Clone, Serialize, Deserialize)]
enum Piece {
    Clock(u64),
    Prepared(TxnId, Prepared),
    Done(TxnId),
    /// Whether all participants have acknowledged it comes last.
    Decided(TxnId, Ending, Vec<PartitionId>, bool),
    Floor(ProcessId, (u32, u64)),
}

const FORMAT_PIECES: u8 = 1;
const FORMAT_VERSIONS: u8 = 2;

impl State {
    /// Of a store in which nothing is written yet.
    pub fn new(versions: Versions) -> State {
        State { versions, ..State::default() }
    }

    /// Whether its client has the outcome of a transaction, or is gone.
    pub fn is_past(&self, txn: TxnId) -> bool {
        let floor = self.floors.get(&txn.client.process);
        floor.is_some_and(|floor| (txn.client.incarnation, txn.sequence) < *floor)
    }

    /// Whether a transaction has ended here.
    pub fn is_done(&self, txn: TxnId) -> bool {
        self.done.contains(&txn)
    }

    /// A transaction is prepared; false where it was before, has ended, or has nobody who waits for it.
    pub fn prepare(&mut self, txn: TxnId, below: u64, prepared: Prepared) -> bool {
        let new = !self.prepared.contains_key(&txn) && !self.done.contains(&txn) && !self.is_past(txn);
        if new {
            self.clock = self.clock.max(prepared.at.0);
            self.prepared.insert(txn, prepared);
        }
        self.raise(txn, below);
        new
    }

    /// A transaction has ended: its writes take effect. What it was, where it was prepared. `keep` is how long
    /// superseded versions stay.
    pub fn finish(&mut self, txn: TxnId, ending: Ending, keep: Span) -> Option<Prepared> {
        let prepared = self.prepared.remove(&txn)?;
        if let Ok(version) = ending {
            self.clock = self.clock.max(version.0);
            for update in prepared.writes.iter() {
                self.versions.put(&update.key, version, update.value.clone());
            }
            self.versions.trim(Version(self.clock.saturating_sub(keep.as_nanos())));
        }
        if !self.is_past(txn) {
            self.done.insert(txn);
        }
        Some(prepared)
    }

    /// A transaction that is coordinated here has ended; the first decision holds.
    pub fn decide(&mut self, txn: TxnId, below: u64, ending: Ending, participants: &[PartitionId]) {
        self.raise(txn, below);
        if !self.acknowledged.contains_key(&txn) {
            let participants = participants.to_vec();
            self.decided.entry(txn).or_insert(Decided { ending, participants });
        }
    }

    /// All participants have acknowledged.
    pub fn forget(&mut self, txn: TxnId) {
        if let Some(decided) = self.decided.remove(&txn)
            && !self.is_past(txn)
        {
            self.acknowledged.insert(txn, decided.ending);
        }
    }

    /// The client has the outcomes of all its transactions below this number, and of all its former lives.
    fn raise(&mut self, txn: TxnId, below: u64) {
        let floor = (txn.client.incarnation, below);
        let held = self.floors.entry(txn.client.process).or_default();
        if *held >= floor {
            return;
        }
        *held = floor;
        let bound = |incarnation, sequence| {
            let client = isochrone_core::ClientId { process: txn.client.process, incarnation };
            TxnId { client, sequence }
        };
        let past = bound(0, 0)..bound(floor.0, floor.1);
        self.done.extract_if(past.clone(), |_| true).for_each(drop);
        self.acknowledged.extract_if(past, |_, _| true).for_each(drop);
    }

    /// How a transaction ended that is coordinated here, as far as that is kept.
    pub fn known(&self, txn: TxnId) -> Option<Ending> {
        let decided = self.decided.get(&txn).map(|decided| decided.ending);
        decided.or_else(|| self.acknowledged.get(&txn).copied())
    }

    /// How a transaction ended that is coordinated here and not being driven; `None` where it was never begun. One that
    /// is past and unknown never will be, and has not committed as far as anybody who asks is concerned: had it, it
    /// would be kept until all participants had acknowledged.
    pub fn ending(&self, txn: TxnId) -> Option<Ending> {
        self.known(txn).or_else(|| self.is_past(txn).then_some(Err(Reason::Presumed)))
    }

    pub fn export(&self) -> View {
        let mut pieces = vec![Piece::Clock(self.clock)];
        pieces.extend(self.floors.iter().map(|(process, floor)| Piece::Floor(*process, *floor)));
        pieces.extend(self.done.iter().map(|txn| Piece::Done(*txn)));
        pieces.extend(
            self.decided.iter().map(|(txn, decided)| {
                Piece::Decided(*txn, decided.ending, decided.participants.clone(), false)
            }),
        );
        let acknowledged = self.acknowledged.iter();
        pieces.extend(acknowledged.map(|(txn, ending)| Piece::Decided(*txn, *ending, Vec::new(), true)));
        pieces.extend(self.prepared.iter().map(|(txn, prepared)| Piece::Prepared(*txn, prepared.clone())));
        let (mut ends, mut size) = (Vec::new(), 0);
        for (at, piece) in pieces.iter().enumerate() {
            let piece = wire::encoded_size(piece);
            if size > 0 && size + piece > CHUNK_MAX - 16 {
                ends.push(at);
                size = 0;
            }
            size += piece;
        }
        ends.push(pieces.len());
        View { pieces: pieces.into(), ends: ends.into(), versions: self.versions.export() }
    }

    /// Takes in one chunk of a view.
    pub fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let malformed = |cause: String| Malformed { what: "chunk of a partition", cause };
        let pieces: Vec<Piece> = match chunk {
            [FORMAT_VERSIONS, chunk @ ..] => return self.versions.absorb(chunk),
            [FORMAT_PIECES, chunk @ ..] => {
                wire::decode(chunk).map_err(|error| malformed(error.to_string()))?
            }
            [format, ..] => return Err(malformed(format!("format {format}"))),
            [] => return Err(malformed("it is empty".to_owned())),
        };
        for piece in pieces {
            match piece {
                Piece::Clock(clock) => self.clock = clock,
                Piece::Prepared(txn, prepared) => drop(self.prepared.insert(txn, prepared)),
                Piece::Done(txn) => {
                    self.done.insert(txn);
                }
                Piece::Decided(txn, ending, _, true) => drop(self.acknowledged.insert(txn, ending)),
                Piece::Decided(txn, ending, participants, false) => {
                    self.decided.insert(txn, Decided { ending, participants });
                }
                Piece::Floor(process, floor) => drop(self.floors.insert(process, floor)),
            }
        }
        Ok(())
    }

    /// Asserts that a prepared transaction has no conflict with another.
    pub fn check(&self, txn: TxnId) {
        let Some(one) = self.prepared.get(&txn) else { return };
        let writes = |prepared: &Prepared| -> BTreeSet<Blob> {
            prepared.writes.iter().map(|update| update.key.clone()).collect()
        };
        let written = writes(one);
        let touched: BTreeSet<Blob> = one.reads.iter().cloned().chain(written.iter().cloned()).collect();
        assert!(!self.done.contains(&txn), "{txn:?} has ended and is prepared");
        assert!(one.at.0 <= self.clock, "{txn:?} is prepared ahead of the clock");
        for (name, other) in self.prepared.iter().filter(|(name, _)| **name != txn) {
            let meets =
                other.writes.iter().find(|update| touched.contains(&update.key)).map(|update| &update.key);
            let meets = meets.or_else(|| other.reads.iter().find(|key| written.contains(*key)));
            assert!(meets.is_none(), "{txn:?} and {name:?} are prepared, and {meets:?} is in the way");
        }
    }
}

/// The replicated state at one moment.
#[derive(Clone)]
pub struct View {
    pieces: Arc<[Piece]>,
    /// Where the chunk behind each begins.
    ends: Arc<[usize]>,
    versions: versions::View,
}

impl Export for View {
    fn chunk(&self, index: u64) -> Option<Blob> {
        let at = usize::try_from(index).ok()?;
        let mut chunk;
        match self.ends.get(at) {
            Some(end) => {
                let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
                chunk = vec![FORMAT_PIECES];
                wire::encode_into(&self.pieces[start..*end].to_vec(), &mut chunk);
            }
            None => {
                chunk = vec![FORMAT_VERSIONS];
                chunk.extend_from_slice(&self.versions.chunk(index - self.ends.len() as u64)?);
            }
        }
        Some(Blob::from(chunk))
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Vec<Piece>>("2pc");
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::{ClientId, KeyspaceId, NodeId, Random};
    use std::hash::{BuildHasher, BuildHasherDefault};

    fn name(client: u16, incarnation: u32, sequence: u64) -> TxnId {
        let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
        let process =
            ProcessId { node: NodeId(client), keyspace, partition, role: crate::CLIENT, instance: 0 };
        TxnId { client: ClientId { process, incarnation }, sequence }
    }

    fn prepared(at: u64, key: &str, size: usize) -> Prepared {
        let update = Update { key: Blob::from(key), value: Some(Blob::from(vec![7; size])) };
        let (start, coordinator) = (Stamp::from_nanos(at), PartitionId(1));
        let reads = [Blob::from("r")].into();
        Prepared { start, coordinator, at: Version(at), reads, writes: [update].into() }
    }

    fn fingerprint(state: &State) -> u64 {
        BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(state)
    }

    #[test]
    fn a_copy_made_of_chunks_goes_on_alike() {
        for seed in 0..50 {
            let mut random = Random::seeded(seed);
            let mut state = State::default();
            let size = [10, CHUNK_MAX / 3][random.below(2) as usize];
            let step = |state: &mut State, random: &mut Random, number: u64| {
                let txn = name(random.below(3) as u16, 1, random.below(number / 2 + 2));
                let below = number / 3;
                match random.below(4) {
                    0 => drop(state.prepare(
                        txn,
                        below,
                        prepared(state.clock + 1, &format!("k{number}"), size),
                    )),
                    1 => drop(state.finish(txn, Ok(Version(state.clock + 1)), Span::from_nanos(20))),
                    2 => state.decide(txn, below, Err(Reason::Conflict), &[PartitionId(2)]),
                    _ => state.forget(txn),
                }
            };
            (0..60).for_each(|number| step(&mut state, &mut random, number));
            let view = state.export();
            let chunks: Vec<Blob> = (0..).map_while(|index| view.chunk(index)).collect();
            assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK_MAX), "seed {seed}");
            let mut copy = State::default();
            chunks.iter().for_each(|chunk| copy.absorb(chunk).unwrap());
            assert_eq!(fingerprint(&copy), fingerprint(&state), "seed {seed}");
            let mut again = random.clone();
            (60..120).for_each(|number| step(&mut state, &mut random, number));
            (60..120).for_each(|number| step(&mut copy, &mut again, number));
            assert_eq!(fingerprint(&copy), fingerprint(&state), "seed {seed}");
            copy.prepared.keys().for_each(|txn| assert!(copy.prepared[txn].at.0 <= copy.clock));
            assert!(State::default().absorb(&chunks[0][..chunks[0].len() - 1]).is_err(), "seed {seed}");
        }
    }

    #[test]
    fn the_first_decision_holds_and_goes_once_acknowledged_and_known() {
        let (mut state, txn) = (State::default(), name(0, 1, 5));
        assert_eq!(state.ending(txn), None);
        state.decide(txn, 3, Err(Reason::Presumed), &[PartitionId(0)]);
        state.decide(txn, 3, Ok(Version(9)), &[PartitionId(0)]);
        assert_eq!(state.ending(txn), Some(Err(Reason::Presumed)));
        let later = name(0, 1, 6);
        state.decide(later, 6, Ok(Version(9)), &[PartitionId(0)]);
        assert!(state.is_past(txn) && state.decided.contains_key(&txn), "not all have acknowledged");
        state.forget(txn);
        assert_eq!(state.known(txn), None);
        state.forget(later);
        state.decide(later, 6, Err(Reason::Presumed), &[PartitionId(0)]);
        assert_eq!(state.ending(later), Some(Ok(Version(9))), "its client may ask again");
        assert!(state.decided.is_empty(), "nobody is to be told");
        // Its client has died and come back: it asks no more.
        state.decide(name(0, 2, 1), 1, Ok(Version(10)), &[]);
        assert!(state.is_past(later) && state.known(later).is_none());
    }

    #[test]
    fn what_has_ended_is_not_prepared_again() {
        let (mut state, txn) = (State::default(), name(0, 1, 5));
        assert!(state.prepare(txn, 5, prepared(3, "k", 1)) && !state.prepare(txn, 5, prepared(4, "k", 1)));
        assert!(state.finish(txn, Ok(Version(7)), Span::ZERO).is_some());
        assert_eq!((state.clock, state.versions.latest(b"k").0), (7, Version(7)));
        assert!(state.finish(txn, Ok(Version(7)), Span::ZERO).is_none());
        assert!(state.is_done(txn) && !state.prepare(txn, 5, prepared(8, "k", 1)));
        assert!(state.prepare(name(0, 1, 6), 6, prepared(8, "k", 1)));
        assert!(!state.is_done(txn) && state.is_past(txn) && !state.prepare(txn, 5, prepared(9, "l", 1)));
    }
}
