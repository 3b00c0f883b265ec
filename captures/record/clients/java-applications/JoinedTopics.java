import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams in a streams group (KIP-1071) that joins two topics.
 * Arguments: their numbers of partitions, for how many seconds it runs, the broker.
 */
final class JoinedTopics {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[3];
        Report.client();
        try (Admin admin = Clients.admin(bootstrap, "streams-admin")) {
            Clients.createTopics(admin, Integer.parseInt(arguments[0]), "orders", "results");
            Clients.createTopics(admin, Integer.parseInt(arguments[1]), "customers");
        }
        var settings = new Properties();
        settings.putAll(Map.of("application.id", "joined", "bootstrap.servers", bootstrap, "client.id", "joined-1",
            "group.protocol", "streams", "state.dir", Files.createTempDirectory(Path.of("."), "states-").toString(),
            "replication.factor", 1));
        var builder = new StreamsBuilder();
        var text = Consumed.with(Serdes.String(), Serdes.String());
        builder.stream("orders", text).join(builder.table("customers", text), (order, customer) -> order + customer)
            .to("results", Produced.with(Serdes.String(), Serdes.String()));
        try (var instance = new KafkaStreams(builder.build(), settings)) {
            instance.start();
            Thread.sleep(1000 * Long.parseLong(arguments[2]));
        }
    }
}
