//! What must hold in every run, whatever the protocol.

use isochrone_core::{Fact, KeyspaceId, PartitionId, ProcessId, Span};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::fmt;

/// What kind of promise was broken.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum ViolationKind {
    /// One position was decided with two values.
    Agreement,
    /// Two states differ behind the same position.
    State,
    /// What may only rise went back.
    Monotonic,
    /// Two processes led one reign.
    Reign,
    /// An invariant of a process failed, or it panicked.
    Panic,
    /// After all faults had ended, a session did not.
    Stuck,
    /// After all faults had ended, what a node was asked was not answered in time; for the caller's clients.
    Liveness,
    /// A ticket was answered that is not open.
    Ticket,
    /// A message, a record or a snapshot did not survive its own encoding.
    Encoding,
    /// The run took more events than it may.
    Budget,
    /// Two runs of one seed differ.
    Determinism,
    /// The recorded history breaks the guarantee; for the caller's checker.
    History,
}

/// A broken promise.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// When, in true time since the start.
    pub at: Span,
    /// What kind.
    pub kind: ViolationKind,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} at {}: {:?}: {}", self.seed, self.at, self.kind, self.text)
    }
}

/// The first word on something, and who said it.
type Said = (u64, ProcessId);

/// What a group said about its log. Positions are dense in every protocol, so a vector serves; one far
/// beyond its end goes into the map.
#[derive(Default)]
struct Positions {
    dense: Vec<Option<Said>>,
    sparse: BTreeMap<u64, Said>,
}

impl Positions {
    /// Notes a digest; gives the first one where it differs.
    fn note(&mut self, position: u64, said: Said) -> Option<Said> {
        const STRIDE: u64 = 1 << 16;
        let first = if position < self.dense.len() as u64 + STRIDE {
            let index = position as usize;
            if index >= self.dense.len() {
                self.dense.resize(index + 1, None);
            }
            self.dense[index].get_or_insert(said)
        } else {
            self.sparse.entry(position).or_insert(said)
        };
        (first.0 != said.0).then_some(*first)
    }
}

#[derive(Default)]
struct Group {
    decided: Positions,
    applied: Positions,
    reigns: BTreeMap<u64, ProcessId>,
}

/// Holds all processes of a group to one log, one state and one leader a reign, through every restart.
#[derive(Default)]
pub(crate) struct Oracle {
    groups: FxHashMap<(KeyspaceId, PartitionId), Group>,
    /// How far each process has applied in this life.
    applied: FxHashMap<ProcessId, u64>,
}

impl Oracle {
    /// A new life of a process begins.
    pub(crate) fn started(&mut self, process: ProcessId) {
        self.applied.remove(&process);
    }

    /// Takes in a fact; gives what it breaks.
    pub(crate) fn fact(&mut self, process: ProcessId, fact: &Fact) -> Option<(ViolationKind, String)> {
        match *fact {
            Fact::Decided { position, digest } => {
                let (other, first) = self.group(process).decided.note(position, (digest, process))?;
                Some((
                    ViolationKind::Agreement,
                    format!(
                        "{process} decided {digest:#x} at position {position}, {first} had decided {other:#x}"
                    ),
                ))
            }
            Fact::Applied { position, digest } => {
                let before = self.applied.insert(process, position).unwrap_or(0);
                if position < before {
                    let text = format!("{process} applied position {position} behind {before}");
                    return Some((ViolationKind::Monotonic, text));
                }
                let digest = digest?;
                let (other, first) = self.group(process).applied.note(position, (digest, process))?;
                Some((
                    ViolationKind::State,
                    format!(
                        "behind position {position} the state of {process} is {digest:#x}, \
                         that of {first} was {other:#x}"
                    ),
                ))
            }
            Fact::Leads { reign } => {
                let first = *self.group(process).reigns.entry(reign).or_insert(process);
                (first != process).then(|| {
                    (ViolationKind::Reign, format!("{process} leads reign {reign}, which {first} led"))
                })
            }
            Fact::Follows
            | Fact::Committed { .. }
            | Fact::LastVoter(_)
            | Fact::Counted(_)
            | Fact::Added(..)
            | Fact::Stands { .. }
            | Fact::Members { .. } => None,
        }
    }

    fn group(&mut self, process: ProcessId) -> &mut Group {
        self.groups.entry((process.keyspace, process.partition)).or_default()
    }
}
