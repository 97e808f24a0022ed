//! HyperLogLogs, with what redis-server 7.0.15 has answered.

use super::*;
use proptest::prelude::*;

const HEADER: usize = 16;

fn add<T: ToString>(key: &str, elements: impl IntoIterator<Item = T>) -> Operation {
    let elements = elements.into_iter().map(|element| Blob::from(element.to_string())).collect();
    Operation::PfAdd { key: b(key), elements }
}

fn count(keys: &str) -> Operation {
    Operation::PfCount { keys: names(keys) }
}

fn merge(target: &str, keys: &str) -> Operation {
    Operation::PfMerge { target: b(target), keys: names(keys) }
}

fn bytes(store: &mut Store, key: &str) -> Blob {
    match store.run(Operation::Get { key: b(key) }) {
        Response::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

fn put(store: &mut Store, key: &str, value: &[u8]) {
    let (condition, expiry) = (Condition::Always, Expiry::Clear);
    store.run(Operation::Set { key: b(key), value: Blob::new(value), condition, expiry, get: false });
}

/// With every register like this.
fn dense(value: u32) -> Vec<u8> {
    let group = value | value << 6 | value << 12 | value << 18;
    let mut bytes = b"HYLL\0\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
    bytes.extend(group.to_le_bytes()[..3].repeat(4096));
    bytes
}

#[test]
fn counts_and_bytes_are_those_of_redis() {
    let mut store = Store::default();
    assert_eq!(store.run(count("a")), Response::Integer(0));
    assert_eq!(store.run(add("a", ["foo", "bar", "baz", ""])), Response::Integer(1));
    assert_eq!(
        &bytes(&mut store, "a")[..],
        b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x57\x31\x84\x42\x6a\x8c\x43\x14\x90\x4a\x61\x80\x58\xe7"
    );
    assert_eq!(store.run(count("a")), Response::Integer(4));
    let mut added = 0;
    for (elements, counted, length) in [
        (1, 1, 21),
        (10, 10, 48),
        (100, 100, 287),
        (1_000, 1_001, 1_923),
        (1_500, 1_512, 2_766),
        (1_637, 1_643, 2_981),
        (1_648, 1_655, 3_000),
        // No longer sparse.
        (1_649, 1_656, 12_304),
        (2_000, 2_007, 12_304),
        (20_000, 19_891, 12_304),
        (100_000, 99_565, 12_304),
    ] {
        assert_eq!(store.run(add("n", added..elements)), Response::Integer(1));
        added = elements;
        assert_eq!(store.run(count("n")), Response::Integer(counted), "{elements}");
        assert_eq!(store.run(Operation::StrLen { key: b("n") }), Response::Integer(length), "{elements}");
    }
    let digest = store.digest();
    assert_eq!(store.run(add("n", 0..100_000)), Response::Integer(0));
    assert_eq!(store.digest(), digest, "nothing has changed");
    for (value, counted) in [
        (0, 0),
        (1, 23_637),
        (30, 12_690_079_782_337),
        (49, 6_653_256_548_922_161_152),
        (50, i64::MIN),
        (51, i64::MIN),
        (63, i64::MIN),
    ] {
        put(&mut store, "d", &dense(value));
        assert_eq!(store.run(count("d")), Response::Integer(counted), "{value}");
        assert_eq!(store.run(count("d d")), Response::Integer(counted), "{value}");
    }
}

#[test]
fn several_are_counted_and_merged_together() {
    let mut store = Store::default();
    store.run(add("a", 0..100));
    store.run(add("b", 50..150));
    assert_eq!(store.run(count("a b none")), Response::Integer(151));
    assert_eq!(store.run(merge("t", "a b none")), Response::Ok);
    assert_eq!(store.run(count("t")), Response::Integer(151));
    let sparse = bytes(&mut store, "t");
    assert_eq!(sparse[4], 1);
    put(&mut store, "d", &dense(0));
    // One that is dense makes the target so, and the same is in it.
    assert_eq!(store.run(merge("t", "d")), Response::Ok);
    assert_eq!(bytes(&mut store, "t").len(), 12_304);
    assert_eq!(store.run(count("t")), Response::Integer(151));
    assert_eq!(store.run(merge("none", "nor")), Response::Ok);
    assert_eq!(&bytes(&mut store, "none")[..], b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x7f\xff");
    assert_eq!(store.run(add("none", [""; 0])), Response::Integer(0));
    assert_eq!(store.run(add("fresh", [""; 0])), Response::Integer(1));
}

#[test]
fn what_a_value_counts_itself_is_believed_until_it_changes() {
    let mut store = Store::default();
    store.run(add("a", 0..100));
    let mut held = bytes(&mut store, "a").to_vec();
    held[8..HEADER].copy_from_slice(&7u64.to_le_bytes());
    put(&mut store, "a", &held);
    assert_eq!(store.run(count("a")), Response::Integer(7));
    assert_eq!(store.run(count("a a")), Response::Integer(100));
    assert_eq!(store.run(add("a", 0..100)), Response::Integer(0));
    assert_eq!(store.run(count("a")), Response::Integer(7));
    assert_eq!(store.run(add("a", ["b"])), Response::Integer(1));
    assert_eq!(store.run(count("a")), Response::Integer(101));
    assert_eq!(bytes(&mut store, "a")[8..HEADER], [7, 0, 0, 0, 0, 0, 0, 0x80]);
}

#[test]
fn what_is_none_is_refused_and_stays_as_it_is() {
    let (not, bad) = (Response::from(Refusal::NotHyperLogLog), Response::from(Refusal::BadHyperLogLog));
    let mut store = Store::default();
    store.run(add("ok", 0..9));
    store.run(push("list", "a"));
    for operation in [add("list", ["x"]), count("list"), count("ok list"), merge("ok", "list")] {
        assert_eq!(store.run(operation), Refusal::WrongType.into());
    }
    let header =
        |encoding: u8, rest: &[u8]| [b"HYLL", &[encoding][..], b"\0\0\0\0\0\0\0\0\0\0\x80", rest].concat();
    for value in [
        b"".to_vec(),
        b"5".to_vec(),
        header(1, b"")[..15].to_vec(),
        header(2, b"\x7f\xff"),
        header(0, &[0; 12_287]),
        header(0, &[0; 12_289]),
        b"HYLK\x01\0\0\0\0\0\0\0\0\0\0\x80\x7f\xff".to_vec(),
    ] {
        put(&mut store, "k", &value);
        let digest = store.digest();
        for operation in [add("k", ["x"]), count("k"), count("ok k"), merge("ok", "k"), merge("k", "ok")] {
            assert_eq!(store.run(operation), not, "{value:?}");
        }
        assert_eq!(store.digest(), digest);
    }
    // No runs, half of one, too few registers, too many.
    for rest in [&b""[..], b"\x7f", b"\x7f\xfe", b"\x7f\xff\x80"] {
        put(&mut store, "k", &header(1, rest));
        let digest = store.digest();
        for operation in [count("k"), count("ok k"), merge("ok", "k"), merge("k", "ok")] {
            assert_eq!(store.run(operation), bad, "{rest:?}");
        }
        assert_eq!(store.digest(), digest);
    }
    assert_eq!(store.run(add("k", ["x"])), Response::Integer(1), "damage that it does not come to");
    put(&mut store, "k", &header(1, b"\x7f"));
    assert_eq!(store.run(add("k", ["x"])), bad);
}

/// Runs of any kind, not always of so many registers as there are.
fn runs() -> impl Strategy<Value = Vec<u8>> {
    let run = prop_oneof![
        any::<u8>().prop_map(|run| vec![run]),
        (0x40..0x44u8, any::<u8>()).prop_map(|(a, b)| vec![a, b])
    ];
    prop::collection::vec(run, 0..3_100).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_are_answered_or_refused(encoding in 0..3u8, cached: u64, mut rest in runs(), cut in 0..14_000usize, elements in prop::collection::vec(0..1_000u32, 0..50)) {
        let mut store = Store::default();
        if encoding == 0 {
            rest.resize(12_288, 0x5a);
        }
        let value = [b"HYLL", &[encoding, 0, 0, 0][..], &cached.to_le_bytes(), &rest].concat();
        put(&mut store, "k", &value[..cut.min(value.len())]);
        store.run(add("ok", 0..100));
        let told = |response: &Response| matches!(response, Response::Integer(_) | Response::Ok | Response::Error(Refusal::NotHyperLogLog | Refusal::BadHyperLogLog));
        let before = store.digest();
        let added = store.run(add("k", &elements));
        prop_assert!(told(&added));
        if added.is_error() {
            prop_assert_eq!(store.digest(), before);
        } else {
            prop_assert_eq!(store.run(add("k", &elements)), Response::Integer(0));
        }
        for operation in [count("k"), count("k ok"), merge("ok", "k"), merge("k", "ok"), merge("k", "k")] {
            prop_assert!(told(&store.run(operation)));
        }
    }

    #[test]
    fn sparse_holds_what_dense_holds(steps in prop::collection::vec(prop::collection::vec(0..3_000u32, 1..150), 1..20)) {
        let mut store = Store::default();
        put(&mut store, "dense", &dense(0));
        for elements in &steps {
            let answers = [store.run(add("sparse", elements)), store.run(add("dense", elements))];
            prop_assert_eq!(&answers[0], &answers[1]);
            prop_assert_eq!(store.run(count("sparse")), store.run(count("dense")));
            put(&mut store, "wide", &dense(0));
            store.run(merge("wide", "sparse"));
            prop_assert_eq!(bytes(&mut store, "wide"), bytes(&mut store, "dense"));
            store.run(merge("again", "sparse"));
            prop_assert_eq!(store.run(count("again")), store.run(count("sparse")));
        }
    }
}
