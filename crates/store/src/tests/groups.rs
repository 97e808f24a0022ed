use super::*;
use isochrone_core::Export;
use isochrone_core::command::{
    Append, Claim, GroupChange, GroupRead, NewId, REPLY_MAX, ReadFrom, StreamId, StreamLook, StreamRead,
    Trim, Trimming,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

fn id(millis: u64) -> StreamId {
    StreamId { millis, sequence: 0 }
}

fn add(key: &str, millis: u64) -> Operation {
    let fields = vec![(b("f"), b("v"))];
    let append = Append { id: NewId::This(id(millis)), fields, only_if_exists: false, trimming: None };
    Operation::XAdd { key: b(key), append: Arc::new(append) }
}

fn delete(key: &str, millis: u64) -> Operation {
    Operation::XDel { key: b(key), ids: [id(millis)].into() }
}

fn change(key: &str, change: GroupChange) -> Operation {
    Operation::XGroup { key: b(key), change: Arc::new(change) }
}

fn create(key: &str, group: &str, make: bool) -> Operation {
    let from = ReadFrom::After(StreamId::MIN);
    change(key, GroupChange::Create { group: b(group), from, read: None, make })
}

fn read_of(keys: &[&str], consumer: &str, after: Option<StreamId>, count: u64) -> GroupRead {
    let streams = keys.iter().map(|key| (b(key), after)).collect();
    GroupRead { streams, group: b("g"), consumer: b(consumer), count, forget: false, peek: false }
}

fn read(consumer: &str, after: Option<StreamId>, count: u64) -> Operation {
    Operation::XReadGroup { read: Arc::new(read_of(&["s"], consumer, after, count)) }
}

fn acknowledge(ids: &[u64]) -> Operation {
    let ids = ids.iter().copied().map(id).collect();
    change("s", GroupChange::Acknowledge { group: b("g"), ids })
}

fn claim(consumer: &str, ids: &[u64], claim: Claim) -> Operation {
    let ids = ids.iter().copied().map(id).collect();
    change("s", GroupChange::Claim { group: b("g"), consumer: b(consumer), ids, claim })
}

fn claim_from(consumer: &str, start: u64, count: u64, idle: u64) -> Operation {
    let (group, consumer, start) = (b("g"), b(consumer), id(start));
    change("s", GroupChange::ClaimFrom { group, consumer, start, count, idle, just_id: true })
}

fn look(look: StreamLook) -> Operation {
    Operation::XInfo { key: b("s"), look: Arc::new(look) }
}

fn all_pending(consumer: Option<&str>) -> Operation {
    let (start, end) = (StreamId::MIN, StreamId::MAX);
    let consumer = consumer.map(b);
    look(StreamLook::PendingRange { group: b("g"), start, end, count: 1 << 20, idle: 0, consumer })
}

fn entry(millis: u64) -> Response {
    Response::Array(vec![bulk(&id(millis).to_string()), array("f v")])
}

fn found(millis: &[u64]) -> Response {
    Response::Pairs(vec![(bulk("s"), Response::Array(millis.iter().copied().map(entry).collect()))])
}

fn ids(millis: &[u64]) -> Response {
    Response::Array(millis.iter().map(|millis| bulk(&id(*millis).to_string())).collect())
}

/// A row of what is pending: the entry, whose it is, for how long, how often.
fn row(millis: u64, consumer: &str, idle: i64, count: i64) -> Response {
    let (idle, count) = (Response::Integer(idle), Response::Integer(count));
    Response::Array(vec![bulk(&id(millis).to_string()), bulk(consumer), idle, count])
}

#[test]
fn entries_go_to_one_consumer_each_and_are_pending_until_they_are_acknowledged() {
    let mut store = Store::default();
    (1..=5).for_each(|millis| drop(store.run(add("s", millis))));
    assert_eq!(store.run(create("s", "g", false)), Response::Ok);
    assert_eq!(store.run_at(10, read("a", None, 2)), found(&[1, 2]));
    assert_eq!(store.run_at(20, read("b", None, 0)), found(&[3, 4, 5]));
    assert_eq!(store.run_at(30, read("a", None, 0)), Response::NilArray);
    let rows = |rows: &[Response]| Response::Array(rows.to_vec());
    assert_eq!(store.run_at(50, all_pending(Some("a"))), rows(&[row(1, "a", 40, 1), row(2, "a", 40, 1)]));
    // What is read again counts, but for what was deleted.
    store.run(delete("s", 1));
    let again = store.run_at(60, read("a", Some(StreamId::MIN), 0));
    let gone = Response::Array(vec![bulk("1-0"), Response::NilArray]);
    let both = Response::Array(vec![gone, entry(2)]);
    assert_eq!(again, Response::Pairs(vec![(bulk("s"), both)]));
    assert_eq!(store.run_at(60, all_pending(Some("a"))), rows(&[row(1, "a", 50, 1), row(2, "a", 0, 2)]));
    assert_eq!(store.run(acknowledge(&[2, 2, 4, 9])), Response::Integer(2));
    let parts = |parts: Vec<Response>| Response::Array(parts);
    let summary =
        parts(vec![Response::Integer(3), bulk("1-0"), bulk("5-0"), parts(vec![array("a 1"), array("b 2")])]);
    assert_eq!(store.run(look(StreamLook::Pending { group: b("g") })), summary);
    // Whoever takes over is told what was deleted, once.
    let taken = parts(vec![bulk("0-0"), ids(&[3, 5]), ids(&[1])]);
    assert_eq!(store.run_at(100, claim_from("c", 0, 10, 40)), taken);
    assert_eq!(store.run_at(100, claim_from("c", 0, 10, 1)), parts(vec![bulk("0-0"), ids(&[]), ids(&[])]));
    assert_eq!(store.run_at(100, claim_from("a", 0, 1, 0)), parts(vec![bulk("5-0"), ids(&[3]), ids(&[])]));
    assert_eq!(store.run_at(100, all_pending(None)), rows(&[row(3, "a", 0, 1), row(5, "c", 0, 1)]));
    let removed = |consumer| GroupChange::DeleteConsumer { group: b("g"), consumer: b(consumer) };
    assert_eq!(store.run(change("s", removed("a"))), Response::Integer(1));
    assert_eq!(store.run(change("s", removed("a"))), Response::Integer(0));
    assert_eq!(store.run_at(100, all_pending(None)), rows(&[row(5, "c", 0, 1)]));
}

#[test]
fn a_group_that_is_not_there_is_told_by_its_place_and_nothing_has_happened() {
    let mut store = one_of_each();
    assert_eq!(store.run(create("s", "g", false)), Refusal::NoStream.into());
    assert_eq!(store.run(create("s", "g", true)), Response::Ok);
    assert_eq!(store.run(create("s", "g", true)), Refusal::GroupExists.into());
    assert_eq!(store.run(create("string", "g", true)), WRONG_TYPE);
    store.run(add("s", 1));
    store.run(add("t", 1));
    let both = |peek| Operation::XReadGroup {
        read: Arc::new(GroupRead { peek, ..read_of(&["s", "t"], "a", None, 0) }),
    };
    assert_eq!(store.run(both(false)), Refusal::NoGroup(1).into());
    assert_eq!(store.run(both(true)), Response::Integer(1), "who waits is to be told");
    let alone =
        |peek| Operation::XReadGroup { read: Arc::new(GroupRead { peek, ..read_of(&["s"], "a", None, 0) }) };
    assert_eq!(store.run(alone(true)), Response::Integer(1));
    assert_eq!(store.run(alone(false)), found(&[1]));
    assert_eq!(store.run(alone(true)), Response::Integer(0));
    assert_eq!(store.run(change("s", GroupChange::Destroy { group: b("g") })), Response::Integer(1));
    assert_eq!(store.run(change("s", GroupChange::Destroy { group: b("g") })), Response::Integer(0));
    assert_eq!(store.run(alone(false)), Refusal::NoGroup(0).into());
    assert_eq!(store.run(acknowledge(&[1])), Response::Integer(0));
    // A stream that never had an entry is there, with its groups and without.
    store.run(create("new", "g", true));
    store.run(change("new", GroupChange::Destroy { group: b("g") }));
    assert_eq!(store.run(Operation::Exists { keys: names("new") }), Response::Integer(1));
}

/// Who could not be told of them is given none: the answer would be lost, and they would be somebody's.
#[test]
fn nobody_is_given_more_than_can_be_told() {
    let mut store = Store::default();
    let value = Blob::from(vec![b'v'; 50 << 20]);
    for millis in 1..=3 {
        let fields = vec![(b("f"), value.clone())];
        let append = Append { id: NewId::This(id(millis)), fields, only_if_exists: false, trimming: None };
        store.run(Operation::XAdd { key: b("s"), append: Arc::new(append) });
    }
    store.run(create("s", "g", false));
    let none = store.run(all_pending(None));
    let too_long = Response::Error(Refusal::ReplyTooLong);
    assert_eq!(store.run(read("a", None, 0)), too_long);
    assert_eq!(store.run(all_pending(None)), none, "nobody was given any");
    assert!(matches!(store.run(read("a", None, 2)), Response::Pairs(_)));
    assert!(matches!(store.run(read("a", None, 2)), Response::Pairs(_)));
    assert_eq!(store.run(read("a", Some(StreamId::MIN), 0)), too_long);
    assert_eq!(store.run(claim("b", &[1, 2, 3], Claim::default())), too_long);
    assert_eq!(store.run(claim("b", &[1, 1, 1, 1], Claim::default())), too_long);
    // Whoever goes on behind what was told is told of a part.
    let (group, consumer, start) = (b("g"), b("b"), id(0));
    let all = GroupChange::ClaimFrom { group, consumer, start, count: 9, idle: 0, just_id: false };
    let Response::Array(parts) = store.run(change("s", all)) else { panic!() };
    let Response::Array(given) = &parts[1] else { panic!() };
    assert_eq!((parts[0].clone(), given.len()), (Response::bulk(b"3-0"), 2));
    let streams = vec![(b("s"), ReadFrom::After(StreamId::MIN))];
    let whole = StreamRead { streams, count: 0, resolve: false };
    assert_eq!(store.run(Operation::XRead { read: Arc::new(whole) }), too_long);
}

/// In a transaction there is less room, also for one alone.
#[test]
fn nobody_is_given_more_than_is_left_of_a_transaction() {
    let long = "k".repeat(1_000);
    let mut store = Store::default();
    store.run(set("fill", &"x".repeat(REPLY_MAX - 500)));
    for key in ["s", &long] {
        store.run(add(key, 1));
        store.run(create(key, "g", false));
    }
    let both = |operation| Operation::Transaction {
        watched: [].into(),
        operations: [get("fill"), operation].into(),
    };
    let second = |response| {
        let Response::Array(mut parts) = response else { panic!() };
        parts.pop().unwrap()
    };
    let reads = || Operation::XReadGroup { read: Arc::new(read_of(&[&long], "a", None, 0)) };
    assert_eq!(second(store.run(both(reads()))), Refusal::ReplyTooLong.into());
    assert!(matches!(store.run(reads()), Response::Pairs(_)), "it was not delivered");
    assert_eq!(second(store.run(both(read("a", None, 0)))), found(&[1]));

    let fields = vec![(b("f"), Blob::from(vec![b'v'; 1_000]))];
    let append = Append { id: NewId::This(id(2)), fields, only_if_exists: false, trimming: None };
    store.run(Operation::XAdd { key: b("s"), append: Arc::new(append) });
    store.run(read("a", None, 0));
    let claims = |start| {
        let (group, consumer) = (b("g"), b("b"));
        let start = id(start);
        change("s", GroupChange::ClaimFrom { group, consumer, start, count: 9, idle: 0, just_id: false })
    };
    let parts = |next: &str, given| Response::Array(vec![bulk(next), Response::Array(given), array("")]);
    assert_eq!(second(store.run(both(claims(0)))), parts("2-0", vec![entry(1)]));
    assert_eq!(second(store.run(both(claims(2)))), parts("2-0", vec![]));
    let Response::Array(rows) = store.run(all_pending(Some("b"))) else { panic!() };
    assert_eq!(rows.len(), 1, "the other was not given");
}

#[test]
fn what_is_pending_is_weighed() {
    const LEN: usize = 640;
    let mut store = Store::default();
    (1..=LEN as u64).for_each(|millis| drop(store.run(add("s", millis))));
    store.run(create("s", "g", false));
    store.run(read("a", None, 0));
    let weight = |operation| Store::kept(&store.before(&command(1, operation)));
    // Each that is pending stands there twice.
    let (entries, all) = (LEN / 64 * 16, 3 * LEN / 64 * 16);
    let trim = |length| Trimming { trim: Trim::Length(length), limit: 0 };
    let trims = |length| Operation::XTrim { key: b("s"), trimming: Arc::new(trim(length)) };
    assert_eq!((weight(trims(LEN as u64 - 2)), weight(trims(0))), (entries + 2 * 64, entries + LEN * 64));
    let append = |trimming| {
        let fields = vec![(b("f"), b("v"))];
        let append = Append { id: NewId::Next, fields, only_if_exists: false, trimming };
        Operation::XAdd { key: b("s"), append: Arc::new(append) }
    };
    assert_eq!(weight(append(None)), entries);
    assert_eq!(weight(append(Some(trim(LEN as u64)))), entries + 64);
    assert_eq!((weight(delete("s", 1)), weight(acknowledge(&[1]))), (entries + 64, all + 2 * 64));
    assert_eq!(weight(read("a", None, 0)), all);
    assert_eq!(weight(read("a", Some(StreamId::MIN), 5)), all + 10 * 64);
    assert_eq!(weight(claim_from("b", 0, 5, 0)), all + 10 * 64);
    assert_eq!(weight(change("s", GroupChange::Destroy { group: b("g") })), all + 2 * LEN * 64);
    assert_eq!(weight(Operation::Del { keys: names("s") }), entries + 3 * LEN * 64);
}

#[test]
fn groups_travel() {
    let mut store = Store::default();
    for millis in 1..=6_000 {
        store.run(add("s", millis));
    }
    let long = "c".repeat(10_000);
    for group in 0..3 {
        let from = ReadFrom::After(id(group));
        let group = b(&format!("g{group}"));
        store.run(change(
            "s",
            GroupChange::Create { group: group.clone(), from, read: Some(group.len() as u64), make: false },
        ));
        for consumer in ["a", &long, "d"] {
            let read = GroupRead { group: group.clone(), ..read_of(&["s"], consumer, None, 1_500) };
            store.run(Operation::XReadGroup { read: Arc::new(read) });
        }
    }
    store.run(create("empty", "g", true));
    store.run(create("s", "g", false));
    let trim = Trimming { trim: Trim::Length(3_000), limit: 0 };
    store.run(Operation::XTrim { key: b("s"), trimming: Arc::new(trim) });
    let view = store.export();
    let chunks: Vec<_> = (0..).map_while(|index| view.chunk(index)).collect();
    assert!(chunks.len() > 3, "{}", chunks.len());
    let mut copy = Store::default();
    chunks.iter().for_each(|chunk| copy.absorb(chunk).unwrap());
    assert!(copy == store && copy.digest() == store.digest());
    let full = |store: &mut Store| store.run(look(StreamLook::Full { count: 0 }));
    assert_eq!(full(&mut store), full(&mut copy));
    let weight = |store: &mut Store| store.run(Operation::Weight { key: b("s"), samples: 0 });
    assert_eq!(weight(&mut store), weight(&mut copy));
    // The same parts again, or in another order, cannot be.
    assert!(copy.absorb(chunks.last().unwrap()).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Add,
    Delete(u64),
    Read(u8, u64, bool),
    Again(u8, u64),
    Acknowledge(Vec<u64>),
    Claim(u8, Vec<u64>, bool, u64),
    ClaimFrom(u8, u64, u64, u64),
    Dismiss(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let millis = || 1..60_u64;
    let several = || prop::collection::vec(1..60_u64, 0..9);
    prop_oneof![
        4 => Just(Step::Add),
        1 => millis().prop_map(Step::Delete),
        2 => (0..3_u8, 0..5_u64, any::<bool>()).prop_map(|(who, count, forget)| Step::Read(who, count, forget)),
        1 => (0..3_u8, millis()).prop_map(|(who, after)| Step::Again(who, after)),
        2 => several().prop_map(Step::Acknowledge),
        1 => (0..3_u8, several(), any::<bool>(), 0..9_u64)
            .prop_map(|(who, ids, force, idle)| Step::Claim(who, ids, force, idle)),
        1 => (0..3_u8, millis(), 1..5_u64, 0..9_u64)
            .prop_map(|(who, start, count, idle)| Step::ClaimFrom(who, start, count, idle)),
        1 => (0..3_u8).prop_map(Step::Dismiss),
    ]
}

/// One stream with one group, kept dumbly: what there is, and whose it is, since when and how often.
#[derive(Default)]
struct Twin {
    added: u64,
    entries: std::collections::BTreeSet<u64>,
    last: u64,
    pending: BTreeMap<u64, (String, u64, u64)>,
}

impl Twin {
    /// The operation, and the identifiers that its answer is to tell where it is not a number.
    fn run(&mut self, now: u64, step: &Step) -> (Operation, Option<Vec<u64>>) {
        let name = |who: &u8| ["a", "b", "c"][usize::from(*who)].to_owned();
        match step {
            Step::Add => {
                self.added += 1;
                self.entries.insert(self.added);
                (add("s", self.added), None)
            }
            Step::Delete(millis) => {
                self.entries.remove(millis);
                (delete("s", *millis), None)
            }
            Step::Read(who, count, forget) => {
                let most = if *count == 0 { usize::MAX } else { *count as usize };
                let new: Vec<u64> = self.entries.range(self.last + 1..).take(most).copied().collect();
                for millis in &new {
                    self.last = *millis;
                    if !forget {
                        self.pending.insert(*millis, (name(who), now, 1));
                    }
                }
                let read = GroupRead { forget: *forget, ..read_of(&["s"], &name(who), None, *count) };
                (Operation::XReadGroup { read: Arc::new(read) }, Some(new))
            }
            Step::Again(who, after) => {
                let mut told = Vec::new();
                for (millis, held) in self.pending.range_mut(after + 1..) {
                    if held.0 == name(who) {
                        told.push(*millis);
                        if self.entries.contains(millis) {
                            (held.1, held.2) = (now, held.2 + 1);
                        }
                    }
                }
                (read(&name(who), Some(id(*after)), 0), Some(told))
            }
            Step::Acknowledge(ids) => {
                ids.iter().for_each(|millis| drop(self.pending.remove(millis)));
                (acknowledge(ids), None)
            }
            Step::Claim(who, ids, force, idle) => {
                let mut told = Vec::new();
                for millis in ids {
                    self.give(name(who), *millis, now, *force, *idle, 1, &mut told);
                }
                let claimed = Claim { idle: *idle, force: *force, ..Claim::default() };
                (claim(&name(who), ids, claimed), Some(told))
            }
            Step::ClaimFrom(who, start, count, idle) => {
                let (mut told, mut gone) = (Vec::new(), 0);
                let ahead: Vec<u64> = self.pending.range(start..).map(|(millis, _)| *millis).collect();
                for millis in ahead.into_iter().take(10 * *count as usize) {
                    if told.len() as u64 + gone == *count {
                        break;
                    }
                    gone += u64::from(!self.entries.contains(&millis));
                    self.give(name(who), millis, now, false, *idle, 0, &mut told);
                }
                (claim_from(&name(who), *start, *count, *idle), Some(told))
            }
            Step::Dismiss(who) => {
                self.pending.retain(|_, (held, ..)| *held != name(who));
                let dismissed = GroupChange::DeleteConsumer { group: b("g"), consumer: b(&name(who)) };
                (change("s", dismissed), None)
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "it is dumb")]
    fn give(
        &mut self,
        who: String,
        millis: u64,
        now: u64,
        force: bool,
        idle: u64,
        more: u64,
        told: &mut Vec<u64>,
    ) {
        if !self.entries.contains(&millis) {
            self.pending.remove(&millis);
            return;
        }
        let count = match self.pending.get(&millis) {
            Some((_, since, count)) if idle == 0 || now - since >= idle => *count,
            None if force => 1,
            _ => return,
        };
        self.pending.insert(millis, (who, now, count + more));
        told.push(millis);
    }
}

/// The identifiers in an answer.
fn told(response: &Response) -> Vec<u64> {
    let millis =
        |bytes: &Blob| String::from_utf8(bytes.to_vec()).unwrap().trim_end_matches("-0").parse::<u64>().ok();
    match response {
        Response::Pairs(pairs) => pairs.iter().flat_map(|(_, entries)| told(entries)).collect(),
        Response::Array(parts) => match &parts[..] {
            [Response::Bulk(_), Response::Array(given), Response::Array(_)] => {
                given.iter().flat_map(told).collect()
            }
            [Response::Bulk(one), Response::Array(_) | Response::NilArray] => {
                millis(one).into_iter().collect()
            }
            parts => parts.iter().flat_map(told).collect(),
        },
        Response::Bulk(bytes) => millis(bytes).into_iter().collect(),
        _ => Vec::new(),
    }
}

proptest! {
    #[test]
    fn a_group_is_what_a_dumb_twin_is(steps in prop::collection::vec(step(), 0..150)) {
        let (mut store, mut twin) = (Store::default(), Twin::default());
        store.run(create("s", "g", true));
        for (at, step) in steps.iter().enumerate() {
            let now = 100 + at as u64;
            let (operation, expected) = twin.run(now, step);
            // Taken back, it is as if it had never been.
            let command = command(now, operation.clone());
            let (mut undone, before) = (store.clone(), store.before(&command));
            undone.apply(&command);
            undone.revert(before);
            prop_assert!(undone == store && undone.digest() == store.digest());
            let answer = store.run_at(now, operation);
            if let Some(expected) = expected {
                prop_assert_eq!(told(&answer), expected, "{:?}: {:?}", step, answer);
            }
            for consumer in [None, Some("a"), Some("b"), Some("c")] {
                let mine = twin.pending.iter().filter(|(_, (held, ..))| consumer.is_none_or(|name| name == held));
                let rows = mine.map(|(millis, (held, since, count))| {
                    row(*millis, held, (now - since) as i64, *count as i64)
                });
                let rows = Response::Array(rows.collect());
                prop_assert_eq!(store.run_at(now, all_pending(consumer)), rows, "{:?}", step);
            }
        }
        let view = store.export();
        let mut copy = Store::default();
        (0..).map_while(|index| view.chunk(index)).for_each(|chunk| copy.absorb(&chunk).unwrap());
        prop_assert!(copy == store && copy.digest() == store.digest());
    }
}
