import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Clients with settings that keep captures short, and those of the environment (JSON). */
final class Clients {
    static Map<String, Object> settings(String bootstrap, String clientId, Object... more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "client.id", clientId));
        settings.putAll(Report.read(System.getenv().getOrDefault("CLIENT_SETTINGS", "{}")));
        for (int i = 0; i < more.length; i += 2) {
            settings.put((String) more[i], more[i + 1]);
        }
        return settings;
    }

    static Admin admin(String bootstrap, String clientId, Object... more) {
        return Admin.create(settings(bootstrap, clientId, more));
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String clientId, Object... more) {
        return new KafkaProducer<>(settings(bootstrap, clientId, more), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String clientId, Object... more) {
        Map<String, Object> settings = settings(bootstrap, clientId, more);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.putIfAbsent("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void createTopics(Admin admin, int partitions, String... names) throws Exception {
        for (String name : names) {
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
            Report.line("created", "topic", name, "partitions", partitions);
        }
    }

    /** Polls until so many records have come; each is reported. */
    static void consume(Consumer<byte[], byte[]> consumer, String clientId, int records) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        for (int seen = 0; seen < records; ) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                Report.consumed(clientId, record);
                seen++;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not all records came back");
            }
        }
    }
}
