import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producing as the Java client of every release can: no timestamps, no headers. */
final class Writes {
    /** {@code more} are names and values in turn. */
    static Map<String, Object> settings(String bootstrap, String clientId, Object... more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "client.id", clientId));
        for (int i = 0; i < more.length; i += 2) {
            settings.put((String) more[i], more[i + 1]);
        }
        return settings;
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String clientId, Object... more) {
        return new KafkaProducer<>(settings(bootstrap, clientId, more), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int partition, String key, String value) {
        return new ProducerRecord<>(topic, partition, key == null ? null : key.getBytes(UTF_8), value == null ? null : value.getBytes(UTF_8));
    }

    /** One of each kind that the oldest format tells apart. */
    static List<ProducerRecord<byte[], byte[]>> samples(String topic) {
        byte[] binary = {(byte) 0xff, 0, (byte) 0xfe, 1, (byte) 0x80};
        return List.of(record(topic, 0, "key", "lorem ipsum dolor ".repeat(6)), record(topic, 0, null, "no key"),
            record(topic, 0, "tombstone", null), new ProducerRecord<>(topic, 0, binary, binary));
    }

    /** Sends records in one batch where the broker's answers allow it; returns their number. */
    static int send(KafkaProducer<byte[], byte[]> producer, String codec, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> record : records) {
            sent.add(producer.send(record));
        }
        for (int i = 0; i < records.size(); i++) {
            Told.produced(records.get(i), sent.get(i).get(), codec);
        }
        return records.size();
    }

    /** The samples once in each codec; returns the number of records. */
    static int codecs(String bootstrap, String topic, String... codecs) throws Exception {
        int total = 0;
        for (String codec : codecs) {
            try (var producer = producer(bootstrap, "writer-" + codec, "compression.type", codec, "linger.ms", 100)) {
                producer.partitionsFor(topic);  // or the first record would go alone
                total += send(producer, codec, samples(topic));
            }
        }
        return total;
    }
}
