//! A thread with a tokio runtime of its own, for what is served beside the shard.

use std::thread::JoinHandle;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The thread of a server; dropped, it ends.
pub(crate) struct Background {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Begins to serve on this socket. `serve` ends soon after its receiver is told to, by a value or by the end of the
    /// sender; what it has spawned then ends with it.
    pub(crate) fn start<F: Future<Output = ()>>(
        name: &str,
        socket: std::net::TcpListener,
        serve: impl FnOnce(TcpListener, oneshot::Receiver<()>) -> F + Send + 'static,
    ) -> std::io::Result<Background> {
        socket.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(socket)?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            runtime.block_on(serve(listener, stopped));
            runtime.shutdown_background();
        })?;
        Ok(Background { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
