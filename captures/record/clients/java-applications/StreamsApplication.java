import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Words are counted by a Kafka Streams application: a repartition and a changelog topic. A second instance joins and leaves.
 * Arguments: the group protocol (classic, streams), the processing guarantee, the broker.
 */
final class StreamsApplication {
    private static final String GROUP = "word-count";
    private static final int WORDS = 11;  // in all lines; each makes a new count

    public static void main(String[] arguments) throws Exception {
        String protocol = arguments[0];
        String guarantee = arguments[1];
        String bootstrap = arguments[2];
        Report.client();
        Path states = Files.createTempDirectory(Path.of("."), "states-");
        try (Admin admin = Clients.admin(bootstrap, "streams-admin");
                var producer = Clients.producer(bootstrap, "line-producer", "enable.idempotence", "false", "acks", "1")) {
            Clients.createTopics(admin, 2, "lines", "word-counts");
            produce(producer, 0, "the quick brown fox");
            produce(producer, 1, "jumps over the lazy dog");
            var first = instance(bootstrap, "1", protocol, guarantee, states);
            first.start();
            await(first, 4);
            tell(first, "instance-1");
            var second = instance(bootstrap, "2", protocol, guarantee, states);
            second.start();
            await(second, 2);
            await(first, 2);
            tell(first, "instance-1");
            tell(second, "instance-2");
            produce(producer, 0, "the end");
            try (var reader = Clients.consumer(bootstrap, "count-reader", "isolation.level", "read_committed")) {
                reader.assign(Set.of(new TopicPartition("word-counts", 0), new TopicPartition("word-counts", 1)));
                Clients.consume(reader, "count-reader", WORDS);
            }
            leave(second, "instance-2");
            await(first, 4);
            tell(first, "instance-1");
            leave(first, "instance-1");
        }
    }

    private static void produce(Producer<byte[], byte[]> producer, int partition, String line) throws Exception {
        var record = new ProducerRecord<byte[], byte[]>("lines", partition, Samples.BASE_TIMESTAMP, null, line.getBytes(UTF_8));
        Report.produced(record, producer.send(record).get(), "none");
    }

    private static Topology topology() {
        var builder = new StreamsBuilder();
        builder.stream("lines", Consumed.with(Serdes.ByteArray(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
            .groupBy((key, word) -> word, Grouped.with("by-word", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()).withCachingDisabled())
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("word-counts", Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private static KafkaStreams instance(String bootstrap, String name, String protocol, String guarantee, Path states) {
        var settings = new Properties();
        settings.putAll(Map.of("application.id", GROUP, "bootstrap.servers", bootstrap, "client.id", "instance-" + name,
            "group.protocol", protocol, "processing.guarantee", guarantee, "state.dir", states.resolve(name).toString(),
            "commit.interval.ms", 500, "replication.factor", 1));
        settings.putAll(Map.of("main.consumer.auto.offset.reset", "earliest", "consumer.fetch.max.wait.ms", 5000,
            "application.server", "instance-" + name + ".example:80"));
        if (protocol.equals("classic")) {
            settings.putAll(Map.of("num.standby.replicas", 1, "main.consumer.heartbeat.interval.ms", 1500));
        }
        return new KafkaStreams(topology(), settings);
    }

    /** Waits until an instance runs so many active tasks. */
    private static void await(KafkaStreams instance, int tasks) throws Exception {
        for (int waited = 0; active(instance).size() != tasks || instance.state() != KafkaStreams.State.RUNNING; waited++) {
            if (waited > 800) {
                throw new IllegalStateException("an instance is " + instance.state() + " with " + active(instance).keySet());
            }
            Thread.sleep(50);
        }
    }

    private static Map<String, List<String>> active(KafkaStreams instance) {
        return tasks(instance, ThreadMetadata::activeTasks);
    }

    private static Map<String, List<String>> tasks(KafkaStreams instance, Function<ThreadMetadata, Set<TaskMetadata>> kind) {
        var tasks = new TreeMap<String, List<String>>();
        for (var thread : instance.metadataForLocalThreads()) {
            for (var task : kind.apply(thread)) {
                tasks.put(task.taskId().toString(),
                    task.topicPartitions().stream().map(Object::toString).sorted().collect(Collectors.toList()));
            }
        }
        return tasks;
    }

    private static void tell(KafkaStreams instance, String name) throws Exception {
        Report.line("tasks", "client_id", consumer(instance), "group", GROUP, "instance", name, "active", active(instance),
            "standby", tasks(instance, ThreadMetadata::standbyTasks));
    }

    private static String consumer(KafkaStreams instance) {
        return instance.metadataForLocalThreads().iterator().next().consumerClientId();
    }

    private static void leave(KafkaStreams instance, String name) throws Exception {
        String consumer = consumer(instance);
        instance.close(CloseOptions.timeout(Duration.ofSeconds(20))
            .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
        Report.line("left", "client_id", consumer, "group", GROUP, "instance", name);
    }
}
