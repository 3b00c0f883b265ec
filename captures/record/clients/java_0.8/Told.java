import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collection;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.protocol.Errors;

/** What a client program of any release says it did: one JSON object per line on stdout. Needs no library but Kafka's. */
final class Told {
    /** An operation that is to fail. */
    interface Operation {
        void run() throws Exception;
    }

    /** Writes one line; {@code fields} are names and values in turn. */
    static synchronized void line(String kind, Object... fields) {
        StringBuilder text = new StringBuilder("{\"kind\":").append(json(kind));
        for (int i = 0; i < fields.length; i += 2) {
            text.append(',').append(json(fields[i])).append(':').append(json(fields[i + 1]));
        }
        System.out.println(text.append('}'));
        System.out.flush();
    }

    /** The first line of every program; the oldest release knows its version by its jar's name only. */
    static void client() {
        String jar = KafkaProducer.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        line("client", "name", "Java client", "version", jar.replaceAll(".*kafka-clients-|\\.jar$", ""));
    }

    static void produced(ProducerRecord<byte[], byte[]> record, RecordMetadata metadata, String codec) {
        line("produced", "topic", metadata.topic(), "partition", metadata.partition(), "offset", metadata.offset(),
            "key", record.key(), "value", record.value(), "codec", codec);
    }

    /** An operation that the broker refused with this code. */
    static void refused(String operation, short code) {
        line("failed", "operation", operation, "error_code", code, "error", Errors.forCode(code).name());
    }

    /** Runs what is to fail, and tells the broker's code behind the exception. */
    static void fails(String operation, Operation run) throws Exception {
        try {
            run.run();
        } catch (Exception error) {
            Throwable cause = error;
            while (Errors.forException(cause).code() == -1 && cause.getCause() != null) {
                cause = cause.getCause();
            }
            refused(operation, Errors.forException(cause).code());
            return;
        }
        throw new IllegalStateException(operation + " did not fail");
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof byte[] bytes) {
            try {
                return json(StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString());
            } catch (CharacterCodingException notText) {
                return "{\"base64\":" + json(Base64.getEncoder().encodeToString(bytes)) + "}";
            }
        }
        StringBuilder text = new StringBuilder();
        if (value instanceof Map<?, ?> map) {
            map.forEach((name, item) -> text.append(text.isEmpty() ? "" : ",").append(json(String.valueOf(name))).append(':').append(json(item)));
            return "{" + text + "}";
        }
        if (value instanceof Collection<?> items) {
            items.forEach(item -> text.append(text.isEmpty() ? "" : ",").append(json(item)));
            return "[" + text + "]";
        }
        for (char one : String.valueOf(value).toCharArray()) {
            text.append(one == '"' || one == '\\' ? "\\" + one : one < ' ' ? String.format("\\u%04x", (int) one) : String.valueOf(one));
        }
        return "\"" + text + "\"";
    }
}
