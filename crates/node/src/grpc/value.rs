//! A reply in RESP3 as a message.

use isochrone_proto::v1::value::Kind;
use isochrone_proto::v1::{Null, Pair, Pairs, Value, Values};

/// Nesting that replies have at most: streams of entries of pairs, in a transaction.
const DEPTH: usize = 32;

/// The one reply in these bytes; nothing where they hold none. They are this node's own, so that this is no place for
/// limits.
pub(super) fn parse(bytes: &[u8]) -> Option<Value> {
    let mut rest = bytes;
    let value = one(&mut rest, DEPTH)?;
    rest.is_empty().then_some(value)
}

fn one(rest: &mut &[u8], depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let (kind, line) = line(rest)?;
    let text = || String::from_utf8_lossy(line).into_owned();
    let number = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
    let count = || usize::try_from(number()?).ok();
    let kind = match kind {
        b'+' => Kind::Status(text()),
        b'-' => Kind::Error(text()),
        b':' => Kind::Integer(number()?),
        b',' => Kind::Double(text().parse().ok()?),
        b'_' => Kind::Null(Null {}),
        b'$' => Kind::Bytes(string(rest, count()?)?.to_vec().into()),
        // Text with a word for its format before it.
        b'=' => Kind::Bytes(string(rest, count()?)?.get(4..)?.to_vec().into()),
        b'*' => Kind::List(some(rest, count()?, depth)?),
        b'~' => Kind::Set(some(rest, count()?, depth)?),
        b'%' => {
            let pair = |_| Some(Pair { key: Some(one(rest, depth)?), value: Some(one(rest, depth)?) });
            Kind::Map(Pairs { pairs: (0..count()?).map(pair).collect::<Option<_>>()? })
        }
        _ => return None,
    };
    Some(Value { kind: Some(kind) })
}

fn some(rest: &mut &[u8], count: usize, depth: usize) -> Option<Values> {
    Some(Values { values: (0..count).map(|_| one(rest, depth)).collect::<Option<_>>()? })
}

/// The first byte of the next line, and the rest of it.
fn line<'b>(rest: &mut &'b [u8]) -> Option<(u8, &'b [u8])> {
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let (kind, line) = rest[..end].split_first()?;
    *rest = &rest[end + 2..];
    Some((*kind, line))
}

fn string<'b>(rest: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let bytes = rest.get(..length)?;
    *rest = rest.get(length..)?.strip_prefix(b"\r\n")?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(kind: Kind) -> Value {
        Value { kind: Some(kind) }
    }

    #[test]
    fn every_type_of_reply_has_its_kind() {
        let bytes = |text: &'static str| value(Kind::Bytes(text.as_bytes().into()));
        for (reply, kind) in [
            ("+OK\r\n", Kind::Status("OK".into())),
            ("-WRONGTYPE no\r\n", Kind::Error("WRONGTYPE no".into())),
            (":-7\r\n", Kind::Integer(-7)),
            (",2.5\r\n", Kind::Double(2.5)),
            ("_\r\n", Kind::Null(Null {})),
            ("$4\r\na\r\nb\r\n", Kind::Bytes("a\r\nb".into())),
            ("=7\r\ntxt:abc\r\n", Kind::Bytes("abc".into())),
            ("*2\r\n$1\r\na\r\n$1\r\nb\r\n", Kind::List(Values { values: vec![bytes("a"), bytes("b")] })),
            ("~1\r\n$1\r\na\r\n", Kind::Set(Values { values: vec![bytes("a")] })),
            (
                "%1\r\n$1\r\na\r\n:1\r\n",
                Kind::Map(Pairs {
                    pairs: vec![Pair { key: Some(bytes("a")), value: Some(value(Kind::Integer(1))) }],
                }),
            ),
        ] {
            assert_eq!(parse(reply.as_bytes()), Some(value(kind)), "{reply:?}");
        }
        for broken in ["", "+OK", "$5\r\nab\r\n", "*2\r\n:1\r\n", ":1\r\n:2\r\n", "!x\r\n"] {
            assert_eq!(parse(broken.as_bytes()), None, "{broken:?}");
        }
    }
}
