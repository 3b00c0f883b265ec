import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** A member of a group on a thread of its own: polls and commits until told to leave. */
final class Members extends Thread implements ConsumerRebalanceListener {
    private final String clientId;
    private final String group;
    private final String topic;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final CountDownLatch leaving = new CountDownLatch(1);
    private volatile int assigned;
    private volatile Exception failure;

    Members(String bootstrap, String clientId, String group, String topic, Object... more) {
        this.clientId = clientId;
        this.group = group;
        this.topic = topic;
        var settings = new HashMap<String, Object>(Map.of("group.id", group, "heartbeat.interval.ms", 1000, "session.timeout.ms", 8000));
        for (int i = 0; i < more.length; i += 2) {
            settings.put((String) more[i], more[i + 1]);
        }
        var list = settings.entrySet().stream().flatMap(one -> java.util.stream.Stream.of(one.getKey(), one.getValue()));
        this.consumer = Reads.consumer(bootstrap, clientId, list.toArray());
    }

    /** One member alone, then two, then one again; {@code partitions} is even. */
    static void joinAndLeave(String bootstrap, String group, String topic, int partitions, Runnable whileTwo, Object... more) throws Exception {
        var first = new Members(bootstrap, "member-1", group, topic, more);
        first.start();
        first.awaitPartitions(partitions);
        var second = new Members(bootstrap, "member-2", group, topic, more);
        second.start();
        second.awaitPartitions(partitions / 2);
        first.awaitPartitions(partitions / 2);
        whileTwo.run();
        second.leave();
        first.awaitPartitions(partitions);
        first.leave();
    }

    @Override
    public void run() {
        try (consumer) {
            consumer.subscribe(java.util.List.of(topic), this);
            while (leaving.getCount() > 0) {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(300)) {
                    Told.line("consumed", "client_id", clientId, "topic", record.topic(), "partition", record.partition(),
                        "offset", record.offset(), "key", record.key(), "value", record.value());
                    offsets.put(new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1, "by " + clientId));
                }
                if (!offsets.isEmpty()) {
                    consumer.commitSync(offsets);
                    Told.line("committed", "client_id", clientId, "group", group, "metadata", "by " + clientId, "offsets",
                        offsets.entrySet().stream().collect(Collectors.toMap(one -> one.getKey().toString(), one -> one.getValue().offset())));
                }
            }
        } catch (Exception error) {
            failure = error;
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        changed("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        changed("revoked", partitions);
    }

    private void changed(String what, Collection<TopicPartition> partitions) {
        Told.line(what, "client_id", clientId, "group", group,
            "partitions", new TreeSet<>(partitions.stream().map(Object::toString).toList()));
        assigned = what.equals("assigned") ? consumer.assignment().size() : consumer.assignment().size() - partitions.size();
    }

    void awaitPartitions(int count) throws Exception {
        for (int waited = 0; assigned != count; waited++) {
            if (failure != null) {
                throw failure;
            }
            if (waited > 600) {
                throw new IllegalStateException(clientId + " has " + assigned + " partitions, not " + count);
            }
            Thread.sleep(50);
        }
    }

    void leave() throws Exception {
        leaving.countDown();
        join(TimeUnit.SECONDS.toMillis(20));
        if (failure != null) {
            throw failure;
        }
        Told.line("left", "client_id", clientId, "group", group);
    }
}
