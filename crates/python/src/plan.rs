//! Plans, as Python holds them.

use crate::data::{Rows, of_system, refused, room, unplanned};
use crate::interrupt::{abandonable, interruptible};
use isochrone_learn::plan::{Annotations, PlanFileError, Statistics};
use isochrone_learn::tasks::{Linear, Loss};
use isochrone_learn::{Dataset, Plan, Stop};
use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A plan of linear models: what `isochrone.learn.Plan` wraps.
#[pyclass(frozen, name = "Plan", module = "isochrone._native")]
pub(crate) struct PyPlan {
    plan: Plan,
    /// Whether it can be executed over its samples: one that was made here can, one that came from elsewhere is looked at with
    /// the first samples that it is to be of.
    sound: OnceLock<()>,
}

impl PyPlan {
    pub(crate) fn made(plan: Plan) -> PyPlan {
        PyPlan { plan, sound: OnceLock::from(()) }
    }

    fn foreign(plan: Plan) -> PyPlan {
        PyPlan { plan, sound: OnceLock::new() }
    }

    /// The plan, if it is one of these samples for linear models.
    pub(crate) fn of_samples(&self, data: &Dataset<'_>) -> PyResult<&Plan> {
        let task = Linear::new(Loss::Hinge);
        self.plan.check(&task, data).map_err(refused)?;
        if self.sound.get().is_none() {
            self.plan.validate(data).map_err(raised)?;
            self.plan.check_sets(&task, data).map_err(refused)?;
            self.sound.get_or_init(|| ());
        }
        Ok(&self.plan)
    }
}

#[pymethods]
impl PyPlan {
    /// Plans samples in their order, with so many threads.
    #[staticmethod]
    fn of(py: Python<'_>, rows: Rows<'_>, threads: usize) -> PyResult<PyPlan> {
        let parts = rows.parts()?;
        let stop = Stop::default();
        let plan = interruptible(py, &stop, || {
            let threads = at_least_one(threads);
            let data = parts.unlabelled(threads, true)?;
            // Whatever the loss: they all touch the features of a sample.
            Plan::in_blocks_until(&Linear::new(Loss::Hinge), &data, threads, &stop).map_err(unplanned)
        })?;
        Ok(PyPlan::made(plan))
    }

    /// Raises if it is of other samples.
    fn check(&self, py: Python<'_>, rows: Rows<'_>) -> PyResult<()> {
        let parts = rows.parts()?;
        py.detach(move || {
            let data = parts.unlabelled(NonZeroUsize::MIN, true)?;
            self.of_samples(&data).map(|_| ())
        })
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(move || self.plan.save(&path).map_err(raised))
    }

    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<PyPlan> {
        // From a pipe it may never come.
        abandonable(py, move || {
            Plan::load(&path).map(PyPlan::foreign).map_err(|error| match error {
                error @ PlanFileError::Io { .. } => raised(error),
                error => refused(format!("{}: {error}", path.display())),
            })
        })?
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        // It doubles as it grows, and is copied.
        room(4 * self.plan.bytes() as usize)?;
        let bytes = py.detach(|| {
            let mut bytes = Vec::new();
            self.plan.encode(&mut bytes);
            bytes
        });
        Ok(PyBytes::new(py, &bytes))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<PyPlan> {
        py.detach(|| Plan::decode(data)).map(PyPlan::foreign).map_err(raised)
    }

    /// What the plan looks like: `levels`, `text`, `bottlenecks` (feature, waits for it in the longest chain, samples) and
    /// the threads that pay of so many.
    fn statistics<'py>(
        &self,
        py: Python<'py>,
        rows: Rows<'py>,
        threads: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let parts = rows.parts()?;
        let threads = at_least_one(threads);
        let stop = Stop::default();
        let statistics = interruptible(py, &stop, || {
            let data = parts.unlabelled(threads, true)?;
            Statistics::until(self.of_samples(&data)?, &data, &stop).map_err(unplanned)
        })?;
        let advice = statistics.recommend(threads);
        let found = PyDict::new(py);
        found.set_item("text", format!("{statistics}\n{}", advice.words))?;
        found.set_item("threads", advice.threads)?;
        let named = statistics.bottlenecks.iter().map(|one| (one.parameter, one.links, one.samples));
        found.set_item("bottlenecks", named.collect::<Vec<_>>())?;
        found.set_item("levels", statistics.levels.into_pyarray(py))?;
        Ok(found)
    }

    fn equals(&self, py: Python<'_>, other: &Bound<'_, PyPlan>) -> bool {
        let other = other.get();
        py.detach(|| self.plan == other.plan)
    }

    #[getter]
    fn n_samples(&self) -> u32 {
        self.plan.transactions()
    }

    #[getter]
    fn n_features(&self) -> u32 {
        self.plan.parameters()
    }

    #[getter]
    fn n_entries(&self) -> usize {
        match self.plan.annotations() {
            Annotations::Compact(versions) => versions.len(),
            Annotations::General { reads, .. } => reads.len(),
        }
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.plan.bytes()
    }
}

/// What the system refuses is an `OSError` of its kind, what is wrong with a plan a `ValueError`.
fn raised(error: PlanFileError) -> PyErr {
    let told = error.to_string();
    match error {
        PlanFileError::Io { path, cause } => of_system(&path, &cause, told),
        _ => refused(told),
    }
}

/// A number of threads; none asked for is one.
pub(crate) fn at_least_one(threads: usize) -> NonZeroUsize {
    NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN)
}
