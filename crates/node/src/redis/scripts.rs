//! Scripts that well-known libraries send, as operations. There is no interpreter, on purpose: a script is
//! known or it is refused.
//!
//! A script is known by its text, whatever its blanks, quotes and letter case of commands, and by the
//! SHA-1 of a text that was published with its library or has been sent to this node before.

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
use super::spec::{Given, Spec};
use crate::gateway::Context;
use isochrone_core::Blob;
use isochrone_core::command::{
    Chord, Condition, DeadlineChange, Expiry, ExpiryCondition, Operation, Score, ScoreCondition, Side,
    ZAddFlags,
};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// What a known script does.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Native {
    /// Deletes a lock that holds ARGV\[1\]: 1 or 0.
    Release,
    /// The same: -1 where there is no lock.
    ReleaseOrMissing,
    /// Moves the deadline of a lock that holds ARGV\[1\] and has one: by ARGV\[2\] milliseconds, or to that
    /// many from now where ARGV\[3\] is not "0".
    Extend,
    /// Sets the deadline of a lock that holds ARGV\[1\]: ARGV\[2\] milliseconds from now.
    ExpireMillis,
    /// The same, by setting what it holds again.
    Renew,
    /// The same in seconds.
    ExpireSeconds,
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
    /// Looks at its keys first.
    Looks(Look),
}

impl Native {
    /// The commands that the script calls, or may call: whoever may not run each of them may not run it.
    fn calls(self) -> &'static [&'static str] {
        match self {
            Native::Release | Native::ReleaseOrMissing => &["get", "del"],
            Native::Extend => &["get", "pttl", "pexpire"],
            Native::ExpireMillis => &["get", "pexpire"],
            Native::Renew => &["get", "set"],
            Native::ExpireSeconds => &["get", "expire"],
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
    ("69d6917b581f94b2a6f3b5f02690448c2f9c80e5", Native::Looks(Look::IncrementIfThere)),
    ("ad50e582fdd37266ca3c1e0e292944de0bdd26b4", Native::Increment),
    // limits 2.8 to 5.8, `limits/resources/redis/lua_scripts/incr_expire.lua`.
    ("bf12077f55316bcd91cb0bf13fe75a834ed20625", Native::Looks(Look::IncrementAndExpire)),
    // aiocache 0.11 and 0.12, `aiocache/backends/redis.py`.
    ("8566d96ef3b1a1e08de82205970592bbe49ec0ff", Native::Looks(Look::CompareAndSet)),
    // redsync 4 for Go, `scripts.go`, where it extends locks that are gone.
    ("63719198579dd67df3c84e5c3e12b4b0edf8cee8", Native::Looks(Look::TouchOrSet)),
    // pottery 3.0, `pottery/redlock.py`.
    ("c76f40668b25c4be7c7e4e8fc67c7940b862be5a", Native::Looks(Look::Remaining)),
    // redislock for Go, `redislock.go`.
    ("2a7eeb58bfd3bfd5e34ac2be357d77d7a0039f6a", Native::Looks(Look::RemainingOrMissing)),
    ("c13e317265e506ef73902a8cad4608c6d0590685", Native::Looks(Look::Obtain)),
    // Sidekiq 6.3 to 8, `lib/sidekiq/scheduled.rb`: by ZRANGEBYSCORE, and by ZRANGE.
    ("09d3b8d1b132e8ba020da1480821af62f5191afb", Native::Looks(Look::PopDue)),
    ("3e92f17326cc3c605cbf0860ace97c213f8e7280", Native::Looks(Look::PopDue)),
    // huey 2.4 to 3.5: `huey/storage.py`, and `huey/contrib/helpers.py`.
    ("a31dde668a3cb5b5b02fa91eb43e1d8179fdf998", Native::Looks(Look::PopAllDue)),
    ("d383f7f2272643c178702fb6b2a969f255579b55", Native::Looks(Look::PopAllDue)),
    ("9a6d6d7ae3062b8542faeaa6ea5b0805b0bab46a", Native::Looks(Look::TakePlace)),
    ("ec6bd6e8a5e14dfb97f88d32c167410b85625464", Native::Looks(Look::KeepPlace)),
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
];

/// Texts beyond these are not remembered by their SHA-1: there are few ways to write a known script.
const LEARNED_MAX: usize = 1024;
/// A longer text is no known script.
const TEXT_MAX: usize = 4096;

/// Scripts by the SHA-1 of their text as [`canonical`] has it.
static BY_CANONICAL: LazyLock<BTreeMap<String, Native>> = LazyLock::new(|| {
    let texts = TEXTS.iter().map(|(native, text)| (sha1(&canonical(text.as_bytes())), *native));
    texts.chain(LAID_OUT.iter().map(|(digest, native)| ((*digest).to_owned(), *native))).collect()
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
        Native::Release | Native::ReleaseOrMissing => (1, 1),
        Native::ExpireMillis | Native::Renew | Native::ExpireSeconds => (1, 2),
        Native::Extend | Native::SweepBindings => (1, 3),
        Native::RefreshBinding => (2, 3),
        Native::ChordPart => (6, 8),
        Native::ChordExtend => (2, 2),
        Native::ChordFinish => (5, 2),
        Native::AcquireOrRefresh => (1, 2),
        Native::EnqueueOnce => (2, 3),
        Native::ScheduleOnce => (3, 4),
        Native::EmptyQueue | Native::EmptyQueueAndResults => (1, 0),
        Native::Increment => (1, 1),
        Native::Looks(look) => look.takes(),
    };
    // Who names more keys than a script looks at names those that others of its library do.
    let more = matches!(native, Native::Looks(_)) && keys > its_keys;
    if keys != its_keys && !more || args.len() < 3 + keys + wanted {
        let text = format!("ERR this script takes {its_keys} keys and {wanted} arguments");
        return Err(Complaint::text(text));
    }
    // What follows the first key is the second, or the first argument, where there is one.
    let key = blob(args.at(3));
    let value = if args.len() > 4 { blob(args.at(4)) } else { Blob::default() };
    let deadline = |time: Time, command: &'static str| {
        let units = integer(args.at(5)).ok_or(Complaint::NotInteger)?;
        // SET takes no time that is over.
        let taken = units > 0 || command != "set";
        let deadline = taken.then(|| time.deadline(units, given.stamp)).flatten();
        deadline.ok_or(Complaint::Expire(command))
    };
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
            let at = deadline(Time::Seconds, "set")?;
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
        Native::Extend => DeadlineChange::MoveTo(deadline(Time::Millis, "pexpire")?),
        Native::ExpireMillis => DeadlineChange::To(deadline(Time::Millis, "pexpire")?),
        Native::Renew => DeadlineChange::To(deadline(Time::Millis, "set")?),
        Native::ExpireSeconds => DeadlineChange::To(deadline(Time::Seconds, "expire")?),
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
        shape: Shape::Once,
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

/// A text without what does not matter: blanks but for one between words, semicolons, the kind of quotes, the
/// letter case within them (in known scripts these are names of commands).
fn canonical(text: &[u8]) -> Vec<u8> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut result: Vec<u8> = Vec::with_capacity(text.len());
    let mut quote = None;
    let mut blank = false;
    for byte in text.iter().copied() {
        match quote {
            Some(end) if byte == end => {
                quote = None;
                result.push(b'"');
            }
            Some(_) => result.push(byte.to_ascii_lowercase()),
            None if byte.is_ascii_whitespace() || byte == b';' => blank = true,
            None => {
                if blank && word(byte) && result.last().is_some_and(|last| word(*last)) {
                    result.push(b' ');
                }
                blank = false;
                if byte == b'"' || byte == b'\'' {
                    quote = Some(byte);
                    result.push(b'"');
                } else {
                    result.push(byte);
                }
            }
        }
    }
    result
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
        assert_eq!(understood("1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock me 0"), None);
        assert_eq!(understood("59d7aab41242d82196947ba8926cab712416da4f 5 c j t s d me 0"), None);
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
            "",
        ] {
            assert!(scripts.learn(other.as_bytes()).is_err(), "{other}");
        }
    }
}
