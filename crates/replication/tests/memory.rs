//! What a witness takes of memory, by an allocator that counts (T15 of `specs/curp.md` 8).

#![allow(unsafe_code, reason = "an allocator that counts is one")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use isochrone_core::command::{Operation, Response};
use isochrone_core::{
    Blob, ClientId, Command, CommandId, Identity, Instant, Outbox, Process, ProcessId, Random, Span, Stamp,
    wire,
};
use isochrone_replication::Tuning;
use isochrone_replication::curp::primary::{Message, Parameters, WitnessServer};
use isochrone_replication::message::{self as common, Entry};
use isochrone_replication::order::Reign;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// Sound: it does what the system's does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

type Server = WitnessServer<Command, Response>;
type Spoken = <Server as Process>::Message;

/// A hash of 200 pairs of three bytes and two: 1.6 KB as encoded, and each pair in two allocations once decoded.
fn request(sequence: u64, hash: u64) -> Spoken {
    let pairs = (0..200u32).map(|at| (Blob::from(format!("{at:03}")), Blob::from("xy"))).collect();
    let operation = Operation::HSet { key: Blob::from(format!("{sequence}")), pairs };
    let id = CommandId { client: ClientId { process: ProcessId::from_u64(1), incarnation: 1 }, sequence };
    let command = Command::new(Stamp::ZERO, operation);
    let requests = vec![(vec![hash], Entry::Command { id, below: 1, command })];
    common::Message::Order { epoch: 0, message: Message::Records { reign: Reign(1, 1), requests } }
}

#[test]
fn a_full_witness_of_many_small_parts_stays_within_its_memory() {
    let me = ProcessId::from_u64(9);
    let parameters = Parameters::for_rtt(Span::from_millis(1));
    let shape = parameters.witness;
    let mut server = Server::open(Identity { process: me, incarnation: 1 }, &parameters);
    let mut outbox = Outbox::<Server>::new(me, Random::seeded(1));
    let mut random = Random::seeded(2);
    let mut hear = |server: &mut Server, message: Spoken| {
        // As it comes from the network.
        let message = wire::decode(&wire::encode(&message)).unwrap();
        server.receive(ProcessId::from_u64(1), message, outbox.input(Instant::ZERO, Stamp::ZERO));
        outbox.drain().for_each(drop);
    };
    hear(&mut server, common::Message::Order { epoch: 0, message: Message::Start { reign: Reign(1, 1) } });
    let before = HELD.load(Relaxed);
    let mut sequence = 0;
    while server.holds(1).unwrap() < shape.slots {
        sequence += 1;
        hear(&mut server, request(sequence, random.below(u64::MAX)));
    }
    let held = HELD.load(Relaxed) - before;
    // Each with what it has beside its bytes: its slot, and a count of its copies.
    let bound = shape.slots * (shape.slot_bytes + 128);
    assert!(held <= bound, "{held} bytes are held, {bound} are allowed");
    assert!(
        held >= shape.slots * 1_400,
        "{held} bytes: the requests are not as large as they were meant to be"
    );
}
