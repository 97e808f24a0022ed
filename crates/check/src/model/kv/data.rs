//! What a key of the `kv` model holds, and what one operation does to it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::super::answer::{Answer, canonical};
use super::Bytes;
use super::command::{Condition, End, Score, Single};
use crate::planted::{Mutation, planted};

/// A key that is there. A collection is never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    data: Data,
    /// When it expires, in nanoseconds of the commands' stamps.
    pub(super) deadline: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Data {
    Text(Bytes),
    List(Rc<Vec<Bytes>>),
    Set(Rc<BTreeSet<Bytes>>),
    Hash(Rc<BTreeMap<Bytes, Bytes>>),
    Zset(Rc<BTreeMap<Bytes, Score>>),
}

/// What becomes of the key.
pub(super) enum Change {
    Keep,
    Put(Entry),
    Delete,
}

impl Entry {
    /// A string without a deadline.
    pub(super) fn of_text(text: &Bytes) -> Entry {
        Entry { data: Data::Text(Rc::clone(text)), deadline: None }
    }

    /// The string that it holds, if it holds one.
    pub(super) fn text(&self) -> Option<&[u8]> {
        match &self.data {
            Data::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The list that it holds, if it holds one.
    pub(super) fn list(&self) -> Option<&[Bytes]> {
        match &self.data {
            Data::List(list) => Some(list),
            _ => None,
        }
    }

    /// About how many bytes it takes; strings are mostly shared with the operations.
    pub(super) fn weight(&self) -> usize {
        64 + match &self.data {
            Data::Text(text) => text.len(),
            Data::List(list) => 16 * list.len(),
            Data::Set(set) => 32 * set.len(),
            Data::Hash(hash) => 64 * hash.len(),
            Data::Zset(zset) => 48 * zset.len(),
        }
    }

    /// The members of the set that it holds, if it holds one.
    pub(super) fn members(&self) -> Option<Vec<&Bytes>> {
        match &self.data {
            Data::Set(set) => Some(set.iter().collect()),
            _ => None,
        }
    }
}

const WRONG_TYPE: (Answer<'static>, Change) = (Answer::Error("WRONGTYPE"), Change::Keep);
const WRONG_VALUE: (Answer<'static>, Change) = (Answer::Error("ERR"), Change::Keep);
const ZERO: (Answer<'static>, Change) = (Answer::Integer(0), Change::Keep);

/// Takes the value of one kind out of an entry, an empty one where the key is absent; returns for another kind.
macro_rules! held {
    ($entry:expr, $kind:ident) => {
        match $entry.map(|entry| &entry.data) {
            None => None,
            Some(Data::$kind(value)) => Some(value),
            Some(_) if planted(Mutation::WrongTypeAccepted) => None,
            Some(_) => return WRONG_TYPE,
        }
    };
}

/// Runs `command` on a key as it is for this command (`None`: absent or expired).
pub(super) fn apply<'s>(
    entry: Option<&'s Entry>,
    command: &Single,
    stamp: Option<u64>,
) -> (Answer<'s>, Change) {
    let (answer, change) = match command {
        Single::Type | Single::ExpireTime | Single::ExpireAt(_) | Single::Persist => on_key(entry, command),
        Single::Llen | Single::Lrange(..) | Single::Push(..) | Single::Pop(..) => on_list(entry, command),
        Single::Scard | Single::Smembers | Single::Sismember(_) | Single::Sadd(_) | Single::Srem(_) => {
            on_set(entry, command)
        }
        Single::Hget(_) | Single::Hgetall | Single::Hlen | Single::Hexists(_) => on_hash(entry, command),
        Single::Hset(_) | Single::Hdel(_) | Single::HashAdd(..) => on_hash(entry, command),
        Single::Zscore(_) | Single::Zcard | Single::Zrange(..) => on_zset(entry, command),
        Single::Zadd(_) | Single::ScoreAdd(..) | Single::Zrem(_) => on_zset(entry, command),
        _ => on_string(entry, command),
    };
    // A deadline that is past when it is set deletes the key.
    let past = |entry: &Entry| entry.deadline.zip(stamp).is_some_and(|(deadline, stamp)| deadline <= stamp);
    match change {
        Change::Put(entry) if past(&entry) => (answer, Change::Delete),
        change => (answer, change),
    }
}

fn on_key<'s>(entry: Option<&'s Entry>, command: &Single) -> (Answer<'s>, Change) {
    let Some(entry) = entry else {
        return match command {
            Single::Type => (Answer::Text(b"none"), Change::Keep),
            Single::ExpireTime => (Answer::Integer(-2), Change::Keep),
            _ => ZERO,
        };
    };
    let with = |deadline| Change::Put(Entry { data: entry.data.clone(), deadline });
    match command {
        Single::Type => {
            let name: &[u8] = match entry.data {
                Data::Text(_) => b"string",
                Data::List(_) => b"list",
                Data::Set(_) => b"set",
                Data::Hash(_) => b"hash",
                Data::Zset(_) => b"zset",
            };
            (Answer::Text(name), Change::Keep)
        }
        Single::ExpireTime => {
            let deadline = entry.deadline.map_or(-1, |deadline| i64::try_from(deadline).unwrap_or(i64::MAX));
            (Answer::Integer(deadline), Change::Keep)
        }
        Single::ExpireAt(deadline) => (Answer::Integer(1), with(Some(*deadline))),
        _ if entry.deadline.is_some() => (Answer::Integer(1), with(None)),
        _ => ZERO,
    }
}

fn on_string<'s>(entry: Option<&'s Entry>, command: &Single) -> (Answer<'s>, Change) {
    let deadline = entry.and_then(|entry| entry.deadline);
    let put = |text: Bytes, deadline| Change::Put(Entry { data: Data::Text(text), deadline });
    // SET without GET overwrites any type.
    if let Single::Set { value, condition, get, deadline: new, keep } = command {
        let old = match entry.map(Entry::text) {
            Some(None) if *get => return WRONG_TYPE,
            old => old.flatten().map_or(Answer::Nil, Answer::Text),
        };
        let met = match condition {
            Condition::Always => true,
            Condition::IfAbsent => entry.is_none() || planted(Mutation::NxOverwrites),
            Condition::IfPresent => entry.is_some() || planted(Mutation::XxCreates),
        };
        let keep = *keep || planted(Mutation::SetKeepsDeadline);
        let change = match met {
            true => put(Rc::clone(value), if keep { deadline } else { *new }),
            false => Change::Keep,
        };
        let answer = match (get, met) {
            (true, _) => old,
            (false, true) => Answer::Ok,
            (false, false) => Answer::Nil,
        };
        return (answer, change);
    }
    if let Single::SetIfAbsent(value) = command {
        return match entry {
            None => (Answer::Integer(1), put(Rc::clone(value), None)),
            Some(_) => ZERO,
        };
    }
    let text = held!(entry, Text).map(|text| &**text);
    let size = |length: usize| Answer::Integer(length as i64);
    match command {
        Single::Get => (text.map_or(Answer::Nil, Answer::Text), Change::Keep),
        Single::Strlen => (size(text.unwrap_or_default().len()), Change::Keep),
        Single::GetRange(from, to) => {
            let text = text.unwrap_or_default();
            (Answer::Text(&text[range(text.len(), *from, *to)]), Change::Keep)
        }
        Single::Append(more) => {
            let held = if planted(Mutation::AppendReplaces) { &[] } else { text.unwrap_or_default() };
            let joined = [held, more].concat();
            (size(joined.len()), put(Rc::from(joined), deadline))
        }
        Single::SetRange(_, piece) if piece.is_empty() => {
            (size(text.unwrap_or_default().len()), Change::Keep)
        }
        Single::SetRange(offset, piece) => {
            let mut whole = text.unwrap_or_default().to_vec();
            whole.resize(whole.len().max(offset + piece.len()), 0);
            whole[*offset..offset + piece.len()].copy_from_slice(piece);
            (size(whole.len()), put(Rc::from(whole), deadline))
        }
        Single::Add(delta) => {
            let delta = if planted(Mutation::IncrementByOne) { 1 } else { *delta };
            match number(text).and_then(|held| held.checked_add(delta)) {
                Some(sum) => (Answer::Integer(sum), put(decimal(sum), deadline)),
                None => WRONG_VALUE,
            }
        }
        Single::GetDelete => match text {
            Some(text) => (Answer::Text(text), Change::Delete),
            None => (Answer::Nil, Change::Keep),
        },
        Single::Cas(old, new) if text == Some(&**old) || planted(Mutation::CasIgnoresExpected) => {
            (Answer::Integer(1), put(Rc::clone(new), deadline))
        }
        _ => ZERO,
    }
}

fn on_list<'s>(entry: Option<&'s Entry>, command: &Single) -> (Answer<'s>, Change) {
    let list = held!(entry, List).map_or(&[][..], |list| list.as_slice());
    let deadline = entry.and_then(|entry| entry.deadline);
    let put = |list: Vec<Bytes>| match list.is_empty() {
        true => Change::Delete,
        false => Change::Put(Entry { data: Data::List(Rc::new(list)), deadline }),
    };
    let answers = |part: &'s [Bytes]| Answer::List(part.iter().map(|value| Answer::Text(value)).collect());
    match command {
        Single::Lrange(from, to) => (answers(&list[range(list.len(), *from, *to)]), Change::Keep),
        Single::Push(end, values) => {
            let mut next = Vec::with_capacity(list.len() + values.len());
            if *end == End::Left {
                next.extend(values.iter().rev().cloned());
            }
            next.extend_from_slice(list);
            if *end == End::Right {
                next.extend(values.iter().cloned());
            }
            (Answer::Integer(next.len() as i64), put(next))
        }
        Single::Pop(..) if list.is_empty() => (Answer::Nil, Change::Keep),
        Single::Pop(end, count) => {
            let taken = count.unwrap_or(1).min(list.len());
            if *end == End::Left && !planted(Mutation::PopFromTail) {
                let (gone, rest) = list.split_at(taken);
                let answer = if count.is_some() { answers(gone) } else { Answer::Text(&gone[0]) };
                (answer, put(rest.to_vec()))
            } else {
                let (rest, gone) = list.split_at(list.len() - taken);
                let answer = match count {
                    Some(_) => Answer::List(gone.iter().rev().map(|value| Answer::Text(value)).collect()),
                    None => Answer::Text(&gone[0]),
                };
                (answer, put(rest.to_vec()))
            }
        }
        _ => (Answer::Integer(list.len() as i64), Change::Keep),
    }
}

fn on_set<'s>(entry: Option<&'s Entry>, command: &Single) -> (Answer<'s>, Change) {
    let set = held!(entry, Set);
    let deadline = entry.and_then(|entry| entry.deadline);
    let has = |member: &Bytes| set.is_some_and(|set| set.contains(member));
    let mut next: BTreeSet<Bytes> = BTreeSet::new();
    let before = set.map_or(0, |set| set.len());
    match command {
        Single::Smembers => {
            let members = set.into_iter().flat_map(|set| set.iter()).map(|member| Answer::Text(member));
            return (Answer::List(members.collect()), Change::Keep);
        }
        Single::Sismember(member) => return (Answer::Integer(has(member).into()), Change::Keep),
        Single::Sadd(members) => {
            next.extend(set.into_iter().flat_map(|set| set.iter().cloned()));
            next.extend(members.iter().cloned());
        }
        Single::Srem(members) => {
            next.extend(set.into_iter().flat_map(|set| set.iter().cloned()));
            members.iter().for_each(|member| _ = next.remove(member));
        }
        _ => return (Answer::Integer(before as i64), Change::Keep),
    }
    let changed = next.len().abs_diff(before) as i64;
    let change = match (changed, next.is_empty()) {
        (0, _) => Change::Keep,
        (_, true) => Change::Delete,
        (_, false) => Change::Put(Entry { data: Data::Set(Rc::new(next)), deadline }),
    };
    (Answer::Integer(changed), change)
}

fn on_hash<'s>(entry: Option<&'s Entry>, command: &Single) -> (Answer<'s>, Change) {
    let hash = held!(entry, Hash);
    let deadline = entry.and_then(|entry| entry.deadline);
    let get = |field: &Bytes| hash.and_then(|hash| hash.get(field)).map(|value| &**value);
    let before = hash.map_or(0, |hash| hash.len());
    let copy = || hash.map(|hash| (**hash).clone()).unwrap_or_default();
    let put = |hash: BTreeMap<Bytes, Bytes>| match hash.is_empty() {
        true => Change::Delete,
        false => Change::Put(Entry { data: Data::Hash(Rc::new(hash)), deadline }),
    };
    match command {
        Single::Hget(field) => (get(field).map_or(Answer::Nil, Answer::Text), Change::Keep),
        Single::Hexists(field) => (Answer::Integer(get(field).is_some().into()), Change::Keep),
        Single::Hgetall => {
            let pairs = hash.into_iter().flat_map(|hash| hash.iter());
            let words = pairs.flat_map(|(field, value)| [Answer::Text(field), Answer::Text(value)]);
            (Answer::List(words.collect()), Change::Keep)
        }
        Single::Hset(pairs) => {
            let mut next = copy();
            next.extend(pairs.iter().cloned());
            (Answer::Integer((next.len() - before) as i64), put(next))
        }
        Single::Hdel(fields) => {
            let mut next = copy();
            fields.iter().for_each(|field| _ = next.remove(field));
            let gone = before - next.len();
            (Answer::Integer(gone as i64), if gone == 0 { Change::Keep } else { put(next) })
        }
        Single::HashAdd(field, delta) => match number(get(field)).and_then(|held| held.checked_add(*delta)) {
            Some(sum) => {
                let mut next = copy();
                next.insert(Rc::clone(field), decimal(sum));
                (Answer::Integer(sum), put(next))
            }
            None => WRONG_VALUE,
        },
        _ => (Answer::Integer(before as i64), Change::Keep),
    }
}

fn on_zset<'s>(entry: Option<&'s Entry>, command: &Single) -> (Answer<'s>, Change) {
    let zset = held!(entry, Zset);
    let deadline = entry.and_then(|entry| entry.deadline);
    let get = |member: &Bytes| zset.and_then(|zset| zset.get(member)).copied();
    let before = zset.map_or(0, |zset| zset.len());
    let copy = || zset.map(|zset| (**zset).clone()).unwrap_or_default();
    let put = |zset: BTreeMap<Bytes, Score>| match zset.is_empty() {
        true => Change::Delete,
        false => Change::Put(Entry { data: Data::Zset(Rc::new(zset)), deadline }),
    };
    match command {
        Single::Zscore(member) => {
            (get(member).map_or(Answer::Nil, |score| Answer::Float(score.get())), Change::Keep)
        }
        Single::Zrange(from, to) => {
            let mut order: Vec<(&Bytes, f64)> = zset
                .into_iter()
                .flat_map(|zset| zset.iter())
                .map(|(member, score)| (member, score.get()))
                .collect();
            // Members are sorted already; the sort is stable, so equal scores keep that order.
            order.sort_by(|a, b| a.1.total_cmp(&b.1));
            let part = &order[range(order.len(), *from, *to)];
            (Answer::List(part.iter().map(|(member, _)| Answer::Text(member)).collect()), Change::Keep)
        }
        Single::Zadd(pairs) => {
            let mut next = copy();
            next.extend(pairs.iter().map(|(score, member)| (Rc::clone(member), *score)));
            (Answer::Integer((next.len() - before) as i64), put(next))
        }
        Single::ScoreAdd(delta, member) => {
            match Score::new(get(member).map_or(0.0, Score::get) + delta.get()) {
                Some(sum) => {
                    let mut next = copy();
                    next.insert(Rc::clone(member), sum);
                    (Answer::Float(sum.get()), put(next))
                }
                None => WRONG_VALUE,
            }
        }
        Single::Zrem(members) => {
            let mut next = copy();
            members.iter().for_each(|member| _ = next.remove(member));
            let gone = before - next.len();
            (Answer::Integer(gone as i64), if gone == 0 { Change::Keep } else { put(next) })
        }
        _ => (Answer::Integer(before as i64), Change::Keep),
    }
}

/// The places that Redis' inclusive range means, where negative numbers count from the end.
fn range(length: usize, from: i64, to: i64) -> std::ops::Range<usize> {
    let length = length as i64;
    let place = |index: i64| if index < 0 { length + index } else { index };
    let (from, to) = (place(from).max(0), place(to).min(length - 1));
    if from > to { 0..0 } else { from as usize..to as usize + 1 }
}

/// The integer that a string holds; an absent one holds zero.
fn number(text: Option<&[u8]>) -> Option<i64> {
    text.map_or(Some(0), |text| std::str::from_utf8(text).ok().and_then(canonical))
}

fn decimal(number: i64) -> Bytes {
    Rc::from(number.to_string().into_bytes())
}
