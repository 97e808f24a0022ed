//! Every interleaving of a few samples that hand their moves on through the ring, under every order of memory that the language
//! allows, and mistakes planted to show that they would be seen. What runs is the very code that threads run.

use super::{Lag, Memory, Ring};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

memory!(AtomicU64, u64; AtomicU32, u32 => Mutex<()>);

/// The model checker's memory, and mistakes where there are constants.
macro_rules! checked {
    ($name:ident $(, $constant:ident: $kind:ty = $value:expr)*) => {
        #[derive(Debug)]
        struct $name;
        impl Memory for $name {
            type Word = AtomicU64;
            type Count = AtomicU32;
            type Gate = Mutex<()>;
            $(const $constant: $kind = $value;)*
        }
    };
}

checked!(Checked);
checked!(ToldUnreleased, TOLD: Ordering = Ordering::Relaxed);
checked!(SummedUnreleased, SUMMED: Ordering = Ordering::Relaxed);
checked!(TooShort, RING: u64 = 1);

const START: f64 = 3.0;

/// By how much a sample moves the intercept that it sees: something that tells all orders apart.
fn moved(place: u64, seen: f64) -> f64 {
    (seen * 5.0 + place as f64 + 2.0) % 1009.0
}

/// What each of so many samples sees, and the intercept after all of them: by the definition.
fn defined(block: u64, samples: u64) -> (Vec<f64>, f64) {
    // After each number of blocks.
    let (mut after, mut seen, mut value) = (vec![START], Vec::new(), START);
    for place in 0..samples {
        seen.push(after[(place / block).saturating_sub(1) as usize]);
        value -= moved(place, seen[place as usize]);
        if (place + 1) % block == 0 {
            after.push(value);
        }
    }
    (seen, value)
}

/// What a thread does that has every so manyth sample; what each of them sees.
fn work<M: Memory>(ring: &Ring<M>, first: u64, threads: u64, samples: u64) -> Vec<(u64, f64)> {
    let (mut lag, mut seen) = (Lag::unknown(), Vec::new());
    for place in (first..samples).step_by(threads as usize) {
        let wait = |_, _| {
            loom::thread::yield_now();
            Ok::<_, Infallible>(())
        };
        let Ok(value) = ring.known(place, &mut lag, wait);
        ring.record(place, moved(place, value), &mut lag);
        seen.push((place, value));
    }
    ring.tell(&mut lag);
    seen
}

fn explore<M: Memory + 'static>(block: u64, threads: u64, samples: u64, preemptions: usize)
where
    Ring<M>: Send + Sync,
{
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    // Who waits looks again and again.
    model.max_branches = 20_000;
    model.check(move || {
        let ring = Arc::new(Ring::<M>::new(START, block));
        let others: Vec<_> = (1..threads)
            .map(|thread| {
                let ring = ring.clone();
                loom::thread::spawn(move || work(&ring, thread, threads, samples))
            })
            .collect();
        let mut seen = work(&ring, 0, threads, samples);
        seen.extend(others.into_iter().flat_map(|other| other.join().unwrap()));
        seen.sort_unstable_by_key(|(place, _)| *place);
        let seen: Vec<f64> = seen.into_iter().map(|(_, value)| value).collect();
        assert_eq!((seen, ring.settled(samples)), defined(block, samples));
    });
}

fn catches<M: Memory + 'static>() -> bool
where
    Ring<M>: Send + Sync,
{
    super::super::explored::caught(|| explore::<M>(1, 2, 6, 1))
}

/// Places of the ring are used again from the fifth block on. Larger cases take minutes.
#[test]
fn no_interleaving_of_moves_of_the_intercept_gives_anything_else() {
    explore::<Checked>(1, 2, 6, 1);
    explore::<Checked>(1, 2, 5, 2);
    explore::<Checked>(1, 3, 4, 1);
    explore::<Checked>(2, 2, 12, 1);
}

#[test]
fn planted_mistakes_in_the_ring_are_caught() {
    assert!(catches::<ToldUnreleased>());
    assert!(catches::<SummedUnreleased>());
    assert!(catches::<TooShort>());
}
