use super::*;
use crate::{Blob, wire};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn an_operation_stays_small() {
    assert!(size_of::<Operation>() <= 64, "{}", size_of::<Operation>());
    assert!(size_of::<Command>() <= 72, "{}", size_of::<Command>());
    assert!(size_of::<Response>() <= 32, "{}", size_of::<Response>());
}

/// What was written before commands said versions is read as it was meant, and what says none is written so.
#[test]
fn a_command_is_written_as_ever_where_no_version_is_known() {
    let (stamp, operation) = (Stamp::from_nanos(7), Operation::DbSize);
    for in_order in [false, true] {
        let command = Command { in_order, ..Command::new(stamp, operation.clone()) };
        let before = wire::encode(&(stamp, &operation, in_order));
        assert_eq!(wire::encode(&command), before);
        assert_eq!(wire::decode::<Command>(&before), Ok(command.clone()));
        for version in [0, 1, 1 << 20, u64::MAX] {
            let known = Some(Versions::FIRST.and(version));
            let command = Command { known, ..command.clone() };
            let bytes = wire::encode(&command);
            assert!(bytes.len() > before.len() || bytes.last() != before.last(), "{version}");
            assert_eq!(wire::decode::<Command>(&bytes), Ok(command));
        }
    }
    let beyond = wire::encode(&(stamp, &operation, u64::MAX));
    assert_eq!(wire::decode::<Command>(&beyond).map(|command| command.known), Ok(None));
}

#[test]
fn scores_are_written_as_redis_writes_them() {
    for (value, text) in [
        (0.0, "0"),
        (-0.0, "0"),
        (3.0, "3"),
        (-17.0, "-17"),
        (3.2, "3.2"),
        (0.1, "0.1"),
        (0.001, "0.001"),
        (-2.5, "-2.5"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e15, "1000000000000000"),
        (5e15, "5000000000000000"),
        (1.7e18, "1700000000000000000"),
        (1152921504606846976.0, "1152921504606846976"),
        (-4611686018427387904.0, "-4611686018427387904"),
        (4611686018427388928.0, "4611686018427389000"),
        (1e20, "1e+20"),
        (1e100, "1e+100"),
        (1.5e-9, "1.5e-9"),
        (1e-5, "0.00001"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
    ] {
        let score = Score::new(value).unwrap();
        assert_eq!(score.to_string(), text);
        assert_eq!(Score::parse(text.as_bytes()), Some(score));
    }
    assert_eq!(Score::new(f64::NAN), None);
    for bad in ["", " 1", "1 ", "nan", "1e", "0x10", "--1"] {
        assert_eq!(Score::parse(bad.as_bytes()), None, "{bad:?}");
    }
    assert!(wire::decode::<Score>(&wire::encode(&f64::NAN)).is_err());
}

fn key() -> impl Strategy<Value = Blob> {
    (0..4u8).prop_map(|key| Blob::new(&[b'a' + key]))
}

fn keys() -> impl Strategy<Value = Keys> {
    prop::collection::vec(key(), 1..4).prop_map(Keys::from)
}

/// At least one operation of each shape of key set.
fn operation() -> impl Strategy<Value = Operation> {
    let plain = prop_oneof![
        key().prop_map(|key| Operation::Get { key }),
        keys().prop_map(|keys| Operation::MGet { keys }),
        (key(), any::<bool>(), prop_oneof![Just(Expiry::Clear), Just(Expiry::Keep)]).prop_map(
            |(key, get, expiry)| Operation::Set {
                key,
                value: "v".into(),
                condition: Condition::Always,
                expiry,
                get
            }
        ),
        (keys(), any::<bool>()).prop_map(|(keys, only_if_absent)| Operation::MSet {
            pairs: keys.iter().map(|key| (key.clone(), "v".into())).collect(),
            only_if_absent
        }),
        (key(), any::<i64>()).prop_map(|(key, by)| Operation::IncrBy { key, by }),
        keys().prop_map(|keys| Operation::Del { keys }),
        (key(), key()).prop_map(|(key, target)| Operation::Rename { key, target, only_if_absent: false }),
        (key(), key()).prop_map(|(key, target)| Operation::Copy { key, target, replace: true }),
        (key(), keys()).prop_map(|(target, keys)| Operation::SCombineStore {
            combine: Combine::Union,
            target,
            keys
        }),
        (key(), any::<u64>()).prop_map(|(key, offset)| Operation::SetBit { key, offset, on: true }),
        (key(), keys()).prop_map(|(target, keys)| Operation::BitOp {
            combine: BitCombine::Xor,
            target,
            keys
        }),
        (key(), keys()).prop_map(|(key, elements)| Operation::PfAdd { key, elements }),
        (key(), key(), any::<u64>()).prop_map(|(key, value, most)| Operation::AppendWithin {
            key,
            value,
            most
        }),
        (key(), any::<i64>(), any::<bool>()).prop_map(|(key, by, anew)| Operation::CountUntil {
            key,
            by,
            until: crate::Stamp::ZERO,
            anew
        }),
        keys().prop_map(|keys| Operation::PfCount { keys }),
        (key(), keys()).prop_map(|(target, keys)| Operation::PfMerge { target, keys }),
        (key(), any::<bool>()).prop_map(|(key, get)| {
            let number = BitNumber { offset: 3, width: 5, signed: true };
            let step = if get { BitStep::Get(number) } else { BitStep::IncrBy(number, 1, BitOverflow::Fail) };
            Operation::BitField { key, steps: [step].into() }
        }),
        key().prop_map(|key| Operation::DelIf { key, value: "v".into() }),
        Just(Operation::DbSize),
        Just(Operation::Flush),
        keys().prop_map(|keys| Operation::Sweep { keys }),
        key().prop_map(|key| Operation::Watch { key, seed: 3 }),
    ];
    plain.prop_recursive(1, 4, 3, |inner| {
        (prop::collection::vec(inner, 0..3), key()).prop_map(|(operations, key)| Operation::Transaction {
            watched: [(key, 1)].into(),
            operations: operations.into(),
        })
    })
}

/// The read set and the write set, in the obvious way; `None` stands for everything.
fn dumb_sets(operation: &Operation) -> [Option<BTreeSet<Blob>>; 2] {
    let mut sets = [Some(BTreeSet::new()), Some(BTreeSet::new())];
    operation.visit(&mut |touch| {
        for (set, concerned) in sets.iter_mut().zip(match touch {
            Touch::Key(_, access) | Touch::All(access) => [access.reads(), access.writes()],
        }) {
            match (touch, concerned) {
                (_, false) => {}
                (Touch::All(_), true) => *set = None,
                (Touch::Key(key, _), true) => {
                    if let Some(set) = set {
                        set.insert(key.clone());
                    }
                }
            }
        }
    });
    sets
}

fn dumb_intersects(a: &Option<BTreeSet<Blob>>, b: &Option<BTreeSet<Blob>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (None, Some(keys)) | (Some(keys), None) => !keys.is_empty(),
        (Some(a), Some(b)) => a.intersection(b).next().is_some(),
    }
}

proptest! {
    #[test]
    fn sets_agree_with_a_dumb_twin(a in operation(), b in operation()) {
        let sets = a.sets();
        let [reads, writes] = dumb_sets(&a);
        for (fast, dumb) in [(&sets.reads, &reads), (&sets.writes, &writes)] {
            match (fast, dumb) {
                (KeySet::Keys(fast), Some(dumb)) => prop_assert!(fast.iter().eq(dumb.iter())),
                (fast, dumb) => prop_assert!(*fast == KeySet::All && dumb.is_none()),
            }
            for key in ["a", "b", "c", "d", "e"] {
                prop_assert_eq!(fast.contains(key.as_bytes()), dumb.as_ref().is_none_or(|keys| keys.contains(key.as_bytes())));
            }
        }
        prop_assert_eq!(a.is_read(), sets.writes.is_empty());
        let [reads_b, writes_b] = dumb_sets(&b);
        let expected = if dumb_intersects(&writes, &writes_b) {
            Some(Conflict::WriteWrite)
        } else if dumb_intersects(&writes, &reads_b) {
            Some(Conflict::WriteRead)
        } else if dumb_intersects(&reads, &writes_b) {
            Some(Conflict::ReadWrite)
        } else {
            None
        };
        prop_assert_eq!(conflict(&a, &b), expected);
        // Whether two commute has no direction.
        prop_assert_eq!(conflict(&a, &b).is_some(), conflict(&b, &a).is_some());
    }

    #[test]
    fn commands_survive_the_wire(operation in operation(), nanos: u64) {
        let command = Command::new(crate::Stamp::from_nanos(nanos), operation);
        prop_assert_eq!(wire::decode::<Command>(&wire::encode(&command)).unwrap(), command);
    }

    #[test]
    fn scores_survive_their_text(value: f64) {
        if let Some(score) = Score::new(value) {
            prop_assert_eq!(Score::parse(score.to_string().as_bytes()), Some(score));
        }
    }
}
