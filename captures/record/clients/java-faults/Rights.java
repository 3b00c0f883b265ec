import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/**
 * Changes what users may do: {@code grant BOOTSTRAP USER topic|group NAME}, {@code revoke …}, in turns with {@code
 * turns BOOTSTRAP USER topic|group NAME TIMES MS}.
 */
final class Rights {
    public static void main(String[] arguments) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", arguments[1]))) {
            switch (arguments[0]) {
                case "grant" -> change(admin, arguments, true);
                case "revoke" -> change(admin, arguments, false);
                case "turns" -> {
                    for (int i = 0; i < 2 * Integer.parseInt(arguments[5]); i++) {
                        change(admin, arguments, i % 2 == 1);
                        Thread.sleep(Long.parseLong(arguments[6]));
                    }
                }
                default -> throw new IllegalArgumentException(arguments[0]);
            }
        }
    }

    private static void change(Admin admin, String[] arguments, boolean granted) throws Exception {
        var kind = arguments[3].equals("topic") ? ResourceType.TOPIC : ResourceType.GROUP;
        var entry = new AccessControlEntry("User:" + arguments[2], "*", AclOperation.ALL, AclPermissionType.ALLOW);
        var binding = new AclBinding(new ResourcePattern(kind, arguments[4], PatternType.LITERAL), entry);
        if (granted) {
            admin.createAcls(List.of(binding)).all().get();
        } else {
            admin.deleteAcls(List.of(binding.toFilter())).all().get();
        }
    }
}
