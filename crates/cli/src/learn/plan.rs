//! `isochrone learn plan`.

use super::arguments::Plan as Arguments;
use super::{apart, input, no_cell, tell_skipped, threads, writable};
use crate::Status;
use crate::arguments::Format;
use crate::output::{print_json, print_text, say};
use isochrone_learn::generate;
use isochrone_learn::plan::Plan;
use isochrone_learn::plan::statistics::{Shape, Statistics};
use isochrone_learn::read;
use isochrone_learn::tasks::Factorisation;
use serde::Serialize;
use serde_json::json;
use std::fmt::Write;

/// What `--format json` prints.
#[derive(Serialize)]
struct Told {
    samples: u32,
    features: u32,
    values: usize,
    sharing: f64,
    operations: u64,
    touched: u32,
    depth: u32,
    parallelism: f64,
    bytes: u64,
    bottlenecks: Vec<serde_json::Value>,
    recommended_threads: u32,
    shape: &'static str,
    recommendation: String,
}

/// Runs the verb.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<Status> {
    if let Some(path) = &arguments.out {
        apart(&arguments.data, "out", path)?;
        writable(path)?;
    }
    let (_, mut reader, progress) = input(&arguments.data, &arguments.input)?;
    let (data, plan) = if arguments.factorisation {
        let data = reader.all()?;
        // Its sets are those of every rank.
        let task = Factorisation::new(1);
        task.check(&data).map_err(|wrong| no_cell(&arguments.data, 0, wrong))?;
        let plan = Plan::of(&task, &data);
        (data, plan)
    } else {
        reader.all_planned()?
    };
    progress.finish_and_clear();
    tell_skipped(&reader);
    let mut statistics = Statistics::of(&plan, &data)?;
    // Features are named as the file does.
    let svmlight = arguments.input.input == read::Format::Svmlight;
    statistics.first = u32::from(svmlight && reader.base() == read::Base::One);
    let recommended = statistics.recommend(threads(arguments.threads));
    let sharing = generate::Statistics::of(&data, 1).sharing;
    if let Some(path) = &arguments.out {
        plan.save(path)?;
        say(format_args!("wrote {}", path.display()));
    }
    match arguments.format {
        Format::Json => print_json(&Told {
            samples: statistics.samples,
            features: data.width(),
            values: data.entries(),
            sharing,
            operations: statistics.operations,
            touched: statistics.touched,
            depth: statistics.depth(),
            parallelism: statistics.parallelism(),
            bytes: statistics.bytes,
            bottlenecks: statistics
                .bottlenecks
                .iter()
                .map(|one| {
                    let parameter = u64::from(one.parameter) + u64::from(statistics.first);
                    json!({"parameter": parameter, "links": one.links, "samples": one.samples})
                })
                .collect(),
            recommended_threads: recommended.threads,
            shape: match recommended.shape {
                Shape::Empty => "empty",
                Shape::Chain => "chain",
                Shape::Small => "small",
                Shape::Narrow => "narrow",
                Shape::Wide => "wide",
            },
            recommendation: recommended.words,
        })?,
        Format::Text => {
            let mut text = format!("{statistics}\n");
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "sharing      {sharing:.4} (probability that two samples share a feature)");
            let _ = writeln!(text, "\n{}", recommended.words);
            print_text(&text)?;
        }
    }
    Ok(Status::Held)
}
