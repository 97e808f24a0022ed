//! `isochrone learn global`: regions that collect and a centre that learns, in one process, with emulated delays.

use super::arguments::Global as Arguments;
use super::told::{by_name, spelt};
use super::{apart, distinct, input, numbering, predict, tell_skipped, threads, train, writable};
use crate::arguments::Format;
use crate::output::{print_json, print_text};
use crate::{Status, Usage};
use anyhow::bail;
use isochrone_core::{Deployment, Span};
use isochrone_learn::global::{
    Center, CenterOptions, CollectorOptions, Counts, Emulation, EmulationReport, Memory, emulate, serial,
};
use isochrone_learn::saved::{SavedModel, SavedTask};
use isochrone_learn::tasks::{Against, Class, Linear, Loss};
use isochrone_learn::{Dataset, Model, Schedule};
use serde::Serialize;
use std::fmt::Write;

/// What `--format json` prints. Delays and the length of the run are virtual time.
#[derive(Serialize)]
struct Told {
    center: String,
    regions: Vec<Region>,
    seconds: f64,
    batches: u64,
    duplicates: u64,
    elsewhere: u64,
    first_touches: u64,
    /// Whether one thread, learning from the order log alone, has come to the same model (those of all classes), bit for bit.
    equal: bool,
    #[serde(serialize_with = "by_name")]
    figures: Vec<(&'static str, f64)>,
}

#[derive(Serialize)]
struct Region {
    name: String,
    samples: u64,
    batches: u64,
    sent: u64,
    bytes: u64,
    restarts: u64,
    /// From a sample's birth to its being durable at the centre, on average.
    delay_ms: f64,
}

/// Runs the verb.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<Status> {
    let [lose, repeat, restart] =
        [("lose", arguments.lose), ("repeat", arguments.repeat), ("restart", arguments.restart)].map(share);
    let emulated = arguments.rate > 0.0 && arguments.rate.is_finite();
    if !emulated {
        bail!(Usage(format!("--rate {}: a rate is samples a second, above 0", arguments.rate)));
    }
    train::strength(arguments.alpha)?;
    train::step(arguments.step)?;
    train::power(arguments.power)?;
    if let Some(model) = &arguments.model {
        apart(&arguments.data, "model", model)?;
        apart(&arguments.deployment, "model", model)?;
        writable(model)?;
    }
    // Nothing is served: the certificates may come later.
    let known = crate::protocols::known().insecure(true);
    let deployment = Deployment::load(&arguments.deployment, &known)?;
    let matrix = deployment.given_matrix()?;
    let mut emulation = Emulation::new(matrix);
    if let Some(name) = &arguments.center {
        let Some(region) = deployment.region_named(name) else {
            let names: Vec<_> = deployment.regions().iter().map(|region| region.name.as_str()).collect();
            bail!(Usage(format!("--center {name}: no region is called so; there are {}", names.join(", "))));
        };
        emulation.center = region.id;
        emulation.collectors = matrix.regions().filter(|other| *other != region.id).collect();
    }
    if emulation.collectors.is_empty() {
        emulation.collectors = vec![emulation.center];
    }
    let batch_size = arguments.batch_samples;
    let batch_time = arguments.batch_time.unwrap_or(CollectorOptions::default().batch_time);
    emulation.options = CollectorOptions { batch_size, batch_time, plan: !arguments.unplanned };
    (emulation.rate, emulation.seed) = (arguments.rate, arguments.seed);
    (emulation.loss, emulation.repeat, emulation.restart) = (lose?, repeat?, restart?);
    // Longer than any answer takes.
    emulation.patience = emulation.patience.max(longest(&deployment) * 4);

    let (input, mut reader, progress) = input(&arguments.data, &arguments.input)?;
    let data = reader.all()?;
    progress.finish_and_clear();
    tell_skipped(&reader);
    let mut classes = Vec::new();
    if arguments.loss != Loss::Squared {
        distinct(&data, &mut classes)?;
        classes = train::classes(&arguments.data, classes, data.len() as u64)?;
    }
    let linear = Linear { intercept: true, ..Linear::new(arguments.loss) };
    let linear = linear.penalised(arguments.alpha, 0.0, data.len());
    let tasks = against(linear, &classes);
    train::room(&linear, data.width(), tasks.len())?;
    let schedule = Schedule::InverseScaling { initial: arguments.step, power: arguments.power };
    let center =
        CenterOptions { schedule, threads: threads(arguments.threads), ..CenterOptions::new(data.width()) };
    let (report, counts, models, oracles) = learn(&emulation, &tasks, &data, center)?;
    models.iter().try_for_each(train::converged)?;
    let saved = SavedModel {
        task: SavedTask::Linear(linear),
        features: data.width(),
        classes,
        models,
        seen: data.len() as u64,
        numbering: numbering(&input, &reader),
    };
    let equal = saved.models == oracles;
    let told = told(&deployment, &emulation, &report, counts, equal, &saved, &data);
    if let Some(path) = &arguments.model {
        saved.save(path)?;
    }
    match arguments.format {
        Format::Json => print_json(&told)?,
        Format::Text => print_text(&show(&told))?,
    }
    Ok(if equal { Status::Held } else { Status::Failed })
}

/// A probability from a percentage.
fn share((flag, percent): (&str, f64)) -> anyhow::Result<f64> {
    if !(0.0..=90.0).contains(&percent) {
        bail!(Usage(format!("--{flag} {percent}: a share is from 0 to 90 percent")));
    }
    Ok(percent / 100.0)
}

fn longest(deployment: &Deployment) -> Span {
    let matrix = deployment.matrix();
    let pairs = matrix.regions().flat_map(|from| matrix.regions().map(move |to| (from, to)));
    pairs.map(|(from, to)| matrix.one_way(from, to)).max().unwrap_or_default()
}

/// A task for each plane: of two classes one, for the higher; of a regression the labels as they are.
fn against(linear: Linear, classes: &[f64]) -> Vec<Against> {
    let of = |&label: &f64| Against { linear, class: Some(Class::of(label)) };
    match classes {
        [] => vec![Against { linear, class: None }],
        [_, high] => vec![of(high)],
        _ => classes.iter().map(of).collect(),
    }
}

/// The whole run, the centre's models, and what one thread makes of its order log.
fn learn(
    emulation: &Emulation<'_>,
    tasks: &[Against],
    data: &Dataset<'_>,
    options: CenterOptions,
) -> anyhow::Result<(EmulationReport, Counts, Vec<Model>, Vec<Model>)> {
    // Each region has a stretch of the samples, in the order of the file.
    let sources = emulation.collectors.len();
    let stretch = data.len().div_ceil(sources).max(1);
    let rows: Vec<usize> = (0..data.len()).collect();
    let shares: Vec<_> = (0..sources)
        .map(|source| {
            data.select(&rows[(source * stretch).min(rows.len())..((source + 1) * stretch).min(rows.len())])
        })
        .collect();
    let schedule = options.schedule;
    let reopened = options.clone();
    let center = Center::on_all(Memory::default(), tasks.to_vec(), options)?;
    let reopen = |storage, _| Center::on_all(storage, tasks.to_vec(), reopened.clone());
    // What a collector plans and ships is the same for each class.
    let (report, mut center) = emulate(emulation, &tasks[0], data.width(), &shares, center, reopen)?;
    let (models, counts) = (center.models()?, center.counts());
    let mut storage = center.into_storage();
    let oracles = tasks.iter().map(|task| serial(&mut storage, task, data.width(), schedule));
    let oracles = oracles.collect::<Result<Vec<_>, _>>()?;
    Ok((report, counts, models, oracles))
}

fn told(
    deployment: &Deployment,
    emulation: &Emulation<'_>,
    report: &EmulationReport,
    counts: Counts,
    equal: bool,
    model: &SavedModel,
    data: &Dataset<'_>,
) -> Told {
    let regions = report.sources.iter().map(|source| Region {
        name: source.region.clone(),
        samples: source.samples,
        batches: source.batches,
        sent: source.sent,
        bytes: source.bytes,
        restarts: source.restarts,
        delay_ms: source.delay_mean.as_millis_f64(),
    });
    Told {
        center: deployment.matrix().name(emulation.center).to_owned(),
        regions: regions.collect(),
        seconds: report.elapsed.as_secs_f64(),
        batches: counts.accepted,
        duplicates: counts.duplicates,
        elsewhere: counts.elsewhere,
        first_touches: counts.stitched,
        equal,
        figures: predict::figures(model, &model.decisions(data), data.labels(), data.importances()),
    }
}

fn show(told: &Told) -> String {
    let width = told.regions.iter().map(|region| region.name.chars().count()).max().unwrap_or(0).max(6);
    let mut text = format!(
        "{:width$}  {:>9}  {:>8}  {:>6}  {:>11}  {:>8}  {:>10}\n",
        "region", "samples", "batches", "sent", "bytes", "restarts", "delay ms"
    );
    let mut line = |words: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{words}");
    };
    for region in &told.regions {
        let Region { name, samples, batches, sent, bytes, restarts, delay_ms } = region;
        line(format_args!(
            "{name:width$}  {samples:>9}  {batches:>8}  {sent:>6}  {bytes:>11}  {restarts:>8}  {delay_ms:>10.1}"
        ));
    }
    line(format_args!(
        "\ncentre in {}: {} batches in {:.1} s of virtual time; {} came twice, {} were cut elsewhere after a restart; {} first \
         touches stitched",
        told.center, told.batches, told.seconds, told.duplicates, told.elsewhere, told.first_touches
    ));
    for (name, value) in &told.figures {
        line(format_args!("{:<16} {value:.6}", spelt(name)));
    }
    line(format_args!(
        "the model {} one thread's over the order log, bit for bit",
        if told.equal { "is" } else { "is NOT" }
    ));
    text
}
