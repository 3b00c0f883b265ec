import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Two nodes of an earlier release of KRaft, and a client of the same release: what versions they speak. For 3.3 to 4.0. */
final class KraftEra {
    private static final String TOPIC = "era";
    private static final TopicPartition PARTITION = new TopicPartition(TOPIC, 0);
    private static final String GROUP = "era-group";

    /**
     * Acts "first" and "group", which 2.8 (early access) can do, and "then" for what came later, a group included. An act's
     * arguments: a broker's address; for "first" the number of replicas, for "then" the level that metadata.version is raised to.
     */
    public static void main(String[] none) throws Exception {
        Acts.play((act, arguments) -> {
            try (Admin admin = Clients.admin(arguments[0], "era-admin")) {
                switch (act) {
                    case "first" -> first(admin, arguments[0], arguments[1].equals("1") ? List.of(1) : List.of(1, 2));
                    case "group" -> group(admin, arguments[0]);
                    case "then" -> then(admin, arguments[0], Short.parseShort(arguments[1]));
                    default -> throw new IllegalArgumentException(act);
                }
            }
        });
    }

    private static void first(Admin admin, String bootstrap, List<Integer> replicas) throws Exception {
        admin.createTopics(List.of(new NewTopic(TOPIC, Map.of(0, replicas)))).all().get();
        Report.line("created", "topic", TOPIC, "partitions", 1);
        var topic = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("max.message.bytes", "65536"), AlterConfigOp.OpType.SET)))).all().get();
        Report.line("altered_settings", "resource", "topic " + TOPIC, "settings", Map.of("max.message.bytes", "65536"));
        try (var producer = Clients.producer(bootstrap, "era-producer")) {
            send(producer, "first");
        }
    }

    private static void group(Admin admin, String bootstrap) throws Exception {
        try (var consumer = Clients.consumer(bootstrap, "era-consumer", "group.id", GROUP)) {
            consumer.subscribe(List.of(TOPIC));
            Clients.consume(consumer, "era-consumer", 1);
            consumer.commitSync();
            Report.line("committed", "group", GROUP, "offsets", Map.of(PARTITION.toString(), 1));
        }
        endOfGroup(admin);
    }

    private static void endOfGroup(Admin admin) throws Exception {
        var offsets = admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata().get();
        Report.line("offsets", "group", GROUP, "offsets", Map.of(PARTITION.toString(), offsets.get(PARTITION).offset()));
        admin.deleteConsumerGroups(List.of(GROUP)).all().get();
        Report.line("deleted_group", "group", GROUP);
    }

    /** AlterConfigs, which replaces all settings; clients from 4.0 on no longer have it. */
    private static void replaceConfigs(Admin admin, ConfigResource topic) throws Exception {
        try {
            var method = Admin.class.getMethod("alterConfigs", Map.class);
            var result = method.invoke(admin, Map.of(topic, new Config(List.of(new ConfigEntry("retention.ms", "3600000")))));
            ((org.apache.kafka.common.KafkaFuture<?>) result.getClass().getMethod("all").invoke(result)).get();
            Report.line("replaced_settings", "resource", "topic " + TOPIC, "settings", Map.of("retention.ms", "3600000"));
        } catch (NoSuchMethodException gone) {
            return;
        }
    }

    private static void send(org.apache.kafka.clients.producer.Producer<byte[], byte[]> producer, String value) throws Exception {
        var record = new ProducerRecord<byte[], byte[]>(TOPIC, 0, Samples.BASE_TIMESTAMP, null, value.getBytes(UTF_8));
        Report.produced(record, producer.send(record).get(), "none");
    }

    private static void then(Admin admin, String bootstrap, short level) throws Exception {
        try (var producer = Clients.producer(bootstrap, "era-transactions", "transactional.id", "era-transaction");
                var consumer = Clients.consumer(bootstrap, "era-reader", "group.id", GROUP)) {
            consumer.subscribe(List.of(TOPIC));
            Clients.consume(consumer, "era-reader", 1);
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, "in a transaction");
            producer.sendOffsetsToTransaction(Map.of(PARTITION, new OffsetAndMetadata(1)), consumer.groupMetadata());
            producer.commitTransaction();
            Report.line("transaction", "transactional_id", "era-transaction", "result", "commit", "partition", 0, "committed_offset", 1);
        }
        replaceConfigs(admin, new ConfigResource(ConfigResource.Type.TOPIC, TOPIC));
        admin.alterPartitionReassignments(Map.of(PARTITION, Optional.of(new NewPartitionReassignment(List.of(2, 1))))).all().get();
        Report.line("reassigned", "topic", TOPIC, "partition", 0, "replicas", List.of(2, 1));
        while (!admin.listPartitionReassignments().reassignments().get().isEmpty()) {
            Thread.sleep(500);  // until the new replica is in sync; the recorder ends what takes too long
        }
        admin.electLeaders(ElectionType.PREFERRED, Set.of(PARTITION)).all().get();
        Report.line("elected_leader", "topic", TOPIC, "partition", 0, "election_type", 0);
        var cluster = admin.describeCluster();
        Report.line("described_cluster", "cluster_id", cluster.clusterId().get(), "nodes", cluster.nodes().get().size());
        var quorum = admin.describeMetadataQuorum().quorumInfo().get();
        Report.line("described_quorum", "leader", quorum.leaderId(), "voters", quorum.voters().size());
        var features = new TreeMap<>(admin.describeFeatures().featureMetadata().get().finalizedFeatures());
        Report.line("described_features", "finalized", features.toString());
        admin.updateFeatures(Map.of("metadata.version", new FeatureUpdate(level, FeatureUpdate.UpgradeType.UPGRADE)),
            new UpdateFeaturesOptions()).all().get();
        Report.line("updated_feature", "feature", "metadata.version", "level", level);
        endOfGroup(admin);  // by now the transaction's markers are written
    }
}
