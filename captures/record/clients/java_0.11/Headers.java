import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** Records of format 2: with timestamps and headers. */
final class Headers {
    static final int SAMPLES = 2;
    private static final long BASE_TIMESTAMP = 1_700_000_000_000L;

    /** Writes the samples to partition 0, in one batch where the producer lingers. */
    static void write(KafkaProducer<byte[], byte[]> producer, String topic, String codec) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        var samples = samples(topic);
        for (var record : samples) {
            sent.add(producer.send(record));
        }
        for (int i = 0; i < SAMPLES; i++) {
            var record = samples.get(i);
            var metadata = sent.get(i).get();
            Told.line("produced", "topic", topic, "partition", 0, "offset", metadata.offset(), "timestamp", metadata.timestamp(),
                "key", record.key(), "value", record.value(), "headers", headers(record.headers()), "codec", codec);
        }
    }

    /** Polls until the samples have come. */
    static void read(KafkaConsumer<byte[], byte[]> consumer, String clientId) {
        long deadline = System.nanoTime() + Reads.DEADLINE_S * 1_000_000_000L;
        for (int seen = 0; seen < SAMPLES; ) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(500)) {
                Told.line("consumed", "client_id", clientId, "topic", record.topic(), "partition", record.partition(), "offset", record.offset(),
                    "timestamp", record.timestamp(), "timestamp_type", record.timestampType().name,
                    "key", record.key(), "value", record.value(), "headers", headers(record.headers()));
                seen++;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not all records came back");
            }
        }
    }

    private static List<ProducerRecord<byte[], byte[]>> samples(String topic) {
        List<Header> headers = List.of(new RecordHeader("trace", "a1b2".getBytes(UTF_8)), new RecordHeader("nothing", (byte[]) null));
        return List.of(
            new ProducerRecord<>(topic, 0, BASE_TIMESTAMP, "key".getBytes(UTF_8), "lorem ipsum dolor ".repeat(6).getBytes(UTF_8), headers),
            new ProducerRecord<>(topic, 0, BASE_TIMESTAMP + 1000, "tombstone".getBytes(UTF_8), null, List.of()));
    }

    private static List<Object> headers(Iterable<Header> headers) {
        List<Object> list = new ArrayList<>();
        for (Header header : headers) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(header.value());
            list.add(pair);
        }
        return list;
    }
}
