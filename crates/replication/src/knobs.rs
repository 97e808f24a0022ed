//! Knobs that several protocols have, read alike.

use crate::curp::witness;
use isochrone_core::Span;
use isochrone_core::deployment::ParameterReader;

/// The shortest time that a knob may be set to.
pub(crate) const LEAST: Span = Span::from_millis(1);
/// The longest.
pub(crate) const MOST: Span = Span::from_secs(600);

/// The key of the time between two signs of life.
const HEARTBEAT: &str = "heartbeat";

/// A silence that makes a suspect: longer than the time between two signs of life.
pub(crate) fn silence(
    reader: &mut ParameterReader<'_>,
    key: &'static str,
    silence: &mut Span,
    heartbeat: Span,
) {
    *silence = reader.span(key, *silence, LEAST, MOST);
    if *silence <= heartbeat && !reader.gives(key) && reader.gives(HEARTBEAT) {
        let wrong = format!("is not below {key}, which is {silence} unless given");
        let right = format!("use a heartbeat below {silence}, or give {key} more than {heartbeat}");
        reader.reject(HEARTBEAT, &wrong, &right);
    } else if *silence <= heartbeat {
        let right = format!("use more than the heartbeat, {heartbeat}");
        reader.reject(key, "is not above the heartbeat", &right);
    }
}

/// How long a lease lasts: not above the election timeout.
pub(crate) fn lease_length(reader: &mut ParameterReader<'_>, length: &mut Span, election: Span) {
    *length = reader.span("lease_length", (*length).min(election), LEAST, MOST);
    if *length > election {
        let right = format!("use at most the election timeout, {election}");
        reader.reject("lease_length", "is above the election timeout", &right);
    }
}

/// What a witness holds at most.
const WITNESS_BYTES_MAX: usize = 64 << 20;

/// How large a witness is.
pub(crate) fn witness(reader: &mut ParameterReader<'_>, shape: &mut witness::Shape) {
    let ways = reader.integer("witness_ways", shape.ways as u64, 1, 8) as usize;
    if ways.is_power_of_two() {
        shape.ways = ways;
    } else {
        reader.reject("witness_ways", "is not a number of slots that sets have", "use 1, 2, 4 or 8");
    }
    let slots = reader.integer("witness_slots", shape.slots as u64, 8, 1 << 20) as usize;
    shape.slots = slots;
    if !slots.is_multiple_of(shape.ways) {
        reader.reject("witness_slots", "is not a whole number of sets", "use a multiple of witness_ways");
        shape.slots = slots.next_multiple_of(shape.ways);
    }
    shape.slot_bytes = reader.bytes("witness_slot_bytes", shape.slot_bytes as u64, 128, 1 << 20) as usize;
    // All of it goes as one in a recovery, which links between nodes have room for.
    if shape.slots.saturating_mul(shape.slot_bytes) > WITNESS_BYTES_MAX {
        reader.reject(
            "witness_slot_bytes",
            "times witness_slots is more than 64MiB",
            "use smaller slots, or fewer of them",
        );
        shape.slot_bytes = WITNESS_BYTES_MAX / shape.slots;
    }
}

/// Commands that share a place at most.
pub(crate) fn batch_commands(reader: &mut ParameterReader<'_>, commands: &mut usize) {
    count(reader, "batch_commands", commands, 1, 1 << 20);
}

/// The same, and bytes of them.
pub(crate) fn batch(reader: &mut ParameterReader<'_>, commands: &mut usize, bytes: &mut usize) {
    batch_commands(reader, commands);
    *bytes = reader.bytes("batch_bytes", *bytes as u64, 1, 64 << 20) as usize;
}

/// Bytes proposed and not decided at most.
pub(crate) fn window_bytes(reader: &mut ParameterReader<'_>, bytes: &mut usize) {
    *bytes = reader.bytes("window_bytes", *bytes as u64, 1, 64 << 20) as usize;
}

/// Commands that may wait for a place, and bytes of them.
pub(crate) fn queue(reader: &mut ParameterReader<'_>, commands: &mut usize, bytes: &mut usize) {
    count(reader, "queue_commands", commands, 1, 1 << 24);
    *bytes = reader.bytes("queue_bytes", *bytes as u64, 1, 4 << 30) as usize;
}

/// Bytes of what is kept for replicas that lag, unless told: a second's worth of small commands at full speed. What
/// is kept is memory that holds no data, and who lags more takes in a snapshot.
pub(crate) const KEEP_BYTES: usize = 16 << 20;

/// What is kept for replicas that lag, under the name that the protocol has for it, and bytes of it.
pub(crate) fn keep(
    reader: &mut ParameterReader<'_>,
    key: &'static str,
    values: &mut usize,
    bytes: &mut usize,
) {
    count(reader, key, values, 0, 1 << 24);
    *bytes = reader.bytes("keep_bytes", *bytes as u64, 0, 4 << 30) as usize;
}

/// A number of things, at least `least` and at most `most`.
fn count(reader: &mut ParameterReader<'_>, key: &'static str, knob: &mut usize, least: u64, most: u64) {
    *knob = reader.integer(key, *knob as u64, least, most) as usize;
}
