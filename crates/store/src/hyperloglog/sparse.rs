//! Registers in runs that hold the same, one or two bytes a run: `00llllll` are up to 64 registers of zero, `01llllll
//! llllllll` up to 16384, `1vvvvvll` up to 4 of a value up to 32. Lengths and values are kept less one.
//!
//! Where a run is split and which are joined again is that of Redis, so that the same commands make the same bytes. That
//! includes what is not joined: neighbours that a look at five runs does not come to.

use super::{HEADER, REGISTERS};
use isochrone_core::command::Refusal;
use std::borrow::Cow;

/// All registers, of zero.
pub(super) const EMPTY: [u8; 2] = [0x7f, 0xff];
/// A string may not grow beyond this, bytes, and stay sparse; the default of `hll-sparse-max-bytes`.
const LENGTH_MAX: usize = 3000;
/// The greatest value of a run.
const VALUE_MAX: u8 = 32;
/// The longest run of a value.
const VALUES: usize = 4;
/// The longest run of zeros that takes one byte.
const ZEROS: usize = 64;
/// How many runs are looked at, to be joined, after a change.
const LOOKS: usize = 5;

/// Registers that hold the same.
#[derive(Copy, Clone)]
struct Run {
    value: u8,
    /// How many registers.
    length: usize,
    /// How many bytes it takes.
    size: usize,
}

/// A run: where it stands, and the number of its first register.
#[derive(Copy, Clone)]
pub(super) struct Place {
    at: usize,
    first: usize,
}

impl Place {
    /// Of the first run.
    pub(super) const FIRST: Place = Place { at: HEADER, first: 0 };
}

/// The run at this place; `None` where there is none, or half of one.
fn run(bytes: &[u8], at: usize) -> Option<Run> {
    let first = *bytes.get(at)?;
    let low = usize::from(first & 63);
    Some(match first >> 6 {
        0 => Run { value: 0, length: low + 1, size: 1 },
        1 => Run { value: 0, length: (low << 8 | usize::from(*bytes.get(at + 1)?)) + 1, size: 2 },
        _ => Run { value: (first >> 2 & 31) + 1, length: low % VALUES + 1, size: 1 },
    })
}

/// Writes a run of a value, or of zeros, behind others; none where it has no length.
fn write(runs: &mut Vec<u8>, value: u8, length: usize) {
    let Some(less) = length.checked_sub(1) else { return };
    match value {
        0 if length <= ZEROS => runs.push(less as u8),
        0 => runs.extend([0x40 | (less >> 8) as u8, less as u8]),
        _ => runs.push(0x80 | (value - 1) << 2 | less as u8),
    }
}

/// Names all runs of a string: the first register's number, how many there are, what each of them holds.
pub(super) fn visit(bytes: &[u8], mut visit: impl FnMut(usize, usize, u8)) -> Result<(), Refusal> {
    let (mut at, mut first) = (HEADER, 0);
    while at < bytes.len() {
        let run = run(bytes, at).filter(|run| first + run.length <= REGISTERS);
        let run = run.ok_or(Refusal::BadHyperLogLog)?;
        visit(first, run.length, run.value);
        (at, first) = (at + run.size, first + run.length);
    }
    if first == REGISTERS { Ok(()) } else { Err(Refusal::BadHyperLogLog) }
}

/// Raises a register to at least this rank; whether that changed it, `None` where it cannot stay sparse.
///
/// Runs behind the register are not looked at: damage there is told when it is met, as in Redis. `near` is where a search
/// begins, and then the run before the one that was found, so that registers in their order are found at once.
pub(super) fn raise(
    bytes: &mut Cow<'_, [u8]>,
    near: &mut Place,
    register: usize,
    rank: u8,
) -> Result<Option<bool>, Refusal> {
    if rank > VALUE_MAX {
        return Ok(None);
    }
    // The run before the one that is wanted is wanted, too.
    if run(bytes, near.at).is_none_or(|run| register < near.first + run.length) {
        *near = Place::FIRST;
    }
    let Place { mut at, mut first } = *near;
    let held = loop {
        let run = run(bytes, at).ok_or(Refusal::BadHyperLogLog)?;
        if register < first + run.length {
            break run;
        }
        *near = Place { at, first };
        (at, first) = (at + run.size, first + run.length);
    };
    if held.value >= rank {
        return Ok(Some(false));
    }
    let mut runs = Vec::with_capacity(5);
    write(&mut runs, held.value, register - first);
    write(&mut runs, rank, 1);
    write(&mut runs, held.value, first + held.length - 1 - register);
    if runs.len() > held.size && bytes.len() + runs.len() - held.size > LENGTH_MAX {
        return Ok(None);
    }
    let bytes = bytes.to_mut();
    bytes.splice(at..at + held.size, runs);
    join(bytes, near.at);
    Ok(Some(true))
}

/// Joins runs of one value, from this one on.
fn join(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..LOOKS {
        let Some(one) = run(bytes, at) else { return };
        match run(bytes, at + 1) {
            Some(next) if one.value > 0 && next.value == one.value && one.length + next.length <= VALUES => {
                bytes[at] += next.length as u8;
                bytes.remove(at + 1);
            }
            _ => at += one.size,
        }
    }
}
