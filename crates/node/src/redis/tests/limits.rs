//! Every limit, just kept and just passed.

use super::super::connection::{EAGER, FLOODED, WORK_MAX};
use super::{World, encode, encode_line, full, play};
use crate::gateway::{Ask, Login, Outcome, Request, Session};
use crate::limits::Limits;
use expect_test::expect;
use isochrone_core::command::{Operation, REPLY_MAX, Response};
use isochrone_core::{Blob, KeyspaceId, Span};

#[test]
fn before_login_input_is_held_to_its_limit() {
    let mut world = World::new(Login::Required);
    let kept = world.limits.login_input_bytes;
    world.receive(&vec![b'x'; kept]);
    assert_eq!(world.transcript(), "");
    world.receive(b"x");
    expect![[r#"
        then
          -ERR too much input before login·
          closes
    "#]]
    .assert_eq(&format!("then\n{}", world.transcript()));
    assert_eq!(world.counters.limited["login_input"], 1);
}

#[test]
fn before_login_lengths_are_refused_before_their_bytes_come() {
    let mut world = World::new(Login::Required);
    expect![[r#"
        | *11\r\n
          -ERR Protocol error: unauthenticated multibulk length·
          closes
    "#]]
    .assert_eq(&play(&mut world, "| *11\\r\\n"));
    let mut world = World::new(Login::Required);
    expect![[r#"
        | *2\r\n$4\r\nAUTH\r\n$16385\r\n
          -ERR Protocol error: unauthenticated bulk length·
          closes
    "#]]
    .assert_eq(&play(&mut world, "| *2\\r\\n$4\\r\\nAUTH\\r\\n$16385\\r\\n"));
}

#[test]
fn before_login_commands_are_counted() {
    let mut world = World::new(Login::Required);
    expect![[r#"
        > PING
          -NOAUTH Authentication required.·
        > GET a
          -NOAUTH Authentication required.·
        > NOPE
          -ERR unknown command 'NOPE', with args beginning with: ·
        > PING
          -ERR too many commands before login·
          closes
        > PING
          closes
    "#]]
    .assert_eq(&play(&mut world, "> PING\n> GET a\n> NOPE\n> PING\n> PING"));
    assert_eq!(world.counters.limited["login_commands"], 1);
}

#[test]
fn before_login_output_is_held_to_its_limit() {
    let limits = Limits { login_commands: 1_000, ..Limits::default() };
    let mut world = World::with_limits(Login::Required, limits);
    let mut sent = 0;
    while !world.connection.closing() {
        world.receive(b"a\r\n");
        sent += 1;
        assert!(sent < 1_000, "the limit on output must end this");
    }
    assert!(world.out.len() <= world.limits.login_output_bytes + 128);
    assert_eq!(world.counters.limited["login_output"], 1);
}

#[test]
fn before_login_time_is_short() {
    let mut world = World::new(Login::Required);
    expect![[r#"
        + 9
        + 2
          -ERR not logged in within the time allowed·
          closes
    "#]]
    .assert_eq(&play(&mut world, "+ 9\n+ 2"));
    assert_eq!(world.counters.limited["login_time"], 1);
    let mut world = World::new(Login::Open);
    expect![[r#"
        + 3600
    "#]]
    .assert_eq(&play(&mut world, "+ 3600"));
    // Who came while user `default` was off is a stranger while it is off, and for no longer.
    let mut world = World::new(Login::Required);
    let mut text = String::new();
    for (login, script) in [(Login::Open, "+ 3600\n> PING"), (Login::Required, "+ 0\n+ 9\n> PING\n+ 2")] {
        world.login = login;
        text += &play(&mut world, script);
    }
    expect![[r#"
        + 3600
        > PING
          +PONG·
        + 0
        + 9
        > PING
          -NOAUTH Authentication required.·
        + 2
          -ERR not logged in within the time allowed·
          closes
    "#]]
    .assert_eq(&text);
}

#[test]
fn the_time_for_which_a_password_waits_to_be_checked_is_not_the_clients() {
    let mut world = World::new(Login::Required);
    expect![[r#"
        + 4
        > AUTH anna wrong ; PING
          verify 0 anna wrong
          reads no further
        + 3600
          reads no further
        < 0 denied
          -WRONGPASS invalid username-password pair or user is disabled.·-NOAUTH Authentication required.·
        + 5
        + 2
          -ERR not logged in within the time allowed·
          closes
    "#]]
    .assert_eq(&play(&mut world, "+ 4\n> AUTH anna wrong ; PING\n+ 3600\n< 0 denied\n+ 5\n+ 2"));
}

#[test]
fn a_bulk_or_request_above_its_limit_is_refused_by_its_header() {
    let cases = [
        "*2\r\n$3\r\nGET\r\n$67108865\r\n",
        "*1048577\r\n",
        "*3\r\n$3\r\nSET\r\n$67108864\r\n",
        "*2147483648000\r\n",
    ];
    let mut text = String::new();
    for case in cases {
        let mut world = World::new(Login::Open);
        world.receive(case.as_bytes());
        text.push_str(&format!("{}\n{}", case.as_bytes().escape_ascii(), world.transcript()));
    }
    expect![[r#"
        *2\r\n$3\r\nGET\r\n$67108865\r\n
          -ERR Protocol error: invalid bulk length·
          closes
        *1048577\r\n
          -ERR Protocol error: invalid multibulk length·
          closes
        *3\r\n$3\r\nSET\r\n$67108864\r\n
        *2147483648000\r\n
          -ERR Protocol error: invalid multibulk length·
          closes
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_string_grows_to_the_limit_of_a_value_and_no_further() {
    let limits = Limits { bulk_bytes: 100, ..Limits::default() };
    let text = play(&mut World::with_limits(Login::Open, limits), "> SETRANGE k 100 v ; APPEND k v");
    assert!(text.contains(r#"ask 0 k1 AppendWithin { key: "k", value: "v", most: 100 }"#), "{text}");
    assert!(text.contains("maximum allowed size (proto-max-bulk-len)"), "{text}");
}

/// Little is asked, and much were to be done.
#[test]
fn what_would_be_much_work_is_refused() {
    let long = "x".repeat(4097);
    let often = |count: usize, word: &str| format!("{count}{}", format!(" {word}").repeat(count));
    let cases = [
        format!("PUBLISH {long} m"),
        format!("PUBLISH {} m", &long[1..]),
        format!("SUBSCRIBE c {long}"),
        format!("MULTI ; PUBLISH {long} m ; EXEC"),
        format!("ZUNION {} ; ZINTERSTORE t {}", often(17, "z"), often(17, "z")),
        format!("COMMAND DOCS{} ; COMMAND INFO{}", &often(1025, "get")[4..], &often(1025, "nope")[4..]),
        "GETBIT k 4294967295 ; GETBIT k 4294967296 ; SETBIT k 4294967295 1 ; BITFIELD k GET u8 4294967288"
            .to_owned(),
    ];
    let mut text = String::new();
    for case in cases {
        let said = play(&mut World::new(Login::Open), &format!("> {case}"));
        text.extend(said.split_inclusive('\n').skip(1).map(str::trim_start));
    }
    expect![[r#"
          -ERR the name of the channel is longer than 4096 bytes·
          :0·
          -ERR the name of the channel is longer than 4096 bytes·
          +OK·+QUEUED·*1·-ERR the name of the channel is longer than 4096 bytes·
          -ERR a key is named more than 16 times·-ERR a key is named more than 16 times·
          -ERR more than 1024 names of commands·-ERR more than 1024 names of commands·
          ask 0 k1 GetBit { key: "k", offset: 4294967295 }
          ask 2 k1 BitField { key: "k", steps: [Get(BitNumber { offset: 4294967288, width: 8, signed: false })] }
    "#]].assert_eq(&text);
    let said = play(
        &mut World::new(Login::Open),
        &format!("> ZUNION {} ; ZDIFF {}", often(16, "z"), often(17, "z")),
    );
    assert_eq!(said.matches("ask").count(), 2);
}

#[test]
fn a_long_inline_request_is_refused() {
    let mut world = World::new(Login::Open);
    world.receive(&vec![b'x'; world.limits.inline_bytes]);
    assert_eq!(world.transcript(), "");
    world.receive(b"xx");
    expect![[r#"
        then
          -ERR Protocol error: too big inline request·
          closes
    "#]]
    .assert_eq(&format!("then\n{}", world.transcript()));
}

#[test]
fn a_full_pipeline_stops_reading_until_an_answer() {
    let mut world = World::with_limits(Login::Open, Limits { pipeline: 2, ..Limits::default() });
    expect![[r#"
        > GET a ; GET b ; GET c ; GET d
          ask 0 k1 Get { key: "a" }
          ask 1 k1 Get { key: "b" }
          reads no further
        < 1 nil
          ask 2 k1 Get { key: "c" }
          reads no further
        < 0 nil
          ask 3 k1 Get { key: "d" }
          $-1·$-1·
          reads no further
    "#]]
    .assert_eq(&play(&mut world, "> GET a ; GET b ; GET c ; GET d\n< 1 nil\n< 0 nil"));
}

#[test]
fn unsent_output_stops_reading_and_then_closes() {
    let mut world = World::new(Login::Open);
    world.unsent = world.limits.output_bytes + 1;
    world.receive(&encode_line("GET a"));
    assert!(world.requests.is_empty() && !world.connection.wants_input());
    world.pass(Span::from_secs(1));
    world.pass(Span::from_secs(61));
    assert!(world.connection.closing());
    assert_eq!(world.counters.limited["output"], 1);
    assert!(world.hub.is_killed(7), "it does not read the rest either");

    // Who takes some of it every now and then is let take it all.
    let mut world = World::new(Login::Open);
    world.unsent = 3 * world.limits.output_bytes;
    for _ in 0..9 {
        world.pass(Span::from_secs(40));
        world.unsent -= world.limits.output_bytes / 9;
    }
    assert!(!world.connection.closing() && !world.connection.wants_input());

    let mut world = World::new(Login::Open);
    world.unsent = world.limits.output_bytes + 1;
    world.receive(b"");
    assert!(!world.connection.wants_input());
    world.unsent = 0;
    world.pass(Span::from_secs(1));
    assert!(world.connection.wants_input());
}

#[test]
fn short_requests_with_long_replies_are_held_back() {
    let limits = Limits { output_bytes: 256 << 10, ..Limits::default() };
    let mut world = World::with_limits(Login::Open, limits);
    world.receive(&b"COMMAND\r\n".repeat(1_000));
    assert!(world.out.len() < 512 << 10 && !world.connection.wants_input());
    // Behind a command under way the replies wait inside, and count as well.
    let mut world = World::with_limits(Login::Open, world.limits);
    world.receive(b"GET a\r\n");
    world.receive(&b"COMMAND\r\n".repeat(1_000));
    assert!(world.out.is_empty() && !world.connection.wants_input());
    world.answer(0, Outcome::Done(Response::Nil));
    assert!(world.out.len() < 512 << 10);
}

#[test]
fn of_large_answers_no_more_is_written_than_is_read() {
    const MOST: usize = 1 << 20;
    let mut world = World::with_limits(Login::Open, Limits { output_bytes: MOST, ..Limits::default() });
    let value = Blob::from(vec![b'x'; MOST]);
    let large = || Outcome::Done(Response::Bulk(value.clone()));
    let one = MOST + "$1048576\r\n\r\n".len();
    world.receive(&b"GET a\r\n".repeat(300));
    assert_eq!(world.requests.len(), 129, "how large the answers are, nobody knows yet");
    // All but the first two come before the first: one waits for it, and then they wait for the client.
    for at in (2..129).chain([0, 1]) {
        let id = world.requests[at].id;
        world.unsent = world.out.len();
        world.answer(id, large());
        assert!(world.out.len() + world.connection.holds() <= 2 * one + 129);
    }
    assert_eq!(world.requests.len(), 129);
    let (mut answered, mut read) = (129, 0);
    while !world.out.is_empty() {
        read += world.out.len();
        world.out.clear();
        world.unsent = 0;
        world.pass(Span::ZERO);
        while let Some(id) = world.requests.get(answered).map(|request| request.id) {
            world.unsent = world.out.len();
            world.answer(id, large());
            answered += 1;
        }
    }
    assert_eq!((answered, read), (300, 300 * one));
    assert!(!world.connection.closing() && world.connection.holds() == 0);
    assert_eq!(world.counters.limited.get("output"), None);
}

#[test]
fn what_waits_for_the_client_counts_once_the_keyspace_has_let_go_of_it() {
    const SIZE: usize = 64 << 10;
    let mut world = World::with_limits(Login::Open, Limits { output_bytes: SIZE, ..Limits::default() });
    world.receive(&[encode_line("SETRANGE k 0 x"), encode_line("GET k")].concat().repeat(20));
    let ids: Vec<u64> = world.requests.iter().map(|request| request.id).collect();
    assert_eq!(ids.len(), 40);
    let mut keyspace = Vec::new();
    for pair in ids.chunks(2) {
        world.unsent = world.out.len();
        world.answer(pair[0], Outcome::Done(Response::count(SIZE)));
        let value = Blob::from(vec![b'x'; SIZE]);
        keyspace.push(value.clone());
        world.unsent = world.out.len();
        world.answer(pair[1], Outcome::Done(Response::Bulk(value)));
    }
    // The first was written.
    assert!((19..SIZE).contains(&world.connection.holds()));
    drop(keyspace);
    world.unsent = world.out.len();
    world.pass(Span::from_millis(100));
    assert!((19 * SIZE..20 * SIZE).contains(&world.connection.holds()));
    let mut read = 0;
    while !world.out.is_empty() {
        read += world.out.len();
        world.out.clear();
        world.unsent = 0;
        world.pass(Span::ZERO);
    }
    assert_eq!(read, 20 * (":65536\r\n$65536\r\n\r\n".len() + SIZE));
    assert_eq!(world.connection.holds(), 0);
}

#[test]
fn what_others_wait_for_waits_for_no_client_that_does_not_read() {
    let mut world = World::new(Login::Open);
    world.receive(&[encode_line("GET a"), encode_line("LMOVE a b LEFT LEFT")].concat());
    world.hub.wait(8, KeyspaceId(1), &["b".into()]);
    world.unsent = world.limits.output_bytes + 1;
    for id in [0, 1] {
        world.answer(id, Outcome::Done(Response::bulk(b"x")));
    }
    assert!(world.hub.is_told(8) && world.out.is_empty(), "it is told, and the client is not");
    world.unsent = 0;
    world.pass(Span::from_secs(1));
    assert_eq!(world.out, b"$1\r\nx\r\n$1\r\nx\r\n");
}

#[test]
fn answers_that_are_copies_are_few_at_a_time_however_small_those_before_were() {
    let mut world = World::new(Login::Open);
    for id in 0..200 {
        world.receive(b"GET a\r\n");
        world.answer(id, Outcome::Done(Response::Nil));
    }
    let few = ["GETRANGE s 0 -1", "LRANGE l 0 -1", "ZRANGE z 0 9", "MULTI ; DUMP s ; DUMP s ; EXEC"];
    let many = ["GET a", "LRANGE l 0 99", "HMGET h a b"];
    let collections = ["HGETALL h", "SMEMBERS s"].map(|request| (request, EAGER));
    let few = few.map(|request| (request, FLOODED));
    let all = few.into_iter().chain(collections).chain(many.map(|request| (request, 1024)));
    for (request, under_way) in all {
        let request: Vec<u8> = request.split(" ; ").flat_map(encode_line).collect();
        world.requests.clear();
        world.receive(&request.repeat(2000));
        let ids: Vec<u64> = world.requests.iter().map(|request| request.id).collect();
        assert_eq!(ids.len(), under_way, "{}", request.escape_ascii());
        let mut at = 0;
        while let Some(id) = world.requests.get(at).map(|request| request.id) {
            world.answer(id, Outcome::Done(Response::Nil));
            at += 1;
        }
    }
}

#[test]
fn a_transaction_has_no_more_bytes_than_a_command() {
    let limits = Limits { command_bytes: 150, ..Limits::default() };
    let mut world = World::with_limits(Login::Open, limits);
    let set = encode(&[b"SET", b"k", &[b'v'; 40]]);
    world.receive(&encode_line("MULTI"));
    for _ in 0..3 {
        world.receive(&set);
    }
    world.receive(&encode_line("EXEC"));
    expect![[r#"
        then
          +OK·+QUEUED·+QUEUED·-ERR the transaction is too large: it takes 1000000 commands and 150 bytes at most, with the keys watched·-EXECABORT Transaction discarded because of previous errors.·
    "#]].assert_eq(&format!("then\n{}", world.transcript()));

    // What it watches goes with it.
    for (id, count) in [(0, 2), (2, 1)] {
        world.receive(&encode(&[b"WATCH", &[b'k'; 60]]).repeat(count));
        (0..2).for_each(|at| world.answer(id + at, Outcome::Done(Response::Integer(1))));
    }
    world.requests.clear();
    world.receive(&[&encode_line("MULTI")[..], &set, &encode_line("EXEC")].concat());
    expect![[r#"
        then
          +OK·+OK·-ERR too many keys are being watched·+OK·-ERR the transaction is too large: it takes 1000000 commands and 150 bytes at most, with the keys watched·-EXECABORT Transaction discarded because of previous errors.·
    "#]].assert_eq(&format!("then\n{}", world.transcript()));
    assert_eq!(world.counters.limited["command"], 3);
}

/// Each would take another operation, many times as large as the key.
#[test]
fn no_command_asks_for_the_versions_of_any_number_of_keys() {
    let mut world = super::transactional();
    let keys: Vec<String> = (0..100_000).map(|key| format!("k{key}")).collect();
    let request = |name: &'static str| {
        let words = std::iter::once(name).chain(keys.iter().map(String::as_str));
        encode(&words.map(str::as_bytes).collect::<Vec<_>>())
    };
    world.receive(&request("WATCH"));
    world.answer(0, Outcome::Done(Response::Array(vec![Response::Integer(0); keys.len()])));
    world.requests.clear();
    world.receive(&request("MGET"));
    let Some(Request { id, ask: Ask::Execute { command, .. } }) = world.requests.pop() else { panic!() };
    assert!(!matches!(command.operation, Operation::Transaction { .. }));
    world.answer(id, Outcome::Done(Response::Array(vec![Response::Nil; keys.len()])));
    world.out.clear();
    world.receive(&[encode_line("MULTI"), encode_line("EXEC")].concat());
    assert_eq!(world.out, b"+OK\r\n*-1\r\n");
}

#[test]
fn a_transaction_has_no_more_bytes_than_that_when_it_is_unpacked() {
    let limits = Limits { command_bytes: 300, ..Limits::default() };
    let mut world = World::with_limits(Login::Open, limits);
    // A hash of 150 bytes, as Redis packs it.
    let payload = b"\x04\x03\x01c\0\xc0\x0c\xc3\x0b\x40\x96\x03xyzx\xe0\x87\x02\x01yz\x01a\xc0\x01\x09\0\xec\xea\xbcN\xb2_\xbat";
    let restore = encode(&[b"RESTORE", b"k", b"0", payload]);
    for times in [1, 2] {
        let [begin, end] = ["MULTI", "EXEC"].map(encode_line);
        world.receive(&[&begin[..], &restore.repeat(times), &end].concat());
        let asked: Vec<u64> = world.requests.iter().map(|request| request.id).collect();
        assert_eq!(asked.len(), 2 - times);
        asked.into_iter().for_each(|id| world.answer(id, Outcome::Done(Response::Array(vec![Response::Ok]))));
        world.requests.clear();
    }
    expect![[r#"
        then
          +OK·+QUEUED·*1·+OK·+OK·+QUEUED·+QUEUED·-EXECABORT Transaction discarded because of: the transaction is too large: it takes 1000000 commands and 300 bytes at most, with the keys watched·
    "#]].assert_eq(&format!("then\n{}", world.transcript()));
    assert_eq!(world.counters.limited["command"], 1);
    // Where strings lie takes room too.
    world.receive(&encode_line("MULTI"));
    world.receive(&encode(&[b"DEL", b"", b"", b"", b"", b"", b"", b"", b"", b"", b""]).repeat(5));
    world.receive(&encode_line("EXEC"));
    let said = world.transcript();
    assert!(said.contains("-ERR the transaction is too large"), "{said}");
}

#[test]
fn what_a_node_answers_itself_in_a_transaction_is_no_longer_than_a_reply() {
    let mut world = World::new(Login::Open);
    world.receive(&encode_line("COMMAND"));
    let one = world.out.len();
    world.out.clear();
    let times = REPLY_MAX / one + 10;
    let [begin, end] = ["MULTI", "EXEC"].map(encode_line);
    world.receive(&[&begin[..], &encode_line("COMMAND").repeat(times), &end].concat());
    assert!(world.out.len() < REPLY_MAX + one + (64 << 10), "{}", world.out.len());
    assert!(
        world
            .out
            .ends_with(b"-ERR the reply would be longer than 120 MiB; ask for fewer elements at once\r\n")
    );
}

/// Else the others would wait for as long as a pipeline of requests takes that are answered at once.
#[test]
fn who_asks_for_much_goes_on_in_the_next_round() {
    let mut world = World::new(Login::Open);
    for channel in 0..WORK_MAX / 2 {
        world.hub.subscribe(8, crate::hub::Topic::Channel, &channel.to_string().into_bytes().into());
    }
    world.receive(&[encode_line("PUBSUB CHANNELS z").repeat(5), encode_line("PING")].concat());
    let mut answered = vec![world.transcript().matches("*0").count()];
    assert!(!world.connection.wants_input());
    while world.hub.mail() > 0 {
        world.deliver();
        let told = world.transcript();
        answered.push(told.matches("*0").count());
        assert_eq!(told.contains("+PONG"), world.connection.wants_input(), "{told}");
    }
    assert_eq!(answered, [2, 2, 1]);
    // So does who tells much.
    let mut world = World::new(Login::Open);
    for number in 0..WORK_MAX / 2 {
        world.hub.subscribe(100 + number as u64, crate::hub::Topic::Pattern, &"*".into());
    }
    world.receive(&[encode_line("PUBLISH c m").repeat(5), encode_line("PING")].concat());
    assert_eq!(world.transcript(), "  :100000·:100000·\n  reads no further\n");
    // And who asks after many names.
    let mut world = World::new(Login::Open);
    let names = vec!["c"; WORK_MAX / 8].join(" ");
    world.receive(&[encode_line(&format!("PUBSUB NUMSUB {names}")), encode_line("PING")].concat());
    let told = world.transcript();
    assert!(told.contains(":0·") && !told.contains("+PONG"));
    assert!(!world.connection.wants_input());
}

#[test]
fn names_and_patterns_are_short() {
    let mut world = World::new(Login::Open);
    let long = [b'x'; 4_097];
    let pattern = |number: usize| [format!("{number:04}").as_bytes(), &long[5..]].concat();
    let words = std::iter::once(b"PSUBSCRIBE".to_vec()).chain((0..64).map(pattern)).collect::<Vec<_>>();
    world.receive(&encode(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    world.out.clear();
    world.receive(&encode(&[b"PSUBSCRIBE", b"x"]));
    world.receive(&encode(&[b"PUNSUBSCRIBE", &pattern(3)]));
    assert!(world.transcript().contains("-ERR too many subscriptions of one connection"));
    world.receive(&encode(&[b"PSUBSCRIBE", b"x"]));
    assert_eq!(world.transcript().trim(), "*3·$10·psubscribe·$1·x·:64·");
    world.receive(&encode(&[b"RESET"]));
    world.transcript();
    for words in [
        &[&b"COMMAND"[..], b"LIST", b"FILTERBY", b"PATTERN", &long][..],
        &[b"CONFIG", b"GET", &long],
        &[b"CLIENT", b"SETNAME", &long],
        &[b"CLIENT", b"SETINFO", b"LIB-NAME", &long],
    ] {
        world.receive(&encode(words));
    }
    expect![[r#"
        then
          -ERR the pattern is longer than 4096 bytes·-ERR the pattern is longer than 4096 bytes·-ERR the name is longer than 4096 bytes·-ERR the name is longer than 4096 bytes·
    "#]].assert_eq(&format!("then\n{}", world.transcript()));
    world.receive(&encode(&[b"CLIENT", b"SETNAME", &long[1..]]));
    assert_eq!(world.transcript().trim(), "+OK·");
}

/// Of Redis.
const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.·";

#[test]
fn where_a_node_is_full_what_may_make_data_grow_is_refused() {
    let mut world = full();
    let text = play(&mut world, "> SET a 1 ; LPUSH l 1 ; SETBIT a 1 1 ; BLMOVE a b LEFT LEFT 0 ; SORT a");
    assert_eq!((text.matches(OOM).count(), text.contains("  ask ")), (5, false), "{text}");
    // rq's lock, whose first write is a SET.
    let text = play(&mut world, "> EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 1");
    assert_eq!((text.matches(OOM).count(), text.contains("  ask ")), (1, false), "{text}");
    let counters = &world.counters;
    assert_eq!((counters.limited["memory"], counters.errors["OOM"], counters.rejected["set"]), (6, 6, 1));
    // redis-py's, which is released, and one that expires later.
    let text = play(
        &mut world,
        "> PUBLISH c m ; GET a ; DEL a ; EXPIRE a 1 ; LPOP l ; SELECT 3 ; SELECT 0
         > EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock me
         > EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock me 1000
         > BLPOP l 1",
    );
    assert_eq!((text.matches("OOM").count(), text.matches("  ask ").count()), (0, 7), "{text}");
    // In another keyspace there is room.
    let text = play(&mut full(), "> SELECT 3 ; SET a 1");
    assert!(text.contains("  ask 0 k2 Set"), "{text}");
}

#[test]
fn where_a_node_is_full_a_transaction_is_refused_for_what_may_make_data_grow_in_it() {
    let text = play(&mut full(), "> MULTI ; SET a 1 ; DEL a ; EXEC");
    let told = format!("+OK·{OOM}+QUEUED·-EXECABORT Transaction discarded because of previous errors.·");
    assert!(text.contains(&told), "{text}");
    let text = play(&mut full(), "> MULTI ; DEL a ; GET a ; EXEC");
    assert!(text.contains("  ask 0 k1 Transaction") && !text.contains("OOM"), "{text}");
    // It is full only when all is queued.
    for (queued, refused) in [
        ("SET a 1", true),
        ("EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 1", true),
        ("DEL a", false),
    ] {
        let mut world = World::new(Login::Open);
        play(&mut world, &format!("> MULTI ; {queued}"));
        world.keyspaces = full().keyspaces;
        let text = play(&mut world, "> EXEC");
        let told = "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.·";
        assert_eq!((text.contains(told), text.contains("  ask ")), (refused, !refused), "{queued}: {text}");
        if refused {
            assert!(play(&mut world, "> EXEC").contains("EXEC without MULTI"), "it is over");
        }
    }
}

#[test]
fn how_much_memory_may_be_used_is_set_and_told_in_the_words_of_redis() {
    let mut world = World::new(Login::Open);
    for (given, bytes) in [
        ("100", "100"),
        ("100b", "100"),
        ("2k", "2000"),
        ("2KB", "2048"),
        ("100mb", "104857600"),
        ("3m", "3000000"),
        ("6gb", "6442450944"),
        ("1G", "1000000000"),
        ("0", "0"),
    ] {
        let text = play(&mut world, &format!("> CONFIG SET maxmemory {given} ; CONFIG GET maxmemory"));
        let told = format!("+OK·*2·$9·maxmemory·${}·{bytes}·", bytes.len());
        assert!(text.contains(&told), "{text}");
    }
    for given in ["x", "-1", "1tb", "1.5gb", "mb", "99999999999gb"] {
        let text = play(&mut world, &format!("> CONFIG SET maxmemory {given}"));
        let refused = "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value·";
        assert!(text.contains(refused), "{text}");
    }
    world.node.memory.set_limit(6 << 30);
    world.node.memory.note(3 << 30);
    world.node.memory_bytes = 4 << 30;
    let text = play(&mut world, "> INFO memory");
    for told in [
        "·used_memory:3221225472·used_memory_human:3.00G·used_memory_rss:4294967296·",
        "·maxmemory:6442450944·maxmemory_human:6.00G·maxmemory_policy:noeviction·",
    ] {
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn a_large_value_does_not_stay_in_the_buffers() {
    let mut world = World::new(Login::Open);
    world.receive(&encode(&[b"SET", b"k", &vec![b'v'; 8 << 20]]));
    world.answer(0, Outcome::Done(Response::Ok));
    assert!(world.connection.buffered() < 1 << 20);
}
