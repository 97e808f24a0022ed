//! `isochrone upgrade`: which node of a running cluster may be stopped next, so that all can be started anew one after the other
//! and every keyspace is served all the time. It asks and waits; stopping and starting is left to whoever can do it.

pub mod arguments;
mod screen;
#[cfg(test)]
mod tests;
mod view;

use crate::arguments::Format;
use crate::output::{clean, print_json, print_text, say};
use crate::status;
use crate::status::told::Told;
use crate::status::view::Asked;
use crate::{Status, Usage, protocols};
use anyhow::bail;
use arguments::Upgrade;
use isochrone_core::Deployment;
use isochrone_core::deployment::{Address, Node};
use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use view::{Goal, Reached, Request, View, reached};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// A node must have applied what others had so long ago; at the last look, where that is longer ago.
const LAG: Duration = Duration::from_secs(2);
/// What is waited for is said so often, and not before it was for a while.
const SAID_EVERY: Duration = Duration::from_secs(5);
const SAID_FIRST: Duration = Duration::from_secs(1);

/// Runs the verb.
pub(crate) fn run(arguments: Upgrade) -> anyhow::Result<Status> {
    let file = Deployment::load(&arguments.file, &protocols::known().insecure(true))?;
    let nodes: Vec<&str> = file.nodes().iter().map(|node| node.name.as_str()).collect();
    let keyspaces: Vec<&str> = file.keyspaces().iter().map(|keyspace| keyspace.name.as_str()).collect();
    known("without", "node", &arguments.without, &nodes, &file)?;
    known("interrupt", "keyspace", &arguments.interrupt, &keyspaces, &file)?;
    let goal = match (arguments.started_before, arguments.to) {
        (Some(moment), _) => Goal::StartedBefore(moment),
        (None, to) => Goal::Version(to.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned())),
    };
    let (without, interrupt) = (arguments.without.as_slice(), arguments.interrupt.as_slice());
    let request = Request { deployment: &file, goal, without, interrupt };
    let mut looks = Looks { http: &arguments.http, request, reached: VecDeque::new() };
    let view = match arguments.next {
        true => {
            let patience = Duration::from_nanos(arguments.timeout.as_nanos());
            match wait(&mut looks, patience, &arguments.file)? {
                view if arguments.format == Format::Json => view,
                view => {
                    say(screen::next(&view));
                    print_text(&view.next.map_or_else(String::new, |name| name + "\n"))?;
                    return Ok(Status::Held);
                }
            }
        }
        false => once(&mut looks)?,
    };
    match arguments.format {
        Format::Json => print_json(&view)?,
        Format::Text => print_text(&screen::text(&view))?,
    }
    Ok(if view.next.is_some() || view.done() { Status::Held } else { Status::Failed })
}

/// How it stands; whoever is behind is looked at again for as long as it may be behind.
fn once(looks: &mut Looks<'_>) -> anyhow::Result<View> {
    let begun = Instant::now();
    loop {
        let again = begun.elapsed();
        let view = looks.look(true)?;
        if !view.lags || again > LAG {
            return Ok(view);
        }
        std::thread::sleep(PAUSE);
    }
}

/// How it stands once a node may be stopped, or nothing is left to be done.
///
/// # Errors
/// It is waited for in vain, or waiting would be in vain.
fn wait(looks: &mut Looks<'_>, patience: Duration, file: &Path) -> anyhow::Result<View> {
    let begun = Instant::now();
    let (mut said, mut last) = (String::new(), None::<Instant>);
    loop {
        let again = begun.elapsed();
        let view = looks.look(false)?;
        let found = view.next.is_some() || view.done();
        // Whoever lags is compared with what an earlier look has seen before it is given up.
        let late = begun.elapsed() >= patience && (!view.lags || again > LAG);
        if found || late || !view.obstacles.is_empty() {
            for note in &view.notes {
                say(clean(&format!("look at: {note}")));
            }
        }
        if found {
            return Ok(view);
        }
        if !view.obstacles.is_empty() {
            bail!("{}", view.obstacles.join("\n"));
        }
        if late {
            let waits: String = view.waits.iter().map(|wait| format!("\n  {wait}")).collect();
            bail!(
                "no node may be stopped, after {} s{waits}\n  try: isochrone status {}; where a node is gone for good, --without NODE",
                patience.as_secs(),
                file.display()
            );
        }
        let due = last.map_or(begun + SAID_FIRST, |last| last + SAID_EVERY);
        let waits = view.waits.join("; ");
        if waits != said && Instant::now() >= due {
            say(clean(&format!("waiting: {waits}")));
            (said, last) = (waits, Some(Instant::now()));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Looks at a cluster, one after the other.
struct Looks<'a> {
    http: &'a [Address],
    request: Request<'a>,
    /// How far it was when, at each look within the time by which a node may be behind, or at the last one; the oldest first.
    reached: VecDeque<(Instant, Reached)>,
}

impl Looks<'_> {
    /// Asks all. Where nobody answers that is an error of its own for whoever wants one.
    fn look(&mut self, answered: bool) -> anyhow::Result<View> {
        // A node's start is reckoned from here. Answers come later, so none seems to have started later than it has by more than
        // its answer is old.
        let (now, at) = (Instant::now(), SystemTime::now());
        let mut asked = ask_all(&self.request, self.http)?;
        if answered {
            asked = status::answered(asked)?;
        }
        let gone = |asked: &Asked| self.request.without.iter().any(|name| *name == *view::name(asked));
        let (gone, asked): (Vec<_>, Vec<_>) = asked.into_iter().partition(gone);
        let floor = floor(&mut self.reached, now, reached(&asked));
        let mut view = View::of(&self.request, &asked, &gone, at, &floor);
        // No waiting gives a node a place in the file.
        for asked in asked.iter().filter(|asked| self.http.is_empty() && asked.http.is_none()) {
            view.obstacles.push(format!(
                "{} has no `http` in the file, where it would tell how it stands\n  give it one and start it anew, or name it \
                 with --without",
                view::name(asked)
            ));
        }
        Ok(view)
    }
}

/// How far all must be at a look that finds them so far: as far as the oldest look had found them that counts.
fn floor(looks: &mut VecDeque<(Instant, Reached)>, now: Instant, reached: Reached) -> Reached {
    // The last one counts however long ago: where a node does not answer, a look takes longer than one may be behind.
    while looks.len() > 1 && looks.front().is_some_and(|(then, _)| now.duration_since(*then) > LAG) {
        looks.pop_front();
    }
    looks.push_back((now, reached));
    looks.front().map(|(_, reached)| reached.clone()).unwrap_or_default()
}

/// What each node of the file tells, in its order.
///
/// # Errors
/// All who answer and are waited for are of another cluster.
fn ask_all(request: &Request<'_>, http: &[Address]) -> anyhow::Result<Vec<Asked>> {
    let file = request.deployment;
    let mut asked =
        if http.is_empty() { status::at_places_of(file, request.without)? } else { of_places(file, http)? };
    let (mut ours, mut other) = (false, None);
    for asked in &mut asked {
        let gone = request.without.iter().any(|gone| *gone == *view::name(asked));
        let Ok(told) = &asked.answer else { continue };
        if told.cluster == file.cluster() {
            ours = true;
            asked.refuse_another();
            continue;
        }
        let who = stranger(told);
        if !gone {
            other.get_or_insert_with(|| who.clone());
        }
        asked.answer = Err(who);
    }
    match other {
        Some(who) if !ours => bail!(strangers(file, &who)),
        _ => Ok(asked),
    }
}

/// Why what a node of another cluster tells does not count.
fn stranger(told: &Told) -> String {
    format!("{} of another cluster, {}, answers there", told.node, told.cluster)
}

/// Nobody but such nodes answers; `who` one of them is.
fn strangers(file: &Deployment, who: &str) -> Usage {
    Usage(format!(
        "{}: {who}, and no node of {}\n  name the deployment of the cluster that is meant",
        file.file(),
        file.cluster()
    ))
}

/// The same where the nodes answer at other places than the file says.
///
/// # Errors
/// All who answer are of another cluster.
fn of_places(file: &Deployment, http: &[Address]) -> anyhow::Result<Vec<Asked>> {
    let answers = status::ask::ask(http)?;
    let told = || answers.iter().filter_map(|answer| answer.as_ref().ok());
    if let Some(other) = told().next()
        && told().all(|told| told.cluster != file.cluster())
    {
        bail!(strangers(file, &stranger(other)));
    }
    let named = |node: &Node| {
        let mut places = http.iter().zip(&answers);
        let place = places.find(|(_, answer)| matches!(answer, Ok(told) if told.node == node.name));
        let (http, answer) = match place {
            Some((address, answer)) => (Some(address.to_string()), answer.clone()),
            None => (None, Err("it answers at no place that was given with --http".to_owned())),
        };
        Asked { name: Some((node.name.clone(), file.region(node.region).name.clone())), http, answer }
    };
    Ok(file.nodes().iter().map(named).collect())
}

/// Refuses a name that is not in the file.
fn known(flag: &str, what: &str, names: &[String], all: &[&str], file: &Deployment) -> Result<(), Usage> {
    match names.iter().find(|name| !all.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Usage(format!(
            "--{flag} {name}: {} has no {what} of this name\n  use one of {}",
            file.file(),
            all.join(", ")
        ))),
    }
}
