import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;

/** What an authorizer denies: alice may describe a topic, a group and a transactional id, and do nothing else. */
final class JavaDenied {
    private static final String PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule";
    private static final String SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule";

    /** An operation that is to fail. */
    private interface Operation {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        byte[] hmac;
        try (var admin = Clients.admin(bootstrap, "admin", login("PLAIN", PLAIN, "admin", "admin-secret"))) {
            Clients.createTopics(admin, 1, "payroll");
            admin.createAcls(List.of(describe(ResourceType.TOPIC, "payroll"), describe(ResourceType.GROUP, "payroll-readers"),
                describe(ResourceType.TRANSACTIONAL_ID, "payroll-run"))).all().get();
            hmac = admin.createDelegationToken(new CreateDelegationTokenOptions().maxLifetimeMs(600_000)).delegationToken().get().hmac();
        }
        try (var admin = Clients.admin(bootstrap, "alice-admin", alice())) {
            asAdministrator(admin, hmac);
        }
        var partition = new TopicPartition("payroll", 0);
        try (var producer = Clients.producer(bootstrap, "alice-producer", alice("enable.idempotence", "false"))) {
            expect("produce to payroll", () -> producer.send(record(partition)).get());
            expect("produce to salaries", () -> producer.send(record(new TopicPartition("salaries", 0))).get());
        }
        try (var producer = Clients.producer(bootstrap, "alice-idempotent", alice("enable.idempotence", "true"))) {
            expect("produce idempotently", () -> producer.send(record(partition)).get());
        }
        for (String id : List.of("payroll-run", "salaries-run")) {
            try (var producer = Clients.producer(bootstrap, "alice-" + id, alice("transactional.id", id))) {
                expect("begin transactions of " + id, producer::initTransactions);
            }
        }
        for (String group : List.of("payroll-readers", "salaries-readers")) {
            try (var consumer = Clients.consumer(bootstrap, "alice-" + group, alice("group.id", group))) {
                consumer.subscribe(List.of("payroll"));
                expect("join " + group, () -> poll(consumer));
            }
        }
        try (var consumer = Clients.consumer(bootstrap, "alice-reader", alice("group.id", "payroll-readers"))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            expect("fetch from payroll", () -> poll(consumer));
            expect("commit for payroll-readers", () -> consumer.commitSync(Map.of(partition, new OffsetAndMetadata(0))));
        }
        try (var admin = Clients.admin(bootstrap, "bob-guesses", login("SCRAM-SHA-512", SCRAM, "bob", "wrong-secret"))) {
            expect("log in with a wrong password: SCRAM-SHA-512", () -> admin.describeCluster().clusterId().get());
        }
    }

    private static void asAdministrator(Admin admin, byte[] hmac) throws Exception {
        expect("create a topic", () -> admin.createTopics(List.of(new NewTopic("bonus", 1, (short) 1))).all().get());
        expect("delete payroll", () -> admin.deleteTopics(List.of("payroll")).all().get());
        var broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        expect("read settings of a broker", () -> admin.describeConfigs(List.of(broker)).all().get());
        expect("allow itself to read", () -> admin.createAcls(List.of(describe(ResourceType.TOPIC, "salaries"))).all().get());
        expect("make a token for bob", () -> admin.createDelegationToken(
            new CreateDelegationTokenOptions().owner(new KafkaPrincipal("User", "bob"))).delegationToken().get());
        expect("renew a token of admin", () -> admin.renewDelegationToken(hmac).expiryTimestamp().get());
    }

    private static AclBinding describe(ResourceType type, String name) {
        return new AclBinding(new ResourcePattern(type, name, PatternType.LITERAL),
            new AccessControlEntry("User:alice", "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW));
    }

    private static ProducerRecord<byte[], byte[]> record(TopicPartition to) {
        return new ProducerRecord<>(to.topic(), to.partition(), Samples.BASE_TIMESTAMP, null, "raise".getBytes(UTF_8));
    }

    private static void poll(org.apache.kafka.clients.consumer.Consumer<byte[], byte[]> consumer) {
        for (int i = 0; i < 40; i++) {
            consumer.poll(Duration.ofMillis(250));
        }
    }

    private static void expect(String operation, Operation run) throws Exception {
        try {
            run.run();
        } catch (Exception error) {
            Report.failed(operation, error);
            return;
        }
        throw new IllegalStateException(operation + " did not fail");
    }

    private static Object[] alice(Object... more) {
        var settings = new ArrayList<Object>(List.of(login("PLAIN", PLAIN, "alice", "alice-secret")));
        settings.addAll(List.of(more));
        return settings.toArray();
    }

    private static Object[] login(String mechanism, String module, String user, String password) {
        String jaas = module + " required username=\"" + user + "\" password=\"" + password + "\";";
        return new Object[] {"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", mechanism, "sasl.jaas.config", jaas};
    }
}
