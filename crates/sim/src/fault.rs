//! What can go wrong, by kind, and how often it did.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

pub use crate::plan::{Action, FaultPlan, Planned, Shape};

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal in $group:literal),* $(,)?) => {
        /// A kind of fault.
        #[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
        pub enum FaultKind { $($(#[$doc])* $variant),* }

        impl FaultKind {
            /// All kinds.
            pub const ALL: [FaultKind; [$($name),*].len()] = [$(FaultKind::$variant),*];

            /// Its name in plans and histograms.
            pub fn name(self) -> &'static str {
                match self { $(FaultKind::$variant => $name),* }
            }

            /// The group that the command line names it by.
            pub fn group(self) -> &'static str {
                match self { $(FaultKind::$variant => $group),* }
            }
        }
    };
}

kinds! {
    /// A node crashes between two effects and comes back.
    Crash = "crash" in "crash",
    /// Every node crashes at once and comes back.
    PowerLoss = "power_loss" in "crash",
    /// A client process crashes and comes back as another client.
    ClientCrash = "client_crash" in "crash",
    /// A node stands still for a while, as under SIGSTOP.
    Pause = "pause" in "pause",
    /// A node is 10 to 100 times slow, not dead.
    Gray = "gray" in "pause",
    /// Some nodes cannot reach the others, in both directions.
    Partition = "partition" in "partition",
    /// Some directions between nodes are cut, others not.
    OneWay = "one_way_partition" in "partition",
    /// A region is cut off, or all its nodes crash.
    RegionLoss = "region_loss" in "partition",
    /// Messages are lost; without `reorder`, the connection with them.
    Loss = "loss" in "loss",
    /// Messages arrive twice.
    Duplicate = "duplicate" in "loss",
    /// Messages overtake each other on one connection.
    Reorder = "reorder" in "reorder",
    /// Some links become slow.
    Delay = "delay" in "reorder",
    /// A node's line becomes narrow.
    Bandwidth = "bandwidth" in "bandwidth",
    /// A wall clock is wrong.
    ClockOffset = "clock_offset" in "clock",
    /// A wall clock is stepped, forward or back.
    ClockJump = "clock_jump" in "clock",
    /// A wall clock stands still.
    ClockFreeze = "clock_freeze" in "clock",
    /// A steady clock runs fast or slow, within the bound.
    Drift = "drift" in "clock",
    /// Disks sync between 0.1 and 600 ms, each its own.
    DiskSlow = "disk_slow" in "disk",
    /// A crash leaves a part of what was not synced, the last record torn.
    DiskTorn = "disk_torn" in "disk",
    /// A crash leaves a corrupt record in what was not synced.
    DiskCorrupt = "disk_corrupt" in "disk",
    /// A sync reports an error: the node stops.
    FsyncError = "fsync_error" in "disk",
    /// A synced record is found corrupt or misplaced when the node starts: it refuses, for good.
    BitRot = "bit_rot" in "disk_loss",
    /// A disk is gone: the node does not come back.
    DiskLost = "disk_lost" in "disk_loss",
    /// Snapshots are taken every few records.
    Snapshot = "snapshot" in "snapshot",
    /// The membership changes, as the driver orders.
    Membership = "membership" in "membership",
    /// A node wakes up late and takes what has come meanwhile in one round: senders mixed, timers first or last.
    Rounds = "rounds" in "rounds",
    /// A crash leaves any prefix of what was not synced, strikes between two records, and again soon after a restart.
    Tears = "tears" in "tears",
}

/// A choice of fault kinds.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct FaultSet(u32);

impl FaultSet {
    /// No fault.
    pub const NONE: FaultSet = FaultSet(0);
    /// Every kind but `rounds` and `tears`, without which the seeds that tests name show what they show.
    pub const ALL: FaultSet = FaultSet((1 << FaultKind::Rounds as u32) - 1);
    /// Every kind: `all` on the command line.
    pub const EVERY: FaultSet = FaultSet((1 << FaultKind::ALL.len()) - 1);

    /// Whether a kind is chosen.
    pub fn contains(self, kind: FaultKind) -> bool {
        self.0 & 1 << kind as u32 != 0
    }

    /// With this kind too.
    pub fn with(self, kind: FaultKind) -> FaultSet {
        FaultSet(self.0 | 1 << kind as u32)
    }

    /// Without this kind.
    pub fn without(self, kind: FaultKind) -> FaultSet {
        FaultSet(self.0 & !(1 << kind as u32))
    }

    /// The chosen kinds.
    pub fn kinds(self) -> impl Iterator<Item = FaultKind> {
        FaultKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }

    /// Whether no kind is chosen.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A word that names no fault.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
#[error(
    "'{word}' is no kind of fault; use none, all, a group ({groups}) or a kind ({kinds}), joined by commas"
)]
pub struct UnknownFault {
    /// The word.
    pub word: String,
    groups: String,
    kinds: String,
}

impl FromStr for FaultSet {
    type Err = UnknownFault;

    /// `none`, `all`, or groups and kinds joined by commas.
    fn from_str(text: &str) -> Result<FaultSet, UnknownFault> {
        let mut set = FaultSet::NONE;
        for word in text.split(',').map(str::trim) {
            let found = FaultKind::ALL.into_iter().filter(|kind| kind.name() == word || kind.group() == word);
            let before = set;
            set = found.fold(set, FaultSet::with);
            match word {
                "none" => {}
                "all" => set = FaultSet::EVERY,
                _ if set == before
                    && !FaultKind::ALL.iter().any(|kind| kind.name() == word || kind.group() == word) =>
                {
                    let mut groups: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.group()).collect();
                    groups.dedup();
                    let kinds: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
                    return Err(UnknownFault {
                        word: word.to_owned(),
                        groups: groups.join(", "),
                        kinds: kinds.join(", "),
                    });
                }
                _ => {}
            }
        }
        Ok(set)
    }
}

impl fmt::Display for FaultSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.kinds().map(FaultKind::name).collect();
        f.write_str(
            match (*self, names.join(",")) {
                (FaultSet::NONE, _) => "none".to_owned(),
                (FaultSet::EVERY, _) => "all".to_owned(),
                (_, names) => names,
            }
            .as_str(),
        )
    }
}

/// How many faults of each kind really happened.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct Histogram([u64; FaultKind::ALL.len()]);

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, kind: FaultKind) {
        self.0[kind as usize] += 1;
    }

    /// How many of this kind there were.
    pub fn count(&self, kind: FaultKind) -> u64 {
        self.0[kind as usize]
    }

    /// Every kind with its count.
    pub fn iter(&self) -> impl Iterator<Item = (FaultKind, u64)> + '_ {
        FaultKind::ALL.into_iter().zip(self.0)
    }

    /// All counts together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Histogram) {
        for (own, theirs) in self.0.iter_mut().zip(other.0) {
            *own += theirs;
        }
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (kind, count) in self.iter().filter(|(_, count)| *count > 0) {
            write!(f, "{}{} {count}", if first { "" } else { ", " }, kind.name())?;
            first = false;
        }
        if first { f.write_str("none") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_by_group_and_by_kind() {
        let set: FaultSet = "crash,loss,drift".parse().unwrap();
        assert_eq!(set.to_string(), "crash,power_loss,client_crash,loss,duplicate,drift");
        assert_eq!("all".parse(), Ok(FaultSet::EVERY));
        assert_eq!("none".parse(), Ok(FaultSet::NONE));
        assert_eq!("loss,loss".parse::<FaultSet>().unwrap().kinds().count(), 2);
        let error = "crash,fire".parse::<FaultSet>().unwrap_err().to_string();
        assert!(
            error.starts_with("'fire' is no kind of fault; use none, all, a group (crash, pause,"),
            "{error}"
        );
    }
}
