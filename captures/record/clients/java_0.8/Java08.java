import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.api.ConsumerMetadataRequest;
import kafka.api.ConsumerMetadataResponse;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndOffset;
import kafka.network.BlockingChannel;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/** What clients of 0.8.2 do: both producers, the simple consumer and the one that shares its work through ZooKeeper. */
final class Java08 {
    private static final String TOPIC = "letters";
    private static final TopicAndPartition PARTITION = new TopicAndPartition(TOPIC, 0);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String host = bootstrap.split(":")[0];
        int port = Integer.parseInt(bootstrap.split(":")[1]);
        Told.client();
        int total = scalaProducer(bootstrap);
        total += Writes.codecs(bootstrap, TOPIC, "none", "gzip", "snappy", "lz4");
        try (var producer = Writes.producer(bootstrap, "errors-writer")) {
            Told.fails("produce a too large record", () -> producer.send(Writes.record(TOPIC, 0, null, "large ".repeat(400))).get());
        }
        simpleConsumer(host, port, total);
        groups(host, port);
        zookeeperConsumer(arguments[1], total);
    }

    /** The producer of before 0.8.2, with and without acknowledgement. */
    private static int scalaProducer(String bootstrap) {
        int sent = 0;
        for (String acks : List.of("-1", "0")) {
            Properties settings = new Properties();
            settings.putAll(Map.of("metadata.broker.list", bootstrap, "client.id", "scala-writer", "request.required.acks", acks));
            settings.putAll(Map.of("compression.codec", acks.equals("0") ? "gzip" : "none", "message.send.max.retries", "20"));
            var producer = new Producer<byte[], byte[]>(new ProducerConfig(settings));
            byte[] value = ("acks " + acks).getBytes(UTF_8);
            // The key chooses the partition: this topic has one only.
            producer.send(new KeyedMessage<>(TOPIC, "scala".getBytes(UTF_8), value));
            producer.close();
            Told.line("produced", "topic", TOPIC, "partition", 0, "key", "scala", "value", value, "codec", acks.equals("0") ? "gzip" : "none");
            sent++;
        }
        return sent;
    }

    private static void simpleConsumer(String host, int port, int total) throws Exception {
        var consumer = new SimpleConsumer(host, port, 10_000, 65_536, "simple-reader");
        consumer.send(new TopicMetadataRequest(List.of(TOPIC)));
        for (long time : new long[] {kafka.api.OffsetRequest.LatestTime(), kafka.api.OffsetRequest.EarliestTime()}) {
            var answer = consumer.getOffsetsBefore(new OffsetRequest(Map.of(PARTITION, new PartitionOffsetRequestInfo(time, 2)),
                kafka.api.OffsetRequest.CurrentVersion(), "simple-reader"));
            Told.line("old_offsets", "topic", TOPIC, "partition", 0, "offsets", java.util.Arrays.stream(answer.offsets(TOPIC, 0)).boxed().toList());
        }
        var fetched = consumer.fetch(new FetchRequestBuilder().clientId("simple-reader").addFetch(TOPIC, 0, 0, 100_000).build());
        int seen = 0;
        for (MessageAndOffset one : fetched.messageSet(TOPIC, 0)) {
            consumed("simple-reader", one.offset(), bytes(one.message().key()), bytes(one.message().payload()));
            seen++;
        }
        if (seen != total) {
            throw new IllegalStateException(seen + " records came, not " + total);
        }
        Told.refused("fetch beyond the end", consumer.fetch(
            new FetchRequestBuilder().clientId("simple-reader").addFetch(TOPIC, 0, 999, 1000).build()).errorCode(TOPIC, 0));
        Told.refused("fetch from an unknown topic", consumer.fetch(
            new FetchRequestBuilder().clientId("simple-reader").addFetch("no-such-topic", 0, 0, 1000).build()).errorCode("no-such-topic", 0));
        consumer.close();
    }

    /** Commits kept in ZooKeeper (version 0) and by the broker (version 1), and who coordinates. */
    private static void groups(String host, int port) throws Exception {
        var channel = new BlockingChannel(host, port, BlockingChannel.UseDefaultBufferSize(), BlockingChannel.UseDefaultBufferSize(), 5000);
        channel.connect();
        for (int attempt = 0; ; attempt++) {  // the topic of the offsets is made on the first question
            channel.send(new ConsumerMetadataRequest("readers", ConsumerMetadataRequest.CurrentVersion(), attempt, "group-reader"));
            short error = ConsumerMetadataResponse.readFrom(channel.receive().buffer()).errorCode();
            if (error == 0) {
                break;
            }
            if (attempt > 60) {
                throw new IllegalStateException("no coordinator, error " + error);
            }
            Thread.sleep(500);
        }
        channel.disconnect();
        var consumer = new SimpleConsumer(host, port, 10_000, 65_536, "group-reader");
        for (short version : new short[] {0, 1}) {
            String group = version == 0 ? "readers-in-zookeeper" : "readers";
            long offset = 3 + version;
            Map<TopicAndPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
            offsets.put(PARTITION, new OffsetAndMetadata(offset, "by version " + version, OffsetAndMetadata.InvalidTime()));
            consumer.commitOffsets(new OffsetCommitRequest(group, offsets, 7, "group-reader", version));
            Told.line("committed", "group", group, "offsets", Map.of(TOPIC + "-0", offset), "metadata", "by version " + version);
            OffsetMetadataAndError back = consumer.fetchOffsets(new OffsetFetchRequest(group,
                List.of(PARTITION, new TopicAndPartition("no-such-topic", 1)), version, 8, "group-reader")).offsets().get(PARTITION);
            Told.line("offsets", "group", group, "offsets", Map.of(TOPIC + "-0", back.offset()));
        }
        consumer.close();
    }

    private static void zookeeperConsumer(String zookeeper, int total) {
        Properties settings = new Properties();
        settings.putAll(Map.of("zookeeper.connect", zookeeper, "group.id", "sharers", "consumer.id", "sharer", "client.id", "sharer",
            "auto.offset.reset", "smallest", "offsets.storage", "kafka", "dual.commit.enabled", "false", "auto.commit.enable", "false"));
        settings.putAll(Map.of("fetch.wait.max.ms", "2000", "consumer.timeout.ms", "15000"));
        var consumer = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        var records = consumer.createMessageStreams(Map.of(TOPIC, 1)).get(TOPIC).get(0).iterator();
        for (int seen = 0; seen < total; seen++) {
            var record = records.next();
            consumed("sharer", record.offset(), record.key(), record.message());
        }
        consumer.commitOffsets();
        Told.line("committed", "group", "sharers", "offsets", Map.of(TOPIC + "-0", total));
        consumer.shutdown();
    }

    private static void consumed(String clientId, long offset, byte[] key, byte[] value) {
        Told.line("consumed", "client_id", clientId, "topic", TOPIC, "partition", 0, "offset", offset, "key", key, "value", value);
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }
}
