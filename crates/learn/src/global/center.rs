//! The centre: takes batches exactly once, orders them durably, learns from them, and survives crashes.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use crate::data::Dataset;
use crate::exec::{Model, Options, Schedule, Stream, StreamBatch, TrainError};
use crate::global::batch::{Batch, BatchError, PlanFate};
use crate::global::checkpoint::Checkpoint;
use crate::global::collector::Next;
use crate::global::log::{Kind, LogError, OrderLog, Place, Record};
use crate::global::serial::Degrees;
use crate::global::storage::{Files, Storage};
use crate::plan::stitch::StitchError;
use crate::plan::{BatchPlanner, PlannedBatch, Stitched, Stitcher};
use crate::task::Task;

/// How a centre works.
#[derive(Clone, PartialEq, Debug)]
pub struct CenterOptions {
    /// Features of the data, and so parameters of the model: the same for all collectors.
    pub features: u32,
    /// Sizes of steps. All samples of a stream are in its first epoch.
    pub schedule: Schedule,
    /// What labels stand for, in words, where batches carry others in their place. Default empty. A folder goes on with the words,
    /// the schedule, and the tasks, that it was begun with.
    pub labels: String,
    /// Threads that learn. Default 1. The model is the same for any number.
    pub threads: NonZeroUsize,
    /// Batches of one source that are kept while an earlier one is missing, at least 0. Default 16. They are in memory
    /// only: their collector keeps them until they are taken.
    pub held_max: usize,
    /// Batches that wait to be learnt from before the centre takes no more. Default 64.
    pub queue_max: usize,
    /// How long learning may stand still before it is given up. Default 30 s.
    pub patience: Duration,
    /// Batches between two checkpoints; 0 for none but those that are asked for. Default 64.
    pub checkpoint_every: u64,
}

/// The default of [`CenterOptions::held_max`].
pub(super) const HELD_MAX: usize = 16;

impl CenterOptions {
    /// The defaults, for data with this many features.
    pub fn new(features: u32) -> CenterOptions {
        CenterOptions {
            features,
            schedule: Schedule::default(),
            labels: String::new(),
            threads: NonZeroUsize::MIN,
            held_max: HELD_MAX,
            queue_max: 64,
            patience: Duration::from_secs(30),
            checkpoint_every: 64,
        }
    }

    /// What the folders of these tasks are of.
    fn kind<T: Task>(&self, tasks: &[T]) -> Kind {
        let mut kind = Kind::learning(tasks, self.features, self.schedule);
        if !self.labels.is_empty() {
            kind.settings.push(format!("labels {}", self.labels.replace('\n', " ")));
        }
        kind
    }
}

/// What became of a batch. Each answer but a refusal tells where its source goes on: everything before that is durable.
#[derive(Debug)]
pub enum Ingest {
    /// It is in the order log, and will be learnt from exactly once, as are those of its source that it was waited for.
    Accepted {
        /// How many records there are before it in the order log.
        position: u64,
        /// Where the source goes on.
        next: Next,
    },
    /// It waits, in memory only, for an earlier one of its source.
    Held(Next),
    /// A batch of this number was taken before. That is as it should be when an answer was lost.
    Duplicate(Next),
    /// Its number is due, but its samples are not: its collector restarted and cut its batches elsewhere. It goes on where
    /// `next` says.
    Elsewhere(Next),
    /// Back pressure: too many wait. It is to be sent again later.
    Full(Next),
    /// It cannot be used, and nothing has changed.
    Refused(BatchError),
}

/// What a centre did since it was opened, and what it has at hand.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Batches taken.
    pub accepted: u64,
    /// Samples in them.
    pub samples: u64,
    /// Batches that had been taken before.
    pub duplicates: u64,
    /// Batches whose samples were cut elsewhere.
    pub elsewhere: u64,
    /// Batches that could not be used.
    pub refused: u64,
    /// Batches turned away because too many waited.
    pub full: u64,
    /// Batches taken that came without a plan, so that they were planned here.
    pub unplanned: u64,
    /// Batches taken whose plan was of no use, so that they were planned here.
    pub replanned: u64,
    /// First touches that were stitched.
    pub stitched: u64,
    /// Batches learnt from when the centre was opened, since the last checkpoint.
    pub replayed: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Batches that wait for an earlier one of their source, now.
    pub held: u64,
    /// Batches that wait to be learnt from, now.
    pub queued: u64,
    /// Bytes of the order log, now.
    pub log_bytes: u64,
}

/// Why a centre cannot go on. It must be opened again, which is always possible once the cause is gone.
#[derive(Debug, thiserror::Error)]
pub enum CenterError {
    /// The order log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The checkpoint, or the folder.
    #[error("the centre's folder: {0}")]
    Io(#[from] io::Error),
    /// A batch in the order log, which was sound when it was taken.
    #[error("a batch in the order log is none of this task: {0}")]
    Batch(#[from] BatchError),
    /// A plan that was sound did not fit the batches before it.
    #[error(transparent)]
    Stitch(#[from] StitchError),
    /// Learning from a batch went wrong: the task panicked, or a plan that was sent cannot be followed. The order log holds the
    /// samples, and opening the centre again plans them anew.
    #[error(transparent)]
    Learn(#[from] TrainError),
    /// An earlier call went wrong.
    #[error("the centre stopped at an earlier error: open it again")]
    Stopped,
}

/// A batch at its place in the order.
#[derive(Debug)]
struct Ordered {
    data: Dataset<'static>,
    stitched: Stitched,
    /// Weight of each read, if the task weighs.
    weights: Vec<f32>,
}

/// The centre. The host's duties: (1) hand it every batch that arrives, and each answer to the batch's collector;
/// (2) call [`Center::work`] when nothing arrives, so that batches are learnt from; (3) open it again after an error.
///
/// A batch costs: one write and one sync of the log, a step of stitching for each first touch, and learning. Batches that
/// are planned at their collectors are not planned here.
#[derive(Debug)]
pub struct Center<T, S = Files> {
    storage: S,
    log: OrderLog,
    state: State<T>,
    /// Batches taken since the last checkpoint.
    since: u64,
    stopped: bool,
}

/// All that is lost in a crash, and made again from checkpoint and log.
#[derive(Debug)]
struct State<T> {
    /// What is learnt, each into a stream of its own. They touch the same parameters of a sample, so one plan serves them all.
    tasks: Vec<T>,
    options: CenterOptions,
    planner: BatchPlanner,
    stitcher: Stitcher,
    streams: Vec<Stream>,
    degrees: Degrees,
    sources: BTreeMap<u32, Next>,
    held: BTreeMap<(u32, u64), (Batch, PlanFate, Vec<u8>)>,
    queue: VecDeque<Ordered>,
    counts: Counts,
}

impl<T: Task> Center<T, Files> {
    /// Opens the centre whose state is in this folder, which is made if there is none.
    ///
    /// # Errors
    /// If another centre uses the folder, or it was begun with another task or other settings, or is damaged beyond its end.
    pub fn open(folder: &Path, task: T, options: CenterOptions) -> Result<Center<T>, CenterError> {
        Center::open_all(folder, vec![task], options)
    }

    /// The same of several tasks, which all learn from every batch: of one rule, one width and one answer to whether they
    /// weigh.
    ///
    /// # Panics
    /// If they are not, or there is none.
    ///
    /// # Errors
    /// As [`Center::open`].
    pub fn open_all(folder: &Path, tasks: Vec<T>, options: CenterOptions) -> Result<Center<T>, CenterError> {
        Center::on_all(Files::open(folder)?, tasks, options)
    }
}

impl<T: Task, S: Storage> Center<T, S> {
    /// Opens the centre whose state is in this storage: from its checkpoint, if there is one, and what the order log has
    /// behind that.
    ///
    /// # Errors
    /// As [`Center::open`].
    pub fn on(storage: S, task: T, options: CenterOptions) -> Result<Center<T, S>, CenterError> {
        Center::on_all(storage, vec![task], options)
    }

    /// The same of several tasks.
    ///
    /// # Panics
    /// As [`Center::open_all`].
    ///
    /// # Errors
    /// As [`Center::open`].
    pub fn on_all(
        mut storage: S,
        tasks: Vec<T>,
        options: CenterOptions,
    ) -> Result<Center<T, S>, CenterError> {
        let likeness = |task: &T| (Kind::of(task, options.features), task.weighted());
        assert!(
            !tasks.is_empty() && tasks.iter().all(|task| likeness(task) == likeness(&tasks[0])),
            "a centre is of one kind of task"
        );
        let kind = options.kind(&tasks);
        let mut state = State::new(tasks, options)?;
        let mut from = Place::START;
        if let Some(checkpoint) = Checkpoint::load(&mut storage, &kind)? {
            from = checkpoint.place;
            state.begin_at(checkpoint)?;
        }
        let log = OrderLog::open(&mut storage, &kind, from, |record, _| state.replay(record))?;
        let since = state.counts.replayed;
        Ok(Center { storage, log, state, since, stopped: false })
    }

    /// Takes a batch that arrived.
    ///
    /// # Errors
    /// If the storage refuses. Whether the batch was taken is unknown then: the centre must be opened again.
    pub fn ingest(&mut self, bytes: Vec<u8>) -> Result<Ingest, CenterError> {
        self.guarded(|center| center.admit(bytes))
    }

    /// Learns from the batches that wait; how many there were.
    ///
    /// # Errors
    /// If learning goes wrong. The centre must be opened again.
    pub fn work(&mut self) -> Result<u64, CenterError> {
        self.guarded(|center| {
            let mut learnt = 0;
            loop {
                learnt += center.state.work()?;
                if !center.release()? {
                    return Ok(learnt);
                }
            }
        })
    }

    /// The model after all batches taken so far; of several tasks, that of the first.
    ///
    /// # Errors
    /// As [`Center::work`].
    pub fn model(&mut self) -> Result<Model, CenterError> {
        self.work()?;
        Ok(self.state.streams[0].model())
    }

    /// The models of all tasks after all batches taken so far.
    ///
    /// # Errors
    /// As [`Center::work`].
    pub fn models(&mut self) -> Result<Vec<Model>, CenterError> {
        self.work()?;
        Ok(self.state.streams.iter().map(Stream::model).collect())
    }

    /// Learns from all that waits, marks the place in the order log, and saves the model, so that a restart begins here.
    ///
    /// # Errors
    /// As [`Center::ingest`] and [`Center::work`].
    pub fn checkpoint(&mut self) -> Result<(), CenterError> {
        self.work()?;
        self.guarded(Center::mark_and_save)
    }

    /// Where a source goes on: what its collector asks after a restart.
    pub fn next(&self, source: u32) -> Next {
        self.state.sources.get(&source).copied().unwrap_or_default()
    }

    /// Samples taken of all sources.
    pub fn samples(&self) -> u64 {
        self.state.sources.values().map(|next| next.sample).sum()
    }

    /// Numbers to look at.
    pub fn counts(&self) -> Counts {
        Counts {
            held: self.state.held.len() as u64,
            queued: self.state.queue.len() as u64,
            log_bytes: self.log.end().offset,
            ..self.state.counts
        }
    }

    /// The storage, when the centre is no longer needed.
    pub fn into_storage(self) -> S {
        self.storage
    }

    fn guarded<R>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<R, CenterError>,
    ) -> Result<R, CenterError> {
        if self.stopped {
            return Err(CenterError::Stopped);
        }
        let result = act(self);
        self.stopped = result.is_err();
        result
    }

    fn admit(&mut self, bytes: Vec<u8>) -> Result<Ingest, CenterError> {
        let State { tasks, options, counts, .. } = &mut self.state;
        let (batch, fate) = match Batch::decode(&bytes, &tasks[0], options.features) {
            Ok(decoded) => decoded,
            Err(error) => {
                counts.refused += 1;
                return Ok(Ingest::Refused(error));
            }
        };
        let source = batch.source;
        let next = self.next(source);
        if batch.seq < next.seq {
            self.state.counts.duplicates += 1;
            return Ok(Ingest::Duplicate(next));
        }
        if batch.seq > next.seq {
            return Ok(self.hold(batch, fate, bytes, next));
        }
        if batch.sample != next.sample {
            self.state.counts.elsewhere += 1;
            return Ok(Ingest::Elsewhere(next));
        }
        if self.state.queue.len() >= self.state.options.queue_max.max(1) {
            self.state.counts.full += 1;
            return Ok(Ingest::Full(next));
        }
        let position = match self.take(batch, fate, bytes)? {
            Ok(position) => position,
            Err(error) => return Ok(Ingest::Refused(error)),
        };
        self.release()?;
        self.checkpoint_if_due()?;
        Ok(Ingest::Accepted { position, next: self.next(source) })
    }

    /// Keeps a batch that came early.
    fn hold(&mut self, batch: Batch, fate: PlanFate, bytes: Vec<u8>, next: Next) -> Ingest {
        let State { held, options, counts, .. } = &mut self.state;
        let (source, seq) = (batch.source, batch.seq);
        let of_source = held.range((source, 0)..=(source, u64::MAX)).count();
        if !held.contains_key(&(source, seq)) && of_source >= options.held_max {
            counts.full += 1;
            return Ingest::Full(next);
        }
        // The later one of two with the same number is the one that its collector knows of.
        held.insert((source, seq), (batch, fate, bytes));
        Ingest::Held(next)
    }

    /// Takes those held batches whose turn has come, as far as there is room; whether there were any.
    fn release(&mut self) -> Result<bool, CenterError> {
        let mut any = false;
        loop {
            let State { held, sources, queue, options, .. } = &self.state;
            if queue.len() >= options.queue_max.max(1) {
                return Ok(any);
            }
            let next = |source: u32| sources.get(&source).copied().unwrap_or_default();
            let due = held.keys().copied().find(|&(source, seq)| seq <= next(source).seq);
            let Some((source, seq)) = due else { return Ok(any) };
            let next = next(source);
            let Some((batch, fate, bytes)) = self.state.held.remove(&(source, seq)) else { return Ok(any) };
            // One that was sent before a restart, or has been taken meanwhile: its collector sends what is due.
            if seq == next.seq && batch.sample == next.sample {
                any |= self.take(batch, fate, bytes)?.is_ok();
            }
        }
    }

    /// Takes the batch that is due: from here on it is learnt from exactly once.
    fn take(
        &mut self,
        batch: Batch,
        fate: PlanFate,
        bytes: Vec<u8>,
    ) -> Result<Result<u64, BatchError>, CenterError> {
        let Batch { source, seq, sample, .. } = batch;
        let (data, plan) = match batch.planned(&mut self.state.planner, &self.state.tasks[0]) {
            Ok(planned) => planned,
            Err(error) => {
                self.state.counts.refused += 1;
                return Ok(Err(error.into()));
            }
        };
        if u64::from(self.state.stitcher.base()) + data.len() as u64 > u64::from(u32::MAX) {
            // Versions are used up: begin again at 0, which is what a mark does.
            self.state.work()?;
            self.mark()?;
        }
        let position = self.log.end().position;
        // specs/cop.md 3.5: durable before anything is learnt from it.
        self.log.append(&mut self.storage, &Record::Batch(bytes))?;
        let counts = &mut self.state.counts;
        counts.accepted += 1;
        counts.samples += data.len() as u64;
        counts.unplanned += u64::from(matches!(fate, PlanFate::None));
        counts.replanned += u64::from(matches!(fate, PlanFate::Refused(_)));
        self.since += 1;
        let next = Next { seq: seq + 1, sample: sample + data.len() as u64 };
        self.state.sources.insert(source, next);
        self.state.order(data, plan)?;
        Ok(Ok(position))
    }

    fn checkpoint_if_due(&mut self) -> Result<(), CenterError> {
        let every = self.state.options.checkpoint_every;
        if every == 0 || self.since < every {
            return Ok(());
        }
        self.state.work()?;
        self.mark_and_save()
    }

    fn mark_and_save(&mut self) -> Result<(), CenterError> {
        self.mark()?;
        let kind = self.state.options.kind(&self.state.tasks);
        let checkpoint = self.state.checkpoint(self.log.end());
        checkpoint.save(&mut self.storage, &kind)?;
        self.state.counts.checkpoints += 1;
        self.since = 0;
        Ok(())
    }

    /// Marks the place: nothing waits to be learnt from.
    fn mark(&mut self) -> Result<(), CenterError> {
        assert!(self.state.queue.is_empty(), "all batches are learnt from before a mark");
        self.log.append(&mut self.storage, &Record::Mark)?;
        self.state.settle();
        Ok(())
    }
}

impl<T: Task> State<T> {
    fn new(tasks: Vec<T>, options: CenterOptions) -> Result<State<T>, TrainError> {
        let features = options.features;
        let task = &tasks[0];
        let begun = tasks.iter().map(|task| stream(task, Model::zeros(task, features), 0, &options));
        Ok(State {
            planner: BatchPlanner::new(),
            stitcher: Stitcher::new(task.rule().id(), task.parameters(features)),
            streams: begun.collect::<Result<_, _>>()?,
            degrees: Degrees::new(task, features),
            sources: BTreeMap::new(),
            held: BTreeMap::new(),
            queue: VecDeque::new(),
            counts: Counts::default(),
            tasks,
            options,
        })
    }

    fn begin_at(&mut self, checkpoint: Checkpoint) -> Result<(), TrainError> {
        let Checkpoint { place: _, models, seen, degrees, sources } = checkpoint;
        let begun = self.tasks.iter().zip(models);
        let begun = begun.map(|(task, model)| stream(task, model, seen, &self.options));
        self.streams = begun.collect::<Result<_, _>>()?;
        self.degrees = Degrees { counts: degrees };
        self.sources = sources;
        Ok(())
    }

    fn checkpoint(&self, place: Place) -> Checkpoint {
        Checkpoint {
            place,
            models: self.streams.iter().map(Stream::model).collect(),
            seen: self.streams[0].seen(),
            degrees: self.degrees.counts.clone(),
            sources: self.sources.clone(),
        }
    }

    /// Does what was done when this record was written.
    fn replay(&mut self, record: Record) -> Result<(), CenterError> {
        match record {
            Record::Mark => {
                self.work()?;
                self.settle();
            }
            Record::Batch(bytes) => {
                let (mut batch, _) = Batch::decode(&bytes, &self.tasks[0], self.options.features)?;
                // Planned anew: the same plan, unless it was one that cannot be followed, which would stop every centre that
                // is opened on this log.
                batch.plan = None;
                let Batch { source, seq, sample, .. } = batch;
                let (data, plan) =
                    batch.planned(&mut self.planner, &self.tasks[0]).map_err(BatchError::from)?;
                let next = Next { seq: seq + 1, sample: sample + data.len() as u64 };
                self.sources.insert(source, next);
                self.counts.replayed += 1;
                self.order(data, plan)?;
                if self.queue.len() >= self.options.queue_max {
                    self.work()?;
                }
            }
        }
        Ok(())
    }

    /// Stitches a batch behind all others, and has it wait to be learnt from.
    fn order(&mut self, data: Dataset<'static>, plan: PlannedBatch) -> Result<(), CenterError> {
        let weights = self.degrees.count(&self.tasks[0], &data);
        self.counts.stitched += plan.seams.ends.len() as u64;
        let stitched = self.stitcher.stitch(plan)?;
        self.queue.push_back(Ordered { data, stitched, weights });
        Ok(())
    }

    /// Learns from all that waits.
    fn work(&mut self) -> Result<u64, CenterError> {
        if self.queue.is_empty() {
            return Ok(0);
        }
        fn batch(ordered: &Ordered) -> StreamBatch<'_> {
            let Ordered { data, stitched, weights } = ordered;
            StreamBatch { data, stitched, weights }
        }
        let batches: Vec<StreamBatch<'_>> = self.queue.iter().map(batch).collect();
        for (task, stream) in self.tasks.iter().zip(&mut self.streams) {
            stream.learn(task, &batches)?;
        }
        let learnt = batches.len() as u64;
        self.queue.clear();
        Ok(learnt)
    }

    fn settle(&mut self) {
        self.streams.iter_mut().for_each(Stream::settle);
        self.stitcher.reset();
    }
}

fn stream<T: Task>(task: &T, model: Model, seen: u64, options: &CenterOptions) -> Result<Stream, TrainError> {
    let CenterOptions { threads, schedule, features, patience, .. } = *options;
    Stream::new(task, features, model, Options { threads, schedule, seen, patience, ..Options::default() })
}
