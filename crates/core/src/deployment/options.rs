//! What a command line says in the place of the file.

use super::{ConfigErrors, Deployment, Known, parse, values};
use crate::id::{KeyspaceId, NodeId};

impl Deployment {
    /// The same deployment with another protocol for a keyspace; its parameters fall back to their defaults.
    ///
    /// # Errors
    /// If the protocol is not known; the message is that of a command line option.
    pub fn with_protocol(
        mut self,
        id: KeyspaceId,
        protocol: &str,
        known: &Known,
    ) -> Result<Self, ConfigErrors> {
        if !known.protocols.contains(&protocol) {
            let right = values::suggest(protocol, known.protocols.iter().copied());
            return Err(ConfigErrors::one(
                "--protocol",
                0,
                format!("there is no protocol {protocol:?}"),
                right,
            ));
        }
        let nodes = self.nodes.len();
        let keyspace = &mut self.keyspaces[usize::from(id.0) - 1];
        if keyspace.protocol != protocol {
            keyspace.protocol = protocol.to_owned();
            keyspace.parameters.clear();
        }
        match (known.places(protocol), keyspace.replication) {
            (true, Some(_)) => keyspace.spread(nodes),
            (false, Some(count)) => {
                keyspace.placement.clear();
                keyspace.replicas = (0..u16::from(count)).map(NodeId).collect();
            }
            (false, None) if !keyspace.placement.is_empty() => {
                let wrong = format!(
                    "keyspace {:?} places its partitions one by one, and {protocol} has all on all replicas",
                    keyspace.name
                );
                let right = format!("use {}", values::one_of(known.placing.iter().copied()));
                return Err(ConfigErrors::one("--protocol", 0, wrong, right));
            }
            _ => {}
        }
        Ok(self)
    }

    /// The same deployment with these parameters of a keyspace set: names and values as a file has them, or a text
    /// without its quotes.
    ///
    /// # Errors
    /// A name that is none; the message is that of a command line option. What the protocol does not know it refuses itself.
    pub fn with_parameters(
        mut self,
        id: KeyspaceId,
        settings: &[(String, String)],
    ) -> Result<Self, ConfigErrors> {
        let keyspace = &mut self.keyspaces[usize::from(id.0) - 1];
        for (key, written) in settings {
            keyspace.parameters.set(key, written)?;
        }
        Ok(self)
    }

    /// The same deployment with another preferred leader for a keyspace: a region or a node.
    ///
    /// # Errors
    /// If no replica of the keyspace is there; the message is that of a command line option.
    pub fn with_leader(mut self, id: KeyspaceId, place: &str) -> Result<Self, ConfigErrors> {
        let keyspace = self.keyspace(id);
        let leader = parse::find_replica(place, &keyspace.replicas, &self.nodes, &self.regions);
        let Some(leader) = leader else {
            let wrong = format!("keyspace {:?} has no replica at {place:?}", keyspace.name);
            let places =
                keyspace.replicas.iter().map(|node| self.region(self.node(*node).region).name.as_str());
            return Err(ConfigErrors::one("--leader", 0, wrong, values::suggest(place, places)));
        };
        let nodes = self.nodes.len();
        let keyspace = &mut self.keyspaces[usize::from(id.0) - 1];
        keyspace.leader = Some(leader);
        match (keyspace.placement.is_empty(), keyspace.replication) {
            (true, _) => {}
            (false, Some(_)) => keyspace.spread(nodes),
            (false, None) => {
                let wrong = format!("keyspace {:?} places its partitions one by one", keyspace.name);
                let right = "name the first leader of each partition first in its placement";
                return Err(ConfigErrors::one("--leader", 0, wrong, right));
            }
        }
        Ok(self)
    }

    /// Whether a keyspace survives what its file demands (`survive`), also with what a command line has put in the place of the file's.
    ///
    /// # Errors
    /// If it does not; the message is that of the file, but for the line, which is where the keyspace begins.
    pub fn survives_as_demanded(&self, id: KeyspaceId) -> Result<(), ConfigErrors> {
        let keyspace = self.keyspace(id);
        let Some((wrong, right)) = keyspace.unsurvived(|node| self.node(node).region) else { return Ok(()) };
        let wrong = format!("keyspace {:?}: {wrong}", keyspace.name);
        Err(ConfigErrors::one(self.file.clone(), keyspace.line, wrong, right))
    }

    /// The same with another number of partitions, 1 to 1,024: for simulations, where no data is placed by it.
    ///
    /// # Errors
    /// If the file says where each partition stands; the message is that of a command line option.
    pub fn with_partitions(mut self, id: KeyspaceId, partitions: u16) -> Result<Self, ConfigErrors> {
        let nodes = self.nodes.len();
        let keyspace = &mut self.keyspaces[usize::from(id.0) - 1];
        let partitions = partitions.clamp(1, 1_024);
        let placed = keyspace.placement.len();
        if placed > 0 && keyspace.replication.is_none() && placed != usize::from(partitions) {
            let wrong = format!("keyspace {:?} places {placed} partitions one by one", keyspace.name);
            let right = format!("use {placed}, or give replication in the place of placement");
            return Err(ConfigErrors::one("--partitions", 0, wrong, right));
        }
        keyspace.partitions = partitions;
        if placed > 0 && keyspace.replication.is_some() {
            keyspace.spread(nodes);
        }
        Ok(self)
    }
}
