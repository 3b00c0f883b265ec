package kafkasniff.vectors;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Base64;
import java.util.function.BiConsumer;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.types.RawTaggedField;

/** One vector as a line of JSON, and the key that sorts it. */
final class Line {
    static final ObjectMapper JSON = new ObjectMapper();

    private final ObjectNode line = JSON.createObjectNode();
    private final String sortKey;

    /** Key -1 stands for a layout that has none. */
    Line(String release, String kind, String name, int key, int version, int variant, String variantName) {
        sortKey = String.format("%s %05d %s %05d %d", kind, key, name, version, variant);
        line.put("release", release).put("kind", kind).put("name", name);
        if (key >= 0) {
            line.put("key", key);
        }
        line.put("version", version).put("variant", variantName);
    }

    Line bytes(byte[] bytes) {
        line.put("bytes", Base64.getEncoder().encodeToString(bytes));
        return this;
    }

    Line put(String name, JsonNode value) {
        line.set(name, value);
        return this;
    }

    void write(BiConsumer<String, String> out) throws Exception {
        out.accept(sortKey, JSON.writeValueAsString(line));
    }

    /** Tagged fields that Kafka's classes carry without knowing them. */
    static ArrayNode unknownTags(Message message) {
        ArrayNode array = JSON.createArrayNode();
        for (RawTaggedField field : message.unknownTaggedFields()) {
            array.addObject().put("tag", field.tag()).put("base64", field.data());
        }
        return array;
    }
}
