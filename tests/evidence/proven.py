"""`dissectors/proven.txt`: the pairs of API and version, and the batches, whose decoding the shipped captures prove:
both golden lines of an exchange say what Kafka's own classes read from the same bytes."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.evidence.compare import Line, line_differences
from tests.evidence.decoded import objects
from tests.evidence.kafka_classes import Evidence
from tests.evidence.match import Match, golden_lines, match
from tests.evidence.wire import Frame
from tests.proven_file import Part

PART = Part(
    "# begin of the captures' part, written by `python -m tests.evidence` (tests/evidence/README.md)\n",
    "# end of the captures' part\n",
)


def _is_proof(line: Line, frame: Frame, reported: Evidence) -> bool:
    """Whether a body of the version that the line names was read to its end, and right."""
    read = line["body"] is not None and not frame.cut and reported["version"] == frame.api_version
    return read and not any(line_differences(line, frame, reported))


def proven(captures: Iterable[Path]) -> dict[tuple[int, str, int, str], list[str]]:
    """(Key, name, version, Kafka's release) of each proven pair: the captures that prove it."""
    found: dict[tuple[int, str, int, str], list[str]] = defaultdict(list)
    for capture in captures:
        for line, frame, reported in _proofs(capture):
            if line["type"] == "request":
                _note(found[frame.api_key, reported["api"], frame.api_version, reported["kafka"]], capture)
    return found


def proven_batches(captures: Iterable[Path]) -> dict[tuple[int, str], list[str]]:
    """(Magic, Kafka's release) of the batches in proven messages: the captures that have them, with records."""
    found: dict[tuple[int, str], list[str]] = defaultdict(list)
    for capture in captures:
        for line, _, reported in _proofs(capture):
            for one in objects(line["body"]):
                if one.get("magic") is not None and one.get("records"):
                    _note(found[one["magic"], reported["kafka"]], capture)
    return found


@functools.cache
def _proofs(capture: Path) -> tuple[Match, ...]:
    """The messages of a capture that were decoded right, of exchanges that were so on both sides."""
    matches, _, _ = match(capture, golden_lines(capture))
    good = {id(frame) for line, frame, reported in matches if _is_proof(line, frame, reported)}
    return tuple(one for one in matches if id(one.frame) in good and id(one.frame.pair) in good)


def _note(names: list[str], capture: Path) -> None:
    if capture.name not in names:
        names.append(capture.name)


def proven_lines(captures: Sequence[Path]) -> list[str]:
    """Lines as `dissectors/proven.txt` has them, in order of keys and versions, then the batches."""
    return [
        *(
            f"{name} {version} captures {release} {' '.join(names)}"
            for (_, name, version, release), names in sorted(proven(captures).items())
        ),
        *(
            f"batches {magic} captures {release} {' '.join(names)}"
            for (magic, release), names in sorted(proven_batches(captures).items())
        ),
    ]
