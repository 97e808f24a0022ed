//! Texts that somebody still has to read: what must not be lost.
//!
//! A read that was answered with a text needs that text in its key. Where texts come only from operations that write
//! them literally, or copy them, a configuration in which the text is in no key from which it could come, and nobody
//! is left to write it, leads nowhere, however far away the read is.

use rustc_hash::FxHashMap;

use crate::model::{Model, Texts};
use crate::planted::{Mutation, planted};
use crate::search::{Known, Unknown};

/// What one operation does, with numbers for texts.
#[derive(Default)]
struct Part {
    /// The keys, as slots, and the texts that they must hold.
    needs: Box<[(u32, u32)]>,
    writes: Box<[u32]>,
    copies: bool,
}

/// What is left to do with one text.
#[derive(Default)]
struct Left {
    /// How many reads need it, by slot.
    needed: Vec<(u32, u32)>,
    /// How many operations may write it.
    writers: u32,
}

/// What the operations that are not in the order yet need and bring.
pub(crate) struct Needs {
    numbers: FxHashMap<Box<[u8]>, u32>,
    known: Vec<Part>,
    unknown: Vec<Part>,
    left: Vec<Left>,
    copies: u32,
}

impl Needs {
    /// Of all operations; nothing where texts may come from elsewhere, or nobody needs any.
    pub(crate) fn new<M: Model>(
        model: &M,
        known: &[Known<'_, M::Op>],
        unknown: &[Unknown<M::Op>],
    ) -> Option<Needs> {
        let empty =
            Needs { numbers: FxHashMap::default(), known: vec![], unknown: vec![], left: vec![], copies: 0 };
        let mut needs = empty;
        for operation in known {
            let part = needs.part(model.texts(&operation.op, operation.observed)?);
            needs.known.push(part);
        }
        for operation in unknown {
            let part = needs.part(model.texts(&operation.op, None)?);
            needs.unknown.push(part);
        }
        (0..needs.known.len()).for_each(|number| needs.known_is_left(number as u32));
        (0..needs.unknown.len()).for_each(|number| needs.unknown_is_left(number as u32));
        needs.left.iter().any(|left| !left.needed.is_empty()).then_some(needs)
    }

    fn part(&mut self, texts: Texts<'_>) -> Part {
        match texts {
            Texts::None => Part::default(),
            Texts::Reads(texts) => Part {
                needs: texts.into_iter().map(|(slot, text)| (slot, self.number(text))).collect(),
                ..Part::default()
            },
            Texts::Writes(texts) => {
                Part { writes: texts.into_iter().map(|text| self.number(text)).collect(), ..Part::default() }
            }
            Texts::Copies => Part { copies: true, ..Part::default() },
        }
    }

    fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.left.len() as u32;
        self.left.push(Left::default());
        self.numbers.insert(text.into(), number);
        number
    }

    /// The known operation is in the order now.
    pub(crate) fn known_is_done(&mut self, number: u32) {
        change(&mut self.left, &mut self.copies, &self.known[number as usize], |count| count - 1);
    }

    /// It is not any more.
    pub(crate) fn known_is_left(&mut self, number: u32) {
        change(&mut self.left, &mut self.copies, &self.known[number as usize], |count| count + 1);
    }

    pub(crate) fn unknown_is_done(&mut self, number: u32) {
        change(&mut self.left, &mut self.copies, &self.unknown[number as usize], |count| count - 1);
    }

    pub(crate) fn unknown_is_left(&mut self, number: u32) {
        change(&mut self.left, &mut self.copies, &self.unknown[number as usize], |count| count + 1);
    }

    /// Whether the step from `before` to `after` lost a text that is needed.
    pub(crate) fn are_lost<M: Model>(&self, model: &M, before: &M::State, after: &M::State) -> bool {
        let slots = model.slots(after) as u32;
        (0..slots).any(|slot| {
            let Some(text) = model.text(before, slot) else { return false };
            if model.text(after, slot) == Some(text) {
                return false;
            }
            let Some(number) = self.numbers.get(text) else { return false };
            let left = &self.left[*number as usize];
            let holds = |slot: u32| model.text(after, slot) == Some(text);
            (left.writers == 0 || planted(Mutation::LostThoughWritten))
                && left.needed.iter().any(|(slot, count)| *count > 0 && !holds(*slot))
                && (self.copies == 0 || !(0..slots).any(holds) || planted(Mutation::LostThoughCopied))
        })
    }
}

/// Counts what `part` needs and brings once more, or once less.
fn change(left: &mut [Left], copies: &mut u32, part: &Part, by: fn(u32) -> u32) {
    for (slot, text) in &part.needs {
        let needed = &mut left[*text as usize].needed;
        match needed.iter_mut().find(|(at, _)| at == slot) {
            Some((_, count)) => *count = by(*count),
            None => needed.push((*slot, by(0))),
        }
    }
    for text in &part.writes {
        let writers = &mut left[*text as usize].writers;
        *writers = by(*writers);
    }
    if part.copies {
        *copies = by(*copies);
    }
}
