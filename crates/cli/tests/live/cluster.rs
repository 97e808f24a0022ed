//! Real nodes, each of which stands behind wires of its own to every other, so that any of them can be hurt and cut off.

use super::processes::{Addresses, Process, deployment_of, leader, node, nodes, page, spawn, until};
use super::proxy::{Proxy, Wire, between, seen};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Nodes that run, but for those that a test has killed.
pub struct Cluster {
    pub folder: PathBuf,
    pub addresses: Vec<Addresses>,
    /// The deployment as clients see it: without wires.
    pub file: PathBuf,
    /// The wire by which a node dials another.
    wires: Vec<Vec<Option<Proxy>>>,
    /// The deployment as each node sees it.
    files: Vec<PathBuf>,
    pub processes: Vec<Process>,
}

impl Cluster {
    /// So many nodes of one protocol, in its folder, once each says that it serves.
    pub fn start(folder: &Path, protocol: &str, count: usize) -> Cluster {
        let addresses = nodes(count);
        let wires = between(&addresses, Proxy::to);
        let files: Vec<_> = (0..count)
            .map(|me| {
                let seen = seen(&addresses, &wires[me]);
                deployment_of(folder, &format!("n{me}.toml"), "live", &seen, protocol)
            })
            .collect();
        let file = deployment_of(folder, "all.toml", "live", &addresses, protocol);
        let processes = (0..count).map(|index| node(&files[index], index, folder)).collect();
        Cluster { folder: folder.to_owned(), addresses, file, wires, files, processes }
    }

    /// The node that the others, or all where none is left out, agree leads.
    pub fn leader(&self, without: Option<usize>) -> usize {
        until("a leader", || {
            let mut found = BTreeSet::new();
            for index in (0..self.addresses.len()).filter(|index| Some(*index) != without) {
                found.insert(leader(self.addresses[index].http)?);
            }
            let name = found.pop_first().filter(|_| found.is_empty())?;
            let index = name.strip_prefix('n')?.parse().ok()?;
            (Some(index) != without).then_some(index)
        })
    }

    /// Changes the wire by which a node dials another.
    pub fn wire(&self, from: usize, to: usize, wire: Wire) {
        if let Some(one) = &self.wires[from][to] {
            one.set(wire);
        }
    }

    /// Changes all wires from and to a node.
    pub fn wires_of(&self, node: usize, wire: Wire) {
        for other in 0..self.addresses.len() {
            self.wire(node, other, wire);
            self.wire(other, node, wire);
        }
    }

    /// SIGKILL, and its end.
    pub fn kill(&mut self, victim: usize) {
        self.processes[victim].signal("KILL");
        assert_eq!(self.processes[victim].end(), None, "a signal has ended it");
    }

    /// Starts a node that has been killed, and waits until it says that it serves.
    pub fn start_again(&mut self, victim: usize) {
        self.processes[victim] = node(&self.files[victim], victim, &self.folder);
    }

    /// The same without waiting.
    pub fn spawn(&mut self, victim: usize) {
        self.processes[victim] = spawn(&self.files[victim], victim, &self.folder);
    }
}

impl Drop for Cluster {
    /// Of a test that fails, what its nodes say: their folder goes with it.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for (index, process) in self.processes.iter_mut().enumerate() {
            let log = std::fs::read_to_string(self.folder.join(format!("n{index}.log"))).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(40)..];
            let page = page(self.addresses[index].http, "/metrics");
            let metrics = page.as_deref().unwrap_or("does not answer").lines();
            let dull =
                |line: &&str| line.starts_with('#') || line.contains("_bucket{") || line.contains("_limit{");
            let metrics: Vec<_> = metrics.filter(|line| !dull(line)).collect();
            let state = process.state();
            println!("n{index} ({state}):\n{}\n{}", last.join("\n"), metrics.join("\n"));
        }
    }
}
