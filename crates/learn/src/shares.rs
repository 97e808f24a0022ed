//! Work that is parted among threads.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// Does `work` for each part, and answers what it made of them, in their order. There are as many threads as parts, the one
/// that calls among them; where the system gives fewer, those that there are do the work of the others too.
pub(crate) fn each_share<P: Send, R: Send>(
    parts: impl IntoIterator<Item = P>,
    work: impl Fn(P) -> R + Sync,
) -> Vec<R> {
    let parts: Vec<P> = parts.into_iter().collect();
    let mut done: Vec<Option<R>> = parts.iter().map(|_| None).collect();
    let others = parts.len().saturating_sub(1);
    let waiting: Vec<_> =
        parts.into_iter().zip(&mut done).map(|(part, done)| Waiting { part, done }).collect();
    on_threads(others, waiting, &|Waiting { part, done }| *done = Some(work(part)));
    // Each was done, or this was not reached.
    done.into_iter().flatten().collect()
}

/// A part, and where to put what is made of it.
struct Waiting<'d, P, R> {
    part: P,
    done: &'d mut Option<R>,
}

/// Works through `waiting` with up to so many other threads.
fn on_threads<W: Send>(others: usize, waiting: Vec<W>, work: &(dyn Fn(W) + Sync)) {
    let waiting = Mutex::new(waiting.into_iter());
    let worker = || {
        loop {
            // Who panics does so in `work`, and the list is as it should be.
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            match next {
                Some(next) => work(next),
                None => return,
            }
        }
    };
    thread::scope(|scope| {
        // What the system refuses once it is not asked for again.
        let others: Vec<_> =
            (0..others).map_while(|_| thread::Builder::new().spawn_scoped(scope, worker).ok()).collect();
        worker();
        for other in others {
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// Whether this process is one that the system gives no threads. Where it is not, it has run the test of that name, which calls
/// this, in one that is.
#[cfg(test)]
pub(crate) fn threads_are_refused(test: &str) -> bool {
    const CHILD: &str = "ISOCHRONE_TEST_REFUSED";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args([test, "--exact", "--test-threads=1"]);
    let told = child.env(CHILD, "1").env("RUST_MIN_STACK", (1_u64 << 50).to_string()).output().unwrap();
    let out = String::from_utf8_lossy(&told.stdout);
    assert!(told.status.success() && out.contains("1 passed"), "{out}");
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::tests::samples;
    use crate::plan::Plan;
    use crate::read::{Options, read};
    use crate::tasks::{Linear, Loss};
    use std::num::NonZeroUsize;

    #[test]
    fn what_was_made_is_in_the_order_of_the_parts() {
        assert_eq!(
            each_share(0..100, |part| part * part),
            (0..100).map(|part| part * part).collect::<Vec<_>>()
        );
        assert_eq!(each_share(Vec::<u8>::new(), |part| part), Vec::<u8>::new());
    }

    #[test]
    fn parts_are_done_at_the_same_time() {
        let all = std::sync::Barrier::new(4);
        assert_eq!(each_share(0..4, |_| all.wait()).len(), 4);
    }

    #[test]
    fn who_calls_does_all_where_there_is_no_thread() {
        let done = Mutex::new(Vec::new());
        on_threads(0, (0..10).collect(), &|part: u32| {
            done.lock().unwrap().push((thread::current().id(), part))
        });
        let expected: Vec<_> = (0..10).map(|part| (thread::current().id(), part)).collect();
        assert_eq!(done.into_inner().unwrap(), expected);
    }

    #[test]
    fn what_threads_share_is_done_without_them() {
        if !threads_are_refused("shares::tests::what_threads_share_is_done_without_them") {
            return;
        }
        assert!(thread::Builder::new().spawn(|| ()).is_err());
        let (task, data) = (Linear::new(Loss::Hinge), samples(60_000, 2_000, 20, 1));
        let (one, four) = (NonZeroUsize::MIN, NonZeroUsize::new(4).unwrap());
        assert_eq!(data.degrees_by(4), data.degrees());
        let plan = |threads| Plan::in_blocks(&task, &data, threads).unwrap();
        assert_eq!(plan(four), plan(one));
        let lines: String = (0..100_000).map(|row| format!("1 {}:1\n", row % 7 + 1)).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines).unwrap();
        assert_eq!(read(file.path(), Options::default()).unwrap().len(), 100_000);
    }

    #[test]
    #[should_panic(expected = "part 2")]
    fn a_panic_is_that_of_the_part() {
        each_share(0..4, |part| assert!(part != 2, "part {part}"));
    }
}
