"""Recordings of rights that change while programs run, and of listeners whose check of passwords is slow or unreliable.

``Directory.java`` checks the passwords in the broker, as one that asks LDAP does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..broker import Listener, RealBroker
from ..distribution import DEFAULT_VERSION, python_with
from ..programs import AUTHORIZER, CLIENTS, CONFLUENT, SASL, java_classes, java_program
from ..sniffer import SniffOptions
from . import Fault, Stage
from .clients import rdkafka
from .waits import java_waits

_OPEN = SniffOptions(until_quiet=False)
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_USERS = ("alice", "bob", "carol", "dave")
_SLOW_MS = 2500


def _listener(**properties: str) -> Listener:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return Listener(SASL.name, SASL.protocol, properties={"sasl.enabled.mechanisms": "PLAIN", **named})


def _login(user: str, client_id: str) -> dict[str, str]:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanisms": "PLAIN", "client_id": client_id}
    return login | {"sasl_username": user, "sasl_password": f"{user}-secret"}


def _inside(broker: RealBroker) -> str:
    return f"127.0.0.1:{broker.port('INTERNAL')}"


def _reader(bootstrap: str, **login: str) -> Sequence[str]:
    """A member of the group `readers`."""
    program = [python_with(*CONFLUENT), str(CLIENTS / "faults" / "rdkafka_groups.py"), "again", bootstrap, "orders"]
    return [*program, "60", *(f"{name.replace('_', '.')}={value}" for name, value in login.items())]


def _rights(change: str, user: str, times: int = 1) -> Callable[[Stage], None]:
    """A producer and a group member of alice; then the rights of a user for their topic change."""

    def play(stage: Stage) -> None:
        broker = stage.broker(listeners=(SASL,), properties=AUTHORIZER)
        inside, bootstrap = _inside(broker), broker.bootstrap(SASL.name)
        program = java_program("Rights", version=DEFAULT_VERSION, sources="java-faults")()
        stage.run(java_waits("topic", inside, "orders", "1"))
        for owner, kind, name in (
            ("alice", "topic", "orders"),
            ("alice", "group", "readers"),
            ("bob", "topic", "orders"),
        ):
            stage.run([*program, "grant", inside, owner, kind, name])
        with stage.recording(broker.port(SASL.name)):
            writes = _login("alice", "writer") | {"linger_ms": "0", "retry_backoff_ms": "300", "every": ".5"}
            stage.start(rdkafka(stage, 60, bootstrap, **writes))
            stage.start(_reader(bootstrap, **_login("alice", "reader")))
            time.sleep(4)
            stage.run([*program, change, inside, user, "topic", "orders", str(times), "2000"])
            time.sleep(3)

    return play


def _directory(behaviour: str, every: str = ".5") -> Callable[[Stage], None]:
    """Four programs log in at a broker whose `Directory` behaves like this."""

    def play(stage: Stage) -> None:
        file = stage.work / "directory"
        asks = {"plain_sasl_jaas_config": f"{_PLAIN};", "plain_sasl_server_callback_handler_class": "Directory"}
        broker = stage.broker(
            listeners=(_listener(**asks),),
            jars=(Path(java_classes(DEFAULT_VERSION, "java-faults")),),
            java_options=(f"-Ddirectory={file}",),
        )
        stage.run(java_waits("topic", _inside(broker), "orders", "1"))
        file.write_text(behaviour)
        with stage.recording(broker.port(SASL.name)):
            for user in _USERS:
                writes = _login(user, f"app-of-{user}") | {"linger_ms": "0", "reconnect_backoff_ms": "900"}
                stage.start(rdkafka(stage, 11, broker.bootstrap(SASL.name), every=every, **writes))
            time.sleep(12)

    return play


def _users(*both: str) -> Callable[[Stage], None]:
    """Two brokers, the second of which has the passwords of alice and of `both` alone; the first has bob's, too."""

    def play(stage: Stage) -> None:
        known = [
            " ".join(f'user_{user}="{user}-secret"' for user in users) for users in (("alice", "bob"), ("alice", *both))
        ]
        listeners = [_listener(plain_sasl_jaas_config=f"{_PLAIN} {users};") for users in known]
        first = stage.broker(listeners=listeners[:1])
        second = stage.broker(listeners=listeners[1:], controller=first)
        stage.run(java_waits("topic", _inside(first), "orders", "2"))
        bootstrap = first.bootstrap(SASL.name)
        with stage.recording(first.port(SASL.name), second.port(SASL.name)):
            for user in ("alice", "bob"):
                writes = _login(user, f"app-of-{user}") | {"linger_ms": "0", "reconnect_backoff_ms": "900"}
                stage.start(rdkafka(stage, 8, bootstrap, every=".5", **writes))
            time.sleep(9)

    return play


FAULTS = [
    Fault(
        "rights-revoked.pcap",
        "the rights of alice for a topic are taken away while a producer and a consumer of hers use it",
        _rights("revoke", "alice"),
        sniff=_OPEN,
    ),
    Fault(
        "rights-flap.pcap",
        "the rights of alice for a topic are taken away while her programs use it, and given back after 2 seconds; "
        "twice",
        _rights("turns", "alice", 2),
        sniff=_OPEN,
    ),
    Fault(
        "rights-of-others-revoked.pcap",
        "as rights-revoked, with the rights of bob, who has no program there",
        _rights("revoke", "bob"),
        looks_like="rights-revoked.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "logins-slow.pcap",
        f"four programs at a broker that takes {_SLOW_MS} ms to check each password, one after the other",
        _directory(f"slow {_SLOW_MS}"),
        sniff=_OPEN,
    ),
    Fault(
        "logins-take-a-moment.pcap",
        "the same with 100 ms",
        _directory("slow 100"),
        looks_like="logins-slow.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "logins-fail-in-turns.pcap",
        "four programs with the right passwords at a broker that refuses every other login",
        _directory("every 2"),
        sniff=_OPEN,
    ),
    Fault(
        "users-differ.pcap",
        "two brokers, the second of which does not have bob's password (sasl.jaas.config); programs of alice and bob",
        _users(),
        sniff=_OPEN,
    ),
    Fault(
        "users-alike.pcap",
        "the same with the same passwords at both",
        _users("bob"),
        looks_like="users-differ.pcap",
        sniff=_OPEN,
    ),
]
