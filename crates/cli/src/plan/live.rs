//! `plan --live`: a plan over the round trips that the nodes of a running cluster measure, and what their clients waited for
//! beside it.

use crate::arguments::Plan as Arguments;
use crate::output::{clean, clean_line};
use crate::status;
use crate::status::screen::columns;
use crate::status::told::Told;
use crate::status::view::{Asked, Shown, View};
use crate::up::table::{millis, rate};
use crate::{Usage, protocols};
use anyhow::bail;
use isochrone_core::deployment::{Address, Keyspace, leader_in_turn};
use isochrone_core::{Deployment, KeyspaceId, Matrix, NodeId, PartitionId, Quorums, RegionId, Span};
use isochrone_plan::{Expected, Forecast, Plan, Recommendation, Standing, about, mark};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

#[cfg(test)]
mod tests;

/// A round trip that is longer is no measurement: the same bound as of a matrix file's cells, milliseconds.
const TRIP_MAX_MS: f64 = 3_600_000.0;
/// A difference that is less is a matter of how it was measured, milliseconds.
const LESS_MIN_MS: f64 = 0.05;
/// One way to a replica that does not answer: longer than any that is measured. What waits for it is not known.
const NEVER: Span = Span::from_secs(24 * 3_600);
/// By so great a share of the mean, and by so many milliseconds, another leader has to be faster before somebody is told who did
/// not ask: what is less does not earn a hand-over, and the clients of ten seconds and the noise of round trips move the
/// mean by as much.
const WORTH: (f64, f64) = (0.1, 2.0);
/// And clients have to ask for so much, commands a second: of the hundred that ten seconds have then, the share of a region is
/// true to a twentieth.
const ASKED_MIN: f64 = 10.0;

/// What running nodes tell, as a plan needs it. Serialized, it is the `live` of `isochrone plan --live --format json`.
#[derive(Debug, Serialize)]
pub(super) struct Live {
    cluster: String,
    /// How many nodes were asked, and how many answered.
    asked: usize,
    answered: usize,
    /// The round trip between each two regions.
    links: Vec<Link>,
    /// What the keyspace runs.
    protocol: String,
    /// The node that leads each partition.
    leaders: Vec<Option<String>>,
    /// What clients of each node waited for.
    clients: Vec<Wait>,
    /// Another leader under which the mean would be less, of the same protocol.
    better_leader: Option<Faster>,
    /// Another protocol that promises as much, under which it would be.
    better_protocol: Option<Faster>,
    /// Another leader, of the same protocol, under which the mean over what clients asked in the last seconds would be less.
    better_for_clients: Option<Faster>,
    /// What somebody should know who reads the figures.
    notes: Vec<String>,
    /// Whether the last two were looked for: the mean of what runs is known.
    #[serde(skip)]
    compared: bool,
    /// Whether nobody reaches one of its replicas, with which the table of the plan reckons all the same.
    #[serde(skip)]
    fewer: bool,
    /// What clients asked in the last seconds and does not take as long whoever leads, commands a second.
    #[serde(skip)]
    asked_for: f64,
    /// What the plan reckons with: as measured, and where nobody measures, as in the file.
    #[serde(skip)]
    pub(super) matrix: Matrix,
}

/// The round trip between two regions.
#[derive(Debug, PartialEq, Serialize)]
struct Link {
    from: String,
    to: String,
    /// The mean of what the nodes at both ends measure; none where none does, and the file's is reckoned with.
    measured_ms: Option<f64>,
    file_ms: Option<f64>,
}

/// What clients of a node waited for in the last seconds at the median, to write, and what they should.
#[derive(Debug, PartialEq, Serialize)]
struct Wait {
    node: String,
    region: String,
    operations_per_second: f64,
    write_p50_ms: Option<f64>,
    /// Over the round trips as measured, with who leads now; whether that is a bound; and how many times as long they waited.
    expected_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_bound: Option<&'static str>,
    ratio: Option<f64>,
    /// Over those of the file.
    file_expected_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_expected_bound: Option<&'static str>,
    file_ratio: Option<f64>,
}

/// A choice under which the mean over the clients would be less.
#[derive(Debug, PartialEq, Serialize)]
struct Faster {
    protocol: String,
    leader: Option<String>,
    /// What its parameter `reply` must say, where that is not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<String>,
    /// What its parameter `f` must say, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    f: Option<usize>,
    mean_ms: f64,
    /// Whether that is a bound, `at least` or `at most`.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<String>,
    less_ms: f64,
    /// Whether that is one, likewise, or `by these bounds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    less_bound: Option<&'static str>,
}

impl Faster {
    /// A choice that has this mean where what runs has that one; none where the difference is nothing to speak of. Each mean
    /// with whether it is a bound.
    fn than(
        (now, now_bound): (f64, Option<&str>),
        (mean_ms, bound): (f64, Option<&str>),
        protocol: &str,
        leader: Option<&str>,
    ) -> Option<Faster> {
        (now - mean_ms >= LESS_MIN_MS).then(|| Faster {
            protocol: protocol.to_owned(),
            leader: leader.map(str::to_owned),
            reply: None,
            f: None,
            mean_ms,
            bound: bound.map(str::to_owned),
            less_ms: now - mean_ms,
            less_bound: Some(about(now_bound, bound).trim_end()).filter(|words| !words.is_empty()),
        })
    }
}

/// What a figure has before it in a sentence that is a bound.
fn before(bound: Option<&str>) -> String {
    bound.map_or_else(String::new, |bound| format!("{bound} "))
}

/// Asks the nodes, and gives the deployment as it runs: with the protocol and the leader that the keyspace has now.
///
/// # Errors
/// Nobody answers, or nodes of another cluster; a way between two regions that neither nodes nor file know.
pub(super) fn look(
    arguments: &Arguments,
    deployment: Deployment,
    keyspace: KeyspaceId,
) -> anyhow::Result<(Deployment, Live)> {
    let file = arguments.file.is_some().then_some(&deployment);
    let asked = asked(file, &arguments.http)?;
    of_this_cluster(&asked, file)?;
    of(&asked, deployment, keyspace)
}

/// Asks those at the given addresses; else those of the file, or where none of them answers those of an `isochrone up` of the
/// file, which are on ports of their own.
fn asked(file: Option<&Deployment>, http: &[Address]) -> anyhow::Result<Vec<Asked>> {
    if !http.is_empty() {
        return status::answered(status::of_addresses(http)?);
    }
    let Some(file) = file else { return status::answered(status::of_up()?) };
    let listed = file.nodes().iter().any(|node| node.http.is_some());
    let asked = if listed { status::of_file(file, &[])? } else { Vec::new() };
    if asked.iter().any(|asked| asked.answer.is_ok()) {
        return status::answered(asked);
    }
    let up = status::of_up()?;
    let ours = |asked: &Asked| asked.answer.as_ref().is_ok_and(|told| told.cluster == file.cluster());
    match (up.iter().any(ours), listed) {
        (true, _) => status::answered(up),
        (false, true) => status::answered(asked),
        // Which says that there is no `http`.
        (false, false) => status::answered(status::of_file(file, &[])?),
    }
}

/// Refuses nodes whose distances and protocols would be those of another deployment.
fn of_this_cluster(asked: &[Asked], file: Option<&Deployment>) -> Result<(), Usage> {
    let built_in = Deployment::five_regions();
    let deployment = file.unwrap_or(&built_in);
    let Some(told) = asked.iter().find_map(|asked| asked.answer.as_ref().ok()) else { return Ok(()) };
    if told.cluster == deployment.cluster() {
        return Ok(());
    }
    let (found, ours) = (clean_line(&told.cluster), deployment.cluster());
    Err(Usage(match file {
        Some(file) => format!(
            "{}: it is of cluster {ours}, and nodes of {found} answer\n  name the deployment of {found}, or with --http \
             where nodes of {ours} are",
            file.file()
        ),
        None => format!(
            "nodes of cluster {found} answer, and without a file it is {ours}, the one of `isochrone up`\n  name the \
             deployment of {found}: isochrone plan FILE --live"
        ),
    }))
}

/// What these answers say of a keyspace.
fn of(asked: &[Asked], deployment: Deployment, keyspace: KeyspaceId) -> anyhow::Result<(Deployment, Live)> {
    let view = View::of(asked, None);
    let told: Vec<&Told> = asked.iter().filter_map(|asked| asked.answer.as_ref().ok()).collect();
    let mut notes = Vec::new();
    for asked in asked {
        if let Err(why) = &asked.answer {
            let name = asked.name.as_ref().map(|(name, _)| name).or(asked.http.as_ref());
            notes.push(format!("{} does not tell: {why}", name.map_or("-", String::as_str)));
        }
    }
    let strangers: Vec<_> = told
        .iter()
        .filter(|told| deployment.node_named(&told.node).is_none())
        .map(|told| &told.node)
        .collect();
    if strangers.len() == told.len() {
        let right = "name the file with which the nodes were started";
        bail!(Usage(format!("{}: none of the nodes that answer is in it\n  {right}", deployment.file())));
    }
    notes.extend(strangers.iter().map(|name| format!("{name} answers, and is not in the file")));

    let name = deployment.keyspace(keyspace).name.clone();
    let Some(shown) = view.keyspaces.iter().find(|shown| shown.keyspace == name) else {
        let there =
            view.keyspaces.iter().map(|shown| clean_line(&shown.keyspace)).collect::<Vec<_>>().join(", ");
        bail!(Usage(format!(
            "no node that answers has a keyspace {name}\n  there are {there}: --keyspace NAME"
        )));
    };
    let (matrix, links) = measured(&deployment, &told, &mut notes)?;
    let deployment = running(deployment, keyspace, shown, &mut notes)?;
    let away = away(&deployment, &told);
    let (partitions, fewer) = standings(&deployment, keyspace, shown, &told, &away, &mut notes);
    let space = deployment.keyspace(keyspace);
    let expected = |matrix: &Matrix| isochrone_plan::expected(&with_nowhere(matrix), space, &partitions);
    let by_file = match deployment.given_matrix() {
        Ok(matrix) => expected(matrix)?,
        Err(_) => None,
    };
    let clients = waits(&deployment, shown, &away, expected(&matrix)?.as_deref(), by_file.as_deref());
    let asked_for = asked_for(&deployment, shown, &away, &partitions, &matrix);
    let better_for_clients = better_for_clients(&deployment, space, shown, &partitions, &matrix, &asked_for)?;
    let live = Live {
        cluster: view.cluster.clone(),
        asked: asked.len(),
        answered: told.len(),
        links,
        protocol: shown.protocol.clone(),
        leaders: shown.leaders.clone(),
        clients,
        better_leader: None,
        better_protocol: None,
        better_for_clients,
        compared: false,
        fewer,
        asked_for: asked_for.iter().sum(),
        notes,
        matrix,
    };
    Ok((deployment, live))
}

/// The nodes that nobody who answers reaches: their peers say so, and they reach nobody themselves.
fn away(deployment: &Deployment, told: &[&Told]) -> BTreeSet<NodeId> {
    let reached = |name: &str| {
        let seen = told.iter().flat_map(|told| &told.peers).filter(|peer| peer.name == name);
        let mut seen = seen.map(|peer| peer.connected).peekable();
        seen.peek().is_none() || seen.any(|connected| connected)
    };
    let reaches = |name: &str| {
        let own = told.iter().filter(|told| told.node == name);
        own.flat_map(|told| &told.peers).any(|peer| peer.connected)
    };
    let away = deployment.nodes().iter().filter(|node| !reached(&node.name) && !reaches(&node.name));
    away.map(|node| node.id).collect()
}

/// The region behind the others in a matrix [`with_nowhere`].
fn nowhere(deployment: &Deployment) -> RegionId {
    // At most 64 regions.
    RegionId(deployment.regions().len() as u16)
}

/// The same with one more region, to which no message gets in time: where replicas stand that do not answer, and count in quorums.
fn with_nowhere(matrix: &Matrix) -> Matrix {
    let names: Vec<&str> = matrix.names().chain([""]).collect();
    let known = |region: RegionId| usize::from(region.0) < matrix.len();
    Matrix::from_fn(&names, |from, to| match known(from) && known(to) {
        true => matrix.one_way(from, to),
        false => NEVER,
    })
}

/// The round trips between regions: of each two the mean of what is measured at both ends.
fn measured(
    deployment: &Deployment,
    told: &[&Told],
    notes: &mut Vec<String>,
) -> anyhow::Result<(Matrix, Vec<Link>)> {
    let mut trips: BTreeMap<(RegionId, RegionId), Vec<f64>> = BTreeMap::new();
    for told in told {
        let Some(from) = deployment.node_named(&told.node) else { continue };
        for peer in told.peers.iter().filter(|peer| peer.connected) {
            if let (Some(to), Some(trip)) = (deployment.node_named(&peer.name), peer.round_trip_ms)
                && (0.0..=TRIP_MAX_MS).contains(&trip)
            {
                let (one, other) = (from.region.min(to.region), from.region.max(to.region));
                trips.entry((one, other)).or_default().push(trip);
            }
        }
    }
    let mean = |a: RegionId, b: RegionId| {
        let trips = trips.get(&(a.min(b), a.max(b)))?;
        Some(trips.iter().sum::<f64>() / trips.len() as f64)
    };
    let file = deployment.given_matrix();
    let name = |region: RegionId| deployment.region(region).name.as_str();
    let mut links = Vec::new();
    for from in deployment.matrix().regions() {
        for to in deployment.matrix().regions().filter(|to| *to > from) {
            let measured_ms = mean(from, to);
            let file_ms = file.as_ref().ok().map(|matrix| matrix.rtt(from, to).as_millis_f64());
            match (measured_ms, file_ms) {
                (Some(_), _) => {}
                (None, Some(says)) => notes.push(format!(
                    "nobody measures the way between {} and {}: {says:.1} ms as in the file",
                    name(from),
                    name(to)
                )),
                (None, None) => bail!(
                    "nobody measures the way between {} and {}, and {} gives no round trips\n  start the nodes \
                     that are down, or add rtt = \"matrix.csv\" under [network]; who is away says: isochrone status",
                    name(from),
                    name(to),
                    deployment.file()
                ),
            }
            let (from, to) = (name(from).to_owned(), name(to).to_owned());
            links.push(Link { from, to, measured_ms, file_ms });
        }
    }
    let names: Vec<&str> = deployment.matrix().names().collect();
    let matrix = Matrix::from_fn(&names, |from, to| match mean(from, to) {
        Some(trip) => {
            let trip = Span::from_nanos((trip * 1e6).round() as u64);
            // The longer half goes one way and the shorter the other: they add up to what was measured.
            if from < to { trip.saturating_sub(trip / 2) } else { trip / 2 }
        }
        None => deployment.matrix().one_way(from, to),
    });
    Ok((matrix, links))
}

/// The deployment with the protocol that the keyspace runs, and led from where it is.
fn running(
    deployment: Deployment,
    keyspace: KeyspaceId,
    shown: &Shown,
    notes: &mut Vec<String>,
) -> anyhow::Result<Deployment> {
    let written = &deployment.keyspace(keyspace).protocol;
    let deployment = if *written == shown.protocol {
        deployment
    } else {
        let (file, written) = (deployment.file().to_owned(), written.clone());
        let runs = clean_line(&shown.protocol);
        notes.push(format!("the nodes run {runs} with its defaults, taken as such; the file says {written}"));
        deployment.with_protocol(keyspace, &shown.protocol, &protocols::known()).map_err(|_| {
            let right = "name the file with which the nodes were started";
            Usage(format!("{file}: it says {written}, and the nodes run {runs}\n  {right}"))
        })?
    };
    let space = deployment.keyspace(keyspace);
    let Some(Some(leader)) = shown.leaders.first() else { return Ok(deployment) };
    let first = deployment.node_named(leader).map(|node| node.id);
    let Some(first) = first.filter(|first| space.placement.is_empty() && space.replicas.contains(first))
    else {
        return Ok(deployment);
    };
    let in_turn = |(at, leader): (usize, &Option<String>)| {
        // At most 1,024 partitions.
        let turn = leader_in_turn(&space.replicas, first, PartitionId(at as u16));
        leader.as_deref() == Some(deployment.node(turn).name.as_str())
    };
    if !shown.leaders.iter().enumerate().all(in_turn) {
        notes.push(
            "the replicas do not lead the partitions in turn, as the mean of what is configured has it"
                .to_owned(),
        );
    }
    Ok(deployment.with_leader(keyspace, leader)?)
}

/// How each partition stands, in a matrix [`with_nowhere`]; and whether nobody reaches one of the replicas.
fn standings(
    deployment: &Deployment,
    keyspace: KeyspaceId,
    shown: &Shown,
    told: &[&Told],
    away: &BTreeSet<NodeId>,
    notes: &mut Vec<String>,
) -> (Vec<Standing>, bool) {
    let space = deployment.keyspace(keyspace);
    let groups = space.groups();
    let (mut moved, mut missed) = (false, BTreeSet::new());
    let mut standing = |(at, leader): (usize, &Option<String>)| {
        let written = groups.get(at).cloned().unwrap_or_default();
        let now = members(deployment, space, at, leader.as_deref(), told);
        let members = match (space.protocol.as_str(), &now) {
            // Its managers choose among replicas and spares.
            ("curp", _) => isochrone_plan::serving(deployment, space),
            (_, Some(members)) => {
                moved |=
                    !(members.len() == written.len() && members.iter().all(|node| written.contains(node)));
                members.clone()
            }
            (_, None) => written,
        };
        // Of those, nobody misses one that was removed and stays in the file.
        let counts = |node: &&NodeId| now.as_ref().is_none_or(|members| members.contains(*node));
        let gone = members.iter().filter(|node| away.contains(*node));
        missed.extend(gone.filter(counts).copied());
        let live = members.iter().filter(|node| !away.contains(*node)).count();
        // CURP puts copies elsewhere, and of Mencius nobody waits for who has crashed, where most are there to agree on it.
        let left_out = match space.protocol.as_str() {
            "curp" | "mencius" => live >= Quorums::majority(members.len()),
            _ => false,
        };
        let region = |node: &NodeId| match away.contains(node) {
            true => (!left_out).then(|| nowhere(deployment)),
            false => Some(deployment.node(*node).region),
        };
        let leader = leader.as_ref().and_then(|name| deployment.node_named(name));
        Standing {
            replicas: members.iter().filter_map(region).collect(),
            leader: leader.filter(|node| !away.contains(&node.id)).map(|node| node.region),
        }
    };
    let standings = shown.leaders.iter().enumerate().map(&mut standing).collect();
    if moved {
        let table = "what clients should wait is of those that there are, the table of the file's";
        notes.push(format!("members have changed since the file: {table}"));
    }
    if !missed.is_empty() {
        let names: Vec<&str> = missed.iter().map(|node| deployment.node(*node).name.as_str()).collect();
        notes.push(format!(
            "nobody reaches {}: the table is as if all answered, what clients should wait is not",
            names.join(", ")
        ));
    }
    (standings, !missed.is_empty())
}

/// The members of a partition, by who leads it, or else by the first that tells; none where nobody tells of nodes that are
/// known.
fn members(
    deployment: &Deployment,
    space: &Keyspace,
    partition: usize,
    leader: Option<&str>,
    told: &[&Told],
) -> Option<Vec<NodeId>> {
    let of = |told: &&Told| {
        let keyspace = told.keyspaces.iter().find(|keyspace| keyspace.name == space.name)?;
        keyspace.members.get(partition).cloned()
    };
    let first = told.iter().find(|told| Some(told.node.as_str()) == leader).and_then(of);
    let names = first.or_else(|| told.iter().find_map(of))?;
    let mut nodes: Vec<NodeId> = Vec::new();
    for node in names.iter().filter_map(|name| deployment.node_named(name)) {
        if !nodes.contains(&node.id) {
            nodes.push(node.id);
        }
    }
    (!nodes.is_empty()).then_some(nodes)
}

/// What clients of each node waited for, in the order of the file.
fn waits(
    deployment: &Deployment,
    shown: &Shown,
    away: &BTreeSet<NodeId>,
    expected: Option<&[Expected]>,
    by_file: Option<&[Expected]>,
) -> Vec<Wait> {
    let wait = |node: &isochrone_core::deployment::Node| {
        let row = shown.nodes.iter().find(|row| row.node == node.name)?;
        let of = |waits: Option<&[Expected]>| {
            let expected = waits.and_then(|waits| waits.get(usize::from(node.region.0)));
            let known = expected.filter(|expected| expected.wait < NEVER && !away.contains(&node.id));
            (known.map(|known| known.wait.as_millis_f64()), known.and_then(|known| known.bound))
        };
        let ratio = |expected: Option<f64>| match (row.write_p50_ms, expected) {
            (Some(waited), Some(expected)) if expected > 0.0 => Some(waited / expected),
            _ => None,
        };
        let ((expected_ms, expected_bound), (file_expected_ms, file_expected_bound)) =
            (of(expected), of(by_file));
        Some(Wait {
            node: node.name.clone(),
            region: deployment.region(node.region).name.clone(),
            operations_per_second: row.operations_per_second,
            write_p50_ms: row.write_p50_ms,
            expected_ms,
            expected_bound,
            ratio: ratio(expected_ms),
            file_expected_ms,
            file_expected_bound,
            file_ratio: ratio(file_expected_ms),
        })
    };
    deployment.nodes().iter().filter_map(wait).collect()
}

/// What clients of each region asked of a keyspace in the last seconds, commands a second. Where half of them were answered long
/// before the leader could be, they were read at a copy nearby, and whoever leads they take as long. What the leader answers
/// without a commit another one answers sooner or later by as much as it would commit. Whoever is cut off is answered by no leader.
fn asked_for(
    deployment: &Deployment,
    shown: &Shown,
    away: &BTreeSet<NodeId>,
    partitions: &[Standing],
    matrix: &Matrix,
) -> Vec<f64> {
    let leader = match partitions {
        [Standing { leader, .. }] => *leader,
        _ => None,
    };
    let mut rates = vec![0.0; deployment.regions().len()];
    for row in &shown.nodes {
        let node = deployment.node_named(&row.node).filter(|node| !away.contains(&node.id));
        let Some(region) = node.map(|node| node.region) else { continue };
        let far = leader.filter(|leader| *leader != region);
        let trip_ms = far.map_or(0.0, |leader| matrix.rtt(region, leader).as_millis_f64());
        let nearby = row.p50_ms.is_some_and(|p50_ms| p50_ms < trip_ms / 2.0);
        if let Some(rate) = rates.get_mut(usize::from(region.0)).filter(|_| !nearby) {
            *rate += row.operations_per_second.max(0.0);
        }
    }
    rates
}

/// The region of another member that would lead a keyspace of one partition such that what clients asked takes less in the mean;
/// the first of equals, and none that nobody reaches. Several partitions are led from several places.
fn better_for_clients(
    deployment: &Deployment,
    space: &Keyspace,
    shown: &Shown,
    partitions: &[Standing],
    matrix: &Matrix,
    rates: &[f64],
) -> anyhow::Result<Option<Faster>> {
    let all: f64 = rates.iter().sum();
    let ([Standing { replicas, leader: Some(leads) }], [members]) = (partitions, shown.members.as_slice())
    else {
        return Ok(None);
    };
    if all <= 0.0 || !all.is_finite() {
        return Ok(None);
    }
    let matrix = with_nowhere(matrix);
    let mean = |leader: RegionId| -> anyhow::Result<Option<(f64, Option<&'static str>)>> {
        let standing = Standing { replicas: replicas.clone(), leader: Some(leader) };
        let waits = isochrone_plan::expected(&matrix, space, &[standing])?;
        let mean = |waits: Vec<Expected>| {
            let asked = || waits.iter().zip(rates).filter(|(_, rate)| **rate > 0.0);
            let total = asked().map(|(expected, rate)| expected.wait.as_millis_f64() * rate).sum::<f64>();
            (total / all, asked().find_map(|(expected, _)| expected.bound))
        };
        Ok(waits.map(mean).filter(|(mean_ms, _)| *mean_ms < NEVER.as_millis_f64()))
    };
    let Some(now) = mean(*leads)? else { return Ok(None) };
    let mut best: Option<(RegionId, (f64, Option<&'static str>))> = None;
    // A hand-over goes to a member; where all of a region are away, none of the replicas is there.
    for region in members.iter().filter_map(|name| deployment.node_named(name)).map(|node| node.region) {
        if !replicas.contains(&region) {
            continue;
        }
        let less = mean(region)?.filter(|(mean_ms, _)| best.is_none_or(|(_, (least, _))| *mean_ms < least));
        best = less.map(|mean| (region, mean)).or(best);
    }
    Ok(best.and_then(|(region, mean)| {
        Faster::than(now, mean, &space.protocol, Some(deployment.region(region).name.as_str()))
    }))
}

/// The keyspaces that another leader would serve faster, by as much as somebody should look at: a line for each. Without a file
/// of the one that is built in, where it is that which runs.
pub(crate) fn off_plan(asked: &[Asked], file: Option<&Deployment>) -> Vec<String> {
    let built_in = Deployment::five_regions();
    let deployment = file.unwrap_or(&built_in);
    if of_this_cluster(asked, file).is_err() {
        return Vec::new();
    }
    let line = |keyspace: &Keyspace| {
        // What cannot be reckoned, `plan --live` says.
        let (_, live) = of(asked, deployment.clone(), keyspace.id).ok()?;
        let Faster { leader, mean_ms, bound, less_ms, less_bound, .. } = live.better_for_clients.as_ref()?;
        let (mean, less) = (before(bound.as_deref()), before(*less_bound));
        let worth = *less_ms > WORTH.1 && *less_ms > (mean_ms + less_ms) * WORTH.0;
        if !worth || live.asked_for < ASKED_MIN {
            return None;
        }
        let leads = deployment.node_named(live.leaders.first()?.as_ref()?)?;
        let (leads, other) = (&deployment.region(leads.region).name, leader.as_ref()?);
        let place = file.map_or_else(String::new, |file| format!("{} ", file.file()));
        let one = deployment.keyspaces().len() == 1;
        let which = if one { String::new() } else { format!(" --keyspace {}", keyspace.name) };
        Some(format!(
            "keyspace {} is led from {leads}; from {other} commits would take {less}{less_ms:.1} ms less, {mean}{mean_ms:.1} in the \
             mean over what clients asked in the last ten seconds: isochrone plan {place}--live{which}",
            keyspace.name
        ))
    };
    deployment.keyspaces().iter().filter_map(line).collect()
}

impl Live {
    /// Takes from the plan over what is measured which other choices would be faster than what runs.
    pub(super) fn compare(&mut self, plan: &Plan) {
        let Some(now) = plan.configured.mean_ms.filter(|_| !self.fewer) else { return };
        self.compared = true;
        let now = (now, plan.configured.bound);
        // Several partitions are led from several places.
        if self.leaders.len() == 1 {
            let as_it_is = |row: &&Forecast| row.ranked && row.f.is_none();
            let own = plan.protocols.iter().filter(as_it_is);
            let own = own.filter(|row| row.protocol == plan.configured.protocol);
            // They come lowest mean first.
            self.better_leader = own.filter(|row| row.leader.is_some()).find_map(|row| {
                let mean = (row.mean_ms, row.bound.as_deref());
                Faster::than(now, mean, &row.protocol, row.leader.as_deref())
            });
        }
        let Recommendation { protocol, leader, reply, f, mean_ms, bound, .. } = &plan.recommended;
        if *protocol != plan.configured.protocol {
            let mean = mean_ms.map(|mean_ms| (mean_ms, *bound));
            let better = mean.and_then(|mean| Faster::than(now, mean, protocol, leader.as_deref()));
            self.better_protocol = better.map(|better| Faster { reply: reply.clone(), f: *f, ..better });
        }
    }

    /// Above the plan: what is measured.
    pub(super) fn head(&self) -> String {
        let Live { cluster, asked, answered, links, .. } = self;
        let mut text = format!("{cluster}: {answered} of {asked} nodes answer\n");
        if !links.is_empty() {
            let heads = [("from", false), ("to", false), ("measured ms", true), ("file ms", true)];
            let row = |link: &Link| {
                let measured = link.measured_ms.map_or_else(|| "-".to_owned(), |trip| format!("{trip:.1}"));
                let file = link.file_ms.map_or_else(|| "-".to_owned(), |trip| format!("{trip:.1}"));
                // What is reckoned with though nobody measures it.
                let file = if link.measured_ms.is_none() { format!("* {file}") } else { file };
                vec![link.from.clone(), link.to.clone(), measured, file]
            };
            text += "round trips, which the table below is over; where nobody measures, the file's *\n\n";
            text += &columns(&heads, links.iter().map(row));
        }
        clean(&text) + "\n"
    }

    /// Below it: what clients waited for, and what would be faster.
    pub(super) fn tail(&self) -> String {
        let heads = [
            ("node", false),
            ("region", false),
            ("ops/s", true),
            ("write p50 ms", true),
            ("expected", true),
            ("ratio", true),
            ("by the file", true),
            ("ratio", true),
        ];
        let or_none =
            |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let expected = |wait_ms, bound| format!("{}{}", mark(bound), millis(wait_ms));
        let row = |wait: &Wait| {
            vec![
                wait.node.clone(),
                wait.region.clone(),
                rate(wait.operations_per_second),
                millis(wait.write_p50_ms),
                expected(wait.expected_ms, wait.expected_bound),
                or_none(wait.ratio),
                expected(wait.file_expected_ms, wait.file_expected_bound),
                or_none(wait.file_ratio),
            ]
        };
        let led = match self.leaders.as_slice() {
            [Some(leader)] => format!(", led from {leader}"),
            [None] | [] => String::new(),
            all => format!(", {} partitions", all.len()),
        };
        let mut text = format!(
            "\nwrites of the last seconds beside what is expected without load, of {}{led}\n\n",
            self.protocol
        );
        text += &columns(&heads, self.clients.iter().map(row));
        if self.compared || self.better_for_clients.is_some() {
            text.push('\n');
        }
        // Writing to a string does not fail; the same holds below.
        let all = [
            ("leader", &self.better_leader),
            ("protocol", &self.better_protocol),
            ("leader for what clients asked in the last seconds", &self.better_for_clients),
        ];
        for (what, faster) in all {
            if let Some(Faster { protocol, leader, reply, f, mean_ms, bound, less_ms, less_bound }) = faster {
                let (mean, less) = (before(bound.as_deref()), before(*less_bound));
                let from = leader.as_ref().map_or_else(String::new, |leader| format!(" with {leader}"));
                let reply =
                    reply.as_ref().map_or_else(String::new, |reply| format!(", with reply = {reply:?}"));
                let f = f.map_or_else(String::new, |f| format!(", with f = {f}"));
                let _ = writeln!(
                    text,
                    "better {what}: {protocol}{from}{reply}{f}, mean {mean}{mean_ms:.1} ms, {less}{less_ms:.1} ms less than now"
                );
            }
        }
        if self.compared && all.iter().all(|(_, faster)| faster.is_none()) {
            text += "no other leader or protocol is faster in the mean\n";
        }
        if !self.notes.is_empty() {
            text += "\nnote\n";
            for note in &self.notes {
                let _ = writeln!(text, "  {note}");
            }
        }
        clean(&text)
    }
}
