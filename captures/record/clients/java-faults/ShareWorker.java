import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group that releases the first records of its topic: {@code BOOTSTRAP TOPIC SECONDS RECORDS TIMES
 * [MS]}. It releases the first RECORDS records TIMES times each, and accepts all others, after MS milliseconds of work.
 */
final class ShareWorker {
    public static void main(String[] arguments) throws Exception {
        var bootstrap = Map.<String, Object>of("bootstrap.servers", arguments[0]);
        var group = new ConfigResource(ConfigResource.Type.GROUP, "workers");
        try (var admin = Admin.create(bootstrap)) {
            admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
        }
        var settings = new Properties();
        settings.putAll(bootstrap);
        settings.putAll(Map.of("client.id", "worker", "group.id", "workers", "share.acknowledgement.mode", "explicit"));
        long deadline = System.nanoTime() + Duration.ofSeconds(Long.parseLong(arguments[2])).toNanos();
        long released = Long.parseLong(arguments[3]);
        int times = Integer.parseInt(arguments[4]);
        long work = arguments.length > 5 ? Long.parseLong(arguments[5]) : 0;
        try (var consumer = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments[1]));
            while (System.nanoTime() < deadline) {
                var records = consumer.poll(Duration.ofMillis(500));
                Thread.sleep(records.isEmpty() ? 0 : work);
                for (var record : records) {
                    boolean release = record.offset() < released && record.deliveryCount().orElse((short) 1) <= times;
                    consumer.acknowledge(record, release ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                }
                consumer.commitSync();
            }
        }
    }
}
