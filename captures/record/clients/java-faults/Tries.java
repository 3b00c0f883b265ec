import java.util.Map;
import java.util.HashMap;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A producer that sends a record every 200 ms: SECONDS BOOTSTRAP TOPIC [NAME=VALUE…]. Failures are no reason to end. */
final class Tries {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", arguments[1], "client.id", "java"));
        settings.putAll(Map.of("max.block.ms", 300, "enable.metrics.push", "false"));
        for (int i = 3; i < arguments.length; i++) {
            String[] parts = arguments[i].split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        long deadline = System.nanoTime() + (long) (Double.parseDouble(arguments[0]) * 1e9);
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        while (System.nanoTime() < deadline) {
            producer.send(new ProducerRecord<>(arguments[2], "made up".getBytes()));
            Thread.sleep(200);
        }
        System.exit(0);
    }
}
