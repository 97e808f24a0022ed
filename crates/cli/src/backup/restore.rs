//! `isochrone backup restore`: a file is checked whole, and then put back key by key, many under way.

use super::arguments::Restore;
use super::format::{Entry, InParts, Next, NextPart, Reader};
use super::parts::{self, Part, Type};
use super::place::{self, Place, refused};
use super::putting::{Putting, Stop, WINDOW};
use super::verify::{blamed, faulty, pass, to_the_end};
use super::wire::{Connection, Head, Reply};
use super::{PAUSE, Patience, passes, shown, unreadable};
use crate::arguments::Format;
use crate::output::{bar, print_json, print_text, say};
use crate::{Status, Usage};
use anyhow::{anyhow, bail};
use isochrone_core::command::Content;
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write as _};
use std::path::Path;

/// What a user needs.
const RIGHTS: &str = "+info +select +config|get +restore and all keys (~*)";
/// Keys under way.
const KEYS: usize = 256;
/// Bytes under way; a longer value is alone.
const BYTES: u64 = 8 << 20;
/// Once so many were refused for now, they are asked again before others.
const REFUSED: usize = 1_000;
/// So many keys are named that could not be restored.
const NAMED: usize = 10;
/// What the longest string and command of a node are where it does not tell, bytes: the defaults.
const LIMITS: Limits = Limits { bulk: 64 << 20, command: 64 << 20, elements: None };
/// Of a command, beside key and value.
const WORDS: u64 = 128;
/// How the errors begin of a value that is more than a node takes in one command.
const TOO_MUCH: [&str; 2] = [
    "ERR the value takes more bytes than a command may",
    "ERR the value has more elements than a command may",
];
/// A value is begun so often, where nobody knows what was executed.
const TRIES: u32 = 3;
/// The file is read in pieces of so many bytes.
const PIECE: usize = 1 << 20;

/// A key that could not be restored.
#[derive(PartialEq, Eq, Debug, Serialize)]
pub(super) struct Failure {
    /// As it is shown.
    key: String,
    /// Why not.
    error: String,
}

/// What came of it, in keys.
#[derive(PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct Tally {
    /// As the file has them.
    restored: u64,
    /// Left out, since their deadline has passed.
    expired: u64,
    /// Left as they were, since they are there already.
    exist: u64,
    /// Not restored, or nobody knows.
    failed: u64,
    /// The first of those that exist or failed.
    first: Vec<Failure>,
}

/// What `--format json` prints.
#[derive(Serialize)]
struct Report<'a> {
    file: String,
    cluster: &'a str,
    keyspace: &'a str,
    #[serde(flatten)]
    tally: &'a Tally,
}

/// Runs the verb.
pub(super) fn run(arguments: Restore) -> anyhow::Result<Status> {
    let Restore { file: path, node, keyspace, replace, cluster, format } = arguments;
    if replace && cluster.is_none() {
        bail!(Usage(
            "--replace overwrites what is there\n  name the cluster that is meant, as `isochrone status` shows it: --cluster NAME".to_owned()
        ));
    }
    let file = open(&path)?;
    let (mut reader, header) = Reader::open(file).map_err(|fault| faulty(&path, fault))?;
    let keyspace = keyspace.as_deref().unwrap_or(&header.keyspace);
    let (mut connection, place) = place::open(&node, Some(keyspace), RIGHTS)?;
    if let Some(meant) = cluster.filter(|meant| *meant != place.cluster) {
        bail!(Usage(format!(
            "--cluster {meant}: at {} is a node of cluster {}\n  name a node of the cluster that is meant; nothing was written",
            node.endpoint, place.cluster
        )));
    }
    let limits = limits(&mut connection)?;
    to_the_end(&mut reader, &path)?;

    let (mut reader, _) = Reader::open(open(&path)?).map_err(|fault| faulty(&path, fault))?;
    let restoring = Restoring::new(connection, &place, &path, open(&path)?.into_inner(), limits, replace);
    let tally = restoring.all(&mut reader)?;
    match format {
        Format::Json => print_json(&Report {
            file: path.display().to_string(),
            cluster: &place.cluster,
            keyspace: &place.keyspace,
            tally: &tally,
        })?,
        Format::Text => {
            for Failure { key, error } in &tally.first {
                say(format_args!("{key}: {error}"));
            }
            print_text(&text(&path, &place, &tally))?;
        }
    }
    Ok(if tally.exist + tally.failed == 0 { Status::Held } else { Status::Failed })
}

/// What came of it, for people.
fn text(path: &Path, place: &Place, tally: &Tally) -> String {
    let Tally { restored, expired, exist, failed, first } = tally;
    let mut text = format!(
        "{}: {restored} keys restored into keyspace {} of cluster {}\n",
        path.display(),
        place.keyspace,
        place.cluster
    );
    if *expired > 0 {
        text += &format!("  {expired} left out: their deadline has passed\n");
    }
    if *exist > 0 {
        text += &format!("  {exist} left as they are: they exist; --replace overwrites them\n");
    }
    if *failed > 0 {
        text += &format!("  {failed} failed; run it again with --replace when that has been put right\n");
    }
    if exist + failed > first.len() as u64 {
        text += &format!("  the first {} are named above\n", first.len());
    }
    text
}

/// Opens a file that is read more than once.
fn open(path: &Path) -> anyhow::Result<BufReader<File>> {
    let file = File::open(path).map_err(|cause| unreadable(path, &cause))?;
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        bail!(Usage(format!(
            "{}: this is no file; it is checked first and then read again\n  name a file",
            path.display()
        )));
    }
    Ok(BufReader::with_capacity(PIECE, file))
}

/// What a node takes at most.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    /// Bytes of an argument; a longer one ends the connection.
    pub(super) bulk: u64,
    /// Bytes of a command; a longer one does as well.
    pub(super) command: u64,
    /// Words of a command; more do as well. Where it is not told it may be as few as 16.
    pub(super) elements: Option<u64>,
}

/// Asks for the limits; whoever may not know them goes by the defaults.
fn limits(connection: &mut Connection) -> anyhow::Result<Limits> {
    let (bulk, command) = (&b"proto-max-bulk-len"[..], &b"client-query-buffer-limit"[..]);
    let elements = &b"elements"[..];
    let told = match connection.ask(&[b"CONFIG", b"GET", bulk, command, elements])? {
        Reply::List(told) => told,
        _ => return Ok(LIMITS),
    };
    let find = |name: &[u8]| -> Option<u64> {
        let at = told.iter().position(|word| matches!(word, Reply::Bulk(word) if word == name))?;
        let Some(Reply::Bulk(value)) = told.get(at + 1) else { return None };
        std::str::from_utf8(value).ok()?.parse().ok()
    };
    Ok(Limits {
        bulk: find(bulk).unwrap_or(LIMITS.bulk),
        command: find(command).unwrap_or(LIMITS.command),
        elements: find(elements),
    })
}

/// A key that is not answered yet.
struct Sent {
    /// Where its record begins.
    begin: u64,
    key: Vec<u8>,
    bytes: u64,
}

/// The second time that a file is read.
pub(super) struct Restoring<'a> {
    connection: Connection,
    place: &'a Place,
    path: &'a Path,
    /// Of the same file, for what has to be sent again.
    again: File,
    limits: Limits,
    replace: bool,
    under_way: VecDeque<Sent>,
    bytes: u64,
    /// Records that were refused for now, and why the last one was.
    refused: Vec<u64>,
    why: String,
    /// Records that are put back in parts, one after the other, behind all others.
    in_parts: Vec<u64>,
    patience: Patience,
    tally: Tally,
}

/// Where the parts of a value come from.
enum Source {
    /// A value that is here.
    Value(Content),
    /// The record that begins there.
    Record(u64),
}

/// The record that begins there in this file.
fn at(file: &File, path: &Path, begin: u64) -> anyhow::Result<(Reader<BufReader<File>>, Next)> {
    let mut file = file.try_clone().map_err(|cause| unreadable(path, &cause))?;
    file.seek(SeekFrom::Start(begin)).map_err(|cause| unreadable(path, &cause))?;
    let mut reader = Reader::at(BufReader::new(file), begin);
    let next = reader.entry().map_err(|fault| faulty(path, fault))?;
    Ok((reader, next))
}

/// Passes on all parts of a value; of a record that nobody wrote meanwhile, how many elements it has.
fn each_part(
    source: &Source,
    again: &File,
    path: &Path,
    mut each: impl FnMut(Part) -> Result<(), Stop>,
) -> Result<Option<u64>, Stop> {
    let begin = match source {
        Source::Value(content) => return parts::of(content, &mut each).map(|()| None),
        Source::Record(begin) => *begin,
    };
    let (mut reader, _) = at(again, path, begin)?;
    loop {
        match reader.part().map_err(|fault| faulty(path, fault))? {
            NextPart::Part(part) => each(part)?,
            NextPart::End(elements, whole) => return Ok(whole.then_some(elements)),
        }
    }
}

impl<'a> Restoring<'a> {
    /// Nothing is written yet.
    pub(super) fn new(
        connection: Connection,
        place: &'a Place,
        path: &'a Path,
        again: File,
        limits: Limits,
        replace: bool,
    ) -> Restoring<'a> {
        Restoring {
            connection,
            place,
            path,
            again,
            limits,
            replace,
            under_way: VecDeque::new(),
            bytes: 0,
            refused: Vec::new(),
            why: String::new(),
            in_parts: Vec::new(),
            patience: Patience::new(),
            tally: Tally::default(),
        }
    }

    /// Puts all records back that this has still to read.
    pub(super) fn all<R: Read>(mut self, reader: &mut Reader<R>) -> anyhow::Result<Tally> {
        let length = self.path.metadata().map_or(0, |about| about.len());
        let progress = bar("restoring", length);
        loop {
            match reader.entry().map_err(|fault| faulty(self.path, fault))? {
                Next::Entry(entry) => self.one(reader, entry)?,
                Next::InParts(InParts { begin, .. }) => {
                    pass(reader, self.path)?;
                    self.in_parts.push(begin);
                }
                Next::End(_) => break,
            }
            progress.set_position(reader.offset());
            if self.refused.len() >= REFUSED {
                self.hear_all()?;
                self.once_more()?;
            }
        }
        self.hear_all()?;
        self.once_more()?;
        for begin in std::mem::take(&mut self.in_parts) {
            self.whole(begin)?;
        }
        progress.finish_and_clear();
        Ok(self.tally)
    }

    /// What was refused for now is sent until it is taken or refused for good.
    fn once_more(&mut self) -> anyhow::Result<()> {
        self.patience.renew();
        while !self.refused.is_empty() {
            if !self.patience.wait(self.connection.at(), &self.why) {
                let Tally { restored, .. } = self.tally;
                bail!(
                    "{}: {}\n  {restored} keys are restored so far; run it again with --replace when that has passed",
                    self.connection.at(),
                    self.why
                );
            }
            for begin in std::mem::take(&mut self.refused) {
                match self.at(begin)? {
                    (mut reader, Next::Entry(entry)) => self.one(&mut reader, entry)?,
                    _ => return Err(self.is_another()),
                }
            }
            self.hear_all()?;
        }
        Ok(())
    }

    /// The record that begins there, of the same file.
    fn at(&self, begin: u64) -> anyhow::Result<(Reader<BufReader<File>>, Next)> {
        at(&self.again, self.path, begin)
    }

    fn is_another(&self) -> anyhow::Error {
        anyhow!("{}: it has changed while it was read", self.path.display())
    }

    /// Puts back in parts what no command takes whole; nothing else is under way.
    fn whole(&mut self, begin: u64) -> anyhow::Result<()> {
        let (key, deadline, kind, source) = match self.at(begin)? {
            (mut reader, Next::Entry(entry)) => {
                let mut value = Vec::new();
                let read = reader.value(&entry, |piece| {
                    value.extend_from_slice(piece);
                    Ok(())
                });
                read.map_err(|error| blamed(self.path, error))?;
                let Some(content) = isochrone_node::redis::undumped(&value) else {
                    self.fail(
                        &entry.key,
                        "its value is in a form that this program does not read".to_owned(),
                    );
                    return Ok(());
                };
                let (kind, elements) = Type::of(&content);
                (entry.key, entry.deadline, (kind, Some(elements)), Source::Value(content))
            }
            (_, Next::InParts(InParts { key, deadline, kind, .. })) => {
                (key, deadline, (kind, None), Source::Record(begin))
            }
            (_, Next::End(_)) => return Err(self.is_another()),
        };
        if deadline.is_some_and(|deadline| deadline <= self.place.now_ms()) {
            self.tally.expired += 1;
            return Ok(());
        }
        let mut window = WINDOW;
        for left in (0..TRIES).rev() {
            match self.put(&key, deadline, kind, &source, window) {
                Ok(()) => self.tally.restored += 1,
                Err(Stop::Exists) => {
                    self.tally.exist += 1;
                    self.name(&key, "it exists".to_owned());
                }
                // It has passed meanwhile, and may have taken what was written.
                Err(Stop::Again(_) | Stop::Refused(_))
                    if deadline.is_some_and(|deadline| deadline <= self.place.now_ms()) =>
                {
                    self.tally.expired += 1;
                }
                Err(Stop::Again(_)) if left > 0 => {
                    // Then step by step.
                    window = 1;
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(Stop::Again(text) | Stop::Refused(text)) => self.fail(&key, text),
                Err(Stop::Broken(error)) => {
                    let Tally { restored, .. } = self.tally;
                    bail!(
                        "{error:#}\n  {restored} keys are restored for certain; run it again with --replace"
                    );
                }
            }
            break;
        }
        Ok(())
    }

    /// Puts a value back, or nothing of it; with so many transactions under way.
    fn put(
        &mut self,
        key: &[u8],
        deadline: Option<u64>,
        (kind, elements): (&Type, Option<u64>),
        source: &Source,
        window: usize,
    ) -> Result<(), Stop> {
        let Restoring { connection, path, again, limits, replace, .. } = self;
        // Before anything is written for it.
        each_part(source, again, path, |part| Putting::check(part, key, *limits))?;
        let mut putting = Putting::new(connection, key, *limits, *replace, window);
        let told = each_part(source, again, path, |part| putting.take(part));
        // Where it was written while it was saved its elements are not counted on.
        let outcome = told.and_then(|counted| putting.finish(kind, counted.or(elements), deadline));
        if matches!(outcome, Err(Stop::Exists | Stop::Refused(_) | Stop::Again(_))) {
            putting.undo()?;
        }
        outcome
    }

    /// Sends a record, or leaves it out.
    fn one<R: Read>(&mut self, reader: &mut Reader<R>, entry: Entry) -> anyhow::Result<()> {
        let Limits { bulk, command, .. } = self.limits;
        let length = entry.key.len() as u64;
        let bytes = length.saturating_add(entry.value).saturating_add(WORDS);
        let long = entry.value > bulk || bytes > command;
        let skipped = if entry.deadline.is_some_and(|deadline| deadline <= self.place.now_ms()) {
            self.tally.expired += 1;
            true
        } else if length > bulk {
            let error = format!("it has {length} bytes, and the node takes {bulk}; raise `bulk` in [limits]");
            self.fail(&entry.key, error);
            true
        } else if long {
            self.in_parts.push(entry.begin);
            true
        } else {
            false
        };
        if skipped {
            return reader.value(&entry, |_| Ok(())).map_err(|error| blamed(self.path, error));
        }
        while !self.under_way.is_empty() && (self.under_way.len() >= KEYS || self.bytes + bytes > BYTES) {
            self.hear()?;
        }
        let words = if self.replace { 6 } else { 5 };
        let deadline = entry.deadline.unwrap_or(0).to_string();
        let mut head = format!("*{words}\r\n$7\r\nRESTORE\r\n${length}\r\n").into_bytes();
        head.extend_from_slice(&entry.key);
        // Writing to a vector cannot fail.
        let _ = write!(head, "\r\n${}\r\n{deadline}\r\n${}\r\n", deadline.len(), entry.value);
        let connection = &mut self.connection;
        connection.say(&head)?;
        let sent = reader.value(&entry, |piece| connection.say(piece));
        sent.map_err(|error| blamed(self.path, error))?;
        connection.say(b"\r\n$6\r\nABSTTL\r\n")?;
        if self.replace {
            connection.say(b"$7\r\nREPLACE\r\n")?;
        }
        self.bytes += bytes;
        self.under_way.push_back(Sent { begin: entry.begin, key: entry.key, bytes });
        Ok(())
    }

    fn hear_all(&mut self) -> anyhow::Result<()> {
        while !self.under_way.is_empty() {
            self.hear()?;
        }
        Ok(())
    }

    /// Hears what became of the oldest key under way.
    fn hear(&mut self) -> anyhow::Result<()> {
        let Some(Sent { begin, key, bytes }) = self.under_way.pop_front() else { return Ok(()) };
        self.bytes -= bytes;
        self.connection.flush()?;
        let head = self.connection.head().map_err(|error| {
            let Tally { restored, .. } = self.tally;
            anyhow!("{error:#}\n  {restored} keys are restored for certain; run it again with --replace")
        })?;
        if let Head::Error(text) = &head
            && (passes(text) || self.replace && text.starts_with("UNKNOWN "))
        {
            self.refused.push(begin);
            self.why.clone_from(text);
            return Ok(());
        }
        self.patience.renew();
        match head {
            Head::Text(_) => self.tally.restored += 1,
            Head::Error(text) if text.starts_with("BUSYKEY") => {
                self.tally.exist += 1;
                self.name(&key, "it exists".to_owned());
            }
            // Of the command itself, and so of all keys.
            Head::Error(text) if text.starts_with("NOAUTH") || text.contains("permissions to run the") => {
                return Err(refused(self.connection.at(), "RESTORE", &text, RIGHTS));
            }
            Head::Error(text) if TOO_MUCH.iter().any(|much| text.starts_with(much)) => {
                self.in_parts.push(begin)
            }
            Head::Error(text) => self.fail(&key, text),
            _ => return Err(self.connection.strange()),
        }
        Ok(())
    }

    fn fail(&mut self, key: &[u8], error: String) {
        self.tally.failed += 1;
        self.name(key, error);
    }

    fn name(&mut self, key: &[u8], error: String) {
        if self.tally.first.len() < NAMED {
            self.tally.first.push(Failure { key: shown(key), error });
        }
    }
}

#[cfg(test)]
impl Tally {
    /// The counts, in their order.
    pub(super) fn counts(&self) -> [u64; 4] {
        [self.restored, self.expired, self.exist, self.failed]
    }

    /// The keys that are named, and why.
    pub(super) fn named(&self) -> Vec<(&str, &str)> {
        self.first.iter().map(|failure| (failure.key.as_str(), failure.error.as_str())).collect()
    }
}
