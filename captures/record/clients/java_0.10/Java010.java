import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** What clients of 0.10 do: timestamps and where they are, a log-in with a password, topics made by request. */
final class Java010 {
    private static final long BASE_TIMESTAMP = 1_700_000_000_000L;
    private static final String PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule";
    private static final String SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule";

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Told.client();
        try (var raw = new RawRequests(bootstrap)) {
            raw.createTopic("moments", Map.of(0, List.of(1)), true);
            raw.createTopic("moments", Map.of(0, List.of(1), 1, List.of(1)), false);
            Told.refused("create a topic that exists", raw.createTopic("moments", Map.of(0, List.of(1)), false));
            Told.refused("create a topic with a bad name", raw.createTopic("not/allowed", Map.of(0, List.of(1)), false));
            Told.refused("delete an unknown topic", raw.deleteTopic("no-such-topic"));
            raw.createTopic("secured", Map.of(0, List.of(1)), false);
            timestamps(bootstrap);
            secured(arguments[1]);
            raw.deleteTopic("moments");
        }
    }

    private static void timestamps(String bootstrap) throws Exception {
        int total = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4")) {
            try (var producer = Writes.producer(bootstrap, "writer-" + codec, "compression.type", codec, "linger.ms", 100)) {
                producer.partitionsFor("moments");
                List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
                for (int i = 0; i < 3; i++) {
                    records.add(new ProducerRecord<>("moments", 0, BASE_TIMESTAMP + 60_000 * total + i, ("k" + i).getBytes(UTF_8), "at a moment ".repeat(5).getBytes(UTF_8)));
                }
                total += Writes.send(producer, codec, records);
            }
        }
        var partition = new TopicPartition("moments", 0);
        try (var consumer = Reads.consumer(bootstrap, "moments-reader")) {
            consumer.assign(List.of(partition));
            var found = consumer.offsetsForTimes(Map.of(partition, BASE_TIMESTAMP + 100_000)).get(partition);
            Told.line("listed_offset", "topic", "moments", "partition", 0, "spec", "timestamp", "offset", found.offset(), "timestamp", found.timestamp());
            Told.line("end_offsets", "client_id", "moments-reader", "offsets",
                Map.of("moments-0", consumer.endOffsets(List.of(partition)).get(partition)));
            Reads.consume(consumer, "moments-reader", total);
            Told.line("listed_topics", "topics", List.copyOf(consumer.listTopics().keySet()));
        }
    }

    private static void secured(String bootstrap) throws Exception {
        for (String mechanism : List.of("PLAIN", "SCRAM-SHA-256")) {
            boolean plain = mechanism.equals("PLAIN");
            String user = plain ? "alice" : "bob";
            String clientId = "login-" + mechanism.toLowerCase();
            var login = new Object[] {"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", mechanism, "sasl.jaas.config",
                (plain ? PLAIN : SCRAM) + " required username=\"" + user + "\" password=\"" + user + "-secret\";"};
            try (var producer = Writes.producer(bootstrap, clientId, login)) {
                Writes.send(producer, "none", List.of(Writes.record("secured", 0, null, "by " + mechanism)));
                Told.line("authenticated", "client_id", clientId, "mechanism", mechanism, "user", user, "password", user + "-secret");
            }
        }
    }
}
