//! Many seeds over several threads. Each run stays on one thread; only whole runs are shared out.

use crate::fault::Histogram;
use crate::oracle::{Violation, ViolationKind};
use crate::run::{Report, caught};
use crate::trace::Digest;
use crate::traffic::Traffic;
use isochrone_core::Span;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Which seeds to run, and how.
#[derive(Clone, Debug)]
pub struct Seeds {
    /// The first seed.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// On how many threads; at least one.
    pub threads: usize,
    /// One seed in so many is run twice, and both runs must have one hash; 0 for none.
    pub twice_every: u64,
    /// No further seed is begun once this many have violations.
    pub stop_after: usize,
}

impl Seeds {
    /// These many seeds from `first`, on one thread, 2% of them twice, until 100 have failed.
    pub fn new(first: u64, count: u64) -> Seeds {
        Seeds { first, count, threads: 1, twice_every: 50, stop_after: 100 }
    }

    /// One seed, once.
    pub fn one(seed: u64) -> Seeds {
        Seeds { twice_every: 0, ..Seeds::new(seed, 1) }
    }
}

/// What came of many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// Seeds that were run twice.
    pub twice: u64,
    /// What broke, by seed.
    pub violations: Vec<Violation>,
    /// Requests answered.
    pub operations: u64,
    /// Requests whose client died first.
    pub unknown: u64,
    /// Events handled, second runs included.
    pub events: u64,
    /// Messages sent.
    pub messages: u64,
    /// Those between nodes by kind, where that was asked for.
    pub traffic: Traffic,
    /// Virtual time, all runs together.
    pub virtual_time: Span,
    /// Real time.
    pub elapsed: Duration,
    /// Real time of all threads together, spent in runs.
    pub busy: Duration,
    /// Faults that happened.
    pub faults: Histogram,
    hashes: BTreeMap<u64, u64>,
}

impl Summary {
    /// Events a second of one core.
    pub fn events_per_second(&self) -> f64 {
        self.events as f64 / self.busy.as_secs_f64().max(1e-9)
    }

    /// One hash for all runs, in the order of their seeds: equal on every machine and in every build.
    pub fn hash(&self) -> u64 {
        Digest::of(&self.hashes)
    }

    /// The hash of one seed's run.
    pub fn hash_of(&self, seed: u64) -> Option<u64> {
        self.hashes.get(&seed).copied()
    }

    fn add(&mut self, report: Report) {
        self.seeds += 1;
        self.hashes.insert(report.seed, report.hash);
        self.violations.extend(report.violations);
        self.operations += report.operations;
        self.unknown += report.unknown;
        self.messages += report.messages;
        self.traffic.merge(&report.traffic);
        self.virtual_time += report.virtual_time;
        self.faults.merge(&report.faults);
    }
}

/// Runs seeds. `run` makes and runs the simulation of one seed and may add violations of its own (a
/// history that breaks the guarantee) to the report; a panic in it is a violation of that seed.
/// `progress` is called after each seed, from any thread, one at a time.
pub fn run_seeds(
    seeds: &Seeds,
    run: impl Fn(u64) -> Report + Sync,
    progress: impl Fn(&Summary) + Sync,
) -> Summary {
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    let summary = Mutex::new(Summary::default());
    let lock = || summary.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= seeds.count || lock().violations.len() >= seeds.stop_after {
                return;
            }
            let seed = seeds.first + index;
            let begun = Instant::now();
            let mut report = once(seed, &run);
            let mut events = report.events;
            let twice = seeds.twice_every > 0 && index.is_multiple_of(seeds.twice_every);
            if twice {
                let again = once(seed, &run);
                events += again.events;
                if again.hash != report.hash {
                    let text = format!("two runs, two hashes: {:016x} and {:016x}", report.hash, again.hash);
                    let at = report.virtual_time;
                    report.violations.push(Violation { seed, at, kind: ViolationKind::Determinism, text });
                }
            }
            let busy = begun.elapsed();
            let mut summary = lock();
            summary.add(report);
            summary.events += events;
            summary.twice += u64::from(twice);
            summary.busy += busy;
            progress(&summary);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..seeds.threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.violations.sort_by_key(|violation| violation.seed);
    summary.elapsed = begun.elapsed();
    summary
}

fn once(seed: u64, run: &impl Fn(u64) -> Report) -> Report {
    let mut report = None;
    match (caught(|| report = Some(run(seed))), report) {
        (Ok(()), Some(report)) => report,
        (outcome, _) => {
            let text = outcome.err().unwrap_or_default();
            let at = Span::ZERO;
            Report::broken(Violation { seed, at, kind: ViolationKind::Panic, text })
        }
    }
}
