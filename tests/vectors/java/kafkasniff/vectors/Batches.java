package kafkasniff.vectors;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.function.BiConsumer;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;

/** The few fixed batches that stand in every field of type records; of the newest release, since their format is one. */
public final class Batches {
    private static final long TIME_MS = 1_700_000_000_123L;

    private Batches() {
    }

    /** Writes a vector per set of batches, and returns their bytes; no two have the same size. */
    public static List<byte[]> write(String release, BiConsumer<String, String> out) throws Exception {
        SimpleRecord plain = new SimpleRecord(TIME_MS, bytes("key"), bytes("value"));
        SimpleRecord nulls = new SimpleRecord(TIME_MS + 5, (byte[]) null, (byte[]) null);
        SimpleRecord headers = new SimpleRecord(TIME_MS - 7, new byte[0], bytes("größe"),
            new Header[] {new RecordHeader("trace", new byte[] {0, (byte) 0xff}), new RecordHeader("none", (byte[]) null)});
        List<MemoryRecords> all = List.of(
            MemoryRecords.withRecords(Compression.NONE, plain),
            MemoryRecords.withRecords(1L << 40, Compression.NONE, 7, plain, nulls, headers),
            MemoryRecords.withTransactionalRecords(Compression.NONE, 4711, (short) 3, 12, headers, plain),
            MemoryRecords.EMPTY);
        for (int index = 0; index < all.size(); index++) {
            MemoryRecords records = all.get(index);
            new Line(release, "records", "MemoryRecords", -1, 2, index, "batches-" + index)
                .bytes(bytes(records.buffer())).put("json", told(records)).write(out);
        }
        return all.stream().map(records -> bytes(records.buffer())).toList();
    }

    /** What Kafka's classes read from the batches. */
    private static JsonNode told(MemoryRecords records) {
        ObjectNode result = Line.JSON.createObjectNode();
        ArrayNode list = result.putArray("batches");
        for (RecordBatch batch : records.batches()) {
            ObjectNode one = list.addObject();
            one.put("baseOffset", batch.baseOffset()).put("batchLength", batch.sizeInBytes() - 12);
            one.put("partitionLeaderEpoch", batch.partitionLeaderEpoch()).put("magic", batch.magic());
            one.put("crc", batch.checksum()).put("crcOk", batch.isValid());
            one.put("compression", batch.compressionType().name).put("timestampType", batch.timestampType().name);
            one.put("transactional", batch.isTransactional()).put("control", batch.isControlBatch());
            one.put("lastOffsetDelta", batch.lastOffset() - batch.baseOffset());
            one.put("baseTimestamp", ((DefaultRecordBatch) batch).baseTimestamp()).put("maxTimestamp", batch.maxTimestamp());
            one.put("producerId", batch.producerId()).put("producerEpoch", batch.producerEpoch());
            one.put("baseSequence", batch.baseSequence()).put("recordCount", batch.countOrNull());
            ArrayNode items = one.putArray("records");
            for (Record record : batch) {
                ObjectNode item = items.addObject().put("offset", record.offset()).put("timestamp", record.timestamp());
                item.put("key", record.hasKey() ? bytes(record.key()) : null);
                item.put("value", record.hasValue() ? bytes(record.value()) : null);
                ArrayNode pairs = item.putArray("headers");
                for (Header header : record.headers()) {
                    pairs.addObject().put("key", header.key()).put("value", header.value());
                }
            }
        }
        return result.put("truncatedBytes", records.sizeInBytes() - records.validBytes());
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }
}
