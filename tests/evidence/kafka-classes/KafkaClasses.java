import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.protocol.types.RawTaggedField;

/**
 * Reads messages with Apache Kafka's own classes and prints what they hold, as JSON.
 *
 * <p>A line of stdin is {@code request|response KEY VERSION HEX}, the message without its length prefix; it becomes a line of
 * stdout with {@code api} (its name), {@code header}, {@code header_tags}, {@code header_size}, {@code body} (what Kafka's JsonConverter writes; bytes
 * as {@code {"base64"}}, records as batches), {@code version} (which the body was read as), {@code remaining} (bytes after the
 * body) and {@code errors} (names of the error codes). A body that Kafka cannot read to its end has {@code failure} and
 * {@code trace}: the values that its reader took from the bytes until then, in order. {@code {"unsupported": true}} where this
 * release of Kafka does not know the version.
 *
 * <p>Compiles against Kafka 3.9 and 4.x: the record classes changed their package in between, so none is named here.
 */
public final class KafkaClasses {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final short API_VERSIONS = 18;
    private static final short SNAPSHOT_HEADER = 3;
    /** By type of control record; {@code org.apache.kafka.common.record.ControlRecordType}. */
    private static final List<String> CONTROL_VALUES = List.of("EndTxnMarker", "EndTxnMarker", "LeaderChangeMessage",
        "SnapshotHeaderRecord", "SnapshotFooterRecord", "KRaftVersionRecord", "VotersRecord");

    private final Map<Short, String> errors = new TreeMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            byte[] message = HexFormat.of().parseHex(words.length > 3 ? words[3] : "");
            short key = Short.parseShort(words[1]);
            short version = Short.parseShort(words[2]);
            out.println(JSON.writeValueAsString(new KafkaClasses().read(words[0].equals("request"), key, version, message)));
        }
        out.flush();
    }

    private ObjectNode read(boolean request, short key, short version, byte[] message) throws Exception {
        ObjectNode result = JSON.createObjectNode();
        ApiMessageType type;
        try {
            type = ApiMessageType.fromApiKey(key);
        } catch (UnsupportedVersionException unknown) {
            return result.put("unsupported", true);
        }
        // The versions beyond are known when the last one is not yet stable.
        if (version < type.lowestSupportedVersion() || version > type.highestSupportedVersion(true)) {
            return result.put("unsupported", true);
        }
        result.put("api", type.name);
        ByteBuffer buffer = ByteBuffer.wrap(message);
        Readable readable = new ByteBufferAccessor(buffer);
        short headerVersion = request ? type.requestHeaderVersion(version) : type.responseHeaderVersion(version);
        Message header = request ? new RequestHeaderData(readable, headerVersion) : new ResponseHeaderData(readable, headerVersion);
        result.set("header", written(header, headerVersion));
        result.set("header_tags", tags(header));
        result.put("header_size", buffer.position());
        ByteBuffer rest = buffer.slice();
        try {
            body(result, request ? type.newRequest() : type.newResponse(), version, rest.duplicate());
        } catch (RuntimeException failure) {
            if (!request && key == API_VERSIONS && version != 0 && !cut(failure, rest)) {
                // As ApiVersionsResponse.parse: a broker that does not know the version answers in version 0.
                body(result, type.newResponse(), (short) 0, rest.duplicate());
            } else {
                result.put("failure", failure.toString());
                Trace trace = new Trace(new ByteBufferAccessor(rest.duplicate()));
                try {
                    (request ? type.newRequest() : type.newResponse()).read(trace, version);
                    throw new IllegalStateException("the second reading did not fail", failure);
                } catch (RuntimeException again) {
                    if (again instanceof IllegalStateException) {
                        throw again;
                    }
                }
                result.set("trace", trace.values);
            }
        }
        ObjectNode names = result.putObject("errors");
        errors.forEach((code, name) -> names.put(String.valueOf(code), name));
        return result;
    }

    /** Whether the message just ends too early, so that no other version would do. */
    private static boolean cut(RuntimeException failure, ByteBuffer rest) {
        return rest.remaining() >= 2 && rest.getShort(rest.position()) != Errors.UNSUPPORTED_VERSION.code();
    }

    private void body(ObjectNode result, ApiMessage message, short version, ByteBuffer bytes) throws Exception {
        message.read(new ByteBufferAccessor(bytes), version);
        result.set("body", written(message, version));
        result.put("version", version);
        result.put("remaining", bytes.remaining());
    }

    /** What Kafka's JsonConverter of the message's class writes, with what it leaves out: records and unknown tags. */
    private JsonNode written(Message message, short version) throws Exception {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        Object json = converter.getMethod("write", message.getClass(), short.class, boolean.class)
            .invoke(null, message, version, false);
        return enriched((JsonNode) json, message);
    }

    private JsonNode enriched(JsonNode node, Object value) throws Exception {
        if (node.isBinary()) {
            return JSON.createObjectNode().put("base64", node.asText());
        }
        if (node.isArray()) {
            Iterator<?> items = ((Collection<?>) value).iterator();
            ArrayNode array = JSON.createArrayNode();
            for (JsonNode item : node) {
                array.add(enriched(item, items.next()));
            }
            return array;
        }
        if (!node.isObject()) {
            return node;
        }
        ObjectNode object = JSON.createObjectNode();
        for (Map.Entry<String, JsonNode> field : node.properties()) {
            String name = field.getKey();
            if (name.endsWith("SizeInBytes")) {
                String records = name.substring(0, name.length() - "SizeInBytes".length());
                object.set(records, records(value.getClass().getMethod(records).invoke(value)));
                continue;
            }
            if (name.toLowerCase().endsWith("errorcode") && field.getValue().shortValue() != 0) {
                short code = field.getValue().shortValue();
                errors.put(code, Errors.forCode(code).name());
            }
            object.set(name, enriched(field.getValue(), value.getClass().getMethod(name).invoke(value)));
        }
        ArrayNode tags = tags((Message) value);
        if (!tags.isEmpty()) {
            object.set("_unknownTags", tags);
        }
        return object;
    }

    private static ArrayNode tags(Message message) {
        ArrayNode array = JSON.createArrayNode();
        for (RawTaggedField field : message.unknownTaggedFields()) {
            array.addObject().put("tag", field.tag()).put("base64", field.data());
        }
        return array;
    }

    /** What a field of type records holds: an object of Kafka's MemoryRecords, or null. */
    private JsonNode records(Object value) throws Exception {
        if (value == null) {
            return JSON.nullNode();
        }
        ByteBuffer bytes = ((ByteBuffer) value.getClass().getMethod("buffer").invoke(value)).duplicate();
        int size = bytes.remaining();
        var records = new ByteBufferAccessor(bytes).readRecords(size);
        ObjectNode result = JSON.createObjectNode();
        ArrayNode batches = result.putArray("batches");
        for (var batch : records.batches()) {
            boolean legacy = batch.magic() < 2;
            ObjectNode one = batches.addObject();
            one.put("baseOffset", batch.baseOffset()).put("batchLength", batch.sizeInBytes() - 12);
            one.put("partitionLeaderEpoch", batch.partitionLeaderEpoch()).put("magic", batch.magic());
            one.put("crc", batch.checksum()).put("crcOk", batch.isValid()).put("compression", batch.compressionType().name);
            one.put("timestampType", batch.timestampType().name).put("transactional", batch.isTransactional());
            one.put("control", batch.isControlBatch()).put("lastOffsetDelta", batch.lastOffset() - batch.baseOffset());
            if (!legacy) {
                one.put("baseTimestamp", (Long) batch.getClass().getMethod("baseTimestamp").invoke(batch));
            }
            one.put("maxTimestamp", batch.maxTimestamp()).put("producerId", batch.producerId());
            one.put("producerEpoch", batch.producerEpoch()).put("baseSequence", batch.baseSequence());
            one.put("recordCount", batch.countOrNull());
            ArrayNode list = one.putArray("records");
            for (var record : batch) {
                ObjectNode item = list.addObject();
                item.put("offset", record.offset()).put("timestamp", record.timestamp());
                item.set("key", bytes(record.key()));
                item.set("value", bytes(record.value()));
                ArrayNode headers = item.putArray("headers");
                for (var header : record.headers()) {
                    ObjectNode pair = headers.addObject().put("key", header.key());
                    pair.set("value", bytes(header.value() == null ? null : ByteBuffer.wrap(header.value())));
                }
                if (batch.isControlBatch()) {
                    item.set("_control", control(record.key(), record.value()));
                }
            }
        }
        return result.put("truncatedBytes", size - records.validBytes());
    }

    private ObjectNode control(ByteBuffer key, ByteBuffer value) throws Exception {
        ObjectNode result = JSON.createObjectNode();
        result.put("version", key.getShort(key.position()));
        short type = key.getShort(key.position() + 2);
        result.put("type", type).put("name", controlRecordType().getMethod("fromTypeId", short.class).invoke(null, type).toString());
        Class<?> schema = Class.forName("org.apache.kafka.common.message." + CONTROL_VALUES.get(type));
        ByteBuffer fields = value.duplicate();
        // EndTransactionMarker has the version in front, the others have it as their first field.
        short version = type <= 1 ? fields.getShort() : fields.getShort(fields.position());
        ApiMessage message = (ApiMessage) schema.getConstructor().newInstance();
        message.read(new ByteBufferAccessor(fields), version);
        if (type == SNAPSHOT_HEADER && fields.hasRemaining()) {
            // Up to 2.8 this was the type of leader changes (ControlRecordType there), without a version in front.
            message = new LeaderChangeMessage();
            ByteBuffer versioned = ByteBuffer.allocate(2 + value.remaining()).put(2, value, value.position(), value.remaining());
            message.read(new ByteBufferAccessor(versioned), (short) 0);
            ObjectNode early = (ObjectNode) written(message, (short) 0);
            early.remove("version");
            result.put("name", "LEADER_CHANGE").set("value", early);
            return result;
        }
        ObjectNode shown = JSON.createObjectNode();
        shown.put("version", version);
        shown.setAll((ObjectNode) written(message, version));
        result.set("value", shown);
        return result;
    }

    private static Class<?> controlRecordType() throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.kafka.common.record.internal.ControlRecordType");
        } catch (ClassNotFoundException before42) {
            return Class.forName("org.apache.kafka.common.record.ControlRecordType");
        }
    }

    private static JsonNode bytes(ByteBuffer value) {
        if (value == null) {
            return JSON.nullNode();
        }
        byte[] copy = new byte[value.remaining()];
        value.duplicate().get(copy);
        return JSON.createObjectNode().put("base64", copy);
    }

    /** Writes down what a message class reads; lengths and counts are among it. */
    private static final class Trace implements Readable {
        final ArrayNode values = JSON.createArrayNode();
        private final Readable bytes;

        Trace(Readable bytes) {
            this.bytes = bytes;
        }

        @Override
        public byte readByte() {
            byte value = bytes.readByte();
            values.add(value);
            return value;
        }

        @Override
        public short readShort() {
            short value = bytes.readShort();
            values.add(value);
            return value;
        }

        @Override
        public int readInt() {
            int value = bytes.readInt();
            values.add(value);
            return value;
        }

        @Override
        public long readLong() {
            long value = bytes.readLong();
            values.add(value);
            return value;
        }

        @Override
        public double readDouble() {
            double value = bytes.readDouble();
            values.add(value);
            return value;
        }

        @Override
        public byte[] readArray(int length) {
            byte[] value = bytes.readArray(length);
            values.addObject().put("base64", value);
            return value;
        }

        @Override
        public ByteBuffer readByteBuffer(int length) {
            ByteBuffer value = bytes.readByteBuffer(length);
            values.add(KafkaClasses.bytes(value));
            return value;
        }

        @Override
        public int readUnsignedVarint() {
            int value = bytes.readUnsignedVarint();
            values.add(value);
            return value;
        }

        @Override
        public int readVarint() {
            int value = bytes.readVarint();
            values.add(value);
            return value;
        }

        @Override
        public long readVarlong() {
            long value = bytes.readVarlong();
            values.add(value);
            return value;
        }

        @Override
        public String readString(int length) {
            String value = bytes.readString(length);
            values.add(value);
            return value;
        }

        @Override
        public Uuid readUuid() {
            Uuid value = bytes.readUuid();
            values.add(value.toString());
            return value;
        }

        /** Asked for before an array is made: of a message that was cut, its first elements are wanted all the same. */
        @Override
        public int remaining() {
            return Integer.MAX_VALUE;
        }

        /** Of 4.x alone, and no message class asks for it. */
        public Readable slice() {
            throw new UnsupportedOperationException("slice");
        }
    }
}
