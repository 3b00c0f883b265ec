import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.connect.cli.ConnectDistributed;
import org.apache.kafka.connect.errors.NotFoundException;
import org.apache.kafka.connect.runtime.Connect;
import org.apache.kafka.connect.runtime.Herder.Created;
import org.apache.kafka.connect.runtime.distributed.DistributedHerder;
import org.apache.kafka.connect.runtime.distributed.RebalanceNeededException;
import org.apache.kafka.connect.runtime.rest.entities.ConnectorInfo;
import org.apache.kafka.connect.runtime.rest.entities.ConnectorStateInfo;
import org.apache.kafka.connect.util.FutureCallback;

/**
 * Kafka Connect: a worker has a file source and a file sink, a second one takes its share; the sink is deleted.
 * Arguments: Connect's protocol (eager, compatible, sessioned), the broker.
 */
final class ConnectWorkers {
    private static final String SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector";
    private static final String SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector";
    private static final List<String> CONNECTORS = List.of("line-source", "line-sink");

    public static void main(String[] arguments) throws Exception {
        String protocol = arguments[0];
        String bootstrap = arguments[1];
        Report.client();
        try (Admin admin = Clients.admin(bootstrap, "connect-admin")) {
            Clients.createTopics(admin, 2, "file-lines");
        }
        Path input = Path.of("input.txt");
        Path output = Path.of("output.txt");
        Files.writeString(input, "first line\nsecond line\n");
        var first = worker(bootstrap, 1, protocol);
        configure(first, "line-source", Map.of("connector.class", SOURCE, "tasks.max", "1", "topic", "file-lines",
            "file", input.toString()));
        configure(first, "line-sink", Map.of("connector.class", SINK, "tasks.max", "1", "topics", "file-lines",
            "file", output.toString(), "consumer.override.fetch.max.wait.ms", "5000"));
        await(first, "line-source", ConnectWorkers::running);
        await(first, "line-sink", ConnectWorkers::running);
        tell(first);

        var second = worker(bootstrap, 2, protocol);
        await(first, "line-source", status -> workers(first) == 2 && running(status));
        await(first, "line-sink", ConnectWorkers::running);
        tell(first);
        Files.writeString(input, "third line\n", StandardOpenOption.APPEND);
        for (int waited = 0; !Files.readString(output).contains("third line"); waited++) {
            check(waited < 200, "the sink wrote no third line");
            Thread.sleep(100);
        }
        Report.line("sink_wrote", "connector", "line-sink", "topic", "file-lines",
            "values", Files.readString(output).lines().sorted().toList());
        delete(first, "line-sink");
        stop(second, 2);
        stop(first, 1);
    }

    private static Connect<DistributedHerder> worker(String bootstrap, int number, String protocol) throws Exception {
        Map<String, String> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", "worker-" + number);
        settings.put("group.id", "connect-cluster");
        settings.put("connect.protocol", protocol);
        settings.put("listeners", "http://127.0.0.1:0");  // workers hand requests on to the leader there
        settings.put("rest.advertised.host.name", "127.0.0.1");
        settings.put("plugin.discovery", "service_load");
        settings.put("scheduled.rebalance.max.delay.ms", "500");
        settings.put("heartbeat.interval.ms", "1500");
        settings.put("fetch.max.wait.ms", "5000");
        settings.put("offset.flush.interval.ms", "2000");
        for (String kind : List.of("config", "offset", "status")) {
            settings.put(kind + ".storage.topic", "connect-" + kind);
            settings.put(kind + ".storage.replication.factor", "1");
            if (!kind.equals("config")) {
                settings.put(kind + ".storage.partitions", "1");
            }
        }
        for (String side : List.of("key", "value")) {
            settings.put(side + ".converter", "org.apache.kafka.connect.storage.StringConverter");
        }
        var worker = new ConnectDistributed("unused").startConnect(settings);
        for (int waited = 0; !worker.herder().isReady(); waited++) {
            check(waited < 300, "a worker did not start");
            Thread.sleep(100);
        }
        Report.line("worker", "client_id", "worker-" + number, "group", "connect-cluster", "protocol", protocol,
            "url", worker.rest().advertisedUrl().toString());
        return worker;
    }

    private static void configure(Connect<DistributedHerder> worker, String name, Map<String, String> settings) throws Exception {
        Map<String, String> all = new HashMap<>(settings);
        all.put("name", name);
        for (int attempt = 0; ; attempt++) {
            var done = new FutureCallback<Created<ConnectorInfo>>();
            worker.herder().putConnectorConfig(name, all, true, done);
            try {
                done.get(30, TimeUnit.SECONDS);
                break;
            } catch (ExecutionException error) {
                check(error.getCause() instanceof RebalanceNeededException && attempt < 50, "not configured: " + error.getCause());
                Thread.sleep(100);
            }
        }
        Report.line("configured", "connector", name, "settings", all);
    }

    private static void delete(Connect<DistributedHerder> worker, String name) throws Exception {
        var done = new FutureCallback<Created<ConnectorInfo>>();
        worker.herder().deleteConnectorConfig(name, done);
        done.get(30, TimeUnit.SECONDS);
        Report.line("deleted_connector", "connector", name);
    }

    private static boolean running(ConnectorStateInfo status) {
        return status.connector().state().equals("RUNNING") && status.tasks().size() == 1
            && status.tasks().stream().allMatch(task -> task.state().equals("RUNNING"));
    }

    /** How many workers run something. */
    private static long workers(Connect<DistributedHerder> worker) {
        List<String> names = new ArrayList<>();
        for (String connector : CONNECTORS) {
            var status = worker.herder().connectorStatus(connector);
            names.add(status.connector().workerId());
            status.tasks().forEach(task -> names.add(task.workerId()));
        }
        return names.stream().distinct().count();
    }

    private static void await(Connect<DistributedHerder> worker, String connector, Predicate<ConnectorStateInfo> wanted)
            throws Exception {
        for (int waited = 0; ; waited++) {
            try {
                if (wanted.test(worker.herder().connectorStatus(connector))) {
                    return;
                }
            } catch (NotFoundException notYet) {
                check(waited < 300, "no status of " + connector);
            }
            check(waited < 300, connector + " is not as it should be");
            Thread.sleep(100);
        }
    }

    private static void tell(Connect<DistributedHerder> worker) throws Exception {
        for (String connector : CONNECTORS) {
            var status = worker.herder().connectorStatus(connector);
            Report.line("connector_status", "connector", connector, "state", status.connector().state(),
                "worker_id", status.connector().workerId(),
                "tasks", status.tasks().stream()
                    .map(task -> Map.of("id", task.id(), "state", task.state(), "worker_id", task.workerId())).toList());
        }
    }

    private static void stop(Connect<DistributedHerder> worker, int number) throws Exception {
        worker.stop();
        worker.awaitStop();
        Report.line("left", "client_id", "worker-" + number, "group", "connect-cluster");
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }
}
