//! A Redis client of forty lines, so that a fault of the program's own cannot hide one of the server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One connection.
pub struct Client(BufReader<TcpStream>);

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Text(String),
    Number(i64),
    Nothing,
    List(Vec<Reply>),
    Error(String),
}

impl Client {
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let socket = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        socket.set_nodelay(true)?;
        Ok(Client(BufReader::new(socket)))
    }

    /// To a node that may be down: that refuses at once, and who asked again at once would keep a processor from the others.
    pub fn reconnect(address: SocketAddr) -> Option<Client> {
        let connected = Client::connect(address).ok();
        if connected.is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        connected
    }

    /// Sends a command and waits for its reply.
    pub fn ask(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(words)?;
        self.reply()
    }

    /// Sends all of these, and then waits for their replies.
    pub fn pipeline(&mut self, commands: &[&[&str]]) -> io::Result<Vec<Reply>> {
        commands.iter().try_for_each(|words| self.send(words))?;
        commands.iter().map(|_| self.reply()).collect()
    }

    /// All keys that a scan of these options finds, in order; `between` is told how many pages there were before the next one
    /// is asked for.
    pub fn scan(&mut self, options: &[&str], mut between: impl FnMut(usize)) -> Vec<String> {
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        for pages in 1.. {
            let words = [&["SCAN", &cursor][..], options].concat();
            let page = match self.ask(&words).expect("a reply") {
                Reply::List(page) => page,
                other => panic!("{other:?}"),
            };
            let [Reply::Text(next), Reply::List(items)] = &page[..] else { panic!("{page:?}") };
            found.extend(items.iter().map(|item| match item {
                Reply::Text(key) => key.clone(),
                other => panic!("{other:?}"),
            }));
            cursor = next.clone();
            if cursor == "0" {
                break;
            }
            assert!(pages < 1_000, "it does not end");
            between(pages);
        }
        found.sort();
        found
    }

    fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(bytes.as_bytes())
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || rest.parse::<i64>().map_err(io::Error::other);
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(number()?),
            "$" if number()? < 0 => Reply::Nothing,
            "$" => {
                let mut bytes = vec![0; number()? as usize + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Text(String::from_utf8(bytes).map_err(io::Error::other)?)
            }
            "*" if number()? < 0 => Reply::Nothing,
            "*" => Reply::List((0..number()?).map(|_| self.reply()).collect::<io::Result<_>>()?),
            _ => return Err(io::Error::other(format!("not RESP2: {line:?}"))),
        })
    }
}

/// What is answered to this.
pub fn ask(client: &mut Client, words: &[&str]) -> Reply {
    client.ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}
