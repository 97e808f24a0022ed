//! The native half of the Python package `isochrone`: estimators, plans and readers, as `isochrone._native`.
//!
//! It takes arrays where they lie, lets go of the interpreter while it works, and turns what is refused into the
//! exceptions that Python's users expect. What is learnt, and how, is in `isochrone-learn`.

mod data;
mod global;
mod interrupt;
mod plan;
mod read;
mod train;

use pyo3::prelude::*;

/// The functions and classes of the native half.
#[pymodule]
mod _native {
    use crate::data;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::data::check;
    #[pymodule_export]
    use crate::global::{PyCenter, PyCollector, order, replay};
    #[pymodule_export]
    use crate::plan::PyPlan;
    #[pymodule_export]
    use crate::read::{PyReader, generate};
    #[pymodule_export]
    use crate::train::{PyMoved, decide, factorise, slope, train, train_on};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        data::reach_numpy(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
