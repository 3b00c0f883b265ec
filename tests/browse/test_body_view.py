"""Bodies as nodes of a tree."""

from __future__ import annotations

import pytest

from kafkasniff.browse import body_view as module
from kafkasniff.browse.body_view import BodyNode, children, roots
from tests.browse.opened import exchange_of


def labels(node: BodyNode) -> list[str]:
    return [node.label] + ([label for child in children(node) for label in labels(child)] if node.opens else [])


def test_secrets_are_hidden() -> None:
    exchange = exchange_of("java-sasl", "SaslAuthenticate")
    shown = "\n".join(label for node in roots(exchange) for label in labels(node))
    assert "redacted" in shown
    assert "alice-secret" not in shown


def test_text_is_escaped() -> None:
    node = BodyNode("body", "", {"to\x1b[2Jpic": "a\x1b]0;x\x07", "list": [1, "\u202e"]}, None)
    assert "\x1b" not in "".join(labels(node))
    assert "\u202e" not in "".join(labels(node))
    assert labels(node)[2] == "list [2]"


def test_many_children_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHILDREN", 3)
    node = BodyNode("list", "list", list(range(11)), None)
    parts = list(children(node))
    assert [part.label for part in parts] == ["[0] … [8]", "[9] … [10]"]
    assert [child.label for child in children(parts[0])] == ["[0] … [2]", "[3] … [5]", "[6] … [8]"]
    assert [child.path for child in children(parts[1])] == ["list[9]", "list[10]"]
    node = BodyNode("body", "", {"a": 1, "b": 2, "c": 3, "d": 4}, None)
    assert [child.label for part in children(node) for child in children(part)] == ["a: 1", "b: 2", "c: 3", "d: 4"]


def test_long_values_are_cut_in_labels_and_bounded_in_searches() -> None:
    node = next(children(BodyNode("body", "", {"value": b"x" * 1000 + b"\x1b end"}, None)))
    assert "end" not in node.label
    assert node.text.endswith("x\\x1b end")

    class Sliced(bytes):
        def __getitem__(self, part: slice) -> bytes:  # type: ignore[override]
            return bytes(self)[part]

        def decode(self, *_: object) -> str:  # type: ignore[override]
            raise AssertionError("all of the value was used")

    most = module.MAX_SEARCHED_VALUE
    for value in ("v" * (most + 100), Sliced(b"v" * (most + 100))):
        assert BodyNode("value: …", "value", value, None).text.count("v") == len("v" + "v" * most)
