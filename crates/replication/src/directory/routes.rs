//! What a client keeps of the directory.

use super::entry::{Reply, Route, Version};
use isochrone_core::{KeyspaceId, PartitionId, key_hash};
use std::collections::BTreeMap;

/// The routes that a client was told, as a value: no arcs in it overlap.
///
/// They may be out of date, so whoever serves a partition refuses keys outside it; the client then forgets
/// the route and asks again (`Command::Route`). Nothing here is needed for safety.
#[derive(Clone, Eq, PartialEq, Hash, Default, Debug)]
pub struct Routes(BTreeMap<(KeyspaceId, u64), Route>);

impl Routes {
    /// Takes in what the directory answered; answers without routes teach nothing.
    pub fn learn(&mut self, reply: &Reply) {
        match reply {
            Reply::Route(route) => self.add(route),
            Reply::Keyspace(_, _, routes) => routes.iter().for_each(|route| self.add(route)),
            Reply::Orders(orders) => orders.iter().for_each(|order| self.add(&order.route)),
            Reply::Nodes(_) | Reply::Changed(_) | Reply::Refused(_) => {}
        }
    }

    /// The way to this key, where it is known.
    pub fn route(&self, keyspace: KeyspaceId, key: &[u8]) -> Option<&Route> {
        let place = key_hash(keyspace, key);
        let (_, route) = self.0.range((keyspace, 0)..=(keyspace, place)).next_back()?;
        (place <= route.last).then_some(route)
    }

    /// Drops the way to a partition that turned out wrong at this version, and older ones; one that was
    /// learnt since is newer and stays.
    pub fn forget(&mut self, keyspace: KeyspaceId, partition: PartitionId, version: Version) {
        self.0.retain(|_, known| {
            (known.keyspace, known.partition) != (keyspace, partition) || known.version > version
        });
    }

    fn add(&mut self, new: &Route) {
        let of_keyspace = (new.keyspace, 0)..=(new.keyspace, u64::MAX);
        let mut gone = Vec::new();
        for (at, known) in self.0.range(of_keyspace) {
            let same = known.partition == new.partition;
            if same && known.version > new.version {
                return;
            }
            // Versions of different partitions have no order: the later word wins.
            if same || (known.first <= new.last && new.first <= known.last) {
                gone.push(*at);
            }
        }
        for at in gone {
            self.0.remove(&at);
        }
        self.0.insert((new.keyspace, new.first), new.clone());
    }
}
