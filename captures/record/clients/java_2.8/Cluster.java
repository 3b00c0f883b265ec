import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What makes two brokers with ZooKeeper talk, in three acts; between them the second broker stops and comes back. */
final class Cluster {
    private static final TopicPartition PARTITION = new TopicPartition("replicated", 0);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        switch (arguments[0]) {
            case "both", "few" -> both(bootstrap, arguments[0].equals("both"));
            case "alone" -> alone(bootstrap);
            case "again" -> again(bootstrap);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    /** With {@code more} also what the controller is asked besides topics. */
    private static void both(String bootstrap, boolean more) throws Exception {
        Told.client();
        try (Admin admin = admin(bootstrap)) {
            topics(admin, bootstrap);
            if (more) {
                changes(admin);
            }
        }
    }

    private static Admin admin(String bootstrap) {
        return Admin.create(Writes.settings(bootstrap, "cluster-admin"));
    }

    private static void topics(Admin admin, String bootstrap) throws Exception {
        // The coordinator of the transactions is broker 1; the leader of the one partition is broker 2.
        admin.createTopics(List.of(new NewTopic("replicated", Map.of(0, List.of(2, 1))))).all().get();
        Told.line("created", "topic", "replicated", "partitions", 1, "replicas", List.of(2, 1));
        admin.createTopics(List.of(new NewTopic("moving", Map.of(0, List.of(1, 2))))).all().get();
        Told.line("created", "topic", "moving", "partitions", 1, "replicas", List.of(1, 2));
        try (var producer = Writes.producer(bootstrap, "cluster-producer", "transactional.id", "cluster-transaction")) {
            producer.initTransactions();
            for (boolean commit : new boolean[] {true, false}) {
                producer.beginTransaction();
                Writes.send(producer, "none", List.of(Writes.record("replicated", 0, null, commit ? "committed" : "aborted")));
                if (commit) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                Told.line("transaction", "transactional_id", "cluster-transaction", "result", commit ? "commit" : "abort");
            }
        }
    }

    private static void changes(Admin admin) throws Exception {
        var topic = new ConfigResource(ConfigResource.Type.TOPIC, "moving");
        admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("max.message.bytes", "65536"), AlterConfigOp.OpType.SET)))).all().get();
        Told.line("altered_settings", "resource", "topic moving", "settings", Map.of("max.message.bytes", "65536"));
        admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("carol",
            new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "carol-password"))).all().get();
        Told.line("altered_credentials", "users", Map.of("carol", "SCRAM-SHA-256 4096"));
        Told.fails("update an unknown feature", () -> admin.updateFeatures(
            Map.of("no-such-feature", new FeatureUpdate((short) 1, false)), new UpdateFeaturesOptions()).all().get());
        var moving = new TopicPartition("moving", 0);
        admin.alterPartitionReassignments(Map.of(moving, Optional.of(new NewPartitionReassignment(List.of(2))))).all().get();
        Told.line("done", "operation", "reassign a partition");
        awaitReplicas(admin, "moving", 1, 1);
    }

    private static void alone(String bootstrap) throws Exception {
        try (var producer = Writes.producer(bootstrap, "lone-producer")) {
            Writes.send(producer, "none", List.of(Writes.record("replicated", 0, null, "without broker 2")));
        }
    }

    private static void again(String bootstrap) throws Exception {
        try (Admin admin = admin(bootstrap)) {
            awaitReplicas(admin, "replicated", 2, 2);
            admin.electLeaders(ElectionType.PREFERRED, Set.of(PARTITION)).all().get();
            awaitLeader(admin, 2);
            Told.line("moved_leader", "topic", "replicated", "partition", 0, "leader", 2);
            admin.deleteTopics(List.of("moving")).all().get();
            Told.line("deleted", "topic", "moving");
            Thread.sleep(1000);  // until the controller has told all brokers
        }
    }

    private static void awaitLeader(Admin admin, int leader) throws Exception {
        for (int waited = 0; waited < 60; waited++) {
            if (admin.describeTopics(List.of("replicated")).all().get().get("replicated").partitions().get(0).leader().id() == leader) {
                return;
            }
            Thread.sleep(500);
        }
        throw new IllegalStateException("broker " + leader + " does not lead");
    }

    /** Waits until partition 0 has so many replicas, and so many of them are in sync. */
    private static void awaitReplicas(Admin admin, String topic, int replicas, int inSync) throws Exception {
        for (int waited = 0; ; waited++) {
            var partition = admin.describeTopics(List.of(topic)).all().get().get(topic).partitions().get(0);
            if (partition.replicas().size() == replicas && partition.isr().size() == inSync) {
                return;
            }
            if (waited > 60) {
                throw new IllegalStateException(topic + " has replicas " + partition.replicas() + ", in sync " + partition.isr());
            }
            Thread.sleep(500);
        }
    }
}
