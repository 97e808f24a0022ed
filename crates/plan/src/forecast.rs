//! What each protocol reaches with each choice of leader, for one placement and one set of clients.

use isochrone_core::deployment::Keyspace;
use isochrone_core::{FastQuorums, Guarantee, Matrix, RegionId, Span};
use serde::Serialize;

use crate::domino::Choice;
use crate::told::reader_of;
use crate::{
    Client, Group, Learners, Reply, curp, curp_consensus, domino, epaxos, fastpaxos, mencius, multipaxos,
    sdpaxos,
};

/// Who asks, and how often two of them ask for the same thing at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Clients of each region, in proportion; by region.
    pub clients: Vec<u32>,
    /// Percent of the commands that interfere with another under way.
    pub conflict: f64,
}

impl Demand {
    /// Mean of a latency over the clients, milliseconds; over all regions where none has clients.
    pub(crate) fn mean(&self, by_region: &[Span]) -> f64 {
        self.mean_of(self.total(by_region))
    }

    /// The sum of a latency over the clients, nanoseconds: what choices are compared by, without rounding.
    pub(crate) fn total(&self, by_region: &[Span]) -> u128 {
        let weighted = |(weight, span): (u64, &Span)| u128::from(weight) * u128::from(span.as_nanos());
        self.weights().zip(by_region).map(weighted).sum()
    }

    /// What a sum of [`Demand::total`] is as a mean, milliseconds.
    pub(crate) fn mean_of(&self, total: u128) -> f64 {
        total as f64 / 1e6 / self.weights().sum::<u64>() as f64
    }

    /// How much each region counts, by region.
    pub(crate) fn weights(&self) -> impl Iterator<Item = u64> + '_ {
        let nobody = self.clients.iter().all(|clients| *clients == 0);
        self.clients.iter().map(move |clients| if nobody { 1 } else { u64::from(*clients) })
    }
}

/// What one protocol reaches with one leader, without load. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// The protocol.
    pub protocol: String,
    /// The region of the leader, or of SDPaxos' sequencer; none for a protocol without one.
    pub leader: Option<String>,
    /// What must be so for these figures to hold, where that is not always.
    pub case: Option<String>,
    /// The parameter `f` that a keyspace of `curp` must be given for these figures to hold; none where it has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f: Option<usize>,
    /// Whether the mean is a bound: it takes so long `at least`, or `at most`, since what clients of some region wait is one;
    /// none where it takes exactly so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// What an answer that comes so soon promises.
    pub guarantee: Guarantee,
    /// Commit latency by region of the client, in the order of the deployment.
    pub regions: Vec<RegionForecast>,
    /// The mean over the clients, and over the commands that interfere and those that do not where the protocol tells them
    /// apart: what choices are ranked by.
    pub mean_ms: f64,
    /// Whether choices are ranked by it; else it is only shown, since what its case says is not to be relied on.
    #[serde(skip)]
    pub ranked: bool,
}

/// What clients of one region wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionForecast {
    /// The region.
    pub region: String,
    /// From call to answer; of who leads the first of several partitions the mean over them all.
    pub commit_ms: f64,
    /// Whether that is a bound: it takes so long `at least`, or `at most`; none where it takes exactly so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<&'static str>,
    /// The mean over the commands that interfere and those that do not, where the protocol tells them apart.
    #[serde(skip)]
    pub mean_ms: f64,
    /// Whether that is one.
    #[serde(skip)]
    pub mean_bound: Option<&'static str>,
    /// The way that Domino takes: straight to a supermajority, or through a leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
}

/// What a figure has before it that is a bound.
type Bound = Option<&'static str>;

const AT_LEAST: Bound = Some("at least");
const AT_MOST: Bound = Some("at most");

/// One row before it is put into words.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) protocol: &'static str,
    pub(crate) leader: Option<RegionId>,
    pub(crate) case: Option<&'static str>,
    /// When the keyspace must answer for these figures to hold, as its parameter `reply` says; none where that is all one.
    pub(crate) reply: Option<Reply>,
    /// As [`Forecast::f`].
    pub(crate) f: Option<usize>,
    /// How many crashes it survives, where that is fewer than others do: it is not recommended in their place.
    pub(crate) survives_only: Option<usize>,
    pub(crate) guarantee: Guarantee,
    /// By region of the client.
    pub(crate) commits: Vec<Span>,
    /// Which of these are bounds, by region of the client; empty where none is.
    bounds: Vec<Bound>,
    /// The same of commands that interfere; empty where they wait no longer.
    pub(crate) interfering: Vec<Span>,
    /// Whether a mean over those and the others is a bound.
    mixed: Bound,
    /// By region of the client; only Domino's.
    via: Vec<Option<String>>,
    /// The sum over the clients that it is ranked by, nanoseconds; none where it is only shown.
    pub(crate) rank: Option<u128>,
}

impl Row {
    /// What it is ranked by, or would be, milliseconds.
    pub(crate) fn mean(&self, demand: &Demand) -> f64 {
        self.rank.map_or_else(|| demand.mean(&self.commits), |rank| demand.mean_of(rank))
    }

    /// Whether that is a bound: where what clients of any region wait is one.
    pub(crate) fn bound(&self, demand: &Demand) -> Bound {
        let mut asking = demand.weights().enumerate().filter(|(_, weight)| *weight > 0);
        asking.find_map(|(region, _)| self.mean_bound_at(region))
    }

    pub(crate) fn bound_at(&self, region: usize) -> Bound {
        self.bounds.get(region).copied().flatten()
    }

    /// Of the mean over what interferes and what does not.
    fn mean_bound_at(&self, region: usize) -> Bound {
        let slower = self.interfering.get(region).is_some_and(|slow| Some(slow) != self.commits.get(region));
        self.mixed.filter(|_| slower).or(self.bound_at(region))
    }

    /// Whether it may be recommended: it is ranked, and survives as many crashes as any other.
    pub(crate) fn offered(&self) -> bool {
        self.rank.is_some() && self.survives_only.is_none()
    }

    /// The same with the means over other rows, each so often as it counts.
    pub(crate) fn mean_over(&self, rows: &[(u128, &Row)]) -> Row {
        let times = rows.iter().map(|(times, _)| times).sum::<u128>().max(1);
        let mean = |figure: &dyn Fn(&Row) -> u128| {
            rows.iter().map(|(times, row)| times * figure(row)).sum::<u128>() / times
        };
        let spans = |spans: fn(&Row) -> &[Span]| -> Vec<Span> {
            let nanos =
                |row: &Row, at: usize| spans(row).get(at).map_or(0, |span| u128::from(span.as_nanos()));
            // A mean is not above the largest, which fits.
            (0..spans(self).len()).map(|at| Span::from_nanos(mean(&|row| nanos(row, at)) as u64)).collect()
        };
        Row {
            rank: self.rank.map(|_| mean(&|row| row.rank.unwrap_or_default())),
            bounds: (0..self.commits.len())
                .map(|at| rows.iter().filter(|(times, _)| *times > 0).find_map(|(_, row)| row.bound_at(at)))
                .collect(),
            commits: spans(|row| &row.commits),
            interfering: spans(|row| &row.interfering),
            ..self.clone()
        }
    }

    /// Whether the figures are also those of a client alone where the keyspace answers so. Alone, a command of SDPaxos waits
    /// for no other before its own.
    pub(crate) fn holds_alone(&self, reply: Reply) -> bool {
        self.protocol == "sdpaxos" || self.reply.is_none_or(|own| own == reply)
    }

    pub(crate) fn forecast(&self, matrix: &Matrix, demand: &Demand) -> Forecast {
        let region = |(at, commit): (usize, &Span)| {
            let commit_ms = commit.as_millis_f64();
            let slow_ms = self.interfering.get(at).map_or(commit_ms, |slow| slow.as_millis_f64());
            RegionForecast {
                region: matrix.name(RegionId(at as u16)).to_owned(),
                commit_ms,
                bound: self.bound_at(at),
                mean_bound: self.mean_bound_at(at),
                mean_ms: commit_ms + (slow_ms - commit_ms) * demand.conflict / 100.0,
                via: self.via.get(at).cloned().flatten(),
            }
        };
        let cases = [
            self.case.map(str::to_owned),
            self.reply.map(|reply| format!("reply = {}", reply.name())),
            self.f.map(|f| format!("f = {f}")),
            self.survives_only.map(|crashes| format!("survives {crashes}")),
        ];
        let cases: Vec<String> = cases.into_iter().flatten().collect();
        let case = (!cases.is_empty()).then(|| cases.join(", "));
        Forecast {
            protocol: self.protocol.to_owned(),
            leader: self.leader.map(|leader| matrix.name(leader).to_owned()),
            case,
            f: self.f,
            bound: self.bound(demand).map(str::to_owned),
            guarantee: self.guarantee,
            regions: self.commits.iter().enumerate().map(region).collect(),
            mean_ms: self.mean(demand),
            ranked: self.rank.is_some(),
        }
    }
}

/// Which figures are the most that it takes: those beside which it might take less.
fn most_where_it_differs(figures: &[Span], least: &[Span]) -> Vec<Bound> {
    figures.iter().zip(least).map(|(most, least)| AT_MOST.filter(|_| most != least)).collect()
}

/// Every row of a placement, in a fixed order: of equal means the first is preferred, so what depends on least comes
/// first. `quorums` are those of Domino; what else a protocol is told is read from the keyspace. `at` says where the clients
/// of a region stand.
pub(crate) fn rows(
    matrix: &Matrix,
    replicas: &[RegionId],
    quorums: FastQuorums,
    keyspace: &Keyspace,
    demand: &Demand,
    at: &dyn Fn(RegionId) -> Client,
) -> Vec<Row> {
    let group = Group::from(replicas);
    let each = |commit: &dyn Fn(Client) -> Span| -> Vec<Span> {
        matrix.regions().map(|region| commit(at(region))).collect()
    };
    let row = |protocol, leader, case, commits: Vec<Span>| Row {
        protocol,
        leader,
        case,
        reply: None,
        f: None,
        survives_only: None,
        guarantee: Guarantee::Linearizable,
        rank: case.is_none().then(|| demand.total(&commits)),
        commits,
        bounds: Vec::new(),
        interfering: Vec::new(),
        mixed: None,
        via: Vec::new(),
    };
    // One row for each region with a replica: replicas of one region lead alike.
    let mut leaders: Vec<RegionId> = Vec::new();
    for replica in replicas {
        if !leaders.contains(replica) {
            leaders.push(*replica);
        }
    }
    let mut rows = Vec::new();
    for leader in &leaders {
        let commits = each(&|client| multipaxos::commit(matrix, client, *leader, group));
        rows.push(row("multipaxos", Some(*leader), None, commits));
    }
    let weighed = |free: &[Span], conflicting: &[Span]| {
        let share = |part: f64, commits: &[Span]| demand.total(commits) as f64 * part / 100.0;
        Some((share(100.0 - demand.conflict, free) + share(demand.conflict, conflicting)) as u128)
    };
    let tuned = epaxos::Tuned::of(keyspace);
    let (fast, slow) = (
        each(&|client| epaxos::fast(matrix, client, group)),
        each(&|client| tuned.slow(matrix, client, group)),
    );
    if group.len() == 1 {
        rows.push(row("epaxos", None, None, fast));
    } else {
        // At execution an answer waits until what interferes with its command is executed, and this for what does with it:
        // the way to its own commit is the least of that. It is ranked as if the slowest commit of any replica began then, and
        // as if of two that interfere both took the slow way, which one of them need not: the mean is at most that.
        let reply =
            reader_of(keyspace, "epaxos").map_or(Reply::Execute, |mut reader| Reply::read(&mut reader));
        let (guarantee, least, interfering): (_, _, Vec<Span>) = match reply {
            Reply::Execute => {
                let slowest =
                    replicas.iter().map(|region| slow[usize::from(region.0)]).max().unwrap_or_default();
                let behind = slow.iter().map(|own| *own + slowest).collect();
                (Guarantee::Linearizable, AT_LEAST, behind)
            }
            Reply::Commit => (Guarantee::LinearizableByKey, None, slow.clone()),
        };
        let rank = weighed(&fast, &interfering);
        let ranked = if demand.conflict > 0.0 {
            Row { reply: Some(reply), mixed: AT_MOST, guarantee, ..row("epaxos", None, None, fast) }
        } else {
            row("epaxos", None, Some("no conflict"), fast)
        };
        rows.push(Row { rank, interfering, ..ranked });
        let bounds = vec![least; slow.len()];
        let conflicting = row("epaxos", None, Some("conflict"), slow);
        rows.push(Row { reply: Some(reply), bounds, guarantee, ..conflicting });
    }
    // Behind EPaxos: its answers wait for whatever other regions wrote before, unless they are of the commit. They promise as
    // much then, and members cannot change.
    let tuned = sdpaxos::Tuned::of(keyspace);
    let relayed = group.relayed(matrix);
    for leader in &leaders {
        let commits = each(&|client| tuned.commit(matrix, client, *leader, group));
        let soonest = each(&|client| sdpaxos::soonest(matrix, &relayed, client, *leader, group));
        let bounds = most_where_it_differs(&commits, &soonest);
        let reply = Some(Reply::Commit);
        rows.push(Row { reply, bounds, ..row("sdpaxos", Some(*leader), None, commits) });
    }
    let tuned = curp_consensus::Tuned::of(keyspace);
    for leader in &leaders {
        let commits = each(&|client| tuned.commit(matrix, client, *leader, group));
        // What conflicts takes the way of Multi-Paxos.
        let slow = each(&|client| multipaxos::commit(matrix, client, *leader, group));
        let rank = weighed(&commits, &slow);
        rows.push(Row { rank, interfering: slow, ..row("curp-consensus", Some(*leader), None, commits) });
    }
    let own = curp::Tuned::of(keyspace, group.len());
    for tuned in [Some(own), own.with_enough(group.len())].into_iter().flatten() {
        for master in &leaders {
            let commits = each(&|client| tuned.commit(matrix, client, *master, group));
            let slow = each(&|client| tuned.synced(matrix, client, *master, group));
            let rank = weighed(&commits, &slow);
            rows.push(Row {
                rank,
                f: tuned.f_to_give(keyspace),
                survives_only: tuned.survives_only(group.len()),
                interfering: slow,
                ..row("curp", Some(*master), None, commits)
            });
        }
    }
    let idle = each(&|client| mencius::idle(matrix, client, group));
    let busy = each(&|client| mencius::busy(matrix, client, group));
    // Without load the others are idle: that is what Mencius is ranked by. Their heartbeats skip too, which may come sooner, but
    // nothing before a majority.
    rows.push(Row {
        rank: Some(demand.total(&idle)),
        bounds: most_where_it_differs(&idle, &busy),
        ..row("mencius", None, Some("others idle"), idle)
    });
    let bounds = vec![AT_LEAST.filter(|_| group.len() > 1); busy.len()];
    rows.push(Row { bounds, ..row("mencius", None, Some("others busy"), busy) });
    // Its figures are those of a client alone, so it is shown and not ranked.
    let alone = |coordinator, reply, guarantee, commits| Row {
        reply: Some(reply),
        guarantee,
        ..row("fastpaxos", coordinator, Some("no collision"), commits)
    };
    // Which replica coordinates matters only where one that knows tells a client sooner than this knows for itself.
    let by_leader = |wait: &dyn Fn(Client, RegionId) -> Span| -> Vec<(Option<RegionId>, Vec<Span>)> {
        let of = |leader: &RegionId| (Some(*leader), each(&|client| wait(client, *leader)));
        let all: Vec<_> = leaders.iter().map(of).collect();
        match all.windows(2).all(|two| two[0].1 == two[1].1) {
            true => all.into_iter().take(1).map(|(_, commits)| (None, commits)).collect(),
            false => all,
        }
    };
    let [committed, executed] =
        [Reply::Commit, Reply::Execute].map(|reply| fastpaxos::learners(keyspace, reply) == Learners::All);
    for (coordinator, commits) in by_leader(&|client, coordinator| {
        let fast = fastpaxos::commit(matrix, client, coordinator, group);
        fast.min(fastpaxos::execute(matrix, client, coordinator, group, committed))
    }) {
        rows.push(alone(coordinator, Reply::Commit, Guarantee::Sequenced, commits));
    }
    for (coordinator, results) in
        by_leader(&|client, coordinator| fastpaxos::execute(matrix, client, coordinator, group, executed))
    {
        rows.push(alone(coordinator, Reply::Execute, Guarantee::Linearizable, results));
    }
    let group = group.with(quorums);
    let tuned = domino::Tuned::of(keyspace, Reply::Commit);
    let choices: Vec<Choice> =
        matrix.regions().map(|region| tuned.choose(matrix, at(region), group)).collect();
    let via = |choice: &Choice| match choice {
        Choice::Fast(_) => Some("DFP".to_owned()),
        Choice::Leader(region, _) => Some(format!("DM {}", matrix.name(*region))),
    };
    let via: Vec<Option<String>> = choices.iter().map(via).collect();
    let commit = |client, coordinator| tuned.commit(matrix, client, group, coordinator);
    for (coordinator, commits) in by_leader(&|client, coordinator| commit(client, coordinator).0) {
        let led = leaders.iter().copied().filter(|leader| coordinator.is_none_or(|only| only == *leader));
        let led: Vec<RegionId> = led.collect();
        let at_most = |region| AT_MOST.filter(|_| led.iter().any(|leader| commit(at(region), *leader).1));
        rows.push(Row {
            reply: Some(Reply::Commit),
            bounds: matrix.regions().map(at_most).collect(),
            guarantee: Guarantee::Sequenced,
            via: via.clone(),
            ..row("domino", coordinator, None, commits)
        });
    }
    let tuned = domino::Tuned::of(keyspace, Reply::Execute);
    for (coordinator, results) in
        by_leader(&|client, coordinator| tuned.execute(matrix, client, group, coordinator))
    {
        rows.push(Row {
            reply: Some(Reply::Execute),
            bounds: vec![AT_MOST; results.len()],
            via: via.clone(),
            ..row("domino", coordinator, None, results)
        });
    }
    rows
}
