//! The operations that workloads ask for: made here, put into words for a Redis endpoint, and put down in
//! histories.

use isochrone_core::command::{Condition, Expiry, Operation, Response, Side};
use isochrone_core::{Blob, Stamp};

pub(crate) fn get(key: Blob) -> Operation {
    Operation::Get { key }
}

pub(crate) fn set(key: Blob, value: Blob) -> Operation {
    Operation::Set { key, value, condition: Condition::Always, expiry: Expiry::Clear, get: false }
}

pub(crate) fn set_until(key: Blob, value: Blob, at: Stamp) -> Operation {
    Operation::Set { key, value, condition: Condition::Always, expiry: Expiry::At(at), get: false }
}

pub(crate) fn set_if_absent(key: Blob, value: Blob) -> Operation {
    Operation::Set { key, value, condition: Condition::IfAbsent, expiry: Expiry::Clear, get: false }
}

pub(crate) fn get_all(keys: impl IntoIterator<Item = Blob>) -> Operation {
    Operation::MGet { keys: keys.into_iter().collect() }
}

pub(crate) fn set_all(pairs: impl IntoIterator<Item = (Blob, Blob)>) -> Operation {
    Operation::MSet { pairs: pairs.into_iter().collect(), only_if_absent: false }
}

pub(crate) fn copy(key: Blob, target: Blob, replace: bool) -> Operation {
    Operation::Copy { key, target, replace }
}

pub(crate) fn delete(key: Blob) -> Operation {
    Operation::Del { keys: [key].into() }
}

pub(crate) fn increment(key: Blob, by: i64) -> Operation {
    Operation::IncrBy { key, by }
}

pub(crate) fn push(key: Blob, side: Side, value: Blob) -> Operation {
    Operation::Push { key, values: [value].into(), side, only_if_exists: false }
}

pub(crate) fn pop(key: Blob, side: Side) -> Operation {
    Operation::Pop { key, side, count: None }
}

pub(crate) fn range(key: Blob) -> Operation {
    Operation::LRange { key, start: 0, stop: -1 }
}

pub(crate) fn hash_set(key: Blob, field: Blob, value: Blob) -> Operation {
    Operation::HSet { key, pairs: [(field, value)].into() }
}

pub(crate) fn hash_get(key: Blob, field: Blob) -> Operation {
    Operation::HGet { key, field }
}

pub(crate) fn hash_delete(key: Blob, field: Blob) -> Operation {
    Operation::HDel { key, fields: [field].into() }
}

/// The words of an operation as a Redis client sends them.
///
/// # Panics
/// For an operation that no workload makes.
pub fn words(operation: &Operation) -> Vec<Blob> {
    let name: &[u8] = match operation {
        Operation::Get { .. } => b"GET",
        Operation::Set { .. } => b"SET",
        Operation::MGet { .. } => b"MGET",
        Operation::MSet { .. } => b"MSET",
        Operation::Del { .. } => b"DEL",
        Operation::Copy { .. } => b"COPY",
        Operation::IncrBy { .. } => b"INCRBY",
        Operation::Push { side: Side::Left, .. } => b"LPUSH",
        Operation::Push { side: Side::Right, .. } => b"RPUSH",
        Operation::Pop { side: Side::Left, .. } => b"LPOP",
        Operation::Pop { side: Side::Right, .. } => b"RPOP",
        Operation::LRange { .. } => b"LRANGE",
        Operation::HSet { .. } => b"HSET",
        Operation::HGet { .. } => b"HGET",
        Operation::HDel { .. } => b"HDEL",
        other => panic!("no workload asks for {}", other.name()),
    };
    let mut words = vec![Blob::new(name)];
    match operation {
        Operation::Set { key, value, condition, expiry, .. } => {
            words.extend([key.clone(), value.clone()]);
            if *condition == Condition::IfAbsent {
                words.push("NX".into());
            }
            if let Expiry::At(at) = expiry {
                words.extend(["PXAT".into(), at.as_millis().to_string().into()]);
            }
        }
        Operation::MGet { keys } | Operation::Del { keys } => words.extend(keys.iter().cloned()),
        Operation::MSet { pairs, .. } => {
            words.extend(pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]));
        }
        Operation::Copy { key, target, replace } => {
            words.extend([key.clone(), target.clone()]);
            words.extend(replace.then(|| "REPLACE".into()));
        }
        Operation::IncrBy { key, by } => words.extend([key.clone(), by.to_string().into()]),
        Operation::Push { key, values, .. } => {
            words.push(key.clone());
            words.extend(values.iter().cloned());
        }
        Operation::Get { key } | Operation::Pop { key, .. } => words.push(key.clone()),
        Operation::LRange { key, start, stop } => {
            words.extend([key.clone(), start.to_string().into(), stop.to_string().into()]);
        }
        Operation::HSet { key, pairs } => {
            words.push(key.clone());
            words.extend(pairs.iter().flat_map(|(field, value)| [field.clone(), value.clone()]));
        }
        Operation::HGet { key, field } => words.extend([key.clone(), field.clone()]),
        Operation::HDel { key, fields } => {
            words.push(key.clone());
            words.extend(fields.iter().cloned());
        }
        _ => unreachable!("the names above are those of these operations"),
    }
    words
}

/// An operation as a history has it: its name in lower case, its keys, what follows them.
pub fn described(operation: &Operation) -> (String, Vec<String>, Vec<String>) {
    let text = |word: &Blob| String::from_utf8_lossy(word).into_owned();
    let words = words(operation);
    let name = text(&words[0]).to_lowercase();
    let rest = words[1..].iter().map(text);
    match operation {
        Operation::MGet { .. } | Operation::Del { .. } => (name, rest.collect(), Vec::new()),
        Operation::MSet { pairs, .. } => {
            let keys = pairs.iter().map(|(key, _)| text(key)).collect();
            (name, keys, pairs.iter().map(|(_, value)| text(value)).collect())
        }
        Operation::Copy { key, target, replace } => {
            let args = replace.then(|| "replace".to_owned());
            (name, vec![text(key), text(target)], args.into_iter().collect())
        }
        Operation::Set { key, value, condition, expiry, .. } => {
            let mut args = vec![text(value)];
            if *condition == Condition::IfAbsent {
                args.push("nx".to_owned());
            }
            // Histories count in nanoseconds, as stamps do.
            if let Expiry::At(at) = expiry {
                args.extend(["at".to_owned(), at.as_nanos().to_string()]);
            }
            (name, vec![text(key)], args)
        }
        _ => {
            let mut words: Vec<String> = rest.collect();
            let args = words.split_off(1);
            (name, words, args)
        }
    }
}

/// What a history would have where a client did not route.
const MOVED: &str = "ERR the key is in another partition; this is a bug";

/// A response as a history has it.
pub fn value(response: &Response) -> isochrone_check::Value {
    use isochrone_check::Value;
    let text = |bytes: &Blob| Value::Text(String::from_utf8_lossy(bytes).into_owned());
    match response {
        Response::Ok => Value::Text("OK".to_owned()),
        Response::Nil | Response::NilArray => Value::Nil,
        Response::Integer(number) => Value::Integer(*number),
        Response::Bulk(bytes) => text(bytes),
        Response::Double(score) => Value::Text(score.to_string()),
        Response::Kind(kind) => Value::Text(kind.name().to_owned()),
        Response::Array(items) | Response::Set(items) => Value::List(items.iter().map(value).collect()),
        Response::Pairs(pairs) | Response::Map(pairs) => {
            Value::List(pairs.iter().flat_map(|(left, right)| [value(left), value(right)]).collect())
        }
        Response::Scan { items, .. } => Value::List(items.iter().map(text).collect()),
        Response::Error(refusal) => Value::Error(refusal.to_string()),
        // Clients route; nobody beyond them sees it.
        Response::Move(_) | Response::Share(_) => Value::Error(MOVED.to_owned()),
        Response::Content(content) => Value::Text(format!("{content:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_of_every_workload_has_words_and_a_description() {
        for name in crate::Workload::names() {
            let workload = crate::Workload::named(name).expect(name);
            let mut session = workload.session(0, 2, isochrone_core::Random::seeded(9));
            for _ in 0..3_000 {
                let request = session.next(Some(isochrone_core::Stamp::from_nanos(7_000_000)));
                for operation in std::iter::once(&request.first).chain(&request.then) {
                    let (op, keys, args) = described(operation);
                    assert_eq!(words(operation).len(), 1 + keys.len() + args.len(), "{op}");
                    assert!(!keys.is_empty(), "{op}");
                }
            }
        }
    }

    #[test]
    fn descriptions_separate_keys_from_arguments() {
        let operation = set_all([("a".into(), "1".into()), ("b".into(), "2".into())]);
        let strings = |words: [&str; 2]| words.map(str::to_owned).to_vec();
        assert_eq!(described(&operation), ("mset".to_owned(), strings(["a", "b"]), strings(["1", "2"])));
        let operation = copy("a".into(), "b".into(), true);
        assert_eq!(
            described(&operation),
            ("copy".to_owned(), strings(["a", "b"]), vec!["replace".to_owned()])
        );
        let operation = set_if_absent("a".into(), "1".into());
        assert_eq!(described(&operation), ("set".to_owned(), vec!["a".to_owned()], strings(["1", "nx"])));
    }
}
