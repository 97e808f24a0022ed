//! How a cluster stands, from what its nodes tell: pure.

use super::screen::uptime;
use super::told::{Keyspace, Peer, Told};
use crate::protocols;
use isochrone_core::{Deployment, NodeId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A node's clock may be wrong by so much before that is told, milliseconds: keys expire by the clock of the node that is asked.
const CLOCK_MAX_MS: f64 = 1_000.0;
/// More bytes that wait for a peer than these are told.
const QUEUED_MAX: u64 = 1 << 20;
/// A round trip may differ by this share from the file's, and by so many milliseconds, before that is told.
const APART: (f64, f64) = (0.2, 2.0);

/// A move of keys may be known for so long, seconds, without anybody who carries it on before that is told: another node takes
/// it up, and whoever has not used those keys since does not know that it is over.
const STANDS_STILL: u64 = 30;

/// A node may be for so long, seconds, without a link to a leader before it is told who could lead in its place: by then a link that
/// breaks has been made again, and a leader that is down has another.
const APART_FROM_LEADER: u64 = 10;

/// What a process tells of how many replicas its partition is to have, where its protocol chooses them.
const WANTED: &str = "replicas_wanted";

/// A node that was asked.
#[derive(Debug)]
pub(crate) struct Asked {
    /// As the file calls it, and its region; unknown where only the address was given.
    pub(crate) name: Option<(String, String)>,
    /// Where it was asked; none where the file gives no place.
    pub(crate) http: Option<String>,
    /// What it told, or why it did not.
    pub(crate) answer: Result<Told, String>,
}

impl Asked {
    /// Where every node has its place on its own loopback, the one of this machine answers for all: what another tells does not
    /// count.
    pub(crate) fn refuse_another(&mut self) {
        let (Some((name, _)), Ok(told)) = (&self.name, &self.answer) else { return };
        if told.node != *name {
            self.answer = Err(format!("{} answers there, of {}", told.node, told.cluster));
        }
    }
}

/// What is shown, and printed as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    pub(crate) cluster: String,
    /// Whether every node answers and is ready, but for those that do not answer and are members of nothing; and no keyspace has
    /// fewer replicas than it is to have.
    pub(crate) ready: bool,
    pub(crate) keyspaces: Vec<Shown>,
    pub(crate) nodes: Vec<Node>,
    /// What somebody should look at.
    pub(crate) notes: Vec<String>,
}

/// A keyspace.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) keyspace: String,
    pub(crate) index: u32,
    pub(crate) protocol: String,
    pub(crate) guarantee: String,
    /// The leader of each partition.
    pub(crate) leaders: Vec<Option<String>>,
    /// The nodes of the replicas of each partition.
    pub(crate) members: Vec<Vec<String>>,
    /// How often the vote of each node was the one that a quorum waited for.
    pub(crate) last_voters: BTreeMap<String, u64>,
    pub(crate) nodes: Vec<Row>,
}

/// What clients of one node see of a keyspace.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) node: String,
    pub(crate) region: String,
    pub(crate) role: String,
    pub(crate) applied: Option<u64>,
    pub(crate) operations_per_second: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) write_p50_ms: Option<f64>,
    pub(crate) bound_ms: Option<f64>,
}

/// A node.
#[derive(Debug, Serialize)]
pub(crate) struct Node {
    pub(crate) node: String,
    pub(crate) region: String,
    pub(crate) http: Option<String>,
    pub(crate) state: &'static str,
    /// Whether it is a member of a keyspace, or may be one of a keyspace that has too few, as far as is told.
    pub(crate) member: bool,
    pub(crate) trouble: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) uptime_seconds: Option<u64>,
    pub(crate) clients: Option<u64>,
    /// The round trip to each node to which it has a link, milliseconds.
    pub(crate) round_trips_ms: BTreeMap<String, f64>,
}

impl View {
    /// Of the nodes that were asked; with a file also what differs from it. There is an answer at least.
    pub(crate) fn of(asked: &[Asked], file: Option<&Deployment>) -> View {
        let told: Vec<&Told> = asked.iter().filter_map(|asked| asked.answer.as_ref().ok()).collect();
        let keyspaces = keyspaces(&told);
        let short: Vec<Short<'_>> = keyspaces.iter().flat_map(|shown| short(shown, &told)).collect();
        let members = Members::of(&keyspaces, &short);
        let nodes: Vec<_> = asked.iter().map(|asked| node(asked, &members)).collect();
        let mut notes = Vec::new();
        of_nodes(&nodes, &told, &mut notes);
        of_keyspaces(&told, &keyspaces, file, &mut notes);
        of_leaders(&told, &keyspaces, file, &mut notes);
        notes.extend(short.iter().map(Short::note));
        of_moves(&told, &keyspaces, &mut notes);
        let missed = |name: &str| match nodes.iter().find(|node| node.node == name) {
            Some(node) => node.counts(),
            None => members.have(name),
        };
        // Where the file gives no round trips there is nothing to compare with.
        of_links(&told, &missed, file.filter(|file| file.network().given), &mut notes);
        View {
            cluster: told.first().map_or_else(String::new, |told| told.cluster.clone()),
            ready: short.is_empty() && nodes.iter().all(|node| node.state == "ready" || !node.counts()),
            keyspaces,
            nodes,
            notes,
        }
    }
}

impl Shown {
    /// Whether its protocol has leaders.
    pub(crate) fn is_led(&self) -> bool {
        protocols::ALL.iter().any(|entry| entry.name == self.protocol && entry.led)
    }
}

impl Node {
    /// Whether somebody misses it where it is down.
    fn counts(&self) -> bool {
        self.member || self.trouble.is_none()
    }
}

/// A partition with fewer replicas than it is to have, of a keyspace whose protocol chooses them.
struct Short<'a> {
    keyspace: String,
    partition: Option<usize>,
    has: usize,
    wanted: usize,
    /// The nodes that may have one, and have none.
    without: BTreeSet<&'a String>,
}

impl Short<'_> {
    fn note(&self) -> String {
        let Short { keyspace, has, wanted, .. } = self;
        let part = match self.partition {
            Some(partition) => format!("partition {partition} of {keyspace}"),
            None => format!("keyspace {keyspace}"),
        };
        let without: Vec<&str> = self.without.iter().map(|name| name.as_str()).collect();
        let at =
            if without.is_empty() { String::new() } else { format!(", and none at {}", without.join(", ")) };
        format!(
            "{part} has {has} of {wanted} replicas{at}: the fewer there are, the fewer crashes it survives"
        )
    }
}

/// The partitions of a keyspace that have too few replicas, by what most say who say how many there are to be.
fn short<'a>(shown: &Shown, told: &[&'a Told]) -> Vec<Short<'a>> {
    let seen: Vec<(&'a Told, &'a Keyspace)> = told
        .iter()
        .filter_map(|told| {
            Some((*told, told.keyspaces.iter().find(|keyspace| keyspace.name == shown.keyspace)?))
        })
        .collect();
    let several = shown.members.len() > 1;
    let mut short = Vec::new();
    for (partition, members) in shown.members.iter().enumerate() {
        let what = if partition == 0 { WANTED.to_owned() } else { format!("{WANTED}/{partition}") };
        let of = seen.iter().flat_map(|(told, keyspace)| {
            let id = keyspace.id;
            told.processes.iter().filter(move |process| process.keyspace == id)
        });
        let Some(wanted) = most(of.filter_map(|process| process.stands.get(&what))) else { continue };
        let (has, wanted) = (members.len(), *wanted as usize);
        if has > 0 && has < wanted {
            let named = seen
                .iter()
                .flat_map(|(_, keyspace)| keyspace.members.iter().flatten().chain(&keyspace.spares));
            // A node that has not heard of another by its file has no name for it.
            let without = named.filter(|name| !name.is_empty() && !members.contains(name)).collect();
            let (keyspace, partition) = (shown.keyspace.clone(), several.then_some(partition));
            short.push(Short { keyspace, partition, has, wanted, without });
        }
    }
    short
}

/// The nodes that have a replica of a keyspace now, or may have one of a keyspace that has too few.
struct Members<'a> {
    all: BTreeSet<&'a String>,
    /// Not every keyspace's are told.
    unknown: bool,
}

impl<'a> Members<'a> {
    fn of(keyspaces: &'a [Shown], short: &'a [Short<'a>]) -> Members<'a> {
        let told = || keyspaces.iter().flat_map(|keyspace| &keyspace.members);
        let unknown = told().next().is_none() || told().any(Vec::is_empty);
        let missing = short.iter().flat_map(|short| &short.without).copied();
        Members { all: told().flatten().chain(missing).collect(), unknown }
    }

    /// Whether this is one of them, for all that is known.
    fn have(&self, name: &str) -> bool {
        self.unknown || self.all.iter().any(|member| *member == name)
    }
}

fn node(asked: &Asked, members: &Members<'_>) -> Node {
    let http = asked.http.clone();
    match &asked.answer {
        Ok(told) => Node {
            node: told.node.clone(),
            region: told.region.clone(),
            http,
            state: told.state(),
            member: members.have(&told.node),
            trouble: None,
            version: Some(told.version.clone()),
            uptime_seconds: Some(told.uptime_seconds),
            clients: Some(told.clients),
            round_trips_ms: linked(told)
                .filter_map(|peer| Some((peer.name.clone(), peer.round_trip_ms?)))
                .collect(),
        },
        Err(why) => {
            // Of whom only the address is known may be anybody.
            let member = asked.name.as_ref().is_none_or(|(name, _)| members.have(name));
            let (node, region) =
                asked.name.clone().unwrap_or_else(|| (http.clone().unwrap_or_default(), "-".to_owned()));
            Node {
                node,
                region,
                http,
                state: "no answer",
                member,
                trouble: Some(why.clone()),
                version: None,
                uptime_seconds: None,
                clients: None,
                round_trips_ms: BTreeMap::new(),
            }
        }
    }
}

fn linked(told: &Told) -> impl Iterator<Item = &Peer> {
    told.peers.iter().filter(|peer| peer.connected)
}

fn keyspaces(told: &[&Told]) -> Vec<Shown> {
    let mut names: Vec<&str> = Vec::new();
    for keyspace in told.iter().flat_map(|told| &told.keyspaces) {
        if !names.contains(&keyspace.name.as_str()) {
            names.push(&keyspace.name);
        }
    }
    names.iter().filter_map(|name| shown(name, told)).collect()
}

/// A keyspace by its name, as all nodes that know it tell.
fn shown(name: &str, told: &[&Told]) -> Option<Shown> {
    let seen: Vec<(&Told, &Keyspace)> = told
        .iter()
        .filter_map(|told| Some((*told, told.keyspaces.iter().find(|keyspace| keyspace.name == name)?)))
        .collect();
    let (_, first) = seen.first()?;
    let partitions = seen.iter().map(|(_, keyspace)| keyspace.leaders.len()).max().unwrap_or(0);
    let leaders: Vec<_> = (0..partitions).map(|partition| leader(&seen, partition)).collect();
    let members: Vec<_> = (0..partitions).map(|partition| members(&seen, partition)).collect();
    let mut last_voters = BTreeMap::new();
    for (told, keyspace) in &seen {
        let of = told
            .processes
            .iter()
            .filter(|process| process.keyspace == keyspace.id && process.leads.is_some());
        for (voter, count) in of.flat_map(|process| &process.last_voters) {
            *last_voters.entry(voter.clone()).or_default() += count;
        }
    }
    let rows = seen.iter().map(|(told, keyspace)| Row {
        node: told.node.clone(),
        region: told.region.clone(),
        role: role(&told.node, &leaders, &members, &seen),
        applied: keyspace.applied,
        operations_per_second: keyspace.recent.operations_per_second,
        p50_ms: keyspace.recent.p50_ms,
        p99_ms: keyspace.recent.p99_ms,
        write_p50_ms: keyspace.recent.write_p50_ms,
        bound_ms: keyspace.bound_ms,
    });
    Some(Shown {
        keyspace: name.to_owned(),
        index: first.index,
        protocol: first.protocol.clone(),
        guarantee: first.guarantee.clone(),
        nodes: rows.collect(),
        leaders,
        members,
        last_voters,
    })
}

/// Who leads a partition: whom most nodes name.
fn leader(seen: &[(&Told, &Keyspace)], partition: usize) -> Option<String> {
    most(seen.iter().filter_map(|(_, keyspace)| keyspace.leaders.get(partition)?.as_ref())).cloned()
}

/// The nodes of the replicas of a partition: those that most of those name who name themselves. Who was removed may not know
/// it, and who has no replica knows what the file says. Where nobody names himself, those that most name; none where nobody
/// tells.
fn members(seen: &[(&Told, &Keyspace)], partition: usize) -> Vec<String> {
    let named = |(told, keyspace): &(&Told, &Keyspace)| {
        let names: BTreeSet<String> = keyspace.members.get(partition)?.iter().cloned().collect();
        Some((names.contains(&told.node), names))
    };
    let lists: Vec<(bool, BTreeSet<String>)> = seen.iter().filter_map(named).collect();
    let own = most(lists.iter().filter(|(own, _)| *own));
    own.or_else(|| most(lists.iter())).map_or_else(Vec::new, |(_, names)| names.iter().cloned().collect())
}

/// What is said most often; of as often the first.
fn most<T: PartialEq>(said: impl Iterator<Item = T>) -> Option<T> {
    let mut counted: Vec<(T, usize)> = Vec::new();
    for one in said {
        match counted.iter_mut().find(|(known, _)| *known == one) {
            Some((_, times)) => *times += 1,
            None => counted.push((one, 1)),
        }
    }
    counted.into_iter().rev().max_by_key(|(_, times)| *times).map(|(one, _)| one)
}

fn role(
    node: &str,
    leaders: &[Option<String>],
    members: &[Vec<String>],
    seen: &[(&Told, &Keyspace)],
) -> String {
    let led = leaders.iter().filter(|leader| leader.as_deref() == Some(node)).count();
    // Whoever is a member by the word of anybody has a replica, whether it counts or not.
    let serves = |(_, keyspace): &(&Told, &Keyspace)| {
        keyspace.members.iter().flatten().chain(&keyspace.spares).any(|name| name == node)
    };
    match led {
        0 if members.iter().flatten().any(|member| member == node) => "replica".to_owned(),
        0 if seen.iter().any(serves) => "spare".to_owned(),
        0 => "client".to_owned(),
        1 if leaders.len() == 1 => "leader".to_owned(),
        led => format!("leads {led} of {}", leaders.len()),
    }
}

fn of_nodes(nodes: &[Node], told: &[&Told], notes: &mut Vec<String>) {
    for node in nodes {
        let name = &node.node;
        if let Some(why) = node.trouble.as_ref().filter(|_| node.counts()) {
            let reached = told.iter().any(|told| linked(told).any(|peer| peer.name == *name));
            let but = if reached { "; its peers reach it" } else { "" };
            notes.push(match &node.http {
                Some(http) if http != name => {
                    format!("{name} does not tell how it stands, at {http}: {why}{but}")
                }
                Some(_) => format!("{name} does not tell how it stands: {why}"),
                None => format!("{name} was not asked: {why}{but}"),
            });
        }
    }
    for told in told {
        let name = &told.node;
        if told.unsafe_fsync_off {
            notes.push(format!("UNSAFE: fsync is off at {name}, a power failure loses acknowledged writes"));
        }
        if told.memory.full {
            let [used, limit] = [told.memory.used_bytes, told.memory.limit_bytes]
                .map(|bytes| bytes as f64 / (1 << 30) as f64);
            notes.push(format!(
                "{name} is full: it uses {used:.2} GiB of memory and may use {limit:.2}, so commands that may make data grow are \
                 refused in its keyspaces (docs/operations.md, \"Memory that runs out\")"
            ));
        }
        if told.stopping {
            notes.push(format!("{name} is stopping"));
        } else if !told.ready && told.keyspaces.iter().all(|keyspace| keyspace.ready) {
            notes.push(format!("{name} is not ready: its disk hangs, or it gets no processor"));
        }
    }
    if let Some(first) = told.first()
        && let Some(other) = told.iter().find(|told| told.version != first.version)
    {
        notes
            .push(format!("{} runs version {}, {} {}", first.node, first.version, other.node, other.version));
    }
}

fn of_keyspaces(told: &[&Told], keyspaces: &[Shown], file: Option<&Deployment>, notes: &mut Vec<String>) {
    for shown in keyspaces {
        let name = &shown.keyspace;
        for told in told {
            let keyspace = told.keyspaces.iter().find(|keyspace| keyspace.name == *name);
            if let Some(seen) = keyspace.filter(|seen| !seen.ready) {
                notes.push(not_ready(told, seen));
            }
            if let Some(keyspace) = keyspace
                && let Some((other, partition)) = disagrees(keyspace, &shown.leaders)
            {
                notes.push(format!(
                    "{} takes {other} for the leader of partition {partition} of {name}",
                    told.node
                ));
            }
        }
        let without = shown.leaders.iter().filter(|leader| leader.is_none()).count();
        if shown.is_led() && without > 0 {
            let all = shown.leaders.len();
            notes.push(match all {
                1 => format!("keyspace {name} has no leader"),
                _ => format!("{without} of the {all} partitions of keyspace {name} have no leader"),
            });
        }
        if let Some(file) = file
            && let Some(wanted) = file.keyspaces().iter().find(|keyspace| keyspace.name == *name)
            && let (Some(wanted), [Some(leader)]) = (wanted.leader, shown.leaders.as_slice())
            && file.node(wanted).name != *leader
        {
            notes.push(format!(
                "keyspace {name} is led from {leader}, not from {}, which the file names",
                file.node(wanted).name
            ));
        }
    }
}

/// That a keyspace is not ready at a node, and why.
pub(crate) fn not_ready(told: &Told, keyspace: &Keyspace) -> String {
    let (reachable, all) = keyspace.reachable;
    let enough = !keyspace.chosen && reachable > all / 2;
    let but = match keyspace.awaited.as_slice() {
        [] if enough => unheard(told, keyspace),
        [] => String::new(),
        nodes => format!(", and waits for {}", nodes.join(" or ")),
    };
    let (name, node) = (&keyspace.name, &told.node);
    format!("keyspace {name} is not ready at {node}, which reaches {reachable} of {all}{but}")
}

/// Of which leader a node that reaches enough replicas does not hear, as far as that can be said: one to which it has no link, or
/// the only one.
fn unheard(told: &Told, keyspace: &Keyspace) -> String {
    let down = |name: &str| told.peers.iter().any(|peer| peer.name == *name && !peer.connected);
    let leaders = || keyspace.leaders.iter().flatten().map(String::as_str);
    let only = leaders().next().filter(|_| keyspace.leaders.len() == 1);
    match leaders().find(|leader| down(leader)).or(only) {
        Some(leader) => format!(", but does not hear of {leader}, which led it"),
        None => ", but does not hear of a leader".to_owned(),
    }
}

/// The links between nodes, as both ends tell of them.
#[derive(Copy, Clone)]
struct Links<'a>(&'a [&'a Told]);

impl<'a> Links<'a> {
    fn told(self, node: &str) -> Option<&'a Told> {
        self.0.iter().copied().find(|told| told.node == node)
    }

    /// What is told of the link between two, by either.
    fn between(self, one: &str, other: &str) -> impl Iterator<Item = &'a Peer> {
        let of = |from: &str, to: &str| self.told(from)?.peers.iter().find(|peer| peer.name == to);
        of(one, other).into_iter().chain(of(other, one))
    }

    fn joins(self, one: &str, other: &str) -> bool {
        let mut ends = self.between(one, other).peekable();
        ends.peek().is_some() && ends.all(|end| end.connected)
    }

    /// Whether they have been without one for long.
    fn lacks(self, one: &str, other: &str) -> bool {
        let long = |seconds: u64| seconds >= APART_FROM_LEADER;
        self.between(one, other).any(|end| !end.connected && end.down_seconds.is_some_and(long))
    }

    /// How far the others are from a node, together.
    fn far(self, node: &str) -> f64 {
        self.told(node).map_or(f64::INFINITY, |told| linked(told).filter_map(|peer| peer.round_trip_ms).sum())
    }
}

/// Nodes that have been without a link to a leader for long, where another member reaches them and all whom the leader reaches:
/// who asks there waits longer or in vain, although all are reached by somebody.
fn of_leaders(told: &[&Told], keyspaces: &[Shown], file: Option<&Deployment>, notes: &mut Vec<String>) {
    let links = Links(told);
    // Those who were not asked too.
    let all: BTreeSet<&str> = told
        .iter()
        .flat_map(|told| told.peers.iter().map(|peer| &peer.name).chain([&told.node]))
        .map(String::as_str)
        .collect();
    let place = file.map_or_else(String::new, |file| format!("{} ", file.file()));
    for shown in keyspaces {
        let name = &shown.keyspace;
        // By the leader, who would lead in its place, and who would be reached then that is not.
        let mut found: BTreeMap<(&str, &str, Vec<&str>), Vec<String>> = BTreeMap::new();
        for (partition, (leader, members)) in shown.leaders.iter().zip(&shown.members).enumerate() {
            let Some(leader) = leader.as_deref() else { continue };
            if let Some((heir, gained)) = heir(links, &all, leader, members) {
                found.entry((leader, heir, gained)).or_default().push(partition.to_string());
            }
        }
        for ((leader, heir, gained), partitions) in found {
            let (led, which, each) = match partitions.as_slice() {
                _ if shown.leaders.len() == 1 => (name.clone(), String::new(), ""),
                [one] => (format!("partition {one} of {name}"), format!("--partition {one} "), ""),
                several => {
                    let led = format!("partitions {} of {name}", several.join(", "));
                    (led, "--partition N ".to_owned(), ", for each")
                }
            };
            let keyspace = if keyspaces.len() == 1 { String::new() } else { format!("--keyspace {name} ") };
            let gained = gained.join(", ");
            notes.push(format!(
                "{leader} leads {led}, and has no link with {gained}: what is asked there takes longer, or waits in vain; {heir} reaches \
                 all of them: isochrone move-leader {place}{keyspace}{which}--to {heir}{each}"
            ));
        }
    }
}

/// Of the members of a partition the one that loses least by leading in the place of this leader, and whom it gains: those who lack
/// a link to the leader. None where it would lose anybody, or gains nobody.
fn heir<'a>(
    links: Links<'_>,
    all: &BTreeSet<&'a str>,
    leader: &str,
    members: &'a [String],
) -> Option<(&'a str, Vec<&'a str>)> {
    let (mut kept, mut lacking) = (vec![leader], Vec::new());
    for node in all {
        if links.joins(leader, node) {
            kept.push(*node);
        } else if links.lacks(leader, node) {
            lacking.push(*node);
        }
    }
    let able = |node: &&str| {
        let stops = links.told(node).is_some_and(|told| told.stopping);
        *node != leader && !stops && kept.iter().all(|other| other == node || links.joins(node, other))
    };
    let gains = |node: &'a str| {
        (node, lacking.iter().copied().filter(|other| links.joins(node, other)).collect::<Vec<_>>())
    };
    let heirs = members.iter().map(String::as_str).filter(able).map(gains);
    heirs.filter(|(_, gained)| !gained.is_empty()).min_by(|(one, gained), (other, as_gained)| {
        let more = as_gained.len().cmp(&gained.len());
        more.then(links.far(one).total_cmp(&links.far(other)))
    })
}

/// Moves of keys that no node carries on.
fn of_moves(told: &[&Told], keyspaces: &[Shown], notes: &mut Vec<String>) {
    for name in keyspaces.iter().map(|shown| &shown.keyspace) {
        // By the partition that they leave: for how long anybody has known of it, and whether anybody carries it on.
        let mut moves: BTreeMap<u16, (u64, bool)> = BTreeMap::new();
        for told in told {
            let of = told.keyspaces.iter().filter(|keyspace| keyspace.name == *name);
            for moving in of.flat_map(|keyspace| &keyspace.moving) {
                let (seconds, driven) = moves.entry(moving.from).or_default();
                *seconds = moving.seconds.max(*seconds);
                *driven |= moving.driven;
            }
        }
        for (from, (seconds, driven)) in moves {
            if driven || seconds < STANDS_STILL {
                continue;
            }
            notes.push(format!(
                "a move of keys from partition {from} of {name} is known for {seconds} s, and no node that answers carries it on: \
                 where that lasts, give the order again at any node (/admin/ranges?keyspace={name} has where they go)"
            ));
        }
    }
}

/// Whom a node takes for the leader of a partition where others say another.
fn disagrees<'a>(keyspace: &'a Keyspace, leaders: &[Option<String>]) -> Option<(&'a str, usize)> {
    let mut pairs = keyspace.leaders.iter().zip(leaders).enumerate();
    pairs.find_map(|(partition, pair)| match pair {
        (Some(one), Some(other)) if one != other => Some((one.as_str(), partition)),
        _ => None,
    })
}

fn of_links(
    told: &[&Told],
    missed: &dyn Fn(&str) -> bool,
    file: Option<&Deployment>,
    notes: &mut Vec<String>,
) {
    let mut compared: Vec<(&str, &str)> = Vec::new();
    for told in told {
        let name = told.node.as_str();
        for peer in &told.peers {
            let to = peer.name.as_str();
            if !peer.connected && !missed(to) {
                continue;
            }
            if !peer.connected {
                let why = if peer.trouble.is_empty() { String::new() } else { format!(": {}", peer.trouble) };
                let since = peer.down_seconds.map(|seconds| format!(" for {}", uptime(seconds)));
                notes.push(format!("{name} has no link to {to}{}{why}", since.unwrap_or_default()));
                continue;
            }
            // Who has a link says here in what the files differ.
            if !peer.trouble.is_empty() {
                notes.push(peer.trouble.clone());
            }
            if peer.clock_ahead_ms.is_some_and(|ahead| ahead.abs() > CLOCK_MAX_MS) {
                let ahead = peer.clock_ahead_ms.unwrap_or_default() / 1e3;
                let word = if ahead < 0.0 { "behind" } else { "ahead of" };
                notes.push(format!("the clock of {to} is {:.1} s {word} that of {name}", ahead.abs()));
            }
            if peer.queued_bytes > QUEUED_MAX {
                let waits = peer.queued_bytes as f64 / 1e6;
                notes.push(format!(
                    "{waits:.1} MB wait at {name} for {to}: the link carries less than is sent"
                ));
            }
            if compared.contains(&(to, name)) {
                continue;
            }
            compared.push((name, to));
            if let Some(file) = file
                && let (Some(from), Some(at)) = (named(file, name), named(file, to))
                && let Some(measured) = peer.round_trip_ms
            {
                let says = (file.one_way(from, at) + file.one_way(at, from)).as_millis_f64();
                let apart = (measured - says).abs();
                if apart > APART.1 && apart > says * APART.0 {
                    notes.push(format!("from {name} to {to} and back takes {measured:.1} ms, and {says:.1} in the file: `isochrone plan` reckons with the file"));
                }
            }
        }
    }
}

fn named(file: &Deployment, name: &str) -> Option<NodeId> {
    file.nodes().iter().find(|node| node.name == name).map(|node| node.id)
}
