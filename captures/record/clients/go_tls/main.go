// Command franztls produces and reads with franz-go over TLS: two clients after each other at each listener. Arguments: a
// word for each listener, then their addresses. With the word cached both clients share a cache of sessions, so that later
// connections resume one. It logs the secrets to SSLKEYLOGFILE.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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
	check(err)
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// configuration is what all clients of a listener share.
func configuration(cached bool) *tls.Config {
	authority, err := os.ReadFile(filepath.Join(os.Getenv("CERTIFICATES"), "ca.pem"))
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	secrets, err := os.OpenFile(os.Getenv("SSLKEYLOGFILE"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	check(err)
	made := &tls.Config{RootCAs: pool, KeyLogWriter: secrets}
	if cached {
		made.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	}
	return made
}

func client(bootstrap, id string, config *tls.Config, options ...kgo.Opt) *kgo.Client {
	logger := kgo.BasicLogger(os.Stderr, kgo.LogLevelDebug, func() string { return "clientId=" + id + " " })
	options = append(options, kgo.SeedBrokers(bootstrap), kgo.ClientID(id), kgo.WithLogger(logger), kgo.DialTLSConfig(config),
		kgo.FetchMaxWait(300*time.Millisecond), kgo.DisableClientMetrics())
	made, err := kgo.NewClient(options...)
	check(err)
	return made
}

func record(kind, id string, record *kgo.Record) {
	report(kind, map[string]any{
		"client_id": id, "topic": record.Topic, "partition": record.Partition, "offset": record.Offset,
		"timestamp": record.Timestamp.UnixMilli(), "key": string(record.Key), "value": string(record.Value), "headers": []string{},
	})
}

func main() {
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
	words, addresses := strings.Split(os.Args[1], ","), os.Args[2:]
	for number, address := range addresses {
		config := configuration(words[number] == "cached")
		// By name, so that the client tells it in its hello; the broker then tells it an address.
		bootstrap := strings.Replace(address, "127.0.0.1", "localhost", 1)
		topic := fmt.Sprintf("go-%d", number)

		id := fmt.Sprintf("go-producer-%d", number)
		producer := client(bootstrap, id, config)
		create := kmsg.NewPtrCreateTopicsRequest()
		create.TimeoutMillis = 5000
		wanted := kmsg.NewCreateTopicsRequestTopic()
		wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, 1, 1
		create.Topics = append(create.Topics, wanted)
		created, err := create.RequestWith(ctx, producer)
		check(err)
		check(kerr.ErrorForCode(created.Topics[0].ErrorCode))
		report("created", map[string]any{"topic": topic, "partitions": 1})
		done := producer.ProduceSync(ctx, &kgo.Record{
			Topic: topic, Timestamp: time.UnixMilli(start), Key: []byte("key"), Value: []byte("sent by " + id)})
		check(done.FirstErr())
		record("produced", id, done[0].Record)
		producer.Close()

		id = fmt.Sprintf("go-reader-%d", number)
		reader := client(bootstrap, id, config, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		fetches := reader.PollFetches(ctx)
		check(fetches.Err0())
		fetches.EachRecord(func(one *kgo.Record) { record("consumed", id, one) })
		reader.Close()
	}
}
