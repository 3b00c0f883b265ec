// Command librdkafka_1_4 uses the librdkafka 1.4 that confluent-kafka-go brought along: every codec, a transaction, a group.
//
// The library writes its log of requests and responses to stderr by itself (debug=protocol).
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/kafka"
)

const (
	start = 1700000000000
	group = "old-rd-group"
)

func report(kind string, fields map[string]any) {
	fields["kind"] = kind
	line, err := json.Marshal(fields)
	check(err)
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

func record(kind string, message *kafka.Message, more map[string]any) {
	headers := [][2]any{}
	for _, header := range message.Headers {
		headers = append(headers, [2]any{header.Key, text(header.Value)})
	}
	fields := map[string]any{
		"topic": *message.TopicPartition.Topic, "partition": message.TopicPartition.Partition, "offset": int64(message.TopicPartition.Offset),
		"timestamp": message.Timestamp.UnixNano() / 1e6, "key": text(message.Key), "value": text(message.Value), "headers": headers,
	}
	for name, value := range more {
		fields[name] = value
	}
	report(kind, fields)
}

func settings(bootstrap, id string, more kafka.ConfigMap) *kafka.ConfigMap {
	made := kafka.ConfigMap{"bootstrap.servers": bootstrap, "client.id": id, "debug": "protocol", "broker.address.family": "any"}
	for name, value := range more {
		made[name] = value
	}
	return &made
}

func samples(topic string) []*kafka.Message {
	at := func(index int) time.Time { return time.Unix(0, (start+int64(index)*1000)*1e6) }
	place := kafka.TopicPartition{Topic: &topic, Partition: 0}
	return []*kafka.Message{
		{TopicPartition: place, Timestamp: at(0), Key: []byte("key"), Value: []byte("value " + strings.Repeat("lorem ipsum ", 12))},
		{TopicPartition: place, Timestamp: at(1), Value: []byte("no key"), Headers: []kafka.Header{
			{Key: "trace", Value: []byte("a1")}, {Key: "empty", Value: []byte{}}}},
		{TopicPartition: place, Timestamp: at(2), Key: []byte("tombstone")},
	}
}

// produce sends messages and reports each as the broker acknowledged it.
func produce(producer *kafka.Producer, messages []*kafka.Message, codec string) {
	delivered := make(chan kafka.Event, len(messages))
	for _, message := range messages {
		message.Opaque = message
		check(producer.Produce(message, delivered))
	}
	for range messages {
		done := (<-delivered).(*kafka.Message)
		check(done.TopicPartition.Error)
		sent := done.Opaque.(*kafka.Message) // a delivery report has neither headers nor timestamp
		record("produced", sent, map[string]any{"codec": codec, "offset": int64(done.TopicPartition.Offset)})
	}
}

// member is a consumer of the group, and the number of partitions that it has.
type member struct {
	id         string
	consumer   *kafka.Consumer
	partitions int
}

func join(bootstrap, id string, topics []string, more kafka.ConfigMap) *member {
	more["group.id"], more["enable.auto.commit"], more["auto.offset.reset"] = group, false, "earliest"
	more["session.timeout.ms"], more["heartbeat.interval.ms"] = 6000, 500
	more["partition.assignment.strategy"], more["fetch.wait.max.ms"] = "roundrobin", 1000
	more["go.application.rebalance.enable"] = true
	consumer, err := kafka.NewConsumer(settings(bootstrap, id, more))
	check(err)
	check(consumer.SubscribeTopics(topics, nil))
	return &member{id: id, consumer: consumer}
}

func (one *member) changed(kind string, partitions []kafka.TopicPartition) {
	names := []string{}
	for _, partition := range partitions {
		names = append(names, fmt.Sprintf("%s-%d", *partition.Topic, partition.Partition))
	}
	report(kind, map[string]any{"client_id": one.id, "group": group, "partitions": names})
}

// poll handles one event; it says whether that was a record.
func (one *member) poll() bool {
	switch event := one.consumer.Poll(100).(type) {
	case kafka.AssignedPartitions:
		one.partitions = len(event.Partitions)
		one.changed("assigned", event.Partitions)
		check(one.consumer.Assign(event.Partitions))
	case kafka.RevokedPartitions:
		one.partitions = 0
		one.changed("revoked", event.Partitions)
		check(one.consumer.Unassign())
	case *kafka.Message:
		record("consumed", event, map[string]any{"client_id": one.id})
		return true
	}
	return false
}

// settle polls members until they have all partitions among them, and each has some.
func settle(partitions int, members ...*member) {
	for deadline := time.Now().Add(40 * time.Second); ; {
		total, settled := 0, true
		for _, one := range members {
			one.poll()
			total += one.partitions
			settled = settled && one.partitions > 0
		}
		if settled && total == partitions {
			return
		}
		if time.Now().After(deadline) {
			check(fmt.Errorf("the group did not settle"))
		}
	}
}

func (one *member) leave() {
	check(one.consumer.Close())
	report("left", map[string]any{"client_id": one.id, "group": group})
}

func main() {
	bootstrap := os.Args[1]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, version := kafka.LibraryVersion()
	report("client", map[string]any{"name": "librdkafka", "version": strings.Split(version, "-")[0]})

	admin, err := kafka.NewAdminClient(settings(bootstrap, "old-rd-admin", kafka.ConfigMap{}))
	check(err)
	codecs := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	var topics []string
	var wanted []kafka.TopicSpecification
	for _, codec := range codecs {
		topics = append(topics, "old-rd-"+codec)
		wanted = append(wanted, kafka.TopicSpecification{Topic: "old-rd-" + codec, NumPartitions: 1, ReplicationFactor: 1})
	}
	created, err := admin.CreateTopics(ctx, wanted, kafka.SetAdminOperationTimeout(10*time.Second))
	check(err)
	for _, one := range created {
		if one.Error.Code() != kafka.ErrNoError {
			check(one.Error)
		}
		report("created", map[string]any{"topic": one.Topic, "partitions": 1})
	}
	admin.Close()

	for index, codec := range codecs {
		producer, err := kafka.NewProducer(settings(bootstrap, "old-rd-"+codec, kafka.ConfigMap{"compression.type": codec, "linger.ms": 50}))
		check(err)
		produce(producer, samples(topics[index]), codec)
		producer.Close()
	}

	producer, err := kafka.NewProducer(settings(bootstrap, "old-rd-transaction", kafka.ConfigMap{"transactional.id": "old-rd-transactional"}))
	check(err)
	check(producer.InitTransactions(ctx))
	for _, result := range []string{"commit", "abort"} {
		check(producer.BeginTransaction())
		produce(producer, samples(topics[0])[:1], "none")
		if result == "commit" {
			check(producer.CommitTransaction(ctx))
		} else {
			check(producer.AbortTransaction(ctx))
		}
		report("transaction", map[string]any{"transactional_id": "old-rd-transactional", "result": result})
	}
	producer.Close()

	// The first is a static member (KIP-345).
	first := join(bootstrap, "old-rd-member-1", topics, kafka.ConfigMap{"group.instance.id": "till-1", "isolation.level": "read_committed"})
	for read := 0; read < 3*len(topics)+1; {
		if first.poll() {
			read++
		}
	}
	committed, err := first.consumer.Commit()
	check(err)
	for _, one := range committed {
		report("committed", map[string]any{"client_id": first.id, "group": group, "topic": *one.Topic, "partition": one.Partition, "offset": int64(one.Offset)})
	}
	second := join(bootstrap, "old-rd-member-2", topics, kafka.ConfigMap{})
	settle(len(topics), first, second)
	second.leave()
	settle(len(topics), first)
	check(first.consumer.Close()) // a static member does not say that it leaves
}
