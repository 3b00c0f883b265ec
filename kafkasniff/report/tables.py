"""The tables of a report: rows of an answer as cells of text. What comes from the wire goes through `word`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kafkasniff.analysis.overview.answer import Api, Client, Error, Group, Problem, Topic, Traffic
from kafkasniff.hosts import Hosts
from kafkasniff.model import Endpoint
from kafkasniff.report.contents import Contents
from kafkasniff.sinks.printable import cut, printable, word
from kafkasniff.sinks.summaries.phrases import amount, rate
from kafkasniff.sinks.times import clock_time, date_of, duration

__all__ = ["Cell", "Table", "address", "moment", "spans", "tables_of"]

MAX_DETAIL: Final = 160
"""Characters of a sentence from the wire."""
MAX_SPANS: Final = 8
"""Spans of versions of one API."""


class _Column(NamedTuple):
    """`cell` gives "" for nothing; a column in which no row has anything is left out."""

    heading: str
    cell: Callable[[Any], str]
    number: bool = False


class Cell(msgspec.Struct, frozen=True):
    """One cell."""

    text: str
    number: bool


class Table(msgspec.Struct, frozen=True):
    """One table."""

    name: str
    """For anchors."""
    title: str
    headings: list[Cell]
    rows: list[list[Cell]]
    more: int
    """Rows that are left out at its end."""


def tables_of(contents: Contents, hosts: Hosts | None = None) -> dict[str, Table | None]:
    """The tables by name; None for those without rows. `hosts`: names and racks of addresses."""
    answer = contents.answer
    days = answer.first is None or answer.last is None or date_of(answer.first) != date_of(answer.last)
    lists: list[tuple[str, str, Sequence[Any], list[_Column]]] = [
        ("brokers", "Brokers", answer.brokers, _BROKERS),
        ("clients", "Clients", answer.clients, _CLIENTS),
        ("apis", "APIs", answer.apis, _APIS),
        ("topics", "Topics", answer.topics, _TOPICS),
        ("groups", "Groups", answer.groups, _GROUPS),
        ("errors", "Error codes", answer.errors, _errors(days)),
        ("problems", "Problems of the capture", answer.problems or [], _problems(days)),
        ("rebalances", "Rebalances", contents.generations, _rebalances(days)),
    ]
    more = {**answer.more, "rebalances": contents.more_generations}
    return {
        name: _table(name, title, rows, _named(columns, hosts), more.get(name, 0)) if rows else None
        for name, title, rows, columns in lists
    }


def _table(name: str, title: str, rows: Sequence[Any], columns: Sequence[_Column], more: int) -> Table:
    texts = [[column.cell(row) for column in columns] for row in rows]
    used = [place for place in range(len(columns)) if any(row[place] for row in texts)]
    return Table(
        name,
        title,
        [Cell(columns[place].heading, columns[place].number) for place in used],
        [[Cell(row[place], columns[place].number) for place in used] for row in texts],
        more,
    )


def _named(columns: list[_Column], hosts: Hosts | None) -> list[_Column]:
    """The same with a name and a rack behind each address."""
    if hosts is None:
        return columns

    def told(find: Callable[[str | None, int | None], str | None]) -> Callable[[Any], str]:
        return lambda row: word(found) if (found := find(row.address, getattr(row, "port", None))) else ""

    more = [_Column("name", told(hosts.name)), _Column("rack", told(hosts.rack))]
    return [one for column in columns for one in (column, *(more if column.heading == "address" else ()))]


def moment(time_ns: int | None, *, days: bool = False) -> str:
    """A time of day, with its date where there are several; "" for none."""
    if time_ns is None:
        return ""
    return f"{date_of(time_ns)} {clock_time(time_ns)[:-7]}" if days else clock_time(time_ns)[:-3]


def address(ip: str | None, port: int | None) -> str:
    """An endpoint; "" where it is not known."""
    return "" if ip is None or port is None else printable(str(Endpoint(ip, port)))


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as `0, 4-9`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    told = [str(low) if low == high else f"{low}-{high}" for low, high in found[:MAX_SPANS]]
    return ", ".join([*told, "…"] if len(found) > MAX_SPANS else told)


def _some(name: str) -> Callable[[Any], str]:
    return lambda row: f"{getattr(row, name):,}" if getattr(row, name) else ""


def _count(name: str) -> Callable[[Any], str]:
    return lambda row: f"{getattr(row, name):,}"


def _bytes(name: str) -> Callable[[Any], str]:
    return lambda row: amount(getattr(row, name)) if getattr(row, name) else ""


def _name(name: str) -> Callable[[Any], str]:
    return lambda row: "" if getattr(row, name) is None else word(getattr(row, name))


def _software(row: Client) -> str:
    return " ".join(word(one) for one in (row.software_name, row.software_version) if one is not None)


def _latency(name: str) -> Callable[[Api], str]:
    return lambda row: "" if row.latency is None else duration(getattr(row.latency, name) * 1000)


def _records(way: str) -> Callable[[Topic], str]:
    def cell(row: Topic) -> str:
        traffic: Traffic = getattr(row, way)
        return f"{traffic.records:,} ({amount(traffic.bytes)})" if traffic.batches or traffic.bytes else ""

    return cell


def _rate(way: str) -> Callable[[Topic], str]:
    def cell(row: Topic) -> str:
        traffic: Traffic = getattr(row, way)
        if not traffic.records or traffic.records_per_second is None or traffic.bytes_per_second is None:
            return ""
        return rate(traffic.records_per_second, traffic.bytes_per_second)

    return cell


def _compression(row: Topic) -> str:
    codecs = ", ".join(word(one) for one in row.compression)
    saved = row.compression_ratio is not None and row.compression != ["none"]
    return f"{codecs} ({row.compression_ratio:.1f} to 1)" if saved else codecs


def _generations(row: Group) -> str:
    if row.generation_first is None or row.generation_last is None:
        return ""
    first, last = row.generation_first, row.generation_last
    return str(last) if first == last else f"{first}-{last}"


_REQUESTS: Final = _Column("requests", _count("requests"), number=True)
_ERRORS: Final = _Column("errors", _some("errors"), number=True)
_UNANSWERED: Final = _Column("no answer", _some("unanswered"), number=True)
_CLUSTER: Final = _Column("cluster", lambda row: "" if row.cluster is None else word(row.cluster))
_BROKERS: Final = [
    _Column("id", lambda row: "" if row.broker_id is None else str(row.broker_id), number=True),
    _Column("address", lambda row: address(row.address, row.port)),
    _CLUSTER,
    _Column("connections", _some("connections"), number=True),
    _REQUESTS,
    _ERRORS,
    _UNANSWERED,
    _Column("received", _bytes("request_bytes"), number=True),
    _Column("sent", _bytes("response_bytes"), number=True),
]
_CLIENTS: Final = [
    _Column("client id", _name("client_id")),
    _Column("address", lambda row: "" if row.address is None else printable(row.address)),
    _Column("software", _software),
    _REQUESTS,
    _ERRORS,
    _UNANSWERED,
    _Column("sent", _bytes("request_bytes"), number=True),
    _Column("received", _bytes("response_bytes"), number=True),
]
_APIS: Final = [
    _Column("API", lambda row: "(request not seen)" if row.api is None else word(row.api)),
    _Column("versions", lambda row: spans(row.versions)),
    _Column("count", _count("exchanges"), number=True),
    _ERRORS,
    _UNANSWERED,
    *(
        _Column(told, _latency(f"{name}_us"), number=True)
        for name, told in (("p50", "median"), ("p90", "90%"), ("p99", "99%"), ("max", "longest"))
    ),
    _Column("sent", _bytes("request_bytes"), number=True),
    _Column("received", _bytes("response_bytes"), number=True),
]
_TOPICS: Final = [
    _Column("topic", lambda row: "(not known)" if row.topic is None else word(row.topic)),
    _CLUSTER,
    _Column("partitions", _count("partitions"), number=True),
    _Column("produced", _records("produced"), number=True),
    _Column("rate", _rate("produced"), number=True),
    _Column("fetched", _records("fetched"), number=True),
    _Column("rate", _rate("fetched"), number=True),
    _Column("replicated", _records("replicated"), number=True),
    _Column("record, median", _bytes("record_bytes_p50"), number=True),
    _Column("99%", _bytes("record_bytes_p99"), number=True),
    _Column("largest", _bytes("record_bytes_max"), number=True),
    _Column("compression", _compression),
]
_GROUPS: Final = [
    _Column("group", lambda row: word(row.group_id)),
    _CLUSTER,
    _Column("protocol", lambda row: ", ".join(row.protocols)),
    _Column("generations", _generations, number=True),
    _Column("rebalances", _some("rebalances"), number=True),
    _Column("clients", _count("clients"), number=True),
    _Column("members", lambda row: "" if row.members is None else f"{row.members:,}", number=True),
    _REQUESTS,
    _ERRORS,
]


def _errors(days: bool) -> list[_Column]:
    def first(row: Error) -> str:
        who = "" if row.first_client_id is None else f" of {word(row.first_client_id)}"
        where = "" if row.first_client_address is None else f" at {printable(row.first_client_address)}"
        topic = "" if row.first_topic is None else f", topic {word(row.first_topic)}"
        api = "a response" if row.first_api is None else word(row.first_api)
        return f"{moment(row.first, days=days)} {api}{who}{where}{topic}"

    def meaning(row: Error) -> str:
        if row.code is None:
            return "codes that stand in bodies, which the export does not have"
        return f"{row.meaning or 'a code that is not known'}{' (may succeed later)' if row.retriable else ''}"

    return [
        _Column("code", lambda row: "" if row.code is None else str(row.code), number=True),
        _Column("name", lambda row: row.name or ""),
        _Column("count", _count("count"), number=True),
        _Column("meaning", meaning),
        _Column("in", lambda row: ", ".join(word(one) for one in row.apis)),
        _Column("first", first),
    ]


def _problems(days: bool) -> list[_Column]:
    def first(row: Problem) -> str:
        packet = "" if row.first_packet is None else f"packet {row.first_packet}: "
        return f"{moment(row.first, days=days)} {packet}{cut(printable(row.first_detail), MAX_DETAIL)}".lstrip()

    return [
        _Column("problem", lambda row: row.kind),
        _Column("count", _count("count"), number=True),
        _Column("bytes", _bytes("bytes"), number=True),
        _Column("first", first),
    ]


def _rebalances(days: bool) -> list[_Column]:
    def lasted(row: dict[str, Any]) -> str:
        return "" if row["duration_us"] is None else duration(1000 * row["duration_us"])

    def number(name: str) -> Callable[[dict[str, Any]], str]:
        return lambda row: "" if row[name] is None else str(row[name])

    return [
        _Column("group", lambda row: word(row["group_id"])),
        _Column("cluster", lambda row: "" if row["cluster"] is None else word(row["cluster"])),
        _Column("begins", lambda row: moment(None if row["time_us"] is None else 1000 * row["time_us"], days=days)),
        _Column("protocol", lambda row: row["protocol"]),
        _Column("generation", number("generation"), number=True),
        _Column("lasts", lasted, number=True),
        _Column("members", number("members"), number=True),
        _Column("why", lambda row: cut(printable(row["cause"] or ""), MAX_DETAIL)),
    ]
