//! `isochrone up`: a whole cluster in one process, and a table of how long each of its regions waits.

mod cluster;
mod keys;
mod plain;
mod screen;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod view;

use crate::arguments::{Format, Up};
use crate::output::{put, say, unprinted};
use crate::stop::Stop;
use crate::{Status, Usage, log, protocols};
use anyhow::{Context, bail};
use cluster::Cluster;
use isochrone_core::Deployment;
use isochrone_node::journal::DataDirectory;
use keys::Action;
use screen::{Input, Screen};
use std::io::{ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The figures of the live table are those of this long.
const WINDOW: Duration = Duration::from_secs(5);
/// How often the live table is drawn.
const REFRESH: Duration = Duration::from_millis(250);
/// How often lines are printed, and of how long their figures are.
const LINES: Duration = Duration::from_secs(1);
/// How often it is looked whether all regions serve.
const GLANCE: Duration = Duration::from_millis(10);
/// How often, between two lines, it is looked whether `isochrone net` has asked for anything.
const TURN: Duration = Duration::from_millis(50);

/// Runs the verb.
pub(crate) fn run(arguments: Up) -> anyhow::Result<Status> {
    let Up { file, protocol, plain, period, port, data, format } = arguments;
    let mut deployment = match file {
        // All of it is on loopback, whatever the file says.
        Some(file) => Deployment::load(&file, &protocols::known().insecure(true))?,
        None => Deployment::five_regions(),
    };
    if let Some(protocol) = protocol {
        let keyspace = deployment.redis_keyspace();
        deployment = deployment.with_protocol(keyspace, &protocol, &protocols::known())?;
        deployment.survives_as_demanded(keyspace)?;
    }
    let plain = plain || format == Format::Json || !std::io::stdout().is_terminal();
    if plain || std::env::var_os("RUST_LOG").is_some() && !std::io::stderr().is_terminal() {
        log::start("error", format)?;
    }
    let stop = Stop::listen()?;
    let home = Home::at(data)?;
    let window = if plain { LINES } else { WINDOW };
    let mut cluster = Cluster::start(deployment, port, home.path(), window)?;
    let period = period.map(|period| Duration::from_nanos(period.as_nanos()));
    let done = match (plain, format) {
        (true, format) => lines(&mut cluster, &stop, period, format),
        (false, _) => table(&mut cluster, &stop, period),
    };
    let status = if cluster.stop() { Status::Held } else { Status::Failed };
    match done {
        // Whoever reads the lines may stop early (`| head`): then there is nobody left to run for.
        Err(error) if broken_pipe(&error) => Ok(status),
        done => done.map(|()| status),
    }
}

fn broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Where the data lies; a temporary directory is removed in the end.
enum Home {
    Kept(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Home {
    fn at(data: Option<PathBuf>) -> anyhow::Result<Home> {
        Ok(match data {
            // It has one for each node in it. That one of a node is damaged makes it no other.
            Some(data)
                if data.join("IDENTITY").exists()
                    || matches!(DataDirectory::cluster_of(&data), Ok(Some(_))) =>
            {
                let wrong = format!("--data {}: this is the data directory of one node", data.display());
                let right = "name a directory of this cluster's own, or one that does not exist yet";
                bail!(Usage(format!("{wrong}\n  {right}; `isochrone node` runs that node")))
            }
            Some(data) => Home::Kept(data),
            None => Home::Temporary(
                tempfile::Builder::new()
                    .prefix("isochrone-")
                    .tempdir()
                    .context("no temporary directory; name one with --data")?,
            ),
        })
    }

    fn path(&self) -> PathBuf {
        match self {
            Home::Kept(path) => path.clone(),
            Home::Temporary(folder) => folder.path().to_owned(),
        }
    }
}

/// Lines for pipes. The first says that every region serves.
///
/// # Errors
/// They will not all, or not within the period.
fn lines(cluster: &mut Cluster, stop: &Stop, period: Option<Duration>, format: Format) -> anyhow::Result<()> {
    let end = period.map(|period| Instant::now() + period);
    while !cluster.ready() {
        cluster.obey();
        tell(cluster)?;
        if cluster.failed() {
            bail!("a node has ended before all regions served");
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            bail!("not all regions serve yet, and --for is over; give it more time");
        }
        let left = end.map_or(GLANCE, |end| end.saturating_duration_since(Instant::now()));
        if stop.within(GLANCE.min(left)) {
            return Ok(());
        }
    }
    let view = cluster.look();
    match format {
        Format::Json => json(&plain::Ready {
            ready: true,
            cluster: view.cluster.clone(),
            durability: (!view.fsync).then_some("UNSAFE"),
            regions: cluster.doors(),
        })?,
        Format::Text => print(&plain::greeting(&view, &cluster.doors()))?,
    }
    let mut next = Instant::now() + LINES;
    loop {
        let until = end.map_or(next, |end| end.min(next));
        if attend(cluster, stop, until)? || end.is_some_and(|end| end < next) {
            break;
        }
        let view = cluster.look();
        match format {
            Format::Json => json(&plain::Line::of(&view, false))?,
            Format::Text => print(&plain::text(&view))?,
        }
        tell(cluster)?;
        if end == Some(next) {
            break;
        }
        next += LINES;
    }
    let view = cluster.look_back();
    match format {
        Format::Json => json(&plain::Line::of(&view, true)),
        Format::Text => print(&plain::summary(&view)),
    }
}

/// Does until then what `isochrone net` asks for. Whether a signal has come.
///
/// # Errors
/// As of [`tell`].
fn attend(cluster: &mut Cluster, stop: &Stop, until: Instant) -> anyhow::Result<bool> {
    loop {
        cluster.obey();
        tell(cluster)?;
        let left = until.saturating_duration_since(Instant::now());
        if stop.within(left.min(TURN)) {
            return Ok(true);
        }
        if left <= TURN {
            return Ok(false);
        }
    }
}

/// Says what happened on standard error.
///
/// # Errors
/// No node runs any more.
fn tell(cluster: &Cluster) -> anyhow::Result<()> {
    while let Some(note) = cluster.note() {
        say(format_args!("isochrone: {note}"));
    }
    if cluster.lost() {
        bail!("no node runs any more");
    }
    Ok(())
}

fn json(line: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string(line)? + "\n"))
}

/// Prints lines. Where nobody reads them any more, the error is the system's.
fn print(text: &str) -> anyhow::Result<()> {
    put(text).map_err(|cause| match cause.kind() {
        ErrorKind::BrokenPipe => cause.into(),
        _ => unprinted(&cause).into(),
    })
}

/// The live table.
fn table(cluster: &mut Cluster, stop: &Stop, period: Option<Duration>) -> anyhow::Result<()> {
    let doors = cluster.doors();
    let port = doors.first().map_or(0, |door| door.redis.port());
    let mut note = format!("try: redis-cli -p {port} SET city Lisbon");
    let colour = std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty());
    let end = period.map(|period| Instant::now() + period);
    let screen = Screen::open().context("the terminal cannot show the table; use --plain")?;
    let mut selected = 0;
    let mut last = String::new();
    let mut drawn = None::<Instant>;
    loop {
        cluster.obey();
        if let Some(news) = cluster.note() {
            note = news;
        }
        if cluster.lost() {
            drop(screen);
            bail!("no node runs any more; {note}");
        }
        // A key is answered at once; figures move only so often.
        let view = cluster.look();
        let (width, height) = screen.size();
        let frame = table::Frame { width, height, colour, selected, note: &note };
        let lines = table::lines(&view, &frame);
        let text = lines.join("\n");
        if text != last || drawn.is_none_or(|at| at.elapsed() > LINES) {
            screen.draw(&lines)?;
            (last, drawn) = (text, Some(Instant::now()));
        }
        let input = screen.wait(REFRESH)?;
        if !screen.shown() {
            bail!("a thread of this program has panicked, see above");
        }
        if stop.within(Duration::ZERO) || end.is_some_and(|end| Instant::now() >= end) {
            return Ok(());
        }
        let Input::Key(key) = input else { continue };
        match keys::action(key, selected, cluster.len()) {
            None => {}
            Some(Action::Select(index)) => selected = index,
            Some(Action::Kill) => note = cluster.kill(selected),
            Some(Action::Restart) => note = cluster.restart(selected),
            Some(Action::Partition) => note = cluster.partition(selected),
            Some(Action::Lead) => note = cluster.lead(selected),
            Some(Action::Quit) => return Ok(()),
        }
    }
}
