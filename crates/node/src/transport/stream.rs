//! A TCP connection with or without TLS, never blocking.

use isochrone_core::Span;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

/// One end of a connection. Bytes to be written are queued inside and go out as the socket takes them.
pub struct Stream {
    socket: TcpStream,
    tls: Option<Box<Connection>>,
    out: Vec<u8>,
    /// How much of `out` is written.
    written: usize,
    /// The last read took everything: the socket will say when there is more.
    drained: bool,
    /// The other end has closed, so that reading must go on to the end.
    closed: bool,
}

/// How connections that come in on a listener are spoken with.
#[derive(Clone)]
pub enum Acceptor {
    /// As they are: on loopback only.
    Plain,
    /// With TLS.
    Tls(Arc<ServerConfig>),
}

/// What a read gave.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Got {
    /// So many bytes lie in the scratch buffer; there may be more.
    Bytes(usize),
    /// Nothing now; the socket will say when.
    Later,
    /// The other end has closed.
    End,
}

impl Stream {
    /// The end of a connection that was accepted.
    ///
    /// # Errors
    /// TLS cannot begin.
    pub fn accepted(socket: TcpStream, acceptor: &Acceptor) -> io::Result<Stream> {
        let tls = match acceptor {
            Acceptor::Plain => None,
            Acceptor::Tls(config) => {
                let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                Some(Box::new(Connection::Server(connection)))
            }
        };
        Ok(Stream::new(socket, tls))
    }

    /// Begins to dial. Whether it succeeds shows when the stream becomes writable.
    ///
    /// # Errors
    /// The system refuses at once, or TLS cannot begin.
    pub fn dial(
        address: SocketAddr,
        tls: Option<(&Arc<ClientConfig>, ServerName<'static>)>,
    ) -> io::Result<Stream> {
        let tls = match tls {
            None => None,
            Some((config, name)) => {
                let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                Some(Box::new(Connection::Client(connection)))
            }
        };
        Ok(Stream::new(TcpStream::connect(address)?, tls))
    }

    fn new(socket: TcpStream, mut tls: Option<Box<Connection>>) -> Stream {
        // Batches are made by the shard; waiting for more in the kernel would only add delay.
        let _ = socket.set_nodelay(true);
        if let Some(tls) = &mut tls {
            // The owner bounds what it queues.
            tls.set_buffer_limit(None);
        }
        Stream { socket, tls, out: Vec::new(), written: 0, drained: false, closed: false }
    }

    /// Has the system look for the other end after so much silence, and break the connection where nobody answers for as long
    /// again: who vanished would be here for ever. On Linux also where something was sent that is not acknowledged, or that the
    /// other end has no room for, for twice `silence`: keep-alive does not look while anything is under way.
    pub fn keep_alive(&self, silence: Span) {
        let silence = std::time::Duration::from_nanos(silence.as_nanos());
        let asks = rustix::net::sockopt::set_tcp_keepidle(&self.socket, silence)
            .and_then(|()| rustix::net::sockopt::set_tcp_keepintvl(&self.socket, silence / 3))
            .and_then(|()| rustix::net::sockopt::set_tcp_keepcnt(&self.socket, 3))
            .and_then(|()| rustix::net::sockopt::set_socket_keepalive(&self.socket, true));
        #[cfg(target_os = "linux")]
        let asks = asks.and_then(|()| {
            let most = u32::try_from(2 * silence.as_millis()).unwrap_or(u32::MAX);
            rustix::net::sockopt::set_tcp_user_timeout(&self.socket, most)
        });
        if let Err(error) = asks {
            tracing::debug!(%error, "no keepalive");
        }
    }

    /// Has the system hold no more than so many bytes that it has not sent yet, where it can: what comes after them waits in the
    /// queue of this stream's owner, who may change its order.
    pub fn keep_unsent(&self, bytes: usize) {
        #[cfg(target_os = "linux")]
        if let Err(error) = socket2::SockRef::from(&self.socket).set_tcp_notsent_lowat(bytes as u32) {
            tracing::debug!(%error, "no bound of unsent bytes");
        }
        #[cfg(not(target_os = "linux"))]
        let _ = bytes;
    }

    /// Registers the socket for both directions.
    ///
    /// # Errors
    /// The system refuses.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Undoes [`Stream::register`].
    pub fn deregister(&mut self, registry: &Registry) {
        // An error says that it was not registered.
        let _ = registry.deregister(&mut self.socket);
    }

    /// Whether dialling has succeeded: `None` while it is under way.
    ///
    /// # Errors
    /// Why it has not.
    pub fn connected(&self) -> io::Result<bool> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        match self.socket.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Where the other end is, while it is there.
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()
    }

    /// The certificates that the other end has shown, its own first.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        self.tls.as_ref().and_then(|tls| tls.peer_certificates()).unwrap_or_default()
    }

    /// Whether TLS is spoken and its handshake still under way.
    pub fn handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether TLS is spoken.
    pub fn encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// The socket has said that there is something to read; `closed` where it said that the end is near.
    pub fn wake(&mut self, closed: bool) {
        self.drained = false;
        self.closed |= closed;
    }

    /// Whether the socket has said that the other end has closed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Reads what is there into `scratch`. A read that does not fill it has taken everything, so that the
    /// next one answers [`Got::Later`] without asking the system, until [`Stream::wake`].
    ///
    /// # Errors
    /// The connection is broken, or what came is no TLS.
    pub fn read(&mut self, scratch: &mut [u8]) -> io::Result<Got> {
        let Some(tls) = &mut self.tls else {
            if self.drained {
                return Ok(Got::Later);
            }
            loop {
                match self.socket.read(scratch) {
                    Ok(0) => return Ok(Got::End),
                    Ok(bytes) => {
                        self.drained = bytes < scratch.len() && !self.closed;
                        return Ok(Got::Bytes(bytes));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Got::Later),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        };
        loop {
            match tls.reader().read(scratch) {
                Ok(0) => return Ok(Got::End),
                Ok(bytes) => return Ok(Got::Bytes(bytes)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Closed without the farewell that TLS asks for; frames and commands have their own ends.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Got::End),
                Err(error) => return Err(error),
            }
            match tls.read_tls(&mut self.socket) {
                Ok(0) => return Ok(Got::End),
                Ok(_) => {
                    if let Err(error) = tls.process_new_packets() {
                        // The alert that says why is worth one try.
                        let _ = tls.write_tls(&mut self.socket);
                        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Got::Later),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The queue of bytes to be written; [`Stream::flush`] sends them.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Bytes not yet taken by the socket.
    pub fn unsent(&self) -> usize {
        self.out.len() - self.written
    }

    /// Whether nothing waits to be sent, in TLS neither.
    pub fn flushed(&self) -> bool {
        self.unsent() == 0 && self.tls.as_ref().is_none_or(|tls| !tls.wants_write())
    }

    /// Sends as much as the socket takes; how many bytes of the queue went.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self) -> io::Result<usize> {
        let before = self.unsent();
        match &mut self.tls {
            None => {
                while self.written < self.out.len() {
                    match self.socket.write(&self.out[self.written..]) {
                        Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                        Ok(bytes) => self.written += bytes,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Some(tls) => loop {
                // At most this much plaintext is turned into records at a time, so that what the peer does not
                // take stays in `out`, where it is counted.
                const PIECE: usize = 64 << 10;
                if !tls.is_handshaking() && !tls.wants_write() && self.written < self.out.len() {
                    let end = self.out.len().min(self.written + PIECE);
                    self.written += tls.writer().write(&self.out[self.written..end])?;
                }
                if !tls.wants_write() {
                    break;
                }
                match tls.write_tls(&mut self.socket) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            },
        }
        let sent = before - self.unsent();
        self.compact();
        Ok(sent)
    }

    /// Says farewell where TLS has one, and sends what it can.
    pub fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        let _ = self.flush();
    }

    fn compact(&mut self) {
        /// A queue that has grown beyond this gives its memory back once empty.
        const KEEP: usize = 256 << 10;
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
            if self.out.capacity() > KEEP {
                self.out = Vec::new();
            }
        } else if self.written > self.out.len() / 2 {
            self.out.drain(..self.written);
            self.written = 0;
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::net::sockopt;

    #[test]
    fn who_vanished_is_given_up_after_the_same_time_whether_something_was_sent_or_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = Stream::accepted(socket, &Acceptor::Plain).unwrap();
        stream.keep_alive(Span::from_secs(300));
        assert!(sockopt::socket_keepalive(&stream.socket).unwrap());
        let asked =
            sockopt::tcp_keepintvl(&stream.socket).unwrap() * sockopt::tcp_keepcnt(&stream.socket).unwrap();
        let silent = sockopt::tcp_keepidle(&stream.socket).unwrap() + asked;
        assert_eq!(silent, std::time::Duration::from_secs(600));
        let unacknowledged = sockopt::tcp_user_timeout(&stream.socket).unwrap();
        assert_eq!(u128::from(unacknowledged), silent.as_millis());
    }
}
