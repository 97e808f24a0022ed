// Ordinary use of ioredis against two regions, in RESP3 and RESP2: ready check, pipeline, transaction, publish/subscribe,
// lock, scripts of its own, stream; and, over it, redlock and rate-limiter-flexible.
//
//   node ioredis.mjs PORT OTHER_PORT

import assert from "node:assert/strict";
import { once } from "node:events";
import { Redis } from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import Redlock from "redlock";

const [port, other] = process.argv.slice(2).map(Number);
// As the holder of a lock deletes it: the script of the page on distributed locks.
const release = `if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end`;

for (const protocol of [3, 2]) {
  const open = (port, more = {}) => {
    const client = new Redis({ port, host: "127.0.0.1", protocol, ...more });
    client.on("error", (error) => console.error(error));
    return client;
  };
  const [here, there] = [open(port), open(other)];
  // It has read INFO, and found that nothing is loading.
  await Promise.all([once(here, "ready"), once(there, "ready")]);
  await here.flushdb();

  const many = Array.from({ length: 8 }, () => here.duplicate());
  await Promise.all(many.flatMap((client) => Array.from({ length: 10 }, () => client.incr("io:total"))));
  assert.equal(await there.get("io:total"), "80");

  const pipeline = here.pipeline();
  for (let i = 0; i < 100; i++) pipeline.set(`io:${i}`, i, "EX", 60);
  const replies = await pipeline.get("io:99").hset("io:0", "a", 1).exec();
  assert.deepEqual(replies[100], [null, "99"]);
  assert.match(replies[101][0].message, /^WRONGTYPE/);
  // Commands of one turn of the loop become one pipeline.
  const auto = open(port, { enableAutoPipelining: true, keyPrefix: "io:" });
  assert.deepEqual(await Promise.all([auto.get("1"), auto.get("2"), auto.get("none")]), ["1", "2", null]);

  await here.hset("io:hash", { a: "1", b: "2" });
  assert.deepEqual({ ...(await there.hgetall("io:hash")) }, { a: "1", b: "2" });
  await here.zadd("io:sorted", 1, "a", 2.5, "b");
  assert.equal(Number(await there.zscore("io:sorted", "b")), 2.5);
  assert.deepEqual(Buffer.from([0, 255]), (await here.set("io:bytes", Buffer.from([0, 255])), await there.getBuffer("io:bytes")));

  assert.deepEqual(await here.multi().set("io:tx", "1").incr("io:tx").exec(), [[null, "OK"], [null, 2]]);
  await here.watch("io:tx");
  await there.set("io:tx", "10");
  assert.equal(await here.multi().set("io:tx", "3").exec(), null);
  assert.equal(await here.get("io:tx"), "10");

  const subscriber = open(other);
  await subscriber.subscribe("io:news");
  const heard = once(subscriber, "message");
  await there.publish("io:news", "hello");
  assert.deepEqual(await heard, ["io:news", "hello"]);
  await subscriber.unsubscribe("io:news");

  for (const client of [here, there]) {
    client.defineCommand("release", { numberOfKeys: 1, lua: release });
    client.defineCommand("unheardOf", { numberOfKeys: 1, lua: "return redis.call('get', KEYS[1])" });
  }
  assert.equal(await here.set("io:lock", "me", "PX", 60_000, "NX"), "OK");
  assert.equal(await there.set("io:lock", "you", "PX", 60_000, "NX"), null);
  assert.equal(await there.release("io:lock", "you"), 0);
  assert.equal(await here.release("io:lock", "me"), 1);
  // Any other script is refused, and the refusal says why.
  await assert.rejects(here.unheardOf("io:lock"), /there is no interpreter/);

  const [locks, others] = [here, there].map((client) => new Redlock([client], { retryCount: 0 }));
  const lock = await locks.lock(["io:room", "io:desk"], 60_000);
  await assert.rejects(others.lock(["io:chair", "io:desk"], 1_000), Redlock.LockError);
  await lock.extend(90_000);
  assert.ok((await there.pttl("io:room")) > 60_000);
  await lock.unlock();
  assert.equal(await there.exists("io:room", "io:desk", "io:chair"), 0);
  const limiters = [here, there, here, there].map(
    (storeClient) => new RateLimiterRedis({ storeClient, keyPrefix: "io:rate", points: 3, duration: 60 }),
  );
  const tried = await Promise.allSettled(limiters.map((limiter) => limiter.consume("ann")));
  const beyond = tried.filter(({ status }) => status === "rejected").map(({ reason }) => reason);
  assert.deepEqual(beyond.map((reason) => reason.consumedPoints), [4]);
  assert.ok(beyond[0].msBeforeNext > 30_000 && (await there.ttl("io:rate:ann")) > 30);

  const waits = open(other).blpop("io:list", 20);
  await here.rpush("io:list", "pushed");
  assert.deepEqual(await waits, ["io:list", "pushed"]);

  const id = await here.xadd("io:stream", "*", "a", "1");
  assert.deepEqual(await there.xread("STREAMS", "io:stream", "0"), [["io:stream", [[id, ["a", "1"]]]]]);

  const found = [];
  for await (const keys of there.scanStream({ match: "io:?" })) found.push(...keys);
  assert.equal(new Set(found).size, 10);
}
console.log("ok");
process.exit();
