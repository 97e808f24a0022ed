//! Bytes to strings: what is read, and what is refused with which words.

use super::super::request::{Requests, integer};
use crate::limits::Limits;
use expect_test::expect;
use std::fmt::Write as _;

/// All requests in these bytes, and the error that ends them.
pub(super) fn read(pieces: &[&[u8]]) -> String {
    let (mut requests, limits) = (Requests::new(), Limits::default());
    let mut text = String::new();
    for piece in pieces {
        requests.push(piece);
        loop {
            match requests.parse(&limits, true) {
                Ok(true) => {
                    writeln!(text, "{:?}", requests.args()).unwrap();
                    requests.consume();
                }
                Ok(false) => break,
                Err(error) => {
                    writeln!(text, "{error}").unwrap();
                    return text;
                }
            }
        }
    }
    if requests.waiting() > 0 {
        writeln!(text, "and {} bytes more", requests.waiting()).unwrap();
    }
    text
}

#[test]
fn requests_are_read_in_both_forms() {
    let rows: &[&[u8]] = &[
        b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
        b"*0\r\n*-1\r\nPING\r\n",
        b"\r\n\r\nPING\r\n",
        b"*1\r\n$0\r\n\r\n",
        b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n\r\n\r\n",
        b"set key \"a \\x41\\n\\\"\" 'it\\'s'\n",
        b"   spaces\t and tabs  \r\n",
        b"*2\r\n$3\r\nGET\r\n$5\r\nab",
        b"*2\r\n$3\r\nGET\r",
    ];
    let mut text = String::new();
    for row in rows {
        writeln!(text, "{}", row.escape_ascii()).unwrap();
        for line in read(&[row]).lines() {
            writeln!(text, "  {line}").unwrap();
        }
    }
    expect![[r#"
        *2\r\n$3\r\nGET\r\n$1\r\na\r\n
          ["GET", "a"]
        *0\r\n*-1\r\nPING\r\n
          ["PING"]
        \r\n\r\nPING\r\n
          ["PING"]
        *1\r\n$0\r\n\r\n
          [""]
        *2\r\n$3\r\nGET\r\n$4\r\n\r\n\r\n\r\n
          ["GET", "\\r\\n\\r\\n"]
        set key \"a \\x41\\n\\\"\" \'it\\\'s\'\n
          ["set", "key", "a A\\n\\\"", "it\\'s"]
           spaces\t and tabs  \r\n
          ["spaces", "and", "tabs"]
        *2\r\n$3\r\nGET\r\n$5\r\nab
          and 19 bytes more
        *2\r\n$3\r\nGET\r
          and 12 bytes more
    "#]]
    .assert_eq(&text);
}

#[test]
fn malformed_requests_are_refused_with_redis_words() {
    let rows: &[&[u8]] = &[
        b"*x\r\n",
        b"*\r\n",
        b"*1.5\r\n",
        b"*99999999999999999999\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n*1\r\n$1\r\na\r\n",
        b"*1\r\n\x01",
        b"*1\r\n$x\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$ 1\r\n",
        b"get \"a\r\n",
        b"get \"a\"b\r\n",
        b"get 'a\r\n",
    ];
    let mut text = String::new();
    for row in rows {
        write!(text, "{}\n  {}", row.escape_ascii(), read(&[row])).unwrap();
    }
    expect![[r#"
        *x\r\n
          Protocol error: invalid multibulk length
        *\r\n
          Protocol error: invalid multibulk length
        *1.5\r\n
          Protocol error: invalid multibulk length
        *99999999999999999999\r\n
          Protocol error: invalid multibulk length
        *1\r\n:1\r\n
          Protocol error: expected '$', got ':'
        *1\r\n*1\r\n$1\r\na\r\n
          Protocol error: expected '$', got '*'
        *1\r\n\x01
          Protocol error: expected '$', got '?'
        *1\r\n$x\r\n
          Protocol error: invalid bulk length
        *1\r\n$-1\r\n
          Protocol error: invalid bulk length
        *1\r\n$ 1\r\n
          Protocol error: invalid bulk length
        get \"a\r\n
          Protocol error: unbalanced quotes in request
        get \"a\"b\r\n
          Protocol error: unbalanced quotes in request
        get \'a\r\n
          Protocol error: unbalanced quotes in request
    "#]]
    .assert_eq(&text);
}

#[test]
fn integers_are_read_strictly() {
    for (text, value) in [
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("99999999999999999999", None),
        ("-0", None),
        ("+1", None),
        ("01", None),
        (" 1", None),
        ("1 ", None),
        ("", None),
        ("-", None),
        ("1e3", None),
    ] {
        assert_eq!(integer(text.as_bytes()), value, "{text:?}");
    }
}

#[test]
fn a_password_does_not_stay_in_the_input() {
    let (mut requests, limits) = (Requests::new(), Limits::default());
    requests.push(b"*2\r\n$4\r\nAUTH\r\n$6\r\ncanary\r\nPING can");
    assert_eq!(requests.parse(&limits, false), Ok(true));
    requests.forget();
    requests.consume();
    assert!(!format!("{requests:?}").contains(&format!("{:?}", b"canary").replace(['[', ']'], "")));
    requests.push(b"\r\n");
    assert_eq!(requests.parse(&limits, false), Ok(true));
    assert_eq!(format!("{:?}", requests.args()), r#"["PING", "can"]"#);
}
