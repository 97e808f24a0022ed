//! Models in files, with what predicting takes beside their numbers: the task, the classes, how features were numbered.
//!
//! All numbers are little-endian.
//!
//! | part | content |
//! |---|---|
//! | magic | `isomodel`, 8 bytes |
//! | version | u32, [`VERSION`] |
//! | task | u32: 0 linear, 1 factorisation |
//! | loss | u32: hinge, squared hinge, logistic, squared from 0 on |
//! | rank | u32: numbers of a feature; 1 for linear models |
//! | penalties | f64 each: l2, l1 |
//! | intercept | u32: 0 or 1; f64: its decay |
//! | input | u32 each: 0 svmlight or 1 Vowpal Wabbit; the first index; bits of the hash |
//! | seen | u64: samples learnt from |
//! | features | u32 |
//! | classes | u32: k; then f64 × k, ascending |
//! | models | each: f64 intercept, u64 count; then the numbers as f64 if all are there (count = features × rank), else those that are not 0 as pairs u64 place, f64 |
//! | checksum | u64, xxh3 of everything before it |
//!
//! There is one model of two classes or of a regression, and one for each of more classes.

use crate::data::Dataset;
use crate::exec::Model;
use crate::plan::TooWide;
use crate::read::{Base, Format};
use crate::tasks::{Factorisation, Linear, Loss, decisions, sigmoid};
use crate::write::Target;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// Version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"isomodel";

/// What was learnt by.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum SavedTask {
    /// A linear model.
    Linear(Linear),
    /// The factorisation of a matrix.
    Factorisation(Factorisation),
}

/// How features of a file became those of the model: a file to predict must be read alike.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbering {
    /// Form of the file.
    pub format: Format,
    /// Its first index; [`Base::Auto`] of a table, which tells nothing about that of text.
    pub base: Base,
    /// Bits of the hash of names.
    pub bits: u32,
}

/// A trained model, ready to predict.
#[derive(Clone, PartialEq, Debug)]
pub struct SavedModel {
    /// What was learnt by.
    pub task: SavedTask,
    /// Number of features.
    pub features: u32,
    /// Labels of the classes, ascending; none of a regression.
    pub classes: Vec<f64>,
    /// One, or one for each of more than two classes.
    pub models: Vec<Model>,
    /// Samples learnt from, in all epochs.
    pub seen: u64,
    /// How features were numbered.
    pub numbering: Numbering,
}

/// Why a model was not saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The file cannot be opened, read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// It is no model.
    #[error("{}: this is not a model: models begin with `isomodel`, and `isochrone learn train` writes them", path.display())]
    Magic {
        /// Which file.
        path: PathBuf,
    },
    /// It was written by another version of this program.
    #[error("{}: the model has format {found}, this program reads format {VERSION}: train it again", path.display())]
    Version {
        /// Which file.
        path: PathBuf,
        /// The format's number.
        found: u32,
    },
    /// Its bytes are not those that were written.
    #[error("{}: the model is damaged or cut off (checksum {found:016x}, written was {wanted:016x}): copy it again, or train again", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Checksum of the bytes at hand.
        found: u64,
        /// Checksum in the file.
        wanted: u64,
    },
    /// It is larger than memory.
    #[error("{}: the model cannot be held: {cause}", path.display())]
    TooWide {
        /// Which file.
        path: PathBuf,
        /// What it wants.
        cause: TooWide,
    },
    /// It contradicts itself.
    #[error("{}: the model contradicts itself: {what}; train again", path.display())]
    Inconsistent {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

impl SavedModel {
    /// For each model, the decision (or the predicted number) for each sample.
    pub fn decisions(&self, data: &Dataset<'_>) -> Vec<Vec<f64>> {
        let of = |model: &Model| match &self.task {
            SavedTask::Linear(_) => decisions(data, &model.parameters, model.intercept),
            SavedTask::Factorisation(task) => task.predictions(data, &model.parameters, model.intercept),
        };
        self.models.iter().map(of).collect()
    }

    /// The label of the class decided for, of decisions as [`SavedModel::decisions`] has them; of a regression the number
    /// itself. Between two classes 0 is for the lower one; among more, of equals the first wins.
    pub fn labels(&self, decisions: &[Vec<f64>]) -> Vec<f64> {
        let Some(first) = decisions.first() else { return Vec::new() };
        match (&self.classes[..], decisions) {
            ([], _) => first.clone(),
            (&[low, high], [one]) => one.iter().map(|&d| if d > 0.0 { high } else { low }).collect(),
            (classes, planes) => (0..first.len())
                .map(|row| {
                    let best = (1..planes.len()).fold(0, |best, plane| {
                        if planes[plane][row] > planes[best][row] { plane } else { best }
                    });
                    classes[best]
                })
                .collect(),
        }
    }

    /// The probability of each class for each sample: `[sample][class]`, in the order of the classes. Of more than two, each
    /// model's probability over the sum of all. Nothing unless the loss is logistic.
    pub fn probabilities(&self, decisions: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
        let SavedTask::Linear(Linear { loss: Loss::Logistic, .. }) = self.task else { return None };
        let samples = decisions.first()?.len();
        Some(
            (0..samples)
                .map(|row| match decisions {
                    [one] => {
                        let high = sigmoid(one[row]);
                        vec![1.0 - high, high]
                    }
                    planes => {
                        let alone: Vec<f64> = planes.iter().map(|plane| sigmoid(plane[row])).collect();
                        let sum: f64 = alone.iter().sum();
                        let even = 1.0 / alone.len() as f64;
                        alone.into_iter().map(|p| if sum > 0.0 { p / sum } else { even }).collect()
                    }
                })
                .collect(),
        )
    }

    /// Writes it, as [`Target`] does: it is there whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), SavedError> {
        let written = (|| {
            let mut target = BufWriter::new(Target::create(path)?);
            let bytes = self.bytes();
            target.write_all(&bytes)?;
            target.write_all(&xxh3_64(&bytes).to_le_bytes())?;
            target.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
        })();
        written.map_err(|cause| SavedError::Io { path: path.to_owned(), cause })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut to = MAGIC.to_vec();
        let u32 = |to: &mut Vec<u8>, number: u32| to.extend(number.to_le_bytes());
        let f64 = |to: &mut Vec<u8>, number: f64| to.extend(number.to_le_bytes());
        u32(&mut to, VERSION);
        let (task, loss, rank, l2, l1, intercept, decay) = match self.task {
            SavedTask::Linear(Linear { loss, l2, l1, intercept, intercept_decay }) => {
                (0, loss, 1, l2, l1, intercept, intercept_decay)
            }
            SavedTask::Factorisation(Factorisation { rank, l2, l1, intercept }) => {
                (1, Loss::Squared, rank as u32, l2, l1, intercept, 0.0)
            }
        };
        let loss = Loss::ALL.iter().position(|one| *one == loss).unwrap_or_default() as u32;
        [task, loss, rank].into_iter().for_each(|number| u32(&mut to, number));
        [l2, l1].into_iter().for_each(|number| f64(&mut to, number));
        u32(&mut to, u32::from(intercept));
        f64(&mut to, decay);
        let format = u32::from(self.numbering.format == Format::Vw);
        let base = match self.numbering.base {
            Base::Zero => 0,
            Base::One => 1,
            Base::Auto => 2u32,
        };
        [format, base, self.numbering.bits].into_iter().for_each(|number| u32(&mut to, number));
        to.extend(self.seen.to_le_bytes());
        u32(&mut to, self.features);
        u32(&mut to, self.classes.len() as u32);
        self.classes.iter().for_each(|&class| f64(&mut to, class));
        for model in &self.models {
            f64(&mut to, model.intercept);
            // Zeros of either sign: a -0 predicts what a 0 does.
            let kept = model.parameters.iter().filter(|number| **number != 0.0).count();
            if 2 * kept >= model.parameters.len() {
                to.extend((model.parameters.len() as u64).to_le_bytes());
                model.parameters.iter().for_each(|&number| f64(&mut to, number));
            } else {
                to.extend((kept as u64).to_le_bytes());
                for (place, &number) in
                    model.parameters.iter().enumerate().filter(|(_, number)| **number != 0.0)
                {
                    to.extend((place as u64).to_le_bytes());
                    f64(&mut to, number);
                }
            }
        }
        to
    }

    /// Reads it.
    pub fn load(path: &Path) -> Result<SavedModel, SavedError> {
        let bytes = fs::read(path).map_err(|cause| SavedError::Io { path: path.to_owned(), cause })?;
        if !bytes.starts_with(&MAGIC) {
            return Err(SavedError::Magic { path: path.to_owned() });
        }
        let damaged = |found, wanted| SavedError::Damaged { path: path.to_owned(), found, wanted };
        let Some((content, checksum)) = bytes.split_last_chunk::<8>() else { return Err(damaged(0, 0)) };
        // The version comes first: another one may have its checksum elsewhere.
        let mut from = Bytes(&content[MAGIC.len().min(content.len())..]);
        match from.u32() {
            Some(VERSION) => {}
            Some(found) => return Err(SavedError::Version { path: path.to_owned(), found }),
            None => return Err(damaged(0, 0)),
        }
        let (found, wanted) = (xxh3_64(content), u64::from_le_bytes(*checksum));
        if found != wanted {
            return Err(damaged(found, wanted));
        }
        SavedModel::parse(from).map_err(|fault| match fault {
            Fault::Inconsistent(what) => SavedError::Inconsistent { path: path.to_owned(), what },
            Fault::TooWide(cause) => SavedError::TooWide { path: path.to_owned(), cause },
        })
    }

    fn parse(mut from: Bytes<'_>) -> Result<SavedModel, Fault> {
        const SHORT: &str = "it ends before all of it was said";
        let (task, loss, rank) =
            (from.u32().ok_or(SHORT)?, from.u32().ok_or(SHORT)?, from.u32().ok_or(SHORT)?);
        let (l2, l1) = (from.f64().ok_or(SHORT)?, from.f64().ok_or(SHORT)?);
        let intercept = from.u32().ok_or(SHORT)? == 1;
        let intercept_decay = from.f64().ok_or(SHORT)?;
        let loss = *Loss::ALL.get(loss as usize).ok_or("its loss is none")?;
        let rank = rank as usize;
        let task = match task {
            0 if rank == 1 => SavedTask::Linear(Linear { loss, l2, l1, intercept, intercept_decay }),
            1 if rank > 0 => SavedTask::Factorisation(Factorisation { rank, l2, l1, intercept }),
            _ => return Err("its task is none".into()),
        };
        let format = if from.u32().ok_or(SHORT)? == 1 { Format::Vw } else { Format::Svmlight };
        let base = match from.u32().ok_or(SHORT)? {
            0 => Base::Zero,
            1 => Base::One,
            2 => Base::Auto,
            _ => return Err("its first index is none".into()),
        };
        let numbering = Numbering { format, base, bits: from.u32().ok_or(SHORT)? };
        let seen = from.u64().ok_or(SHORT)?;
        let features = from.u32().ok_or(SHORT)?;
        let count = from.u32().ok_or(SHORT)? as usize;
        let mut classes = Vec::new();
        for _ in 0..count {
            classes.push(from.f64().ok_or(SHORT)?);
        }
        let count = if classes.len() > 2 { classes.len() } else { 1 };
        // Zeros are not in the file: it may say of more numbers than there is memory for.
        let numbers = u64::from(features).saturating_mul(rank as u64);
        TooWide::check(features, numbers.saturating_mul(8 * count as u64))?;
        let numbers = numbers as usize;
        let mut models = Vec::new();
        for _ in 0..count {
            models.push(Model {
                intercept: from.f64().ok_or(SHORT)?,
                parameters: from.numbers(numbers).ok_or(SHORT)?,
            });
        }
        if !from.0.is_empty() {
            return Err("it goes on after all of it was said".into());
        }
        Ok(SavedModel { task, features, classes, models, seen, numbering })
    }
}

/// Why what was read is no model.
enum Fault {
    Inconsistent(&'static str),
    TooWide(TooWide),
}

impl From<&'static str> for Fault {
    fn from(what: &'static str) -> Fault {
        Fault::Inconsistent(what)
    }
}

impl From<TooWide> for Fault {
    fn from(cause: TooWide) -> Fault {
        Fault::TooWide(cause)
    }
}

/// What is left to be read.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn f64(&mut self) -> Option<f64> {
        self.take().map(f64::from_le_bytes)
    }

    /// A model's, of which there are `all`.
    fn numbers(&mut self, all: usize) -> Option<Vec<f64>> {
        let count = usize::try_from(self.u64()?).ok()?;
        let (each, whole) = if count == all { (8, true) } else { (16, false) };
        // Before anything is set aside for them, they must be there.
        let (mut bytes, rest) =
            self.0.split_at_checked(count.checked_mul(each)?).map(|(a, b)| (Bytes(a), b))?;
        self.0 = rest;
        let mut numbers = vec![0.0; all];
        if whole {
            numbers.iter_mut().try_for_each(|number| bytes.f64().map(|read| *number = read))?;
        } else {
            for _ in 0..count {
                let place = usize::try_from(bytes.u64()?).ok()?;
                *numbers.get_mut(place)? = bytes.f64()?;
            }
        }
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Values;

    fn linear(classes: &[f64], parameters: Vec<Vec<f64>>) -> SavedModel {
        SavedModel {
            task: SavedTask::Linear(Linear { l2: 0.5, intercept: true, ..Linear::new(Loss::Logistic) }),
            features: parameters[0].len() as u32,
            classes: classes.to_vec(),
            models: parameters.into_iter().map(|parameters| Model { parameters, intercept: -0.25 }).collect(),
            seen: 7,
            numbering: Numbering { format: Format::Svmlight, base: Base::One, bits: 18 },
        }
    }

    fn one_sample(features: &[u32]) -> Dataset<'static> {
        let values = Values::F64(vec![1.0; features.len()].into());
        let offsets = vec![0, features.len() as u64];
        Dataset::new(offsets, features.to_vec(), values, vec![0.0], 10).unwrap()
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.model");
        let factors = Factorisation { l1: 0.1, ..Factorisation::new(2) };
        let sparse = [0.0, 0.0, 0.0, 1.5, 0.0].to_vec();
        for model in [
            linear(&[-1.0, 1.0], vec![vec![0.5, -1.0, 2.0]]),
            linear(&[0.0, 1.0, 5.0], vec![sparse.clone(), vec![1.0; 5], vec![0.0; 5]]),
            SavedModel {
                task: SavedTask::Factorisation(factors),
                features: 3,
                ..linear(&[], vec![vec![0.5; 6]])
            },
        ] {
            model.save(&path).unwrap();
            assert_eq!(SavedModel::load(&path).unwrap(), model);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn every_damage_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.model");
        linear(&[-1.0, 1.0], vec![vec![0.5, -1.0, 2.0]]).save(&path).unwrap();
        let good = fs::read(&path).unwrap();
        let told = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            SavedModel::load(&path)
                .unwrap_err()
                .to_string()
                .replace(folder.path().to_str().unwrap(), "FOLDER")
        };
        assert_eq!(
            told(b"1 3:0.5\n"),
            "FOLDER/a.model: this is not a model: models begin with `isomodel`, and `isochrone learn train` writes them"
        );
        let mut later = good.clone();
        later[8] = 2;
        assert_eq!(
            told(&later),
            "FOLDER/a.model: the model has format 2, this program reads format 1: train it again"
        );
        for length in 8..good.len() {
            assert!(told(&good[..length]).contains("damaged or cut off"), "{length}");
        }
        for at in 12..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(told(&bad).contains("damaged or cut off"), "{at}");
        }
        // A sound checksum over nonsense.
        let nonsense = |at: usize, byte| {
            let mut bad = good[..good.len() - 8].to_vec();
            bad[at] = byte;
            let checksum = xxh3_64(&bad).to_le_bytes();
            bad.extend(checksum);
            bad
        };
        assert!(
            told(&nonsense(12, 9)).ends_with("the model contradicts itself: its task is none; train again")
        );
        assert!(told(&nonsense(16, 9)).ends_with("its loss is none; train again"));
        assert!(
            told(&nonsense(73, 9)).ends_with("it ends before all of it was said; train again"),
            "features"
        );
    }

    /// A few bytes say of more numbers than any memory holds, or any number counts.
    #[test]
    fn a_model_larger_than_memory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.model");
        for rank in [1 << 30, u32::MAX] {
            let task = SavedTask::Factorisation(Factorisation::new(rank as usize));
            let model = SavedModel { task, ..linear(&[], vec![vec![0.0; 4]]) };
            let mut bytes = model.bytes();
            let features = bytes.len() - 4 - 4 - 8 - 8;
            assert_eq!(bytes[features..features + 4], 4_u32.to_le_bytes());
            bytes[features..features + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            let checksum = xxh3_64(&bytes).to_le_bytes();
            bytes.extend(checksum);
            fs::write(&path, &bytes).unwrap();
            let told = SavedModel::load(&path).unwrap_err().to_string();
            assert!(told.contains("the model cannot be held: 4294967295 features want "), "{told}");
        }
    }

    #[test]
    fn the_class_decided_for() {
        let two = linear(&[3.0, 4.0], vec![vec![1.0, -1.0]]);
        let decided =
            |model: &SavedModel, feature| model.labels(&model.decisions(&one_sample(&[feature])))[0];
        assert_eq!((decided(&two, 0), decided(&two, 1)), (4.0, 3.0));
        let three = linear(&[0.0, 1.0, 5.0], vec![vec![0.1, 0.0], vec![0.0, 0.2], vec![0.3, 0.2]]);
        assert_eq!((decided(&three, 0), decided(&three, 1)), (5.0, 1.0));
        let told = three.probabilities(&three.decisions(&one_sample(&[0, 1]))).unwrap();
        assert!((told[0].iter().sum::<f64>() - 1.0).abs() < 1e-12 && told[0][2] > told[0][1]);
        let pair = two.probabilities(&two.decisions(&one_sample(&[0]))).unwrap();
        assert_eq!(pair[0], [1.0 - sigmoid(0.75), sigmoid(0.75)]);
        let number = linear(&[], vec![vec![1.5]]);
        assert_eq!(decided(&number, 0), 1.25);
    }
}
