import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeStreamsGroupsOptions;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.internals.AsyncKafkaConsumer;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.HostInfo;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.Subtopology;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData.TopicInfo;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceListener;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionGlobalStore;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionNode;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescription;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A streams group (KIP-1071) whose member describes its topology (KIP-1331), and an administrator who looks at the group, moves
 * its offsets and deletes it. The member is the consumer that Kafka Streams has inside, without Kafka Streams around it.
 */
final class StreamsGroup {
    private static final String GROUP = "words-group";
    private static final TopicPartition INPUT = new TopicPartition("words", 0);
    private static final byte SOURCE = 1;
    private static final byte PROCESSOR = 2;
    private static final byte SINK = 3;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        try (Admin admin = Clients.admin(bootstrap, "streams-admin", "enable.metrics.push", "false")) {
            Clients.createTopics(admin, 1, "words", "upper-words", "names");
            try (var producer = Clients.producer(bootstrap, "words-producer", "enable.metrics.push", "false")) {
                var record = new ProducerRecord<byte[], byte[]>("words", 0, Samples.BASE_TIMESTAMP, null, "quiet".getBytes(UTF_8));
                Report.produced(record, producer.send(record).get(), "none");
            }
            setting(admin, "streams.heartbeat.interval.ms", "500");
            member(admin, bootstrap);
            admin.alterStreamsGroupOffsets(GROUP, Map.of(INPUT, new OffsetAndMetadata(0))).all().get();
            Report.line("altered_offsets", "group", GROUP, "offsets", Map.of(INPUT.toString(), 0));
            var offsets = admin.listStreamsGroupOffsets(Map.of(GROUP, new ListStreamsGroupOffsetsSpec())).all().get().get(GROUP);
            Report.line("offsets", "group", GROUP, "offsets", Map.of(INPUT.toString(), offsets.get(INPUT).offset()));
            admin.deleteStreamsGroupOffsets(GROUP, Set.of(INPUT)).all().get();
            Report.line("deleted_offsets", "group", GROUP, "partitions", List.of(INPUT.toString()));
            admin.deleteStreamsGroups(List.of(GROUP)).all().get();
            Report.line("deleted_group", "group", GROUP);
            try {
                admin.describeStreamsGroups(List.of(GROUP)).all().get();
            } catch (java.util.concurrent.ExecutionException error) {
                Report.failed("describe a group that is gone", error);
            }
        }
    }

    private static void setting(Admin admin, String name, String value) throws Exception {
        var group = new ConfigResource(ConfigResource.Type.GROUP, GROUP);
        var set = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(group, List.of(set))).all().get();
        Report.line("altered_settings", "resource", "group " + GROUP, "settings", Map.of(name, value));
    }

    /** One subtopology: words are made upper case, and a store remembers which were seen. */
    private static StreamsRebalanceData topology() {
        var changelog = new TopicInfo(Optional.empty(), Optional.of((short) 1), Map.of("cleanup.policy", "compact"));
        var words = new Subtopology(Set.of("words"), Set.of(), Map.of(), Map.of(GROUP + "-seen-changelog", changelog), List.of());
        var data = new StreamsRebalanceData(UUID.fromString("01234567-89ab-4def-8123-456789abcdef"),
            Optional.of(new HostInfo("member.example", 80)), Optional.of("rack-1"), Map.of("0", words), Map.of("zone", "a"),
            Map::of, Map::of);
        data.setWireTopologyDescription(new TopologyDescription()
            .setSubtopologies(List.of(new org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionSubtopology()
                .setSubtopologyId("0").setNodes(List.of(
                    new TopologyDescriptionNode().setName("read-words").setNodeType(SOURCE).setSourceTopics(List.of("words")).setSuccessors(List.of("to-upper")),
                    new TopologyDescriptionNode().setName("to-upper").setNodeType(PROCESSOR).setStores(List.of("seen")).setSuccessors(List.of("write-words")),
                    new TopologyDescriptionNode().setName("write-words").setNodeType(SINK).setSinkTopic("upper-words")))))
            .setGlobalStores(List.of(new TopologyDescriptionGlobalStore()
                .setSource(new TopologyDescriptionNode().setName("read-names").setNodeType(SOURCE).setSourceTopics(List.of("names")).setSuccessors(List.of("keep-names")))
                .setProcessor(new TopologyDescriptionNode().setName("keep-names").setNodeType(PROCESSOR).setStores(List.of("names-store"))))));
        return data;
    }

    private static void member(Admin admin, String bootstrap) throws Exception {
        var settings = Clients.settings(bootstrap, "words-member", "group.id", GROUP, "group.protocol", "consumer",
            "enable.metrics.push", "false", "enable.auto.commit", "false", "auto.offset.reset", "earliest",
            "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class);
        var topology = topology();
        try (var consumer = new AsyncKafkaConsumer<byte[], byte[]>(new ConsumerConfig(settings), new ByteArrayDeserializer(), new ByteArrayDeserializer(),
                Optional.of(topology))) {
            consumer.subscribe(List.of("words"), new StreamsRebalanceListener() {
                @Override
                public void onTasksRevoked(Set<StreamsRebalanceData.TaskId> tasks) { }

                @Override
                public void onTasksAssigned(StreamsRebalanceData.Assignment assignment) {
                    topology.setReconciledAssignment(assignment);
                }

                @Override
                public void onAllTasksLost() { }
            });
            Clients.consume(consumer, "words-member", 1);
            consumer.commitSync();
            Report.line("committed", "group", GROUP, "offsets", Map.of(INPUT.toString(), 1));
            var group = described(admin);
            for (int tries = 0; group.topologyDescription().isEmpty(); tries++) {
                if (tries > 60) {
                    throw new IllegalStateException("the broker does not get the description: " + group);
                }
                consumer.poll(Duration.ofMillis(500));
                group = described(admin);
            }
            Report.line("described_group", "group", GROUP, "state", group.groupState().toString(), "members",
                group.members().stream().map(member -> List.of(member.clientId(), member.memberId())).toList());
            var told = group.topologyDescription().get();
            Report.line("described_topology", "group", GROUP, "subtopologies", told.subtopologies().size(), "nodes",
                List.of("read-words", "to-upper", "write-words"));
        }
        Report.line("left", "client_id", "words-member", "group", GROUP);
    }

    private static StreamsGroupDescription described(Admin admin) throws Exception {
        var options = new DescribeStreamsGroupsOptions().includeAuthorizedOperations(true).includeTopologyDescription(true);
        return admin.describeStreamsGroups(List.of(GROUP), options).all().get().get(GROUP);
    }
}
