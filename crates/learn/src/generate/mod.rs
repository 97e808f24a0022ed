//! Synthetic data: the hot spots of the published experiments, and equivalents of its three data sets.
//! Specification: `specs/cop.md` 7.2.
//!
//! The published files need not be at hand, and how much their samples conflict was never published. So each equivalent has
//! the published shape (samples, features, mean size; divided by a scale) and a popularity of features under Zipf's law
//! whose exponent is such that two random samples share a feature with a stated probability. That probability is a choice
//! of this project: it belongs beside every figure measured on such data, and [`Statistics`] has it as it came out.

mod zipf;

use crate::data::{Dataset, Values};
use crate::exec::Stop;
use crate::memory::NoRoom;
use crate::shares::each_share;
use crate::with_rows;
use isochrone_core::Random;
use std::fmt;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::str::FromStr;
use zipf::{Alias, exponent};

/// Samples that are drawn from one state of the generator, independently of all others: what can be made in parallel.
const BLOCK: u32 = 4096;

/// How popular features are.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Popularity {
    /// All alike.
    Uniform,
    /// Zipf's law, with the exponent under which two random samples share a feature with this probability.
    Sharing(f64),
    /// Zipf's law with this exponent.
    Zipf(f64),
}

/// How many features a sample has.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Size {
    /// Always so many.
    Exactly(u32),
    /// 1 + Poisson(mean - 1).
    Mean(f64),
}

/// What to generate.
#[derive(Clone, PartialEq, Debug)]
pub struct Recipe {
    /// What it is called.
    pub name: String,
    /// Number of samples, n.
    pub samples: u32,
    /// Number of features, d.
    pub features: u32,
    /// Features of a sample.
    pub size: Size,
    /// Which features.
    pub popularity: Popularity,
    /// Values are uniform in (-1, 1) rather than all 1.
    pub varied: bool,
    /// Standard deviation of the noise in labels, as a share of that of ⟨w*, z⟩: 0 makes classes that a plane separates.
    pub noise: f64,
    /// All else being equal, the same seed makes the same samples, however many threads make them.
    pub seed: u64,
}

/// A recipe that cannot be followed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum RecipeError {
    /// No recipe is called that.
    #[error("no data is called `{0}`; there are kdda, kddb, imdb, and hotspot:FEATURES, e.g. hotspot:10000")]
    Unknown(String),
    /// More features in a sample than half of all, where they are drawn until they differ.
    #[error("samples of {size} features need at least {} features to draw from, not {features}", 2.0 * size)]
    Narrow {
        /// Features of a sample.
        size: f64,
        /// Features there are.
        features: u32,
    },
    /// No exponent gives that probability.
    #[error(
        "no exponent makes two samples share a feature with probability {wanted}: with so few features it is at least \
         {least:.4}, and at most {most:.4}; with more features it can be less"
    )]
    Sharing {
        /// What was asked for.
        wanted: f64,
        /// With all features alike.
        least: f64,
        /// With the steepest law tried.
        most: f64,
    },
    /// Nothing to generate.
    #[error("{0} must be at least 1")]
    Nothing(&'static str),
    /// There is no memory for so much.
    #[error(
        "so many samples and features want {:.1} GiB of memory, which is not there: give a larger scale, or fewer samples or \
         features",
        *bytes as f64 / f64::from(1 << 30)
    )]
    NoRoom {
        /// What would be taken at a time.
        bytes: u64,
    },
    /// A deviation that is none.
    #[error("the noise is {0}, where a number from 0 on is wanted")]
    Noise(f64),
}

impl Recipe {
    /// A million samples of exactly 100 different features of `spot`, all as likely.
    pub fn hotspot(spot: u32) -> Recipe {
        Recipe {
            name: format!("hotspot:{spot}"),
            samples: 1_000_000,
            features: spot,
            size: Size::Exactly(100),
            popularity: Popularity::Uniform,
            varied: false,
            noise: 0.1,
            seed: 1,
        }
    }

    /// The shape of KDDA (algebra 2008-2009): 8.4 million samples, 20 million features, 36.3 a sample. Two samples share
    /// a feature with probability 0.20.
    pub fn kdda() -> Recipe {
        Recipe::published("kdda", 8_407_752, 20_216_830, 36.3, 0.20)
    }

    /// The shape of KDDB (bridge to algebra 2008-2009): 19 million samples, 30 million features, 29.4 a sample. Two samples
    /// share a feature with probability 0.12.
    pub fn kddb() -> Recipe {
        Recipe::published("kddb", 19_264_097, 29_890_095, 29.4, 0.12)
    }

    /// The shape of IMDB: 168 thousand samples, 686 thousand features, 14.6 a sample. Two samples share a feature with
    /// probability 0.02.
    pub fn imdb() -> Recipe {
        Recipe::published("imdb", 167_773, 685_569, 14.6, 0.02)
    }

    fn published(name: &str, samples: u32, features: u32, mean: f64, sharing: f64) -> Recipe {
        Recipe {
            name: name.to_owned(),
            samples,
            features,
            size: Size::Mean(mean),
            popularity: Popularity::Sharing(sharing),
            ..Recipe::hotspot(features)
        }
    }

    /// With samples and features divided by `scale`; a sample is as large as before. Hot spots keep their features, whose
    /// number is what they are about.
    pub fn scaled(self, scale: u32) -> Recipe {
        let scale = scale.max(1);
        let features = match self.popularity {
            Popularity::Uniform => self.features,
            _ => (self.features / scale).max(1),
        };
        Recipe { samples: (self.samples / scale).max(1), features, ..self }
    }

    /// Refuses what there is no memory to make as a whole, by so many threads.
    ///
    /// # Errors
    /// [`RecipeError::NoRoom`].
    pub fn check_room(&self, threads: NonZeroUsize) -> Result<(), RecipeError> {
        // What each entry and each sample takes in its block, a tenth of the entries more, and once more where blocks are put
        // together.
        let entries = f64::from(self.samples) * self.size_mean();
        self.check(32 * u64::from(self.samples) + (17.0 * entries) as u64, threads.get())
    }

    /// Whether there is memory for so many bytes beside the tables.
    fn check(&self, bytes: u64, threads: usize) -> Result<(), RecipeError> {
        // The plane; but while the others are made of each feature a rank, a weight, a cell, and a place in one of two lists.
        let each = if self.popularity == Popularity::Uniform { 4 } else { 4 + 8 + 12 + 8 };
        let tables = each * u64::from(self.features);
        let checked = NoRoom::check("making samples", bytes.saturating_add(tables), threads);
        checked.map_err(|NoRoom { bytes, .. }| RecipeError::NoRoom { bytes })
    }

    /// Mean number of features of a sample.
    pub fn size_mean(&self) -> f64 {
        match self.size {
            Size::Exactly(size) => f64::from(size),
            Size::Mean(mean) => mean,
        }
    }
}

impl FromStr for Recipe {
    type Err = RecipeError;

    /// `kdda`, `kddb`, `imdb` or `hotspot:FEATURES`, unscaled; `K` and `M` after a number mean a thousand and a million.
    fn from_str(name: &str) -> Result<Recipe, RecipeError> {
        let unknown = || RecipeError::Unknown(name.to_owned());
        match name {
            "kdda" => Ok(Recipe::kdda()),
            "kddb" => Ok(Recipe::kddb()),
            "imdb" => Ok(Recipe::imdb()),
            _ => {
                let spot = name.strip_prefix("hotspot:").ok_or_else(unknown)?;
                let (digits, times) = match spot.strip_suffix(['K', 'k']) {
                    Some(digits) => (digits, 1_000),
                    None => spot.strip_suffix(['M', 'm']).map_or((spot, 1), |digits| (digits, 1_000_000)),
                };
                let spot = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(times));
                Ok(Recipe::hotspot(spot.filter(|spot| *spot > 0).ok_or_else(unknown)?))
            }
        }
    }
}

/// Makes the samples of a recipe, block by block.
#[derive(Debug)]
pub struct Generator {
    recipe: Recipe,
    exponent: f64,
    popularity: Alias,
    /// The plane that decides the labels: a normal number for each feature.
    plane: Vec<f32>,
}

impl Generator {
    /// Finds the exponent, and makes the tables: about 16 bytes a feature, and twice as many meanwhile; 4 where all are as likely.
    ///
    /// # Errors
    /// If the recipe cannot be followed, or there is no memory for the tables.
    pub fn new(recipe: Recipe) -> Result<Generator, RecipeError> {
        if !(recipe.noise >= 0.0 && recipe.noise.is_finite()) {
            return Err(RecipeError::Noise(recipe.noise));
        }
        for (what, count) in
            [("the number of samples", recipe.samples), ("the number of features", recipe.features)]
        {
            if count == 0 {
                return Err(RecipeError::Nothing(what));
            }
        }
        let size = recipe.size_mean();
        if size < 1.0 {
            return Err(RecipeError::Nothing("the size of a sample"));
        }
        if 2.0 * size > f64::from(recipe.features) {
            return Err(RecipeError::Narrow { size, features: recipe.features });
        }
        let exponent = match recipe.popularity {
            Popularity::Uniform => 0.0,
            Popularity::Zipf(exponent) => exponent,
            Popularity::Sharing(wanted) => exponent(recipe.features, recipe.size, wanted)?,
        };
        recipe.check(0, 1)?;
        let mut random = Random::seeded(recipe.seed);
        let popularity = Alias::zipf(recipe.features, exponent, &mut random.fork());
        let mut normal = random.fork();
        let plane = (0..recipe.features).map(|_| gauss(&mut normal) as f32).collect();
        Ok(Generator { recipe, exponent, popularity, plane })
    }

    /// What is followed.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The exponent of Zipf's law; 0 where all features are as likely.
    pub fn exponent(&self) -> f64 {
        self.exponent
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u32 {
        self.recipe.samples.div_ceil(BLOCK)
    }

    /// The samples of a block, counted from 0: each 4,096 but the last. Features of a sample ascend.
    pub fn block(&self, block: u32) -> Dataset<'static> {
        let from = block * BLOCK;
        let count = self.recipe.samples.saturating_sub(from).min(BLOCK) as usize;
        // An odd multiplier keeps the seeds of different blocks apart.
        let mut random =
            Random::seeded(self.recipe.seed ^ u64::from(block + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut offsets = Vec::with_capacity(count + 1);
        let mut features = Vec::with_capacity((count as f64 * self.recipe.size_mean() * 1.1) as usize);
        let (mut values, mut labels) = (Vec::with_capacity(features.capacity()), Vec::with_capacity(count));
        let (spread, noise) = (self.deviation(), self.recipe.noise);
        offsets.push(0);
        for _ in 0..count {
            let start = features.len();
            let size = match self.recipe.size {
                Size::Exactly(size) => size,
                Size::Mean(mean) => {
                    (1 + poisson(mean - 1.0, &mut random)).min(self.recipe.features / 2).max(1)
                }
            };
            while features.len() - start < size as usize {
                let feature = self.popularity.draw(&mut random);
                if !features[start..].contains(&feature) {
                    features.push(feature);
                }
            }
            features[start..].sort_unstable();
            let mut product = 0.0;
            for &feature in &features[start..] {
                let value = if self.recipe.varied { (2.0 * random.unit() - 1.0) as f32 } else { 1.0 };
                product += f64::from(self.plane[feature as usize]) * f64::from(value);
                values.push(value);
            }
            product += noise * spread * gauss(&mut random);
            labels.push(if product >= 0.0 { 1.0 } else { -1.0 });
            offsets.push(features.len() as u64);
        }
        Dataset::sound(offsets, features, Values::F32(values.into()), labels, self.recipe.features)
    }

    /// All samples, made by so many threads.
    pub fn all(&self, threads: NonZeroUsize) -> Dataset<'static> {
        self.until(threads, &Stop::default())
    }

    /// The same, until somebody asks for the end: some of the samples then.
    pub fn until(&self, threads: NonZeroUsize, stop: &Stop) -> Dataset<'static> {
        let blocks: Vec<u32> = (0..self.blocks()).collect();
        let share = blocks.len().div_ceil(threads.get()).max(1);
        let made = each_share(blocks.chunks(share), |mine| {
            let wanted = mine.iter().take_while(|_| !stop.is_asked());
            wanted.map(|&block| self.block(block)).collect::<Vec<_>>()
        });
        let mut made: Vec<Dataset<'static>> = made.into_iter().flatten().collect();
        if stop.is_asked() {
            made.truncate(1);
        }
        Dataset::concatenated(&made, self.recipe.features)
    }

    /// Standard deviation of ⟨w*, z⟩ over samples.
    fn deviation(&self) -> f64 {
        let square = if self.recipe.varied { 1.0 / 3.0 } else { 1.0 };
        (self.recipe.size_mean() * square).sqrt()
    }
}

/// A normal number of mean 0 and deviation 1 (Box and Muller).
fn gauss(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

/// A Poisson number: of means as small as those of samples, by multiplying uniform numbers (Knuth).
fn poisson(mean: f64, random: &mut Random) -> u32 {
    // Beyond this the exponential is so small that products of uniform numbers come near the end of what f64 holds.
    if mean > 500.0 {
        return poisson(mean / 2.0, random) + poisson(mean - mean / 2.0, random);
    }
    let (least, mut product, mut count) = ((-mean).exp(), random.unit(), 0);
    while product > least {
        product *= random.unit();
        count += 1;
    }
    count
}

/// Writes samples as svmlight text, whose first index is 1.
pub fn write_svmlight(data: &Dataset<'_>, to: &mut impl Write) -> io::Result<()> {
    with_rows!(data, rows => for row in 0..data.len() {
        let sample = rows.sample(row);
        write!(to, "{}", sample.label)?;
        for (&feature, value) in sample.features.iter().zip(sample.values) {
            // Past the largest u32 there is still an index.
            write!(to, " {}:{}", u64::from(feature) + 1, value)?;
        }
        to.write_all(b"\n")?;
    });
    Ok(())
}

/// Writes samples as an Arrow file that is read as a table of them (columns `label`, `indices` and `values`), so many in a batch.
///
/// # Errors
/// If `to` refuses, or a batch has more entries than 2147483647.
#[cfg(feature = "tables")]
pub fn write_arrow(data: &Dataset<'_>, rows: NonZeroUsize, to: impl Write) -> io::Result<()> {
    use arrow_array::builder::{ListBuilder, PrimitiveBuilder};
    use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, UInt32Type};
    use arrow_array::{ArrayRef, Float64Array, RecordBatch};
    use std::ops::Range;
    use std::sync::Arc;

    /// Of each row what these entries have of it.
    fn lists<T: ArrowPrimitiveType>(
        data: &Dataset<'_>,
        rows: Range<usize>,
        entries: &[T::Native],
    ) -> ArrayRef {
        let mut lists = ListBuilder::new(PrimitiveBuilder::<T>::new());
        for row in rows {
            lists.values().append_slice(&entries[data.range(row)]);
            lists.append(true);
        }
        Arc::new(lists.finish())
    }

    let batch = |rows: Range<usize>| {
        let labels = Float64Array::from(data.labels()[rows.clone()].to_vec());
        let values = match data.values() {
            Values::F32(values) => lists::<Float32Type>(data, rows.clone(), values),
            Values::F64(values) => lists::<Float64Type>(data, rows.clone(), values),
        };
        let columns: [(&str, ArrayRef); 3] = [
            ("label", Arc::new(labels)),
            ("indices", lists::<UInt32Type>(data, rows, data.features())),
            ("values", values),
        ];
        RecordBatch::try_from_iter(columns).map_err(io::Error::other)
    };
    let longest = (0..data.len()).step_by(rows.get()).map(|from| {
        let upto = data.len().min(from.saturating_add(rows.get()));
        data.offsets()[upto] - data.offsets()[from]
    });
    if longest.max().unwrap_or(0) > i32::MAX as u64 {
        return Err(io::Error::other("a batch has more entries than 2147483647: put fewer rows into one"));
    }
    let schema = batch(0..0)?.schema();
    let mut writer = arrow_ipc::writer::FileWriter::try_new(to, &schema).map_err(io::Error::other)?;
    for from in (0..data.len()).step_by(rows.get()) {
        let upto = data.len().min(from.saturating_add(rows.get()));
        writer.write(&batch(from..upto)?).map_err(io::Error::other)?;
    }
    writer.finish().map_err(io::Error::other)
}

/// What a set of samples is like: what the figures measured on it depend on.
#[derive(Clone, PartialEq, Debug)]
pub struct Statistics {
    /// Number of samples.
    pub samples: usize,
    /// Number of features.
    pub features: u32,
    /// Features that occur at all.
    pub occurring: usize,
    /// Values stored in all samples.
    pub entries: usize,
    /// Mean number of features of a sample.
    pub size_mean: f64,
    /// The largest number of features of a sample.
    pub size_most: usize,
    /// Probability that two different random samples share a feature: of all pairs, or of up to 100,000 drawn, fewer where samples
    /// have thousands of features.
    pub sharing: f64,
    /// Share of the samples that have the most popular feature.
    pub popular: f64,
    /// Share of the samples of class 1.
    pub positive: f64,
}

impl Statistics {
    /// Of these samples; the seed draws the pairs.
    pub fn of(data: &Dataset<'_>, seed: u64) -> Statistics {
        let n = data.len();
        let degrees = data.degrees();
        let most = degrees.iter().copied().max().unwrap_or(0);
        let share = |count: usize| if n == 0 { 0.0 } else { count as f64 / n as f64 };
        Statistics {
            samples: n,
            features: data.width(),
            occurring: degrees.iter().filter(|degree| **degree > 0).count(),
            sharing: sharing(data, seed, degrees),
            entries: data.entries(),
            size_mean: share(data.entries()),
            size_most: (0..n).map(|row| data.range(row).len()).max().unwrap_or(0),
            popular: share(most as usize),
            positive: share(data.labels().iter().filter(|label| **label > 0.0).count()),
        }
    }
}

/// Pairs of samples that are drawn where there are more.
const PAIRS: u64 = 100_000;

/// Pairs that are drawn however long samples are.
const PAIRS_LEAST: u64 = 100;

/// Entries that are looked at, about: samples that are longer make for fewer pairs.
const LOOKED_AT: u64 = 100_000_000;

/// `marks` has a number for each feature, whichever.
fn sharing(data: &Dataset<'_>, seed: u64, mut marks: Vec<u32>) -> f64 {
    let (n, mut random) = (data.len() as u64, Random::seeded(seed));
    if n < 2 {
        return 0.0;
    }
    let of_a_pair = (2 * data.entries() as u64 / n).max(1);
    let most = (LOOKED_AT / of_a_pair).clamp(PAIRS_LEAST, PAIRS);
    let mut pairs: Vec<(u64, u64)> = if n * (n - 1) / 2 <= most {
        (0..n).flat_map(|one| (one + 1..n).map(move |other| (one, other))).collect()
    } else {
        let mut pair = |_| {
            let one = random.below(n);
            (one, (one + 1 + random.below(n - 1)) % n)
        };
        (0..most).map(&mut pair).collect()
    };
    // The features of a sample are marked once for all its pairs, by a number that no other has.
    pairs.sort_unstable();
    marks.fill(0);
    let (mut sharing, mut mark, mut marked) = (0_u32, 0, None);
    for &(one, other) in &pairs {
        if marked.replace(one) != Some(one) {
            mark += 1;
            data.row(one as usize).iter().for_each(|&feature| marks[feature as usize] = mark);
        }
        let shares = |feature: &u32| marks[*feature as usize] == mark;
        sharing += u32::from(data.row(other as usize).iter().any(shares));
    }
    f64::from(sharing) / pairs.len() as f64
}

impl fmt::Display for Statistics {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(to, "samples              {:>12}", self.samples)?;
        writeln!(to, "features             {:>12}  {} occur", self.features, self.occurring)?;
        let values = format!("{:.1} a sample, at most {}", self.size_mean, self.size_most);
        writeln!(to, "values               {:>12}  {values}", self.entries)?;
        let popular = "of the samples have the most popular feature";
        writeln!(to, "popularity           {:>11.2}%  {popular}", 100.0 * self.popular)?;
        writeln!(
            to,
            "sharing              {:>12.4}  probability that two samples share a feature",
            self.sharing
        )?;
        writeln!(to, "class 1              {:>11.2}%", 100.0 * self.positive)
    }
}

#[cfg(test)]
mod tests;
