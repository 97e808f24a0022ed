//! What a run of transactions leaves behind, and its file: JSON Lines, one transaction a line.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::sync::Arc;

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::ser::{SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};

use crate::history::{Outcome, Value};
use crate::jsonl::{HistoryError, Lines, Words, Wrong, returned};

/// One step of a transaction. A key holds one value, which is written and deleted, or a list, which is appended to; no
/// two writes to a key are of the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// It read a key: nothing ([`Value::Nil`]), a value, or a list; `None` where what it read was not recorded.
    Read(Arc<str>, Option<Value>),
    /// It wrote a value.
    Write(Arc<str>, Arc<str>),
    /// It appended an element.
    Append(Arc<str>, Arc<str>),
    /// It deleted a key, whatever was there.
    Delete(Arc<str>),
    /// It read by a predicate: of the keys that begin with a prefix those where something was, each with its value.
    /// Every other key of the history that begins so held nothing.
    Scan(Arc<str>, BTreeMap<Arc<str>, Value>),
}

impl Access {
    /// The key; of a scan, the prefix.
    #[must_use]
    pub fn key(&self) -> &Arc<str> {
        match self {
            Access::Read(key, _) | Access::Write(key, _) | Access::Append(key, _) => key,
            Access::Delete(key) | Access::Scan(key, _) => key,
        }
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn reads(&self) -> bool {
        matches!(self, Access::Read(..) | Access::Scan(..))
    }

    /// Every key and value that it found; a list is found as its elements.
    pub(super) fn found(&self) -> impl Iterator<Item = (&Arc<str>, &Value)> {
        let (list, one): (&[Value], Option<&Value>) = match self {
            Access::Read(_, Some(Value::List(list))) => (list, None),
            Access::Read(_, Some(value @ (Value::Text(_) | Value::Integer(_)))) => (&[], Some(value)),
            _ => (&[], None),
        };
        let scan = if let Access::Scan(_, found) = self { Some(found) } else { None };
        let key = self.key();
        list.iter().chain(one).map(move |value| (key, value)).chain(scan.into_iter().flatten())
    }
}

impl fmt::Display for Access {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Read(key, None) => write!(out, "read {key}"),
            // Of a long list, what was there last says where it stood.
            Access::Read(key, Some(Value::List(list))) if list.len() > 4 => {
                write!(out, "read {key} [..{} more.. {}]", list.len() - 1, list[list.len() - 1])
            }
            Access::Read(key, Some(value)) => write!(out, "read {key} {value}"),
            Access::Write(key, value) => write!(out, "write {key} {value:?}"),
            Access::Append(key, value) => write!(out, "append {key} {value:?}"),
            Access::Delete(key) => write!(out, "delete {key}"),
            Access::Scan(prefix, found) if found.is_empty() => write!(out, "scan {prefix}* nothing"),
            Access::Scan(prefix, found) if found.len() > 4 => {
                write!(out, "scan {prefix}* {} keys", found.len())
            }
            Access::Scan(prefix, found) => {
                let found: Vec<String> = found.iter().map(|(key, value)| format!("{key} {value}")).collect();
                write!(out, "scan {prefix}* [{}]", found.join(" "))
            }
        }
    }
}

/// One transaction of one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Transaction {
    /// The client process.
    pub client: u64,
    /// The closed loop or connection within the client.
    pub session: u64,
    /// Place within the session, rising.
    pub sequence: u64,
    /// What it read and wrote, in its own order.
    #[serde(rename = "transaction")]
    pub accesses: Vec<Access>,
    /// Where what it wrote stands among the versions of each key, if the store told: a commit timestamp, say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// When it began, in nanoseconds of the run's clock.
    pub invoked: u64,
    /// When the client was told how it ended, in nanoseconds; `None` if it never was.
    pub returned: Option<u64>,
    /// `Ok`: committed. `Failed`: surely without effect. `Unknown`: committed or not, at any time.
    pub outcome: Outcome,
}

impl Transaction {
    /// Whether it wrote anything.
    #[must_use]
    pub fn updates(&self) -> bool {
        self.accesses.iter().any(|access| !access.reads())
    }
}

impl fmt::Display for Transaction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, access) in self.accesses.iter().enumerate() {
            write!(out, "{}{access}", if place == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// The transactions of one run, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transactions {
    /// A transaction's line in the file is its index plus one.
    pub list: Vec<Transaction>,
}

impl Transactions {
    /// Reads a history of transactions; `file` is the name that errors give.
    ///
    /// # Errors
    /// The first line that is no transaction, or what the system said.
    pub fn read(file: &str, input: impl BufRead) -> Result<Transactions, HistoryError> {
        let (mut lines, mut words) = (Lines::new(file, input), Words::default());
        let mut list = Vec::new();
        while let Some(transaction) = lines.next(FORM, |draft: Draft<'_>| draft.finish(&mut words))? {
            list.push(transaction);
        }
        Ok(Transactions { list })
    }

    /// Writes the history, one transaction a line.
    ///
    /// # Errors
    /// What the system said.
    pub fn write(&self, mut output: impl Write) -> io::Result<()> {
        for transaction in &self.list {
            serde_json::to_writer(&mut output, transaction)?;
            output.write_all(b"\n")?;
        }
        output.flush()
    }
}

impl FromIterator<Transaction> for Transactions {
    fn from_iter<I: IntoIterator<Item = Transaction>>(list: I) -> Self {
        Transactions { list: list.into_iter().collect() }
    }
}

const FORM: &str = r#"a line reads {"client":3,"session":1,"sequence":17,"transaction":[["read","x","1"],["write","y","2"],["append","z","3"],["delete","w"],["scan","x",{"x":"1"}]],"version":12,"invoked":10,"returned":20,"outcome":"ok"}"#;

/// A line as it stands.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Draft<'a> {
    client: u64,
    session: u64,
    sequence: u64,
    #[serde(borrow)]
    transaction: Vec<DraftAccess<'a>>,
    #[serde(default)]
    version: Option<u64>,
    invoked: u64,
    #[serde(default)]
    returned: Option<u64>,
    outcome: Outcome,
}

impl Draft<'_> {
    fn finish(self, words: &mut Words) -> Result<Transaction, Wrong> {
        let accesses = self.transaction.into_iter().map(|draft| draft.finish(words));
        Ok(Transaction {
            client: self.client,
            session: self.session,
            sequence: self.sequence,
            accesses: accesses.collect::<Result<_, _>>()?,
            version: self.version,
            invoked: self.invoked,
            returned: returned(self.outcome, self.invoked, self.returned)?,
            outcome: self.outcome,
        })
    }
}

/// `["read", KEY, VALUE]`, `["write", KEY, VALUE]`, `["append", KEY, VALUE]`, `["delete", KEY]` or
/// `["scan", PREFIX, {KEY: VALUE}]`.
struct DraftAccess<'a> {
    verb: Cow<'a, str>,
    key: Cow<'a, str>,
    value: Option<Value>,
    found: Option<BTreeMap<Cow<'a, str>, Value>>,
}

const VERBS: &str = r#"an access reads ["read","x"], ["read","x",VALUE], ["write","x","1"], ["append","x","1"], ["delete","x"] or ["scan","x",{"x1":VALUE}]"#;

impl DraftAccess<'_> {
    fn finish(self, words: &mut Words) -> Result<Access, Wrong> {
        let key = words.store(&self.key);
        if let Some(found) = self.found {
            if found.keys().any(|found| !found.starts_with(&*key)) {
                return Err(("a scan that found a key without its prefix", VERBS));
            }
            if found.values().any(|value| text(value).is_none()) {
                return Err(("a scan that found other than strings and integers", VERBS));
            }
            let found = found.into_iter().map(|(found, value)| (words.store(&found), value));
            return Ok(Access::Scan(key, found.collect()));
        }
        match (&*self.verb, self.value) {
            ("read", value) => match &value {
                Some(Value::Error(_)) => Err(("a read of an error", "leave out what was not read")),
                Some(Value::List(list)) if list.iter().any(|value| text(value).is_none()) => {
                    Err(("a list of other than strings and integers", VERBS))
                }
                _ => Ok(Access::Read(key, value)),
            },
            (verb @ ("write" | "append"), Some(value)) => {
                let Some(value) = text(&value) else {
                    return Err(("a written value that is no string", VERBS));
                };
                let value = Arc::from(&*value);
                Ok(if verb == "write" { Access::Write(key, value) } else { Access::Append(key, value) })
            }
            ("write" | "append", None) => Err(("a write without a value", VERBS)),
            ("delete", None) => Ok(Access::Delete(key)),
            ("delete", Some(_)) => Err(("a delete with a value", VERBS)),
            ("scan", _) => Err(("a scan without what it found", VERBS)),
            _ => Err(("an access that is no read, write, append, delete or scan", VERBS)),
        }
    }
}

/// The value as a string; a store may answer one that looks like an integer as an integer.
pub(super) fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Text(text) => Some(Cow::Borrowed(text)),
        Value::Integer(number) => Some(Cow::Owned(number.to_string())),
        Value::Nil | Value::List(_) | Value::Error(_) => None,
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for DraftAccess<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Visit;

        impl<'de> Visitor<'de> for Visit {
            type Value = DraftAccess<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(VERBS)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Self::Value, A::Error> {
                let mut word = |place| {
                    input
                        .next_element::<Word<'de>>()?
                        .map(|word| word.0)
                        .ok_or_else(|| de::Error::invalid_length(place, &self))
                };
                let (verb, key) = (word(0)?, word(1)?);
                let scan = verb == "scan";
                let (value, found) = match scan {
                    true => (None, input.next_element::<BTreeMap<Word<'de>, Value>>()?),
                    false => (input.next_element()?, None),
                };
                let found = found.map(|found| found.into_iter().map(|(key, value)| (key.0, value)).collect());
                if input.next_element::<de::IgnoredAny>()?.is_some() {
                    return Err(de::Error::invalid_length(4, &self));
                }
                Ok(DraftAccess { verb, key, value, found })
            }
        }

        input.deserialize_seq(Visit)
    }
}

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

impl Serialize for Access {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        let mut list = output.serialize_seq(None)?;
        match self {
            Access::Read(key, value) => {
                list.serialize_element("read")?;
                list.serialize_element(&**key)?;
                if let Some(value) = value {
                    list.serialize_element(value)?;
                }
            }
            Access::Write(key, value) | Access::Append(key, value) => {
                list.serialize_element(if matches!(self, Access::Write(..)) { "write" } else { "append" })?;
                list.serialize_element(&**key)?;
                list.serialize_element(&**value)?;
            }
            Access::Delete(key) => {
                list.serialize_element("delete")?;
                list.serialize_element(&**key)?;
            }
            Access::Scan(prefix, found) => {
                list.serialize_element("scan")?;
                list.serialize_element(&**prefix)?;
                list.serialize_element(
                    &found.iter().map(|(key, value)| (&**key, value)).collect::<BTreeMap<_, _>>(),
                )?;
            }
        }
        list.end()
    }
}
