import java.util.Set;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** ACLs with patterns, as since 2.0 (KIP-290). */
final class Acls {
    static void prefixed(AdminClient admin) throws Exception {
        var acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "inv", PatternType.PREFIXED),
            new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
        admin.createAcls(Set.of(acl)).all().get();
        Told.line("created_acl", "resource_type", "TOPIC", "resource", "inv", "pattern", "PREFIXED", "principal", "User:alice",
            "host", "*", "operation", "READ", "permission", "ALLOW");
        Told.line("described_acls", "count", admin.describeAcls(AclBindingFilter.ANY).values().get().size());
        Told.line("deleted_acls", "count", admin.deleteAcls(Set.of(acl.toFilter())).all().get().size());
    }
}
