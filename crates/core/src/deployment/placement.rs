//! Where each partition stands, for protocols that place them one by one.

use super::Keyspace;
use super::draft::{Names, Section};
use super::parse::{NODES_MAX, Parser, REPLICATIONS};
use super::values::one_of;
use super::{Node, keyspace::PARTITIONS_MAX};
use crate::id::NodeId;

impl Keyspace {
    /// Spreads the partitions over a ring of all nodes: each on so many neighbours as it has replicas, the next one
    /// node further, beginning with the leader (`specs/carousel.md` 8.1).
    pub(super) fn spread(&mut self, nodes: usize) {
        let Some(count) = self.replication.map(usize::from) else { return };
        let first = self.leader.map_or(0, |node| usize::from(node.0));
        // At most NODES_MAX nodes, so every number fits.
        let on = |partition: usize| {
            (0..count.min(nodes)).map(|seat| NodeId(((first + partition + seat) % nodes) as u16)).collect()
        };
        self.placement = (0..usize::from(self.partitions)).map(on).collect();
        self.replicas = all_of(&self.placement);
    }
}

/// Every node of some groups, once, in the order of their numbers.
fn all_of(groups: &[Vec<NodeId>]) -> Vec<NodeId> {
    let nodes: std::collections::BTreeSet<NodeId> = groups.iter().flatten().copied().collect();
    nodes.into_iter().collect()
}

impl Parser<'_> {
    /// `placement = [["a", "b", "c"], ...]`: the nodes of each partition and of all; `None` where something is wrong,
    /// which is then noted.
    pub(super) fn placement(
        &mut self,
        section: &mut Section<'_>,
        protocol: Option<&str>,
        nodes: &[(u32, Node)],
    ) -> Option<(Vec<Vec<NodeId>>, Vec<NodeId>)> {
        let given = section.lists("placement", self.mistakes);
        let beside = [
            section.texts("replicas", self.mistakes).map(|found| ("replicas", found.line)),
            section
                .integer("replication", 0, u64::from(u16::MAX), self.mistakes)
                .map(|found| ("replication", found.line)),
        ];
        for (key, line) in beside.into_iter().flatten() {
            let wrong = format!("both placement and {key} are given");
            section.refuse(
                self.mistakes,
                line,
                wrong,
                "keep one of them; the replicas are all nodes that are placed",
            );
        }
        if let Some(leader) = section.text("leader", self.mistakes) {
            let right = "remove it; the first node of each list leads first";
            section.refuse(self.mistakes, leader.line, "both placement and leader are given", right);
        }
        let given = given?;
        if let Some(protocol) = protocol.filter(|protocol| !self.known.places(protocol)) {
            let wrong = format!("placement is given, but all partitions of {protocol} are on all replicas");
            let right = match self.known.placing.as_slice() {
                [] => "remove it".to_owned(),
                names => format!("remove it, or use protocol = {}", one_of(names.iter().copied())),
            };
            section.refuse(self.mistakes, given.line, wrong, right);
            return None;
        }
        if given.value.is_empty() || given.value.len() as u64 > PARTITIONS_MAX {
            let wrong = format!("placement lists {} partitions", given.value.len());
            section.refuse(self.mistakes, given.line, wrong, format!("list 1 to {PARTITIONS_MAX}"));
            return None;
        }
        let groups: Vec<_> = given
            .value
            .iter()
            .enumerate()
            .map(|(partition, listed)| self.placed(section, partition, listed, nodes))
            .collect();
        let groups: Vec<Vec<NodeId>> = groups.into_iter().collect::<Option<_>>()?;
        let replicas = all_of(&groups);
        Some((groups, replicas))
    }

    /// The nodes of one partition.
    fn placed(
        &mut self,
        section: &Section<'_>,
        partition: usize,
        listed: &Names,
        nodes: &[(u32, Node)],
    ) -> Option<Vec<NodeId>> {
        if listed.value.len() > NODES_MAX {
            let count = listed.value.len();
            let what = format!("placement of partition {partition} names {count} nodes");
            self.refuse_replication(section, listed.line, &what, count, nodes.len());
            return None;
        }
        let mut group = Vec::new();
        let mut good = true;
        for name in &listed.value {
            let found = nodes.iter().find(|(_, node)| node.name == name.value).map(|(_, node)| node.id);
            let refusal = match found {
                None => Some((
                    format!("placement of partition {partition} names {:?}, which is no node", name.value),
                    self.node_meant(&name.value, nodes),
                )),
                Some(id) if group.contains(&id) => Some((
                    format!("placement of partition {partition} names {:?} twice", name.value),
                    "name each node of a partition once".to_owned(),
                )),
                Some(id) => {
                    group.push(id);
                    None
                }
            };
            if let Some((wrong, right)) = refusal {
                section.refuse(self.mistakes, name.line, wrong, right);
                good = false;
            }
        }
        if good && !REPLICATIONS.contains(&group.len()) {
            let what = format!("placement of partition {partition} names {} nodes", group.len());
            self.refuse_replication(section, listed.line, &what, group.len(), nodes.len());
            good = false;
        }
        good.then_some(group)
    }
}
