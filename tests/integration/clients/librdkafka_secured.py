"""librdkafka: users who may and may not. Arguments: `OPEN SECURED`, the addresses of two listeners of one broker.

An administrator creates a topic through the open one, which bob may describe and nobody else may use. At the listener
with SASL, alice asks for the topic and joins a group, bob produces to it, and both try wrong passwords. Each outcome is
reported with its error code.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from reporting import report

TOPIC, GROUP = "payroll", "payroll-readers"
WAIT_S = 60.0

open_address, secured = sys.argv[1:]


def settings(mechanism: str, user: str, password: str, client_id: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "client.id": client_id,
    }


def prepare() -> None:
    """Create the topic, and let bob see it."""
    admin = AdminClient({"bootstrap.servers": open_address})
    rule = AclBinding(
        *(ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL),
        *("User:bob", "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW),
    )
    for future in (*admin.create_topics([NewTopic(TOPIC, 1, 1)]).values(), *admin.create_acls([rule]).values()):
        future.result(WAIT_S)


def ask(mechanism: str, user: str) -> None:
    """Ask for the topic."""
    client = AdminClient(settings(mechanism, user, f"{user}-secret", f"{user}-asks"))
    error = client.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC].error
    report("asked", user=user, error_code=0 if error is None else error.code())


def produce(mechanism: str, user: str) -> None:
    """Produce a record."""
    codes: list[int] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        codes.append(0 if error is None else error.code())

    client = Producer(settings(mechanism, user, f"{user}-secret", f"{user}-produces"))
    client.produce(TOPIC, b"raise", partition=0, on_delivery=delivered)
    client.flush(WAIT_S)
    report("produced", user=user, error_code=codes[0])


def join(mechanism: str, user: str) -> None:
    """Join a group."""
    client = Consumer({**settings(mechanism, user, f"{user}-secret", f"{user}-joins"), "group.id": GROUP})
    client.subscribe([TOPIC])
    code = None
    while code not in (KafkaError.GROUP_AUTHORIZATION_FAILED, 0):
        message = client.poll(WAIT_S)
        assert message is not None, "nothing came"
        error = message.error()
        code = 0 if error is None else error.code()
    report("joined", user=user, error_code=code)
    client.close()


def fail(mechanism: str, user: str) -> None:
    """Log in with a wrong password."""
    failed = threading.Event()

    def on_error(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            failed.set()

    client = AdminClient({**settings(mechanism, user, "wrong", f"{user}-guesses"), "error_cb": on_error})
    deadline = time.monotonic() + WAIT_S
    while not failed.is_set():
        assert time.monotonic() < deadline, "nothing came"
        with contextlib.suppress(KafkaException):
            client.list_topics(timeout=0.5)
            raise AssertionError("it was let in")
        client.poll(0.1)
    report("refused", user=user, mechanism=mechanism)


prepare()
ask("PLAIN", "alice")
join("PLAIN", "alice")
ask("SCRAM-SHA-512", "bob")
produce("SCRAM-SHA-256", "bob")
fail("PLAIN", "alice")
fail("SCRAM-SHA-256", "bob")
