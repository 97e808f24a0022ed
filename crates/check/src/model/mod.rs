//! Sequential specifications: what one operation after another should answer.
//!
//! A model is written from the commands' documentation and shares no code with the store, so that the two check each
//! other.

mod answer;
mod bank;
mod kv;
mod register;

use std::borrow::Cow;
use std::fmt;
use std::hash::Hash;
use std::str::FromStr;

pub use bank::Bank;
pub use kv::Kv;
pub use register::Register;

use crate::history::{Operation, Value};

/// What an operation does in a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step<S> {
    /// It could not have answered as it did.
    Illegal,
    /// It fits and leaves the state as it is.
    Same,
    /// It fits and leads to this state.
    Next(S),
}

/// An operation seen as an access to a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access<'a> {
    /// It answers the value, or nothing if there is none, and changes nothing.
    Read(Option<Cow<'a, str>>),
    /// It writes this value whatever was there, and answers nothing about it.
    Write(&'a str),
}

/// What an operation has to do with texts that keys hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Texts<'a> {
    /// Nothing, or it only takes them away.
    None,
    /// It was answered so since these keys, by their slots, held these texts.
    Reads(Vec<(u32, &'a [u8])>),
    /// It may write these.
    Writes(Vec<&'a [u8]>),
    /// It may bring what one key holds to another.
    Copies,
}

/// An operation with its times, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Timed<O> {
    /// The operation.
    pub op: O,
    /// When it was invoked.
    pub invoked: u64,
    /// When it returned; `None` if its outcome is unknown.
    pub returned: Option<u64>,
}

/// A sequential specification over the keys of one component.
pub trait Model {
    /// The state of all keys of a component; cheap to clone.
    type State: Clone + Eq + Hash;
    /// An operation, parsed. Equal operations do the same to every state.
    type Op: Clone + Eq + Hash;

    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// The state before the first operation, of a component of `keys` keys.
    fn initial(&self, keys: usize) -> Self::State;

    /// Parses an operation; `slots[i]` is the place of its i-th key in the component's state.
    ///
    /// # Errors
    /// The model has no such operation, or not with these arguments.
    fn parse(&self, operation: &Operation, slots: &[u32]) -> Result<Self::Op, Unsupported>;

    /// Is told all operations of a component, with the times of invocation and return (`None`: unknown outcome), and
    /// may rewrite them where that changes no verdict and makes them simpler.
    fn simplify(&self, _operations: &mut [Timed<Self::Op>]) {}

    /// Runs `op` in `state` and holds its answer against `observed` (`None`: any answer fits).
    fn step(&self, state: &Self::State, op: &Self::Op, observed: Option<&Value>) -> Step<Self::State>;

    /// About how many bytes a state takes that no other state shares.
    fn weight(&self, _state: &Self::State) -> usize {
        64
    }

    /// Whether `op`, having answered `observed`, changed no state, whatever the state was.
    fn reads(&self, op: &Self::Op, observed: Option<&Value>) -> bool;

    /// Which of the `unknown` operations may be left out, because leaving them out of any order that explains the
    /// `known` ones leaves an order that still does. Must be sound; need not be complete.
    fn idle(&self, _known: &[(&Self::Op, Option<&Value>)], unknown: &[&Self::Op]) -> Vec<bool> {
        vec![false; unknown.len()]
    }

    /// The operation as an access to a register that nothing was written to at first, if that is all it is: then keys
    /// whose every value is written once are decided without a search.
    fn access<'a>(&self, _op: &'a Self::Op, _observed: Option<&'a Value>) -> Option<Access<'a>> {
        None
    }

    /// What the operation has to do with texts, none of which any key holds at first; `None` if it may bring about
    /// others than it names.
    fn texts<'a>(&self, _op: &'a Self::Op, _observed: Option<&'a Value>) -> Option<Texts<'a>> {
        None
    }

    /// How many keys a state has.
    fn slots(&self, _state: &Self::State) -> usize {
        0
    }

    /// The text that a key holds, if it holds one.
    fn text<'a>(&self, _state: &'a Self::State, _slot: u32) -> Option<&'a [u8]> {
        None
    }

    /// For which of the `known` operations it pays to ask [`Model::is_hopeless`] well before their turn.
    fn witnesses(&self, known: &[(&Self::Op, Option<&Value>)], _unknown: &[&Self::Op]) -> Vec<bool> {
        vec![false; known.len()]
    }

    /// Whether `target` cannot be answered `seen` from `state`, whichever of the operations `may` come before it, in
    /// whatever order and with whatever answers. Must be sound; need not be complete. Never asked where the component has
    /// several keys.
    fn is_hopeless(
        &self,
        _state: &Self::State,
        _target: &Self::Op,
        _seen: Option<&Value>,
        _may: &[&Self::Op],
    ) -> bool {
        false
    }
}

/// An operation that a model does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}\n  {cure}")]
pub struct Unsupported {
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub cure: String,
}

/// The models that the command line knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelName {
    /// Redis values: [`Kv`].
    #[default]
    Kv,
    /// Read, write, compare-and-set: [`Register`].
    Register,
    /// Accounts and transfers: [`Bank`].
    Bank,
}

impl ModelName {
    /// All models, in the order of the documentation.
    pub const ALL: [ModelName; 3] = [ModelName::Kv, ModelName::Register, ModelName::Bank];

    /// The name on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ModelName::Kv => "kv",
            ModelName::Register => "register",
            ModelName::Bank => "bank",
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl FromStr for ModelName {
    type Err = Unsupported;

    fn from_str(text: &str) -> Result<Self, Unsupported> {
        ModelName::ALL.into_iter().find(|name| name.as_str() == text).ok_or_else(|| Unsupported {
            problem: format!("no model is named {text:?}"),
            cure: "the models are kv, register, bank; and transactions, for histories of those".to_owned(),
        })
    }
}

/// What an answer says that a register holds; nothing if it does not say.
fn held(observed: &Value) -> Option<Option<Cow<'_, str>>> {
    match observed {
        Value::Nil => Some(None),
        Value::Text(text) => Some(Some(Cow::Borrowed(text))),
        Value::Integer(number) => Some(Some(Cow::Owned(number.to_string()))),
        Value::List(_) | Value::Error(_) => None,
    }
}

/// The error of a model for an operation it does not have.
fn unsupported(operation: &Operation, problem: &str, cure: &str) -> Unsupported {
    Unsupported { problem: format!("{operation}: {problem}"), cure: cure.to_owned() }
}
