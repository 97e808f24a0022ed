//! From options to a run: which layout and which executor, epochs and the barriers between them.

use super::cells::{Bare, Cells, Counted, Heads, Singles, Wide};
use super::cop::Cop;
use super::cycle::{self, Cycle};
use super::first::FirstEpoch;
use super::hogwild::Hogwild;
use super::intercept::{Intercept, block_of};
use super::locking::{self, Locking};
use super::occ::{self, Occ};
use super::options::{Mode, Options, SMALLEST, Scheme, Steps};
use super::ordered::Ordered;
use super::places::Places;
use super::pool::Pool;
use super::roster::Roster;
use super::run::{Executor, Lap, Run, Worker, panicked};
use super::serial::Serial;
use super::source::{Alone, CompactSource, GeneralSource};
use super::{EpochEnd, Model, Report, TrainError, WorkerReport, wanted, weights};
use crate::data::{Dataset, Rows, Value, all_finite};
use crate::memory::zeros;
use crate::plan::{Annotations, Plan, PlanError};
use crate::task::{Rule, Task};
use crate::with_rows;
use std::cell::{Cell, OnceCell};
use std::num::NonZeroUsize;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Called between epochs: see [`train`].
pub type After<'a> = dyn FnMut(&EpochEnd<'_>) -> ControlFlow<()> + 'a;

/// Learns from `data`, beginning with `model`, which holds what was learnt when this returns.
///
/// `plan` tells the order of the samples, for every scheme, and what [`Scheme::Cop`] waits for; without one, the order is
/// that of the data, and [`Scheme::Cop`] plans first. `after` is called at the barrier after each epoch (once at the end
/// under [`Scheme::Cop`] and [`Scheme::Serial`] in [`Mode::Carry`]); breaking stops early.
///
/// # Errors
/// If plan or model do not fit the data, if [`Task::sets`] tells what no task may, if there is not the memory, if a thread
/// panics, if all of them stand still, or if [`Options::stop`] asks for the end.
/// `model` has not changed then.
pub fn train<T: Task>(
    task: &T,
    data: &Dataset<'_>,
    plan: Option<&Plan>,
    model: &mut Model,
    options: &Options,
    after: &mut After<'_>,
) -> Result<Report, TrainError> {
    let options = &options.clone().with_useful_threads();
    let wanted = task.parameters(data.width()) as usize * task.width();
    if model.parameters.len() != wanted {
        return Err(TrainError::Model { found: model.parameters.len(), wanted });
    }
    if !all_finite(&model.parameters) || !model.intercept.is_finite() {
        let mut numbers = model.parameters.iter().chain([&model.intercept]).enumerate();
        if let Some((at, &found)) = numbers.find(|(_, number)| !number.is_finite()) {
            return Err(TrainError::NotFinite { at, found });
        }
    }
    if let Some(plan) = plan {
        data.fingerprint_by(options.threads);
        plan.check(task, data)?;
    }
    if options.decay != 0.0 && !task.decays() {
        return Err(TrainError::Decay("in this task, whose steps do not heed their scale"));
    }
    if options.decay != 0.0 && options.mode == Mode::Carry {
        return Err(TrainError::Decay("in carry mode, where no epoch has an end"));
    }
    if options.packed {
        may_pack(task, data, plan, options)?;
    }
    wanted::check(task, data, plan, options)?;
    with_rows!(data, rows => {
        // Packed ones come from the plan, but for an epoch under locks.
        let weights = if options.packed && !options.first_epoch {
            Vec::new()
        } else {
            weights(task, data, &rows, options.threads.get()).map_err(PlanError::from)?
        };
        let pool = Pool::new(options.threads.get(), options.patience, options.stop.clone());
        let steps = Steps::new(options, data.len() as u32);
        let threads = if options.scheme == Scheme::Serial { 1 } else { options.threads.get() };
        let report = Report { threads, ..Report::default() };
        let training =
            Training { task, data, rows, options, weights: &weights, pool: &pool, steps, report, after, stopped: false };
        training.run(plan, model)
    })
}

/// Whether parameters can be packed, as they are to be.
pub(super) fn may_pack<T: Task>(
    task: &T,
    data: &Dataset<'_>,
    plan: Option<&Plan>,
    options: &Options,
) -> Result<(), TrainError> {
    let general = plan.is_some_and(|plan| !matches!(plan.annotations(), Annotations::Compact(_)));
    let own = task.rule() != Rule::Features || task.parameters(data.width()) != data.width();
    let refused = |why| Err(TrainError::Packed(why));
    match () {
        () if options.scheme != Scheme::Cop => refused("without a plan: only scheme cop goes by one"),
        () if own || task.width() != 1 => {
            refused("in this task: only parameters of one number a feature are")
        }
        () if general => refused("by a plan in the general form"),
        () if !options.elide => refused("where all readers are counted"),
        () => Ok(()),
    }
}

struct Training<'a, 'f, T, V> {
    task: &'a T,
    data: &'a Dataset<'a>,
    rows: Rows<'a, V>,
    options: &'a Options,
    weights: &'a [f32],
    pool: &'a Pool,
    steps: Steps,
    report: Report,
    after: &'a mut After<'f>,
    /// Whether `after` has broken off the run.
    stopped: bool,
}

/// What a part of the training begins with, and leaves behind.
struct State {
    parameters: Vec<f64>,
    intercept: f64,
    /// Where the task has an intercept; it may still lag behind.
    lagging: Option<Intercept>,
}

/// Epochs under one executor.
struct Part<'a> {
    order: Option<&'a [u32]>,
    epochs: Range<u32>,
    /// Whether versions and the lag of the intercept go on from epoch to epoch, without a barrier.
    carry: bool,
}

/// What decay alone makes of a weight of 1 in the course of an epoch, which is run in parts: at the end of each it is taken
/// into the weights.
pub(super) struct Scales {
    /// Before the step of each sample; 1 where a part begins.
    before: Arc<[f64]>,
    /// What is run of the epoch between two barriers, and the scale at its end.
    parts: Vec<(Range<u64>, f64)>,
}

impl Scales {
    pub(super) fn of(steps: &Steps, epoch: u32, samples: u32) -> Scales {
        let epoch = steps.epoch(epoch);
        match steps.same(&epoch).map(|size| steps.leaves(size)) {
            Some(leaves) => Scales::leaving(samples, |_| leaves),
            None => Scales::leaving(samples, |position| steps.leaves(steps.size(&epoch, position))),
        }
    }

    /// What each part leaves of a weight.
    pub(super) fn factors(&self) -> impl Iterator<Item = f64> + '_ {
        self.parts.iter().map(|&(_, scale)| scale)
    }

    /// Where the step at each position leaves so much.
    fn leaving(samples: u32, leaves: impl Fn(u32) -> f64) -> Scales {
        let (mut scale, mut from, mut parts) = (1.0, 0, Vec::new());
        let before = (0..samples).map(|position| {
            let before = scale;
            scale *= leaves(position);
            let upto = u64::from(position) + 1;
            if scale < SMALLEST || position + 1 == samples {
                parts.push((from..upto, scale));
                (scale, from) = (1.0, upto);
            }
            before
        });
        Scales { before: before.collect(), parts }
    }
}

/// Versions in cells, and whether the next lap may begin with them (T-COP-22).
pub(crate) trait Versions {
    /// Whether a lap of this base may begin.
    fn may_begin(&self, base: u32) -> Result<(), TrainError>;
    /// Laps were run, up to the transaction of this number.
    fn left_at(&self, transaction: u32);
    /// Prepares for another lap of base 0.
    fn reset(&self);
    /// The base of an epoch: 0 where versions are reset.
    fn base(&self, before: u64) -> u32;
}

/// Of cells without planned versions: any lap may begin, and what versions there are go on.
struct Unplanned;

impl Versions for Unplanned {
    fn may_begin(&self, _: u32) -> Result<(), TrainError> {
        Ok(())
    }

    fn left_at(&self, _: u32) {}

    fn reset(&self) {}

    fn base(&self, before: u64) -> u32 {
        before as u32
    }
}

/// Of planned cells.
pub(crate) struct PlannedVersions<'a, C> {
    cells: &'a C,
    threads: usize,
    carry: bool,
    /// The transaction at which the cells stand.
    at: Cell<u32>,
}

impl<'a, C: Heads> PlannedVersions<'a, C> {
    /// Cells that stand at this transaction.
    pub(crate) fn new(cells: &'a C, threads: usize, carry: bool, at: u32) -> Self {
        PlannedVersions { cells, threads, carry, at: Cell::new(at) }
    }
}

impl<C: Heads> Versions for PlannedVersions<'_, C> {
    fn may_begin(&self, base: u32) -> Result<(), TrainError> {
        if self.at.get() == base { Ok(()) } else { Err(TrainError::NotReset) }
    }

    fn left_at(&self, transaction: u32) {
        self.at.set(transaction);
    }

    fn reset(&self) {
        self.cells.set_heads(self.threads, |_| (0, 0));
        self.at.set(0);
    }

    fn base(&self, before: u64) -> u32 {
        if self.carry { before as u32 } else { 0 }
    }
}

/// An executor and its cells, as an epoch sees them: one copy of what surrounds the laps serves them all.
trait Engine<T, V> {
    /// See [`Run::segment`].
    fn segment(&self, run: &Run<'_, T, V>, threads: usize, laps: &[Lap]) -> Result<Vec<Worker>, TrainError>;
    /// See [`Cells::scale`].
    fn scale(&self, threads: usize, by: f64);
    /// See [`Cells::export`].
    fn export(&self, threads: usize, out: &mut [f64]);
}

struct Over<'a, E, C> {
    executor: &'a E,
    cells: &'a C,
}

impl<T: Task, V: Value, E: Executor<T, V>, C: Cells> Engine<T, V> for Over<'_, E, C> {
    fn segment(&self, run: &Run<'_, T, V>, threads: usize, laps: &[Lap]) -> Result<Vec<Worker>, TrainError> {
        run.segment(self.executor, threads, laps)
    }

    fn scale(&self, threads: usize, by: f64) {
        self.cells.scale(threads, by);
    }

    fn export(&self, threads: usize, out: &mut [f64]) {
        self.cells.export(threads, out);
    }
}

impl<T: Task, V: Value> Training<'_, '_, T, V> {
    fn run(mut self, plan: Option<&Plan>, model: &mut Model) -> Result<Report, TrainError> {
        let order = plan.and_then(Plan::order);
        let lagging =
            self.task.intercept().then(|| Intercept::new(model.intercept, block_of(self.data.len())));
        let mut state = State { parameters: Vec::new(), intercept: model.intercept, lagging };
        let values = &model.parameters;
        let width = self.task.width();
        let whole = Part { order, epochs: 0..self.options.epochs, carry: false };
        match self.options.scheme {
            Scheme::Serial => self.serial(order, values, &mut state)?,
            Scheme::Hogwild if width != 1 => {
                self.hogwild(whole, &Wide::new(values, width, self.weights), &mut state)?;
            }
            Scheme::Hogwild if self.weights.is_empty() => {
                self.hogwild(whole, &Bare::new(values), &mut state)?
            }
            Scheme::Hogwild => self.hogwild(whole, &Singles::new(values, self.weights), &mut state)?,
            Scheme::Locking => {
                self.locking(whole, values, &mut state, None)?;
            }
            Scheme::Occ => {
                self.room_for_versions(occ::MOST)?;
                if width == 1 {
                    self.occ(whole, &Singles::new(values, self.weights), &mut state)?;
                } else {
                    self.occ(whole, &Wide::new(values, width, self.weights), &mut state)?;
                }
            }
            Scheme::Cop => self.planned(plan, values, &mut state)?,
        }
        *model = Model { parameters: state.parameters, intercept: state.intercept };
        Ok(self.report)
    }

    fn room_for_versions(&self, most: u32) -> Result<(), TrainError> {
        let samples = self.data.len() as u32;
        if samples > most { Err(TrainError::TooMany { samples, most }) } else { Ok(()) }
    }

    fn hogwild<C: Cells>(&mut self, part: Part<'_>, cells: &C, state: &mut State) -> Result<(), TrainError> {
        self.part(part, &Over { executor: &Hogwild(cells), cells }, &Unplanned, state)?;
        Ok(())
    }

    fn locking(
        &mut self,
        part: Part<'_>,
        values: &[f64],
        state: &mut State,
        first: Option<&FirstEpoch>,
    ) -> Result<Vec<Worker>, TrainError> {
        let record = self.options.record || first.is_some();
        if self.task.width() == 1 {
            let cells = &Singles::new(values, self.weights);
            let executor = &Locking { cells, record, first };
            self.part(part, &Over { executor, cells }, &Unplanned, state)
        } else {
            let cells = &Wide::new(values, self.task.width(), self.weights);
            let executor = &Locking { cells, record, first };
            self.part(part, &Over { executor, cells }, &Unplanned, state)
        }
    }

    fn occ<C: super::cells::Words>(
        &mut self,
        part: Part<'_>,
        cells: &C,
        state: &mut State,
    ) -> Result<(), TrainError> {
        let record = self.options.record;
        self.part(part, &Over { executor: &Occ { cells, record }, cells }, &Unplanned, state)?;
        Ok(())
    }

    /// All epochs in planned order; the first one under locks if it is to make the plan.
    fn planned(&mut self, plan: Option<&Plan>, values: &[f64], state: &mut State) -> Result<(), TrainError> {
        let carry = self.options.mode == Mode::Carry;
        if carry {
            self.room_for_versions(cycle::MOST)?;
        }
        let epochs = self.options.epochs;
        if let Some(plan) = plan {
            return self.cop(plan, 0..epochs, values, state);
        }
        if !self.options.first_epoch || epochs == 0 {
            let begun = Instant::now();
            let stop = &self.options.stop;
            let plan = match self.task.rule() {
                // More blocks than one would take more memory.
                Rule::Features => Plan::in_blocks_until(self.task, self.data, NonZeroUsize::MIN, stop)?,
                // A block of these cannot have as many entries as all of them together.
                Rule::Own(_) => Plan::checked(self.task, self.data).map_err(PlanError::from)?,
            };
            self.report.planning = begun.elapsed();
            self.cop(&plan, 0..epochs, values, state)?;
            self.report.plan = Some(plan);
            return Ok(());
        }
        self.room_for_versions(locking::MOST)?;
        let first = FirstEpoch::new(self.task, self.data);
        let workers = self.locking(Part { order: None, epochs: 0..1, carry }, values, state, Some(&first))?;
        let begun = Instant::now();
        let order = order_of(&workers);
        let plan = first.finish(self.task, self.data, order, &workers);
        drop(workers);
        self.report.planning = begun.elapsed();
        if !self.stopped {
            let values = std::mem::take(&mut state.parameters);
            self.cop(&plan, 1..epochs, &values, state)?;
        }
        self.report.plan = Some(plan);
        Ok(())
    }

    /// Epochs under a plan.
    fn cop(
        &mut self,
        plan: &Plan,
        epochs: Range<u32>,
        values: &[f64],
        state: &mut State,
    ) -> Result<(), TrainError> {
        let begun = Instant::now();
        let carry = self.options.mode == Mode::Carry;
        let cycle = carry.then(|| Cycle::of(plan, &self.rows));
        let (annotations, cycle) = (plan.annotations(), cycle.as_ref());
        let (width, elide) = (self.task.width(), self.options.elide);
        let part = Part { order: plan.order(), epochs, carry };
        let alone = elide.then(|| Alone::of(annotations, plan.parameters(), cycle));
        let source = GeneralSource::of(annotations, alone.as_ref(), cycle);
        self.report.planning += begun.elapsed();
        match (annotations, source) {
            (Annotations::Compact(versions), _) if elide => {
                let begun = Instant::now();
                let Options { threads, chunk, .. } = *self.options;
                let make = || Roster::new((versions, cycle), &self.rows, part.order, threads.get(), chunk);
                // In a cycle it is another one, which no barrier separates from the lap before.
                let roster = &*match cycle {
                    None => plan.roster(threads.get(), chunk, make),
                    Some(_) => Arc::new(make()),
                };
                let unpacked = (self.rows.features, &[][..]);
                if self.options.packed {
                    let (data, shares) = (self.data, self.task.weighted());
                    let places = plan.places(shares, || Places::new(data, shares, threads.get()));
                    self.report.planning += begun.elapsed();
                    let cells = &Bare::laid_out(values, places.of(), threads.get());
                    let shares = if shares { places.shares() } else { &[] };
                    return self.ordered(part, roster, cells, (places.entries(), shares), state);
                }
                self.report.planning += begun.elapsed();
                if width != 1 {
                    self.ordered(part, roster, &Wide::new(values, width, self.weights), unpacked, state)
                } else if self.weights.is_empty() {
                    self.ordered(part, roster, &Bare::new(values), unpacked, state)
                } else {
                    self.ordered(part, roster, &Singles::new(values, self.weights), unpacked, state)
                }
            }
            (Annotations::Compact(versions), _) => {
                let source = CompactSource { versions, elide, cycle };
                if width == 1 {
                    let cells = &Counted::new(values, self.weights);
                    self.cop_part(part, &Cop { cells, source, shares: &[] }, cells, cycle, state)
                } else {
                    let cells = &Wide::new(values, width, self.weights);
                    self.cop_part(part, &Cop { cells, source, shares: &[] }, cells, cycle, state)
                }
            }
            (_, Some(source)) if width == 1 => {
                let cells = &Counted::new(values, self.weights);
                self.cop_part(part, &Cop { cells, source, shares: &[] }, cells, cycle, state)
            }
            (_, Some(source)) => {
                let cells = &Wide::new(values, width, self.weights);
                self.cop_part(part, &Cop { cells, source, shares: &[] }, cells, cycle, state)
            }
            (_, None) => unreachable!("what is not compact is general"),
        }
    }

    /// No versions stand in cells, so none need be reset or checked.
    fn ordered<C: Cells>(
        &mut self,
        part: Part<'_>,
        roster: &Roster,
        cells: &C,
        (places, shares): (&[u32], &[f32]),
        state: &mut State,
    ) -> Result<(), TrainError> {
        if part.epochs.start == 0 {
            self.report.threads = roster.busy();
        }
        let executor = &Ordered { cells, roster, places, shares };
        self.part(part, &Over { executor, cells }, &Unplanned, state)?;
        Ok(())
    }

    fn cop_part<E: Executor<T, V>, C: Heads>(
        &mut self,
        part: Part<'_>,
        executor: &E,
        cells: &C,
        cycle: Option<&Cycle>,
        state: &mut State,
    ) -> Result<(), TrainError> {
        let threads = self.options.threads.get();
        let base = match cycle {
            Some(cycle) => {
                let base = (u64::from(part.epochs.start) * self.data.len() as u64) as u32;
                cells.set_heads(threads, |parameter| cycle.head(base, parameter));
                base
            }
            None => 0,
        };
        let versions = PlannedVersions::new(cells, threads, cycle.is_some(), base);
        self.part(part, &Over { executor, cells }, &versions, state)?;
        Ok(())
    }

    /// Runs epochs under an executor: with a barrier and a reset between two of them, or without either. Returns the
    /// workers of the last segment.
    fn part(
        &mut self,
        part: Part<'_>,
        engine: &dyn Engine<T, V>,
        versions: &dyn Versions,
        state: &mut State,
    ) -> Result<Vec<Worker>, TrainError> {
        let parameters = self.task.parameters(self.data.width()) as usize * self.task.width();
        let samples = self.data.len() as u64;
        let Part { order, epochs, carry } = part;
        let together = if carry { epochs.len() as u32 } else { 1 };
        let mut workers = Vec::new();
        let mut epoch = epochs.start;
        while epoch < epochs.end && !self.stopped {
            let begun = Instant::now();
            if epoch > epochs.start {
                versions.reset();
            }
            let lap = |epoch| {
                let before = u64::from(epoch) * samples;
                let place = if carry { before } else { 0 };
                Lap::new(self.steps.epoch(epoch), versions.base(before), place)
            };
            let laps: Vec<_> = (epoch..epoch + together).map(lap).collect();
            versions.may_begin(laps[0].base)?;
            let shared = (self.pool, state.lagging.as_ref(), state.intercept);
            let run = Run::new(self.task, self.rows, order, self.steps, shared, self.options);
            let threads = self.options.threads.get();
            workers = if self.steps.decays() {
                let mut workers = Vec::new();
                let scales = Scales::of(&self.steps, epoch, samples as u32);
                for (part, scale) in scales.parts {
                    let lap = lap(epoch).part(part, scales.before.clone());
                    workers.extend(engine.segment(&run, threads, &[lap])?);
                    engine.scale(threads, scale);
                }
                workers
            } else {
                engine.segment(&run, threads, &laps)?
            };
            epoch += together;
            versions.left_at(laps[laps.len() - 1].base.wrapping_add(samples as u32));
            let over = !carry || epoch == self.options.epochs;
            if let (true, Some(lagging)) = (over, &mut state.lagging) {
                state.intercept = lagging.finish(if carry { u64::from(epoch) * samples } else { samples });
            }
            if self.options.record && workers.iter().any(|worker| !worker.commits.is_empty()) {
                self.report.commits.push(order_of(&workers));
            }
            self.note(begun.elapsed(), together, workers.iter().map(|worker| (worker.number, worker.report)));
            if over {
                self.end(&|out| engine.export(threads, out), parameters, state.intercept);
            }
        }
        state.parameters = zeros(parameters);
        engine.export(self.options.threads.get(), &mut state.parameters);
        Ok(workers)
    }

    fn serial(&mut self, order: Option<&[u32]>, values: &[f64], state: &mut State) -> Result<(), TrainError> {
        let (task, rows, options) = (self.task, self.rows, self.options);
        let mut serial = Serial::new(task, rows, order, self.weights, values, state.intercept, options);
        let carry = options.mode == Mode::Carry;
        for epoch in 0..options.epochs {
            let begun = Instant::now();
            let last = epoch + 1 == options.epochs;
            let run = std::panic::AssertUnwindSafe(|| {
                serial.epoch(epoch)?;
                if last {
                    serial.finish();
                }
                Ok::<(), TrainError>(())
            });
            std::panic::catch_unwind(run).map_err(|panic| panicked(0, &*panic))??;
            let did = WorkerReport { transactions: self.data.len() as u64, ..WorkerReport::default() };
            self.note(begun.elapsed(), 1, [(0, did)].into_iter());
            if last || !carry {
                let export = |out: &mut [f64]| out.copy_from_slice(&serial.values);
                self.end(&export, serial.values.len(), serial.intercept);
            }
            if self.stopped {
                break;
            }
        }
        state.intercept = serial.intercept;
        state.parameters = serial.values;
        Ok(())
    }

    /// Adds a segment to the report.
    fn note(&mut self, elapsed: Duration, epochs: u32, workers: impl Iterator<Item = (usize, WorkerReport)>) {
        self.report.epochs += epochs;
        self.report.elapsed += elapsed;
        self.report.epoch_times.push(elapsed);
        for (number, did) in workers {
            match self.report.workers.get_mut(number) {
                Some(worker) => worker.add(&did),
                None => self.report.workers.push(did),
            }
        }
    }

    /// Tells whoever wants to know that an epoch is over.
    fn end(&mut self, export: &dyn Fn(&mut [f64]), parameters: usize, intercept: f64) {
        let flow = (self.after)(&EpochEnd {
            epoch: self.report.epochs,
            elapsed: self.report.elapsed,
            planning: self.report.planning,
            parameters,
            intercept,
            export,
            model: OnceCell::new(),
        });
        self.stopped = flow.is_break();
    }
}

/// Rows in the order of their commits.
fn order_of(workers: &[Worker]) -> Vec<u32> {
    let mut commits: Vec<_> = workers.iter().flat_map(|worker| worker.commits.iter().copied()).collect();
    commits.sort_unstable();
    commits.into_iter().map(|(_, row)| row).collect()
}
