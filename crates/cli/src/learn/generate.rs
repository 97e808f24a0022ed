//! `isochrone learn generate`.

use super::arguments::Generate as Arguments;
use super::target;
use crate::arguments::Format;
use crate::output::{bar, print_json, print_text, say, unprinted, unwritable};
use crate::{Status, Usage};
use anyhow::bail;
use isochrone_learn::Dataset;
use isochrone_learn::generate::{Generator, Recipe, Statistics, write_svmlight};
use isochrone_learn::read::Compression;
use serde_json::json;
use std::io::{self, BufWriter, Write};

/// Blocks whose statistics are looked at, so that data may be larger than memory.
const LOOKED_AT: usize = 64;

/// Runs the verb.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<Status> {
    // Under such a name nobody expects text.
    let end = arguments.out.as_ref().and_then(|path| path.extension()).and_then(|end| end.to_str());
    if let (Some(path), Some(end @ ("xz" | "lz4" | "zip"))) = (&arguments.out, end) {
        bail!(Usage(format!(
            "--out {}: nothing is packed by {end} here\n  end the name in .gz, .zst or .bz2, or write text and pack that",
            path.display()
        )));
    }
    let scaled = arguments.recipe.scaled(arguments.scale);
    let samples = arguments.samples.unwrap_or(scaled.samples);
    let recipe =
        Recipe { samples, varied: arguments.varied, noise: arguments.noise, seed: arguments.seed, ..scaled };
    let generator = Generator::new(recipe)?;
    let progress = bar("generating", u64::from(generator.blocks()));
    let mut kept = Vec::new();
    let body = |to: &mut dyn Write| {
        let mut to = BufWriter::with_capacity(1 << 16, to);
        for block in 0..generator.blocks() {
            let data = generator.block(block);
            write_svmlight(&data, &mut to)?;
            if kept.len() < LOOKED_AT {
                kept.push(data);
            }
            progress.inc(1);
        }
        to.flush()
    };
    match &arguments.out {
        Some(path) => {
            let broken = |cause: io::Error| unwritable(path, &cause);
            let mut target = target(path)?;
            Compression::of_name(path).write(&mut target, body).map_err(broken)?;
            target.finish().map_err(broken)?;
        }
        None => match Compression::Plain.write(io::stdout(), body) {
            // Whoever reads may stop early.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Status::Held),
            done => done.map_err(|cause| unprinted(&cause))?,
        },
    }
    progress.finish_and_clear();
    let looked = Dataset::concatenated(&kept, generator.recipe().features);
    let told = Statistics::of(&looked, 1);
    let all = generator.recipe().samples;
    match arguments.format {
        Format::Json => {
            let json = json!({
                "name": generator.recipe().name, "samples": all, "features": told.features,
                "seed": generator.recipe().seed, "zipf_exponent": generator.exponent(),
                "looked_at": told.samples, "values": told.entries, "mean_size": told.size_mean,
                "largest_size": told.size_most, "features_that_occur": told.occurring,
                "sharing": told.sharing, "popular": told.popular, "class_1": told.positive,
            });
            if arguments.out.is_some() { print_json(&json)? } else { say(json) }
        }
        Format::Text => {
            let mut text = told.to_string();
            if told.samples < all as usize {
                text = format!("of the first {} of {all} samples:\n{text}", told.samples);
            }
            text += &format!("exponent             {:>12.4}  of Zipf's law\n", generator.exponent());
            if arguments.out.is_some() { print_text(&text)? } else { say(text.trim_end()) }
        }
    }
    Ok(Status::Held)
}
