//! What a node counts, in atomics: written by the shard, read by whoever scrapes or draws.
//!
//! Cardinality: every series is per keyspace, partition, peer or limit of the deployment, never per key or
//! client; see [`crate::limits::Limits::metric_series`].

use crate::audit::AuditMetrics;
use crate::certificates::Expiries;
pub use crate::grpc::GrpcMetrics;
use crate::journal::{DurationHistogram, JournalMetrics};
use crate::memory::Memory;
use crate::snapshots::SnapshotMetrics;
use isochrone_core::{Path, Phase, Quorums, Span};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

const SUB_BITS: u32 = 5;
const LOW_BITS: u32 = 10;
const OCTAVES: usize = 34;
const BUCKETS: usize = OCTAVES << SUB_BITS;

/// Durations from a microsecond to hours, to 3%.
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    nanos: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), nanos: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, span: Span) {
        self.buckets[bucket(span.as_nanos())].fetch_add(1, Relaxed);
        self.nanos.fetch_add(span.as_nanos(), Relaxed);
    }

    /// All counts as they stand.
    pub fn read(&self) -> Counts {
        Counts {
            buckets: self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect(),
            nanos: self.nanos.load(Relaxed),
        }
    }
}

/// A reading of a [`Histogram`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    buckets: Vec<u64>,
    nanos: u64,
}

impl Counts {
    /// How many durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their mean; zero where there are none.
    pub fn mean(&self) -> Span {
        Span::from_nanos(self.nanos.checked_div(self.count()).unwrap_or(0))
    }

    /// What came since an earlier reading of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        let before = |index: usize| earlier.buckets.get(index).copied().unwrap_or(0);
        Counts {
            buckets: self.buckets.iter().enumerate().map(|(i, now)| now.saturating_sub(before(i))).collect(),
            nanos: self.nanos.saturating_sub(earlier.nanos),
        }
    }

    /// Adds another reading, of another histogram.
    pub fn add(&mut self, other: &Counts) {
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.nanos += other.nanos;
    }

    /// The duration that this share of all do not exceed, to 3%; `None` where there are none.
    pub fn quantile(&self, share: f64) -> Option<Span> {
        let count = self.count();
        let rank = ((count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets.iter().enumerate().find_map(|(index, bucket)| {
            seen += bucket;
            (seen >= rank && count > 0).then(|| Span::from_nanos((floor(index) + floor(index + 1)) / 2))
        })
    }

    fn up_to(&self, nanos: u64) -> u64 {
        self.buckets.iter().take(bucket(nanos) + 1).sum()
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < 1 << LOW_BITS {
        return 0;
    }
    let octave = 63 - nanos.leading_zeros();
    let sub = (nanos >> (octave - SUB_BITS)) as usize & ((1 << SUB_BITS) - 1);
    ((((octave - LOW_BITS) as usize) << SUB_BITS) | sub).min(BUCKETS - 1)
}

fn floor(bucket: usize) -> u64 {
    let octave = (bucket >> SUB_BITS) as u32 + LOW_BITS;
    let sub = (bucket & ((1 << SUB_BITS) - 1)) as u64;
    (1 << octave) + (sub << (octave - SUB_BITS))
}

/// What is counted of one keyspace on one node.
#[derive(Default)]
pub struct KeyspaceMetrics {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: &'static str,
    /// The region of this node, where the commands it counts came in.
    pub region: String,
    /// The names of the nodes that replicate it.
    pub replicas: Vec<String>,
    /// From the protocol: how long commands took, by [`Path`].
    pub commits: [Histogram; 4],
    /// Their parts, in the order of [`Phase::ALL`].
    pub phases: [Histogram; Phase::ALL.len()],
    /// From the gateway: how long commands took, from their bytes to their answer, refused ones excluded.
    pub commands: Histogram,
    /// Those of `commands` that may change something: what bounds of writes are compared with.
    pub writes: Histogram,
    /// Commands refused: they had no effect.
    pub refused: AtomicU64,
    /// Commands of unknown fate.
    pub unknown: AtomicU64,
    /// Times a process of this node began to lead.
    pub leader_changes: AtomicU64,
    /// Whether one leads now.
    pub leads: AtomicBool,
    /// Positions decided and applied by this node's processes, the furthest.
    pub decided: AtomicU64,
    /// See `decided`.
    pub applied: AtomicU64,
}

/// The labels of [`KeyspaceMetrics::commits`], in its order.
pub const PATHS: [Path; 4] = [Path::Fast, Path::Slow, Path::Leader, Path::Lease];

impl KeyspaceMetrics {
    /// Of this keyspace on a node of this region.
    pub fn new(name: &str, protocol: &'static str, region: &str, replicas: Vec<String>) -> KeyspaceMetrics {
        let (name, region) = (name.into(), region.into());
        KeyspaceMetrics { name, protocol, region, replicas, ..KeyspaceMetrics::default() }
    }

    /// The round trip to the nearest majority of the replicas: `round_trip` gives that to each replica's node, as measured.
    pub fn bound(&self, round_trip: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let mut trips: Vec<f64> = self.replicas.iter().filter_map(|name| round_trip(name)).collect();
        trips.sort_unstable_by(f64::total_cmp);
        trips.get(Quorums::majority(self.replicas.len()) - 1).copied()
    }

    /// The median of what was committed, reads under a lease excluded, in units of [`KeyspaceMetrics::bound`].
    pub fn bound_ratio(&self, round_trip: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let bound = self.bound(round_trip)?;
        let mut commits: Option<Counts> = None;
        for (path, histogram) in PATHS.iter().zip(&self.commits) {
            if *path != Path::Lease {
                let counts = histogram.read();
                match &mut commits {
                    Some(sum) => sum.add(&counts),
                    None => commits = Some(counts),
                }
            }
        }
        let median = commits?.quantile(0.5)?.as_nanos() as f64 / 1e9;
        (bound > 0.0).then(|| median / bound)
    }

    /// Counts a command that its protocol has committed.
    pub fn committed(&self, path: Path, total: Span, phases: &[Span; Phase::ALL.len()]) {
        if let Some(index) = PATHS.iter().position(|other| *other == path) {
            self.commits[index].record(total);
        }
        for (histogram, span) in self.phases.iter().zip(phases) {
            histogram.record(*span);
        }
    }
}

/// Everything that a node's HTTP port and its owner can read while it runs.
#[derive(Default)]
pub struct NodeMetrics {
    /// Of each keyspace.
    pub keyspaces: Vec<Arc<KeyspaceMetrics>>,
    /// Of the journal.
    pub journal: Arc<JournalMetrics>,
    /// Of the snapshots.
    pub snapshots: Arc<SnapshotMetrics>,
    /// Malformed frames, each of which ended its connection.
    pub malformed_frames: AtomicU64,
    /// Greetings refused: another cluster, another version, another node.
    pub refused_greetings: AtomicU64,
    /// Messages for processes that do not run here.
    pub misaddressed: AtomicU64,
    /// Commands under way.
    pub in_flight: AtomicU64,
    /// Of Redis clients so many may be, in all keyspaces.
    pub room: AtomicU64,
    /// Nanoseconds spent looking for news again and again, in vain or not.
    pub idle_poll: AtomicU64,
    /// Client connections.
    pub clients: AtomicU64,
    /// Of the gRPC server.
    pub grpc: GrpcMetrics,
    /// Of the audit log.
    pub audit: Arc<AuditMetrics>,
    /// When the certificates in use run out.
    pub certificates: CertificateMetrics,
    /// What the node may use of the memory that its process has asked for.
    pub memory: Arc<Memory>,
}

/// When certificates run out, as last loaded.
#[derive(Default)]
pub struct CertificateMetrics(Mutex<Expiries>);

impl CertificateMetrics {
    pub(crate) fn set(&self, expiries: Expiries) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = expiries;
    }

    /// As last loaded.
    pub(crate) fn get(&self) -> Expiries {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The page of one scrape, in the text format of Prometheus.
#[derive(Default)]
pub struct Page {
    text: String,
    last: &'static str,
}

impl Page {
    /// The page.
    pub fn finish(self) -> String {
        self.text
    }

    /// How many series it shows.
    pub fn series(&self) -> usize {
        self.text.lines().filter(|line| !line.starts_with('#')).count()
    }

    /// One value. Values of one name are added one after the other; `kind` is `counter` or `gauge`.
    pub fn value(&mut self, name: &'static str, kind: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.head(name, kind, help);
        self.line(name, "", labels, None, value);
    }

    /// One histogram of ours: bounds from 0.1 ms to 13 s, each 1.5 times the one before.
    pub fn histogram(&mut self, name: &'static str, help: &str, labels: &[(&str, &str)], counts: &Counts) {
        self.head(name, "histogram", help);
        for bound in DurationHistogram::bounds() {
            let text = format!("{bound:.6}");
            self.line(name, "_bucket", labels, Some(&text), counts.up_to((bound * 1e9) as u64) as f64);
        }
        let count = counts.count() as f64;
        self.line(name, "_bucket", labels, Some("+Inf"), count);
        self.line(name, "_sum", labels, None, counts.nanos as f64 / 1e9);
        self.line(name, "_count", labels, None, count);
    }

    /// The journal's histogram.
    pub fn durations(&mut self, name: &'static str, help: &str, histogram: &DurationHistogram) {
        self.head(name, "histogram", help);
        let mut last = 0;
        for (bound, count) in histogram.cumulative() {
            let text = if bound.is_finite() { format!("{bound:.6}") } else { "+Inf".to_owned() };
            self.line(name, "_bucket", &[], Some(&text), count as f64);
            last = count;
        }
        self.line(name, "_sum", &[], None, histogram.sum());
        self.line(name, "_count", &[], None, last as f64);
    }

    fn head(&mut self, name: &'static str, kind: &str, help: &str) {
        if self.last != name {
            self.last = name;
            // Writing to a string does not fail; the same holds below.
            let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
    }

    fn line(&mut self, name: &str, suffix: &str, labels: &[(&str, &str)], bound: Option<&str>, value: f64) {
        let _ = write!(self.text, "{name}{suffix}");
        let labels = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
        let mut open = '{';
        for (label, value) in labels {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{open}{label}=\"{value}\"");
            open = ',';
        }
        if open == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_way_to_the_nearest_majority_and_back() {
        let names = ["a", "b", "c"].map(String::from).to_vec();
        let metrics = KeyspaceMetrics::new("main", "multipaxos", "R", names);
        let trips = |known: usize| {
            move |name: &str| {
                [("a", 0.0), ("b", 0.05), ("c", 0.2)][..known]
                    .iter()
                    .find_map(|(at, trip)| (*at == name).then_some(*trip))
            }
        };
        assert_eq!(metrics.bound_ratio(trips(3)), None, "nothing was committed");
        metrics.committed(Path::Leader, Span::from_millis(100), &[Span::ZERO; Phase::ALL.len()]);
        metrics.committed(Path::Lease, Span::from_millis(1), &[Span::ZERO; Phase::ALL.len()]);
        metrics.committed(Path::Lease, Span::from_millis(1), &[Span::ZERO; Phase::ALL.len()]);
        let ratio = metrics.bound_ratio(trips(3)).unwrap();
        assert!((ratio - 2.0).abs() < 0.07, "{ratio}");
        assert_eq!(metrics.bound_ratio(trips(1)), None, "no majority was measured");
    }

    #[test]
    fn quantiles_are_true_to_three_percent() {
        let histogram = Histogram::default();
        (1..=10_000u64).for_each(|micros| histogram.record(Span::from_micros(micros)));
        let counts = histogram.read();
        for (share, expected) in [(0.5, 5_000.0), (0.99, 9_900.0), (1.0, 10_000.0)] {
            let found = counts.quantile(share).unwrap().as_nanos() as f64 / 1e3;
            assert!((found / expected - 1.0).abs() < 0.04, "{share}: {found} instead of {expected}");
        }
        assert_eq!(counts.count(), 10_000);
        assert_eq!(counts.mean(), Span::from_nanos(5_000_500));
        assert_eq!(Counts::default().quantile(0.5), None);
        histogram.record(Span::from_secs(100_000_000));
        assert_eq!(histogram.read().since(&counts).count(), 1, "what is longer than all buckets is counted");
    }

    #[test]
    fn a_page_reads_as_prometheus_expects() {
        let mut page = Page::default();
        let histogram = Histogram::default();
        histogram.record(Span::from_micros(120));
        page.value("isochrone_x", "gauge", "An x.", &[("name", "a\"b")], 1.5);
        page.histogram("isochrone_y_seconds", "A y.", &[], &histogram.read());
        let text = page.finish();
        assert!(
            text.starts_with(
                "# HELP isochrone_x An x.\n# TYPE isochrone_x gauge\nisochrone_x{name=\"a\\\"b\"} 1.5\n"
            ),
            "{text}"
        );
        assert!(text.contains("isochrone_y_seconds_bucket{le=\"0.000100\"} 0\n"), "{text}");
        assert!(text.contains("isochrone_y_seconds_bucket{le=\"0.000150\"} 1\n"), "{text}");
        assert!(text.ends_with("isochrone_y_seconds_sum 0.00012\nisochrone_y_seconds_count 1\n"), "{text}");
    }
}
