package kafkasniff.vectors;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.Iterator;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;

/**
 * What a message holds, as JSON: what Kafka's converter of its class writes, with the tagged fields that it leaves out as
 * {@code _unknownTags}. The few classes that Kafka makes no converter for are read by their own getters, by the same rules.
 */
final class Values {
    private Values() {
    }

    static JsonNode of(Message message, short version) throws Exception {
        Class<?> converter;
        try {
            converter = Class.forName(message.getClass().getName() + "JsonConverter");
        } catch (ClassNotFoundException none) {
            Schema schema = ((Schema[]) message.getClass().getField("SCHEMAS").get(null))[version];
            return byGetters(message, schema);
        }
        Method write = converter.getMethod("write", message.getClass(), short.class, boolean.class);
        JsonNode json = (JsonNode) write.invoke(null, message, version, false);
        addUnknownTags(json, message);
        return json;
    }

    private static void addUnknownTags(JsonNode node, Object value) throws Exception {
        if (node.isArray()) {
            Iterator<?> items = ((Collection<?>) value).iterator();
            for (JsonNode item : node) {
                addUnknownTags(item, items.next());
            }
        } else if (node instanceof ObjectNode object) {
            for (Map.Entry<String, JsonNode> field : object.properties()) {
                if (field.getValue().isContainerNode()) {
                    addUnknownTags(field.getValue(), value.getClass().getMethod(field.getKey()).invoke(value));
                }
            }
            setUnknownTags(object, (Message) value);
        }
    }

    private static void setUnknownTags(ObjectNode object, Message message) {
        if (!message.unknownTaggedFields().isEmpty()) {
            object.set("_unknownTags", Line.unknownTags(message));
        }
    }

    private static JsonNode byGetters(Message message, Schema schema) throws Exception {
        ObjectNode object = Line.JSON.createObjectNode();
        Message initial = message.getClass().getConstructor().newInstance();
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields tagged) {
                for (Field one : Filler.taggedFields(tagged)) {
                    Method getter = Filler.getter(message.getClass(), Filler.setter(message.getClass(), one.name));
                    if (!Objects.deepEquals(getter.invoke(message), getter.invoke(initial))) {
                        object.set(getter.getName(), value(getter.invoke(message), one));
                    }
                }
            } else {
                Method getter = Filler.getter(message.getClass(), Filler.setter(message.getClass(), field.def.name));
                object.set(getter.getName(), value(getter.invoke(message), field.def));
            }
        }
        setUnknownTags(object, message);
        return object;
    }

    private static JsonNode value(Object value, Field field) throws Exception {
        if (value instanceof Collection<?> items) {
            ArrayNode array = Line.JSON.createArrayNode();
            for (Object item : items) {
                array.add(item instanceof Message inner
                    ? byGetters(inner, (Schema) field.type.arrayElementType().orElseThrow())
                    : Line.JSON.valueToTree(item));
            }
            return array;
        }
        if (value instanceof Message inner) {
            return byGetters(inner, (Schema) field.type);
        }
        return Line.JSON.valueToTree(value instanceof Uuid ? value.toString() : value);
    }
}
