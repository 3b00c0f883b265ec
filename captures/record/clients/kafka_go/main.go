// Command kafka_go produces a record with segmentio/kafka-go, and reads it as the member of a group.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

const topic = "group-metadata"

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	broker := os.Args[1]
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	connection, err := kafka.Dial("tcp", broker)
	check(err)
	check(connection.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: 2, ReplicationFactor: 1}))
	check(connection.Close())
	writer := &kafka.Writer{Addr: kafka.TCP(broker), Topic: topic, BatchTimeout: 10 * time.Millisecond}
	check(writer.WriteMessages(ctx, kafka.Message{Key: []byte("k"), Value: []byte("v")}))
	check(writer.Close())
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{broker}, GroupID: "readers-in-go", Topic: topic, StartOffset: kafka.FirstOffset,
		MaxWait: 100 * time.Millisecond,
	})
	_, err = reader.ReadMessage(ctx)
	check(err)
	check(reader.Close())
}
