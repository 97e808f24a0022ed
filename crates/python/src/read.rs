//! Samples from files and from the generator, handed over as arrays.

use crate::data::{of_system, refused};
use crate::interrupt::{abandonable, interruptible};
use crate::plan::{PyPlan, at_least_one};
use isochrone_learn::generate::{Generator, Recipe, RecipeError};
use isochrone_learn::read::{Base, Format, Options, ReadError, Reader};
use isochrone_learn::{Dataset, Stop, Values};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// `(indptr, indices, values, width, labels, importances)`: made of the samples' own memory. Without importances, each is 1.
type Handed<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyAny>,
    u32,
    Bound<'py, PyArray1<f64>>,
    Option<Bound<'py, PyArray1<f64>>>,
);

fn handed<'py>(py: Python<'py>, data: Dataset<'static>) -> Handed<'py> {
    let (offsets, features, values, labels, width, importances) = data.into_parts();
    let values = match values {
        Values::F32(values) => values.into_owned().into_pyarray(py).into_any(),
        Values::F64(values) => values.into_owned().into_pyarray(py).into_any(),
    };
    let importances = (!importances.is_empty()).then(|| importances.into_pyarray(py));
    (offsets.into_pyarray(py), features.into_pyarray(py), values, width, labels.into_pyarray(py), importances)
}

/// A file cannot be read: an `OSError`; what stands in it is wrong: a `ValueError`.
fn raised(error: ReadError) -> PyErr {
    let told = error.to_string();
    match error {
        error if error.is_memory() => PyMemoryError::new_err(told),
        ReadError::Wide { .. } => PyMemoryError::new_err(told),
        ReadError::Open { path, cause } => of_system(&path, &cause, told),
        ReadError::Io { cause, .. } => io::Error::new(cause.kind(), told).into(),
        _ => refused(told),
    }
}

/// Reads an svmlight or Vowpal Wabbit file: `isochrone.learn._read`.
#[pyclass(frozen, name = "Reader", module = "isochrone._native")]
pub(crate) struct PyReader {
    reader: Arc<Mutex<Reader>>,
    stop: Stop,
}

impl PyReader {
    /// Reads, which Ctrl-C ends.
    fn read<R: Send + 'static>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Reader) -> Result<R, ReadError> + Send + 'static,
    ) -> PyResult<R> {
        let reader = self.reader.clone();
        let read = abandonable(py, move || act(&mut *lock(&reader)?).map_err(raised));
        if read.is_err() {
            // Whoever reads on may wait for a pipe; from a file it goes on no further than this sample.
            self.stop.ask();
        }
        read?
    }
}

fn lock(reader: &Mutex<Reader>) -> PyResult<MutexGuard<'_, Reader>> {
    reader.lock().map_err(|_| PyRuntimeError::new_err("reading this file has failed before"))
}

#[pymethods]
impl PyReader {
    #[new]
    #[pyo3(signature = (path, format, zero_based, width, double, skip_errors, bits))]
    #[expect(clippy::too_many_arguments, reason = "the one caller names each in its own words")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        format: &str,
        zero_based: Option<bool>,
        width: Option<u32>,
        double: bool,
        skip_errors: u64,
        bits: u32,
    ) -> PyResult<PyReader> {
        let format = format.parse::<Format>().map_err(refused)?;
        let base = match zero_based {
            None => Base::Auto,
            Some(true) => Base::Zero,
            Some(false) => Base::One,
        };
        let options = Options { format, base, width, double, skip_errors, bits, ..Options::default() };
        // A pipe opens when somebody writes: another thread of this process, or nobody.
        let reader = abandonable(py, move || Reader::open(&path, options))?.map_err(raised)?;
        let stop = Stop::default();
        Ok(PyReader { reader: Arc::new(Mutex::new(reader.until(stop.clone()))), stop })
    }

    /// The next samples, at most so many; `None` at the end.
    fn batch<'py>(&self, py: Python<'py>, rows: usize) -> PyResult<Option<Handed<'py>>> {
        let data = self.read(py, move |reader| reader.batch(rows))?;
        Ok(data.map(|data| handed(py, data)))
    }

    /// All samples that are left.
    fn all<'py>(&self, py: Python<'py>) -> PyResult<Handed<'py>> {
        let data = self.read(py, Reader::all)?;
        Ok(handed(py, data))
    }

    /// All samples that are left, and their plan, made meanwhile.
    fn all_planned<'py>(&self, py: Python<'py>) -> PyResult<(Handed<'py>, PyPlan)> {
        let (data, plan) = self.read(py, Reader::all_planned)?;
        Ok((handed(py, data), PyPlan::made(plan)))
    }

    /// Lines left out because they are wrong, and what is wrong with the first ten.
    fn skipped(&self) -> PyResult<(u64, Vec<String>)> {
        let reader = lock(&self.reader)?;
        let (count, shown) = reader.skipped();
        Ok((count, shown.iter().map(ToString::to_string).collect()))
    }
}

/// What Python users get of samples that are not made.
fn unmade(error: RecipeError) -> PyErr {
    match error {
        RecipeError::NoRoom { .. } => PyMemoryError::new_err(error.to_string()),
        error => refused(error),
    }
}

/// Synthetic samples with the conflicts of published data: the samples, and the exponent of Zipf's law that they follow.
#[pyfunction]
pub(crate) fn generate<'py>(
    py: Python<'py>,
    name: &str,
    scale: u32,
    samples: Option<u32>,
    seed: u64,
    threads: usize,
) -> PyResult<(Handed<'py>, f64)> {
    let recipe = name.parse::<Recipe>().map_err(refused)?.scaled(scale);
    let recipe = Recipe { samples: samples.unwrap_or(recipe.samples), seed, ..recipe };
    let threads = at_least_one(threads);
    recipe.check_room(threads).map_err(unmade)?;
    let stop = Stop::default();
    let (data, exponent) = interruptible(py, &stop, || {
        let generator = Generator::new(recipe).map_err(unmade)?;
        Ok((generator.until(threads, &stop), generator.exponent()))
    })?;
    Ok((handed(py, data), exponent))
}
