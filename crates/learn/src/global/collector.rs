//! The collector of a region: gathers samples, and plans them while it has nothing else to do.

use isochrone_core::{Instant, Span};

use crate::data::{DataError, Dataset, Sample, Value, Values, is_importance};
use crate::global::batch::Batch;
use crate::plan::BatchPlanner;
use crate::task::Task;

/// When a collector closes a batch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CollectorOptions {
    /// Samples of a batch, at least 1. Larger batches have fewer first touches a sample, and lose more when a collector
    /// is lost. Default 65536.
    pub batch_size: u32,
    /// How long the first sample of a batch waits for the others. Default 5 s.
    pub batch_time: Span,
    /// Whether batches are planned here, which is the point; else the centre does it. Default true.
    pub plan: bool,
}

impl Default for CollectorOptions {
    fn default() -> CollectorOptions {
        CollectorOptions { batch_size: 1 << 16, batch_time: Span::from_secs(5), plan: true }
    }
}

/// Where a source goes on: what [`crate::global::Center`] has not yet taken from it.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Next {
    /// Number of the next batch.
    pub seq: u64,
    /// Number of its first sample in the source's stream, from 0.
    pub sample: u64,
}

/// Gathers the samples of a source into batches.
///
/// It has no clock: time is told by whoever calls it. The host's duties: (1) give it every sample of the source, in order;
/// (2) call [`Collector::tick`] at [`Collector::deadline`]; (3) send each batch that it returns to the centre, again until
/// the centre's [`Next`] is beyond it; (4) after a restart, or when the centre says that the source goes on elsewhere, ask
/// the centre where ([`Next`]), make a collector that begins there ([`Collector::resume`]), and give it the samples from
/// there on.
#[derive(Clone, Debug)]
pub struct Collector<T> {
    source: u32,
    task: T,
    options: CollectorOptions,
    planner: BatchPlanner,
    next: Next,
    features: u32,
    /// When the first sample of the open batch came.
    opened: Option<Instant>,
    offsets: Vec<u64>,
    named: Vec<u32>,
    values: Vec<f64>,
    labels: Vec<f64>,
    /// Of each sample; empty as long as all are 1.
    importances: Vec<f64>,
    sorted: Vec<u32>,
}

impl<T: Task> Collector<T> {
    /// The collector of this source, for a task on data with this many features.
    pub fn new(source: u32, task: T, features: u32, options: CollectorOptions) -> Collector<T> {
        Collector {
            source,
            task,
            options,
            planner: BatchPlanner::new(),
            next: Next::default(),
            features,
            opened: None,
            offsets: vec![0],
            named: Vec::new(),
            values: Vec::new(),
            labels: Vec::new(),
            importances: Vec::new(),
            sorted: Vec::new(),
        }
    }

    /// Goes on where the centre says; what was gathered is dropped, as it is to be given again.
    #[must_use]
    pub fn resume(mut self, next: Next) -> Collector<T> {
        self.clear();
        self.next = next;
        self
    }

    /// Which source it is.
    pub fn source(&self) -> u32 {
        self.source
    }

    /// Number of the next batch, and of its first sample.
    pub fn next(&self) -> Next {
        self.next
    }

    /// Samples that wait for their batch to be closed.
    pub fn pending(&self) -> usize {
        self.labels.len()
    }

    /// When the open batch is to be closed, full or not; `None` while it is empty.
    pub fn deadline(&self) -> Option<Instant> {
        self.opened.map(|opened| opened + self.options.batch_time)
    }

    /// Takes a sample. Returns the batch that it completed, ready to be sent.
    ///
    /// # Errors
    /// If the sample cannot be learnt from; it is not taken then. Rows are numbered in the open batch.
    pub fn push<V: Value>(
        &mut self,
        sample: &Sample<'_, V>,
        now: Instant,
    ) -> Result<Option<Vec<u8>>, DataError> {
        self.check(sample)?;
        let &Sample { features, values, label, importance } = sample;
        self.opened.get_or_insert(now);
        if importance != 1.0 || !self.importances.is_empty() {
            self.importances.resize(self.labels.len(), 1.0);
            self.importances.push(importance);
        }
        self.named.extend_from_slice(features);
        self.values.extend(values.iter().map(|value| value.wide()));
        self.labels.push(label);
        self.offsets.push(self.named.len() as u64);
        if self.labels.len() >= self.options.batch_size.max(1) as usize { Ok(self.flush()) } else { Ok(None) }
    }

    /// Closes the open batch if it has waited long enough.
    pub fn tick(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.deadline().is_some_and(|deadline| deadline <= now) { self.flush() } else { None }
    }

    /// Closes the open batch; `None` if it is empty.
    pub fn flush(&mut self) -> Option<Vec<u8>> {
        if self.labels.is_empty() {
            return None;
        }
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        let values = Values::F64(std::mem::take(&mut self.values).into());
        let (named, labels) = (std::mem::take(&mut self.named), std::mem::take(&mut self.labels));
        let importances = std::mem::take(&mut self.importances);
        #[allow(clippy::expect_used)] // `check` has seen every sample.
        let data = Dataset::new(offsets, named, values, labels, self.features)
            .expect("samples are checked")
            .weighed(importances);
        // A batch that cannot be planned is sent without a plan, and the centre says so.
        let plan = if self.options.plan { self.planner.plan(&self.task, &data).ok() } else { None };
        let Next { seq, sample } = self.next;
        self.next = Next { seq: seq + 1, sample: sample + data.len() as u64 };
        self.opened = None;
        Some(Batch { source: self.source, seq, sample, data, plan }.encode())
    }

    fn clear(&mut self) {
        self.opened = None;
        self.offsets.truncate(1);
        self.named.clear();
        self.values.clear();
        self.labels.clear();
        self.importances.clear();
    }

    fn check<V: Value>(&mut self, sample: &Sample<'_, V>) -> Result<(), DataError> {
        let &Sample { features, values, label, importance } = sample;
        let row = self.labels.len();
        if values.len() != features.len() {
            return Err(DataError::Length { what: "values", found: values.len(), wanted: features.len() });
        }
        if !label.is_finite() {
            return Err(DataError::NotFinite { row, what: "the label".to_string(), found: label });
        }
        if !is_importance(importance) {
            return Err(DataError::Importance { row, found: importance });
        }
        for (&feature, value) in features.iter().zip(values) {
            let value = value.wide();
            if feature >= self.features {
                return Err(DataError::Feature { row, feature, width: self.features });
            }
            if !value.is_finite() {
                let what = format!("the value of feature {feature}");
                return Err(DataError::NotFinite { row, what, found: value });
            }
        }
        if features.windows(2).all(|pair| pair[0] < pair[1]) {
            return Ok(());
        }
        self.sorted.clear();
        self.sorted.extend_from_slice(features);
        self.sorted.sort_unstable();
        match self.sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(DataError::Repeated { row, feature: pair[0] }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::mixed::{Mixed, WIDTH};
    use crate::task::Rule;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Span::from_secs(seconds)
    }

    fn collector() -> Collector<Mixed> {
        let options = CollectorOptions { batch_size: 3, ..CollectorOptions::default() };
        Collector::new(2, Mixed(Rule::Features), WIDTH, options)
    }

    fn sample<'a>(features: &'a [u32], values: &'a [f64], label: f64) -> Sample<'a, f64> {
        Sample { features, values, label, importance: 1.0 }
    }

    fn decoded(bytes: Vec<u8>) -> Batch {
        Batch::decode(&bytes, &Mixed(Rule::Features), WIDTH).unwrap().0
    }

    #[test]
    fn batches_are_closed_by_size_and_by_time() {
        let mut collector = collector();
        assert_eq!((collector.deadline(), collector.flush()), (None, None));
        assert_eq!(collector.push(&sample(&[0], &[1.0], 1.0), at(1)), Ok(None));
        assert_eq!(collector.push(&sample(&[], &[], -1.0), at(2)), Ok(None));
        let full = decoded(collector.push(&sample(&[5, 1], &[1.0, 2.0], 1.0), at(3)).unwrap().unwrap());
        assert_eq!((full.source, full.seq, full.sample, full.data.len()), (2, 0, 0, 3));
        assert_eq!(full.plan, BatchPlanner::new().compact(&full.data).ok());
        collector.push(&sample(&[0], &[1.0], 1.0), at(10)).unwrap();
        assert_eq!(
            (collector.deadline(), collector.tick(at(14)), collector.pending()),
            (Some(at(15)), None, 1)
        );
        let late = decoded(collector.tick(at(15)).unwrap());
        assert_eq!((late.seq, late.sample, late.data.len()), (1, 3, 1));
        assert_eq!((collector.deadline(), collector.next()), (None, Next { seq: 2, sample: 4 }));
    }

    #[test]
    fn it_goes_on_where_it_is_told() {
        let mut collector = collector();
        collector.push(&sample(&[0], &[1.0], 1.0), at(1)).unwrap();
        let mut collector = collector.resume(Next { seq: 7, sample: 40 });
        assert_eq!((collector.pending(), collector.deadline()), (0, None));
        collector.push(&sample(&[1], &[1.0], 1.0), at(1)).unwrap();
        let batch = decoded(collector.flush().unwrap());
        assert_eq!((batch.seq, batch.sample, batch.data.row(0)), (7, 40, &[1][..]));
    }

    #[test]
    fn a_sample_that_cannot_be_learnt_from_is_not_taken() {
        let mut collector = collector();
        collector.push(&sample(&[0], &[1.0], 1.0), at(1)).unwrap();
        let mut told = |features: &[u32], values: &[f64], label| {
            collector.push(&sample(features, values, label), at(1)).unwrap_err().to_string()
        };
        assert_eq!(told(&[8], &[1.0], 1.0), "row 1 has feature 8, but there are 8 features (0 to 7)");
        assert_eq!(
            told(&[3, 1, 3], &[1.0; 3], 1.0),
            "row 1 has feature 3 more than once: sum or drop the repetitions first"
        );
        assert_eq!(
            told(&[1], &[f64::INFINITY], 1.0),
            "row 1: the value of feature 1 is inf, which cannot be learnt from"
        );
        assert_eq!(told(&[1], &[1.0], f64::NAN), "row 1: the label is NaN, which cannot be learnt from");
        assert_eq!(told(&[1], &[], 1.0), "values: 0, where 1 are wanted");
        let negative = Sample { importance: -1.0, ..sample(&[1], &[1.0], 1.0) };
        assert_eq!(
            collector.push(&negative, at(1)).unwrap_err().to_string(),
            "row 1: the importance is -1, where a number from 0 on is wanted"
        );
        assert_eq!(collector.pending(), 1);
    }

    /// Where one sample of a batch counts more or less than once, all of that batch say what they count, and no others.
    #[test]
    fn batches_say_what_their_samples_count() {
        let mut collector = collector();
        let mut batches = Vec::new();
        for importance in [1.0, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0] {
            let sample = Sample { importance, ..sample(&[1], &[1.0], 1.0) };
            batches.extend(collector.push(&sample, at(1)).unwrap());
        }
        batches.extend(collector.flush());
        let told: Vec<_> =
            batches.into_iter().map(|batch| decoded(batch).data.importances().to_vec()).collect();
        assert_eq!(told, [vec![], vec![1.0, 0.5, 1.0], vec![]]);
    }
}
