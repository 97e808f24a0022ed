//! The wish to end in order: SIGINT, SIGTERM, SIGHUP.

use anyhow::Context;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Hears signals. Only one can exist in a process.
pub(crate) struct Stop(Receiver<()>);

impl Stop {
    /// From now on signals are heard here, and end nothing by themselves.
    pub(crate) fn listen() -> anyhow::Result<Stop> {
        let (heard, stop) = sync_channel(1);
        // A second signal while the first is not seen yet says nothing new.
        let tell = move || {
            let _ = heard.try_send(());
        };
        ctrlc::set_handler(tell).context("signals cannot be heard")?;
        Ok(Stop(stop))
    }

    /// Whether one has come, waiting at most this long.
    pub(crate) fn within(&self, at_most: Duration) -> bool {
        match self.0.recv_timeout(at_most) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            // The handler lives as long as the process.
            Err(RecvTimeoutError::Disconnected) => true,
        }
    }
}
