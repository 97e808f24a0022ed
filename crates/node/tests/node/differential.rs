//! Random commands here and at a real `redis-server`: equal replies, byte for byte, but for the order of what
//! has none.
//!
//! Not run by default, since it needs `redis-server` on the path:
//! `cargo test -p isochrone-node --test node -- --ignored differential`, with `COMMANDS=1000000` for more
//! commands and `SEED=7` for others. Even seeds speak RESP3.

use super::grammar::{self, Server, encode, fill, lay};
use isochrone_core::notify::Flags;
use isochrone_core::{Instant, KeyspaceId, Random, Stamp, StateMachine};
use isochrone_node::gateway::{
    Ask, Context, Counters, KeyspaceView, Login, NodeView, Outcome, Request, Session,
};
use isochrone_node::hub::{Hub, Notice, Topic};
use isochrone_node::limits::Limits;
use isochrone_node::redis::Connection;
use isochrone_store::Store;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// A connection and a store, without a protocol between them.
struct Here {
    connection: Option<Connection>,
    store: Store,
    limits: Limits,
    node: NodeView,
    keyspaces: Vec<KeyspaceView>,
    random: Random,
    counters: Counters,
    hub: Hub,
    now: Instant,
    /// The channels and messages of what a listener was told.
    told: Vec<String>,
}

/// Who listens to events, where anybody does.
const LISTENER: u64 = 99;

impl Here {
    fn new() -> Here {
        let keyspace = KeyspaceView { leads: true, ..KeyspaceView::new(KeyspaceId(1), "main", 0, "none", 1) };
        let mut hub = Hub::default();
        hub.set_numbers([(keyspace.id, keyspace.index)]);
        Here {
            connection: None,
            store: Store::default(),
            limits: Limits::default(),
            node: NodeView::default(),
            keyspaces: vec![keyspace],
            random: Random::seeded(1),
            counters: Counters::default(),
            hub,
            now: Instant::ZERO,
            told: Vec::new(),
        }
    }

    fn call(&mut self, bytes: &[u8]) -> Vec<u8> {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let mut clients = BTreeMap::new();
        let mut context = Context {
            now: self.now,
            stamp: Stamp::from_nanos(wall),
            connection: 1,
            unsent: 0,
            random: &mut self.random,
            limits: &self.limits,
            node: &self.node,
            keyspaces: &self.keyspaces,
            login: Login::Open,
            clients: &mut clients,
            counters: &mut self.counters,
            hub: &mut self.hub,
        };
        let connection = self.connection.get_or_insert_with(|| Connection::new(&context));
        let (mut out, mut requests) = (Vec::new(), Vec::new());
        connection.receive(bytes, &mut context, &mut out, &mut requests);
        for _ in 0..8 {
            for Request { id, ask } in std::mem::take(&mut requests) {
                let Ask::Execute { command, .. } = ask else { panic!("nobody logs in") };
                let response = match Store::reads_only(&command).then(|| self.store.read(&command)).flatten()
                {
                    Some(response) => response,
                    None => self.store.apply(&command),
                };
                connection.answer(id, Outcome::Done(response), &mut context, &mut out, &mut requests);
            }
            // Nobody else is here to be told anything.
            context.hub.hear(context.now);
            let mail = context.hub.take_mail().into_iter();
            self.told.extend(mail.filter_map(|(connection, notice)| match notice {
                Notice::Message { channel, payload, .. } if connection == LISTENER => {
                    Some(format!("{} {}", channel.escape_ascii(), payload.escape_ascii()))
                }
                _ => None,
            }));
            context.hub.take_news();
            if !connection.wants_input() && requests.is_empty() {
                // It waits for something to pop: let its time pass.
                context.now = context.now + isochrone_core::Span::from_secs(1);
                connection.tick(&mut context, &mut out, &mut requests);
            }
        }
        self.now = context.now;
        out
    }
}

#[test]
#[ignore = "needs redis-server; see the module"]
fn differential_random_commands_are_answered_as_by_redis() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (mut left, seed) = (number("COMMANDS").unwrap_or(200_000), number("SEED").unwrap_or(1));
    let forms = grammar::forms();
    let (mut random, mut here, mut there) = (Random::seeded(seed), Here::new(), Server::start());
    let hello = encode(&[b"HELLO".to_vec(), if seed % 2 == 0 { b"3".to_vec() } else { b"2".to_vec() }]);
    let greet = |here: &mut Here, there: &mut Server| {
        here.call(&hello);
        there.peer.send(&hello);
        there.peer.next();
    };
    greet(&mut here, &mut there);
    let mut history: Vec<String> = Vec::new();
    let mut failures: BTreeMap<String, String> = BTreeMap::new();
    while left > 0 {
        let batch = grammar::batch(&forms, &mut random, 100);
        left = left.saturating_sub(batch.len() as u64);
        let bytes: Vec<u8> = batch.iter().flat_map(|(_, words)| encode(words)).collect();
        there.peer.send(&bytes);
        let mut astray = false;
        for (form, words) in batch {
            let expected = there.peer.next();
            if astray {
                continue;
            }
            let (found, shown) = (here.call(&encode(&words)), words.iter().map(|word| word.escape_ascii()));
            history.push(shown.map(|word| word.to_string()).collect::<Vec<_>>().join(" "));
            if lay(form, &found) != lay(form, &expected) {
                let recent = history[history.len().saturating_sub(4)..].join(" ; ");
                let (found, expected) = (found.escape_ascii(), expected.escape_ascii());
                let text = format!("{recent}\n    here  {found}\n    redis {expected}");
                failures.entry(form.to_owned()).or_insert(text);
                // The states may differ from here on: the rest of this round says nothing.
                astray = true;
            }
        }
        if astray {
            here = Here::new();
            there.peer.send(&encode(&[b"RESET".to_vec()]));
            there.peer.send(&encode(&[b"FLUSHALL".to_vec()]));
            there.peer.next();
            there.peer.next();
            greet(&mut here, &mut there);
        }
        if failures.len() >= 20 {
            break;
        }
    }
    let text: Vec<String> = failures.iter().map(|(form, text)| format!("{form}\n  {text}")).collect();
    assert!(failures.is_empty(), "seed {seed}, after {} commands:\n{}", history.len(), text.join("\n"));
}

/// The same commands, and the events that they make.
#[test]
#[ignore = "needs redis-server; see the module"]
fn differential_commands_make_the_events_of_redis() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (mut left, seed) = (number("COMMANDS").unwrap_or(50_000), number("SEED").unwrap_or(1));
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let listening = || {
        let mut here = Here::new();
        here.hub.set_notifies(Flags::parse(b"KAn").unwrap());
        here.hub.subscribe(LISTENER, Topic::Pattern, &"__key*".into());
        here
    };
    let (mut random, mut here, mut there) = (Random::seeded(seed), listening(), Server::start());
    let (mut listener, mut marker) = (there.another(), there.another());
    there.peer.send(&encode(&words("CONFIG SET notify-keyspace-events KAn")));
    assert_eq!(there.peer.next(), b"+OK\r\n");
    for line in ["PSUBSCRIBE __key*", "SUBSCRIBE mark"] {
        listener.send(&encode(&words(line)));
        listener.next();
    }
    let forms = grammar::forms();
    let (mut history, mut failures) = (Vec::new(), BTreeMap::new());
    while left > 0 && failures.len() < 20 {
        let batch = grammar::batch(&forms, &mut random, 100);
        left = left.saturating_sub(batch.len() as u64);
        let mut astray = false;
        for (form, words_of) in batch {
            let bytes = encode(&words_of);
            there.peer.send(&bytes);
            there.peer.next();
            marker.send(&encode(&words("PUBLISH mark x")));
            marker.next();
            let mut expected = Vec::new();
            loop {
                let message = listener.next();
                let text = String::from_utf8_lossy(&message).into_owned();
                let lines: Vec<&str> = text.split("\r\n").collect();
                match lines[..] {
                    [_, _, "pmessage", _, _, _, channel, _, event, ..] => {
                        expected.push(format!("{channel} {event}"));
                    }
                    _ => break,
                }
            }
            here.told.clear();
            here.call(&bytes);
            if astray {
                continue;
            }
            history.push(
                words_of.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" "),
            );
            // Which of these has made a consumer, its answer does not say; what stores places has one name.
            let silent =
                |event: &String| !form.starts_with("XGROUP") && event.ends_with(" xgroup-createconsumer");
            expected.retain(|event| !silent(event));
            for event in &mut expected {
                *event = event.replace(" georadiusstore", " geosearchstore");
            }
            expected.sort();
            here.told.sort();
            if here.told != expected {
                let recent = history[history.len().saturating_sub(4)..].join(" ; ");
                let text = format!("{recent}\n    here  {:?}\n    redis {expected:?}", here.told);
                failures.entry(form.to_owned()).or_insert(text);
                // The states may differ from here on.
                astray = true;
            }
        }
        if astray {
            here = listening();
            for line in ["RESET", "FLUSHALL"] {
                there.peer.send(&encode(&words(line)));
                there.peer.next();
            }
        }
    }
    let text: Vec<String> = failures.iter().map(|(form, text)| format!("{form}\n  {text}")).collect();
    assert!(failures.is_empty(), "seed {seed}, after {} commands:\n{}", history.len(), text.join("\n"));
}

/// What a user may do, here and there: every form of command asked of ACL DRYRUN, for users with one category
/// each, and for users with rules on keys. Redis 7.0 says it in other words than 7.2, which is what is said here.
#[test]
#[ignore = "needs redis-server; see the module"]
fn differential_users_may_do_what_they_may_in_redis() {
    const CATEGORIES: &str = "keyspace read write set sortedset list hash string bitmap stream pubsub admin fast slow \
                              blocking dangerous connection transaction scripting";
    const ALONE: &str = "AUTH x;HELLO;PING;ECHO x;SELECT 0;CLIENT ID;CLIENT LIST;CLIENT KILL ID 3;CLIENT INFO;INFO;\
                         CONFIG GET x;COMMAND;COMMAND COUNT;COMMAND DOCS;DBSIZE;FLUSHALL;FLUSHDB;KEYS *;SCAN 0;\
                         RANDOMKEY;MULTI;EXEC;DISCARD;WATCH k1;UNWATCH;PUBLISH c m;SUBSCRIBE c;PSUBSCRIBE c;\
                         PUBSUB CHANNELS;SUBSCRIBE d;PSUBSCRIBE d*;UNSUBSCRIBE;SPUBLISH c m;SSUBSCRIBE c;SSUBSCRIBE c d;SUNSUBSCRIBE;EVAL x 1 k2;EVALSHA x 1 k1;\
                         SCRIPT LOAD x;ACL WHOAMI;ACL LIST;ACL SETUSER x;MONITOR;LATENCY DOCTOR;LATENCY HISTOGRAM;ROLE;WAIT 0 0;TIME;LOLWUT;RESET;QUIT;\
                         CLUSTER INFO;READONLY;OBJECT FREQ k1;OBJECT ENCODING k3;MOVED x";
    let (mut here, mut there) = (Here::new(), Server::start());
    let mut random = Random::seeded(1);
    let mut ask = |words: Vec<Vec<u8>>| {
        let bytes = encode(&words);
        there.peer.send(&bytes);
        let line = words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
        let plain = |reply: &[u8]| {
            let text = String::from_utf8_lossy(reply).replace("User u has no", "This user has no");
            let text = text.replace(" sanitize-payload", "");
            text.lines().filter(|line| !line.starts_with('$')).collect::<Vec<_>>().join(" ")
        };
        (line, plain(&here.call(&bytes)), plain(&there.peer.next()))
    };
    let split = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let mut users: Vec<String> =
        CATEGORIES.split(' ').map(|category| format!("reset on nopass ~* &* +@{category}")).collect();
    users.push("reset on ~k1 %R~k2 %W~k3 %RW~k4 %R~k5 %W~k5 &c* +@all".to_owned());
    users.push("reset on %W~k* %R~k1 &d* +@all -@dangerous -@write +set +config|get".to_owned());
    users.push("reset on %R~* allchannels allcommands -get -config".to_owned());
    let mut wrong = Vec::new();
    let mut asked = 0;
    for rules in users {
        for line in [format!("ACL SETUSER u {rules}"), "ACL USERS".to_owned()] {
            let (line, found, expected) = ask(split(&line));
            assert_eq!(found, expected, "{line}");
        }
        let forms = grammar::forms().into_iter().map(grammar::bare);
        for form in forms.chain(ALONE.split(';')) {
            let words = [split("ACL DRYRUN u"), fill(form, &mut random)].concat();
            let (line, found, expected) = ask(words);
            asked += 1;
            if found != expected {
                wrong.push(format!("{rules}: {line}\n    here  {found}\n    redis {expected}"));
            }
        }
    }
    wrong.dedup_by(|a, b| a == b);
    assert!(
        wrong.is_empty(),
        "{} of {asked} answers differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
}

/// Values of all types, small and large, made by the same commands here and there, then carried both ways by DUMP and
/// RESTORE: what arrives is what was there, in the other's words.
#[test]
#[ignore = "needs redis-server; see the module"]
fn differential_values_are_carried_both_ways_by_dump_and_restore() {
    const READS: &[&str] = &[
        "TYPE x",
        "GET x",
        "LRANGE x 0 -1",
        "~SMEMBERS x",
        "%HGETALL x",
        "ZRANGE x 0 -1 WITHSCORES",
        "XRANGE x - +",
        "^XINFO STREAM x FULL COUNT 0",
        "XADD x 7-0 a b",
        "XADD x 5000-1 a b",
        "PEXPIRETIME x",
    ];
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let mut random = Random::seeded(number("SEED").unwrap_or(1));
    let (mut here, mut there) = (Here::new(), Server::start());
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let bulk = |reply: &[u8]| {
        let line = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert_eq!(reply[0], b'$', "{}", reply.escape_ascii());
        reply[line..reply.len() - 2].to_vec()
    };
    let mut carried = 0;
    for round in 0..number("ROUNDS").unwrap_or(400) {
        // In the forms of large values, or in those of small ones, under settings that all versions know.
        let most = [0, 3, 128, 512, 5000][random.below(5) as usize];
        for setting in [
            "hash-max-ziplist-entries",
            "zset-max-ziplist-entries",
            "set-max-intset-entries",
            "stream-node-max-entries",
        ] {
            there.peer.send(&encode(&words(&format!("CONFIG SET {setting} {most}"))));
            assert_eq!(there.peer.next(), b"+OK\r\n");
        }
        let size = [1, 2, 7, 60, 130, 600, 3000][random.below(7) as usize];
        let long = [1, 6, 30, 63, 64, 100, 5000][random.below(if size > 200 { 5 } else { 7 }) as usize];
        let numbers = random.below(3) == 0;
        let element = |random: &mut Random| {
            if numbers {
                let wide = [7, 12, 15, 23, 31, 62][random.below(6) as usize];
                return ((random.below(1 << wide) as i64) * [1, -1][random.below(2) as usize])
                    .to_string()
                    .into_bytes();
            }
            match random.below(4) {
                0 => random.below(100_000).to_string().into_bytes(),
                1 => b"abcde".repeat(long).into_iter().take(long).collect(),
                _ => (0..random.below(long as u64 + 1)).map(|_| random.below(256) as u8).collect(),
            }
        };
        let kind = round % 6;
        let mut lines: Vec<Vec<Vec<u8>>> = vec![words("DEL k x")];
        for at in 0..size {
            let (one, two) = (element(&mut random), element(&mut random));
            let line = |text: &str, more: Vec<Vec<u8>>| [words(text), more].concat();
            lines.push(match kind {
                0 => line("SET k", vec![one]),
                1 => line(if at % 3 == 0 { "LPUSH k" } else { "RPUSH k" }, vec![one]),
                2 => line("SADD k", vec![one]),
                3 => line("HSET k", vec![one, two]),
                4 => {
                    let score =
                        [random.below(100) as f64 / 8.0, -7.0, 1e30, f64::INFINITY][random.below(4) as usize];
                    line("ZADD k", vec![score.to_string().into_bytes(), one])
                }
                _ => {
                    let id = format!("{}-{}", 10 + at * (1 + at % 3) / 2, at);
                    let fields = if random.below(5) == 0 {
                        vec![two.clone(), one, two]
                    } else {
                        vec![b"f".to_vec(), one]
                    };
                    let fields =
                        if fields.len() % 2 == 0 { fields } else { [fields, vec![b"v".to_vec()]].concat() };
                    line(&format!("XADD k {id}"), fields)
                }
            });
            if kind == 5 && random.below(6) == 0 {
                lines.push(words(&format!("XDEL k {}-{}", 10 + at * (1 + at % 3) / 2, at)));
            }
        }
        if kind == 5 && random.below(2) == 0 {
            let at = lines.len() / 2;
            lines.insert(at, words("XGROUP CREATE k g 0 MKSTREAM"));
            lines.push(words("XGROUP CREATE k h $"));
            for consumer in ["a", "bb", "c"] {
                let count = 1 + random.below(size as u64);
                lines.push(words(&format!("XREADGROUP GROUP g {consumer} COUNT {count} STREAMS k >")));
                lines.push(words(&format!("XACK k g {}-{}", 10 + random.below(90), random.below(60))));
            }
            lines.push(words("XDEL k 10-0"));
        }
        if random.below(3) == 0 {
            lines.push(words("PEXPIREAT k 4000000000000"));
        }
        for line in &lines {
            let bytes = encode(line);
            there.peer.send(&bytes);
            let (found, expected) = (here.call(&bytes), there.peer.next());
            assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
        let dumped = [bulk(&here.call(&encode(&words("DUMP k")))), {
            there.peer.send(&encode(&words("DUMP k")));
            bulk(&there.peer.next())
        }];
        let restore = |payload: &[u8]| {
            let tail = words("REPLACE ABSTTL");
            encode(&[words("RESTORE x 4000000000000"), vec![payload.to_vec()], tail].concat())
        };
        let (mut carried_here, mut original) = (Vec::new(), Vec::new());
        assert_eq!(here.call(&restore(&dumped[1])), b"+OK\r\n", "{}", dumped[1].escape_ascii());
        there.peer.send(&restore(&dumped[0]));
        assert_eq!(there.peer.next().escape_ascii().to_string(), "+OK\\r\\n", "{}", dumped[0].escape_ascii());
        for read in READS {
            let bytes = encode(&words(grammar::bare(read)));
            carried_here.push(lay(read, &here.call(&bytes)));
            there.peer.send(&bytes);
            original.push(lay(read, &there.peer.next()));
        }
        assert_eq!(carried_here, original, "round {round}: what went here is not what went there");
        // And it is what the commands have made: asked of k where it never left.
        for (read, carried) in READS.iter().zip(&carried_here).take(8) {
            let bytes = encode(&words(&grammar::bare(read).replace(" x", " k")));
            assert_eq!(&lay(read, &here.call(&bytes)), carried, "round {round}");
        }
        carried += 1;
    }
    assert!(carried > 0);
}
