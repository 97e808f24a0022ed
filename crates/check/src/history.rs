//! What a run leaves behind: operations, their times and their answers.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// How an operation ended, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It took effect and was answered.
    Ok,
    /// It surely had no effect, now or later.
    Failed,
    /// It may take effect at any time after its invocation, or never.
    Unknown,
}

/// An answer, in the shapes a Redis answer has. In JSON: `null`, a number, a string, an array, `{"error": "..."}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Nothing there.
    Nil,
    /// An integer.
    Integer(i64),
    /// A string; also status answers (`OK`) and floating-point answers in decimal.
    Text(String),
    /// Several answers in order.
    List(Vec<Value>),
    /// An error; its first word is its code (`ERR`, `WRONGTYPE`) and all that is compared.
    Error(String),
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nil => out.write_str("nil"),
            Value::Integer(number) => write!(out, "{number}"),
            Value::Text(text) => write!(out, "{text:?}"),
            Value::List(values) => {
                out.write_str("[")?;
                for (place, value) in values.iter().enumerate() {
                    if place > 0 {
                        out.write_str(" ")?;
                    }
                    write!(out, "{value}")?;
                }
                out.write_str("]")
            }
            Value::Error(text) => write!(out, "error {text:?}"),
        }
    }
}

/// One operation of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The client process.
    pub client: u64,
    /// The closed loop or connection within the client; its operations are meant in order of `sequence`.
    pub session: u64,
    /// Place within the session, rising.
    pub sequence: u64,
    /// The keys it touches, at least one.
    pub keys: Vec<Arc<str>>,
    /// Its name in lower case, as the model knows it.
    pub op: Arc<str>,
    /// What follows the keys.
    pub args: Vec<String>,
    /// The stamp that the command carries for expiry, in nanoseconds; without one, nothing expires for it.
    pub stamp: Option<u64>,
    /// When the client asked, in nanoseconds of the run's clock.
    pub invoked: u64,
    /// When the client was told, in nanoseconds; `None` if it never was.
    pub returned: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// The answer; `None` where it was not recorded, and then any answer fits.
    pub value: Option<Value>,
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.op)?;
        for word in self.keys.iter().map(|key| &**key).chain(self.args.iter().map(String::as_str)) {
            let plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_graphic() && c != '"');
            if plain {
                write!(out, " {word}")?;
            } else {
                write!(out, " {word:?}")?;
            }
        }
        Ok(())
    }
}

/// The operations of one run, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The operations; an operation's line in the file is its index plus one.
    pub operations: Vec<Operation>,
}

impl History {
    /// A history of these operations.
    #[must_use]
    pub fn new(operations: Vec<Operation>) -> Self {
        History { operations }
    }
}

impl FromIterator<Operation> for History {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        History { operations: operations.into_iter().collect() }
    }
}
