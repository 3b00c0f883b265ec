"""Structures inside bytes: groups, coordinators' and KRaft's records, OTLP, SASL, Connect, voters. An input: reader,
variant, bytes. Nothing is raised, and every result can be written as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from kafkasniff.kafka.embedded import internal_topics
from kafkasniff.kafka.embedded.internal_topics import INTERNAL_TOPICS, interpret_metadata, interpret_topic, read_framed
from kafkasniff.kafka.embedded.sasl_messages import describe_message
from kafkasniff.kafka.embedded.telemetry import push_telemetry_request, read_metrics
from kafkasniff.kafka.messages.message import decode_request, decode_response
from kafkasniff.kafka.records.record_list import VALUE_SCHEMAS, control_record
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions, GroupProtocol
from kafkasniff.kafka.schema.schema import data_definitions, data_schema
from kafkasniff.kafka.schema.secrets import CONNECT_KEYS, redacted_content
from kafkasniff.sinks.jsonl import body_json
from tests.fuzz.corpus import conversations, spread, vectors_of
from tests.fuzz.intake import Intake
from tests.fuzz.messages import check_schema
from tests.kafka.embedded.test_telemetry import everything

MAX_LENGTH = 3000
MEGABYTES = 512
"""4 MB of metrics may take 40 times as much while they are parsed (embedded/telemetry.py)."""
WORDS = (
    *(b"n,,n=user,r=abc", b"r=abc,s=YWJj,i=4096", b"c=biws,r=abc,p=YWJj", b"e=other-error"),
    *(b"n,a=user,\x01auth=Bearer abc\x01\x01", b'{"status":"invalid_token"}', b"\\ud800"),
    bytes.fromhex("604006092a864886f71201020201 00"),
    *(b'{"properties":{"password":"secret"}}', b"[[[[[[[[", b'"properties"'),
    *(b"\x0a\x02\x12\x00", b"\x01\x00\x00", b"\x00\x03"),
)

_MECHANISMS: Final = (None, "PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "OTHER")
_PROTOCOLS: Final = (
    None,
    *(GroupProtocol("consumer", name) for name in (None, "sticky", "cooperative-sticky", "stream")),
    *(GroupProtocol("connect", "sessioned"), GroupProtocol("other", "x")),
)
_TOPICS: Final = tuple(sorted(INTERNAL_TOPICS))
_BLOCKS: Final = tuple(sorted(data_definitions()))
MOST: Final = 4 << 20
_OPTIONS: Final = (DecodeOptions(max_decompressed=MOST), DecodeOptions(max_decompressed=MOST, show_secrets=True))


def _writable(reported: Any) -> None:
    """Every result has a form in JSON."""
    orjson.loads(body_json({"reported": reported}))


def _sasl(way: int, intake: Intake) -> None:
    data = intake.rest()
    direction = "response" if way & 1 else "request"
    _writable(describe_message(_MECHANISMS[(way >> 1) % len(_MECHANISMS)], direction, data))


def _group(way: int, intake: Intake) -> None:
    context = DecodeContext(_OPTIONS[0])
    read = internal_topics.assignment if way & 1 else internal_topics.metadata
    _writable(read(intake.rest(), _PROTOCOLS[(way >> 1) % len(_PROTOCOLS)], context, "field"))


def _record(intake: Intake) -> dict[str, Any]:
    """A record with a key and a value; each is null if its length has the highest bit set."""
    fields: list[bytes | None] = []
    for _ in range(2):
        size = intake.number(2)
        fields.append(None if size & 0x8000 else intake.take(size))
    return {"offset": 7, "timestamp": 1, "key": fields[0], "value": fields[1], "headers": []}


def _topic(way: int, intake: Intake) -> None:
    records = {"batches": [{"records": [_record(intake), _record(intake)]}], "truncated_bytes": 0}
    interpret_topic(_TOPICS[way % len(_TOPICS)], records, [])
    _writable(records)


def _metadata(way: int, intake: Intake) -> None:
    record = _record(intake)
    context = DecodeContext(_OPTIONS[way & 1])
    batch: dict[str, Any] = {"records": [record]}
    if way & 2:
        batch["control"] = True
        record["_control"] = control_record(record["key"], record["value"], context, 0)
    interpret_metadata({"batches": [batch]}, context)
    _writable(batch)


def _framed(way: int, intake: Intake) -> None:
    _writable(read_framed(intake.rest(), "remote-log" if way & 2 else "metadata", _OPTIONS[way & 1]).value)


def _control(way: int, intake: Intake) -> None:
    kind = way % (len(VALUE_SCHEMAS) + 1)
    key = bytes(2) + kind.to_bytes(2) if way < 128 else intake.take(way & 7)
    _writable(control_record(key, intake.rest(), DecodeContext(_OPTIONS[0]), 0))


def _metrics(way: int, intake: Intake) -> None:
    data = intake.rest()
    if way & 8:
        found = read_metrics(data)
        _writable(found and found.metrics)
        return
    body = {"metrics": data, "compression_type": way & 7}
    push_telemetry_request(body, 0, DecodeContext(_OPTIONS[0]))
    _writable(body)


def _connect(way: int, intake: Intake) -> None:
    _writable(redacted_content(CONNECT_KEYS[way % len(CONNECT_KEYS)], intake.rest()))


def _envelope(way: int, intake: Intake) -> None:
    options = _OPTIONS[way & 1]
    request = intake.take(intake.number(2))
    asked = decode_request(request, 0, len(request), options)
    response = intake.rest()
    answered = decode_response(response, 0, len(response), 58, 0, options, request=asked.carry)
    _writable(asked.body)
    _writable(answered.body)


def _block(way: int, intake: Intake) -> None:
    definition = data_definitions()[_BLOCKS[(way << 8 | intake.number()) % len(_BLOCKS)]]
    versions = definition.message.versions
    schema = data_schema(definition.message.name, versions.low + intake.number() % (versions.high - versions.low + 1))
    check_schema(schema, intake.rest())


_READERS: Final[tuple[Callable[[int, Intake], None], ...]] = (
    *(_sasl, _group, _topic, _metadata, _framed, _control, _metrics, _connect, _envelope, _block),
)


def one_input(data: bytes) -> None:
    intake = Intake(data)
    reader = _READERS[intake.number() % len(_READERS)]
    reader(intake.number(), intake)


def _seed(reader: Callable[[int, Intake], None], way: int, data: bytes) -> bytes:
    return bytes((_READERS.index(reader), way)) + data


def _sized(*fields: bytes) -> bytes:
    return b"".join(len(field).to_bytes(2) + field for field in fields)


def _of_vectors() -> list[bytes]:
    found = []
    definitions = data_definitions()
    for vector in spread(vectors_of("data"), 400):
        name, version = vector.name, vector.version
        definition = definitions.get(name)
        if definition is None:
            continue
        number = _BLOCKS.index(name)
        place = bytes((number & 0xFF, version - definition.message.versions.low))
        found.append(_seed(_block, number >> 8, place + vector.data))
        written = version.to_bytes(2, "big", signed=True) + vector.data
        if name.startswith("ConsumerProtocol") or name.startswith("Connect"):
            found += [_seed(_group, way, written) for way in (2, 8, 10, 11)]
        elif definition.kind in ("metadata", "remote-log") and definition.id is not None and version < 128:
            framed = b"\x01" + bytes((definition.id & 0x7F, version)) + vector.data
            found.append(_seed(_framed, 2 * (definition.kind == "remote-log"), framed))
            found.append(_seed(_metadata, 0, _sized(b"", framed)))
        elif definition.kind == "coordinator-value" and definition.id is not None:
            key = definition.id.to_bytes(2) + bytes(12)
            found += [_seed(_topic, way, _sized(key, written)) for way in range(len(_TOPICS))]
        elif definition.kind == "coordinator-key" and definition.id is not None:
            found.append(_seed(_topic, 0, _sized(definition.id.to_bytes(2) + vector.data, b"")))
        elif definition.kind == "control":
            kinds = [kind for kind, one in VALUE_SCHEMAS.items() if one == name]
            found += [_seed(_control, kind, written if kind < 2 else vector.data) for kind in kinds]
    return found


def _of_captures() -> list[bytes]:
    said = [one.data[4:] for talk in conversations() for one in talk if one.data[4:6] == b"\x00\x3a"]
    return [_seed(_envelope, 0, _sized(data)) for data in said[:20]]


def seeds() -> list[bytes]:
    found = [_seed(_metrics, way, everything().SerializeToString()) for way in (0, 8)]
    tokens = (b"\0user\0secret", *WORDS[:8], b'{"status":"invalid_token","scope":"a"}')
    found += [_seed(_sasl, way, token) for token in tokens for way in (0, 1, 2, 4, 5, 6, 7, 8, 9)]
    configs = (b'{"properties":{"connector.class":"x","password":"secret","n":1}}', b'{"key":"abc","algorithm":"x"}')
    found += [_seed(_connect, way, config) for config in configs for way in range(3)]
    envelopes = [vector for vector in vectors_of("request", "response") if vector.name == "Envelope"]
    for vector in envelopes:
        head = _sized(vector.data) if vector.kind == "request" else _sized(b"") + vector.data
        found.append(_seed(_envelope, 1, head))
    return found + _of_vectors() + _of_captures()
