//! What transactions will take: each protocol's closed form over the mixes of the workloads, by region.

use std::collections::BTreeMap;
use std::fmt;

use isochrone_core::deployment::{ConfigErrors, Deployment, Keyspace};
use isochrone_core::{KeyspaceId, Matrix, Random, RegionId, Span};
use serde::Serialize;

use crate::partitions::Footprint;
use crate::table::{cells, gap};
use crate::told::reader_of;
use crate::twopc::Coordinator;
use crate::{Demand, Partitions, carousel, tapir, twopc};

/// A kind of transaction of a mix: its weight, the keys it touches, how many of them it reads, and whether it only reads.
type Shape = (u32, usize, usize, bool);

/// The mixes, by the names of the workloads of `isochrone sim`.
const MIXES: &[(&str, &[Shape])] = &[
    // specs/carousel.md 7.1: adding a user, following, posting, and timelines of 1 to 10 keys.
    (
        "retwis",
        &[
            (5, 3, 1, false),
            (15, 2, 2, false),
            (30, 5, 3, false),
            (5, 1, 1, true),
            (5, 2, 2, true),
            (5, 3, 3, true),
            (5, 4, 4, true),
            (5, 5, 5, true),
            (5, 6, 6, true),
            (5, 7, 7, true),
            (5, 8, 8, true),
            (5, 9, 9, true),
            (5, 10, 10, true),
        ],
    ),
    ("ycsbt", &[(1, 4, 4, false)]),
    // Amalgamate; balances; deposits and savings; cheques and payments.
    ("smallbank", &[(15, 3, 3, false), (15, 2, 2, true), (30, 1, 1, false), (40, 2, 2, false)]),
];

/// A closed form; the last argument says whether the transaction only reads.
type Form = fn(&Matrix, RegionId, Partitions<'_>, Footprint<'_>, Tuned, bool) -> Span;

/// The protocols, fastest first where nothing is in the way.
const FORMS: &[(&str, Form)] = &[
    ("carousel-fast", of_carousel),
    ("carousel-basic", of_carousel),
    ("tapir", |matrix, client, partitions, of, _, _| tapir::commit(matrix, client, partitions, of)),
    ("2pc", |matrix, client, partitions, of, tuned, _| match tuned.coordinator {
        Coordinator::Remote => twopc::remote(matrix, client, partitions, of),
        Coordinator::Local => twopc::commit(matrix, client, partitions, of),
    }),
];

/// Both variants, which differ in what they are told.
fn of_carousel(
    matrix: &Matrix,
    client: RegionId,
    partitions: Partitions<'_>,
    of: Footprint<'_>,
    tuned: Tuned,
    reads: bool,
) -> Span {
    match (reads && !tuned.latest(), tuned.carousel.votes) {
        (true, _) => carousel::read_only(matrix, client, partitions, of),
        (false, true) => carousel::voted(matrix, client, partitions, of, tuned.carousel.reads),
        (false, false) => carousel::basic(matrix, client, partitions, of),
    }
}

/// What the parameters of a keyspace say of the way that its transactions take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tuned {
    /// Of both variants of Carousel.
    carousel: carousel::Tuned,
    /// Of 2PC.
    coordinator: Coordinator,
}

impl Tuned {
    /// What a protocol has by default.
    fn by_default(protocol: &str) -> Tuned {
        let fast = protocol == "carousel-fast";
        let carousel = if fast { carousel::Tuned::FAST } else { carousel::Tuned::BASIC };
        Tuned { carousel, coordinator: Coordinator::default() }
    }

    /// Of a keyspace of this protocol what it says, which the protocol refuses where it is wrong; of any other what the
    /// protocol has by default.
    fn of(protocol: &str, keyspace: &Keyspace) -> Tuned {
        let default = Tuned::by_default(protocol);
        reader_of(keyspace, protocol).map_or(default, |mut reader| Tuned {
            carousel: default.carousel.read(&mut reader),
            coordinator: Coordinator::read(&mut reader),
        })
    }

    /// Whether what only reads takes the way of what writes under Carousel, as it does in a keyspace that is served and says
    /// nothing.
    fn latest(self) -> bool {
        self.carousel.latest.unwrap_or(true)
    }

    /// What `read_only` says of Carousel.
    fn read_only(self) -> &'static str {
        if self.latest() { "latest" } else { "moment" }
    }
}

/// Latencies, rising, each with its part of all transactions; the parts make up one.
#[derive(Clone, Debug, PartialEq)]
struct Latencies(Vec<(Span, f64)>);

impl Latencies {
    /// The latency that this part of the transactions does not exceed.
    fn quantile(&self, share: f64) -> Span {
        let mut below = 0.0;
        let found = self.0.iter().find(|(_, part)| {
            below += part;
            // Parts are sums of many; they need not make up exactly what they should.
            below >= share - 1e-9
        });
        found.or(self.0.last()).map_or(Span::ZERO, |(latency, _)| *latency)
    }

    /// Their mean, milliseconds.
    fn mean_ms(&self) -> f64 {
        self.0.iter().map(|(latency, part)| latency.as_millis_f64() * part).sum()
    }

    /// Several together, each with its weight.
    fn mixed<'a>(parts: impl IntoIterator<Item = (&'a Latencies, f64)> + Clone) -> Latencies {
        let sum: f64 = parts.clone().into_iter().map(|(_, weight)| weight).sum();
        let mut all: BTreeMap<Span, f64> = BTreeMap::new();
        for (latencies, weight) in parts {
            for (latency, part) in &latencies.0 {
                *all.entry(*latency).or_default() += part * weight / sum.max(f64::MIN_POSITIVE);
            }
        }
        Latencies(all.into_iter().collect())
    }
}

/// What transactions of a workload take under a protocol, for the clients of each region, where keys lie in all
/// partitions equally and nothing else is under way. `None` for names that are not known.
fn latencies(
    matrix: &Matrix,
    partitions: Partitions<'_>,
    workload: &str,
    protocol: &str,
    tuned: Tuned,
) -> Option<Vec<Latencies>> {
    let (_, mix) = MIXES.iter().find(|(name, _)| *name == workload)?;
    let (_, form) = FORMS.iter().find(|(name, _)| *name == protocol)?;
    let sum: u32 = mix.iter().map(|shape| shape.0).sum();
    let footprints: Vec<_> = mix.iter().map(|shape| footprints(partitions.len(), shape.1, shape.2)).collect();
    let of_region = |client: RegionId| {
        let mut all: BTreeMap<Span, f64> = BTreeMap::new();
        for (shape, footprints) in mix.iter().zip(&footprints) {
            for (reads, participants, part) in footprints {
                let of = Footprint { reads, participants };
                let latency = form(matrix, client, partitions, of, tuned, shape.3);
                *all.entry(latency).or_default() += part * f64::from(shape.0) / f64::from(sum);
            }
        }
        Latencies(all.into_iter().collect())
    };
    Some(matrix.regions().map(of_region).collect())
}

/// With more partitions than this what transactions touch is drawn, as often as below.
const EXACT_MAX: usize = 7;
const DRAWS: usize = 20_000;

/// Which partitions transactions of so many keys touch, the first of which they read: where they read, all they touch,
/// and the part of the transactions that do.
fn footprints(partitions: usize, keys: usize, reads: usize) -> Vec<(Vec<usize>, Vec<usize>, f64)> {
    let mut found: BTreeMap<(Vec<usize>, Vec<usize>), f64> = BTreeMap::new();
    if partitions > EXACT_MAX {
        // Always the same, so that a plan is.
        let mut random = Random::seeded(1);
        for _ in 0..DRAWS {
            let drawn: Vec<usize> = (0..keys).map(|_| random.below(partitions as u64) as usize).collect();
            *found.entry((distinct(&drawn[..reads]), distinct(&drawn))).or_default() += 1.0 / DRAWS as f64;
        }
    } else {
        found.insert((Vec::new(), Vec::new()), 1.0);
        for key in 0..keys {
            let mut next = BTreeMap::new();
            for ((read, all), part) in found {
                for partition in 0..partitions {
                    let with = |known: &[usize]| distinct(&[known, &[partition]].concat());
                    let read = if key < reads { with(&read) } else { read.clone() };
                    *next.entry((read, with(&all))).or_default() += part / partitions as f64;
                }
            }
            found = next;
        }
    }
    found.into_iter().map(|((read, all), part)| (read, all, part)).collect()
}

fn distinct(numbers: &[usize]) -> Vec<usize> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// What the distances allow one keyspace of transactions. Serialized, it is what `isochrone plan --format json` prints.
///
/// Each client stands at the node of its region. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransactionPlan {
    /// The keyspace.
    pub keyspace: String,
    /// The protocol that the deployment names.
    pub configured: String,
    /// The regions of each partition's replicas, its leader's first.
    pub partitions: Vec<Vec<String>>,
    /// Whether what transactions touch is computed, or drawn because there are many partitions.
    pub exact: bool,
    /// What each protocol takes under each workload.
    pub forecasts: Vec<TransactionForecast>,
}

/// What one protocol takes under one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransactionForecast {
    /// The workload.
    pub workload: String,
    /// The protocol.
    pub protocol: String,
    /// What transactions that only read see, as the parameter `read_only` says; none for a protocol without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<String>,
    /// By region of the client, in the order of the deployment.
    pub regions: Vec<Quantiles>,
    /// Of all clients.
    pub all: Quantiles,
}

/// Latencies of transactions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Whose.
    pub region: String,
    /// Median.
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Mean.
    pub mean_ms: f64,
}

impl Quantiles {
    fn of(region: &str, latencies: &Latencies) -> Quantiles {
        let ms = |share| latencies.quantile(share).as_millis_f64();
        let mean_ms = (latencies.mean_ms() * 1e3).round() / 1e3;
        Quantiles { region: region.to_owned(), p50_ms: ms(0.5), p90_ms: ms(0.9), p99_ms: ms(0.99), mean_ms }
    }
}

/// Plans a keyspace of transactions.
///
/// # Errors
/// If the deployment gives no round trips between its regions.
///
/// # Panics
/// If the demand does not have a number for each region.
pub fn plan_transactions(
    deployment: &Deployment,
    keyspace: KeyspaceId,
    demand: &Demand,
) -> Result<TransactionPlan, ConfigErrors> {
    Ok(plan_transactions_over(deployment, deployment.given_matrix()?, keyspace, demand))
}

/// The same over other distances between the regions of the deployment than its own: measured ones.
///
/// # Panics
/// If the demand, or the matrix, does not have each region.
pub fn plan_transactions_over(
    deployment: &Deployment,
    matrix: &Matrix,
    keyspace: KeyspaceId,
    demand: &Demand,
) -> TransactionPlan {
    assert_eq!(matrix.len(), deployment.regions().len(), "distances are given for each region");
    assert_eq!(demand.clients.len(), matrix.len(), "clients are given for each region");
    let keyspace = deployment.keyspace(keyspace);
    let regions = |group: Vec<_>| group.into_iter().map(|node| deployment.node(node).region).collect();
    let groups: Vec<Vec<RegionId>> = keyspace.groups().into_iter().map(regions).collect();
    let partitions = Partitions::new(&groups);
    let weights = || demand.weights().map(|weight| weight as f64);
    let mut forecasts = Vec::new();
    for (workload, _) in MIXES {
        for (protocol, _) in FORMS {
            let tuned = Tuned::of(protocol, keyspace);
            let Some(found) = latencies(matrix, partitions, workload, protocol, tuned) else { continue };
            forecasts.push(TransactionForecast {
                workload: (*workload).to_owned(),
                protocol: (*protocol).to_owned(),
                read_only: protocol.starts_with("carousel").then(|| tuned.read_only().to_owned()),
                regions: matrix.names().zip(&found).map(|(name, found)| Quantiles::of(name, found)).collect(),
                all: Quantiles::of("all", &Latencies::mixed(found.iter().zip(weights()).collect::<Vec<_>>())),
            });
        }
    }
    let name = |region: &RegionId| matrix.name(*region).to_owned();
    TransactionPlan {
        keyspace: keyspace.name.clone(),
        configured: keyspace.protocol.clone(),
        partitions: groups.iter().map(|group| group.iter().map(name).collect()).collect(),
        exact: groups.len() <= EXACT_MAX,
        forecasts,
    }
}

/// What a command takes that writes one key and reads none, as `SET` does: for each partition, by region of the client. Where
/// there are several, its transaction reads the partition's entry of the directory before it commits. Each group has its leader first. `None` where the keyspace is of no protocol of transactions.
pub(crate) fn writes(
    matrix: &Matrix,
    keyspace: &Keyspace,
    groups: &[Vec<RegionId>],
) -> Option<Vec<Vec<Span>>> {
    let protocol = keyspace.protocol.as_str();
    let (_, form) = FORMS.iter().find(|(name, _)| *name == protocol)?;
    let (partitions, tuned) = (Partitions::new(groups), Tuned::of(protocol, keyspace));
    let written = |partition: usize| -> Vec<Span> {
        let participants = [partition];
        let reads = if groups.len() > 1 { &participants[..] } else { &[] };
        let of = Footprint { reads, participants: &participants };
        matrix.regions().map(|client| form(matrix, client, partitions, of, tuned, false)).collect()
    };
    Some((0..groups.len()).map(written).collect())
}

impl fmt::Display for TransactionPlan {
    /// For each workload a row for each protocol, a column of medians for each region; then all clients together.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.partitions.len();
        let plural = if count == 1 { "partition" } else { "partitions" };
        writeln!(f, "keyspace {:?}, {count} {plural}, the leader's region first:", self.keyspace)?;
        for (number, group) in self.partitions.iter().enumerate().take(SHOWN_MAX) {
            writeln!(f, "  {number}: {}", group.join(", "))?;
        }
        if count > SHOWN_MAX {
            writeln!(f, "  and {} more", count - SHOWN_MAX)?;
        }
        writeln!(f, "\nmedian latency without load, by region of the client, ms; then of all clients")?;
        let label = |row: &TransactionForecast| match &row.read_only {
            Some(read_only) => format!("{}, read_only = {read_only}", row.protocol),
            None => row.protocol.clone(),
        };
        let first = self.forecasts.iter().map(|row| label(row).len()).max().unwrap_or(0);
        let mut workload = "";
        for forecast in &self.forecasts {
            if workload != forecast.workload {
                workload = &forecast.workload;
                let first = first.max(workload.len());
                write!(f, "\n{workload:<first$}")?;
                for region in &forecast.regions {
                    write!(f, "  {}{}", gap(&region.region, width(region)), region.region)?;
                }
                writeln!(f, "  {:>7}  {:>7}  {:>7}  {:>7}", "p50", "p90", "p99", "mean")?;
            }
            let first = first.max(workload.len());
            write!(f, "{:<first$}", label(forecast))?;
            for region in &forecast.regions {
                write!(f, "  {:>width$.1}", region.p50_ms, width = width(region))?;
            }
            let Quantiles { p50_ms, p90_ms, p99_ms, mean_ms, .. } = forecast.all;
            writeln!(f, "  {p50_ms:>7.1}  {p90_ms:>7.1}  {p99_ms:>7.1}  {mean_ms:>7.1}")?;
        }
        if !self.exact {
            writeln!(
                f,
                "\nwith so many partitions what transactions touch was drawn {DRAWS} times, not enumerated"
            )?;
        }
        writeln!(
            f,
            "\neach client is at the node of its region; tapir is so fast with self_blocking = false, or where clients \
             pause between transactions"
        )?;
        // Each workload asks for something else: means of different ones do not compare.
        let lowest = self.forecasts.chunk_by(|a, b| a.workload == b.workload).filter_map(|rows| {
            let lowest = rows.iter().min_by(|a, b| a.all.mean_ms.total_cmp(&b.all.mean_ms))?;
            Some(format!("{} {}", lowest.workload, lowest.protocol))
        });
        let lowest: Vec<_> = lowest.collect();
        writeln!(f, "\nconfigured: {}; lowest mean: {}", self.configured, lowest.join(", "))
    }
}

fn width(region: &Quantiles) -> usize {
    cells(&region.region).max(7)
}

/// Partitions that a table lists.
const SHOWN_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partitions::tests::{PL_A, ec2};

    #[test]
    fn quantiles_are_those_of_the_specification() {
        // specs/carousel.md 7.3: p5, p25, p50, p75, p90, p95, p99 of five equal regions, ms.
        let table = [
            ("carousel-basic", "retwis", [115, 205, 290, 401, 470, 525, 525]),
            ("carousel-fast", "retwis", [102, 172, 235, 290, 322, 323, 323]),
            ("carousel-basic", "ycsbt", [276, 344, 401, 470, 525, 525, 525]),
            ("carousel-fast", "ycsbt", [166, 204, 260, 322, 323, 323, 323]),
            ("tapir", "ycsbt", [205, 268, 337, 378, 451, 451, 451]),
        ];
        let (matrix, groups) = (ec2(), PL_A());
        let all = |protocol, workload| {
            let mut tuned = Tuned::by_default(protocol);
            tuned.carousel.latest = Some(false);
            let found = latencies(&matrix, Partitions::new(&groups), workload, protocol, tuned).unwrap();
            Latencies::mixed(found.iter().map(|found| (found, 1.0)).collect::<Vec<_>>())
        };
        for (protocol, workload, expected) in table {
            let found = all(protocol, workload);
            let quantiles = [0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];
            let found = quantiles.map(|share| found.quantile(share).as_nanos() / 1_000_000);
            assert_eq!(found, expected, "{protocol} {workload}");
        }
        assert_eq!(all("tapir", "retwis").quantile(0.5), Span::from_millis(293));
    }

    #[test]
    fn what_is_drawn_is_near_what_is_enumerated() {
        let parts = |found: &[(Vec<usize>, Vec<usize>, f64)], touched: usize| -> f64 {
            found.iter().filter(|(_, all, _)| all.len() == touched).map(|(.., part)| part).sum()
        };
        // Four keys in eight partitions: all different with 7/8 6/8 5/8.
        let drawn = footprints(8, 4, 4);
        assert!((parts(&drawn, 4) - 7.0 * 6.0 * 5.0 / 512.0).abs() < 0.01);
        let exact = footprints(5, 4, 2);
        assert!((parts(&exact, 4) - 4.0 * 3.0 * 2.0 / 125.0).abs() < 1e-12);
        assert!((exact.iter().map(|(.., part)| part).sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(exact.iter().all(|(read, ..)| (1..=2).contains(&read.len())));
    }
}
