//! Commands that wait, and messages: what others do reaches a connection.

use super::{World, play, talk};
use crate::gateway::{Durability, Login};
use crate::hub::{News, Notice};
use crate::limits::Limits;
use expect_test::{Expect, expect};
use isochrone_core::{Blob, KeyspaceId, NodeId};

#[track_caller]
fn check(script: &str, expected: Expect) {
    expected.assert_eq(&talk(Login::Open, script));
}

#[test]
fn a_pop_waits_until_a_key_is_filled() {
    check(
        "> BLPOP a b 0 ; GET x
         < 0 nilarray
         + 0
         ! fill c
         ! fill b
         < 0 popped bulk b, bulk v
         < 1 nil",
        expect![[r#"
            > BLPOP a b 0 ; GET x
              ask 0 k1 LMPop { keys: ["a", "b"], side: Left, count: 1 }
              reads no further
            < 0 nilarray
              reads no further
            + 0
              reads no further
            ! fill c
              reads no further
            ! fill b
              ask 0 k1 LMPop { keys: ["a", "b"], side: Left, count: 1 }
              reads no further
            < 0 popped bulk b, bulk v
              ask 1 k1 Get { key: "x" }
              *2·$1·b·$1·v·
            < 1 nil
              $-1·
        "#]],
    );
}

#[test]
fn a_queue_is_emptied_in_steps_of_what_there_was() {
    check(
        "> EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 1 rq:queue:q ; GET x
         < 0 popped int 3, bulk a, bulk b
         < 0 int 4
         < 0 popped int 7, bulk c
         < 0 int 1
         < 1 nil
         > EVALSHA b3ee5dcfdd9c987f22a7271c7eea4d326e2f58d6 1 rq:queue:q
         < 2 popped int 2, bulk a
         < 2 int 0
         < 2 array int 0, nil
         > EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 1 rq:queue:q
         < 3 array int 0, nil
         > EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 1 rq:queue:q
         < 4 array wrongtype, wrongtype
         > EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 1 rq:queue:q
         < 5 refused nobody leads
         > EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 1 rq:queue:q
         < 6 popped int 1, bulk a
         < 6 refused nobody leads
         > GET x
         < 7 nil",
        expect![[r#"
            > EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 1 rq:queue:q ; GET x
              ask 0 k1 Transaction { watched: [], operations: [LLen { key: "rq:queue:q" }, Pop { key: "rq:queue:q", side: Left, count: Some(1000) }] }
              reads no further
            < 0 popped int 3, bulk a, bulk b
              ask 0 k1 Del { keys: ["rq:job:a", "rq:job:a:dependents", "rq:job:b", "rq:job:b:dependents"] } in order
              reads no further
            < 0 int 4
              ask 0 k1 Transaction { watched: [], operations: [LLen { key: "rq:queue:q" }, Pop { key: "rq:queue:q", side: Left, count: Some(1) }] } in order
              reads no further
            < 0 popped int 7, bulk c
              ask 0 k1 Del { keys: ["rq:job:c", "rq:job:c:dependents"] } in order
              reads no further
            < 0 int 1
              ask 1 k1 Get { key: "x" }
              :3·
            < 1 nil
              $-1·
            > EVALSHA b3ee5dcfdd9c987f22a7271c7eea4d326e2f58d6 1 rq:queue:q
              ask 2 k1 Transaction { watched: [], operations: [LLen { key: "rq:queue:q" }, Pop { key: "rq:queue:q", side: Left, count: Some(1000) }] }
              reads no further
            < 2 popped int 2, bulk a
              ask 2 k1 Del { keys: ["rq:job:a", "rq:results:a", "rq:job:a:dependents"] } in order
              reads no further
            < 2 int 0
              ask 2 k1 Transaction { watched: [], operations: [LLen { key: "rq:queue:q" }, Pop { key: "rq:queue:q", side: Left, count: Some(1) }] } in order
              reads no further
            < 2 array int 0, nil
              :1·
            > EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 1 rq:queue:q
              ask 3 k1 Transaction { watched: [], operations: [LLen { key: "rq:queue:q" }, Pop { key: "rq:queue:q", side: Left, count: Some(1000) }] }
              reads no further
            < 3 array int 0, nil
              :0·
            > EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 1 rq:queue:q
              ask 4 k1 Transaction { watched: [], operations: [LLen { key: "rq:queue:q" }, Pop { key: "rq:queue:q", side: Left, count: Some(1000) }] }
              reads no further
            < 4 array wrongtype, wrongtype
              -WRONGTYPE Operation against a key holding the wrong kind of value·
            > EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 1 rq:queue:q
              ask 5 k1 Transaction { watched: [], operations: [LLen { key: "rq:queue:q" }, Pop { key: "rq:queue:q", side: Left, count: Some(1000) }] }
              reads no further
            < 5 refused nobody leads
              -TRYAGAIN nobody leads·
            > EVALSHA 0f72f97be1eabbfce0148fd466da8c4ad73236fe 1 rq:queue:q
              ask 6 k1 Transaction { watched: [], operations: [LLen { key: "rq:queue:q" }, Pop { key: "rq:queue:q", side: Left, count: Some(1000) }] }
              reads no further
            < 6 popped int 1, bulk a
              ask 6 k1 Del { keys: ["rq:job:a", "rq:job:a:dependents"] } in order
              reads no further
            < 6 refused nobody leads
              -UNKNOWN the outcome is not known, the command may yet take effect: nobody leads·
            > GET x
              ask 7 k1 Get { key: "x" }
            < 7 nil
              $-1·
        "#]],
    );
}

#[test]
fn a_pop_that_waits_looks_for_itself_and_gives_up_in_time() {
    check(
        "> BLPOP a 1e400 ; BZPOPMIN z 2.5
         < 0 nilarray
         + 1
         < 0 int 0
         + 1
         < 0 int 1
         < 0 nilarray
         + 1
         > BLMOVE a b LEFT RIGHT 1
         + 2
         < 1 nil
         > HELLO 3 ; BRPOPLPUSH a b 1
         < 2 nil
         + 1",
        expect![[r#"
            > BLPOP a 1e400 ; BZPOPMIN z 2.5
              ask 0 k1 ZMPop { keys: ["z"], end: Least, count: 1 }
              -ERR timeout is out of range·
              reads no further
            < 0 nilarray
              reads no further
            + 1
              ask 0 k1 Exists { keys: ["z"] }
              reads no further
            < 0 int 0
              reads no further
            + 1
              ask 0 k1 Exists { keys: ["z"] }
              reads no further
            < 0 int 1
              ask 0 k1 ZMPop { keys: ["z"], end: Least, count: 1 }
              reads no further
            < 0 nilarray
              reads no further
            + 1
              *-1·
            > BLMOVE a b LEFT RIGHT 1
              ask 1 k1 LMove { source: "a", target: "b", from: Left, to: Right }
              reads no further
            + 2
              reads no further
            < 1 nil
              *-1·
            > HELLO 3 ; BRPOPLPUSH a b 1
              ask 2 k1 LMove { source: "a", target: "b", from: Right, to: Left }
              %7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·
              reads no further
            < 2 nil
              reads no further
            + 1
              _·
        "#]],
    );
}

#[test]
fn what_comes_while_an_attempt_is_under_way_leads_to_another() {
    check(
        "> BRPOP a 0
         ! fill a
         < 0 nilarray
         < 0 wrongtype
         ! fill a
         < 0 refused NOLEADER no leader
         ! fill a
         < 0 unknown the leader is lost
         > BRPOP a 0
         < 1 wrongtype
         > BRPOP a 0
         < 2 refused NOLEADER no leader
         > BLMOVE a b LEFT RIGHT 0
         < 3 nil
         ! fill a
         < 3 array hash, wrongtype
         ! fill a
         < 3 array list, wrongtype
         > BLPOP a b 0
         < 4 nilarray
         ! fill a
         < 4 refused CROSSSLOT Keys in request don't hash to the same slot",
        expect![[r#"
            > BRPOP a 0
              ask 0 k1 LMPop { keys: ["a"], side: Right, count: 1 }
              reads no further
            ! fill a
              reads no further
            < 0 nilarray
              ask 0 k1 LMPop { keys: ["a"], side: Right, count: 1 }
              reads no further
            < 0 wrongtype
              reads no further
            ! fill a
              ask 0 k1 LMPop { keys: ["a"], side: Right, count: 1 }
              reads no further
            < 0 refused NOLEADER no leader
              reads no further
            ! fill a
              ask 0 k1 LMPop { keys: ["a"], side: Right, count: 1 }
              reads no further
            < 0 unknown the leader is lost
              -UNKNOWN the outcome is not known, the command may yet take effect: the leader is lost·
            > BRPOP a 0
              ask 1 k1 LMPop { keys: ["a"], side: Right, count: 1 }
              reads no further
            < 1 wrongtype
              -WRONGTYPE Operation against a key holding the wrong kind of value·
            > BRPOP a 0
              ask 2 k1 LMPop { keys: ["a"], side: Right, count: 1 }
              reads no further
            < 2 refused NOLEADER no leader
              -NOLEADER no leader·
            > BLMOVE a b LEFT RIGHT 0
              ask 3 k1 LMove { source: "a", target: "b", from: Left, to: Right }
              reads no further
            < 3 nil
              reads no further
            ! fill a
              ask 3 k1 Transaction { watched: [], operations: [Type { key: "a" }, LMove { source: "a", target: "b", from: Left, to: Right }] }
              reads no further
            < 3 array hash, wrongtype
              reads no further
            ! fill a
              ask 3 k1 Transaction { watched: [], operations: [Type { key: "a" }, LMove { source: "a", target: "b", from: Left, to: Right }] }
              reads no further
            < 3 array list, wrongtype
              -WRONGTYPE Operation against a key holding the wrong kind of value·
            > BLPOP a b 0
              ask 4 k1 LMPop { keys: ["a", "b"], side: Left, count: 1 }
              reads no further
            < 4 nilarray
              reads no further
            ! fill a
              ask 4 k1 LMPop { keys: ["a", "b"], side: Left, count: 1 }
              reads no further
            < 4 refused CROSSSLOT Keys in request don't hash to the same slot
              -CROSSSLOT Keys in request don't hash to the same slot·
        "#]],
    );
}

/// Of what came to a watched key that was absent, nothing may be left.
#[test]
fn what_was_waited_for_was_there() {
    super::check_transactional(
        "> WATCH q
         < 0 int 0
         > BLPOP q 0
         < 1 array int 0, nilarray, int 0
         ! fill q
         < 1 popped bulk q, bulk v
         > MULTI ; SET copy v ; EXEC
         > WATCH p
         < 2 int 0
         > BLPOP p r 0
         < 3 array int 0, nilarray, int 0
         ! fill r
         < 3 popped bulk r, bulk v
         > MULTI ; SET copy v ; EXEC",
        expect![[r#"
            > WATCH q
              ask 0 k1 Version { key: "q" }
            < 0 int 0
              +OK·
            > BLPOP q 0
              ask 1 k1 Transaction { watched: [], operations: [Version { key: "q" }, LMPop { keys: ["q"], side: Left, count: 1 }, Version { key: "q" }] }
              reads no further
            < 1 array int 0, nilarray, int 0
              reads no further
            ! fill q
              ask 1 k1 LMPop { keys: ["q"], side: Left, count: 1 }
              reads no further
            < 1 popped bulk q, bulk v
              *2·$1·q·$1·v·
            > MULTI ; SET copy v ; EXEC
              +OK·+QUEUED·*-1·
            > WATCH p
              ask 2 k1 Version { key: "p" }
            < 2 int 0
              +OK·
            > BLPOP p r 0
              ask 3 k1 Transaction { watched: [], operations: [Version { key: "p" }, LMPop { keys: ["p", "r"], side: Left, count: 1 }, Version { key: "p" }] }
              reads no further
            < 3 array int 0, nilarray, int 0
              reads no further
            ! fill r
              ask 3 k1 LMPop { keys: ["p", "r"], side: Left, count: 1 }
              reads no further
            < 3 popped bulk r, bulk v
              *2·$1·r·$1·v·
            > MULTI ; SET copy v ; EXEC
              ask 4 k1 Transaction { watched: [("p", 0)], operations: [Set { key: "copy", value: "v", condition: Always, expiry: Clear, get: false }] }
              +OK·+QUEUED·
        "#]],
    );
}

/// It was asked for with the attempt.
#[test]
fn what_an_attempt_failed_for_at_once_was_not_there() {
    super::check_transactional(
        "> WATCH st
         < 0 int 0
         > XREADGROUP GROUP g a BLOCK 0 STREAMS st >
         < 1 array int 0, nogroup 0, int 0
         > MULTI ; SET copy 1 ; EXEC",
        expect![[r#"
            > WATCH st
              ask 0 k1 Version { key: "st" }
            < 0 int 0
              +OK·
            > XREADGROUP GROUP g a BLOCK 0 STREAMS st >
              ask 1 k1 Transaction { watched: [], operations: [Version { key: "st" }, XReadGroup { read: GroupRead { streams: [("st", None)], group: "g", consumer: "a", count: 0, forget: false, peek: false } }, Version { key: "st" }] }
              reads no further
            < 1 array int 0, nogroup 0, int 0
              -NOGROUP No such key 'st' or consumer group 'g' in XREADGROUP with GROUP option·
            > MULTI ; SET copy 1 ; EXEC
              ask 2 k1 Transaction { watched: [("st", 0)], operations: [Set { key: "copy", value: "1", condition: Always, expiry: Clear, get: false }] }
              +OK·+QUEUED·
        "#]],
    );
}

/// Else who waits for the others would wait for as long as that one is there.
#[test]
fn where_a_key_is_of_another_type_the_others_are_tried() {
    check(
        "> BLPOP a b c 0
         < 0 nilarray
         ! fill b
         < 0 wrongtype
         ! fill c
         < 0 array hash, none, none
         < 0 wrongtype
         < 0 array hash, list, list
         < 0 popped bulk b, bulk v
         > XREAD BLOCK 3000 STREAMS s t 1-1 2-2
         < 1 nilarray
         ! fill t
         < 1 wrongtype
         < 1 array hash, stream
         < 1 nilarray
         ! fill t
         < 1 wrongtype
         + 3",
        expect![[r#"
            > BLPOP a b c 0
              ask 0 k1 LMPop { keys: ["a", "b", "c"], side: Left, count: 1 }
              reads no further
            < 0 nilarray
              reads no further
            ! fill b
              ask 0 k1 LMPop { keys: ["a", "b", "c"], side: Left, count: 1 }
              reads no further
            < 0 wrongtype
              ask 0 k1 Transaction { watched: [], operations: [Type { key: "a" }, Type { key: "b" }, Type { key: "c" }] }
              reads no further
            ! fill c
              reads no further
            < 0 array hash, none, none
              ask 0 k1 LMPop { keys: ["a", "b", "c"], side: Left, count: 1 }
              reads no further
            < 0 wrongtype
              ask 0 k1 Transaction { watched: [], operations: [Type { key: "a" }, Type { key: "b" }, Type { key: "c" }] }
              reads no further
            < 0 array hash, list, list
              ask 0 k1 LMPop { keys: ["b", "c"], side: Left, count: 1 }
              reads no further
            < 0 popped bulk b, bulk v
              *2·$1·b·$1·v·
            > XREAD BLOCK 3000 STREAMS s t 1-1 2-2
              ask 1 k1 XRead { read: StreamRead { streams: [("s", After(StreamId { millis: 1, sequence: 1 })), ("t", After(StreamId { millis: 2, sequence: 2 }))], count: 0, resolve: false } }
              reads no further
            < 1 nilarray
              reads no further
            ! fill t
              ask 1 k1 XRead { read: StreamRead { streams: [("s", After(StreamId { millis: 1, sequence: 1 })), ("t", After(StreamId { millis: 2, sequence: 2 }))], count: 0, resolve: false } }
              reads no further
            < 1 wrongtype
              ask 1 k1 Transaction { watched: [], operations: [Type { key: "s" }, Type { key: "t" }] }
              reads no further
            < 1 array hash, stream
              ask 1 k1 XRead { read: StreamRead { streams: [("t", After(StreamId { millis: 2, sequence: 2 }))], count: 0, resolve: false } }
              reads no further
            < 1 nilarray
              reads no further
            ! fill t
              ask 1 k1 XRead { read: StreamRead { streams: [("s", After(StreamId { millis: 1, sequence: 1 })), ("t", After(StreamId { millis: 2, sequence: 2 }))], count: 0, resolve: false } }
              reads no further
            < 1 wrongtype
              ask 1 k1 Transaction { watched: [], operations: [Type { key: "s" }, Type { key: "t" }] }
              reads no further
            + 3
              *-1·
        "#]],
    );
}

#[test]
fn a_wait_is_ended_from_outside() {
    let mut world = World::new(Login::Open);
    play(&mut world, "> BLPOP a 0");
    assert!(!world.clients[&7].waits, "until then it is asked like any other command");
    play(&mut world, "< 0 nilarray");
    assert!(world.hub.waits(7) && world.clients[&7].waits);
    assert!(world.hub.unblock(7, true));
    assert_eq!(play(&mut world, "+ 0"), "+ 0\n  -UNBLOCKED client unblocked via CLIENT UNBLOCK·\n");
    assert!(!world.hub.waits(7));
    play(&mut world, "> BLMPOP 0 1 a LEFT");
    assert!(world.hub.unblock(7, false));
    assert_eq!(play(&mut world, "+ 0"), "+ 0\n  reads no further\n");
    assert_eq!(play(&mut world, "< 1 nilarray"), "< 1 nilarray\n  *-1·\n");
    assert_eq!(play(&mut world, "> CLIENT UNBLOCK 9 ; CLIENT UNBLOCK x"), {
        "> CLIENT UNBLOCK 9 ; CLIENT UNBLOCK x\n  :0·-ERR value is not an integer or out of range·\n"
    });
    // Once is enough.
    world.hub.wait(22, isochrone_core::KeyspaceId(1), &["l".into()]);
    let twice = play(&mut world, "> CLIENT UNBLOCK 22 ERROR ; CLIENT UNBLOCK 22");
    assert!(twice.ends_with("\n  :1·:0·\n"), "{twice}");
    world.hub.unwait(22);
    // Of what a transaction pushes, nothing is for whom it tells to wait no longer; what was pushed before in the pipeline is.
    let (unblock, filled) = (Notice::Unblock, Notice::Filled);
    for (waiter, script, id, outcome, replies, mail) in [
        (
            20,
            "MULTI ; CLIENT UNBLOCK 20 ; RPUSH l 1 ; EXEC",
            2,
            "array int 1",
            "*2·:1·:1·",
            [&unblock, &filled],
        ),
        (21, "RPUSH l 1 ; CLIENT UNBLOCK 21 ; PING", 3, "int 1", "  :1·:0·+PONG·", [&filled, &unblock]),
    ] {
        world.hub.wait(waiter, isochrone_core::KeyspaceId(1), &["l".into()]);
        world.receive(&script.split(" ; ").flat_map(super::encode_line).collect::<Vec<_>>());
        assert!(world.hub.take_mail().is_empty(), "{script}");
        world.transcript();
        world.answer(id, super::parse_outcome(outcome));
        assert!(world.transcript().contains(replies), "{script}");
        assert_eq!(world.hub.take_mail(), mail.map(|notice| (waiter, notice.clone())), "{script}");
        world.hub.unwait(waiter);
    }
}

/// Whichever of two attempts finds what came: which does, nobody knows before the answers come.
#[test]
fn what_a_later_one_takes_is_for_whoever_has_waited_longest() {
    let mut world = World::new(Login::Open);
    world.another_tries(3);
    play(&mut world, "> BLPOP a 2");
    // It may be that the first finds nothing, though it has waited longer than this one.
    let taken = "< 0 popped bulk a, bulk x";
    assert_eq!(play(&mut world, taken), format!("{taken}\n  reads no further\n"));
    assert_eq!(play(&mut world, "+ 3"), "+ 3\n  reads no further\n", "what becomes of it is waited for");
    world.hub.took_nothing(3);
    assert_eq!(world.hub.take_given(3), Some(super::parse_outcome("popped bulk a, bulk x")));
    world.hub.unwait(3);
    assert_eq!(play(&mut world, "+ 0"), "+ 0\n  *-1·\n", "its time is over by then");
    // Or that it finds something as well.
    world.another_tries(4);
    play(&mut world, "> BLPOP a 0\n< 1 popped bulk a, bulk y");
    world.another_takes(4, "popped bulk a, bulk z");
    assert_eq!(play(&mut world, "+ 0"), "+ 0\n  *2·$1·a·$1·z·\n");
    assert_eq!(world.hub.take_given(4), Some(super::parse_outcome("popped bulk a, bulk y")));
    world.hub.unwait(4);
    // Who has given away what it has taken goes on like others that have found nothing.
    world.another_tries(5);
    world.hub.took_nothing(5);
    play(&mut world, "> BLPOP a 0\n< 2 popped bulk a, bulk x");
    assert!(world.clients[&7].waits && world.hub.is_given(5));
    let retried = "+ 1\n  ask 2 k1 Exists { keys: [\"a\"] }\n  reads no further\n";
    assert_eq!(play(&mut world, "+ 1"), retried);
}

/// Else it ended without what is for it, or took one more.
#[test]
fn what_is_for_one_that_waits_comes_before_anything_else_that_happens_to_it() {
    for event in ["+ 0", "+ 9", "! fill a", "! close"] {
        let mut world = World::new(Login::Open);
        play(&mut world, "> BLPOP a 5\n< 0 nilarray");
        world.another_tries(8);
        world.another_takes(8, "popped bulk a, bulk x");
        assert_eq!(play(&mut world, event), format!("{event}\n  *2·$1·a·$1·x·\n"));
        assert!(!world.hub.waits(7) && world.hub.waits(8) && !world.hub.is_given(8), "{event}");
    }
    let mut world = World::new(Login::Open);
    play(&mut world, "> BLPOP a 5\n< 0 nilarray\n+ 1");
    world.another_tries(8);
    world.another_takes(8, "popped bulk a, bulk x");
    let seen = "< 0 int 1";
    assert_eq!(play(&mut world, seen), format!("{seen}\n  *2·$1·a·$1·x·\n"), "nothing more is asked");
}

/// What ends one wait does not end the next, which has begun before the notice of it comes.
#[test]
fn what_ends_a_wait_ends_no_other() {
    let mut world = World::new(Login::Open);
    play(&mut world, "> BLPOP a 0\n< 0 nilarray\n! fill a");
    assert!(world.hub.unblock(7, true));
    // Its attempt is answered before the notice is handed over, and the next command of the pipeline waits by then.
    world.answer(0, super::parse_outcome("popped bulk a, bulk v"));
    world.receive(b"*3\r\n$5\r\nBLPOP\r\n$1\r\na\r\n$1\r\n0\r\n");
    world.answer(1, super::parse_outcome("nilarray"));
    world.deliver();
    let told = world.transcript();
    assert!(world.hub.waits(7) && !told.contains("UNBLOCKED"), "{told}");
    assert!(world.hub.unblock(7, true));
    world.deliver();
    assert!(world.transcript().contains("UNBLOCKED"));
}

#[test]
fn a_member_comes_with_its_score() {
    check(
        "> BZPOPMAX z 0
         < 0 scored bulk z, bulk a, double 1.5
         > HELLO 3 ; BZPOPMAX z 0
         < 1 scored bulk z, bulk a, double 1.5",
        expect![[r#"
            > BZPOPMAX z 0
              ask 0 k1 ZMPop { keys: ["z"], end: Greatest, count: 1 }
              reads no further
            < 0 scored bulk z, bulk a, double 1.5
              *3·$1·z·$1·a·$3·1.5·
            > HELLO 3 ; BZPOPMAX z 0
              ask 1 k1 ZMPop { keys: ["z"], end: Greatest, count: 1 }
              %7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·
              reads no further
            < 1 scored bulk z, bulk a, double 1.5
              *3·$1·z·$1·a·,1.5·
        "#]],
    );
}

#[test]
fn nothing_waits_within_a_transaction() {
    check(
        "> MULTI ; BLPOP a 0 ; BLMOVE a b LEFT LEFT 0 ; PUBLISH c m ; EXEC
         < 0 array nilarray, nil",
        expect![[r#"
            > MULTI ; BLPOP a 0 ; BLMOVE a b LEFT LEFT 0 ; PUBLISH c m ; EXEC
              ask 0 k1 Transaction { watched: [], operations: [LMPop { keys: ["a"], side: Left, count: 1 }, LMove { source: "a", target: "b", from: Left, to: Left }] }
              +OK·+QUEUED·+QUEUED·+QUEUED·
              reads no further
            < 0 array nilarray, nil
              *3·*-1·$-1·:0·
        "#]],
    );
}

#[test]
fn pushes_are_told_to_those_who_wait() {
    let mut world = World::new(Login::Open);
    for (connection, key) in [(20, "l"), (21, "z"), (22, "t"), (23, "l")] {
        world.hub.wait(connection, isochrone_core::KeyspaceId(1), &[key.into()]);
    }
    let mut raw = |script: &str, id: usize| {
        world.receive(&super::encode_line(script));
        world.requests.clear();
        world.answer(id as u64, super::parse_outcome("int 1"));
        let told: Vec<u64> = world.hub.take_mail().into_iter().map(|(number, _)| number).collect();
        // They look, and have not heard yet what there is.
        told.iter().for_each(|number| world.hub.looks(*number));
        told
    };
    assert_eq!(raw("RPUSH l 1", 0), [20]);
    // Who was told of the first and has not taken it leaves the next ones to the others.
    assert_eq!(raw("LPUSH l 1 2 3", 1), [23, 20]);
    assert_eq!(raw("ZADD z 1 a", 2), [21]);
    assert_eq!(raw("RENAME x t", 3), [22]);
    assert!(raw("SET l 1", 4).is_empty());
    raw("MULTI", 4);
    raw("RPUSH l 1 2", 4);
    raw("XADD t * f v", 4);
    assert_eq!(raw("EXEC", 5), [20, 23, 22]);
    // What known scripts add is told as well.
    raw("EVALSHA b8fc152c83a7e634103ccebd49dcd3146a8f4366 6 l d s r g c task value 0 0 0 0 10 token", 6);
    raw("MULTI", 7);
    raw("EVALSHA ef7a9e205fbaf46bf959e1522ff796622fc676c7 2 table z m e 1", 7);
    assert_eq!(raw("EXEC", 7), [21]);
}

#[test]
fn subscribers_are_told_what_is_published() {
    check(
        "> SUBSCRIBE a b ; PSUBSCRIBE n*s
         ! publish a hi
         ! publish news x
         ! publish c lost
         > GET k ; PING ; PING x ; PUBSUB NUMPAT
         > UNSUBSCRIBE b ; UNSUBSCRIBE b ; PUNSUBSCRIBE
         > UNSUBSCRIBE ; UNSUBSCRIBE ; PUBSUB CHANNELS
         > HELLO 3 ; SUBSCRIBE a ; PUBSUB CHANNELS ; PUBSUB NUMSUB a b ; PUBLISH a me
         > PUBLISH a one ; PSUBSCRIBE x* ; PUBLISH a two ; HELLO 2
         > RESET ; PUBSUB CHANNELS ; PUBLISH a nobody
         > CLIENT REPLY OFF ; PING ; SUBSCRIBE a ; UNSUBSCRIBE ; CLIENT REPLY ON ; CLIENT REPLY SKIP ; SUBSCRIBE a ; PING
         > RESET ; CLIENT REPLY SKIP ; RESET ; PING ; CLIENT REPLY OFF ; RESET",
        expect![[r#"
            > SUBSCRIBE a b ; PSUBSCRIBE n*s
              *3·$9·subscribe·$1·a·:1·*3·$9·subscribe·$1·b·:2·*3·$10·psubscribe·$3·n*s·:3·
            ! publish a hi
              *3·$7·message·$1·a·$2·hi·
            ! publish news x
              *4·$8·pmessage·$3·n*s·$4·news·$1·x·
            ! publish c lost
            > GET k ; PING ; PING x ; PUBSUB NUMPAT
              -ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context·*2·$4·pong·$0··*2·$4·pong·$1·x·-ERR Can't execute 'pubsub|numpat': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context·
            > UNSUBSCRIBE b ; UNSUBSCRIBE b ; PUNSUBSCRIBE
              *3·$11·unsubscribe·$1·b·:2·*3·$11·unsubscribe·$1·b·:2·*3·$12·punsubscribe·$3·n*s·:1·
            > UNSUBSCRIBE ; UNSUBSCRIBE ; PUBSUB CHANNELS
              *3·$11·unsubscribe·$1·a·:0·*3·$11·unsubscribe·$-1·:0·*0·
            > HELLO 3 ; SUBSCRIBE a ; PUBSUB CHANNELS ; PUBSUB NUMSUB a b ; PUBLISH a me
              %7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·>3·$9·subscribe·$1·a·:1·*1·$1·a·*4·$1·a·:1·$1·b·:0·:1·>3·$7·message·$1·a·$2·me·
            > PUBLISH a one ; PSUBSCRIBE x* ; PUBLISH a two ; HELLO 2
              :1·>3·$7·message·$1·a·$3·one·>3·$10·psubscribe·$2·x*·:2·:1·>3·$7·message·$1·a·$3·two·*14·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:2·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·
            > RESET ; PUBSUB CHANNELS ; PUBLISH a nobody
              +RESET·*0·:0·
            > CLIENT REPLY OFF ; PING ; SUBSCRIBE a ; UNSUBSCRIBE ; CLIENT REPLY ON ; CLIENT REPLY SKIP ; SUBSCRIBE a ; PING
              *3·$9·subscribe·$1·a·:1·*3·$11·unsubscribe·$1·a·:0·+OK·*3·$9·subscribe·$1·a·:1·*2·$4·pong·$0··
            > RESET ; CLIENT REPLY SKIP ; RESET ; PING ; CLIENT REPLY OFF ; RESET
              +RESET·+PONG·+RESET·
        "#]],
    );
}

#[test]
fn shard_channels_are_apart_from_others() {
    check(
        "> SPUBLISH a b ; SSUBSCRIBE a a b ; SSUBSCRIBE a ; SUBSCRIBE a ; PSUBSCRIBE a*
         ! spublish a hi
         ! publish a hi
         > SPUBLISH a x ; PUBSUB SHARDCHANNELS
         > UNSUBSCRIBE ; PUNSUBSCRIBE ; GET k ; PING
         > SUNSUBSCRIBE b b ; SUNSUBSCRIBE ; SUNSUBSCRIBE ; PING
         > SSUBSCRIBE ; SPUBLISH a ; PUBSUB SHARDNUMSUB ; PUBSUB SHARDCHANNELS a b ; PUBSUB CHANNELS a b ; PUBSUB shardfoo
         > MULTI ; SPUBLISH a x ; EXEC
         > MULTI ; SSUBSCRIBE a ; EXEC
         > HELLO 3 ; SSUBSCRIBE a b ; SUBSCRIBE a ; PUBSUB SHARDCHANNELS b* ; PUBSUB SHARDNUMSUB a c ; PUBSUB CHANNELS
         > SPUBLISH a one ; SSUBSCRIBE c ; SPUBLISH a two
         > SUNSUBSCRIBE ; SUNSUBSCRIBE ; SUNSUBSCRIBE q
         > SSUBSCRIBE a ; RESET ; PUBSUB SHARDCHANNELS
         > COMMAND INFO spublish ssubscribe
         > COMMAND GETKEYS ssubscribe a b",
        expect![[r#"
            > SPUBLISH a b ; SSUBSCRIBE a a b ; SSUBSCRIBE a ; SUBSCRIBE a ; PSUBSCRIBE a*
              :0·*3·$10·ssubscribe·$1·a·:1·*3·$10·ssubscribe·$1·a·:1·*3·$10·ssubscribe·$1·b·:2·*3·$10·ssubscribe·$1·a·:2·*3·$9·subscribe·$1·a·:1·*3·$10·psubscribe·$2·a*·:2·
            ! spublish a hi
              *3·$8·smessage·$1·a·$2·hi·
            ! publish a hi
              *3·$7·message·$1·a·$2·hi·*4·$8·pmessage·$2·a*·$1·a·$2·hi·
            > SPUBLISH a x ; PUBSUB SHARDCHANNELS
              -ERR Can't execute 'spublish': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context·-ERR Can't execute 'pubsub|shardchannels': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context·
            > UNSUBSCRIBE ; PUNSUBSCRIBE ; GET k ; PING
              *3·$11·unsubscribe·$1·a·:1·*3·$12·punsubscribe·$2·a*·:0·-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context·*2·$4·pong·$0··
            > SUNSUBSCRIBE b b ; SUNSUBSCRIBE ; SUNSUBSCRIBE ; PING
              *3·$12·sunsubscribe·$1·b·:1·*3·$12·sunsubscribe·$1·b·:1·*3·$12·sunsubscribe·$1·a·:0·*3·$12·sunsubscribe·$-1·:0·+PONG·
            > SSUBSCRIBE ; SPUBLISH a ; PUBSUB SHARDNUMSUB ; PUBSUB SHARDCHANNELS a b ; PUBSUB CHANNELS a b ; PUBSUB shardfoo
              -ERR wrong number of arguments for 'ssubscribe' command·-ERR wrong number of arguments for 'spublish' command·*0·-ERR unknown subcommand or wrong number of arguments for 'SHARDCHANNELS'. Try PUBSUB HELP.·-ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.·-ERR unknown subcommand 'shardfoo'. Try PUBSUB HELP.·
            > MULTI ; SPUBLISH a x ; EXEC
              +OK·+QUEUED·*1·:0·
            > MULTI ; SSUBSCRIBE a ; EXEC
              +OK·-ERR Command not allowed inside a transaction·-EXECABORT Transaction discarded because of previous errors.·
            > HELLO 3 ; SSUBSCRIBE a b ; SUBSCRIBE a ; PUBSUB SHARDCHANNELS b* ; PUBSUB SHARDNUMSUB a c ; PUBSUB CHANNELS
              %7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·>3·$10·ssubscribe·$1·a·:1·>3·$10·ssubscribe·$1·b·:2·>3·$9·subscribe·$1·a·:1·*1·$1·b·*4·$1·a·:1·$1·c·:0·*1·$1·a·
            > SPUBLISH a one ; SSUBSCRIBE c ; SPUBLISH a two
              :1·>3·$8·smessage·$1·a·$3·one·>3·$10·ssubscribe·$1·c·:3·:1·>3·$8·smessage·$1·a·$3·two·
            > SUNSUBSCRIBE ; SUNSUBSCRIBE ; SUNSUBSCRIBE q
              >3·$12·sunsubscribe·$1·a·:2·>3·$12·sunsubscribe·$1·b·:1·>3·$12·sunsubscribe·$1·c·:0·>3·$12·sunsubscribe·_·:0·>3·$12·sunsubscribe·$1·q·:0·
            > SSUBSCRIBE a ; RESET ; PUBSUB SHARDCHANNELS
              >3·$10·ssubscribe·$1·a·:1·+RESET·*0·
            > COMMAND INFO spublish ssubscribe
              *2·*10·$8·spublish·:3·*4·+pubsub·+loading·+stale·+fast·:1·:1·:1·*2·+@pubsub·+@fast·*0·*1·*6·$5·flags·*1·+not_key·$12·begin_search·*4·$4·type·$5·index·$4·spec·*2·$5·index·:1·$9·find_keys·*4·$4·type·$5·range·$4·spec·*6·$7·lastkey·:0·$7·keystep·:1·$5·limit·:0·*0·*10·$10·ssubscribe·:-2·*5·+pubsub·+noscript·+loading·+stale·+no_multi·:1·:-1·:1·*2·+@pubsub·+@slow·*0·*1·*6·$5·flags·*1·+not_key·$12·begin_search·*4·$4·type·$5·index·$4·spec·*2·$5·index·:1·$9·find_keys·*4·$4·type·$5·range·$4·spec·*6·$7·lastkey·:-1·$7·keystep·:1·$5·limit·:0·*0·
            > COMMAND GETKEYS ssubscribe a b
              -ERR The command has no key arguments·
        "#]],
    );
    let mut world = World::new(Login::Open);
    let told = play(&mut world, "> HELLO 3 ; SSUBSCRIBE a b ; CLIENT LIST TYPE pubsub");
    assert!(told.contains("flags=P db=0 sub=0 psub=0 ssub=2 "), "{told}");
}

#[test]
fn a_subscriber_that_does_not_read_is_let_go() {
    let mut world = World::new(Login::Open);
    play(&mut world, "> SUBSCRIBE c");
    world.unsent = 2 * world.limits.output_bytes;
    assert_eq!(
        play(&mut world, "! publish c m"),
        "! publish c m\n  *3·$7·message·$1·c·$1·m·\n  reads no further\n"
    );
    world.unsent += 1;
    assert_eq!(play(&mut world, "! publish c m"), "! publish c m\n  closes\n");
    assert_eq!(world.counters.limited.get("output"), Some(&1));
    // Nor is it told more than that where its subscriptions end.
    let limits = Limits { output_bytes: 1_024, ..Limits::default() };
    let mut world = World::with_limits(Login::Open, limits);
    play(&mut world, "> SUBSCRIBE c");
    for _ in 0..9 {
        world.hub.publish("c".into(), Blob::new(&[b'm'; 1_500]));
    }
    let told = play(&mut world, "> UNSUBSCRIBE");
    assert!(told.ends_with("  closes\n") && told.len() < 5_000, "{told}");
    assert_eq!(world.counters.limited.get("output"), Some(&1));
}

/// Else a client of RESP2 would take it for the answer to what it has asked since.
#[test]
fn what_was_published_before_a_subscription_ends_comes_before_the_confirmation_of_that() {
    let mut world = World::new(Login::Open);
    let (message, by_pattern) = ("*3·$7·message·$1·a·$1·x·", "*4·$8·pmessage·$2·a*·$1·a·$1·x·");
    for (begin, end, told) in [
        ("SUBSCRIBE a", "UNSUBSCRIBE a", format!("{message}*3·$11·unsubscribe·$1·a·:0·")),
        ("SUBSCRIBE a", "UNSUBSCRIBE", format!("{message}*3·$11·unsubscribe·$1·a·:0·")),
        ("PSUBSCRIBE a*", "PUNSUBSCRIBE a*", format!("{by_pattern}*3·$12·punsubscribe·$2·a*·:0·")),
        ("SUBSCRIBE a", "RESET", format!("{message}+RESET·")),
    ] {
        play(&mut world, &format!("> {begin}"));
        // It is on its way when the request is read.
        world.hub.publish("a".into(), "x".into());
        let script = format!("> {end} ; PING");
        assert_eq!(play(&mut world, &script), format!("{script}\n  {told}+PONG·\n"));
    }
    // So it is with what MONITOR tells.
    play(&mut world, "> MONITOR");
    world.hub.show(|seen| seen.extend(b"+line\r\n"));
    world.hub.monitor(9);
    assert_eq!(play(&mut world, "> RESET"), "> RESET\n  +RESET·\n");
}

#[test]
fn messages_keep_their_order_where_a_command_waits_behind_another() {
    check(
        "> HELLO 3 ; SUBSCRIBE c ; GET k
         ! publish c m1
         > BLPOP q 0
         ! publish c m2
         < 0 bulk v
         ! publish c m3
         < 2 popped bulk q, bulk v",
        expect![[r#"
            > HELLO 3 ; SUBSCRIBE c ; GET k
              ask 0 k1 Get { key: "k" }
              %7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·>3·$9·subscribe·$1·c·:1·
            ! publish c m1
            > BLPOP q 0
            ! publish c m2
            < 0 bulk v
              ask 2 k1 LMPop { keys: ["q"], side: Left, count: 1 }
              $1·v·>3·$7·message·$1·c·$2·m1·>3·$7·message·$1·c·$2·m2·
              reads no further
            ! publish c m3
              >3·$7·message·$1·c·$2·m3·
              reads no further
            < 2 popped bulk q, bulk v
              *2·$1·q·$1·v·
        "#]],
    );
}

#[test]
fn what_the_node_itself_does_is_done_only_when_the_transaction_was_executed() {
    check(
        "> HELLO 3 ; SUBSCRIBE c ; MULTI ; SET a 1 ; PUBLISH c m ; EXEC
         < 0 array ok
         > WATCH a
         < 1 int 3
         > MULTI ; SET a 1 ; PUBLISH c m ; EXEC
         < 2 nilarray
         > MULTI ; PUBLISH c alone ; EXEC
         > MULTI ; SUBSCRIBE d ; EXEC
         > MULTI ; SET a 1 ; PUBLISH c first ; EXEC ; PUBLISH c second
         < 3 array ok
         > MULTI ; SET a 1 ; CLIENT SETNAME me ; CLIENT REPLY OFF ; EXEC ; CLIENT GETNAME
         < 4 nilarray
         > MULTI ; SET a 1 ; CLIENT SETNAME me ; EXEC ; CLIENT GETNAME
         < 5 array ok
         > MULTI ; SET a 1 ; CLIENT REPLY OFF ; EXEC ; PING
         < 6 array ok
         > PING",
        expect![[r#"
            > HELLO 3 ; SUBSCRIBE c ; MULTI ; SET a 1 ; PUBLISH c m ; EXEC
              ask 0 k1 Transaction { watched: [], operations: [Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }] }
              %7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·>3·$9·subscribe·$1·c·:1·+OK·+QUEUED·+QUEUED·
              reads no further
            < 0 array ok
              *2·+OK·:1·>3·$7·message·$1·c·$1·m·
            > WATCH a
              ask 1 k1 Version { key: "a" }
            < 1 int 3
              +OK·
            > MULTI ; SET a 1 ; PUBLISH c m ; EXEC
              ask 2 k1 Transaction { watched: [("a", 3)], operations: [Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }] }
              +OK·+QUEUED·+QUEUED·
              reads no further
            < 2 nilarray
              _·
            > MULTI ; PUBLISH c alone ; EXEC
              +OK·+QUEUED·*1·:1·>3·$7·message·$1·c·$5·alone·
            > MULTI ; SUBSCRIBE d ; EXEC
              +OK·-ERR Command not allowed inside a transaction·-EXECABORT Transaction discarded because of previous errors.·
            > MULTI ; SET a 1 ; PUBLISH c first ; EXEC ; PUBLISH c second
              ask 3 k1 Transaction { watched: [], operations: [Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }] }
              +OK·+QUEUED·+QUEUED·
              reads no further
            < 3 array ok
              *2·+OK·:1·:1·>3·$7·message·$1·c·$5·first·>3·$7·message·$1·c·$6·second·
            > MULTI ; SET a 1 ; CLIENT SETNAME me ; CLIENT REPLY OFF ; EXEC ; CLIENT GETNAME
              ask 4 k1 Transaction { watched: [], operations: [Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }] }
              +OK·+QUEUED·+QUEUED·+QUEUED·
              reads no further
            < 4 nilarray
              _·_·
            > MULTI ; SET a 1 ; CLIENT SETNAME me ; EXEC ; CLIENT GETNAME
              ask 5 k1 Transaction { watched: [], operations: [Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }] }
              +OK·+QUEUED·+QUEUED·
              reads no further
            < 5 array ok
              *2·+OK·+OK·$2·me·
            > MULTI ; SET a 1 ; CLIENT REPLY OFF ; EXEC ; PING
              ask 6 k1 Transaction { watched: [], operations: [Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }] }
              +OK·+QUEUED·+QUEUED·
              reads no further
            < 6 array ok
            > PING
        "#]],
    );
}

#[test]
fn a_read_for_a_group_waits_and_is_told_when_the_group_is_gone() {
    check(
        "> XREADGROUP GROUP g a COUNT 1 BLOCK 0 STREAMS s t > > ; PING
         < 0 nilarray
         + 2
         < 0 int 0
         ! fill t
         < 0 nogroup 1
         > XREADGROUP GROUP g a NOACK STREAMS s 0-3 ; XREADGROUP GROUP streams a STREAMS s $
         < 1 pairs bulk s, array bulk x
         > XREADGROUP GROUP g a BLOCK 5 STREAMS s t > ; XREADGROUP COUNT 1 BLOCK 5 STREAMS s t > >
         > XGROUP CREATE s g x ; XCLAIM s g a x 1 ; XCLAIM s g a 0 1 NOSUCH ; XCLAIM s g a 0 1 IDLE x ; XINFO STREAM s NOSUCH
         > XGROUP SETID s g $ ENTRIESREAD -2 ; COMMAND GETKEYS XREADGROUP GROUP streams streams STREAMS a b > >
         > XACK s g 1 2-3 ; XPENDING s g ; XINFO CONSUMERS s g
         < 2 int 1
         < 3 nogroup 0
         < 4 nogroup 0
         < 5 array
         > XREADGROUP GROUP g a BLOCK 0 STREAMS s >
         < 6 nilarray
         + 2
         < 6 wrongtype",
        expect![[r#"
            > XREADGROUP GROUP g a COUNT 1 BLOCK 0 STREAMS s t > > ; PING
              ask 0 k1 XReadGroup { read: GroupRead { streams: [("s", None), ("t", None)], group: "g", consumer: "a", count: 1, forget: false, peek: false } }
              reads no further
            < 0 nilarray
              reads no further
            + 2
              ask 0 k1 XReadGroup { read: GroupRead { streams: [("s", None), ("t", None)], group: "g", consumer: "a", count: 1, forget: false, peek: true } }
              reads no further
            < 0 int 0
              reads no further
            ! fill t
              ask 0 k1 XReadGroup { read: GroupRead { streams: [("s", None), ("t", None)], group: "g", consumer: "a", count: 1, forget: false, peek: false } }
              reads no further
            < 0 nogroup 1
              -NOGROUP No such key 't' or consumer group 'g' in XREADGROUP with GROUP option·+PONG·
            > XREADGROUP GROUP g a NOACK STREAMS s 0-3 ; XREADGROUP GROUP streams a STREAMS s $
              ask 1 k1 XReadGroup { read: GroupRead { streams: [("s", Some(StreamId { millis: 0, sequence: 3 }))], group: "g", consumer: "a", count: 0, forget: true, peek: false } }
            < 1 pairs bulk s, array bulk x
              *1·*2·$1·s·*1·$1·x·-ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.·
            > XREADGROUP GROUP g a BLOCK 5 STREAMS s t > ; XREADGROUP COUNT 1 BLOCK 5 STREAMS s t > >
              -ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.·-ERR Missing GROUP option for XREADGROUP·
            > XGROUP CREATE s g x ; XCLAIM s g a x 1 ; XCLAIM s g a 0 1 NOSUCH ; XCLAIM s g a 0 1 IDLE x ; XINFO STREAM s NOSUCH
              -ERR Invalid stream ID specified as stream command argument·-ERR Invalid min-idle-time argument for XCLAIM·-ERR Unrecognized XCLAIM option 'NOSUCH'·-ERR Invalid IDLE option argument for XCLAIM·-ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.·
            > XGROUP SETID s g $ ENTRIESREAD -2 ; COMMAND GETKEYS XREADGROUP GROUP streams streams STREAMS a b > >
              -ERR value for ENTRIESREAD must be positive or -1·*2·$1·a·$1·b·
            > XACK s g 1 2-3 ; XPENDING s g ; XINFO CONSUMERS s g
              ask 3 k1 XGroup { key: "s", change: Acknowledge { group: "g", ids: [StreamId { millis: 1, sequence: 0 }, StreamId { millis: 2, sequence: 3 }] } }
              ask 4 k1 XInfo { key: "s", look: Pending { group: "g" } } in order
              ask 5 k1 XInfo { key: "s", look: Consumers { group: "g" } } in order
            < 2 int 1
            < 3 nogroup 0
              -NOGROUP No such consumer group 'g' for key name 's'·
            < 4 nogroup 0
              -NOGROUP No such key 's' or consumer group 'g'·
            < 5 array
              *0·
            > XREADGROUP GROUP g a BLOCK 0 STREAMS s >
              ask 6 k1 XReadGroup { read: GroupRead { streams: [("s", None)], group: "g", consumer: "a", count: 0, forget: false, peek: false } }
              reads no further
            < 6 nilarray
              reads no further
            + 2
              ask 6 k1 XReadGroup { read: GroupRead { streams: [("s", None)], group: "g", consumer: "a", count: 0, forget: false, peek: true } }
              reads no further
            < 6 wrongtype
              -WRONGTYPE Operation against a key holding the wrong kind of value·
        "#]],
    );
}

#[test]
fn a_read_of_streams_waits_behind_what_was_last() {
    check(
        "> XADD s MAXLEN ~ 5 * f v ; XADD s NOMKSTREAM 5-* f v
         < 0 bulk 5-1
         < 1 nil
         > XREAD COUNT 2 BLOCK 0 STREAMS s t $ 3-1 ; PING
         < 2 array bulk AAAAAAAA, bulk AAAAAAAB, bulk AAAAAAAC, bulk AAAAAAAD
         ! fill s
         < 2 pairs bulk s, array bulk x
         > XREAD BLOCK 1000 STREAMS s 0
         < 3 nilarray
         + 2
         > XREAD STREAMS s 0 ; HELLO 3 ; XREAD STREAMS s 0 ; XREAD BLOCK x STREAMS s 0 ; XREAD COUNT 1 STREAMS s
         < 4 nilarray
         < 5 pairs bulk s, array bulk x",
        expect![[r#"
            > XADD s MAXLEN ~ 5 * f v ; XADD s NOMKSTREAM 5-* f v
              ask 0 k1 XAdd { key: "s", append: Append { id: Next, fields: [("f", "v")], only_if_exists: false, trimming: Some(Trimming { trim: Length(5), limit: 0 }) } }
              ask 1 k1 XAdd { key: "s", append: Append { id: Within(5), fields: [("f", "v")], only_if_exists: true, trimming: None } }
            < 0 bulk 5-1
              $3·5-1·
            < 1 nil
              $-1·
            > XREAD COUNT 2 BLOCK 0 STREAMS s t $ 3-1 ; PING
              ask 2 k1 XRead { read: StreamRead { streams: [("s", Last), ("t", After(StreamId { millis: 3, sequence: 1 }))], count: 2, resolve: true } }
              reads no further
            < 2 array bulk AAAAAAAA, bulk AAAAAAAB, bulk AAAAAAAC, bulk AAAAAAAD
              reads no further
            ! fill s
              ask 2 k1 XRead { read: StreamRead { streams: [("s", After(StreamId { millis: 4702111234474983745, sequence: 4702111234474983746 })), ("t", After(StreamId { millis: 4702111234474983747, sequence: 4702111234474983748 }))], count: 2, resolve: false } }
              reads no further
            < 2 pairs bulk s, array bulk x
              *1·*2·$1·s·*1·$1·x·+PONG·
            > XREAD BLOCK 1000 STREAMS s 0
              ask 3 k1 XRead { read: StreamRead { streams: [("s", After(StreamId { millis: 0, sequence: 0 }))], count: 0, resolve: false } }
              reads no further
            < 3 nilarray
              reads no further
            + 2
              *-1·
            > XREAD STREAMS s 0 ; HELLO 3 ; XREAD STREAMS s 0 ; XREAD BLOCK x STREAMS s 0 ; XREAD COUNT 1 STREAMS s
              ask 4 k1 XRead { read: StreamRead { streams: [("s", After(StreamId { millis: 0, sequence: 0 }))], count: 0, resolve: false } }
              ask 6 k1 XRead { read: StreamRead { streams: [("s", After(StreamId { millis: 0, sequence: 0 }))], count: 0, resolve: false } }
            < 4 nilarray
              *-1·%7·$6·server·$5·redis·$7·version·$5·7.2.4·$5·proto·:3·$2·id·:7·$4·mode·$10·standalone·$4·role·$6·master·$7·modules·*0·
            < 5 pairs bulk s, array bulk x
        "#]],
    );
}

/// A world whose first keyspace answers what only witnesses have, and has two copies.
fn speculative() -> World {
    let mut world = World::new(Login::Open);
    (world.keyspaces[0].durability, world.keyspaces[0].copies) = (Durability::AllSoon, 2);
    world
}

#[test]
fn a_script_looks_first_and_tells_who_waits_for_what_it_pushes() {
    let mut world = World::new(Login::Open);
    let (keyspace, signal) = (KeyspaceId(1), Blob::from("signal"));
    world.hub.take_in([(NodeId(1), Some(News::Waiting { keyspace, keys: vec![signal.clone()] }))]);
    world.hub.hear(world.now);
    let script = "> EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 900 ; GET x
         < 0 array int 5, int 0, bulk me
         < 0 nilarray
         < 0 array int 7, int 0, bulk me
         < 0 array int 0, int 1, int 1, int 1
         < 1 nil
         > EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 900
         < 2 array int 8, int 9, bulk you
         > EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 900
         < 3 array int 8, int 9, wrongtype
         > EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 900
         < 4 refused nobody leads
         > MULTI ; EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 900 ; EXEC";
    expect![[r#"
        > EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 900 ; GET x
          ask 0 k1 Transaction { watched: [], operations: [Version { key: "lock" }, Version { key: "signal" }, Get { key: "lock" }] }
          reads no further
        < 0 array int 5, int 0, bulk me
          ask 0 k1 Transaction { watched: [("lock", 5), ("signal", 0)], operations: [Del { keys: ["signal"] }, Push { key: "signal", values: ["1"], side: Left, only_if_exists: false }, ExpireAt { key: "signal", at: 1700000000900.000ms, condition: Always }, Del { keys: ["lock"] }] } in order
          reads no further
        < 0 nilarray
          ask 0 k1 Transaction { watched: [], operations: [Version { key: "lock" }, Version { key: "signal" }, Get { key: "lock" }] } in order
          reads no further
        < 0 array int 7, int 0, bulk me
          ask 0 k1 Transaction { watched: [("lock", 7), ("signal", 0)], operations: [Del { keys: ["signal"] }, Push { key: "signal", values: ["1"], side: Left, only_if_exists: false }, ExpireAt { key: "signal", at: 1700000000900.000ms, condition: Always }, Del { keys: ["lock"] }] } in order
          reads no further
        < 0 array int 0, int 1, int 1, int 1
          ask 1 k1 Get { key: "x" }
          :0·
        < 1 nil
          $-1·
        > EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 900
          ask 2 k1 Transaction { watched: [], operations: [Version { key: "lock" }, Version { key: "signal" }, Get { key: "lock" }] }
          reads no further
        < 2 array int 8, int 9, bulk you
          :1·
        > EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 900
          ask 3 k1 Transaction { watched: [], operations: [Version { key: "lock" }, Version { key: "signal" }, Get { key: "lock" }] }
          reads no further
        < 3 array int 8, int 9, wrongtype
          -WRONGTYPE Operation against a key holding the wrong kind of value·
        > EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 900
          ask 4 k1 Transaction { watched: [], operations: [Version { key: "lock" }, Version { key: "signal" }, Get { key: "lock" }] }
          reads no further
        < 4 refused nobody leads
          -TRYAGAIN nobody leads·
        > MULTI ; EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 900 ; EXEC
          +OK·+QUEUED·*1·-ERR this script is not carried out within MULTI·
    "#]].assert_eq(&play(&mut world, script));
    assert_eq!(
        world.hub.take_news(),
        [News::Filled { keyspace, key: signal, count: 1 }],
        "of the one that was let go"
    );
}

#[test]
fn whoever_asks_for_copies_waits_until_everything_is_there() {
    let script = "> SET a 1 ; WAIT 2 0 ; GET a
         < 0 ok
         < 1 int 7
         < 2 bulk 1
         > WAITAOF 1 2 100 ; MULTI ; WAIT 1 0 ; WAITAOF 1 1 0 ; EXEC
         < 3 int 7
         > SET b 1 ; WAIT 1 1000
         < 4 ok
         + 0
         + 2
         < 5 int 7
         > WAIT 1 0
         < 6 refused overloaded
         > WAIT 1 0
         < 7 unknown no answer in time
         > WAIT x 0 ; WAITAOF 2 0 0 ; SELECT 3 ; WAIT 9 0 ; WAITAOF 1 9 0";
    expect![[r#"
        > SET a 1 ; WAIT 2 0 ; GET a
          ask 0 k1 Set { key: "a", value: "1", condition: Always, expiry: Clear, get: false }
        < 0 ok
          ask 1 k1 DbSize
          +OK·
          reads no further
        < 1 int 7
          ask 2 k1 Get { key: "a" }
          :2·
        < 2 bulk 1
          $1·1·
        > WAITAOF 1 2 100 ; MULTI ; WAIT 1 0 ; WAITAOF 1 1 0 ; EXEC
          ask 3 k1 DbSize
          reads no further
        < 3 int 7
          *2·:1·:2·+OK·+QUEUED·+QUEUED·*2·:0·*2·:0·:0·
        > SET b 1 ; WAIT 1 1000
          ask 4 k1 Set { key: "b", value: "1", condition: Always, expiry: Clear, get: false }
        < 4 ok
          ask 5 k1 DbSize
          +OK·
          reads no further
        + 0
          reads no further
        + 2
          :0·
        < 5 int 7
        > WAIT 1 0
          ask 6 k1 DbSize
          reads no further
        < 6 refused overloaded
          -TRYAGAIN overloaded·
        > WAIT 1 0
          ask 7 k1 DbSize
          reads no further
        < 7 unknown no answer in time
          -UNKNOWN the outcome is not known, the command may yet take effect: no answer in time·
        > WAIT x 0 ; WAITAOF 2 0 0 ; SELECT 3 ; WAIT 9 0 ; WAITAOF 1 9 0
          -ERR value is not an integer or out of range·-ERR value is out of range, must be positive·+OK·:2·*2·:1·:2·
    "#]].assert_eq(&play(&mut speculative(), script));
}

#[test]
fn whoever_waits_for_copies_can_be_told_not_to() {
    let mut world = speculative();
    world.receive(b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n0\r\n");
    assert!(world.hub.waits(7), "it is among those that wait");
    for (error, end) in [(false, "  :0"), (true, "  -UNBLOCKED client unblocked via CLIENT UNBLOCK")] {
        assert!(world.hub.unblock(7, error));
        world.deliver();
        assert!(world.transcript().contains(end), "{error}");
        assert!(!world.hub.waits(7));
        world.receive(b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n0\r\n");
    }
}

/// Else what is pushed next would be popped for somebody who is not there.
#[test]
fn who_closes_while_it_waits_waits_no_longer_and_nothing_that_follows_is_carried_out() {
    check(
        "> BLPOP a 0 ; DEL x
         < 0 nilarray
         ! close
         ! fill a",
        expect![[r#"
            > BLPOP a 0 ; DEL x
              ask 0 k1 LMPop { keys: ["a"], side: Left, count: 1 }
              reads no further
            < 0 nilarray
              reads no further
            ! close
              closes
            ! fill a
              closes
        "#]],
    );
    // What is under way is answered: its client may have closed only the end that it sends from.
    check(
        "> BLPOP a 0 ; DEL x
         ! close
         ! fill a
         < 0 popped bulk a, bulk v",
        expect![[r#"
            > BLPOP a 0 ; DEL x
              ask 0 k1 LMPop { keys: ["a"], side: Left, count: 1 }
              reads no further
            ! close
              reads no further
            ! fill a
              reads no further
            < 0 popped bulk a, bulk v
              *2·$1·a·$1·v·
              closes
        "#]],
    );
    check(
        "> BLPOP a 0\n! close\n! fill a\n< 0 nilarray",
        expect![[r#"
            > BLPOP a 0
              ask 0 k1 LMPop { keys: ["a"], side: Left, count: 1 }
              reads no further
            ! close
              reads no further
            ! fill a
              reads no further
            < 0 nilarray
              closes
        "#]],
    );
    check(
        "> GET a ; DEL x\n! close\n< 0 nil\n< 1 int 1",
        expect![[r#"
        > GET a ; DEL x
          ask 0 k1 Get { key: "a" }
          ask 1 k1 Del { keys: ["x"] } in order
        ! close
        < 0 nil
          $-1·
        < 1 int 1
          :1·
    "#]],
    );
    let mut world = speculative();
    world.receive(b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n0\r\n");
    world.hang_up();
    assert!(!world.hub.waits(7) && world.transcript().ends_with("closes\n"));
}

/// Whoever hears of a message reads what was written before it.
#[test]
fn what_is_published_comes_behind_the_writes_before_it() {
    check(
        "> GET a ; PUBLISH c first ; SET k v ; PUBLISH c m ; GET k
         < 0 nil
         < 2 ok
         < 3 bulk v
         > SET k w ; MULTI ; PUBLISH c m ; EXEC ; GET k
         < 4 ok",
        expect![[r#"
            > GET a ; PUBLISH c first ; SET k v ; PUBLISH c m ; GET k
              ask 0 k1 Get { key: "a" }
              ask 2 k1 Set { key: "k", value: "v", condition: Always, expiry: Clear, get: false } in order
            < 0 nil
              $-1·:0·
            < 2 ok
              ask 3 k1 Get { key: "k" }
              +OK·:0·
            < 3 bulk v
              $1·v·
            > SET k w ; MULTI ; PUBLISH c m ; EXEC ; GET k
              ask 4 k1 Set { key: "k", value: "w", condition: Always, expiry: Clear, get: false }
            < 4 ok
              ask 6 k1 Get { key: "k" }
              +OK·+OK·+QUEUED·*1·:0·
        "#]],
    );
}

/// What is asked while the node is cut off may be executed when it is heard again, for a client that has long given up.
#[test]
fn where_a_keyspace_has_not_answered_lately_a_pop_begins_with_a_look() {
    let mut world = World::new(Login::Open);
    world.silent = true;
    let script = "> BLPOP a 2
         < 0 int 1
         < 0 popped bulk a, bulk v
         > BLPOP a 2
         < 1 int 0
         ! fill a
         < 1 nilarray
         + 2
         > BLPOP a 2
         < 2 int 1
         < 2 wrongtype
         > BLMOVE a b LEFT RIGHT 0
         < 3 int 1
         < 3 array list, bulk v
         > XREADGROUP GROUP g a BLOCK 1000 STREAMS st >
         < 4 int 1
         < 4 nogroup 0";
    expect![[r#"
        > BLPOP a 2
          ask 0 k1 Exists { keys: ["a"] }
          reads no further
        < 0 int 1
          ask 0 k1 LMPop { keys: ["a"], side: Left, count: 1 }
          reads no further
        < 0 popped bulk a, bulk v
          *2·$1·a·$1·v·
        > BLPOP a 2
          ask 1 k1 Exists { keys: ["a"] }
          reads no further
        < 1 int 0
          reads no further
        ! fill a
          ask 1 k1 LMPop { keys: ["a"], side: Left, count: 1 }
          reads no further
        < 1 nilarray
          reads no further
        + 2
          *-1·
        > BLPOP a 2
          ask 2 k1 Exists { keys: ["a"] }
          reads no further
        < 2 int 1
          ask 2 k1 LMPop { keys: ["a"], side: Left, count: 1 }
          reads no further
        < 2 wrongtype
          -WRONGTYPE Operation against a key holding the wrong kind of value·
        > BLMOVE a b LEFT RIGHT 0
          ask 3 k1 Transaction { watched: [], operations: [Exists { keys: ["a"] }, Exists { keys: ["b"] }] }
          reads no further
        < 3 int 1
          ask 3 k1 Transaction { watched: [], operations: [Type { key: "a" }, LMove { source: "a", target: "b", from: Left, to: Right }] }
          reads no further
        < 3 array list, bulk v
          $1·v·
        > XREADGROUP GROUP g a BLOCK 1000 STREAMS st >
          ask 4 k1 XReadGroup { read: GroupRead { streams: [("st", None)], group: "g", consumer: "a", count: 0, forget: false, peek: true } }
          reads no further
        < 4 int 1
          ask 4 k1 XReadGroup { read: GroupRead { streams: [("st", None)], group: "g", consumer: "a", count: 0, forget: false, peek: false } }
          reads no further
        < 4 nogroup 0
          -NOGROUP No such key 'st' or consumer group 'g' in XREADGROUP with GROUP option·
    "#]]
    .assert_eq(&play(&mut world, script));
}

#[test]
fn a_look_that_is_not_answered_ends_in_time_and_so_does_what_only_reads() {
    let mut world = World::new(Login::Open);
    world.silent = true;
    let script = "> BLPOP a 2
         + 1
         + 1
         ! fill a
         < 0 int 1
         > BZPOPMIN z 1
         < 1 refused NOLEADER no leader
         + 1
         > XREAD BLOCK 1000 STREAMS s 1-1
         + 1
         < 2 nilarray
         > BLPOP a 0
         ! close
         < 3 int 1";
    expect![[r#"
        > BLPOP a 2
          ask 0 k1 Exists { keys: ["a"] }
          reads no further
        + 1
          reads no further
        + 1
          *-1·
        ! fill a
        < 0 int 1
        > BZPOPMIN z 1
          ask 1 k1 Exists { keys: ["z"] }
          reads no further
        < 1 refused NOLEADER no leader
          -NOLEADER no leader·
        + 1
        > XREAD BLOCK 1000 STREAMS s 1-1
          ask 2 k1 XRead { read: StreamRead { streams: [("s", After(StreamId { millis: 1, sequence: 1 }))], count: 0, resolve: false } }
          reads no further
        + 1
          *-1·
        < 2 nilarray
        > BLPOP a 0
          ask 3 k1 Exists { keys: ["a"] }
          reads no further
        ! close
          closes
        < 3 int 1
          closes
    "#]]
    .assert_eq(&play(&mut world, script));
}

#[test]
fn what_a_keyspace_answered_a_second_ago_says_nothing_of_whether_it_answers_now() {
    let mut hub = crate::hub::Hub::default();
    let (keyspace, heard) = (KeyspaceId(1), isochrone_core::Instant::ZERO);
    assert!(!hub.hears(keyspace, heard));
    hub.hear_from(keyspace, heard);
    assert!(hub.hears(keyspace, heard + isochrone_core::Span::from_millis(999)));
    assert!(
        !hub.hears(keyspace, heard + isochrone_core::Span::from_secs(1)) && !hub.hears(KeyspaceId(2), heard)
    );
}
