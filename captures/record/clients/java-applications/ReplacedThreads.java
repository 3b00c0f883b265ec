import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams whose thread dies at a record, and is replaced (REPLACE_THREAD).
 * Arguments: how often it fails there, for how many seconds it runs, the broker.
 */
final class ReplacedThreads {
    private static int failures;

    public static void main(String[] arguments) throws Exception {
        failures = Integer.parseInt(arguments[0]);
        String bootstrap = arguments[2];
        try (Admin admin = Clients.admin(bootstrap, "streams-admin");
                var producer = Clients.producer(bootstrap, "writer", "acks", "1")) {
            Clients.createTopics(admin, 1, "orders", "results");
            for (int number = 0; number < 12; number++) {
                producer.send(new ProducerRecord<>("orders", ("order " + number).getBytes(UTF_8))).get();
            }
        }
        var settings = new Properties();
        settings.putAll(Map.of("application.id", "billing", "bootstrap.servers", bootstrap, "client.id", "billing-1",
            "state.dir", Files.createTempDirectory(Path.of("."), "states-").toString(), "commit.interval.ms", 500,
            "main.consumer.auto.offset.reset", "earliest", "consumer.fetch.max.wait.ms", 2000));
        // Streams never leaves a classic group: the next thread waits until the session of the dead one ends.
        settings.putAll(Map.of("main.consumer.session.timeout.ms", 6000, "main.consumer.heartbeat.interval.ms", 2000));
        var builder = new StreamsBuilder();
        builder.stream("orders", Consumed.with(Serdes.ByteArray(), Serdes.String()))
            .mapValues(ReplacedThreads::billed)
            .to("results", Produced.with(Serdes.ByteArray(), Serdes.String()));
        try (var instance = new KafkaStreams(builder.build(), settings)) {
            instance.setUncaughtExceptionHandler(error -> StreamThreadExceptionResponse.REPLACE_THREAD);
            instance.start();
            Thread.sleep(1000 * Long.parseLong(arguments[1]));
        }
    }

    private static synchronized String billed(String order) {
        if (order.equals("order 5") && failures-- > 0) {
            throw new IllegalStateException("made up");
        }
        return order;
    }
}
