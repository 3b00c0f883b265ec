"""Lines that the kernel writes for a command: the same as those of Python, and as many as are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from kafkasniff.cli.running import pipeline
from kafkasniff.engine.inspector import Inspector
from tests.choice import in_turn, one_in
from tests.cli.console import kafkasniff
from tests.conftest import shipped_captures

FORMS: dict[str, list[str]] = {
    "text": [],
    "json": ["--format", "json"],
    "filtered": ["--filter", "size >= 40"],
    "filtered by responses": ["--filter", "latency_ms > 1", "--format", "json"],
    "filtered by bodies": ["--filter", "body.topics"],
}


def _words(lines: bytes) -> list[list[bytes]]:
    """Lines without padding: that of a request that waits for its response depends on what is decided before it."""
    return [line.split() for line in lines.splitlines()]


def _shown(capture: Any, *options: object) -> tuple[bytes, str, int]:
    done = kafkasniff("decode", capture, *options)
    return done.out, done.err, done.code


@pytest.mark.parametrize(("capture", "form"), in_turn(one_in(12, shipped_captures()), FORMS, 5, with_all=10))
def test_a_count_stops_after_exactly_so_many_messages(capture: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = FORMS[form]
    monkeypatch.setattr(pipeline, "FEW", 0)
    whole, _, _ = _shown(capture, *options)
    counts = one_in(2, [1, 2, 5, 40, 10_000])
    found = [_shown(capture, *options, "-c", count) for count in counts]
    monkeypatch.setattr(Inspector, "write_lines", lambda *_, **_named: False)
    for count, one in zip(counts, found, strict=True):
        assert one == _shown(capture, *options, "-c", count)
        if form == "filtered":
            assert _words(whole)[: len(_words(one[0]))] == _words(one[0])
        else:
            assert whole.startswith(one[0])
        if "json" in options:
            shown = sum(line.startswith((b'{"type":"request"', b'{"type":"response"')) for line in one[0].splitlines())
            assert shown == count or (shown < count and one[0] == whole)
