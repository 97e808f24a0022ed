//! Redis values: strings and counters, lists, sets, hashes, sorted sets, with expiry by the command's stamp.

mod command;
mod data;
mod expiry;
mod outlook;
mod slots;

use std::rc::Rc;

use command::{Command, Single};
use data::{Change, Entry};
use slots::Slots;

use super::answer::Answer;
use super::{Access, Model, Step, Texts, Timed, Unsupported, held};
use crate::history::{Operation, Value};
use crate::planted::{Mutation, planted};

/// Keys that hold Redis values, all absent at first; `docs/histories.md` lists the operations.
///
/// A key whose deadline is at or before the stamp of an operation that touches it is deleted by that operation, even by
/// one that only reads (`specs/curp.md` 7.3). Operations without a stamp see every key alive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kv;

type Bytes = Rc<[u8]>;

/// An operation on one or several keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    slots: Rc<[u32]>,
    stamp: Option<u64>,
    /// Whether anybody could notice that it deletes what has expired for it.
    purges: bool,
    command: Command,
}

impl Model for Kv {
    type State = Slots;
    type Op = Op;

    fn name(&self) -> &'static str {
        "kv"
    }

    fn initial(&self, keys: usize) -> Self::State {
        Slots::absent(keys)
    }

    fn parse(&self, operation: &Operation, slots: &[u32]) -> Result<Op, Unsupported> {
        let command = command::parse(operation)?;
        Ok(Op { slots: Rc::from(slots), stamp: operation.stamp, purges: operation.stamp.is_some(), command })
    }

    fn simplify(&self, operations: &mut [Timed<Op>]) {
        expiry::simplify(operations);
    }

    fn step(&self, state: &Self::State, op: &Op, observed: Option<&Value>) -> Step<Self::State> {
        let alive = |slot: u32| {
            let entry = state[slot].as_ref()?;
            let expired = match (entry.deadline, op.stamp) {
                (Some(deadline), Some(stamp)) if planted(Mutation::DeadlineInclusive) => deadline < stamp,
                (Some(deadline), Some(stamp)) => deadline <= stamp,
                _ => false,
            };
            (!expired).then_some(entry)
        };
        let purged = || {
            let expired = op.slots.iter().filter(|slot| op.purges && alive(**slot).is_none());
            put(state, expired.map(|slot| (*slot, None)))
        };
        match &op.command {
            Command::Single(single) => {
                let slot = op.slots[0];
                let entry = alive(slot);
                let (answer, change) = data::apply(entry, single, op.stamp);
                let pardoned = planted(Mutation::AbsentReadsAnything) && answer == Answer::Nil;
                if !answer.fits(observed) && !pardoned {
                    return Step::Illegal;
                }
                let next = match change {
                    Change::Keep if entry.is_none() && op.purges => None,
                    Change::Keep => return Step::Same,
                    Change::Put(entry) => Some(entry),
                    Change::Delete => None,
                };
                put(state, [(slot, next)])
            }
            Command::MultiGet => {
                let answers = op.slots.iter().map(|slot| alive(*slot).and_then(Entry::text));
                let answers = answers.map(|text| text.map_or(Answer::Nil, Answer::Text)).collect();
                if Answer::List(answers).fits(observed) { purged() } else { Step::Illegal }
            }
            Command::MultiSet(values) => {
                if !Answer::Ok.fits(observed) {
                    return Step::Illegal;
                }
                put(
                    state,
                    op.slots.iter().zip(values).map(|(slot, value)| (*slot, Some(Entry::of_text(value)))),
                )
            }
            Command::Exists => {
                let count = op.slots.iter().filter(|slot| alive(**slot).is_some()).count();
                if Answer::Integer(count as i64).fits(observed) { purged() } else { Step::Illegal }
            }
            Command::Copy { replace } => {
                let (from, to) = (alive(op.slots[0]), alive(op.slots[1]));
                let copies = from.is_some() && (*replace || to.is_none());
                if !Answer::Integer(i64::from(copies)).fits(observed) {
                    return Step::Illegal;
                }
                match copies {
                    true => put(state, [(op.slots[1], from.cloned())]),
                    false => purged(),
                }
            }
            Command::Delete => {
                // A key named twice is there only once.
                let mut counted: Vec<u32> = op.slots.iter().copied().collect();
                counted.sort_unstable();
                counted.dedup();
                let there = |slot: &&u32| alive(**slot).is_some() || planted(Mutation::DeleteCountsAbsent);
                let count = counted.iter().filter(there).count();
                if !Answer::Integer(count as i64).fits(observed) {
                    return Step::Illegal;
                }
                let gone = counted.into_iter().filter(|slot| op.purges || alive(*slot).is_some());
                put(state, gone.map(|slot| (slot, None)))
            }
        }
    }

    fn weight(&self, state: &Self::State) -> usize {
        state.weight()
    }

    fn reads(&self, op: &Op, observed: Option<&Value>) -> bool {
        !op.purges
            && match &op.command {
                Command::MultiGet | Command::Exists => true,
                Command::MultiSet(_) => false,
                Command::Delete | Command::Copy { .. } => observed == Some(&Value::Integer(0)),
                Command::Single(single) => single.reads() || single.idles(observed),
            }
    }

    fn access<'a>(&self, op: &'a Op, observed: Option<&'a Value>) -> Option<Access<'a>> {
        match &op.command {
            Command::Single(Single::Get) => Some(Access::Read(held(observed?)?)),
            Command::Single(single @ Single::Set { value, .. })
                if single.is_plain() && Answer::Ok.fits(observed) =>
            {
                std::str::from_utf8(value).ok().map(Access::Write)
            }
            _ => None,
        }
    }

    fn texts<'a>(&self, op: &'a Op, observed: Option<&'a Value>) -> Option<Texts<'a>> {
        let needed = |(slot, value): (&u32, &'a Value)| match value {
            Value::Text(text) => Some((*slot, text.as_bytes())),
            _ => None,
        };
        Some(match &op.command {
            Command::MultiGet => match observed {
                Some(Value::List(values)) => {
                    Texts::Reads(op.slots.iter().zip(values).filter_map(needed).collect())
                }
                _ => Texts::None,
            },
            Command::MultiSet(values) => Texts::Writes(values.iter().map(|value| &**value).collect()),
            Command::Copy { .. } if observed == Some(&Value::Integer(0)) => Texts::None,
            Command::Copy { .. } => Texts::Copies,
            Command::Exists | Command::Delete => Texts::None,
            Command::Single(Single::Get) => {
                Texts::Reads(op.slots.iter().zip(observed).filter_map(needed).collect())
            }
            Command::Single(single) if single.idles(observed) => Texts::None,
            Command::Single(
                Single::Set { value, .. } | Single::SetIfAbsent(value) | Single::Cas(_, value),
            ) => Texts::Writes(vec![value]),
            Command::Single(Single::Append(_) | Single::SetRange(..) | Single::Add(_)) => return None,
            Command::Single(_) => Texts::None,
        })
    }

    fn slots(&self, state: &Self::State) -> usize {
        state.len()
    }

    fn text<'a>(&self, state: &'a Self::State, slot: u32) -> Option<&'a [u8]> {
        state[slot].as_ref().and_then(Entry::text)
    }

    fn witnesses(&self, known: &[(&Op, Option<&Value>)], unknown: &[&Op]) -> Vec<bool> {
        outlook::witnesses(known, unknown)
    }

    fn is_hopeless(&self, state: &Self::State, target: &Op, seen: Option<&Value>, may: &[&Op]) -> bool {
        outlook::is_hopeless(state[0].as_ref(), target, seen, may)
    }

    fn idle(&self, known: &[(&Op, Option<&Value>)], unknown: &[&Op]) -> Vec<bool> {
        // Where there are only plain SET, MSET, GET and MGET, an unknown write none of whose values was read can be
        // followed only by writes of the same keys or by reads of others: without it they do the same.
        let plain = |op: &Op| match &op.command {
            Command::MultiGet | Command::MultiSet(_) | Command::Single(Single::Get) => true,
            Command::Single(single) => single.is_plain(),
            _ => false,
        };
        if !known.iter().map(|(op, _)| *op).chain(unknown.iter().copied()).all(plain) {
            return vec![false; unknown.len()];
        }
        let read = |value: &Bytes| {
            let answer = Answer::Text(value);
            known.iter().any(|(op, observed)| match (&op.command, observed) {
                (Command::Single(Single::Get) | Command::MultiGet, None) => true,
                (Command::MultiGet, Some(Value::List(seen))) => {
                    seen.iter().any(|seen| answer.fits(Some(seen)))
                }
                (Command::Single(Single::Get), seen) => answer.fits(*seen),
                _ => false,
            })
        };
        unknown
            .iter()
            .map(|op| match &op.command {
                Command::Single(Single::Set { value, .. }) => {
                    !read(value) || planted(Mutation::IdleThoughSeen)
                }
                Command::MultiSet(values) => !values.iter().any(read),
                _ => true,
            })
            .collect()
    }
}

/// `state` with these slots changed.
fn put(state: &Slots, slots: impl IntoIterator<Item = (u32, Option<Entry>)>) -> Step<Slots> {
    state.with(slots).map_or(Step::Same, Step::Next)
}
