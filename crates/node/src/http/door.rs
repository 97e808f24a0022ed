//! The connections of whoever asks over HTTP: so many, and none for ever.

use super::{MOVE_TIME, ORDER_TIME};
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Connections at once; more are closed. Each is a file that a journal or a client cannot have, and nobody who
/// watches a node or gives it orders needs many.
pub(crate) const CONNECTIONS: usize = 256;
/// How long one may say nothing at first, and take to say what it asks for.
const GRACE: Duration = Duration::from_secs(10);
/// How long one may say nothing when it has asked: an answer may take that long.
const IDLE: Duration = MOVE_TIME.saturating_add(ORDER_TIME);
/// How long nobody is taken in after that went wrong: there may be no file left.
const REST: Duration = Duration::from_millis(100);

/// Takes connections in.
pub(super) struct Door {
    listener: TcpListener,
    places: Arc<Semaphore>,
    grace: Duration,
}

impl Door {
    pub(super) fn new(listener: TcpListener) -> Door {
        Door { listener, places: Arc::new(Semaphore::new(CONNECTIONS)), grace: GRACE }
    }
}

impl Listener for Door {
    type Io = Seat;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Seat, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
                        let (grace, head) = (self.grace, Head::Awaited);
                        let silence = Box::pin(tokio::time::sleep(grace));
                        return (Seat { stream, silence, grace, head, _permit: permit }, address);
                    }
                    tracing::debug!(%address, most = CONNECTIONS, "an HTTP client is one too many");
                }
                Err(error) => {
                    tracing::warn!(%error, "an HTTP client could not be accepted");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// How far the head of a request has come.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Head {
    Awaited,
    /// In a line, which is empty so far or not.
    Line {
        empty: bool,
    },
    /// An empty line has ended it.
    Whole,
}

impl Head {
    fn read(self, bytes: &[u8]) -> Head {
        bytes.iter().fold(self, |head, byte| match (head, byte) {
            (Head::Whole, _) | (Head::Line { empty: true }, b'\n') => Head::Whole,
            (Head::Line { .. }, b'\n') => Head::Line { empty: true },
            // Also empty lines before it.
            (_, b'\r') | (Head::Awaited, b'\n') => head,
            _ => Head::Line { empty: false },
        })
    }
}

/// One connection, which ends where it says nothing for long.
pub(super) struct Seat {
    stream: TcpStream,
    silence: Pin<Box<Sleep>>,
    grace: Duration,
    head: Head,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for Seat {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let seat = self.get_mut();
        let before = into.filled().len();
        match Pin::new(&mut seat.stream).poll_read(context, into) {
            Poll::Ready(read) => {
                let head = seat.head.read(&into.filled()[before..]);
                // However few bytes come at a time.
                let time = match (seat.head, head) {
                    (Head::Awaited | Head::Line { .. }, Head::Whole) => Some(IDLE),
                    (Head::Awaited, Head::Line { .. }) => Some(seat.grace),
                    _ => None,
                };
                if let Some(time) = time {
                    seat.silence.as_mut().reset(Instant::now() + time);
                }
                seat.head = head;
                Poll::Ready(read)
            }
            Poll::Pending => {
                seat.silence.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl AsyncWrite for Seat {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let seat = self.get_mut();
        // Whoever is told to go on has asked already.
        if !bytes.starts_with(b"HTTP/1.1 100") {
            seat.head = Head::Awaited;
        }
        Pin::new(&mut seat.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// Who asks.
#[derive(Copy, Clone, Debug)]
pub(super) struct Caller(pub(super) SocketAddr);

impl Connected<IncomingStream<'_, Door>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Caller {
        Caller(*stream.remote_addr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[test]
    fn who_does_not_say_what_it_asks_for_is_waited_for_briefly() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let grace = Duration::from_millis(20);
            let mut door = Door { grace, ..Door::new(TcpListener::bind("127.0.0.1:0").await.unwrap()) };
            let mut client = TcpStream::connect(door.local_addr().unwrap()).await.unwrap();
            let mut seat = door.accept().await.0;
            let mut buffer = [0; 64];
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let mut read = tokio::time::timeout(IDLE, seat.read(&mut buffer)).await;
            assert!(matches!(read, Ok(Ok(18))));
            read = tokio::time::timeout(4 * grace, seat.read(&mut buffer)).await;
            assert!(read.is_err(), "it waits for an answer");
            seat.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            let mut read = async || tokio::time::timeout(IDLE, seat.read(&mut [0; 64])).await.unwrap();
            for part in [&b"GET / HTTP/1.1\r\n"[..], b"A: b\r\n"] {
                client.write_all(part).await.unwrap();
                assert_eq!(read().await.unwrap(), part.len());
            }
            assert_eq!(read().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn one_too_many_is_closed_until_another_has_left() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut door = Door::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
            let address = door.local_addr().unwrap();
            let (mut clients, mut seats) = (Vec::new(), Vec::new());
            for _ in 0..CONNECTIONS {
                clients.push(TcpStream::connect(address).await.unwrap());
                seats.push(door.accept().await.0);
            }
            let mut late = TcpStream::connect(address).await.unwrap();
            tokio::select! {
                _ = door.accept() => panic!("it was taken in"),
                read = late.read_u8() => assert!(read.is_err(), "it is closed"),
            }
            seats.pop();
            let _next = TcpStream::connect(address).await.unwrap();
            door.accept().await;
        });
    }
}
