//! MONITOR, with what redis-server 7.0.15 has told of the same requests.

use super::{World, encode, encode_line, play};
use crate::gateway::{Login, Outcome};
use crate::hub::{Notice, SEEN_MAX};
use expect_test::expect;
use isochrone_core::command::Response;

/// What another connection is told of the requests of this one, and whether it is told all.
fn told(world: &mut World) -> Option<String> {
    let mut told = String::new();
    for (number, notice) in world.hub.take_mail() {
        let Notice::Seen(lines) = notice else { continue };
        assert_eq!(number, 9);
        told.push_str(std::str::from_utf8(&lines?).unwrap());
    }
    Some(told)
}

fn monitored(requests: &[Vec<u8>]) -> String {
    let mut world = World::new(Login::Open);
    world.receive(&encode_line("SET before 1"));
    assert!(world.hub.monitor(9) && !world.hub.monitor(9));
    let mut text = String::new();
    for request in requests {
        world.receive(request);
        // Behind some an answer is waited for.
        for asked in std::mem::take(&mut world.requests) {
            world.answer(asked.id, Outcome::Done(Response::Ok));
        }
        text.push_str(&told(&mut world).unwrap());
    }
    text
}

#[test]
fn what_is_asked_is_told_as_redis_tells_it() {
    let line = |text: &str| encode_line(text);
    let told = monitored(&[
        line("set a 1"),
        encode(&[b"SET", b"k", b"a\x00\n\r\t\x07\x08\"\\\xc3\xa9 b", b""]),
        line("NOSUCH a"),
        line("GET"),
        line("CONFIG GET port"),
        line("ACL SETUSER u >secret"),
        line("AUTH foo"),
        line("HELLO x AUTH u pw AUTH u pw"),
        line("INCR k x"),
        line("SELECT 3"),
        line("BLPOP q 1"),
    ]);
    expect![[r#"
        +1700000000.000000 [0 127.0.0.1:50000] "set" "a" "1"
        +1700000000.000000 [0 127.0.0.1:50000] "SET" "k" "a\x00\n\r\t\a\b\"\\\xc3\xa9 b" ""
        +1700000000.000000 [0 127.0.0.1:50000] "AUTH" "(redacted)"
        +1700000000.000000 [0 127.0.0.1:50000] "HELLO" "x" "AUTH" "(redacted)" "(redacted)" "AUTH" "(redacted)" "(redacted)"
        +1700000000.000000 [3 127.0.0.1:50000] "SELECT" "3"
        +1700000000.000000 [3 127.0.0.1:50000] "BLPOP" "q" "1"
    "#]]
    .assert_eq(&told.replace("\r\n", "\n"));
    // These wait for the password to be checked.
    for (request, words) in [
        ("AUTH u foo", r#""AUTH" "(redacted)" "(redacted)""#),
        ("HELLO 3 SETNAME x AUTH u pw", r#""HELLO" "3" "SETNAME" "x" "AUTH" "(redacted)" "(redacted)""#),
    ] {
        assert!(monitored(&[line(request)]).ends_with(&format!(":50000] {words}\r\n")), "{request}");
    }
}

#[test]
fn what_is_queued_is_told_when_it_is_executed() {
    let line = |text: &str| encode_line(text);
    let told = monitored(&[
        line("MULTI"),
        line("SET a 2"),
        line("AUTH secret"),
        line("get a"),
        line("CONFIG GET port"),
        line("DISCARD"),
        line("MULTI"),
        line("SET a 2"),
        line("CONFIG GET port"),
        line("get a"),
        line("EXEC"),
        line("EXEC"),
        line("MULTI"),
        line("RESET"),
        line("SELECT 3"),
        line("GET a"),
        line("QUIT"),
    ]);
    expect![[r#"
        +1700000000.000000 [0 127.0.0.1:50000] "MULTI"
        +1700000000.000000 [0 127.0.0.1:50000] "DISCARD"
        +1700000000.000000 [0 127.0.0.1:50000] "MULTI"
        +1700000000.000000 [0 127.0.0.1:50000] "SET" "a" "2"
        +1700000000.000000 [0 127.0.0.1:50000] "get" "a"
        +1700000000.000000 [0 127.0.0.1:50000] "EXEC"
        +1700000000.000000 [0 127.0.0.1:50000] "EXEC"
        +1700000000.000000 [0 127.0.0.1:50000] "MULTI"
        +1700000000.000000 [0 127.0.0.1:50000] "RESET"
        +1700000000.000000 [3 127.0.0.1:50000] "SELECT" "3"
        +1700000000.000000 [3 127.0.0.1:50000] "GET" "a"
        +1700000000.000000 [3 127.0.0.1:50000] "QUIT"
    "#]]
    .assert_eq(&told.replace("\r\n", "\n"));
}

#[test]
fn who_monitors_asks_nothing_of_keys_until_it_is_as_new() {
    let mut world = World::new(Login::Open);
    let script = "> MULTI ; MONITOR ; EXEC
                  > MONITOR
                  > GET a ; PUBLISH c m ; BLPOP a 0 ; PING
                  > MONITOR
                  > CLIENT INFO
                  > CLIENT REPLY OFF
                  > PING
                  > CLIENT REPLY ON
                  > RESET
                  > GET a
                  > QUIT";
    let text = play(&mut world, script);
    let at = text.find("id=7").unwrap();
    assert!(text[at..].contains(" flags=O "), "{text}");
    let text: String =
        text.lines().filter(|line| !line.contains("id=7")).map(|line| format!("{line}\n")).collect();
    expect![[r#"
        > MULTI ; MONITOR ; EXEC
          +OK·+QUEUED·*1·-ERR MONITOR isn't allowed for DENY BLOCKING client·
        > MONITOR
          +OK·
        > GET a ; PUBLISH c m ; BLPOP a 0 ; PING
          -ERR Replica can't interact with the keyspace·-ERR Replica can't interact with the keyspace·-ERR Replica can't interact with the keyspace·+PONG·+1700000000.000000 [0 127.0.0.1:50000] "PING"·
        > MONITOR
        > CLIENT INFO
        > CLIENT REPLY OFF
        > PING
        > CLIENT REPLY ON
          +OK·+1700000000.000000 [0 127.0.0.1:50000] "CLIENT" "REPLY" "ON"·
        > RESET
          +RESET·
        > GET a
          ask 0 k1 Get { key: "a" }
        > QUIT
          reads no further
    "#]].assert_eq(&text);
}

#[test]
fn who_does_not_keep_up_is_closed() {
    let mut world = World::new(Login::Open);
    play(&mut world, "> MONITOR");
    world.unsent = 2 * world.limits.output_bytes + 1;
    let text = play(&mut world, "! publish c m");
    assert!(!text.contains("closes"), "it has not subscribed");
    world.hub.show(|seen| seen.extend(b"+line\r\n"));
    assert!(play(&mut world, "! publish c m").contains("closes"));
    assert_eq!(world.counters.limited["output"], 1);
    // More at once than is kept is told to nobody.
    let mut world = World::new(Login::Open);
    world.hub.monitor(9);
    let set = encode(&[b"SET", b"k", &vec![0; SEEN_MAX / 4 + 1]]);
    world.receive(&set);
    assert_eq!(told(&mut world), None);
    world.receive(&encode_line("PING"));
    assert!(told(&mut world).unwrap().ends_with(" \"PING\"\r\n"));
}
