//! Dead ends seen early: what unknown operations can still make of a key.
//!
//! Unknown pushes of different tokens do not commute, so without this the search would try them in every order before
//! it saw that none helps. The rules only need to be sound: where they do not apply, the search goes on.

use super::super::answer::canonical;
use super::command::{Command, End, Single};
use super::data::Entry;
use super::{Bytes, Op};
use crate::history::Value;
use crate::planted::{Mutation, planted};

/// Which of the `known` operations show so much of the key that a wrong guess about unknown ones is seen there.
pub(super) fn witnesses(known: &[(&Op, Option<&Value>)], unknown: &[&Op]) -> Vec<bool> {
    let all = || known.iter().map(|(op, _)| *op).chain(unknown.iter().copied());
    let are = |kind: fn(&Single) -> bool| all().all(|op| single(op).is_some_and(kind));
    let lists = are(|single| {
        matches!(single, Single::Push(..) | Single::Pop(..) | Single::Lrange(0, -1) | Single::Llen)
    });
    let texts = are(|single| matches!(single, Single::Append(_) | Single::Get | Single::Strlen));
    let numbers = are(|single| matches!(single, Single::Add(1..) | Single::Get));
    let sets = are(|single| matches!(single, Single::Sadd(_) | Single::Smembers | Single::Sismember(_)));
    let witness = |op: &Op| match single(op) {
        Some(Single::Lrange(..)) => lists,
        Some(Single::Get) => texts || numbers,
        Some(Single::Smembers) => sets,
        _ => false,
    };
    known.iter().map(|(op, _)| witness(op)).collect()
}

/// Whether `target` cannot have been answered `seen`, whichever of the operations `may` come before it.
pub(super) fn is_hopeless(entry: Option<&Entry>, target: &Op, seen: Option<&Value>, may: &[&Op]) -> bool {
    if entry.is_some_and(|entry| entry.deadline.is_some()) {
        return false;
    }
    let (Some(target), Some(seen)) = (single(target), seen) else { return false };
    let Some(may) = may.iter().map(|op| single(op)).collect::<Option<Vec<_>>>() else { return false };
    let writes = || may.iter().filter(|single| !single.reads());
    if writes().next().is_none() {
        // Plain steps decide this.
        return false;
    }
    if let Some(supply) = Supply::of(&may) {
        let list = entry.map_or(Some(&[][..]), Entry::list);
        return list.is_some_and(|list| !supply.may_fit(list, target, seen));
    }
    if writes().all(|single| matches!(single, Single::Append(_))) {
        let text = entry.map_or(Some(&[][..]), Entry::text);
        return text.is_some_and(|text| !may_fit_text(text, target, seen));
    }
    if writes().all(|single| matches!(single, Single::Add(1..))) {
        let text = entry.map_or(Some(&b"0"[..]), Entry::text);
        let number = text.and_then(|text| std::str::from_utf8(text).ok()).and_then(canonical);
        return number.is_some_and(|number| !may_fit_number(number, target, seen));
    }
    if writes().all(|single| matches!(single, Single::Sadd(_))) {
        let members = entry.map_or(Some(Vec::new()), Entry::members);
        return match (target, seen, members) {
            (Single::Smembers, Value::List(seen), Some(members)) => {
                !members.iter().all(|member| seen.iter().any(|seen| is(seen, member)))
            }
            _ => false,
        };
    }
    false
}

/// The operation, if it touches one key.
fn single(op: &Op) -> Option<&Single> {
    match &op.command {
        Command::Single(single) if op.slots.len() == 1 => Some(single),
        _ => None,
    }
}

/// Whether an answer is this string.
fn is(seen: &Value, text: &[u8]) -> bool {
    match seen {
        Value::Text(seen) => seen.as_bytes() == text,
        Value::Integer(seen) => std::str::from_utf8(text).ok().and_then(canonical) == Some(*seen),
        _ => false,
    }
}

/// Appends only make it longer.
fn may_fit_text(text: &[u8], single: &Single, seen: &Value) -> bool {
    match (single, seen) {
        (Single::Get, Value::Text(seen)) => seen.as_bytes().starts_with(text),
        (Single::Append(more), Value::Integer(length)) => *length >= (text.len() + more.len()) as i64,
        (Single::Strlen, Value::Integer(length)) => *length >= text.len() as i64,
        _ => true,
    }
}

/// Increments only make it greater.
fn may_fit_number(number: i64, single: &Single, seen: &Value) -> bool {
    match (single, seen) {
        (Single::Get, Value::Text(seen)) => canonical(seen).is_none_or(|seen| seen >= number),
        (Single::Get, Value::Integer(seen)) => *seen >= number,
        (Single::Add(delta), Value::Integer(seen)) => *seen >= number.saturating_add(*delta),
        _ => true,
    }
}

/// The pushes and pops that may still happen.
struct Supply<'a> {
    pops_left: usize,
    pops_right: usize,
    left: Vec<&'a Bytes>,
    right: Vec<&'a Bytes>,
}

impl<'a> Supply<'a> {
    /// Nothing if there are other writes.
    fn of(may: &[&'a Single]) -> Option<Supply<'a>> {
        let mut supply = Supply { pops_left: 0, pops_right: 0, left: Vec::new(), right: Vec::new() };
        for single in may {
            match single {
                Single::Push(..) if planted(Mutation::OutlookForgetsPushes) => {}
                Single::Pop(..) if planted(Mutation::OutlookForgetsPops) => {}
                Single::Push(End::Left, values) => supply.left.extend(values),
                Single::Push(End::Right, values) => supply.right.extend(values),
                Single::Pop(end, count) => {
                    let pops = match end {
                        End::Left => &mut supply.pops_left,
                        End::Right => &mut supply.pops_right,
                    };
                    // A client may ask for as many as a number can say.
                    *pops = pops.saturating_add(count.unwrap_or(1));
                }
                single if single.reads() => {}
                _ => return None,
            }
        }
        Some(supply)
    }

    fn may_fit(&self, list: &[Bytes], single: &Single, seen: &Value) -> bool {
        let pops = self.pops_left.saturating_add(self.pops_right);
        let lengths = list.len().saturating_sub(pops)..=list.len() + self.left.len() + self.right.len();
        let may_be_long = |length: i64| usize::try_from(length).is_ok_and(|length| lengths.contains(&length));
        match (single, seen) {
            (Single::Push(_, values), Value::Integer(length)) => may_be_long(length - values.len() as i64),
            (Single::Llen, Value::Integer(length)) => may_be_long(*length),
            (Single::Lrange(0, -1), Value::List(seen)) => self.may_become(list, seen),
            (Single::Pop(_, None), Value::Nil) => list.len() <= pops,
            (Single::Pop(End::Left, None), seen) => {
                list.iter().take(self.pops_left.saturating_add(1)).any(|held| is(seen, held))
                    || self.left.iter().any(|token| is(seen, token))
                    || list.len() <= pops && self.right.iter().any(|token| is(seen, token))
            }
            (Single::Pop(End::Right, None), seen) => {
                list.iter().rev().take(self.pops_right.saturating_add(1)).any(|held| is(seen, held))
                    || self.right.iter().any(|token| is(seen, token))
                    || list.len() <= pops && self.left.iter().any(|token| is(seen, token))
            }
            _ => true,
        }
    }

    /// Whether `list`, cut at its ends by pops and then grown by pushes, may be what was `seen`.
    fn may_become(&self, list: &[Bytes], seen: &[Value]) -> bool {
        let grown = |part: &[Value], tokens: &[&Bytes]| {
            part.iter().all(|seen| tokens.iter().any(|token| is(seen, token)))
        };
        let pops = self.pops_left.saturating_add(self.pops_right);
        let any: Vec<&Bytes> = self.left.iter().chain(&self.right).copied().collect();
        if list.len() <= pops && grown(seen, &any) {
            return true;
        }
        for front in 0..=self.pops_left.min(list.len()) {
            for back in 0..=self.pops_right.min(list.len() - front) {
                let kept = &list[front..list.len() - back];
                if kept.is_empty() || kept.len() > seen.len() {
                    continue;
                }
                let fits = |start: &usize| {
                    let (before, rest) = seen.split_at(*start);
                    let (same, after) = rest.split_at(kept.len());
                    same.iter().zip(kept).all(|(seen, held)| is(seen, held))
                        && grown(before, &self.left)
                        && grown(after, &self.right)
                };
                if (0..=seen.len() - kept.len()).any(|start| fits(&start)) {
                    return true;
                }
            }
        }
        false
    }
}
