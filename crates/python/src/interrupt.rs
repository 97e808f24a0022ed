//! Work that Ctrl-C ends.

use crate::data::unroomy;
use isochrone_learn::{NoRoom, Stop, can_hold_thread};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How long a signal waits at most until it is heard.
const LOOK: Duration = Duration::from_millis(50);

/// Does work without the interpreter, on a thread of its own: the interpreter runs handlers of signals only on the thread that
/// called, which looks for them meanwhile. What a handler raises ends the work, and is the result.
pub(crate) fn interruptible<R: Send>(
    py: Python<'_>,
    stop: &Stop,
    work: impl FnOnce() -> PyResult<R> + Send,
) -> PyResult<R> {
    // For the thread itself: one that is started in the last memory that there is has none to work with.
    NoRoom::check("learning", 0, 2).map_err(unroomy)?;
    let (done, doing) = channel();
    let work = move || {
        // Whoever waits is there until the thread ends.
        let _ = done.send(work());
    };
    py.detach(move || {
        std::thread::scope(|scope| {
            let worker = std::thread::Builder::new().spawn_scoped(scope, work).map_err(threadless)?;
            let mut raised = None;
            let result = loop {
                match doing.recv_timeout(LOOK) {
                    Ok(result) => break Some(result),
                    Err(RecvTimeoutError::Disconnected) => break None,
                    Err(RecvTimeoutError::Timeout) if raised.is_some() => {}
                    Err(RecvTimeoutError::Timeout) => {
                        if let Err(error) = Python::attach(|py| py.check_signals()) {
                            raised = Some(error);
                            stop.ask();
                        }
                    }
                }
            };
            let joined = worker.join();
            match (raised, result) {
                (Some(error), _) => Err(error),
                (None, Some(result)) => result,
                // It panicked before it had a result.
                (None, None) => resume_unwind(joined.err().unwrap_or_else(|| Box::new("no result"))),
            }
        })
    })
}

/// Does work without the interpreter that nothing can end, such as waiting for the other end of a pipe. What a handler of a signal
/// raises is the result; the work is left to its thread then, and what comes of it is dropped.
pub(crate) fn abandonable<R: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> R + Send + 'static,
) -> PyResult<R> {
    if !can_hold_thread() {
        return Err(PyMemoryError::new_err(
            "there is no memory for a thread to read with: its stack and its first steps want 8 MiB",
        ));
    }
    py.detach(move || {
        let (done, doing) = channel();
        let worker = std::thread::Builder::new().spawn(move || {
            // Whoever waits may have been interrupted.
            let _ = done.send(work());
        });
        let worker = worker.map_err(threadless)?;
        loop {
            match doing.recv_timeout(LOOK) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals())?,
                // It panicked before it had a result.
                Err(RecvTimeoutError::Disconnected) => {
                    resume_unwind(worker.join().err().unwrap_or_else(|| Box::new("no result")))
                }
            }
        }
    })
}

/// The system's refusal of a thread, with what it is about.
fn threadless(cause: io::Error) -> PyErr {
    let told =
        format!("the system gives no thread to work with (see ulimit -u and the container's limit): {cause}");
    io::Error::new(cause.kind(), told).into()
}
