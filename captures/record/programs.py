"""What scenarios are made of: client programs made ready to run, and brokers' settings that several need."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .broker import Listener
from .distribution import CLIENT_VERSION, POM, SetupError, class_path, java, maven_jars, python_with

CLIENTS = Path(__file__).with_name("clients")
CONFLUENT = ("confluent-kafka==2.16.1",)
KAFKA_PYTHON_PACKAGES = ("kafka-python==3.0.12", "python-snappy==0.7.3", "lz4==4.4.5", "zstandard==0.25.0")

# lz4 and xxhash: for the lz4 frames of old.
OLD_PYTHON = ("kafka-python==2.0.2", "python-snappy==0.7.3", "lz4==4.4.5", "xxhash==3.5.0", "crc32c==2.7.1")


def agent_jar() -> Path:
    """extract-tls-secrets, which logs the secrets of a JVM's TLS connections to a file."""
    (jar,) = maven_jars(Path(__file__).with_name("agent-pom.xml"), "agent.version", "4.0.0").glob("*.jar")
    return jar


def secrets_agent(key_log: Path | str) -> str:
    """Option of a JVM that begins with the agent."""
    return f"-javaagent:{agent_jar()}={key_log}"


def attach_agent(pid: int, key_log: Path) -> None:
    """Attach the agent to a JVM that runs."""
    subprocess.run([java(), "-jar", str(agent_jar()), str(pid), str(key_log)], check=True, capture_output=True)


def python_program(requirements: Sequence[str], program: str, *arguments: str) -> Callable[[], Sequence[str]]:
    """Makes the command line of a Python client in an environment with the pinned packages."""
    return lambda: [python_with(*requirements), str(CLIENTS / program), *arguments]


@functools.cache
def java_classes(version: str, sources: str = "java", pom: Path = POM) -> str:
    """Folder with the Java programs compiled against one release of the client; removed when the recorder ends.

    ``sources`` is a folder of ``clients/``, and its programs may use what those of ``clients/java`` share.
    """
    folder = tempfile.mkdtemp(prefix="kafkasniff-classes-")
    atexit.register(shutil.rmtree, folder)
    command = [str(Path(java()).with_name("javac")), "-d", folder, "-cp", class_path(version, pom)]
    command += ["-sourcepath", str(CLIENTS / "java")]
    done = subprocess.run(
        [*command, *map(str, sorted((CLIENTS / sources).glob("*.java")))], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SetupError(f"javac: {done.stderr[-2000:]}")
    return folder


def java_program(
    program: str,
    *arguments: str,
    version: str = CLIENT_VERSION,
    sources: str = "java",
    pom: Path = POM,
    compiled_with: str | None = None,
) -> Callable[[], Sequence[str]]:
    """Makes the command line of a Java client, run with the jars of one release.

    It is compiled against the same release, or against ``compiled_with`` where the program has parts that need that
    one and are left alone with an earlier.
    """
    logger = "-Dorg.slf4j.simpleLogger"
    levels = (f"{logger}.defaultLogLevel=warn", f"{logger}.log.org.apache.kafka.clients.NetworkClient=debug")
    return lambda: [
        java(),
        "-XX:TieredStopAtLevel=1",
        *levels,
        "-cp",
        f"{java_classes(compiled_with or version, sources, pom)}:{class_path(version, pom)}",
        program,
        *arguments,
    ]


# Heartbeats every half second, so that a rebalance takes few seconds.
QUICK_GROUPS = {
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "5000",
    "group.consumer.session.timeout.ms": "10000",
}

SHARE_GROUPS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}

# Passwords of test users; they are in the sidecars too, so that tests can check that output does not have them.
SASL = Listener(
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
SASL_WITH_ADMINISTRATOR = Listener(
    SASL.name,
    SASL.protocol,
    properties={
        **SASL.properties,
        "plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' user_admin="admin-secret" user_alice="alice-secret";',
    },
)
SCRAM_USERS = (
    *("--add-scram", "SCRAM-SHA-256=[name=bob,password=bob-secret]"),
    *("--add-scram", "SCRAM-SHA-512=[name=bob,password=bob-secret]"),
)
