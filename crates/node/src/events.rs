//! What happens to keys, as Redis' keyspace notifications call it.
//!
//! The node that a client has asked makes the events of a command, of its answer (`redis::report`); the one that has expired keys
//! deleted, those of that. They are made where somebody has subscribed, at whatever node, to channels that they may be told on, and
//! that node's `notify-keyspace-events` wants their class; which these are, nodes tell each other ([`crate::hub`]).

use isochrone_core::notify::Flags;
use serde::{Deserialize, Serialize};

macro_rules! events {
    ($($event:ident $name:literal $class:ident,)*) => {
        /// An event. The order of the variants is the wire format.
        #[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
        #[allow(missing_docs)] // What they mean stands in Redis' manual, under their names.
        pub enum Event {
            $($event,)*
        }

        impl Event {
            /// What Redis calls it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Event::$event => $name,)*
                }
            }

            /// The class that it is of.
            pub const fn class(self) -> Flags {
                match self {
                    $(Event::$event => Flags::$class,)*
                }
            }
        }
    };
}

events! {
    Del "del" GENERIC,
    Expire "expire" GENERIC,
    Persist "persist" GENERIC,
    RenameFrom "rename_from" GENERIC,
    RenameTo "rename_to" GENERIC,
    CopyTo "copy_to" GENERIC,
    Restore "restore" GENERIC,
    Set "set" STRING,
    SetRange "setrange" STRING,
    Append "append" STRING,
    IncrBy "incrby" STRING,
    IncrByFloat "incrbyfloat" STRING,
    SetBit "setbit" STRING,
    PfAdd "pfadd" STRING,
    LPush "lpush" LIST,
    RPush "rpush" LIST,
    LPop "lpop" LIST,
    RPop "rpop" LIST,
    LInsert "linsert" LIST,
    LSet "lset" LIST,
    LTrim "ltrim" LIST,
    LRem "lrem" LIST,
    SortStore "sortstore" LIST,
    SAdd "sadd" SET,
    SRem "srem" SET,
    SPop "spop" SET,
    SInterStore "sinterstore" SET,
    SUnionStore "sunionstore" SET,
    SDiffStore "sdiffstore" SET,
    HSet "hset" HASH,
    HDel "hdel" HASH,
    HIncrBy "hincrby" HASH,
    HIncrByFloat "hincrbyfloat" HASH,
    ZAdd "zadd" SORTED_SET,
    ZIncr "zincr" SORTED_SET,
    ZRem "zrem" SORTED_SET,
    ZRemRangeByRank "zremrangebyrank" SORTED_SET,
    ZRemRangeByScore "zremrangebyscore" SORTED_SET,
    ZRemRangeByLex "zremrangebylex" SORTED_SET,
    ZPopMin "zpopmin" SORTED_SET,
    ZPopMax "zpopmax" SORTED_SET,
    ZRangeStore "zrangestore" SORTED_SET,
    ZUnionStore "zunionstore" SORTED_SET,
    ZInterStore "zinterstore" SORTED_SET,
    ZDiffStore "zdiffstore" SORTED_SET,
    GeoSearchStore "geosearchstore" SORTED_SET,
    XAdd "xadd" STREAM,
    XDel "xdel" STREAM,
    XTrim "xtrim" STREAM,
    XSetId "xsetid" STREAM,
    XGroupCreate "xgroup-create" STREAM,
    XGroupSetId "xgroup-setid" STREAM,
    XGroupDestroy "xgroup-destroy" STREAM,
    XGroupCreateConsumer "xgroup-createconsumer" STREAM,
    XGroupDelConsumer "xgroup-delconsumer" STREAM,
    Expired "expired" EXPIRED,
    New "new" NEW,
    KeyMiss "keymiss" MISS,
}
