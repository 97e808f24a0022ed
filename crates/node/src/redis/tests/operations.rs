//! How commands of Redis become operations of the store, and their responses replies.

use super::check;
use crate::gateway::{Ask, Login};
use expect_test::expect;

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
        "> SET a 1 EX 10 ; SETEX a 10 1 ; PEXPIRE a 1500 ; EXPIRE a -1 ; EXPIREAT a 1700000060 GT ; GETEX a PERSIST ; SET a 1 KEEPTTL XX GET ; SET a 1 EX x EX 10 ; GETEX a EX 5 EX 10 ; SINTERCARD 1 s LIMIT 1 LIMIT 2 ; MEMORY USAGE a SAMPLES 1 SAMPLES 2",
        expect![[r#"
            > SET a 1 EX 10 ; SETEX a 10 1 ; PEXPIRE a 1500 ; EXPIRE a -1 ; EXPIREAT a 1700000060 GT ; GETEX a PERSIST ; SET a 1 KEEPTTL XX GET ; SET a 1 EX x EX 10 ; GETEX a EX 5 EX 10 ; SINTERCARD 1 s LIMIT 1 LIMIT 2 ; MEMORY USAGE a SAMPLES 1 SAMPLES 2
              ask 0 k1 Set { key: "a", value: "1", condition: Always, expiry: At(1700000010000.000ms), get: false }
              ask 1 k1 Set { key: "a", value: "1", condition: Always, expiry: At(1700000010000.000ms), get: false }
              ask 2 k1 ExpireAt { key: "a", at: 1700000001500.000ms, condition: Always }
              ask 3 k1 ExpireAt { key: "a", at: 1699999999000.000ms, condition: Always }
              ask 4 k1 ExpireAt { key: "a", at: 1700000060000.000ms, condition: IfLater }
              ask 5 k1 GetEx { key: "a", expiry: Clear }
              ask 6 k1 Set { key: "a", value: "1", condition: IfPresent, expiry: Keep, get: true }
              ask 7 k1 Set { key: "a", value: "1", condition: Always, expiry: At(1700000010000.000ms), get: false }
              ask 8 k1 GetEx { key: "a", expiry: At(1700000010000.000ms) }
              ask 9 k1 SInterCard { keys: ["s"], limit: 2 } in order
              ask 10 k1 Weight { key: "a", samples: 2 } in order
        "#]],
    );
}

#[test]
fn scripts_of_rq_are_operations() {
    check(
        Login::Open,
        "> EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 61
         < 0 array ok, int 1
         > EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 61
         < 1 array nil, int 1
         > EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 61
         < 2 array nil, int 0
         > EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 61
         < 3 array nil, wrongtype
         > EVALSHA d44df6e1a0e76df1009084a91af26cc23ac035a9 1 lock me
         < 4 int 1
         > EVALSHA 5cee5213d2ee93f19f93badbfc1c8abbccde5baf 2 rq:job:a rq:queue:q a R 60 status queued
         < 5 array int 1, int 1, int 1
         > EVALSHA 5cee5213d2ee93f19f93badbfc1c8abbccde5baf 2 rq:job:a rq:queue:q a L -1
         < 6 nilarray
         > EVALSHA 5cee5213d2ee93f19f93badbfc1c8abbccde5baf 2 rq:job:a rq:queue:q a N -1 status queued
         < 7 array wrongtype
         > EVALSHA 5cee5213d2ee93f19f93badbfc1c8abbccde5baf 2 rq:job:a rq:queue:q a R -1 status
         > EVALSHA 10808fbebdc9b5ffafa2b7f5f2ce29a5bc6a1e07 3 rq:job:a later rq:queues a -1 1700000001 rq:queue:q status scheduled
         < 8 array int 1, int 1, int 1
         > EVALSHA 10808fbebdc9b5ffafa2b7f5f2ce29a5bc6a1e07 3 rq:job:a later rq:queues a -1 soon rq:queue:q
         > EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 2 q r
         > MULTI ; EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 1 q ; EVALSHA 5cee5213d2ee93f19f93badbfc1c8abbccde5baf 2 j q a R -1 ; EXEC",
        expect![[r#"
            > EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 61
              ask 0 k1 Transaction { watched: [], operations: [Set { key: "lock", value: "me", condition: IfAbsent, expiry: At(1700000061000.000ms), get: false }, ExpireIf { key: "lock", value: "me", deadline: To(1700000061000.000ms) }] }
            < 0 array ok, int 1
              :1·
            > EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 61
              ask 1 k1 Transaction { watched: [], operations: [Set { key: "lock", value: "me", condition: IfAbsent, expiry: At(1700000061000.000ms), get: false }, ExpireIf { key: "lock", value: "me", deadline: To(1700000061000.000ms) }] }
            < 1 array nil, int 1
              :2·
            > EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 61
              ask 2 k1 Transaction { watched: [], operations: [Set { key: "lock", value: "me", condition: IfAbsent, expiry: At(1700000061000.000ms), get: false }, ExpireIf { key: "lock", value: "me", deadline: To(1700000061000.000ms) }] }
            < 2 array nil, int 0
              :0·
            > EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 61
              ask 3 k1 Transaction { watched: [], operations: [Set { key: "lock", value: "me", condition: IfAbsent, expiry: At(1700000061000.000ms), get: false }, ExpireIf { key: "lock", value: "me", deadline: To(1700000061000.000ms) }] }
            < 3 array nil, wrongtype
              -WRONGTYPE Operation against a key holding the wrong kind of value·
            > EVALSHA d44df6e1a0e76df1009084a91af26cc23ac035a9 1 lock me
              ask 4 k1 DelIf { key: "lock", value: "me" }
            < 4 int 1
              :1·
            > EVALSHA 5cee5213d2ee93f19f93badbfc1c8abbccde5baf 2 rq:job:a rq:queue:q a R 60 status queued
              ask 5 k1 Transaction { watched: [("rq:job:a", 0)], operations: [HSet { key: "rq:job:a", pairs: [("status", "queued")] }, ExpireAt { key: "rq:job:a", at: 1700000060000.000ms, condition: Always }, Push { key: "rq:queue:q", values: ["a"], side: Right, only_if_exists: false }] }
            < 5 array int 1, int 1, int 1
              :1·
            > EVALSHA 5cee5213d2ee93f19f93badbfc1c8abbccde5baf 2 rq:job:a rq:queue:q a L -1
              ask 6 k1 Transaction { watched: [("rq:job:a", 0)], operations: [Push { key: "rq:queue:q", values: ["a"], side: Left, only_if_exists: false }] }
            < 6 nilarray
              :0·
            > EVALSHA 5cee5213d2ee93f19f93badbfc1c8abbccde5baf 2 rq:job:a rq:queue:q a N -1 status queued
              ask 7 k1 Transaction { watched: [("rq:job:a", 0)], operations: [HSet { key: "rq:job:a", pairs: [("status", "queued")] }] }
            < 7 array wrongtype
              -WRONGTYPE Operation against a key holding the wrong kind of value·
            > EVALSHA 5cee5213d2ee93f19f93badbfc1c8abbccde5baf 2 rq:job:a rq:queue:q a R -1 status
              -ERR wrong number of arguments for 'hset' command·
            > EVALSHA 10808fbebdc9b5ffafa2b7f5f2ce29a5bc6a1e07 3 rq:job:a later rq:queues a -1 1700000001 rq:queue:q status scheduled
              ask 8 k1 Transaction { watched: [("rq:job:a", 0)], operations: [HSet { key: "rq:job:a", pairs: [("status", "scheduled")] }, ZAdd { key: "later", flags: ZAddFlags { condition: Always, scores: Any, changed: false }, members: [(1700000001, "a")] }, SAdd { key: "rq:queues", members: ["rq:queue:q"] }] }
            < 8 array int 1, int 1, int 1
              :1·
            > EVALSHA 10808fbebdc9b5ffafa2b7f5f2ce29a5bc6a1e07 3 rq:job:a later rq:queues a -1 soon rq:queue:q
              -ERR value is not a valid float·
            > EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 2 q r
              -ERR this script takes 1 keys and 0 arguments·
            > MULTI ; EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 1 q ; EVALSHA 5cee5213d2ee93f19f93badbfc1c8abbccde5baf 2 j q a R -1 ; EXEC
              +OK·+QUEUED·+QUEUED·*2·-ERR this script is not carried out within MULTI·-ERR this script is not carried out within MULTI·
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

#[test]
fn scripts_of_locks_and_counters_answer_as_in_redis() {
    let locks = "for i, key in ipairs(KEYS) do if redis.call('exists', key) == 1 then return 0 end end \
                 for i, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS";
    let releases = "local count = 0 for i, key in ipairs(KEYS) do if redis.call('get', key) == ARGV[1] then \
                    redis.pcall('del', key) count = count + 1 end end return count";
    let renews = "for i, key in ipairs(KEYS) do if redis.call('get', key) ~= ARGV[1] then return 0 end end \
                  for i, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS";
    let release = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end";
    let expire =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], ARGV[2]) end";
    let within = "redis.call('set', KEYS[1], 0, 'EX', ARGV[2], 'NX') \
                  local n = redis.call('incrby', KEYS[1], ARGV[1]) local ttl = redis.call('pttl', KEYS[1]) \
                  if ttl == -1 then redis.call('expire', KEYS[1], ARGV[2]) ttl = 1000 * ARGV[2] end return {n, ttl}";
    let counted =
        "local n = redis.call('get', KEYS[1]) local ttl = redis.call('pttl', KEYS[1]) return {n, ttl}";
    let count =
        "local n = redis.call('incr', KEYS[1]) if n == 1 then redis.call('expire', KEYS[1], ARGV[1]) end";
    let tells = format!("{count} return n");
    let add = "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])";
    let set = |key: &str| {
        format!(
            "Set {{ key: {key:?}, value: \"me\", condition: Always, expiry: At(1700000005000.000ms), get: false }}"
        )
    };
    let all = |watched: &str, operations: &str| {
        format!("Transaction {{ watched: [{watched}], operations: [{operations}] }}")
    };
    let locked = all(r#"("a", 0), ("b", 0)"#, &format!("{}, {}", set("a"), set("b")));
    let released = all("", r#"DelIf { key: "a", value: "me" }, DelIf { key: "b", value: "me" }"#);
    let expires = r#"ExpireIf { key: "n", value: "1", deadline: To(1700000005000.000ms) }"#;
    let counts = all("", &format!(r#"IncrBy {{ key: "n", by: 1 }}, {expires}"#));
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    let mut world = super::World::new(Login::Open);
    type Answers<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, &str, &str, Answers<'_>); 10] = [
        (locks, "2 a b me 5000", &locked, &[("array ok, ok", ":2\r\n"), ("nilarray", ":0\r\n")]),
        (
            releases,
            "2 a b me",
            &released,
            &[
                ("array int 1, int 1", ":2\r\n"),
                ("array int 0, int 1", ":1\r\n"),
                ("array int 1, wrongtype", wrong),
            ],
        ),
        (
            renews,
            "1 a me 5000",
            r#"ExpireIf { key: "a", value: "me", deadline: To(1700000005000.000ms) }"#,
            &[("int 1", ":1\r\n"), ("int 0", ":0\r\n")],
        ),
        (
            release,
            "1 a me",
            r#"DelIf { key: "a", value: "me" }"#,
            &[("int 1", ":1\r\n"), ("int 0", "$-1\r\n"), ("wrongtype", wrong)],
        ),
        (
            expire,
            "1 a me 5",
            r#"ExpireIf { key: "a", value: "me", deadline: To(1700000005000.000ms) }"#,
            &[("int 1", ":1\r\n"), ("int 0", "$-1\r\n")],
        ),
        (
            within,
            "1 n 3 5",
            r#"CountUntil { key: "n", by: 3, until: 1700000005000.000ms, anew: false }"#,
            &[("array int 3, int 5000", "*2\r\n:3\r\n:5000\r\n"), ("wrongtype", wrong)],
        ),
        (
            counted,
            "1 n",
            &all("", r#"Get { key: "n" }, Ttl { key: "n", unit: Millis, absolute: false }"#),
            &[
                ("array nil, int -2", "*2\r\n$-1\r\n:-2\r\n"),
                ("array bulk 7, int 40", "*2\r\n$1\r\n7\r\n:40\r\n"),
                ("array wrongtype, int -1", wrong),
            ],
        ),
        (
            count,
            "1 n 5",
            &counts,
            &[("array int 1, int 1", "$-1\r\n"), ("array wrongtype, wrongtype", wrong)],
        ),
        (
            &tells,
            "1 n 5",
            &counts,
            &[("array int 4, int 0", ":4\r\n"), ("array wrongtype, wrongtype", wrong)],
        ),
        (
            add,
            "1 a me 5",
            r#"Set { key: "a", value: "me", condition: IfAbsent, expiry: At(1700000005000.000ms), get: false }"#,
            &[("nil", "$-1\r\n"), ("ok", "+OK\r\n")],
        ),
    ];
    for (text, args, asks, answers) in cases {
        for (outcome, reply) in answers {
            let words: Vec<&[u8]> =
                [b"EVAL", text.as_bytes()].into_iter().chain(args.split(' ').map(str::as_bytes)).collect();
            world.receive(&super::encode(&words));
            let request = world.requests.pop().unwrap();
            let Ask::Execute { command, .. } = request.ask else { panic!("{text}") };
            assert_eq!(format!("{:?}", command.operation), asks, "{text}");
            world.answer(request.id, super::parse_outcome(outcome));
            assert_eq!(String::from_utf8(std::mem::take(&mut world.out)).unwrap(), *reply, "{text}");
        }
    }
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
