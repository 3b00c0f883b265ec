import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Producers and consumers of the Java client for the benchmarks' form "mixed".
 *
 * <p>{@code create TOPICS BOOTSTRAP} makes the topics. {@code run TOPICS RATE SECONDS BOOTSTRAP} produces RATE small
 * records a second, batches of larger ones besides, and reads everything in two groups. It ends after SECONDS, or
 * when stdin ends.
 */
public final class MixedLoad {
    private static final int PARTITIONS = 3;
    private static final int TICK_MS = 20;
    private static final int LARGE_EACH = 25;
    private static volatile boolean over;

    public static void main(String[] arguments) throws Exception {
        String[] topics = arguments[1].split(",");
        String bootstrap = arguments[arguments.length - 1];
        if (arguments[0].equals("create")) {
            try (Admin admin = Clients.admin(bootstrap, "java-admin")) {
                Clients.createTopics(admin, PARTITIONS, topics);
            }
            return;
        }
        int rate = Integer.parseInt(arguments[2]);
        long end = System.nanoTime() + Duration.ofSeconds(Long.parseLong(arguments[3])).toNanos();
        Thread watcher = new Thread(MixedLoad::waitForStdin);
        watcher.setDaemon(true);
        watcher.start();
        List<Thread> threads = new ArrayList<>();
        for (String protocol : List.of("classic", "consumer")) {
            for (int member = 0; member < 2; member++) {
                String id = "java-" + protocol + "-" + member;
                threads.add(new Thread(() -> read(bootstrap, id, "java-" + protocol, protocol, List.of(topics))));
            }
        }
        threads.forEach(Thread::start);
        long records = produce(bootstrap, topics, rate, end);
        over = true;
        for (Thread thread : threads) {
            thread.join();
        }
        Report.line("produced", "client", "java", "records", records);
    }

    private static void waitForStdin() {
        try {
            while (System.in.read() >= 0) {
                // What it says does not matter.
            }
        } catch (IOException error) {
            throw new IllegalStateException(error);
        } finally {
            over = true;
        }
    }

    private static long produce(String bootstrap, String[] topics, int rate, long end) throws InterruptedException {
        Random random = new Random(1);
        long begin = System.nanoTime();
        long small = 0;
        long large = 0;
        try (KafkaProducer<byte[], byte[]> quick =
                Clients.producer(bootstrap, "java-small", "linger.ms", "0", "batch.size", "1");
            KafkaProducer<byte[], byte[]> bulk =
                Clients.producer(bootstrap, "java-large", "linger.ms", "50", "compression.type", "lz4")) {
            while (!over && System.nanoTime() < end) {
                long due = (System.nanoTime() - begin) * rate / 1_000_000_000L;
                for (; small < due; small++) {
                    quick.send(record(random, topics[random.nextInt(topics.length)], small, 60 + random.nextInt(80)));
                    if (small % LARGE_EACH == 0) {
                        for (int i = 0; i < LARGE_EACH; i++, large++) {
                            bulk.send(record(random, topics[random.nextInt(topics.length)], large, 200 + random.nextInt(200)));
                        }
                    }
                }
                Thread.sleep(TICK_MS);
            }
        }
        return small + large;
    }

    private static ProducerRecord<byte[], byte[]> record(Random random, String topic, long number, int size) {
        StringBuilder value = new StringBuilder("{\"id\":" + number + ",\"amount\":" + random.nextDouble() + ",\"text\":\"");
        while (value.length() < size) {
            value.append(Long.toString(random.nextLong() >>> 20, 36)).append(' ');
        }
        return new ProducerRecord<>(topic, ("java-" + random.nextInt(100_000)).getBytes(UTF_8), value.append("\"}").toString().getBytes(UTF_8));
    }

    private static void read(String bootstrap, String id, String group, String protocol, List<String> topics) {
        try (KafkaConsumer<byte[], byte[]> consumer = Clients.consumer(
                bootstrap, id, "group.id", group, "group.protocol", protocol, "max.poll.records", "50")) {
            consumer.subscribe(topics);
            while (!over) {
                int seen = 0;
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    seen += record.serializedValueSize() > 0 ? 1 : 0;
                }
                if (seen > 0) {
                    consumer.commitAsync();
                }
            }
        }
    }
}
