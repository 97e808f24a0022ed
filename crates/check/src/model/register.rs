//! Registers: read, write, compare-and-set.

use std::rc::Rc;

use super::answer::Answer;
use super::{Access, Model, Step, Unsupported, held, unsupported};
use crate::history::{Operation, Value};
use crate::planted::{Mutation, planted};

/// One register per key, absent at first.
///
/// `read` (or `get`) answers the value or nil; `write v` (or `set v`) answers `OK`; `cas old new` answers 1 and
/// writes if the register holds `old`, else answers 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Register;

/// An operation on one register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    slot: u32,
    verb: Verb,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Verb {
    Read,
    Write(Rc<str>),
    Cas(Rc<str>, Rc<str>),
}

impl Model for Register {
    type State = Rc<Vec<Option<Rc<str>>>>;
    type Op = Op;

    fn name(&self) -> &'static str {
        "register"
    }

    fn initial(&self, keys: usize) -> Self::State {
        Rc::new(vec![None; keys])
    }

    fn parse(&self, operation: &Operation, slots: &[u32]) -> Result<Op, Unsupported> {
        let verb = match (&*operation.op, operation.args.as_slice()) {
            ("read" | "get", []) => Verb::Read,
            ("write" | "set", [value]) => Verb::Write(Rc::from(value.as_str())),
            ("cas", [old, new]) => Verb::Cas(Rc::from(old.as_str()), Rc::from(new.as_str())),
            _ => {
                let cure =
                    "a register has read, write VALUE and cas OLD NEW; for Redis commands use --model kv";
                return Err(unsupported(operation, "no operation of the register model", cure));
            }
        };
        match slots {
            [slot] => Ok(Op { slot: *slot, verb }),
            _ => Err(unsupported(operation, "touches several keys", "a register operation touches one key")),
        }
    }

    fn step(&self, state: &Self::State, op: &Op, observed: Option<&Value>) -> Step<Self::State> {
        let place = op.slot as usize;
        let held = state[place].as_deref();
        let write = |value: &Rc<str>| {
            if held == Some(&**value) {
                return Step::Same;
            }
            let mut next = (**state).clone();
            next[place] = Some(Rc::clone(value));
            Step::Next(Rc::new(next))
        };
        let (answer, next) = match &op.verb {
            Verb::Read => (held.map_or(Answer::Nil, |held| Answer::Text(held.as_bytes())), Step::Same),
            Verb::Write(value) => (Answer::Ok, write(value)),
            Verb::Cas(old, new) if held == Some(&**old) || planted(Mutation::CasIgnoresExpected) => {
                (Answer::Integer(1), write(new))
            }
            Verb::Cas(..) => (Answer::Integer(0), Step::Same),
        };
        if answer.fits(observed) { next } else { Step::Illegal }
    }

    fn reads(&self, op: &Op, observed: Option<&Value>) -> bool {
        match op.verb {
            Verb::Read => true,
            Verb::Write(_) => false,
            Verb::Cas(..) => observed == Some(&Value::Integer(0)),
        }
    }

    fn access<'a>(&self, op: &'a Op, observed: Option<&'a Value>) -> Option<Access<'a>> {
        match &op.verb {
            Verb::Read => Some(Access::Read(held(observed?)?)),
            Verb::Write(value) if Answer::Ok.fits(observed) => Some(Access::Write(value)),
            _ => None,
        }
    }

    fn idle(&self, known: &[(&Op, Option<&Value>)], unknown: &[&Op]) -> Vec<bool> {
        // A write whose value no read returned can be followed only by writes: without it they do the same. A
        // compare-and-set would notice it, so there may be none.
        let blind = known.iter().map(|(op, _)| *op).chain(unknown.iter().copied());
        if blind.into_iter().any(|op| matches!(op.verb, Verb::Cas(..))) {
            return vec![false; unknown.len()];
        }
        let seen = |value: &str| {
            known.iter().any(|(op, observed)| {
                matches!(op.verb, Verb::Read)
                    && observed.is_none_or(|observed| Answer::Text(value.as_bytes()).fits(Some(observed)))
            })
        };
        unknown
            .iter()
            .map(|op| match &op.verb {
                Verb::Write(value) => !seen(value) || planted(Mutation::IdleThoughSeen),
                Verb::Read | Verb::Cas(..) => matches!(op.verb, Verb::Read),
            })
            .collect()
    }
}
