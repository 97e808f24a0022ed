//! What the cluster looks like at one moment: plain values, which `table` and `plain` print.

use isochrone_node::figures::Figures;
use serde::Serialize;
use std::time::Duration;

/// The whole cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct View {
    /// The cluster's name.
    pub(crate) cluster: String,
    /// The keyspace whose figures these are.
    pub(crate) keyspace: String,
    /// Its protocol.
    pub(crate) protocol: String,
    /// What it promises.
    pub(crate) guarantee: String,
    /// Whether acknowledged means on disk; if not, everything says UNSAFE.
    pub(crate) fsync: bool,
    /// Since the start.
    pub(crate) elapsed: Duration,
    /// In the deployment's order.
    pub(crate) regions: Vec<RegionView>,
}

/// One region. The figures are of the commands that came in at its Redis port, over the last seconds or the whole run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RegionView {
    /// Its name.
    pub(crate) region: String,
    /// The Redis port.
    pub(crate) port: u16,
    /// How it is.
    pub(crate) state: State,
    /// What its replica does.
    pub(crate) role: Role,
    /// Positions of the log that its replica has applied.
    pub(crate) applied: u64,
    /// What its clients have seen.
    pub(crate) figures: Figures,
    /// No linearizable replicated write is faster from here, milliseconds.
    pub(crate) floor_ms: f64,
}

impl RegionView {
    /// Whether its nodes run.
    pub(crate) fn stands(&self) -> bool {
        !matches!(self.state, State::Down | State::Failed)
    }

    /// The median of writes over their floor; none where either is nothing.
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.figures.write_p50_ms.filter(|_| self.floor_ms > 0.0).map(|p50| p50 / self.floor_ms)
    }
}

/// How a region is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Its nodes run and replay their journals, or know no leader yet.
    Starting,
    /// It serves.
    Up,
    /// Its nodes run and have served, but reach no majority or know no leader.
    Stalled,
    /// Its nodes run, but no message passes between it and other regions.
    Cut,
    /// Its nodes were killed.
    Down,
    /// A node ended by itself: the note below the table says why.
    Failed,
}

impl State {
    /// As it is shown.
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Up => "up",
            State::Stalled => "stalled",
            State::Cut => "cut",
            State::Down => "down",
            State::Failed => "failed",
        }
    }
}

/// What a region's replica does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// It leads; of several partitions, one at least.
    Leader,
    /// It follows.
    Follower,
    /// It is one of equals: nobody leads.
    Replica,
    /// It believes to lead, but wherever it does another leads in a later reign: it was cut off, and commits nothing.
    Deposed,
    /// There is none: commands of this region travel to others.
    Client,
}

impl Role {
    /// As it is shown.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Leader => "leader",
            Role::Follower => "follower",
            Role::Replica => "replica",
            Role::Deposed => "deposed",
            Role::Client => "client",
        }
    }
}
