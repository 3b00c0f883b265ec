import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;

/** A producer whose metrics the broker wants every second (KIP-714). */
final class JavaTelemetry {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        try (var admin = Clients.admin(bootstrap, "metrics-admin", "enable.metrics.push", "false")) {
            Clients.createTopics(admin, 1, "measured");
            var metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "producers");
            admin.incrementalAlterConfigs(Map.of(metrics, List.of(
                new AlterConfigOp(new ConfigEntry("interval.ms", "1000"), AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("match", "client_software_name=apache-kafka-java"), AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("metrics", "org.apache.kafka.producer.record"), AlterConfigOp.OpType.SET)))).all().get();
            Report.line("altered_settings", "resource", "client metrics producers", "settings",
                Map.of("interval.ms", "1000", "metrics", "org.apache.kafka.producer.record"));
            Thread.sleep(1000);
        }
        try (var producer = Clients.producer(bootstrap, "metrics-producer")) {
            for (int i = 0; i < 3; i++) {
                var record = new ProducerRecord<byte[], byte[]>("measured", 0, Samples.BASE_TIMESTAMP + i, null, ("m" + i).getBytes(UTF_8));
                Report.produced(record, producer.send(record).get(), "none");
                Thread.sleep(1000);
            }
        }
    }
}
