//! Progress and its end: deadlocks, watchdog, panics, refusals; plans of the first epoch; recorded order of accesses.

use super::cells::{Bare, Cells, Heads, Planned, Wide};
use super::cop::Cop;
use super::lanes::Lanes as _;
use super::options::Steps;
use super::ordered::{self, At, Ordered, Pooled, carry_out};
use super::pool::{Halt, Pool, Stopped};
use super::roster::Roster;
use super::run::{Lap, Run, Worker};
use super::source::{GeneralSource, Source};
use super::tests::{begin, go_on, learnt, options, run, samples};
use super::train::{PlannedVersions, Versions};
use super::transaction::{Awaited, Sound, Waiting, transact};
use super::*;
use crate::Step;
use crate::data::{Sample, Values};
use crate::generate::{Generator, Recipe};
use crate::plan::mixed::{self, BOTH, Mixed, READ, WRITE};
use crate::plan::{Annotations, PlanError, ReadOp, Statistics, WriteOp};
use crate::tasks::{Factorisation, Linear, Loss};
use proptest::prelude::*;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// The plan by its definition, without any state carried along: each transaction looks back at all earlier ones.
fn naive(rows: &[Vec<(u32, f64)>]) -> (Vec<ReadOp>, Vec<WriteOp>) {
    let writes = |row: usize, x: u32| rows[row].iter().any(|&(y, how)| y == x && how != READ);
    let reads = |row: usize, x: u32| rows[row].iter().any(|&(y, how)| y == x && how != WRITE);
    let writer =
        |row: usize, x: u32| (0..row).rev().find(|&before| writes(before, x)).map_or(0, |row| row as u32 + 1);
    let (mut all_reads, mut all_writes) = (Vec::new(), Vec::new());
    for (row, entries) in rows.iter().enumerate() {
        for &(parameter, _) in entries.iter().filter(|entry| entry.1 != WRITE) {
            all_reads.push(ReadOp { parameter, version: writer(row, parameter) });
        }
        for &(parameter, _) in entries.iter().filter(|entry| entry.1 != READ) {
            let before = writer(row, parameter);
            let readers = (0..=row)
                .filter(|&at| reads(at, parameter) && writer(at, parameter) == before)
                .count() as u32;
            all_writes.push(WriteOp { parameter, writer: before, readers });
        }
    }
    (all_reads, all_writes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// T-COP-02, with I5 and I6.
    #[test]
    fn plans_are_what_their_definition_says(rows in mixed::rows()) {
        let data = mixed::data(&rows);
        let plan = Plan::general(&Mixed(Rule::Own(7)), &data);
        let Annotations::General { reads_at, reads, writes_at, writes } = plan.annotations() else { unreachable!() };
        let (wanted_reads, wanted_writes) = naive(&rows);
        prop_assert_eq!(reads, &wanted_reads);
        prop_assert_eq!(writes, &wanted_writes);
        let mut trailing = 0;
        for parameter in 0..mixed::WIDTH {
            let last = (0..rows.len()).rev().find(|&row| rows[row].iter().any(|&(x, how)| x == parameter && how != READ));
            let last = last.map_or(0, |row| row as u32 + 1);
            trailing += reads.iter().filter(|op| op.parameter == parameter && op.version == last).count();
        }
        let waited: usize = writes.iter().map(|op| op.readers as usize).sum();
        prop_assert_eq!(waited + trailing, reads.len());
        for row in 0..rows.len() {
            let own = row as u32 + 1;
            prop_assert!(reads[reads_at[row] as usize..reads_at[row + 1] as usize].iter().all(|op| op.version < own));
            prop_assert!(writes[writes_at[row] as usize..writes_at[row + 1] as usize].iter().all(|op| op.writer < own));
        }
        let features: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(|&(x, _)| (x, BOTH)).collect()).collect();
        let (_, writes) = naive(&features);
        prop_assert!(writes.iter().all(|op| op.readers == 1));
        let Annotations::Compact(versions) = Plan::compact(&data).into_annotations() else { unreachable!() };
        prop_assert_eq!(versions, writes.iter().map(|op| op.writer).collect::<Vec<_>>());
    }

    /// T-COP-05 and T-COP-13, any sets.
    #[test]
    fn the_first_epoch_plans_what_it_did(rows in mixed::rows(), threads in 1..5_usize, compact: bool, carry: bool) {
        let task = Mixed(if compact { Rule::Features } else { Rule::Own(7) });
        check_first(&task, &mixed::data(&rows), threads, 4, carry);
    }
}

/// The plan of the first epoch is that of the samples in the order found, and the model that of one thread in that order. Whether
/// that order is another one than the data's.
fn check_first<T: Task>(task: &T, data: &Dataset<'_>, threads: usize, epochs: u32, carry: bool) -> bool {
    let mode = if carry { Mode::Carry } else { Mode::Reset };
    let options = Options { first_epoch: true, epochs, mode, chunk: 1, ..options(Scheme::Cop, threads) };
    let (model, report) = run(task, data, None, &options);
    let plan = report.plan.unwrap();
    let serial = Options { scheme: Scheme::Serial, ..options };
    assert_eq!(run(task, data, Some(&plan), &serial).0, model);
    let order = plan.order().unwrap();
    assert_eq!(*plan.annotations(), planned_in(task, data, order));
    !order.is_sorted()
}

/// An offline plan of the rows in this order, with the entries of a compact one where the data has them.
fn planned_in<T: Task>(task: &T, data: &Dataset<'_>, order: &[u32]) -> Annotations {
    let (mut offsets, mut features, mut values) = (vec![0], Vec::new(), Vec::new());
    for &row in order {
        features.extend_from_slice(data.row(row as usize));
        match data.values() {
            Values::F32(all) => values.extend(all[data.range(row as usize)].iter().map(|&z| f64::from(z))),
            Values::F64(all) => values.extend_from_slice(&all[data.range(row as usize)]),
        }
        offsets.push(features.len() as u64);
    }
    let labels = vec![1.0; order.len()];
    let sorted = Dataset::new(offsets, features, Values::F64(values.into()), labels, data.width()).unwrap();
    match Plan::of(task, &sorted).into_annotations() {
        Annotations::Compact(versions) => {
            let mut placed = vec![0; versions.len()];
            for (position, &row) in order.iter().enumerate() {
                placed[data.range(row as usize)].copy_from_slice(&versions[sorted.range(position)]);
            }
            Annotations::Compact(placed)
        }
        general => general,
    }
}

/// T-COP-13 on linear models and a factorisation, 20 epochs.
#[test]
fn the_first_epoch_decides_all_epochs() {
    let data = samples(200, 80, 6, 11);
    for carry in [false, true] {
        check_first(&Linear::published_svm(1.0), &data, 4, 20, carry);
        check_first(&Linear { intercept: true, ..Linear::new(Loss::Logistic) }, &data, 3, 20, carry);
    }
    let pairs = samples(200, 30, 2, 12);
    check_first(&Factorisation::new(3), &pairs, 4, 20, true);
    // Else all of that could be of the order of the data. Another one takes two threads at once.
    let data = samples(2_000, 4_000, 20, 13);
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
        assert!((0..100).any(|_| check_first(&Linear::published_svm(1.0), &data, 4, 2, false)));
    }
}

/// What happened to a parameter, in the order in which it happened.
#[derive(Copy, Clone, Debug)]
struct Access {
    transaction: u32,
    parameter: u32,
    write: bool,
}

/// Cells that note every access of one transaction.
struct Noted<'a> {
    cells: &'a Wide,
    transaction: u32,
    log: &'a Mutex<Vec<Access>>,
}

impl Noted<'_> {
    fn note(&self, parameter: u32, write: bool) {
        self.log.lock().unwrap().push(Access { transaction: self.transaction, parameter, write });
    }
}

impl Planned for Noted<'_> {
    fn version(&self, parameter: u32) -> u32 {
        self.cells.version(parameter)
    }

    fn read(&self, parameter: u32, out: &mut [f64], at: usize) {
        self.cells.read(parameter, out, at);
        self.note(parameter, false);
    }

    fn count(&self, parameter: u32) {
        self.cells.count(parameter);
    }

    fn readers(&self, parameter: u32) -> u32 {
        self.cells.readers(parameter)
    }

    fn restart(&self, parameter: u32) {
        self.cells.restart(parameter);
    }

    fn write(&self, parameter: u32, from: &[f64], at: usize) {
        self.cells.write(parameter, from, at);
        self.note(parameter, true);
    }

    fn publish(&self, parameter: u32, version: u32) {
        self.cells.publish(parameter, version);
    }
}

impl Cells for Noted<'_> {
    fn load(&self, parameter: u32, out: &mut [f64], at: usize) {
        self.read(parameter, out, at);
    }

    fn store(&self, parameter: u32, from: &[f64], at: usize) {
        self.write(parameter, from, at);
    }

    fn weight(&self, _: u32) -> f32 {
        0.0
    }

    fn prefetch(&self, _: u32) {}

    fn scale(&self, _: usize, _: f64) {}

    fn export(&self, _: usize, _: &mut [f64]) {}
}

struct Yielding;

impl Waiting for Yielding {
    fn until(
        &mut self,
        _: Awaited,
        _: u32,
        expected: u32,
        mut observe: impl FnMut() -> u32,
    ) -> Result<(), Halt> {
        while observe() != expected {
            std::thread::yield_now();
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// T-COP-14: of two accesses to a parameter, one of them a write, the earlier one is of the earlier transaction. All
    /// edges of the conflict graph ascend then, so it has no cycle.
    #[test]
    fn conflicts_happen_in_planned_order(rows in mixed::rows(), threads in 2..4_usize) {
        let data = mixed::data(&rows);
        let plan = Plan::general(&Mixed(Rule::Own(7)), &data);
        let source = GeneralSource::of(plan.annotations(), None, None).unwrap();
        let cells = Wide::new(&[0.0; mixed::WIDTH as usize], 1, &[]);
        let log = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for worker in 0..threads {
                let (source, cells, log) = (&source, &cells, &log);
                let data = &data;
                scope.spawn(move || {
                    for row in (worker..data.len()).step_by(threads) {
                        let rows = Rows::of(data, &[0.0]);
                        let place = source.place(&rows, row as u32, row);
                        let ops = source.ops(&place, &[], 0);
                        let version = row as u32 + 1;
                        let noted = Noted { cells, transaction: version, log };
                        let (mut read, mut write) = ([0.0; 8], [0.0; 8]);
                        transact::<_, _, _, Sound>(&noted, &ops, version, &mut Yielding, &mut read, &mut write, |_, _| ()).unwrap();
                    }
                });
            }
        });
        ascend(&log.into_inner().unwrap())?;
    }

    /// The same of transactions that wait for one another by a roster.
    #[test]
    fn conflicts_happen_in_the_order_of_a_roster(rows in mixed::rows(), threads in 2..4_usize, chunk in 0..3_u32) {
        let data = mixed::data(&rows);
        let Annotations::Compact(versions) = Plan::compact(&data).into_annotations() else { unreachable!() };
        let all = Rows::of(&data, &[0.0]);
        let roster = Roster::new((&versions, None), &all, None, threads, chunk);
        let (cells, log) = (Wide::new(&[0.0; mixed::WIDTH as usize], 1, &[]), Mutex::new(Vec::new()));
        let pool = Pool::new(threads, Duration::from_secs(30), Stop::default());
        std::thread::scope(|scope| {
            for own in 0..threads {
                let (roster, cells, log, data, pool) = (&roster, &cells, &log, &data, &pool);
                scope.spawn(move || {
                    let (mut floor, mut report) = (0, WorkerReport::default());
                    let rows = (0..data.len()).filter(|&row| usize::from(roster.owners()[row]) == own);
                    for row in rows {
                        pool.advance(own, row as u64);
                        let noted = Noted { cells, transaction: row as u32 + 1, log };
                        let (mut read, mut write) = ([0.0; 8], [0.0; 8]);
                        let features = data.row(row);
                        let buffers = (&mut read[..features.len()], &mut [][..], &mut write[..features.len()]);
                        let mut others = Pooled { pool, own, most: None, report: &mut report };
                        let at = At { position: row as u32, place: row as u64 };
                        let shared = (&mut others, &mut floor);
                        carry_out::<_, _, ordered::Sound>(&noted, roster, at, shared, features, buffers, |_, _, _| ()).unwrap();
                    }
                    pool.advance(own, data.len() as u64);
                });
            }
        });
        ascend(&log.into_inner().unwrap())?;
    }
}

/// Of two accesses to a parameter, one of them a write, the earlier one is of the earlier transaction.
fn ascend(log: &[Access]) -> Result<(), TestCaseError> {
    for (at, later) in log.iter().enumerate() {
        for earlier in &log[..at] {
            if earlier.parameter == later.parameter && (earlier.write || later.write) {
                prop_assert!(earlier.transaction <= later.transaction, "{earlier:?} before {later:?}");
            }
        }
    }
    Ok(())
}

/// T-COP-20: many more threads than processors, chunks of all sizes, data that is a chain; the watchdog never fires.
#[test]
fn more_threads_than_processors_come_to_an_end() {
    let data = samples(300, 12, 6, 21);
    let task = Linear::published_svm(1.0);
    let processors = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
    let serial = learnt(&task, &data, &Options { epochs: 3, ..options(Scheme::Serial, 1) });
    let general = Plan::general(&task, &data);
    for threads in [2, processors, 4 * processors] {
        for chunk in [0, 1, 2, 7, 64, 1_000] {
            for mode in [Mode::Reset, Mode::Carry] {
                let options = Options { epochs: 3, chunk, mode, ..options(Scheme::Cop, threads) };
                assert_eq!(learnt(&task, &data, &options), serial, "{options:?}");
                if chunk < 7 {
                    continue;
                }
                // By versions and counts of readers, not by the roster.
                for (plan, elide) in [(None, false), (Some(&general), true), (Some(&general), false)] {
                    let options = Options { elide, ..options.clone() };
                    assert_eq!(run(&task, &data, plan, &options).0, serial, "{options:?}");
                }
            }
        }
    }
}

/// Two samples that share a feature, and what one worker needs to run them.
fn pair() -> Dataset<'static> {
    let values = Values::F64(vec![1.0; 2].into());
    Dataset::new(vec![0, 1, 2], vec![3, 3], values, vec![1.0; 2], 5).unwrap()
}

fn rows<'a>(data: &'a Dataset<'static>) -> Rows<'a, f64> {
    let Values::F64(values) = data.values() else { unreachable!("the data of these tests") };
    Rows::of(data, values)
}

const IMPATIENT: Duration = Duration::from_millis(20);

/// T-COP-21: a worker that takes its transactions in another order is told of, with all that one needs to find it.
#[test]
fn a_worker_that_does_not_ascend_is_reported() {
    let data = pair();
    let (task, plan) = (Linear::new(Loss::Hinge), Plan::compact(&data));
    let Annotations::Compact(planned) = plan.annotations() else { unreachable!() };
    // Each of the two samples has a thread of its own, and the first thread does nothing.
    let options = Options { chunk: 1, ..options(Scheme::Cop, 2) };
    let pool = Pool::new(2, IMPATIENT, Stop::default());
    let steps = Steps::new(&options, 2);
    let run = Run::new(&task, rows(&data), None, steps, (&pool, None, 0.0), &options);
    let roster = &Roster::new((planned, None), &rows(&data), None, 2, 1);
    let places = rows(&data).features;
    let executor = Ordered { cells: &Bare::new(&[0.0; 5]), roster, places, shares: &[] };
    let lap = Lap::new(steps.epoch(0), 0, 0);
    let mut worker = Worker::new(1);
    let out_of_order = run.lap(&executor, &mut worker, &lap);
    assert_eq!(out_of_order, Err(Stopped));
    let failure = pool.failure().unwrap();
    let (what, expected, observed) = ("the next transaction of thread", 2, 1);
    assert_eq!(failure, TrainError::Stuck { transaction: 2, what, number: 0, expected, observed });
    assert!(worker.report.read_polls > 0);
    assert!(
        failure
            .to_string()
            .contains("transaction 2 waits for the next transaction of thread 0 to be 2 and sees 1")
    );
}

/// The same where versions are waited for: then the parameter is told.
#[test]
fn a_worker_that_does_not_ascend_waits_for_a_parameter() {
    let data = pair();
    let (task, plan) = (Linear::new(Loss::Hinge), Plan::general(&Linear::new(Loss::Hinge), &data));
    let options = Options { chunk: 1, ..options(Scheme::Cop, 2) };
    let pool = Pool::new(2, IMPATIENT, Stop::default());
    let steps = Steps::new(&options, 2);
    let run = Run::new(&task, rows(&data), None, steps, (&pool, None, 0.0), &options);
    let source = GeneralSource::of(plan.annotations(), None, None).unwrap();
    let executor = Cop { cells: &Wide::new(&[0.0; 5], 1, &[]), source, shares: &[] };
    let out_of_order = run.lap(&executor, &mut Worker::new(1), &Lap::new(steps.epoch(0), 0, 0));
    assert_eq!(out_of_order, Err(Stopped));
    let failure = pool.failure().unwrap();
    assert!(
        matches!(failure, TrainError::Stuck { transaction: 2, number: 3, expected: 1, observed: 0, .. }),
        "{failure:?}"
    );
    assert!(failure.to_string().contains("parameter 3"), "{failure}");
}

/// T-COP-22: an epoch on versions that the last one left is refused; and were it not, it would be reported.
#[test]
fn an_epoch_without_a_reset_is_refused() {
    let data = pair();
    let (task, plan) = (Linear::new(Loss::Hinge), Plan::general(&Linear::new(Loss::Hinge), &data));
    let options = options(Scheme::Cop, 2);
    let pool = Pool::new(2, IMPATIENT, Stop::default());
    let steps = Steps::new(&options, 2);
    let run = Run::new(&task, rows(&data), None, steps, (&pool, None, 0.0), &options);
    let cells = &Wide::new(&[0.0; 5], 1, &[]);
    let source = GeneralSource::of(plan.annotations(), None, None).unwrap();
    let executor = Cop { cells, source, shares: &[] };
    let versions = PlannedVersions::new(cells, 2, false, 0);
    let epoch = || run.segment(&executor, 2, &[Lap::new(steps.epoch(0), 0, 0)]).map(|_| ());
    assert_eq!(versions.may_begin(0), Ok(()));
    assert_eq!(epoch(), Ok(()));
    versions.left_at(2);
    // I4: what the plan says is left.
    assert_eq!((cells.version(3), cells.readers(3)), (2, 0));
    assert_eq!(versions.may_begin(0), Err(TrainError::NotReset));
    assert!(matches!(epoch(), Err(TrainError::Stuck { number: 3, observed: 2, .. })));
    versions.reset();
    assert_eq!(versions.may_begin(0), Ok(()));
    assert_eq!(
        Run::new(
            &task,
            rows(&data),
            None,
            steps,
            (&Pool::new(2, IMPATIENT, Stop::default()), None, 0.0),
            &options
        )
        .segment(&executor, 2, &[Lap::new(steps.epoch(0), 0, 0)])
        .map(|_| ()),
        Ok(())
    );
    cells.set_heads(1, |_| (0, 0));
}

/// Panics at the sample with this label.
struct Panics;

impl Task for Panics {
    fn compute<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        _: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> f64 {
        assert!(sample.label < 150.0, "cannot learn from {}", sample.label);
        write.copy_from_slice(read);
        0.0
    }
}

/// T-COP-23: all workers end soon, the reason is told, and the model is as it was.
#[test]
fn a_panic_ends_all_workers() {
    let data = samples(300, 12, 6, 31);
    let labels: Vec<f64> = (0..300).map(f64::from).collect();
    let data = data.with_labels(labels).unwrap();
    let general = Plan::general(&Panics, &data);
    let planned = [(None, false), (Some(&general), true), (Some(&general), false)];
    let planned = planned.map(|(plan, elide)| (Scheme::Cop, plan, elide));
    for (scheme, plan, elide) in Scheme::ALL.map(|scheme| (scheme, None, true)).into_iter().chain(planned) {
        let mut model = begin(&Panics, &data);
        let before = model.clone();
        let options = Options { patience: Duration::from_secs(600), elide, ..options(scheme, 4) };
        let begun = Instant::now();
        let failed = train(&Panics, &data, plan, &mut model, &options, &mut go_on).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(1), "{scheme}: {:?}", begun.elapsed());
        assert!(
            matches!(&failed, TrainError::Panicked { message, .. } if message.starts_with("cannot learn from"))
        );
        assert_eq!(model, before);
    }
}

/// Tells the same sets of every sample.
struct Tells {
    reads: &'static [u32],
    writes: &'static [u32],
    weighted: bool,
}

impl Task for Tells {
    fn rule(&self) -> Rule {
        Rule::Own(7)
    }

    fn weighted(&self) -> bool {
        self.weighted
    }

    fn sets<V: Value>(&self, _: &Sample<'_, V>, sets: &mut Sets) {
        sets.reads.extend_from_slice(self.reads);
        sets.writes.extend_from_slice(self.writes);
    }

    fn compute<V: Value>(&self, _: &Sample<'_, V>, _: &Step<'_>, _: &[f64], write: &mut [f64]) -> f64 {
        write.fill(1.0);
        0.0
    }
}

#[test]
fn sets_that_no_task_may_tell_are_refused() {
    let data = samples(3, 5, 2, 1);
    let told = |reads: &'static [u32], writes: &'static [u32], weighted| {
        let task = Tells { reads, writes, weighted };
        let mut model = begin(&task, &data);
        let failed = train(&task, &data, None, &mut model, &options(Scheme::Cop, 2), &mut go_on);
        assert_eq!(model, begin(&task, &data));
        failed.map(|_| ())
    };
    let refused = |error| Err(TrainError::Planning(PlanError::Sets(error)));
    let beyond = SetsError::Beyond { row: 0, parameter: 5, parameters: 5 };
    assert_eq!(told(&[5], &[0], false), refused(beyond));
    assert_eq!(told(&[0], &[1, 5], false), refused(beyond));
    // What weighs the parameters looks at them before.
    assert_eq!(told(&[5], &[0], true), refused(beyond));
    assert_eq!(told(&[0], &[1, 0, 1], false), refused(SetsError::Twice { row: 0, parameter: 1 }));
}

/// Asks for the end at the sample with this label, and counts.
struct Asks {
    stop: Stop,
    computed: AtomicUsize,
}

impl Task for Asks {
    fn compute<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        _: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> f64 {
        self.computed.fetch_add(1, Relaxed);
        if sample.label == 150.0 {
            self.stop.ask();
        }
        write.copy_from_slice(read);
        0.0
    }
}

/// Whoever asks for the end gets it in the middle of an epoch, and the model as it was.
#[test]
fn a_run_ends_when_asked() {
    let data = samples(3_000, 12, 6, 32);
    let labels: Vec<f64> = (0..3_000).map(f64::from).collect();
    let data = data.with_labels(labels).unwrap();
    for (scheme, threads) in Scheme::ALL.into_iter().flat_map(|scheme| [(scheme, 1), (scheme, 4)]) {
        let task = Asks { stop: Stop::default(), computed: AtomicUsize::new(0) };
        let options = Options { stop: task.stop.clone(), ..options(scheme, threads) };
        let mut model = begin(&task, &data);
        let before = model.clone();
        let ended = train(&task, &data, None, &mut model, &options, &mut go_on).unwrap_err();
        assert_eq!(ended, TrainError::Interrupted, "{scheme}");
        assert_eq!(model, before);
        let computed = task.computed.into_inner();
        assert!(
            if threads == 1 { computed == 151 } else { computed < 20 * 3_000 },
            "{scheme}: {computed} samples on {threads} threads"
        );
    }
}

/// So does what comes before, as soon as it is looked at.
#[test]
fn planning_and_making_samples_end_when_asked() {
    let (data, task, stop) = (samples(3_000, 12, 6, 32), Linear::published_svm(1.0), Stop::default());
    let plan = Plan::in_blocks_until(&task, &data, NonZeroUsize::MIN, &stop).unwrap();
    let generator = Generator::new(Recipe::hotspot(1_000).scaled(100)).unwrap();
    assert_eq!(generator.until(NonZeroUsize::MIN, &stop).len(), 10_000);
    stop.ask();
    let again = Plan::in_blocks_until(&task, &data, NonZeroUsize::MIN, &stop);
    assert_eq!(again, Err(PlanError::Interrupted));
    assert_eq!(Statistics::until(&plan, &data, &stop), Err(PlanError::Interrupted));
    assert!(generator.until(NonZeroUsize::MIN, &stop).is_empty());
}

/// What does not fit is refused with what would be right.
#[test]
fn misfits_are_refused() {
    let data = samples(10, 12, 3, 41);
    let other = samples(10, 12, 3, 42);
    let task = Linear::new(Loss::Hinge);
    let tried = |plan: Option<&Plan>, model: &mut Model| {
        train(&task, &data, plan, model, &options(Scheme::Cop, 1), &mut go_on)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let plan = Plan::of(&task, &other);
    assert!(tried(Some(&plan), &mut begin(&task, &data)).contains("plan this data"));
    assert_eq!(
        tried(None, &mut Model::default()),
        "the model has 0 numbers, where task and data want 12: begin with Model::zeros, or load the model of this task"
    );
    let mut infinite = begin(&task, &data);
    infinite.parameters[4] = f64::INFINITY;
    assert_eq!(tried(None, &mut infinite), "the model's number 4 is inf, from which nothing can be learnt");
}

/// Epochs are told of as they end, with the model of that moment, and can be the last.
#[test]
fn epochs_are_told_of() {
    let data = samples(50, 30, 4, 51);
    let task = Linear { intercept: true, ..Linear::published_svm(0.1) };
    for scheme in Scheme::ALL {
        let mut model = begin(&task, &data);
        let mut told = Vec::new();
        let report = train(&task, &data, None, &mut model, &options(scheme, 1), &mut |end| {
            told.push((end.epoch, end.model().clone()));
            if end.epoch == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let report = report.unwrap();
        assert_eq!((report.epochs, report.epoch_times.len()), (3, 3));
        assert_eq!(report.workers.iter().map(|worker| worker.transactions).sum::<u64>(), 150);
        assert_eq!(told.iter().map(|(epoch, _)| *epoch).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(told[2].1, model);
        assert_ne!(told[1].1, model);
        // An epoch at a time gives the same as all at once.
        let mut again = begin(&task, &data);
        for epoch in 0..3 {
            let seen = u64::from(epoch) * 50;
            let options = Options { epochs: 1, seen, epochs_before: epoch, ..options(scheme, 1) };
            train(&task, &data, None, &mut again, &options, &mut go_on).unwrap();
        }
        assert_eq!(again, model);
    }
}
