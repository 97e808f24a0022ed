//! Orders to a running cluster: who leads, who has replicas, which partition serves which keys, and that a node stops.
//!
//! What has no such name is refused before anything is sent. An order is sent once, to one node: one that has taken no
//! connection is passed over, and of one that has and does not answer it is told that the order may still be carried out.

pub(crate) mod arguments;
mod ask;
mod choice;
mod site;
#[cfg(test)]
mod tests;
mod told;

use crate::arguments::Format;
use crate::output::{print_json, print_text, quoted};
use crate::status::told::Told;
use crate::status::view::{Asked, Shown, View};
use crate::{Status, Usage};
use anyhow::{anyhow, bail};
use arguments::{
    Add, Extent, List, Move, MoveLeader, Partitions, Range, RangeVerb, Remove, Replica, ReplicaVerb, Stop,
    Target,
};
use ask::{Answer, End, Given, Moving, Order, Place, Unsent};
use choice::{choose, place};
use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use serde::Serialize;
use site::{Site, token};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use told::{Change, Changed, Ended, Moved, Outcome, Partition, Ranges, Stopped};

/// A node answers within 10 s, if only that it does not know what came of the order.
const PATIENCE: Duration = Duration::from_secs(15);
/// The same where keys are moved, which takes up to 10 minutes.
const MOVE_PATIENCE: Duration = Duration::from_secs(610);

/// Lets a replica lead.
pub(crate) fn move_leader(arguments: MoveLeader) -> anyhow::Result<Status> {
    let MoveLeader { target, to, partitions } = arguments;
    change(&target, Change::Lead, ("to", &to), &partitions, None)
}

/// Takes a node in as a replica, or lets it go.
pub(crate) fn replica(arguments: Replica) -> anyhow::Result<Status> {
    match arguments.verb {
        ReplicaVerb::Add(Add { target, node, partitions }) => {
            change(&target, Change::Add, ("node", &node), &partitions, None)
        }
        ReplicaVerb::Remove(Remove { target, node, partitions, cluster }) => {
            let typed = Some(cluster.as_deref());
            change(&target, Change::Remove, ("node", &node), &partitions, typed)
        }
    }
}

/// An order about replicas. `typed` is what was typed for the cluster's name, where that is wanted.
fn change(
    target: &Target,
    change: Change,
    (flag, node): (&str, &str),
    Partitions { keyspace, partition }: &Partitions,
    typed: Option<Option<&str>>,
) -> anyhow::Result<Status> {
    let site = Site::of(target)?;
    site.known.node(flag, node)?;
    let keyspace = site.known.keyspace(keyspace.as_deref())?;
    if let Some(partition) = *partition {
        keyspace.partition("partition", partition)?;
    }
    let token = token(target.token_file.as_deref())?;
    if let Some(typed) = typed {
        site.known
            .confirm(&format!("takes the replica at {node} out of keyspace {}", keyspace.name), typed)?;
    }
    let cluster = site.known.cluster.clone();
    let asked = site.ask()?;
    let view = View::of(&asked, None);
    let shown = view.keyspaces.iter().find(|shown| shown.keyspace == keyspace.name);
    let choice = choose((&keyspace, shown), &asked, (change, node), *partition)?;

    let body = serde_json::json!({"keyspace": keyspace.name, "node": node, "partition": choice.named});
    let order = post(change.path(), body.to_string(), PATIENCE);
    let given = give((&choice.places, &choice.nodes), &asked, &order, &token)?;
    let mut ended = Ended::of(&given)?;
    if change == Change::Lead
        && ended.outcome == Outcome::Refused
        && matches!(given.answer, Answer::Said(StatusCode::CONFLICT, _))
    {
        ended.said += &no_member(node, shown, &choice.partitions);
    }
    ended.said += &no_leader(&given, &choice.nodes);
    let look = |now: Option<&Told>| -> Vec<Partition> {
        let of = |partition: &u16| Partition::of(*partition, &keyspace.name, shown, now);
        choice.partitions.iter().map(of).collect()
    };
    // Where it is not done, how it stands at once is all that can be told.
    let done = ended.outcome == Outcome::Done;
    let now = ask::settled(&given.place.http, |told| {
        !done || look(Some(told)).iter().all(|partition| partition.is(change, node))
    })?;
    let partitions = look(now.as_ref());
    let (node, keyspace) = (node.to_owned(), keyspace.name.clone());
    let changed = Changed { order: change, cluster, keyspace, node, ended, partitions };
    print(target.format, &changed, &changed.ended, Changed::text)?;
    changed.ended.held(&format!("how it stands, says: isochrone status{}", said_again(target)))?;
    Ok(Status::Held)
}

/// That the node which is to lead is no member, where it is none, and who could: whoever was asked says only that `the replica`
/// has no copy, or is none.
fn no_member(node: &str, shown: Option<&Shown>, partitions: &[u16]) -> String {
    let members = |partition: &u16| shown?.members.get(usize::from(*partition));
    let others = |members: &&Vec<String>| !members.iter().any(|member| member == node);
    let others: BTreeSet<&str> =
        partitions.iter().filter_map(members).filter(others).flatten().map(String::as_str).collect();
    if others.is_empty() {
        return String::new();
    }
    let others = others.into_iter().collect::<Vec<_>>().join(", ");
    format!("\n  {node} is no member now; those who could lead are {others}")
}

/// Who else could take an order, where the one that was given it has nobody to pass it on to: a replica that has no link to who
/// leads, say, which others have.
fn no_leader(given: &Given, nodes: &[String]) -> String {
    let Answer::Said(_, text) = &given.answer else { return String::new() };
    let others: Vec<&str> =
        nodes.iter().map(String::as_str).filter(|node| *node != given.place.node).collect();
    if !text.ends_with("does not lead") || others.is_empty() {
        return String::new();
    }
    format!("\n  it may have no link to who leads; give this order on the machine of {}", others.join(" or "))
}

/// Shows who serves which keys, or moves some.
pub(crate) fn range(arguments: Range) -> anyhow::Result<Status> {
    match arguments.verb {
        RangeVerb::List(list) => ranges(list),
        RangeVerb::Move(keys) => move_range(keys),
    }
}

fn ranges(List { target, keyspace }: List) -> anyhow::Result<Status> {
    let site = Site::of(&target)?;
    let keyspace = site.known.keyspace(keyspace.as_deref())?;
    let token = token(target.token_file.as_deref())?;
    let cluster = site.known.cluster.clone();
    let asked = site.ask()?;
    let (places, nodes) = anybody(&asked);
    let order = Order {
        method: Method::GET,
        path: format!("/admin/ranges?keyspace={}", keyspace.name),
        body: String::new(),
        patience: PATIENCE,
        moving: None,
    };
    let given = give((&places, &nodes), &asked, &order, &token)?;
    let ended = Ended::of(&given)?;
    let Place { node, http } = &given.place;
    if ended.outcome == Outcome::Unknown {
        bail!("{node} at {http}: {}\n  ask again", ended.said);
    }
    ended.held("")?;
    let list = match &given.answer {
        Answer::Said(_, text) => serde_json::from_str(text).ok(),
        Answer::Lost(_) => None,
    };
    let Some(ranges) = list else {
        bail!(
            "{node} at {http}: something answers there, but no node of this version\n  which version each node runs, says: isochrone \
             status{}",
            said_again(&target)
        );
    };
    let ranges = Ranges { cluster, keyspace: keyspace.name, asked: node.clone(), ranges };
    match target.format {
        Format::Json => print_json(&ranges)?,
        Format::Text => print_text(&ranges.text())?,
    }
    Ok(Status::Held)
}

fn move_range(arguments: Move) -> anyhow::Result<Status> {
    let Move { target, keyspace, from, to, extent } = arguments;
    let site = Site::of(&target)?;
    let keyspace = site.known.keyspace(keyspace.as_deref())?;
    keyspace.partition("from", from)?;
    keyspace.partition("to", to)?;
    if from == to {
        bail!(Usage(format!(
            "--from {from} --to {to}: keys that are in this partition are not moved to it\n  name another one"
        )));
    }
    let Extent { key, first, last, first_key, end_key } = extent;
    let backwards = |first: &Option<String>, last: &Option<String>, empty: bool| match (first, last) {
        (Some(first), Some(last)) => first > last || empty && first == last,
        _ => false,
    };
    if backwards(&first, &last, false) || backwards(&first_key, &end_key, true) {
        bail!(Usage("there is no key between these two\n  name the lower one first".to_owned()));
    }
    let token = token(target.token_file.as_deref())?;
    let cluster = site.known.cluster.clone();
    let asked = site.ask()?;
    let (places, nodes) = anybody(&asked);
    let body = serde_json::json!({
        "keyspace": keyspace.name, "from": from, "to": to,
        "key": key, "first": first, "last": last, "first_key": first_key, "end_key": end_key,
    });
    let moving = Some(Moving { keyspace: keyspace.name.clone(), from, to });
    let order = Order { moving, ..post("/admin/move-range", body.to_string(), MOVE_PATIENCE) };
    let given = give((&places, &nodes), &asked, &order, &token)?;
    let moved = Moved::of(cluster, &keyspace, (from, to), Ended::of(&given)?);
    print(target.format, &moved, &moved.ended, Moved::text)?;
    moved.ended.held(&format!("how far it is, says: {}", listed(&target, &keyspace.name)))?;
    Ok(Status::Held)
}

/// Stops a node, and waits until it has ended.
pub(crate) fn stop(arguments: Stop) -> anyhow::Result<Status> {
    let Stop { target, node, cluster } = arguments;
    let site = Site::of(&target)?;
    site.known.node("node", &node)?;
    let token = token(target.token_file.as_deref())?;
    site.known.confirm(&format!("stops {node}"), cluster.as_deref())?;
    let cluster = site.known.cluster.clone();
    let asked = site.ask()?;
    let itself = asked.iter().find_map(|asked| {
        let (told, http) = (asked.answer.as_ref().ok()?, asked.http.as_deref()?);
        (told.node == node).then_some((told, http))
    });
    let places: Vec<Place> = itself.and_then(|(_, http)| place(&node, http)).into_iter().collect();
    let start = Instant::now();
    let order = post("/admin/stop", String::new(), PATIENCE);
    let given = give((&places, std::slice::from_ref(&node)), &asked, &order, &token)?;
    let mut ended = Ended::of(&given)?;
    let mut runs_again = false;
    // Also where its answer is lost: it can be seen whether it ends.
    if ended.outcome != Outcome::Refused {
        let uptime_seconds = itself.map_or(0, |(told, _)| told.uptime_seconds);
        match ask::ended(&given.place.http, uptime_seconds)? {
            End::Late => ended.is(Outcome::Unknown, "it has not ended within 30 s".to_owned()),
            end => {
                runs_again = end == End::Again;
                ended.is(Outcome::Done, "it has stopped".to_owned());
            }
        }
        ended.lasted(start.elapsed());
    }
    let stopped = Stopped { order: "stop", cluster, node, ended, runs_again };
    print(target.format, &stopped, &stopped.ended, Stopped::text)?;
    stopped.ended.held("what it waits for, its log says")?;
    Ok(Status::Held)
}

fn post(path: &str, body: String, patience: Duration) -> Order {
    Order { method: Method::POST, path: path.to_owned(), body, patience, moving: None }
}

/// All who answer, those first that are ready; and their names.
fn anybody(asked: &[Asked]) -> (Vec<Place>, Vec<String>) {
    let mut told: Vec<_> = asked
        .iter()
        .filter_map(|asked| Some((asked.answer.as_ref().ok()?, asked.http.as_deref()?)))
        .collect();
    told.sort_by_key(|(told, _)| (told.stopping, !told.ready));
    let places: Vec<Place> = told.into_iter().filter_map(|(told, http)| place(&told.node, http)).collect();
    let nodes = places.iter().map(|place| place.node.clone()).collect();
    (places, nodes)
}

/// Gives an order to one of those who answer (`places`), of the `nodes` that could take it.
///
/// # Errors
/// None of them can be given one from this machine: nothing was sent.
fn give(
    (places, nodes): (&[Place], &[String]),
    asked: &[Asked],
    order: &Order,
    token: &HeaderValue,
) -> anyhow::Result<Given> {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.collect();
    ask::give(places, order, token)?.map_err(|unsent| {
        let tried: Vec<(&Place, &Unsent)> = places.iter().zip(&unsent).collect();
        anyhow!(nobody(nodes, &tried, asked, &words))
    })
}

/// Why none of these nodes was given an order, and what would be right: to give this command, of these words, where one of them runs.
fn nobody(nodes: &[String], tried: &[(&Place, &Unsent)], asked: &[Asked], words: &[String]) -> String {
    let tried = |name: &str| tried.iter().find(|(place, _)| place.node == name);
    let line = |name: &String| {
        if let Some((place, why)) = tried(name) {
            let why = match why {
                Unsent::Elsewhere => "it is on another machine",
                Unsent::Nobody => "nobody listens there any more",
                Unsent::Other(why) => why.as_str(),
            };
            return format!("\n  {name}, {}: {why}", place.http);
        }
        let silent = asked.iter().find(|asked| asked.name.as_ref().is_some_and(|(known, _)| known == name));
        match silent {
            Some(Asked { http, answer: Err(why), .. }) => {
                format!("\n  {name}, {}: {why}", http.as_deref().unwrap_or("-"))
            }
            _ => format!("\n  {name}: it was not asked"),
        }
    };
    let lines: String = nodes.iter().map(line).collect();
    // Who listens no more on this machine would not there either.
    let elsewhere = |name: &&String| tried(name).is_none_or(|(_, why)| **why != Unsent::Nobody);
    let right = match nodes.iter().find(elsewhere) {
        Some(node) => {
            let command = command_there(words, tried(node).map(|(place, _)| *place));
            format!("a node takes orders from its own machine only; on that of {node} run: {command}")
        }
        None => "start one of them".to_owned(),
    };
    format!("nobody who could take this order is reached from here; nothing was sent{lines}\n  {right}")
}

/// This command as it is given to another node, whose place, where that is known, stands for those that were asked by --http.
fn command_there(words: &[String], place: Option<&Place>) -> String {
    let (mut command, mut by_http) = ("isochrone".to_owned(), false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--http" {
            by_http = words.next().is_some();
        } else if word.starts_with("--http=") {
            by_http = true;
        } else {
            command += " ";
            command += &quoted(word);
        }
    }
    match (by_http, place) {
        (false, _) => command,
        (true, Some(place)) => format!("{command} --http {}", place.http),
        (true, None) => format!("{command} --http HOST:PORT, where its `http` is"),
    }
}

/// Prints what came of an order: JSON in any case, text where it is done.
fn print<T: Serialize>(format: Format, of: &T, ended: &Ended, text: fn(&T) -> String) -> anyhow::Result<()> {
    match format {
        Format::Json => print_json(of),
        Format::Text if ended.outcome == Outcome::Done => print_text(&text(of)),
        Format::Text => Ok(()),
    }
}

/// The command that lists the ranges of a keyspace.
fn listed(target: &Target, keyspace: &str) -> String {
    format!("isochrone range list{} --keyspace {}", said_again(target), quoted(keyspace))
}

/// How another command says which cluster it is.
fn said_again(target: &Target) -> String {
    match &target.file {
        Some(file) => format!(" {}", quoted(&file.display().to_string())),
        None => target.http.iter().map(|http| format!(" --http {http}")).collect(),
    }
}
