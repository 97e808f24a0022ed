//! Experiments as data, and the runs of them.

use crate::calibrated;
use crate::output::bar;
use crate::protocols::{self, Runs};
use anyhow::Context;
use indicatif::ProgressBar;
use isochrone_core::topology::Cells;
use isochrone_core::{Deployment, Instant, KeyspaceId, Matrix, NodeId, RegionId, Span};
use isochrone_sim::{Jitter, Planned, Record};
use isochrone_workload::trial::{Outcome, Terms};
use isochrone_workload::{Recorder, Window, Workload};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Where an experiment takes place.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) enum Topology {
    /// Nine sites of North America.
    NorthAmerica,
    /// Six sites around the globe.
    Globe,
    /// A client and the replicas R, M, N; all 30 ms apart.
    MicroA,
    /// Five regions of EC2.
    Ec2,
    /// Regions R1 to R7, each pair this many milliseconds apart.
    Even(u64),
    /// A local cluster: regions R1 to R7 with replicas, C1 to C7 with clients, each near its replica.
    Cluster,
    /// One rack: [`RACK_SERVERS`] and [`RACK_CLIENTS`], 3 us there and back between any two. A client is one machine, and
    /// its messages cost it what they cost a server.
    Rack,
}

/// The machines with replicas in [`Topology::Rack`].
pub(super) const RACK_SERVERS: [&str; 5] = ["S1", "S2", "S3", "S4", "S5"];
/// Those with clients.
pub(super) const RACK_CLIENTS: [&str; 40] = [
    "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C12", "C13", "C14", "C15", "C16",
    "C17", "C18", "C19", "C20", "C21", "C22", "C23", "C24", "C25", "C26", "C27", "C28", "C29", "C30", "C31",
    "C32", "C33", "C34", "C35", "C36", "C37", "C38", "C39", "C40",
];

impl Topology {
    pub(super) fn matrix(self) -> anyhow::Result<Matrix> {
        let (file, text) = match self {
            Topology::NorthAmerica => {
                ("domino-na.csv", include_str!("../../../../reference/rtt/domino-na.csv"))
            }
            Topology::Globe => {
                ("domino-globe.csv", include_str!("../../../../reference/rtt/domino-globe.csv"))
            }
            Topology::MicroA => {
                ("domino-micro-a.csv", include_str!("../../../../reference/rtt/domino-micro-a.csv"))
            }
            Topology::Ec2 => ("sdpaxos-ec2.csv", include_str!("../../../../reference/rtt/sdpaxos-ec2.csv")),
            Topology::Even(rtt) => {
                let names = ["R1", "R2", "R3", "R4", "R5", "R6", "R7"];
                return Ok(Matrix::from_fn(&names, |_, _| Span::from_millis(rtt) / 2));
            }
            Topology::Rack => {
                let names: Vec<&str> = RACK_SERVERS.into_iter().chain(RACK_CLIENTS).collect();
                return Ok(Matrix::from_fn(&names, |_, _| Span::from_nanos(1_500)));
            }
            Topology::Cluster => {
                let names =
                    ["R1", "R2", "R3", "R4", "R5", "R6", "R7", "C1", "C2", "C3", "C4", "C5", "C6", "C7"];
                // A client's own replica is a little nearer, so that each replica has the clients of its number.
                let far = |a: RegionId, b: RegionId| if a.0 % 7 == b.0 % 7 { 90 } else { 100 };
                return Ok(Matrix::from_fn(&names, |a, b| Span::from_micros(far(a, b))));
            }
        };
        Ok(Matrix::parse(text, file, Cells::RoundTrip, Span::ZERO)?)
    }
}

/// What clients ask.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Mix {
    /// Percent of reads; the rest overwrites.
    pub(super) reads: u8,
    /// Of Zipf's law; without it every session has keys of its own.
    pub(super) exponent: Option<f64>,
    /// How many keys there are.
    pub(super) records: u64,
    /// Bytes of a value.
    pub(super) size: usize,
    /// Percent of the requests that go to one hot key.
    pub(super) conflict: u8,
}

/// One experiment.
#[derive(Clone, Debug)]
pub(super) struct Experiment {
    pub(super) topology: Topology,
    /// Regions.
    pub(super) replicas: Vec<&'static str>,
    /// Region of the leader, sequencer or coordinator.
    pub(super) leader: Option<&'static str>,
    pub(super) protocol: &'static str,
    /// Parameters of the protocol.
    pub(super) set: Vec<(&'static str, &'static str)>,
    /// Sessions by region; one in each region where there are none.
    pub(super) clients: Vec<(&'static str, u32)>,
    /// Requests a second of each session; closed loops where there is none.
    pub(super) rate: Option<f64>,
    pub(super) mix: Mix,
    pub(super) duration: Span,
    /// What does not count at the beginning; as much is cut at the end.
    pub(super) warm: Span,
    /// Delays vary: exponential, of this mean, and as much shorter to begin with, so that the matrix' means hold.
    pub(super) jitter: Span,
    /// Whether handling a message takes its time.
    pub(super) cpu: bool,
    /// A region whose node is so many percent of the usual cost.
    pub(super) straggler: Option<(&'static str, u64)>,
    /// Faults by design; nodes are numbered as the regions of the topology.
    pub(super) script: Vec<Planned>,
    /// Whether what each client saw is kept.
    pub(super) history: bool,
}

/// Runs experiments, each once.
#[derive(Default)]
pub(super) struct Lab {
    done: BTreeMap<String, Rc<Outcome>>,
    /// The same of transactions; nothing where a protocol is not in this program.
    pub(super) transacted: BTreeMap<String, Option<Rc<isochrone_workload::transactions::Outcome>>>,
    /// Runs of learning.
    pub(super) learning: super::cop::Bench,
    /// Servers beside each other.
    pub(super) beside: super::curp::Beside,
    /// The figure that is asked for.
    figure: String,
    /// Whether it needs a protocol that is not in this program.
    lacking: bool,
    progress: Option<ProgressBar>,
}

impl Lab {
    /// So many figures will be asked for.
    pub(super) fn expect(&mut self, figures: usize) {
        self.progress = Some(bar("reproducing", figures as u64));
    }

    /// The next figure.
    pub(super) fn begin(&mut self, id: &str) {
        id.clone_into(&mut self.figure);
        self.lacking = false;
        if let Some(progress) = &self.progress {
            progress.set_message(id.to_owned());
            progress.inc(1);
        }
    }

    /// The figure that is asked for, where one measure is that of many.
    pub(super) fn figure(&self) -> &str {
        &self.figure
    }

    /// A protocol that the figure needs is not in this program.
    pub(super) fn lack(&mut self) {
        self.lacking = true;
    }

    /// Whether that is so.
    pub(super) fn lacks(&self) -> bool {
        self.lacking
    }

    /// No more is asked for.
    pub(super) fn finish(&self) {
        if let Some(progress) = &self.progress {
            progress.finish_and_clear();
        }
    }

    /// What came of an experiment; nothing where its protocol is not in this program.
    pub(super) fn run(&mut self, experiment: &Experiment) -> anyhow::Result<Option<Rc<Outcome>>> {
        self.run_recording(experiment, Record::Nothing)
    }

    /// The same, with what crosses the network counted.
    pub(super) fn count(&mut self, experiment: &Experiment) -> anyhow::Result<Option<Rc<Outcome>>> {
        self.run_recording(experiment, Record::Traffic)
    }

    fn run_recording(
        &mut self,
        experiment: &Experiment,
        record: Record,
    ) -> anyhow::Result<Option<Rc<Outcome>>> {
        let known = protocols::known();
        let found = protocols::ALL.iter().find(|entry| entry.name == experiment.protocol);
        let Some(Runs::Commands { trial, .. }) = found.map(|entry| &entry.runs) else {
            self.lack();
            return Ok(None);
        };
        let key = format!("{record:?} {experiment:?}");
        if let Some(outcome) = self.done.get(&key) {
            return Ok(Some(outcome.clone()));
        }
        let (deployment, mut terms) = experiment.prepare(&known)?;
        terms.record = record;
        let outcome = trial(&deployment, KeyspaceId(1), &terms, 1)
            .with_context(|| format!("{} on {:?}", experiment.protocol, experiment.topology))?;
        let broken = outcome.report.violations.iter().find(|violation| {
            // A history of answers that come before execution need not be linearizable.
            violation.kind != isochrone_sim::ViolationKind::History
        });
        if let Some(violation) = broken {
            anyhow::bail!("{} broke in {experiment:?}: {}", experiment.protocol, violation.text);
        }
        let outcome = Rc::new(outcome);
        self.done.insert(key, outcome.clone());
        Ok(Some(outcome))
    }

    /// The latencies of an experiment.
    pub(super) fn latencies(&mut self, experiment: &Experiment) -> anyhow::Result<Option<Recorder>> {
        Ok(self.run(experiment)?.map(|outcome| outcome.figures.clone()))
    }

    /// The latency that this share of the requests did not exceed, over all clients, milliseconds.
    pub(super) fn quantile(&mut self, experiment: &Experiment, share: f64) -> anyhow::Result<Option<f64>> {
        Ok(self.latencies(experiment)?.and_then(|recorder| recorder.quantile(share, None)))
    }

    /// The mean latency of the clients of a region, milliseconds.
    pub(super) fn mean(&mut self, experiment: &Experiment, region: &str) -> anyhow::Result<Option<f64>> {
        let at = experiment.region(region)?;
        let figures = self.latencies(experiment)?.and_then(|recorder| recorder.region(at, None));
        Ok(figures.map(|figures| figures.mean_ms))
    }

    /// Requests answered a second.
    pub(super) fn throughput(&mut self, experiment: &Experiment) -> anyhow::Result<Option<f64>> {
        Ok(self.latencies(experiment)?.map(|recorder| recorder.throughput()))
    }
}

impl Experiment {
    /// The number of a region.
    pub(super) fn region(&self, name: &str) -> anyhow::Result<usize> {
        let region = self.topology.matrix()?.region(name).map(|region| usize::from(region.0));
        region.with_context(|| format!("{:?} has no region {name}", self.topology))
    }

    /// The matrix of the experiment, as its source states it.
    pub(super) fn matrix(&self) -> anyhow::Result<Matrix> {
        self.topology.matrix()
    }

    fn prepare(&self, known: &isochrone_core::deployment::Known) -> anyhow::Result<(Deployment, Terms)> {
        let stated = self.topology.matrix()?;
        let names: Vec<&str> = stated.names().collect();
        let matrix = Matrix::from_fn(&names, |from, to| stated.one_way(from, to).saturating_sub(self.jitter));
        let replicas: Vec<RegionId> = self
            .replicas
            .iter()
            .map(|name| stated.region(name).with_context(|| format!("no region {name}")))
            .collect::<Result<_, _>>()?;
        let main = KeyspaceId(1);
        let mut deployment = Deployment::of_matrix(matrix, "multipaxos", &replicas).with_protocol(
            main,
            self.protocol,
            known,
        )?;
        if let Some(leader) = self.leader {
            deployment = deployment.with_leader(main, leader)?;
        }
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let deployment = deployment.with_parameters(main, &self.set.iter().map(own).collect::<Vec<_>>())?;

        let Mix { reads, exponent, records, size, conflict } = self.mix;
        let mut workload = Workload::mixed(reads, exponent, records, size);
        workload.conflict = conflict;
        let mut clients = vec![u32::from(self.clients.is_empty()); names.len()];
        for (region, count) in &self.clients {
            clients[self.region(region)?] = *count;
        }
        let mut terms = Terms::quiet(workload, self.duration);
        terms.rate = self.rate;
        terms.check = self.history;
        terms.script = self.script.clone();
        let (from, until) =
            (Instant::ZERO + self.warm, Instant::ZERO + self.duration.saturating_sub(self.warm));
        terms.window = Some(Window { from, until });
        if self.jitter > Span::ZERO {
            terms.jitter = Jitter::Exponential(self.jitter);
        }
        if self.cpu {
            terms.cost = calibrated::COST;
            if self.topology != Topology::Rack {
                // Client machines are as many as it takes: only replicas are limited.
                let only_clients = (0..names.len()).filter(|at| !replicas.contains(&RegionId(*at as u16)));
                terms.stragglers.extend(only_clients.map(|at| (NodeId(at as u16), 0)));
            }
        }
        if let Some((region, percent)) = self.straggler {
            terms.stragglers.push((NodeId(self.region(region)? as u16), percent));
        }
        terms.clients = Some(clients);
        Ok((deployment, terms))
    }
}

/// Writes to keys that nobody else writes.
pub(super) const APART: Mix = Mix { reads: 0, exponent: None, records: 1_000_000, size: 16, conflict: 0 };
