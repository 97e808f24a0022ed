//! Bringing the processes of a node back from its data directory.

use super::layout::{self, Layout};
use super::{StartError, system_random};
use crate::births::Births;
use crate::hosted::Hosted;
use crate::journal::{
    DataDirectory, Expect, Fsync, JournalError, JournalOptions, JournalThread, Position, SNAPSHOTS, StreamId,
};
use crate::protocols::Placement;
use crate::snapshots::{SnapshotError, SnapshotStore, SnapshotThread, Start};
use isochrone_core::deployment::Deployment;
use isochrone_core::{Blob, Identity, Lasting, NodeId};
use mio::Waker;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a journal that takes long enough to read to be said so.
const LARGE: u64 = 64 << 20;

/// A node's data, opened.
pub(super) struct Recovered {
    pub(super) journal: JournalThread,
    pub(super) snapshots: SnapshotThread,
    pub(super) incarnation: u32,
    pub(super) births: Births,
}

/// What it takes to bring a node's processes back: its [`NodeConfig`](super::NodeConfig), as far as that is of use, and what it serves.
pub(super) struct Recovery {
    pub(super) data: PathBuf,
    pub(super) node: NodeId,
    pub(super) expect: Expect,
    pub(super) deployment: Arc<Deployment>,
    pub(super) placements: Vec<Placement>,
    pub(super) lasting: Vec<Lasting>,
    pub(super) waker: Arc<Waker>,
}

/// Opens the data directory and brings every process back: snapshot, then records.
pub(super) fn recover(recovery: &Recovery) -> Result<(Vec<Box<dyn Hosted>>, Recovered), StartError> {
    let Recovery { data, node, expect, deployment, placements, lasting, waker } = recovery;
    let directory = DataDirectory::open(data, deployment.cluster_id(), node.0, *expect)
        .map_err(|error| named(error, deployment))?;
    let mut options = JournalOptions::new(deployment.cluster_id(), node.0);
    options.fsync = if deployment.fsync() { Fsync::On } else { Fsync::Off };
    let bytes = directory.journal_bytes();
    if bytes > LARGE {
        tracing::info!(bytes, data = %data.display(), "reading the journal; clients are refused meanwhile");
    }
    let used = !directory.fresh();
    let layout = check(data, deployment, *node, lasting, used, false)?;
    options.birth = Births::birth(data, *node)?;
    let mut start = Start::open(directory, options).map_err(|error| match error {
        SnapshotError::Journal(error) => named(error, deployment),
        other => other.into(),
    })?;
    let incarnation = start.incarnation();
    let mut random = system_random()?;
    let mut processes: BTreeMap<StreamId, Box<dyn Hosted>> = BTreeMap::new();
    for placement in placements {
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
    layout.keep(data)?;
    let births = Births::open(data, *node, incarnation, start.birth(), &mut random)?;
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
    tracing::info!(incarnation, processes = processes.len(), data = %data.display(), "recovered");
    let wake = |waker: &Arc<Waker>| -> Box<dyn Fn() + Send> {
        let waker = Arc::clone(waker);
        // A poll that is gone needs no waking.
        Box::new(move || drop(waker.wake()))
    };
    let (journal, store) = start.finish();
    let journal = JournalThread::start(journal, wake(waker))?;
    let snapshots = SnapshotThread::start(store, journal.mark(), wake(waker))?;
    Ok((processes.into_values().collect(), Recovered { journal, snapshots, incarnation, births }))
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
        let birth = Births::birth(data, node)?;
        let newest = DataDirectory::newest(data, deployment.cluster_id(), node.0, birth);
        let newest = newest.map_err(|error| named(error, deployment))?;
        Births::check(data, node, &newest)?;
        SnapshotStore::openable(&data.join(SNAPSHOTS))?;
        // A first start may have been cut short before it wrote what is looked for below.
        holds = newest.last > Position::ZERO;
    }
    // Who is alone has met nobody, and its birth is in its journal.
    let alone = deployment.nodes().len() == 1;
    match layout.missing(data).or_else(|| Births::missing(data).filter(|_| !alone)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::format::SegmentHeader;
    use crate::journal::{Batch, Journal};
    use isochrone_core::Random;
    use std::fs;

    /// So many nodes, the first of which has the only replica.
    fn deployment(nodes: u16) -> Deployment {
        let mut text = "cluster = \"t\"\n[[region]]\nname = \"here\"\n".to_owned();
        for node in 0..nodes {
            let port = 7000 + node;
            text +=
                &format!("[[node]]\nname = \"n{node}\"\nregion = \"here\"\nlisten = \"127.0.0.1:{port}\"\n");
        }
        text += "[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\nreplicas = [\"n0\"]\n";
        let known = isochrone_core::Known::names(&["multipaxos"]);
        Deployment::parse(&text, "t.toml", Path::new(""), &known).unwrap()
    }

    /// The first node starts as [`recover`] has it.
    fn begin(data: &Path, deployment: &Deployment) -> Result<Journal, StartError> {
        let (cluster, me) = (deployment.cluster_id(), NodeId(0));
        let directory = DataDirectory::open(data, cluster, 0, Expect::Anything)?;
        let layout = check(data, deployment, me, &[Lasting::default()], !directory.fresh(), false)?;
        let options = JournalOptions { birth: Births::birth(data, me)?, ..JournalOptions::new(cluster, 0) };
        let (journal, _) = Journal::open(directory, options)?;
        layout.keep(data)?;
        Births::open(data, me, journal.incarnation(), journal.birth(), &mut Random::seeded(1))?;
        Ok(journal)
    }

    /// It starts and acknowledges something.
    fn live(data: &Path, deployment: &Deployment) -> Result<(), StartError> {
        let mut batch = Batch::default();
        batch.record(StreamId(1), b"acknowledged");
        begin(data, deployment)?.append_sync(&[batch])?;
        Ok(())
    }

    fn birth(data: &Path) -> u64 {
        let birth = Births::birth(data, NodeId(0)).unwrap();
        let segment = fs::read(data.join("journal/segment-0000000000000001.journal")).unwrap();
        let head = SegmentHeader::decode(&segment).unwrap();
        assert_eq!(head.birth, birth, "the journal bears it as well");
        birth
    }

    #[test]
    fn a_journal_or_a_birth_of_another_directory_is_refused() {
        let deployment = deployment(3);
        let [one, other] = [0, 1].map(|_| {
            let data = tempfile::tempdir().unwrap();
            live(data.path(), &deployment).unwrap();
            data
        });
        assert_ne!(birth(one.path()), birth(other.path()));
        for what in ["journal", "PEERS"] {
            let exchange = || {
                let [mine, theirs] = [&one, &other].map(|data| data.path().join(what));
                let aside = one.path().join("aside");
                fs::rename(&mine, &aside).unwrap();
                fs::rename(&theirs, &mine).unwrap();
                fs::rename(&aside, &theirs).unwrap();
            };
            exchange();
            let segment = one.path().join("journal/segment-0000000000000001.journal");
            let before = fs::read(&segment).unwrap();
            for _ in 0..2 {
                let refused = live(one.path(), &deployment).unwrap_err().to_string();
                let told = format!("{}: this was made in another data directory", segment.display());
                assert!(refused.starts_with(&told), "{refused}");
            }
            assert!(fs::read(&segment).unwrap() == before, "it was changed");
            exchange();
        }
        for data in [one, other] {
            live(data.path(), &deployment).unwrap();
        }
    }

    #[test]
    fn wherever_a_first_start_is_cut_short_the_next_one_goes_on() {
        let deployment = deployment(3);
        let written = ["IDENTITY", "KEYSPACES", "PEERS"];
        for there in 0..=written.len() {
            let data = tempfile::tempdir().unwrap();
            drop(begin(data.path(), &deployment).unwrap());
            let born = birth(data.path());
            for name in &written[there..] {
                fs::remove_file(data.path().join(name)).unwrap();
            }
            for _ in 0..2 {
                live(data.path(), &deployment).unwrap();
                assert_eq!(birth(data.path()), born, "{there}");
            }
        }
    }

    #[test]
    fn only_who_is_alone_may_lose_what_it_knows_of_its_peers() {
        let data = tempfile::tempdir().unwrap();
        let alone = deployment(1);
        live(data.path(), &alone).unwrap();
        let born = birth(data.path());
        fs::remove_file(data.path().join("PEERS")).unwrap();
        let refused = live(data.path(), &deployment(3)).unwrap_err().to_string();
        assert!(refused.contains("PEERS: it is missing, though there is data beside it"), "{refused}");
        live(data.path(), &alone).unwrap();
        assert_eq!(birth(data.path()), born);
        fs::remove_file(data.path().join("KEYSPACES")).unwrap();
        let refused = live(data.path(), &alone).unwrap_err().to_string();
        assert!(refused.contains("KEYSPACES: it is missing, though there is data beside it"), "{refused}");
    }
}
