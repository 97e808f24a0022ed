// Ordinary use of rueidis against two regions: one pipelined connection, transaction, publish/subscribe, lock, stream. Its
// cache at the client is off: nobody tells it here what has changed.
//
//	go run ./rueidis PORT OTHER_PORT
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"isochrone/clients/expect"
)

var release = rueidis.NewLuaScript(expect.Release)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	open := func(port string) rueidis.Client {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:" + port}, DisableCache: true})
		expect.No("connect", err)
		return client
	}
	here, there := open(os.Args[1]), open(os.Args[2])
	defer here.Close()
	defer there.Close()
	expect.No("flush", here.Do(ctx, here.B().Flushdb().Build()).Error())

	var workers sync.WaitGroup
	for worker := 0; worker < 16; worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := 0; i < 5; i++ {
				expect.No("incr", here.Do(ctx, here.B().Incr().Key("rueidis:total").Build()).Error())
			}
		}()
	}
	workers.Wait()
	total, err := there.Do(ctx, there.B().Get().Key("rueidis:total").Build()).AsInt64()
	expect.Same("total", total, err, 80)

	var commands rueidis.Commands
	for i := 0; i < 100; i++ {
		commands = append(commands, here.B().Set().Key(fmt.Sprintf("rueidis:%d", i)).Value(fmt.Sprint(i)).ExSeconds(60).Build())
	}
	commands = append(commands, here.B().Get().Key("rueidis:99").Build())
	last, err := here.DoMulti(ctx, commands...)[100].ToString()
	expect.Same("piped", last, err, "99")

	expect.No("hset", here.Do(ctx, here.B().Hset().Key("rueidis:hash").FieldValue().FieldValue("a", "1").FieldValue("b", "2").Build()).Error())
	fields, err := there.Do(ctx, there.B().Hgetall().Key("rueidis:hash").Build()).AsStrMap()
	expect.Same("hash", fmt.Sprint(fields), err, "map[a:1 b:2]")

	expect.No("transaction", here.Dedicated(func(client rueidis.DedicatedClient) error {
		expect.No("watch", client.Do(ctx, client.B().Watch().Key("rueidis:tx").Build()).Error())
		set := client.B().Set().Key("rueidis:tx").Value("1").Build()
		all := client.DoMulti(ctx, client.B().Multi().Build(), set, client.B().Incr().Key("rueidis:tx").Build(), client.B().Exec().Build())
		values, err := all[3].ToArray()
		expect.Same("transaction", len(values), err, 2)
		expect.No("watch", client.Do(ctx, client.B().Watch().Key("rueidis:tx").Build()).Error())
		expect.No("meanwhile", there.Do(ctx, there.B().Set().Key("rueidis:tx").Value("10").Build()).Error())
		set = client.B().Set().Key("rueidis:tx").Value("3").Build()
		all = client.DoMulti(ctx, client.B().Multi().Build(), set, client.B().Exec().Build())
		expect.Same("a transaction that comes too late", rueidis.IsRedisNil(all[2].Error()), nil, true)
		return nil
	}))

	subscriber, done := there.Dedicate()
	defer done()
	ready, heard := make(chan struct{}, 2), make(chan string, 1)
	subscriber.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage:      func(message rueidis.PubSubMessage) { heard <- message.Message },
		OnSubscription: func(rueidis.PubSubSubscription) { ready <- struct{}{} },
	})
	expect.No("subscribe", subscriber.Do(ctx, subscriber.B().Subscribe().Channel("rueidis:news").Build()).Error())
	<-ready
	expect.No("publish", there.Do(ctx, there.B().Publish().Channel("rueidis:news").Message("hello").Build()).Error())
	expect.Same("message", <-heard, nil, "hello")

	lock := func(client rueidis.Client, holder string) error {
		return client.Do(ctx, client.B().Set().Key("rueidis:lock").Value(holder).Nx().PxMilliseconds(60_000).Build()).Error()
	}
	expect.No("lock", lock(here, "me"))
	expect.Same("lock of another", rueidis.IsRedisNil(lock(there, "you")), nil, true)
	deleted, err := release.Exec(ctx, there, []string{"rueidis:lock"}, []string{"you"}).AsInt64()
	expect.Same("release of another", deleted, err, 0)
	deleted, err = release.Exec(ctx, here, []string{"rueidis:lock"}, []string{"me"}).AsInt64()
	expect.Same("release", deleted, err, 1)

	id, err := here.Do(ctx, here.B().Xadd().Key("rueidis:stream").Id("*").FieldValue().FieldValue("a", "1").Build()).ToString()
	expect.No("xadd", err)
	streams, err := there.Do(ctx, there.B().Xread().Streams().Key("rueidis:stream").Id("0").Build()).AsXRead()
	expect.No("xread", err)
	expect.Same("stream", streams["rueidis:stream"][0].ID, nil, id)
	fmt.Println("ok")
}
