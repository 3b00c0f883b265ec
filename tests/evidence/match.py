"""Golden lines, each with the one frame and the one line of evidence that are about the same message."""

from __future__ import annotations

import functools
import json
from collections import defaultdict, deque
from pathlib import Path
from typing import NamedTuple

from tests.evidence.compare import Line
from tests.evidence.kafka_classes import Evidence, evidence
from tests.evidence.wire import Frame, frames
from tests.golden import decode, golden_file


class Match(NamedTuple):
    line: Line
    frame: Frame
    evidence: Evidence


@functools.cache
def golden_lines(capture: Path) -> tuple[Line, ...]:
    return tuple(json.loads(line) for line in golden_file(capture).read_bytes().splitlines())


@functools.cache
def open_lines(capture: Path) -> tuple[Line, ...]:
    """The same with the secrets shown, fresh from the command: they are in no golden file."""
    return tuple(json.loads(line) for line in decode(capture, "--show-secrets").splitlines())


def match(capture: Path, lines: tuple[Line, ...]) -> tuple[list[Match], list[Line], list[Frame]]:
    """The matches; lines that no frame is left for; frames that no line is about.

    Lines and frames of a stream are in one order. A frame is skipped only if its correlation id is not the next
    line's; so a missing line is reported as such, and does not spoil those after it.
    """
    waiting: dict[tuple[int, str], deque[tuple[Frame, Evidence]]] = defaultdict(deque)
    for frame, reported in evidence(capture):
        waiting[frame.connection, frame.kind].append((frame, reported))
    matches, strays, passed = [], [], []
    for line in lines:
        if line["type"] not in {"request", "response"}:
            continue
        queue = waiting[line["connection"], line["type"]]
        if all(frame.correlation_id != line["correlation_id"] for frame, _ in queue):
            strays.append(line)
            continue
        while queue[0][0].correlation_id != line["correlation_id"]:
            passed.append(queue.popleft()[0])
        matches.append(Match(line, *queue.popleft()))
    return matches, strays, passed + [frame for queue in waiting.values() for frame, _ in queue]


def tokens(capture: Path) -> list[Frame]:
    return [frame for frame in frames(capture) if frame.kind == "sasl"]
