//! The plan of a keyspace: its floors, what each choice of protocol and leader costs, and which to take.

use isochrone_core::deployment::{ConfigErrors, Deployment, Keyspace, leader_in_turn};
use isochrone_core::{FastQuorums, Guarantee, KeyspaceId, Matrix, NodeId, Quorums, RegionId, Span};
use serde::{Serialize, Serializer};

use crate::decision::fast_crashes_max;
use crate::forecast::{Row, rows};
use crate::placement::better;
use crate::{Client, Demand, Forecast, Group, curp, curp_consensus, fastpaxos, floor, multipaxos, sdpaxos};

/// What the distances allow one keyspace. Serialized, it is what `isochrone plan --format json` prints.
///
/// Clients are each on a machine of their own. Times are milliseconds, means are over the clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The keyspace.
    pub keyspace: String,
    /// The protocol and leader that the deployment names; the leader is none where it leaves the choice.
    pub configured: Recommendation,
    /// The region of each replica; of a keyspace of `curp` also of each spare, since those serve from the start.
    pub replicas: Vec<String>,
    /// How many of them may crash.
    pub crashes: usize,
    /// After how many of these crashes any protocol can still decide in two message delays: the lower bound of
    /// [`decision`](crate::decision), for consensus as an object.
    pub fast_crashes: usize,
    /// Clients of each region, in proportion, in the order of the deployment; an object by region when serialized.
    #[serde(serialize_with = "by_region")]
    pub clients: Vec<(String, u32)>,
    /// Percent of the commands that are taken to interfere.
    pub conflict_percent: f64,
    /// The lower bound for each region, in the order of the deployment; an object by region when serialized.
    #[serde(serialize_with = "by_region")]
    pub floor_ms: Vec<(String, f64)>,
    /// The mean of the lower bounds.
    pub floor_mean_ms: f64,
    /// What each protocol reaches with each choice of leader, lowest mean first.
    pub protocols: Vec<Forecast>,
    /// The linearizable choice with the lowest mean.
    pub recommended: Recommendation,
    /// A faster one, where answers need only say that a command has its place: it may then be ordered before a command
    /// of another client that was answered earlier.
    pub sequenced: Option<Recommendation>,
    /// A better place for as many replicas, if there is one among the regions that have nodes.
    pub placement: Option<Recommendation>,
}

/// A choice of protocol, leader and placement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The protocol.
    pub protocol: String,
    /// The leader's region.
    pub leader: Option<String>,
    /// When the keyspace must answer, as its parameter `reply` says, where that is not what it does by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// The region of each replica.
    pub replicas: Vec<String>,
    /// Its mean over the clients; none where the choice leaves the leader open or its closed form is not known.
    pub mean_ms: Option<f64>,
    /// Why, in a sentence; of what is configured, how its mean comes about where there are partitions.
    pub reason: String,
}

/// Plans a keyspace of a deployment.
///
/// # Errors
/// If the deployment gives no round trips between its regions, or Domino quorums that it cannot have.
///
/// # Panics
/// If the demand does not have a number for each region.
pub fn plan(deployment: &Deployment, keyspace: KeyspaceId, demand: &Demand) -> Result<Plan, ConfigErrors> {
    plan_over(deployment, deployment.given_matrix()?, keyspace, demand)
}

/// The same over other distances between the regions of the deployment than its own: measured ones.
///
/// # Errors
/// Domino quorums that the keyspace cannot have.
///
/// # Panics
/// If the demand, or the matrix, does not have each region.
pub fn plan_over(
    deployment: &Deployment,
    matrix: &Matrix,
    keyspace: KeyspaceId,
    demand: &Demand,
) -> Result<Plan, ConfigErrors> {
    assert_eq!(matrix.len(), deployment.regions().len(), "distances are given for each region");
    assert_eq!(demand.clients.len(), matrix.len(), "clients are given for each region");
    let keyspace = deployment.keyspace(keyspace);
    let replicas = servers(deployment, keyspace);
    let floors: Vec<Span> = matrix.regions().map(|region| floor(matrix, region, &replicas)).collect();
    let quorums = quorums(keyspace, replicas.len())?;
    let crashes = Quorums::faults(replicas.len());
    let mut rows = rows(matrix, &replicas, quorums, keyspace, demand, &Client::In);
    // A stable sort over whole nanoseconds: equals stay in the order of preference.
    rows.sort_by_key(|row| row.rank.unwrap_or_else(|| demand.total(&row.commits)));
    let best = best(&rows);
    let sequenced = best_of(&rows, Guarantee::Sequenced).filter(|row| row.rank < best.rank);
    let recommended = choose(matrix, &replicas, best, demand, reason(matrix, &rows, best, demand));
    let named = |regions: &[RegionId]| regions.iter().map(|region| matrix.name(*region).to_owned()).collect();
    let better = better(deployment, matrix, &replicas, quorums, keyspace, demand, best.rank);
    let placement = better.map(|(replicas, rows)| {
        let found = self::best(&rows);
        let gain = best.mean(demand) - found.mean(demand);
        let reason = format!("{gain:.1} ms less than where the replicas stand now");
        choose(matrix, &replicas, found, demand, reason)
    });
    Ok(Plan {
        keyspace: keyspace.name.clone(),
        configured: configured(deployment, matrix, keyspace, &rows, demand, named(&replicas)),
        replicas: named(&replicas),
        crashes,
        fast_crashes: fast_crashes_max(replicas.len(), crashes).unwrap_or(0),
        clients: matrix.names().map(str::to_owned).zip(demand.clients.iter().copied()).collect(),
        conflict_percent: demand.conflict,
        floor_ms: matrix
            .names()
            .map(str::to_owned)
            .zip(floors.iter().map(|floor| floor.as_millis_f64()))
            .collect(),
        floor_mean_ms: demand.mean(&floors),
        protocols: rows.iter().map(|row| row.forecast(matrix, demand)).collect(),
        recommended,
        sequenced: sequenced.map(|row| {
            let reason = "its answers say that a command has its place; results come later".to_owned();
            choose(matrix, &replicas, row, demand, reason)
        }),
        placement,
    })
}

/// The region of each node that serves a keyspace from the start: of its replicas and, as those of `curp` serve like
/// these, of its spares.
pub fn servers(deployment: &Deployment, keyspace: &Keyspace) -> Vec<RegionId> {
    let spares = match keyspace.protocol.as_str() {
        "curp" => keyspace.parameters.read().text("spares", ""),
        _ => String::new(),
    };
    let replicas = keyspace.replicas.iter().map(|id| deployment.node(*id).region);
    let spares = spares.split(',').filter_map(|name| deployment.node_named(name.trim()));
    replicas.chain(spares.map(|node| node.region)).collect()
}

/// The replica of a keyspace that makes the best leader, sequencer or coordinator for its clients: the least mean over
/// them of what its protocol's clients wait for because of it. The first of equals.
pub fn leader(deployment: &Deployment, keyspace: &Keyspace) -> NodeId {
    leader_over(deployment, deployment.matrix(), keyspace)
}

fn leader_over(deployment: &Deployment, matrix: &Matrix, keyspace: &Keyspace) -> NodeId {
    let region = |node: &NodeId| deployment.node(*node).region;
    let replicas = servers(deployment, keyspace);
    let demand = Demand::of(deployment);
    let tuned = curp::Tuned::of(keyspace);
    let total = |node: &&NodeId| {
        let commit = |client: RegionId| {
            let (client, leader) = (Client::of(client, &replicas), region(node));
            match keyspace.protocol.as_str() {
                "sdpaxos" => sdpaxos::commit(matrix, client, leader, &replicas),
                "curp" => tuned.commit(matrix, client, leader, Group::from(&replicas)),
                "curp-consensus" => curp_consensus::commit(matrix, client, leader, &replicas),
                // Without a collision the coordinator does not matter.
                "fastpaxos" | "domino" => fastpaxos::recovered(matrix, client, leader, &replicas),
                _ => multipaxos::commit(matrix, client, leader, &replicas),
            }
        };
        demand.total(&matrix.regions().map(commit).collect::<Vec<_>>())
    };
    // A keyspace has at least one replica.
    keyspace.replicas.iter().min_by_key(total).copied().unwrap_or(keyspace.replicas[0])
}

impl Demand {
    /// The clients that the deployment names, never interfering.
    pub fn of(deployment: &Deployment) -> Demand {
        let clients = deployment.regions().iter().map(|region| region.clients).collect();
        Demand { clients, conflict: 0.0 }
    }
}

/// What each protocol reaches with each choice of leader where the replicas stand in these regions, and the clients of each
/// region where `at` says: in an order in which of equals the first is preferred. Parameters are those of the keyspace.
///
/// # Errors
/// Domino quorums that the keyspace cannot have.
///
/// # Panics
/// If there is no replica, or the demand does not have a number for each region of the matrix.
pub fn forecasts(
    matrix: &Matrix,
    replicas: &[RegionId],
    keyspace: &Keyspace,
    demand: &Demand,
    at: &dyn Fn(RegionId) -> Client,
) -> Result<Vec<Forecast>, ConfigErrors> {
    assert_eq!(demand.clients.len(), matrix.len(), "clients are given for each region");
    let rows = rows(matrix, replicas, quorums(keyspace, replicas.len())?, keyspace, demand, at);
    Ok(rows.iter().map(|row| row.forecast(matrix, demand)).collect())
}

/// The quorums of Domino: what the keyspace says where it is one of Domino, else those that follow from its replicas.
pub(crate) fn quorums(keyspace: &Keyspace, replicas: usize) -> Result<FastQuorums, ConfigErrors> {
    if keyspace.protocol != "domino" {
        return Ok(FastQuorums::of(replicas));
    }
    let mut reader = keyspace.parameters.read();
    let quorums = reader.quorums(replicas);
    // What else its parameters say, the protocol understands.
    reader.finish_partly().map(|()| quorums)
}

/// The ranked row of this guarantee with the lowest mean.
fn best_of(rows: &[Row], guarantee: Guarantee) -> Option<&Row> {
    rows.iter().filter(|row| row.rank.is_some() && row.guarantee == guarantee).min_by_key(|row| row.rank)
}

pub(crate) fn best(rows: &[Row]) -> &Row {
    match best_of(rows, Guarantee::Linearizable) {
        Some(row) => row,
        None => unreachable!("every placement has a row for Multi-Paxos"),
    }
}

fn choose(
    matrix: &Matrix,
    replicas: &[RegionId],
    row: &Row,
    demand: &Demand,
    reason: String,
) -> Recommendation {
    let name = |region: RegionId| matrix.name(region).to_owned();
    Recommendation {
        protocol: row.protocol.to_owned(),
        leader: row.leader.map(name),
        reply: row.reply.map(str::to_owned).filter(|reply| reply != EXECUTE),
        replicas: replicas.iter().copied().map(name).collect(),
        mean_ms: Some(row.mean(demand)),
        reason,
    }
}

fn configured(
    deployment: &Deployment,
    matrix: &Matrix,
    keyspace: &Keyspace,
    rows: &[Row],
    demand: &Demand,
    replicas: Vec<String>,
) -> Recommendation {
    let led = rows.iter().any(|row| row.protocol == keyspace.protocol && row.leader.is_some());
    let chosen = keyspace.leader.or_else(|| led.then(|| leader_over(deployment, matrix, keyspace)));
    let region = |id: NodeId| deployment.node(id).region;
    let named = chosen.map(|id| deployment.region(region(id)).name.clone());
    let reply = reply(keyspace);
    let mean = |leader: Option<RegionId>| {
        let same = |row: &&Row| {
            row.rank.is_some()
                && row.protocol == keyspace.protocol
                && row.holds_alone(&reply)
                && (row.leader.is_none() || row.leader == leader)
        };
        rows.iter().find(same).map(|row| row.mean(demand))
    };
    let in_turn = |first: NodeId| {
        let leaders = keyspace.partition_ids().map(|at| leader_in_turn(&keyspace.replicas, first, at));
        let means: Option<Vec<f64>> = leaders.map(|leader| mean(Some(region(leader)))).collect();
        means.map(|means| means.iter().sum::<f64>() / means.len() as f64)
    };
    let divided = led && keyspace.partitions > 1;
    let mut reasons = Vec::new();
    if divided {
        reasons.push(format!(
            "the mean over its {} partitions, which the replicas lead in turn",
            keyspace.partitions
        ));
    }
    if keyspace.protocol == "sdpaxos" && reply == EXECUTE {
        reasons.push(format!("of a client alone: {WAITS}"));
    }
    Recommendation {
        protocol: keyspace.protocol.clone(),
        leader: named,
        reply: Some(reply.clone()).filter(|reply| reply != EXECUTE),
        replicas,
        mean_ms: chosen.map_or_else(|| mean(None), in_turn),
        reason: reasons.join("; "),
    }
}

/// When a keyspace answers that does not say so.
const EXECUTE: &str = "execute";
/// What SDPaxos does then.
const WAITS: &str = "without reply = \"commit\" its answers wait for what other regions write";

/// When a keyspace answers.
pub(crate) fn reply(keyspace: &Keyspace) -> String {
    keyspace.parameters.read().text("reply", EXECUTE)
}

/// Why this row: what it is ahead of, and where it would not be.
fn reason(matrix: &Matrix, rows: &[Row], best: &Row, demand: &Demand) -> String {
    let label = |row: &Row| {
        let leader = row.leader.map(|leader| matrix.name(leader).to_owned());
        let reply = row.reply.filter(|reply| *reply != EXECUTE).map(|reply| format!("reply = {reply:?}"));
        let with: Vec<String> = leader.into_iter().chain(reply).collect();
        match with.is_empty() {
            true => row.protocol.to_owned(),
            false => format!("{} with {}", row.protocol, with.join(" and ")),
        }
    };
    let linearizable = |row: &&Row| row.rank.is_some() && row.guarantee == Guarantee::Linearizable;
    let next = rows
        .iter()
        .filter(linearizable)
        .filter(|row| row.protocol != best.protocol)
        .min_by_key(|row| row.rank);
    let Some(next) = next else { return "the lowest mean".to_owned() };
    let lead = next.mean(demand) - best.mean(demand);
    let mut reason = if lead > 0.0 {
        format!("the lowest mean; {} comes next, {lead:.1} ms more", label(next))
    } else {
        format!("the lowest mean, with {} as low", label(next))
    };
    if best.protocol == "sdpaxos" {
        reason += &format!("; {WAITS}");
    }
    // EPaxos pays for interference: say from which share on something else is faster.
    let conflict = rows.iter().find(|row| row.case == Some("conflict"));
    if let (Some("no conflict"), Some(slow)) = (best.case, conflict) {
        let (fast, slow) = (demand.total(&best.commits) as f64, demand.total(&slow.commits) as f64);
        let share = 100.0 * (next.rank.unwrap_or(0) as f64 - fast) / (slow - fast);
        if share < 100.0 {
            let more = if lead > 0.0 { format!("more than {share:.0}% of ") } else { String::new() };
            reason += &format!("; with {more}interfering commands that is faster");
        }
    }
    reason
}

fn by_region<S: Serializer, T: Serialize>(figures: &[(String, T)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().map(|(region, figure)| (region, figure)))
}
