//! SDPaxos: Zhao et al., SoCC 2018. Settings and experiments: `specs/sdpaxos.md` 6.

use super::domino::distribution;
use super::lab::{APART, Experiment, Lab, Mix, Topology};
use super::published::{self, Finding, Measure};
use super::{Drawing, Row, Wanted};
use crate::chart::Curves;
use isochrone_core::{RegionId, Span};
use isochrone_sim::{Action, FaultKind, Planned};

const REGIONS: [&str; 5] = ["CA", "OR", "OH", "IRE", "SEL"];
const CLUSTER: [&str; 5] = ["R1", "R2", "R3", "R4", "R5"];

pub(super) fn run(wanted: Wanted<'_>, lab: &mut Lab) -> anyhow::Result<Vec<Row>> {
    let text = include_str!("../../../../reference/published/sdpaxos.csv");
    published::rows("reference/published/sdpaxos.csv", text, MEASURES, wanted, lab)
}

/// One command a message, as the source has it, and answers at commit.
fn settings(protocol: &str) -> Vec<(&'static str, &'static str)> {
    let single = ("batch_commands", "1");
    match protocol {
        "multipaxos" => vec![single, ("lease", "false")],
        "epaxos" => vec![single, ("reply", "commit"), ("thrifty", "true")],
        "sdpaxos" => {
            let batch = [("batch", "false"), ("order_batch", "1"), ("straggler", "false")];
            batch.into_iter().chain([single, ("reply", "commit")]).collect()
        }
        _ => vec![single, ("reply", "commit")],
    }
}

/// Wide area: clients beside every replica, an open loop each.
fn wide(protocol: &'static str, replicas: usize) -> Experiment {
    Experiment {
        topology: Topology::Ec2,
        replicas: REGIONS[..replicas].to_vec(),
        leader: Some("CA"),
        protocol,
        set: settings(protocol),
        clients: REGIONS[..replicas].iter().map(|region| (*region, 1)).collect(),
        // The source states no rate.
        rate: Some(100.0),
        mix: APART,
        duration: Span::from_secs(24),
        warm: Span::from_secs(4),
        jitter: Span::ZERO,
        cpu: true,
        straggler: None,
        script: Vec::new(),
        history: false,
    }
}

/// Equal distances of 100 ms, without load.
fn even(protocol: &'static str, replicas: usize) -> Experiment {
    let regions = ["R1", "R2", "R3", "R4", "R5", "R6", "R7"];
    Experiment {
        topology: Topology::Even(100),
        replicas: regions[..replicas].to_vec(),
        leader: Some("R1"),
        clients: vec![("R2", 1)],
        rate: Some(2.0),
        cpu: false,
        ..wide(protocol, 3)
    }
}

/// How many clients there are at each replica of a local cluster: so few that each round trip shows, and so many that
/// processors have no rest, a slow one least of all.
const LOADS: [u32; 2] = [48, 192];

/// A local cluster under load: closed loops, each client at its replica, for Multi-Paxos through it to the leader.
fn local(protocol: &'static str, replicas: usize, size: usize) -> Experiment {
    let clients = ["C1", "C2", "C3", "C4", "C5"];
    Experiment {
        topology: Topology::Cluster,
        replicas: CLUSTER[..replicas].to_vec(),
        leader: Some("R1"),
        clients: clients[..replicas].iter().map(|region| (*region, LOADS[0])).collect(),
        rate: None,
        mix: Mix { size, ..APART },
        duration: Span::from_millis(240),
        warm: Span::from_millis(80),
        ..wide(protocol, 3)
    }
}

/// Under contention, and without it to compare.
fn contended(protocol: &'static str, replicas: usize, percent: u8) -> Experiment {
    conflicting(local(protocol, replicas, 16), percent)
}

fn conflicting(experiment: Experiment, percent: u8) -> Experiment {
    Experiment { mix: Mix { conflict: percent, ..experiment.mix }, ..experiment }
}

fn reading(experiment: Experiment, percent: u8) -> Experiment {
    Experiment { mix: Mix { reads: percent, ..experiment.mix }, ..experiment }
}

/// With a third of its processor left to this replica.
fn slowed(experiment: Experiment, replica: &'static str) -> Experiment {
    Experiment { straggler: Some((replica, 300)), ..experiment }
}

/// The highest throughput that any of [`LOADS`] gets from a local cluster: what the source measures.
fn peak(lab: &mut Lab, experiment: &Experiment) -> anyhow::Result<Option<f64>> {
    let mut most: Option<f64> = None;
    for count in LOADS {
        let clients = experiment.clients.iter().map(|(region, _)| (*region, count)).collect();
        let throughput = lab.throughput(&Experiment { clients, ..experiment.clone() })?;
        most = throughput.map(|throughput| most.unwrap_or(0.0).max(throughput));
    }
    Ok(most)
}

/// How much of the throughput a slow replica costs, percent.
fn loss(lab: &mut Lab, experiment: Experiment, replica: &'static str) -> anyhow::Result<Finding> {
    let (well, ill) = (peak(lab, &experiment)?, peak(lab, &slowed(experiment, replica))?);
    Ok(match (well, ill) {
        (Some(well), Some(ill)) => Finding::Measured(100.0 * (1.0 - ill / well)),
        _ => Finding::Absent,
    })
}

/// The largest of these ratios of highest throughput.
fn largest(lab: &mut Lab, pairs: &[(Experiment, Experiment)]) -> anyhow::Result<Finding> {
    let mut most: Option<f64> = None;
    for (above, below) in pairs {
        match (peak(lab, above)?, peak(lab, below)?) {
            (Some(above), Some(below)) => most = Some(most.unwrap_or(0.0).max(above / below)),
            _ => return Ok(Finding::Absent),
        }
    }
    Ok(most.into())
}

/// Throughput with a slow replica that is not the sequencer, against another system with the same.
fn ahead_with_straggler(lab: &mut Lab, other: &'static str) -> anyhow::Result<Finding> {
    let pair = |size| (slowed(local("sdpaxos", 3, size), "R2"), slowed(local(other, 3, size), "R2"));
    largest(lab, &[pair(16), pair(1_000)])
}

/// Write throughput against Multi-Paxos, three and five replicas, both sizes.
fn ahead_of_multipaxos(lab: &mut Lab) -> anyhow::Result<Finding> {
    let pair = |(replicas, size)| (local("sdpaxos", replicas, size), local("multipaxos", replicas, size));
    largest(lab, &[(3, 16), (3, 1_000), (5, 16), (5, 1_000)].map(pair))
}

fn ahead_of_epaxos(lab: &mut Lab) -> anyhow::Result<Finding> {
    let pair = |replicas| (contended("sdpaxos", replicas, 5), contended("epaxos", replicas, 5));
    largest(lab, &[3, 5].map(pair))
}

fn reads_over_writes(lab: &mut Lab, size: usize) -> anyhow::Result<Finding> {
    let pair = |replicas| (reading(local("sdpaxos", replicas, size), 100), local("sdpaxos", replicas, size));
    largest(lab, &[3, 5].map(pair))
}

/// The largest loss of throughput, percent, at any of these shares of conflicts and numbers of replicas, 16 bytes.
fn conflict_loss(
    lab: &mut Lab,
    protocol: &'static str,
    sizes: &[usize],
    percents: &[u8],
) -> anyhow::Result<Finding> {
    let mut most = 0.0_f64;
    for &replicas in sizes {
        let Some(free) = peak(lab, &contended(protocol, replicas, 0))? else {
            return Ok(Finding::Absent);
        };
        for percent in percents {
            let Some(met) = peak(lab, &contended(protocol, replicas, *percent))? else {
                return Ok(Finding::Absent);
            };
            most = most.max(100.0 * (1.0 - met / free));
        }
    }
    Ok(Finding::Measured(most))
}

/// How much a figure of EPaxos grows with conflicts at five replicas, the largest over the regions, percent.
fn epaxos_growth(
    lab: &mut Lab,
    percent: u8,
    figure: fn(&isochrone_workload::Recorder, usize) -> Option<f64>,
) -> anyhow::Result<Finding> {
    let (Some(free), Some(met)) =
        (lab.latencies(&wide("epaxos", 5))?, lab.latencies(&conflicting(wide("epaxos", 5), percent))?)
    else {
        return Ok(Finding::Absent);
    };
    let growth = (0..5).filter_map(|at| Some(100.0 * (figure(&met, at)? / figure(&free, at)? - 1.0)));
    Ok(growth.reduce(f64::max).into())
}

fn mean(recorder: &isochrone_workload::Recorder, region: usize) -> Option<f64> {
    recorder.region(region, None).map(|figures| figures.mean_ms)
}

fn p95(recorder: &isochrone_workload::Recorder, region: usize) -> Option<f64> {
    recorder.quantile(0.95, Some(region))
}

/// How much lower SDPaxos' mean latency is than another system's in a region, percent: the lowest and highest share over
/// these cases, each a number of replicas and a region.
fn reductions(
    lab: &mut Lab,
    cases: &[(usize, usize)],
    make: fn(Experiment) -> Experiment,
) -> anyhow::Result<Option<(f64, f64)>> {
    let mut range: Option<(f64, f64)> = None;
    for (replicas, region) in cases {
        let Some(own) = lab.latencies(&make(wide("sdpaxos", *replicas)))? else { return Ok(None) };
        for other in ["multipaxos", "mencius", "epaxos"] {
            let Some(theirs) = lab.latencies(&make(wide(other, *replicas)))? else { return Ok(None) };
            if let (Some(own), Some(theirs)) = (mean(&own, *region), mean(&theirs, *region)) {
                let less = 100.0 * (1.0 - own / theirs);
                let (low, high) = range.unwrap_or((less, less));
                range = Some((low.min(less), high.max(less)));
            }
        }
    }
    Ok(range)
}

const EVERYWHERE: [(usize, usize); 8] = [(3, 0), (3, 1), (3, 2), (5, 0), (5, 1), (5, 2), (5, 3), (5, 4)];
/// CA at three replicas, OR and OH at five.
const READS: [(usize, usize); 3] = [(3, 0), (5, 1), (5, 2)];

/// One read to nine writes' worth of Zipf's law and more: YCSB, 500,000 keys.
fn ycsb(experiment: Experiment) -> Experiment {
    Experiment {
        mix: Mix { reads: 90, exponent: Some(0.99), records: 500_000, size: 16, conflict: 0 },
        ..experiment
    }
}

fn only_reads(experiment: Experiment) -> Experiment {
    let experiment = ycsb(experiment);
    Experiment { mix: Mix { reads: 100, ..experiment.mix }, ..experiment }
}

/// The longest time without an answer that clients of a region see when the sequencer dies, milliseconds.
fn stall(lab: &mut Lab, region: usize) -> anyhow::Result<Finding> {
    let crash = Planned {
        at: Span::from_millis(10_250),
        length: Span::ZERO,
        kind: FaultKind::Crash,
        action: Action::Crash { node: 0, effects: 0, down: Span::from_secs(60) },
    };
    // The source beats every 500 ms and kills about half way: its survivors notice after some 250 ms.
    let timely = [("heartbeat", "50ms"), ("election", "250ms"), ("lease_length", "250ms")];
    let experiment = Experiment {
        set: settings("sdpaxos").into_iter().chain(timely).collect(),
        script: vec![crash],
        history: true,
        cpu: false,
        duration: Span::from_secs(20),
        warm: Span::from_secs(2),
        clients: vec![("OR", 1), ("OH", 1)],
        ..wide("sdpaxos", 3)
    };
    let Some(outcome) = lab.run(&experiment)? else { return Ok(Finding::Absent) };
    // Sessions are numbered in the order of their nodes: OR is 0, OH is 1.
    let session = region as u64 - 1;
    let mine = outcome.history.operations.iter().filter(|operation| operation.client == session);
    let mut answers: Vec<u64> = mine.filter_map(|operation| operation.returned).collect();
    answers.sort_unstable();
    let longest = answers.windows(2).map(|pair| pair[1] - pair[0]).max();
    Ok(longest.map(|nanos| nanos as f64 / 1e6).into())
}

/// How long after the sequencer becomes slow clients elsewhere are answered as before, seconds: it is noticed, and another
/// has taken its place.
fn replaced(lab: &mut Lab, straggler: &'static str) -> anyhow::Result<Finding> {
    let onset = Span::from_secs(2);
    let slow = Planned {
        at: onset,
        length: Span::from_secs(10),
        kind: FaultKind::Gray,
        // It takes in 500 messages a second, and the other replicas ask it for 800 slots.
        action: Action::Gray { node: 0, cost: Span::from_millis(2) },
    };
    let ordering = [("batch", "false"), ("order_batch", "1"), ("straggler", straggler)];
    // Late signs of life alone replace nobody.
    let patient = [("heartbeat", "50ms"), ("election", "10s")];
    let experiment = Experiment {
        set: [("batch_commands", "1")].into_iter().chain(ordering).chain(patient).collect(),
        clients: vec![("C2", 1), ("C3", 1)],
        rate: Some(400.0),
        cpu: false,
        script: vec![slow],
        history: true,
        duration: Span::from_secs(8),
        warm: Span::from_secs(1),
        ..local("sdpaxos", 3, 16)
    };
    let Some(outcome) = lab.run(&experiment)? else { return Ok(Finding::Absent) };
    let (onset, until) = (onset.as_nanos(), experiment.duration.as_nanos());
    let asked = outcome.history.operations.iter().filter(|operation| operation.invoked >= onset);
    // A millisecond is five times what they wait before.
    let late =
        asked.filter(|operation| operation.returned.is_none_or(|at| at - operation.invoked > 1_000_000));
    Ok(match late.map(|operation| operation.invoked).max() {
        None => Finding::Nothing("nobody waited for the slow sequencer".to_owned()),
        Some(last) if last + 1_000_000_000 < until => Finding::Measured((last - onset) as f64 / 1e9),
        Some(_) => {
            Finding::Nothing("clients waited to the end: nothing has replaced the sequencer".to_owned())
        }
    })
}

/// Messages of one read, without those between a replica and its own client.
fn messages_a_read(lab: &mut Lab, protocol: &'static str) -> anyhow::Result<Finding> {
    let at = |rate| Experiment { rate: Some(rate), ..reading(even(protocol, 3), 100) };
    let (Some(few), Some(many)) = (lab.run(&at(2.0))?, lab.run(&at(40.0))?) else {
        return Ok(Finding::Absent);
    };
    let operations = many.report.operations as f64 - few.report.operations as f64;
    let messages = many.report.messages as f64 - few.report.messages as f64;
    Ok(Finding::Measured((messages / operations - 2.0).max(0.0)))
}

/// How long an order instance takes, in round trips to the sequencer, where the command instance is over before: from when
/// the sequencer hears of the command, half a round trip after the client.
fn order_instance(lab: &mut Lab, replicas: usize) -> anyhow::Result<Option<f64>> {
    // The replica asked has a majority nearer than the sequencer.
    let sequencer = REGIONS[replicas - 1];
    let experiment = Experiment {
        leader: Some(sequencer),
        clients: vec![("OR", 1)],
        rate: Some(2.0),
        cpu: false,
        ..wide("sdpaxos", replicas)
    };
    let (from, to) = (experiment.region("OR")?, experiment.region(sequencer)?);
    let way = experiment.matrix()?.one_way(RegionId(from as u16), RegionId(to as u16)).as_millis_f64();
    Ok(lab.mean(&experiment, "OR")?.map(|whole| (whole - way) / (2.0 * way)))
}

fn slower_order_instance(lab: &mut Lab) -> anyhow::Result<Finding> {
    Ok(match (order_instance(lab, 3)?, order_instance(lab, 5)?) {
        (Some(three), Some(five)) => Finding::Measured(three.max(five)),
        _ => Finding::Absent,
    })
}

fn round_trips(lab: &mut Lab, replicas: usize) -> anyhow::Result<Finding> {
    Ok(lab.mean(&even("sdpaxos", replicas), "R2")?.map(|millis| millis / 100.0).into())
}

const SETTING: Finding = Finding::Not("a setting of the runs, no result");

const MEASURES: &[Measure] = &[
    Measure {
        id: "SDP-001",
        find: |lab| round_trips(lab, 7),
        note: "seven replicas, which run the basic protocol: both instances need a majority",
    },
    Measure { id: "SDP-002", find: |lab| round_trips(lab, 3), note: "" },
    Measure { id: "SDP-003", find: |lab| round_trips(lab, 5), note: "" },
    Measure { id: "SDP-004", find: |lab| round_trips(lab, 7), note: "" },
    Measure { id: "SDP-005", find: slower_order_instance, note: "" },
    Measure { id: "SDP-006", find: |lab| messages_a_read(lab, "sdpaxos"), note: "" },
    Measure {
        id: "SDP-007",
        find: |lab| messages_a_read(lab, "epaxos"),
        note: "EPaxos, thrifty, three replicas: the formula gives 4",
    },
    Measure {
        id: "SDP-008",
        find: |lab| {
            Ok(lab.mean(&reading(even("sdpaxos", 3), 100), "R2")?.map(|millis| millis / 100.0).into())
        },
        note: "",
    },
    Measure {
        id: "SDP-009",
        find: |_| Ok(Finding::Not("of CORFU, which is not among these protocols")),
        note: "",
    },
    Measure { id: "SDP-010", find: |_| Ok(SETTING), note: "" },
    Measure { id: "SDP-011", find: |_| Ok(SETTING), note: "" },
    Measure { id: "SDP-012", find: |_| Ok(SETTING), note: "" },
    Measure { id: "SDP-013", find: |_| Ok(SETTING), note: "" },
    Measure { id: "SDP-014", find: |_| Ok(SETTING), note: "" },
    Measure { id: "SDP-015", find: |_| Ok(SETTING), note: "" },
    Measure { id: "SDP-016", find: |_| Ok(SETTING), note: "" },
    Measure { id: "SDP-017", find: |lab| ahead_with_straggler(lab, "mencius"), note: MACHINES },
    Measure { id: "SDP-018", find: ahead_of_epaxos, note: MACHINES },
    Measure { id: "SDP-019", find: ahead_of_multipaxos, note: MACHINES },
    Measure { id: "SDP-020", find: |lab| reads_over_writes(lab, 16), note: READS_COST },
    Measure {
        id: "SDP-021",
        find: |lab| Ok(reductions(lab, &EVERYWHERE, |experiment| experiment)?.map(|(_, high)| high).into()),
        note: "",
    },
    Measure {
        id: "SDP-022",
        find: |lab| Ok(reductions(lab, &EVERYWHERE, only_reads)?.map(|(_, high)| high).into()),
        note: "",
    },
    Measure { id: "SDP-023", find: |_| Ok(SETTING), note: "" },
    Measure { id: "SDP-024", find: |lab| ahead_with_straggler(lab, "mencius"), note: MACHINES },
    Measure { id: "SDP-025", find: |lab| ahead_with_straggler(lab, "epaxos"), note: MACHINES },
    Measure { id: "SDP-026", find: |lab| loss(lab, local("sdpaxos", 3, 16), "R1"), note: MACHINES },
    Measure { id: "SDP-027", find: |lab| loss(lab, local("sdpaxos", 3, 16), "R2"), note: MACHINES },
    Measure { id: "SDP-028", find: |lab| loss(lab, local("mencius", 3, 1_000), "R2"), note: MACHINES },
    Measure { id: "SDP-029", find: |lab| loss(lab, local("multipaxos", 3, 16), "R1"), note: MACHINES },
    Measure { id: "SDP-030", find: |lab| loss(lab, local("multipaxos", 3, 1_000), "R1"), note: BANDWIDTH },
    Measure { id: "SDP-031", find: |lab| loss(lab, local("mencius", 3, 16), "R2"), note: MACHINES },
    Measure { id: "SDP-032", find: |lab| loss(lab, local("mencius", 3, 1_000), "R2"), note: MACHINES },
    Measure { id: "SDP-033", find: |lab| loss(lab, local("epaxos", 3, 16), "R2"), note: MACHINES },
    Measure { id: "SDP-034", find: |lab| loss(lab, local("epaxos", 3, 1_000), "R2"), note: MACHINES },
    Measure { id: "SDP-035", find: |lab| loss(lab, local("sdpaxos", 3, 16), "R1"), note: MACHINES },
    Measure { id: "SDP-036", find: |lab| loss(lab, local("sdpaxos", 3, 1_000), "R1"), note: MACHINES },
    Measure { id: "SDP-037", find: |lab| loss(lab, local("sdpaxos", 3, 16), "R2"), note: MACHINES },
    Measure { id: "SDP-038", find: |lab| loss(lab, local("sdpaxos", 3, 1_000), "R2"), note: MACHINES },
    Measure {
        id: "SDP-039",
        find: |lab| loss(lab, reading(local("sdpaxos", 3, 16), 100), "R1"),
        note: READS_COST,
    },
    Measure {
        id: "SDP-040",
        find: |lab| loss(lab, reading(local("sdpaxos", 3, 1_000), 100), "R1"),
        note: READS_COST,
    },
    Measure {
        id: "SDP-041",
        find: |lab| loss(lab, reading(local("sdpaxos", 3, 16), 100), "R2"),
        note: READS_COST,
    },
    Measure {
        id: "SDP-042",
        find: |lab| loss(lab, reading(local("sdpaxos", 3, 1_000), 100), "R2"),
        note: READS_COST,
    },
    Measure {
        id: "SDP-043",
        find: |lab| replaced(lab, "true"),
        note: "a bound, which holds; until clients elsewhere are answered as before",
    },
    Measure { id: "SDP-044", find: |lab| conflict_loss(lab, "epaxos", &[3], &[25, 100]), note: CONTENTION },
    Measure { id: "SDP-045", find: |lab| conflict_loss(lab, "epaxos", &[3, 5], &[5]), note: MACHINES },
    Measure {
        id: "SDP-046",
        find: |lab| conflict_loss(lab, "sdpaxos", &[3, 5], &[5, 100]),
        note: "measured in percent",
    },
    Measure { id: "SDP-047", find: |lab| reads_over_writes(lab, 16), note: READS_COST },
    Measure { id: "SDP-048", find: |lab| reads_over_writes(lab, 1_000), note: MACHINES },
    Measure { id: "SDP-049", find: ahead_of_multipaxos, note: MACHINES },
    Measure { id: "SDP-050", find: |lab| Ok(lab.mean(&wide("sdpaxos", 5), "IRE")?.into()), note: "" },
    Measure {
        id: "SDP-051",
        find: |lab| Ok(lab.mean(&wide("epaxos", 5), "IRE")?.into()),
        note: "measured with EPaxos without conflicts, whose quorum is the optimal one",
    },
    Measure { id: "SDP-052", find: |lab| epaxos_growth(lab, 5, mean), note: ONE_MORE },
    Measure { id: "SDP-053", find: |lab| epaxos_growth(lab, 50, mean), note: ONE_MORE },
    Measure { id: "SDP-054", find: |lab| epaxos_growth(lab, 5, p95), note: ONE_MORE },
    Measure { id: "SDP-055", find: |lab| epaxos_growth(lab, 50, p95), note: ONE_MORE },
    Measure { id: "SDP-056", find: |_| Ok(SETTING), note: "" },
    Measure {
        id: "SDP-057",
        find: |lab| Ok(reductions(lab, &READS, only_reads)?.map(|(low, _)| low).into()),
        note: RATE,
    },
    Measure {
        id: "SDP-058",
        find: |lab| Ok(reductions(lab, &READS, only_reads)?.map(|(_, high)| high).into()),
        note: RATE,
    },
    Measure { id: "SDP-059", find: |_| Ok(SETTING), note: "" },
    Measure { id: "SDP-060", find: |_| Ok(SETTING), note: "" },
    Measure { id: "SDP-061", find: |_| Ok(SETTING), note: "" },
    Measure { id: "SDP-062", find: |_| Ok(SETTING), note: "" },
    Measure { id: "SDP-063", find: |lab| stall(lab, 1), note: TIMEOUT },
    Measure { id: "SDP-064", find: |lab| stall(lab, 2), note: TIMEOUT },
];

const MACHINES: &str =
    "one core of the calibrated runtime a replica, in the place of two virtual cores and the source's code";
const BANDWIDTH: &str =
    "the source's machines were bound by their network here; the processor model has no such bound";
const CONTENTION: &str = "three replicas, at 25% and 100%; the processor model charges for messages, not for the graph of dependencies";
const READS_COST: &str = "a message costs the same here whatever it asks, so that all reads meet at the sequencer's one core; on \
                          the source's machines a write cost more beside its messages";
const ONE_MORE: &str = "a command that conflicts waits at most one round trip more here, so that means grow by less than the share \
                        of conflicts; the source states no request rate";
const TIMEOUT: &str = "with an election timeout of 250 ms, as long as the source's survivors had to wait; ours is drawn between one \
                       and two of them, and a candidate first asks whether others hear as little";
const RATE: &str = "the source states no request rate; 100 a second of each client here";

/// The distributions behind Figure 12.
pub(super) fn draw(wanted: Wanted<'_>, lab: &mut Lab) -> anyhow::Result<Vec<Drawing>> {
    let mut drawn = Vec::new();
    for (name, replicas) in [("fig12-three", 3), ("fig12-five", 5)] {
        if !wanted(name) {
            continue;
        }
        let systems = [
            ("SDPaxos", wide("sdpaxos", replicas)),
            ("EPaxos, 0%", wide("epaxos", replicas)),
            ("EPaxos, 5%", conflicting(wide("epaxos", replicas), 5)),
            ("EPaxos, 50%", conflicting(wide("epaxos", replicas), 50)),
            ("Mencius", wide("mencius", replicas)),
            ("Multi-Paxos", wide("multipaxos", replicas)),
        ];
        let mut series = Vec::new();
        for (system, experiment) in systems {
            if let Some(outcome) = lab.run(&experiment)? {
                series.push((system.to_owned(), distribution(&outcome)));
            }
        }
        let title = format!("Commit latency, EC2, {replicas} replicas, sequencer and leader in CA");
        drawn.push((name, Curves { title, axis: "latency, ms".to_owned(), series }));
    }
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_sequencer_is_replaced_within_the_published_time_and_only_by_who_looks_for_it() {
        let mut lab = Lab::default();
        let Finding::Measured(noticed) = replaced(&mut lab, "true").unwrap() else { panic!("not replaced") };
        assert!((1.0..2.0).contains(&noticed), "{noticed} s");
        let Finding::Nothing(why) = replaced(&mut lab, "false").unwrap() else { panic!("replaced") };
        assert!(why.contains("nothing has replaced the sequencer"), "{why}");
    }

    #[test]
    fn every_published_figure_is_measured_or_has_its_reason() {
        let text = include_str!("../../../../reference/published/sdpaxos.csv");
        published::covers("sdpaxos.csv", text, MEASURES);
    }
}
