import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Every codec, keys, null values, headers with an idempotent producer; then everything read back. */
final class JavaCodecs {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        List<TopicPartition> partitions = new ArrayList<>();
        int total = 0;
        try (var admin = Clients.admin(bootstrap, "java-admin")) {
            for (String codec : Samples.CODECS) {
                Clients.createTopics(admin, 2, "codec-" + codec);
                partitions.add(new TopicPartition("codec-" + codec, 0));
                partitions.add(new TopicPartition("codec-" + codec, 1));
            }
        }
        for (String codec : Samples.CODECS) {
            try (KafkaProducer<byte[], byte[]> producer =
                    Clients.producer(bootstrap, "java-" + codec, "compression.type", codec, "linger.ms", 200)) {
                List<ProducerRecord<byte[], byte[]>> records = Samples.records("codec-" + codec);
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (ProducerRecord<byte[], byte[]> record : records) {
                    sent.add(producer.send(record));
                }
                for (int i = 0; i < records.size(); i++) {
                    Report.produced(records.get(i), sent.get(i).get(), codec);
                    total++;
                }
            }
        }
        try (var consumer = Clients.consumer(bootstrap, "java-reader")) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Clients.consume(consumer, "java-reader", total);
        }
    }
}
