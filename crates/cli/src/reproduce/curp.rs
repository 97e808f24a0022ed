//! CURP: Park and Ousterhout, NSDI 2019. Settings and experiments: `specs/curp.md` 6.

mod beside;
mod machine;
mod rack;

use super::carousel::tapir_trips;
use super::domino::distribution;
use super::lab::{Experiment, Lab, Mix, Topology};
use super::published::{self, Finding, Measure};
use super::{Drawing, Published, Row, Wanted};
use crate::chart::Curves;
pub(super) use beside::Beside;
use beside::{NO_REDIS, System};
use isochrone_core::{KeyspaceId, Quorums, RegionId, Span, key_hash};
use isochrone_replication::curp::witness::{STALE_ROUNDS, Shape};
use machine::{hot_share, overflows};

pub(super) fn run(wanted: Wanted<'_>, lab: &mut Lab) -> anyhow::Result<Vec<Row>> {
    let text = include_str!("../../../../reference/published/curp.csv");
    let mut rows = published::rows("reference/published/curp.csv", text, MEASURES, wanted, lab)?;
    let ids = WAYS.map(|ways| (format!("overflow-{ways}"), ways)).into_iter();
    rows.extend(ids.filter(|(id, _)| wanted(id)).map(|(id, ways)| overflow(id, ways)));
    rows.extend(lab.beside.rows(wanted)?);
    Ok(rows)
}

/// Slots of a set, in the source's figure 14.
const WAYS: [usize; 4] = [1, 2, 4, 8];
/// How often a witness is filled to find out.
const RUNS: usize = 2_000;

/// How many random keys a witness takes before one of its sets is full: by arithmetic, and of runs of its store.
fn overflow(id: String, ways: usize) -> Row {
    let counts = overflows(ways, RUNS);
    let measured = counts.iter().sum::<f64>() / RUNS as f64;
    let expected = machine::expected_overflow(Shape::default().slots, ways);
    Row {
        id,
        setting: format!("random keys, {} slots", Shape::default().slots),
        system: format!("witness, {ways}-way"),
        metric: "expected recordings before a set is full".to_owned(),
        published: Published::Number(expected),
        measured: Some(measured),
        unit: "recordings".to_owned(),
        ratio: Some(measured / expected),
        note: format!(
            "published: by arithmetic; a tenth of {RUNS} runs overflow within {:.0}, half within {:.0}",
            counts[RUNS / 10],
            counts[RUNS / 2]
        ),
        missed: (measured / expected - 1.0).abs() > 0.05,
    }
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

/// Round trips that a client beside a replica waits.
fn beside(lab: &mut Lab, protocol: &'static str, reads: u8, published: f64) -> anyhow::Result<Finding> {
    let near = Experiment { clients: vec![("R2", 1)], ..even(protocol, reads) };
    trips_of(lab, &near, 0.5, published, "from a client beside a replica")
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

/// Round trips that this share of the requests did not exceed, if they are what is `published`.
fn trips_of(
    lab: &mut Lab,
    experiment: &Experiment,
    share: f64,
    published: f64,
    note: &str,
) -> anyhow::Result<Finding> {
    let millis = lab.quantile(experiment, share)?;
    Ok(millis.map_or(Finding::Absent, |millis| Finding::within(millis / 100.0, published, note)))
}

/// The same two clients, so busy that the master has not replicated what it has when the next write comes.
fn crowded(lab: &mut Lab) -> anyhow::Result<Finding> {
    let busy = Experiment { rate: Some(20.0), ..contended("0ms") };
    let asked = rack::calls(lab, &busy, &["Requests"])?;
    let note = format!(
        "the median of two clients' writes to one key, 20 a second each; {asked:.2} requests a write"
    );
    trips_of(lab, &busy, 0.5, 2.0, &note)
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
fn asked(lab: &mut Lab) -> anyhow::Result<Finding> {
    let asked = rack::calls(lab, &beside_copies(), &["Requests"])?;
    Ok(Finding::holds(asked < 1.0, asked, "clients beside copies, which read there"))
}

/// Calls of an EPaxos command leader: the command, and what it asks of a quorum of three; of its clients' requests this
/// many are reads.
fn calls_of_epaxos(lab: &mut Lab, reads: u8) -> anyhow::Result<Finding> {
    let set = vec![("batch_commands", "1"), ("thrifty", "true")];
    let experiment = Experiment { set, ..even("epaxos", reads) };
    let calls = rack::calls(lab, &experiment, &["Requests", "PreAccept", "Accept"])?;
    Ok(Finding::within(calls, 2.0, "three replicas, asking no more of them than are needed"))
}

/// How many servers or witnesses the figure of this id is, where so many failures are to be masked.
fn size(figure: &str, f: usize) -> Option<usize> {
    // Of the primary-backup form: as many regions as there may be, a replica in each.
    let copies = || {
        let replicas: Vec<RegionId> = (0..f as u16 + 2).map(RegionId).collect();
        isochrone_plan::curp::copies(replicas[0], &replicas, f).len()
    };
    let n = (1..).find(|n| Quorums::faults(*n) == f)?;
    Some(match figure {
        "curp-009" => copies() + 1,
        "curp-010" => copies(),
        "curp-011" => n,
        "curp-012" => Quorums::supermajority(n),
        "curp-013" => Quorums::recovery(n, Quorums::majority(n)),
        // Those that did not accept what conflicts with it.
        "curp-014" => n - Quorums::supermajority(n),
        "curp-015" => Quorums::majority(n),
        _ => return None,
    })
}

fn sizes(lab: &mut Lab) -> anyhow::Result<Finding> {
    let size = size(lab.figure(), 3);
    Ok(size.map_or(Finding::Absent, |size| {
        Finding::Told(size as f64, "at f = 3; a test holds f = 1 to 7".to_owned())
    }))
}

/// What this program has where its user does not say otherwise.
fn by_default(value: usize, published: f64) -> anyhow::Result<Finding> {
    Ok(Finding::within(value as f64, published, "what it is here by default"))
}

/// How long the disk of this machine takes, in units of so many microseconds.
fn sync(unit: f64) -> anyhow::Result<Finding> {
    let note = "4 KiB, on this machine, where it has its temporary files";
    Ok(Finding::Told(machine::sync_micros()? / unit, note.to_owned()))
}

const fn find(id: &'static str, find: fn(&mut Lab) -> anyhow::Result<Finding>) -> Measure {
    Measure { id, find, note: "" }
}

fn setting(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("a setting of the runs or of the design, no result"))
}

fn scripted(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not(
        "no round trip is added here: what a witness holds is at the new master's own node, and what was replayed travels \
         with what a recovery sends anyhow; a test holds it to its closed form, and to two more where that witness is gone",
    ))
}

fn polling(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not(
        "of RAMCloud's threads, which poll for the answers of backups; processes of this program are called with answers",
    ))
}

fn tail(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("of the tail that RAMCloud's machines have by themselves; simulated ones have none"))
}

fn redis(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not(
        "a place on a curve of Redis on the source's machines; rows redis-* have medians and throughput",
    ))
}

/// What is measured of real servers, where there is a Redis among them.
fn beside_redis(
    lab: &mut Lab,
    note: &str,
    measure: impl FnOnce(&mut Beside) -> anyhow::Result<f64>,
) -> anyhow::Result<Finding> {
    if !Beside::there_is_redis() {
        return Ok(Finding::Not(NO_REDIS));
    }
    Ok(Finding::Told(measure(&mut lab.beside)?, format!("{note}; real servers on this machine")))
}

/// Microseconds that the median SET takes longer than with Redis that keeps nothing; and percent.
fn longer(lab: &mut Lab, share: bool) -> anyhow::Result<Finding> {
    beside_redis(lab, "1 witness, on disk, beside Redis that keeps nothing", |beside| {
        let [plain, one] = [System::Plain, System::Witnesses(1)].map(|system| beside.median(system, "SET"));
        let (plain, one) = (plain?, one?);
        Ok(if share { 100.0 * (one / plain - 1.0) } else { one - plain })
    })
}

/// How the source's order is made in the network.
fn sequencer(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not(
        "of a protocol whose commands a network device puts in order; none of these protocols has one",
    ))
}

fn unavailable(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("the source has none: its network device orders the commands of one site"))
}

fn generalized(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not(
        "Generalized Paxos is not among these protocols; Fast Paxos, of which the source says the same, is curp-003",
    ))
}

fn generalized_load(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not("of the leader of Generalized Paxos, which is not among these protocols"))
}

fn layered(_: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Not(
        "a sum of two phases; two-phase commit over Paxos reads first here and replicates its decision as well: CAR-030 of \
         `reproduce carousel` has the whole",
    ))
}

const MEASURES: &[Measure] = &[
    find("curp-001", |lab| {
        let synced = Experiment { set: vec![("f", "2"), ("always_synced", "true")], ..even("curp", 0) };
        trips_of(lab, &synced, 1.0, 2.0, "curp with `always_synced`")
    }),
    find("curp-002", |lab| trips(lab, "multipaxos", 0)),
    find("curp-003", |lab| {
        let note = "Fast Paxos, whose replicas answer the client when they have executed: they too hear of the quorum after 1.5";
        trips_of(lab, &even("fastpaxos", 0), 0.5, 1.5, note)
    }),
    find("curp-004", |lab| trips(lab, "curp", 0)),
    find("curp-005", |lab| {
        let note = "the slowest of two clients' writes to one key; the log is sent at once";
        trips_of(lab, &contended("0ms"), 1.0, 2.0, note)
    }),
    find("curp-006", |lab| {
        trips_of(lab, &contended("10s"), 1.0, 3.0, "the same; the log is sent when somebody asks")
    }),
    find("curp-007", crowded),
    find("curp-008", scripted),
    find("curp-009", sizes),
    find("curp-010", sizes),
    find("curp-011", sizes),
    find("curp-012", sizes),
    find("curp-013", sizes),
    find("curp-014", sizes),
    find("curp-015", sizes),
    find("curp-016", rack::calls_synchronous),
    find("curp-017", rack::calls_in_tens),
    find("curp-018", polling),
    find("curp-019", |_| by_default(STALE_ROUNDS as usize, 3.0)),
    find("curp-020", |_| by_default(8 * size_of_val(&key_hash(KeyspaceId(1), b"key")), 64.0)),
    find("curp-021", rack::times_lower),
    find("curp-022", rack::times_more),
    find("curp-023", rack::times_more),
    find("curp-024", rack::over_alone),
    find("curp-025", sequencer),
    find("curp-026", sequencer),
    find("curp-027", rack::over_alone),
    find("curp-028", setting),
    find("curp-029", setting),
    find("curp-03*", setting),
    find("curp-040", setting),
    find("curp-041", setting),
    find("curp-042", rack::read),
    find("curp-043", rack::write_backed),
    find("curp-044", rack::write_backed),
    find("curp-045", rack::write_curp),
    find("curp-046", rack::write_alone),
    find("curp-047", rack::each_copy_adds),
    find("curp-048", setting),
    find("curp-049", setting),
    find("curp-050", rack::times_more),
    find("curp-051", rack::each_copy_costs),
    find("curp-052", rack::collections_cost),
    find("curp-053", setting),
    find("curp-054", rack::reads_differ),
    find("curp-055", rack::records),
    find("curp-056", setting),
    find("curp-057", rack::writes_a_second),
    find("curp-058", setting),
    find("curp-059", rack::witness_adds),
    find("curp-060", |_| by_default(Shape::default().slots, 4_096.0)),
    find("curp-061", |_| by_default(Shape::default().slot_bytes / 1_024, 2.0)),
    find("curp-062", |_| {
        let note = "slots and requests as large as they may be; a test holds a full store to 9.5 MB";
        Ok(Finding::within(machine::megabytes_of_a_witness(), 9.0, note))
    }),
    find("curp-063", rack::more_bytes),
    find("curp-064", setting),
    find("curp-065", setting),
    find("curp-066", setting),
    find("curp-067", setting),
    find("curp-068", rack::gain_degrades),
    find("curp-069", |_| {
        let note = "accesses to keys of the last hundred accesses, which the source rounds";
        Ok(Finding::within(hot_share(0.8), 3.0, note))
    }),
    find("curp-070", rack::gain_disappears),
    find("curp-071", setting),
    find("curp-072", setting),
    find("curp-073", setting),
    find("curp-074", rack::latency_rises),
    find("curp-075", rack::mean_lower),
    find("curp-076", setting),
    find("curp-077", setting),
    find("curp-078", setting),
    find("curp-079", |_| Ok(Finding::Measured(hot_share(0.95)))),
    find("curp-080", rack::writes_lower),
    find("curp-081", rack::writes_as_alone),
    find("curp-082", setting),
    find("curp-083", |_| sync(1e3)),
    find("curp-084", |lab| {
        beside_redis(lab, "median SET of Redis, appendfsync always / nothing kept", |beside| {
            Ok(beside.median(System::Always, "SET")? / beside.median(System::Plain, "SET")?)
        })
    }),
    find("curp-085", |_| sync(1.0)),
    find("curp-086", |lab| longer(lab, false)),
    find("curp-087", |lab| longer(lab, true)),
    find("curp-088", |_| {
        let note = "on this machine, over a connection to itself, where the kernel does the receiver's part within `send`";
        Ok(Finding::Told(machine::syscall_micros()?, note.to_owned()))
    }),
    find("curp-089", redis),
    find("curp-090", tail),
    find("curp-091", rack::calls_of_a_client),
    find("curp-092", |lab| {
        beside_redis(lab, "50 clients, 1 witness, on disk, beside Redis that keeps nothing", |beside| {
            Ok(100.0 * (1.0 - beside.throughput(System::Witnesses(1))? / beside.throughput(System::Plain)?))
        })
    }),
    find("curp-093", setting),
    find("curp-094", setting),
    find("curp-095", setting),
    find("curp-096", setting),
    find("curp-097", setting),
    find("curp-098", |lab| {
        beside_redis(
            lab,
            "2 witnesses, on disk, beside Redis that keeps nothing; mean of the three commands",
            |beside| {
                let mut longer = 0.0;
                for command in beside::COMMANDS {
                    longer += beside.median(System::Witnesses(2), command)?
                        - beside.median(System::Plain, command)?;
                }
                Ok(longer / beside::COMMANDS.len() as f64)
            },
        )
    }),
    find("curp-099", redis),
    find("curp-100", |lab| trips(lab, "curp", 100)),
    find("curp-101", |lab| trips(lab, "curp", 0)),
    find("curp-102", |lab| {
        let measured = lab.mean(&beside_copies(), "R2")?.map(|millis| millis / 100.0);
        let note = "from a client beside a copy";
        Ok(measured.map_or(Finding::Absent, |trips| Finding::holds(trips < 0.05, trips, note)))
    }),
    find("curp-103", |lab| trips(lab, "curp", 0)),
    find("curp-104", asked),
    find("curp-105", rack::calls_under_load),
    find("curp-106", generalized),
    find("curp-107", generalized),
    find("curp-108", generalized),
    find("curp-109", generalized),
    find("curp-110", generalized_load),
    find("curp-111", generalized_load),
    find("curp-112", |lab| trips(lab, "epaxos", 100)),
    find("curp-113", |lab| trips(lab, "epaxos", 0)),
    find("curp-114", |lab| beside(lab, "epaxos", 100, 1.0)),
    find("curp-115", |lab| beside(lab, "epaxos", 0, 1.0)),
    find("curp-116", |lab| calls_of_epaxos(lab, 100)),
    find("curp-117", |lab| calls_of_epaxos(lab, 0)),
    find("curp-118", sequencer),
    find("curp-119", sequencer),
    find("curp-120", unavailable),
    find("curp-121", unavailable),
    find("curp-122", sequencer),
    find("curp-123", sequencer),
    find("curp-124", |lab| trips(lab, "epaxos", 0)),
    find("curp-125", tapir_trips),
    find("curp-126", layered),
    find("curp-127", |_| {
        let counts = overflows(1, 4_000);
        Ok(Finding::Measured(counts.iter().sum::<f64>() / counts.len() as f64))
    }),
    find("curp-128", setting),
    find("curp-129", |_| by_default(Shape::default().ways, 4.0)),
    find("curp-130", rack::times_more_by_batches),
    find("curp-131", rack::natural_batch),
    find("curp-132", setting),
];

/// Figure 6; Figures 11 and 13 where there is a Redis; Figure 14 as the distributions behind its means; and what a witness saves
/// over a wide area.
pub(super) fn draw(wanted: Wanted<'_>, lab: &mut Lab) -> anyhow::Result<Vec<Drawing>> {
    let mut drawings = Vec::new();
    if wanted("fig6") {
        drawings.push(("fig6", rack::drawn(lab)?));
    }
    if wanted("fig14") {
        drawings.push(("fig14", overflow_curves()));
    }
    if wanted("wide") {
        drawings.push(("wide", wide(lab)?));
    }
    if Beside::there_is_redis() {
        drawings.extend(lab.beside.drawings(wanted)?);
    }
    Ok(drawings)
}

fn overflow_curves() -> Curves {
    let mut series = Vec::new();
    for ways in WAYS {
        let counts = overflows(ways, RUNS);
        let points = counts.iter().enumerate().map(|(at, count)| (*count, (at + 1) as f64 / RUNS as f64));
        series.push((format!("{ways} way{}", if ways == 1 { "" } else { "s" }), points.collect()));
    }
    Curves {
        title: "Witnesses of 4,096 slots: share that have refused one of so many random keys".to_owned(),
        axis: "keys recorded".to_owned(),
        series,
    }
}

fn wide(lab: &mut Lab) -> anyhow::Result<Curves> {
    let mut series = Vec::new();
    for (name, protocol) in [("CURP", "curp"), ("Multi-Paxos", "multipaxos"), ("EPaxos", "epaxos")] {
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
    Ok(Curves { title, axis: "latency, ms".to_owned(), series })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_figure_is_measured_or_has_its_reason() {
        let text = include_str!("../../../../reference/published/curp.csv");
        published::covers("curp.csv", text, MEASURES);
    }

    /// As the source states them, by the number of failures.
    #[test]
    fn there_are_as_many_as_the_source_says() {
        for f in 1..=7_usize {
            let half = f.div_ceil(2);
            let stated = [f + 1, f, 2 * f + 1, f + half + 1, half + 1, f / 2, f + 1];
            for (stated, number) in stated.into_iter().zip(9..) {
                assert_eq!(
                    size(&format!("curp-{number:03}"), f),
                    Some(stated),
                    "curp-{number:03} at f = {f}"
                );
            }
        }
    }
}
