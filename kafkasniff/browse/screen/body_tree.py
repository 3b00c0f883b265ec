"""The bodies of an exchange as a tree, whose nodes are made when they are opened, and its bytes with their fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.geometry import Offset
from textual.message import Message as Notice
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from kafkasniff.browse.body_view import BodyNode, ByteRows, body_path, children, facts, roots
from kafkasniff.browse.screen.row_pane import CURSOR, RowPane
from kafkasniff.model import Exchange
from kafkasniff.sinks.hex_view import ROW, HexRow

_Node = TreeNode[BodyNode]
_NAME: Final = re.compile(r"[.\[]?([^.\[\]]+)")
"""The first field or index of a path."""


class BodyField(NamedTuple):
    """A field of one of the messages of an exchange."""

    message: int
    """The message's place among those that were seen."""
    path: str
    """Empty: the whole message."""


class BodyTree(Tree[BodyNode]):
    """Facts about an exchange, and its messages."""

    HINTS: ClassVar = (
        "Space fold",
        "x bytes",
        "r records",
        "/ search",
        "| side by side",
        "F follow",
        "y copy",
        "Esc close",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "cursor_down", "Next, previous field"),
        Binding("k,up", "cursor_up", "Next, previous field"),
        Binding("ctrl+f,pagedown", "page_down", "Next, previous page"),
        Binding("b,ctrl+b,pageup", "page_up", "Next, previous page"),
        Binding("g,home", "scroll_home", "First, last field"),
        Binding("G,end", "scroll_end", "First, last field"),
        Binding("l,right", "unfold", "Unfold, fold a field"),
        Binding("h,left", "fold", "Unfold, fold a field"),
        Binding("space,enter", "toggle_node", "Fold or unfold a field"),
    ]

    class FieldMoved(Notice):
        """The cursor is on another field."""

    def __init__(self, name: str) -> None:
        super().__init__("", id=name)
        self.show_root = False
        self._first = 0
        """The first of the messages that it shows."""

    def show(self, exchange: Exchange | None, first: int = 0, last: int | None = None) -> None:
        """Show an exchange, or some of its messages; None: it was not found."""
        self.clear()
        self._first = first
        if exchange is None:
            self.root.add_leaf(Text("the exchange was not found again: have the captures changed?"))
        else:
            for line in () if first else facts(exchange):
                self.root.add_leaf(Text(line))
            for node in islice(roots(exchange), first, last):
                added = self._add(self.root, node)
                self._fill(added)
                added.expand()
        self.root.expand()
        self.cursor_line = 0

    @staticmethod
    def _add(parent: _Node, node: BodyNode) -> _Node:
        label = Text(node.label, "red" if node.is_error else "")
        return parent.add(label, node) if node.opens else parent.add_leaf(label, node)

    def _fill(self, node: _Node) -> None:
        """Make the nodes of a field when it is opened for the first time."""
        if node.data is not None and node.data.opens and not node.children:
            for child in children(node.data):
                self._add(node, child)

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[Any]) -> None:
        """Make the nodes of a field."""
        self._fill(event.node)

    def on_tree_node_highlighted(self) -> None:
        """Report the move."""
        self.post_message(self.FieldMoved())

    def action_unfold(self) -> None:
        """Open the field under the cursor."""
        if self.cursor_node is not None:
            self.cursor_node.expand()

    def action_fold(self) -> None:
        """Close the field under the cursor; go to the one around it if it is closed already."""
        node = self.cursor_node
        if node is None:
            return
        if node.is_expanded and node.allow_expand:
            node.collapse()
        elif node.parent is not None and not node.parent.is_root:
            self.move_cursor(node.parent)

    @property
    def _messages(self) -> list[_Node]:
        return [node for node in self.root.children if node.data is not None]

    @property
    def field(self) -> BodyField | None:
        """The field under the cursor; None if there is none, such as on a line of facts."""
        node = self.cursor_node
        if node is None or node.data is None:
            return None
        path = node.data.path
        while node.parent is not None and not node.parent.is_root:
            node = node.parent
        return BodyField(self._first + self._messages.index(node), path)

    def has(self, message: int) -> bool:
        """Whether it shows a message."""
        return self._first <= message < self._first + len(self._messages)

    def select(self, field: BodyField) -> None:
        """Put the cursor on a field, or on the closest one around it, if its message is shown."""
        if not self.has(field.message):
            return
        node = self._messages[field.message - self._first]
        found: _Node | None = node
        while found is not None:
            node = found
            self._fill(node)
            found = next((one for one in node.children if _leads_to(one.data, field.path)), None)
            if found is not None:
                node.expand()
        self.call_after_refresh(self.move_cursor, node)

    def texts(self) -> Iterator[tuple[BodyField, str]]:
        """All fields of the messages, whether they are open or not, with their texts."""
        messages = [node.data for node in self._messages if node.data is not None]
        return (
            (BodyField(number, body_node.path), body_node.text)
            for number, node in enumerate(messages, self._first)
            for body_node in _below(node)
        )

    def here(self) -> BodyField | None:
        """The field under the cursor."""
        return self.field

    def go(self, place: BodyField) -> None:
        """Put the cursor on a field."""
        self.select(place)


def _below(node: BodyNode) -> Iterator[BodyNode]:
    for child in children(node):
        if child.part is None:
            yield child
        if child.opens:
            yield from _below(child)


def _leads_to(node: BodyNode | None, path: str) -> bool:
    """Whether a field is the one at a path, or around it."""
    if node is None or not path.startswith(node.path):
        return False
    rest = path[len(node.path) :]
    if node.part is None:
        return rest[:1] in {"", ".", "["}
    name = _NAME.match(rest)
    if name is None:
        return False
    if isinstance(node.value, dict):
        return name[1] in islice(node.value, node.part.start, node.part.stop)
    return name[1].isdecimal() and int(name[1]) in node.part


_MARKED: Final = Style(bgcolor="blue", bold=True, underline=True)
_TITLE: Final = Style(bold=True)
_TEXT: Final = ROW * 3 + 1
"""Columns from the first byte in hex to the first as text."""


class BytesPane(RowPane):
    """Rows of bytes; those of a field are marked."""

    HINTS: ClassVar = (
        "h l byte",
        "+ all bytes",
        "/ search",
        "% response",
        "Tab next pane",
        "Esc close",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,right", "next_byte(1)", "Next, previous byte"),
        Binding("h,left", "next_byte(-1)", "Next, previous byte"),
        Binding("plus", "whole", "All bytes of long fields"),
    ]

    class Outdated(Notice):
        """The rows are to be made again, for another width or another length of fields."""

    def __init__(self) -> None:
        super().__init__(id="bytes")
        self.rows = ByteRows(None, 0)
        self.whole = False
        self._byte = 0
        self._marked = range(0)
        self._width = 0

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.rows.rows)

    def show(self, rows: ByteRows) -> None:
        """Show other rows; the cursor goes to the first."""
        self.rows, self._byte, self._marked = rows, 0, range(0)
        self.reset(max(self.size.width, 80))

    def mark(self, field: BodyField) -> None:
        """Mark the bytes of a field of the tree, and go there."""
        if self.count:
            self._marked = self.rows.find(*field)
            self.cursor, self._byte = self._marked.start, 0
            self.show_cursor()

    @property
    def field(self) -> BodyField | None:
        """The field of the tree under the cursor; None if nothing is shown."""
        if not self.count:
            return None
        return BodyField(self.rows.message_of(self.cursor), body_path(self._row.path))

    def go_to_message(self, message: int) -> None:
        """Put the cursor on the first row of a message."""
        self.move_to(self.rows.find(message, "").start)

    @property
    def _row(self) -> HexRow:
        return self.rows.rows[self.cursor]

    def move_to(self, row: int) -> None:
        """Put the cursor on a row, and mark the bytes of its field."""
        super().move_to(row)
        if not self.count:
            return
        self._byte = max(0, min(self._byte, self._row.size - 1))
        first = last = self.cursor
        path = self._row.path
        while path and self.rows.rows[first - 1].path == path:
            first -= 1
        while path and last + 1 < self.count and self.rows.rows[last + 1].path == path:
            last += 1
        self._marked = range(first, last + 1)

    def action_next_byte(self, by: int) -> None:
        """The next or previous byte, which may be in another row."""
        if not self.count:
            return
        byte, row = self._byte + by, self.cursor
        if not 0 <= byte < self._row.size and 0 <= row + by < self.count:
            row += by
            byte = 0 if by > 0 else ROW
        self._byte = byte
        self.move_to(row)

    def action_whole(self) -> None:
        """Show more or less of long fields."""
        self.whole = not self.whole
        self.post_message(self.Outdated())

    def on_resize(self) -> None:
        """Have the rows made for the new width."""
        if self.size.width != self._width:
            self._width = self.size.width
            self.post_message(self.Outdated())

    def click(self, row: int, place: Offset, *, again: bool) -> None:
        """Put the cursor on the byte, in hex or as text."""
        at = place.x - self.rows.rows[row].column
        self._byte = at - _TEXT if at >= _TEXT else at // 3
        self.move_to(row)

    def texts(self) -> Iterator[tuple[int, str]]:
        """All rows with their texts."""
        return ((index, row.text) for index, row in enumerate(self.rows.rows))

    def drawn(self, row: int) -> Text:
        """A row of bytes."""
        shown = self.rows.rows[row]
        text = Text(shown.text, "" if shown.path else _TITLE)
        if not shown.size and row == self.cursor and self.has_focus:
            text.stylize(CURSOR)
        if row in self._marked and not shown.size:
            text.stylize(_MARKED)
        for begin, size, step in (shown.column, 2, 3), (shown.column + _TEXT, 1, 1):
            if row in self._marked and shown.size:
                text.stylize(_MARKED, begin, begin + (shown.size - 1) * step + size)
            if row == self.cursor and shown.size:
                at = begin + self._byte * step
                text.stylize(CURSOR, at, at + size)
        return text
