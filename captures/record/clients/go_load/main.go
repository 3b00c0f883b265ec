// Command franz_load has producers and consumers of franz-go for the benchmarks' form "mixed".
//
// "franz_load TOPICS RATE SECONDS BOOTSTRAP" produces RATE small records a second, batches of larger ones besides, and
// reads everything in a group. It ends after SECONDS, or when stdin ends.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	tick      = 20 * time.Millisecond
	largeEach = 25
	flush     = 10 * time.Second
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(bootstrap, id string, options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(bootstrap), kgo.ClientID(id), kgo.FetchMaxWait(100*time.Millisecond))
	made, err := kgo.NewClient(options...)
	check(err)
	return made
}

func record(random *rand.Rand, topics []string, number, size int) *kgo.Record {
	var text strings.Builder
	for text.Len() < size {
		text.WriteString(strconv.FormatUint(random.Uint64(), 36))
	}
	value := fmt.Sprintf(`{"id":%d,"amount":%v,"text":"%s"}`, number, random.Float64(), text.String())
	return &kgo.Record{
		Topic: topics[random.Intn(len(topics))],
		Key:   []byte(fmt.Sprintf("go-%d", random.Intn(100_000))),
		Value: []byte(value),
	}
}

func read(ctx context.Context, bootstrap, id string, topics []string) {
	member := client(bootstrap, id, kgo.ConsumerGroup("go-classic"), kgo.ConsumeTopics(topics...), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(500*time.Millisecond))
	for ctx.Err() == nil {
		fetches := member.PollRecords(ctx, 50)
		if fetches.NumRecords() > 0 && ctx.Err() == nil {
			member.CommitUncommittedOffsets(ctx)
		}
	}
	member.Close()
}

func main() {
	topics := strings.Split(os.Args[1], ",")
	rate, err := strconv.Atoi(os.Args[2])
	check(err)
	seconds, err := strconv.Atoi(os.Args[3])
	check(err)
	bootstrap := os.Args[4]
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	var readers sync.WaitGroup
	for member := 0; member < 2; member++ {
		readers.Add(1)
		go func() {
			defer readers.Done()
			read(ctx, bootstrap, fmt.Sprintf("go-classic-%d", member), topics)
		}()
	}

	quick := client(bootstrap, "go-small", kgo.MaxBufferedRecords(1000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	bulk := client(bootstrap, "go-large", kgo.ProducerLinger(50*time.Millisecond), kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	failed := func(_ *kgo.Record, err error) {
		if ctx.Err() == nil {
			check(err)
		}
	}
	random := rand.New(rand.NewSource(3))
	begin := time.Now()
	small, large := 0, 0
	for ctx.Err() == nil {
		for due := int(time.Since(begin).Seconds() * float64(rate)); small < due && ctx.Err() == nil; small++ {
			quick.Produce(ctx, record(random, topics, small, 20+random.Intn(80)), failed)
			if small%largeEach == 0 {
				for i := 0; i < largeEach; i++ {
					bulk.Produce(ctx, record(random, topics, large, 150+random.Intn(200)), failed)
					large++
				}
			}
		}
		time.Sleep(tick)
	}
	ending, stop := context.WithTimeout(context.Background(), flush)
	defer stop()
	check(quick.Flush(ending))
	check(bulk.Flush(ending))
	quick.Close()
	bulk.Close()
	readers.Wait()
	line, err := json.Marshal(map[string]any{"kind": "produced", "client": "franz-go", "records": small + large})
	check(err)
	fmt.Println(string(line))
}
