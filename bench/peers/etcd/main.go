// Load for an etcd cluster: puts of 64-byte values from a fixed number of clients, one at a time each.
//
//	go run . -endpoints 127.0.0.1:2379,127.0.0.1:2381 -clients 100 -seconds 10
//
// Prints one JSON object: puts, seconds, puts_per_second, p50_ms, p99_ms.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "comma-separated endpoints")
	clients := flag.Int("clients", 100, "concurrent clients")
	seconds := flag.Float64("seconds", 10, "how long to measure")
	warmup := flag.Float64("warmup", 2, "how long to warm up")
	size := flag.Int("size", 64, "value size, bytes")
	keys := flag.Int("keys", 100000, "number of keys")
	flag.Parse()

	value := strings.Repeat("x", *size)
	list := strings.Split(*endpoints, ",")
	begin := time.Now().Add(time.Duration(*warmup * float64(time.Second)))
	end := begin.Add(time.Duration(*seconds * float64(time.Second)))
	latencies := make([][]time.Duration, *clients)

	// Ten clients share a connection, as etcd's own benchmark does by default (--conns).
	conns := make([]*clientv3.Client, (*clients+9)/10)
	for i := range conns {
		c, err := clientv3.New(clientv3.Config{Endpoints: list[i%len(list) : i%len(list)+1], DialTimeout: 5 * time.Second})
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		conns[i] = c
	}
	var group sync.WaitGroup
	for i := 0; i < *clients; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			random := rand.New(rand.NewSource(int64(i)))
			for {
				from := time.Now()
				if from.After(end) {
					return
				}
				key := fmt.Sprintf("key:%012d", random.Intn(*keys))
				if _, err := conns[i%len(conns)].Put(context.Background(), key, value); err != nil {
					log.Fatal(err)
				}
				if from.After(begin) {
					latencies[i] = append(latencies[i], time.Since(from))
				}
			}
		}(i)
	}
	group.Wait()

	var all []time.Duration
	for _, part := range latencies {
		all = append(all, part...)
	}
	if len(all) == 0 {
		log.Fatal("no put finished within the measured time")
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	ms := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))].Microseconds()) / 1000 }
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"puts": len(all), "seconds": *seconds, "puts_per_second": float64(len(all)) / *seconds,
		"p50_ms": ms(0.5), "p99_ms": ms(0.99),
	})
}
