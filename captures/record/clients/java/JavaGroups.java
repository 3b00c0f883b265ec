import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** A group of the classic or the KIP-848 protocol: one member, a second joins, commits, describes, leaves; offsets deleted. */
final class JavaGroups {
    public static void main(String[] arguments) throws Exception {
        String protocol = arguments[0];
        String bootstrap = arguments[1];
        Report.client();
        try (Admin admin = Clients.admin(bootstrap, "group-admin");
                var producer = Clients.producer(bootstrap, "group-producer", "enable.idempotence", "false", "acks", "1")) {
            Clients.createTopics(admin, 4, "events");
            for (int partition = 0; partition < 4; partition++) {
                var record = new ProducerRecord<byte[], byte[]>("events", partition, Samples.BASE_TIMESTAMP, ("k" + partition).getBytes(UTF_8),
                    ("event " + partition).getBytes(UTF_8));
                Report.produced(record, producer.send(record).get(), "none");
            }
            Member first = new Member(bootstrap, "member-1", protocol);
            first.start();
            first.awaitPartitions(4);
            Member second = new Member(bootstrap, "member-2", protocol);
            second.start();
            second.awaitPartitions(2);
            first.awaitPartitions(2);
            describe(admin);
            second.leave();
            first.awaitPartitions(4);
            first.leave();

            admin.alterConsumerGroupOffsets("events-group",
                Map.of(new TopicPartition("events", 3), new OffsetAndMetadata(0, "set by the admin"))).all().get();
            Report.line("altered_offsets", "group", "events-group", "offsets", Map.of("events-3", 0));
            var offsets = admin.listConsumerGroupOffsets("events-group").partitionsToOffsetAndMetadata().get();
            Report.line("offsets", "group", "events-group", "offsets", offsets.entrySet().stream()
                .collect(Collectors.toMap(entry -> entry.getKey().toString(), entry -> entry.getValue().offset())));
            admin.deleteConsumerGroupOffsets("events-group", java.util.Set.of(new TopicPartition("events", 0))).all().get();
            Report.line("deleted_offsets", "group", "events-group", "partitions", List.of("events-0"));
            admin.deleteConsumerGroups(List.of("events-group")).all().get();
            Report.line("deleted_group", "group", "events-group");
        }
    }

    private static void describe(Admin admin) throws Exception {
        for (var group : admin.listGroups(new ListGroupsOptions()).all().get()) {
            Report.line("listed_group", "group", group.groupId(), "protocol_type", group.protocol(),
                "type", group.type().map(Object::toString).orElse(null), "state", group.groupState().map(Object::toString).orElse(null));
        }
        var group = admin.describeConsumerGroups(List.of("events-group")).describedGroups().get("events-group").get();
        List<Object> members = new ArrayList<>();
        for (var member : group.members()) {
            members.add(Map.of("client_id", member.clientId(), "member_id", member.consumerId(), "host", member.host(),
                "assignment", member.assignment().topicPartitions().stream().map(Object::toString).sorted().toList()));
        }
        Report.line("described_group", "group", group.groupId(), "state", group.groupState(), "type", group.type(),
            "assignor", group.partitionAssignor(), "members", members);
    }

    /** One consumer on a thread of its own: polls and commits until told to leave. */
    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final String clientId;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final CountDownLatch leaving = new CountDownLatch(1);
        private volatile int assigned;
        private volatile Exception failure;

        Member(String bootstrap, String clientId, String protocol) {
            this.clientId = clientId;
            List<Object> settings = new ArrayList<>(List.of("group.id", "events-group", "group.protocol", protocol));
            if (protocol.equals("classic")) {
                settings.addAll(List.of("heartbeat.interval.ms", 500, "session.timeout.ms", 10000,
                    "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"));
            }
            this.consumer = Clients.consumer(bootstrap, clientId, settings.toArray());
        }

        @Override
        public void run() {
            try (consumer) {
                consumer.subscribe(List.of("events"), this);
                while (leaving.getCount() > 0) {
                    var records = consumer.poll(Duration.ofMillis(200));
                    for (var record : records) {
                        Report.consumed(clientId, record);
                    }
                    if (!records.isEmpty()) {
                        consumer.commitSync();
                        Report.line("committed", "client_id", clientId, "group", "events-group",
                            "offsets", records.nextOffsets().entrySet().stream()
                                .collect(Collectors.toMap(entry -> entry.getKey().toString(), entry -> entry.getValue().offset())));
                    }
                }
            } catch (Exception error) {
                failure = error;
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            changed("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            changed("revoked", partitions);
        }

        private void changed(String what, Collection<TopicPartition> partitions) {
            try {
                var metadata = consumer.groupMetadata();
                Report.line(what, "client_id", clientId, "group", "events-group", "member_id", metadata.memberId(),
                    "generation", metadata.generationId(), "partitions", partitions.stream().map(Object::toString).sorted().toList());
            } catch (Exception error) {
                failure = error;
            }
            assigned = what.equals("assigned") ? consumer.assignment().size() : consumer.assignment().size() - partitions.size();
        }

        void awaitPartitions(int count) throws Exception {
            for (int waited = 0; assigned != count; waited++) {
                if (failure != null) {
                    throw failure;
                }
                if (waited > 600) {
                    throw new IllegalStateException(clientId + " has " + assigned + " partitions, not " + count);
                }
                Thread.sleep(50);
            }
        }

        void leave() throws Exception {
            leaving.countDown();
            join(TimeUnit.SECONDS.toMillis(20));
            if (failure != null) {
                throw failure;
            }
            Report.line("left", "client_id", clientId, "group", "events-group");
        }
    }
}
