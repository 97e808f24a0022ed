import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPoolConfig;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.XReadParams;

/** Ordinary use of jedis against two regions: pool, pipeline, transaction, publish/subscribe, lock, stream. */
public final class Main {
    public static void main(String[] ports) throws Exception {
        JedisPoolConfig config = new JedisPoolConfig();
        config.setMaxTotal(8);
        try (JedisPool pool = new JedisPool(config, "127.0.0.1", Integer.parseInt(ports[0]), 20_000);
                Jedis here = new Jedis("127.0.0.1", Integer.parseInt(ports[0]), 20_000);
                Jedis there = new Jedis("127.0.0.1", Integer.parseInt(ports[1]), 20_000)) {
            here.flushDB();
            count(pool, there);
            pipeline(here);
            transactions(here, there);
            messages(pool, there);
            locks(here, there);
            streams(here, there);
        }
        System.out.println("ok");
    }

    private static void count(JedisPool pool, Jedis there) throws Exception {
        var executor = Executors.newFixedThreadPool(16);
        List<? extends Future<?>> all = IntStream.range(0, 80).mapToObj(i -> executor.submit(() -> {
            try (Jedis jedis = pool.getResource()) {
                return jedis.incr("java:total");
            }
        })).toList();
        for (Future<?> one : all) {
            one.get(60, TimeUnit.SECONDS);
        }
        executor.shutdown();
        Shared.same("total", there.get("java:total"), "80");
    }

    private static void pipeline(Jedis here) {
        Pipeline pipeline = here.pipelined();
        for (int i = 0; i < 100; i++) {
            pipeline.setex("java:" + i, 60, String.valueOf(i));
        }
        Response<String> last = pipeline.get("java:99");
        pipeline.sync();
        Shared.same("piped", last.get(), "99");
    }

    private static void transactions(Jedis here, Jedis there) {
        Transaction transaction = here.multi();
        transaction.set("java:tx", "1");
        transaction.incr("java:tx");
        Shared.same("transaction", transaction.exec(), List.of("OK", 2L));
        here.watch("java:tx");
        there.set("java:tx", "10");
        Transaction late = here.multi();
        late.set("java:tx", "3");
        List<Object> nothing = late.exec();
        Shared.same("a transaction that comes too late", nothing == null, true);
        Shared.same("watched", here.get("java:tx"), "10");
    }

    private static void messages(JedisPool pool, Jedis there) throws Exception {
        var heard = new CompletableFuture<String>();
        var ready = new CountDownLatch(1);
        var listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                ready.countDown();
            }

            @Override
            public void onMessage(String channel, String message) {
                heard.complete(message);
                unsubscribe();
            }
        };
        Thread thread = new Thread(() -> {
            try (Jedis jedis = pool.getResource()) {
                jedis.subscribe(listener, "java:news");
            }
        });
        thread.start();
        Shared.same("subscribed", ready.await(30, TimeUnit.SECONDS), true);
        // Messages from another node are told at most once, like all: it is said again until it is heard.
        while (!heard.isDone()) {
            there.publish("java:news", "hello");
            Thread.sleep(50);
        }
        Shared.same("message", heard.get(), "hello");
        thread.join(30_000);
    }

    private static void locks(Jedis here, Jedis there) {
        SetParams lock = SetParams.setParams().nx().px(60_000);
        Shared.same("lock", here.set("java:lock", "me", lock), "OK");
        Shared.same("lock of another", there.set("java:lock", "you", lock) == null, true);
        Shared.same("release of another", there.eval(Shared.RELEASE, List.of("java:lock"), List.of("you")), 0L);
        Shared.same("release", here.eval(Shared.RELEASE, List.of("java:lock"), List.of("me")), 1L);
    }

    private static void streams(Jedis here, Jedis there) {
        StreamEntryID id = here.xadd("java:stream", StreamEntryID.NEW_ENTRY, Map.of("a", "1"));
        var read = there.xread(XReadParams.xReadParams().count(5), Map.of("java:stream", new StreamEntryID("0-0")));
        var entry = read.get(0).getValue().get(0);
        Shared.same("stream", entry.getID(), id);
        Shared.same("entry", entry.getFields(), Map.of("a", "1"));
    }
}
