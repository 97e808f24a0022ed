//! What a collector sends: samples, where they belong in its stream, and their plan.
//!
//! All numbers are little-endian. Samples and plan have checksums of their own: damaged samples must be sent again, while a
//! damaged plan is only work to be done again.
//!
//! | part | content |
//! |---|---|
//! | magic | `isobatch`, 8 bytes |
//! | version, source | u32 each; 2 where samples have importances, else 1 |
//! | seq, sample | u64 each |
//! | n, d | u32 each |
//! | entries, plan | u64 each: entries of the samples, bytes of the plan (0: none) |
//! | samples | sizes of rows u32 × n, features u32 × entries, values f64 × entries, labels f64 × n, in version 2 importances f64 × n |
//! | checksum | u64, xxh3 of everything before it |
//! | plan | as in [`crate::plan::file`], with its seams |

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use xxhash_rust::xxh3::xxh3_64;

use crate::data::{DataError, Dataset, Values};
use crate::plan::file::PlanFileError;
use crate::plan::{BatchPlanner, PlanError, PlannedBatch};
use crate::task::Task;

const MAGIC: [u8; 8] = *b"isobatch";
/// Each sample counts once.
const PLAIN: u32 = 1;
/// With importances.
const WEIGHED: u32 = 2;
const HEADER: usize = 8 + 4 + 4 + 8 + 8 + 4 + 4 + 8 + 8;

/// Samples of one source that are learnt from together, in its order.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// Which collector sent it.
    pub source: u32,
    /// How many batches that collector sent before.
    pub seq: u64,
    /// How many samples there are in its earlier batches: what keeps every sample from being learnt twice, or not at
    /// all, when a collector that restarted cuts its batches elsewhere.
    pub sample: u64,
    /// The samples.
    pub data: Dataset<'static>,
    /// Their plan, unless none was sent or what was sent cannot be used ([`Batch::decode`]).
    pub plan: Option<PlannedBatch>,
}

/// Why a batch cannot be taken: its collector must send it again, or be mended.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// It is not a batch at all.
    #[error("these {bytes} bytes are not a batch of format {PLAIN} or {WEIGHED}")]
    Unknown {
        /// How many bytes there are.
        bytes: usize,
    },
    /// Fewer or more bytes than its header says.
    #[error("the batch has {found} bytes, its header says {wanted}: send it again")]
    Length {
        /// Bytes at hand.
        found: u64,
        /// Bytes there must be.
        wanted: u64,
    },
    /// Its samples are not those that were sent.
    #[error("the batch's samples are damaged (checksum {found:016x}, sent was {wanted:016x}): send it again")]
    Damaged {
        /// Checksum of the bytes at hand.
        found: u64,
        /// Checksum that was sent.
        wanted: u64,
    },
    /// The samples cannot be learnt from.
    #[error(transparent)]
    Data(#[from] DataError),
    /// It is of another model.
    #[error("the batch has {found} features, the model {wanted}: give its collector the model's number")]
    Features {
        /// Of the batch.
        found: u32,
        /// Of the model.
        wanted: u32,
    },
    /// It cannot be planned: it is too long, or the task tells sets that none may have. Rows are numbered in it.
    #[error(transparent)]
    Planning(#[from] PlanError),
}

/// What became of the plan that a batch was sent with.
#[derive(Debug)]
pub enum PlanFate {
    /// It can be used.
    Used,
    /// None was sent.
    None,
    /// What was sent cannot be used.
    Refused(PlanFileError),
}

impl Batch {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let data = &self.data;
        let mut plan = Vec::new();
        if let Some(planned) = &self.plan {
            planned.encode(&mut plan);
        }
        let importances = data.importances();
        let version = if importances.is_empty() { PLAIN } else { WEIGHED };
        let samples = 12 * (data.entries() + data.len()) + 8 * importances.len();
        let mut bytes = Vec::with_capacity(HEADER + samples + 8 + plan.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&self.source.to_le_bytes());
        bytes.extend_from_slice(&self.seq.to_le_bytes());
        bytes.extend_from_slice(&self.sample.to_le_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&data.width().to_le_bytes());
        bytes.extend_from_slice(&(data.entries() as u64).to_le_bytes());
        bytes.extend_from_slice(&(plan.len() as u64).to_le_bytes());
        for pair in data.offsets().windows(2) {
            bytes.extend_from_slice(&((pair[1] - pair[0]) as u32).to_le_bytes());
        }
        put(&mut bytes, data.features(), |feature| feature.to_le_bytes());
        match data.values() {
            Values::F64(values) => put(&mut bytes, values, |value| value.to_le_bytes()),
            Values::F32(values) => {
                values.iter().for_each(|&value| bytes.extend_from_slice(&f64::from(value).to_le_bytes()));
            }
        }
        put(&mut bytes, data.labels(), |label| label.to_le_bytes());
        put(&mut bytes, importances, |importance| importance.to_le_bytes());
        let checksum = xxh3_64(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(&plan);
        bytes
    }

    /// Reads a batch for a model of this many features. Whatever is wrong with its plan alone only leaves it without one.
    ///
    /// # Errors
    /// If its samples cannot be used.
    pub fn decode<T: Task>(bytes: &[u8], task: &T, features: u32) -> Result<(Batch, PlanFate), BatchError> {
        if bytes.len() < HEADER + 8 || bytes[..8] != MAGIC || ![PLAIN, WEIGHED].contains(&u32_at(bytes, 8)) {
            return Err(BatchError::Unknown { bytes: bytes.len() });
        }
        let weighed = u32_at(bytes, 8) == WEIGHED;
        let (rows, width) = (u32_at(bytes, 32), u32_at(bytes, 36));
        let (entries, planned) = (u64_at(bytes, 40), u64_at(bytes, 48));
        let found = bytes.len() as u64;
        let samples = u128::from(rows) * if weighed { 20 } else { 12 } + u128::from(entries) * 12;
        let wanted = HEADER as u128 + samples + 8 + u128::from(planned);
        if u128::from(found) != wanted {
            return Err(BatchError::Length { found, wanted: u64::try_from(wanted).unwrap_or(u64::MAX) });
        }
        let end = HEADER + samples as usize;
        let (found, wanted) = (xxh3_64(&bytes[..end]), u64_at(bytes, end));
        if found != wanted {
            return Err(BatchError::Damaged { found, wanted });
        }
        if width != features {
            return Err(BatchError::Features { found: width, wanted: features });
        }
        let mut rest = &bytes[HEADER..end];
        let mut take = |bytes: usize| {
            let (part, others) = rest.split_at(bytes);
            rest = others;
            part
        };
        let (rows, entries) = (rows as usize, entries as usize);
        let mut offset = 0_u64;
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        for size in numbers::<u32>(take(4 * rows)) {
            offset += u64::from(u32::from_le(size));
            offsets.push(offset);
        }
        let mut named = numbers::<u32>(take(4 * entries));
        let mut values = numbers::<f64>(take(8 * entries));
        let mut labels = numbers::<f64>(take(8 * rows));
        let mut importances = numbers::<f64>(take(if weighed { 8 * rows } else { 0 }));
        if cfg!(target_endian = "big") {
            named.iter_mut().for_each(|feature| *feature = u32::from_le(*feature));
            for number in values.iter_mut().chain(&mut labels).chain(&mut importances) {
                *number = f64::from_bits(u64::from_le(number.to_bits()));
            }
        }
        let mut data = Dataset::new(offsets, named, Values::F64(values.into()), labels, width)?;
        if weighed {
            data.check_importances(&importances)?;
            data = data.weighed(importances);
        }
        let (plan, fate) = match &bytes[end + 8..] {
            [] => (None, PlanFate::None),
            plan => match PlannedBatch::decode(plan, task, &data) {
                Ok(plan) => (Some(plan), PlanFate::Used),
                Err(error) => (None, PlanFate::Refused(error)),
            },
        };
        let (source, seq, sample) = (u32_at(bytes, 12), u64_at(bytes, 16), u64_at(bytes, 24));
        Ok((Batch { source, seq, sample, data, plan }, fate))
    }

    /// Its plan, made now where it came without one. Plans are functions of the samples, so it is the same plan.
    ///
    /// # Errors
    /// If it cannot be planned ([`BatchPlanner::plan`]).
    pub fn planned<T: Task>(
        self,
        planner: &mut BatchPlanner,
        task: &T,
    ) -> Result<(Dataset<'static>, PlannedBatch), PlanError> {
        let plan = match self.plan {
            Some(plan) => plan,
            None => planner.plan(task, &self.data)?,
        };
        Ok((self.data, plan))
    }
}

fn put<N: Pod, const B: usize>(bytes: &mut Vec<u8>, numbers: &[N], le: impl Fn(&N) -> [u8; B]) {
    if cfg!(target_endian = "little") {
        bytes.extend_from_slice(cast_slice(numbers));
    } else {
        numbers.iter().for_each(|number| bytes.extend_from_slice(&le(number)));
    }
}

/// As they lie in memory: still little-endian.
fn numbers<N: Pod>(bytes: &[u8]) -> Vec<N> {
    let mut numbers = vec![N::zeroed(); bytes.len() / size_of::<N>()];
    cast_slice_mut(&mut numbers).copy_from_slice(bytes);
    numbers
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::mixed::{self, Mixed};
    use crate::task::Rule;
    use proptest::prelude::*;

    /// Without importances, or with those that the rows' numbers make.
    fn batch(rows: &[Vec<(u32, f64)>], rule: Rule, weighed: bool) -> Batch {
        let importances =
            if weighed { (0..rows.len()).map(|row| row as f64 / 4.0).collect() } else { Vec::new() };
        let data = mixed::data(rows).weighed(importances);
        let plan = Some(BatchPlanner::new().plan(&Mixed(rule), &data).unwrap());
        Batch { source: 3, seq: 17, sample: 1 << 40, data, plan }
    }

    proptest! {
        #[test]
        fn batches_arrive_as_they_were_sent(rows in mixed::rows(), own in any::<bool>(), weighed in any::<bool>()) {
            let rule = if own { Rule::Own(7) } else { Rule::Features };
            let sent = batch(&rows, rule, weighed);
            let (arrived, fate) = Batch::decode(&sent.encode(), &Mixed(rule), mixed::WIDTH).unwrap();
            prop_assert!(matches!(fate, PlanFate::Used));
            prop_assert_eq!(arrived, sent);
        }

        /// A damaged batch is refused; one whose plan is damaged is whole without it.
        #[test]
        fn damage_is_found(at in any::<prop::sample::Index>(), bit in 0..8_u32, weighed in any::<bool>()) {
            let rows: Vec<_> = (0..9).map(|row| vec![(row % 4, mixed::BOTH), (5, mixed::READ)]).collect();
            let sent = batch(&rows, Rule::Own(7), weighed);
            let mut bytes = sent.encode();
            let at = at.index(bytes.len());
            prop_assert!(Batch::decode(&bytes[..at], &Mixed(Rule::Own(7)), mixed::WIDTH).is_err());
            bytes[at] ^= 1 << bit;
            if let Ok((arrived, fate)) = Batch::decode(&bytes, &Mixed(Rule::Own(7)), mixed::WIDTH) {
                prop_assert!(matches!(fate, PlanFate::Refused(_)));
                prop_assert_eq!(&arrived.data, &sent.data);
                let (_, planned) = arrived.planned(&mut BatchPlanner::new(), &Mixed(Rule::Own(7))).unwrap();
                prop_assert_eq!(Some(planned), sent.plan);
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let bytes = batch(&[vec![(1, 1.0)]], Rule::Features, false).encode();
        let told = |bytes: &[u8], features| {
            Batch::decode(bytes, &Mixed(Rule::Features), features).unwrap_err().to_string()
        };
        assert_eq!(told(b"hello", 8), "these 5 bytes are not a batch of format 1 or 2");
        assert_eq!(
            told(&bytes, 9),
            "the batch has 8 features, the model 9: give its collector the model's number"
        );
        let cut = told(&bytes[..bytes.len() - 1], 8);
        assert!(cut.contains("its header says") && cut.ends_with("send it again"), "{cut}");
        let mut wrong = batch(&[vec![(1, 1.0)]], Rule::Features, false);
        wrong.data = wrong.data.weighed(vec![f64::NAN]);
        let wrong = told(&wrong.encode(), 8);
        assert_eq!(wrong, "row 0: the importance is NaN, where a number from 0 on is wanted");
    }
}
