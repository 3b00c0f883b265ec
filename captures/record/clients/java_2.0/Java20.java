import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.admin.RenewDelegationTokenOptions;

/** What clients of 2.0 do: groups described and deleted, ACLs on prefixes, delegation tokens. */
final class Java20 {
    private static final String GROUP = "pair-readers";

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Told.client();
        try (var admin = AdminClient.create(Writes.settings(bootstrap, "eras-admin"))) {
            Topics.create(admin, 2, "pairs");
            try (var producer = Writes.producer(bootstrap, "pairs-writer", "compression.type", "snappy", "linger.ms", 100)) {
                Headers.write(producer, "pairs", "snappy");
            }
            Members.joinAndLeave(bootstrap, GROUP, "pairs", 2, () -> describe(admin), "max.poll.interval.ms", 8000);
            var offsets = admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata().get();
            Told.line("offsets", "group", GROUP, "offsets", offsets.entrySet().stream()
                .collect(Collectors.toMap(one -> one.getKey().toString(), one -> one.getValue().offset())));
            admin.deleteConsumerGroups(Set.of(GROUP)).all().get();
            Told.line("deleted_group", "group", GROUP);
            Told.fails("delete an unknown group", () -> admin.deleteConsumerGroups(Set.of("no-such-group")).all().get());
            Acls.prefixed(admin);
        }
        tokens(arguments[1]);
    }

    private static void describe(AdminClient admin) {
        try {
            for (var listed : admin.listConsumerGroups().all().get()) {
                Told.line("listed_group", "group", listed.groupId(), "protocol_type", "consumer");
            }
            var group = admin.describeConsumerGroups(Set.of(GROUP)).all().get().get(GROUP);
            Told.line("described_group", "group", group.groupId(), "state", group.state().toString(), "members", group.members().stream()
                .map(member -> Map.of("client_id", member.clientId(), "member_id", member.consumerId())).toList());
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void tokens(String bootstrap) throws Exception {
        try (var admin = Logins.plain(bootstrap, "token-owner", "alice-secret")) {
            var token = admin.createDelegationToken(new CreateDelegationTokenOptions().maxlifeTimeMs(600_000)).delegationToken().get();
            String hmac = Base64.getEncoder().encodeToString(token.hmac());
            Told.line("created_token", "token_id", token.tokenInfo().tokenId(), "hmac", hmac);
            Thread.sleep(1500);  // until the broker has heard of it
            try (var user = Logins.token(bootstrap, "token-user", token.tokenInfo().tokenId(), hmac)) {
                Told.line("listed_topics", "topics", List.copyOf(new TreeSet<>(user.listTopics().names().get())));
            }
            long expiry = admin.renewDelegationToken(token.hmac(), new RenewDelegationTokenOptions().renewTimePeriodMs(300_000)).expiryTimestamp().get();
            Told.line("renewed_token", "token_id", token.tokenInfo().tokenId(), "expiry", expiry);
            Told.line("described_tokens", "count", admin.describeDelegationToken().delegationTokens().get().size());
            admin.expireDelegationToken(token.hmac(), new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)).expiryTimestamp().get();
            Told.line("expired_token", "token_id", token.tokenInfo().tokenId());
        }
    }
}
