"""The charts of a report: `Contents` as Vega-Lite specifications, and these as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kafkasniff.analysis.detectors import Finding
from kafkasniff.analysis.overview.answer import TopicStats
from kafkasniff.kafka.schema.codes import error_by_code
from kafkasniff.report.answer_tables import MAX_DETAIL
from kafkasniff.report.contents import Contents
from kafkasniff.report.svg import FULL_WIDTH, HALF_WIDTH, SERIES, WIDTH, colour, svg_of
from kafkasniff.report.traffic import EDGES
from kafkasniff.sinks.summaries.phrases import amount
from kafkasniff.text.printable import WORD_WIDTH, cut, printable, word
from kafkasniff.text.times import clock_time, date_of, duration

MAX_SERIES: Final = 7
"""Maximum number of series of one chart; the others are combined into one more."""
MAX_COUNTED: Final = 5
"""An axis with a maximum up to here shows all whole numbers."""
LABEL: Final = 22
"""Maximum number of characters of a name at an axis."""
OTHER: Final = "other"
SILENT: Final = "unanswered"

Spec = dict[str, Any]
"""Version of Vega-Lite."""
Row = Mapping[str, Any]
NAMES_AXIS: Final[Spec] = {"title": None, "ticks": False, "domain": False, "grid": False}
"""The axis of names."""


class Drawing(NamedTuple):
    """What a picture shows."""

    spec: Spec
    legend: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    """Name of the colour of each series."""


class TimeAxis:
    """The time axis of all charts: from the first span to the end of the last one."""

    def __init__(self, contents: Contents) -> None:
        self._worst = next((finding for finding in contents.findings if finding.severity != "note"), None)
        starts = [row["start"] for row in contents.traffic if row["start"] is not None]
        self.width = contents.width
        self.low = min(starts, default=0)
        self.high = max(starts, default=0) + contents.width
        days = date_of(self.low) != date_of(self.high - 1)
        length = self.high - self.low
        if length < 10 * 10**9:
            self._format = "%H:%M:%S.%L"
        elif days:
            self._format = "%m-%d" if length > 4 * 86_400 * 10**9 else "%m-%d %H:%M"
        else:
            self._format = "%H:%M" if length > 20 * 60 * 10**9 else "%H:%M:%S"
        self._days = days

    def encoding(self) -> Spec:
        """Range of x, in milliseconds since 1970, as Vega represents times."""
        domain = [self.low / 1e6, self.high / 1e6]
        axis = {"format": self._format, "tickCount": 3, "title": None, "grid": False, "labelOverlap": True}
        return {"field": "x", "type": "temporal", "scale": {"type": "utc", "domain": domain}, "axis": axis}

    def span(self, start: int) -> Spec:
        """The columns x and x2 of a span."""
        return {"x": start / 1e6, "x2": (start + self.width) / 1e6}

    def over(self, spec: Spec) -> Spec:
        """A chart over time, with a band for the time of the worst finding, if that has a duration."""
        worst = self._worst
        if worst is None or worst.first is None or worst.last is None or worst.first == worst.last:
            return spec
        names = ("data", "mark", "encoding")
        time = {"x": worst.first / 1e6, "x2": worst.last / 1e6, "caption": cut(worst.title, MAX_DETAIL)}
        band: Spec = {
            "data": {"values": [time]},
            "mark": {"type": "rect", "opacity": 0.14, "clip": True},
            "encoding": {
                "x": self.encoding(),
                "x2": {"field": "x2"},
                "color": {"value": colour("red")},
                "description": {"field": "caption"},
            },
        }
        before = {name: part for name, part in spec.items() if name not in names}
        return {**before, "layer": [band, {name: spec[name] for name in names}]}

    def caption(self, time_ns: int) -> str:
        """A time as text, as precise as the chart needs."""
        clock = clock_time(time_ns)[: 15 if self.width < 10**9 else 8]
        return f"{date_of(time_ns)} {clock}" if self._days else clock


def labels_of(names: Iterable[str | None], width: int = LABEL) -> dict[str | None, str]:
    """Names as shown in a chart: safe, short, and unique."""
    found: dict[str | None, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        label, number = word(name, width), 1
        while label in taken:
            number += 1
            label = f"{word(name, width)} ({number})"
        found[name] = label
        taken.add(label)
    return found


def series_of(values: Sequence[tuple[Any, str, int]]) -> tuple[dict[Any, dict[str, int]], list[str]]:
    """Values by position and series, and the series: the largest, and the others combined into one."""
    sums: dict[str, int] = {}
    for _, name, number in values:
        sums[name] = sums.get(name, 0) + number
    ranked = sorted((name for name in sums if sums[name]), key=lambda name: (-sums[name], name))
    # If there is just one too many, it may as well be shown itself.
    shown = ranked if len(ranked) <= MAX_SERIES + 1 else ranked[:MAX_SERIES]
    labels = labels_of(shown, WORD_WIDTH)
    found: dict[Any, dict[str, int]] = {}
    for place, name, number in values:
        if number:
            row = found.setdefault(place, {})
            label = labels.get(name, OTHER)
            row[label] = row.get(label, 0) + number
    return found, [*labels.values(), *([OTHER] if len(ranked) > len(shown) else [])]


def legend_of(names: Iterable[str]) -> dict[str, str]:
    """A colour for each of some series."""
    fixed = {OTHER: "grey", SILENT: "red"}
    free = iter(SERIES)
    return {name: fixed.get(name) or next(free, "grey") for name in names}


def colours_of(legend: Mapping[str, str]) -> Spec:
    """How series are coloured; the page has the legend."""
    scale = {"domain": list(legend), "range": [colour(name) for name in legend.values()]}
    return {"field": "series", "type": "nominal", "scale": scale, "legend": None}


def amounts_axis(name: str, most: int, **extent: int) -> Spec:
    """The numeric axis from 0 to `most`."""
    axis: Spec = {"title": None, "tickCount": 4, "format": "~s", **extent}
    if most <= MAX_COUNTED:
        # Otherwise there would be halves of an exchange.
        axis["values"] = list(range(most + 1))
    return {"field": name, "type": "quantitative", "axis": axis, "scale": {"domainMin": 0, "nice": 4}}


def height_of(rows: int) -> int:
    """Height of a chart with a row for each of some names."""
    return 20 * rows + 40


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
    filled = [index for index, count in enumerate(counts) if count]
    if not filled:
        return None
    whole = sum(counts)
    shown = range(max(filled[0] - 1, 0), min(filled[-1] + 2, len(counts)))
    rows = [
        {
            "x": edges[index],
            "x2": edges[index + 1],
            "y": 0,
            "y2": counts[index],
            "caption": f"{_between(index)}: {counts[index]:,} ({counts[index] / whole:.0%})",
        }
        for index in shown
        if counts[index]
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
    apis = [
        api_stats for api_stats in contents.answer.apis if api_stats.latency is not None and api_stats.api is not None
    ][:MAX_APIS]
    if not apis:
        return None
    ranges: dict[str, list[int]] = {}
    for row in contents.latencies:
        ranges.setdefault(row["api"], []).append(row["low"])
    labels = labels_of(api_stats.api for api_stats in apis)
    rows: list[Spec] = []
    for api in apis:
        assert api.latency is not None
        shortest = min(ranges.get(api.api or "", [api.latency.p50_us]))
        caption = (
            f"{labels[api.api]}: median {_us(api.latency.p50_us)}, 90% {_us(api.latency.p90_us)}, "
            f"99% {_us(api.latency.p99_us)}, longest {_us(api.latency.max_us)}, of {api.latency.count:,}"
        )
        rows.append(
            {
                "y": labels[api.api],
                "low": max(shortest, 1),
                "high": max(api.latency.max_us, 1),
                "p50": max(api.latency.p50_us, 1),
                "p99": max(api.latency.p99_us, 1.05 * max(api.latency.p50_us, 1)),
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
        drawn = [drawing for drawing in drawings if drawing is not None]
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
    topics = [(_topic(topic), "produced", topic.produced.bytes) for topic in contents.answer.topics]
    topics += [(_topic(topic), "fetched", topic.fetched.bytes) for topic in contents.answer.topics]
    topics += [(_topic(topic), "replicated", topic.replicated.bytes) for topic in contents.answer.topics]
    add("topics", "Bytes of topics", "as on the wire, the busiest", _bars(topics, amount))
    clients = [(client.client_id, "sent", client.request_bytes) for client in contents.answer.clients]
    clients += [(client.client_id, "received", client.response_bytes) for client in contents.answer.clients]
    add("clients", "Bytes of clients", "by client id, the busiest", _bars(clients, amount))
    note = "from the trigger to the last assignment, with the generation"
    add("groups", "Rebalances", note, _groups(axis, contents))
    return {section: _drawn(some) for section, some in found.items()}


def _drawn(charts: Sequence[tuple[str, str, list[Drawing]]]) -> list[Chart]:
    """The charts of a section, as wide as its page has room for."""
    width = FULL_WIDTH if len(charts) == 1 else HALF_WIDTH if len(charts) == 2 else WIDTH
    return [
        Chart(
            title,
            note,
            [each for drawing in drawings for each in drawing.legend.items()],
            [svg_of(drawing.spec, f"{title}: {note}", width) for drawing in drawings],
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
    for number, finding in enumerate(findings, 1):
        if finding.severity == "note" or finding.first is None or finding.last is None:
            continue
        # Vega shrinks a chart so that names beyond its axis fit: it would no longer be aligned with the one above.
        first = min(max(finding.first, axis.low), axis.high - least)
        rows.append(
            {
                "y": f"{number} {word(finding.detector, LABEL)}",
                "x": first / 1e6,
                "x2": min(max(finding.last, first + least), axis.high) / 1e6,
                "series": finding.severity,
                "caption": cut(finding.title, MAX_DETAIL),
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
    labels = labels_of(_group(group.group_id, group.cluster) for group in contents.answer.groups[:MAX_BARS])
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
