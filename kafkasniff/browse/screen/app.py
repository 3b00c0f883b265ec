"""The explorer: list, bodies and bytes, with a filter. Threads read captures; the screen never waits for them."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any, ClassVar, Final

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.widgets import Input, Static

from kafkasniff.browse.commands import Commands, Done, copies, run_command
from kafkasniff.browse.filter_texts import SavedFilters, added, condition
from kafkasniff.browse.following import Followed, FollowKind, Trail, followed
from kafkasniff.browse.index import Brush, ExchangeIndex, Row, time_bins
from kafkasniff.browse.reading import ExchangeReading
from kafkasniff.browse.screen.body_tree import BodyField
from kafkasniff.browse.screen.detail_panes import DetailPanes
from kafkasniff.browse.screen.exchange_list import ExchangeList
from kafkasniff.browse.screen.list_lines import CLOCKS
from kafkasniff.browse.screen.menus import CopyMenu, FilterLine, FollowMenu, KeyHelp, PathPrompt, flaw_of
from kafkasniff.browse.screen.overview import Histogram, OverviewScreen
from kafkasniff.browse.screen.reading_threads import ReadingThreads
from kafkasniff.browse.screen.row_pane import bar, hint
from kafkasniff.errors import UsageError
from kafkasniff.filters import Predicate, all_of
from kafkasniff.filters.expression import parse_filter
from kafkasniff.model import Exchange
from kafkasniff.text.printable import clipped, printable

NO_COMMANDS: Final = Commands()
REFRESH_SECONDS: Final = 0.25
"""How often rows are shown while captures are read."""
MAX_TITLE: Final = 40
"""Columns for the names of captures in the status line."""
LOW: Final = 20
"""Lines of a screen from which on there are a header and a line of keys …"""
HIGH: Final = 36
"""… and from which on it has three lines of bars instead of one."""


class Explorer(App[None]):
    """`reading`: the captures; `predicate`: which exchanges are listed at first; `title`: names them.

    `commands`: those that show the same. `few_colours`: use only the terminal's own 16 colours. `looks_only`: the user
    may write no files.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    * { scrollbar-size: 0 1; }
    #list { height: 1fr; scrollbar-gutter: stable; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    #status { height: 1; text-style: reverse; }
    #hint { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit"),
        Binding("escape", "close_pane", "Close filter, bytes or bodies"),
        Binding("slash", "filter", "Filter; an empty one lists all"),
        Binding("y", "copy", "Copy as JSON, hex, commands"),
        Binding("o", "overview", "Overview: findings, summary"),
        Binding("w", "write", "Write what is listed to files"),
        Binding("x", "bytes", "Show bytes with their fields"),
        Binding("p", "jump('partition', 1)", "Next, previous of partition"),
        Binding("P", "jump('partition', -1)", "Next, previous of partition"),
        Binding("i", "jump('producer id', 1)", "Next, previous of producer id"),
        Binding("I", "jump('producer id', -1)", "Next, previous of producer id"),
        Binding("f", "follow", "Follow this connection"),
        Binding("F", "follow_menu", "Follow a record, key, group …"),
        Binding("z", "pause", "Freeze the list, or let it grow"),
        Binding("backspace", "filter_before", "The filter before this one"),
        Binding("tab", "focus_next", "Next pane"),
        Binding("question_mark", "keys", "Show keys"),
    ]

    def __init__(
        self,
        reading: ExchangeReading,
        predicate: Predicate | None = None,
        *,
        title: str = "",
        commands: Commands = NO_COMMANDS,
        saved: SavedFilters | None = None,
        few_colours: bool = False,
        looks_only: bool = False,
    ) -> None:
        # Otherwise Textual has shades of grey for NO_COLOR, and its filter ends with an error on the tree.
        few_colours = few_colours or "NO_COLOR" in os.environ
        super().__init__(ansi_color=few_colours or None)
        self._looks_only = looks_only
        if few_colours:
            self.theme = "ansi-dark"
        self._commands = commands
        self._saved = saved or SavedFilters()
        self._threads = ReadingThreads(self, reading)
        self._base = predicate
        self._sources = clipped(printable(title), MAX_TITLE)
        self._expression = ""
        self._paused = False
        self._before: list[str] = []
        """Expressions before this one."""
        self._trail: Trail | None = None
        self._left = threading.Event()
        """Ends commands that write."""
        self._error = ""
        self._shown = Text()
        """The status line."""
        # Not looked up in the screen: timer and list may still send something while the screen is being removed.
        self._list = ExchangeList()
        self._detail = DetailPanes()
        self._filter_line = FilterLine(self._seen, self._saved)
        self._status = Static(id="status")
        self._hint = Static(id="hint")
        self._header = Histogram("header", 1, axis=False)
        self._counted: tuple[ExchangeIndex, int, int] | None = None
        """What the header shows: the index, its length, the width."""
        self._count_again = 0.0
        """When the header may be counted again."""

    def get_driver_class(self) -> type[Driver]:
        """The driver of the terminal."""
        return outliving(super().get_driver_class(), lambda: self.call_later(self.exit))

    def compose(self) -> ComposeResult:
        """The panes from top to bottom."""
        yield self._header
        yield self._list
        yield self._detail
        yield self._filter_line
        yield self._status
        yield self._hint

    def _seen(self, column: str) -> list[str]:
        """The texts in a column of the list, whichever index it shows by now."""
        return self._list.index.texts(column)

    @property
    def is_broken(self) -> bool:
        """Whether a capture is broken."""
        return self._threads.is_broken

    def on_mount(self) -> None:
        """Begin to read."""
        self._list.focus()
        self.set_interval(REFRESH_SECONDS, self._refresh_rows)
        self._begin(self._base)

    def on_unmount(self) -> None:
        """End the threads."""
        self._threads.end()
        self._left.set()

    def _begin(self, predicate: Predicate | None) -> None:
        self._list.show(self._threads.begin(predicate))
        self._count_again = 0.0
        self._paused, self._trail = False, None

    def _refresh_rows(self) -> None:
        if not self._list.is_settled and not self._paused:
            self._list.grow()
        self._threads.show_growth(self._list.index, is_paused=self._paused)
        self._count_times()
        self._show_status()

    def _count_times(self) -> None:
        """Have a thread count the exchanges over time, unless the user is selecting some; at most 5% of the time."""
        index, header = self._list.index, self._header
        counted = index, len(index), header.size.width
        if counted == self._counted or not counted[2] or header.has_focus or time.monotonic() < self._count_again:
            return
        self._counted, self._count_again = counted, math.inf

        def run() -> None:
            begun = time.monotonic()
            brush = time_bins(index, counted[2])
            self.call_from_thread(done, brush, time.monotonic() - begun)

        def done(brush: Brush, seconds: float) -> None:
            self._count_again = time.monotonic() + 20 * seconds
            if index is self._list.index:
                header.show(brush)

        self._threads.work(run)

    def on_resize(self, event: events.Resize) -> None:
        """Fit the header and the status line."""
        self._fit_header(event.size.height)
        self._show_status()

    def _fit_header(self, height: int) -> None:
        """A high screen has more lines for the header, a low one none beside an open exchange, or none at all."""
        self._header.set_lines(3 if height >= HIGH else 1)
        self._hint.display = height >= LOW
        self._header.display = height >= HIGH or (height >= LOW and not self._detail.is_open)

    def on_histogram_chosen(self, event: Histogram.Chosen) -> None:
        """List only what is in the range."""
        self._filter(added(self._expression, event.expression))

    def on_descendant_focus(self) -> None:
        """Show the keys of the pane with the focus."""
        self._hint.update(Text(hint(self.focused, self.size.width), "dim", no_wrap=True))

    def _show_status(self) -> None:
        exchange_list = self._list
        parts = [
            f"{min(exchange_list.cursor + 1, len(exchange_list.index)):,}/{len(exchange_list.index):,}",
            CLOCKS[exchange_list.clock],
        ]
        trail, place = self._trail, exchange_list.place
        if trail is not None and place is not None and trail.covers(trail.of.kind, exchange_list.index, place):
            parts.append(trail.text)
        if self._expression:
            parts.append(f"filter: {printable(self._expression)}")
        sorting = "sorting" if exchange_list.is_sorting else ""
        # The state of a live capture may be a long warning, so it is last.
        said = (sorting, self._error, self._threads.looking, self._sources, "" if self._error else self._threads.state)
        parts += [part for part in said if part]
        line = bar(" · ".join(parts), self.size.width)
        if line != self._shown:
            self._shown = line
            # Its size stays the same: laying out all panes again would cost more than all else that a key does.
            self._status.update(line, layout=False)

    def on_exchange_list_moved(self) -> None:
        """Show the place, and the bodies if they are open."""
        if not self._filter_line.display:
            self._error = ""
        self._show_status()
        self._look()

    def on_exchange_list_opened(self) -> None:
        """Open the bodies."""
        self._detail.open()
        self._look()

    def _look(self) -> None:
        """Show the exchange under the cursor in the panes that are open."""
        self._fit_header(self.size.height)
        if self._detail.is_open:
            self._decode(lambda exchange, _: self._detail.show(exchange, self._threads.matches))
        else:
            self._threads.leave()

    def on_detail_panes_more_wanted(self) -> None:
        """Decode the exchange again, with more records."""
        self._decode(lambda exchange, _: self._detail.show(exchange, self._threads.matches), more=True)
        self._say(f"decoding up to {self._threads.most:,} records of each message")

    def _decode(self, use: Callable[[Exchange | None, Row], object], *, more: bool = False) -> None:
        """Decode the exchange under the cursor and use it, unless the cursor has moved meanwhile."""
        row = self._list.row
        if row is None:
            self._threads.leave()
        else:
            self._threads.decode(self._list.index, row, lambda exchange: use(exchange, row), more=more)

    def action_bytes(self) -> None:
        """Show or hide the bytes."""
        self._detail.toggle_bytes()
        self._look()

    def action_jump(self, kind: FollowKind, way: int) -> None:
        """To the next or previous exchange of the same partition or producer."""
        index, place, field, trail = self._list.index, self._list.place, self._detail.field, self._trail
        if place is None:
            return
        if trail is not None and field is None and trail.covers(kind, index, place):
            self._follow_trail(way, again=True)
            return

        def use(exchange: Exchange | None, _row: Row) -> None:
            if exchange is None:
                return
            of = next((one for one in self._followed(exchange, field) if one.kind == kind), None)
            if of is None:
                self._say(f"this exchange names no {kind}")
                return
            self._say(f"looking for {kind} {of.title}")
            self._threads.find(of, index, done)

        def done(found: Trail) -> None:
            self._trail = found
            self._follow_trail(way, again=False)

        self._decode(use)

    def _follow_trail(self, way: int, *, again: bool) -> None:
        trail = self._trail
        self._list.focus()
        if trail is None:
            return

        def missed() -> None:
            if again and len(trail.rows) < len(self._list.index):
                # More was read meanwhile.
                self._trail = None
                self.action_jump(trail.of.kind, way)
            else:
                self._say(f"no {'next' if way > 0 else 'previous'} exchange of {trail.of.kind} {trail.of.title}")

        self._list.jump(trail.has, way, trail.of.kind, missed)

    def _followed(self, exchange: Exchange, field: BodyField | None) -> Iterator[Followed]:
        """What can be followed from the field under the cursor, or from the record that the filter selects."""
        message, path = field or (0, "")
        return followed(exchange, message, path, self._threads.predicate)

    def action_copy(self) -> None:
        """Show the formats in which the exchange under the cursor can be copied."""

        def use(exchange: Exchange | None, row: Row) -> None:
            if exchange is not None:
                self.push_screen(CopyMenu(list(copies(exchange, row, self._commands)), looks_only=self._looks_only))

        self._decode(use)

    def action_follow_menu(self) -> None:
        """Show what can be followed from the exchange under the cursor."""
        field = self._detail.field

        def use(exchange: Exchange | None, _row: Row) -> None:
            if exchange is not None:
                found = list(self._followed(exchange, field))
                if found:
                    self.push_screen(FollowMenu(found), chosen)
                else:
                    self._say("this exchange names nothing that can be followed")

        def chosen(expression: str | None) -> None:
            if expression:
                self._filter(expression)

        self._decode(use)

    def action_overview(self) -> None:
        """Show histograms and reports of what is listed, and list what is chosen there."""

        def chosen(expression: str | None) -> None:
            if expression:
                self._filter(added(self._expression, expression))

        self.push_screen(OverviewScreen(self._list.index, self._commands, self._expression), chosen)

    def action_write(self) -> None:
        """Ask for a name, and write the exchanges that are listed."""
        if self._looks_only:
            self._say("an explorer in a browser writes no files")
            return
        self.push_screen(
            PathPrompt("Write what is listed: FILE.pcapng, FILE.jsonl, or FOLDER/ for Parquet"), self._write
        )

    def _write(self, path: str | None) -> None:
        if not path:
            return
        try:
            command = self._commands.write(path, self._expression)
        except UsageError as error:
            self.notify(printable(str(error)), markup=False, severity="error")
            return
        self.notify(f"writing {printable(path)}", markup=False)

        def run() -> None:
            ended = run_command(command, stopped=self._left.is_set)
            if not self._left.is_set():
                self.call_from_thread(done, ended)

        def done(ended: Done) -> None:
            if ended.wrong is None:
                rest = "; a capture is broken, its readable part was read" if ended.broken else ""
                self.notify(f"wrote {printable(path)}{rest}", markup=False)
            else:
                self.notify(ended.wrong, markup=False, severity="error")

        self._threads.work(run)

    def action_filter(self) -> None:
        """Ask for an expression."""
        line = self._filter_line
        line.display = True
        line.value = self._expression
        line.focus()

    def on_filter_line_edited(self, event: FilterLine.Edited) -> None:
        """Show the error in the expression as typed so far."""
        self._say(event.note)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Read again with the filter, if it is valid."""
        self._filter(event.value.strip())

    def _filter(self, expression: str) -> None:
        self._error = flaw_of(expression)
        if self._error:
            self._show_status()
            return
        self._before.append(self._expression)
        self._set_filter(expression)

    def _set_filter(self, expression: str) -> None:
        self._expression = expression
        self._close_filter()
        self._begin(all_of([self._base, parse_filter(expression) if expression else None]))

    def action_filter_before(self) -> None:
        """Filter as before the last change."""
        if self._before:
            self._set_filter(self._before.pop())

    def on_exchange_list_narrowed(self, event: ExchangeList.Narrowed) -> None:
        """Add a condition to the filter."""
        made = condition(event.row, event.column, event.sign)
        if made is None:
            self._say(f"no filter `{event.sign}` for this cell")
        else:
            self._filter(added(self._expression, made))

    def _say(self, note: str) -> None:
        """Show a note in the status line, until the cursor moves."""
        self._error = note
        self._show_status()

    def _close_filter(self) -> None:
        self._filter_line.display = False
        self._error = ""
        self._list.focus()

    def action_follow(self) -> None:
        """List only this connection."""
        row = self._list.row
        if row is not None:
            self._filter(f"connection == {row.connection}")

    def action_close_pane(self) -> None:
        """Close what was opened last."""
        if self._filter_line.display:
            self._close_filter()
        elif self._header.has_focus or (self._detail.close() and not self._detail.is_open):
            self._list.focus()
        self._fit_header(self.size.height)

    def action_pause(self) -> None:
        """Keep the list as it is while captures are read, or let it grow again."""
        self._paused = not self._paused
        self._refresh_rows()

    def action_keys(self) -> None:
        """Show all keys."""
        self.push_screen(KeyHelp(self.BINDINGS, self.focused))


class LosableTerminal:
    """A terminal that discards everything once writing has failed. `lost` is called then, in the writing thread.

    So the explorer ends when its terminal is gone, as when an ssh connection ends: Textual writes in a thread, an error
    ends only that thread, and what it no longer takes would block the explorer for good.
    """

    def __init__(self, file: IO[str], lost: Callable[[], object]) -> None:
        self._file = file
        self._lost = lost
        self._is_lost = threading.Event()

    def write(self, text: str) -> int:
        """Write, or discard."""
        if not self._is_lost.is_set():
            self._guard(lambda: self._file.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush, or discard."""
        if not self._is_lost.is_set():
            self._guard(self._file.flush)

    def _guard(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError:
            self._is_lost.set()
            self._lost()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def outliving(driver: type[Driver], lost: Callable[[], object]) -> type[Driver]:
    """A driver whose writing thread outlives the terminal; those that write in other ways are not changed.

    SIGCONT, which also follows the loss of a terminal, resumes only what SIGTSTP has suspended. Otherwise, Textual
    would begin twice, and would neither end nor restore the terminal.
    """

    class OutlivingDriver(driver):  # type: ignore[misc, valid-type]  # its class is chosen at run time
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            file = getattr(self, "_file", None)
            if file is not None:
                self._file = LosableTerminal(file, lost)

        def _sigcont_application(self, *arguments: Any) -> None:
            if self._must_signal_resume:
                super()._sigcont_application(*arguments)
            else:
                self._app.call_later(self._app.refresh)

    return OutlivingDriver
