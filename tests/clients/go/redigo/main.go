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
	"isochrone/clients/expect"
)

var release = redis.NewScript(1, expect.Release)

func main() {
	open := func(port string) *redis.Pool {
		return &redis.Pool{MaxActive: 8, Wait: true, MaxIdle: 8, Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", "127.0.0.1:"+port, redis.DialReadTimeout(20*time.Second))
		}}
	}
	pools := [2]*redis.Pool{open(os.Args[1]), open(os.Args[2])}
	here, there := pools[0].Get(), pools[1].Get()
	_, err := here.Do("FLUSHDB")
	expect.No("flush", err)

	var workers sync.WaitGroup
	for worker := 0; worker < 16; worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := 0; i < 5; i++ {
				conn := pools[1].Get()
				_, err := conn.Do("INCR", "redigo:total")
				expect.No("incr", err)
				conn.Close()
			}
		}()
	}
	workers.Wait()
	total, err := redis.Int(here.Do("GET", "redigo:total"))
	expect.Same("total", total, err, 80)

	for i := 0; i < 100; i++ {
		expect.No("send", here.Send("SET", fmt.Sprintf("redigo:%d", i), i, "EX", 60))
	}
	expect.No("send", here.Send("GET", "redigo:99"))
	expect.No("flush", here.Flush())
	for i := 0; i < 100; i++ {
		_, err := here.Receive()
		expect.No("piped", err)
	}
	last, err := redis.String(here.Receive())
	expect.Same("piped", last, err, "99")

	_, err = here.Do("HSET", redis.Args{}.Add("redigo:hash").AddFlat(map[string]string{"a": "1", "b": "2"})...)
	expect.No("hset", err)
	fields, err := redis.StringMap(there.Do("HGETALL", "redigo:hash"))
	expect.Same("hash", fmt.Sprint(fields), err, "map[a:1 b:2]")

	expect.No("multi", here.Send("MULTI"))
	expect.No("multi", here.Send("SET", "redigo:tx", 1))
	expect.No("multi", here.Send("INCR", "redigo:tx"))
	values, err := redis.Values(here.Do("EXEC"))
	expect.Same("transaction", fmt.Sprint(values), err, "[OK 2]")
	_, err = here.Do("WATCH", "redigo:tx")
	expect.No("watch", err)
	_, err = there.Do("SET", "redigo:tx", 10)
	expect.No("meanwhile", err)
	expect.No("multi", here.Send("MULTI"))
	expect.No("multi", here.Send("SET", "redigo:tx", 3))
	nothing, err := here.Do("EXEC")
	expect.Same("a transaction that comes too late", nothing == nil, err, true)

	subscription := redis.PubSubConn{Conn: pools[1].Get()}
	expect.No("subscribe", subscription.Subscribe("redigo:news"))
	if _, ok := subscription.Receive().(redis.Subscription); !ok {
		log.Fatal("not subscribed")
	}
	_, err = there.Do("PUBLISH", "redigo:news", "hello")
	expect.No("publish", err)
	message, ok := subscription.Receive().(redis.Message)
	expect.Same("message", string(message.Data), nil, "hello")
	expect.Same("a message", ok, nil, true)
	subscription.Close()

	held, err := redis.String(here.Do("SET", "redigo:lock", "me", "NX", "PX", 60000))
	expect.Same("lock", held, err, "OK")
	other, err := there.Do("SET", "redigo:lock", "you", "NX", "PX", 60000)
	expect.Same("lock of another", other == nil, err, true)
	deleted, err := redis.Int(release.Do(there, "redigo:lock", "you"))
	expect.Same("release of another", deleted, err, 0)
	deleted, err = redis.Int(release.Do(here, "redigo:lock", "me"))
	expect.Same("release", deleted, err, 1)

	id, err := redis.String(here.Do("XADD", "redigo:stream", "*", "a", "1"))
	expect.No("xadd", err)
	entries, err := redis.Values(there.Do("XRANGE", "redigo:stream", "-", "+"))
	expect.No("xrange", err)
	first, err := redis.Values(entries[0], nil)
	expect.No("entry", err)
	found, err := redis.String(first[0], nil)
	expect.Same("stream", found, err, id)
	fmt.Println("ok")
}
