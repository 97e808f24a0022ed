// Ordinary use of redigo against two regions: pool, pipeline, transaction, publish/subscribe, lock, stream.
//
//	go run ./redigo PORT OTHER_PORT
package main

import (
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

func check(what string, err error) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}

func same[T comparable](what string, found T, err error, expected T) {
	check(what, err)
	if found != expected {
		log.Fatalf("%s: expected %v, found %v", what, expected, found)
	}
}

// Deletes the lock of its holder: the script of the page on distributed locks.
var release = redis.NewScript(1, `if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end`)

func main() {
	open := func(port string) *redis.Pool {
		return &redis.Pool{MaxActive: 8, Wait: true, MaxIdle: 8, Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", "127.0.0.1:"+port, redis.DialReadTimeout(20*time.Second))
		}}
	}
	pools := [2]*redis.Pool{open(os.Args[1]), open(os.Args[2])}
	here, there := pools[0].Get(), pools[1].Get()
	_, err := here.Do("FLUSHDB")
	check("flush", err)

	var workers sync.WaitGroup
	for worker := 0; worker < 16; worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := 0; i < 5; i++ {
				conn := pools[1].Get()
				_, err := conn.Do("INCR", "redigo:total")
				check("incr", err)
				conn.Close()
			}
		}()
	}
	workers.Wait()
	total, err := redis.Int(here.Do("GET", "redigo:total"))
	same("total", total, err, 80)

	for i := 0; i < 100; i++ {
		check("send", here.Send("SET", fmt.Sprintf("redigo:%d", i), i, "EX", 60))
	}
	check("send", here.Send("GET", "redigo:99"))
	check("flush", here.Flush())
	for i := 0; i < 100; i++ {
		_, err := here.Receive()
		check("piped", err)
	}
	last, err := redis.String(here.Receive())
	same("piped", last, err, "99")

	_, err = here.Do("HSET", redis.Args{}.Add("redigo:hash").AddFlat(map[string]string{"a": "1", "b": "2"})...)
	check("hset", err)
	fields, err := redis.StringMap(there.Do("HGETALL", "redigo:hash"))
	same("hash", fmt.Sprint(fields), err, "map[a:1 b:2]")

	check("multi", here.Send("MULTI"))
	check("multi", here.Send("SET", "redigo:tx", 1))
	check("multi", here.Send("INCR", "redigo:tx"))
	values, err := redis.Values(here.Do("EXEC"))
	same("transaction", fmt.Sprint(values), err, "[OK 2]")
	_, err = here.Do("WATCH", "redigo:tx")
	check("watch", err)
	_, err = there.Do("SET", "redigo:tx", 10)
	check("meanwhile", err)
	check("multi", here.Send("MULTI"))
	check("multi", here.Send("SET", "redigo:tx", 3))
	nothing, err := here.Do("EXEC")
	same("a transaction that comes too late", nothing == nil, err, true)

	subscription := redis.PubSubConn{Conn: pools[1].Get()}
	check("subscribe", subscription.Subscribe("redigo:news"))
	if _, ok := subscription.Receive().(redis.Subscription); !ok {
		log.Fatal("not subscribed")
	}
	_, err = there.Do("PUBLISH", "redigo:news", "hello")
	check("publish", err)
	message, ok := subscription.Receive().(redis.Message)
	same("message", string(message.Data), nil, "hello")
	same("a message", ok, nil, true)
	subscription.Close()

	held, err := redis.String(here.Do("SET", "redigo:lock", "me", "NX", "PX", 60000))
	same("lock", held, err, "OK")
	other, err := there.Do("SET", "redigo:lock", "you", "NX", "PX", 60000)
	same("lock of another", other == nil, err, true)
	deleted, err := redis.Int(release.Do(there, "redigo:lock", "you"))
	same("release of another", deleted, err, 0)
	deleted, err = redis.Int(release.Do(here, "redigo:lock", "me"))
	same("release", deleted, err, 1)

	id, err := redis.String(here.Do("XADD", "redigo:stream", "*", "a", "1"))
	check("xadd", err)
	entries, err := redis.Values(there.Do("XRANGE", "redigo:stream", "-", "+"))
	check("xrange", err)
	first, err := redis.Values(entries[0], nil)
	check("entry", err)
	found, err := redis.String(first[0], nil)
	same("stream", found, err, id)
	fmt.Println("ok")
}
