import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A share group (KIP-932): one member that accepts, releases and rejects; then its offsets, altered and deleted. */
final class JavaShareGroup {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        try (var admin = Clients.admin(bootstrap, "share-admin");
                var producer = Clients.producer(bootstrap, "share-producer", "enable.idempotence", "false")) {
            Clients.createTopics(admin, 1, "tasks");
            for (int i = 0; i < 4; i++) {
                var record = new ProducerRecord<byte[], byte[]>("tasks", 0, Samples.BASE_TIMESTAMP + i, ("t" + i).getBytes(UTF_8), ("task " + i).getBytes(UTF_8));
                Report.produced(record, producer.send(record).get(), "none");
            }
            var group = new ConfigResource(ConfigResource.Type.GROUP, "workers");
            admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
            var settings = Clients.settings(bootstrap, "worker-1", "group.id", "workers", "share.acknowledgement.mode", "explicit");
            try (var consumer = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.subscribe(List.of("tasks"));
                long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
                for (int done = 0; done < 5; ) {  // four records, one of them twice
                    for (var record : consumer.poll(Duration.ofMillis(500))) {
                        Report.consumed("worker-1", record);
                        short delivery = record.deliveryCount().orElse((short) 0);
                        AcknowledgeType type = record.offset() == 3 ? AcknowledgeType.REJECT
                            : record.offset() == 1 && delivery == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
                        consumer.acknowledge(record, type);
                        Report.line("acknowledged", "client_id", "worker-1", "topic", "tasks", "partition", 0,
                            "offset", record.offset(), "type", type, "delivery_count", delivery);
                        done++;
                    }
                    consumer.commitSync();
                    if (System.nanoTime() > deadline) {
                        throw new IllegalStateException("not all records came");
                    }
                }
                var described = admin.describeShareGroups(List.of("workers")).describedGroups().get("workers").get();
                Report.line("described_group", "group", "workers", "state", described.groupState(),
                    "members", described.members().stream().map(member -> Map.of("client_id", member.clientId(),
                        "assignment", member.assignment().topicPartitions().stream().map(Object::toString).toList())).toList());
            }
            for (var listed : admin.listGroups().all().get()) {
                Report.line("listed_group", "group", listed.groupId(), "protocol_type", listed.protocol(),
                    "type", listed.type().map(Object::toString).orElse(null));
            }
            var partition = new TopicPartition("tasks", 0);
            admin.alterShareGroupOffsets("workers", Map.of(partition, 2L)).all().get();
            Report.line("altered_offsets", "group", "workers", "offsets", Map.of("tasks-0", 2));
            var offsets = admin.listShareGroupOffsets(Map.of("workers", new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo("workers").get();
            Report.line("offsets", "group", "workers", "offsets", offsets.entrySet().stream()
                .collect(Collectors.toMap(entry -> entry.getKey().toString(), entry -> entry.getValue().startOffset())));
            admin.deleteShareGroupOffsets("workers", Set.of("tasks")).all().get();
            Report.line("deleted_offsets", "group", "workers", "topics", List.of("tasks"));
            admin.deleteShareGroups(List.of("workers")).all().get();
            Report.line("deleted_group", "group", "workers");
        }
    }
}
