import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;

/** What clients of 1.1 do: more partitions, folders and moving between them, records deleted, log-ins whose failure is told. */
final class Java11 {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Told.client();
        try (var admin = AdminClient.create(Writes.settings(bootstrap, "eras-admin"))) {
            Topics.create(admin, 1, "headed", "ledger");
            Transactions.run(bootstrap, "ledger", "gzip");
            Topics.settings(admin, "headed");
            admin.createPartitions(Map.of("headed", NewPartitions.increaseTo(2))).all().get();
            Told.line("created_partitions", "topic", "headed", "count", 2);
            Told.fails("shrink a topic", () -> admin.createPartitions(Map.of("headed", NewPartitions.increaseTo(1))).all().get());
            var first = new TopicPartition("ledger", 0);
            long low = admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(2))).lowWatermarks().get(first).get().lowWatermark();
            Told.line("deleted_records", "topic", "ledger", "partition", 0, "low_watermark", low);
            folders(admin);
            Topics.delete(admin, "headed");
        }
        try (var admin = Logins.plain(arguments[1], "alice-admin", "alice-secret")) {
            Told.line("listed_topics", "topics", new TreeSet<>(admin.listTopics().names().get()));
            Told.line("authenticated", "client_id", "alice-admin", "mechanism", "PLAIN", "user", "alice", "password", "alice-secret");
        }
        try (var admin = Logins.plain(arguments[1], "wrong-login", "wrong-secret")) {
            Told.fails("log in with a wrong password", () -> admin.listTopics().names().get());
        }
    }

    /** Moves a replica into the folder that it is not in. */
    private static void folders(AdminClient admin) throws Exception {
        String other = null;
        for (var folder : admin.describeLogDirs(Set.of(1)).all().get().get(1).entrySet()) {
            var partitions = folder.getValue().replicaInfos.keySet();
            if (!partitions.isEmpty()) {
                Told.line("described_log_dir", "partitions", String.valueOf(new TreeSet<>(partitions.stream().map(Object::toString).toList())));
            }
            if (!partitions.contains(new TopicPartition("ledger", 0))) {
                other = folder.getKey();
            }
        }
        admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica("ledger", 0, 1), other)).all().get();
        Told.line("done", "operation", "move a replica to another folder");
        Told.fails("move a replica to an unknown folder", () -> admin.alterReplicaLogDirs(
            Map.of(new TopicPartitionReplica("ledger", 0, 1), "/no/such/folder")).all().get());
    }
}
