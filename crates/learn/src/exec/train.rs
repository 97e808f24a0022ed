//! From options to a run: which layout and which executor, epochs and the barriers between them.

use super::cells::{Bare, Cells, Singles, Wide};
use super::cop::Compact;
use super::hogwild::Hogwild;
use super::options::{Mode, Options, Scheme};
use super::run::{Executor, Run, Worker};
use super::serial::Serial;
use super::{EpochEnd, Model, Report, TrainError, WorkerReport, weights};
use crate::data::{Dataset, Rows, Value};
use crate::plan::{Annotations, Plan};
use crate::task::Task;
use crate::with_rows;
use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Called between epochs: see [`train`].
pub type After<'a> = dyn FnMut(&EpochEnd<'_>) -> ControlFlow<()> + 'a;

/// Learns from `data`, beginning with `model`, which holds what was learnt when this returns.
///
/// `plan` tells the order of the samples, for every scheme, and what [`Scheme::Cop`] waits for; without one, the order is
/// that of the data, and [`Scheme::Cop`] plans first. `after` is called at the barrier after each epoch (once at the end
/// in [`Mode::Carry`]); breaking stops early.
///
/// # Errors
/// If plan or model do not fit the data, if a thread panics, or if all of them stand still. `model` has not changed then.
pub fn train<T: Task>(
    task: &T,
    data: &Dataset<'_>,
    plan: Option<&Plan>,
    model: &mut Model,
    options: &Options,
    after: &mut After<'_>,
) -> Result<Report, TrainError> {
    let wanted = task.parameters(data.width()) as usize * task.width();
    if model.parameters.len() != wanted {
        return Err(TrainError::Model { found: model.parameters.len(), wanted });
    }
    let numbers = model.parameters.iter().chain([&model.intercept]);
    if let Some((at, &found)) = numbers.enumerate().find(|(_, number)| !number.is_finite()) {
        return Err(TrainError::NotFinite { at, found });
    }
    if let Some(plan) = plan {
        plan.check(task, data)?;
    }
    with_rows!(data, rows => Training { task, data, rows, options, report: Report::default(), after }.run(plan, model))
}

struct Training<'a, 'f, T, V> {
    task: &'a T,
    data: &'a Dataset<'a>,
    rows: Rows<'a, V>,
    options: &'a Options,
    report: Report,
    after: &'a mut After<'f>,
}

impl<T: Task, V: Value> Training<'_, '_, T, V> {
    fn run(mut self, plan: Option<&Plan>, model: &mut Model) -> Result<Report, TrainError> {
        let order = plan.and_then(|plan| plan.order.as_deref());
        let weights = weights(self.task, self.data, &self.rows);
        let width = self.task.width();
        let compact = width == 1 && self.task.rule() == crate::Rule::Features;
        match self.options.scheme {
            Scheme::Serial => self.serial(order, &weights, model)?,
            Scheme::Hogwild if width != 1 => {
                self.hogwild(order, Wide::new(&model.parameters, width, &weights), model)?;
            }
            Scheme::Hogwild if weights.is_empty() => {
                self.hogwild(order, Bare::new(&model.parameters), model)?;
            }
            Scheme::Hogwild => self.hogwild(order, Singles::new(&model.parameters, &weights), model)?,
            _ => {
                let begun = Instant::now();
                let made = if plan.is_none() { Some(Plan::of(self.task, self.data)) } else { None };
                self.report.planning = begun.elapsed();
                let Some(plan) = plan.or(made.as_ref()) else { unreachable!("made where none was given") };
                match &plan.annotations {
                    Annotations::Compact(planned) if compact => {
                        let cells = Singles::new(&model.parameters, &weights);
                        let mut compact = Compact { cells, planned };
                        self.epochs(
                            order,
                            model,
                            &mut compact,
                            |compact, out| compact.cells.export(out),
                            |compact| {
                                compact.cells.set_words(1, |_| 0);
                            },
                        )?;
                    }
                    _ => todo!(),
                }
                self.report.plan = made;
            }
        }
        Ok(self.report)
    }

    fn hogwild<C: Cells>(
        &mut self,
        order: Option<&[u32]>,
        cells: C,
        model: &mut Model,
    ) -> Result<(), TrainError> {
        self.epochs(order, model, &mut Hogwild(cells), |hogwild, out| hogwild.0.export(out), |_| ())
    }

    fn serial(
        &mut self,
        order: Option<&[u32]>,
        weights: &[f32],
        model: &mut Model,
    ) -> Result<(), TrainError> {
        let (task, rows) = (self.task, self.rows);
        let Model { parameters, intercept } = &*model;
        let mut serial = Serial::new(task, rows, order, weights, parameters, *intercept, self.options);
        let samples = rows.labels.len() as u64;
        for epoch in 0..self.options.epochs {
            let begun = Instant::now();
            let last = epoch + 1 == self.options.epochs;
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                serial.epoch(epoch);
                if last {
                    serial.finish();
                }
            }));
            if let Err(panic) = panicked {
                return Err(super::run::panicked(0, &*panic));
            }
            let did = WorkerReport { transactions: samples, ..WorkerReport::default() };
            self.note(begun.elapsed(), 1, [did].into_iter());
            if self.options.mode == Mode::Carry && !last {
                continue;
            }
            let export = |out: &mut [f64]| out.copy_from_slice(&serial.values);
            if self.end(&export, serial.values.len(), serial.intercept).is_break() {
                break;
            }
        }
        *model = Model { parameters: serial.values, intercept: serial.intercept };
        Ok(())
    }

    /// Runs all epochs under an executor, with a barrier and `reset` between two of them, or with neither in
    /// [`Mode::Carry`].
    fn epochs<E: Executor<T, V>>(
        &mut self,
        order: Option<&[u32]>,
        model: &mut Model,
        executor: &mut E,
        export: impl Fn(&E, &mut [f64]),
        mut reset: impl FnMut(&mut E),
    ) -> Result<(), TrainError> {
        let threads = self.options.threads.get();
        let mut run = Run::new(self.task, self.rows, order, model.intercept, self.options);
        let mut intercept = model.intercept;
        let epochs = self.options.epochs;
        let together = if self.options.mode == Mode::Carry { epochs } else { 1 };
        let mut epoch = 0;
        while epoch < epochs {
            let begun = Instant::now();
            if epoch > 0 {
                reset(executor);
            }
            let workers = run.segment(executor, threads, epoch..epoch + together)?;
            if let Some(lagging) = &mut run.intercept {
                intercept = lagging.finish(u64::from(run.samples) * u64::from(together));
            }
            self.note(begun.elapsed(), together, workers.iter().map(|worker: &Worker| worker.report));
            epoch += together;
            let executor = &*executor;
            if self.end(&|out| export(executor, out), model.parameters.len(), intercept).is_break() {
                break;
            }
        }
        export(executor, &mut model.parameters);
        model.intercept = intercept;
        Ok(())
    }

    /// Adds a segment to the report.
    fn note(&mut self, elapsed: Duration, epochs: u32, workers: impl Iterator<Item = WorkerReport>) {
        self.report.epochs += epochs;
        self.report.elapsed += elapsed;
        self.report.epoch_times.push(elapsed);
        for (number, did) in workers.enumerate() {
            match self.report.workers.get_mut(number) {
                Some(worker) => worker.add(&did),
                None => self.report.workers.push(did),
            }
        }
    }

    /// Tells whoever wants to know that an epoch is over.
    fn end(&mut self, export: &dyn Fn(&mut [f64]), parameters: usize, intercept: f64) -> ControlFlow<()> {
        (self.after)(&EpochEnd {
            epoch: self.report.epochs,
            elapsed: self.report.elapsed,
            planning: self.report.planning,
            parameters,
            intercept,
            export,
            model: OnceCell::new(),
        })
    }
}
