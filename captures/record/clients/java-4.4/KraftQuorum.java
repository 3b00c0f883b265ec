import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.Uuid;

/** What an administrator asks of controllers, without any broker (KIP-919): the quorum, its voters, features. */
final class KraftQuorum {
    /** An act's arguments: the controllers' addresses; for voters their id, the id of their log folder and their port. */
    public static void main(String[] none) throws Exception {
        Acts.play((act, arguments) -> {
            try (Admin admin = Admin.create(Map.of("bootstrap.controllers", arguments[0], "client.id", "quorum-admin"))) {
                switch (act) {
                    case "describe" -> describe(admin);
                    case "upgrade" -> upgrade(admin, arguments[1]);
                    case "add" -> add(admin, Integer.parseInt(arguments[1]), arguments[2], Integer.parseInt(arguments[3]));
                    case "remove" -> remove(admin, Integer.parseInt(arguments[1]), arguments[2]);
                    case "unregister" -> unregister(admin, Integer.parseInt(arguments[1]));
                    default -> throw new IllegalArgumentException(act);
                }
            }
        });
    }

    private static void describe(Admin admin) throws Exception {
        var quorum = admin.describeMetadataQuorum().quorumInfo().get();
        Report.line("described_quorum", "leader", quorum.leaderId(), "voters", quorum.voters().size());
    }

    private static void upgrade(Admin admin, String level) throws Exception {
        describe(admin);
        var features = new TreeMap<>(admin.describeFeatures().featureMetadata().get().finalizedFeatures());
        Report.line("described_features", "finalized", features.toString());
        var update = new FeatureUpdate(Short.parseShort(level), FeatureUpdate.UpgradeType.UPGRADE);
        admin.updateFeatures(Map.of("metadata.version", update), new UpdateFeaturesOptions()).all().get();
        Report.line("updated_feature", "feature", "metadata.version", "level", Short.parseShort(level));
        try {
            admin.updateFeatures(Map.of("no.such.feature", update), new UpdateFeaturesOptions()).all().get();
        } catch (java.util.concurrent.ExecutionException error) {
            Report.failed("update an unknown feature", error);
        }
    }

    private static void add(Admin admin, int node, String directory, int port) throws Exception {
        var endpoints = Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", port));
        admin.addRaftVoter(node, Uuid.fromString(directory), endpoints).all().get();
        Report.line("added_voter", "node", node, "directory_id", directory, "port", port);
        try {
            admin.addRaftVoter(node, Uuid.fromString(directory), endpoints).all().get();
        } catch (java.util.concurrent.ExecutionException error) {
            Report.failed("add a voter again", error);
        }
        describe(admin);
    }

    private static void remove(Admin admin, int node, String directory) throws Exception {
        admin.removeRaftVoter(node, Uuid.fromString(directory)).all().get();
        Report.line("removed_voter", "node", node, "directory_id", directory);
        describe(admin);
    }

    /** The registration stays when a voter is removed: it goes by itself. */
    private static void unregister(Admin admin, int node) throws Exception {
        admin.unregisterController(node).all().get();
        Report.line("unregistered_controller", "controller", node);
        describe(admin);
    }
}
