//! `plan --ask`: five questions, and the deployment that follows from the answers.

mod questions;
#[cfg(test)]
mod tests;
mod written;

use crate::output::{another_directory, no_place, print_text, say, unwritable};
use crate::{Status, Usage, protocols};
use anyhow::bail;
use isochrone_core::topology::Cells;
use isochrone_core::{Deployment, Guarantee, KeyspaceId, Matrix, NodeId, RegionId, Span};
use isochrone_plan::{Client, Demand, Forecast, TransactionForecast};
use questions::Questions;
use std::fs::{self, File};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

/// A table of round trips that comes with the program.
struct Map {
    /// Its file is called so.
    name: &'static str,
    /// What it is a map of.
    what: &'static str,
    csv: &'static str,
}

/// All that people may choose from; of regions that are in several, the first counts.
const MAPS: &[Map] = &[
    Map {
        name: "carousel-ec2",
        what: "the world, EC2",
        csv: include_str!("../../../../reference/rtt/carousel-ec2.csv"),
    },
    Map {
        name: "sdpaxos-ec2",
        what: "the north, EC2",
        csv: include_str!("../../../../reference/rtt/sdpaxos-ec2.csv"),
    },
    Map {
        name: "domino-globe",
        what: "the world, Azure",
        csv: include_str!("../../../../reference/rtt/domino-globe.csv"),
    },
    Map {
        name: "domino-na",
        what: "North America, Azure",
        csv: include_str!("../../../../reference/rtt/domino-na.csv"),
    },
    Map {
        name: "sloth-azure",
        what: "three close pairs, Azure",
        csv: include_str!("../../../../reference/rtt/sloth-azure.csv"),
    },
];

/// The round trip within a region that a map does not give: what deployment files have by default.
const LAN_RTT: Span = Span::from_micros(500);

/// The only keyspace.
const MAIN: KeyspaceId = KeyspaceId(1);

impl Map {
    fn matrix(&self) -> anyhow::Result<Matrix> {
        Ok(Matrix::parse(self.csv, self.name, Cells::RoundTrip, LAN_RTT)?)
    }
}

/// What somebody has answered.
struct Answers {
    map: &'static Map,
    matrix: Matrix,
    /// How many users each region of the map has, in proportion; not all of them none.
    users: Vec<u32>,
    /// Where data may lie, in the order of the map.
    sites: Vec<RegionId>,
    /// So many of these may be lost at once; at most as many as leave a majority, and three.
    lost: usize,
    touched: Touched,
    aim: Aim,
}

/// What a request touches.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Touched {
    /// Keys of one partition; so many percent of the commands interfere with another one under way.
    Keys(f64),
    /// Keys of several partitions, atomically.
    Partitions,
}

/// What is to be as short as can be.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Aim {
    /// The mean over the users.
    Mean,
    /// What users of the region wait for that waits longest.
    Worst,
    /// What users of one region wait for.
    Region(RegionId),
}

/// What follows.
struct Choice {
    protocol: String,
    /// The region of the leader, where the protocol has one.
    leader: Option<RegionId>,
    /// The regions of each partition's replicas, its leader's first; of a protocol of commands there is one, in the order of
    /// the map.
    groups: Vec<Vec<RegionId>>,
    /// What was aimed at, milliseconds.
    reached_ms: f64,
    /// Whether that is a bound, as of a [`Forecast`].
    bound: Option<String>,
    /// The parameter `f` of `curp` with which it reaches that; none where it is the default.
    f: Option<usize>,
    /// The next best protocol, what it reaches, and whether that is a bound.
    next: Option<(String, f64, Option<String>)>,
}

/// Runs the verb with `--ask`.
pub(super) fn run(out: Option<&Path>) -> anyhow::Result<Status> {
    if let Some(out) = out {
        if out.symlink_metadata().is_ok() {
            return Err(taken(out).into());
        }
        folder_of(out)?;
    }
    let (stdin, terminal) = (io::stdin(), io::stdin().is_terminal());
    let answers = Questions::new(&mut stdin.lock(), &mut io::stderr(), terminal).ask()?;
    let choice = choose(&answers)?;
    let text = written::text(&answers, &choice)?;
    let csv = format!("{}.csv", answers.map.name);
    let csv = out.and_then(Path::parent).unwrap_or(Path::new("")).join(csv);
    keep(&csv, answers.map.csv)?;
    match out {
        Some(out) => {
            create(out, &text)?;
            let out = out.display();
            say(format_args!("try: isochrone plan {out}; isochrone sim {out}; isochrone up {out}"));
        }
        None => print_text(&text)?,
    }
    Ok(Status::Held)
}

fn taken(path: &Path) -> Usage {
    Usage(format!("{}: it is there already, and is not written over\n  name another file", path.display()))
}

/// Refuses a folder that is none before anybody has answered anything.
fn folder_of(out: &Path) -> Result<(), Usage> {
    let folder = match out.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => return Ok(()),
    };
    match fs::metadata(folder) {
        Ok(about) if about.is_dir() => Ok(()),
        Ok(_) => {
            let (out, folder) = (out.display(), folder.display());
            Err(Usage(format!("--out {out}: {folder} is no directory\n  name a file in one")))
        }
        Err(cause) => {
            let right = another_directory(&cause);
            Err(Usage(format!("--out {}: {}: {cause}\n  {right}", out.display(), folder.display())))
        }
    }
}

/// Writes a file that is not there yet, and says so.
fn create(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = File::create_new(path).map_err(|cause| match cause.kind() {
        ErrorKind::AlreadyExists => taken(path),
        _ => no_place(path, &cause),
    })?;
    file.write_all(text.as_bytes()).map_err(|cause| unwritable(path, &cause))?;
    say(format_args!("wrote {}", path.display()));
    Ok(())
}

/// Sees to it that this file is there with this text: what is there is never changed.
fn keep(path: &Path, text: &str) -> anyhow::Result<()> {
    match fs::read_to_string(path) {
        Ok(there) if there == text => Ok(()),
        Err(cause) if cause.kind() == ErrorKind::NotFound => create(path, text),
        _ => bail!(Usage(format!(
            "{}: the round trips would be there, and something else is\n  go to another folder, or with --out name a \
             file in one",
            path.display()
        ))),
    }
}

impl Answers {
    /// What somebody in each region counts for.
    fn demand(&self) -> Demand {
        let conflict = match self.touched {
            Touched::Keys(conflict) => conflict,
            Touched::Partitions => 0.0,
        };
        let clients = match self.aim {
            Aim::Region(only) => self.matrix.regions().map(|region| u32::from(region == only)).collect(),
            Aim::Mean | Aim::Worst => self.users.clone(),
        };
        Demand { clients, conflict }
    }

    /// Whether users of one region alone write anything.
    fn one_region_writes(&self) -> bool {
        self.users.iter().filter(|users| **users > 0).count() == 1
    }

    fn has_users(&self, region: RegionId) -> bool {
        self.users.get(usize::from(region.0)).is_some_and(|users| *users > 0)
    }

    /// How many replicas survive what may be lost.
    fn replicas(&self) -> usize {
        2 * self.lost + 1
    }

    /// What is aimed at, of a mean over those that count and of what each region of the map waits for.
    fn reached(&self, mean_ms: f64, waits: impl Iterator<Item = (RegionId, f64)>) -> f64 {
        match self.aim {
            // Of one region the mean counts nobody else.
            Aim::Mean | Aim::Region(_) => mean_ms,
            Aim::Worst => {
                waits.filter(|(region, _)| self.has_users(*region)).map(|(_, wait)| wait).fold(0.0, f64::max)
            }
        }
    }
}

/// The best that there is for these answers.
fn choose(answers: &Answers) -> anyhow::Result<Choice> {
    match answers.touched {
        Touched::Keys(_) => of_commands(answers),
        Touched::Partitions => of_transactions(answers),
    }
}

/// Of all placements of as many replicas as are needed, all protocols and all leaders.
fn of_commands(answers: &Answers) -> anyhow::Result<Choice> {
    let Answers { matrix, sites, .. } = answers;
    let demand = answers.demand();
    let first = sites.get(..1).unwrap_or_default();
    let deployment = Deployment::of_matrix(matrix.clone(), "multipaxos", first);
    let keyspace = deployment.keyspace(MAIN);
    let reached = |forecast: &Forecast| {
        let waits = matrix.regions().zip(forecast.regions.iter().map(|region| region.mean_ms));
        answers.reached(forecast.mean_ms, waits)
    };
    // Where it is the longest wait, whether that is one.
    let bound = |forecast: &Forecast, reached_ms: f64| match answers.aim {
        Aim::Mean | Aim::Region(_) => forecast.bound.clone(),
        Aim::Worst => {
            let waits =
                matrix.regions().zip(&forecast.regions).filter(|(region, _)| answers.has_users(*region));
            let longest =
                waits.filter(|(_, wait)| wait.mean_ms >= reached_ms).map(|(_, wait)| wait.mean_bound);
            // Of several it is exact where one is.
            longest.min().flatten().map(str::to_owned)
        }
    };
    let mut found: Vec<(f64, Forecast, Vec<RegionId>)> = Vec::new();
    for replicas in placements(sites, answers.replicas()) {
        let forecasts = isochrone_plan::forecasts(matrix, &replicas, keyspace, &demand, &Client::In)?;
        for forecast in forecasts {
            // By default, as it is written, its answers wait for what other regions write, which its figures leave out.
            let holds = forecast.protocol != "sdpaxos" || answers.one_region_writes();
            if holds && forecast.ranked && forecast.guarantee == Guarantee::Linearizable {
                found.push((reached(&forecast), forecast, replicas.clone()));
            }
        }
    }
    // Of equals the first, which depends on least, as in a plan; before that what is better in the mean.
    let order = |a: &&(f64, Forecast, Vec<RegionId>), b: &&(f64, Forecast, Vec<RegionId>)| {
        a.0.total_cmp(&b.0).then(a.1.mean_ms.total_cmp(&b.1.mean_ms))
    };
    let Some((reached_ms, best, replicas)) = found.iter().min_by(order) else {
        bail!("{} has no place for {} replicas", answers.map.name, answers.replicas());
    };
    let next = found.iter().filter(|(_, forecast, _)| forecast.protocol != best.protocol).min_by(order);
    Ok(Choice {
        protocol: best.protocol.clone(),
        leader: best.leader.as_deref().and_then(|name| matrix.region(name)),
        groups: vec![replicas.clone()],
        reached_ms: *reached_ms,
        bound: bound(best, *reached_ms),
        f: best.f,
        next: next.map(|(reached_ms, forecast, _)| {
            (forecast.protocol.clone(), *reached_ms, bound(forecast, *reached_ms))
        }),
    })
}

/// Every choice of `take` sites, each in their order.
fn placements(sites: &[RegionId], take: usize) -> Vec<Vec<RegionId>> {
    if take == 0 {
        return vec![Vec::new()];
    }
    let mut found = Vec::new();
    let mut rest = sites;
    while let Some((first, behind)) = rest.split_first() {
        for others in placements(behind, take - 1) {
            found.push(std::iter::once(*first).chain(others).collect());
        }
        rest = behind;
    }
    found
}

/// A partition led in each region that has users and may have data, the others of each nearest to its leader; of these the
/// fastest protocol that is strictly serializable.
fn of_transactions(answers: &Answers) -> anyhow::Result<Choice> {
    let groups = groups(answers);
    let choice = |protocol: String, reached_ms: f64, next: Option<(String, f64)>| Choice {
        protocol,
        leader: None,
        groups: groups.clone(),
        reached_ms,
        bound: None,
        f: None,
        next: next.map(|(protocol, reached_ms)| (protocol, reached_ms, None)),
    };
    let served = protocols::served();
    let mut strict = Vec::new();
    for entry in protocols::ALL.iter().filter(|entry| entry.transactional()) {
        let body = written::body(answers, &choice(entry.name.to_owned(), 0.0, None));
        let deployment = written::deployment(answers, &body)?;
        let promised = served.place(&deployment, deployment.keyspace(MAIN), NodeId(0))?.guarantee;
        if promised == Guarantee::StrictlySerializable {
            strict.push((entry.name, deployment));
        }
    }
    let Some((_, deployment)) = strict.first() else { bail!("no protocol of transactions is strict") };
    // The deployment has some of the map's regions.
    let mapped = |name: &str| answers.matrix.region(name);
    let counted = answers.demand();
    let count = |name: &str| counted.clients.get(usize::from(mapped(name)?.0)).copied();
    let clients = deployment.regions().iter().map(|region| count(&region.name).unwrap_or_default()).collect();
    let demand = Demand { clients, conflict: 0.0 };
    let plan = isochrone_plan::plan_transactions(deployment, MAIN, &demand)?;
    let rows = plan.forecasts.iter().filter(|row| {
        row.workload == WORKLOAD && strict.iter().any(|(protocol, _)| row.protocol == *protocol)
    });
    let reached = |row: &TransactionForecast| {
        let waits = row.regions.iter().filter_map(|region| Some((mapped(&region.region)?, region.mean_ms)));
        answers.reached(row.all.mean_ms, waits)
    };
    let mut found: Vec<(f64, String)> = rows.map(|row| (reached(row), row.protocol.clone())).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut found = found.into_iter();
    let Some((reached_ms, protocol)) = found.next() else {
        bail!("no protocol of transactions is planned");
    };
    let next = found.next().map(|(reached_ms, protocol)| (protocol, reached_ms));
    Ok(choice(protocol, reached_ms, next))
}

/// By whose mix transactions are compared.
const WORKLOAD: &str = "retwis";

fn groups(answers: &Answers) -> Vec<Vec<RegionId>> {
    let Answers { matrix, sites, .. } = answers;
    let nearest = |to: RegionId| {
        let mut sites = sites.clone();
        // A stable sort; the way within a region may be longer than to the next one.
        sites.sort_by_key(|site| (*site != to, matrix.rtt(*site, to)));
        sites
    };
    let mut leaders: Vec<RegionId> = sites.iter().copied().filter(|site| answers.has_users(*site)).collect();
    if leaders.is_empty() {
        // Nobody's data may lie where they are: then near them.
        let users = matrix.regions().filter(|region| answers.has_users(*region));
        leaders = users.filter_map(|region| nearest(region).first().copied()).collect();
        leaders.sort_unstable();
        leaders.dedup();
    }
    leaders.iter().map(|leader| nearest(*leader).into_iter().take(answers.replicas()).collect()).collect()
}
