//! The gateway as a conversation: bytes in, requests and bytes out.

mod conversations;
mod events;
mod footprints;
mod garbage;
#[allow(dead_code)] // The comparison with a real server lies there too.
#[path = "../../tests/node/grammar.rs"]
mod grammar;
mod limits;
mod monitor;
mod operations;
mod page;
mod payloads;
mod redis_texts;
mod told;
mod waiting;
mod wire;

use super::Connection;
use super::acl::Users;
use crate::gateway::{
    Ask, ClientView, Context, Counters, Full, KeyspaceView, Login, NodeView, Outcome, Request, Session,
};
use crate::hub::{Hub, Manner};
use crate::limits::Limits;
use expect_test::Expect;
use isochrone_core::command::{Kind, Operation, Refusal, Response, Score, Side};
use isochrone_core::{Instant, KeyspaceId, Random, Span, Stamp};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// One connection in a world that stands still but for what a test says.
pub(super) struct World {
    connection: Connection,
    now: Instant,
    stamp: Stamp,
    random: Random,
    limits: Limits,
    node: NodeView,
    keyspaces: Vec<KeyspaceView>,
    login: Login,
    pub(super) clients: BTreeMap<u64, ClientView>,
    counters: Counters,
    pub(super) hub: Hub,
    unsent: usize,
    /// The keyspaces have not answered anything for long when something is asked.
    silent: bool,
    out: Vec<u8>,
    requests: Vec<Request>,
}

/// Lends a world's parts to its connection.
macro_rules! with_context {
    ($world:ident, $context:ident => $call:expr) => {{
        let $context = &mut Context {
            now: $world.now,
            stamp: $world.stamp,
            connection: 7,
            unsent: $world.unsent,
            random: &mut $world.random,
            limits: &$world.limits,
            node: &$world.node,
            keyspaces: &$world.keyspaces,
            login: $world.login,
            clients: &mut $world.clients,
            counters: &mut $world.counters,
            hub: &mut $world.hub,
        };
        $call
    }};
}

impl World {
    pub(super) fn new(login: Login) -> World {
        World::with_limits(login, Limits::default())
    }

    /// One whose port is that of the keyspace of this index.
    fn beginning_in(index: u32) -> World {
        let mut world = World::new(Login::Open);
        world.clients.get_mut(&7).unwrap().index = index;
        world.connection = with_context!(world, context => Connection::new(context));
        world
    }

    fn with_limits(login: Login, limits: Limits) -> World {
        let keyspace = |id: u16, name: &str, index: u32| KeyspaceView {
            transactional: index == 3,
            leader: Some("Oregon".to_owned()),
            ..KeyspaceView::new(KeyspaceId(id), name, index, "multipaxos", 5)
        };
        let address: SocketAddr = "127.0.0.1:50000".parse().unwrap();
        let client = ClientView {
            address,
            local: "127.0.0.1:7001".parse().unwrap(),
            since: Instant::ZERO,
            active: Instant::ZERO,
            name: String::new(),
            library: Default::default(),
            user: "default".to_owned(),
            index: 0,
            protocol: 2,
            last_command: "",
            transaction: (None, 0),
            waits: false,
            no_evict: false,
            no_touch: false,
            traffic: (0, 0),
        };
        let other = ClientView { address: "127.0.0.1:50001".parse().unwrap(), ..client.clone() };
        let mut world = World {
            connection: Connection::new(&Context {
                now: Instant::ZERO,
                stamp: Stamp::ZERO,
                connection: 7,
                unsent: 0,
                random: &mut Random::seeded(1),
                limits: &limits,
                node: &NodeView::default(),
                keyspaces: &[],
                login,
                clients: &mut BTreeMap::new(),
                counters: &mut Counters::default(),
                hub: &mut Hub::default(),
            }),
            now: Instant::ZERO + Span::from_secs(100),
            stamp: Stamp::from_nanos(1_700_000_000_000_000_000),
            random: Random::seeded(1),
            limits,
            node: NodeView {
                version: "0.1.0",
                cluster: "test".to_owned(),
                node: "va1".to_owned(),
                region: "Virginia".to_owned(),
                port: 7001,
                process_id: 42,
                run_id: "f".repeat(40),
                uptime_seconds: 90_000,
                peers_connected: (4, 4),
                ..NodeView::default()
            },
            keyspaces: vec![keyspace(1, "main", 0), keyspace(2, "bank", 3)],
            login,
            clients: BTreeMap::from([(7, client), (9, other)]),
            counters: Counters::default(),
            hub: Hub::default(),
            unsent: 0,
            silent: false,
            out: Vec::new(),
            requests: Vec::new(),
        };
        world.hub.set_numbers(world.keyspaces.iter().map(|view| (view.id, view.index)));
        if login == Login::Required {
            world.hub.users = Users::of(["anna".to_owned()], None).unwrap();
        }
        world.connection = with_context!(world, context => Connection::new(context));
        world
    }

    fn receive(&mut self, bytes: &[u8]) {
        if !self.silent {
            self.keyspaces.iter().for_each(|keyspace| self.hub.hear_from(keyspace.id, self.now));
        }
        let (mut out, mut requests) = (Vec::new(), Vec::new());
        with_context!(self, context => self.connection.receive(bytes, context, &mut out, &mut requests));
        self.out.append(&mut out);
        self.requests.append(&mut requests);
    }

    fn answer(&mut self, id: u64, outcome: Outcome) {
        let (mut out, mut requests) = (Vec::new(), Vec::new());
        with_context!(self, context => self.connection.answer(id, outcome, context, &mut out, &mut requests));
        self.out.append(&mut out);
        self.requests.append(&mut requests);
    }

    fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        self.stamp = self.stamp + span;
        let (mut out, mut requests) = (Vec::new(), Vec::new());
        with_context!(self, context => self.connection.tick(context, &mut out, &mut requests));
        self.out.append(&mut out);
        self.requests.append(&mut requests);
    }

    /// The client closes its end.
    fn hang_up(&mut self) {
        let mut out = Vec::new();
        with_context!(self, context => self.connection.hang_up(context, &mut out));
        self.out.append(&mut out);
    }

    /// Another connection waits for the list `a` from now on, and tries to take something as BLPOP does.
    pub(super) fn another_tries(&mut self, number: u64) {
        let how = Operation::LMPop { keys: [].into(), side: Side::Left, count: 1 };
        self.hub.wait(number, KeyspaceId(1), &["a".into()]);
        self.hub.takes(number, Manner { from: (Kind::List, None), how });
    }

    /// It has taken this, and has to wait for what becomes of it.
    pub(super) fn another_takes(&mut self, number: u64, outcome: &str) {
        let outcome = parse_outcome(outcome);
        assert_eq!(self.hub.share(number, KeyspaceId(1), &"a".into(), outcome), None);
    }

    /// Hands over what the connection is told by others, itself included.
    fn deliver(&mut self) {
        for (number, notice) in self.hub.take_mail() {
            if number == 7 {
                let (mut out, mut requests) = (Vec::new(), Vec::new());
                with_context!(self, context => {
                    self.connection.notify(notice, context, &mut out, &mut requests);
                });
                self.out.append(&mut out);
                self.requests.append(&mut requests);
            }
        }
    }

    /// What was asked and written since the last call.
    fn transcript(&mut self) -> String {
        let mut text = String::new();
        for request in self.requests.drain(..) {
            match request.ask {
                Ask::Execute { keyspace, command } => {
                    assert_eq!(command.stamp, self.stamp);
                    let place = if command.in_order { " in order" } else { "" };
                    writeln!(text, "  ask {} {keyspace} {:?}{place}", request.id, command.operation).unwrap();
                }
                Ask::Verify { user, password } => {
                    let password = password.expose().escape_ascii().to_string();
                    writeln!(text, "  verify {} {user} {password}", request.id).unwrap();
                }
            }
        }
        let out = std::mem::take(&mut self.out);
        if !out.is_empty() {
            let shown = out
                .escape_ascii()
                .to_string()
                .replace("\\r\\n", "·")
                .replace("\\'", "'")
                .replace("\\\"", "\"");
            writeln!(text, "  {shown}").unwrap();
        }
        if self.connection.closing() {
            text.push_str("  closes\n");
        } else if !self.connection.wants_input() {
            text.push_str("  reads no further\n");
        }
        text
    }
}

/// Words as an array of bulk strings.
fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn encode_line(line: &str) -> Vec<u8> {
    let words: Vec<&[u8]> = line.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes).collect();
    encode(&words)
}

/// Plays a script and returns it with what it led to. In a reply `·` is a line end.
///
/// `> a b` sends a request; `> a ; b` two in one piece; `| bytes` sends bytes with escapes; `< 3 int 1`
/// answers request 3; `+ 5` lets seconds pass; `! fill k`, `! publish c m` and `! spublish c m` are what others do; `! close` closes the client's end.
pub(super) fn talk(login: Login, script: &str) -> String {
    play(&mut World::new(login), script)
}

/// One for whose first keyspace a node is full.
fn full() -> World {
    let mut world = World::new(Login::Open);
    world.keyspaces[0].full = vec![Full { node: "or1".to_owned(), limit: 1 << 30 }];
    world
}

/// One whose first keyspace is one of transactions.
fn transactional() -> World {
    let mut world = World::new(Login::Open);
    world.keyspaces[0].transactional = true;
    world
}

/// As [`check`], in a keyspace of transactions.
#[track_caller]
fn check_transactional(script: &str, expected: Expect) {
    expected.assert_eq(&play(&mut transactional(), script));
}

/// Holds what is said against what is expected.
#[track_caller]
pub(super) fn check(login: Login, script: &str, expected: Expect) {
    expected.assert_eq(&talk(login, script));
}

pub(super) fn play(world: &mut World, script: &str) -> String {
    let mut text = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        writeln!(text, "{line}").unwrap();
        let (verb, rest) = line.split_at(1);
        let rest = rest.trim_start();
        match verb {
            ">" => {
                let bytes: Vec<u8> = rest.split(" ; ").flat_map(encode_line).collect();
                world.receive(&bytes);
            }
            "|" => world.receive(&unescape(rest)),
            "<" => {
                let (id, outcome) = rest.split_once(' ').unwrap();
                world.answer(id.parse().unwrap(), parse_outcome(outcome));
            }
            "+" => world.pass(Span::from_secs(rest.parse().unwrap())),
            "!" => match rest.split(' ').collect::<Vec<_>>()[..] {
                ["fill", key] => world.hub.filled(KeyspaceId(1), &key.into(), 1, world.now),
                ["publish", channel, payload] => {
                    world.hub.publish(channel.into(), payload.into());
                }
                ["spublish", channel, payload] => {
                    world.hub.publish_to_shard(channel.into(), payload.into());
                }
                ["close"] => world.hang_up(),
                _ => panic!("others fill or publish, or it closes, not {rest}"),
            },
            other => panic!("a line of a script begins with > | < + or !, not {other}"),
        }
        world.deliver();
        text.push_str(&world.transcript());
    }
    text
}

fn unescape(text: &str) -> Vec<u8> {
    text.replace("\\r", "\r").replace("\\n", "\n").replace("\\0", "\0").into_bytes()
}

fn parse_outcome(text: &str) -> Outcome {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match word {
        "refused" => Outcome::Refused(rest.to_owned()),
        "unknown" => Outcome::Unknown(rest.to_owned()),
        "accepted" => Outcome::Verified { accepted: true },
        "denied" => Outcome::Verified { accepted: false },
        _ => Outcome::Done(parse_response(text)),
    }
}

fn parse_response(text: &str) -> Response {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let list = || rest.split(", ").filter(|part| !part.is_empty()).map(parse_response).collect::<Vec<_>>();
    let pairs = || {
        let parts = list();
        parts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect::<Vec<_>>()
    };
    match word {
        "ok" => Response::Ok,
        "nil" => Response::Nil,
        "nilarray" => Response::NilArray,
        "int" => Response::Integer(rest.parse().unwrap()),
        "bulk" => Response::bulk(rest.as_bytes()),
        "double" => Response::Double(Score::new(rest.parse().unwrap()).unwrap()),
        "hash" => Response::Kind(Kind::Hash),
        "list" => Response::Kind(Kind::List),
        "stream" => Response::Kind(Kind::Stream),
        "none" => Response::Kind(Kind::None),
        "array" => Response::Array(list()),
        "set" => Response::Set(list()),
        "pairs" => Response::Pairs(pairs()),
        "map" => Response::Map(pairs()),
        "keyed" => {
            let parts = list();
            Response::Array(vec![
                parts[0].clone(),
                Response::Pairs(vec![(parts[1].clone(), parts[2].clone())]),
            ])
        }
        "popped" => {
            let mut parts = list();
            let elements = parts.split_off(1);
            Response::Array(vec![parts.remove(0), Response::Array(elements)])
        }
        "scored" => {
            let mut parts = list();
            let pair = Response::Array(parts.split_off(1));
            Response::Array(vec![parts.remove(0), Response::Array(vec![pair])])
        }
        "transaction" => Response::Array(vec![
            Response::Integer(1),
            Response::Array(vec![Response::Integer(1), Response::Integer(0)]),
            Response::Nil,
        ]),
        "found" => Response::Array(vec![Response::Array(list())]),
        "scan" => Response::Scan { cursor: 17, items: vec!["a".into(), "b".into()] },
        "nogroup" => Response::Error(Refusal::NoGroup(rest.parse().unwrap())),
        "wrongtype" => Response::Error(Refusal::WrongType),
        other => panic!("no response is called {other}"),
    }
}
