// Ordinary use of go-redis against two regions: pool, pipeline, transaction, publish/subscribe, lock, stream.
//
//	go run . PORT OTHER_PORT
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func same[T comparable](what string, found, expected T) {
	if found != expected {
		fmt.Fprintf(os.Stderr, "%s: expected %v, found %v\n", what, expected, found)
		os.Exit(1)
	}
}

// Deletes the lock of its holder: the script of the page on distributed locks.
var release = redis.NewScript(`if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end`)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	options := func(port string) *redis.Options {
		return &redis.Options{Addr: "127.0.0.1:" + port, PoolSize: 8, ReadTimeout: 20 * time.Second}
	}
	here, there := redis.NewClient(options(os.Args[1])), redis.NewClient(options(os.Args[2]))
	defer here.Close()
	defer there.Close()
	check("flush", here.FlushDB(ctx).Err())

	var workers sync.WaitGroup
	for worker := 0; worker < 16; worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := 0; i < 5; i++ {
				check("incr", here.Incr(ctx, "go:total").Err())
			}
		}()
	}
	workers.Wait()
	total, err := there.Get(ctx, "go:total").Int()
	check("get", err)
	same("total", total, 80)

	commands, err := here.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := 0; i < 100; i++ {
			pipe.Set(ctx, fmt.Sprintf("go:%d", i), i, time.Minute)
		}
		pipe.Get(ctx, "go:99")
		return nil
	})
	check("pipeline", err)
	same("piped", commands[100].(*redis.StringCmd).Val(), "99")

	// A watched key that another region changes fails the transaction, and it goes through when tried again.
	tries := 0
	change := func(tx *redis.Tx) error {
		value, err := tx.Get(ctx, "go:watched").Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if tries++; tries == 1 {
			check("meanwhile", there.Set(ctx, "go:watched", 10, 0).Err())
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "go:watched", value+1, 0)
			return nil
		})
		return err
	}
	err = here.Watch(ctx, change, "go:watched")
	same("the first transaction", errors.Is(err, redis.TxFailedErr), true)
	check("the second transaction", here.Watch(ctx, change, "go:watched"))
	same("watched", there.Get(ctx, "go:watched").Val(), "11")

	subscription := here.Subscribe(ctx, "go:news")
	defer subscription.Close()
	_, err = subscription.Receive(ctx)
	check("subscribe", err)
	check("publish", here.Publish(ctx, "go:news", "hello").Err())
	message, err := subscription.ReceiveMessage(ctx)
	check("message", err)
	same("message", message.Payload, "hello")

	held, err := here.SetNX(ctx, "go:lock", "me", time.Minute).Result()
	check("lock", err)
	same("lock", held, true)
	held, err = there.SetNX(ctx, "go:lock", "you", time.Minute).Result()
	check("lock", err)
	same("lock of another", held, false)
	for holder, expected := range map[string]int{"you": 0} {
		deleted, err := release.Run(ctx, there, []string{"go:lock"}, holder).Int()
		check("release", err)
		same("release of "+holder, deleted, expected)
	}
	deleted, err := release.Run(ctx, here, []string{"go:lock"}, "me").Int()
	check("release", err)
	same("release", deleted, 1)

	id, err := here.XAdd(ctx, &redis.XAddArgs{Stream: "go:stream", Values: []string{"a", "1"}}).Result()
	check("xadd", err)
	streams, err := there.XRead(ctx, &redis.XReadArgs{Streams: []string{"go:stream", "0"}, Block: -1}).Result()
	check("xread", err)
	same("stream", streams[0].Messages[0].ID, id)
	same("entry", streams[0].Messages[0].Values["a"].(string), "1")
	fmt.Println("ok")
}
