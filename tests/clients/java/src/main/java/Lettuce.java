import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.XReadArgs.StreamOffset;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/** Ordinary use of Lettuce against two regions: one shared connection, pipeline, transaction, publish/subscribe, lock, stream. */
public final class Lettuce {
    public static void main(String[] ports) throws Exception {
        try (RedisClient near = RedisClient.create("redis://127.0.0.1:" + ports[0]);
                RedisClient far = RedisClient.create("redis://127.0.0.1:" + ports[1])) {
            try (var connection = near.connect(); var other = far.connect()) {
                RedisCommands<String, String> here = connection.sync();
                RedisCommands<String, String> there = other.sync();
                here.flushdb();
                // Threads share a connection, and futures are its pipeline.
                IntStream.range(0, 80).parallel().forEach(i -> here.incr("lettuce:total"));
                Shared.same("total", there.get("lettuce:total"), "80");
                List<RedisFuture<String>> all = IntStream.range(0, 100)
                        .mapToObj(i -> connection.async().setex("lettuce:" + i, 60, String.valueOf(i))).toList();
                for (RedisFuture<String> one : all) {
                    Shared.same("piped", one.get(60, TimeUnit.SECONDS), "OK");
                }
                Shared.same("piped", there.get("lettuce:99"), "99");
                here.hset("lettuce:hash", Map.of("a", "1", "b", "2"));
                Shared.same("hash", there.hgetall("lettuce:hash"), Map.of("a", "1", "b", "2"));
                transactions(here, there);
                messages(far, there);
                locks(here, there);
                var popped = CompletableFuture.supplyAsync(() -> near.connect().sync().blpop(20, "lettuce:list"));
                there.rpush("lettuce:list", "pushed");
                Shared.same("popped", popped.get(60, TimeUnit.SECONDS), KeyValue.just("lettuce:list", "pushed"));
                String id = here.xadd("lettuce:stream", Map.of("a", "1"));
                Shared.same("stream", there.xread(StreamOffset.from("lettuce:stream", "0")).get(0).getId(), id);
            }
        }
        System.out.println("ok");
    }

    private static void transactions(RedisCommands<String, String> here, RedisCommands<String, String> there) {
        here.multi();
        here.set("lettuce:tx", "1");
        here.incr("lettuce:tx");
        TransactionResult both = here.exec();
        Shared.same("transaction", both.stream().toList(), List.of("OK", 2L));
        here.watch("lettuce:tx");
        there.set("lettuce:tx", "10");
        here.multi();
        here.set("lettuce:tx", "3");
        Shared.same("a transaction that comes too late", here.exec().wasDiscarded(), true);
        Shared.same("watched", here.get("lettuce:tx"), "10");
    }

    private static void messages(RedisClient far, RedisCommands<String, String> there) throws Exception {
        var heard = new CompletableFuture<String>();
        try (var connection = far.connectPubSub()) {
            connection.addListener(new RedisPubSubAdapter<String, String>() {
                @Override
                public void message(String channel, String message) {
                    heard.complete(message);
                }
            });
            connection.sync().subscribe("lettuce:news");
            there.publish("lettuce:news", "hello");
            Shared.same("message", heard.get(60, TimeUnit.SECONDS), "hello");
        }
    }

    private static void locks(RedisCommands<String, String> here, RedisCommands<String, String> there) {
        SetArgs lock = SetArgs.Builder.nx().px(60_000);
        Shared.same("lock", here.set("lettuce:lock", "me", lock), "OK");
        Shared.same("lock of another", there.set("lettuce:lock", "you", lock) == null, true);
        String[] key = {"lettuce:lock"};
        Shared.same("release of another", there.eval(Shared.RELEASE, ScriptOutputType.INTEGER, key, "you"), 0L);
        Shared.same("release", here.eval(Shared.RELEASE, ScriptOutputType.INTEGER, key, "me"), 1L);
    }
}
