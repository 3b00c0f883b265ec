"""Recordings of credentials that are gone: in the middle of a session, of one user, and of all at once."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..broker import Listener
from ..programs import SASL
from ..sniffer import SniffOptions
from . import Fault, Stage
from .clients import java, rdkafka
from .waits import java_waits

_MECHANISM = "SCRAM-SHA-256"
_USERS = ("alice", "bob", "carol", "dave")
_OPEN = SniffOptions(until_quiet=False)
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


_TOKENS = Listener(
    SASL.name,
    SASL.protocol,
    properties={
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    },
)
TOKEN_S = 6


def _tokens(kept: bool) -> Callable[[Stage], None]:
    """A producer whose tokens hold for some seconds; it presents new ones in time, or always the first one."""

    def play(stage: Stage) -> None:
        broker = stage.broker(listeners=(_TOKENS,))
        stage.run(java_waits("topic", f"127.0.0.1:{broker.port('INTERNAL')}", "orders", "1"))
        settings = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        settings |= {"token_life": str(TOKEN_S), "token_kept": "yes" if kept else "no", "client_id": "courier"}
        with stage.recording(broker.port(SASL.name)):
            stage.run(rdkafka(stage, 12, broker.bootstrap(SASL.name), every=".5", linger_ms="0", **settings))

    return play


def _login(user: str) -> dict[str, str]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": _MECHANISM,
        "sasl_jaas_config": f'{_LOGIN} username="{user}" password="{user}-secret";',
    }


def _gone(users: int, session_ms: int = 0) -> Callable[[Stage], None]:
    """Producers of all users; the credentials of some are deleted while they work."""

    def play(stage: Stage) -> None:
        limits = {"scram-sha-256.connections.max.reauth.ms": str(session_ms)} if session_ms else {}
        listener = Listener(SASL.name, SASL.protocol, properties={**SASL.properties, **limits})
        options = [
            word for user in _USERS for word in ("--add-scram", f"{_MECHANISM}=[name={user},password={user}-secret]")
        ]
        broker = stage.broker(listeners=(listener,), storage_options=options)
        inside = f"127.0.0.1:{broker.port('INTERNAL')}"
        stage.run(java_waits("topic", inside, "orders", "1"))
        bootstrap = broker.bootstrap(SASL.name)

        def come_and_go() -> None:
            for user in _USERS:
                login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanisms": _MECHANISM}
                login |= {"sasl_username": user, "sasl_password": f"{user}-secret", "client_id": f"app-of-{user}"}
                stage.run(rdkafka(stage, 1, bootstrap, reconnect_backoff_ms="900", linger_ms="0", **login))

        with stage.recording(broker.port(SASL.name)):
            if session_ms:
                stage.start(java(stage, 14, bootstrap, client_id="app-of-alice", linger_ms="0", **_login("alice")))
                stage.start(java(stage, 14, bootstrap, client_id="app-of-bob", linger_ms="0", **_login("bob")))
                time.sleep(6)
            else:
                come_and_go()
            stage.run(java_waits("forget", inside, ",".join(_USERS[:users])))
            if session_ms:
                time.sleep(7)
            else:
                come_and_go()

    return play


FAULTS = [
    Fault(
        "token-expired.pcap",
        f"OAUTHBEARER with tokens that hold for {TOKEN_S} s; when the first one is over, the client presents it again",
        _tokens(kept=True),
        sniff=_OPEN,
    ),
    Fault(
        "token-renewed.pcap",
        "the same with a new token each time",
        _tokens(kept=False),
        looks_like="token-expired.pcap",
        sniff=_OPEN,
    ),
    Fault(
        "sasl-all-refused.pcap",
        "the credentials of all four users are deleted at once; before that, their programs worked",
        _gone(4),
        sniff=_OPEN,
    ),
    Fault(
        "sasl-one-refused.pcap",
        "the same, with the credentials of one of the four users",
        _gone(1),
        sniff=_OPEN,
    ),
    Fault(
        "sasl-not-renewed.pcap",
        "sessions of 3 seconds (connections.max.reauth.ms); the credentials of one of two users are deleted, and its "
        "next authentication on the same connection fails",
        _gone(1, 3000),
        sniff=_OPEN,
    ),
]
