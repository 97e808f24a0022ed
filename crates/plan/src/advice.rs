//! The plan of a keyspace: its floors, what each choice of protocol and leader costs, and which to take.

use isochrone_core::deployment::{ConfigErrors, Deployment, Keyspace};
use isochrone_core::{FastQuorums, Guarantee, KeyspaceId, Matrix, NodeId, Quorums, RegionId, Span};
use serde::{Serialize, Serializer};

use crate::decision::fast_crashes_max;
use crate::forecast::{Row, rows};
use crate::placement::better;
use crate::{
    Client, Demand, Forecast, Group, Reply, curp, curp_consensus, fastpaxos, floor, multipaxos, sdpaxos,
};

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
    /// Into how many parts its keys are divided, which the replicas lead in turn where the protocol has leaders.
    pub partitions: u16,
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
    /// The linearizable choice with the lowest mean, of those that survive as many crashes as any.
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
    /// The parameter `f` of `curp` that the keyspace must be given for it; of what is configured the one that it has, where
    /// that is too few copies to survive the crash of any minority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f: Option<usize>,
    /// The region of each replica.
    pub replicas: Vec<String>,
    /// Its mean over the clients; none where the choice leaves the leader open or its closed form is not known.
    pub mean_ms: Option<f64>,
    /// Whether that mean is a bound, as that of a [`Forecast`]; none where it is exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<&'static str>,
    /// Why, in a sentence; of what is configured, what has to be known beside its mean.
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
    let first = keyspace.leader.unwrap_or_else(|| leader_over(deployment, matrix, keyspace));
    let first = keyspace.replicas.iter().position(|node| *node == first);
    let mut rows = compared(matrix, &replicas, quorums, keyspace, demand, first);
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
        let about = about(best.bound(demand), found.bound(demand));
        let reason = format!("{about}{gain:.1} ms less than where the replicas stand now");
        choose(matrix, &replicas, found, demand, reason)
    });
    Ok(Plan {
        keyspace: keyspace.name.clone(),
        configured: configured(deployment, matrix, keyspace, &rows, demand, named(&replicas)),
        replicas: named(&replicas),
        partitions: keyspace.partitions,
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

/// Every row of a placement as choices are compared. The partitions of a keyspace are led by the replicas in turn, so whoever
/// leads the first of several has the means over them all. `first` is the seat of who does so already: of replicas in one
/// region it stands for them, else the first of them.
pub(crate) fn compared(
    matrix: &Matrix,
    replicas: &[RegionId],
    quorums: FastQuorums,
    keyspace: &Keyspace,
    demand: &Demand,
    first: Option<usize>,
) -> Vec<Row> {
    let rows = rows(matrix, replicas, quorums, keyspace, demand, &Client::In);
    let partitions = usize::from(keyspace.partitions);
    if partitions < 2 {
        return rows;
    }
    // Spares, which stand behind the replicas, lead none at first.
    let seats = replicas.get(..keyspace.replicas.len()).unwrap_or(replicas);
    let in_turn = |row: &Row| {
        let Some(leader) = row.leader else { return Some(row.clone()) };
        let leads = |seat: &usize| seats.get(*seat) == Some(&leader);
        let first = first.filter(leads).or_else(|| (0..seats.len()).find(leads))?;
        let turn = |turn: usize| {
            let region = seats.get((first + turn) % seats.len()).copied();
            let same = |other: &&Row| {
                (other.protocol, other.case, other.reply, other.f)
                    == (row.protocol, row.case, row.reply, row.f)
                    && other.leader == region
            };
            let times = partitions / seats.len() + usize::from(turn < partitions % seats.len());
            rows.iter().find(same).map(|row| (times as u128, row))
        };
        let turns: Vec<_> = (0..seats.len()).map(turn).collect::<Option<_>>()?;
        Some(row.mean_over(&turns))
    };
    rows.iter().filter_map(in_turn).collect()
}

/// The nodes that serve a keyspace from the start: its replicas and, as those of `curp` serve like these, its spares.
pub fn serving(deployment: &Deployment, keyspace: &Keyspace) -> Vec<NodeId> {
    let spares = match keyspace.protocol.as_str() {
        // Which of them may not be, the protocol says.
        "curp" => keyspace.parameters.read().nodes("spares", deployment, |_| None),
        _ => Vec::new(),
    };
    keyspace.replicas.iter().copied().chain(spares).collect()
}

/// The region of each node of [`serving`].
pub fn servers(deployment: &Deployment, keyspace: &Keyspace) -> Vec<RegionId> {
    serving(deployment, keyspace).into_iter().map(|id| deployment.node(id).region).collect()
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
    let tuned = curp::Tuned::of(keyspace, replicas.len());
    let consensus = curp_consensus::Tuned::of(keyspace);
    let sequenced = sdpaxos::Tuned::of(keyspace);
    let total = |node: &&NodeId| {
        let commit = |client: RegionId| {
            let (client, leader) = (Client::of(client, &replicas), region(node));
            match keyspace.protocol.as_str() {
                "sdpaxos" => sequenced.commit(matrix, client, leader, Group::from(&replicas)),
                "curp" => tuned.commit(matrix, client, leader, Group::from(&replicas)),
                "curp-consensus" => consensus.commit(matrix, client, leader, Group::from(&replicas)),
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

/// The row of this guarantee with the lowest mean, of those that may be recommended.
fn best_of(rows: &[Row], guarantee: Guarantee) -> Option<&Row> {
    rows.iter().filter(|row| row.offered() && row.guarantee == guarantee).min_by_key(|row| row.rank)
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
        reply: row.reply.and_then(told),
        f: row.f,
        replicas: replicas.iter().copied().map(name).collect(),
        mean_ms: Some(row.mean(demand)),
        bound: row.bound(demand),
        reason,
    }
}

/// What a difference of two figures has before it, where the larger or the smaller is a bound.
pub fn about(larger: Option<&str>, smaller: Option<&str>) -> &'static str {
    match (larger, smaller) {
        (None, None) => "",
        (Some("at most"), None | Some("at least")) | (None, Some("at least")) => "at most ",
        (Some("at least"), None | Some("at most")) | (None, Some("at most")) => "at least ",
        _ => "by these bounds ",
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
    let reply = Reply::of(keyspace);
    // As it is, and not with what it would have to be given.
    let own = |row: &&Row| row.protocol == keyspace.protocol && row.f.is_none();
    let planned = |leader: Option<RegionId>| {
        let same = |row: &&Row| {
            row.rank.is_some()
                && own(row)
                && row.holds_alone(reply)
                && (row.leader.is_none() || row.leader == leader)
        };
        rows.iter().find(same)
    };
    let planned = planned(chosen.map(region));
    let mut reasons = Vec::new();
    let f = rows.iter().find(own).and_then(|row| row.survives_only);
    if let Some(f) = f {
        let (all, needed) = (Quorums::faults(replicas.len()), curp::copies_needed(replicas.len()));
        let lost = if f == 1 { "replica" } else { "replicas" };
        reasons.push(format!(
            "with f = {f} it survives the loss of {f} {lost}, the others that of {all}: not recommended; parameters = {{ f = \
             {needed} }} makes it comparable"
        ));
    }
    if keyspace.protocol == "sdpaxos" && reply == Reply::Execute {
        reasons.push(format!("of a client alone: {WAITS}"));
    }
    Recommendation {
        protocol: keyspace.protocol.clone(),
        leader: named,
        reply: told(reply),
        f,
        replicas,
        mean_ms: planned.map(|row| row.mean(demand)),
        bound: planned.and_then(|row| row.bound(demand)),
        reason: reasons.join("; "),
    }
}

/// What `reply` of a keyspace must say; none where that is the default.
fn told(reply: Reply) -> Option<String> {
    (reply != Reply::default()).then(|| reply.name().to_owned())
}

/// What SDPaxos does then.
const WAITS: &str = "so soon it answers SET and MSET alone, and with reply = \"commit\" only; all else waits for what other \
                     regions write";

/// Why this row: what it is ahead of, and where it would not be.
fn reason(matrix: &Matrix, rows: &[Row], best: &Row, demand: &Demand) -> String {
    let label = |row: &Row| {
        let leader = row.leader.map(|leader| matrix.name(leader).to_owned());
        let reply = row.reply.and_then(told).map(|reply| format!("reply = {reply:?}"));
        let f = row.f.map(|f| format!("f = {f}"));
        let with: Vec<String> = leader.into_iter().chain(reply).chain(f).collect();
        match with.is_empty() {
            true => row.protocol.to_owned(),
            false => format!("{} with {}", row.protocol, with.join(" and ")),
        }
    };
    let linearizable = |row: &&Row| row.offered() && row.guarantee == Guarantee::Linearizable;
    let next = rows
        .iter()
        .filter(linearizable)
        .filter(|row| row.protocol != best.protocol)
        .min_by_key(|row| row.rank);
    let Some(next) = next else { return "the lowest mean".to_owned() };
    let lead = next.mean(demand) - best.mean(demand);
    let mut reason = if lead > 0.0 {
        let about = about(next.bound(demand), best.bound(demand));
        format!("the lowest mean; {} comes next, {about}{lead:.1} ms more", label(next))
    } else {
        format!("the lowest mean, with {} as low", label(next))
    };
    if best.protocol == "sdpaxos" {
        reason += &format!("; {WAITS}");
    }
    // EPaxos pays for interference, and how much is known by a bound: say from which share on something else may be faster.
    let free = |row: &Row| demand.total(&row.commits) as f64;
    let paid = |row: &Row| match row.interfering.is_empty() {
        true => 0.0,
        false => demand.total(&row.interfering) as f64 - free(row),
    };
    if best.protocol == "epaxos" && paid(best) > paid(next) {
        let share = 100.0 * (free(next) - free(best)) / (paid(best) - paid(next));
        if lead <= 0.0 {
            reason += "; with interfering commands epaxos is slower than that";
        } else if share < 100.0 {
            reason += &format!("; with more than {share:.1}% of interfering commands that may be faster");
        }
    }
    reason
}

fn by_region<S: Serializer, T: Serialize>(figures: &[(String, T)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().map(|(region, figure)| (region, figure)))
}
