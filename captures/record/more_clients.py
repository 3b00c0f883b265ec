"""Scenarios of Kafka Streams, Kafka Connect, records with schema ids, and clients beyond the common ones."""

from __future__ import annotations

from .broker import Listener
from .distribution import APPLICATIONS_POM, OLD_VERSION, go_program
from .journal import aiokafka_log, java_headers, java_log, old_kafka_python_log, rdkafka_log
from .programs import CLIENTS, CONFLUENT, OLD_PYTHON, java_program, python_program
from .registry import SERDES_POM
from .scenario import BrokerOptions, Scenario

APPLICATIONS = [
    Scenario(
        "java-streams-classic.pcap",
        "Kafka Streams, exactly once, in a classic group: a second instance joins and leaves, standby tasks, "
        "repartition and changelog topics",
        java_program(
            "StreamsApplication", "classic", "exactly_once_v2", sources="java-applications", pom=APPLICATIONS_POM
        ),
        java_headers,
    ),
    Scenario(
        "java-streams-group.pcap",
        "Kafka Streams in a streams group (KIP-1071): a second instance joins and leaves",
        java_program(
            "StreamsApplication", "streams", "at_least_once", sources="java-applications", pom=APPLICATIONS_POM
        ),
        java_headers,
    ),
    Scenario(
        "java-connect.pcap",
        "Kafka Connect: two workers share a file source and a file sink; topics of settings, offsets and status",
        java_program("ConnectWorkers", "sessioned", sources="java-applications", pom=APPLICATIONS_POM),
        java_headers,
    ),
]

SCHEMA_REGISTRY = (
    *CONFLUENT,
    "attrs==26.1.0",
    "authlib==1.9.9",
    "cachetools==8.0.1",
    "fastavro==1.13.1",
    "googleapis-common-protos==1.76.0",
    "httpx==0.28.1",
    "jsonschema==4.26.0",
    "orjson==3.13.0",
    "protobuf==7.36.2",
    "requests==2.34.2",
)
"""The client with what its extra for the schema registry asks for, all of it pinned."""

AIOKAFKA = ("aiokafka==0.14.0", "cramjam==2.11.0")
KAFKA_PYTHON_1_4 = ("kafka-python==1.4.7", *OLD_PYTHON[1:])

CLIENTS_OF_OTHERS = [
    Scenario(
        "librdkafka-schemas.pcap",
        "records with schema ids (Avro, JSON, Protobuf; in front and in headers), numbers like them, trace headers",
        python_program(SCHEMA_REGISTRY, "schema_records.py"),
        rdkafka_log,
    ),
    Scenario(
        "librdkafka-registry.pcap",
        "records by schemas of a registry (Apicurio): Avro, JSON, Protobuf, references",
        python_program(SCHEMA_REGISTRY, "registry_records.py"),
        rdkafka_log,
        registry=True,
    ),
    Scenario(
        "java-registry.pcap",
        "records by Apicurio's serializers: ids of eight and four bytes and in headers (Avro), Protobuf",
        java_program("RegistryRecords", sources="java-registry", pom=SERDES_POM),
        java_log,
        registry=True,
        log_is_complete=False,  # of the values alone
    ),
    Scenario(
        "librdkafka-oauthbearer.pcap",
        "SASL OAUTHBEARER: a token, one with extensions, one that is over",
        python_program(CONFLUENT, "oauthbearer_client.py"),
        rdkafka_log,
        broker=BrokerOptions(
            listeners=[
                Listener(
                    "SASL",
                    "SASL_PLAINTEXT",
                    properties={
                        "sasl.enabled.mechanisms": "OAUTHBEARER",
                        "oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer"
                        ".OAuthBearerLoginModule required;",
                    },
                )
            ]
        ),
    ),
    Scenario(
        "aiokafka-codecs.pcap",
        "produce and fetch in all codecs, with keys, null and empty values, headers, binary data",
        python_program(AIOKAFKA, "aiokafka_client.py", "codecs"),
        aiokafka_log,
    ),
    Scenario(
        "aiokafka-group.pcap",
        "classic group: a second member joins and leaves; transactions with the group's offsets, committed and aborted",
        python_program(AIOKAFKA, "aiokafka_client.py", "group"),
        aiokafka_log,
    ),
    Scenario(
        "kafka-python-1.4.pcap",
        "an old client that asks what the broker speaks: produce in all codecs of its time, a group, admin calls",
        python_program(KAFKA_PYTHON_1_4, "kafka_python_1_4.py"),
        old_kafka_python_log,
        broker=BrokerOptions(version=OLD_VERSION),
    ),
    Scenario(
        "librdkafka-1.4.pcap",
        "an old client: produce and fetch in all codecs, transactions, a classic group with a static member",
        lambda: [go_program(CLIENTS / "librdkafka_1_4")],
        rdkafka_log,
        broker=BrokerOptions(version=OLD_VERSION),
    ),
    Scenario(
        "sarama.pcap",
        "produce in all codecs, transactions, a classic group (sticky) with a second member, admin calls",
        lambda: [go_program(CLIENTS / "sarama")],
        None,
    ),
]

SCENARIOS = [*APPLICATIONS, *CLIENTS_OF_OTHERS]
