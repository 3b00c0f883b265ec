"""The screen of `kafkasniff timing`: shares of the parts per group, and the slowest exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkasniff.analysis.overview.answer import EncryptedStats
from kafkasniff.cli.render.rich_text import screen_text
from kafkasniff.cli.render.timing_answer import ExchangeGroup, TimingAnswer
from kafkasniff.cli.render.waterfall import largest, who
from kafkasniff.model import BROKER_TIMES
from kafkasniff.report.answer_tables import AnswerTable
from kafkasniff.report.cells import Cell, ReportColumn
from kafkasniff.report.overview_columns import ENCRYPTED, ENCRYPTED_TITLE
from kafkasniff.text.printable import cut, printable, word
from kafkasniff.text.times import duration
from kafkasniff.timing.vantage import DurationRange

if TYPE_CHECKING:
    from kafkasniff.enrich.hosts import Hosts

__all__ = ["timing_text"]

MAX_ROWS: Final = 60
"""Groups shown; JSON has all."""
MAX_NAME: Final = 60
"""Maximum width of a group's name."""

_HEADINGS: Final = {
    "transfer": "transfer",
    "request": "request",
    "resent": "lost",
    "behind": "queued",
    "muted": "muted",
    "held": "held",
    "network": "network",
    "wait": "requested",
    "broker": "broker",
    "may_wait": "maybe wait",
    "response": "response",
}
"""Parts between the first byte of a request and the last byte of its response; `may_wait` is a part of `broker`."""
_TITLES: Final = {"api": "API", "api_version": "version", "client_id": "client", "client_ip": "address"}
_NEAR: Final = {
    "client": "near the client",
    "broker": "near the broker",
    "between": "between the two",
    "anywhere": "with both ends nearby",
}


def timing_text(answer: TimingAnswer, sources: str, *, width: int, coloured: bool, hosts: Hosts | None = None) -> str:
    """The screen, `width` columns wide, with ANSI codes if `coloured`.

    `sources`: its first line; `hosts`: names of addresses.
    """
    groups = answer.groups()
    shares = "Shares of the time from the first byte of requests to the last byte of responses"
    slowest = "Slowest exchanges, not counting requested waits (--exchange N)"
    shown, more = groups[:MAX_ROWS], len(groups) - MAX_ROWS
    logged = answer.broker_times()
    times = "The broker's own times, by its request log"
    sealed = [EncryptedStats(**row) for row in answer.encrypted.result().to_pylist()]
    tables = [
        AnswerTable("groups", shares, shown, _columns(shown), more, "--format json", hosts),
        AnswerTable(
            *(
                "encrypted",
                ENCRYPTED_TITLE,
                sealed[:MAX_ROWS],
                ENCRYPTED,
                len(sealed) - MAX_ROWS,
                "--format json",
                hosts,
            )
        ),
        AnswerTable("broker_times", times, logged[:MAX_ROWS], _LOGGED, len(logged) - MAX_ROWS, "--format json"),
        AnswerTable("slowest", slowest, answer.slowest, _SLOWEST),
    ]
    return screen_text(_heading(answer, groups, sources), tables, width=width, coloured=coloured)


def _heading(answer: TimingAnswer, groups: Sequence[ExchangeGroup], sources: str) -> list[str]:
    lines = [sources]
    timed = sum(group.timed for group in groups)
    whole = sum(group.duration.total_us for group in groups)
    exchanges = sum(group.exchanges for group in groups)
    counted = "" if not answer.by_topic else " (an exchange with several topics counts for each)"
    lines.append(f"{exchanges:,} exchanges{counted}, {timed:,} of them timed: {duration(whole * 1000)} in total")
    vantages = answer.vantages
    if vantages.connections:
        places = [f"{vantages.counts[name]:,} {_NEAR[name]}" for name in _NEAR if name in vantages.counts]
        if vantages.unknown:
            places.append(f"{vantages.unknown:,} without a handshake")
        lines.append(f"captured: {vantages.connections:,} connections, {', '.join(places)}")
        if vantages.to_broker is not None and vantages.to_client is not None:
            lines.append(
                f"round trips from there, by handshakes: to brokers {_range(vantages.to_broker)}, "
                f"to clients {_range(vantages.to_client)}"
            )
    return lines


def _range(span: DurationRange) -> str:
    low, high = duration(span.low), duration(span.high)
    return low if low == high else f"{low} to {high}"


def _columns(groups: Sequence[ExchangeGroup]) -> list[ReportColumn]:
    # The parts that take the most time are the last to be hidden.
    parts = [name for name in _HEADINGS if any(_percent(group, name) >= 1 for group in groups)]
    by_share = sorted(parts, key=lambda name: -max(_percent(group, name) for group in groups))
    columns = [ReportColumn(name, _name(name)) for one in groups[:1] for name in _names(one)]
    columns.append(ReportColumn("count", lambda group: f"{group.exchanges:,}", number=True))
    columns += [
        ReportColumn(name, _of_duration(f"{name}_us"), number=True, level=level)
        for level, name in enumerate(("p50", "p99", "max"))
    ]
    columns += [
        ReportColumn(_HEADINGS[name], _share(name), number=True, level=3 + by_share.index(name)) for name in parts
    ]
    if any("think" in group.parts for group in groups):
        columns.append(ReportColumn("client p50", _think, number=True, level=3 + len(parts)))
    return columns


def _name(name: str) -> Cell:
    return lambda group: cut(_names(group)[name], MAX_NAME)


def _of_duration(field: str) -> Cell:
    return lambda group: duration(getattr(group.duration, field) * 1000) if group.duration.count else ""


def _share(name: str) -> Cell:
    def cell(group: ExchangeGroup) -> str:
        percent = _percent(group, name)
        return f"{percent:.0f}%" if percent >= 1 else "<1%" if percent else ""

    return cell


def _think(group: ExchangeGroup) -> str:
    think = group.parts.get("think")
    return "" if think is None else duration(think.p50_us * 1000)


def _percent(group: ExchangeGroup, name: str) -> float:
    """Percentage of a part in the group's time."""
    part = group.parts.get(name)
    return 0.0 if part is None or not group.duration.total_us else 100 * part.total_us / group.duration.total_us


def _names(group: ExchangeGroup) -> dict[str, str]:
    """The columns that identify the group, escaped."""
    keys = dict(group.keys)
    number = keys.pop("broker_id", None)
    if number is not None and "broker" in keys:
        keys["broker"] = f"{number} ({keys['broker']})"
    id_ = keys.pop("connection_id", None)
    if "api" in keys and keys["api"] is None:
        keys["api"] = "(request not seen)"
    shown = {name: "" if value is None else word(value) for name, value in keys.items()}
    if keys.get("broker") is not None:
        shown["broker"] = printable(keys["broker"])
    if id_ is not None:
        # Rows of an export only have the key of its tables.
        shown["connection"] = f"connection_id {id_}" if keys["connection"] is None else f"conn {keys['connection']}"
    return {_TITLES.get(name, name): value for name, value in shown.items()}


def _logged_share(name: str) -> Cell:
    def cell(row: dict[str, Any]) -> str:
        percent = 100 * row[f"{name}_us"] / max(row["total_us"], 1)
        return f"{percent:.0f}%" if percent >= 1 else "<1%" if percent else ""

    return cell


_LOGGED: Final = [
    ReportColumn("API", lambda row: row["api"]),
    ReportColumn("count", lambda row: f"{row['exchanges']:,}", number=True),
    ReportColumn("mean", lambda row: duration(1000 * row["total_us"] // row["exchanges"]), number=True),
    *(ReportColumn(name.replace("_", " "), _logged_share(name), number=True) for name in BROKER_TIMES[1:]),
]
_SLOWEST: Final = [
    ReportColumn("exchange", lambda timed: f"#{timed.exchange.exchange}", number=True),
    ReportColumn("what", who),
    ReportColumn("time", lambda timed: duration(timed.slowness), number=True),
    ReportColumn("most of it", largest),
]
