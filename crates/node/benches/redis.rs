//! What the Redis gateway costs a command: bytes to request, response to bytes, without any I/O.

#![allow(missing_docs)] // Criterion's macros make public functions.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use isochrone_core::command::Response;
use isochrone_core::{Blob, Instant, KeyspaceId, Random, Stamp};
use isochrone_node::gateway::{Context, Counters, KeyspaceView, Login, NodeView, Outcome, Session};
use isochrone_node::limits::Limits;
use isochrone_node::redis::Connection;
use std::collections::BTreeMap;
use std::hint::black_box;

const PIPELINE: usize = 16;

fn commands(criterion: &mut Criterion) {
    let value = "x".repeat(64);
    let set = format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:000000012345\r\n$64\r\n{value}\r\n");
    let get = "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000012345\r\n".to_owned();
    let mut group = criterion.benchmark_group("redis");
    group.throughput(Throughput::Elements(PIPELINE as u64));
    for (name, request, response) in [
        ("set", set, Response::Ok),
        ("get", get, Response::Bulk(Blob::new(value.as_bytes()))),
        ("ping", "*1\r\n$4\r\nPING\r\n".to_owned(), Response::Ok),
    ] {
        let input = request.repeat(PIPELINE);
        let (limits, node, mut random) = (Limits::default(), NodeView::default(), Random::seeded(1));
        let (mut clients, mut counters) = (BTreeMap::new(), Counters::default());
        let keyspaces = [KeyspaceView::new(KeyspaceId(1), "main", 0, "multipaxos", 3)];
        let mut hub = isochrone_node::hub::Hub::default();
        let mut context = Context {
            now: Instant::ZERO,
            stamp: Stamp::ZERO,
            connection: 1,
            unsent: 0,
            random: &mut random,
            limits: &limits,
            node: &node,
            keyspaces: &keyspaces,
            login: Login::Open,
            clients: &mut clients,
            counters: &mut counters,
            hub: &mut hub,
        };
        let mut connection = Connection::new(&context);
        let (mut out, mut requests) = (Vec::new(), Vec::new());
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || (),
                |()| {
                    connection.receive(input.as_bytes(), &mut context, &mut out, &mut requests);
                    for request in std::mem::take(&mut requests) {
                        let outcome = Outcome::Done(response.clone());
                        connection.answer(request.id, outcome, &mut context, &mut out, &mut requests);
                    }
                    black_box(&out);
                    out.clear();
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, commands);
criterion_main!(benches);
