use super::*;
use isochrone_core::command::{ExpiryCondition, Kind, PRESENT};

#[test]
fn set_has_all_its_options() {
    let mut store = Store::default();
    let mut go = |value: &str, condition, expiry, get| {
        store.run(Operation::Set { key: b("k"), value: b(value), condition, expiry, get })
    };
    use Condition::*;
    assert_eq!(go("1", IfPresent, Expiry::Clear, false), Response::Nil);
    assert_eq!(go("1", IfAbsent, Expiry::Clear, false), Response::Ok);
    assert_eq!(go("2", IfAbsent, Expiry::Clear, false), Response::Nil);
    assert_eq!(go("2", IfAbsent, Expiry::Clear, true), bulk("1"));
    assert_eq!(go("3", Always, Expiry::At(at(500)), true), bulk("1"));
    assert_eq!(go("4", IfPresent, Expiry::Keep, false), Response::Ok);
    assert_eq!(store.deadline(), Some(at(500)));
    assert_eq!(store.run(set("k", "5")), Response::Ok);
    assert_eq!(store.deadline(), None);
    // A set overwrites any type, unless it must tell the old string.
    let mut store = one_of_each();
    let get = |key: &str| Operation::Set {
        key: b(key),
        value: b("v"),
        condition: Always,
        expiry: Expiry::Clear,
        get: true,
    };
    assert_eq!(store.run(get("list")), WRONG_TYPE);
    assert_eq!(store.run(get("fresh")), Response::Nil);
    assert_eq!(store.run(set("list", "v")), Response::Ok);
}

#[test]
fn several_strings_at_once() {
    let mut store = one_of_each();
    let mset = |text: &str, only_if_absent| Operation::MSet { pairs: pairs(text), only_if_absent };
    assert_eq!(store.run(mset("a 1 b 2 a 3", false)), Response::Ok);
    assert_eq!(store.run(mset("c 1 a 9", true)), Response::Integer(0));
    assert_eq!(store.run(mset("c 1 d 2", true)), Response::Integer(1));
    assert_eq!(
        store.run(Operation::MGet { keys: names("a list nothing d") }),
        Response::Array(vec![bulk("3"), Response::Nil, Response::Nil, bulk("2")])
    );
}

#[test]
fn parts_of_strings() {
    let mut store = Store::default();
    let append = |value: &str| Operation::Append { key: b("k"), value: b(value) };
    assert_eq!(store.run(append("This is ")), Response::Integer(8));
    assert_eq!(store.run(append("a string")), Response::Integer(16));
    let within = |key, value, most| Operation::AppendWithin { key: b(key), value: b(value), most };
    assert_eq!(store.run(within("k", "!", 16)), Response::from(Refusal::StringTooLong));
    assert_eq!(store.run(within("k", "", 16)), Response::Integer(16));
    assert_eq!(store.run(within("other", "12", 2)), Response::Integer(2));
    assert_eq!(store.run(within("other", "3", 3)), Response::Integer(3));
    let range = |start, end| Operation::GetRange { key: b("k"), start, end };
    for (start, end, expected) in [
        (0, 3, "This"),
        (-3, -1, "ing"),
        (0, -1, "This is a string"),
        (10, 100, "string"),
        (5, 3, ""),
        (-1, -5, ""),
        (-100, 3, "This"),
        // As in Redis: an end far before the first byte is the first byte.
        (0, -100, "T"),
        (16, 20, ""),
    ] {
        assert_eq!(store.run(range(start, end)), bulk(expected), "{start} {end}");
    }
    let setrange =
        |key: &str, offset, value: &str| Operation::SetRange { key: b(key), offset, value: b(value) };
    assert_eq!(store.run(setrange("k", 5, "XX")), Response::Integer(16));
    assert_eq!(store.run(get("k")), bulk("This XX a string"));
    assert_eq!(store.run(setrange("pad", 3, "x")), Response::Integer(4));
    assert_eq!(store.run(get("pad")), bulk("\0\0\0x"));
    assert_eq!(store.run(setrange("none", 3, "")), Response::Integer(0));
    assert_eq!(store.run(Operation::Exists { keys: names("none") }), Response::Integer(0));
    assert_eq!(store.run(setrange("k", 1 << 29, "x")), Response::from(Refusal::StringTooLong));
    assert_eq!(store.run(setrange("k", u64::MAX, "x")), Response::from(Refusal::StringTooLong));
    assert_eq!(store.run(Operation::StrLen { key: b("k") }), Response::Integer(16));
    assert_eq!(store.run(Operation::GetDel { key: b("k") }), bulk("This XX a string"));
    assert_eq!(store.run(Operation::StrLen { key: b("k") }), Response::Integer(0));
}

#[test]
fn counters() {
    let mut store = one_of_each();
    let incr = |key: &str, by| Operation::IncrBy { key: b(key), by };
    assert_eq!(store.run(incr("n", 5)), Response::Integer(5));
    assert_eq!(store.run(incr("n", -7)), Response::Integer(-2));
    assert_eq!(store.run(get("n")), bulk("-2"));
    assert_eq!(store.run(Operation::Append { key: b("n"), value: b("0") }), Response::Integer(3));
    assert_eq!(store.run(incr("n", 1)), Response::Integer(-19));
    assert_eq!(store.run(incr("string", 1)), Refusal::NotInteger.into());
    assert_eq!(store.run(incr("list", 1)), WRONG_TYPE);
    store.run(set("n", &i64::MAX.to_string()));
    assert_eq!(store.run(incr("n", 1)), Refusal::Overflow.into());
    assert_eq!(store.run(get("n")), bulk(&i64::MAX.to_string()));
    let float = |key: &str, by: f64| Operation::IncrByFloat { key: b(key), by: score(by) };
    assert_eq!(store.run(float("f", 0.1)), bulk("0.1"));
    assert_eq!(store.run(float("f", 0.2)), bulk("0.3"));
    assert_eq!(store.run(float("string", 0.2)), Refusal::NotFloat.into());
    assert_eq!(store.run(float("f", f64::INFINITY)), Refusal::NanOrInfinity.into());
    // With 17 decimals at most, as there.
    assert_eq!(store.run(float("small", 1e-20)), bulk("0"));
    assert_eq!(store.run(float("long", 0.0000012345678901234)), bulk("0.00000123456789012"));
}

#[test]
fn of_reads_in_a_transaction_only_those_are_refused_that_are_too_much() {
    let mut store = Store::default();
    let half = "x".repeat(isochrone_core::command::REPLY_MAX / 2 + 1_000);
    store.run(set("large", &half));
    store.run(set("small", "v"));
    let operations = ["large", "large", "small"].map(get).into();
    let answer = store.run(Operation::Transaction { watched: [].into(), operations });
    let Response::Array(parts) = answer else { panic!() };
    assert!(parts[0] == bulk(&half) && parts[1] == Refusal::ReplyTooLong.into() && parts[2] == bulk("v"));
}

#[test]
fn keys_are_renamed_copied_and_deleted() {
    let mut store = one_of_each();
    let rename = |key: &str, target: &str, only_if_absent| Operation::Rename {
        key: b(key),
        target: b(target),
        only_if_absent,
    };
    assert_eq!(store.run(rename("nothing", "x", false)), Refusal::NoSuchKey.into());
    assert_eq!(store.run(rename("string", "string", false)), Response::Ok);
    assert_eq!(store.run(rename("string", "string", true)), Response::Integer(0));
    assert_eq!(store.run(rename("string", "list", true)), Response::Integer(0));
    assert_eq!(store.run(rename("string", "list", false)), Response::Ok);
    assert_eq!(store.run(get("list")), bulk("text"));
    assert_eq!(store.run(rename("list", "string", true)), Response::Integer(1));
    let copy = |key: &str, target: &str, replace| Operation::Copy { key: b(key), target: b(target), replace };
    assert_eq!(store.run(copy("set", "set", false)), Refusal::SameObject.into());
    assert_eq!(store.run(copy("set", "copy", false)), Response::Integer(1));
    assert_eq!(store.run(copy("hash", "copy", false)), Response::Integer(0));
    assert_eq!(store.run(copy("hash", "copy", true)), Response::Integer(1));
    assert_eq!(store.run(copy("nothing", "copy", true)), Response::Integer(0));
    // The copy is its own.
    store.run(Operation::HSet { key: b("copy"), pairs: pairs("g 2") });
    assert_eq!(store.run(Operation::HLen { key: b("hash") }), Response::Integer(1));
    assert_eq!(store.run(Operation::Exists { keys: names("copy copy list zset") }), Response::Integer(3));
    assert_eq!(store.run(Operation::Del { keys: names("copy copy zset nothing") }), Response::Integer(2));
    for (key, kind) in
        [("string", Kind::String), ("hash", Kind::Hash), ("set", Kind::Set), ("zset", Kind::None)]
    {
        assert_eq!(store.run(Operation::Type { key: b(key) }), Response::Kind(kind));
    }
    assert_eq!(store.run(Operation::DbSize), Response::Integer(3));
    assert_eq!(store.run(Operation::Flush), Response::Ok);
    assert_eq!(store.run(Operation::DbSize), Response::Integer(0));
    assert_eq!((store.digest(), store == Store::default()), (0, true));
    assert_eq!(store.run(Operation::RandomKey { seed: 3 }), Response::Nil);
}

#[test]
fn a_scan_lists_what_stays_and_each_once() {
    let mut store = Store::default();
    for number in 0..3000 {
        store.run(set(&format!("key:{number}"), "v"));
    }
    store.run(push("other", "a"));
    let (mut cursor, mut seen, mut pages) = (0, Vec::new(), 0);
    loop {
        let scan = Operation::Scan { cursor, count: 50, pattern: Some(b("key:*")), kind: Some(Kind::String) };
        let Response::Scan { cursor: next, items } = store.run(scan) else { panic!() };
        assert!(items.len() <= 50 && next < 1 << 53);
        seen.extend(items);
        // Meanwhile half of the keys go and others come, so that branches fold and split.
        for number in (0..25).map(|step| pages * 50 + step * 2 + 1).filter(|number| *number < 3000) {
            store.run(Operation::Del { keys: names(&format!("key:{number}")) });
            store.run(set(&format!("new:{number}"), "v"));
        }
        pages += 1;
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    for number in (0..3000).step_by(2) {
        let key = b(&format!("key:{number}"));
        assert_eq!(seen.iter().filter(|seen| **seen == key).count(), 1, "{key:?}");
    }
    // A cursor that no scan has given is harmless.
    for cursor in [1, 1 << 51, 1 << 52, u64::MAX] {
        store.run(Operation::Scan { cursor, count: 0, pattern: None, kind: None });
    }
    let Response::Array(listed) = store.run(Operation::Keys { pattern: b("key:1?") }) else { panic!() };
    assert_eq!(listed.len(), 5);
    let Response::Bulk(key) = store.run(Operation::RandomKey { seed: 9 }) else { panic!() };
    assert_eq!(store.run(Operation::Exists { keys: [key].into() }), Response::Integer(1));
}

#[test]
fn transactions_are_one_step() {
    let mut store = one_of_each();
    let version = |store: &mut Store, key: &str| {
        let Response::Integer(version) = store.run(Operation::Version { key: b(key) }) else { panic!() };
        version as u64
    };
    let transaction = |watched: &[(&str, u64)], operations: &[Operation]| Operation::Transaction {
        watched: watched.iter().map(|(key, version)| (b(key), *version)).collect(),
        operations: operations.into(),
    };
    assert_eq!(version(&mut store, "nothing"), 0);
    let (string, set_before) = (version(&mut store, "string"), version(&mut store, "set"));
    assert!(string > 0 && string <= i64::MAX as u64);
    let watched = [("string", string), ("nothing", 0)];
    let operations = [
        set("string", "1"),
        Operation::IncrBy { key: b("string"), by: 1 },
        Operation::IncrBy { key: b("list"), by: 1 },
        transaction(&[("string", 7)], &[]),
        get("string"),
    ];
    // A refused operation does not undo the others: as in Redis.
    let expected = Response::Array(vec![
        Response::Ok,
        Response::Integer(2),
        WRONG_TYPE,
        Refusal::NestedTransaction.into(),
        bulk("2"),
    ]);
    assert_eq!(store.run(transaction(&watched, &operations)), expected);
    // The watched key has changed.
    assert_eq!(store.run(transaction(&watched, &operations)), Response::NilArray);
    let there = |key| transaction(&[(key, PRESENT)], &[]);
    assert_eq!(
        [store.run(there("string")), store.run(there("none"))],
        [Response::Array(vec![]), Response::NilArray]
    );
    // One that always takes place may stand within another, but hold no third.
    let inner = transaction(&[], &[set("string", "5"), get("string")]);
    let outer = transaction(&[], &[inner.clone(), transaction(&[], std::slice::from_ref(&inner))]);
    let both = Response::Array(vec![Response::Ok, bulk("5")]);
    assert_eq!(store.run(outer), Response::Array(vec![both, Refusal::NestedTransaction.into()]));
    let reads = transaction(&[], &[transaction(&[], &[get("string")])]);
    assert_eq!(store.run(reads), Response::Array(vec![Response::Array(vec![bulk("5")])]));
    store.run(set("string", "2"));
    assert_eq!(store.run(transaction(&[("nothing", 7)], &[get("string")])), Response::NilArray);
    assert_eq!(store.run(transaction(&[], &[get("string"), Operation::DbSize])), {
        Response::Array(vec![bulk("2"), Response::Integer(5)])
    });
    // What changes nothing changes no version.
    store.run(Operation::SAdd { key: b("set"), members: names("a") });
    store.run(Operation::SRem { key: b("set"), members: names("b") });
    assert_eq!(version(&mut store, "set"), set_before);
    store.run(Operation::SAdd { key: b("set"), members: names("b") });
    assert_ne!(version(&mut store, "set"), set_before);
    // A key that goes and comes back at the same stamp with something else is another one.
    let first = version(&mut store, "set");
    store.run(Operation::Del { keys: names("set") });
    store.run(Operation::SAdd { key: b("set"), members: names("a c") });
    assert_ne!(version(&mut store, "set"), first);
}

#[test]
fn bits_are_set_counted_found_and_combined() {
    use isochrone_core::command::{BitCombine, BitRange};
    let mut store = Store::default();
    let setbit = |offset, on| Operation::SetBit { key: b("b"), offset, on };
    assert_eq!(store.run(setbit(9, true)), Response::Integer(0));
    assert_eq!(store.run(Operation::Get { key: b("b") }), Response::bulk(&[0, 0x40]));
    assert_eq!(store.run(setbit(9, true)), Response::Integer(1));
    assert_eq!(store.run(setbit(9, false)), Response::Integer(1));
    assert_eq!(store.run(Operation::StrLen { key: b("b") }), Response::Integer(2));
    store.run(Operation::Set {
        key: b("b"),
        value: Blob::new(&[0xff, 0xf0, 0x0f]),
        condition: Condition::Always,
        expiry: Expiry::Clear,
        get: false,
    });
    let count =
        |start, end, bits| Operation::BitCount { key: b("b"), range: Some(BitRange { start, end, bits }) };
    for (start, end, bits, ones) in [
        (0, -1, false, 16),
        (1, 1, false, 4),
        (-1, -1, false, 4),
        (5, 9, true, 5),
        (9, 21, true, 5),
        (2, 3, true, 2),
        (8, 15, true, 4),
        (-2, -1, true, 2),
        (5, 2, false, 0),
        (3, 9, false, 0),
    ] {
        assert_eq!(store.run(count(start, end, bits)), Response::Integer(ones), "{start} {end} {bits}");
    }
    let find = |on, start, end, bits, open| Operation::BitPos {
        key: b("b"),
        on,
        range: BitRange { start, end, bits },
        open,
    };
    for (on, start, end, bits, open, place) in [
        (false, 0, -1, false, true, 12),
        (true, 1, -1, false, true, 8),
        (true, 2, -1, false, false, 20),
        (false, 0, 0, false, false, -1),
        (false, 0, 0, false, true, 8),
        (true, 12, 19, true, false, -1),
        (true, 13, 20, true, false, 20),
        (false, 9, 2, false, false, -1),
        (true, -7, -9, false, false, 0),
    ] {
        assert_eq!(
            store.run(find(on, start, end, bits, open)),
            Response::Integer(place),
            "{on} {start} {end}"
        );
    }
    store.run(set("s", "ab"));
    let combine = |combine, keys: &str| Operation::BitOp { combine, target: b("t"), keys: names(keys) };
    for (how, keys, bytes) in [
        (BitCombine::And, "b s", [0x61, 0x60, 0]),
        (BitCombine::Or, "b s none", [0xff, 0xf2, 0x0f]),
        (BitCombine::Xor, "b s", [0x9e, 0x92, 0x0f]),
        (BitCombine::Not, "b", [0, 0x0f, 0xf0]),
        // What is named twice.
        (BitCombine::And, "b s b s", [0x61, 0x60, 0]),
        (BitCombine::And, "b none", [0, 0, 0]),
        (BitCombine::Xor, "s b b s s", [0x61, 0x62, 0]),
        (BitCombine::Xor, "b b", [0, 0, 0]),
    ] {
        assert_eq!(store.run(combine(how, keys)), Response::Integer(3));
        assert_eq!(store.run(Operation::Get { key: b("t") }), Response::bulk(&bytes), "{how:?}");
    }
    assert_eq!(store.run(combine(BitCombine::Or, "none")), Response::Integer(0));
    assert_eq!(store.run(Operation::Exists { keys: names("t") }), Response::Integer(0));
    store.run(push("l", "a"));
    assert_eq!(store.run(combine(BitCombine::Or, "s l")), Refusal::WrongType.into());
    assert_eq!(
        store.run(Operation::SetBit { key: b("b"), offset: u64::MAX, on: true }),
        Refusal::StringTooLong.into()
    );
}

#[test]
fn numbers_in_bitmaps_wrap_saturate_or_stay() {
    use isochrone_core::command::{BitNumber, BitOverflow, BitStep};
    let mut store = Store::default();
    let mut run = |step| match store.run(Operation::BitField { key: b("b"), steps: [step].into() }) {
        Response::Array(mut answers) => answers.remove(0),
        other => other,
    };
    let number = |width, signed| BitNumber { offset: 3, width, signed };
    let (u2, i5, i64_, u63) = (number(2, false), number(5, true), number(64, true), number(63, false));
    use BitOverflow::{Fail, Saturate, Wrap};
    for (step, answer) in [
        (BitStep::Get(i64_), Some(0)),
        (BitStep::Set(u2, 7, Wrap), Some(0)),
        (BitStep::Get(u2), Some(3)),
        (BitStep::IncrBy(u2, 2, Wrap), Some(1)),
        (BitStep::IncrBy(u2, 9, Saturate), Some(3)),
        (BitStep::IncrBy(u2, -9, Saturate), Some(0)),
        (BitStep::IncrBy(u2, 4, Fail), None),
        (BitStep::Set(i5, 100, Saturate), Some(0)),
        (BitStep::Get(i5), Some(15)),
        (BitStep::IncrBy(i5, 1, Wrap), Some(-16)),
        (BitStep::Set(i64_, i64::MIN, Wrap), Some(i64::MIN)),
        (BitStep::IncrBy(i64_, -1, Wrap), Some(i64::MAX)),
        (BitStep::IncrBy(i64_, 1, Saturate), Some(i64::MAX)),
        (BitStep::Set(u63, -1, Saturate), Some(i64::MAX >> 1)),
        (BitStep::Get(u63), Some(i64::MAX)),
    ] {
        assert_eq!(run(step), answer.map_or(Response::Nil, Response::Integer), "{step:?}");
    }
}

#[test]
fn a_lock_is_changed_by_its_holder_only() {
    use isochrone_core::command::DeadlineChange::{MoveBy, MoveTo, To};
    let mut store = Store::default();
    store.run(set("lock", "me"));
    let release = |who: &str| Operation::DelIf { key: b("lock"), value: b(who) };
    let extend = |who: &str, deadline| Operation::ExpireIf { key: b("lock"), value: b(who), deadline };
    let ttl =
        || Operation::Ttl { key: b("lock"), unit: isochrone_core::command::TtlUnit::Millis, absolute: true };
    let (yes, no) = (Response::Integer(1), Response::Integer(0));
    assert_eq!(store.run(release("you")), no);
    assert_eq!(store.run(extend("me", MoveBy(5))), no, "there is no deadline to move");
    assert_eq!(store.run(extend("you", To(at(500)))), no);
    assert_eq!(store.run(extend("me", To(at(500)))), yes);
    assert_eq!(store.run(extend("me", MoveBy(250))), yes);
    assert_eq!(store.run(ttl()), Response::Integer(750));
    assert_eq!(store.run(extend("me", MoveTo(at(600)))), yes);
    assert_eq!(store.run(ttl()), Response::Integer(600));
    assert_eq!(store.run(release("me")), yes);
    assert_eq!(store.run(release("me")), no);
    store.run(set("lock", "me"));
    assert_eq!(store.run(extend("me", To(at(0)))), yes, "a deadline in the past deletes");
    assert_eq!(store.run(Operation::Exists { keys: names("lock") }), no);
    store.run(push("lock", "me"));
    for refused in [release("me"), extend("me", To(at(500)))] {
        assert_eq!(store.run(refused), Response::Error(Refusal::WrongType));
    }
}

#[test]
fn a_counter_of_a_limiter_has_a_deadline_from_its_first() {
    let mut store = one_of_each();
    let count = |key: &str, by, until, anew| {
        let key = b(key);
        Operation::CountUntil { key, by, until: at(until), anew }
    };
    let told = |sum, left| Response::Array(vec![Response::Integer(sum), Response::Integer(left)]);
    for anew in [false, true] {
        store.run(Operation::Del { keys: names("n") });
        assert_eq!(store.run(count("n", 1, 500, anew)), told(1, 499));
        assert_eq!(store.run(count("n", 1, 700, anew)), told(2, 499), "it has its deadline");
        store.run(set("n", "5"));
        assert_eq!(store.run(count("n", 2, 700, anew)), told(if anew { 2 } else { 7 }, 699));
        store.run(set("n", "5"));
        assert_eq!(store.run(count("n", 2, 0, anew)), told(if anew { 2 } else { 7 }, 0));
        assert_eq!(store.run(get("n")), Response::Nil, "a deadline in the past deletes");
    }
    assert_eq!(store.run(count("list", 1, 500, false)), WRONG_TYPE);
    assert_eq!(store.run(count("string", 1, 500, false)), Refusal::NotInteger.into());
    let ttl = |key: &str| Operation::Ttl {
        key: b(key),
        unit: isochrone_core::command::TtlUnit::Millis,
        absolute: false,
    };
    assert_eq!(store.run(ttl("list")), Response::Integer(-1), "it is as it was");
    assert_eq!(store.run(count("list", 1, 500, true)), told(1, 499));
    assert_eq!(store.run(get("list")), bulk("1"));
    store.run(Operation::ExpireAt { key: b("set"), at: at(400), condition: ExpiryCondition::Always });
    assert_eq!(store.run(count("set", 1, 500, true)), WRONG_TYPE);
}

#[test]
fn encodings_have_the_names_of_redis() {
    let mut store = one_of_each();
    store.run(set("int", "17"));
    store.run(set("long", &"x".repeat(45)));
    store.run(Operation::SAdd { key: b("ints"), members: names("1 2 3") });
    store.run(Operation::HSet { key: b("large"), pairs: pairs(&format!("f {}", "x".repeat(65))) });
    let mut text = String::new();
    for key in ["string", "int", "long", "hash", "large", "list", "set", "ints", "zset", "none"] {
        text.push_str(&match store.run(Operation::Encoding { key: b(key) }) {
            Response::Bulk(name) => format!("{key} {}\n", String::from_utf8_lossy(&name)),
            other => format!("{key} {other:?}\n"),
        });
    }
    assert_eq!(
        text,
        "string embstr\nint int\nlong raw\nhash listpack\nlarge hashtable\nlist quicklist\nset hashtable\n\
         ints intset\nzset listpack\nnone Nil\n"
    );
}

/// Edits of a string that lies in pieces are those of one that does not; taken back, they were never there, and what they
/// keep is little.
#[test]
fn long_strings_are_edited_piece_by_piece() {
    use crate::bytes::{LONG_MIN, PIECE};
    use isochrone_core::Export as _;
    use isochrone_core::command::{BitNumber, BitOverflow, BitRange, BitStep};
    let key = || b("k");
    let number = |offset| BitNumber { offset, width: 64, signed: true };
    let (last, bits) = (PIECE as u64 - 1, LONG_MIN as u64 * 8);
    let add = |value: Vec<u8>| Operation::Append { key: key(), value: value.into() };
    let over = |offset, value: &[u8]| Operation::SetRange { key: key(), offset, value: value.into() };
    let bit = |offset, on| Operation::SetBit { key: key(), offset, on };
    let field = |steps: &[BitStep]| Operation::BitField { key: key(), steps: steps.into() };
    let wrap = BitOverflow::Wrap;
    let edits = || {
        [
            add(Vec::new()),
            add(b"behind".to_vec()),
            add(vec![7; 2 * PIECE + 1]),
            over(0, b"first"),
            over(last, b"across"),
            over(3 * last, &[9; 2 * PIECE]),
            over(2 * bits / 8, b"beyond"),
            bit(0, true),
            bit(bits - 1, true),
            bit(bits, false),
            bit(3 * bits, true),
            field(&[BitStep::Set(number(last * 8 + 3), -2, wrap), BitStep::IncrBy(number(bits), 5, wrap)]),
            // What stands as it was in the end has not changed.
            field(&[BitStep::Set(number(5), 1, wrap), BitStep::Set(number(5), 0, wrap)]),
            field(&[BitStep::IncrBy(number(4 * bits), 5, wrap), BitStep::Get(number(u64::MAX))]),
        ]
    };
    let range = |start, end, bits| BitRange { start, end, bits };
    let seen = [
        get("k"),
        Operation::StrLen { key: key() },
        Operation::GetRange { key: key(), start: last as i64 - 2, end: 2 * last as i64 },
        Operation::GetRange { key: key(), start: -9, end: -1 },
        Operation::GetBit { key: key(), offset: last * 8 + 13 },
        Operation::GetBit { key: key(), offset: u64::MAX },
        Operation::BitCount { key: key(), range: None },
        Operation::BitCount { key: key(), range: Some(range(last as i64 * 8 - 3, bits as i64 + 3, true)) },
        Operation::BitPos { key: key(), on: true, range: range(7, -1, false), open: true },
        Operation::BitPos { key: key(), on: false, range: range(-99, -1, true), open: true },
        Operation::BitPos { key: key(), on: false, range: range(8 * last as i64 + 3, -1, true), open: true },
        field(&[BitStep::Get(number(last * 8 + 3)), BitStep::Get(number(bits + 9))]),
        Operation::Weight { key: key(), samples: 0 },
        Operation::Encoding { key: key() },
    ];
    for length in [0, 1, LONG_MIN - 1, LONG_MIN, 3 * LONG_MIN + 5] {
        let mut store = Store::default();
        if length > 0 {
            store.run(Operation::Set {
                key: key(),
                value: Blob::from(vec![0; length]),
                condition: Condition::Always,
                expiry: Expiry::At(at(500)),
                get: false,
            });
        }
        let (mut back, mut states) = (Vec::new(), Vec::new());
        for (millis, edit) in (1..).zip(edits()) {
            let held = store.bytes(b"k").unwrap();
            let command = command(millis, edit);
            // The same of a string that was put in as one, as after a snapshot.
            let view = store.export();
            let mut whole = Store::default();
            (0..).map_while(|index| view.chunk(index)).for_each(|chunk| whole.absorb(&chunk).unwrap());
            assert!(whole == store);
            assert!(store == whole, "either way");
            let before = store.before(&command);
            if length >= 3 * LONG_MIN && millis > 2 {
                assert!(Store::kept(&before) < LONG_MIN, "{command:?}");
            }
            states.push((store.clone(), held));
            back.push(before);
            assert_eq!(store.apply(&command), whole.apply(&command), "{command:?} of {length}");
            assert!(whole == store && whole.digest() == store.digest(), "{command:?} of {length}");
            assert_eq!(whole.bytes(b"k"), store.bytes(b"k"), "{command:?} of {length}");
            let (one, again) = (store.bytes(b"k").unwrap(), store.bytes(b"k").unwrap());
            let place = |bytes: &Option<Blob>| bytes.as_ref().map(|bytes| bytes.as_ptr());
            assert_eq!(place(&one), place(&again), "who reads all of it again has the same copy");
            for look in &seen {
                assert_eq!(store.run(look.clone()), whole.run(look.clone()), "{look:?} of {length}");
            }
        }
        for (before, (state, held)) in back.into_iter().zip(states).rev() {
            store.revert(before);
            assert!(
                store == state && store.digest() == state.digest() && store.deadline() == state.deadline()
            );
            assert_eq!(store.bytes(b"k").unwrap(), held);
        }
    }
}

#[test]
fn what_a_small_command_leaves_is_weighed() {
    let mut store = Store::default();
    store.run(Operation::SetRange { key: b("whole"), offset: 999, value: b("x") });
    store.run(Operation::SetRange { key: b("k"), offset: 999_999, value: b("x") });
    store.run(Operation::SAdd { key: b("s"), members: names("a b c") });
    let weight = |operation| Store::kept(&store.before(&command(1, operation)));
    let del = |keys| Operation::Del { keys: names(keys) };
    let edit = || Operation::SetBit { key: b("k"), offset: 1, on: true };
    assert_eq!((weight(get("k")), weight(set("none", "v"))), (0, 0));
    assert_eq!((weight(set("k", "v")), weight(del("whole k"))), (1_000_000, 1_001_000));
    assert!(weight(edit()) < 100_000);
    let both = Operation::Transaction { watched: [].into(), operations: [edit(), edit(), del("s")].into() };
    assert_eq!(weight(both), 2 * weight(edit()) + weight(del("s")));
    assert!(weight(del("s")) > 0 && weight(Operation::SAdd { key: b("s"), members: names("d") }) == 0);
}

/// Of a collection that is small to name: what is taken out of it, and the references to its blocks that a change copies.
#[test]
fn what_is_taken_out_of_a_collection_is_weighed() {
    use isochrone_core::command::{Chord, End, ExpiryCondition};
    use std::sync::Arc;
    const LEN: usize = 6_400;
    const ALL: usize = LEN * 64;
    const SPINE: usize = LEN / 64 * 16;
    let mut store = Store::default();
    let each = |write: fn(usize) -> String| (0..LEN).map(write).collect::<Vec<_>>().join(" ");
    let members = each(|n| format!("m{n}"));
    store.run(push("list", &members));
    store.run(push("old", &members));
    store.run(Operation::SAdd { key: b("set"), members: names(&members) });
    store.run(Operation::HSet { key: b("hash"), pairs: pairs(&each(|n| format!("m{n} v"))) });
    let scores = scored(&each(|n| format!("{n} m{n}")));
    store.run(Operation::ZAdd { key: b("zset"), flags: Default::default(), members: scores });
    let dated = |key: &str, millis| Operation::ExpireAt {
        key: b(key),
        at: at(millis),
        condition: ExpiryCondition::Always,
    };
    store.run(dated("old", 50));
    let weight_at = |millis, operation| Store::kept(&store.before(&command(millis, operation)));
    let weight = |operation| weight_at(1, operation);

    assert_eq!((weight_at(49, lrange("old")), weight_at(50, lrange("old"))), (0, ALL), "it expires");
    assert_eq!((weight(dated("list", 2)), weight(dated("list", 1))), (0, ALL));
    let kept = |condition, get| Operation::Set {
        key: b("list"),
        value: b("v"),
        condition,
        expiry: Expiry::Keep,
        get,
    };
    assert!(
        weight(kept(Condition::Always, false)) >= ALL && weight(kept(Condition::IfPresent, false)) >= ALL
    );
    assert!(weight(kept(Condition::IfAbsent, false)) < ALL && weight(kept(Condition::Always, true)) < ALL);

    let pop = |count| Operation::Pop { key: b("list"), side: Side::Left, count };
    let lmpop = Operation::LMPop { keys: names("none list"), side: Side::Left, count: 2 };
    assert_eq!((weight(push("list", "a")), weight(lmpop)), (SPINE, SPINE + 2 * 64));
    assert_eq!((weight(pop(None)), weight(pop(Some(3)))), (SPINE + 64, SPINE + 3 * 64));
    assert_eq!(weight(pop(Some(u64::MAX))), SPINE + ALL);
    let trim = |start, stop| Operation::LTrim { key: b("list"), start, stop };
    assert_eq!((weight(trim(1, -1)), weight(trim(1, 0))), (SPINE + 64, SPINE + ALL));
    let rem = |count| Operation::LRem { key: b("list"), count, value: b("m1") };
    assert_eq!((weight(rem(-1)), weight(rem(8)), weight(rem(0))), (SPINE + 64, SPINE + 8 * 64, SPINE + ALL));
    assert_eq!(weight(rem(9)), SPINE + ALL, "it is written anew");

    let zpop = |count| Operation::ZPop { key: b("zset"), end: End::Least, count };
    let zmpop = Operation::ZMPop { keys: names("zset"), end: End::Greatest, count: 2 };
    assert_eq!((weight(zpop(None)), weight(zmpop)), (SPINE + 64, SPINE + 2 * 64));
    let range = Arc::new(index(0, 9));
    assert_eq!(weight(Operation::ZRemRange { key: b("zset"), range }), SPINE + 10 * 64);
    let zrem = Operation::ZRem { key: b("zset"), members: names("m1 m2") };
    let srem = Operation::SRem { key: b("set"), members: names("m1 m2") };
    let hdel = Operation::HDel { key: b("hash"), fields: names("m1 m2") };
    assert_eq!((weight(zrem), weight(srem), weight(hdel)), (SPINE + 2 * 64, 2 * 64, 2 * 64));
    let spop = |count| Operation::SPop { key: b("set"), count, seed: 1 };
    assert_eq!((weight(spop(None)), weight(spop(Some(u64::MAX)))), (64, ALL));

    let keys = ["list", "zset", "set", "hash"].map(b).to_vec();
    let chord = Chord::Finish { claim: b("claim"), keys, token: b("me"), done_until: None };
    assert_eq!(weight(Operation::ChordStep { chord: Arc::new(chord) }), 4 * ALL + 2 * SPINE);
    // The order is copied once, whatever a transaction looks at beside.
    let both = [push("list", "a"), get("none"), pop(None)].into();
    let both = Operation::Transaction { watched: [(b("list"), 1)].into(), operations: both };
    assert_eq!(weight(both), SPINE + 64);
    assert_eq!(weight(Operation::Flush), 5 * 64);
}
