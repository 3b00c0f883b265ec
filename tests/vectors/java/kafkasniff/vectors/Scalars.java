package kafkasniff.vectors;

import java.nio.ByteBuffer;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.types.Type;

/** Values of fields that are no structs: ordinary ones, and those at the edges of their type and of its encoding. */
final class Scalars {
    private static final String[] TEXTS = {"", "a", "orders", "größe", "日本語", "🦑🧵", "client.id", "\u0000\u001b[31m", "\"\\\n", "null"};
    private static final double[] DOUBLES = {1.5, -1024.25, 0.1, 1e300, Double.MIN_VALUE, Double.MAX_VALUE,
        Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY};
    /** Lengths around which the varint of a compact length grows by a byte. */
    private static final int[] LENGTHS = {126, 127, 128, 300};

    private final Random random;

    Scalars(Random random) {
        this.random = random;
    }

    /** A value for a parameter of that class; the type in the schema tells unsigned numbers. */
    Object value(Class<?> parameter, Type type) {
        if (parameter == boolean.class || parameter == Boolean.class) {
            return random.nextBoolean();
        } else if (parameter == byte.class || parameter == Byte.class) {
            return (byte) integer(Byte.MIN_VALUE, Byte.MAX_VALUE);
        } else if (parameter == short.class || parameter == Short.class) {
            return (short) integer(Short.MIN_VALUE, Short.MAX_VALUE);
        } else if (parameter == int.class || parameter == Integer.class) {
            return (int) (type == Type.INT32 ? integer(Integer.MIN_VALUE, Integer.MAX_VALUE) : integer(0, 0xffff));
        } else if (parameter == long.class || parameter == Long.class) {
            return type == Type.INT64 ? integer(Long.MIN_VALUE, Long.MAX_VALUE) : integer(0, 0xffff_ffffL);
        } else if (parameter == double.class || parameter == Double.class) {
            return DOUBLES[random.nextInt(DOUBLES.length)];
        } else if (parameter == String.class) {
            return text();
        } else if (parameter == byte[].class) {
            return bytes();
        } else if (parameter == ByteBuffer.class) {
            return ByteBuffer.wrap(bytes());
        } else if (parameter == Uuid.class) {
            return random.nextInt(5) == 0 ? Uuid.ZERO_UUID : new Uuid(random.nextLong(), random.nextLong());
        }
        throw new IllegalStateException("no values of " + parameter);
    }

    private long integer(long low, long high) {
        switch (random.nextInt(8)) {
            case 0:
                return low;
            case 1:
                return high;
            case 2:
                return low < 0 ? -1 : 1;
            case 3:
                return low < 0 ? low + random.nextInt(100) : high - random.nextInt(100);
            case 4:
                return random.nextLong() & high | (low < 0 && random.nextBoolean() ? low : 0);
            default:
                return random.nextInt(100);
        }
    }

    private String text() {
        if (random.nextInt(24) == 0) {
            return String.valueOf((char) ('a' + random.nextInt(26))).repeat(LENGTHS[random.nextInt(LENGTHS.length)]);
        }
        return random.nextInt(3) == 0 ? TEXTS[random.nextInt(TEXTS.length)] : "name-" + random.nextInt(1000);
    }

    private byte[] bytes() {
        byte[] value = new byte[random.nextInt(16) == 0 ? LENGTHS[random.nextInt(LENGTHS.length)] : random.nextInt(7)];
        random.nextBytes(value);
        return value;
    }
}
