import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.plain.PlainAuthenticateCallback;

/**
 * Checks passwords as a directory (LDAP) may: the file of the system property {@code directory} says how.
 * {@code slow MS} takes that long for each, {@code every N} refuses each Nth, anything else accepts all.
 */
public final class Directory implements AuthenticateCallbackHandler {
    private static final AtomicInteger asked = new AtomicInteger();

    @Override
    public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) {}

    @Override
    public void handle(Callback[] callbacks) {
        String[] behaviour = behaviour();
        boolean accepted = true;
        if (behaviour[0].equals("slow")) {
            try {
                Thread.sleep(Long.parseLong(behaviour[1]));
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        } else if (behaviour[0].equals("every")) {
            accepted = asked.incrementAndGet() % Integer.parseInt(behaviour[1]) != 0;
        }
        for (Callback one : callbacks) {
            if (one instanceof PlainAuthenticateCallback password) {
                password.authenticated(accepted);
            }
        }
    }

    private static String[] behaviour() {
        try {
            return Files.readString(Path.of(System.getProperty("directory"))).strip().split(" ");
        } catch (java.io.IOException missing) {
            return new String[] {""};
        }
    }

    @Override
    public void close() {}
}
