use super::*;
use isochrone_core::Export;
use isochrone_core::machine::CHUNK_MAX;
use std::hash::{BuildHasher, BuildHasherDefault};

fn chunks(view: &impl Export) -> Vec<Blob> {
    (0..).map_while(|index| view.chunk(index)).collect()
}

fn rebuilt(chunks: &[Blob]) -> Store {
    let mut store = Store::default();
    chunks.iter().for_each(|chunk| store.absorb(chunk).unwrap());
    store
}

fn fingerprint(store: &Store) -> u64 {
    BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(store)
}

/// Collections of several chunks each, a value larger than a chunk, and many small keys.
fn large() -> Store {
    let mut store = one_of_each();
    let long = "x".repeat(100);
    for number in 0..3000 {
        store.run(set_until(&format!("small:{number}"), "v", 1000 + number));
        let member = format!("{number}{long}");
        store.run(Operation::HSet { key: b("hash"), pairs: [(b(&member), b(&long))].into() });
        store.run(push("list", &member));
        store.run(Operation::SAdd { key: b("set"), members: [b(&member)].into() });
        let members = [(score(number as f64 / 7.0), b(&member))].into();
        store.run(Operation::ZAdd { key: b("zset"), flags: Default::default(), members });
        store.run(Operation::IncrBy { key: b("counter"), by: 7 });
    }
    store.run(set("giant", &"y".repeat(3 * CHUNK_MAX)));
    store
}

#[test]
fn a_store_is_rebuilt_from_its_chunks() {
    let store = large();
    let view = store.export();
    let chunks = chunks(&view);
    assert!(chunks.len() > 8, "{}", chunks.len());
    assert_eq!(chunks.iter().filter(|chunk| chunk.len() > CHUNK_MAX).count(), 1, "only the giant value");
    let mut copy = rebuilt(&chunks);
    assert!(copy == store);
    assert_eq!(fingerprint(&copy), fingerprint(&store));
    assert_eq!((copy.digest(), copy.deadline(), copy.len()), (store.digest(), store.deadline(), store.len()));
    // Asked in another order, on a view that has given nothing yet.
    let fresh = store.export();
    for index in [5, 0, chunks.len() - 1, 5] {
        assert_eq!(fresh.chunk(index as u64).as_ref(), Some(&chunks[index]));
    }
    assert_eq!(fresh.chunk(chunks.len() as u64), None);
    assert_eq!(fresh.chunk(u64::MAX), None);
    // They go on alike.
    let mut store = store;
    for operation in [
        Operation::SPop { key: b("set"), count: Some(10), seed: 4 },
        Operation::Pop { key: b("list"), side: Side::Right, count: Some(500) },
        Operation::ZRemRange { key: b("zset"), range: index(100, 900).into() },
        Operation::DbSize,
        Operation::IncrBy { key: b("counter"), by: 1 },
    ] {
        assert_eq!(store.run_at(2000, operation.clone()), copy.run_at(2000, operation));
    }
    assert!(copy == store && copy.digest() == store.digest());
}

#[test]
fn a_view_does_not_see_what_comes_later() {
    let mut store = large();
    let before = store.clone();
    let view = store.export();
    let first = view.chunk(0).unwrap();
    for number in 0..3000 {
        store.run(set(&format!("small:{number}"), "changed"));
        store.run(Operation::Pop { key: b("list"), side: Side::Left, count: None });
    }
    for operation in [
        Operation::HDel { key: b("hash"), fields: names("f") },
        Operation::SAdd { key: b("set"), members: names("new") },
        Operation::ZRemRange { key: b("zset"), range: index(0, 2000).into() },
        Operation::Del { keys: names("giant string") },
    ] {
        store.run(operation);
    }
    assert!(rebuilt(&chunks(&view)) == before);
    assert_eq!(view.chunk(0), Some(first));
    store.run(Operation::Flush);
    assert!(rebuilt(&chunks(&view)) == before);
}

#[test]
fn chunks_that_are_given_once_are_those_of_the_view() {
    let store = large();
    let view = store.export();
    assert!(view.clone().into_chunks().eq(chunks(&view)));
    // And while the store changes.
    let mut changing = store.clone();
    let mut numbers = 0..3000;
    let given = changing.export().into_chunks().inspect(|_| {
        for number in numbers.by_ref().take(200) {
            changing.run(set(&format!("small:{number}"), "changed"));
        }
    });
    assert!(given.eq(chunks(&view)));
}

#[test]
fn an_empty_store_has_no_chunks() {
    assert_eq!(Store::default().export().chunk(0), None);
    assert_eq!(Store::default().export().into_chunks().count(), 0);
}

#[test]
fn malformed_chunks_are_refused() {
    let chunk = one_of_each().export().chunk(0).unwrap();
    let cause = |store: &mut Store, chunk: &[u8]| store.absorb(chunk).unwrap_err().cause;
    assert_eq!(cause(&mut Store::default(), b""), "it is empty");
    assert_eq!(cause(&mut Store::default(), b"\x09abc"), "format 9, this version knows 1");
    for length in 1..chunk.len() {
        assert!(Store::default().absorb(&chunk[..length]).is_err(), "{length} of {} bytes", chunk.len());
    }
    let mut store = rebuilt(std::slice::from_ref(&chunk));
    assert!(cause(&mut store, &chunk).contains("comes twice"), "the same keys once more");
}

#[test]
fn entries_are_whole_and_malformed_ones_are_refused() {
    let store = large();
    let mut copy = Store::default();
    for key in ["hash", "list", "set", "zset", "counter", "giant", "small:7"] {
        let entry = store.entry(key.as_bytes()).unwrap();
        copy.enter(&b(key), &entry).unwrap();
        assert!(
            copy.agrees(&store, key.as_bytes()) && copy.entry(key.as_bytes()) == Some(entry.clone()),
            "{key}"
        );
        for length in [0, 1, entry.len() / 2, entry.len() - 1] {
            assert!(Store::default().enter(&b(key), &entry[..length]).is_err(), "{length} bytes of {key}");
        }
    }
    assert_eq!((store.entry(b"none"), copy.len()), (None, 7));
    let unknown = Store::default().enter(&b("a"), b"\x09abc").unwrap_err();
    assert_eq!(unknown.to_string(), "malformed entry of a key: format 9, this version knows 1");
}

/// Members of several scores have no order by name; what is answered and removed must not depend on how they came to be where
/// they are.
#[test]
fn ranges_by_name_over_several_scores_are_alike_in_a_store_that_was_rebuilt() {
    use isochrone_core::command::{LexBound, Selection};
    let remove = |min: &str, max: LexBound| {
        let lex = Selection::Lex { min: LexBound::Inclusive(b(min)), max };
        Operation::ZRemRange { key: b("z"), range: std::sync::Arc::new(lex) }
    };
    let mut store = Store::default();
    for (value, member) in [(2.0, "z"), (3.0, "b"), (4.0, "c"), (1.0, "a")] {
        let members = [(score(value), b(member))].into();
        store.run(Operation::ZAdd { key: b("z"), flags: Default::default(), members });
    }
    let mut twin = rebuilt(&chunks(&store.export()));
    // As Redis 7.2 has it: from the first that is not before the range, z.
    for one in [&mut store, &mut twin] {
        assert_eq!(one.run(remove("bb", LexBound::Last)), Response::Integer(3));
    }
    assert!(store == twin);

    let mut random = isochrone_core::Random::seeded(7);
    for _ in 0..300 {
        for _ in 0..40 {
            let member = format!("{}", random.below(1_000));
            let members = [(score(random.below(5) as f64), b(&member))].into();
            store.run(Operation::ZAdd { key: b("z"), flags: Default::default(), members });
        }
        let mut twin = rebuilt(&chunks(&store.export()));
        let (min, max) = (random.below(1_000).to_string(), random.below(1_000).to_string());
        let range = remove(&min, LexBound::Exclusive(b(&max)));
        assert_eq!(store.run(range.clone()), twin.run(range), "{min} to {max}");
        assert!(store == twin, "{min} to {max}");
    }
}
