//! Which node may be stopped next, from what all nodes tell: pure.

use crate::status::told::{Keyspace as Seen, Told};
use crate::status::view::{Asked, Shown, View as Stand, not_ready};
use isochrone_core::deployment::{CURP_COPIES, CURP_COPIES_MAX, Keyspace};
use isochrone_core::{Deployment, Quorums};
use isochrone_node::transport::frame;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Who runs the wrong version and began to serve so shortly ago was just started anew, in vain.
const FRESH: Duration = Duration::from_secs(60);
/// A node that crashes again and again serves in between: it has come back once it has served for so long.
const STAYS: Duration = Duration::from_secs(10);

/// What is asked for.
pub(super) struct Request<'a> {
    pub(super) deployment: &'a Deployment,
    pub(super) goal: Goal,
    /// Nodes that count as gone.
    pub(super) without: &'a [String],
    /// Keyspaces that may be without service.
    pub(super) interrupt: &'a [String],
}

/// When a node is done.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Goal {
    /// It runs this version.
    Version(String),
    /// It was not started before this moment.
    StartedBefore(SystemTime),
}

/// How far each partition of a keyspace is applied where it is furthest.
pub(super) type Reached = BTreeMap<(String, u16), u64>;

/// How far the partitions of keyspaces are applied at one node, by their numbers.
type Applied = BTreeMap<(u16, u16), u64>;

/// What is shown, and printed as JSON.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) cluster: String,
    /// The version that every node is to run.
    pub(super) to: Option<String>,
    /// Or the moment before which none is to have been started, seconds since 1970.
    pub(super) started_before: Option<f64>,
    /// How long that is ago.
    #[serde(skip)]
    pub(super) ago: Duration,
    pub(super) way: Way,
    /// The node that may be stopped now.
    pub(super) next: Option<String>,
    /// What has to be so before one may be.
    pub(super) waits: Vec<String>,
    /// What no waiting changes.
    pub(super) obstacles: Vec<String>,
    pub(super) nodes: Vec<Node>,
    /// What somebody should know.
    pub(super) notes: Vec<String>,
    /// Whether it is waited for a node that is behind.
    #[serde(skip)]
    pub(super) lags: bool,
}

/// How the rest can be done.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Way {
    /// There is no rest.
    Done,
    OneByOne,
    AllAtOnce,
}

/// A node.
#[derive(Debug, Serialize)]
pub(super) struct Node {
    pub(super) node: String,
    pub(super) region: String,
    pub(super) version: Option<String>,
    pub(super) frames: Option<u16>,
    pub(super) uptime_seconds: Option<u64>,
    pub(super) state: &'static str,
    /// Keyspaces that it leads, with how many of their partitions where there are several.
    pub(super) leads: Vec<String>,
    pub(super) progress: Progress,
}

/// What is to be done with a node.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Progress {
    Done,
    ToDo,
    Next,
    /// It does not answer.
    Unknown,
    /// It was named as one that is gone.
    Without,
}

impl View {
    /// Of all nodes of the file that are not named as gone, which were asked at this moment, and of the others. They must have
    /// applied what `floor` says.
    pub(super) fn of(
        request: &Request<'_>,
        asked: &[Asked],
        gone: &[Asked],
        at: SystemTime,
        floor: &Reached,
    ) -> View {
        let told = asked.iter().filter_map(|asked| Some((name(asked), asked.answer.as_ref().ok()?)));
        let mut cluster = Cluster {
            request,
            told: told.clone().collect(),
            applied: told.map(|(name, told)| (name, applied(told))).collect(),
            keyspaces: Vec::new(),
            floor,
        };
        let (mut notes, mut waits) = (Vec::new(), Vec::new());
        let mut shown = Stand::of(asked, None).keyspaces;
        for leader in shown.iter_mut().flat_map(|keyspace| &mut keyspace.leaders) {
            // Others may not have heard yet that it is gone.
            leader.take_if(|name| request.without.contains(name));
        }
        let leads: BTreeMap<&str, Leads> =
            asked.iter().map(|asked| (name(asked), Leads::of(name(asked), &shown))).collect();
        for keyspace in shown {
            if request.interrupt.contains(&keyspace.keyspace) {
                continue;
            }
            let know = cluster.told.iter().filter(|(_, told)| seen(told, &keyspace.keyspace).is_some());
            let names: Vec<&str> = know.map(|(name, _)| *name).collect();
            if names.len() == cluster.told.len() {
                cluster.keyspaces.push(keyspace);
            } else {
                // Nodes are given a new file one after the other: it serves when most have that.
                let (name, names) = (&keyspace.keyspace, names.join(", "));
                notes.push(format!("keyspace {name} is not looked at: it is known to {names} alone"));
            }
        }
        let pending: Vec<(&str, &Told)> = asked
            .iter()
            .filter_map(|asked| Some((name(asked), asked.answer.as_ref().ok()?)))
            .filter(|(_, told)| request.goal.is_open(told, at))
            .collect();
        cluster.of_nodes(asked, &mut waits);
        let mut lags = false;
        for keyspace in &cluster.keyspaces {
            lags |= cluster.of_keyspace(keyspace, &mut waits);
        }
        cluster.of_links(&mut waits);
        let mut obstacles = cluster.of_frames(&pending, &mut notes);
        let way = match pending.is_empty() {
            true if asked.iter().all(|asked| asked.answer.is_ok()) => Way::Done,
            _ if obstacles.is_empty() => Way::OneByOne,
            _ => Way::AllAtOnce,
        };
        request.goal.is_tried(&pending, &mut obstacles);
        let next = match waits.is_empty() && obstacles.is_empty() {
            true => cluster.next(&pending, &leads, &mut obstacles).map(str::to_owned),
            false => None,
        };
        let (to, started_before, ago) = match &request.goal {
            Goal::Version(version) => (Some(version.clone()), None, Duration::ZERO),
            Goal::StartedBefore(moment) => {
                let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
                (None, Some(since.as_secs_f64()), at.duration_since(*moment).unwrap_or_default())
            }
        };
        let open = |node: &str| pending.iter().any(|(name, _)| *name == node);
        let of_asked = asked.iter().map(|asked| {
            let name = name(asked);
            let progress = match (&asked.answer, open(name)) {
                (Err(_), _) => Progress::Unknown,
                (Ok(_), true) if next.as_deref() == Some(name) => Progress::Next,
                (Ok(_), true) => Progress::ToDo,
                (Ok(_), false) => Progress::Done,
            };
            let leads = leads.get(name).map_or_else(Vec::new, |leads| leads.shown.clone());
            node(asked, leads, progress)
        });
        let of_gone = gone.iter().map(|asked| node(asked, Vec::new(), Progress::Without));
        let nodes = of_asked.chain(of_gone).collect();
        let cluster = request.deployment.cluster().to_owned();
        View { cluster, to, started_before, ago, way, next, waits, obstacles, nodes, notes, lags }
    }

    /// Whether nothing is left to be done, and every node serves.
    pub(super) fn done(&self) -> bool {
        self.way == Way::Done && self.waits.is_empty() && self.obstacles.is_empty()
    }
}

impl Goal {
    /// Whether a node that told this at that moment is still to be started anew.
    fn is_open(&self, told: &Told, at: SystemTime) -> bool {
        match self {
            Goal::Version(version) => told.version != *version,
            Goal::StartedBefore(moment) => {
                // Older versions do not say the milliseconds.
                let up =
                    told.uptime_ms.map_or(Duration::from_secs(told.uptime_seconds), Duration::from_millis);
                at.checked_sub(up).is_none_or(|started| started < *moment)
            }
        }
    }

    /// Of a node that has come back a moment ago and is not done: to start it again would come to the same.
    fn is_tried(&self, pending: &[(&str, &Told)], obstacles: &mut Vec<String>) {
        let Goal::Version(version) = self else { return };
        for (name, told) in pending.iter().filter(|(_, told)| serves(told) < FRESH) {
            let (since, runs) = (serves(told).as_secs(), &told.version);
            obstacles.push(format!(
                "{name} began to serve {since} s ago and runs version {runs}, not {version}\n  install that on its machine, or \
                 say which one is meant with --to; where it was started for another reason, try again in a minute"
            ));
        }
    }
}

/// What one node leads.
struct Leads {
    partitions: usize,
    shown: Vec<String>,
}

impl Leads {
    fn of(node: &str, keyspaces: &[Shown]) -> Leads {
        let mut leads = Leads { partitions: 0, shown: Vec::new() };
        for Shown { keyspace, leaders, .. } in keyspaces {
            let led = leaders.iter().filter(|leader| leader.as_deref() == Some(node)).count();
            leads.partitions += led;
            match (led, leaders.len()) {
                (0, _) => {}
                (1, 1) => leads.shown.push(keyspace.clone()),
                (led, all) => leads.shown.push(format!("{keyspace} ({led} of {all})")),
            }
        }
        leads
    }
}

/// What is known of those that are waited for.
struct Cluster<'a> {
    request: &'a Request<'a>,
    /// What each tells that answers.
    told: BTreeMap<&'a str, &'a Told>,
    applied: BTreeMap<&'a str, Applied>,
    /// The keyspaces that all know and that are to be served all the time.
    keyspaces: Vec<Shown>,
    floor: &'a Reached,
}

impl<'a> Cluster<'a> {
    /// Of a node by itself.
    fn of_nodes(&self, asked: &[Asked], waits: &mut Vec<String>) {
        for asked in asked {
            let name = name(asked);
            match &asked.answer {
                Err(why) => waits.push(format!("{name} does not tell how it stands: {why}")),
                Ok(told) if told.stopping => waits.push(format!("{name} is stopping")),
                Ok(told) if !told.ready && told.keyspaces.iter().all(|keyspace| keyspace.ready) => {
                    waits.push(format!("{name} is not ready: its disk hangs, or it gets no processor"));
                }
                Ok(told) if told.orders > 0 => {
                    waits.push(format!("{name} carries out an administrator's order"));
                }
                Ok(told) if serves(told) < STAYS => {
                    let (since, stays) = (serves(told).as_secs(), STAYS.as_secs());
                    waits.push(format!(
                        "{name} began to serve {since} s ago: whether it stays is seen after {stays} s"
                    ));
                }
                Ok(_) => {}
            }
        }
    }

    /// Of what all its nodes say of a keyspace. Whether one of them is behind.
    fn of_keyspace(&self, shown: &Shown, waits: &mut Vec<String>) -> bool {
        let name = &shown.keyspace;
        let servers = self.servers(shown);
        for (_, told, seen) in self.among(&servers, name) {
            if !seen.ready {
                waits.push(not_ready(told, seen));
            }
        }
        let led = shown.is_led();
        if led && let Some(partition) = shown.leaders.iter().position(Option::is_none) {
            waits.push(format!("{} has no leader", part(shown, partition)));
        }
        for (partition, members) in shown.members.iter().enumerate() {
            let members: BTreeSet<&str> = members.iter().map(String::as_str).collect();
            for (node, _, seen) in self.among(&members, name) {
                let (leader, told) = (shown.leaders.get(partition), seen.leaders.get(partition));
                if led
                    && let (Some(Some(leader)), Some(told)) = (leader, told)
                    && told.as_ref() != Some(leader)
                {
                    let part = part(shown, partition);
                    waits.push(format!("{node} has not heard that {leader} leads {part}"));
                }
                // One that is new to it has no name there.
                let told = seen.members.get(partition).into_iter().flatten().map(String::as_str);
                let told: BTreeSet<&str> = told.filter(|name| !name.is_empty()).collect();
                let known = members.iter().copied().filter(|member| self.has(node, member));
                if told != known.collect::<BTreeSet<_>>() {
                    let part = part(shown, partition);
                    waits.push(format!("the members of {part} change: {node} knows others than most do"));
                }
            }
        }
        if self.chooses(name) {
            self.of_copies(shown, &servers, waits);
        }
        let moving = self.told.values().filter_map(|told| seen(told, name));
        let moving: BTreeSet<u16> = moving.flat_map(|seen| &seen.moving).map(|moving| moving.from).collect();
        waits.extend(moving.iter().map(|from| format!("keys of keyspace {name} move from partition {from}")));
        self.of_lag(shown, waits)
    }

    /// Of a keyspace whose protocol chooses who has a copy.
    fn of_copies(&self, shown: &Shown, servers: &BTreeSet<&str>, waits: &mut Vec<String>) {
        let name = &shown.keyspace;
        let up: Vec<&str> = self.among(servers, name).map(|(node, ..)| node).collect();
        let wanted = up.len().min(1 + copies(self.file(name)));
        for (partition, members) in shown.members.iter().enumerate().filter(|(_, all)| all.len() < wanted) {
            let without: Vec<&str> =
                up.iter().copied().filter(|node| !members.iter().any(|member| member == node)).collect();
            waits.push(format!(
                "{} has {} of {wanted} replicas, and none yet at {}; --without is for a node from which it was removed",
                part(shown, partition),
                members.len(),
                without.join(", ")
            ));
        }
        for (node, told, seen) in self.among(servers, name) {
            let of = told.processes.iter().filter(|process| process.keyspace == seen.id);
            let mut stands = of.flat_map(|process| &process.stands);
            if stands.any(|(what, value)| *value > 0 && what.split('/').next() == Some("copies_silent")) {
                waits.push(format!("the master of keyspace {name} at {node} does not hear of a copy"));
            }
        }
    }

    /// Of who has not applied what others had some time ago.
    fn of_lag(&self, shown: &Shown, waits: &mut Vec<String>) -> bool {
        let (name, before) = (&shown.keyspace, waits.len());
        let mut told = BTreeSet::new();
        for (partition, members) in shown.members.iter().enumerate() {
            // There are at most 1,024.
            let number = partition as u16;
            let Some(floor) = self.floor.get(&(name.clone(), number)) else { continue };
            let members: BTreeSet<&str> = members.iter().map(String::as_str).collect();
            for (node, _, seen) in self.among(&members, name) {
                let applied = self.applied.get(node).and_then(|applied| applied.get(&(seen.id, number)));
                // A copy that was chosen has the state, and says how far once something is written.
                let behind = match applied {
                    Some(applied) => applied < floor,
                    None => !seen.chosen,
                };
                if behind && told.insert(node) {
                    let applied = applied.copied().unwrap_or(0);
                    let part = part(shown, partition);
                    waits.push(format!(
                        "{node} is behind in {part}: it has applied {applied}, and others {floor}"
                    ));
                }
            }
        }
        waits.len() > before
    }

    /// Of nodes that serve a keyspace together and do not reach each other.
    fn of_links(&self, waits: &mut Vec<String>) {
        let mut links = BTreeSet::new();
        for keyspace in &self.keyspaces {
            let servers = self.servers(keyspace);
            for (node, told, _) in self.among(&servers, &keyspace.keyspace) {
                let down = told.peers.iter().filter(|peer| !peer.connected);
                for peer in down.filter(|peer| servers.contains(peer.name.as_str())) {
                    // Whoever was started without it refuses it until started anew; who does not answer is waited for already.
                    if self.has(&peer.name, node) && links.insert((node, peer.name.as_str())) {
                        let why =
                            if peer.trouble.is_empty() { "it is being made" } else { peer.trouble.as_str() };
                        waits.push(format!("{node} has no link to {}: {why}", peer.name));
                    }
                }
            }
        }
    }

    /// Why what is left to be done cannot be done one by one: nodes would not understand each other.
    fn of_frames(&self, pending: &[(&str, &Told)], notes: &mut Vec<String>) -> Vec<String> {
        let mut spoken: BTreeMap<u16, String> = BTreeMap::new();
        for (name, told) in &self.told {
            match told.frames {
                Some(frames) => _ = spoken.entry(frames).or_insert_with(|| (*name).to_owned()),
                None => notes.push(format!(
                    "{name} does not say which frames it speaks: whether those of its version {} and others understand each \
                     other is in the changelog",
                    told.version
                )),
            }
        }
        if let Goal::Version(version) = &self.request.goal
            && version == env!("CARGO_PKG_VERSION")
        {
            spoken.entry(frame::VERSION).or_insert_with(|| format!("version {version}"));
        }
        if pending.is_empty() || spoken.len() < 2 {
            return Vec::new();
        }
        let who: Vec<_> =
            spoken.iter().map(|(frames, who)| format!("{who} speaks frames {frames}")).collect();
        vec![format!(
            "{}: nodes of different frames do not understand each other\n  stop all nodes, then start all with the new program",
            who.join(", ")
        )]
    }

    /// The node to be stopped next, where waiting is over: who leads least, in the order of the file.
    fn next(
        &self,
        pending: &[(&'a str, &'a Told)],
        leads: &BTreeMap<&str, Leads>,
        obstacles: &mut Vec<String>,
    ) -> Option<&'a str> {
        let led = |name: &str| leads.get(name).map_or(0, |leads| leads.partitions);
        let mut names: Vec<&'a str> = pending.iter().map(|(name, _)| *name).collect();
        // A stable sort.
        names.sort_by_key(|name| led(name));
        let lost: Vec<Vec<String>> = names.iter().map(|name| self.lost_without(name)).collect();
        if let Some(at) = lost.iter().position(Vec::is_empty) {
            return names.get(at).copied();
        }
        obstacles.extend(lost.into_iter().next().into_iter().flatten());
        None
    }

    /// Which keyspaces are not served while this node is down.
    fn lost_without(&self, node: &str) -> Vec<String> {
        let gone = |name: &str| name == node || self.request.without.iter().any(|gone| gone == name);
        let left = |among: &BTreeSet<&str>| among.iter().filter(|name| !gone(name)).count();
        let mut lost = Vec::new();
        for shown in &self.keyspaces {
            let name = &shown.keyspace;
            let hint = format!("\n  where {name} may be without service meanwhile: --interrupt {name}");
            let chosen = self.chooses(name);
            let managers = self.servers(shown);
            let (managers_left, all) = (left(&managers), managers.len());
            if chosen && managers.contains(node) && managers_left < Quorums::majority(all) {
                let needed = Quorums::majority(all);
                lost.push(format!(
                    "while {node} is down, keyspace {name} has {managers_left} of {all} nodes left and needs {needed}{hint}"
                ));
                continue;
            }
            let first = shown.members.iter().enumerate().find_map(|(partition, members)| {
                let members: BTreeSet<&str> = members.iter().map(String::as_str).collect();
                if !members.contains(node) {
                    return None;
                }
                // Where copies are chosen anew, one must be left that they are made from.
                let needed = if chosen { 1 } else { quorum(self.file(name), members.len()) };
                let (left, all) = (left(&members), members.len());
                let part = part(shown, partition);
                (left < needed).then(|| {
                    format!("while {node} is down, {part} has {left} of {all} replicas left and needs {needed}{hint}")
                })
            });
            lost.extend(first);
        }
        lost
    }

    /// A keyspace of the file.
    fn file(&self, name: &str) -> Option<&'a Keyspace> {
        self.request.deployment.keyspace_named(name)
    }

    /// Whether the protocol of a keyspace chooses who has a replica.
    fn chooses(&self, name: &str) -> bool {
        self.told.values().filter_map(|told| seen(told, name)).any(|seen| seen.chosen)
    }

    /// The nodes on which the service of a keyspace rests: its members, and where the protocol chooses those, whoever may be
    /// chosen, since all of them have a say. A node that is new to others has none yet: these refuse it until they are given the
    /// file that has it.
    fn servers<'s>(&self, shown: &'s Shown) -> BTreeSet<&'s str>
    where
        'a: 's,
    {
        let mut servers: BTreeSet<&'s str> = shown.members.iter().flatten().map(String::as_str).collect();
        let told = self.told.values().filter_map(|told| seen(told, &shown.keyspace));
        for seen in told.filter(|seen| seen.chosen) {
            let named = seen.members.iter().flatten().chain(&seen.spares).map(String::as_str);
            servers.extend(named.filter(|name| self.told.keys().all(|other| self.has(other, name))));
        }
        servers
    }

    /// Whether a node that answers was started with a file that has this other node.
    fn has(&self, node: &str, other: &str) -> bool {
        let has = |told: &&Told| told.peers.iter().any(|peer| peer.name == other);
        node == other || self.told.get(node).is_some_and(has)
    }

    /// Those of these nodes that answer, and what they tell of a keyspace.
    fn among<'s>(
        &'s self,
        names: &'s BTreeSet<&str>,
        keyspace: &'s str,
    ) -> impl Iterator<Item = (&'a str, &'a Told, &'a Seen)> {
        let told = self.told.iter().map(|(name, told)| (*name, *told));
        let named = told.filter(move |(name, _)| names.contains(name));
        named.filter_map(move |(name, told)| Some((name, told, seen(told, keyspace)?)))
    }
}

/// How far the partitions of all keyspaces are applied where they are furthest.
pub(super) fn reached(asked: &[Asked]) -> Reached {
    let mut reached = Reached::new();
    for told in asked.iter().filter_map(|asked| asked.answer.as_ref().ok()) {
        let applied = applied(told);
        for keyspace in &told.keyspaces {
            for ((_, partition), position) in applied.range((keyspace.id, 0)..=(keyspace.id, u16::MAX)) {
                let most = reached.entry((keyspace.name.clone(), *partition)).or_default();
                *most = (*most).max(*position);
            }
        }
    }
    reached
}

/// The name in the file of a node that was asked.
pub(super) fn name(asked: &Asked) -> &str {
    asked.name.as_ref().map_or("-", |(name, _)| name)
}

fn applied(told: &Told) -> Applied {
    let mut applied = Applied::new();
    for process in &told.processes {
        // n0/k1/p0/role0/0
        let partition =
            process.process.split('/').nth(2).and_then(|part| part.strip_prefix('p')?.parse().ok());
        if let (Some(partition), Some(position)) = (partition, process.applied) {
            let most = applied.entry((process.keyspace, partition)).or_default();
            *most = (*most).max(position);
        }
    }
    applied
}

/// For how long a node has served. Older versions say for how long it is up.
fn serves(told: &Told) -> Duration {
    let millis = told.serves_ms.or(told.uptime_ms);
    millis.map_or(Duration::from_secs(told.uptime_seconds), Duration::from_millis)
}

fn seen<'t>(told: &'t Told, name: &str) -> Option<&'t Seen> {
    told.keyspaces.iter().find(|keyspace| keyspace.name == name)
}

/// A keyspace, or a partition of one that has several.
fn part(shown: &Shown, partition: usize) -> String {
    let name = &shown.keyspace;
    match shown.members.len().max(shown.leaders.len()) {
        0 | 1 => format!("keyspace {name}"),
        _ => format!("partition {partition} of keyspace {name}"),
    }
}

/// How many of so many members are enough: a majority, or what the file wants for recovery where that is more.
fn quorum(keyspace: Option<&Keyspace>, members: usize) -> usize {
    let given = keyspace.map(|keyspace| keyspace.parameters.read().quorums(members).classic());
    given.unwrap_or(0).max(Quorums::majority(members))
}

/// How many copies there are to be beside a master.
fn copies(keyspace: Option<&Keyspace>) -> usize {
    // Larger than there are replicas is as many as there are.
    keyspace.map_or(CURP_COPIES, |keyspace| keyspace.parameters.read().copies(CURP_COPIES_MAX))
}

fn node(asked: &Asked, leads: Vec<String>, progress: Progress) -> Node {
    let (node, region) = asked.name.clone().unwrap_or_default();
    let told = asked.answer.as_ref().ok();
    Node {
        node,
        region,
        version: told.map(|told| told.version.clone()),
        frames: told.and_then(|told| told.frames),
        uptime_seconds: told.map(|told| told.uptime_seconds),
        state: told.map_or("no answer", Told::state),
        leads,
        progress,
    }
}
