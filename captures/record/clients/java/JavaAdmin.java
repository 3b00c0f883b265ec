import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** What an administrator does: topics, settings (a secret one too), ACLs, quotas, credentials, features and so on. */
final class JavaAdmin {
    private static final TopicPartition PARTITION = new TopicPartition("inventory", 0);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        try (Admin admin = Clients.admin(bootstrap, "admin-client")) {
            topics(admin, bootstrap);
            settings(admin);
            acls(admin);
            quotasAndCredentials(admin);
            cluster(admin);
            admin.deleteTopics(List.of("inventory")).all().get();
            Report.line("deleted", "topic", "inventory");
        }
    }

    private static void topics(Admin admin, String bootstrap) throws Exception {
        var topic = new NewTopic("inventory", Map.of(0, List.of(1), 1, List.of(1))).configs(Map.of("retention.ms", "3600000"));
        var created = admin.createTopics(List.of(topic));
        created.all().get();
        Report.line("created", "topic", "inventory", "partitions", 2, "topic_id", created.topicId("inventory").get());
        var described = admin.describeTopics(List.of("inventory"),
            new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames().get().get("inventory");
        Report.line("described_topic", "topic", described.name(), "topic_id", described.topicId(),
            "partitions", described.partitions().size(), "authorized_operations", new TreeSet<>(described.authorizedOperations()));
        admin.createPartitions(Map.of("inventory", NewPartitions.increaseTo(3))).all().get();
        Report.line("created_partitions", "topic", "inventory", "count", 3);
        try (var producer = Clients.producer(bootstrap, "admin-producer", "enable.idempotence", "false")) {
            for (int i = 0; i < 3; i++) {
                var record = new ProducerRecord<byte[], byte[]>("inventory", 0, Samples.BASE_TIMESTAMP + i, null, ("item " + i).getBytes(UTF_8));
                Report.produced(record, producer.send(record).get(), "none");
            }
        }
        var marks = admin.deleteRecords(Map.of(PARTITION, RecordsToDelete.beforeOffset(2))).lowWatermarks().get(PARTITION).get();
        Report.line("deleted_records", "topic", "inventory", "partition", 0, "low_watermark", marks.lowWatermark());
        Map<String, OffsetSpec> specs = new TreeMap<>(Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
            "max_timestamp", OffsetSpec.maxTimestamp(), "timestamp", OffsetSpec.forTimestamp(Samples.BASE_TIMESTAMP)));
        for (var spec : specs.entrySet()) {
            var found = admin.listOffsets(Map.of(PARTITION, spec.getValue())).partitionResult(PARTITION).get();
            Report.line("listed_offset", "topic", "inventory", "partition", 0, "spec", spec.getKey(), "offset", found.offset(),
                "timestamp", found.timestamp(), "leader_epoch", found.leaderEpoch().orElse(null));
        }
        attempt("elect leaders", admin.electLeaders(ElectionType.PREFERRED, Set.of(PARTITION)).all());
        attempt("reassign a partition", admin.alterPartitionReassignments(
            Map.of(PARTITION, Optional.of(new NewPartitionReassignment(List.of(1))))).all());
        attempt("cancel a reassignment", admin.alterPartitionReassignments(Map.of(PARTITION, Optional.empty())).all());
        Report.line("listed_reassignments", "count", admin.listPartitionReassignments().reassignments().get().size());
        try (var consumer = Clients.consumer(bootstrap, "admin-reader")) {
            consumer.assign(List.of(PARTITION));
            consumer.seek(PARTITION, new OffsetAndMetadata(2, Optional.of(0), ""));  // with an epoch: it asks for the epoch's end
            Clients.consume(consumer, "admin-reader", 1);
        }
    }

    private static void settings(Admin admin) throws Exception {
        var topic = new ConfigResource(ConfigResource.Type.TOPIC, "inventory");
        var broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        var metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "watch-java");
        admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("max.message.bytes", "65536"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("retention.ms", null), AlterConfigOp.OpType.DELETE),
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND)))).all().get();
        Report.line("altered_settings", "resource", "topic inventory",
            "settings", Map.of("max.message.bytes", "65536", "cleanup.policy", "+compact"));
        String secret = "listener.name.internal.plain.sasl.jaas.config";
        attempt("set a secret", admin.incrementalAlterConfigs(Map.of(broker, List.of(
            new AlterConfigOp(new ConfigEntry("log.cleaner.threads", "1"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry(secret, "org.apache.kafka.common.security.plain.PlainLoginModule required "
                + "username=\"broker\" password=\"secret-of-a-setting\";"), AlterConfigOp.OpType.SET)))).all());
        admin.incrementalAlterConfigs(Map.of(metrics, List.of(
            new AlterConfigOp(new ConfigEntry("interval.ms", "60000"), AlterConfigOp.OpType.SET)))).all().get();
        Report.line("altered_settings", "resource", "client metrics watch-java", "settings", Map.of("interval.ms", "60000"));
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(false);
        for (var resource : List.of(topic, broker, metrics)) {
            for (var entry : admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries()) {
                if (entry.source().name().startsWith("DYNAMIC")) {
                    Report.line("setting", "resource", resource.type(), "resource_name", resource.name(), "name", entry.name(),
                        "value", entry.value(), "sensitive", entry.isSensitive(), "source", entry.source());
                }
            }
        }
        Report.line("listed_resources", "names", admin.listConfigResources().all().get().stream()
            .map(resource -> resource.type() + " " + resource.name()).sorted().toList());
    }

    private static void acls(Admin admin) throws Exception {
        var acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "inv", PatternType.PREFIXED),
            new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
        admin.createAcls(List.of(acl)).all().get();
        Report.line("created_acl", "resource_type", "TOPIC", "resource", "inv", "pattern", "PREFIXED", "principal", "User:alice",
            "host", "*", "operation", "READ", "permission", "ALLOW");
        Report.line("described_acls", "count", admin.describeAcls(AclBindingFilter.ANY).values().get().size());
        Report.line("deleted_acls", "count", admin.deleteAcls(List.of(acl.toFilter())).all().get().size());
    }

    private static void quotasAndCredentials(Admin admin) throws Exception {
        var entity = new ClientQuotaEntity(new TreeMap<>(Map.of("user", "alice", "client-id", "app")));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(
            new ClientQuotaAlteration.Op("producer_byte_rate", 1234567.0),
            new ClientQuotaAlteration.Op("request_percentage", 12.75),
            new ClientQuotaAlteration.Op("consumer_byte_rate", null))))).all().get();
        Report.line("altered_quota", "entity", entity.entries(), "producer_byte_rate", 1234567.0, "request_percentage", 12.75);
        attempt("describe quotas", admin.describeClientQuotas(ClientQuotaFilter.all()).entities());
        admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("alice", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "alice-password"),
            new UserScramCredentialUpsertion("bob", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), "bob-password"))).all().get();
        Report.line("altered_credentials", "users", Map.of("alice", "SCRAM-SHA-256 4096", "bob", "SCRAM-SHA-512 8192"));
        var users = new TreeMap<>(admin.describeUserScramCredentials().all().get());
        Report.line("described_credentials", "users", users.values().stream().map(Object::toString).toList());
        admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512))).all().get();
        Report.line("deleted_credentials", "users", List.of("bob"));
    }

    private static void cluster(Admin admin) throws Exception {
        var cluster = admin.describeCluster();
        Report.line("described_cluster", "cluster_id", cluster.clusterId().get(), "controller", cluster.controller().get().id(),
            "nodes", cluster.nodes().get().size());
        var features = admin.describeFeatures().featureMetadata().get();
        Report.line("described_features", "finalized", new TreeMap<>(features.finalizedFeatures()).toString());
        attempt("update a feature", admin.updateFeatures(
            Map.of("share.version", new FeatureUpdate((short) 0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)),
            new UpdateFeaturesOptions().validateOnly(true)).all());
        var quorum = admin.describeMetadataQuorum().quorumInfo().get();
        Report.line("described_quorum", "leader", quorum.leaderId(), "voters", quorum.voters().size());
        for (var dir : admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values()) {
            Report.line("described_log_dir", "partitions", new TreeSet<>(dir.replicaInfos().keySet().stream().map(Object::toString).toList()));
        }
        attempt("move a replica to an unknown folder", admin.alterReplicaLogDirs(
            Map.of(new org.apache.kafka.common.TopicPartitionReplica("inventory", 0, 1), "/no/such/folder")).all());
        attempt("unregister an unknown broker", admin.unregisterBroker(77).all());
        attempt("remove an unknown voter", admin.removeRaftVoter(9, org.apache.kafka.common.Uuid.ONE_UUID).all());
        attempt("fence producers", admin.fenceProducers(List.of("fenced")).all());
    }

    /** Runs what may or may not succeed on a single broker, and says which. */
    private static void attempt(String operation, KafkaFuture<?> future) throws Exception {
        try {
            future.get(Duration.ofSeconds(20).toMillis(), java.util.concurrent.TimeUnit.MILLISECONDS);
            Report.line("done", "operation", operation);
        } catch (java.util.concurrent.ExecutionException error) {
            Report.failed(operation, error);
        }
    }
}
