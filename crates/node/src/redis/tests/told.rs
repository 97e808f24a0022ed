//! What a node tells of itself, its clients and its commands.

use super::{World, check, play};
use crate::gateway::Login;
use crate::hub::Topic;
use expect_test::expect;

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
         > COMMAND GETKEYS PING x ; COMMAND GETKEYS EVAL x 0 y ; COMMAND GETKEYS XREAD STREAMS a b c
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
              :215·
            > COMMAND GETKEYS MSET a 1 b 2
              *2·$1·a·$1·b·
            > COMMAND GETKEYS ZUNIONSTORE t 2 a b
              *3·$1·t·$1·a·$1·b·
            > COMMAND GETKEYS PING x ; COMMAND GETKEYS EVAL x 0 y ; COMMAND GETKEYS XREAD STREAMS a b c
              -ERR The command has no key arguments·*0·*1·$1·a·
            > COMMAND INFO get nope
              *2·*10·$3·get·:2·*2·+readonly·+fast·:1·:1·:1·*3·+@string·+@read·+@fast·*0·*1·*6·$5·flags·*1·+RO·$12·begin_search·*4·$4·type·$5·index·$4·spec·*2·$5·index·:1·$9·find_keys·*4·$4·type·$5·range·$4·spec·*6·$7·lastkey·:0·$7·keystep·:1·$5·limit·:0·*0·$-1·
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
        "·cmdstat_get:calls=2,usec=3000000,usec_per_call=1500000.00,rejected_calls=0,failed_calls=0·cmdstat_info:calls=",
        "·cmdstat_set:calls=1,usec=1000000,usec_per_call=1000000.00,rejected_calls=0,failed_calls=0·",
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

#[test]
fn what_failed_and_what_was_not_carried_out_are_counted_by_command() {
    let text = play(
        &mut World::new(Login::Open),
        "> GET ; GET a ; NOPE ; DEL ; SELECT 99 ; AUTH nobody x
         < 0 wrongtype
         > INFO commandstats ; INFO errorstats",
    );
    for wanted in [
        "·cmdstat_auth:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1·",
        "·cmdstat_del:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0·",
        "·cmdstat_get:calls=1,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=1·",
        "·cmdstat_select:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1·",
        "# Errorstats·errorstat_ERR:count=4·errorstat_WRONGPASS:count=1·errorstat_WRONGTYPE:count=1·",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

/// Which parts are sets, as in Redis 7.
#[test]
fn clients_of_resp3_are_told_of_commands_in_sets() {
    check(
        Login::Open,
        "> HELLO 3
         > COMMAND INFO get ping
         > COMMAND DOCS ping",
        expect![[r#"
            > HELLO 3
              %7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·
            > COMMAND INFO get ping
              *2·*10·$3·get·:2·~2·+readonly·+fast·:1·:1·:1·~3·+@string·+@read·+@fast·~0·~1·%3·$5·flags·~1·+RO·$12·begin_search·%2·$4·type·$5·index·$4·spec·%1·$5·index·:1·$9·find_keys·%2·$4·type·$5·range·$4·spec·%3·$7·lastkey·:0·$7·keystep·:1·$5·limit·:0·~0·*10·$4·ping·:-1·~1·+fast·:0·:0·:0·~2·+@connection·+@fast·~0·~0·~0·
            > COMMAND DOCS ping
              %1·$4·ping·%4·$7·summary·$24·Whether anybody is there·$5·since·$5·1.0.0·$5·group·$10·connection·$9·arguments·*1·%4·$4·name·$7·message·$4·type·$6·string·$12·display_text·$7·message·$5·flags·~1·+optional·
        "#]],
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

#[test]
fn clients_are_listed_as_they_are_asked_for() {
    let listed = play(&mut World::new(Login::Open), "> CLIENT LIST ID 9 7 0 9");
    let numbers: Vec<_> = listed.split("id=").skip(1).map(|line| &line[..1]).collect();
    assert_eq!(numbers, ["9", "7", "9"], "{listed}");
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
         > CLIENT KILL TYPE pubsub ; CLIENT KILL ID 9 ; CLIENT KILL 127.0.0.1:50001 ; CLIENT LIST TYPE pubsub ; CLIENT LIST ID 9 0 -1
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
        > CLIENT KILL TYPE pubsub ; CLIENT KILL ID 9 ; CLIENT KILL 127.0.0.1:50001 ; CLIENT LIST TYPE pubsub ; CLIENT LIST ID 9 0 -1
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
    let mut world = World::new(Login::Open);
    play(&mut world, "> WATCH q r\n< 0 array int 1, int 2\n> MULTI ; GET a");
    let mut line = String::new();
    crate::redis::clients::line(&mut line, 7, &world.clients[&7], world.now, &world.hub);
    assert!(line.contains(" flags=x ") && line.contains(" multi=1 watch=2 "), "{line}");
    // So does an EXEC that is carried out; what was refused was the last command also, where there is such a command.
    play(&mut world, "> DISCARD ; CLIENT NO-EVICT ON ; CLIENT NO-TOUCH ON ; MULTI ; CLIENT INFO ; PING");
    let text = play(&mut world, "> EXEC");
    assert!(text.contains(" flags=xeT ") && text.contains(" multi=2 watch=0 "), "{text}");
    for (request, last) in [("GET a b", "get"), ("CLIENT ID x", "client|id"), ("NOSUCH", "")] {
        world.receive(&super::encode_line(request));
        assert_eq!(world.clients[&7].last_command, last);
    }
    play(&mut world, "> SUBSCRIBE news ; SET a 1");
    assert_eq!(world.clients[&7].last_command, "set");
    play(&mut world, "> RESET ; CLIENT ID");
    assert_eq!((world.clients[&7].no_evict, world.clients[&7].no_touch), (false, false));
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
