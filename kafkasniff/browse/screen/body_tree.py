"""The bodies of an exchange as a tree. Nodes are made when they are opened."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message as Notice
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from kafkasniff.browse.body_view import BodyNode, children, facts, roots
from kafkasniff.model import Exchange

__all__ = ["BodyField", "BodyTree"]

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

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "cursor_down", "Next field"),
        Binding("k,up", "cursor_up", "Previous field"),
        Binding("ctrl+f,pagedown", "page_down", "Next page"),
        Binding("b,ctrl+b,pageup", "page_up", "Previous page"),
        Binding("g,home", "scroll_home", "First field"),
        Binding("G,end", "scroll_end", "Last field"),
        Binding("l,right", "unfold", "Unfold a field"),
        Binding("h,left", "fold", "Fold a field, or go to the one around it"),
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
            (BodyField(number, one.path), one.text)
            for number, node in enumerate(messages, self._first)
            for one in _below(node)
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
