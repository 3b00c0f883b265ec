"""Scenarios of brokers with TLS: clients that write key logs, a terminator for those that write none, and mistakes.

The captures are in their own folder, ``captures/tls``, and contain their key logs (pcapng).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence

from . import certificates
from .broker import Listener
from .distribution import go_program, node_modules
from .journal import franz_log, java_log, kafka_python_log, kafkajs_log, rdkafka_log
from .programs import (
    CLIENTS,
    CONFLUENT,
    KAFKA_PYTHON_PACKAGES,
    SASL,
    SCRAM_USERS,
    java_program,
    python_program,
    secrets_agent,
)
from .scenario import KEY_LOG, BrokerOptions, Scenario

FOLDER = "tls"

KEY_LIMIT_BYTES = 4096
"""Bytes that a broker encrypts before it renews its keys, where that is to be seen; Java's own limit is 2^37."""


def listener(
    name: str, version: str, suite: str = "", *, kind: str = "ecdsa", mutual: bool = False, scram: bool = False
) -> Listener:
    """A listener with TLS of one version, and of one cipher suite if that is given.

    ``kind``: of the broker's certificate (ecdsa, rsa); ``mutual``: clients need a certificate; ``scram``: and log in.
    """
    properties = {
        "ssl.enabled.protocols": version,
        "ssl.protocol": version,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.FOLDER / f"broker-{kind}.pem"),
    }
    if suite:
        properties["ssl.cipher.suites"] = suite
    if mutual:
        properties |= {
            "ssl.client.auth": "required",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.FOLDER / "ca.pem"),
        }
    if scram:
        properties |= SASL.properties
    return Listener(name, "SASL_SSL" if scram else "SSL", properties=properties)


def environment(**more: str) -> Callable[[], dict[str, str]]:
    """Tells clients where the certificates are, which are made if need be, and where Python and Go log secrets."""
    return lambda: {"CERTIFICATES": str(certificates.made()), "SSLKEYLOGFILE": KEY_LOG, **more}


def settings(values: Mapping[str, str]) -> Callable[[], dict[str, str]]:
    """The same for a program that adds these settings to those of its clients."""
    return environment(CLIENT_SETTINGS=json.dumps(values))


def key_limit() -> list[str]:
    """Options of a JVM that renews its keys of TLS 1.3 often (``jdk.tls.keyLimits``)."""
    file = certificates.made() / "key-limits.properties"
    file.write_text(f"jdk.tls.keyLimits=AES/GCM/NoPadding KeyUpdate {KEY_LIMIT_BYTES}\n", encoding="utf-8")
    return [f"-Djava.security.properties={file}"]


def _python(*words: str) -> Callable[[], Sequence[str]]:
    """A word for each listener."""
    return python_program(KAFKA_PYTHON_PACKAGES, "kafka_python_tls.py", ",".join(words))


def _java_that_renews() -> list[str]:
    program, *arguments = java_program("JavaShort")()
    return [program, *key_limit(), *arguments]


def _java_with_agent() -> list[str]:
    program, *arguments = java_program("JavaShort")()
    return [program, secrets_agent(KEY_LOG), *arguments]


V12, V13 = "TLSv1.2", "TLSv1.3"

TRUSTING_RDKAFKA = {"security.protocol": "ssl", "ssl.ca.location": str(certificates.FOLDER / "ca.pem")}
TRUSTING_JAVA = {
    "security.protocol": "SSL",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": str(certificates.FOLDER / "ca.pem"),
}

WITH_KEYS = [
    Scenario(
        "tls13-kafka-python.pcapng",
        "TLS 1.3: AES-256-GCM, AES-128-GCM, ChaCha20-Poly1305, a client with a certificate, SCRAM",
        _python("plain", "plain", "plain", "mutual", "scram"),
        kafka_python_log,
        broker=BrokerOptions(
            listeners=[
                listener("AES256", V13, "TLS_AES_256_GCM_SHA384"),
                listener("AES128", V13, "TLS_AES_128_GCM_SHA256"),
                listener("CHACHA20", V13, "TLS_CHACHA20_POLY1305_SHA256", kind="rsa"),
                listener("MUTUAL", V13, mutual=True),
                listener("SCRAM", V13, scram=True),
            ],
            storage_options=SCRAM_USERS,
        ),
        environment=environment(),
        folder=FOLDER,
        key_log=True,
    ),
    Scenario(
        "tls12-kafka-python.pcapng",
        "TLS 1.2: AES-128-GCM, ChaCha20-Poly1305, AES-256-CBC with SHA-384, AES-128-CBC with SHA-1 and without "
        "forward secrecy, a client with a certificate",
        _python("plain", "plain", "plain", "plain", "mutual"),
        kafka_python_log,
        broker=BrokerOptions(
            listeners=[
                listener("GCM", V12, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
                listener("CHACHA20", V12, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", kind="rsa"),
                listener("CBC256", V12, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", kind="rsa"),
                listener("CBC128", V12, "TLS_RSA_WITH_AES_128_CBC_SHA", kind="rsa"),
                listener("MUTUAL", V12, mutual=True),
            ]
        ),
        environment=environment(),
        folder=FOLDER,
        key_log=True,
    ),
    Scenario(
        "tls13-key-update.pcapng",
        "TLS 1.3: a broker that renews its keys after 4 KiB, with AES-256-GCM and AES-128-GCM",
        _python("large", "large"),
        kafka_python_log,
        broker=BrokerOptions(
            listeners=[
                listener("AES256", V13, "TLS_AES_256_GCM_SHA384"),
                listener("AES128", V13, "TLS_AES_128_GCM_SHA256"),
            ],
            java_options=key_limit,
        ),
        environment=environment(),
        folder=FOLDER,
        key_log=True,
    ),
    Scenario(
        "tls-go.pcapng",
        "a client in Go: TLS 1.3, with sessions that are resumed, and TLS 1.2",
        lambda: [go_program(CLIENTS / "go_tls"), "cached,new"],
        franz_log,
        broker=BrokerOptions(listeners=[listener("NEW", V13), listener("OLD", V12, kind="rsa")]),
        environment=environment(),
        folder=FOLDER,
        key_log=True,
    ),
    Scenario(
        "tls12-resumed.pcapng",
        "sessions of TLS 1.2 that are resumed: the client in Go logs the secret of the first connection only",
        lambda: [go_program(CLIENTS / "go_tls"), "cached"],
        franz_log,
        broker=BrokerOptions(listeners=[listener("OLD", V12)]),
        environment=environment(),
        folder=FOLDER,
        key_log=True,
    ),
    Scenario(
        "tls13-kafkajs.pcapng",
        "TLS 1.3 of a client in Node",
        lambda: ["node", f"--tls-keylog={KEY_LOG}", str(CLIENTS / "node" / "kafkajs_tls.js")],
        kafkajs_log,
        broker=BrokerOptions(listeners=[listener("CLIENT", V13)]),
        environment=lambda: {**environment()(), "NODE_PATH": str(node_modules(CLIENTS / "node"))},
        folder=FOLDER,
        key_log=True,
    ),
    Scenario(
        "tls13-openssl.pcapng",
        "TLS 1.3 of a client with librdkafka and the system's OpenSSL, whose secrets a preloaded library logs",
        lambda: [sys.executable, str(CLIENTS / "kcat_tls.py")],
        rdkafka_log,
        broker=BrokerOptions(listeners=[listener("CLIENT", V13)], properties={"auto.create.topics.enable": "true"}),
        environment=environment(),
        folder=FOLDER,
        key_log=True,
    ),
    Scenario(
        "tls-terminator-librdkafka.pcapng",
        "what a client that writes no key log says to a TLS terminator in front of the broker",
        python_program(CONFLUENT, "librdkafka_small.py", "plain"),
        rdkafka_log,
        environment=settings(TRUSTING_RDKAFKA),
        folder=FOLDER,
        key_log=True,
        terminator=certificates.FOLDER / "broker-ecdsa.pem",
    ),
    Scenario(
        "tls-terminator-java.pcapng",
        "what the Java client, which renews its keys after 4 KiB, says to a TLS terminator in front of the broker",
        _java_that_renews,
        java_log,
        environment=settings(TRUSTING_JAVA),
        folder=FOLDER,
        key_log=True,
        terminator=certificates.FOLDER / "broker-rsa.pem",
    ),
    Scenario(
        "tls-agent-broker.pcapng",
        "TLS 1.3 of librdkafka; the secrets are those that an agent logs, which was attached to the running broker",
        python_program(CONFLUENT, "librdkafka_small.py", "plain"),
        rdkafka_log,
        broker=BrokerOptions(listeners=[listener("NEW", V13)], logs_secrets=True),
        environment=settings(TRUSTING_RDKAFKA),
        folder=FOLDER,
        key_log=True,
    ),
    Scenario(
        "tls-agent-java.pcapng",
        "TLS 1.2 of the Java client; the secrets are those that an agent in its JVM logs",
        _java_with_agent,
        java_log,
        broker=BrokerOptions(listeners=[listener("OLD", V12, kind="rsa")]),
        environment=settings(TRUSTING_JAVA),
        folder=FOLDER,
        key_log=True,
    ),
]


def _mistakes(*words: str) -> Callable[[], Sequence[str]]:
    return python_program(CONFLUENT, "librdkafka_mistakes.py", ",".join(words))


MISTAKES = [
    Scenario(
        "tls-plaintext-client.pcap",
        "a client without TLS at listeners with TLS 1.3 and 1.2",
        _mistakes("plaintext", "plaintext"),
        rdkafka_log,
        broker=BrokerOptions(listeners=[listener("NEW", V13), listener("OLD", V12, kind="rsa")]),
        environment=environment(),
        folder=FOLDER,
    ),
    Scenario(
        "tls-plaintext-listener.pcap",
        "a client with TLS at a listener without",
        _mistakes("trusting"),
        None,
        environment=environment(),
        folder=FOLDER,
    ),
    Scenario(
        "tls-refused.pcap",
        "handshakes of TLS 1.2 and 1.3 that fail: an unknown authority, no certificate of the client, no common cipher",
        _mistakes("distrusting", "distrusting", "trusting", "trusting", "cbc"),
        None,
        broker=BrokerOptions(
            listeners=[
                listener("OLD", V12, kind="rsa"),
                listener("NEW", V13),
                listener("MUTUAL12", V12, mutual=True),
                listener("MUTUAL13", V13, mutual=True),
                listener("GCM", V12, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
            ]
        ),
        environment=environment(),
        folder=FOLDER,
    ),
]

SCENARIOS = [*WITH_KEYS, *MISTAKES]
