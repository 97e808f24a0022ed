use super::*;
use isochrone_core::Export;
use isochrone_core::command::{
    Append, Kind, NewId, ReadFrom, StreamId, StreamRead, StreamSlice, Trim, Trimming,
};
use std::sync::Arc;

fn id(millis: u64, sequence: u64) -> StreamId {
    StreamId { millis, sequence }
}

fn append(id: NewId) -> Append {
    Append { id, fields: vec![(b("f"), b("v"))], only_if_exists: false, trimming: None }
}

fn add(key: &str, append: Append) -> Operation {
    Operation::XAdd { key: b(key), append: Arc::new(append) }
}

fn all(key: &str) -> Operation {
    let slice = StreamSlice { start: StreamId::MIN, end: StreamId::MAX, reverse: false, count: None };
    Operation::XRange { key: b(key), slice: Arc::new(slice) }
}

fn entry(id: &str) -> Response {
    Response::Array(vec![bulk(id), array("f v")])
}

fn entries(ids: &str) -> Response {
    Response::Array(ids.split_whitespace().map(entry).collect())
}

fn read(streams: &[(&str, ReadFrom)], count: u64, resolve: bool) -> Operation {
    let streams = streams.iter().map(|(key, from)| (b(key), *from)).collect();
    Operation::XRead { read: Arc::new(StreamRead { streams, count, resolve }) }
}

#[test]
fn identifiers_grow_whatever_the_stamps_say() {
    let mut store = Store::default();
    assert_eq!(store.run_at(100, add("s", append(NewId::Next))), bulk("100-0"));
    assert_eq!(store.run_at(100, add("s", append(NewId::Next))), bulk("100-1"));
    // A gateway whose clock is behind.
    assert_eq!(store.run_at(40, add("s", append(NewId::Next))), bulk("100-2"));
    assert_eq!(store.run_at(200, add("s", append(NewId::Next))), bulk("200-0"));
    assert_eq!(store.run(add("s", append(NewId::Within(200)))), bulk("200-1"));
    assert_eq!(store.run(add("s", append(NewId::Within(300)))), bulk("300-0"));
    for refused in [NewId::Within(299), NewId::This(id(300, 0)), NewId::This(id(1, 1))] {
        assert_eq!(store.run(add("s", append(refused))), Refusal::StreamIdNotAbove.into(), "{refused:?}");
    }
    assert_eq!(store.run(add("s", append(NewId::This(StreamId::MAX)))), bulk(&StreamId::MAX.to_string()));
    assert_eq!(store.run(add("s", append(NewId::Next))), Refusal::StreamFull.into());
    // The first of a new stream.
    assert_eq!(store.run(add("t", append(NewId::Within(0)))), bulk("0-1"));
}

#[test]
fn a_stream_outlives_its_entries_and_its_identifiers_do_not_come_again() {
    let mut store = Store::default();
    store.run(add("s", append(NewId::This(id(5, 1)))));
    let ids = [id(5, 1), id(9, 9)].into();
    assert_eq!(store.run(Operation::XDel { key: b("s"), ids }), Response::Integer(1));
    assert_eq!(store.run(Operation::XLen { key: b("s") }), Response::Integer(0));
    assert_eq!(store.run(Operation::Type { key: b("s") }), Response::Kind(Kind::Stream));
    assert_eq!(store.run(add("s", append(NewId::This(id(5, 1))))), Refusal::StreamIdNotAbove.into());
    let only = Append { only_if_exists: true, ..append(NewId::Within(6)) };
    assert_eq!(store.run(add("absent", only.clone())), Response::Nil);
    assert_eq!(store.run(add("s", only)), bulk("6-0"));
    store.run(set("text", "x"));
    for operation in
        [all("text"), add("text", append(NewId::Next)), read(&[("text", ReadFrom::Last)], 0, false)]
    {
        assert_eq!(store.run(operation), WRONG_TYPE);
    }
}

#[test]
fn ranges_trims_and_reads() {
    let mut store = Store::default();
    for number in 1..=300 {
        store.run(add("s", append(NewId::This(id(number, 0)))));
    }
    let slice = StreamSlice { start: id(3, 0), end: id(9, 5), reverse: true, count: Some(2) };
    let range = |slice| Operation::XRange { key: b("s"), slice: Arc::new(slice) };
    assert_eq!(store.run(range(slice)), entries("9-0 8-0"));
    assert_eq!(store.run(range(StreamSlice { count: Some(0), ..slice })), Response::NilArray);
    let empty = StreamSlice { start: id(9, 0), end: id(3, 0), reverse: false, count: None };
    assert_eq!(store.run(range(empty)), Response::Array(Vec::new()));
    let trim = |trim, limit| Operation::XTrim { key: b("s"), trimming: Arc::new(Trimming { trim, limit }) };
    assert_eq!(store.run(trim(Trim::Length(100), 50)), Response::Integer(50));
    assert_eq!(store.run(trim(Trim::Before(id(298, 0)), 0)), Response::Integer(247));
    assert_eq!(store.run(all("s")), entries("298-0 299-0 300-0"));
    let trimmed =
        Append { trimming: Some(Trimming { trim: Trim::Length(2), limit: 0 }), ..append(NewId::Within(301)) };
    store.run(add("s", trimmed));
    let from = |id| ReadFrom::After(id);
    let found = |ids| Response::Pairs(vec![(bulk("s"), entries(ids))]);
    assert_eq!(
        store.run(read(&[("none", from(StreamId::MIN)), ("s", from(id(299, 0)))], 0, true)),
        found("300-0 301-0")
    );
    assert_eq!(store.run(read(&[("s", from(StreamId::MIN))], 1, false)), found("300-0"));
    assert_eq!(store.run(read(&[("s", ReadFrom::Last)], 0, false)), Response::NilArray);
    let numbers = [301u64, 0, 7, 8].map(|number| Response::bulk(&number.to_be_bytes()));
    let told = store.run(read(&[("s", ReadFrom::Last), ("none", from(id(7, 8)))], 0, true));
    assert_eq!(told, Response::Array(numbers.to_vec()));
}

#[test]
fn streams_travel() {
    let mut store = Store::default();
    let long = Append { fields: vec![(b("f"), b(&"x".repeat(1000)))], ..append(NewId::Next) };
    for number in 0..5_000 {
        store.run_at(number, add("long", long.clone()));
    }
    store.run(add("empty", append(NewId::This(id(7, 7)))));
    store.run(Operation::XDel { key: b("empty"), ids: [id(7, 7)].into() });
    store.run(add("one", append(NewId::This(id(7, 7)))));
    let view = store.export();
    let chunks: Vec<_> = (0..).map_while(|index| view.chunk(index)).collect();
    assert!(chunks.len() > 4, "{}", chunks.len());
    let mut copy = Store::default();
    chunks.iter().for_each(|chunk| copy.absorb(chunk).unwrap());
    assert!(copy == store && copy.digest() == store.digest());
    // They go on alike.
    for store in [&mut store, &mut copy] {
        assert_eq!(store.run(add("empty", append(NewId::This(id(7, 7))))), Refusal::StreamIdNotAbove.into());
        assert_eq!(store.run(add("empty", append(NewId::Within(7)))), bulk("7-8"));
    }
    // An entry behind the last identifier cannot be.
    let mut twice = Store::default();
    twice.absorb(&chunks[0]).unwrap();
    assert!(twice.absorb(&chunks[0]).is_err());
}
