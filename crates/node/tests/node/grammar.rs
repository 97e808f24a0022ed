//! A grammar of commands, one of its sentences at random, and a real `redis-server` that answers it. Shared by the
//! tests that compare: of the node without a protocol, and of whole clusters.

use isochrone_core::Random;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What is sent, a line a form: `K` is a key, `V` a value, `F` a field or member, `N` an integer, `X` a position,
/// `S` a score, `W` a weight, `B` a bound of scores, `L` a bound of members, `ID` an identifier of a stream's entry, `I*` one to be completed, `T` a time to come, `TT` the same in
/// milliseconds; `P` a payload of DUMP, `Q` one that holds nothing; the rest is sent as it is.
/// Members of `lex` all have one score, since ranges of members are defined only then. `w`, which is watched,
/// is only written anew: what leaves a key as it was is a change in Redis here and there, and none in this program.
/// `G` is a group, `C` a consumer; `LON` and `LAT` are degrees, `R` is a length, `U` its unit. Fewer than seven places are ever
/// in `geo`: of more, Redis gives those of one distance in any order where some are left out. What is stored by distance is in
/// `far`, whose scores are not compared: their last digit depends on the machine. `H`, `HG` and `HD` are HyperLogLogs: those of
/// `HD` may be damaged, those of `HG` are read whole, so never counted alone, which in Redis changes them. `E` is an element, `HB` a
/// HyperLogLog as bytes, `HX` one that may be damaged. A `~` in front says that the reply has no order, `%` that it has none two by
/// two, `^` that it has times, which are compared roughly, `=` that it has distances, of which so are those that are far.
pub const FORMS: &str = "
SET K V
SET K V NX
SET K V XX GET
SET K V KEEPTTL
SET K V EXAT T
SET K N
GET K
GETSET K V
GETDEL K
GETEX K EXAT T
GETEX K PERSIST
MGET K K K
MSET K V K V
MSETNX K V K V
SETNX K V
APPEND K V
STRLEN K
GETRANGE K X X
SETRANGE K N V
SUBSTR K X X
INCR K
DECR K
INCRBY K N
DECRBY K N
INCRBYFLOAT K S
SETBIT K N 0
SETBIT K N 1
GETBIT K N
BITCOUNT K
BITCOUNT K X X
BITCOUNT K X X BIT
BITPOS K 0
BITPOS K 1 X
BITPOS K 0 X X
BITPOS K 1 X X BIT
BITPOS K 0 X X BYTE
BITOP AND K K K
BITOP OR K K
BITOP XOR K K K K
BITOP NOT K K
BITFIELD K GET u4 N SET i8 N N
BITFIELD K OVERFLOW SAT INCRBY u3 #N N GET i5 N
BITFIELD K OVERFLOW FAIL INCRBY i4 N N
BITFIELD_RO K GET u7 N GET i64 N
DEL K
DEL K K
UNLINK K
EXISTS K K K
TOUCH K K
TYPE K
EXPIREAT K T
EXPIREAT K T NX
EXPIREAT K T XX
EXPIREAT K T GT
EXPIREAT K T LT
PEXPIREAT K TT
EXPIRETIME K
PEXPIRETIME K
PERSIST K
RENAME K K
RENAMENX K K
COPY K K
COPY K K REPLACE
~KEYS *
DBSIZE
OBJECT
OBJECT NOSUCH K
OBJECT ENCODING
OBJECT ENCODING never
OBJECT ENCODING lex
OBJECT ENCODING one
OBJECT ENCODING one-field
OBJECT ENCODING one-member
OBJECT ENCODING K K
OBJECT FREQ K
OBJECT FREQ
OBJECT FREQ K K
OBJECT IDLETIME never
OBJECT IDLETIME
OBJECT IDLETIME K K
OBJECT REFCOUNT never
OBJECT REFCOUNT lex
OBJECT REFCOUNT
OBJECT REFCOUNT K K
OBJECT HELP K
HSET K F V
HSET K F V F V
HMSET K F V
HSETNX K F V
HSET K F N
HGET K F
HMGET K F F
HDEL K F F
%HGETALL K
~HKEYS K
~HVALS K
HLEN K
HEXISTS K F
HINCRBY K F N
HINCRBYFLOAT K F S
HSTRLEN K F
LPUSH K F
LPUSH K V F
RPUSH K F F
LPUSHX K F
RPUSHX K F
LPOP K
RPOP K
LPOP K N
RPOP K N
LLEN K
LRANGE K X X
LINDEX K X
LSET K X V
LTRIM K X X
LREM K X F
LINSERT K BEFORE F V
LINSERT K AFTER F V
LPOS K F
LPOS K F RANK X COUNT N
LPOS K F COUNT 0 MAXLEN N
LMOVE K K LEFT RIGHT
LMOVE K K RIGHT LEFT
RPOPLPUSH K K
LMPOP 2 K K LEFT COUNT N
LMPOP 1 K RIGHT
BLPOP K K 0.01
SADD K F F
SADD K N N
SREM K F
~SMEMBERS K
SISMEMBER K F
SMISMEMBER K F F
SCARD K
SMOVE K K F
~SINTER K K
~SUNION K K
~SDIFF K K
SINTERSTORE K K K
SUNIONSTORE K K K
SDIFFSTORE K K K
SINTERCARD 2 K K
SINTERCARD 2 K K LIMIT N
ZADD K S F
ZADD K S F S F
ZADD K NX S F
ZADD K XX CH S F
ZADD K GT S F
ZADD K LT CH S F
ZADD K INCR S F
ZADD K 0x1.4p1 F -0XA F
ZADD K 0x F
ZINCRBY K S F
ZINCRBY K 0x.8p-1 F
INCRBYFLOAT K 0x1p1
ZREM K F
ZSCORE K F
ZMSCORE K F F
ZCARD K
ZCOUNT K B B
ZADD lex 0 F 0 F
ZADD lex 0 V
ZRANGE lex L L BYLEX REV LIMIT N X
ZREM lex F
ZLEXCOUNT lex L L
ZRANGE K X X
ZRANGE K X X LIMIT X -1
ZRANGE K X X REV LIMIT X N
ZRANGE K X X WITHSCORES
SRANDMEMBER K -9223372036854775808
HRANDFIELD K 9223372036854775807 WITHVALUES
ZRANDMEMBER K -4611686018427387904 WITHSCORES x
ZRANDMEMBER K -4611686018427387904 WITHSCORES
ZRANDMEMBER K 4611686018427387904 WITHSCORES
SCAN 0 COUNT 1000 TYPE foo
ZRANGE K X X REV
ZRANGE K B B BYSCORE
ZRANGE K B B BYSCORE REV LIMIT N X
ZRANGE lex L L BYLEX
ZRANGEBYSCORE K B B WITHSCORES
ZREVRANGEBYSCORE K B B LIMIT N X
ZRANGEBYLEX lex L L
ZREVRANGEBYLEX lex L L
ZREVRANGE K X X
ZRANGESTORE K K X X
ZRANGESTORE K K B B BYSCORE
ZRANK K F
ZREVRANK K F
ZPOPMIN K
ZPOPMAX K
ZPOPMIN K N
ZMPOP 2 K K MIN COUNT N
ZMPOP 1 K MAX
ZREMRANGEBYRANK K X X
ZREMRANGEBYSCORE K B B
ZREMRANGEBYLEX lex L L
ZUNION 2 K K WITHSCORES
ZINTER 2 K K WEIGHTS W W
ZDIFF 2 K K
ZUNIONSTORE K 2 K K AGGREGATE MAX
ZINTERSTORE K 2 K K WEIGHTS W W
ZDIFFSTORE K 2 K K
ZINTERCARD 2 K K LIMIT N
RPUSH srt F N S
RPUSH srt N N -7 -0 0
RPUSH srt 0.5 N
LREM srt 0 F
LPOP srt
DEL srt
SORT K
SORT K DESC
SORT K LIMIT N N
SORT K LIMIT X X GET # GET nope GET #
SORT srt BY nosort LIMIT X X GET #
ZADD scored S F S F
SORT scored BY nosort DESC LIMIT X X
SORT scored BY nosort LIMIT X X
SORT scored ALPHA GET #
~SORT K BY nosort
SORT srt BY nosort DESC
SORT srt ALPHA
SORT srt ALPHA DESC LIMIT 1 X
SORT srt ASC DESC ALPHA STORE K
SORT K STORE K
SORT K STORE srt
SORT K BY nosort STORE K
SORT K BY nosort DESC STORE srt
SORT srt LIMIT X N GET nope GET # STORE K
SORT srt STORE
SORT srt LIMIT 1
SORT srt LIMIT x 1
SORT srt BY
SORT srt NOSUCH
SORT_RO K DESC LIMIT 0 2
SORT_RO srt ALPHA GET #
SORT_RO srt STORE K
GEOADD geo LON LAT F
GEOADD geo LON LAT F LON LAT F
GEOADD geo NX CH LON LAT F
GEOADD geo XX CH LON LAT F LON LAT F
GEOADD one LON LAT F
GEOADD geo XX NX LON LAT F
GEOADD geo CH LON LAT
GEOADD geo NX CH CH
GEOADD geo 180.1 LAT F
GEOADD geo LON LAT F LON -85.06 F
GEOADD geo LON nan F
GEOADD geo inf LAT F
GEOADD geo 1e300 LAT F
GEOADD geo x LAT F
=GEODIST geo F F
=GEODIST geo F F U
=GEODIST K F F U
=GEODIST geo F F yd
=GEODIST geo F F U U
GEOHASH geo F F V
GEOHASH K F
GEOHASH K
GEOPOS geo F F V
GEOPOS K F F
GEOPOS geo
GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS R U
=GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS R U ASC WITHDIST
=GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS R U DESC WITHHASH WITHCOORD WITHDIST
GEOSEARCH geo BYBOX R R U FROMLONLAT LON LAT WITHCOORD
=GEOSEARCH geo FROMLONLAT LON LAT BYBOX R R U ASC COUNT N WITHDIST
=GEOSEARCH geo FROMMEMBER F BYRADIUS R U WITHDIST
GEOSEARCH geo FROMMEMBER F BYRADIUS R U COUNT 3
GEOSEARCH geo FROMMEMBER F BYBOX R R U COUNT 2 ANY
GEOSEARCH geo FROMMEMBER F BYRADIUS R U DESC COUNT 2 ANY WITHHASH
GEOSEARCH K FROMLONLAT LON LAT BYRADIUS R U WITHHASH
GEOSEARCH K FROMLONLAT LON LAT BYBOX R R U ASC WITHCOORD
GEOSEARCH geo FROMLONLAT LON LAT FROMMEMBER F BYRADIUS R U
GEOSEARCH geo FROMLONLAT LON LAT FROMLONLAT LON LAT BYRADIUS R U
GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS R U BYBOX R R U
GEOSEARCH geo FROMLONLAT LON LAT ASC DESC
GEOSEARCH geo BYRADIUS R U ASC DESC
GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS -1 U
GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS nan U
GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS R yd
GEOSEARCH geo FROMLONLAT LON LAT BYBOX R -1 U
GEOSEARCH geo FROMLONLAT LON LAT BYBOX x R U
GEOSEARCH geo FROMLONLAT LON LAT BYBOX R x U
GEOSEARCH geo FROMLONLAT LON 90 BYRADIUS R U
GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS R U ANY
GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS R U COUNT 0
GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS R U COUNT x
GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS R U COUNT
GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS R U STOREDIST
GEOSEARCH geo FROMLONLAT LON LAT BYRADIUS R U STORE far
GEOSEARCHSTORE geo geo FROMLONLAT LON LAT BYRADIUS 20000 km COUNT 4
GEOSEARCHSTORE near geo FROMLONLAT LON LAT BYRADIUS R U
GEOSEARCHSTORE near geo FROMMEMBER F BYBOX R R U COUNT 2
GEOSEARCHSTORE K K FROMLONLAT LON LAT BYBOX R R U
GEOSEARCHSTORE far geo FROMMEMBER F BYRADIUS R U STOREDIST
GEOSEARCHSTORE far geo FROMLONLAT LON LAT BYRADIUS R U STOREDIST DESC COUNT 2
GEOSEARCHSTORE far geo FROMLONLAT LON LAT BYRADIUS R U WITHDIST
ZRANGE geo 0 -1 WITHSCORES
ZRANGE far 0 -1
ZRANGE near 0 -1 WITHSCORES
GEORADIUS geo LON LAT R U
=GEORADIUS geo LON LAT R U WITHDIST WITHCOORD WITHHASH COUNT N
GEORADIUS geo LON LAT R U STORE near
GEORADIUS geo LON LAT R U STORE K STOREDIST far ASC COUNT 3
GEORADIUS geo LON LAT R U WITHDIST STORE K
GEORADIUS K LON LAT R U DESC WITHCOORD
=GEORADIUS_RO geo LON LAT R U ASC WITHDIST
GEORADIUS_RO geo LON LAT R U STORE K
GEORADIUS_RO K LON LAT R U
GEORADIUSBYMEMBER geo F R U
GEORADIUSBYMEMBER geo F R U WITHCOORD COUNT 2 ANY
GEORADIUSBYMEMBER geo F R U STOREDIST far
GEORADIUSBYMEMBER geo F R U STORE near DESC COUNT 1
GEORADIUSBYMEMBER geo nobody R U
GEORADIUSBYMEMBER never F R U BYRADIUS 1 km
=GEORADIUSBYMEMBER_RO geo F R U WITHDIST DESC
GEORADIUSBYMEMBER_RO never F R U STOREDIST far
XADD K ID F V
XADD K ID F V V F
XADD K I* F V
XADD K NOMKSTREAM ID F V
XADD K MAXLEN N ID F V
XADD K MAXLEN = 2 NOMKSTREAM ID F V
XADD K MINID ID ID F V
XADD st ID F V
XADD st I* F V
XLEN K
XRANGE K - +
XRANGE st - +
XRANGE st ID ID
XRANGE st (ID + COUNT N
XREVRANGE st + - COUNT 2
XREVRANGE st (ID (ID
XDEL st ID ID
XDEL K ID
XTRIM st MAXLEN 3
XTRIM st MINID = ID
XTRIM K MAXLEN N
XREAD STREAMS st ID
XREAD COUNT N STREAMS st K ID ID
XREAD COUNT 1 STREAMS st $
XREAD BLOCK 10 STREAMS st K $ $
XGROUP CREATE st G 0
XGROUP CREATE st G $ MKSTREAM
XGROUP CREATE st G ID MKSTREAM ENTRIESREAD N
XGROUP CREATE K G $
XGROUP CREATE K G 0 ENTRIESREAD N
XGROUP CREATE k1 G 0 MKSTREAM
XGROUP CREATE st G 0 ENTRIESREAD -2
XGROUP CREATE st G 0 ENTRIESREAD
XGROUP CREATE st G 0 NOSUCH
XGROUP SETID st G ID
XGROUP SETID st G $ ENTRIESREAD N
XGROUP SETID st G -
XGROUP SETID st G 0 MKSTREAM
XGROUP SETID K G 0
XGROUP DESTROY st G
XGROUP DESTROY K G
XGROUP HELP K
XINFO HELP K
XGROUP CREATECONSUMER st G C
XGROUP CREATECONSUMER K G C
XGROUP DELCONSUMER st G C
XGROUP DELCONSUMER K G C
XGROUP NOSUCH st G
XGROUP CREATE st G
XREADGROUP GROUP G C STREAMS st >
XREADGROUP GROUP G C COUNT 1 STREAMS st >
XREADGROUP GROUP G C COUNT 2 STREAMS st >
XREADGROUP GROUP G C COUNT N NOACK STREAMS st >
XREADGROUP GROUP G C STREAMS st ID
XREADGROUP GROUP G C COUNT 2 STREAMS st 0
XREADGROUP COUNT 3 GROUP G C STREAMS st k1 > 0
XREADGROUP GROUP G C COUNT 1 STREAMS k1 st > >
XREADGROUP GROUP G C COUNT 1 STREAMS st st > >
XREADGROUP GROUP G C BLOCK 10 STREAMS st >
XREADGROUP GROUP G C STREAMS K >
XREADGROUP COUNT 1 BLOCK 2 STREAMS st 0
XREADGROUP GROUP g C COUNT x STREAMS st 0
XACK st G ID
XACK st G ID ID ID
XACK K G ID
XACK k1 G ID ID
XPENDING st G
XPENDING k1 G
XPENDING K G
^XPENDING st G - + N
^XPENDING st G ID + 100
^XPENDING st G (ID ID N C
^XPENDING st G - + 100 C
^XPENDING st G IDLE 50000 - + 100
^XPENDING st G IDLE 50000 - + N C
^XPENDING K G - + 10
XPENDING st G - +
XPENDING st G IDLE 5 - +
XPENDING st G x + 10
XPENDING st G IDLE x - + 10
XPENDING st G - + x
XCLAIM st G C 0 ID
XCLAIM st G C 0 ID ID FORCE
XCLAIM st G C 0 ID FORCE JUSTID
XCLAIM st G C 50000 ID ID ID
XCLAIM st G C 0 ID ID IDLE 100000
XCLAIM st G C 0 ID ID IDLE 100000 FORCE RETRYCOUNT N
XCLAIM st G C 0 ID TIME 1000 JUSTID
XCLAIM st G C 0 ID IDLE -5
XCLAIM st G C -3 ID ID LASTID ID
XCLAIM K G C 0 ID
XAUTOCLAIM st G C 0 0
XAUTOCLAIM st G C 0 ID COUNT 2
XAUTOCLAIM st G C 50000 - COUNT 1
XAUTOCLAIM st G C 50000 (ID JUSTID
XAUTOCLAIM st G C 0 ID COUNT 3 JUSTID
XAUTOCLAIM k1 G C 0 0 COUNT 5
XAUTOCLAIM K G C 0 0
XAUTOCLAIM st g C x 0
XAUTOCLAIM st g C 0 x
XAUTOCLAIM st g C 0 0 COUNT 0
XAUTOCLAIM st G C 0 0 COUNT 576460752303423488
XAUTOCLAIM st g C 0 0 NOSUCH
^XINFO STREAM st
^XINFO STREAM k1
XINFO STREAM K
^XINFO STREAM st FULL
^XINFO STREAM st FULL COUNT 2
^XINFO STREAM k1 FULL COUNT 0
XINFO GROUPS st
XINFO GROUPS k1
XINFO GROUPS K
^XINFO CONSUMERS st G
^XINFO CONSUMERS K G
XINFO NOSUCH st
XSETID st ID
XSETID st 40 ENTRIESADDED 100 MAXDELETEDID ID
XSETID K ID
XSETID st 40-0 ENTRIESADDED -1
XSETID st 40-0 ENTRIESADDED N MAXDELETEDID 41-0
XSETID st 40-0 NOSUCH 1
XSETID st x
PFADD H
PFADD H E
PFADD H E E E E E E E E E E
PFADD H F F V
PFADD HG E E E E E E E E E E
PFADD HG E
PFADD HD E
PFADD K F
PFADD HG
PFCOUNT H
PFCOUNT HD
PFCOUNT K K
PFCOUNT st
PFCOUNT H H
PFCOUNT HG H never
PFCOUNT HD HD
PFCOUNT H K HD
PFMERGE H H
PFMERGE H HG
PFMERGE HG H HG
PFMERGE HD H
PFMERGE H HD
PFMERGE HG K HD
PFMERGE K H
SET H HB
SET HG HB
SET HD HX
GET HG
GETRANGE H 0 7
GETRANGE H 16 -1
GETRANGE HD 16 -1
STRLEN H
STRLEN HD
DEL HG
COPY st k1 REPLACE
DUMP never
MEMORY USAGE never
MEMORY USAGE never SAMPLES 0
MEMORY USAGE K SAMPLES x
MEMORY USAGE K SAMPLES -1
RESTORE K 0 P
RESTORE K 0 P REPLACE
RESTORE K TT P ABSTTL REPLACE
RESTORE K 1 P REPLACE ABSTTL
RESTORE K 0 P IDLETIME 5 REPLACE
RESTORE K 0 P REPLACE FREQ 7
RESTORE never 0 Q
RESTORE never 0 V
RESTORE never -1 P
RESTORE never x P
RESTORE never 0 P NOSUCH
RESTORE never 0 P IDLETIME
RESTORE never 0 P IDLETIME -1
RESTORE never 0 P FREQ 256
RESTORE never 0 P IDLETIME 1 FREQ 1
LATENCY LATEST
LATENCY HISTORY F
LATENCY GRAPH F
LATENCY RESET
LATENCY RESET F F
LATENCY HISTORY
LATENCY NOSUCH
TYPE st
DEL st
OBJECT ENCODING st
OBJECT FREQ st
OBJECT REFCOUNT st
XADD st 0-0 F V
XADD st ID F
XADD st MAXLEN x ID F V
XADD st MAXLEN -1 ID F V
XADD st MAXLEN 1 MINID 1 ID F V
XADD st x-1 F V
XRANGE st x +
XRANGE st - 18446744073709551615-18446744073709551615
XRANGE st (18446744073709551615-18446744073709551615 +
XTRIM st MAXLEN 5 LIMIT 3
XTRIM st LIMIT 3 4
XTRIM st NONE 3
XREAD STREAMS st >
XREAD COUNT x STREAMS st 0
PING
ECHO V
NOSUCH K
EXPIRE K -1
EXPIRE K -9223372036854775807
EXPIREAT K -9223372036854775807
PEXPIRE K -9223372036854775807
EXPIRE never 100
PEXPIRE K -1
TTL never
TTL lex
PTTL st
SETEX K 0 V
SETEX K x V
PSETEX K -1 V
SADD one a
SRANDMEMBER one
SRANDMEMBER one N
SRANDMEMBER one -3
SPOP one
SPOP one N
SSCAN one 0 COUNT 100
HSET one-field a V
HRANDFIELD one-field
HRANDFIELD one-field N WITHVALUES
HRANDFIELD one-field -2
HDEL one-field a
HSCAN one-field 0
ZADD one-member S a
ZRANDMEMBER one-member
ZRANDMEMBER one-member N WITHSCORES
ZRANDMEMBER one-member -2
ZSCAN one-member 0
SCAN 0 MATCH nosuch* COUNT 1000
HSCAN K 0 MATCH nosuch* COUNT 1000
SSCAN K 0 MATCH nosuch* COUNT 1000
ZSCAN K 0 MATCH nosuch* COUNT 1000
BRPOP K K 0.01
BLMOVE K K LEFT RIGHT 0.01
BRPOPLPUSH K K 0.01
BLMPOP 0.01 2 K K LEFT COUNT N
BZPOPMIN K K 0.01
BZPOPMAX K K 0.01
BZMPOP 0.01 2 K K MIN COUNT N
WATCH w
SET w V
INCR w
APPEND w V
SADD w F
UNWATCH
DISCARD
EXEC
SELECT 0
PUBLISH F V
PUBSUB CHANNELS
PUBSUB NUMSUB F
PUBSUB NUMPAT
SPUBLISH F V
PUBSUB SHARDCHANNELS
PUBSUB SHARDNUMSUB F
SCRIPT EXISTS F
SCRIPT FLUSH
CLIENT GETREDIR
CLIENT NO-EVICT ON
CLIENT REPLY ON
CLIENT UNBLOCK 999999999
ACL WHOAMI
SET K V NX XX
SET K V NX GET
SET K V GET
SET K V EX 10 KEEPTTL
SET K V EX x
SET K V PX 9223372036854775807
SET K V NOSUCH
GETEX K
GETEX K EX 10 PERSIST
GETEX K PXAT 1
SETRANGE K -1 V
GETRANGE K x X
INCRBY K x
INCRBY big 9223372036854775807
DECRBY K -9223372036854775808
EXPIRE K x
EXPIRE K 10 NX XX
EXPIRE K 10 NOSUCH
EXPIRE K 9223372036854775807
HINCRBY K F x
HINCRBY big-hash F 9223372036854775807
HRANDFIELD K x
HRANDFIELD K 1 NOSUCH
HSCAN K x
LPOP K -1
LPOP K x
LINSERT K MIDDLE F V
LREM K x F
LTRIM K x 1
LRANGE K x 1
LPOS K F COUNT -1
LPOS K F MAXLEN -1
LPOS K F NOSUCH 1
LMOVE K K UP DOWN
LMPOP 0 K LEFT
LMPOP 1 K MIDDLE
LMPOP 1 K LEFT COUNT 0
LMPOP 1 K LEFT COUNT 1 COUNT 1
BLPOP K x
BLPOP K -1
SPOP K -1
SPOP K 0
SRANDMEMBER K x
SINTERCARD 0 K
SINTERCARD 2 K
SINTERCARD 1 K LIMIT -1
ZADD K NX XX S F
ZADD K GT LT S F
ZADD K NX GT S F
ZADD K INCR S F S F
ZADD K INCR NX S F
ZADD K nan F
ZADD K CH
ZINCRBY K x F
ZINCRBY K nan F
ZCOUNT K x 1
ZRANGE K X X BYLEX
ZRANGE K a b BYSCORE
ZRANGE K X X LIMIT 0 1
ZRANGE K - + BYLEX WITHSCORES
ZRANGE K X X NOSUCH
ZRANGESTORE K K X X WITHSCORES
ZRANGEBYSCORE K B B LIMIT 0
ZRANGEBYLEX K a b
ZPOPMIN K -1
ZMPOP 1 K NOSUCH
ZMPOP 1 K MIN COUNT 0
ZRANDMEMBER K x
ZREMRANGEBYSCORE K x 1
ZUNION 0 K
ZUNION 2 K
ZUNION 1 lex WEIGHTS x
ZUNION 1 lex AGGREGATE NOSUCH
ZDIFF 1 lex WEIGHTS 1
ZUNIONSTORE K 1 lex WITHSCORES
XADD K * F
XRANGE K - + COUNT -1
XRANGE K - + COUNT x
XTRIM K NOSUCH 1
XREAD STREAMS st x
XREAD BLOCK -1 STREAMS K 0
SETBIT K -1 1
SETBIT K 7 2
BITPOS K 2
BITOP NOSUCH K K
BITOP NOT K K K
BITFIELD K GET u64 0
BITFIELD K OVERFLOW NOSUCH GET u8 0
BITFIELD_RO K SET u8 0 1
SCAN x
SCAN 0 COUNT 0
DBSIZE x
FLUSHALL
GET
SET K
ZADD K x F
LPOS K F RANK 0
SET K V EX 0
HSET K F
EXPIREAT K T NX GT
FLUSHDB
";

/// The commands that no form is of, as the table names them, and why none can be.
#[allow(dead_code, reason = "it is for who knows the table")]
pub const INCOMPARABLE: &[(&str, &str)] = &[
    ("auth hello quit reset", "how a connection goes on: the tests of conversations say what comes of it"),
    (
        "client|getname client|setname client|id client|info client|list client|kill client|setinfo client|no-touch client|help",
        "what is told of a connection is another thing on another server, and some is not known to Redis 7.0; names are \
         asked for by real clients",
    ),
    (
        "acl|cat acl|deluser acl|dryrun acl|genpass acl|getuser acl|help acl|list acl|load acl|log acl|save acl|setuser \
         acl|users",
        "who is a user is the business of each node; what users may do is compared by ACL DRYRUN in a test of its own",
    ),
    (
        "command|count command|docs command|getkeys command|help command|info command|list",
        "the tables differ: each says what it has",
    ),
    (
        "config|get config|help config|set info latency|doctor latency|help latency|histogram lolwut memory|help monitor slowlog|get slowlog|help slowlog|len slowlog|reset role time wait waitaof cluster|help cluster|info \
         readonly readwrite",
        "what is told of a server is another thing on another server",
    ),
    (
        "subscribe unsubscribe psubscribe punsubscribe ssubscribe sunsubscribe pubsub|help",
        "messages come when they come: a test of conversations and one of real clients",
    ),
    (
        "eval evalsha script|load script|help script|kill",
        "there is no interpreter; the scripts that are known have tests of their own, also on real clients",
    ),
    ("multi", "every transaction of a round begins with it"),
    ("randomkey", "which key it is, is anybody's choice"),
];

/// The forms.
pub fn forms() -> Vec<&'static str> {
    FORMS.lines().filter(|line| !line.is_empty()).collect()
}

/// A form, without what it says of its reply.
pub fn bare(form: &str) -> &str {
    form.trim_start_matches(['~', '%', '^', '='])
}

/// Some commands with their forms; some of them in a transaction.
pub fn batch<'f>(forms: &[&'f str], random: &mut Random, least: usize) -> Vec<(&'f str, Vec<Vec<u8>>)> {
    let mut batch = Vec::new();
    while batch.len() < least {
        let form = forms[random.below(forms.len() as u64) as usize];
        // Else nothing would be there, and all the time be spent on waiting.
        let seldom = if form.starts_with("FLUSH") {
            20
        } else if form.contains("0.01") {
            4
        } else {
            1
        };
        if random.below(seldom) > 0 {
            continue;
        }
        let bare = bare(form);
        if random.below(20) == 0 && bare == form && !form.starts_with("FLUSH") {
            batch.push(("MULTI", vec![b"MULTI".to_vec()]));
            batch.push((form, fill(bare, random)));
            batch.push(("GET", fill("GET K", random)));
            batch.push(("EXEC", vec![b"EXEC".to_vec()]));
        } else {
            batch.push((form, fill(bare, random)));
        }
    }
    batch
}

/// What `redis-server` 6.2.14 and 7.0.15 have dumped: strings, lists, sets, hashes, sorted sets, streams.
const PAYLOADS: &[&str] = &[
    "00c00c0900ecd8a99d0882df64",
    "000568656c6c6f0900b3808eba31b243bb",
    "0e011414000000100000000300000161030162030163ff0900b5123dab1d2e4b11",
    "1201020f0f00000003008161020c01816202ff0a008fa79cb354a8c32f",
    "0b0e0200000003000000010002000300090075f00d2e39e82eaa",
    "0202016101620a00fe642125eb033d0d",
    "0d10100000000d000000020000016103f2ff0900e0a8245f3d06bd8f",
    "101414000000040081610201018162028378797a04ff0a002e2c226e653d1fc4",
    "1114140000000400816102010181620283322e3504ff0a00d44c6ea4f644d9d7",
    "130110000000000000000500000000000000011c1c0000000a00010100010101816102000102010001000101010401ff0105010501000001000a00b7f946367c1f2f5f",
    "130110000000000000000500000000000000012c2c000000110002010001010181610200010201000100010101040100010f01dfff02010181620202010601ff0214000501000002000a00daa29267d260320a",
];

/// The same with something in them changed, before the checksum was made and behind it.
const DAMAGED: &[&str] = &[
    "000568656c6c6f0900b3808eba31b243bc",
    "0202016101610a0057be762fc2d6523a",
    "04000a00933196c0279295bf",
    "6301610a0053c0fbdfbab5ae06",
    "1114140000000400816102010181620283322e0a002449d0b8f4c94064",
    "12010301610a0077414581d2bbfc1c",
    "0f010261620a00b1ffec05cb0ddc98",
];

/// Fills a form in.
pub fn fill(form: &str, random: &mut Random) -> Vec<Vec<u8>> {
    let pick = |random: &mut Random, from: &[&str]| from[random.below(from.len() as u64) as usize].to_owned();
    form.split(' ')
        .map(|word| {
            let text = match word {
                "HB" => return hyperloglog(random),
                "HX" => return damaged(hyperloglog(random), random),
                "P" => return unhex(&pick(random, PAYLOADS)),
                "Q" => return unhex(&pick(random, DAMAGED)),
                "H" => format!("h{}", random.below(3)),
                "HG" => format!("hg{}", random.below(2)),
                "HD" => format!("hd{}", random.below(3)),
                "E" => random.below(20_000).to_string(),
                "K" => format!("k{}", random.below(6)),
                "V" => pick(random, &["a", "b", "", "12", "-7", "3.5", "some longer text", "\u{0}\u{7f}x"]),
                "F" => pick(random, &["a", "b", "c", "d", "e"]),
                "G" => pick(random, &["g", "g", "g", "gg", "h"]),
                "C" => pick(random, &["a", "b", "bb", "c"]),
                "N" => pick(random, &["0", "1", "2", "3", "5", "9", "17", "100"]),
                "#N" => pick(random, &["#0", "#1", "#3"]),
                "X" => pick(random, &["0", "1", "2", "4", "9", "-1", "-2", "-3", "-9"]),
                "S" => pick(random, &["0", "1", "-1", "2", "0.5", "1.25", "100", "inf"]),
                // Not 0: infinity times zero is zero here, in Redis it depends on which set is the smaller.
                "W" => pick(random, &["1", "2", "0.5", "-1"]),
                "B" => {
                    // None beyond a double: Redis remembers of those that there was one, and then refuses the next SORT.
                    let odd = &["", "(", " 1", "0x1", "(0x.8", "-Infinity"];
                    let plain = &["-inf", "+inf", "0", "1", "(1", "2", "(0.5", "-1"];
                    if random.below(4) == 0 { pick(random, odd) } else { pick(random, plain) }
                }
                "L" => pick(random, &["-", "+", "[a", "(b", "[c", "(e", "[bb"]),
                "ID" | "(ID" => {
                    let id = format!("{}-{}", random.below(30), random.below(3));
                    let id = if random.below(4) == 0 { random.below(30).to_string() } else { id };
                    if word == "(ID" { format!("({id}") } else { id }
                }
                "I*" => format!("{}-*", random.below(30)),
                "LON" => match random.below(3) {
                    0 => {
                        pick(random, &["0", "13.361389", "13.3614", "14", "-180", "180", "179.99", "-122.4"])
                    }
                    1 => format!("{:.6}", 13.0 + random.below(3_000_001) as f64 / 1e6),
                    _ => format!("{:.4}", random.below(3_600_001) as f64 / 1e4 - 180.0),
                },
                "LAT" => match random.below(3) {
                    0 => pick(
                        random,
                        &["0", "38.115556", "37.8", "85.05112878", "-85.05", "-33.4", "67", "84"],
                    ),
                    1 => format!("{:.6}", 36.5 + random.below(2_000_001) as f64 / 1e6),
                    _ => format!("{:.4}", random.below(1_700_001) as f64 / 1e4 - 85.0),
                },
                "R" => match random.below(3) {
                    0 => pick(random, &["0", "0.5", "50", "200", "5000", "250000", "1e6", "inf"]),
                    1 => random.below(2_000).to_string(),
                    _ => random.below(30_000).to_string(),
                },
                "U" => pick(random, &["m", "km", "ft", "MI"]),
                "T" => (4_000_000_000 + random.below(3)).to_string(),
                "TT" => (4_000_000_000_000 + random.below(3)).to_string(),
                other => other.to_owned(),
            };
            text.into_bytes()
        })
        .collect()
}

/// A HyperLogLog as bytes: dense, or of as many runs as make it sparse, some of them near the most that may be.
fn hyperloglog(random: &mut Random) -> Vec<u8> {
    let mut bytes = b"HYLL\x01\0\0\0".to_vec();
    // What it counts itself, or that it does not.
    bytes.extend(if random.below(2) == 0 { random.below(99) } else { 1 << 63 }.to_le_bytes());
    if random.below(4) == 0 {
        bytes[4] = 0;
        let high = random.below(4);
        bytes.extend((0..12_288).map(|_| if random.below(4) < high { random.below(256) as u8 } else { 0 }));
        return bytes;
    }
    let most = [3, 20, 300, 2_990, 2_999, 3_000, 4_000][random.below(7) as usize];
    let values = 1 + random.below(32);
    let mut left = 16_384;
    while left > 0 && bytes.len() + 2 < most {
        let (run, length) = match random.below(4) {
            0 => (0, 1 + random.below(64)),
            _ => (0x80 | random.below(values) << 2, 1 + random.below(4)),
        };
        let length = length.min(left);
        bytes.push((run | (length - 1)) as u8);
        left -= length;
    }
    if let Some(less) = left.checked_sub(1) {
        bytes.extend([0x40 | (less >> 8) as u8, less as u8]);
    }
    bytes
}

/// The same, perhaps with something wrong. It does not end in half a run, behind which Redis reads on.
fn damaged(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let place = random.below(bytes.len() as u64) as usize;
    match random.below(6) {
        0 => bytes[place % 16] ^= 1 << random.below(8),
        1 => bytes[place] = random.below(256) as u8,
        2 => bytes.truncate(place),
        3 => bytes.extend([0; 3].iter().take(place % 4)),
        4 => bytes.insert(place, random.below(256) as u8),
        _ => {}
    }
    if bytes.len() > 16 && bytes[4] == 1 {
        let (mut at, end) = (16, bytes.len());
        while at < end {
            at += if bytes[at] >> 6 == 1 { 2 } else { 1 };
        }
        bytes.resize(at, 0xff);
    }
    bytes
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

pub fn encode(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The length of the first reply, if all of it is there.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let count = || std::str::from_utf8(&bytes[1..line - 2]).unwrap().parse::<i64>().unwrap();
    match bytes[0] {
        b'$' if count() >= 0 => Some(line + count() as usize + 2).filter(|length| *length <= bytes.len()),
        b'*' | b'~' | b'>' | b'%' => {
            let mut at = line;
            for _ in 0..if bytes[0] == b'%' { 2 * count() } else { count() } {
                at += reply_length(&bytes[at..])?;
            }
            Some(at)
        }
        _ => Some(line),
    }
}

/// A reply to a form as it is compared: with its parts in order, where they have none.
pub fn lay(form: &str, reply: &[u8]) -> Vec<u8> {
    match form.as_bytes()[0] {
        b'~' => sorted(reply, 1),
        b'%' => sorted(reply, 2),
        b'^' => timeless(reply),
        b'=' => coarse(reply),
        _ => reply.to_vec(),
    }
}

/// A reply without its times: those that are told in milliseconds since 1970 are all one, those that tell how long ago
/// something was, the first number behind a string, are rounded down to ten seconds, and to nothing below thirty, since a failover comes
/// between. How large the tree of a stream is, which
/// there is none of here, is no number either.
fn timeless(reply: &[u8]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = reply.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    for at in 1..lines.len() {
        let number =
            |line: &[u8]| std::str::from_utf8(line.strip_prefix(b":")?).ok()?.trim_end().parse::<u64>().ok();
        let Some(millis) = number(&lines[at]) else { continue };
        let before = lines[at - 1].trim_ascii_end();
        let counts = ["length", "pending", "pel-count", "entries-added"];
        let counts = counts.iter().chain(&["entries-read", "lag"]).any(|name| name.as_bytes() == before);
        if before.starts_with(b"radix-tree-") {
            lines[at] = b":some\r".to_vec();
        } else if millis > 1 << 38 {
            lines[at] = b":then\r".to_vec();
        } else if number(&lines[at - 1]).is_none() && !counts {
            let told = if millis < 30_000 { 0 } else { millis / 10_000 * 10_000 };
            lines[at] = format!(":{told}\r").into_bytes();
        }
    }
    lines.join(&b'\n')
}

/// A reply whose distances from a million on have no decimals: the last is where machines differ.
fn coarse(reply: &[u8]) -> Vec<u8> {
    let far = |line: &[u8]| line.iter().position(|byte| *byte == b'.').filter(|point| *point >= 7);
    let lines = reply.split(|byte| *byte == b'\n').map(|line| &line[..far(line).unwrap_or(line.len())]);
    lines.collect::<Vec<_>>().join(&b'\n')
}

/// The parts of an array, in order where it has none.
fn sorted(reply: &[u8], by: usize) -> Vec<u8> {
    let Some(line) = reply.iter().position(|byte| *byte == b'\n').filter(|_| b"*~%".contains(&reply[0]))
    else {
        return reply.to_vec();
    };
    let (mut parts, mut at) = (Vec::new(), line + 1);
    while at < reply.len() {
        let length = reply_length(&reply[at..]).unwrap();
        parts.push(reply[at..at + length].to_vec());
        at += length;
    }
    let mut groups: Vec<Vec<u8>> = parts.chunks(by).map(|group| group.concat()).collect();
    groups.sort();
    groups.concat()
}

/// A connection that is read reply by reply, as bytes.
pub struct Peer {
    stream: Box<dyn Stream>,
    bytes: Vec<u8>,
}

/// Of any kind of socket.
pub trait Stream: Read + Write + Send {
    /// Sends at once, and waits so long for an answer.
    fn set(&self, patience: Duration) -> std::io::Result<()>;
}

impl Stream for TcpStream {
    fn set(&self, patience: Duration) -> std::io::Result<()> {
        self.set_nodelay(true)?;
        self.set_read_timeout(Some(patience))
    }
}

impl Stream for UnixStream {
    fn set(&self, patience: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(patience))
    }
}

impl Peer {
    pub fn new(stream: impl Stream + 'static) -> Peer {
        stream.set(Duration::from_secs(60)).unwrap();
        Peer { stream: Box::new(stream), bytes: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next reply.
    pub fn next(&mut self) -> Vec<u8> {
        loop {
            if let Some(length) = reply_length(&self.bytes) {
                return self.bytes.drain(..length).collect();
            }
            let mut chunk = [0; 1 << 16];
            let read = self.stream.read(&mut chunk).unwrap();
            assert!(read > 0, "the connection was closed");
            self.bytes.extend_from_slice(&chunk[..read]);
        }
    }
}

/// A `redis-server` for as long as this lives.
pub struct Server {
    server: Child,
    pub peer: Peer,
    /// Where it has its socket: of a port somebody else could be there first.
    folder: tempfile::TempDir,
}

impl Server {
    pub fn start() -> Server {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("redis");
        let server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is on the path");
        let start = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(start.elapsed() < Duration::from_secs(30), "redis-server: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Server { server, peer: Peer::new(stream), folder }
    }

    /// Another connection.
    #[allow(dead_code, reason = "it is for who compares what others are told")]
    pub fn another(&self) -> Peer {
        Peer::new(UnixStream::connect(self.folder.path().join("redis")).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
