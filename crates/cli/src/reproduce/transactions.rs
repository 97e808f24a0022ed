//! Experiments with transactions as data, and the runs of them.

use super::lab::Lab;
use crate::protocols::{self, Runs};
use anyhow::{Context, bail};
use isochrone_core::topology::Cells;
use isochrone_core::{Deployment, Instant, KeyspaceId, Matrix, NodeId, Span};
use isochrone_sim::Cost;
use isochrone_workload::Window;
use isochrone_workload::transactions::{Outcome, Workload};
use isochrone_workload::trial::Terms;
use std::fmt::Write;
use std::path::Path;
use std::rc::Rc;

/// Where an experiment takes place: always five regions.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) enum Place {
    /// Those of EC2; half a millisecond within one.
    Ec2,
    /// A local cluster, its parts so many milliseconds of round trip apart, and 0.1 within one.
    Cluster(u64),
    /// All 100 ms apart, nothing within one: latencies are round trips.
    Even,
}

/// Where partitions stand, by number of region, the leader's first.
pub(super) type Groups = &'static [[usize; 3]];

/// The placement that fits the published medians (`specs/carousel.md` 7.3).
pub(super) const PL_A: Groups = &[[0, 1, 2], [1, 3, 4], [2, 3, 4], [3, 0, 1], [4, 0, 2]];

/// One experiment. Every replica has a machine of its own, and so has every client.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Experiment {
    pub(super) place: Place,
    pub(super) groups: Groups,
    pub(super) protocol: &'static str,
    pub(super) workload: &'static str,
    /// Clients in each region.
    pub(super) clients: [u32; 5],
    /// Transactions a second that all together try to begin.
    pub(super) target: u64,
    pub(super) duration: Span,
    /// What does not count at the beginning; as much is cut at the end.
    pub(super) warm: Span,
    /// What handling a message costs a server.
    pub(super) cost: Cost,
}

impl Experiment {
    fn matrix(&self) -> anyhow::Result<(Matrix, Span)> {
        let even = |millis: u64| {
            Matrix::from_fn(&["R1", "R2", "R3", "R4", "R5"], |_, _| Span::from_millis(millis) / 2)
        };
        Ok(match self.place {
            Place::Ec2 => {
                let text = include_str!("../../../../reference/rtt/carousel-ec2.csv");
                let matrix = Matrix::parse(text, "carousel-ec2.csv", Cells::RoundTrip, Span::ZERO)?;
                (matrix, Span::from_micros(500))
            }
            Place::Cluster(millis) => (even(millis), Span::from_micros(100)),
            Place::Even => (even(100), Span::ZERO),
        })
    }

    /// The deployment, and how many sessions each of its nodes has.
    fn deployment(&self) -> anyhow::Result<(Deployment, Vec<u32>)> {
        let (matrix, within) = self.matrix()?;
        let (mut text, mut sessions) = (String::new(), Vec::new());
        for (region, name) in matrix.names().enumerate() {
            if self.clients[region] > 0 || self.groups.iter().flatten().any(|used| *used == region) {
                writeln!(text, "[[region]]\nname = {name:?}")?;
            }
        }
        let regions: Vec<&str> = matrix.names().collect();
        let mut placement = Vec::new();
        for (partition, group) in self.groups.iter().enumerate() {
            let name = |region: &usize| format!("p{partition}-r{region}");
            for region in group {
                writeln!(text, "[[node]]\nname = {:?}\nregion = {:?}", name(region), regions[*region])?;
                sessions.push(0);
            }
            placement.push(group.iter().map(name).collect::<Vec<_>>());
        }
        for (region, count) in self.clients.iter().enumerate() {
            for client in 0..*count {
                writeln!(text, "[[node]]\nname = \"c{client}-r{region}\"\nregion = {:?}", regions[region])?;
                sessions.push(1);
            }
        }
        writeln!(text, "[network]\nrtt = \"matrix.csv\"")?;
        let protocol = self.protocol;
        writeln!(text, "[[keyspace]]\nname = \"main\"\nprotocol = {protocol:?}\nplacement = {placement:?}")?;
        let mut rows = format!("region,{}\n", regions.join(","));
        for from in matrix.regions() {
            let cell = |to| if from == to { within } else { matrix.rtt(from, to) };
            let cells: Vec<String> =
                matrix.regions().map(|to| cell(to).as_millis_f64().to_string()).collect();
            writeln!(rows, "{},{}", matrix.name(from), cells.join(","))?;
        }
        let read = |_: &Path| Ok(rows.clone());
        let deployment =
            Deployment::parse_with(&text, "experiment.toml", Path::new(""), &protocols::known(), &read)?;
        Ok((deployment, sessions))
    }

    /// Runs it; nothing where its protocol is not in this program.
    fn run(&self) -> anyhow::Result<Option<Outcome>> {
        let found = protocols::ALL.iter().find(|entry| entry.name == self.protocol);
        let Some(Runs::Transactions { trial, .. }) = found.map(|entry| &entry.runs) else { return Ok(None) };
        let (deployment, sessions) = self.deployment()?;
        let mut terms = Terms::quiet(Workload::named(self.workload)?, self.duration);
        let clients: u32 = sessions.iter().sum();
        terms.rate = Some(self.target as f64 / f64::from(clients.max(1)));
        terms.cost = self.cost;
        // Only servers are limited: client machines are as many as it takes.
        let idle = sessions.iter().enumerate().filter(|(_, sessions)| **sessions > 0);
        terms.stragglers = idle.map(|(node, _)| (NodeId(node as u16), 0)).collect();
        terms.clients = Some(sessions);
        // Serializability is checked where things go wrong, by `sim`; here nothing does.
        terms.check = false;
        let (from, until) =
            (Instant::ZERO + self.warm, Instant::ZERO + self.duration.saturating_sub(self.warm));
        terms.window = Some(Window { from, until });
        let outcome = trial(&deployment, KeyspaceId(1), &terms, 1)?;
        if let Some(violation) = outcome.report.violations.first() {
            bail!("{} broke in {self:?}: {}", self.protocol, violation.text);
        }
        Ok(Some(outcome))
    }
}

impl Lab {
    /// What came of an experiment with transactions; nothing where its protocol is not in this program.
    pub(super) fn transactions(&mut self, experiment: &Experiment) -> anyhow::Result<Option<Rc<Outcome>>> {
        let key = format!("{experiment:?}");
        let outcome = match self.transacted.get(&key) {
            Some(known) => known.clone(),
            None => experiment.run().with_context(|| format!("{experiment:?}"))?.map(Rc::new),
        };
        if outcome.is_none() {
            self.lack();
        }
        self.transacted.insert(key, outcome.clone());
        Ok(outcome)
    }
}

/// Latency that this share of what committed did not exceed, milliseconds.
pub(super) fn quantile(lab: &mut Lab, experiment: &Experiment, share: f64) -> anyhow::Result<Option<f64>> {
    Ok(lab.transactions(experiment)?.and_then(|outcome| outcome.figures.recorder().quantile(share, None)))
}

/// What was committed a second.
pub(super) fn committed(lab: &mut Lab, experiment: &Experiment) -> anyhow::Result<Option<f64>> {
    Ok(lab.transactions(experiment)?.map(|outcome| outcome.figures.recorder().throughput()))
}

/// Percent of what ended that was aborted.
pub(super) fn aborted(lab: &mut Lab, experiment: &Experiment) -> anyhow::Result<Option<f64>> {
    Ok(lab.transactions(experiment)?.map(|outcome| 100.0 * outcome.figures.tally(None).abort_rate()))
}

/// A distribution of few enough points to draw.
pub(super) fn distribution(outcome: &Outcome) -> Vec<(f64, f64)> {
    let all = outcome.figures.recorder().distribution();
    let step = all.len().div_ceil(400).max(1);
    let last = all.last().copied();
    all.into_iter().step_by(step).chain(last).collect()
}
