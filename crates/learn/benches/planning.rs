//! What planning costs beside learning, on the published shapes: planning in one pass and by blocks, a collector's batch
//! planned, stitched, and learnt from. T-COP-37 asks for stitching to be 5 times as fast as execution.
//!
//! `cargo bench -p isochrone-learn --bench planning [-- SCALE [BATCH]]`: published sizes are divided by SCALE (default 16),
//! batches have BATCH samples (default 65536). The best of three rounds counts, in processor time where one thread works.

#![allow(missing_docs, clippy::unwrap_used)]

use isochrone_learn::exec::{Stream, StreamBatch};
use isochrone_learn::generate::{Generator, Recipe};
use isochrone_learn::plan::{BatchPlanner, PlannedBatch, Stitched, Stitcher};
use isochrone_learn::tasks::{Linear, Loss};
use isochrone_learn::{Dataset, Model, Options, Plan};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;

fn main() {
    // `cargo bench` passes flags of its own.
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u32>().ok());
    let (scale, batch) = (numbers.next().unwrap_or(16), numbers.next().unwrap_or(1 << 16));
    println!("scale 1/{scale}, batches of {batch} samples, best of {ROUNDS} rounds");
    for recipe in [Recipe::kdda(), Recipe::kddb(), Recipe::imdb()] {
        let recipe = recipe.scaled(scale);
        let name = recipe.name.clone();
        let data = Generator::new(recipe).unwrap().all(NonZeroUsize::new(2).unwrap());
        println!("\n{name}: {} samples, {} non-zeros, {} features", data.len(), data.entries(), data.width());
        whole(&data);
        batches(&data, batch as usize);
    }
}

/// The shortest of some rounds, in time of the processor: what one thread takes, whatever else the machine does.
fn least<P, R>(mut prepare: impl FnMut() -> P, mut act: impl FnMut(P) -> R) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let rounds = (0..ROUNDS).map(|_| {
        let prepared = prepare();
        let begun = now();
        black_box(act(prepared));
        now() - begun
    });
    rounds.min().unwrap()
}

/// The shortest of some rounds, each of which begins with `prepare`.
fn best<P, R>(mut prepare: impl FnMut() -> P, mut act: impl FnMut(P) -> R) -> Duration {
    let rounds = (0..ROUNDS).map(|_| {
        let prepared = prepare();
        let begun = Instant::now();
        black_box(act(prepared));
        begun.elapsed()
    });
    rounds.min().unwrap()
}

fn per(elapsed: Duration, items: usize) -> f64 {
    elapsed.as_secs_f64() * 1e9 / items as f64
}

fn whole(data: &Dataset<'_>) {
    let task = Linear::new(Loss::Hinge);
    let fingerprint = least(|| (), |()| data.fingerprint());
    let once = least(|| (), |()| Plan::of(&task, data));
    println!(
        "  plan in one pass          {:6.2} ns a non-zero (its fingerprint {:.2})",
        per(once, data.entries()),
        per(fingerprint, data.entries())
    );
    for threads in [2, 4] {
        let threads = NonZeroUsize::new(threads).unwrap();
        let blocks = best(|| (), |()| Plan::in_blocks(&task, data, threads).unwrap());
        println!(
            "  plan in {threads} blocks          {:6.2} ns a non-zero, {:.2} times as fast",
            per(blocks, data.entries()),
            once.as_secs_f64() / blocks.as_secs_f64()
        );
    }
}

fn batches(data: &Dataset<'_>, size: usize) {
    let task = Linear::new(Loss::Hinge);
    let parts: Vec<Dataset<'_>> =
        (0..data.len()).step_by(size).map(|start| data.slice(start..data.len().min(start + size))).collect();
    let mut planner = BatchPlanner::new();
    let collect = least(
        || (),
        |()| parts.iter().map(|part| planner.plan(&task, part).unwrap()).collect::<Vec<_>>().len(),
    );
    let planned: Vec<PlannedBatch> = parts.iter().map(|part| planner.plan(&task, part).unwrap()).collect();
    let touches: usize = planned.iter().map(|batch| batch.seams.ends.len()).sum();
    println!(
        "  plan at a collector       {:6.2} ns a non-zero; {:.1}% are first touches",
        per(collect, data.entries()),
        100.0 * touches as f64 / data.entries() as f64
    );
    let encoded: Vec<Vec<u8>> = planned
        .iter()
        .map(|batch| {
            let mut bytes = Vec::new();
            batch.encode(&mut bytes);
            bytes
        })
        .collect();
    let arrive = || {
        let arrived =
            parts.iter().zip(&encoded).map(|(part, bytes)| PlannedBatch::decode(bytes, &task, part).unwrap());
        arrived.map(|batch| batch.seams.ends.len()).sum::<usize>()
    };
    let arriving = least(|| (), |()| arrive());
    println!("  read and check at a centre {:5.2} ns a non-zero", per(arriving, data.entries()));
    let stitch = |(planned, mut stitcher): (Vec<PlannedBatch>, Stitcher)| {
        planned.into_iter().map(|batch| stitcher.stitch(batch).unwrap()).collect::<Vec<Stitched>>()
    };
    let stitching = least(|| (planned.clone(), Stitcher::new(0, data.width())), stitch);
    println!(
        "  stitch                    {:6.2} ns a non-zero, {:.1} M samples/s",
        per(stitching, data.entries()),
        data.len() as f64 / stitching.as_secs_f64() / 1e6
    );
    let stitched = stitch((planned, Stitcher::new(0, data.width())));
    let all: Vec<StreamBatch<'_>> = parts
        .iter()
        .zip(&stitched)
        .map(|(data, stitched)| StreamBatch { data, stitched, weights: &[] })
        .collect();
    for threads in [1, 2] {
        let options = Options { threads: NonZeroUsize::new(threads).unwrap(), ..Options::default() };
        let stream =
            || Stream::new(&task, data.width(), Model::zeros(&task, data.width()), options.clone()).unwrap();
        let learn = |mut stream: Stream| {
            stream.learn(&task, &all).unwrap();
            stream
        };
        let learning = if threads == 1 { least(stream, learn) } else { best(stream, learn) };
        println!(
            "  learn, {threads} thread(s)        {:6.2} ns a non-zero, {:.2} M samples/s; stitching is {:.1} times as fast",
            per(learning, data.entries()),
            data.len() as f64 / learning.as_secs_f64() / 1e6,
            learning.as_secs_f64() / stitching.as_secs_f64()
        );
    }
}
