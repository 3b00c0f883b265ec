// Command go_tries sends a record every 200 ms with franz-go or sarama: LIBRARY SECONDS BOOTSTRAP TOPIC.
// Failures do not end it.
package main

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func franz(deadline time.Time, bootstrap, topic string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ClientID("franz"), kgo.AllowAutoTopicCreation(),
		kgo.DisableClientMetrics())
	check(err)
	for time.Now().Before(deadline) {
		client.Produce(context.Background(), &kgo.Record{Topic: topic, Value: []byte("made up")}, nil)
		time.Sleep(200 * time.Millisecond)
	}
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.ClientID = "sarama"
	made.Version = sarama.MaxVersion
	made.Producer.Return.Successes = true
	return made
}

// sent sends records until a deadline; a client that cannot be made is tried again every second.
func sent(deadline time.Time, bootstrap, topic string) {
	for time.Now().Before(deadline) {
		producer, err := sarama.NewSyncProducer([]string{bootstrap}, config())
		if err != nil {
			time.Sleep(time.Second)
			continue
		}
		for time.Now().Before(deadline) {
			producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("made up")})
			time.Sleep(200 * time.Millisecond)
		}
		producer.Close()
	}
}

// once is the usual program: it ends with the first error.
func once(bootstrap, topic string) {
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config())
	check(err)
	defer producer.Close()
	producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("made up")})
}

func main() {
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	check(err)
	deadline := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	switch os.Args[1] {
	case "franz-go":
		franz(deadline, os.Args[3], os.Args[4])
	case "sarama":
		sent(deadline, os.Args[3], os.Args[4])
	case "sarama-once":
		once(os.Args[3], os.Args[4])
	}
}
