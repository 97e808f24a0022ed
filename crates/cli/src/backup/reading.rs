//! A value that is longer than a node tells at once, read in parts. Whether somebody has written it meanwhile is told by `WATCH` and
//! an `EXEC` that does nothing.

use super::format::Writer;
use super::parts::{self, Part, Type, What, text_of};
use super::place::{Place, refused};
use super::wire::{Connection, Reply};
use super::{Patience, passes_by, shown};
use crate::output::unwritable;
use std::fmt;
use std::io::Write;
use std::path::Path;

/// What a user needs.
const RIGHTS: &str =
    "+@read +watch +multi +exec and all keys (~*), as a value is longer than a node tells at once";
/// How the error begins of what is longer than a node tells.
const TOO_LONG: &str = "ERR the reply would be longer than ";
/// Elements that are asked for at once: at first, and at most.
const FIRST: u64 = 16;
const MOST: u64 = 10_000;
/// An answer is to have about so many bytes.
const BYTES: u64 = 1 << 20;

/// Whether a node says of a value that it is longer than it tells at once.
pub(super) fn is_too_long(error: &str) -> bool {
    error.starts_with(TOO_LONG)
}

/// Somebody has taken away what was to be read: the rest of the key, or of one of its groups.
#[derive(PartialEq, Eq, Debug)]
enum Went {
    Key,
    Group,
}

impl fmt::Display for Went {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it has gone while it was read")
    }
}

impl std::error::Error for Went {}

impl Went {
    /// What an error says has gone.
    fn told(error: &str) -> Option<Went> {
        if error.starts_with("NOGROUP") {
            return Some(Went::Group);
        }
        (error.starts_with("WRONGTYPE") || error.starts_with("ERR no such key")).then_some(Went::Key)
    }
}

/// What became of a key.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// Its value is as of one moment.
    Whole,
    /// It was written while it was read.
    Changed,
    /// It has gone.
    Gone,
}

/// Writes a key whose value is read in parts.
pub(super) fn read<W: Write>(
    connection: &mut Connection,
    writer: &mut Writer<W>,
    place: &Place,
    path: &Path,
    key: &[u8],
) -> anyhow::Result<Read> {
    let mut reading =
        Reading { connection, writer, place, path, key, most: FIRST, elements: 0, lacks: false };
    reading.ask(&[b"WATCH", key])?;
    let deadline = match reading.number(&[b"PEXPIRETIME", key])? {
        -1 => None,
        at => u64::try_from(at).ok(),
    };
    let Reply::Text(name) = reading.ask(&[b"TYPE", key])? else { return Err(reading.connection.strange()) };
    if name == "none" {
        reading.unchanged()?;
        return Ok(Read::Gone);
    }
    let kind = Type::named(&name).ok_or_else(|| reading.connection.strange())?;
    let length = match reading.number(&[kind.count.as_bytes(), key]) {
        // It is of another type by now: nothing of it is read.
        Err(error) if error.is::<Went>() => {
            reading.lacks = true;
            0
        }
        length => length?,
    };
    let length = u64::try_from(length).map_err(|_| reading.connection.strange())?;
    let begun = reading.writer.begin_parts(key, deadline, kind);
    begun.map_err(|cause| unwritable(path, &cause))?;
    let read = match kind.name {
        "string" => reading.text(length),
        "list" => reading.ranked(b"LRANGE", What::List, length),
        "zset" => reading.ranked(b"ZRANGE", What::Sorted, length),
        "set" => reading.scanned(b"SSCAN", What::Set),
        "hash" => reading.scanned(b"HSCAN", What::Hash),
        _ => reading.stream(),
    };
    // What was read until then is kept.
    let went = match read {
        Err(error) if error.is::<Went>() => true,
        read => read.map(|()| false)?,
    };
    let (unchanged, elements) = (reading.unchanged()?, reading.elements);
    let whole = unchanged && elements == length && !went && !reading.lacks;
    reading.writer.end_parts(elements, whole).map_err(|cause| unwritable(path, &cause))?;
    Ok(if whole { Read::Whole } else { Read::Changed })
}

struct Reading<'a, W> {
    connection: &'a mut Connection,
    writer: &'a mut Writer<W>,
    place: &'a Place,
    path: &'a Path,
    key: &'a [u8],
    /// Elements that are asked for at once.
    most: u64,
    /// Elements so far.
    elements: u64,
    /// A group, or the key itself, went while it was read.
    lacks: bool,
}

impl<W: Write> Reading<'_, W> {
    /// Asks what only reads.
    fn ask(&mut self, words: &[&[u8]]) -> anyhow::Result<Reply> {
        let mut patience = Patience::new();
        loop {
            match self.connection.ask(words)? {
                Reply::Error(text) if passes_by(&text) && patience.wait(self.connection.at(), &text) => {}
                Reply::Error(text) => return Err(self.refused(words, &text)),
                reply => return Ok(reply),
            }
        }
    }

    fn refused(&self, words: &[&[u8]], text: &str) -> anyhow::Error {
        if let Some(went) = Went::told(text) {
            return went.into();
        }
        let name = String::from_utf8_lossy(words.first().copied().unwrap_or_default());
        refused(self.connection.at(), &format!("{name} {}", shown(self.key)), text, RIGHTS)
    }

    fn number(&mut self, words: &[&[u8]]) -> anyhow::Result<i64> {
        if let Reply::Number(number) = self.ask(words)? { Ok(number) } else { Err(self.connection.strange()) }
    }

    fn list(&mut self, words: &[&[u8]]) -> anyhow::Result<Vec<Reply>> {
        if let Reply::List(list) = self.ask(words)? { Ok(list) } else { Err(self.connection.strange()) }
    }

    /// Asks for as many elements as are told at once.
    fn page(&mut self, words: impl Fn(&[u8], u64) -> Vec<Vec<u8>>) -> anyhow::Result<Vec<Reply>> {
        let mut patience = Patience::new();
        loop {
            let words = words(self.key, self.most);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            match self.connection.ask(&words)? {
                Reply::List(list) => return Ok(list),
                Reply::Error(text) if is_too_long(&text) && self.most > 1 => {
                    self.most = (self.most / 4).max(1);
                }
                Reply::Error(text) if passes_by(&text) && patience.wait(self.connection.at(), &text) => {}
                Reply::Error(text) => return Err(self.refused(&words, &text)),
                _ => return Err(self.connection.strange()),
            }
        }
    }

    /// So many elements had so many bytes: as many more are asked for as have about what an answer is to have.
    fn adapt(&mut self, elements: u64, bytes: u64) {
        self.elements += elements;
        if let Some(average) = bytes.checked_div(elements) {
            self.most = (BYTES / (average + 1)).clamp(1, MOST);
        }
    }

    /// Writes elements of so many words each.
    fn write(&mut self, what: What, element: usize, words: Vec<Vec<u8>>) -> anyhow::Result<()> {
        let bytes = words.iter().map(|word| word.len() as u64).sum();
        self.adapt((words.len() / element) as u64, bytes);
        parts::cut(what, element, words, &mut |part| put(self.writer, self.path, &part))
    }

    fn put(&mut self, what: What, words: Vec<Vec<u8>>) -> anyhow::Result<()> {
        put(self.writer, self.path, &Part { what, words })
    }

    fn text(&mut self, length: u64) -> anyhow::Result<()> {
        let key = self.key;
        while self.elements < length {
            let (from, to) = (text_of(&self.elements), text_of(&(self.elements + BYTES - 1)));
            let Reply::Bulk(bytes) = self.ask(&[b"GETRANGE", key, &from, &to])? else {
                return Err(self.connection.strange());
            };
            if bytes.is_empty() {
                break;
            }
            self.elements += bytes.len() as u64;
            self.put(What::Text, vec![from, bytes])?;
        }
        Ok(())
    }

    /// Of what has places: elements, or members with their scores.
    fn ranked(&mut self, name: &[u8], what: What, length: u64) -> anyhow::Result<()> {
        while self.elements < length {
            let from = self.elements;
            let found = self.page(|key, most| {
                let ends = [text_of(&from), text_of(&(from + most - 1))];
                let scores = (what == What::Sorted).then(|| b"WITHSCORES".to_vec());
                [name.to_vec(), key.to_vec()].into_iter().chain(ends).chain(scores).collect()
            })?;
            let mut words = self.bytes(found)?;
            if words.is_empty() {
                break;
            }
            if what == What::Sorted {
                // Told are members, each before its score.
                words.chunks_exact_mut(2).for_each(|pair| pair.reverse());
            }
            self.write(what, if what == What::Sorted { 2 } else { 1 }, words)?;
        }
        Ok(())
    }

    /// Of what has none: each element that stays is told once.
    fn scanned(&mut self, name: &[u8], what: What) -> anyhow::Result<()> {
        let mut cursor = b"0".to_vec();
        loop {
            let told = self.page(|key, most| {
                vec![name.to_vec(), key.to_vec(), cursor.clone(), b"COUNT".to_vec(), text_of(&most)]
            })?;
            let mut told = told.into_iter();
            let (Some(Reply::Bulk(next)), Some(Reply::List(found))) = (told.next(), told.next()) else {
                return Err(self.connection.strange());
            };
            let words = self.bytes(found)?;
            self.write(what, if what == What::Hash { 2 } else { 1 }, words)?;
            if next == b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Entries, groups with their consumers and what is pending, and what the stream remembers.
    fn stream(&mut self) -> anyhow::Result<()> {
        let key = self.key;
        let about = Fields(self.list(&[b"XINFO", b"STREAM", key])?);
        let remembered = (
            about.bytes(b"last-generated-id"),
            about.number(b"entries-added"),
            about.bytes(b"max-deleted-entry-id"),
        );
        let (Some(last), Some(added), Some(deleted)) = remembered else {
            return Err(self.connection.strange());
        };
        // No further: what is added meanwhile could be without an end.
        let mut from = b"-".to_vec();
        loop {
            let found = self.page(|key, most| {
                vec![
                    b"XRANGE".to_vec(),
                    key.to_vec(),
                    from.clone(),
                    last.clone(),
                    b"COUNT".to_vec(),
                    text_of(&most),
                ]
            })?;
            if found.is_empty() {
                break;
            }
            let (mut bytes, count) = (0, found.len() as u64);
            for entry in found {
                let Reply::List(entry) = entry else { return Err(self.connection.strange()) };
                let mut entry = entry.into_iter();
                let (Some(Reply::Bulk(id)), Some(Reply::List(fields))) = (entry.next(), entry.next()) else {
                    return Err(self.connection.strange());
                };
                from = [b"(".as_slice(), &id].concat();
                let part = Part { what: What::Entry, words: [vec![id], self.bytes(fields)?].concat() };
                bytes += part.bytes();
                put(self.writer, self.path, &part)?;
            }
            self.adapt(count, bytes);
        }
        for group in self.list(&[b"XINFO", b"GROUPS", key])? {
            match self.group(group) {
                Err(error) if error.downcast_ref::<Went>() == Some(&Went::Group) => self.lacks = true,
                read => read?,
            }
        }
        self.put(What::Last, vec![last, text_of(&added), deleted])
    }

    fn group(&mut self, group: Reply) -> anyhow::Result<()> {
        let key = self.key;
        let Reply::List(group) = group else { return Err(self.connection.strange()) };
        let group = Fields(group);
        let (Some(name), Some(last)) = (group.bytes(b"name"), group.bytes(b"last-delivered-id")) else {
            return Err(self.connection.strange());
        };
        let read = group.number(b"entries-read").map(|read| text_of(&read));
        self.put(What::Group, [name.clone(), last].into_iter().chain(read).collect())?;
        for consumer in self.list(&[b"XINFO", b"CONSUMERS", key, &name])? {
            let Reply::List(consumer) = consumer else { return Err(self.connection.strange()) };
            let Some(consumer) = Fields(consumer).bytes(b"name") else {
                return Err(self.connection.strange());
            };
            self.put(What::Consumer, vec![name.clone(), consumer])?;
        }
        let (mut from, most) = (b"-".to_vec(), text_of(&MOST));
        loop {
            let now = self.place.now_ms();
            let found = self.list(&[b"XPENDING", key, &name, &from, b"+", &most])?;
            if found.is_empty() {
                return Ok(());
            }
            for pending in found {
                let Reply::List(pending) = pending else { return Err(self.connection.strange()) };
                let [Reply::Bulk(id), Reply::Bulk(consumer), Reply::Number(idle), Reply::Number(count)] =
                    pending.as_slice()
                else {
                    return Err(self.connection.strange());
                };
                from = [b"(".as_slice(), id].concat();
                let delivered = now.saturating_sub(u64::try_from(*idle).unwrap_or(0));
                let words =
                    vec![name.clone(), consumer.clone(), id.clone(), text_of(&delivered), text_of(count)];
                self.put(What::Pending, words)?;
            }
        }
    }

    fn bytes(&self, replies: Vec<Reply>) -> anyhow::Result<Vec<Vec<u8>>> {
        let bytes = |reply| if let Reply::Bulk(bytes) = reply { Some(bytes) } else { None };
        let all: Option<Vec<_>> = replies.into_iter().map(bytes).collect();
        all.ok_or_else(|| self.connection.strange())
    }

    /// Whether nobody has written the key since it is watched, which it is no longer.
    fn unchanged(&mut self) -> anyhow::Result<bool> {
        self.connection.push(&[b"MULTI"]);
        self.connection.push(&[b"PEXPIRETIME", self.key]);
        self.connection.push(&[b"EXEC"]);
        self.connection.flush()?;
        for name in [b"MULTI".as_slice(), b"PEXPIRETIME"] {
            match self.connection.answer()? {
                Reply::Text(_) => {}
                Reply::Error(text) => return Err(self.refused(&[name], &text)),
                _ => return Err(self.connection.strange()),
            }
        }
        match self.connection.answer()? {
            Reply::List(_) => Ok(true),
            Reply::Nothing => Ok(false),
            // Nobody knows.
            Reply::Error(text) if passes_by(&text) => Ok(false),
            Reply::Error(text) => Err(self.refused(&[b"EXEC"], &text)),
            _ => Err(self.connection.strange()),
        }
    }
}

fn put<W: Write>(writer: &mut Writer<W>, path: &Path, part: &Part) -> anyhow::Result<()> {
    writer.part(part).map_err(|cause| unwritable(path, &cause).into())
}

/// Names, each before its value.
struct Fields(Vec<Reply>);

impl Fields {
    fn find(&self, name: &[u8]) -> Option<&Reply> {
        let found =
            self.0.chunks_exact(2).find(|pair| matches!(pair, [Reply::Bulk(known), _] if known == name));
        found.and_then(<[Reply]>::last)
    }

    fn bytes(&self, name: &[u8]) -> Option<Vec<u8>> {
        if let Some(Reply::Bulk(bytes)) = self.find(name) { Some(bytes.clone()) } else { None }
    }

    fn number(&self, name: &[u8]) -> Option<i64> {
        if let Some(Reply::Number(number)) = self.find(name) { Some(*number) } else { None }
    }
}
