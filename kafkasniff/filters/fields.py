"""The fields of an exchange that filters can use: by name, each with its kind and its values.

`expression.py` handles values in bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec

from kafkasniff.filters.record_paths import (
    Candidate,
    generations,
    producer_ids,
    record_path,
    record_values,
    records_of,
    topic_partitions,
    values_at,
)
from kafkasniff.kafka.apis.entities import record_count, text
from kafkasniff.model import Endpoint, Message, Problem, SaslToken

Kind = Literal["any", "api", "duration", "error", "flag", "host", "number", "size", "status", "struct", "text", "time"]
"""Kind of a field's values, which decides on operators and constants. `any`: the kind of the constant; `struct`: it is
only present or not."""

Values = Callable[[Candidate], Iterable[Any]]
"""All values of a field; empty if it has none (yet)."""

MILLISECOND: Final = 1_000_000


class FilterField(msgspec.Struct, frozen=True):
    """A field that predicates can refer to."""

    name: str
    kind: Kind
    meaning: str = ""
    """Its values, for `kafkasniff help filters`; a path has none."""
    late: bool = False
    """The response, or the end of the exchange, may add values to those of the request."""
    unit_ns: int = 1
    """For durations and times: the unit, in nanoseconds."""
    enum: str | None = None
    """For numbers: the table of `dissectors/enums.txt` that names some."""
    many: bool = False
    """An exchange may have several values."""


# -- values ------------------------------------------------------------------------------------------------------------


def _seen(name: str) -> Values:
    """An attribute of the request, of an orphan response, or of another subject."""

    def values(candidate: Candidate) -> Iterable[Any]:
        value = getattr(candidate.seen, name, None)
        return () if value is None else (value,)

    return values


def _either(name: str) -> Values:
    """An attribute that request and response both have, with different values."""

    def values(candidate: Candidate) -> Iterable[Any]:
        found = [getattr(one, name, None) for one in (candidate.request, candidate.response, candidate.other)]
        return [value for value in found if value is not None]

    return values


def _of(side: Literal["request", "response", "ended"], name: str) -> Values:
    def values(candidate: Candidate) -> Iterable[Any]:
        value = getattr(getattr(candidate, side), name, None)
        return () if value is None else (value,)

    return values


def _text(values: Values) -> Values:
    r"""Strings that may be bytes, as text: `\xNN` for bytes that are not UTF-8."""

    def texts(candidate: Candidate) -> Iterable[Any]:
        return [shown for value in values(candidate) if (shown := text(value)) is not None]

    return texts


def _ends(candidate: Candidate, *names: str) -> list[Endpoint]:
    if not isinstance(candidate.seen, Message | SaslToken):
        return []
    return [end for name in names if (end := getattr(candidate.seen, name)) is not None]


def _host(*names: str) -> Values:
    """Each end as address and as address with port."""

    def values(candidate: Candidate) -> Iterable[Any]:
        return [shown for end in _ends(candidate, *names) for shown in (end.address, str(end))]

    return values


def _part(name: str, attribute: str) -> Values:
    def values(candidate: Candidate) -> Iterable[Any]:
        return [getattr(end, attribute) for end in _ends(candidate, name)]

    return values


def _capture(candidate: Candidate) -> Iterable[Any]:
    name = getattr(candidate.seen, "capture", None)
    return () if name is None else (capture_text(name),)


def capture_text(name: str) -> str:
    """The name of a capture as filters see it."""
    # File names that are not UTF-8 hold lone surrogates (PEP 383), which nobody can type.
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _error(candidate: Candidate) -> Iterable[Any]:
    response = candidate.response
    if response is None:
        return ()
    if response.errors:
        return [error.code for error in response.errors]
    return () if response.body is None else (0,)


def _error_count(candidate: Candidate) -> Iterable[Any]:
    response = candidate.response
    return () if response is None or response.body is None else (len(response.errors),)


def _problems(candidate: Candidate) -> Iterable[Any]:
    if isinstance(candidate.other, Problem):
        return (candidate.other.kind,)
    holders = (candidate.ended, candidate.request, candidate.response)
    return {problem.kind for holder in holders if holder is not None for problem in holder.problems}


def _record_count(candidate: Candidate) -> Iterable[Any]:
    # A sum: the response would not add another value, but change this one.
    count = None if "record_count" in candidate.unknown else record_count(candidate.named)
    return () if count is None else (count,)


def _body(side: Literal["request", "response"], *path: str) -> Values:
    def values(candidate: Candidate) -> Iterable[Any]:
        message = candidate.request if side == "request" else candidate.response
        return () if message is None or message.body is None else values_at(message.body, path)

    return values


def _trace_id(candidate: Candidate) -> Iterable[Any]:
    for record in records_of(candidate):
        yield from values_at(record, ("_trace_ids",))


def _member_id(candidate: Candidate) -> Iterable[Any]:
    for ask in _MEMBER_IDS:
        yield from ask(candidate)


_MEMBER_IDS: Final = (
    _text(_body("request", "member_id")),
    _text(_body("request", "members", "member_id")),
    _text(_body("response", "member_id")),
)


# -- the fields --------------------------------------------------------------------------------------------------------

_TABLE: Final[tuple[tuple[FilterField, Values], ...]] = (
    (
        FilterField("api", "api", "name, in any spelling that `--api` accepts, or key; `=~` matches the name"),
        _seen("api_key"),
    ),
    (FilterField("api_key", "number", "key of the API"), _seen("api_key")),
    (FilterField("api_version", "number", "version of the API"), _seen("api_version")),
    (FilterField("correlation_id", "number", "correlation id"), _seen("correlation_id")),
    (FilterField("client_id", "text", "client id in the request's header"), _text(_seen("client_id"))),
    (FilterField("client", "host", "the client, as address or `address:port`; `=~` matches both"), _host("client")),
    (FilterField("broker", "host", "the broker, likewise"), _host("broker")),
    (FilterField("host", "host", "either end, likewise", many=True), _host("client", "broker")),
    (FilterField("client_ip", "host", "address of the client"), _part("client", "address")),
    (FilterField("broker_ip", "host", "address of the broker"), _part("broker", "address")),
    (FilterField("client_port", "number", "port of the client"), _part("client", "port")),
    (FilterField("broker_port", "number", "port of the broker"), _part("broker", "port")),
    (FilterField("capture", "text", "name of the capture in which the request was completed"), _capture),
    (FilterField("connection", "number", "number of the connection, as in any output"), _seen("connection")),
    (FilterField("exchange", "number", "number of the exchange, as in any output"), _seen("exchange")),
    (FilterField("time", "time", "of the request; for an orphan response its own"), _seen("time_ns")),
    (
        FilterField("request", "struct", "whether the request is in the capture"),
        lambda candidate: () if candidate.request is None else (candidate.request,),
    ),
    (
        FilterField("response", "struct", "whether the response is in the capture", late=True),
        lambda candidate: () if candidate.response is None else (candidate.response,),
    ),
    (FilterField("size", "size", "length prefix of either message", late=True, many=True), _either("size")),
    (FilterField("request_size", "size", "length prefix of the request"), _of("request", "size")),
    (FilterField("response_size", "size", "length prefix of the response", late=True), _of("response", "size")),
    (
        FilterField("first_packet", "number", "number of the first packet of either message", late=True, many=True),
        _either("first_packet"),
    ),
    (
        FilterField("last_packet", "number", "number of the last packet of either message", late=True, many=True),
        _either("last_packet"),
    ),
    (
        FilterField(
            "latency_ms",
            "duration",
            "from the completion of the request to the packet with the response's first byte",
            late=True,
        ),
        _of("response", "latency_ns"),
    ),
    (
        FilterField(
            "duration_ms",
            "duration",
            "from the packet with the request's first byte to the completion of the response",
            late=True,
        ),
        _of("response", "duration_ns"),
    ),
    (
        FilterField("throttle_time_ms", "duration", "as in the response", late=True, unit_ns=MILLISECOND),
        _body("response", "throttle_time_ms"),
    ),
    (
        FilterField(
            "status",
            "status",
            "`answered`, `no_response` (acks 0), `unanswered` (connection ended), `open` (capture ended), `lost` (the"
            " response may be in a gap), `orphan`",
            late=True,
        ),
        _of("ended", "status"),
    ),
    (
        FilterField(
            "error",
            "error",
            "every error code of the response, by name or code; `NONE` (0) if it was decoded and has none. `has "
            "error`: one other than `NONE`",
            late=True,
            many=True,
        ),
        _error,
    ),
    (FilterField("error_code", "error", "the same as `error`", late=True, many=True), _error),
    (FilterField("error_count", "number", "non-zero codes of the response", late=True), _error_count),
    (
        FilterField("problems", "text", "kinds of problems of the exchange and its messages", late=True, many=True),
        _problems,
    ),
    (
        FilterField(
            "topic",
            "text",
            "every topic of request or response, by name or id, and of the fetch session if it has at most 100 topics",
            late=True,
            many=True,
        ),
        lambda candidate: candidate.named.topics,
    ),
    (
        FilterField("partition", "number", "every partition that request or response name", late=True, many=True),
        lambda candidate: {facts.partition for facts in candidate.named.partitions.values()},
    ),
    (
        FilterField(
            "topic_partition",
            "text",
            "every such partition as `TOPIC-PARTITION`, if the topic's name is known",
            late=True,
            many=True,
        ),
        topic_partitions,
    ),
    (
        FilterField(
            "offset",
            "number",
            "of every partition that request or response name: where it fetches, commits or was appended",
            late=True,
            many=True,
        ),
        lambda candidate: {facts.offset for facts in candidate.named.partitions.values() if facts.offset is not None},
    ),
    (FilterField("record", "struct", "whether it has decoded records", late=True), records_of),
    (FilterField("record_count", "number", "records produced or fetched", late=True), _record_count),
    (
        FilterField(
            "trace_id", "text", "every trace id in the headers of produced or fetched records", late=True, many=True
        ),
        _trace_id,
    ),
    (
        FilterField("acks", "number", "of Produce: -1, 0, 1, or `all`, `none`, `leader`", enum="acks"),
        _body("request", "acks"),
    ),
    (
        FilterField("group_id", "text", "every group that the request names", many=True),
        lambda candidate: candidate.named.groups,
    ),
    (
        FilterField(
            "generation",
            "number",
            "generation of the group, or epoch of its member, in request or response",
            late=True,
            many=True,
        ),
        generations,
    ),
    (FilterField("member_id", "text", "every member that request or response names", late=True, many=True), _member_id),
    (
        FilterField("transactional_id", "text", "every transactional id that the request names", many=True),
        lambda candidate: candidate.named.transactions,
    ),
    (
        FilterField(
            "producer_id", "number", "every producer id, including those of record batches", late=True, many=True
        ),
        producer_ids,
    ),
    (
        FilterField("software_name", "text", "the client's software, from its ApiVersions request", late=True),
        _text(_of("ended", "software_name")),
    ),
    (FilterField("software_version", "text", "its version", late=True), _text(_of("ended", "software_version"))),
    (
        FilterField(
            "retransmits", "number", "segments of the connection retransmitted since its previous exchange", late=True
        ),
        _of("ended", "retransmits"),
    ),
    (
        FilterField("connection_id", "number", "as in exported tables: the same in every run", late=True),
        _of("ended", "connection_id"),
    ),
    (
        FilterField("exchange_id", "number", "as in exported tables: the ordinal within the connection", late=True),
        _of("ended", "exchange_id"),
    ),
)

FIELDS: Final[dict[str, FilterField]] = {field.name: field for field, _ in _TABLE}
_VALUES: Final[dict[str, Values]] = {field.name: values for field, values in _TABLE}

OTHER_NAMES: Final = {"group": "group_id"}
"""Fields by names that are accepted for them."""

ALL: Final = frozenset(FIELDS)
LATE: Final = frozenset(field.name for field in FIELDS.values() if field.late)
"""Fields to which a response, or the end, may add values."""


def record_field(name: str) -> FilterField:
    """The field of a name that begins with `record.`. Raises UsageError if there is no such field."""
    path = record_path(name)
    if path.json is not None:
        return FilterField(name, "any", late=True, many=True)
    kinds: dict[str, Kind] = {"offset": "number", "timestamp": "time"}
    return FilterField(name, kinds.get(path.part, "text"), late=True, unit_ns=MILLISECOND, many=True)


def values_of(name: str) -> tuple[str, Values]:
    """The values of a field of `FIELDS`, or at a path, and the field of `FIELDS` that determines if they are known.

    Raises KeyError for any other name, UsageError for an unknown field of records.
    """
    if name.startswith("record."):
        return "record", record_values(record_path(name))
    root, *path = name.split(".")
    if not path:
        return name, _VALUES[name]
    if root == "request":
        return root, _body("request", *path)
    if root == "response":
        return root, _body("response", *path)
    raise KeyError(name)


def unknown_fields(problem: Problem) -> frozenset[str]:
    """The fields whose values are unknown for a problem."""
    known = {"problems"}
    for name, value in (
        ("connection", problem.connection),
        ("time", problem.time_ns),
        ("exchange", problem.exchange),
        ("capture", problem.capture),
    ):
        if value is not None:
            known.add(name)
    return ALL - known
