//! The thread of a node's shard, from what it reads at the start to its end.

use super::StartError;
use super::recovery::{Recovered, Recovery, recover};
use crate::reactor::{Failure, Reactor};
use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};

/// A thread that has brought its processes back, and waits for the loop that it is to run them in. Dropped, it ends.
///
/// It reads them itself since the system's allocator gives each thread a part of memory of its own, in which what is freed is used
/// again by that thread alone: data that another thread has read would leave behind, when it is overwritten, as much memory as it
/// had, for as long as the node runs.
pub(super) struct ShardThread {
    begin: Option<SyncSender<Reactor>>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl ShardThread {
    /// Starts it, and waits until the processes are back. `ended` is set when its loop has ended.
    ///
    /// # Errors
    /// Those of [`recover`], or the system gave no thread. It has ended then.
    pub(super) fn start(
        name: &str,
        recovery: Recovery,
        ended: Arc<OnceLock<()>>,
    ) -> Result<(ShardThread, Recovered), StartError> {
        let (begin, begins) = sync_channel::<Reactor>(1);
        let (tell, told) = sync_channel(1);
        let thread = Builder::new().name(format!("shard-{name}")).spawn(move || {
            // Whoever starts the node waits to be told.
            let processes = match recover(&recovery) {
                Ok((processes, recovered)) => {
                    let _ = tell.send(Ok(recovered));
                    processes
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return Ok(());
                }
            };
            drop(recovery);
            // The start may have failed for something else.
            let Ok(mut reactor) = begins.recv() else { return Ok(()) };
            for process in processes {
                reactor.shard.start(process);
            }
            let result = reactor.run();
            if let Err(error) = &result {
                tracing::error!(%error, "the node has stopped");
            }
            let _ = ended.set(());
            result
        })?;
        let mut this = ShardThread { begin: Some(begin), thread: Some(thread) };
        match told.recv() {
            Ok(told) => Ok((this, told?)),
            // It has told nothing: it panicked, and goes on as one of this thread.
            Err(_) => match this.thread.take().map(JoinHandle::join) {
                Some(Err(panic)) => resume_unwind(panic),
                _ => Err(io::Error::other("the node's thread has ended").into()),
            },
        }
    }

    /// Has it start the processes, and run them in this loop.
    pub(super) fn run(mut self, reactor: Reactor) -> Option<JoinHandle<Result<(), Failure>>> {
        if let Some(begin) = self.begin.take() {
            // A thread that is gone is found so by whoever holds it.
            let _ = begin.send(reactor);
        }
        self.thread.take()
    }
}

impl Drop for ShardThread {
    fn drop(&mut self) {
        self.begin = None;
        if let Some(thread) = self.thread.take() {
            // It has run nothing, so it has nothing to say.
            let _ = thread.join();
        }
    }
}
