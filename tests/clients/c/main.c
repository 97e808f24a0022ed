/* Ordinary use of hiredis against two regions: pipeline, transaction, publish/subscribe, lock, blocking pop, stream.
 *
 *   main PORT OTHER_PORT
 */

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *RELEASE =
    "if redis.call(\"get\",KEYS[1]) == ARGV[1] then\n    return redis.call(\"del\",KEYS[1])\nelse\n    return 0\nend";

static redisContext *dial(const char *port) {
    redisContext *context = redisConnect("127.0.0.1", atoi(port));
    if (context == NULL || context->err) {
        fprintf(stderr, "connect: %s\n", context ? context->errstr : "no memory");
        exit(1);
    }
    struct timeval patience = {20, 0};
    redisSetTimeout(context, patience);
    return context;
}

static void fail(const char *what, const char *expected, const char *found) {
    fprintf(stderr, "%s: expected %s, found %s\n", what, expected, found);
    exit(1);
}

/* Compares a reply as a line: parts of an array are parted by blanks. */
static void line(const redisReply *reply, char *text, size_t size) {
    size_t at = strlen(text);
    switch (reply->type) {
    case REDIS_REPLY_INTEGER: snprintf(text + at, size - at, "%lld", reply->integer); break;
    case REDIS_REPLY_NIL: snprintf(text + at, size - at, "nil"); break;
    case REDIS_REPLY_ARRAY:
        for (size_t i = 0; i < reply->elements; i++) {
            if (i > 0) strncat(text, " ", size - strlen(text) - 1);
            line(reply->element[i], text, size);
        }
        break;
    default: snprintf(text + at, size - at, "%s", reply->str);
    }
}

static void same(const char *what, redisContext *context, redisReply *reply, const char *expected) {
    char text[4096] = "";
    if (reply == NULL) fail(what, expected, context->errstr);
    line(reply, text, sizeof text);
    if (strcmp(text, expected) != 0) fail(what, expected, text);
    freeReplyObject(reply);
}

/* Asks, and compares the reply. */
static void ask(redisContext *context, const char *expected, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    same(format, context, redisvCommand(context, format, arguments), expected);
    va_end(arguments);
}

static void next(const char *what, redisContext *context, const char *expected) {
    void *reply = NULL;
    redisGetReply(context, &reply);
    same(what, context, reply, expected);
}

int main(int count, char **ports) {
    if (count != 3) return 2;
    redisContext *here = dial(ports[1]), *there = dial(ports[2]), *listener = dial(ports[2]);
    ask(here, "OK", "FLUSHDB");

    for (int i = 0; i < 100; i++) redisAppendCommand(here, "SET c:%d %d EX 60", i, i);
    redisAppendCommand(here, "GET c:99");
    for (int i = 0; i < 100; i++) next("piped", here, "OK");
    next("piped", here, "99");

    ask(here, "OK", "SET c:bytes %b", "a\0b", (size_t)3);
    ask(there, "3", "STRLEN c:bytes");
    ask(here, "2", "HSET c:hash a 1 b 2");
    ask(there, "1 2 nil", "HMGET c:hash a b c");
    ask(here, "2", "ZADD c:sorted 1 a 2.5 b");
    ask(there, "a 1 b 2.5", "ZRANGE c:sorted 0 -1 WITHSCORES");

    ask(here, "OK", "MULTI");
    ask(here, "QUEUED", "SET c:tx 1");
    ask(here, "QUEUED", "INCR c:tx");
    ask(here, "OK 2", "EXEC");
    ask(here, "OK", "WATCH c:tx");
    ask(there, "OK", "SET c:tx 10");
    ask(here, "OK", "MULTI");
    ask(here, "QUEUED", "SET c:tx 3");
    ask(here, "nil", "EXEC");
    ask(here, "10", "GET c:tx");

    ask(listener, "subscribe c:news 1", "SUBSCRIBE c:news");
    redisReply *heard = redisCommand(there, "PUBLISH c:news hello");
    if (heard == NULL || heard->type != REDIS_REPLY_INTEGER) fail("PUBLISH", "a number", "something else");
    freeReplyObject(heard);
    next("message", listener, "message c:news hello");

    ask(here, "OK", "SET c:lock me NX PX 60000");
    ask(there, "nil", "SET c:lock you NX PX 60000");
    ask(there, "0", "EVAL %s 1 c:lock you", RELEASE);
    ask(here, "1", "EVAL %s 1 c:lock me", RELEASE);

    redisAppendCommand(here, "BLPOP c:list 20");
    int done = 0;
    while (!done) redisBufferWrite(here, &done);
    ask(there, "1", "RPUSH c:list pushed");
    next("popped", here, "c:list pushed");

    ask(here, "1-1", "XADD c:stream 1-1 a 1");
    ask(there, "c:stream 1-1 a 1", "XREAD STREAMS c:stream 0");
    redisFree(here);
    redisFree(there);
    redisFree(listener);
    puts("ok");
    return 0;
}
