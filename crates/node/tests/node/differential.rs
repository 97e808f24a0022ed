//! Random commands here and at a real `redis-server`: equal replies, byte for byte, but for the order of what
//! has none.
//!
//! Not run by default, since it needs `redis-server` on the path:
//! `cargo test -p isochrone-node --test node -- --ignored differential`, with `COMMANDS=1000000` for more
//! commands and `SEED=7` for others. Even seeds speak RESP3.

use isochrone_core::{Guarantee, Instant, KeyspaceId, Random, Stamp, StateMachine};
use isochrone_node::gateway::{
    Ask, Context, Counters, KeyspaceView, Login, NodeView, Outcome, Request, Session,
};
use isochrone_node::hub::Hub;
use isochrone_node::limits::Limits;
use isochrone_node::redis::Connection;
use isochrone_store::Store;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

/// What is sent, a line a form: `K` is a key, `V` a value, `F` a field or member, `N` an integer, `X` a position,
/// `S` a score, `W` a weight, `B` a bound of scores, `L` a bound of members, `ID` an identifier of a stream's entry, `I*` one to be completed, `T` a time to come, `TT` the same in
/// milliseconds; the rest is sent as it is.
/// Members of `lex` all have one score, since ranges of members are defined only then.
/// A `~` in front says that the reply has no order, `%` that it has none two by two.
const FORMS: &str = "
SET K V
SET K V NX
SET K V XX GET
SET K V KEEPTTL
SET K V EXAT T
SET K N
GET K
GETSET K V
GETDEL K
GETEX K EXAT T
GETEX K PERSIST
MGET K K K
MSET K V K V
MSETNX K V K V
SETNX K V
APPEND K V
STRLEN K
GETRANGE K X X
SETRANGE K N V
SUBSTR K X X
INCR K
DECR K
INCRBY K N
DECRBY K N
INCRBYFLOAT K S
SETBIT K N 0
SETBIT K N 1
GETBIT K N
BITCOUNT K
BITCOUNT K X X
BITCOUNT K X X BIT
BITPOS K 0
BITPOS K 1 X
BITPOS K 0 X X
BITPOS K 1 X X BIT
BITPOS K 0 X X BYTE
BITOP AND K K K
BITOP OR K K
BITOP XOR K K K K
BITOP NOT K K
BITFIELD K GET u4 N SET i8 N N
BITFIELD K OVERFLOW SAT INCRBY u3 #N N GET i5 N
BITFIELD K OVERFLOW FAIL INCRBY i4 N N
BITFIELD_RO K GET u7 N GET i64 N
DEL K
DEL K K
UNLINK K
EXISTS K K K
TOUCH K K
TYPE K
EXPIREAT K T
EXPIREAT K T NX
EXPIREAT K T XX
EXPIREAT K T GT
EXPIREAT K T LT
PEXPIREAT K TT
EXPIRETIME K
PEXPIRETIME K
PERSIST K
RENAME K K
RENAMENX K K
COPY K K
COPY K K REPLACE
~KEYS *
DBSIZE
OBJECT REFCOUNT K5
HSET K F V
HSET K F V F V
HMSET K F V
HSETNX K F V
HSET K F N
HGET K F
HMGET K F F
HDEL K F F
%HGETALL K
~HKEYS K
~HVALS K
HLEN K
HEXISTS K F
HINCRBY K F N
HINCRBYFLOAT K F S
HSTRLEN K F
LPUSH K F
LPUSH K V F
RPUSH K F F
LPUSHX K F
RPUSHX K F
LPOP K
RPOP K
LPOP K N
RPOP K N
LLEN K
LRANGE K X X
LINDEX K X
LSET K X V
LTRIM K X X
LREM K X F
LINSERT K BEFORE F V
LINSERT K AFTER F V
LPOS K F
LPOS K F RANK X COUNT N
LPOS K F COUNT 0 MAXLEN N
LMOVE K K LEFT RIGHT
LMOVE K K RIGHT LEFT
RPOPLPUSH K K
LMPOP 2 K K LEFT COUNT N
LMPOP 1 K RIGHT
BLPOP K K 0.01
SADD K F F
SADD K N N
SREM K F
~SMEMBERS K
SISMEMBER K F
SMISMEMBER K F F
SCARD K
SMOVE K K F
~SINTER K K
~SUNION K K
~SDIFF K K
SINTERSTORE K K K
SUNIONSTORE K K K
SDIFFSTORE K K K
SINTERCARD 2 K K
SINTERCARD 2 K K LIMIT N
ZADD K S F
ZADD K S F S F
ZADD K NX S F
ZADD K XX CH S F
ZADD K GT S F
ZADD K LT CH S F
ZADD K INCR S F
ZINCRBY K S F
ZREM K F
ZSCORE K F
ZMSCORE K F F
ZCARD K
ZCOUNT K B B
ZADD lex 0 F 0 F
ZADD lex 0 V
ZRANGE lex L L BYLEX REV LIMIT N X
ZREM lex F
ZLEXCOUNT lex L L
ZRANGE K X X
ZRANGE K X X WITHSCORES
ZRANGE K X X REV
ZRANGE K B B BYSCORE
ZRANGE K B B BYSCORE REV LIMIT N X
ZRANGE lex L L BYLEX
ZRANGEBYSCORE K B B WITHSCORES
ZREVRANGEBYSCORE K B B LIMIT N X
ZRANGEBYLEX lex L L
ZREVRANGEBYLEX lex L L
ZREVRANGE K X X
ZRANGESTORE K K X X
ZRANGESTORE K K B B BYSCORE
ZRANK K F
ZREVRANK K F
ZPOPMIN K
ZPOPMAX K
ZPOPMIN K N
ZMPOP 2 K K MIN COUNT N
ZMPOP 1 K MAX
ZREMRANGEBYRANK K X X
ZREMRANGEBYSCORE K B B
ZREMRANGEBYLEX lex L L
ZUNION 2 K K WITHSCORES
ZINTER 2 K K WEIGHTS W W
ZDIFF 2 K K
ZUNIONSTORE K 2 K K AGGREGATE MAX
ZINTERSTORE K 2 K K WEIGHTS W W
ZDIFFSTORE K 2 K K
ZINTERCARD 2 K K LIMIT N
XADD K ID F V
XADD K ID F V V F
XADD K I* F V
XADD K NOMKSTREAM ID F V
XADD K MAXLEN N ID F V
XADD K MAXLEN = 2 NOMKSTREAM ID F V
XADD K MINID ID ID F V
XADD st ID F V
XADD st I* F V
XLEN K
XRANGE K - +
XRANGE st - +
XRANGE st ID ID
XRANGE st (ID + COUNT N
XREVRANGE st + - COUNT 2
XREVRANGE st (ID (ID
XDEL st ID ID
XDEL K ID
XTRIM st MAXLEN 3
XTRIM st MINID = ID
XTRIM K MAXLEN N
XREAD STREAMS st ID
XREAD COUNT N STREAMS st K ID ID
XREAD COUNT 1 STREAMS st $
XREAD BLOCK 10 STREAMS st K $ $
TYPE st
DEL st
OBJECT ENCODING st
XADD st 0-0 F V
XADD st ID F
XADD st MAXLEN x ID F V
XADD st MAXLEN -1 ID F V
XADD st MAXLEN 1 MINID 1 ID F V
XADD st x-1 F V
XRANGE st x +
XRANGE st - 18446744073709551615-18446744073709551615
XRANGE st (18446744073709551615-18446744073709551615 +
XTRIM st MAXLEN 5 LIMIT 3
XTRIM st LIMIT 3 4
XTRIM st NONE 3
XREAD STREAMS st >
XREAD COUNT x STREAMS st 0
PING
ECHO V
NOSUCH K
GET
SET K
ZADD K x F
LPOS K F RANK 0
SET K V EX 0
HSET K F
EXPIREAT K T NX GT
FLUSHDB
";

/// Fills a form in.
fn fill(form: &str, random: &mut Random) -> Vec<Vec<u8>> {
    let pick = |random: &mut Random, from: &[&str]| from[random.below(from.len() as u64) as usize].to_owned();
    form.split(' ')
        .map(|word| {
            let text = match word {
                "K" => format!("k{}", random.below(6)),
                "V" => pick(random, &["a", "b", "", "12", "-7", "3.5", "some longer text", "\u{0}\u{7f}x"]),
                "F" => pick(random, &["a", "b", "c", "d", "e"]),
                "N" => pick(random, &["0", "1", "2", "3", "5", "9", "17", "100"]),
                "#N" => pick(random, &["#0", "#1", "#3"]),
                "X" => pick(random, &["0", "1", "2", "4", "9", "-1", "-2", "-3", "-9"]),
                "S" => pick(random, &["0", "1", "-1", "2", "0.5", "1.25", "100", "inf"]),
                // Not 0: infinity times zero is zero here, in Redis it depends on which set is the smaller.
                "W" => pick(random, &["1", "2", "0.5", "-1"]),
                "B" => pick(random, &["-inf", "+inf", "0", "1", "(1", "2", "(0.5", "-1"]),
                "L" => pick(random, &["-", "+", "[a", "(b", "[c", "(e", "[bb"]),
                "ID" | "(ID" => {
                    let id = format!("{}-{}", random.below(30), random.below(3));
                    let id = if random.below(4) == 0 { random.below(30).to_string() } else { id };
                    if word == "(ID" { format!("({id}") } else { id }
                }
                "I*" => format!("{}-*", random.below(30)),
                "T" => (4_000_000_000 + random.below(3)).to_string(),
                "TT" => (4_000_000_000_000 + random.below(3)).to_string(),
                other => other.to_owned(),
            };
            text.into_bytes()
        })
        .collect()
}

fn encode(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The length of the first reply, if all of it is there.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let count = || std::str::from_utf8(&bytes[1..line - 2]).unwrap().parse::<i64>().unwrap();
    match bytes[0] {
        b'$' if count() >= 0 => Some(line + count() as usize + 2).filter(|length| *length <= bytes.len()),
        b'*' | b'~' | b'>' | b'%' => {
            let mut at = line;
            for _ in 0..if bytes[0] == b'%' { 2 * count() } else { count() } {
                at += reply_length(&bytes[at..])?;
            }
            Some(at)
        }
        _ => Some(line),
    }
}

/// The parts of an array, in order where it has none.
fn sorted(reply: &[u8], by: usize) -> Vec<u8> {
    let Some(line) = reply.iter().position(|byte| *byte == b'\n').filter(|_| b"*~%".contains(&reply[0]))
    else {
        return reply.to_vec();
    };
    let (mut parts, mut at) = (Vec::new(), line + 1);
    while at < reply.len() {
        let length = reply_length(&reply[at..]).unwrap();
        parts.push(reply[at..at + length].to_vec());
        at += length;
    }
    let mut groups: Vec<Vec<u8>> = parts.chunks(by).map(|group| group.concat()).collect();
    groups.sort();
    groups.concat()
}

/// A `redis-server` for as long as this lives.
struct There {
    server: Child,
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl There {
    fn start() -> There {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is on the path");
        let stream = crate::live::eventually("redis-server", || TcpStream::connect(("127.0.0.1", port)).ok());
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        There { server, stream, bytes: Vec::new() }
    }

    fn next(&mut self) -> Vec<u8> {
        loop {
            if let Some(length) = reply_length(&self.bytes) {
                return self.bytes.drain(..length).collect();
            }
            let mut chunk = [0; 1 << 16];
            let read = self.stream.read(&mut chunk).unwrap();
            assert!(read > 0, "redis-server has closed the connection");
            self.bytes.extend_from_slice(&chunk[..read]);
        }
    }
}

impl Drop for There {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

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
}

impl Here {
    fn new() -> Here {
        let keyspace = KeyspaceView {
            id: KeyspaceId(1),
            name: "main".to_owned(),
            index: 0,
            protocol: "none",
            guarantee: Guarantee::Linearizable,
            replicas: 1,
            leader: None,
            leads: true,
        };
        Here {
            connection: None,
            store: Store::default(),
            limits: Limits::default(),
            node: NodeView::default(),
            keyspaces: vec![keyspace],
            random: Random::seeded(1),
            counters: Counters::default(),
            hub: Hub::default(),
            now: Instant::ZERO,
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
            context.hub.take_mail();
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
    let forms: Vec<&str> = FORMS.lines().filter(|line| !line.is_empty()).collect();
    let (mut random, mut here, mut there) = (Random::seeded(seed), Here::new(), There::start());
    let hello = encode(&[b"HELLO".to_vec(), if seed % 2 == 0 { b"3".to_vec() } else { b"2".to_vec() }]);
    let greet = |here: &mut Here, there: &mut There| {
        here.call(&hello);
        there.stream.write_all(&hello).unwrap();
        there.next();
    };
    greet(&mut here, &mut there);
    let mut history: Vec<String> = Vec::new();
    let mut failures: BTreeMap<String, String> = BTreeMap::new();
    while left > 0 {
        let mut batch = Vec::new();
        while batch.len() < 100 {
            let form = forms[random.below(forms.len() as u64) as usize];
            if form == "FLUSHDB" && random.below(20) > 0 {
                continue;
            }
            let bare = form.trim_start_matches(['~', '%']);
            if random.below(20) == 0 && bare == form && !form.starts_with("FLUSH") {
                batch.push(("MULTI", vec![b"MULTI".to_vec()]));
                batch.push((form, fill(bare, &mut random)));
                batch.push(("GET", fill("GET K", &mut random)));
                batch.push(("EXEC", vec![b"EXEC".to_vec()]));
            } else {
                batch.push((form, fill(bare, &mut random)));
            }
        }
        left = left.saturating_sub(batch.len() as u64);
        let bytes: Vec<u8> = batch.iter().flat_map(|(_, words)| encode(words)).collect();
        there.stream.write_all(&bytes).unwrap();
        let mut astray = false;
        for (form, words) in batch {
            let expected = there.next();
            if astray {
                continue;
            }
            let (found, shown) = (here.call(&encode(&words)), words.iter().map(|word| word.escape_ascii()));
            history.push(shown.map(|word| word.to_string()).collect::<Vec<_>>().join(" "));
            let lay = |reply: &[u8]| match form.as_bytes()[0] {
                b'~' => sorted(reply, 1),
                b'%' => sorted(reply, 2),
                _ => reply.to_vec(),
            };
            if lay(&found) != lay(&expected) {
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
            there.stream.write_all(&encode(&[b"RESET".to_vec()])).unwrap();
            there.stream.write_all(&encode(&[b"FLUSHALL".to_vec()])).unwrap();
            there.next();
            there.next();
            greet(&mut here, &mut there);
        }
        if failures.len() >= 20 {
            break;
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
                         PUBSUB CHANNELS;SUBSCRIBE d;PSUBSCRIBE d*;UNSUBSCRIBE;EVAL x 1 k2;EVALSHA x 1 k1;\
                         SCRIPT LOAD x;ACL WHOAMI;ACL LIST;ACL SETUSER x;ROLE;WAIT 0 0;TIME;LOLWUT;RESET;QUIT;\
                         CLUSTER INFO;READONLY;OBJECT FREQ k1;OBJECT ENCODING k3;MOVED x";
    let (mut here, mut there) = (Here::new(), There::start());
    let mut random = Random::seeded(1);
    let mut ask = |words: Vec<Vec<u8>>| {
        let bytes = encode(&words);
        there.stream.write_all(&bytes).unwrap();
        let line = words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
        let plain = |reply: &[u8]| {
            let text = String::from_utf8_lossy(reply).replace("User u has no", "This user has no");
            let text = text.replace(" sanitize-payload", "");
            text.lines().filter(|line| !line.starts_with('$')).collect::<Vec<_>>().join(" ")
        };
        (line, plain(&here.call(&bytes)), plain(&there.next()))
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
        let forms =
            FORMS.lines().filter(|line| !line.is_empty()).map(|form| form.trim_start_matches(['~', '%']));
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
