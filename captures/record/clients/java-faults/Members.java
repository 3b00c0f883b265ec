import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java clients of groups and transactions: {@code WORD BOOTSTRAP TOPIC SECONDS NUMBER [KEY=VALUE …]}.
 *
 * <p>reads: a consumer that works NUMBER ms on each record, and commits after each poll. returns: a consumer that seeks
 * back to the record 5 each time it gets it, NUMBER times. transacts: a producer of transactions of NUMBER ms.
 */
final class Members {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", arguments[1]));
        settings.putAll(Map.of("group.id", "readers", "auto.offset.reset", "earliest", "enable.auto.commit", "false"));
        settings.put("enable.metrics.push", "false");
        for (int i = 5; i < arguments.length; i++) {
            String[] parts = arguments[i].split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        long deadline = System.nanoTime() + (long) (Double.parseDouble(arguments[3]) * 1e9);
        int number = Integer.parseInt(arguments[4]);
        switch (arguments[0]) {
            case "reads" -> read(settings, arguments[2], deadline, number);
            case "returns" -> comeBack(settings, arguments[2], deadline, number);
            case "transacts" -> transact(settings, arguments[2], deadline, number);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    private static void read(Map<String, Object> settings, String topic, long deadline, int work) throws Exception {
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (System.nanoTime() < deadline) {
                try {
                    var records = consumer.poll(Duration.ofMillis(500));
                    Thread.sleep((long) work * records.count());
                    if (!records.isEmpty()) {
                        consumer.commitSync();
                    }
                } catch (ApiException error) {
                    System.out.println(error);
                    if (error instanceof org.apache.kafka.common.errors.FencedInstanceIdException) {
                        return;
                    }
                    Thread.sleep(500);
                }
            }
        } catch (KafkaException error) {
            System.out.println(error);
        }
    }

    private static void comeBack(Map<String, Object> settings, String topic, long deadline, int times) throws Exception {
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            int left = times;
            while (System.nanoTime() < deadline) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    if (record.offset() == 5 && left-- > 0) {
                        Thread.sleep(400);
                        consumer.seek(new TopicPartition(topic, record.partition()), 5);
                        break;
                    }
                }
            }
        }
    }

    private static void transact(Map<String, Object> settings, String topic, long deadline, int lasting) throws Exception {
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        try {
            while (System.nanoTime() < deadline) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "made up".getBytes()));
                producer.flush();
                Thread.sleep(lasting);
                producer.commitTransaction();
            }
        } catch (KafkaException error) {
            System.out.println(error);
        }
    }
}
