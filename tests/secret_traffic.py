"""Connections with secrets wherever Kafka has them, and the search for these secrets in any output."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from tests.craft.conversation import START_NS, Conversation, interleaved
from tests.craft.from_layout import data_bytes, request_bytes, response_bytes
from tests.craft.kafka_bytes import frame as token
from tests.craft.packet import Packet
from tests.kafka.embedded.metadata_craft import METADATA_ID, framed
from tests.kafka.records_craft import LZ4, Record, batch_of

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
TOPIC_ID = bytes(range(1, 17))


def _binary(name: str, size: int = 32) -> bytes:
    return hashlib.shake_128(name.encode()).digest(size)


# No secret is part of another one in any form.
TEXTS = {
    "plain password": b"s3cret-of-alice-PLAIN",
    "raw plain password": b"s3cret-of-bob-raw",
    "scram nonce": b"rOprNGfwEbeRWgbNEkqO",
    "bearer token": b"eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.c2ln",
    "private key": b"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj",
    **{
        name: base64.b64encode(_binary(name))
        for name in ("client proof", "raw client proof", "server signature", "session key")
    },
    **{name: _binary(name, 64) for name in ("hmac made", "hmac renewed", "hmac expired", "hmac described")},
    **{name: _binary(name) for name in ("salt", "salted password", "forwarded salted password")},
    **{name: _binary(name) for name in ("stored key", "server key", "snapshot stored key")},
    **{
        name: f"changeit-{rest}".encode()
        for name, rest in {
            **{"keystore password": "of-the-keystore", "jaas password": "of-the-login-module"},
            **{"jaas password of a listener": "of-the-listener", "sensitive by flag": "said-the-broker"},
            **{"synonym": "in-the-synonym", "created topic's": "of-the-created-topic"},
            **{"forwarded": "forwarded-to-the-controller", "metadata config": "in-the-metadata-log"},
            **{"snapshot config": "in-the-snapshot", "connector password": "of-the-connector"},
            **{"connector url": "in-the-url", "task password": "of-the-task"},
        }.items()
    },
}


def forms(secret: bytes) -> Iterator[bytes]:
    """All forms in which a secret may appear in an output."""
    yield secret
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    yield secret.hex(" ").encode()
    yield repr(secret)[2:-1].encode()
    for shift in range(3):
        # Base64 of bytes that contain it at any offset: the characters that encode it alone.
        text = base64.b64encode(bytes(shift) + secret)
        first, last = -(-shift * 8 // 6), (shift + len(secret)) * 8 // 6
        yield text[first:last]
        yield text[first:last].replace(b"+", b"-").replace(b"/", b"_")


FORMS = {name: tuple(set(forms(secret))) for name, secret in TEXTS.items()}


def found_in(output: bytes) -> set[str]:
    """Names of the secrets that appear in an output in any form."""
    return {name for name, every in FORMS.items() if any(form in output for form in every)}


class Case(NamedTuple):
    name: str
    request: bytes
    response: bytes
    api_key: int
    version: int
    secrets: frozenset[str]
    in_response: bool


def _text(name: str) -> str:
    return TEXTS[name].decode()


def _module(password: str) -> str:
    return (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{_text(password)}";'
    )


def _configs() -> list[dict[str, object]]:
    return [
        {"name": "ssl.keystore.password", "value": _text("keystore password")},
        {"name": "sasl.jaas.config", "value": _module("jaas password")},
        {"name": "listener.name.internal.plain.sasl.jaas.config", "value": _module("jaas password of a listener")},
        {"name": "ssl.keystore.key", "value": _text("private key")},
        {"name": "retention.ms", "value": "86400000"},
    ]


def _upsertion(password: str) -> dict[str, object]:
    secrets = {"salt": TEXTS["salt"], "salted_password": TEXTS[password]}
    return {"name": "carol", "mechanism": 1, "iterations": 8192, **secrets}


_BY_CONFIG = frozenset({"keystore password", "jaas password", "jaas password of a listener", "private key"})


def connect_records(codec: int = 0) -> bytes:
    session = f'{{"key":"{_text("session key")}","algorithm":"HmacSHA256","creation-timestamp":1795289765379}}'
    connector = (
        '{"properties":{"connector.class":"x.Jdbc","connection.url":"jdbc:postgresql://app:'
        f'{_text("connector url")}@db/x","connection.password":"{_text("connector password")}","tasks.max":"1"}}}}'
    )
    task = f'{{"properties":{{"task.class":"x.JdbcTask","database.password":"{_text("task password")}"}}}}'
    records = [
        Record(0, 0, b"session-key", session.encode()),
        Record(1, 0, b"connector-jdbc", connector.encode()),
        Record(2, 0, b"task-jdbc-0", task.encode()),
        Record(3, 0, b"commit-jdbc", b'{"tasks":1}'),
    ]
    return batch_of(records, codec)


_CONNECT = frozenset({"session key", "connector password", "connector url", "task password"})


def metadata_records(config: str, stored_key: str) -> bytes:
    setting = {"resource_type": 4, "resource_name": "1", "name": "ssl.key.password", "value": TEXTS[config]}
    keys = {"salt": TEXTS["salt"], "stored_key": TEXTS[stored_key], "server_key": TEXTS["server key"]}
    credential = {"name": "carol", "mechanism": 1, **keys, "iterations": 8192}
    values = [
        framed(4, 0, data_bytes("ConfigRecord", 0, **setting)),
        framed(11, 0, data_bytes("UserScramCredentialRecord", 0, **credential)),
    ]
    return batch_of([Record(offset, 0, None, value) for offset, value in enumerate(values)])


def _fetched(topic: dict[str, object], records: bytes) -> list[dict[str, object]]:
    return [{**topic, "partitions": [{"partition_index": 0, "records": records}]}]


def cases() -> list[Case]:
    """Messages with secrets, each with the other message of its exchange."""
    made: list[Case] = []

    def add(name, key, version, secrets, asked, answered, in_response):  # noqa: PLR0917
        number = len(made) + 1
        one, other = request_bytes(key, version, number, **asked), response_bytes(key, version, number, **answered)
        made.append(Case(name, one, other, key, version, frozenset(secrets), in_response))

    def asks(name, key, version, secrets, answered=None, **asked):
        add(name, key, version, secrets, asked, answered or {}, in_response=False)

    def answers(name, key, version, secrets, asked=None, **answered):
        add(name, key, version, secrets, asked or {}, answered, in_response=True)

    def authenticates(name, version, secrets, sent, **answered):
        asks(name, SASL_AUTHENTICATE, version, secrets, answered, auth_bytes=sent)

    final = b"c=biws,r=" + TEXTS["scram nonce"] + b",p=" + TEXTS["client proof"]
    signed = b"v=" + TEXTS["server signature"]
    for version in (1, 2):
        plain = b"\0alice\0" + TEXTS["plain password"]
        authenticates(f"plain v{version}", version, ["plain password"], plain, session_lifetime_ms=60000)
        authenticates(f"client-final v{version}", version, ["client proof", "scram nonce"], final, auth_bytes=signed)
        answers(f"server-final v{version}", SASL_AUTHENTICATE, version, ["server signature"], {"auth_bytes": final},
                auth_bytes=signed)  # fmt: skip
    bearer = b"n,a=alice,\x01auth=Bearer " + TEXTS["bearer token"] + b"\x01\x01"
    authenticates("bearer", 2, ["bearer token"], bearer, session_lifetime_ms=60000)
    token_of = {"principal_type": "User", "principal_name": "alice", "token_id": "AbCdEf0123456789"}
    renewers = [{"principal_type": "User", "principal_name": "bob"}]
    described = {**token_of, "hmac": TEXTS["hmac described"], "renewers": renewers}
    for version in (1, 3):
        answers(f"token made v{version}", 38, version, ["hmac made"], {"max_lifetime_ms": -1}, **token_of,
                hmac=TEXTS["hmac made"])  # fmt: skip
        answers(f"tokens described v{version}", 41, version, ["hmac described"], tokens=[described, described])
    resource = {"resource_type": 4, "resource_name": "1"}
    changed = [{**resource, "configs": _configs()}]
    for version in (1, 2):
        asks(f"token renewed v{version}", 39, version, ["hmac renewed"], hmac=TEXTS["hmac renewed"])
        asks(f"token expired v{version}", 40, version, ["hmac expired"], hmac=TEXTS["hmac expired"])
        asks(f"configs set v{version}", 33, version, _BY_CONFIG, resources=changed)
        asks(f"configs changed v{version - 1}", 44, version - 1, _BY_CONFIG, resources=changed)
    plugin = {"name": "a.plugin", "value": _text("sensitive by flag"), "is_sensitive": 1}
    synonyms = [{"name": "a.plugin", "value": _text("synonym"), "source": 4}]
    reported = [{**one, "synonyms": [{**one, "source": 4}]} for one in _configs()]
    results = [{**resource, "configs": [*reported, {**plugin, "synonyms": synonyms}]}]
    for version in (1, 4):
        answers(f"configs described v{version}", 32, version, {*_BY_CONFIG, "sensitive by flag", "synonym"},
                {"resources": [resource]}, results=results)  # fmt: skip
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 1,
             "configs": [{"name": "my.secret", "value": _text("created topic's")}]}  # fmt: skip
    for version in (4, 7):
        asks(f"topic created v{version}", 19, version, ["created topic's"], topics=[topic])
    answers("topic created, answer", 19, 7, ["created topic's"], {"topics": [topic]}, topics=[topic])
    upsertions, deletions = [_upsertion("salted password")], [{"name": "dave", "mechanism": 1}]
    asks("scram altered", 51, 0, ["salt", "salted password"], deletions=deletions, upsertions=upsertions)
    truststore = [{**resource, "configs": [{"name": "ssl.truststore.password", "value": _text("forwarded")}]}]
    forwarded = request_bytes(51, 0, 7, upsertions=[_upsertion("forwarded salted password")])
    for name, secrets, inner in (
        ("configs", ["forwarded"], request_bytes(44, 1, 7, resources=truststore)),
        ("scram", ["salt", "forwarded salted password"], forwarded),
    ):
        asks(f"envelope of {name}", 58, 0, secrets, request_data=inner[4:], client_host_address=b"\x0a\0\0\x05")
    for codec in (0, LZ4):
        for version, where in ((9, {"name": "connect-configs"}), (13, {"topic_id": TOPIC_ID})):
            partitions = [{"index": 0, "records": connect_records(codec)}]
            asks(f"connect produced v{version} {codec}", 0, version, _CONNECT, acks=1,
                 topic_data=[{**where, "partition_data": partitions}])  # fmt: skip
    answers("connect fetched", 1, 12, _CONNECT, responses=_fetched({"topic": "connect-configs"}, connect_records()))
    metadata = metadata_records("metadata config", "stored key")
    in_log = ["metadata config", "salt", "stored key", "server key"]
    by_name, by_id = ({"topic": "__cluster_metadata"}, {"topic_id": METADATA_ID})
    answers("metadata log by name", 1, 12, in_log, responses=_fetched(by_name, metadata))
    answers("metadata log by id", 1, 17, in_log, responses=_fetched(by_id, metadata))
    records = metadata_records("snapshot config", "snapshot stored key")
    snapshot = [{"index": 0, "size": 1 << 20, "unaligned_records": records}]
    answers("snapshot", 59, 0, ["snapshot config", "salt", "snapshot stored key", "server key"],
            topics=[{"name": "__cluster_metadata", "partitions": snapshot}])  # fmt: skip
    return made


def _raw(port: int) -> Conversation:
    """Tokens without Kafka's headers (SaslHandshake v0): PLAIN, then SCRAM on another connection."""
    talk = Conversation(("10.0.0.7", port), ("10.0.0.9", 9092), start_ns=START_NS + 7 * port)
    talk.handshake()
    return talk


def capture() -> list[Packet]:
    """All cases on consecutive connections, and raw tokens."""
    talks = []
    for number, case in enumerate(cases()):
        talk = Conversation(("10.0.0.5", 50_000 + number), ("10.0.0.9", 9092), start_ns=START_NS + number * 1_000_000)
        talk.handshake()
        talk.exchange(request_bytes(18, 0, 900), response_bytes(18, 0, 900, api_keys=[{"max_version": 9}]))
        if case.api_key == SASL_AUTHENTICATE:
            mechanism = "PLAIN" if case.name.startswith("plain") else "SCRAM-SHA-256"
            mechanism = "OAUTHBEARER" if case.name == "bearer" else mechanism
            talk.exchange(request_bytes(SASL_HANDSHAKE, 1, 901, mechanism=mechanism),
                          response_bytes(SASL_HANDSHAKE, 1, 901, mechanisms=[mechanism]))  # fmt: skip
        talk.exchange(case.request, case.response)
        talk.close()
        talks.append(talk)
    plain = _raw(60_001)
    plain.exchange(request_bytes(SASL_HANDSHAKE, 0, 1, mechanism="PLAIN"),
                   response_bytes(SASL_HANDSHAKE, 0, 1, mechanisms=["PLAIN"]))  # fmt: skip
    plain.exchange(token(b"\0bob\0" + TEXTS["raw plain password"]), token(b""))
    scram = _raw(60_002)
    scram.exchange(request_bytes(SASL_HANDSHAKE, 0, 1, mechanism="SCRAM-SHA-256"),
                   response_bytes(SASL_HANDSHAKE, 0, 1, mechanisms=["SCRAM-SHA-256"]))  # fmt: skip
    nonce, salt = TEXTS["scram nonce"], base64.b64encode(TEXTS["salt"])
    scram.exchange(token(b"n,,n=bob,r=" + nonce), token(b"r=" + nonce + b"xy,s=" + salt + b",i=4096"))
    scram.exchange(token(b"c=biws,r=" + nonce + b"xy,p=" + TEXTS["raw client proof"]),
                   token(b"v=" + TEXTS["server signature"]))  # fmt: skip
    for talk in (plain, scram):
        talk.exchange(request_bytes(3, 0, 2), response_bytes(3, 0, 2))
        talk.close()
    return interleaved([*talks, plain, scram])
