import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

/** Topics and their settings by the AdminClient, as it has been since 0.11. */
final class Topics {
    static void create(AdminClient admin, int partitions, String... names) throws Exception {
        for (String name : names) {
            admin.createTopics(Set.of(new NewTopic(name, partitions, (short) 1))).all().get();
            Told.line("created", "topic", name, "partitions", partitions);
        }
    }

    static void delete(AdminClient admin, String... names) throws Exception {
        for (String name : names) {
            admin.deleteTopics(Set.of(name)).all().get();
            Told.line("deleted", "topic", name);
        }
    }

    /** Sets and describes in whole, as AlterConfigs does. */
    static void settings(AdminClient admin, String topic) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        admin.alterConfigs(Map.of(resource, new Config(Set.of(new ConfigEntry("max.message.bytes", "500"))))).all().get();
        Told.line("altered_settings", "resource", "topic " + topic, "settings", Map.of("max.message.bytes", "500"));
        for (ConfigEntry entry : admin.describeConfigs(Set.of(resource)).all().get().get(resource).entries()) {
            if (!entry.isDefault()) {
                Told.line("setting", "resource", "TOPIC", "resource_name", topic, "name", entry.name(), "value", entry.value(),
                    "sensitive", entry.isSensitive());
            }
        }
    }

    static void failures(AdminClient admin, String existing) throws Exception {
        Told.fails("create a topic that exists", () -> admin.createTopics(Set.of(new NewTopic(existing, 1, (short) 1))).all().get());
        Told.fails("create a topic with too many replicas", () -> admin.createTopics(Set.of(new NewTopic("wide", 1, (short) 3))).all().get());
        Told.fails("delete an unknown topic", () -> admin.deleteTopics(Set.of("no-such-topic")).all().get());
        Told.line("listed_topics", "topics", List.copyOf(admin.listTopics().names().get()));
    }
}
