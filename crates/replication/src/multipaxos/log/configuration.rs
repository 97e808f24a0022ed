//! Who the replicas are.

use crate::order::Member;
use crate::request::Refusal;
use isochrone_core::{NodeId, ProcessId, Quorums, ReplicaId, ReplicaSet};
use serde::{Deserialize, Serialize};

/// The members from some slot on.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Configuration {
    version: u32,
    members: Vec<Member>,
    /// How many seats were ever taken: the next one.
    seats: u8,
}

impl Configuration {
    /// The first configuration of a group.
    pub fn initial(members: &[Member]) -> Configuration {
        let seats = members.iter().map(|member| member.replica.0 + 1).max().unwrap_or(0);
        Configuration { version: 0, members: members.to_vec(), seats }
    }

    /// How many changes led here.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The members, in the order in which they joined.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether this seat is a member's.
    pub fn contains(&self, replica: ReplicaId) -> bool {
        self.members.iter().any(|member| member.replica == replica)
    }

    /// How many make a quorum.
    pub fn majority(&self) -> usize {
        Quorums::majority(self.members.len())
    }

    /// Whether these contain a quorum.
    pub fn quorum(&self, replicas: ReplicaSet) -> bool {
        let among = self.members.iter().filter(|member| replicas.contains(member.replica)).count();
        among >= self.majority()
    }

    /// The member on this node.
    pub fn on(&self, node: NodeId) -> Option<Member> {
        self.members.iter().find(|member| member.process.node == node).copied()
    }

    /// The seat of this process.
    pub fn seat(&self, process: ProcessId) -> Option<ReplicaId> {
        self.members.iter().find(|member| member.process == process).map(|member| member.replica)
    }

    /// With one member more, in a seat that nobody had; `None` where the process is a member already.
    ///
    /// # Errors
    /// All seats that a group may have in its life were taken.
    pub fn with(&self, process: ProcessId) -> Result<Option<Configuration>, Refusal> {
        if self.seat(process).is_some() {
            return Ok(None);
        }
        if self.seats >= NO_SEAT.0 {
            return Err(Refusal::Impossible);
        }
        let mut next = self.clone();
        next.version += 1;
        next.members.push(Member { replica: ReplicaId(self.seats), process });
        next.seats += 1;
        Ok(Some(next))
    }

    /// With one member less; `None` where the process is none.
    ///
    /// # Errors
    /// It is the last one.
    pub fn without(&self, process: ProcessId) -> Result<Option<Configuration>, Refusal> {
        if self.seat(process).is_none() {
            return Ok(None);
        }
        if self.members.len() == 1 {
            return Err(Refusal::Impossible);
        }
        let mut next = self.clone();
        next.version += 1;
        next.members.retain(|member| member.process != process);
        Ok(Some(next))
    }
}

/// The seat of a process that was never a member.
pub(super) const NO_SEAT: ReplicaId = ReplicaId(ReplicaSet::SEATS - 1);

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::{KeyspaceId, PartitionId, Role};

    fn process(node: u16) -> ProcessId {
        let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
        ProcessId { node: NodeId(node), keyspace, partition, role: Role(0), instance: 0 }
    }

    fn group(nodes: u16) -> Configuration {
        let member = |node| Member { replica: ReplicaId(node as u8), process: process(node) };
        Configuration::initial(&(0..nodes).map(member).collect::<Vec<_>>())
    }

    #[test]
    fn a_seat_is_never_taken_twice() {
        let three = group(3);
        let four = three.with(process(7)).unwrap().unwrap();
        assert_eq!(four.seat(process(7)), Some(ReplicaId(3)));
        let back = four.without(process(7)).unwrap().unwrap();
        let again = back.with(process(7)).unwrap().unwrap();
        assert_eq!(again.seat(process(7)), Some(ReplicaId(4)), "whoever comes back has another seat");
        assert_eq!(again.version(), 3);
    }

    #[test]
    fn what_is_so_already_changes_nothing_and_the_last_one_stays() {
        assert_eq!(group(3).with(process(1)), Ok(None));
        assert_eq!(group(3).without(process(9)), Ok(None));
        assert_eq!(group(1).without(process(0)), Err(Refusal::Impossible));
    }

    #[test]
    fn majorities_before_and_after_one_change_meet() {
        for n in 1..=7u16 {
            let (before, after) = (group(n), group(n + 1));
            for some in 0u32..1 << (n + 1) {
                let set = |bits: u32| (0..=n as u8).filter(|r| bits & 1 << r != 0).map(ReplicaId).collect();
                let others = !some & ((1 << (n + 1)) - 1);
                assert!(!(before.quorum(set(some)) && after.quorum(set(others))), "{n} {some:b}");
            }
        }
    }

    #[test]
    fn seats_run_out_before_the_last_one() {
        let mut group = group(1);
        for node in 1.. {
            match group.with(process(node)) {
                Ok(Some(next)) => group = next.without(process(node)).unwrap().unwrap(),
                refused => {
                    assert_eq!(refused, Err(Refusal::Impossible));
                    assert_eq!(node, u16::from(NO_SEAT.0));
                    return;
                }
            }
        }
    }
}
