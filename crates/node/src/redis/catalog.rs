//! COMMAND and its subcommands, and the HELP of every container: the table told to clients.

use super::absent::ABSENT;
use super::complaint::Complaint;
use super::connection::State;
use super::reply::Reply;
use super::request::Args;
use super::spec::{Group, Keys, Spec, flag};
use super::table::{self, COMMANDS};
use crate::gateway::Context;
use isochrone_core::glob;
use std::collections::BTreeMap;

type Answer = Result<(), Complaint>;

/// `COMMAND`
pub(crate) fn all(_: &mut State, _: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    reply.array(COMMANDS.iter().map(|chapter| chapter.len()).sum());
    for spec in COMMANDS.iter().copied().flatten() {
        describe(spec, reply);
    }
    Ok(())
}

/// `COMMAND COUNT`
pub(crate) fn count(_: &mut State, _: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    reply.count(COMMANDS.iter().map(|chapter| chapter.len()).sum());
    Ok(())
}

/// How many names COMMAND INFO and COMMAND DOCS take: what is said of one is hundreds of times as long as it.
const NAMES_MAX: usize = 1024;

/// The names that such a command gives.
fn named(args: Args<'_>) -> Result<Args<'_>, Complaint> {
    match args.len() - 2 {
        0..=NAMES_MAX => Ok(args.from(2)),
        _ => Err(Complaint::text(format!("ERR more than {NAMES_MAX} names of commands"))),
    }
}

/// `COMMAND INFO [name ...]`
pub(crate) fn info(
    state: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Answer {
    if args.len() == 2 {
        return all(state, args, context, reply);
    }
    let names = named(args)?;
    reply.array(names.len());
    for name in names.iter() {
        match table::by_name(name) {
            Some(spec) => describe(spec, reply),
            None => reply.null(),
        }
    }
    Ok(())
}

/// One entry: name, arity, flags, first key, last key, step, categories, tips, key specifications,
/// subcommands.
fn describe(spec: &Spec, reply: &mut Reply<'_>) {
    reply.array(10);
    reply.bulk(spec.name.as_bytes());
    reply.integer(i64::from(spec.arity));
    names(&spec.flag_names(), reply);
    let (first, last, step) = spec.keys.numbers();
    reply.integer(i64::from(first));
    reply.integer(i64::from(last));
    reply.integer(i64::from(step));
    names(&spec.categories(), reply);
    reply.set(0);
    key_specifications(spec, reply);
    match spec.children() {
        // As there.
        [] => reply.set(0),
        children => reply.array(children.len()),
    }
    for child in spec.children() {
        describe(child, reply);
    }
}

fn names(names: &[&str], reply: &mut Reply<'_>) {
    reply.set(names.len());
    for name in names {
        reply.simple(name);
    }
}

fn key_specifications(spec: &Spec, reply: &mut Reply<'_>) {
    let found = |reply: &mut Reply<'_>, last: i32, step: i32, limit: i32| {
        reply.map(2);
        reply.bulk(b"type");
        reply.bulk(b"range");
        reply.bulk(b"spec");
        reply.map(3);
        for (name, value) in [("lastkey", last), ("keystep", step), ("limit", limit)] {
            reply.bulk(name.as_bytes());
            reply.integer(i64::from(value));
        }
    };
    let range = |reply: &mut Reply<'_>, index: i32, last: i32, step: i32| {
        begin(spec, index, reply);
        found(reply, last, step, 0);
    };
    match spec.keys {
        Keys::None => reply.set(0),
        Keys::Range { first, last, step } => {
            reply.set(1);
            // Counted from the first key here, from the end where negative.
            range(reply, first, if last < 0 { last } else { last - first }, step);
        }
        Keys::ShardChannels { last } => {
            reply.set(1);
            range(reply, 1, if last < 0 { last } else { last - 1 }, 1);
        }
        Keys::Streams => {
            reply.set(1);
            // Behind the group, where there is one.
            behind("RO", "STREAMS", if spec.is(flag::WRITE) { 4 } else { 1 }, reply);
            found(reply, -1, 1, 2);
        }
        Keys::Stored { from, words } => {
            reply.set(1 + words.len());
            range(reply, 1, 0, 1);
            for word in words {
                behind("RW", word, from as i64, reply);
                found(reply, 0, 1, 0);
            }
        }
        Keys::Counted { at, target } => {
            reply.set(1 + usize::from(target));
            if target {
                range(reply, 1, 0, 1);
            }
            begin(spec, at as i32, reply);
            reply.map(2);
            reply.bulk(b"type");
            reply.bulk(b"keynum");
            reply.bulk(b"spec");
            reply.map(3);
            for (name, value) in [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)] {
                reply.bulk(name.as_bytes());
                reply.integer(value);
            }
        }
    }
}

fn begin(spec: &Spec, index: i32, reply: &mut Reply<'_>) {
    reply.map(3);
    reply.bulk(b"flags");
    // Nobody knows what a script does with its keys.
    let written = spec.is(flag::WRITE) || spec.group == Group::Scripting;
    let flags = match spec.keys {
        Keys::ShardChannels { .. } => "not_key",
        _ if written => "RW",
        _ => "RO",
    };
    names(&[flags], reply);
    reply.bulk(b"begin_search");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"index");
    reply.bulk(b"spec");
    reply.map(1);
    reply.bulk(b"index");
    reply.integer(i64::from(index));
    reply.bulk(b"find_keys");
}

/// The same, behind a word.
fn behind(flags: &str, word: &str, from: i64, reply: &mut Reply<'_>) {
    reply.map(3);
    reply.bulk(b"flags");
    names(&[flags], reply);
    reply.bulk(b"begin_search");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"keyword");
    reply.bulk(b"spec");
    reply.map(2);
    reply.bulk(b"keyword");
    reply.bulk(word.as_bytes());
    reply.bulk(b"startfrom");
    reply.integer(from);
    reply.bulk(b"find_keys");
}

/// `COMMAND DOCS [name ...]`
pub(crate) fn docs(_: &mut State, args: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    let chosen: Vec<&Spec> = if args.len() == 2 {
        COMMANDS.iter().copied().flatten().collect()
    } else {
        named(args)?.iter().filter_map(table::by_name).collect()
    };
    reply.map(chosen.len());
    for spec in chosen {
        document(spec, reply);
    }
    Ok(())
}

fn document(spec: &Spec, reply: &mut Reply<'_>) {
    let arguments = arguments(spec.about.syntax);
    let children = spec.children();
    reply.bulk(spec.name.as_bytes());
    reply.map(3 + usize::from(!arguments.is_empty()) + usize::from(!children.is_empty()));
    reply.bulk(b"summary");
    reply.bulk(spec.about.summary.as_bytes());
    reply.bulk(b"since");
    reply.bulk(spec.about.since.as_bytes());
    reply.bulk(b"group");
    reply.bulk(spec.group.name().as_bytes());
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        reply.array(arguments.len());
        for (text, optional) in arguments {
            reply.map(if optional { 4 } else { 3 });
            reply.bulk(b"name");
            reply.bulk(text.as_bytes());
            reply.bulk(b"type");
            reply.bulk(b"string");
            reply.bulk(b"display_text");
            reply.bulk(text.as_bytes());
            if optional {
                reply.bulk(b"flags");
                names(&["optional"], reply);
            }
        }
    }
    if !children.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(children.len());
        for child in children {
            document(child, reply);
        }
    }
}

/// The parts of a syntax line, and whether each is optional.
fn arguments(syntax: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    let mut rest = syntax.trim();
    while !rest.is_empty() {
        let end = if rest.starts_with('[') {
            let mut depth = 0;
            rest.bytes()
                .position(|byte| {
                    depth += i32::from(byte == b'[') - i32::from(byte == b']');
                    depth == 0
                })
                .map_or(rest.len(), |end| end + 1)
        } else {
            rest.find(' ').unwrap_or(rest.len())
        };
        let (part, behind) = rest.split_at(end);
        match part.strip_prefix('[').and_then(|part| part.strip_suffix(']')) {
            Some(inner) => found.push((inner, true)),
            None => found.push((part, false)),
        }
        rest = behind.trim_start();
    }
    found
}

/// `COMMAND GETKEYS command [arg ...]`
pub(crate) fn get_keys(_: &mut State, args: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    let inner = args.from(2);
    let (spec, fits) = match table::find(inner) {
        Ok(spec) => (Some(spec), true),
        Err(Complaint::Arity(name)) => (table::by_name(name.as_bytes()), false),
        Err(_) => (None, false),
    };
    let spec = spec.ok_or(Complaint::text("ERR Invalid command specified"))?;
    if matches!(spec.keys, Keys::None | Keys::ShardChannels { .. }) {
        return Err(Complaint::text("ERR The command has no key arguments"));
    }
    if !fits {
        return Err(Complaint::text("ERR Invalid number of arguments specified for command"));
    }
    let places = match spec.keys.places(inner) {
        Some(places) => places,
        // A script may do without keys.
        None if spec.group == Group::Scripting => Vec::new(),
        None => return Err(Complaint::text("ERR Invalid arguments specified for command")),
    };
    reply.array(places.len());
    for place in places {
        reply.bulk(inner.at(place));
    }
    Ok(())
}

/// `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`
pub(crate) fn list(_: &mut State, args: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    let filter = match args.len() {
        2 => None,
        5 if args.at(2).eq_ignore_ascii_case(b"filterby") => {
            Some((args.at(3).to_ascii_lowercase(), args.at(4).to_ascii_lowercase()))
        }
        _ => return Err(Complaint::Syntax),
    };
    let fits = |spec: &Spec| match &filter {
        None => Ok(true),
        Some((kind, value)) => match kind.as_slice() {
            b"module" => Ok(false),
            b"aclcat" => Ok(spec.categories().iter().any(|category| &category.as_bytes()[1..] == value)),
            b"pattern" => Ok(glob::fits(super::args::pattern(value)?, spec.name.as_bytes())),
            _ => Err(Complaint::Syntax),
        },
    };
    let mut found = Vec::new();
    for spec in COMMANDS.iter().copied().flatten() {
        for spec in std::iter::once(spec).chain(spec.children()) {
            if fits(spec)? {
                found.push(spec.name);
            }
        }
    }
    reply.array(found.len());
    for name in found {
        reply.bulk(name.as_bytes());
    }
    Ok(())
}

/// `X HELP`
pub(crate) fn help(_: &mut State, args: Args<'_>, _: &mut Context<'_>, reply: &mut Reply<'_>) -> Answer {
    let Some(container) = table::by_name(args.at(0)) else { return Err(Complaint::Syntax) };
    let name = container.name.to_ascii_uppercase();
    let mut lines = vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for child in container.children() {
        let syntax = if child.about.syntax.is_empty() { "" } else { " " };
        lines.push(format!("{}{syntax}{}", child.leaf().to_ascii_uppercase(), child.about.syntax));
        lines.push(format!("    {}", child.about.summary));
    }
    reply.array(lines.len());
    for line in lines {
        reply.simple(&line);
    }
    Ok(())
}

/// `docs/redis.md`: a word before, and the table of commands.
pub fn page() -> String {
    let mut page = include_str!("page.md").to_owned();
    // Chapters in the order of the table, then those of which nothing is here.
    let mut groups: Vec<Group> = Vec::new();
    let here = COMMANDS.iter().copied().flatten().map(|spec| spec.group);
    for group in here.chain(ABSENT.iter().map(|absent| absent.group)) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for group in groups {
        page.push_str(&format!("\n### {}\n\n| Command | Arguments | State |\n|---|---|---|\n", title(group)));
        let mut rows: BTreeMap<&str, String> = BTreeMap::new();
        for spec in COMMANDS.iter().copied().flatten().filter(|spec| spec.group == group) {
            match spec.children() {
                [] => drop(rows.insert(spec.name, row(spec))),
                children => rows.extend(children.iter().map(|child| (child.name, row(child)))),
            }
        }
        for absent in ABSENT.iter().filter(|absent| absent.group == group) {
            rows.insert(
                absent.name,
                format!("| {} |  | absent: {} |\n", shown(absent.name), cell(absent.why)),
            );
        }
        rows.into_values().for_each(|row| page.push_str(&row));
    }
    page
}

fn row(spec: &Spec) -> String {
    let syntax = match spec.about.syntax {
        "" => String::new(),
        syntax => format!("`{}`", cell(syntax)),
    };
    let state = match spec.differs {
        "" => "supported".to_owned(),
        how => format!("differs: {}", cell(how)),
    };
    format!("| {} | {syntax} | {state} |\n", shown(spec.name))
}

/// A pipe would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn shown(name: &str) -> String {
    name.to_ascii_uppercase().replace('|', " ")
}

fn title(group: Group) -> &'static str {
    match group {
        Group::Connection => "Connection",
        Group::Server => "Server",
        Group::Cluster => "Cluster",
        Group::Transactions => "Transactions",
        Group::PubSub => "Publish and subscribe",
        Group::Scripting => "Scripts",
        Group::Generic => "Keys",
        Group::String => "Strings",
        Group::Bitmap => "Bitmaps",
        Group::Hash => "Hashes",
        Group::List => "Lists",
        Group::Set => "Sets",
        Group::SortedSet => "Sorted sets",
        Group::Stream => "Streams",
        Group::HyperLogLog => "HyperLogLog",
        Group::Geo => "Places",
    }
}
