"""Cells of overview tables, as `stats` and the report show them. All text from the wire goes through `word`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkasniff.enrich.hosts import Hosts
from kafkasniff.model import Endpoint
from kafkasniff.sinks.summaries.phrases import amount, rate
from kafkasniff.text.printable import cut, printable, word
from kafkasniff.text.times import clock_time, date_of, duration

if TYPE_CHECKING:
    # They need pyarrow, which the tables of `api` do without.
    from kafkasniff.analysis.overview.answer import (
        ApiStats,
        ClientStats,
        ErrorStats,
        GroupStats,
        OverviewAnswer,
        ProblemStats,
        TopicStats,
        Traffic,
    )
    from kafkasniff.analysis.security import ClientIdentity

__all__ = [
    "ALWAYS",
    "CLUSTER",
    "ERRORS",
    "GENERATIONS",
    "MAX_DETAIL",
    "MEMBERS",
    "REQUESTS",
    "Cell",
    "ReportColumn",
    "address",
    "bytes_of",
    "count_of",
    "first_exchange",
    "first_problem",
    "latency_of",
    "meaning_of",
    "moment",
    "named",
    "rate_of",
    "records_of",
    "software",
    "some_of",
    "spans",
    "spans_days",
]

MAX_DETAIL: Final = 160
"""Maximum length of a sentence from the wire, in characters."""

ALWAYS: Final = 1 << 16
"""Above any level."""

Cell = Callable[[Any], str]


class ReportColumn(NamedTuple):
    """A column of a table; `cell` returns "" for nothing."""

    heading: str
    cell: Cell
    number: bool = False
    level: int = 0
    """Columns of the highest levels are hidden first if a screen is too narrow; those of level 0 never."""
    until: int = ALWAYS
    """Only while columns of this level are hidden, for which it stands."""
    whole: bool = False
    """Its text neither wraps nor is cut, as for numbers."""
    clipped: bool = False
    """Its text is cut to the room, one line per row."""


def named(columns: list[ReportColumn], hosts: Hosts | None, *, level: int = 0) -> list[ReportColumn]:
    """The same columns, with name and rack after each address; `level`: that of racks."""
    if hosts is None:
        return columns

    def looked_up(find: Callable[[str | None, int | None], str | None]) -> Cell:
        return lambda row: word(find(row.address, getattr(row, "port", None)) or "")

    more = [ReportColumn("name", looked_up(hosts.name)), ReportColumn("rack", looked_up(hosts.rack), level=level)]
    return [one for column in columns for one in (column, *(more if column.heading == "address" else ()))]


def moment(time_ns: int | None, *, days: bool = False) -> str:
    """A time of day, with its date if `days`; "" for none."""
    if time_ns is None:
        return ""
    return f"{date_of(time_ns)} {clock_time(time_ns)[:-7]}" if days else clock_time(time_ns)[:-3]


def spans_days(answer: OverviewAnswer) -> bool:
    """Whether times need their dates."""
    return answer.first is None or answer.last is None or date_of(answer.first) != date_of(answer.last)


def address(ip: str | None, port: int | None) -> str:
    """An endpoint; "" where it is unknown."""
    return "" if ip is None or port is None else printable(str(Endpoint(ip, port)))


def spans(numbers: Sequence[int], most: int) -> str:
    """Ascending numbers as `0, 4-9`: `most` ranges of them."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    ranges = [str(low) if low == high else f"{low}-{high}" for low, high in found[:most]]
    return ", ".join([*ranges, "…"] if len(found) > most else ranges)


def some_of(name: str) -> Cell:
    """A number, unless it is 0."""
    return lambda row: f"{getattr(row, name):,}" if getattr(row, name) else ""


def count_of(name: str) -> Cell:
    """A number."""
    return lambda row: f"{getattr(row, name):,}"


def bytes_of(name: str) -> Cell:
    """A number of bytes, unless it is 0."""
    return lambda row: amount(getattr(row, name)) if getattr(row, name) else ""


def software(row: ClientStats | ClientIdentity) -> str:
    """Name and version of a client's software."""
    return " ".join(word(one) for one in (row.software_name, row.software_version) if one is not None)


def latency_of(name: str) -> Callable[[ApiStats], str]:
    """A quantile of an API's latencies."""
    return lambda row: "" if row.latency is None else duration(getattr(row.latency, name) * 1000)


def records_of(flow: str) -> Callable[[TopicStats], str]:
    """Records of a topic that went this way, with their bytes."""

    def cell(row: TopicStats) -> str:
        traffic: Traffic = getattr(row, flow)
        return f"{traffic.records:,} ({amount(traffic.bytes)})" if traffic.batches or traffic.bytes else ""

    return cell


def rate_of(flow: str) -> Callable[[TopicStats], str]:
    """The same per second."""

    def cell(row: TopicStats) -> str:
        traffic: Traffic = getattr(row, flow)
        if not traffic.records or traffic.records_per_second is None or traffic.bytes_per_second is None:
            return ""
        return rate(traffic.records_per_second, traffic.bytes_per_second)

    return cell


def first_exchange(row: ErrorStats, *, days: bool) -> str:
    """The first exchange with an error."""
    who = "" if row.first_client_id is None else f" of {word(row.first_client_id)}"
    where = "" if row.first_client_address is None else f" at {printable(row.first_client_address)}"
    topic = "" if row.first_topic is None else f", topic {word(row.first_topic)}"
    api = "a response" if row.first_api is None else word(row.first_api)
    return f"{moment(row.first, days=days)} {api}{who}{where}{topic}"


def meaning_of(row: ErrorStats) -> str:
    """What an error code means, and whether a retry may succeed."""
    if row.code is None:
        return "codes in bodies, which the export does not have"
    return f"{row.meaning or row.name or 'unknown code'}{' (retriable)' if row.retriable else ''}"


def first_problem(row: ProblemStats, *, days: bool) -> str:
    """The first problem of a kind."""
    packet = "" if row.first_packet is None else f"packet {row.first_packet}: "
    return f"{moment(row.first, days=days)} {packet}{cut(printable(row.first_detail), MAX_DETAIL)}".lstrip()


def _generations(row: GroupStats) -> str:
    first, last = row.generation_first, row.generation_last
    if first is None or last is None:
        return ""
    return str(last) if first == last else f"{first}-{last}"


CLUSTER: Final = ReportColumn("cluster", lambda row: "" if row.cluster is None else word(row.cluster))
REQUESTS: Final = ReportColumn("requests", count_of("requests"), number=True)
ERRORS: Final = ReportColumn("errors", some_of("errors"), number=True)
GENERATIONS: Final = ReportColumn("generations", _generations, number=True)
MEMBERS: Final = ReportColumn("members", lambda row: "" if row.members is None else f"{row.members:,}", number=True)
