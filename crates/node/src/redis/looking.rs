//! Scripts that look at their keys first, and write or do not by what they see.
//!
//! The first operation reads what the script looks at, and the versions of its keys; the second is a transaction that
//! watches these and does what follows. Where a key has changed in between, it is looked at again, so that the whole is as
//! if done at once. Who is far from the leader of keys that many change might look for ever; so counters are raised at
//! once, on the condition that they are there, or with a deadline where they are then what was added. What is read and done
//! are commands, understood like those that clients send.

use super::complaint::Complaint;
use super::request::{Args, Kept, integer};
use super::shape::{Plan, Shape};
use super::spec::{Action, Given};
use super::steps::{Next, Script};
use super::table;
use crate::gateway::Outcome;
use isochrone_core::command::{Operation, PRESENT, Response};
use isochrone_core::{Blob, Stamp};

/// So often a script is begun again since its keys have changed: each time somebody else's change came through.
const TRIES: u32 = 1_000;

/// The digest of the script that has KEYS\[1\] expire in ARGV\[2\] seconds where it holds ARGV\[1\].
const EXPIRE_IF: &str = "a2c2e4c111924caec00216d4881ed37a644435ce";

/// What a script looks at, and does then.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Look {
    /// django-redis: adds ARGV\[1\] to KEYS\[1\], where that is there: what it is then, or nothing.
    IncrementIfThere,
    /// limits: adds ARGV\[2\] to KEYS\[1\], which expires ARGV\[1\] seconds after it was not there, or 0: what it is then.
    IncrementAndExpire,
    /// python-redis-lock: deletes a lock KEYS\[1\] that holds ARGV\[1\], and lets who waits at KEYS\[2\] know for ARGV\[2\]
    /// milliseconds: 0, or 1 where it holds something else.
    Unlock,
    /// The same whatever it holds: whether there was a lock.
    Reset,
    /// walrus: deletes a lock KEYS\[1\] that holds ARGV\[1\], and leaves one element for who waits at KEYS\[2\]: 1 or 0.
    UnlockAndTell,
    /// npm's redlock: sets what each of its keys holds again, for ARGV\[2\] milliseconds, where all hold ARGV\[1\]: how many.
    RenewAll,
    /// python-redis-lock: has a lock KEYS\[1\] that holds ARGV\[1\] expire in ARGV\[2\] seconds: 0; 1 where it holds something
    /// else, 2 where it has no deadline.
    ExtendLock,
    /// aiocache: sets KEYS\[1\], where it holds ARGV\[2\], to ARGV\[1\], with an expiry in ARGV\[3\] and ARGV\[4\] or none.
    CompareAndSet,
    /// redsync: has a lock KEYS\[1\] that holds ARGV\[1\] expire in ARGV\[2\] milliseconds, or sets one that nobody has: 1 or 0.
    TouchOrSet,
    /// pottery: how long a lock KEYS\[1\] still lives that holds ARGV\[1\], in milliseconds: 0 where it does not.
    Remaining,
    /// redislock for Go: the same, by what PTTL says, and -3 where it holds something else.
    RemainingOrMissing,
    /// redislock for Go: sets a lock KEYS\[1\], which nobody has, or that begins with as many bytes of ARGV\[1\] as ARGV\[2\]
    /// says, to ARGV\[1\] for ARGV\[3\] milliseconds.
    Obtain,
    /// Sidekiq: takes the first of KEYS\[1\] out whose score is at most ARGV\[1\].
    PopDue,
    /// huey: takes all out.
    PopAllDue,
    /// huey: takes one of ARGV\[2\] places in KEYS\[1\] for ARGV\[3\], once those older than ARGV\[1\] seconds are given up: 1 or 0.
    TakePlace,
    /// huey: keeps the place of ARGV\[1\] in KEYS\[1\]: 1 or 0.
    KeepPlace,
}

use Look::*;

/// The words of a command.
type Words = Vec<Vec<u8>>;

macro_rules! words {
    ($($word:expr),+) => { vec![$(AsRef::<[u8]>::as_ref(&$word).to_vec()),+] };
}

/// What follows from what was seen.
struct Decided {
    calls: Vec<Words>,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    This(Response),
    /// That of this command.
    Of(usize),
}

fn answers(response: Response) -> Decided {
    Decided { calls: Vec::new(), answer: Answer::This(response) }
}

/// Lets who waits for a lock KEYS\[1\] at KEYS\[2\] know that it is gone.
fn signals(it: &Call<'_>) -> Vec<Words> {
    let signal = it.key(1);
    vec![
        words!("del", signal),
        words!("lpush", signal, "1"),
        words!("pexpire", signal, it.arg(1)),
        words!("del", it.key(0)),
    ]
}

impl Look {
    /// How many keys and how many arguments it takes at least.
    pub(crate) fn takes(self) -> (usize, usize) {
        match self {
            Unlock | Reset => (2, 2),
            IncrementIfThere | Remaining | RemainingOrMissing | PopDue | PopAllDue | KeepPlace => (1, 1),
            UnlockAndTell => (2, 1),
            IncrementAndExpire | ExtendLock | CompareAndSet | TouchOrSet | RenewAll => (1, 2),
            Obtain | TakePlace => (1, 3),
        }
    }

    /// The commands that the script calls.
    pub(crate) fn calls(self) -> &'static [&'static str] {
        match self {
            IncrementIfThere => &["exists", "incrby"],
            IncrementAndExpire => &["incrby", "expire"],
            Unlock => &["get", "del", "lpush", "pexpire"],
            Reset => &["del", "lpush", "pexpire"],
            UnlockAndTell => &["get", "lpush", "ltrim", "del"],
            ExtendLock => &["get", "ttl", "expire"],
            CompareAndSet | RenewAll => &["get", "set"],
            TouchOrSet => &["get", "pexpire", "set"],
            Remaining | RemainingOrMissing => &["get", "pttl"],
            Obtain => &["set", "getrange"],
            PopDue => &["zrange", "zrem"],
            PopAllDue => &["zrangebyscore", "zremrangebyscore"],
            TakePlace => &["time", "zremrangebyscore", "zscore", "zcard", "zadd"],
            KeepPlace => &["time", "zscore", "zadd"],
        }
    }

    /// What it does without a look, and which version of its first key it takes for granted.
    fn goes_ahead(self, it: &Call<'_>, tries: u32) -> Option<(Option<u64>, Decided)> {
        let key = it.key(0);
        let does = |version, calls| Some((version, Decided { calls, answer: Answer::Of(0) }));
        match (self, tries) {
            (IncrementIfThere, 0) => does(Some(PRESENT), vec![words!("incrby", key, it.arg(0))]),
            (IncrementIfThere, _) => Some((None, answers(Response::Nil))),
            (IncrementAndExpire, _) => {
                let sum = it.arg(1);
                let expires = words!("evalsha", EXPIRE_IF, "1", key, sum, it.arg(0));
                does(None, vec![words!("incrby", key, sum), expires])
            }
            (Reset, _) => Some((None, Decided { calls: signals(it), answer: Answer::Of(3) })),
            _ => None,
        }
    }

    /// What it looks at.
    fn reads(self, it: &Call<'_>) -> Vec<Words> {
        let key = it.key(0);
        match self {
            IncrementIfThere | IncrementAndExpire | Reset => vec![],
            Unlock | UnlockAndTell | CompareAndSet | TouchOrSet | Obtain => vec![words!("get", key)],
            RenewAll => (0..it.keys).map(|place| words!("get", it.key(place))).collect(),
            ExtendLock => vec![words!("get", key), words!("ttl", key)],
            Remaining | RemainingOrMissing => vec![words!("get", key), words!("pttl", key)],
            PopDue => vec![words!("zrangebyscore", key, "-inf", it.arg(0), "LIMIT", "0", "1")],
            PopAllDue => vec![words!("zrangebyscore", key, "-inf", it.arg(0))],
            TakePlace => vec![
                words!("zcount", key, format!("({}", it.cutoff()), "+inf"),
                words!("zcount", key, "-inf", "+inf"),
                words!("zscore", key, it.arg(2)),
            ],
            KeepPlace => vec![words!("zscore", key, it.arg(0))],
        }
    }

    fn decide(self, it: &Call<'_>, seen: &[Response]) -> Result<Decided, Complaint> {
        let key = it.key(0);
        let first = seen.first();
        let is = |held: &Response, text: &[u8]| matches!(held, Response::Bulk(held) if **held == *text);
        let holds = |text: &[u8]| first.is_some_and(|held| is(held, text));
        let number = |place: usize| match seen.get(place) {
            Some(Response::Integer(number)) => *number,
            _ => 0,
        };
        let does = |calls: Vec<Words>, answer| Decided { calls, answer };
        let tells = |calls, number| does(calls, Answer::This(Response::Integer(number)));
        Ok(match self {
            Unlock if !holds(it.arg(0)) => answers(Response::Integer(1)),
            Unlock => tells(signals(it), 0),
            UnlockAndTell if !holds(it.arg(0)) => answers(Response::Integer(0)),
            UnlockAndTell => {
                let signal = it.key(1);
                let tell = words!("lpush", signal, "1");
                tells(vec![tell, words!("ltrim", signal, "0", "0"), words!("del", key)], 1)
            }
            RenewAll if !seen.iter().all(|held| is(held, it.arg(0))) => answers(Response::Integer(0)),
            RenewAll => {
                let sets = (0..it.keys).map(|place| words!("set", it.key(place), it.arg(0), "PX", it.arg(1)));
                tells(sets.collect(), it.keys as i64)
            }
            // They do not look.
            IncrementIfThere | IncrementAndExpire | Reset => answers(Response::Nil),
            ExtendLock if !holds(it.arg(0)) => answers(Response::Integer(1)),
            ExtendLock if number(1) < 0 => answers(Response::Integer(2)),
            ExtendLock => tells(vec![words!("expire", key, it.arg(1))], 0),
            CompareAndSet if !holds(it.arg(1)) => answers(Response::Integer(0)),
            CompareAndSet => {
                let mut call = words!("set", key, it.arg(0));
                if it.arguments() == 4 {
                    call.extend(words!(it.arg(2), it.arg(3)));
                }
                does(vec![call], Answer::Of(0))
            }
            TouchOrSet if holds(it.arg(0)) => does(vec![words!("pexpire", key, it.arg(1))], Answer::Of(0)),
            TouchOrSet if matches!(first, Some(Response::Nil)) => {
                tells(vec![words!("set", key, it.arg(0), "PX", it.arg(1))], 1)
            }
            TouchOrSet => answers(Response::Integer(0)),
            Remaining => answers(Response::Integer(if holds(it.arg(0)) { number(1).max(0) } else { 0 })),
            RemainingOrMissing => answers(Response::Integer(if holds(it.arg(0)) { number(1) } else { -3 })),
            Obtain => {
                let length = integer(it.arg(1)).and_then(|length| usize::try_from(length).ok());
                let length = length.ok_or(Complaint::NotInteger)?;
                let begin = |text: &[u8]| text[..length.min(text.len())].to_vec();
                let ours = match first {
                    // From 0 to -1 is all of it.
                    Some(Response::Bulk(held)) if length == 0 => held.is_empty(),
                    Some(Response::Bulk(held)) => begin(held) == begin(it.arg(0)),
                    _ => true,
                };
                match ours {
                    true => does(vec![words!("set", key, it.arg(0), "PX", it.arg(2))], Answer::Of(0)),
                    false => answers(Response::Nil),
                }
            }
            PopDue => match first {
                Some(Response::Array(due)) if let Some(Response::Bulk(job)) = due.first() => {
                    let answer = Answer::This(Response::Bulk(job.clone()));
                    does(vec![words!("zrem", key, job)], answer)
                }
                _ => answers(Response::Nil),
            },
            PopAllDue => match first {
                Some(Response::Array(due)) if !due.is_empty() => {
                    let calls = vec![words!("zremrangebyscore", key, "-inf", it.arg(0))];
                    does(calls, Answer::This(Response::Array(due.clone())))
                }
                _ => answers(Response::Array(Vec::new())),
            },
            TakePlace => {
                let places = integer(it.arg(1)).ok_or(Complaint::NotInteger)?;
                let (held, all) = (number(0), number(1));
                let has = matches!(seen.get(2), Some(Response::Double(since)) if since.get() > it.cutoff());
                let mut calls = Vec::new();
                if all > held {
                    calls.push(words!("zremrangebyscore", key, "-inf", it.cutoff().to_string()));
                }
                let takes = has || held < places;
                if takes {
                    calls.push(words!("zadd", key, it.now().to_string(), it.arg(2)));
                }
                tells(calls, i64::from(takes))
            }
            KeepPlace if !matches!(first, Some(Response::Double(_))) => answers(Response::Integer(0)),
            KeepPlace => tells(vec![words!("zadd", key, it.now().to_string(), it.arg(0))], 1),
        })
    }
}

/// The keys and arguments of a script.
struct Call<'a> {
    args: Args<'a>,
    keys: usize,
    begun: Stamp,
}

impl<'a> Call<'a> {
    fn key(&self, place: usize) -> &'a [u8] {
        self.args.at(3 + place)
    }

    fn arg(&self, place: usize) -> &'a [u8] {
        self.args.at(3 + self.keys + place)
    }

    fn arguments(&self) -> usize {
        self.args.len() - 3 - self.keys
    }

    /// When it was begun, in seconds.
    fn now(&self) -> f64 {
        (self.begun.as_nanos() / 1_000) as f64 / 1e6
    }

    /// ARGV\[1\] seconds before.
    fn cutoff(&self) -> f64 {
        let seconds = std::str::from_utf8(self.arg(0)).ok().and_then(|text| text.parse::<f64>().ok());
        self.now() - seconds.unwrap_or(0.0)
    }
}

/// A script that is looking at its keys, or doing what follows.
#[derive(Debug)]
pub(crate) struct Looking {
    look: Look,
    /// The request.
    kept: Kept,
    keys: usize,
    begun: Stamp,
    tries: u32,
    /// What is answered once that is done which is under way.
    doing: Option<Answer>,
}

/// The first step of this script with this request.
pub(crate) fn plan(
    look: Look,
    keys: usize,
    args: Args<'_>,
    given: &mut Given<'_>,
) -> Result<Plan, Complaint> {
    let mut kept = Kept::default();
    kept.push(args, false);
    let mut looking = Looking { look, kept, keys, begun: given.stamp, tries: 0, doing: None };
    // The first try of each has something to ask.
    let operation = looking.begins(given)?.unwrap_or(Operation::DbSize);
    Ok(Plan { operation, shape: Shape::Steps(Box::new(Script::Looking(looking))) })
}

/// These commands as one operation, so long as what is watched has not changed.
fn transaction(
    watched: Box<[(Blob, u64)]>,
    calls: &[Words],
    given: &mut Given<'_>,
) -> Result<Operation, Complaint> {
    let operations = calls.iter().map(|words| operation(words, given)).collect::<Result<Vec<_>, _>>()?;
    Ok(Operation::Transaction { watched: watched.into(), operations: operations.into() })
}

fn operation(words: &Words, given: &mut Given<'_>) -> Result<Operation, Complaint> {
    let mut kept = Kept::default();
    kept.add(words.iter().map(Vec::as_slice));
    match table::find(kept.at(0))?.action {
        Action::Data(parse) => Ok(parse(kept.at(0), given)?.operation),
        _ => Err(Complaint::Syntax),
    }
}

impl Looking {
    fn call(&self) -> Call<'_> {
        Call { args: self.kept.at(0), keys: self.keys, begun: self.begun }
    }

    /// The first of its operations, or of another try; none where it has ended with nothing.
    fn begins(&mut self, given: &mut Given<'_>) -> Result<Option<Operation>, Complaint> {
        let call = self.call();
        let Some((version, Decided { calls, answer })) = self.look.goes_ahead(&call, self.tries) else {
            return self.reads(given).map(Some);
        };
        if calls.is_empty() {
            return Ok(None);
        }
        let watched = version.map(|version| (Blob::new(call.key(0)), version)).into_iter().collect();
        let operation = transaction(watched, &calls, given)?;
        self.doing = Some(answer);
        Ok(Some(operation))
    }

    /// The versions of the keys, and what it looks at.
    fn reads(&self, given: &mut Given<'_>) -> Result<Operation, Complaint> {
        let call = self.call();
        let mut operations: Vec<_> =
            (0..self.keys).map(|place| Operation::Version { key: Blob::new(call.key(place)) }).collect();
        for words in self.look.reads(&call) {
            operations.push(operation(&words, given)?);
        }
        Ok(Operation::Transaction { watched: [].into(), operations: operations.into() })
    }

    /// The answer to a step.
    pub(crate) fn heard(&mut self, response: Response, given: &mut Given<'_>) -> Next {
        let next = match (self.doing.take(), response) {
            (None, Response::Array(parts)) => self.looked(&parts, given),
            // A key has changed.
            (Some(_), Response::NilArray) if self.tries < TRIES => {
                self.tries += 1;
                let nothing = Next::Ends(Outcome::Done(Response::Nil));
                self.begins(given).map(|operation| operation.map_or(nothing, Next::Asks))
            }
            (Some(_), Response::NilArray) => {
                Err(Complaint::text("TRYAGAIN the keys of the script change too fast"))
            }
            (Some(answer), Response::Array(mut parts)) => {
                let refused = parts.iter().position(Response::is_error);
                Ok(Next::Ends(Outcome::Done(match (refused, answer) {
                    (Some(place), _) | (None, Answer::Of(place)) if place < parts.len() => {
                        parts.swap_remove(place)
                    }
                    (_, Answer::This(response)) => response,
                    (_, Answer::Of(_)) => Response::Nil,
                })))
            }
            (_, response) => Ok(Next::Ends(Outcome::Done(response))),
        };
        next.unwrap_or_else(|complaint| Next::Ends(Outcome::Refused(complaint.to_string())))
    }

    fn looked(&mut self, parts: &[Response], given: &mut Given<'_>) -> Result<Next, Complaint> {
        if let Some(refused) = parts.iter().find(|part| part.is_error()) {
            return Ok(Next::Ends(Outcome::Done(refused.clone())));
        }
        let call = self.call();
        let versions =
            parts.iter().take(self.keys).enumerate().filter_map(|(place, version)| match version {
                Response::Integer(version) => Some((Blob::new(call.key(place)), *version as u64)),
                _ => None,
            });
        let versions = versions.collect();
        let Decided { calls, answer } =
            self.look.decide(&call, parts.get(self.keys..).unwrap_or_default())?;
        if calls.is_empty() {
            let answer = match answer {
                Answer::This(response) => response,
                Answer::Of(_) => Response::Nil,
            };
            return Ok(Next::Ends(Outcome::Done(answer)));
        }
        let operation = transaction(versions, &calls, given)?;
        self.doing = Some(answer);
        Ok(Next::Asks(operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::scripts::Scripts;
    use isochrone_core::command::{Command, Score};
    use isochrone_core::{Random, Span, StateMachine as _};
    use isochrone_store::Store;

    const AT: Stamp = Stamp::from_nanos(1_700_000_000_000_000_000);

    struct World {
        store: Store,
        stamp: Stamp,
    }

    impl World {
        fn given<T>(&self, with: impl FnOnce(&mut Given<'_>) -> T) -> T {
            let (mut random, mut scripts) = (Random::seeded(1), Scripts::default());
            with(&mut Given {
                selected: None,
                stamp: self.stamp,
                random: &mut random,
                scripts: &mut scripts,
                bulk_max: 1 << 20,
                elements_max: 1 << 20,
            })
        }

        fn apply(&mut self, operation: Operation) -> Response {
            self.store.apply(&Command::new(self.stamp, operation))
        }

        fn run(&mut self, line: &str) -> Response {
            let words = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let operation = self.given(|given| operation(&words, given)).unwrap();
            self.apply(operation)
        }

        /// Carries a script out; before its last step `between` happens, once.
        fn script(&mut self, look: Look, line: &str, between: Option<&str>) -> Response {
            self.script_of(look.takes().0, look, line, between)
        }

        fn script_of(&mut self, keys: usize, look: Look, line: &str, between: Option<&str>) -> Response {
            let mut kept = Kept::default();
            kept.add(["evalsha", "digest", "keys"].into_iter().chain(line.split(' ')).map(str::as_bytes));
            let plan = self.given(|given| plan(look, keys, kept.at(0), given)).unwrap();
            let Shape::Steps(script) = plan.shape else { panic!("{:?}", plan.shape) };
            let Script::Looking(mut looking) = *script else { panic!("{script:?}") };
            let (mut next, mut between) = (plan.operation, between);
            loop {
                if looking.doing.is_some() {
                    between.take().map(|line| self.run(line));
                }
                let response = self.apply(next);
                if response.is_error() {
                    return response;
                }
                match self.given(|given| looking.heard(response, given)) {
                    Next::Asks(operation) => next = operation,
                    Next::Ends(Outcome::Done(response)) => return response,
                    Next::Ends(outcome) => panic!("{outcome:?}"),
                }
            }
        }
    }

    fn world(lines: &[&str]) -> World {
        let mut world = World { store: Store::default(), stamp: AT };
        lines.iter().for_each(|line| _ = world.run(line));
        world
    }

    fn bulk(text: &str) -> Response {
        Response::bulk(text.as_bytes())
    }

    fn number(number: i64) -> Response {
        Response::Integer(number)
    }

    #[test]
    fn counters_are_raised_as_if_at_once() {
        let mut world = world(&["set n 5", "rpush list x"]);
        assert_eq!(world.script(IncrementIfThere, "n 2", None), number(7));
        assert_eq!(world.script(IncrementIfThere, "none 2", None), Response::Nil);
        assert_eq!(world.run("exists none"), number(0));
        assert_eq!(world.script(IncrementIfThere, "n 2", Some("incrby n 10")), number(19), "whatever it is");
        assert_eq!(world.script(IncrementIfThere, "n 1", Some("del n")), Response::Nil);
        assert!(world.script(IncrementIfThere, "list 1", None).is_error());
        assert_eq!(world.script(IncrementAndExpire, "hits 60 1", None), number(1));
        assert_eq!(world.run("ttl hits"), number(60));
        world.stamp = AT + Span::from_secs(20);
        assert_eq!(world.script(IncrementAndExpire, "hits 60 1", None), number(2));
        assert_eq!(world.run("ttl hits"), number(40));
        assert_eq!(world.script(IncrementAndExpire, "hits 60 3", Some("del hits")), number(3));
        assert_eq!(world.run("ttl hits"), number(60));
        // It has counted nothing so far, or nothing any more.
        for (before, ttl) in [("set zero 0", 60), ("set zero -3 EX 90", 90), ("set zero 0 EX 90", 60)] {
            world.run(before);
            assert!(!world.script(IncrementAndExpire, "zero 60 2", None).is_error());
            assert_eq!(world.run("ttl zero"), number(ttl), "{before}");
        }
        assert_eq!(world.script(IncrementAndExpire, "hits 60 4", Some("set hits 0")), number(4));
        assert_eq!(world.run("ttl hits"), number(60));
        assert_eq!(world.script(IncrementAndExpire, "zero 60 3", Some("set zero 4")), number(7));
        assert_eq!(world.run("ttl zero"), number(-1));
        assert!(world.script(IncrementAndExpire, "list 60 1", None).is_error());
        assert_eq!(world.run("ttl list"), number(-1), "a script ends at its first error");
    }

    #[test]
    fn locks_are_changed_by_their_holders() {
        let mut world = world(&["set lock me PX 5000", "set other you"]);
        assert_eq!(world.script(Unlock, "lock signal you 900", None), number(1));
        assert_eq!(world.script(ExtendLock, "lock me 10", None), number(0));
        assert_eq!(world.run("ttl lock"), number(10));
        assert_eq!(world.script(ExtendLock, "lock you 10", None), number(1));
        assert_eq!(world.script(ExtendLock, "other you 10", None), number(2));
        assert_eq!(world.script(Remaining, "lock me", None), number(10_000));
        assert_eq!(world.script(Remaining, "other you", None), number(0));
        assert_eq!(world.script(RemainingOrMissing, "other you", None), number(-1));
        assert_eq!(world.script(RemainingOrMissing, "lock you", None), number(-3));
        assert_eq!(
            world.script(Unlock, "lock signal me 900", Some("set lock you")),
            number(1),
            "lost meanwhile"
        );
        assert_eq!(world.script(Unlock, "lock signal you 900", None), number(0));
        assert_eq!(
            (world.run("exists lock"), world.run("lrange signal 0 -1")),
            (number(0), Response::Array(vec![bulk("1")]))
        );
        assert_eq!(world.run("pttl signal"), number(900));
        assert_eq!(world.script(Reset, "other signal x 900", None), number(1));
        assert_eq!(world.script(Reset, "other signal x 900", None), number(0));
        assert_eq!(world.run("llen signal"), number(1));
        assert_eq!(world.script(Obtain, "o tokenmeta 5 700", None), Response::Ok);
        assert_eq!(world.script(Obtain, "o tokennews 5 800", None), Response::Ok, "the same token");
        assert_eq!((world.run("get o"), world.run("pttl o")), (bulk("tokennews"), number(800)));
        assert_eq!(world.script(Obtain, "o otherone 5 700", None), Response::Nil);
        assert_eq!(world.script(TouchOrSet, "o tokennews 900", None), number(1));
        assert_eq!(world.run("pttl o"), number(900));
        assert_eq!(world.script(TouchOrSet, "o otherone 900", None), number(0));
        assert_eq!(world.script(TouchOrSet, "p me 900", None), number(1));
        assert_eq!((world.run("get p"), world.run("pttl p")), (bulk("me"), number(900)));
        assert_eq!(world.script(CompareAndSet, "o new tokennews EX 3", None), Response::Ok);
        assert_eq!((world.run("get o"), world.run("ttl o")), (bulk("new"), number(3)));
        assert_eq!(world.script(CompareAndSet, "o newer old", None), number(0));
        assert_eq!(world.script(CompareAndSet, "o newer new", None), Response::Ok);
        assert_eq!(world.run("ttl o"), number(-1));
    }

    #[test]
    fn locks_of_several_keys_are_renewed_together() {
        let mut world = world(&["set a me PX 5000", "set b me", "set c you", "rpush list x"]);
        assert_eq!(world.script_of(2, RenewAll, "a c me 900", None), number(0));
        assert_eq!(world.script_of(2, RenewAll, "a none me 900", None), number(0));
        assert_eq!(world.run("pttl a"), number(5000));
        assert_eq!(
            world.script_of(2, RenewAll, "a b me 900", Some("set b you")),
            number(0),
            "lost meanwhile"
        );
        world.run("set b me");
        assert_eq!(world.script_of(2, RenewAll, "a b me 900", None), number(2));
        assert_eq!((world.run("pttl a"), world.run("pttl b")), (number(900), number(900)));
        assert!(world.script_of(2, RenewAll, "list a me 900", None).is_error());
        assert_eq!(world.script(UnlockAndTell, "a event you", None), number(0));
        assert_eq!(world.script(UnlockAndTell, "a event me", None), number(1));
        assert_eq!(world.script(UnlockAndTell, "b event me", None), number(1));
        assert_eq!((world.run("exists a b"), world.run("llen event")), (number(0), number(1)));
    }

    #[test]
    fn what_is_due_is_taken_by_one() {
        let mut world = world(&["zadd jobs 1 a 2 b 2 c 9 d"]);
        assert_eq!(world.script(PopDue, "jobs 2.5", None), bulk("a"));
        assert_eq!(world.script(PopDue, "jobs 2.5", Some("zrem jobs b")), bulk("c"), "somebody else took it");
        assert_eq!(world.script(PopDue, "jobs 2.5", None), Response::Nil);
        world.run("zadd jobs 1 a 2 b");
        assert_eq!(world.script(PopAllDue, "jobs 2", None), Response::Array(vec![bulk("a"), bulk("b")]));
        assert_eq!(world.script(PopAllDue, "jobs 2", None), Response::Array(vec![]));
        assert_eq!(world.run("zcard jobs"), number(1));
    }

    #[test]
    fn places_are_given_up_after_a_while() {
        let mut world = world(&[]);
        assert_eq!(world.script(TakePlace, "s 60 2 a", None), number(1));
        world.stamp = AT + Span::from_secs(30);
        assert_eq!(world.script(TakePlace, "s 60 2 b", None), number(1));
        assert_eq!(world.script(TakePlace, "s 60 2 c", None), number(0));
        assert_eq!(world.script(TakePlace, "s 60 2 b", None), number(1), "it has one");
        world.stamp = AT + Span::from_secs(61);
        assert_eq!(world.script(TakePlace, "s 60 2 c", None), number(1), "a's has lapsed");
        assert_eq!(world.script(KeepPlace, "s a", None), number(0));
        assert_eq!(world.script(KeepPlace, "s b", None), number(1));
        assert_eq!(world.run("zscore s b"), Response::Double(Score::new(1_700_000_061.0).unwrap()));
    }
}
