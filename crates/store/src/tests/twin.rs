//! The store beside a deliberately dumb twin: random commands, equal answers.

use super::*;
use isochrone_core::Export;
use isochrone_core::command::{ExpiryCondition, Slice, Touch};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone)]
enum Value {
    String(Vec<u8>),
    Hash(BTreeMap<Blob, Blob>),
    List(Vec<Blob>),
    Set(BTreeSet<Blob>),
    Sorted(BTreeMap<Blob, Score>),
}

#[derive(Default)]
struct Twin(BTreeMap<Blob, (Value, Option<Stamp>)>);

macro_rules! typed {
    ($twin:expr, $key:expr, $kind:ident, $default:expr) => {
        match &mut $twin.0.entry($key.clone()).or_insert((Value::$kind($default), None)).0 {
            Value::$kind(value) => value,
            _ => return WRONG_TYPE,
        }
    };
}

impl Twin {
    fn run(&mut self, stamp: Stamp, operation: &Operation) -> Response {
        if *operation == Operation::DbSize {
            // It names no key, and deletes none.
            let alive = self.0.values().filter(|(_, deadline)| deadline.is_none_or(|at| at > stamp));
            return Response::count(alive.count());
        }
        self.purge(stamp, operation);
        let answer = self.execute(operation);
        // A deadline that has just been set may be past.
        self.purge(stamp, operation);
        self.0.retain(|_, (value, _)| match value {
            Value::String(_) => true,
            Value::Hash(hash) => !hash.is_empty(),
            Value::List(list) => !list.is_empty(),
            Value::Set(set) => !set.is_empty(),
            Value::Sorted(set) => !set.is_empty(),
        });
        answer
    }

    fn purge(&mut self, stamp: Stamp, operation: &Operation) {
        let sets = operation.sets();
        self.0.retain(|key, (_, deadline)| {
            let touched = sets.reads.contains(key) || sets.writes.contains(key);
            !touched || deadline.is_none_or(|at| at > stamp)
        });
    }

    fn execute(&mut self, operation: &Operation) -> Response {
        let bulk = |bytes: &Blob| Response::Bulk(bytes.clone());
        match operation {
            Operation::Get { key } => match self.0.get(key) {
                None => Response::Nil,
                Some((Value::String(value), _)) => Response::bulk(value),
                Some(_) => WRONG_TYPE,
            },
            Operation::Set { key, value, condition, expiry, .. } => {
                let held = self.0.get(key);
                match (condition, held) {
                    (Condition::IfAbsent, Some(_)) | (Condition::IfPresent, None) => return Response::Nil,
                    _ => {}
                }
                let deadline = match expiry {
                    Expiry::Clear => None,
                    Expiry::Keep => held.and_then(|(_, deadline)| *deadline),
                    Expiry::At(deadline) => Some(*deadline),
                };
                self.0.insert(key.clone(), (Value::String(value.to_vec()), deadline));
                Response::Ok
            }
            Operation::Append { key, value } => {
                let held = typed!(self, key, String, Vec::new());
                held.extend_from_slice(value);
                Response::count(held.len())
            }
            Operation::IncrBy { key, by } => {
                let held = typed!(self, key, String, b"0".to_vec());
                let text = String::from_utf8(held.clone()).unwrap();
                let Some(number) = text.parse::<i64>().ok().filter(|number| number.to_string() == text)
                else {
                    return Refusal::NotInteger.into();
                };
                let Some(sum) = number.checked_add(*by) else { return Refusal::Overflow.into() };
                *held = sum.to_string().into_bytes();
                Response::Integer(sum)
            }
            Operation::Del { keys } => {
                Response::count(keys.iter().filter(|key| self.0.remove(*key).is_some()).count())
            }
            Operation::Exists { keys } => {
                Response::count(keys.iter().filter(|key| self.0.contains_key(*key)).count())
            }
            Operation::ExpireAt { key, at, .. } => match self.0.get_mut(key) {
                None => Response::Integer(0),
                Some((_, deadline)) => {
                    *deadline = Some(*at);
                    Response::Integer(1)
                }
            },
            Operation::Persist { key } => {
                Response::yes(self.0.get_mut(key).is_some_and(|(_, deadline)| deadline.take().is_some()))
            }
            Operation::Rename { key, target, .. } => match self.0.remove(key) {
                None => Refusal::NoSuchKey.into(),
                Some(value) => {
                    self.0.insert(target.clone(), value);
                    Response::Ok
                }
            },
            Operation::HSet { key, pairs } => {
                let hash = typed!(self, key, Hash, BTreeMap::new());
                Response::count(
                    pairs
                        .iter()
                        .filter(|(field, value)| hash.insert(field.clone(), value.clone()).is_none())
                        .count(),
                )
            }
            Operation::HDel { key, fields } => {
                let hash = typed!(self, key, Hash, BTreeMap::new());
                Response::count(fields.iter().filter(|field| hash.remove(*field).is_some()).count())
            }
            Operation::HGetAll { key } => {
                let hash = typed!(self, key, Hash, BTreeMap::new());
                Response::Map(hash.iter().map(|(field, value)| (bulk(field), bulk(value))).collect())
            }
            Operation::Push { key, values, side, .. } => {
                let list = typed!(self, key, List, Vec::new());
                for value in values.iter() {
                    list.insert(if *side == Side::Left { 0 } else { list.len() }, value.clone());
                }
                Response::count(list.len())
            }
            Operation::Pop { key, side, .. } => {
                let list = typed!(self, key, List, Vec::new());
                let popped = match side {
                    _ if list.is_empty() => None,
                    Side::Left => Some(list.remove(0)),
                    Side::Right => list.pop(),
                };
                popped.map_or(Response::Nil, Response::Bulk)
            }
            Operation::LRange { key, .. } => {
                let list = typed!(self, key, List, Vec::new());
                Response::Array(list.iter().map(bulk).collect())
            }
            Operation::SAdd { key, members } => {
                let set = typed!(self, key, Set, BTreeSet::new());
                Response::count(members.iter().filter(|member| set.insert((*member).clone())).count())
            }
            Operation::SRem { key, members } => {
                let set = typed!(self, key, Set, BTreeSet::new());
                Response::count(members.iter().filter(|member| set.remove(*member)).count())
            }
            Operation::SMembers { key } => {
                let set = typed!(self, key, Set, BTreeSet::new());
                Response::Set(set.iter().map(bulk).collect())
            }
            Operation::ZAdd { key, members, .. } => {
                let set = typed!(self, key, Sorted, BTreeMap::new());
                Response::count(
                    members
                        .iter()
                        .filter(|(score, member)| set.insert(member.clone(), *score).is_none())
                        .count(),
                )
            }
            Operation::ZRem { key, members } => {
                let set = typed!(self, key, Sorted, BTreeMap::new());
                Response::count(members.iter().filter(|member| set.remove(*member).is_some()).count())
            }
            Operation::ZRange { key, .. } => {
                let set = typed!(self, key, Sorted, BTreeMap::new());
                let mut order: Vec<_> = set.iter().map(|(member, score)| (*score, member)).collect();
                order.sort();
                Response::Pairs(
                    order.iter().map(|(score, member)| (bulk(member), Response::Double(*score))).collect(),
                )
            }
            Operation::ZRank { key, member, .. } => {
                let set = typed!(self, key, Sorted, BTreeMap::new());
                let Some(score) = set.get(member) else { return Response::Nil };
                let before = set.iter().filter(|(other, held)| (*held, *other) < (score, member)).count();
                Response::count(before)
            }
            other => panic!("the twin does not know {other:?}"),
        }
    }
}

/// Sets and maps in order; arrays have an order of their own.
fn unordered(response: Response) -> Response {
    if matches!(response, Response::Array(_)) { response } else { sorted(response) }
}

fn key() -> impl Strategy<Value = Blob> {
    (0..6u8).prop_map(|number| Blob::new(&[b'a' + number]))
}

fn element() -> impl Strategy<Value = Blob> {
    (0..50u8).prop_map(|number| b(&format!("m{number}")))
}

fn elements() -> impl Strategy<Value = Keys> {
    prop::collection::vec(element(), 1..20).prop_map(Keys::from)
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Left), Just(Side::Right)]
}

fn operation() -> impl Strategy<Value = Operation> {
    let condition =
        prop_oneof![Just(Condition::Always), Just(Condition::IfAbsent), Just(Condition::IfPresent)];
    let expiry = prop_oneof![
        Just(Expiry::Clear),
        Just(Expiry::Keep),
        (1..100u64).prop_map(|millis| Expiry::At(at(millis)))
    ];
    let value =
        prop_oneof![(-20..20i64).prop_map(|n| b(&n.to_string())), "[0-9a-]{0,4}".prop_map(Blob::from)];
    prop_oneof![
        key().prop_map(|key| Operation::Get { key }),
        (key(), value.clone(), condition, expiry).prop_map(|(key, value, condition, expiry)| {
            Operation::Set { key, value, condition, expiry, get: false }
        }),
        (key(), value).prop_map(|(key, value)| Operation::Append { key, value }),
        (key(), prop_oneof![-3..4i64, any::<i64>()]).prop_map(|(key, by)| Operation::IncrBy { key, by }),
        prop::collection::vec(key(), 1..3).prop_map(|keys| Operation::Del { keys: keys.into() }),
        prop::collection::vec(key(), 1..3).prop_map(|keys| Operation::Exists { keys: keys.into() }),
        Just(Operation::DbSize),
        (key(), 1..100u64).prop_map(|(key, millis)| {
            Operation::ExpireAt { key, at: at(millis), condition: ExpiryCondition::Always }
        }),
        key().prop_map(|key| Operation::Persist { key }),
        (key(), key()).prop_map(|(key, target)| Operation::Rename { key, target, only_if_absent: false }),
        (key(), elements()).prop_map(|(key, fields)| Operation::HSet {
            key,
            pairs: fields.iter().map(|field| (field.clone(), field.clone())).collect()
        }),
        (key(), elements()).prop_map(|(key, fields)| Operation::HDel { key, fields }),
        key().prop_map(|key| Operation::HGetAll { key }),
        (key(), elements(), side())
            .prop_map(|(key, values, side)| { Operation::Push { key, values, side, only_if_exists: false } }),
        (key(), side()).prop_map(|(key, side)| Operation::Pop { key, side, count: None }),
        key().prop_map(|key| Operation::LRange { key, start: 0, stop: -1 }),
        (key(), elements()).prop_map(|(key, members)| Operation::SAdd { key, members }),
        (key(), elements()).prop_map(|(key, members)| Operation::SRem { key, members }),
        key().prop_map(|key| Operation::SMembers { key }),
        (key(), elements(), -5..5i32).prop_map(|(key, members, base)| Operation::ZAdd {
            key,
            flags: Default::default(),
            members: members
                .iter()
                .zip(base..)
                .map(|(m, n)| (score(f64::from(n) / 2.0), m.clone()))
                .collect()
        }),
        (key(), elements()).prop_map(|(key, members)| Operation::ZRem { key, members }),
        key().prop_map(|key| Operation::ZRange {
            key,
            slice: Slice { selection: index(0, -1), reverse: false, limit: None }.into(),
            with_scores: true
        }),
        (key(), element()).prop_map(|(key, member)| {
            Operation::ZRank { key, member, reverse: false, with_score: false }
        }),
    ]
}

/// Also what nobody but those who watch can tell of.
fn watching() -> impl Strategy<Value = Operation> {
    prop_oneof![6 => operation(), 1 => (key(), 0..3u64).prop_map(|(key, seed)| Operation::Watch { key, seed })]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Stamps jump back and forth. In between the store is rebuilt from its chunks.
    #[test]
    fn agrees_with_a_dumb_twin(commands in prop::collection::vec((1..100u64, operation()), 1..120)) {
        let (mut store, mut twin) = (Store::default(), Twin::default());
        for (number, (millis, operation)) in commands.into_iter().enumerate() {
            let answer = store.run_at(millis, operation.clone());
            prop_assert_eq!(unordered(answer), unordered(twin.run(at(millis), &operation)), "{:?} at {}", operation, millis);
            prop_assert_eq!(store.len(), twin.0.len());
            if number % 40 == 39 {
                let view = store.export();
                let mut copy = Store::default();
                for index in 0.. {
                    let Some(chunk) = view.chunk(index) else { break };
                    copy.absorb(&chunk).unwrap();
                }
                prop_assert!(copy == store && copy.digest() == store.digest());
                store = copy;
            }
        }
    }

    /// Commands that do not conflict give the same answers and the same state in either order.
    #[test]
    fn commuting_commands_commute(
        before in prop::collection::vec((1..100u64, watching()), 0..30),
        one in (1..100u64, watching()),
        other in (1..100u64, watching()),
    ) {
        let mut first = Store::default();
        for (millis, operation) in before {
            first.run_at(millis, operation);
        }
        let mut second = first.clone();
        let conflict = isochrone_core::command::conflict(&one.1, &other.1);
        let reads = one.1.is_read() && other.1.is_read();
        let answers = (first.run_at(one.0, one.1.clone()), first.run_at(other.0, other.1.clone()));
        let swapped = (second.run_at(other.0, other.1), second.run_at(one.0, one.1));
        // Two reads may find a key expired or not, by their order; they leave the same state.
        if conflict.is_none() {
            prop_assert!(reads || answers == (swapped.1, swapped.0));
            prop_assert!(first == second);
            prop_assert_eq!(first.digest(), second.digest());
        }
    }

    /// Commands that are taken back, latest first, leave nothing; a copy is as good as the original for that.
    #[test]
    fn what_is_taken_back_was_never_there(
        before in prop::collection::vec((1..100u64, watching()), 0..30),
        behind in prop::collection::vec((1..100u64, prop_oneof![
            8 => watching(), 1 => Just(Operation::Flush), 1 => key().prop_map(|key| Operation::Sweep { keys: [key].into() })
        ]), 1..30),
    ) {
        let mut store = Store::default();
        for (millis, operation) in before {
            store.run_at(millis, operation);
        }
        let untouched = store.clone();
        let mut back = Vec::new();
        for (millis, operation) in behind {
            let command = command(millis, operation);
            back.push(store.before(&command));
            store.apply(&command);
        }
        let mut copy = store.clone();
        for before in back.into_iter().rev() {
            copy.revert(before.clone());
            store.revert(before);
        }
        prop_assert!(store == untouched && copy == untouched);
        let seen = |store: &Store| (store.digest(), store.deadline(), store.len());
        prop_assert_eq!(seen(&store), seen(&untouched));
        // No deadline is left over, and none is missing.
        let mut untouched = untouched;
        for millis in 1..100 {
            let due = [&store, &untouched].map(|store| store.overdue(at(millis), 9));
            prop_assert_eq!(&due[0], &due[1]);
            let sweep = Operation::Sweep { keys: due[0].as_slice().into() };
            for store in [&mut store, &mut untouched] {
                prop_assert_eq!(store.run_at(millis, sweep.clone()), Response::Integer(due[0].len() as i64));
            }
        }
    }

    /// A store whose keys lie elsewhere as bytes, each by itself, and are brought in for each command that touches them,
    /// answers and changes as one that holds them all.
    #[test]
    fn keys_that_lie_elsewhere_are_as_good(
        commands in prop::collection::vec((1..100u64, operation()), 1..80),
    ) {
        let (mut store, mut elsewhere) = (Store::default(), BTreeMap::<Blob, Blob>::new());
        for (millis, operation) in commands {
            if operation == Operation::DbSize {
                continue;
            }
            let mut scratch = Store::default();
            let mut touched = BTreeSet::new();
            operation.visit(&mut |touch| {
                if let Touch::Key(key, _) = touch {
                    touched.insert(key.clone());
                }
            });
            for key in &touched {
                if let Some(entry) = elsewhere.get(key) {
                    scratch.enter(key, entry).unwrap();
                    prop_assert!(scratch.agrees(&store, key) && scratch.enter(key, entry).is_err());
                }
            }
            prop_assert_eq!(scratch.run_at(millis, operation.clone()), store.run_at(millis, operation));
            for key in touched {
                prop_assert!(scratch.agrees(&store, &key));
                match scratch.entry(&key) {
                    Some(entry) => elsewhere.insert(key, entry),
                    None => elsewhere.remove(&key),
                };
            }
            prop_assert_eq!(elsewhere.len(), store.len());
        }
        let mut whole = Store::default();
        elsewhere.iter().for_each(|(key, entry)| whole.enter(key, entry).unwrap());
        prop_assert!(whole == store && whole.digest() == store.digest());
    }
}
