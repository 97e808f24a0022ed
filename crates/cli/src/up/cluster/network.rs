//! The network between the regions: what `isochrone net` shows and changes.

use super::Cluster;
use crate::net::told::{Link, Network, Region};
use isochrone_node::network::{Ask, Order, WAITING};

impl Cluster {
    /// Does what was asked over HTTP since the last time, answers, and notes what has changed.
    pub(crate) fn obey(&mut self) {
        // No more at a time than can wait: who asks without end must not keep the cluster from being shown.
        let orders: Vec<_> = self.orders.1.try_iter().take(WAITING).collect();
        let json = |network: Network| serde_json::to_string(&network).map_err(|error| error.to_string());
        for Order { ask, respond } in orders {
            respond(self.answer(&ask).and_then(json));
        }
    }

    fn answer(&mut self, ask: &Ask) -> Result<Network, String> {
        let (which, cut) = match ask {
            Ask::Show => return Ok(self.network(None)),
            Ask::Cut(name) => (vec![self.index(name)?], true),
            Ask::Heal(Some(name)) => (vec![self.index(name)?], false),
            Ask::Heal(None) => ((0..self.places.len()).collect(), false),
        };
        let changed = self.set_cut(&which, cut);
        if !changed.is_empty() {
            let names = changed.join(", ");
            let note = match cut {
                true => format!("{names}: cut off by `isochrone net`, no message comes in or out"),
                false => format!("{names}: healed by `isochrone net`"),
            };
            // The receiver lives in this very struct.
            let _ = self.notes.0.send(note);
        }
        Ok(self.network(Some(changed)))
    }

    /// Cuts these regions off from all others, or heals them. The names of those that were otherwise before.
    pub(super) fn set_cut(&mut self, which: &[usize], cut: bool) -> Vec<String> {
        let mut changed = Vec::new();
        for &index in which {
            let place = &mut self.places[index];
            if place.cut != cut {
                place.cut = cut;
                changed.push(self.deployment.region(place.region).name.clone());
            }
        }
        let cut: Vec<_> = self.places.iter().map(|place| place.cut).collect();
        for from in self.deployment.nodes() {
            for to in self.deployment.nodes().iter().filter(|to| to.region != from.region) {
                let apart = cut[usize::from(from.region.0)] || cut[usize::from(to.region.0)];
                if self.emulation.get(from.id, to.id).cut != apart {
                    self.emulation.cut(from.id, to.id, apart);
                }
            }
        }
        changed
    }

    fn index(&self, name: &str) -> Result<usize, String> {
        let found = self.places.iter().position(|place| self.name(place) == name);
        found.ok_or_else(|| {
            let names: Vec<_> = self.places.iter().map(|place| self.name(place)).collect();
            format!("no region is called {name:?}; there are {}", names.join(", "))
        })
    }

    fn network(&self, changed: Option<Vec<String>>) -> Network {
        let name = |index: usize| self.name(&self.places[index]).to_owned();
        let matrix = self.deployment.matrix();
        let mut links = Vec::new();
        for (index, from) in self.places.iter().enumerate() {
            for (other, to) in self.places.iter().enumerate().skip(index + 1) {
                links.push(Link {
                    from: name(index),
                    to: name(other),
                    round_trip_ms: matrix.rtt(from.region, to.region).as_millis_f64(),
                    cut: from.cut || to.cut,
                });
            }
        }
        let regions =
            self.places.iter().map(|place| Region { region: self.name(place).to_owned(), cut: place.cut });
        Network { cluster: self.deployment.cluster().to_owned(), changed, regions: regions.collect(), links }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::view::State;
    use isochrone_core::NodeId;
    use isochrone_node::reactor::Responder;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// What a node passes on, and what is answered in the cluster's next turn.
    fn asked(cluster: &mut Cluster, ask: Ask) -> Result<Network, String> {
        let (answer, answered) = channel();
        let respond: Responder = Box::new(move |outcome| answer.send(outcome).unwrap());
        cluster.orders.0.try_send(Order { ask, respond }).unwrap();
        assert!(answered.try_recv().is_err(), "it is answered before its turn");
        cluster.obey();
        answered.try_recv().unwrap().map(|json| serde_json::from_str(&json).unwrap())
    }

    fn names(network: &Network) -> Vec<&str> {
        network.regions.iter().filter(|region| region.cut).map(|region| region.region.as_str()).collect()
    }

    #[test]
    fn a_command_and_the_key_do_the_same_and_undo_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let deployment = crate::up::tests::near(folder.path(), "2pc");
        let mut cluster =
            Cluster::start(deployment, 0, folder.path().join("data"), Duration::from_secs(1)).unwrap();
        let cut = |region: &str| Ask::Cut(region.to_owned());
        let heal = |region: &str| Ask::Heal(Some(region.to_owned()));

        let whole = asked(&mut cluster, Ask::Show).unwrap();
        assert_eq!((whole.cluster.as_str(), whole.changed.as_deref()), ("near", None));
        assert_eq!((names(&whole), whole.links.len(), whole.is_whole()), (vec![], 10, true));
        let link = &whole.links[1];
        assert_eq!((link.from.as_str(), link.to.as_str(), link.round_trip_ms), ("North", "East", 6.0));
        assert!(whole.links.iter().all(|link| !link.cut));

        let one = asked(&mut cluster, cut("East")).unwrap();
        assert_eq!((one.changed.as_deref(), names(&one)), (Some(&["East".to_owned()][..]), vec!["East"]));
        for link in &one.links {
            assert_eq!(link.cut, link.from == "East" || link.to == "East", "{link:?}");
        }
        let east = NodeId(2);
        assert!(cluster.emulation.isolated(east) && !cluster.emulation.get(NodeId(0), NodeId(1)).cut);
        let note = cluster.note().unwrap();
        assert_eq!(note, "East: cut off by `isochrone net`, no message comes in or out");
        assert_eq!(cluster.look().regions[2].state, State::Cut);
        // Once more: so it is, and nothing is said of it.
        let again = asked(&mut cluster, cut("East")).unwrap();
        assert_eq!((again.changed.as_deref(), names(&again)), (Some(&[] as &[String]), vec!["East"]));
        assert_eq!(cluster.note(), None);

        assert_eq!(cluster.partition(2), "East: healed");
        assert!(!cluster.emulation.isolated(east));
        assert_eq!(names(&asked(&mut cluster, Ask::Show).unwrap()), [""; 0]);
        assert!(cluster.partition(0).starts_with("North: cut off"));
        let both = asked(&mut cluster, cut("South")).unwrap();
        assert_eq!(names(&both), ["North", "South"]);
        let other = asked(&mut cluster, heal("North")).unwrap();
        assert_eq!(names(&other), ["South"]);
        // Between the two the other's cut still stands.
        assert!(cluster.emulation.get(NodeId(0), NodeId(1)).cut);
        assert!(!cluster.emulation.get(NodeId(0), NodeId(2)).cut);
        let all = asked(&mut cluster, Ask::Heal(None)).unwrap();
        assert_eq!((all.changed.as_deref(), names(&all)), (Some(&["South".to_owned()][..]), vec![]));

        let wrong = asked(&mut cluster, cut("east")).unwrap_err();
        assert_eq!(wrong, "no region is called \"east\"; there are North, South, East, West, Middle");
        assert!(cluster.stop());
    }
}
