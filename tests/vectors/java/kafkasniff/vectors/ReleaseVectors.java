package kafkasniff.vectors;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.BiConsumer;
import java.util.jar.JarFile;
import java.util.regex.Pattern;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** The vectors of one release: of every generated message class in its jars, every version, every variant. */
public final class ReleaseVectors {
    /** Folders of jars in which Kafka's generator puts its classes. */
    private static final Pattern GENERATED = Pattern.compile("(?:.*/)?(?:common/message|common/metadata|generated)/([A-Za-z]+)\\.class");

    private final String release;
    private final List<byte[]> batches;
    private final BiConsumer<String, String> out;

    private ReleaseVectors(String release, BiConsumer<String, String> out, List<byte[]> batches) {
        this.release = release;
        this.out = out;
        this.batches = batches;
    }

    /** Writes what is not yet in {@code done}, which gets a word per layout. */
    public static void write(String release, BiConsumer<String, String> out, List<Path> jars, List<byte[]> batches,
            Set<String> done) throws Exception {
        ReleaseVectors vectors = new ReleaseVectors(release, out, batches);
        if (done.add("errors")) {
            vectors.errors();
        }
        vectors.apis();
        for (ApiMessageType type : ApiMessageType.values()) {
            for (boolean request : new boolean[] {true, false}) {
                ApiMessage message;
                try {
                    message = request ? type.newRequest() : type.newResponse();
                } catch (UnsupportedVersionException removed) {
                    continue; // the release keeps the key of an API all of whose versions it has dropped
                }
                for (short version = message.lowestSupportedVersion(); version <= message.highestSupportedVersion(); version++) {
                    if (done.add((request ? "request " : "response ") + type.apiKey() + " " + version)) {
                        vectors.message(type, request, message.getClass(), version);
                    }
                }
            }
        }
        for (var entry : others(jars).entrySet()) {
            // Before 4.1 a key's version was the id of its record type: the same bytes, another number.
            if (entry.getKey().endsWith("Key") && !done.add("key " + entry.getKey())) {
                continue;
            }
            Message message = entry.getValue().getConstructor().newInstance();
            for (short version = message.lowestSupportedVersion(); version <= message.highestSupportedVersion(); version++) {
                if (done.add("data " + entry.getKey() + " " + version)) {
                    vectors.data(entry.getKey(), entry.getValue(), version);
                }
            }
        }
    }

    /** Generated classes that are neither requests nor responses, by the name of their schema. */
    private static TreeMap<String, Class<? extends Message>> others(List<Path> jars) throws Exception {
        TreeMap<String, Class<? extends Message>> found = new TreeMap<>();
        for (Path path : jars) {
            try (JarFile jar = new JarFile(path.toFile())) {
                for (var entry : (Iterable<java.util.jar.JarEntry>) jar.stream()::iterator) {
                    var match = GENERATED.matcher(entry.getName());
                    if (!match.matches() || match.group(1).endsWith("RequestData") || match.group(1).endsWith("ResponseData")) {
                        continue;
                    }
                    Class<?> type = Class.forName(entry.getName().replace(".class", "").replace('/', '.'));
                    if (Message.class.isAssignableFrom(type)) {
                        // Kafka's generator adds "Data" to the names of requests, responses and headers.
                        found.put(match.group(1).replaceFirst("HeaderData$", "Header"), type.asSubclass(Message.class));
                    }
                }
            }
        }
        return found;
    }

    private void message(ApiMessageType type, boolean request, Class<? extends Message> messageClass, short version)
            throws Exception {
        short headerVersion = request ? type.requestHeaderVersion(version) : type.responseHeaderVersion(version);
        String kind = request ? "request" : "response";
        for (int index = 0; index < Variant.ALL.size(); index++) {
            Variant variant = Variant.ALL.get(index);
            Filler filler = filler(kind + type.apiKey(), version, variant);
            Message header;
            if (request) {
                header = filler.fill(RequestHeaderData.class, headerVersion);
                ((RequestHeaderData) header).setRequestApiKey(type.apiKey()).setRequestApiVersion(version);
            } else {
                header = filler.fill(ResponseHeaderData.class, headerVersion);
            }
            Message body = filler.fill(messageClass, version);
            if (variant.inner() && !filler.hasInnerNulls()) {
                continue;
            }
            new Line(release, kind, type.name, type.apiKey(), version, index, variant.name())
                .bytes(bytes(header, headerVersion, body, version))
                .put("header", Values.of(header, headerVersion)).put("json", Values.of(body, version)).write(out);
        }
    }

    private void data(String name, Class<? extends Message> messageClass, short version) throws Exception {
        for (int index = 0; index < Variant.ALL.size(); index++) {
            Variant variant = Variant.ALL.get(index);
            Filler filler = filler(name, version, variant);
            Message body = filler.fill(messageClass, version);
            if (variant.inner() && !filler.hasInnerNulls()) {
                continue;
            }
            Line line = new Line(release, "data", name, -1, version, index, variant.name()).bytes(bytes(null, version, body, version));
            line.put("json", Values.of(body, version)).write(out);
        }
    }

    /** The error codes of the release, with their names and whether a client should try again. */
    private void errors() throws Exception {
        ObjectNode json = Line.JSON.createObjectNode();
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            json.putObject(String.valueOf(error.code())).put("name", error.name()).put("retriable", retriable);
        }
        new Line(release, "errors", "Errors", -1, 0, 0, "all").bytes(new byte[0]).put("json", json).write(out);
    }

    /** Which versions of each API the release accepts, which of them needs an opt-in, and on which listeners it serves the API. */
    private void apis() throws Exception {
        ObjectNode json = Line.JSON.createObjectNode();
        for (ApiMessageType type : ApiMessageType.values()) {
            short lowest;
            short highest;
            try {
                lowest = type.newRequest().lowestSupportedVersion();
                highest = type.newRequest().highestSupportedVersion();
            } catch (UnsupportedVersionException removed) {
                continue;
            }
            if (lowest > highest) {
                continue; // likewise removed, and the class is still there
            }
            ObjectNode one = json.putObject(String.valueOf(type.apiKey())).put("name", type.name);
            one.put("lowest", lowest).put("highest", highest);
            if (highestStable(type, highest) < highest) {
                one.put("unstable", highest);
            }
            type.listeners().stream().map(listener -> listener.name().toLowerCase(Locale.ROOT)).sorted()
                .forEach(one.withArray("/listeners")::add);
        }
        new Line(release, "apis", release, -1, 0, 0, "all").bytes(new byte[0]).put("json", json).write(out);
    }

    private static short highestStable(ApiMessageType type, short highest) throws ReflectiveOperationException {
        try {
            return (short) ApiMessageType.class.getMethod("highestSupportedVersion", boolean.class).invoke(type, false);
        } catch (NoSuchMethodException older) {
            return highest; // before 3.5 every version of a release was stable
        }
    }

    /** The seed is the place alone, so that vectors stay when others come. */
    private Filler filler(String place, short version, Variant variant) {
        return new Filler((place + " " + version + " " + variant.name()).hashCode(), variant, batches);
    }

    /** Header and body as Kafka puts them on the wire. */
    private static byte[] bytes(Message header, short headerVersion, Message body, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        int size = body.size(cache, version) + (header == null ? 0 : header.size(cache, headerVersion));
        ByteBuffer buffer = ByteBuffer.allocate(size);
        ByteBufferAccessor writable = new ByteBufferAccessor(buffer);
        if (header != null) {
            header.write(writable, cache, headerVersion);
        }
        body.write(writable, cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(body.getClass() + " version " + version + " is shorter than it says");
        }
        return buffer.array();
    }
}
