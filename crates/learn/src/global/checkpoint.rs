//! The model at a mark of the order log: where a centre that restarts begins.
//!
//! All numbers are little-endian: `isocheck`, format (u32), the checksum of its order log's header (u64, xxh3), the mark's
//! place (position and offset, u64 each), samples learnt from, sources, models, parameters of a model, degrees (u64
//! each); of each source its number, next batch and next sample (u64 each); of each model the intercept and the parameters
//! (f64 each); the degrees (u32 each); the checksum of all that (u64, xxh3).

use std::collections::BTreeMap;
use std::io;

use xxhash_rust::xxh3::xxh3_64;

use crate::exec::Model;
use crate::global::batch::{u32_at, u64_at};
use crate::global::collector::Next;
use crate::global::log::{Kind, Place};
use crate::global::storage::Storage;

/// Name of the checkpoint's file.
pub const CHECKPOINT: &str = "checkpoint";

const MAGIC: [u8; 8] = *b"isocheck";
const VERSION: u32 = 3;
const HEADER: usize = 8 + 4 + 8 * 8;

/// All that the centre knows at a mark. Versions are not among it: at a mark they begin again at 0.
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint {
    /// Behind the mark.
    pub place: Place,
    /// What was learnt, by each task; all have as many parameters.
    pub models: Vec<Model>,
    /// Samples learnt from.
    pub seen: u64,
    /// In how many samples each parameter was touched, if the task weighs by it; else empty.
    pub degrees: Vec<u32>,
    /// Where each source goes on.
    pub sources: BTreeMap<u32, Next>,
}

impl Checkpoint {
    /// Replaces the checkpoint, durably.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn save<S: Storage>(&self, storage: &mut S, kind: &Kind) -> io::Result<()> {
        let parameters = self.models.first().map_or(0, |model| model.parameters.len());
        let sizes = [self.sources.len(), self.models.len(), parameters, self.degrees.len()];
        let models = sizes[1] * (8 + 8 * sizes[2]);
        let mut bytes = Vec::with_capacity(HEADER + 24 * sizes[0] + models + 4 * sizes[3] + 8);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&xxh3_64(&kind.header()).to_le_bytes());
        let sizes = sizes.map(|size| size as u64);
        for number in [self.place.position, self.place.offset, self.seen].into_iter().chain(sizes) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for (&source, next) in &self.sources {
            for number in [u64::from(source), next.seq, next.sample] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        for Model { parameters, intercept } in &self.models {
            let numbers = [intercept].into_iter().chain(parameters);
            numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        }
        self.degrees.iter().for_each(|degree| bytes.extend_from_slice(&degree.to_le_bytes()));
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        storage.replace(CHECKPOINT, &bytes)
    }

    /// Reads the checkpoint; `Ok(None)` if there is none, or none that can be used: what it held is in the order log.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn load<S: Storage>(storage: &mut S, kind: &Kind) -> io::Result<Option<Checkpoint>> {
        let Some(length) = storage.len(CHECKPOINT)? else { return Ok(None) };
        let mut bytes = vec![0; length as usize];
        storage.read(CHECKPOINT, 0, &mut bytes)?;
        Ok(Checkpoint::decode(&bytes, kind))
    }

    fn decode(bytes: &[u8], kind: &Kind) -> Option<Checkpoint> {
        let end = bytes.len().checked_sub(8).filter(|&end| end >= HEADER)?;
        if bytes[..8] != MAGIC
            || u32_at(bytes, 8) != VERSION
            || u64_at(bytes, 12) != xxh3_64(&kind.header())
            || u64_at(bytes, end) != xxh3_64(&bytes[..end])
        {
            return None;
        }
        let [position, offset, seen] = [20, 28, 36].map(|at| u64_at(bytes, at));
        let [sources, models, parameters, degrees] = [44, 52, 60, 68].map(|at| u64_at(bytes, at) as usize);
        let float = |at: usize| f64::from_bits(u64_at(bytes, at));
        let (models_at, size) = (HEADER + 24 * sources, 8 + 8 * parameters);
        let degrees_at = models_at + size * models;
        assert_eq!(degrees_at + 4 * degrees, end, "a sound checkpoint has the length its header says");
        let source = |at: usize| {
            let next = Next { seq: u64_at(bytes, at + 8), sample: u64_at(bytes, at + 16) };
            (u64_at(bytes, at) as u32, next)
        };
        Some(Checkpoint {
            place: Place { position, offset },
            models: (models_at..degrees_at)
                .step_by(size)
                .map(|at| Model {
                    parameters: (0..parameters).map(|number| float(at + 8 + 8 * number)).collect(),
                    intercept: float(at),
                })
                .collect(),
            seen,
            degrees: (0..degrees).map(|number| u32_at(bytes, degrees_at + 4 * number)).collect(),
            sources: (0..sources).map(|number| source(HEADER + 24 * number)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::global::storage::Memory;

    #[test]
    fn checkpoints_come_back_as_they_were_or_not_at_all() {
        let kind = &Kind { rule: 0, features: 3, width: 1, settings: vec!["hinge loss".to_string()] };
        let checkpoint = Checkpoint {
            place: Place { position: 5, offset: 1 << 33 },
            models: vec![
                Model { parameters: vec![1.5, -0.0, f64::MIN_POSITIVE], intercept: 0.1 },
                Model { parameters: vec![2.5, 0.0, -7.0], intercept: -3.0 },
            ],
            seen: 1 << 40,
            degrees: vec![1, 2],
            sources: [(4, Next { seq: 3, sample: 99 }), (9, Next::default())].into(),
        };
        let mut storage = Memory::default();
        assert_eq!(Checkpoint::load(&mut storage, kind).unwrap(), None);
        checkpoint.save(&mut storage, kind).unwrap();
        assert_eq!(Checkpoint::load(&mut storage, kind).unwrap(), Some(checkpoint.clone()));
        assert_eq!(
            Checkpoint::load(&mut storage, &Kind { settings: Vec::new(), ..kind.clone() }).unwrap(),
            None
        );
        let length = storage.bytes(CHECKPOINT).unwrap().len();
        for at in 0..length {
            let mut damaged = storage.clone();
            damaged.bytes(CHECKPOINT).unwrap()[at] ^= 4;
            assert_eq!(Checkpoint::load(&mut damaged, kind).unwrap(), None, "byte {at}");
        }
    }
}
