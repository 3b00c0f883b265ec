import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What makes two brokers and their controller talk: replicas, a moved leader, a transaction, a share group, a secret. */
final class JavaCluster {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        var partition = new TopicPartition("replicated", 0);
        try (Admin admin = Clients.admin(bootstrap, "cluster-admin", "enable.metrics.push", "false")) {
            admin.createTopics(List.of(new NewTopic("replicated", Map.of(0, List.of(1, 2))))).all().get();
            Report.line("created", "topic", "replicated", "partitions", 1, "replicas", List.of(1, 2));
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("carol",
                new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "carol-password"))).all().get();
            Report.line("altered_credentials", "users", Map.of("carol", "SCRAM-SHA-256 4096"));
            try (var producer = Clients.producer(bootstrap, "cluster-producer", "transactional.id", "cluster-transaction",
                    "enable.metrics.push", "false")) {
                producer.initTransactions();
                for (boolean commit : new boolean[] {true, false}) {
                    producer.beginTransaction();
                    var record = new ProducerRecord<byte[], byte[]>("replicated", 0, Samples.BASE_TIMESTAMP, null,
                        (commit ? "committed" : "aborted").getBytes(UTF_8));
                    Report.produced(record, producer.send(record).get(), "none");
                    if (commit) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                    Report.line("transaction", "transactional_id", "cluster-transaction", "result", commit ? "commit" : "abort");
                }
                // The preferred leader becomes broker 2; the producer's next record meets the old leader first.
                admin.alterPartitionReassignments(Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(2, 1))))).all().get();
                Thread.sleep(500);
                admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).all().get();
                Report.line("moved_leader", "topic", "replicated", "partition", 0, "leader", 2);
                producer.beginTransaction();
                var record = new ProducerRecord<byte[], byte[]>("replicated", 0, Samples.BASE_TIMESTAMP, null, "after the move".getBytes(UTF_8));
                Report.produced(record, producer.send(record).get(), "none");
                producer.commitTransaction();
            }
            share(admin, bootstrap);
        }
    }

    private static void share(Admin admin, String bootstrap) throws Exception {
        var group = new ConfigResource(ConfigResource.Type.GROUP, "cluster-share");
        admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(
            new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
        var settings = Clients.settings(bootstrap, "cluster-share-member", "group.id", "cluster-share", "enable.metrics.push", "false");
        try (var consumer = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("replicated"));
            long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            for (int seen = 0; seen < 3; ) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    Report.consumed("cluster-share-member", record);
                    seen++;
                }
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("not all records came");
                }
            }
            consumer.commitSync();
        }
        admin.deleteShareGroups(List.of("cluster-share")).all().get();
        Report.line("deleted_group", "group", "cluster-share");
    }
}
