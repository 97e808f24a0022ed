use super::*;
use crate::turn::{fits, fits_behind};
use isochrone_core::command::{
    Aggregate, Combine, End, LexBound, Limit, REPLY_MAX, ScoreBound, ScoreCondition, Slice, WeightedInputs,
    ZAddFlags,
};
use std::sync::Arc;

#[test]
fn operations_refuse_other_types_and_change_nothing() {
    let key = b("string");
    let slice = Arc::new(Slice { selection: index(0, -1), reverse: false, limit: None });
    let inputs = Arc::new(WeightedInputs {
        combine: Combine::Union,
        inputs: vec![(key.clone(), score(1.0))],
        aggregate: Aggregate::Sum,
    });
    for operation in [
        Operation::HSet { key: key.clone(), pairs: pairs("f v") },
        Operation::HGetAll { key: key.clone() },
        Operation::HDel { key: key.clone(), fields: names("f") },
        Operation::HIncrBy { key: key.clone(), field: b("f"), by: 1 },
        push("string", "a"),
        lrange("string"),
        Operation::Pop { key: key.clone(), side: Side::Left, count: None },
        Operation::LMove { source: b("list"), target: key.clone(), from: Side::Left, to: Side::Left },
        Operation::SAdd { key: key.clone(), members: names("a") },
        Operation::SCombine { combine: Combine::Intersection, keys: names("nothing string") },
        Operation::SMove { source: b("set"), target: key.clone(), member: b("a") },
        Operation::ZAdd { key: key.clone(), flags: Default::default(), members: scored("1 a") },
        Operation::ZRange { key: key.clone(), slice: slice.clone(), with_scores: false },
        Operation::ZRangeStore { target: b("x"), source: key.clone(), slice },
        Operation::ZCombine { inputs, with_scores: true },
    ] {
        assert_eq!(one_of_each().run(operation.clone()), WRONG_TYPE, "{operation:?}");
    }
    for key in ["hash", "list", "set", "zset"] {
        assert_eq!(one_of_each().run(get(key)), WRONG_TYPE);
        assert_eq!(one_of_each().run(Operation::Append { key: b(key), value: b("v") }), WRONG_TYPE);
    }
}

#[test]
fn hashes() {
    let mut store = Store::default();
    let key = || b("h");
    assert_eq!(store.run(Operation::HSet { key: key(), pairs: pairs("a 1 b 2 a 3") }), Response::Integer(2));
    assert_eq!(store.run(Operation::HSet { key: key(), pairs: pairs("a 4 c 5") }), Response::Integer(1));
    assert_eq!(store.run(Operation::HGet { key: key(), field: b("a") }), bulk("4"));
    assert_eq!(store.run(Operation::HGet { key: b("x"), field: b("a") }), Response::Nil);
    assert_eq!(
        store.run(Operation::HMGet { key: key(), fields: names("a x c") }),
        Response::Array(vec![bulk("4"), Response::Nil, bulk("5")])
    );
    assert_eq!(
        sorted(store.run(Operation::HGetAll { key: key() })),
        Response::Map(vec![(bulk("a"), bulk("4")), (bulk("b"), bulk("2")), (bulk("c"), bulk("5"))])
    );
    assert_eq!(store.run(Operation::HGetAll { key: b("x") }), Response::Map(vec![]));
    assert_eq!(sorted(store.run(Operation::HKeys { key: key() })), array("a b c"));
    assert_eq!(sorted(store.run(Operation::HVals { key: key() })), array("2 4 5"));
    let setnx = |field: &str| Operation::HSetNx { key: key(), field: b(field), value: b("7") };
    assert_eq!(store.run(setnx("a")), Response::Integer(0));
    assert_eq!(store.run(setnx("d")), Response::Integer(1));
    assert_eq!(store.run(Operation::HExists { key: key(), field: b("d") }), Response::Integer(1));
    let incr = |field: &str, by| Operation::HIncrBy { key: key(), field: b(field), by };
    assert_eq!(store.run(incr("d", 3)), Response::Integer(10));
    assert_eq!(store.run(incr("e", -3)), Response::Integer(-3));
    assert_eq!(store.run(incr("e", i64::MIN)), Refusal::Overflow.into());
    store.run(Operation::HSet { key: key(), pairs: pairs("t text") });
    assert_eq!(store.run(incr("t", 3)), Refusal::HashNotInteger.into());
    let float = |field: &str, by| Operation::HIncrByFloat { key: key(), field: b(field), by: score(by) };
    assert_eq!(store.run(float("t", 1.0)), Refusal::HashNotFloat.into());
    assert_eq!(store.run(float("d", 0.5)), bulk("10.5"));
    assert_eq!(store.run(Operation::HStrLen { key: key(), field: b("t") }), Response::Integer(4));
    let Response::Scan { cursor: 0, items } =
        store.run(Operation::HScan { key: key(), cursor: 0, count: 100, pattern: Some(b("[at]")) })
    else {
        panic!()
    };
    assert_eq!(items.len(), 4);
    let random = |count| Operation::HRandField { key: key(), count, seed: 5, with_values: count.is_some() };
    assert!(matches!(store.run(random(None)), Response::Bulk(_)));
    assert!(matches!(store.run(random(Some(2))), Response::Pairs(pairs) if pairs.len() == 2));
    assert!(matches!(store.run(random(Some(-20))), Response::Pairs(pairs) if pairs.len() == 20));
    assert_eq!(store.run(Operation::HDel { key: key(), fields: names("a b x") }), Response::Integer(2));
    assert_eq!(store.run(Operation::HLen { key: key() }), Response::Integer(4));
    assert_eq!(store.run(Operation::HDel { key: key(), fields: names("c d e t") }), Response::Integer(4));
    assert!(store.is_empty(), "an empty hash is no hash");
}

#[test]
fn lists() {
    let mut store = Store::default();
    let left = |values: &str| Operation::Push {
        key: b("l"),
        values: names(values),
        side: Side::Left,
        only_if_exists: true,
    };
    assert_eq!(store.run(left("a")), Response::Integer(0));
    assert_eq!(store.run(push("l", "c d e")), Response::Integer(3));
    assert_eq!(store.run(left("b a")), Response::Integer(5));
    assert_eq!(store.run(lrange("l")), array("a b c d e"));
    for (start, stop, expected) in [
        (1, 2, "b c"),
        (-2, -1, "d e"),
        (-100, 1, "a b"),
        (3, 100, "d e"),
        (3, 2, ""),
        (9, 12, ""),
        (0, -9, ""),
    ] {
        assert_eq!(
            store.run(Operation::LRange { key: b("l"), start, stop }),
            array(expected),
            "{start} {stop}"
        );
    }
    let lindex = |index| Operation::LIndex { key: b("l"), index };
    assert_eq!(store.run(lindex(-1)), bulk("e"));
    assert_eq!(store.run(lindex(5)), Response::Nil);
    assert_eq!(store.run(lindex(i64::MIN)), Response::Nil);
    let lset = |key: &str, index| Operation::LSet { key: b(key), index, value: b("x") };
    assert_eq!(store.run(lset("l", -5)), Response::Ok);
    assert_eq!(store.run(lset("l", 5)), Refusal::IndexOutOfRange.into());
    assert_eq!(store.run(lset("none", 0)), Refusal::NoSuchKey.into());
    let insert =
        |before, pivot: &str| Operation::LInsert { key: b("l"), before, pivot: b(pivot), value: b("x") };
    assert_eq!(store.run(insert(true, "c")), Response::Integer(6));
    assert_eq!(store.run(insert(false, "e")), Response::Integer(7));
    assert_eq!(store.run(insert(false, "zz")), Response::Integer(-1));
    assert_eq!(store.run(lrange("l")), array("x b x c d e x"));
    let pos = |rank, count, length| Operation::LPos { key: b("l"), element: b("x"), rank, count, length };
    let numbers = |all: &[i64]| Response::Array(all.iter().map(|n| Response::Integer(*n)).collect());
    assert_eq!(store.run(pos(1, None, 0)), Response::Integer(0));
    assert_eq!(store.run(pos(2, None, 0)), Response::Integer(2));
    assert_eq!(store.run(pos(-1, None, 0)), Response::Integer(6));
    assert_eq!(store.run(pos(4, None, 0)), Response::Nil);
    assert_eq!(store.run(pos(1, Some(0), 0)), numbers(&[0, 2, 6]));
    assert_eq!(store.run(pos(-1, Some(2), 0)), numbers(&[6, 2]));
    assert_eq!(store.run(pos(2, Some(2), 0)), numbers(&[2, 6]));
    assert_eq!(store.run(pos(1, Some(0), 3)), numbers(&[0, 2]));
    assert_eq!(store.run(pos(-1, Some(0), 3)), numbers(&[6]));
    assert_eq!(store.run(pos(i64::MIN, Some(0), 0)), numbers(&[]));
    let rem = |count| Operation::LRem { key: b("l"), count, value: b("x") };
    assert_eq!(store.run(rem(-1)), Response::Integer(1));
    assert_eq!(store.run(rem(1)), Response::Integer(1));
    assert_eq!(store.run(lrange("l")), array("b x c d e"));
    assert_eq!(store.run(rem(0)), Response::Integer(1));
    let pop = |side, count| Operation::Pop { key: b("l"), side, count };
    assert_eq!(store.run(pop(Side::Left, None)), bulk("b"));
    assert_eq!(store.run(pop(Side::Right, Some(0))), array(""));
    assert_eq!(store.run(pop(Side::Right, Some(2))), array("e d"));
    let mpop = Operation::LMPop { keys: names("none l"), side: Side::Left, count: 3 };
    assert_eq!(store.run(mpop.clone()), Response::Array(vec![bulk("l"), array("c")]));
    assert_eq!(store.run(mpop), Response::NilArray);
    assert_eq!(store.run(pop(Side::Left, None)), Response::Nil);
    assert_eq!(store.run(pop(Side::Left, Some(1))), Response::NilArray);
    assert!(store.is_empty(), "an empty list is no list");
}

#[test]
fn lists_are_trimmed_and_moved() {
    let mut store = Store::default();
    store.run(push("l", "a b c d e f"));
    let trim = |start, stop| Operation::LTrim { key: b("l"), start, stop };
    assert_eq!(store.run(trim(1, -2)), Response::Ok);
    assert_eq!(store.run(lrange("l")), array("b c d e"));
    let lmove = |source: &str, target: &str, from, to| Operation::LMove {
        source: b(source),
        target: b(target),
        from,
        to,
    };
    assert_eq!(store.run(lmove("l", "m", Side::Left, Side::Right)), bulk("b"));
    assert_eq!(store.run(lmove("l", "m", Side::Right, Side::Left)), bulk("e"));
    assert_eq!(store.run(lrange("m")), array("e b"));
    assert_eq!(store.run(lmove("m", "m", Side::Left, Side::Right)), bulk("e"));
    assert_eq!(store.run(lrange("m")), array("b e"));
    assert_eq!(store.run(lmove("none", "m", Side::Left, Side::Right)), Response::Nil);
    assert_eq!(store.run(trim(5, 9)), Response::Ok);
    assert_eq!(store.run(Operation::Exists { keys: names("l") }), Response::Integer(0));
    // Long lists, many elements gone at once.
    let many: Vec<String> = (0..1000).map(|number| (number % 3).to_string()).collect();
    store.run(push("long", &many.join(" ")));
    let rem = |count| Operation::LRem { key: b("long"), count, value: b("1") };
    assert_eq!(store.run(rem(-300)), Response::Integer(300));
    assert_eq!(
        store.run(Operation::LPos { key: b("long"), element: b("1"), rank: -1, count: None, length: 0 }),
        { Response::Integer(32 * 3 + 1) }
    );
    assert_eq!(store.run(rem(0)), Response::Integer(33));
    assert_eq!(store.run(Operation::LLen { key: b("long") }), Response::Integer(667));
}

#[test]
fn sets() {
    let mut store = Store::default();
    let add = |key: &str, members: &str| Operation::SAdd { key: b(key), members: names(members) };
    assert_eq!(store.run(add("s", "a b a c")), Response::Integer(3));
    assert_eq!(store.run(add("s", "a d")), Response::Integer(1));
    assert_eq!(store.run(add("t", "c d e")), Response::Integer(3));
    assert_eq!(store.run(Operation::SIsMember { key: b("s"), member: b("a") }), Response::Integer(1));
    assert_eq!(
        store.run(Operation::SMIsMember { key: b("s"), members: names("a x") }),
        Response::Array(vec![Response::Integer(1), Response::Integer(0)])
    );
    let combine = |combine, keys: &str| Operation::SCombine { combine, keys: names(keys) };
    assert_eq!(sorted(store.run(combine(Combine::Union, "s none t"))), array("a b c d e"));
    assert_eq!(sorted(store.run(combine(Combine::Intersection, "s t"))), array("c d"));
    assert_eq!(sorted(store.run(combine(Combine::Intersection, "s none t"))), array(""));
    assert_eq!(sorted(store.run(combine(Combine::Difference, "s none t"))), array("a b"));
    assert_eq!(sorted(store.run(combine(Combine::Difference, "none t"))), array(""));
    assert_eq!(sorted(store.run(combine(Combine::Difference, "s s t"))), array(""));
    // A few large ones are looked through for each member, many small ones are taken away.
    (0..9).for_each(|n| drop(store.run(add(&format!("d{n}"), &n.to_string()))));
    store.run(add("d", "0 1 2 3 4 5 6 7 8 a"));
    let many = (0..9).map(|n| format!(" d{n}")).collect::<String>();
    assert_eq!(sorted(store.run(combine(Combine::Difference, &format!("d{many} none")))), array("a"));
    store.run(Operation::Del { keys: names(&format!("d{many}")) });
    let store_in = |combine, target: &str, keys: &str| Operation::SCombineStore {
        combine,
        target: b(target),
        keys: names(keys),
    };
    assert_eq!(store.run(store_in(Combine::Union, "u", "s t")), Response::Integer(5));
    assert_eq!(store.run(store_in(Combine::Difference, "u", "u s")), Response::Integer(1));
    assert_eq!(sorted(store.run(Operation::SMembers { key: b("u") })), array("e"));
    assert_eq!(store.run(store_in(Combine::Intersection, "u", "s none")), Response::Integer(0));
    assert_eq!(store.run(Operation::Exists { keys: names("u") }), Response::Integer(0));
    let card = |limit| Operation::SInterCard { keys: names("s t"), limit };
    assert_eq!(store.run(card(0)), Response::Integer(2));
    assert_eq!(store.run(card(1)), Response::Integer(1));
    let smove = |member: &str| Operation::SMove { source: b("s"), target: b("t"), member: b(member) };
    assert_eq!(store.run(smove("a")), Response::Integer(1));
    assert_eq!(store.run(smove("c")), Response::Integer(1));
    assert_eq!(store.run(smove("x")), Response::Integer(0));
    assert_eq!(sorted(store.run(Operation::SMembers { key: b("t") })), array("a c d e"));
    assert_eq!(store.run(Operation::SRem { key: b("s"), members: names("b d x") }), Response::Integer(2));
    assert_eq!(store.len(), 1);
    let rand = |count| Operation::SRandMember { key: b("t"), count, seed: 11 };
    assert!(matches!(store.run(rand(None)), Response::Bulk(_)));
    assert_eq!(sorted(store.run(rand(Some(9)))), array("a c d e"));
    assert!(matches!(store.run(rand(Some(-9))), Response::Array(chosen) if chosen.len() == 9));
    let spop = |count| Operation::SPop { key: b("t"), count, seed: 12 };
    assert!(matches!(store.run(spop(None)), Response::Bulk(_)));
    assert!(matches!(store.run(spop(Some(2))), Response::Set(popped) if popped.len() == 2));
    assert!(matches!(store.run(spop(Some(2))), Response::Set(popped) if popped.len() == 1));
    assert_eq!(store.run(spop(None)), Response::Nil);
    assert_eq!(store.run(spop(Some(2))), Response::Set(vec![]));
    assert!(store.is_empty());
}

fn zrange(selection: Selection, reverse: bool, limit: Option<(i64, i64)>) -> Operation {
    let limit = limit.map(|(offset, count)| Limit { offset, count });
    Operation::ZRange {
        key: b("z"),
        slice: Arc::new(Slice { selection, reverse, limit }),
        with_scores: false,
    }
}

fn by_score(min: f64, min_exclusive: bool, max: f64, max_exclusive: bool) -> Selection {
    Selection::Score {
        min: ScoreBound { score: score(min), exclusive: min_exclusive },
        max: ScoreBound { score: score(max), exclusive: max_exclusive },
    }
}

#[test]
fn sorted_sets_add_under_flags() {
    let mut store = Store::default();
    let add = |flags, text: &str| Operation::ZAdd { key: b("z"), flags, members: scored(text) };
    let plain = ZAddFlags::default();
    let new = ZAddFlags { condition: Condition::IfAbsent, ..plain };
    let held = ZAddFlags { condition: Condition::IfPresent, changed: true, ..plain };
    let greater = ZAddFlags { scores: ScoreCondition::Greater, changed: true, ..plain };
    let less = ZAddFlags { scores: ScoreCondition::Less, ..plain };
    assert_eq!(store.run(add(held, "1 a")), Response::Integer(0));
    assert!(store.is_empty());
    assert_eq!(store.run(add(plain, "1 a 2 b 3 a")), Response::Integer(2));
    assert_eq!(store.run(add(new, "9 a 3 c")), Response::Integer(1));
    assert_eq!(store.run(add(held, "4 a 5 x 2 b")), Response::Integer(1));
    assert_eq!(store.run(add(greater, "3 a 5 b 1 d")), Response::Integer(2));
    assert_eq!(store.run(add(less, "3 a 6 b")), Response::Integer(0));
    let scores = Operation::ZMScore { key: b("z"), members: names("a b c d x") };
    let double = |value| Response::Double(score(value));
    assert_eq!(
        store.run(scores),
        Response::Array(vec![double(3.0), double(5.0), double(3.0), double(1.0), Response::Nil])
    );
    let incr =
        |member: &str, by, flags| Operation::ZIncrBy { key: b("z"), member: b(member), by: score(by), flags };
    assert_eq!(store.run(incr("a", 1.5, plain)), double(4.5));
    assert_eq!(store.run(incr("e", 2.0, plain)), double(2.0));
    assert_eq!(store.run(incr("e", 2.0, new)), Response::Nil);
    assert_eq!(store.run(incr("f", 2.0, held)), Response::Nil);
    assert_eq!(store.run(incr("e", -2.0, greater)), Response::Nil);
    assert_eq!(store.run(incr("e", -2.0, less)), double(0.0));
    assert_eq!(store.run(incr("e", f64::INFINITY, plain)), double(f64::INFINITY));
    assert_eq!(store.run(incr("e", f64::NEG_INFINITY, plain)), Refusal::ScoreNan.into());
}

#[test]
fn sorted_sets_answer_ranges() {
    let mut store = Store::default();
    store.run(Operation::ZAdd {
        key: b("z"),
        flags: Default::default(),
        members: scored("1 a 2 b 2 c 3 d -inf low inf top"),
    });
    let inf = f64::INFINITY;
    for (operation, expected) in [
        (zrange(index(0, -1), false, None), "low a b c d top"),
        (zrange(index(1, 2), false, None), "a b"),
        (zrange(index(0, 1), true, None), "top d"),
        (zrange(index(-2, -1), true, None), "a low"),
        (zrange(index(7, 9), true, None), ""),
        (zrange(by_score(2.0, false, 3.0, false), false, None), "b c d"),
        (zrange(by_score(2.0, true, 3.0, false), false, None), "d"),
        (zrange(by_score(1.0, false, 2.0, true), false, None), "a"),
        (zrange(by_score(-inf, false, inf, false), true, None), "top d c b a low"),
        (zrange(by_score(-inf, true, inf, true), false, None), "a b c d"),
        (zrange(by_score(-inf, true, inf, true), false, Some((1, 2))), "b c"),
        (zrange(by_score(-inf, true, inf, true), true, Some((1, 2))), "c b"),
        (zrange(by_score(-inf, true, inf, true), true, Some((2, -1))), "b a"),
        (zrange(by_score(-inf, true, inf, true), false, Some((-1, 2))), ""),
        (zrange(by_score(-inf, true, inf, true), false, Some((9, 2))), ""),
        (zrange(by_score(3.0, false, 2.0, false), false, None), ""),
        (zrange(by_score(2.0, true, 2.0, true), false, None), ""),
    ] {
        assert_eq!(store.run(operation.clone()), array(expected), "{operation:?}");
    }
    let count = |range| Operation::ZCount { key: b("z"), range: Arc::new(range) };
    assert_eq!(store.run(count(by_score(2.0, false, inf, true))), Response::Integer(3));
    let rank = |member: &str, reverse, with_score| Operation::ZRank {
        key: b("z"),
        member: b(member),
        reverse,
        with_score,
    };
    assert_eq!(store.run(rank("c", false, false)), Response::Integer(3));
    assert_eq!(store.run(rank("c", true, true)), {
        Response::Array(vec![Response::Integer(2), Response::Double(score(2.0))])
    });
    assert_eq!(store.run(rank("x", false, false)), Response::Nil);
    assert_eq!(store.run(rank("x", false, true)), Response::NilArray);
    let slice = Arc::new(Slice { selection: index(0, 1), reverse: true, limit: None });
    let store_in =
        |source: &str| Operation::ZRangeStore { target: b("y"), source: b(source), slice: slice.clone() };
    assert_eq!(store.run(store_in("z")), Response::Integer(2));
    assert_eq!(store.run(Operation::ZCard { key: b("y") }), Response::Integer(2));
    assert_eq!(store.run(store_in("none")), Response::Integer(0));
    assert_eq!(store.run(Operation::Exists { keys: names("y") }), Response::Integer(0));
    let remove = |range| Operation::ZRemRange { key: b("z"), range: Arc::new(range) };
    assert_eq!(store.run(remove(by_score(2.0, false, 2.0, false))), Response::Integer(2));
    assert_eq!(store.run(remove(index(-1, -1))), Response::Integer(1));
    assert_eq!(store.run(zrange(index(0, -1), false, None)), array("low a d"));
    let pair = |member: &str, value| (bulk(member), Response::Double(score(value)));
    let pop = |end, count| Operation::ZPop { key: b("z"), end, count };
    assert_eq!(store.run(pop(End::Greatest, Some(2))), Response::Pairs(vec![pair("d", 3.0), pair("a", 1.0)]));
    assert_eq!(store.run(pop(End::Least, None)), {
        Response::Array(vec![bulk("low"), Response::Double(score(-inf))])
    });
    assert_eq!(store.run(pop(End::Least, None)), Response::Array(vec![]));
    assert!(store.is_empty());
}

#[test]
fn sorted_sets_answer_lexicographic_ranges() {
    let mut store = Store::default();
    store.run(Operation::ZAdd {
        key: b("z"),
        flags: Default::default(),
        members: scored("0 a 0 b 0 c 0 d 0 e"),
    });
    use LexBound::{Exclusive, First, Inclusive, Last};
    for (min, max, expected) in [
        (First, Last, "a b c d e"),
        (Inclusive(b("b")), Exclusive(b("d")), "b c"),
        (Exclusive(b("b")), Inclusive(b("d")), "c d"),
        (First, Exclusive(b("c")), "a b"),
        (Last, First, ""),
        (Inclusive(b("bb")), Last, "c d e"),
    ] {
        let lex = Selection::Lex { min, max };
        let count = Operation::ZCount { key: b("z"), range: Arc::new(lex.clone()) };
        assert_eq!(store.run(zrange(lex, false, None)), array(expected));
        assert_eq!(store.run(count), Response::count(expected.split_whitespace().count()));
    }
    let lex = Selection::Lex { min: Inclusive(b("b")), max: Inclusive(b("d")) };
    assert_eq!(store.run(zrange(lex.clone(), true, Some((0, 2)))), array("d c"));
    assert_eq!(store.run(Operation::ZRemRange { key: b("z"), range: Arc::new(lex) }), Response::Integer(3));
    assert_eq!(store.run(zrange(index(0, -1), false, None)), array("a e"));
}

/// Each of these would take minutes if it were looked at for each time that it is named.
#[test]
fn a_key_that_is_named_often_is_looked_at_once() {
    use isochrone_core::command::BitCombine;
    let mut store = Store::default();
    let members = (0..10_000).map(|n| Blob::from(n.to_string())).collect::<Vec<_>>();
    let long = "a".repeat(1 << 20);
    store.run(set("k", &long));
    store.run(Operation::SAdd { key: b("s"), members: members.clone().into() });
    store.run(Operation::PfAdd { key: b("h"), elements: members.into() });
    let often = |key: &str| -> Keys { std::iter::repeat_n(b(key), 200_000).collect() };
    for combine in [BitCombine::And, BitCombine::Or, BitCombine::Xor] {
        let operation = Operation::BitOp { combine, target: b("t"), keys: often("k") };
        assert_eq!(store.run(operation), Response::Integer(1 << 20), "{combine:?}");
    }
    // Nor does what is not there cost as much as what is.
    let many = (0..200_000).map(|n| b(&format!("none{n}"))).chain([b("k")]).collect();
    let operation = Operation::BitOp { combine: BitCombine::Or, target: b("t"), keys: many };
    assert_eq!(store.run(operation), Response::Integer(1 << 20));
    assert_eq!(store.run(get("t")), bulk(&long));
    for (combine, len) in
        [(Combine::Union, 10_000), (Combine::Intersection, 10_000), (Combine::Difference, 0)]
    {
        let operation = Operation::SCombineStore { combine, target: b("t"), keys: often("s") };
        assert_eq!(store.run(operation), Response::Integer(len), "{combine:?}");
    }
    let inputs = often("s").iter().map(|key| (key.clone(), score(1.0))).collect();
    let inputs = WeightedInputs { combine: Combine::Difference, inputs, aggregate: Aggregate::Sum };
    let operation = Operation::ZCombineStore { target: b("t"), inputs: Arc::new(inputs) };
    assert_eq!(store.run(operation), Response::Integer(0));
    for operation in [
        Operation::SInterCard { keys: often("s"), limit: 0 },
        Operation::ZInterCard { keys: often("s"), limit: 0 },
    ] {
        assert_eq!(store.run(operation), Response::Integer(10_000));
    }
    let once = store.run(Operation::PfCount { keys: [b("h"), b("none")].into() });
    assert_eq!(store.run(Operation::PfCount { keys: often("h") }), once);
    assert_eq!(store.run(Operation::PfMerge { target: b("h"), keys: often("h") }), Response::Ok);
}

#[test]
fn sorted_sets_are_combined() {
    let mut store = Store::default();
    let add = |key: &str, text: &str| Operation::ZAdd {
        key: b(key),
        flags: Default::default(),
        members: scored(text),
    };
    store.run(add("x", "1 a 2 b 3 c"));
    store.run(add("y", "10 b 20 c inf d"));
    store.run(Operation::SAdd { key: b("s"), members: names("b c") });
    store.run(add("one", "1 b"));
    store.run(add("two", "1 c"));
    store.run(add("three", "0.1 m 1 n 1 o"));
    store.run(add("pair", "0.2 m 1 n"));
    store.run(add("single", "0.3 m"));
    let inputs = |combine, aggregate, inputs: &[(&str, f64)]| {
        let inputs = inputs.iter().map(|(key, weight)| (b(key), score(*weight))).collect();
        Arc::new(WeightedInputs { combine, inputs, aggregate })
    };
    let mut go = |inputs| {
        let Response::Pairs(pairs) = store.run(Operation::ZCombine { inputs, with_scores: true }) else {
            panic!()
        };
        let texts = pairs.iter().map(|(member, score)| match (member, score) {
            (Response::Bulk(member), Response::Double(score)) => format!("{}:{score}", member.escape_ascii()),
            _ => panic!(),
        });
        texts.collect::<Vec<_>>().join(" ")
    };
    use Aggregate::*;
    use Combine::*;
    assert_eq!(go(inputs(Union, Sum, &[("x", 1.0), ("y", 1.0)])), "a:1 b:12 c:23 d:inf");
    assert_eq!(go(inputs(Union, Max, &[("x", 2.0), ("y", -1.0)])), "d:-inf a:2 b:4 c:6");
    assert_eq!(go(inputs(Union, Sum, &[("x", 1.0), ("y", 0.0)])), "d:0 a:1 b:2 c:3");
    assert_eq!(go(inputs(Intersection, Min, &[("x", 1.0), ("y", 1.0), ("s", 1.0)])), "b:1 c:1");
    assert_eq!(go(inputs(Intersection, Sum, &[("x", 1.0), ("y", 2.0)])), "b:22 c:43");
    assert_eq!(go(inputs(Intersection, Sum, &[("x", 1.0), ("none", 2.0)])), "");
    // The smallest is added first, whichever is named first: (0.3 + 0.2) + 0.1 is not 0.1 + 0.2 + 0.3.
    let all = [("three", 1.0), ("pair", 1.0), ("single", 1.0)];
    assert_eq!(go(inputs(Union, Sum, &all)), "m:0.6 o:1 n:2");
    assert_eq!(go(inputs(Intersection, Sum, &all)), "m:0.6");
    assert_eq!(go(inputs(Difference, Sum, &[("x", 1.0), ("s", 1.0)])), "a:1");
    assert_eq!(go(inputs(Difference, Sum, &[("x", 1.0), ("x", 1.0)])), "");
    assert_eq!(
        go(inputs(Difference, Sum, &[("y", 1.0), ("one", 1.0), ("two", 1.0), ("none", 1.0)])),
        "d:inf"
    );
    assert_eq!(go(inputs(Union, Sum, &[("x", 1.0), ("s", 1.0), ("x", 2.0)])), "a:3 b:7 c:10");
    let target =
        Operation::ZCombineStore { target: b("s"), inputs: inputs(Union, Sum, &[("x", 1.0), ("s", 1.0)]) };
    assert_eq!(store.run(target), Response::Integer(3));
    let card = |limit| Operation::ZInterCard { keys: names("x y s"), limit };
    assert_eq!(store.run(card(0)), Response::Integer(2));
    assert_eq!(store.run(card(1)), Response::Integer(1));
    let mpop = Operation::ZMPop { keys: names("none x"), end: End::Least, count: 1 };
    assert_eq!(store.run(mpop), {
        let pair = Response::Array(vec![bulk("a"), Response::Double(score(1.0))]);
        Response::Array(vec![bulk("x"), Response::Array(vec![pair])])
    });
    let rand = Operation::ZRandMember { key: b("y"), count: Some(-7), seed: 1, with_scores: true };
    assert!(matches!(store.run(rand), Response::Pairs(chosen) if chosen.len() == 7));
    let Response::Scan { cursor: 0, items } =
        store.run(Operation::ZScan { key: b("y"), cursor: 0, count: 100, pattern: Some(b("b")) })
    else {
        panic!()
    };
    assert_eq!(items, vec![b("b"), b("10")]);
    let scan = |cursor| Operation::ZScan { key: b("many"), cursor, count: 10, pattern: None };
    let fill = |count: u32| (0..count).map(|n| format!("{} m{n}", count - n)).collect::<Vec<_>>().join(" ");
    store.run(add("many", &fill(128)));
    let Response::Scan { cursor: 0, items } = store.run(scan(0)) else { panic!("a small one comes whole") };
    assert_eq!((items.len(), &items[0], &items[254]), (256, &b("m127"), &b("m0")), "by score");
    store.run(add("many", "129 more"));
    let Response::Scan { cursor: 1.., items } = store.run(scan(0)) else { panic!("a large one does not") };
    assert!(items.len() < 64);
    assert_eq!(store.run(Operation::ZRem { key: b("y"), members: names("b c d x") }), Response::Integer(3));
    assert_eq!(store.run(Operation::ZScore { key: b("y"), member: b("b") }), Response::Nil);
}

/// What could not be sent between nodes is not taken out, and one element always can.
#[test]
fn a_reply_is_bounded_and_nothing_is_popped_in_vain() {
    let mut store = Store::default();
    let value = Blob::from(vec![b'v'; 30 << 20]);
    let key = || b("list");
    let values = vec![value.clone(); 5];
    store.run(Operation::Push {
        key: key(),
        values: values.into(),
        side: Side::Right,
        only_if_exists: false,
    });
    let pop = |count| Operation::Pop { key: key(), side: Side::Left, count: Some(count) };
    let many = Operation::LMPop { keys: names("none list"), side: Side::Right, count: 5 };
    let too_long = Response::Error(Refusal::ReplyTooLong);
    for operation in [lrange("list"), pop(5), many] {
        assert_eq!(store.run(operation.clone()), too_long, "{operation:?}");
    }
    assert_eq!(store.run(Operation::LLen { key: key() }), Response::Integer(5));
    let ones = |count| Response::Array(vec![Response::Bulk(value.clone()); count]);
    let one = Operation::Pop { key: key(), side: Side::Left, count: None };
    let transaction = |operations: Vec<Operation>| Operation::Transaction {
        watched: [].into(),
        operations: operations.into(),
    };
    let [first, second] = [pop(3), pop(2)];
    let length = Operation::LLen { key: key() };
    // A fourth element of 30 MiB would be too much, lengths counted in.
    let answers = Response::Array(vec![ones(3), too_long.clone(), too_long, Response::Integer(2)]);
    assert_eq!(store.run(transaction(vec![first, second, one, length])), answers);
    assert_eq!(store.run(pop(2)), ones(2));
    // What is moved or dated anew is told as well, or stays as it is.
    for _ in 0..2 {
        let values = vec![value.clone(); 2].into();
        store.run(Operation::Push { key: key(), values, side: Side::Right, only_if_exists: false });
    }
    let moves = |target: &str| Operation::LMove {
        source: key(),
        target: b(target),
        from: Side::Right,
        to: Side::Left,
    };
    let dates = Operation::GetEx { key: b("text"), expiry: Expiry::At(Stamp::from_nanos(9_000_000_000_000)) };
    store.run(set("text", &"v".repeat(30 << 20)));
    let answer = store.run(transaction(vec![pop(3), moves("other"), moves("list"), dates]));
    let refused = || Refusal::ReplyTooLong.into();
    assert_eq!(answer, Response::Array(vec![ones(3), refused(), refused(), refused()]));
    assert_eq!(store.run(Operation::LLen { key: key() }), Response::Integer(1));
    assert_eq!(store.run(Operation::LLen { key: b("other") }), Response::Integer(0));
    assert_eq!(
        store.run(Operation::Ttl {
            key: b("text"),
            unit: isochrone_core::command::TtlUnit::Millis,
            absolute: false
        }),
        Response::Integer(-1)
    );
    // Behind one that alone takes all there is nothing is done.
    store.run(set("huge", &"x".repeat(REPLY_MAX)));
    let incr = || Operation::IncrBy { key: b("n"), by: 1 };
    let answer = store.run(transaction(vec![get("huge"), incr()]));
    let Response::Array(parts) = answer else { panic!() };
    assert!(matches!(parts[0], Response::Bulk(_)) && parts[1] == refused());
    assert_eq!(store.run(incr()), Response::Integer(1));
    let (most, above) = (REPLY_MAX - 24, REPLY_MAX);
    assert_eq!(fits(REPLY_MAX, [most].into_iter()), Ok(()));
    assert_eq!(fits(REPLY_MAX, [above].into_iter()), Ok(()), "one alone");
    assert_eq!(fits(REPLY_MAX, [most, 0].into_iter()), Err(Refusal::ReplyTooLong));
    assert_eq!(fits(REPLY_MAX - 1, [most].into_iter()), Err(Refusal::ReplyTooLong));
}

/// What is told beside elements counts as well: a key, many digits, many numbers.
#[test]
fn nothing_is_done_that_a_transaction_has_no_room_to_tell() {
    use isochrone_core::command::{BitNumber, BitOverflow, BitStep};
    let (list, zset) = ("l".repeat(1_000), "z".repeat(1_000));
    let mut store = Store::default();
    store.run(set("fill", &"x".repeat(REPLY_MAX - 200)));
    store.run(push(&list, "a"));
    store.run(Operation::ZAdd { key: b(&zset), flags: Default::default(), members: scored("1 a") });
    let number = BitNumber { offset: 0, width: 64, signed: true };
    let steps = |count| vec![BitStep::Set(number, i64::MAX, BitOverflow::Wrap); count].into();
    let operations = || {
        [
            Operation::LMPop { keys: names(&list), side: Side::Left, count: 1 },
            Operation::ZMPop { keys: names(&zset), end: End::Least, count: 1 },
            Operation::IncrByFloat { key: b("n"), by: score(-1e300) },
            Operation::HIncrByFloat { key: b("h"), field: b("f"), by: score(-1e300) },
            Operation::BitField { key: b("b"), steps: steps(30) },
            // What it may do is one, also where only its end would not fit.
            Operation::Transaction {
                watched: [].into(),
                operations: [set("a", "1"), set("b", "2"), set("c", "3")].into(),
            },
        ]
    };
    let before = store.digest();
    let all = [get("fill")].into_iter().chain(operations()).collect();
    let answer = store.run(Operation::Transaction { watched: [].into(), operations: all });
    let Response::Array(parts) = answer else { panic!() };
    assert!(parts[1..].iter().all(|part| *part == Refusal::ReplyTooLong.into()), "{:?}", &parts[1..]);
    assert_eq!(store.digest(), before);
    for operation in operations() {
        assert!(!store.run(operation.clone()).is_error(), "{operation:?}");
    }
    assert_eq!(store.run(Operation::Exists { keys: [b(&list), b(&zset)].into() }), Response::Integer(0));
    // One element alone always can be told, behind its key too.
    assert_eq!(fits_behind(Some(&b(&list)), REPLY_MAX, [REPLY_MAX].into_iter()), Ok(()));
    let too_long = Err(Refusal::ReplyTooLong);
    assert_eq!(fits_behind(Some(&b(&list)), REPLY_MAX, [REPLY_MAX - 100, 0].into_iter()), too_long);
    assert_eq!(fits_behind(Some(&b(&list)), REPLY_MAX - 1, [REPLY_MAX - 100].into_iter()), too_long);
}

/// The answers of a transaction in another are told once.
#[test]
fn a_transaction_in_another_is_counted_once() {
    let mut store = Store::default();
    let half = "x".repeat(REPLY_MAX / 2 - 1_000);
    store.run(set("half", &half));
    let inner = Operation::Transaction {
        watched: [].into(),
        operations: [get("half"), Operation::IncrBy { key: b("n"), by: 1 }].into(),
    };
    let operations = [set("k", "v"), inner, get("half")].into();
    let answer = store.run(Operation::Transaction { watched: [].into(), operations });
    let Response::Array(parts) = answer else { panic!() };
    assert!(parts[1] == Response::Array(vec![bulk(&half), Response::Integer(1)]) && parts[2] == bulk(&half));
}
