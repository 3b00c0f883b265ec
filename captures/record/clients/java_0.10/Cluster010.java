import java.util.List;
import java.util.Map;

/** What makes two brokers of 0.10 talk, in three acts; between them the second broker stops and comes back. */
final class Cluster010 {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        switch (arguments[0]) {
            case "both" -> {
                Told.client();
                try (var raw = new RawRequests(bootstrap)) {
                    raw.createTopic("replicated", Map.of(0, List.of(2, 1)), false);
                    raw.createTopic("passing", Map.of(0, List.of(1, 2)), false);
                }
                produce(bootstrap, "first-producer", "with both brokers");
            }
            case "alone" -> produce(bootstrap, "lone-producer", "without broker 2");
            case "again" -> {
                Thread.sleep(2000);  // until broker 2 is in sync and the leader of what it prefers
                produce(bootstrap, "late-producer", "with broker 2 again");
                Reads.all(bootstrap, "last-reader", "replicated", 3);
                try (var raw = new RawRequests(bootstrap)) {
                    raw.deleteTopic("passing");
                }
                Thread.sleep(1000);  // until the controller has told all brokers
            }
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void produce(String bootstrap, String clientId, String value) throws Exception {
        try (var producer = Writes.producer(bootstrap, clientId, "acks", "all", "retries", 5)) {
            Writes.send(producer, "none", List.of(Writes.record("replicated", 0, null, value)));
        }
    }
}
