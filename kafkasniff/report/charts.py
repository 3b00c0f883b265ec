"""The charts of a report: `Contents` as Vega-Lite specifications, and these as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from kafkasniff.analysis.detectors import Finding
from kafkasniff.analysis.overview.answer import TopicStats
from kafkasniff.kafka.schema.codes import error_by_code
from kafkasniff.report.cells import MAX_DETAIL
from kafkasniff.report.contents import Contents
from kafkasniff.report.drawing import (
    LABEL,
    NAMES_AXIS,
    SILENT,
    Drawing,
    Row,
    Spec,
    TimeAxis,
    amounts_axis,
    colours_of,
    height_of,
    labels_of,
    legend_of,
    series_of,
)
from kafkasniff.report.latency_charts import latency_histogram, latency_over_time, latency_ranges
from kafkasniff.report.svg import FULL_WIDTH, HALF_WIDTH, WIDTH, svg_of
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import cut, printable, word
from kafkasniff.text.times import duration

__all__ = ["Chart", "charts_of"]

MAX_BARS: Final = 12
"""Maximum number of rows of a bar chart."""
SECTIONS: Final = ("timeline", "traffic", "latency", "errors", "topics", "clients", "groups")
MIN_LATENCIES: Final = 20
"""Latencies of an API from which their distribution says something."""
MAX_REBALANCES: Final = 200
"""Maximum number of marks in the chart of groups."""
SAME_EXTENT: Final[Spec] = {"minExtent": 36, "maxExtent": 36}
"""The room of a vertical axis in pictures whose horizontal axes are aligned."""
UNKNOWN: Final = "unknown"


class Chart(msgspec.Struct, frozen=True):
    """Pictures on one subject."""

    title: str
    note: str
    """What the pictures do not show themselves: units, and what a bar means."""
    legend: list[tuple[str, str]]
    """Series and the names of their colours."""
    pictures: list[str]
    """SVG images, shown one below the other."""
    width: int
    """Their width in SVG units."""


def charts_of(contents: Contents) -> dict[str, list[Chart]]:
    """The charts by page section; none if there is nothing to show."""
    found: dict[str, list[tuple[str, str, list[Drawing]]]] = {name: [] for name in SECTIONS}
    axis = TimeAxis(contents)

    def add(section: str, title: str, note: str, *drawings: Drawing | None) -> None:
        drawn = [one for one in drawings if one is not None]
        if drawn:
            found[section].append((title, note, drawn))

    per_span = f"in bars of {duration(contents.width)}"
    timed = [row for row in contents.traffic if row["start"] is not None]
    events = _findings(axis, contents.findings)
    below = "; below, findings" if events is not None else ""
    add(
        "timeline",
        "Exchanges",
        f"by API, {per_span}{below}",
        _stacked(axis, _by_api(timed), _number, SAME_EXTENT),
        events,
    )
    sizes = [(row["start"], "responses", row["response_bytes"]) for row in timed]
    sizes += [(row["start"], "requests", row["request_bytes"]) for row in timed]
    add("traffic", "Bytes", per_span, _stacked(axis, sizes, amount))
    ranges = "bars from the median to 99%, lines from the shortest to the longest"
    add("latency", "Latency by API", ranges, latency_ranges(contents))
    for api, counts in contents.histograms.items():
        if sum(counts) < MIN_LATENCIES:
            continue
        spans = [row for row in contents.latencies if row["api"] == api]
        note = f"from the median to 99% {per_span}; below, the distribution of latencies"
        add("latency", word(api), note, latency_over_time(axis, spans), latency_histogram(counts))
    wrong = [
        (row["start"], _error_name(row["code"]), row["errors"]) for row in contents.errors if row["start"] is not None
    ]
    wrong += [(row["start"], SILENT, row["unanswered"]) for row in timed]
    add("errors", "Errors", f"by code, {per_span}", _stacked(axis, wrong, _number))
    topics = [(_topic(one), "produced", one.produced.bytes) for one in contents.answer.topics]
    topics += [(_topic(one), "fetched", one.fetched.bytes) for one in contents.answer.topics]
    topics += [(_topic(one), "replicated", one.replicated.bytes) for one in contents.answer.topics]
    add("topics", "Bytes of topics", "as on the wire, the busiest", _bars(topics, amount))
    clients = [(one.client_id, "sent", one.request_bytes) for one in contents.answer.clients]
    clients += [(one.client_id, "received", one.response_bytes) for one in contents.answer.clients]
    add("clients", "Bytes of clients", "by client id, the busiest", _bars(clients, amount))
    note = "from the trigger to the last assignment, with the generation"
    add("groups", "Rebalances", note, _groups(axis, contents))
    return {section: _drawn(section, some) for section, some in found.items()}


def _drawn(section: str, charts: Sequence[tuple[str, str, list[Drawing]]]) -> list[Chart]:
    """The charts of a section as wide as they have room."""
    width = FULL_WIDTH if section == "timeline" else HALF_WIDTH if len(charts) <= 2 else WIDTH
    return [
        Chart(
            title,
            note,
            [each for one in drawings for each in one.legend.items()],
            [svg_of(one.spec, f"{title}: {note}", width) for one in drawings],
            width,
        )
        for title, note, drawings in charts
    ]


def _by_api(rows: Iterable[Row]) -> list[tuple[int, str, int]]:
    return [(row["start"], row["api"] or UNKNOWN, row["exchanges"]) for row in rows]


def _number(value: int) -> str:
    return f"{value:,}"


def _error_name(code: int | None) -> str:
    if code is None:
        return UNKNOWN
    known = error_by_code(code)
    return str(code) if known is None else known.name


def _stacked(
    axis: TimeAxis, values: Sequence[tuple[int, str, int]], render: Callable[[int], str], extent: Spec | None = None
) -> Drawing | None:
    """Stacked bars over time. `extent`: that of the vertical axis."""
    by_start, names = series_of(values)
    rows: list[Spec] = []
    for start, numbers in sorted(by_start.items()):
        base = 0
        for name in names:
            if name in numbers:
                description = f"{axis.caption(start)} {name}: {render(numbers[name])}"
                rows.append(
                    {**axis.span(start), "y": base, "y2": base + numbers[name], "series": name, "caption": description}
                )
                base += numbers[name]
    if not rows:
        return None
    legend = legend_of(names)
    spec: Spec = {
        "data": {"values": rows},
        "mark": {"type": "rect"},
        "encoding": {
            "x": axis.encoding(),
            "x2": {"field": "x2"},
            "y": amounts_axis("y", max(row["y2"] for row in rows), **extent or {}),
            "y2": {"field": "y2"},
            "color": colours_of(legend),
            "description": {"field": "caption"},
        },
    }
    return Drawing(axis.over(spec), legend)


def _findings(axis: TimeAxis, findings: Sequence[Finding]) -> Drawing | None:
    """When each of the worst findings was seen, with its number in the list."""
    rows: list[Spec] = []
    # A bar without width would be invisible.
    least = (axis.high - axis.low) // 400
    for number, one in enumerate(findings, 1):
        if one.severity == "note" or one.first is None or one.last is None:
            continue
        rows.append(
            {
                "y": f"{number} {word(one.detector, LABEL)}",
                "x": one.first / 1e6,
                "x2": max(one.last, one.first + least) / 1e6,
                "series": one.severity,
                "caption": cut(one.title, MAX_DETAIL),
            }
        )
    rows = rows[:MAX_BARS]
    if not rows:
        return None
    y = {"field": "y", "type": "nominal", "sort": None, "axis": {**NAMES_AXIS, "labels": False, **SAME_EXTENT}}
    late = f"datum.x > {(axis.low + 3 * (axis.high - axis.low) // 4) / 1e6}"
    bars: Spec = {
        "mark": {"type": "bar", "height": 9, "clip": True},
        "encoding": {
            "x": axis.encoding(),
            "x2": {"field": "x2"},
            "y": y,
            "color": colours_of({"error": "red", "warning": "orange"}),
            "description": {"field": "caption"},
        },
    }
    # A name has room on one side of its bar's beginning.
    names: list[Spec] = [
        {
            "transform": [{"filter": condition}],
            "mark": {"type": "text", "dy": -11, "fontSize": 10, "align": align, "aria": False},
            "encoding": {"x": {**axis.encoding(), "field": field}, "y": y, "text": {"field": "y"}},
        }
        for condition, align, field in ((f"!({late})", "left", "x"), (late, "right", "x2"))
    ]
    return Drawing({"height": 30 * len(rows) + 40, "data": {"values": rows}, "layer": [bars, *names]})


def _bars(values: Sequence[tuple[str | None, str, int]], render: Callable[[int], str]) -> Drawing | None:
    """A bar for each of the largest names, made of consecutive parts."""
    by_name, parts = series_of(values)
    ranked = sorted(by_name, key=lambda name: (-sum(by_name[name].values()), name is None, name or ""))[:MAX_BARS]
    labels = labels_of(ranked)
    rows: list[Spec] = []
    for name, label in labels.items():
        base = 0
        for part in parts:
            if part in by_name[name]:
                size = by_name[name][part]
                caption = f"{label} {part}: {render(size)}"
                rows.append({"y": label, "x": base, "x2": base + size, "series": part, "caption": caption})
                base += size
    if not rows:
        return None
    legend = legend_of(parts)
    spec: Spec = {
        "height": height_of(len(ranked)),
        "data": {"values": rows},
        "mark": {"type": "bar", "height": 11},
        "encoding": {
            "y": {"field": "y", "type": "nominal", "sort": [*labels.values()], "axis": NAMES_AXIS},
            "x": amounts_axis("x", max(row["x2"] for row in rows)),
            "x2": {"field": "x2"},
            "color": colours_of(legend),
            "description": {"field": "caption"},
        },
    }
    return Drawing(spec, legend)


def _topic(topic: TopicStats) -> str | None:
    return topic.topic if topic.topic is None else _group(topic.topic, topic.cluster)


def _group(name: str, cluster: str | None) -> str:
    return name if cluster is None else f"{name} in {cluster}"


def _groups(axis: TimeAxis, contents: Contents) -> Drawing | None:
    """A timeline for each group, with a bar for each rebalance and its generation above."""
    labels = labels_of(_group(one.group_id, one.cluster) for one in contents.answer.groups[:MAX_BARS])
    rows = []
    for row in contents.generations[:MAX_REBALANCES]:
        group = labels.get(_group(row["group_id"], row["cluster"]))
        if row["time_us"] is None or group is None:
            continue
        begin = 1000 * row["time_us"]
        end = begin + 1000 * (row["duration_us"] or 0)
        # A bar without width would be invisible.
        least = (axis.high - axis.low) // 150
        generation = "" if row["generation"] is None else str(row["generation"])
        cause = f": {cut(printable(row['cause']), MAX_DETAIL)}" if row["cause"] else ""
        rows.append(
            {
                "y": group,
                "x": begin / 1e6,
                "x2": max(end, begin + least) / 1e6,
                "series": "members left" if row["generation"] is None else "new generation",
                "generation": generation,
                "caption": f"{axis.caption(begin)} {group} {generation}{cause}",
            }
        )
    if not rows:
        return None
    legend = {"new generation": "purple", "members left": "orange"}
    used = [group for group in labels.values() if any(row["y"] == group for row in rows)]
    y = {"field": "y", "type": "nominal", "sort": used, "axis": {**NAMES_AXIS, "grid": True}}
    spec: Spec = {
        "height": 34 * len(used) + 40,
        "data": {"values": rows},
        "layer": [
            {
                "mark": {"type": "bar", "height": 12},
                "encoding": {
                    "x": axis.encoding(),
                    "x2": {"field": "x2"},
                    "y": y,
                    "color": colours_of(legend),
                    "description": {"field": "caption"},
                },
            },
            {
                "mark": {"type": "text", "dy": -12, "fontSize": 9, "align": "left", "aria": False},
                "encoding": {"x": axis.encoding(), "y": y, "text": {"field": "generation"}},
            },
        ],
    }
    return Drawing(spec, legend)
