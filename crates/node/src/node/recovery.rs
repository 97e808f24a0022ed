//! Bringing the processes of a node back from its data directory.

use super::layout::{self, Layout};
use super::{Keyspaces, NodeConfig, StartError, system_random};
use crate::births::Births;
use crate::hosted::Hosted;
use crate::journal::{DataDirectory, Fsync, JournalError, JournalOptions, JournalThread, Position, StreamId};
use crate::snapshots::{SnapshotThread, Start};
use isochrone_core::deployment::Deployment;
use isochrone_core::{Blob, Identity, Lasting, NodeId};
use mio::Waker;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a journal that takes long enough to read to be said so.
const LARGE: u64 = 64 << 20;

/// A node's data, opened.
pub(super) struct Recovered {
    pub journal: JournalThread,
    pub snapshots: SnapshotThread,
    pub processes: Vec<Box<dyn Hosted>>,
    pub incarnation: u32,
    pub(crate) births: Births,
}

/// Opens the data directory and brings every process back: snapshot, then records.
pub(super) fn recover(
    config: &NodeConfig,
    deployment: &Deployment,
    keyspaces: &Keyspaces,
    waker: &Arc<Waker>,
) -> Result<Recovered, StartError> {
    let directory = DataDirectory::open(&config.data, deployment.cluster_id(), config.node.0, config.expect)
        .map_err(|error| named(error, deployment))?;
    let mut options = JournalOptions::new(deployment.cluster_id(), config.node.0);
    options.fsync = if deployment.fsync() { Fsync::On } else { Fsync::Off };
    let bytes = directory.journal_bytes();
    if bytes > LARGE {
        tracing::info!(bytes, data = %config.data.display(), "reading the journal; clients are refused meanwhile");
    }
    let used = !directory.fresh();
    let layout = check(&config.data, deployment, config.node, &keyspaces.lasting, used, false)?;
    let mut start = Start::open(directory, options)?;
    let incarnation = start.incarnation();
    let mut random = system_random()?;
    let mut processes: BTreeMap<StreamId, Box<dyn Hosted>> = BTreeMap::new();
    for placement in &keyspaces.placements {
        let identity = Identity { process: placement.id, incarnation: process_incarnation(incarnation, 0) };
        let mut process = (placement.open)(identity, random.fork());
        let stream = StreamId(placement.id.to_u64());
        if let Some(found) = start.snapshot(stream)? {
            for chunk in found.chunks {
                let chunk: Blob = chunk?;
                process.restore(chunk).map_err(|error| StartError::Recovery {
                    process: placement.id,
                    cause: error.to_string(),
                })?;
            }
        }
        processes.insert(stream, process);
    }
    let (mut failed, mut orphans) = (None, 0u64);
    start.replay(|stream, record| match processes.get_mut(&stream) {
        Some(process) => {
            if let Err(error) = process.replay(record) {
                failed.get_or_insert((process.identity().process, error.to_string()));
            }
        }
        None => orphans += 1,
    })?;
    if let Some((process, cause)) = failed {
        return Err(StartError::Recovery { process, cause });
    }
    layout.keep(&config.data)?;
    let births = Births::open(&config.data, config.node, incarnation, &mut random)?;
    if let Some(told) = births.unlisted(deployment.nodes().len()) {
        tracing::error!("{told}");
    }
    if orphans > 0 {
        tracing::warn!(
            records = orphans,
            "records of a keyspace that the deployment file no longer has are kept, and so is all of the journal behind them: it \
             grows until the keyspace is in the file again (docs/operations.md, \"Taking a keyspace out\")"
        );
    }
    tracing::info!(incarnation, processes = processes.len(), data = %config.data.display(), "recovered");
    let wake = |waker: &Arc<Waker>| -> Box<dyn Fn() + Send> {
        let waker = Arc::clone(waker);
        // A poll that is gone needs no waking.
        Box::new(move || drop(waker.wake()))
    };
    let (journal, store) = start.finish();
    let journal = JournalThread::start(journal, wake(waker))?;
    let snapshots = SnapshotThread::start(store, journal.mark(), wake(waker))?;
    Ok(Recovered { journal, snapshots, processes: processes.into_values().collect(), incarnation, births })
}

/// What keeps a node from starting on its data directory, as far as that can be told before all of the journal is read; else what
/// the directory is to remember. Nothing is changed. `used` says whether the node has run there, `open` whether a node has it
/// open now: its journal, which moves, is left alone then, and was found sound when that node started.
pub(super) fn check(
    data: &Path,
    deployment: &Deployment,
    node: NodeId,
    lasting: &[Lasting],
    used: bool,
    open: bool,
) -> Result<Layout, StartError> {
    let layout = layout::examine(data, deployment, lasting)?;
    if !used {
        return Ok(layout);
    }
    let mut holds = open;
    if !open {
        let newest = DataDirectory::newest(data, deployment.cluster_id(), node.0);
        let newest = newest.map_err(|error| named(error, deployment))?;
        Births::check(data, node, &newest)?;
        // A first start may have been cut short before it wrote what is looked for below.
        holds = newest.last > Position::ZERO;
    }
    match layout.missing(data).or_else(|| Births::missing(data)) {
        Some(error) if holds => Err(error),
        _ => Ok(layout),
    }
}

/// Whether this node has run in the data directory, which exists, or nobody has.
pub(super) fn is_used(data: &Path, deployment: &Deployment, node: NodeId) -> Result<bool, StartError> {
    DataDirectory::is_used(data, deployment.cluster_id(), node.0).map_err(|error| named(error, deployment))
}

/// The same error, with the names that the deployment has for itself and for nodes.
fn named(error: JournalError, deployment: &Deployment) -> StartError {
    let (path, found, expected) = match error {
        JournalError::OtherNode { path, found, expected } => (path, found, expected),
        JournalError::OtherCluster { path, .. } => {
            return StartError::OtherCluster { path, expected: deployment.cluster().to_owned() };
        }
        other => return other.into(),
    };
    let name = |number: u16| match deployment.nodes().get(usize::from(number)) {
        Some(node) => node.name.clone(),
        None => format!("number {number} in the file, counted from 0, which has no such node"),
    };
    StartError::OtherNode { path, found: name(found), expected: name(expected) }
}

/// The incarnation of a process: the node's, which is durable, and how often the process was started in
/// this life of the node (at most 255 times after the first). It rises at every start of either, and is 1 in
/// the first life of a node, where a process has no promises of an earlier one to fear.
pub fn process_incarnation(node: u32, start: u8) -> u32 {
    (node.saturating_sub(1) << 8 | u32::from(start)) + 1
}
