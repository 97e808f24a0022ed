//! How many requests a second one core packs and records with a witness that holds them in memory, collected 50 at a time:
//! `cargo run --release -p isochrone-replication --example witness_speed`.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use isochrone_core::command::{Condition, Expiry, Operation};
use isochrone_core::{Blob, ClientId, Command, CommandId, KeyspaceId, ProcessId, Stamp, key_hash};
use isochrone_replication::curp::witness::{Packed, Shape, Witness};
use isochrone_replication::message::Entry;
use std::time::Instant;

const BATCH: u64 = 50;
const ROUNDS: u64 = 100_000;

fn main() {
    let mut witness = Witness::new(Shape::default());
    let client = ClientId { process: ProcessId::from_u64(1), incarnation: 1 };
    let (key, value) = (Blob::from(vec![7; 16]), Blob::from(vec![7; 100]));
    let (mut taken, mut pairs, mut room) = (0u64, Vec::new(), Vec::new());
    let begun = Instant::now();
    for round in 0..ROUNDS {
        for number in round * BATCH..(round + 1) * BATCH {
            let hash = key_hash(KeyspaceId(1), &number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            let id = CommandId { client, sequence: number + 1 };
            let (condition, expiry) = (Condition::Always, Expiry::Clear);
            let set =
                Operation::Set { key: key.clone(), value: value.clone(), condition, expiry, get: false };
            let command = Command::new(Stamp::ZERO, set);
            let packed = Packed::new(&Entry::Command { id, below: 1, command }, &mut room);
            let bytes = packed.bytes();
            taken += u64::from(witness.record(&[hash], id, packed, bytes).is_ok());
            pairs.push((hash, id));
        }
        witness.gc(pairs.drain(..));
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{:.2} million records a second ({taken} of {} taken)",
        (ROUNDS * BATCH) as f64 / seconds / 1e6,
        ROUNDS * BATCH
    );
}
