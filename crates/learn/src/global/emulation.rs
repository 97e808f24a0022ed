//! Collectors in several regions and a centre, in one process and in virtual time: what a deployment does, with delays from
//! a matrix of round trips, loss, repetition, and restarts, all drawn from one seed.

use std::collections::{BTreeMap, VecDeque};

use isochrone_core::id::RegionId;
use isochrone_core::{Instant, Matrix, Random, Span};

use crate::data::Dataset;
use crate::global::center::{Center, CenterError, HELD_MAX, Ingest};
use crate::global::collector::{Collector, CollectorOptions, Next};
use crate::global::storage::Storage;
use crate::task::Task;
use crate::with_rows;

/// What to emulate.
#[derive(Clone, Debug)]
pub struct Emulation<'a> {
    /// Round trips between regions.
    pub matrix: &'a Matrix,
    /// Region of the centre.
    pub center: RegionId,
    /// Region of each collector; collector `i` is source `i`.
    pub collectors: Vec<RegionId>,
    /// How collectors batch.
    pub options: CollectorOptions,
    /// Samples that are born at each collector a second, on average.
    pub rate: f64,
    /// Delays are up to this share longer than half a round trip, at random.
    pub jitter: f64,
    /// Probability that a message is lost.
    pub loss: f64,
    /// Probability that a message arrives twice.
    pub repeat: f64,
    /// Probability that a collector restarts when it sends a batch: it forgets all but its source.
    pub restart: f64,
    /// How long a collector waits for an answer before it sends a batch again.
    pub patience: Span,
    /// All else being equal, the same seed gives the same run.
    pub seed: u64,
}

impl<'a> Emulation<'a> {
    /// A run without loss, repetition or restarts: the centre in the matrix's first region, a collector in each other one.
    ///
    /// # Panics
    /// If the matrix has no region.
    pub fn new(matrix: &'a Matrix) -> Emulation<'a> {
        assert!(!matrix.is_empty(), "a centre is in some region");
        let center = RegionId(0);
        let others: Vec<RegionId> = matrix.regions().filter(|&region| region != center).collect();
        Emulation {
            matrix,
            center,
            collectors: if others.is_empty() { vec![center] } else { others },
            options: CollectorOptions::default(),
            rate: 10_000.0,
            jitter: 0.1,
            loss: 0.0,
            repeat: 0.0,
            restart: 0.0,
            patience: Span::from_secs(2),
            seed: 1,
        }
    }
}

/// What a source went through.
#[derive(Clone, PartialEq, Debug)]
pub struct SourceReport {
    /// Its region.
    pub region: String,
    /// Samples that the centre took.
    pub samples: u64,
    /// Batches that the centre took.
    pub batches: u64,
    /// Batches sent, repetitions included.
    pub sent: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Restarts of its collector.
    pub restarts: u64,
    /// From a sample's birth to its batch's being durable at the centre, on average, virtual time.
    pub delay_mean: Span,
}

/// What happened in an emulation.
#[derive(Clone, PartialEq, Debug)]
pub struct EmulationReport {
    /// One for each collector.
    pub sources: Vec<SourceReport>,
    /// When the last sample was taken, virtual time.
    pub elapsed: Span,
    /// Times that the centre was opened again.
    pub reopened: u64,
}

/// Runs collectors and a centre until the centre has every sample of every source. `data[i]` is what is born at collector `i`,
/// in its order. Where the centre fails, `reopen` gets its storage and returns the centre that goes on, as an operator
/// would.
///
/// # Errors
/// What `reopen` returns.
///
/// # Panics
/// If there is not one data set for each collector, a sample has a feature that the centre's model lacks, or collectors and
/// centre go round in a circle.
pub fn emulate<T: Task + Clone, S: Storage>(
    emulation: &Emulation<'_>,
    task: &T,
    features: u32,
    data: &[Dataset<'_>],
    mut center: Center<T, S>,
    mut reopen: impl FnMut(S, CenterError) -> Result<Center<T, S>, CenterError>,
) -> Result<(EmulationReport, Center<T, S>), CenterError> {
    assert_eq!(data.len(), emulation.collectors.len(), "each collector has its data");
    let mut world = World::new(emulation, task, features, data);
    let samples: u64 = data.iter().map(|data| data.len() as u64).sum();
    while let Some((now, event)) = world.next() {
        let patience = EVENTS_BASE + samples * EVENTS_PER_SAMPLE;
        assert!(
            world.scheduled < patience,
            "{patience} events, and not every sample is taken: {:?}",
            center.counts()
        );
        match event {
            Event::Born { source } => world.born(source, now),
            Event::Due { source } => world.due(source, now),
            Event::Arrives { source, bytes } => {
                let answer = match center.ingest(bytes).and_then(|answer| center.work().map(|_| answer)) {
                    Ok(answer) => answer,
                    // The message is lost with the centre; its collector sends it again.
                    Err(error) => {
                        center = reopen(center.into_storage(), error)?;
                        world.reopened += 1;
                        continue;
                    }
                };
                world.answered(source, answer, now);
            }
            Event::Answered { source, life, next, elsewhere } => {
                world.heard(source, life, next, elsewhere, now);
            }
            Event::Again { source, life } => world.again(source, life, now),
            Event::Asks { source, life } => {
                let next = center.next(source as u32);
                world.answer(source, life, next, true, now);
            }
        }
    }
    for (source, data) in data.iter().enumerate() {
        let next = center.next(source as u32);
        assert_eq!(next.sample, data.len() as u64, "source {source}: every sample is taken");
    }
    Ok((world.report(&center), center))
}

/// Events without which no run ends, and events that each sample may cause: far more than the worst faults do. Beyond them,
/// collectors and centre go round in a circle.
const EVENTS_BASE: u64 = 100_000;
const EVENTS_PER_SAMPLE: u64 = 1_000;

#[derive(Debug)]
enum Event {
    /// The next sample of a source is born.
    Born { source: usize },
    /// A collector's deadline.
    Due { source: usize },
    /// A batch arrives at the centre.
    Arrives { source: usize, bytes: Vec<u8> },
    /// An answer arrives at a collector, if it still is in the life that it was sent to.
    Answered { source: usize, life: u64, next: Next, elsewhere: bool },
    /// A collector sends again what was not answered.
    Again { source: usize, life: u64 },
    /// A collector's question where it goes on arrives at the centre.
    Asks { source: usize, life: u64 },
}

/// A region's collector and what is born there.
struct Site<T> {
    collector: Collector<T>,
    /// How many restarts there were.
    life: u64,
    /// Whether it waits to hear where it goes on.
    asking: bool,
    /// Whether [`Event::Again`] is scheduled for this life.
    timer: bool,
    /// Batches that are sent and not known to be taken: number, and bytes.
    sent: VecDeque<(u64, Vec<u8>)>,
    /// When each sample was born that is born.
    births: Vec<Instant>,
    /// Samples that the centre took.
    taken: u64,
    report: SourceReport,
    /// Sum of all delays, nanoseconds.
    delays: u128,
}

struct World<'a, T> {
    emulation: &'a Emulation<'a>,
    data: &'a [Dataset<'a>],
    sites: Vec<Site<T>>,
    task: &'a T,
    features: u32,
    /// By time, then by the order in which they were scheduled.
    events: BTreeMap<(Instant, u64), Event>,
    scheduled: u64,
    random: Random,
    finished: Instant,
    reopened: u64,
}

impl<'a, T: Task + Clone> World<'a, T> {
    fn new(
        emulation: &'a Emulation<'a>,
        task: &'a T,
        features: u32,
        data: &'a [Dataset<'a>],
    ) -> World<'a, T> {
        let site = |(source, &region): (usize, &RegionId)| Site {
            collector: Collector::new(source as u32, task.clone(), features, emulation.options),
            life: 0,
            asking: false,
            timer: false,
            sent: VecDeque::new(),
            births: Vec::new(),
            taken: 0,
            report: SourceReport {
                region: emulation.matrix.name(region).to_string(),
                samples: 0,
                batches: 0,
                sent: 0,
                bytes: 0,
                restarts: 0,
                delay_mean: Span::ZERO,
            },
            delays: 0,
        };
        let sites: Vec<Site<T>> = emulation.collectors.iter().enumerate().map(site).collect();
        let mut world = World {
            emulation,
            data,
            task,
            features,
            events: BTreeMap::new(),
            scheduled: 0,
            random: Random::seeded(emulation.seed),
            finished: Instant::ZERO,
            reopened: 0,
            sites,
        };
        for source in 0..world.sites.len() {
            world.next_birth(source, Instant::ZERO);
        }
        world
    }

    fn next(&mut self) -> Option<(Instant, Event)> {
        self.events.pop_first().map(|((now, _), event)| (now, event))
    }

    fn at(&mut self, time: Instant, event: Event) {
        self.scheduled += 1;
        self.events.insert((time, self.scheduled), event);
    }

    /// The gap to the next sample is exponential: births are independent of one another.
    fn next_birth(&mut self, source: usize, now: Instant) {
        if self.sites[source].births.len() < self.data[source].len() {
            let seconds = -(1.0 - self.random.unit()).ln() / self.emulation.rate.max(1e-9);
            self.at(now + Span::from_nanos((seconds * 1e9) as u64), Event::Born { source });
        }
    }

    fn born(&mut self, source: usize, now: Instant) {
        self.sites[source].births.push(now);
        self.gather(source, now);
        self.next_birth(source, now);
    }

    /// Gives the collector what is born and not yet given.
    fn gather(&mut self, source: usize, now: Instant) {
        loop {
            let site = &mut self.sites[source];
            let row = site.collector.next().sample as usize + site.collector.pending();
            if site.asking || row >= site.births.len() {
                break;
            }
            let empty = site.collector.pending() == 0;
            #[allow(clippy::expect_used)] // Data sets are checked when they are made.
            let full = with_rows!(&self.data[source], rows => {
                site.collector.push(&rows.sample(row), now)
            })
            .expect("samples are of the model");
            if let Some(batch) = full {
                self.sends(source, batch, now);
            } else if let (true, Some(deadline)) = (empty, self.sites[source].collector.deadline()) {
                self.at(deadline, Event::Due { source });
            }
        }
        // The last batch of a source that ends is not waited for.
        let site = &mut self.sites[source];
        if site.births.len() == self.data[source].len()
            && !site.asking
            && let Some(batch) = site.collector.flush()
        {
            self.sends(source, batch, now);
        }
    }

    fn due(&mut self, source: usize, now: Instant) {
        if let Some(batch) = self.sites[source].collector.tick(now) {
            self.sends(source, batch, now);
        }
    }

    /// Sends a new batch, and remembers it until it is known to be taken.
    fn sends(&mut self, source: usize, batch: Vec<u8>, now: Instant) {
        let site = &mut self.sites[source];
        let seq = site.collector.next().seq - 1;
        site.sent.push_back((seq, batch.clone()));
        self.transmit(source, batch, now);
        self.wait(source, now);
        if self.random.chance(self.emulation.restart) {
            self.restart(source, now);
        }
    }

    fn wait(&mut self, source: usize, now: Instant) {
        let site = &mut self.sites[source];
        if !std::mem::replace(&mut site.timer, true) {
            let life = site.life;
            self.at(now + self.emulation.patience, Event::Again { source, life });
        }
    }

    fn transmit(&mut self, source: usize, bytes: Vec<u8>, now: Instant) {
        let report = &mut self.sites[source].report;
        report.sent += 1;
        report.bytes += bytes.len() as u64;
        let (from, to) = (self.emulation.collectors[source], self.emulation.center);
        if self.random.chance(self.emulation.repeat) {
            let delay = self.delay(from, to);
            self.at(now + delay, Event::Arrives { source, bytes: bytes.clone() });
        }
        if !self.random.chance(self.emulation.loss) {
            let delay = self.delay(from, to);
            self.at(now + delay, Event::Arrives { source, bytes });
        }
    }

    fn delay(&mut self, from: RegionId, to: RegionId) -> Span {
        let mean = self.emulation.matrix.one_way(from, to).as_nanos() as f64;
        Span::from_nanos((mean * (1.0 + self.random.unit() * self.emulation.jitter)) as u64)
    }

    /// Forgets all but which source it is, and asks the centre where it goes on.
    fn restart(&mut self, source: usize, now: Instant) {
        let site = &mut self.sites[source];
        site.life += 1;
        site.report.restarts += 1;
        site.asking = true;
        site.timer = false;
        site.sent.clear();
        site.collector =
            Collector::new(source as u32, self.task.clone(), self.features, self.emulation.options);
        self.ask(source, now);
    }

    fn ask(&mut self, source: usize, now: Instant) {
        let life = self.sites[source].life;
        let delay = self.delay(self.emulation.collectors[source], self.emulation.center);
        if !self.random.chance(self.emulation.loss) {
            self.at(now + delay, Event::Asks { source, life });
        }
        self.wait(source, now);
    }

    /// The centre's answer to a batch goes to whatever life the collector is in.
    fn answered(&mut self, source: usize, answer: Ingest, now: Instant) {
        let (next, elsewhere) = match answer {
            Ingest::Accepted { next, .. } => (next, false),
            Ingest::Held(next) | Ingest::Duplicate(next) | Ingest::Full(next) => (next, false),
            Ingest::Elsewhere(next) => (next, true),
            Ingest::Refused(error) => panic!("nothing is damaged on the way here: {error}"),
        };
        self.taken(source, next, now);
        let life = self.sites[source].life;
        self.answer(source, life, next, elsewhere, now);
    }

    fn taken(&mut self, source: usize, next: Next, now: Instant) {
        let site = &mut self.sites[source];
        for sample in site.taken..next.sample {
            site.delays += u128::from(now.since(site.births[sample as usize]).as_nanos());
            self.finished = now;
        }
        site.taken = site.taken.max(next.sample);
        site.report.batches = site.report.batches.max(next.seq);
    }

    fn answer(&mut self, source: usize, life: u64, next: Next, elsewhere: bool, now: Instant) {
        if !self.random.chance(self.emulation.loss) {
            let delay = self.delay(self.emulation.center, self.emulation.collectors[source]);
            self.at(now + delay, Event::Answered { source, life, next, elsewhere });
        }
    }

    fn heard(&mut self, source: usize, life: u64, next: Next, elsewhere: bool, now: Instant) {
        let site = &mut self.sites[source];
        if site.life != life {
            return;
        }
        while site.sent.front().is_some_and(|(seq, _)| *seq < next.seq) {
            site.sent.pop_front();
        }
        let here = site.collector.next();
        // The centre is ahead of this life, or cuts elsewhere: batches of an earlier life were taken. (An old answer to an
        // old question tells less than is known here, and is of no use.)
        let ahead = next.seq > here.seq || (next.seq == here.seq && next.sample != here.sample);
        if site.asking || ahead || (elsewhere && !site.sent.is_empty()) {
            site.asking = false;
            site.sent.clear();
            let fresh =
                Collector::new(source as u32, self.task.clone(), self.features, self.emulation.options);
            site.collector = fresh.resume(next);
            self.gather(source, now);
        }
    }

    /// Patience is over: asks again, or sends again what is not known to be taken.
    fn again(&mut self, source: usize, life: u64, now: Instant) {
        let site = &mut self.sites[source];
        if site.life != life {
            return;
        }
        site.timer = false;
        if site.asking {
            return self.ask(source, now);
        }
        // Those behind wait for them; a centre that turned them away would do so again.
        let oldest = site.sent.iter().take(HELD_MAX);
        let unanswered: Vec<Vec<u8>> = oldest.map(|(_, bytes)| bytes.clone()).collect();
        if !unanswered.is_empty() {
            unanswered.into_iter().for_each(|bytes| self.transmit(source, bytes, now));
            self.wait(source, now);
        }
    }

    fn report<S: Storage>(self, center: &Center<T, S>) -> EmulationReport {
        let sources = self.sites.into_iter().enumerate().map(|(source, site)| {
            let samples = center.next(source as u32).sample;
            let delay_mean = Span::from_nanos((site.delays / u128::from(samples.max(1))) as u64);
            SourceReport { samples, delay_mean, ..site.report }
        });
        EmulationReport {
            sources: sources.collect(),
            elapsed: self.finished.since(Instant::ZERO),
            reopened: self.reopened,
        }
    }
}
