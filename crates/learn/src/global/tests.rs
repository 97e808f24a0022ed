//! T-COP-12: whatever is lost, repeated, restarted or crashed, every sample is learnt from exactly once, and the model is
//! bit for bit what one thread learns from the order log.

use std::num::NonZeroUsize;
use std::time::Duration;

use isochrone_core::id::RegionId;
use isochrone_core::{Instant, Matrix, Random, Span};

use super::*;
use crate::data::{Dataset, Sample, Value};
use crate::exec::{Model, Schedule};
use crate::plan::mixed::{self, Mixed, Narrow, WIDTH};
use crate::task::{Rule, Sets, Step, Task};
use crate::tasks::{Against, Class, Linear, Loss};

/// [`Mixed`], and what else a task may ask for: weights and an intercept.
#[derive(Clone, Copy, Debug)]
struct Everything {
    rule: Rule,
    extras: bool,
}

impl Task for Everything {
    fn rule(&self) -> Rule {
        self.rule
    }

    fn weighted(&self) -> bool {
        self.extras
    }

    fn intercept(&self) -> bool {
        self.extras
    }

    fn sets<V: Value>(&self, sample: &Sample<'_, V>, sets: &mut Sets) {
        Mixed(self.rule).sets(sample, sets);
    }

    fn compute<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> f64 {
        let weights: f64 =
            step.weights.iter().map(|&weight| f64::from(weight)).sum::<f64>() + sample.importance;
        let seen = Mixed(self.rule).compute(sample, step, read, write);
        write.iter_mut().for_each(|value| *value = (*value + weights + step.intercept).sin());
        (seen + step.intercept).cos()
    }
}

const SCHEDULE: Schedule = Schedule::InverseScaling { initial: 0.5, power: 0.25 };

fn options() -> CenterOptions {
    CenterOptions {
        patience: Duration::from_secs(5),
        schedule: SCHEDULE,
        queue_max: 5,
        held_max: 3,
        checkpoint_every: 7,
        ..CenterOptions::new(WIDTH)
    }
}

fn some_data(random: &mut Random, samples: u64) -> Dataset<'static> {
    let mut rows = Vec::new();
    for _ in 0..samples {
        let features = (0..WIDTH).filter(|_| random.chance(0.3));
        let features: Vec<u32> = features.collect();
        let value = |random: &mut Random| [mixed::READ, mixed::WRITE, mixed::BOTH][random.below(3) as usize];
        rows.push(features.into_iter().map(|feature| (feature, value(random))).collect());
    }
    // Some sources say of none of their samples what it counts, others of a few or of many.
    let weighed = [0.0, 0.1, 0.9][random.below(3) as usize];
    let importance = |_| if random.chance(weighed) { random.unit() * 3.0 } else { 1.0 };
    let importances = (0..samples).map(importance).collect();
    mixed::data(&rows).weighed(importances)
}

fn matrix() -> Matrix {
    let text = include_str!("../../../../reference/rtt/helios-ec2.csv");
    Matrix::parse(text, "helios-ec2.csv", isochrone_core::topology::Cells::RoundTrip, Span::ZERO).unwrap()
}

/// The model of the order log by a second, dumb reader of it.
fn audit<T: Task>(mut storage: Memory, task: &T) -> Model {
    serial(&mut storage, task, WIDTH, SCHEDULE).unwrap()
}

/// Every sample of every source is in the log once, in its source's order.
fn exactly_once<T: Task>(storage: &mut Memory, task: &T, data: &[Dataset<'_>]) {
    let rows = |data: &Dataset<'_>| -> Vec<(Vec<u32>, f64, f64)> {
        let row = |row| (data.row(row).to_vec(), data.labels()[row], data.importance(row));
        (0..data.len()).map(row).collect()
    };
    let mut found = vec![Vec::new(); data.len()];
    OrderLog::read(storage, &Kind::of(task, WIDTH), |record, _| {
        if let Record::Batch(bytes) = record {
            let (batch, _) = Batch::decode(&bytes, task, WIDTH).unwrap();
            found[batch.source as usize].extend(rows(&batch.data));
        }
        Ok::<(), LogError>(())
    })
    .unwrap();
    for (found, data) in found.iter().zip(data) {
        assert_eq!(found, &rows(data));
    }
}

fn run(seed: u64, crashes: bool) -> (EmulationReport, Counts) {
    let mut random = Random::seeded(seed);
    let matrix = matrix();
    let task = Everything {
        rule: [Rule::Features, Rule::Own(7)][random.below(2) as usize],
        extras: random.chance(0.5),
    };
    let sizes: Vec<u64> = (0..5).map(|_| random.between(0, 120)).collect();
    let data: Vec<_> = sizes.into_iter().map(|samples| some_data(&mut random, samples)).collect();
    let faults = |random: &mut Random| if random.chance(0.5) { random.unit() * 0.3 } else { 0.0 };
    let emulation = Emulation {
        collectors: matrix.regions().collect(),
        center: RegionId(random.below(5) as u16),
        options: CollectorOptions {
            batch_size: random.between(1, 30) as u32,
            batch_time: Span::from_millis(random.between(1, 500)),
            plan: random.chance(0.8),
        },
        rate: [30.0, 1000.0][random.below(2) as usize],
        jitter: 2.0,
        loss: faults(&mut random),
        repeat: faults(&mut random),
        restart: faults(&mut random),
        patience: Span::from_millis(700),
        seed: random.below(u64::MAX),
        ..Emulation::new(&matrix)
    };
    let threads = NonZeroUsize::new(random.between(1, 3) as usize).unwrap();
    let options = || CenterOptions { threads, ..options() };
    let mut storage = Memory::default();
    if crashes {
        storage.crash_after(random.below(12));
    }
    let center = |mut storage: Memory, random: &mut Random| loop {
        match Center::on(storage.clone(), task, options()) {
            Ok(center) => break center,
            // It may crash while it is opened too.
            Err(error) => {
                assert!(!matches!(error, CenterError::Learn(_)), "seed {seed}: {error}");
                storage = storage.restarted(random.below(1001));
            }
        }
    };
    let begun = center(storage, &mut random);
    let reopen = |storage: Memory, error: CenterError| {
        assert!(!matches!(error, CenterError::Learn(_)), "seed {seed}: {error}");
        // The process, or the machine.
        let mut storage =
            if random.chance(0.5) { storage.reopened() } else { storage.restarted(random.below(1001)) };
        storage.crash_after(random.below(40));
        Ok(center(storage, &mut random))
    };
    let (report, mut center) = emulate(&emulation, &task, WIDTH, &data, begun, reopen).unwrap();
    let counts = center.counts();
    let model = center.model().unwrap();
    let mut storage = center.into_storage().restarted(1000);
    assert_eq!(model, audit(storage.clone(), &task), "seed {seed}");
    exactly_once(&mut storage, &task, &data);
    let mut again = Center::on(storage, task, options()).unwrap();
    assert_eq!(again.model().unwrap(), model, "seed {seed}: opened again");
    (report, counts)
}

#[test]
fn every_sample_is_learnt_from_exactly_once() {
    let mut seen = Counts::default();
    let mut restarts = 0;
    for seed in 0..300 {
        let (report, counts) = run(seed, false);
        restarts += report.sources.iter().map(|source| source.restarts).sum::<u64>();
        seen.duplicates += counts.duplicates;
        seen.elsewhere += counts.elsewhere;
        seen.unplanned += counts.unplanned;
        seen.checkpoints += counts.checkpoints;
    }
    // The test has teeth only if all of this happens.
    assert!(
        restarts > 0
            && seen.duplicates > 0
            && seen.elsewhere > 0
            && seen.unplanned > 0
            && seen.checkpoints > 0
    );
}

#[test]
fn a_centre_that_crashes_anywhere_loses_nothing() {
    let reopened: u64 = (1000..1300).map(|seed| run(seed, true).0.reopened).sum();
    assert!(reopened > 300, "{reopened}");
}

/// Many small batches overtake one another, and a centre holds only a few: those it turns away come again, not all each time.
#[test]
fn what_is_turned_away_is_sent_again_a_few_times() {
    let (matrix, mut random) = (matrix(), Random::seeded(3));
    let task = Everything { rule: Rule::Features, extras: true };
    let mut emulation = Emulation::new(&matrix);
    emulation.options.batch_size = 1;
    let data: Vec<_> = emulation.collectors.iter().map(|_| some_data(&mut random, 200)).collect();
    let center = Center::on(Memory::default(), task, CenterOptions::new(WIDTH)).unwrap();
    let (report, _) = emulate(&emulation, &task, WIDTH, &data, center, |_, error| Err(error)).unwrap();
    for source in report.sources {
        assert!(source.batches == 200 && (201..=800).contains(&source.sent), "{source:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(run(42, true), run(42, true));
}

/// A crash at each change of the storage in turn, with nothing, half, or all of what was not synchronised on the disk.
#[test]
fn a_crash_at_every_boundary() {
    let task = Everything { rule: Rule::Features, extras: true };
    let data = some_data(&mut Random::seeded(9), 40);
    let mut collector =
        Collector::new(0, task, WIDTH, CollectorOptions { batch_size: 4, ..Default::default() });
    let mut batches = Vec::new();
    crate::with_rows!(&data, rows => for row in 0..data.len() {
        batches.extend(collector.push(&rows.sample(row), Instant::ZERO).unwrap());
    });
    let options = || CenterOptions { checkpoint_every: 3, ..options() };
    let whole = |mut storage: Memory, crash: Option<u64>, kept: u64| {
        if let Some(changes) = crash {
            storage.crash_after(changes);
        }
        let mut lost = 0;
        let mut center = None;
        let mut at = 0;
        while at < batches.len() {
            let mut open =
                match center.take().map_or_else(|| Center::on(storage.clone(), task, options()), Ok) {
                    Ok(open) => open,
                    Err(_) => {
                        // The machine stopped while the centre was opened on a copy of what is on the disk.
                        storage = storage.clone().restarted(kept);
                        lost += 1;
                        continue;
                    }
                };
            match open.ingest(batches[at].clone()).and_then(|answer| open.work().map(|_| answer)) {
                Ok(Ingest::Accepted { .. } | Ingest::Duplicate(_)) => {
                    at += 1;
                    center = Some(open);
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => {
                    storage = open.into_storage().restarted(kept);
                    lost += 1;
                }
            }
        }
        let mut center = center.unwrap();
        let model = center.model().unwrap();
        (model, center.into_storage(), lost)
    };
    let (model, storage, _) = whole(Memory::default(), None, 0);
    let changes = storage.changes();
    assert!(changes > 20);
    assert_eq!(model, audit(storage, &task));
    for at in 0..changes {
        for kept in [0, 500, 1000] {
            let (crashed, storage, lost) = whole(Memory::default(), Some(at), kept);
            assert_eq!(lost, 1, "at change {at}");
            assert_eq!(crashed, audit(storage, &task), "at change {at}, {kept} kept");
        }
    }
}

/// The process dies between writing a batch and synchronising it, at each change in turn; then the machine stops. What the second
/// process said to be taken, the third one has.
#[test]
fn what_a_reopened_centre_tells_is_durable() {
    let task = Mixed(Rule::Features);
    let sent = |seq| batch(0, seq, 2 * seq, &[vec![(1, 1.0)], vec![(1, 1.0), (2, 1.0)]]).encode();
    let mut kept = [0; 2];
    for changes in 0.. {
        let mut center = Center::on(Memory::default(), task, options()).unwrap();
        assert!(matches!(center.ingest(sent(0)).unwrap(), Ingest::Accepted { .. }));
        let mut storage = center.into_storage();
        storage.crash_after(changes);
        let mut center = match Center::on(storage.clone(), task, options()) {
            Ok(center) => center,
            Err(_) => continue,
        };
        if center.ingest(sent(1)).is_ok() {
            break;
        }
        let second = Center::on(center.into_storage().reopened(), task, options()).unwrap();
        let told = second.next(0);
        let third = Center::on(second.into_storage().restarted(0), task, options()).unwrap();
        assert_eq!(third.next(0), told, "after {changes} changes");
        kept[told.seq as usize - 1] += 1;
    }
    assert!(kept[0] > 0 && kept[1] > 0, "{kept:?}: some batches were written whole, some not");
}

fn batch(source: u32, seq: u64, sample: u64, rows: &[Vec<(u32, f64)>]) -> Batch {
    Batch { source, seq, sample, data: mixed::data(rows), plan: None }
}

/// The answers of a centre, one for each way that a batch can come.
#[test]
fn what_a_centre_answers() {
    let task = Mixed(Rule::Features);
    let options = CenterOptions { queue_max: 2, held_max: 1, ..options() };
    let mut center = Center::on(Memory::default(), task, options).unwrap();
    let rows = vec![vec![(1, 1.0)], vec![(1, 1.0), (2, 1.0)]];
    let mut told = |bytes: Vec<u8>| format!("{:?}", center.ingest(bytes).unwrap());
    let sent = |seq, sample| batch(4, seq, sample, &rows).encode();
    assert_eq!(told(sent(1, 2)), "Held(Next { seq: 0, sample: 0 })");
    assert_eq!(told(sent(2, 4)), "Full(Next { seq: 0, sample: 0 })");
    assert_eq!(told(sent(0, 0)), "Accepted { position: 0, next: Next { seq: 2, sample: 4 } }");
    assert_eq!(told(sent(0, 0)), "Duplicate(Next { seq: 2, sample: 4 })");
    assert_eq!(told(sent(2, 3)), "Elsewhere(Next { seq: 2, sample: 4 })");
    assert_eq!(told(sent(2, 4)), "Full(Next { seq: 2, sample: 4 })");
    assert!(told(vec![1, 2, 3]).starts_with("Refused(Unknown"));
    assert_eq!(center.work().unwrap(), 2);
    let answer = format!("{:?}", center.ingest(sent(2, 4)).unwrap());
    assert_eq!(answer, "Accepted { position: 2, next: Next { seq: 3, sample: 6 } }");
    let counts = center.counts();
    assert_eq!((counts.accepted, counts.samples, counts.unplanned, counts.queued), (3, 6, 3, 1));
    assert_eq!((counts.duplicates, counts.elsewhere, counts.full, counts.refused), (1, 1, 2, 1));
}

/// A plan that came damaged is made again, and is then the same plan.
#[test]
fn a_damaged_plan_is_made_again() {
    let task = Mixed(Rule::Own(7));
    let rows: Vec<_> = (0..30).map(|row| vec![(row % 5, mixed::BOTH), (5 + row % 3, mixed::READ)]).collect();
    let model = |damage: Option<usize>| {
        let mut center = Center::on(Memory::default(), task, options()).unwrap();
        let mut planner = crate::plan::BatchPlanner::new();
        for seq in 0..3 {
            let mut batch = batch(0, seq, seq * 30, &rows);
            let unplanned = batch.encode().len();
            batch.plan = Some(planner.plan(&task, &batch.data).unwrap());
            let mut bytes = batch.encode();
            if let Some(at) = damage {
                bytes[unplanned + at] ^= 1;
            }
            assert!(matches!(center.ingest(bytes).unwrap(), Ingest::Accepted { .. }));
        }
        (center.model().unwrap(), center.counts().replanned)
    };
    let (whole, none) = model(None);
    assert_eq!(none, 0);
    for at in [0, 9, 30, 200] {
        assert_eq!(model(Some(at)), (whole.clone(), 3));
    }
}

/// Neither its collector nor the centre ends by them, and those that come behind it are taken.
#[test]
fn a_batch_whose_sets_none_may_have_is_refused() {
    let mut center = Center::on(Memory::default(), Narrow, options()).unwrap();
    let once = CollectorOptions { batch_size: 1, ..CollectorOptions::default() };
    let mut collector = Collector::new(0, Narrow, WIDTH, once);
    let odd = Sample { features: &[2, 6], values: &[mixed::READ, mixed::READ], label: 1.0, importance: 1.0 };
    let sent = collector.push(&odd, Instant::ZERO).unwrap().unwrap();
    let Ingest::Refused(error) = center.ingest(sent).unwrap() else { panic!("there is no parameter 6") };
    assert_eq!(
        error.to_string(),
        "row 0 touches parameter 6 of a task that has 4, counted from 0: Task::parameters must be above all that are touched"
    );
    let sound = batch(0, 0, 0, &[vec![(2, mixed::BOTH), (3, mixed::READ)]]);
    assert!(matches!(center.ingest(sound.encode()).unwrap(), Ingest::Accepted { .. }));
    assert_eq!((center.counts().refused, center.counts().accepted), (1, 1));
    center.model().unwrap();
}

/// Planned where the data is not what the plan says it is: the plan is sound, but of other samples.
#[test]
fn a_plan_of_other_samples_is_made_again() {
    let task = Mixed(Rule::Features);
    let mut center = Center::on(Memory::default(), task, options()).unwrap();
    let mut wrong = batch(0, 0, 0, &[vec![(1, 1.0)], vec![(1, 1.0)]]);
    let other = mixed::data(&[vec![(1, 1.0)], vec![(2, 1.0)]]);
    wrong.plan = Some(crate::plan::BatchPlanner::new().plan(&task, &other).unwrap());
    center.ingest(wrong.encode()).unwrap();
    assert_eq!(center.counts().replanned, 1);
    center.model().unwrap();
}

/// A compact plan that could be followed, in which two samples replace the same one: threads would overtake one another, and
/// nobody would wait for ever.
#[test]
fn a_plan_that_races_is_made_again() {
    let task = Everything { rule: Rule::Features, extras: false };
    let mut center = Center::on(Memory::default(), task, options()).unwrap();
    let mut wrong = batch(0, 0, 0, &[vec![(1, 1.0)], vec![(1, 1.0)], vec![(1, 1.0)]]);
    let mut planned = crate::plan::BatchPlanner::new().plan(&task, &wrong.data).unwrap();
    let crate::plan::Annotations::Compact(versions) = planned.plan.annotations_mut() else { unreachable!() };
    assert_eq!(*versions, [0, 1, 2]);
    versions[2] = 1;
    wrong.plan = Some(planned);
    center.ingest(wrong.encode()).unwrap();
    assert_eq!(center.counts().replanned, 1);
    assert_eq!(center.model().unwrap(), audit(center.into_storage(), &task));
}

/// A plan whose bytes are sound and possible, but that is not the samples' (a collector with a mistake in it): learning stops,
/// and the centre that is opened on the same log learns what one thread learns.
#[test]
fn a_plan_that_cannot_be_followed_stops_one_centre_only() {
    let task = Everything { rule: Rule::Own(7), extras: false };
    let mut wrong = batch(0, 0, 0, &[vec![(1, mixed::BOTH)], vec![(1, mixed::BOTH)], vec![(2, mixed::BOTH)]]);
    let mut planned = crate::plan::BatchPlanner::new().plan(&task, &wrong.data).unwrap();
    let crate::plan::Annotations::General { writes, .. } = planned.plan.annotations_mut() else {
        unreachable!()
    };
    writes[1].readers = 9;
    wrong.plan = Some(planned);
    let patience = Duration::from_millis(50);
    let mut center = Center::on(Memory::default(), task, CenterOptions { patience, ..options() }).unwrap();
    center.ingest(wrong.encode()).unwrap();
    assert_eq!(center.counts().replanned, 0);
    let error = center.work().unwrap_err().to_string();
    assert!(error.contains("no thread made progress"), "{error}");
    assert!(matches!(center.model(), Err(CenterError::Stopped)));
    let storage = center.into_storage();
    let mut center = Center::on(storage.clone(), task, options()).unwrap();
    assert_eq!(center.model().unwrap(), audit(storage, &task));
}

#[test]
fn a_folder_keeps_what_memory_keeps() {
    let folder = tempfile::tempdir().unwrap();
    let task = Everything { rule: Rule::Own(7), extras: true };
    let data = some_data(&mut Random::seeded(3), 90);
    let send = |center: &mut Center<Everything>, rows: std::ops::Range<usize>| {
        for start in rows.step_by(10) {
            let next = center.next(1);
            assert_eq!(next.sample, start as u64);
            let rows: Vec<Vec<(u32, f64)>> = (start..start + 10)
                .map(|row| data.row(row).iter().map(|&feature| (feature, mixed::BOTH)).collect())
                .collect();
            let batch = batch(1, next.seq, next.sample, &rows);
            assert!(matches!(center.ingest(batch.encode()).unwrap(), Ingest::Accepted { .. }));
            center.work().unwrap();
        }
    };
    let mut center = Center::open(folder.path(), task, options()).unwrap();
    send(&mut center, 0..30);
    center.checkpoint().unwrap();
    send(&mut center, 30..60);
    drop(center);
    let mut center = Center::open(folder.path(), task, options()).unwrap();
    assert_eq!(center.counts().replayed, 3);
    send(&mut center, 60..90);
    let model = center.model().unwrap();
    drop(center);
    let mut files = Files::open(folder.path()).unwrap();
    assert_eq!(serial(&mut files, &task, WIDTH, SCHEDULE).unwrap(), model);
    drop(files);
    std::fs::remove_file(folder.path().join(CHECKPOINT)).unwrap();
    let mut center = Center::open(folder.path(), task, options()).unwrap();
    assert_eq!(center.counts().replayed, 9);
    assert_eq!(center.model().unwrap(), model);
    drop(center);
    let error = Center::open(folder.path(), Mixed(Rule::Features), options()).unwrap_err().to_string();
    assert!(error.contains("use another folder"), "{error}");
}

/// Three classes, each against the rest: one log, one plan, and a model each, bit for bit that of one thread; also of a centre
/// that begins at the checkpoint of three.
#[test]
fn several_tasks_learn_from_the_same_batches() {
    let linear = Linear { intercept: true, l2: 0.1, ..Linear::new(Loss::Logistic) };
    let tasks: Vec<_> =
        (0..3).map(|class| Against { linear, class: Some(Class::of(f64::from(class))) }).collect();
    let data = some_data(&mut Random::seeded(5), 400);
    let data = data.with_labels((0..400).map(|row| f64::from(row % 3)).collect::<Vec<_>>()).unwrap();
    let rows = |rows: std::ops::Range<usize>| Batch {
        source: 1,
        seq: rows.start as u64 / 40,
        sample: rows.start as u64,
        data: data.select(&rows.collect::<Vec<_>>()),
        plan: None,
    };
    let mut storage = Memory::default();
    for half in [0..5, 5..10] {
        let mut center = Center::on_all(storage, tasks.clone(), options()).unwrap();
        for batch in half {
            let answer = center.ingest(rows(40 * batch..40 * batch + 40).encode()).unwrap();
            assert!(matches!(answer, Ingest::Accepted { .. }), "{answer:?}");
        }
        center.checkpoint().unwrap();
        let models = center.models().unwrap();
        storage = center.into_storage();
        for (task, model) in tasks.iter().zip(&models) {
            assert_eq!(&audit(storage.clone(), task), model, "{task:?}");
        }
        assert!(models[0] != models[1] && models[1] != models[2]);
    }
}

/// A model of which one half was learnt with other settings than the other is nobody's.
#[test]
fn a_folder_goes_on_as_it_was_begun() {
    let linear = Linear { intercept: true, l2: 0.1, ..Linear::new(Loss::Logistic) };
    let class = |label| Against { linear, class: Some(Class::of(label)) };
    let begun = CenterOptions { labels: "low, high".to_string(), ..options() };
    let mut center = Center::on_all(Memory::default(), vec![class(0.0), class(1.0)], begun.clone()).unwrap();
    let sent = batch(0, 0, 0, &[vec![(1, 1.0)], vec![(1, 1.0), (2, 1.0)]]).encode();
    assert!(matches!(center.ingest(sent).unwrap(), Ingest::Accepted { .. }));
    center.checkpoint().unwrap();
    let storage = center.into_storage();
    let open = |tasks, options| Center::on_all(storage.clone(), tasks, options);
    let told = |tasks, options| open(tasks, options).unwrap_err().to_string();
    let again = open(vec![class(0.0), class(1.0)], begun.clone()).unwrap();
    assert_eq!((again.next(0).seq, again.counts().replayed), (1, 0));

    let other = Against { linear: Linear { l2: 0.2, ..linear }, ..class(1.0) };
    assert_eq!(
        told(vec![class(0.0), other], begun.clone()),
        "order.log was begun with class 1 against the rest, counting 1 and 1, logistic loss, l2 0.1, l1 0, an intercept moved by \
         0.01; now it is class 1 against the rest, counting 1 and 1, logistic loss, l2 0.2, l1 0, an intercept moved by 0.01: go on \
         as it was begun, or use another folder"
    );
    let schedule = Schedule::Constant(0.5);
    let schedule = told(vec![class(0.0), class(1.0)], CenterOptions { schedule, ..begun.clone() });
    assert!(
        schedule.contains("begun with steps of 0.5 / t^0.25; now it is steps of 0.5: go on"),
        "{schedule}"
    );
    let labels = CenterOptions { labels: "low, middle".to_string(), ..begun.clone() };
    let labels = told(vec![class(0.0), class(1.0)], labels);
    assert!(labels.contains("begun with labels low, high; now it is labels low, middle: go on"), "{labels}");
    assert!(told(vec![class(1.0)], begun.clone()).contains("now it is nothing else"));
    assert!(told(vec![class(1.0), class(0.0)], begun).contains("now it is nothing else"));
    // One thread learns any one of them, and nothing else.
    audit(storage.clone(), &class(1.0));
    let refused = serial(&mut storage.clone(), &other, WIDTH, SCHEDULE).unwrap_err().to_string();
    assert!(refused.contains("now it is class 1 against the rest"), "{refused}");
}
