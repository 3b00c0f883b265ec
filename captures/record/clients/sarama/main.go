// Command sarama produces and reads with sarama: every codec, a transaction, a group of two members, admin calls.
//
// Its log names no requests, but its metrics count them by API key, for each client: all but ApiVersions.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
)

const (
	start   = 1700000000000
	group   = "sarama-group"
	counter = "protocol-requests-rate-"
)

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

// text keeps null and empty apart.
func text(data []byte) any {
	if data == nil {
		return nil
	}
	return string(data)
}

// lasting keeps metrics whose client has closed.
type lasting struct{ metrics.Registry }

func (lasting) Unregister(string) {}
func (lasting) UnregisterAll()    {}

var registries = map[string]metrics.Registry{}

func config(id string) *sarama.Config {
	made := sarama.NewConfig()
	made.ClientID = id
	made.Version = sarama.MaxVersion
	made.MetricRegistry = lasting{metrics.NewRegistry()}
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Producer.Return.Successes = true
	made.Producer.Flush.Frequency = 100 * time.Millisecond
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.MaxWaitTime = time.Second
	made.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	made.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
	registries[id] = made.MetricRegistry
	return made
}

// count reports what each client says of its requests.
func count() {
	for id, registry := range registries {
		requests := map[string]int64{}
		registry.Each(func(name string, metric any) {
			if meter, ok := metric.(metrics.Meter); ok && strings.HasPrefix(name, counter) && !strings.Contains(name, "broker") {
				requests[strings.TrimPrefix(name, counter)] = meter.Count()
			}
		})
		report("counted_requests", map[string]any{"client_id": id, "by_api_key": requests})
	}
}

func samples(topic string) []*sarama.ProducerMessage {
	at := func(index int) time.Time { return time.UnixMilli(start + int64(index)*1000) }
	return []*sarama.ProducerMessage{
		{Topic: topic, Timestamp: at(0), Key: sarama.StringEncoder("key"), Value: sarama.StringEncoder("value " + strings.Repeat("lorem ipsum ", 12))},
		{Topic: topic, Timestamp: at(1), Value: sarama.StringEncoder("no key"), Headers: []sarama.RecordHeader{
			{Key: []byte("trace"), Value: []byte("a1")}, {Key: []byte("empty"), Value: []byte{}}}},
		{Topic: topic, Timestamp: at(2), Key: sarama.StringEncoder("tombstone")},
	}
}

func produced(message *sarama.ProducerMessage, codec string) {
	encoded := func(encoder sarama.Encoder) any {
		if encoder == nil {
			return nil
		}
		data, err := encoder.Encode()
		check(err)
		return text(data)
	}
	headers := [][2]any{}
	for _, header := range message.Headers {
		headers = append(headers, [2]any{string(header.Key), text(header.Value)})
	}
	report("produced", map[string]any{
		"topic": message.Topic, "partition": message.Partition, "offset": message.Offset, "timestamp": message.Timestamp.UnixMilli(),
		"key": encoded(message.Key), "value": encoded(message.Value), "headers": headers, "codec": codec,
	})
}

// member reports what a consumer of the group is given and reads, and commits it.
type member struct {
	id       string
	assigned chan int
	seen     chan struct{}
}

func (one member) changed(kind string, session sarama.ConsumerGroupSession) error {
	partitions := []string{}
	for topic, numbers := range session.Claims() {
		for _, number := range numbers {
			partitions = append(partitions, fmt.Sprintf("%s-%d", topic, number))
		}
	}
	report(kind, map[string]any{"client_id": one.id, "group": group, "member_id": session.MemberID(),
		"generation": session.GenerationID(), "partitions": partitions})
	if kind == "assigned" {
		one.assigned <- len(partitions)
	}
	return nil
}

func (one member) Setup(session sarama.ConsumerGroupSession) error {
	return one.changed("assigned", session)
}

func (one member) Cleanup(session sarama.ConsumerGroupSession) error {
	return one.changed("revoked", session)
}

func (one member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			headers := [][2]any{}
			for _, header := range message.Headers {
				headers = append(headers, [2]any{string(header.Key), text(header.Value)})
			}
			report("consumed", map[string]any{
				"client_id": one.id, "topic": message.Topic, "partition": message.Partition, "offset": message.Offset,
				"timestamp": message.Timestamp.UnixMilli(), "key": text(message.Key), "value": text(message.Value), "headers": headers,
			})
			session.MarkMessage(message, "by "+one.id)
			one.seen <- struct{}{}
		case <-session.Context().Done():
			session.Commit()
			return nil
		}
	}
}

// join runs a member until the returned function is called.
func join(bootstrap string, one member, topics []string) func() {
	consumer, err := sarama.NewConsumerGroup([]string{bootstrap}, group, config(one.id))
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			check(consumer.Consume(ctx, topics, one))
		}
	}()
	return func() {
		cancel()
		<-done
		check(consumer.Close())
		report("left", map[string]any{"client_id": one.id, "group": group})
	}
}

func await(one member, partitions int) {
	for timeout := time.After(40 * time.Second); ; {
		select {
		case number := <-one.assigned:
			if number == partitions {
				return
			}
		case <-timeout:
			check(fmt.Errorf("%s did not get %d partitions", one.id, partitions))
		}
	}
}

func main() {
	bootstrap := os.Args[1]
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/IBM/sarama" {
				version = module.Version
			}
		}
	}
	report("client", map[string]any{"name": "sarama", "version": strings.TrimPrefix(version, "v")})

	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config("sarama-admin"))
	check(err)
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	}
	var topics []string
	for _, codec := range codecs {
		topic := "sarama-" + codec.String()
		check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
		report("created", map[string]any{"topic": topic, "partitions": 1})
		topics = append(topics, topic)
	}

	for index, codec := range codecs {
		settings := config("sarama-" + codec.String())
		settings.Producer.Compression = codec
		if codec == sarama.CompressionZSTD {
			settings.Producer.Idempotent, settings.Producer.RequiredAcks, settings.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
		}
		producer, err := sarama.NewSyncProducer([]string{bootstrap}, settings)
		check(err)
		messages := samples(topics[index])
		check(producer.SendMessages(messages))
		for _, message := range messages {
			produced(message, codec.String())
		}
		check(producer.Close())
	}

	settings := config("sarama-transaction")
	settings.Producer.Transaction.ID = "sarama-transactional"
	settings.Producer.Idempotent, settings.Producer.RequiredAcks, settings.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
	transactional, err := sarama.NewSyncProducer([]string{bootstrap}, settings)
	check(err)
	for _, result := range []string{"commit", "abort"} {
		check(transactional.BeginTxn())
		message := &sarama.ProducerMessage{Topic: topics[0], Timestamp: time.UnixMilli(start), Value: sarama.StringEncoder("to " + result)}
		_, _, err = transactional.SendMessage(message)
		check(err)
		produced(message, "none")
		if result == "commit" {
			check(transactional.CommitTxn())
		} else {
			check(transactional.AbortTxn())
		}
		report("transaction", map[string]any{"transactional_id": "sarama-transactional", "result": result, "values": []string{"to " + result}})
	}
	check(transactional.Close())

	seen := make(chan struct{}, 100)
	first := member{"sarama-member-1", make(chan int, 10), seen}
	second := member{"sarama-member-2", make(chan int, 10), seen}
	leaveFirst := join(bootstrap, first, topics)
	await(first, len(topics))
	for read := 0; read < 3*len(topics)+2; read++ { // the aborted record too: this client reads what is not committed
		<-seen
	}
	leaveSecond := join(bootstrap, second, topics)
	await(second, 2)
	described, err := admin.DescribeConsumerGroups([]string{group})
	check(err)
	members := []map[string]any{}
	for id, one := range described[0].Members {
		members = append(members, map[string]any{"client_id": one.ClientId, "member_id": id})
	}
	report("described_group", map[string]any{"group": group, "state": described[0].State, "members": members})
	leaveSecond()
	leaveFirst()

	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topics[1]: {0}})
	check(err)
	report("offsets", map[string]any{"group": group, "offsets": map[string]int64{topics[1] + "-0": offsets.GetBlock(topics[1], 0).Offset}})
	value := "60000"
	check(admin.IncrementalAlterConfig(sarama.TopicResource, topics[0], map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}, false))
	report("altered_settings", map[string]any{"settings": map[string]string{"retention.ms": value}})
	err = admin.DeleteTopic("no-such-topic")
	var code sarama.KError
	if !errors.As(err, &code) {
		check(fmt.Errorf("an unknown topic was deleted: %w", err))
	}
	report("failed", map[string]any{"operation": "delete an unknown topic", "error_code": int16(code), "error": "UNKNOWN_TOPIC_OR_PARTITION",
		"text": code.Error()})
	check(admin.Close())
	count()
}
