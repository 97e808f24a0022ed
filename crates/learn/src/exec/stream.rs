//! Learning from stitched batches as they come, without a barrier between those that are there: carry mode of
//! specs/cop.md 3.4.

use super::cells::{Bare, Cells, Counted, Heads, Wide};
use super::cop::Cop;
use super::intercept::{BLOCK, Intercept};
use super::options::{Options, Steps};
use super::ordered::Ordered;
use super::pool::{Pool, Stopped, WorkerReport};
use super::roster::Roster;
use super::run::{Executor, Lap, Run, Worker, on_threads};
use super::source::{Alone, CompactSource, GeneralSource};
use super::{Model, TrainError};
use crate::data::{Dataset, Rows, Value};
use crate::memory::zeros;
use crate::plan::{Annotations, Stitched};
use crate::task::{Rule, Task};
use crate::with_rows;

/// A batch, ready to be learnt from.
#[derive(Copy, Clone, Debug)]
pub struct StreamBatch<'a> {
    /// Its samples.
    pub data: &'a Dataset<'a>,
    /// Its plan, stitched behind all batches since the stream was new or settled.
    pub stitched: &'a Stitched,
    /// [`crate::Step::weights`] for each of its reads, in their order; empty where the task does not ask.
    pub weights: &'a [f32],
}

/// A model that learns from one batch after the other, on [`Options::threads`] threads. Bit for bit what one thread would
/// learn from the same batches in the same order, however they are handed over.
#[derive(Debug)]
pub struct Stream {
    lanes: Lanes,
    parameters: usize,
    intercept: f64,
    lagging: Option<Intercept>,
    options: Options,
    steps: Steps,
    /// Samples since the stream was new or settled.
    place: u64,
    /// The transaction at which versions stand.
    base: u32,
    broken: Option<TrainError>,
    workers: Vec<WorkerReport>,
}

#[derive(Debug)]
enum Lanes {
    /// Values alone, for what needs no counters.
    Single(Bare<'static>),
    Counted(Counted),
    Wide(Wide),
}

impl Stream {
    /// Goes on from `model`, for data with as many features. Epochs, mode and scheme of the options have no meaning here.
    ///
    /// # Errors
    /// If the model does not fit.
    pub fn new<T: Task>(
        task: &T,
        features: u32,
        model: Model,
        options: Options,
    ) -> Result<Stream, TrainError> {
        let options = options.with_useful_threads();
        let Model { parameters, intercept } = model;
        let wanted = task.parameters(features) as usize * task.width();
        if parameters.len() != wanted {
            return Err(TrainError::Model { found: parameters.len(), wanted });
        }
        if options.decay != 0.0 {
            return Err(TrainError::Decay("in a stream, which nothing interrupts"));
        }
        if options.packed {
            return Err(TrainError::Packed("in a stream, which learns from each batch once"));
        }
        let lanes = match (task.rule(), task.width()) {
            (Rule::Features, 1) if options.elide => Lanes::Single(Bare::new(&parameters)),
            (_, 1) => Lanes::Counted(Counted::new(&parameters, &[])),
            (_, width) => Lanes::Wide(Wide::new(&parameters, width, &[])),
        };
        Ok(Stream {
            lanes,
            parameters: wanted,
            intercept,
            lagging: task.intercept().then(|| Intercept::new(intercept, BLOCK)),
            steps: Steps::endless(&options),
            options,
            place: 0,
            base: 0,
            broken: None,
            workers: Vec::new(),
        })
    }

    /// Learns from batches, in this order.
    ///
    /// # Errors
    /// If a plan does not fit its batch or its place, or as [`super::train`]. Where learning had begun, the model is lost then,
    /// and every later call gives the same error.
    pub fn learn<T: Task>(&mut self, task: &T, batches: &[StreamBatch<'_>]) -> Result<(), TrainError> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let (mut base, mut place) = (self.base, self.place);
        let mut laps = Vec::new();
        let mut prepared = Vec::new();
        for StreamBatch { data, stitched, .. } in batches {
            stitched.plan.check(task, data)?;
            if stitched.base != base {
                return Err(TrainError::NotReset);
            }
            // Sizes of steps go on from batch to batch.
            let mut steps = self.steps;
            steps.go_on(place);
            laps.push(Lap::new(steps.epoch(0), base, place));
            let annotations = stitched.plan.annotations();
            let Options { threads, chunk, elide, .. } = self.options;
            let roster = match (&self.lanes, annotations) {
                (Lanes::Single(_), Annotations::Compact(versions)) => with_rows!(data, rows => {
                    Roster::new((versions, None), &rows, stitched.plan.order(), threads.get(), chunk)
                }),
                _ => Roster::default(),
            };
            prepared.push((elide.then(|| Alone::of(annotations, stitched.plan.parameters(), None)), roster));
            base = base.wrapping_add(data.len() as u32);
            place += data.len() as u64;
        }
        let threads = self.options.threads.get();
        let pool = Pool::new(threads, self.options.patience, self.options.stop.clone());
        pool.begin(self.place, threads);
        let this = &*self;
        let workers = on_threads(&pool, threads, &|worker| {
            let mut all = batches.iter().zip(&laps).zip(&prepared);
            all.try_for_each(|((batch, lap), prepared)| {
                with_rows!(batch.data, rows => this.lap(task, rows, batch, lap, prepared, &pool, worker))
            })
        });
        match workers {
            Ok(workers) => {
                self.workers.resize(threads, WorkerReport::default());
                for (sum, worker) in self.workers.iter_mut().zip(&workers) {
                    sum.add(&worker.report);
                }
                (self.base, self.place) = (base, place);
                Ok(())
            }
            Err(error) => {
                self.broken = Some(error.clone());
                Err(error)
            }
        }
    }

    /// This worker's part of a batch.
    #[expect(clippy::too_many_arguments, reason = "all that a lap is made of")]
    fn lap<T: Task, V: Value>(
        &self,
        task: &T,
        rows: Rows<'_, V>,
        batch: &StreamBatch<'_>,
        lap: &Lap,
        (alone, roster): &(Option<Alone>, Roster),
        pool: &Pool,
        worker: &mut Worker,
    ) -> Result<(), Stopped> {
        let plan = &batch.stitched.plan;
        let shared = (pool, self.lagging.as_ref(), self.intercept);
        let run = Run::new(task, rows, plan.order(), self.steps, shared, &self.options);
        let shares = batch.weights;
        let elide = self.options.elide;
        match (&self.lanes, plan.annotations()) {
            (Lanes::Single(cells), Annotations::Compact(_)) => {
                run.lap(&Ordered { cells, roster, places: rows.features, shares }, worker, lap)
            }
            (Lanes::Single(_), Annotations::General { .. }) => {
                unreachable!("the planner of a batch chooses the form by the rule, as the stream does")
            }
            (Lanes::Counted(cells), annotations) => {
                planned(&run, cells, annotations, shares, alone.as_ref(), elide, worker, lap)
            }
            (Lanes::Wide(cells), annotations) => {
                planned(&run, cells, annotations, shares, alone.as_ref(), elide, worker, lap)
            }
        }
    }

    /// Makes up for what lags behind in the intercept, and lets versions begin again: batches after it are stitched behind
    /// nothing.
    pub fn settle(&mut self) {
        if let Some(lagging) = &mut self.lagging {
            self.intercept = lagging.finish(self.place);
        }
        let threads = self.options.threads.get();
        match &self.lanes {
            Lanes::Single(_) => {}
            Lanes::Counted(cells) => cells.set_heads(threads, |_| (0, 0)),
            Lanes::Wide(cells) => cells.set_heads(threads, |_| (0, 0)),
        }
        self.steps.go_on(self.place);
        (self.base, self.place) = (0, 0);
    }

    /// The model, as it were if it settled now.
    pub fn model(&self) -> Model {
        let mut parameters = zeros(self.parameters);
        let threads = self.options.threads.get();
        match &self.lanes {
            Lanes::Single(cells) => cells.export(threads, &mut parameters),
            Lanes::Counted(cells) => cells.export(threads, &mut parameters),
            Lanes::Wide(cells) => cells.export(threads, &mut parameters),
        }
        let intercept = self.lagging.as_ref().map_or(self.intercept, |lagging| lagging.settled(self.place));
        Model { parameters, intercept }
    }

    /// Samples learnt from, those of [`Options::seen`] among them.
    pub fn seen(&self) -> u64 {
        self.steps.seen() + self.place
    }

    /// What each thread did so far.
    pub fn workers(&self) -> &[WorkerReport] {
        &self.workers
    }
}

#[expect(clippy::too_many_arguments, reason = "all that a lap is made of")]
fn planned<T: Task, V: Value, C: Heads>(
    run: &Run<'_, T, V>,
    cells: &C,
    annotations: &Annotations,
    shares: &[f32],
    alone: Option<&Alone>,
    elide: bool,
    worker: &mut Worker,
    lap: &Lap,
) -> Result<(), Stopped> {
    match (annotations, GeneralSource::of(annotations, alone, None)) {
        (Annotations::Compact(versions), _) => {
            let source = CompactSource { versions, elide, cycle: None };
            run_lap(run, &Cop { cells, source, shares }, worker, lap)
        }
        (_, Some(source)) => run_lap(run, &Cop { cells, source, shares }, worker, lap),
        (_, None) => unreachable!("what is not compact is general"),
    }
}

fn run_lap<T: Task, V: Value, E: Executor<T, V>>(
    run: &Run<'_, T, V>,
    executor: &E,
    worker: &mut Worker,
    lap: &Lap,
) -> Result<(), Stopped> {
    run.lap(executor, worker, lap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::tests::{begin, go_on, options};
    use crate::exec::{Mode, Scheme, train};
    use crate::plan::mixed::{self, Mixed};
    use crate::plan::{BatchPlanner, Stitcher};
    use proptest::prelude::*;

    /// Batches of these rows, cut at these places, learnt from a few at a time; what is left in the stream.
    fn streamed<T: Task>(
        task: &T,
        rows: &[Vec<(u32, f64)>],
        cuts: &[usize],
        options: &Options,
    ) -> (Stream, Stitcher) {
        let mut edges: Vec<usize> = cuts.iter().map(|cut| cut % (rows.len() + 1)).collect();
        edges.extend([0, rows.len()]);
        edges.sort_unstable();
        let parts: Vec<_> = edges.windows(2).map(|edge| mixed::data(&rows[edge[0]..edge[1]])).collect();
        let (mut planner, mut stitcher) =
            (BatchPlanner::new(), Stitcher::new(task.rule().id(), mixed::WIDTH));
        let stitched: Vec<_> =
            parts.iter().map(|data| stitcher.stitch(planner.plan(task, data).unwrap()).unwrap()).collect();
        let model = begin(task, &mixed::data(rows));
        let mut stream = Stream::new(task, mixed::WIDTH, model, options.clone()).unwrap();
        let all = parts.iter().zip(&stitched);
        let batches: Vec<_> =
            all.map(|(data, stitched)| StreamBatch { data, stitched, weights: &[] }).collect();
        for some in batches.chunks(3) {
            stream.learn(task, some).unwrap();
        }
        (stream, stitcher)
    }

    fn check(rule: Rule, rows: &[Vec<(u32, f64)>], cuts: &[usize], threads: usize, elide: bool) {
        let task = Mixed(rule);
        let options = Options {
            elide,
            chunk: 2,
            schedule: crate::Schedule::Constant(0.5),
            ..options(Scheme::Cop, threads)
        };
        let (mut stream, stitcher) = streamed(&task, rows, cuts, &options);
        // The samples of a row's place decide its label: the same for the whole as for the parts only here.
        let data = concatenated(rows, cuts);
        let mut serial = begin(&task, &data);
        let options = Options { scheme: Scheme::Serial, epochs: 1, mode: Mode::Carry, ..options };
        train(&task, &data, None, &mut serial, &options, &mut go_on).unwrap();
        assert_eq!(stream.model(), serial);
        // specs/cop.md, I4: versions and counters, where there are any, end where the carried state says.
        for parameter in 0..mixed::WIDTH {
            use super::super::cells::Planned;
            let (version, readers) = match &stream.lanes {
                Lanes::Single(_) => continue,
                Lanes::Counted(cells) => (cells.version(parameter), cells.readers(parameter)),
                Lanes::Wide(cells) => (cells.version(parameter), cells.readers(parameter)),
            };
            assert_eq!(version, stitcher.writers()[parameter as usize]);
            if !elide || matches!(rule, Rule::Own(_)) {
                assert_eq!(readers, stitcher.readers()[parameter as usize], "parameter {parameter}");
            }
        }
        stream.settle();
        assert_eq!((stream.model(), stream.seen()), (serial, rows.len() as u64));
    }

    /// The samples of all parts with the labels that they have there.
    fn concatenated(rows: &[Vec<(u32, f64)>], cuts: &[usize]) -> Dataset<'static> {
        let mut edges: Vec<usize> = cuts.iter().map(|cut| cut % (rows.len() + 1)).collect();
        edges.extend([0, rows.len()]);
        edges.sort_unstable();
        let labels: Vec<f64> = edges
            .windows(2)
            .flat_map(|edge| mixed::data(&rows[edge[0]..edge[1]]).labels().to_vec())
            .collect();
        let whole = mixed::data(rows);
        Dataset::new(
            whole.offsets().to_vec(),
            whole.features().to_vec(),
            whole.values().clone(),
            labels,
            mixed::WIDTH,
        )
        .unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

        /// T-COP-10 and T-COP-11 in carry mode over batches, and I4.
        #[test]
        fn batches_are_learnt_from_as_by_one_thread(
            rows in mixed::rows(),
            cuts in prop::collection::vec(0..64_usize, 0..8),
            threads in 1..4_usize,
            elide: bool,
            compact: bool,
        ) {
            let rule = if compact { Rule::Features } else { Rule::Own(7) };
            check(rule, &rows, &cuts, threads, elide);
        }
    }

    #[test]
    fn a_batch_out_of_its_place_is_refused() {
        let task = Mixed(Rule::Own(7));
        let data = mixed::data(&[vec![(0, mixed::BOTH)], vec![(0, mixed::BOTH)]]);
        let planned = BatchPlanner::new().plan(&task, &data).unwrap();
        let mut stitcher = Stitcher::new(7, mixed::WIDTH);
        let first = stitcher.stitch(planned.clone()).unwrap();
        let then = stitcher.stitch(planned).unwrap();
        let mut stream = Stream::new(&task, mixed::WIDTH, begin(&task, &data), Options::default()).unwrap();
        let batch = |stitched| StreamBatch { data: &data, stitched, weights: &[] };
        assert_eq!(stream.learn(&task, &[batch(&then)]), Err(TrainError::NotReset));
        assert_eq!(stream.learn(&task, &[batch(&first), batch(&then)]), Ok(()));
        assert_eq!(stream.learn(&task, &[batch(&first)]), Err(TrainError::NotReset));
    }
}
