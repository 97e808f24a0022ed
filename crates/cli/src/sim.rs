//! `isochrone sim`: a deployment in virtual time, with faults, and a verdict on what its clients saw.

use crate::arguments::{Format, Sim};
use crate::output::{Row, apart, print_json, print_text, quoted, table};
use crate::protocols::{self, Runs};
use crate::{Status, Usage, output};
use anyhow::bail;
use campaign::Campaign;
use isochrone_core::deployment::{Keyspace, Node, Region};
use isochrone_core::{Deployment, KeyspaceId, Span};
use isochrone_plan::Client;
use isochrone_sim::{FaultKind, FaultSet, Jitter, Record, SESSION_NUMBERS, Seeds};
use isochrone_workload::trial::Terms;
use isochrone_workload::{Recorder, Window, Workload};
use serde::Serialize;
use std::num::NonZeroUsize;

mod campaign;
mod transactions;

/// What `--format json` prints.
#[derive(Serialize)]
struct Printed {
    protocol: String,
    guarantee: String,
    operations: u64,
    #[serde(flatten)]
    campaign: Campaign,
    regions: Vec<Row>,
    /// The regions with clients none of whose operations ended within the measured time.
    #[serde(skip)]
    silent: Vec<String>,
}

/// Runs the verb.
pub(crate) fn run(arguments: Sim) -> anyhow::Result<Status> {
    if arguments.trace && arguments.format == Format::Json {
        bail!(Usage(
            "--trace is text for people, which would stand before the JSON\n  leave one of them out"
                .to_owned()
        ));
    }
    for (flag, path) in [("history", &arguments.history), ("trace-svg", &arguments.trace_svg)] {
        if let (Some(file), Some(path)) = (&arguments.file, path) {
            apart(file, flag, path)?;
        }
    }
    let (deployment, keyspace) = subject(&arguments)?;
    match protocols::of(&deployment, keyspace).map(|entry| &entry.runs) {
        None => bail!("{}: its protocol is not in this program", deployment.file()),
        Some(Runs::Commands { trial, .. }) => commands(&arguments, &deployment, keyspace, *trial),
        Some(Runs::Transactions { commands: trial, .. }) if of_commands(&arguments) => {
            commands(&arguments, &deployment, keyspace, *trial)
        }
        Some(Runs::Transactions { trial, .. }) => {
            transactions::run(&arguments, &deployment, keyspace, *trial)
        }
    }
}

/// Whether the workload asked for is one of commands, which a keyspace of transactions takes too.
fn of_commands(arguments: &Sim) -> bool {
    arguments.workload.as_deref().is_some_and(|name| Workload::named(name).is_ok())
}

fn commands(
    arguments: &Sim,
    deployment: &Deployment,
    keyspace: KeyspaceId,
    trial: protocols::Trial,
) -> anyhow::Result<Status> {
    let faults = faults(arguments)?;
    let name = arguments.workload.as_deref().unwrap_or(if faults.is_empty() { "ycsb-a" } else { "check" });
    if isochrone_workload::transactions::Workload::named(name).is_ok() {
        let protocol = &deployment.keyspace(keyspace).protocol;
        bail!(Usage(format!(
            "--workload {name}: its transactions are more than {protocol} does; use a protocol of \
                             transactions, or one of {}",
            Workload::names().join(", ")
        )));
    }
    let mut workload = Workload::named(name)?;
    workload.conflict = arguments.conflict.unwrap_or(0);
    workload.records = arguments.records.unwrap_or(workload.records);
    if arguments.zipf.is_some() || arguments.retry {
        bail!(Usage(format!(
            "--zipf and --retry are for transactions; {name} is none of their workloads\n  leave them out, or name a keyspace of \
             transactions"
        )));
    }
    let drawn = faults == FaultSet::EVERY && name == "check" && arguments.records.is_none();
    let mut terms = terms(arguments, deployment, workload, faults)?;
    if drawn {
        terms.records = &[4, 8, 16];
    }
    let mut guarantee = String::new();
    let (campaign, recorder) = campaign::run(
        arguments,
        file_loss(deployment, faults),
        |seed| trial(deployment, keyspace, &terms, seed),
        Recorder::new(Window::ALL),
        |recorder, outcome| recorder.merge(&outcome.figures),
        |first| {
            guarantee = first.guarantee.to_string();
            write_history(arguments, |file| first.history.write(file))
        },
    )?;
    let space = deployment.keyspace(keyspace);
    let regions = rows(deployment, space, &recorder);
    let status = campaign.status();
    let protocol = space.protocol.clone();
    let absent = |region: &&Region| regions.iter().all(|row| row.region != region.name);
    // Where clients are not spread by a flag, every region has some.
    let spread = arguments.clients.is_none();
    let silent = deployment.regions().iter().filter(|_| spread).filter(absent);
    let silent = silent.map(|region| region.name.clone()).collect();
    let operations = campaign.operations;
    let printed = Printed { protocol, guarantee, operations, campaign, regions, silent };
    match arguments.format {
        Format::Json => print_json(&printed)?,
        Format::Text => print_text(&show(&printed))?,
    }
    Ok(status)
}

/// What clients in each region saw, and what no linearizable write is faster than.
fn rows(deployment: &Deployment, space: &Keyspace, recorder: &Recorder) -> Vec<Row> {
    let replicas = isochrone_plan::servers(deployment, space);
    let row = |region: &Region| {
        let floor = isochrone_plan::floor(deployment.matrix(), Client::of(region.id, &replicas), &replicas);
        let figures = recorder.region(usize::from(region.id.0), None)?;
        Row::of(&region.name, figures, Some(floor.as_millis_f64()))
    };
    deployment.regions().iter().filter_map(row).collect()
}

/// More requests a second than this leave no time between two.
pub(crate) const RATE_MAX: f64 = 1e8;
/// Percent of the longest delay that `--jitter` adds at most.
const JITTER_MAX: f64 = 10_000.0;

fn seeds(arguments: &Sim) -> Seeds {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let seeds = match arguments.seeds {
        Some(count) => Seeds::new(arguments.from, count),
        None => Seeds::one(arguments.seed.unwrap_or(0)),
    };
    Seeds { threads: arguments.threads.map_or_else(cores, NonZeroUsize::get), ..seeds }
}

fn faults(arguments: &Sim) -> anyhow::Result<FaultSet> {
    Ok(arguments.faults.parse().map_err(|error| Usage(format!("--faults: {error}")))?)
}

/// What is simulated, the flags taken in.
fn subject(arguments: &Sim) -> anyhow::Result<(Deployment, KeyspaceId)> {
    // Nothing is served: the certificates may come later.
    let known = protocols::known().insecure(true);
    let mut deployment = match &arguments.file {
        Some(file) => Deployment::load(file, &known)?,
        None => Deployment::five_regions(),
    };
    deployment.given_matrix()?;
    let keyspace = deployment.choose_keyspace(arguments.keyspace.as_deref())?;
    if let Some(protocol) = &arguments.protocol {
        deployment = deployment.with_protocol(keyspace, protocol, &known)?;
    }
    if let Some(leader) = &arguments.leader {
        deployment = deployment.with_leader(keyspace, leader)?;
    }
    if let Some(partitions) = arguments.partitions {
        deployment = deployment.with_partitions(keyspace, partitions)?;
    }
    if arguments.moves > 0 && deployment.keyspace(keyspace).partitions < 2 {
        bail!(Usage(format!(
            "--moves {}: the keyspace has one partition, between which and itself no key moves\n  divide it with --partitions \
             N, or leave it out",
            arguments.moves
        )));
    }
    let settings: Vec<(String, String)> = arguments
        .set
        .iter()
        .map(|word| match word.split_once('=') {
            Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
            None => {
                Err(Usage(format!("--set {word}: there is no `=`; write key=value, such as reply=commit")))
            }
        })
        .collect::<Result<_, _>>()?;
    deployment = deployment.with_parameters(keyspace, &settings)?;
    deployment.survives_as_demanded(keyspace)?;
    Ok((deployment, keyspace))
}

/// The flags that mean the same to all protocols.
fn terms<W>(
    arguments: &Sim,
    deployment: &Deployment,
    workload: W,
    faults: FaultSet,
) -> anyhow::Result<Terms<W>> {
    let mut terms = match faults.is_empty() {
        true => Terms::quiet(workload, Span::from_secs(30)),
        false => Terms::hostile(workload, faults),
    };
    if let Some(duration) = arguments.duration {
        terms.duration = duration;
        terms.requests_max = u64::MAX;
    }
    let mut sessions = u64::from(deployment.nodes().len() as u32 * terms.sessions);
    match arguments.clients.as_deref().map(str::parse::<u32>) {
        Some(Ok(clients)) => {
            terms.clients = Some(spread(deployment, clients));
            sessions = u64::from(clients);
        }
        Some(Err(_)) => {
            let given = arguments.clients.iter().flat_map(|words| words.split(','));
            let by_region = by_region("--clients", deployment, given, |number| number.parse().ok())?;
            let mut left = by_region.clone();
            // The first node of a region has its clients.
            let of = |node: &Node| left[usize::from(node.region.0)].take().unwrap_or(0);
            terms.clients = Some(deployment.nodes().iter().map(of).collect());
            sessions = by_region.into_iter().flatten().map(u64::from).sum();
        }
        None => {}
    }
    if sessions == 0 {
        bail!(Usage("--clients: without a client there is nothing to see\n  ask for 1 or more".to_owned()));
    }
    if sessions > SESSION_NUMBERS {
        bail!(Usage(format!("--clients: {sessions} in all; at most {SESSION_NUMBERS} can be told apart")));
    }
    let given = arguments.straggler.iter().map(String::as_str);
    let factor = |text: &str| text.parse::<f64>().ok().filter(|factor| (0.01..=1e4).contains(factor));
    for (region, factor) in by_region("--straggler", deployment, given, factor)?.into_iter().enumerate() {
        if let Some(factor) = factor {
            let slow = deployment.nodes().iter().filter(|node| usize::from(node.region.0) == region);
            terms.stragglers.extend(slow.map(|node| (node.id, (factor * 100.0) as u64)));
        }
    }
    if let Some(rate) = arguments.rate {
        if !(rate > 0.0 && rate <= RATE_MAX) {
            bail!(Usage(format!(
                "--rate {rate}: a rate is requests a second, above 0 and at most {RATE_MAX}"
            )));
        }
        terms.rate = Some(rate / sessions as f64);
        terms.requests_max = u64::MAX;
    }
    let longest =
        deployment.nodes().iter().flat_map(|a| deployment.nodes().iter().map(move |b| (a.id, b.id)));
    let longest = longest.map(|(a, b)| deployment.one_way(a, b)).max().unwrap_or_default();
    let network = deployment.network();
    let uniform = |most: Span| if most == Span::ZERO { Jitter::None } else { Jitter::Uniform(most) };
    match arguments.jitter {
        Some(jitter) if !(0.0..=JITTER_MAX).contains(&jitter) => {
            bail!(Usage(format!("--jitter {jitter}: it is a percentage, from 0 to {JITTER_MAX}")));
        }
        Some(jitter) => {
            let most = Span::from_nanos((longest.as_nanos() as f64 * jitter / 100.0) as u64);
            terms.jitter = uniform(most);
        }
        None if faults.is_empty() => terms.jitter = uniform(network.jitter),
        None => terms.varied = Some(longest),
    }
    terms.loss = file_loss(deployment, faults).map_or(0, u64::from);
    let chosen = |kinds: &[FaultKind]| kinds.iter().any(|kind| faults.contains(*kind));
    if let Some(sync) = arguments.sync {
        terms.sync = sync;
    } else if chosen(&[FaultKind::FsyncError, FaultKind::DiskTorn, FaultKind::DiskCorrupt])
        && !chosen(&[FaultKind::DiskSlow, FaultKind::Tears])
    {
        // They strike what is not synced yet, and nothing else takes these disks any time.
        terms.sync = Span::from_millis(1);
    }
    if arguments.cpu {
        terms.cost = crate::calibrated::COST;
    }
    if arguments.trace || arguments.trace_svg.is_some() {
        terms.record = Record::Flow;
        if arguments.duration.is_none() && faults.is_empty() {
            // What a person reads or looks at is short; but with faults a seed is to be seen as it went.
            terms.requests_max = 3;
        }
    }
    if arguments.messages {
        terms.record = Record::Traffic;
    }
    terms.plant = arguments.plant.clone();
    terms.moves = arguments.moves;
    Ok(terms)
}

/// How many of a million messages are lost as the file says; none where it says nothing, or where faults are drawn in its place.
fn file_loss(deployment: &Deployment, faults: FaultSet) -> Option<u32> {
    Some(deployment.network().loss_per_million).filter(|loss| *loss > 0 && faults.is_empty())
}

/// So many sessions over all nodes, by node: as many on each, and what is left over on the first nodes of their regions, one
/// region after the other.
fn spread(deployment: &Deployment, clients: u32) -> Vec<u32> {
    let place = |node: &Node| deployment.nodes_in(node.region).position(|other| other.id == node.id);
    let mut nodes: Vec<&Node> = deployment.nodes().iter().collect();
    nodes.sort_by_key(|node| place(node));
    let (each, over) = (clients / nodes.len() as u32, clients as usize % nodes.len());
    let mut sessions = vec![each; nodes.len()];
    for node in nodes.into_iter().take(over) {
        sessions[usize::from(node.id.0)] += 1;
    }
    sessions
}

/// `REGION=VALUE` for some regions.
fn by_region<'a, T: Clone>(
    flag: &str,
    deployment: &Deployment,
    words: impl Iterator<Item = &'a str>,
    value: impl Fn(&str) -> Option<T>,
) -> anyhow::Result<Vec<Option<T>>> {
    let mut found = vec![None; deployment.regions().len()];
    for word in words {
        let wrong = |why: &str| Usage(format!("{flag} {word}: {why}\n  write REGION=NUMBER,..."));
        let Some((name, number)) = word.split_once('=') else { bail!(wrong("there is no `=`")) };
        let Some(region) = deployment.region_named(name.trim()) else {
            let names: Vec<_> = deployment.regions().iter().map(|region| region.name.as_str()).collect();
            bail!(wrong(&format!("no region is called {:?}; there are {}", name.trim(), names.join(", "))))
        };
        let Some(number) = value(number.trim()) else { bail!(wrong("that is no number for it")) };
        if found[usize::from(region.id.0)].replace(number).is_some() {
            bail!(wrong(&format!("{} is named twice; name each region once", region.name)));
        }
    }
    Ok(found)
}

/// What is only for one run: its flow and its drawing.
fn show_flow(arguments: &Sim, trace: &str, drawing: &str) -> anyhow::Result<()> {
    if arguments.trace {
        print_text(trace)?;
        print_text("\n")?;
    }
    if let Some(path) = &arguments.trace_svg {
        output::write(path, drawing)?;
    }
    Ok(())
}

/// The same of its history.
fn write_history(
    arguments: &Sim,
    write: impl FnOnce(std::io::BufWriter<std::fs::File>) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    let Some(path) = &arguments.history else { return Ok(()) };
    let file = output::create(path)?;
    write(std::io::BufWriter::new(file)).map_err(|cause| output::unwritable(path, &cause))?;
    output::say(format_args!("wrote {}", path.display()));
    Ok(())
}

/// The command that runs one seed again, with every flag that changes a run.
fn replay(arguments: &Sim, seed: u64) -> String {
    let mut words = vec!["isochrone sim".to_owned()];
    words.extend(arguments.file.as_ref().map(|file| quoted(&file.display().to_string())));
    let mut flag = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.push(format!("--{name} {}", quoted(&value)));
        }
    };
    flag("keyspace", arguments.keyspace.clone());
    flag("protocol", arguments.protocol.clone());
    flag("leader", arguments.leader.clone());
    flag("workload", arguments.workload.clone());
    flag("clients", arguments.clients.clone());
    flag("conflict", arguments.conflict.map(|n| n.to_string()));
    flag("records", arguments.records.map(|n| n.to_string()));
    flag("zipf", arguments.zipf.map(|n| n.to_string()));
    flag("rate", arguments.rate.map(|n| n.to_string()));
    flag("duration", arguments.duration.map(|span| format!("{}ns", span.as_nanos())));
    flag("seed", Some(seed.to_string()));
    flag("faults", Some(arguments.faults.clone()));
    flag("jitter", arguments.jitter.map(|jitter| jitter.to_string()));
    flag("sync", arguments.sync.map(|span| format!("{}ns", span.as_nanos())));
    flag("moves", (arguments.moves > 0).then(|| arguments.moves.to_string()));
    flag("partitions", arguments.partitions.map(|n| n.to_string()));
    flag("plant", arguments.plant.clone());
    for (name, given) in [("set", &arguments.set), ("straggler", &arguments.straggler)] {
        words.extend(given.iter().map(|word| format!("--{name} {}", quoted(word))));
    }
    for (name, given) in [("cpu", arguments.cpu), ("retry", arguments.retry)] {
        words.extend(given.then(|| format!("--{name}")));
    }
    words.join(" ")
}

fn show(printed: &Printed) -> String {
    let subject = format!("{} ({})", printed.protocol, printed.guarantee);
    let counted = format!("{} operations", printed.operations);
    let mut figures = match printed.regions.is_empty() {
        true => String::new(),
        false => format!("\n{}", table(&printed.regions)),
    };
    if !printed.silent.is_empty() {
        figures +=
            &format!("\nno operation of {} ended within the measured time\n", printed.silent.join(", "));
    }
    figures += &printed.campaign.traffic("operation", 1.0 / printed.operations.max(1) as f64);
    printed.campaign.show(&subject, &counted, &figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Verb};
    use clap::Parser;
    use isochrone_workload::trial::Outcome;
    use std::path::Path;

    /// A run with these flags, of three regions whose network has this beside its round trips.
    fn ran(network: &str, flags: &[&str]) -> Outcome {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("three.toml");
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let text = std::fs::read_to_string(format!("{root}/deployments/three-regions.toml")).unwrap();
        let text = text.replace("\"../reference", &format!("\"{root}/reference"));
        std::fs::write(&path, text.replace("[network]\n", &format!("[network]\n{network}\n"))).unwrap();
        let words = ["isochrone", "sim", path.to_str().unwrap(), "--workload", "set"];
        let parsed = Arguments::try_parse_from(words.into_iter().chain(flags.iter().copied())).unwrap();
        let Verb::Sim(arguments) = parsed.verb else { panic!("another verb") };
        let (deployment, keyspace) = subject(&arguments).unwrap();
        let faults = faults(&arguments).unwrap();
        let terms = terms(&arguments, &deployment, Workload::named("set").unwrap(), faults).unwrap();
        let runs = protocols::of(&deployment, keyspace).map(|entry| &entry.runs);
        let Some(Runs::Commands { trial, .. }) = runs else { panic!("no commands") };
        trial(&deployment, keyspace, &terms, 1).unwrap()
    }

    #[test]
    fn the_jitter_and_the_loss_of_the_file_are_simulated_where_no_fault_is() {
        let (plain, rough) = ("", "jitter = \"40ms\"\nloss = 0.02");
        let spread = |network: &str, flags: &[&str]| {
            let outcome = ran(network, flags);
            assert!(outcome.report.violations.is_empty(), "{:?}", outcome.report.violations);
            let figures = outcome.figures.region(0, None).unwrap();
            (figures.p99_ms - figures.p50_ms, outcome.report.faults.count(FaultKind::Loss))
        };
        assert_eq!(spread(plain, &[]), (0.0, 0));
        let (wide, none) = spread("jitter = \"40ms\"", &[]);
        assert!(wide > 10.0 && none == 0, "{wide} ms, {none} lost");
        assert_eq!(spread("jitter = \"40ms\"", &["--jitter", "0"]), (0.0, 0), "the flag comes first");
        let (_, lost) = spread(rough, &[]);
        assert!(lost > 10, "{lost} lost of some thousand");
        // What is drawn with faults is that of the seed alone.
        let hash = |network: &str| ran(network, &["--faults", "crash"]).report.hash;
        assert_eq!(hash(plain), hash(rough));
    }

    #[test]
    fn a_region_is_named_once() {
        let five = Deployment::five_regions();
        let given = |words: &[&str]| {
            by_region("--clients", &five, words.iter().copied(), |number| number.parse::<u32>().ok())
        };
        assert_eq!(given(&["Euro=1", "Asia=5"]).unwrap(), [None, None, Some(1), Some(5), None]);
        assert_eq!(
            given(&["Euro=1", "Euro=5"]).unwrap_err().to_string(),
            "--clients Euro=5: Euro is named twice; name each region once\n  write REGION=NUMBER,..."
        );
    }

    #[test]
    fn exactly_so_many_sessions_are_spread_and_no_region_has_two_more_than_another() {
        let mut text = "cluster = \"six\"\n".to_owned();
        for region in ["A", "B", "C"] {
            text += &format!("[[region]]\nname = \"{region}\"\n");
            for number in 0..2 {
                text += &format!("[[node]]\nname = \"{region}{number}\"\nregion = \"{region}\"\n");
            }
        }
        text += "[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\nreplication = 3\n";
        let six = Deployment::parse(&text, "six.toml", Path::new(""), &protocols::known()).unwrap();
        for (clients, sessions) in [
            (0, [0, 0, 0, 0, 0, 0]),
            (1, [1, 0, 0, 0, 0, 0]),
            (3, [1, 0, 1, 0, 1, 0]),
            (4, [1, 1, 1, 0, 1, 0]),
            (12, [2, 2, 2, 2, 2, 2]),
            (14, [3, 2, 3, 2, 2, 2]),
        ] {
            assert_eq!(spread(&six, clients), sessions, "{clients} clients");
        }
    }
}
