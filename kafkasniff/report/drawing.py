"""Building blocks of charts: axes, series with their colours, labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkasniff.report.cells import MAX_DETAIL
from kafkasniff.report.contents import Contents
from kafkasniff.report.svg import SERIES, colour
from kafkasniff.text.printable import WORD_WIDTH, cut, word
from kafkasniff.text.times import clock_time, date_of

__all__ = [
    "LABEL",
    "NAMES_AXIS",
    "OTHER",
    "SILENT",
    "Drawing",
    "Row",
    "Spec",
    "TimeAxis",
    "amounts_axis",
    "colours_of",
    "height_of",
    "labels_of",
    "legend_of",
    "series_of",
]

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
        self._worst = next((one for one in contents.findings if one.severity != "note"), None)
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
