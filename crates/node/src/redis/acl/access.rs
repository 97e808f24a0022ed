//! What a command does to each of its keys, as the key specifications of Redis 7.2 say it: patterns may allow
//! reading, writing, or both.

use crate::redis::request::Args;
use crate::redis::spec::{Spec, flag};
use std::ops::Range;

/// Whether a command tells or copies what a key holds, and whether it changes it. Neither is so where it only
/// asks for type, length or existence: then any pattern that fits the key will do.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Access {
    pub(super) read: bool,
    pub(super) write: bool,
}

const NEITHER: Access = Access { read: false, write: false };
pub(super) const READ: Access = Access { read: true, write: false };
pub(super) const WRITE: Access = Access { read: false, write: true };
pub(super) const BOTH: Access = Access { read: true, write: true };

/// What a request does to its key number `nth`, counted from 0.
pub(super) fn of(spec: &Spec, nth: usize, args: Args<'_>) -> Access {
    let says = |from: usize, words: &[&str]| {
        let fits = |arg: &[u8]| words.iter().any(|word| arg.eq_ignore_ascii_case(word.as_bytes()));
        args.from(from).iter().any(fits)
    };
    match spec.name {
        "exists" | "hexists" | "hlen" | "hstrlen" | "llen" | "memory|usage" | "object|encoding"
        | "object|freq" | "object|idletime" | "object|refcount" | "scard" | "sismember" | "strlen"
        | "touch" | "type" | "watch" | "xlen" | "zcard" => NEITHER,
        // Behind the value, which may be any word.
        "set" if !says(3, &["get"]) => WRITE,
        "bitfield" if !says(2, &["set", "incrby"]) => READ,
        "bitfield" | "set" | "decr" | "decrby" | "incr" | "incrby" | "incrbyfloat" | "getdel" | "getex"
        | "getset" | "setbit" | "hincrby" | "hincrbyfloat" | "blpop" | "brpop" | "blmpop" | "lmpop"
        | "lpop" | "rpop" | "spop" | "bzmpop" | "bzpopmin" | "bzpopmax" | "zmpop" | "zpopmin" | "zpopmax"
        | "zincrby" | "eval" | "evalsha" => BOTH,
        "pfmerge" if nth == 0 => BOTH,
        "pfmerge" => READ,
        // From the first into the second.
        "rename" | "renamenx" | "lmove" | "blmove" | "rpoplpush" | "brpoplpush" | "smove" if nth == 0 => BOTH,
        "copy" | "sort" | "georadius" | "georadiusbymember" if nth == 0 => READ,
        // Into the first from the others.
        "bitop" | "sdiffstore" | "sinterstore" | "sunionstore" | "zdiffstore" | "zinterstore"
        | "zunionstore" | "zrangestore" | "geosearchstore"
            if nth > 0 =>
        {
            READ
        }
        "xreadgroup" => READ,
        _ if spec.is(flag::WRITE) => WRITE,
        _ => READ,
    }
}

/// The places of the channels of a request, and whether they are patterns, which a rule must name literally.
pub(super) fn channels(spec: &Spec, args: Args<'_>) -> (Range<usize>, bool) {
    match spec.name {
        "publish" | "spublish" => (1..2, false),
        "subscribe" | "ssubscribe" => (1..args.len(), false),
        "psubscribe" => (1..args.len(), true),
        _ => (0..0, false),
    }
}
