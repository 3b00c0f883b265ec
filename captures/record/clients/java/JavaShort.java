import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** A topic, a few records in two batches, and a reader: little enough to be read in a capture with TLS. */
final class JavaShort {
    private static final long START = 1_700_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        try (var admin = Clients.admin(bootstrap, "java-admin")) {
            Clients.createTopics(admin, 1, "short");
        }
        try (var producer = Clients.producer(bootstrap, "java-producer", "linger.ms", 0)) {
            for (int i = 0; i < 4; i++) {
                byte[] key = ("key-" + i).getBytes(StandardCharsets.UTF_8);
                byte[] value = ("value " + i + " of many words").repeat(i < 2 ? 1 : 150).getBytes(StandardCharsets.UTF_8);
                var record = new ProducerRecord<>("short", 0, START + i, key, value);
                Report.produced(record, producer.send(record).get(), "none");
            }
        }
        List<TopicPartition> partitions = List.of(new TopicPartition("short", 0));
        try (var consumer = Clients.consumer(bootstrap, "java-reader")) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Clients.consume(consumer, "java-reader", 4);
        }
    }
}
