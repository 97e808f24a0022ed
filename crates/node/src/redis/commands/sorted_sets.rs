//! Sorted sets.

use super::Understood;
use super::hashes::{checked_count, random_count};
use super::lists::{BUT_LAST, not_negative, pop_count};
use super::sets::inter_card;
use crate::redis::args::{blob, blobs, counted_keys, float, is, loose_score, number, scan_options};
use crate::redis::blocking::Patience;
use crate::redis::complaint::Complaint;
use crate::redis::request::Args;
use crate::redis::shape::{Plan, Shape};
use crate::redis::spec::flag::{BLOCKING, DENYOOM, FAST, MOVABLE_KEYS, NOSCRIPT, READ, WRITE};
use crate::redis::spec::{Given, Group, Keys, Spec, TWO, about};
use isochrone_core::Blob;
use isochrone_core::command::{
    Aggregate, Combine, Condition, End, LexBound, Limit, Operation, Score, ScoreBound, ScoreCondition,
    Scored, Selection, Slice, WeightedInputs, ZAddFlags,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const COUNTED: Keys = Keys::Counted { at: 1, target: false };
const COUNTED_STORE: Keys = Keys::Counted { at: 2, target: true };
const COMBINE: &str =
    "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]";
const COMBINE_STORE: &str =
    "destination numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM|MIN|MAX]";
const WRITES: u16 = WRITE | DENYOOM;

const WAITS: u16 = WRITE | BLOCKING;

pub(crate) static COMMANDS: &[Spec] = &[
    Group::SortedSet
        .blocking(
            "bzmpop",
            -5,
            WAITS | MOVABLE_KEYS,
            about(
                "7.0.0",
                "timeout numkeys key [key ...] MIN|MAX [COUNT count]",
                "Pops from the first sorted set that has members, and waits for one",
            ),
            |args, _| {
                let patience = Patience::parse(args.at(1))?;
                let (keys, behind) = counted_keys(args, 2, "ERR numkeys should be greater than 0")?;
                if behind == args.len() {
                    return Err(Complaint::Syntax);
                }
                let end = end(args.at(behind))?;
                let operation =
                    Operation::ZMPop { keys: keys.into(), end, count: pop_count(args, behind + 1)? };
                Ok((Plan { operation, shape: Shape::Nested }, patience))
            },
        )
        .with_keys(Keys::Counted { at: 2, target: false }),
    Group::SortedSet
        .blocking(
            "bzpopmax",
            -3,
            WAITS | FAST | NOSCRIPT,
            about("5.0.0", "key [key ...] timeout", "Pops the greatest member, and waits for one"),
            |args, _| pop_one(args, End::Greatest),
        )
        .with_keys(BUT_LAST),
    Group::SortedSet
        .blocking(
            "bzpopmin",
            -3,
            WAITS | FAST | NOSCRIPT,
            about("5.0.0", "key [key ...] timeout", "Pops the least member, and waits for one"),
            |args, _| pop_one(args, End::Least),
        )
        .with_keys(BUT_LAST),
    Group::SortedSet.data(
        "zadd",
        -4,
        WRITES | FAST,
        about(
            "1.2.0",
            "key [NX|XX] [GT|LT] [CH] [INCR] score member [score member ...]",
            "Adds members or changes scores",
        ),
        add,
    ),
    Group::SortedSet.data("zcard", 2, READ | FAST, about("1.2.0", "key", "How many members"), |args, _| {
        Ok(Operation::ZCard { key: blob(args.at(1)) }.into())
    }),
    Group::SortedSet.data(
        "zcount",
        4,
        READ | FAST,
        about("2.0.0", "key min max", "How many members have such scores"),
        |args, _| {
            let range = Arc::new(scores(args.at(2), args.at(3))?);
            Ok(Operation::ZCount { key: blob(args.at(1)), range }.into())
        },
    ),
    Group::SortedSet
        .data(
            "zdiff",
            -3,
            READ | MOVABLE_KEYS,
            about("6.2.0", "numkeys key [key ...] [WITHSCORES]", "Members of the first set alone"),
            |args, _| combine(args, Combine::Difference, "zdiff"),
        )
        .with_keys(COUNTED),
    Group::SortedSet
        .data(
            "zdiffstore",
            -4,
            WRITES | MOVABLE_KEYS,
            about("6.2.0", "destination numkeys key [key ...]", "Stores a difference"),
            |args, _| combine_store(args, Combine::Difference, "zdiffstore"),
        )
        .with_keys(COUNTED_STORE),
    Group::SortedSet.data(
        "zincrby",
        4,
        WRITES | FAST,
        about("1.2.0", "key increment member", "Adds to a score"),
        |args, _| {
            let by = float(args.at(2))?;
            let (key, member) = (blob(args.at(1)), blob(args.at(3)));
            Ok(Operation::ZIncrBy { key, member, by, flags: ZAddFlags::default() }.into())
        },
    ),
    Group::SortedSet
        .data("zinter", -3, READ | MOVABLE_KEYS, about("6.2.0", COMBINE, "Members of all sets"), |args, _| {
            combine(args, Combine::Intersection, "zinter")
        })
        .with_keys(COUNTED),
    Group::SortedSet
        .data(
            "zintercard",
            -3,
            READ | MOVABLE_KEYS,
            about("7.0.0", "numkeys key [key ...] [LIMIT limit]", "How many members all sets have"),
            |args, _| {
                let too_few = "ERR at least 1 input key is needed for 'zintercard' command";
                let (keys, limit) = inter_card(args, too_few, Complaint::Syntax)?;
                Ok(Operation::ZInterCard { keys: keys.into(), limit }.into())
            },
        )
        .with_keys(COUNTED),
    Group::SortedSet
        .data(
            "zinterstore",
            -4,
            WRITES | MOVABLE_KEYS,
            about("2.0.0", COMBINE_STORE, "Stores an intersection"),
            |args, _| combine_store(args, Combine::Intersection, "zinterstore"),
        )
        .with_keys(COUNTED_STORE),
    Group::SortedSet.data(
        "zlexcount",
        4,
        READ | FAST,
        about("2.8.9", "key min max", "How many members lie between"),
        |args, _| {
            let range = Arc::new(members(args.at(2), args.at(3))?);
            Ok(Operation::ZCount { key: blob(args.at(1)), range }.into())
        },
    ),
    Group::SortedSet
        .data(
            "zmpop",
            -4,
            WRITE | MOVABLE_KEYS,
            about(
                "7.0.0",
                "numkeys key [key ...] MIN|MAX [COUNT count]",
                "Pops from the first sorted set that has members",
            ),
            |args, _| {
                let (keys, behind) = counted_keys(args, 1, "ERR numkeys should be greater than 0")?;
                let end = end(args.at(behind))?;
                let count = pop_count(args, behind + 1)?;
                Ok(Plan {
                    operation: Operation::ZMPop { keys: keys.into(), end, count },
                    shape: Shape::Nested,
                })
            },
        )
        .with_keys(COUNTED),
    Group::SortedSet.data(
        "zmscore",
        -3,
        READ | FAST,
        about("6.2.0", "key member [member ...]", "The scores of members"),
        |args, _| Ok(Operation::ZMScore { key: blob(args.at(1)), members: blobs(args, 2) }.into()),
    ),
    Group::SortedSet.data(
        "zpopmax",
        -2,
        WRITE | FAST,
        about("5.0.0", "key [count]", "Removes the greatest members"),
        |args, _| pop(args, End::Greatest),
    ),
    Group::SortedSet.data(
        "zpopmin",
        -2,
        WRITE | FAST,
        about("5.0.0", "key [count]", "Removes the least members"),
        |args, _| pop(args, End::Least),
    ),
    Group::SortedSet.data(
        "zrandmember",
        -2,
        READ,
        about("6.2.0", "key [count [WITHSCORES]]", "Some members, at random"),
        random_member,
    ),
    Group::SortedSet.data(
        "zrange",
        -4,
        READ,
        about(
            "1.2.0",
            "key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
            "A range of members",
        ),
        |args, _| {
            let options = Options::read(args, 4, Allowed { by: true, scores: true })?;
            let slice = options.slice(args.at(2), args.at(3))?;
            Ok(range(args, slice, options.with_scores))
        },
    ),
    Group::SortedSet.data(
        "zrangebylex",
        -4,
        READ,
        about("2.8.9", "key min max [LIMIT offset count]", "A range of members by their bytes"),
        |args, _| by(args, By::Lex, false),
    ),
    Group::SortedSet.data(
        "zrangebyscore",
        -4,
        READ,
        about("1.0.5", "key min max [WITHSCORES] [LIMIT offset count]", "A range of members by score"),
        |args, _| by(args, By::Score, false),
    ),
    Group::SortedSet
        .data(
            "zrangestore",
            -5,
            WRITES,
            about(
                "6.2.0",
                "dst src min max [BYSCORE|BYLEX] [REV] [LIMIT offset count]",
                "Stores a range of members",
            ),
            |args, _| {
                let options = Options::read(args, 5, Allowed { by: true, scores: false })?;
                let slice = Arc::new(options.slice(args.at(3), args.at(4))?);
                Ok(Operation::ZRangeStore { target: blob(args.at(1)), source: blob(args.at(2)), slice }
                    .into())
            },
        )
        .with_keys(TWO),
    Group::SortedSet.data(
        "zrank",
        -3,
        READ | FAST,
        about("2.0.0", "key member [WITHSCORE]", "The position of a member"),
        |args, _| rank(args, false, "zrank"),
    ),
    Group::SortedSet.data(
        "zrem",
        -3,
        WRITE | FAST,
        about("1.2.0", "key member [member ...]", "Removes members"),
        |args, _| Ok(Operation::ZRem { key: blob(args.at(1)), members: blobs(args, 2) }.into()),
    ),
    Group::SortedSet.data(
        "zremrangebylex",
        4,
        WRITE,
        about("2.8.9", "key min max", "Removes a range by bytes"),
        |args, _| remove(args, members(args.at(2), args.at(3))?),
    ),
    Group::SortedSet.data(
        "zremrangebyrank",
        4,
        WRITE,
        about("2.0.0", "key start stop", "Removes a range by position"),
        |args, _| remove(args, Selection::Index { start: number(args.at(2))?, stop: number(args.at(3))? }),
    ),
    Group::SortedSet.data(
        "zremrangebyscore",
        4,
        WRITE,
        about("1.2.0", "key min max", "Removes a range by score"),
        |args, _| remove(args, scores(args.at(2), args.at(3))?),
    ),
    Group::SortedSet.data(
        "zrevrange",
        -4,
        READ,
        about("1.2.0", "key start stop [WITHSCORES]", "A range of members, greatest first"),
        |args, _| {
            let mut options = Options::read(args, 4, Allowed { by: false, scores: true })?;
            options.check()?;
            options.reverse = true;
            let slice = options.slice(args.at(2), args.at(3))?;
            Ok(range(args, slice, options.with_scores))
        },
    ),
    Group::SortedSet.data(
        "zrevrangebylex",
        -4,
        READ,
        about(
            "2.8.9",
            "key max min [LIMIT offset count]",
            "A range of members by their bytes, greatest first",
        ),
        |args, _| by(args, By::Lex, true),
    ),
    Group::SortedSet.data(
        "zrevrangebyscore",
        -4,
        READ,
        about(
            "2.2.0",
            "key max min [WITHSCORES] [LIMIT offset count]",
            "A range of members by score, greatest first",
        ),
        |args, _| by(args, By::Score, true),
    ),
    Group::SortedSet.data(
        "zrevrank",
        -3,
        READ | FAST,
        about("2.0.0", "key member [WITHSCORE]", "The position of a member from the greatest"),
        |args, _| rank(args, true, "zrevrank"),
    ),
    Group::SortedSet.data(
        "zscan",
        -3,
        READ,
        about("2.8.0", "key cursor [MATCH pattern] [COUNT count]", "A page of members and scores"),
        |args, _| {
            let options = scan_options(args, 2, false)?;
            let (cursor, count, pattern) = (options.cursor, options.count, options.pattern);
            Ok(Operation::ZScan { key: blob(args.at(1)), cursor, count, pattern }.into())
        },
    ),
    Group::SortedSet.data(
        "zscore",
        3,
        READ | FAST,
        about("1.2.0", "key member", "The score of a member"),
        |args, _| Ok(Operation::ZScore { key: blob(args.at(1)), member: blob(args.at(2)) }.into()),
    ),
    Group::SortedSet
        .data("zunion", -3, READ | MOVABLE_KEYS, about("6.2.0", COMBINE, "Members of any set"), |args, _| {
            combine(args, Combine::Union, "zunion")
        })
        .with_keys(COUNTED),
    Group::SortedSet
        .data(
            "zunionstore",
            -4,
            WRITES | MOVABLE_KEYS,
            about("2.0.0", COMBINE_STORE, "Stores a union"),
            |args, _| combine_store(args, Combine::Union, "zunionstore"),
        )
        .with_keys(COUNTED_STORE),
];

fn end(arg: &[u8]) -> Result<End, Complaint> {
    match () {
        () if is(arg, "MIN") => Ok(End::Least),
        () if is(arg, "MAX") => Ok(End::Greatest),
        () => Err(Complaint::Syntax),
    }
}

fn pop_one(args: Args<'_>, end: End) -> Result<(Plan, Patience), Complaint> {
    let last = args.len() - 1;
    let patience = Patience::parse(args.at(last))?;
    let keys = (1..last).map(|place| blob(args.at(place))).collect();
    Ok((Plan { operation: Operation::ZMPop { keys, end, count: 1 }, shape: Shape::Popped }, patience))
}

fn add(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let (mut absent, mut present, mut greater, mut less) = (false, false, false, false);
    let (mut changed, mut increment) = (false, false);
    let mut at = 2;
    loop {
        let option = args.at(at);
        match () {
            () if is(option, "NX") => absent = true,
            () if is(option, "XX") => present = true,
            () if is(option, "GT") => greater = true,
            () if is(option, "LT") => less = true,
            () if is(option, "CH") => changed = true,
            () if is(option, "INCR") => increment = true,
            () => break,
        }
        at += 1;
    }
    let left = args.len().saturating_sub(at);
    if left == 0 || !left.is_multiple_of(2) {
        return Err(Complaint::Syntax);
    }
    if absent && present {
        return Err(Complaint::text("ERR XX and NX options at the same time are not compatible"));
    }
    if (greater && less) || (absent && (greater || less)) {
        return Err(Complaint::text("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if increment && left > 2 {
        return Err(Complaint::text("ERR INCR option supports a single increment-element pair"));
    }
    let condition = match (absent, present) {
        (true, _) => Condition::IfAbsent,
        (_, true) => Condition::IfPresent,
        _ => Condition::Always,
    };
    let taken = match (greater, less) {
        (true, _) => ScoreCondition::Greater,
        (_, true) => ScoreCondition::Less,
        _ => ScoreCondition::Any,
    };
    let flags = ZAddFlags { condition, scores: taken, changed };
    let key = blob(args.at(1));
    if increment {
        let (by, member) = (float(args.at(at))?, blob(args.at(at + 1)));
        return Ok(Operation::ZIncrBy { key, member, by, flags }.into());
    }
    let members: Result<Vec<_>, Complaint> = (0..left / 2)
        .map(|pair| Ok((float(args.at(at + 2 * pair))?, blob(args.at(at + 2 * pair + 1)))))
        .collect();
    Ok(Operation::ZAdd { key, flags, members: Scored::from(members?) }.into())
}

fn pop(args: Args<'_>, end: End) -> Understood {
    let count = match args.len() {
        2 => None,
        3 => Some(not_negative(args.at(2))?),
        _ => return Err(Complaint::Syntax),
    };
    Ok(Operation::ZPop { key: blob(args.at(1)), end, count }.into())
}

fn random_member(args: Args<'_>, given: &mut Given<'_>) -> Understood {
    let count = if args.len() > 2 { Some(random_count(args.at(2))?) } else { None };
    let with_scores = match args.len() {
        2 | 3 => false,
        4 if is(args.at(3), "WITHSCORES") => true,
        _ => return Err(Complaint::Syntax),
    };
    let count = checked_count(count, with_scores)?;
    Ok(Operation::ZRandMember { key: blob(args.at(1)), count, seed: given.seed(), with_scores }.into())
}

fn rank(args: Args<'_>, reverse: bool, command: &'static str) -> Understood {
    let with_score = match args.len() {
        3 => false,
        4 if is(args.at(3), "WITHSCORE") => true,
        4 => return Err(Complaint::Syntax),
        _ => return Err(Complaint::Arity(command)),
    };
    Ok(Operation::ZRank { key: blob(args.at(1)), member: blob(args.at(2)), reverse, with_score }.into())
}

fn remove(args: Args<'_>, selection: Selection) -> Understood {
    Ok(Operation::ZRemRange { key: blob(args.at(1)), range: Arc::new(selection) }.into())
}

/// What the bounds of a range are.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum By {
    Index,
    Score,
    Lex,
}

/// Options of a range.
struct Options {
    by: By,
    reverse: bool,
    limit: Option<Limit>,
    with_scores: bool,
}

/// Which options a command of the family has.
struct Allowed {
    by: bool,
    scores: bool,
}

impl Options {
    /// The options from this place on.
    fn read(args: Args<'_>, mut at: usize, allowed: Allowed) -> Result<Options, Complaint> {
        let mut options = Options { by: By::Index, reverse: false, limit: None, with_scores: false };
        while at < args.len() {
            let option = args.at(at);
            match () {
                () if allowed.scores && is(option, "WITHSCORES") => options.with_scores = true,
                () if is(option, "LIMIT") && at + 2 < args.len() => {
                    let (offset, count) = (number(args.at(at + 1))?, number(args.at(at + 2))?);
                    options.limit = Some(Limit { offset, count });
                    at += 2;
                }
                () if allowed.by && !options.reverse && is(option, "REV") => options.reverse = true,
                () if allowed.by && options.by == By::Index && is(option, "BYSCORE") => {
                    options.by = By::Score
                }
                () if allowed.by && options.by == By::Index && is(option, "BYLEX") => options.by = By::Lex,
                () => return Err(Complaint::Syntax),
            }
            at += 1;
        }
        if allowed.by {
            options.check()?;
        }
        Ok(options)
    }

    /// Refuses options that do not fit the kind of range.
    fn check(&mut self) -> Result<(), Complaint> {
        // Nothing is left out by a limit of -1, so it may stand where none may, and then counts for nothing.
        if self.by == By::Index {
            self.limit = self.limit.take().filter(|limit| limit.count != -1);
        }
        if self.limit.is_some() && self.by == By::Index {
            return Err(Complaint::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if self.with_scores && self.by == By::Lex {
            return Err(Complaint::text(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        Ok(())
    }

    /// The range between these bounds. Those of score and lexicographic ranges come greatest first where
    /// the direction is reversed.
    fn slice(&self, first: &[u8], last: &[u8]) -> Result<Slice, Complaint> {
        let (min, max) = if self.reverse { (last, first) } else { (first, last) };
        let selection = match self.by {
            By::Index => Selection::Index { start: number(first)?, stop: number(last)? },
            By::Score => scores(min, max)?,
            By::Lex => members(min, max)?,
        };
        Ok(Slice { selection, reverse: self.reverse, limit: self.limit })
    }
}

/// The older commands, whose name says what the bounds are.
fn by(args: Args<'_>, by: By, reverse: bool) -> Understood {
    let mut options = Options::read(args, 4, Allowed { by: false, scores: true })?;
    options.by = by;
    options.reverse = reverse;
    options.check()?;
    let slice = options.slice(args.at(2), args.at(3))?;
    Ok(range(args, slice, options.with_scores))
}

fn range(args: Args<'_>, slice: Slice, with_scores: bool) -> Plan {
    Operation::ZRange { key: blob(args.at(1)), slice: Arc::new(slice), with_scores }.into()
}

fn scores(min: &[u8], max: &[u8]) -> Result<Selection, Complaint> {
    Ok(Selection::Score { min: score_bound(min)?, max: score_bound(max)? })
}

fn score_bound(text: &[u8]) -> Result<ScoreBound, Complaint> {
    let (exclusive, number) = match text {
        [b'(', number @ ..] => (true, number),
        number => (false, number),
    };
    let score = loose_score(number).ok_or(Complaint::text("ERR min or max is not a float"))?;
    Ok(ScoreBound { score, exclusive })
}

fn members(min: &[u8], max: &[u8]) -> Result<Selection, Complaint> {
    Ok(Selection::Lex { min: lex_bound(min)?, max: lex_bound(max)? })
}

fn lex_bound(text: &[u8]) -> Result<LexBound, Complaint> {
    match text {
        b"-" => Ok(LexBound::First),
        b"+" => Ok(LexBound::Last),
        [b'[', member @ ..] => Ok(LexBound::Inclusive(blob(member))),
        [b'(', member @ ..] => Ok(LexBound::Exclusive(blob(member))),
        _ => Err(Complaint::text("ERR min or max not valid string range item")),
    }
}

fn combine(args: Args<'_>, combine: Combine, command: &'static str) -> Understood {
    let (inputs, with_scores) = inputs(args, 1, combine, command, true)?;
    Ok(Operation::ZCombine { inputs: Arc::new(inputs), with_scores }.into())
}

fn combine_store(args: Args<'_>, combine: Combine, command: &'static str) -> Understood {
    let (inputs, _) = inputs(args, 2, combine, command, false)?;
    Ok(Operation::ZCombineStore { target: blob(args.at(1)), inputs: Arc::new(inputs) }.into())
}

/// How often a union or an intersection may name one key: each time it is gone through, since sums of its scores depend
/// on their order.
const REPEATED_MAX: usize = 16;

/// Refuses keys among which one is too often.
pub(super) fn repeated<'k>(keys: impl ExactSizeIterator<Item = &'k Blob>) -> Result<(), Complaint> {
    if keys.len() <= REPEATED_MAX {
        return Ok(());
    }
    let mut times = BTreeMap::new();
    for key in keys {
        let times = times.entry(key).or_insert(0);
        *times += 1;
        if *times > REPEATED_MAX {
            let text = format!("ERR a key is named more than {REPEATED_MAX} times");
            return Err(Complaint::text(text));
        }
    }
    Ok(())
}

fn inputs(
    args: Args<'_>,
    at: usize,
    combine: Combine,
    command: &'static str,
    may_show_scores: bool,
) -> Result<(WeightedInputs, bool), Complaint> {
    let count = number(args.at(at))?;
    if count < 1 {
        return Err(Complaint::text(format!("ERR at least 1 input key is needed for '{command}' command")));
    }
    let (keys, mut at) = counted_keys(args, at, "ERR value is not an integer or out of range")?;
    let one = Score::new(1.0).unwrap_or(Score::ZERO);
    let mut weights = vec![one; keys.len()];
    let mut aggregate = Aggregate::Sum;
    let mut with_scores = false;
    let weighted = combine != Combine::Difference;
    while at < args.len() {
        let left = args.len() - at - 1;
        if weighted && is(args.at(at), "WEIGHTS") && left >= keys.len() {
            for (place, weight) in weights.iter_mut().enumerate() {
                *weight = Score::read_meant(args.at(at + 1 + place))
                    .ok_or(Complaint::text("ERR weight value is not a float"))?;
            }
            at += keys.len();
        } else if weighted && is(args.at(at), "AGGREGATE") && left >= 1 {
            at += 1;
            aggregate = match () {
                () if is(args.at(at), "SUM") => Aggregate::Sum,
                () if is(args.at(at), "MIN") => Aggregate::Min,
                () if is(args.at(at), "MAX") => Aggregate::Max,
                () => return Err(Complaint::Syntax),
            };
        } else if may_show_scores && is(args.at(at), "WITHSCORES") {
            with_scores = true;
        } else {
            return Err(Complaint::Syntax);
        }
        at += 1;
    }
    if weighted {
        repeated(keys.iter())?;
    }
    let inputs = keys.into_iter().zip(weights).collect();
    Ok((WeightedInputs { combine, inputs, aggregate }, with_scores))
}
