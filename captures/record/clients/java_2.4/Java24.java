import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What clients of 2.4 do: zstd, static members and cooperation, elections, reassignments, single settings, offsets deleted. */
final class Java24 {
    private static final String GROUP = "ledger-readers";

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Told.client();
        try (var admin = AdminClient.create(Writes.settings(bootstrap, "eras-admin"))) {
            Topics.create(admin, 2, "ledger");
            Transactions.run(bootstrap, "ledger", "zstd");
            Members.joinAndLeave(bootstrap, GROUP, "ledger", 2, () -> { },
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
            staticMember(admin, bootstrap);
            var partition = new TopicPartition("ledger", 0);
            admin.deleteConsumerGroupOffsets(GROUP, Set.of(partition)).all().get();
            Told.line("deleted_offsets", "group", GROUP, "partitions", List.of("ledger-0"));
            settings(admin);
            elections(admin, partition);
            Acls.prefixed(admin);
            Topics.delete(admin, "ledger");
        }
    }

    /** A member that stays one when it is away, until it is removed. */
    private static void staticMember(AdminClient admin, String bootstrap) throws Exception {
        try (var consumer = Reads.consumer(bootstrap, "static-member", "group.id", "static-readers", "group.instance.id", "reader-1")) {
            consumer.subscribe(List.of("ledger"));
            for (int waited = 0; consumer.assignment().isEmpty() && waited < 60; waited++) {
                consumer.poll(200);
            }
            // With an epoch: it asks for the epoch's end.
            consumer.seek(new TopicPartition("ledger", 0), new OffsetAndMetadata(1, Optional.of(0), ""));
            Reads.consume(consumer, "static-member", 1);
        }
        admin.removeMembersFromConsumerGroup("static-readers",
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("reader-1")))).all().get();
        Told.line("left", "group", "static-readers");
    }

    private static void settings(AdminClient admin) throws Exception {
        var topic = new ConfigResource(ConfigResource.Type.TOPIC, "ledger");
        admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("max.message.bytes", "65536"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.SET)))).all().get();
        Told.line("altered_settings", "resource", "topic ledger", "settings", Map.of("max.message.bytes", "65536", "cleanup.policy", "compact"));
        admin.describeTopics(Set.of("ledger"), new DescribeTopicsOptions().includeAuthorizedOperations(true)).all().get();
    }

    private static void elections(AdminClient admin, TopicPartition partition) throws Exception {
        Told.fails("elect leaders where none is needed", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).all().get());
        Told.fails("elect an unclean leader of an unknown topic", () ->
            admin.electLeaders(ElectionType.UNCLEAN, Set.of(new TopicPartition("no-such-topic", 0))).all().get());
        admin.alterPartitionReassignments(Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(1))))).all().get();
        Told.line("done", "operation", "reassign a partition");
        Told.fails("cancel a reassignment", () -> admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all().get());
        Told.line("listed_reassignments", "count", admin.listPartitionReassignments().reassignments().get().size());
    }
}
