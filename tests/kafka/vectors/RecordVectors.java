// Writes records.json: batches built by Apache Kafka's own classes, with what its own classes read out of them.
// How to run it: see README.md.

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

public class RecordVectors {
    static final long TIME = 1_700_000_000_000L;
    static final List<String> cases = new ArrayList<>();

    static String hex(byte[] bytes) {
        if (bytes == null)
            return "null";
        boolean run = bytes.length > 64;
        for (int i = 1; run && i < bytes.length; i++)
            run = bytes[i] == bytes[0];
        if (run)
            return String.format("{\"byte\": \"%02x\", \"times\": %d}", bytes[0], bytes.length);
        StringBuilder out = new StringBuilder("\"");
        for (byte b : bytes)
            out.append(String.format("%02x", b));
        return out.append('"').toString();
    }

    static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null)
            return null;
        byte[] out = new byte[buffer.remaining()];
        buffer.duplicate().get(out);
        return out;
    }

    static String record(Record record, byte magic, boolean control) {
        StringBuilder out = new StringBuilder("{\"offset\": " + record.offset());
        out.append(", \"timestamp\": ").append(magic == 0 ? "null" : record.timestamp());
        out.append(", \"key\": ").append(hex(bytes(record.key())));
        out.append(", \"value\": ").append(hex(bytes(record.value())));
        if (magic == 2) {
            List<String> headers = new ArrayList<>();
            for (Header header : record.headers())
                headers.add("{\"key\": \"" + header.key() + "\", \"value\": " + hex(header.value()) + "}");
            out.append(", \"headers\": [").append(String.join(", ", headers)).append("]");
        }
        if (control) {
            ControlRecordType type = ControlRecordType.parse(record.key());
            out.append(", \"control\": \"").append(type).append("\"");
            if (type == ControlRecordType.COMMIT || type == ControlRecordType.ABORT)
                out.append(", \"coordinator_epoch\": ").append(EndTransactionMarker.deserialize(record).coordinatorEpoch());
        }
        return out.append("}").toString();
    }

    static String batch(RecordBatch batch) {
        List<String> records = new ArrayList<>();
        for (Record record : batch)
            records.add(record(record, batch.magic(), batch.isControlBatch()));
        StringBuilder out = new StringBuilder("{\"magic\": " + batch.magic());
        out.append(", \"size\": ").append(batch.sizeInBytes());
        out.append(", \"valid\": ").append(batch.isValid());
        out.append(", \"compression\": \"").append(batch.compressionType().name).append("\"");
        out.append(", \"last_offset\": ").append(batch.lastOffset());
        if (batch.magic() > 0) {
            out.append(", \"timestamp_type\": \"").append(batch.timestampType().name).append("\"");
            out.append(", \"max_timestamp\": ").append(batch.maxTimestamp());
        }
        if (batch.magic() > 1) {
            out.append(", \"base_offset\": ").append(batch.baseOffset());
            out.append(", \"crc\": ").append(batch.checksum());
            out.append(", \"partition_leader_epoch\": ").append(batch.partitionLeaderEpoch());
            out.append(", \"producer_id\": ").append(batch.producerId());
            out.append(", \"producer_epoch\": ").append(batch.producerEpoch());
            out.append(", \"base_sequence\": ").append(batch.baseSequence());
            out.append(", \"transactional\": ").append(batch.isTransactional());
            out.append(", \"control\": ").append(batch.isControlBatch());
            out.append(", \"record_count\": ").append(batch.countOrNull());
            out.append(", \"delete_horizon\": ").append(
                batch.deleteHorizonMs().isPresent() ? "" + batch.deleteHorizonMs().getAsLong() : "null");
        }
        return out.append(",\n   \"records\": [\n    ").append(String.join(",\n    ", records)).append("]}").toString();
    }

    static void add(String name, ByteBuffer buffer) {
        List<String> batches = new ArrayList<>();
        MemoryRecords records = MemoryRecords.readableRecords(buffer.duplicate());
        int size = 0;
        for (RecordBatch batch : records.batches()) {
            batches.add(batch(batch));
            size += batch.sizeInBytes();
        }
        byte[] raw = bytes(buffer);
        StringBuilder data = new StringBuilder();
        for (byte b : raw)
            data.append(String.format("%02x", b));
        cases.add("{\"name\": \"" + name + "\", \"truncated_bytes\": " + (raw.length - size) + ",\n  \"data\": \"" + data
            + "\",\n  \"batches\": [\n   " + String.join(",\n   ", batches) + "]}");
    }

    static MemoryRecordsBuilder builder(int magic, CompressionType codec, TimestampType type, long baseOffset) {
        return MemoryRecords.builder(ByteBuffer.allocate(1 << 18), (byte) magic, Compression.of(codec).build(), type,
            baseOffset, TIME + 5_000);
    }

    static void fill(MemoryRecordsBuilder builder, int magic) {
        long time = magic == 0 ? RecordBatch.NO_TIMESTAMP : TIME;
        Header[] none = new Header[0];
        Header[] some = {new RecordHeader("trace", new byte[] {1, 2, 3}), new RecordHeader("", new byte[0]),
            new RecordHeader("null", (byte[]) null), new RecordHeader("trace", "again".getBytes())};
        builder.append(time, "key".getBytes(), "value".getBytes(), magic == 2 ? some : none);
        builder.append(magic == 0 ? time : time - 7_000, null, new byte[0], none);
        builder.append(magic == 0 ? time : time + 90_000, new byte[0], null, none);
        byte[] run = new byte[70_000];
        java.util.Arrays.fill(run, (byte) 'a');
        if (builder.compression().type() != CompressionType.NONE)
            builder.append(magic == 0 ? time : time + 3, "run".getBytes(), run, none);
    }

    static ByteBuffer simple(int magic, CompressionType codec, TimestampType type, long baseOffset) {
        MemoryRecordsBuilder builder = builder(magic, codec, type, baseOffset);
        fill(builder, magic);
        return builder.build().buffer();
    }

    static ByteBuffer full(CompressionType codec, boolean transactional, long deleteHorizon) {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(4096), (byte) 2,
            Compression.of(codec).build(), TimestampType.CREATE_TIME, 42L, RecordBatch.NO_TIMESTAMP, 4_000_000_007L,
            (short) 3, 2_147_483_646, transactional, false, 17, 4096, deleteHorizon);
        builder.append(TIME, "k".getBytes(), "v".getBytes());
        builder.append(TIME + 1, "k".getBytes(), null);
        return builder.build().buffer();
    }

    static ByteBuffer join(ByteBuffer... buffers) {
        ByteBuffer out = ByteBuffer.allocate(1 << 20);
        for (ByteBuffer buffer : buffers)
            out.put(buffer.duplicate());
        out.flip();
        return out;
    }

    static ByteBuffer cut(ByteBuffer buffer, int bytes) {
        ByteBuffer out = buffer.duplicate();
        out.limit(out.limit() - bytes);
        return out.slice();
    }

    public static void main(String[] args) {
        for (int magic = 0; magic <= 2; magic++)
            for (CompressionType codec : CompressionType.values())
                if (magic == 2 || codec != CompressionType.ZSTD)
                    add("magic " + magic + " " + codec.name,
                        simple(magic, codec, TimestampType.CREATE_TIME, magic == 0 ? 0 : 1_000));
        for (int magic = 1; magic <= 2; magic++)
            for (CompressionType codec : new CompressionType[] {CompressionType.NONE, CompressionType.GZIP})
                add("log append time, magic " + magic + " " + codec.name,
                    simple(magic, codec, TimestampType.LOG_APPEND_TIME, 5_000_000_000L));
        for (int magic = 0; magic <= 1; magic++) {
            MemoryRecordsBuilder holes = builder(magic, CompressionType.GZIP, TimestampType.CREATE_TIME, 100);
            long time = magic == 0 ? RecordBatch.NO_TIMESTAMP : TIME;
            for (long offset : new long[] {100, 103, 104, 250})
                holes.appendWithOffset(offset, time, null, ("at " + offset).getBytes());
            add("compacted wrapper, magic " + magic, holes.build().buffer());
        }
        ByteBuffer zero = simple(1, CompressionType.GZIP, TimestampType.CREATE_TIME, 0);
        zero.putLong(0, 0L);
        add("wrapper of magic 1 with offset 0, as producers may leave it", zero);
        add("transactional", full(CompressionType.NONE, true, RecordBatch.NO_TIMESTAMP));
        add("idempotent zstd", full(CompressionType.ZSTD, false, RecordBatch.NO_TIMESTAMP));
        add("delete horizon", full(CompressionType.LZ4, false, TIME - 50_000));
        add("several batches, mixed magic", join(
            simple(0, CompressionType.NONE, TimestampType.CREATE_TIME, 0),
            simple(1, CompressionType.SNAPPY, TimestampType.CREATE_TIME, 3),
            simple(2, CompressionType.LZ4, TimestampType.CREATE_TIME, 7),
            simple(1, CompressionType.NONE, TimestampType.CREATE_TIME, 11)));
        add("partial batch at the end", join(simple(2, CompressionType.NONE, TimestampType.CREATE_TIME, 0),
            cut(simple(2, CompressionType.NONE, TimestampType.CREATE_TIME, 3), 10)));
        for (ControlRecordType type : new ControlRecordType[] {ControlRecordType.COMMIT, ControlRecordType.ABORT})
            add("marker " + type, MemoryRecords.withEndTransactionMarker(77L, TIME, 4, 1234L, (short) 9,
                new EndTransactionMarker(type, 55)).buffer());
        Uuid directory = new Uuid(0x0123456789abcdefL, 0x1122334455667788L);
        add("leader change", MemoryRecords.withLeaderChangeMessage(12L, TIME, 6, ByteBuffer.allocate(512),
            new LeaderChangeMessage().setVersion((short) 0).setLeaderId(2)
                .setVoters(List.of(new LeaderChangeMessage.Voter().setVoterId(1), new LeaderChangeMessage.Voter().setVoterId(2)))
                .setGrantingVoters(List.of(new LeaderChangeMessage.Voter().setVoterId(2)))).buffer());
        add("snapshot header", MemoryRecords.withSnapshotHeaderRecord(0L, TIME, 6, ByteBuffer.allocate(512),
            new SnapshotHeaderRecord().setVersion((short) 0).setLastContainedLogTimestamp(TIME - 1)).buffer());
        add("snapshot footer", MemoryRecords.withSnapshotFooterRecord(9L, TIME, 6, ByteBuffer.allocate(512),
            new SnapshotFooterRecord().setVersion((short) 0)).buffer());
        add("kraft version", MemoryRecords.withKRaftVersionRecord(1L, TIME, 6, ByteBuffer.allocate(512),
            new KRaftVersionRecord().setVersion((short) 0).setKRaftVersion((short) 1)).buffer());
        VotersRecord.EndpointCollection endpoints = new VotersRecord.EndpointCollection();
        endpoints.add(new VotersRecord.Endpoint().setName("CONTROLLER").setHost("localhost").setPort(9093));
        add("voters", MemoryRecords.withVotersRecord(2L, TIME, 6, ByteBuffer.allocate(512),
            new VotersRecord().setVersion((short) 0).setVoters(List.of(new VotersRecord.Voter().setVoterId(1)
                .setVoterDirectoryId(directory).setEndpoints(endpoints)
                .setKRaftVersionFeature(new VotersRecord.KRaftVersionFeature().setMinSupportedVersion((short) 0)
                    .setMaxSupportedVersion((short) 1))))).buffer());
        System.out.println("[\n" + String.join(",\n", cases) + "\n]");
    }
}
