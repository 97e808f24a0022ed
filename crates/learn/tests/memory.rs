//! Memory that is not there is an error before a run begins, and never the end of the process.

#![allow(unsafe_code, reason = "an allocator that refuses is one")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use isochrone_learn::generate::write_svmlight;
use isochrone_learn::plan::PlanError;
use isochrone_learn::read::{self, Format, ReadError, Reader};
use isochrone_learn::tasks::{Factorisation, Linear, Loss};
use isochrone_learn::{Dataset, Mode, Model, Options, Plan, Scheme, Task, TrainError, Values, train};
use std::alloc::{GlobalAlloc, Layout, System};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's, with so much in all and no more.
struct Limited;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// What does not grow with data or model is always there.
const SMALL: usize = 16 << 10;

// Sound: it does what the system's does, or refuses.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= SMALL {
            let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
            if held > MOST.load(Relaxed) {
                HELD.fetch_sub(layout.size(), Relaxed);
                return std::ptr::null_mut();
            }
            PEAK.fetch_max(held, Relaxed);
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if layout.size() >= SMALL {
            HELD.fetch_sub(layout.size(), Relaxed);
        }
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static LIMITED: Limited = Limited;

/// Does it with more and more memory until it comes to its end, which it must where there is three times of what it took, and which
/// it cannot with less.
fn under_limits<R>(what: &str, run: impl Fn() -> Option<R>) {
    let (part, took) = refused_until(what, run);
    assert!(part >= 20, "{what} took {took} bytes, and was done with {part} twentieths of them");
}

/// Of how many twentieths of what it took it made do, and what it took.
fn refused_until<R>(what: &str, run: impl Fn() -> Option<R>) -> (usize, usize) {
    PEAK.store(HELD.load(Relaxed), Relaxed);
    let before = HELD.load(Relaxed);
    assert!(run().is_some(), "{what}");
    let took = PEAK.load(Relaxed) - before;
    assert_eq!(HELD.load(Relaxed), before, "{what}");
    for part in 0..=60 {
        MOST.store(before + took * part / 20, Relaxed);
        // Where it asks for what it is refused, the process ends here.
        let done = run().is_some();
        MOST.store(usize::MAX, Relaxed);
        if done {
            return (part, took);
        }
    }
    panic!("{what} took {took} bytes, and is refused with three times as many");
}

/// So many features in each sample, far from one another.
fn samples(count: u32, width: u32, each: u32) -> Dataset<'static> {
    let stride = width / each;
    let features: Vec<u32> =
        (0..count).flat_map(|row| (0..each).map(move |at| at * stride + row * 7919 % stride)).collect();
    let offsets: Vec<u64> = (0..=u64::from(count)).map(|row| row * u64::from(each)).collect();
    let values = Values::F32(vec![0.5; features.len()].into());
    let labels: Vec<f64> = (0..count).map(|row| f64::from(row % 2) * 2.0 - 1.0).collect();
    Dataset::new(offsets, features, values, labels, width).unwrap()
}

fn trained<T: Task>(task: &T, data: &Dataset<'_>, plan: Option<&Plan>, options: &Options) -> Option<Model> {
    // As whoever stops early looks at it after each epoch.
    let mut after = |end: &isochrone_learn::EpochEnd<'_>| {
        std::hint::black_box(end.model());
        ControlFlow::Continue(())
    };
    let size = task.parameters(data.width()) as usize * task.width();
    let mut parameters = Vec::new();
    parameters.try_reserve_exact(size).ok()?;
    parameters.resize(size, 0.1);
    let mut model = Model { parameters, intercept: 0.0 };
    match train(task, data, plan, &mut model, options, &mut after) {
        Ok(_) => Some(model),
        Err(TrainError::NoRoom(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    reading_under_limits();
    let data = samples(6_000, 30_000, 30);
    let cells = samples(12_000, 10_000, 2);
    let plain = Linear { intercept: true, ..Linear::new(Loss::Hinge) };
    let penalised = Linear { l1: 1.0, ..plain };
    for threads in [1, 2, 4] {
        let several = NonZeroUsize::new(threads).unwrap();
        under_limits(&format!("planning by {threads}"), || match Plan::in_blocks(&plain, &data, several) {
            Ok(plan) => Some(plan),
            Err(PlanError::NoRoom(_) | PlanError::TooWide(_)) => None,
            Err(error) => panic!("{error}"),
        });
        for scheme in Scheme::ALL {
            let options = Options { scheme, threads: several, epochs: 2, ..Options::default() };
            let mut ways =
                vec![("", options.clone()), ("with decay", Options { decay: 0.01, ..options.clone() })];
            if scheme == Scheme::Cop {
                ways.push(("carried", Options { mode: Mode::Carry, ..options.clone() }));
                ways.push(("planned first", Options { first_epoch: true, ..options.clone() }));
                ways.push(("packed", Options { packed: true, ..options.clone() }));
                ways.push(("counted", Options { elide: false, ..options.clone() }));
            }
            for (way, options) in ways {
                for (penalty, task) in [("none", plain), ("l1", penalised)] {
                    let what = format!("{scheme} {way} by {threads}, penalty {penalty}");
                    under_limits(&what, || trained(&task, &data, None, &options));
                    if scheme == Scheme::Cop && !options.first_epoch && threads == 2 {
                        // A plan of its own each time: what threads make of it stays with it.
                        under_limits(&format!("{what}, planned before"), || {
                            let plan = Plan::in_blocks(&task, &data, several).ok()?;
                            trained(&task, &data, Some(&plan), &options)
                        });
                    }
                }
            }
            let task = Factorisation { l2: 0.1, ..Factorisation::new(8) };
            let what = format!("factorisation by {scheme} and {threads}");
            under_limits(&what, || trained(&task, &cells, None, &options));
        }
    }
}

/// Reading takes what the file asks for, and as its threads run.
fn reading_under_limits() {
    let folder = tempfile::tempdir().unwrap();
    let (svmlight, vw) = (folder.path().join("data.svm"), folder.path().join("data.vw"));
    let mut text = Vec::new();
    write_svmlight(&samples(9_000, 30_000, 30), &mut text).unwrap();
    std::fs::write(&svmlight, text).unwrap();
    let line = |row: u32| format!("{} {} |f a:{row} b c{}\n", row % 2, row % 3, row % 1000);
    std::fs::write(&vw, (0..12_000).map(line).collect::<String>()).unwrap();
    for (path, format) in [(&svmlight, Format::Svmlight), (&vw, Format::Vw)] {
        for double in [false, true] {
            let options = read::Options { format, double, ..read::Options::default() };
            let reader = || Reader::open(path, options.clone());
            let limited = |how: &str, read: &dyn Fn() -> Result<(), ReadError>| {
                let what = format!("{how} of {format:?} in double: {double}");
                let (part, took) = refused_until(&what, || match read() {
                    Ok(()) => Some(()),
                    Err(error) => {
                        let told = error.to_string();
                        assert!(error.is_memory() || matches!(error, ReadError::Wide { .. }), "{told}");
                        assert!(told.contains("memory"), "{told}");
                        None
                    }
                });
                assert!(part > 2, "{what} took {took} bytes, and was done with {part} twentieths of them");
            };
            limited("all", &|| reader()?.all().map(drop));
            limited("all and a plan", &|| reader()?.all_planned().map(drop));
            limited("a batch", &|| reader()?.batch(10_000).map(drop));
        }
    }
}
