//! Connections from their first bytes to their last, as the clients of the wild send them.

use super::{World, play, talk};
use crate::gateway::Login;
use crate::hub::Topic;
use expect_test::{Expect, expect};

#[track_caller]
fn check(login: Login, script: &str, expected: Expect) {
    expected.assert_eq(&talk(login, script));
}

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
fn old_spellings_become_one_operation_with_their_own_reply() {
    check(
        Login::Open,
        "> SETNX a 1 ; HMSET h f v ; GETSET a 2 ; DECRBY n 5 ; RPOPLPUSH x y ; ZREVRANGEBYSCORE z (5 -inf LIMIT 0 2
         < 0 nil
         < 1 int 1
         < 2 bulk 1
         < 3 int -5
         < 4 nil
         < 5 array",
        expect![[r#"
            > SETNX a 1 ; HMSET h f v ; GETSET a 2 ; DECRBY n 5 ; RPOPLPUSH x y ; ZREVRANGEBYSCORE z (5 -inf LIMIT 0 2
              ask 0 k1 Set { key: "a", value: "1", condition: IfAbsent, expiry: Clear, get: false }
              ask 1 k1 HSet { key: "h", pairs: [("f", "v")] }
              ask 2 k1 Set { key: "a", value: "2", condition: Always, expiry: Clear, get: true }
              ask 3 k1 IncrBy { key: "n", by: -5 }
              ask 4 k1 LMove { source: "x", target: "y", from: Right, to: Left }
              ask 5 k1 ZRange { key: "z", slice: Slice { selection: Score { min: ScoreBound { score: -inf, exclusive: false }, max: ScoreBound { score: 5, exclusive: true } }, reverse: true, limit: Some(Limit { offset: 0, count: 2 }) }, with_scores: false } in order
            < 0 nil
              :0·
            < 1 int 1
              +OK·
            < 2 bulk 1
              $1·1·
            < 3 int -5
              :-5·
            < 4 nil
              $-1·
            < 5 array
              *0·
        "#]],
    );
}

#[test]
fn places_are_members_of_sorted_sets() {
    check(
        Login::Open,
        "> GEOADD sicily CH 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
         < 0 int 2
         > GEODIST sicily Palermo Catania km ; GEOHASH sicily Palermo nobody ; GEOPOS sicily Palermo nobody
         < 1 array double 3479099956230698, double 3479447370796909
         < 2 array double 3479099956230698, nil
         < 3 array double 3479099956230698, nil
         > GEORADIUS sicily 15 37 200 km WITHDIST WITHCOORD
         < 4 found bulk Catania, double 56.441257870158204, double 3479447370796909
         > GEOSEARCHSTORE near sicily FROMMEMBER Catania BYBOX 400 300.5 mi COUNT 3 STOREDIST
         < 5 int 2
         > HELLO 3 ; GEOPOS sicily Palermo nobody
         < 6 array double 3479099956230698, nil
         > COMMAND GETKEYS GEORADIUS a 1 2 3 km STORE b",
        expect![[r#"
            > GEOADD sicily CH 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
              ask 0 k1 ZAdd { key: "sicily", flags: ZAddFlags { condition: Always, scores: Any, changed: true }, members: [(3479099956230698, "Palermo"), (3479447370796909, "Catania")] }
            < 0 int 2
              :2·
            > GEODIST sicily Palermo Catania km ; GEOHASH sicily Palermo nobody ; GEOPOS sicily Palermo nobody
              ask 1 k1 ZMScore { key: "sicily", members: ["Palermo", "Catania"] }
              ask 2 k1 ZMScore { key: "sicily", members: ["Palermo", "nobody"] }
              ask 3 k1 ZMScore { key: "sicily", members: ["Palermo", "nobody"] }
            < 1 array double 3479099956230698, double 3479447370796909
              $8·166.2742·
            < 2 array double 3479099956230698, nil
              *2·$11·sqc8b49rny0·$-1·
            < 3 array double 3479099956230698, nil
              *2·*2·$20·13.36138933897018433·$20·38.11555639549629859·*-1·
            > GEORADIUS sicily 15 37 200 km WITHDIST WITHCOORD
              ask 4 k1 GeoSearch { key: "sicily", search: Search { center: Point { longitude: 15, latitude: 37 }, area: Circle { radius: 200 }, unit: Kilometers, order: Walked, count: None, any: false }, detailed: true }
            < 4 found bulk Catania, double 56.441257870158204, double 3479447370796909
              *1·*3·$7·Catania·$7·56.4413·*2·$20·15.08726745843887329·$20·37.50266842333162032·
            > GEOSEARCHSTORE near sicily FROMMEMBER Catania BYBOX 400 300.5 mi COUNT 3 STOREDIST
              ask 5 k1 GeoSearchStore { target: "near", source: "sicily", search: Search { center: Member("Catania"), area: Box { width: 400, height: 300.5 }, unit: Miles, order: Near, count: Some(3), any: false }, distances: true }
            < 5 int 2
              :2·
            > HELLO 3 ; GEOPOS sicily Palermo nobody
              ask 6 k1 ZMScore { key: "sicily", members: ["Palermo", "nobody"] }
              %7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·
            < 6 array double 3479099956230698, nil
              *2·*2·,13.36138933897018433·,38.11555639549629859·_·
            > COMMAND GETKEYS GEORADIUS a 1 2 3 km STORE b
              *2·$1·a·$1·b·
        "#]],
    );
}

#[test]
fn sorting_is_one_operation_on_named_keys() {
    check(
        Login::Open,
        "> SORT jobs LIMIT 0 10 DESC GET # GET nope
         < 0 array bulk 3, nil
         > SORT jobs BY nosort STORE sorted ; SORT jobs BY weight_* ; SORT jobs GET object_*->name ; SORT_RO jobs STORE x
         < 1 int 3
         > COMMAND GETKEYS SORT a LIMIT 1 2 STORE b",
        expect![[r#"
            > SORT jobs LIMIT 0 10 DESC GET # GET nope
              ask 0 k1 Sort { key: "jobs", sort: Sort { by: Number, descending: true, limit: Some(Limit { offset: 0, count: 10 }), gets: [Element, Nothing] } }
            < 0 array bulk 3, nil
              *2·$1·3·$-1·
            > SORT jobs BY nosort STORE sorted ; SORT jobs BY weight_* ; SORT jobs GET object_*->name ; SORT_RO jobs STORE x
              ask 1 k1 SortStore { target: "sorted", source: "jobs", sort: Sort { by: Nothing, descending: false, limit: None, gets: [] } }
            < 1 int 3
              :3·-ERR BY option of SORT denied in Cluster mode.·-ERR GET option of SORT denied in Cluster mode.·-ERR syntax error·
            > COMMAND GETKEYS SORT a LIMIT 1 2 STORE b
              *2·$1·a·$1·b·
        "#]],
    );
}

#[test]
fn relative_expiries_become_absolute() {
    check(
        Login::Open,
        "> SET a 1 EX 10 ; SETEX a 10 1 ; PEXPIRE a 1500 ; EXPIRE a -1 ; EXPIREAT a 1700000060 GT ; GETEX a PERSIST ; SET a 1 KEEPTTL XX GET",
        expect![[r#"
            > SET a 1 EX 10 ; SETEX a 10 1 ; PEXPIRE a 1500 ; EXPIRE a -1 ; EXPIREAT a 1700000060 GT ; GETEX a PERSIST ; SET a 1 KEEPTTL XX GET
              ask 0 k1 Set { key: "a", value: "1", condition: Always, expiry: At(1700000010000.000ms), get: false }
              ask 1 k1 Set { key: "a", value: "1", condition: Always, expiry: At(1700000010000.000ms), get: false }
              ask 2 k1 ExpireAt { key: "a", at: 1700000001500.000ms, condition: Always }
              ask 3 k1 ExpireAt { key: "a", at: 1699999999000.000ms, condition: Always }
              ask 4 k1 ExpireAt { key: "a", at: 1700000060000.000ms, condition: IfLater }
              ask 5 k1 GetEx { key: "a", expiry: Clear }
              ask 6 k1 Set { key: "a", value: "1", condition: IfPresent, expiry: Keep, get: true }
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
         > MULTI ; SET a 1 ; DISCARD ; GET a",
        expect![[r#"
            > MULTI ; SET a 1 ; INCR b ; PING ; SET a 1 BAD ; EXEC
              ask 0 k1 Transaction { watched: [], operations: [Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }, IncrBy { key: "b", by: 1 }] }
              +OK·+QUEUED·+QUEUED·+QUEUED·+QUEUED·
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
        "#]],
    );
}

#[test]
fn watched_versions_go_into_the_transaction() {
    check(
        Login::Open,
        "> WATCH a b ; MULTI ; SET a 1 ; EXEC ; GET a
         < 0 array int 4, int 0
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
            < 0 array int 4, int 0
              ask 2 k1 Transaction { watched: [("a", 4), ("b", 0)], operations: [Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }] }
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
         > CONFIG SET save x y",
        expect![[r#"
            > GETT a bc
              -ERR unknown command 'GETT', with args beginning with: 'a' 'bc' ·
            > CLIENT FOO bar
              -ERR unknown subcommand 'FOO'. Try CLIENT HELP.·
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
              -ERR CONFIG SET failed (possibly related to argument 'maxmemory') - can't set immutable config: it is '0' here; nothing sets it, the deployment file neither·
            > CONFIG SET maxclients 100
              -ERR CONFIG SET failed (possibly related to argument 'maxclients') - can't set immutable config: it is '10000' here; the deployment file decides·
            > CONFIG SET foo bar
              -ERR Unknown option or number of arguments for CONFIG SET - 'foo'·
            > CONFIG SET save x y
              -ERR wrong number of arguments for 'config|set' command·
        "#]],
    );
}

#[test]
fn who_is_killed_is_gone_at_once_and_who_kills_itself_after_its_reply() {
    let mut world = World::new(Login::Open);
    world.hub.subscribe(9, Topic::Channel, &"news".into());
    let text = play(
        &mut world,
        "> CLIENT KILL TYPE normal ; CLIENT KILL TYPE replica ; CLIENT KILL USER default ID 8 ; CLIENT LIST TYPE master
         > PUBLISH news m
         > CLIENT KILL TYPE pubsub USER default
         > CLIENT KILL TYPE pubsub ; CLIENT KILL ID 9 ; CLIENT KILL 127.0.0.1:50001 ; CLIENT LIST TYPE pubsub ; CLIENT LIST ID 9
         > PUBLISH news m
         > GET a ; CLIENT KILL ID 7 SKIPME no ; SET a 1
         < 0 bulk x",
    );
    expect![[r#"
        > CLIENT KILL TYPE normal ; CLIENT KILL TYPE replica ; CLIENT KILL USER default ID 8 ; CLIENT LIST TYPE master
          :0·:0·:0·$0··
        > PUBLISH news m
          :1·
        > CLIENT KILL TYPE pubsub USER default
          :1·
        > CLIENT KILL TYPE pubsub ; CLIENT KILL ID 9 ; CLIENT KILL 127.0.0.1:50001 ; CLIENT LIST TYPE pubsub ; CLIENT LIST ID 9
          :0·:0·-ERR No such client·$0··$0··
        > PUBLISH news m
          :0·
        > GET a ; CLIENT KILL ID 7 SKIPME no ; SET a 1
          ask 0 k1 Get { key: "a" }
          reads no further
        < 0 bulk x
          $1·x·:1·
          closes
    "#]]
    .assert_eq(&text);
    assert!(world.hub.is_killed(9) && !world.hub.is_killed(7));
    let text = play(
        &mut World::new(Login::Open),
        "> MULTI ; GET a ; CLIENT KILL 127.0.0.1:50000 ; EXEC ; SET a 1
         < 0 array bulk x",
    );
    expect![[r#"
        > MULTI ; GET a ; CLIENT KILL 127.0.0.1:50000 ; EXEC ; SET a 1
          ask 0 k1 Transaction { watched: [], operations: [Get { key: "a" }] }
          +OK·+QUEUED·+QUEUED·
          reads no further
        < 0 array bulk x
          *2·$1·x·+OK·
          closes
    "#]]
    .assert_eq(&text);
}

#[test]
fn questions_about_the_node_are_answered() {
    check(
        Login::Open,
        "> CONFIG GET save ; CONFIG GET appendonly
         > CONFIG GET max*
         > INFO server
         > INFO isochrone replication
         > CLUSTER INFO
         > TIME
         > WAIT 1 0
         > COMMAND COUNT
         > COMMAND GETKEYS MSET a 1 b 2
         > COMMAND GETKEYS ZUNIONSTORE t 2 a b
         > COMMAND GETKEYS PING x
         > COMMAND INFO get nope
         > COMMAND DOCS getrange
         > COMMAND LIST FILTERBY PATTERN *pop*
         > CLIENT HELP
         > CLIENT LIST
         > CLIENT KILL ID 9
         > CLIENT KILL 1.1.1.1:1
         > CLIENT NO-EVICT ON
         > CLIENT REPLY SKIP ; PING ; PING",
        expect![[r#"
            > CONFIG GET save ; CONFIG GET appendonly
              *2·$4·save·$0··*2·$10·appendonly·$3·yes·
            > CONFIG GET max*
              *6·$10·maxclients·$5·10000·$9·maxmemory·$1·0·$16·maxmemory-policy·$10·noeviction·
            > INFO server
              $260·# Server·redis_version:7.2.4·redis_mode:standalone·isochrone_version:0.1.0·os:linux·arch_bits:64·process_id:42·run_id:ffffffffffffffffffffffffffffffffffffffff·tcp_port:7001·server_time_usec:1700000000000000·uptime_in_seconds:90000·uptime_in_days:1··
            > INFO isochrone replication
              $448·# Replication·role:master·connected_slaves:0·master_replid:ffffffffffffffffffffffffffffffffffffffff·master_repl_offset:0··# Isochrone·cluster:test·node:va1·region:Virginia·peers_connected:4·peers_total:4·durability:quorum-fsync·keyspaces:2·keyspace0:name=main,protocol=multipaxos,guarantee=linearizable,replicas=5,leader=Oregon,leads=0·keyspace3:name=bank,protocol=multipaxos,guarantee=linearizable,replicas=5,leader=Oregon,leads=0··
            > CLUSTER INFO
              $212·cluster_enabled:0·cluster_state:ok·cluster_slots_assigned:0·cluster_slots_ok:0·cluster_slots_pfail:0·cluster_slots_fail:0·cluster_known_nodes:1·cluster_size:0·cluster_current_epoch:0·cluster_my_epoch:0··
            > TIME
              *2·$10·1700000000·$1·0·
            > WAIT 1 0
              :2·
            > COMMAND COUNT
              :212·
            > COMMAND GETKEYS MSET a 1 b 2
              *2·$1·a·$1·b·
            > COMMAND GETKEYS ZUNIONSTORE t 2 a b
              *3·$1·t·$1·a·$1·b·
            > COMMAND GETKEYS PING x
              -ERR The command has no key arguments·
            > COMMAND INFO get nope
              *2·*10·$3·get·:2·*2·+readonly·+fast·:1·:1·:1·*3·+@string·+@read·+@fast·*0·*1·*6·$5·flags·*1·+RO·$12·begin_search·*4·$4·type·$5·index·$4·spec·*2·$5·index·:1·$9·find_keys·*4·$4·type·$5·range·$4·spec·*6·$7·lastkey·:0·$7·keystep·:1·$5·limit·:0·*0·*-1·
            > COMMAND DOCS getrange
              *2·$8·getrange·*8·$7·summary·$18·A part of a string·$5·since·$5·2.4.0·$5·group·$6·string·$9·arguments·*3·*6·$4·name·$3·key·$4·type·$6·string·$12·display_text·$3·key·*6·$4·name·$5·start·$4·type·$6·string·$12·display_text·$5·start·*6·$4·name·$3·end·$4·type·$6·string·$12·display_text·$3·end·
            > COMMAND LIST FILTERBY PATTERN *pop*
              *15·$6·blmpop·$5·blpop·$5·brpop·$10·brpoplpush·$5·lmpop·$4·lpop·$4·rpop·$9·rpoplpush·$4·spop·$6·bzmpop·$8·bzpopmax·$8·bzpopmin·$5·zmpop·$7·zpopmax·$7·zpopmin·
            > CLIENT HELP
              *27·+CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:·+GETNAME·+    The name of this connection·+GETREDIR·+    Where invalidations go·+HELP·+    This help·+ID·+    The number of this connection·+INFO·+    This connection·+KILL ip:port|[ID client-id] [ADDR ip:port] [LADDR ip:port] [USER username] [TYPE normal|pubsub] [MAXAGE seconds] [SKIPME YES|NO]·+    Closes connections·+LIST [TYPE normal|pubsub] [ID client-id [client-id ...]]·+    All connections·+NO-EVICT ON|OFF·+    Keeps this connection when memory is short·+NO-TOUCH ON|OFF·+    Leaves the times of last use alone·+REPLY ON|OFF|SKIP·+    Holds replies back·+SETINFO LIB-NAME libname|LIB-VER libver·+    Says which library this is·+SETNAME connection-name·+    Names this connection·+UNBLOCK client-id [TIMEOUT|ERROR]·+    Ends the wait of a connection·
            > CLIENT LIST
              $611·id=7 addr=127.0.0.1:50000 laddr=127.0.0.1:7001 fd=-1 name= age=100 idle=100 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=client|list user=default redir=-1 resp=2 lib-name= lib-ver= tot-net-in=0 tot-net-out=0\nid=9 addr=127.0.0.1:50001 laddr=127.0.0.1:7001 fd=-1 name= age=100 idle=100 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=NULL user=default redir=-1 resp=2 lib-name= lib-ver= tot-net-in=0 tot-net-out=0\n·
            > CLIENT KILL ID 9
              :1·
            > CLIENT KILL 1.1.1.1:1
              -ERR No such client·
            > CLIENT NO-EVICT ON
              +OK·
            > CLIENT REPLY SKIP ; PING ; PING
              +PONG·
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

#[test]
fn lock_scripts_are_operations() {
    check(
        Login::Open,
        "> EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock me
         < 0 int 1
         > EVALSHA a4e8783852e6b949f9ef3a97212805108459a890 1 lock me 5000 0
         < 1 int 1
         > EVALSHA a4e8783852e6b949f9ef3a97212805108459a890 1 lock me 5000 1
         < 2 int 0
         > EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock me 5000
         < 3 int 1
         > EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock me
         > EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 2 lock me 5000
         > EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock me soon
         > MULTI ; EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock me ; EXEC
         < 4 array int 1
         > EVALSHA ef7a9e205fbaf46bf959e1522ff796622fc676c7 2 table deadlines member exchange 1000
         < 5 array int 1, int 1
         > EVALSHA ef7a9e205fbaf46bf959e1522ff796622fc676c7 2 table deadlines member exchange 1000
         < 6 array int 1, wrongtype
         > EVALSHA 9a2b966a0a2d2d0e36ec32bc30fc89342b94a4bf 1 deadlines a b 100
         < 7 int 1
         > MULTI ; SADD s a ; EVALSHA ef7a9e205fbaf46bf959e1522ff796622fc676c7 2 table deadlines m e 1 ; GET x ; EXEC
         < 8 transaction",
        expect![[r#"
            > EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock me
              ask 0 k1 DelIf { key: "lock", value: "me" }
            < 0 int 1
              :1·
            > EVALSHA a4e8783852e6b949f9ef3a97212805108459a890 1 lock me 5000 0
              ask 1 k1 ExpireIf { key: "lock", value: "me", deadline: MoveBy(5000) }
            < 1 int 1
              :1·
            > EVALSHA a4e8783852e6b949f9ef3a97212805108459a890 1 lock me 5000 1
              ask 2 k1 ExpireIf { key: "lock", value: "me", deadline: MoveTo(1700000005000.000ms) }
            < 2 int 0
              :0·
            > EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock me 5000
              ask 3 k1 ExpireIf { key: "lock", value: "me", deadline: To(1700000005000.000ms) }
            < 3 int 1
              :1·
            > EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock me
              -ERR this script takes 1 keys and 2 arguments·
            > EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 2 lock me 5000
              -ERR this script takes 1 keys and 2 arguments·
            > EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock me soon
              -ERR value is not an integer or out of range·
            > MULTI ; EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock me ; EXEC
              ask 4 k1 Transaction { watched: [], operations: [DelIf { key: "lock", value: "me" }] }
              +OK·+QUEUED·
            < 4 array int 1
              *1·:1·
            > EVALSHA ef7a9e205fbaf46bf959e1522ff796622fc676c7 2 table deadlines member exchange 1000
              ask 5 k1 Transaction { watched: [], operations: [SAdd { key: "table", members: ["member"] }, ZAdd { key: "deadlines", flags: ZAddFlags { condition: Always, scores: Greater, changed: false }, members: [(1700000001000, "exchange")] }] }
            < 5 array int 1, int 1
              $-1·
            > EVALSHA ef7a9e205fbaf46bf959e1522ff796622fc676c7 2 table deadlines member exchange 1000
              ask 6 k1 Transaction { watched: [], operations: [SAdd { key: "table", members: ["member"] }, ZAdd { key: "deadlines", flags: ZAddFlags { condition: Always, scores: Greater, changed: false }, members: [(1700000001000, "exchange")] }] }
            < 6 array int 1, wrongtype
              -WRONGTYPE Operation against a key holding the wrong kind of value·
            > EVALSHA 9a2b966a0a2d2d0e36ec32bc30fc89342b94a4bf 1 deadlines a b 100
              ask 7 k1 Exists { keys: ["deadlines"] }
            < 7 int 1
              :0·
            > MULTI ; SADD s a ; EVALSHA ef7a9e205fbaf46bf959e1522ff796622fc676c7 2 table deadlines m e 1 ; GET x ; EXEC
              ask 8 k1 Transaction { watched: [], operations: [SAdd { key: "s", members: ["a"] }, Transaction { watched: [], operations: [SAdd { key: "table", members: ["m"] }, ZAdd { key: "deadlines", flags: ZAddFlags { condition: Always, scores: Greater, changed: false }, members: [(1700000000001, "e")] }] }, Get { key: "x" }] }
              +OK·+QUEUED·+QUEUED·+QUEUED·
            < 8 transaction
              *3·:1·$-1·$-1·
        "#]],
    );
    let mut world = super::World::new(Login::Open);
    let text = b"local val = redis.call('GET', KEYS[1])\nif val == ARGV[1] then\n return redis.call('DEL', KEYS[1])\n\
                 elseif val == false then\n return -1\nelse\n return 0\nend";
    for (outcome, reply) in [("int 0, int 0", ":-1"), ("int 1, int 0", ":0"), ("int 1, int 1", ":1")] {
        world.receive(&super::encode(&[b"EVAL", text, b"1", b"lock", b"me"]));
        let id = world.requests.pop().unwrap().id;
        world.answer(id, super::parse_outcome(&format!("array {outcome}")));
        assert_eq!(std::mem::take(&mut world.out), format!("{reply}\r\n").as_bytes());
    }
}

/// What monitors read, in the words of Redis.
#[test]
fn monitors_find_keys_commands_and_processor_time() {
    let mut world = super::World::new(Login::Open);
    world.keyspaces[0].keys = Some((12, 3));
    world.keyspaces[1].keys = Some((0, 0));
    (world.keyspaces[0].expired, world.keyspaces[1].expired) = (40, 2);
    (world.node.processor_seconds, world.node.memory_bytes) = ((1.5, 0.25), 3 << 20);
    (world.node.memory_peak_bytes, world.counters.traffic) = (5 << 20, (30, 40));
    (world.node.commands_per_second, world.counters.limited) = (17, [("clients", 2)].into());
    let script = "> GET a
         + 2
         < 0 nil
         > GET a ; SET a 1
         + 1
         < 1 bulk 1
         < 2 ok
         > INFO keyspace CPU commandstats memory ; INFO everything ; INFO";
    let text = super::play(&mut world, script);
    for wanted in [
        "# Keyspace·db0:keys=12,expires=3,avg_ttl=0·",
        "# CPU·used_cpu_sys:0.250000·used_cpu_user:1.500000·",
        "·cmdstat_get:calls=2,usec=3000000,usec_per_call=1500000.00·cmdstat_info:calls=",
        "·cmdstat_set:calls=1,usec=1000000,usec_per_call=1000000.00·",
        "·used_memory:3145728·used_memory_human:3.00M·",
        "·expired_keys:42·evicted_keys:0·keyspace_hits:1·keyspace_misses:1·",
        "·used_memory_peak:5242880·used_memory_peak_human:5.00M·",
        "·instantaneous_ops_per_sec:17·total_net_input_bytes:30·total_net_output_bytes:40·rejected_connections:2·",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("db3:"), "nothing is said of what is empty: {text}");
    let sections = |text: &str| text.matches('#').map(str::to_owned).count();
    let replies: Vec<_> = text.rsplit("·$").take(2).collect();
    assert_eq!(
        sections(replies[1]),
        sections(replies[0]) + 1,
        "commands are told to who asks for everything"
    );
}

/// Of a key that is not there nothing is told, as in Redis 7.0: that uses are not counted is said of one that is.
#[test]
fn object_tells_nothing_of_a_key_that_is_not_there() {
    check(
        Login::Open,
        "> OBJECT FREQ a ; OBJECT FREQ b ; OBJECT IDLETIME a ; OBJECT IDLETIME b ; OBJECT REFCOUNT a ; OBJECT REFCOUNT b
         < 0 int 0
         < 1 int 1
         < 2 int 0
         < 3 int 1
         < 4 int 0
         < 5 int 1",
        expect![[r#"
            > OBJECT FREQ a ; OBJECT FREQ b ; OBJECT IDLETIME a ; OBJECT IDLETIME b ; OBJECT REFCOUNT a ; OBJECT REFCOUNT b
              ask 0 k1 Exists { keys: ["a"] }
              ask 1 k1 Exists { keys: ["b"] }
              ask 2 k1 Exists { keys: ["a"] }
              ask 3 k1 Exists { keys: ["b"] }
              ask 4 k1 Exists { keys: ["a"] }
              ask 5 k1 Exists { keys: ["b"] }
            < 0 int 0
              $-1·
            < 1 int 1
              -ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.·
            < 2 int 0
              $-1·
            < 3 int 1
              :0·
            < 4 int 0
              $-1·
            < 5 int 1
              :1·
        "#]],
    );
}

/// A page that somebody reads may have its browser send anything to a port of that machine.
#[test]
fn lines_of_http_end_the_connection_and_what_follows_is_not_carried_out() {
    for head in ["POST / HTTP/1.1", "Host: localhost:6379", "host: x"] {
        let mut world = super::World::new(Login::Open);
        let text = super::play(&mut world, &format!("| PING\\r\\n{head}\\r\\n\\r\\nDEL a\\r\\n"));
        assert!(text.contains("+PONG") && text.contains("closes") && !text.contains("ask"), "{text}");
        assert_eq!(world.counters.limited.get("http"), Some(&1));
    }
}

/// What took long is told, cut as in Redis; what waits for others is not, and what is set lasts.
#[test]
fn slow_commands_are_told() {
    let mut world = super::World::new(Login::Open);
    world.clients.get_mut(&7).unwrap().name = "me".to_owned();
    let long = "x".repeat(130);
    let many: Vec<String> = (0..40).map(|at| format!("k{at}")).collect();
    let script = format!(
        "> CONFIG GET slowlog*
         > GET quick
         < 0 nil
         > SET a {long} ; DEL {}
         + 2
         < 1 ok
         < 2 int 0
         > BLPOP list 0
         + 3
         < 3 popped bulk list, bulk v
         > MULTI ; GET b ; EXEC
         + 1
         < 4 array nil
         > SLOWLOG LEN ; SLOWLOG GET ; SLOWLOG GET 1 ; SLOWLOG GET 0
         > CONFIG SET slowlog-max-len 1 slowlog-log-slower-than 2000000 ; SLOWLOG LEN
         > GET c
         + 1
         < 5 nil
         > SLOWLOG LEN ; CONFIG SET slowlog-log-slower-than -1 slowlog-max-len -1 ; CONFIG GET slowlog*
         > CONFIG SET slowlog-log-slower-than -1 ; GET d
         + 9
         < 6 nil
         > SLOWLOG GET ; SLOWLOG RESET ; SLOWLOG LEN",
        many.join(" ")
    );
    let text = super::play(&mut world, &script);
    let replies: Vec<&str> = text.lines().filter(|line| line.contains('·')).map(str::trim).collect();
    let exec = "*6·:2·:1700000006·:1000000·*1·$4·EXEC·$15·127.0.0.1:50000·$2·me·";
    let (shown, more) = ("x".repeat(128), "... (2 more bytes)");
    let set =
        format!("*6·:0·:1700000002·:2000000·*3·$3·SET·$1·a·$146·{shown}{more}·$15·127.0.0.1:50000·$2·me·");
    let names: String = many[..30].iter().map(|name| format!("${}·{name}·", name.len())).collect();
    let del = format!(
        "*6·:1·:1700000002·:2000000·*32·$3·DEL·{names}$23·... (10 more arguments)·$15·127.0.0.1:50000·$2·me·"
    );
    let settings = |micros: &str, length: &str| {
        let (m, l) = (micros.len(), length.len());
        format!("*4·$23·slowlog-log-slower-than·${m}·{micros}·$15·slowlog-max-len·${l}·{length}·")
    };
    assert_eq!(replies[0], settings("10000", "128"));
    let wanted = format!(":3·*3·{exec}{del}{set}*1·{exec}*0·");
    assert!(replies.contains(&wanted.as_str()), "{text}\nwanted {wanted}");
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'slowlog-max-len') - argument must be between 0 and 4096 inclusive·";
    let wanted = format!(":1·{refused}{}", settings("2000000", "1"));
    assert!(replies.contains(&"+OK·:1·") && replies.contains(&wanted.as_str()), "{text}\nwanted {wanted}");
    assert_eq!(replies[replies.len() - 1], format!("*1·{exec}+OK·:0·"), "{text}");
}

#[test]
fn times_of_commands_are_told() {
    check(
        Login::Open,
        "> LATENCY HISTOGRAM ; SET a 1 ; SET a 2 ; SCAN 0
         < 1 ok
         + 2
         < 0 ok
         + 100
         < 2 nil
         > LATENCY HISTOGRAM ; LATENCY HISTOGRAM get NoSuch SET object ; HELLO 3 ; LATENCY HISTOGRAM set
         > CONFIG GET latency* ; LATENCY LATEST ; LATENCY HISTORY e ; LATENCY RESET e ; LATENCY GRAPH e ; LATENCY DOCTOR",
        expect![[r#"
            > LATENCY HISTOGRAM ; SET a 1 ; SET a 2 ; SCAN 0
              ask 0 k1 Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }
              ask 1 k1 Set { key: "a", value: "2", condition: Always, expiry: Clear, get: false }
              ask 2 k1 Scan { cursor: 0, count: 10, pattern: None, kind: None } in order
              *0·
            < 1 ok
            + 2
            < 0 ok
              +OK·+OK·
            + 100
            < 2 nil
              $-1·
            > LATENCY HISTOGRAM ; LATENCY HISTOGRAM get NoSuch SET object ; HELLO 3 ; LATENCY HISTOGRAM set
              *4·$4·scan·*4·$5·calls·:1·$14·histogram_usec·*2·:69256347·:1·$3·set·*4·$5·calls·:2·$14·histogram_usec·*4·:1·:1·:2164260·:2·*2·$3·set·*4·$5·calls·:2·$14·histogram_usec·*4·:1·:1·:2164260·:2·%7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·%1·$3·set·%2·$5·calls·:2·$14·histogram_usec·%2·:1·:1·:2164260·:2·
            > CONFIG GET latency* ; LATENCY LATEST ; LATENCY HISTORY e ; LATENCY RESET e ; LATENCY GRAPH e ; LATENCY DOCTOR
              %2·$25·latency-monitor-threshold·$1·0·$16·latency-tracking·$3·yes·*0·*0·:0·-ERR No samples available for event 'e'·=179·txt:No events are watched for here. LATENCY HISTOGRAM tells how long commands took, SLOWLOG GET which took long, and the metrics of the node what its protocols and its disk took.\n·
        "#]],
    );
    use crate::gateway::Times;
    use isochrone_core::Span;
    let mut times = Times::default();
    for place in 0..Times::PLACES {
        times.add(Times::most(place));
        times.add(Times::most(place) + Span::from_nanos(1));
    }
    // The last place takes the longer ones, too.
    assert_eq!((times.counts[0], times.counts[1], times.counts[Times::PLACES - 1]), (1, 2, 3));
    assert_eq!(times.counts.iter().sum::<u64>(), 2 * Times::PLACES as u64);
}

#[test]
fn hyperloglogs_are_counted_by_their_keys() {
    check(
        Login::Open,
        "> PFADD h a b ; PFADD h ; PFCOUNT h ; PFCOUNT h g ; PFMERGE t h g
         < 0 int 1
         < 1 int 0
         < 2 int 2
         < 3 wrongtype
         < 4 ok",
        expect![[r#"
            > PFADD h a b ; PFADD h ; PFCOUNT h ; PFCOUNT h g ; PFMERGE t h g
              ask 0 k1 PfAdd { key: "h", elements: ["a", "b"] }
              ask 1 k1 PfAdd { key: "h", elements: [] }
              ask 2 k1 PfCount { keys: ["h"] } in order
              ask 3 k1 PfCount { keys: ["h", "g"] } in order
              ask 4 k1 PfMerge { target: "t", keys: ["h", "g"] }
            < 0 int 1
              :1·
            < 1 int 0
              :0·
            < 2 int 2
              :2·
            < 3 wrongtype
              -WRONGTYPE Operation against a key holding the wrong kind of value·
            < 4 ok
              +OK·
        "#]],
    );
}

/// However many are under way, and in whatever order they are answered.
#[test]
fn slow_commands_of_a_pipeline_are_told_each_as_it_was() {
    let mut world = super::World::new(Login::Open);
    super::play(&mut world, "> CONFIG SET slowlog-max-len 4096 slowlog-log-slower-than 0");
    let value = "x".repeat(100);
    let mut waiting = Vec::new();
    let mut random = isochrone_core::Random::seeded(3);
    for at in 0..1500 {
        super::play(&mut world, &format!("> SET key:{at} {value}"));
        waiting.push(at);
        // Sometimes few are under way, and sometimes many.
        while waiting.len() > if at % 500 < 250 { 3 } else { 90 } {
            let at = waiting.remove(random.below(waiting.len() as u64) as usize);
            super::play(&mut world, &format!("< {at} ok"));
        }
    }
    for at in waiting {
        super::play(&mut world, &format!("< {at} ok"));
    }
    let text = super::play(&mut world, "> SLOWLOG GET -1");
    for at in 0..1500 {
        let key = format!("key:{at}");
        let told = format!("*3·$3·SET·${}·{key}·$100·{value}·", key.len());
        assert_eq!(text.matches(&told).count(), 1, "{told}");
    }
}
