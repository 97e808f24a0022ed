//! A thread with a tokio runtime of its own, for what is served beside the shard.

use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};
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
    ) -> io::Result<Background> {
        socket.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(socket)?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            runtime.block_on(async {
                // The start of a node has refused any other clock.
                if SystemTime::now() >= UNIX_EPOCH {
                    read_clock().await;
                }
                serve(listener, stopped).await;
            });
            runtime.shutdown_background();
        })?;
        Ok(Background { stop: Some(stop), thread: Some(thread) })
    }
}

/// Has hyper read the clock. It keeps what it says in `date`, for each thread, until the clock shows a later second; but where it
/// makes that for the first time while the clock stands before 1970 it panics, and so at every connection.
async fn read_clock() {
    let service = |_: Request<Incoming>| ready(Ok::<_, Infallible>(Response::new(String::new())));
    // Nobody hears how it ends, which it does at once.
    let _ = http1::Builder::new().serve_connection(Ended, service_fn(service)).await;
}

/// A connection whose other end has closed it.
struct Ended;

impl Read for Ended {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Write for Ended {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
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
