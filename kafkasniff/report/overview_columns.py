"""Columns of the tables of an overview.

All text from the wire goes through `word`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafkasniff.analysis.overview.answer import ApiStats, EncryptedStats, TopicStats
from kafkasniff.kafka.connection.waits import long_poll_apis
from kafkasniff.report.cells import (
    CLUSTER,
    ERRORS,
    GENERATIONS,
    MEMBERS,
    REQUESTS,
    ReportColumn,
    address,
    bytes_of,
    count_of,
    first_problem,
    latency_of,
    rate_of,
    records_of,
    software,
    some_of,
    spans,
)
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import printable, word
from kafkasniff.text.times import duration

__all__ = [
    "APIS",
    "BROKERS",
    "CLIENTS",
    "ENCRYPTED",
    "ENCRYPTED_TITLE",
    "GROUPS",
    "MIDDLE",
    "TOPICS",
    "problem_columns",
]

NARROW: Final = 1
MIDDLE: Final = 2
WIDE: Final = 3
HUGE: Final = 4
"""Levels of optional columns."""
WAITS: Final = "waits"
MAX_VERSIONS: Final = 4
"""Version ranges shown per API."""


def _size(name: str) -> Callable[[TopicStats], str]:
    return lambda row: "" if getattr(row, name) is None else amount(getattr(row, name))


def _time(name: str) -> Callable[[EncryptedStats], str]:
    return lambda row: "" if getattr(row, name) is None else duration(1000 * getattr(row, name))


def _compression(row: TopicStats) -> str:
    codecs = ", ".join(word(one) for one in row.compression)
    if row.compression_ratio is None or row.compression == ["none"]:
        return codecs
    return f"{codecs} ({row.compression_ratio:.1f}x)"


def _median(row: ApiStats) -> str:
    """The median latency; there is none if all exchanges are long polls."""
    return WAITS if row.latency is None and row.responses and row.api in long_poll_apis() else _p50(row)


_p50: Final = latency_of("p50_us")
_SENT: Final = ReportColumn("sent", bytes_of("request_bytes"), number=True, level=WIDE)
_RECEIVED: Final = ReportColumn("received", bytes_of("response_bytes"), number=True, level=WIDE)
_BOTH: Final = ReportColumn(
    "bytes", lambda row: amount(row.request_bytes + row.response_bytes), number=True, until=WIDE
)
_UNANSWERED: Final = ReportColumn("unanswered", some_of("unanswered"), number=True, level=WIDE)

BROKERS: Final = [
    ReportColumn("id", lambda row: "" if row.broker_id is None else str(row.broker_id), number=True),
    ReportColumn("address", lambda row: address(row.address, row.port)),
    CLUSTER,
    ReportColumn("connections", some_of("connections"), number=True, level=NARROW),
    REQUESTS,
    ERRORS,
    _UNANSWERED,
    # What clients send is what a broker receives.
    _RECEIVED._replace(cell=_SENT.cell),
    _SENT._replace(cell=_RECEIVED.cell),
    _BOTH,
]
CLIENTS: Final = [
    ReportColumn("client id", lambda row: word(row.client_id)),
    ReportColumn("address", lambda row: "" if row.address is None else printable(row.address)),
    ReportColumn("software", software, level=NARROW),
    REQUESTS,
    ERRORS,
    _UNANSWERED,
    _SENT,
    _RECEIVED,
    _BOTH,
]
APIS: Final = [
    ReportColumn("API", lambda row: "(request not seen)" if row.api is None else word(row.api)),
    ReportColumn("versions", lambda row: spans(row.versions, MAX_VERSIONS), level=MIDDLE),
    ReportColumn("count", count_of("exchanges"), number=True),
    ERRORS,
    _UNANSWERED,
    ReportColumn("p50", _median, number=True),
    ReportColumn("p90", latency_of("p90_us"), number=True, level=NARROW),
    ReportColumn("p99", latency_of("p99_us"), number=True),
    ReportColumn("max", latency_of("max_us"), number=True, level=NARROW),
    _SENT,
    _RECEIVED,
    _BOTH._replace(level=NARROW),
]
TOPICS: Final = [
    ReportColumn("topic", lambda row: word(row.topic)),
    CLUSTER,
    ReportColumn("partitions", count_of("partitions"), number=True, level=HUGE),
    ReportColumn("produced", records_of("produced"), number=True),
    ReportColumn("rate", rate_of("produced"), number=True, level=MIDDLE),
    ReportColumn("fetched", records_of("fetched"), number=True),
    ReportColumn("rate", rate_of("fetched"), number=True, level=WIDE),
    ReportColumn("replicated", records_of("replicated"), number=True, level=NARROW),
    ReportColumn("record p50", _size("record_bytes_p50"), number=True, level=NARROW),
    ReportColumn("p99", _size("record_bytes_p99"), number=True, level=HUGE),
    ReportColumn("max", _size("record_bytes_max"), number=True, level=WIDE),
    ReportColumn("compression", _compression, level=NARROW),
]
GROUPS: Final = [
    ReportColumn("group", lambda row: word(row.group_id)),
    CLUSTER,
    ReportColumn("protocol", lambda row: ", ".join(row.protocols), level=NARROW),
    GENERATIONS._replace(level=NARROW),
    ReportColumn("rebalances", some_of("rebalances"), number=True),
    ReportColumn("clients", count_of("clients"), number=True, level=MIDDLE),
    MEMBERS._replace(level=NARROW),
    REQUESTS,
    ERRORS,
]
ENCRYPTED_TITLE: Final = "TLS without keys (times of answers are estimates)"
ENCRYPTED: Final = [
    ReportColumn("address", lambda row: address(row.address, row.port)),
    ReportColumn("connections", count_of("connections"), number=True),
    ReportColumn("resets", some_of("resets"), number=True, level=NARROW),
    ReportColumn("sent", bytes_of("client_bytes"), number=True, level=WIDE),
    ReportColumn("received", bytes_of("broker_bytes"), number=True, level=WIDE),
    ReportColumn("handshake p50", _time("handshake_p50_us"), number=True, level=NARROW),
    ReportColumn("max", _time("handshake_max_us"), number=True, level=MIDDLE),
    ReportColumn("answers", some_of("answers"), number=True),
    ReportColumn("about", _time("answer_p50_us"), number=True),
    ReportColumn("max", _time("answer_max_us"), number=True, level=NARROW),
    ReportColumn("unanswered", some_of("unanswered"), number=True),
]


def problem_columns(days: bool) -> list[ReportColumn]:
    """Columns of problems by kind; `days`: times need their dates."""
    return [
        ReportColumn("problem", lambda row: row.kind),
        ReportColumn("count", count_of("count"), number=True),
        ReportColumn("bytes", bytes_of("bytes"), number=True),
        ReportColumn("first", lambda row: first_problem(row, days=days)),
    ]
