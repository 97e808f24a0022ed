//! The parameters of a keyspace: kept with their lines for the protocol that owns them.

use std::sync::Arc;

use toml::de::DeValue;

use super::Deployment;
use super::draft::{Section, as_bytes, as_integer, as_span, as_text, integer_of};
use super::error::{ConfigErrors, Mistakes};
use super::values::{one_of, suggest};
use crate::id::NodeId;
use crate::time::Span;
use crate::{FastQuorums, ReplicaSet, SizeError};

/// Copies beside the master of `curp` where a keyspace does not say how many.
pub const CURP_COPIES: usize = 2;
/// The most that it may say: seven servers are the most that there are.
pub const CURP_COPIES_MAX: usize = 6;

/// The `parameters = { ... }` of a keyspace, not yet understood.
///
/// A protocol reads them by [`Parameters::read`], and what it did not ask for is refused.
#[derive(Clone, Debug)]
pub struct Parameters {
    file: Arc<str>,
    /// The keyspace, for messages.
    keyspace: Arc<str>,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    /// Counted from 1; 0 where the command line says it.
    line: u32,
    key: String,
    value: Value,
    /// As it is written.
    written: String,
}

/// A value cut loose from the text it was read from.
#[derive(Clone, Debug)]
enum Value {
    Boolean(bool),
    Integer(i128),
    Text(String),
    /// A float, a date, a list, a table: no parameter has such a value.
    Other,
}

impl Entry {
    /// Where a command line says it, as a person would find it there.
    fn option(&self) -> Option<String> {
        (self.line == 0).then(|| format!("--set {}={}", self.key, self.written))
    }
}

impl Value {
    fn of(value: &DeValue<'_>) -> Self {
        match (value.as_bool(), integer_of(value), value.as_str()) {
            (Some(boolean), ..) => Self::Boolean(boolean),
            (_, Some(integer), _) => Self::Integer(integer),
            (_, _, Some(text)) => Self::Text(text.to_owned()),
            _ => Self::Other,
        }
    }

    fn boolean(&self) -> Option<bool> {
        if let Self::Boolean(value) = self { Some(*value) } else { None }
    }

    fn integer(&self) -> Option<i128> {
        if let Self::Integer(value) = self { Some(*value) } else { None }
    }

    fn text(&self) -> Option<&str> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }
}

impl Parameters {
    /// No parameters: every one takes its default.
    pub fn none() -> Self {
        Self { file: Arc::from("parameters"), keyspace: Arc::from("main"), entries: Vec::new() }
    }

    pub(super) fn from_section(section: Option<&Section<'_>>, file: &Arc<str>, keyspace: &str) -> Self {
        let entries = section.map(|section| {
            let entries = section.entries().map(|(line, key, value, written)| Entry {
                line,
                key: key.to_owned(),
                value: Value::of(value),
                written,
            });
            entries.collect()
        });
        Self { file: file.clone(), keyspace: Arc::from(keyspace), entries: entries.unwrap_or_default() }
    }

    /// Forgets all that were given: each takes its default.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Sets one, in the place of what the file says.
    pub(super) fn set(&mut self, key: &str, written: &str) -> Result<(), ConfigErrors> {
        let named = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if key.is_empty() || !key.chars().all(named) {
            let wrong = format!("{key:?} is no name of a parameter");
            return Err(ConfigErrors::one("--set", 0, wrong, "write key=value, such as reply=commit"));
        }
        let text = format!("{key} = {written}");
        let value = toml::de::DeTable::parse(&text).ok().and_then(|table| {
            let (_, value) = table.get_ref().iter().next()?;
            Some(Value::of(value.get_ref()))
        });
        let value = value.unwrap_or_else(|| Value::Text(written.to_owned()));
        self.entries.retain(|entry| entry.key != key);
        self.entries.push(Entry { line: 0, key: key.to_owned(), value, written: written.to_owned() });
        Ok(())
    }

    /// Begins to read them; end with [`ParameterReader::finish`].
    pub fn read(&self) -> ParameterReader<'_> {
        ParameterReader {
            parameters: self,
            asked: Vec::new(),
            mistakes: Mistakes::in_file(self.file.clone()),
        }
    }
}

/// Reads parameters key by key, each with its default; mistakes are kept for [`ParameterReader::finish`].
#[derive(Debug)]
pub struct ParameterReader<'a> {
    parameters: &'a Parameters,
    asked: Vec<&'static str>,
    mistakes: Mistakes,
}

impl ParameterReader<'_> {
    /// `key = true` or `false`.
    pub fn boolean(&mut self, key: &'static str, default: bool) -> bool {
        let Some(entry) = self.ask(key) else { return default };
        match entry.value.boolean() {
            Some(value) => value,
            None => self.refuse(&entry, "is not a yes or no", "write true or false", default),
        }
    }

    /// `key = 5`, at least `least` and at most `most`.
    pub fn integer(&mut self, key: &'static str, default: u64, least: u64, most: u64) -> u64 {
        self.ask(key).map_or(default, |entry| match as_integer(entry.value.integer(), least, most) {
            Ok(value) => value,
            Err(refusal) => self.refuse(&entry, &refusal.wrong, &refusal.right, default),
        })
    }

    /// `key = "1.5ms"`, at least `least` and at most `most`.
    pub fn span(&mut self, key: &'static str, default: Span, least: Span, most: Span) -> Span {
        self.ask(key).map_or(default, |entry| match as_span(entry.value.text()) {
            Ok(value) if (least..=most).contains(&value) => value,
            Ok(_) => {
                let right = format!("use \"{least}\" to \"{most}\"");
                self.refuse(&entry, "is out of range", &right, default)
            }
            Err(refusal) => self.refuse(&entry, &refusal.wrong, &refusal.right, default),
        })
    }

    /// `key = "64MiB"`, at least `least` and at most `most` bytes.
    pub fn bytes(&mut self, key: &'static str, default: u64, least: u64, most: u64) -> u64 {
        self.ask(key).map_or(default, |entry| match as_bytes(entry.value.text()) {
            Ok(value) if (least..=most).contains(&value) => value,
            Ok(_) => {
                let (least, most) = (super::values::show_bytes(least), super::values::show_bytes(most));
                self.refuse(&entry, "is out of range", &format!("use {least:?} to {most:?}"), default)
            }
            Err(refusal) => self.refuse(&entry, &refusal.wrong, &refusal.right, default),
        })
    }

    /// `key = "..."`, any text.
    pub fn text(&mut self, key: &'static str, default: &str) -> String {
        self.ask(key).map_or(default.to_owned(), |entry| match as_text(entry.value.text()) {
            Ok(value) => value.to_owned(),
            Err(refusal) => self.refuse(&entry, &refusal.wrong, &refusal.right, default.to_owned()),
        })
    }

    /// `key = "a, b"`, names of nodes, each once. Of one that must not be among them, `taken` says why.
    pub fn nodes(
        &mut self,
        key: &'static str,
        deployment: &Deployment,
        taken: impl Fn(NodeId) -> Option<&'static str>,
    ) -> Vec<NodeId> {
        let names = self.text(key, "");
        let mut nodes = Vec::new();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let node = deployment.node_named(name).map(|node| node.id);
            let wrong = match node {
                None => Some((
                    format!("names {name:?}, which is no node of this file"),
                    "name nodes of it, \"a, b\"",
                )),
                Some(node) if nodes.contains(&node) => {
                    Some((format!("names {name} twice"), "name each node once"))
                }
                Some(node) => taken(node).map(|why| (format!("names {name}, {why}"), "name other nodes")),
            };
            match wrong {
                Some((wrong, right)) => self.reject(key, &wrong, right),
                None => nodes.extend(node),
            }
        }
        nodes
    }

    /// `key = "commit"`, one of the given words.
    pub fn choice<T: Copy>(&mut self, key: &'static str, default: T, choices: &[(&'static str, T)]) -> T {
        let Some(entry) = self.ask(key) else { return default };
        let found = choices.iter().find(|(name, _)| entry.value.text() == Some(name));
        if let Some((_, value)) = found {
            return *value;
        }
        let right = format!("use {}", one_of(choices.iter().map(|(name, _)| *name)));
        self.refuse(&entry, "is not a choice", &right, default)
    }

    /// `fast_quorum = 5` and `classic_quorum = 5`, the sizes of quorums in a group of `replicas`; what is not given is
    /// the smallest that the other allows.
    pub fn quorums(&mut self, replicas: usize) -> FastQuorums {
        let mut size = |key| match self.integer(key, 0, 1, u64::from(ReplicaSet::SEATS)) {
            0 => None,
            // At most the number of seats.
            size => Some(size as usize),
        };
        let (fast, classic) = (size(FastQuorums::FAST), size(FastQuorums::CLASSIC));
        FastQuorums::sized(replicas, fast, classic).unwrap_or_else(|SizeError { key, wrong, right }| {
            self.reject(key, &wrong, &right);
            FastQuorums::of(replicas)
        })
    }

    /// `f = 3`, how many copies `curp` has beside its master, `most` at most. What is not given is [`CURP_COPIES`], also where
    /// that is more.
    pub fn copies(&mut self, most: usize) -> usize {
        let most = most.min(CURP_COPIES_MAX) as u64;
        // No more than there are seats.
        self.integer("f", CURP_COPIES as u64, 0, most) as usize
    }

    /// Whether a value is given for this key.
    pub fn gives(&self, key: &str) -> bool {
        self.parameters.entries.iter().any(|entry| entry.key == key)
    }

    /// Ends the reading of one that takes no interest in the other keys.
    ///
    /// # Errors
    /// What was asked for and is wrong.
    pub fn finish_partly(self) -> Result<(), ConfigErrors> {
        self.mistakes.unless_any(Some(()))
    }

    /// Refuses a value for a reason only the protocol knows.
    pub fn reject(&mut self, key: &'static str, wrong: &str, right: &str) {
        match self.ask(key) {
            Some(entry) => self.refuse(&entry, wrong, right, ()),
            None => {
                let wrong = format!("keyspace {:?}: parameter {key} {wrong}", self.parameters.keyspace);
                self.mistakes.at(0, wrong, right);
            }
        }
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// Every value of a wrong kind or out of range, and every key that was not asked for.
    pub fn finish(mut self) -> Result<(), ConfigErrors> {
        for entry in &self.parameters.entries {
            if self.asked.contains(&entry.key.as_str()) {
                continue;
            }
            let keyspace = &self.parameters.keyspace;
            let wrong = format!("keyspace {keyspace:?}: unknown parameter {:?}", entry.key);
            let right = match self.asked.as_slice() {
                [] => "remove it: the protocol has no parameters".to_owned(),
                asked => suggest(&entry.key, asked.iter().copied()),
            };
            note(&mut self.mistakes, entry, wrong, right);
        }
        let nothing_wrong = self.mistakes.is_empty();
        self.mistakes.unless_any(nothing_wrong.then_some(()))
    }

    fn ask(&mut self, key: &'static str) -> Option<Entry> {
        self.asked.push(key);
        self.parameters.entries.iter().find(|entry| entry.key == key).cloned()
    }

    fn refuse<T>(&mut self, entry: &Entry, wrong: &str, right: &str, default: T) -> T {
        let Entry { key, written, .. } = entry;
        let keyspace = &self.parameters.keyspace;
        let wrong = format!("keyspace {keyspace:?}: parameter {key} = {written} {wrong}");
        note(&mut self.mistakes, entry, wrong, right.to_owned());
        default
    }
}

/// Notes a mistake where it was made: on a line of the file, or in an option.
fn note(mistakes: &mut Mistakes, entry: &Entry, wrong: String, right: String) {
    match entry.option() {
        None => mistakes.at(entry.line, wrong, right),
        Some(option) => mistakes.absorb(ConfigErrors::one(option, 0, wrong, right)),
    }
}
