import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Base64;
import java.util.List;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.admin.RenewDelegationTokenOptions;
import org.apache.kafka.clients.producer.ProducerRecord;

/** PLAIN and SCRAM, a wrong password of each, re-authentication, and a delegation token made, used, renewed and expired. */
final class JavaSasl {
    private static final String PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule";
    private static final String SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule";

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Report.client();
        try (var admin = Clients.admin(bootstrap, "sasl-plain", login("PLAIN", PLAIN, "alice", "alice-secret"))) {
            Clients.createTopics(admin, 1, "secured");
            Report.line("authenticated", "client_id", "sasl-plain", "mechanism", "PLAIN", "user", "alice", "password", "alice-secret");
        }
        for (String mechanism : List.of("SCRAM-SHA-256", "SCRAM-SHA-512")) {
            String clientId = mechanism.toLowerCase();
            try (var producer = Clients.producer(bootstrap, clientId, login(mechanism, SCRAM, "bob", "bob-secret"))) {
                var record = new ProducerRecord<byte[], byte[]>("secured", 0, Samples.BASE_TIMESTAMP, null, mechanism.getBytes(UTF_8));
                Report.produced(record, producer.send(record).get(), "none");
                Report.line("authenticated", "client_id", clientId, "mechanism", mechanism, "user", "bob", "password", "bob-secret");
                Thread.sleep(mechanism.endsWith("512") ? 3500 : 0);  // the session is over: the next request re-authenticates
                record = new ProducerRecord<byte[], byte[]>("secured", 0, Samples.BASE_TIMESTAMP, null, "again".getBytes(UTF_8));
                Report.produced(record, producer.send(record).get(), "none");
            }
        }
        for (String mechanism : List.of("PLAIN", "SCRAM-SHA-256")) {
            String module = mechanism.equals("PLAIN") ? PLAIN : SCRAM;
            try (var admin = Clients.admin(bootstrap, "sasl-wrong", login(mechanism, module, "alice", "wrong-secret"))) {
                admin.describeCluster().clusterId().get();
                throw new IllegalStateException("a wrong password was taken");
            } catch (java.util.concurrent.ExecutionException error) {
                Report.failed("log in with a wrong password: " + mechanism, error);
            }
        }
        try (var admin = Clients.admin(bootstrap, "token-owner", login("SCRAM-SHA-256", SCRAM, "bob", "bob-secret"))) {
            var token = admin.createDelegationToken(new CreateDelegationTokenOptions().maxLifetimeMs(600_000)).delegationToken().get();
            String hmac = Base64.getEncoder().encodeToString(token.hmac());
            Report.line("created_token", "token_id", token.tokenInfo().tokenId(), "owner", token.tokenInfo().owner(), "hmac", hmac);
            Thread.sleep(1500);  // until the broker has heard of it
            try (var user = Clients.admin(bootstrap, "token-user",
                    login("SCRAM-SHA-256", SCRAM, token.tokenInfo().tokenId(), hmac, "tokenauth=true"))) {
                Report.line("described_cluster", "cluster_id", user.describeCluster().clusterId().get());
            }
            long expiry = admin.renewDelegationToken(token.hmac(), new RenewDelegationTokenOptions().renewTimePeriodMs(300_000)).expiryTimestamp().get();
            Report.line("renewed_token", "token_id", token.tokenInfo().tokenId(), "expiry", expiry);
            Report.line("described_tokens", "count", admin.describeDelegationToken().delegationTokens().get().size());
            admin.expireDelegationToken(token.hmac(), new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)).expiryTimestamp().get();
            Report.line("expired_token", "token_id", token.tokenInfo().tokenId());
        }
    }

    private static Object[] login(String mechanism, String module, String user, String password, String... more) {
        String jaas = module + " required username=\"" + user + "\" password=\"" + password + "\" " + String.join(" ", more) + ";";
        return new Object[] {"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", mechanism, "sasl.jaas.config", jaas};
    }
}
