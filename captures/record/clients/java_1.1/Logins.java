import org.apache.kafka.clients.admin.AdminClient;

/** Administrators that log in with SASL, in SaslAuthenticate as since 1.0. */
final class Logins {
    private static final String MODULE = "org.apache.kafka.common.security.%s.%sLoginModule required username=\"%s\" password=\"%s\"%s;";

    static AdminClient plain(String bootstrap, String clientId, String password) {
        return admin(bootstrap, clientId, "PLAIN", String.format(MODULE, "plain", "Plain", "alice", password, ""));
    }

    static AdminClient token(String bootstrap, String clientId, String tokenId, String hmac) {
        return admin(bootstrap, clientId, "SCRAM-SHA-256", String.format(MODULE, "scram", "Scram", tokenId, hmac, " tokenauth=true"));
    }

    private static AdminClient admin(String bootstrap, String clientId, String mechanism, String jaas) {
        return AdminClient.create(Writes.settings(bootstrap, clientId, "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", mechanism,
            "sasl.jaas.config", jaas));
    }
}
