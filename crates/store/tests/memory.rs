//! What `MEMORY USAGE` says of keys against what they were allocated.

#![allow(unsafe_code, reason = "an allocator that counts is one")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use isochrone_core::command::{
    Append, Condition, Expiry, NewId, Operation, Response, Score, Side, ZAddFlags,
};
use isochrone_core::{Blob, Command, Stamp, StateMachine};
use isochrone_store::Store;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's, whose own share of each allocation is reckoned in.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

fn with_its_own(size: usize) -> usize {
    (size + 8).next_multiple_of(16).max(32)
}

// Sound: it does what the system's does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(with_its_own(layout.size()), Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(with_its_own(layout.size()), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn run(store: &mut Store, operation: Operation) -> Response {
    store.apply(&Command::new(Stamp::from_nanos(1), operation))
}

/// A blob that nobody else holds.
fn blob(text: &str, at: usize, length: usize) -> Blob {
    let mut text = format!("{text}{at}");
    text.push_str(&"x".repeat(length.saturating_sub(text.len())));
    Blob::from(text)
}

/// How an element of this number and length comes into a value.
type Add = fn(Blob, usize, usize) -> Operation;

#[test]
fn what_is_said_of_a_key_is_near_what_it_was_allocated() {
    let kinds: [(&str, Add); 6] = [
        ("string", |key, at, length| Operation::Set {
            key,
            value: blob("", at, length),
            condition: Condition::Always,
            expiry: Expiry::At(Stamp::from_nanos(1 << 60 | at as u64)),
            get: false,
        }),
        ("hash", |key, at, length| Operation::HSet {
            key,
            pairs: [(blob("f", at, length / 2), blob("v", at, length))].into(),
        }),
        ("set", |key, at, length| Operation::SAdd { key, members: [blob("", at, length)].into() }),
        ("list", |key, at, length| Operation::Push {
            key,
            values: [blob("", at, length)].into(),
            side: Side::Right,
            only_if_exists: false,
        }),
        ("zset", |key, at, length| Operation::ZAdd {
            key,
            flags: ZAddFlags::default(),
            members: [(Score::new(at as f64).unwrap(), blob("", at, length))].into(),
        }),
        ("stream", |key, at, length| {
            let fields = vec![(blob("f", at, 8), blob("v", at, length))];
            let append = Append { id: NewId::Next, fields, only_if_exists: false, trimming: None };
            Operation::XAdd { key, append: Arc::new(append) }
        }),
    ];
    let mut wrong = String::new();
    for (kind, add) in kinds {
        for (keys, size, length) in
            [(3000, 1, 5), (2000, 1, 100), (500, 10, 40), (300, 32, 12), (20, 1000, 10), (3, 20_000, 50)]
        {
            let mut store = Store::default();
            let before = HELD.load(Relaxed);
            for number in 0..keys {
                for at in 0..size {
                    run(&mut store, add(blob("key:", number, 12), at, length));
                }
            }
            let held = HELD.load(Relaxed) - before;
            let told = (0..keys).map(|number| {
                let key = blob("key:", number, 12);
                let Response::Integer(bytes) = run(&mut store, Operation::Weight { key, samples: 5 }) else {
                    panic!()
                };
                bytes as usize
            });
            let ratio = told.sum::<usize>() as f64 / held as f64;
            println!(
                "{kind}: {keys} of {size} elements of {length} bytes: {held} bytes, {ratio:.2} of that told"
            );
            if !(0.8..1.2).contains(&ratio) {
                wrong.push_str(&format!("{kind}, {keys} of {size} elements of {length}: {ratio:.2}\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert_eq!(run(&mut Store::default(), Operation::Weight { key: "k".into(), samples: 0 }), Response::Nil);
}
