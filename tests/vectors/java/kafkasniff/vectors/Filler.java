package kafkasniff.vectors;

import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

/** Fills generated messages by the schemas that their classes carry: exactly the fields of one version. */
final class Filler {
    /** Tags far above those that Kafka uses, with the edges of a varint's lengths; the last one is the highest there is. */
    private static final int[] TAGS = {100, 127, 128, 16_383, 16_384, 2_097_152, Integer.MAX_VALUE - 1};
    /** Draws until a value is another one than the default; more than one is needed for booleans and numbers. */
    private static final int DRAWS = 64;

    private final Random random;
    private final Variant variant;
    private final Scalars scalars;
    private final List<byte[]> batches;
    /** Arrays and structs around the current field that could be null. */
    private int nullablesAround;
    private boolean innerNulls;

    Filler(long seed, Variant variant, List<byte[]> batches) {
        this.random = new Random(seed);
        this.variant = variant;
        this.scalars = new Scalars(random);
        this.batches = batches;
    }

    <T extends Message> T fill(Class<T> type, short version) throws Exception {
        Schema schema = ((Schema[]) type.getField("SCHEMAS").get(null))[version];
        return struct(type, schema, version, 0);
    }

    /** Whether something became null within something that could be null. */
    boolean hasInnerNulls() {
        return innerNulls;
    }

    private <T extends Message> T struct(Class<T> type, Schema schema, short version, int depth) throws Exception {
        T struct = type.getConstructor().newInstance();
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields tagged) {
                for (Field one : taggedFields(tagged)) {
                    field(struct, one, variant.tags(), schema, version, depth);
                }
                unknownTags(struct);
            } else {
                field(struct, field.def, variant.set(), schema, version, depth);
            }
        }
        return struct;
    }

    private void field(Message struct, Field field, double set, Schema schema, short version, int depth) throws Exception {
        Method setter = setter(struct.getClass(), field.name);
        Object initial = getter(struct.getClass(), setter).invoke(struct);
        if (random.nextDouble() >= set) {
            if (isRecords(setter) && initial == null && !canBeNull(struct.getClass(), field, schema, version)) {
                setter.invoke(struct, records(setter));
            }
            return;
        }
        boolean leaf = field.type.arrayElementType().isEmpty() && !(field.type instanceof Schema);
        if (random.nextDouble() < (leaf ? variant.leafNulls() : variant.nulls()) && canBeNull(struct.getClass(), field, schema, version)) {
            setter.invoke(struct, (Object) null);
            return;
        }
        int around = nullablesAround;
        if (variant.inner() && !leaf && canBeNull(struct.getClass(), field, schema, version)) {
            if (around > 0) {
                setter.invoke(struct, (Object) null);
                innerNulls = true;
                return;
            }
            nullablesAround++;
        }
        set(struct, setter, field, initial, set, version, depth);
        nullablesAround = around;
    }

    private void set(Message struct, Method setter, Field field, Object initial, double set, short version, int depth)
            throws Exception {
        for (int draw = 0; draw < DRAWS; draw++) {
            Object value = value(setter, field.type, version, depth);
            setter.invoke(struct, value);
            // Where everything is to be set, a tagged field at its default would not be written at all.
            if (set < 1 || !Objects.deepEquals(value, initial)) {
                return;
            }
        }
        throw new IllegalStateException("no value but the default for " + struct.getClass() + "." + field.name);
    }

    private Object value(Method setter, Type type, short version, int depth) throws Exception {
        Class<?> parameter = setter.getParameterTypes()[0];
        Optional<Type> element = type.arrayElementType();
        if (element.isPresent()) {
            return array(setter, element.get(), version, depth);
        }
        if (isRecords(setter)) {
            return records(setter);
        }
        if (type instanceof Schema schema) {
            return struct(parameter.asSubclass(Message.class), schema, version, depth + 1);
        }
        return scalars.value(parameter, type);
    }

    private Object array(Method setter, Type element, short version, int depth) throws Exception {
        Class<?> parameter = setter.getParameterTypes()[0];
        Class<?> of;
        Collection<Object> values;
        if (parameter == List.class) {
            of = (Class<?>) ((ParameterizedType) setter.getGenericParameterTypes()[0]).getActualTypeArguments()[0];
            values = new ArrayList<>();
        } else {
            // Arrays with keys have a collection of their own: ImplicitLinkedHashMultiCollection of the element's class.
            of = (Class<?>) ((ParameterizedType) parameter.getGenericSuperclass()).getActualTypeArguments()[0];
            @SuppressWarnings("unchecked")
            Collection<Object> own = (Collection<Object>) parameter.getConstructor().newInstance();
            values = own;
        }
        int count = count(element instanceof Schema, depth);
        for (int index = 0; index < count; index++) {
            values.add(element instanceof Schema schema
                ? struct(of.asSubclass(Message.class), schema, version, depth + 1)
                : scalars.value(of, element));
        }
        if (values.size() != count) {
            throw new IllegalStateException(parameter + " refuses elements");
        }
        return values;
    }

    private int count(boolean structs, int depth) {
        if (variant.most() >= 0) {
            return structs ? Math.max(variant.least(), variant.most() - depth) : variant.most();
        }
        if (structs) {
            return random.nextInt(depth < 2 ? 4 : 3);
        }
        return random.nextInt(12) == 0 ? 17 + random.nextInt(120) : random.nextInt(5);
    }

    private void unknownTags(Message struct) {
        if (random.nextDouble() < variant.unknownTags()) {
            int first = random.nextInt(TAGS.length);
            for (int index = first; index < TAGS.length; index += 1 + random.nextInt(TAGS.length)) {
                byte[] value = new byte[random.nextInt(8) == 0 ? 128 + random.nextInt(40) : random.nextInt(4)];
                random.nextBytes(value);
                struct.unknownTaggedFields().add(new RawTaggedField(TAGS[index], value));
            }
        }
    }

    private Object records(Method setter) throws Exception {
        byte[] bytes = batches.get(random.nextInt(batches.size()));
        // The class moved to another package in 4.3, and so did the type of the setter.
        String name = setter.getParameterTypes()[0].getPackageName() + ".MemoryRecords";
        return Class.forName(name).getMethod("readableRecords", ByteBuffer.class).invoke(null, ByteBuffer.wrap(bytes));
    }

    private static boolean isRecords(Method setter) {
        return setter.getParameterTypes()[0].getSimpleName().endsWith("Records");
    }

    /** Whether the class can write null there: tried, since not every release's schema tells it of structs. */
    private boolean canBeNull(Class<? extends Message> type, Field field, Schema schema, short version) throws Exception {
        if (setter(type, field.name).getParameterTypes()[0].isPrimitive()) {
            return false;
        }
        Message trial = type.getConstructor().newInstance();
        for (BoundField other : schema.fields()) {
            if (!(other.def.type instanceof TaggedFields) && isRecords(setter(type, other.def.name))) {
                Method setter = setter(type, other.def.name);
                String name = setter.getParameterTypes()[0].getPackageName() + ".MemoryRecords";
                setter.invoke(trial, Class.forName(name).getField("EMPTY").get(null));
            }
        }
        setter(type, field.name).invoke(trial, (Object) null);
        try {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(trial.size(cache, version));
            trial.write(new ByteBufferAccessor(buffer), cache, version);
            return true;
        } catch (NullPointerException refused) {
            return false;
        }
    }

    /** The fields of a tag section, in ascending order of tags. */
    @SuppressWarnings("unchecked")
    static Collection<Field> taggedFields(TaggedFields section) throws ReflectiveOperationException {
        // Releases before 4.0 have no method for it.
        java.lang.reflect.Field fields = TaggedFields.class.getDeclaredField("fields");
        fields.setAccessible(true);
        return new TreeMap<>((Map<Integer, Field>) fields.get(section)).values();
    }

    static Method setter(Class<?> type, String field) {
        for (Method method : type.getDeclaredMethods()) {
            String name = method.getName();
            if (name.startsWith("set") && method.getParameterCount() == 1 && snakeCase(name.substring(3)).equals(field)) {
                return method;
            }
        }
        throw new IllegalStateException(type + " has no setter for " + field);
    }

    static Method getter(Class<?> type, Method setter) throws NoSuchMethodException {
        String name = setter.getName().substring(3);
        return type.getMethod(Character.toLowerCase(name.charAt(0)) + name.substring(1));
    }

    /** The rule by which Kafka's generator names the fields of its schemas. */
    private static String snakeCase(String name) {
        return name.replaceAll("(?<=[^A-Z])(?=[A-Z])", "_").toLowerCase(java.util.Locale.ROOT);
    }
}
