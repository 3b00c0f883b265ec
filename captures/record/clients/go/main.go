// Command franz produces and reads with franz-go: every codec, a group, a transaction, admin calls.
//
// Its log at debug names API and version of each request that it wrote; its hooks add key and size.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const start = 1700000000000

var output sync.Mutex

func report(kind string, fields map[string]any) {
	fields["kind"] = kind
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(line))
}

// text keeps null and empty apart.
func text(data []byte) any {
	if data == nil {
		return nil
	}
	return string(data)
}

func record(kind string, record *kgo.Record) {
	headers := [][2]any{}
	for _, header := range record.Headers {
		headers = append(headers, [2]any{header.Key, text(header.Value)})
	}
	report(kind, map[string]any{
		"topic": record.Topic, "partition": record.Partition, "offset": record.Offset, "timestamp": record.Timestamp.UnixMilli(),
		"key": text(record.Key), "value": text(record.Value), "headers": headers,
		"producer_id": record.ProducerID, "producer_epoch": record.ProducerEpoch,
	})
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(bootstrap, id string, options ...kgo.Opt) *kgo.Client {
	logger := kgo.BasicLogger(os.Stderr, kgo.LogLevelDebug, func() string { return "clientId=" + id + " " })
	options = append(options, kgo.SeedBrokers(bootstrap), kgo.ClientID(id), kgo.WithLogger(logger),
		kgo.FetchMaxWait(300*time.Millisecond), kgo.DisableClientMetrics())
	made, err := kgo.NewClient(options...)
	check(err)
	return made
}

func samples(topic string) []*kgo.Record {
	at := func(index int) time.Time { return time.UnixMilli(start + int64(index)*1000) }
	return []*kgo.Record{
		{Topic: topic, Timestamp: at(0), Key: []byte("key"), Value: []byte("value " + strings.Repeat("lorem ipsum ", 12))},
		{Topic: topic, Timestamp: at(1), Value: []byte("no key"), Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("a1")}, {Key: "null"}}},
		{Topic: topic, Timestamp: at(2), Key: []byte("tombstone")},
	}
}

func main() {
	bootstrap := os.Args[1]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				version = module.Version
			}
		}
	}
	report("client", map[string]any{"name": "franz-go", "version": strings.TrimPrefix(version, "v")})

	codecs := []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
		{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
	}
	admin := client(bootstrap, "go-admin")
	create := kmsg.NewPtrCreateTopicsRequest()
	create.TimeoutMillis = 5000
	var topics []string
	for _, codec := range codecs {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "go-"+codec.name, 1, 1
		create.Topics = append(create.Topics, topic)
		topics = append(topics, topic.Topic)
	}
	created, err := create.RequestWith(ctx, admin)
	check(err)
	for _, topic := range created.Topics {
		check(kerr.ErrorForCode(topic.ErrorCode))
		report("created", map[string]any{"topic": topic.Topic, "partitions": topic.NumPartitions, "topic_id": fmt.Sprintf("%x", topic.TopicID)})
	}

	for _, codec := range codecs {
		producer := client(bootstrap, "go-"+codec.name, kgo.ProducerBatchCompression(codec.codec), kgo.ProducerLinger(50*time.Millisecond))
		for _, result := range producer.ProduceSync(ctx, samples("go-"+codec.name)...) {
			check(result.Err)
			record("produced", result.Record)
		}
		producer.Close()
	}

	transactional := client(bootstrap, "go-transaction", kgo.TransactionalID("go-transactional"))
	for _, outcome := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		check(transactional.BeginTransaction())
		done := transactional.ProduceSync(ctx, &kgo.Record{Topic: "go-none", Timestamp: time.UnixMilli(start), Value: []byte(fmt.Sprintf("commit: %v", outcome))})
		check(done.FirstErr())
		record("produced", done[0].Record)
		check(transactional.EndTransaction(ctx, outcome))
		report("transaction", map[string]any{"transactional_id": "go-transactional", "committed": bool(outcome)})
	}
	transactional.Close()

	member := client(bootstrap, "go-member", kgo.ConsumerGroup("go-group"), kgo.ConsumeTopics(topics...), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.HeartbeatInterval(500*time.Millisecond))
	for seen := 0; seen < 3*len(topics)+1; {
		fetches := member.PollFetches(ctx)
		check(fetches.Err0())
		fetches.EachRecord(func(one *kgo.Record) {
			record("consumed", one)
			seen++
		})
	}
	check(member.CommitUncommittedOffsets(ctx))
	group, generation := member.GroupMetadata()
	report("committed", map[string]any{"group": group, "generation": generation})
	member.Close()

	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"go-group"}
	described, err := describe.RequestWith(ctx, admin)
	check(err)
	report("described_group", map[string]any{"group": "go-group", "state": described.Groups[0].State, "protocol": described.Groups[0].Protocol})
	missing := kmsg.NewPtrDeleteTopicsRequest()
	missing.TimeoutMillis = 5000
	missing.Topics = append(missing.Topics, kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr("no-such-topic")})
	deleted, err := missing.RequestWith(ctx, admin)
	check(err)
	report("failed", map[string]any{"operation": "delete an unknown topic", "error_code": deleted.Topics[0].ErrorCode,
		"error": kerr.ErrorForCode(deleted.Topics[0].ErrorCode).(*kerr.Error).Message})
	admin.Close()
}
