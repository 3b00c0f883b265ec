"""Answers as data: the tables of an overview, as `stats` prints them and a report shows them.

Each renderer (`cli.render.rich_text`, the template of the page) gets the same rows and cells, so a number cannot
differ between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkasniff.report.cells import MAX_DETAIL, ReportColumn, moment, named, spans_days
from kafkasniff.report.overview_columns import (
    APIS,
    BROKERS,
    CLIENTS,
    ENCRYPTED,
    ENCRYPTED_TITLE,
    GROUPS,
    MIDDLE,
    TOPICS,
    problem_columns,
)
from kafkasniff.report.security_columns import SECURITY
from kafkasniff.text.printable import cut, printable, word
from kafkasniff.text.times import duration

if TYPE_CHECKING:
    # They need pyarrow, which `api` does without.
    from kafkasniff.analysis.overview.answer import OverviewAnswer
    from kafkasniff.analysis.security import ClientIdentity
    from kafkasniff.enrich.hosts import Hosts

__all__ = ["AnswerTable", "overview_tables", "rebalance_columns"]


class AnswerTable(NamedTuple):
    """A table of an answer."""

    name: str
    """Key in the JSON of the answer."""
    title: str
    rows: Sequence[Any]
    columns: Sequence[ReportColumn]
    more: int = 0
    """Number of rows omitted at its end."""
    option: str = "--top"
    """What shows these."""
    hosts: Hosts | None = None
    """Names that replace the addresses in its cells."""

    @property
    def filled(self) -> list[ReportColumn]:
        """The columns that are not empty."""
        return [column for column in self.columns if any(column.cell(row) for row in self.rows)]


def overview_tables(
    answer: OverviewAnswer,
    identities: Sequence[ClientIdentity],
    errors: list[ReportColumn],
    *,
    top: int,
    hosts: Hosts | None = None,
) -> list[AnswerTable]:
    """The tables of an overview. `errors`: columns of error codes; `top`: rows of `identities` to show."""
    lists: list[tuple[str, str, Sequence[Any], list[ReportColumn]]] = [
        ("brokers", "Brokers", answer.brokers, BROKERS),
        ("clients", "Clients", answer.clients, CLIENTS),
        ("apis", "APIs", answer.apis, APIS),
        ("topics", "Topics", answer.topics, TOPICS),
        ("groups", "Groups", answer.groups, GROUPS),
        ("errors", "Errors", answer.errors, errors),
        ("encrypted", ENCRYPTED_TITLE, answer.encrypted, ENCRYPTED),
        ("problems", "Problems", answer.problems or [], problem_columns(spans_days(answer))),
        ("identities", "Security", identities[:top], SECURITY),
    ]
    more = {**answer.more, "identities": max(len(identities) - top, 0)}
    return [
        AnswerTable(name, title, rows, named(columns, hosts, level=MIDDLE), more.get(name, 0))
        for name, title, rows, columns in lists
    ]


def rebalance_columns(days: bool) -> list[ReportColumn]:
    """Columns of rebalances, rows of `Contents.generations`; `days`: times need their dates."""

    def lasted(row: dict[str, Any]) -> str:
        return "" if row["duration_us"] is None else duration(1000 * row["duration_us"])

    def number(name: str) -> Callable[[dict[str, Any]], str]:
        return lambda row: "" if row[name] is None else str(row[name])

    return [
        ReportColumn("group", lambda row: word(row["group_id"])),
        ReportColumn("cluster", lambda row: "" if row["cluster"] is None else word(row["cluster"])),
        ReportColumn(
            "begins", lambda row: moment(None if row["time_us"] is None else 1000 * row["time_us"], days=days)
        ),
        ReportColumn("protocol", lambda row: row["protocol"]),
        ReportColumn("generation", number("generation"), number=True),
        ReportColumn("lasts", lasted, number=True),
        ReportColumn("members", number("members"), number=True),
        ReportColumn("why", lambda row: cut(printable(row["cause"] or ""), MAX_DETAIL)),
    ]
