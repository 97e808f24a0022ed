//! The command line of `isochrone learn`.

use crate::arguments::{Format, span};
use clap::{Args, Subcommand, ValueEnum};
use isochrone_core::Span;
use isochrone_learn::generate::Recipe;
use isochrone_learn::tasks::Loss;
use isochrone_learn::{Scheme, read};
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct Learn {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs of learning.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Plan the conflicts of a data set: how many threads it can keep busy, and why
    Plan(Plan),
    /// Learn a model, with any number of threads bit for bit what one would have learnt
    Train(Train),
    /// Predict with a model, a line for each sample
    Predict(Predict),
    /// Hold a model's predictions against the labels
    Evaluate(Evaluate),
    /// Generate data with the conflicts of the published experiments
    Generate(Generate),
    /// Collect samples in several regions and learn at one centre, in one process with emulated delays
    Global(Global),
}

/// Far more threads than machines have cores; beyond, systems refuse to start them.
const THREADS_MAX: usize = 1024;

/// A number of threads.
pub(crate) fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse::<NonZeroUsize>().ok().filter(|threads| threads.get() <= THREADS_MAX);
    number.ok_or_else(|| {
        format!("1 to {THREADS_MAX} threads are possible; left out, there is one for each core")
    })
}

/// How a file of samples is read. Compression (gzip, zstd, bzip2) is known by its content, and so are Parquet and Arrow.
#[derive(Args, Debug)]
pub struct Input {
    /// Form of a line: svmlight (also called libsvm), or vw, whose features are hashed; Parquet and Arrow are known by themselves
    #[arg(long, value_name = "FORM", default_value = "svmlight")]
    pub input: read::Format,
    /// The first index of the file; auto: 0 if it occurs early on, else 1
    #[arg(long, value_enum, default_value_t = Base::Auto)]
    pub base: Base,
    /// How many features there are; a file with more is wrong [default: as many as occur]
    #[arg(long, value_name = "N")]
    pub features: Option<u32>,
    /// Bits of the hash of a feature's name, for --input vw [default: 18]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=31))]
    pub bits: Option<u32>,
    #[command(flatten)]
    pub label: Label,
    #[command(flatten)]
    pub lists: Lists,
    #[command(flatten)]
    pub care: Care,
}

/// Where a table has the labels, and how much samples count.
#[derive(Args, Debug)]
pub struct Label {
    /// Of Parquet and Arrow, the column of the labels [default: label]
    #[arg(long, value_name = "COLUMN")]
    pub label: Option<String>,
    /// Of Parquet and Arrow, the column of numbers from 0 on that say how many times each sample counts [default: once]
    #[arg(long, value_name = "COLUMN")]
    pub weight: Option<String>,
}

/// Where it has the features.
#[derive(Args, Clone, Debug)]
pub struct Lists {
    /// Of Parquet and Arrow, the column of lists of the features that a sample has, counted from 0 [default: indices]
    #[arg(long, value_name = "COLUMN")]
    pub indices: Option<String>,
    /// Of Parquet and Arrow, the column of lists of their values [default: values, if there is such a column, else each is 1]
    #[arg(long, value_name = "COLUMN")]
    pub values: Option<String>,
}

/// How carefully.
#[derive(Args, Debug)]
pub struct Care {
    /// Keep values in double precision: eight bytes each instead of four
    #[arg(long)]
    pub double: bool,
    /// Leave out up to so many lines, or rows of a table, that are wrong, and say which
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_errors: u64,
}

/// The first index of a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Base {
    /// Found out.
    Auto,
    /// 0.
    #[value(name = "0")]
    Zero,
    /// 1.
    #[value(name = "1")]
    One,
}

/// A first index that is not found out: samples that are predicted may be few.
fn first_index(text: &str) -> Result<read::Base, String> {
    match text {
        "0" => Ok(read::Base::Zero),
        "1" => Ok(read::Base::One),
        _ => Err("files count from 0 or from 1".to_owned()),
    }
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone learn plan kdda.svm.gz\n  isochrone learn plan kdda.svm.gz --out kdda.plan --threads 16"
)]
pub struct Plan {
    /// The samples; - for standard input
    pub data: PathBuf,
    /// Keep the plan here, for `train --plan`
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Recommend for so many threads [default: the machine's cores]
    #[arg(long, value_name = "T", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,
    /// Plan for a factorisation: samples are cells, their two features row and column
    #[arg(long)]
    pub factorisation: bool,
    #[command(flatten)]
    pub input: Input,
    /// How figures are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// How steps shrink.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Steps {
    /// --step, times --decay after each epoch.
    Geometric,
    /// --step throughout.
    Constant,
    /// --step / t^power.
    InverseScaling,
    /// 1 / (alpha (t0 + t)), as scikit-learn's "optimal".
    Optimal,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone learn train kdda.svm.gz --model kdda.model\n  isochrone learn train kdda.svm.gz --loss logistic --held-out 10 --model kdda.model\n  isochrone learn train big.svm.zst --batch-rows 1000000 --epochs 3 --model big.model\n  isochrone learn train ratings.svm --rank 16 --alpha 0.001 --step 0.02 --model ratings.model\n\nEvery scheme but hogwild gives a model that some order of the samples explains; cop and serial give the same one,\nbit for bit, with any number of threads, unless with --first-epoch: its order is that of a run. With --carry it is one\nas well, but another one than without; so it is with --batch-rows, which spreads the penalty over the samples of a batch.\n\nSamples are learnt from in the order of the file. Where they come class by class, which makes a worse model, train warns:\nshuffle them before (lines: shuf FILE)."
)]
pub struct Train {
    /// The samples; - for standard input
    pub data: PathBuf,
    /// Where the model goes
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,
    /// hinge (support vector machine), squared-hinge, logistic, squared (regression)
    #[arg(long, default_value_t = Loss::Hinge)]
    pub loss: Loss,
    /// Factorise a matrix instead, with vectors of this length: samples are cells, their two features row and column
    #[arg(long, value_name = "R", conflicts_with = "loss")]
    pub rank: Option<NonZeroUsize>,
    /// cop, serial, hogwild, locking, occ
    #[arg(long, default_value_t = Scheme::Cop)]
    pub scheme: Scheme,
    /// Threads [default: the machine's cores]
    #[arg(long, value_name = "T", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,
    /// Passes over the data
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// Strength of the penalty, per sample
    #[arg(long, value_name = "A", default_value_t = 1e-4)]
    pub alpha: f64,
    /// Share of the penalty that is on absolute values, which makes weights zero; the rest is on squares
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub l1_ratio: f64,
    /// No intercept
    #[arg(long)]
    pub no_intercept: bool,
    /// How steps shrink
    #[arg(long, value_enum, default_value_t = Steps::Geometric)]
    pub schedule: Steps,
    /// Size of the first step; --schedule optimal takes it from alpha [default: 0.1]
    #[arg(long, value_name = "SIZE")]
    pub step: Option<f64>,
    /// Factor of the step from epoch to epoch, for --schedule geometric [default: 0.9]
    #[arg(long, value_name = "FACTOR")]
    pub decay: Option<f64>,
    /// Exponent, for --schedule inverse-scaling [default: 0.5]
    #[arg(long, value_name = "POWER")]
    pub power: Option<f64>,
    /// Keep so many percent of the samples out, stop when their loss no longer falls, and keep the best model; figures are told of
    /// these samples, and beside them of those learnt from
    #[arg(long, value_name = "PCT")]
    pub held_out: Option<f64>,
    /// Epochs without a lower loss before it stops, for --held-out
    #[arg(long, value_name = "N", default_value_t = 5, requires = "held_out", conflicts_with = "batch_rows", value_parser = clap::value_parser!(u32).range(1..))]
    pub patience: u32,
    /// A plan of this data, made by `learn plan --out`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["held_out", "batch_rows", "first_epoch"])]
    pub plan: Option<PathBuf>,
    /// Plan during the first epoch, which then runs under locks: with more than one thread, the order of the samples and so the model is
    /// another one in each run
    #[arg(long)]
    pub first_epoch: bool,
    /// Lay the model out by how often features occur, not by their numbers: faster epochs where it is larger than the caches, for
    /// 8 bytes a non-zero (4 without a penalty) and once the time of planning
    #[arg(long, conflicts_with_all = ["rank", "batch_rows"])]
    pub packed: bool,
    /// Let threads run from one epoch into the next without meeting; an intercept is then late over the border of epochs too, so that the
    /// model is, with any number of threads, that of serial with --carry, and not that of either without
    #[arg(long, conflicts_with_all = ["held_out", "batch_rows"])]
    pub carry: bool,
    /// Data larger than memory: read, plan and learn so many samples at a time, and the file again in each epoch
    #[arg(long, value_name = "N", conflicts_with = "held_out")]
    pub batch_rows: Option<NonZeroUsize>,
    /// The seed of what is kept out (--held-out), and of a factorisation's first values (--rank) [default: 0]
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub input: Input,
    /// How figures are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// What is predicted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum What {
    /// The label of the class; of a regression the number.
    Label,
    /// The decision of each model: beyond 0 is the (higher) class.
    Decision,
    /// The probability of each class, in ascending order of their labels.
    Probability,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone learn predict kdda.svm.gz --model kdda.model > labels.txt\n  isochrone learn predict kdda.svm.gz --model kdda.model --what probability --out told.txt"
)]
pub struct Predict {
    /// The samples, whose labels are not looked at; - for standard input
    pub data: PathBuf,
    /// The model
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,
    /// What is predicted
    #[arg(long, value_enum, default_value_t = What::Label)]
    pub what: What,
    /// Where the lines go [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub lists: Lists,
    /// The first index of a file of svmlight's lines [default: that of the lines that the model learnt from; where that was a
    /// table, it must be said]
    #[arg(long, value_name = "0|1", value_parser = first_index)]
    pub base: Option<read::Base>,
    /// Keep values in double precision: eight bytes each instead of four
    #[arg(long)]
    pub double: bool,
    /// How they are printed; json is an object a line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  isochrone learn evaluate kdda.svm.gz --model kdda.model")]
pub struct Evaluate {
    /// The samples; - for standard input
    pub data: PathBuf,
    /// The model
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,
    /// The first index of a file of svmlight's lines [default: that of the lines that the model learnt from; where that was a
    /// table, it must be said]
    #[arg(long, value_name = "0|1", value_parser = first_index)]
    pub base: Option<read::Base>,
    #[command(flatten)]
    pub label: Label,
    #[command(flatten)]
    pub lists: Lists,
    #[command(flatten)]
    pub care: Care,
    /// How figures are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone learn generate kdda --out kdda.svm.gz\n  isochrone learn generate hotspot:10K --samples 20000 > hot.svm\n\nThe data sets of the published experiments, made up: the shape is theirs, divided by --scale; features are drawn\nunder Zipf's law, so steep that two samples share one with probability 0.20 (kdda), 0.12 (kddb), 0.02 (imdb)."
)]
pub struct Generate {
    /// kdda, kddb, imdb, or hotspot:FEATURES
    pub recipe: Recipe,
    /// Divide samples and features by this; hot spots keep their features
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub scale: u32,
    /// So many samples, in the place of the scaled number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: Option<u32>,
    /// Values uniform in (-1, 1) instead of all 1
    #[arg(long)]
    pub varied: bool,
    /// Standard deviation of the noise in labels, as a share of what they tell
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    pub noise: f64,
    /// The seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Where it goes; compressed if it ends in .gz, .zst or .bz2 [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// How the statistics are printed; on standard error where the data is on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone learn global deployments/five-regions.toml kdda.svm.gz\n  isochrone learn global deployments/five-regions.toml kdda.svm.gz --lose 5 --repeat 5 --restart 2 --model kdda.model\n\nEach region but the centre's has a stretch of the samples, which are born there one after the other. Its collector plans\nbatches of them and ships the plans; the centre orders what arrives in a log, stitches the plans and learns, each sample\nexactly once. Then one thread learns from the log alone, and the models are compared."
)]
pub struct Global {
    /// The deployment whose regions and round trips are taken
    pub deployment: PathBuf,
    /// The samples; - for standard input
    pub data: PathBuf,
    /// The centre's region [default: the first]
    #[arg(long, value_name = "REGION")]
    pub center: Option<String>,
    /// Where the model goes
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// hinge (support vector machine), squared-hinge, logistic, squared (regression)
    #[arg(long, default_value_t = Loss::Hinge)]
    pub loss: Loss,
    /// Strength of the penalty, per sample
    #[arg(long, value_name = "A", default_value_t = 1e-4)]
    pub alpha: f64,
    /// Size of the first step; the one for sample t is divided by t^power
    #[arg(long, value_name = "SIZE", default_value_t = 0.1)]
    pub step: f64,
    /// See --step
    #[arg(long, value_name = "POWER", default_value_t = 0.25)]
    pub power: f64,
    /// Threads of the centre [default: the machine's cores]
    #[arg(long, value_name = "T", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,
    /// Samples of a batch
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch_samples: u32,
    /// How long the first sample of a batch waits for the others, e.g. 500ms [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub batch_time: Option<Span>,
    /// Samples born a second in each region
    #[arg(long, value_name = "R", default_value_t = 10_000.0)]
    pub rate: f64,
    /// Leave planning to the centre
    #[arg(long)]
    pub unplanned: bool,
    /// Messages lost, percent
    #[arg(long, value_name = "PCT", default_value_t = 0.0)]
    pub lose: f64,
    /// Messages that arrive twice, percent
    #[arg(long, value_name = "PCT", default_value_t = 0.0)]
    pub repeat: f64,
    /// Batches whose collector restarts when it has sent them, percent
    #[arg(long, value_name = "PCT", default_value_t = 0.0)]
    pub restart: f64,
    /// The seed of births, delays and faults
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub input: Input,
    /// How figures are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}
