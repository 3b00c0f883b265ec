"""Clients with their software, and brokers with their addresses, on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkasniff.analysis.comparison.answer import BrokerDiff, ClientDiff, Software
from kafkasniff.analysis.comparison.family import Thresholds
from kafkasniff.model import Endpoint

__all__ = ["compare_brokers", "compare_clients"]

Rows = Sequence[dict[str, Any]]


def compare_clients(before: Rows, after: Rows, thresholds: Thresholds) -> list[ClientDiff]:
    """A row for each client id, those that differ first. Unknown software is not a difference."""
    sides = [_clients(rows) for rows in (before, after)]
    found = []
    for client_id in sides[0].keys() | sides[1].keys():
        (counts, software), (counts_after, software_after) = (
            side.get(client_id, (0, dict[Software, int]())) for side in sides
        )
        row = ClientDiff(
            client_id=client_id,
            before=counts,
            after=counts_after,
            software_before=sorted(software, key=_order),
            software_after=sorted(software_after, key=_order),
            differs=thresholds.one_sided(counts, counts_after),
        )
        if software and software_after:
            row.differs = any(
                thresholds.one_sided(software.get(one, 0), software_after.get(one, 0))
                for one in software.keys() | software_after.keys()
            )
        found.append(row)
    return sorted(found, key=lambda row: (not row.differs, row.client_id is None, row.client_id or ""))


def _clients(rows: Rows) -> dict[str | None, tuple[int, dict[Software, int]]]:
    """By client id: exchanges in total, and by software."""
    found: dict[str | None, tuple[int, dict[Software, int]]] = {}
    for row in rows:
        count, software = found.get(row["client_id"], (0, {}))
        found[row["client_id"]] = (count + row["exchanges"], software)
        if row["software_name"] is not None:
            one = Software(row["software_name"], row["software_version"])
            software[one] = software.get(one, 0) + row["exchanges"]
    return found


def _order(one: Software) -> tuple[str, str]:
    return one.software_name, one.software_version or ""


def compare_brokers(before: Rows, after: Rows, thresholds: Thresholds) -> list[BrokerDiff]:
    """A row for each broker, those that differ first; an endpoint without a number takes that of the other side."""
    sides = [{_endpoint(row): row for row in rows} for rows in (before, after)]
    found: dict[tuple[int | None, str], tuple[dict[str, int], dict[str, int]]] = {}
    for place, side in enumerate(sides):
        for endpoint, row in side.items():
            number = row["broker_id"]
            if number is None and endpoint in sides[1 - place]:
                number = sides[1 - place][endpoint]["broker_id"]
            key = (number, endpoint if number is None else "")
            found.setdefault(key, ({}, {}))[place][endpoint] = row["exchanges"]
    brokers = [
        BrokerDiff(
            broker_id=number,
            before=sorted(one),
            after=sorted(other),
            differs=any(
                thresholds.one_sided(one.get(name, 0), other.get(name, 0)) for name in one.keys() | other.keys()
            ),
        )
        for (number, _), (one, other) in found.items()
    ]
    return sorted(
        brokers, key=lambda row: (not row.differs, row.broker_id is None, row.broker_id or 0, row.before, row.after)
    )


def _endpoint(row: dict[str, Any]) -> str:
    return str(Endpoint(row["broker_ip"], row["broker_port"]))
