import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Topics, every codec, a KIP-848 group of two members, transactions, errors; all that it does is reported. */
final class JavaWorkload {
    private static final String SAMPLES = "java-samples";
    private static final String EVENTS = "java-events";
    private static final String LEDGER = "java-ledger";
    private static final String SMALL = "java-small";
    private static final String GROUP = "java-group";
    private static final String WRITER = "java-writer";

    /** An operation that is to fail. */
    private interface Operation {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        try (Admin admin = Clients.admin(bootstrap, "java-admin")) {
            create(admin, new NewTopic(SAMPLES, 2, (short) 1), new NewTopic(EVENTS, 2, (short) 1),
                new NewTopic(LEDGER, 1, (short) 1), new NewTopic(SMALL, 1, (short) 1).configs(Map.of("max.message.bytes", "500")));
            samples(bootstrap);
            group(bootstrap);
            transactions(bootstrap, admin);
            errors(bootstrap, admin);
            reconnect(bootstrap);
        }
    }

    private static void create(Admin admin, NewTopic... topics) throws Exception {
        var result = admin.createTopics(List.of(topics));
        for (NewTopic topic : topics) {
            Report.line("created", "topic", topic.name(), "partitions", result.numPartitions(topic.name()).get(),
                "topic_id", result.topicId(topic.name()).get().toString());
        }
    }

    private static void samples(String bootstrap) throws Exception {
        int total = 0;
        for (String codec : Samples.CODECS) {
            try (KafkaProducer<byte[], byte[]> producer =
                    Clients.producer(bootstrap, "java-" + codec, "compression.type", codec, "linger.ms", 50)) {
                List<ProducerRecord<byte[], byte[]>> records = Samples.records(SAMPLES);
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (ProducerRecord<byte[], byte[]> record : records) {
                    sent.add(producer.send(record));
                }
                producer.flush();
                for (int i = 0; i < records.size(); i++) {
                    Report.produced(records.get(i), sent.get(i).get(), codec);
                    total++;
                }
            }
        }
        try (var consumer = Clients.consumer(bootstrap, "java-reader")) {
            var partitions = List.of(new TopicPartition(SAMPLES, 0), new TopicPartition(SAMPLES, 1));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Clients.consume(consumer, "java-reader", total);
        }
    }

    /** One member, two, one again: after each change every partition gets a record, which is awaited. */
    private static void group(String bootstrap) throws Exception {
        try (var producer = Clients.producer(bootstrap, "java-events-producer", "enable.idempotence", "false", "acks", "1")) {
            Member first = new Member(bootstrap, "java-member-1");
            first.start();
            first.awaitPartitions(2);
            round(producer, 1, first);
            Member second = new Member(bootstrap, "java-member-2");
            second.start();
            second.awaitPartitions(1);
            first.awaitPartitions(1);
            round(producer, 2, first, second);
            second.leave();
            first.awaitPartitions(2);
            round(producer, 3, first);
            first.leave();
        }
    }

    private static void round(KafkaProducer<byte[], byte[]> producer, int number, Member... members) throws Exception {
        int before = Arrays.stream(members).mapToInt(member -> member.handled.get()).sum();
        for (int partition = 0; partition < 2; partition++) {
            send(producer, record(EVENTS, partition, "event", "round " + number), "none");
        }
        await("a round's records", () -> Arrays.stream(members).mapToInt(member -> member.handled.get()).sum() == before + 2);
    }

    private static void transactions(String bootstrap, Admin admin) throws Exception {
        var events = new TopicPartition(EVENTS, 0);
        try (var producer = Clients.producer(bootstrap, "java-txn", "transactional.id", WRITER, "linger.ms", 20);
                var consumer = Clients.consumer(bootstrap, "java-txn-reader", "group.id", "java-txn-group")) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, record(LEDGER, 0, "account", "kept 1"), "none");
            describe(admin);
            producer.commitTransaction();
            ended("commit");

            producer.beginTransaction();
            send(producer, record(LEDGER, 0, "account", "dropped 1"), "none");
            send(producer, record(LEDGER, 0, "account", "dropped 2"), "none");
            producer.abortTransaction();
            ended("abort");

            consumer.assign(List.of(events));
            Clients.consume(consumer, "java-txn-reader", 3);
            producer.beginTransaction();
            send(producer, record(LEDGER, 0, "account", "kept 2"), "none");
            producer.sendOffsetsToTransaction(Map.of(events, new OffsetAndMetadata(3, "in a transaction")), consumer.groupMetadata());
            producer.commitTransaction();
            ended("commit", "group", "java-txn-group", "topic", EVENTS, "partition", 0, "committed_offset", 3);
        }
        for (String isolation : List.of("read_committed", "read_uncommitted")) {
            try (var consumer = Clients.consumer(bootstrap, "java-" + isolation, "isolation.level", isolation)) {
                var partition = List.of(new TopicPartition(LEDGER, 0));
                consumer.assign(partition);
                consumer.seekToBeginning(partition);
                Clients.consume(consumer, "java-" + isolation, isolation.equals("read_committed") ? 2 : 4);
            }
        }
    }

    private static void ended(String result, Object... more) throws Exception {
        List<Object> fields = new ArrayList<>(List.of("transactional_id", WRITER, "result", result));
        fields.addAll(List.of(more));
        Report.line("transaction", fields.toArray());
    }

    private static void describe(Admin admin) throws Exception {
        var described = admin.describeTransactions(List.of(WRITER)).description(WRITER).get();
        Report.line("described_transaction", "transactional_id", WRITER, "state", described.state(),
            "producer_id", described.producerId(), "producer_epoch", described.producerEpoch(),
            "timeout_ms", described.transactionTimeoutMs());
    }

    private static void errors(String bootstrap, Admin admin) throws Exception {
        try (var producer = Clients.producer(bootstrap, "java-lost-producer", "max.block.ms", 1000)) {
            expect("produce to an unknown topic", () -> producer.send(record("java-nowhere", null, "k", "v")).get());
        }
        try (var producer = Clients.producer(bootstrap, "java-errors-producer", "enable.idempotence", "false")) {
            expect("produce a too large record", () -> producer.send(record(SMALL, 0, "k", "large ".repeat(200))).get());
            send(producer, record(SMALL, 0, "k", "small enough"), "none");
        }
        expect("create a topic that exists", () -> admin.createTopics(List.of(new NewTopic(EVENTS, 1, (short) 1))).all().get());
        expect("delete an unknown topic", () -> admin.deleteTopics(List.of("java-nowhere")).all().get());
        expect("delete an unknown group", () -> admin.deleteConsumerGroups(List.of("java-nobody")).all().get());
        var partition = new TopicPartition(SMALL, 0);
        try (var consumer = Clients.consumer(bootstrap, "java-errors-reader", "auto.offset.reset", "none")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 999);
            expect("fetch an offset out of range", () -> {
                for (int i = 0; i < 200; i++) {
                    consumer.poll(Duration.ofMillis(250));
                }
            });
        }
    }

    /** A reader that is silent for longer than it keeps a connection, and has to connect anew for the second record. */
    private static void reconnect(String bootstrap) throws Exception {
        var partition = List.of(new TopicPartition(SMALL, 0));
        try (var producer = Clients.producer(bootstrap, "java-late-producer");
                var consumer = Clients.consumer(bootstrap, "java-idle", "connections.max.idle.ms", 600, "fetch.max.wait.ms", 200)) {
            consumer.assign(partition);
            consumer.seekToBeginning(partition);
            Clients.consume(consumer, "java-idle", 1);
            consumer.pause(partition);
            long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (closedConnections(consumer) < 2) {
                consumer.poll(Duration.ofMillis(50));
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("no idle connection was closed");
                }
            }
            consumer.resume(partition);
            send(producer, record(SMALL, 0, "k", "after a silence"), "none");
            Clients.consume(consumer, "java-idle", 1);
        }
    }

    /** That to the bootstrap address counts, too. */
    private static double closedConnections(KafkaConsumer<?, ?> consumer) {
        return consumer.metrics().values().stream()
            .filter(one -> one.metricName().name().equals("connection-close-total") && one.metricName().group().equals("consumer-metrics"))
            .mapToDouble(one -> (Double) one.metricValue()).sum();
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, Integer partition, String key, String value) {
        return new ProducerRecord<>(topic, partition, Samples.BASE_TIMESTAMP, key.getBytes(UTF_8), value.getBytes(UTF_8));
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, ProducerRecord<byte[], byte[]> record, String codec) throws Exception {
        Report.produced(record, producer.send(record).get(), codec);
    }

    private static void expect(String operation, Operation run) throws Exception {
        try {
            run.run();
        } catch (Exception error) {
            Report.failed(operation, error);
            return;
        }
        throw new IllegalStateException(operation + " did not fail");
    }

    private static void await(String what, java.util.function.BooleanSupplier done) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited in vain for " + what);
            }
            Thread.sleep(20);
        }
    }

    /** One consumer on a thread of its own: polls and commits until told to leave. */
    private static final class Member extends Thread implements ConsumerRebalanceListener {
        /** Records read and committed. */
        final AtomicInteger handled = new AtomicInteger();
        private final String clientId;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final CountDownLatch leaving = new CountDownLatch(1);
        private final TreeSet<String> owned = new TreeSet<>();
        private volatile int partitions;
        private volatile Exception failure;

        Member(String bootstrap, String clientId) {
            this.clientId = clientId;
            this.consumer = Clients.consumer(bootstrap, clientId, "group.id", GROUP, "group.protocol", "consumer");
        }

        @Override
        public void run() {
            try (consumer) {
                consumer.subscribe(List.of(EVENTS), this);
                while (leaving.getCount() > 0) {
                    var records = consumer.poll(Duration.ofMillis(100));
                    for (var record : records) {
                        Report.consumed(clientId, record);
                    }
                    if (!records.isEmpty()) {
                        consumer.commitSync(records.nextOffsets());
                        Report.line("committed", "client_id", clientId, "group", GROUP,
                            "offsets", records.nextOffsets().entrySet().stream()
                                .collect(Collectors.toMap(entry -> entry.getKey().toString(), entry -> entry.getValue().offset())));
                        handled.addAndGet(records.count());
                    }
                }
            } catch (Exception error) {
                failure = error;
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            changed("assigned", assigned, owned::addAll);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            changed("revoked", revoked, owned::removeAll);
        }

        private void changed(String what, Collection<TopicPartition> concerned, java.util.function.Consumer<List<String>> change) {
            List<String> names = concerned.stream().map(Object::toString).sorted().toList();
            change.accept(names);
            try {
                var metadata = consumer.groupMetadata();
                Report.line(what, "client_id", clientId, "group", GROUP, "member_id", metadata.memberId(),
                    "generation", metadata.generationId(), "partitions", names, "owned", List.copyOf(owned));
            } catch (Exception error) {
                failure = error;
            }
            partitions = owned.size();
        }

        void awaitPartitions(int count) throws Exception {
            await(clientId + " to own " + count, () -> partitions == count || failure != null);
            check();
        }

        void leave() throws Exception {
            leaving.countDown();
            join(TimeUnit.SECONDS.toMillis(20));
            check();
            Report.line("left", "client_id", clientId, "group", GROUP);
        }

        private void check() throws Exception {
            if (failure != null) {
                throw failure;
            }
        }
    }
}
