//! Connections from their first bytes to their last, as the clients of the wild send them.

use super::{World, check, encode_line, play};
use crate::gateway::{Ask, Login, Outcome, Request};
use expect_test::expect;
use isochrone_core::command::{Operation, Response};
use isochrone_core::{Blob, Command, KeyspaceId, Stamp, StateMachine};
use isochrone_store::Store;

#[test]
fn redis_cli_asks_and_is_answered() {
    check(
        Login::Open,
        "> PING
         > set a 1
         < 0 ok
         > get a
         < 1 bulk 1
         | PING hello\\r\\n
         | set b \"two words\"\\r\\n
         < 2 ok
         > QUIT",
        expect![[r#"
            > PING
              +PONG·
            > set a 1
              ask 0 k1 Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }
            < 0 ok
              +OK·
            > get a
              ask 1 k1 Get { key: "a" }
            < 1 bulk 1
              $1·1·
            | PING hello\r\n
              $5·hello·
            | set b "two words"\r\n
              ask 2 k1 Set { key: "b", value: "two words", condition: Always, expiry: Clear, get: false }
            < 2 ok
              +OK·
            > QUIT
              +OK·
              closes
        "#]],
    );
}

#[test]
fn clients_of_three_languages_shake_hands() {
    check(
        Login::Open,
        "> HELLO 3 ; CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip ; CLIENT SETINFO LIB-NAME redis-py ; CLIENT SETINFO LIB-VER 8.1.0 ; SELECT 3 ; GET k
         < 0 nil
         > CLIENT SETINFO LIB-NAME go-redis(,go1.25) ; CLIENT INFO",
        expect![[r#"
            > HELLO 3 ; CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip ; CLIENT SETINFO LIB-NAME redis-py ; CLIENT SETINFO LIB-VER 8.1.0 ; SELECT 3 ; GET k
              ask 0 k2 Get { key: "k" }
              %7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.·+OK·+OK·+OK·
            < 0 nil
              _·
            > CLIENT SETINFO LIB-NAME go-redis(,go1.25) ; CLIENT INFO
              +OK·=335·txt:id=7 addr=127.0.0.1:50000 laddr=127.0.0.1:7001 fd=-1 name= age=100 idle=100 flags=N db=3 sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=client|info user=default redir=-1 resp=3 lib-name=go-redis(,go1.25) lib-ver=8.1.0 tot-net-in=0 tot-net-out=0\n·
        "#]],
    );
}

#[test]
fn a_pipeline_is_asked_at_once_and_answered_in_order() {
    check(
        Login::Open,
        "> SET a 1 ; GET a ; PING ; INCR n ; ECHO x
         < 1 bulk 1
         < 3 int 1
         < 0 ok",
        expect![[r#"
            > SET a 1 ; GET a ; PING ; INCR n ; ECHO x
              ask 0 k1 Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }
              ask 1 k1 Get { key: "a" } in order
              ask 3 k1 IncrBy { key: "n", by: 1 }
            < 1 bulk 1
            < 3 int 1
            < 0 ok
              +OK·$1·1·+PONG·:1·$1·x·
        "#]],
    );
}

#[test]
fn replies_take_the_shape_of_the_version() {
    check(
        Login::Open,
        "> HGETALL h ; SMEMBERS s ; ZSCORE z a ; ZRANGE z 0 -1 WITHSCORES ; ZMPOP 1 z MIN ; GET n ; LPOP l 2 ; TYPE h ; SCAN 0
         < 0 map bulk f, bulk v
         < 1 set bulk a, bulk b
         < 2 double 1.5
         < 3 pairs bulk a, double 1
         < 4 keyed bulk z, bulk a, double 1
         < 5 nil
         < 6 nilarray
         < 7 hash
         < 8 scan
         > HELLO 3
         > HGETALL h ; SMEMBERS s ; ZSCORE z a ; ZRANGE z 0 -1 WITHSCORES ; ZMPOP 1 z MIN ; GET n ; LPOP l 2
         < 9 map bulk f, bulk v
         < 10 set bulk a, bulk b
         < 11 double 1.5
         < 12 pairs bulk a, double 1
         < 13 keyed bulk z, bulk a, double 1
         < 14 nil
         < 15 nilarray",
        expect![[r#"
            > HGETALL h ; SMEMBERS s ; ZSCORE z a ; ZRANGE z 0 -1 WITHSCORES ; ZMPOP 1 z MIN ; GET n ; LPOP l 2 ; TYPE h ; SCAN 0
              ask 0 k1 HGetAll { key: "h" }
              ask 1 k1 SMembers { key: "s" }
              ask 2 k1 ZScore { key: "z", member: "a" }
              ask 3 k1 ZRange { key: "z", slice: Slice { selection: Index { start: 0, stop: -1 }, reverse: false, limit: None }, with_scores: true }
              ask 4 k1 ZMPop { keys: ["z"], end: Least, count: 1 } in order
              ask 5 k1 Get { key: "n" } in order
              ask 6 k1 Pop { key: "l", side: Left, count: Some(2) } in order
              ask 7 k1 Type { key: "h" } in order
              ask 8 k1 Scan { cursor: 0, count: 10, pattern: None, kind: None } in order
            < 0 map bulk f, bulk v
              *2·$1·f·$1·v·
            < 1 set bulk a, bulk b
              *2·$1·a·$1·b·
            < 2 double 1.5
              $3·1.5·
            < 3 pairs bulk a, double 1
              *2·$1·a·$1·1·
            < 4 keyed bulk z, bulk a, double 1
              *2·$1·z·*1·*2·$1·a·$1·1·
            < 5 nil
              $-1·
            < 6 nilarray
              *-1·
            < 7 hash
              +hash·
            < 8 scan
              *2·$2·17·*2·$1·a·$1·b·
            > HELLO 3
              %7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·
            > HGETALL h ; SMEMBERS s ; ZSCORE z a ; ZRANGE z 0 -1 WITHSCORES ; ZMPOP 1 z MIN ; GET n ; LPOP l 2
              ask 9 k1 HGetAll { key: "h" }
              ask 10 k1 SMembers { key: "s" }
              ask 11 k1 ZScore { key: "z", member: "a" }
              ask 12 k1 ZRange { key: "z", slice: Slice { selection: Index { start: 0, stop: -1 }, reverse: false, limit: None }, with_scores: true }
              ask 13 k1 ZMPop { keys: ["z"], end: Least, count: 1 } in order
              ask 14 k1 Get { key: "n" } in order
              ask 15 k1 Pop { key: "l", side: Left, count: Some(2) } in order
            < 9 map bulk f, bulk v
              %1·$1·f·$1·v·
            < 10 set bulk a, bulk b
              ~2·$1·a·$1·b·
            < 11 double 1.5
              ,1.5·
            < 12 pairs bulk a, double 1
              *1·*2·$1·a·,1·
            < 13 keyed bulk z, bulk a, double 1
              *2·$1·z·*1·*2·$1·a·,1·
            < 14 nil
              _·
            < 15 nilarray
              _·
        "#]],
    );
}

#[test]
fn a_transaction_is_one_request() {
    check(
        Login::Open,
        "> MULTI ; SET a 1 ; INCR b ; PING ; SET a 1 BAD ; EXEC
         < 0 array ok, int 3
         > MULTI ; NOPE ; SET a 1 ; EXEC
         > MULTI ; GET ; EXEC
         > MULTI ; MULTI ; WATCH a ; EXEC
         > EXEC ; DISCARD
         > MULTI ; SET a 1 ; DISCARD ; GET a
         > MULTI ; SET a 1 ; EXEC x ; GET a ; EXEC",
        expect![[r#"
            > MULTI ; SET a 1 ; INCR b ; PING ; SET a 1 BAD ; EXEC
              ask 0 k1 Transaction { watched: [], operations: [Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }, IncrBy { key: "b", by: 1 }] }
              +OK·+QUEUED·+QUEUED·+QUEUED·+QUEUED·
              reads no further
            < 0 array ok, int 3
              *4·+OK·:3·+PONG·-ERR syntax error·
            > MULTI ; NOPE ; SET a 1 ; EXEC
              +OK·-ERR unknown command 'NOPE', with args beginning with: ·+QUEUED·-EXECABORT Transaction discarded because of previous errors.·
            > MULTI ; GET ; EXEC
              +OK·-ERR wrong number of arguments for 'get' command·-EXECABORT Transaction discarded because of previous errors.·
            > MULTI ; MULTI ; WATCH a ; EXEC
              +OK·-ERR MULTI calls can not be nested·-ERR WATCH inside MULTI is not allowed·*0·
            > EXEC ; DISCARD
              -ERR EXEC without MULTI·-ERR DISCARD without MULTI·
            > MULTI ; SET a 1 ; DISCARD ; GET a
              ask 1 k1 Get { key: "a" }
              +OK·+QUEUED·+OK·
            > MULTI ; SET a 1 ; EXEC x ; GET a ; EXEC
              ask 3 k1 Get { key: "a" }
        "#]],
    );
}

#[test]
fn watched_versions_go_into_the_transaction() {
    check(
        Login::Open,
        "> WATCH a b ; MULTI ; SET a 1 ; EXEC ; GET a
         < 0 array int 4, int 6
         < 2 nilarray
         < 3 bulk 9
         > WATCH a
         < 4 int 5
         > UNWATCH ; MULTI ; GET a ; EXEC
         < 5 array nil
         > WATCH a ; MULTI ; GET a ; EXEC
         < 6 unknown timed out after 15 s
         > WATCH a ; SELECT 3 ; MULTI ; GET a ; EXEC
         < 8 int 1",
        expect![[r#"
            > WATCH a b ; MULTI ; SET a 1 ; EXEC ; GET a
              ask 0 k1 Transaction { watched: [], operations: [Version { key: "a" }, Version { key: "b" }] }
            < 0 array int 4, int 6
              ask 2 k1 Transaction { watched: [("a", 4), ("b", 6)], operations: [Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }] }
              ask 3 k1 Get { key: "a" } in order
              +OK·+OK·+QUEUED·
            < 2 nilarray
              *-1·
            < 3 bulk 9
              $1·9·
            > WATCH a
              ask 4 k1 Version { key: "a" }
            < 4 int 5
              +OK·
            > UNWATCH ; MULTI ; GET a ; EXEC
              ask 5 k1 Transaction { watched: [], operations: [Get { key: "a" }] }
              +OK·+OK·+QUEUED·
            < 5 array nil
              *1·$-1·
            > WATCH a ; MULTI ; GET a ; EXEC
              ask 6 k1 Version { key: "a" }
            < 6 unknown timed out after 15 s
              -UNKNOWN the outcome is not known, the command may yet take effect: timed out after 15 s·+OK·+QUEUED·*-1·
            > WATCH a ; SELECT 3 ; MULTI ; GET a ; EXEC
              ask 8 k1 Version { key: "a" }
            < 8 int 1
              +OK·+OK·+OK·+QUEUED·-EXECABORT the watched keys are in another keyspace; a transaction stays in one keyspace·
        "#]],
    );
}

/// The absence of a key has a number of its own, which it has only while it lasts: what comes and is gone again makes EXEC fail.
#[test]
fn of_an_absent_key_a_number_is_asked_for() {
    let mut world = World::new(Login::Open);
    let asked = |world: &mut World| {
        let requests = std::mem::take(&mut world.requests);
        let operations = requests.into_iter().map(|Request { id, ask }| match ask {
            Ask::Execute { keyspace: KeyspaceId(1), command } => (id, command.operation),
            other => panic!("{other:?}"),
        });
        operations.collect::<Vec<_>>()
    };
    let watched = |operation: &Operation| match operation {
        Operation::Watch { key, seed } => (key.clone(), *seed),
        other => panic!("{other:?}"),
    };
    world.receive(&[encode_line("WATCH lock"), encode_line("GET lock")].concat());
    assert_eq!(asked(&mut world), [(0, Operation::Version { key: "lock".into() })]);
    world.answer(0, Outcome::Done(Response::Integer(0)));
    let sent = asked(&mut world);
    let [(0, again)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((watched(again).0, world.out.len()), (Blob::from("lock"), 0), "what follows waits for that");
    world.answer(0, Outcome::Done(Response::Integer(6)));
    assert_eq!(asked(&mut world), [(1, Operation::Get { key: "lock".into() })], "nothing is asked beside it");
    world.answer(1, Outcome::Done(Response::Nil));

    // Of several all are asked for once more: what was there may be gone.
    world.receive(&encode_line("WATCH a b"));
    assert_eq!(asked(&mut world).len(), 1);
    world.answer(2, Outcome::Done(Response::Array(vec![Response::Integer(7), Response::Integer(0)])));
    let sent = asked(&mut world);
    let [(2, Operation::Transaction { watched: none, operations })] = &sent[..] else { panic!("{sent:?}") };
    let [(first, seed), (second, another)] = [&operations[0], &operations[1]].map(watched);
    assert!(none.is_empty() && operations.len() == 2 && seed != another);
    assert_eq!([first, second], ["a", "b"].map(Blob::from));
    world.answer(2, Outcome::Done(Response::Array(vec![Response::Integer(7), Response::Integer(10)])));
    world.receive(&[encode_line("MULTI"), encode_line("SET lock me"), encode_line("EXEC")].concat());
    let sent = asked(&mut world);
    let [(_, Operation::Transaction { watched, .. })] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(
        watched[..],
        [("lock", 6), ("a", 7), ("b", 10)].map(|(key, number)| (Blob::from(key), number))
    );
}

/// As arq takes its jobs: only the lock is watched, and what it guards is read behind that.
#[test]
fn a_lock_that_came_and_is_gone_again_was_there() {
    let mut world = World::new(Login::Open);
    let mut said = |line: &str, store: &mut Store| {
        for words in line.split(" ; ") {
            world.receive(&encode_line(words));
            while !world.requests.is_empty() {
                let Request { id, ask } = world.requests.remove(0);
                let Ask::Execute { command, .. } = ask else { panic!("nobody logs in") };
                world.answer(id, Outcome::Done(store.apply(&command)));
            }
        }
        String::from_utf8(std::mem::take(&mut world.out)).unwrap()
    };
    let mut store = Store::default();
    assert_eq!(said("WATCH lock ; EXISTS lock", &mut store), "+OK\r\n:0\r\n");
    let taken = Operation::IncrBy { key: "lock".into(), by: 1 };
    for operation in [taken, Operation::Del { keys: ["lock".into()].into() }] {
        store.apply(&Command::new(Stamp::ZERO, operation));
    }
    assert_eq!(said("MULTI ; SET lock me ; EXEC", &mut store), "+OK\r\n+QUEUED\r\n*-1\r\n");
    let again = said("WATCH lock ; EXISTS lock ; MULTI ; SET lock me ; EXEC", &mut store);
    assert_eq!(again, "+OK\r\n:0\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
}

#[test]
fn a_watch_that_is_let_go_asks_no_more() {
    let absent = Outcome::Done(Response::Integer(0));
    for (let_go, answer) in [(true, absent), (false, Outcome::Refused("again".into()))] {
        let mut world = World::new(Login::Open);
        world.receive(&encode_line("WATCH a"));
        if let_go {
            world.receive(&encode_line("UNWATCH"));
        }
        world.requests.clear();
        world.answer(0, answer);
        assert!(world.requests.is_empty());
    }
}

/// Where absences have no numbers, it has the same version again when it is gone.
#[test]
fn what_was_read_of_a_watched_key_that_was_absent_must_not_have_been_there() {
    super::check_transactional(
        "> WATCH a
         < 0 int 0
         > GET a
         < 1 array bulk tok, int 7
         > GET a
         < 2 nil
         > MULTI ; SET copy tok ; EXEC ; GET a
         < 3 nil
         > WATCH b
         < 4 int 0
         > HGET b f
         < 5 array wrongtype, int 7
         > MULTI ; SET copy tok ; EXEC
         > WATCH c
         < 6 int 0
         > GETDEL c
         < 7 unknown timed out after 15 s
         > MULTI ; SET copy tok ; EXEC",
        expect![[r#"
            > WATCH a
              ask 0 k1 Version { key: "a" }
            < 0 int 0
              +OK·
            > GET a
              ask 1 k1 Transaction { watched: [], operations: [Get { key: "a" }, Version { key: "a" }] }
            < 1 array bulk tok, int 7
              $3·tok·
            > GET a
              ask 2 k1 Get { key: "a" }
            < 2 nil
              $-1·
            > MULTI ; SET copy tok ; EXEC ; GET a
              ask 3 k1 Get { key: "a" }
              +OK·+QUEUED·*-1·
            < 3 nil
              $-1·
            > WATCH b
              ask 4 k1 Version { key: "b" }
            < 4 int 0
              +OK·
            > HGET b f
              ask 5 k1 Transaction { watched: [], operations: [HGet { key: "b", field: "f" }, Version { key: "b" }] }
            < 5 array wrongtype, int 7
              -WRONGTYPE Operation against a key holding the wrong kind of value·
            > MULTI ; SET copy tok ; EXEC
              +OK·+QUEUED·*-1·
            > WATCH c
              ask 6 k1 Version { key: "c" }
            < 6 int 0
              +OK·
            > GETDEL c
              ask 7 k1 Transaction { watched: [], operations: [Version { key: "c" }, GetDel { key: "c" }, Version { key: "c" }] }
            < 7 unknown timed out after 15 s
              -UNKNOWN the outcome is not known, the command may yet take effect: timed out after 15 s·
            > MULTI ; SET copy tok ; EXEC
              +OK·+QUEUED·*-1·
        "#]],
    );
}

/// Of several commands under way before EXEC each counts, but only those that touch such a key, in its keyspace. What the
/// connection itself has put there counts as well, as in Redis.
#[test]
fn what_touches_watched_keys_that_were_absent_says_whether_they_were() {
    super::check_transactional(
        "> WATCH a b c
         < 0 array int 0, int 4, int 0
         > GET d ; EXISTS c b a ; SELECT 3 ; GET a ; SELECT 0 ; INCR a ; MULTI ; SET copy 1 ; EXEC
         < 1 nil
         < 2 array int 1, int 0, int 0
         < 4 bulk x
         < 6 array int 0, int 1, int 5
         > WATCH a b
         < 8 array int 0, int 4
         > EXISTS a ; GETDEL a
         < 9 array int 0, int 0
         < 10 refused try again
         > MULTI ; SET copy 1 ; EXEC",
        expect![[r#"
            > WATCH a b c
              ask 0 k1 Transaction { watched: [], operations: [Version { key: "a" }, Version { key: "b" }, Version { key: "c" }] }
            < 0 array int 0, int 4, int 0
              +OK·
            > GET d ; EXISTS c b a ; SELECT 3 ; GET a ; SELECT 0 ; INCR a ; MULTI ; SET copy 1 ; EXEC
              ask 1 k1 Get { key: "d" }
              ask 2 k1 Transaction { watched: [], operations: [Exists { keys: ["c", "b", "a"] }, Version { key: "a" }, Version { key: "c" }] }
              ask 4 k2 Get { key: "a" }
              ask 6 k1 Transaction { watched: [], operations: [Version { key: "a" }, IncrBy { key: "a", by: 1 }, Version { key: "a" }] } in order
            < 1 nil
              $-1·
            < 2 array int 1, int 0, int 0
              :1·+OK·
            < 4 bulk x
              $1·x·+OK·
            < 6 array int 0, int 1, int 5
              :1·+OK·+QUEUED·*-1·
            > WATCH a b
              ask 8 k1 Transaction { watched: [], operations: [Version { key: "a" }, Version { key: "b" }] }
            < 8 array int 0, int 4
              +OK·
            > EXISTS a ; GETDEL a
              ask 9 k1 Transaction { watched: [], operations: [Exists { keys: ["a"] }, Version { key: "a" }] }
              ask 10 k1 Transaction { watched: [], operations: [Version { key: "a" }, GetDel { key: "a" }, Version { key: "a" }] } in order
            < 9 array int 0, int 0
              :0·
            < 10 refused try again
              -TRYAGAIN try again·
            > MULTI ; SET copy 1 ; EXEC
              ask 11 k1 Transaction { watched: [("a", 0), ("b", 4)], operations: [Set { key: "copy", value: "1", condition: Always, expiry: Clear, get: false }] }
              +OK·+QUEUED·
        "#]],
    );
}

/// Those that are one operation, and those that take several.
#[test]
fn scripts_say_so_too() {
    super::check_transactional(
        "> WATCH lock
         < 0 int 0
         > EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 61
         < 1 array int 0, ok, int 1, int 5
         > MULTI ; SET copy 1 ; EXEC
         > WATCH lock
         < 2 int 0
         > EVALSHA 88c24ce5e430e6db7e8c72c0e7ef1f7af9a5a838 1 lock me 5000
         < 3 nilarray
         > MULTI ; SET copy 1 ; EXEC
         > WATCH lock
         < 4 int 0
         > EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 5
         < 5 array int 0, int 0, nil, int 0
         > MULTI ; SET copy 1 ; EXEC",
        expect![[r#"
            > WATCH lock
              ask 0 k1 Version { key: "lock" }
            < 0 int 0
              +OK·
            > EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 61
              ask 1 k1 Transaction { watched: [], operations: [Version { key: "lock" }, Set { key: "lock", value: "me", condition: IfAbsent, expiry: At(1700000061000.000ms), get: false }, ExpireIf { key: "lock", value: "me", deadline: To(1700000061000.000ms) }, Version { key: "lock" }] }
            < 1 array int 0, ok, int 1, int 5
              :1·
            > MULTI ; SET copy 1 ; EXEC
              +OK·+QUEUED·*-1·
            > WATCH lock
              ask 2 k1 Version { key: "lock" }
            < 2 int 0
              +OK·
            > EVALSHA 88c24ce5e430e6db7e8c72c0e7ef1f7af9a5a838 1 lock me 5000
              ask 3 k1 Transaction { watched: [("lock", 0)], operations: [Version { key: "lock" }, Set { key: "lock", value: "me", condition: Always, expiry: At(1700000005000.000ms), get: false }, Version { key: "lock" }] }
            < 3 nilarray
              :0·
            > MULTI ; SET copy 1 ; EXEC
              +OK·+QUEUED·*-1·
            > WATCH lock
              ask 4 k1 Version { key: "lock" }
            < 4 int 0
              +OK·
            > EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 5
              ask 5 k1 Transaction { watched: [], operations: [Version { key: "lock" }, Version { key: "signal" }, Get { key: "lock" }, Version { key: "lock" }] }
              reads no further
            < 5 array int 0, int 0, nil, int 0
              :1·
            > MULTI ; SET copy 1 ; EXEC
              ask 6 k1 Transaction { watched: [("lock", 0)], operations: [Set { key: "copy", value: "1", condition: Always, expiry: Clear, get: false }] }
              +OK·+QUEUED·
        "#]],
    );
}

#[test]
fn a_transaction_stays_in_one_keyspace() {
    check(
        Login::Open,
        "> MULTI ; SET a 1 ; SELECT 3 ; SET b 2 ; EXEC
         > WATCH a
         < 0 int 4
         > MULTI ; SELECT 3 ; EXEC
         > MULTI ; SELECT 0 ; SELECT 9 ; GET a ; EXEC ; GET a
         < 1 array nil",
        expect![[r#"
            > MULTI ; SET a 1 ; SELECT 3 ; SET b 2 ; EXEC
              +OK·+QUEUED·-ERR SELECT of another keyspace inside MULTI; a transaction stays in one keyspace·+QUEUED·-EXECABORT Transaction discarded because of previous errors.·
            > WATCH a
              ask 0 k1 Version { key: "a" }
            < 0 int 4
              +OK·
            > MULTI ; SELECT 3 ; EXEC
              +OK·-ERR SELECT of another keyspace inside MULTI; a transaction stays in one keyspace·-EXECABORT Transaction discarded because of previous errors.·
            > MULTI ; SELECT 0 ; SELECT 9 ; GET a ; EXEC ; GET a
              ask 1 k1 Transaction { watched: [], operations: [Get { key: "a" }] }
              +OK·+QUEUED·+QUEUED·+QUEUED·
              reads no further
            < 1 array nil
              ask 2 k1 Get { key: "a" }
              *3·+OK·-ERR DB index is out of range·$-1·
        "#]],
    );
}

/// Two reads that are under way together have no order, and what WATCH is told must be the older.
#[test]
fn what_follows_a_watch_is_asked_for_when_that_is_answered() {
    check(
        Login::Open,
        "> WATCH a ; PING ; GET a ; SET b 1
         < 0 int 4
         < 2 bulk 9
         < 3 ok
         > WATCH b ; BLPOP c 1
         < 4 refused try again
         < 5 popped bulk c, bulk v
         > WATCH b ; UNWATCH ; GET a",
        expect![[r#"
            > WATCH a ; PING ; GET a ; SET b 1
              ask 0 k1 Version { key: "a" }
            < 0 int 4
              ask 2 k1 Get { key: "a" }
              ask 3 k1 Set { key: "b", value: "1", condition: Always, expiry: Clear, get: false } in order
              +OK·+PONG·
            < 2 bulk 9
              $1·9·
            < 3 ok
              +OK·
            > WATCH b ; BLPOP c 1
              ask 4 k1 Version { key: "b" }
            < 4 refused try again
              ask 5 k1 LMPop { keys: ["c"], side: Left, count: 1 }
              -TRYAGAIN try again·
              reads no further
            < 5 popped bulk c, bulk v
              *2·$1·c·$1·v·
            > WATCH b ; UNWATCH ; GET a
              ask 6 k1 Version { key: "b" }
              ask 8 k1 Get { key: "a" }
        "#]],
    );
}

/// A port of a keyspace's own begins in that keyspace.
#[test]
fn reset_goes_back_to_where_the_connection_began() {
    let mut world = super::World::beginning_in(3);
    expect![[r#"
        > GET a ; SELECT 0 ; GET a ; RESET ; GET a
          ask 0 k2 Get { key: "a" }
          ask 2 k1 Get { key: "a" }
          ask 4 k2 Get { key: "a" }
    "#]]
    .assert_eq(&super::play(&mut world, "> GET a ; SELECT 0 ; GET a ; RESET ; GET a"));
    assert_eq!(world.clients[&7].index, 3);
}

#[test]
fn a_watch_of_keys_that_lie_apart_watches_none() {
    check(
        Login::Open,
        "> WATCH a b
         < 0 refused CROSSSLOT Keys in request don't hash to the same slot
         > MULTI ; SET a 1 ; EXEC",
        expect![[r#"
            > WATCH a b
              ask 0 k1 Transaction { watched: [], operations: [Version { key: "a" }, Version { key: "b" }] }
            < 0 refused CROSSSLOT Keys in request don't hash to the same slot
              -CROSSSLOT Keys in request don't hash to the same slot·
            > MULTI ; SET a 1 ; EXEC
              ask 1 k1 Transaction { watched: [], operations: [Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }] }
              +OK·+QUEUED·
        "#]],
    );
    // Nor does another that is under way with it pay for that.
    check(
        Login::Open,
        "> WATCH a b ; WATCH c ; MULTI ; SET c 1 ; EXEC
         < 0 refused CROSSSLOT Keys in request don't hash to the same slot
         < 1 int 4
         < 3 array ok
         > WATCH c ; WATCH a b
         < 5 refused CROSSSLOT Keys in request don't hash to the same slot
         < 4 int 5
         > WATCH d ; MULTI ; SET c 1 ; EXEC
         < 6 int 6",
        expect![[r#"
            > WATCH a b ; WATCH c ; MULTI ; SET c 1 ; EXEC
              ask 0 k1 Transaction { watched: [], operations: [Version { key: "a" }, Version { key: "b" }] }
              ask 1 k1 Version { key: "c" }
            < 0 refused CROSSSLOT Keys in request don't hash to the same slot
              -CROSSSLOT Keys in request don't hash to the same slot·
            < 1 int 4
              ask 3 k1 Transaction { watched: [("c", 4)], operations: [Set { key: "c", value: "1", condition: Always, expiry: Clear, get: false }] }
              +OK·+OK·+QUEUED·
            < 3 array ok
              *1·+OK·
            > WATCH c ; WATCH a b
              ask 4 k1 Version { key: "c" }
              ask 5 k1 Transaction { watched: [], operations: [Version { key: "a" }, Version { key: "b" }] }
            < 5 refused CROSSSLOT Keys in request don't hash to the same slot
            < 4 int 5
              +OK·-CROSSSLOT Keys in request don't hash to the same slot·
            > WATCH d ; MULTI ; SET c 1 ; EXEC
              ask 6 k1 Version { key: "d" }
            < 6 int 6
              ask 8 k1 Transaction { watched: [("c", 5), ("d", 6)], operations: [Set { key: "c", value: "1", condition: Always, expiry: Clear, get: false }] }
              +OK·+OK·+QUEUED·
        "#]],
    );
}

#[test]
fn who_is_nobody_is_counted_among_failed_logins() {
    let told = super::talk(Login::Open, "> AUTH nobody wrong ; HELLO 3 AUTH nobody wrong ; INFO stats");
    assert_eq!(told.matches("-WRONGPASS").count(), 2, "{told}");
    assert!(told.contains("acl_access_denied_auth:2"), "{told}");
}

#[test]
fn a_login_holds_back_what_follows_it() {
    check(
        Login::Required,
        "> GET a
         > AUTH anna:bank s3cret
         < 0 denied
         > AUTH anna:bank s3cret ; GET a
         < 1 accepted
         < 2 bulk 5",
        expect![[r#"
            > GET a
              -NOAUTH Authentication required.·
            > AUTH anna:bank s3cret
              verify 0 anna s3cret
              reads no further
            < 0 denied
              -WRONGPASS invalid username-password pair or user is disabled.·
            > AUTH anna:bank s3cret ; GET a
              verify 1 anna s3cret
              reads no further
            < 1 accepted
              ask 2 k2 Get { key: "a" }
              +OK·
            < 2 bulk 5
              $1·5·
        "#]],
    );
    check(
        Login::Required,
        "> HELLO 3 AUTH anna:3 s3cret SETNAME worker ; CLIENT GETNAME ; GET a
         < 0 accepted
         < 1 nil
         > RESET ; GET a",
        expect![[r#"
            > HELLO 3 AUTH anna:3 s3cret SETNAME worker ; CLIENT GETNAME ; GET a
              verify 0 anna s3cret
              reads no further
            < 0 accepted
              ask 1 k2 Get { key: "a" }
              %7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·$6·worker·
            < 1 nil
              _·
            > RESET ; GET a
              +RESET·-NOAUTH Authentication required.·
        "#]],
    );
}

#[test]
fn what_is_not_known_or_refused_says_so() {
    check(
        Login::Open,
        "> GET a ; GET b ; SET c 1 ; HGET d f ; GET e
         < 0 refused OVERLOADED 100000 commands are under way; retry with back-off
         < 1 refused no leader is known; an election takes about a second
         < 2 unknown no answer within 15 s
         < 3 wrongtype
         < 4 refused NOLEADER none of va1, or1 answers",
        expect![[r#"
            > GET a ; GET b ; SET c 1 ; HGET d f ; GET e
              ask 0 k1 Get { key: "a" }
              ask 1 k1 Get { key: "b" }
              ask 2 k1 Set { key: "c", value: "1", condition: Always, expiry: Clear, get: false } in order
              ask 3 k1 HGet { key: "d", field: "f" } in order
              ask 4 k1 Get { key: "e" } in order
            < 0 refused OVERLOADED 100000 commands are under way; retry with back-off
              -OVERLOADED 100000 commands are under way; retry with back-off·
            < 1 refused no leader is known; an election takes about a second
              -TRYAGAIN no leader is known; an election takes about a second·
            < 2 unknown no answer within 15 s
              -UNKNOWN the outcome is not known, the command may yet take effect: no answer within 15 s·
            < 3 wrongtype
              -WRONGTYPE Operation against a key holding the wrong kind of value·
            < 4 refused NOLEADER none of va1, or1 answers
              -NOLEADER none of va1, or1 answers·
        "#]],
    );
}

#[test]
fn errors_are_those_of_redis() {
    check(
        Login::Open,
        "> GETT a bc
         > CLIENT FOO bar
         > CLUSTER SLOTS
         > CLUSTER FOO
         > XTRIM s MINID +
         > XADD s MINID - 5-5 f v
         > GET
         > CLIENT SETNAME
         > CLIENT
         > DEBUG SLEEP 1
         > EVAL return 0
         > EVALSHA abc 0
         > EVAL x 2 a ; EVAL x -1 ; SCRIPT LOAD x ; SCRIPT EXISTS c3f8721cbb97f72bc19e972846bd7aaf91901658 abc ; SCRIPT KILL ; SCRIPT FLUSH
         > LCS c
         > HELLO 4
         > HELLO x
         > HELLO 2 FOO
         > SELECT 9
         > SELECT x
         > AUTH pw
         > AUTH default pw
         > AUTH other pw
         > CONFIG SET maxmemory 100
         > CONFIG SET maxclients 100
         > CONFIG SET foo bar
         > CONFIG SET save x y
         > CONFIG SET save x SAVE y ; CONFIG GET MAXMemory maxmemory ; CONFIG GET P?RT PORT
         > BLPOP l inf ; BLPOP l 1e18 ; BLMOVE a b LEFT LEFT -inf ; COPY a b DB x ; COPY a b DB 3",
        expect![[r#"
            > GETT a bc
              -ERR unknown command 'GETT', with args beginning with: 'a' 'bc' ·
            > CLIENT FOO bar
              -ERR unknown subcommand 'FOO'. Try CLIENT HELP.·
            > CLUSTER SLOTS
              -ERR This instance has cluster support disabled·
            > CLUSTER FOO
              -ERR unknown subcommand 'FOO'. Try CLUSTER HELP.·
            > XTRIM s MINID +
              -ERR Invalid stream ID specified as stream command argument·
            > XADD s MINID - 5-5 f v
              -ERR Invalid stream ID specified as stream command argument·
            > GET
              -ERR wrong number of arguments for 'get' command·
            > CLIENT SETNAME
              -ERR wrong number of arguments for 'client|setname' command·
            > CLIENT
              -ERR wrong number of arguments for 'client' command·
            > DEBUG SLEEP 1
              -ERR unknown command 'DEBUG', with args beginning with: 'SLEEP' '1' ·
            > EVAL return 0
              -ERR this script is not known here: there is no interpreter, by design, only scripts of well-known libraries are executed; use MULTI/EXEC with WATCH·
            > EVALSHA abc 0
              -NOSCRIPT No matching script. Please use EVAL.·
            > EVAL x 2 a ; EVAL x -1 ; SCRIPT LOAD x ; SCRIPT EXISTS c3f8721cbb97f72bc19e972846bd7aaf91901658 abc ; SCRIPT KILL ; SCRIPT FLUSH
              -ERR Number of keys can't be greater than number of args·-ERR Number of keys can't be negative·-ERR this script is not known here: there is no interpreter, by design, only scripts of well-known libraries are executed; use MULTI/EXEC with WATCH·*2·:1·:0·-NOTBUSY No scripts in execution right now.·+OK·
            > LCS c
              -ERR unknown command 'LCS', with args beginning with: 'c' ·
            > HELLO 4
              -NOPROTO unsupported protocol version·
            > HELLO x
              -ERR Protocol version is not an integer or out of range·
            > HELLO 2 FOO
              -ERR Syntax error in HELLO option 'FOO'·
            > SELECT 9
              -ERR DB index is out of range·
            > SELECT x
              -ERR value is not an integer or out of range·
            > AUTH pw
              -ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?·
            > AUTH default pw
              +OK·
            > AUTH other pw
              -WRONGPASS invalid username-password pair or user is disabled.·
            > CONFIG SET maxmemory 100
              +OK·
            > CONFIG SET maxclients 100
              -ERR CONFIG SET failed (possibly related to argument 'maxclients') - can't set immutable config: it is '10000' here; the deployment file decides·
            > CONFIG SET foo bar
              -ERR Unknown option or number of arguments for CONFIG SET - 'foo'·
            > CONFIG SET save x y
              -ERR syntax error·
            > CONFIG SET save x SAVE y ; CONFIG GET MAXMemory maxmemory ; CONFIG GET P?RT PORT
              -ERR CONFIG SET failed (possibly related to argument 'SAVE') - duplicate parameter·*2·$9·MAXMemory·$3·100·*2·$4·port·$4·7001·
            > BLPOP l inf ; BLPOP l 1e18 ; BLMOVE a b LEFT LEFT -inf ; COPY a b DB x ; COPY a b DB 3
              -ERR timeout is out of range·-ERR timeout is out of range·-ERR timeout is negative·-ERR value is not an integer or out of range·-ERR a copy stays in its keyspace: DB must be the one that is selected·
        "#]],
    );
}

#[test]
fn a_read_behind_a_write_of_its_connection_keeps_its_place() {
    check(
        Login::Open,
        "> GET a ; SET a 1 ; GET a ; GET b
         < 0 nil
         < 1 ok
         < 2 bulk 1
         < 3 nil
         > GET a",
        expect![[r#"
            > GET a ; SET a 1 ; GET a ; GET b
              ask 0 k1 Get { key: "a" }
              ask 1 k1 Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false } in order
              ask 2 k1 Get { key: "a" } in order
              ask 3 k1 Get { key: "b" } in order
            < 0 nil
              $-1·
            < 1 ok
              +OK·
            < 2 bulk 1
              $1·1·
            < 3 nil
              $-1·
            > GET a
              ask 4 k1 Get { key: "a" }
        "#]],
    );
}

/// A page that somebody reads may have its browser send anything to a port of that machine.
#[test]
fn lines_of_http_end_the_connection_and_what_follows_is_not_carried_out() {
    for head in ["POST / HTTP/1.1", "Host: localhost:6379", "host: x", "GET / HTTP/1.1\\r\\nHost: x"] {
        let mut world = super::World::new(Login::Open);
        // What came with it is not answered either, as in Redis: it is of the same page.
        let script = format!("> PING\n| PING\\r\\n{head}\\r\\n\\r\\nDEL a\\r\\n");
        let text = super::play(&mut world, &script);
        assert!(text.contains("closes") && !text.contains("ask") && !text.contains("-ERR"), "{text}");
        assert_eq!(text.matches("+PONG").count(), 1, "{text}");
        assert_eq!(world.counters.limited.get("http"), Some(&1));
    }
}

/// The proxy waits for no answer to its line, so the client would take it for that to its first command.
#[test]
fn the_line_of_a_proxy_ends_the_connection_and_says_why() {
    for (login, line) in [
        (Login::Open, "PROXY TCP4 192.0.2.1 192.0.2.2 50000 6379"),
        (Login::Required, "PROXY TCP6 2001:db8::1 2001:db8::2 50000 6379"),
        (Login::Open, "PROXY UNKNOWN"),
    ] {
        let mut world = super::World::new(login);
        let text = super::play(&mut world, &format!("| {line}\\r\\nSET a 1\\r\\n"));
        let why = "-ERR this port takes no PROXY protocol: leave out send-proxy·\n  closes";
        assert!(text.contains(why) && !text.contains("ask") && text.matches("-ERR").count() == 1, "{text}");
        assert_eq!(world.counters.limited.get("proxy"), Some(&1));
    }
    // Not the first word.
    let text = super::talk(Login::Open, "> PING ; PROXY UNKNOWN");
    assert!(text.contains("-ERR unknown command 'PROXY'") && !text.contains("closes"), "{text}");
}

/// What Redis 7.0 takes beside the plain spelling of things, and what it answers to the rest.
#[test]
fn odd_spellings_are_read_as_redis_reads_them() {
    check(
        Login::Open,
        r#"> ZRANGE z 0 -1 LIMIT 0 1 ; ZADD z 0x a ; ZADD z 0x1p a ; ZADD z 0x1p1025 a ; ZADD z 1e-400 a ; ZADD z nan a
         | ZCOUNT z "1 " 2\r\n
         > SRANDMEMBER s -9223372036854775808 ; SRANDMEMBER s -1048577
         > HRANDFIELD h 4611686018427387904 WITHVALUES ; ZRANDMEMBER z -4611686018427387904 WITHSCORES
         > LOLWUT VERSION abc ; ACL GETUSER nope
         | ACL SETUSER u "" on\r\n
         > HELLO 3 ; SUBSCRIBE x ; PUBLISH x m ; UNSUBSCRIBE x ; PUBLISH x m
         > SUBSCRIBE x ; PUBLISH x m ; RESET ; PING
         > ZRANGE z 0 -1 LIMIT 5 -1 ; ZRANGE z 0 1 LIMIT 5 -1 BYSCORE
         > ZADD z 0x10 a -0X1.8p+1 b 0x.8 c +0x1p-2 d 0e5 e 0x1fffffffffffff8 f
         > SCAN 0 TYPE foo ; SCAN 0 TYPE STRING MATCH a*
         | ZCOUNT z "" "("\r\n
         | ZCOUNT z " 0x1" 1e400\r\n
         > SCAN -1 ; SSCAN s +007 ; SCAN +-1 ; XADD s +1-01 f v ; XADD s +2-* f v ; XADD s 1-+-1 f v ; COPY a b DB 0"#,
        expect![[r#"
            > ZRANGE z 0 -1 LIMIT 0 1 ; ZADD z 0x a ; ZADD z 0x1p a ; ZADD z 0x1p1025 a ; ZADD z 1e-400 a ; ZADD z nan a
              -ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX·-ERR value is not a valid float·-ERR value is not a valid float·-ERR value is not a valid float·-ERR value is not a valid float·-ERR value is not a valid float·
            | ZCOUNT z "1 " 2\r\n
              -ERR min or max is not a float·
            > SRANDMEMBER s -9223372036854775808 ; SRANDMEMBER s -1048577
              -ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807·-ERR value is out of range, value must between -1048576 and 9223372036854775807·
            > HRANDFIELD h 4611686018427387904 WITHVALUES ; ZRANDMEMBER z -4611686018427387904 WITHSCORES
              -ERR value is out of range·-ERR value is out of range·
            > LOLWUT VERSION abc ; ACL GETUSER nope
              -ERR value is not an integer or out of range·$-1·
            | ACL SETUSER u "" on\r\n
              +OK·
            > HELLO 3 ; SUBSCRIBE x ; PUBLISH x m ; UNSUBSCRIBE x ; PUBLISH x m
              %7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·>3·$9·subscribe·$1·x·:1·:1·>3·$7·message·$1·x·$1·m·>3·$11·unsubscribe·$1·x·:0·:0·
            > SUBSCRIBE x ; PUBLISH x m ; RESET ; PING
              >3·$9·subscribe·$1·x·:1·:1·>3·$7·message·$1·x·$1·m·+RESET·+PONG·
            > ZRANGE z 0 -1 LIMIT 5 -1 ; ZRANGE z 0 1 LIMIT 5 -1 BYSCORE
              ask 0 k1 ZRange { key: "z", slice: Slice { selection: Index { start: 0, stop: -1 }, reverse: false, limit: None }, with_scores: false }
              ask 1 k1 ZRange { key: "z", slice: Slice { selection: Score { min: ScoreBound { score: 0, exclusive: false }, max: ScoreBound { score: 1, exclusive: false } }, reverse: false, limit: Some(Limit { offset: 5, count: -1 }) }, with_scores: false }
            > ZADD z 0x10 a -0X1.8p+1 b 0x.8 c +0x1p-2 d 0e5 e 0x1fffffffffffff8 f
              ask 2 k1 ZAdd { key: "z", flags: ZAddFlags { condition: Always, scores: Any, changed: false }, members: [(16, "a"), (-3, "b"), (0.5, "c"), (0.25, "d"), (0, "e"), (144115188075855872, "f")] } in order
            > SCAN 0 TYPE foo ; SCAN 0 TYPE STRING MATCH a*
              ask 3 k1 Scan { cursor: 0, count: 10, pattern: Some("[^\x00-\xff]"), kind: None } in order
              ask 4 k1 Scan { cursor: 0, count: 10, pattern: Some("a*"), kind: Some(String) } in order
            | ZCOUNT z "" "("\r\n
              ask 5 k1 ZCount { key: "z", range: Score { min: ScoreBound { score: 0, exclusive: false }, max: ScoreBound { score: 0, exclusive: true } } } in order
            | ZCOUNT z " 0x1" 1e400\r\n
              ask 6 k1 ZCount { key: "z", range: Score { min: ScoreBound { score: 1, exclusive: false }, max: ScoreBound { score: inf, exclusive: false } } } in order
            > SCAN -1 ; SSCAN s +007 ; SCAN +-1 ; XADD s +1-01 f v ; XADD s +2-* f v ; XADD s 1-+-1 f v ; COPY a b DB 0
              ask 7 k1 Scan { cursor: 18446744073709551615, count: 10, pattern: None, kind: None } in order
              ask 8 k1 SScan { key: "s", cursor: 7, count: 10, pattern: None } in order
              ask 10 k1 XAdd { key: "s", append: Append { id: This(StreamId { millis: 1, sequence: 1 }), fields: [("f", "v")], only_if_exists: false, trimming: None } } in order
              ask 11 k1 XAdd { key: "s", append: Append { id: Within(2), fields: [("f", "v")], only_if_exists: false, trimming: None } } in order
              ask 13 k1 Copy { key: "a", target: "b", replace: false } in order
        "#]],
    );
}

/// Of two partitions one may refuse its share, whose key has moved, while the other has given its own.
#[test]
fn what_names_no_keys_is_alone_where_keys_are_in_partitions() {
    let mut world = World::new(Login::Open);
    world.keyspaces[0].leaders = vec![None, None];
    let script = "> SET a 1 ; FLUSHDB ; SET b 1 ; GET b
         < 0 ok
         < 1 ok
         < 2 ok
         < 3 bulk 1";
    expect![[r#"
        > SET a 1 ; FLUSHDB ; SET b 1 ; GET b
          ask 0 k1 Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }
        < 0 ok
          ask 1 k1 Flush
          +OK·
          reads no further
        < 1 ok
          ask 2 k1 Set { key: "b", value: "1", condition: Always, expiry: Clear, get: false }
          ask 3 k1 Get { key: "b" } in order
          +OK·
        < 2 ok
          +OK·
        < 3 bulk 1
          $1·1·
    "#]]
    .assert_eq(&play(&mut world, script));
}

/// Transactions order nothing but keys.
#[test]
fn nothing_overtakes_what_names_no_keys_where_commands_are_transactions() {
    check(
        Login::Open,
        "> SELECT 3 ; SET a 1 ; FLUSHDB ; SET b 1 ; DBSIZE ; GET b
         < 0 ok
         < 1 ok
         < 2 ok
         < 3 int 1
         < 4 bulk 1
         > MULTI ; FLUSHDB ; EXEC ; PING ; GET b",
        expect![[r#"
            > SELECT 3 ; SET a 1 ; FLUSHDB ; SET b 1 ; DBSIZE ; GET b
              ask 0 k2 Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }
              +OK·
            < 0 ok
              ask 1 k2 Flush
              +OK·
              reads no further
            < 1 ok
              ask 2 k2 Set { key: "b", value: "1", condition: Always, expiry: Clear, get: false }
              +OK·
            < 2 ok
              ask 3 k2 DbSize
              +OK·
              reads no further
            < 3 int 1
              ask 4 k2 Get { key: "b" }
              :1·
            < 4 bulk 1
              $1·1·
            > MULTI ; FLUSHDB ; EXEC ; PING ; GET b
              ask 5 k2 Transaction { watched: [], operations: [Flush] }
              ask 7 k2 Get { key: "b" } in order
              +OK·+QUEUED·
        "#]],
    );
}
