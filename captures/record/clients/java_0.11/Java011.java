import java.util.Set;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.Resource;
import org.apache.kafka.common.resource.ResourceFilter;
import org.apache.kafka.common.resource.ResourceType;

/** What clients of 0.11 do: format 2 with headers, idempotent and transactional producers, the first AdminClient. */
final class Java011 {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Told.client();
        try (var admin = AdminClient.create(Writes.settings(bootstrap, "eras-admin"))) {
            Topics.create(admin, 1, "ledger");
            Transactions.run(bootstrap, "ledger", "lz4");
            Topics.settings(admin, "ledger");
            Topics.failures(admin, "ledger");
            acls(admin);
            Topics.delete(admin, "ledger");
        }
    }

    private static void acls(AdminClient admin) throws Exception {
        var acl = new AclBinding(new Resource(ResourceType.TOPIC, "inventory"),
            new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
        admin.createAcls(Set.of(acl)).all().get();
        Told.line("created_acl", "resource_type", "TOPIC", "resource", "inventory", "principal", "User:alice",
            "host", "*", "operation", "READ", "permission", "ALLOW");
        var any = new AclBindingFilter(ResourceFilter.ANY, AccessControlEntryFilter.ANY);
        Told.line("described_acls", "count", admin.describeAcls(any).values().get().size());
        Told.line("deleted_acls", "count", admin.deleteAcls(Set.of(acl.toFilter())).all().get().size());
    }
}
