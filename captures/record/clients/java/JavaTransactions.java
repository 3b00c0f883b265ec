import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** A transactional producer: commit, abort, offsets in a transaction; then a reader of each isolation level. */
final class JavaTransactions {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        var partition = new TopicPartition("ledger", 0);
        try (var admin = Clients.admin(bootstrap, "txn-admin")) {
            Clients.createTopics(admin, 1, "ledger", "orders");
            try (KafkaProducer<byte[], byte[]> producer = Clients.producer(bootstrap, "txn-producer",
                    "transactional.id", "ledger-writer", "compression.type", "zstd", "linger.ms", 50);
                    var consumer = Clients.consumer(bootstrap, "txn-group-member", "group.id", "ledger-group")) {
                producer.initTransactions();
                producer.beginTransaction();
                write(producer, "ledger", "committed-1", "committed-2");
                producer.commitTransaction();
                Report.line("transaction", "transactional_id", "ledger-writer", "result", "commit");

                producer.beginTransaction();
                write(producer, "ledger", "aborted-1", "aborted-2");
                describe(admin, partition);
                producer.abortTransaction();
                Report.line("transaction", "transactional_id", "ledger-writer", "result", "abort");

                consumer.subscribe(List.of("ledger"));
                consumer.poll(Duration.ofSeconds(5));
                producer.beginTransaction();
                write(producer, "orders", "with-offsets");
                producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(4, "from the transaction")),
                    consumer.groupMetadata());
                producer.commitTransaction();
                Report.line("transaction", "transactional_id", "ledger-writer", "result", "commit",
                    "group", "ledger-group", "topic", "ledger", "partition", 0, "committed_offset", 4);
            }
        }
        for (String isolation : List.of("read_committed", "read_uncommitted")) {
            try (var consumer = Clients.consumer(bootstrap, isolation, "isolation.level", isolation)) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                Clients.consume(consumer, isolation, isolation.equals("read_committed") ? 2 : 4);
                Report.line("end_offsets", "client_id", isolation, "offsets",
                    Map.of("ledger-0", consumer.endOffsets(List.of(partition)).get(partition)));
            }
        }
    }

    private static void write(KafkaProducer<byte[], byte[]> producer, String topic, String... values) throws Exception {
        for (String value : values) {
            var record = new ProducerRecord<byte[], byte[]>(topic, 0, Samples.BASE_TIMESTAMP, "account".getBytes(UTF_8), value.getBytes(UTF_8));
            Report.produced(record, producer.send(record).get(), "zstd");
        }
    }

    private static void describe(org.apache.kafka.clients.admin.Admin admin, TopicPartition partition) throws Exception {
        for (var transaction : admin.listTransactions().all().get()) {
            Report.line("listed_transaction", "transactional_id", transaction.transactionalId(),
                "producer_id", transaction.producerId(), "state", transaction.state());
        }
        var described = admin.describeTransactions(List.of("ledger-writer")).description("ledger-writer").get();
        Report.line("described_transaction", "transactional_id", "ledger-writer", "state", described.state(),
            "producer_id", described.producerId(), "producer_epoch", described.producerEpoch(),
            "timeout_ms", described.transactionTimeoutMs(), "partitions", described.topicPartitions());
        for (var producer : admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
            Report.line("described_producer", "topic", "ledger", "partition", 0, "producer_id", producer.producerId(),
                "producer_epoch", producer.producerEpoch(), "last_sequence", producer.lastSequence(),
                "last_timestamp", producer.lastTimestamp());
        }
    }
}
