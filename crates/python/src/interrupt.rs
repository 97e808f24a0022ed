//! Work that Ctrl-C ends.

use isochrone_learn::Stop;
use pyo3::prelude::*;
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
    let (done, doing) = channel();
    let work = move || {
        // Whoever waits is there until the thread ends.
        let _ = done.send(work());
    };
    py.detach(move || {
        std::thread::scope(|scope| {
            let worker = std::thread::Builder::new().spawn_scoped(scope, work)?;
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
