"""Windows of lines: what has no line, such as a problem between packets, is emitted in its place between the lines."""

from __future__ import annotations

import orjson
import pytest

from kafkasniff.engine.inspector import Inspector
from kafkasniff.model import Problem
from kafkasniff.native import kernel
from kafkasniff.tcp.packets import Note
from tests.engine.test_emitting import conversation
from tests.engine.test_line_runs import shown
from tests.native.one_by_one import OneByOne
from tests.tcp.batches import batch

pytestmark = pytest.mark.skipif(kernel() is None, reason="no native kernel here")


@pytest.mark.parametrize("threads", [None, 1])
@pytest.mark.parametrize("place", [0, 3, 41, 82])
def test_a_problem_between_lines(place: int, threads: int | None) -> None:
    def packets() -> object:
        found = batch(conversation(40).packets)
        found.notes.append(Note(place, Problem("capture-loss", "10 packets were dropped")))
        return found

    lines = shown(Inspector, "json", [packets()], threads=threads)
    assert lines.native == 80
    one_by_one = shown(OneByOne, "json", [packets()])
    assert lines.out.getvalue() == one_by_one.out.getvalue()
    assert lines.summary == one_by_one.summary
    kinds = [orjson.loads(line).get("kind") for line in lines.out.getvalue().splitlines()]
    assert kinds.count("capture-loss") == 1
    assert kinds.index("capture-loss") == min(max(place - 2, 0), 80)
