//! Training and prediction of linear models.

use crate::data::{Parts, Rows, filled, made, refused, room, unplanned, unroomy};
use crate::interrupt::interruptible;
use crate::plan::{PyPlan, at_least_one};
use isochrone_learn::exec::{Window, put_back};
use isochrone_learn::plan::TooWide;
use isochrone_learn::tasks::{self, Against, Class, Factorisation, Linear, Loss, Predicts, Tallied};
use isochrone_learn::{
    Dataset, EpochEnd, Model, Options, Plan, Schedule, Scheme, Stop, Task as _, TrainError, train as learn,
};
use numpy::{IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::Instant;

/// What is to be trained, and how: the dictionary of `isochrone.learn._linear`.
#[derive(Clone, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    loss: String,
    l2: f64,
    l1: f64,
    /// Weight decay, in the place of `l2`.
    decay: f64,
    intercept: bool,
    intercept_decay: f64,
    schedule: String,
    /// Initial step size; `alpha` of the optimal schedule.
    initial: f64,
    /// Decay, power or t0, whichever the schedule has.
    second: f64,
    scheme: String,
    threads: usize,
    epochs: u32,
    seen: u64,
    epochs_before: u32,
    /// [`Options::packed`].
    packed: bool,
    /// Whether losses are to be told.
    counts: bool,
    /// Whether that of the last epoch is to be told in any case.
    judged: bool,
    /// Improvement that counts; `None` to never stop early.
    tol: Option<f64>,
    /// Epochs without one before stopping.
    patience: u32,
}

impl Settings {
    pub(crate) fn task(&self) -> PyResult<Linear> {
        Ok(Linear {
            loss: loss_named(&self.loss)?,
            l2: self.l2,
            l1: self.l1,
            intercept: self.intercept,
            intercept_decay: self.intercept_decay,
        })
    }

    /// The task of one class against the rest, or of labels as they are.
    pub(crate) fn against(&self, class: Option<Class>) -> PyResult<Against> {
        Ok(Against { linear: self.task()?, class })
    }

    /// The same penalties on the vectors of a matrix.
    fn factorisation(&self, rank: NonZeroUsize) -> Factorisation {
        Factorisation { rank: rank.get(), l2: self.l2, l1: self.l1, intercept: self.intercept }
    }

    pub(crate) fn options(&self) -> PyResult<Options> {
        let schedule = match self.schedule.as_str() {
            "geometric" => Schedule::Geometric { initial: self.initial, decay: self.second },
            "constant" => Schedule::Constant(self.initial),
            "invscaling" => Schedule::InverseScaling { initial: self.initial, power: self.second },
            "optimal" => Schedule::Optimal { alpha: self.initial, t0: self.second },
            other => return Err(refused(format!("no schedule is called {other}"))),
        };
        let threads = at_least_one(self.threads);
        // One thread keeps the planned order by itself, without a plan: alone, all schemes give the bits of COP. Serial
        // execution has nothing but values in memory, Hogwild has weights beside them. Packed, COP is faster than either.
        let scheme = match self.scheme.parse::<Scheme>().map_err(refused)? {
            Scheme::Cop if self.packed => Scheme::Cop,
            Scheme::Cop if threads == NonZeroUsize::MIN && self.task()?.weighted() => Scheme::Hogwild,
            Scheme::Cop if threads == NonZeroUsize::MIN => Scheme::Serial,
            scheme => scheme,
        };
        Ok(Options {
            scheme,
            threads,
            epochs: self.epochs,
            schedule,
            seen: self.seen,
            epochs_before: self.epochs_before,
            decay: self.decay,
            packed: self.packed,
            ..Options::default()
        })
    }
}

/// scikit-learn's name of a loss.
fn loss_named(name: &str) -> PyResult<Loss> {
    match name {
        "log_loss" => Ok(Loss::Logistic),
        "squared_error" => Ok(Loss::Squared),
        name => name.parse().map_err(refused),
    }
}

/// How steep a loss is, without its sign: what Bottou's start of the optimal schedule asks for.
#[pyfunction]
pub(crate) fn slope(loss: &str, prediction: f64, label: f64) -> PyResult<f64> {
    Ok(loss_named(loss)?.derivative(prediction, label).abs())
}

/// Samples that are predicted between two looks whether somebody has asked for the end.
const ROWS: usize = 1 << 16;

/// The predictions of several models, `coef` one after the other: n_samples × n_models numbers, by sample.
#[pyfunction]
pub(crate) fn decide<'py>(
    py: Python<'py>,
    rows: Rows<'py>,
    coef: PyReadonlyArray1<'py, f64>,
    intercept: PyReadonlyArray1<'py, f64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (parts, coef, intercept) = (rows.parts()?, coef.as_slice()?, intercept.as_slice()?);
    let (entries, models, stop) = (parts.entries(), intercept.len(), Stop::default());
    let work = || -> PyResult<Vec<f64>> {
        let data = parts.predictable()?;
        let width = coef.len() / models.max(1);
        let mut scores = filled(data.len() * models, 0.0)?;
        for (model, &intercept) in intercept.iter().enumerate() {
            let coef = &coef[model * width..(model + 1) * width];
            let mut of_model = scores.iter_mut().skip(model).step_by(models);
            for from in (0..data.len()).step_by(ROWS).take_while(|_| !stop.is_asked()) {
                let some = data.slice(from..data.len().min(from + ROWS));
                tasks::decide(&some, coef, intercept, |decision| {
                    if let Some(score) = of_model.next() {
                        *score = decision;
                    }
                });
            }
        }
        Ok(scores)
    };
    // What is over before somebody could interrupt it is not worth a thread.
    let scores = if entries.saturating_mul(models) < 1 << 22 {
        py.detach(work)?
    } else {
        interruptible(py, &stop, work)?
    };
    Ok(scores.into_pyarray(py))
}

type Trained<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyDict>);

/// Trains one model for each of `positives`, in which labels equal to it count as 1 and others as -1; or one model with the
/// labels as they are. Goes on from `coef` (`None` for zeros) and `intercept`, returns new ones and a report.
///
/// `importances` say how much each sample counts; `None` for 1 each. With `sides`, in each model those of its positive class count
/// the first number of the model's pair times as much, all others the second. `held` are samples, labels and importances to stop by.
/// `after(model, epoch, loss, score)` is called when an epoch is over.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the one caller names each in its own words")]
pub(crate) fn train<'py>(
    py: Python<'py>,
    rows: Rows<'py>,
    labels: PyReadonlyArray1<'py, f64>,
    importances: Option<PyReadonlyArray1<'py, f64>>,
    positives: Option<Vec<f64>>,
    sides: Option<Vec<Sides>>,
    coef: Option<PyReadonlyArray1<'py, f64>>,
    intercept: PyReadonlyArray1<'py, f64>,
    settings: Settings,
    plan: Option<&Bound<'py, PyPlan>>,
    held: Option<Held<'py>>,
    after: Option<Py<PyAny>>,
) -> PyResult<Trained<'py>> {
    let given =
        Given { rows, labels, importances, positives, sides, coef, intercept, settings, plan, held, after };
    let settings = given.settings.clone();
    let (learnt, _) = given.learn(py, false)?;
    learnt.handed(py, &settings)
}

/// [`train`] for one epoch over some samples of many: what becomes of the model is held until [`PyMoved::put`], so that it costs
/// what the samples do, and not what the model does.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the one caller names each in its own words")]
pub(crate) fn train_on<'py>(
    py: Python<'py>,
    rows: Rows<'py>,
    labels: PyReadonlyArray1<'py, f64>,
    importances: Option<PyReadonlyArray1<'py, f64>>,
    positives: Option<Vec<f64>>,
    sides: Option<Vec<Sides>>,
    coef: Option<PyReadonlyArray1<'py, f64>>,
    intercept: PyReadonlyArray1<'py, f64>,
    settings: Settings,
    plan: Option<&Bound<'py, PyPlan>>,
    after: Option<Py<PyAny>>,
) -> PyResult<(PyMoved, Bound<'py, PyArray1<f64>>, Bound<'py, PyDict>)> {
    let fresh = coef.is_none();
    let given = Given {
        rows,
        labels,
        importances,
        positives,
        sides,
        coef,
        intercept,
        settings,
        plan,
        held: None,
        after,
    };
    let (settings, samples) = (given.settings.clone(), given.labels.len()?);
    let (mut learnt, touched) = given.learn(py, true)?;
    let options = settings.options()?;
    let moved = PyMoved {
        touched,
        coef: std::mem::take(&mut learnt.coef),
        // Zeros stay what they are.
        fades: if fresh { Vec::new() } else { options.fades(samples as u32) },
        threads: options.threads,
    };
    let (_, intercept, report) = learnt.handed(py, &settings)?;
    Ok((moved, intercept, report))
}

/// What some samples make of models.
#[pyclass(frozen, name = "Moved", module = "isochrone._native")]
pub(crate) struct PyMoved {
    /// The features that the samples have; `None` where all parameters were learnt.
    touched: Option<Vec<u32>>,
    /// The parameters of those features, one model after the other.
    coef: Vec<f64>,
    /// What becomes of all others.
    fades: Vec<f64>,
    threads: NonZeroUsize,
}

#[pymethods]
impl PyMoved {
    /// Whether all parameters that were learnt are finite. Others are if they were: they only become smaller.
    fn is_finite(&self) -> bool {
        self.coef.iter().all(|number| number.is_finite())
    }

    /// Puts it into `coef`, where the models lie one after the other; whether it could, for somebody may be reading them. What
    /// `before` holds then becomes what `after` does. Both are done or neither: no handler of a signal runs in between.
    fn put(
        &self,
        coef: &Bound<'_, PyArray1<f64>>,
        before: &Bound<'_, PyDict>,
        after: &Bound<'_, PyDict>,
    ) -> PyResult<bool> {
        let Ok(mut coef) = coef.try_readwrite() else { return Ok(false) };
        let all = coef.as_slice_mut()?;
        match &self.touched {
            None => all.copy_from_slice(&self.coef),
            Some(touched) => {
                // A model of no features is none to put anything into.
                let models = (self.coef.len() / touched.len().max(1)).max(1);
                let width = all.len() / models;
                let values = self.coef.chunks(touched.len().max(1)).chain(std::iter::repeat(&[][..]));
                for (model, values) in all.chunks_mut(width.max(1)).zip(values) {
                    put_back(model, touched, values, &self.fades, self.threads);
                }
            }
        }
        before.update(after.as_mapping())?;
        Ok(true)
    }
}

/// All that is trained with, as Python hands it over.
struct Given<'a, 'py> {
    rows: Rows<'py>,
    labels: PyReadonlyArray1<'py, f64>,
    importances: Option<PyReadonlyArray1<'py, f64>>,
    positives: Option<Vec<f64>>,
    sides: Option<Vec<Sides>>,
    coef: Option<PyReadonlyArray1<'py, f64>>,
    intercept: PyReadonlyArray1<'py, f64>,
    settings: Settings,
    plan: Option<&'a Bound<'py, PyPlan>>,
    held: Option<Held<'py>>,
    after: Option<Py<PyAny>>,
}

impl Given<'_, '_> {
    /// What is learnt; where `some` of many samples are given, and without a plan of theirs, maybe only of the features that they
    /// have, which are told.
    fn learn(self, py: Python<'_>, some: bool) -> PyResult<(Learnt, Option<Vec<u32>>)> {
        let settings = &self.settings;
        let (task, options) = (settings.task()?, settings.options()?);
        let plan = self.plan.map(Bound::get);
        let labels = self.labels.as_slice()?;
        let importances = slice(&self.importances)?;
        let held = lent(&self.held)?;
        let parts = self.rows.parts()?;
        let coef = slice(&self.coef)?;
        let intercept = self.intercept.as_slice()?;
        let (positives, sides) = (self.positives.as_deref(), self.sides.as_deref());
        let stop = options.stop.clone();
        let work = Work { task, options, settings, coef, intercept, after: self.after };
        interruptible(py, &stop, move || {
            let threads = work.options.threads;
            let planned = plan.is_some() || work.options.scheme == Scheme::Cop;
            let data = parts.labelled(labels, threads, planned && !some)?;
            let data = important(&data, importances)?;
            if some && plan.is_none() {
                // The bits of the features, and how many there are before each; then entries and values.
                room(data.width() as usize / 5 + 20 * data.entries())?;
                if let Some(window) = Window::of(&data) {
                    let taken = match work.coef {
                        Some(coef) => Some(taken(&window, coef, data.width() as usize)?),
                        None => None,
                    };
                    let work = Work { coef: taken.as_deref(), ..work };
                    let learnt = work.all(window.data(), None, (positives, sides), None)?;
                    return Ok((learnt, Some(window.into_touched())));
                }
            }
            let plan = plan.map(|plan| plan.of_samples(&data)).transpose()?;
            let held = match held {
                Some((parts, labels, importances)) => {
                    Some((parts.labelled(labels, threads, false)?, importances))
                }
                None => None,
            };
            let held = match &held {
                Some((held, importances)) => Some(important(held, *importances)?),
                None => None,
            };
            Ok((work.all(&data, held.as_ref(), (positives, sides), plan)?, None))
        })
    }
}

/// The values of what samples touch, in all models one after the other.
fn taken(window: &Window<'_>, coef: &[f64], width: usize) -> PyResult<Vec<f64>> {
    let models = coef.len() / width.max(1);
    room(8 * models * window.touched().len())?;
    let taken: Vec<f64> = coef.chunks(width.max(1)).flat_map(|model| window.take(model)).collect();
    if let Some((place, &found)) = taken.iter().enumerate().find(|(_, number)| !number.is_finite()) {
        let (model, feature) = (place / window.touched().len(), place % window.touched().len());
        let at = model * width + window.touched()[feature] as usize;
        return Err(PyRuntimeError::new_err(TrainError::NotFinite { at, found }.to_string()));
    }
    Ok(taken)
}

/// How much samples of a model's positive class count, and how much all others.
type Sides = (f64, f64);

/// Samples, their labels, and how much each counts.
type Held<'py> = (Rows<'py>, PyReadonlyArray1<'py, f64>, Option<PyReadonlyArray1<'py, f64>>);

/// The same, as other threads may read it.
type Lent<'a> = (Parts<'a>, &'a [f64], Option<&'a [f64]>);

fn lent<'a>(held: &'a Option<Held<'_>>) -> PyResult<Option<Lent<'a>>> {
    let Some((rows, labels, importances)) = held else { return Ok(None) };
    Ok(Some((rows.parts()?, labels.as_slice()?, slice(importances)?)))
}

pub(crate) fn slice<'a>(array: &'a Option<PyReadonlyArray1<'_, f64>>) -> PyResult<Option<&'a [f64]>> {
    Ok(array.as_ref().map(|array| array.as_slice()).transpose()?)
}

pub(crate) fn important<'a>(data: &'a Dataset<'_>, importances: Option<&'a [f64]>) -> PyResult<Dataset<'a>> {
    match importances {
        None => Ok(data.borrowed()),
        Some(importances) => data.with_importances(importances).map_err(refused),
    }
}

/// Factorises a matrix of which these cells are known: samples with two features, the row's number and the column's. Begins
/// with `vectors`, those of all features one after the other (`None` for ones drawn from `seed`). `held` are cells, labels and
/// importances to stop by; rows and columns beyond the vectors count as zeros there.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the one caller names each in its own words")]
pub(crate) fn factorise<'py>(
    py: Python<'py>,
    rows: Rows<'py>,
    labels: PyReadonlyArray1<'py, f64>,
    importances: Option<PyReadonlyArray1<'py, f64>>,
    rank: NonZeroUsize,
    vectors: Option<PyReadonlyArray1<'py, f64>>,
    seed: u64,
    intercept: f64,
    settings: Settings,
    held: Option<Held<'py>>,
    after: Option<Py<PyAny>>,
) -> PyResult<Trained<'py>> {
    let (task, options) = (settings.factorisation(rank), settings.options()?);
    let (labels, importances, parts) = (labels.as_slice()?, slice(&importances)?, rows.parts()?);
    let held = lent(&held)?;
    let held_importances = held.as_ref().and_then(|(_, _, importances)| *importances);
    let vectors = slice(&vectors)?;
    let intercept = [intercept];
    let stop = options.stop.clone();
    let work = Work { task, options, settings: &settings, coef: None, intercept: &intercept, after };
    let learnt = interruptible(py, &stop, move || -> PyResult<Learnt> {
        let planned = work.options.scheme == Scheme::Cop;
        let data = parts.labelled(labels, work.options.threads, planned)?;
        let data = important(&data, importances)?;
        work.task.check(&data).map_err(refused)?;
        room(8 * data.width() as usize * rank.get())?;
        let parameters = match vectors {
            Some(vectors) => vectors.to_vec(),
            None => work.task.initial(data.width(), seed),
        };
        let begin = Model { parameters, intercept: intercept[0] };
        let mut learnt = Learnt { converged: true, ..Learnt::default() };
        let held =
            held.map(|(parts, labels, _)| parts.labelled(labels, NonZeroUsize::MIN, false)).transpose()?;
        let held = held.as_ref().map(|held| important(held, held_importances)).transpose()?;
        let score = held.as_ref().map(|held| {
            move |model: &Model| {
                let Model { parameters, intercept } = model;
                explained(held, &|each| task.predict(held, parameters, *intercept, each))
            }
        });
        let score = score.as_ref().map(|score| score as &dyn Fn(&Model) -> f64);
        work.one(0, begin, &data, score, None, &mut learnt)?;
        Ok(learnt)
    })?;
    learnt.handed(py, &settings)
}

/// Everything that is trained with, apart from the data.
struct Work<'a, T> {
    task: T,
    options: Options,
    settings: &'a Settings,
    /// `None` for zeros.
    coef: Option<&'a [f64]>,
    intercept: &'a [f64],
    after: Option<Py<PyAny>>,
}

/// What came of it.
#[derive(Default)]
struct Learnt {
    coef: Vec<f64>,
    intercept: Vec<f64>,
    /// Of the model that took most epochs, as are the losses.
    epochs: u32,
    losses: Vec<f64>,
    /// The largest last loss of a model.
    worst: f64,
    /// Whether every model stopped by itself.
    converged: bool,
    seconds: f64,
    planning: f64,
    /// Of the model that had most.
    threads: usize,
}

impl Learnt {
    fn handed<'py>(self, py: Python<'py>, settings: &Settings) -> PyResult<Trained<'py>> {
        let report = PyDict::new(py);
        report.set_item("epochs", self.epochs)?;
        report.set_item("losses", self.losses)?;
        report.set_item("worst", self.worst)?;
        report.set_item("converged", self.converged)?;
        report.set_item("seconds", self.seconds)?;
        report.set_item("planning", self.planning)?;
        report.set_item("scheme", &settings.scheme)?;
        report.set_item("threads", self.threads)?;
        Ok((self.coef.into_pyarray(py), self.intercept.into_pyarray(py), report))
    }
}

impl Work<'_, Linear> {
    fn all(
        &self,
        data: &Dataset<'_>,
        held: Option<&Dataset<'_>>,
        (positives, sides): (Option<&[f64]>, Option<&[Sides]>),
        plan: Option<&Plan>,
    ) -> PyResult<Learnt> {
        let mut learnt = Learnt { converged: true, ..Learnt::default() };
        // A model, and the one that threads share.
        let wide = TooWide::check(data.width(), 16 * u64::from(data.width()));
        wide.map_err(|wide| unplanned(wide.into()))?;
        let begun = Instant::now();
        // One plan serves all classes: it does not depend on labels.
        let own = match plan {
            None if self.options.scheme == Scheme::Cop => Some(
                Plan::in_blocks_until(&self.task, data, self.options.threads, &self.options.stop)
                    .map_err(unplanned)?,
            ),
            _ => None,
        };
        learnt.planning = begun.elapsed().as_secs_f64();
        let plan = plan.or(own.as_ref());
        let Some(positives) = positives else {
            let score = held.map(|held| |model: &Model| score(&self.task, held, model));
            let score = score.as_ref().map(|score| score as &dyn Fn(&Model) -> f64);
            self.one(0, self.begin(0, data)?, data, score, plan, &mut learnt)?;
            return Ok(learnt);
        };
        if positives.len() > 1 {
            // Else it would grow as it is filled, and be there twice.
            let all = positives.len() * data.width() as usize;
            room(8 * all)?;
            learnt.coef.reserve_exact(all);
        }
        for (model, &positive) in positives.iter().enumerate() {
            let against =
                |labels: &[f64]| made(labels, |_, &label| if label == positive { 1.0 } else { -1.0 });
            let data = data.with_labels(against(data.labels())?).map_err(refused)?;
            let data = match sides.and_then(|sides| sides.get(model)) {
                None => data.borrowed(),
                Some(&(own, others)) => {
                    let importances = made(data.labels(), |row, &label| {
                        data.importance(row) * if label > 0.0 { own } else { others }
                    })?;
                    data.with_importances(importances).map_err(refused)?
                }
            };
            let held = match held {
                Some(held) => Some(held.with_labels(against(held.labels())?).map_err(refused)?),
                None => None,
            };
            let score = held.as_ref().map(|held| |model: &Model| score(&self.task, held, model));
            let score = score.as_ref().map(|score| score as &dyn Fn(&Model) -> f64);
            self.one(model, self.begin(model, &data)?, &data, score, plan, &mut learnt)?;
        }
        Ok(learnt)
    }

    /// What the model of this class begins with.
    fn begin(&self, at: usize, data: &Dataset<'_>) -> PyResult<Model> {
        let (width, intercept) = (data.width() as usize, self.intercept[at]);
        room(8 * width)?;
        Ok(match self.coef {
            Some(coef) => Model { parameters: coef[at * width..(at + 1) * width].to_vec(), intercept },
            None => Model { intercept, ..Model::zeros(&self.task, data.width()) },
        })
    }
}

/// Hands out a model's prediction for each sample held back, one after the other: no memory is asked for in the middle of a run.
type Tell<'a> = &'a dyn Fn(&mut dyn FnMut(f64));

/// The share of classes that are right, or R², by importance.
fn score(task: &Linear, held: &Dataset<'_>, model: &Model) -> f64 {
    let tell: Tell<'_> = &|each| tasks::decide(held, &model.parameters, model.intercept, each);
    if task.loss.classifies() {
        // As `predict` decides: 0 is the lower class.
        let right = |told: f64, label: f64| f64::from(u8::from((told > 0.0) == (label > 0.0)));
        return summed(held, tell, &right) / held.importance_sum();
    }
    explained(held, tell)
}

/// R², by importance; where all labels are the same, minus the mean squared error, which tells as well what is better.
fn explained(held: &Dataset<'_>, tell: Tell<'_>) -> f64 {
    let weighed = |of: &dyn Fn(f64) -> f64| -> f64 {
        let labels = held.labels().iter().enumerate();
        let counted = labels.filter(|&(row, _)| held.importance(row) != 0.0);
        counted.map(|(row, &label)| held.importance(row) * of(label)).sum()
    };
    let mean = weighed(&|label| label) / held.importance_sum();
    let left = summed(held, tell, &|told, label| (told - label).powi(2));
    let spread = weighed(&|label| (label - mean).powi(2));
    if spread == 0.0 { -left / held.importance_sum() } else { 1.0 - left / spread }
}

/// The sum of this over predictions and labels, by importance. Of a sample that counts nothing it may be infinite, and 0 times that
/// is no number.
fn summed(held: &Dataset<'_>, tell: Tell<'_>, of: &dyn Fn(f64, f64) -> f64) -> f64 {
    let (mut row, mut sum) = (0, 0.0);
    tell(&mut |told| {
        let importance = held.importance(row);
        if importance != 0.0 {
            sum += importance * of(told, held.labels()[row]);
        }
        row += 1;
    });
    sum
}

impl<T: Predicts + Copy> Work<'_, T> {
    /// Trains one model, which `score` may stop.
    fn one(
        &self,
        at: usize,
        begin: Model,
        data: &Dataset<'_>,
        score: Option<&dyn Fn(&Model) -> f64>,
        plan: Option<&Plan>,
        learnt: &mut Learnt,
    ) -> PyResult<()> {
        let mut model = begin;
        // Where nothing counts, nothing is lost.
        let counted = data.importance_sum().max(f64::MIN_POSITIVE);
        let (mut best, mut waited, mut losses, mut stopped) = (f64::NEG_INFINITY, 0, Vec::new(), false);
        let mut raised = None;
        let Settings { counts, judged, epochs, .. } = *self.settings;
        let counts_after = |epoch| counts || judged && epoch + 1 >= epochs;
        let task = Tallied::new(self.task, counts_after(0));
        let report = learn(&task, data, plan, &mut model, &self.options, &mut |end: &EpochEnd<'_>| {
            let loss = task.take() / counted;
            losses.push(loss);
            task.count(counts_after(end.epoch));
            let score = score.map(|score| score(end.model()));
            if let Some(tol) = self.settings.tol {
                // Losses fall, scores rise.
                let gain = score.unwrap_or(-loss);
                waited = if gain > best + tol { 0 } else { waited + 1 };
                best = best.max(gain);
                stopped = waited >= self.settings.patience;
            }
            let told = match &self.after {
                Some(after) => Python::attach(|py| after.call1(py, (at, end.epoch, loss, score)).map(|_| ())),
                None => Ok(()),
            };
            match told {
                Ok(()) if !stopped && loss.is_finite() => ControlFlow::Continue(()),
                Ok(()) => ControlFlow::Break(()),
                Err(error) => {
                    raised = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        if let Some(error) = raised {
            return Err(error);
        }
        let report = report.map_err(|error| match error {
            error @ (TrainError::Plan(_) | TrainError::Packed(_)) => refused(error),
            TrainError::NoRoom(error) => unroomy(error),
            TrainError::Planning(error) => unplanned(error),
            error => PyRuntimeError::new_err(error.to_string()),
        })?;
        if learnt.coef.capacity() == 0 {
            learnt.coef = model.parameters;
        } else {
            learnt.coef.append(&mut model.parameters);
        }
        learnt.intercept.push(model.intercept);
        learnt.seconds += report.elapsed.as_secs_f64();
        learnt.planning += report.planning.as_secs_f64();
        learnt.threads = learnt.threads.max(report.threads);
        learnt.converged &= stopped;
        learnt.worst = losses.last().copied().unwrap_or(0.0).max(learnt.worst);
        if losses.len() as u32 > learnt.epochs {
            learnt.epochs = losses.len() as u32;
            learnt.losses = losses;
        }
        Ok(())
    }
}
