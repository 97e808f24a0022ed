// Ordinary use of node-redis against two regions: pool, pipeline, transaction, publish/subscribe, lock, stream.
//
//   node main.mjs PORT OTHER_PORT

import assert from "node:assert/strict";
import { createClient, createClientPool, WatchError } from "redis";

const [port, other] = process.argv.slice(2).map(Number);
const open = async (port) => {
  const client = createClient({ socket: { port, host: "127.0.0.1" } });
  client.on("error", (error) => console.error(error));
  await client.connect();
  return client;
};
const here = await open(port);
const there = await open(other);
await here.flushDb();

const pool = createClientPool({ socket: { port, host: "127.0.0.1" } }, { minimum: 1, maximum: 8 });
pool.on("error", (error) => console.error(error));
await pool.connect();
await Promise.all(Array.from({ length: 80 }, () => pool.incr("node:total")));
assert.equal(await there.get("node:total"), "80");

// Commands of one turn of the loop are one pipeline.
const replies = await Promise.all([
  ...Array.from({ length: 100 }, (_, i) => here.set(`node:${i}`, String(i), { expiration: { type: "EX", value: 60 } })),
  here.get("node:99"),
]);
assert.equal(replies[100], "99");
await here.hSet("node:hash", { a: "1", b: "2" });
assert.deepEqual({ ...(await there.hGetAll("node:hash")) }, { a: "1", b: "2" });

const [first, second] = await here.multi().set("node:tx", "1").incr("node:tx").exec();
assert.deepEqual([first, second], ["OK", 2]);
await pool.execute(async (client) => {
  await client.watch("node:tx");
  await there.set("node:tx", "10");
  await assert.rejects(client.multi().set("node:tx", "3").exec(), WatchError);
});
assert.equal(await here.get("node:tx"), "10");

const subscriber = await open(other);
const heard = new Promise((resolve) => {
  subscriber.subscribe("node:news", (message) => resolve(message)).then(() => there.publish("node:news", "hello"));
});
assert.equal(await heard, "hello");
await subscriber.unsubscribe("node:news");

const release = `if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end`;
const lock = (client, holder) =>
  client.set("node:lock", holder, { condition: "NX", expiration: { type: "PX", value: 60_000 } });
assert.equal(await lock(here, "me"), "OK");
assert.equal(await lock(there, "you"), null);
assert.equal(await there.eval(release, { keys: ["node:lock"], arguments: ["you"] }), 0);
assert.equal(await here.eval(release, { keys: ["node:lock"], arguments: ["me"] }), 1);

const id = await here.xAdd("node:stream", "*", { a: "1" });
const streams = await there.xRead([{ key: "node:stream", id: "0" }]);
assert.deepEqual([streams[0].name, streams[0].messages[0].id, streams[0].messages[0].message.a], ["node:stream", id, "1"]);

await Promise.all([subscriber.close(), pool.close(), here.close(), there.close()]);
console.log("ok");
