import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** A transactional producer of 0.11 to 2.4: commit with offsets, abort; then who reads only what is committed. */
final class Transactions {
    /** The samples of {@link Headers} are committed, a further record is aborted. */
    static void run(String bootstrap, String topic, String codec) throws Exception {
        var partition = new TopicPartition(topic, 0);
        try (var producer = Writes.producer(bootstrap, "ledger-producer", "transactional.id", "ledger-writer",
                "compression.type", codec, "linger.ms", 100)) {
            producer.initTransactions();
            producer.beginTransaction();
            Headers.write(producer, topic, codec);
            producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(1, "from the transaction")), "ledger-group");
            producer.commitTransaction();
            Told.line("transaction", "transactional_id", "ledger-writer", "result", "commit",
                "group", "ledger-group", "topic", topic, "partition", 0, "committed_offset", 1);
            producer.beginTransaction();
            Writes.send(producer, codec, List.of(Writes.record(topic, 0, "account", "aborted")));
            producer.abortTransaction();
            Told.line("transaction", "transactional_id", "ledger-writer", "result", "abort");
        }
        try (var consumer = Reads.consumer(bootstrap, "committed-reader", "isolation.level", "read_committed")) {
            consumer.assign(List.of(partition));
            Headers.read(consumer, "committed-reader");
        }
    }
}
