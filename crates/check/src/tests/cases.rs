//! The suite: hand-written histories with their verdicts, each with the reason it is there.

use crate::tests::script::history;
use crate::{
    Budget, History, ModelName, Promise, SessionViolationKind, Verdict, check_by_key, check_named,
    check_promised, check_sessions, once,
};

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) model: ModelName,
    pub(super) legal: bool,
    pub(super) script: &'static str,
}

const fn kv(name: &'static str, legal: bool, script: &'static str) -> Case {
    Case { name, model: ModelName::Kv, legal, script }
}

/// An outage, and what was read after it.
macro_rules! many_unknown {
    ($seen:literal) => {
        concat!(
            "
        2 743..832 set y b -> OK
        2 1138..1226 set x c at 1647080592 @1138080592 -> OK
        1 1243.. set x d @1243467266
        2 1312.. copy y+x @1312694598
        5 1233.. del y @1233121868
        0 1991.. copy y+x @1991207909
        1 1991.. set x e @1991207909
        3 1637.. set y f @1637060656
        4 1890.. get x @1890666633
        6 2401.. del x @2401789825
        4 2546.. set y g @2546388167
        6 3476.. del x @3476317880
        0 2587.. mset x+y h h @2587365261
        4 10417..10505 get y @10417996270 -> ",
            $seen
        )
    };
}

pub(super) const CASES: &[Case] = &[
    kv(
        "a stale read is refused",
        false,
        "
        1 0..10 set x 3 -> OK
        2 20..30 set x 4 -> OK
        3 40..50 get x -> 3",
    ),
    kv(
        "a read during two writes may see either",
        true,
        "
        1 0..100 set x 3 -> OK
        2 0..100 set x 4 -> OK
        3 10..20 get x -> 4
        3 30..40 get x -> 3",
    ),
    kv(
        "no going back and forth between two writes",
        false,
        "
        1 0..100 set x 3 -> OK
        2 0..100 set x 4 -> OK
        3 10..20 get x -> 4
        3 30..40 get x -> 3
        3 50..60 get x -> 4",
    ),
    kv(
        "operations that meet in one instant are concurrent",
        true,
        "
        1 0..10 set x 1 -> OK
        2 10..20 get x -> nil",
    ),
    kv(
        "an unknown write may take effect late",
        true,
        "
        1 0.. set x 1
        2 10..20 get x -> nil
        2 500..600 get x -> 1",
    ),
    kv(
        "an unknown write may never take effect",
        true,
        "
        1 0.. set x 1
        2 10..20 get x -> nil",
    ),
    kv(
        "an unknown write takes effect once",
        false,
        "
        1 0.. incr x
        2 10..20 get x -> 1
        2 30..40 get x -> 2",
    ),
    kv(
        "an unknown write does not take effect before it was asked for",
        false,
        "
        2 10..20 get x -> 1
        1 30.. set x 1",
    ),
    kv(
        "several unknown writes take effect between two reads",
        true,
        "
        1 0.. append x a
        2 0.. append x b
        3 0.. append x c
        4 10..20 get x -> nil
        4 30..40 get x -> bca",
    ),
    kv(
        "alike unknown increments count, each once",
        true,
        "
        1 0.. incr x
        2 0.. incr x
        3 0.. incr x
        4 10..20 get x -> 2
        4 30..40 get x -> 3",
    ),
    kv(
        "not more alike unknown increments than there are",
        false,
        "
        1 0.. incr x
        2 0.. incr x
        4 30..40 get x -> 3",
    ),
    kv(
        "alike unknown increments start when they are invoked",
        false,
        "
        1 0.. incr x
        4 10..20 get x -> 2
        2 30.. incr x",
    ),
    kv(
        "a failed write has no effect",
        false,
        "
        1 0..! set x 1
        2 10..20 get x -> 1",
    ),
    kv(
        "a failed write constrains nothing",
        true,
        "
        1 0..! set x 1
        2 10..20 get x -> nil",
    ),
    kv(
        "an answer not recorded may be any",
        true,
        "
        1 0..10 set x 1
        2 20..30 incr x
        3 40..50 get x -> 2",
    ),
    kv(
        "an unknown write between two known ones is needed",
        true,
        "
        1 0..10 set x 1 -> OK
        2 0.. incr x
        3 20..30 get x -> 1
        4 40..50 get x -> 2
        5 60..70 incr x -> 3",
    ),
    kv(
        "an unknown write may be overwritten and still have been read",
        true,
        "
        1 0.. set x 7
        2 10..90 set x 8 -> OK
        3 20..30 get x -> 7
        3 40..50 get x -> 8",
    ),
    kv(
        "two unknown compare-and-sets feed each other",
        true,
        "
        1 0..5 set x 1 -> OK
        2 10.. cas x 1 2
        3 10.. cas x 2 3
        4 20..30 get x -> 3",
    ),
    kv(
        "the search goes back over reads it took",
        true,
        "
        1 0..100 set x 1 -> OK
        2 0..100 set x 2 -> OK
        3 0..100 set x 3 -> OK
        4 0..100 get x -> 1
        5 0..100 get x -> 2
        6 0..100 get x -> 3
        7 110..120 get x -> 2",
    ),
    kv(
        "the same state with other operations left is another configuration",
        true,
        "
        1 0..100 set x 1 -> OK
        2 0..100 set x 2 -> OK
        3 0..100 set x 1 -> OK
        4 50..60 get x -> 2
        4 70..80 get x -> 1
        5 110..120 get x -> 1",
    ),
    kv(
        "keys are independent",
        true,
        "
        1 0..10 set x 1 -> OK
        2 0..10 set y 2 -> OK
        3 20..30 get x -> 1
        3 40..50 get y -> 2",
    ),
    kv(
        "a violation on the second key is found",
        false,
        "
        1 0..10 set x 1 -> OK
        2 20..30 get x -> 1
        1 40..50 set y 2 -> OK
        2 60..70 get y -> nil",
    ),
    kv(
        "keys written together are seen together",
        false,
        "
        1 0..100 mset x+y 1 2 -> OK
        2 10..20 get x -> 1
        2 30..40 get y -> nil",
    ),
    kv(
        "a read of several keys is one moment",
        false,
        "
        1 0..10 set x 1 -> OK
        1 20..30 set y 1 -> OK
        2 5..25 mget x+y -> [nil 1]",
    ),
    kv(
        "a copy is of what was there, and overwrites only where it may",
        true,
        "
        1 0..10 copy x+y -> 0
        1 20..30 set x 1 -> OK
        1 40..50 copy x+y -> 1
        1 60..70 set x 2 -> OK
        1 80..90 copy x+y -> 0
        2 100..110 get y -> 1
        1 120..130 copy x+y replace -> 1
        2 140..150 get y -> 2",
    ),
    kv(
        "a copy of what nobody had written yet",
        false,
        "
        1 0..10 set x 1 -> OK
        1 20..30 copy x+y -> 1
        1 40..50 set x 2 -> OK
        2 60..70 get y -> 2",
    ),
    kv(
        "a copy that must not overwrite does not",
        false,
        "
        1 0..10 mset x+y 1 2 -> OK
        1 20..30 copy x+y -> 1",
    ),
    kv(
        "a copy that failed took no effect",
        false,
        "
        1 0..10 mset x+y 1 2 -> OK
        1 20..30 copy x+y -> 0
        2 40..50 get y -> 1",
    ),
    kv(
        "a copy may have happened whose answer was not heard",
        true,
        "
        1 0..10 set x 1 -> OK
        1 20.. copy x+y
        2 40..50 get y -> nil
        2 60..70 get y -> 1",
    ),
    kv(
        "incrby adds its amount",
        true,
        "
        1 0..10 incrby x 5 -> 5
        1 20..30 decrby x 2 -> 3
        1 40..50 get x -> 3",
    ),
    kv(
        "incr of a word is an error and changes nothing",
        true,
        "
        1 0..10 set x word -> OK
        1 20..30 incr x -> error:ERR
        1 40..50 get x -> word",
    ),
    kv(
        "incr of a word cannot answer",
        false,
        "
        1 0..10 set x word -> OK
        1 20..30 incr x -> 1",
    ),
    kv(
        "append adds behind",
        true,
        "
        1 0..10 append x ab -> 2
        1 20..30 append x cd -> 4
        1 40..50 get x -> abcd
        1 60..70 strlen x -> 4
        1 80..90 getrange x 1 -2 -> bc
        1 100..110 setrange x 1 XY -> 4
        1 120..130 get x -> aXYd",
    ),
    kv(
        "cas compares",
        true,
        "
        1 0..10 set x 1 -> OK
        1 20..30 cas x 2 3 -> 0
        1 40..50 cas x 1 3 -> 1
        1 60..70 get x -> 3",
    ),
    kv(
        "del counts what was there",
        true,
        "
        1 0..10 set x 1 -> OK
        1 20..30 del x+y -> 1
        1 40..50 exists x+y -> 0
        1 60..70 getdel x -> nil",
    ),
    kv(
        "set nx, xx and get",
        true,
        "
        1 0..10 set x 1 xx -> nil
        1 20..30 set x 1 nx -> OK
        1 40..50 set x 2 nx -> nil
        1 60..70 set x 3 xx get -> 1
        1 80..90 getset x 4 -> 3
        1 100..110 setnx x 5 -> 0
        1 120..130 get x -> 4",
    ),
    kv(
        "set xx does not create",
        false,
        "
        1 0..10 set x 1 xx -> OK",
    ),
    kv(
        "a key is gone at the stamp of its deadline",
        true,
        "
        1 0..10 set x 1 at 100 @10 -> OK
        1 20..30 get x @99 -> 1
        1 40..50 get x @100 -> nil
        1 60..70 set x 2 nx @100 -> OK
        1 80..90 expiretime x @200 -> -1",
    ),
    kv(
        "a read by a newer stamp deletes what expired for it",
        false,
        "
        1 0..10 set x 1 at 100 @10 -> OK
        1 20..30 get x @150 -> nil
        2 40..50 get x @50 -> 1",
    ),
    kv(
        "what a newer stamp deleted is gone for an older one",
        true,
        "
        1 0..10 set x 1 at 100 @10 -> OK
        1 20..30 mget x+y @150 -> [nil nil]
        2 40..50 get x @50 -> nil",
    ),
    kv(
        "of two stamps at once either may come first",
        true,
        "
        1 0..10 set x 1 at 100 @10 -> OK
        1 20..60 get x @150 -> nil
        2 30..40 get x @50 -> 1",
    ),
    kv(
        "an unknown read may have deleted what expired for it",
        true,
        "
        1 0..10 set x 1 at 100 @10 -> OK
        1 20.. get x @150
        2 40..50 get x @50 -> 1
        2 60..70 get x @60 -> nil",
    ),
    kv(
        "a write by a newer stamp deletes what expired for it",
        false,
        "
        1 0..10 set x 1 at 100 @10 -> OK
        1 20..30 del x @150 -> 0
        2 40..50 get x @50 -> 1",
    ),
    kv(
        "set takes the deadline away, keepttl does not",
        true,
        "
        1 0..10 set x 1 at 100 @10 -> OK
        1 20..30 set x 2 keepttl @20 -> OK
        1 40..50 get x @100 -> nil
        1 60..70 set x 3 at 300 @110 -> OK
        1 80..90 set x 4 @120 -> OK
        1 100..110 get x @400 -> 4
        1 120..130 expireat x 500 @400 -> 1
        1 140..150 persist x @450 -> 1
        1 160..170 get x @600 -> 4",
    ),
    kv(
        "lists are queues from both ends",
        true,
        "
        1 0..10 rpush x a b -> 2
        1 20..30 lpush x c d -> 4
        1 40..50 lrange x 0 -1 -> [d c a b]
        1 60..70 lpop x -> d
        1 80..90 rpop x -> b
        1 100..110 lrange x -1 5 -> [a]
        1 120..130 rpop x 5 -> [a c]
        1 140..150 type x -> none",
    ),
    kv(
        "a wrong type is an error",
        true,
        "
        1 0..10 rpush x a -> 1
        1 20..30 get x -> error:WRONGTYPE
        1 40..50 incr x -> error:WRONGTYPE
        1 60..70 sadd x a -> error:WRONGTYPE
        1 80..90 llen x -> 1
        1 100..110 type x -> list",
    ),
    kv(
        "a wrong type is not an absent key",
        false,
        "
        1 0..10 rpush x a -> 1
        1 20..30 sadd x a -> 1",
    ),
    kv(
        "sets",
        true,
        "
        1 0..10 sadd x b a b -> 2
        1 20..30 smembers x -> [a b]
        1 40..50 srem x a z -> 1
        1 60..70 sismember x b -> 1
        1 80..90 scard x -> 1",
    ),
    kv(
        "hashes",
        true,
        "
        1 0..10 hset x f 1 g w -> 2
        1 20..30 hincrby x f 4 -> 5
        1 40..50 hincrby x g 1 -> error:ERR
        1 60..70 hget x f -> 5
        1 80..90 hgetall x -> [f 5 g w]
        1 100..110 hdel x f h -> 1
        1 120..130 hexists x f -> 0
        1 140..150 hlen x -> 1",
    ),
    kv(
        "sorted sets",
        true,
        "
        1 0..10 zadd x 2 b 1 c 2 a -> 3
        1 20..30 zrange x 0 -1 -> [c a b]
        1 40..50 zincrby x 1.5 c -> 2.50
        1 60..70 zscore x c -> 2.5
        1 80..90 zscore x q -> nil
        1 100..110 zrem x a -> 1
        1 120..130 zcard x -> 2",
    ),
    Case {
        name: "a register",
        model: ModelName::Register,
        legal: true,
        script: "
        1 0..10 read x -> nil
        1 20..30 write x 1 -> OK
        1 40..50 cas x 2 3 -> 0
        1 60..70 cas x 1 3 -> 1
        1 80..90 read x -> 3",
    },
    Case {
        name: "a register's unknown write is left out only if unread",
        model: ModelName::Register,
        legal: true,
        script: "
        1 0.. write x 1
        1 20..30 read x -> 1",
    },
    Case {
        name: "a transfer conserves the total",
        model: ModelName::Bank,
        legal: true,
        script: "
        1 0..10 open a+b 10 -> OK
        1 20..30 transfer a+b 4 -> 1
        2 40..50 read-all a+b -> [6 14]
        1 60..70 transfer a+b 7 -> 0
        2 80..90 balance b -> 14",
    },
    Case {
        name: "a torn transfer is found",
        model: ModelName::Bank,
        legal: false,
        script: "
        1 0..10 open a+b 10 -> OK
        1 20..100 transfer a+b 4 -> 1
        2 40..50 read-all a+b -> [6 10]",
    },
    kv("one of many unknown writes on two keys that are copied was read", true, many_unknown!("h")),
    kv("none of many unknown writes on two keys that are copied was read", false, many_unknown!("i")),
    kv(
        "a text is copied away, overwritten and copied back",
        true,
        "
        1 0..10 set x a -> OK
        1 20..30 copy x+y replace -> 1
        1 40..50 set x b -> OK
        1 60..70 copy y+x replace -> 1
        2 80..90 get x -> a",
    ),
    kv(
        "a text is overwritten and written again",
        true,
        "
        1 0..10 mset x+y a a -> OK
        1 20..30 mset x+y b b -> OK
        1 40..50 mset x+y a a -> OK
        2 80..90 get x -> a",
    ),
    kv(
        "a text that was overwritten everywhere is not copied back",
        false,
        "
        1 0..10 mset x+y a a -> OK
        1 20..30 mset x+y b b -> OK
        1 40..50 copy y+x replace -> 1
        2 80..90 get x -> a",
    ),
    kv(
        "an unknown pop may take as many as a number can say, and another one more",
        true,
        "
        1 0..1 rpush l a -> 1
        2 2.. lpop l 18446744073709551615
        3 2.. lpop l
        4 5..6 llen l -> 0",
    ),
    kv(
        "the same at the other end",
        true,
        "
        1 0..1 rpush l a -> 1
        2 2.. rpop l 18446744073709551615
        3 2.. rpop l
        4 5..6 llen l -> 0",
    ),
];

/// The first case with a wrong verdict.
pub(super) fn verdicts() -> Result<(), String> {
    for case in CASES {
        let expected = if case.legal { "linearizable" } else { "violation" };
        match check_named(&history(case.script), case.model, &Budget::default()) {
            Ok(report) if report.verdict.as_str() == expected => {}
            Ok(report) => return Err(format!("{}: {}", case.name, report.verdict.as_str())),
            Err(error) => return Err(format!("{}: {error}", case.name)),
        }
    }
    Ok(())
}

/// A budget that ends leaves the history undecided.
pub(super) fn budgets() -> Result<(), String> {
    let budget = Budget { steps: 3, ..Budget::default() };
    let history = history(
        "
        1 0..100 append x 1
        2 0..100 append x 2
        3 0..100 append x 3
        4 0..100 get x -> 1
        5 110..120 get x -> 132",
    );
    match check_named(&history, ModelName::Kv, &budget).map(|report| report.verdict) {
        Ok(Verdict::Undecided { components: 1, .. }) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

type Check = fn(&History) -> crate::SessionReport;

const SESSIONS: &[(&str, Check, Option<SessionViolationKind>, &str)] = &[
    (
        "tokens in order",
        once,
        None,
        "
        1 0..10 rpush x a -> 1
        1 0..10 rpush x b -> 2
        2 0.. rpush x c
        3 0..! rpush x d
        4 20..30 lrange x 0 -1 -> [a c b]",
    ),
    (
        "a token twice",
        once,
        Some(SessionViolationKind::Repeated),
        "
        1 0..10 rpush x a -> 1
        4 20..30 lrange x 0 -1 -> [a a]",
    ),
    (
        "an unknown token twice",
        once,
        Some(SessionViolationKind::Repeated),
        "
        1 0.. rpush x a
        4 20..30 lrange x 0 -1 -> [a a]",
    ),
    (
        "a token taken twice",
        once,
        Some(SessionViolationKind::Repeated),
        "
        1 0..10 rpush x a -> 1
        2 20..30 lpop x -> a
        3 20..30 lpop x -> a",
    ),
    (
        "a token back after it was taken",
        once,
        Some(SessionViolationKind::Repeated),
        "
        1 0..10 rpush x a -> 1
        2 20..30 lpop x -> a
        3 40..50 lrange x 0 -1 -> [a]",
    ),
    (
        "a lost token",
        once,
        Some(SessionViolationKind::Lost),
        "
        1 0..10 rpush x a -> 1
        1 0..10 rpush x b -> 2
        4 20..30 lrange x 0 -1 -> [a]",
    ),
    (
        "a token that an unknown pop may have taken",
        once,
        None,
        "
        1 0..10 rpush x a -> 1
        2 12.. lpop x
        4 20..30 lrange x 0 -1 -> []",
    ),
    (
        "a token that a pop without a recorded answer may have taken",
        once,
        None,
        "
        1 0..10 rpush x a -> 1
        2 12..15 lpop x
        4 20..30 lrange x 0 -1 -> []",
    ),
    (
        "tokens that are numbers",
        once,
        None,
        "
        1 0..10 rpush x 7 -> 1
        1 12..15 rpush x 8 -> 2
        2 20..30 lpop x -> 7
        4 40..50 lrange x 0 -1 -> [8]",
    ),
    (
        "a number taken twice",
        once,
        Some(SessionViolationKind::Repeated),
        "
        1 0..10 rpush x 7 -> 1
        2 20..30 lpop x -> 7
        3 20..30 lpop x -> 7",
    ),
    (
        "a number of nobody",
        once,
        Some(SessionViolationKind::Invented),
        "
        1 0..10 rpush x 7 -> 1
        4 20..30 lrange x 0 -1 -> [7 8]",
    ),
    (
        "a failed token",
        once,
        Some(SessionViolationKind::FailedYetDone),
        "
        1 0..! rpush x a
        4 20..30 lrange x 0 -1 -> [a]",
    ),
    (
        "a token of nobody",
        once,
        Some(SessionViolationKind::Invented),
        "
        1 0..10 rpush x a -> 1
        4 20..30 lrange x 0 -1 -> [a q]",
    ),
    (
        "a pipelined session out of order",
        once,
        Some(SessionViolationKind::OutOfOrder),
        "
        1 0..100 rpush x a -> 2
        1 0..100 rpush x b -> 1
        4 200..300 lrange x 0 -1 -> [b a]",
    ),
    (
        "pushes to the left stand in reverse",
        once,
        None,
        "
        1 0..100 lpush x a -> 1
        1 0..100 lpush x b -> 2
        4 200..300 lrange x 0 -1 -> [b a]",
    ),
    (
        "pushed at both ends, and once too often",
        once,
        Some(SessionViolationKind::Repeated),
        "
        1 0..10 rpush x a -> 1
        2 20..30 lpush x b -> 2
        3 40..50 lrange x 0 -1 -> [b a a]",
    ),
    (
        "pushed at both ends, and lost",
        once,
        Some(SessionViolationKind::Lost),
        "
        1 0..10 rpush x a -> 1
        2 20..30 lpush x b -> 2
        3 40..50 lrange x 0 -1 -> [a]",
    ),
    (
        "pushed at both ends by one session",
        once,
        None,
        "
        1 0..10 rpush x a -> 1
        1 20..30 lpush x b -> 2
        1 40..50 rpush x c -> 3
        3 60..70 lrange x 0 -1 -> [b a c]",
    ),
    (
        "counters",
        once,
        None,
        "
        1 0..10 incr x -> 1
        1 20..30 incrby x 5 -> 6
        2 40.. incr x
        3 50..60 get x -> 7",
    ),
    (
        "two increments with one answer",
        once,
        Some(SessionViolationKind::Lost),
        "
        1 0..10 incr x -> 1
        2 0..10 incr x -> 1",
    ),
    (
        "a counter that lost",
        once,
        Some(SessionViolationKind::Lost),
        "
        1 0..10 incr x -> 1
        2 20..30 get x -> nil",
    ),
    (
        "a counter that gained",
        once,
        Some(SessionViolationKind::Repeated),
        "
        1 0..10 incr x -> 1
        2 20..30 get x -> 2",
    ),
    (
        "a failed increment that happened",
        once,
        Some(SessionViolationKind::Repeated),
        "
        1 0..! incr x
        2 20..30 get x -> 1",
    ),
    (
        "a counter's session out of order",
        once,
        Some(SessionViolationKind::OutOfOrder),
        "
        1 0..100 incr x -> 2
        1 0..100 incr x -> 1",
    ),
    (
        "a session reads its writes",
        check_sessions,
        None,
        "
        1 0..10 set x 1 -> OK
        1 20..30 get x -> 1
        2 0..100 set x 2 -> OK
        1 40..50 get x -> 2",
    ),
    (
        "a session misses its write",
        check_sessions,
        Some(SessionViolationKind::OwnWriteMissed),
        "
        1 0..10 set x 1 -> OK
        2 20..30 set x 2 -> OK
        2 40..50 get x -> 1",
    ),
    (
        "a session misses its first write",
        check_sessions,
        Some(SessionViolationKind::OwnWriteMissed),
        "
        1 0..10 set x 1 -> OK
        1 20..30 get x -> nil",
    ),
    (
        "a session misses its write behind what another writes meanwhile",
        check_sessions,
        Some(SessionViolationKind::OwnWriteMissed),
        "
        3 0..5 set x 0 -> OK
        1 10..20 set x 1 -> OK
        2 0..100 set x 2 -> OK
        1 30..40 get x -> 2
        1 50..60 get x -> 0",
    ),
    (
        "a session goes back",
        check_sessions,
        Some(SessionViolationKind::WentBack),
        "
        1 0..10 set x 1 -> OK
        1 20..30 set x 2 -> OK
        3 40..50 get x -> 2
        3 60..70 get x -> 1",
    ),
    (
        "a value of nobody",
        check_sessions,
        Some(SessionViolationKind::Invented),
        "
        1 0..10 set x 1 -> OK
        3 40..50 get x -> 2",
    ),
];

/// The first session case with a wrong verdict.
pub(super) fn sessions() -> Result<(), String> {
    for (name, check, expected, script) in SESSIONS {
        let report = check(&history(script));
        let kinds: Vec<_> = report.violations.iter().map(|violation| violation.kind).collect();
        if report.checked == 0 {
            return Err(format!("{name}: nothing was checked"));
        }
        match expected {
            None if !kinds.is_empty() => return Err(format!("{name}: {:?}", report.violations)),
            Some(kind) if !kinds.contains(kind) => return Err(format!("{name}: {:?}", report.violations)),
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn every_case_has_its_verdict() {
    assert_eq!(verdicts(), Ok(()));
}

/// A write of both keys lies between two of one each, behind the second and before the first.
#[test]
fn what_each_key_says_may_be_right_where_the_whole_is_not() {
    let crossed = "
        1 0..90 mset x+y 3 3 -> OK
        2 0..10 set x 1 -> OK
        3 20..30 set y 2 -> OK
        3 100..110 mget x+y -> [1 3]
        3 120..130 copy x+z -> 1
        3 140..150 get z -> 3";
    let whole = check_named(&history(crossed), ModelName::Kv, &Budget::default()).unwrap();
    assert_eq!(whole.verdict.as_str(), "violation");
    for (more, verdict) in [
        ("", "linearizable"),
        ("3 200..210 get y -> 2", "violation"),
        ("4 200..210 mget x+y -> [3 3]", "violation"),
        // What is wrong before a copy is wrong, whatever the copy gave; what is read while it goes on may be of it.
        ("4 200..210 get x -> 3\n4 220..230 copy y+x -> 1\n4 240..250 get x -> 2", "violation"),
        ("4 200..225 get x -> 7\n4 220..230 copy y+x -> 1\n4 240..250 get x -> 2", "linearizable"),
    ] {
        let report = check_by_key(&history(&format!("{crossed}\n{more}")), &Budget::default()).unwrap();
        assert_eq!(report.verdict.as_str(), verdict, "{more}");
    }
}

/// A write of two keys is two parts, both of its line.
#[test]
fn an_explanation_by_key_names_the_lines_of_the_history() {
    let stale = "
        1 0..10 mset x+y 1 1 -> OK
        2 20..30 set y 2 -> OK
        3 40..50 get y -> 1";
    let report = check_by_key(&history(stale), &Budget::default()).unwrap();
    let explanation = report.explanation().unwrap();
    let lines: Vec<usize> = explanation.operations.iter().map(|operation| operation.line).collect();
    assert!(lines.ends_with(&[2, 3]), "{explanation}");
    assert!(explanation.text.contains("\n     3        3   get y"), "{explanation}");
    assert_eq!((report.operations, report.keys), (3, 2));
}

#[test]
fn a_history_is_held_against_what_was_promised() {
    let words = |script: &str, executed: u64| {
        Promise::ALL.map(|promise| {
            check_promised(&history(script), promise, executed, &Budget::default()).unwrap().word()
        })
    };
    let broken = "violation";
    let late = "
        1 0..1000 set x 1 -> OK
        2 2000..3000 get x -> nil";
    assert_eq!(words(late, u64::MAX), [broken, broken, "sequenced", "serializable"]);
    // What must have been executed before it was looked for.
    assert_eq!(words(late, 1_500_000), [broken, broken, broken, "serializable"]);
    // Its answer says that the key was absent, so it came with the result; the first word is a value.
    let unless = late.replace("set x 1", "set x 1 NX");
    assert_eq!(words(&unless, u64::MAX), [broken, broken, broken, "serializable"]);
    let value = late.replace("set x 1", "set x nx");
    assert_eq!(words(&value, u64::MAX), [broken, broken, "sequenced", "serializable"]);
    // Each key by itself is in order.
    let crossed = "
        1 0..90 mset x+y 3 3 -> OK
        2 0..10 set x 1 -> OK
        3 20..30 set y 2 -> OK
        3 100..110 mget x+y -> [1 3]";
    assert_eq!(words(crossed, 15_000), [broken, "linearizable-by-key", broken, "serializable"]);
    assert_eq!(words("1 0..10 get x -> 1", u64::MAX), [broken; 4]);
    assert_eq!(words("1 0..10 get x -> nil", u64::MAX), Promise::ALL.map(Promise::as_str));
    assert!(Promise::ALL.into_iter().all(|promise| promise.as_str().parse() == Ok(promise)));
    assert!("by-key".parse::<Promise>().is_err());
}

#[test]
fn a_spent_budget_is_undecided() {
    assert_eq!(budgets(), Ok(()));
}

#[test]
fn every_session_case_has_its_verdict() {
    assert_eq!(sessions(), Ok(()));
}
