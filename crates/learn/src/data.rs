//! Samples in compressed sparse rows, owned or borrowed from whoever has them.

use crate::exec::prefetch::prefetch;
use crate::memory::zeros;
use crate::plan::TooWide;
use crate::shares::each_share;
use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::sync::OnceLock;

mod pass;

use pass::Pass;
pub(crate) use pass::all_finite;

/// A number of a sample as it is stored: `f32` or `f64`.
pub trait Value: Copy + Send + Sync + 'static {
    /// The number that is computed with.
    fn wide(self) -> f64;

    /// Whether it is neither infinite nor not a number.
    fn is_finite(self) -> bool;
}

impl Value for f32 {
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
}

impl Value for f64 {
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}

/// The numbers of all samples, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Values<'a> {
    /// Single precision: four bytes a number.
    F32(Cow<'a, [f32]>),
    /// Double precision: eight bytes a number.
    F64(Cow<'a, [f64]>),
}

impl Values<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Values::F32(values) => values.len(),
            Values::F64(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn at(&self, entry: usize) -> f64 {
        match self {
            Values::F32(values) => values[entry].wide(),
            Values::F64(values) => values[entry],
        }
    }
}

/// Whether a sample's loss can count so many times.
pub(crate) fn is_importance(number: f64) -> bool {
    number.is_finite() && number >= 0.0
}

/// How often each of `width` features occurs. Counted in bytes first, of which a cache holds four times as many as of words;
/// what they cannot hold is carried.
fn count(features: &[u32], width: usize) -> Vec<u32> {
    let (mut low, mut counts) = (zeros::<u8>(width), zeros::<u32>(width));
    for &feature in features {
        let low = &mut low[feature as usize];
        *low = low.wrapping_add(1);
        if *low == 0 {
            counts[feature as usize] += 1 << u8::BITS;
        }
    }
    for (count, low) in counts.iter_mut().zip(low) {
        *count += u32::from(low);
    }
    counts
}

/// What is wrong with samples. Rows and entries count from 0.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DataError {
    /// The offsets do not describe rows.
    #[error(
        "offsets[{at}] is {found}: offsets begin with 0, never fall, and end with the number of entries, {entries}"
    )]
    Offsets {
        /// Place among the offsets.
        at: usize,
        /// What stands there.
        found: u64,
        /// Number of entries.
        entries: usize,
    },
    /// The parts do not fit one another.
    #[error("{what}: {found}, where {wanted} are wanted")]
    Length {
        /// Which part.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length it must have.
        wanted: usize,
    },
    /// A feature beyond the last one.
    #[error("row {row} has feature {feature}, but there are {width} features (0 to {})", width.saturating_sub(1))]
    Feature {
        /// The sample.
        row: usize,
        /// Its feature.
        feature: u32,
        /// Number of features.
        width: u32,
    },
    /// A feature twice in a sample.
    #[error("row {row} has feature {feature} more than once: sum or drop the repetitions first")]
    Repeated {
        /// The sample.
        row: usize,
        /// The feature.
        feature: u32,
    },
    /// A value or label that is not a finite number.
    #[error("row {row}: {what} is {found}, which cannot be learnt from")]
    NotFinite {
        /// The sample.
        row: usize,
        /// `the label`, or `the value of feature …`.
        what: String,
        /// What it is.
        found: f64,
    },
    /// An importance that is none.
    #[error("row {row}: the importance is {found}, where a number from 0 on is wanted")]
    Importance {
        /// The sample.
        row: usize,
        /// What it is.
        found: f64,
    },
    /// There is no memory to look for repetitions.
    #[error(transparent)]
    TooWide(#[from] TooWide),
    /// More samples than transactions can be counted.
    #[error("{0} samples are more than the 4294967294 that one set can have")]
    TooMany(usize),
}

/// A set of labelled sparse samples: n rows over `width` features (the d of the literature), in CSR form.
///
/// Whatever made it, each row names a feature at most once, all features are below `width`, and all numbers are finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset<'a> {
    offsets: Cow<'a, [u64]>,
    features: Cow<'a, [u32]>,
    values: Values<'a>,
    labels: Cow<'a, [f64]>,
    /// Of each row; empty where it is 1 of all.
    importances: Cow<'a, [f64]>,
    width: u32,
    fingerprint: Fingerprint,
}

/// [`Dataset::fingerprint`], once it was asked for: a pass over all features, for the plan and again for each model that is trained
/// by it. What it follows from is compared, and not it.
#[derive(Clone, Debug, Default)]
struct Fingerprint(OnceLock<u64>);

impl PartialEq for Fingerprint {
    fn eq(&self, _: &Fingerprint) -> bool {
        true
    }
}

impl<'a> Dataset<'a> {
    /// Checks the parts and takes them: `offsets` has n + 1 numbers, row `i` has the entries `offsets[i]..offsets[i + 1]`
    /// of `features` and `values`, and `labels[i]`.
    pub fn new(
        offsets: impl Into<Cow<'a, [u64]>>,
        features: impl Into<Cow<'a, [u32]>>,
        values: Values<'a>,
        labels: impl Into<Cow<'a, [f64]>>,
        width: u32,
    ) -> Result<Dataset<'a>, DataError> {
        Dataset::new_by(NonZeroUsize::MIN, false, offsets, features, values, labels, width)
    }

    /// [`Dataset::new`], checked by so many threads; if they are to be learnt from by a plan, [`Dataset::fingerprint`] is found out
    /// on the way.
    ///
    /// # Errors
    /// As there, and the same for any number of threads.
    pub fn new_by(
        threads: NonZeroUsize,
        planned: bool,
        offsets: impl Into<Cow<'a, [u64]>>,
        features: impl Into<Cow<'a, [u32]>>,
        values: Values<'a>,
        labels: impl Into<Cow<'a, [f64]>>,
        width: u32,
    ) -> Result<Dataset<'a>, DataError> {
        let data = Dataset {
            offsets: offsets.into(),
            features: features.into(),
            values,
            labels: labels.into(),
            importances: Cow::default(),
            width,
            fingerprint: Fingerprint::default(),
        };
        data.check(threads, planned)?;
        Ok(data)
    }

    /// Of parts that are sound by how they were made.
    pub(crate) fn sound(
        offsets: Vec<u64>,
        features: Vec<u32>,
        values: Values<'a>,
        labels: Vec<f64>,
        width: u32,
    ) -> Dataset<'a> {
        let (offsets, features, labels) = (offsets.into(), features.into(), labels.into());
        let (importances, fingerprint) = (Cow::default(), Fingerprint::default());
        let data = Dataset { offsets, features, values, labels, importances, width, fingerprint };
        debug_assert_eq!(data.check(NonZeroUsize::MIN, false), Ok(()));
        data
    }

    /// With importances that are sound: none, or one of each row.
    pub(crate) fn weighed(self, importances: Vec<f64>) -> Dataset<'a> {
        debug_assert!(importances.is_empty() || importances.len() == self.len());
        Dataset { importances: importances.into(), ..self }
    }

    /// One after the other, over `width` features, which none of them exceeds. Values are of single precision if all are.
    /// Importances are kept.
    ///
    /// # Panics
    ///
    /// Where `width` is less than that of a part, or there are more than 4294967294 samples.
    pub fn concatenated(parts: &[Dataset<'_>], width: u32) -> Dataset<'static> {
        let (mut offsets, mut features, mut labels) = (vec![0], Vec::new(), Vec::new());
        features.reserve_exact(parts.iter().map(Dataset::entries).sum());
        let samples: usize = parts.iter().map(Dataset::len).sum();
        offsets.reserve_exact(samples);
        labels.reserve_exact(samples);
        assert!(samples < u32::MAX as usize, "{}", DataError::TooMany(samples));
        for part in parts {
            assert!(part.width <= width, "{width} features are fewer than the {} of a part", part.width);
            let base = features.len() as u64;
            offsets.extend(part.offsets[1..].iter().map(|offset| base + offset));
            features.extend_from_slice(&part.features);
            labels.extend_from_slice(&part.labels);
        }
        let mut importances = Vec::new();
        if parts.iter().any(|part| !part.importances.is_empty()) {
            importances.extend(parts.iter().flat_map(|part| (0..part.len()).map(|row| part.importance(row))));
        }
        let single = parts.iter().all(|part| matches!(part.values, Values::F32(_)));
        let values = if single {
            let mut all = Vec::with_capacity(features.len());
            for part in parts {
                if let Values::F32(values) = &part.values {
                    all.extend_from_slice(values);
                }
            }
            Values::F32(all.into())
        } else {
            let mut all = Vec::with_capacity(features.len());
            for part in parts {
                all.extend((0..part.entries()).map(|entry| part.values.at(entry)));
            }
            Values::F64(all.into())
        };
        Dataset {
            importances: importances.into(),
            ..Dataset::sound(offsets, features, values, labels, width)
        }
    }

    fn check(&self, threads: NonZeroUsize, planned: bool) -> Result<(), DataError> {
        let (entries, offsets) = (self.features.len(), &self.offsets);
        if offsets.first() != Some(&0) {
            return Err(DataError::Offsets { at: 0, found: offsets.first().copied().unwrap_or(0), entries });
        }
        let falls = offsets.windows(2).position(|pair| pair[1] < pair[0] || pair[1] > entries as u64);
        if let Some(at) = falls {
            return Err(DataError::Offsets { at: at + 1, found: offsets[at + 1], entries });
        }
        let last = offsets.len() - 1;
        if offsets[last] != entries as u64 {
            return Err(DataError::Offsets { at: last, found: offsets[last], entries });
        }
        if last >= u32::MAX as usize {
            return Err(DataError::TooMany(last));
        }
        if self.values.len() != entries {
            return Err(DataError::Length { what: "values", found: self.values.len(), wanted: entries });
        }
        if self.labels.len() != last {
            return Err(DataError::Length { what: "labels", found: self.labels.len(), wanted: last });
        }
        let found = Pass { order: true, fingerprint: planned }.over(self, threads);
        if let Some(fingerprint) = found.fingerprint {
            self.fingerprint.0.get_or_init(|| fingerprint);
        }
        if found.in_order {
            return Ok(());
        }
        // The row that last named a feature, counted from 1: finds repetitions in rows that are not sorted.
        let mut seen = Vec::new();
        for row in 0..last {
            let range = self.range(row);
            if !self.labels[row].is_finite() {
                let what = "the label".to_string();
                return Err(DataError::NotFinite { row, what, found: self.labels[row] });
            }
            let features = &self.features[range.clone()];
            let sorted = features.windows(2).all(|pair| pair[0] < pair[1]);
            for (place, &feature) in features.iter().enumerate() {
                if feature >= self.width {
                    return Err(DataError::Feature { row, feature, width: self.width });
                }
                let value = self.values.at(range.start + place);
                if !value.is_finite() {
                    let what = format!("the value of feature {feature}");
                    return Err(DataError::NotFinite { row, what, found: value });
                }
                if !sorted {
                    if seen.is_empty() {
                        TooWide::check(self.width, 4 * u64::from(self.width))?;
                        seen = vec![0_u32; self.width as usize];
                    }
                    if std::mem::replace(&mut seen[feature as usize], row as u32 + 1) == row as u32 + 1 {
                        return Err(DataError::Repeated { row, feature });
                    }
                }
            }
        }
        Ok(())
    }

    /// Number of samples, n.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Number of features, d.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Number of values stored in all samples together.
    pub fn entries(&self) -> usize {
        self.features.len()
    }

    /// Where each row begins, and where the last one ends: n + 1 numbers.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The features of all rows, one row after the other.
    pub fn features(&self) -> &[u32] {
        &self.features
    }

    /// The values of all rows, one row after the other.
    pub fn values(&self) -> &Values<'a> {
        &self.values
    }

    /// A label for each row.
    pub fn labels(&self) -> &[f64] {
        &self.labels
    }

    /// What the loss of this row counts: 1 unless [`Dataset::with_importances`] said otherwise.
    pub fn importance(&self, row: usize) -> f64 {
        self.importances.get(row).copied().unwrap_or(1.0)
    }

    /// What the loss of each row counts; empty where it is 1 of all.
    pub fn importances(&self) -> &[f64] {
        &self.importances
    }

    /// What the losses of all rows count together: their number unless [`Dataset::with_importances`] said otherwise.
    pub fn importance_sum(&self) -> f64 {
        if self.importances.is_empty() { self.len() as f64 } else { self.importances.iter().sum() }
    }

    /// The entries of a row.
    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// The features of a row.
    pub fn row(&self, row: usize) -> &[u32] {
        &self.features[self.range(row)]
    }

    /// Some of the samples: these rows, without a copy of their entries.
    ///
    /// # Panics
    /// If there are not that many rows.
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Dataset<'_> {
        let entries = self.offsets[rows.start] as usize..self.offsets[rows.end] as usize;
        let first = self.offsets[rows.start];
        let offsets: Vec<u64> =
            self.offsets[rows.start..=rows.end].iter().map(|offset| offset - first).collect();
        Dataset {
            offsets: Cow::Owned(offsets),
            features: Cow::Borrowed(&self.features[entries.clone()]),
            values: match &self.values {
                Values::F32(values) => Values::F32(Cow::Borrowed(&values[entries])),
                Values::F64(values) => Values::F64(Cow::Borrowed(&values[entries])),
            },
            importances: match self.importances.is_empty() {
                true => Cow::default(),
                false => Cow::Borrowed(&self.importances[rows.clone()]),
            },
            labels: Cow::Borrowed(&self.labels[rows]),
            width: self.width,
            fingerprint: Fingerprint::default(),
        }
    }

    /// The same samples with their features numbered otherwise, in the same order in each row.
    pub(crate) fn over(&self, features: Vec<u32>, width: u32) -> Dataset<'_> {
        let fingerprint = Fingerprint::default();
        let data = Dataset { features: features.into(), width, fingerprint, ..self.borrowed() };
        debug_assert_eq!(data.check(NonZeroUsize::MIN, false), Ok(()));
        data
    }

    /// In how many samples each feature occurs (the degrees d_u of the specification): `width` numbers.
    pub fn degrees(&self) -> Vec<u32> {
        self.degrees_by(1)
    }

    /// Entries whose features one of so many threads counts.
    fn counted_by_each(&self, threads: usize) -> usize {
        // Below this a thread costs more to start than it saves.
        const WORTH_A_THREAD: usize = 1 << 18;
        self.features.len().div_ceil(threads).max(WORTH_A_THREAD)
    }

    /// Bytes that [`Dataset::degrees_by`] takes at a time, and what it hands out among them.
    pub(crate) fn counting(&self, threads: usize) -> u64 {
        let shares = self.entries().div_ceil(self.counted_by_each(threads)).max(1);
        shares as u64 * 5 * u64::from(self.width)
    }

    /// Entries of the longest row.
    pub(crate) fn longest(&self) -> usize {
        let lengths = self.offsets.windows(2).map(|pair| pair[1] - pair[0]);
        lengths.max().unwrap_or(0) as usize
    }

    /// [`Dataset::degrees`], counted by so many threads.
    pub(crate) fn degrees_by(&self, threads: usize) -> Vec<u32> {
        let share = self.counted_by_each(threads);
        let width = self.width as usize;
        let counted = each_share(self.features.chunks(share), |share| count(share, width)).into_iter();
        let sum = counted.reduce(|mut sum, counts| {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            sum
        });
        sum.unwrap_or_else(|| zeros(width))
    }

    /// Some of the samples, in this order, copied; rows count from 0.
    ///
    /// # Panics
    ///
    /// Where a row is beyond the last one.
    pub fn select(&self, rows: &[usize]) -> Dataset<'static> {
        let (mut offsets, mut features, mut labels) = (vec![0], Vec::new(), Vec::new());
        for &row in rows {
            features.extend_from_slice(self.row(row));
            offsets.push(features.len() as u64);
            labels.push(self.labels[row]);
        }
        let entries = rows.iter().flat_map(|&row| self.range(row));
        let values = match &self.values {
            Values::F32(values) => Values::F32(entries.map(|entry| values[entry]).collect::<Vec<_>>().into()),
            Values::F64(values) => Values::F64(entries.map(|entry| values[entry]).collect::<Vec<_>>().into()),
        };
        let importances: Vec<_> = match self.importances.is_empty() {
            true => Vec::new(),
            false => rows.iter().map(|&row| self.importances[row]).collect(),
        };
        Dataset {
            importances: importances.into(),
            ..Dataset::sound(offsets, features, values, labels, self.width)
        }
    }

    /// The same samples with other labels.
    pub fn with_labels<'b>(&'b self, labels: impl Into<Cow<'b, [f64]>>) -> Result<Dataset<'b>, DataError> {
        let labels = labels.into();
        if labels.len() != self.len() {
            return Err(DataError::Length { what: "labels", found: labels.len(), wanted: self.len() });
        }
        if let Some(row) = labels.iter().position(|label| !label.is_finite()) {
            return Err(DataError::NotFinite { row, what: "the label".to_string(), found: labels[row] });
        }
        Ok(Dataset { labels, ..self.borrowed() })
    }

    /// The same samples, the loss of each counting so many times: numbers from 0 on. A plan of them does not change.
    pub fn with_importances<'b>(
        &'b self,
        importances: impl Into<Cow<'b, [f64]>>,
    ) -> Result<Dataset<'b>, DataError> {
        let importances = importances.into();
        self.check_importances(&importances)?;
        Ok(Dataset { importances, ..self.borrowed() })
    }

    /// Whether these are importances of its rows.
    pub(crate) fn check_importances(&self, importances: &[f64]) -> Result<(), DataError> {
        if importances.len() != self.len() {
            let found = importances.len();
            return Err(DataError::Length { what: "importances", found, wanted: self.len() });
        }
        let wrong = importances.iter().position(|&importance| !is_importance(importance));
        wrong.map_or(Ok(()), |row| Err(DataError::Importance { row, found: importances[row] }))
    }

    /// The same samples without a copy of them.
    pub fn borrowed(&self) -> Dataset<'_> {
        Dataset {
            offsets: Cow::Borrowed(&self.offsets),
            features: Cow::Borrowed(&self.features),
            values: match &self.values {
                Values::F32(values) => Values::F32(Cow::Borrowed(values)),
                Values::F64(values) => Values::F64(Cow::Borrowed(values)),
            },
            labels: Cow::Borrowed(&self.labels),
            importances: Cow::Borrowed(&self.importances),
            width: self.width,
            fingerprint: self.fingerprint.clone(),
        }
    }

    /// The parts that [`Dataset::new`] takes, in its order, and the importances (empty where all are 1). Nothing is copied that
    /// was owned.
    pub fn into_parts(self) -> (Vec<u64>, Vec<u32>, Values<'a>, Vec<f64>, u32, Vec<f64>) {
        (
            self.offsets.into_owned(),
            self.features.into_owned(),
            self.values,
            self.labels.into_owned(),
            self.width,
            self.importances.into_owned(),
        )
    }

    /// What a plan of these samples depends on: rows, features and the number of features, not values nor labels.
    /// So a plan serves every algorithm that touches the same parameters, and every class of a one-against-rest.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint_by(NonZeroUsize::MIN)
    }

    /// A checksum of all that is learnt from: rows, features, values, labels and importances. Not the same on machines whose numbers
    /// are laid out otherwise.
    pub fn checksum(&self) -> u64 {
        pass::checksum(self)
    }

    /// [`Dataset::fingerprint`], found out by so many threads where it is not known yet.
    pub(crate) fn fingerprint_by(&self, threads: NonZeroUsize) -> u64 {
        let find =
            || Pass { order: false, fingerprint: true }.over(self, threads).fingerprint.unwrap_or_default();
        *self.fingerprint.0.get_or_init(find)
    }
}

/// The rows of a [`Dataset`] with the type of its values known: what executors and tasks read.
#[derive(Copy, Clone, Debug)]
pub struct Rows<'a, V> {
    /// n + 1 offsets.
    pub offsets: &'a [u64],
    /// Features of all rows.
    pub features: &'a [u32],
    /// Values of all rows.
    pub values: &'a [V],
    /// Labels.
    pub labels: &'a [f64],
    /// Importances; empty where all are 1.
    pub importances: &'a [f64],
}

impl<'a, V: Value> Rows<'a, V> {
    /// Those of a data set, whose values these are.
    pub fn of(data: &'a Dataset<'_>, values: &'a [V]) -> Rows<'a, V> {
        let (offsets, features, labels) = (data.offsets(), data.features(), data.labels());
        Rows { offsets, features, values, labels, importances: &data.importances }
    }

    /// The entries of this row.
    #[inline(always)]
    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// Asks for the memory of a row that has its turn soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, row: usize) {
        let sample = self.sample(row);
        ask_for(sample.features);
        ask_for(sample.values);
    }

    /// The sample of this row, counted from 0.
    #[inline(always)]
    pub fn sample(&self, row: usize) -> Sample<'a, V> {
        let range = self.offsets[row] as usize..self.offsets[row + 1] as usize;
        Sample {
            features: &self.features[range.clone()],
            values: &self.values[range],
            label: self.labels[row],
            importance: if self.importances.is_empty() { 1.0 } else { self.importances[row] },
        }
    }
}

/// Asks for the memory of all of these.
#[inline(always)]
pub(crate) fn ask_for<N>(numbers: &[N]) {
    const LINE: usize = 64;
    numbers.chunks(LINE / size_of::<N>()).for_each(|line| prefetch(&line[0]));
}

/// One sample.
#[derive(Copy, Clone, Debug)]
pub struct Sample<'a, V> {
    /// Its features, each once, in the order of the data.
    pub features: &'a [u32],
    /// Their values.
    pub values: &'a [V],
    /// What it is: a class of -1 or 1, or a number.
    pub label: f64,
    /// How many times its loss counts: 1 as a rule. A task multiplies the slope of the loss by it, and no penalty.
    pub importance: f64,
}

/// Runs `$body` with `$rows` bound to the [`Rows`] of a data set, whichever type its values have.
#[macro_export]
macro_rules! with_rows {
    ($data:expr, $rows:ident => $body:expr) => {{
        let data = $data;
        match data.values() {
            $crate::Values::F32(values) => {
                let $rows = $crate::Rows::of(data, values);
                $body
            }
            $crate::Values::F64(values) => {
                let $rows = $crate::Rows::of(data, values);
                $body
            }
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(
        offsets: &[u64],
        features: &[u32],
        values: &[f64],
        labels: &[f64],
    ) -> Result<Dataset<'static>, DataError> {
        let values = Values::F64(values.to_vec().into());
        Dataset::new(offsets.to_vec(), features.to_vec(), values, labels.to_vec(), 4)
    }

    #[test]
    fn rows_are_what_was_given() {
        let data = data(&[0, 2, 2, 3], &[3, 1, 0], &[1.0, 2.0, 3.0], &[1.0, -1.0, 1.0]).unwrap();
        assert_eq!((data.len(), data.entries(), data.width()), (3, 3, 4));
        assert_eq!((data.row(0), data.row(1), data.row(2)), (&[3, 1][..], &[][..], &[0][..]));
        assert_eq!(data.degrees(), [1, 1, 0, 1]);
        with_rows!(&data, rows => {
            assert_eq!(rows.sample(2).values[0].wide(), 3.0);
            assert_eq!(rows.sample(1).label, -1.0);
        });
    }

    #[test]
    fn many_threads_find_what_one_finds() {
        let rows = 3 << 18;
        let offsets: Vec<u64> = (0..=rows as u64).collect();
        let checked = |threads: usize, features: &[u32]| {
            let threads = NonZeroUsize::new(threads).unwrap();
            let values = Values::F32(vec![1.0; rows].into());
            let labels = vec![1.0; rows];
            Dataset::new_by(threads, true, offsets.clone(), features.to_vec(), values, labels, 9)
                .map(|data| data.fingerprint())
        };
        let mut features: Vec<u32> = (0..rows as u32).map(|row| row % 9).collect();
        let values = Values::F32(vec![1.0; rows].into());
        let data = Dataset::new(offsets.clone(), features.clone(), values, vec![1.0; rows], 9).unwrap();
        for threads in [1, 2, 3, 64] {
            assert_eq!(checked(threads, &features), Ok(data.fingerprint()));
        }
        features[rows - 1] = 9;
        for threads in [1, 2, 3, 64] {
            let error = DataError::Feature { row: rows - 1, feature: 9, width: 9 };
            assert_eq!(checked(threads, &features), Err(error));
        }
    }

    #[test]
    fn features_are_counted_alike_by_any_number_of_threads() {
        // Some oftener than a byte can tell, one of them by a multiple of that; the last share is shorter than the others.
        let mut features: Vec<u32> =
            (0..600_000).map(|at| if at % 3 == 0 { at % 64 } else { at % 70_000 }).collect();
        features.extend([70_000; 512]);
        let mut degrees = vec![0; 70_001];
        features.iter().for_each(|&feature| degrees[feature as usize] += 1);
        let offsets: Vec<u64> = (0..=features.len() as u64).collect();
        let (values, labels) = (Values::F32(vec![1.0; features.len()].into()), vec![1.0; features.len()]);
        let data = Dataset::new(offsets, features, values, labels, 70_001).unwrap();
        for threads in [1, 2, 3, 8] {
            assert_eq!(data.degrees_by(threads), degrees, "{threads} threads");
        }
    }

    #[test]
    fn samples_can_be_chosen() {
        let whole = data(&[0, 2, 2, 3], &[3, 1, 0], &[1.0, 2.0, 3.0], &[1.0, -1.0, 0.5]).unwrap();
        let chosen = data(&[0, 1, 3], &[0, 3, 1], &[3.0, 1.0, 2.0], &[0.5, 1.0]).unwrap();
        assert_eq!(whole.select(&[2, 0]), chosen);
        assert_eq!(Dataset::concatenated(&[whole.select(&[0]), whole.select(&[1, 2])], 4), whole);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let told = |result: Result<Dataset, DataError>| result.unwrap_err().to_string();
        assert_eq!(
            told(data(&[0, 3, 2], &[0, 1], &[1.0, 1.0], &[1.0, 1.0])),
            "offsets[1] is 3: offsets begin with 0, never fall, and end with the number of entries, 2"
        );
        assert_eq!(
            told(data(&[0, 1], &[4], &[1.0], &[1.0])),
            "row 0 has feature 4, but there are 4 features (0 to 3)"
        );
        assert_eq!(
            told(data(&[0, 1, 4], &[2, 3, 0, 3], &[1.0; 4], &[1.0; 2])),
            "row 1 has feature 3 more than once: sum or drop the repetitions first"
        );
        assert_eq!(
            told(data(&[0, 1], &[2], &[f64::NAN], &[1.0])),
            "row 0: the value of feature 2 is NaN, which cannot be learnt from"
        );
        assert_eq!(told(data(&[0, 1], &[2], &[1.0], &[])), "labels: 0, where 1 are wanted");
    }

    /// The quick look and the slow one agree.
    #[test]
    fn rows_that_touch_and_rows_that_do_not_ascend() {
        let ones = [1.0; 4];
        let labels = [1.0; 4];
        for (offsets, features, good) in [
            (&[0, 2, 2, 4, 4][..], &[0, 3, 0, 1][..], true),
            (&[0, 0, 2, 3, 4], &[2, 3, 3, 3], true),
            (&[0, 4, 4, 4, 4], &[3, 2, 1, 0], true),
            (&[0, 1, 4, 4, 4], &[3, 1, 0, 1], false),
            (&[0, 0, 0, 0, 4], &[0, 1, 1, 2], false),
        ] {
            assert_eq!(data(offsets, features, &ones, &labels).is_ok(), good, "{offsets:?} {features:?}");
        }
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(data(&[0, 1, 2], &[1, 2], &[1.0, wrong], &[1.0, 1.0]).is_err());
            assert!(data(&[0, 1, 2], &[1, 2], &[1.0, 1.0], &[1.0, wrong]).is_err());
        }
    }

    #[test]
    fn a_plan_depends_on_rows_and_features_only() {
        let one = data(&[0, 1, 2], &[1, 2], &[1.0, 1.0], &[1.0, 1.0]).unwrap();
        let other = data(&[0, 1, 2], &[1, 2], &[5.0, 7.0], &[-1.0, 1.0]).unwrap();
        let moved = data(&[0, 2, 2], &[1, 2], &[1.0, 1.0], &[1.0, 1.0]).unwrap();
        assert_eq!(one.fingerprint(), other.fingerprint());
        assert_ne!(one.fingerprint(), moved.fingerprint());
        // Once known it stays with the samples, whatever their labels, and not with some of them.
        assert_eq!(one.with_labels(&[7.0, 8.0][..]).unwrap().fingerprint(), other.fingerprint());
        assert_eq!(one.slice(0..1).fingerprint(), data(&[0, 1], &[1], &[1.0], &[1.0]).unwrap().fingerprint());
        assert_eq!(one, data(&[0, 1, 2], &[1, 2], &[1.0, 1.0], &[1.0, 1.0]).unwrap());
    }

    #[test]
    fn a_checksum_is_of_all_parts() {
        let same = || data(&[0, 1, 2], &[1, 2], &[1.0, 1.0], &[1.0, 1.0]).unwrap();
        assert_eq!(same().checksum(), same().checksum());
        for other in [
            data(&[0, 2, 2], &[1, 2], &[1.0, 1.0], &[1.0, 1.0]).unwrap(),
            data(&[0, 1, 2], &[0, 2], &[1.0, 1.0], &[1.0, 1.0]).unwrap(),
            data(&[0, 1, 2], &[1, 2], &[1.0, 2.0], &[1.0, 1.0]).unwrap(),
            data(&[0, 1, 2], &[1, 2], &[1.0, 1.0], &[1.0, 2.0]).unwrap(),
            same().with_importances(&[1.0, 2.0][..]).unwrap(),
        ] {
            assert_ne!(same().checksum(), other.checksum(), "{other:?}");
        }
    }
}
