//! CURP: Park and Ousterhout, NSDI 2019. Settings and experiments: `specs/curp.md` 6.

use super::domino::distribution;
use super::lab::{Experiment, Lab, Mix, Topology};
use super::published::{self, Finding, Measure};
use super::{Drawing, Row, Wanted};
use crate::chart::Curves;
use crate::protocols;
use isochrone_core::{ClientId, CommandId, Identity, ProcessId, Random, Span};
use isochrone_replication::curp::witness::{Shape, Witness};
use isochrone_workload::Chooser;
use std::collections::{BTreeMap, VecDeque};

pub(super) fn run(wanted: Wanted<'_>, lab: &mut Lab) -> anyhow::Result<Vec<Row>> {
    let text = include_str!("../../../../reference/published/curp.csv");
    published::rows("reference/published/curp.csv", text, MEASURES, wanted, lab)
}

/// The form with one master, where this program has it; what is measured here is the same for both.
fn curp() -> &'static str {
    if protocols::ALL.iter().any(|entry| entry.name == "curp") { "curp" } else { "curp-consensus" }
}

/// Equal distances of 100 ms, three replicas, one client far from all of them, without load. Clients write keys of
/// their own.
fn even(protocol: &'static str, reads: u8) -> Experiment {
    Experiment {
        topology: Topology::Even(100),
        replicas: vec!["R1", "R2", "R3"],
        leader: Some("R1"),
        protocol,
        set: if protocol == "multipaxos" { vec![("lease", "false")] } else { Vec::new() },
        clients: vec![("R4", 1)],
        rate: Some(2.0),
        mix: Mix { reads, exponent: None, records: 1_000_000, size: 100, conflict: 0 },
        duration: Span::from_secs(24),
        warm: Span::from_secs(4),
        jitter: Span::ZERO,
        cpu: false,
        straggler: None,
        script: Vec::new(),
        history: false,
    }
}

/// Round trips that a client far from all replicas waits.
fn trips(lab: &mut Lab, protocol: &'static str, reads: u8) -> anyhow::Result<Finding> {
    Ok(lab.mean(&even(protocol, reads), "R4")?.map(|millis| millis / 100.0).into())
}

/// Two clients far from all replicas that want one key, and a master that sends its log so long after a write, if nobody
/// asks for it before.
fn contended(delay: &'static str) -> Experiment {
    Experiment {
        clients: vec![("R4", 1), ("R5", 1)],
        mix: Mix { conflict: 100, ..even("curp", 0).mix },
        set: vec![("f", "2"), ("hot_window", "0"), ("sync_delay", delay)],
        duration: Span::from_secs(64),
        ..even("curp", 0)
    }
}

/// Round trips of the slowest of these writes.
fn slowest(lab: &mut Lab, experiment: &Experiment) -> anyhow::Result<Finding> {
    Ok(lab.quantile(experiment, 1.0)?.map(|millis| millis / 100.0).into())
}

/// Two clients beside copies that read there.
fn beside_copies() -> Experiment {
    Experiment {
        clients: vec![("R2", 1), ("R3", 1)],
        set: vec![("f", "2"), ("nearby_reads", "true"), ("lease_length", "2s")],
        ..even("curp", 100)
    }
}

/// Commands that the master is asked, for each that is answered.
fn asked(lab: &mut Lab, experiment: &Experiment) -> anyhow::Result<Finding> {
    let outcome = lab.count(experiment)?;
    Ok(outcome
        .map(|outcome| {
            let requests = outcome.report.traffic.iter().find(|(name, _)| *name == "Requests");
            requests.map_or(0.0, |(_, load)| load.messages as f64) / outcome.report.operations as f64
        })
        .into())
}

/// Ten clients in a local cluster with a fixed load of YCSB-A, skewed.
fn skewed(protocol: &'static str) -> Experiment {
    Experiment {
        topology: Topology::Cluster,
        clients: vec![("C1", 4), ("C2", 3), ("C3", 3)],
        rate: Some(2_000.0),
        mix: Mix { reads: 50, exponent: Some(0.99), records: 1_000_000, size: 100, conflict: 0 },
        duration: Span::from_millis(1_200),
        warm: Span::from_millis(200),
        cpu: true,
        set: Vec::new(),
        ..even(protocol, 50)
    }
}

/// Percent by which the mean latency is below that of Multi-Paxos, which replicates before it answers.
fn gain_when_skewed(lab: &mut Lab) -> anyhow::Result<Finding> {
    let mean = |lab: &mut Lab, protocol| -> anyhow::Result<Option<f64>> {
        let Some(recorder) = lab.latencies(&skewed(protocol))? else { return Ok(None) };
        let figures = (0..14).filter_map(|region| recorder.region(region, None));
        let (sum, count) = figures.fold((0.0, 0.0), |(sum, count), figures| {
            let operations = figures.operations as f64;
            (sum + figures.mean_ms * operations, count + operations)
        });
        Ok((count > 0.0).then(|| sum / count))
    };
    Ok(match (mean(lab, curp())?, mean(lab, "multipaxos")?) {
        (Some(with), Some(without)) => Finding::Measured(100.0 * (1.0 - with / without)),
        _ => Finding::Absent,
    })
}

/// Percent of the accesses to a million objects whose key was among the last hundred accessed.
fn hot_share(exponent: f64) -> f64 {
    const ACCESSES: usize = 200_000;
    const RECENT: usize = 100;
    let records = 1_000_000;
    let mut chooser = Chooser::skewed(records, exponent);
    let mut random = Random::seeded(1);
    let (mut recent, mut counts, mut hot) = (VecDeque::new(), BTreeMap::<u64, u32>::new(), 0u32);
    for _ in 0..ACCESSES {
        let key = chooser.draw(records, &mut random);
        hot += u32::from(counts.contains_key(&key));
        *counts.entry(key).or_default() += 1;
        recent.push_back(key);
        if recent.len() > RECENT
            && let Some(old) = recent.pop_front()
            && let Some(count) = counts.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                counts.remove(&old);
            }
        }
    }
    100.0 * f64::from(hot) / ACCESSES as f64
}

/// How many random keys each of `runs` empty witnesses of 4,096 slots takes before a set is full, ascending.
fn overflows(ways: usize, runs: usize) -> Vec<f64> {
    let mut random = Random::seeded(ways as u64);
    let shape = Shape { ways, ..Shape::default() };
    let mut counts: Vec<f64> = (0..runs)
        .map(|_| {
            let mut witness = Witness::new(shape);
            let taken = (0..).take_while(|sequence| {
                witness.record(&[random.below(u64::MAX)], command(*sequence), (), 0).is_ok()
            });
            taken.count() as f64
        })
        .collect();
    counts.sort_by(f64::total_cmp);
    counts
}

fn command(sequence: u64) -> CommandId {
    let client: ClientId = Identity { process: ProcessId::from_u64(1), incarnation: 1 }.into();
    CommandId { client, sequence }
}

/// Records a second of one core, with a collection of the oldest fifty every fifty.
fn records_a_second() -> f64 {
    const RECORDS: u64 = 2_000_000;
    const EVERY: u64 = 50;
    let mut witness = Witness::new(Shape::default());
    let mut random = Random::seeded(7);
    let mut held = Vec::with_capacity(EVERY as usize);
    let begin = std::time::Instant::now();
    for sequence in 0..RECORDS {
        let hash = random.below(u64::MAX);
        // A set that happens to be full refuses, as it would in service.
        let _ = witness.record(&[hash], command(sequence), [0u8; 100], 100);
        held.push((hash, command(sequence)));
        if held.len() as u64 == EVERY {
            witness.gc(held.drain(..));
        }
    }
    RECORDS as f64 / begin.elapsed().as_secs_f64()
}

const fn not(id: &'static str, find: fn(&mut Lab) -> anyhow::Result<Finding>) -> Measure {
    Measure { id, find, note: "" }
}

fn setting(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("a setting of the runs or of the design, no result"))
}

fn sizes(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("a definition; the sizes of quorums are computed in one place and tested for f = 1 to 7"))
}

fn scripted(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("a case by itself: tests drive it message by message and hold it to these round trips"))
}

fn infiniband(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not(
        "microseconds of RAMCloud's polling servers on InfiniBand; `bench/peers` measures ours beside others",
    ))
}

fn by_hand(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("run for real beside Redis by bench/peers/curp.py; docs/benchmarks.md has its table"))
}

fn elsewhere(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("of a system that is not among these protocols"))
}

fn read_off(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("a place on a curve of the source's machines"))
}

fn analytical(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("a count of messages from the source's analysis; tests count ours"))
}

const MEASURES: &[Measure] = &[
    Measure {
        id: "curp-001",
        find: |lab| {
            let set = vec![("f", "2"), ("always_synced", "true")];
            let experiment = Experiment { set, ..even("curp", 0) };
            Ok(lab.mean(&experiment, "R4")?.map(|millis| millis / 100.0).into())
        },
        note: "curp with `always_synced`",
    },
    not("curp-002", |lab| trips(lab, "multipaxos", 0)),
    Measure {
        id: "curp-003",
        find: |lab| trips(lab, "fastpaxos", 0),
        note: "Fast Paxos, whose replicas answer the client when they have executed: they too hear of the quorum after 1.5",
    },
    not("curp-004", |lab| trips(lab, curp(), 0)),
    Measure {
        id: "curp-005",
        find: |lab| slowest(lab, &contended("0ms")),
        note: "the slowest of two clients' writes to one key; the log is sent at once",
    },
    Measure {
        id: "curp-006",
        find: |lab| slowest(lab, &contended("10s")),
        note: "the same; the log is sent when somebody asks",
    },
    not("curp-007", scripted),
    not("curp-008", scripted),
    not("curp-009", sizes),
    not("curp-010", sizes),
    not("curp-011", sizes),
    not("curp-012", sizes),
    not("curp-013", sizes),
    not("curp-014", sizes),
    not("curp-015", sizes),
    not("curp-016", analytical),
    not("curp-017", analytical),
    not("curp-018", infiniband),
    not("curp-019", setting),
    not("curp-020", setting),
    not("curp-021", infiniband),
    not("curp-022", infiniband),
    not("curp-023", infiniband),
    not("curp-024", infiniband),
    not("curp-025", elsewhere),
    not("curp-026", elsewhere),
    not("curp-027", infiniband),
    not("curp-028", setting),
    not("curp-029", setting),
    not("curp-03*", setting),
    not("curp-040", setting),
    not("curp-041", setting),
    not("curp-042", infiniband),
    not("curp-043", infiniband),
    not("curp-044", infiniband),
    not("curp-045", infiniband),
    not("curp-046", infiniband),
    not("curp-047", infiniband),
    not("curp-048", setting),
    not("curp-049", setting),
    not("curp-050", infiniband),
    not("curp-051", infiniband),
    not("curp-052", infiniband),
    not("curp-053", setting),
    not("curp-054", infiniband),
    Measure {
        id: "curp-055",
        find: |_| Ok(Finding::Measured(records_a_second())),
        note: "the store alone, by one core of this machine: no network, no disk",
    },
    not("curp-056", setting),
    not("curp-057", infiniband),
    not("curp-058", infiniband),
    not("curp-059", infiniband),
    not("curp-060", setting),
    not("curp-061", setting),
    not("curp-062", |_| Ok(Finding::Not("a test holds a full store to 9.5 MB"))),
    not("curp-063", analytical),
    not("curp-064", setting),
    not("curp-065", setting),
    not("curp-066", setting),
    not("curp-067", setting),
    not("curp-068", read_off),
    Measure {
        id: "curp-069",
        find: |_| Ok(Finding::Measured(hot_share(0.8))),
        note: "accesses to keys of the last hundred accesses, which the source rounds",
    },
    not("curp-070", read_off),
    not("curp-071", setting),
    not("curp-072", setting),
    not("curp-073", setting),
    not("curp-074", read_off),
    Measure {
        id: "curp-075",
        find: gain_when_skewed,
        note: "against Multi-Paxos with leases, 20,000 operations a second, in the simulator with the costs of the runtime; RAMCloud's \
               backups answered within 7 us",
    },
    not("curp-076", setting),
    not("curp-077", setting),
    not("curp-078", setting),
    Measure { id: "curp-079", find: |_| Ok(Finding::Measured(hot_share(0.95))), note: "" },
    not("curp-080", infiniband),
    not("curp-081", infiniband),
    not("curp-082", setting),
    not("curp-083", by_hand),
    not("curp-084", by_hand),
    not("curp-085", setting),
    not("curp-086", by_hand),
    not("curp-087", by_hand),
    not("curp-088", setting),
    not("curp-089", read_off),
    not("curp-090", infiniband),
    not("curp-091", analytical),
    not("curp-092", by_hand),
    not("curp-093", setting),
    not("curp-094", setting),
    not("curp-095", setting),
    not("curp-096", setting),
    not("curp-097", setting),
    not("curp-098", by_hand),
    not("curp-099", read_off),
    not("curp-100", |lab| trips(lab, curp(), 100)),
    not("curp-101", |lab| trips(lab, curp(), 0)),
    Measure {
        id: "curp-102",
        find: |lab| Ok(lab.mean(&beside_copies(), "R2")?.map(|millis| millis / 100.0).into()),
        note: "from a client beside a copy",
    },
    not("curp-103", |lab| trips(lab, curp(), 0)),
    Measure {
        id: "curp-104",
        find: |lab| asked(lab, &beside_copies()),
        note: "clients beside copies, which read there",
    },
    not("curp-105", analytical),
    not("curp-106", elsewhere),
    not("curp-107", elsewhere),
    not("curp-108", elsewhere),
    not("curp-109", elsewhere),
    not("curp-11*", |_| Ok(Finding::Not("analysis of another system: see curp-124 for EPaxos"))),
    not("curp-120", elsewhere),
    not("curp-121", elsewhere),
    not("curp-122", elsewhere),
    not("curp-123", elsewhere),
    not("curp-124", |lab| trips(lab, "epaxos", 0)),
    not("curp-125", elsewhere),
    not("curp-126", elsewhere),
    Measure {
        id: "curp-127",
        find: |_| {
            let counts = overflows(1, 4_000);
            Ok(Finding::Measured(counts.iter().sum::<f64>() / counts.len() as f64))
        },
        note: "",
    },
    not("curp-128", setting),
    not("curp-129", setting),
    not("curp-130", infiniband),
    not("curp-131", infiniband),
    not("curp-132", setting),
];

/// Figure 14 as the distributions behind its means, and what a witness saves over a wide area.
pub(super) fn draw(lab: &mut Lab) -> anyhow::Result<Vec<Drawing>> {
    const RUNS: usize = 2_000;
    let mut series = Vec::new();
    for ways in [1, 2, 4, 8] {
        let counts = overflows(ways, RUNS);
        let points = counts.iter().enumerate().map(|(at, count)| (*count, (at + 1) as f64 / RUNS as f64));
        series.push((format!("{ways} way{}", if ways == 1 { "" } else { "s" }), points.collect()));
    }
    let overflow = Curves {
        title: "Witnesses of 4,096 slots: share that have refused one of so many random keys".to_owned(),
        axis: "keys recorded".to_owned(),
        series,
    };
    let mut series = Vec::new();
    for (name, protocol) in [("CURP", curp()), ("Multi-Paxos", "multipaxos"), ("EPaxos", "epaxos")] {
        let experiment = Experiment {
            topology: Topology::Ec2,
            replicas: vec!["CA", "OR", "OH"],
            leader: Some("CA"),
            clients: Vec::new(),
            ..even(protocol, 0)
        };
        if let Some(outcome) = lab.run(&experiment)? {
            series.push((name.to_owned(), distribution(&outcome)));
        }
    }
    let title = "Write latency of five regions, replicas in CA, OR and OH, leader in CA".to_owned();
    let wide = Curves { title, axis: "latency, ms".to_owned(), series };
    Ok(vec![("fig14", overflow), ("wide", wide)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_figure_is_measured_or_has_its_reason() {
        let text = include_str!("../../../../reference/published/curp.csv");
        published::covers("curp.csv", text, MEASURES);
    }

    /// Random keys before the first full set, mean of many runs (`specs/curp.md` 6.6).
    #[test]
    fn more_ways_put_an_overflow_off() {
        for (ways, expected) in [(1, 80.0), (2, 272.0), (4, 689.0), (8, 1_303.0)] {
            let counts = overflows(ways, 300);
            let mean = counts.iter().sum::<f64>() / counts.len() as f64;
            assert!((mean / expected - 1.0).abs() < 0.12, "{ways} ways: {mean}");
        }
    }
}
