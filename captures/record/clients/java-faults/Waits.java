import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What recordings of waits and lost records need of the Java client: {@code topic BOOTSTRAP NAME BROKER,… [KEY=VALUE …]},
 * {@code quota BOOTSTRAP CLIENT_ID KEY VALUE}, {@code moves BOOTSTRAP TOPIC,… TIMES BROKER,BROKER} (leaders, one second
 * each), {@code replicas BOOTSTRAP TOPIC BROKER,…}, {@code limit BOOTSTRAP TOPIC RATE} (of the
 * replicas' fetches), {@code forget BOOTSTRAP USER,…} (their SCRAM credentials), {@code quorum CONTROLLER} (its state, five times), {@code active
 * BOOTSTRAP} (the number of the active controller), {@code produce BOOTSTRAP TOPIC COUNT SIZE [KEY=VALUE …]},
 * {@code assigned BOOTSTRAP TOPIC SECONDS MS} (a consumer without a group, which works for MS on each batch).
 */
final class Waits {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        switch (arguments[0]) {
            case "topic" -> {
                List<Integer> replicas = Arrays.stream(arguments[3].split(",")).map(Integer::valueOf).toList();
                var topic = new NewTopic(arguments[2], Map.of(0, replicas));
                topic.configs(settings(arguments, 4));
                try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                    admin.createTopics(List.of(topic)).all().get();
                }
            }
            case "quota" -> {
                var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, arguments[2]));
                var quota = new ClientQuotaAlteration.Op(arguments[3], Double.valueOf(arguments[4]));
                try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                    admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(quota)))).all().get();
                }
            }
            case "forget" -> {
                List<UserScramCredentialAlteration> gone = new ArrayList<>();
                for (String user : arguments[2].split(",")) {
                    gone.add(new UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256));
                }
                try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                    admin.alterUserScramCredentials(gone).all().get();
                }
            }
            case "quorum" -> {
                try (var admin = Admin.create(Map.of("bootstrap.controllers", bootstrap, "client.id", "tool"))) {
                    for (int i = 0; i < 5; i++) {
                        System.out.println(admin.describeMetadataQuorum().quorumInfo().get().leaderId());
                        Thread.sleep(1000);
                    }
                }
            }
            case "active" -> {
                try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                    System.out.println(admin.describeMetadataQuorum().quorumInfo().get().leaderId());
                }
            }
            case "moves" -> move(bootstrap, arguments[2].split(","), Integer.parseInt(arguments[3]), arguments[4]);
            case "replicas" -> {
                var replicas = Arrays.stream(arguments[3].split(",")).map(Integer::valueOf).toList();
                try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "mover"))) {
                    var wanted = Optional.of(new NewPartitionReassignment(replicas));
                    admin.alterPartitionReassignments(Map.of(new TopicPartition(arguments[2], 0), wanted)).all().get();
                }
            }
            case "limit" -> limit(bootstrap, arguments[2], arguments[3]);
            case "produce" -> produce(arguments);
            case "assigned" -> read(arguments);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void move(String bootstrap, String[] topics, int times, String brokers) throws Exception {
        var places = Arrays.stream(topics).map(topic -> new TopicPartition(topic, 0)).toList();
        List<Integer> replicas = new ArrayList<>(Arrays.stream(brokers.split(",")).map(Integer::valueOf).toList());
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "mover"))) {
            for (int i = 0; i < times; i++) {
                Collections.reverse(replicas);
                var order = Optional.of(new NewPartitionReassignment(List.copyOf(replicas)));
                Map<TopicPartition, Optional<NewPartitionReassignment>> wanted = new HashMap<>();
                places.forEach(place -> wanted.put(place, order));
                admin.alterPartitionReassignments(wanted).all().get();
                admin.electLeaders(ElectionType.PREFERRED, Set.copyOf(places)).partitions().get();
                Thread.sleep(1000);
            }
        }
    }

    private static void limit(String bootstrap, String topic, String rate) throws Exception {
        Map<ConfigResource, Collection<AlterConfigOp>> changes = new HashMap<>();
        for (String end : List.of("leader", "follower")) {
            changes.computeIfAbsent(new ConfigResource(ConfigResource.Type.BROKER, ""), place -> new ArrayList<>())
                    .add(set(end + ".replication.throttled.rate", rate));
            changes.computeIfAbsent(new ConfigResource(ConfigResource.Type.TOPIC, topic), place -> new ArrayList<>())
                    .add(set(end + ".replication.throttled.replicas", "*"));
        }
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.incrementalAlterConfigs(changes).all().get();
        }
    }

    private static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    private static void read(String[] arguments) throws InterruptedException {
        var properties = new Properties();
        properties.putAll(Map.of("bootstrap.servers", arguments[1], "client.id", "reader"));
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<byte[], byte[]>(properties)) {
            consumer.assign(List.of(new TopicPartition(arguments[2], 0)));
            long end = System.currentTimeMillis() + 1000 * Long.parseLong(arguments[3]);
            while (System.currentTimeMillis() < end) {
                if (!consumer.poll(Duration.ofMillis(200)).isEmpty()) {
                    Thread.sleep(Long.parseLong(arguments[4]));
                }
            }
        }
    }

    private static void produce(String[] arguments) throws InterruptedException {
        var properties = new Properties();
        properties.put("bootstrap.servers", arguments[1]);
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        properties.putAll(settings(arguments, 5));
        byte[] value = new byte[Integer.parseInt(arguments[4])];
        try (var producer = new KafkaProducer<byte[], byte[]>(properties)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < Integer.parseInt(arguments[3]); i++) {
                sent.add(producer.send(new ProducerRecord<>(arguments[2], value)));
            }
            for (var one : sent) {
                try {
                    System.out.println("offset " + one.get().offset());
                } catch (ExecutionException failure) {
                    System.out.println(failure.getCause().getClass().getSimpleName());
                }
            }
        }
    }

    private static Map<String, String> settings(String[] arguments, int first) {
        Map<String, String> found = new HashMap<>();
        for (int i = first; i < arguments.length; i++) {
            String[] parts = arguments[i].split("=", 2);
            found.put(parts[0], parts[1]);
        }
        return found;
    }
}
