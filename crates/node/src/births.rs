//! Which data directories nodes have: a node that comes with another one than before has lost what it promised.
//!
//! A directory is given a number at random when its node first starts, its *birth*, which the node tells with
//! every greeting. Every node remembers the births of the others, durably and before it hears anything else of them.
//! Whoever comes back under a known name with an unknown birth has lost its disk, or was started with another directory. It
//! is not listened to, is sent nothing, and is told so, upon which it ends: no protocol here survives a replica that comes
//! back without its memory (`trust.md` R13; `specs/curp.md` D-2).

use crate::listing::Listing;
use crate::node::StartError;
use isochrone_core::{NodeId, Random};
use rand_core::RngCore;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

const PEERS: Listing = Listing {
    name: "PEERS",
    head: "isochrone peers, format 2: number birth",
    older: "isochrone peers, format 1: number birth",
    reads: "formats 1 and 2",
    line: "`number birth`",
};

/// The births that a node knows, its own among them.
#[derive(Debug)]
pub struct Births {
    data: PathBuf,
    own: u64,
    known: BTreeMap<NodeId, u64>,
}

/// What comes of meeting a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stranger {
    /// It is known with another directory.
    #[error(
        "it has another data directory than the one that it is known by: its disk is lost, or it was started with another \
         directory. A node must not come back without its memory: start it with the directory that it had, or put a \
         node of another name in its place (docs/operations.md, \"A node that has lost its disk, or whose journal is damaged\")"
    )]
    Reborn,
    /// It cannot be remembered, and so not be taken for who it is the next time.
    #[error("{path} cannot be written: {cause}")]
    Unwritten {
        /// Where.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
}

impl Births {
    /// What a data directory knows. Where it has no birth it is given one.
    ///
    /// # Errors
    /// The file cannot be read or written, or is not what this version writes.
    pub fn open(data: &Path, me: NodeId, random: &mut Random) -> Result<Births, StartError> {
        let found = PEERS.read(data, entry)?;
        let older = found.as_ref().is_some_and(|found| found.older);
        let known: BTreeMap<_, _> =
            found.map(|found| found.entries).unwrap_or_default().into_iter().collect();
        let own = known.get(&me).copied();
        let mut births = Births { data: data.into(), own: own.unwrap_or_else(|| random.next_u64()), known };
        if own.is_none() {
            births.remember(me, births.own).map_err(|error| PEERS.unfit(data, error))?;
        } else if older {
            births.write().map_err(|error| PEERS.unfit(data, error))?;
        }
        Ok(births)
    }

    /// This node's own.
    pub fn own(&self) -> u64 {
        self.own
    }

    /// What is wrong with a deployment file of so many nodes, if anything: a node was met that it does not have. Whether that
    /// one is needed only the protocols know, so this is no reason not to start.
    pub(crate) fn unlisted(&self, nodes: usize) -> Option<String> {
        let known = self.known.keys().filter(|node| usize::from(node.0) >= nodes);
        let known: Vec<String> = known.map(|node| node.0.to_string()).collect();
        if known.is_empty() {
            return None;
        }
        Some(format!(
            "{}: this node has met nodes that the deployment file does not have: it has {nodes}, counted from 0, and met were \
             {}. What is replicated among those as well cannot be served without them, and clients are told NOLEADER. Start \
             this node with the file that the others are started with",
            PEERS.path(&self.data).display(),
            known.join(", ")
        ))
    }

    /// A node has come with this birth. When this returns, it is known by it for ever.
    pub(crate) fn meet(&mut self, node: NodeId, birth: u64) -> Result<(), Stranger> {
        match self.known.get(&node) {
            Some(known) if *known == birth => Ok(()),
            Some(_) => Err(Stranger::Reborn),
            None => self
                .remember(node, birth)
                .map_err(|cause| Stranger::Unwritten { path: PEERS.path(&self.data), cause }),
        }
    }

    /// Durably, or not at all.
    fn remember(&mut self, node: NodeId, birth: u64) -> io::Result<()> {
        self.known.insert(node, birth);
        let written = self.write();
        if written.is_err() {
            self.known.remove(&node);
        }
        written
    }

    fn write(&self) -> io::Result<()> {
        PEERS.write(&self.data, self.known.iter().map(|(node, birth)| format!("{} {birth:016x}", node.0)))
    }

    /// What keeps a node from starting on data without any, if that is so.
    pub(crate) fn missing(data: &Path) -> Option<StartError> {
        (!PEERS.path(data).exists()).then(|| PEERS.missing(data))
    }
}

fn entry(line: &str) -> Option<(NodeId, u64)> {
    let (number, birth) = line.split_once(' ')?;
    Some((NodeId(number.parse().ok()?), u64::from_str_radix(birth, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(data: &Path, seed: u64) -> Births {
        Births::open(data, NodeId(1), &mut Random::seeded(seed)).unwrap()
    }

    #[test]
    fn who_was_met_is_known_for_ever_and_by_nothing_else() {
        let data = tempfile::tempdir().unwrap();
        let mut births = open(data.path(), 1);
        let own = births.own();
        births.meet(NodeId(2), 7).unwrap();
        births.meet(NodeId(2), 7).unwrap();
        let mut again = open(data.path(), 2);
        assert_eq!(again.own(), own, "a directory is born once");
        for births in [&mut births, &mut again] {
            let refused = births.meet(NodeId(2), 8).unwrap_err();
            assert!(matches!(refused, Stranger::Reborn), "{refused}");
            births.meet(NodeId(2), 7).expect("the first stays the one");
        }
        let other = tempfile::tempdir().unwrap();
        assert_ne!(open(other.path(), 3).own(), own);
    }

    #[test]
    fn a_file_without_somebody_who_was_met_is_told_of() {
        let data = tempfile::tempdir().unwrap();
        let mut births = open(data.path(), 1);
        births.meet(NodeId(0), 7).unwrap();
        births.meet(NodeId(3), 8).unwrap();
        assert_eq!(births.unlisted(4), None);
        let told = open(data.path(), 2).unlisted(2).unwrap();
        assert!(told.contains("it has 2, counted from 0, and met were 3."), "{told}");
        assert!(open(data.path(), 2).unlisted(1).unwrap().contains("met were 1, 3."));
    }

    #[test]
    fn who_cannot_be_written_down_is_not_known() {
        let data = tempfile::tempdir().unwrap();
        let mut births = open(data.path(), 1);
        std::fs::remove_dir_all(data.path()).unwrap();
        let refused = births.meet(NodeId(2), 7).unwrap_err();
        assert!(matches!(refused, Stranger::Unwritten { .. }), "{refused}");
        std::fs::create_dir(data.path()).unwrap();
        births.meet(NodeId(2), 8).expect("nothing was known of it");
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let data = tempfile::tempdir().unwrap();
        let mut births = open(data.path(), 1);
        births.meet(NodeId(2), 7).unwrap();
        let path = PEERS.path(data.path());
        let written = std::fs::read(&path).unwrap();
        for (at, bit) in (0..written.len()).zip((0..8).cycle()) {
            let mut text = written.clone();
            text[at] ^= 1 << bit;
            std::fs::write(&path, &text).unwrap();
            let error = Births::open(data.path(), NodeId(1), &mut Random::seeded(1)).unwrap_err().to_string();
            assert!(error.contains("PEERS"), "{at}: {error}");
        }
        for (text, expected) in [
            ("isochrone peers, format 3\n", "of another format; this version reads formats 1 and 2"),
            ("isochrone peers, format 2: number birth\n1 7\n", "its checksum is another"),
            ("isochrone peers, format 1: number birth\n1\n", "a line is not"),
            ("isochrone peers, format 1: number birth\n1 zz\n", "a line is not"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Births::open(data.path(), NodeId(1), &mut Random::seeded(1)).unwrap_err().to_string();
            assert!(error.contains("PEERS") && error.contains(expected), "{error}");
        }
        // What an earlier version wrote has its checksum from the next start on.
        let old = format!("isochrone peers, format 1: number birth\n1 {:016x}\n2 {:016x}\n", births.own(), 7);
        std::fs::write(&path, old).unwrap();
        assert_eq!(open(data.path(), 2).own(), births.own());
        assert_eq!(std::fs::read(&path).unwrap(), written);
    }
}
