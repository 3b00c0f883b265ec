import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.connect.runtime.distributed.ConnectProtocol;
import org.apache.kafka.connect.runtime.distributed.ExtendedAssignment;
import org.apache.kafka.connect.runtime.distributed.ExtendedWorkerState;
import org.apache.kafka.connect.runtime.distributed.IncrementalCooperativeConnectProtocol;
import org.apache.kafka.connect.util.ConnectorTaskId;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.assignment.AssignmentInfo;
import org.apache.kafka.streams.processor.internals.assignment.SubscriptionInfo;
import org.apache.kafka.streams.state.HostInfo;

/**
 * Prints what Kafka's classes write into the bytes of JoinGroup and SyncGroup, each with what they read back from it: a
 * line of JSON with type, assignor, kind (metadata, assignment), version, bytes and what their getters say.
 */
public class EmbeddedVectors {
    private static final List<TopicPartition> PARTITIONS = List.of(
        new TopicPartition("orders", 0), new TopicPartition("orders", 7), new TopicPartition("pay.ments_é", 3));

    public static void main(String[] arguments) throws Exception {
        consumer();
        streams();
        connect();
    }

    private static void consumer() throws Exception {
        ConsumerGroupMetadata group = new ConsumerGroupMetadata("group", 12, "member", Optional.empty());
        StickyAssignor sticky = new StickyAssignor();
        sticky.onAssignment(new Assignment(PARTITIONS), group);
        CooperativeStickyAssignor cooperative = new CooperativeStickyAssignor();
        cooperative.onAssignment(new Assignment(PARTITIONS), group);
        for (short version = 0; version <= 3; version++) {
            for (Map.Entry<String, ByteBuffer> data : Map.of(
                    "range", ByteBuffer.wrap(new byte[0]),
                    "sticky", sticky.subscriptionUserData(Set.of("orders")),
                    "cooperative-sticky", cooperative.subscriptionUserData(Set.of("orders"))).entrySet()) {
                subscription(data.getKey(), version, data.getValue(), userData(data.getKey(), 1));
            }
            subscription("sticky", version, stickyOfOldClients(), userData("sticky", 0));
            ByteBuffer written = ConsumerProtocol.serializeAssignment(new Assignment(PARTITIONS), version);
            Assignment read = ConsumerProtocol.deserializeAssignment(written.duplicate());
            line("consumer", "range", "assignment", version, written, Map.of("partitions", names(read.partitions())));
        }
    }

    private static Map<String, Object> userData(String assignor, int version) {
        Map<String, Object> told = new TreeMap<>();
        if (assignor.equals("sticky")) {
            told.put("partitions", names(PARTITIONS));
        }
        if (assignor.endsWith("sticky") && version > 0) {
            told.put("generation", 12);
        }
        return told;
    }

    /** Version 0 was that of clients before 2.1; the assignor still reads it. */
    private static ByteBuffer stickyOfOldClients() throws Exception {
        Schema outer = schema("STICKY_ASSIGNOR_USER_DATA_V0");
        Schema inner = schema("TOPIC_ASSIGNMENT");
        Map<String, List<Integer>> byTopic = new LinkedHashMap<>();
        PARTITIONS.forEach(one -> byTopic.computeIfAbsent(one.topic(), name -> new ArrayList<>()).add(one.partition()));
        List<Struct> topics = new ArrayList<>();
        byTopic.forEach((topic, partitions) ->
            topics.add(new Struct(inner).set("topic", topic).set("partitions", partitions.toArray())));
        Struct struct = new Struct(outer).set("previous_assignment", topics.toArray());
        ByteBuffer buffer = ByteBuffer.allocate(outer.sizeOf(struct));
        outer.write(buffer, struct);
        return buffer.flip();
    }

    private static Schema schema(String name) throws Exception {
        Field field = StickyAssignor.class.getDeclaredField(name);
        field.setAccessible(true);
        return (Schema) field.get(null);
    }

    private static void subscription(String assignor, short version, ByteBuffer userData, Map<String, Object> inside) {
        Subscription member =
            new Subscription(List.of("orders", "pay.ments_é"), userData, PARTITIONS, 12, Optional.of("rack-1"));
        ByteBuffer written = ConsumerProtocol.serializeSubscription(member, version);
        Subscription read = ConsumerProtocol.deserializeSubscription(written.duplicate());
        Map<String, Object> told = new TreeMap<>();
        told.put("topics", read.topics());
        told.put("partitions", names(read.ownedPartitions()));
        told.put("generation", read.generationId().orElse(-1));
        told.put("rack", read.rackId().orElse(null));
        told.put("user_data", inside);
        line("consumer", assignor, "metadata", version, written, told);
    }

    private static void streams() {
        TaskId named = new TaskId(2, 1, "topology");
        for (int version = 1; version <= 11; version++) {
            Map<TaskId, Long> sums = new TreeMap<>();
            sums.put(new TaskId(0, 1), -2L);
            sums.put(new TaskId(1, 4), 1234L);
            SubscriptionInfo subscription = SubscriptionInfo.decode(new SubscriptionInfo(
                version, 11, new ProcessId(new UUID(5, 6)), "host:8080", sums, (byte) 3, 0, Map.of("zone", "a")).encode());
            Map<String, Object> told = new TreeMap<>();
            told.put("version", subscription.version());
            told.put("process", subscription.processId().id().toString());
            told.put("previous", strings(subscription.prevTasks()));
            told.put("standby", strings(subscription.standbyTasks()));
            told.put("endpoint", subscription.userEndPoint());
            ByteBuffer data = subscription.encode();
            Map<String, Object> member = Map.of("topics", List.of("orders"), "user_data", told);
            line("consumer", "stream", "metadata", 1, ConsumerProtocol.serializeSubscription(
                new Subscription(List.of("orders"), data, List.of()), (short) 1), member);

            List<TaskId> active = new ArrayList<>(List.of(new TaskId(0, 0), new TaskId(0, 7), new TaskId(1, 3)));
            Map<TaskId, Set<TopicPartition>> standby = new LinkedHashMap<>();
            standby.put(new TaskId(1, 4), Set.of(new TopicPartition("orders", 4)));
            if (version >= 10) {
                standby.put(named, Set.of(new TopicPartition("pay.ments_é", 1)));
            }
            Map<HostInfo, Set<TopicPartition>> hosts = new LinkedHashMap<>();
            hosts.put(new HostInfo("one", 8080), new LinkedHashSet<>(PARTITIONS));
            hosts.put(new HostInfo("two", 8081), Set.of(new TopicPartition("orders", 9)));
            Map<HostInfo, Set<TopicPartition>> standbyHosts = Map.of(new HostInfo("two", 8081), Set.of(PARTITIONS.get(0)));
            AssignmentInfo written = new AssignmentInfo(version, 11, active, standby, hosts, standbyHosts, 0);
            written.setNextRebalanceTime(1700000000123L);
            ByteBuffer bytes = written.encode();
            AssignmentInfo read = AssignmentInfo.decode(bytes.duplicate());
            Map<String, Object> assigned = new TreeMap<>();
            assigned.put("version", read.version());
            assigned.put("active", strings(read.activeTasks()));
            assigned.put("standby", byName(read.standbyTasks()));
            assigned.put("hosts", byName(read.partitionsByHost()));
            assigned.put("standby_hosts", byName(read.standbyPartitionByHost()));
            assigned.put("error", read.errCode());
            assigned.put("next", read.nextRebalanceMs());
            line("consumer", "stream", "assignment", 1, ConsumerProtocol.serializeAssignment(
                new Assignment(PARTITIONS, bytes), (short) 1), Map.of("partitions", names(PARTITIONS), "user_data", assigned));
        }
    }

    private static void connect() {
        String url = "http://127.0.0.1:8083/";
        List<String> connectors = List.of("copy", "mirror");
        List<ConnectorTaskId> tasks = List.of(
            new ConnectorTaskId("copy", 0), new ConnectorTaskId("copy", 1), new ConnectorTaskId("other", 5));
        ConnectProtocol.WorkerState eager =
            ConnectProtocol.deserializeMetadata(ConnectProtocol.serializeMetadata(new ConnectProtocol.WorkerState(url, 42)));
        line("connect", "eager", "metadata", 0, ConnectProtocol.serializeMetadata(eager),
            Map.of("url", eager.url(), "offset", eager.offset()));
        ByteBuffer written = ConnectProtocol.serializeAssignment(
            new ConnectProtocol.Assignment((short) 1, "leader", url, 43, connectors, tasks));
        line("connect", "eager", "assignment", 0, written, told(ConnectProtocol.deserializeAssignment(written.duplicate())));
        for (short version = 1; version <= 2; version++) {
            String protocol = version == 1 ? "compatible" : "sessioned";
            ExtendedAssignment assignment = new ExtendedAssignment(version, (short) 0, "leader", url, 44, connectors, tasks,
                List.of("gone"), List.of(new ConnectorTaskId("gone", 2)), 5000);
            ByteBuffer bytes = IncrementalCooperativeConnectProtocol.serializeAssignment(assignment, version == 2);
            ExtendedAssignment read = IncrementalCooperativeConnectProtocol.deserializeAssignment(bytes.duplicate());
            line("connect", protocol, "assignment", version, bytes, extended(read));
            for (ExtendedAssignment running : List.of(assignment, ExtendedAssignment.empty())) {
                ByteBuffer state = IncrementalCooperativeConnectProtocol.serializeMetadata(
                    new ExtendedWorkerState(url, 42, running), version == 2);
                ExtendedWorkerState back = IncrementalCooperativeConnectProtocol.deserializeMetadata(state.duplicate());
                Map<String, Object> told = new TreeMap<>(Map.of("url", back.url(), "offset", back.offset()));
                // It reads a worker without an allocation as one with an assignment that is empty.
                if (running == assignment) {
                    told.put("allocation", extended(back.assignment()));
                }
                line("connect", protocol, "metadata", version, state, told);
            }
        }
    }

    private static Map<String, Object> told(ConnectProtocol.Assignment read) {
        return new TreeMap<>(Map.of("error", read.error(), "leader", read.leader(), "url", read.leaderUrl(),
            "offset", read.offset(), "connectors", strings(read.connectors()), "tasks", strings(read.tasks())));
    }

    private static Map<String, Object> extended(ExtendedAssignment read) {
        Map<String, Object> told = told(read);
        told.put("revoked_connectors", strings(read.revokedConnectors()));
        told.put("revoked_tasks", strings(read.revokedTasks()));
        told.put("delay", read.delay());
        return told;
    }

    private static List<String> names(Collection<TopicPartition> partitions) {
        return strings(partitions);
    }

    private static List<String> strings(Collection<?> items) {
        return items.stream().map(Object::toString).sorted().toList();
    }

    private static Map<String, Object> byName(Map<?, Set<TopicPartition>> items) {
        Map<String, Object> told = new TreeMap<>();
        items.forEach((key, partitions) ->
            told.put(key instanceof HostInfo host ? host.host() + ":" + host.port() : key.toString(), names(partitions)));
        return told;
    }

    private static void line(String type, String protocol, String kind, int version, ByteBuffer bytes, Map<String, Object> told) {
        byte[] data = new byte[bytes.remaining()];
        bytes.duplicate().get(data);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("type", type);
        line.put("protocol", protocol);
        line.put("kind", kind);
        line.put("version", version);
        line.put("bytes", Base64.getEncoder().encodeToString(data));
        line.put("told", new TreeMap<>(told));
        System.out.println(json(line));
    }

    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            List<String> entries = new ArrayList<>();
            map.forEach((key, item) -> entries.add(json(key) + ": " + json(item)));
            return "{" + String.join(", ", entries) + "}";
        }
        if (value instanceof Collection<?> items) {
            return "[" + String.join(", ", items.stream().map(EmbeddedVectors::json).toList()) + "]";
        }
        return value instanceof String ? "\"" + value + "\"" : String.valueOf(value);
    }
}
