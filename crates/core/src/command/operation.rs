//! The operations, and the small types they are made of.

use super::{
    Append, Chord, GroupChange, GroupRead, Kind, Restore, Score, Share, Sort, StreamId, StreamLook,
    StreamRead, StreamSlice, Trimming,
};
use crate::migration::Step;
use crate::{Blob, Stamp, geo};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Several keys, members, fields or values. Shared, since commands are cloned on their way.
pub type Keys = Arc<[Blob]>;
/// Keys or fields, each with a value.
pub type Pairs = Arc<[(Blob, Blob)]>;
/// Members, each with its score.
pub type Scored = Arc<[(Score, Blob)]>;

/// What is to be done to a keyspace. Variants are named as Redis names its commands; where Redis has many
/// spellings of one thing (`SETEX`, `GETSET`, `DECR`, `ZRANGEBYSCORE`), there is one variant and the gateway
/// translates. Names and field order are the wire format.
///
/// The size is pinned at 64 bytes, because operations are moved through every queue of a node: whatever
/// would be larger lies behind an [`Arc`].
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // Field names are Redis' own argument names.
pub enum Operation {
    // Strings.
    /// The string, or nil.
    Get { key: Blob },
    /// Sets a string, whatever was there. `Ok`, or nil where the condition failed; with `get` the string
    /// that was there before, or nil, in either case.
    Set { key: Blob, value: Blob, condition: Condition, expiry: Expiry, get: bool },
    /// The strings, nil for each key that holds none.
    MGet { keys: Keys },
    /// Sets several strings. `Ok`; with `only_if_absent` 1, or 0 and no change where any key exists.
    MSet { pairs: Pairs, only_if_absent: bool },
    /// The string, or nil; the key is deleted.
    GetDel { key: Blob },
    /// The string, or nil; its expiry is changed.
    GetEx { key: Blob, expiry: Expiry },
    /// Appends. The new length, bytes.
    Append { key: Blob, value: Blob },
    /// Length, bytes.
    StrLen { key: Blob },
    /// The bytes from `start` to `end`, both included; negative positions count from the end.
    GetRange { key: Blob, start: i64, end: i64 },
    /// Overwrites from `offset`, padding with zero bytes. The new length, bytes.
    SetRange { key: Blob, offset: u64, value: Blob },
    /// Adds to an integer. The sum.
    IncrBy { key: Blob, by: i64 },
    /// Adds to a number. The sum, as a bulk string.
    IncrByFloat { key: Blob, by: Score },

    // Keys.
    /// Deletes. How many there were.
    Del { keys: Keys },
    /// How many of these exist, repeated ones counted each time.
    Exists { keys: Keys },
    /// The same as `Exists`: nothing here remembers when a key was last used.
    Touch { keys: Keys },
    /// The type of the value.
    Type { key: Blob },
    /// Sets a deadline; one at or before the command's stamp deletes the key. 1, or 0 where there is no key
    /// or the condition failed.
    ExpireAt { key: Blob, at: Stamp, condition: ExpiryCondition },
    /// Takes the deadline away. 1, or 0 where there was none.
    Persist { key: Blob },
    /// The time left by the command's stamp, or with `absolute` the deadline since 1970; -1 without a
    /// deadline, -2 without a key.
    Ttl { key: Blob, unit: TtlUnit, absolute: bool },
    /// One page of all keys. Keys that are there from the first page to the last are returned, each once.
    Scan { cursor: u64, count: u64, pattern: Option<Blob>, kind: Option<Kind> },
    /// All keys that match.
    Keys { pattern: Blob },
    /// How many keys there are.
    DbSize,
    /// Deletes everything.
    Flush,
    /// Gives a value another key, replacing what is there. `Ok`; with `only_if_absent` 1 or 0.
    Rename { key: Blob, target: Blob, only_if_absent: bool },
    /// Copies a value with its deadline. 1, or 0 where there is nothing to copy or the target is taken.
    Copy { key: Blob, target: Blob, replace: bool },
    /// A key, chosen by the seed; nil from an empty keyspace.
    RandomKey { seed: u64 },
    /// Deletes those of these keys whose deadline lies at or before the command's stamp. How many.
    Sweep { keys: Keys },
    /// The version of a key, for WATCH: 0 when absent, else a number that every change replaces.
    Version { key: Blob },

    // Hashes.
    /// Sets fields. How many are new.
    HSet { key: Blob, pairs: Pairs },
    /// Sets a field that is not there. 1 or 0.
    HSetNx { key: Blob, field: Blob, value: Blob },
    /// The value of a field, or nil.
    HGet { key: Blob, field: Blob },
    /// The values of fields, nil for each that is not there.
    HMGet { key: Blob, fields: Keys },
    /// Deletes fields. How many there were.
    HDel { key: Blob, fields: Keys },
    /// Fields and values.
    HGetAll { key: Blob },
    /// Fields.
    HKeys { key: Blob },
    /// Values.
    HVals { key: Blob },
    /// How many fields.
    HLen { key: Blob },
    /// Whether a field is there.
    HExists { key: Blob, field: Blob },
    /// Adds to an integer. The sum.
    HIncrBy { key: Blob, field: Blob, by: i64 },
    /// Adds to a number. The sum, as a bulk string.
    HIncrByFloat { key: Blob, field: Blob, by: Score },
    /// Length of a value, bytes.
    HStrLen { key: Blob, field: Blob },
    /// A field chosen by the seed; with a count that many different ones, with a negative one that many
    /// with repetition.
    HRandField { key: Blob, count: Option<i64>, seed: u64, with_values: bool },
    /// One page of fields and values.
    HScan { key: Blob, cursor: u64, count: u64, pattern: Option<Blob> },

    // Lists.
    /// Pushes values one by one. The new length.
    Push { key: Blob, values: Keys, side: Side, only_if_exists: bool },
    /// Pops. An element or nil; with a count an array, nil where there is no list.
    Pop { key: Blob, side: Side, count: Option<u64> },
    /// Pops from the first list that is not empty: its key and the elements, or the nil array.
    LMPop { keys: Keys, side: Side, count: u64 },
    /// How many elements.
    LLen { key: Blob },
    /// The elements from `start` to `stop`, both included; negative positions count from the end.
    LRange { key: Blob, start: i64, stop: i64 },
    /// One element, or nil.
    LIndex { key: Blob, index: i64 },
    /// Replaces one element.
    LSet { key: Blob, index: i64, value: Blob },
    /// Keeps the elements from `start` to `stop`, both included.
    LTrim { key: Blob, start: i64, stop: i64 },
    /// Removes elements equal to `value`: the first `count`, the last `-count`, or all for 0. How many.
    LRem { key: Blob, count: i64, value: Blob },
    /// Inserts beside the first element equal to `pivot`. The new length, -1 without the pivot, 0 without
    /// the list.
    LInsert { key: Blob, before: bool, pivot: Blob, value: Blob },
    /// Positions of elements equal to `element`: from the `rank`-th match (negative: from the end, never 0),
    /// `count` of them (0: all; `None`: one, and the answer is a number or nil), looking at `length`
    /// elements (0: all).
    LPos { key: Blob, element: Blob, rank: i64, count: Option<u32>, length: u32 },
    /// Moves one element between lists, or within one. The element, or nil.
    LMove { source: Blob, target: Blob, from: Side, to: Side },

    // Sets.
    /// Adds members. How many are new.
    SAdd { key: Blob, members: Keys },
    /// Removes members. How many there were.
    SRem { key: Blob, members: Keys },
    /// All members.
    SMembers { key: Blob },
    /// Whether this is a member.
    SIsMember { key: Blob, member: Blob },
    /// Whether these are members, one by one.
    SMIsMember { key: Blob, members: Keys },
    /// How many members.
    SCard { key: Blob },
    /// Removes members chosen by the seed: one, or that many as a set.
    SPop { key: Blob, count: Option<u64>, seed: u64 },
    /// Members chosen by the seed; the count as for `HRandField`.
    SRandMember { key: Blob, count: Option<i64>, seed: u64 },
    /// Moves a member. 1, or 0 where it is not in the source.
    SMove { source: Blob, target: Blob, member: Blob },
    /// `SINTER`, `SUNION`, `SDIFF`.
    SCombine { combine: Combine, keys: Keys },
    /// The same, stored. How many members.
    SCombineStore { combine: Combine, target: Blob, keys: Keys },
    /// How many members the intersection has, counted up to `limit` (0: all).
    SInterCard { keys: Keys, limit: u64 },
    /// One page of members.
    SScan { key: Blob, cursor: u64, count: u64, pattern: Option<Blob> },

    // Sorted sets.
    /// Adds members or changes scores. How many are new, with `flags.changed` new or changed.
    ZAdd { key: Blob, flags: ZAddFlags, members: Scored },
    /// Adds to a score, a new member's being 0. The sum, or nil where the flags forbid it.
    ZIncrBy { key: Blob, member: Blob, by: Score, flags: ZAddFlags },
    /// Removes members. How many there were.
    ZRem { key: Blob, members: Keys },
    /// A score, or nil.
    ZScore { key: Blob, member: Blob },
    /// Scores, nil for each that is no member.
    ZMScore { key: Blob, members: Keys },
    /// How many members.
    ZCard { key: Blob },
    /// How many members in a range: `ZCOUNT`, `ZLEXCOUNT`.
    ZCount { key: Blob, range: Arc<Selection> },
    /// Members in a range: `ZRANGE` and all its kin.
    ZRange { key: Blob, slice: Arc<Slice>, with_scores: bool },
    /// The same, stored. How many members.
    ZRangeStore { target: Blob, source: Blob, slice: Arc<Slice> },
    /// Position from 0, or nil; `with_score` an array of it and the score.
    ZRank { key: Blob, member: Blob, reverse: bool, with_score: bool },
    /// Removes the least or greatest members: one (an array of member and score, or empty), or with a count
    /// that many pairs.
    ZPop { key: Blob, end: End, count: Option<u64> },
    /// Pops from the first sorted set that is not empty: its key and the pairs, or the nil array.
    ZMPop { keys: Keys, end: End, count: u64 },
    /// Removes a range. How many.
    ZRemRange { key: Blob, range: Arc<Selection> },
    /// `ZUNION`, `ZINTER`, `ZDIFF`.
    ZCombine { inputs: Arc<WeightedInputs>, with_scores: bool },
    /// The same, stored. How many members.
    ZCombineStore { target: Blob, inputs: Arc<WeightedInputs> },
    /// How many members the intersection has, counted up to `limit` (0: all).
    ZInterCard { keys: Keys, limit: u64 },
    /// Members chosen by the seed; the count as for `HRandField`.
    ZRandMember { key: Blob, count: Option<i64>, seed: u64, with_scores: bool },
    /// One page of members and scores.
    ZScan { key: Blob, cursor: u64, count: u64, pattern: Option<Blob> },

    // Transactions.
    /// `MULTI` ... `EXEC`: the answers of the operations as an array, executed with nothing between them and
    /// all with the command's stamp; the nil array, and no change, where a watched key's version (see
    /// `Version`, and `Watch` for keys that are absent) is no longer the one given, or for [`PRESENT`] where the key is not there.
    Transaction { watched: Arc<[(Blob, u64)]>, operations: Arc<[Operation]> },

    // Bitmaps: strings whose bit 0 is the highest of the first byte.
    /// Sets one bit, padding with zero bytes. The bit that was there.
    SetBit { key: Blob, offset: u64, on: bool },
    /// One bit; 0 beyond the end.
    GetBit { key: Blob, offset: u64 },
    /// How many bits are 1.
    BitCount { key: Blob, range: Option<BitRange> },
    /// The first bit like this one, or -1. Where the range is `open` to the right, the string goes on with
    /// zeros.
    BitPos { key: Blob, on: bool, range: BitRange, open: bool },
    /// Combines strings bit by bit, shorter ones padded with zeros. The length of the result, bytes; an
    /// empty one deletes the target.
    BitOp { combine: BitCombine, target: Blob, keys: Keys },
    /// Reads and changes numbers of any width, in order: the answers, nil for each that would overflow and
    /// may not. Changes first pad the string to the end of the last number changed.
    BitField { key: Blob, steps: Arc<[BitStep]> },

    // What objects and locks are asked.
    /// The name that Redis has for the form in which it would keep this value, or nil.
    Encoding { key: Blob },
    /// Deletes a key if it holds this string. 1 or 0.
    DelIf { key: Blob, value: Blob },
    /// Moves the deadline of a key if it holds this string. 1 or 0.
    ExpireIf { key: Blob, value: Blob, deadline: DeadlineChange },

    // Streams.
    /// Adds an entry. Its identifier, or nil where there is no stream and none may be made.
    XAdd { key: Blob, append: Arc<Append> },
    /// How many entries.
    XLen { key: Blob },
    /// Entries in a range: an array of identifier and flat fields and values each.
    XRange { key: Blob, slice: Arc<StreamSlice> },
    /// Deletes entries. How many there were.
    XDel { key: Blob, ids: Arc<[StreamId]> },
    /// Removes the oldest entries. How many.
    XTrim { key: Blob, trimming: Arc<Trimming> },
    /// Entries of several streams behind what is known of each: pairs of key and entries, or the nil array. See
    /// [`StreamRead::resolve`].
    XRead { read: Arc<StreamRead> },

    // Scripts that are more than a transaction.
    /// A step of a celery chord; what it answers stands there.
    ChordStep { chord: Arc<Chord> },

    // What moves keys between partitions; no client asks for it.
    /// A step of a move; what it answers stands there.
    Move { step: Arc<Step> },

    // What a client asks of all keys, as one of several partitions is asked.
    /// A partition's share of what is asked of all keys; what it answers stands there.
    Share { share: Arc<Share> },

    // Values as a whole.
    /// What a key holds, or nil.
    Dump { key: Blob },
    /// Gives a key a value. `Ok`, also where its deadline lies at or before the command's stamp: then nothing is there.
    Restore { key: Blob, restore: Arc<Restore> },
    /// About how many bytes of memory a key takes with its value, or nil; of a collection so many elements are looked at, 0
    /// for all.
    Weight { key: Blob, samples: u64 },

    // Consumer groups of streams.
    /// Changes a group, or what a stream remembers; what it answers stands there.
    XGroup { key: Blob, change: Arc<GroupChange> },
    /// Entries of several streams for a consumer of a group: pairs of key and entries, or the nil array.
    XReadGroup { read: Arc<GroupRead> },
    /// What is asked about a stream and its groups.
    XInfo { key: Blob, look: Arc<StreamLook> },

    // Points on the earth, which are the scores of a sorted set's members.
    /// Members in an area; `detailed` an array of member, distance in the unit of the search, and score each.
    GeoSearch { key: Blob, search: Arc<geo::Search>, detailed: bool },
    /// The same, stored as a sorted set by their scores, or by their distances. How many members.
    GeoSearchStore { target: Blob, source: Blob, search: Arc<geo::Search>, distances: bool },
    // HyperLogLogs: strings from which it is told about how many different elements they were given.
    /// Adds elements. 1 where that changes the string, or makes it; else 0.
    PfAdd { key: Blob, elements: Keys },
    /// About how many different elements these were given together; of a single key what its string says of itself, if it does.
    PfCount { keys: Keys },
    /// Gives the target what it and these were given. `Ok`.
    PfMerge { target: Blob, keys: Keys },

    // Lists, sets and sorted sets.
    /// The elements, sorted, or what is given of them.
    Sort { key: Blob, sort: Arc<Sort> },
    /// The same, stored as a list. Its length.
    SortStore { target: Blob, source: Blob, sort: Arc<Sort> },

    // Strings within the limits of those who ask.
    /// Appends, unless the string would then have more than `most` bytes. The new length, bytes.
    AppendWithin { key: Blob, value: Blob, most: u64 },

    // Counters of limiters of rates.
    /// Adds to an integer, which expires at `until` where it has no deadline; `anew` where a key that has none, of any type, is
    /// replaced. An array of the sum, and the milliseconds until the deadline.
    CountUntil { key: Blob, by: i64, until: Stamp, anew: bool },

    // What is asked with a command, to know what it has done.
    /// Which of these keys the command that this is a part of has deleted because their time was over: an array of 1 and 0. Where two
    /// commands that only read find one key over at once, and a protocol lets replicas execute them in either order, both may say so.
    Expired { keys: Keys },

    // Conditions of transactions.
    /// As `Version`; but where the key is absent, an even number above 0 that stands for this absence, until a value is put there, and
    /// for five minutes after it was last asked for. The seed tells those apart that two ask for in one nanosecond.
    Watch { key: Blob, seed: u64 },
}

impl Operation {
    /// The name for metrics and traces: the command of Redis that is nearest, lower case.
    pub fn name(&self) -> &'static str {
        use Operation::*;
        match self {
            Get { .. } => "get",
            Set { .. } => "set",
            MGet { .. } => "mget",
            MSet { .. } => "mset",
            GetDel { .. } => "getdel",
            GetEx { .. } => "getex",
            Append { .. } | AppendWithin { .. } => "append",
            StrLen { .. } => "strlen",
            GetRange { .. } => "getrange",
            SetRange { .. } => "setrange",
            IncrBy { .. } | CountUntil { .. } => "incrby",
            IncrByFloat { .. } => "incrbyfloat",
            Del { .. } => "del",
            Exists { .. } => "exists",
            Touch { .. } => "touch",
            Type { .. } => "type",
            ExpireAt { .. } => "expireat",
            Persist { .. } => "persist",
            Ttl { .. } => "ttl",
            Scan { .. } => "scan",
            Keys { .. } => "keys",
            DbSize => "dbsize",
            Flush => "flushdb",
            Rename { .. } => "rename",
            Copy { .. } => "copy",
            RandomKey { .. } => "randomkey",
            Sweep { .. } => "sweep",
            Version { .. } | Watch { .. } => "watch",
            HSet { .. } => "hset",
            HSetNx { .. } => "hsetnx",
            HGet { .. } => "hget",
            HMGet { .. } => "hmget",
            HDel { .. } => "hdel",
            HGetAll { .. } => "hgetall",
            HKeys { .. } => "hkeys",
            HVals { .. } => "hvals",
            HLen { .. } => "hlen",
            HExists { .. } => "hexists",
            HIncrBy { .. } => "hincrby",
            HIncrByFloat { .. } => "hincrbyfloat",
            HStrLen { .. } => "hstrlen",
            HRandField { .. } => "hrandfield",
            HScan { .. } => "hscan",
            Push { side: Side::Left, .. } => "lpush",
            Push { side: Side::Right, .. } => "rpush",
            Pop { side: Side::Left, .. } => "lpop",
            Pop { side: Side::Right, .. } => "rpop",
            LMPop { .. } => "lmpop",
            LLen { .. } => "llen",
            LRange { .. } => "lrange",
            LIndex { .. } => "lindex",
            LSet { .. } => "lset",
            LTrim { .. } => "ltrim",
            LRem { .. } => "lrem",
            LInsert { .. } => "linsert",
            LPos { .. } => "lpos",
            LMove { .. } => "lmove",
            SAdd { .. } => "sadd",
            SRem { .. } => "srem",
            SMembers { .. } => "smembers",
            SIsMember { .. } => "sismember",
            SMIsMember { .. } => "smismember",
            SCard { .. } => "scard",
            SPop { .. } => "spop",
            SRandMember { .. } => "srandmember",
            SMove { .. } => "smove",
            SCombine { combine: Combine::Intersection, .. } => "sinter",
            SCombine { combine: Combine::Union, .. } => "sunion",
            SCombine { combine: Combine::Difference, .. } => "sdiff",
            SCombineStore { combine: Combine::Intersection, .. } => "sinterstore",
            SCombineStore { combine: Combine::Union, .. } => "sunionstore",
            SCombineStore { combine: Combine::Difference, .. } => "sdiffstore",
            SInterCard { .. } => "sintercard",
            SScan { .. } => "sscan",
            ZAdd { .. } => "zadd",
            ZIncrBy { .. } => "zincrby",
            ZRem { .. } => "zrem",
            ZScore { .. } => "zscore",
            ZMScore { .. } => "zmscore",
            ZCard { .. } => "zcard",
            ZCount { .. } => "zcount",
            ZRange { .. } => "zrange",
            ZRangeStore { .. } => "zrangestore",
            ZRank { .. } => "zrank",
            ZPop { end: End::Least, .. } => "zpopmin",
            ZPop { end: End::Greatest, .. } => "zpopmax",
            ZMPop { .. } => "zmpop",
            ZRemRange { .. } => "zremrange",
            ZCombine { .. } => "zcombine",
            ZCombineStore { .. } => "zcombinestore",
            ZInterCard { .. } => "zintercard",
            ZRandMember { .. } => "zrandmember",
            ZScan { .. } => "zscan",
            Transaction { .. } => "exec",
            SetBit { .. } => "setbit",
            GetBit { .. } => "getbit",
            BitCount { .. } => "bitcount",
            BitPos { .. } => "bitpos",
            BitOp { .. } => "bitop",
            BitField { .. } => "bitfield",
            Encoding { .. } => "object",
            DelIf { .. } => "delif",
            ExpireIf { .. } => "expireif",
            XAdd { .. } => "xadd",
            XLen { .. } => "xlen",
            XRange { .. } => "xrange",
            XDel { .. } => "xdel",
            XTrim { .. } => "xtrim",
            XRead { .. } => "xread",
            ChordStep { .. } => "chord",
            Move { .. } => "move",
            Share { share } => share.operation.name(),
            Dump { .. } => "dump",
            Restore { .. } => "restore",
            Weight { .. } => "memory",
            XGroup { change, .. } => match **change {
                GroupChange::Acknowledge { .. } => "xack",
                GroupChange::Claim { .. } => "xclaim",
                GroupChange::ClaimFrom { .. } => "xautoclaim",
                GroupChange::Remember { .. } => "xsetid",
                _ => "xgroup",
            },
            XReadGroup { .. } => "xreadgroup",
            XInfo { look, .. } => match **look {
                StreamLook::Pending { .. } | StreamLook::PendingRange { .. } => "xpending",
                _ => "xinfo",
            },
            GeoSearch { .. } => "geosearch",
            GeoSearchStore { .. } => "geosearchstore",
            PfAdd { .. } => "pfadd",
            PfCount { .. } => "pfcount",
            PfMerge { .. } => "pfmerge",
            Sort { .. } | SortStore { .. } => "sort",
            Expired { .. } => "expired",
        }
    }
}

/// When a write takes place.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Condition {
    /// Whatever is there.
    #[default]
    Always,
    /// Only where nothing is there (`NX`).
    IfAbsent,
    /// Only where something is there (`XX`).
    IfPresent,
}

/// What becomes of a key's deadline.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Expiry {
    /// There is none any more.
    #[default]
    Clear,
    /// It stays as it was.
    Keep,
    /// The key expires at this wall-clock time.
    At(Stamp),
}

/// When a deadline is set; a key without one counts as living for ever.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default, Serialize, Deserialize)]
pub enum ExpiryCondition {
    /// Whatever it was.
    #[default]
    Always,
    /// Only where there is none (`NX`).
    IfNone,
    /// Only where there is one (`XX`).
    IfSome,
    /// Only to a later one (`GT`).
    IfLater,
    /// Only to an earlier one (`LT`).
    IfEarlier,
    /// Only where there is one, to an earlier one (`XX LT`; `XX GT` is no more than `GT`).
    IfSomeEarlier,
}

/// What a time to live is counted in.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum TtlUnit {
    /// Seconds, rounded to the nearest.
    Seconds,
    /// Milliseconds.
    Millis,
}

/// An end of a list.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum Side {
    /// The head, position 0.
    Left,
    /// The tail, position -1.
    Right,
}

/// An end of a sorted set.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum End {
    /// The lowest scores (`MIN`).
    Least,
    /// The highest scores (`MAX`).
    Greatest,
}

/// In the place of a watched key's version: any, so long as the key is there.
pub const PRESENT: u64 = u64::MAX;

/// How sets are combined.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum Combine {
    /// What is in any.
    Union,
    /// What is in all.
    Intersection,
    /// What is in the first and in none of the others.
    Difference,
}

/// What becomes of the scores of a member that several inputs have.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Aggregate {
    /// Their sum.
    #[default]
    Sum,
    /// The lowest.
    Min,
    /// The highest.
    Max,
}

/// Inputs of a combination of sorted sets; plain sets count as having all scores 1.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct WeightedInputs {
    /// How they are combined; a difference ignores weights and aggregate.
    pub combine: Combine,
    /// Each input with the factor for its scores.
    pub inputs: Vec<(Blob, Score)>,
    /// How scores of one member are joined.
    pub aggregate: Aggregate,
}

/// What `ZADD` may do. `NX` excludes the others, `GT` excludes `LT`: gateways refuse such mixtures.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default, Serialize, Deserialize)]
pub struct ZAddFlags {
    /// Only new members (`IfAbsent`), or only members that are there (`IfPresent`).
    pub condition: Condition,
    /// Which new scores of members that are there are taken.
    pub scores: ScoreCondition,
    /// Answer how many are new or changed, not only how many are new (`CH`).
    pub changed: bool,
}

/// Which new scores are taken.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default, Serialize, Deserialize)]
pub enum ScoreCondition {
    /// All.
    #[default]
    Any,
    /// Only higher ones (`GT`).
    Greater,
    /// Only lower ones (`LT`).
    Less,
}

/// A bound of a range of scores.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct ScoreBound {
    /// The score.
    pub score: Score,
    /// Whether the score itself is left out.
    pub exclusive: bool,
}

/// A bound of a range of members that all have one score, in the order of their bytes.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum LexBound {
    /// Before every member (`-`).
    First,
    /// Behind every member (`+`).
    Last,
    /// At this member (`[`).
    Inclusive(Blob),
    /// Beside this member (`(`).
    Exclusive(Blob),
}

/// A range of a sorted set, in ascending order whatever the direction of the answer: the gateway swaps the
/// bounds of the `REV` forms of score and lexicographic ranges. Positions of a `REV` range by index count
/// from the greatest member.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Selection {
    /// By position, both included; negative positions count from the end.
    Index {
        /// The first.
        start: i64,
        /// The last.
        stop: i64,
    },
    /// By score.
    Score {
        /// The lower bound.
        min: ScoreBound,
        /// The upper bound.
        max: ScoreBound,
    },
    /// By member.
    Lex {
        /// The lower bound.
        min: LexBound,
        /// The upper bound.
        max: LexBound,
    },
}

/// A range with direction and page.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Slice {
    /// The range.
    pub selection: Selection,
    /// From the greatest to the least.
    pub reverse: bool,
    /// A page of it; not for ranges by index.
    pub limit: Option<Limit>,
}

/// A page of a range.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Limit {
    /// How many are passed over; negative gives nothing.
    pub offset: i64,
    /// How many are given; negative gives all.
    pub count: i64,
}

/// A range of a bitmap, both ends included; negative positions count from the end.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct BitRange {
    /// The first.
    pub start: i64,
    /// The last.
    pub end: i64,
    /// Whether positions count bits, not bytes.
    pub bits: bool,
}

/// How bitmaps are combined.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum BitCombine {
    /// What is 1 in all.
    And,
    /// What is 1 in any.
    Or,
    /// What is 1 in an odd number of them.
    Xor,
    /// What is 0 in the first; there is only one.
    Not,
}

/// A number in a bitmap.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct BitNumber {
    /// The position of its highest bit.
    pub offset: u64,
    /// How many bits it has: 1 to 64, to 63 where it is unsigned.
    pub width: u8,
    /// Whether its highest bit is its sign.
    pub signed: bool,
}

/// One step of `BITFIELD`.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum BitStep {
    /// The number.
    Get(BitNumber),
    /// Replaces the number. What it was.
    Set(BitNumber, i64, BitOverflow),
    /// Adds to the number. The sum.
    IncrBy(BitNumber, i64, BitOverflow),
}

/// What becomes of a number that is too large for its width.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default, Serialize, Deserialize)]
pub enum BitOverflow {
    /// Its lowest bits.
    #[default]
    Wrap,
    /// The largest or smallest there is.
    Saturate,
    /// Nothing is changed.
    Fail,
}

/// How a deadline is moved.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum DeadlineChange {
    /// To this; one at or before the command's stamp deletes the key.
    To(Stamp),
    /// To this, only where there is one.
    MoveTo(Stamp),
    /// By so many milliseconds, only where there is one.
    MoveBy(i64),
}
