//! Properties T7 to T12 and T15 of `specs/curp.md` 8.

use super::*;
use isochrone_core::{Blob, ClientId, ProcessId, Random};

fn id(sequence: u64) -> CommandId {
    let client = ClientId { process: ProcessId::from_u64(1), incarnation: 1 };
    CommandId { client, sequence }
}

/// A hash whose key lies in set 0 of a store with few sets: they are told apart by the upper bits only.
fn together(number: u64) -> u64 {
    (number + 1) << 32
}

fn small(slots: usize, ways: usize) -> Witness<u64> {
    Witness::new(Shape { slots, ways, slot_bytes: 100 })
}

/// T7: a plain list of requests accepts and rejects alike.
#[test]
fn it_is_a_list_of_requests_with_disjoint_keys() {
    for seed in 0..200 {
        let mut random = Random::seeded(seed);
        let ways = 1 << random.below(3);
        let mut witness = small(ways * 4, ways);
        let mut list: Vec<(Vec<u64>, CommandId)> = Vec::new();
        for step in 0..200 {
            let hash = |random: &mut Random| random.below(4) << 30 | random.below(6) << 32;
            if random.chance(0.6) {
                let keys: Vec<u64> = (0..=random.below(3)).map(|_| hash(&mut random)).collect();
                let known = random.below(step + 1);
                let name = if random.chance(0.8) { id(step) } else { id(known) };
                let mut wanted: Vec<u64> = keys.iter().map(|key| tag(*key)).collect();
                wanted.sort_unstable();
                wanted.dedup();
                let told = witness.record(&keys, name, step, 1);
                let same = list
                    .iter()
                    .any(|(held, known)| *known == name && wanted.iter().all(|k| held.contains(k)));
                let clash = list.iter().any(|(held, known)| {
                    (*known != name || !same) && held.iter().any(|key| wanted.contains(key))
                });
                let full = |key: &u64| {
                    let set = witness.set(*key);
                    let there = |k: &&u64| witness.set(**k) == set;
                    let held = list.iter().flat_map(|(held, _)| held).filter(there).count();
                    held + wanted.iter().filter(there).count() > ways
                };
                let expected = match (same, clash) {
                    (true, _) => Ok(()),
                    (false, true) => Err(Reject::Conflict),
                    (false, false) if told.is_err() && wanted.iter().any(full) => Err(Reject::NoSpace),
                    (false, false) => Ok(()),
                };
                assert_eq!(told, expected, "seed {seed} step {step}");
                if told.is_ok() && !same {
                    assert!(!wanted.iter().any(|key| {
                        let set = witness.set(*key);
                        list.iter().flat_map(|(held, _)| held).filter(|k| witness.set(**k) == set).count()
                            + wanted.iter().filter(|k| witness.set(**k) == set).count()
                            > ways
                    }));
                    list.push((wanted, name));
                }
            } else if !list.is_empty() {
                let (keys, name) = list.swap_remove(random.below(list.len() as u64) as usize);
                witness.gc(keys.iter().map(|key| (*key, name)));
            }
            witness.check();
            let mut names: Vec<_> = list.iter().map(|(_, name)| *name).collect();
            names.sort_unstable();
            names.dedup();
            assert!(witness.contents().into_keys().eq(names), "seed {seed} step {step}");
            assert_eq!(witness.len(), list.iter().map(|(keys, _)| keys.len()).sum::<usize>());
        }
    }
}

/// T8, `specs/curp.md` 6.6: random keys until the first set overflows, mean of `runs`.
fn overflow(slots: usize, ways: usize, runs: u64) -> f64 {
    let mut total = 0;
    for seed in 0..runs {
        let mut random = Random::seeded(seed << 8 | ways as u64);
        let mut witness = Witness::new(Shape { slots, ways, slot_bytes: 1 });
        let mut count = 0;
        let mut next = || random.below(u64::MAX);
        while witness.record(&[next()], id(count), (), 0) != Err(Reject::NoSpace) {
            count += 1;
        }
        // The one that found no room counts as a recording.
        total += count + 1;
    }
    total as f64 / runs as f64
}

#[test]
fn sets_overflow_as_late_as_published() {
    for (ways, mean, runs) in [(1, 80.0, 4_000), (2, 272.0, 3_000), (4, 689.0, 2_000), (8, 1_303.0, 1_000)] {
        let found = overflow(4_096, ways, runs);
        assert!((found / mean - 1.0).abs() < 0.02, "{ways} ways: {found:.1}, not {mean}");
    }
}

#[test]
#[ignore = "ten thousand runs for each number of ways"]
fn sets_overflow_as_late_as_published_within_two_percent() {
    let large = [(1, 80.0), (2, 272.0), (4, 689.0), (8, 1_303.0)].map(|(ways, mean)| (4_096, ways, mean));
    let little = [(1, 40.0), (2, 110.0), (4, 237.0), (8, 403.0)].map(|(ways, mean)| (1_024, ways, mean));
    for (slots, ways, mean) in large.into_iter().chain(little) {
        let found = overflow(slots, ways, 10_000);
        println!("{slots} slots, {ways} ways: {found:.1} (published {mean})");
        assert!((found / mean - 1.0).abs() < 0.02, "{slots} slots, {ways} ways: {found:.1}, not {mean}");
    }
}

/// T9, D-39.
#[test]
fn all_keys_of_a_request_find_room_or_none_does() {
    let mut witness = small(2, 2);
    assert_eq!(witness.record(&[together(0)], id(1), 1, 1), Ok(()));
    assert_eq!(witness.record(&[together(1), together(2)], id(2), 2, 1), Err(Reject::NoSpace));
    assert_eq!(witness.len(), 1, "nothing was written");
    assert_eq!(witness.record(&[together(1), together(1)], id(3), 3, 1), Ok(()), "one key named twice");
    assert_eq!(witness.record(&[together(2), together(0)], id(4), 4, 1), Err(Reject::Conflict));
    assert_eq!(witness.len(), 2);
}

/// T10, and a hash of 0, which stands for a free slot inside.
#[test]
fn equal_hashes_are_one_key() {
    let mut witness = small(8, 2);
    assert_eq!(witness.record(&[0], id(1), 1, 1), Ok(()));
    assert_eq!(witness.record(&[0], id(2), 2, 1), Err(Reject::Conflict));
    assert!(!witness.commutes(&[7 << 40, 0]) && witness.commutes(&[7 << 40]));
    assert!(witness.holds(0, id(1)) && !witness.holds(0, id(2)));
    assert!(witness.collect(0, id(1)) && witness.is_empty());
}

/// T11, D-9.
#[test]
fn a_repeated_request_is_taken_again_and_held_once() {
    let mut witness = small(8, 2);
    let keys = [together(1), together(2)];
    for _ in 0..3 {
        assert_eq!(witness.record(&keys, id(1), 1, 100), Ok(()));
    }
    assert_eq!((witness.len(), witness.contents().len()), (2, 1));
    assert_eq!(witness.record(&[3], id(2), 2, 101), Err(Reject::TooLarge));
    assert_eq!(witness.record(&[], id(2), 2, 1), Err(Reject::TooLarge));
    assert_eq!(witness.record(&[9; KEYS_MAX + 1], id(2), 2, 1), Err(Reject::TooLarge));
    // Collected under one key: what is left is no whole request, and cannot become one again.
    witness.collect(together(1), id(1));
    assert_eq!(witness.record(&keys, id(1), 1, 1), Err(Reject::Conflict));
}

/// T12.
#[test]
fn a_collection_takes_what_it_names_and_nothing_else() {
    let mut witness = small(8, 2);
    witness.record(&[together(1)], id(1), 1, 1).unwrap();
    let pairs = [(together(1), id(2)), (together(2), id(1)), (together(9), id(9))];
    assert_eq!(witness.gc(pairs), []);
    assert_eq!(witness.len(), 1, "another request on the same key stays");
    assert_eq!(witness.gc([(together(1), id(1))]), []);
    assert!(witness.is_empty());
}

/// `specs/curp.md` 3.8: writes 1 to 4 to the key of an orphan are slow, the next is not.
#[test]
fn what_stands_in_the_way_is_suspected_after_three_collections() {
    let mut witness = small(8, 2);
    witness.record(&[together(1), together(2)], id(1), 11, 1).unwrap();
    for write in 2..=4 {
        assert_eq!(witness.record(&[together(1)], id(write), 0, 1), Err(Reject::Conflict));
        assert_eq!(witness.gc([(together(1), id(write))]), [], "write {write}");
    }
    assert_eq!(witness.record(&[together(1), together(2)], id(5), 0, 1), Err(Reject::Conflict));
    assert_eq!(witness.gc([]), [(id(1), 11)], "once, though it is held twice");
    assert_eq!(witness.gc([(together(1), id(1)), (together(2), id(1))]), [], "and once only");
    assert_eq!(witness.record(&[together(1)], id(6), 0, 1), Ok(()));
    // One that is collected before the round ends is no suspect.
    for _ in 0..4 {
        witness.gc([]);
    }
    assert_eq!(witness.record(&[together(1)], id(7), 0, 1), Err(Reject::Conflict));
    assert_eq!(witness.gc([(together(1), id(6))]), []);
}

/// The same where its key is only read, and no request finds it.
#[test]
fn what_stands_in_the_way_of_reads_is_suspected_alike() {
    let mut witness = small(8, 2);
    witness.record(&[together(1), together(2)], id(1), 11, 1).unwrap();
    for round in 0..STALE_ROUNDS {
        assert!(!witness.commutes(&[together(3), together(2)]));
        assert_eq!(witness.gc([]), [], "it is young in round {round}");
    }
    assert!(!witness.commutes(&[together(2)]) && !witness.commutes(&[together(1), together(2)]));
    assert_eq!(witness.gc([]), [(id(1), 11)], "once, though it was found often");
}

#[test]
fn what_was_exported_is_held_again() {
    let mut random = Random::seeded(3);
    let mut witness = Witness::new(Shape { slots: 64, ways: 4, slot_bytes: 100 });
    for number in 0..40 {
        let _ = witness.record(&[random.below(u64::MAX), random.below(u64::MAX)], id(number), number, 1);
    }
    let mut copy = small(64, 4);
    let rows: Vec<_> = witness.export().collect();
    assert!(rows.into_iter().all(|row| copy.absorb(row)));
    assert_eq!((copy.contents(), copy.len()), (witness.contents(), witness.len()));
    copy.check();
    // A record that is replayed knows better than one that was collected before it came.
    let row = witness.export().next().unwrap();
    assert!(copy.absorb(Stored { id: id(99), ..row.clone() }));
    assert!(copy.holds(row.hash, id(99)) && copy.len() == witness.len());
}

/// T15.
#[test]
fn a_full_store_stays_within_its_memory() {
    let shape = Shape::default();
    let mut witness = Witness::new(shape);
    let mut random = Random::seeded(1);
    let mut sequence = 0;
    while witness.len() < shape.slots {
        sequence += 1;
        let request = Blob::from(vec![7; shape.slot_bytes]);
        let bytes = request.len();
        let _ = witness.record(&[random.below(u64::MAX)], id(sequence), request, bytes);
    }
    let table = witness.table_bytes();
    // Beside its bytes, a request has a count of its copies.
    let requests: usize = witness.contents().values().map(|request| request.len() + 16).sum();
    assert!(table + requests <= 9_500_000, "{table} bytes of slots, {requests} of requests");
    assert_eq!(witness.tags.capacity(), shape.slots);
    assert_eq!(witness.held.capacity(), shape.slots);
    assert_eq!(witness.record(&[random.below(u64::MAX)], id(0), Blob::from("x"), 1), Err(Reject::NoSpace));
}
