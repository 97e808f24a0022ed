//! Ordinary use of redis-rs against two regions: pool, multiplexed connection, pipeline, transaction,
//! publish/subscribe, lock, blocking pop, stream.
//!
//! `cargo run -- PORT OTHER_PORT`

use futures_util::StreamExt;
use futures_util::future::try_join_all;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{
    AsyncCommands, Client, Commands, ErrorKind, ExistenceCheck, RedisResult, Script, ServerErrorKind,
    SetExpiry, SetOptions,
};
use rslock::{LockError, LockManager};
use std::collections::BTreeMap;
use std::time::Duration;

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// As the holder of a lock deletes it: the script of the page on distributed locks.
const RELEASE: &str = r#"if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end"#;

fn main() -> Outcome {
    let mut ports = std::env::args().skip(1);
    let mut open = || Client::open(format!("redis://127.0.0.1:{}/", ports.next().expect("two ports")));
    let (here, there) = (open()?, open()?);
    synchronous(&here, &there)?;
    // What is pushed to a connection, such as messages, is RESP3's.
    let newer = |client: &Client| {
        let mut to = client.get_connection_info().clone();
        let settings = to.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
        to = to.set_redis_settings(settings);
        Client::open(to)
    };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(asynchronous(&here, &there))?;
    runtime.block_on(asynchronous(&newer(&here)?, &newer(&there)?))?;
    println!("ok");
    Ok(())
}

/// A pool of blocking connections under threads.
fn synchronous(here: &Client, there: &Client) -> Outcome {
    let pool = r2d2::Pool::builder().max_size(8).build(here.clone())?;
    let mut mine = pool.get()?;
    let mut theirs = there.get_connection()?;
    let _: () = redis::cmd("FLUSHDB").query(&mut mine)?;

    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let mut connection = pool.get().expect("a connection of the pool");
                    let _: i64 = connection.incr("rust:total", 1).expect("INCR");
                }
            });
        }
    });
    assert_eq!(theirs.get::<_, i64>("rust:total")?, 80);

    let mut pipe = redis::pipe();
    for number in 0..100 {
        pipe.set_ex(format!("rust:{number}"), number, 60).ignore();
    }
    let (last, kind): (i64, String) = pipe.get("rust:99").cmd("TYPE").arg("rust:99").query(&mut mine)?;
    assert_eq!((last, kind.as_str()), (99, "string"));

    // A watched key that another region changes fails the transaction, and it goes through when tried again.
    let mut tries = 0;
    let (set,): (i64,) = redis::transaction(&mut *mine, &["rust:watched"], |connection, pipe| {
        let value: Option<i64> = connection.get("rust:watched")?;
        tries += 1;
        if tries == 1 {
            let _: () = theirs.set("rust:watched", 10)?;
        }
        pipe.set("rust:watched", value.unwrap_or(0) + 1).ignore().get("rust:watched").query(connection)
    })?;
    assert_eq!((tries, set), (2, 11));

    let wrong: RedisResult<i64> = mine.lpush("rust:watched", 1);
    let wrong = wrong.expect_err("a string is no list");
    assert_eq!(wrong.code(), Some("WRONGTYPE"), "{wrong}");

    let mut subscriber = there.get_connection()?;
    let mut subscription = subscriber.as_pubsub();
    subscription.set_read_timeout(Some(Duration::from_secs(30)))?;
    subscription.psubscribe("rust:news:*")?;
    let _: () = mine.publish("rust:news:sync", "hello")?;
    let message = subscription.get_message()?;
    assert_eq!(
        (message.get_channel_name(), message.get_payload::<String>()?),
        ("rust:news:sync", "hello".into())
    );
    Ok(())
}

/// A connection that all tasks share and that connects again by itself.
async fn asynchronous(here: &Client, there: &Client) -> Outcome {
    // Without these answers are waited for half a second.
    let patient = || ConnectionManagerConfig::new().set_response_timeout(Some(Duration::from_secs(20)));
    let open = |client: &Client| ConnectionManager::new_with_config(client.clone(), patient());
    let (mut mine, mut theirs) = (open(here).await?, open(there).await?);
    let _: () = redis::cmd("FLUSHDB").query_async(&mut mine).await?;

    let counts = (0..80).map(|_| {
        let mut shared = mine.clone();
        async move { shared.incr::<_, _, i64>("rust:total", 1).await }
    });
    let mut counts = try_join_all(counts).await?;
    counts.sort_unstable();
    assert_eq!(counts, (1..=80).collect::<Vec<i64>>());
    assert_eq!(theirs.get::<_, i64>("rust:total").await?, 80);

    let _: () = mine.hset_multiple("rust:hash", &[("a", 1), ("b", 2)]).await?;
    let hash: BTreeMap<String, i64> = theirs.hgetall("rust:hash").await?;
    assert_eq!(hash, BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));
    let mut pipe = redis::pipe();
    pipe.atomic().set("rust:tx", 1).ignore().incr("rust:tx", 1).zadd("rust:scores", "a", 2.5).ignore();
    let (sum, score): (i64, f64) = pipe.zscore("rust:scores", "a").query_async(&mut mine).await?;
    assert_eq!((sum, score), (2, 2.5));
    let found: Option<String> = theirs.get("rust:absent").await?;
    assert_eq!(found, None);

    let mut subscription = there.get_async_pubsub().await?;
    subscription.subscribe("rust:news").await?;
    let _: () = mine.publish("rust:news", "hello").await?;
    let message = tokio::time::timeout(Duration::from_secs(30), subscription.on_message().next()).await?;
    assert_eq!(message.expect("a message").get_payload::<String>()?, "hello");

    let take =
        || SetOptions::default().conditional_set(ExistenceCheck::NX).with_expiration(SetExpiry::PX(60_000));
    let first: Option<String> = mine.set_options("rust:lock", "me", take()).await?;
    let second: Option<String> = theirs.set_options("rust:lock", "you", take()).await?;
    assert_eq!((first.as_deref(), second), (Some("OK"), None));
    let release = Script::new(RELEASE);
    for (holder, released) in [("you", 0), ("me", 1)] {
        let found: i64 = release.key("rust:lock").arg(holder).invoke_async(&mut theirs).await?;
        assert_eq!(found, released, "released by {holder}");
    }
    // The library of locks for redis-rs: it takes a lock, holds on to it and gives it back by scripts.
    let manager = |client: &Client| LockManager::from_clients(vec![client.clone()]);
    let (ours, others) = (manager(here), manager(there));
    let minute = Duration::from_secs(60);
    let lock = ours.lock("rust:rslock", minute).await?;
    assert!(matches!(others.lock("rust:rslock", minute).await, Err(LockError::Unavailable)));
    ours.extend(&lock, 10 * minute).await?;
    let left: i64 = theirs.pttl("rust:rslock").await?;
    assert!(left > 60_000, "{left} ms");
    ours.unlock(&lock).await;
    let lock = others.lock("rust:rslock", minute).await?;
    others.unlock(&lock).await;

    // A program of one's own is refused: there is no interpreter.
    let other: RedisResult<i64> = Script::new("return 1 + 1").invoke_async(&mut mine).await;
    let refused = other.expect_err("no script of anybody's own runs");
    assert_eq!(refused.kind(), ErrorKind::Server(ServerErrorKind::ResponseError), "{refused}");

    // Whoever waits has a connection for himself.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let mut waiting = there.get_multiplexed_async_connection_with_config(&config).await?;
    let waits =
        tokio::spawn(async move { waiting.blpop::<_, (String, String)>(&["rust:queue"], 30.0).await });
    let _: i64 = mine.rpush("rust:queue", "job").await?;
    assert_eq!(waits.await??, ("rust:queue".to_owned(), "job".to_owned()));

    let id: String = mine.xadd("rust:stream", "*", &[("a", 1)]).await?;
    let options = StreamReadOptions::default().count(10);
    let read: StreamReadReply = theirs.xread_options(&["rust:stream"], &["0"], &options).await?;
    let entry = &read.keys[0].ids[0];
    assert_eq!((entry.id.as_str(), entry.get::<i64>("a")), (id.as_str(), Some(1)));
    Ok(())
}
