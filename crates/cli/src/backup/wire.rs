//! A connection to a node, on which values may be longer than memory: they are passed on piece by piece.

use crate::Usage;
use crate::bench::wire::push_command;
use crate::output::clean_line;
use anyhow::{anyhow, bail};
use isochrone_core::deployment::Address;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long nothing may come, or go: a node answers within 15 s, or a little more than the time limit of a keyspace.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest line of a reply, bytes; errors are a few hundred.
const LINE_MAX: u64 = 1 << 16;
/// The longest reply that is taken as a whole, bytes: nodes answer at most 120 MiB where there are several elements.
const REPLY_MAX: u64 = 128 << 20;
/// What an element of a reply counts beside its bytes.
const ELEMENT: u64 = 32;
/// Lists in lists are not deeper.
const DEPTH_MAX: u32 = 4;
/// What is said goes out in pieces of about so many bytes.
const PIECE: usize = 1 << 16;

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// How a reply begins.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Head {
    /// A line.
    Text(String),
    /// An error, without control characters.
    Error(String),
    /// A number.
    Number(i64),
    /// So many bytes follow; or there is nothing.
    Bulk(Option<u64>),
    /// So many replies follow; or there is nothing.
    List(Option<u64>),
}

/// A whole reply.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// A line.
    Text(String),
    /// An error, without control characters.
    Error(String),
    /// A number.
    Number(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Several.
    List(Vec<Reply>),
    /// Nothing.
    Nothing,
}

/// A connection.
pub(super) struct Connection {
    /// Where it goes, for errors.
    at: String,
    stream: BufReader<Stream>,
    /// Said, and not sent yet.
    out: Vec<u8>,
}

impl Connection {
    /// Connects, with TLS where an authority is given.
    pub(super) fn open(endpoint: &Address, ca: Option<&Path>) -> anyhow::Result<Connection> {
        let at = endpoint.to_string();
        let tls = ca.map(|ca| client(endpoint, ca)).transpose()?;
        let addresses = (endpoint.host(), endpoint.port()).to_socket_addrs().map_err(|cause| {
            Usage(format!("{at}: the name does not resolve: {cause}\n  name a node's host"))
        })?;
        let mut failure = io::Error::from(ErrorKind::AddrNotAvailable);
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(socket) => {
                    let ready = socket
                        .set_nodelay(true)
                        .and_then(|()| socket.set_read_timeout(Some(SILENCE)))
                        .and_then(|()| socket.set_write_timeout(Some(SILENCE)));
                    ready.map_err(|cause| broke(&at, &cause))?;
                    let stream = match tls {
                        Some(tls) => Stream::Tls(Box::new(StreamOwned::new(tls, socket))),
                        None => Stream::Plain(socket),
                    };
                    let stream = BufReader::with_capacity(PIECE, stream);
                    return Ok(Connection { at, stream, out: Vec::new() });
                }
                Err(cause) => failure = cause,
            }
        }
        bail!("{at}: cannot connect: {failure}\n  name the Redis port of a node that runs")
    }

    /// Where it goes.
    pub(super) fn at(&self) -> &str {
        &self.at
    }

    /// Says a command; it leaves with others.
    pub(super) fn push(&mut self, words: &[&[u8]]) {
        push_command(words, &mut self.out);
    }

    /// Says a part of a command.
    pub(super) fn say(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.out.extend_from_slice(bytes);
        if self.out.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Sends what was said.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(&self.out).and_then(|()| stream.flush()).map_err(|cause| broke(&self.at, &cause))?;
        self.out.clear();
        Ok(())
    }

    /// Asks one thing, and waits for the reply.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> anyhow::Result<Reply> {
        self.push(words);
        self.flush()?;
        self.answer()
    }

    /// The next reply, whole.
    pub(super) fn answer(&mut self) -> anyhow::Result<Reply> {
        let mut left = REPLY_MAX;
        self.reply(&mut left, 0)
    }

    /// How the next reply begins.
    pub(super) fn head(&mut self) -> anyhow::Result<Head> {
        let line = self.line()?;
        let mut letters = line.chars();
        let kind = letters.next();
        let rest = letters.as_str();
        let number = rest.parse::<i64>().ok();
        let head = match kind {
            Some('+') => Some(Head::Text(clean_line(rest))),
            Some('-') => Some(Head::Error(clean_line(rest))),
            Some(':') => number.map(Head::Number),
            Some('$') => number.map(|length| Head::Bulk(u64::try_from(length).ok())),
            Some('*') => number.map(|count| Head::List(u64::try_from(count).ok())),
            _ => None,
        };
        head.ok_or_else(|| self.strange())
    }

    /// Passes on bytes that were announced.
    pub(super) fn bytes(
        &mut self,
        length: u64,
        mut each: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut left = length;
        while left > 0 {
            let piece = match self.stream.fill_buf() {
                Err(cause) if cause.kind() == ErrorKind::Interrupted => continue,
                Err(cause) => return Err(broke(&self.at, &cause)),
                Ok([]) => return Err(closed(&self.at)),
                Ok(piece) => piece,
            };
            let size = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (piece, _) = piece.split_at(size);
            each(piece)?;
            self.stream.consume(size);
            left -= size as u64;
        }
        let mut end = [0; 2];
        self.stream.read_exact(&mut end).map_err(|cause| broke(&self.at, &cause))?;
        if end == *b"\r\n" { Ok(()) } else { Err(self.strange()) }
    }

    /// What this answers is not as it should be.
    pub(super) fn strange(&self) -> anyhow::Error {
        anyhow!("{}: its answer is none that a node gives\n  name the Redis port of a node", self.at)
    }

    fn reply(&mut self, left: &mut u64, depth: u32) -> anyhow::Result<Reply> {
        Ok(match self.head()? {
            Head::Text(text) => Reply::Text(text),
            Head::Error(text) => Reply::Error(text),
            Head::Number(number) => Reply::Number(number),
            Head::Bulk(None) | Head::List(None) => Reply::Nothing,
            Head::Bulk(Some(length)) => {
                self.spend(left, length)?;
                let mut bytes = Vec::new();
                self.bytes(length, |piece| {
                    bytes.extend_from_slice(piece);
                    Ok(())
                })?;
                Reply::Bulk(bytes)
            }
            Head::List(Some(_)) if depth >= DEPTH_MAX => return Err(self.strange()),
            Head::List(Some(count)) => {
                let mut replies = Vec::new();
                for _ in 0..count {
                    self.spend(left, ELEMENT)?;
                    replies.push(self.reply(left, depth + 1)?);
                }
                Reply::List(replies)
            }
        })
    }

    fn spend(&self, left: &mut u64, bytes: u64) -> anyhow::Result<()> {
        match left.checked_sub(bytes) {
            Some(less) => {
                *left = less;
                Ok(())
            }
            None => bail!("{}: an answer of more than {} MiB", self.at, REPLY_MAX >> 20),
        }
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = Vec::new();
        let read = Read::by_ref(&mut self.stream).take(LINE_MAX).read_until(b'\n', &mut line);
        read.map_err(|cause| broke(&self.at, &cause))?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None if line.is_empty() => Err(closed(&self.at)),
            // A record of TLS, an alert or a handshake: its version follows.
            None if matches!(line.as_slice(), [0x15 | 0x16, 3, ..]) => {
                let wrong = format!("{}: it speaks TLS", self.at);
                Err(Usage(format!("{wrong}\n  name the authority of its certificate: --ca ca.pem")).into())
            }
            None => Err(self.strange()),
        }
    }
}

fn closed(at: &str) -> anyhow::Error {
    anyhow!("{at}: the connection was closed; does the node still run?")
}

fn broke(at: &str, cause: &io::Error) -> anyhow::Error {
    match cause.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow!("{at}: nothing has come or gone for {} s", SILENCE.as_secs())
        }
        ErrorKind::UnexpectedEof => closed(at),
        ErrorKind::InvalidData if of_another_name(cause) => {
            let host = at.rsplit_once(':').map_or(at, |(host, _)| host).trim_matches(['[', ']']);
            anyhow!(
                "{at}: {cause}\n  name a host that it is made for, or make one for this host: isochrone cert FILE --out DIR --host NODE={host}"
            )
        }
        ErrorKind::InvalidData => anyhow!(
            "{at}: {cause}\n  without TLS at this port leave out --ca; else name the ca.pem that has signed this node's certificate"
        ),
        _ => anyhow!("{at}: {cause}"),
    }
}

/// Whether the authority has signed what the node shows, and for other hosts than the one that was named.
fn of_another_name(cause: &io::Error) -> bool {
    let error = cause.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(
        error,
        Some(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        ))
    )
}

/// The client's half of TLS with a node whose certificate this authority has signed.
fn client(endpoint: &Address, ca: &Path) -> Result<ClientConnection, Usage> {
    let unfit = |cause: String| {
        let wrong = format!("--ca {}: {cause}", ca.display());
        Usage(format!(
            "{wrong}\n  name the certificate of the nodes' authority, as `isochrone cert` writes it: ca.pem"
        ))
    };
    let found = CertificateDer::pem_file_iter(ca)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|cause| unfit(cause.to_string()))?;
    if found.is_empty() {
        return Err(unfit("there is no certificate in it".to_owned()));
    }
    let mut roots = RootCertStore::empty();
    for authority in found {
        roots.add(authority).map_err(|cause| unfit(cause.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|cause| unfit(cause.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(endpoint.host().to_owned())
        .map_err(|_| Usage(format!("{endpoint}: no certificate has such a name\n  name a node's host")))?;
    ClientConnection::new(Arc::new(config), name).map_err(|cause| unfit(cause.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_for_other_hosts_is_told_apart_from_that_of_another_authority() {
        let told = |at: &str, error| {
            let cause = io::Error::new(ErrorKind::InvalidData, rustls::Error::InvalidCertificate(error));
            broke(at, &cause).to_string()
        };
        for (at, host) in [("redis.example:6379", "redis.example"), ("[2001:db8::1]:6379", "2001:db8::1")] {
            let text = told(at, CertificateError::NotValidForName);
            assert!(text.starts_with(&format!("{at}: ")) && !text.contains("--ca"), "{text}");
            assert!(text.ends_with(&format!("isochrone cert FILE --out DIR --host NODE={host}")), "{text}");
        }
        let text = told("redis.example:6379", CertificateError::UnknownIssuer);
        assert!(text.contains("leave out --ca; else name the ca.pem") && !text.contains("--host"), "{text}");
    }
}
