//! The client's half of the Redis protocol: words out, frames in.

use anyhow::{anyhow, bail};
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Appends one command to `out`.
pub(crate) fn push_command<W: AsRef<[u8]>>(words: &[W], out: &mut Vec<u8>) {
    push_head(b'*', words.len(), out);
    for word in words {
        let word = word.as_ref();
        push_head(b'$', word.len(), out);
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn push_head(kind: u8, length: usize, out: &mut Vec<u8>) {
    use std::io::Write;
    out.push(kind);
    // Writing to a vector cannot fail.
    let _ = write!(out, "{length}\r\n");
}

/// Bytes received and not yet understood.
#[derive(Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
}

impl Inbox {
    /// Takes in what arrived.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken > 1 << 16 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole reply, if there is one.
    ///
    /// # Errors
    /// When the bytes are no RESP2 reply: the endpoint speaks something else.
    pub(crate) fn next(&mut self) -> Result<Option<OwnedFrame>, String> {
        match decode(&self.bytes[self.taken..]) {
            Ok(Some((frame, length))) => {
                self.taken += length;
                Ok(Some(frame))
            }
            Ok(None) => Ok(None),
            // A record of TLS, an alert or a handshake: its version follows.
            Err(_) if matches!(self.bytes[self.taken..], [0x15 | 0x16, 0x03, ..]) => Err(
                "the endpoint speaks TLS, and a bench of commands plain text only; name a port without it"
                    .to_owned(),
            ),
            Err(error) => Err(format!("the endpoint's reply is not in the Redis protocol: {error}")),
        }
    }
}

/// What the system calls too many open files.
const EMFILE: i32 = 24;

/// Why there is no connection, and what helps.
pub(crate) fn unreached(address: SocketAddr, cause: &io::Error) -> anyhow::Error {
    let right = match cause.raw_os_error() {
        Some(EMFILE) => "raise the limit of open files (ulimit -n), or ask for fewer --clients",
        _ => {
            "start what is to be measured, e.g. `isochrone up`, or name where it listens: --endpoint HOST:PORT"
        }
    };
    anyhow!("cannot connect to {address}: {cause}\n  {right}")
}

/// Sends commands over one connection of its own, many under way, and waits until all are answered.
///
/// # Errors
/// When the endpoint cannot be reached or refuses one of them.
pub(crate) fn load<W: AsRef<[u8]>>(
    address: SocketAddr,
    auth: Option<&(String, String)>,
    commands: impl Iterator<Item = Vec<W>>,
) -> anyhow::Result<()> {
    const UNDER_WAY: usize = 8;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))
        .map_err(|cause| unreached(address, &cause))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut inbox = Inbox::default();
    let mut waiting = 0usize;
    let mut out = Vec::new();
    let mut scratch = vec![0; 1 << 16];
    let mut wait = |stream: &mut TcpStream, waiting: &mut usize, most: usize| -> anyhow::Result<()> {
        while *waiting > most {
            match inbox.next().map_err(|error| anyhow::anyhow!("{address}: {error}"))? {
                Some(OwnedFrame::Error(text)) => bail!("{address} answers: {text}"),
                Some(_) => *waiting -= 1,
                None => match stream.read(&mut scratch)? {
                    0 => bail!("{address} closed the connection"),
                    count => inbox.extend(&scratch[..count]),
                },
            }
        }
        Ok(())
    };
    if let Some((user, password)) = auth {
        push_command(&["AUTH", user, password], &mut out);
        waiting += 1;
    }
    // Whoever speaks something else says so while nothing is on its way that would have the connection reset.
    push_command(&["PING"], &mut out);
    waiting += 1;
    stream.write_all(&out)?;
    out.clear();
    wait(&mut stream, &mut waiting, 0)?;
    for command in commands {
        push_command(&command, &mut out);
        waiting += 1;
        stream.write_all(&out)?;
        out.clear();
        wait(&mut stream, &mut waiting, UNDER_WAY)?;
    }
    stream.write_all(&out)?;
    wait(&mut stream, &mut waiting, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_arrive_in_any_pieces() {
        let text = b"+OK\r\n$-1\r\n:42\r\n*2\r\n$1\r\na\r\n-ERR no\r\n";
        for size in 1..text.len() {
            let mut inbox = Inbox::default();
            let mut frames = Vec::new();
            for piece in text.chunks(size) {
                inbox.extend(piece);
                while let Some(frame) = inbox.next().expect("well formed") {
                    frames.push(frame);
                }
            }
            assert_eq!(frames.len(), 4, "pieces of {size}");
            assert_eq!(frames[2], OwnedFrame::Integer(42));
        }
    }

    #[test]
    fn another_protocol_is_told_apart() {
        for (reply, told) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], "not in the Redis protocol"),
            (&[0x15, 0x03, 0x03, 0, 2, 2, 10], "speaks TLS"),
        ] {
            let mut inbox = Inbox::default();
            inbox.extend(reply);
            let error = inbox.next().expect_err("no RESP");
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        push_command(&["GET", "k"], &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }
}
