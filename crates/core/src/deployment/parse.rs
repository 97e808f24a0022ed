//! From text by way of drafts to a [`Deployment`]: here every mistake but those inside a value is found.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::DeTable;

use super::draft::{Located, Refusal, Section, Source, as_span, as_text};
use super::error::{ConfigErrors, Mistakes};
use super::values::{one_of, scaled, suggest};
use super::{Address, Deployment, Known, Limits, Network, Node, Region, security};
use crate::id::{NodeId, RegionId};
use crate::notify::Flags;
use crate::time::Span;
use crate::topology::{Cells, Matrix};

/// Replicas a keyspace may have. An even number needs a larger majority and survives no more crashes.
pub(super) const REPLICATIONS: [usize; 4] = [1, 3, 5, 7];
/// The round trip within a region when nothing is said: two machines of one datacenter.
pub(super) const LAN_RTT: Span = Span::from_micros(500);
/// The name of a cluster that has none.
pub(super) const CLUSTER: &str = "isochrone";

/// Far above any deployment; they bound the work that a hostile file can cause.
const REGIONS_MAX: usize = 64;
pub(super) const NODES_MAX: usize = 256;
const KEYSPACES_MAX: usize = 256;
const NAME_MAX: usize = 64;
const TEXT_MAX: usize = 1 << 20;

/// How the text of a matrix is fetched: a file for most, a constant for the built-in deployment.
pub(super) type Read<'a> = &'a dyn Fn(&Path) -> Result<String, String>;

pub(super) fn deployment(
    text: &str,
    file: &str,
    base: &Path,
    known: &Known,
    read: Read<'_>,
) -> Result<Deployment, ConfigErrors> {
    let mut mistakes = Mistakes::in_file(file);
    if text.len() > TEXT_MAX {
        mistakes.at(0, "the file is larger than 1 MiB", "give a deployment file");
        return mistakes.unless_any(None);
    }
    let source = Source::new(text);
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let line = error.span().map_or(0, |span| source.line(span.start));
        mistakes.at(
            line,
            format!("not TOML: {}", error.message().trim()),
            "see docs/deployment.md for the form of the file",
        );
    }
    if !mistakes.is_empty() {
        return mistakes.unless_any(None);
    }
    let root = Section::new(&source, root.get_ref(), 1, "");
    let deployment = Parser { base, known, read, mistakes: &mut mistakes }.deployment(root);
    let good = mistakes.is_empty();
    mistakes.unless_any(deployment.filter(|_| good))
}

/// More clients than a region can have: it keeps every sum of weighted latencies far from overflow.
const CLIENTS_MAX: u64 = 1_000_000;

/// The replica at a place: a node by its name, or the first replica of a region.
pub(super) fn find_replica(
    place: &str,
    replicas: &[NodeId],
    nodes: &[Node],
    regions: &[Region],
) -> Option<NodeId> {
    let node = |id: &NodeId| &nodes[usize::from(id.0)];
    let region = regions.iter().find(|region| region.name == place).map(|region| region.id);
    let by_name = replicas.iter().find(|id| node(id).name == place);
    by_name.or_else(|| replicas.iter().find(|id| Some(node(id).region) == region)).copied()
}

pub(super) struct Parser<'p> {
    base: &'p Path,
    pub(super) known: &'p Known,
    read: Read<'p>,
    pub(super) mistakes: &'p mut Mistakes,
}

impl Parser<'_> {
    fn deployment(mut self, mut root: Section<'_>) -> Option<Deployment> {
        let cluster = root.text("cluster", self.mistakes);
        if let Some(name) = &cluster {
            self.check_name(&root, "cluster", name);
        }
        let notifies = root.read("notify_keyspace_events", self.mistakes, |value| {
            let right = "use letters of \"AKEg$lshzxetdmn\", such as \"KEA\" or \"Ex\"; \"\" is nothing";
            let flags = Flags::parse(as_text(value.as_str())?.as_bytes());
            flags.ok_or_else(|| Refusal::new("has a letter that is no class of events", right))
        });
        let region_sections = root.sections("region", self.mistakes);
        let node_sections = root.sections("node", self.mistakes);
        let network = root.section("network", "[network]", self.mistakes);
        let keyspace_sections = root.sections("keyspace", self.mistakes);
        let security = root.section("security", "[security]", self.mistakes);
        let journal = root.section("journal", "[journal]", self.mistakes);
        let limits = root.section("limits", "[limits]", self.mistakes);
        for (kind, count, most) in [
            ("region", region_sections.len(), REGIONS_MAX),
            ("node", node_sections.len(), NODES_MAX),
            ("keyspace", keyspace_sections.len(), KEYSPACES_MAX),
        ] {
            // Where the key is there but is no list of tables, that was already said.
            if count == 0 && !root.has(kind) {
                self.mistakes.at(0, format!("there is no {kind}"), format!("add [[{kind}]] with its name"));
            } else if count > most {
                self.mistakes.at(0, format!("there are {count} [[{kind}]]"), format!("use at most {most}"));
                return None;
            }
        }
        root.finish(self.mistakes);

        let regions = self.regions(region_sections);
        let nodes = self.nodes(node_sections, &regions);
        self.refuse_empty_regions(&regions, &nodes);
        let (network, lan_rtt, matrix) = self.network(network, &regions);
        let mut security = security::parse(security, self.base, self.mistakes);
        security.insecure |= self.known.insecure;
        security::refuse_plain_text(&nodes, &security, self.mistakes);
        let fsync = self.journal(journal);
        let limits = Limits::parse(limits, self.mistakes);
        let nodes: Vec<(u32, Node)> = nodes;
        let regions: Vec<Region> = regions.into_iter().map(|region| region.value).collect();
        let keyspaces = self.keyspaces(keyspace_sections, &nodes, &regions);
        Some(Deployment {
            file: self.mistakes.file().clone(),
            cluster: cluster.map_or_else(|| CLUSTER.to_owned(), |name| name.value),
            regions,
            nodes: nodes.into_iter().map(|(_, node)| node).collect(),
            keyspaces,
            network,
            lan_rtt,
            matrix: matrix?,
            security,
            fsync,
            notifies: notifies.map_or(Flags::NONE, |found| found.value),
            limits,
        })
    }

    fn regions(&mut self, sections: Vec<Section<'_>>) -> Vec<Located<Region>> {
        let mut regions: Vec<Located<Region>> = Vec::new();
        for mut section in sections {
            if let Some(name) = section.required_text("name", "US East", self.mistakes) {
                section.title = format!("region {:?}", name.value);
                let clients = section.integer("clients", 0, CLIENTS_MAX, self.mistakes);
                let printable = !name.value.trim().is_empty() && !name.value.chars().any(char::is_control);
                if !printable || name.value.chars().count() > NAME_MAX {
                    let right = format!("use 1 to {NAME_MAX} characters that can be printed");
                    section.refuse(self.mistakes, name.line, "the name cannot be used", right);
                } else if let Some(first) = regions.iter().find(|region| region.value.name == name.value) {
                    let wrong = format!("the name is that of the region on line {}", first.line);
                    section.refuse(self.mistakes, name.line, wrong, "give each region a name of its own");
                } else {
                    // At most REGIONS_MAX, so the number fits.
                    let id = RegionId(regions.len() as u16);
                    let clients = clients.map_or(1, |clients| clients.value as u32);
                    let region = Region { id, name: name.value, clients };
                    regions.push(Located { line: name.line, value: region });
                }
            }
            section.finish(self.mistakes);
        }
        regions
    }

    fn nodes(&mut self, sections: Vec<Section<'_>>, regions: &[Located<Region>]) -> Vec<(u32, Node)> {
        let mut nodes: Vec<(u32, Node)> = Vec::new();
        let mut addresses: BTreeMap<(Option<String>, Address), (u32, String)> = BTreeMap::new();
        for mut section in sections {
            let name = section.required_text("name", "va1", self.mistakes);
            if let Some(name) = &name {
                section.title = format!("node {:?}", name.value);
                self.check_name(&section, "name", name);
                if let Some((line, _)) = nodes.iter().find(|(_, node)| node.name == name.value) {
                    let wrong = format!("the name is that of the node on line {line}");
                    section.refuse(self.mistakes, name.line, wrong, "give each node a name of its own");
                }
            }
            let example = regions.first().map_or("US East", |region| region.value.name.as_str());
            let region = section.required_text("region", example, self.mistakes).map(|place| {
                let found = regions.iter().find(|region| region.value.name == place.value);
                if found.is_none() && !regions.is_empty() {
                    let right =
                        suggest(&place.value, regions.iter().map(|region| region.value.name.as_str()));
                    section.refuse(
                        self.mistakes,
                        place.line,
                        format!("there is no region {:?}", place.value),
                        right,
                    );
                }
                found.map_or(RegionId(0), |region| region.value.id)
            });
            // The loopback of another machine is another one.
            let mut machine = None;
            let [peer, redis, grpc, http] = ["listen", "redis", "grpc", "http"].map(|key| {
                let found = section.address(key, self.mistakes)?;
                if key == "listen" {
                    machine = Some(found.value.host().to_owned());
                }
                let place = (machine.clone().filter(|_| found.value.is_loopback()), found.value.clone());
                if let Some((line, user)) = addresses.get(&place) {
                    let wrong = format!("{key} = \"{}\" is already {user}, on line {line}", found.value);
                    section.refuse(self.mistakes, found.line, wrong, "give each socket a port of its own");
                }
                let user = format!("{key} of {}", section.title);
                addresses.entry(place).or_insert((found.line, user));
                Some(found.value)
            });
            let idle_poll = section.read("idle_poll", self.mistakes, |value| {
                let most = Span::from_millis(10);
                let found = as_span(value.as_str())?;
                let right = "use \"0us\", which is off, to \"10ms\"; \"200us\" is usual";
                if found <= most { Ok(found) } else { Err(Refusal::new("is out of range", right)) }
            });
            if let (Some(name), Some(region)) = (name, region) {
                // At most NODES_MAX, so the number fits.
                let id = NodeId(nodes.len() as u16);
                let idle_poll = idle_poll.map_or(Span::ZERO, |found| found.value);
                let name = name.value;
                nodes.push((section.line, Node { id, name, region, peer, redis, grpc, http, idle_poll }));
            }
            section.finish(self.mistakes);
        }
        self.refuse_half_a_cluster(&nodes);
        nodes
    }

    /// Either every node can be reached or none can: a live cluster, or one for `plan`, `sim` and `up`.
    fn refuse_half_a_cluster(&mut self, nodes: &[(u32, Node)]) {
        let Some((_, listening)) = nodes.iter().find(|(_, node)| node.peer.is_some()) else { return };
        for (line, node) in nodes.iter().filter(|(_, node)| node.peer.is_none()) {
            let wrong = format!("node {:?} has no listen, but node {:?} has one", node.name, listening.name);
            self.mistakes.at(*line, wrong, "give every node an address, or none");
        }
    }

    fn refuse_empty_regions(&mut self, regions: &[Located<Region>], nodes: &[(u32, Node)]) {
        for region in regions {
            if !nodes.iter().any(|(_, node)| node.region == region.value.id) && !nodes.is_empty() {
                let name = &region.value.name;
                let right = format!("add a [[node]] with region = {name:?}, or remove the region");
                self.mistakes.at(region.line, format!("region {name:?} has no node"), right);
            }
        }
    }

    fn network(
        &mut self,
        section: Option<Section<'_>>,
        regions: &[Located<Region>],
    ) -> (Network, Span, Option<Matrix>) {
        let names: Vec<&str> = regions.iter().map(|region| region.value.name.as_str()).collect();
        let mut network = Network { jitter: Span::ZERO, loss_per_million: 0, given: false };
        let alike = |lan_rtt: Span| Matrix::from_fn(&names, |_, _| lan_rtt / 2);
        let Some(mut section) = section else { return (network, LAN_RTT, Some(alike(LAN_RTT))) };
        let lan_rtt = self.short_span(&mut section, "lan_rtt").unwrap_or(LAN_RTT);
        network.jitter = self.short_span(&mut section, "jitter").unwrap_or(Span::ZERO);
        network.loss_per_million = self.loss(&mut section);
        let asymmetric = section.boolean("asymmetric", self.mistakes);
        let rtt = section.text("rtt", self.mistakes);
        let one_way = section.text("one_way", self.mistakes);
        if let (Some(_), Some(second)) = (&rtt, &one_way) {
            section.refuse(self.mistakes, second.line, "both rtt and one_way are given", "keep one of them");
        }
        if let (Some(flag), None) = (&asymmetric, &rtt) {
            let right = "remove it; the two directions of a one_way file may always differ";
            section.refuse(self.mistakes, flag.line, "asymmetric is given without rtt", right);
        }
        let wants_matrix = section.has("rtt") || section.has("one_way");
        let asymmetric = asymmetric.is_some_and(|flag| flag.value);
        let matrix = match (rtt, one_way) {
            (Some(path), _) => {
                let cells = if asymmetric { Cells::AsymmetricRoundTrip } else { Cells::RoundTrip };
                self.matrix(&section, "rtt", &path, cells, lan_rtt, regions)
            }
            (None, Some(path)) => self.matrix(&section, "one_way", &path, Cells::OneWay, lan_rtt, regions),
            // A path that was refused is already a mistake; without one, all regions are as near as neighbours.
            (None, None) => Some(alike(lan_rtt)).filter(|_| !wants_matrix),
        };
        network.given = wants_matrix;
        section.finish(self.mistakes);
        (network, lan_rtt, matrix)
    }

    fn short_span(&mut self, section: &mut Section<'_>, key: &'static str) -> Option<Span> {
        const MOST: Span = Span::from_secs(60);
        let found = section.span(key, self.mistakes)?;
        if found.value > MOST {
            section.refuse(
                self.mistakes,
                found.line,
                format!("{key} is longer than a minute"),
                "use at most \"60s\"",
            );
        }
        Some(found.value)
    }

    fn loss(&mut self, section: &mut Section<'_>) -> u32 {
        const RIGHT: &str = "write the part of messages that is lost, such as 0.001; at least 0, below 1";
        let found = section.read("loss", self.mistakes, |value| {
            let digits = value.as_float().map(|float| float.as_str());
            let digits = digits.or_else(|| value.as_integer().map(|integer| integer.as_str()));
            let digits = digits.ok_or_else(|| Refusal::new("is not a number", RIGHT))?;
            let millionths =
                scaled(digits, 1_000_000).map_err(|error| Refusal::new(error.to_string(), RIGHT))?;
            u32::try_from(millionths)
                .ok()
                .filter(|millionths| *millionths < 1_000_000)
                .ok_or_else(|| Refusal::new("would lose every message", RIGHT))
        });
        found.map_or(0, |found| found.value)
    }

    fn matrix(
        &mut self,
        section: &Section<'_>,
        key: &str,
        path: &Located<String>,
        cells: Cells,
        lan_rtt: Span,
        regions: &[Located<Region>],
    ) -> Option<Matrix> {
        let full = self.base.join(&path.value);
        let text = match (self.read)(&full) {
            Ok(text) => text,
            Err(error) => {
                let wrong = format!("{key} = {:?}: cannot read {}: {error}", path.value, full.display());
                section.refuse(
                    self.mistakes,
                    path.line,
                    wrong,
                    "give the path of a csv file, relative to this file",
                );
                return None;
            }
        };
        let matrix = match Matrix::parse(&text, &full.display().to_string(), cells, lan_rtt) {
            Ok(matrix) => matrix,
            Err(errors) => {
                self.mistakes.absorb(errors);
                return None;
            }
        };
        for region in regions {
            let name = &region.value.name;
            if matrix.region(name).is_none() {
                let wrong = format!("region {name:?} is not in the matrix {}", path.value);
                let right = match suggest(name, matrix.names()) {
                    hint if hint.ends_with('?') => hint,
                    _ => format!("add its row and column, or use one of {}", one_of(matrix.names())),
                };
                self.mistakes.at(region.line, wrong, right);
            }
        }
        let names: Vec<&str> = regions.iter().map(|region| region.value.name.as_str()).collect();
        matrix.select(&names).ok()
    }

    fn journal(&mut self, section: Option<Section<'_>>) -> bool {
        let Some(mut section) = section else { return true };
        let fsync = section.read("fsync", self.mistakes, |value| match value.as_str() {
            Some("on") => Ok(true),
            Some("off") => Ok(false),
            _ => Err(Refusal::new("is not a choice", "use \"on\", or \"off\" to risk acknowledged writes")),
        });
        section.finish(self.mistakes);
        fsync.is_none_or(|found| found.value)
    }

    /// Names of nodes, keyspaces and clusters go into paths, certificates and labels of metrics.
    pub(super) fn check_name(&mut self, section: &Section<'_>, key: &str, name: &Located<String>) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let good = (1..=NAME_MAX).contains(&name.value.len())
            && name.value.chars().all(plain)
            && name.value.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !good {
            let right =
                format!("use 1 to {NAME_MAX} letters, digits, '-', '_' and '.', the first a letter or digit");
            section.refuse(
                self.mistakes,
                name.line,
                format!("{key} = {:?} cannot be used", name.value),
                right,
            );
        }
    }
}
