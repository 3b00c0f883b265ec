package kafkasniff.vectors;

import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.BiConsumer;

/**
 * Prints vectors from several releases of Apache Kafka, each loaded apart from the others.
 *
 * <p>Arguments: folder of our classes, folder of the libraries that every release needs, folder with a folder of jars per
 * release, then the releases, the one to prefer first. A line of stdout is one vector, as README.md says; the lines are
 * sorted. A layout comes from the first release that has it.
 */
public final class MakeVectors {
    private MakeVectors() {
    }

    public static void main(String[] arguments) throws Exception {
        Path classes = Path.of(arguments[0]);
        Path libraries = Path.of(arguments[1]);
        Path releases = Path.of(arguments[2]);
        TreeMap<String, String> lines = new TreeMap<>();
        Set<String> done = new HashSet<>();
        List<byte[]> batches = null;
        for (String release : List.of(arguments).subList(3, arguments.length)) {
            List<URL> urls = new ArrayList<>(List.of(classes.toUri().toURL()));
            List<Path> jars = jars(releases.resolve(release));
            for (Path jar : jars) {
                urls.add(jar.toUri().toURL());
            }
            for (Path jar : jars(libraries)) {
                urls.add(jar.toUri().toURL());
            }
            // The platform's loader as parent: nothing of one release is seen by another.
            try (URLClassLoader loader = new URLClassLoader(urls.toArray(URL[]::new), ClassLoader.getPlatformClassLoader())) {
                BiConsumer<String, String> out = (key, line) -> {
                    if (lines.put(key, line) != null) {
                        throw new IllegalStateException("two vectors " + key);
                    }
                };
                if (batches == null) {
                    batches = run(loader, "kafkasniff.vectors.Batches", release, out);
                }
                run(loader, "kafkasniff.vectors.ReleaseVectors", release, out, jars, batches, done);
            }
        }
        PrintStream stdout = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        lines.values().forEach(line -> stdout.print(line + "\n"));
        stdout.flush();
        if (stdout.checkError()) {
            throw new IllegalStateException("stdout is closed");
        }
    }

    private static List<Path> jars(Path folder) throws Exception {
        List<Path> found = new ArrayList<>();
        try (DirectoryStream<Path> stream = Files.newDirectoryStream(folder, "*.jar")) {
            stream.forEach(found::add);
        }
        found.sort(null);
        return found;
    }

    /** Calls the one static method {@code write} of a class within a release's loader. */
    @SuppressWarnings("unchecked")
    private static <T> T run(ClassLoader loader, String name, Object... arguments) throws Exception {
        for (var method : Class.forName(name, true, loader).getMethods()) {
            if (method.getName().equals("write")) {
                return (T) method.invoke(null, arguments);
            }
        }
        throw new NoSuchMethodException(name + ".write");
    }
}
