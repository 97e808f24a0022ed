//! All schemes side by side, on data with the shapes and conflicts of the published experiments (specs/cop.md 7).
//!
//! `cargo bench -p isochrone-learn --bench schemes -- [DATA,...] [--scale N] [--threads 1,2] [--rounds N] [--epochs N]
//! [--chunk N] [--schemes cop,hogwild] [--packed]`. Rounds take turns over the schemes, so that a noisy neighbour is everybody's;
//! the best epoch of all rounds counts. `factors` is a matrix of the size of MovieLens 1M, factorised at rank 16. Times
//! include the resets between epochs and exclude loading and planning. `--packed` adds COP over parameters that lie by how many
//! samples touch them, and tells what it takes to lay them out so.

use isochrone_core::Random;
use isochrone_learn::generate::{Generator, Recipe};
use isochrone_learn::tasks::{Factorisation, Linear};
use isochrone_learn::{Dataset, Model, Options, Plan, Scheme, Task, Values, train};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

struct Settings {
    data: Vec<String>,
    scale: u32,
    threads: Vec<NonZeroUsize>,
    rounds: u32,
    epochs: u32,
    chunk: u32,
    schemes: Vec<Scheme>,
    packed: bool,
    lambda: f64,
}

fn settings() -> Settings {
    let mut settings = Settings {
        data: ["kdda", "kddb", "imdb", "hotspot:1000", "hotspot:10000", "hotspot:100000"]
            .map(String::from)
            .to_vec(),
        scale: 16,
        threads: [1, 2].into_iter().filter_map(NonZeroUsize::new).collect(),
        rounds: 5,
        epochs: 3,
        chunk: Options::default().chunk,
        schemes: Scheme::ALL.to_vec(),
        packed: false,
        lambda: 1.0,
    };
    let mut arguments = std::env::args().skip(1);
    let bad = |what: &str| -> ! {
        eprintln!("{what}; see the head of benches/schemes.rs");
        std::process::exit(2)
    };
    while let Some(argument) = arguments.next() {
        if argument == "--bench" {
            continue;
        }
        if !argument.starts_with("--") {
            settings.data = argument.split(',').map(String::from).collect();
            continue;
        }
        if argument == "--packed" {
            settings.packed = true;
            continue;
        }
        let value = arguments.next().unwrap_or_default();
        let number =
            || value.parse().unwrap_or_else(|_| bad(&format!("{argument} wants a number, not `{value}`")));
        match argument.as_str() {
            "--scale" => settings.scale = number(),
            "--rounds" => settings.rounds = number(),
            "--epochs" => settings.epochs = number(),
            "--chunk" => settings.chunk = number(),
            "--lambda" => settings.lambda = f64::from(number()),
            "--threads" => {
                settings.threads = value.split(',').filter_map(|count| count.parse().ok()).collect();
            }
            "--schemes" => {
                settings.schemes = value.split(',').filter_map(|name| name.parse().ok()).collect();
            }
            _ => bad(&format!("no option {argument}")),
        }
    }
    settings
}

fn main() {
    let settings = settings();
    for name in &settings.data {
        if name == "factors" {
            let task = Factorisation { intercept: true, ..Factorisation::new(16) };
            let data = matrix(1_000_000 / settings.scale);
            let begin = Model { parameters: task.initial(data.width(), 1), intercept: 0.0 };
            compare(name, &task, &data, &begin, &settings);
            continue;
        }
        let recipe: Recipe = match name.parse() {
            Ok(recipe) => recipe,
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(2)
            }
        };
        let recipe = recipe.scaled(settings.scale);
        let generator = Generator::new(recipe).unwrap_or_else(|error| {
            eprintln!("{error}");
            std::process::exit(2)
        });
        let threads = NonZeroUsize::new(2).unwrap_or(NonZeroUsize::MIN);
        let (task, data) = (Linear::published_svm(settings.lambda), generator.all(threads));
        compare(name, &task, &data, &Model::zeros(&task, data.width()), &settings);
    }
}

/// So many ratings of 6,040 people; that of a film is the rarer the higher its number.
fn matrix(cells: u32) -> Dataset<'static> {
    let (people, films) = (6_040_u32, 3_706_u32);
    let mut random = Random::seeded(1);
    let mut features = Vec::new();
    for _ in 0..cells {
        features.push(random.below(u64::from(people)) as u32);
        let rarity = random.unit() * random.unit();
        features.push(people + (rarity * f64::from(films)) as u32);
    }
    let offsets: Vec<u64> = (0..=u64::from(cells)).map(|row| 2 * row).collect();
    let values = Values::F32(vec![1.0; features.len()].into());
    let labels: Vec<f64> = (0..cells).map(|_| 5.0 * random.unit()).collect();
    Dataset::new(offsets, features, values, labels, people + films).unwrap_or_else(|error| panic!("{error}"))
}

fn compare<T: Task>(name: &str, task: &T, data: &Dataset<'_>, begin: &Model, settings: &Settings) {
    let begun = Instant::now();
    let plan = Plan::of(task, data);
    let planning = begun.elapsed();
    println!(
        "{name} / {}: {} samples, {} features, {} values; planned in {:.1} ms ({:.2} ns a value)",
        settings.scale,
        data.len(),
        data.width(),
        data.entries(),
        planning.as_secs_f64() * 1e3,
        planning.as_secs_f64() * 1e9 / data.entries() as f64,
    );
    let mut ways: Vec<(Scheme, bool)> = settings.schemes.iter().map(|&scheme| (scheme, false)).collect();
    if settings.packed {
        ways.push((Scheme::Cop, true));
    }
    println!(
        "{:>11} {:>7} {:>10} {:>10} {:>9} {:>10} {:>9}",
        "scheme", "threads", "ns/value", "M sample/s", "/hogwild", "polls", "restarts"
    );
    for &threads in &settings.threads {
        let mut best = vec![(Duration::MAX, 0, 0); ways.len()];
        for _ in 0..settings.rounds {
            for (best, &(scheme, packed)) in best.iter_mut().zip(&ways) {
                let options = Options {
                    scheme,
                    packed,
                    threads,
                    epochs: settings.epochs,
                    chunk: settings.chunk,
                    ..Options::default()
                };
                let mut model = begin.clone();
                let report =
                    train(task, data, Some(&plan), &mut model, &options, &mut |_| ControlFlow::Continue(()));
                let report = match report {
                    Ok(report) => report,
                    Err(error) => {
                        eprintln!("{scheme}: {error}");
                        std::process::exit(1)
                    }
                };
                if packed && report.planning > Duration::from_millis(1) {
                    let ns = report.planning.as_secs_f64() * 1e9 / data.entries() as f64;
                    println!("places and roster on {threads} threads: {ns:.2} ns a value");
                }
                // The first epoch also brings the cells into the caches.
                let epochs = report
                    .epoch_times
                    .get(1..)
                    .filter(|rest| !rest.is_empty())
                    .unwrap_or(&report.epoch_times);
                let time = epochs.iter().copied().min().unwrap_or(Duration::MAX);
                if time < best.0 {
                    let polls: u64 =
                        report.workers.iter().map(|worker| worker.read_polls + worker.write_polls).sum();
                    let restarts: u64 = report.workers.iter().map(|worker| worker.restarts).sum();
                    *best = (time, polls / u64::from(settings.epochs), restarts / u64::from(settings.epochs));
                }
            }
        }
        let hogwild = settings.schemes.iter().position(|&scheme| scheme == Scheme::Hogwild);
        for (&(time, polls, restarts), (scheme, packed)) in best.iter().zip(&ways) {
            if *scheme == Scheme::Serial && threads.get() > 1 {
                continue;
            }
            let seconds = time.as_secs_f64();
            println!(
                "{:>11} {:>7} {:>10.2} {:>10.3} {:>9.3} {:>10} {:>9}",
                format!("{scheme}{}", if *packed { ", packed" } else { "" }),
                threads,
                seconds * 1e9 / data.entries() as f64,
                data.len() as f64 / seconds / 1e6,
                hogwild.map_or(f64::NAN, |at| best[at].0.as_secs_f64() / seconds),
                polls,
                restarts,
            );
        }
    }
}
