//! What this machine measures by itself, without a simulated one: the store of a witness, skew, the disk and the kernel.

use anyhow::Context;
use isochrone_core::{Blob, ClientId, CommandId, Identity, ProcessId, Random};
use isochrone_replication::curp::witness::{Packed, Shape, Witness};
use isochrone_workload::Chooser;
use std::collections::{BTreeMap, VecDeque};
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// Percent of the accesses to a million objects whose key was among the last hundred accessed.
pub(super) fn hot_share(exponent: f64) -> f64 {
    const ACCESSES: usize = 200_000;
    const RECENT: usize = 100;
    let records = 1_000_000;
    let mut chooser = Chooser::skewed(records, exponent);
    let mut random = Random::seeded(1);
    let (mut recent, mut counts, mut hot) = (VecDeque::new(), BTreeMap::<u64, u32>::new(), 0u32);
    for _ in 0..ACCESSES {
        let key = chooser.draw(records, &mut random);
        hot += u32::from(counts.contains_key(&key));
        *counts.entry(key).or_default() += 1;
        recent.push_back(key);
        if recent.len() > RECENT
            && let Some(old) = recent.pop_front()
            && let Some(count) = counts.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                counts.remove(&old);
            }
        }
    }
    100.0 * f64::from(hot) / ACCESSES as f64
}

/// How many random keys each of `runs` empty witnesses of 4,096 slots takes before a set is full, ascending.
pub(super) fn overflows(ways: usize, runs: usize) -> Vec<f64> {
    let mut random = Random::seeded(ways as u64);
    let shape = Shape { ways, ..Shape::default() };
    let mut counts: Vec<f64> = (0..runs)
        .map(|_| {
            let mut witness = Witness::new(shape);
            let taken = (0..).take_while(|sequence| {
                witness.record(&[random.below(u64::MAX)], command(*sequence), (), 0).is_ok()
            });
            taken.count() as f64
        })
        .collect();
    counts.sort_by(f64::total_cmp);
    counts
}

/// The mean of that by arithmetic. Keys that come as a Poisson process of rate 1 fill the sets independently of each other, and as
/// many have come at a time as that time, in the mean: so the integral of the chance that no set has overflowed yet is the
/// number of the first key that is refused.
pub(super) fn expected_overflow(slots: usize, ways: usize) -> f64 {
    let sets = (slots / ways) as f64;
    let none_full = |time: f64| {
        let mean = time / sets;
        let (mut term, mut sum) = (1.0, 1.0);
        for count in 1..=ways {
            term *= mean / count as f64;
            sum += term;
        }
        ((-mean).exp() * sum).powf(sets)
    };
    // Steps of a half are far finer than anything changes.
    (0..2 * slots).map(|at| none_full(f64::from(at as u32) / 2.0 + 0.25) / 2.0).sum::<f64>() - 1.0
}

fn command(sequence: u64) -> CommandId {
    let client: ClientId = Identity { process: ProcessId::from_u64(1), incarnation: 1 }.into();
    CommandId { client, sequence }
}

/// Records a second of 100 bytes that the store alone packs and takes, on one core, with a collection of the oldest fifty every fifty.
pub(super) fn records_a_second() -> f64 {
    const RECORDS: u64 = 2_000_000;
    const EVERY: u64 = 50;
    let mut witness = Witness::new(Shape::default());
    let mut random = Random::seeded(7);
    let mut held = Vec::with_capacity(EVERY as usize);
    let (request, mut room) = (Blob::from(vec![7; 100]), Vec::new());
    let begin = Instant::now();
    for sequence in 0..RECORDS {
        let hash = random.below(u64::MAX);
        // A set that happens to be full refuses, as it would in service.
        let _ = witness.record(&[hash], command(sequence), Packed::new(&request, &mut room), request.len());
        held.push((hash, command(sequence)));
        if held.len() as u64 == EVERY {
            witness.gc(held.drain(..));
        }
    }
    RECORDS as f64 / begin.elapsed().as_secs_f64()
}

/// Megabytes of a witness whose slots are all full of requests as large as they may be.
pub(super) fn megabytes_of_a_witness() -> f64 {
    let shape = Shape::default();
    // What a slot points to has the request, and a count of those that point to it.
    let requests = shape.slots * (shape.slot_bytes + size_of::<[usize; 2]>());
    (Witness::<Packed<()>>::new(shape).table_bytes() + requests) as f64 / 1e6
}

/// Microseconds that 4 KiB more of a file take to the disk, the median of many.
pub(super) fn sync_micros() -> anyhow::Result<f64> {
    const TIMES: usize = 101;
    let path = std::env::temp_dir().join(format!("isochrone-sync-{}", std::process::id()));
    let found = (|| {
        let mut file = OpenOptions::new().create_new(true).append(true).open(&path)?;
        let mut took = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let begin = Instant::now();
            file.write_all(&[7; 4_096])?;
            file.sync_data()?;
            took.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        took.sort_by(f64::total_cmp);
        Ok::<_, std::io::Error>(took[TIMES / 2])
    })();
    // It is in the way of nobody if it stays.
    let _ = std::fs::remove_file(&path);
    found.with_context(|| format!("cannot sync {}", path.display()))
}

/// Microseconds of one `send` or `recv` of 100 bytes on a connection to this machine itself.
pub(super) fn syscall_micros() -> anyhow::Result<f64> {
    const TIMES: u32 = 20_000;
    let ends = || {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        near.set_nodelay(true)?;
        Ok::<_, std::io::Error>((near, listener.accept()?.0))
    };
    let (mut near, mut far) = ends().context("cannot connect to this machine itself")?;
    let mut message = [7; 100];
    let begin = Instant::now();
    for _ in 0..TIMES {
        near.write_all(&message)
            .and_then(|()| far.read_exact(&mut message))
            .context("the connection broke")?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(2 * TIMES))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random keys before the first full set, mean of many runs (`specs/curp.md` 6.6).
    #[test]
    fn more_ways_put_an_overflow_off() {
        for (ways, stated) in [(1, 80.0), (2, 272.0), (4, 689.0), (8, 1_303.0)] {
            let expected = expected_overflow(4_096, ways);
            assert!((expected / stated - 1.0_f64).abs() < 0.01, "{ways} ways: {expected} by arithmetic");
            let counts = overflows(ways, 300);
            let mean = counts.iter().sum::<f64>() / counts.len() as f64;
            assert!((mean / expected - 1.0).abs() < 0.12, "{ways} ways: {mean}");
        }
    }
}
