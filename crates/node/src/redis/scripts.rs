//! Scripts that well-known libraries send, as operations. There is no interpreter, on purpose: a script is
//! known or it is refused.
//!
//! A script is known by its text, whatever its blanks, comments, quotes, letter case of commands and names of local
//! variables, and by the SHA-1 of a text that was published with its library or has been sent to this node before.

use super::args::{Time, blob, number, pairs};
use super::commands::Understood;
use super::complaint::Complaint;
use super::connection::State;
use super::digest::sha1;
use super::emptying::{self, Belongings};
use super::looking::{self, Look};
use super::reply::Reply;
use super::request::{Args, integer};
use super::shape::{Plan, Shape};
use super::spec::{Given, Spec, flag};
use super::table;
use crate::gateway::Context;
use isochrone_core::command::{
    Chord, Condition, DeadlineChange, Expiry, ExpiryCondition, Operation, Score, ScoreCondition, Side,
    TtlUnit, ZAddFlags,
};
use isochrone_core::{Blob, Stamp};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// What a known script does.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Native {
    /// Deletes a lock that holds ARGV\[1\]: 1 or 0.
    Release,
    /// The same: -1 where there is no lock.
    ReleaseOrMissing,
    /// The same: nothing where it was not deleted.
    ReleaseOrNothing,
    /// npm's redlock: deletes each of the locks that holds ARGV\[1\]: how many.
    ReleaseAll,
    /// Moves the deadline of a lock that holds ARGV\[1\] and has one: by ARGV\[2\] milliseconds, or to that
    /// many from now where ARGV\[3\] is not "0".
    Extend,
    /// coredis: the same by ARGV\[2\] milliseconds.
    ExtendBy,
    /// celery-redbeat: the same to ARGV\[2\] milliseconds from now.
    ExtendTo,
    /// Sets the deadline of a lock that holds ARGV\[1\]: ARGV\[2\] milliseconds from now.
    ExpireMillis,
    /// The same, by setting what it holds again.
    Renew,
    /// The same in seconds.
    ExpireSeconds,
    /// The same in these units: nothing where none was set.
    ExpireOrNothing(Time),
    /// npm's redlock: sets what each of the locks holds again where all hold ARGV\[1\]: how many.
    RenewAll,
    /// npm's redlock: sets the locks to ARGV\[1\], for ARGV\[2\] milliseconds, where none is there: how many.
    LockAll,
    /// walrus: takes a lock for ARGV\[1\] that nobody has, for ARGV\[2\] milliseconds, or for ever: 1 or 0.
    Lock,
    /// Laravel: sets KEYS\[1\], which is not there, to ARGV\[1\], for ARGV\[2\] seconds: OK, or nothing.
    AddFor,
    /// kombu: adds ARGV\[1\] to the set KEYS\[1\], and raises the score of ARGV\[2\] in KEYS\[2\] to ARGV\[3\]
    /// milliseconds from now.
    RefreshBinding,
    /// kombu: deletes tables of bindings that nobody has refreshed. Their keys are not declared, so here none
    /// is deleted, and the answer is 0.
    SweepBindings,
    /// celery: records the result of a task of a chord, and claims the callback after the last ([`Chord::Part`]).
    ChordPart,
    /// celery: holds on to the claim of a chord's callback ([`Chord::Extend`]).
    ChordExtend,
    /// celery: ends a chord ([`Chord::Finish`]).
    ChordFinish,
    /// rq: takes a lock for ARGV\[1\] that nobody has, or has it expire later; ARGV\[2\] seconds from now: 1, 2, or 0.
    AcquireOrRefresh,
    /// rq: keeps a job that is not there, KEYS\[1\], and pushes it to the queue KEYS\[2\]: 1 or 0.
    EnqueueOnce,
    /// rq: keeps a job that is not there, KEYS\[1\], and sets when it is due, in KEYS\[2\]: 1 or 0.
    ScheduleOnce,
    /// rq: empties the queue KEYS\[1\] and deletes what its jobs have ([`emptying`]): how many there were.
    EmptyQueue,
    /// The same, with the results of the jobs.
    EmptyQueueAndResults,
    /// django-redis: adds ARGV\[1\] to KEYS\[1\].
    Increment,
    /// Adds 1 to KEYS\[1\], which expires ARGV\[1\] units after it was not there; what it is then, where that is told.
    Count {
        /// The units.
        time: Time,
        /// Whether it is told.
        tells: bool,
    },
    /// The same, one second after.
    CountForSecond {
        /// Whether it is told.
        tells: bool,
    },
    /// cashews: adds ARGV\[1\] to KEYS\[1\], which expires ARGV\[2\] milliseconds after it became 1: what it is then.
    Add,
    /// rate-limiter-flexible: adds ARGV\[1\] to KEYS\[1\], which expires ARGV\[2\] seconds after it had no deadline: what it is
    /// then, and how many milliseconds it has.
    CountWithin,
    /// rate-limit-redis: adds 1 to KEYS\[1\], or begins anew where it has no deadline, with that of ARGV\[1\] milliseconds from
    /// now: the same.
    CountAnew,
    /// rate-limit-redis: what KEYS\[1\] is, and how many milliseconds it has.
    Counted,
    /// Looks at its keys first.
    Looks(Look),
}

impl Native {
    /// The commands that the script calls, or may call: whoever may not run each of them may not run it.
    fn calls(self) -> &'static [&'static str] {
        match self {
            Native::Release | Native::ReleaseOrMissing | Native::ReleaseOrNothing | Native::ReleaseAll => {
                &["get", "del"]
            }
            Native::Extend | Native::ExtendBy | Native::ExtendTo => &["get", "pttl", "pexpire"],
            Native::ExpireMillis | Native::ExpireOrNothing(Time::Millis) => &["get", "pexpire"],
            Native::Renew | Native::RenewAll => &["get", "set"],
            Native::ExpireSeconds | Native::ExpireOrNothing(_) => &["get", "expire"],
            Native::LockAll => &["exists", "set"],
            Native::Lock => &["setnx", "pexpire"],
            Native::AddFor => &["exists", "setex"],
            Native::RefreshBinding => &["sadd", "time", "zadd"],
            Native::SweepBindings => &["time", "zrangebyscore", "exists", "del", "zrem"],
            Native::ChordPart => {
                &["get", "sismember", "zadd", "rpush", "sadd", "zcount", "llen", "expire", "set"]
            }
            Native::ChordExtend => &["get", "expire", "exists", "set"],
            Native::ChordFinish => &["get", "del", "set"],
            Native::AcquireOrRefresh => &["get", "set", "expire"],
            Native::EnqueueOnce => &["exists", "hset", "expire", "lpush", "rpush"],
            Native::ScheduleOnce => &["exists", "hset", "expire", "zadd", "sadd"],
            Native::EmptyQueue | Native::EmptyQueueAndResults => &["lpop", "del"],
            Native::Increment => &["incrby"],
            Native::Count { time: Time::Millis, .. } => &["incr", "pexpire"],
            Native::Count { .. } | Native::CountForSecond { .. } => &["incr", "expire"],
            Native::Add => &["incrby", "pexpire"],
            Native::CountWithin => &["set", "incrby", "pttl", "expire"],
            Native::CountAnew => &["pttl", "set", "incr"],
            Native::Counted => &["get", "pttl"],
            Native::Looks(look) => look.calls(),
        }
    }
}

/// Scripts of libraries that send their digests first, and a text only where the digest is not known: redis-py's
/// (`redis/lock.py`, unchanged since version 3; used by kombu and celery too), kombu's, celery's, rq's and python-redis-lock's.
const DIGESTS: &[(&str, Native)] = &[
    ("c3f8721cbb97f72bc19e972846bd7aaf91901658", Native::Release),
    ("a4e8783852e6b949f9ef3a97212805108459a890", Native::Extend),
    ("1cac51482acf5858da00f6d685d68f886cd6b6b2", Native::ExpireMillis),
    // kombu 5.7, `kombu/transport/redis.py`.
    ("ef7a9e205fbaf46bf959e1522ff796622fc676c7", Native::RefreshBinding),
    ("9a2b966a0a2d2d0e36ec32bc30fc89342b94a4bf", Native::SweepBindings),
    // celery 5.7, `celery/backends/redis.py`.
    ("b8fc152c83a7e634103ccebd49dcd3146a8f4366", Native::ChordPart),
    ("dc87180d6bcb7f73c7275eb0fe7a70baf0a8b7c7", Native::ChordExtend),
    ("59d7aab41242d82196947ba8926cab712416da4f", Native::ChordFinish),
    // rq 0.13 to 3.0: `rq/queue.py`, with its own prefixes of keys, and `rq/scripts.py`.
    ("0f72f97be1eabbfce0148fd466da8c4ad73236fe", Native::EmptyQueue),
    ("b3ee5dcfdd9c987f22a7271c7eea4d326e2f58d6", Native::EmptyQueueAndResults),
    ("5cee5213d2ee93f19f93badbfc1c8abbccde5baf", Native::EnqueueOnce),
    ("10808fbebdc9b5ffafa2b7f5f2ce29a5bc6a1e07", Native::ScheduleOnce),
    ("4227fa753143e6f652e2e185d254964b3a7413a5", Native::AcquireOrRefresh),
    ("d44df6e1a0e76df1009084a91af26cc23ac035a9", Native::Release),
    // python-redis-lock 3.6 to 4.0, `redis_lock/__init__.py`.
    ("90da91872223f85eb1376a17e3c4df21ace8c54b", Native::Looks(Look::Unlock)),
    ("fed16109024d968d9496e4140fe1355bac05ebff", Native::Looks(Look::ExtendLock)),
    ("afbc8014508f92e446b56567e8ba600e811c1bd5", Native::Looks(Look::Reset)),
];

/// Scripts by the SHA-1 of their text as [`canonical`] has it, however it is laid out.
const LAID_OUT: &[(&str, Native)] = &[
    // django-redis 5.2 to 7.0, `django_redis/client/default.py`.
    ("47421f3b8337428ae7d15126010abf4f4a75d60d", Native::Looks(Look::IncrementIfThere)),
    ("ad50e582fdd37266ca3c1e0e292944de0bdd26b4", Native::Increment),
    // limits 2.8 to 5.8, `limits/resources/redis/lua_scripts/incr_expire.lua`.
    ("fc28c66184dd280db9eec907bea63f4bb60bea25", Native::Looks(Look::IncrementAndExpire)),
    // aiocache 0.11 and 0.12, `aiocache/backends/redis.py`.
    ("8566d96ef3b1a1e08de82205970592bbe49ec0ff", Native::Looks(Look::CompareAndSet)),
    // redsync 4 for Go, `scripts.go`, where it extends locks that are gone.
    ("63719198579dd67df3c84e5c3e12b4b0edf8cee8", Native::Looks(Look::TouchOrSet)),
    // pottery 3.0, `pottery/redlock.py`.
    ("8c727a44182310e7674a1ef3edec121de61f5b1f", Native::Looks(Look::Remaining)),
    // redislock for Go, `redislock.go`.
    ("2a7eeb58bfd3bfd5e34ac2be357d77d7a0039f6a", Native::Looks(Look::RemainingOrMissing)),
    ("6097ae596fa5d2b9576bd203950a9a179d0c8708", Native::Looks(Look::Obtain)),
    // Sidekiq 6.3 to 8, `lib/sidekiq/scheduled.rb`: by ZRANGEBYSCORE, and by ZRANGE.
    ("76a5a4bfd48b1db7e5b8b1d2709187632eea0e01", Native::Looks(Look::PopDue)),
    ("d001880b82a97934a45152a8fa1ff4aca1686f85", Native::Looks(Look::PopDue)),
    // huey 2.4 to 3.5: `huey/storage.py`, and `huey/contrib/helpers.py`.
    ("212ec10a4d761e22806755e5691384766e4907b3", Native::Looks(Look::PopAllDue)),
    ("a08c0fa576cd5c1fe6ca546fd9deed66fa90963e", Native::Looks(Look::PopAllDue)),
    ("95a63d9c6e510d7b7ffee089398e643fb13bfd48", Native::Looks(Look::TakePlace)),
    ("a93857b1726e3fea18f2aa4d3b19bbf002383031", Native::Looks(Look::KeepPlace)),
];

/// What a job of rq has beside its place in a queue, ...
const JOB: Belongings = &[("rq:job:", ""), ("rq:job:", ":dependents")];
/// ... and since rq 3.
const JOB_AND_RESULTS: Belongings = &[("rq:job:", ""), ("rq:results:", ""), ("rq:job:", ":dependents")];

/// Scripts that libraries write alike.
const TEXTS: &[(Native, &str)] = &[
    // The page on distributed locks of the Redis documentation, and most libraries named Redlock.
    (
        Native::Release,
        "if redis.call(\"get\",KEYS[1]) == ARGV[1] then\n    return redis.call(\"del\",KEYS[1])\nelse\n    return 0\nend",
    ),
    (
        Native::Release,
        "if redis.call(\"get\", KEYS[1]) == ARGV[1] then return redis.call(\"del\", KEYS[1]) else return 0 end",
    ),
    (
        Native::ExpireMillis,
        "if redis.call(\"get\", KEYS[1]) == ARGV[1] then return redis.call(\"pexpire\", KEYS[1], ARGV[2]) else return 0 end",
    ),
    (
        Native::ExpireSeconds,
        "if redis.call(\"get\", KEYS[1]) == ARGV[1] then return redis.call(\"expire\", KEYS[1], ARGV[2]) else return 0 end",
    ),
    // rslock for Rust, which sets what the lock holds already, with another deadline.
    (
        Native::Renew,
        "if redis.call(\"get\", KEYS[1]) ~= ARGV[1] then return 0 else if redis.call(\"set\", KEYS[1], ARGV[1], \
         \"PX\", ARGV[2]) ~= nil then return 1 else return 0 end end",
    ),
    // redsync for Go.
    (
        Native::ReleaseOrMissing,
        "local val = redis.call(\"GET\", KEYS[1]) if val == ARGV[1] then return redis.call(\"DEL\", KEYS[1]) \
         elseif val == false then return -1 else return 0 end",
    ),
    // npm's redlock 4 and 5, `redlock.js`.
    (
        Native::LockAll,
        "for i, key in ipairs(KEYS) do if redis.call(\"exists\", key) == 1 then return 0 end end \
         for i, key in ipairs(KEYS) do redis.call(\"set\", key, ARGV[1], \"PX\", ARGV[2]) end return #KEYS",
    ),
    (
        Native::ReleaseAll,
        "local count = 0 for i, key in ipairs(KEYS) do if redis.call(\"get\", key) == ARGV[1] then \
         redis.pcall(\"del\", key) count = count + 1 end end return count",
    ),
    (
        Native::RenewAll,
        "for i, key in ipairs(KEYS) do if redis.call(\"get\", key) ~= ARGV[1] then return 0 end end \
         for i, key in ipairs(KEYS) do redis.call(\"set\", key, ARGV[1], \"PX\", ARGV[2]) end return #KEYS",
    ),
    // redis-semaphore 5.8, `lib/mutex`; and its release as node-redis-warlock 1.0 has it.
    (
        Native::Release,
        "local key = KEYS[1] local identifier = ARGV[1] if redis.call('get', key) == identifier then \
         return redis.call('del', key) end return 0",
    ),
    (
        Native::Release,
        "local key = KEYS[1] local content = ARGV[1] local value = redis.call('get', key) \
         if value == content then return redis.call('del', key) end return 0",
    ),
    (
        Native::ExpireMillis,
        "local key = KEYS[1] local identifier = ARGV[1] local lockTimeout = ARGV[2] \
         local value = redis.call('get', key) if value == identifier then redis.call('pexpire', key, lockTimeout) \
         return 1 end return 0",
    ),
    // coredis 6.9, `coredis/patterns/lock/lua`; its release is that of redis-py.
    (
        Native::Release,
        "local token = redis.call('get', KEYS[1]) if not token or token ~= ARGV[1] then return 0 end \
         redis.call('del', KEYS[1]) return 1",
    ),
    (
        Native::ExtendBy,
        "local token = redis.call('get', KEYS[1]) if not token or token ~= ARGV[1] then return 0 end \
         local expiration = redis.call('pttl', KEYS[1]) if not expiration then expiration = 0 end \
         if expiration < 0 then return 0 end redis.call('pexpire', KEYS[1], expiration + ARGV[2]) return 1",
    ),
    // celery-redbeat 2.4, `redbeat/schedulers.py`.
    (
        Native::ExtendTo,
        "local token = redis.call('get', KEYS[1]) if not token or token ~= ARGV[1] then return 0 end \
         local expiration = redis.call('pttl', KEYS[1]) if not expiration then expiration = 0 end \
         if expiration < 0 then return 0 end redis.call('pexpire', KEYS[1], ARGV[2]) return 1",
    ),
    // Laravel 5.4 to 12, `Illuminate/Cache/RedisStore.php` and `LuaScripts.php`; its locks are those of all.
    (Native::AddFor, "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])"),
    // walrus 0.9, `walrus/scripts`.
    (
        Native::Lock,
        "local key = KEYS[1] local lock_id = ARGV[1] local ttl = tonumber(ARGV[2]) \
         local ret = redis.call('setnx', key, lock_id) if ret == 1 and ttl > 0 then redis.call('pexpire', key, ttl) \
         end return ret",
    ),
    (
        Native::Looks(Look::UnlockAndTell),
        "local key = KEYS[1] local event_key = KEYS[2] local lock_id = ARGV[1] \
         if redis.call(\"get\", key) == lock_id then redis.call(\"lpush\", event_key, 1) \
         redis.call(\"ltrim\", event_key, 0, 0) return redis.call(\"del\", key) else return 0 end",
    ),
    // rate-limiter-flexible 11.4, `lib/RateLimiterRedis.js`.
    (
        Native::CountWithin,
        "redis.call('set', KEYS[1], 0, 'EX', ARGV[2], 'NX') local consumed = redis.call('incrby', KEYS[1], ARGV[1]) \
         local ttl = redis.call('pttl', KEYS[1]) if ttl == -1 then redis.call('expire', KEYS[1], ARGV[2]) \
         ttl = 1000 * ARGV[2] end return {consumed, ttl}",
    ),
    // rate-limit-redis 6.0, the store of express-rate-limit.
    (
        Native::CountAnew,
        "local windowMs = tonumber(ARGV[1]) local timeToExpire = redis.call(\"PTTL\", KEYS[1]) \
         if timeToExpire <= 0 then redis.call(\"SET\", KEYS[1], 1, \"PX\", windowMs) return { 1, windowMs } end \
         local totalHits = redis.call(\"INCR\", KEYS[1]) return { totalHits, timeToExpire }",
    ),
    (
        Native::Counted,
        "local totalHits = redis.call(\"GET\", KEYS[1]) local timeToExpire = redis.call(\"PTTL\", KEYS[1]) \
         return { totalHits, timeToExpire }",
    ),
    // cashews 7, `cashews/backends/redis/backend.py`.
    (
        Native::Add,
        "local current_count = redis.call(\"INCRBY\", KEYS[1], ARGV[1]) if current_count == 1 then \
         redis.call(\"PEXPIRE\", KEYS[1], ARGV[2]) end return current_count",
    ),
];

/// Texts beyond these are not remembered by their SHA-1: there are few ways to write a known script.
const LEARNED_MAX: usize = 1024;
/// A longer text is no known script.
const TEXT_MAX: usize = 4096;

/// What no library has, but many write alike: what the holder of a lock does, and counters that expire, as on the page on
/// INCR of the Redis documentation.
fn everyday() -> Vec<(Native, String)> {
    let mut texts = Vec::new();
    let held = [
        ("redis.call('del', KEYS[1])", Native::Release, Native::ReleaseOrNothing),
        (
            "redis.call('pexpire', KEYS[1], ARGV[2])",
            Native::ExpireMillis,
            Native::ExpireOrNothing(Time::Millis),
        ),
        (
            "redis.call('expire', KEYS[1], ARGV[2])",
            Native::ExpireSeconds,
            Native::ExpireOrNothing(Time::Seconds),
        ),
    ];
    let looks = ["if redis.call('get', KEYS[1])", "local held = redis.call('get', KEYS[1]) if held"];
    for (call, or_zero, or_nothing) in held {
        for look in looks {
            // Of a key that is there, each of these calls answers 1.
            for does in [format!("return {call}"), format!("{call} return 1")] {
                let text = format!("{look} == ARGV[1] then {does}");
                texts.push((or_zero, format!("{text} else return 0 end")));
                texts.push((or_zero, format!("{text} end return 0")));
                texts.push((or_nothing, format!("{text} end")));
            }
        }
    }
    type Counting = fn(bool) -> Native;
    let counts: [(&str, Counting); 3] = [
        ("redis.call('expire', KEYS[1], ARGV[1])", |tells| Native::Count { time: Time::Seconds, tells }),
        ("redis.call('pexpire', KEYS[1], ARGV[1])", |tells| Native::Count { time: Time::Millis, tells }),
        ("redis.call('expire', KEYS[1], 1)", |tells| Native::CountForSecond { tells }),
    ];
    for (call, native) in counts {
        for declared in ["local count", "local count count"] {
            for first in ["count == 1", "tonumber(count) == 1"] {
                let text = format!("{declared} = redis.call('incr', KEYS[1]) if {first} then {call} end");
                texts.push((native(true), format!("{text} return count")));
                texts.push((native(false), text));
            }
        }
    }
    texts
}

/// Scripts by the SHA-1 of their text as [`canonical`] has it.
static BY_CANONICAL: LazyLock<BTreeMap<String, Native>> = LazyLock::new(|| {
    let texts = TEXTS.iter().map(|(native, text)| (sha1(&canonical(text.as_bytes())), *native));
    let everyday = everyday().into_iter().map(|(native, text)| (sha1(&canonical(text.as_bytes())), native));
    let laid_out = LAID_OUT.iter().map(|(digest, native)| ((*digest).to_owned(), *native));
    texts.chain(everyday).chain(laid_out).collect()
});

static BY_DIGEST: LazyLock<BTreeMap<String, Native>> = LazyLock::new(|| {
    let texts = TEXTS.iter().map(|(native, text)| (sha1(text.as_bytes()), *native));
    texts.chain(DIGESTS.iter().map(|(digest, native)| ((*digest).to_owned(), *native))).collect()
});

/// The scripts that this node was sent, by their SHA-1: known ones only.
#[derive(Debug, Default)]
pub struct Scripts {
    learned: BTreeMap<String, Native>,
}

impl Scripts {
    /// The script of this text, which is remembered.
    fn learn(&mut self, text: &[u8]) -> Result<(String, Native), Complaint> {
        let digest = sha1(text);
        let native = self.known(text, &digest).ok_or(Complaint::text(
            "ERR this script is not known here: there is no interpreter, by design, only scripts of \
             well-known libraries are executed; use MULTI/EXEC with WATCH",
        ))?;
        if self.learned.len() >= LEARNED_MAX && !self.learned.contains_key(&digest) {
            // Whoever misses it sends it again.
            self.learned.pop_first();
        }
        self.learned.insert(digest.clone(), native);
        Ok((digest, native))
    }

    /// The commands that a request calls beside its own: those of a known script.
    pub(crate) fn calls(&self, spec: &Spec, args: Args<'_>) -> &'static [&'static str] {
        let native = match spec.name {
            "eval" => self.known(args.at(1), &sha1(args.at(1))),
            "evalsha" => self.find(args.at(1)),
            _ => None,
        };
        native.map_or(&[], Native::calls)
    }

    /// Whether a request may make data grow: it may itself, or is a known script whose first write may. What a script has begun with
    /// another write it ends, as in Redis.
    pub(crate) fn grows(&self, spec: &Spec, args: Args<'_>) -> bool {
        let calls = || self.calls(spec, args).iter().filter_map(|call| table::by_name(call.as_bytes()));
        let first = || calls().find(|call| call.is(flag::WRITE));
        spec.is(flag::DENYOOM) || first().is_some_and(|call| call.is(flag::DENYOOM))
    }

    fn find(&self, digest: &[u8]) -> Option<Native> {
        let digest = std::str::from_utf8(digest).ok()?.to_ascii_lowercase();
        self.by_digest(&digest)
    }

    fn by_digest(&self, digest: &str) -> Option<Native> {
        self.learned.get(digest).or_else(|| BY_DIGEST.get(digest)).copied()
    }

    /// What the script of this text and digest does, if it is known.
    fn known(&self, text: &[u8], digest: &str) -> Option<Native> {
        let laid_out =
            || (text.len() <= TEXT_MAX).then(|| BY_CANONICAL.get(&sha1(&canonical(text))).copied()).flatten();
        self.by_digest(digest).or_else(laid_out)
    }
}

/// `EVAL script numkeys [key ...] [arg ...]`
pub(crate) fn eval(args: Args<'_>, given: &mut Given<'_>) -> Understood {
    let keys = keys(args)?;
    let (_, native) = given.scripts.learn(args.at(1))?;
    plan(native, keys, args, given)
}

/// `EVALSHA sha1 numkeys [key ...] [arg ...]`
pub(crate) fn evalsha(args: Args<'_>, given: &mut Given<'_>) -> Understood {
    let keys = keys(args)?;
    let native = given.scripts.find(args.at(1));
    let native = native.ok_or(Complaint::text("NOSCRIPT No matching script. Please use EVAL."))?;
    plan(native, keys, args, given)
}

/// How many keys there are.
fn keys(args: Args<'_>) -> Result<usize, Complaint> {
    let count = number(args.at(2))?;
    match usize::try_from(count) {
        Err(_) => Err(Complaint::text("ERR Number of keys can't be negative")),
        Ok(count) if count > args.len() - 3 => {
            Err(Complaint::text("ERR Number of keys can't be greater than number of args"))
        }
        Ok(count) => Ok(count),
    }
}

fn plan(native: Native, keys: usize, args: Args<'_>, given: &mut Given<'_>) -> Understood {
    let (its_keys, wanted) = match native {
        Native::Release | Native::ReleaseOrMissing | Native::ReleaseOrNothing | Native::ReleaseAll => (1, 1),
        Native::ExpireMillis | Native::Renew | Native::ExpireSeconds | Native::ExpireOrNothing(_) => (1, 2),
        Native::ExtendBy | Native::ExtendTo | Native::RenewAll | Native::LockAll | Native::Lock => (1, 2),
        Native::AddFor => (1, 2),
        Native::Extend | Native::SweepBindings => (1, 3),
        Native::RefreshBinding => (2, 3),
        Native::ChordPart => (6, 8),
        Native::ChordExtend => (2, 2),
        Native::ChordFinish => (5, 2),
        Native::AcquireOrRefresh => (1, 2),
        Native::EnqueueOnce => (2, 3),
        Native::ScheduleOnce => (3, 4),
        Native::EmptyQueue | Native::EmptyQueueAndResults => (1, 0),
        Native::Increment | Native::Count { .. } | Native::CountAnew => (1, 1),
        Native::Add | Native::CountWithin => (1, 2),
        Native::CountForSecond { .. } | Native::Counted => (1, 0),
        Native::Looks(look) => look.takes(),
    };
    let several = matches!(native, Native::ReleaseAll | Native::RenewAll | Native::LockAll);
    // Who names more keys than a script looks at names those that others of its library do.
    let more = (several || matches!(native, Native::Looks(_))) && keys > its_keys;
    if keys != its_keys && !more || args.len() < 3 + keys + wanted {
        let text = format!("ERR this script takes {its_keys} keys and {wanted} arguments");
        return Err(Complaint::text(text));
    }
    // What follows the first key is the second, or the first argument, where there is one.
    let key = blob(args.at(3));
    let value = if args.len() > 4 { blob(args.at(4)) } else { Blob::default() };
    let arg = |place: usize| args.at(3 + keys + place);
    let deadline = |place: usize, time: Time, command: &'static str| {
        let units = integer(arg(place)).ok_or(Complaint::NotInteger)?;
        // SET takes no time that is over.
        let taken = units > 0 || !matches!(command, "set" | "setex");
        let deadline = taken.then(|| time.deadline(units, given.stamp)).flatten();
        deadline.ok_or(Complaint::Expire(command))
    };
    let all = |watched: &[(Blob, u64)], operations: Vec<Operation>, shape| {
        let operation = Operation::Transaction { watched: watched.into(), operations: operations.into() };
        Ok(Plan { operation, shape })
    };
    let counts = |by: i64, until: Stamp, shape| {
        let (key, value, deadline) = (key.clone(), Blob::from("1"), DeadlineChange::To(until));
        let add = Operation::IncrBy { key: key.clone(), by };
        all(&[], vec![add, Operation::ExpireIf { key, value, deadline }], shape)
    };
    let told = |tells: bool| if tells { Shape::First } else { Shape::Nothing };
    let change = match native {
        Native::EmptyQueue => return Ok(emptying::plan(key, JOB)),
        Native::EmptyQueueAndResults => return Ok(emptying::plan(key, JOB_AND_RESULTS)),
        Native::EnqueueOnce | Native::ScheduleOnce => return once(native, args, given),
        Native::Looks(look) => return looking::plan(look, keys, args, given),
        Native::Increment => return Ok(Operation::IncrBy { key, by: number(args.at(4))? }.into()),
        Native::ChordPart | Native::ChordExtend | Native::ChordFinish => {
            let chord = Arc::new(chord(native, args, given)?);
            return Ok(Operation::ChordStep { chord }.into());
        }
        Native::Count { time, tells } => {
            let command = if time == Time::Millis { "pexpire" } else { "expire" };
            return counts(1, deadline(0, time, command)?, told(tells));
        }
        Native::CountForSecond { tells } => {
            let until = Time::Seconds.deadline(1, given.stamp).ok_or(Complaint::Expire("expire"))?;
            return counts(1, until, told(tells));
        }
        Native::Add => return counts(number(arg(0))?, deadline(1, Time::Millis, "pexpire")?, Shape::First),
        Native::CountWithin => {
            let until = deadline(1, Time::Seconds, "set")?;
            return Ok(Operation::CountUntil { key, by: number(arg(0))?, until, anew: false }.into());
        }
        Native::CountAnew => {
            let until = deadline(0, Time::Millis, "set")?;
            return Ok(Operation::CountUntil { key, by: 1, until, anew: true }.into());
        }
        Native::Counted => {
            let left = Operation::Ttl { key: key.clone(), unit: TtlUnit::Millis, absolute: false };
            return all(&[], vec![Operation::Get { key }, left], Shape::Parts);
        }
        Native::ReleaseAll | Native::LockAll => {
            let value = blob(arg(0));
            let locks = (0..keys).map(|place| blob(args.at(3 + place)));
            if native == Native::ReleaseAll {
                let releases = locks.map(|key| Operation::DelIf { key, value: value.clone() });
                return all(&[], releases.collect(), Shape::Sum);
            }
            let expiry = Expiry::At(deadline(1, Time::Millis, "set")?);
            // The version of what is not there.
            let watched: Vec<(Blob, u64)> = locks.clone().map(|key| (key, 0)).collect();
            let condition = Condition::Always;
            let sets =
                locks.map(|key| Operation::Set { key, value: value.clone(), condition, expiry, get: false });
            return all(&watched, sets.collect(), Shape::Once(keys as i64));
        }
        Native::RenewAll if keys > 1 => return looking::plan(Look::RenewAll, keys, args, given),
        Native::Lock => {
            let millis = integer(arg(1)).ok_or(Complaint::NotInteger)?;
            let until = (millis > 0).then(|| deadline(1, Time::Millis, "pexpire")).transpose()?;
            let (condition, expiry) = (Condition::IfAbsent, until.map_or(Expiry::Clear, Expiry::At));
            let operation = Operation::Set { key, value, condition, expiry, get: false };
            return Ok(Plan { operation, shape: Shape::Yes });
        }
        Native::AddFor => {
            let expiry = Expiry::At(deadline(1, Time::Seconds, "setex")?);
            let condition = Condition::IfAbsent;
            return Ok(Operation::Set { key, value, condition, expiry, get: false }.into());
        }
        Native::ReleaseOrNothing => {
            return Ok(Plan { operation: Operation::DelIf { key, value }, shape: Shape::IfAny(Ok(1)) });
        }
        Native::ExpireOrNothing(time) => {
            let command = if time == Time::Millis { "pexpire" } else { "expire" };
            let deadline = DeadlineChange::To(deadline(1, time, command)?);
            let operation = Operation::ExpireIf { key, value, deadline };
            return Ok(Plan { operation, shape: Shape::IfAny(Ok(1)) });
        }
        Native::Release => return Ok(Operation::DelIf { key, value }.into()),
        Native::ReleaseOrMissing => {
            let operations =
                [Operation::Exists { keys: [key.clone()].into() }, Operation::DelIf { key, value }];
            let operation = Operation::Transaction { watched: [].into(), operations: operations.into() };
            return Ok(Plan { operation, shape: Shape::Released });
        }
        Native::SweepBindings => {
            let operation = Operation::Exists { keys: [key].into() };
            return Ok(Plan { operation, shape: Shape::Number(0) });
        }
        Native::RefreshBinding => {
            let millis = integer(args.at(7)).ok_or(Complaint::NotInteger)?;
            let now = given.stamp.as_nanos() / 1_000_000;
            let score = Score::new(now as f64 + millis as f64).ok_or(Complaint::NotFloat)?;
            let flags = ZAddFlags { scores: ScoreCondition::Greater, ..ZAddFlags::default() };
            let operations = [
                Operation::SAdd { key, members: [blob(args.at(5))].into() },
                Operation::ZAdd { key: value, flags, members: [(score, blob(args.at(6)))].into() },
            ];
            let operation = Operation::Transaction { watched: [].into(), operations: operations.into() };
            return Ok(Plan { operation, shape: Shape::Nothing });
        }
        Native::AcquireOrRefresh => {
            let at = deadline(1, Time::Seconds, "set")?;
            let (condition, expiry) = (Condition::IfAbsent, Expiry::At(at));
            let operations = [
                Operation::Set { key: key.clone(), value: value.clone(), condition, expiry, get: false },
                Operation::ExpireIf { key, value, deadline: DeadlineChange::To(at) },
            ];
            let operation = Operation::Transaction { watched: [].into(), operations: operations.into() };
            return Ok(Plan { operation, shape: Shape::Acquired });
        }
        Native::Extend if args.at(6) == b"0" => {
            DeadlineChange::MoveBy(integer(args.at(5)).ok_or(Complaint::NotInteger)?)
        }
        Native::ExtendBy => DeadlineChange::MoveBy(integer(arg(1)).ok_or(Complaint::NotInteger)?),
        Native::Extend | Native::ExtendTo => DeadlineChange::MoveTo(deadline(1, Time::Millis, "pexpire")?),
        Native::ExpireMillis => DeadlineChange::To(deadline(1, Time::Millis, "pexpire")?),
        Native::Renew | Native::RenewAll => DeadlineChange::To(deadline(1, Time::Millis, "set")?),
        Native::ExpireSeconds => DeadlineChange::To(deadline(1, Time::Seconds, "expire")?),
    };
    Ok(Operation::ExpireIf { key, value, deadline: change }.into())
}

/// A job of rq that is to be there once: what it is, for how long, and where it waits.
fn once(native: Native, args: Args<'_>, given: &Given<'_>) -> Understood {
    let at = |place: usize| blob(args.at(3 + place));
    let job = at(0);
    let (id, ttl, fields) = match native {
        Native::EnqueueOnce => (at(2), args.at(3 + 4), 3 + 5),
        _ => (at(3), args.at(3 + 4), 3 + 7),
    };
    if (args.len() - fields) % 2 == 1 {
        return Err(Complaint::Arity("hset"));
    }
    let mut operations = Vec::new();
    let pairs = pairs(args, fields);
    if !pairs.is_empty() {
        operations.push(Operation::HSet { key: job.clone(), pairs });
    }
    if let Some(seconds) = integer(ttl).filter(|seconds| *seconds > 0) {
        let at = Time::Seconds.deadline(seconds, given.stamp).ok_or(Complaint::Expire("expire"))?;
        operations.push(Operation::ExpireAt { key: job.clone(), at, condition: ExpiryCondition::Always });
    }
    if native == Native::ScheduleOnce {
        let due = Score::read_meant(args.at(3 + 5)).ok_or(Complaint::NotFloat)?;
        let flags = ZAddFlags::default();
        operations.push(Operation::ZAdd { key: at(1), flags, members: [(due, id)].into() });
        operations.push(Operation::SAdd { key: at(2), members: [at(6)].into() });
    } else {
        let side = match args.at(3 + 3) {
            b"L" => Some(Side::Left),
            b"R" => Some(Side::Right),
            _ => None,
        };
        operations.extend(side.map(|side| Operation::Push {
            key: at(1),
            values: [id].into(),
            side,
            only_if_exists: false,
        }));
    }
    // The version of what is not there.
    let watched = [(job, 0)].into();
    Ok(Plan {
        operation: Operation::Transaction { watched, operations: operations.into() },
        shape: Shape::Once(1),
    })
}

/// A step of a chord: its keys from the fourth string on, and its arguments behind them.
fn chord(native: Native, args: Args<'_>, given: &Given<'_>) -> Result<Chord, Complaint> {
    let at = |place: usize| blob(args.at(3 + place));
    let seconds = |place: usize| integer(args.at(3 + place)).ok_or(Complaint::NotInteger);
    let deadline =
        |seconds: i64| Time::Seconds.deadline(seconds, given.stamp).ok_or(Complaint::Expire("expire"));
    let later = |seconds: i64| (seconds > 0).then(|| deadline(seconds)).transpose();
    // A claim is made by SET, which takes no time that is over.
    let claimed = |seconds: i64| later(seconds)?.ok_or(Complaint::Expire("set"));
    Ok(match native {
        Native::ChordExtend => {
            Chord::Extend { claim: at(0), size: at(1), token: at(2), until: claimed(seconds(3)?)? }
        }
        Native::ChordFinish => Chord::Finish {
            claim: at(0),
            keys: (1..5).map(at).collect(),
            token: at(5),
            done_until: later(seconds(6)?)?,
        },
        _ => {
            let place = args.at(3 + 9);
            let ordered = args.at(3 + 8) == b"1";
            let score = ordered.then(|| Score::read_meant(place).ok_or(Complaint::NotFloat)).transpose()?;
            let expires = later(seconds(10)?)?;
            Chord::Part {
                results: at(0),
                difference: at(1),
                size: at(2),
                recorded: at(3),
                group: at(4),
                claim: at(5),
                member: Blob::from([args.at(3 + 6), b":", place].concat()),
                value: at(7),
                score,
                expires,
                group_expires: later(seconds(11)?)?,
                claimed_until: claimed(seconds(12)?)?,
                token: at(13),
            }
        }
    })
}

/// `SCRIPT LOAD script`
pub(crate) fn load(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Complaint> {
    let (digest, _) = context.hub.scripts.learn(args.at(2))?;
    reply.bulk(digest.as_bytes());
    Ok(())
}

/// `SCRIPT EXISTS sha1 ...`
pub(crate) fn exists(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Complaint> {
    reply.array(args.len() - 2);
    for digest in args.from(2).iter() {
        reply.integer(i64::from(context.hub.scripts.find(digest).is_some()));
    }
    Ok(())
}

/// `SCRIPT FLUSH [ASYNC|SYNC]`
pub(crate) fn flush(
    _: &mut State,
    args: Args<'_>,
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Complaint> {
    match args.len() {
        2 => {}
        3 if super::args::is(args.at(2), "ASYNC") || super::args::is(args.at(2), "SYNC") => {}
        _ => return Err(Complaint::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
    }
    context.hub.scripts.learned.clear();
    reply.ok();
    Ok(())
}

/// `SCRIPT KILL`: a known script is one operation, which nothing can stop.
pub(crate) fn kill(
    _: &mut State,
    _: Args<'_>,
    _: &mut Context<'_>,
    _: &mut Reply<'_>,
) -> Result<(), Complaint> {
    Err(Complaint::text("NOTBUSY No scripts in execution right now."))
}

/// Names beyond these stay as they are: no known script has so many.
const NAMES_MAX: usize = 32;

/// A text without what does not matter: blanks but for one between words, comments, semicolons, the kind of quotes, the letter
/// case within them (in known scripts these are names of commands), and how local variables are named: they are numbered as
/// they are declared.
fn canonical(text: &[u8]) -> Vec<u8> {
    /// Whether names follow that are declared.
    #[derive(Copy, Clone, PartialEq)]
    enum Declares {
        Nothing,
        This,
        /// If a comma follows.
        Another,
    }
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut result: Vec<u8> = Vec::with_capacity(text.len());
    let mut names: Vec<&[u8]> = Vec::new();
    let mut declares = Declares::Nothing;
    let mut rest = text;
    while let [byte, behind @ ..] = rest {
        if byte.is_ascii_whitespace() || *byte == b';' {
            rest = behind;
        } else if let Some(behind) = behind_comment(rest) {
            rest = behind;
        } else if word(byte) {
            let length = rest.iter().position(|byte| !word(byte)).unwrap_or(rest.len());
            let (name, behind) = rest.split_at(length);
            rest = behind;
            if result.last().is_some_and(word) {
                result.push(b' ');
            }
            let declared = declares == Declares::This;
            let mut place = names.iter().position(|known| *known == name);
            if place.is_none() && declared && names.len() < NAMES_MAX {
                place = Some(names.len());
                names.push(name);
            }
            match place {
                Some(place) => result.extend(format!("${place}").bytes()),
                None => result.extend(name),
            }
            declares = match name {
                _ if declared => Declares::Another,
                b"local" => Declares::This,
                _ => Declares::Nothing,
            };
        } else {
            let lists = declares == Declares::Another && *byte == b',';
            declares = if lists { Declares::This } else { Declares::Nothing };
            rest = behind;
            if !matches!(byte, b'"' | b'\'') {
                result.push(*byte);
                continue;
            }
            result.push(b'"');
            while let [inner, behind @ ..] = rest {
                rest = behind;
                match (inner, behind) {
                    (b'\\', [escaped, behind @ ..]) => {
                        rest = behind;
                        result.extend([b'\\', *escaped]);
                    }
                    _ if inner == byte => {
                        result.push(b'"');
                        break;
                    }
                    (b'"', _) => result.extend(b"\\\""),
                    _ => result.push(inner.to_ascii_lowercase()),
                }
            }
        }
    }
    result
}

/// What follows a comment that a text begins with.
fn behind_comment(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b"--")?;
    let level = text.get(1..).unwrap_or_default().iter().take_while(|byte| **byte == b'=').count();
    if text.first() == Some(&b'[') && text.get(1 + level) == Some(&b'[') {
        let end = [&b"]"[..], &vec![b'='; level], b"]"].concat();
        // One without end is an error of the script.
        let at = text.windows(end.len()).position(|window| *window == *end)?;
        return text.get(at + end.len()..);
    }
    let end = text.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(text.len());
    text.get(end..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_call_are_commands() {
        for native in BY_DIGEST.values().chain(BY_CANONICAL.values()) {
            let known = |call: &&str| crate::redis::table::by_name(call.as_bytes()).is_some();
            assert!(native.calls().iter().all(known), "{native:?}");
        }
    }

    /// Deleting a lock, and having it expire later, is for who has it also where a node is full.
    #[test]
    fn scripts_may_make_data_grow_by_their_first_write() {
        let scripts = Scripts::default();
        for (line, grows) in [
            ("SET k v", true),
            ("GET k", false),
            ("DEL k", false),
            ("EXPIRE k 1", false),
            ("EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock me", false),
            ("EVALSHA 1CAC51482ACF5858DA00F6D685D68F886CD6B6B2 1 lock me 1000", false),
            ("EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 2 lock signal me 1000", false),
            ("EVALSHA 4227fa753143e6f652e2e185d254964b3a7413a5 1 lock me 1", true),
            ("EVALSHA ef7a9e205fbaf46bf959e1522ff796622fc676c7 2 set zset member name 1", true),
            ("EVAL not-known 0", false),
        ] {
            let mut kept = crate::redis::request::Kept::default();
            kept.add(line.split(' ').map(str::as_bytes));
            let args = kept.at(0);
            assert_eq!(scripts.grows(table::find(args).unwrap(), args), grows, "{line}");
        }
    }

    /// The digests that redis-py sends before it has ever sent a text.
    #[test]
    fn scripts_of_redis_py_are_known_by_their_digests() {
        let scripts = Scripts::default();
        for (digest, native) in [
            ("c3f8721cbb97f72bc19e972846bd7aaf91901658", Native::Release),
            ("a4e8783852e6b949f9ef3a97212805108459a890", Native::Extend),
            // A digest may come in capitals.
            ("1CAC51482ACF5858DA00F6D685D68F886CD6B6B2", Native::ExpireMillis),
        ] {
            assert_eq!(scripts.find(digest.as_bytes()), Some(native));
        }
        assert_eq!(scripts.find(&[0xff; 40]), None);
    }

    /// SET refuses such a time, and has done nothing; EXPIRE lets a key go.
    #[test]
    fn no_lock_is_taken_for_a_time_that_is_over() {
        let understood = |line: &str| {
            let (mut random, mut scripts) = (isochrone_core::Random::seeded(1), Scripts::default());
            let mut given = Given {
                selected: None,
                stamp: isochrone_core::Stamp::from_nanos(1_700_000_000_000_000_000),
                random: &mut random,
                scripts: &mut scripts,
                bulk_max: 1 << 20,
                elements_max: 1 << 20,
            };
            let mut kept = crate::redis::request::Kept::default();
            kept.add(std::iter::once("evalsha").chain(line.split(' ')).map(str::as_bytes));
            evalsha(kept.at(0), &mut given).err()
        };
        let (_, renew) = TEXTS.iter().find(|(native, _)| *native == Native::Renew).unwrap();
        let renew = sha1(renew.as_bytes());
        for (digest, line) in [
            ("4227fa753143e6f652e2e185d254964b3a7413a5", "1 lock me {}"),
            ("dc87180d6bcb7f73c7275eb0fe7a70baf0a8b7c7", "2 claim size me {}"),
            ("b8fc152c83a7e634103ccebd49dcd3146a8f4366", "6 j t s d g c task value 1 0 0 0 {} token"),
            (renew.as_str(), "1 lock me {}"),
        ] {
            for (units, refused) in [("1", false), ("0", true), ("-1", true)] {
                let complaint = understood(&format!("{digest} {}", line.replace("{}", units)));
                let expected = refused.then_some(Complaint::Expire("set"));
                assert_eq!(complaint, expected, "{line} of {units}");
            }
        }
        let add = "a08c9c69b7c07ae2485190873b90d128a23e502d 1 key value";
        assert_eq!(understood(&format!("{add} 0")), Some(Complaint::Expire("setex")));
        assert_eq!(understood("1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock me 0"), None);
        assert_eq!(understood("59d7aab41242d82196947ba8926cab712416da4f 5 c j t s d me 0"), None);
    }

    #[test]
    fn texts_are_known_as_libraries_send_them() {
        for (native, text) in [
            (
                Native::LockAll,
                "\n\t-- Return 0 if an entry already exists.\n\tfor i, key in ipairs(KEYS) do\n\t\tif redis.call(\"exists\", key) == 1 then\n\t\t\treturn 0\n\t\tend\n\tend\n\n\t-- Create an entry for each provided key.\n\tfor i, key in ipairs(KEYS) do\n\t\tredis.call(\"set\", key, ARGV[1], \"PX\", ARGV[2])\n\tend\n\n\t-- Return the number of entries added.\n\treturn #KEYS\n",
            ),
            (
                Native::ReleaseAll,
                "\n\tlocal count = 0\n\tfor i, key in ipairs(KEYS) do\n\t\t-- Only remove entries for *this* lock value.\n\t\tif redis.call(\"get\", key) == ARGV[1] then\n\t\t\tredis.pcall(\"del\", key)\n\t\t\tcount = count + 1\n\t\tend\n\tend\n\n\t-- Return the number of entries removed.\n\treturn count\n",
            ),
            (
                Native::RenewAll,
                "\n  -- Return 0 if an entry exists with a *different* lock value.\n  for i, key in ipairs(KEYS) do\n    if redis.call(\"get\", key) ~= ARGV[1] then\n      return 0\n    end\n  end\n\n  -- Update the entry for each provided key.\n  for i, key in ipairs(KEYS) do\n    redis.call(\"set\", key, ARGV[1], \"PX\", ARGV[2])\n  end\n\n  -- Return the number of entries updated.\n  return #KEYS\n",
            ),
            (
                Native::CountWithin,
                "redis.call('set', KEYS[1], 0, 'EX', ARGV[2], 'NX') local consumed = redis.call('incrby', KEYS[1], ARGV[1]) local ttl = redis.call('pttl', KEYS[1]) if ttl == -1 then   redis.call('expire', KEYS[1], ARGV[2])   ttl = 1000 * ARGV[2] end return {consumed, ttl} ",
            ),
            (
                Native::CountAnew,
                "local windowMs = tonumber(ARGV[1])\nlocal timeToExpire = redis.call(\"PTTL\", KEYS[1])\nif timeToExpire <= 0 then\nredis.call(\"SET\", KEYS[1], 1, \"PX\", windowMs)\nreturn { 1, windowMs }\nend\nlocal totalHits = redis.call(\"INCR\", KEYS[1])        \nreturn { totalHits, timeToExpire }",
            ),
            (
                Native::Counted,
                "local totalHits = redis.call(\"GET\", KEYS[1])\nlocal timeToExpire = redis.call(\"PTTL\", KEYS[1])\nreturn { totalHits, timeToExpire }",
            ),
            (
                Native::Release,
                "\n  local key = KEYS[1]\n  local identifier = ARGV[1]\n\n  if redis.call('get', key) == identifier then\n    return redis.call('del', key)\n  end\n\n  return 0\n  ",
            ),
            (
                Native::ExpireMillis,
                "\n  local key = KEYS[1]\n  local identifier = ARGV[1]\n  local lockTimeout = ARGV[2]\n\n  local value = redis.call('get', key)\n\n  if value == identifier then\n    redis.call('pexpire', key, lockTimeout)\n    return 1\n  end\n\n  return 0\n  ",
            ),
            (
                Native::Release,
                "--\n-- Delete a key if content is equal\n--\n-- KEYS[1]   - key\n-- KEYS[2]   - content\nlocal key     = KEYS[1]\nlocal content = ARGV[1]\n\nlocal value = redis.call('get', key)\n\nif value == content then\n  return redis.call('del', key);\nend\n\nreturn 0\n",
            ),
            (
                Native::ExtendTo,
                "\n    local token = redis.call('get', KEYS[1])\n    if not token or token ~= ARGV[1] then\n        return 0\n    end\n    local expiration = redis.call('pttl', KEYS[1])\n    if not expiration then\n        expiration = 0\n    end\n    if expiration < 0 then\n        return 0\n    end\n    redis.call('pexpire', KEYS[1], ARGV[2])\n    return 1\n",
            ),
            (
                Native::Release,
                "-- KEYS[1] - lock name\n-- ARGS[1] - token\n-- return 1 if the lock was released, otherwise 0\n\nlocal token = redis.call('get', KEYS[1])\nif not token or token ~= ARGV[1] then\n    return 0\nend\nredis.call('del', KEYS[1])\nreturn 1\n",
            ),
            (
                Native::ExtendBy,
                "-- KEYS[1] - lock name\n-- ARGS[1] - token\n-- ARGS[2] - additional milliseconds\n-- return 1 if the locks time was extended, otherwise 0\n\nlocal token = redis.call('get', KEYS[1])\nif not token or token ~= ARGV[1] then\n    return 0\nend\nlocal expiration = redis.call('pttl', KEYS[1])\nif not expiration then\n    expiration = 0\nend\nif expiration < 0 then\n    return 0\nend\nredis.call('pexpire', KEYS[1], expiration + ARGV[2])\nreturn 1\n",
            ),
            (
                Native::Lock,
                "local key = KEYS[1]\nlocal lock_id = ARGV[1]\nlocal ttl = tonumber(ARGV[2])\nlocal ret = redis.call('setnx', key, lock_id)\nif ret == 1 and ttl > 0 then\n  redis.call('pexpire', key, ttl)\nend\nreturn ret\n",
            ),
            (
                Native::Looks(Look::UnlockAndTell),
                "local key = KEYS[1]\nlocal event_key = KEYS[2]\nlocal lock_id = ARGV[1]\nif redis.call(\"get\", key) == lock_id then\n  redis.call(\"lpush\", event_key, 1)\n  redis.call(\"ltrim\", event_key, 0, 0) -- Trim all but the first item.\n  return redis.call(\"del\", key)\nelse\n  return 0\nend\n",
            ),
            (
                Native::Add,
                "\nlocal current_count = redis.call(\"INCRBY\", KEYS[1], ARGV[1])\nif current_count == 1 then\n    redis.call(\"PEXPIRE\", KEYS[1], ARGV[2])\nend\nreturn current_count\n",
            ),
        ] {
            assert_eq!(
                Scripts::default().learn(text.as_bytes()).map(|(_, native)| native),
                Ok(native),
                "{text}"
            );
        }
    }

    #[test]
    fn texts_are_known_that_many_write() {
        for (native, text) in [
            (
                Native::ReleaseOrNothing,
                "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) end",
            ),
            (
                Native::Release,
                "if redis.call(\"get\",KEYS[1]) == ARGV[1] then\n  return redis.call(\"del\",KEYS[1]) -- it was ours\nend\nreturn 0",
            ),
            (
                Native::Release,
                "local token = redis.call(\"GET\", KEYS[1]);\nif token == ARGV[1] then redis.call(\"DEL\", KEYS[1]); return 1; end;\nreturn 0;",
            ),
            (
                Native::ExpireOrNothing(Time::Millis),
                "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"pexpire\",KEYS[1],ARGV[2]) end",
            ),
            (
                Native::ExpireMillis,
                "--[[ extends --]] if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"pexpire\",KEYS[1],ARGV[2]) end return 0",
            ),
            (
                Native::ExpireSeconds,
                "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"expire\",KEYS[1],ARGV[2]) end return 0",
            ),
            (
                Native::CountForSecond { tells: false },
                "local current\ncurrent = redis.call(\"incr\",KEYS[1])\nif current == 1 then\n    redis.call(\"expire\",KEYS[1],1)\nend",
            ),
            (
                Native::CountForSecond { tells: false },
                "local current\ncurrent = redis.call(\"incr\",KEYS[1])\nif tonumber(current) == 1 then\n    redis.call(\"expire\",KEYS[1],1)\nend",
            ),
            (
                Native::CountForSecond { tells: true },
                "local c = redis.call(\"incr\",KEYS[1]) if tonumber(c) == 1 then redis.call(\"expire\",KEYS[1],1) end return c",
            ),
            (
                Native::Count { time: Time::Seconds, tells: true },
                "local hits = redis.call(\"INCR\", KEYS[1])\nif hits == 1 then\n  redis.call(\"EXPIRE\", KEYS[1], ARGV[1])\nend\nreturn hits",
            ),
            (
                Native::Count { time: Time::Millis, tells: false },
                "local n = redis.call(\"INCR\", KEYS[1]) if n == 1 then redis.call(\"PEXPIRE\", KEYS[1], ARGV[1]) end",
            ),
        ] {
            assert_eq!(
                Scripts::default().learn(text.as_bytes()).map(|(_, native)| native),
                Ok(native),
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_keeps_what_matters() {
        for (text, expected) in [
            ("return 'a -- b' -- c\nend", "return\"a -- b\"end"),
            ("return 'it\\'s -- ' .. x --", "return\"it\\'s -- \"..x"),
            ("a --[[ b\n]] c --[==[ ]] ]==] d -- e\rf", "a c d f"),
            ("--[[ without end", "--[[without end"),
            ("a - - b", "a--b"),
            ("local a, b = 1 local c c = a.call b = d", "local $0,$1=1 local $2 $2=$0.call $1=d"),
            ("a = 1 local a = a + 'a'", "a=1 local $0=$0+\"a\""),
        ] {
            assert_eq!(String::from_utf8(canonical(text.as_bytes())).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_script_is_known_however_it_is_laid_out() {
        let mut scripts = Scripts::default();
        let text = b"if redis.call('GET',KEYS[1])==ARGV[1]\n then\treturn redis.call('DEL',KEYS[1]); else return 0 end;";
        let (digest, native) = scripts.learn(text).unwrap();
        assert_eq!((native, scripts.find(digest.as_bytes())), (Native::Release, Some(Native::Release)));
        for other in [
            "return 1",
            "if redis.call('get',KEYS[2])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('d el',KEYS[1]) else return 0 end",
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 e nd",
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) --else return 0 end",
            "local a = redis.call('get',KEYS[1]) if b == ARGV[1] then return redis.call('del',KEYS[1]) end",
            "",
        ] {
            assert!(scripts.learn(other.as_bytes()).is_err(), "{other}");
        }
    }
}
