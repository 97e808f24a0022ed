//! Accounts whose total is conserved.

use std::rc::Rc;

use super::answer::Answer;
use super::{Model, Step, Unsupported, unsupported};
use crate::history::{Operation, Value};
use crate::planted::{Mutation, planted};

/// One account per key.
///
/// `open AMOUNT` sets each of its accounts and answers `OK`; `transfer AMOUNT` over the keys *from, to* answers 1 and
/// moves the money if *from* holds as much, else answers 0; `balance` answers one account; `read-all` answers the
/// balances of its keys in order. An order that explains the answers conserves the total, because every step does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bank {
    /// What each account holds before the first operation.
    pub initial: i64,
}

/// An operation on accounts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    slots: Rc<[u32]>,
    verb: Verb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Verb {
    Open(i64),
    Transfer(i64),
    Balance,
    ReadAll,
}

impl Model for Bank {
    type State = Rc<Vec<i64>>;
    type Op = Op;

    fn name(&self) -> &'static str {
        "bank"
    }

    fn initial(&self, keys: usize) -> Self::State {
        Rc::new(vec![self.initial; keys])
    }

    fn parse(&self, operation: &Operation, slots: &[u32]) -> Result<Op, Unsupported> {
        let amount = |text: &String| {
            let amount = text.parse::<i64>().ok().filter(|amount| *amount >= 0);
            amount.ok_or_else(|| unsupported(operation, "no amount", "an amount is an integer from 0"))
        };
        let verb = match (&*operation.op, operation.args.as_slice(), slots.len()) {
            ("open", [text], _) => Verb::Open(amount(text)?),
            ("transfer", [text], 2) => Verb::Transfer(amount(text)?),
            ("balance", [], 1) => Verb::Balance,
            ("read-all", [], _) => Verb::ReadAll,
            _ => {
                let cure =
                    "a bank has open AMOUNT, transfer AMOUNT (two keys), balance (one key) and read-all";
                return Err(unsupported(operation, "no operation of the bank model", cure));
            }
        };
        Ok(Op { slots: Rc::from(slots), verb })
    }

    fn step(&self, state: &Self::State, op: &Op, observed: Option<&Value>) -> Step<Self::State> {
        let held = |slot: u32| state[slot as usize];
        let (answer, next) = match op.verb {
            Verb::Open(amount) => {
                let mut next = (**state).clone();
                op.slots.iter().for_each(|slot| next[*slot as usize] = amount);
                (Answer::Ok, Step::Next(Rc::new(next)))
            }
            Verb::Transfer(amount) if held(op.slots[0]) >= amount => {
                let mut next = (**state).clone();
                next[op.slots[0] as usize] -= amount;
                if !planted(Mutation::TransferLosesMoney) {
                    next[op.slots[1] as usize] = next[op.slots[1] as usize].saturating_add(amount);
                }
                (Answer::Integer(1), Step::Next(Rc::new(next)))
            }
            Verb::Transfer(_) => (Answer::Integer(0), Step::Same),
            Verb::Balance => (Answer::Integer(held(op.slots[0])), Step::Same),
            Verb::ReadAll => {
                (Answer::List(op.slots.iter().map(|slot| Answer::Integer(held(*slot))).collect()), Step::Same)
            }
        };
        if !answer.fits(observed) {
            return Step::Illegal;
        }
        match next {
            Step::Next(next) if next == *state => Step::Same,
            next => next,
        }
    }

    fn reads(&self, op: &Op, observed: Option<&Value>) -> bool {
        match op.verb {
            Verb::Open(_) => false,
            Verb::Transfer(_) => observed == Some(&Value::Integer(0)),
            Verb::Balance | Verb::ReadAll => true,
        }
    }
}
