import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** The records that the Java programs produce: one of each kind that the format tells apart. */
final class Samples {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final long BASE_TIMESTAMP = 1_700_000_000_000L;

    static List<ProducerRecord<byte[], byte[]>> records(String topic) {
        byte[] binary = {(byte) 0xff, 0, (byte) 0xfe, 1, (byte) 0x80};
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        records.add(record(topic, 0, "key-0".getBytes(UTF_8), ("value-0 " + "lorem ipsum dolor ".repeat(9)).getBytes(UTF_8)));
        records.add(record(topic, 1, null, "no key".getBytes(UTF_8),
            new RecordHeader("trace", "a1b2".getBytes(UTF_8)), new RecordHeader("trace", "the same name".getBytes(UTF_8))));
        records.add(record(topic, 2, "tombstone".getBytes(UTF_8), null, new RecordHeader("reason", (byte[]) null)));
        records.add(record(topic, 3, new byte[0], new byte[0], new RecordHeader("empty", new byte[0])));
        records.add(record(topic, 4, binary, binary, new RecordHeader("bin", binary)));
        records.add(record(topic, 5, "schlüssel".getBytes(UTF_8), "größe 數據 ✓".getBytes(UTF_8),
            new RecordHeader("kopf-ü", "wért".getBytes(UTF_8))));
        return records;
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int index, byte[] key, byte[] value, Header... headers) {
        long timestamp = BASE_TIMESTAMP + 1000L * index * index;
        return new ProducerRecord<>(topic, index < 5 ? 0 : 1, timestamp, key, value, List.of(headers));
    }
}
