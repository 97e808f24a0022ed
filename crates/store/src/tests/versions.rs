//! Versions beside a dumb twin that forgets nothing, through transfers and trimming.

use crate::versions::{Count, Kind, Version, Versions};
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{Blob, Export, Stamp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault};

/// All versions of all keys, and how far they may have been trimmed.
#[derive(Default)]
struct Twin {
    keys: BTreeMap<Blob, BTreeMap<Version, Option<Blob>>>,
    trimmed: Version,
}

impl Twin {
    fn below(&self, key: &Blob, bound: Version) -> (Version, Option<&Blob>) {
        let held = self.keys.get(key).and_then(|versions| versions.range(..bound).next_back());
        held.map_or((Version::NONE, None), |(version, value)| (*version, value.as_ref()))
    }
}

/// By the first byte of the value: something of each.
fn census(_: &[u8], value: &[u8]) -> Kind {
    match value.first().map_or(0, |byte| byte % 3) {
        0 => Kind::Apart,
        1 => Kind::Lasting,
        _ => Kind::Expiring(Stamp::from_nanos(value[0].into())),
    }
}

fn fingerprint(versions: &Versions) -> u64 {
    BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(versions)
}

fn copy(versions: &Versions) -> Versions {
    let view = versions.export();
    let chunks: Vec<Blob> = (0..).map_while(|index| view.chunk(index)).collect();
    let mut copy = Versions::counting(census);
    chunks.iter().for_each(|chunk| copy.absorb(chunk).unwrap());
    assert!(copy == *versions);
    assert_eq!(fingerprint(&copy), fingerprint(versions));
    copy
}

fn check(versions: &Versions, twin: &Twin, at: &[u64]) {
    let (mut count, mut deadlines) = (Count::default(), Vec::new());
    for key in twin.keys.keys() {
        let kind = twin.below(key, Version(u64::MAX)).1.map_or(Kind::Apart, |value| census(key, value));
        count.keys += usize::from(kind != Kind::Apart);
        if let Kind::Expiring(deadline) = kind {
            count.expiring += 1;
            deadlines.push((deadline, &key[..]));
        }
    }
    assert_eq!(versions.count(), count);
    deadlines.sort_unstable();
    for stamp in [0, 100, u64::MAX].map(Stamp::from_nanos) {
        let due = deadlines.iter().filter(|(deadline, _)| *deadline <= stamp).map(|(_, key)| *key);
        assert!(versions.overdue(stamp).eq(due));
    }
    for key in twin.keys.keys() {
        let same = |found: (Version, Option<&Blob>), right: (Version, Option<&Blob>)| {
            // A deletion may be forgotten once it is trimmed.
            found == right || (right.1.is_none() && right.0 <= twin.trimmed && found == (Version::NONE, None))
        };
        assert!(same(versions.latest(key), twin.below(key, Version(u64::MAX))), "{key:?}");
        for bound in at.iter().map(|bound| Version(*bound)) {
            let right = twin.below(key, bound);
            match versions.below(key, bound) {
                Some(found) => {
                    assert!(same(found, right), "{key:?} below {bound:?}: {found:?}, not {right:?}")
                }
                None => assert!(bound <= twin.trimmed, "{key:?} below {bound:?} is gone, {:?}", twin.trimmed),
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A key, how far behind the last version of any, and a value.
    Put(u8, u64, Option<u8>),
    /// How far behind the last version.
    Trim(u64),
    Copy,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0u8..12, 0u64..6, prop::option::weighted(0.7, any::<u8>()))
            .prop_map(|(key, back, value)| Step::Put(key, back, value)),
        2 => (0u64..40).prop_map(Step::Trim),
        1 => Just(Step::Copy),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn they_agree_with_a_dumb_twin(steps in prop::collection::vec(step(), 1..250)) {
        let (mut versions, mut twin) = (Versions::counting(census), Twin::default());
        let mut last = 10;
        let mut kept = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(key, back, value) => {
                    last += 2;
                    let (key, version) = (Blob::from(vec![key]), Version(last - back));
                    let value = value.map(|value| Blob::from(vec![value]));
                    let held = twin.keys.entry(key.clone()).or_default();
                    if held.keys().next_back().is_none_or(|held| *held < version) {
                        held.insert(version, value.clone());
                        versions.put(&key, version, value);
                    }
                }
                Step::Trim(back) => {
                    twin.trimmed = twin.trimmed.max(Version(last.saturating_sub(back)));
                    versions.trim(twin.trimmed);
                }
                Step::Copy => {
                    let copied = copy(&versions);
                    kept.push((std::mem::replace(&mut versions, copied), fingerprint(&versions)));
                }
            }
            if number % 8 == 0 {
                let at: Vec<u64> = (0..last + 3).step_by(1 + last as usize / 40).collect();
                check(&versions, &twin, &at);
            }
        }
        // Once all is trimmed one version of each key is left, and none of deleted ones.
        twin.trimmed = Version(last + 1);
        while versions.superseded() > 0 {
            versions.trim(twin.trimmed);
        }
        let mut left: Vec<_> = versions.iter().map(|(key, version, value)| (Blob::from(key), version, value)).collect();
        left.sort();
        let right: Vec<_> = twin.keys.keys().filter_map(|key| {
            let (version, value) = twin.below(key, Version(u64::MAX));
            Some((key.clone(), version, value?))
        }).collect();
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(versions.len(), right.len());
        let mut fresh = Versions::default();
        right.into_iter().for_each(|(key, version, value)| fresh.put(&key, version, Some(value.clone())));
        prop_assert_eq!(fresh.digest(), versions.digest());
        for (held, hash) in kept {
            prop_assert_eq!(fingerprint(&held), hash, "a clone changed behind its back");
        }
    }
}

fn b(text: &str) -> Blob {
    Blob::from(text)
}

#[test]
fn reads_of_what_was_trimmed_are_refused_and_others_are_not() {
    let mut versions = Versions::default();
    for number in 1..=10 {
        versions.put(&b("hot"), Version(10 * number), Some(b(&number.to_string())));
    }
    versions.put(&b("cold"), Version(15), Some(b("c")));
    versions.put(&b("dead"), Version(16), Some(b("d")));
    versions.put(&b("dead"), Version(26), None);
    versions.trim(Version(50));
    assert_eq!(versions.superseded(), 5, "60 to 100 keep what they superseded");
    assert_eq!(versions.below(b"hot", Version(50)), None);
    assert_eq!(versions.below(b"hot", Version(51)), Some((Version(50), Some(&b("5")))));
    assert_eq!(versions.below(b"hot", Version(75)), Some((Version(70), Some(&b("7")))));
    assert_eq!(
        versions.below(b"cold", Version(20)),
        Some((Version(15), Some(&b("c")))),
        "it is still the latest"
    );
    assert_eq!(versions.below(b"cold", Version(15)), None);
    assert_eq!(versions.below(b"dead", Version(30)), None);
    assert_eq!(versions.below(b"dead", Version(60)), Some((Version::NONE, None)));
    assert_eq!((versions.len(), versions.latest(b"dead")), (2, (Version::NONE, None)));
    versions.trim(Version(40));
    assert_eq!(versions.below(b"hot", Version(50)), None, "what was trimmed stays so");
}

#[test]
fn trimming_costs_little_at_a_time_and_keeps_up() {
    let mut versions = Versions::default();
    for version in 1..=5_000 {
        versions.put(&b("hot"), Version(version), Some(b("v")));
    }
    assert_eq!(versions.superseded(), 4_999);
    versions.trim(Version(5_000));
    assert!(versions.superseded() > 4_900, "not all at once");
    for version in 5_001..=10_001 {
        versions.put(&b("hot"), Version(version), Some(b("v")));
        versions.trim(Version(version));
    }
    assert_eq!(versions.superseded(), 0);
}

#[test]
fn chunks_are_bounded_and_may_be_asked_for_in_any_order() {
    let mut versions = Versions::default();
    let value = Blob::from(vec![7; 100]);
    for number in 0..2_000 {
        versions.put(&b(&format!("key:{number}")), Version(1), Some(value.clone()));
    }
    for version in 1..=6_000 {
        versions.put(&b("hot"), Version(version), (version % 7 > 0).then(|| value.clone()));
    }
    versions.put(&b("giant"), Version(9), Some(Blob::from(vec![1; 2 * CHUNK_MAX])));
    let view = versions.export();
    let chunks: Vec<Blob> = (0..).map_while(|index| view.chunk(index)).collect();
    assert!(chunks.len() >= 5, "{}", chunks.len());
    assert_eq!(chunks.iter().filter(|chunk| chunk.len() > CHUNK_MAX).count(), 1, "only the giant value");
    let fresh = versions.export();
    for index in [chunks.len() - 1, 0, 3, chunks.len() - 1] {
        assert_eq!(fresh.chunk(index as u64).as_ref(), Some(&chunks[index]));
    }
    assert_eq!(fresh.chunk(chunks.len() as u64), None);
    let (mut original, mut copy) = (versions.clone(), copy(&versions));
    for version in 7_000..7_100 {
        for versions in [&mut original, &mut copy] {
            versions.trim(Version(version - 2_000));
            versions.put(&b("hot"), Version(version), None);
        }
        assert_eq!(fingerprint(&original), fingerprint(&copy), "they go on alike");
    }
}

#[test]
fn an_empty_state_has_one_chunk_and_a_bad_chunk_is_refused() {
    let mut versions = Versions::default();
    versions.trim(Version(7));
    let view = versions.export();
    assert!(view.chunk(0).is_some() && view.chunk(1).is_none());
    assert_eq!(copy(&versions).below(b"x", Version(7)), None);
    versions.put(&b("x"), Version(8), Some(b("y")));
    let chunk = versions.export().chunk(0).unwrap();
    let error = versions.absorb(&chunk).unwrap_err();
    assert!(error.to_string().contains("v8 of key"), "{error}");
    assert!(versions.absorb(&[]).is_err());
    assert!(versions.absorb(&[9, 1]).unwrap_err().to_string().contains("format 9"));
    assert!(versions.absorb(&chunk[..chunk.len() - 1]).is_err());
}

#[test]
#[should_panic(expected = "comes behind")]
fn versions_of_a_key_rise() {
    let mut versions = Versions::default();
    versions.put(&b("x"), Version(8), None);
    versions.put(&b("x"), Version(8), None);
}
