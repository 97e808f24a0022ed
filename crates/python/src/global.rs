//! Collectors and the centre of global learning, for hosts written in Python.

use crate::data::{Rows, refused};
use crate::interrupt::interruptible;
use crate::train::{Settings, important, slice};
use isochrone_core::{Instant, Span};
use isochrone_learn::global::{
    Batch, Center, CenterError, CenterOptions, Collector, CollectorOptions, Files, Ingest, Kind, LogError,
    Next, OrderLog, Place, Record, ReplayError, serial,
};
use isochrone_learn::tasks::{Against, Class};
use isochrone_learn::{Model, Stop, with_rows};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Coefficients, one model after the other, and the intercept of each.
type Learnt<'py> = (Bound<'py, PyArray1<f64>>, Vec<f64>);

fn learnt(py: Python<'_>, models: Vec<Model>) -> Learnt<'_> {
    let intercepts = models.iter().map(|model| model.intercept).collect();
    (models.into_iter().flat_map(|model| model.parameters).collect::<Vec<_>>().into_pyarray(py), intercepts)
}

/// The label of a class, how much samples of it count, and how much all others.
type Labelled = (f64, f64, f64);

/// One task for each class that is set against the rest, or the one that takes labels as they are.
fn tasks(settings: &Settings, classes: Option<Vec<Labelled>>) -> PyResult<Vec<Against>> {
    let task = |(label, own, others)| settings.against(Some(Class { label, own, others }));
    classes
        .map_or_else(|| Ok(vec![settings.against(None)?]), |classes| classes.into_iter().map(task).collect())
}

/// A batch, and where its source goes on behind it: number of the next one, and of its first sample.
type Sent<'py> = (Bound<'py, PyBytes>, (u64, u64));

fn sent<'py>(py: Python<'py>, batch: &[u8], next: Next) -> Sent<'py> {
    (PyBytes::new(py, batch), (next.seq, next.sample))
}

/// Gathers the samples of a source into planned batches: `isochrone.learn.ray`.
#[pyclass(frozen, name = "Collector", module = "isochrone._native")]
pub(crate) struct PyCollector(Mutex<Collector<Against>>);

impl PyCollector {
    fn lock(&self) -> MutexGuard<'_, Collector<Against>> {
        // A panic leaves it between two samples.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyCollector {
    /// `batch_time` in seconds; `seq` and `sample` are where the centre says that the source goes on.
    #[new]
    fn new(
        source: u32,
        settings: Settings,
        features: u32,
        batch_size: u32,
        batch_time: f64,
        seq: u64,
        sample: u64,
    ) -> PyResult<PyCollector> {
        let batch_time = Span::from_nanos((batch_time * 1e9) as u64);
        let options = CollectorOptions { batch_size, batch_time, plan: true };
        let collector = Collector::new(source, settings.against(None)?, features, options);
        Ok(PyCollector(Mutex::new(collector.resume(Next { seq, sample }))))
    }

    /// Takes samples at this time (seconds of any clock that does not go back), each of which counts as often as its importance
    /// says, `None` for once; the batches that were completed, each with where the source goes on behind it.
    fn push<'py>(
        &self,
        py: Python<'py>,
        rows: Rows<'py>,
        labels: PyReadonlyArray1<'py, f64>,
        importances: Option<PyReadonlyArray1<'py, f64>>,
        now: f64,
    ) -> PyResult<Vec<Sent<'py>>> {
        let (parts, labels, importances) = (rows.parts()?, labels.as_slice()?, slice(&importances)?);
        let batches = py.detach(|| -> PyResult<Vec<(Vec<u8>, Next)>> {
            let data = parts.labelled(labels, NonZeroUsize::MIN, false)?;
            let data = important(&data, importances)?;
            let (mut collector, now) = (self.lock(), instant(now));
            let mut batches = Vec::new();
            with_rows!(&data, rows => for row in 0..data.len() {
                let batch = collector.push(&rows.sample(row), now).map_err(refused)?;
                batches.extend(batch.map(|batch| (batch, collector.next())));
            });
            let batch = collector.tick(now);
            batches.extend(batch.map(|batch| (batch, collector.next())));
            Ok(batches)
        })?;
        Ok(batches.iter().map(|(batch, next)| sent(py, batch, *next)).collect())
    }

    /// Closes the open batch, if there is one.
    fn flush<'py>(&self, py: Python<'py>) -> Option<Sent<'py>> {
        let (batch, next) = py.detach(|| {
            let mut collector = self.lock();
            (collector.flush(), collector.next())
        });
        batch.map(|batch| sent(py, &batch, next))
    }
}

/// Orders the batches of all sources and learns from them: `isochrone.learn.ray`.
#[pyclass(frozen, name = "Center", module = "isochrone._native")]
pub(crate) struct PyCenter(Mutex<Center<Against>>);

impl PyCenter {
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Center<Against>) -> Result<R, CenterError> + Send,
    ) -> PyResult<R> {
        py.detach(|| {
            let mut center =
                self.0.lock().map_err(|_| PyRuntimeError::new_err("the centre has failed before"))?;
            act(&mut center).map_err(failed)
        })
    }
}

#[pymethods]
impl PyCenter {
    /// Opens the centre in this folder; a new one if it is empty. Of `classes` each is set against the rest; `labels` tells in
    /// words what all of them stand for.
    #[new]
    #[pyo3(signature = (folder, settings, features, checkpoint_every, classes=None, labels=String::new()))]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        settings: Settings,
        features: u32,
        checkpoint_every: u64,
        classes: Option<Vec<Labelled>>,
        labels: String,
    ) -> PyResult<PyCenter> {
        let (tasks, run) = (tasks(&settings, classes)?, settings.options()?);
        if tasks.is_empty() {
            return Err(refused("classes is empty: give the labels that there are"));
        }
        let options = CenterOptions {
            schedule: run.schedule,
            threads: run.threads,
            checkpoint_every,
            labels,
            ..CenterOptions::new(features)
        };
        let opened = py.detach(|| Center::open_all(&folder, tasks, options));
        let center = opened.map_err(|error| failed_in(&folder, error))?;
        Ok(PyCenter(Mutex::new(center)))
    }

    /// Takes a batch: what became of it, and where its source goes on (number of the batch, and of its first sample).
    fn ingest(&self, py: Python<'_>, batch: &[u8]) -> PyResult<(&'static str, u64, u64)> {
        match self.with(py, |center| center.ingest(batch.to_vec()))? {
            Ingest::Accepted { next, .. } => Ok(("accepted", next.seq, next.sample)),
            Ingest::Held(next) => Ok(("held", next.seq, next.sample)),
            Ingest::Duplicate(next) => Ok(("duplicate", next.seq, next.sample)),
            Ingest::Elsewhere(next) => Ok(("elsewhere", next.seq, next.sample)),
            Ingest::Full(next) => Ok(("full", next.seq, next.sample)),
            Ingest::Refused(error) => Err(refused(error)),
        }
    }

    /// Learns from what waits; how many batches that were.
    fn work(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, Center::work)
    }

    /// The models after all batches taken.
    fn models<'py>(&self, py: Python<'py>) -> PyResult<Learnt<'py>> {
        Ok(learnt(py, self.with(py, Center::models)?))
    }

    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Center::checkpoint)
    }

    /// Where a source goes on.
    fn next(&self, py: Python<'_>, source: u32) -> PyResult<(u64, u64)> {
        let next = self.with(py, |center| Ok(center.next(source)))?;
        Ok((next.seq, next.sample))
    }

    /// What was done since it was opened.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (counts, samples) = self.with(py, |center| Ok((center.counts(), center.samples())))?;
        let told = PyDict::new(py);
        for (name, count) in [
            ("samples", samples),
            ("accepted", counts.accepted),
            ("duplicates", counts.duplicates),
            ("elsewhere", counts.elsewhere),
            ("full", counts.full),
            ("planned_here", counts.unplanned + counts.replanned),
            ("stitched", counts.stitched),
            ("replayed", counts.replayed),
            ("checkpoints", counts.checkpoints),
            ("log_bytes", counts.log_bytes),
        ] {
            told.set_item(name, count)?;
        }
        Ok(told)
    }
}

/// What one thread learns from the order log in this folder, in its order; a model for each of `classes`.
#[pyfunction]
#[pyo3(signature = (folder, settings, features, classes=None))]
pub(crate) fn replay<'py>(
    py: Python<'py>,
    folder: PathBuf,
    settings: Settings,
    features: u32,
    classes: Option<Vec<Labelled>>,
) -> PyResult<Learnt<'py>> {
    let (tasks, schedule) = (tasks(&settings, classes)?, settings.options()?.schedule);
    let stop = Stop::default();
    let models = interruptible(py, &stop, || {
        let files = Files::open(&folder).map_err(|error| failed_in(&folder, error.into()))?;
        let mut files = files.until(stop.clone());
        let model = |task| {
            serial(&mut files, task, features, schedule).map_err(|error| match error {
                ReplayError::Log(error) => failed_in(&folder, error.into()),
                error => PyRuntimeError::new_err(error.to_string()),
            })
        };
        tasks.iter().map(model).collect::<PyResult<Vec<Model>>>()
    })?;
    Ok(learnt(py, models))
}

/// The batches of the order log in this folder, in their order: source, number, number of the first sample, samples.
#[pyfunction]
pub(crate) fn order(
    py: Python<'_>,
    folder: PathBuf,
    settings: Settings,
    features: u32,
) -> PyResult<Vec<(u32, u64, u64, usize)>> {
    let task = settings.against(None)?;
    let stop = Stop::default();
    interruptible(py, &stop, || {
        let mut found = Vec::new();
        let files = Files::open(&folder).map_err(|error| failed_in(&folder, error.into()))?;
        let mut files = files.until(stop.clone());
        let each = |record: Record, _: Place| {
            if let Record::Batch(bytes) = record {
                let batch = Batch::decode(&bytes, &task, features)?.0;
                found.push((batch.source, batch.seq, batch.sample, batch.data.len()));
            }
            Ok::<(), CenterError>(())
        };
        let read = OrderLog::read(&mut files, &Kind::of(&task, features), each);
        read.map_err(|error| failed_in(&folder, error))?;
        Ok(found)
    })
}

fn instant(seconds: f64) -> Instant {
    Instant::from_nanos((seconds * 1e9) as u64)
}

/// The disk: an `OSError` of its kind; a folder of something else: a `ValueError`. Anything else ends the centre too, but not for a
/// reason that another disk would mend.
fn failed(error: CenterError) -> PyErr {
    told(error, |words| words)
}

/// The same, where it is about what this folder has.
fn failed_in(folder: &Path, error: CenterError) -> PyErr {
    let folder = folder.display().to_string();
    told(error, |words| if words.contains(&folder) { words } else { format!("{folder}: {words}") })
}

fn told(error: CenterError, place: impl Fn(String) -> String) -> PyErr {
    let words = place(error.to_string());
    match error {
        CenterError::Io(cause) | CenterError::Log(LogError::Io(cause)) => {
            io::Error::new(cause.kind(), words).into()
        }
        CenterError::Log(LogError::Damaged { .. } | LogError::Short { .. }) => PyOSError::new_err(words),
        CenterError::Log(_) => refused(words),
        _ => PyRuntimeError::new_err(words),
    }
}
