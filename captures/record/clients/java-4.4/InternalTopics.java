import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Groups of three kinds and two transactions come and go; then a reader without a group fetches what the coordinators wrote down of
 * them, and only after that an administrator is told the names of those topics once more.
 */
final class InternalTopics {
    private static final String CLASSIC = "classic-group";
    private static final String NEWER = "newer-group";
    private static final String SHARE = "share-group";
    private static final String TRANSACTION = "ledger-writer";
    private static final List<TopicPartition> ORDERS = List.of(new TopicPartition("orders", 0), new TopicPartition("orders", 1));
    private static final Duration SHORT = Duration.ofMillis(100);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        try (Admin admin = Clients.admin(bootstrap, "state-admin", "enable.metrics.push", "false")) {
            Clients.createTopics(admin, 2, "orders");
            Clients.createTopics(admin, 1, "tasks");
            try (var producer = producer(bootstrap, "state-producer", "enable.idempotence", "false")) {
                write(producer, "orders", 0, "order 0", "order 1", "order 2");
                write(producer, "orders", 1, "order 3");
                write(producer, "tasks", 0, "task 0", "task 1", "task 2");
            }
            classicGroup(bootstrap);
            newerGroup(bootstrap);
            shareGroup(admin, bootstrap);
            transactions(admin, bootstrap);
            admin.deleteConsumerGroupOffsets(CLASSIC, Set.of(ORDERS.get(0))).all().get();
            Report.line("deleted_offsets", "group", CLASSIC, "partitions", List.of(ORDERS.get(0).toString()));
            admin.deleteConsumerGroups(List.of(CLASSIC)).all().get();
            Report.line("deleted_group", "group", CLASSIC);
            admin.deleteShareGroups(List.of(SHARE)).all().get();
            Report.line("deleted_group", "group", SHARE);
        }
        read(bootstrap);
        try (Admin admin = Clients.admin(bootstrap, "late-admin", "enable.metrics.push", "false")) {
            for (var described : admin.describeTopics(InternalRecords.TOPICS).allTopicNames().get().values()) {
                Report.line("described_topic", "topic", described.name(), "topic_id", described.topicId(),
                    "partitions", described.partitions().size());
            }
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String clientId, Object... more) {
        List<Object> settings = new ArrayList<>(List.of(more));
        settings.addAll(List.of("enable.metrics.push", "false"));
        return Clients.producer(bootstrap, clientId, settings.toArray());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String clientId, Object... more) {
        List<Object> settings = new ArrayList<>(List.of(more));
        settings.addAll(List.of("enable.metrics.push", "false"));
        return Clients.consumer(bootstrap, clientId, settings.toArray());
    }

    private static void write(KafkaProducer<byte[], byte[]> producer, String topic, int partition, String... values) throws Exception {
        for (String value : values) {
            var record = new ProducerRecord<byte[], byte[]>(topic, partition, Samples.BASE_TIMESTAMP, null, value.getBytes(UTF_8));
            Report.produced(record, producer.send(record).get(), "none");
        }
    }

    private static void commit(KafkaConsumer<byte[], byte[]> consumer, String clientId, String group, Map<TopicPartition, Long> offsets) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> told = new HashMap<>();
        offsets.forEach((partition, offset) -> told.put(partition, new OffsetAndMetadata(offset, Optional.of(0), "by " + clientId)));
        consumer.commitSync(told);
        for (var one : offsets.entrySet()) {
            Report.line("committed", "client_id", clientId, "group", group, "topic", one.getKey().topic(),
                "partition", one.getKey().partition(), "offset", one.getValue(), "metadata", "by " + clientId);
        }
    }

    /** One member that subscribes, so that the group has members to write down, commits and leaves. */
    private static void classicGroup(String bootstrap) throws Exception {
        try (var consumer = consumer(bootstrap, "classic-member", "group.id", CLASSIC, "group.protocol", "classic",
                "partition.assignment.strategy", RangeAssignor.class.getName())) {
            consumer.subscribe(List.of("orders"));
            Clients.consume(consumer, "classic-member", 4);
            commit(consumer, "classic-member", CLASSIC, Map.of(ORDERS.get(0), 2L, ORDERS.get(1), 1L));
        }
        Report.line("left", "client_id", "classic-member", "group", CLASSIC);
    }

    /** KIP-848, with a member that the broker matches a pattern for, and a second that still speaks the classic protocol. */
    private static void newerGroup(String bootstrap) throws Exception {
        try (var newer = consumer(bootstrap, "newer-member", "group.id", NEWER, "group.protocol", "consumer")) {
            newer.subscribe(new SubscriptionPattern("ord.*s"));
            Clients.consume(newer, "newer-member", 4);
            commit(newer, "newer-member", NEWER, Map.of(ORDERS.get(1), 1L));
            try (var older = consumer(bootstrap, "older-member", "group.id", NEWER, "group.protocol", "classic",
                    "heartbeat.interval.ms", 500, "partition.assignment.strategy", RangeAssignor.class.getName())) {
                older.subscribe(List.of("orders"));
                long deadline = deadline();
                while (older.assignment().size() != 1 || newer.assignment().size() != 1) {
                    older.poll(SHORT);
                    newer.poll(SHORT);
                    checkTime(deadline, "the members do not share the partitions");
                }
            }
            Report.line("left", "client_id", "older-member", "group", NEWER);
        }
        Report.line("left", "client_id", "newer-member", "group", NEWER);
    }

    /** KIP-932: three records, one of them released and so delivered twice, one rejected. */
    private static void shareGroup(Admin admin, String bootstrap) throws Exception {
        var group = new ConfigResource(ConfigResource.Type.GROUP, SHARE);
        var earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all().get();
        var settings = Clients.settings(bootstrap, "share-member", "group.id", SHARE, "share.acknowledgement.mode", "explicit",
            "enable.metrics.push", "false");
        try (var consumer = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("tasks"));
            long deadline = deadline();
            for (int done = 0; done < 4; ) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    Report.consumed("share-member", record);
                    short delivery = record.deliveryCount().orElse((short) 0);
                    AcknowledgeType type = record.offset() == 2 ? AcknowledgeType.REJECT
                        : record.offset() == 1 && delivery == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
                    consumer.acknowledge(record, type);
                    Report.line("acknowledged", "client_id", "share-member", "topic", "tasks", "partition", 0,
                        "offset", record.offset(), "type", type, "delivery_count", delivery);
                    done++;
                }
                consumer.commitSync();
                checkTime(deadline, "not all records came");
            }
        }
        Report.line("left", "client_id", "share-member", "group", SHARE);
    }

    /** One with a record and offsets, one aborted; markers of both come into the topic of the offsets, too. */
    private static void transactions(Admin admin, String bootstrap) throws Exception {
        try (var producer = producer(bootstrap, "ledger-producer", "transactional.id", TRANSACTION);
                // It only stands for its group, and says nothing to the broker.
                var consumer = consumer(bootstrap, "ledger-member", "group.id", "ledger-group", "group.protocol", "classic")) {
            producer.initTransactions();
            for (boolean commits : List.of(true, false)) {
                producer.beginTransaction();
                write(producer, "orders", 0, commits ? "order 4" : "order 5");
                long offset = commits ? 3 : 4;
                producer.sendOffsetsToTransaction(Map.of(ORDERS.get(0), new OffsetAndMetadata(offset, "in a transaction")),
                    consumer.groupMetadata());
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                Report.line("transaction", "transactional_id", TRANSACTION, "result", commits ? "commit" : "abort", "group", "ledger-group",
                    "topic", "orders", "partition", 0, "committed_offset", offset);
                // The coordinator answers before the transaction is over: the record that says so comes later.
                awaitState(admin, commits ? TransactionState.COMPLETE_COMMIT : TransactionState.COMPLETE_ABORT);
            }
        }
    }

    private static void awaitState(Admin admin, TransactionState state) throws Exception {
        long deadline = deadline();
        var described = admin.describeTransactions(List.of(TRANSACTION)).description(TRANSACTION).get();
        while (described.state() != state) {
            Thread.sleep(SHORT.toMillis());
            checkTime(deadline, "the transaction does not end");
            described = admin.describeTransactions(List.of(TRANSACTION)).description(TRANSACTION).get();
        }
        Report.line("described_transaction", "transactional_id", TRANSACTION, "state", described.state(),
            "producer_id", described.producerId(), "producer_epoch", described.producerEpoch(),
            "timeout_ms", described.transactionTimeoutMs());
    }

    /** Everything that the coordinators wrote, up to where the topics end when the reader comes. */
    private static void read(String bootstrap) throws Exception {
        var partitions = InternalRecords.TOPICS.stream().map(topic -> new TopicPartition(topic, 0)).toList();
        try (var consumer = consumer(bootstrap, "state-reader", "isolation.level", "read_uncommitted")) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            var ends = consumer.endOffsets(partitions);
            Report.line("end_offsets", "client_id", "state-reader", "offsets", ends.entrySet().stream()
                .collect(Collectors.toMap(entry -> entry.getKey().toString(), Map.Entry::getValue)));
            long deadline = deadline();
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                for (var record : consumer.poll(SHORT)) {
                    InternalRecords.report(record);
                }
                checkTime(deadline, "the topics do not end where they should");
            }
        }
    }

    private static long deadline() {
        return System.nanoTime() + Duration.ofSeconds(30).toNanos();
    }

    private static void checkTime(long deadline, String what) {
        if (System.nanoTime() > deadline) {
            throw new IllegalStateException(what);
        }
    }
}
