//! T-COP-16: every interleaving of a few transactions, under every order of memory that the language allows, and mistakes
//! planted to show that they would be seen. What runs is the very code that threads run ([`transact`] and [`carry_out`]), on
//! cells of the model checker.

use super::TrainError;
use super::cells::{self, Planned};
use super::lanes::{Held, Lanes};
use super::ordered::{self, At, Others, Slips, carry_out};
use super::pool::Halt;
use super::roster::{REACH, Roster};
use super::source::{Alone, GeneralSource, Source};
use super::transaction::{Awaited, Planted, Sound, Waiting, transact};
use crate::data::Dataset;
use crate::plan::mixed::{self, BOTH, Mixed, READ, WRITE};
use crate::plan::{Annotations, BatchPlanner, Plan, Stitcher};
use crate::task::Rule;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;

/// A cell of the model checker, with the memory orderings of the real ones.
struct Cell {
    value: AtomicU64,
    version: AtomicU32,
    readers: AtomicU32,
}

struct Cells {
    cells: Vec<Cell>,
    gate: Mutex<()>,
    bell: Condvar,
}

impl Cells {
    fn new(parameters: usize) -> Cells {
        let cell = |_| Cell {
            value: AtomicU64::new(1.0_f64.to_bits()),
            version: AtomicU32::new(0),
            readers: AtomicU32::new(0),
        };
        Cells { cells: (0..parameters).map(cell).collect(), gate: Mutex::new(()), bell: Condvar::new() }
    }

    fn of(&self, parameter: u32) -> &Cell {
        &self.cells[parameter as usize]
    }

    /// Wakes those who wait, after a change that they may wait for.
    fn ring(&self) {
        drop(self.gate.lock().unwrap());
        self.bell.notify_all();
    }
}

impl Planned for Cells {
    fn version(&self, parameter: u32) -> u32 {
        self.of(parameter).version.load(Acquire)
    }

    fn read(&self, parameter: u32, out: &mut [f64], at: usize) {
        out[at] = f64::from_bits(self.of(parameter).value.load(Relaxed));
    }

    fn count(&self, parameter: u32) {
        self.of(parameter).readers.fetch_add(1, Release);
        self.ring();
    }

    fn readers(&self, parameter: u32) -> u32 {
        self.of(parameter).readers.load(Acquire)
    }

    fn restart(&self, parameter: u32) {
        self.of(parameter).readers.store(0, Relaxed);
        self.ring();
    }

    fn write(&self, parameter: u32, from: &[f64], at: usize) {
        self.of(parameter).value.store(from[at].to_bits(), Relaxed);
    }

    fn publish(&self, parameter: u32, version: u32) {
        self.of(parameter).version.store(version, Release);
        self.ring();
    }

    fn unchanged(&self, parameter: u32, from: &[f64], at: usize) -> bool {
        self.of(parameter).value.load(Relaxed) == from[at].to_bits()
    }
}

/// Waits for the bell that rings after every change: the model checker has no patience with those who look again and again.
/// The first look is without it, and the lock orders nothing for those who need not wait.
struct Listening<'a>(&'a Cells);

impl Waiting for Listening<'_> {
    fn until(
        &mut self,
        _: Awaited,
        _: u32,
        expected: u32,
        mut observe: impl FnMut() -> u32,
    ) -> Result<(), Halt> {
        if observe() == expected {
            return Ok(());
        }
        let mut gate = self.0.gate.lock().unwrap();
        while observe() != expected {
            gate = self.0.bell.wait(gate).unwrap();
        }
        Ok(())
    }
}

/// What a transaction makes of what it read: something that tells all orders apart. Row 0 of `keeping` cases changes
/// nothing.
fn computed(row: usize, keeping: bool, read: &[f64], write: &mut [f64]) {
    let seen = read.iter().fold(row as f64 + 2.0, |sum, value| (sum * 5.0 + value) % 1009.0);
    for (at, write) in write.iter_mut().enumerate() {
        *write = if keeping && row == 0 { 1.0 } else { seen + at as f64 };
    }
}

/// A few transactions, and whether the first of them leaves its values as they are.
#[derive(Clone)]
struct Case {
    data: Arc<Dataset<'static>>,
    annotations: Arc<Annotations>,
    elide: bool,
    keeping: bool,
}

impl Case {
    fn planned(rows: &[Vec<(u32, f64)>], elide: bool) -> Case {
        let data = mixed::data(rows);
        let annotations = Plan::general(&Mixed(Rule::Own(7)), &data).into_annotations();
        Case { data: Arc::new(data), annotations: Arc::new(annotations), elide, keeping: false }
    }

    /// What one thread makes of them: all values read, and the values in the end.
    fn serially(&self) -> (Vec<Vec<f64>>, Vec<f64>) {
        let source = GeneralSource::of(&self.annotations, None, None).unwrap();
        let mut values = vec![1.0; 2];
        let mut all = Vec::new();
        for row in 0..self.data.len() {
            let reads = &source.reads[source.reads_at[row] as usize..source.reads_at[row + 1] as usize];
            let writes = &source.writes[source.writes_at[row] as usize..source.writes_at[row + 1] as usize];
            let read: Vec<f64> = reads.iter().map(|op| values[op.parameter as usize]).collect();
            let mut write = vec![0.0; writes.len()];
            computed(row, self.keeping, &read, &mut write);
            for (op, value) in writes.iter().zip(write) {
                values[op.parameter as usize] = value;
            }
            all.push(read);
        }
        (all, values)
    }

    /// One transaction, as a worker would carry it out; what it read.
    fn carry_out<P: Planted>(&self, cells: &Cells, row: usize) -> Vec<f64> {
        let alone = self.elide.then(|| Alone::of(&self.annotations, 2, None));
        let source = GeneralSource::of(&self.annotations, alone.as_ref(), None).unwrap();
        let place = Source::place::<f64>(&source, &rows_of(&self.data), row as u32, row);
        let ops = source.ops(&place, &[], 0);
        let mut read = vec![0.0; place.reads.len()];
        let mut write = vec![0.0; place.writes.len()];
        let mut seen = Vec::new();
        transact::<_, _, _, P>(
            cells,
            &ops,
            row as u32 + 1,
            &mut Listening(cells),
            &mut read,
            &mut write,
            |read, write| {
                seen = read.to_vec();
                computed(row, self.keeping, read, write);
            },
        )
        .unwrap();
        seen
    }

    /// Explores; panics at an outcome that one thread would not give.
    fn explore<P: Planted + 'static>(self, preemptions: usize) {
        let expected = self.serially();
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        // One that waits for ever is found: nobody is left to wake it.
        model.check(move || {
            let cells = Arc::new(Cells::new(2));
            let last = self.data.len() - 1;
            let threads: Vec<_> = (0..last)
                .map(|row| {
                    let (case, cells) = (self.clone(), cells.clone());
                    loom::thread::spawn(move || case.carry_out::<P>(&cells, row))
                })
                .collect();
            let last = self.carry_out::<P>(&cells, last);
            let mut read: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            read.push(last);
            let values: Vec<_> =
                cells.cells.iter().map(|cell| f64::from_bits(cell.value.load(SeqCst))).collect();
            assert_eq!((read, values), expected);
        });
    }

    /// Whether a planted mistake is seen.
    fn catches<P: Planted + 'static>(&self) -> bool {
        caught(|| self.clone().explore::<P>(2))
    }
}

/// Whether this panics, of which nothing is printed.
pub(super) fn caught(explore: impl FnOnce()) -> bool {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(explore)).is_err();
    std::panic::set_hook(hook);
    caught
}

fn rows_of<'a>(data: &'a Dataset<'_>) -> crate::Rows<'a, f64> {
    crate::Rows::of(data, &[])
}

/// The first reads and writes x, the second reads it, the third writes it without reading: it has to wait for the second, and
/// must not take the first's count for the second's.
fn blind() -> Vec<Vec<(u32, f64)>> {
    vec![vec![(0, BOTH)], vec![(0, READ)], vec![(0, WRITE)]]
}

/// Two parameters, read and written crosswise.
fn crossed() -> Vec<Vec<(u32, f64)>> {
    vec![vec![(0, BOTH), (1, WRITE)], vec![(0, READ), (1, BOTH)], vec![(0, WRITE), (1, READ)]]
}

macro_rules! planted {
    ($name:ident, $constant:ident) => {
        struct $name;
        impl Planted for $name {
            const $constant: bool = true;
        }
    };
}

planted!(ReadersFirst, READERS_FIRST);
planted!(CountedEarly, COUNTED_EARLY);
planted!(NoRestart, NO_RESTART);
planted!(PublishedEarly, PUBLISHED_EARLY);
planted!(UnchangedSkipped, UNCHANGED_SKIPPED);

#[test]
fn no_interleaving_gives_anything_else() {
    // Two preemptions show every mistake that is planted below. With a third one, those who count readers take ten times as long.
    let whole = std::env::var_os("CASES").is_some();
    for (elide, preemptions) in [(true, 3), (false, if whole { 3 } else { 2 })] {
        Case::planned(&blind(), elide).explore::<Sound>(preemptions);
        Case::planned(&crossed(), elide).explore::<Sound>(2);
        let chain = vec![vec![(0, BOTH)], vec![(0, BOTH), (1, BOTH)], vec![(1, BOTH)]];
        Case::planned(&chain, elide).explore::<Sound>(preemptions);
        Case { keeping: true, ..Case::planned(&blind(), elide) }.explore::<Sound>(2);
    }
}

/// One test, since all of them take away the hook that prints panics.
#[test]
fn planted_mistakes_are_caught() {
    let case = || Case::planned(&blind(), false);
    assert!(case().catches::<ReadersFirst>());
    assert!(case().catches::<CountedEarly>());
    assert!(case().catches::<NoRestart>());
    assert!(case().catches::<PublishedEarly>());
    assert!(Case { keeping: true, ..case() }.catches::<UnchangedSkipped>());
    assert!(!case().catches::<Sound>());
    let [far, fork] = [Rostered::new(&FAR, 2, 1), Rostered::new(&FORK, 3, REACH)];
    assert!(far.catches::<ReadEarly>() && fork.catches::<ReadEarly>());
    assert!(far.catches::<NoneOlder>());
    assert!(fork.catches::<NearestOnly>());
    assert!(fork.catches::<OneShort>());
    for tells in [Tells::Early, Tells::Unreleased] {
        assert!(Rostered { tells, ..fork.clone() }.catches::<ordered::Sound>());
    }
    assert!(!far.catches::<ordered::Sound>() && !fork.catches::<ordered::Sound>());
    for slip in [Relay::Unreleased, Relay::Repeated] {
        assert!(Relayed::new(&CHAIN, slip).catches());
    }
    assert!(!Relayed::new(&CHAIN, Relay::Returned).catches());
    assert!(stitched(false).catches::<Sound>());
    assert!(!stitched(true).catches::<Sound>());
}

/// Two batches: in the first x is read, in the second it is written blindly. Stitching adds the first's reader to what the
/// writer waits for; or not, if it forgets about `cr` (specs/cop.md 3.4).
fn stitched(carried: bool) -> Case {
    let task = Mixed(Rule::Own(7));
    let (mut planner, mut stitcher) = (BatchPlanner::new(), Stitcher::new(7, mixed::WIDTH));
    let rows = [vec![(0, READ), (1, WRITE)], vec![(0, WRITE)]];
    let mut case = Case::planned(&rows, false);
    let (mut all_reads, mut all_writes) = (Vec::new(), Vec::new());
    for row in rows {
        let data = mixed::data(&[row]);
        let planned = planner.plan(&task, &data).unwrap();
        let plain = planned.plan.annotations().clone();
        let stitched = stitcher.stitch(planned).unwrap().absolute();
        let (Annotations::General { reads, writes, .. }, Annotations::General { writes: plain, .. }) =
            (stitched.into_annotations(), plain)
        else {
            unreachable!("the rule is not that of features")
        };
        all_reads.extend(reads);
        all_writes.extend(writes.into_iter().zip(plain).map(|(mut op, plain)| {
            op.readers = if carried { op.readers } else { plain.readers };
            op
        }));
    }
    case.annotations = Arc::new(Annotations::General {
        reads_at: vec![0, 1, 1],
        reads: all_reads,
        writes_at: vec![0, 1, 2],
        writes: all_writes,
    });
    case
}

/// Cells of values alone.
impl cells::Cells for Cells {
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

/// Cells, and where each thread is.
struct Places {
    cells: Cells,
    next: Vec<AtomicU64>,
}

/// The threads, as one of them sees them.
struct Watching<'a> {
    places: &'a Places,
    own: usize,
}

impl Others for Watching<'_> {
    fn threads(&self) -> (usize, usize) {
        (self.places.next.len(), self.own)
    }

    fn next(&self, thread: usize) -> u64 {
        self.places.next[thread].load(Acquire)
    }

    fn until(&mut self, thread: usize, least: u64, _: u64) -> Result<(), Halt> {
        if self.next(thread) >= least {
            return Ok(());
        }
        let mut gate = self.places.cells.gate.lock().unwrap();
        while self.next(thread) < least {
            gate = self.places.cells.bell.wait(gate).unwrap();
        }
        Ok(())
    }
}

/// When a thread tells that it has finished a transaction.
#[derive(Copy, Clone, PartialEq)]
enum Tells {
    /// Once it has, releasing what it wrote.
    Then,
    /// Before it begins.
    Early,
    /// Without releasing anything.
    Unreleased,
}

/// Transactions that wait for one another by a roster: each thread has every so manyth.
#[derive(Clone)]
struct Rostered {
    rows: Vec<Vec<u32>>,
    roster: Arc<Roster>,
    threads: usize,
    tells: Tells,
}

impl Rostered {
    fn new(rows: &[&[u32]], threads: usize, reach: u32) -> Rostered {
        let rows: Vec<Vec<u32>> = rows.iter().map(|row| row.to_vec()).collect();
        let entries: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(|&x| (x, BOTH)).collect()).collect();
        let data = mixed::data(&entries);
        let Annotations::Compact(versions) = Plan::compact(&data).into_annotations() else { unreachable!() };
        let roster = Arc::new(Roster::reaching(reach, (&versions, None), &rows_of(&data), None, threads, 1));
        Rostered { rows, roster, threads, tells: Tells::Then }
    }

    fn compute(&self, row: usize, values: &mut [f64]) -> Vec<f64> {
        let read: Vec<f64> = self.rows[row].iter().map(|&x| values[x as usize]).collect();
        let mut write = vec![0.0; read.len()];
        computed(row, false, &read, &mut write);
        for (&x, value) in self.rows[row].iter().zip(write) {
            values[x as usize] = value;
        }
        read
    }

    /// All that one thread does; what each of its transactions read.
    fn work<S: Slips>(&self, places: &Places, thread: usize) -> Vec<(usize, Vec<f64>)> {
        let own = |row: &usize| usize::from(self.roster.owners()[*row]) == thread;
        let rows: Vec<usize> = (0..self.rows.len()).filter(own).collect();
        let advance = |next: Option<&usize>| {
            let ordering = if self.tells == Tells::Unreleased { Relaxed } else { Release };
            places.next[thread].store(*next.unwrap_or(&self.rows.len()) as u64, ordering);
            places.cells.ring();
        };
        advance(rows.first());
        let (mut floor, mut seen) = (0, Vec::new());
        for (at, &row) in rows.iter().enumerate() {
            if self.tells == Tells::Early {
                advance(rows.get(at + 1));
            }
            let features = &self.rows[row];
            let (mut read, mut write) = (vec![0.0; features.len()], vec![0.0; features.len()]);
            let mut others = Watching { places, own: thread };
            let at_its = At { position: row as u32, place: row as u64 };
            let compute = |read: &[f64], _: &[f32], write: &mut [f64]| {
                seen.push((row, read.to_vec()));
                computed(row, false, read, write);
            };
            let buffers = (&mut read[..], &mut [][..], &mut write[..]);
            let shared = (&mut others, &mut floor);
            carry_out::<_, _, S>(&places.cells, &self.roster, at_its, shared, features, buffers, compute)
                .unwrap();
            if self.tells != Tells::Early {
                advance(rows.get(at + 1));
            }
        }
        seen
    }

    /// As [`Case::explore`].
    fn explore<S: Slips + 'static>(self, preemptions: usize) {
        let mut values = vec![1.0; 2];
        let read: Vec<_> = (0..self.rows.len()).map(|row| (row, self.compute(row, &mut values))).collect();
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let next = (0..self.threads).map(|_| AtomicU64::new(0)).collect();
            let places = Arc::new(Places { cells: Cells::new(2), next });
            let threads: Vec<_> = (1..self.threads)
                .map(|thread| {
                    let (case, places) = (self.clone(), places.clone());
                    loom::thread::spawn(move || case.work::<S>(&places, thread))
                })
                .collect();
            let mut seen = self.work::<S>(&places, 0);
            seen.extend(threads.into_iter().flat_map(|thread| thread.join().unwrap()));
            seen.sort_unstable_by_key(|(row, _)| *row);
            let left: Vec<_> =
                places.cells.cells.iter().map(|cell| f64::from_bits(cell.value.load(SeqCst))).collect();
            assert_eq!((seen, left), (read.clone(), values.clone()));
        });
    }

    /// As [`Case::catches`].
    fn catches<S: Slips + 'static>(&self) -> bool {
        caught(|| self.clone().explore::<S>(2))
    }
}

macro_rules! slips {
    ($name:ident, $constant:ident) => {
        struct $name;
        impl Slips for $name {
            const $constant: bool = true;
        }
    };
}

slips!(ReadEarly, READ_EARLY);
slips!(NoneOlder, NONE_OLDER);
slips!(NearestOnly, NEAREST_ONLY);
slips!(OneShort, ONE_SHORT);

/// How lanes are passed on.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Relay {
    /// Kept until the end once taken.
    Kept,
    /// Given back after one transaction of one's own.
    Returned,
    /// A mistake: as that, but who goes on begins where it took them.
    Repeated,
    /// A mistake: given away without releasing what was done.
    Unreleased,
}

/// Lanes that two threads give away as soon as they would have to wait.
struct Passed {
    places: Places,
    free: Vec<AtomicBool>,
    relay: Relay,
}

impl Lanes for Passed {
    fn next(&self, lane: usize) -> u64 {
        self.places.next[lane].load(Acquire)
    }

    fn advance(&self, lane: usize, place: u64) {
        // The release of a lane alone is to be seen to do its part.
        let alone = self.relay == Relay::Unreleased;
        self.places.next[lane].store(place, if alone { Relaxed } else { Release });
        self.places.cells.ring();
    }

    fn take(&self, lane: usize) -> bool {
        self.free[lane].compare_exchange(true, false, Acquire, Relaxed).is_ok()
    }

    fn release(&self, lane: usize) {
        self.free[lane].store(true, if self.relay == Relay::Unreleased { Relaxed } else { Release });
        self.places.cells.ring();
    }
}

/// Of those, as one thread sees them: it does not wait, but tells for whom and until when it would.
struct Passing<'a> {
    passed: &'a Passed,
    own: usize,
    awaits: Option<(usize, u64)>,
}

impl Others for Passing<'_> {
    fn threads(&self) -> (usize, usize) {
        (2, self.own)
    }

    fn next(&self, thread: usize) -> u64 {
        self.passed.next(thread)
    }

    fn until(&mut self, thread: usize, least: u64, _: u64) -> Result<(), Halt> {
        if self.next(thread) >= least {
            return Ok(());
        }
        self.awaits = Some((thread, least));
        Err(Halt::Blocked(Box::new(TrainError::NotReset)))
    }
}

impl Passed {
    /// Sleeps until this holds: it can come to hold only when the bell rings.
    fn nap(&self, mut until: impl FnMut() -> bool) {
        let mut gate = self.places.cells.gate.lock().unwrap();
        while !until() {
            gate = self.places.cells.bell.wait(gate).unwrap();
        }
    }
}

/// Transactions of two threads that pass their lanes on.
#[derive(Clone)]
struct Relayed {
    rostered: Rostered,
    relay: Relay,
}

impl Relayed {
    fn new(rows: &[&[u32]], relay: Relay) -> Relayed {
        Relayed { rostered: Rostered::new(rows, 2, REACH), relay }
    }

    /// All that one thread does; what each of its transactions read.
    fn work(&self, passed: &Passed, thread: usize) -> Vec<(usize, Vec<f64>)> {
        let Rostered { rows, roster, .. } = &self.rostered;
        let end = rows.len() as u64;
        let (mut held, mut floor, mut seen) = (Held::own(thread), 0, Vec::new());
        'again: loop {
            let own = |row: &usize| held.has(usize::from(roster.owners()[*row]), *row as u64);
            let mine: Vec<usize> = (0..rows.len()).filter(own).collect();
            held.advance(passed, mine.first().map_or(end, |row| *row as u64));
            for (at, &row) in mine.iter().enumerate() {
                let features = &rows[row];
                let (mut read, mut write) = (vec![0.0; features.len()], vec![0.0; features.len()]);
                let compute = |read: &[f64], _: &[f32], write: &mut [f64]| {
                    seen.push((row, read.to_vec()));
                    computed(row, false, read, write);
                };
                let mut others = Passing { passed, own: thread, awaits: None };
                let buffers = (&mut read[..], &mut [][..], &mut write[..]);
                let shared = (&mut others, &mut floor);
                let place = row as u64;
                let at_its = At { position: row as u32, place };
                let cells = &passed.places.cells;
                let done = carry_out::<_, _, ordered::Sound>(
                    cells, roster, at_its, shared, features, buffers, compute,
                );
                if done.is_ok() {
                    let next = mine.get(at + 1).map_or(end, |row| *row as u64);
                    held.advance(passed, next);
                    let goes_on = if self.relay == Relay::Repeated { 0 } else { next };
                    let returns = self.relay != Relay::Kept && usize::from(roster.owners()[row]) == thread;
                    if returns && held.give_back(passed, goes_on, |_| true) {
                        continue 'again;
                    }
                    continue;
                }
                if !held.take_over(passed, 2, 0..place) {
                    let Some((lane, least)) = others.awaits else { unreachable!("it waits for one") };
                    held.give_away(passed, place);
                    passed.nap(|| passed.next(lane) >= least || passed.free[lane].load(Relaxed));
                    let mut next = None;
                    passed.nap(|| {
                        next = held.take_own(passed);
                        next.is_some()
                    });
                }
                continue 'again;
            }
            held.give_back(passed, end, |_| true);
            return seen;
        }
    }

    fn explore(self, preemptions: usize) {
        let rows = self.rostered.rows.len();
        let mut values = vec![1.0; 2];
        let read: Vec<_> = (0..rows).map(|row| (row, self.rostered.compute(row, &mut values))).collect();
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let next = (0..2).map(|_| AtomicU64::new(0)).collect();
            let places = Places { cells: Cells::new(2), next };
            let free = (0..2).map(|_| AtomicBool::new(false)).collect();
            let passed = Arc::new(Passed { places, free, relay: self.relay });
            let other = {
                let (case, passed) = (self.clone(), passed.clone());
                loom::thread::spawn(move || case.work(&passed, 1))
            };
            let mut seen = self.work(&passed, 0);
            seen.extend(other.join().unwrap());
            seen.sort_unstable_by_key(|(row, _)| *row);
            let cells = &passed.places.cells.cells;
            let left: Vec<_> = cells.iter().map(|cell| f64::from_bits(cell.value.load(SeqCst))).collect();
            assert_eq!((seen, left), (read.clone(), values.clone()));
        });
    }

    fn catches(&self) -> bool {
        caught(|| self.clone().explore(2))
    }
}

#[test]
fn no_interleaving_of_lanes_that_are_passed_on_gives_anything_else() {
    for relay in [Relay::Kept, Relay::Returned] {
        for rows in [&CHAIN, &FAR] {
            Relayed::new(rows, relay).explore(2);
        }
    }
}

const CHAIN: [&[u32]; 4] = [&[0], &[0, 1], &[1], &[0]];
/// The last one waits for the first; what is between does not.
const FAR: [&[u32]; 4] = [&[0], &[1], &[], &[0]];
const FORK: [&[u32]; 3] = [&[0], &[1], &[0, 1]];

#[test]
fn no_interleaving_of_a_roster_gives_anything_else() {
    for reach in [1, 2, REACH] {
        Rostered::new(&CHAIN, 2, reach).explore::<ordered::Sound>(3);
        Rostered::new(&FAR, 2, reach).explore::<ordered::Sound>(3);
        Rostered::new(&FORK, 3, reach).explore::<ordered::Sound>(2);
    }
}
