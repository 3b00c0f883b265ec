import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consuming as the Java client of every release from 0.9 on can. */
final class Reads {
    static final long DEADLINE_S = 30;

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String clientId, Object... more) {
        var settings = Writes.settings(bootstrap, clientId, more);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.putIfAbsent("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Polls until so many records have come; each is reported. */
    static void consume(KafkaConsumer<byte[], byte[]> consumer, String clientId, int records) {
        long deadline = System.nanoTime() + DEADLINE_S * 1_000_000_000L;
        for (int seen = 0; seen < records; ) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(500)) {
                Told.line("consumed", "client_id", clientId, "topic", record.topic(), "partition", record.partition(),
                    "offset", record.offset(), "key", record.key(), "value", record.value());
                seen++;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not all records came back");
            }
        }
    }

    /** One partition from its beginning, so many records. */
    static void all(String bootstrap, String clientId, String topic, int records, Object... more) {
        try (var consumer = consumer(bootstrap, clientId, more)) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consume(consumer, clientId, records);
        }
    }
}
