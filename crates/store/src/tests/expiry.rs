//! `specs/curp.md` 7.3: by the stamp of the command that touches a key, and by nothing else.

use super::*;
use isochrone_core::command::{ExpiryCondition, TtlUnit};
use isochrone_core::migration::{Ring, Stretch};
use isochrone_core::{Export, KeyspaceId, PartitionId};
use std::collections::BTreeMap;

fn expire(key: &str, millis: u64, condition: ExpiryCondition) -> Operation {
    Operation::ExpireAt { key: b(key), at: at(millis), condition }
}

fn ttl(key: &str, unit: TtlUnit, absolute: bool) -> Operation {
    Operation::Ttl { key: b(key), unit, absolute }
}

#[test]
fn a_deadline_is_reached_at_its_stamp() {
    let mut store = Store::default();
    store.run(set_until("k", "v", 100));
    assert_eq!(store.run_at(99, get("k")), bulk("v"));
    assert_eq!(store.read(&command(100, get("k"))), None, "a read that would delete goes through the log");
    assert_eq!(store.run_at(100, get("k")), Response::Nil);
    assert_eq!((store.len(), store.deadline(), store.digest()), (0, None, 0));
    // Gone is gone, also for an earlier stamp.
    assert_eq!(store.run_at(1, get("k")), Response::Nil);
}

#[test]
fn only_touched_keys_expire_whatever_stamps_have_been_seen() {
    let mut store = Store::default();
    store.run(set_until("k", "v", 100));
    store.run_at(1_000_000, set("other", "v"));
    assert_eq!(store.run_at(99, get("k")), bulk("v"), "a later stamp on another key says nothing");
    assert_eq!(store.len(), 2);
    assert_eq!(store.run_at(1_000_000, Operation::DbSize), Response::Integer(1));
}

#[test]
fn the_order_of_commands_on_other_keys_does_not_matter() {
    // Two commands without a common key, executed in both orders, whatever their stamps.
    let prepared = || {
        let mut store = Store::default();
        store.run(set_until("a", "1", 100));
        store.run(set_until("b", "1", 100));
        store
    };
    let incr = |key: &str| Operation::IncrBy { key: b(key), by: 1 };
    for (one, other) in [(50, 150), (150, 50), (100, 99)] {
        let (mut first, mut second) = (prepared(), prepared());
        let answers = (first.run_at(one, incr("a")), first.run_at(other, incr("b")));
        let swapped = (second.run_at(other, incr("b")), second.run_at(one, incr("a")));
        assert_eq!(answers, (swapped.1, swapped.0));
        assert_eq!(first, second);
        assert_eq!((first.digest(), first.deadline()), (second.digest(), second.deadline()));
    }
}

#[test]
fn a_command_says_which_keys_it_has_deleted_because_their_time_was_over() {
    let (zero, one) = (Response::Integer(0), Response::Integer(1));
    let nested = Operation::Transaction { watched: [].into(), operations: [get("a")].into() };
    for first in [get("a"), set("a", "w"), nested, Operation::Sweep { keys: names("a b") }] {
        let mut store = Store::default();
        store.run(set_until("a", "v", 100));
        store.run(set_until("b", "v", 200));
        let both = Operation::Transaction {
            watched: [].into(),
            operations: [first.clone(), Operation::Expired { keys: names("b a c a") }].into(),
        };
        let expired = |answer: Response| match answer {
            Response::Array(mut parts) => parts.pop(),
            other => panic!("{other:?}"),
        };
        let wanted = [&zero, &one, &zero, &one].map(Clone::clone).to_vec();
        assert_eq!(expired(store.run_at(100, both.clone())), Some(Response::Array(wanted)), "{first:?}");
        let none = vec![zero.clone(); 4];
        assert_eq!(expired(store.run_at(101, both)), Some(Response::Array(none)), "once: {first:?}");
    }
    let mut store = Store::default();
    store.run(set_until("a", "v", 100));
    let alone = || Operation::Expired { keys: names("a") };
    assert_eq!(store.run_at(100, alone()), Response::Array(vec![one]));
    assert_eq!((store.len(), store.run_at(100, alone())), (0, Response::Array(vec![zero])));
}

#[test]
fn every_command_deletes_what_it_touches_first() {
    for operation in [
        Operation::IncrBy { key: b("k"), by: 1 },
        Operation::Append { key: b("k"), value: b("1") },
        Operation::SetRange { key: b("k"), offset: 0, value: b("1") },
        push("k", "1"),
        Operation::SAdd { key: b("k"), members: names("1") },
        Operation::Set {
            key: b("k"),
            value: b("1"),
            condition: Condition::IfAbsent,
            expiry: Expiry::Keep,
            get: false,
        },
        Operation::Rename { key: b("source"), target: b("k"), only_if_absent: true },
        Operation::Transaction { watched: [(b("k"), 0)].into(), operations: [set("k", "1")].into() },
    ] {
        let mut store = Store::default();
        store.run(set("source", "v"));
        store.run(set_until("k", "v", 100));
        let answer = store.run_at(100, operation.clone());
        assert!(!answer.is_error() && answer != Response::Nil, "{operation:?} gave {answer:?}");
        assert_eq!(store.deadline(), None, "{operation:?} inherited a deadline");
    }
}

#[test]
fn deadlines_are_set_under_conditions() {
    use ExpiryCondition::*;
    let mut store = Store::default();
    let no = Response::Integer(0);
    let yes = Response::Integer(1);
    assert_eq!(store.run(expire("k", 500, Always)), no);
    store.run(set("k", "v"));
    assert_eq!(store.run(expire("k", 500, IfSome)), no);
    assert_eq!(store.run(expire("k", 500, IfLater)), no, "no deadline is later than any");
    assert_eq!(store.run(expire("k", 500, IfSomeEarlier)), no);
    assert_eq!(store.run(expire("k", 500, IfEarlier)), yes);
    assert_eq!(store.run(expire("k", 600, IfNone)), no);
    assert_eq!(store.run(expire("k", 600, IfEarlier)), no);
    assert_eq!(store.run(expire("k", 600, IfLater)), yes);
    assert_eq!(store.run(expire("k", 700, IfSome)), yes);
    assert_eq!(store.run(expire("k", 700, IfSomeEarlier)), no);
    assert_eq!(store.run(expire("k", 650, IfSomeEarlier)), yes);
    assert_eq!(store.run(Operation::Persist { key: b("k") }), yes);
    assert_eq!(store.run(Operation::Persist { key: b("k") }), no);
    assert_eq!(store.run(expire("k", 500, IfNone)), yes);
    assert_eq!(store.run_at(50, expire("k", 40, Always)), yes, "a deadline in the past deletes");
    assert_eq!(store.len(), 0);
    assert_eq!(store.run_at(50, set_until("k", "v", 40)), Response::Ok);
    assert_eq!(store.len(), 0);
    store.run(set("k", "v"));
    let getex = |expiry| Operation::GetEx { key: b("k"), expiry };
    assert_eq!(store.run(getex(Expiry::At(at(500)))), bulk("v"));
    assert_eq!(store.run(getex(Expiry::Keep)), bulk("v"));
    assert_eq!(store.deadline(), Some(at(500)));
    assert_eq!(store.run(getex(Expiry::Clear)), bulk("v"));
    assert_eq!(store.deadline(), None);
    assert_eq!(store.run_at(9, getex(Expiry::At(at(9)))), bulk("v"));
    assert_eq!(store.run(getex(Expiry::Clear)), Response::Nil);
}

#[test]
fn time_left_is_told_by_the_stamp() {
    use TtlUnit::*;
    let mut store = Store::default();
    assert_eq!(store.run(ttl("k", Millis, false)), Response::Integer(-2));
    store.run(set("k", "v"));
    assert_eq!(store.run(ttl("k", Seconds, true)), Response::Integer(-1));
    store.run(expire("k", 10_700, ExpiryCondition::Always));
    assert_eq!(store.run_at(200, ttl("k", Millis, false)), Response::Integer(10_500));
    assert_eq!(store.run_at(200, ttl("k", Seconds, false)), Response::Integer(11));
    assert_eq!(store.run_at(201, ttl("k", Seconds, false)), Response::Integer(10));
    assert_eq!(store.run_at(200, ttl("k", Seconds, true)), Response::Integer(11));
    assert_eq!(store.run_at(200, ttl("k", Millis, true)), Response::Integer(10_700));
}

#[test]
fn a_deadline_goes_with_its_value() {
    let mut store = Store::default();
    store.run(set_until("k", "v", 500));
    store.run(Operation::Rename { key: b("k"), target: b("l"), only_if_absent: false });
    store.run(Operation::Copy { key: b("l"), target: b("m"), replace: false });
    store.run(Operation::Append { key: b("l"), value: b("w") });
    assert_eq!(store.run_at(499, Operation::Exists { keys: names("k l m") }), Response::Integer(2));
    assert_eq!(store.run_at(500, Operation::Exists { keys: names("k l m") }), Response::Integer(0));
    assert_eq!((store.len(), store.deadline()), (0, None));
}

#[test]
fn a_sweep_deletes_what_is_due_of_its_keys_and_nothing_else() {
    let mut store = Store::default();
    store.run(set("lasting", "v"));
    for millis in [300, 100, 200, 400] {
        store.run(set_until(&format!("k{millis}"), "v", millis));
    }
    let due = |store: &Store, millis, most| store.overdue(at(millis), most);
    assert_eq!(due(&store, 99, 9), []);
    assert_eq!(due(&store, 300, 2), [b("k100"), b("k200")], "the earliest");
    assert_eq!(due(&store, 300, 9), [b("k100"), b("k200"), b("k300")]);
    let sweep = |keys| Operation::Sweep { keys: names(keys) };
    assert_eq!(store.run_at(50, sweep("k100 k200 lasting gone")), Response::Integer(0));
    // One was given another deadline before the sweep came.
    store.run(expire("k200", 350, ExpiryCondition::Always));
    assert_eq!(store.run_at(300, sweep("k100 k200 k400 lasting gone")), Response::Integer(1));
    assert_eq!((due(&store, 300, 9), store.len()), (vec![b("k300")], 4));
    assert_eq!(store.run_at(350, sweep("k300 k200")), Response::Integer(2));
    store.run(Operation::Del { keys: names("lasting") });
    assert_eq!(store.len(), 1);
    assert_eq!(store.run_at(400, sweep("k400")), Response::Integer(1));
    assert_eq!(store.len(), 0);
    // Counted, and no part of the state.
    let expired = |store: &Store| store.keys().unwrap().expired;
    store.run(Operation::Flush);
    assert_eq!(expired(&store), 4);
    assert!(store == Store::default() && expired(&Store::default()) == 0);
}

#[test]
fn what_is_taken_back_has_not_expired() {
    let mut store = Store::default();
    let expired = |store: &Store| store.keys().unwrap().expired;
    for operation in [get("k"), Operation::Sweep { keys: names("k") }] {
        store.run(set_until("k", "v", 100));
        let late = command(100, operation);
        let before = store.before(&late);
        store.apply(&late);
        assert_eq!((store.len(), expired(&store)), (0, 1), "{late:?}");
        store.revert(before);
        assert_eq!((store.len(), expired(&store)), (1, 0), "{late:?}");
    }
}

/// What commands about all keys answer at a stamp, each page of a scan included.
fn whole(store: &mut Store, millis: u64) -> Vec<Response> {
    let mut answers = vec![
        store.run_at(millis, Operation::DbSize),
        store.run_at(millis, Operation::Keys { pattern: b("*") }),
    ];
    answers.extend((0..4).map(|seed| store.run_at(millis, Operation::RandomKey { seed })));
    let ring = Ring { keyspace: KeyspaceId(3), partitions: 2, at: PartitionId(0) };
    for stretch in [Stretch::ALL, ring.stretch(PartitionId(1))] {
        for operation in [Operation::DbSize, Operation::Keys { pattern: b("*") }] {
            let share = Store::share(&command(millis, operation), ring, &[stretch]).unwrap();
            answers.push(store.run_at(millis, share.operation));
        }
    }
    let mut from = 0;
    loop {
        let scan = Operation::Scan { cursor: from, count: 10, pattern: None, kind: None };
        let page = store.run_at(millis, scan);
        let Response::Scan { cursor, .. } = &page else { panic!("{page:?}") };
        from = *cursor;
        answers.push(page);
        if from == 0 {
            return answers;
        }
    }
}

#[test]
fn commands_about_all_keys_leave_out_what_is_overdue_and_delete_none_of_it() {
    const OVERDUE: u64 = 200_000;
    let mut store = Store::default();
    store.run(set("lasting", "v"));
    store.run(set_until("later", "v", 1_001));
    for number in 0..OVERDUE {
        store.apply(&command(1, set_until(&format!("k{number}"), "v", 100 + number % 901)));
    }
    let (view, mut copy) = (store.export(), Store::default());
    (0..).map_while(|index| view.chunk(index)).for_each(|chunk| copy.absorb(&chunk).unwrap());
    let before = (store.len(), store.digest());
    let answers = whole(&mut store, 1_000);
    assert!(answers == whole(&mut copy, 1_000), "a replica that was sent the state answers the same");
    for store in [&store, &copy] {
        assert_eq!((store.len(), store.digest()), before);
        assert_eq!(StateMachine::keys(store).unwrap().expired, 0);
        // No command needs a place in the log for it.
        assert!(store.read(&command(1_000, Operation::DbSize)).is_some());
    }
    assert_eq!(answers[0], Response::Integer(2));
    assert_eq!(sorted(answers[1].clone()), array("lasting later"));
    assert!(answers[2..6].iter().all(|key| [bulk("lasting"), bulk("later")].contains(key)), "{answers:?}");
    let shared = |answer: &Response| match answer {
        Response::Share(shared) => shared.response.clone(),
        answer => panic!("{answer:?}"),
    };
    assert_eq!(shared(&answers[6]), Response::Integer(2));
    assert_eq!(sorted(shared(&answers[7])), array("lasting later"));
    let Response::Array(of_the_other) = shared(&answers[9]) else { panic!("{:?}", answers[9]) };
    assert_eq!(shared(&answers[8]), Response::count(of_the_other.len()));
    let found = answers[10..].iter().flat_map(|page| match page {
        Response::Scan { items, .. } => items.clone(),
        page => panic!("{page:?}"),
    });
    let mut found: Vec<Blob> = found.collect();
    found.sort();
    assert_eq!(found, [b("lasting"), b("later")]);
    assert!(answers.len() > 1_900, "a page looks at ten for each that was asked for: {}", answers.len());
    // An earlier stamp finds them alive, a later one nothing that has a deadline.
    assert_eq!(store.run_at(99, Operation::DbSize), Response::count(before.0));
    assert_eq!(store.run_at(1_001, Operation::DbSize), Response::Integer(1));
    assert_eq!(store.run_at(1_001, Operation::RandomKey { seed: 5 }), bulk("lasting"));
    store.run(Operation::Del { keys: names("lasting") });
    assert_eq!(store.run_at(1_001, Operation::RandomKey { seed: 5 }), Response::Nil);
    // They are deleted by commands that name them, so many at a time.
    loop {
        let due = copy.overdue(at(1_000), 1_024);
        if due.is_empty() {
            break;
        }
        let count = Response::count(due.len());
        assert_eq!(copy.run_at(1_000, Operation::Sweep { keys: due.into() }), count);
    }
    assert_eq!((copy.len(), StateMachine::keys(&copy).unwrap().expired), (2, OVERDUE));
    // Nor does what empties the keyspace look at each.
    assert_eq!(store.run_at(1_001, Operation::Flush), Response::Ok);
    assert_eq!((store.len(), StateMachine::keys(&store).unwrap().expired), (0, 0));
}

#[test]
fn of_few_that_are_alive_among_many_that_are_over_each_is_drawn_alike() {
    let mut store = Store::default();
    for at in 0..1_000 {
        let (name, millis) = (format!("k{at}"), if at % 10 == 0 { 5_000 } else { 100 });
        store.run(set_until(&name, "v", millis));
    }
    let mut drawn = BTreeMap::<Blob, usize>::new();
    for seed in 0..20_000 {
        let Response::Bulk(key) = store.run_at(200, Operation::RandomKey { seed }) else { panic!() };
        *drawn.entry(key).or_default() += 1;
    }
    assert_eq!(drawn.len(), 100);
    assert!(drawn.values().all(|times| *times < 400), "{drawn:?}");
}

/// What is left out is not deleted, and is there for a command of before.
#[test]
fn a_command_of_before_finds_what_one_about_all_keys_has_left_out() {
    let mut store = Store::default();
    store.run(set_until("k", "v", 100));
    assert_eq!(store.run_at(110, Operation::DbSize), Response::Integer(0));
    assert_eq!(store.run_at(99, Operation::Persist { key: b("k") }), Response::Integer(1));
    assert_eq!(store.run_at(110, Operation::DbSize), Response::Integer(1));
}
