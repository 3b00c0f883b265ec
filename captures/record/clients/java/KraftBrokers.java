import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What makes three nodes talk: replicas that come and go, partitions that move, a transaction that hangs, a share group. */
final class KraftBrokers {
    private static final TopicPartition WIDE = new TopicPartition("wide", 0);
    private static final TopicPartition MOVING = new TopicPartition("moving", 0);

    /** An act's arguments: the first broker's address, and for the first act another log folder of that broker. */
    public static void main(String[] none) throws Exception {
        Acts.play((act, arguments) -> {
            String bootstrap = arguments[0];
            try (Admin admin = Clients.admin(bootstrap, "brokers-admin", "enable.metrics.push", "false")) {
                switch (act) {
                    case "all" -> {
                        topics(admin, bootstrap, arguments[1]);
                        hangingTransaction(admin, bootstrap);
                        share(admin, bootstrap);
                    }
                    case "two" -> withoutTheThird(admin, bootstrap);
                    case "again" -> leaders(admin);
                    default -> throw new IllegalArgumentException(act);
                }
            }
        });
    }

    private static void produce(String bootstrap, TopicPartition to, String value) throws Exception {
        try (var producer = Clients.producer(bootstrap, "brokers-producer", "enable.metrics.push", "false")) {
            var record = new ProducerRecord<byte[], byte[]>(to.topic(), to.partition(), Samples.BASE_TIMESTAMP, null, value.getBytes(UTF_8));
            Report.produced(record, producer.send(record).get(), "none");
        }
    }

    private static void topics(Admin admin, String bootstrap, String folder) throws Exception {
        admin.createTopics(List.of(
            new NewTopic("wide", Map.of(0, List.of(3, 1, 2))), new NewTopic("moving", Map.of(0, List.of(1, 3))))).all().get();
        for (String topic : List.of("wide", "moving")) {
            Report.line("created", "topic", topic, "partitions", 1);
        }
        produce(bootstrap, WIDE, "to three replicas");
        produce(bootstrap, MOVING, "before the move");
        reassign(admin, List.of(1, 2));
        long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        while (!admin.listPartitionReassignments().reassignments().get().isEmpty()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the reassignment does not end");
            }
            Thread.sleep(500);
        }
        produce(bootstrap, MOVING, "after the move");
        admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica("wide", 0, 1), folder)).all().get();
        Report.line("moved_replica", "topic", "wide", "partition", 0, "broker", 1, "folder", folder);
    }

    private static void reassign(Admin admin, List<Integer> replicas) throws Exception {
        admin.alterPartitionReassignments(Map.of(MOVING, Optional.of(new NewPartitionReassignment(replicas)))).all().get();
        Report.line("reassigned", "topic", "moving", "partition", 0, "replicas", replicas);
    }

    /** An administrator ends what its producer leaves open (KIP-664). */
    private static void hangingTransaction(Admin admin, String bootstrap) throws Exception {
        try (var producer = Clients.producer(bootstrap, "hanging-producer", "transactional.id", "hanging", "enable.metrics.push", "false")) {
            producer.initTransactions();
            producer.beginTransaction();
            var record = new ProducerRecord<byte[], byte[]>("wide", 0, Samples.BASE_TIMESTAMP, null, "left open".getBytes(UTF_8));
            Report.produced(record, producer.send(record).get(), "none");
            var open = admin.describeProducers(List.of(WIDE)).partitionResult(WIDE).get().activeProducers().stream()
                .filter(one -> one.currentTransactionStartOffset().isPresent()).findFirst().orElseThrow();
            Report.line("described_producer", "producer_id", open.producerId(), "producer_epoch", open.producerEpoch(),
                "last_sequence", open.lastSequence(), "last_timestamp", open.lastTimestamp());
            admin.abortTransaction(new AbortTransactionSpec(WIDE, open.producerId(), (short) open.producerEpoch(),
                open.coordinatorEpoch().orElse(0))).all().get();
            Report.line("aborted_transaction", "topic", "wide", "partition", 0, "producer_id", open.producerId(),
                "producer_epoch", open.producerEpoch());
            producer.abortTransaction();
        }
    }

    private static void share(Admin admin, String bootstrap) throws Exception {
        var group = new ConfigResource(ConfigResource.Type.GROUP, "brokers-share");
        admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(
            new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
        Report.line("altered_settings", "resource", "group brokers-share", "settings", Map.of("share.auto.offset.reset", "earliest"));
        var settings = Clients.settings(bootstrap, "brokers-share-member", "group.id", "brokers-share", "enable.metrics.push", "false");
        try (var consumer = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("moving"));
            long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            for (int seen = 0; seen < 2; ) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    Report.consumed("brokers-share-member", record);
                    seen++;
                }
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("not all records came");
                }
            }
            consumer.commitSync();
        }
        Map<String, Object> offsets = new HashMap<>();
        admin.listShareGroupOffsets(Map.of("brokers-share", new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo("brokers-share")
            .get().forEach((partition, offset) -> offsets.put(partition.toString(), offset.startOffset()));
        Report.line("offsets", "group", "brokers-share", "offsets", offsets);
    }

    private static void withoutTheThird(Admin admin, String bootstrap) throws Exception {
        produce(bootstrap, WIDE, "to two replicas");
        // A replica that is not there keeps the reassignment open, until it is cancelled.
        reassign(admin, List.of(1, 3));
        Report.line("listed_reassignments", "count", admin.listPartitionReassignments().reassignments().get().size());
        admin.alterPartitionReassignments(Map.of(MOVING, Optional.empty())).all().get();
        Report.line("cancelled_reassignment", "topic", "moving", "partition", 0);
        attempt("elect an unclean leader", admin.electLeaders(ElectionType.UNCLEAN, Set.of(WIDE)).partitions());
        admin.unregisterBroker(3).all().get();
        Report.line("unregistered_broker", "broker", 3);
    }

    private static void leaders(Admin admin) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (admin.describeTopics(List.of("wide")).allTopicNames().get().get("wide").partitions().get(0).isr().size() < 3) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the third replica does not come back");
            }
            Thread.sleep(1000);
        }
        admin.deleteTopics(List.of("moving")).all().get();
        Report.line("deleted", "topic", "moving");
        admin.electLeaders(ElectionType.PREFERRED, Set.of(WIDE)).all().get();
        Report.line("elected_leader", "topic", "wide", "partition", 0, "election_type", 0);
        var described = admin.describeTopics(List.of("wide")).allTopicNames().get().get("wide");
        Report.line("described_topic", "topic", "wide", "topic_id", described.topicId(), "partitions", described.partitions().size());
    }

    private static void attempt(String operation, KafkaFuture<Map<TopicPartition, Optional<Throwable>>> future) throws Exception {
        for (var error : future.get().values()) {
            if (error.isPresent()) {
                Report.failed(operation, error.get());
            }
        }
    }
}
