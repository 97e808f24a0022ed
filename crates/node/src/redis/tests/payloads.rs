//! Payloads of DUMP, as real servers have written them, and what becomes of them here.
//!
//! `payloads.txt` was taken down from redis-server 6.2.14, 7.0.15 and 8.2.3: a version, what `DUMP k` said, and the commands
//! that made `k`, split by ` ; `. A word `text*3` is that text three times, `''` the empty one. Some were made under settings
//! that have small values kept in the forms of large ones; what one server writes as another did before it, is there once.

use super::super::payload::{Allowance, Fault, dump, fuzz_payload, restore};
use super::{World, encode};
use crate::gateway::{Ask, Login, Outcome};
use crate::limits::Limits;
use isochrone_core::command::{
    Content, Operation, Pending, Refusal, Response, Restore, Score, StreamHead, StreamId, StreamPart,
};
use isochrone_core::{Blob, Command, Random, Stamp, StateMachine};
use isochrone_store::Store;
use proptest::prelude::*;
use std::sync::Arc;

const ALL: Allowance = Allowance { bytes: 64 << 20, elements: 1_000_000 };

/// The commands that made each payload, and the payload.
fn recorded() -> Vec<(String, Vec<u8>)> {
    let lines = include_str!("payloads.txt").lines();
    lines
        .map(|line| {
            let mut parts = line.splitn(3, ' ');
            let (version, payload, commands) =
                (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
            (format!("{version} {commands}"), unhex(payload))
        })
        .collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn word(text: &str) -> Vec<u8> {
    match text.split_once('*').map(|(text, times)| (text, times.parse::<usize>())) {
        Some((text, Ok(times))) => text.repeat(times).into_bytes(),
        _ if text == "''" => Vec::new(),
        _ => text.as_bytes().to_vec(),
    }
}

/// What a connection asks of its keyspace.
fn asked(words: &[Vec<u8>]) -> Vec<Command> {
    let mut world = World::new(Login::Open);
    world.receive(&encode(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    let requests = world.requests.drain(..).filter_map(|request| match request.ask {
        Ask::Execute { command, .. } => Some(command),
        Ask::Verify { .. } => None,
    });
    requests.collect()
}

fn content(store: &Store) -> Option<Content> {
    match store.read(&Command::new(Stamp::ZERO, Operation::Dump { key: "k".into() })) {
        Some(Response::Content(content)) => Some(*content),
        other => {
            assert_eq!(other, Some(Response::Nil));
            None
        }
    }
}

fn give(store: &mut Store, content: Content) -> Response {
    let restore = Arc::new(Restore { content, deadline: None, replace: true });
    store.apply(&Command::new(Stamp::from_nanos(1), Operation::Restore { key: "k".into(), restore }))
}

/// The value here that those commands make, as DUMP has it.
fn made(commands: &str, old: bool) -> Vec<u8> {
    let mut store = Store::default();
    for line in commands.split(' ').skip(1).collect::<Vec<_>>().join(" ").split(" ; ") {
        for command in asked(&line.split(' ').map(word).collect::<Vec<_>>()) {
            let response = store.apply(&command);
            assert!(!response.is_error(), "{line}: {response:?}");
        }
    }
    dump(&comparable(content(&store).unwrap(), old))
}

/// The same without the times at which something was delivered, and without what no server before 7.0 has told.
fn comparable(mut content: Content, old: bool) -> Content {
    if let Content::Parts(head, parts) = &mut content {
        for part in parts {
            match part {
                StreamPart::Group(.., read) if old => *read = None,
                StreamPart::Consumer(_, seen) => *seen = 0,
                StreamPart::Pending(_, pending) => pending.delivered = 0,
                _ => {}
            }
        }
        if old {
            (head.added, head.deleted) = (0, StreamId::MIN);
        }
    }
    match content {
        Content::Stream(last, entries) if old => {
            let head = StreamHead { last, ..StreamHead::default() };
            Content::Parts(head, entries.into_iter().map(StreamPart::Entry).collect())
        }
        content => content,
    }
}

#[test]
fn payloads_of_real_servers_hold_what_they_were_made_of() {
    let mut forms = std::collections::BTreeSet::new();
    for (commands, payload) in recorded() {
        forms.insert(payload[0]);
        let found = restore(&payload, ALL);
        let mut store = Store::default();
        assert_eq!(give(&mut store, found.expect(&commands)), Response::Ok, "{commands}");
        let old = payload[0] == 15;
        let (found, expected) = (dump(&comparable(content(&store).unwrap(), old)), made(&commands, old));
        assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{commands}");
    }
    assert!(forms.into_iter().eq([0, 2, 4, 5].into_iter().chain(11..=21)), "every form since 6.2");
}

/// A payload of these bytes.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut payload = [body, &[11, 0]].concat();
    super::super::payload::seal(&mut payload);
    payload
}

fn read(body: &[u8]) -> Result<Content, Fault> {
    restore(&sealed(body), ALL)
}

/// Forms before 3.2 and 4.0, in which nobody has written since: by hand.
#[test]
fn forms_of_old_servers_are_read() {
    let blob = |text: &str| Blob::from(text);
    assert_eq!(read(b"\x01\x02\x01a\xc0\x05"), Ok(Content::List(vec![blob("a"), blob("5")])));
    let ziplist = b"\x0a\x0d\x0d\0\0\0\x0a\0\0\0\x01\0\0\xf3\xff";
    assert_eq!(read(ziplist), Ok(Content::List(vec![blob("2")])));
    let scores = b"\x03\x04\x01a\x031.5\x01b\xff\x01c\xfe\x01d\x02-2";
    let scored = [(1.5, "a"), (f64::NEG_INFINITY, "b"), (f64::INFINITY, "c"), (-2.0, "d")];
    let scored = scored.map(|(score, member)| (Score::new(score).unwrap(), blob(member)));
    assert_eq!(read(scores), Ok(Content::Sorted(scored.to_vec())));
    assert_eq!(read(b"\x03\x01\x01a\xfd"), Err(Fault::Format), "no number");
    // Later servers write other forms as well, and these as ever.
    assert_eq!(read(b"\0\x01a"), Ok(Content::String(blob("a"))));
    assert_eq!(read(b"\x16\x01\x01a"), Err(Fault::Format));
    assert_eq!(read(b"\x07\x01"), Err(Fault::Format), "a value of a module");
}

/// Cut anywhere, or with anything behind it, a payload is none; damaged it is one of something, or none.
#[test]
fn what_was_cut_or_damaged_does_no_harm() {
    let mut random = Random::seeded(7);
    for (commands, payload) in recorded() {
        let body = &payload[..payload.len() - 10];
        for cut in 0..payload.len() {
            assert_eq!(restore(&payload[..cut], ALL), Err(Fault::Checksum), "{commands}");
        }
        for cut in 0..body.len() {
            assert_eq!(read(&body[..cut]), Err(Fault::Format), "{commands}: {cut}");
        }
        assert!(read(&[body, &[0]].concat()).is_err(), "{commands}");
        for at in 0..body.len().min(400) {
            let mut damaged = body.to_vec();
            for _ in 0..1 + random.below(3) {
                let place = if random.below(2) == 0 { at } else { random.below(body.len() as u64) as usize };
                damaged[place] = random.below(256) as u8;
            }
            fuzz_payload(&[&damaged, &[9, 0][..]].concat());
        }
    }
}

/// A payload of a few bytes may not come to many.
#[test]
fn a_value_takes_no_more_than_a_command_may() {
    let within = |body: &[u8], bytes, elements| restore(&sealed(body), Allowance { bytes, elements });
    let set = b"\x02\x03\x02ab\x02cd\x02ef";
    assert!(within(set, 6, 3).is_ok());
    assert_eq!(within(set, 5, 3), Err(Fault::Bytes));
    assert_eq!(within(set, 6, 2), Err(Fault::Elements));
    // 64 MiB of zeros, by their claim; and a claim that there is nothing behind.
    assert_eq!(within(b"\0\xc3\x05\x84\0\0\0\x01\0a\xe0\xff\0", 1 << 20, 9), Err(Fault::Format));
    let bomb = [&b"\0\xc3\x40\x5d\x80\0\0\x21\x01\0a"[..], &b"\xe0\xff\0".repeat(32)].concat();
    assert_eq!(within(&bomb, 1 << 10, 9), Err(Fault::Bytes));
    for claim in [
        &b"\x02\x81\xff\xff\xff\xff\xff\xff\xff\xff"[..],
        b"\0\x80\xff\xff\xff\xff",
        b"\x0f\x80\xff\xff\xff\xff",
    ] {
        assert_eq!(within(claim, 1 << 10, 1 << 10), Err(Fault::Format));
    }
}

/// However small it was when it came.
#[test]
fn a_payload_that_is_under_way_counts_as_the_value_in_it() {
    let body = [&b"\0\xc3\x40\x62\x80\0\0\x21\x01\0a"[..], &b"\xe0\xff\0".repeat(32)].concat();
    let restore = encode(&[b"RESTORE", b"k", b"0", &sealed(&body)]);
    let exec = [encode(&[b"MULTI"]), restore.clone(), encode(&[b"EXEC"])].concat();
    for (command, response) in [(restore, Response::Ok), (exec, Response::Array(vec![Response::Ok]))] {
        // Of a value of 8,449 bytes, one leaves room for another, and two do not.
        let limits = Limits { command_bytes: 12_000, ..Limits::default() };
        let mut world = World::with_limits(Login::Open, limits);
        world.receive(&command.repeat(3));
        assert_eq!(world.requests.len(), 2);
        let first = world.requests[0].id;
        world.answer(first, Outcome::Done(response));
        assert_eq!(world.requests.len(), 3);
    }
}

fn blob() -> impl Strategy<Value = Blob> {
    prop_oneof![
        "[a-c]{0,3}".prop_map(Blob::from),
        any::<i64>().prop_map(|number| Blob::from(number.to_string())),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(Blob::from),
        (60..20_000_usize).prop_map(|length| Blob::from("x".repeat(length))),
    ]
}

fn any_content() -> impl Strategy<Value = Content> {
    let blobs = || prop::collection::vec(blob(), 1..40);
    let id = || {
        (1..9_u64, any::<u8>()).prop_map(|(millis, sequence)| StreamId { millis, sequence: sequence.into() })
    };
    let fields = prop::collection::vec((blob(), blob()), 1..4);
    let entries = prop::collection::btree_map(id(), fields, 0..300);
    prop_oneof![
        blob().prop_map(Content::String),
        any::<i64>().prop_map(Content::Integer),
        blobs().prop_map(Content::List),
        prop::collection::btree_set(blob(), 1..40).prop_map(|set| Content::Set(set.into_iter().collect())),
        prop::collection::btree_map(blob(), blob(), 1..40)
            .prop_map(|hash| Content::Hash(hash.into_iter().collect())),
        prop::collection::btree_map(blob(), any::<f64>().prop_filter_map("a number", Score::new), 1..40)
            .prop_map(|set| Content::Sorted(
                set.into_iter().map(|(member, score)| (score, member)).collect()
            )),
        entries.prop_map(|entries| {
            let last = StreamId { millis: u64::MAX, sequence: 3 };
            Content::Stream(last, entries.into_iter().collect())
        }),
        grouped(),
    ]
}

/// A stream with groups.
fn grouped() -> impl Strategy<Value = Content> {
    let id = || (1..9_u64, 0..200_u64).prop_map(|(millis, sequence)| StreamId { millis, sequence });
    let entries = prop::collection::btree_map(id(), prop::collection::vec((blob(), blob()), 1..4), 0..150);
    let pending = prop::collection::btree_map(id(), (0..3_u64, any::<u64>(), any::<u64>()), 0..150);
    let group = (id(), prop::option::of(0..9_u64), prop::collection::btree_set(blob(), 3..5), pending);
    let groups = prop::collection::btree_map(blob(), group, 0..4);
    (entries, groups, id(), any::<u32>()).prop_map(|(entries, groups, deleted, more)| {
        let last = StreamId { millis: 9, sequence: 3 };
        let head = StreamHead { last, added: entries.len() as u64 + u64::from(more) + 1, deleted };
        let mut parts: Vec<_> = entries.into_iter().map(StreamPart::Entry).collect();
        for (name, (last, read, consumers, pending)) in groups {
            parts.push(StreamPart::Group(name, last, read));
            parts.extend(consumers.into_iter().map(|name| StreamPart::Consumer(name, 7)));
            parts.extend(pending.into_iter().map(|(id, (consumer, delivered, count))| {
                StreamPart::Pending(id, Pending { consumer, delivered, count })
            }));
        }
        Content::Parts(head, parts)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_is_dumped_is_restored_to_the_same(content in any_content()) {
        let (mut store, mut again) = (Store::default(), Store::default());
        prop_assert_eq!(give(&mut store, content), Response::Ok);
        let held = super::payloads::content(&store).unwrap();
        let read = restore(&dump(&held), ALL).unwrap();
        if let Content::Integer(number) = held {
            prop_assert_eq!(read, Content::String(Blob::from(number.to_string())));
        } else {
            prop_assert_eq!(&read, &held);
            give(&mut again, read);
            prop_assert_eq!(super::payloads::content(&again), Some(held));
        }
    }

    #[test]
    fn no_payload_does_harm(bytes in prop::collection::vec(any::<u8>(), 0..60), form in 0..23_u8) {
        fuzz_payload(&bytes);
        fuzz_payload(&[&[form], &bytes[..], &[9, 0]].concat());
    }
}

#[test]
fn dump_and_restore_are_asked_and_answered_as_in_redis() {
    let line = |word: &str| match word {
        "P" => unhex("000568656c6c6f0900b3808eba31b243bb"),
        word => word.as_bytes().to_vec(),
    };
    let ask = |text: &str| asked(&text.split(' ').map(line).collect::<Vec<_>>());
    let mut store = Store::default();
    let mut run = |text: &str| {
        let [command] = &ask(text)[..] else { panic!("{text} is refused") };
        store.apply(command)
    };
    let (busy, nil, hello) = (Response::Error(Refusal::BusyKey), Response::Nil, || Response::bulk(b"hello"));
    for (text, expected) in [
        ("DUMP a", nil.clone()),
        ("RESTORE a 0 P", Response::Ok),
        ("RESTORE a 0 P", busy.clone()),
        ("RESTORE a 0 P REPLACE ABSTTL IDLETIME 7", Response::Ok),
        ("GET a", hello()),
        ("PTTL a", Response::Integer(-1)),
        ("RESTORE a 5000 P FREQ 3 replace", Response::Ok),
        ("PTTL a", Response::Integer(5000)),
        ("RESTORE a 1800000000123 P absttl replace", Response::Ok),
        ("PEXPIRETIME a", Response::Integer(1_800_000_000_123)),
        ("RESTORE b 1 P ABSTTL", Response::Ok),
        ("RESTORE a 1 P ABSTTL", busy),
        ("RESTORE a 1 P ABSTTL REPLACE", Response::Ok),
        ("EXISTS a b", Response::Integer(0)),
    ] {
        assert_eq!(run(text), expected, "{text}");
    }
    // A member twice: the replicas find it out, and the key is as it was.
    run("SET k 1");
    let twice = Content::Set(vec!["a".into(), "b".into(), "a".into()]);
    assert_eq!(give(&mut store, twice), Refusal::BadContent.into());
    assert!(content(&store).is_some());
}
