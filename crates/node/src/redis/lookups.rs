//! Hits and misses, as INFO counts them: whether the key that a command reads was there.
//!
//! The answer says it, since the key itself may be held elsewhere. Of an answer that nothing was found it does not say
//! what: where a field, a member or an element is asked for, a miss may be of that alone.

use isochrone_core::command::{Kind, Operation, Refusal, Response};

/// What the answer to an operation says of the keys that it looks up.
#[derive(Debug, Default)]
pub(crate) enum Lookups {
    /// Nothing: it only writes, or combines several keys, or goes through all.
    #[default]
    Nothing,
    /// It is a value of one key.
    Value,
    /// It is how much of one key there is: none is a miss.
    Amount,
    /// It is how many of so many keys there are.
    Count(usize),
    /// It is a value of each key.
    Values,
    /// It has these parts, of a transaction.
    Parts(Box<[Lookups]>),
}

impl Lookups {
    /// What the answer to this operation will say.
    pub(crate) fn of(operation: &Operation) -> Lookups {
        use Operation::*;
        match operation {
            Get { .. }
            | GetDel { .. }
            | GetEx { .. }
            | Set { get: true, .. }
            | Type { .. }
            | Ttl { .. }
            | Encoding { .. }
            | Dump { .. }
            | Weight { .. }
            | HGet { .. }
            | HMGet { .. }
            | HGetAll { .. }
            | HKeys { .. }
            | HVals { .. }
            | HRandField { .. }
            | HScan { .. }
            | LRange { .. }
            | LIndex { .. }
            | LPos { .. }
            | SMembers { .. }
            | SRandMember { .. }
            | SScan { .. }
            | ZScore { .. }
            | ZMScore { .. }
            | ZRange { .. }
            | ZRank { .. }
            | ZRandMember { .. }
            | ZScan { .. }
            | XRange { .. }
            | GeoSearch { .. }
            | Sort { .. } => Lookups::Value,
            StrLen { .. }
            | GetRange { .. }
            | HLen { .. }
            | HExists { .. }
            | HStrLen { .. }
            | LLen { .. }
            | SIsMember { .. }
            | SMIsMember { .. }
            | SCard { .. }
            | ZCard { .. }
            | ZCount { .. }
            | XLen { .. } => Lookups::Amount,
            PfCount { keys } if keys.len() == 1 => Lookups::Amount,
            MGet { .. } => Lookups::Values,
            Exists { keys } | Touch { keys } => Lookups::Count(keys.len()),
            Transaction { operations, .. } => {
                let parts: Vec<Lookups> = operations.iter().map(Lookups::of).collect();
                let any = parts.iter().any(|part| !matches!(part, Lookups::Nothing));
                if any { Lookups::Parts(parts.into()) } else { Lookups::Nothing }
            }
            _ => Lookups::Nothing,
        }
    }

    /// Counts the hits and misses that this answer tells of.
    pub(crate) fn count(&self, response: &Response, counted: &mut (u64, u64)) {
        let (hits, misses) = &mut *counted;
        let found = match (self, response) {
            (Lookups::Nothing, _) => return,
            // It is there, and of another kind. No other error says anything.
            (Lookups::Value | Lookups::Amount, Response::Error(refusal)) => {
                *hits += u64::from(matches!(refusal, Refusal::WrongType | Refusal::NotHyperLogLog));
                return;
            }
            (Lookups::Value, response) => (usize::from(!nothing(response, false)), 1),
            (Lookups::Amount, response) => (usize::from(!nothing(response, true)), 1),
            (Lookups::Count(of), Response::Integer(found)) => (usize::try_from(*found).unwrap_or(0), *of),
            (Lookups::Values, Response::Array(values)) => {
                (values.iter().filter(|value| **value != Response::Nil).count(), values.len())
            }
            (Lookups::Parts(parts), Response::Array(responses)) => {
                for (part, response) in parts.iter().zip(responses) {
                    part.count(response, counted);
                }
                return;
            }
            _ => return,
        };
        *hits += found.0 as u64;
        *misses += found.1.saturating_sub(found.0) as u64;
    }
}

/// Whether an answer says that nothing was found; where `amounts` are asked for, also by none and by an empty string.
fn nothing(response: &Response, amounts: bool) -> bool {
    match response {
        // Of a key without value there is no time left.
        Response::Nil | Response::NilArray | Response::Integer(-2) | Response::Kind(Kind::None) => true,
        Response::Integer(0) => amounts,
        Response::Bulk(bytes) => amounts && bytes.is_empty(),
        Response::Array(parts) | Response::Set(parts) => parts.iter().all(|part| nothing(part, amounts)),
        Response::Pairs(pairs) | Response::Map(pairs) => pairs.is_empty(),
        Response::Scan { cursor, items } => *cursor == 0 && items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::Blob;

    fn counted(operation: &Operation, response: &Response) -> (u64, u64) {
        let mut counted = (0, 0);
        Lookups::of(operation).count(response, &mut counted);
        counted
    }

    #[test]
    fn answers_say_what_was_found() {
        use Operation::*;
        let key = || Blob::from("k");
        let keys = || [key(), key(), key()].into();
        let (nil, number) = (Response::Nil, Response::Integer);
        let (hit, miss, neither) = ((1, 0), (0, 1), (0, 0));
        let cases = [
            (Get { key: key() }, Response::bulk(b""), hit),
            (Get { key: key() }, nil.clone(), miss),
            (Get { key: key() }, Refusal::WrongType.into(), hit),
            (AppendWithin { key: key(), value: key(), most: 9 }, number(1), neither),
            (StrLen { key: key() }, number(0), miss),
            (SCard { key: key() }, number(4), hit),
            (ZRank { key: key(), member: key(), reverse: false, with_score: false }, number(0), hit),
            (HGetAll { key: key() }, Response::Map(Vec::new()), miss),
            (HMGet { key: key(), fields: keys() }, Response::Array(vec![nil.clone(); 3]), miss),
            (MGet { keys: keys() }, Response::Array(vec![nil.clone(), number(1), nil.clone()]), (1, 2)),
            (Exists { keys: keys() }, number(2), (2, 1)),
            (Type { key: key() }, Response::Kind(Kind::None), miss),
            (DbSize, number(0), neither),
        ];
        for (operation, response, expected) in &cases {
            assert_eq!(counted(operation, response), *expected, "{operation:?} {response:?}");
        }
        let operations: Vec<Operation> = cases.iter().map(|(operation, ..)| operation.clone()).collect();
        let responses = cases.iter().map(|(_, response, _)| response.clone()).collect();
        let sum = cases.iter().fold((0, 0), |sum, (.., (hits, misses))| (sum.0 + hits, sum.1 + misses));
        let all = Transaction { watched: [].into(), operations: operations.into() };
        assert_eq!(counted(&all, &Response::Array(responses)), sum);
        assert_eq!(counted(&all, &Response::NilArray), neither, "it was not executed");
    }
}
