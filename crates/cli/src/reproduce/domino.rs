//! Domino: Chapter 4 of Yan's thesis. Settings: `specs/domino.md` 6.3; experiments: 6.4.

use super::lab::{APART, Experiment, Lab, Mix, Topology};
use super::published::{self, Finding, Measure};
use super::{Drawing, Row, Wanted, traces};
use crate::chart::Curves;
use isochrone_core::{RegionId, Span};
use isochrone_plan::Client;
use isochrone_sim::{Action, FaultKind, Planned};
use std::rc::Rc;

/// The baselines and Domino.
const SYSTEMS: [(&str, &str); 4] =
    [("domino", "Domino"), ("epaxos", "EPaxos"), ("mencius", "Mencius"), ("multipaxos", "Multi-Paxos")];

/// Variation of delays: exponential of this mean. The source states none; late requests were 5 to 6 ms late at
/// their 99th percentile (Table 4.3), which an exponential distribution of 1.2 ms has.
pub(super) const JITTER: Span = Span::from_micros(1_200);

pub(super) fn run(wanted: Wanted<'_>, lab: &mut Lab) -> anyhow::Result<Vec<Row>> {
    let text = include_str!("../../../../reference/published/domino.csv");
    published::rows("reference/published/domino.csv", text, MEASURES, wanted, lab)
}

/// A wide-area setting: 200 requests a second of each client, writes, a million keys by Zipf's law of 0.75.
fn wide(topology: Topology, replicas: &[&'static str], protocol: &'static str) -> Experiment {
    Experiment {
        topology,
        replicas: replicas.to_vec(),
        leader: Some("WA"),
        protocol,
        set: at_commit(protocol),
        clients: Vec::new(),
        rate: Some(200.0),
        mix: Mix { reads: 0, exponent: Some(0.75), records: 1_000_000, size: 8, conflict: 0 },
        duration: Span::from_secs(24),
        warm: Span::from_secs(4),
        jitter: JITTER,
        cpu: true,
        straggler: None,
        script: Vec::new(),
        history: false,
    }
}

/// Answers at commit, where the protocol tells commit from execution.
fn at_commit(protocol: &str) -> Vec<(&'static str, &'static str)> {
    match protocol {
        "multipaxos" => Vec::new(),
        _ => vec![("reply", "commit")],
    }
}

fn north_america(protocol: &'static str) -> Experiment {
    wide(Topology::NorthAmerica, &["WA", "VA", "QC"], protocol)
}

fn five(protocol: &'static str) -> Experiment {
    wide(Topology::NorthAmerica, &["WA", "VA", "QC", "CA", "TX"], protocol)
}

fn globe(protocol: &'static str) -> Experiment {
    wide(Topology::Globe, &["WA", "PR", "NSW"], protocol)
}

/// Answers at execution; Domino with so many milliseconds of additional delay, all replicas learners.
fn executed(protocol: &'static str, extra: &'static str) -> Experiment {
    let set = match protocol {
        "domino" => vec![("reply", "execute"), ("learners", "all"), ("extra_delay", extra)],
        _ => Vec::new(),
    };
    Experiment { set, ..globe(protocol) }
}

/// Figure 4.8: clients in these regions only.
fn few(protocol: &'static str, clients: &[&'static str]) -> Experiment {
    Experiment { clients: clients.iter().map(|region| (*region, 1)).collect(), ..north_america(protocol) }
}

/// Figure 4.13(a): after 5 s the client is this much farther from R, one way.
fn micro(protocol: &'static str, extra: Span) -> Experiment {
    let later = Planned {
        at: Span::from_secs(5),
        length: Span::from_secs(20),
        kind: FaultKind::Delay,
        action: Action::Delay { links: vec![(0, 1), (1, 0)], extra },
    };
    Experiment {
        topology: Topology::MicroA,
        replicas: vec!["R", "M", "N"],
        leader: Some("R"),
        clients: vec![("CLIENT", 1)],
        // The source asks once a second; more often only makes the same figure sooner.
        rate: Some(20.0),
        jitter: Span::ZERO,
        cpu: false,
        script: vec![later],
        duration: Span::from_secs(20),
        warm: Span::from_secs(8),
        ..wide(Topology::MicroA, &[], protocol)
    }
}

/// Figure 4.14: a local cluster under as much load as it takes, one command a message.
fn cluster(protocol: &'static str) -> Experiment {
    let single: &[(&str, &str)] = match protocol {
        "domino" => &[],
        _ => &[("batch_commands", "1")],
    };
    Experiment {
        set: at_commit(protocol).into_iter().chain(single.iter().copied()).collect(),
        topology: Topology::Cluster,
        replicas: vec!["R1", "R2", "R3"],
        leader: Some("R1"),
        clients: vec![("C1", 48), ("C2", 48), ("C3", 48)],
        rate: None,
        mix: APART,
        jitter: Span::ZERO,
        // Domino's clients predict after ten probes, 10 ms apart.
        duration: Span::from_millis(360),
        warm: Span::from_millis(130),
        ..wide(Topology::Cluster, &[], protocol)
    }
}

/// How many clients take Domino's fast lane: those whose latency, without jitter, is that of its closed form.
fn fast_clients(lab: &mut Lab, experiment: Experiment) -> anyhow::Result<Option<f64>> {
    let still = Experiment { jitter: Span::ZERO, cpu: false, ..experiment };
    let Some(recorder) = lab.latencies(&still)? else { return Ok(None) };
    let matrix = still.matrix()?;
    let replicas: Vec<RegionId> = still.replicas.iter().filter_map(|name| matrix.region(name)).collect();
    let mut count = 0.0;
    for region in matrix.regions() {
        let client = Client::of(region, &replicas);
        let fast = isochrone_plan::domino::fast(&matrix, client, &replicas);
        let (_, led) = isochrone_plan::domino::leader(&matrix, client, &replicas);
        let measured = recorder.quantile(0.5, Some(usize::from(region.0)));
        if let (Some(fast), Some(measured)) = (fast, measured) {
            let far = |form: Span| (form.as_millis_f64() - measured).abs();
            count += f64::from(u8::from(far(fast) < far(led)));
        }
    }
    Ok(Some(count))
}

/// How much lower one latency is than another, where both are known.
fn gap(high: Option<f64>, low: Option<f64>) -> Finding {
    match (high, low) {
        (Some(high), Some(low)) => Finding::Measured(high - low),
        _ => Finding::Absent,
    }
}

/// Share of all (placement, client) cases of the globe for which Fast Paxos is strictly faster.
fn geometry(than: &str) -> anyhow::Result<Finding> {
    let matrix = globe("fastpaxos").matrix()?;
    let sites: Vec<RegionId> = matrix.regions().collect();
    let (mut cases, mut faster) = (0.0, 0.0);
    for a in 0..sites.len() {
        for b in a + 1..sites.len() {
            for c in b + 1..sites.len() {
                let replicas = [sites[a], sites[b], sites[c]];
                for client in &sites {
                    let straight =
                        isochrone_plan::fastpaxos::commit(&matrix, *client, replicas[0], &replicas);
                    for leader in &replicas {
                        let other = match than {
                            "mencius" => isochrone_plan::mencius::busy(&matrix, *client, &replicas),
                            _ => isochrone_plan::multipaxos::commit(&matrix, *client, *leader, &replicas),
                        };
                        cases += 1.0;
                        faster += f64::from(u8::from(straight < other));
                    }
                }
            }
        }
    }
    Ok(Finding::Measured(100.0 * faster / cases))
}

/// Share of Domino's requests that take longer than the same share of every other system's.
fn slower_than_all(lab: &mut Lab) -> anyhow::Result<Finding> {
    let mut recorders = Vec::new();
    for (protocol, _) in SYSTEMS {
        match lab.latencies(&executed(protocol, "8ms"))? {
            Some(recorder) => recorders.push(recorder),
            None => return Ok(Finding::Absent),
        }
    }
    let slower = (0..200).filter(|at| {
        let share = (f64::from(*at) + 0.5) / 200.0;
        let at = |index: usize| recorders[index].quantile(share, None).unwrap_or(0.0);
        (1..recorders.len()).all(|other| at(0) > at(other))
    });
    Ok(Finding::Measured(slower.count() as f64 / 200.0))
}

const MEASURES: &[Measure] = &[
    Measure { id: "pred-rate-min", find: traces::fewest_right, note: traces::NOTE },
    Measure { id: "pred-rate-max", find: traces::most_right, note: traces::NOTE },
    Measure {
        id: "geom-example-*",
        find: |_| Ok(Finding::Not("the delays of the example are only in a drawing")),
        note: "",
    },
    Measure {
        id: "geom-vs-mencius",
        find: |_| geometry("mencius"),
        note: "closed forms over the rounded table",
    },
    Measure {
        id: "geom-vs-multipaxos",
        find: |_| geometry("multipaxos"),
        note: "closed forms over the rounded table, every leader; one random leader a case gives the published 85 of 120",
    },
    Measure { id: "t42-va-*", find: traces::cell, note: traces::CHOSEN },
    Measure { id: "t42-wa-*", find: traces::cell, note: traces::CHOSEN },
    Measure { id: "t42-pr-*", find: traces::cell, note: traces::CHOSEN },
    Measure { id: "t42-hk-*", find: traces::cell, note: traces::CHOSEN },
    Measure { id: "t42-sg-*", find: traces::cell, note: traces::CHOSEN },
    Measure { id: "t42-nsw-*", find: traces::cell, note: traces::DISTURBED },
    Measure { id: "t43-*", find: traces::cell, note: traces::NOTE },
    Measure { id: "mispred-owd-max", find: traces::one_way_most, note: traces::NOTE },
    Measure {
        id: "mispred-half-max",
        find: |_| {
            Ok(Finding::Not("some hour of the source's traces; a made-up clock would show what was made up"))
        },
        note: "",
    },
    Measure { id: "mispred-half-nsw", find: traces::half_least_to_nsw, note: traces::CHOSEN },
    Measure {
        id: "extra-delay-rec",
        find: |_| Ok(Finding::Not("a setting; it is the default here too")),
        note: "",
    },
    Measure {
        id: "fig48-1c",
        find: |lab| {
            let slow = lab.quantile(&few("multipaxos", &["IA"]), 0.5)?;
            Ok(gap(slow, lab.quantile(&few("fastpaxos", &["IA"]), 0.5)?))
        },
        note: "",
    },
    Measure {
        id: "fig48-2c-wa",
        find: |lab| Ok(lab.mean(&few("multipaxos", &["IA", "WA"]), "WA")?.into()),
        note: "",
    },
    Measure {
        id: "fig48-2c-ia",
        find: |lab| Ok(lab.mean(&few("multipaxos", &["IA", "WA"]), "IA")?.into()),
        note: "",
    },
    Measure {
        id: "fig49a-domino-p50",
        find: |lab| Ok(lab.quantile(&north_america("domino"), 0.50)?.into()),
        note: "",
    },
    Measure {
        id: "fig49a-domino-p95",
        find: |lab| Ok(lab.quantile(&north_america("domino"), 0.95)?.into()),
        note: "",
    },
    Measure {
        id: "fig49a-epaxos-p50",
        find: |lab| Ok(lab.quantile(&north_america("epaxos"), 0.50)?.into()),
        note: "",
    },
    Measure {
        id: "fig49a-epaxos-p95",
        find: |lab| Ok(lab.quantile(&north_america("epaxos"), 0.95)?.into()),
        note: "",
    },
    Measure {
        id: "fig49a-mencius-p50",
        find: |lab| Ok(lab.quantile(&north_america("mencius"), 0.50)?.into()),
        note: EARLY,
    },
    Measure {
        id: "fig49a-mencius-p95",
        find: |lab| Ok(lab.quantile(&north_america("mencius"), 0.95)?.into()),
        note: EARLY,
    },
    Measure {
        id: "fig49a-multipaxos-p50",
        find: |lab| Ok(lab.quantile(&north_america("multipaxos"), 0.50)?.into()),
        note: "",
    },
    Measure {
        id: "fig49a-multipaxos-p95",
        find: |lab| Ok(lab.quantile(&north_america("multipaxos"), 0.95)?.into()),
        note: "",
    },
    Measure {
        id: "fig49a-dfp",
        find: |lab| Ok(fast_clients(lab, north_america("domino"))?.into()),
        note: "",
    },
    Measure {
        id: "fig49a-dm",
        find: |lab| Ok(fast_clients(lab, north_america("domino"))?.map(|fast| 9.0 - fast).into()),
        note: "",
    },
    Measure { id: "fig49b-dfp", find: |lab| Ok(fast_clients(lab, five("domino"))?.into()), note: "" },
    Measure {
        id: "fig49b-dm",
        find: |lab| Ok(fast_clients(lab, five("domino"))?.map(|fast| 9.0 - fast).into()),
        note: "",
    },
    Measure {
        id: "fig49c-p95-gap",
        find: |lab| {
            let high = lab.quantile(&globe("epaxos"), 0.95)?;
            Ok(gap(high, lab.quantile(&globe("domino"), 0.95)?))
        },
        note: "the stated matrix has 96 ms: EPaxos waits 292 ms in HK, Domino 196 ms in VA",
    },
    Measure { id: "fig49c-dfp", find: |lab| Ok(fast_clients(lab, globe("domino"))?.into()), note: "" },
    Measure {
        id: "fig410-same",
        find: |lab| {
            let extra = |delay| {
                let set = vec![("reply", "commit"), ("extra_delay", delay)];
                Experiment { set, ..globe("domino") }
            };
            let (two, sixteen) = (lab.quantile(&extra("2ms"), 0.99)?, lab.quantile(&extra("16ms"), 0.99)?);
            Ok(gap(two, sixteen))
        },
        note: "of a 99th percentile of about 200 ms",
    },
    Measure { id: "fig411a-slow", find: slower_than_all, note: "" },
    Measure {
        id: "fig412-slope",
        find: |lab| {
            let high = lab.quantile(&executed("domino", "36ms"), 0.5)?;
            Ok(gap(high, lab.quantile(&executed("domino", "8ms"), 0.5)?))
        },
        note: "half of the clients take a leader, whose lane has no additional delay; our median lies between the two lanes",
    },
    Measure {
        id: "fig413a-domino-50",
        find: |lab| Ok(lab.quantile(&micro("domino", Span::from_millis(10)), 0.5)?.into()),
        note: "",
    },
    Measure {
        id: "fig413a-mencius-50",
        find: |lab| Ok(lab.quantile(&micro("mencius", Span::from_millis(10)), 0.5)?.into()),
        note: "",
    },
    Measure {
        id: "fig413a-mencius-alt",
        find: |lab| {
            let other =
                Experiment { replicas: vec!["M", "R", "N"], ..micro("mencius", Span::from_millis(10)) };
            Ok(lab.quantile(&other, 0.5)?.into())
        },
        note: "",
    },
    Measure {
        id: "fig413a-domino-70",
        find: |lab| Ok(lab.quantile(&micro("domino", Span::from_millis(20)), 0.5)?.into()),
        note: "",
    },
    Measure {
        id: "fig413a-dfp-70",
        find: |lab| Ok(lab.quantile(&micro("fastpaxos", Span::from_millis(20)), 0.5)?.into()),
        note: "Fast Paxos, which is that lane without its clocks",
    },
    Measure { id: "fig414-domino", find: |lab| Ok(lab.throughput(&cluster("domino"))?.into()), note: FASTER },
    Measure {
        id: "fig414-mencius",
        find: |lab| Ok(lab.throughput(&cluster("mencius"))?.into()),
        note: FASTER,
    },
    Measure { id: "fig414-epaxos", find: |lab| Ok(lab.throughput(&cluster("epaxos"))?.into()), note: FASTER },
    Measure {
        id: "fig414-multipaxos",
        find: |lab| Ok(lab.throughput(&cluster("multipaxos"))?.into()),
        note: FASTER,
    },
];

const EARLY: &str = "answers once no earlier slot can interfere; with every earlier slot settled, as the text has it, the \
                     median would be 113 ms and the 95th percentile 155 ms";

const FASTER: &str = "one core of the calibrated runtime a replica, in the place of twelve and the source's code; that Multi-Paxos, \
                      whose leader hears all, has the least compares, and not Domino's lead over Mencius, which the source \
                      gives to its code's doing input and output beside computation";

/// The distributions of Figures 4.8, 4.9 and 4.11.
pub(super) fn draw(wanted: Wanted<'_>, lab: &mut Lab) -> anyhow::Result<Vec<Drawing>> {
    type Of = fn(&'static str) -> Experiment;
    let plots: [(&'static str, &str, Of); 5] = [
        ("fig4.8-two-clients", "Commit latency, clients in IA and WA, replicas WA, VA, QC", |protocol| {
            few(protocol, &["IA", "WA"])
        }),
        ("fig4.9a", "Commit latency, North America, 3 replicas", north_america),
        ("fig4.9b", "Commit latency, North America, 5 replicas", five),
        ("fig4.9c", "Commit latency, globe, 3 replicas", globe),
        ("fig4.11a", "Execution latency, globe, 3 replicas, 8 ms of additional delay", |protocol| {
            executed(protocol, "8ms")
        }),
    ];
    let mut drawn = Vec::new();
    for (name, title, experiment) in plots {
        if !wanted(name) {
            continue;
        }
        let mut series = Vec::new();
        for (protocol, system) in SYSTEMS.into_iter().chain([("fastpaxos", "Fast Paxos")]) {
            if (protocol == "fastpaxos") != name.starts_with("fig4.8") && protocol != "multipaxos" {
                continue;
            }
            if let Some(outcome) = lab.run(&experiment(protocol))? {
                series.push((system.to_owned(), distribution(&outcome)));
            }
        }
        drawn.push((name, Curves { title: title.to_owned(), axis: "latency, ms".to_owned(), series }));
    }
    Ok(drawn)
}

/// A distribution of few enough points to draw.
pub(super) fn distribution(outcome: &Rc<isochrone_workload::trial::Outcome>) -> Vec<(f64, f64)> {
    let all = outcome.figures.distribution();
    let step = all.len().div_ceil(400).max(1);
    let last = all.last().copied();
    all.into_iter().step_by(step).chain(last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_figure_is_measured_or_has_its_reason() {
        let text = include_str!("../../../../reference/published/domino.csv");
        published::covers("domino.csv", text, MEASURES);
    }
}
