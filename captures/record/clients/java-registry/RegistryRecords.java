import com.google.protobuf.DescriptorProtos.DescriptorProto;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import io.apicurio.registry.serde.SerdeConfig;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serializer;

/** Apicurio's serializers: ids of eight and of four bytes, and in headers. */
final class RegistryRecords {
    private static final String ORDER = "{\"type\": \"record\", \"name\": \"Order\", \"namespace\": \"shop\", \"fields\": ["
        + "{\"name\": \"id\", \"type\": \"long\"}, {\"name\": \"item\", \"type\": [\"null\", \"string\"]}]}";
    private static final List<String> TOPICS = List.of("avro-long", "avro-int", "avro-headers", "protobuf-long",
        "protobuf-headers");

    private static String registry;
    private static KafkaProducer<byte[], byte[]> producer;
    private static int sent;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        registry = arguments[2];
        Report.client();
        List<TopicPartition> partitions = new ArrayList<>();
        try (var admin = Clients.admin(bootstrap, "java-admin")) {
            for (String topic : TOPICS) {
                Clients.createTopics(admin, 1, topic);
                partitions.add(new TopicPartition(topic, 0));
            }
        }
        producer = Clients.producer(bootstrap, "java-registry");
        avro("avro-long", Map.of(SerdeConfig.ENABLE_HEADERS, false));
        avro("avro-int", Map.of(SerdeConfig.ENABLE_HEADERS, false, SerdeConfig.ENABLE_CONFLUENT_ID_HANDLER, true));
        avro("avro-headers", Map.of(SerdeConfig.ENABLE_HEADERS, true));
        protobuf("protobuf-long", Map.of(SerdeConfig.ENABLE_HEADERS, false));
        protobuf("protobuf-headers", Map.of(SerdeConfig.ENABLE_HEADERS, true));
        producer.close();
        try (var consumer = Clients.consumer(bootstrap, "java-reader")) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Clients.consume(consumer, "java-reader", sent);
        }
    }

    private static Map<String, Object> options(Map<String, Object> more) {
        Map<String, Object> options = new HashMap<>(more);
        options.put(SerdeConfig.REGISTRY_URL, registry);
        options.put(SerdeConfig.AUTO_REGISTER_ARTIFACT, true);
        // The ids of Confluent's API.
        options.put(SerdeConfig.USE_ID, "contentId");
        return options;
    }

    private static void avro(String topic, Map<String, Object> more) throws Exception {
        GenericData.Record order = new GenericData.Record(new Schema.Parser().parse(ORDER));
        try (var values = new AvroKafkaSerializer<GenericData.Record>()) {
            values.configure(options(more), false);
            for (int number = 1; number <= 2; number++) {
                String item = number == 1 ? "lamp" : null;
                order.put("id", (long) number);
                order.put("item", item);
                Map<String, Object> means = new HashMap<>();
                means.put("id", number);
                means.put("item", item);
                send(topic, values, order, means);
            }
        }
    }

    private static void protobuf(String topic, Map<String, Object> more) throws Exception {
        var text = FieldDescriptorProto.newBuilder().setName("name").setNumber(1)
            .setType(FieldDescriptorProto.Type.TYPE_STRING).setLabel(FieldDescriptorProto.Label.LABEL_OPTIONAL);
        var file = FileDescriptorProto.newBuilder().setName("shop.proto").setPackage("shop").setSyntax("proto3")
            .addMessageType(DescriptorProto.newBuilder().setName("First").addField(text))
            .addMessageType(DescriptorProto.newBuilder().setName("Item").addField(text));
        Descriptor item = FileDescriptor.buildFrom(file.build(), new FileDescriptor[0]).findMessageTypeByName("Item");
        try (var values = new ProtobufKafkaSerializer<DynamicMessage>()) {
            values.configure(options(more), false);
            var message = DynamicMessage.newBuilder(item).setField(item.findFieldByName("name"), "lamp").build();
            send(topic, values, message, Map.of("name", "lamp"));
        }
    }

    private static <T> void send(String topic, Serializer<T> values, T value, Object means) throws Exception {
        RecordHeaders headers = new RecordHeaders();
        byte[] data = values.serialize(topic, headers, value);
        var record = new ProducerRecord<byte[], byte[]>(topic, 0, 1_700_000_000_000L + sent++, null, data, headers);
        Report.produced(record, producer.send(record).get(), "none");
        Report.line("means", "topic", topic, "timestamp", record.timestamp(), "value", means);
    }
}
