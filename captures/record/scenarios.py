"""The list of all scenarios."""

from __future__ import annotations

from pathlib import Path

from . import internal_topics, kraft_clusters, tls, zookeeper_eras
from .broker import LOGGER, Listener
from .distribution import DEFAULT_VERSION, OLD_VERSION, go_program, node_modules
from .journal import franz_log, java_log, kafka_python_log, kafkajs_log, old_kafka_python_log, rdkafka_log
from .more_clients import SCENARIOS as MORE_CLIENTS
from .programs import (
    AUTHORIZER,
    CLIENTS,
    CONFLUENT,
    KAFKA_PYTHON_PACKAGES,
    OLD_PYTHON,
    QUICK_GROUPS,
    SASL,
    SASL_WITH_ADMINISTRATOR,
    SCRAM_USERS,
    SHARE_GROUPS,
    java_classes,
    java_program,
    python_program,
)
from .scenario import BrokerOptions, Scenario
from .sniffer import SniffOptions

JAVA = [
    Scenario(
        "java-codecs.pcap",
        "produce (idempotent) and fetch in all codecs, with keys, null and empty values, headers, binary data",
        java_program("JavaCodecs"),
        java_log,
    ),
    Scenario(
        "java-transactions.pcap",
        "transactional producer: commit, abort, offsets in a transaction; readers of both isolation levels",
        java_program("JavaTransactions"),
        java_log,
    ),
    Scenario(
        "java-4.4-transactions.pcap",
        "transactions with the client of 4.4, which speaks newer versions (ApiVersions v5, TxnOffsetCommit v6)",
        java_program("JavaTransactions", version=DEFAULT_VERSION),
        java_log,
    ),
    Scenario(
        "java-group-classic.pcap",
        "classic group: one member, a second joins and leaves (cooperative), commits, offsets set and deleted",
        java_program("JavaGroups", "classic"),
        java_log,
    ),
    Scenario(
        "java-group-consumer.pcap",
        "KIP-848 group: one member, a second joins and leaves, commits, offsets set and deleted",
        java_program("JavaGroups", "consumer"),
        java_log,
        broker=BrokerOptions(properties=QUICK_GROUPS),
    ),
    Scenario(
        "java-group-share.pcap",
        "share group (KIP-932): accept, release and reject; offsets listed, altered, deleted",
        java_program("JavaShareGroup"),
        java_log,
        broker=BrokerOptions(properties=SHARE_GROUPS),
    ),
    Scenario(
        "java-admin.pcap",
        "topics, partitions, settings (one secret), ACLs, quotas, SCRAM users, features, quorum, log folders, offsets",
        java_program("JavaAdmin"),
        java_log,
        broker=BrokerOptions(properties=AUTHORIZER),
    ),
    Scenario(
        "java-sasl.pcap",
        "SASL PLAIN and SCRAM in SaslAuthenticate, wrong passwords, re-authentication, delegation token",
        java_program("JavaSasl"),
        java_log,
        log_is_complete=False,  # the authenticator's own requests are not logged
        broker=BrokerOptions(
            listeners=[SASL],
            properties={"delegation.token.secret.key": "secret-of-the-tokens"},
            storage_options=SCRAM_USERS,
        ),
    ),
    Scenario(
        "java-denied.pcap",
        "denied by ACLs (StandardAuthorizer): topics, groups, transactional ids, the cluster, a delegation token; a "
        "wrong SCRAM password",
        java_program("JavaDenied", version=DEFAULT_VERSION),
        java_log,
        log_is_complete=False,  # the authenticator's own requests are not logged
        broker=BrokerOptions(
            listeners=[SASL_WITH_ADMINISTRATOR],
            properties={
                **AUTHORIZER,
                "super.users": "User:ANONYMOUS;User:admin",
                "delegation.token.secret.key": "secret-of-the-tokens",
            },
            storage_options=SCRAM_USERS,
        ),
    ),
    Scenario(
        "java-telemetry.pcap",
        "client metrics pushed to the broker (KIP-714), compressed with zstd",
        java_program("JavaTelemetry"),
        java_log,
        broker=BrokerOptions(
            properties={"metric.reporters": "TelemetryReceiver"},
            plugin=lambda: Path(java_classes(DEFAULT_VERSION)),
        ),
    ),
    Scenario(
        "kraft-two-brokers.pcap",
        "all listeners of two brokers from start to end: registration, heartbeats, metadata and replica fetches, "
        "forwarded requests, transaction markers, share group state, a leader that moves",
        java_program("JavaCluster"),
        java_log,
        broker=BrokerOptions(brokers=2, properties=SHARE_GROUPS),
        internal=True,
    ),
    Scenario(
        "java-errors.pcap",
        "unknown topic, too large record, bad settings and names, unknown groups, offset out of range and others",
        java_program("JavaErrors"),
        java_log,
    ),
]

LIBRDKAFKA = [
    Scenario(
        "librdkafka-codecs.pcap",
        "produce and fetch in all codecs, with keys, null and empty values, headers, binary data",
        python_program(CONFLUENT, "librdkafka_codecs.py"),
        rdkafka_log,
    ),
    Scenario(
        "librdkafka-group-classic.pcap",
        "classic group, eager range assignor: one member, a second joins and leaves; commits, describe, delete",
        python_program(CONFLUENT, "librdkafka_group.py", "classic"),
        rdkafka_log,
    ),
    Scenario(
        "librdkafka-group-consumer.pcap",
        "KIP-848 group: one member, a second joins and leaves; commits, describe, delete",
        python_program(CONFLUENT, "librdkafka_group.py", "consumer"),
        rdkafka_log,
        broker=BrokerOptions(properties=QUICK_GROUPS),
    ),
    Scenario(
        "librdkafka-transactions.pcap",
        "transactions committed and aborted; readers of both isolation levels",
        python_program(CONFLUENT, "librdkafka_small.py", "transaction"),
        rdkafka_log,
    ),
    Scenario(
        "librdkafka-acks0.pcap",
        "a producer that wants no answer (acks=0), then a reader",
        python_program(CONFLUENT, "librdkafka_small.py", "acks0"),
        rdkafka_log,
    ),
    Scenario(
        "librdkafka-ipv6-ns.pcapng",
        "IPv6 loopback, pcapng with nanoseconds (dumpcap)",
        python_program(CONFLUENT, "librdkafka_small.py", "plain"),
        rdkafka_log,
        broker=BrokerOptions(listeners=[Listener(host="::1")]),
        sniff=SniffOptions(pcapng=True, nanoseconds=True),
    ),
    Scenario(
        "librdkafka-nanoseconds.pcap",
        "pcap with nanoseconds; records of 48 and 20 kB",
        python_program(CONFLUENT, "librdkafka_small.py", "large"),
        rdkafka_log,
        sniff=SniffOptions(nanoseconds=True),
    ),
    Scenario(
        "librdkafka-snaplen-128.pcap",
        "packets cut to 128 bytes",
        python_program(CONFLUENT, "librdkafka_small.py", "plain"),
        rdkafka_log,
        log_is_complete=False,  # it is; but the capture does not hold every byte
        sniff=SniffOptions(snap_length=128),
    ),
    Scenario(
        "librdkafka-sasl.pcap",
        "SASL PLAIN and SCRAM in SaslAuthenticate, right and wrong passwords",
        python_program(CONFLUENT, "librdkafka_small.py", "sasl"),
        rdkafka_log,
        broker=BrokerOptions(listeners=[SASL], storage_options=SCRAM_USERS),
    ),
]

KAFKA_PYTHON = [
    Scenario(
        "kafka-python-codecs.pcap",
        "produce and fetch in all codecs, with keys, null and empty values, headers, binary data",
        python_program(KAFKA_PYTHON_PACKAGES, "kafka_python_client.py", "codecs"),
        kafka_python_log,
    ),
    Scenario(
        "kafka-python-group.pcap",
        "classic group: a second member joins and leaves; commits with metadata",
        python_program(KAFKA_PYTHON_PACKAGES, "kafka_python_client.py", "group"),
        kafka_python_log,
    ),
    Scenario(
        "kafka-python-admin.pcap",
        "topics created, described, deleted; settings; errors",
        python_program(KAFKA_PYTHON_PACKAGES, "kafka_python_client.py", "admin"),
        kafka_python_log,
    ),
]

OTHERS = [
    Scenario(
        "kafkajs.pcap",
        "produce (plain and gzip, in a transaction too), a classic group, admin calls",
        lambda: ["node", str(CLIENTS / "node" / "kafkajs_client.js")],
        kafkajs_log,
        environment=lambda: {"NODE_PATH": str(node_modules(CLIENTS / "node"))},
    ),
    Scenario(
        "franz-go.pcap",
        "produce in all codecs (idempotent), transactions committed and aborted, a classic group, admin calls",
        lambda: [go_program(CLIENTS / "go")],
        franz_log,
    ),
]

_OLD_BROKER = BrokerOptions(version=OLD_VERSION)

OLD = [
    Scenario(
        "old-message-formats.pcap",
        "record formats 0, 1 and 2 as clients of 0.8.2, 0.9, 0.10 and 0.11 write and read them, all codecs of the time",
        python_program(OLD_PYTHON, "old_kafka_python.py", "formats"),
        old_kafka_python_log,
        broker=_OLD_BROKER,
    ),
    Scenario(
        "old-groups.pcap",
        "groups and commits as clients of 0.8.2, 0.9, 0.10 and 0.11 do them; a producer with acks=0",
        python_program(OLD_PYTHON, "old_kafka_python.py", "group"),
        old_kafka_python_log,
        broker=_OLD_BROKER,
    ),
    Scenario(
        "old-raw-sasl.pcap",
        "SaslHandshake v0 and raw SASL tokens: PLAIN, SCRAM, a wrong password",
        python_program(OLD_PYTHON, "old_kafka_python.py", "sasl"),
        old_kafka_python_log,
        log_is_complete=False,  # raw tokens are not requests
        broker=BrokerOptions(
            version=OLD_VERSION,
            listeners=[SASL],
            storage_options=SCRAM_USERS,
            properties={"auto.create.topics.enable": "true"},
        ),
    ),
]

REQUEST_LOGS = [
    Scenario(
        f"kafka-{version}.pcap",
        "a classic group: one member, a second joins and leaves, commits, offsets deleted",
        java_program("JavaGroups", "classic", version=DEFAULT_VERSION),
        java_log,
        broker=BrokerOptions(version=version),
        folder="request-logs",
        request_log=True,
    )
    for version in ("2.8.2", "3.4.1", OLD_VERSION, DEFAULT_VERSION)
]

LOG_TIME = "yyyy-MM-dd HH:mm:ss,SSS"
CLIENT_LOGS = [
    Scenario(
        "java-debug.pcap",
        "transactional producer: commit, abort, offsets in a transaction; readers of both isolation levels",
        java_program("JavaTransactions", version=DEFAULT_VERSION),
        java_log,
        environment=lambda: {"JAVA_TOOL_OPTIONS": f'{LOGGER}.showDateTime=true "{LOGGER}.dateTimeFormat={LOG_TIME}"'},
        folder="client-logs",
        client_log=True,
        data_folder="segments/kafka-4.4.0",
    ),
    Scenario(
        "librdkafka-debug.pcap",
        "classic group: one member, a second joins and leaves; commits, describe, delete",
        python_program(CONFLUENT, "librdkafka_group.py", "classic"),
        rdkafka_log,
        folder="client-logs",
        client_log=True,
    ),
]

SCENARIOS: dict[str, Scenario] = {
    scenario.file: scenario
    for scenario in [
        *JAVA,
        *LIBRDKAFKA,
        *KAFKA_PYTHON,
        *OTHERS,
        *OLD,
        *kraft_clusters.SCENARIOS,
        *internal_topics.SCENARIOS,
        *MORE_CLIENTS,
        *zookeeper_eras.SCENARIOS,
        *tls.SCENARIOS,
        *REQUEST_LOGS,
        *CLIENT_LOGS,
    ]
}
