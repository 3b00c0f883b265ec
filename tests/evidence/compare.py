"""A golden line held against what Kafka's own classes and a plain walk say of the same message, by rules of form alone:
names, bytes, `_field` interprets, legacy sets. A cut message is held against the reader's trace."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from captures.record.distribution import DEFAULT_VERSION
from tests.evidence.kafka_classes import Evidence
from tests.evidence.wire import Frame
from tests.renamed import as_released

Line = dict[str, Any]

_V2_ONLY = frozenset(
    (
        *("partition_leader_epoch", "transactional", "control", "last_offset_delta", "base_timestamp"),
        *("producer_id", "producer_epoch", "base_sequence"),
    )
)
_CHECKED = frozenset(("trailing-bytes", "version-unknown", "sasl-refused"))
_OF_THE_CUT = frozenset(("frame-incomplete", "body-truncated", "array-too-long"))
"""Kinds of problems within a message: those that the comparison looks at; those that follow from its missing end."""

SASL_APIS = frozenset(("SaslHandshake", "SaslAuthenticate"))
SASL_REFUSALS = frozenset((33, 34, 58))
"""UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED."""

_THEIRS_TOO = frozenset(("_unknown_tags", "_control"))
"""Names that begin with an underscore in Kafka's JSON, too."""

_V1_ONLY = frozenset(("timestamp_type", "max_timestamp"))


def _legacy(batch: dict[str, Any]) -> dict[str, Any]:
    """What a message of magic 0 or 1 holds of what Kafka's interface of a batch answers."""
    absent = _V2_ONLY if batch["magic"] else _V2_ONLY | _V1_ONLY
    held = {name: value for name, value in batch.items() if name not in absent}
    # The offset of a compressed message is that of its last record; Kafka looks inside for the first.
    held["base_offset"] += batch["last_offset_delta"]
    held["record_count"] = len(batch["records"])
    no_time = {} if batch["magic"] else {"timestamp": None}
    held["records"] = [
        {name: value for name, value in {**record, **no_time}.items() if name != "headers"}
        for record in batch["records"]
    ]
    return held


def snake(name: str) -> str:
    """`throttleTimeMs` → `throttle_time_ms`, `kRaftVersion` → `kraft_version`; Kafka's MessageGenerator.toSnakeCase."""
    if name.startswith("_"):
        return "_" + snake(name[1:])
    words = re.findall(r"[A-Z]+[^A-Z]*", name[0].upper() + name[1:])
    return "_".join(word.lower() for word in words)


def rfc3339(time_ns: int) -> str:
    """Nanoseconds since the epoch in UTC, written without the product's help."""
    seconds, fraction = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def raw_bytes(theirs: dict[str, str]) -> bytes:
    return base64.b64decode(theirs["base64"])


def shown(data: bytes) -> Any:
    """The form of bytes in a line."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def is_secret(ours: Any) -> bool:
    return isinstance(ours, dict) and ours.keys() == {"redacted"}


def interprets(name: str) -> bool:
    """Whether a field of ours is not from the wire."""
    return name.startswith("_") and name not in _THEIRS_TOO


def _is_bytes(theirs: Any) -> bool:
    return isinstance(theirs, dict) and theirs.keys() == {"base64"}


def differences(ours: Any, theirs: Any, path: str = "body") -> Iterator[str]:
    """What differs between a value of ours and the one in Kafka's JSON, each with its path."""
    if is_secret(ours) and theirs is not None:
        length = len(raw_bytes(theirs)) if _is_bytes(theirs) else len(theirs.encode())
        if ours["redacted"] != length:
            yield f"{path}: a secret of {ours['redacted']} bytes, Kafka has {length}"
    elif _is_bytes(theirs):
        if ours != shown(raw_bytes(theirs)):
            yield f"{path}: {ours!r}, Kafka has the bytes {raw_bytes(theirs)!r}"
    elif isinstance(theirs, dict):
        yield from _fields(ours, {snake(name): value for name, value in theirs.items()}, path)
    elif isinstance(theirs, list):
        if not isinstance(ours, list) or len(ours) != len(theirs):
            yield f"{path}: {ours!r}, Kafka has {len(theirs)} elements"
            return
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif ours != theirs or type(ours) is not type(theirs):
        yield f"{path}: {ours!r}, Kafka has {theirs!r}"


def _fields(ours: Any, theirs: dict[str, Any], path: str) -> Iterator[str]:
    if not isinstance(ours, dict):
        yield f"{path}: {ours!r}, Kafka has an object"
        return
    if "magic" in theirs and theirs["magic"] < 2:
        theirs = _legacy(theirs)
    if "leading_bytes" in ours:
        # A slice of a snapshot; what Kafka reads as batches begins at the first byte.
        theirs = {"leading_bytes": 0, **theirs}
    theirs = {as_released(name, ours): value for name, value in theirs.items()}
    for name in sorted(field for field in ours.keys() ^ theirs.keys() if not interprets(field)):
        yield f"{path}.{name}: {'Kafka' if name in ours else 'kafkasniff'} has no such field"
    for name in ours.keys() & theirs.keys():
        yield from differences(ours[name], theirs[name], f"{path}.{name}")


def error_codes(theirs: Any, names: dict[str, str], path: str = "") -> Iterator[Line]:
    """The line's `errors` by Kafka's JSON: every error code but 0, in the body's order."""
    if isinstance(theirs, dict):
        for name, value in theirs.items():
            below = f"{path}.{snake(name)}" if path else snake(name)
            if name.lower().endswith("errorcode") and value:
                yield {"code": value, "name": names[str(value)], "path": below}
            yield from error_codes(value, names, below)
    elif isinstance(theirs, list):
        for index, value in enumerate(theirs):
            yield from error_codes(value, names, f"{path}[{index}]")


def leaves(ours: Any) -> Iterator[Any]:
    """The plain values of a body, in its order, without what interprets them."""
    if isinstance(ours, dict) and not _is_bytes(ours) and not is_secret(ours):
        for name, value in ours.items():
            if not interprets(name):
                yield from leaves(value)
    elif isinstance(ours, list):
        for value in ours:
            yield from leaves(value)
    else:
        yield ours


def trace_differences(ours: Any, trace: list[Any]) -> Iterator[str]:
    """Values of a truncated body that the trace of Kafka's reader lacks, in order.

    The trace has no value for null strings and arrays, only the length: -1 or, compact, 0. A boolean is a byte.
    """
    rest = iter(trace)
    for leaf in leaves(ours):
        wanted: tuple[Any, ...] = (-1, 0) if leaf is None else (int(leaf),) if isinstance(leaf, bool) else (leaf,)
        for value in rest:
            if (shown(raw_bytes(value)) if _is_bytes(value) else value) in wanted:
                break
        else:
            yield f"body: {leaf!r} is not what Kafka's reader took from the bytes"
            return


def line_differences(line: Line, frame: Frame, evidence: Evidence) -> Iterator[str]:
    """All that differs between a line and what others say of its message."""
    yield from _place(line, frame)
    header = {snake(name): value for name, value in evidence["header"].items()}
    expected = {
        "api": evidence["api"],
        "api_key": header.get("request_api_key", frame.api_key),
        "api_version": header.get("request_api_version", frame.api_version),
        "correlation_id": header["correlation_id"],
        "client_id": header.get("client_id", frame.client_id),
        "header_tags": evidence["header_tags"] or None,
    }
    for name, value in expected.items():
        if line.get(name) != value:
            yield f"{name}: {line.get(name)!r}, Kafka has {value!r}"
    kinds = [problem["kind"] for problem in line["problems"]]
    for kind in set(kinds) - (_CHECKED | _OF_THE_CUT if frame.cut else _CHECKED):
        yield f"problems: {kind}, and there is nothing to compare it with"
    raw = base64.b64encode(frame.data[evidence["header_size"] :]).decode()
    if "version-unknown" in kinds:
        if evidence["kafka"] != DEFAULT_VERSION:
            yield f"problems: version-unknown, Kafka {evidence['kafka']} knows it"
        if line["body"] is not None or line["raw"] != raw:
            yield "raw: not the bytes that the capture has"
        return
    if "failure" in evidence:
        if not frame.cut:
            yield f"Kafka cannot read the body: {evidence['failure']}"
        yield from trace_differences(line["body"], evidence["trace"])
        if line["raw"] != raw:
            yield f"raw: {line['raw']}, the capture has {raw}"
        if "frame-incomplete" not in kinds:
            yield "no problem says that the message is not complete"
        return
    yield from differences(line["body"], evidence["body"])
    version = None if evidence["version"] == frame.api_version else evidence["version"]
    if line.get("body_version") != version:
        yield f"body_version: {line.get('body_version')}, Kafka read it as {evidence['version']}"
    if line["type"] == "response":
        errors = list(error_codes(evidence["body"], evidence["errors"]))
        # Those of a message inside (Envelope) are Kafka's bytes, too, but not in this message's JSON.
        ours = [error for error in line["errors"] if not interprets(error["path"])]
        if sorted(ours, key=repr) != sorted(errors, key=repr):
            yield f"errors: {ours}, Kafka has {errors}"
        refused = evidence["api"] in SASL_APIS and any(error["code"] in SASL_REFUSALS for error in errors)
        if refused != ("sasl-refused" in kinds):
            yield f"problems: {kinds}, Kafka has {errors}"
    if (evidence["remaining"] > 0) != ("trailing-bytes" in kinds):
        yield f"problems: {kinds}, Kafka leaves {evidence['remaining']} bytes"
    if "raw" in line:
        yield "raw: stands although the body was read"


def _place(line: Line, frame: Frame) -> Iterator[str]:
    expected: dict[str, Any] = {
        "type": frame.kind,
        "connection": frame.connection,
        "client": frame.client,
        "broker": frame.broker,
        "size": frame.size,
        "time": rfc3339(frame.time_ns),
        "first_packet": frame.first_packet,
        "last_packet": frame.last_packet,
    }
    if frame.kind == "response":
        expected["latency_ms"] = (frame.first_ns - frame.pair.time_ns) / 1e6
        expected["duration_ms"] = (frame.time_ns - frame.pair.first_ns) / 1e6
    for name, value in expected.items():
        if line[name] != value:
            yield f"{name}: {line[name]!r}, the capture has {value!r}"
