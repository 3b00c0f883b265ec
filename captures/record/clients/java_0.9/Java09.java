import java.util.List;
import java.util.Map;
import kafka.admin.AdminClient;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** What clients of 0.9 do: the new consumer in a group whose work its coordinator shares out, and who asks for groups. */
final class Java09 {
    private static final String GROUP = "letter-readers";

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Told.client();
        int total = Writes.codecs(bootstrap, "letters", "none", "gzip", "snappy", "lz4");
        try (var producer = Writes.producer(bootstrap, "errors-writer", "acks", "0")) {
            // No answer tells the offset.
            var record = Writes.record("letters", 0, null, "acks 0");
            producer.send(record).get();
            Told.line("produced", "topic", "letters", "partition", 0, "key", null, "value", record.value(), "codec", "none");
            total++;
        }
        try (var producer = Writes.producer(bootstrap, "errors-writer")) {
            Told.fails("produce a too large record", () -> producer.send(Writes.record("letters", 0, null, "large ".repeat(400))).get());
        }
        Reads.all(bootstrap, "letters-reader", "letters", total);
        try (var producer = Writes.producer(bootstrap, "pairs-writer")) {
            Writes.send(producer, "none", List.of(Writes.record("pairs", 0, "a", "one"), Writes.record("pairs", 1, "b", "two")));
        }
        Members.joinAndLeave(bootstrap, GROUP, "pairs", 2, () -> describe(bootstrap));
        try (var consumer = Reads.consumer(bootstrap, "offset-setter", "group.id", GROUP)) {
            var partition = new TopicPartition("pairs", 0);
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(0, "back to the beginning")));
            Told.line("committed", "client_id", "offset-setter", "group", GROUP, "metadata", "back to the beginning", "offsets", Map.of("pairs-0", 0));
            Told.line("offsets", "group", GROUP, "offsets", Map.of("pairs-0", consumer.committed(partition).offset()));
            Told.fails("commit with a long metadata", () ->
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(1, "long ".repeat(1000)))));
        }
    }

    private static void describe(String bootstrap) {
        var admin = AdminClient.createSimplePlaintext(bootstrap);
        var summary = admin.describeGroup(GROUP);
        Told.line("described_group", "group", GROUP, "state", summary.state(), "members", List.of(
            Map.of("client_id", summary.members().apply(0).clientId(), "member_id", summary.members().apply(0).memberId())));
        Told.line("listed_group", "group", admin.listAllGroupsFlattened().apply(0).groupId(), "protocol_type", "consumer");
        admin.close();
    }
}
