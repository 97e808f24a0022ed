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
	"isochrone/clients/expect"
)

var release = redis.NewScript(expect.Release)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	options := func(port string) *redis.Options {
		return &redis.Options{Addr: "127.0.0.1:" + port, PoolSize: 8, ReadTimeout: 20 * time.Second}
	}
	here, there := redis.NewClient(options(os.Args[1])), redis.NewClient(options(os.Args[2]))
	defer here.Close()
	defer there.Close()
	expect.No("flush", here.FlushDB(ctx).Err())

	var workers sync.WaitGroup
	for worker := 0; worker < 16; worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := 0; i < 5; i++ {
				expect.No("incr", here.Incr(ctx, "go:total").Err())
			}
		}()
	}
	workers.Wait()
	total, err := there.Get(ctx, "go:total").Int()
	expect.Same("total", total, err, 80)

	commands, err := here.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := 0; i < 100; i++ {
			pipe.Set(ctx, fmt.Sprintf("go:%d", i), i, time.Minute)
		}
		pipe.Get(ctx, "go:99")
		return nil
	})
	expect.No("pipeline", err)
	expect.Same("piped", commands[100].(*redis.StringCmd).Val(), nil, "99")

	// A watched key that another region changes fails the transaction, and it goes through when tried again.
	tries := 0
	change := func(tx *redis.Tx) error {
		value, err := tx.Get(ctx, "go:watched").Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if tries++; tries == 1 {
			expect.No("meanwhile", there.Set(ctx, "go:watched", 10, 0).Err())
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "go:watched", value+1, 0)
			return nil
		})
		return err
	}
	err = here.Watch(ctx, change, "go:watched")
	expect.Same("the first transaction", errors.Is(err, redis.TxFailedErr), nil, true)
	expect.No("the second transaction", here.Watch(ctx, change, "go:watched"))
	expect.Same("watched", there.Get(ctx, "go:watched").Val(), nil, "11")

	subscription := here.Subscribe(ctx, "go:news")
	defer subscription.Close()
	_, err = subscription.Receive(ctx)
	expect.No("subscribe", err)
	expect.No("publish", here.Publish(ctx, "go:news", "hello").Err())
	message, err := subscription.ReceiveMessage(ctx)
	expect.No("message", err)
	expect.Same("message", message.Payload, nil, "hello")

	held, err := here.SetNX(ctx, "go:lock", "me", time.Minute).Result()
	expect.Same("lock", held, err, true)
	held, err = there.SetNX(ctx, "go:lock", "you", time.Minute).Result()
	expect.Same("lock of another", held, err, false)
	for holder, expected := range map[string]int{"you": 0} {
		deleted, err := release.Run(ctx, there, []string{"go:lock"}, holder).Int()
		expect.Same("release of "+holder, deleted, err, expected)
	}
	deleted, err := release.Run(ctx, here, []string{"go:lock"}, "me").Int()
	expect.Same("release", deleted, err, 1)

	id, err := here.XAdd(ctx, &redis.XAddArgs{Stream: "go:stream", Values: []string{"a", "1"}}).Result()
	expect.No("xadd", err)
	streams, err := there.XRead(ctx, &redis.XReadArgs{Streams: []string{"go:stream", "0"}, Block: -1}).Result()
	expect.No("xread", err)
	expect.Same("stream", streams[0].Messages[0].ID, nil, id)
	expect.Same("entry", streams[0].Messages[0].Values["a"].(string), nil, "1")
	fmt.Println("ok")
}
