//! Read-only transactions: one round to the participants' leaders, at a moment of this client's clock (3.6).

use super::super::message::{Part, Word};
use super::super::partition::version;
use super::{Client, Stage};
use crate::group;
use crate::request::{Outcome, Read, TxnId};
use isochrone_core::{Effects, Fact, PartitionId, Path, Phase, Span};
use isochrone_store::versions::Version;
use std::collections::BTreeMap;

/// How far a read-only transaction has come.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Reading {
    /// The moment asked for; none yet before the first.
    at: Version,
    values: BTreeMap<PartitionId, Vec<Read>>,
    tries: u32,
}

impl Reading {
    /// The partitions that have not answered.
    pub(super) fn silent(&self, parts: &[Part]) -> Vec<PartitionId> {
        let partitions = parts.iter().map(|part| part.partition);
        partitions.filter(|partition| !self.values.contains_key(partition)).collect()
    }
}

impl Client {
    /// Asks the leaders, at a new moment or again at the same.
    pub(super) fn read_moment(&mut self, sequence: u64, first: bool, effects: &mut Effects<Self>) {
        let (id, below) = (self.id(sequence), self.below());
        let now = version(effects.stamp()).max(Version(self.latest.0 + 1));
        let Some(txn) = self.open.get_mut(&sequence) else { return };
        let Stage::Moment(reading) = &mut txn.stage else { return };
        if first {
            reading.at = now;
            reading.values.clear();
        }
        let (at, silent) = (reading.at, reading.silent(&txn.parts));
        let parts = txn.parts.clone();
        for part in parts.iter().filter(|part| silent.contains(&part.partition)) {
            let word = Word::ReadAt { txn: id, below, at, keys: part.reads.clone() };
            Self::send(self.leader(part.partition), word, effects);
        }
    }

    pub(super) fn on_read_is(
        &mut self,
        id: TxnId,
        partition: PartitionId,
        at: Version,
        reads: Option<Vec<Read>>,
        effects: &mut Effects<Self>,
    ) {
        if id.client != self.me {
            return;
        }
        let snapshots = self.knobs.snapshots;
        let Some(txn) = self.open.get_mut(&id.sequence) else { return };
        let Stage::Moment(reading) = &mut txn.stage else { return };
        if reading.at != at {
            return;
        }
        let Some(reads) = reads else {
            reading.tries += 1;
            if reading.tries > snapshots {
                // As the others do, with nothing to write (8.14).
                txn.stage = Stage::Reading { snapshot: true };
            }
            return self.advance(id.sequence, true, effects);
        };
        reading.values.insert(partition, reads);
        if reading.values.len() < txn.parts.len() {
            return;
        }
        let values = std::mem::take(&mut reading.values);
        let Some(mut txn) = self.open.remove(&id.sequence) else { return };
        txn.values = values;
        let total = effects.now().since(txn.begun);
        let mut phases = [Span::ZERO; Phase::ALL.len()];
        phases[0] = total;
        effects.mark(group::Note::Fact(Fact::Committed { id, path: Path::Leader, total, phases }));
        if let Some(ticket) = txn.ticket {
            effects.complete_ahead(ticket, Outcome::Snapshot { reads: txn.in_order(), at });
        }
    }
}
