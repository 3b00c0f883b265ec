import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;

/** What a client program says it did: one JSON object per line on stdout. */
final class Report {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Writes one line; {@code fields} are names and values in turn. */
    static synchronized void line(String kind, Object... fields) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", kind);
        for (int i = 0; i < fields.length; i += 2) {
            line.put((String) fields[i], plain(fields[i + 1]));
        }
        System.out.println(JSON.writeValueAsString(line));
        System.out.flush();
    }

    /** The first line of every program. */
    static void client() throws Exception {
        Properties properties = new Properties();
        properties.load(Report.class.getResourceAsStream("/kafka/kafka-version.properties"));
        line("client", "name", "Java client", "version", properties.getProperty("version"));
    }

    static void produced(ProducerRecord<byte[], byte[]> record, RecordMetadata metadata, String codec) throws Exception {
        line("produced", "topic", metadata.topic(), "partition", metadata.partition(), "offset", metadata.offset(),
            "timestamp", metadata.timestamp(), "key", record.key(), "value", record.value(),
            "headers", headers(record.headers()), "codec", codec, "error", null);
    }

    static void consumed(String client, ConsumerRecord<byte[], byte[]> record) throws Exception {
        line("consumed", "client_id", client, "topic", record.topic(), "partition", record.partition(),
            "offset", record.offset(), "timestamp", record.timestamp(), "timestamp_type", record.timestampType().name,
            "key", record.key(), "value", record.value(), "headers", headers(record.headers()));
    }

    /** An operation that failed as it was meant to. */
    static void failed(String operation, Throwable error) throws Exception {
        Throwable cause = error instanceof ExecutionException && error.getCause() != null ? error.getCause() : error;
        Errors code = Errors.forException(cause);
        // The client's own exceptions (a timeout of its own, a reset policy that is missing) are not codes of the broker.
        boolean own = code == Errors.UNKNOWN_SERVER_ERROR || code == Errors.REQUEST_TIMED_OUT;
        line("failed", "operation", operation, "error_code", own ? null : code.code(), "error", own ? null : code.name(),
            "exception", cause.getClass().getSimpleName(), "message", cause.getMessage());
    }

    /** An object of JSON whose values are strings. */
    static Map<String, String> read(String json) {
        try {
            return JSON.readValue(json, new TypeReference<Map<String, String>>() {});
        } catch (JsonProcessingException notJson) {
            throw new IllegalArgumentException(notJson);
        }
    }

    private static List<Object> headers(Iterable<Header> headers) {
        List<Object> list = new ArrayList<>();
        for (Header header : headers) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(plain(header.value()));
            list.add(pair);
        }
        return list;
    }

    private static Object plain(Object value) {
        if (value instanceof byte[] bytes) {
            try {
                return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
            } catch (CharacterCodingException notText) {
                return Map.of("base64", Base64.getEncoder().encodeToString(bytes));
            }
        }
        if (value == null || value instanceof Number || value instanceof Boolean || value instanceof Map
                || value instanceof List) {
            return value;
        }
        return String.valueOf(value);
    }
}
