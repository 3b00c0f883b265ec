"""The overview of the listed exchanges: histograms whose ranges can be selected, and what the commands report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import ClassVar, Final

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Offset
from textual.message import Message as Notice
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from kafkasniff.browse.commands import REPORTS, Commands, ReportLine, ReportName, report
from kafkasniff.browse.index import Brush, ExchangeIndex, latency_bins, time_bins
from kafkasniff.browse.screen.row_pane import CURSOR, RowPane, bar, hint
from kafkasniff.errors import KafkasniffError
from kafkasniff.text.printable import printable
from kafkasniff.text.times import clock_time, duration

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_HEIGHT: Final = 3
"""Lines of the bars, above one for errors …"""
_LOW: Final = 36
"""… and in screens of fewer lines, one line."""
_ERRORS: Final = Style(color="red")
_SELECTED: Final = Style(reverse=True)
_SEVERITIES: Final = {"error": Style(color="red", bold=True), "warning": Style(color="yellow", bold=True)}
_FINDING: Final = Style(bold=True)


class Histogram(Widget, can_focus=True):
    """Bars, one in each column, those of errors below; some in a row can be selected.

    `lines`: height of the bars; `axis`: show the ends below them.
    """

    HINTS: ClassVar = ("h l move", "Space begin a range", "Enter list only these", "Tab next pane")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,right", "move(1)", "Next, previous bar"),
        Binding("h,left", "move(-1)", "Next, previous bar"),
        Binding("g,home", "move(-1000000)", "First, last bar"),
        Binding("G,end", "move(1000000)", "First, last bar"),
        Binding("space,v", "mark", "Begin or end a range here"),
        Binding("enter", "choose", "List only this range"),
    ]

    class Chosen(Notice):
        """A range was chosen."""

        def __init__(self, expression: str) -> None:
            super().__init__()
            self.expression = expression

    def __init__(self, name: str, lines: int = _HEIGHT, *, axis: bool = True) -> None:
        super().__init__(id=name)
        self._axis = axis
        self.set_lines(lines)
        self.brush: Brush | None = None
        self.cursor = 0
        self.mark: int | None = None
        """The other end of the range."""

    def set_lines(self, lines: int) -> None:
        """Change the height of the bars."""
        self._lines = lines
        self.styles.height = lines + 2 + self._axis

    def show(self, brush: Brush) -> None:
        """Show bars."""
        self.brush, self.cursor, self.mark = brush, 0, None
        self.refresh()

    @property
    def range(self) -> tuple[int, int]:
        """First and last bar of the range."""
        ends = self.cursor, self.cursor if self.mark is None else self.mark
        return min(ends), max(ends)

    def action_move(self, by: int) -> None:
        """Some bars to the side."""
        if self.brush is not None:
            self.cursor = max(0, min(self.cursor + by, len(self.brush.bins) - 1))
            self.refresh()

    def action_mark(self) -> None:
        """Begin a range, or give it up."""
        self.mark = self.cursor if self.mark is None else None
        self.refresh()

    def action_choose(self) -> None:
        """Report the range."""
        if self.brush is not None and self.brush.bins:
            self.post_message(self.Chosen(self.brush.expression(*self.range)))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin a range."""
        self.focus()
        self.capture_mouse()
        self.mark = None
        self.action_move(event.x - self.cursor)
        self.mark = self.cursor

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Extend the range."""
        if event.button:
            self.action_move(event.x - self.cursor)

    def on_mouse_up(self, _event: events.MouseUp) -> None:
        """End the range."""
        self.release_mouse()

    def _shown(self, nanoseconds: int) -> str:
        assert self.brush is not None
        return clock_time(nanoseconds) if self.brush.field == "time" else duration(nanoseconds)

    def render(self) -> Text:
        """A title with the sums (of the range, with the focus), the bars, and the ends of the axis."""
        brush = self.brush
        if brush is None or not brush.bins:
            return Text("" if brush is None else f"no {brush.title}")
        first, last = self.range if self.has_focus else (0, len(brush.bins) - 1)
        chosen = brush.bins[first : last + 1]
        errors = sum(one.errors for one in chosen)
        some = f", {errors:,} with errors," if errors else ""
        ends = f"{self._shown(chosen[0].low)} – {self._shown(chosen[-1].high)}"
        title = f"{brush.title}: {sum(one.exchanges for one in chosen):,}{some} in {ends}\n"
        text = Text(title, Style(bold=self.has_focus), no_wrap=True, overflow="ellipsis")
        selected = range(first, last + 1) if self.has_focus else range(0)
        self._draw(text, [one.exchanges for one in brush.bins], self._lines, selected, Style.null())
        self._draw(text, [one.errors for one in brush.bins], 1, selected, _ERRORS)
        if self._axis:
            low, high = self._shown(brush.bins[0].low), self._shown(brush.bins[-1].high)
            text.append(low + high.rjust(max(len(brush.bins) - len(low), len(high) + 1)))
        return text

    @staticmethod
    def _draw(text: Text, counts: list[int], lines: int, selected: Collection[int], style: Style) -> None:
        """Append bars in some lines."""
        top = max(*counts, 1)
        for line in reversed(range(lines)):
            for index, count in enumerate(counts):
                # Whatever is not zero is visible.
                eighths = -(-count * lines * 8 // top)
                block = _BLOCKS[max(0, min(eighths - 8 * line, 8))]
                text.append(block, style + _SELECTED if index in selected else style)
            text.append("\n")


class ReportPane(RowPane):
    """Lines of a report; those of a finding lead to its evidence."""

    HINTS: ClassVar = ("Enter list the evidence", "Tab histograms", "Esc close")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "evidence", "List the evidence")]

    def __init__(self) -> None:
        super().__init__(id="report")
        self.lines: list[ReportLine] = []

    @property
    def count(self) -> int:
        """Number of lines."""
        return len(self.lines)

    def show(self, lines: list[ReportLine]) -> None:
        """Show other lines."""
        self.lines = lines
        self.reset(max((len(line.text) for line in lines), default=1))

    def drawn(self, row: int) -> Text:
        """A line."""
        line = self.lines[row]
        style = Style.null() if line.severity is None else _SEVERITIES.get(line.severity, _FINDING)
        return Text(line.text, style + CURSOR if row == self.cursor and self.has_focus else style)

    def action_evidence(self) -> None:
        """Report the filter for the evidence."""
        if self.lines and self.lines[self.cursor].evidence:
            self.post_message(Histogram.Chosen(self.lines[self.cursor].evidence))

    def click(self, row: int, place: Offset, *, again: bool) -> None:
        """Put the cursor on a line; the second click lists the evidence."""
        super().click(row, place, again=again)
        if again:
            self.action_evidence()


class OverviewScreen(Screen[str]):
    """Returns a condition to add to the filter, or nothing. `expression`: the filter so far."""

    CSS = "OverviewScreen ReportPane { height: 1fr; } OverviewScreen Static { height: 1; text-style: reverse; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,o", "give_up", "Close"),
        Binding("1", "report('check')", "Findings, as by check"),
        Binding("2", "report('stats')", "Summary, as by stats"),
        Binding("3", "report('timing')", "Where time went, as by timing"),
        Binding("tab", "app.focus_next", "Next pane"),
    ]

    def __init__(self, index: ExchangeIndex, commands: Commands, expression: str) -> None:
        super().__init__()
        self._index = index
        self._commands = commands
        self._expression = expression
        self._shown: ReportName = "check"
        self._reports: dict[ReportName, list[ReportLine]] = {}
        """Those that were made."""
        self._left = threading.Event()
        self._bars: dict[Histogram, Callable[[ExchangeIndex, int], Brush]] = {
            Histogram("times"): time_bins,
            Histogram("latencies"): latency_bins,
        }
        self._pane = ReportPane()
        self._titles = Static()

    def compose(self) -> ComposeResult:
        """The panes from top to bottom."""
        yield from self._bars
        yield self._titles
        yield self._pane

    def on_mount(self) -> None:
        """Count, and run the first report, once the width is known."""
        self._pane.focus()
        self.call_after_refresh(self._begin)

    def on_resize(self, event: events.Resize) -> None:
        """Leave a low screen to the report."""
        for bars in self._bars:
            bars.set_lines(_HEIGHT if event.size.height >= _LOW else 1)

    def on_unmount(self) -> None:
        """End the command."""
        self._left.set()
        # A closed screen stays until garbage is collected, but not its index.
        self._index = ExchangeIndex()

    def _begin(self) -> None:
        for bars, count in self._bars.items():
            self._count(bars, count)
        self.action_report(self._shown)

    def _count(self, bars: Histogram, count: Callable[[ExchangeIndex, int], Brush]) -> None:
        width = max(self.size.width, 1)

        def run() -> None:
            brush = count(self._index, width)
            if not self._left.is_set():
                self.app.call_from_thread(bars.show, brush)

        self.run_worker(run, thread=True)

    def action_report(self, name: ReportName) -> None:
        """Show a report; its command runs once."""
        self._shown = name
        self._show()
        if name not in self._reports:
            self._reports[name] = [ReportLine("reading the captures")]
            self._show()
            begun = time.monotonic()

            def tick() -> None:
                if self._reports[name] is waiting:
                    waiting[0] = ReportLine(f"reading the captures: {time.monotonic() - begun:.0f} s")
                    self._pane.refresh()

            waiting = self._reports[name]
            self.set_interval(1, tick)
            width = self.size.width - self._pane.styles.scrollbar_size_vertical
            self.run_worker(lambda: self._run(name, width), thread=True)

    def _run(self, name: ReportName, width: int) -> None:
        try:
            lines = report(
                name,
                self._commands,
                self._expression,
                width,
                numbers=self._index.connection_numbers(),
                stopped=self._left.is_set,
            )
        except KafkasniffError as error:
            lines = [ReportLine(printable(str(error)))]
        if not self._left.is_set():
            self.app.call_from_thread(self._take, name, lines)

    def _take(self, name: ReportName, lines: list[ReportLine]) -> None:
        self._reports[name] = lines
        self._show()

    def _show(self) -> None:
        names = (f"[{one}]" if one == self._shown else one for one in REPORTS)
        keys = "  ".join(f"{number} {name}" for number, name in enumerate(names, 1))
        # A bracket is not markup.
        room = self.size.width - len(keys) - 3
        self._titles.update(bar(f"{keys} · {hint(self.focused, room)}", self.size.width))
        if self._pane.lines is not (lines := self._reports.get(self._shown, [])):
            self._pane.show(lines)

    def on_descendant_focus(self) -> None:
        """Show the keys of the pane with the focus."""
        self._show()

    def on_histogram_chosen(self, event: Histogram.Chosen) -> None:
        """Return the condition."""
        event.stop()
        self.dismiss(event.expression)

    def action_give_up(self) -> None:
        """Return nothing."""
        self.dismiss("")
