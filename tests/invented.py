"""Two APIs that no release of Kafka has, defined within `known()` only: one has payload, secrets, floats and names
wherever a definition allows them; the requests of the other report what their sender knows."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.kafka.apis import dissectors
from kafkasniff.kafka.schema import codes, schema
from kafkasniff.kafka.schema.codes import data_folder
from tests.craft.conversation import START_NS, Conversation
from tests.craft.from_layout import data_bytes, request_bytes, response_bytes
from tests.craft.packet import Packet
from tests.kafka.embedded.metadata_craft import framed
from tests.kafka.records_craft import GZIP, LZ4, Record, batch_of, message
from tests.secret_traffic import forms

KEY = dissectors.api_keys()[-1] + 1
REPORT = KEY + 1
VERSIONS = range(3)
_FIELDS = """
  topic          string         entity topic_name
  note           string         payload
  first          records?
  second         records
  old            records?
  slices         []records
  blobs          []bytes        payload
  passwords      []string       secret
  optional       {}?
    records      records
    blob         bytes?         payload
  parts          []
    name         string         entity topic_name
    partitions   []
      index      int32
      records    records?
      blob       bytes?         payload
      token      bytes          secret
  deep           {}
    deeper       {}
      several    []?
        records  records?
        words    []string       payload
        hidden   string?        secret
  group          string         entity group_id
  kind           int8
  whose          []string       entity_by kind=0:group_id,1:transactional_id
  rate           float64
  rates          []float64
  named          []
    topic_id     uuid
    name         string         entity topic_name
  ids            []
    topic_id     uuid
    records      records?
  settings       []
    name         string
    value        string?        secret config
  log            records?       secret
  forwarded      bytes?         secret  nests DIRECTION
  late_records   records?   1+  tag 0
  late_blob      bytes?     1+  tag 1  payload
  late_parts     []         1+  tag 2
    records      records
    words        []string       payload
  late_secret    bytes      1+  tag 3  secret
  last           int32
"""
DEFINITION = (
    "# Carries what has to be hidden, wherever a definition can put it.\n"
    f"api {KEY} Invented   versions {VERSIONS[0]}-{VERSIONS[-1]}   flexible 1+\nlisteners broker\n\n"
    f"request headers 1:0 2:1+{_FIELDS.replace('DIRECTION', 'request')}\n"
    f"response headers 0:0 1:1+\n  error_code  error{_FIELDS.replace('DIRECTION', 'response')}"
)
REPORT_DEFINITION = f"""# A broker reports topics, its address and its software.
api {REPORT} Report   versions 0
listeners broker
reports
from_brokers

request headers 1:0
  software    string  entity software_name
  version     string  entity software_version
  topics      []
    topic_id  uuid
    name      string  entity topic_name
  nodes       []
    node_id   int32   entity broker_id
    host      string
    port      int32

response headers 0:0
  error_code  error
"""
FILES = {f"{KEY:03d}_invented.txt": DEFINITION, f"{REPORT:03d}_report.txt": REPORT_DEFINITION}
FLOATS = [float("nan"), float("inf"), float("-inf"), 0.5]
SHIPMENTS, RETURNS = bytes(range(16)), bytes(range(1, 17))
"""Ids of topics: of the one whose name its own message has, and of one that a Report names."""
SOFTWARE = ("inventor", "0.9")

_TRACE = b"0ddba110ddba11"
_SESSION = base64.b64encode(b"hidden-")[:9]
PAYLOAD: dict[str, bytes] = {}
"""Payload by its place; each value differs from all others in any form."""
SECRETS: dict[str, bytes] = {}


def _payload(place: str) -> bytes:
    return PAYLOAD.setdefault(place, b"payload-" + hashlib.blake2b(place.encode(), digest_size=9).hexdigest().encode())


def _secret(place: str) -> bytes:
    return SECRETS.setdefault(place, b"hidden-" + hashlib.blake2b(place.encode(), digest_size=9).hexdigest().encode())


def _records(place: str, codec: int = 0) -> bytes:
    trace = _TRACE + hashlib.blake2b(place.encode(), digest_size=9).hexdigest().encode()
    PAYLOAD[f"{place} trace id"] = trace
    header = b"00-" + trace + b"-00f067aa0ba902b7-01"
    session = base64.b64encode(b"hidden-" + place.encode()).decode()
    first = Record(
        0, 0, _payload(f"{place} key"), _payload(f"{place} value"),
        (("traceparent", header), ("h", _payload(f"{place} header"))),
    )  # fmt: skip
    # Kafka Connect's topic may have any name, so its records may be in any field.
    SECRETS[f"{place} session key"] = session.encode()
    return batch_of([first, Record(1, 0, b"session-key", f'{{"key":"{session}"}}'.encode())], codec)


def _metadata_log(side: str) -> bytes:
    value = _secret(f"{side} setting in the metadata log").decode()
    setting = {"resource_type": 4, "resource_name": "1", "name": "ssl.key.password", "value": value}
    return batch_of([Record(0, 0, None, framed(4, 0, data_bytes("ConfigRecord", 0, **setting)))])


def values(side: str, *, tagged: bool) -> dict[str, Any]:
    """A body with something to hide in every field that can hold it."""

    def payload(place: str) -> bytes:
        return _payload(f"{side} {place}")

    def secret(place: str) -> bytes:
        return _secret(f"{side} {place}")

    def records(place: str, codec: int = 0) -> bytes:
        return _records(f"{side} {place}", codec)

    def partition(index: int) -> dict[str, Any]:
        place = f"partition {index}"
        return {"index": index, "records": records(place, GZIP * index), "blob": payload(f"{place} blob"),
                "token": secret(f"{place} token")}  # fmt: skip

    made = {
        "topic": "orders", "note": payload("note").decode(),
        "first": records("first"), "second": records("second", LZ4),
        "old": message(7, payload("old key"), payload("old value")),
        "slices": [records("slice 0"), records("slice 1")],
        "blobs": [payload("blob 0"), payload("blob 1")],
        "passwords": [secret("password 0").decode(), secret("password 1").decode()],
        "optional": {"records": records("optional"), "blob": payload("optional blob")},
        "parts": [
            {"name": "payments", "partitions": [partition(0), partition(1)]},
            # In any message its records are hidden, except for fields known not to be secret.
            {"name": "__cluster_metadata", "partitions": [{"records": _metadata_log(side)}]},
        ],
        "group": "billing", "kind": 1, "whose": ["transfer-7"], "rate": FLOATS[0], "rates": FLOATS,
        "named": [{"topic_id": SHIPMENTS, "name": "shipments"}],
        "ids": [{"topic_id": one, "records": records(f"id {one[0]}")} for one in (SHIPMENTS, RETURNS)],
        "deep": {
            "deeper": {
                "several": [
                    {"records": records(f"several {n}"), "words": [payload(f"word {n}").decode()],
                     "hidden": secret(f"several {n}").decode()}
                    for n in range(2)
                ]
            }
        },
        "settings": [{"name": "ssl.key.password", "value": secret("setting").decode()}],
        "log": batch_of([Record(0, 0, secret("key in the log"), secret("value in the log"))]),
        "forwarded": _forwarded(side) if tagged else secret("forwarded"),
        "last": 17,
    }  # fmt: skip
    if tagged:
        made |= {
            "late_records": records("late"),
            "late_blob": payload("late blob"),
            "late_parts": [{"records": records("late part"), "words": [payload("late word").decode()]}],
            "late_secret": secret("late secret"),
        }
    return made


def _forwarded(side: str) -> bytes:
    """A whole message of the API's first version."""
    make = request_bytes if side == "request" else response_bytes
    return make(KEY, 0, 77, **values(f"{side} inside", tagged=False))[4:]


@contextlib.contextmanager
def known(folder: Path, files: Mapping[str, str] | None = None) -> Iterator[None]:
    """Make the APIs known, or those of `files`. `folder` receives a copy of the definitions that includes them."""
    copied = folder / "dissectors"
    shutil.copytree(str(data_folder()), copied)
    for name, text in (FILES if files is None else files).items():
        (copied / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        for module in (codes, schema):
            patch.setattr(module, "data_folder", lambda: copied)
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    """Empty the caches of everything built from definitions."""
    for name, module in list(sys.modules.items()):
        if name.startswith("kafkasniff"):
            for one in list(vars(module).values()):
                if (getattr(one, "__module__", None) or "").startswith("kafkasniff") and hasattr(one, "cache_clear"):
                    one.cache_clear()


def requests(version: int, *, tagged: bool = True) -> bytes:
    return request_bytes(KEY, version, 10 + version, **values("request", tagged=tagged and version > 0))


def responses(version: int, *, tagged: bool = True) -> bytes:
    return response_bytes(KEY, version, 10 + version, **values("response", tagged=tagged and version > 0))


def packets() -> list[Packet]:
    """A connection with an exchange of each version, and one that an Envelope carries."""
    talk = Conversation(("10.0.0.5", 51_000), ("10.0.0.9", 9092), start_ns=START_NS)
    talk.handshake()
    talk.exchange(request_bytes(18, 0, 1), response_bytes(18, 0, 1, api_keys=[{"max_version": 9}]))
    report = {
        "software": SOFTWARE[0], "version": SOFTWARE[1], "topics": [{"topic_id": RETURNS, "name": "returns"}],
        "nodes": [{"node_id": 4, "host": "10.0.0.9", "port": 9092}],
    }  # fmt: skip
    talk.exchange(request_bytes(REPORT, 0, 2, **report), response_bytes(REPORT, 0, 2))
    for version in VERSIONS:
        talk.exchange(requests(version), responses(version))
    inside = {"request_data": requests(2)[4:], "client_host_address": b"\x0a\0\0\x05"}
    talk.exchange(request_bytes(58, 0, 20, **inside), response_bytes(58, 0, 20, response_data=responses(2)[4:]))
    talk.close()
    return talk.packets


def _found(named: dict[str, bytes], beginnings: tuple[bytes, ...], output: bytes) -> set[str]:
    if not any(form in output for one in beginnings for form in forms(one)):
        return set()
    return {name for name, value in named.items() if any(form in output for form in forms(value))}


def payload_in(output: bytes) -> set[str]:
    """Places whose payload appears in an output in any form."""
    return _found(PAYLOAD, (b"payload-", _TRACE), output)


def secrets_in(output: bytes) -> set[str]:
    """Places whose secrets appear in an output in any form."""
    return _found(SECRETS, (b"hidden-", _SESSION), output)
