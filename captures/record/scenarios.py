"""All scenarios, by client."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .broker import Listener
from .distribution import (
    COVERED_VERSION,
    DEFAULT_VERSION,
    OLD_VERSION,
    SetupError,
    class_path,
    go_program,
    java,
    node_modules,
    python_with,
)
from .journal import franz_log, java_log, kafka_python_log, kafkajs_log, old_kafka_python_log, rdkafka_log
from .scenario import BrokerOptions, Scenario
from .sniffer import SniffOptions

CLIENTS = Path(__file__).with_name("clients")
_CONFLUENT = ("confluent-kafka==2.16.1",)
_KAFKA_PYTHON = ("kafka-python==3.0.12", "python-snappy==0.7.3", "lz4==4.4.5", "zstandard==0.25.0")

# lz4 and xxhash: for the lz4 frames of old.
_OLD_PYTHON = ("kafka-python==2.0.2", "python-snappy==0.7.3", "lz4==4.4.5", "xxhash==3.5.0", "crc32c==2.7.1")


def _python(requirements: Sequence[str], program: str, *arguments: str) -> Callable[[], Sequence[str]]:
    return lambda: [python_with(*requirements), str(CLIENTS / program), *arguments]


@functools.cache
def _java_classes(version: str) -> str:
    """Folder with the Java programs compiled against one release of the client; removed when the recorder ends."""
    folder = tempfile.mkdtemp(prefix="kafkasniff-classes-")
    atexit.register(shutil.rmtree, folder)
    command = [str(Path(java()).with_name("javac")), "-d", folder, "-cp", class_path(version)]
    done = subprocess.run(
        [*command, *map(str, sorted((CLIENTS / "java").glob("*.java")))], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SetupError(f"javac: {done.stderr[-2000:]}")
    return folder


def _java(program: str, *arguments: str, version: str = COVERED_VERSION) -> Callable[[], Sequence[str]]:
    logger = "-Dorg.slf4j.simpleLogger"
    levels = (f"{logger}.defaultLogLevel=warn", f"{logger}.log.org.apache.kafka.clients.NetworkClient=debug")
    return lambda: [
        java(),
        "-XX:TieredStopAtLevel=1",
        *levels,
        "-cp",
        f"{_java_classes(version)}:{class_path(version)}",
        program,
        *arguments,
    ]


# Heartbeats every half second, so that a rebalance takes few seconds.
_QUICK_GROUPS = {
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "5000",
    "group.consumer.session.timeout.ms": "10000",
}

_SHARE_GROUPS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}

_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}

# Passwords of test users; they stand in the sidecars too, so that tests can look for them where they must not be.
_SASL = Listener(
    "SASL",
    "SASL_PLAINTEXT",
    properties={
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' user_alice="alice-secret" user_bob="bob-secret";',
        "scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "scram-sha-512.connections.max.reauth.ms": "3000",
    },
)
_SCRAM_USERS = (
    *("--add-scram", "SCRAM-SHA-256=[name=bob,password=bob-secret]"),
    *("--add-scram", "SCRAM-SHA-512=[name=bob,password=bob-secret]"),
)

JAVA = [
    Scenario(
        "java-codecs.pcap",
        "produce (idempotent) and fetch in all codecs, with keys, null and empty values, headers, binary data",
        _java("JavaCodecs"),
        java_log,
    ),
    Scenario(
        "java-transactions.pcap",
        "transactional producer: commit, abort, offsets in a transaction; readers of both isolation levels",
        _java("JavaTransactions"),
        java_log,
    ),
    Scenario(
        "java-4.4-transactions.pcap",
        "transactions with the client of 4.4, which speaks newer versions (ApiVersions v5, TxnOffsetCommit v6)",
        _java("JavaTransactions", version=DEFAULT_VERSION),
        java_log,
    ),
    Scenario(
        "java-group-classic.pcap",
        "classic group: one member, a second joins and leaves (cooperative), commits, offsets set and deleted",
        _java("JavaGroups", "classic"),
        java_log,
    ),
    Scenario(
        "java-group-consumer.pcap",
        "KIP-848 group: one member, a second joins and leaves, commits, offsets set and deleted",
        _java("JavaGroups", "consumer"),
        java_log,
        broker=BrokerOptions(properties=_QUICK_GROUPS),
    ),
    Scenario(
        "java-group-share.pcap",
        "share group (KIP-932): accept, release and reject; offsets listed, altered, deleted",
        _java("JavaShareGroup"),
        java_log,
        broker=BrokerOptions(properties=_SHARE_GROUPS),
    ),
    Scenario(
        "java-admin.pcap",
        "topics, partitions, settings (one secret), ACLs, quotas, SCRAM users, features, quorum, log folders, offsets",
        _java("JavaAdmin"),
        java_log,
        broker=BrokerOptions(properties=_AUTHORIZER),
    ),
    Scenario(
        "java-sasl.pcap",
        "SASL PLAIN and SCRAM in SaslAuthenticate, wrong passwords, re-authentication, delegation token",
        _java("JavaSasl"),
        java_log,
        log_is_complete=False,  # the authenticator's own requests are not logged
        broker=BrokerOptions(
            listeners=[_SASL],
            properties={"delegation.token.secret.key": "secret-of-the-tokens"},
            storage_options=_SCRAM_USERS,
        ),
    ),
    Scenario(
        "java-telemetry.pcap",
        "client metrics pushed to the broker (KIP-714), compressed with zstd",
        _java("JavaTelemetry"),
        java_log,
        broker=BrokerOptions(
            properties={"metric.reporters": "TelemetryReceiver"},
            plugin=lambda: Path(_java_classes(DEFAULT_VERSION)),
        ),
    ),
    Scenario(
        "kraft-two-brokers.pcap",
        "all listeners of two brokers from start to end: registration, heartbeats, metadata and replica fetches, "
        "forwarded requests, transaction markers, share group state, a leader that moves",
        _java("JavaCluster"),
        java_log,
        broker=BrokerOptions(brokers=2, properties=_SHARE_GROUPS),
        internal=True,
    ),
    Scenario(
        "java-errors.pcap",
        "unknown topic, too large record, bad settings and names, unknown groups, offset out of range and others",
        _java("JavaErrors"),
        java_log,
    ),
]

LIBRDKAFKA = [
    Scenario(
        "librdkafka-codecs.pcap",
        "produce and fetch in all codecs, with keys, null and empty values, headers, binary data",
        _python(_CONFLUENT, "librdkafka_codecs.py"),
        rdkafka_log,
    ),
    Scenario(
        "librdkafka-group-classic.pcap",
        "classic group, eager range assignor: one member, a second joins and leaves; commits, describe, delete",
        _python(_CONFLUENT, "librdkafka_group.py", "classic"),
        rdkafka_log,
    ),
    Scenario(
        "librdkafka-group-consumer.pcap",
        "KIP-848 group: one member, a second joins and leaves; commits, describe, delete",
        _python(_CONFLUENT, "librdkafka_group.py", "consumer"),
        rdkafka_log,
        broker=BrokerOptions(properties=_QUICK_GROUPS),
    ),
    Scenario(
        "librdkafka-transactions.pcap",
        "transactions committed and aborted; readers of both isolation levels",
        _python(_CONFLUENT, "librdkafka_small.py", "transaction"),
        rdkafka_log,
    ),
    Scenario(
        "librdkafka-acks0.pcap",
        "a producer that wants no answer (acks=0), then a reader",
        _python(_CONFLUENT, "librdkafka_small.py", "acks0"),
        rdkafka_log,
    ),
    Scenario(
        "librdkafka-ipv6-ns.pcapng",
        "IPv6 loopback, pcapng with nanoseconds (dumpcap)",
        _python(_CONFLUENT, "librdkafka_small.py", "plain"),
        rdkafka_log,
        broker=BrokerOptions(listeners=[Listener(host="::1")]),
        sniff=SniffOptions(pcapng=True, nanoseconds=True),
    ),
    Scenario(
        "librdkafka-nanoseconds.pcap",
        "pcap with nanoseconds; records of 48 and 20 kB",
        _python(_CONFLUENT, "librdkafka_small.py", "large"),
        rdkafka_log,
        sniff=SniffOptions(nanoseconds=True),
    ),
    Scenario(
        "librdkafka-snaplen-128.pcap",
        "packets cut to 128 bytes",
        _python(_CONFLUENT, "librdkafka_small.py", "plain"),
        rdkafka_log,
        log_is_complete=False,  # it is; but the capture does not hold every byte
        sniff=SniffOptions(snap_length=128),
    ),
    Scenario(
        "librdkafka-sasl.pcap",
        "SASL PLAIN and SCRAM in SaslAuthenticate, right and wrong passwords",
        _python(_CONFLUENT, "librdkafka_small.py", "sasl"),
        rdkafka_log,
        broker=BrokerOptions(listeners=[_SASL], storage_options=_SCRAM_USERS),
    ),
]

KAFKA_PYTHON = [
    Scenario(
        "kafka-python-codecs.pcap",
        "produce and fetch in all codecs, with keys, null and empty values, headers, binary data",
        _python(_KAFKA_PYTHON, "kafka_python_client.py", "codecs"),
        kafka_python_log,
    ),
    Scenario(
        "kafka-python-group.pcap",
        "classic group: a second member joins and leaves; commits with metadata",
        _python(_KAFKA_PYTHON, "kafka_python_client.py", "group"),
        kafka_python_log,
    ),
    Scenario(
        "kafka-python-admin.pcap",
        "topics created, described, deleted; settings; errors",
        _python(_KAFKA_PYTHON, "kafka_python_client.py", "admin"),
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
        _python(_OLD_PYTHON, "old_kafka_python.py", "formats"),
        old_kafka_python_log,
        broker=_OLD_BROKER,
    ),
    Scenario(
        "old-groups.pcap",
        "groups and commits as clients of 0.8.2, 0.9, 0.10 and 0.11 do them; a producer with acks=0",
        _python(_OLD_PYTHON, "old_kafka_python.py", "group"),
        old_kafka_python_log,
        broker=_OLD_BROKER,
    ),
    Scenario(
        "old-raw-sasl.pcap",
        "SaslHandshake v0 and raw SASL tokens: PLAIN, SCRAM, a wrong password",
        _python(_OLD_PYTHON, "old_kafka_python.py", "sasl"),
        old_kafka_python_log,
        log_is_complete=False,  # raw tokens are no requests
        broker=BrokerOptions(
            version=OLD_VERSION,
            listeners=[_SASL],
            storage_options=_SCRAM_USERS,
            properties={"auto.create.topics.enable": "true"},
        ),
    ),
]

SCENARIOS: dict[str, Scenario] = {
    scenario.file: scenario for scenario in [*JAVA, *LIBRDKAFKA, *KAFKA_PYTHON, *OTHERS, *OLD]
}
