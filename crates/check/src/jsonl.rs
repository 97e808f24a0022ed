//! Histories as JSON Lines: one operation a line, read and written as a stream. The format is `docs/histories.md`.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::sync::Arc;

use rustc_hash::FxHashSet;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use crate::history::{History, Operation, Outcome, Value};

/// Longest line that is read, in bytes; a longer one is a file of something else.
const LINE_MAX: usize = 64 << 20;

/// Why a history could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file could not be read or written.
    #[error("{file}: {cause}")]
    Io {
        /// The file as the caller named it.
        file: String,
        /// What the system said.
        cause: io::Error,
    },
    /// A line is no operation.
    #[error("{file}:{line}:{column}: {problem}\n  {cure}")]
    Line {
        /// The file as the caller named it.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The column in bytes, from 1; 1 where the whole line is meant.
        column: usize,
        /// What is wrong.
        problem: String,
        /// What would be right.
        cure: String,
    },
}

/// Reads operations from a stream, one a line; blank lines are skipped.
pub struct Reader<R> {
    lines: Lines<R>,
    words: Words,
}

impl<R: BufRead> Reader<R> {
    /// A reader of `input`; `file` is the name that errors give.
    pub fn new(file: impl Into<String>, input: R) -> Self {
        Reader { lines: Lines::new(file, input), words: Words::default() }
    }

    fn read_operation(&mut self) -> Result<Option<Operation>, HistoryError> {
        let words = &mut self.words;
        self.lines.next(FORM, |draft: Draft<'_>| draft.finish(words))
    }
}

/// What is wrong with a line, and what would be right.
pub(crate) type Wrong = (&'static str, &'static str);

/// The lines of a file that each hold one JSON object; blank lines are skipped.
pub(crate) struct Lines<R> {
    input: R,
    file: String,
    line: usize,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(file: impl Into<String>, input: R) -> Self {
        Lines { input, file: file.into(), line: 0, buffer: Vec::new() }
    }

    /// The next line, parsed and then held against itself by `finish`; `form` shows what a line looks like.
    pub(crate) fn next<'a, D: Deserialize<'a>, T>(
        &'a mut self,
        form: &str,
        finish: impl FnOnce(D) -> Result<T, Wrong>,
    ) -> Result<Option<T>, HistoryError> {
        loop {
            self.buffer.clear();
            let read = (&mut self.input).take_line(&mut self.buffer, LINE_MAX);
            let length = read.map_err(|cause| HistoryError::Io { file: self.file.clone(), cause })?;
            if length == 0 {
                return Ok(None);
            }
            self.line += 1;
            if self.buffer.len() >= LINE_MAX {
                return Err(self.wrong(1, format!("line longer than {LINE_MAX} bytes"), form));
            }
            if !self.buffer.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        if let Some((problem, cure)) = no_object(&self.buffer) {
            return Err(self.wrong(1, problem.to_owned(), cure.unwrap_or(form)));
        }
        let draft: D = match serde_json::from_slice(&self.buffer) {
            Ok(draft) => draft,
            Err(error) => {
                let text = error.to_string();
                let problem = text.split(" at line ").next().unwrap_or(&text).to_owned();
                return Err(self.wrong(error.column().max(1), problem, form));
            }
        };
        match finish(draft) {
            Ok(parsed) => Ok(Some(parsed)),
            Err((problem, cure)) => Err(self.wrong(1, problem.to_owned(), cure)),
        }
    }

    fn wrong(&self, column: usize, problem: String, cure: &str) -> HistoryError {
        HistoryError::Line {
            file: self.file.clone(),
            line: self.line,
            column,
            problem,
            cure: cure.to_owned(),
        }
    }
}

/// What is wrong with a line that begins no JSON object; what would be right, where that is more than another line.
fn no_object(line: &[u8]) -> Option<(&'static str, Option<&'static str>)> {
    const UNPACKED: Option<&str> = Some("give it unpacked");
    const UTF_8: Option<&str> = Some("save it as UTF-8 without a byte order mark");
    match line.trim_ascii_start() {
        [b'{', ..] => None,
        [0x1f, 0x8b, ..] => Some(("compressed with gzip", UNPACKED)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(("compressed with zstd", UNPACKED)),
        [b'B', b'Z', b'h', ..] => Some(("compressed with bzip2", UNPACKED)),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some(("compressed with xz", UNPACKED)),
        [0xef, 0xbb, 0xbf, ..] => Some(("a byte order mark", UTF_8)),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some(("text in UTF-16", UTF_8)),
        _ => Some(("no JSON object", None)),
    }
}

/// Keys and names repeat a million times: each is stored once.
#[derive(Default)]
pub(crate) struct Words(FxHashSet<Arc<str>>);

impl Words {
    pub(crate) fn store(&mut self, word: &str) -> Arc<str> {
        if let Some(known) = self.0.get(word) {
            return Arc::clone(known);
        }
        let word: Arc<str> = Arc::from(word);
        self.0.insert(Arc::clone(&word));
        word
    }
}

/// When an operation ended, where its outcome and its times fit each other.
pub(crate) fn returned(outcome: Outcome, invoked: u64, returned: Option<u64>) -> Result<Option<u64>, Wrong> {
    let returned = match (outcome, returned) {
        (Outcome::Ok, None) => {
            return Err(("outcome \"ok\" without `returned`", "give the time of the answer in ns"));
        }
        // A client that gave up knows when; the operation did not end then.
        (Outcome::Unknown, _) => None,
        (_, returned) => returned,
    };
    if returned.is_some_and(|returned| returned < invoked) {
        return Err((
            "`returned` is before `invoked`",
            "both are nanoseconds of one clock that does not go back",
        ));
    }
    Ok(returned)
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Operation, HistoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_operation().transpose()
    }
}

impl History {
    /// Reads a whole history; `file` is the name that errors give.
    ///
    /// # Errors
    /// The first line that is no operation, or what the system said.
    pub fn read(file: &str, input: impl BufRead) -> Result<History, HistoryError> {
        Reader::new(file, input).collect()
    }

    /// Writes the history, one operation a line.
    ///
    /// # Errors
    /// What the system said.
    pub fn write(&self, output: impl Write) -> io::Result<()> {
        let mut writer = Writer::new(output);
        for operation in &self.operations {
            writer.write(operation)?;
        }
        writer.flush()
    }
}

/// Writes operations to a stream, one a line.
pub struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// A writer to `output`, which should be buffered.
    pub fn new(output: W) -> Self {
        Writer { output }
    }

    /// Writes one operation.
    ///
    /// # Errors
    /// What the system said.
    pub fn write(&mut self, operation: &Operation) -> io::Result<()> {
        serde_json::to_writer(&mut self.output, operation)?;
        self.output.write_all(b"\n")
    }

    /// Flushes the stream below.
    ///
    /// # Errors
    /// What the system said.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

const FORM: &str = r#"a line reads {"client":3,"session":1,"sequence":17,"key":"x","op":"set","args":["1"],"invoked":10,"returned":20,"outcome":"ok","value":"OK"}"#;

trait TakeLine {
    /// Like `read_until` a newline, but never more than `max` bytes.
    fn take_line(&mut self, buffer: &mut Vec<u8>, max: usize) -> io::Result<usize>;
}

impl<R: BufRead> TakeLine for &mut R {
    fn take_line(&mut self, buffer: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        io::Read::take(&mut **self, max as u64).read_until(b'\n', buffer)
    }
}

/// A line as it stands, before its fields are held against each other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Draft<'a> {
    client: u64,
    session: u64,
    sequence: u64,
    #[serde(borrow, default)]
    key: Option<Cow<'a, str>>,
    #[serde(default)]
    keys: Option<Vec<String>>,
    #[serde(borrow)]
    op: Cow<'a, str>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    stamp: Option<u64>,
    invoked: u64,
    #[serde(default)]
    returned: Option<u64>,
    outcome: Outcome,
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
}

/// `"value":null` is an answer; no `value` at all is none recorded.
fn present<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(input).map(Some)
}

impl Draft<'_> {
    fn finish(self, words: &mut Words) -> Result<Operation, Wrong> {
        let keys = match (&self.key, &self.keys) {
            (Some(key), None) => vec![words.store(key)],
            (None, Some(keys)) if !keys.is_empty() => keys.iter().map(|key| words.store(key)).collect(),
            (Some(_), Some(_)) => {
                return Err(("both `key` and `keys`", "give `key` for one, `keys` for several"));
            }
            _ => {
                return Err((
                    "no key",
                    "give `\"key\":\"x\"`, or `\"keys\":[\"x\",\"y\"]` with at least one",
                ));
            }
        };
        let returned = returned(self.outcome, self.invoked, self.returned)?;
        let op = if self.op.bytes().any(|byte| byte.is_ascii_uppercase()) {
            words.store(&self.op.to_ascii_lowercase())
        } else {
            words.store(&self.op)
        };
        Ok(Operation {
            client: self.client,
            session: self.session,
            sequence: self.sequence,
            keys,
            op,
            args: self.args,
            stamp: self.stamp,
            invoked: self.invoked,
            returned,
            outcome: self.outcome,
            value: if self.outcome == Outcome::Unknown { None } else { self.value },
        })
    }
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        let mut map = output.serialize_map(None)?;
        map.serialize_entry("client", &self.client)?;
        map.serialize_entry("session", &self.session)?;
        map.serialize_entry("sequence", &self.sequence)?;
        match self.keys.as_slice() {
            [key] => map.serialize_entry("key", &**key)?,
            keys => map.serialize_entry("keys", &keys.iter().map(|key| &**key).collect::<Vec<_>>())?,
        }
        map.serialize_entry("op", &*self.op)?;
        map.serialize_entry("args", &self.args)?;
        if let Some(stamp) = self.stamp {
            map.serialize_entry("stamp", &stamp)?;
        }
        map.serialize_entry("invoked", &self.invoked)?;
        map.serialize_entry("returned", &self.returned)?;
        map.serialize_entry("outcome", &self.outcome)?;
        if let Some(value) = &self.value {
            map.serialize_entry("value", value)?;
        }
        map.end()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Nil => output.serialize_unit(),
            Value::Integer(number) => output.serialize_i64(*number),
            Value::Text(text) => output.serialize_str(text),
            Value::List(values) => values.serialize(output),
            Value::Error(text) => {
                let mut map = output.serialize_map(Some(1))?;
                map.serialize_entry("error", text)?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("null, an integer, a string, an array of these, or {\"error\": \"...\"}")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Integer(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
        i64::try_from(number).map(Value::Integer).map_err(|_| E::custom("integer beyond 64 bits"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = input.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Value, A::Error> {
        let Some((field, text)) = input.next_entry::<String, String>()? else {
            return Err(de::Error::custom("an empty object; an error reads {\"error\": \"...\"}"));
        };
        if field != "error" || input.next_key::<String>()?.is_some() {
            return Err(de::Error::custom("an object that is not {\"error\": \"...\"}"));
        }
        Ok(Value::Error(text))
    }
}
