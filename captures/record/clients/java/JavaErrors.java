import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What goes wrong in daily life: each operation fails, and says how. */
final class JavaErrors {
    /** An operation that is to fail. */
    private interface Operation {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        var partition = new TopicPartition("errors", 0);
        try (var admin = Clients.admin(bootstrap, "errors-admin");
                var producer = Clients.producer(bootstrap, "errors-producer", "max.block.ms", 1500, "enable.idempotence", "false")) {
            admin.createTopics(List.of(new NewTopic("errors", 1, (short) 1).configs(Map.of("max.message.bytes", "500")))).all().get();
            Report.line("created", "topic", "errors", "partitions", 1);

            expect("produce to an unknown topic", () -> producer.send(new ProducerRecord<>("no-such-topic", "x".getBytes(UTF_8))).get());
            expect("produce a too large record", () -> producer.send(
                new ProducerRecord<>("errors", 0, Samples.BASE_TIMESTAMP, null, "large ".repeat(200).getBytes(UTF_8))).get());
            var good = new ProducerRecord<>("errors", 0, Samples.BASE_TIMESTAMP, "k".getBytes(UTF_8), "good".getBytes(UTF_8));
            Report.produced(good, producer.send(good).get(), "none");

            expect("create a topic that exists", () -> admin.createTopics(List.of(new NewTopic("errors", 1, (short) 1))).all().get());
            expect("create a topic with too many replicas", () -> admin.createTopics(List.of(new NewTopic("wide", 1, (short) 3))).all().get());
            expect("create a topic with a bad name", () -> admin.createTopics(List.of(new NewTopic("not/allowed", 1, (short) 1))).all().get());
            expect("create a topic with a bad setting", () -> admin.createTopics(List.of(
                new NewTopic("bad-setting", 1, (short) 1).configs(Map.of("retention.ms", "soon")))).all().get());
            expect("delete an unknown topic", () -> admin.deleteTopics(List.of("no-such-topic")).all().get());
            expect("describe an unknown topic", () -> admin.describeTopics(List.of("no-such-topic")).allTopicNames().get());
            expect("shrink a topic", () -> admin.createPartitions(Map.of("errors", NewPartitions.increaseTo(1))).all().get());
            var topic = new ConfigResource(ConfigResource.Type.TOPIC, "errors");
            expect("set an unknown setting", () -> admin.incrementalAlterConfigs(Map.of(topic, List.of(
                new AlterConfigOp(new ConfigEntry("no.such.setting", "1"), AlterConfigOp.OpType.SET)))).all().get());
            expect("delete an unknown group", () -> admin.deleteConsumerGroups(List.of("no-such-group")).all().get());
            expect("describe an unknown group", () -> admin.describeConsumerGroups(List.of("no-such-group")).all().get());
            expect("delete offsets of an unknown group", () ->
                admin.deleteConsumerGroupOffsets("no-such-group", Set.of(partition)).all().get());
            expect("describe ACLs without an authorizer", () -> admin.describeAcls(org.apache.kafka.common.acl.AclBindingFilter.ANY).values().get());
        }
        try (var consumer = Clients.consumer(bootstrap, "errors-reader", "auto.offset.reset", "none", "group.id", "errors-group")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 999);
            expect("fetch an offset out of range", () -> {
                for (int i = 0; i < 20; i++) {
                    consumer.poll(Duration.ofMillis(250));
                }
            });
            expect("commit with a long metadata", () ->
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(1, "long ".repeat(1000)))));
        }
    }

    private static void expect(String operation, Operation run) throws Exception {
        try {
            run.run();
        } catch (Exception error) {
            Report.failed(operation, error);
            return;
        }
        throw new IllegalStateException(operation + " did not fail");
    }
}
