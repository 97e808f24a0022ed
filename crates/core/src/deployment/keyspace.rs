//! Reading `[[keyspace]]`: where the replicas stand, and that a quorum of them is possible.

use std::collections::BTreeMap;

use super::draft::{Names, Section};
use super::parse::{NODES_MAX, Parser, REPLICATIONS, find_replica};
use super::values::{one_of, suggest};
use super::{CURP_COPIES_MAX, Keyspace, Node, Parameters, Region};
use crate::id::{KeyspaceId, NodeId, RegionId};

/// Far above any deployment; it bounds the work that a hostile file can cause.
pub(super) const PARTITIONS_MAX: u64 = 1_024;

impl Keyspace {
    /// Why so many whole regions as are demanded (`survive`) may not be lost, and what would be right; nothing where they may,
    /// and where nothing is demanded.
    pub(super) fn unsurvived(&self, region: impl Fn(NodeId) -> RegionId) -> Option<(String, String)> {
        let demanded = u64::from(self.survive?);
        let together = [self.replicas.clone()];
        let groups = if self.placement.is_empty() { &together[..] } else { &self.placement };
        let worst = groups.iter().enumerate().map(|(partition, group)| {
            let mut per_region: BTreeMap<RegionId, usize> = BTreeMap::new();
            for id in group {
                *per_region.entry(region(*id)).or_default() += 1;
            }
            let mut sizes: Vec<usize> = per_region.into_values().collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            // The worst loss takes the regions with most replicas first.
            let spare = (group.len() - 1) / 2;
            let survived =
                (1..=sizes.len()).take_while(|lost| sizes[..*lost].iter().sum::<usize>() <= spare).count();
            (survived, partition, group.len(), sizes.len())
        });
        let (survived, partition, replicas, regions) = worst.min()?;
        if demanded > survived as u64 {
            let of = if self.placement.is_empty() { "" } else { &format!(" of partition {partition}") };
            let wrong = format!(
                "survive = {demanded}, but {replicas} replicas{of} in {regions} regions survive the loss of {survived}"
            );
            let places = 2 * demanded + 1;
            return Some((
                wrong,
                format!("place {places} replicas in as many regions, or use survive = {survived}"),
            ));
        }
        if self.protocol != "curp" {
            return None;
        }
        // Whatever majority is left: data are with the master and its copies alone, each in a region of its own here.
        let mut reader = self.parameters.read();
        let f = reader.copies(CURP_COPIES_MAX) as u64;
        // A wrong one the protocol refuses by itself.
        if reader.finish_partly().is_err() || demanded <= f {
            return None;
        }
        let lost = f + 1;
        let wrong = format!(
            "survive = {demanded}, but with f = {f} of its protocol the loss of {lost} may take the master and all copies"
        );
        Some((wrong, format!("use parameters = {{ f = {demanded} }}, or survive = {f}")))
    }
}

impl Parser<'_> {
    pub(super) fn keyspaces(
        &mut self,
        sections: Vec<Section<'_>>,
        nodes: &[(u32, Node)],
        regions: &[Region],
    ) -> Vec<Keyspace> {
        let mut keyspaces: Vec<Keyspace> = Vec::new();
        for (position, section) in sections.into_iter().enumerate() {
            let keyspace = self.keyspace(position, section, nodes, regions, &keyspaces);
            keyspaces.extend(keyspace);
        }
        keyspaces
    }

    fn keyspace(
        &mut self,
        position: usize,
        mut section: Section<'_>,
        nodes: &[(u32, Node)],
        regions: &[Region],
        earlier: &[Keyspace],
    ) -> Option<Keyspace> {
        let name = section.required_text("name", "main", self.mistakes);
        if let Some(name) = &name {
            section.title = format!("keyspace {:?}", name.value);
            self.check_name(&section, "name", name);
            if let Some(first) = earlier.iter().find(|keyspace| keyspace.name == name.value) {
                let wrong = format!("the name is that of the keyspace on line {}", first.line);
                section.refuse(self.mistakes, name.line, wrong, "give each keyspace a name of its own");
            }
        }
        let names = self.known.protocols.iter().copied();
        let protocol =
            section.required_text("protocol", names.clone().next().unwrap_or_default(), self.mistakes);
        if let Some(protocol) = &protocol
            && !names.clone().any(|name| name == protocol.value)
        {
            let wrong = format!("there is no protocol {:?}", protocol.value);
            section.refuse(self.mistakes, protocol.line, wrong, suggest(&protocol.value, names));
        }
        let index = self.index(position, &mut section, earlier);
        let places = protocol.as_ref().is_some_and(|protocol| self.known.places(&protocol.value));
        let partitions = section.integer("partitions", 1, PARTITIONS_MAX, self.mistakes);
        let placed = section.has("placement");
        let placement = match placed {
            true => {
                self.placement(&mut section, protocol.as_ref().map(|protocol| protocol.value.as_str()), nodes)
            }
            false => None,
        };
        if let (Some((groups, _)), Some(partitions)) = (&placement, &partitions)
            && groups.len() as u64 != partitions.value
        {
            let (found, groups) = (partitions.value, groups.len());
            let wrong = format!("partitions = {found}, but placement lists {groups}");
            section.refuse(
                self.mistakes,
                partitions.line,
                wrong,
                "remove partitions; placement says how many",
            );
        }
        let (replicas, replication) = match placed {
            true => (placement.as_ref().map(|(_, replicas)| replicas.clone()), None),
            false => self.replicas(&mut section, nodes).unzip(),
        };
        let replication = replication.flatten();
        // Spread over a ring, the partitions are anywhere.
        let anywhere: Vec<NodeId> = match (places, replication) {
            (true, Some(_)) => nodes.iter().map(|(_, node)| node.id).collect(),
            _ => replicas.clone().unwrap_or_default(),
        };
        let leader = section.text("leader", self.mistakes).filter(|_| !placed);
        let leader = leader.and_then(|place| {
            replicas.as_ref()?;
            let replicas = &anywhere;
            let flat: Vec<Node> = nodes.iter().map(|(_, node)| node.clone()).collect();
            let found = find_replica(&place.value, replicas, &flat, regions);
            if found.is_none() {
                let places = replicas.iter().map(|id| nodes[usize::from(id.0)].1.name.as_str());
                let wrong = format!("leader = {:?} is no replica and no region of one", place.value);
                let right = match suggest(&place.value, regions.iter().map(|region| region.name.as_str())) {
                    hint if hint.ends_with('?') && !regions.iter().any(|r| r.name == place.value) => hint,
                    _ => format!("use {}, or its region", one_of(places)),
                };
                section.refuse(self.mistakes, place.line, wrong, right);
            }
            found
        });
        let partitions = match &placement {
            Some((groups, _)) => groups.len() as u64,
            None => partitions.map_or(1, |found| found.value),
        };
        let survive = section.integer("survive", 0, 3, self.mistakes);
        let redis_port = self.redis_port(&mut section, nodes, earlier);
        let parameters = section.section("parameters", "parameters", self.mistakes);
        let title = name.as_ref().map_or("", |name| name.value.as_str());
        let parameters = Parameters::from_section(parameters.as_ref(), self.mistakes.file(), title);
        let mut keyspace = replicas.map(|replicas| Keyspace {
            // At most KEYSPACES_MAX, so the number fits.
            id: KeyspaceId(position as u16 + 1),
            name: title.to_owned(),
            index,
            protocol: protocol.as_ref().map_or_else(String::new, |protocol| protocol.value.clone()),
            replicas,
            replication,
            placement: placement.map_or_else(Vec::new, |(groups, _)| groups),
            leader,
            // At most PARTITIONS_MAX, so the number fits.
            partitions: partitions as u16,
            // At most 3 by the rule above.
            survive: survive.as_ref().map(|survive| survive.value as u8),
            redis_port,
            parameters,
            line: section.line,
        });
        if let Some(keyspace) = &mut keyspace {
            if places && keyspace.replication.is_some_and(|count| usize::from(count) < nodes.len()) {
                keyspace.spread(nodes.len());
            }
            if let Some(demanded) = survive
                && let Some((wrong, right)) = keyspace.unsurvived(|id| nodes[usize::from(id.0)].1.region)
            {
                section.refuse(self.mistakes, demanded.line, wrong, right);
            }
        }
        section.finish(self.mistakes);
        keyspace.filter(|_| name.is_some() && protocol.is_some())
    }

    fn index(&mut self, position: usize, section: &mut Section<'_>, earlier: &[Keyspace]) -> u16 {
        let found = section.integer("index", 0, u64::from(u16::MAX), self.mistakes);
        let line = found.as_ref().map_or(section.line, |found| found.line);
        // In range: the first by the rule just given, the second by KEYSPACES_MAX.
        let index = found.map_or(position as u16, |found| found.value as u16);
        if let Some(first) = earlier.iter().find(|keyspace| keyspace.index == index) {
            let wrong = format!("index {index} is that of keyspace {:?} on line {}", first.name, first.line);
            let free = (0..=u16::MAX).find(|free| !earlier.iter().any(|keyspace| keyspace.index == *free));
            section.refuse(self.mistakes, line, wrong, format!("use index = {}", free.unwrap_or_default()));
        }
        index
    }

    /// The replicas, and their number where no more is given.
    fn replicas(
        &mut self,
        section: &mut Section<'_>,
        nodes: &[(u32, Node)],
    ) -> Option<(Vec<NodeId>, Option<u8>)> {
        let listed = section.texts("replicas", self.mistakes);
        let counted = section.integer("replication", 0, u64::from(u16::MAX), self.mistakes);
        if let (Some(_), Some(second)) = (&listed, &counted) {
            section.refuse(
                self.mistakes,
                second.line,
                "both replicas and replication are given",
                "keep one of them",
            );
            return None;
        }
        if let Some(listed) = listed {
            return self.listed_replicas(section, &listed, nodes).map(|replicas| (replicas, None));
        }
        if section.has("replicas") || (section.has("replication") && counted.is_none()) || nodes.is_empty() {
            return None;
        }
        let names = nodes.iter().map(|(_, node)| node.name.as_str()).collect::<Vec<_>>().join(", ");
        let odd = REPLICATIONS.iter().rev().find(|n| **n <= nodes.len()).copied().unwrap_or(1);
        let (line, count) = match &counted {
            // More than any number of nodes is refused below, whatever it is cut to.
            Some(counted) => (counted.line, usize::try_from(counted.value).unwrap_or(usize::MAX)),
            None if REPLICATIONS.contains(&nodes.len()) => (section.line, nodes.len()),
            None => {
                let wrong =
                    format!("replication is not given, and the {} nodes cannot all be replicas", nodes.len());
                section.refuse(self.mistakes, section.line, wrong, format!("use replication = {odd}"));
                return None;
            }
        };
        if count > nodes.len() {
            let plural = if nodes.len() == 1 { "node is" } else { "nodes are" };
            let wrong = format!("replication = {count}, but only {} {plural} listed ({names})", nodes.len());
            section.refuse(self.mistakes, line, wrong, format!("use replication = {odd}, or add a node"));
            return None;
        }
        if !REPLICATIONS.contains(&count) {
            self.refuse_replication(section, line, &format!("replication = {count}"), count, nodes.len());
            return None;
        }
        // At most 7.
        Some((nodes[..count].iter().map(|(_, node)| node.id).collect(), Some(count as u8)))
    }

    fn listed_replicas(
        &mut self,
        section: &Section<'_>,
        listed: &Names,
        nodes: &[(u32, Node)],
    ) -> Option<Vec<NodeId>> {
        if listed.value.len() > NODES_MAX {
            let count = listed.value.len();
            let what = format!("replicas names {count} nodes");
            self.refuse_replication(section, listed.line, &what, count, nodes.len());
            return None;
        }
        let mut replicas = Vec::new();
        let mut good = true;
        for name in &listed.value {
            let found = nodes.iter().find(|(_, node)| node.name == name.value).map(|(_, node)| node.id);
            let refusal = match found {
                None => Some((
                    format!("replicas names {:?}, which is no node", name.value),
                    self.node_meant(&name.value, nodes),
                )),
                Some(id) if replicas.contains(&id) => Some((
                    format!("replicas names {:?} twice", name.value),
                    "name each replica once".to_owned(),
                )),
                Some(id) => {
                    replicas.push(id);
                    None
                }
            };
            if let Some((wrong, right)) = refusal {
                section.refuse(self.mistakes, name.line, wrong, right);
                good = false;
            }
        }
        if good && !REPLICATIONS.contains(&replicas.len()) {
            let what = format!("replicas names {} nodes", replicas.len());
            self.refuse_replication(section, listed.line, &what, replicas.len(), nodes.len());
            good = false;
        }
        good.then_some(replicas)
    }

    /// A hint at the node that was probably meant; none where it is told to nobody, since it takes a look at every name.
    pub(super) fn node_meant(&self, name: &str, nodes: &[(u32, Node)]) -> String {
        match self.mistakes.is_full() {
            true => String::new(),
            false => suggest(name, nodes.iter().map(|(_, node)| node.name.as_str())),
        }
    }

    pub(super) fn refuse_replication(
        &mut self,
        section: &Section<'_>,
        line: u32,
        what: &str,
        count: usize,
        nodes: usize,
    ) {
        let wrong = match count {
            0 => format!("{what}, which keeps nothing"),
            even if even % 2 == 0 => {
                format!("{what}, which survives no more crashes than {} and waits for one more", even - 1)
            }
            _ => format!("{what}, more than any quorum should wait for"),
        };
        let possible: Vec<String> =
            REPLICATIONS.iter().filter(|n| **n <= nodes).map(usize::to_string).collect();
        section.refuse(
            self.mistakes,
            line,
            wrong,
            format!("use an odd number of replicas: {}", possible.join(", ")),
        );
    }

    fn redis_port(
        &mut self,
        section: &mut Section<'_>,
        nodes: &[(u32, Node)],
        earlier: &[Keyspace],
    ) -> Option<u16> {
        let port = section.integer("redis_port", 1, u64::from(u16::MAX), self.mistakes)?;
        // In range by the rule just given.
        let value = port.value as u16;
        let keyspace = earlier.iter().find(|keyspace| keyspace.redis_port == Some(value));
        let node = nodes.iter().find(|(_, node)| {
            [&node.peer, &node.redis, &node.grpc, &node.http]
                .iter()
                .any(|a| a.as_ref().is_some_and(|a| a.port() == value))
        });
        let user = match (keyspace, node) {
            (Some(keyspace), _) => Some(format!("keyspace {:?} on line {}", keyspace.name, keyspace.line)),
            (None, Some((line, node))) => Some(format!("node {:?} on line {line}", node.name)),
            (None, None) => None,
        };
        if let Some(user) = user {
            let wrong = format!("redis_port = {value} is already used by {user}");
            section.refuse(self.mistakes, port.line, wrong, "use a port of its own");
        }
        Some(value)
    }
}
