"""Charts of latencies, all on logarithmic axes, since they range from microseconds to minutes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kafkasniff.report.contents import Contents
from kafkasniff.report.drawing import (
    NAMES_AXIS,
    Drawing,
    Row,
    Spec,
    TimeAxis,
    amounts_axis,
    height_of,
    labels_of,
)
from kafkasniff.report.svg import colour
from kafkasniff.report.traffic import EDGES
from kafkasniff.text.times import duration

__all__ = ["MAX_APIS", "latency_histogram", "latency_over_time", "latency_ranges"]

MAX_APIS: Final = 12
"""Maximum number of APIs of one chart, the most frequent."""


def _log_axis() -> Spec:
    """A logarithmic axis of latencies in microseconds."""
    # d3 writes 1000 µs as "1k"; the unit belongs to the number here.
    label = (
        "datum.value < 1000 ? datum.value + ' µs' : datum.value < 1000000 ? datum.value / 1000 + ' ms' : "
        "datum.value / 1000000 + ' s'"
    )
    return {"title": None, "labelExpr": label, "values": [10**power for power in range(9)], "labelOverlap": True}


def _decades(values: Iterable[int]) -> tuple[int, int]:
    """Powers of ten around some latencies, at least one apart."""
    found = [max(value, 1) for value in values]
    low = 1
    while low * 10 <= min(found, default=1):
        low *= 10
    high = low * 10
    while high < max(found, default=1):
        high *= 10
    return low, high


def latency_over_time(axis: TimeAxis, rows: Sequence[Row]) -> Drawing | None:
    """The latencies of one API, from the median to 99% of each span."""
    if not rows:
        return None
    low, high = _decades([row[name] for row in rows for name in ("p50", "p99")])
    values = [
        {
            **axis.span(row["start"]),
            "p50": max(row["p50"], 1),
            # A bar needs some height to be visible.
            "p99": max(row["p99"], 1.08 * max(row["p50"], 1)),
            "caption": f"{axis.caption(row['start'])}: median {_us(row['p50'])}, 90% {_us(row['p90'])}, "
            f"99% {_us(row['p99'])}, longest {_us(row['high'])}, of {row['count']:,}",
        }
        for row in rows
    ]
    scale = {"type": "log", "domain": [low, high]}
    spec: Spec = {
        "data": {"values": values},
        "mark": {"type": "rect", "color": colour("blue")},
        "encoding": {
            "x": axis.encoding(),
            "x2": {"field": "x2"},
            "y": {"field": "p50", "type": "quantitative", "scale": scale, "axis": _log_axis()},
            "y2": {"field": "p99"},
            "description": {"field": "caption"},
        },
    }
    return Drawing(axis.over(spec))


def latency_histogram(counts: Sequence[int]) -> Drawing | None:
    """The number of latencies between the `EDGES`."""
    edges = [EDGES[0] / 2, *EDGES, EDGES[-1] * 2]
    filled = [place for place, count in enumerate(counts) if count]
    if not filled:
        return None
    whole = sum(counts)
    shown = range(max(filled[0] - 1, 0), min(filled[-1] + 2, len(counts)))
    rows = [
        {
            "x": edges[place],
            "x2": edges[place + 1],
            "y": 0,
            "y2": counts[place],
            "caption": f"{_between(place)}: {counts[place]:,} ({counts[place] / whole:.0%})",
        }
        for place in shown
        if counts[place]
    ]
    scale = {"type": "log", "domain": [edges[shown[0]], edges[shown[-1] + 1]]}
    spec: Spec = {
        "height": 110,
        "data": {"values": rows},
        "mark": {"type": "rect", "color": colour("teal"), "stroke": colour("panel"), "strokeWidth": 1},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "scale": scale, "axis": {**_log_axis(), "grid": False}},
            "x2": {"field": "x2"},
            "y": amounts_axis("y", max(counts)),
            "y2": {"field": "y2"},
            "description": {"field": "caption"},
        },
    }
    return Drawing(spec)


def _between(place: int) -> str:
    if place == 0:
        return f"below {_us(EDGES[0])}"
    return (
        f"{_us(EDGES[place - 1])} or more" if place == len(EDGES) else f"{_us(EDGES[place - 1])} to {_us(EDGES[place])}"
    )


def _us(microseconds: int) -> str:
    return duration(microseconds * 1000)


def latency_ranges(contents: Contents) -> Drawing | None:
    """The latencies of each API, from the shortest to the longest, and from the median to 99%."""
    apis = [one for one in contents.answer.apis if one.latency is not None and one.api is not None][:MAX_APIS]
    if not apis:
        return None
    ranges: dict[str, list[int]] = {}
    for row in contents.latencies:
        ranges.setdefault(row["api"], []).append(row["low"])
    labels = labels_of(one.api for one in apis)
    rows: list[Spec] = []
    for one in apis:
        assert one.latency is not None
        shortest = min(ranges.get(one.api or "", [one.latency.p50_us]))
        caption = (
            f"{labels[one.api]}: median {_us(one.latency.p50_us)}, 90% {_us(one.latency.p90_us)}, "
            f"99% {_us(one.latency.p99_us)}, longest {_us(one.latency.max_us)}, of {one.latency.count:,}"
        )
        rows.append(
            {
                "y": labels[one.api],
                "low": max(shortest, 1),
                "high": max(one.latency.max_us, 1),
                "p50": max(one.latency.p50_us, 1),
                "p99": max(one.latency.p99_us, 1.05 * max(one.latency.p50_us, 1)),
                "caption": caption,
            }
        )
    low, high = _decades([row[name] for row in rows for name in ("low", "high")])
    scale = {"type": "log", "domain": [low, high]}
    y = {"field": "y", "type": "nominal", "sort": None, "axis": NAMES_AXIS}
    description = {"field": "caption"}

    def x(field: str) -> Spec:
        return {"field": field, "type": "quantitative", "scale": scale, "axis": _log_axis()}

    spec: Spec = {
        "height": height_of(len(rows)),
        "data": {"values": rows},
        "layer": [
            {
                "mark": {"type": "rule", "color": colour("grey")},
                "encoding": {"x": x("low"), "x2": {"field": "high"}, "y": y, "description": description},
            },
            {
                "mark": {"type": "bar", "color": colour("blue"), "height": 9},
                "encoding": {"x": x("p50"), "x2": {"field": "p99"}, "y": y, "description": description},
            },
        ],
    }
    return Drawing(spec)
