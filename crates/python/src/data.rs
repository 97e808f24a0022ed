//! Samples as Python hands them over: four arrays that stay where they are.

use isochrone_learn::plan::PlanError;
use isochrone_learn::{DataError, Dataset, NoRoom, Values};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::{PyMemoryError, PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::borrow::Cow;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;

/// `(indptr, indices, values, width)`: what `isochrone.learn._data.Rows` is. Holding it keeps the arrays from being
/// written through other views that rust-numpy knows of.
pub(crate) struct Rows<'py> {
    indptr: PyReadonlyArray1<'py, u64>,
    indices: PyReadonlyArray1<'py, u32>,
    values: Numbers<'py>,
    width: u32,
}

enum Numbers<'py> {
    F32(PyReadonlyArray1<'py, f32>),
    F64(PyReadonlyArray1<'py, f64>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Rows<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Rows<'py>> {
        type Parts<'py> = (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u32>>, Bound<'py, PyAny>, u32);
        let (indptr, indices, values, width) = object.extract::<Parts<'py>>()?;
        let values = if let Ok(single) = values.cast::<PyArray1<f32>>() {
            Numbers::F32(single.try_readonly()?)
        } else if let Ok(double) = values.cast::<PyArray1<f64>>() {
            Numbers::F64(double.try_readonly()?)
        } else {
            return Err(PyTypeError::new_err("values must be an array of float32 or float64"));
        };
        Ok(Rows { indptr: indptr.try_readonly()?, indices: indices.try_readonly()?, values, width })
    }
}

impl Rows<'_> {
    /// The parts, which other threads may read while no Python runs.
    pub(crate) fn parts(&self) -> PyResult<Parts<'_>> {
        Ok(Parts {
            indptr: self.indptr.as_slice()?,
            indices: self.indices.as_slice()?,
            values: match &self.values {
                Numbers::F32(values) => Values::F32(Cow::Borrowed(values.as_slice()?)),
                Numbers::F64(values) => Values::F64(Cow::Borrowed(values.as_slice()?)),
            },
            width: self.width,
        })
    }
}

/// What samples without labels are made of.
#[derive(Clone)]
pub(crate) struct Parts<'a> {
    indptr: &'a [u64],
    indices: &'a [u32],
    values: Values<'a>,
    width: u32,
}

impl<'a> Parts<'a> {
    pub(crate) fn entries(&self) -> usize {
        self.indices.len()
    }

    /// Checks them, with these labels, on so many threads; for a plan, or without one.
    pub(crate) fn labelled(
        self,
        labels: impl Into<Cow<'a, [f64]>>,
        threads: NonZeroUsize,
        planned: bool,
    ) -> PyResult<Dataset<'a>> {
        let Parts { indptr, indices, values, width } = self;
        Dataset::new_by(threads, planned, indptr, indices, values, labels, width).map_err(unsound)
    }

    /// Checks them, with a label of 0 each.
    pub(crate) fn unlabelled(self, threads: NonZeroUsize, planned: bool) -> PyResult<Dataset<'a>> {
        let labels = filled(self.indptr.len().saturating_sub(1), 0.0)?;
        self.labelled(labels, threads, planned)
    }

    /// Checks those that are to be predicted.
    pub(crate) fn predictable(self) -> PyResult<Dataset<'a>> {
        let labels = filled(self.indptr.len().saturating_sub(1), 0.0)?;
        let Parts { indptr, indices, values, width } = self;
        Dataset::new(indptr, indices, values, labels, width).map_err(|error| match error {
            DataError::NotFinite { row, what, found } => {
                refused(format!("row {row}: {what} is {found}, by which nothing can be predicted: {MENDED}"))
            }
            error => unsound(error),
        })
    }
}

/// What to do with a value that is none.
const MENDED: &str = "fill it in (sklearn.impute.SimpleImputer), or leave the row out";

/// Numbers that went through as unsigned are told as they stand in SciPy's matrix.
fn unsound(error: DataError) -> PyErr {
    match error {
        DataError::Offsets { at, found, entries } => refused(format!(
            "X.indptr[{at}] is {}: it begins with 0, never falls, and ends with the number of entries, {entries}",
            found as i64
        )),
        DataError::Feature { row, feature, width } if width <= i32::MAX as u32 => refused(format!(
            "row {row} has feature {}, but there are {width} features (0 to {})",
            feature as i32,
            width.saturating_sub(1)
        )),
        error @ DataError::NotFinite { .. } => refused(format!("{error}: {MENDED}")),
        DataError::TooWide(error) => PyMemoryError::new_err(error.to_string()),
        error => refused(error),
    }
}

/// Raises where so many bytes are not there; what is to be done with them is learning, or goes with it.
pub(crate) fn room(bytes: usize) -> PyResult<()> {
    NoRoom::check("learning", bytes as u64, 1).map_err(unroomy)
}

pub(crate) fn unroomy(error: NoRoom) -> PyErr {
    PyMemoryError::new_err(error.to_string())
}

/// So many numbers.
pub(crate) fn filled(length: usize, number: f64) -> PyResult<Vec<f64>> {
    room(8 * length)?;
    Ok(vec![number; length])
}

/// A number made of each of these.
pub(crate) fn made<T>(of: &[T], make: impl Fn(usize, &T) -> f64) -> PyResult<Vec<f64>> {
    room(8 * of.len())?;
    Ok(of.iter().enumerate().map(|(at, one)| make(at, one)).collect())
}

/// Raises where samples cannot be learnt from, and says where.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, rows: Rows<'_>) -> PyResult<()> {
    let parts = rows.parts()?;
    py.detach(move || parts.unlabelled(NonZeroUsize::MIN, false).map(|_| ()))
}

/// Has the interface to NumPy looked up. It is when the first array is made or borrowed, with a panic where that fails, and
/// then an interrupt that is waiting makes it fail; here, while the package is imported, that is the `KeyboardInterrupt` it is.
pub(crate) fn reach_numpy(py: Python<'_>) -> PyResult<()> {
    py.import("numpy")?;
    py.check_signals()?;
    PyArray1::<f64>::zeros(py, 0, false).try_readonly()?;
    Ok(())
}

/// What Python users get of a plan that is not made, or not looked at.
pub(crate) fn unplanned(error: PlanError) -> PyErr {
    match error {
        error @ (PlanError::TooWide(_) | PlanError::NoRoom(_)) => PyMemoryError::new_err(error.to_string()),
        error => refused(error),
    }
}

/// What the system says of a file, as Python's own `OSError` of its kind has it: with its number and the file's name. What somebody
/// else says is `told`.
pub(crate) fn of_system(path: &Path, cause: &io::Error, told: String) -> PyErr {
    let Some(number) = cause.raw_os_error() else { return io::Error::new(cause.kind(), told).into() };
    let words = cause.to_string();
    let words = words.strip_suffix(&format!(" (os error {number})")).unwrap_or(&words).to_owned();
    PyOSError::new_err((number, words, path.as_os_str().to_owned()))
}

/// What Python users get of an error in what they gave.
pub(crate) fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
