import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;
import org.apache.kafka.coordinator.transaction.TransactionCoordinatorRecordSerde;

/** Records of the coordinators' topics as the coordinators' own classes read them when they start. */
final class InternalRecords {
    private record Reader(CoordinatorRecordSerde serde, Function<ApiMessage, JsonNode> key, BiFunction<ApiMessage, Short, JsonNode> value) { }

    private static final Map<String, Reader> READERS = Map.of(
        "__consumer_offsets", new Reader(new GroupCoordinatorRecordSerde(),
            org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters::writeRecordKeyAsJson,
            org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters::writeRecordValueAsJson),
        "__transaction_state", new Reader(new TransactionCoordinatorRecordSerde(),
            org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordJsonConverters::writeRecordKeyAsJson,
            org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordJsonConverters::writeRecordValueAsJson),
        "__share_group_state", new Reader(new ShareCoordinatorRecordSerde(),
            org.apache.kafka.coordinator.share.generated.CoordinatorRecordJsonConverters::writeRecordKeyAsJson,
            org.apache.kafka.coordinator.share.generated.CoordinatorRecordJsonConverters::writeRecordValueAsJson));

    static final List<String> TOPICS = READERS.keySet().stream().sorted().toList();

    /** Reports a record: the key's type and class, the value's class and version, null where it deletes, and both as Kafka's JSON. */
    static void report(ConsumerRecord<byte[], byte[]> record) throws Exception {
        Reader reader = READERS.get(record.topic());
        var read = reader.serde().deserialize(ByteBuffer.wrap(record.key()), record.value() == null ? null : ByteBuffer.wrap(record.value()));
        var value = read.value();
        Report.line("internal_record", "topic", record.topic(), "partition", record.partition(), "offset", record.offset(),
            "type", read.key().apiKey(), "key_class", read.key().getClass().getSimpleName(),
            "value_class", value == null ? null : value.message().getClass().getSimpleName(),
            "version", value == null ? null : value.version(),
            "key", plain(reader.key().apply(read.key())),
            "value", value == null ? null : plain(reader.value().apply(value.message(), value.version())));
    }

    /** The same with bytes told apart from text. */
    private static Object plain(JsonNode node) {
        if (node.isBinary()) {
            return Map.of("base64", node.asText());
        }
        if (node.isArray()) {
            List<Object> items = new ArrayList<>();
            node.forEach(item -> items.add(plain(item)));
            return items;
        }
        if (node.isObject()) {
            Map<String, Object> fields = new LinkedHashMap<>();
            node.properties().forEach(field -> fields.put(field.getKey(), plain(field.getValue())));
            return fields;
        }
        return node.isNull() ? null : node.isBoolean() ? (Object) node.booleanValue() : node.isNumber() ? node.numberValue() : node.asText();
    }
}
