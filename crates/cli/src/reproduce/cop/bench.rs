//! Data, plans and timed runs for `reproduce cop`, each made once.

use super::super::when_interrupted;
use anyhow::Context;
use isochrone_core::topology::Cells;
use isochrone_core::{Matrix, Span};
use isochrone_learn::generate::{Generator, Recipe, Statistics, write_arrow, write_svmlight};
use isochrone_learn::global::{Batch, Center, CenterOptions, Ingest, Memory};
use isochrone_learn::plan::{BatchPlanner, Plan, Statistics as PlanStatistics, Stitcher};
use isochrone_learn::read::{self, Reader};
use isochrone_learn::tasks::Linear;
use isochrone_learn::{Dataset, Model, Options, Rule, Scheme, train};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::BufWriter;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The data sets, as scaled here: throughput does not depend on how many samples there are, but on how large the model is
/// beside the caches. IMDB is small enough to be whole.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Set {
    Kdda,
    Kddb,
    Imdb,
    /// A hot spot of so many features.
    Spot(u32),
}

impl Set {
    pub(super) const PUBLISHED: [Set; 3] = [Set::Kdda, Set::Kddb, Set::Imdb];
    pub(super) const SPOTS: [Set; 3] = [Set::Spot(1_000), Set::Spot(10_000), Set::Spot(100_000)];

    pub(super) fn name(self) -> String {
        match self {
            Set::Kdda => "KDDA".to_owned(),
            Set::Kddb => "KDDB".to_owned(),
            Set::Imdb => "IMDB".to_owned(),
            Set::Spot(features) => format!("hot spot {}K", features / 1_000),
        }
    }

    /// By how much samples and features are divided.
    pub(super) fn scale(self) -> u32 {
        match self {
            Set::Kdda | Set::Kddb => 16,
            Set::Imdb | Set::Spot(_) => 1,
        }
    }

    pub(super) fn recipe(self) -> Recipe {
        match self {
            Set::Kdda => Recipe::kdda().scaled(self.scale()),
            Set::Kddb => Recipe::kddb().scaled(self.scale()),
            Set::Imdb => Recipe::imdb(),
            Set::Spot(features) => Recipe { samples: SPOT_SAMPLES, ..Recipe::hotspot(features) },
        }
    }
}

/// Of a million published: enough, as every sample is like every other.
const SPOT_SAMPLES: u32 = 100_000;

/// Rounds of a comparison; each runs all schemes once, one after the other, so that what else the machine does meets all.
const ROUNDS: usize = 3;

/// Epochs of a run. The published runs have 20; what an epoch takes does not depend on their number.
pub(super) const EPOCHS: u32 = 2;

/// Samples of a batch, of the pipeline and of a file of Arrow.
const BATCH: usize = 1 << 14;

/// The schemes, in the order of the source's table. Its Ideal is called Hogwild here.
pub(super) const SCHEMES: [Scheme; 4] = [Scheme::Hogwild, Scheme::Cop, Scheme::Locking, Scheme::Occ];

/// Data with its plan, and what it is like.
pub(super) struct Prepared {
    pub(super) data: Dataset<'static>,
    pub(super) plan: Plan,
    /// n / depth.
    pub(super) parallelism: f64,
    pub(super) depth: u32,
    /// Probability that two samples share a feature.
    pub(super) sharing: f64,
    pub(super) about: Statistics,
}

/// What the first epoch costs when it also plans. Seconds an epoch.
#[derive(Copy, Clone)]
pub(super) struct First {
    pub(super) locking: f64,
    pub(super) planned_first: f64,
    pub(super) later: f64,
    pub(super) offline: f64,
}

/// What a file that is loaded holds.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Form {
    /// svmlight.
    Text,
    /// An Arrow file, not compressed: numbers as they lie in memory.
    Arrow,
}

/// What loading costs. Seconds.
#[derive(Copy, Clone)]
pub(super) struct Load {
    pub(super) megabytes: f64,
    pub(super) plain: f64,
    pub(super) planned: f64,
    /// Planning by itself, of data in memory.
    pub(super) alone: f64,
    pub(super) values: usize,
}

/// The pipeline of section 3.5: samples a second at the centre.
#[derive(Copy, Clone)]
pub(super) struct Pipeline {
    pub(super) planned_at_collectors: f64,
    pub(super) planned_at_center: f64,
    /// The same with the delays of a wide area between collectors and centre.
    pub(super) over_the_wan: f64,
    pub(super) over_the_wan_unplanned: f64,
    pub(super) locking: f64,
    /// Stitching by itself.
    pub(super) stitching: f64,
    /// Learning by itself.
    pub(super) learning: f64,
}

/// Everything that was run, by what it was.
#[derive(Default)]
pub(crate) struct Bench {
    prepared: BTreeMap<Set, Rc<Prepared>>,
    /// Millions of samples a second, by set and threads, in the order of [`SCHEMES`].
    rates: BTreeMap<(Set, usize), [f64; 4]>,
    firsts: BTreeMap<Set, First>,
    loads: BTreeMap<(Set, Form), Load>,
    pipeline: Option<Pipeline>,
    /// Where data lies that is read, once some was.
    files: Option<Arc<Mutex<Option<TempDir>>>>,
}

/// A folder for what is read, which goes with this, also where the program is interrupted.
struct Folder(Arc<Mutex<Option<TempDir>>>);

impl Drop for Folder {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Cores of this machine.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// As many threads as the published runs have, where there are as many cores.
pub(super) fn many() -> usize {
    cores().min(8)
}

fn threads(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN)
}

/// Runs are of the published machine: hinge loss, penalty 1, steps of 0.1 times 0.9 after each epoch.
fn task() -> Linear {
    Linear::published_svm(1.0)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    if times.len() % 2 == 1 { times[middle] } else { 0.5 * (times[middle - 1] + times[middle]) }
}

impl Bench {
    pub(super) fn prepared(&mut self, set: Set) -> anyhow::Result<Rc<Prepared>> {
        if let Some(prepared) = self.prepared.get(&set) {
            return Ok(prepared.clone());
        }
        // The large ones come one after the other; what was measured is kept, they need not be.
        self.prepared.retain(|_, prepared| prepared.data.entries() < 8_000_000);
        let data = Generator::new(set.recipe())?.all(threads(cores()));
        let plan = Plan::in_blocks(&task(), &data, threads(cores()))?;
        let statistics = PlanStatistics::of(&plan, &data)?;
        let about = Statistics::of(&data, 1);
        let prepared = Rc::new(Prepared {
            parallelism: statistics.parallelism(),
            depth: statistics.depth(),
            sharing: about.sharing,
            about,
            data,
            plan,
        });
        self.prepared.insert(set, prepared.clone());
        Ok(prepared)
    }

    /// Times each epoch of a run.
    fn epochs(&self, prepared: &Prepared, options: &Options, planned: bool) -> anyhow::Result<Vec<f64>> {
        let task = task();
        let mut model = Model::zeros(&task, prepared.data.width());
        let plan = planned.then_some(&prepared.plan);
        let report =
            train(&task, &prepared.data, plan, &mut model, options, &mut |_| ControlFlow::Continue(()))?;
        Ok(report.epoch_times.iter().map(Duration::as_secs_f64).collect())
    }

    /// Millions of samples a second of all schemes: the median epoch of three rounds.
    pub(super) fn rates(&mut self, set: Set, number: usize) -> anyhow::Result<[f64; 4]> {
        if let Some(rates) = self.rates.get(&(set, number)) {
            return Ok(*rates);
        }
        let prepared = self.prepared(set)?;
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            for (scheme, times) in SCHEMES.into_iter().zip(&mut times) {
                let options =
                    Options { scheme, threads: threads(number), epochs: EPOCHS, ..Options::default() };
                times.extend(self.epochs(&prepared, &options, true)?);
            }
        }
        let samples = prepared.data.len() as f64 / 1e6;
        let rates = times.map(|times| samples / median(times).max(1e-9));
        self.rates.insert((set, number), rates);
        Ok(rates)
    }

    pub(super) fn rate(&mut self, set: Set, number: usize, scheme: Scheme) -> anyhow::Result<f64> {
        let at = SCHEMES.iter().position(|one| *one == scheme).context("a scheme of the table")?;
        Ok(self.rates(set, number)?[at])
    }

    /// E5: an epoch under locks with and without planning, and later epochs with that plan and with one made before.
    pub(super) fn first(&mut self, set: Set) -> anyhow::Result<First> {
        if let Some(first) = self.firsts.get(&set) {
            return Ok(*first);
        }
        let prepared = self.prepared(set)?;
        let options = Options { threads: threads(many()), epochs: EPOCHS + 1, ..Options::default() };
        let (mut locking, mut first, mut later, mut offline) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let locks = Options { scheme: Scheme::Locking, epochs: 1, ..options.clone() };
            locking.extend(self.epochs(&prepared, &locks, false)?);
            let times = self.epochs(&prepared, &Options { first_epoch: true, ..options.clone() }, false)?;
            first.push(times[0]);
            later.extend(&times[1..]);
            offline.extend(self.epochs(&prepared, &options, true)?);
        }
        let told = First {
            locking: median(locking),
            planned_first: median(first),
            later: median(later),
            offline: median(offline),
        };
        self.firsts.insert(set, told);
        Ok(told)
    }

    /// E4: reading a file with and without planning, by turns.
    pub(super) fn load(&mut self, set: Set, form: Form) -> anyhow::Result<Load> {
        if let Some(load) = self.loads.get(&(set, form)) {
            return Ok(*load);
        }
        let scale = if set == Set::Imdb { 1 } else { 64 };
        let recipe = Recipe { ..set.recipe() };
        let recipe = recipe.scaled(scale / set.scale().min(scale));
        let (_folder, path) = self.folder()?;
        let path = path.join("data");
        let data = Generator::new(recipe)?.all(threads(cores()));
        let mut file = BufWriter::with_capacity(1 << 16, std::fs::File::create(&path)?);
        match form {
            Form::Text => write_svmlight(&data, &mut file)?,
            Form::Arrow => write_arrow(&data, threads(BATCH), &mut file)?,
        }
        file.into_inner()?.sync_all()?;
        let values = data.entries();
        drop(data);
        let megabytes = std::fs::metadata(&path)?.len() as f64 / 1e6;
        let options = read::Options::default;
        let (mut plain, mut planned, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..2 * ROUNDS + 1 {
            let begun = Instant::now();
            let data = Reader::open(&path, options())?.all()?;
            plain.push(begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            Plan::compact(&data);
            alone.push(begun.elapsed().as_secs_f64());
            drop(data);
            let begun = Instant::now();
            let data = Reader::open(&path, options())?.all_planned()?;
            planned.push(begun.elapsed().as_secs_f64());
            drop(data);
        }
        let [plain, planned, alone] = [plain, planned, alone].map(median);
        let load = Load { megabytes, plain, planned, alone, values };
        self.loads.insert((set, form), load);
        Ok(load)
    }

    /// A new folder, and its path.
    fn folder(&mut self) -> anyhow::Result<(Folder, PathBuf)> {
        let held = match &self.files {
            Some(held) => held.clone(),
            None => {
                let held: Arc<Mutex<Option<TempDir>>> = Arc::default();
                when_interrupted(&held, |folder| *folder = None)?;
                self.files.insert(held).clone()
            }
        };
        let mut place = held.lock().unwrap_or_else(PoisonError::into_inner);
        // With the lock: whoever interrupts finds it.
        let made = tempfile::Builder::new().prefix("isochrone-cop-").tempdir()?;
        let path = place.insert(made).path().to_owned();
        drop(place);
        Ok((Folder(held), path))
    }

    /// E6: four collectors and a centre, with all batches there, and with the delays of a wide area.
    pub(super) fn pipeline(&mut self) -> anyhow::Result<Pipeline> {
        if let Some(pipeline) = self.pipeline {
            return Ok(pipeline);
        }
        let data = Generator::new(Recipe::kdda().scaled(64))?.all(threads(cores()));
        let rows: Vec<usize> = (0..data.len()).collect();
        let parts: Vec<Dataset<'static>> = rows.chunks(BATCH).map(|rows| data.select(rows)).collect();
        let features = data.width();
        let (mut with, mut without, mut locking) = (Vec::new(), Vec::new(), Vec::new());
        let (mut far, mut far_unplanned) = (Vec::new(), Vec::new());
        let (near, wan) = ([Duration::ZERO; 4], wan()?);
        let (mut stitching, mut learning) = (Vec::new(), Vec::new());
        let task = task();
        let mut model = Model::zeros(&task, features);
        for _ in 0..ROUNDS {
            with.push(center(&task, &parts, features, true, near)?);
            without.push(center(&task, &parts, features, false, near)?);
            far.push(center(&task, &parts, features, true, wan)?);
            far_unplanned.push(center(&task, &parts, features, false, wan)?);
            for (scheme, times) in [(Scheme::Locking, &mut locking), (Scheme::Cop, &mut learning)] {
                let options = Options { scheme, threads: threads(many()), epochs: 1, ..Options::default() };
                times.push(train_once(&task, &data, &mut model, &options)?);
            }
            let mut stitcher = Stitcher::new(Rule::Features.id(), features);
            let mut planner = BatchPlanner::new();
            let planned: Result<Vec<_>, _> = parts.iter().map(|part| planner.compact(part)).collect();
            let begun = Instant::now();
            for batch in planned? {
                stitcher.stitch(batch)?;
            }
            stitching.push(begun.elapsed().as_secs_f64());
        }
        let samples = data.len() as f64;
        let rate = |times: Vec<f64>| samples / median(times).max(1e-9);
        let pipeline = Pipeline {
            planned_at_collectors: rate(with),
            planned_at_center: rate(without),
            over_the_wan: rate(far),
            over_the_wan_unplanned: rate(far_unplanned),
            locking: rate(locking),
            stitching: rate(stitching),
            learning: rate(learning),
        };
        self.pipeline = Some(pipeline);
        Ok(pipeline)
    }
}

/// Seconds of an epoch, planning apart.
fn train_once(
    task: &Linear,
    data: &Dataset<'_>,
    model: &mut Model,
    options: &Options,
) -> anyhow::Result<f64> {
    model.parameters.fill(0.0);
    Ok(train(task, data, None, model, options, &mut |_| ControlFlow::Continue(()))?.elapsed.as_secs_f64())
}

/// Batches that a collector has under way at most.
const WINDOW: usize = 16;

/// How long a batch takes to a centre in Virginia from four other regions, and an answer back.
fn wan() -> anyhow::Result<[Duration; 4]> {
    let text = include_str!("../../../../../reference/rtt/helios-ec2.csv");
    let matrix = Matrix::parse(text, "reference/rtt/helios-ec2.csv", Cells::RoundTrip, Span::ZERO)
        .map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    let center = matrix.region("Virginia").context("the file has Virginia")?;
    let others = matrix.regions().filter(|region| *region != center);
    let delays: Vec<_> = others.map(|region| matrix.one_way(region, center)).collect();
    let delays: Vec<_> = delays.iter().map(|span| Duration::from_nanos(span.as_nanos())).collect();
    delays.try_into().map_err(|_| anyhow::anyhow!("the file has five regions"))
}

/// Seconds in which a centre takes, orders, stitches and learns all batches, in memory, of four collectors by turns, from when
/// the first is there. A batch arrives so long after it was sent, and its answer so long after it was taken; so many of each
/// collector are under way.
fn center(
    task: &Linear,
    parts: &[Dataset<'static>],
    features: u32,
    planned: bool,
    delays: [Duration; 4],
) -> anyhow::Result<f64> {
    let mut planner = BatchPlanner::new();
    let (mut sources, mut next) = ([const { VecDeque::new() }; 4], [(0_u64, 0_u64); 4]);
    for (at, part) in parts.iter().enumerate() {
        let source = at % 4;
        let (seq, sample) = next[source];
        next[source] = (seq + 1, sample + part.len() as u64);
        let plan = if planned { Some(planner.compact(part)?) } else { None };
        let batch = Batch { source: source as u32, seq, sample, data: part.clone(), plan };
        sources[source].push_back(batch.encode());
    }
    let options = CenterOptions {
        threads: threads(many()),
        checkpoint_every: 0,
        queue_max: parts.len(),
        ..CenterOptions::new(features)
    };
    let mut center = Center::on(Memory::default(), *task, options)?;
    let begun = Instant::now();
    // When the next batch of each collector is there, in order; those behind the window come as answers do.
    let mut arriving = BinaryHeap::new();
    for (source, batches) in sources.iter().enumerate() {
        arriving.extend((0..batches.len().min(WINDOW)).map(|_| Reverse((begun + delays[source], source))));
    }
    while let Some(Reverse((at, source))) = arriving.pop() {
        let wait = at.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            // Nothing has arrived: learn from what has.
            center.work()?;
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
        }
        let Some(bytes) = sources[source].pop_front() else { continue };
        let taken = center.ingest(bytes)?;
        anyhow::ensure!(matches!(taken, Ingest::Accepted { .. }), "a batch was not taken: {taken:?}");
        if sources[source].len() >= WINDOW {
            arriving.push(Reverse((Instant::now() + 2 * delays[source], source)));
        }
    }
    center.work()?;
    let first = delays.into_iter().min().unwrap_or_default();
    Ok(begun.elapsed().saturating_sub(first).as_secs_f64())
}
