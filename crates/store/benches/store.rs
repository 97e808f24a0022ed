//! What the everyday commands cost, with a hundred thousand and a million keys, and behind a view.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use isochrone_core::command::{Command, Condition, Expiry, Operation, Score};
use isochrone_core::{Blob, Random, Stamp, StateMachine};
use isochrone_store::Store;
use std::cell::RefCell;
use std::hint::black_box;

fn key(number: u64) -> Blob {
    Blob::from(format!("key:{number:012}"))
}

fn set(number: u64, value: &Blob) -> Command {
    let operation = Operation::Set {
        key: key(number),
        value: value.clone(),
        condition: Condition::Always,
        expiry: Expiry::Clear,
        get: false,
    };
    Command::new(Stamp::from_nanos(number), operation)
}

fn filled(keys: u64, value: &Blob) -> Store {
    let mut store = Store::default();
    for number in 0..keys {
        store.apply(&set(number, value));
    }
    store
}

fn commands(c: &mut Criterion) {
    let value = Blob::new(&[7; 100]);
    for keys in [100_000, 1_000_000] {
        let mut group = c.benchmark_group(format!("{keys} keys"));
        let mut random = Random::seeded(1);
        let store = RefCell::new(filled(keys, &value));
        type Make = fn(u64, &Blob) -> Operation;
        let kinds: [(&str, Make); 4] = [
            ("set", |number, value| set(number, value).operation),
            ("get", |number, _| Operation::Get { key: key(number) }),
            ("incr", |number, _| Operation::IncrBy { key: key(number + (1 << 32)), by: 1 }),
            ("zadd", |number, _| Operation::ZAdd {
                key: "leaderboard".into(),
                flags: Default::default(),
                members: [(Score::new((number * 7919 % 1_000_003) as f64).unwrap(), key(number))].into(),
            }),
        ];
        for (name, make) in kinds {
            let commands: Vec<Command> = (0..100_000)
                .map(|_| Command::new(Stamp::from_nanos(1), make(random.below(keys), &value)))
                .collect();
            commands.iter().for_each(|command| drop(store.borrow_mut().apply(command)));
            let mut next = commands.iter().cycle();
            group.bench_function(BenchmarkId::from_parameter(name), |b| {
                b.iter(|| black_box(store.borrow_mut().apply(next.next().unwrap())));
            });
        }
        group.bench_function("200 sets, prepared", |b| {
            let commands: Vec<Command> = (0..100_000).map(|_| set(random.below(keys), &value)).collect();
            let mut batches = commands.chunks(200).cycle();
            b.iter(|| {
                let batch = batches.next().unwrap();
                store.borrow().prepare(batch.iter());
                batch.iter().for_each(|command| drop(store.borrow_mut().apply(command)));
            });
        });
        group.bench_function("set behind a view", |b| {
            let commands: Vec<Command> = (0..1000).map(|_| set(random.below(keys), &value)).collect();
            b.iter_batched(
                || store.borrow().export(),
                |view| {
                    commands.iter().for_each(|command| drop(store.borrow_mut().apply(command)));
                    view
                },
                BatchSize::PerIteration,
            );
        });
        group.finish();
    }
}

criterion_group!(benches, commands);
criterion_main!(benches);
